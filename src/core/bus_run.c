/*
 * A bus that runs: its threads, start and stop.
 *
 * Keeps: one starts or stops it at a time, and whoever else wants to waits for that; a start that
 * fails leaves nothing running; a handler only asks for the stop, for its own thread is to end.
 * Must not know: how endpoints and relays work, how requests are answered.
 */
#include "base/error.h"
#include "base/thread.h"
#include "base/time.h"
#include "core/bus.h"
#include "core/endpoint.h"

#define ORIGIN  "bus"
#define LOOK_US 1000

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

/* A unit was committed: its follow-ups wait. The relay may not be there yet, or any more. */
void pr__bus_ring(void *user)
{
    pr_bus *bus = user;
    pthread_mutex_lock(&bus->relay_mutex);
    if (bus->relay)
        pr_relay_wake(bus->relay);
    pthread_mutex_unlock(&bus->relay_mutex);
}

static void relay_done(pr_bus *bus)
{
    pthread_mutex_lock(&bus->relay_mutex);
    bus->relay = pr_relay_free(bus->relay);
    pthread_mutex_unlock(&bus->relay_mutex);
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
    pthread_mutex_lock(&bus->relay_mutex);
    bus->relay = relay;
    pthread_mutex_unlock(&bus->relay_mutex);
    bus->relay_running = pr__thread_start(&bus->relay_thread, relay_run, bus);
    return bus->relay_running ? PR_OK : pr__fail_nomem(err, ORIGIN);
}

static pr_status endpoints_start(pr_bus *bus, pr_error *err)
{
    for (uint32_t i = 0; i < bus->endpoint_count; i++) {
        pr__bus_endpoint *at = &bus->endpoints[i];
        atomic_store(&at->endpoint->stopping, false); /* one that ended by itself was told twice */
        at->running = pr__thread_start(&at->thread, endpoint_run, at);
        if (!at->running)
            return pr__fail_nomem(err, ORIGIN);
    }
    return PR_OK;
}

static void wait_subscribed(pr_bus *bus)
{
    int64_t until_us = pr__monotonic_us() + bus->opt.start_wait_ms * 1000;
    for (uint32_t i = 0; i < bus->endpoint_count; i++) {
        while (!atomic_load(&bus->endpoints[i].endpoint->subscribed) &&
               atomic_load(&bus->started) && pr__monotonic_us() < until_us)
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

/* ---- who may do what, when ---- */

bool pr__bus_in_handler(pr_bus *bus)
{
    for (uint32_t i = 0; i < bus->endpoint_count; i++) {
        if (pr__endpoint_on_own_thread(bus->endpoints[i].endpoint))
            return true;
    }
    return false;
}

pr_status pr__bus_check_stopped(pr_bus *bus, pr_error *err)
{
    pthread_mutex_lock(&bus->life_mutex);
    pr__bus_life life = bus->life;
    pthread_mutex_unlock(&bus->life_mutex);
    if (life == PR__BUS_STOPPED)
        return PR_OK;
    return pr__fail(err, PR_E_STATE, ORIGIN, "the bus is started: stop it first");
}

static void set_life(pr_bus *bus, pr__bus_life life)
{
    pthread_mutex_lock(&bus->life_mutex);
    bus->life = life;
    pthread_cond_broadcast(&bus->life_changed);
    pthread_mutex_unlock(&bus->life_mutex);
}

/* From `before` to `after`, once whoever starts or stops it now is done; false: it is in no such
   state then. */
static bool change_life(pr_bus *bus, pr__bus_life before, pr__bus_life after)
{
    pthread_mutex_lock(&bus->life_mutex);
    while (bus->life == PR__BUS_STARTING || bus->life == PR__BUS_STOPPING)
        pthread_cond_wait(&bus->life_changed, &bus->life_mutex);
    bool changed = bus->life == before;
    if (changed)
        bus->life = after;
    pthread_mutex_unlock(&bus->life_mutex);
    return changed;
}

static void stop_all(pr_bus *bus)
{
    atomic_store(&bus->started, false);
    pr__bus_end_requests(bus); /* a handler may wait for an answer */
    stop_threads(bus);
}

/* A handler cannot wait for its own end: all are told, and somebody else waits for them. */
static void ask_to_stop(pr_bus *bus)
{
    atomic_store(&bus->started, false);
    pr__bus_cancel_requests(bus);
    for (uint32_t i = 0; i < bus->endpoint_count; i++)
        pr_endpoint_stop(bus->endpoints[i].endpoint);
}

static pr_status start_all(pr_bus *bus, pr_error *err)
{
    TRY(endpoints_start(bus, err));
    wait_subscribed(bus); /* before the relay: a topic that reaches nobody is a failure */
    return bus->opt.relay_off ? PR_OK : relay_start(bus, err);
}

pr_status pr_bus_start(pr_bus *bus, pr_error *err)
{
    if (!bus)
        return pr__fail(err, PR_E_INVALID, ORIGIN, "the bus is NULL");
    if (bus->transport_count == 0)
        return pr__fail(err, PR_E_STATE, ORIGIN, "the bus has no transport: add one first");
    if (pr__bus_in_handler(bus))
        return pr__fail(err, PR_E_STATE, ORIGIN, "a handler of the bus cannot start it");
    if (!atomic_load(&bus->started))
        pr_bus_stop(bus); /* a handler may have asked for that */
    if (!change_life(bus, PR__BUS_STOPPED, PR__BUS_STARTING))
        return pr__fail(err, PR_E_STATE, ORIGIN, "the bus is started: stop it first");
    atomic_store(&bus->started, true);
    pr_status status = start_all(bus, err);
    if (status != PR_OK)
        stop_all(bus);
    set_life(bus, status == PR_OK ? PR__BUS_STARTED : PR__BUS_STOPPED);
    return status;
}

void pr_bus_stop(pr_bus *bus)
{
    if (!bus)
        return;
    if (pr__bus_in_handler(bus)) {
        ask_to_stop(bus);
        return;
    }
    if (!change_life(bus, PR__BUS_STARTED, PR__BUS_STOPPING))
        return;
    stop_all(bus);
    set_life(bus, PR__BUS_STOPPED);
}
