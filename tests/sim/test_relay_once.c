/*
 * Run-once in virtual time, and what a relay refuses at its making.
 */
#include "sim/sim.h"

#include "base/text.h"

#define OK       "mem://topic/urn:message:sim:ok"
#define AT(word) "mem://topic/urn:message:sim:" word

static sim_bench *bench_of(pr_relay_options opt, uint32_t transports)
{
    opt.jitter_percent = PR_JITTER_NONE;
    return sim_bench_new(opt, transports);
}

static uint64_t once(sim_bench *bench, pr_status wanted, const char *text, const char *label)
{
    uint64_t published = 12345;
    pr_error err = PR_ERROR_INIT;
    pr_status status = pr_relay_run_once(bench->relay, &published, &err);
    if (wanted == PR_OK)
        check_ok(status, &err, label);
    else
        check_error(status, &err, wanted, text, label);
    CHECK_CASE(!sim_snapshot(bench->relay).running, label);
    CHECK_CASE(!sim_any_leased(bench->world), label);
    return published;
}

static void test_counts(void **state)
{
    (void)state;
    sim_bench *bench = bench_of((pr_relay_options){.batch_max = 50}, 1);
    assert_int_equal(once(bench, PR_OK, "", "nothing there"), 0);
    for (int i = 0; i < 333; i++)
        sim_add(bench->world, i % 3 ? "" : "k", OK);
    bench->world->delayed[0] = *sim_add(bench->world, "", OK);
    pr__format(bench->world->delayed[0].message_id, PR_UUID_TEXT_SIZE, "due");
    bench->world->delayed_at_us[0] = bench->world->now_us - 1;
    bench->world->delayed_count = 1;
    assert_int_equal(once(bench, PR_OK, "", "all that is due"), 335);
    assert_int_equal(once(bench, PR_OK, "", "nothing is left"), 0);
    assert_int_equal(sim_snapshot(bench->relay).published, 335);
    sim_bench_free(bench);
}

/* Each is sent once, whatever comes of it, even if its backoff is over before the run is. */
static void test_once_each(void **state)
{
    (void)state;
    sim_bench *bench =
        bench_of((pr_relay_options){.backoff_initial_ms = 1, .backoff_max_ms = 1}, 1);
    sim_row *refused = sim_add(bench->world, "a", AT("refuse"));
    sim_row *lost = sim_add(bench->world, "b", AT("lose"));
    for (int i = 0; i < 20; i++)
        sim_add(bench->world, "", OK);
    bench->store.takes_us[SIM_CLAIM] = bench->store.takes_us[SIM_SETTLE] = MS(10);
    assert_int_equal(once(bench, PR_OK, "", "first"), 20);
    assert_int_equal(refused->submitted, 1);
    assert_int_equal(lost->submitted, 1);
    bench->world->now_us += MS(100);
    assert_int_equal(once(bench, PR_OK, "", "second"), 0);
    assert_int_equal(refused->submitted, 2);
    assert_int_equal(refused->attempts, 2);
    assert_int_equal(lost->submitted, 2);
    assert_int_equal(lost->attempts, 0);
    pr__format(refused->destination, sizeof refused->destination, "%s", OK);
    pr__format(lost->destination, sizeof lost->destination, "%s", OK);
    bench->world->now_us += MS(100);
    assert_int_equal(once(bench, PR_OK, "", "third"), 2);
    sim_bench_free(bench);
}

/* What a parked head frees goes in the same run, in order. */
static void test_frees(void **state)
{
    (void)state;
    sim_bench *bench = bench_of((pr_relay_options){.backoff_initial_ms = 10}, 1);
    sim_row *head = sim_add(bench->world, "k", AT("refuse"));
    for (int i = 0; i < 30; i++)
        sim_add(bench->world, "k", OK);
    assert_int_equal(once(bench, PR_OK, "", "the head fails"), 0);
    assert_int_equal(sim_count(bench->world, SIM_PARKED, PR_STATE_HELD), 30);
    sim_add(bench->world, "k", OK);
    pr__format(head->destination, sizeof head->destination, "%s", OK);
    bench->world->now_us += SECONDS(1);
    assert_int_equal(once(bench, PR_OK, "", "all go"), 32);
    sim_bench_free(bench);
}

static void slow(sim_transport *transport, const sim_row *row, sim_fate *ret_fate)
{
    sim_decide_by_name(transport, row, ret_fate);
    ret_fate->after_us = MS(150);
}

/* The same with slow outcomes, and a run that takes several claims. */
static void test_frees_slowly(void **state)
{
    (void)state;
    sim_bench *bench = bench_of((pr_relay_options){.backoff_initial_ms = 10, .batch_max = 2}, 1);
    bench->transport.decide = slow;
    sim_row *head = sim_add(bench->world, "k", AT("refuse"));
    for (int i = 0; i < 9; i++)
        sim_add(bench->world, "k", OK);
    assert_int_equal(once(bench, PR_OK, "", "the head fails"), 0);
    pr__format(head->destination, sizeof head->destination, "%s", OK);
    bench->world->now_us += SECONDS(1);
    assert_int_equal(once(bench, PR_OK, "", "all go"), 10);
    sim_bench_free(bench);
}

