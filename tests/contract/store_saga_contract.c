/*
 * The saga side of the store port, compiled once and run against every store: rows, versions,
 * starts at once, leases. What operators see is in store_saga_operations.c.
 */
#include <stdlib.h>

#include "base/text.h"
#include "contract/saga_steps.h"
#include "contract/store_saga_cases.h"

#define CHILDREN  3
#define PER_CHILD 40

/* ---- keys and rows ---- */

void case_a_saga_needs_a_key_that_can_be_found_again(void **state)
{
    store_fixture *fix = *state;
    char long_key[PR_ID_SIZE_MAX + 2];
    memset(long_key, 'x', sizeof long_key - 1);
    long_key[sizeof long_key - 1] = '\0';
    const struct {
        const char *label;
        pr__saga_key key;
        pr_status wanted;
        const char *text;
    } cases[] = {
        {"no key", {.saga_type = "order", .correlation_key = ""}, PR_E_INVALID, "correlation key"},
        {"no type", {.saga_type = NULL, .correlation_key = "k"}, PR_E_INVALID, "a type"},
        {"256 bytes", {.saga_type = "order", .correlation_key = long_key}, PR_E_CONTENT, "255"},
        {"not UTF-8", {.saga_type = "order", .correlation_key = "\xFF"}, PR_E_CONTENT, "UTF-8"},
        {"tenant",
         {.tenant = "\xC0\x80", .saga_type = "order", .correlation_key = "k"},
         PR_E_CONTENT,
         "tenant"},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        bool flag = false;
        int64_t now_us = 0;
        pr_error err = PR_ERROR_INIT;
        pr_unit *unit = begin_unit(store_at(fix, 0));
        check_error(unit->ops->saga_insert(unit, &cases[i].key, INSTANCE_1, &flag, &now_us, &err),
                    &err, cases[i].wanted, cases[i].text, cases[i].label);
        commit_unit(unit); /* the unit is unharmed */
    }
    check_sql(fix, "SELECT count(*) FROM {p}_saga", "0", "rows");
}

void case_what_was_saved_comes_back(void **state)
{
    store_fixture *fix = *state;
    static const char bytes[] = "{\"a\":\"\xE2\x82\xAC\"}";
    int64_t before_us = store_now_us(fix);
    pr_unit *unit = begin_unit(store_at(fix, 0));
    pr__arena *arena = pr__arena_new(0);
    pr__saga_row row;
    assert_true(saga_insert_in(unit, "k", INSTANCE_1));
    assert_true(saga_load_in(unit, "k", arena, &row));
    assert_int_equal(row.version, 0);
    assert_int_equal(row.state_size, 0);
    pr__saga_save save = saga_state(INSTANCE_1, 0, bytes);
    save.state_version = 7;
    save.timeouts = "[{\"name\":\"pay\"}]";
    save.last_messages = "[{\"id\":\"m\"}]";
    assert_true(saga_save_in(unit, "k", &save));
    commit_unit(unit);
    unit = begin_unit(store_at(fix, 1));
    assert_true(saga_load_in(unit, "k", arena, &row));
    assert_string_equal(row.instance_id, INSTANCE_1);
    assert_int_equal(row.version, 1);
    assert_int_equal(row.state_version, 7);
    assert_int_equal(row.state_size, strlen(bytes));
    assert_memory_equal(row.state, bytes, strlen(bytes));
    assert_string_equal(row.timeouts, save.timeouts);
    assert_string_equal(row.last_messages, save.last_messages);
    assert_string_equal(row.lease_token, "");
    assert_null(row.lease_owner);
    assert_true(row.started_at_us >= before_us && row.updated_at_us >= row.started_at_us);
    assert_int_equal(row.completed_at_us, 0);
    assert_true(row.now_us >= row.updated_at_us);
    rollback_unit(unit);
    pr__arena_free(arena);
}

void case_a_miss_tells_the_time_too(void **state)
{
    store_fixture *fix = *state;
    pr__saga_row row;
    int64_t before_us = store_now_us(fix);
    assert_false(saga_load_now(store_at(fix, 0), "none", &row));
    assert_true(row.now_us >= before_us);
}

