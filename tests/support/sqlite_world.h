/*
 * A SQLite store in a fresh folder, for tests that need a database, and plain SQL on it beside the
 * store.
 */
#ifndef PR_TESTS_SQLITE_WORLD_H
#define PR_TESTS_SQLITE_WORLD_H

#include <sqlite3.h>

#include <postroom/sqlite.h>

#include "support/test.h"

typedef struct sqlite_world {
    char folder[256];
    char path[300];
} sqlite_world;

/* Make the folder alone; the file may come later. */
pr_status sqlite_world_make(sqlite_world *at, pr_error *err);
/* Make the schema, or what is missing of it; opt may be NULL. */
pr_status sqlite_world_migrate(const sqlite_world *at, const pr_migrate_options *opt,
                               pr_error *err);
/* Both; no connection stays open, so the caller may fork. */
pr_status sqlite_world_open(sqlite_world *at, pr_error *err);
pr_status sqlite_world_store(const sqlite_world *at, int64_t busy_ms, uint64_t body_size_max,
                             pr_store **ret_store, pr_error *err);
/* Folder, schema and a store; what goes wrong fails the test. */
pr_store *sqlite_world_begin(sqlite_world *at, int64_t busy_ms);
void sqlite_world_end(sqlite_world *at, pr_store *store); /* closes both; store may be NULL */
/* Drop folder and file; anything else that stands there fails the test. */
void sqlite_world_close(sqlite_world *at);

/* Other hands on the file, each on a connection of its own; what goes wrong fails the test. */
sqlite3 *sqlite_world_connect(const sqlite_world *at); /* sqlite3_close() */
void sqlite_world_run(const sqlite_world *at, const char *sql);
/* One number; text (may be NULL) is ?1. */
int64_t sqlite_world_number(const sqlite_world *at, const char *sql, const char *text);
void sqlite_run(sqlite3 *db, const char *sql);

#endif
