/*
 * What an endpoint does next: keep, retry, handle, receive, pause, stop.
 *
 * Keeps: one message at a time; due retries and deliveries take turns; of a key, a later
 * delivery in hand never passes an earlier one that waits or was given back; a failing database
 * or transport ends nothing, it makes the endpoint wait.
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
#define GIVE_BACK_MS     100  /* hint to the transport: not at once */
#define OPEN_TIMEOUT_MS  1000 /* connecting blocks the thread no longer */
#define SLEEP_SLICE_MS   20   /* how soon a stop is seen */
#define MAINTAIN_MS      1000 /* between two looks at the store's housekeeping */
#define PAUSE_INITIAL_MS 100
#define PAUSE_MAX_MS     5000
#define RECEIVE_MAX      64
#define RETRIES_IN_ROW   4 /* for each delivery: a hot key must drain faster than it fills */

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

/* ---- settling ---- */

static void remove_at(pr_endpoint *endpoint, uint32_t index)
{
    pr__work_free(endpoint->works[index]);
    endpoint->work_count--;
    memmove(&endpoint->works[index], &endpoint->works[index + 1],
            (endpoint->work_count - index) * sizeof(pr__work *));
}

/* A stale tag is no fault of ours: the message comes again, and its mark knows it. */
static pr_status settle_at(pr_endpoint *endpoint, uint32_t index, pr_verdict verdict, pr_error *err)
{
    pr_error local = PR_ERROR_INIT;
    pr__work *work = endpoint->works[index];
    int64_t delay_ms = verdict == PR_VERDICT_REQUEUE ? GIVE_BACK_MS : 0;
    pr_status status = pr_subscription_settle(endpoint->subscription, work->delivery.tag, verdict,
                                              delay_ms, &local);
    work->message.type = NULL; /* it was the transport's; the id is ours */
    work->message.destination = NULL;
    if (status == PR_OK && verdict == PR_VERDICT_REQUEUE) {
        PR_ENDPOINT_COUNT(endpoint, requeued);
        pr__endpoint_observe(endpoint, PR_OBSERVE_REQUEUED, work, PR_OK, NULL);
    } else if (status == PR_E_FENCED) {
        PR_ENDPOINT_COUNT(endpoint, fenced);
        pr__endpoint_observe(endpoint, PR_OBSERVE_FENCED, work, status, local.message);
        status = PR_OK;
    }
    remove_at(endpoint, index);
    if (status != PR_OK)
        pr__error_copy(err, &local);
    return status;
}

static void give_back_at(pr_endpoint *endpoint, uint32_t index)
{
    pr_status status = settle_at(endpoint, index, PR_VERDICT_REQUEUE, NULL);
    (void)status; /* what cannot be given back comes back by itself */
}

/* From the youngest: a queue that takes them back in front has them in order again. */
void pr__endpoint_give_back_all(pr_endpoint *endpoint)
{
    int64_t deadline_us = pr__endpoint_now_us(endpoint) + endpoint->opt.stop_grace_ms * 1000;
    pr__endpoint_release_retries(endpoint);
    while (endpoint->work_count > 0) {
        if (pr__endpoint_now_us(endpoint) < deadline_us)
            give_back_at(endpoint, endpoint->work_count - 1);
        else
            remove_at(endpoint, endpoint->work_count - 1);
    }
}

static bool same_key(const pr__work *a, const pr__work *b)
{
    return a->message.key && b->message.key && strcmp(a->message.key, b->message.key) == 0 &&
           strcmp(a->inbox.key.tenant, b->inbox.key.tenant) == 0;
}

/* Give back one, and what follows it of its key: it must not be passed. */
static void give_back_with_followers(pr_endpoint *endpoint, uint32_t index)
{
    for (uint32_t i = endpoint->work_count; i-- > index + 1;) {
        bool follows = endpoint->opt.order != PR_ORDER_SKIP &&
                       same_key(endpoint->works[i], endpoint->works[index]);
        if (follows)
            give_back_at(endpoint, i);
    }
    give_back_at(endpoint, index);
}

/* ---- pause ---- */

