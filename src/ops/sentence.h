/*
 * The sentence of explain: from what stands of a message to why it is not moving.
 */
#ifndef PR_OPS_SENTENCE_H
#define PR_OPS_SENTENCE_H

#include <postroom/operations.h>

#include "port/store.h"

/* Everything that is known of one message when the sentence is made. */
typedef struct pr__situation {
    const pr_record *record;
    const pr__place *place; /* of an outbox record; NULL for an inbox one */
    const char *blocker_id; /* "" = none */
    int64_t now_us;         /* the database's */
} pr__situation;

/* Fill *ret; pure: no store, no clock. Every state and cause gives a sentence. */
void pr__sentence_make(const pr__situation *situation, pr_explanation *ret);

#endif
