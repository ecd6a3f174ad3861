/*
 * The world of the endpoint tests.
 */
#include "e2e/endpoint/world.h"

#include <stdlib.h>

#include "base/time.h"
#include "port/store.h"

#define INSERT_EFFECT "INSERT INTO effects (id) VALUES ($1)"
#define EFFECTS_TABLE(kind)                                                                        \
    "CREATE TABLE effects (n INTEGER " kind " PRIMARY KEY, id TEXT NOT NULL)"

static int64_t wall_us(void *user)
{
    return pr__wall_us() + ((world *)user)->clock_offset_us;
}

static int64_t monotonic_us(void *user)
{
    return pr__monotonic_us() + ((world *)user)->clock_offset_us;
}

static void observe(void *user, const pr_observation *observation)
{
    world *w = user;
    w->seen[observation->kind] += observation->count;
    if (observation->text)
        (void)snprintf(w->last_text[observation->kind], sizeof w->last_text[0], "%s",
                       observation->text);
}

void world_run(world *w, const char *sql)
{
    char why[512];
    if (!host_db_try(w->db, sql, why, sizeof why))
        fail_msg("%s: %s", sql, why);
}

void world_lock(world *w)
{
    world_run(w, world_provided.begin);
    if (world_provided.lock)
        world_run(w, world_provided.lock);
}

void world_unlock(world *w)
{
    world_run(w, "ROLLBACK");
}

static pr_handled handle(void *user, pr_scope *scope)
{
    world *w = user;
    const pr_message *message = pr_scope_message(scope);
    if (!host_unit_try_text(pr_scope_unit(scope), INSERT_EFFECT, message->id))
        return PR_HANDLED_RETRY;
    if ((size_t)w->calls < COUNT_OF(w->handled_ids))
        (void)snprintf(w->handled_ids[w->calls], sizeof w->handled_ids[0], "%s", message->id);
    w->calls++;
    return w->act(w, scope);
}

static void open_store(world *w)
{
    pr_error err = PR_ERROR_INIT;
    host_settings settings = {
        .create = true, .busy_ms = 50, .clock = &w->clock, .observer = &w->observer};
    check_ok(host_store_open(w->address, &settings, &w->store, &err), &err, "open");
    assert_string_equal(w->store->ops->name, world_provided.kind); /* really in use */
    check_ok(pr_store_migrate(w->store, NULL, NULL, &err), &err, "migrate");
}

int world_setup(void **state)
{
    world *w = calloc(1, sizeof *w);
    pr_error err = PR_ERROR_INIT;
    world_provided.make(w);
    w->clock = (pr_clock){(uint32_t)sizeof w->clock, wall_us, monotonic_us, w};
    w->observer = (pr_observer){(uint32_t)sizeof w->observer, observe, w};
    open_store(w);
    w->db = host_db_open(w->address);
    world_run(w, host_is_postgres(w->address) ? EFFECTS_TABLE("GENERATED ALWAYS AS IDENTITY")
                                              : EFFECTS_TABLE(""));
    check_ok(pr_memory_broker_new(&w->broker, &err), &err, "broker");
    pr_memory_options memory = {.size = (uint32_t)sizeof memory, .clock = &w->clock};
    check_ok(pr_memory_transport_new(w->broker, &memory, &w->sender, &err), &err, "sender");
    check_ok(pr_memory_transport_new(w->broker, &memory, &w->receiver, &err), &err, "receiver");
    check_ok(pr_transport_open(w->sender, 1000, &err), &err, "open");
    static const char *const types[] = {TYPE_ORDER};
    w->opt = (pr_endpoint_options)PR_ENDPOINT_OPTIONS(.id = CONSUMER, .types = types,
                                                      .type_count = 1, .handler = handle, .user = w,
                                                      .jitter_percent = PR_JITTER_NONE,
                                                      .busy_wait_ms = 200, .poll_ms = 1,
                                                      /* clock and observer are one thread's */
                                                      .concurrency = 1, .clock = &w->clock,
                                                      .observer = &w->observer);
    w->act = act_ok;
    *state = w;
    return 0;
}

int world_teardown(void **state)
{
    world *w = *state;
    pr_endpoint_free(w->endpoint);
    pr_transport_free(w->receiver);
    pr_transport_free(w->sender);
    pr_memory_broker_free(w->broker);
    pr_store_free(w->store);
    host_db_free(w->db);
    world_provided.done(w);
    free(w);
    return 0;
}

int world_main(int (*suite)(void))
{
    return world_provided.run(suite);
}

void world_start(world *w)
{
    pr_error err = PR_ERROR_INIT;
    check_ok(pr_endpoint_new(w->store, w->receiver, &w->opt, &w->endpoint, &err), &err, "endpoint");
    check_ok(world_step(w, &err), &err, "subscribe");
}

void world_restart(world *w)
{
    w->endpoint = pr_endpoint_free(w->endpoint);
    world_start(w);
}

void world_advance(world *w, int64_t ms)
{
    w->clock_offset_us += ms * 1000;
    if (world_provided.pass)
        world_provided.pass(w, ms);
}

void world_send_message(world *w, const pr_message *message)
{
    order_send_message(w->sender, message);
}

void world_send(world *w, const char *id, const char *key, const char *body)
{
    order_send(w->sender, id, key, body);
}

pr_status world_step(world *w, pr_error *err)
{
    int64_t wait_ms = 0;
    pr_status status = pr_endpoint_step(w->endpoint, &wait_ms, err);
    if (wait_ms > 0)
        pr__sleep_us(1000);
    return status;
}

void world_steps(world *w, int count)
{
    for (int i = 0; i < count; i++)
        (void)!world_step(w, NULL);
}

pr_endpoint_snapshot world_snapshot(world *w)
{
    return endpoint_snapshot(w->endpoint);
}

void world_step_until_at(world *w, const char *name, size_t offset, uint64_t wanted)
{
    int64_t deadline_us = pr__monotonic_us() + 10000000;
    uint64_t value = 0;
    while (pr__monotonic_us() < deadline_us) {
        pr_endpoint_snapshot snapshot = world_snapshot(w);
        memcpy(&value, (const char *)&snapshot + offset, sizeof value);
        if (value >= wanted)
            break;
        (void)!world_step(w, NULL);
    }
    if (value != wanted)
        fail_msg("%s is %llu, wanted %llu; parked: %s", name, (unsigned long long)value,
                 (unsigned long long)wanted,
                 world_text(w, "SELECT group_concat(state || ' ' || coalesce(last_error, '-')) "
                               "FROM postroom_inbox_parked"));
}

const char *world_text(world *w, const char *sql)
{
    static char text[1024];
    if (!host_db_ask(w->db, sql, text, sizeof text))
        fail_msg("%s: %s", sql, text);
    return text;
}

int64_t world_number(world *w, const char *sql)
{
    const char *text = world_text(w, sql);
    if (text[0] == '\0')
        fail_msg("%s: no number", sql);
    return strtoll(text, NULL, 10);
}
