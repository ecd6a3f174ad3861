/*
 * Timeouts of sagas: fired, cancelled, replaced, late, early.
 */
#include "base/text.h"
#include "contract/saga_cases.h"
#include "contract/saga_steps.h"
#include "contract/saga_world.h"

#define QUIET_MS 60
#define NOBODY   "019b0000-0000-7000-8000-0000000000ff"

void case_a_timeout_fires_once(void **state)
{
    store_fixture *fix = *state;
    tally_worker worker;
    tally_subscribe(fix);
    tally_send(fix, TALLY_OPENED, "k", 5, NULL);
    tally_send(fix, TALLY_ARMED, "k", 60000, "ring");
    tally_open(fix, NULL, &worker);
    tally_run(&worker, QUIET_MS);
    tally_send(fix, TALLY_ADDED, "k", 1, NULL); /* an event between does not kill it */
    tally_run(&worker, QUIET_MS);
    assert_int_equal(tally_read(fix, "k").state.sum, 6);
    tally_pass(fix, 61000);
    tally_run(&worker, 200);
    tally_row row = tally_read(fix, "k");
    assert_int_equal(row.state.sum, 1006);
    assert_string_equal(row.timeouts, "[]");
    pr_saga_snapshot counters = tally_counters(&worker);
    assert_int_equal(counters.timeouts_fired, 1);
    assert_int_equal(counters.timeouts_dropped, 0);
    /* the same message again, under another id: its token is closed */
    run_sql(fix, "INSERT INTO {p}_outbox (message_id, type, body) SELECT '" NOBODY
                 "', type, body FROM {p}_outbox WHERE type = '" TALLY_TIMEOUT "'");
    tally_run(&worker, 200);
    assert_int_equal(tally_read(fix, "k").state.sum, 1006);
    assert_int_equal(tally_counters(&worker).timeouts_dropped, 1);
    tally_close(&worker);
}

/* Arm, do something, let the time pass; what has become of the timeout. */
static pr_saga_snapshot after(store_fixture *fix, const char *type, const char *note)
{
    tally_worker worker;
    tally_subscribe(fix);
    tally_send(fix, TALLY_OPENED, "k", 5, NULL);
    tally_send(fix, TALLY_ARMED, "k", 60000, "ring");
    tally_send(fix, type, "k", 3600000, note);
    tally_open(fix, NULL, &worker);
    tally_run(&worker, QUIET_MS);
    tally_pass(fix, 61000);
    tally_run(&worker, 200);
    pr_saga_snapshot counters = tally_counters(&worker);
    tally_close(&worker);
    assert_int_equal(tally_number(fix, "SELECT count(*) FROM {p}_inbox_parked"), 0);
    return counters;
}

void case_a_cancelled_timeout_is_dropped(void **state)
{
    store_fixture *fix = *state;
    pr_saga_snapshot counters = after(fix, TALLY_CALMED, "ring");
    assert_int_equal(counters.timeouts_cancelled, 1);
    assert_int_equal(counters.timeouts_dropped, 1);
    assert_int_equal(counters.timeouts_fired, 0);
    assert_int_equal(tally_read(fix, "k").state.sum, 5);
}

void case_a_replaced_timeout_is_dropped(void **state)
{
    store_fixture *fix = *state;
    pr_saga_snapshot counters = after(fix, TALLY_ARMED, "ring");
    assert_int_equal(counters.timeouts_set, 2);
    assert_int_equal(counters.timeouts_dropped, 1);
    assert_int_equal(counters.timeouts_fired, 0);
    assert_non_null(strstr(tally_read(fix, "k").timeouts, "\"ring\"")); /* the second is open */
}

void case_a_timeout_of_a_finished_instance_is_dropped(void **state)
{
    store_fixture *fix = *state;
    pr_saga_snapshot counters = after(fix, TALLY_CLOSED, "");
    assert_int_equal(counters.timeouts_cancelled, 1);
    assert_int_equal(counters.timeouts_dropped, 1);
    tally_row row = tally_read(fix, "k");
    assert_int_equal(row.version, 3);
    assert_string_equal(row.timeouts, "[]");
}

