/*
 * Where the messages of an endpoint come from: a broker in memory, the log of its own store, or
 * RabbitMQ. Anything that goes wrong ends the program.
 */
#ifndef PR_BENCH_SOURCE_H
#define PR_BENCH_SOURCE_H

#include <stddef.h>
#include <stdint.h>

#include <postroom/memory.h>
#include <postroom/postroom.h>

#include "rabbitmq.h"

#define BENCH_SOURCE_ENDPOINT BENCH_MQ_QUEUE /* the id of the endpoint that takes from it */
#define BENCH_SOURCE_TYPE     "urn:message:bench:handled"

typedef enum bench_carrier {
    BENCH_MEMORY = 1,
    BENCH_DATABASE,
    BENCH_RABBITMQ,
    BENCH_CARRIERS = BENCH_RABBITMQ
} bench_carrier;

typedef struct bench_source {
    bench_carrier carrier;
    pr_memory_broker *broker; /* of MEMORY */
    pr_store *store;          /* of DATABASE; borrowed */
    const char *uri;          /* of RABBITMQ; borrowed */
} bench_source;

const char *bench_carrier_name(bench_carrier carrier);

/* A source with nothing in it; bench_source_close. */
bench_source bench_source_open(bench_carrier carrier, pr_store *store, const char *uri);
void bench_source_close(bench_source *source);

/* An open transport; the caller's: pr_transport_free. */
pr_transport *bench_source_transport(const bench_source *source);
/* Put so many messages into it, after the endpoint has subscribed. */
void bench_source_feed(const bench_source *source, uint64_t count);

#endif