void case_each_tenant_and_type_has_its_own(void **state)
{
    store_fixture *fix = *state;
    const pr__saga_key keys[] = {
        {.tenant = "", .saga_type = "order", .correlation_key = "k"},
        {.tenant = "acme", .saga_type = "order", .correlation_key = "k"},
        {.tenant = "", .saga_type = "claim", .correlation_key = "k"},
        {.tenant = "", .saga_type = "order", .correlation_key = "K"},
        {.tenant = "", .saga_type = "order", .correlation_key = " k"},
        {.tenant = "", .saga_type = "order", .correlation_key = "k' OR '1'='1"},
        {.tenant = "", .saga_type = "order", .correlation_key = "\xF0\x9F\x93\xAE"},
    };
    for (int round = 0; round < 2; round++) {
        for (size_t i = 0; i < COUNT_OF(keys); i++) {
            char id[PR_UUID_TEXT_SIZE];
            bool inserted = false;
            int64_t now_us = 0;
            pr_error err = PR_ERROR_INIT;
            pr__format(id, sizeof id, "019b0000-0000-7000-8000-0000000001%02d", (int)i);
            pr_unit *unit = begin_unit(store_at(fix, 0));
            check_ok(unit->ops->saga_insert(unit, &keys[i], id, &inserted, &now_us, &err), &err,
                     "insert");
            commit_unit(unit);
            CHECK_CASE(inserted == (round == 0), keys[i].correlation_key);
        }
    }
    check_sql(fix, "SELECT count(*) FROM {p}_saga", "7", "rows");
}

void case_a_second_start_is_no_second_instance(void **state)
{
    store_fixture *fix = *state;
    pr__saga_row row;
    saga_start(store_at(fix, 0), "k", INSTANCE_1, "{}");
    pr_unit *unit = begin_unit(store_at(fix, 1));
    assert_false(saga_insert_in(unit, "k", INSTANCE_2));
    commit_unit(unit); /* still usable: no error of the database */
    assert_true(saga_load_now(store_at(fix, 0), "k", &row));
    assert_string_equal(row.instance_id, INSTANCE_1);
}

void case_a_rollback_leaves_nothing(void **state)
{
    store_fixture *fix = *state;
    pr__saga_row row;
    pr_unit *unit = begin_unit(store_at(fix, 0));
    assert_true(saga_insert_in(unit, "k", INSTANCE_1));
    rollback_unit(unit);
    assert_false(saga_load_now(store_at(fix, 1), "k", &row));
    saga_start(store_at(fix, 0), "k", INSTANCE_1, "{\"n\":1}");
    unit = begin_unit(store_at(fix, 0));
    pr__saga_save save = saga_state(INSTANCE_1, 1, "{\"n\":2}");
    assert_true(saga_save_in(unit, "k", &save));
    rollback_unit(unit);
    assert_true(saga_load_now(store_at(fix, 1), "k", &row));
    assert_int_equal(row.version, 1);
}

void case_only_the_version_that_was_loaded_is_saved(void **state)
{
    store_fixture *fix = *state;
    pr__saga_row row;
    saga_start(store_at(fix, 0), "k", INSTANCE_1, "{\"n\":1}");
    const int64_t versions[] = {0, 2, -1, INT64_MAX};
    for (size_t i = 0; i < COUNT_OF(versions); i++) {
        pr__saga_save save = saga_state(INSTANCE_1, versions[i], "{\"n\":9}");
        assert_false(saga_save_now(store_at(fix, 1), "k", &save));
    }
    assert_true(saga_load_now(store_at(fix, 0), "k", &row));
    assert_int_equal(row.version, 1);
    assert_int_equal(row.state_size, strlen("{\"n\":1}"));
}

void case_only_the_instance_that_was_loaded_is_saved(void **state)
{
    store_fixture *fix = *state;
    saga_start(store_at(fix, 0), "k", INSTANCE_1, "{}");
    pr__saga_save save = saga_state(INSTANCE_2, 1, "{}");
    assert_false(saga_save_now(store_at(fix, 1), "k", &save));
    assert_false(saga_save_now(store_at(fix, 1), "other", &save));
}

