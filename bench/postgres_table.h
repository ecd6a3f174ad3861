/*
 * The usual outbox table at its best, as a baseline: a status column, three indexes, claims of 500
 * by SKIP LOCKED in a materialised CTE, and one UPDATE to published for all of them.
 */
#ifndef PR_BENCH_POSTGRES_TABLE_H
#define PR_BENCH_POSTGRES_TABLE_H

#include <stdint.h>

#include <libpq-fe.h>

#define BENCH_TABLE_IDS_SIZE (500 * 21 + 2)

/* A relay of the table: what it holds is claimed and not yet published. */
typedef struct bench_table_relay {
    PGconn *db;
    uint64_t published;
    uint64_t touched; /* of what it read, so that nobody leaves the reading out */
    int held;
    char ids[BENCH_TABLE_IDS_SIZE]; /* of those, as an array */
} bench_table_relay;

void bench_table_create(PGconn *db);
void bench_table_fill(PGconn *db, uint64_t count);

void bench_table_open(bench_table_relay *relay, const char *address);
void bench_table_close(bench_table_relay *relay);
/* Mark what is held as published and claim up to 500, in one statement, thus one commit. */
void bench_table_turn(bench_table_relay *relay);
/* The two by themselves. */
void bench_table_claim(bench_table_relay *relay);
void bench_table_publish(bench_table_relay *relay);
/* Turn until nothing is left; item is a bench_table_relay. */
void bench_table_drain(void *item);

#endif
