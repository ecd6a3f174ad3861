/*
 * The runtime of sagas on an endpoint, compiled once and run against every store: what commits
 * together, who is missing or late, states of other versions, limits and damage. Timeouts are in
 * saga_timeouts.c, leases in saga_leases.c, processes in saga_processes.c.
 */
#include "base/fault.h"
#include "base/text.h"
#include "contract/saga_cases.h"
#include "contract/saga_world.h"

#define QUIET_MS 60
#define HOUR_US  INT64_C(3600000000)

static void check_row(const tally_row *row, int64_t sum, int64_t version, const char *label)
{
    if (!row->found)
        fail_msg("case '%s': there is no row", label);
    if (row->state.sum != sum || row->version != version)
        fail_msg("case '%s': wanted sum %lld version %lld, got %lld and %lld", label,
                 (long long)sum, (long long)version, (long long)row->state.sum,
                 (long long)row->version);
}

void case_state_mark_and_commands_commit_together(void **state)
{
    store_fixture *fix = *state;
    tally_subscribe(fix);
    tally_send(fix, TALLY_OPENED, "k", 5, NULL);
    tally_send(fix, TALLY_ADDED, "k", 7, NULL);
    tally_send(fix, TALLY_ARMED, "k", 3600000, "ring");
    tally_worker worker;
    tally_open(fix, NULL, &worker);
    tally_run(&worker, QUIET_MS);
    tally_row row = tally_read(fix, "k");
    check_row(&row, 12, 3, "three steps");
    assert_int_equal(row.state.steps, 3);
    assert_false(row.completed);
    assert_int_equal(tally_number(fix, TOLD_SQL), 3);
    assert_int_equal(tally_number(fix, MARKS_SQL), 3);
    assert_int_equal(tally_number(fix, "SELECT count(*) FROM {p}_outbox_parked WHERE reader = 0 "
                                       "AND type = '" TALLY_TIMEOUT "'"),
                     1);
    assert_non_null(strstr(row.timeouts, "\"name\":\"ring\""));
    pr_saga_snapshot counters = tally_counters(&worker);
    assert_int_equal(counters.started, 1);
    assert_int_equal(counters.stepped, 3);
    assert_int_equal(counters.timeouts_set, 1);
    tally_close(&worker);
}

void case_a_failing_handler_leaves_everything_untouched(void **state)
{
    store_fixture *fix = *state;
    tally_subscribe(fix);
    tally_send(fix, TALLY_OPENED, "k", 5, NULL);
    tally_send(fix, TALLY_FAILED, "k", 0, NULL);
    tally_send(fix, TALLY_ADDED, "other", 1, NULL);
    tally_worker worker;
    tally_open(fix, NULL, &worker);
    tally_run(&worker, QUIET_MS);
    tally_row row = tally_read(fix, "k");
    check_row(&row, 5, 1, "as it was");
    assert_int_equal(tally_number(fix, TOLD_SQL), 1);
    assert_int_equal(tally_number(fix, DEAD_SQL), 1);
    check_sql(fix, "SELECT last_error FROM {p}_inbox_parked", "told to fail", "its reason");
    assert_int_equal(tally_counters(&worker).failed, 1);
    tally_close(&worker);
}

/* The commit of a batch fails, and one of a batch by itself: each step is done again, and counts
   once. */
void case_what_was_rolled_back_is_not_counted(void **state)
{
#ifndef PR_FAULT_POINTS
    (void)state;
    skip();
#else
    store_fixture *fix = *state;
    tally_worker worker;
    pr_saga_snapshot counters;
    tally_subscribe(fix);
    static const struct {
        uint32_t batch_max;
        const char *key, *fault;
    } cases[] = {
        {1, "alone", NULL},
        {4, "batch", NULL},
        {4, "failed", "endpoint.before_batch_commit:1:fail"},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        const char *key = cases[i].key;
        tally_send(fix, TALLY_OPENED, key, 5, NULL);
        tally_send(fix, TALLY_ARMED, key, 3600000, "ring");
        tally_send(fix, TALLY_ARMED, key, 3600000, "ring");
        tally_send_loose(fix, NULL, TALLY_FAILED, key, 0);
        tally_send(fix, TALLY_CLOSED, key, 0, "");
        tally_open(fix, &(tally_options){.batch_max = cases[i].batch_max}, &worker);
        pr__fault_reset(cases[i].fault);
        tally_run(&worker, QUIET_MS);
        pr__fault_reset(NULL);
        counters = tally_counters(&worker);
        CHECK_CASE(tally_read(fix, key).completed, key);
        CHECK_CASE(counters.started == 1 && counters.completed == 1, key);
        CHECK_CASE(counters.stepped == 4, key);
        CHECK_CASE(counters.timeouts_set == 2 && counters.timeouts_cancelled == 2, key);
        tally_close(&worker);
    }
#endif
}