/* ---- at once ---- */

void case_another_at_the_same_saga_is_waited_for(void **state)
{
    store_fixture *fix = *state;
    pr_store *impatient = NULL;
    store_settings settings = {.busy_ms = 50};
    pr_error err = PR_ERROR_INIT;
    saga_start(store_at(fix, 0), "k", INSTANCE_1, "{}");
    check_ok(fix->provider->open(fix->world, &settings, &impatient, &err), &err, "open");
    pr__arena *arena = pr__arena_new(0);
    pr__saga_row row;
    pr_unit *holder = begin_unit(store_at(fix, 0));
    assert_true(saga_load_in(holder, "k", arena, &row));
    pr_unit *other = NULL;
    bool found = false;
    pr__saga_key key = saga_key_of("k");
    pr_status status = pr_unit_begin(impatient, &other, &err);
    if (status == PR_OK) /* SQLite has one writer: it waits here already */
        status = other->ops->saga_load(other, &key, arena, &found, &row, &err);
    assert_int_equal(status, PR_E_BUSY);
    assert_int_equal(err.retry, PR_RETRY_SAME);
    pr_unit_free(other);
    commit_unit(holder);
    assert_true(saga_load_now(impatient, "k", &row));
    pr_store_free(impatient);
    pr__arena_free(arena);
}

/* A state that is a number; none yet is 0. */
static int64_t number_of(const pr__saga_row *row)
{
    int64_t number = 0;
    if (row->state_size > 0) /* the arena's copy ends with a NUL */
        assert_true(pr__parse_int64(row->state, 0, 1000000, &number));
    return number;
}

/* Start it, or load what another started; then add one. */
static int add_all(store_fixture *fix, int n)
{
    int started = 0;
    for (int i = 0; i < PER_CHILD; i++) {
        char id[PR_UUID_TEXT_SIZE], text[32];
        pr__arena *arena = pr__arena_new(0);
        pr__saga_row row;
        pr__format(id, sizeof id, "019b0000-0000-7000-8000-00000%03d%04d", n, i);
        pr_unit *unit = begin_unit(store_at(fix, 0));
        started += saga_insert_in(unit, "k", id);
        if (!saga_load_in(unit, "k", arena, &row))
            return 250;
        pr__format(text, sizeof text, "%d", (int)number_of(&row) + 1);
        pr__saga_save save = saga_state(row.instance_id, row.version, text);
        if (!saga_save_in(unit, "k", &save))
            return 250;
        commit_unit(unit);
        pr__arena_free(arena);
    }
    return started;
}

void case_starts_of_many_processes_make_one_instance(void **state)
{
    store_fixture *fix = *state;
    int pids[CHILDREN];
    int started = 0;
    for (int i = 0; i < CHILDREN; i++)
        pids[i] = start_child(fix, add_all, i);
    for (int i = 0; i < CHILDREN; i++)
        started += child_result(pids[i]);
    assert_int_equal(started, 1);
    check_sql(fix, "SELECT count(*) FROM {p}_saga", "1", "instances");
    check_sql(fix, "SELECT version FROM {p}_saga", "120", "versions");
    pr__arena *arena = pr__arena_new(0);
    pr__saga_row row;
    pr_unit *unit = begin_unit(store_at(fix, 0));
    assert_true(saga_load_in(unit, "k", arena, &row));
    assert_string_equal(row.state, "120"); /* each saw what the one before it had saved */
    rollback_unit(unit);
    pr__arena_free(arena);
}

