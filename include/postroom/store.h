/*
 * A store: the ledger in one database. Opened by an adapter (see sqlite.h), used through here.
 *
 * A handle owns one connection and belongs to one thread at a time; pr_store_clone() opens another
 * handle on the same database for another thread.
 */
#ifndef POSTROOM_STORE_H
#define POSTROOM_STORE_H

#include <stdbool.h>
#include <stdint.h>

#include <postroom/clock.h>
#include <postroom/error.h>
#include <postroom/limits.h>
#include <postroom/observer.h>
#include <postroom/random.h>

typedef struct pr_store pr_store;

/* The short form of opening a store, one an adapter: pr_sqlite_open, pr_postgres_open. */
typedef pr_status (*pr_store_opener)(const char *where, pr_store **ret_store, pr_error *err);

/* What becomes of later messages of a key when one fails. */
typedef enum pr_order {
    PR_ORDER_DEFAULT = 0, /* as stored; HOLD for a new store */
    PR_ORDER_HOLD,        /* held, in order, until the head is published or dead */
    PR_ORDER_SKIP,        /* sent */
    PR_ORDER_HALT         /* held also behind a dead head, until an operator acts */
} pr_order;

typedef struct pr_migrate_options {
    uint32_t size;
    uint32_t lanes;                /* power of two, 1..256; 0 = 16. Fixed at creation */
    const char *default_transport; /* stored in `setting`; NULL = "database" for a new store */
    pr_order relay_order;          /* order policy of the relay; DEFAULT = unchanged */
    /* When set, nothing is changed: each statement that would run is handed over, in order. */
    void (*print)(void *user, const char *sql);
    void *user;
} pr_migrate_options;

/* clang-format off */
#define PR_MIGRATE_OPTIONS(...) {.size = (uint32_t)sizeof(pr_migrate_options), __VA_ARGS__}
/* clang-format on */

typedef struct pr_migrate_report {
    uint32_t size;
    uint32_t version_before; /* 0 = the schema was missing */
    uint32_t version_after;
} pr_migrate_report;

PR_BEGIN_DECLS

/**
 * Close a store and its connection.
 *
 * Owner   accepts NULL; returns NULL. Units and subscriptions of it must be freed before.
 * Since   0.1
 */
PR_API pr_store *pr_store_free(pr_store *store);

/**
 * Open another handle, with its own connection, on the same database with the same options.
 *
 * Owner   *ret_store is the caller's: pr_store_free().
 * Errors  BACKEND, SCHEMA, NOMEM.
 * Since   0.1
 */
PR_API PR_MUST_CHECK pr_status pr_store_clone(pr_store *store, pr_store **ret_store, pr_error *err);

/**
 * Create or update the schema; several processes at once are safe.
 *
 * Owner   opt may be NULL; *ret_report (may be NULL) is the caller's memory.
 * Errors  INVALID: lanes, names. SCHEMA: newer than this library. BUSY, BACKEND.
 * Atomic  each migration with its version row; killed anywhere, a repeat goes on.
 * Since   0.1
 */
PR_API PR_MUST_CHECK pr_status pr_store_migrate(pr_store *store, const pr_migrate_options *opt,
                                                pr_migrate_report *ret_report, pr_error *err);

/**
 * Check what a start needs: schema version, tables and columns, sequence.
 *
 * Errors  SCHEMA: one sentence with what mends it. BACKEND.
 * Since   0.1
 */
PR_API PR_MUST_CHECK pr_status pr_store_check(pr_store *store, pr_error *err);

/**
 * Set what is called after a commit that enqueued, to wake a relay of this process (pr_relay_wake).
 *
 * Shape   ring: NULL = none. Called once a commit, on the committing thread; for a joined unit by
 *         pr_unit_finished. It must not block and not use the store.
 * Owner   user is borrowed until the next call, or the end of the store; a clone has none.
 * Errors  INVALID: store is NULL.
 * Thread  the store's.
 * Since   0.1
 */
PR_API PR_MUST_CHECK pr_status pr_store_set_doorbell(pr_store *store, void (*ring)(void *user),
                                                     void *user, pr_error *err);

/**
 * Set where a datagram goes after a commit that enqueued, to wake a relay of another process.
 *
 * Shape   path: of the socket on which the relay listens (pr_relay_options.doorbell). NULL, the
 *         default, = what the environment's POSTROOM_DOORBELL says at that moment; "" = none.
 *         Sending never waits; when nobody listens nothing happens, and the relay polls.
 * Owner   path is copied; a clone has it too.
 * Errors  INVALID: store is NULL. LIMIT: longer than a socket's address, 107 bytes. NOMEM.
 * Thread  the store's.
 * Since   0.1
 */
PR_API PR_MUST_CHECK pr_status pr_store_set_doorbell_path(pr_store *store, const char *path,
                                                          pr_error *err);

PR_END_DECLS

#endif
