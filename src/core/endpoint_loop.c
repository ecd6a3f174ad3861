/*
 * What an endpoint does next: keep, retry, handle, receive, pause, stop.
 *
 * Keeps: due retries and deliveries take turns; a failing database or transport ends nothing, it
 * makes the endpoint wait.
 * Must not know: the inbox's steps.
 */
#include <string.h>

#include "base/error.h"
#include "base/fault.h"
#include "base/memory.h"
#include "base/text.h"
#include "base/time.h"
#include "core/endpoint.h"
#include "core/message.h"

#define ORIGIN           "endpoint"
#define OPEN_TIMEOUT_MS  1000 /* connecting blocks the thread no longer */
#define SLEEP_SLICE_MS   20   /* how soon a stop is seen */
#define MAINTAIN_MS      1000 /* between two looks at the store's housekeeping */
#define PAUSE_INITIAL_MS 100
#define PAUSE_MAX_MS     5000
#define RECEIVE_MAX      64
#define NOBODY           ((pthread_t)0) /* no thread of this system has that number */

static const pr__backoff pause_backoff = {PAUSE_INITIAL_MS, PAUSE_MAX_MS, 0};

/* What is left until then, in whole milliseconds, at least 1 unless it is due. */
static int64_t until_ms(int64_t now_us, int64_t then_us)
{
    return then_us <= now_us ? 0 : (then_us - now_us + 999) / 1000;
}

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* ---- pause ---- */

void pr__endpoint_set_paused(pr_endpoint *endpoint, bool paused, const char *reason)
{
    pthread_mutex_lock(&endpoint->mutex);
    bool changed = endpoint->snapshot.paused != paused;
    endpoint->snapshot.paused = paused;
    pr__format(endpoint->snapshot.paused_reason, sizeof endpoint->snapshot.paused_reason, "%s",
               reason);
    pthread_mutex_unlock(&endpoint->mutex);
    if (changed)
        pr__endpoint_observe(endpoint, PR_OBSERVE_ENDPOINT_STATE, NULL,
                             paused ? PR_E_BACKEND : PR_OK, paused ? reason : "running");
}

/* The database cannot take what failed: hold nothing, ask it again after a wait that grows. */
void pr__endpoint_pause_for(pr_endpoint *endpoint, const char *reason)
{
    pr__endpoint_give_back_all(endpoint);
    endpoint->troubled = true;
    endpoint->pauses++;
    endpoint->resume_at_us =
        pr__endpoint_now_us(endpoint) + pr__backoff_ms(&pause_backoff, endpoint->pauses, 0) * 1000;
    pr__endpoint_set_paused(endpoint, true, reason);
}

/* A transaction that can be begun and read in is the answer that was waited for. */
static pr_status probe(pr_endpoint *endpoint, pr_error *err)
{
    pr_unit *unit = NULL;
    TRY(pr__store_unit_begin(endpoint->store, &unit, err));
    pr_status status = unit->ops->live(unit, err);
    pr_unit_free(unit);
    return status;
}

/* ---- deliveries ---- */

/* A store with an endpoint may have no relay: then nobody else checkpoints its log of writes. What
   fails here is tried again; it is no matter of a message. */
void pr__endpoint_maintain(pr_endpoint *endpoint)
{
    int64_t now_us = pr__endpoint_now_us(endpoint);
    if (now_us < endpoint->maintain_at_us)
        return;
    endpoint->maintain_at_us = now_us + MAINTAIN_MS * 1000;
    pr_status ignored = pr__store_maintain(endpoint->store, NULL);
    (void)ignored;
}

static pr_status try_one(pr_endpoint *endpoint, bool retry, uint32_t index, pr_error *err)
{
    pr__verdict verdict = PR__WORK_TROUBLE;
    pr_error local = PR_ERROR_INIT;
    pr__work *work = retry ? endpoint->retry : endpoint->works[index];
    pr_status status = pr__work_try(endpoint, endpoint->store, work, &verdict, &local);
    pr_status settled = retry ? pr__endpoint_after_retry(endpoint, verdict, &local)
                              : pr__endpoint_after_delivery(endpoint, index, verdict, &local);
    pr__endpoint_count_turn(endpoint, retry);
    if (verdict == PR__WORK_TROUBLE)
        pr__endpoint_pause_for(endpoint, local.message);
    else
        pr__endpoint_maintain(endpoint);
    if (status == PR_OK)
        status = settled;
    if (status != PR_OK)
        pr__error_copy(err, &local);
    return status;
}

