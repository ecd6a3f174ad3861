/*
 * A shop on PostgreSQL in one process: a relay that publishes into a broker in memory, and an
 * endpoint that writes one row of `effects` a message in its unit. The host's clocks are the
 * test's.
 *
 * What a message is to do stands in its body: "once-bad" fails at its first attempt.
 */
#ifndef PR_TESTS_POSTGRES_SHOP_H
#define PR_TESTS_POSTGRES_SHOP_H

#include <postroom/endpoint.h>
#include <postroom/memory.h>
#include <postroom/relay.h>

#include "postgres/ground.h"

#define SHOP_TOPIC "memory://topic/" TYPE_PLACED

typedef struct shop {
    int64_t wall_offset_us; /* how wrong the host's wall clock is */
    int64_t skipped_us;     /* how far the test has moved both of its clocks on */
    pr_clock clock;
    pr_store *relay_store, *endpoint_store;
    pr_memory_broker *broker;
    pr_transport *sender, *receiver, *direct; /* the relay's, the endpoint's, the test's */
    pr_relay *relay;
    pr_endpoint *endpoint;
    int refused; /* how often the database refused an effect */
} shop;

/* Make the table of effects; once a database. */
void shop_prepare(const char *uri);
/* Stores on these addresses, which may lead to the same database by different ways. */
void shop_open(shop *of, const char *relay_uri, const char *endpoint_uri);
void shop_close(shop *of);

/* One step of the endpoint or of the relay; true: there was something to do. Idle time passes at
   once for the host's clocks, and truly, but for a moment only, for the server's. */
bool shop_step_endpoint(shop *of);
bool shop_step_relay(shop *of);
pr_endpoint_snapshot shop_endpoint_snapshot(const shop *of);

/* Send past the outbox. */
void shop_deliver(shop *of, const char *id, const char *key, const char *body);

#endif
