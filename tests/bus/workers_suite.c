/*
 * An endpoint with several workers: at once, in order of each key, paused, stopped, in trouble.
 */
#include "bus/world.h"

#include "base/fault.h"
#include "base/time.h"

#define ID_A "0198c5f2-7d3e-7a10-8b2c-00000000000a"
#define ID_B "0198c5f2-7d3e-7a10-8b2c-00000000000b"

static void numbers_that_contradict_each_other_are_refused(void **state)
{
    world *w = *state;
    const struct {
        const char *label;
        uint32_t prefetch, concurrency;
        const char *error;
    } cases[] = {
        {"more than prefetch", 4, 5, "concurrency is 5, at most 256 and at most prefetch, 4"},
        {"too many", 4096, 257, "concurrency is 257, at most 256"},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        pr_endpoint *endpoint = NULL;
        pr_error err = PR_ERROR_INIT;
        pr_endpoint_options opt = w->opt;
        opt.prefetch = cases[i].prefetch;
        opt.concurrency = cases[i].concurrency;
        check_error(pr_endpoint_new(w->store, w->receiver, &opt, &endpoint, &err), &err,
                    PR_E_INVALID, cases[i].error, cases[i].label);
    }
    pr_endpoint_snapshot none = {.size = (uint32_t)sizeof none};
    w->opt.prefetch = 2; /* fewer in hand than the usual number of workers: as many as that */
    world_start(w);
    assert_int_equal(pr_endpoint_snapshot_get(w->endpoint, &none, NULL), PR_OK);
    assert_int_equal(none.concurrency, 2);
}

/* Else nothing would be heard of it: it would try to subscribe for ever. */
static void an_endpoint_that_could_never_subscribe_is_refused(void **state)
{
    world *w = *state;
    const struct {
        const char *label;
        const char *id;
        size_t type_count;
        pr_status wanted;
        const char *error;
    } cases[] = {
        {"space", "bill ing", 1, PR_E_CONTENT, "id has a '/', a space or a control"},
        {"slash", "bill/ing", 1, PR_E_CONTENT, "no address could name it"},
        {"line feed", "billing\n", 1, PR_E_CONTENT, "a space or a control character"},
        {"count forgotten", "billing", 0, PR_E_INVALID, "types is given, but type_count is 0"},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        pr_endpoint *endpoint = NULL;
        pr_error err = PR_ERROR_INIT;
        pr_endpoint_options opt = w->opt;
        opt.id = cases[i].id;
        opt.type_count = cases[i].type_count;
        check_error(pr_endpoint_new(w->store, w->receiver, &opt, &endpoint, &err), &err,
                    cases[i].wanted, cases[i].error, cases[i].label);
        assert_null(endpoint);
        assert_null(strchr(err.message, '\n'));
    }
}

static bool wait_flag(atomic_int *flag, int wanted)
{
    int64_t until_us = pr__monotonic_us() + PATIENCE_US;
    while (atomic_load(flag) < wanted && pr__monotonic_us() < until_us)
        pr__sleep_us(500);
    return atomic_load(flag) >= wanted;
}

/* All are inside at once, or none gets out. */
static pr_handled act_meet(world *w, pr_scope *scope)
{
    (void)scope;
    atomic_fetch_add(&w->flag, 1);
    return wait_flag(&w->flag, 4) ? PR_HANDLED_OK : PR_HANDLED_PERMANENT;
}

static void handlers_run_at_once(void **state)
{
    world *w = *state;
    w->opt.inbox = PR_INBOX_LEASED; /* a unit would hold SQLite's only write lock */
    w->no_effect = true;
    w->act = act_meet;
    world_run(w);
    for (int i = 0; i < 4; i++) {
        char id[16];
        (void)snprintf(id, sizeof id, "m-%d", i);
        world_send(w, id, NULL, "{}");
    }
    world_until(w, handled, 4);
    world_stop(w);
    assert_int_equal(world_number(w, MARKS), 4);
    assert_int_equal(world_number(w, PARKED), 0);
}

