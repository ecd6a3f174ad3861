/*
 * A bus for the suites.
 */
#include "bus/stand.h"

#include "base/time.h"

static void stop(void *of)
{
    pr_bus_stop(((stand *)of)->bus);
}

static void close_all(void *of)
{
    stand *s = of;
    s->bus = pr_bus_free(s->bus);
    s->memory = pr_transport_free(s->memory);
    s->database = pr_transport_free(s->database);
    s->carrier = pr_transport_free(s->carrier);
}

static void open_with(stand *s, world *w, const char *scheme, bool alone)
{
    pr_error err = PR_ERROR_INIT;
    memset(s, 0, sizeof *s);
    world_owns(w, &(world_end){stop, close_all, s});
    s->w = w;
    s->scheme = scheme;
    check_ok(pr_memory_transport_new(w->broker, NULL, &s->memory, &err), &err, "memory");
    check_ok(pr_database_transport_new(w->store, NULL, &s->database, &err), &err, "database");
    const pr_relay_options relay =
        PR_RELAY_OPTIONS(.backoff_initial_ms = 20, .retry_max = 2, .jitter_percent = PR_JITTER_NONE,
                         .observer = &w->observer, .clock = bus_clock_in_use);
    pr_bus_options opt = PR_BUS_OPTIONS(.store = w->store, .source = "tests", .relay = &relay,
                                        .observer = &w->observer, .clock = bus_clock_in_use);
    check_ok(pr_bus_new(&opt, &s->bus, &err), &err, "bus");
    if (bus_carrier_in_use) {
        bus_carrier_in_use->fresh();
        check_ok(bus_carrier_in_use->make(&s->carrier, &err), &err, "carrier");
    }
    pr_transport *const all[] = {s->carrier, s->memory, s->database};
    for (int turn = 0; turn < 2; turn++) { /* the one of the scheme is the first */
        for (size_t i = 0; i < COUNT_OF(all); i++) {
            bool added = all[i] && (!alone || all[i] == s->carrier);
            if (added && (strcmp(all[i]->name, scheme) == 0) == (turn == 0))
                check_ok(pr_bus_add_transport(s->bus, all[i], &err), &err, all[i]->name);
        }
    }
}

void stand_open(stand *s, world *w, const char *scheme)
{
    open_with(s, w, scheme, false);
}

void stand_open_alone(stand *s, world *w)
{
    open_with(s, w, bus_carrier_in_use->scheme, true);
}

void stand_start(stand *s)
{
    pr_error err = PR_ERROR_INIT;
    check_ok(pr_bus_start(s->bus, &err), &err, "start");
}

void stand_close(stand *s)
{
    close_all(s);
    world_lets_go(s->w, s);
}

pr_bus_snapshot bus_snapshot(stand *s)
{
    pr_bus_snapshot snapshot = {.size = (uint32_t)sizeof snapshot};
    assert_int_equal(pr_bus_snapshot_get(s->bus, &snapshot, NULL), PR_OK);
    return snapshot;
}

void wait_seen(atomic_int *seen, int wanted, const char *label)
{
    int last = atomic_load(seen);
    int64_t until_us = pr__monotonic_us() + PATIENCE_US;
    while (last < wanted && pr__monotonic_us() < until_us) {
        pr__sleep_us(1000);
        if (atomic_load(seen) != last)
            until_us = pr__monotonic_us() + PATIENCE_US;
        last = atomic_load(seen);
    }
    if (atomic_load(seen) != wanted)
        fail_msg("%s: %d, wanted %d", label, atomic_load(seen), wanted);
}

const char *scheme_at(size_t n)
{
    static const char *const usual[] = {"memory", "database"};
    if (bus_carrier_in_use)
        return n == 0 ? bus_carrier_in_use->scheme : NULL;
    return n < COUNT_OF(usual) ? usual[n] : NULL;
}