/* The delivery, and what may share its transaction. What the batch met is told by those that are
   tried again, alone. */
static pr_status try_deliveries(pr_endpoint *endpoint, uint32_t index, int64_t now_us,
                                pr_error *err)
{
    pr__work *works[PR_ENDPOINT_BATCH_MAX];
    uint32_t count = pr__endpoint_pick_batch(endpoint, index, now_us, works);
    if (count == 1)
        return try_one(endpoint, /* retry= */ false, index, err);
    pr_status status = PR_OK;
    pr_status ignored = pr__batch_try(endpoint, endpoint->store, works, count, NULL);
    (void)ignored;
    pr__endpoint_end_batch(endpoint, works, count);
    pr__endpoint_count_turn(endpoint, /* retry= */ false);
    for (uint32_t i = index; i < endpoint->work_count;) {
        pr_status settled = PR_OK;
        if (endpoint->works[i]->state == PR__WORK_TRIED)
            settled = pr__endpoint_after_delivery(endpoint, i, PR__WORK_ACK, err);
        else
            i++;
        status = status == PR_OK ? settled : status;
    }
    pr__endpoint_maintain(endpoint);
    return status;
}

/* ---- the transport ---- */

/* Why the subscription brings nothing; "" = it does. */
static void set_unreached(pr_endpoint *endpoint, const char *reason)
{
    if (!endpoint->unreached && reason[0] == '\0')
        return; /* as after nearly every look */
    endpoint->unreached = reason[0] != '\0';
    pthread_mutex_lock(&endpoint->mutex);
    pr__format(endpoint->snapshot.unreached_reason, sizeof endpoint->snapshot.unreached_reason,
               "%s", reason);
    pthread_mutex_unlock(&endpoint->mutex);
}

static pr_status transport_failed(pr_endpoint *endpoint, pr_status status, const pr_error *local,
                                  pr_error *err)
{
    set_unreached(endpoint, local->message);
    endpoint->subscribe_failures++;
    endpoint->subscribe_at_us =
        pr__endpoint_now_us(endpoint) +
        pr__backoff_ms(&pause_backoff, endpoint->subscribe_failures, 0) * 1000;
    pr__endpoint_observe(endpoint, PR_OBSERVE_ENDPOINT_STATE, NULL, status, local->message);
    pr__error_copy(err, local);
    return status;
}

static pr_status subscribe(pr_endpoint *endpoint, pr_error *err)
{
    pr_subscribe_options opt = {.size = (uint32_t)sizeof opt,
                                .prefetch = endpoint->opt.prefetch,
                                .endpoint = endpoint->opt.id,
                                .types = endpoint->opt.types,
                                .type_count = endpoint->opt.type_count,
                                .lease_ms = endpoint->opt.lease_ms};
    pr_error local = PR_ERROR_INIT;
    pr_status status = pr_transport_open(endpoint->transport, OPEN_TIMEOUT_MS, &local);
    if (status == PR_OK)
        status = pr_transport_subscribe(endpoint->transport, &opt, &endpoint->subscription, &local);
    if (status != PR_OK)
        return transport_failed(endpoint, status, &local, err);
    endpoint->kept_at_us = pr__endpoint_now_us(endpoint);
    atomic_store(&endpoint->subscribed, true);
    set_unreached(endpoint, "");
    pr__endpoint_observe(endpoint, PR_OBSERVE_ENDPOINT_STATE, NULL, PR_OK, "subscribed");
    return PR_OK;
}

void pr__endpoint_unsubscribe(pr_endpoint *endpoint)
{
    pr__endpoint_give_back_all(endpoint);
    endpoint->subscription = pr_subscription_free(endpoint->subscription);
    atomic_store(&endpoint->subscribed, false);
}

