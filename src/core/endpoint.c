/*
 * An endpoint's life: options, counters, stop.
 *
 * Keeps: options are checked before anything is opened; counters are read under the mutex; stop
 * only sets a flag, so that it is safe in a signal handler.
 * Must not know: the inbox's steps (endpoint_work.c), what comes next (endpoint_loop.c).
 */
#include "core/endpoint.h"

#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/memory.h"
#include "base/sized.h"
#include "base/text.h"
#include "core/type.h"

#define ORIGIN                "endpoint"

#define POLL_MS_DEFAULT       50
#define BUSY_WAIT_MS_DEFAULT  5000
#define STOP_GRACE_MS_DEFAULT 10000

int64_t pr__endpoint_now_us(const pr_endpoint *endpoint)
{
    return endpoint->opt.clock->monotonic_us(endpoint->opt.clock->user);
}

void pr__endpoint_observe(const pr_endpoint *endpoint, pr_observation_kind kind,
                          const pr__work *work, pr_status status, const char *text)
{
    pr_observation observation = {.size = (uint32_t)sizeof observation,
                                  .kind = kind,
                                  .count = 1,
                                  .message_id = work ? work->message.id : NULL,
                                  .type = work ? work->message.type : NULL,
                                  .destination = work ? work->message.destination : NULL,
                                  .subject = endpoint->opt.id,
                                  .status = status,
                                  .text = text};
    pr__observe(endpoint->opt.observer, &observation);
}

/* ---- options ---- */

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

static pr_status check_options(const pr_endpoint_options *opt, pr_error *err)
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
    return kept && opt->owner;
}

static void name_owner(pr_endpoint *endpoint)
{
    char host[64] = "";
    if (gethostname(host, sizeof host - 1) != 0)
        host[0] = '\0';
    pr__format(endpoint->owner, sizeof endpoint->owner, "%s:%ld", host, (long)getpid());
}

/* ---- life ---- */

pr_status pr_endpoint_new(pr_store *store, pr_transport *transport, const pr_endpoint_options *opt,
                          pr_endpoint **ret_endpoint, pr_error *err)
{
    if (!store || !transport || !ret_endpoint)
        return pr__fail(err, PR_E_INVALID, ORIGIN, "store, transport or ret_endpoint is NULL");
    TRY(check_options(opt, err));
    pr_endpoint *endpoint = pr__alloc(sizeof *endpoint);
    if (!endpoint)
        return pr__fail_nomem(err, ORIGIN);
    pthread_mutex_init(&endpoint->mutex, NULL);
    endpoint->store = store;
    endpoint->transport = transport;
    endpoint->opt = *opt;
    endpoint->opt.size = (uint32_t)sizeof endpoint->opt;
    endpoint->snapshot.size = (uint32_t)sizeof endpoint->snapshot;
    name_owner(endpoint);
    fill_defaults(endpoint);
    endpoint->arena = pr__arena_new(1024);
    endpoint->works = pr__alloc_array(endpoint->opt.prefetch, sizeof(pr__work *));
    if (!endpoint->arena || !endpoint->works || !keep_texts(endpoint, opt)) {
        pr_endpoint_free(endpoint);
        return pr__fail_nomem(err, ORIGIN);
    }
    *ret_endpoint = endpoint;
    return PR_OK;
}

void pr_endpoint_stop(pr_endpoint *endpoint)
{
    if (endpoint)
        atomic_store(&endpoint->stopping, true);
}

pr_status pr_endpoint_snapshot_get(pr_endpoint *endpoint, pr_endpoint_snapshot *ret_snapshot,
                                   pr_error *err)
{
    if (!endpoint)
        return pr__fail(err, PR_E_INVALID, ORIGIN, "the endpoint is NULL");
    if (!ret_snapshot || ret_snapshot->size < sizeof *ret_snapshot)
        return pr__fail(err, PR_E_INVALID, ORIGIN,
                        "the snapshot is NULL, or its size is not set to "
                        "sizeof(pr_endpoint_snapshot)");
    uint32_t size = ret_snapshot->size;
    pthread_mutex_lock(&endpoint->mutex);
    *ret_snapshot = endpoint->snapshot;
    pthread_mutex_unlock(&endpoint->mutex);
    ret_snapshot->size = size;
    ret_snapshot->running = atomic_load(&endpoint->running);
    return PR_OK;
}

pr_endpoint *pr_endpoint_free(pr_endpoint *endpoint)
{
    if (!endpoint)
        return NULL;
    pr__endpoint_give_back_all(endpoint);
    pr_subscription_free(endpoint->subscription);
    pr__free(endpoint->works);
    pr__arena_free(endpoint->arena);
    pthread_mutex_destroy(&endpoint->mutex);
    pr__free(endpoint);
    return NULL;
}
