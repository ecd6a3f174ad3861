/*
 * A bus opened in one call, and waiting until it has nothing left to do: follow-ups over several
 * endpoints, retries, what is dead or delayed, a handler that hangs, a bus that is stopped. The
 * waiting runs on the memory transport and on the database transport of the store itself.
 */
#include "bus/world.h"

#include "base/fault.h"
#include "base/time.h"

#define TYPE_STEP  "urn:message:shop:step"
#define TYPE_OTHER "urn:message:shop:other-step"
#define HOUR_US    (3600LL * 1000000)

typedef struct stand {
    world *w;
    pr_transport *memory;
    pr_bus *bus;
    atomic_int seen, failures;
    int fail_first; /* so many tries fail */
    int64_t retry_ms;
    atomic_bool release; /* what hangs goes on */
    bool told;           /* to a thread of the case: what it is to hear */
} stand;

static const char *const schemes[] = {"memory", "database"};

static void stop(void *of)
{
    pr_bus_stop(((stand *)of)->bus);
}

static void close_all(void *of)
{
    stand *s = of;
    s->bus = pr_bus_free(s->bus);
    s->memory = pr_transport_free(s->memory);
}

/* Static in its case: the teardown closes it when the case fails. */
static void stand_begin(stand *s, world *w)
{
    *s = (stand){.w = w};
    world_owns(w, &(world_end){stop, close_all, s});
}

static void stand_open(stand *s, world *w, const char *scheme)
{
    pr_error err = PR_ERROR_INIT;
    stand_begin(s, w);
    pr_bus_options opt = PR_BUS_OPTIONS(.observer = &w->observer);
    if (strcmp(scheme, "database") == 0) {
        check_ok(pr_bus_open(w->provider->opener, w->address, &opt, &s->bus, &err), &err, "open");
        return;
    }
    opt.store = w->store;
    check_ok(pr_memory_transport_new(w->broker, NULL, &s->memory, &err), &err, "memory");
    check_ok(pr_bus_new(&opt, &s->bus, &err), &err, "bus");
    check_ok(pr_bus_add_transport(s->bus, s->memory, &err), &err, "transport");
}

static void stand_close(stand *s)
{
    close_all(s);
    world_lets_go(s->w, s);
}

static void on(stand *s, const char *id, const char *type, pr_handler handler)
{
    pr_error err = PR_ERROR_INIT;
    check_ok(pr_bus_on(s->bus, id, type, handler, s, &err), &err, id);
}

static void start(stand *s)
{
    pr_error err = PR_ERROR_INIT;
    check_ok(pr_bus_start(s->bus, &err), &err, "start");
}

static pr_message step_message(const char *type, const char *body)
{
    return (pr_message)PR_MESSAGE(.type = type, .body = body, .body_size_bytes = strlen(body));
}

static void publish(stand *s, const char *type, const char *body)
{
    pr_error err = PR_ERROR_INIT;
    pr_message message = step_message(type, body);
    check_ok(pr_bus_publish(s->bus, &message, NULL, &err), &err, "publish");
}

static void idle(stand *s, const char *label)
{
    pr_error err = PR_ERROR_INIT;
    check_ok(pr_bus_wait_idle(s->bus, PATIENCE_MS, &err), &err, label);
}

static void not_idle(stand *s, int64_t timeout_ms, const char *text, const char *label)
{
    pr_error err = PR_ERROR_INIT;
    check_error(pr_bus_wait_idle(s->bus, timeout_ms, &err), &err, PR_E_BUSY, text, label);
    assert_int_equal(err.retry, PR_RETRY_SAME);
}

/* Until that is what is open, and nothing else before it. */
static void not_idle_in_the_end(stand *s, const char *text, const char *label)
{
    int64_t until_us = pr__monotonic_us() + PATIENCE_US;
    pr_error err = PR_ERROR_INIT;
    do {
        pr_error_clear(&err);
    } while (pr_bus_wait_idle(s->bus, 20, &err) == PR_E_BUSY && !strstr(err.message, text) &&
             pr__monotonic_us() < until_us);
    check_error(err.status, &err, PR_E_BUSY, text, label);
}

/* ---- opening ---- */

static pr_status refuse(const char *where, pr_store **ret_store, pr_error *err)
{
    (void)ret_store;
    return pr_error_set(err, PR_E_BACKEND, PR_RETRY_RECONNECT, "test", "nobody at '%s'", where);
}

