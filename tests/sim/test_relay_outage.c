/*
 * Transports and destinations that are down: who waits, what is parked, what is charged (nothing),
 * and how a message that kills the connection is found.
 */
#include "sim/sim.h"

#include "base/text.h"

#define OK       "mem://topic/urn:message:sim:ok"
#define TWO      "two://topic/urn:message:sim:ok"
#define AT(word) "mem://topic/urn:message:sim:" word

static sim_bench *bench_of(pr_relay_options opt, uint32_t transports)
{
    opt.jitter_percent = PR_JITTER_NONE;
    return sim_bench_new(opt, transports);
}

static uint32_t charged(const sim_world *world)
{
    uint32_t sum = 0;
    for (uint32_t i = 0; i < world->row_count; i++)
        sum += world->rows[i].attempts;
    return sum;
}

static uint32_t parked(const sim_world *world)
{
    uint32_t sum = 0;
    for (uint32_t i = 0; i < world->row_count; i++)
        sum += world->rows[i].place == SIM_PARKED;
    return sum;
}

/* The only transport is down, in each of the ways there are: nothing is charged, nothing parked. */
static void test_only_transport(void **state)
{
    (void)state;
    enum { OPEN, SUBMIT, POLL, LOSE, BLOCK, TAKES_NOTHING, HANG, WAYS };
    static const char *const labels[WAYS] = {"open fails",  "submit fails", "poll fails",
                                             "all is lost", "blocked",      "takes nothing",
                                             "no outcomes"};
    for (int way = 0; way < WAYS; way++) {
        sim_bench *bench = bench_of((pr_relay_options){.publish_deadline_ms = 2000}, 1);
        sim_transport *t = &bench->transport;
        for (int i = 0; i < 40; i++)
            sim_add(bench->world, i % 2 ? "k" : "",
                    way == LOSE   ? AT("lose")
                    : way == HANG ? AT("hang")
                                  : OK);
        t->refuses_open = way == OPEN;
        t->fail_submits = way == SUBMIT ? 1000000 : 0;
        t->fail_polls = way == POLL ? 1000000 : 0;
        t->state = way == BLOCK ? PR_TRANSPORT_BLOCKED : PR_TRANSPORT_UP;
        t->takes_nothing = way == TAKES_NOTHING;
        t->overdue_us = MS(2000);
        uint32_t steps = sim_run_for(bench->world, bench->relay, SECONDS(7200));
        CHECK_CASE(charged(bench->world) == 0, labels[way]);
        CHECK_CASE(parked(bench->world) == 0, labels[way]);
        CHECK_CASE(steps < 500000, labels[way]); /* no busy waiting: two hours */
        pr_relay_snapshot snapshot = sim_snapshot(bench->relay);
        CHECK_CASE(snapshot.health != PR_HEALTH_HEALTHY, labels[way]);
        CHECK_CASE(snapshot.health_reason[0] != '\0', labels[way]);
        CHECK_CASE(snapshot.dead + snapshot.failed + snapshot.deferred == 0, labels[way]);
        t->refuses_open = t->takes_nothing = false;
        t->fail_submits = t->fail_polls = 0;
        t->state = PR_TRANSPORT_UP;
        for (uint32_t i = 0; i < bench->world->row_count; i++)
            pr__format(bench->world->rows[i].destination, 80, "%s", OK);
        for (uint32_t i = 0; i < t->flying_count; i++)
            t->flying[i].fate.never = false;
        sim_run_for(bench->world, bench->relay, SECONDS(31));
        CHECK_CASE(sim_count(bench->world, SIM_PUBLISHED, 0) == 40, labels[way]);
        CHECK_CASE(sim_snapshot(bench->relay).health == PR_HEALTH_HEALTHY, labels[way]);
        sim_bench_free(bench);
    }
}

