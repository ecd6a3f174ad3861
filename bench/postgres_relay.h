/*
 * A relay of the library on PostgreSQL, with a transport that confirms everything at once and keeps
 * nothing.
 */
#ifndef PR_BENCH_POSTGRES_RELAY_H
#define PR_BENCH_POSTGRES_RELAY_H

#include <stdatomic.h>
#include <stdint.h>

#include <postroom/memory.h>

#include "postgres.h"

typedef struct bench_relay {
    pr_store *store;
    pr_memory_broker *broker;
    pr_transport *transport;
    pr_relay *relay;
    uint64_t published;
    uint64_t wanted; /* drain until all relays together have published so many */
    atomic_uint_least64_t *all_published;
} bench_relay;

void bench_relay_open(bench_relay *relay, const bench_database *database, uint32_t batch);
void bench_relay_close(bench_relay *relay);
/* Step until all is published, and settled; item is a bench_relay. */
void bench_relay_drain(void *item);

#endif
