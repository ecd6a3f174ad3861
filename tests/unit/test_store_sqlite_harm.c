/*
 * A SQLite store that other hands have harmed: what no claim could read is refused where it is
 * written or when the store is opened, and what a trigger swallows is never reported as written.
 */
#include "support/sqlite_world.h"
#include "support/test.h"

#include <postroom/unit.h>

#include "port/store.h"

#define TYPE_A "urn:message:shop:a"
#define ID_A   "0198c5f2-7d3e-7a10-8b2c-00000000000a"

#define PARKED                                                                                     \
    "INSERT INTO postroom_outbox_parked (message_id, type, type_version, content_type, tenant, "   \
    "body, occurred_at, parked_at, next_attempt_at, log_id, lane, reader, state"
#define VALUES ") VALUES ('" ID_A "', '" TYPE_A "', 1, 'text/plain', '', x'00', 1, 1, 1, 1, 1, "

static int setup(void **state)
{
    pr_error err = PR_ERROR_INIT;
    sqlite_world *at = calloc(1, sizeof *at);
    assert_non_null(at);
    check_ok(sqlite_world_open(at, &err), &err, "world");
    *state = at;
    return 0;
}

static int teardown(void **state)
{
    sqlite_world_close(*state);
    free(*state);
    return 0;
}

/* Plain SQL on a connection of its own; SQLite's text when it was refused, else "". */
static void execute(const sqlite_world *at, const char *sql, char *out, size_t size)
{
    sqlite3 *db = NULL;
    char *text = NULL;
    assert_int_equal(sqlite3_open_v2(at->path, &db, SQLITE_OPEN_READWRITE, NULL), SQLITE_OK);
    (void)sqlite3_exec(db, sql, NULL, NULL, &text);
    snprintf(out, size, "%s", text ? text : "");
    sqlite3_free(text);
    sqlite3_close(db);
}

static pr_store *store_of(const sqlite_world *at)
{
    pr_error err = PR_ERROR_INIT;
    pr_store *store = NULL;
    check_ok(sqlite_world_store(at, 500, 0, &store, &err), &err, "open");
    return store;
}

static pr_status enqueue(pr_store *store, int64_t deliver_at_us, pr_error *err)
{
    const pr_message message =
        PR_MESSAGE(.type = TYPE_A, .id = ID_A, .body = "{}", .body_size_bytes = 2,
                   .destination = "broker://in/x", .deliver_at_us = deliver_at_us);
    pr_unit *unit = NULL;
    check_ok(pr_unit_begin(store, &unit, err), err, "begin");
    pr_status status = pr_unit_enqueue(unit, &message, NULL, err);
    if (status == PR_OK)
        check_ok(pr_unit_commit(unit, NULL, err), err, "commit");
    pr_unit_free(unit);
    return status;
}

static void what_no_claim_could_read_is_refused_where_it_is_written(void **state)
{
    const sqlite_world *at = *state;
    const struct {
        const char *sql;
        const char *constraint;
    } cases[] = {
        {"UPDATE postroom_outbox_claim SET ids = 'garbage'", "ids_is_a_json_array"},
        {"UPDATE postroom_outbox_claim SET ids = '{}'", "ids_is_a_json_array"},
        {"UPDATE postroom_outbox_claim SET rest = '[1'", "rest_is_a_json_array"},
        {"UPDATE postroom_outbox_claim SET suspects = '[]'", "suspects_is_a_json_object"},
        {"UPDATE postroom_outbox_claim SET pos = -1", "pos_is_0_or_more"},
        {"UPDATE postroom_outbox_claim SET seq = 9223372036854775807 WHERE lane = 1", "seq_is_0"},
        {"UPDATE postroom_outbox_claim SET attempt = -1", "attempt_is_0_or_more"},
        {"UPDATE postroom_subscription SET destinations = 'x'", "destinations_is_a_json_array"},
        {PARKED VALUES "1, 'delayed')", "delayed_is_for_reader_0"},
        {PARKED VALUES "1, 'held')", "held_has_a_key"},
        {PARKED VALUES "1, 'processing')", "processing_has_a_token_and_a_lease"},
        {PARKED ", attempts" VALUES "1, 'failed', -1)", "attempts_is_0_or_more"},
        {PARKED ", takeovers" VALUES "1, 'failed', 4611686018427387904)", "takeovers_is_0_or_more"},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        char text[300];
        execute(at, cases[i].sql, text, sizeof text);
        CHECK_CASE(strstr(text, cases[i].constraint) != NULL, cases[i].sql);
    }
}

static void a_broken_subscription_costs_its_own_readers_only(void **state)
{
    const sqlite_world *at = *state;
    pr_error err = PR_ERROR_INIT;
    pr_store *store = store_of(at);
    const char *const destinations[] = {"local://in/billing"};
    const pr__reader_spec spec = {
        .name = "billing", .destinations = destinations, .destination_count = 1};
    int64_t reader = 0;
    check_ok(pr__store_reader_open(store, &spec, &reader, &err), &err, "first");
    check_ok(pr__store_reader_open(store, &spec, &reader, &err), &err, "again");
    sqlite_world_run(at, "DELETE FROM postroom_outbox_claim WHERE reader = 2 AND lane = 5");
    check_error(pr__store_reader_open(store, &spec, &reader, &err), &err, PR_E_SCHEMA,
                "reader 2 has no row for lane 5", "broken");
    pr_store_free(store);
    pr_store_free(store_of(at));
}

#define SWALLOW(event, table)                                                                      \
    "CREATE TRIGGER swallow BEFORE " event " ON postroom_" table " BEGIN SELECT raise(ignore); "   \
    "END"

