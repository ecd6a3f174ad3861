/*
 * The SQLite adapter: a store in a database file, and units on the host's own connection.
 */
#ifndef POSTROOM_SQLITE_H
#define POSTROOM_SQLITE_H

#include <postroom/store.h>
#include <postroom/unit.h>

struct sqlite3;

typedef struct pr_sqlite_options {
    uint32_t size;
    bool create;                 /* make the file when it is missing */
    bool schema_check_off;       /* open although the schema is missing or old, for migrate */
    const char *path;            /* the database file; never ":memory:" */
    const char *prefix;          /* of table names; NULL = "postroom"; [A-Za-z0-9_] */
    int64_t busy_ms;             /* how long to wait for other writers; 0 = 5,000 */
    uint64_t body_size_max;      /* 0 = 1 MiB; <= 64 MiB */
    const pr_clock *clock;       /* borrowed; NULL = the system's. Leases go by its wall_us */
    const pr_random *random;     /* borrowed; NULL = the system's */
    const pr_observer *observer; /* borrowed; may be NULL */
} pr_sqlite_options;

/* clang-format off */
#define PR_SQLITE_OPTIONS(...) {.size = (uint32_t)sizeof(pr_sqlite_options), __VA_ARGS__}
/* clang-format on */

PR_BEGIN_DECLS

/**
 * Open a store in a file with all defaults; file and schema are made, or brought up to date, where
 * that is needed. pr_sqlite_store_open has the options and leaves the schema alone.
 *
 * Owner   *ret_store is the caller's: pr_store_free().
 * Errors  as pr_sqlite_store_open and pr_store_migrate. SCHEMA: newer than this library, or
 *         altered.
 * Since   0.1
 */
PR_API PR_MUST_CHECK pr_status pr_sqlite_open(const char *path, pr_store **ret_store,
                                              pr_error *err);

/**
 * Open a store. Its schema must stand (pr_store_migrate) unless schema_check_off is set.
 *
 * Owner   opt is borrowed, what it points to must outlive the store (path and prefix are copied).
 *         *ret_store is the caller's: pr_store_free().
 * Errors  INVALID: options, names. NOT_FOUND: no such file. SCHEMA: missing, older, newer, altered;
 *         says what to run. BACKEND: no database, read-only, disk.
 * Since   0.1
 */
PR_API PR_MUST_CHECK pr_status pr_sqlite_store_open(const pr_sqlite_options *opt,
                                                    pr_store **ret_store, pr_error *err);

/**
 * Set the host's own connection up as the store's: WAL, synchronous=FULL, busy handler, checkpoints
 * left to relays and endpoints.
 *
 * Shape   after a commit on db, a relay that waits to write is let through, for 20 ms at most.
 * Owner   db stays the host's; its busy handler and WAL hook are ours from now on.
 * Units   busy_ms: milliseconds; 0 = 5,000.
 * Errors  INVALID. BACKEND. STATE: a transaction is open.
 * Since   0.1
 */
PR_API PR_MUST_CHECK pr_status pr_sqlite_prepare(struct sqlite3 *db, int64_t busy_ms,
                                                 pr_error *err);

/**
 * Attach to the transaction that the host has open on its own connection.
 *
 * Owner   db stays the host's and must outlive the unit; *ret_unit: pr_unit_free(). The host
 *         commits and then calls pr_unit_finished().
 * Errors  STATE: no transaction is open on db. INVALID: db is another database than the store's.
 *         SCHEMA: the store's tables are not there. BACKEND.
 * Thread  db's.
 * Since   0.1
 */
PR_API PR_MUST_CHECK pr_status pr_sqlite_unit_join(pr_store *store, struct sqlite3 *db,
                                                   pr_unit **ret_unit, pr_error *err);

/**
 * The connection on which a unit works: for business statements beside it.
 *
 * Owner   the unit's or the host's; never close it. NULL for a unit of another adapter.
 * Since   0.1
 */
PR_API struct sqlite3 *pr_sqlite_unit_connection(pr_unit *unit);

PR_END_DECLS

#endif