#define KEYS     8
#define MESSAGES 160

static atomic_int inside[KEYS];
static atomic_int overlaps;

/* Some fail at first, some take their time. */
static pr_handled act_keyed(world *w, pr_scope *scope)
{
    (void)w;
    const char *id = pr_scope_message(scope)->id;
    int key = id[1] - '0', number = (int)strtol(id + 3, NULL, 10);
    if (atomic_fetch_add(&inside[key], 1) != 0)
        atomic_fetch_add(&overlaps, 1);
    if (number % 7 == 0)
        pr__sleep_us(2000);
    atomic_fetch_sub(&inside[key], 1);
    if (number % 13 == 5 && pr_scope_attempts(scope) == 0) {
        pr_scope_fail(scope, "once", 10);
        return PR_HANDLED_RETRY;
    }
    return PR_HANDLED_OK;
}

static void send_keyed(world *w, int copies)
{
    for (int copy = 0; copy < copies; copy++) {
        for (int i = 0; i < MESSAGES; i++) {
            char id[24], key[8];
            (void)snprintf(id, sizeof id, "k%d-%04d", i % KEYS, i);
            (void)snprintf(key, sizeof key, "k%d", i % KEYS);
            world_send(w, id, key, "{}");
        }
    }
}

static void each_key_is_one_after_the_other_and_each_id_once(void **state)
{
    world *w = *state;
    w->act = act_keyed;
    w->opt.prefetch = 64;
    atomic_store(&overlaps, 0);
    world_run(w);
    send_keyed(w, 2);
    world_until(w, handled, MESSAGES);
    world_until_number(w, PARKED, 0);
    world_stop(w);
    assert_int_equal(overlaps, 0);
    assert_int_equal(world_number(w, EFFECTS), MESSAGES);
    assert_int_equal(world_number(w, "SELECT count(DISTINCT id) FROM effects"), MESSAGES);
    assert_int_equal(world_number(w, "SELECT count(*) FROM effects AS a JOIN effects AS b ON "
                                     "b.n > a.n AND substr(b.id, 1, 2) = substr(a.id, 1, 2) AND "
                                     "b.id < a.id"),
                     0);
}

static pr_handled act_poison(world *w, pr_scope *scope)
{
    return pr_scope_message(scope)->id[0] == 'p' ? act_retry(w, scope) : PR_HANDLED_OK;
}

#define HEALTHY 1000
#define POISON  5

static void poison_among_a_thousand_harms_nobody(void **state)
{
    world *w = *state;
    w->act = act_poison;
    w->opt.retry_max = 2;
    w->opt.backoff_initial_ms = 1;
    world_run(w);
    for (int i = 0; i < HEALTHY; i++) {
        char id[16];
        (void)snprintf(id, sizeof id, "h-%d", i);
        world_send(w, id, NULL, "{}");
        if (i % (HEALTHY / POISON) == 7) {
            id[0] = 'p';
            world_send(w, id, NULL, "{}");
        }
    }
    world_until(w, handled, HEALTHY);
    world_until(w, dead, POISON);
    world_stop(w);
    assert_int_equal(world_snapshot(w).failed, 2 * POISON);
    assert_int_equal(world_number(w, EFFECTS), HEALTHY);
    assert_int_equal(world_number(w, PARKED " WHERE state = 'dead' AND attempts = 3"), POISON);
}

static pr_handled act_hang_one(world *w, pr_scope *scope)
{
    int64_t until_us = pr__monotonic_us() + PATIENCE_US;
    if (strcmp(pr_scope_message(scope)->id, ID_A) != 0)
        return PR_HANDLED_OK;
    atomic_fetch_add(&w->flag, 1);
    while (!pr_scope_cancelled(scope) && pr__monotonic_us() < until_us)
        pr__sleep_us(1000);
    return PR_HANDLED_RETRY;
}