void case_a_step_knows_its_instance_and_may_end_it(void **state)
{
    store_fixture *fix = *state;
    tally_subscribe(fix);
    for (int64_t n = 0; n < 2; n++) {
        char wanted[64];
        tally_send(fix, TALLY_ASKED, "k", n, NULL);
        tally_work(fix, QUIET_MS);
        tally_row row = tally_read(fix, "k");
        check_row(&row, 0, n + 1, "asked");
        assert_int_equal(row.completed, n == 1); /* the predicate says nothing */
        assert_false(row.state.done);
        pr__format(wanted, sizeof wanted, "%s %lld ", row.instance_id, (long long)n);
        if (strncmp(row.note, wanted, strlen(wanted)) != 0)
            fail_msg("wanted '%s' and the time, got '%s'", wanted, row.note);
        int64_t loaded_us = strtoll(row.note + strlen(wanted), NULL, 10);
        assert_true(llabs(row.updated_at_us - loaded_us) < HOUR_US);
    }
}

void case_a_duplicate_moves_nothing(void **state)
{
    store_fixture *fix = *state;
    static const char id[] = "0198c5f2-7d3e-7a10-8b2c-000000000001";
    tally_subscribe(fix);
    for (int i = 0; i < 3; i++)
        tally_send_as(fix, id, TALLY_OPENED, "k", 5, NULL);
    tally_work(fix, QUIET_MS);
    tally_row row = tally_read(fix, "k");
    check_row(&row, 5, 1, "once");
    assert_int_equal(tally_number(fix, TOLD_SQL), 1);
}

void case_events_before_the_start_are_missing(void **state)
{
    store_fixture *fix = *state;
    tally_worker worker;
    tally_subscribe(fix);
    tally_send(fix, TALLY_ADDED, "k", 5, NULL);
    tally_open(fix, NULL, &worker);
    tally_run(&worker, QUIET_MS);
    assert_false(tally_read(fix, "k").found);
    assert_int_equal(tally_counters(&worker).missing, 1);
    assert_int_equal(tally_number(fix, MARKS_SQL), 1); /* it is done */
    assert_int_equal(tally_number(fix, TOLD_SQL), 0);
    tally_close(&worker);
}

void case_what_becomes_of_the_missing_is_a_policy(void **state)
{
    store_fixture *fix = *state;
    const struct {
        pr_saga_missing missing;
        const char *reason;
    } cases[] = {
        {PR_SAGA_MISSING_DEAD, "there is no saga 'tally' with the key 'k'"},
        {PR_SAGA_MISSING_CALL, "nobody is there"},
    };
    tally_subscribe(fix);
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        tally_options opt = {.missing = cases[i].missing};
        tally_worker worker;
        tally_send(fix, TALLY_ADDED, "k", 5, NULL);
        tally_open(fix, &opt, &worker);
        tally_run(&worker, QUIET_MS);
        tally_close(&worker);
        assert_int_equal(tally_number(fix, DEAD_SQL), 1);
        check_sql(fix, "SELECT last_error FROM {p}_inbox_parked", cases[i].reason, "reason");
        run_sql(fix, "DELETE FROM {p}_inbox_parked");
    }
}

void case_a_message_without_a_key_is_dead(void **state)
{
    store_fixture *fix = *state;
    char wanted[128];
    tally_subscribe(fix);
    tally_send(fix, TALLY_OPENED, "", 5, NULL);
    tally_send(fix, TALLY_ORDERS, "k", 5, NULL);
    tally_work(fix, QUIET_MS);
    pr__format(wanted, sizeof wanted, "saga 'tally': a '%s' has no correlation key", TALLY_OPENED);
    check_sql(fix, "SELECT last_error FROM {p}_inbox_parked WHERE type = '" TALLY_OPENED "'",
              wanted, "no key");
    check_sql(fix, "SELECT last_error FROM {p}_inbox_parked WHERE type = '" TALLY_ORDERS "'",
              "saga 'tally' takes no '" TALLY_ORDERS "'", "not its message");
    assert_int_equal(tally_number(fix, DEAD_SQL), 2);
}

