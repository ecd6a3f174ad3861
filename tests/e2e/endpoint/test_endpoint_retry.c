/*
 * An endpoint's retries: attempts, due times, order of a key, takeovers, who holds a row.
 */
#include "e2e/endpoint/world.h"

#include "base/time.h"

#define STATES                                                                                     \
    "SELECT group_concat(message_id || ' ' || state || ' ' || attempts, ', ') FROM "               \
    "(SELECT * FROM postroom_inbox_parked ORDER BY place) AS x"

/* What each message is to do, by its id, and how often it did. */
typedef struct script {
    const char *id;
    int fails; /* so many first attempts fail */
    bool permanent;
    int64_t delay_ms; /* asked for by the handler; -1 = backoff */
    int attempts_seen;
} script;

static script *find_script(world *w, const char *id)
{
    script *each = w->extra;
    while (each->id && strcmp(each->id, id) != 0)
        each++;
    assert_non_null(each->id);
    return each;
}

static pr_handled act_script(world *w, pr_scope *scope)
{
    script *one = find_script(w, pr_scope_message(scope)->id);
    assert_int_equal(pr_scope_attempts(scope), one->attempts_seen);
    if (one->attempts_seen++ >= one->fails)
        return PR_HANDLED_OK;
    pr_scope_fail(scope, one->permanent ? "never" : "not yet", one->delay_ms);
    return one->permanent ? PR_HANDLED_PERMANENT : PR_HANDLED_RETRY;
}

static void start_scripted(world *w, script *scripts)
{
    w->extra = scripts;
    w->act = act_script;
    world_start(w);
}

/* Enough steps to look at everything that is due now. */
static void quiet(world *w)
{
    world_advance(w, 300); /* past the next look at parked rows */
    world_steps(w, 60);
}

static void assert_states(world *w, const char *expected)
{
    assert_string_equal(world_text(w, STATES), expected);
}

static void two_failures_then_success_are_three_attempts_and_one_effect(void **state)
{
    world *w = *state;
    script scripts[] = {{.id = "a", .fails = 2, .delay_ms = -1}, {.id = NULL}};
    w->opt.backoff_initial_ms = 10000;
    start_scripted(w, scripts);
    world_send(w, "a", NULL, "{\"n\":1}");
    world_step_until(w, failed, 1);
    assert_states(w, "a failed 1");
    world_advance(w, 9000); /* not due yet */
    quiet(w);
    assert_int_equal(w->calls, 1);
    world_advance(w, 1000);
    world_step_until(w, failed, 2);
    assert_states(w, "a failed 2");
    world_advance(w, 10000); /* the second wait is twice as long */
    quiet(w);
    assert_int_equal(w->calls, 2);
    world_advance(w, 10000);
    world_step_until(w, handled, 1);
    assert_int_equal(w->calls, 3);
    assert_int_equal(world_number(w, EFFECTS), 1);
    assert_int_equal(world_number(w, MARKS), 1);
    assert_int_equal(world_number(w, PARKED), 0);
    world_send(w, "a", NULL, "{\"n\":1}");
    world_step_until(w, duplicate, 1);
}

static void a_delay_without_end_is_a_century(void **state)
{
    world *w = *state;
    script scripts[] = {{.id = "a", .fails = 1, .delay_ms = INT64_MAX}, {.id = NULL}};
    start_scripted(w, scripts);
    world_send(w, "a", NULL, "{}");
    world_step_until(w, failed, 1);
    assert_int_equal(
        world_number(w, host_is_postgres(w->address)
                            ? "SELECT extract(epoch FROM next_attempt_at - parked_at)::bigint / "
                              "86400 FROM postroom_inbox_parked"
                            : "SELECT (next_attempt_at - parked_at) / 86400000000 FROM "
                              "postroom_inbox_parked"),
        36600);
}

static void the_budget_is_the_endpoints_own(void **state)
{
    world *w = *state;
    const struct {
        const char *label;
        uint32_t retry_max;
        int attempts;
    } cases[] = {{"none", PR_RETRY_NONE, 1}, {"one", 1, 2}, {"three", 3, 4}};
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        script scripts[] = {{.id = cases[i].label, .fails = 1000, .delay_ms = 0}, {.id = NULL}};
        w->opt.retry_max = cases[i].retry_max;
        w->endpoint = pr_endpoint_free(w->endpoint);
        start_scripted(w, scripts);
        world_send(w, cases[i].label, NULL, "{}");
        world_step_until(w, dead, 1);
        CHECK_CASE(scripts[0].attempts_seen == cases[i].attempts, cases[i].label);
        CHECK_CASE(world_snapshot(w).failed == (uint64_t)cases[i].attempts - 1, cases[i].label);
        world_advance(w, 3600000);
        quiet(w); /* dead is never claimed by itself */
        CHECK_CASE(scripts[0].attempts_seen == cases[i].attempts, cases[i].label);
    }
    assert_states(w, "none dead 1, one dead 2, three dead 4");
    assert_string_equal(world_text(w, "SELECT last_error FROM postroom_inbox_parked"), "not yet");
}

