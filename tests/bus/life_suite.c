/*
 * A bus is started and stopped by whoever it occurs to: by a handler, by many at once, while others
 * publish and ask, while the transport takes nothing. It never hangs, and leaves nothing behind.
 */
#include <dirent.h>

#include "base/time.h"
#include "bus/stand.h"

#define CYCLES    20
#define WARM      3
#define PAGES_MAX 1024 /* a leak of a connection each time would be more, after some hundred */
#define TEMPORARY "SELECT count(*) FROM {p}_subscription WHERE temporary"
#define STOPPERS  6
#define PUBLISHES 4
#define EACH      100 /* of a publisher: what piles up while a bus is stopped is bounded */
#define BLOCKED   8

typedef struct life {
    stand s;
    atomic_int handled;
    atomic_int freed; /* in a handler: what pr_bus_free gave back */
    atomic_int ended; /* threads that start and stop, and are done */
    atomic_int good, bad;
    atomic_bool over;
} life;

/* The case is over, or it failed. */
static bool is_over(life *l)
{
    return atomic_load(&l->over) || atomic_load(&l->s.w->over);
}

static void life_open(life *l, world *w, const char *scheme, pr_handler handler,
                      uint32_t concurrency)
{
    static const char *const types[] = {TYPE_ORDER};
    pr_error err = PR_ERROR_INIT;
    memset(l, 0, sizeof *l);
    stand_open(&l->s, w, scheme);
    pr_endpoint_options opt =
        PR_ENDPOINT_OPTIONS(.id = "orders", .types = types, .type_count = 1, .handler = handler,
                            .user = l, .concurrency = concurrency, .poll_ms = 5);
    check_ok(pr_bus_add_endpoint(l->s.bus, &opt, NULL, &err), &err, scheme);
    check_ok(pr_bus_on(l->s.bus, "prices", TYPE_ASK, handler, l, &err), &err, scheme);
}

static void publish_one(life *l)
{
    pr_error err = PR_ERROR_INIT;
    pr_message message = PR_MESSAGE(.type = TYPE_ORDER, .body = "{}", .body_size_bytes = 2);
    check_ok(pr_bus_publish(l->s.bus, &message, NULL, &err), &err, l->s.scheme);
}

/* ---- by a handler ---- */

static pr_handled stop_it(void *user, pr_scope *scope)
{
    life *l = user;
    (void)scope;
    if (atomic_load(&l->handled) == 0) {
        pr_bus_stop(l->s.bus);
        if (pr_bus_free(l->s.bus) == l->s.bus)
            atomic_fetch_add(&l->freed, 1);
        if (pr_bus_start(l->s.bus, NULL) == PR_E_STATE)
            atomic_fetch_add(&l->freed, 1);
    }
    atomic_fetch_add(&l->handled, 1);
    return PR_HANDLED_OK;
}

static void a_handler_may_stop_its_bus(void **state)
{
    for (size_t n = 0; scheme_at(n); n++) {
        for (uint32_t concurrency = 1; concurrency <= 4; concurrency += 3) {
            static life l;
            pr_error err = PR_ERROR_INIT;
            life_open(&l, *state, scheme_at(n), stop_it, concurrency);
            stand_start(&l.s);
            publish_one(&l);
            int64_t until_us = pr__monotonic_us() + PATIENCE_US;
            while (bus_snapshot(&l.s).stopped != 2 && pr__monotonic_us() < until_us)
                pr__sleep_us(1000);
            assert_int_equal(bus_snapshot(&l.s).stopped, 2);
            assert_false(bus_snapshot(&l.s).started);
            assert_int_equal(atomic_load(&l.freed), 2);
            if (n % 2 == 0)
                pr_bus_stop(l.s.bus); /* a start does it as well */
            check_ok(pr_bus_start(l.s.bus, &err), &err, scheme_at(n));
            publish_one(&l);
            wait_seen(&l.handled, 2, scheme_at(n));
            stand_close(&l.s);
        }
    }
}

/* ---- by many ---- */

static pr_handled count_it(void *user, pr_scope *scope)
{
    life *l = user;
    pr_message price = PR_MESSAGE(.type = TYPE_PRICE, .body = "{}", .body_size_bytes = 2);
    atomic_fetch_add(&l->handled, 1);
    if (strcmp(pr_scope_message(scope)->type, TYPE_ASK) != 0)
        return PR_HANDLED_OK;
    return pr_scope_reply(scope, &price, NULL, NULL) == PR_OK ? PR_HANDLED_OK : PR_HANDLED_RETRY;
}

