/*
 * What hosts do to a bus: hundreds of threads that ask, forks, a clock that jumps, pauses at every
 * bad moment. It answers, loses nothing, handles nothing twice, and leaves nothing behind.
 */
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/thread.h"
#include "base/time.h"
#include "bus/stand.h"

#define ASKERS    200
#define FORKS     6
#define FILES_MAX 256
#define HOUR_US   3600000000LL
#define PAUSED    40 /* messages; more than the prefetch */
#define PREFETCH  32
#define PAUSES    12
#define OF_ORDERS "SELECT count(*) FROM {p}_inbox WHERE consumer = 'orders'"

typedef struct strain {
    stand s;
    atomic_int handled, answered, failed;
    atomic_int files; /* descriptors of ours that a child would inherit */
    atomic_bool slow, pauses, fails;
} strain;

static pr_handled handle(void *user, pr_scope *scope)
{
    strain *t = user;
    const pr_message *m = pr_scope_message(scope);
    if (strcmp(m->type, TYPE_ASK) == 0) {
        pr_message price = PR_MESSAGE(.type = TYPE_PRICE, .body = "{}", .body_size_bytes = 2);
        return pr_scope_reply(scope, &price, NULL, NULL) == PR_OK ? PR_HANDLED_OK
                                                                  : PR_HANDLED_RETRY;
    }
    pr_unit *unit = pr_scope_unit(scope);
    if (!unit || !t->s.w->provider->effect(unit, m->id))
        return PR_HANDLED_RETRY;
    if (atomic_load(&t->pauses)) {
        atomic_store(&t->pauses, false);
        pr_endpoint_pause(pr_bus_endpoint(t->s.bus, "orders"));
    }
    if (atomic_load(&t->slow))
        pr__sleep_us(3000);
    if (atomic_load(&t->fails) && pr_scope_attempts(scope) == 0) {
        pr_scope_fail(scope, "not yet", 50);
        return PR_HANDLED_RETRY;
    }
    atomic_fetch_add(&t->handled, 1);
    return PR_HANDLED_OK;
}

static void strain_make(strain *t, world *w, const char *scheme, uint32_t concurrency)
{
    static const char *const types[] = {TYPE_ORDER};
    pr_error err = PR_ERROR_INIT;
    memset(t, 0, sizeof *t);
    stand_open(&t->s, w, scheme);
    pr_endpoint_options opt = PR_ENDPOINT_OPTIONS(.id = "orders", .types = types, .type_count = 1,
                                                  .handler = handle, .user = t, .poll_ms = 5,
                                                  .concurrency = concurrency, .prefetch = PREFETCH);
    check_ok(pr_bus_add_endpoint(t->s.bus, &opt, NULL, &err), &err, scheme);
    check_ok(pr_bus_on(t->s.bus, "prices", TYPE_ASK, handle, t, &err), &err, scheme);
}

static void strain_open(strain *t, world *w, const char *scheme, uint32_t concurrency)
{
    strain_make(t, w, scheme, concurrency);
    stand_start(&t->s);
}

static void publish(strain *t, int count)
{
    pr_error err = PR_ERROR_INIT;
    pr_message message = PR_MESSAGE(.type = TYPE_ORDER, .body = "{}", .body_size_bytes = 2);
    for (int i = 0; i < count; i++)
        check_ok(pr_bus_publish(t->s.bus, &message, NULL, &err), &err, t->s.scheme);
}

static pr_status ask(strain *t, int64_t timeout_ms, pr_error *err)
{
    pr_reply *reply = NULL;
    pr_message question = PR_MESSAGE(.type = TYPE_ASK, .body = "{}", .body_size_bytes = 2);
    const pr_request_options opt = PR_REQUEST_OPTIONS(.timeout_ms = timeout_ms);
    pr_status status = pr_bus_request(t->s.bus, "prices", &question, &opt, &reply, err);
    pr_reply_free(reply);
    return status;
}