static void a_permanent_failure_is_dead_at_once(void **state)
{
    world *w = *state;
    script scripts[] = {{.id = "a", .fails = 1000, .permanent = true}, {.id = NULL}};
    start_scripted(w, scripts);
    world_send(w, "a", NULL, "{}");
    world_step_until(w, dead, 1);
    assert_states(w, "a dead 1");
    assert_string_equal(world_text(w, "SELECT last_error FROM postroom_inbox_parked"), "never");
    assert_int_equal(world_number(w, EFFECTS), 0);
    assert_int_equal(world_number(w, MARKS), 0); /* a dead row never stands beside a mark */
}

static void poison_delays_no_healthy_message(void **state)
{
    world *w = *state;
    script scripts[] = {{.id = "poison-1", .fails = 1000, .delay_ms = 0},
                        {.id = "poison-2", .fails = 1000, .delay_ms = 0},
                        {.id = "good-1"},
                        {.id = "good-2"},
                        {.id = "good-3"},
                        {.id = "good-4"},
                        {.id = NULL}};
    w->opt.retry_max = 1000;
    start_scripted(w, scripts);
    world_send(w, "poison-1", NULL, "{}");
    world_send(w, "poison-2", NULL, "{}");
    world_step_until(w, failed, 2);
    for (int i = 1; i <= 4; i++) {
        char id[16];
        (void)snprintf(id, sizeof id, "good-%d", i);
        world_send(w, id, NULL, "{}");
    }
    int calls = w->calls;
    world_step_until(w, handled, 4);
    /* retries take turns with deliveries: for each delivery four retries at most */
    assert_true(w->calls - calls >= 4);
    assert_true(w->calls - calls <= 4 * (1 + 4) + 4);
}

static void retries_are_served_while_deliveries_keep_coming(void **state)
{
    world *w = *state;
    script scripts[] = {{.id = "late", .fails = 1, .delay_ms = 0}, {.id = NULL}, {.id = NULL}};
    start_scripted(w, scripts);
    world_send(w, "late", NULL, "{}");
    world_step_until(w, failed, 1);
    w->act = act_ok;
    world_advance(w, 300);
    for (int i = 0; i < 30; i++) {
        char id[16];
        (void)snprintf(id, sizeof id, "m-%d", i);
        world_send(w, id, NULL, "{}");
    }
    world_step_until(w, handled, 31);
    int place = 0;
    while (strcmp(w->handled_ids[place], "late") != 0 || place == 0)
        place++;
    if (place > 5)
        fail_msg("the retry came after %d deliveries", place);
}

static void of_a_key_later_ones_wait_behind_a_failed_one(void **state)
{
    world *w = *state;
    script scripts[] = {{.id = "a1", .fails = 1, .delay_ms = 5000},
                        {.id = "a2"},
                        {.id = "b1"},
                        {.id = "a3"},
                        {.id = "n1"},
                        {.id = NULL}};
    start_scripted(w, scripts);
    world_send(w, "a1", "A", "{}");
    world_step_until(w, failed, 1);
    world_send(w, "a2", "A", "{}");
    world_send(w, "b1", "B", "{}");
    world_send(w, "a3", "A", "{}");
    world_send(w, "n1", NULL, "{}");
    world_step_until(w, held, 2);
    world_step_until(w, handled, 2);
    assert_states(w, "a1 failed 1, a2 held 0, a3 held 0");
    assert_int_equal(world_number(w, MARKS), 2); /* a held one has no mark */
    quiet(w);
    assert_int_equal(w->calls, 3);
    world_advance(w, 5000);
    world_step_until(w, handled, 5);
    assert_string_equal(w->handled_ids[3], "a1");
    assert_string_equal(w->handled_ids[4], "a2");
    assert_string_equal(w->handled_ids[5], "a3");
    assert_int_equal(world_number(w, PARKED), 0);
}