/* Deliveries in hand are leased where the transport leases: renew them while others are handled.
   */
pr_status pr__endpoint_keep(pr_endpoint *endpoint, int64_t now_us, pr_error *err)
{
    if (!endpoint->subscription ||
        now_us - endpoint->kept_at_us < endpoint->opt.lease_ms * 1000 / 3)
        return PR_OK;
    endpoint->kept_at_us = now_us;
    pr_error local = PR_ERROR_INIT;
    pr_status status = pr_subscription_keep(endpoint->subscription, &local);
    if (status == PR_OK)
        return PR_OK;
    if (status == PR_E_FENCED || status == PR_E_BACKEND)
        pr__endpoint_give_back_all(endpoint);
    else
        pr__endpoint_unsubscribe(endpoint);
    if (status == PR_E_FENCED) {
        PR_ENDPOINT_COUNT(endpoint, fenced);
        return PR_OK;
    }
    return transport_failed(endpoint, status, &local, err);
}

pr_status pr__endpoint_receive(pr_endpoint *endpoint, int64_t timeout_ms, size_t *ret_count,
                               pr_error *err)
{
    pr_delivery deliveries[RECEIVE_MAX];
    size_t room = endpoint->opt.prefetch - endpoint->work_count;
    size_t max = room < RECEIVE_MAX ? room : RECEIVE_MAX;
    pr_error local = PR_ERROR_INIT;
    *ret_count = 0;
    pr_status status = pr_subscription_receive(endpoint->subscription, timeout_ms, deliveries, max,
                                               ret_count, &local);
    if (status != PR_OK) {
        *ret_count = 0;
        if (status == PR_E_BACKEND)
            pr__endpoint_give_back_all(endpoint);
        else
            pr__endpoint_unsubscribe(endpoint);
        return transport_failed(endpoint, status, &local, err);
    }
    if (endpoint->subscribe_failures > 0)
        pr__endpoint_observe(endpoint, PR_OBSERVE_ENDPOINT_STATE, NULL, PR_OK, "receiving");
    endpoint->subscribe_failures = 0;
    set_unreached(endpoint, "");
    return pr__endpoint_take(endpoint, deliveries, *ret_count, err);
}

/* ---- the step ---- */

/* When the next thing in hand, or the next look, is due; at most a poll away. */
int64_t pr__endpoint_idle_ms(pr_endpoint *endpoint, int64_t now_us)
{
    int64_t wait_ms =
        least(endpoint->opt.poll_ms, until_ms(now_us, atomic_load(&endpoint->retry_look_us)));
    pthread_mutex_lock(&endpoint->hand_mutex);
    for (uint32_t i = 0; i < endpoint->work_count; i++) {
        const pr__work *work = endpoint->works[i];
        if (work->state == PR__WORK_WAITING && work->ready_at_us > now_us)
            wait_ms = least(wait_ms, until_ms(now_us, work->ready_at_us));
    }
    if (endpoint->retry && endpoint->retry->state == PR__WORK_WAITING)
        wait_ms = least(wait_ms, until_ms(now_us, endpoint->retry->ready_at_us));
    pthread_mutex_unlock(&endpoint->hand_mutex);
    return wait_ms;
}

/* May the transport be asked now? Subscribes where that is due. */
pr_status pr__endpoint_reach_transport(pr_endpoint *endpoint, int64_t now_us, bool *ret_reached,
                                       pr_error *err)
{
    *ret_reached = false;
    if (now_us < endpoint->subscribe_at_us)
        return PR_OK;
    if (!endpoint->subscription)
        TRY(subscribe(endpoint, err));
    *ret_reached = endpoint->work_count < endpoint->opt.prefetch;
    return PR_OK;
}