static void *start_and_stop(void *user)
{
    life *l = user;
    for (int i = 0; i < 3 && !is_over(l); i++) {
        pr_status status = pr_bus_start(l->s.bus, NULL);
        if (status != PR_OK && status != PR_E_STATE)
            atomic_fetch_add(&l->bad, 1);
        pr_bus_stop(l->s.bus);
    }
    atomic_fetch_add(&l->ended, 1);
    return NULL;
}

static void *publish_and_ask(void *user)
{
    life *l = user;
    pr_message message = PR_MESSAGE(.type = TYPE_ORDER, .body = "{}", .body_size_bytes = 2);
    pr_message question = PR_MESSAGE(.type = TYPE_ASK, .body = "{}", .body_size_bytes = 2);
    const pr_request_options soon = PR_REQUEST_OPTIONS(.timeout_ms = PATIENCE_MS);
    int published = 0;
    do {
        pr_reply *reply = NULL;
        pr_status status = PR_OK;
        if (published++ < EACH) {
            status = pr_bus_publish(l->s.bus, &message, NULL, NULL);
            atomic_fetch_add(status == PR_OK ? &l->good : &l->bad, 1);
        }
        status = pr_bus_request(l->s.bus, "prices", &question, &soon, &reply, NULL);
        if (status != PR_OK && status != PR_E_STATE && status != PR_E_CANCELLED)
            atomic_fetch_add(&l->bad, 1);
        pr_reply_free(reply);
        pr__sleep_us(2000);
    } while (!is_over(l)); /* one at least, however late this thread comes */
    return NULL;
}

/* Whatever was confirmed is handled once, in the end. */
static void many_start_and_stop_while_others_publish_and_ask(void **state)
{
    static const char marks[] = "SELECT count(*) FROM {p}_inbox WHERE consumer = 'orders'";
    for (size_t n = 0; scheme_at(n); n++) {
        static life l;
        int64_t before = world_number(*state, marks); /* of the scheme before */
        life_open(&l, *state, scheme_at(n), count_it, 4);
        stand_start(&l.s); /* the queues are there from now on */
        for (int i = 0; i < STOPPERS + PUBLISHES; i++)
            world_thread(l.s.w, i < STOPPERS ? start_and_stop : publish_and_ask, &l);
        wait_seen(&l.ended, STOPPERS, "those that start and stop");
        atomic_store(&l.over, true);
        pr_bus_stop(l.s.bus);
        world_join(l.s.w);
        assert_int_equal(atomic_load(&l.bad), 0);
        assert_true(atomic_load(&l.good) >= PUBLISHES);
        stand_start(&l.s);
        world_until_number(l.s.w, marks, before + atomic_load(&l.good));
        stand_close(&l.s);
    }
}

/* ---- what it leaves behind ---- */

static int entries(const char *folder)
{
    DIR *dir = opendir(folder);
    int count = 0;
    assert_non_null(dir);
    while (readdir(dir))
        count++;
    closedir(dir);
    return count;
}

/* A thread that was joined is seen there a little longer, now or at the first count. */
static void wait_entries(const char *folder, int most)
{
    int64_t until_us = pr__monotonic_us() + PATIENCE_US;
    while (entries(folder) > most && pr__monotonic_us() < until_us)
        pr__sleep_us(1000);
    assert_in_range(entries(folder), 0, most);
}

static void one_cycle(life *l)
{
    pr_error err = PR_ERROR_INIT;
    pr_reply *reply = NULL;
    pr_message question = PR_MESSAGE(.type = TYPE_ASK, .body = "{}", .body_size_bytes = 2);
    stand_start(&l->s);
    publish_one(l);
    check_ok(pr_bus_request(l->s.bus, "prices", &question, NULL, &reply, &err), &err, "request");
    pr_reply_free(reply);
    pr_bus_stop(l->s.bus);
}

