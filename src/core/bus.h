/*
 * A bus's inside, shared by its files: bus.c (what belongs to it), bus_run.c (start, stop),
 * bus_snapshot.c, bus_transport.c (clones and senders), bus_send.c (direct publish), bus_request.c
 * (requests and their answers), bus_idle.c (waiting until nothing is left to do).
 */
#ifndef PR_CORE_BUS_H
#define PR_CORE_BUS_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include <postroom/bus.h>

#include "base/memory.h"
#include "base/uuid.h"
#include "core/outbox.h"

#define PR__BUS_TRANSPORTS_MAX 16
#define PR__BUS_ENDPOINTS_MAX  256
#define PR__BUS_SENDERS_MAX    8 /* direct messages in flight at once, a transport */
#define PR__ADDRESS_SIZE       512
#define PR__BUS_SLICE_US       50000 /* how soon a request sees that it was cancelled */

typedef struct pr__request {
    struct pr__request *next;
    const char *id; /* the request's: its answer names it as its cause */
    pr_reply *reply;
    atomic_bool cancelled;
} pr__request;

struct pr_reply {
    pr_message *message;
    pr_decoded *decoded;
};

/* Where answers come to, on one transport: a temporary subscription with a thread. */
typedef struct pr__reply_box {
    pr_bus *bus;
    pr_transport *transport; /* NULL: not opened yet */
    pr_subscription *subscription;
    pthread_t thread;
    bool opening; /* by a thread that asks, without the mutex */
    bool running;
    atomic_bool ending;
    char id[PR_UUID_TEXT_SIZE];
} pr__reply_box;

typedef struct pr__bus_transport {
    pr_transport *given;
    pthread_mutex_t mutex; /* guards what follows, and the cloning */
    pthread_cond_t returned;
    pr_transport *idle[PR__BUS_SENDERS_MAX]; /* senders that nobody uses now */
    uint32_t idle_count;
    uint32_t sender_count; /* idle or in use */
    pr__reply_box box;     /* guarded by the bus's request mutex, but for its thread's part */
} pr__bus_transport;

typedef struct pr__bus_endpoint {
    pr_store *store;
    pr_transport *transport;
    pr_endpoint *endpoint;
    pthread_t thread;
    bool running;
} pr__bus_endpoint;

typedef enum pr__bus_life {
    PR__BUS_STOPPED = 0,
    PR__BUS_STARTING,
    PR__BUS_STARTED,
    PR__BUS_STOPPING
} pr__bus_life;

struct pr_bus {
    pr_bus_options opt;
    pr_store *own_store; /* what it frees at its end; NULL: its host's */
    pr_transport *own_transport;
    pr_relay_options relay_options;
    char *source;
    pr_unit_context context; /* of direct messages */
    pr__bus_transport transports[PR__BUS_TRANSPORTS_MAX];
    uint32_t transport_count;
    pr__bus_endpoint endpoints[PR__BUS_ENDPOINTS_MAX];
    uint32_t endpoint_count;

    pthread_mutex_t life_mutex; /* guards life */
    pthread_cond_t life_changed;
    pr__bus_life life;
    pthread_mutex_t relay_mutex; /* guards the pointer to the relay */
    pr_store *relay_store;
    pr_transport *relay_transports[PR__BUS_TRANSPORTS_MAX];
    pr_relay *relay;
    pthread_t relay_thread;
    bool relay_running;
    atomic_bool started; /* and nobody asked for its stop */

    pthread_mutex_t request_mutex; /* guards all below, and the boxes */
    pthread_cond_t answered;       /* or cancelled; or a box was opened, or is free for that */
    pr__request *waiting;
    uint32_t asking; /* threads inside of a request */

    _Atomic uint64_t published, refused, requests, replies, timeouts, late_replies;
};

pr_status pr__bus_transport_init(pr__bus_transport *at, pr_bus *bus, pr_transport *given,
                                 pr_error *err);
void pr__bus_transport_done(pr__bus_transport *at);
/* Another one onto the same other side, at any time and by any thread. */
pr_status pr__bus_transport_clone(pr__bus_transport *at, pr_transport **ret_clone, pr_error *err);
/* A sender for one message; BUSY: none became free until then. CANCELLED: as pr__bus_submit. */
pr_status pr__bus_transport_take(pr__bus_transport *at, int64_t until_us,
                                 const atomic_bool *cancelled, pr_transport **ret_sender,
                                 pr_error *err);
/* Give it back; one that is not sound is closed. */
void pr__bus_transport_give(pr__bus_transport *at, pr_transport *take_sender, bool sound);

/* The bus frees both at its end, after all that uses them. */
void pr__bus_own(pr_bus *bus, pr_store *take_store, pr_transport *take_transport);
pr__bus_transport *pr__bus_transport_named(pr_bus *bus, const char *name); /* NULL: none */

/* The transport that serves an address; NOT_FOUND when there is none of its scheme. */
pr_status pr__bus_route(pr_bus *bus, const char *destination, pr__bus_transport **ret_transport,
                        pr_error *err);
/* NULL: the topic of the message's type; else an address, or an endpoint's id. */
pr_status pr__bus_address(const pr_bus *bus, const char *to, const pr_message *message,
                          char out[PR__ADDRESS_SIZE], pr_error *err);
/* Hand over a message that is prepared and wait for its outcome. CANCELLED: `cancelled`, which may
   be NULL, became true. */
pr_status pr__bus_submit(pr_bus *bus, pr__bus_transport *at, const pr_message *message,
                         int64_t deadline_ms, const atomic_bool *cancelled, pr_error *err);
pr_status pr__bus_prepare(const pr_bus *bus, const pr_message *message, pr__prepared *ret,
                          pr_error *err);

/* Wake and refuse who waits. */
void pr__bus_cancel_requests(pr_bus *bus);
/* That, wait until they are gone, and end the threads of the boxes. */
void pr__bus_end_requests(pr_bus *bus);

/* A doorbell: a unit of an endpoint was committed. */
void pr__bus_ring(void *bus);
/* Is this one of the threads that a stop waits for? */
bool pr__bus_in_handler(pr_bus *bus);
pr_status pr__bus_check_stopped(pr_bus *bus, pr_error *err);

#endif
