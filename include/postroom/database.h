/*
 * The database transport: submit appends to another store's log and is confirmed by its commit;
 * subscriptions read that log with claims of their own.
 */
#ifndef POSTROOM_DATABASE_H
#define POSTROOM_DATABASE_H

#include <postroom/store.h>
#include <postroom/transport.h>

typedef struct pr_database_options {
    uint32_t size;
    uint32_t window;             /* unconfirmed at most; 0 = 256 */
    const char *name;            /* scheme in addresses; NULL = "database" */
    const char *owner;           /* shown by explain; NULL = host and pid */
    const pr_observer *observer; /* borrowed; may be NULL */
    const pr_clock *clock;       /* borrowed; NULL = the system's */
} pr_database_options;

PR_BEGIN_DECLS

/**
 * A transport onto the log of a store.
 *
 * Owner   store is borrowed and must outlive it; the transport clones it for its own connections.
 *         *ret_transport is the caller's: pr_transport_free().
 * Errors  INVALID, SCHEMA, BACKEND, NOMEM.
 * Since   0.1
 */
PR_API PR_MUST_CHECK pr_status pr_database_transport_new(pr_store *store,
                                                         const pr_database_options *opt,
                                                         pr_transport **ret_transport,
                                                         pr_error *err);

PR_END_DECLS

#endif
