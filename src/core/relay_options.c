/*
 * The options of a relay.
 *
 * Keeps: a relay never runs with options that contradict each other; the error names both and what
 * would do. A lease shorter than the publish deadline is allowed: it is renewed while something is
 * on the wire, and sending stops when it runs out.
 * Must not know: what the options are used for.
 */
#include "core/relay_options.h"

#include <string.h>

#include "base/bell.h"
#include "base/error.h"
#include "base/sized.h"
#include "base/text.h"

#define ORIGIN         "relay"
#define BATCH_MAX      100000
#define DURATION_MAX   (1000LL * 365 * 86400000) /* ms; far from any overflow in microseconds */
#define OWNER_SIZE_MAX 127

static pr_status copy_sized(const pr_relay_options *opt, pr_relay_options *ret_options,
                            pr_error *err)
{
    memset(ret_options, 0, sizeof *ret_options);
    if (!opt)
        return PR_OK;
    TRY(pr__sized_check(opt, sizeof *opt, "pr_relay_options", ORIGIN, err));
    *ret_options = *opt;
    return PR_OK;
}

typedef struct duration_rule {
    const char *name;
    int64_t *value;
    int64_t standard;
} duration_rule;

static pr_status resolve_durations(pr_relay_options *o, pr_error *err)
{
    const duration_rule rules[] = {
        {"lease_ms", &o->lease_ms, PR_LEASE_MS_DEFAULT},
        {"poll_busy_ms", &o->poll_busy_ms, PR_POLL_BUSY_MS_DEFAULT},
        {"poll_idle_ms", &o->poll_idle_ms, PR_POLL_IDLE_MS_DEFAULT},
        {"probe_max_ms", &o->probe_max_ms, 500},
        {"round_backoff_max_ms", &o->round_backoff_max_ms, PR__RELAY_BACKOFF_MAX_MS},
        {"publish_deadline_ms", &o->publish_deadline_ms, PR_PUBLISH_DEADLINE_MS_DEFAULT},
        {"backoff_initial_ms", &o->backoff_initial_ms, PR_BACKOFF_INITIAL_MS_DEFAULT},
        {"backoff_max_ms", &o->backoff_max_ms, PR_BACKOFF_MAX_MS_DEFAULT},
        {"breaker_open_ms", &o->breaker_open_ms, 1000},
        {"stop_grace_ms", &o->stop_grace_ms, 10000},
        {"backlog_every_ms", &o->backlog_every_ms, 5000},
    };
    for (size_t i = 0; i < sizeof rules / sizeof rules[0]; i++) {
        int64_t value = *rules[i].value;
        if (value < 0)
            return pr__fail(err, PR_E_INVALID, ORIGIN, "%s is %lld, must be > 0", rules[i].name,
                            (long long)value);
        if (value > DURATION_MAX)
            return pr__fail(err, PR_E_INVALID, ORIGIN, "%s is %lld, at most %lld", rules[i].name,
                            (long long)value, DURATION_MAX);
        if (value == 0)
            *rules[i].value = rules[i].standard;
    }
    return PR_OK;
}

static pr_status refuse_less(const char *name, int64_t value, const char *other, int64_t least,
                             pr_error *err)
{
    if (value >= least)
        return PR_OK;
    return pr__fail(err, PR_E_INVALID, ORIGIN, "%s is %lld, less than %s, which is %lld", name,
                    (long long)value, other, (long long)least);
}

static pr_status refuse_contradictions(const pr_relay_options *o, pr_error *err)
{
    TRY(refuse_less("poll_idle_ms", o->poll_idle_ms, "poll_busy_ms", o->poll_busy_ms, err));
    TRY(refuse_less("probe_max_ms", o->probe_max_ms, "poll_busy_ms", o->poll_busy_ms, err));
    TRY(refuse_less("round_backoff_max_ms", o->round_backoff_max_ms, "poll_idle_ms",
                    o->poll_idle_ms, err));
    TRY(refuse_less("backoff_max_ms", o->backoff_max_ms, "backoff_initial_ms",
                    o->backoff_initial_ms, err));
    if (o->jitter_percent > 100 && o->jitter_percent != PR_JITTER_NONE)
        return pr__fail(err, PR_E_INVALID, ORIGIN, "jitter_percent is %u, at most 100",
                        o->jitter_percent);
    if (!(o->messages_per_second >= 0.0) || o->messages_per_second > 1e9)
        return pr__fail(err, PR_E_INVALID, ORIGIN,
                        "messages_per_second is %g, must be 0 (off) to 1e9",
                        o->messages_per_second);
    if (o->order < PR_ORDER_DEFAULT || o->order > PR_ORDER_HALT)
        return pr__fail(err, PR_E_INVALID, ORIGIN, "order is none of HOLD, SKIP, HALT");
    if (o->batch_max > BATCH_MAX)
        return pr__fail(err, PR_E_INVALID, ORIGIN, "batch_max is %u, at most %d", o->batch_max,
                        BATCH_MAX);
    if (o->owner && (strlen(o->owner) > OWNER_SIZE_MAX ||
                     !pr__utf8_valid(o->owner, strlen(o->owner)) || !o->owner[0]))
        return pr__fail(err, PR_E_INVALID, ORIGIN, "owner must be UTF-8 of 1 to %d bytes",
                        OWNER_SIZE_MAX);
    if (o->doorbell && strlen(o->doorbell) >= PR__BELL_SIZE)
        return pr__fail(err, PR_E_INVALID, ORIGIN,
                        "doorbell has %zu bytes, at most %d as a socket's address",
                        strlen(o->doorbell), PR__BELL_SIZE - 1);
    return PR_OK;
}

static void default_to(uint32_t *value, uint32_t standard)
{
    if (*value == 0)
        *value = standard;
}

pr_status pr__relay_options_resolve(const pr_relay_options *opt, pr_relay_options *ret_options,
                                    pr_error *err)
{
    pr_relay_options o;
    TRY(copy_sized(opt, &o, err));
    TRY(resolve_durations(&o, err));
    TRY(refuse_contradictions(&o, err));
    default_to(&o.batch_max, PR_BATCH_DEFAULT);
    default_to(&o.retry_max, PR_RETRY_MAX_DEFAULT);
    default_to(&o.jitter_percent, 25);
    default_to(&o.breaker_failures, 5);
    default_to(&o.parked_cap_per_lane, 1000);
    if (o.retry_max == PR_RETRY_NONE)
        o.retry_max = 0;
    if (o.jitter_percent == PR_JITTER_NONE)
        o.jitter_percent = 0;
    if (o.batch_bytes_max == 0)
        o.batch_bytes_max = PR_BATCH_BYTES_DEFAULT;
    if (!o.clock)
        o.clock = pr_clock_system();
    if (!o.random)
        o.random = pr_random_system();
    *ret_options = o;
    return PR_OK;
}
