/*
 * What becomes of each message: published, failed, dead, held, expired, deferred; who is charged.
 */
#include "sim/sim.h"

#include "base/text.h"

#define OK       "mem://topic/urn:message:sim:ok"
#define AT(word) "mem://topic/urn:message:sim:" word

/* Without jitter, every time is exact. */
static sim_bench *bench_of(pr_relay_options opt)
{
    opt.jitter_percent = PR_JITTER_NONE;
    return sim_bench_new(opt, 1);
}

static void test_publishes(void **state)
{
    (void)state;
    sim_bench *bench = bench_of((pr_relay_options){0});
    for (int i = 0; i < 1200; i++) {
        char key[16];
        pr__format(key, sizeof key, "%s%d", i % 3 ? "k" : "", i % 3 ? i % 40 : 0);
        sim_add(bench->world, i % 3 ? key : "", OK);
    }
    sim_run_for(bench->world, bench->relay, SECONDS(2));
    assert_int_equal(sim_count(bench->world, SIM_PUBLISHED, 0), 1200);
    pr_relay_snapshot snapshot = sim_snapshot(bench->relay);
    assert_int_equal(snapshot.published, 1200);
    assert_int_equal(snapshot.claimed, 1200);
    assert_int_equal(snapshot.in_flight, 0);
    assert_int_equal(snapshot.lanes_held, 0);
    assert_int_equal(bench->observed[PR_OBSERVE_PUBLISHED], 1200);
    assert_int_equal(bench->observed[PR_OBSERVE_CLAIMED], 1200);
    assert_true(bench->store.settled_with_next >= 2); /* settle and claim share a commit */
    assert_true(bench->transport.flying_most <= 256);
    for (uint32_t i = 0; i < bench->world->row_count; i++)
        assert_int_equal(bench->world->rows[i].submitted, 1);
    sim_bench_free(bench);
}

/* One message of a key flies; without a key, as many as the window lets through. */
static void test_window(void **state)
{
    (void)state;
    sim_bench *bench = bench_of((pr_relay_options){0});
    bench->transport.base.window = 10;
    for (int i = 0; i < 200; i++)
        sim_add(bench->world, i % 2 ? "same" : "", OK);
    sim_run_for(bench->world, bench->relay, SECONDS(1));
    assert_int_equal(sim_count(bench->world, SIM_PUBLISHED, 0), 200);
    assert_int_equal(bench->transport.flying_most, 10);
    sim_bench_free(bench);
}

typedef struct end_case {
    const char *label;
    const char *destination;
    uint32_t retry_max;
    const char *headers;
    uint32_t submitted; /* in the end */
    bool dead;          /* else published */
    const char *text;
} end_case;

static void test_ends(void **state)
{
    (void)state;
    static const end_case cases[] = {
        {"limit 0 dies at the first failure", AT("refuse"), PR_RETRY_NONE, NULL, 1, true,
         "refused: so it was decided"},
        {"limit 1 after two", AT("refuse"), 1, NULL, 2, true, "refused"},
        {"limit 3 after four", AT("return"), 3, NULL, 4, true, "nobody would get it"},
        {"too large is dead at once", AT("large"), 10, NULL, 1, true, "too large"},
        {"a malformed destination is dead at once", "nonsense", 10, NULL, 0, true,
         "destination 'nonsense' is no address"},
        {"an unknown transport is named", "rabbitmq://topic/urn:message:sim:ok", 1, NULL, 0, true,
         "no transport is named 'rabbitmq'"},
        {"unrouted is fine when the contract says so", AT("return"), 10,
         "{\"postroom-unrouted-ok\":{\"bool\":true}}", 1, false, ""},
        {"unrouted is not fine when it says no", AT("return"), PR_RETRY_NONE,
         "{\"postroom-unrouted-ok\":{\"bool\":false}}", 1, true, "nobody would get it"},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        const end_case *c = &cases[i];
        sim_bench *bench =
            bench_of((pr_relay_options){.retry_max = c->retry_max, .backoff_initial_ms = 10});
        sim_row *row = sim_add(bench->world, "", c->destination);
        row->headers = c->headers;
        sim_row *neighbour = sim_add(bench->world, "", OK);
        sim_run_for(bench->world, bench->relay, SECONDS(20));
        CHECK_CASE(neighbour->place == SIM_PUBLISHED, c->label);
        CHECK_CASE(row->submitted == c->submitted, c->label);
        CHECK_CASE(row->place == (c->dead ? SIM_PARKED : SIM_PUBLISHED), c->label);
        CHECK_CASE(!c->dead || row->state == PR_STATE_DEAD, c->label);
        if (!strstr(row->error, c->text))
            fail_msg("case '%s': wanted '%s' in '%s'", c->label, c->text, row->error);
        CHECK_CASE(sim_snapshot(bench->relay).dead == (c->dead ? 1U : 0U), c->label);
        CHECK_CASE(bench->observed[PR_OBSERVE_DEAD] == (c->dead ? 1U : 0U), c->label);
        sim_bench_free(bench);
    }
}

