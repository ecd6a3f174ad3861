/*
 * The memory transport beside what the suite of all transports shows: bounds, the discard option,
 * delays by the clock that was given, cuts, and running out of memory in the midst of a fan-out.
 */
#include "support/test.h"

#include <postroom/memory.h>

#include "base/fault.h"
#include "transport/memory/inspect.h"

#define TYPE_A "urn:message:unit:a"

typedef struct world {
    pr_memory_broker *broker;
    pr_transport *transport;
    pr_subscription *one; /* of the endpoint "one" */
    pr_clock clock;
    pr_observer observer;
    int64_t now_us;
    unsigned fenced;
} world;

static int64_t virtual_now(void *user)
{
    return ((world *)user)->now_us;
}

static void observe(void *user, const pr_observation *observation)
{
    if (observation->kind == PR_OBSERVE_FENCED)
        ((world *)user)->fenced += (unsigned)observation->count;
}

static pr_subscription *subscribe(world *at, const char *endpoint)
{
    static const char *const types[] = {TYPE_A};
    pr_subscribe_options options = {
        .size = (uint32_t)sizeof(options), .endpoint = endpoint, .types = types, .type_count = 1};
    pr_subscription *subscription = NULL;
    pr_error err = PR_ERROR_INIT;
    check_ok(pr_transport_subscribe(at->transport, &options, &subscription, &err), &err, endpoint);
    return subscription;
}

static void open_world(world *at)
{
    pr_error err = PR_ERROR_INIT;
    *at = (world){.now_us = 1000000};
    at->clock = (pr_clock){(uint32_t)sizeof(pr_clock), virtual_now, virtual_now, at};
    at->observer = (pr_observer){(uint32_t)sizeof(pr_observer), observe, at};
    check_ok(pr_memory_broker_new(&at->broker, &err), &err, "broker");
    pr_memory_options options = {
        .size = (uint32_t)sizeof(options), .clock = &at->clock, .observer = &at->observer};
    check_ok(pr_memory_transport_new(at->broker, &options, &at->transport, &err), &err, "new");
    at->one = subscribe(at, "one");
}

static void close_world(world *at)
{
    pr_subscription_free(at->one);
    pr_transport_free(at->transport);
    pr_memory_broker_free(at->broker);
}

static int setup(void **state)
{
    static world at;
    open_world(&at);
    *state = &at;
    return 0;
}

static int teardown(void **state)
{
    close_world(*state);
    return 0;
}

static pr_submitted send(pr_transport *transport, const char *destination, const char *key)
{
    const pr_message message =
        PR_MESSAGE(.id = "018e0000-0000-7000-8000-000000000001", .type = TYPE_A, .type_version = 1,
                   .destination = destination, .key = key, .body = "body", .body_size_bytes = 4,
                   .occurred_at_us = 1);
    pr_submission submission = {7, &message};
    pr_submitted outcome = {0};
    pr_error err = PR_ERROR_INIT;
    size_t count = 0;
    check_ok(pr_transport_submit(transport, &submission, 1, &count, &err), &err, "submit");
    assert_int_equal(count, 1);
    check_ok(pr_transport_poll(transport, 0, &outcome, 1, &count, &err), &err, "poll");
    assert_int_equal(count, 1);
    assert_int_equal(outcome.ticket, 7);
    return outcome;
}

static void settle(pr_subscription *subscription, uint64_t tag, pr_verdict verdict,
                   int64_t requeue_delay_ms)
{
    pr_error err = PR_ERROR_INIT;
    check_ok(pr_subscription_settle(subscription, tag, verdict, requeue_delay_ms, &err), &err,
             "settle");
}

static size_t receive(pr_subscription *subscription, pr_delivery *ret_deliveries, size_t max)
{
    size_t got = 0;
    pr_error err = PR_ERROR_INIT;
    check_ok(pr_subscription_receive(subscription, 0, ret_deliveries, max, &got, &err), &err,
             "receive");
    return got;
}

static void test_options_are_checked(void **state)
{
    (void)state;
    pr_memory_broker *broker = NULL;
    pr_error err = PR_ERROR_INIT;
    check_ok(pr_memory_broker_new(&broker, &err), &err, "broker");
    const uint32_t size = (uint32_t)sizeof(pr_memory_options);
    const struct {
        const char *label;
        pr_memory_options options;
        const char *text;
    } cases[] = {
        {"no size", {.size = 0}, "size"},
        {"upper case", {.size = size, .name = "Memory"}, "a-z"},
        {"empty name", {.size = size, .name = ""}, "a-z"},
        {"long name", {.size = size, .name = "m23456789012345678901234567890123"}, "31"},
        {"reserved", {.size = size, .name = "local"}, "reserved"},
        {"window", {.size = size, .window = 70000}, "70000"},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        pr_transport *transport = NULL;
        pr_error_clear(&err);
        pr_status status = pr_memory_transport_new(broker, &cases[i].options, &transport, &err);
        check_error(status, &err, PR_E_INVALID, cases[i].text, cases[i].label);
        CHECK_CASE(transport == NULL, cases[i].label);
    }
    pr_error_clear(&err);
    pr_transport *transport = NULL;
    check_error(pr_memory_transport_new(NULL, NULL, &transport, &err), &err, PR_E_INVALID, "NULL",
                "no broker");
    pr_error_clear(&err);
    check_error(pr_memory_broker_new(NULL, &err), &err, PR_E_INVALID, "NULL", "no result");
    pr_error_clear(&err);
    check_ok(pr_memory_transport_new(broker, NULL, &transport, &err), &err, "defaults");
    assert_string_equal(transport->name, "memory");
    assert_int_equal(transport->window, 256);
    assert_non_null(transport->clock);
    pr_transport_free(transport);
    pr_memory_broker_free(broker);
    assert_null(pr_memory_broker_free(NULL));
}

