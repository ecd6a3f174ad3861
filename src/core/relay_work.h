/*
 * The work in hand: one batch, and where each of its messages stands on its way to an end.
 *
 * Within a key (under HOLD and HALT, and for parked rows) the items form a chain: only its head is
 * ready, the next becomes ready when the head was published, and any other end closes the chain.
 * Ready items wait in one queue per transport; those that may have closed a connection wait in a
 * second one, to be sent alone. No port is called here.
 */
#ifndef PR_CORE_RELAY_WORK_H
#define PR_CORE_RELAY_WORK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "port/batch.h"

#define PR__WORK_TRANSPORTS_MAX 16
#define PR__WORK_NONE           UINT32_MAX

/* The queue of what no transport takes: blocked, unreadable, poison, unknown schemes. */
#define PR__WORK_NOWHERE PR__WORK_TRANSPORTS_MAX

typedef enum pr__work_phase {
    PR__WORK_FREE = 0,
    PR__WORK_SENDING, /* something is not decided yet */
    PR__WORK_DECIDED, /* to be settled */
    PR__WORK_DRAINING /* settled, but a transport still has messages of it */
} pr__work_phase;

typedef struct pr__work_item {
    int64_t sent_at_us;
    uint64_t sent_mark;   /* the relay's count of confirmations when it was sent */
    uint32_t next_of_key; /* PR__WORK_NONE ends the chain */
    uint32_t next_ready;
    uint32_t destination; /* index into destinations */
    bool decided;         /* its result stands */
    bool flying;          /* a transport has it */
    bool alone;           /* sent alone, as a suspect */
    bool probe;           /* the probe of a half-open breaker */
} pr__work_item;

typedef struct pr__work_destination {
    const char *text; /* in the batch's arena */
    uint64_t hash;
    uint32_t transport; /* PR__WORK_NOWHERE: none */
    bool malformed;     /* no address at all */
} pr__work_destination;

typedef struct pr__work_queue {
    uint32_t first, last;
} pr__work_queue;

typedef struct pr__work {
    pr__work_phase phase;
    uint32_t serial; /* in the tickets */
    pr__batch *batch;
    pr__work_item *items;
    pr__work_destination *destinations;
    uint32_t *slots; /* hash table, first of keys, then of destinations */
    uint32_t capacity, slot_count, destination_count;
    uint32_t undecided;
    uint32_t flying;
    pr__work_queue ready[PR__WORK_TRANSPORTS_MAX + 1];
    pr__work_queue suspects[PR__WORK_TRANSPORTS_MAX];
    int64_t claimed_at_us; /* monotonic, after the claim: expires_at is counted from here */
    int64_t lease_from_us; /* monotonic, before the claim or the last renewal */
    int64_t renew_at_us;
    int64_t deadline_at_us; /* when the next flying one may be overdue; INT64_MAX = none flies */
    bool closed;            /* the order rules were applied */
    pr__batch *view;        /* what pr__work_view gave, in the batch's arena */
    uint32_t *view_items, *view_slices; /* where its items and slices are in the batch */
    bool *settled;                      /* by slice; NULL = none was settled yet */
    int64_t part_at_us;                 /* when settling a part is tried again */
    bool outage;                        /* a transport failed it */
    uint32_t waiting;                   /* left unsent because a lane's cap is reached */
} pr__work;

/* Take a batch over. On NOMEM everything in it is decided as not sent; the batch is the work's
   all the same. names[0..count): schemes of the transports. */
void pr__work_load(pr__work *work, pr__batch *batch, const char *const *names, uint32_t count);
/* Free the batch; the tables stay for the next one. */
void pr__work_clear(pr__work *work);
void pr__work_done(pr__work *work); /* free all */

/* Take the first of a queue; PR__WORK_NONE when it is empty. */
uint32_t pr__work_pop(pr__work *work, pr__work_queue *queue);
/* Give back what was taken last, to the front. */
void pr__work_push_front(pr__work *work, pr__work_queue *queue, uint32_t index);
bool pr__work_queue_empty(const pr__work_queue *queue);

/* The end of an item: PUBLISHED makes the next of its key ready, all else ends the chain, whose
   rest stays OPEN. */
void pr__work_decide(pr__work *work, uint32_t index, pr__result result);
/* Leave everything that was not sent as it is. slice: only of this one; PR__NO_SLICE = all. */
void pr__work_leave_unsent(pr__work *work, uint32_t slice);

void pr__work_sent(pr__work *work, uint32_t index, int64_t now_us, int64_t deadline_us);
/* What the store is to be called with: everything that was not settled before, or, decided_only,
   the slices in which everything is decided while others still wait. NULL: there is none, or no
   memory for it. It is the batch itself as long as nothing was settled apart. */
pr__batch *pr__work_view(pr__work *work, bool decided_only);
/* After that call: what it said of the slices; settled: they are done with. */
void pr__work_viewed(pr__work *work, const pr__batch *view, bool settled);
/* Is anything ready that no transport has yet? */
bool pr__work_has_ready(const pr__work *work);
const pr__work_destination *pr__work_destination_of(const pr__work *work, uint32_t index);

#endif