static void test_unreadable(void **state)
{
    (void)state;
    sim_bench *bench = bench_of((pr_relay_options){0});
    sim_row *row = sim_add(bench->world, "k", OK);
    row->unreadable = "type is not valid UTF-8";
    sim_row *behind = sim_add(bench->world, "k", OK);
    sim_run_for(bench->world, bench->relay, SECONDS(2));
    assert_int_equal(row->state, PR_STATE_DEAD);
    assert_string_equal(row->error, "type is not valid UTF-8");
    assert_int_equal(row->submitted, 0);
    assert_int_equal(behind->place, SIM_PUBLISHED); /* held, then freed by the committed death */
    sim_bench_free(bench);
}

/* Attempts come at the backoff's times, counted from the settle. */
static void test_backoff(void **state)
{
    (void)state;
    sim_bench *bench = bench_of(
        (pr_relay_options){.retry_max = 6, .backoff_initial_ms = 100, .backoff_max_ms = 800});
    sim_row *row = sim_add(bench->world, "", AT("refuse"));
    static const int64_t waits_ms[] = {100, 200, 400, 800, 800, 800};
    int64_t last_us = 0;
    for (uint32_t i = 0; i < COUNT_OF(waits_ms); i++) {
        while (row->attempts == i)
            sim_run_for(bench->world, bench->relay, 100);
        if (i > 0)
            assert_in_range(bench->world->now_us - last_us, MS(waits_ms[i - 1]),
                            MS(waits_ms[i - 1]) + MS(10));
        last_us = bench->world->now_us;
        assert_int_equal(row->state, PR_STATE_FAILED);
        assert_in_range(row->next_at_us - last_us, MS(waits_ms[i]) - MS(1), MS(waits_ms[i]));
    }
    sim_run_for(bench->world, bench->relay, SECONDS(2));
    assert_int_equal(row->state, PR_STATE_DEAD);
    assert_int_equal(row->attempts, 7);
    assert_int_equal(sim_snapshot(bench->relay).failed, 6);
    sim_bench_free(bench);
}

static void test_jitter(void **state)
{
    (void)state;
    sim_bench *bench = sim_bench_new((pr_relay_options){.backoff_initial_ms = 1000}, 1);
    int64_t least = INT64_MAX, most = 0;
    for (int i = 0; i < 200; i++)
        sim_add(bench->world, "", AT("refuse"));
    sim_run_for(bench->world, bench->relay, MS(50));
    for (uint32_t i = 0; i < bench->world->row_count; i++) {
        int64_t wait_us = bench->world->rows[i].next_at_us - bench->world->now_us + MS(50);
        least = wait_us < least ? wait_us : least;
        most = wait_us > most ? wait_us : most;
    }
    assert_in_range(least, MS(745), MS(850));
    assert_in_range(most, MS(1150), MS(1255));
    sim_bench_free(bench);
}

/* The first of a key that is not confirmed ends that key's sending; each policy its own way. */
static void test_order(void **state)
{
    (void)state;
    static const struct {
        const char *label, *destination;
        pr_order order;
        uint32_t retry_max;
        pr_state behind; /* of the second, 100 ms later; 0 = published */
        bool published;  /* the second, in the end */
    } cases[] = {
        {"hold", AT("refuse"), PR_ORDER_HOLD, 10, PR_STATE_HELD, false},
        {"skip", AT("refuse"), PR_ORDER_SKIP, 10, 0, true},
        {"halt", AT("refuse"), PR_ORDER_HALT, 10, PR_STATE_HELD, false},
        {"hold, a dead head frees its key", AT("large"), PR_ORDER_HOLD, 10, 0, true},
        {"halt, a dead head does not", AT("large"), PR_ORDER_HALT, 10, PR_STATE_HELD, false},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        sim_bench *bench = bench_of((pr_relay_options){.order = cases[i].order});
        sim_row *head = sim_add(bench->world, "k", cases[i].destination);
        sim_row *second = sim_add(bench->world, "k", OK);
        sim_row *other = sim_add(bench->world, "other", OK);
        sim_run_for(bench->world, bench->relay, MS(100));
        CHECK_CASE(bench->world->order == cases[i].order, cases[i].label);
        CHECK_CASE(head->place == SIM_PARKED, cases[i].label);
        CHECK_CASE(other->place == SIM_PUBLISHED, cases[i].label);
        if (cases[i].behind)
            CHECK_CASE(second->place == SIM_PARKED && second->state == cases[i].behind &&
                           second->attempts == 0 && second->submitted == 0,
                       cases[i].label);
        else
            CHECK_CASE(second->place == SIM_PUBLISHED, cases[i].label);
        CHECK_CASE((second->place == SIM_PUBLISHED) == cases[i].published, cases[i].label);
        sim_bench_free(bench);
    }
}