/* Nothing is ready: see what the transport has. It waits there, not here. */
static pr_status step_idle(pr_endpoint *endpoint, int64_t now_us, int64_t *ret_wait_ms,
                           pr_error *err)
{
    int64_t wait_ms = pr__endpoint_idle_ms(endpoint, now_us);
    bool reached;
    size_t count;
    *ret_wait_ms = wait_ms;
    TRY(pr__endpoint_reach_transport(endpoint, now_us, &reached, err));
    if (!reached)
        return PR_OK;
    pr_status status = pr__endpoint_receive(endpoint, wait_ms, &count, err);
    *ret_wait_ms = status == PR_OK ? 0 : endpoint->opt.poll_ms;
    return status;
}

/* A retry was served last: deliveries that wait over there come before the next one. A transport
   that fails was told to the observer, and keeps no retry waiting. */
static void fetch_between_retries(pr_endpoint *endpoint, int64_t now_us)
{
    bool reached;
    size_t count;
    if (pr__endpoint_reach_transport(endpoint, now_us, &reached, NULL) == PR_OK && reached) {
        pr_status ignored = pr__endpoint_receive(endpoint, /* timeout_ms= */ 0, &count, NULL);
        (void)ignored;
    }
}

static pr_status step_work(pr_endpoint *endpoint, int64_t *ret_wait_ms, pr_error *err)
{
    int64_t now_us = pr__endpoint_now_us(endpoint);
    pr__endpoint_keep_retries(endpoint, now_us);
    TRY(pr__endpoint_keep(endpoint, now_us, err));
    uint32_t index = pr__endpoint_next_ready(endpoint, now_us);
    bool look = !endpoint->retry_batch && now_us >= endpoint->retry_look_us;
    if (index == endpoint->work_count && !endpoint->retry_turn &&
        (look || pr__endpoint_retry_ready(endpoint, now_us))) {
        fetch_between_retries(endpoint, now_us);
        index = pr__endpoint_next_ready(endpoint, now_us);
    }
    bool have_delivery = index < endpoint->work_count;
    if (look && (endpoint->retry_turn || !have_delivery)) {
        pr_error local = PR_ERROR_INIT;
        pr_status status = pr__endpoint_look_for_retry(endpoint, now_us, &local);
        if (status != PR_OK && status != PR_E_BUSY) {
            pr__endpoint_pause_for(endpoint, local.message);
            pr__error_copy(err, &local);
            return status;
        }
    }
    if (pr__endpoint_retry_ready(endpoint, now_us) && (endpoint->retry_turn || !have_delivery))
        return try_one(endpoint, /* retry= */ true, 0, err);
    endpoint->retry_turn = true; /* the next due row comes after this delivery */
    if (have_delivery)
        return try_deliveries(endpoint, index, now_us, err);
    return step_idle(endpoint, now_us, ret_wait_ms, err);
}

/* Its host wants it to rest: what is in hand goes back. Then it leaves the queue, where others of
   its id may be at work: a broker would send it more, up to its prefetch, and keep that from them.
   One that rests from the start subscribes all the same: its queue is to be there. */
static pr_status rest(pr_endpoint *endpoint, int64_t *ret_wait_ms, pr_error *err)
{
    bool ignored = false;
    int64_t now_us = pr__endpoint_now_us(endpoint);
    *ret_wait_ms = endpoint->opt.poll_ms;
    if (!endpoint->rested) {
        endpoint->rested = true;
        pr__endpoint_give_back_all(endpoint);
        pr__endpoint_set_paused(endpoint, true, "paused by its host");
    }
    if (!atomic_load(&endpoint->subscribed))
        TRY(pr__endpoint_reach_transport(endpoint, now_us, &ignored, err));
    if (endpoint->work_count == 0)
        endpoint->subscription = pr_subscription_free(endpoint->subscription);
    return pr__endpoint_keep(endpoint, now_us, err);
}

