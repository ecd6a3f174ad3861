/*
 * The relay: claims slices of the log, submits them to transports, settles what became of them.
 *
 * One relay belongs to one thread, except for the functions that say otherwise. Any number of
 * relays in any number of processes may work on one store.
 */
#ifndef POSTROOM_RELAY_H
#define POSTROOM_RELAY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <postroom/clock.h>
#include <postroom/observer.h>
#include <postroom/random.h>
#include <postroom/store.h>
#include <postroom/transport.h>

typedef struct pr_relay pr_relay;

#define PR_RETRY_NONE 0xFFFFFFFFu /* retry_max: no retry, dead at the first failure */

typedef struct pr_relay_options {
    uint32_t size;
    uint32_t batch_max;           /* messages a round; 0 = 500 */
    uint64_t batch_bytes_max;     /* bytes a round; 0 = 8 MiB */
    int64_t lease_ms;             /* 0 = 30,000 */
    int64_t poll_busy_ms;         /* 0 = 5 */
    int64_t poll_idle_ms;         /* 0 = 50; >= poll_busy_ms */
    int64_t probe_max_ms;         /* an unconditional claim at least this often; 0 = 500 */
    int64_t round_backoff_max_ms; /* after failed rounds; 0 = 30,000 */
    int64_t publish_deadline_ms;  /* without an outcome a message is lost; 0 = 10,000 */
    int64_t backoff_initial_ms;   /* of a message; 0 = 5,000 */
    int64_t backoff_max_ms;       /* 0 = 900,000; >= backoff_initial_ms */
    uint32_t retry_max;           /* 0 = 10; PR_RETRY_NONE = none */
    uint32_t jitter_percent;      /* 0 = 25; PR_JITTER_NONE = none; <= 100 */
    double messages_per_second;   /* spaces sends within a round; 0 = off */
    uint32_t breaker_failures;    /* consecutive failures that open a destination; 0 = 5 */
    uint32_t
        parked_cap_per_lane; /* deferred for an open breaker; beyond it the lane waits; 0 = 1,000 */
    int64_t breaker_open_ms; /* until one is tried again, doubling to 30 s; 0 = 1,000 */
    int64_t stop_grace_ms;   /* 0 = 10,000 */
    int64_t backlog_every_ms;    /* how often the backlog is counted; 0 = 5,000 */
    pr_order order;              /* DEFAULT = as stored */
    const char *owner;           /* shown by explain; NULL = host and pid */
    const pr_clock *clock;       /* borrowed; NULL = the system's */
    const pr_random *random;     /* borrowed; NULL = the system's */
    const pr_observer *observer; /* borrowed; may be NULL */
    const char *doorbell; /* path of a socket on which pr_relay_run listens for committers of other
                             processes; NULL = the environment's POSTROOM_DOORBELL, "" = none; at
                             most 107 bytes */
} pr_relay_options;

#define PR_JITTER_NONE 0xFFFFFFFFu

/* clang-format off */
#define PR_RELAY_OPTIONS(...) {.size = (uint32_t)sizeof(pr_relay_options), __VA_ARGS__}
/* clang-format on */

typedef enum pr_health { PR_HEALTH_HEALTHY = 1, PR_HEALTH_DEGRADED, PR_HEALTH_UNHEALTHY } pr_health;

typedef struct pr_relay_snapshot {
    uint32_t size;
    bool running;
    bool first_round_done;
    pr_health health;
    char health_reason[256];       /* "" when healthy */
    int64_t last_round_at_us;      /* 0 = none yet */
    uint32_t consecutive_failures; /* of rounds */
    uint32_t lanes_held;
    uint32_t in_flight; /* submitted, no outcome yet */
    uint32_t breakers_open;
    bool backlog_known;            /* false: counting failed or took too long ("count-failed") */
    uint64_t backlog;              /* pending messages, as last counted */
    int64_t oldest_pending_age_ms; /* 0 = none pending */
    uint64_t claimed, published, failed, deferred, dead, held, lost, expired,
        fenced; /* since start */
} pr_relay_snapshot;

PR_BEGIN_DECLS

/**
 * Make a relay; it sends nothing until it is run or stepped.
 *
 * Shape   transports[0..count): their names are the schemes that it serves.
 * Owner   store and transports are borrowed and must outlive it, and are the relay's thread's
 *         alone. *ret_relay is the caller's: pr_relay_free().
 * Errors  INVALID: options that contradict each other, two transports of one name; NOMEM.
 * Since   0.1
 */
PR_API PR_MUST_CHECK pr_status pr_relay_new(pr_store *store, pr_transport *const *transports,
                                            size_t count, const pr_relay_options *opt,
                                            pr_relay **ret_relay, pr_error *err);

/**
 * Do at most one call of a port, and say when to come again.
 *
 * Units   *ret_wait_ms: milliseconds until the next step has something to do; 0 = now.
 * Errors  none ends the relay: a failed port call is counted, backed off and reported to the
 *         observer; the status tells it once more. STATE: it was stopped.
 * Thread  the relay's; not reentrant.
 * Source  docs/design/relay.md.
 * Since   0.1
 */
PR_API PR_MUST_CHECK pr_status pr_relay_step(pr_relay *relay, int64_t *ret_wait_ms, pr_error *err);

/**
 * Step until pr_relay_stop, sleeping in between. A database error never ends it.
 *
 * Errors  STATE: it runs already (one runs). 
 * Since   0.1
 */
PR_API PR_MUST_CHECK pr_status pr_relay_run(pr_relay *relay, pr_error *err);

/**
 * Run until everything that is due now was sent once, then settle and release.
 *
 * Shape   *ret_published: messages published.
 * Errors  STATE: it runs. BACKEND and others: the first failed port call; what was sent is settled
 *         where that was possible.
 * Since   0.1
 */
PR_API PR_MUST_CHECK pr_status pr_relay_run_once(pr_relay *relay, uint64_t *ret_published,
                                                 pr_error *err);

/**
 * Ask a running relay to stop: it waits for the round in hand within the grace period and releases
 * what it holds.
 *
 * Thread  any, and safe in a signal handler.
 * Since   0.1
 */
PR_API void pr_relay_stop(pr_relay *relay);

/**
 * Wake a sleeping relay because something was committed in this process.
 *
 * Thread  any.
 * Since   0.1
 */
PR_API void pr_relay_wake(pr_relay *relay);

/**
 * Counters and health as of now.
 *
 * Owner   *ret_snapshot is the caller's memory; its size must be set.
 * Errors  INVALID.
 * Thread  any.
 * Since   0.1
 */
PR_API PR_MUST_CHECK pr_status pr_relay_snapshot_get(pr_relay *relay,
                                                     pr_relay_snapshot *ret_snapshot,
                                                     pr_error *err);

/**
 * Release what is held and free the relay.
 *
 * Owner   accepts NULL; returns NULL. It must not run.
 * Since   0.1
 */
PR_API pr_relay *pr_relay_free(pr_relay *relay);

PR_END_DECLS

#endif
