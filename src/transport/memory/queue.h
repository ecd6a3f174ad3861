/*
 * A queue of the memory broker: what waits, what is delayed, what is dead, and order per key.
 *
 * Nothing here locks: the broker's lock is held by every caller.
 */
#ifndef PR_TRANSPORT_MEMORY_QUEUE_H
#define PR_TRANSPORT_MEMORY_QUEUE_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <postroom/transport.h>

#include "transport/memory/envelope.h"

typedef struct pr__chain pr__chain; /* the messages of one (tenant, key) */

/* One message in one queue. */
typedef struct pr__entry {
    struct pr__entry *prev, *next; /* in the list that holds it; a chain uses next alone */
    pr__envelope *envelope;
    pr__chain *chain;        /* NULL without a key */
    uint32_t delivery_count; /* how often it was handed out */
    int64_t due_us;          /* while delayed; the clock's monotonic time */
} pr__entry;

typedef struct pr__entry_list {
    pr__entry *first, *last;
    size_t count;
} pr__entry_list;

typedef struct pr__queue {
    struct pr__queue *next; /* of the broker */
    char *name;             /* endpoint id, or reply id */
    bool temporary;
    char **types;
    size_t type_count;
    size_t consumers;
    pr__entry_list ready;   /* may be handed out */
    pr__entry_list delayed; /* by due_us */
    pr__entry_list dead;
    pr__chain **buckets; /* by (tenant, key) */
    size_t bucket_count;
    size_t chain_count;
    size_t held_count;   /* messages in all, the dead left out */
    size_t held_bytes;   /* of their envelopes */
    pr__entry *prepared; /* of the publish in hand */
    pthread_cond_t some; /* something became ready */
} pr__queue;

pr__queue *pr__queue_new(const pr_subscribe_options *options); /* NULL when out of memory */
void *pr__queue_free(pr__queue *queue);                        /* accepts NULL, returns NULL */
bool pr__queue_takes_type(const pr__queue *queue, const char *type, size_t type_size);
bool pr__queue_same_types(const pr__queue *queue, const pr_subscribe_options *options);

/* An entry that holds the envelope, ready to be pushed; NULL when out of memory. */
pr__entry *pr__queue_prepare(pr__queue *queue, pr__envelope *envelope);
void pr__queue_push(pr__queue *queue, pr__entry *entry);      /* cannot fail */
void pr__queue_unprepare(pr__queue *queue, pr__entry *entry); /* undo a prepare */

/* Make ready what is due. */
void pr__queue_wake_due(pr__queue *queue, int64_t now_us);
/* Take out the next entry that may be handed out; NULL = none. It blocks its key until it is given
   back, finished or buried. */
pr__entry *pr__queue_take(pr__queue *queue);
void pr__queue_give_back(pr__queue *queue, pr__entry *entry); /* to the front, at once */
void pr__queue_delay(pr__queue *queue, pr__entry *entry, int64_t due_us);
void pr__queue_finish(pr__queue *queue, pr__entry *entry);                /* done with it */
void pr__queue_bury(pr__queue *queue, pr__entry *entry, size_t dead_max); /* to the dead list */

#endif