static void opening_badly_leaves_nothing(void **state)
{
    world *w = *state;
    const pr_bus_options with_store = PR_BUS_OPTIONS(.store = w->store);
    const pr_bus_options hasty = PR_BUS_OPTIONS(.reply_expiry_ms = 1);
    pr_bus_options sizeless = PR_BUS_OPTIONS(.store = NULL);
    sizeless.size = 0;
    const struct {
        const char *label;
        pr_store_opener opener;
        const pr_bus_options *opt;
        pr_status wanted;
        const char *text;
    } cases[] = {
        {"no opener", NULL, NULL, PR_E_INVALID, "open_store"},
        {"a store in the options", w->provider->opener, &with_store, PR_E_INVALID, "pr_bus_new"},
        {"options without a size", w->provider->opener, &sizeless, PR_E_INVALID, "pr_bus_options"},
        {"options that a bus refuses", w->provider->opener, &hasty, PR_E_INVALID, "reply_expiry"},
        {"a store that cannot be opened", refuse, NULL, PR_E_BACKEND, "nobody at"},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        pr_error err = PR_ERROR_INIT;
        pr_bus *bus = NULL;
        pr_status status = pr_bus_open(cases[i].opener, w->address, cases[i].opt, &bus, &err);
        check_error(status, &err, cases[i].wanted, cases[i].text, cases[i].label);
        CHECK_CASE(bus == NULL, cases[i].label);
    }
    pr_error err = PR_ERROR_INIT;
    check_error(pr_bus_open(w->provider->opener, w->address, NULL, NULL, &err), &err, PR_E_INVALID,
                "ret_bus", "no result");
    assert_null(pr_bus_store(NULL));
}

/* One call is enough to publish, also through a unit of the bus's own store. */
static pr_handled count_one(void *user, pr_scope *scope)
{
    (void)scope;
    atomic_fetch_add(&((stand *)user)->seen, 1);
    return PR_HANDLED_OK;
}

static void an_opened_bus_owns_its_store(void **state)
{
    static stand s;
    pr_error err = PR_ERROR_INIT;
    pr_unit *unit = NULL;
    stand_open(&s, *state, "database");
    on(&s, "counter", TYPE_STEP, count_one);
    start(&s);
    publish(&s, TYPE_STEP, "{}");
    pr_message message = step_message(TYPE_STEP, "{}");
    assert_non_null(pr_bus_store(s.bus));
    check_ok(pr_unit_begin(pr_bus_store(s.bus), &unit, &err), &err, "begin");
    check_ok(pr_unit_enqueue(unit, &message, NULL, &err), &err,
             "enqueue, to nowhere in particular");
    check_ok(pr_unit_commit(unit, NULL, &err), &err, "commit");
    pr_unit_free(unit);
    idle(&s, "both");
    assert_int_equal(atomic_load(&s.seen), 2);
    stand_close(&s);
}

/* ---- waiting ---- */

static void waiting_badly_is_refused(void **state)
{
    static stand s;
    pr_error err = PR_ERROR_INIT;
    check_error(pr_bus_wait_idle(NULL, 0, &err), &err, PR_E_INVALID, "NULL", "no bus");
    stand_open(&s, *state, "database");
    pr_error_clear(&err);
    check_error(pr_bus_wait_idle(s.bus, -1, &err), &err, PR_E_INVALID, "timeout_ms is -1", "-1");
    pr_error_clear(&err);
    check_error(pr_bus_wait_idle(s.bus, INT64_MAX, &err), &err, PR_E_INVALID, "timeout_ms", "max");
    pr_error_clear(&err);
    check_error(pr_bus_wait_idle(s.bus, 0, &err), &err, PR_E_STATE, "not started", "new");
    start(&s);
    idle(&s, "nothing was published");
    pr_bus_stop(s.bus);
    check_error(pr_bus_wait_idle(s.bus, 0, &err), &err, PR_E_STATE, "not started", "stopped");
    stand_close(&s);
}

/* Each message is passed on to the other endpoint until its number is 0. */
static pr_handled pass_on(void *user, pr_scope *scope)
{
    const pr_message *got = pr_scope_message(scope);
    char body[] = "0";
    body[0] = *(const char *)got->body;
    atomic_fetch_add(&((stand *)user)->seen, 1);
    if (body[0] == '0')
        return PR_HANDLED_OK;
    body[0]--;
    pr_message next =
        step_message(strcmp(got->type, TYPE_STEP) == 0 ? TYPE_OTHER : TYPE_STEP, body);
    return pr_scope_publish(scope, &next, NULL, NULL) == PR_OK ? PR_HANDLED_OK : PR_HANDLED_RETRY;
}