/* The head looks dead, but only its committed death frees the key. */
static void test_dead_head_is_settled_first(void **state)
{
    (void)state;
    sim_bench *bench = bench_of((pr_relay_options){0});
    sim_add(bench->world, "k", AT("large"));
    sim_row *second = sim_add(bench->world, "k", OK);
    bench->store.fail_next[SIM_SETTLE] = 1;
    while (bench->store.calls[SIM_SETTLE] == 0)
        sim_run_for(bench->world, bench->relay, 100);
    assert_int_equal(second->submitted, 0);
    sim_run_for(bench->world, bench->relay, SECONDS(1));
    assert_int_equal(second->place, SIM_PUBLISHED);
    sim_bench_free(bench);
}

/* A successor that is held goes when its head was published, in order, as one run. */
static void test_held_run(void **state)
{
    (void)state;
    sim_bench *bench = bench_of((pr_relay_options){.backoff_initial_ms = 100});
    sim_row *head = sim_add(bench->world, "k", AT("return"));
    for (int i = 0; i < 50; i++)
        sim_add(bench->world, "k", OK);
    sim_run_for(bench->world, bench->relay, MS(50));
    assert_int_equal(sim_count(bench->world, SIM_PARKED, PR_STATE_HELD), 50);
    for (int i = 0; i < 50; i++)
        sim_add(bench->world, "k", OK); /* blocked when claimed: held at once */
    sim_run_for(bench->world, bench->relay, MS(40));
    assert_int_equal(sim_count(bench->world, SIM_PARKED, PR_STATE_HELD), 100);
    pr__format(head->destination, sizeof head->destination, "%s", OK);
    sim_run_for(bench->world, bench->relay, SECONDS(3));
    assert_int_equal(sim_count(bench->world, SIM_PUBLISHED, 0), 101);
    assert_int_equal(sim_snapshot(bench->relay).held, 100);
    sim_bench_free(bench);
}

/* A lost send: it and the later ones of its key go to rest, none is parked, nothing is charged. */
static void test_lost(void **state)
{
    (void)state;
    sim_bench *bench = bench_of((pr_relay_options){0});
    sim_row *lost = sim_add(bench->world, "k", AT("lose"));
    sim_row *second = sim_add(bench->world, "k", AT("refuse"));
    sim_row *other = sim_add(bench->world, "", OK);
    while (bench->store.calls[SIM_SETTLE] == 0)
        sim_run_for(bench->world, bench->relay, 100);
    assert_int_equal(lost->place, SIM_LOG);
    assert_int_equal(second->place, SIM_LOG);
    assert_int_equal(second->submitted, 0);
    assert_int_equal(other->place, SIM_PUBLISHED);
    pr__format(lost->destination, sizeof lost->destination, "%s", OK);
    sim_run_for(bench->world, bench->relay, SECONDS(1));
    assert_int_equal(lost->place, SIM_PUBLISHED);
    assert_int_equal(lost->attempts, 0);
    assert_int_equal(second->state, PR_STATE_FAILED);
    assert_true(sim_snapshot(bench->relay).lost >= 1);
    sim_bench_free(bench);
}

