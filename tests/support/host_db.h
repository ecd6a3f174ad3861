/*
 * A host program's own connection to either database, for tests and programs that run on both.
 *
 * SQL is written once, with the table names of SQLite (postroom_outbox); on PostgreSQL the first
 * "_" of such a name is the schema's dot. No cmocka here: a failure is reported, or ends the
 * program.
 */
#ifndef PR_TESTS_HOST_DB_H
#define PR_TESTS_HOST_DB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <postroom/store.h>
#include <postroom/unit.h>

typedef struct host_db host_db;

typedef struct host_settings {
    bool create; /* SQLite makes the file; neither looks at the schema */
    int64_t busy_ms;
    const pr_clock *clock;
    const pr_observer *observer;
} host_settings;

/* address: "postgresql://..." or a path of SQLite's. Ends the program when it cannot be opened. */
host_db *host_db_open(const char *address);
void host_db_free(host_db *db); /* accepts NULL */
bool host_is_postgres(const char *address);

/* Run statements; false with the reason, when there is room for it. */
bool host_db_try(host_db *db, const char *sql, char *ret_why, size_t size);
/* The same; a failure ends the program. */
void host_db_run(host_db *db, const char *sql);
/* The first column of the first row as text; "" when there is none or it is NULL. False: out is the
   reason. */
bool host_db_ask(host_db *db, const char *sql, char *out, size_t size);
int64_t host_db_number(host_db *db, const char *sql); /* 0 when there is none */
/* What a store asks of its host's connection: nothing on PostgreSQL. */
pr_status host_db_prepare(host_db *db, int64_t busy_ms, pr_error *err);

pr_status host_store_open(const char *address, const host_settings *settings, pr_store **ret_store,
                          pr_error *err);
/* A unit in the transaction that stands open on the connection. */
pr_status host_unit_join(pr_store *store, host_db *db, pr_unit **ret_unit, pr_error *err);
/* Run a statement on a unit's own connection, as a handler does. */
bool host_unit_try(pr_unit *unit, const char *sql);
/* The same with one text as $1. */
bool host_unit_try_text(pr_unit *unit, const char *sql, const char *text);
/* That connection, to be compared; NULL when the unit has none. */
const void *host_unit_connection(pr_unit *unit);

#endif
