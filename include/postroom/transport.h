/*
 * The transport port: what carries messages to a broker and back. An application may bring its own.
 *
 * A transport belongs to one thread at a time, a subscription too. Each submitted message ends in
 * exactly one outcome.
 */
#ifndef POSTROOM_TRANSPORT_H
#define POSTROOM_TRANSPORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <postroom/clock.h>
#include <postroom/message.h>
#include <postroom/observer.h>

typedef struct pr_transport pr_transport;
typedef struct pr_subscription pr_subscription;

typedef enum pr_submit_outcome {
    PR_SUBMIT_CONFIRMED = 1, /* durable at the other side */
    PR_SUBMIT_RETURNED,      /* unroutable: nobody would get it */
    PR_SUBMIT_REFUSED,       /* the other side said no to this message */
    PR_SUBMIT_TOO_LARGE,     /* can never be carried: permanent */
    PR_SUBMIT_LOST           /* unknown: the connection went, or the deadline passed */
} pr_submit_outcome;

typedef struct pr_submission {
    uint64_t ticket;           /* the caller's, given back with the outcome */
    const pr_message *message; /* borrowed until its outcome was polled; destination is resolved */
} pr_submission;

typedef struct pr_submitted {
    uint64_t ticket;
    pr_submit_outcome outcome;
    bool suspect;     /* LOST: this message may be what closed the connection; send it alone */
    char reason[256]; /* one line; "" when confirmed */
} pr_submitted;

typedef enum pr_transport_state_kind {
    PR_TRANSPORT_UP = 1,
    PR_TRANSPORT_BLOCKED, /* connected, but the other side takes nothing now */
    PR_TRANSPORT_DOWN
} pr_transport_state_kind;

typedef struct pr_transport_state {
    uint32_t size;
    pr_transport_state_kind kind;
    char cause[512]; /* phase, peer, code, text; never a secret; "" when up */
} pr_transport_state;

/* What a subscription receives. */
typedef struct pr_subscribe_options {
    uint32_t size;
    uint32_t prefetch;        /* deliveries in hand at most; <= 65,535; 0 = 32 */
    const char *endpoint;     /* endpoint id: the queue's name; competing consumers share it */
    const char *const *types; /* URNs; the endpoint's own address needs none */
    size_t type_count;
    bool temporary;    /* vanishes when closed, and after expiry_ms when its holder died */
    int64_t expiry_ms; /* of a temporary one; 0 = 60,000 */
    int64_t lease_ms;  /* where the transport leases deliveries; 0 = 30,000 */
} pr_subscribe_options;

/* clang-format off */
#define PR_SUBSCRIBE_OPTIONS(...) {.size = (uint32_t)sizeof(pr_subscribe_options), __VA_ARGS__}
/* clang-format on */

typedef struct pr_delivery {
    pr_message message;      /* borrowed from the transport until the delivery is settled */
    uint64_t tag;            /* the transport's, with the epoch of its channel inside */
    bool redelivered;        /* it was, or may have been, delivered before */
    uint32_t delivery_count; /* how often before, where the transport knows; else 0 */
} pr_delivery;

typedef enum pr_verdict {
    PR_VERDICT_ACK = 1,
    PR_VERDICT_REQUEUE, /* later again, nothing is charged */
    PR_VERDICT_REJECT   /* to the dead queue of the transport */
} pr_verdict;

#define PR_TRANSPORT_CAN_SUBSCRIBE 0x1u
#define PR_TRANSPORT_CAN_TEMPORARY 0x2u
#define PR_TRANSPORT_CAN_TOPOLOGY  0x4u
#define PR_TRANSPORT_DURABLE       0x8u /* confirmed messages survive the end of the process */

/*
 * The methods. NULL, or beyond `size`, means unsupported. Every call is made with arguments that
 * were checked before (pr_transport_… functions below), from the thread that owns the object.
 */
