/*
 * Subscriptions.
 *
 * Owns: the caller's side of a subscription, and when its link is over.
 * Keeps: a delivery is acknowledged only after the caller settled it. When the channel went, what
 * was in hand is stale: it comes again, and a late verdict about it is dropped and counted. Closing
 * gives back what was prefetched, after the verdicts that were given before.
 * Must not know: frames.
 */
#include "transport/amqp/consumer.h"

#include <string.h>

#include <postroom/random.h>

#include "base/error.h"
#include "base/memory.h"
#include "base/text.h"
#include "base/time.h"
#include "port/observe.h"
#include "transport/amqp/consume.h"

#define ORIGIN "amqp.consumer"

static pr__consumer *self_of(pr_subscription *subscription)
{
    return (pr__consumer *)subscription;
}

/* ---- receiving ---- */

static pr_status failure(const pr__consumer *self, const char *what, pr_error *err)
{
    return pr__fail_retry(err, PR_E_BACKEND, PR_RETRY_RECONNECT, ORIGIN, "%s: %s", what,
                          self->link.cause[0] ? self->link.cause : self->link.last_error.message);
}

/* What has a key waits while one with a key goes back: it may be a later one of that key, and goes
   back as well (give_back.c). */
static size_t take(pr__consumer *self, pr_delivery *ret_deliveries, size_t max)
{
    size_t count = 0;
    bool (*next)(pr__in_hand * hand, pr_delivery * ret_delivery) =
        self->returning > 0 ? pr__in_hand_take_unkeyed : pr__in_hand_take;
    while (count < max && self->hand.handed < self->prefetch &&
           next(&self->hand, &ret_deliveries[count]))
        count++;
    return count;
}

static pr_status receive_locked(pr__consumer *self, int64_t until_us, pr_delivery *ret_deliveries,
                                size_t max, size_t *ret_count, pr_error *err)
{
    for (;;) {
        if (self->cut) {
            self->cut = false;
            return failure(self, "what was in hand comes again", err);
        }
        size_t count = take(self, ret_deliveries, max);
        *ret_count = count;
        if (count > 0)
            return PR_OK;
        if (self->link.over)
            return pr__fail(err, PR_E_NOT_FOUND, ORIGIN,
                            "the temporary subscription '%s' went with its connection; subscribe "
                            "again",
                            self->endpoint);
        if (!pr__amqp_link_wait(&self->link, until_us))
            break;
    }
    return self->link.kind == PR_TRANSPORT_DOWN ? failure(self, "no connection to receive on", err)
                                                : PR_OK;
}

static pr_status amqp_receive(pr_subscription *subscription, int64_t timeout_ms,
                              pr_delivery *ret_deliveries, size_t max, size_t *ret_count,
                              pr_error *err)
{
    pr__consumer *self = self_of(subscription);
    int64_t until_us =
        pr__monotonic_us() + (timeout_ms < INT32_MAX ? timeout_ms : INT32_MAX) * 1000;
    pthread_mutex_lock(&self->link.lock);
    pr_status status = receive_locked(self, until_us, ret_deliveries, max, ret_count, err);
    pthread_mutex_unlock(&self->link.lock);
    return status;
}

/* ---- settling ---- */

static pr_status settle_locked(pr__consumer *self, uint64_t tag, pr_verdict verdict, int64_t due_us,
                               pr_error *err)
{
    uint64_t delivery_tag;
    if (self->verdict_count == self->verdict_capacity) {
        uint32_t capacity = self->verdict_capacity ? self->verdict_capacity * 2 : 64;
        pr__verdict *grown = pr__realloc_array(self->verdicts, capacity, sizeof(*self->verdicts));
        if (!grown)
            return pr__fail_nomem(err, ORIGIN);
        self->verdicts = grown;
        self->verdict_capacity = capacity;
    }
    bool keyed = verdict == PR_VERDICT_REQUEUE && pr__in_hand_keyed(&self->hand, tag);
    if (!pr__in_hand_settle(&self->hand, tag, &delivery_tag))
        return pr__fail(err, PR_E_FENCED, ORIGIN,
                        "the tag is stale: its delivery was settled, or comes again");
    self->verdicts[self->verdict_count++] = (pr__verdict){
        .delivery_tag = delivery_tag, .due_us = due_us, .verdict = verdict, .keyed = keyed};
    self->returning += keyed ? 1 : 0;
    pr__amqp_link_wake(&self->link);
    return PR_OK;
}