/* In pages. Not for a sanitizer's heap, which keeps what is freed. */
static long resident(void)
{
    char line[128] = "", *end = line;
    FILE *file = fopen("/proc/self/statm", "re");
    assert_non_null(file);
    assert_non_null(fgets(line, sizeof line, file));
    (void)fclose(file);
    (void)strtol(line, &end, 10);
    return strtol(end, NULL, 10);
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define HEAP_IS_OWN false
#elif defined(__has_feature)
#define HEAP_IS_OWN (!__has_feature(address_sanitizer) && !__has_feature(thread_sanitizer))
#else
#define HEAP_IS_OWN true
#endif

/* Thousands with POSTROOM_BUS_CYCLES, by hand. */
static int cycles(void)
{
    const char *wanted = getenv("POSTROOM_BUS_CYCLES");
    return wanted ? (int)strtol(wanted, NULL, 10) : CYCLES;
}

static void cycles_leave_nothing_behind(void **state)
{
    for (size_t n = 0; scheme_at(n); n++) {
        static life l;
        life_open(&l, *state, scheme_at(n), count_it, 4);
        for (int i = 0; i < WARM; i++)
            one_cycle(&l); /* what is opened once stays */
        int threads = entries("/proc/self/task"), files = entries("/proc/self/fd");
        int64_t boxes = world_number(*state, TEMPORARY);
        long pages = resident();
        for (int i = 0; i < cycles(); i++)
            one_cycle(&l);
        wait_entries("/proc/self/task", threads);
        wait_entries("/proc/self/fd", files);
        assert_int_equal(world_number(*state, TEMPORARY), boxes);
        if (getenv("POSTROOM_BUS_CYCLES"))
            print_message("# %s: %ld pages, then %ld\n", scheme_at(n), pages, resident());
        if (HEAP_IS_OWN)
            assert_true(resident() - pages < PAGES_MAX);
        stand_close(&l.s);
        assert_int_equal(world_number(*state, TEMPORARY), 0);
    }
}

/* ---- a transport that takes nothing ---- */

static pr_handled ask_in_handler(void *user, pr_scope *scope)
{
    life *l = user;
    pr_reply *reply = NULL;
    pr_message question = PR_MESSAGE(.type = TYPE_ASK, .body = "{}", .body_size_bytes = 2);
    const pr_request_options long_time = PR_REQUEST_OPTIONS(.timeout_ms = 3600000);
    int64_t until_us = pr__monotonic_us() + 2 * PATIENCE_US;
    (void)scope;
    atomic_fetch_add(&l->handled, 1);
    while (!is_over(l) && pr__monotonic_us() < until_us)
        pr__sleep_us(1000);
    pr_status status = pr_bus_request(l->s.bus, "prices", &question, &long_time, &reply, NULL);
    atomic_fetch_add(status == PR_E_CANCELLED || status == PR_E_STATE ? &l->good : &l->bad, 1);
    pr_reply_free(reply);
    return PR_HANDLED_RETRY;
}

static void *publish_blocked(void *user)
{
    life *l = user;
    pr_message message = PR_MESSAGE(.type = TYPE_ORDER, .body = "{}", .body_size_bytes = 2);
    pr_status status = pr_bus_publish(l->s.bus, &message, NULL, NULL);
    atomic_fetch_add(status == PR_E_BUSY || status == PR_E_BACKEND ? &l->good : &l->bad, 1);
    return NULL;
}

/* Who publishes waits for nobody's deadline but its own; and a handler that asks, with an hour of
   patience, is no reason for a stop to take one. */
static void a_blocked_transport_holds_up_no_stop(void **state)
{
    static life l;
    life_open(&l, *state, scheme_at(0), ask_in_handler, 4);
    stand_start(&l.s);
    publish_one(&l);
    wait_seen(&l.handled, 1, "handler");
    bus_carrier_in_use->block(true);
    int64_t began_us = pr__monotonic_us();
    for (size_t i = 0; i < BLOCKED; i++)
        world_thread(l.s.w, publish_blocked, &l);
    world_join(l.s.w);
    assert_true(pr__monotonic_us() - began_us < 50000000); /* 8 deadlines of 10 s would be late */
    atomic_store(&l.over, true);
    pr__sleep_us(200000); /* it asks by now, most likely */
    pr_bus_stop(l.s.bus);
    bus_carrier_in_use->block(false);
    assert_int_equal(atomic_load(&l.bad), 0);
    assert_int_equal(atomic_load(&l.good), 1 + BLOCKED);
    stand_close(&l.s);
}

size_t life_suite(const struct CMUnitTest **ret_tests)
{
    static const struct CMUnitTest tests[] = {
        CASE(a_handler_may_stop_its_bus),
        CASE(many_start_and_stop_while_others_publish_and_ask),
        CASE(cycles_leave_nothing_behind),
        CASE(a_blocked_transport_holds_up_no_stop),
    };
    bool blocks = bus_carrier_in_use && bus_carrier_in_use->block;
    *ret_tests = tests;
    return blocks ? COUNT_OF(tests) : COUNT_OF(tests) - 1; /* the last one needs that */
}
