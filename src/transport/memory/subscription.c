/*
 * Subscriptions of the memory transport.
 *
 * Owns: the deliveries in hand of one holder.
 * Keeps: each delivery is settled once; a tag of an earlier epoch or of a settled delivery is
 * fenced. What is in hand goes back to the queue, in order, when the subscription closes or is cut.
 * Must not know: routing.
 */
#include <time.h>

#include "transport/memory/transport.h"

#include "base/error.h"
#include "base/memory.h"
#include "base/time.h"
#include "port/observe.h"
#include "transport/memory/inspect.h"

#define ORIGIN       "memory.subscription"
#define PREFETCH_MAX 65535

typedef struct slot {
    pr__entry *entry; /* NULL = free */
    uint16_t round;   /* how often the slot was used: part of the tag */
} slot;

typedef struct memory_subscription {
    pr_subscription base;
    pr_memory_broker *broker;
    pr__queue *queue; /* NULL: a temporary one that was cut */
    uint32_t epoch;   /* never one that another opening had */
    bool cut;         /* to be told by the next receive */
    uint32_t prefetch;
    uint32_t in_hand;
    slot slots[];
} memory_subscription;

static memory_subscription *self_of(pr_subscription *subscription)
{
    return (memory_subscription *)subscription;
}

/* ---- tags: epoch, round of the slot, slot ---- */

static uint64_t tag_of(const memory_subscription *self, uint32_t index)
{
    return (uint64_t)self->epoch << 32 | (uint64_t)self->slots[index].round << 16 | index;
}

static slot *slot_of(memory_subscription *self, uint64_t tag)
{
    uint32_t index = (uint32_t)(tag & 0xFFFF);
    if (index >= self->prefetch || !self->slots[index].entry || tag_of(self, index) != tag)
        return NULL;
    return &self->slots[index];
}

/* ---- receiving ---- */

static void hand_out(memory_subscription *self, pr_delivery *ret_deliveries, size_t max,
                     size_t *ret_count)
{
    size_t count = 0;
    for (uint32_t i = 0; i < self->prefetch && count < max; i++) {
        slot *at = &self->slots[i];
        if (at->entry)
            continue;
        at->entry = pr__queue_take(self->queue);
        if (!at->entry)
            break;
        at->round++;
        self->in_hand++;
        ret_deliveries[count++] = (pr_delivery){
            .message = at->entry->envelope->message,
            .tag = tag_of(self, i),
            .redelivered = at->entry->delivery_count > 0,
            .delivery_count = at->entry->delivery_count,
        };
        at->entry->delivery_count++;
    }
    *ret_count = count;
}

/* Sleep until something is ready, a delayed one is due, or the deadline; false at the deadline. */
static bool wait_for_some(memory_subscription *self, int64_t deadline_us)
{
    int64_t now_us = pr__monotonic_us();
    if (now_us >= deadline_us || !self->queue)
        return false;
    int64_t until_us = deadline_us;
    const pr_clock *clock = self->base.transport->clock;
    if (self->queue->delayed.first) {
        int64_t due_us = self->queue->delayed.first->due_us - clock->monotonic_us(clock->user);
        int64_t wait_us = due_us > 0 ? due_us : 0;
        if (wait_us < until_us - now_us)
            until_us = now_us + wait_us;
    }
    struct timespec until = {.tv_sec = (time_t)(until_us / 1000000),
                             .tv_nsec = (long)(until_us % 1000000) * 1000};
    pthread_cond_timedwait(&self->queue->some, &self->broker->lock, &until);
    return true;
}

static pr_status receive_locked(memory_subscription *self, int64_t timeout_ms,
                                pr_delivery *ret_deliveries, size_t max, size_t *ret_count,
                                pr_error *err)
{
    const pr_clock *clock = self->base.transport->clock;
    int64_t deadline_us = pr__monotonic_us() + timeout_ms * 1000;
    do {
        if (self->cut) {
            self->cut = false;
            return pr__fail_retry(err, PR_E_BACKEND, PR_RETRY_RECONNECT, ORIGIN,
                                  "the connection was cut; what was in hand comes again");
        }
        if (!self->queue)
            return pr__fail(err, PR_E_NOT_FOUND, ORIGIN,
                            "the temporary subscription is gone; subscribe again");
        pr__queue_wake_due(self->queue, clock->monotonic_us(clock->user));
        hand_out(self, ret_deliveries, max, ret_count);
    } while (*ret_count == 0 && wait_for_some(self, deadline_us));
    return PR_OK;
}

static pr_status memory_receive(pr_subscription *subscription, int64_t timeout_ms,
                                pr_delivery *ret_deliveries, size_t max, size_t *ret_count,
                                pr_error *err)
{
    memory_subscription *self = self_of(subscription);
    if (timeout_ms > INT32_MAX)
        timeout_ms = INT32_MAX;
    pthread_mutex_lock(&self->broker->lock);
    pr_status status = receive_locked(self, timeout_ms, ret_deliveries, max, ret_count, err);
    pthread_mutex_unlock(&self->broker->lock);
    return status;
}