void case_a_timeout_of_an_earlier_instance_is_dropped(void **state)
{
    store_fixture *fix = *state;
    tally_options restart = {.reuse = PR_SAGA_REUSE_RESTART};
    tally_worker worker;
    tally_subscribe(fix);
    tally_send(fix, TALLY_OPENED, "k", 5, NULL);
    tally_send(fix, TALLY_ARMED, "k", 60000, "ring");
    tally_send(fix, TALLY_CLOSED, "k", 0, NULL);
    tally_send(fix, TALLY_OPENED, "k", 6, NULL);
    tally_open(fix, &restart, &worker);
    tally_run(&worker, QUIET_MS);
    tally_pass(fix, 61000);
    tally_run(&worker, 200);
    assert_int_equal(tally_counters(&worker).timeouts_dropped, 1);
    assert_int_equal(tally_read(fix, "k").state.sum, 6);
    tally_close(&worker);
}

/* The event that completes it and the timeout that does are due in one moment. */
void case_completion_and_timeout_at_once_in_both_orders(void **state)
{
    store_fixture *fix = *state;
    tally_worker worker;
    tally_subscribe(fix);
    tally_open(fix, NULL, &worker);
    for (int i = 0; i < 20; i++) {
        char key[16];
        pr__format(key, sizeof key, "k%d", i);
        tally_send(fix, TALLY_OPENED, key, 5, NULL);
        tally_send(fix, TALLY_ARMED, key, 60000, "close");
    }
    tally_run(&worker, QUIET_MS);
    /* half of the completions go before what is due, half behind it */
    for (int i = 0; i < 10; i++) {
        char key[16];
        pr__format(key, sizeof key, "k%d", i);
        tally_send(fix, TALLY_CLOSED, key, 0, NULL);
    }
    tally_pass(fix, 61000);
    for (int i = 10; i < 20; i++) {
        char key[16];
        pr__format(key, sizeof key, "k%d", i);
        tally_send(fix, TALLY_CLOSED, key, 0, NULL);
    }
    tally_run(&worker, 200);
    pr_saga_snapshot counters = tally_counters(&worker);
    assert_int_equal(counters.completed, 20);
    assert_int_equal(counters.timeouts_fired + counters.timeouts_dropped, 20);
    assert_int_equal(counters.late + counters.timeouts_dropped, 20); /* one of the two, each time */
    assert_true(counters.timeouts_fired > 0 && counters.timeouts_dropped > 0);
    assert_int_equal(tally_number(fix, "SELECT count(*) FROM {p}_saga WHERE version = 3 AND "
                                       "completed_at IS NOT NULL"),
                     20);
    assert_int_equal(tally_number(fix, "SELECT count(*) FROM {p}_inbox_parked"), 0);
    tally_close(&worker);
}

/* A timeout's message, as the step of another process has sent it. */
static void send_timeout(store_fixture *fix, const char *key, const char *token, int64_t version,
                         const char *name)
{
    char body[512];
    pr_error err = PR_ERROR_INIT;
    pr__format(body, sizeof body,
               "{\"saga\":\"tally\",\"key\":\"%s\",\"instance\":\"%s\",\"token\":\"%s\","
               "\"name\":\"%s\",\"version\":%lld}",
               key, INSTANCE_1, token, name, (long long)version);
    pr_message message =
        PR_MESSAGE(.type = TALLY_TIMEOUT, .body = body, .body_size_bytes = strlen(body));
    pr_unit *unit = begin_unit(store_at(fix, 0));
    check_ok(pr_unit_enqueue(unit, &message, NULL, &err), &err, "timeout");
    commit_unit(unit);
}

