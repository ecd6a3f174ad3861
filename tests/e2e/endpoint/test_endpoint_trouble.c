/*
 * An endpoint in trouble: the disk is full, memory runs out at each allocation, an operator
 * redrives.
 */
#include <postroom/operations.h>

#include "base/fault.h"
#include "e2e/endpoint/world.h"

static pr_handled act_big(world *w, pr_scope *scope)
{
    (void)w;
    static char big[400001];
    memset(big, '0', sizeof big - 1);
    if (host_unit_try_text(pr_scope_unit(scope), "INSERT INTO effects (id) VALUES ($1)", big))
        return PR_HANDLED_OK;
    pr_scope_fail(scope, "the effect could not be written", 0);
    return PR_HANDLED_RETRY;
}

static void a_full_disk_loses_nothing_and_it_resumes_by_itself(void **state)
{
    world *w = *state;
    world_start(w);
    w->act = act_big;
    world_provided.set_full(w, true);
    static char body[100000]; /* so that its parked row does not fit either */
    memset(body, 'x', sizeof body - 1);
    for (int i = 0; i < 10; i++) {
        char id[8];
        (void)snprintf(id, sizeof id, "m%d", i);
        world_send(w, id, NULL, body);
    }
    for (int i = 0; i < 200 && !world_snapshot(w).paused; i++) {
        world_advance(w, 300);
        world_steps(w, 1);
    }
    /* not even what failed can be parked: it pauses and says so */
    assert_true(world_snapshot(w).paused);
    assert_int_equal(world_number(w, MARKS), 0);
    assert_int_equal(world_number(w, EFFECTS), 0);
    world_provided.set_full(w, false);
    for (int i = 0; i < 400 && world_snapshot(w).handled < 10; i++) {
        world_advance(w, 10000);
        world_steps(w, 5);
    }
    assert_int_equal(world_snapshot(w).handled, 10);
    assert_int_equal(world_number(w, MARKS), 10);
    assert_int_equal(world_number(w, EFFECTS), 20); /* the handler's and the world's */
    assert_int_equal(world_number(w, PARKED), 0);
}

static void a_redriven_message_runs_once_more_with_the_same_id(void **state)
{
    world *w = *state;
    world_start(w);
    w->act = act_permanent;
    world_send(w, "a", "K", "{}");
    world_step_until(w, dead, 1);
    w->act = act_ok;
    pr_redrive_options opt = {.size = (uint32_t)sizeof opt,
                              .force = true, /* it occurred long ago */
                              .box = PR_BOX_INBOX,
                              .message_id = "a",
                              .consumer = CONSUMER,
                              .who = "tester",
                              .reason = "mended"};
    uint64_t count = 0;
    pr_error err = PR_ERROR_INIT;
    check_ok(pr_operations_redrive(w->store, &opt, &count, &err), &err, "redrive");
    assert_int_equal(count, 1);
    world_advance(w, 300);
    world_step_until(w, handled, 1);
    assert_string_equal(w->handled_ids[1], "a");
    assert_int_equal(world_number(w, EFFECTS), 1);
    assert_int_equal(world_number(w, PARKED), 0);
    world_send(w, "a", "K", "{}");
    world_step_until(w, duplicate, 1);
}

#ifdef PR_FAULT_POINTS

#define TRIES_MAX 2000

/* Run one message through with the n-th allocation failing; false when it has fewer. */
static bool one_failing(world *w, const char *id, int n, uint64_t *before, const char *field,
                        size_t offset)
{
    pr__fault_alloc_fail_at(n);
    world_steps(w, 6);
    bool reached = pr__fault_alloc_count() >= n;
    pr__fault_alloc_fail_at(0);
    world_advance(w, 20000);
    (void)id;
    world_step_until_at(w, field, offset, ++*before);
    return reached;
}