static void a_hot_key_drains_faster_than_it_fills(void **state)
{
    world *w = *state;
    script scripts[] = {{.id = "a1", .fails = 1, .delay_ms = 5000}, {.id = NULL}};
    start_scripted(w, scripts);
    world_send(w, "a1", "A", "{}");
    world_step_until(w, failed, 1);
    w->act = act_ok;
    char id[16];
    for (int i = 0; i < 40; i++) {
        (void)snprintf(id, sizeof id, "h%03d", i);
        world_send(w, id, "A", "{}");
    }
    world_step_until(w, held, 40);
    world_advance(w, 5000);
    for (int i = 0; i < 60; i++) {
        (void)snprintf(id, sizeof id, "n%03d", i);
        world_send(w, id, "A", "{}");
    }
    world_step_until(w, handled, 101);
    uint64_t held = world_snapshot(w).held - 40;
    if (held > 30)
        fail_msg("%llu of 60 were held while 41 drained", (unsigned long long)held);
    assert_int_equal(world_number(w, PARKED), 0);
    /* and in order: what was sent later was handled later */
    assert_int_equal(world_number(w, "SELECT count(*) FROM effects AS a JOIN effects AS b ON "
                                     "b.n > a.n AND b.id < a.id"),
                     0);
}

static void of_a_run_what_follows_a_failure_is_held_again(void **state)
{
    world *w = *state;
    script scripts[] = {{.id = "a1", .fails = 1, .delay_ms = 5000},
                        {.id = "a2", .fails = 1, .delay_ms = 5000},
                        {.id = "a3"},
                        {.id = NULL}};
    start_scripted(w, scripts);
    world_send(w, "a1", "A", "{}");
    world_step_until(w, failed, 1);
    world_send(w, "a2", "A", "{}");
    world_send(w, "a3", "A", "{}");
    world_step_until(w, held, 2);
    world_advance(w, 5000);
    world_step_until(w, failed, 2); /* a1 is done, a2 fails in the same run */
    quiet(w);
    assert_states(w, "a2 failed 1, a3 held 0");
    assert_int_equal(scripts[2].attempts_seen, 0);
    world_advance(w, 5000);
    world_step_until(w, handled, 3);
    assert_int_equal(world_number(w, PARKED), 0);
}

static void a_dead_head_frees_its_key_under_hold_but_not_under_halt(void **state)
{
    world *w = *state;
    script scripts[] = {{.id = "a1", .fails = 1000, .permanent = true},
                        {.id = "a2"},
                        {.id = "h1", .fails = 1000, .permanent = true},
                        {.id = "h2"},
                        {.id = NULL}};
    start_scripted(w, scripts);
    world_send(w, "a1", "A", "{}");
    world_send(w, "a2", "A", "{}");
    world_step_until(w, handled, 1);
    assert_states(w, "a1 dead 1");

    w->endpoint = pr_endpoint_free(w->endpoint);
    w->opt.order = PR_ORDER_HALT;
    start_scripted(w, scripts);
    world_send(w, "h1", "H", "{}");
    world_send(w, "h2", "H", "{}");
    world_step_until(w, held, 1);
    quiet(w);
    assert_states(w, "a1 dead 1, h1 dead 1, h2 held 0");
    assert_int_equal(scripts[3].attempts_seen, 0);
    /* an operator acts: the dead head goes, and what was held behind it is free */
    world_run(w, "DELETE FROM postroom_inbox_parked WHERE message_id = 'h1'");
    world_advance(w, 300);
    world_step_until(w, handled, 1);
    assert_int_equal(scripts[3].attempts_seen, 1);
}

static void under_skip_nothing_waits(void **state)
{
    world *w = *state;
    script scripts[] = {{.id = "a1", .fails = 1, .delay_ms = 60000}, {.id = "a2"}, {.id = NULL}};
    w->opt.order = PR_ORDER_SKIP;
    start_scripted(w, scripts);
    world_send(w, "a1", "A", "{}");
    world_send(w, "a2", "A", "{}");
    world_step_until(w, handled, 1);
    assert_states(w, "a1 failed 1");
    world_advance(w, 60000);
    world_step_until(w, handled, 2);
}

static void busy_ones_of_a_key_go_back_together_and_stay_in_order(void **state)
{
    world *w = *state;
    script scripts[] = {{.id = "a1"}, {.id = "a2"}, {.id = "a3"}, {.id = NULL}};
    start_scripted(w, scripts);
    world_lock(w);
    world_send(w, "a1", "A", "{}");
    world_send(w, "a2", "A", "{}");
    world_send(w, "a3", "A", "{}");
    world_step_until(w, requeued, 1);
    world_unlock(w);
    world_step_until(w, handled, 3);
    assert_string_equal(w->handled_ids[0], "a1");
    assert_string_equal(w->handled_ids[1], "a2");
    assert_string_equal(w->handled_ids[2], "a3");
}

