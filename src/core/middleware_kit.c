/*
 * The middleware that comes with the library: timing, trace, log, retry policy; and the observer
 * that writes lines.
 *
 * Keeps: no body, header value or secret goes into a line or a span; several threads may be inside
 * at once.
 * Must not know: transports, the store, how the endpoint works.
 */
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include <postroom/random.h>

#include "base/error.h"
#include "base/memory.h"
#include "base/sized.h"
#include "base/text.h"
#include "core/backoff.h"
#include "core/endpoint.h"
#include "core/scope.h"

#define ORIGIN    "middleware"
#define BUCKETS   48 /* powers of two of microseconds: up to years */
#define LINE_SIZE 1024

static int64_t now_us(const pr_scope *scope)
{
    return pr__endpoint_now_us(scope->endpoint);
}

static const char *handled_text(pr_handled handled)
{
    switch (handled) {
    case PR_HANDLED_OK:
        return "ok";
    case PR_HANDLED_RETRY:
        return "retry";
    case PR_HANDLED_PERMANENT:
        return "permanent";
    case PR_HANDLED_DEFER:
        return "defer";
    case PR_HANDLED_STOPPED:
        return "stopped";
    }
    return "garbage";
}

/* ---- timing ---- */

struct pr_timing {
    pthread_mutex_t mutex;
    uint64_t count, ok, stopped;
    int64_t total_us, max_us;
    uint64_t buckets[BUCKETS]; /* [i]: durations below 2^i microseconds, not below 2^(i-1) */
};

static void timing_add(pr_timing *timing, pr_handled handled, int64_t took_us)
{
    int bucket = 0;
    while (bucket < BUCKETS - 1 && (took_us >> bucket) > 0)
        bucket++;
    pthread_mutex_lock(&timing->mutex);
    timing->count++;
    timing->ok += handled == PR_HANDLED_OK;
    timing->stopped += handled == PR_HANDLED_STOPPED;
    timing->total_us += took_us;
    timing->max_us = took_us > timing->max_us ? took_us : timing->max_us;
    timing->buckets[bucket]++;
    pthread_mutex_unlock(&timing->mutex);
}

static pr_handled timing_invoke(void *user, pr_scope *scope, pr_next *next)
{
    int64_t began_us = now_us(scope);
    pr_handled handled = pr_next_invoke(next, scope);
    int64_t took_us = now_us(scope) - began_us;
    timing_add(user, handled, took_us > 0 ? took_us : 0);
    return handled;
}

pr_middleware pr_middleware_timing(pr_timing *timing)
{
    return (pr_middleware)PR_MIDDLEWARE(.name = "timing", .invoke = timing ? timing_invoke : NULL,
                                        .user = timing);
}

pr_status pr_timing_new(pr_timing **ret_timing, pr_error *err)
{
    if (!ret_timing)
        return pr__fail(err, PR_E_INVALID, ORIGIN, "ret_timing is NULL");
    pr_timing *timing = pr__alloc(sizeof *timing);
    if (!timing)
        return pr__fail_nomem(err, ORIGIN);
    pthread_mutex_init(&timing->mutex, NULL);
    *ret_timing = timing;
    return PR_OK;
}

/* The upper end of the bucket in which this share of the durations is reached. Locked. */
static int64_t percentile(const pr_timing *timing, uint64_t percent)
{
    uint64_t wanted = (timing->count * percent + 99) / 100, seen = 0;
    for (int i = 0; i < BUCKETS && wanted > 0; i++) {
        seen += timing->buckets[i];
        int64_t end_us = INT64_C(1) << i;
        if (seen >= wanted)
            return end_us < timing->max_us ? end_us : timing->max_us;
    }
    return 0;
}

