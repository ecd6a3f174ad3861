/*
 * The memory transport.
 *
 * Owns: the window of outcomes that were not polled yet.
 * Keeps: a submission is decided when it is accepted, so its outcome never waits; what does not
 * fit into the window is not accepted.
 * Must not know: how queues work.
 */
#include "transport/memory/transport.h"

#include "base/error.h"
#include "base/memory.h"
#include "base/sized.h"
#include "base/text.h"
#include "port/route.h"
#include "transport/memory/inspect.h"

#define ORIGIN     "memory.transport"
#define WINDOW_MAX 65536

static pr__memory_transport *self_of(pr_transport *transport)
{
    return (pr__memory_transport *)transport;
}

static pr_status memory_open(pr_transport *transport, int64_t timeout_ms, pr_error *err)
{
    (void)transport;
    (void)timeout_ms;
    (void)err;
    return PR_OK;
}

static pr_status memory_submit(pr_transport *transport, const pr_submission *submissions,
                               size_t count, size_t *ret_accepted, pr_error *err)
{
    (void)err;
    pr__memory_transport *self = self_of(transport);
    size_t room = transport->window - self->outcomes.count;
    size_t accepted = count < room ? count : room;
    if (!self->discard)
        pthread_mutex_lock(&self->broker->lock);
    for (size_t i = 0; i < accepted; i++) {
        pr_submitted *outcome =
            pr__outcomes_add(&self->outcomes, submissions[i].ticket, PR_SUBMIT_CONFIRMED);
        if (!self->discard)
            pr__broker_publish(self->broker, self->name, submissions[i].message, outcome);
    }
    if (!self->discard)
        pthread_mutex_unlock(&self->broker->lock);
    *ret_accepted = accepted;
    return PR_OK;
}

/* Outcomes are there or there are none to come: it never waits. */
static pr_status memory_poll(pr_transport *transport, int64_t timeout_ms,
                             pr_submitted *ret_outcomes, size_t max, size_t *ret_count,
                             pr_error *err)
{
    (void)timeout_ms;
    (void)err;
    *ret_count = pr__outcomes_take(&self_of(transport)->outcomes, ret_outcomes, max);
    return PR_OK;
}

static void memory_state(pr_transport *transport, pr_transport_state *ret_state)
{
    (void)transport;
    ret_state->kind = PR_TRANSPORT_UP;
    ret_state->cause[0] = '\0';
}

static pr_status memory_topology(pr_transport *transport, const pr_subscribe_options *options,
                                 bool check_only, pr_error *err)
{
    pr_memory_broker *broker = self_of(transport)->broker;
    if (options->temporary)
        return PR_OK; /* made by the subscription itself */
    pr_status status = PR_OK;
    pr__queue *queue = NULL;
    pthread_mutex_lock(&broker->lock);
    if (check_only && !pr__broker_find(broker, options->endpoint, /* temporary= */ false))
        status = pr__fail(err, PR_E_NOT_FOUND, ORIGIN, "there is no queue of endpoint '%s'",
                          options->endpoint);
    else
        status = pr__broker_declare(broker, options, &queue, err);
    pthread_mutex_unlock(&broker->lock);
    return status;
}

/* What a queue holds is waiting, delayed or in hand; the dead are apart. */
static pr_status memory_backlog(pr_transport *transport, const pr_subscribe_options *options,
                                uint64_t *ret_count, pr_error *err)
{
    (void)err;
    pr_memory_broker *broker = self_of(transport)->broker;
    pthread_mutex_lock(&broker->lock);
    const pr__queue *queue = pr__broker_find(broker, options->endpoint, options->temporary);
    *ret_count = queue ? queue->held_count : 0;
    pthread_mutex_unlock(&broker->lock);
    return PR_OK;
}

static void memory_free(pr_transport *transport)
{
    pr__memory_transport *self = self_of(transport);
    pr__outcomes_done(&self->outcomes);
    pr__free(self);
}

