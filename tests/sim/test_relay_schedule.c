/*
 * When the relay does what, in exact virtual times: polling, backoff of rounds, rate, counting the
 * backlog, leases, stop; and what its snapshot says meanwhile.
 */
#include "sim/sim.h"

#include "base/text.h"

#define OK "mem://topic/urn:message:sim:ok"

static sim_bench *bench_of(pr_relay_options opt)
{
    opt.jitter_percent = PR_JITTER_NONE;
    return sim_bench_new(opt, 1);
}

static void check_gaps(const int64_t *times, uint32_t count, const int64_t *gaps_ms,
                       uint32_t gap_count, const char *label)
{
    if (count < gap_count + 1)
        fail_msg("case '%s': %u calls, wanted %u", label, count, gap_count + 1);
    for (uint32_t i = 0; i < gap_count; i++) {
        if (times[i + 1] - times[i] != MS(gaps_ms[i]))
            fail_msg("case '%s': gap %u is %lld us, wanted %lld ms", label, i,
                     (long long)(times[i + 1] - times[i]), (long long)gaps_ms[i]);
    }
}

/* Nothing happens before the first step, and a step does at most one call of a port. */
static void test_one_call_a_step(void **state)
{
    (void)state;
    sim_bench *bench = bench_of((pr_relay_options){0});
    for (int i = 0; i < 600; i++)
        sim_add(bench->world, i % 5 ? "" : "k", OK);
    assert_int_equal(bench->store.calls_all + bench->transport.calls_all, 0);
    assert_false(sim_snapshot(bench->relay).running);
    for (int i = 0; i < 400; i++) {
        uint32_t before = bench->store.calls_all + bench->transport.calls_all;
        int64_t wait_ms = -1;
        pr_status status = pr_relay_step(bench->relay, &wait_ms, NULL);
        assert_int_equal(status, PR_OK);
        uint32_t calls = bench->store.calls_all + bench->transport.calls_all - before;
        assert_in_range(calls, 0, 1);
        assert_true(calls == 1 || wait_ms > 0); /* it sleeps only when there is nothing to do */
        bench->world->now_us += MS(wait_ms);
    }
    assert_int_equal(sim_count(bench->world, SIM_PUBLISHED, 0), 600);
    assert_true(sim_snapshot(bench->relay).running);
    sim_bench_free(bench);
}

/* It sleeps only after an empty round: a backlog is drained without the clock going on. */
static void test_no_sleep_between_rounds(void **state)
{
    (void)state;
    sim_bench *bench = bench_of((pr_relay_options){.batch_max = 10});
    for (int i = 0; i < 500; i++)
        sim_add(bench->world, "", OK);
    int64_t began_us = bench->world->now_us;
    while (sim_count(bench->world, SIM_PUBLISHED, 0) < 500) {
        int64_t wait_ms = 0;
        assert_int_equal(pr_relay_step(bench->relay, &wait_ms, NULL), PR_OK);
        assert_int_equal(wait_ms, 0);
    }
    /* confirmations take 100 us a window */
    assert_true(bench->world->now_us - began_us < MS(20));
    sim_bench_free(bench);
}

