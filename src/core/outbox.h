/*
 * What a message gets at its birth, by whichever way it leaves: the outbox, or a transport.
 */
#ifndef PR_CORE_OUTBOX_H
#define PR_CORE_OUTBOX_H

#include <postroom/clock.h>
#include <postroom/random.h>
#include <postroom/unit.h>

#include "base/uuid.h"

/* Where defaults come from. */
typedef struct pr__outbox_ground {
    const pr_clock *clock;
    const pr_random *random;
    const pr_unit_context *context; /* what the message inherits */
    uint64_t body_size_max;
} pr__outbox_ground;

typedef struct pr__prepared {
    pr_message message; /* points into the given one, the context and this struct */
    char id[PR_UUID_TEXT_SIZE];
} pr__prepared;

/* Fill in what is missing and check every limit. */
pr_status pr__outbox_prepare(const pr__outbox_ground *ground, const pr_message *message,
                             pr__prepared *ret, pr_error *err);

#endif