static pr_status memory_clone(pr_transport *transport, pr_transport **ret_transport, pr_error *err)
{
    const pr__memory_transport *self = self_of(transport);
    const pr_memory_options opt = {.size = (uint32_t)sizeof opt,
                                   .window = transport->window,
                                   .name = self->name,
                                   .observer = transport->observer,
                                   .clock = transport->clock,
                                   .discard = self->discard};
    return pr_memory_transport_new(self->broker, &opt, ret_transport, err);
}

static const pr_transport_ops memory_ops = {
    .size = (uint32_t)sizeof(pr_transport_ops),
    .capabilities =
        PR_TRANSPORT_CAN_SUBSCRIBE | PR_TRANSPORT_CAN_TEMPORARY | PR_TRANSPORT_CAN_TOPOLOGY,
    .scheme = "memory",
    .open = memory_open,
    .submit = memory_submit,
    .poll = memory_poll,
    .state = memory_state,
    .topology = memory_topology,
    .subscribe = pr__memory_subscribe,
    .free = memory_free,
    .clone = memory_clone,
    .backlog = memory_backlog,
};

pr_status pr_memory_transport_new(pr_memory_broker *broker, const pr_memory_options *opt,
                                  pr_transport **ret_transport, pr_error *err)
{
    static const pr_memory_options defaults = {.size = (uint32_t)sizeof(pr_memory_options)};
    if (!broker || !ret_transport)
        return pr__fail(err, PR_E_INVALID, ORIGIN, "broker or ret_transport is NULL");
    if (!opt)
        opt = &defaults;
    TRY(pr__sized_check(opt, sizeof(*opt), "pr_memory_options", ORIGIN, err));
    if (opt->window > WINDOW_MAX)
        return pr__fail(err, PR_E_INVALID, ORIGIN, "window is %u, at most %d", opt->window,
                        WINDOW_MAX);
    const char *name = opt->name ? opt->name : "memory";
    TRY(pr__scheme_check(name, err));

    pr__memory_transport *self = pr__alloc(sizeof(*self));
    if (!self)
        return pr__fail_nomem(err, ORIGIN);
    pr__format(self->name, sizeof(self->name), "%s", name);
    self->base.ops = &memory_ops;
    self->base.name = self->name;
    self->base.observer = opt->observer;
    self->base.clock = opt->clock ? opt->clock : pr_clock_system();
    self->base.window = opt->window ? opt->window : PR_CONFIRM_WINDOW_DEFAULT;
    self->broker = broker;
    self->discard = opt->discard;
    pr_status status = pr__outcomes_init(&self->outcomes, self->base.window, ORIGIN, err);
    if (status != PR_OK) {
        pr__free(self);
        return status;
    }
    *ret_transport = &self->base;
    return PR_OK;
}

bool pr__memory_counts_get(pr_memory_broker *broker, const char *endpoint, bool temporary,
                           pr__memory_counts *ret_counts)
{
    pthread_mutex_lock(&broker->lock);
    pr__queue *queue = pr__broker_find(broker, endpoint, temporary);
    if (queue)
        *ret_counts = (pr__memory_counts){
            .held = queue->held_count,
            .ready = queue->ready.count,
            .delayed = queue->delayed.count,
            .dead = queue->dead.count,
            .chains = queue->chain_count,
        };
    pthread_mutex_unlock(&broker->lock);
    return queue != NULL;
}

void pr__memory_limits_set(pr_memory_broker *broker, size_t queue_messages_max, size_t dead_max,
                           uint64_t body_size_max)
{
    pthread_mutex_lock(&broker->lock);
    if (queue_messages_max > 0)
        broker->queue_messages_max = queue_messages_max;
    if (dead_max > 0)
        broker->dead_max = dead_max;
    if (body_size_max > 0)
        broker->body_size_max = body_size_max;
    pthread_mutex_unlock(&broker->lock);
}
