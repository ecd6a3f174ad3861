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
    uint32_t window;             /* unconfirmed at most; <= 65,536; 0 = 256 */
    const char *name;            /* scheme in addresses; NULL = "database" */
    const char *owner;           /* shown by explain; NULL = host and pid */
    const pr_observer *observer; /* borrowed; may be NULL */
    const pr_clock *clock;       /* borrowed; NULL = the system's */
} pr_database_options;

/* clang-format off */
#define PR_DATABASE_OPTIONS(...) {.size = (uint32_t)sizeof(pr_database_options), __VA_ARGS__}
/* clang-format on */

PR_BEGIN_DECLS

/**
 * A transport onto the log of a store: another program's, or the host's own, whose endpoints then
 * read what its relay, or a direct publish, has appended.
 *
 * Owner   store and what opt points to are borrowed and must outlive it, which works on a clone of
 *         the store; opt may be NULL. *ret_transport is the caller's: pr_transport_free().
 * Errors  INVALID: options, or a name that is no scheme. SCHEMA, BACKEND, NOMEM.
 * Thread  one at a time; others clone it.
 * Since   0.1
 */
PR_API PR_MUST_CHECK pr_status pr_database_transport_new(pr_store *store,
                                                         const pr_database_options *opt,
                                                         pr_transport **ret_transport,
                                                         pr_error *err);

PR_END_DECLS

#endif