/* Versions are the only guard here: the load's transaction ends before the save's begins. */
static int add_optimistically(store_fixture *fix, int n)
{
    int lost = 0;
    (void)n;
    for (int done = 0; done < PER_CHILD;) {
        pr__arena *arena = pr__arena_new(0);
        pr__saga_row row;
        char text[32];
        pr_unit *unit = begin_unit(store_at(fix, 0));
        if (!saga_load_in(unit, "k", arena, &row))
            return 250;
        pr__format(text, sizeof text, "%d", (int)number_of(&row) + 1);
        commit_unit(unit);
        pr__saga_save save = saga_state(row.instance_id, row.version, text);
        if (saga_save_now(store_at(fix, 0), "k", &save))
            done++;
        else
            lost += lost < 200;
        pr__arena_free(arena);
    }
    return lost;
}

void case_no_update_is_lost_among_processes(void **state)
{
    store_fixture *fix = *state;
    int pids[CHILDREN];
    saga_start(store_at(fix, 0), "k", INSTANCE_1, "0");
    close_stores(fix);
    for (int i = 0; i < CHILDREN; i++)
        pids[i] = start_child(fix, add_optimistically, i);
    for (int i = 0; i < CHILDREN; i++)
        (void)child_result(pids[i]);
    pr__arena *arena = pr__arena_new(0);
    pr__saga_row row;
    pr_unit *unit = begin_unit(store_at(fix, 0));
    assert_true(saga_load_in(unit, "k", arena, &row));
    assert_string_equal(row.state, "120");
    assert_int_equal(row.version, 121);
    rollback_unit(unit);
    pr__arena_free(arena);
}

/* ---- completion ---- */

void case_completion_is_kept_and_filled_late(void **state)
{
    store_fixture *fix = *state;
    pr__saga_row row;
    pr__saga_key key = saga_key_of("old");
    bool filled = false;
    pr_error err = PR_ERROR_INIT;
    saga_start(store_at(fix, 0), "k", INSTANCE_1, "{}");
    pr__saga_save save = saga_state(INSTANCE_1, 1, "{\"done\":true}");
    save.complete = true;
    assert_true(saga_save_now(store_at(fix, 0), "k", &save));
    assert_true(saga_load_now(store_at(fix, 1), "k", &row));
    assert_true(row.completed_at_us > 0 && row.completed_at_us == row.updated_at_us);

    saga_start(store_at(fix, 0), "old", INSTANCE_2, "{\"done\":true}");
    for (int i = 0; i < 3; i++) {
        pr_unit *unit = begin_unit(store_at(fix, 0));
        check_ok(
            unit->ops->saga_complete(unit, &key, i == 0 ? INSTANCE_1 : INSTANCE_2, &filled, &err),
            &err, "complete");
        commit_unit(unit);
        assert_int_equal(filled, i == 1); /* not another's, and once only */
    }
    assert_true(saga_load_now(store_at(fix, 1), "old", &row));
    assert_true(row.completed_at_us > 0);
    assert_int_equal(row.version, 1);
}

void case_a_restart_is_another_instance(void **state)
{
    store_fixture *fix = *state;
    pr__saga_row first, second;
    saga_start(store_at(fix, 0), "k", INSTANCE_1, "{}");
    pr__saga_save save = saga_state(INSTANCE_1, 1, "{}");
    save.complete = true;
    assert_true(saga_save_now(store_at(fix, 0), "k", &save));
    assert_true(saga_load_now(store_at(fix, 0), "k", &first));
    pr__saga_save restart = saga_state(INSTANCE_1, 2, "{\"n\":1}");
    restart.restart_id = INSTANCE_2;
    assert_true(saga_save_now(store_at(fix, 0), "k", &restart));
    assert_true(saga_load_now(store_at(fix, 1), "k", &second));
    assert_string_equal(second.instance_id, INSTANCE_2);
    assert_int_equal(second.completed_at_us, 0);
    assert_true(second.started_at_us > first.started_at_us);
    assert_int_equal(second.version, 3);
    assert_false(saga_save_now(store_at(fix, 0), "k", &restart)); /* the old one is gone */
}

/* ---- leases ---- */

