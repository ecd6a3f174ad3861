/*
 * An endpoint's options: what is refused, and what is meant by zero.
 *
 * Keeps: options are checked before anything is opened.
 * Must not know: what the options do.
 */
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "base/sized.h"
#include "base/text.h"
#include "core/endpoint.h"
#include "core/type.h"

#define ORIGIN                "endpoint"

#define POLL_MS_DEFAULT       50
#define BUSY_WAIT_MS_DEFAULT  5000
#define STOP_GRACE_MS_DEFAULT 10000

static pr_status check_ranges(const pr_endpoint_options *opt, pr_error *err)
{
    const struct {
        const char *name;
        int64_t value;
    } durations[] = {
        {"backoff_initial_ms", opt->backoff_initial_ms},
        {"backoff_max_ms", opt->backoff_max_ms},
        {"busy_wait_ms", opt->busy_wait_ms},
        {"lease_ms", opt->lease_ms},
        {"poll_ms", opt->poll_ms},
        {"stop_grace_ms", opt->stop_grace_ms},
        {"processing_timeout_ms", opt->processing_timeout_ms},
    };
    for (size_t i = 0; i < sizeof durations / sizeof durations[0]; i++) {
        if (durations[i].value < 0 || durations[i].value > INT64_MAX / 1000 / 4)
            return pr__fail(err, PR_E_INVALID, ORIGIN, "%s is %lld, must be milliseconds >= 0",
                            durations[i].name, (long long)durations[i].value);
    }
    if (opt->prefetch > PR_ENDPOINT_PREFETCH_MAX)
        return pr__fail(err, PR_E_INVALID, ORIGIN, "prefetch is %u, at most %d", opt->prefetch,
                        PR_ENDPOINT_PREFETCH_MAX);
    if (opt->jitter_percent > 100 && opt->jitter_percent != PR_JITTER_NONE)
        return pr__fail(err, PR_E_INVALID, ORIGIN, "jitter_percent is %u, at most 100",
                        opt->jitter_percent);
    uint32_t concurrency = opt->concurrency ? opt->concurrency : PR_CONCURRENCY_DEFAULT;
    uint32_t prefetch = opt->prefetch ? opt->prefetch : PR_PREFETCH_DEFAULT;
    if (opt->concurrency && (concurrency > PR_ENDPOINT_WORKERS_MAX || concurrency > prefetch))
        return pr__fail(err, PR_E_INVALID, ORIGIN,
                        "concurrency is %u, at most %d and at most prefetch, %u", concurrency,
                        PR_ENDPOINT_WORKERS_MAX, prefetch);
    if (opt->batch_max > PR_ENDPOINT_BATCH_MAX || opt->batch_max > prefetch)
        return pr__fail(err, PR_E_INVALID, ORIGIN,
                        "batch_max is %u, at most %d and at most prefetch, %u", opt->batch_max,
                        PR_ENDPOINT_BATCH_MAX, prefetch);
    if (opt->reserved != 0)
        return pr__fail(err, PR_E_INVALID, ORIGIN, "reserved is %u, must be 0", opt->reserved);
    if (opt->batch_max > 1 && opt->inbox == PR_INBOX_LEASED)
        return pr__fail(err, PR_E_INVALID, ORIGIN,
                        "batch_max is %u with the leased inbox: batches are for the transactional "
                        "one",
                        opt->batch_max);
    if (opt->inbox != PR_INBOX_TRANSACTIONAL && opt->inbox != PR_INBOX_LEASED)
        return pr__fail(err, PR_E_INVALID, ORIGIN, "inbox is neither TRANSACTIONAL nor LEASED");
    if (opt->order < PR_ORDER_DEFAULT || opt->order > PR_ORDER_HALT)
        return pr__fail(err, PR_E_INVALID, ORIGIN, "order is none of HOLD, SKIP, HALT");
    return PR_OK;
}

static pr_status check_texts(const pr_endpoint_options *opt, pr_error *err)
{
    if (pr__text_empty(opt->id))
        return pr__fail(err, PR_E_INVALID, ORIGIN, "an endpoint needs an id");
    if (strlen(opt->id) > PR_ID_SIZE_MAX)
        return pr__fail(err, PR_E_LIMIT, ORIGIN, "the endpoint's id has %zu bytes, at most %d",
                        strlen(opt->id), PR_ID_SIZE_MAX);
    if (!pr__utf8_valid(opt->id, strlen(opt->id)))
        return pr__fail(err, PR_E_CONTENT, ORIGIN, "the endpoint's id is not valid UTF-8");
    if (!pr__text_addressable(opt->id, strlen(opt->id))) /* it could never subscribe */
        return pr__fail(err, PR_E_CONTENT, ORIGIN,
                        "the endpoint's id has a '/', a space or a control character: no address "
                        "could name it");
    if (opt->types && opt->type_count == 0)
        return pr__fail(err, PR_E_INVALID, ORIGIN, "types is given, but type_count is 0");
    if (opt->type_count > 0 && !opt->types)
        return pr__fail(err, PR_E_INVALID, ORIGIN, "types is NULL, but type_count is %zu",
                        opt->type_count);
    for (size_t i = 0; i < opt->type_count; i++) {
        if (!opt->types[i])
            return pr__fail(err, PR_E_INVALID, ORIGIN, "types[%zu] is NULL", i);
        pr_status status = pr__type_check(opt->types[i], strlen(opt->types[i]), NULL, err);
        if (status != PR_OK) {
            pr__error_context(err, "types[%zu]", i);
            return status;
        }
    }
    return PR_OK;
}

