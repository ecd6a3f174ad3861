/*
 * The RabbitMQ transport: the port's methods.
 *
 * Owns: the options, copied and checked; the watchdog; the publisher.
 * Keeps: publishing has a connection of its own, each subscription another: a broker that takes no
 * publishes stops reading from a connection that publishes, and acknowledgements must go through.
 * Must not know: frames.
 */
#include <string.h>
#include <unistd.h>

#include <postroom/amqp.h>

#include "base/error.h"
#include "base/memory.h"
#include "base/process.h"
#include "base/sized.h"
#include "base/text.h"
#include "base/time.h"
#include "port/route.h"
#include "transport/amqp/consumer.h"
#include "transport/amqp/inspect.h"
#include "transport/amqp/publisher.h"
#include "transport/amqp/topology.h"

#define ORIGIN               "amqp.transport"
#define WINDOW_MAX           65535
#define BYTES_DEFAULT        (16LL * 1024 * 1024)
#define RECONNECT_INITIAL_MS 100
#define RECONNECT_MAX_MS     2000
#define CLOSE_TIMEOUT_MS     1000

typedef struct amqp_transport {
    pr_transport base;
    pr__amqp_settings settings;
    pr__publisher publisher;
} amqp_transport;

static amqp_transport *self_of(pr_transport *transport)
{
    return (amqp_transport *)transport;
}

/* ---- the port ---- */

static pr_status amqp_open(pr_transport *transport, int64_t timeout_ms, pr_error *err)
{
    pr__amqp_link *link = &self_of(transport)->publisher.link;
    TRY(pr__amqp_link_start(link, err));
    return pr__amqp_link_wait_up(link, timeout_ms, err);
}

static pr_status amqp_submit(pr_transport *transport, const pr_submission *submissions,
                             size_t count, size_t *ret_accepted, pr_error *err)
{
    return pr__publisher_submit(&self_of(transport)->publisher, submissions, count, ret_accepted,
                                err);
}

static pr_status amqp_poll(pr_transport *transport, int64_t timeout_ms, pr_submitted *ret_outcomes,
                           size_t max, size_t *ret_count, pr_error *err)
{
    (void)err;
    pr__publisher_poll(&self_of(transport)->publisher, timeout_ms, ret_outcomes, max, ret_count);
    return PR_OK;
}

static void amqp_state(pr_transport *transport, pr_transport_state *ret_state)
{
    pr__amqp_link *link = &self_of(transport)->publisher.link;
    pthread_mutex_lock(&link->lock);
    ret_state->kind = link->kind;
    pr__format(ret_state->cause, sizeof(ret_state->cause), "%s", link->cause);
    pthread_mutex_unlock(&link->lock);
}

/* A connection for a question or two, on the caller's own thread. */
typedef struct errand {
    pr__guard guard;
    pr__amqp_connection connection;
} errand;

static pr_status begin_errand(errand *of, pr_transport *transport, pr_error *err)
{
    pr__amqp_settings *settings = &self_of(transport)->settings;
    size_t turn = 0;
    *of = (errand){.guard = {.fd = -1}};
    TRY(pr__amqp_connect(settings, "topology", &of->guard, &turn, &of->connection, err));
    pr__watchdog_arm(settings->watchdog, &of->guard,
                     pr__monotonic_us() + settings->publish_deadline_ms * 1000);
    return PR_OK;
}

static pr_status amqp_topology(pr_transport *transport, const pr_subscribe_options *options,
                               bool check_only, pr_error *err)
{
    errand of;
    if (options->temporary)
        return PR_OK; /* made by the subscription itself */
    TRY(begin_errand(&of, transport, err));
    pr_status status = pr__amqp_topology(&of.connection, options, check_only, err);
    pr__amqp_disconnect(&of.connection);
    return status;
}

pr_status pr__amqp_queue_look(pr_transport *transport, const char *queue, uint32_t *ret_messages,
                              uint32_t *ret_consumers, pr_error *err)
{
    errand of;
    TRY(begin_errand(&of, transport, err));
    pr_status status =
        pr__amqp_topology_look(&of.connection, queue, ret_messages, ret_consumers, err);
    pr__amqp_disconnect(&of.connection);
    return status;
}

pr_status pr__amqp_topology_remove(pr_transport *transport, const pr_subscribe_options *options,
                                   pr_error *err)
{
    errand of;
    TRY(begin_errand(&of, transport, err));
    pr_status status = pr__amqp_topology_delete(&of.connection, options, err);
    pr__amqp_disconnect(&of.connection);
    return status;
}

static pr_status amqp_subscribe(pr_transport *transport, const pr_subscribe_options *options,
                                pr_subscription **ret_subscription, pr_error *err)
{
    return pr__amqp_subscribe(transport, &self_of(transport)->settings, options, ret_subscription,
                              err);
}

