/*
 * A unit of work: one database transaction in which business rows and messages commit together.
 *
 * Begun by us (pr_unit_begin) or joined to a transaction that the host opened on its own connection
 * (pr_sqlite_unit_join). A unit belongs to one thread.
 */
#ifndef POSTROOM_UNIT_H
#define POSTROOM_UNIT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <postroom/contract.h>
#include <postroom/event_source.h>
#include <postroom/message.h>
#include <postroom/store.h>

typedef struct pr_unit pr_unit;

typedef enum pr_outcome {
    PR_OUTCOME_COMMITTED = 1,
    PR_OUTCOME_NOT_COMMITTED,
    PR_OUTCOME_UNKNOWN
} pr_outcome;

/* What every message of a unit inherits unless it says otherwise. Text is copied. */
typedef struct pr_unit_context {
    uint32_t size;
    const char *correlation_id;
    const char *causation_id;
    const char *traceparent;
    const char *tracestate;
    const char *tenant;
    const char *source;
} pr_unit_context;

typedef struct pr_enqueued {
    char id[37];    /* the message's id */
    bool duplicate; /* the same id and content stood already in this unit: nothing was added */
} pr_enqueued;

PR_BEGIN_DECLS

/**
 * Begin a transaction on the store's own connection.
 *
 * Owner   *ret_unit is the caller's: pr_unit_free(), which rolls back what was not committed.
 * Errors  STATE: a transaction of somebody else is open there (join it instead), or a unit is.
 *         BUSY: other writers held the database beyond the busy limit.
 * Since   0.1
 */
PR_API PR_MUST_CHECK pr_status pr_unit_begin(pr_store *store, pr_unit **ret_unit, pr_error *err);

/**
 * Begin a nested unit: it commits nothing by itself; if it fails, the outer one is rollback-only,
 * even when the caller ignores the error.
 *
 * Owner   *ret_unit is the caller's: pr_unit_free(). The outer unit must outlive it.
 * Errors  STATE: the outer unit is finished or rollback-only. NOMEM.
 * Since   0.1
 */
PR_API PR_MUST_CHECK pr_status pr_unit_nest(pr_unit *outer, pr_unit **ret_unit, pr_error *err);

/**
 * Set what the unit's messages inherit from now on; NULL fields inherit nothing.
 *
 * Owner   context is borrowed and copied.
 * Errors  INVALID, LIMIT, CONTENT, NOMEM.
 * Since   0.1
 */
PR_API PR_MUST_CHECK pr_status pr_unit_set_context(pr_unit *unit, const pr_unit_context *context,
                                                   pr_error *err);

/**
 * Write one message into the outbox, in the unit's transaction.
 *
 * Owner   message is borrowed and copied; *ret_enqueued (may be NULL) is the caller's memory.
 * Errors  INVALID, LIMIT, CONTENT: the message; the unit is unharmed. CONFLICT: the id stands in
 *         this unit with other content; unharmed. STATE: no live transaction, or rollback-only.
 *         BACKEND: the database; the unit is rollback-only.
 * Atomic  the row exists exactly when the unit commits.
 * Since   0.1
 */
PR_API PR_MUST_CHECK pr_status pr_unit_enqueue(pr_unit *unit, const pr_message *message,
                                               pr_enqueued *ret_enqueued, pr_error *err);

/**
 * Write many messages, in order; all or none of the call.
 *
 * Owner   as pr_unit_enqueue; ret_enqueued is NULL or an array of count.
 * Errors  as pr_unit_enqueue; the text names the index of the message.
 * Since   0.1
 */
PR_API PR_MUST_CHECK pr_status pr_unit_enqueue_many(pr_unit *unit, const pr_message *messages,
                                                    size_t count, pr_enqueued *ret_enqueued,
                                                    pr_error *err);

/**
 * Track an aggregate: at commit its raised events are encoded and enqueued, and cleared only when
 * the commit succeeded.
 *
 * Owner   source and contracts are borrowed until the unit is freed.
 * Errors  STATE, NOMEM.
 * Since   0.1
 */
PR_API PR_MUST_CHECK pr_status pr_unit_track(pr_unit *unit, pr_event_source *source,
                                             const pr_contracts *contracts, pr_error *err);

/**
 * Encode and enqueue the events of the tracked aggregates now. pr_unit_commit does it by itself; a
 * host that commits a joined transaction calls it just before its own COMMIT.
 *
 * Errors  as pr_unit_enqueue. Events stay with their aggregates until the outcome is known.
 * Since   0.1
 */
PR_API PR_MUST_CHECK pr_status pr_unit_flush(pr_unit *unit, pr_error *err);

/**
 * Commit a unit that pr_unit_begin or pr_unit_nest made.
 *
 * Shape   *ret_outcome (may be NULL) is set on success and on failure.
 * Errors  STATE: rollback-only or finished; it was rolled back. BUSY, BACKEND. A joined unit:
 *         STATE, the host commits it and calls pr_unit_finished.
 * Since   0.1
 */
PR_API PR_MUST_CHECK pr_status pr_unit_commit(pr_unit *unit, pr_outcome *ret_outcome,
                                              pr_error *err);

/**
 * Roll back a unit that pr_unit_begin made; a nested one makes its outer unit rollback-only.
 *
 * Errors  STATE: finished, or joined. BACKEND.
 * Since   0.1
 */
PR_API PR_MUST_CHECK pr_status pr_unit_rollback(pr_unit *unit, pr_error *err);

/**
 * Tell a joined unit how the host's transaction ended: rings the doorbell, clears or keeps events.
 *
 * Errors  STATE: not joined, or told before. INVALID.
 * Since   0.1
 */
PR_API PR_MUST_CHECK pr_status pr_unit_finished(pr_unit *unit, pr_outcome outcome, pr_error *err);

/**
 * Free a unit; one of ours that is still open is rolled back, a joined one is left to the host.
 *
 * Owner   accepts NULL; returns NULL.
 * Since   0.1
 */
PR_API pr_unit *pr_unit_free(pr_unit *unit);

PR_END_DECLS

#endif