/* An outage of the only transport costs one attempt a step of the backoff. */
static void test_open_backoff(void **state)
{
    (void)state;
    sim_bench *bench = bench_of((pr_relay_options){0}, 1);
    bench->transport.refuses_open = true;
    sim_add(bench->world, "", OK);
    sim_run_for(bench->world, bench->relay, SECONDS(200));
    static const int64_t gaps_ms[] = {50, 100, 200, 400, 800, 1600, 3000, 3000, 3000, 3000};
    assert_true(bench->transport.opens > COUNT_OF(gaps_ms));
    for (uint32_t i = 0; i < COUNT_OF(gaps_ms); i++)
        assert_int_equal(bench->transport.open_times[i + 1] - bench->transport.open_times[i],
                         MS(gaps_ms[i]));
    assert_int_equal(bench->store.calls[SIM_CLAIM], 0);
    assert_int_equal(sim_snapshot(bench->relay).health, PR_HEALTH_UNHEALTHY);
    sim_bench_free(bench);
}

/* The connection goes in mid round: what was confirmed is settled, the rest is sent again. */
static void test_connection_lost(void **state)
{
    (void)state;
    sim_bench *bench = bench_of((pr_relay_options){0}, 1);
    bench->transport.base.window = 5;
    for (int i = 0; i < 50; i++)
        sim_add(bench->world, "", OK);
    while (bench->transport.submitted < 20)
        sim_run_for(bench->world, bench->relay, 50);
    bench->transport.fail_submits = 1;
    sim_run_for(bench->world, bench->relay, SECONDS(2));
    assert_int_equal(sim_count(bench->world, SIM_PUBLISHED, 0), 50);
    assert_int_equal(charged(bench->world), 0);
    for (uint32_t i = 0; i < 50; i++)
        assert_int_equal(bench->world->rows[i].confirmed, 1);
    sim_bench_free(bench);
}

/* One of two transports is down: its messages are deferred up to the cap of each lane, uncharged;
   the other's go on at once; beyond the cap the lane waits and says so. */
static void test_one_of_two(void **state)
{
    (void)state;
    sim_bench *bench = bench_of((pr_relay_options){.parked_cap_per_lane = 5}, 2);
    bench->second.refuses_open = true;
    for (int i = 0; i < 200; i++)
        sim_add(bench->world, "", i % 2 ? TWO : OK);
    sim_run_for(bench->world, bench->relay, SECONDS(1));
    uint32_t by_lane[4] = {0}, ok = 0, mine = 0;
    for (uint32_t i = 0; i < bench->world->row_count; i++) {
        const sim_row *row = &bench->world->rows[i];
        by_lane[row->lane] += row->place == SIM_PARKED;
        ok += row->place == SIM_PUBLISHED;
        mine += strncmp(row->destination, "mem", 3) == 0;
    }
    assert_int_equal(charged(bench->world), 0);
    assert_int_equal(ok, mine);
    for (int lane = 0; lane < 4; lane++)
        assert_in_range(by_lane[lane], 0, 5);
    assert_int_equal(parked(bench->world), 10); /* lanes 0 and 2 hold the even ids */
    pr_relay_snapshot snapshot = sim_snapshot(bench->relay);
    assert_int_equal(snapshot.deferred, 10);
    assert_int_equal(snapshot.health, PR_HEALTH_DEGRADED);
    assert_string_equal(snapshot.health_reason,
                        "transport 'two' is down: no answer from the simulated broker");
    assert_int_equal(snapshot.consecutive_failures, 0);
    assert_non_null(strstr(bench->breaker_texts, "of its messages are parked already"));
    assert_int_equal(bench->store.last_skipped & ~5ULL, 0); /* only full lanes are left alone */

    /* new messages of the other transport, in lanes that do not wait, go on without delay */
    for (int i = 0; i < 8; i++)
        sim_add(bench->world, "", OK);
    bench->store.changed = true;
    sim_run_for(bench->world, bench->relay, MS(200));
    for (uint32_t i = 200; i < 208; i++) {
        if (bench->world->rows[i].lane % 2 == 1) {
            assert_int_equal(bench->world->rows[i].place, SIM_PUBLISHED);
        }
    }
    uint32_t rounds = bench->store.calls[SIM_SETTLE];
    sim_run_for(bench->world, bench->relay, SECONDS(10));
    assert_in_range(bench->store.calls[SIM_SETTLE] - rounds, 1, 60); /* waiting is not spinning */

    bench->second.refuses_open = false;
    sim_run_for(bench->world, bench->relay, SECONDS(70));
    assert_int_equal(sim_count(bench->world, SIM_PUBLISHED, 0), 208);
    assert_int_equal(charged(bench->world), 0);
    assert_int_equal(sim_snapshot(bench->relay).health, PR_HEALTH_HEALTHY);
    sim_bench_free(bench);
}