void case_a_live_lease_is_another_holders(void **state)
{
    store_fixture *fix = *state;
    pr__saga_row row;
    saga_start(store_at(fix, 0), "k", INSTANCE_1, "{}");
    assert_true(saga_lease_now(store_at(fix, 0), "k", TOKEN_1, 60000));
    assert_false(saga_lease_now(store_at(fix, 1), "k", TOKEN_2, 60000));
    assert_false(saga_lease_now(store_at(fix, 0), "k", TOKEN_1, 60000)); /* not twice either */
    assert_true(saga_load_now(store_at(fix, 1), "k", &row));
    assert_string_equal(row.lease_token, TOKEN_1);
    assert_true(row.lease_until_us > row.now_us);
    pr__saga_save save = saga_state(INSTANCE_1, 1, "{\"n\":1}");
    save.lease_token = TOKEN_2;
    assert_false(saga_save_now(store_at(fix, 1), "k", &save));
    save.lease_token = TOKEN_1;
    assert_true(saga_save_now(store_at(fix, 0), "k", &save));
    assert_true(saga_load_now(store_at(fix, 1), "k", &row));
    assert_string_equal(row.lease_token, ""); /* the save gave it back */
    assert_int_equal(row.lease_until_us, 0);
    assert_int_equal(row.version, 2);
}

void case_an_expired_lease_can_be_taken_and_fences(void **state)
{
    store_fixture *fix = *state;
    saga_start(store_at(fix, 0), "k", INSTANCE_1, "{}");
    assert_true(saga_lease_now(store_at(fix, 0), "k", TOKEN_1, 1000));
    pass_ms(fix, 1500);
    assert_true(saga_lease_now(store_at(fix, 1), "k", TOKEN_2, 60000));
    pr__saga_save save = saga_state(INSTANCE_1, 1, "{\"n\":1}");
    save.lease_token = TOKEN_1;
    assert_false(saga_save_now(store_at(fix, 0), "k", &save));
    save.lease_token = TOKEN_2;
    assert_true(saga_save_now(store_at(fix, 1), "k", &save));
    save.lease_token = TOKEN_1;
    assert_false(saga_save_now(store_at(fix, 0), "k", &save));
}

void case_a_saga_lease_is_renewed_and_given_back_by_token(void **state)
{
    store_fixture *fix = *state;
    pr__saga_row row;
    saga_start(store_at(fix, 0), "k", INSTANCE_1, "{}");
    assert_true(saga_lease_now(store_at(fix, 0), "k", TOKEN_1, 1000));
    assert_false(saga_renew_now(store_at(fix, 1), "k", TOKEN_2, 60000));
    assert_true(saga_renew_now(store_at(fix, 0), "k", TOKEN_1, 60000));
    pass_ms(fix, 2000);
    assert_false(saga_lease_now(store_at(fix, 1), "k", TOKEN_2, 1000)); /* it was renewed */
    assert_false(saga_unlease_now(store_at(fix, 1), "k", TOKEN_2));
    assert_true(saga_unlease_now(store_at(fix, 0), "k", TOKEN_1));
    assert_false(saga_unlease_now(store_at(fix, 0), "k", TOKEN_1));
    assert_true(saga_lease_now(store_at(fix, 1), "k", TOKEN_2, INT64_MAX)); /* no overflow */
    assert_true(saga_load_now(store_at(fix, 1), "k", &row));
    assert_true(row.lease_until_us > row.now_us);
}

void case_a_completed_saga_is_not_leased(void **state)
{
    store_fixture *fix = *state;
    saga_start(store_at(fix, 0), "k", INSTANCE_1, "{}");
    pr__saga_save save = saga_state(INSTANCE_1, 1, "{}");
    save.complete = true;
    assert_true(saga_save_now(store_at(fix, 0), "k", &save));
    assert_false(saga_lease_now(store_at(fix, 0), "k", TOKEN_1, 1000));
}

int store_saga_contract_run(const store_provider *provider)
{
    const store_provider *shared = provider; /* cmocka hands on a pointer that is not const */
#define STORE_SAGA_CASE(name) {#name, case_##name, store_setup, store_teardown, &shared},
    const struct CMUnitTest tests[] = {STORE_SAGA_CASES(STORE_SAGA_CASE)};
#undef STORE_SAGA_CASE
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests_name(provider->name, tests, NULL, NULL);
}