static void set_paused(pr_endpoint *endpoint, bool paused, const char *reason)
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
static void pause_endpoint(pr_endpoint *endpoint, const char *reason)
{
    pr__endpoint_give_back_all(endpoint);
    endpoint->pauses++;
    endpoint->resume_at_us =
        pr__endpoint_now_us(endpoint) + pr__backoff_ms(&pause_backoff, endpoint->pauses, 0) * 1000;
    set_paused(endpoint, true, reason);
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

/* The first that is due and stands behind no earlier one of its key; work_count = none. */
static uint32_t next_ready(const pr_endpoint *endpoint, int64_t now_us)
{
    for (uint32_t i = 0; i < endpoint->work_count; i++) {
        const pr__work *work = endpoint->works[i];
        bool behind = false;
        for (uint32_t j = 0; endpoint->opt.order != PR_ORDER_SKIP && j < i && !behind; j++)
            behind = same_key(endpoint->works[j], work);
        if (!behind && work->ready_at_us <= now_us)
            return i;
    }
    return endpoint->work_count;
}

static pr_status after_delivery(pr_endpoint *endpoint, uint32_t index, pr__verdict verdict,
                                pr_error *err)
{
    pr_status status;
    switch (verdict) {
    case PR__WORK_WAIT:
    case PR__WORK_TROUBLE: /* the pause gives everything back */
        return PR_OK;
    case PR__WORK_ACK:
        PR_FAULT("endpoint.before_ack");
        status = settle_at(endpoint, index, PR_VERDICT_ACK, err);
        PR_FAULT("endpoint.after_ack");
        endpoint->pauses = 0;
        return status;
    case PR__WORK_GIVE_BACK:
        PR_FAULT("endpoint.before_requeue");
        give_back_with_followers(endpoint, index);
        PR_FAULT("endpoint.after_requeue");
        return PR_OK;
    case PR__WORK_REJECT:
        return settle_at(endpoint, index, PR_VERDICT_REJECT, err);
    }
    return PR_OK;
}

/* A store with an endpoint may have no relay: then nobody else checkpoints its log of writes. What
   fails here is tried again; it is no matter of a message. */
static void maintain(pr_endpoint *endpoint)
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
                              : after_delivery(endpoint, index, verdict, &local);
    endpoint->retries_in_row = retry ? endpoint->retries_in_row + 1 : 0;
    endpoint->retry_turn = endpoint->retries_in_row < RETRIES_IN_ROW;
    if (!endpoint->retry_turn)
        endpoint->retries_in_row = 0;
    if (verdict == PR__WORK_TROUBLE)
        pause_endpoint(endpoint, local.message);
    else
        maintain(endpoint);
    if (status == PR_OK)
        status = settled;
    if (status != PR_OK)
        pr__error_copy(err, &local);
    return status;
}

/* ---- the transport ---- */

static pr_status transport_failed(pr_endpoint *endpoint, pr_status status, const pr_error *local,
                                  pr_error *err)
{
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
    return PR_OK;
}

static void unsubscribe(pr_endpoint *endpoint)
{
    pr__endpoint_give_back_all(endpoint);
    endpoint->subscription = pr_subscription_free(endpoint->subscription);
}

/* Deliveries in hand are leased where the transport leases: renew them while others are handled.
   */
static pr_status keep(pr_endpoint *endpoint, int64_t now_us, pr_error *err)
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
        unsubscribe(endpoint);
    if (status == PR_E_FENCED) {
        PR_ENDPOINT_COUNT(endpoint, fenced);
        return PR_OK;
    }
    return transport_failed(endpoint, status, &local, err);
}

static pr_status take_deliveries(pr_endpoint *endpoint, const pr_delivery *deliveries, size_t count,
                                 pr_error *err)
{
    pr_status status = PR_OK;
    for (size_t i = 0; i < count; i++) {
        pr__work *work = NULL;
        if (status == PR_OK)
            status = pr__work_from_delivery(endpoint, &deliveries[i], &work, err);
        if (!work) {
            /* out of memory: what cannot be held is given back, and so is what comes after it */
            pr_status ignored = pr_subscription_settle(endpoint->subscription, deliveries[i].tag,
                                                       PR_VERDICT_REQUEUE, GIVE_BACK_MS, NULL);
            (void)ignored;
            continue;
        }
        PR_ENDPOINT_COUNT(endpoint, received);
        endpoint->works[endpoint->work_count++] = work;
    }
    return status;
}

static pr_status receive(pr_endpoint *endpoint, int64_t timeout_ms, size_t *ret_count,
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
            unsubscribe(endpoint);
        return transport_failed(endpoint, status, &local, err);
    }
    endpoint->subscribe_failures = 0;
    return take_deliveries(endpoint, deliveries, *ret_count, err);
}

/* ---- the step ---- */

/* When the next thing in hand, or the next look, is due; at most a poll away. */
static int64_t idle_ms(const pr_endpoint *endpoint, int64_t now_us)
{
    int64_t wait_ms = least(endpoint->opt.poll_ms, until_ms(now_us, endpoint->retry_look_us));
    for (uint32_t i = 0; i < endpoint->work_count; i++) {
        if (endpoint->works[i]->ready_at_us > now_us)
            wait_ms = least(wait_ms, until_ms(now_us, endpoint->works[i]->ready_at_us));
    }
    if (endpoint->retry)
        wait_ms = least(wait_ms, until_ms(now_us, endpoint->retry->ready_at_us));
    return wait_ms;
}

/* May the transport be asked now? Subscribes where that is due. */
static pr_status reach_transport(pr_endpoint *endpoint, int64_t now_us, bool *ret_reached,
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
    int64_t wait_ms = idle_ms(endpoint, now_us);
    bool reached;
    size_t count;
    *ret_wait_ms = wait_ms;
    TRY(reach_transport(endpoint, now_us, &reached, err));
    if (!reached)
        return PR_OK;
    pr_status status = receive(endpoint, wait_ms, &count, err);
    *ret_wait_ms = status == PR_OK ? 0 : endpoint->opt.poll_ms;
    return status;
}

