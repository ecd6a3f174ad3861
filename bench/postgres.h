/*
 * What the benchmarks on PostgreSQL share: databases that come and go, statements, a store, and
 * what the server itself spent. Anything that goes wrong ends the program with one line.
 *
 * The server must be nobody else's: its processor time is counted over all of its processes.
 */
#ifndef PR_BENCH_POSTGRES_H
#define PR_BENCH_POSTGRES_H

#include <stdint.h>

#include <libpq-fe.h>

#include <postroom/postroom.h>

#define BENCH_PG_BODY_SIZE    300
#define BENCH_PG_ADDRESS_SIZE 640

/* The body of every message, as SQL. */
#define BENCH_PG_BODY "convert_to(repeat('x', 300), 'UTF8')"
#define BENCH_PG_TYPE "urn:message:bench:measured"

typedef struct bench_database {
    const char *server; /* address of the server's own database */
    char name[40];
    char address[BENCH_PG_ADDRESS_SIZE]; /* keywords for libpq */
} bench_database;

/* Make it anew. */
bench_database bench_database_make(const char *server, const char *name);
void bench_database_drop(const bench_database *database);

PGconn *bench_pg_open(const char *address);
PGresult *bench_pg_query(PGconn *db, const char *sql); /* text; the caller's: PQclear */
void bench_pg_run(PGconn *db, const char *sql);
double bench_pg_number(PGconn *db, const char *sql); /* the first column of the first row */
/* Take a result whatever it was; fail with the server's words when it is no success. */
PGresult *bench_pg_checked(PGconn *db, PGresult *result, const char *what);

/* Open a store in the database, made and migrated when it is missing. */
pr_store *bench_pg_store(const bench_database *database);
/* Put count messages of 10,000 keys into the log, 5,000 a transaction. */
void bench_pg_fill(PGconn *db, uint64_t count);
/* Vacuum, analyze and checkpoint, so that no side pays for what came before. */
void bench_pg_settle(PGconn *db);

/* What all processes of the server have spent so far. */
typedef struct bench_usage {
    double cpu_us;
    double wal_bytes;
    char lsn[24];
} bench_usage;

bench_usage bench_usage_get(PGconn *db);
/* Bytes of full-page images in the WAL since then; 0 when the server cannot tell (before 15). */
double bench_page_image_bytes(PGconn *db, const bench_usage *since);

#endif
