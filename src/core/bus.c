/*
 * The bus's life: what belongs to it, start, stop, free.
 *
 * Keeps: every thread has a store and transports of its own; a start that fails leaves nothing
 * running; what was started is stopped before anything that it uses is freed.
 * Must not know: how endpoints and relays work, how requests are answered.
 */
#include "core/bus.h"

#include <string.h>

#include "base/error.h"
#include "base/sized.h"
#include "base/text.h"
#include "base/thread.h"
#include "base/time.h"
#include "core/address.h"
#include "core/endpoint.h"

#define ORIGIN                  "bus"
#define START_WAIT_MS_DEFAULT   5000
#define REPLY_EXPIRY_MS_DEFAULT 60000
#define REPLY_EXPIRY_MS_MIN     100 /* a box is looked at every 50 ms */
#define LOOK_US                 1000

int64_t pr__bus_now_us(const pr_bus *bus)
{
    return bus->opt.clock->monotonic_us(bus->opt.clock->user);
}

/* ---- making ---- */

static pr_status check_options(const pr_bus_options *opt, pr_error *err)
{
    TRY(pr__sized_check(opt, sizeof *opt, "pr_bus_options", ORIGIN, err));
    if (!opt->store)
        return pr__fail(err, PR_E_INVALID, ORIGIN,
                        "a bus needs a store, for its outbox and inboxes");
    if (opt->publish_deadline_ms < 0 || opt->start_wait_ms < 0)
        return pr__fail(err, PR_E_INVALID, ORIGIN,
                        "publish_deadline_ms and start_wait_ms must be milliseconds >= 0");
    if (opt->reply_expiry_ms != 0 && opt->reply_expiry_ms < REPLY_EXPIRY_MS_MIN)
        return pr__fail(err, PR_E_INVALID, ORIGIN, "reply_expiry_ms is %lld, must be 0 or >= %d",
                        (long long)opt->reply_expiry_ms, REPLY_EXPIRY_MS_MIN);
    if (opt->relay)
        TRY(pr__sized_check(opt->relay, sizeof *opt->relay, "pr_relay_options", ORIGIN, err));
    return PR_OK;
}

static void fill_defaults(pr_bus *bus, const pr_bus_options *opt)
{
    bus->opt = *opt;
    bus->opt.clock = opt->clock ? opt->clock : pr_clock_system();
    bus->opt.random = opt->random ? opt->random : pr_random_system();
    if (opt->publish_deadline_ms == 0)
        bus->opt.publish_deadline_ms = PR_PUBLISH_DEADLINE_MS_DEFAULT;
    if (opt->start_wait_ms == 0)
        bus->opt.start_wait_ms = START_WAIT_MS_DEFAULT;
    if (opt->reply_expiry_ms == 0)
        bus->opt.reply_expiry_ms = REPLY_EXPIRY_MS_DEFAULT;
    if (opt->relay)
        bus->relay_options = *opt->relay;
    else
        bus->relay_options =
            (pr_relay_options)PR_RELAY_OPTIONS(.clock = opt->clock, .random = opt->random,
                                               .observer = opt->observer);
    bus->opt.relay = &bus->relay_options;
}

pr_status pr_bus_new(const pr_bus_options *opt, pr_bus **ret_bus, pr_error *err)
{
    if (!ret_bus)
        return pr__fail(err, PR_E_INVALID, ORIGIN, "ret_bus is NULL");
    TRY(check_options(opt, err));
    pr_bus *bus = pr__alloc(sizeof *bus);
    if (!bus)
        return pr__fail_nomem(err, ORIGIN);
    fill_defaults(bus, opt);
    pthread_mutex_init(&bus->request_mutex, NULL);
    pthread_mutex_init(&bus->life_mutex, NULL);
    pr__cond_init(&bus->answered);
    bus->source = pr__strdup(opt->source);
    if (opt->source && !bus->source) {
        pr_bus_free(bus);
        return pr__fail_nomem(err, ORIGIN);
    }
    bus->context = (pr_unit_context){.size = (uint32_t)sizeof bus->context, .source = bus->source};
    *ret_bus = bus;
    return PR_OK;
}

void pr__bus_own(pr_bus *bus, pr_store *take_store, pr_transport *take_transport)
{
    bus->own_store = take_store;
    bus->own_transport = take_transport;
}

pr_store *pr_bus_store(pr_bus *bus)
{
    return bus ? bus->opt.store : NULL;
}

static pr_status check_open(const pr_bus *bus, pr_error *err)
{
    if (!bus)
        return pr__fail(err, PR_E_INVALID, ORIGIN, "the bus is NULL");
    if (atomic_load(&bus->started))
        return pr__fail(err, PR_E_STATE, ORIGIN, "the bus is started: stop it first");
    return PR_OK;
}

pr__bus_transport *pr__bus_transport_named(pr_bus *bus, const char *name)
{
    for (uint32_t i = 0; i < bus->transport_count; i++) {
        if (strcmp(bus->transports[i].given->name, name) == 0)
            return &bus->transports[i];
    }
    return NULL;
}

