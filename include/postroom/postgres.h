/*
 * The PostgreSQL adapter: a store in a schema of a database, and units on the host's own
 * connection.
 *
 * Works on PostgreSQL 13 to 18, also behind PgBouncer in transaction mode (statements_off): nothing
 * is kept in a session. Leases and due times go by the database's clock.
 */
#ifndef POSTROOM_POSTGRES_H
#define POSTROOM_POSTGRES_H

#include <postroom/store.h>
#include <postroom/unit.h>

struct pg_conn;

typedef struct pr_postgres_options {
    uint32_t size;
    bool statements_off;     /* no named statements: for PgBouncer in transaction mode */
    bool schema_check_off;   /* open although the schema is missing or old, for migrate */
    const char *conninfo;    /* URI or keywords, as libpq reads them; NULL = the PG* variables */
    const char *schema;      /* NULL = "postroom"; [A-Za-z0-9_], kept in lower case */
    const char *prefix;      /* of table names; NULL = none; [A-Za-z0-9_], in lower case */
    int64_t busy_ms;         /* how long to wait for a lock of others; 0 = 5,000 */
    int64_t timeout_ms;      /* how long to wait for any one answer; 0 = 30,000 */
    int64_t connect_ms;      /* how long to wait for each host; 0 = 10,000 */
    int64_t unit_idle_ms;    /* the server ends a unit that does nothing for so long;
                                    0 = 60,000 */
    uint64_t body_size_max;  /* 0 = 1 MiB; <= 64 MiB */
    const pr_clock *clock;   /* borrowed; NULL = the system's. Ids only go by it */
    const pr_random *random; /* borrowed; NULL = the system's */
    const pr_observer *observer; /* borrowed; may be NULL */
} pr_postgres_options;

/* clang-format off */
#define PR_POSTGRES_OPTIONS(...) {.size = (uint32_t)sizeof(pr_postgres_options), __VA_ARGS__}
/* clang-format on */

/* What the doctor looks for; NULL = the defaults. */
typedef struct pr_postgres_doctor_options {
    uint32_t size;
    int64_t horizon_ms; /* name transactions that have been open for so long; 0 = 5 minutes */
    int64_t skew_ms;    /* name clocks that are so far apart; 0 = 2,000 */
} pr_postgres_doctor_options;

typedef enum pr_finding_level {
    PR_FINDING_NOTE = 1, /* good to know */
    PR_FINDING_WARNING,  /* safe, but not as it should be */
    PR_FINDING_FAULT     /* messages may be lost, doubled or stuck until it is mended */
} pr_finding_level;

/* One thing that a look at the server found. Text is valid during the callback only. */
typedef struct pr_finding {
    uint32_t size;
    pr_finding_level level;
    const char *subject; /* a stable word, such as "schema", "sequence", "fsync", "horizon" */
    const char *text;    /* one sentence: what it is */
    const char *remedy;  /* what mends it, often a statement; NULL = nothing to do */
} pr_finding;

typedef bool (*pr_finding_callback)(void *user, const pr_finding *finding); /* false stops */

PR_BEGIN_DECLS

/**
 * Open a store with all defaults; its schema is made, or brought up to date, where that is needed:
 * then the role needs the right to do it. pr_postgres_store_open has the options and leaves the
 * schema alone.
 *
 * Shape   conninfo: URI or keywords, as libpq reads them; NULL = the PG* variables.
 * Owner   *ret_store is the caller's: pr_store_free().
 * Errors  as pr_postgres_store_open and pr_store_migrate. SCHEMA: newer than this library, or
 *         altered.
 * Since   0.1
 */
PR_API PR_MUST_CHECK pr_status pr_postgres_open(const char *conninfo, pr_store **ret_store,
                                                pr_error *err);

/**
 * Open a store. Its schema must stand (pr_store_migrate) unless schema_check_off is set.
 *
 * Owner   opt is borrowed, clock, random and observer must outlive the store (text is copied).
 *         *ret_store is the caller's: pr_store_free().
 * Errors  INVALID: options, names, a server before 13, a database that is not UTF-8. SCHEMA:
 *         missing, older, newer, altered; says what to run. BACKEND: no connection.
 * Since   0.1
 */
PR_API PR_MUST_CHECK pr_status pr_postgres_store_open(const pr_postgres_options *opt,
                                                      pr_store **ret_store, pr_error *err);

/**
 * Attach to the transaction that the host has open on its own connection.
 *
 * Shape   no statement but those of the unit's calls runs on db, each in one round trip; its
 *         settings stay as they are.
 * Owner   db stays the host's and must outlive the unit; *ret_unit: pr_unit_free(). The host
 *         commits and then calls pr_unit_finished().
 * Errors  STATE: no transaction is open on db, or it was aborted. INVALID: db is on another
 *         database than the store's, or its client_encoding is not UTF8. SCHEMA: the store's tables
 *         are not there. BACKEND.
 * Thread  db's.
 * Since   0.1
 */
PR_API PR_MUST_CHECK pr_status pr_postgres_unit_join(pr_store *store, struct pg_conn *db,
                                                     pr_unit **ret_unit, pr_error *err);

/**
 * The connection on which a unit works: for business statements beside it.
 *
 * Owner   the unit's or the host's; never close it. NULL for a unit of another adapter.
 * Since   0.1
 */
PR_API struct pg_conn *pr_postgres_unit_connection(pr_unit *unit);

/**
 * Look for what is wrong with the server or the schema, or will be: schema and columns, the
 * sequence of ids, durability settings, transactions that hold the horizon, clocks that differ.
 *
 * Shape   callback once a finding, faults first; none = all is well. Open with schema_check_off to
 *         look at a store that does not pass the check.
 * Owner   opt is borrowed, may be NULL; findings are valid during the callback only.
 * Errors  INVALID: store is NULL or not on PostgreSQL, options. BACKEND: it cannot be asked.
 * Since   0.1
 */
PR_API PR_MUST_CHECK pr_status pr_postgres_doctor(pr_store *store,
                                                  const pr_postgres_doctor_options *opt,
                                                  pr_finding_callback callback, void *user,
                                                  pr_error *err);

PR_END_DECLS

#endif
