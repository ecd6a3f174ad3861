/*
 * The bus's life: what belongs to it, and its end.
 *
 * Keeps: every thread has a store and transports of its own; what was started is stopped before
 * anything that it uses is freed.
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
    pthread_mutex_init(&bus->relay_mutex, NULL);
    pr__cond_init(&bus->answered);
    pr__cond_init(&bus->life_changed);
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

static pr_status check_open(pr_bus *bus, pr_error *err)
{
    if (!bus)
        return pr__fail(err, PR_E_INVALID, ORIGIN, "the bus is NULL");
    return pr__bus_check_stopped(bus, err);
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
        return pr__fail(
            err, PR_E_CONFLICT, ORIGIN,
            "there is an endpoint '%s' already: it has one handler, for all of its types", opt->id);
    pr_endpoint_options own = inherit(bus, opt);
    pr__bus_endpoint *at = &bus->endpoints[bus->endpoint_count];
    pr_status status = pr_store_clone(bus->opt.store, &at->store, err);
    if (status == PR_OK)
        status = pr__bus_transport_clone(on, &at->transport, err);
    if (status == PR_OK)
        status = pr_endpoint_new(at->store, at->transport, &own, &at->endpoint, err);
    if (status != PR_OK) {
        endpoint_done(at);
        return status;
    }
    at->store->doorbell = pr__bus_ring;
    at->store->doorbell_user = bus;
    bus->endpoint_count++;
    return PR_OK;
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

/* ---- the end ---- */

pr_bus *pr_bus_free(pr_bus *bus)
{
    if (!bus)
        return NULL;
    pr_bus_stop(bus);
    if (pr__bus_in_handler(bus))
        return bus; /* its thread would be waited for, and is this one */
    for (uint32_t i = 0; i < bus->endpoint_count; i++)
        endpoint_done(&bus->endpoints[i]);
    for (uint32_t i = 0; i < bus->transport_count; i++)
        pr__bus_transport_done(&bus->transports[i]);
    pthread_cond_destroy(&bus->life_changed);
    pthread_cond_destroy(&bus->answered);
    pthread_mutex_destroy(&bus->relay_mutex);
    pthread_mutex_destroy(&bus->life_mutex);
    pthread_mutex_destroy(&bus->request_mutex);
    pr_transport_free(bus->own_transport);
    pr_store_free(bus->own_store);
    pr__free(bus->source);
    pr__free(bus);
    return NULL;
}
