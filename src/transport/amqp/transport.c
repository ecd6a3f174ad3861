/*
 * The RabbitMQ transport: the port's methods.
 *
 * Owns: the options, copied and checked; the publisher.
 * Must not know: frames.
 */
#include <postroom/amqp.h>

#include "base/error.h"
#include "base/memory.h"
#include "base/sized.h"
#include "base/text.h"
#include "port/route.h"

#define ORIGIN     "amqp.transport"
#define WINDOW_MAX 65535

typedef struct amqp_transport {
    pr_transport base;
    char name[32];
} amqp_transport;

static pr_status amqp_open(pr_transport *transport, int64_t timeout_ms, pr_error *err)
{
    (void)timeout_ms;
    return pr__fail(err, PR_E_UNSUPPORTED, ORIGIN, "transport '%s' cannot connect yet",
                    transport->name);
}

static void amqp_state(pr_transport *transport, pr_transport_state *ret_state)
{
    (void)transport;
    ret_state->kind = PR_TRANSPORT_DOWN;
}

static void amqp_free(pr_transport *transport)
{
    pr__free(transport);
}

static const pr_transport_ops amqp_ops = {
    .size = (uint32_t)sizeof(pr_transport_ops),
    .capabilities = PR_TRANSPORT_DURABLE,
    .scheme = "rabbitmq",
    .open = amqp_open,
    .state = amqp_state,
    .free = amqp_free,
};

pr_status pr_amqp_transport_new(const char *uris, const pr_amqp_options *opt,
                                pr_transport **ret_transport, pr_error *err)
{
    static const pr_amqp_options defaults = PR_AMQP_OPTIONS(.flags = 0);
    if (pr__text_empty(uris) || !ret_transport)
        return pr__fail(err, PR_E_INVALID, ORIGIN, "uris or ret_transport is NULL");
    if (!opt)
        opt = &defaults;
    TRY(pr__sized_check(opt, sizeof(*opt), "pr_amqp_options", ORIGIN, err));
    if (opt->window > WINDOW_MAX)
        return pr__fail(err, PR_E_INVALID, ORIGIN, "window is %u, at most %d", opt->window,
                        WINDOW_MAX);
    const char *name = opt->name ? opt->name : "rabbitmq";
    TRY(pr__scheme_check(name, err));
    amqp_transport *self = pr__alloc(sizeof(*self));
    if (!self)
        return pr__fail_nomem(err, ORIGIN);
    pr__format(self->name, sizeof(self->name), "%s", name);
    self->base.ops = &amqp_ops;
    self->base.name = self->name;
    self->base.observer = opt->observer;
    self->base.clock = opt->clock ? opt->clock : pr_clock_system();
    self->base.window = opt->window ? opt->window : PR_CONFIRM_WINDOW_DEFAULT;
    *ret_transport = &self->base;
    return PR_OK;
}

pr_status pr_amqp_stats_get(pr_transport *transport, pr_amqp_stats *ret_stats, pr_error *err)
{
    if (!transport || transport->ops != &amqp_ops)
        return pr__fail(err, PR_E_INVALID, ORIGIN, "it is no RabbitMQ transport");
    TRY(pr__sized_check(ret_stats, sizeof(*ret_stats), "pr_amqp_stats", ORIGIN, err));
    return PR_OK;
}