static pr_status amqp_settle(pr_subscription *subscription, uint64_t tag, pr_verdict verdict,
                             int64_t requeue_delay_ms, pr_error *err)
{
    pr__consumer *self = self_of(subscription);
    int64_t due_us = 0;
    if (verdict == PR_VERDICT_REQUEUE && requeue_delay_ms > 0)
        due_us = pr__monotonic_us() +
                 (requeue_delay_ms < INT32_MAX ? requeue_delay_ms : INT32_MAX) * 1000;
    pthread_mutex_lock(&self->link.lock);
    pr_status status = settle_locked(self, tag, verdict, due_us, err);
    pthread_mutex_unlock(&self->link.lock);
    if (status == PR_E_FENCED) {
        PR__AMQP_COUNT(self->link.settings, stale_tags);
        const pr_observation fenced = {.size = (uint32_t)sizeof(fenced),
                                       .kind = PR_OBSERVE_FENCED,
                                       .count = 1,
                                       .subject = self->endpoint,
                                       .status = PR_E_FENCED};
        pr__observe(subscription->transport->observer, &fenced);
    }
    return status;
}

/* Nothing is leased: heartbeats are the link's own. But what is stale need not be worked on. */
static pr_status amqp_keep(pr_subscription *subscription, pr_error *err)
{
    pr__consumer *self = self_of(subscription);
    pthread_mutex_lock(&self->link.lock);
    bool cut = self->cut;
    self->cut = false;
    pr_status status = cut ? pr__fail(err, PR_E_FENCED, ORIGIN, "what was in hand comes again: %s",
                                      self->link.last_error.message)
                           : PR_OK;
    pthread_mutex_unlock(&self->link.lock);
    return status;
}

/* ---- life ---- */

static void consumer_done(pr__consumer *self)
{
    pr__amqp_link_done(&self->link);
    pr__consume_done(&self->consume);
    pr__in_hand_done(&self->hand);
    pr__free(self->verdicts);
    for (size_t i = 0; i < self->options.type_count; i++)
        pr__free(self->types[i]);
    pr__free(self->types);
    pr__free(self->endpoint);
    pr__free(self);
}

static void amqp_subscription_free(pr_subscription *subscription)
{
    consumer_done(self_of(subscription));
}

static const pr_subscription_ops subscription_ops = {
    .size = (uint32_t)sizeof(pr_subscription_ops),
    .receive = amqp_receive,
    .settle = amqp_settle,
    .keep = amqp_keep,
    .free = amqp_subscription_free,
};

static pr_status copy_options(pr__consumer *self, const pr_subscribe_options *options,
                              pr_error *err)
{
    self->options = *options;
    self->options.size = (uint32_t)sizeof(self->options);
    self->options.type_count = 0;
    self->endpoint = pr__strdup(options->endpoint);
    self->types = pr__alloc_array(options->type_count + 1, sizeof(*self->types));
    if (!self->endpoint || !self->types)
        return pr__fail_nomem(err, ORIGIN);
    self->options.endpoint = self->endpoint;
    self->options.types = (const char *const *)self->types;
    for (size_t i = 0; i < options->type_count; i++) {
        self->types[i] = pr__strdup(options->types[i]);
        if (!self->types[i])
            return pr__fail_nomem(err, ORIGIN);
        self->options.type_count = i + 1;
    }
    return PR_OK;
}

pr_status pr__amqp_subscribe(pr_transport *transport, pr__amqp_settings *settings,
                             const pr_subscribe_options *options,
                             pr_subscription **ret_subscription, pr_error *err)
{
    uint32_t prefetch = options->prefetch ? options->prefetch : PR_PREFETCH_DEFAULT;
    if (prefetch > UINT16_MAX)
        return pr__fail(err, PR_E_INVALID, ORIGIN, "prefetch is %u, at most %d", prefetch,
                        UINT16_MAX);
    pr__amqp_names names;
    TRY(pr__amqp_names_of(options, settings->prefix, &names, err));
    pr__consumer *self = pr__alloc(sizeof(*self));
    if (!self)
        return pr__fail_nomem(err, ORIGIN);
    self->base.ops = &subscription_ops;
    self->base.transport = transport;
    self->names = names;
    self->prefetch = (uint16_t)prefetch;
    uint32_t epoch;
    pr_random_system()->fill(pr_random_system()->user, &epoch, sizeof(epoch));
    pr__in_hand_init(&self->hand, epoch);
    pr_status status = pr__amqp_link_init(&self->link, settings, &pr__consumer_link_ops, self,
                                          options->endpoint, err);
    if (status != PR_OK) {
        pr__free(self);
        return status;
    }
    status = copy_options(self, options, err);
    self->link.role = self->endpoint;
    if (status == PR_OK)
        status = pr__amqp_link_start(&self->link, err);
    if (status == PR_OK)
        status = pr__amqp_link_wait_up(&self->link, PR__SUBSCRIBE_TIMEOUT_MS, err);
    if (status == PR_E_BUSY) /* blocked: that is for publishers */
        status = PR_OK;
    if (status != PR_OK) {
        consumer_done(self);
        return status;
    }
    *ret_subscription = &self->base;
    return PR_OK;
}

void pr__amqp_subscription_cut(pr_subscription *subscription)
{
    pr__consumer *self = self_of(subscription);
    pr__watchdog_cut(self->link.settings->watchdog, &self->link.guard);
}