/* Give a message back once, so that it comes again marked redelivered. */
static void make_redelivered(world *w)
{
    pr_subscribe_options opt = {.size = (uint32_t)sizeof opt,
                                .endpoint = w->opt.id,
                                .types = w->opt.types,
                                .type_count = w->opt.type_count};
    pr_error err = PR_ERROR_INIT;
    pr_transport *transport = NULL;
    pr_subscription *subscription = NULL;
    pr_delivery delivery;
    size_t count = 0;
    check_ok(pr_memory_transport_new(w->broker, NULL, &transport, &err), &err, "transport");
    check_ok(pr_transport_open(transport, 100, &err), &err, "open");
    check_ok(pr_transport_subscribe(transport, &opt, &subscription, &err), &err, "subscribe");
    check_ok(pr_subscription_receive(subscription, 1000, &delivery, 1, &count, &err), &err, "get");
    assert_int_equal(count, 1);
    check_ok(pr_subscription_settle(subscription, delivery.tag, PR_VERDICT_REQUEUE, 0, &err), &err,
             "back");
    pr_subscription_free(subscription);
    pr_transport_free(transport);
}

static pr_handled act_look_at_row(world *w, pr_scope *scope)
{
    (void)scope;
    *(char **)w->extra = strdup(world_text(w, STATES));
    return PR_HANDLED_OK;
}

static void a_redelivered_message_goes_through_a_row_that_counts_its_takeovers(void **state)
{
    world *w = *state;
    char *row = NULL;
    w->extra = &row;
    w->act = act_look_at_row;
    world_start(w);
    w->endpoint = pr_endpoint_free(w->endpoint);
    world_send(w, "a", NULL, "{}");
    make_redelivered(w);
    world_start(w);
    world_step_until(w, handled, 1);
    assert_string_equal(row, "a processing 0"); /* while its handler ran */
    free(row);
    assert_int_equal(world_number(w, PARKED), 0);
    /* redelivered after it was done: no row, no run */
    w->endpoint = pr_endpoint_free(w->endpoint);
    world_send(w, "a", NULL, "{}");
    make_redelivered(w);
    world_start(w);
    world_step_until(w, duplicate, 1);
    assert_int_equal(w->calls, 1);
    assert_int_equal(world_number(w, PARKED), 0);
}

static void what_kills_its_process_three_times_is_charged(void **state)
{
    world *w = *state;
    script scripts[] = {{.id = "a", .fails = 1, .delay_ms = 0}, {.id = NULL}};
    start_scripted(w, scripts);
    world_send(w, "a", NULL, "{}");
    world_step_until(w, failed, 1);
    /* as if its holder had died in the handler twice before: the third takeover is the charge */
    world_run(w, "UPDATE postroom_inbox_parked SET state = 'processing', takeovers = 2, "
                 "resume_state = 'failed', lock_token = '0198c5f2-7d3e-7a10-8b2c-0000000000dd', "
                 "locked_until = 1, "
                 "owner = 'gone'");
    world_advance(w, 300);
    world_step_until(w, failed, 2);
    assert_int_equal(w->calls, 1); /* it was not run */
    assert_states(w, "a failed 2");
    assert_non_null(
        strstr(world_text(w, "SELECT last_error FROM postroom_inbox_parked"), "its process ended"));
    assert_int_equal(world_number(w, "SELECT takeovers FROM postroom_inbox_parked"), 0);
    scripts[0].attempts_seen = 2;
    world_advance(w, 3600000);
    world_step_until(w, handled, 1);
}

static void stop_releases_a_retry_that_waits(void **state)
{
    world *w = *state;
    script scripts[] = {{.id = "a", .fails = 1, .delay_ms = 0}, {.id = NULL}};
    start_scripted(w, scripts);
    world_send(w, "a", NULL, "{}");
    world_step_until(w, failed, 1);
    pr_endpoint_stop(w->endpoint);
    assert_int_equal(world_step(w, NULL), PR_E_STATE);
    assert_states(w, "a failed 1");
    world_restart(w);
    world_advance(w, 300);
    world_step_until(w, handled, 1);
}

static int suite(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, world_setup, world_teardown)
    const struct CMUnitTest tests[] = {
        CASE(two_failures_then_success_are_three_attempts_and_one_effect),
        CASE(a_delay_without_end_is_a_century),
        CASE(the_budget_is_the_endpoints_own),
        CASE(a_permanent_failure_is_dead_at_once),
        CASE(poison_delays_no_healthy_message),
        CASE(retries_are_served_while_deliveries_keep_coming),
        CASE(of_a_key_later_ones_wait_behind_a_failed_one),
        CASE(a_hot_key_drains_faster_than_it_fills),
        CASE(of_a_run_what_follows_a_failure_is_held_again),
        CASE(a_dead_head_frees_its_key_under_hold_but_not_under_halt),
        CASE(under_skip_nothing_waits),
        CASE(busy_ones_of_a_key_go_back_together_and_stay_in_order),
        CASE(a_redelivered_message_goes_through_a_row_that_counts_its_takeovers),
        CASE(what_kills_its_process_three_times_is_charged),
        CASE(stop_releases_a_retry_that_waits),
    };
#undef CASE
    return RUN_TESTS(tests);
}

int main(void)
{
    return world_main(suite);
}