/* The row as that step commits it. */
static void commit_step(store_fixture *fix, const char *key, int64_t version, const char *token)
{
    char timeouts[256] = "[]";
    pr__saga_key whole = {.saga_type = TALLY_ID, .correlation_key = key};
    pr__saga_save save =
        saga_state(INSTANCE_1, version, "{\"sum\":1,\"steps\":1,\"note\":\"\",\"done\":false}");
    bool flag = false;
    int64_t now_us = 0;
    pr_error err = PR_ERROR_INIT;
    if (token)
        pr__format(timeouts, sizeof timeouts, "[{\"name\":\"ring\",\"token\":\"%s\",\"due_at\":1}]",
                   token);
    save.timeouts = timeouts;
    pr_unit *unit = begin_unit(store_at(fix, 0));
    if (version == 0)
        check_ok(unit->ops->saga_insert(unit, &whole, INSTANCE_1, &flag, &now_us, &err), &err,
                 "insert");
    check_ok(unit->ops->saga_save(unit, &whole, &save, &flag, &err), &err, "save");
    assert_true(flag);
    commit_unit(unit);
}

void case_a_timeout_before_its_own_commit_is_not_lost(void **state)
{
    store_fixture *fix = *state;
    tally_worker worker;
    tally_subscribe(fix);
    send_timeout(fix, "k", TOKEN_1, 1, "ring");
    tally_open(fix, NULL, &worker);
    tally_run(&worker, QUIET_MS);
    assert_true(tally_counters(&worker).timeouts_early >= 1);
    assert_int_equal(tally_counters(&worker).timeouts_dropped, 0);
    assert_int_equal(tally_number(fix, PARKED_SQL), 1);
    commit_step(fix, "k", 0, TOKEN_1);
    tally_run(&worker, 500);
    assert_int_equal(tally_read(fix, "k").state.sum, 1001);
    /* the same where the instance stands, and only this step is not visible yet */
    send_timeout(fix, "k", TOKEN_2, 3, "ring");
    tally_run(&worker, QUIET_MS);
    assert_int_equal(tally_counters(&worker).timeouts_dropped, 0);
    commit_step(fix, "k", 2, TOKEN_2);
    tally_run(&worker, 500);
    assert_int_equal(tally_read(fix, "k").state.sum, 1001); /* 1 as committed, and the ring */
    assert_int_equal(tally_counters(&worker).timeouts_fired, 2);
    assert_int_equal(tally_number(fix, "SELECT count(*) FROM {p}_inbox_parked"), 0);
    tally_close(&worker);
}

void case_a_timeout_without_instance_is_dropped_in_the_end(void **state)
{
    store_fixture *fix = *state;
    tally_options hasty = {.grace_ms = 300};
    tally_worker worker;
    tally_subscribe(fix);
    send_timeout(fix, "k", TOKEN_1, 1, "ring");
    tally_open(fix, &hasty, &worker);
    tally_run(&worker, 700);
    assert_int_equal(tally_counters(&worker).timeouts_dropped, 1);
    assert_int_equal(tally_number(fix, MARKS_SQL), 1);
    assert_int_equal(tally_number(fix, "SELECT count(*) FROM {p}_inbox_parked"), 0);
    assert_false(tally_read(fix, "k").found); /* a late timeout makes no empty saga */
    tally_close(&worker);
}

void case_a_timeout_that_no_type_has_is_refused(void **state)
{
    store_fixture *fix = *state;
    tally_worker worker;
    tally_subscribe(fix);
    tally_send(fix, TALLY_OPENED, "k", 5, NULL);
    tally_send(fix, TALLY_ARMED, "k", 1, "sing");
    tally_send(fix, TALLY_ARMED, "k", -1, "ring");
    tally_open(fix, NULL, &worker);
    tally_run(&worker, QUIET_MS);
    assert_int_equal(tally_number(fix, DEAD_SQL), 2);
    check_sql(fix, "SELECT min(last_error) FROM {p}_inbox_parked",
              "delay_ms is -1, must be 0 to a century", "delay");
    check_sql(fix, "SELECT max(last_error) FROM {p}_inbox_parked",
              "saga 'tally' has no timeout 'sing'", "name");
    commit_step(fix, "old", 0, TOKEN_1); /* armed by a program that had such a timeout */
    send_timeout(fix, "old", TOKEN_1, 1, "sing");
    tally_run(&worker, QUIET_MS);
    assert_int_equal(tally_number(fix, DEAD_SQL), 3);
    tally_close(&worker);
}
