/*
 * A transport of your own, whole: copy the folder, rename it, and put your broker where the shelf
 * is. The shelf is the other side: what a server would keep. It lives in this process.
 *
 *   queues.c     queues, by name                              -> your server
 *   declare.c    a queue is made, with its types              -> your server
 *   messages.c   what waits in a queue, in order of each key  -> your server
 *   transport.c  made, cloned, closed; the table of functions -> your client, from here on
 *   send.c       submit, and what became of it
 *   subscribe.c  a queue is watched, and asked what it holds
 *   receive.c    deliveries, which are leased
 *   settle.c     verdicts; keeping and giving back what is in hand
 *
 * tests/contract/test_transport_shelf.c runs the conformance suite on it; so can yours.
 */
#ifndef SHELF_H
#define SHELF_H

#include <pthread.h>
#include <stdbool.h>

#include <postroom/postroom.h>

#define SHELF_NAME     "shelf" /* of addresses: shelf://topic/… */
#define SHELF_BODY_MAX (1024 * 1024)

/* ---- the server ---- */

/* One message in one queue. It leaves when it is settled; until then it is free, or somebody's. */
typedef struct shelf_item {
    struct shelf_item *next;
    pr_message *message;
    uint64_t tag;        /* of its latest delivery; 0 = free */
    int64_t until_us;    /* monotonic: delivered or put off until then */
    uint32_t deliveries; /* so far */
} shelf_item;

typedef struct shelf_queue {
    struct shelf_queue *next;
    char *name; /* the endpoint's id, or that of a reply address */
    char **types;
    size_t type_count;
    uint64_t owner;     /* of a temporary one: its subscription; 0 = it stands for ever */
    int64_t expires_us; /* of a temporary one whose owner is not heard of */
    shelf_item *items;  /* in order */
    size_t dead_count;
} shelf_queue;

typedef struct shelf {
    pthread_mutex_t mutex; /* guards all of it; the functions of the server want it held */
    shelf_queue *queues;
    uint64_t next_number; /* of tags and owners */
} shelf;

/* queues.c */
shelf *shelf_new(void);
void shelf_free(shelf *self);
/* The queue, or NULL; one that expired is gone. */
shelf_queue *shelf_find(shelf *self, const char *name, int64_t now_us);
void shelf_drop(shelf *self, const shelf_queue *queue);
/* Drop the temporary queues whose owners were not heard of for too long. */
void shelf_expire(shelf *self, int64_t now_us);
bool shelf_has(const char *const *types, size_t count, const char *type);
bool shelf_takes(const shelf_queue *queue, const char *type);

/* declare.c: make it, or see that it stands with these types */
pr_status shelf_declare(shelf *self, const pr_subscribe_options *options, uint64_t owner,
                        bool check_only, int64_t now_us, pr_error *err);

/* messages.c */
/* Into each queue that the address reaches, or none. *ret_count: how many. False: no memory. */
bool shelf_put(shelf *self, const pr_address *to, const pr_message *message, size_t *ret_count);
/* The next that may be delivered; of a key, the oldest alone. NULL: none now. */
shelf_item *shelf_next(shelf_queue *queue, int64_t now_us);
shelf_item *shelf_delivered(const shelf_queue *queue, uint64_t tag);
void shelf_remove(shelf_queue *queue, shelf_item *item);

/* ---- the client: a transport ---- */

typedef struct shelf_transport {
    pr_transport base; /* first: Postroom sees this */
    shelf *shelf;
    pr_submitted *outcomes; /* room for a window; not polled yet */
    size_t outcome_count;
} shelf_transport;

/* As another process would have it; window 0 = 256. */
pr_status shelf_connect(shelf *self, uint32_t window, pr_transport **ret_transport, pr_error *err);
pr_status shelf_no_memory(pr_error *err);
int64_t shelf_now_us(const pr_transport *transport);

/* send.c */
pr_status shelf_submit(pr_transport *transport, const pr_submission *submissions, size_t count,
                       size_t *ret_accepted, pr_error *err);
pr_status shelf_poll(pr_transport *transport, int64_t timeout_ms, pr_submitted *ret_outcomes,
                     size_t max, size_t *ret_count, pr_error *err);

/* ---- the client: a subscription ---- */

/* A copy, as it is lent to the receiver until it settles, whatever becomes of the queue's own. */
typedef struct shelf_held {
    uint64_t tag;
    pr_message *message;
} shelf_held;

typedef struct shelf_subscription {
    pr_subscription base; /* first: Postroom sees this */
    char *name;
    uint64_t owner; /* of a temporary one */
    int64_t lease_us;
    int64_t expiry_us;
    size_t prefetch;
    size_t held_count;
    shelf_held held[]; /* room for the prefetch */
} shelf_subscription;

/* subscribe.c */
pr_status shelf_topology(pr_transport *transport, const pr_subscribe_options *options,
                         bool check_only, pr_error *err);
pr_status shelf_backlog(pr_transport *transport, const pr_subscribe_options *options,
                        uint64_t *ret_count, pr_error *err);
pr_status shelf_subscribe(pr_transport *transport, const pr_subscribe_options *options,
                          pr_subscription **ret_subscription, pr_error *err);
/* Lock the shelf; the subscription's queue, or NULL when it has expired. Unlock it either way. */
shelf_queue *shelf_lock_queue(shelf_subscription *self, int64_t *ret_now_us);
void shelf_unlock(shelf_subscription *self);

/* receive.c */
pr_status shelf_receive(pr_subscription *subscription, int64_t timeout_ms,
                        pr_delivery *ret_deliveries, size_t max, size_t *ret_count, pr_error *err);

/* settle.c */
pr_status shelf_settle(pr_subscription *subscription, uint64_t tag, pr_verdict verdict,
                       int64_t requeue_delay_ms, pr_error *err);
pr_status shelf_keep(pr_subscription *subscription, pr_error *err);
void shelf_give_back(pr_subscription *subscription);

#endif
