/*
 * A transport of the test's own: it delivers what it is told, as a foreign broker may, and fails on
 * demand.
 */
#ifndef PR_TESTS_FAKE_TRANSPORT_H
#define PR_TESTS_FAKE_TRANSPORT_H

#include <string.h>

#include <postroom/transport.h>

#include "base/error.h"

#define FAKE_DELIVERIES_MAX 16

typedef struct fake_transport {
    pr_transport base;
    pr_subscription subscription;
    pr_delivery queue[FAKE_DELIVERIES_MAX]; /* tag = 1 + index */
    size_t queued;
    size_t delivered;
    pr_verdict verdicts[FAKE_DELIVERIES_MAX + 1]; /* by tag; 0 = not settled */
    int opens, subscribes, closes, receives, keeps;
    /* what to answer */
    int subscribe_failures; /* so many times */
    pr_status receive_status;
    pr_status settle_status;
    pr_status keep_status;
} fake_transport;

static inline pr_status fake_receive(pr_subscription *subscription, int64_t timeout_ms,
                                     pr_delivery *ret_deliveries, size_t max, size_t *ret_count,
                                     pr_error *err)
{
    fake_transport *fake = (fake_transport *)(void *)subscription->transport;
    (void)timeout_ms;
    fake->receives++;
    *ret_count = 0;
    if (fake->receive_status != PR_OK)
        return pr__fail_retry(err, fake->receive_status, PR_RETRY_RECONNECT, "fake",
                              "the broker went away");
    while (*ret_count < max && fake->delivered < fake->queued)
        ret_deliveries[(*ret_count)++] = fake->queue[fake->delivered++];
    return PR_OK;
}

static inline pr_status fake_settle(pr_subscription *subscription, uint64_t tag, pr_verdict verdict,
                                    int64_t requeue_delay_ms, pr_error *err)
{
    fake_transport *fake = (fake_transport *)(void *)subscription->transport;
    (void)requeue_delay_ms;
    if (fake->settle_status != PR_OK)
        return pr__fail(err, fake->settle_status, "fake", "told to fail");
    fake->verdicts[tag] = verdict;
    return PR_OK;
}

static inline pr_status fake_keep(pr_subscription *subscription, pr_error *err)
{
    fake_transport *fake = (fake_transport *)(void *)subscription->transport;
    fake->keeps++;
    return fake->keep_status == PR_OK
               ? PR_OK
               : pr__fail(err, fake->keep_status, "fake", "a lease was lost");
}

static inline void fake_subscription_free(pr_subscription *subscription)
{
    ((fake_transport *)(void *)subscription->transport)->closes++;
}

static const pr_subscription_ops fake_subscription_ops = {
    .size = (uint32_t)sizeof fake_subscription_ops,
    .receive = fake_receive,
    .settle = fake_settle,
    .keep = fake_keep,
    .free = fake_subscription_free,
};

static inline pr_status fake_open(pr_transport *transport, int64_t timeout_ms, pr_error *err)
{
    (void)timeout_ms;
    (void)err;
    ((fake_transport *)(void *)transport)->opens++;
    return PR_OK;
}

static inline pr_status fake_subscribe(pr_transport *transport, const pr_subscribe_options *options,
                                       pr_subscription **ret_subscription, pr_error *err)
{
    fake_transport *fake = (fake_transport *)(void *)transport;
    (void)options;
    fake->subscribes++;
    if (fake->subscribe_failures > 0) {
        fake->subscribe_failures--;
        return pr__fail_retry(err, PR_E_BACKEND, PR_RETRY_RECONNECT, "fake", "nobody is there");
    }
    fake->subscription = (pr_subscription){&fake_subscription_ops, transport};
    *ret_subscription = &fake->subscription;
    return PR_OK;
}

static inline void fake_transport_free(pr_transport *transport)
{
    (void)transport;
}

static const pr_transport_ops fake_transport_ops = {
    .size = (uint32_t)sizeof fake_transport_ops,
    .capabilities = PR_TRANSPORT_CAN_SUBSCRIBE,
    .scheme = "fake",
    .open = fake_open,
    .subscribe = fake_subscribe,
    .free = fake_transport_free,
};

static inline void fake_transport_init(fake_transport *fake)
{
    memset(fake, 0, sizeof *fake);
    fake->base.ops = &fake_transport_ops;
    fake->base.name = "fake";
    fake->base.clock = pr_clock_system();
    fake->base.window = 1;
}

/* Queue a message; returns its tag. */
static inline uint64_t fake_deliver(fake_transport *fake, const pr_message *message,
                                    bool redelivered)
{
    uint64_t tag = fake->queued + 1;
    fake->queue[fake->queued++] =
        (pr_delivery){.message = *message, .tag = tag, .redelivered = redelivered};
    return tag;
}

#endif