static void send_many(world *w, int count)
{
    for (int i = 0; i < count; i++) {
        char id[16];
        (void)snprintf(id, sizeof id, "m-%d", i);
        world_send(w, id, NULL, "{}");
    }
}

/* It goes back uncharged at the stop, whether it has a row or not. */
static void one_that_hangs_holds_up_no_other_and_is_told_to_stop(void **state)
{
    world *w = *state;
    const pr_middleware none[] = {pr_middleware_unit(), pr_middleware_inbox()};
    w->opt.inbox = PR_INBOX_LEASED;
    w->opt.middleware = none;
    w->opt.middleware_count = COUNT_OF(none);
    w->opt.stop_grace_ms = 50;
    w->opt.concurrency = 2;
    w->no_effect = true;
    w->act = act_hang_one;
    world_run(w);
    world_send(w, ID_A, NULL, "{}");
    assert_true(wait_flag(&w->flag, 1));
    send_many(w, 50);
    world_until(w, handled, 50);
    int64_t until_us = pr__monotonic_us() + PATIENCE_US; /* it counts first, then it is free */
    while (world_snapshot(w).busy_workers != 1 && pr__monotonic_us() < until_us)
        pr__sleep_us(1000);
    pr_endpoint_snapshot s = world_snapshot(w);
    assert_int_equal(s.busy_workers, 1);
    assert_int_equal(s.state, PR_ENDPOINT_ACCEPTING);
    world_stop(w);
    s = world_snapshot(w);
    assert_int_equal(s.state, PR_ENDPOINT_STOPPED);
    assert_int_equal(s.cancelled, 1);
    assert_int_equal(s.failed, 0);
    assert_string_equal(world_text(w, "SELECT state || attempts FROM {p}_inbox_parked"), "failed0");
    w->act = act_ok;
    world_start(w);
    world_until(w, handled, 1);
    assert_int_equal(world_number(w, PARKED), 0);
    assert_int_equal(world_number(w, MARKS), 51);
}

static void a_stop_in_a_unit_gives_the_delivery_back(void **state)
{
    world *w = *state;
    w->opt.stop_grace_ms = 50;
    w->act = act_hang_one;
    world_run(w);
    world_send(w, ID_A, NULL, "{}");
    assert_true(wait_flag(&w->flag, 1));
    world_stop(w);
    assert_int_equal(world_snapshot(w).requeued, 1);
    assert_int_equal(world_number(w, PARKED), 0);
    w->act = act_ok;
    world_start(w);
    world_until(w, handled, 1);
    assert_int_equal(world_number(w, EFFECTS), 1);
}

static void an_endpoint_rests_and_goes_on(void **state)
{
    world *w = *state;
    world_run(w);
    world_send(w, ID_A, NULL, "{}");
    world_until(w, handled, 1);
    pr_endpoint_pause(w->endpoint);
    int64_t until_us = pr__monotonic_us() + PATIENCE_US;
    while (!world_snapshot(w).paused && pr__monotonic_us() < until_us)
        pr__sleep_us(1000);
    pr_endpoint_snapshot s = world_snapshot(w);
    assert_int_equal(s.state, PR_ENDPOINT_PAUSED);
    assert_string_equal(s.paused_reason, "paused by its host");
    world_send(w, ID_B, NULL, "{}"); /* it is still subscribed */
    pr__sleep_us(100000);
    assert_int_equal(w->calls, 1);
    pr_endpoint_resume(w->endpoint);
    world_until(w, handled, 2);
    assert_int_equal(world_snapshot(w).state, PR_ENDPOINT_ACCEPTING);
    assert_string_equal(world_snapshot(w).paused_reason, "");
    world_stop(w);
    w->opt.concurrency = 1; /* and one that is stepped */
    world_start(w);
    pr_endpoint_pause(w->endpoint);
    world_send(w, "third", NULL, "{}");
    for (int i = 0; i < 20; i++) {
        int64_t wait_ms = 0;
        assert_int_equal(pr_endpoint_step(w->endpoint, &wait_ms, NULL), PR_OK);
        assert_true(wait_ms > 0);
    }
    assert_int_equal(w->calls, 2);
    pr_endpoint_resume(w->endpoint);
    world_until(w, handled, 1);
}

