/*
 * Middleware: what stands around an endpoint's handler. Each piece wraps the rest, in the order in
 * which the endpoint's options list them, the first outermost.
 *
 * Without a list an endpoint has the work unit and, inside it, the inbox. A list of one's own names
 * both where they are wanted; the inbox must stand inside the unit.
 */
#ifndef POSTROOM_MIDDLEWARE_H
#define POSTROOM_MIDDLEWARE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <postroom/error.h>
#include <postroom/observer.h>

typedef struct pr_scope pr_scope; /* what one delivery gives: see endpoint.h */
typedef struct pr_next pr_next;   /* the rest of the chain, down to the handler */

typedef enum pr_handled {
    PR_HANDLED_OK = 1,
    PR_HANDLED_RETRY,     /* roll back, park as failed, charge an attempt, try again later */
    PR_HANDLED_PERMANENT, /* roll back, park as dead */
    PR_HANDLED_DEFER,     /* roll back, try again later, charge nothing: see pr_scope_defer */
    /* Of pr_next_invoke only: done before, held or busy, so that the handler did not run. The
       endpoint knows what becomes of the message; a middleware passes the answer on. */
    PR_HANDLED_STOPPED
} pr_handled;

/* OK when it is done, else RETRY, for handlers that end with a check:
   `return pr_handled_if(sqlite3_exec(…) == SQLITE_OK);` */
static inline pr_handled pr_handled_if(bool done)
{
    return done ? PR_HANDLED_OK : PR_HANDLED_RETRY;
}

/* Wrap the rest: call pr_next_invoke, or answer without it. Several threads run it at once when
   the endpoint has several workers. */
typedef pr_handled (*pr_middleware_invoke)(void *user, pr_scope *scope, pr_next *next);

typedef struct pr_middleware {
    uint32_t size;  /* sizeof(pr_middleware) */
    uint32_t flags; /* 0 */
    const char *name;
    pr_middleware_invoke invoke;
    void *user;
} pr_middleware;

/* clang-format off */
#define PR_MIDDLEWARE(...) {.size = (uint32_t)sizeof(pr_middleware), __VA_ARGS__}
/* clang-format on */

/* When to try again, in place of the endpoint's own backoff. */
typedef struct pr_retry_policy {
    uint32_t size;
    uint32_t attempts_max;   /* so many attempts in all, then dead; 0 = the endpoint's retry_max */
    int64_t initial_ms;      /* after the first failure; 0 = 5,000 */
    int64_t max_ms;          /* 0 = 900,000 */
    uint32_t factor;         /* 2 = doubling, 1 = always initial_ms; 0 = 2 */
    uint32_t jitter_percent; /* 0 = none; <= 100 */
} pr_retry_policy;

/* clang-format off */
#define PR_RETRY_POLICY(...) {.size = (uint32_t)sizeof(pr_retry_policy), __VA_ARGS__}
/* clang-format on */

typedef struct pr_timing pr_timing; /* durations of handling, counted */

typedef struct pr_timing_report {
    uint32_t size;
    uint32_t reserved;
    uint64_t count;    /* messages that went through, whatever became of them */
    uint64_t ok;       /* of these PR_HANDLED_OK */
    uint64_t stopped;  /* of these PR_HANDLED_STOPPED */
    int64_t total_us;  /* microseconds, of all together */
    int64_t max_us;    /* the longest one */
    int64_t median_us; /* at most twice the true one: counted by powers of two */
    int64_t p99_us;    /* the same of the 99th percentile */
} pr_timing_report;

/* One span of a trace, by the W3C trace context. Ids are lower case hexadecimal. Its texts are
   borrowed for the call. */
typedef struct pr_span {
    uint32_t size;
    uint32_t sampled;        /* 0 or 1, as the sender said */
    char trace_id[33];       /* the message's; a new one when it has none */
    char span_id[17];        /* of this handling */
    char parent_span_id[17]; /* "" when the message began the trace */
    char reserved[5];
    const char *name;     /* the message's type */
    const char *endpoint; /* its id */
    int64_t duration_us;  /* at the end: how long it took */
    pr_handled result;    /* at the end */
    uint32_t attempt;     /* 1 = the first */
} pr_span;

typedef struct pr_tracer {
    uint32_t size;
    uint32_t reserved;
    void (*begin)(void *user, const pr_span *span); /* may be NULL */
    void (*end)(void *user, const pr_span *span);   /* may be NULL */
    void *user;
} pr_tracer;

/* Where lines of text go. A line has no line feed, no body and no secret. */
typedef struct pr_log {
    uint32_t size;
    uint32_t reserved;
    void (*write)(void *user, const char *line);
    void *user;
} pr_log;

PR_BEGIN_DECLS

/**
 * Run the rest of the chain. A middleware outside the work unit may call it again after a RETRY:
 * each call is a transaction of its own.
 *
 * Owner   both are the caller's own arguments.
 * Thread  the one that invoked the middleware, before it returns.
 * Since   0.1
 */
PR_API pr_handled pr_next_invoke(pr_next *next, pr_scope *scope);

/**
 * The work unit: a transaction around what stands inside it, committed when that answers OK.
 *
 * Since   0.1
 */
PR_API pr_middleware pr_middleware_unit(void);

/**
 * The inbox: marks the message in the unit's transaction; what was done before stops here.
 *
 * Since   0.1
 */
PR_API pr_middleware pr_middleware_inbox(void);

/**
 * Measure how long the rest takes.
 *
 * Owner   timing is borrowed and must outlive the endpoint.
 * Since   0.1
 */
PR_API pr_middleware pr_middleware_timing(pr_timing *timing);

/**
 * Make a span of each handling; follow-ups carry it as their parent.
 *
 * Owner   tracer is borrowed and must outlive the endpoint.
 * Since   0.1
 */
PR_API pr_middleware pr_middleware_trace(const pr_tracer *tracer);

/**
 * Write a line for each handling: endpoint, type, id, attempt, result, duration, reason.
 *
 * Owner   log is borrowed and must outlive the endpoint.
 * Since   0.1
 */
PR_API pr_middleware pr_middleware_log(const pr_log *log);

/**
 * Decide when a message is tried again, and when no more, by a policy of its own.
 *
 * Owner   policy is borrowed and must outlive the endpoint.
 * Since   0.1
 */
PR_API pr_middleware pr_middleware_retry(const pr_retry_policy *policy);

/**
 * A place where durations are counted.
 *
 * Owner   *ret_timing is the caller's: pr_timing_free().
 * Errors  INVALID, NOMEM.
 * Thread  any may use it.
 * Since   0.1
 */
PR_API PR_MUST_CHECK pr_status pr_timing_new(pr_timing **ret_timing, pr_error *err);

/**
 * What was counted so far.
 *
 * Owner   *ret_report is the caller's memory; its size must be set.
 * Errors  INVALID.
 * Thread  any.
 * Since   0.1
 */
PR_API PR_MUST_CHECK pr_status pr_timing_get(pr_timing *timing, pr_timing_report *ret_report,
                                             pr_error *err);

/**
 * Free it.
 *
 * Owner   accepts NULL; returns NULL.
 * Since   0.1
 */
PR_API pr_timing *pr_timing_free(pr_timing *timing);

/**
 * An observer that writes what it is told as lines, for relays, endpoints, stores and transports.
 *
 * Owner   log is borrowed and must outlive whoever observes.
 * Since   0.1
 */
PR_API pr_observer pr_log_observer(const pr_log *log);

PR_END_DECLS

#endif