/* Until it has seen that it is to pause, and has nothing in hand. */
static void wait_paused(strain *t)
{
    int64_t until_us = pr__monotonic_us() + PATIENCE_US;
    pr_endpoint_snapshot seen = {.size = (uint32_t)sizeof seen};
    pr_endpoint *orders = pr_bus_endpoint(t->s.bus, "orders");
    do {
        pr__sleep_us(1000);
        assert_int_equal(pr_endpoint_snapshot_get(orders, &seen, NULL), PR_OK);
    } while ((!seen.paused || seen.in_hand > 0) && pr__monotonic_us() < until_us);
    assert_true(seen.paused);
    assert_int_equal(seen.in_hand, 0);
    assert_int_equal(seen.state, PR_ENDPOINT_PAUSED);
}

/* ---- two hundred ask ---- */

static void *ask_once(void *user)
{
    strain *t = user;
    pr_status status = ask(t, PATIENCE_MS, NULL);
    atomic_fetch_add(status == PR_OK ? &t->answered : &t->failed, 1);
    return NULL;
}

static void two_hundred_threads_ask_at_once(void **state)
{
    for (size_t n = 0; scheme_at(n); n++) {
        static strain t;
        strain_open(&t, *state, scheme_at(n), 4);
        for (int i = 0; i < ASKERS; i++)
            world_thread(*state, ask_once, &t);
        world_join(*state); /* each ends: with its answer, or by its time-out */
        assert_int_equal(atomic_load(&t.failed), 0);
        assert_int_equal(atomic_load(&t.answered), ASKERS);
        assert_int_equal(bus_snapshot(&t.s).replies, ASKERS);
        assert_int_equal(bus_snapshot(&t.s).late_replies, 0);
        stand_close(&t.s);
    }
}

/* ---- a host that forks ---- */

static void look_at_files(bool open_before[FILES_MAX], bool first)
{
    for (int fd = 0; fd < FILES_MAX; fd++) {
        int flags = fcntl(fd, F_GETFD);
        if (first)
            open_before[fd] = flags >= 0;
        else if (flags >= 0 && !open_before[fd] && !(flags & FD_CLOEXEC))
            fail_msg("descriptor %d would be inherited by programs", fd);
    }
}

static void fork_one(bool run_program)
{
    int status = -1;
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        if (run_program)
            execl("/bin/true", "true", (char *)NULL);
        _exit(0);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid); /* nobody else has waited for it */
    assert_int_equal(status, 0);
}

/* Its children only run another program, or end: the bus does not notice. */
static void forks_of_the_host_harm_nothing(void **state)
{
    bool open_before[FILES_MAX];
    look_at_files(open_before, true);
    for (size_t n = 0; scheme_at(n); n++) {
        static strain t;
        pr_error err = PR_ERROR_INIT;
        int64_t before = world_number(*state, OF_ORDERS);
        strain_open(&t, *state, scheme_at(n), 4);
        atomic_store(&t.slow, true);
        check_ok(ask(&t, PATIENCE_MS, &err), &err, "before");
        for (int i = 0; i < FORKS; i++) {
            publish(&t, 5);
            fork_one(i % 2 == 0);
        }
        check_ok(ask(&t, PATIENCE_MS, &err), &err, "after");
        wait_seen(&t.handled, 5 * FORKS, scheme_at(n));
        look_at_files(open_before, false);
        stand_close(&t.s);
        assert_int_equal(world_number(*state, OF_ORDERS) - before, 5 * FORKS);
    }
}

/* ---- the clock of the host jumps ---- */

static _Atomic int64_t jumped_us;

static int64_t jumping_wall_us(void *user)
{
    (void)user;
    return pr__wall_us() + atomic_load(&jumped_us);
}

static int64_t steady_us(void *user)
{
    (void)user;
    return pr__monotonic_us();
}