/* ---- settling ---- */

static pr_status memory_settle(pr_subscription *subscription, uint64_t tag, pr_verdict verdict,
                               int64_t requeue_delay_ms, pr_error *err)
{
    memory_subscription *self = self_of(subscription);
    const pr_clock *clock = subscription->transport->clock;
    pr_status status = PR_OK;
    pthread_mutex_lock(&self->broker->lock);
    slot *at = slot_of(self, tag);
    if (at) {
        pr__entry *entry = TAKE(at->entry);
        self->in_hand--;
        switch (verdict) {
        case PR_VERDICT_ACK:
            pr__queue_finish(self->queue, entry);
            break;
        case PR_VERDICT_REQUEUE:
            if (requeue_delay_ms > INT32_MAX)
                requeue_delay_ms = INT32_MAX;
            pr__queue_delay(self->queue, entry,
                            clock->monotonic_us(clock->user) + requeue_delay_ms * 1000);
            break;
        case PR_VERDICT_REJECT:
            pr__queue_bury(self->queue, entry, self->broker->dead_max);
            break;
        }
    } else {
        status = pr__fail(err, PR_E_FENCED, ORIGIN,
                          "the tag is stale: its delivery was settled, or comes again");
    }
    pthread_mutex_unlock(&self->broker->lock);
    if (status == PR_E_FENCED) {
        const pr_observation fenced = {.size = (uint32_t)sizeof(fenced),
                                       .kind = PR_OBSERVE_FENCED,
                                       .count = 1,
                                       .subject = subscription->transport->name,
                                       .status = PR_E_FENCED};
        pr__observe(subscription->transport->observer, &fenced);
    }
    return status;
}

/* Give back what is in hand, the last first, so that the queue has its old order again. */
static void give_back_all(memory_subscription *self)
{
    for (uint32_t i = self->prefetch; i-- > 0;) {
        pr__entry *entry = TAKE(self->slots[i].entry);
        if (entry)
            pr__queue_give_back(self->queue, entry);
    }
    self->in_hand = 0;
}

static void leave_queue(memory_subscription *self)
{
    pr__queue *queue = TAKE(self->queue);
    if (!queue)
        return;
    queue->consumers--;
    if (queue->temporary)
        pr__broker_drop_queue(self->broker, queue);
}

static void memory_subscription_free(pr_subscription *subscription)
{
    memory_subscription *self = self_of(subscription);
    pthread_mutex_lock(&self->broker->lock);
    give_back_all(self);
    leave_queue(self);
    pthread_mutex_unlock(&self->broker->lock);
    pr__free(self);
}

void pr__memory_subscription_cut(pr_subscription *subscription)
{
    memory_subscription *self = self_of(subscription);
    pthread_mutex_lock(&self->broker->lock);
    give_back_all(self);
    self->epoch = ++self->broker->last_epoch;
    self->cut = true;
    if (self->queue && self->queue->temporary)
        leave_queue(self);
    pthread_mutex_unlock(&self->broker->lock);
}

static const pr_subscription_ops subscription_ops = {
    .size = (uint32_t)sizeof(pr_subscription_ops),
    .receive = memory_receive,
    .settle = memory_settle,
    .keep = NULL, /* nothing is leased */
    .free = memory_subscription_free,
};

pr_status pr__memory_subscribe(pr_transport *transport, const pr_subscribe_options *options,
                               pr_subscription **ret_subscription, pr_error *err)
{
    pr_memory_broker *broker = ((pr__memory_transport *)transport)->broker;
    uint32_t prefetch = options->prefetch ? options->prefetch : PR_PREFETCH_DEFAULT;
    if (prefetch > PREFETCH_MAX)
        return pr__fail(err, PR_E_INVALID, ORIGIN, "prefetch is %u, at most %d", prefetch,
                        PREFETCH_MAX);
    memory_subscription *self =
        pr__alloc(sizeof(*self) + (size_t)prefetch * sizeof(self->slots[0]));
    if (!self)
        return pr__fail_nomem(err, ORIGIN);
    self->base.ops = &subscription_ops;
    self->base.transport = transport;
    self->broker = broker;
    self->prefetch = prefetch;
    pthread_mutex_lock(&broker->lock);
    pr_status status = pr__broker_declare(broker, options, &self->queue, err);
    if (status == PR_OK) {
        self->queue->consumers++;
        self->epoch = ++broker->last_epoch;
    }
    pthread_mutex_unlock(&broker->lock);
    if (status != PR_OK) {
        pr__free(self);
        return status;
    }
    *ret_subscription = &self->base;
    return PR_OK;
}