static void settings_done(pr__amqp_settings *settings)
{
    settings->watchdog = pr__watchdog_free(settings->watchdog);
    settings->uris = pr__amqp_uris_free(settings->uris);
}

static void amqp_free(pr_transport *transport)
{
    amqp_transport *self = self_of(transport);
    pr__publisher_done(&self->publisher);
    settings_done(&self->settings);
    pr__free(self);
}

static pr_status amqp_clone(pr_transport *transport, pr_transport **ret_transport, pr_error *err);

static const pr_transport_ops amqp_ops = {
    .size = (uint32_t)sizeof(pr_transport_ops),
    .capabilities = PR_TRANSPORT_CAN_SUBSCRIBE | PR_TRANSPORT_CAN_TEMPORARY |
                    PR_TRANSPORT_CAN_TOPOLOGY | PR_TRANSPORT_DURABLE,
    .scheme = "rabbitmq",
    .open = amqp_open,
    .submit = amqp_submit,
    .poll = amqp_poll,
    .state = amqp_state,
    .topology = amqp_topology,
    .subscribe = amqp_subscribe,
    .free = amqp_free,
    .clone = amqp_clone,
};

/* ---- options ---- */

static pr_status check_numbers(const pr_amqp_options *opt, pr_error *err)
{
    if (opt->window > WINDOW_MAX)
        return pr__fail(err, PR_E_INVALID, ORIGIN, "window is %u, at most %d", opt->window,
                        WINDOW_MAX);
    if (opt->flags & ~(PR_AMQP_DECLARE | PR_AMQP_CLOUDEVENTS))
        return pr__fail(err, PR_E_INVALID, ORIGIN, "flags has bits that mean nothing: 0x%x",
                        opt->flags);
    if (opt->queue_kind > PR_AMQP_QUEUE_QUORUM)
        return pr__fail(err, PR_E_INVALID, ORIGIN, "queue_kind is %u, none of pr_amqp_queue_kind",
                        opt->queue_kind);
    if (opt->body_size_max < 0 || opt->body_size_max > PR_BODY_SIZE_MAX)
        return pr__fail(err, PR_E_INVALID, ORIGIN, "body_size_max is %lld, at most %lld",
                        (long long)opt->body_size_max, (long long)PR_BODY_SIZE_MAX);
    const struct {
        const char *name;
        int64_t value;
    } times[] = {{"publish_deadline_ms", opt->publish_deadline_ms},
                 {"reconnect_initial_ms", opt->reconnect_initial_ms},
                 {"reconnect_max_ms", opt->reconnect_max_ms},
                 {"close_timeout_ms", opt->close_timeout_ms},
                 {"bytes_in_flight_max", opt->bytes_in_flight_max}};
    for (size_t i = 0; i < sizeof(times) / sizeof(times[0]); i++) {
        if (times[i].value < 0 || times[i].value > INT32_MAX)
            return pr__fail(err, PR_E_INVALID, ORIGIN, "%s is %lld, must be 0 to %d", times[i].name,
                            (long long)times[i].value, INT32_MAX);
    }
    return PR_OK;
}

static int64_t or_default(int64_t value, int64_t otherwise)
{
    return value > 0 ? value : otherwise;
}

static void set_name(pr__amqp_settings *settings, const char *given)
{
    char host[80];
    if (given) {
        pr__format(settings->connection_name, sizeof(settings->connection_name), "%s", given);
        return;
    }
    pr__process_host(host, sizeof(host));
    pr__format(settings->connection_name, sizeof(settings->connection_name), "postroom %s %d", host,
               (int)getpid());
}

static pr_status take_options(pr__amqp_settings *settings, const pr_amqp_options *opt,
                              pr_error *err)
{
    const char *name = opt->name ? opt->name : "rabbitmq";
    const char *prefix = opt->prefix ? opt->prefix : "";
    TRY(pr__scheme_check(name, err));
    TRY(pr__amqp_prefix_check(prefix, err));
    TRY(check_numbers(opt, err));
    if (opt->connection_name && !pr__utf8_valid(opt->connection_name, strlen(opt->connection_name)))
        return pr__fail(err, PR_E_INVALID, ORIGIN, "connection_name is not valid UTF-8");
    pr__format(settings->name, sizeof(settings->name), "%s", name);
    pr__format(settings->prefix, sizeof(settings->prefix), "%s", prefix);
    set_name(settings, opt->connection_name);
    settings->observer = opt->observer;
    settings->flags = opt->flags;
    settings->quorum = opt->queue_kind == PR_AMQP_QUEUE_QUORUM;
    settings->window = opt->window ? opt->window : PR_CONFIRM_WINDOW_DEFAULT;
    settings->bytes_in_flight_max = (uint64_t)or_default(opt->bytes_in_flight_max, BYTES_DEFAULT);
    settings->body_size_max = (uint64_t)or_default(opt->body_size_max, PR_BODY_SIZE_MAX);
    settings->publish_deadline_ms =
        or_default(opt->publish_deadline_ms, PR_PUBLISH_DEADLINE_MS_DEFAULT);
    settings->reconnect_initial_ms = or_default(opt->reconnect_initial_ms, RECONNECT_INITIAL_MS);
    settings->reconnect_max_ms = or_default(opt->reconnect_max_ms, RECONNECT_MAX_MS);
    if (settings->reconnect_max_ms < settings->reconnect_initial_ms)
        settings->reconnect_max_ms = settings->reconnect_initial_ms;
    settings->close_timeout_ms = or_default(opt->close_timeout_ms, CLOSE_TIMEOUT_MS);
    return PR_OK;
}