static const pr_clock jumping = {
    .size = (uint32_t)sizeof(pr_clock), .wall_us = jumping_wall_us, .monotonic_us = steady_us};

static int setup_with_clock(void **state)
{
    atomic_store(&jumped_us, 0);
    bus_clock_in_use = &jumping;
    return world_setup(state);
}

static int teardown_with_clock(void **state)
{
    int failed = world_teardown(state);
    bus_clock_in_use = NULL;
    return failed;
}

/* What is published, asked for and tried again goes on after each jump. */
static void a_clock_that_jumps_stops_nothing(void **state)
{
    static const int64_t jumps[] = {HOUR_US, 0, -HOUR_US, 0};
    for (size_t n = 0; scheme_at(n); n++) {
        static strain t;
        pr_error err = PR_ERROR_INIT;
        int64_t effects = world_number(*state, EFFECTS);
        strain_open(&t, *state, scheme_at(n), 4);
        atomic_store(&t.slow, true);
        check_ok(ask(&t, PATIENCE_MS, &err), &err, "before");
        for (size_t i = 0; i < COUNT_OF(jumps); i++) {
            publish(&t, 10); /* in hand when it jumps */
            atomic_store(&jumped_us, jumps[i]);
            atomic_store(&t.fails, true);
            publish(&t, 5);
            pr_status status = ask(&t, 3000, NULL);
            assert_true(status == PR_OK || status == PR_E_BACKEND); /* it may go with its box */
            check_ok(ask(&t, PATIENCE_MS, &err), &err, "after a jump");
            wait_seen(&t.handled, 15 * (int)(i + 1), scheme_at(n));
            atomic_store(&t.fails, false);
        }
        stand_close(&t.s); /* it waits for the last commit */
        assert_int_equal(world_number(*state, EFFECTS) - effects, 15 * COUNT_OF(jumps));
        assert_int_equal(world_number(*state, PARKED), 0);
        atomic_store(&jumped_us, 0);
    }
}

/* ---- pauses ---- */

static void receiver_of(world *w, const char *scheme)
{
    pr_error err = PR_ERROR_INIT;
    w->receiver = pr_transport_free(w->receiver);
    if (bus_carrier_in_use)
        check_ok(bus_carrier_in_use->make(&w->receiver, &err), &err, scheme);
    else if (strcmp(scheme, "memory") == 0)
        check_ok(pr_memory_transport_new(w->broker, NULL, &w->receiver, &err), &err, scheme);
    else
        check_ok(pr_database_transport_new(w->store, NULL, &w->receiver, &err), &err, scheme);
}

/* Another endpoint of its id, as of another process, gets all that the paused one leaves. */
static void a_paused_endpoint_keeps_nothing_from_others(void **state)
{
    world *w = *state;
    int64_t before = 0;
    for (size_t n = 0; scheme_at(n); n++) {
        static strain t;
        strain_open(&t, w, scheme_at(n), 4);
        pr_endpoint_pause(pr_bus_endpoint(t.s.bus, "orders"));
        wait_paused(&t);
        publish(&t, PAUSED);
        pr__sleep_us(100000); /* whatever comes by itself has come */
        receiver_of(w, scheme_at(n));
        w->opt.id = "orders";
        world_run(w);
        world_until_number(w, OF_ORDERS, before + PAUSED);
        assert_int_equal(atomic_load(&t.handled), 0);
        world_stop(w);
        w->endpoint = pr_endpoint_free(w->endpoint);
        pr_endpoint_resume(pr_bus_endpoint(t.s.bus, "orders"));
        publish(&t, 3);
        wait_seen(&t.handled, 3, "resumed");
        before += PAUSED + 3;
        stand_close(&t.s);
    }
}

