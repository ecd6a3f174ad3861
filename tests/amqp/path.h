/*
 * The whole way over a real broker: a host that enqueues, a relay and endpoints in threads of their
 * own, on either store. The effect of a message is a row that the handler writes in its unit.
 */
#ifndef PR_TESTS_AMQP_PATH_H
#define PR_TESTS_AMQP_PATH_H

#include <pthread.h>
#include <stdatomic.h>

#include <postroom/postroom.h>

#include "amqp/ground.h"
#include "contract/store_provider.h"

typedef struct path path;

/* One that runs on a thread: a relay or an endpoint. */
typedef struct path_runner {
    path *of;
    pr_store *store;
    pr_transport *transport;
    pr_relay *relay;
    pr_endpoint *endpoint;
    pthread_t thread;
    bool runs;
} path_runner;

struct path {
    ground *at;
    const store_provider *provider;
    void *world;
    pr_store *host;
    path_runner relay, endpoints[2];
    atomic_int calls;   /* of the handler */
    atomic_bool hold;   /* handlers wait while this is so */
    atomic_int holding; /* handlers that wait */
    unsigned enqueued;
};

void path_begin(path *of, ground *at, const store_provider *provider);
void path_end(path *of); /* stops what runs */
void path_relay_start(path *of);
void path_endpoint_start(path *of, size_t which);
void path_stop(path_runner *runner); /* asks it to stop and waits for it */
/* Enqueue so many, a unit each; the longest of them in ms. */
int64_t path_enqueue(path *of, unsigned count);
long path_number(path *of, const char *sql);
/* Wait until there are so many effects. */
void path_wait_effects(path *of, long wanted, int64_t ms, const char *label);
/* Each of what was enqueued has one effect, and nothing was charged. */
void path_check_whole(path *of, const char *label);
pr_relay_snapshot path_relay_snapshot(path *of);

#endif
