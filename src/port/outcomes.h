/*
 * The outcomes that a transport has and nobody polled yet: a ring with room for the window.
 */
#ifndef PR_PORT_OUTCOMES_H
#define PR_PORT_OUTCOMES_H

#include <stddef.h>
#include <stdint.h>

#include <postroom/transport.h>

typedef struct pr__outcomes {
    pr_submitted *items;
    uint32_t room;
    uint32_t first;
    uint32_t count;
} pr__outcomes;

pr_status pr__outcomes_init(pr__outcomes *outcomes, uint32_t window, const char *origin,
                            pr_error *err);
void pr__outcomes_done(pr__outcomes *outcomes); /* of one that was never made, too */

/* A place behind the last one, to be filled in; there must be room. */
pr_submitted *pr__outcomes_add(pr__outcomes *outcomes, uint64_t ticket, pr_submit_outcome outcome);
/* Give up to max, the oldest first, and forget them; how many. */
size_t pr__outcomes_take(pr__outcomes *outcomes, pr_submitted *ret_outcomes, size_t max);

#endif
