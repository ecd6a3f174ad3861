/*
 * The parts of the relay that need no world: options, breakers, the rate.
 */
#include <math.h>

#include <postroom/relay.h>

#include "core/breaker.h"
#include "core/rate.h"
#include "core/relay_options.h"
#include "support/test.h"

typedef struct option_case {
    const char *label;
    pr_relay_options opt;
    const char *text; /* NULL = accepted */
} option_case;

static void test_options_refused(void **state)
{
    (void)state;
    static const char long_owner[129] =
        "0123456789012345678901234567890123456789012345678901234567890123"
        "0123456789012345678901234567890123456789012345678901234567890123";
    const option_case cases[] = {
        {"lease below 0", {.lease_ms = -1}, "lease_ms is -1, must be > 0"},
        {"poll below 0", {.poll_idle_ms = -5}, "poll_idle_ms is -5"},
        {"idle faster than busy",
         {.poll_busy_ms = 60},
         "poll_idle_ms is 50, less than poll_busy_ms"},
        {"probe faster than busy",
         {.probe_max_ms = 1},
         "probe_max_ms is 1, less than poll_busy_ms"},
        {"a backoff below the poll",
         {.round_backoff_max_ms = 10},
         "round_backoff_max_ms is 10, less"},
        {"max below initial",
         {.backoff_initial_ms = 10, .backoff_max_ms = 9},
         "backoff_max_ms is 9, less than backoff_initial_ms, which is 10"},
        {"initial above the standard max",
         {.backoff_initial_ms = 1000000},
         "backoff_max_ms is 900000"},
        {"jitter of 101", {.jitter_percent = 101}, "jitter_percent is 101, at most 100"},
        {"rate below 0", {.messages_per_second = -1}, "messages_per_second is -1"},
        {"rate not a number", {.messages_per_second = NAN}, "messages_per_second is nan"},
        {"rate infinite", {.messages_per_second = INFINITY}, "messages_per_second is inf"},
        {"order unknown", {.order = (pr_order)9}, "order is none of"},
        {"batch too big", {.batch_max = 100001}, "batch_max is 100001, at most 100000"},
        {"grace below 0", {.stop_grace_ms = -1}, "stop_grace_ms is -1"},
        {"lease without end", {.lease_ms = INT64_MAX}, "lease_ms is 9223372036854775807, at most"},
        {"owner empty", {.owner = ""}, "owner must be"},
        {"owner too long", {.owner = long_owner}, "owner must be"},
        {"owner not UTF-8", {.owner = "\xff"}, "owner must be"},
        {"a lease below the deadline is renewed", {.lease_ms = 1000}, NULL},
        {"all at their standard", {.size = 0}, NULL},
        {"off", {.retry_max = PR_RETRY_NONE, .jitter_percent = PR_JITTER_NONE}, NULL},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        pr_relay_options opt = cases[i].opt, resolved;
        opt.size = sizeof opt;
        pr_error err = PR_ERROR_INIT;
        pr_status status = pr__relay_options_resolve(&opt, &resolved, &err);
        if (cases[i].text)
            check_error(status, &err, PR_E_INVALID, cases[i].text, cases[i].label);
        else
            check_ok(status, &err, cases[i].label);
    }
}

static void test_options_size(void **state)
{
    (void)state;
    struct {
        pr_relay_options opt;
        uint64_t tail;
    } newer = {.opt = {.size = sizeof newer}};
    pr_relay_options resolved, unset = {.lease_ms = 1};
    pr_error err = PR_ERROR_INIT;
    check_ok(pr__relay_options_resolve(&newer.opt, &resolved, &err), &err, "a longer struct");
    newer.tail = 1;
    check_error(pr__relay_options_resolve(&newer.opt, &resolved, &err), &err, PR_E_INVALID,
                "newer version", "an unknown field is set");
    pr_error_clear(&err);
    check_error(pr__relay_options_resolve(&unset, &resolved, &err), &err, PR_E_INVALID,
                "size of pr_relay_options", "no size");
}

static void test_options_defaults(void **state)
{
    (void)state;
    pr_relay_options o;
    pr_error err = PR_ERROR_INIT;
    check_ok(pr__relay_options_resolve(NULL, &o, &err), &err, "NULL");
    assert_int_equal(o.batch_max, 500);
    assert_int_equal(o.batch_bytes_max, 8 * 1024 * 1024);
    assert_int_equal(o.lease_ms, 30000);
    assert_int_equal(o.poll_busy_ms, 5);
    assert_int_equal(o.poll_idle_ms, 50);
    assert_int_equal(o.probe_max_ms, 500);
    assert_int_equal(o.round_backoff_max_ms, 30000);
    assert_int_equal(o.publish_deadline_ms, 10000);
    assert_int_equal(o.backoff_initial_ms, 5000);
    assert_int_equal(o.backoff_max_ms, 900000);
    assert_int_equal(o.retry_max, 10);
    assert_int_equal(o.jitter_percent, 25);
    assert_int_equal(o.breaker_failures, 5);
    assert_int_equal(o.parked_cap_per_lane, 1000);
    assert_int_equal(o.stop_grace_ms, 10000);
    assert_non_null(o.clock);
    assert_non_null(o.random);
    pr_relay_options none =
        PR_RELAY_OPTIONS(.retry_max = PR_RETRY_NONE, .jitter_percent = PR_JITTER_NONE);
    check_ok(pr__relay_options_resolve(&none, &o, &err), &err, "none");
    assert_int_equal(o.retry_max, 0);
    assert_int_equal(o.jitter_percent, 0);
}