static void test_failures(void **state)
{
    (void)state;
    static const struct {
        const char *label;
        bool database;
        sim_method method;
        const char *text;
        uint64_t published;
        uint32_t calls_most;
    } cases[] = {
        {"the claim fails", true, SIM_CLAIM, "database is down", 0, 12},
        {"the settle fails", true, SIM_SETTLE, "database is down", 0, 12},
        {"promotion fails", true, SIM_PROMOTE, "database is down", 0, 12},
        {"the transport is down", false, 0, "no answer from the simulated broker", 0, 12},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        sim_bench *bench = bench_of((pr_relay_options){.lease_ms = 1000}, 1);
        sim_row *row = sim_add(bench->world, "", OK);
        if (cases[i].database)
            bench->store.fail_next[cases[i].method] = 1;
        else
            bench->transport.refuses_open = true;
        uint64_t published = 0;
        pr_error err = PR_ERROR_INIT;
        check_error(pr_relay_run_once(bench->relay, &published, &err), &err, PR_E_BACKEND,
                    cases[i].text, cases[i].label);
        CHECK_CASE(published == cases[i].published, cases[i].label);
        CHECK_CASE(bench->store.calls_all <= cases[i].calls_most, cases[i].label);
        CHECK_CASE(row->attempts == 0, cases[i].label);
        bench->transport.refuses_open = false;
        bench->world->now_us += SECONDS(2); /* what could not be settled comes back by its lease */
        CHECK_CASE(once(bench, PR_OK, "", cases[i].label) == 1, cases[i].label);
        sim_bench_free(bench);
    }
}

/* One of two transports is down: the first error is told, the other's messages are sent. */
static void test_one_of_two(void **state)
{
    (void)state;
    sim_bench *bench = bench_of((pr_relay_options){0}, 2);
    bench->second.refuses_open = true;
    for (int i = 0; i < 20; i++)
        sim_add(bench->world, "", i % 2 ? OK : "two://topic/urn:message:sim:ok");
    assert_int_equal(once(bench, PR_E_BACKEND, "no answer", "half"), 10);
    assert_int_equal(sim_count(bench->world, SIM_PARKED, PR_STATE_FAILED), 10);
    bench->second.refuses_open = false;
    bench->world->now_us += SECONDS(40);
    assert_int_equal(once(bench, PR_OK, "", "the other half"), 10);
    sim_bench_free(bench);
}

static void test_refused(void **state)
{
    (void)state;
    sim_world *world = sim_world_new(1, 1);
    sim_store store;
    sim_store_init(&store, world);
    sim_transport *t = calloc(3, sizeof *t);
    assert_non_null(t);
    sim_transport_init(&t[0], world, "mem");
    sim_transport_init(&t[1], world, "mem");
    sim_transport_init(&t[2], world, "local");
    pr_transport *same[] = {&t[0].base, &t[1].base}, *reserved[] = {&t[2].base}, *none[] = {NULL};
    const struct {
        const char *label;
        pr_transport *const *transports;
        size_t count;
        int64_t lease_ms;
        const char *text;
    } cases[] = {
        {"two of one name", same, 2, 0, "two transports are named 'mem'"},
        {"the reserved scheme", reserved, 1, 0, "local"},
        {"a NULL transport", none, 1, 0, "transport 0 is NULL"},
        {"none at all", same, 0, 0, "needs a transport"},
        {"too many", same, 17, 0, "17 transports, at most 16"},
        {"options", same, 1, -1, "lease_ms is -1"},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        pr_relay *relay = NULL;
        pr_relay_options opt = PR_RELAY_OPTIONS(.lease_ms = cases[i].lease_ms);
        pr_error err = PR_ERROR_INIT;
        check_error(
            pr_relay_new(&store.base, cases[i].transports, cases[i].count, &opt, &relay, &err),
            &err, PR_E_INVALID, cases[i].text, cases[i].label);
        CHECK_CASE(!relay, cases[i].label);
    }
    pr_relay_snapshot snapshot = {0};
    pr_error err = PR_ERROR_INIT;
    check_error(pr_relay_snapshot_get(NULL, &snapshot, &err), &err, PR_E_INVALID, "NULL", "NULL");
    assert_null(pr_relay_free(NULL));
    pr_relay_stop(NULL);
    pr_relay_wake(NULL);
    free(t);
    sim_world_free(world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_refused),      cmocka_unit_test(test_counts),
        cmocka_unit_test(test_once_each),    cmocka_unit_test(test_frees),
        cmocka_unit_test(test_frees_slowly), cmocka_unit_test(test_failures),
        cmocka_unit_test(test_one_of_two),
    };
    return RUN_TESTS(tests);
}