typedef struct pr_transport_ops {
    uint32_t size;
    uint32_t capabilities; /* PR_TRANSPORT_… */
    const char *scheme;    /* what kind it is: "memory", "database", "rabbitmq" */

    /* Connect, or look whether it may be done now. May block up to timeout_ms. Called again after a
       failure, as often as wanted. OK means up. */
    pr_status (*open)(pr_transport *transport, int64_t timeout_ms, pr_error *err);
    /* Take over up to count submissions in order; *ret_accepted are taken (0 = would block: window
       full or blocked). Never blocks beyond its publish deadline. A taken one ends in one outcome.
       */
    pr_status (*submit)(pr_transport *transport, const pr_submission *submissions, size_t count,
                        size_t *ret_accepted, pr_error *err);
    /* Hand over up to max outcomes; waits up to timeout_ms for the first. Everything accepted gets
       its outcome here, also after the connection went (LOST). */
    pr_status (*poll)(pr_transport *transport, int64_t timeout_ms, pr_submitted *ret_outcomes,
                      size_t max, size_t *ret_count, pr_error *err);
    /* State as last known; never blocks. NULL: it is always up. */
    void (*state)(pr_transport *transport, pr_transport_state *ret_state);
    /* Create (check_only = false) or verify what the options need at the other side. */
    pr_status (*topology)(pr_transport *transport, const pr_subscribe_options *options,
                          bool check_only, pr_error *err);
    pr_status (*subscribe)(pr_transport *transport, const pr_subscribe_options *options,
                           pr_subscription **ret_subscription, pr_error *err);
    /* Close; outcomes that were not polled are gone. Bounded in time. */
    void (*free)(pr_transport *transport);
    /* Another one with the same options onto the same other side, for another thread. Called from
       any thread, one at a time; it must not look at what the owner changes. */
    pr_status (*clone)(pr_transport *transport, pr_transport **ret_transport, pr_error *err);
    /* How many messages the other side still has for the endpoint: waiting, delayed, or in hand of
       any consumer and not settled. A message must be counted from before its submit is confirmed
       until after it was settled. */
    pr_status (*backlog)(pr_transport *transport, const pr_subscribe_options *options,
                         uint64_t *ret_count, pr_error *err);
} pr_transport_ops;

typedef struct pr_subscription_ops {
    uint32_t size;
    /* Hand over up to max deliveries; waits up to timeout_ms for the first. */
    pr_status (*receive)(pr_subscription *subscription, int64_t timeout_ms,
                         pr_delivery *ret_deliveries, size_t max, size_t *ret_count, pr_error *err);
    /* Settle one delivery. A stale tag is dropped, counted and answered with FENCED. */
    pr_status (*settle)(pr_subscription *subscription, uint64_t tag, pr_verdict verdict,
                        int64_t requeue_delay_ms, pr_error *err);
    /* Keep what is in hand: renew leases, answer heartbeats. Called at least every lease / 3. */
    pr_status (*keep)(pr_subscription *subscription, pr_error *err);
    /* Give back what was prefetched and not settled, then close. Bounded in time. */
    void (*free)(pr_subscription *subscription);
} pr_subscription_ops;

/* The first member of every transport; the adapter fills it before it hands the object out. */
struct pr_transport {
    const pr_transport_ops *ops;
    const char *name;            /* the scheme in addresses, such as "database"; adapter's copy */
    const pr_observer *observer; /* may be NULL */
    const pr_clock *clock;
    uint32_t window; /* unconfirmed submissions at most */
};

struct pr_subscription {
    const pr_subscription_ops *ops;
    pr_transport *transport;
};

PR_BEGIN_DECLS

/**
 * Connect a transport, or look whether it is up.
 *
 * Units   timeout_ms: milliseconds, >= 0.
 * Errors  INVALID. BACKEND: err->retry and the cause. Call again after a wait.
 * Thread  the transport's.
 * Since   0.1
 */
PR_API PR_MUST_CHECK pr_status pr_transport_open(pr_transport *transport, int64_t timeout_ms,
                                                 pr_error *err);

/**
 * Submit messages in order.
 *
 * Shape   *ret_accepted: how many were taken, from the front; 0 is success and means "not now".
 * Owner   submissions[i].message must live until its outcome was polled.
 * Errors  INVALID. BACKEND: none of them was taken.
 * Thread  the transport's.
 * Since   0.1
 */
PR_API PR_MUST_CHECK pr_status pr_transport_submit(pr_transport *transport,
                                                   const pr_submission *submissions, size_t count,
                                                   size_t *ret_accepted, pr_error *err);

/**
 * Collect outcomes of submitted messages, in any order.
 *
 * Shape   ret_outcomes[0..*ret_count), *ret_count <= max; 0 is success.
 * Units   timeout_ms: milliseconds, 0 = do not wait.
 * Errors  INVALID. BACKEND: nothing could be learned; call again.
 * Thread  the transport's.
 * Since   0.1
 */
PR_API PR_MUST_CHECK pr_status pr_transport_poll(pr_transport *transport, int64_t timeout_ms,
                                                 pr_submitted *ret_outcomes, size_t max,
                                                 size_t *ret_count, pr_error *err);