#define S INT64_C(1000000)

static pr__breaker_verdict ask(pr__breakers *b, const char *to, int64_t now_us)
{
    int64_t wait_us = 0;
    return pr__breakers_ask(b, to, now_us, &wait_us);
}

static void test_breaker(void **state)
{
    (void)state;
    pr__breakers *b = pr__breakers_new(3, 1000, 30000);
    int64_t now = 100 * S, wait_us = 0;
    assert_int_equal(ask(b, "x", now), PR__BREAKER_PASS);
    /* in a row only, and only when others are served */
    assert_false(pr__breakers_lost(b, "x", true, now));
    assert_false(pr__breakers_lost(b, "x", true, now));
    assert_false(pr__breakers_answered(b, "x"));
    assert_false(pr__breakers_lost(b, "x", false, now));
    assert_false(pr__breakers_lost(b, "x", false, now));
    assert_false(pr__breakers_lost(b, "x", false, now));
    assert_false(pr__breakers_lost(b, "x", false, now));
    assert_int_equal(ask(b, "x", now), PR__BREAKER_PASS);
    assert_true(pr__breakers_lost(b, "x", true, now));
    assert_int_equal(pr__breakers_ask(b, "x", now + S / 4, &wait_us), PR__BREAKER_REFUSE);
    assert_int_equal(wait_us, S * 3 / 4);
    assert_int_equal(ask(b, "y", now), PR__BREAKER_PASS);
    assert_int_equal(pr__breakers_open_count(b), 1);
    /* half-open: one probe; lost: twice as long, up to 30 s */
    static const int64_t open_s[] = {1, 2, 4, 8, 16, 30, 30, 30};
    for (size_t i = 0; i < COUNT_OF(open_s); i++) {
        assert_int_equal(ask(b, "x", now + open_s[i] * S - 1), PR__BREAKER_REFUSE);
        now += open_s[i] * S;
        assert_int_equal(ask(b, "x", now), PR__BREAKER_PROBE);
        assert_int_equal(pr__breakers_state(b, "x"), PR__BREAKER_HALF_OPEN);
        assert_int_equal(ask(b, "x", now), PR__BREAKER_REFUSE);
        assert_false(pr__breakers_lost(b, "x", false, now));
    }
    /* a probe that was not sent: the next one that asks */
    now += 30 * S;
    assert_int_equal(ask(b, "x", now), PR__BREAKER_PROBE);
    pr__breakers_unprobe(b, "x");
    assert_int_equal(ask(b, "x", now), PR__BREAKER_PROBE);
    assert_true(pr__breakers_answered(b, "x"));
    assert_int_equal(pr__breakers_open_count(b), 0);
    assert_int_equal(ask(b, "x", now), PR__BREAKER_PASS);
    pr__breakers_free(b);
}

static void test_breakers_bounded(void **state)
{
    (void)state;
    pr__breakers *b = pr__breakers_new(1, 1000, 30000);
    char to[32];
    for (int i = 0; i < 3 * PR__BREAKERS_MAX; i++) {
        snprintf(to, sizeof to, "closed-%d", i);
        (void)pr__breakers_lost(b, to, false, i);
    }
    uint32_t opened = 0;
    for (int i = 0; i < 3 * PR__BREAKERS_MAX; i++) {
        snprintf(to, sizeof to, "open-%d", i);
        opened += pr__breakers_lost(b, to, true, 10 * S + i);
    }
    assert_int_equal(opened, PR__BREAKERS_MAX); /* closed ones made room, open ones stay */
    assert_int_equal(pr__breakers_open_count(b), PR__BREAKERS_MAX);
    assert_int_equal(ask(b, "open-700", 10 * S), PR__BREAKER_PASS); /* not watched */
    pr__breakers_prune(b, 11 * S);
    assert_int_equal(pr__breakers_open_count(b), 0);
    pr__breakers_free(b);
}

static void test_rate(void **state)
{
    (void)state;
    static const struct {
        const char *label;
        double rate;
        int64_t gap_us;
    } cases[] = {{"off", 0, 0},
                 {"1 a second", 1, S},
                 {"3 a second", 3, 333334},
                 {"a million", 1e6, 1},
                 {"faster than a microsecond", 1e9, 1},
                 {"one in an age", 1e-300, INT64_MAX / 4}};
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        pr__rate rate;
        pr__rate_init(&rate, cases[i].rate);
        CHECK_CASE(rate.gap_us == cases[i].gap_us, cases[i].label);
        CHECK_CASE(pr__rate_wait_us(&rate, -5 * S) == 0, cases[i].label);
        pr__rate_sent(&rate, -5 * S);
        CHECK_CASE(pr__rate_wait_us(&rate, -5 * S) == cases[i].gap_us, cases[i].label);
        CHECK_CASE(pr__rate_wait_us(&rate, -5 * S + cases[i].gap_us) == 0, cases[i].label);
        pr__rate_begin(&rate);
        CHECK_CASE(pr__rate_wait_us(&rate, -5 * S) == 0, cases[i].label);
        pr__rate_sent(&rate, INT64_MAX - 1); /* no overflow */
        CHECK_CASE(pr__rate_wait_us(&rate, INT64_MAX) == 0, cases[i].label);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_options_refused),  cmocka_unit_test(test_options_size),
        cmocka_unit_test(test_options_defaults), cmocka_unit_test(test_breaker),
        cmocka_unit_test(test_breakers_bounded), cmocka_unit_test(test_rate),
    };
    return RUN_TESTS(tests);
}
