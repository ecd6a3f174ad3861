/*
 * Argument checks of the transport port: what reaches a transport was checked here, once.
 */
#include <postroom/transport.h>

#include <string.h>

#include "base/error.h"
#include "base/sized.h"
#include "base/text.h"

#define ORIGIN "transport"

/* Is a method within the table that the adapter was built with, and set? */
#define HAS(ops, type, method)                                                                     \
    ((ops)->size >= offsetof(type, method) + sizeof((ops)->method) && (ops)->method)

static pr_status check_transport(const pr_transport *transport, pr_error *err)
{
    if (!transport || !transport->ops)
        return pr__fail(err, PR_E_INVALID, ORIGIN, "the transport is NULL");
    return PR_OK;
}

static pr_status unsupported(const pr_transport *transport, const char *method, pr_error *err)
{
    return pr__fail(err, PR_E_UNSUPPORTED, ORIGIN, "transport '%s' does not support %s",
                    transport->name, method);
}

#define NEED(transport, method)                                                                    \
    do {                                                                                           \
        TRY(check_transport(transport, err));                                                      \
        if (!HAS((transport)->ops, pr_transport_ops, method))                                      \
            return unsupported(transport, #method, err);                                           \
    } while (0)

#define NEED_ARGUMENT(condition, text)                                                             \
    do {                                                                                           \
        if (!(condition))                                                                          \
            return pr__fail(err, PR_E_INVALID, ORIGIN, "%s", text);                                \
    } while (0)

pr_status pr_transport_open(pr_transport *transport, int64_t timeout_ms, pr_error *err)
{
    NEED(transport, open);
    NEED_ARGUMENT(timeout_ms >= 0, "timeout_ms is negative");
    return transport->ops->open(transport, timeout_ms, err);
}

pr_status pr_transport_submit(pr_transport *transport, const pr_submission *submissions,
                              size_t count, size_t *ret_accepted, pr_error *err)
{
    NEED(transport, submit);
    NEED_ARGUMENT(ret_accepted, "ret_accepted is NULL");
    NEED_ARGUMENT(count == 0 || submissions, "submissions is NULL");
    for (size_t i = 0; i < count; i++) {
        const pr_message *message = submissions[i].message;
        if (!message || !message->id || !message->type || !message->destination)
            return pr__fail(err, PR_E_INVALID, ORIGIN,
                            "submission %zu has no message, id, type or destination", i);
        if (!message->body && message->body_size_bytes > 0)
            return pr__fail(err, PR_E_INVALID, ORIGIN, "submission %zu has a length but no body",
                            i);
    }
    *ret_accepted = 0;
    return count == 0 ? PR_OK
                      : transport->ops->submit(transport, submissions, count, ret_accepted, err);
}

pr_status pr_transport_poll(pr_transport *transport, int64_t timeout_ms, pr_submitted *ret_outcomes,
                            size_t max, size_t *ret_count, pr_error *err)
{
    NEED(transport, poll);
    NEED_ARGUMENT(timeout_ms >= 0, "timeout_ms is negative");
    NEED_ARGUMENT(ret_outcomes && max > 0 && ret_count, "there is no room for outcomes");
    *ret_count = 0;
    return transport->ops->poll(transport, timeout_ms, ret_outcomes, max, ret_count, err);
}

void pr_transport_state_get(pr_transport *transport, pr_transport_state *ret_state)
{
    *ret_state = (pr_transport_state){.size = (uint32_t)sizeof *ret_state, .kind = PR_TRANSPORT_UP};
    if (transport && transport->ops && HAS(transport->ops, pr_transport_ops, state))
        transport->ops->state(transport, ret_state);
}

static pr_status check_options(const pr_subscribe_options *options, pr_error *err)
{
    TRY(pr__sized_check(options, sizeof *options, "pr_subscribe_options", ORIGIN, err));
    NEED_ARGUMENT(!pr__text_empty(options->endpoint), "a subscription needs an endpoint id");
    if (strlen(options->endpoint) > PR_ID_SIZE_MAX)
        return pr__fail(err, PR_E_LIMIT, ORIGIN, "the endpoint id has %zu bytes, at most %d",
                        strlen(options->endpoint), PR_ID_SIZE_MAX);
    if (!pr__utf8_valid(options->endpoint, strlen(options->endpoint)))
        return pr__fail(err, PR_E_CONTENT, ORIGIN, "the endpoint id is not valid UTF-8");
    if (!pr__text_addressable(options->endpoint, strlen(options->endpoint)))
        return pr__fail(err, PR_E_CONTENT, ORIGIN,
                        "the endpoint id has a '/', a space or a control character");
    NEED_ARGUMENT(options->type_count == 0 || options->types, "types is NULL");
    for (size_t i = 0; i < options->type_count; i++) {
        NEED_ARGUMENT(!pr__text_empty(options->types[i]), "a type is empty");
        if (strchr(options->types[i], '/'))
            return pr__fail(err, PR_E_CONTENT, ORIGIN, "type %zu has a '/'", i);
        if (strlen(options->types[i]) > PR_TYPE_SIZE_MAX)
            return pr__fail(err, PR_E_LIMIT, ORIGIN, "type %zu has %zu bytes, at most %d", i,
                            strlen(options->types[i]), PR_TYPE_SIZE_MAX);
    }
    NEED_ARGUMENT(options->expiry_ms >= 0 && options->lease_ms >= 0,
                  "expiry_ms and lease_ms must not be negative");
    return PR_OK;
}

pr_status pr_transport_topology(pr_transport *transport, const pr_subscribe_options *options,
                                bool check_only, pr_error *err)
{
    NEED(transport, topology);
    TRY(check_options(options, err));
    return transport->ops->topology(transport, options, check_only, err);
}

pr_status pr_transport_subscribe(pr_transport *transport, const pr_subscribe_options *options,
                                 pr_subscription **ret_subscription, pr_error *err)
{
    NEED(transport, subscribe);
    TRY(check_options(options, err));
    NEED_ARGUMENT(ret_subscription, "ret_subscription is NULL");
    return transport->ops->subscribe(transport, options, ret_subscription, err);
}

pr_status pr_transport_clone(pr_transport *transport, pr_transport **ret_transport, pr_error *err)
{
    NEED(transport, clone);
    NEED_ARGUMENT(ret_transport, "ret_transport is NULL");
    return transport->ops->clone(transport, ret_transport, err);
}

pr_status pr_transport_backlog(pr_transport *transport, const pr_subscribe_options *options,
                               uint64_t *ret_count, pr_error *err)
{
    NEED(transport, backlog);
    TRY(check_options(options, err));
    NEED_ARGUMENT(ret_count, "ret_count is NULL");
    return transport->ops->backlog(transport, options, ret_count, err);
}

pr_transport *pr_transport_free(pr_transport *transport)
{
    if (transport)
        transport->ops->free(transport);
    return NULL;
}

static pr_status check_subscription(const pr_subscription *subscription, pr_error *err)
{
    if (!subscription || !subscription->ops)
        return pr__fail(err, PR_E_INVALID, ORIGIN, "the subscription is NULL");
    return PR_OK;
}

pr_status pr_subscription_receive(pr_subscription *subscription, int64_t timeout_ms,
                                  pr_delivery *ret_deliveries, size_t max, size_t *ret_count,
                                  pr_error *err)
{
    TRY(check_subscription(subscription, err));
    NEED_ARGUMENT(timeout_ms >= 0, "timeout_ms is negative");
    NEED_ARGUMENT(ret_deliveries && max > 0 && ret_count, "there is no room for deliveries");
    *ret_count = 0;
    return subscription->ops->receive(subscription, timeout_ms, ret_deliveries, max, ret_count,
                                      err);
}

pr_status pr_subscription_settle(pr_subscription *subscription, uint64_t tag, pr_verdict verdict,
                                 int64_t requeue_delay_ms, pr_error *err)
{
    TRY(check_subscription(subscription, err));
    NEED_ARGUMENT(verdict >= PR_VERDICT_ACK && verdict <= PR_VERDICT_REJECT,
                  "the verdict is none of ACK, REQUEUE, REJECT");
    NEED_ARGUMENT(requeue_delay_ms >= 0, "requeue_delay_ms is negative");
    return subscription->ops->settle(subscription, tag, verdict, requeue_delay_ms, err);
}

pr_status pr_subscription_keep(pr_subscription *subscription, pr_error *err)
{
    TRY(check_subscription(subscription, err));
    if (!HAS(subscription->ops, pr_subscription_ops, keep))
        return PR_OK; /* nothing that could be lost by waiting */
    return subscription->ops->keep(subscription, err);
}

pr_subscription *pr_subscription_free(pr_subscription *subscription)
{
    if (subscription)
        subscription->ops->free(subscription);
    return NULL;
}