void case_the_row_remembers_its_last_messages(void **state)
{
    store_fixture *fix = *state;
    static const char last[] = "0198c5f2-7d3e-7a10-8b2c-000000000009";
    tally_subscribe(fix);
    tally_send(fix, TALLY_OPENED, "k", 1, NULL);
    for (int i = 0; i < 9; i++)
        tally_send(fix, TALLY_ADDED, "k", 1, NULL);
    tally_send_as(fix, last, TALLY_ADDED, "k", 1, NULL);
    tally_work(fix, QUIET_MS);
    tally_row row = tally_read(fix, "k");
    check_row(&row, 11, 11, "eleven");
    size_t count = 0;
    for (const char *at = row.last_messages; (at = strstr(at, "\"id\"")); at++)
        count++;
    assert_int_equal(count, 4);
    assert_null(strstr(row.last_messages, TALLY_OPENED));
    assert_non_null(strstr(row.last_messages, "{\"id\":\"0198c5f2-7d3e-7a10-8b2c-000000000009\","
                                              "\"type\":\"" TALLY_ADDED "\"}]"));
}

/* ---- completion ---- */

void case_completion_keeps_a_tombstone(void **state)
{
    store_fixture *fix = *state;
    tally_worker worker;
    tally_subscribe(fix);
    tally_send(fix, TALLY_OPENED, "k", 5, NULL);
    tally_send(fix, TALLY_CLOSED, "k", 0, NULL);
    tally_open(fix, NULL, &worker);
    tally_run(&worker, QUIET_MS);
    tally_row row = tally_read(fix, "k");
    check_row(&row, 5, 2, "closed");
    assert_true(row.completed);
    tally_send(fix, TALLY_ADDED, "k", 7, NULL); /* late */
    pass_ms(fix, 1000);
    tally_send(fix, TALLY_OPENED, "k", 7, NULL); /* a late start is no start */
    tally_run(&worker, QUIET_MS);
    row = tally_read(fix, "k");
    check_row(&row, 5, 2, "nothing moves it");
    pr_saga_snapshot counters = tally_counters(&worker);
    assert_int_equal(counters.late, 2);
    assert_int_equal(counters.completed, 1);
    assert_int_equal(counters.started, 1);
    assert_int_equal(tally_number(fix, MARKS_SQL), 4);
    assert_int_equal(tally_number(fix, TOLD_SQL), 2);
    tally_close(&worker);
}

void case_a_late_start_is_counted_refused_or_begins_anew(void **state)
{
    store_fixture *fix = *state;
    tally_subscribe(fix);
    tally_send(fix, TALLY_OPENED, "k", 5, NULL);
    tally_send(fix, TALLY_CLOSED, "k", 0, NULL);
    tally_work(fix, QUIET_MS);
    tally_row first = tally_read(fix, "k");
    tally_options refuse = {.reuse = PR_SAGA_REUSE_REFUSE};
    tally_options restart = {.reuse = PR_SAGA_REUSE_RESTART};
    tally_worker worker;
    tally_send(fix, TALLY_OPENED, "k", 7, NULL);
    tally_send(fix, TALLY_ADDED, "k", 7, NULL); /* is late, whatever becomes of starts */
    tally_open(fix, &refuse, &worker);
    tally_run(&worker, QUIET_MS);
    assert_int_equal(tally_number(fix, DEAD_SQL), 1);
    assert_int_equal(tally_counters(&worker).late, 2);
    tally_row row = tally_read(fix, "k");
    check_row(&row, 5, 2, "refused");
    tally_close(&worker);
    tally_send(fix, TALLY_OPENED, "k", 8, NULL);
    tally_send(fix, TALLY_ADDED, "k", 1, NULL);
    tally_open(fix, &restart, &worker);
    tally_run(&worker, QUIET_MS);
    row = tally_read(fix, "k");
    check_row(&row, 9, 4, "restarted");
    assert_int_equal(row.state.steps, 2);
    assert_false(row.completed);
    assert_string_not_equal(row.instance_id, first.instance_id);
    assert_int_equal(tally_counters(&worker).restarted, 1);
    tally_close(&worker);
}

