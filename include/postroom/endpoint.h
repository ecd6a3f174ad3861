/*
 * An endpoint: receives from a subscription and runs a handler for each message in a unit of work
 * with the inbox's mark, so that the effect happens once.
 *
 * One endpoint belongs to one thread; several of one id, in any process, compete for its messages.
 */
#ifndef POSTROOM_ENDPOINT_H
#define POSTROOM_ENDPOINT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <postroom/contract.h>
#include <postroom/relay.h>
#include <postroom/transport.h>
#include <postroom/unit.h>

typedef struct pr_endpoint pr_endpoint;
typedef struct pr_scope pr_scope;

typedef enum pr_handled {
    PR_HANDLED_OK = 1,
    PR_HANDLED_RETRY,    /* roll back, park as failed, charge an attempt, try again later */
    PR_HANDLED_PERMANENT /* roll back, park as dead */
} pr_handled;

/* Runs on the endpoint's thread inside the unit; must neither commit nor roll it back. */
typedef pr_handled (*pr_handler)(void *user, pr_scope *scope);

typedef struct pr_endpoint_options {
    uint32_t size;
    uint32_t prefetch;        /* 0 = 32 */
    const char *id;           /* the consumer of the inbox and the queue's name */
    const char *const *types; /* URNs that it subscribes to */
    size_t type_count;
    const pr_contracts *contracts; /* borrowed; NULL = every type is raw bytes */
    pr_handler handler;
    void *user;
    uint32_t retry_max;          /* 0 = 10; PR_RETRY_NONE = none */
    uint32_t jitter_percent;     /* 0 = 25; PR_JITTER_NONE = none */
    int64_t backoff_initial_ms;  /* 0 = 5,000 */
    int64_t backoff_max_ms;      /* 0 = 900,000 */
    int64_t busy_wait_ms;        /* 0 = 5,000: how long a delivery waits for its twin */
    int64_t lease_ms;            /* of parked rows and deliveries; 0 = 30,000 */
    int64_t poll_ms;             /* waits for deliveries this long; 0 = 50 */
    int64_t stop_grace_ms;       /* 0 = 10,000 */
    pr_order order;              /* DEFAULT = HOLD */
    const char *owner;           /* shown by explain; NULL = host and pid */
    const pr_clock *clock;       /* borrowed; NULL = the system's */
    const pr_random *random;     /* borrowed; NULL = the system's */
    const pr_observer *observer; /* borrowed; may be NULL */
} pr_endpoint_options;

/* clang-format off */
#define PR_ENDPOINT_OPTIONS(...) {.size = (uint32_t)sizeof(pr_endpoint_options), __VA_ARGS__}
/* clang-format on */

typedef struct pr_endpoint_snapshot {
    uint32_t size;
    bool running;
    bool paused;             /* the database could not take what failed; resumes by itself */
    char paused_reason[256]; /* "" when not paused */
    uint64_t received, handled, duplicate, failed, dead, held, busy, requeued, conflict, fenced;
} pr_endpoint_snapshot;

PR_BEGIN_DECLS

/**
 * Make an endpoint; it receives nothing until it is run or stepped.
 *
 * Owner   store (where the inbox and the handler's tables are) and transport are borrowed, must
 *         outlive it and are its thread's alone. *ret_endpoint is the caller's: pr_endpoint_free().
 * Errors  INVALID: options; CONTENT, LIMIT: id or a type. NOMEM.
 * Since   0.1
 */
PR_API PR_MUST_CHECK pr_status pr_endpoint_new(pr_store *store, pr_transport *transport,
                                               const pr_endpoint_options *opt,
                                               pr_endpoint **ret_endpoint, pr_error *err);

/**
 * Handle what is at hand: one delivery or one due retry at most.
 *
 * Units   *ret_wait_ms: milliseconds until the next step has something to do; 0 = now.
 * Errors  none ends the endpoint; the status tells what failed. STATE: it was stopped.
 * Thread  the endpoint's.
 * Since   0.1
 */
PR_API PR_MUST_CHECK pr_status pr_endpoint_step(pr_endpoint *endpoint, int64_t *ret_wait_ms,
                                                pr_error *err);

/**
 * Step until pr_endpoint_stop.
 *
 * Errors  STATE: it runs already.
 * Since   0.1
 */
PR_API PR_MUST_CHECK pr_status pr_endpoint_run(pr_endpoint *endpoint, pr_error *err);

/**
 * Ask a running endpoint to stop; what was prefetched is given back, nothing is charged.
 *
 * Thread  any, and safe in a signal handler.
 * Since   0.1
 */
PR_API void pr_endpoint_stop(pr_endpoint *endpoint);

/**
 * Counters as of now.
 *
 * Owner   *ret_snapshot is the caller's memory; its size must be set.
 * Errors  INVALID.
 * Thread  any.
 * Since   0.1
 */
PR_API PR_MUST_CHECK pr_status pr_endpoint_snapshot_get(pr_endpoint *endpoint,
                                                        pr_endpoint_snapshot *ret_snapshot,
                                                        pr_error *err);

/**
 * Close the subscription and free the endpoint.
 *
 * Owner   accepts NULL; returns NULL. It must not run.
 * Since   0.1
 */
PR_API pr_endpoint *pr_endpoint_free(pr_endpoint *endpoint);

/**
 * The message in hand.
 *
 * Owner   scope's; valid until the handler returns.
 * Since   0.1
 */
PR_API const pr_message *pr_scope_message(const pr_scope *scope);

/**
 * The decoded object of the message's contract; NULL when no contracts were given.
 *
 * Owner   scope's; valid until the handler returns.
 * Since   0.1
 */
PR_API const void *pr_scope_object(const pr_scope *scope);

/**
 * The unit of work in which the handler runs: enqueue follow-ups here, with pr_unit_enqueue. They
 * inherit correlation, causation and trace context of the message. The adapter gives its
 * connection.
 *
 * Owner   scope's; valid until the handler returns.
 * Since   0.1
 */
PR_API pr_unit *pr_scope_unit(pr_scope *scope);

/**
 * How often the message was tried before, without this attempt.
 *
 * Since   0.1
 */
PR_API uint32_t pr_scope_attempts(const pr_scope *scope);

/**
 * Say why the handler will return RETRY or PERMANENT: one line, no body, no secret.
 *
 * Units   retry_delay_ms: for RETRY, milliseconds; < 0 = by the endpoint's backoff; a
 *         century at most.
 * Owner   reason is copied.
 * Since   0.1
 */
PR_API void pr_scope_fail(pr_scope *scope, const char *reason, int64_t retry_delay_ms);

PR_END_DECLS

#endif