static void test_expired(void **state)
{
    (void)state;
    static const struct {
        const char *label;
        int64_t host_offset_us, expires_in_us;
        bool sent;
        int64_t expires_at_us; /* instead, unless it is 0 */
    } cases[] = {
        {"not yet", 0, SECONDS(10), true, 0},
        {"passed", 0, -1, false, 0},
        {"passed before 1970", 0, 0, false, -1},
        {"the host's clock is an hour ahead", SECONDS(3600), SECONDS(10), true, 0},
        {"the host's clock is an hour behind", -SECONDS(3600), -1, false, 0},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        sim_bench *bench = bench_of((pr_relay_options){0});
        bench->world->wall_offset_us = cases[i].host_offset_us;
        sim_row *row = sim_add(bench->world, "", OK);
        row->expires_at_us = cases[i].expires_at_us ? cases[i].expires_at_us
                                                    : bench->world->now_us + cases[i].expires_in_us;
        sim_run_for(bench->world, bench->relay, SECONDS(1));
        CHECK_CASE((row->submitted == 1) == cases[i].sent, cases[i].label);
        CHECK_CASE(cases[i].sent || (row->state == PR_STATE_DEAD && row->attempts == 0),
                   cases[i].label);
        CHECK_CASE(sim_snapshot(bench->relay).expired == (cases[i].sent ? 0U : 1U), cases[i].label);
        sim_bench_free(bench);
    }
}

/* It expires while it waits for its turn in a slow round: judged when it would be sent. */
static void test_expires_in_hand(void **state)
{
    (void)state;
    sim_bench *bench = bench_of((pr_relay_options){.messages_per_second = 1});
    sim_add(bench->world, "", OK);
    sim_row *second = sim_add(bench->world, "", OK);
    second->expires_at_us = bench->world->now_us + MS(900);
    sim_run_for(bench->world, bench->relay, SECONDS(3));
    assert_int_equal(second->submitted, 0);
    assert_int_equal(second->state, PR_STATE_DEAD);
    assert_non_null(strstr(second->error, "expires_at"));
    sim_bench_free(bench);
}

/* A delayed one is promoted when due, and goes as any other. */
static void test_promotes(void **state)
{
    (void)state;
    sim_bench *bench = bench_of((pr_relay_options){0});
    sim_row *row = sim_add(bench->world, "", OK);
    bench->world->delayed[0] = *row;
    pr__format(bench->world->delayed[0].message_id, PR_UUID_TEXT_SIZE, "delayed");
    bench->world->delayed_at_us[0] = bench->world->now_us + MS(1234);
    bench->world->delayed_count = 1;
    sim_run_for(bench->world, bench->relay, MS(1230));
    assert_int_equal(bench->world->row_count, 1);
    sim_run_for(bench->world, bench->relay, MS(20));
    assert_int_equal(bench->world->row_count, 2);
    assert_int_equal(bench->world->rows[1].place, SIM_PUBLISHED);
    assert_int_equal(bench->observed[PR_OBSERVE_PROMOTED], 1);
    sim_bench_free(bench);
}

/* Parked rows are served under a steady stream of fresh ones, and fresh ones beside a stream of
   parked ones. */
static void test_fair(void **state)
{
    (void)state;
    sim_bench *bench =
        bench_of((pr_relay_options){.backoff_initial_ms = 100, .retry_max = 1000, .batch_max = 4});
    sim_row *failing = sim_add(bench->world, "", AT("refuse"));
    for (int i = 0; i < 4000; i++)
        sim_add(bench->world, "", OK);
    bench->store.takes_us[SIM_SETTLE] = MS(1); /* the backlog lasts a second */
    while (sim_count(bench->world, SIM_PUBLISHED, 0) < 3000)
        sim_run_for(bench->world, bench->relay, MS(5));
    assert_true(failing->submitted >= 2);
    assert_true(bench->store.calls[SIM_BACKLOG] >= 1);
    sim_bench_free(bench);

    bench = bench_of(
        (pr_relay_options){.backoff_initial_ms = 1, .backoff_max_ms = 1, .retry_max = 100000});
    for (int i = 0; i < 600; i++)
        sim_add(bench->world, "", AT("refuse"));
    sim_run_for(bench->world, bench->relay, MS(100));
    sim_row *fresh = sim_add(bench->world, "", OK);
    bench->store.changed = true;
    sim_run_for(bench->world, bench->relay, MS(600));
    assert_int_equal(fresh->place, SIM_PUBLISHED);
    sim_bench_free(bench);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ends),      cmocka_unit_test(test_unreadable),
        cmocka_unit_test(test_publishes), cmocka_unit_test(test_window),
        cmocka_unit_test(test_backoff),   cmocka_unit_test(test_jitter),
        cmocka_unit_test(test_order),     cmocka_unit_test(test_dead_head_is_settled_first),
        cmocka_unit_test(test_held_run),  cmocka_unit_test(test_lost),
        cmocka_unit_test(test_expired),   cmocka_unit_test(test_expires_in_hand),
        cmocka_unit_test(test_promotes),  cmocka_unit_test(test_fair),
    };
    return RUN_TESTS(tests);
}
