/*
 * PgQ, where it is installed (Debian: postgresql-15-pgq3), as a second baseline: batches that are
 * acknowledged as a whole, no state of a message.
 */
#ifndef PR_BENCH_POSTGRES_PGQ_H
#define PR_BENCH_POSTGRES_PGQ_H

#include <stdbool.h>
#include <stdint.h>

#include <libpq-fe.h>

/* A consumer of a queue of its own. */
typedef struct bench_pgq_consumer {
    PGconn *db;
    char queue[16];
    uint64_t consumed;
    uint64_t touched;
} bench_pgq_consumer;

bool bench_pgq_installed(PGconn *db);
/* Make the queues bench_0 to bench_(queues - 1) with a consumer each, and fill them alike, in
   batches of 500. count must be a multiple of 500 * queues. */
void bench_pgq_create(PGconn *db, int queues, uint64_t count);

void bench_pgq_open(bench_pgq_consumer *consumer, const char *address, int queue);
void bench_pgq_close(bench_pgq_consumer *consumer);
/* Consume until nothing is left; item is a bench_pgq_consumer. */
void bench_pgq_drain(void *item);

#endif
