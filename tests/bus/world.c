/*
 * The world of the endpoint and bus suites.
 */
#include "bus/world.h"

#include <signal.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/time.h"

const bus_provider *bus_provider_in_use;
const bus_carrier *bus_carrier_in_use;
const pr_clock *bus_clock_in_use;

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

/* ---- what a case started ---- */

void world_thread(world *w, void *(*thread)(void *), void *user)
{
    assert_in_range(w->thread_count, 0, WORLD_THREADS_MAX - 1);
    assert_int_equal(pthread_create(&w->threads[w->thread_count], NULL, thread, user), 0);
    w->thread_count++;
}

static bool join_by(pthread_t thread, const struct timespec *until)
{
    return pthread_timedjoin_np(thread, NULL, until) == 0;
}

static struct timespec patience(void)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += PATIENCE_MS / 1000;
    return until;
}

static bool join_all(world *w)
{
    const struct timespec until = patience();
    while (w->thread_count > 0 && join_by(w->threads[w->thread_count - 1], &until))
        w->thread_count--;
    return w->thread_count == 0;
}

void world_join(world *w)
{
    if (!join_all(w))
        fail_msg("%zu threads of the case do not end", w->thread_count);
}

void world_owns(world *w, const world_end *end)
{
    assert_in_range(w->end_count, 0, WORLD_ENDS_MAX - 1);
    w->ends[w->end_count++] = *end;
}

void world_lets_go(world *w, const void *of)
{
    size_t kept = 0;
    for (size_t i = 0; i < w->end_count; i++) {
        if (w->ends[i].of != of)
            w->ends[kept++] = w->ends[i];
    }
    w->end_count = kept;
}

void world_other(world *w, pid_t pid)
{
    size_t i = 0;
    while (i < WORLD_OTHERS_MAX && w->others[i] != 0)
        i++;
    assert_in_range(i, 0, WORLD_OTHERS_MAX - 1);
    w->others[i] = pid;
}

void world_other_ended(world *w, pid_t pid)
{
    for (size_t i = 0; i < WORLD_OTHERS_MAX; i++) {
        if (w->others[i] == pid)
            w->others[i] = 0;
    }
}

/* In a thread of its own, because what a case found to hang may hang here as well. */
static void *end_all(void *user)
{
    world *w = user;
    if (w->running)
        pr_endpoint_stop(w->endpoint);
    for (size_t i = 0; i < w->end_count; i++)
        w->ends[i].stop(w->ends[i].of);
    bool ended = join_all(w);
    if (w->running)
        pthread_join(w->thread, NULL);
    w->running = false;
    for (size_t i = w->end_count; ended && i > 0; i--)
        w->ends[i - 1].close(w->ends[i - 1].of);
    return ended ? w : NULL;
}

/* Whatever still runs would use what is freed next: the program ends, with the true cause above. */
static void end_case(world *w)
{
    pthread_t thread;
    void *ended = NULL;
    struct timespec until = patience();
    until.tv_sec += PATIENCE_MS / 1000; /* those of the case have theirs */
    for (size_t i = 0; i < WORLD_OTHERS_MAX; i++) {
        if (w->others[i] != 0 && kill(w->others[i], SIGKILL) == 0)
            (void)waitpid(w->others[i], NULL, 0);
    }
    atomic_store(&w->over, true);
    if (!w->running && w->end_count == 0 && w->thread_count == 0)
        return;
    if (pthread_create(&thread, NULL, end_all, w) == 0 &&
        pthread_timedjoin_np(thread, &ended, &until) == 0 && ended)
        return;
    (void)printf("Bail out! what a case started does not end\n");
    (void)fflush(stdout);
    _exit(1);
}

int world_teardown(void **state)
{
    world *w = *state;
    end_case(w);
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

world *world_afresh(void **state)
{
    (void)world_teardown(state);
    (void)world_setup(state);
    return *state;
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
    order_send_message(w->sender, message);
}

void world_send(world *w, const char *id, const char *key, const char *body)
{
    order_send(w->sender, id, key, body);
}

pr_endpoint_snapshot world_snapshot(world *w)
{
    return endpoint_snapshot(w->endpoint);
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
    int64_t deadline_us = 0;
    uint64_t value = 0, last = UINT64_MAX;
    for (;;) {
        pr_endpoint_snapshot snapshot = world_snapshot(w);
        memcpy(&value, (const char *)&snapshot + offset, sizeof value);
        if (value != last)
            deadline_us = pr__monotonic_us() + PATIENCE_US;
        last = value;
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
    int64_t deadline_us = 0, value = 0, last = -1;
    while ((value = world_number(w, sql)) != wanted) {
        if (value != last)
            deadline_us = pr__monotonic_us() + PATIENCE_US;
        last = value;
        if (pr__monotonic_us() >= deadline_us)
            break;
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