static void it_waits_for_follow_ups_of_follow_ups(void **state)
{
    for (size_t n = 0; n < COUNT_OF(schemes); n++) {
        static stand s;
        int wanted = 0;
        stand_open(&s, *state, schemes[n]);
        on(&s, "one", TYPE_STEP, pass_on);
        on(&s, "other", TYPE_OTHER, pass_on);
        start(&s);
        for (int round = 0; round < 6; round++) {
            publish(&s, TYPE_STEP, "4");
            publish(&s, TYPE_OTHER, "2");
            wanted += 5 + 3;
            idle(&s, schemes[n]);
            if (atomic_load(&s.seen) != wanted)
                fail_msg("%s, round %d: idle after %d of %d", schemes[n], round,
                         atomic_load(&s.seen), wanted);
        }
        stand_close(&s);
    }
}

#ifdef PR_FAULT_POINTS
static pr_handled fan_out(void *user, pr_scope *scope)
{
    pr_message other = step_message(TYPE_OTHER, "0");
    for (int i = 0; i < 4; i++) {
        if (pr_scope_publish(scope, &other, NULL, NULL) != PR_OK)
            return PR_HANDLED_RETRY;
    }
    return count_one(user, scope);
}

static void *wait_for_all(void *user)
{
    stand *s = user;
    s->told = pr_bus_wait_idle(s->bus, PATIENCE_MS, NULL) == PR_OK && atomic_load(&s->seen) == 5;
    return NULL;
}
#endif

/* The outbox is seen empty, then a handler fills it, and the queues are seen empty: not idle. The
   relay is slow, so that its messages stay where nobody looks any more. */
static void a_handler_between_two_looks_is_noticed(void **state)
{
#ifdef PR_FAULT_POINTS
    static stand s;
    world *w = *state;
    pr_error err = PR_ERROR_INIT;
    const pr_relay_options slow = PR_RELAY_OPTIONS(.messages_per_second = 5);
    const pr_bus_options opt = PR_BUS_OPTIONS(.store = w->store, .relay = &slow);
    stand_begin(&s, w);
    check_ok(pr_memory_transport_new(w->broker, NULL, &s.memory, &err), &err, "memory");
    check_ok(pr_bus_new(&opt, &s.bus, &err), &err, "bus");
    check_ok(pr_bus_add_transport(s.bus, s.memory, &err), &err, "transport");
    on(&s, "fan", TYPE_STEP, fan_out);
    on(&s, "leaf", TYPE_OTHER, count_one);
    start(&s);
    pr_endpoint *fan = pr_bus_endpoint(s.bus, "fan");
    pr_endpoint_pause(fan);
    publish(&s, TYPE_STEP, "{}");
    pr__fault_reset("bus.after_look_at_outbox:1:delay:300");
    world_thread(w, wait_for_all, &s);
    pr__sleep_us(50000); /* so that the first look has begun; later, nothing would be shown */
    pr_endpoint_resume(fan);
    world_join(w);
    pr__fault_reset(NULL);
    assert_true(s.told);
    stand_close(&s);
#else
    (void)state;
    skip();
#endif
}

static pr_handled fail_at_first(void *user, pr_scope *scope)
{
    stand *s = user;
    if (atomic_fetch_add(&s->failures, 1) >= s->fail_first)
        return count_one(user, scope);
    pr_scope_fail(scope, "not yet", s->retry_ms);
    return PR_HANDLED_RETRY;
}

static void it_waits_for_retries(void **state)
{
    for (size_t n = 0; n < COUNT_OF(schemes); n++) {
        static stand s;
        char named[64];
        stand_open(&s, *state, schemes[n]);
        s.fail_first = 2;
        s.retry_ms = 100;
        on(&s, schemes[n], TYPE_STEP, fail_at_first);
        start(&s);
        publish(&s, TYPE_STEP, "{}");
        idle(&s, schemes[n]);
        assert_int_equal(atomic_load(&s.seen), 1);
        /* a retry that is far away is open, and named */
        atomic_store(&s.failures, 0);
        s.retry_ms = 3600000;
        publish(&s, TYPE_STEP, "{}");
        (void)snprintf(named, sizeof named, "ms: %s: 1 or more to try again", schemes[n]);
        not_idle_in_the_end(&s, named, schemes[n]);
        stand_close(&s);
    }
}

static pr_handled refuse_it(void *user, pr_scope *scope)
{
    atomic_fetch_add(&((stand *)user)->seen, 1);
    pr_scope_fail(scope, "never", -1);
    return PR_HANDLED_PERMANENT;
}