pr_status pr_timing_get(pr_timing *timing, pr_timing_report *ret_report, pr_error *err)
{
    if (!timing || !ret_report || ret_report->size < sizeof *ret_report)
        return pr__fail(err, PR_E_INVALID, ORIGIN,
                        "timing or report is NULL, or its size is not set to "
                        "sizeof(pr_timing_report)");
    pthread_mutex_lock(&timing->mutex);
    ret_report->count = timing->count;
    ret_report->ok = timing->ok;
    ret_report->stopped = timing->stopped;
    ret_report->total_us = timing->total_us;
    ret_report->max_us = timing->max_us;
    ret_report->median_us = percentile(timing, 50);
    ret_report->p99_us = percentile(timing, 99);
    pthread_mutex_unlock(&timing->mutex);
    return PR_OK;
}

pr_timing *pr_timing_free(pr_timing *timing)
{
    if (timing)
        pthread_mutex_destroy(&timing->mutex);
    pr__free(timing);
    return NULL;
}

/* ---- trace ---- */

static void random_hex(const pr_scope *scope, char *out, size_t bytes)
{
    uint8_t raw[16];
    const pr_random *random = scope->endpoint->opt.random;
    random->fill(random->user, raw, bytes);
    raw[0] |= 1; /* all zero is no id */
    for (size_t i = 0; i < bytes; i++)
        pr__format(out + 2 * i, 3, "%02x", raw[i]);
}

static bool hex(const char *text, size_t size)
{
    return strspn(text, "0123456789abcdef") >= size;
}

/* Source: W3C Trace Context, section 3.2: version "-" trace-id "-" parent-id "-" flags. */
static void span_of(const pr_scope *scope, pr_span *span)
{
    const char *parent = scope->message->traceparent;
    bool good = parent && strlen(parent) >= 55 && hex(parent, 2) && parent[2] == '-' &&
                hex(parent + 3, 32) && parent[35] == '-' && hex(parent + 36, 16) &&
                parent[52] == '-' && hex(parent + 53, 2);
    if (good) {
        pr__format(span->trace_id, sizeof span->trace_id, "%.32s", parent + 3);
        pr__format(span->parent_span_id, sizeof span->parent_span_id, "%.16s", parent + 36);
        span->sampled = parent[54] == '1' || parent[54] == '3' || parent[54] == '5' ||
                        parent[54] == '7' || parent[54] == '9' || parent[54] == 'b' ||
                        parent[54] == 'd' || parent[54] == 'f';
    } else {
        random_hex(scope, span->trace_id, 16);
        span->sampled = 1;
    }
    random_hex(scope, span->span_id, 8);
}

static pr_handled trace_invoke(void *user, pr_scope *scope, pr_next *next)
{
    const pr_tracer *tracer = user;
    pr_span span = {.size = (uint32_t)sizeof span,
                    .name = scope->message->type,
                    .endpoint = scope->endpoint->opt.id,
                    .attempt = scope->attempts + 1};
    span_of(scope, &span);
    char before[PR__TRACE_PARENT];
    memcpy(before, scope->traceparent, sizeof before);
    pr__format(scope->traceparent, sizeof scope->traceparent, "00-%s-%s-0%u", span.trace_id,
               span.span_id, span.sampled);
    int64_t began_us = now_us(scope);
    if (tracer->begin)
        tracer->begin(tracer->user, &span);
    span.result = pr_next_invoke(next, scope);
    span.duration_us = now_us(scope) - began_us;
    if (tracer->end)
        tracer->end(tracer->user, &span);
    memcpy(scope->traceparent, before, sizeof before);
    return span.result;
}

pr_middleware pr_middleware_trace(const pr_tracer *tracer)
{
    return (pr_middleware)PR_MIDDLEWARE(.name = "trace", .invoke = tracer ? trace_invoke : NULL,
                                        .user = (void *)(uintptr_t)tracer);
}

/* ---- log ---- */

/* Foreign text may hold anything. */
static void write_line(const pr_log *log, const char *text)
{
    char line[LINE_SIZE];
    pr__one_line(line, sizeof line, text, strlen(text));
    if (log->write)
        log->write(log->user, line);
}