static void test_a_full_queue_refuses_and_takes_again(void **state)
{
    world *at = *state;
    pr_subscription *full = subscribe(at, "full");
    pr__memory_limits_set(at->broker, 2, 0, 0);
    assert_int_equal(send(at->transport, "memory://in/full", NULL).outcome, PR_SUBMIT_CONFIRMED);
    assert_int_equal(send(at->transport, "memory://in/full", "k").outcome, PR_SUBMIT_CONFIRMED);
    pr_subscription *other = subscribe(at, "other");
    pr_submitted refused = send(at->transport, "memory://topic/" TYPE_A, NULL);
    assert_int_equal(refused.outcome, PR_SUBMIT_REFUSED);
    assert_non_null(strstr(refused.reason, "'full' is full"));
    pr_delivery delivery;
    assert_int_equal(receive(other, &delivery, 1), 0); /* all of a fan-out or none */
    assert_int_equal(receive(full, &delivery, 1), 1);
    settle(full, delivery.tag, PR_VERDICT_ACK, 0);
    assert_int_equal(send(at->transport, "memory://topic/" TYPE_A, NULL).outcome,
                     PR_SUBMIT_CONFIRMED);
    assert_int_equal(receive(other, &delivery, 1), 1);
    pr_subscription_free(full);
    pr_subscription_free(other);
}

static void test_the_dead_list_is_bounded(void **state)
{
    world *at = *state;
    pr__memory_limits_set(at->broker, 0, 3, 0);
    for (int i = 0; i < 5; i++) {
        pr_delivery delivery;
        send(at->transport, "memory://in/one", i % 2 ? "k" : NULL);
        assert_int_equal(receive(at->one, &delivery, 1), 1);
        settle(at->one, delivery.tag, PR_VERDICT_REJECT, 0);
    }
    pr__memory_counts counts;
    assert_true(pr__memory_counts_get(at->broker, "one", false, &counts));
    assert_int_equal(counts.dead, 3);
    assert_int_equal(counts.held, 0);
    assert_int_equal(counts.chains, 0);
}

static void test_discard_confirms_and_keeps_nothing(void **state)
{
    world *at = *state;
    pr_memory_options options = {.size = (uint32_t)sizeof(options), .window = 3, .discard = true};
    pr_transport *sink = NULL;
    pr_error err = PR_ERROR_INIT;
    check_ok(pr_memory_transport_new(at->broker, &options, &sink, &err), &err, "sink");
    for (int i = 0; i < 10; i++)
        assert_int_equal(send(sink, i % 2 ? "memory://in/one" : "memory://in/nobody", NULL).outcome,
                         PR_SUBMIT_CONFIRMED);
    pr_delivery delivery;
    assert_int_equal(receive(at->one, &delivery, 1), 0);
    pr_transport_free(sink);
}

static void test_a_delay_is_counted_on_the_clock_given(void **state)
{
    world *at = *state;
    for (int i = 0; i < 3; i++)
        send(at->transport, "memory://in/one", "k");
    pr_delivery delivery;
    assert_int_equal(receive(at->one, &delivery, 1), 1);
    settle(at->one, delivery.tag, PR_VERDICT_REQUEUE, 1500);
    assert_int_equal(receive(at->one, &delivery, 1), 0); /* its key waits with it */
    at->now_us += 1499999;
    assert_int_equal(receive(at->one, &delivery, 1), 0);
    at->now_us += 1;
    pr_delivery all[3];
    assert_int_equal(receive(at->one, all, 3), 1);
    assert_true(all[0].redelivered);
    assert_int_equal(all[0].delivery_count, 1);
}