static void what_a_trigger_swallows_is_not_enqueued(void **state)
{
    const sqlite_world *at = *state;
    static const struct {
        const char *sql;
        const char *text;
        int64_t deliver_at_us;
    } cases[] = {
        {SWALLOW("INSERT", "outbox"), "'postroom_outbox' was swallowed", 0},
        {SWALLOW("INSERT", "outbox_parked"), "'postroom_outbox_parked' was swallowed",
         250000000000000000},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        pr_error err = PR_ERROR_INIT;
        sqlite_world_run(at, cases[i].sql);
        pr_store *store = store_of(at);
        check_error(enqueue(store, cases[i].deliver_at_us, &err), &err, PR_E_BACKEND, cases[i].text,
                    cases[i].sql);
        pr_store_free(store);
        sqlite_world_run(at, "DROP TRIGGER swallow");
    }
    assert_int_equal(sqlite_world_number(at, "SELECT count(*) FROM postroom_outbox", NULL), 0);
}

static const pr__claim_options CLAIM = {.reader = PR_READER_RELAY,
                                        .owner = "test",
                                        .lease_ms = 60000,
                                        .batch_max = 10,
                                        .bytes_max = 1000};

static void a_swallowed_journal_row_claims_nothing(void **state)
{
    const sqlite_world *at = *state;
    pr_error err = PR_ERROR_INIT;
    pr_store *store = store_of(at);
    pr__batch *batch = NULL;
    check_ok(enqueue(store, 0, &err), &err, "enqueue");
    sqlite_world_run(at, SWALLOW("INSERT", "outbox_claim"));
    check_error(pr__store_claim(store, &CLAIM, &batch, &err), &err, PR_E_BACKEND,
                "'postroom_outbox_claim' was swallowed", "claim");
    assert_null(batch);
    pr_store_free(store);
}

static void a_failed_message_is_settled_only_when_it_was_parked(void **state)
{
    const sqlite_world *at = *state;
    pr_error err = PR_ERROR_INIT;
    pr_store *store = store_of(at);
    pr__settle_report report = {0};
    pr__batch *batch = NULL;
    check_ok(enqueue(store, 0, &err), &err, "enqueue");
    check_ok(pr__store_claim(store, &CLAIM, &batch, &err), &err, "claim");
    assert_non_null(batch);
    batch->items[0].result = PR__RESULT_DEAD;
    sqlite_world_run(at, SWALLOW("INSERT", "outbox_parked"));
    check_error(pr__store_settle(store, batch, NULL, &report, NULL, &err), &err, PR_E_BACKEND,
                "'postroom_outbox_parked' was swallowed", "settle");
    sqlite_world_run(at, "DROP TRIGGER swallow");
    pr_error_clear(&err);
    check_ok(pr__store_settle(store, batch, NULL, &report, NULL, &err), &err, "settle again");
    assert_int_equal(
        sqlite_world_number(at, "SELECT count(*) FROM postroom_outbox_parked WHERE state = 'dead'",
                            NULL),
        1);
    pr__batch_free(batch);
    pr_store_free(store);
}

static void a_delayed_message_leaves_only_for_the_log(void **state)
{
    const sqlite_world *at = *state;
    pr_error err = PR_ERROR_INIT;
    pr_store *store = store_of(at);
    uint32_t count = 0;
    int64_t next_ms = 0;
    check_ok(enqueue(store, 250000000000000000, &err), &err, "enqueue");
    sqlite_world_run(at, "UPDATE postroom_outbox_parked SET next_attempt_at = 1");
    sqlite_world_run(at, SWALLOW("INSERT", "outbox"));
    check_error(pr__store_promote(store, 10, &count, &next_ms, &err), &err, PR_E_BACKEND,
                "'postroom_outbox' was swallowed", "promote");
    assert_int_equal(sqlite_world_number(at, "SELECT count(*) FROM postroom_outbox_parked", NULL),
                     1);
    pr_store_free(store);
}

/* A row by other hands that is being processed, but does not say what it was before. */
static void a_processing_row_without_a_past_goes_on_as_failed(void **state)
{
    const sqlite_world *at = *state;
    pr_error err = PR_ERROR_INIT;
    sqlite_world_run(at, PARKED ", lock_token, locked_until" VALUES "1, 'processing', 'x', 1)");
    pr_store *store = store_of(at);
    pr__settle_report report = {0};
    pr__batch *batch = NULL;
    check_ok(pr__store_claim_parked(store, &CLAIM, &batch, &err), &err, "claim");
    assert_non_null(batch);
    assert_int_equal(batch->items[0].result, PR__RESULT_OPEN);
    check_ok(pr__store_settle(store, batch, NULL, &report, NULL, &err), &err, "give back");
    assert_int_equal(
        sqlite_world_number(
            at, "SELECT count(*) FROM postroom_outbox_parked WHERE state = 'failed'", NULL),
        1);
    pr__batch_free(batch);
    pr_store_free(store);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(what_no_claim_could_read_is_refused_where_it_is_written,
                                        setup, teardown),
        cmocka_unit_test_setup_teardown(a_broken_subscription_costs_its_own_readers_only, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(what_a_trigger_swallows_is_not_enqueued, setup, teardown),
        cmocka_unit_test_setup_teardown(a_swallowed_journal_row_claims_nothing, setup, teardown),
        cmocka_unit_test_setup_teardown(a_failed_message_is_settled_only_when_it_was_parked, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(a_delayed_message_leaves_only_for_the_log, setup, teardown),
        cmocka_unit_test_setup_teardown(a_processing_row_without_a_past_goes_on_as_failed, setup,
                                        teardown),
    };
    return RUN_TESTS(tests);
}
