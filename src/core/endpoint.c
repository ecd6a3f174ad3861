/*
 * An endpoint's life: making, counters, stop, freeing.
 *
 * Keeps: counters are read under the mutex; stop only sets a flag, so that it is safe in a signal
 * handler.
 * Must not know: the inbox's steps (endpoint_work.c), what comes next (endpoint_loop.c).
 */
#include "core/endpoint.h"

#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "base/process.h"
#include "base/text.h"
#include "base/thread.h"
#include "base/uuid.h"

#define ORIGIN "endpoint"

int64_t pr__endpoint_now_us(const pr_endpoint *endpoint)
{
    return endpoint->opt.clock->monotonic_us(endpoint->opt.clock->user);
}

void pr__endpoint_token(const pr_endpoint *endpoint, char out[PR_UUID_TEXT_SIZE])
{
    uint8_t bytes[10];
    endpoint->opt.random->fill(endpoint->opt.random->user, bytes, sizeof bytes);
    pr__uuid7(endpoint->opt.clock->wall_us(endpoint->opt.clock->user), bytes, out);
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

/* ---- life ---- */

static pr_status make_parts(pr_endpoint *endpoint, const pr_endpoint_options *opt, pr_error *err)
{
    endpoint->arena = pr__arena_new(1024);
    if (!endpoint->arena || !pr__endpoint_options_keep(endpoint, opt))
        return pr__fail_nomem(err, ORIGIN);
    endpoint->works = pr__alloc_array(endpoint->opt.prefetch, sizeof(pr__work *));
    if (!endpoint->works)
        return pr__fail_nomem(err, ORIGIN);
    bool leased = opt->inbox == PR_INBOX_LEASED;
    TRY(pr__chain_make(opt->middleware, opt->middleware_count, leased, endpoint->arena,
                       &endpoint->chain, err));
    if (opt->batch_max > 1 &&
        !(endpoint->chain.has_inbox && endpoint->chain.items[0].invoke == pr__unit_invoke))
        return pr__fail(err, PR_E_INVALID, ORIGIN,
                        "batch_max is %u: then 'unit' must be the outermost of the middleware, "
                        "with 'inbox' inside",
                        opt->batch_max);
    if (leased)
        TRY(pr__renewer_new(endpoint->store, endpoint->opt.id, endpoint->opt.clock,
                            endpoint->opt.lease_ms, &endpoint->renewer, err));
    return PR_OK;
}

pr_status pr_endpoint_new(pr_store *store, pr_transport *transport, const pr_endpoint_options *opt,
                          pr_endpoint **ret_endpoint, pr_error *err)
{
    if (!store || !transport || !ret_endpoint)
        return pr__fail(err, PR_E_INVALID, ORIGIN, "store, transport or ret_endpoint is NULL");
    TRY(pr__endpoint_options_check(opt, err));
    pr_endpoint *endpoint = pr__alloc(sizeof *endpoint);
    if (!endpoint)
        return pr__fail_nomem(err, ORIGIN);
    pthread_mutex_init(&endpoint->mutex, NULL);
    pthread_mutex_init(&endpoint->hand_mutex, NULL);
    pr__cond_init(&endpoint->to_try);
    pr__cond_init(&endpoint->tried);
    endpoint->store = store;
    endpoint->transport = transport;
    endpoint->snapshot.size = (uint32_t)sizeof endpoint->snapshot;
    pr__process_name(endpoint->owner, sizeof endpoint->owner);
    pr_status status = make_parts(endpoint, opt, err);
    if (status != PR_OK) {
        pr_endpoint_free(endpoint);
        return status;
    }
    *ret_endpoint = endpoint;
    return PR_OK;
}

void pr_endpoint_stop(pr_endpoint *endpoint)
{
    if (endpoint)
        atomic_store(&endpoint->stopping, true);
}

void pr_endpoint_pause(pr_endpoint *endpoint)
{
    if (endpoint)
        atomic_store(&endpoint->held, true);
}

void pr_endpoint_resume(pr_endpoint *endpoint)
{
    if (endpoint)
        atomic_store(&endpoint->held, false);
}

static pr_endpoint_state state_of(const pr_endpoint *endpoint, const pr_endpoint_snapshot *snapshot)
{
    if (!snapshot->running && !atomic_load(&endpoint->subscribed))
        return PR_ENDPOINT_STOPPED;
    if (snapshot->paused || atomic_load(&endpoint->held))
        return PR_ENDPOINT_PAUSED;
    if (snapshot->unreached_reason[0] != '\0' || !atomic_load(&endpoint->subscribed))
        return PR_ENDPOINT_STOPPED;
    return snapshot->busy_workers >= snapshot->concurrency ? PR_ENDPOINT_BUSY
                                                           : PR_ENDPOINT_ACCEPTING;
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
    pthread_mutex_lock(&endpoint->hand_mutex);
    ret_snapshot->in_hand = endpoint->work_count;
    ret_snapshot->busy_workers = endpoint->busy_count;
    pthread_mutex_unlock(&endpoint->hand_mutex);
    ret_snapshot->concurrency = endpoint->opt.concurrency;
    ret_snapshot->state = state_of(endpoint, ret_snapshot);
    return PR_OK;
}

pr_endpoint *pr_endpoint_free(pr_endpoint *endpoint)
{
    if (!endpoint)
        return NULL;
    if (endpoint->works)
        pr__endpoint_give_back_all(endpoint);
    pr__renewer_free(endpoint->renewer);
    pr_subscription_free(endpoint->subscription);
    pr__free(endpoint->works);
    pr__arena_free(endpoint->arena);
    pthread_cond_destroy(&endpoint->tried);
    pthread_cond_destroy(&endpoint->to_try);
    pthread_mutex_destroy(&endpoint->hand_mutex);
    pthread_mutex_destroy(&endpoint->mutex);
    pr__free(endpoint);
    return NULL;
}
