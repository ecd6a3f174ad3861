/*
 * What a handler does with its scope: publish, send, reply, delay, defer, and what it returns.
 */
#include "bus/world.h"

#include "base/time.h"

#define ID_A     "0198c5f2-7d3e-7a10-8b2c-00000000000a"
#define ID_B     "0198c5f2-7d3e-7a10-8b2c-00000000000b"
#define REPLY_TO "memory://reply/0198c5f2-7d3e-7a10-8b2c-0000000000aa"

static world *start(void **state, world_act act)
{
    world *w = *state;
    w->act = act;
    world_start(w);
    return w;
}

static pr_handled act_misuse(world *w, pr_scope *scope)
{
    (void)w;
    pr_message good = PR_MESSAGE(.type = TYPE_FOLLOW, .body = "{}", .body_size_bytes = 2);
    pr_message addressed = good, late = good, nothing = good;
    addressed.destination = "memory://in/x";
    late.deliver_at_us = 1;
    nothing.size = 4;
    pr_error err = PR_ERROR_INIT;
    check_error(pr_scope_publish(NULL, &good, NULL, &err), &err, PR_E_INVALID, "scope is NULL",
                "no scope");
    pr_error_clear(&err);
    check_error(pr_scope_publish(scope, &nothing, NULL, &err), &err, PR_E_INVALID, "size",
                "no size");
    pr_error_clear(&err);
    check_error(pr_scope_publish(scope, &addressed, NULL, &err), &err, PR_E_INVALID,
                "pr_scope_send", "addressed");
    pr_error_clear(&err);
    check_error(pr_scope_send(scope, "", &good, NULL, &err), &err, PR_E_INVALID, "is empty",
                "nowhere");
    pr_error_clear(&err);
    check_error(pr_scope_send(scope, "a b", &good, NULL, &err), &err, PR_E_INVALID, "", "bad id");
    pr_error_clear(&err);
    check_error(pr_scope_send(scope, "mem ory://in/x", &good, NULL, &err), &err, PR_E_CONTENT, "",
                "bad address");
    pr_error_clear(&err);
    check_error(pr_scope_reply(scope, &good, NULL, &err), &err, PR_E_NOT_FOUND,
                "asks for no answer", "no answer");
    pr_error_clear(&err);
    check_error(pr_scope_delay(scope, &good, -1, NULL, &err), &err, PR_E_INVALID, "delay_ms is -1",
                "negative");
    pr_error_clear(&err);
    check_error(pr_scope_delay(scope, &late, 1, NULL, &err), &err, PR_E_INVALID, "deliver_at_us",
                "twice");
    return PR_HANDLED_OK; /* the unit is unharmed by all that */
}

static void misuse_is_refused_and_harms_nothing(void **state)
{
    world *w = start(state, act_misuse);
    world_send(w, ID_A, NULL, "{}");
    world_until(w, handled, 1);
    assert_int_equal(world_number(w, OUTBOX), 0);
    assert_int_equal(world_number(w, EFFECTS), 1);
}

static pr_handled act_send_all(world *w, pr_scope *scope)
{
    pr_message message = PR_MESSAGE(.type = TYPE_FOLLOW, .body = "{}", .body_size_bytes = 2);
    pr_error err = PR_ERROR_INIT;
    pr_enqueued enqueued;
    check_ok(pr_scope_publish(scope, &message, &enqueued, &err), &err, "publish");
    assert_int_equal(strlen(enqueued.id), 36);
    check_ok(pr_scope_send(scope, "audit", &message, NULL, &err), &err, "send by id");
    check_ok(pr_scope_send(scope, "other://in/x", &message, NULL, &err), &err, "send");
    check_ok(pr_scope_reply(scope, &message, NULL, &err), &err, "reply");
    check_ok(pr_scope_delay(scope, &message, 3600000, NULL, &err), &err, "delay");
    assert_string_equal(pr_scope_endpoint(scope), CONSUMER);
    return w->flag ? PR_HANDLED_PERMANENT : PR_HANDLED_OK;
}

/* All of it goes with the commit, none of it without. */
static void what_a_handler_sends_is_in_its_unit(void **state)
{
    world *w = start(state, act_send_all);
    pr_message request =
        PR_MESSAGE(.id = ID_A, .type = TYPE_ORDER, .type_version = 1,
                   .content_type = "application/json", .destination = "memory://topic/" TYPE_ORDER,
                   .headers = "{\"postroom-reply-to\":\"" REPLY_TO "\"}", .occurred_at_us = 1,
                   .expires_at_us = 4102444800000000);
    w->flag = 1;
    world_send_message(w, &request);
    world_until(w, dead, 1);
    assert_int_equal(world_number(w, OUTBOX), 0);
    assert_int_equal(world_number(w, "SELECT count(*) FROM {p}_outbox_parked"), 0);
    w->flag = 0;
    request.id = ID_B;
    world_send_message(w, &request);
    world_until(w, handled, 1);
    assert_int_equal(world_number(w, OUTBOX), 4);
    assert_int_equal(world_number(w, OUTBOX " WHERE causation_id = '" ID_B "'"), 4);
    assert_int_equal(world_number(w, OUTBOX " WHERE destination IS NULL"), 1);
    assert_int_equal(world_number(w, OUTBOX " WHERE destination = 'memory://in/audit'"), 1);
    assert_int_equal(world_number(w, OUTBOX " WHERE destination = 'other://in/x'"), 1);
    /* an answer expires with its request; nothing else does */
    assert_int_equal(
        world_number(w, OUTBOX " WHERE destination = '" REPLY_TO "' AND expires_at IS NOT NULL"),
        1);
    assert_int_equal(world_number(w, OUTBOX " WHERE expires_at IS NOT NULL"), 1);
    assert_int_equal(
        world_number(w, "SELECT count(*) FROM {p}_outbox_parked WHERE state = 'delayed'"), 1);
}