static pr_status make(pr__amqp_uris *uris, const pr_amqp_options *opt, pr_transport **ret_transport,
                      pr_error *err)
{
    amqp_transport *self = pr__alloc(sizeof(*self));
    if (!self)
        return pr__fail_nomem(err, ORIGIN);
    self->settings.uris = pr__amqp_uris_share(uris);
    pr_status status = take_options(&self->settings, opt, err);
    if (status == PR_OK)
        status = pr__watchdog_new(&self->settings.watchdog, err);
    if (status == PR_OK)
        status = pr__publisher_init(&self->publisher, &self->settings, err);
    if (status != PR_OK) {
        settings_done(&self->settings);
        pr__free(self);
        return status;
    }
    self->base.ops = &amqp_ops;
    self->base.name = self->settings.name;
    self->base.observer = opt->observer;
    self->base.clock = opt->clock ? opt->clock : pr_clock_system();
    self->base.window = self->settings.window;
    *ret_transport = &self->base;
    return PR_OK;
}

pr_status pr_amqp_transport_new(const char *uris, const pr_amqp_options *opt,
                                pr_transport **ret_transport, pr_error *err)
{
    static const pr_amqp_options defaults = PR_AMQP_OPTIONS(.flags = 0);
    AUTO(pr__amqp_uris) parsed = NULL;
    if (pr__text_empty(uris) || !ret_transport)
        return pr__fail(err, PR_E_INVALID, ORIGIN, "uris or ret_transport is NULL");
    if (!opt)
        opt = &defaults;
    TRY(pr__sized_check(opt, sizeof(*opt), "pr_amqp_options", ORIGIN, err));
    TRY(pr__amqp_uris_parse(uris, &parsed, err));
    return make(parsed, opt, ret_transport, err);
}

/* What was set once is read, nothing that connections change: its owner may be at work. */
static pr_status amqp_clone(pr_transport *transport, pr_transport **ret_transport, pr_error *err)
{
    const pr__amqp_settings *settings = &self_of(transport)->settings;
    const pr_amqp_options opt =
        PR_AMQP_OPTIONS(.window = settings->window, .flags = settings->flags,
                        .queue_kind =
                            settings->quorum ? PR_AMQP_QUEUE_QUORUM : PR_AMQP_QUEUE_CLASSIC,
                        .name = settings->name, .connection_name = settings->connection_name,
                        .prefix = settings->prefix, .observer = settings->observer,
                        .clock = transport->clock,
                        .bytes_in_flight_max = (int64_t)settings->bytes_in_flight_max,
                        .body_size_max = (int64_t)settings->body_size_max,
                        .publish_deadline_ms = settings->publish_deadline_ms,
                        .reconnect_initial_ms = settings->reconnect_initial_ms,
                        .reconnect_max_ms = settings->reconnect_max_ms,
                        .close_timeout_ms = settings->close_timeout_ms);
    return make(settings->uris, &opt, ret_transport, err);
}

pr_status pr_amqp_stats_get(pr_transport *transport, pr_amqp_stats *ret_stats, pr_error *err)
{
    if (!transport || transport->ops != &amqp_ops)
        return pr__fail(err, PR_E_INVALID, ORIGIN, "it is no RabbitMQ transport");
    TRY(pr__sized_check(ret_stats, sizeof(*ret_stats), "pr_amqp_stats", ORIGIN, err));
    const pr__amqp_counters *counters = &self_of(transport)->settings.counters;
    *ret_stats = (pr_amqp_stats){.size = ret_stats->size,
                                 .connections = atomic_load(&counters->connections),
                                 .connects = atomic_load(&counters->connects),
                                 .failures = atomic_load(&counters->failures),
                                 .channel_closes = atomic_load(&counters->channel_closes),
                                 .blocks = atomic_load(&counters->blocks),
                                 .confirmed = atomic_load(&counters->confirmed),
                                 .returned = atomic_load(&counters->returned),
                                 .refused = atomic_load(&counters->refused),
                                 .lost = atomic_load(&counters->lost),
                                 .deadlines = atomic_load(&counters->deadlines),
                                 .stale_tags = atomic_load(&counters->stale_tags),
                                 .dead_letters = atomic_load(&counters->dead_letters),
                                 .cancels = atomic_load(&counters->cancels)};
    return PR_OK;
}
