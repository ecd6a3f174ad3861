/*
 * The world of the endpoint and bus suites.
 */
#include "bus/world.h"

#include "base/time.h"

const bus_provider *bus_provider_in_use;
const bus_carrier *bus_carrier_in_use;

static void observe(void *user, const pr_observation *observation)
{
    world *w = user;
    atomic_fetch_add(&w->seen[observation->kind], observation->count);
    if (!observation->text)
        return;
    pthread_mutex_lock(&w->mutex);
    (void)snprintf(w->last_text, sizeof w->last_text, "%s", observation->text);
    pthread_mutex_unlock(&w->mutex);
}

const char *world_last_text(world *w)
{
    static char text[512];
    pthread_mutex_lock(&w->mutex);
    memcpy(text, w->last_text, sizeof text);
    pthread_mutex_unlock(&w->mutex);
    return text;
}

static pr_handled handle(void *user, pr_scope *scope)
{
    world *w = user;
    atomic_fetch_add(&w->calls, 1);
    if (!w->no_effect) {
        pr_unit *unit = pr_scope_unit(scope);
        if (!unit || !w->provider->effect(unit, pr_scope_message(scope)->id))
            return PR_HANDLED_RETRY;
    }
    return w->act(w, scope);
}

int world_setup(void **state)
{
    world *w = calloc(1, sizeof *w);
    pr_error err = PR_ERROR_INIT;
    w->provider = bus_provider_in_use;
    pthread_mutex_init(&w->mutex, NULL);
    w->provider->make(w->address);
    w->store = w->provider->open(w->address);
    w->observer = (pr_observer){(uint32_t)sizeof w->observer, observe, w};
    check_ok(pr_memory_broker_new(&w->broker, &err), &err, "broker");
    check_ok(pr_memory_transport_new(w->broker, NULL, &w->sender, &err), &err, "sender");
    check_ok(pr_memory_transport_new(w->broker, NULL, &w->receiver, &err), &err, "receiver");
    check_ok(pr_transport_open(w->sender, 1000, &err), &err, "open");
    static const char *const types[] = {TYPE_ORDER};
    w->opt = (pr_endpoint_options)PR_ENDPOINT_OPTIONS(.id = CONSUMER, .types = types,
                                                      .type_count = 1, .handler = handle, .user = w,
                                                      .jitter_percent = PR_JITTER_NONE,
                                                      .backoff_initial_ms = 20, .busy_wait_ms = 300,
                                                      .poll_ms = 5, .observer = &w->observer);
    w->act = act_ok;
    *state = w;
    return 0;
}

int world_teardown(void **state)
{
    world *w = *state;
    world_stop(w);
    pr_endpoint_free(w->endpoint);
    pr_transport_free(w->receiver);
    pr_transport_free(w->sender);
    pr_memory_broker_free(w->broker);
    pr_store_free(w->store);
    w->provider->remove(w->address);
    pthread_mutex_destroy(&w->mutex);
    free(w);
    return 0;
}

static void make_endpoint(world *w)
{
    pr_error err = PR_ERROR_INIT;
    w->endpoint = pr_endpoint_free(w->endpoint);
    check_ok(pr_endpoint_new(w->store, w->receiver, &w->opt, &w->endpoint, &err), &err, "endpoint");
    int64_t wait_ms = 0;
    check_ok(pr_endpoint_step(w->endpoint, &wait_ms, &err), &err, "subscribe");
}

void world_start(world *w)
{
    make_endpoint(w);
}

static void *run(void *user)
{
    world *w = user;
    return pr_endpoint_run(w->endpoint, NULL) == PR_OK ? w : NULL;
}

void world_run(world *w)
{
    make_endpoint(w);
    assert_int_equal(pthread_create(&w->thread, NULL, run, w), 0);
    w->running = true;
}