static void the_dead_and_the_delayed_do_not_count(void **state)
{
    for (size_t n = 0; n < COUNT_OF(schemes); n++) {
        static stand s;
        pr_error err = PR_ERROR_INIT;
        pr_unit *unit = NULL;
        stand_open(&s, *state, schemes[n]);
        on(&s, "refuser", TYPE_STEP, refuse_it);
        start(&s);
        publish(&s, TYPE_STEP, "{}");
        pr_message later = step_message(TYPE_STEP, "{}");
        later.deliver_at_us = pr__wall_us() + HOUR_US;
        check_ok(pr_unit_begin(pr_bus_store(s.bus), &unit, &err), &err, "begin");
        check_ok(pr_bus_enqueue(s.bus, unit, NULL, &later, NULL, &err), &err, "enqueue");
        later.deliver_at_us = pr__wall_us() + 50000; /* due while it is waited, or just before */
        check_ok(pr_bus_enqueue(s.bus, unit, NULL, &later, NULL, &err), &err, "enqueue");
        check_ok(pr_unit_commit(unit, NULL, &err), &err, "commit");
        pr_unit_free(unit);
        while (pr__wall_us() < later.deliver_at_us + 2000)
            pr__sleep_us(1000);
        idle(&s, schemes[n]);
        assert_int_equal(atomic_load(&s.seen), 2);
        stand_close(&s);
    }
}

static pr_handled hang(void *user, pr_scope *scope)
{
    stand *s = user;
    while (!atomic_load(&s->release) && !pr_scope_cancelled(scope) && !atomic_load(&s->w->over))
        pr__sleep_us(1000);
    return count_one(user, scope);
}

static void what_is_in_hand_is_named(void **state)
{
    for (size_t n = 0; n < COUNT_OF(schemes); n++) {
        static stand s;
        stand_open(&s, *state, schemes[n]);
        on(&s, "slow", TYPE_STEP, hang);
        on(&s, "quick", TYPE_OTHER, count_one);
        start(&s);
        publish(&s, TYPE_STEP, "{}");
        publish(&s, TYPE_OTHER, "{}");
        not_idle(&s, 0, "slow: ", schemes[n]);
        not_idle(&s, 50, "within 50 ms", schemes[n]);
        atomic_store(&s.release, true);
        idle(&s, schemes[n]);
        assert_int_equal(atomic_load(&s.seen), 2);
        stand_close(&s);
    }
}

static void *wait_in_a_thread(void *user)
{
    stand *s = user;
    pr_error err = PR_ERROR_INIT;
    pr_status status = pr_bus_wait_idle(s->bus, PATIENCE_MS, &err);
    s->told = status == PR_E_CANCELLED && strstr(err.message, "stopped");
    return NULL;
}

static void who_waits_is_told_that_the_bus_stops(void **state)
{
    static stand s;
    stand_open(&s, *state, "memory");
    on(&s, "slow", TYPE_STEP, hang);
    start(&s);
    publish(&s, TYPE_STEP, "{}");
    atomic_store(&s.seen, 0);
    world_thread(s.w, wait_in_a_thread, &s);
    not_idle(&s, 100, "slow", "it hangs"); /* the other one waits by now, or is refused */
    atomic_store(&s.release, true);
    pr_bus_stop(s.bus);
    world_join(s.w);
    /* it may have seen that all was done just before the stop */
    assert_true(s.told || atomic_load(&s.seen) == 1);
    stand_close(&s);
}

static void *ask_in_a_thread(void *user)
{
    stand *s = user;
    pr_reply *reply = NULL;
    pr_message question = step_message(TYPE_STEP, "{}");
    const pr_request_options opt = PR_REQUEST_OPTIONS(.timeout_ms = 3 * PATIENCE_MS);
    (void)!pr_bus_request(s->bus, "silent", &question, &opt, &reply, NULL);
    pr_reply_free(reply);
    return NULL;
}

static void a_request_without_an_answer_is_open(void **state)
{
    static stand s;
    stand_open(&s, *state, "database");
    on(&s, "silent", TYPE_STEP, count_one);
    start(&s);
    world_thread(s.w, ask_in_a_thread, &s);
    int64_t until_us = pr__monotonic_us() + PATIENCE_US;
    while (atomic_load(&s.seen) == 0 && pr__monotonic_us() < until_us)
        pr__sleep_us(1000);
    not_idle_in_the_end(&s, "ms: requests: 1 without an answer", "handled, and not answered");
    pr_bus_stop(s.bus);
    world_join(s.w);
    stand_close(&s);
}

size_t idle_suite(const struct CMUnitTest **ret_tests)
{
    static const struct CMUnitTest tests[] = {
        CASE(opening_badly_leaves_nothing),
        CASE(an_opened_bus_owns_its_store),
        CASE(waiting_badly_is_refused),
        CASE(it_waits_for_follow_ups_of_follow_ups),
        CASE(a_handler_between_two_looks_is_noticed),
        CASE(it_waits_for_retries),
        CASE(the_dead_and_the_delayed_do_not_count),
        CASE(what_is_in_hand_is_named),
        CASE(who_waits_is_told_that_the_bus_stops),
        CASE(a_request_without_an_answer_is_open),
    };
    *ret_tests = tests;
    return COUNT_OF(tests);
}
