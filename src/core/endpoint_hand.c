/*
 * What an endpoint has in hand: deliveries in order of arrival, settled, given back, picked.
 *
 * Keeps: of a key, a later delivery in hand never passes an earlier one that is tried, waits, or
 * was given back; nothing is freed while a worker has it; the list is changed by the endpoint's own
 * thread alone, under the lock.
 * Must not know: where deliveries come from, the inbox's steps.
 */
#include <string.h>

#include "base/error.h"
#include "base/fault.h"
#include "base/memory.h"
#include "base/text.h"
#include "core/endpoint.h"

#define GIVE_BACK_MS   100 /* hint to the transport: not at once */
#define RETRIES_IN_ROW 4   /* for each delivery: a hot key must drain faster than it fills */

/* ---- settling ---- */

static void remove_at(pr_endpoint *endpoint, uint32_t index)
{
    pthread_mutex_lock(&endpoint->hand_mutex);
    pr__work *work = endpoint->works[index];
    endpoint->work_count--;
    memmove(&endpoint->works[index], &endpoint->works[index + 1],
            (endpoint->work_count - index) * sizeof(pr__work *));
    pthread_mutex_unlock(&endpoint->hand_mutex);
    pr__work_free(work);
}

/* A stale tag is no fault of ours: the message comes again, and its mark knows it. */
static pr_status settle_at(pr_endpoint *endpoint, uint32_t index, pr_verdict verdict, pr_error *err)
{
    pr_error local = PR_ERROR_INIT;
    pr__work *work = endpoint->works[index];
    if (!endpoint->subscription) { /* it went with its subscription, and comes again */
        remove_at(endpoint, index);
        return PR_OK;
    }
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

static bool waits(pr_endpoint *endpoint, uint32_t index)
{
    pthread_mutex_lock(&endpoint->hand_mutex);
    bool waiting = endpoint->works[index]->state == PR__WORK_WAITING;
    if (waiting)
        endpoint->works[index]->state = PR__WORK_LEAVING; /* no worker takes it any more */
    pthread_mutex_unlock(&endpoint->hand_mutex);
    return waiting;
}

/* From the youngest: a queue that takes them back in front has them in order again. */
void pr__endpoint_give_back_all(pr_endpoint *endpoint)
{
    int64_t deadline_us = pr__endpoint_now_us(endpoint) + endpoint->opt.stop_grace_ms * 1000;
    pr__endpoint_release_retries(endpoint);
    for (uint32_t i = endpoint->work_count; i-- > 0;) {
        if (!waits(endpoint, i))
            continue;
        if (pr__endpoint_now_us(endpoint) < deadline_us)
            give_back_at(endpoint, i);
        else
            remove_at(endpoint, i);
    }
}

static bool same_key(const pr__work *a, const pr__work *b)
{
    return a->message.key && b->message.key && strcmp(a->message.key, b->message.key) == 0 &&
           strcmp(a->inbox.key.tenant, b->inbox.key.tenant) == 0;
}

static bool same_id(const pr__work *a, const pr__work *b)
{
    return strcmp(a->id, b->id) == 0 && strcmp(a->inbox.key.tenant, b->inbox.key.tenant) == 0;
}

/* Give back one, and what follows it of its key: it must not be passed. */
static void give_back_with_followers(pr_endpoint *endpoint, uint32_t index)
{
    for (uint32_t i = endpoint->work_count; i-- > index + 1;) {
        bool follows = endpoint->opt.order != PR_ORDER_SKIP &&
                       same_key(endpoint->works[i], endpoint->works[index]);
        if (follows && waits(endpoint, i))
            give_back_at(endpoint, i);
    }
    give_back_at(endpoint, index);
}

pr_status pr__endpoint_after_delivery(pr_endpoint *endpoint, uint32_t index, pr__verdict verdict,
                                      pr_error *err)
{
    pr_status status;
    switch (verdict) {
    case PR__WORK_WAIT:
    case PR__WORK_TROUBLE: /* the pause gives everything back */
        pr__endpoint_set_state(endpoint, endpoint->works[index], PR__WORK_WAITING);
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

/* ---- taking and picking ---- */

void pr__endpoint_set_state(pr_endpoint *endpoint, pr__work *work, pr__work_state state)
{
    pthread_mutex_lock(&endpoint->hand_mutex);
    work->state = state;
    pthread_mutex_unlock(&endpoint->hand_mutex);
}

pr_status pr__endpoint_take(pr_endpoint *endpoint, const pr_delivery *deliveries, size_t count,
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
        pthread_mutex_lock(&endpoint->hand_mutex);
        endpoint->works[endpoint->work_count++] = work;
        pthread_mutex_unlock(&endpoint->hand_mutex);
    }
    return status;
}

/* Nothing passes an earlier one of its key; two copies of one message do not meet in the store. */
static bool behind(const pr_endpoint *endpoint, uint32_t index)
{
    const pr__work *work = endpoint->works[index];
    bool ordered = endpoint->opt.order != PR_ORDER_SKIP && work->message.key;
    for (uint32_t i = 0; i < index; i++) {
        const pr__work *earlier = endpoint->works[i];
        if ((ordered && !earlier->picked && same_key(earlier, work)) ||
            (earlier->state != PR__WORK_WAITING && same_id(earlier, work)))
            return true;
    }
    return false;
}

bool pr__endpoint_is_ready(const pr_endpoint *endpoint, uint32_t index, int64_t now_us)
{
    const pr__work *work = endpoint->works[index];
    return work->state == PR__WORK_WAITING && work->ready_at_us <= now_us &&
           !behind(endpoint, index);
}

uint32_t pr__endpoint_next_ready(const pr_endpoint *endpoint, int64_t now_us)
{
    for (uint32_t i = 0; i < endpoint->work_count; i++) {
        if (pr__endpoint_is_ready(endpoint, i, now_us))
            return i;
    }
    return endpoint->work_count;
}

/* What may have killed a process, and what waits for its turn alone, is not mixed with others. */
static bool may_share(const pr__work *work)
{
    return !work->alone && !work->refused && !work->delivery.redelivered && work->token[0] == '\0';
}

static bool picked_before(pr__work *const *works, uint32_t count, const pr__work *work)
{
    for (uint32_t i = 0; i < count; i++) {
        if (same_id(works[i], work))
            return true;
    }
    return false;
}

uint32_t pr__endpoint_pick_batch(pr_endpoint *endpoint, uint32_t index, int64_t now_us,
                                 pr__work *ret_works[PR_ENDPOINT_BATCH_MAX])
{
    uint32_t count = 0;
    ret_works[0] = endpoint->works[index];
    if (endpoint->opt.batch_max < 2 || !may_share(ret_works[0]))
        return 1;
    for (uint32_t i = index; i < endpoint->work_count && count < endpoint->opt.batch_max; i++) {
        pr__work *work = endpoint->works[i];
        bool ready = work->state == PR__WORK_WAITING && work->ready_at_us <= now_us;
        if (!ready || !may_share(work) || behind(endpoint, i) ||
            picked_before(ret_works, count, work))
            continue;
        work->picked = true;
        ret_works[count++] = work;
    }
    for (uint32_t i = 0; i < count; i++) {
        ret_works[i]->picked = false;
        if (count > 1)
            ret_works[i]->state = PR__WORK_TRYING;
    }
    return count;
}

void pr__endpoint_end_batch(pr_endpoint *endpoint, pr__work *const *works, uint32_t count)
{
    (void)endpoint;
    for (uint32_t i = 0; i < count; i++)
        works[i]->state = works[i]->verdict == PR__WORK_ACK ? PR__WORK_TRIED : PR__WORK_WAITING;
}

bool pr__endpoint_retry_ready(const pr_endpoint *endpoint, int64_t now_us)
{
    return endpoint->retry && endpoint->retry->state == PR__WORK_WAITING &&
           endpoint->retry->ready_at_us <= now_us;
}

void pr__endpoint_count_turn(pr_endpoint *endpoint, bool retry)
{
    endpoint->retries_in_row = retry ? endpoint->retries_in_row + 1 : 0;
    endpoint->retry_turn = endpoint->retries_in_row < RETRIES_IN_ROW;
    if (!endpoint->retry_turn)
        endpoint->retries_in_row = 0;
}