static void test_polling(void **state)
{
    (void)state;
    sim_bench *bench = bench_of((pr_relay_options){0});
    sim_run_for(bench->world, bench->relay, SECONDS(10)); /* the first probe, busy, then idle */
    memset(bench->store.calls, 0, sizeof bench->store.calls);
    int64_t began_us = bench->world->now_us;
    sim_run_for(bench->world, bench->relay, SECONDS(10));
    assert_in_range(bench->store.calls[SIM_CHANGED], 178, 182); /* or a claim */
    assert_in_range(bench->store.calls[SIM_CLAIM], 19, 21);     /* at least each 500 ms */
    assert_int_equal(bench->store.calls[SIM_SETTLE], 0);
    assert_int_equal(bench->store.calls[SIM_MAINTAIN], 0);
    assert_in_range(bench->world->now_us - began_us, SECONDS(10), SECONDS(10) + MS(60));

    /* a change: at the busy pace for 1 s, then idle again */
    bench->store.changed = true;
    sim_run_for(bench->world, bench->relay, MS(60));
    memset(bench->store.calls, 0, sizeof bench->store.calls);
    sim_run_for(bench->world, bench->relay, MS(800));
    assert_in_range(bench->store.calls[SIM_CLAIM], 158, 162);
    assert_int_equal(bench->store.calls[SIM_CHANGED], 0);
    sim_run_for(bench->world, bench->relay, MS(500));
    memset(bench->store.calls, 0, sizeof bench->store.calls);
    sim_run_for(bench->world, bench->relay, SECONDS(2));
    assert_in_range(bench->store.calls[SIM_CLAIM], 3, 5);
    sim_bench_free(bench);
}

/* A commit that a probe saw too early is found at the busy pace; one that nobody tells of within
   the unconditional claim. */
static void test_found(void **state)
{
    (void)state;
    static const struct {
        const char *label;
        bool changed, woken;
        int64_t within_ms;
    } cases[] = {
        {"nobody tells", false, false, 501},
        {"the probe tells", true, false, 51},
        {"woken in the process", false, true, 6},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        sim_bench *bench = bench_of((pr_relay_options){0});
        sim_run_for(bench->world, bench->relay, SECONDS(5) + MS(7));
        sim_row *row = sim_add(bench->world, "", OK);
        bench->store.changed = cases[i].changed;
        if (cases[i].woken)
            pr_relay_wake(bench->relay);
        int64_t began_us = bench->world->now_us;
        while (row->place != SIM_PUBLISHED && bench->world->now_us < began_us + SECONDS(2))
            sim_run_for(bench->world, bench->relay, 500);
        CHECK_CASE(bench->world->now_us - began_us <= MS(cases[i].within_ms), cases[i].label);
        sim_bench_free(bench);
    }
}

static void test_round_backoff(void **state)
{
    (void)state;
    sim_bench *bench = bench_of((pr_relay_options){0});
    sim_run_for(bench->world, bench->relay, SECONDS(5));
    assert_int_equal(sim_snapshot(bench->relay).health, PR_HEALTH_HEALTHY);
    memset(bench->store.calls, 0, sizeof bench->store.calls);
    bench->store.calls_all = 0;
    bench->store.down = true;
    int64_t times[16];
    uint32_t count = 0, steps = 0;
    while (count < 14) { /* one attempt a step of the backoff */
        uint32_t before = bench->store.calls_all;
        int64_t at_us = bench->world->now_us, wait_ms = 0;
        pr_error err = PR_ERROR_INIT;
        pr_status status = pr_relay_step(bench->relay, &wait_ms, &err);
        if (bench->store.calls_all > before) {
            check_error(status, &err, PR_E_BACKEND, "simulated database is down", "outage");
            times[count++] = at_us;
        }
        assert_true(++steps < 60); /* the processor idles */
        bench->world->now_us += MS(wait_ms);
    }
    static const int64_t gaps_ms[] = {50,   100,   200,   400,   800,   1600, 3200,
                                      6400, 12800, 25600, 30000, 30000, 30000};
    check_gaps(times, count, gaps_ms, COUNT_OF(gaps_ms), "outage");
    pr_relay_snapshot snapshot = sim_snapshot(bench->relay);
    assert_int_equal(snapshot.health, PR_HEALTH_UNHEALTHY);
    assert_non_null(strstr(snapshot.health_reason, "simulated database is down"));
    assert_int_equal(snapshot.consecutive_failures, 14);
    assert_int_equal(bench->observed[PR_OBSERVE_ROUND_FAILED], 14);

    /* it resumes by itself, and one good round resets */
    bench->store.down = false;
    sim_row *row = sim_add(bench->world, "", OK);
    sim_run_for(bench->world, bench->relay, SECONDS(31));
    assert_int_equal(row->place, SIM_PUBLISHED);
    assert_int_equal(sim_snapshot(bench->relay).health, PR_HEALTH_HEALTHY);
    assert_int_equal(sim_snapshot(bench->relay).consecutive_failures, 0);
    bench->store.fail_next[SIM_CLAIM] = 1;
    uint32_t before = bench->store.calls[SIM_CLAIM];
    sim_run_for(bench->world, bench->relay, MS(600));
    assert_true(bench->store.calls[SIM_CLAIM] >= before + 2);
    sim_bench_free(bench);
}

