/*
 * An endpoint: receives from a subscription and runs a handler for each message in a unit of work
 * with the inbox's mark, so that the effect happens once.
 *
 * Endpoints of one id, in any process, compete for its messages.
 */
#ifndef POSTROOM_ENDPOINT_H
#define POSTROOM_ENDPOINT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <postroom/contract.h>
#include <postroom/middleware.h>
#include <postroom/relay.h>
#include <postroom/transport.h>
#include <postroom/unit.h>

typedef struct pr_endpoint pr_endpoint;

/* Runs inside the unit (with the leased inbox from when it asks for one), which it must neither
   commit nor roll back. Several threads run it at once when the endpoint has several workers. */
typedef pr_handled (*pr_handler)(void *user, pr_scope *scope);

typedef enum pr_inbox_mode {
    /* The mark is the first statement of the handler's transaction: for handlers that are short
       and whose effects are in the database. */
    PR_INBOX_TRANSACTIONAL = 0,
    /* A row with a token and a lease stands for the message while the handler works outside any
       transaction: for slow handlers and calls of other services. Its unit begins when the handler
       asks for it (pr_scope_unit), and commits only if the lease was kept. */
    PR_INBOX_LEASED
} pr_inbox_mode;

typedef struct pr_endpoint_options {
    uint32_t size;
    uint32_t prefetch;        /* deliveries in hand at most; <= 4,096; 0 = 32 */
    const char *id;           /* the consumer of the inbox and the queue's name; no '/', no space */
    const char *const *types; /* URNs that it subscribes to */
    size_t type_count;
    const pr_contracts *contracts; /* borrowed; NULL = every type is raw bytes */
    pr_handler handler;            /* required; one for all types: it looks at the message's */
    void *user;                    /* given to the handler, as it is; borrowed */
    uint32_t retry_max;            /* 0 = 10; PR_RETRY_NONE = none */
    uint32_t jitter_percent;       /* 0 = 25; PR_JITTER_NONE = none */
    int64_t backoff_initial_ms;    /* 0 = 5,000 */
    int64_t backoff_max_ms;        /* 0 = 900,000 */
    int64_t busy_wait_ms;          /* 0 = 5,000: how long a delivery waits for its twin */
    int64_t lease_ms;              /* of parked rows and deliveries; 0 = 30,000 */
    int64_t poll_ms;               /* waits for deliveries this long; 0 = 50 */
    int64_t stop_grace_ms;         /* 0 = 10,000 */
    pr_order order;                /* DEFAULT = HOLD */
    const char *owner;             /* shown by explain; NULL = host and pid */
    const pr_clock *clock;         /* borrowed; NULL = the system's */
    const pr_random *random;       /* borrowed; NULL = the system's */
    const pr_observer *observer;   /* borrowed; may be NULL */
    /* NULL = unit, inbox. The list is copied; what its entries point to is borrowed */
    const pr_middleware *middleware;
    size_t middleware_count;
    int64_t processing_timeout_ms; /* then pr_scope_cancelled is true; 0 = never */
    pr_inbox_mode inbox;
    /* Handlers at once in pr_endpoint_run, each on a thread with a clone of the store; 0 = 4;
       <= 256, <= prefetch. 1 = on the thread that calls it. With more, clock, random, observer and
       what handlers share must be safe to use from several threads */
    uint32_t concurrency;
    /* The transport to whose topics pr_scope_publish goes; NULL = the store's default */
    const char *publish_to;
    /* Messages that share one transaction and one commit, each with its own mark, and with a
       savepoint of its own when its handler asks for the unit, anew in each message: for handlers
       that are short and run often. 0 or 1 = one each; <= 60, <= prefetch; not with the leased
       inbox, nor with a middleware outside of the work unit. A handler may be run a second time for
       one attempt, when what its message shared a transaction with did not commit */
    uint32_t batch_max;
    uint32_t reserved; /* 0 */
} pr_endpoint_options;

/* clang-format off */
#define PR_ENDPOINT_OPTIONS(...) {.size = (uint32_t)sizeof(pr_endpoint_options), __VA_ARGS__}
/* clang-format on */