void world_stop(world *w)
{
    void *good = NULL;
    if (!w->running)
        return;
    pr_endpoint_stop(w->endpoint);
    assert_int_equal(pthread_join(w->thread, &good), 0);
    w->running = false;
    assert_ptr_equal(good, w);
}

void world_send_message(world *w, const pr_message *message)
{
    pr_error err = PR_ERROR_INIT;
    pr_submission submission = {.ticket = 1, .message = message};
    pr_submitted outcome;
    size_t count = 0;
    check_ok(pr_transport_submit(w->sender, &submission, 1, &count, &err), &err, "submit");
    assert_int_equal(count, 1);
    check_ok(pr_transport_poll(w->sender, 1000, &outcome, 1, &count, &err), &err, "poll");
    if (count != 1 || outcome.outcome != PR_SUBMIT_CONFIRMED)
        fail_msg("the broker answered %d: %s", (int)outcome.outcome, outcome.reason);
}

void world_send(world *w, const char *id, const char *key, const char *body)
{
    pr_message message =
        PR_MESSAGE(.id = id, .type = TYPE_ORDER, .type_version = 1,
                   .content_type = "application/json", .destination = "memory://topic/" TYPE_ORDER,
                   .key = key, .body = body, .body_size_bytes = strlen(body),
                   .occurred_at_us = 1767225600000000);
    world_send_message(w, &message);
}

pr_endpoint_snapshot world_snapshot(world *w)
{
    pr_endpoint_snapshot snapshot = {.size = (uint32_t)sizeof snapshot};
    assert_int_equal(pr_endpoint_snapshot_get(w->endpoint, &snapshot, NULL), PR_OK);
    return snapshot;
}

static void pause_or_step(world *w)
{
    int64_t wait_ms = 0;
    if (!w->running)
        (void)!pr_endpoint_step(w->endpoint, &wait_ms, NULL);
    if (w->running || wait_ms > 0 || !w->endpoint)
        pr__sleep_us(1000);
}

void world_until_at(world *w, const char *name, size_t offset, uint64_t wanted)
{
    int64_t deadline_us = pr__monotonic_us() + 20000000;
    uint64_t value = 0;
    for (;;) {
        pr_endpoint_snapshot snapshot = world_snapshot(w);
        memcpy(&value, (const char *)&snapshot + offset, sizeof value);
        if (value >= wanted || pr__monotonic_us() >= deadline_us)
            break;
        pause_or_step(w);
    }
    if (value != wanted)
        fail_msg("%s is %llu, wanted %llu; last told: %s", name, (unsigned long long)value,
                 (unsigned long long)wanted, world_last_text(w));
}

void world_until_number(world *w, const char *sql, int64_t wanted)
{
    int64_t deadline_us = pr__monotonic_us() + 20000000, value = 0;
    while ((value = world_number(w, sql)) != wanted && pr__monotonic_us() < deadline_us) {
        for (int i = 0; i < 10; i++) /* looking takes a connection: not at every step */
            pause_or_step(w);
    }
    if (value != wanted)
        fail_msg("%s: %lld, wanted %lld; last told: %s", sql, (long long)value, (long long)wanted,
                 world_last_text(w));
}

int64_t world_number(world *w, const char *sql)
{
    return w->provider->number(w->address, sql);
}

const char *world_text(world *w, const char *sql)
{
    static char text[1024];
    w->provider->text(w->address, sql, text, sizeof text);
    return text;
}

pr_handled act_ok(world *w, pr_scope *scope)
{
    (void)w;
    (void)scope;
    return PR_HANDLED_OK;
}

pr_handled act_retry(world *w, pr_scope *scope)
{
    (void)w;
    pr_scope_fail(scope, "not yet", -1);
    return PR_HANDLED_RETRY;
}

pr_handled act_permanent(world *w, pr_scope *scope)
{
    (void)w;
    pr_scope_fail(scope, "never", -1);
    return PR_HANDLED_PERMANENT;
}