static void test_a_cut_makes_tags_stale_and_is_told_once(void **state)
{
    world *at = *state;
    send(at->transport, "memory://in/one", NULL);
    send(at->transport, "memory://in/one", NULL);
    pr_delivery old[2];
    pr_delivery now[2];
    pr_error err = PR_ERROR_INIT;
    size_t got = 0;
    assert_int_equal(receive(at->one, old, 2), 2);
    pr__memory_subscription_cut(at->one);
    check_error(pr_subscription_settle(at->one, old[0].tag, PR_VERDICT_ACK, 0, &err), &err,
                PR_E_FENCED, "stale", "before the next receive");
    pr_error_clear(&err);
    check_error(pr_subscription_receive(at->one, 0, now, 2, &got, &err), &err, PR_E_BACKEND, "cut",
                "told once");
    assert_int_equal(err.retry, PR_RETRY_RECONNECT);
    assert_int_equal(receive(at->one, now, 2), 2);
    assert_true(now[0].redelivered && now[1].redelivered);
    pr_error_clear(&err);
    check_error(pr_subscription_settle(at->one, old[0].tag, PR_VERDICT_ACK, 0, &err), &err,
                PR_E_FENCED, "stale", "the slot is in use again");
    assert_int_equal(at->fenced, 2);
}

static void test_many_keys_come_and_go(void **state)
{
    world *at = *state;
    for (int i = 0; i < 1500; i++) { /* the table of keys grows several times */
        char key[16];
        snprintf(key, sizeof(key), "key-%d", i % 700);
        assert_int_equal(send(at->transport, "memory://in/one", key).outcome, PR_SUBMIT_CONFIRMED);
    }
    pr__memory_counts counts;
    assert_true(pr__memory_counts_get(at->broker, "one", false, &counts));
    assert_int_equal(counts.chains, 700);
    assert_int_equal(counts.ready, 700);
    for (int i = 0; i < 1500; i++) {
        pr_delivery delivery;
        assert_int_equal(receive(at->one, &delivery, 1), 1);
        settle(at->one, delivery.tag, PR_VERDICT_ACK, 0);
    }
    assert_true(pr__memory_counts_get(at->broker, "one", false, &counts));
    assert_true(counts.held == 0 && counts.chains == 0 && counts.ready == 0);
}

#ifdef PR_FAULT_POINTS
/* Whichever allocation fails, a fan-out reaches both queues or none, and nothing leaks. */
static void test_out_of_memory_is_all_or_none(void **state)
{
    (void)state;
    unsigned lost = 0;
    for (int64_t n = 1;; n++) {
        world own;
        world *at = &own;
        open_world(at);
        pr_subscription *two = subscribe(at, "two");
        pr__fault_alloc_fail_at(n);
        pr_submitted outcome = send(at->transport, "memory://topic/" TYPE_A, "k");
        bool reached = pr__fault_alloc_count() >= n;
        pr__fault_alloc_fail_at(0);
        pr_delivery delivery;
        size_t wanted = outcome.outcome == PR_SUBMIT_CONFIRMED ? 1 : 0;
        assert_true(wanted || outcome.outcome == PR_SUBMIT_LOST);
        assert_int_equal(receive(at->one, &delivery, 1), wanted);
        assert_int_equal(receive(two, &delivery, 1), wanted);
        lost += !wanted;
        pr_subscription_free(two);
        close_world(at);
        if (!reached)
            break;
        assert_int_equal(wanted, 0);
    }
    assert_true(lost >= 6);
}

static void test_out_of_memory_while_opening(void **state)
{
    (void)state;
    unsigned failed = 0;
    for (int64_t n = 1; n < 100; n++) {
        pr_memory_broker *broker = NULL;
        pr_transport *transport = NULL;
        pr_subscription *subscription = NULL;
        static const char *const types[] = {TYPE_A};
        pr_subscribe_options options = {
            .size = (uint32_t)sizeof(options), .endpoint = "one", .types = types, .type_count = 1};
        pr_error err = PR_ERROR_INIT;
        pr__fault_alloc_fail_at(n);
        pr_status status = pr_memory_broker_new(&broker, &err);
        if (status == PR_OK)
            status = pr_memory_transport_new(broker, NULL, &transport, &err);
        if (status == PR_OK)
            status = pr_transport_subscribe(transport, &options, &subscription, &err);
        bool reached = pr__fault_alloc_count() >= n;
        pr__fault_alloc_fail_at(0);
        assert_int_equal(status, reached ? PR_E_NOMEM : PR_OK);
        assert_int_equal(err.status, status);
        pr_subscription_free(subscription);
        pr_transport_free(transport);
        pr_memory_broker_free(broker);
        failed += reached;
        if (!reached)
            break;
    }
    assert_true(failed >= 6);
}
#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
        cmocka_unit_test(test_options_are_checked),
        CASE(test_a_full_queue_refuses_and_takes_again),
        CASE(test_the_dead_list_is_bounded),
        CASE(test_discard_confirms_and_keeps_nothing),
        CASE(test_a_delay_is_counted_on_the_clock_given),
        CASE(test_a_cut_makes_tags_stale_and_is_told_once),
        CASE(test_many_keys_come_and_go),
#undef CASE
#ifdef PR_FAULT_POINTS
        cmocka_unit_test(test_out_of_memory_is_all_or_none),
        cmocka_unit_test(test_out_of_memory_while_opening),
#endif
    };
    return RUN_TESTS(tests);
}