static void test_round_jitter(void **state)
{
    (void)state;
    bool shorter = false, longer = false;
    for (int i = 0; i < 20; i++) {
        sim_bench *bench = sim_bench_new((pr_relay_options){0}, 1);
        bench->world->random_state = (uint64_t)i * 77777 + 3;
        bench->store.down = true;
        int64_t first_us = 0, second_us = 0;
        while (second_us == 0) {
            uint32_t before = bench->store.calls_all;
            int64_t at_us = bench->world->now_us, wait_ms = 0;
            pr_status status = pr_relay_step(bench->relay, &wait_ms, NULL);
            (void)status;
            if (bench->store.calls_all > before)
                *(first_us ? &second_us : &first_us) = at_us;
            bench->world->now_us += MS(wait_ms);
        }
        assert_in_range(second_us - first_us, MS(50) * 3 / 4, MS(50) * 5 / 4 + MS(1));
        shorter |= second_us - first_us < MS(48);
        longer |= second_us - first_us > MS(52);
        sim_bench_free(bench);
    }
    assert_true(shorter && longer);
}

static void test_rate(void **state)
{
    (void)state;
    static const struct {
        const char *label;
        double rate;
        int64_t gap_us;
    } cases[] = {{"10 a second", 10, MS(100)}, {"3 a second", 3, 333334}, {"off", 0, 0}};
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        sim_bench *bench =
            bench_of((pr_relay_options){.messages_per_second = cases[i].rate, .batch_max = 5});
        for (int k = 0; k < 10; k++)
            sim_add(bench->world, "", OK);
        sim_run_for(bench->world, bench->relay, SECONDS(5));
        CHECK_CASE(sim_count(bench->world, SIM_PUBLISHED, 0) == 10, cases[i].label);
        const sim_transport *t = &bench->transport;
        if (cases[i].gap_us == 0) {
            CHECK_CASE(t->submits == 2, cases[i].label);
        } else {
            CHECK_CASE(t->submits == 10, cases[i].label);
            for (uint32_t k = 1; k < 10; k++) {
                int64_t gap_us = t->submit_times[k] - t->submit_times[k - 1];
                if (k == 5) /* a new round owes nothing */
                    CHECK_CASE(gap_us < cases[i].gap_us / 2, cases[i].label);
                else
                    CHECK_CASE(gap_us >= cases[i].gap_us && gap_us <= cases[i].gap_us + MS(1),
                               cases[i].label);
            }
        }
        sim_bench_free(bench);
    }
}