static pr_handled act_wait(world *w, pr_scope *scope)
{
    (void)scope;
    return wait_flag(&w->flag, 1) ? PR_HANDLED_OK : PR_HANDLED_PERMANENT;
}

static void a_full_house_is_told(void **state)
{
    world *w = *state;
    w->opt.inbox = PR_INBOX_LEASED;
    w->opt.concurrency = 2;
    w->no_effect = true;
    w->act = act_wait;
    world_run(w);
    send_many(w, 2);
    int64_t until_us = pr__monotonic_us() + PATIENCE_US;
    while (world_snapshot(w).state != PR_ENDPOINT_BUSY && pr__monotonic_us() < until_us)
        pr__sleep_us(1000);
    assert_int_equal(world_snapshot(w).state, PR_ENDPOINT_BUSY);
    assert_int_equal(world_snapshot(w).busy_workers, 2);
    atomic_store(&w->flag, 1);
    world_until(w, handled, 2);
    world_stop(w);
}

/* A commit that the database does not answer, nor the parking after it: nothing is charged, the
   endpoint goes on by itself. */
static void trouble_pauses_and_is_over_by_itself(void **state)
{
#ifdef PR_FAULT_POINTS
    world *w = *state;
    w->opt.lease_ms = 300; /* one that came twice has a row, which waits for its lease */
    pr__fault_reset("endpoint.before_commit:2:fail,endpoint.before_commit:9:fail,"
                    "endpoint.before_park_commit:1:fail");
    world_run(w);
    send_many(w, 30);
    world_until(w, handled, 30);
    world_stop(w);
    pr__fault_reset(NULL);
    assert_int_equal(world_snapshot(w).failed, 0);
    assert_int_equal(world_number(w, EFFECTS), 30);
    assert_int_equal(world_number(w, MARKS), 30);
    assert_int_equal(world_number(w, PARKED), 0);
    assert_true(atomic_load(&w->seen[PR_OBSERVE_ENDPOINT_STATE]) >= 4);
#else
    (void)state;
    skip();
#endif
}

/* Retries of one consumer, beside deliveries, and nothing is done twice. */
static pr_handled act_fail_first_time(world *w, pr_scope *scope)
{
    return pr_scope_attempts(scope) == 0 ? act_retry(w, scope) : PR_HANDLED_OK;
}

static void all_that_failed_comes_again(void **state)
{
    world *w = *state;
    w->act = act_fail_first_time;
    world_run(w);
    send_many(w, 60);
    world_until(w, handled, 60);
    world_stop(w);
    assert_int_equal(world_snapshot(w).failed, 60);
    assert_int_equal(world_number(w, EFFECTS), 60);
    assert_int_equal(world_number(w, PARKED), 0);
}

size_t workers_suite(const struct CMUnitTest **ret_tests)
{
    static const struct CMUnitTest tests[] = {
        CASE(numbers_that_contradict_each_other_are_refused),
        CASE(an_endpoint_that_could_never_subscribe_is_refused),
        CASE(handlers_run_at_once),
        CASE(each_key_is_one_after_the_other_and_each_id_once),
        CASE(poison_among_a_thousand_harms_nobody),
        CASE(one_that_hangs_holds_up_no_other_and_is_told_to_stop),
        CASE(a_stop_in_a_unit_gives_the_delivery_back),
        CASE(an_endpoint_rests_and_goes_on),
        CASE(a_full_house_is_told),
        CASE(trouble_pauses_and_is_over_by_itself),
        CASE(all_that_failed_comes_again),
    };
    *ret_tests = tests;
    return COUNT_OF(tests);
}
