/*
 * A holding: one claimed batch in the hands of a subscription, and how far each item has come.
 */
#ifndef PR_TRANSPORT_DATABASE_HOLDING_H
#define PR_TRANSPORT_DATABASE_HOLDING_H

#include <stdbool.h>
#include <stdint.h>

#include <postroom/transport.h>

#include "port/batch.h"

typedef struct pr__holding {
    pr__batch *batch;
    uint32_t generation;  /* the upper half of its tags */
    uint8_t *states;      /* of each item; in the batch's arena */
    uint32_t *previous;   /* the item before it of the same key; in the arena */
    int64_t leased_at_us; /* monotonic, from before the claim or renewal */
    bool settling;        /* all is decided, and a settle failed: it is repeated as it is */
} pr__holding;

/* Take over a batch and decide what is not to be handed out at all: unreadable, expired, poison,
   blocked. Addresses get the transport's name again. False: out of memory; it is as it was. */
bool pr__holding_init(pr__holding *holding, pr__batch *batch, const char *name);
void pr__holding_done(pr__holding *holding); /* frees the batch */

/* How many items are with the consumer, or may still go there. */
uint32_t pr__holding_open(const pr__holding *holding);
bool pr__holding_complete(const pr__holding *holding); /* nothing is open */
/* Does the consumer still read a message that was taken over, because nobody has told it? */
bool pr__holding_lent(const pr__holding *holding);

/* Hand out up to max items that may go now; of a key, one at a time, and none behind one that was
   not acknowledged. Returns how many. */
uint32_t pr__holding_hand_out(pr__holding *holding, pr_delivery *ret_deliveries, uint32_t max);

/* The item of a tag that is with the consumer, or NULL; in a settling holding, a decided one. One
   that was taken over is lent no longer: the consumer is to be told that its tag is stale. */
pr__item *pr__holding_find(pr__holding *holding, uint64_t tag);
void pr__holding_decide(pr__holding *holding, pr__item *item, pr_verdict verdict,
                        int64_t requeue_delay_ms);

/* After a renewal: drop what was taken over. Returns how many deliveries went stale. */
uint32_t pr__holding_drop_fenced(pr__holding *holding);

#endif