static pr_handled act_defer(world *w, pr_scope *scope)
{
    return w->calls < 5 ? pr_scope_defer(scope, 5) : PR_HANDLED_OK;
}

static void a_message_that_is_put_off_comes_again_uncharged(void **state)
{
    world *w = *state;
    w->opt.retry_max = PR_RETRY_NONE; /* one failure would be the end */
    (void)start(state, act_defer);
    world_send(w, ID_A, NULL, "{}");
    world_until(w, deferred, 1);
    assert_string_equal(world_text(w, "SELECT state || attempts FROM {p}_inbox_parked"), "failed0");
    assert_int_equal(world_number(w, EFFECTS), 0);
    world_until(w, handled, 1);
    assert_int_equal(w->calls, 5);
    assert_int_equal(world_snapshot(w).deferred, 4);
    assert_int_equal(world_snapshot(w).failed, 0);
    assert_int_equal(atomic_load(&w->seen[PR_OBSERVE_HANDLER_DEFERRED]), 4);
    assert_int_equal(world_number(w, EFFECTS), 1);
    assert_int_equal(world_number(w, PARKED), 0);
}

static pr_handled act_retry_soon(world *w, pr_scope *scope)
{
    if (w->calls > 2)
        return PR_HANDLED_OK;
    pr_scope_fail(scope, "soon", 1);
    assert_string_equal(pr_scope_reason(scope), "soon");
    return PR_HANDLED_RETRY;
}

static void a_handler_says_when_it_wants_the_message_again(void **state)
{
    world *w = *state;
    w->opt.backoff_initial_ms = 3600000;
    w->opt.backoff_max_ms = 3600000;
    (void)start(state, act_retry_soon);
    world_send(w, ID_A, NULL, "{}");
    world_until(w, handled, 1);
    assert_int_equal(w->calls, 3);
    assert_int_equal(world_snapshot(w).failed, 2);
}

static pr_handled act_never_cancelled(world *w, pr_scope *scope)
{
    (void)w;
    assert_false(pr_scope_cancelled(scope));
    assert_false(pr_scope_cancelled(NULL));
    return PR_HANDLED_OK;
}

static void nothing_is_cancelled_without_a_cause(void **state)
{
    world *w = start(state, act_never_cancelled);
    world_send(w, ID_A, NULL, "{}");
    world_until(w, handled, 1);
    assert_int_equal(world_snapshot(w).cancelled, 0);
}

static pr_handled act_late(world *w, pr_scope *scope)
{
    int64_t until_us = pr__monotonic_us() + PATIENCE_US;
    while (!pr_scope_cancelled(scope) && pr__monotonic_us() < until_us)
        pr__sleep_us(1000);
    return w->flag ? PR_HANDLED_OK : PR_HANDLED_RETRY;
}

/* In the transactional inbox too; and who is done in spite of it is done. */
static void a_timeout_is_seen_by_who_asks(void **state)
{
    world *w = *state;
    w->opt.processing_timeout_ms = 20;
    w->opt.retry_max = PR_RETRY_NONE;
    (void)start(state, act_late);
    world_send(w, ID_A, NULL, "{}");
    world_until(w, dead, 1);
    assert_int_equal(world_number(w, EFFECTS), 0);
    w->flag = 1;
    world_send(w, ID_B, NULL, "{}");
    world_until(w, handled, 1);
    assert_int_equal(world_number(w, EFFECTS), 1);
}

static pr_handled act_garbage(world *w, pr_scope *scope)
{
    (void)scope;
    return (pr_handled)w->flag;
}

/* What is no answer of a handler's is a failure that is charged, and nothing of it stands. */
static void garbage_for_an_answer_is_a_failure(void **state)
{
    static const struct {
        int answer;
        const char *id, *error;
    } cases[] = {
        {-1, "g-1", "the handler answered -1, which is no pr_handled"},
        {99, "g-2", "the handler answered 99, which is no pr_handled"},
        {PR_HANDLED_STOPPED, "g-3", "which is no pr_handled"},
    };
    world *w = *state;
    w->opt.retry_max = PR_RETRY_NONE;
    (void)start(state, act_garbage);
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        char sql[128];
        w->flag = cases[i].answer;
        world_send(w, cases[i].id, NULL, "{}");
        world_until(w, dead, i + 1);
        (void)snprintf(sql, sizeof sql,
                       "SELECT last_error FROM {p}_inbox_parked WHERE message_id = '%s'",
                       cases[i].id);
        if (!strstr(world_text(w, sql), cases[i].error))
            fail_msg("%s: %s", cases[i].id, world_text(w, sql));
    }
    assert_int_equal(world_number(w, EFFECTS), 0);
    assert_int_equal(world_number(w, MARKS), 0);
}

size_t scope_suite(const struct CMUnitTest **ret_tests)
{
    static const struct CMUnitTest tests[] = {
        CASE(misuse_is_refused_and_harms_nothing),
        CASE(what_a_handler_sends_is_in_its_unit),
        CASE(a_message_that_is_put_off_comes_again_uncharged),
        CASE(a_handler_says_when_it_wants_the_message_again),
        CASE(nothing_is_cancelled_without_a_cause),
        CASE(a_timeout_is_seen_by_who_asks),
        CASE(garbage_for_an_answer_is_a_failure),
    };
    *ret_tests = tests;
    return COUNT_OF(tests);
}