/**
 * The state as last known; never blocks.
 *
 * Owner   *ret_state is the caller's memory.
 * Since   0.1
 */
PR_API void pr_transport_state_get(pr_transport *transport, pr_transport_state *ret_state);

/**
 * Declare (or only check) what a subscription needs at the other side.
 *
 * Owner   options is borrowed.
 * Errors  INVALID. UNSUPPORTED. NOT_FOUND: check only, it is missing. CONFLICT: it differs; what
 *         and how is named. BACKEND.
 * Since   0.1
 */
PR_API PR_MUST_CHECK pr_status pr_transport_topology(pr_transport *transport,
                                                     const pr_subscribe_options *options,
                                                     bool check_only, pr_error *err);

/**
 * Subscribe an endpoint, or open a temporary subscription.
 *
 * Owner   options is borrowed; *ret_subscription is the caller's: pr_subscription_free(). The
 *         transport must outlive it.
 * Errors  INVALID. UNSUPPORTED. CONFLICT: it stands with other types. BACKEND.
 * Since   0.1
 */
PR_API PR_MUST_CHECK pr_status pr_transport_subscribe(pr_transport *transport,
                                                      const pr_subscribe_options *options,
                                                      pr_subscription **ret_subscription,
                                                      pr_error *err);

/**
 * Make another transport with the same options onto the same other side, for another thread.
 *
 * Owner   *ret_transport is the caller's: pr_transport_free(). It borrows what the first one
 *         borrows.
 * Errors  INVALID. UNSUPPORTED. BACKEND, NOMEM.
 * Since   0.1
 */
PR_API PR_MUST_CHECK pr_status pr_transport_clone(pr_transport *transport,
                                                  pr_transport **ret_transport, pr_error *err);

/**
 * How many messages the other side still has for an endpoint: waiting, delayed, or in hand of any
 * consumer and not settled yet. What is in its dead queue does not count.
 *
 * Shape   0 is exact, another number may be too small: it can stand for "some". An endpoint that
 *         never subscribed has 0. Asking changes nothing.
 * Owner   options is borrowed: the endpoint's, as it subscribes.
 * Errors  INVALID. UNSUPPORTED: the other side cannot be asked. BUSY, BACKEND: not now.
 * Thread  the transport's.
 * Since   0.1
 */
PR_API PR_MUST_CHECK pr_status pr_transport_backlog(pr_transport *transport,
                                                    const pr_subscribe_options *options,
                                                    uint64_t *ret_count, pr_error *err);

/**
 * Close a transport.
 *
 * Owner   accepts NULL; returns NULL.
 * Since   0.1
 */
PR_API pr_transport *pr_transport_free(pr_transport *transport);

/**
 * Receive deliveries.
 *
 * Shape   ret_deliveries[0..*ret_count), *ret_count <= max; 0 is success.
 * Owner   each delivery's message is borrowed until it is settled, or until keep answers FENCED.
 * Errors  INVALID. BACKEND: what was in hand may be stale; call again. NOT_FOUND: a temporary
 *         subscription that expired; subscribe again.
 * Thread  the subscription's.
 * Since   0.1
 */
PR_API PR_MUST_CHECK pr_status pr_subscription_receive(pr_subscription *subscription,
                                                       int64_t timeout_ms,
                                                       pr_delivery *ret_deliveries, size_t max,
                                                       size_t *ret_count, pr_error *err);

/**
 * Settle one delivery.
 *
 * Units   requeue_delay_ms: for REQUEUE, milliseconds, a hint.
 * Errors  INVALID. FENCED: a stale tag; it comes, or came, again. BACKEND, BUSY: the verdict may
 *         be repeated; where it is collected it stands, and is tried again by the next call.
 * Since   0.1
 */
PR_API PR_MUST_CHECK pr_status pr_subscription_settle(pr_subscription *subscription, uint64_t tag,
                                                      pr_verdict verdict, int64_t requeue_delay_ms,
                                                      pr_error *err);

/**
 * Keep what is in hand; call it while a handler is slow.
 *
 * Errors  FENCED: a lease was lost; its deliveries come again. BACKEND.
 * Since   0.1
 */
PR_API PR_MUST_CHECK pr_status pr_subscription_keep(pr_subscription *subscription, pr_error *err);

/**
 * Give back what is not settled and close.
 *
 * Owner   accepts NULL; returns NULL.
 * Since   0.1
 */
PR_API pr_subscription *pr_subscription_free(pr_subscription *subscription);

PR_END_DECLS

#endif