static void a_handler_may_pause_its_endpoint(void **state)
{
    for (size_t n = 0; scheme_at(n); n++) {
        for (uint32_t concurrency = 1; concurrency <= 4; concurrency += 3) {
            static strain t;
            strain_open(&t, *state, scheme_at(n), concurrency);
            atomic_store(&t.pauses, true);
            publish(&t, 1);
            wait_seen(&t.handled, 1, "the one that pauses"); /* and is done itself */
            wait_paused(&t);
            publish(&t, 5);
            pr__sleep_us(50000);
            assert_int_equal(atomic_load(&t.handled), 1);
            pr_endpoint_resume(pr_bus_endpoint(t.s.bus, "orders"));
            wait_seen(&t.handled, 6, "resumed");
            stand_close(&t.s);
        }
    }
}

/* What is published meanwhile waits for it. */
static void one_paused_from_the_start_has_its_queue(void **state)
{
    for (size_t n = 0; scheme_at(n); n++) {
        for (uint32_t concurrency = 1; concurrency <= 4; concurrency += 3) {
            static strain t;
            world *w = world_afresh(state);
            strain_make(&t, w, scheme_at(n), concurrency);
            pr_endpoint_pause(pr_bus_endpoint(t.s.bus, "orders"));
            stand_start(&t.s);
            wait_paused(&t);
            publish(&t, 3); /* it would be returned: nobody gets it */
            pr_endpoint_resume(pr_bus_endpoint(t.s.bus, "orders"));
            wait_seen(&t.handled, 3, "resumed");
            stand_close(&t.s);
        }
    }
}

/* With deliveries in hand: paused, resumed, stopped at once; freed while it is paused. */
static void pauses_at_any_moment_lose_nothing(void **state)
{
    for (size_t n = 0; scheme_at(n); n++) {
        static strain t;
        pr_error err = PR_ERROR_INIT;
        int64_t before = world_number(*state, OF_ORDERS);
        int64_t effects = world_number(*state, EFFECTS);
        strain_open(&t, *state, scheme_at(n), 4);
        atomic_store(&t.slow, true);
        for (int i = 0; i < PAUSES; i++) {
            pr_endpoint *orders = pr_bus_endpoint(t.s.bus, "orders");
            publish(&t, 8);
            pr_endpoint_pause(orders);
            pr__sleep_us((i % 4) * 3000);
            if (i % 3 != 2)
                pr_endpoint_resume(orders);
            if (i % 2 == 0) {
                pr_bus_stop(t.s.bus);
                check_ok(pr_bus_start(t.s.bus, &err), &err, t.s.scheme);
            }
            pr_endpoint_resume(orders);
        }
        publish(&t, 8);
        pr_endpoint_pause(pr_bus_endpoint(t.s.bus, "orders"));
        t.s.bus = pr_bus_free(t.s.bus); /* the rest is for another one */
        receiver_of(*state, scheme_at(n));
        ((world *)*state)->opt.id = "orders";
        world_run(*state);
        world_until_number(*state, OF_ORDERS, before + 8 * (PAUSES + 1));
        world_stop(*state);
        ((world *)*state)->endpoint = pr_endpoint_free(((world *)*state)->endpoint);
        stand_close(&t.s);
        assert_int_equal(world_number(*state, EFFECTS) - effects, 8 * (PAUSES + 1));
    }
}

size_t strain_suite(const struct CMUnitTest **ret_tests)
{
    static const struct CMUnitTest tests[] = {
        CASE(two_hundred_threads_ask_at_once),
        CASE(forks_of_the_host_harm_nothing),
        cmocka_unit_test_setup_teardown(a_clock_that_jumps_stops_nothing, setup_with_clock,
                                        teardown_with_clock),
        CASE(a_paused_endpoint_keeps_nothing_from_others),
        CASE(a_handler_may_pause_its_endpoint),
        CASE(one_paused_from_the_start_has_its_queue),
        CASE(pauses_at_any_moment_lose_nothing),
    };
    *ret_tests = tests;
    return COUNT_OF(tests);
}