static pr_handled log_invoke(void *user, pr_scope *scope, pr_next *next)
{
    int64_t began_us = now_us(scope);
    pr_handled handled = pr_next_invoke(next, scope);
    const pr_message *message = scope->message;
    bool why = handled != PR_HANDLED_OK && handled != PR_HANDLED_STOPPED && scope->reason[0] != 0;
    char text[LINE_SIZE];
    pr__format(text, sizeof text,
               "endpoint=%s type=%s id=%s attempt=%u result=%s duration_us=%lld%s%s%s",
               scope->endpoint->opt.id, message->type ? message->type : "", message->id,
               scope->attempts + 1, handled_text(handled), (long long)(now_us(scope) - began_us),
               why ? " reason=\"" : "", why ? scope->reason : "", why ? "\"" : "");
    write_line(user, text);
    return handled;
}

pr_middleware pr_middleware_log(const pr_log *log)
{
    return (pr_middleware)PR_MIDDLEWARE(.name = "log", .invoke = log ? log_invoke : NULL,
                                        .user = (void *)(uintptr_t)log);
}

static void log_observe(void *user, const pr_observation *seen)
{
    char text[LINE_SIZE];
    pr__format(text, sizeof text, "%s count=%llu%s%s%s%s%s%s status=%s%s%s%s",
               pr_observation_name(seen->kind), (unsigned long long)seen->count,
               seen->subject ? " subject=" : "", seen->subject ? seen->subject : "",
               seen->type ? " type=" : "", seen->type ? seen->type : "",
               seen->message_id ? " id=" : "", seen->message_id ? seen->message_id : "",
               pr_status_text(seen->status), seen->text ? " text=\"" : "",
               seen->text ? seen->text : "", seen->text ? "\"" : "");
    write_line(user, text);
}

pr_observer pr_log_observer(const pr_log *log)
{
    return (pr_observer){.size = (uint32_t)sizeof(pr_observer),
                         .observe = log ? log_observe : NULL,
                         .user = (void *)(uintptr_t)log};
}

/* ---- retry policy ---- */

static int64_t policy_delay_ms(const pr_retry_policy *policy, const pr_scope *scope)
{
    uint32_t value = 0;
    const pr_random *random = scope->endpoint->opt.random;
    random->fill(random->user, &value, sizeof value);
    int64_t initial_ms =
        policy->initial_ms > 0 ? policy->initial_ms : PR_BACKOFF_INITIAL_MS_DEFAULT;
    pr__backoff backoff = {
        .initial_ms = initial_ms,
        .max_ms = policy->max_ms > 0 ? policy->max_ms : PR_BACKOFF_MAX_MS_DEFAULT,
        .jitter_percent = policy->jitter_percent <= 100 ? policy->jitter_percent : 100};
    if (policy->factor == 1)
        return pr__backoff_ms(&backoff, 1, value);
    return pr__backoff_ms(&backoff, scope->attempts + 1, value);
}

static pr_handled retry_invoke(void *user, pr_scope *scope, pr_next *next)
{
    const pr_retry_policy *policy = user;
    pr_handled handled = pr_next_invoke(next, scope);
    if (handled != PR_HANDLED_RETRY)
        return handled;
    if (policy->attempts_max > 0 && scope->attempts + 1 >= policy->attempts_max)
        return PR_HANDLED_PERMANENT;
    if (!scope->delay_set) { /* what the handler said goes first */
        scope->delay_set = true;
        scope->retry_delay_ms = policy_delay_ms(policy, scope);
    }
    return handled;
}

pr_middleware pr_middleware_retry(const pr_retry_policy *policy)
{
    bool good = policy && policy->size >= sizeof *policy && policy->initial_ms >= 0 &&
                policy->max_ms >= 0 && policy->factor <= 2;
    return (pr_middleware)PR_MIDDLEWARE(.name = "retry", .invoke = good ? retry_invoke : NULL,
                                        .user = (void *)(uintptr_t)policy);
}