/* A store that does not heed lanes_skipped costs rounds, but neither spins nor stops the others. */
static void test_skip_ignored(void **state)
{
    (void)state;
    sim_bench *bench = bench_of((pr_relay_options){.parked_cap_per_lane = 1}, 2);
    bench->store.ignores_skipped = true;
    bench->second.refuses_open = true;
    for (int i = 0; i < 40; i++)
        sim_add(bench->world, "", i % 2 ? TWO : OK);
    sim_run_for(bench->world, bench->relay, SECONDS(20));
    assert_in_range(bench->store.calls[SIM_SETTLE], 10, 500);
    sim_row *row = sim_add(bench->world, "", OK);
    sim_run_for(bench->world, bench->relay, SECONDS(1));
    assert_int_equal(row->place, SIM_PUBLISHED);
    sim_bench_free(bench);
}

/* A destination that answers nothing, on a transport that serves others: its breaker opens,
   half-opens at 1, 2, 4 … s, closes; others are not delayed; nothing is charged. */
static void test_breaker(void **state)
{
    (void)state;
    sim_bench *bench = bench_of((pr_relay_options){.breaker_failures = 3}, 1);
    for (int i = 0; i < 20; i++)
        sim_add(bench->world, "", AT("lose"));
    for (int i = 0; i < 30; i++) {
        sim_add(bench->world, "", OK);
        bench->store.changed = true;
        sim_run_for(bench->world, bench->relay, MS(20));
    }
    pr_relay_snapshot snapshot = sim_snapshot(bench->relay);
    assert_int_equal(snapshot.breakers_open, 1);
    assert_int_equal(sim_count(bench->world, SIM_PUBLISHED, 0), 30);
    assert_int_equal(sim_count(bench->world, SIM_PARKED, PR_STATE_FAILED), 20);
    assert_int_equal(charged(bench->world), 0);
    assert_non_null(strstr(bench->breaker_texts, "open;"));
    assert_non_null(strstr(bench->world->rows[0].error, "breaker is open"));

    uint32_t before = bench->transport.submitted;
    sim_run_for(bench->world, bench->relay, SECONDS(16)); /* probes alone: 1, 2, 4, 8 s apart */
    assert_in_range(bench->transport.submitted - before, 3, 5);
    assert_non_null(strstr(bench->breaker_texts, "half-open;"));
    sim_bench_free(bench);
}

static void lose_while_told(sim_transport *transport, const sim_row *row, sim_fate *ret_fate)
{
    if (*(const bool *)transport->user && strstr(row->destination, "sick"))
        ret_fate->outcome = PR_SUBMIT_LOST;
}

static void test_breaker_closes(void **state)
{
    (void)state;
    sim_bench *bench = bench_of((pr_relay_options){.breaker_failures = 2}, 1);
    bool sick = true;
    bench->transport.decide = lose_while_told;
    bench->transport.user = &sick;
    for (int i = 0; i < 40; i++) {
        sim_add(bench->world, i % 4 ? "" : "k", i % 2 ? OK : AT("sick"));
        bench->store.changed = true;
        sim_run_for(bench->world, bench->relay, MS(30));
    }
    assert_int_equal(sim_snapshot(bench->relay).breakers_open, 1);
    sick = false;
    sim_run_for(bench->world, bench->relay, SECONDS(40));
    assert_int_equal(sim_snapshot(bench->relay).breakers_open, 0);
    assert_int_equal(sim_count(bench->world, SIM_PUBLISHED, 0), 40);
    assert_int_equal(charged(bench->world), 0);
    assert_non_null(strstr(bench->breaker_texts, "closed;"));
    sim_bench_free(bench);
}

