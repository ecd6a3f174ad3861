/*
 * A transport of your own, whole: copy the folder, rename it, and put your broker where the shelf
 * is. The shelf is the other side: what a server would keep. It lives in this process.
 *
 *   shelf.c    queues: who is there, what waits for whom     -> your server
 *   send.c     pr_transport_ops: connect, submit, outcomes   -> your client, sending
 *   receive.c  pr_subscription_ops: deliveries and verdicts  -> your client, receiving
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
    pthread_mutex_t mutex; /* guards all of it; shelf_… below are called with it held */
    shelf_queue *queues;
    uint64_t next_number; /* of tags and owners */
} shelf;

shelf *shelf_new(void);
void shelf_free(shelf *self);

/* A transport onto the shelf, as another process would have it. */
pr_status shelf_connect(shelf *self, uint32_t window, pr_transport **ret_transport, pr_error *err);
shelf *shelf_of(pr_transport *transport);

/* ---- shelf.c, for the transport ---- */

/* Drop the temporary queues whose owners were not heard of for too long. */
void shelf_expire(shelf *self, int64_t now_us);
/* The queue, or NULL; one that expired is gone. */
shelf_queue *shelf_find(shelf *self, const char *name, int64_t now_us);
/* Make it, or see that it stands with these types. */
pr_status shelf_declare(shelf *self, const pr_subscribe_options *options, uint64_t owner,
                        bool check_only, int64_t now_us, pr_error *err);
void shelf_drop(shelf *self, const shelf_queue *queue);
/* Into each queue that the address reaches, or none. *ret_count: how many. False: no memory. */
bool shelf_put(shelf *self, const pr_address *to, const pr_message *message, size_t *ret_count);
/* The next that may be delivered; of a key, the oldest alone. NULL: none now. */
shelf_item *shelf_next(shelf_queue *queue, int64_t now_us);
shelf_item *shelf_delivered(const shelf_queue *queue, uint64_t tag);
void shelf_remove(shelf_queue *queue, shelf_item *item);

/* ---- receive.c ---- */

pr_status shelf_topology(pr_transport *transport, const pr_subscribe_options *options,
                         bool check_only, pr_error *err);
pr_status shelf_subscribe(pr_transport *transport, const pr_subscribe_options *options,
                          pr_subscription **ret_subscription, pr_error *err);

static inline int64_t shelf_now_us(const pr_transport *transport)
{
    return transport->clock->monotonic_us(transport->clock->user);
}

#endif