static void test_health(void **state)
{
    (void)state;
    sim_bench *bench = bench_of((pr_relay_options){0});
    pr_relay_snapshot snapshot = sim_snapshot(bench->relay);
    assert_int_equal(snapshot.health, PR_HEALTH_DEGRADED);
    assert_string_equal(snapshot.health_reason, "the first round is not done yet");
    assert_false(snapshot.first_round_done);
    assert_int_equal(snapshot.last_round_at_us, 0);
    sim_run_for(bench->world, bench->relay, SECONDS(1));
    snapshot = sim_snapshot(bench->relay);
    assert_int_equal(snapshot.health, PR_HEALTH_HEALTHY);
    assert_string_equal(snapshot.health_reason, "");
    assert_true(snapshot.first_round_done && snapshot.last_round_at_us > 0);

    for (uint32_t failures = 1; failures <= 6; failures++) {
        bench->store.down = true;
        while (sim_snapshot(bench->relay).consecutive_failures < failures)
            sim_run_for(bench->world, bench->relay, MS(1));
        snapshot = sim_snapshot(bench->relay);
        assert_int_equal(snapshot.health, failures >= 5 ? PR_HEALTH_UNHEALTHY : PR_HEALTH_DEGRADED);
    }
    bench->store.down = false;
    sim_run_for(bench->world, bench->relay, SECONDS(30));
    assert_int_equal(sim_snapshot(bench->relay).health, PR_HEALTH_HEALTHY);

    bench->transport.state = PR_TRANSPORT_BLOCKED;
    sim_run_for(bench->world, bench->relay, MS(100));
    snapshot = sim_snapshot(bench->relay);
    assert_int_equal(snapshot.health, PR_HEALTH_DEGRADED);
    assert_string_equal(snapshot.health_reason, "transport 'mem' is blocked: memory alarm");
    sim_bench_free(bench);
}

static void test_backlog(void **state)
{
    (void)state;
    sim_bench *bench = bench_of((pr_relay_options){0});
    bench->transport.refuses_open = true; /* nothing is claimed */
    for (int i = 0; i < 7; i++)
        sim_add(bench->world, "", OK);
    bench->transport.refuses_open = false;
    bench->transport.takes_nothing = true;
    sim_run_for(bench->world, bench->relay, MS(20));
    pr_relay_snapshot snapshot = sim_snapshot(bench->relay);
    assert_true(snapshot.backlog_known);
    assert_int_equal(snapshot.backlog, 7);
    assert_int_equal(snapshot.oldest_pending_age_ms, 1234);
    bench->transport.takes_nothing = false;
    sim_run_for(bench->world, bench->relay, SECONDS(12));
    assert_in_range(bench->store.calls[SIM_BACKLOG], 3, 4); /* every 5 s */
    assert_int_equal(sim_snapshot(bench->relay).backlog, 0);

    /* a count that fails, or takes more than 2 s, changes nothing but what is known */
    static const struct {
        const char *label;
        uint32_t fails;
        int64_t takes_us;
        bool known;
    } cases[] = {{"fails", 1, 0, false},
                 {"too slow", 0, SECONDS(3), false},
                 {"slow, but known", 0, SECONDS(1), true},
                 {"fails again", 1, 0, false}};
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        uint32_t before = bench->store.calls[SIM_BACKLOG];
        bench->store.fail_next[SIM_BACKLOG] = cases[i].fails;
        bench->store.takes_us[SIM_BACKLOG] = cases[i].takes_us;
        while (bench->store.calls[SIM_BACKLOG] == before)
            sim_run_for(bench->world, bench->relay, MS(10));
        snapshot = sim_snapshot(bench->relay);
        CHECK_CASE(snapshot.backlog_known == cases[i].known, cases[i].label);
        CHECK_CASE(snapshot.health == PR_HEALTH_HEALTHY, cases[i].label);
        CHECK_CASE(snapshot.consecutive_failures == 0, cases[i].label);
    }
    sim_bench_free(bench);
}

/* Checkpoints are the relay's: once a second while something is written, never when idle. */
static void test_maintain(void **state)
{
    (void)state;
    sim_bench *bench = bench_of((pr_relay_options){0});
    bench->store.fail_next[SIM_MAINTAIN] = 1; /* is tried again, and fails no round */
    for (int i = 0; i < 50; i++) {
        sim_add(bench->world, "", OK);
        bench->store.changed = true;
        sim_run_for(bench->world, bench->relay, MS(100));
    }
    assert_in_range(bench->store.calls[SIM_MAINTAIN], 4, 7);
    assert_int_equal(bench->observed[PR_OBSERVE_ROUND_FAILED], 0);
    sim_run_for(bench->world, bench->relay, SECONDS(5));
    uint32_t idle = bench->store.calls[SIM_MAINTAIN];
    sim_run_for(bench->world, bench->relay, SECONDS(20));
    assert_int_equal(bench->store.calls[SIM_MAINTAIN], idle);
    sim_bench_free(bench);
}