/* Refusals and returns are answers: they charge, and open nothing. */
static void test_answers_open_nothing(void **state)
{
    (void)state;
    sim_bench *bench = bench_of((pr_relay_options){.breaker_failures = 2}, 1);
    for (int i = 0; i < 30; i++)
        sim_add(bench->world, "", i % 3 == 0 ? OK : i % 3 == 1 ? AT("refuse") : AT("return"));
    sim_run_for(bench->world, bench->relay, SECONDS(1));
    assert_int_equal(sim_snapshot(bench->relay).breakers_open, 0);
    assert_int_equal(charged(bench->world), 20);
    sim_bench_free(bench);
}

/* A destination that hangs until the deadline: what goes elsewhere does not wait for it. */
static void test_hang_delays_no_other(void **state)
{
    (void)state;
    sim_bench *bench = bench_of((pr_relay_options){.breaker_failures = 2}, 1);
    sim_row *hanging = sim_add(bench->world, "", AT("hang")); /* lane 1 */
    sim_add(bench->world, "", OK);
    sim_run_for(bench->world, bench->relay, MS(300));
    assert_int_equal(hanging->place, SIM_LOG);
    int64_t most_us = 0;
    for (int i = 0; i < 60; i++) {
        sim_row *row = sim_add(bench->world, "", OK);
        bench->store.changed = true;
        int64_t began_us = bench->world->now_us;
        if (row->lane == hanging->lane)
            continue;
        while (row->place != SIM_PUBLISHED && bench->world->now_us < began_us + SECONDS(5))
            sim_run_for(bench->world, bench->relay, MS(1));
        assert_int_equal(row->place, SIM_PUBLISHED);
        if (bench->world->now_us - began_us > most_us)
            most_us = bench->world->now_us - began_us;
    }
    assert_true(most_us < MS(300));
    sim_run_for(bench->world, bench->relay, SECONDS(60));
    assert_int_equal(charged(bench->world), 0);
    bench->transport.closed = true; /* so that what still flies comes back */
    sim_bench_free(bench);
}

/* A message whose send kills the connection is found: sent alone, lost twice more, charged. Its
   neighbours are published once, uncharged. */
static void test_killer(void **state)
{
    (void)state;
    sim_bench *bench = bench_of((pr_relay_options){.retry_max = 1, .backoff_initial_ms = 50}, 1);
    sim_row *killer = sim_add(bench->world, "k", AT("kill"));
    sim_row *behind = sim_add(bench->world, "k", OK);
    for (int i = 0; i < 100; i++)
        sim_add(bench->world, "", OK);
    for (int i = 0; i < 100 && killer->attempts == 0; i++) {
        sim_add(bench->world, "", OK); /* the transport serves others meanwhile */
        bench->store.changed = true;
        sim_run_for(bench->world, bench->relay, MS(100));
    }
    assert_int_equal(killer->attempts, 1);
    assert_in_range(killer->submitted, 3, 8); /* it needs others to be served in between */
    assert_non_null(strstr(killer->error, "twice alone"));
    assert_int_equal(behind->submitted, 0);
    for (int i = 0; i < 100 && killer->state != PR_STATE_DEAD; i++) {
        sim_add(bench->world, "", OK);
        bench->store.changed = true;
        sim_run_for(bench->world, bench->relay, MS(100));
    }
    assert_int_equal(killer->state, PR_STATE_DEAD);
    sim_run_for(bench->world, bench->relay, SECONDS(5));
    assert_int_equal(behind->place, SIM_PUBLISHED);
    for (uint32_t i = 1; i < bench->world->row_count; i++) {
        assert_int_equal(bench->world->rows[i].place, SIM_PUBLISHED);
        assert_int_equal(bench->world->rows[i].attempts, 0);
        assert_int_equal(bench->world->rows[i].lost_as_killer, 0);
    }
    sim_bench_free(bench);
}