typedef enum pr_endpoint_state {
    PR_ENDPOINT_STOPPED = 1, /* neither run nor stepped, or not subscribed now */
    PR_ENDPOINT_ACCEPTING,
    PR_ENDPOINT_BUSY,  /* every worker has a message */
    PR_ENDPOINT_PAUSED /* by its host, or because the database cannot take what failed */
} pr_endpoint_state;

typedef struct pr_endpoint_snapshot {
    uint32_t size;
    bool running;
    bool paused; /* by its host, or the database could not take what failed: resumes by itself */
    char paused_reason[256]; /* "" when not paused */
    /* Since it was made. What was received ends in one of handled, duplicate (done before), failed
       (parked, to be tried again), dead, held (parked behind one of its key), conflict (its id
       stands with other content: parked as dead), deferred, requeued, fenced (its lease was lost);
       a retry of what is parked does so again. */
    uint64_t received, handled, duplicate, failed, dead, held, busy, requeued, conflict, fenced;
    uint64_t deferred, cancelled; /* put off by the handler; told to give up */
    pr_endpoint_state state;
    uint32_t in_hand;      /* deliveries that are not settled yet */
    uint32_t busy_workers; /* of a run with several workers */
    uint32_t concurrency;
    uint64_t batches; /* commits for several messages (batch_max) */
    /* Why its subscription brings nothing now; "" when it does. It is made anew by itself. */
    char unreached_reason[256];
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
 * Handle what is at hand: one delivery (or batch_max in one transaction) or one due retry at most.
 *
 * Units   *ret_wait_ms: milliseconds until the next step has something to do; 0 = now.
 * Errors  none ends the endpoint; the status tells what failed. STATE: it was stopped.
 * Thread  the endpoint's.
 * Since   0.1
 */
PR_API PR_MUST_CHECK pr_status pr_endpoint_step(pr_endpoint *endpoint, int64_t *ret_wait_ms,
                                                pr_error *err);

/**
 * Handle messages until pr_endpoint_stop, with as many workers as the options say. Messages of one
 * key are handled one after the other, in order.
 *
 * Errors  STATE: it runs already, or was called from its own handler.
 * Thread  one at a time; it is the endpoint's until this returns.
 * Since   0.1
 */
PR_API PR_MUST_CHECK pr_status pr_endpoint_run(pr_endpoint *endpoint, pr_error *err);

/**
 * Ask a running endpoint to stop: what was prefetched is given back, handlers are waited for and
 * told to give up (pr_scope_cancelled) when stop_grace_ms is over; nothing is charged.
 *
 * Thread  any, and safe in a signal handler.
 * Since   0.1
 */
PR_API void pr_endpoint_stop(pr_endpoint *endpoint);

/**
 * Let an endpoint rest: what it has in hand goes back, what is handled is finished, what is
 * published meanwhile waits in its queue, for it or for others of its id. pr_endpoint_resume lets
 * it go on. It rests once the snapshot says so (`paused`) and in_hand is 0.
 *
 * Thread  any, and safe in a signal handler.
 * Since   0.1
 */
PR_API void pr_endpoint_pause(pr_endpoint *endpoint);

/**
 * Let an endpoint that was paused go on. One that paused by itself goes on by itself.
 *
 * Thread  any, and safe in a signal handler.
 * Since   0.1
 */
PR_API void pr_endpoint_resume(pr_endpoint *endpoint);

/**
 * State and counters as of now.
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
 * Thread  any, and the last one that uses it.
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
 * The decoded object of the message's contract; NULL when no contracts were given. It is decoded
 * just before the handler: a middleware sees NULL until it has called the rest.
 *
 * Owner   scope's; valid until the handler returns.
 * Since   0.1
 */
PR_API const void *pr_scope_object(const pr_scope *scope);

/**
 * The unit of work in which the handler runs: for follow-ups (pr_scope_publish and its sisters) and
 * for the connection, which the adapter gives. Messages of the unit inherit correlation, causation
 * and trace context of the one in hand.
 *
 * With the leased inbox the first call begins it: do the slow part before, write after. In a batch
 * the first call marks the message: one that needs no unit had better not ask for it.
 *
 * Shape   NULL: there is none; pr_scope_unit_get tells why, and so does the parked message.
 * Owner   scope's; valid until the handler returns.
 * Since   0.1
 */
PR_API pr_unit *pr_scope_unit(pr_scope *scope);

/**
 * As pr_scope_unit, and why there is none.
 *
 * Owner   *ret_unit is the scope's; valid until the handler returns.
 * Errors  STATE: the endpoint has no work unit among its middleware. FENCED: the lease was lost.
 *         BUSY, BACKEND: it could not be begun; return RETRY, nothing is charged.
 * Since   0.1
 */
PR_API PR_MUST_CHECK pr_status pr_scope_unit_get(pr_scope *scope, pr_unit **ret_unit,
                                                 pr_error *err);

/**
 * The id of the endpoint that handles the message.
 *
 * Owner   scope's; valid until the handler returns.
 * Since   0.1
 */
PR_API const char *pr_scope_endpoint(const pr_scope *scope);

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

/**
 * The reason that was given, or "".
 *
 * Owner   scope's; valid until the handler returns.
 * Since   0.1
 */
PR_API const char *pr_scope_reason(const pr_scope *scope);

/**
 * Put the message off: the handler gets it again after a while, and no attempt is charged. Later
 * messages of its key wait behind it.
 *
 * Shape   returns PR_HANDLED_DEFER, for `return pr_scope_defer(scope, 60000);`.
 * Units   delay_ms: milliseconds, >= 0; a century at most.
 * Since   0.1
 */
PR_API pr_handled pr_scope_defer(pr_scope *scope, int64_t delay_ms);

/**
 * Is it time to give up? True after processing_timeout_ms, when the lease was lost, and when the
 * endpoint was stopped and its grace is over. A slow handler asks now and then, and returns RETRY.
 *
 * Thread  any, until the handler returns.
 * Since   0.1
 */
PR_API bool pr_scope_cancelled(const pr_scope *scope);

/**
 * Publish a message to the topic of its type, in the unit: it exists exactly when the unit commits.
 *
 * Owner   message is borrowed and copied; *ret_enqueued (may be NULL) is the caller's memory.
 * Errors  INVALID: the message has a destination (use pr_scope_send). As pr_scope_unit_get, and as
 *         pr_unit_enqueue.
 * Since   0.1
 */
PR_API PR_MUST_CHECK pr_status pr_scope_publish(pr_scope *scope, const pr_message *message,
                                                pr_enqueued *ret_enqueued, pr_error *err);

/**
 * Send a message to one receiver, in the unit.
 *
 * Shape   to: an address, or the id of an endpoint, which is then sought on the transport that the
 *         message in hand came by.
 * Owner   as pr_scope_publish.
 * Errors  as pr_scope_publish. CONTENT: `to` is no address.
 * Since   0.1
 */
PR_API PR_MUST_CHECK pr_status pr_scope_send(pr_scope *scope, const char *to,
                                             const pr_message *message, pr_enqueued *ret_enqueued,
                                             pr_error *err);

/**
 * Answer the request in hand, in the unit. Several answers may be given. An answer expires with
 * its request, unless it says otherwise.
 *
 * Owner   as pr_scope_publish.
 * Errors  as pr_scope_send. NOT_FOUND: the message in hand asks for no answer.
 * Since   0.1
 */
PR_API PR_MUST_CHECK pr_status pr_scope_reply(pr_scope *scope, const pr_message *message,
                                              pr_enqueued *ret_enqueued, pr_error *err);

/**
 * Publish, or send where the message has a destination, after a while.
 *
 * Units   delay_ms: milliseconds by the database's clock, >= 0.
 * Owner   as pr_scope_publish.
 * Errors  as pr_scope_send. INVALID: delay_ms, or deliver_at_us is set.
 * Since   0.1
 */
PR_API PR_MUST_CHECK pr_status pr_scope_delay(pr_scope *scope, const pr_message *message,
                                              int64_t delay_ms, pr_enqueued *ret_enqueued,
                                              pr_error *err);

/**
 * The header of a request that says where its answers go: an address.
 */
#define PR_HEADER_NAME_REPLY_TO "postroom-reply-to"

PR_END_DECLS

#endif