/* A send that outlasts a third of the lease renews it; a short one does not. */
static void slow(sim_transport *transport, const sim_row *row, sim_fate *ret_fate)
{
    (void)row;
    ret_fate->after_us = *(const int64_t *)transport->user;
}

static void test_renews(void **state)
{
    (void)state;
    static const struct {
        const char *label;
        int64_t takes_us;
        uint32_t renews;
    } cases[] = {
        {"short", MS(900), 0}, {"long", MS(2500), 2}, {"longer than the lease", MS(8500), 8}};
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        sim_bench *bench = bench_of((pr_relay_options){.lease_ms = 3000});
        int64_t takes_us = cases[i].takes_us;
        bench->transport.decide = slow;
        bench->transport.user = &takes_us;
        sim_add(bench->world, "", OK);
        sim_run_for(bench->world, bench->relay, SECONDS(10));
        CHECK_CASE(sim_count(bench->world, SIM_PUBLISHED, 0) == 1, cases[i].label);
        CHECK_CASE(bench->store.calls[SIM_RENEW] == cases[i].renews, cases[i].label);
        CHECK_CASE(sim_snapshot(bench->relay).fenced == 0, cases[i].label);
        sim_bench_free(bench);
    }
}

/* Somebody took over: the renewal says so, nothing more of that slice is sent, the settle is
   fenced and counted. */
static void test_lost_lease(void **state)
{
    (void)state;
    sim_bench *bench = bench_of((pr_relay_options){.lease_ms = 3000, .messages_per_second = 1});
    for (int i = 0; i < 8; i++)
        sim_add(bench->world, "same", OK);
    sim_run_for(bench->world, bench->relay, MS(500));
    assert_int_equal(bench->transport.submitted, 1);
    for (uint32_t i = 0; i < bench->world->lane_count; i++) { /* a thief */
        bench->world->lanes[i].seq++;
        pr__format(bench->world->lanes[i].token, PR_UUID_TEXT_SIZE, "thief");
        bench->world->lanes[i].lease_until_us = bench->world->now_us + SECONDS(100);
    }
    sim_run_for(bench->world, bench->relay, MS(600));
    uint32_t sent = bench->transport.submitted;
    sim_run_for(bench->world, bench->relay, SECONDS(5));
    assert_int_equal(bench->transport.submitted, sent);
    assert_true(sent <= 2);
    assert_int_equal(sim_count(bench->world, SIM_PUBLISHED, 0), 0);
    assert_true(sim_snapshot(bench->relay).fenced > 0);
    assert_true(bench->observed[PR_OBSERVE_FENCED] > 0);
    sim_bench_free(bench);
}

/* When renewals fail until the lease has run out, sending stops by the monotonic clock; nobody took
   over, so what was sent may still be settled. */
static void test_lease_runs_out(void **state)
{
    (void)state;
    sim_bench *bench = bench_of((pr_relay_options){.lease_ms = 3000, .messages_per_second = 2});
    for (int i = 0; i < 20; i++)
        sim_add(bench->world, "same", OK);
    sim_run_for(bench->world, bench->relay, MS(600));
    bench->store.down = true;
    sim_run_for(bench->world, bench->relay, SECONDS(20));
    assert_in_range(bench->transport.submitted, 6, 7); /* at 0, 0.5 … 3 s */
    bench->store.down = false;
    sim_run_for(bench->world, bench->relay, SECONDS(60));
    assert_int_equal(sim_count(bench->world, SIM_PUBLISHED, 0), 20);
    assert_int_equal(sim_snapshot(bench->relay).fenced, 0);
    for (uint32_t i = 0; i < 20; i++)
        assert_int_equal(bench->world->rows[i].submitted, 1);
    sim_bench_free(bench);
}