pr_status pr__endpoint_options_check(const pr_endpoint_options *opt, pr_error *err)
{
    TRY(pr__sized_check(opt, sizeof *opt, "pr_endpoint_options", ORIGIN, err));
    if (!opt->handler)
        return pr__fail(err, PR_E_INVALID, ORIGIN, "an endpoint needs a handler");
    TRY(check_texts(opt, err));
    TRY(check_ranges(opt, err));
    int64_t initial =
        opt->backoff_initial_ms ? opt->backoff_initial_ms : PR_BACKOFF_INITIAL_MS_DEFAULT;
    int64_t max = opt->backoff_max_ms ? opt->backoff_max_ms : PR_BACKOFF_MAX_MS_DEFAULT;
    if (max < initial)
        return pr__fail(err, PR_E_INVALID, ORIGIN,
                        "backoff_max_ms is %lld, must be at least backoff_initial_ms, %lld",
                        (long long)max, (long long)initial);
    return PR_OK;
}

static void default_ms(int64_t *value, int64_t otherwise)
{
    if (*value == 0)
        *value = otherwise;
}

static void fill_defaults(pr_endpoint *endpoint)
{
    pr_endpoint_options *opt = &endpoint->opt;
    opt->prefetch = opt->prefetch ? opt->prefetch : PR_PREFETCH_DEFAULT;
    opt->concurrency = opt->concurrency ? opt->concurrency : PR_CONCURRENCY_DEFAULT;
    if (opt->concurrency > opt->prefetch)
        opt->concurrency = opt->prefetch;
    if (opt->retry_max == 0)
        opt->retry_max = PR_RETRY_MAX_DEFAULT;
    else if (opt->retry_max == PR_RETRY_NONE)
        opt->retry_max = 0;
    if (opt->jitter_percent == 0)
        opt->jitter_percent = 25;
    else if (opt->jitter_percent == PR_JITTER_NONE)
        opt->jitter_percent = 0;
    default_ms(&opt->backoff_initial_ms, PR_BACKOFF_INITIAL_MS_DEFAULT);
    default_ms(&opt->backoff_max_ms, PR_BACKOFF_MAX_MS_DEFAULT);
    default_ms(&opt->busy_wait_ms, BUSY_WAIT_MS_DEFAULT);
    default_ms(&opt->lease_ms, PR_LEASE_MS_DEFAULT);
    default_ms(&opt->poll_ms, POLL_MS_DEFAULT);
    default_ms(&opt->stop_grace_ms, STOP_GRACE_MS_DEFAULT);
    if (opt->order == PR_ORDER_DEFAULT)
        opt->order = PR_ORDER_HOLD;
    opt->clock = opt->clock ? opt->clock : pr_clock_system();
    opt->random = opt->random ? opt->random : pr_random_system();
    endpoint->backoff = (pr__backoff){.initial_ms = opt->backoff_initial_ms,
                                      .max_ms = opt->backoff_max_ms,
                                      .jitter_percent = opt->jitter_percent};
}

static bool keep_texts(pr_endpoint *endpoint, const pr_endpoint_options *given)
{
    pr_endpoint_options *opt = &endpoint->opt;
    pr__arena *arena = endpoint->arena;
    opt->id = pr__arena_strdup(arena, given->id);
    char **types = pr__arena_alloc(arena, (given->type_count + 1) * sizeof *types);
    bool kept = opt->id && types;
    for (size_t i = 0; kept && i < given->type_count; i++) {
        types[i] = pr__arena_strdup(arena, given->types[i]);
        kept = types[i] != NULL;
    }
    opt->types = (const char *const *)types;
    if (given->owner)
        opt->owner = pr__arena_strdup(arena, given->owner);
    else
        opt->owner = endpoint->owner;
    opt->publish_to = pr__arena_strdup(arena, given->publish_to);
    if (given->publish_to && !opt->publish_to)
        return false;
    return kept && opt->owner;
}

bool pr__endpoint_options_keep(pr_endpoint *endpoint, const pr_endpoint_options *given)
{
    endpoint->opt = *given;
    endpoint->opt.size = (uint32_t)sizeof endpoint->opt;
    fill_defaults(endpoint);
    return keep_texts(endpoint, given);
}