static void memory_that_runs_out_at_any_point_costs_no_message(void **state)
{
    world *w = *state;
    world_start(w);
    uint64_t handled = 0;
    int n = 1;
    for (bool reached = true; reached; n++) {
        char id[16];
        assert_true(n < TRIES_MAX);
        (void)snprintf(id, sizeof id, "m%d", n);
        world_send(w, id, "K", "{}");
        reached =
            one_failing(w, id, n, &handled, "handled", offsetof(pr_endpoint_snapshot, handled));
        if (world_snapshot(w).failed + world_snapshot(w).dead > 0)
            fail_msg("allocation %d: charged: %s", n, w->last_text[PR_OBSERVE_HANDLER_FAILED]);
    }
    assert_true(n > 4);
    assert_int_equal(world_number(w, EFFECTS), n - 1);
    assert_int_equal(world_number(w, "SELECT count(DISTINCT id) FROM effects"), n - 1);
    assert_int_equal(world_number(w, MARKS), n - 1);
    assert_int_equal(world_number(w, PARKED), 0);
    assert_int_equal(world_snapshot(w).failed + world_snapshot(w).dead, 0); /* nobody was charged */
}

static void nor_while_a_failure_is_parked_and_tried_again(void **state)
{
    world *w = *state;
    w->opt.backoff_initial_ms = 1;
    w->opt.backoff_max_ms = 1;
    world_start(w);
    uint64_t failed = 0, handled = 0;
    bool reached = true;
    int n = 1;
    for (; reached; n++) {
        char id[16];
        assert_true(n < TRIES_MAX);
        (void)snprintf(id, sizeof id, "m%d", n);
        w->act = act_retry;
        w->opt.retry_max = 10;
        world_send(w, id, NULL, "{}");
        pr__fault_alloc_fail_at(n);
        world_steps(w, 1);
        pr__fault_alloc_fail_at(0);
        while (world_snapshot(w).failed == failed) {
            world_advance(w, 20000);
            world_steps(w, 1);
        }
        w->act = act_ok;
        reached =
            one_failing(w, id, n, &handled, "handled", offsetof(pr_endpoint_snapshot, handled));
        failed = world_snapshot(w).failed;
    }
    assert_true(n > 4);
    assert_int_equal(world_number(w, EFFECTS), n - 1);
    assert_int_equal(world_number(w, MARKS), n - 1);
    assert_int_equal(world_number(w, PARKED), 0);
}

static void an_enqueue_that_runs_out_of_memory_leaves_all_or_nothing(void **state)
{
    world *w = *state;
    int64_t rows = 0;
    bool reached = true;
    int n = 1;
    for (; reached; n++) {
        assert_true(n < TRIES_MAX);
        pr_message messages[3] = {
            PR_MESSAGE(.type = TYPE_ORDER, .key = "a"),
            PR_MESSAGE(.type = TYPE_ORDER, .id = "0198c5f2-7d3e-7a10-8b2c-00000000000a"),
            PR_MESSAGE(.type = TYPE_ORDER, .headers = "{\"a\":\"b\"}"),
        };
        pr_unit_context context = {.size = (uint32_t)sizeof context, .correlation_id = "c"};
        pr_unit *unit = NULL;
        pr_outcome outcome = PR_OUTCOME_NOT_COMMITTED;
        pr__fault_alloc_fail_at(n);
        pr_status status = pr_unit_begin(w->store, &unit, NULL);
        if (status == PR_OK)
            status = pr_unit_set_context(unit, &context, NULL);
        if (status == PR_OK)
            status = pr_unit_enqueue_many(unit, messages, 3, NULL, NULL);
        if (status == PR_OK)
            status = pr_unit_commit(unit, &outcome, NULL);
        reached = pr__fault_alloc_count() >= n;
        pr__fault_alloc_fail_at(0);
        pr_unit_free(unit);
        rows += status == PR_OK ? 3 : 0;
        assert_int_equal(status == PR_OK, outcome == PR_OUTCOME_COMMITTED);
        assert_int_equal(world_number(w, "SELECT count(*) FROM postroom_outbox"), rows);
        if (!reached)
            assert_int_equal(status, PR_OK);
    }
    assert_true(n > 5);
}

#endif

static int suite(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, world_setup, world_teardown)
    const struct CMUnitTest tests[] = {
        CASE(a_full_disk_loses_nothing_and_it_resumes_by_itself),
        CASE(a_redriven_message_runs_once_more_with_the_same_id),
#ifdef PR_FAULT_POINTS
        CASE(memory_that_runs_out_at_any_point_costs_no_message),
        CASE(nor_while_a_failure_is_parked_and_tried_again),
        CASE(an_enqueue_that_runs_out_of_memory_leaves_all_or_nothing),
#endif
    };
#undef CASE
    return RUN_TESTS(tests);
}

int main(void)
{
    return world_main(suite);
}