/* A retry was served last: deliveries that wait over there come before the next one. A transport
   that fails was told to the observer, and keeps no retry waiting. */
static void fetch_between_retries(pr_endpoint *endpoint, int64_t now_us)
{
    bool reached;
    size_t count;
    if (reach_transport(endpoint, now_us, &reached, NULL) == PR_OK && reached) {
        pr_status ignored = receive(endpoint, /* timeout_ms= */ 0, &count, NULL);
        (void)ignored;
    }
}

static bool retry_ready(const pr_endpoint *endpoint, int64_t now_us)
{
    return endpoint->retry && endpoint->retry->ready_at_us <= now_us;
}

static pr_status step_work(pr_endpoint *endpoint, int64_t *ret_wait_ms, pr_error *err)
{
    int64_t now_us = pr__endpoint_now_us(endpoint);
    pr__endpoint_keep_retries(endpoint, now_us);
    TRY(keep(endpoint, now_us, err));
    uint32_t index = next_ready(endpoint, now_us);
    bool look = !endpoint->retry_batch && now_us >= endpoint->retry_look_us;
    if (index == endpoint->work_count && !endpoint->retry_turn &&
        (look || retry_ready(endpoint, now_us))) {
        fetch_between_retries(endpoint, now_us);
        index = next_ready(endpoint, now_us);
    }
    bool have_delivery = index < endpoint->work_count;
    if (look && (endpoint->retry_turn || !have_delivery)) {
        pr_error local = PR_ERROR_INIT;
        pr_status status = pr__endpoint_look_for_retry(endpoint, now_us, &local);
        if (status != PR_OK && status != PR_E_BUSY) {
            pause_endpoint(endpoint, local.message);
            pr__error_copy(err, &local);
            return status;
        }
    }
    if (retry_ready(endpoint, now_us) && (endpoint->retry_turn || !have_delivery))
        return try_one(endpoint, /* retry= */ true, 0, err);
    endpoint->retry_turn = true; /* the next due row comes after this delivery */
    if (have_delivery)
        return try_one(endpoint, /* retry= */ false, index, err);
    return step_idle(endpoint, now_us, ret_wait_ms, err);
}

static pr_status step(pr_endpoint *endpoint, int64_t *ret_wait_ms, pr_error *err)
{
    *ret_wait_ms = 0;
    if (atomic_load(&endpoint->stopping)) {
        unsubscribe(endpoint);
        return pr__fail(err, PR_E_STATE, ORIGIN, "the endpoint was stopped");
    }
    if (endpoint->pauses > 0 && endpoint->snapshot.paused) {
        int64_t now_us = pr__endpoint_now_us(endpoint);
        *ret_wait_ms = until_ms(now_us, endpoint->resume_at_us);
        if (*ret_wait_ms > 0)
            return PR_OK;
        pr_error local = PR_ERROR_INIT;
        pr_status status = probe(endpoint, &local);
        if (status != PR_OK) {
            pause_endpoint(endpoint, local.message);
            pr__error_copy(err, &local);
            return status;
        }
        set_paused(endpoint, false, "");
    }
    return step_work(endpoint, ret_wait_ms, err);
}

/* One thread is inside at a time, and a handler is inside already. */
static pr_status enter(pr_endpoint *endpoint, const char *call, pr_error *err)
{
    bool expected = false;
    if (atomic_compare_exchange_strong(&endpoint->entered, &expected, true))
        return PR_OK;
    return pr__fail(err, PR_E_STATE, ORIGIN,
                    "the endpoint runs already: %s was called from its own handler, or from a "
                    "second thread",
                    call);
}

pr_status pr_endpoint_step(pr_endpoint *endpoint, int64_t *ret_wait_ms, pr_error *err)
{
    if (!endpoint || !ret_wait_ms)
        return pr__fail(err, PR_E_INVALID, ORIGIN, "endpoint or ret_wait_ms is NULL");
    TRY(enter(endpoint, "pr_endpoint_step", err));
    pr_status status = step(endpoint, ret_wait_ms, err);
    atomic_store(&endpoint->entered, false);
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
    while (!atomic_load(&endpoint->stopping)) {
        int64_t wait_ms = 0;
        pr_status status = step(endpoint, &wait_ms, NULL);
        (void)status; /* the observer was told; an endpoint goes on */
        wait_for(endpoint, wait_ms);
    }
    unsubscribe(endpoint);
    atomic_store(&endpoint->stopping, false); /* it may be run again */
    atomic_store(&endpoint->running, false);
    atomic_store(&endpoint->entered, false);
    pr__endpoint_observe(endpoint, PR_OBSERVE_ENDPOINT_STATE, NULL, PR_OK, "stopped");
    return PR_OK;
}