pr_status pr_bus_add_transport(pr_bus *bus, pr_transport *transport, pr_error *err)
{
    TRY(check_open(bus, err));
    if (!transport || !transport->ops)
        return pr__fail(err, PR_E_INVALID, ORIGIN, "the transport is NULL");
    if (pr__bus_transport_named(bus, transport->name))
        return pr__fail(err, PR_E_CONFLICT, ORIGIN, "there is a transport '%s' already",
                        transport->name);
    if (bus->transport_count == PR__BUS_TRANSPORTS_MAX)
        return pr__fail(err, PR_E_LIMIT, ORIGIN, "a bus has at most %d transports",
                        PR__BUS_TRANSPORTS_MAX);
    TRY(pr__bus_transport_init(&bus->transports[bus->transport_count], bus, transport, err));
    bus->transport_count++;
    return PR_OK;
}

pr_status pr__bus_route(pr_bus *bus, const char *destination, pr__bus_transport **ret_transport,
                        pr_error *err)
{
    pr_address address = {.size = (uint32_t)sizeof address};
    TRY(pr_address_parse(destination, &address, err));
    *ret_transport = pr__bus_transport_named(bus, address.transport);
    if (!*ret_transport)
        return pr__fail(err, PR_E_NOT_FOUND, ORIGIN, "there is no transport '%s' on this bus",
                        address.transport);
    return PR_OK;
}

/* ---- endpoints ---- */

static pr_endpoint_options inherit(const pr_bus *bus, const pr_endpoint_options *given)
{
    pr_endpoint_options opt = *given;
    opt.contracts = opt.contracts ? opt.contracts : bus->opt.contracts;
    opt.clock = opt.clock ? opt.clock : bus->opt.clock;
    opt.random = opt.random ? opt.random : bus->opt.random;
    opt.observer = opt.observer ? opt.observer : bus->opt.observer;
    opt.publish_to = opt.publish_to ? opt.publish_to : bus->transports[0].given->name;
    return opt;
}

static void endpoint_done(pr__bus_endpoint *at)
{
    at->endpoint = pr_endpoint_free(at->endpoint);
    at->transport = pr_transport_free(at->transport);
    at->store = pr_store_free(at->store);
}

pr_status pr_bus_add_endpoint(pr_bus *bus, const pr_endpoint_options *opt, const char *transport,
                              pr_error *err)
{
    TRY(check_open(bus, err));
    TRY(pr__sized_check(opt, sizeof *opt, "pr_endpoint_options", ORIGIN, err));
    if (bus->transport_count == 0)
        return pr__fail(err, PR_E_STATE, ORIGIN, "add a transport before the first endpoint");
    if (bus->endpoint_count == PR__BUS_ENDPOINTS_MAX)
        return pr__fail(err, PR_E_LIMIT, ORIGIN, "a bus has at most %d endpoints",
                        PR__BUS_ENDPOINTS_MAX);
    pr__bus_transport *on =
        transport ? pr__bus_transport_named(bus, transport) : &bus->transports[0];
    if (!on)
        return pr__fail(err, PR_E_NOT_FOUND, ORIGIN, "there is no transport '%s' on this bus",
                        transport);
    if (opt->id && pr_bus_endpoint(bus, opt->id))
        return pr__fail(err, PR_E_CONFLICT, ORIGIN, "there is an endpoint '%s' already", opt->id);
    pr_endpoint_options own = inherit(bus, opt);
    pr__bus_endpoint *at = &bus->endpoints[bus->endpoint_count];
    pr_status status = pr_store_clone(bus->opt.store, &at->store, err);
    if (status == PR_OK)
        status = pr__bus_transport_clone(on, &at->transport, err);
    if (status == PR_OK)
        status = pr_endpoint_new(at->store, at->transport, &own, &at->endpoint, err);
    if (status == PR_OK)
        bus->endpoint_count++;
    else
        endpoint_done(at);
    return status;
}

pr_status pr_bus_on(pr_bus *bus, const char *endpoint, const char *type, pr_handler handler,
                    void *user, pr_error *err)
{
    const char *const types[] = {type};
    pr_endpoint_options opt = PR_ENDPOINT_OPTIONS(.id = endpoint, .types = types, .type_count = 1,
                                                  .handler = handler, .user = user);
    return pr_bus_add_endpoint(bus, &opt, NULL, err);
}

pr_endpoint *pr_bus_endpoint(pr_bus *bus, const char *id)
{
    for (uint32_t i = 0; bus && id && i < bus->endpoint_count; i++) {
        if (strcmp(bus->endpoints[i].endpoint->opt.id, id) == 0)
            return bus->endpoints[i].endpoint;
    }
    return NULL;
}

/* ---- start and stop ---- */

static void *endpoint_run(void *user)
{
    pr__bus_endpoint *at = user;
    pr_status ignored = pr_endpoint_run(at->endpoint, NULL);
    (void)ignored; /* it ends when it is told to, and not before */
    return NULL;
}

