/*
 * Databases for benchmarks: a folder that is removed at the end, a store in it, and a bare table
 * of the same bytes beside it. Anything that goes wrong ends the program with one line: a
 * benchmark has no use for half a figure.
 */
#ifndef PR_BENCH_DATABASE_H
#define PR_BENCH_DATABASE_H

#include <stdint.h>

#include <sqlite3.h>

#include <postroom/postroom.h>
#include <postroom/sqlite.h>

#define BENCH_BODY_SIZE 256

typedef struct bench_folder {
    char path[256];
} bench_folder;

void bench_fail(const char *what, const char *why) __attribute__((noreturn));
/* All messages came, or the program ends. */
void bench_check_drained(uint64_t drained, uint64_t expected, const char *what);
void bench_check(pr_status status, const pr_error *err, const char *what);
void bench_check_sqlite(int result, sqlite3 *db, const char *what);

bench_folder bench_folder_make(void);
void bench_folder_remove(const bench_folder *folder);

pr_store *bench_store_open(const char *path);     /* made and migrated when missing */
sqlite3 *bench_connection_open(const char *path); /* prepared as a host does it */
void bench_exec(sqlite3 *db, const char *sql);
sqlite3_stmt *bench_prepare(sqlite3 *db, const char *sql);

/* The bare table: the columns that a careful application would keep, no index but its id. */
void bench_bare_create(sqlite3 *db);
sqlite3_stmt *bench_bare_insert(sqlite3 *db);
void bench_bare_bind(sqlite3_stmt *insert, const pr_message *message);

/* The i-th message; body is BENCH_BODY_SIZE bytes of the caller's, key[32] its room for a key. */
pr_message bench_message(uint64_t i, uint64_t keys, const void *body, char key[32]);

/* Enqueue count messages, 1,000 a transaction. */
void bench_fill(pr_store *store, uint64_t count, uint64_t keys);
/* The same with bodies of another size, 8 a transaction. */
void bench_fill_large(pr_store *store, uint64_t count, uint64_t body_size);
void bench_bare_fill(sqlite3 *db, uint64_t count, uint64_t keys);

double bench_seconds(void); /* monotonic */

#endif