/* ---- stop ---- */

static void test_stop(void **state)
{
    (void)state;
    static const struct {
        const char *label;
        int64_t takes_us, grace_ms, ends_by_us;
        bool never, published;
    } cases[] = {
        {"waits for the round in hand", SECONDS(2), 5000, SECONDS(3), false, true},
        {"not longer than the grace period", SECONDS(20), 5000, MS(5050), false, false},
        {"an outcome that never comes", 0, 1000, MS(1050), true, false},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        sim_bench *bench = bench_of(
            (pr_relay_options){.stop_grace_ms = cases[i].grace_ms, .publish_deadline_ms = 60000});
        int64_t takes_us = cases[i].takes_us;
        if (!cases[i].never) {
            bench->transport.decide = slow;
            bench->transport.user = &takes_us;
        }
        sim_row *row = sim_add(bench->world, "", cases[i].never ? "mem://in/hang" : OK);
        sim_run_for(bench->world, bench->relay, MS(500));
        CHECK_CASE(sim_any_leased(bench->world), cases[i].label);
        sim_add(bench->world, "", OK); /* comes too late */
        int64_t began_us = bench->world->now_us;
        pr_relay_stop(bench->relay);
        sim_run_for(bench->world, bench->relay, SECONDS(60));
        CHECK_CASE(bench->world->now_us - began_us <= cases[i].ends_by_us, cases[i].label);
        CHECK_CASE(!sim_any_leased(bench->world), cases[i].label);
        CHECK_CASE((row->place == SIM_PUBLISHED) == cases[i].published, cases[i].label);
        CHECK_CASE(row->attempts == 0, cases[i].label); /* shutdown in a send is no failure */
        CHECK_CASE(bench->world->rows[1].submitted == 0, cases[i].label);
        int64_t wait_ms;
        pr_error err = PR_ERROR_INIT;
        check_error(pr_relay_step(bench->relay, &wait_ms, &err), &err, PR_E_STATE, "was stopped",
                    cases[i].label);
        CHECK_CASE(!sim_snapshot(bench->relay).running, cases[i].label);
        bench->transport.closed = true; /* so that what still flies comes back */
        sim_bench_free(bench);
    }
}

/* The database is away at the end: it is tried until the grace period is over, then given up. */
static void test_stop_in_outage(void **state)
{
    (void)state;
    sim_bench *bench = bench_of((pr_relay_options){.stop_grace_ms = 2000});
    sim_add(bench->world, "", OK);
    bench->store.fail_next[SIM_SETTLE] = 1000000;
    sim_run_for(bench->world, bench->relay, SECONDS(1));
    int64_t began_us = bench->world->now_us;
    pr_relay_stop(bench->relay);
    sim_run_for(bench->world, bench->relay, SECONDS(60));
    assert_in_range(bench->world->now_us - began_us, SECONDS(2), MS(2050));
    pr_error err = PR_ERROR_INIT;
    check_error(pr_relay_run(bench->relay, &err), &err, PR_E_BACKEND, "database is down", "run");
    sim_bench_free(bench);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_call_a_step),
        cmocka_unit_test(test_no_sleep_between_rounds),
        cmocka_unit_test(test_polling),
        cmocka_unit_test(test_found),
        cmocka_unit_test(test_round_backoff),
        cmocka_unit_test(test_round_jitter),
        cmocka_unit_test(test_rate),
        cmocka_unit_test(test_health),
        cmocka_unit_test(test_backlog),
        cmocka_unit_test(test_maintain),
        cmocka_unit_test(test_renews),
        cmocka_unit_test(test_lost_lease),
        cmocka_unit_test(test_lease_runs_out),
        cmocka_unit_test(test_stop),
        cmocka_unit_test(test_stop_in_outage),
    };
    return RUN_TESTS(tests);
}