static void *relay_run(void *user)
{
    pr_bus *bus = user;
    pr_status ignored = pr_relay_run(bus->relay, NULL);
    (void)ignored;
    return NULL;
}

static void ring(void *user)
{
    pr_relay_wake(user);
}

static void set_doorbells(pr_bus *bus, pr_relay *relay)
{
    void (*bell)(void *user) = relay ? ring : NULL;
    for (uint32_t i = 0; i < bus->endpoint_count; i++) {
        bus->endpoints[i].store->doorbell = bell;
        bus->endpoints[i].store->doorbell_user = relay;
    }
}

static void relay_done(pr_bus *bus)
{
    set_doorbells(bus, NULL);
    pthread_mutex_lock(&bus->life_mutex);
    bus->relay = pr_relay_free(bus->relay);
    pthread_mutex_unlock(&bus->life_mutex);
    for (uint32_t i = 0; i < bus->transport_count; i++)
        bus->relay_transports[i] = pr_transport_free(bus->relay_transports[i]);
    bus->relay_store = pr_store_free(bus->relay_store);
}

static pr_status relay_start(pr_bus *bus, pr_error *err)
{
    TRY(pr_store_clone(bus->opt.store, &bus->relay_store, err));
    for (uint32_t i = 0; i < bus->transport_count; i++)
        TRY(pr__bus_transport_clone(&bus->transports[i], &bus->relay_transports[i], err));
    pr_relay *relay = NULL;
    TRY(pr_relay_new(bus->relay_store, bus->relay_transports, bus->transport_count, bus->opt.relay,
                     &relay, err));
    pthread_mutex_lock(&bus->life_mutex);
    bus->relay = relay;
    pthread_mutex_unlock(&bus->life_mutex);
    set_doorbells(bus, relay);
    bus->relay_running = pr__thread_start(&bus->relay_thread, relay_run, bus);
    return bus->relay_running ? PR_OK : pr__fail_nomem(err, ORIGIN);
}

static pr_status endpoints_start(pr_bus *bus, pr_error *err)
{
    for (uint32_t i = 0; i < bus->endpoint_count; i++) {
        pr__bus_endpoint *at = &bus->endpoints[i];
        at->running = pr__thread_start(&at->thread, endpoint_run, at);
        if (!at->running)
            return pr__fail_nomem(err, ORIGIN);
    }
    return PR_OK;
}

static void wait_subscribed(pr_bus *bus)
{
    int64_t until_us = pr__bus_now_us(bus) + bus->opt.start_wait_ms * 1000;
    for (uint32_t i = 0; i < bus->endpoint_count; i++) {
        while (!atomic_load(&bus->endpoints[i].endpoint->subscribed) &&
               pr__bus_now_us(bus) < until_us)
            pr__sleep_us(LOOK_US);
    }
}

static void stop_threads(pr_bus *bus)
{
    for (uint32_t i = 0; i < bus->endpoint_count; i++) {
        if (bus->endpoints[i].running)
            pr_endpoint_stop(bus->endpoints[i].endpoint);
    }
    for (uint32_t i = 0; i < bus->endpoint_count; i++) {
        if (bus->endpoints[i].running)
            pthread_join(bus->endpoints[i].thread, NULL);
        bus->endpoints[i].running = false;
    }
    if (bus->relay_running) {
        pr_relay_stop(bus->relay);
        pthread_join(bus->relay_thread, NULL);
        bus->relay_running = false;
    }
    relay_done(bus);
}

pr_status pr_bus_start(pr_bus *bus, pr_error *err)
{
    TRY(check_open(bus, err));
    if (bus->transport_count == 0)
        return pr__fail(err, PR_E_STATE, ORIGIN, "the bus has no transport: add one first");
    pr_status status = endpoints_start(bus, err);
    if (status == PR_OK)
        wait_subscribed(bus); /* before the relay: a topic that reaches nobody is a failure */
    if (status == PR_OK && !bus->opt.relay_off)
        status = relay_start(bus, err);
    if (status != PR_OK) {
        stop_threads(bus);
        return status;
    }
    atomic_store(&bus->started, true);
    return PR_OK;
}

void pr_bus_stop(pr_bus *bus)
{
    bool expected = true;
    if (!bus || !atomic_compare_exchange_strong(&bus->started, &expected, false))
        return;
    pr__bus_end_requests(bus); /* a handler may wait for an answer */
    stop_threads(bus);
}

pr_bus *pr_bus_free(pr_bus *bus)
{
    if (!bus)
        return NULL;
    pr_bus_stop(bus);
    for (uint32_t i = 0; i < bus->endpoint_count; i++)
        endpoint_done(&bus->endpoints[i]);
    for (uint32_t i = 0; i < bus->transport_count; i++)
        pr__bus_transport_done(&bus->transports[i]);
    pthread_cond_destroy(&bus->answered);
    pthread_mutex_destroy(&bus->life_mutex);
    pthread_mutex_destroy(&bus->request_mutex);
    pr_transport_free(bus->own_transport);
    pr_store_free(bus->own_store);
    pr__free(bus->source);
    pr__free(bus);
    return NULL;
}