void case_a_key_is_free_after_retention(void **state)
{
    store_fixture *fix = *state;
    uint64_t swept = 0;
    pr_error err = PR_ERROR_INIT;
    tally_subscribe(fix);
    tally_send(fix, TALLY_OPENED, "k", 5, NULL);
    tally_send(fix, TALLY_CLOSED, "k", 0, NULL);
    tally_work(fix, QUIET_MS);
    pass_ms(fix, 10000);
    check_ok(pr_operations_saga_sweep(store_at(fix, 0), 5000, 10, &swept, &err), &err, "sweep");
    assert_int_equal(swept, 1);
    tally_worker worker;
    tally_send(fix, TALLY_ADDED, "k", 7, NULL); /* one retention after completion */
    tally_open(fix, NULL, &worker);
    tally_run(&worker, QUIET_MS);
    assert_int_equal(tally_counters(&worker).missing, 1);
    assert_false(tally_read(fix, "k").found);
    tally_send(fix, TALLY_OPENED, "k", 8, NULL);
    tally_run(&worker, QUIET_MS);
    tally_row row = tally_read(fix, "k");
    check_row(&row, 8, 1, "a new one");
    tally_close(&worker);
}

void case_old_rows_are_filled_at_their_next_event(void **state)
{
    store_fixture *fix = *state;
    tally_worker worker;
    tally_subscribe(fix);
    tally_send(fix, TALLY_OPENED, "k", 5, NULL);
    tally_send(fix, TALLY_CLOSED, "k", 0, NULL);
    tally_work(fix, QUIET_MS);
    run_sql(fix, "UPDATE {p}_saga SET completed_at = NULL"); /* as older programs left it */
    assert_false(tally_read(fix, "k").completed);
    tally_send(fix, TALLY_ADDED, "k", 7, NULL);
    tally_open(fix, NULL, &worker);
    tally_run(&worker, QUIET_MS);
    tally_row row = tally_read(fix, "k");
    check_row(&row, 5, 2, "untouched");
    assert_true(row.completed);
    pr_saga_snapshot counters = tally_counters(&worker);
    assert_int_equal(counters.filled, 1);
    assert_int_equal(counters.late, 1);
    tally_close(&worker);
}

/* ---- states ---- */

void case_old_states_are_brought_up(void **state)
{
    store_fixture *fix = *state;
    tally_options newer = {.newer = true};
    tally_worker worker;
    tally_subscribe(fix);
    tally_send(fix, TALLY_OPENED, "k", 5, NULL);
    tally_work(fix, QUIET_MS);
    tally_send(fix, TALLY_ADDED, "k", 7, NULL);
    tally_open(fix, &newer, &worker);
    tally_run(&worker, QUIET_MS);
    tally_close(&worker);
    tally_row row = tally_read(fix, "k");
    check_row(&row, 12, 2, "brought up");
    assert_string_equal(row.note, "raised");
    check_sql(fix, "SELECT state_version FROM {p}_saga", "2", "saved as the newest");
}

void case_a_newer_state_is_left_as_it_is(void **state)
{
    store_fixture *fix = *state;
    tally_options newer = {.newer = true};
    tally_worker worker;
    tally_subscribe(fix);
    tally_send(fix, TALLY_OPENED, "k", 5, NULL);
    tally_open(fix, &newer, &worker);
    tally_run(&worker, QUIET_MS);
    tally_close(&worker);
    tally_send(fix, TALLY_ADDED, "k", 7, NULL);
    tally_send(fix, TALLY_OPENED, "other", 1, NULL);
    tally_open(fix, NULL, &worker);
    tally_run(&worker, 10);
    assert_true(tally_counters(&worker).unreadable >= 1);
    tally_close(&worker);
    tally_row row = tally_read(fix, "k");
    check_row(&row, 5, 1, "untouched");
    row = tally_read(fix, "other");
    check_row(&row, 1, 1, "others go on");
    char reason[512];
    pr_error err = PR_ERROR_INIT;
    check_ok(fix->provider->ask(fix->world, "SELECT last_error FROM {p}_inbox_parked", reason,
                                sizeof reason, &err),
             &err, "reason");
    assert_non_null(strstr(reason, "it is of version 2, newer than the 1 of this program"));
    pass_ms(fix, 1000);
    tally_open(fix, &newer, &worker); /* the newer program comes by: it was parked, not lost */
    tally_run(&worker, 300);
    tally_close(&worker);
    row = tally_read(fix, "k");
    check_row(&row, 12, 2, "moved by the newer one");
    assert_int_equal(tally_number(fix, "SELECT count(*) FROM {p}_inbox_parked"), 0);
}

