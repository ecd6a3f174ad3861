/*
 * Plain SQL of the demo, on SQLite and on PostgreSQL alike.
 *
 * The statements are the same on both: parameters are $1, $2, …, in the order of their first use,
 * and are given as text; {t} stands before the name of a table of Postroom.
 */
#ifndef PR_CLI_DEMO_SQL_H
#define PR_CLI_DEMO_SQL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <postroom/store.h>
#include <postroom/unit.h>

struct sqlite3;
struct pg_conn;

/* One of the two is set. */
typedef struct pr__demo_db {
    struct sqlite3 *sqlite;
    struct pg_conn *pg;
} pr__demo_db;

/* Open a database by the name of its store; it must be there. */
pr_status pr__demo_open(const char *store, bool read_only, pr__demo_db *ret_db, pr_error *err);
void pr__demo_close(pr__demo_db *db);
/* The connection of a unit, of whichever kind; not to be closed. */
pr__demo_db pr__demo_of_unit(pr_unit *unit);
pr_status pr__demo_join(pr_store *store, const pr__demo_db *db, pr_unit **ret_unit, pr_error *err);

/* One or more statements without parameters. */
pr_status pr__demo_exec(const pr__demo_db *db, const char *sql, pr_error *err);
/* A row, as text; a column that is null is NULL. */
typedef void (*pr__demo_row)(void *user, const char *const *columns, size_t count);
/* Run one statement; row (may be NULL) once a row. */
pr_status pr__demo_query(const pr__demo_db *db, const char *sql, const char *const *params,
                         size_t param_count, pr__demo_row row, void *user, pr_error *err);
/* The first column of the first row. */
pr_status pr__demo_number(const pr__demo_db *db, const char *sql, const char *const *params,
                          size_t param_count, int64_t *ret_value, pr_error *err);

/* Begin a transaction of a writer. */
pr_status pr__demo_begin(const pr__demo_db *db, pr_error *err);
/* Begin one in which no relay of this store can claim or settle. *ret_locked false: somebody writes
   just now. Ended by pr__demo_unlock. */
pr_status pr__demo_lock(const pr__demo_db *db, bool *ret_locked, pr_error *err);
void pr__demo_unlock(const pr__demo_db *db);
/* Holding that lock: who waits for it is dead, so what it sent last must not be carried out. */
pr_status pr__demo_bury(const pr__demo_db *db, pr_error *err);

/* Make two databases on the server; their addresses. A password goes to PGPASSWORD, not into
   them. CONFLICT: one of them is there. */
pr_status pr__demo_make_databases(const char *server, const char *const names[2],
                                  char *const ret_stores[2], size_t size, pr_error *err);

#endif
