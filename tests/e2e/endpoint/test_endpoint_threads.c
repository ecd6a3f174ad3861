/*
 * Several endpoints of one id in threads of their own: copies of one message have one effect, keys
 * stay in order, the counters can be read meanwhile, and stop ends them all.
 */
#include <pthread.h>
#include <signal.h>

#include "base/time.h"
#include "e2e/endpoint/world.h"

#define THREADS  4
#define MESSAGES 120
#define COPIES   3
#define KEYS     10

typedef struct lane {
    world *w;
    pr_store *store;
    pr_transport *transport;
    pr_endpoint *endpoint;
    pthread_t thread;
    pr_status status;
} lane;

static pr_handled handle(void *user, pr_scope *scope)
{
    (void)user;
    return host_unit_try_text(pr_scope_unit(scope), "INSERT INTO effects (id) VALUES ($1)",
                              pr_scope_message(scope)->id)
               ? PR_HANDLED_OK
               : PR_HANDLED_RETRY;
}

static void *run(void *argument)
{
    lane *l = argument;
    l->status = pr_endpoint_run(l->endpoint, NULL);
    return NULL;
}

static void lane_open(lane *l, world *w)
{
    pr_error err = PR_ERROR_INIT;
    l->w = w;
    check_ok(pr_store_clone(w->store, &l->store, &err), &err, "clone");
    check_ok(pr_memory_transport_new(w->broker, NULL, &l->transport, &err), &err, "transport");
    pr_endpoint_options opt = w->opt;
    opt.handler = handle;
    opt.observer = NULL;
    opt.clock = NULL;
    opt.prefetch = 4;
    opt.poll_ms = 5;
    check_ok(pr_endpoint_new(l->store, l->transport, &opt, &l->endpoint, &err), &err, "endpoint");
}

static void lane_close(lane *l)
{
    pr_endpoint_free(l->endpoint);
    pr_transport_free(l->transport);
    pr_store_free(l->store);
}

static uint64_t total(lane *lanes, bool handled)
{
    uint64_t sum = 0;
    for (int i = 0; i < THREADS; i++) {
        pr_endpoint_snapshot s = {.size = (uint32_t)sizeof s};
        assert_int_equal(pr_endpoint_snapshot_get(lanes[i].endpoint, &s, NULL), PR_OK);
        sum += handled ? s.handled : s.duplicate;
    }
    return sum;
}

static void copies_handled_in_parallel_have_one_effect_each(void **state)
{
    world *w = *state;
    static lane lanes[THREADS];
    /* the world's clock is not for several threads */
    w->store = pr_store_free(w->store);
    host_settings settings = {.busy_ms = 200};
    assert_int_equal(host_store_open(w->address, &settings, &w->store, NULL), PR_OK);
    for (int i = 0; i < THREADS; i++)
        lane_open(&lanes[i], w);
    int64_t wait_ms = 0;
    assert_int_equal(pr_endpoint_step(lanes[0].endpoint, &wait_ms, NULL), PR_OK); /* subscribe */
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&lanes[i].thread, NULL, run, &lanes[i]), 0);
    for (int copy = 0; copy < COPIES; copy++) {
        for (int i = 0; i < MESSAGES; i++) {
            char id[24], key[8];
            (void)snprintf(id, sizeof id, "k%d-%04d", i % KEYS, i);
            (void)snprintf(key, sizeof key, "k%d", i % KEYS);
            world_send(w, id, key, "{}");
        }
    }
    int64_t deadline_us = pr__monotonic_us() + 60000000;
    while (total(lanes, true) + total(lanes, false) < MESSAGES * COPIES &&
           pr__monotonic_us() < deadline_us)
        pr__sleep_us(2000);
    pr_error err = PR_ERROR_INIT;
    check_error(pr_endpoint_run(lanes[0].endpoint, &err), &err, PR_E_STATE, "runs already",
                "twice");
    for (int i = 0; i < THREADS; i++)
        pr_endpoint_stop(lanes[i].endpoint);
    for (int i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_join(lanes[i].thread, NULL), 0);
        assert_int_equal(lanes[i].status, PR_OK);
    }
    assert_int_equal(total(lanes, true), MESSAGES);
    assert_int_equal(total(lanes, false), MESSAGES * (COPIES - 1));
    for (int i = 0; i < THREADS; i++)
        lane_close(&lanes[i]);
    assert_int_equal(world_number(w, EFFECTS), MESSAGES);
    assert_int_equal(world_number(w, "SELECT count(DISTINCT id) FROM effects"), MESSAGES);
    assert_int_equal(world_number(w, MARKS), MESSAGES);
    assert_int_equal(world_number(w, PARKED), 0);
    /* ids of a key grow as they were sent */
    assert_int_equal(world_number(w, "SELECT count(*) FROM effects AS a JOIN effects AS b ON "
                                     "b.n > a.n AND substr(b.id, 1, 2) = substr(a.id, 1, 2) AND "
                                     "b.id < a.id"),
                     0);
}

static pr_endpoint *to_stop;

static void on_signal(int number)
{
    (void)number;
    pr_endpoint_stop(to_stop);
}

static void *send_signal(void *argument)
{
    world *w = argument;
    while (!world_snapshot(w).running)
        pr__sleep_us(1000);
    (void)raise(SIGUSR1);
    return NULL;
}

static void stop_may_come_from_a_signal_handler(void **state)
{
    world *w = *state;
    struct sigaction action = {.sa_handler = on_signal}, before;
    world_start(w);
    to_stop = w->endpoint;
    assert_int_equal(sigaction(SIGUSR1, &action, &before), 0);
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, send_signal, w), 0);
    assert_int_equal(pr_endpoint_run(w->endpoint, NULL), PR_OK);
    pthread_join(thread, NULL);
    assert_int_equal(sigaction(SIGUSR1, &before, NULL), 0);
    assert_false(world_snapshot(w).running);
}

static int suite(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, world_setup, world_teardown)
    const struct CMUnitTest tests[] = {
        CASE(copies_handled_in_parallel_have_one_effect_each),
        CASE(stop_may_come_from_a_signal_handler),
    };
#undef CASE
    return RUN_TESTS(tests);
}

int main(void)
{
    return world_main(suite);
}