void case_a_state_grows_to_the_limit_and_not_past_it(void **state)
{
    store_fixture *fix = *state;
    tally_worker worker;
    tally_subscribe(fix);
    tally_send(fix, TALLY_OPENED, "k", 5, NULL);
    tally_open(fix, NULL, &worker);
    tally_run(&worker, QUIET_MS);
    int64_t empty = tally_number(fix, "SELECT length(state) FROM {p}_saga");
    tally_send(fix, TALLY_GROWN, "k", TALLY_SIZE - empty, NULL);
    tally_run(&worker, QUIET_MS);
    assert_int_equal(tally_number(fix, "SELECT length(state) FROM {p}_saga"), TALLY_SIZE);
    assert_int_equal(tally_read(fix, "k").version, 2);
    tally_send(fix, TALLY_GROWN, "k", TALLY_SIZE - empty + 1, NULL);
    tally_send(fix, TALLY_ADDED, "k", 1, NULL);
    tally_run(&worker, QUIET_MS);
    assert_int_equal(tally_counters(&worker).too_large, 1);
    check_sql(fix, "SELECT last_error FROM {p}_inbox_parked WHERE state = 'dead'",
              "the state of saga 'tally', key 'k' has 4097 bytes, at most 4096", "past it");
    tally_row row = tally_read(fix, "k");
    check_row(&row, 6, 3, "the next event moves it");
    tally_close(&worker);
}

void case_a_damaged_state_is_reported_and_others_go_on(void **state)
{
    store_fixture *fix = *state;
    tally_worker worker;
    tally_subscribe(fix);
    const char *const keys[] = {"a", "b", "c", "d"};
    for (size_t i = 0; i < COUNT_OF(keys); i++)
        tally_send(fix, TALLY_OPENED, keys[i], 5, NULL);
    tally_work(fix, QUIET_MS);
    bool sqlite = strcmp(fix->provider->kind, "sqlite") == 0;
    run_sql(fix, sqlite ? "UPDATE {p}_saga SET state = CAST('{\"sum\":' AS BLOB) WHERE "
                          "correlation_key = 'a'"
                        : "UPDATE {p}_saga SET state = '{\"sum\":' WHERE correlation_key = 'a'");
    run_sql(fix, "UPDATE {p}_saga SET timeouts = '[{\"x\"' WHERE correlation_key = 'b'");
    run_sql(fix, "UPDATE {p}_saga SET last_messages = '[}' WHERE correlation_key = 'c'");
    for (size_t i = 0; i < COUNT_OF(keys); i++)
        tally_send(fix, TALLY_ADDED, keys[i], 1, NULL);
    tally_open(fix, NULL, &worker);
    tally_run(&worker, QUIET_MS);
    assert_int_equal(tally_counters(&worker).unreadable, 2);
    assert_int_equal(tally_counters(&worker).stepped, 2);
    assert_int_equal(tally_number(fix, DEAD_SQL), 2);
    char reasons[1024];
    pr_error err = PR_ERROR_INIT;
    check_ok(fix->provider->ask(fix->world,
                                "SELECT min(last_error) || max(last_error) FROM {p}_inbox_parked",
                                reasons, sizeof reasons, &err),
             &err, "reasons");
    assert_non_null(strstr(reasons, "the state of saga 'tally', key 'a', instance"));
    assert_non_null(strstr(reasons, "the row of saga 'tally', key 'b', instance"));
    assert_null(strstr(reasons, "{\"sum\"")); /* never the content */
    assert_int_equal(tally_read(fix, "a").version, 1);
    tally_row row = tally_read(fix, "c");
    check_row(&row, 6, 2, "what only people read costs nothing");
    row = tally_read(fix, "d");
    check_row(&row, 6, 2, "others go on");
    tally_close(&worker);
}

int saga_contract_run(const store_provider *provider)
{
    const store_provider *shared = provider; /* cmocka hands on a pointer that is not const */
#define SAGA_CASE(name) {#name, case_##name, saga_setup, store_teardown, &shared},
    const struct CMUnitTest tests[] = {SAGA_CASES(SAGA_CASE)};
#undef SAGA_CASE
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests_name(provider->name, tests, NULL, NULL);
}