/* The first time it is refused; from then on its send kills the connection. */
static void refuse_then_kill(sim_transport *transport, const sim_row *row, sim_fate *ret_fate)
{
    if (strcmp(row->destination, AT("kill")) != 0)
        return;
    sim_row *own = &transport->world->rows[row->id - 1];
    own->refused += row->submitted == 0;
    ret_fate->outcome = PR_SUBMIT_REFUSED;
    ret_fate->kills = row->submitted > 0;
}

/* One that is parked already is found the same way: each charge takes two losses alone, and after
   the first charge it goes alone from the start. */
static void test_killer_parked(void **state)
{
    (void)state;
    sim_bench *bench = bench_of((pr_relay_options){.retry_max = 5, .backoff_initial_ms = 50}, 1);
    bench->transport.decide = refuse_then_kill;
    sim_row *killer = sim_add(bench->world, "k", AT("kill"));
    uint32_t submitted[4] = {0};
    for (int i = 0; i < 400 && killer->attempts < 3; i++) {
        sim_add(bench->world, "", OK); /* the transport serves others meanwhile */
        bench->store.changed = true;
        sim_run_for(bench->world, bench->relay, MS(100));
        submitted[killer->attempts] = killer->submitted;
    }
    assert_int_equal(killer->attempts, 3);
    assert_in_range(submitted[2], 4, 8);            /* refused, lost in company, lost alone twice */
    assert_in_range(killer->lost_as_killer, 5, 12); /* and twice more for the third charge */
    assert_non_null(strstr(killer->error, "twice alone"));
    sim_bench_free(bench);
}

/* With nobody else served there is no telling it from an outage: it is not charged. */
static void test_killer_alone(void **state)
{
    (void)state;
    sim_bench *bench = bench_of((pr_relay_options){0}, 1);
    sim_row *killer = sim_add(bench->world, "", AT("kill"));
    sim_run_for(bench->world, bench->relay, SECONDS(600));
    assert_int_equal(killer->attempts, 0);
    assert_int_equal(killer->place, SIM_LOG);
    assert_in_range(killer->submitted, 5, 60); /* at the backoff's pace */
    sim_bench_free(bench);
}

/* Submit refuses one message by its content: that one is charged, its neighbours are sent. */
static void refuse_content(sim_transport *transport, const sim_row *row, sim_fate *ret_fate)
{
    (void)transport;
    (void)row;
    ret_fate->outcome = PR_SUBMIT_CONFIRMED;
}

static void test_submit_refuses_content(void **state)
{
    (void)state;
    sim_bench *bench = bench_of((pr_relay_options){0}, 1);
    bench->transport.decide = refuse_content;
    for (int i = 0; i < 10; i++)
        sim_add(bench->world, "", OK);
    bench->transport.submit_status = PR_E_LIMIT;
    bench->transport.fail_submits = 2;       /* the ten, then the first of them alone */
    sim_row *first = &bench->world->rows[3]; /* lane 0 is sent first */
    first->refused = 1;
    sim_run_for(bench->world, bench->relay, SECONDS(1));
    assert_int_equal(first->attempts, 1);
    assert_int_equal(charged(bench->world), 1);
    assert_int_equal(sim_count(bench->world, SIM_PUBLISHED, 0), 9);
    assert_int_equal(bench->transport.submits, 11);
    sim_bench_free(bench);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_only_transport),         cmocka_unit_test(test_open_backoff),
        cmocka_unit_test(test_connection_lost),        cmocka_unit_test(test_one_of_two),
        cmocka_unit_test(test_skip_ignored),           cmocka_unit_test(test_breaker),
        cmocka_unit_test(test_breaker_closes),         cmocka_unit_test(test_answers_open_nothing),
        cmocka_unit_test(test_hang_delays_no_other),   cmocka_unit_test(test_killer),
        cmocka_unit_test(test_killer_parked),          cmocka_unit_test(test_killer_alone),
        cmocka_unit_test(test_submit_refuses_content),
    };
    return RUN_TESTS(tests);
}