pr_status pr__endpoint_may_work(pr_endpoint *endpoint, bool *ret_may, int64_t *ret_wait_ms,
                                pr_error *err)
{
    *ret_may = false;
    *ret_wait_ms = 0;
    if (atomic_load(&endpoint->held))
        return rest(endpoint, ret_wait_ms, err);
    if (endpoint->rested) {
        endpoint->rested = false;
        pr__endpoint_set_paused(endpoint, false, "");
    } else if (endpoint->troubled) {
        *ret_wait_ms = until_ms(pr__endpoint_now_us(endpoint), endpoint->resume_at_us);
        if (*ret_wait_ms > 0)
            return PR_OK;
        pr_error local = PR_ERROR_INIT;
        pr_status status = probe(endpoint, &local);
        if (status != PR_OK) {
            pr__endpoint_pause_for(endpoint, local.message);
            pr__error_copy(err, &local);
            return status;
        }
        endpoint->troubled = false;
        pr__endpoint_set_paused(endpoint, false, "");
    }
    *ret_may = true;
    return PR_OK;
}

static pr_status step(pr_endpoint *endpoint, int64_t *ret_wait_ms, pr_error *err)
{
    bool may = false;
    *ret_wait_ms = 0;
    if (atomic_load(&endpoint->stopping)) {
        pr__endpoint_unsubscribe(endpoint);
        return pr__fail(err, PR_E_STATE, ORIGIN, "the endpoint was stopped");
    }
    TRY(pr__endpoint_may_work(endpoint, &may, ret_wait_ms, err));
    return may ? step_work(endpoint, ret_wait_ms, err) : PR_OK;
}

/* One thread is inside at a time, and a handler is inside already. */
static pr_status enter(pr_endpoint *endpoint, const char *call, pr_error *err)
{
    bool expected = false;
    if (atomic_compare_exchange_strong(&endpoint->entered, &expected, true)) {
        atomic_store(&endpoint->inside, pthread_self());
        return PR_OK;
    }
    return pr__fail(err, PR_E_STATE, ORIGIN,
                    "the endpoint runs already: %s was called from its own handler, or from a "
                    "second thread",
                    call);
}

static void leave(pr_endpoint *endpoint)
{
    atomic_store(&endpoint->inside, NOBODY);
    atomic_store(&endpoint->entered, false);
}

pr_status pr_endpoint_step(pr_endpoint *endpoint, int64_t *ret_wait_ms, pr_error *err)
{
    if (!endpoint || !ret_wait_ms)
        return pr__fail(err, PR_E_INVALID, ORIGIN, "endpoint or ret_wait_ms is NULL");
    TRY(enter(endpoint, "pr_endpoint_step", err));
    pr_status status = step(endpoint, ret_wait_ms, err);
    leave(endpoint);
    return status;
}

static void wait_for(pr_endpoint *endpoint, int64_t wait_ms)
{
    while (wait_ms > 0 && !atomic_load(&endpoint->stopping)) {
        int64_t slice_ms = least(wait_ms, SLEEP_SLICE_MS);
        pr__sleep_us(slice_ms * 1000);
        wait_ms -= slice_ms;
    }
}

pr_status pr_endpoint_run(pr_endpoint *endpoint, pr_error *err)
{
    if (!endpoint)
        return pr__fail(err, PR_E_INVALID, ORIGIN, "the endpoint is NULL");
    TRY(enter(endpoint, "pr_endpoint_run", err));
    atomic_store(&endpoint->running, true);
    pr__endpoint_observe(endpoint, PR_OBSERVE_ENDPOINT_STATE, NULL, PR_OK, "running");
    bool done = endpoint->opt.concurrency > 1 && pr__endpoint_run_workers(endpoint);
    while (!done && !atomic_load(&endpoint->stopping)) {
        int64_t wait_ms = 0;
        pr_status status = step(endpoint, &wait_ms, NULL);
        (void)status; /* the observer was told; an endpoint goes on */
        wait_for(endpoint, wait_ms);
    }
    pr__endpoint_unsubscribe(endpoint);
    set_unreached(endpoint, "");
    atomic_store(&endpoint->stopping, false); /* it may be run again */
    atomic_store(&endpoint->cancelling, false);
    atomic_store(&endpoint->stop_seen_us, 0);
    atomic_store(&endpoint->running, false);
    leave(endpoint);
    pr__endpoint_observe(endpoint, PR_OBSERVE_ENDPOINT_STATE, NULL, PR_OK, "stopped");
    return PR_OK;
}
