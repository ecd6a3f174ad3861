/*
 * The doctor on PostgreSQL: each thing that it looks for, its sentence, how bad it is, and what
 * mends it. That a finding of the schema is what a start refuses is test_postgres_install's.
 */
#include "postgres/ground.h"

#define FINDINGS_MAX 16

static postgres_databases databases;

/* What one look has found. */
typedef struct findings {
    size_t count;
    struct {
        pr_finding_level level;
        char subject[40], text[500], remedy[200];
    } items[FINDINGS_MAX];
} findings;

static bool keep(void *user, const pr_finding *finding)
{
    findings *of = user;
    assert_true(of->count < FINDINGS_MAX);
    of->items[of->count].level = finding->level;
    snprintf(of->items[of->count].subject, 40, "%s", finding->subject);
    snprintf(of->items[of->count].text, 500, "%s", finding->text);
    snprintf(of->items[of->count].remedy, 200, "%s", finding->remedy ? finding->remedy : "");
    of->count++;
    return true;
}

static bool stop(void *user, const pr_finding *finding)
{
    (void)keep(user, finding);
    return false;
}

static pr_store *open_any(const char *uri, const pr_clock *clock)
{
    pr_error err = PR_ERROR_INIT;
    pr_postgres_options options =
        PR_POSTGRES_OPTIONS(.schema_check_off = true, .conninfo = uri, .clock = clock);
    pr_store *store = NULL;
    check_ok(pr_postgres_store_open(&options, &store, &err), &err, "open");
    return store;
}

static void look(pr_store *store, const pr_postgres_doctor_options *opt, findings *ret_found)
{
    pr_error err = PR_ERROR_INIT;
    ret_found->count = 0;
    check_ok(pr_postgres_doctor(store, opt, keep, ret_found, &err), &err, "doctor");
}

/* One finding of this subject, with the text in its sentence; its index. */
static size_t find(const findings *of, const char *subject, pr_finding_level level,
                   const char *text, const char *label)
{
    for (size_t i = 0; i < of->count; i++) {
        if (strcmp(of->items[i].subject, subject) != 0)
            continue;
        if (of->items[i].level != level || !strstr(of->items[i].text, text))
            fail_msg("%s: level %d: %s", label, (int)of->items[i].level, of->items[i].text);
        if (strchr(of->items[i].text, '\n'))
            fail_msg("%s: more than one line: %s", label, of->items[i].text);
        return i;
    }
    fail_msg("%s: no finding '%s' among %zu", label, subject, of->count);
    return 0;
}

/* ---- the schema ---- */

static void each_fault_of_the_schema_is_found(void **state)
{
    static const struct {
        const char *label;
        const char *harm;
        const char *subjects[3];
        const char *text;
    } cases[] = {
        {"nothing", "SELECT 1", {NULL}, NULL},
        {"no schema", "DROP SCHEMA postroom CASCADE", {"schema"}, "run `postroom migrate`"},
        {"an older one",
         "DELETE FROM postroom.schema_version WHERE version > 1",
         {"schema"},
         "is older"},
        {"a newer one",
         "INSERT INTO postroom.schema_version (version, name) VALUES (99, 'x')",
         {"schema"},
         "is newer"},
        {"a cached sequence",
         "ALTER SEQUENCE postroom.outbox_id_seq CACHE 10",
         {"sequence"},
         "has a cache of 10"},
        {"a sequence behind",
         "INSERT INTO postroom.outbox (type, body) SELECT '" TYPE_PLACED "', '' FROM "
         "generate_series(1, 5); ALTER SEQUENCE postroom.outbox_id_seq RESTART WITH 2",
         {"sequence"},
         "stands at 1, but id 5 was used"},
        {"a column less",
         "ALTER TABLE postroom.inbox DROP COLUMN processed_at CASCADE",
         {"columns"},
         "lacks its built-in column 'processed_at'"},
        {"a column of another type",
         "ALTER TABLE postroom.audit ALTER COLUMN count TYPE integer",
         {"columns"},
         "'count' of table 'audit' was altered: it must be bigint NOT NULL"},
        {"a lane's row that is gone",
         "DELETE FROM postroom.outbox_claim WHERE lane = 3",
         {"journal"},
         "no row for lane 3"},
        {"no lanes",
         "DELETE FROM postroom.setting WHERE name = 'lanes'",
         {"settings"},
         "setting 'lanes'"},
        {"two at once",
         "ALTER SEQUENCE postroom.outbox_id_seq CACHE 10; DROP INDEX postroom.outbox_by_xid",
         {"sequence", "columns"},
         ""},
    };
    (void)state;
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        ground on;
        findings found;
        size_t wanted = 0;
        ground_make(&databases, NULL, &on);
        db_run(on.db, cases[i].harm);
        pr_store *store = open_any(on.uri, NULL);
        look(store, NULL, &found);
        for (; cases[i].subjects[wanted]; wanted++)
            find(&found, cases[i].subjects[wanted], PR_FINDING_FAULT, cases[i].text,
                 cases[i].label);
        CHECK_CASE(found.count == wanted, cases[i].label);
        pr_store_free(store);
        ground_done(&on);
    }
}

/* ---- the server ---- */

static void settings_that_lose_what_was_committed(void **state)
{
    static const struct {
        const char *name;
        pr_finding_level level;
        const char *text;
    } cases[] = {
        {"fsync", PR_FINDING_FAULT, "a crash of the machine damages the database"},
        {"full_page_writes", PR_FINDING_FAULT, "a crash in mid write damages pages"},
        {"synchronous_commit", PR_FINDING_WARNING, "may be lost in a crash"},
        {"autovacuum", PR_FINDING_WARNING, "dead rows stay"},
    };
    ground on;
    findings found;
    (void)state;
    ground_make(&databases, NULL, &on);
    pr_store *store = open_any(on.uri, NULL);
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        char sql[120], shown[120];
        snprintf(sql, sizeof sql, "ALTER SYSTEM SET %s = off", cases[i].name);
        snprintf(shown, sizeof shown, "SELECT current_setting('%s') = 'off'", cases[i].name);
        db_run(on.db, sql);
        db_run(on.db, "SELECT pg_reload_conf()");
        db_wait(on.db, shown, 1, cases[i].name);
        pr_store_free(store); /* a session of before may not have heard of it yet */
        store = open_any(on.uri, NULL);
        look(store, NULL, &found);
        size_t at = find(&found, cases[i].name, cases[i].level, cases[i].text, cases[i].name);
        snprintf(sql, sizeof sql, "ALTER SYSTEM SET %s = on; SELECT pg_reload_conf();",
                 cases[i].name);
        assert_string_equal(found.items[at].remedy, sql);
        snprintf(sql, sizeof sql, "ALTER SYSTEM RESET %s", cases[i].name);
        db_run(on.db, sql);
    }
    db_run(on.db, "SELECT pg_reload_conf()");
    db_wait(on.db, "SELECT current_setting('autovacuum') = 'on'", 1, "as before");
    pr_store_free(store);
    store = open_any(on.uri, NULL);
    look(store, NULL, &found);
    assert_int_equal(found.count, 0);
    pr_store_free(store);
    ground_done(&on);
}

static void a_transaction_that_holds_the_horizon(void **state)
{
    const pr_postgres_doctor_options soon = {.size = (uint32_t)sizeof soon, .horizon_ms = 1};
    ground on;
    findings found;
    char text[200];
    (void)state;
    ground_make(&databases, NULL, &on);
    pr_store *store = open_any(on.uri, NULL);
    PGconn *holder = db_open(on.uri);
    db_run(holder, "SET application_name = 'the report'");
    db_run(holder, "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1; SELECT pg_sleep(0.01)");
    look(store, NULL, &found);
    assert_int_equal(found.count, 0); /* it is young by the default limit */
    look(store, &soon, &found);
    snprintf(text, sizeof text, "session %d of postgres in ", PQbackendPID(holder));
    size_t at = find(&found, "horizon", PR_FINDING_WARNING, text, "an idle reader");
    find(&found, "horizon", PR_FINDING_WARNING, "(the report), idle in transaction has been open",
         "an idle reader");
    find(&found, "horizon", PR_FINDING_WARNING, " ms and keeps dead rows", "its age");
    db_run(on.db, found.items[at].remedy); /* ends it */
    PQfinish(holder);
    db_run(on.db, "BEGIN; CREATE TABLE t (); PREPARE TRANSACTION 'it''s'");
    look(store, &soon, &found);
    at = find(&found, "horizon", PR_FINDING_WARNING, "prepared transaction it's of postgres",
              "a prepared one");
    assert_string_equal(found.items[at].remedy, "COMMIT PREPARED or ROLLBACK PREPARED 'it''s'");
    db_run(on.db, "ROLLBACK PREPARED 'it''s'");
    look(store, &soon, &found);
    assert_int_equal(found.count, 0);
    pr_store_free(store);
    ground_done(&on);
}

/* ---- clocks ---- */

static int64_t shifted_wall(void *user)
{
    const pr_clock *system = pr_clock_system();
    return system->wall_us(system->user) + *(const int64_t *)user;
}

static int64_t steady(void *user)
{
    (void)user;
    const pr_clock *system = pr_clock_system();
    return system->monotonic_us(system->user);
}

static void clocks_that_differ(void **state)
{
    static const struct {
        const char *label;
        int64_t shift_us;
        const char *text; /* NULL: it is let pass */
    } cases[] = {
        {"the same", 0, NULL},
        {"a little", 500000, NULL},
        {"an hour ahead", 3601000000, "of this host and of the server are 1 h 0 min apart"},
        {"a day behind", -86401000000, "of this host and of the server are 1 d 0 h apart"}};
    ground on;
    (void)state;
    ground_make(&databases, NULL, &on);
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        findings found;
        int64_t shift_us = cases[i].shift_us;
        const pr_clock clock = {.size = (uint32_t)sizeof clock,
                                .wall_us = shifted_wall,
                                .monotonic_us = steady,
                                .user = &shift_us};
        pr_store *store = open_any(on.uri, &clock);
        look(store, NULL, &found);
        CHECK_CASE(found.count == (cases[i].text ? 1 : 0), cases[i].label);
        if (cases[i].text)
            find(&found, "clock", PR_FINDING_WARNING, cases[i].text, cases[i].label);
        pr_store_free(store);
    }
    ground_done(&on);
}

/* ---- the call ---- */

static void what_is_refused(void **state)
{
    const pr_postgres_doctor_options none = {.size = 0},
                                     past = {.size = (uint32_t)sizeof past, .horizon_ms = -1};
    ground on;
    findings found = {0};
    pr_error err = PR_ERROR_INIT;
    (void)state;
    ground_make(&databases, NULL, &on);
    pr_store *store = open_any(on.uri, NULL);
    check_error(pr_postgres_doctor(NULL, NULL, keep, &found, &err), &err, PR_E_INVALID, "NULL",
                "no store");
    pr_error_clear(&err);
    check_error(pr_postgres_doctor(store, NULL, NULL, NULL, &err), &err, PR_E_INVALID, "NULL",
                "no callback");
    pr_error_clear(&err);
    check_error(pr_postgres_doctor(store, &none, keep, &found, &err), &err, PR_E_INVALID, "size",
                "no size");
    pr_error_clear(&err);
    check_error(pr_postgres_doctor(store, &past, keep, &found, &err), &err, PR_E_INVALID,
                "horizon_ms", "a negative limit");
    assert_int_equal(found.count, 0);
    db_run(on.db, "ALTER SEQUENCE postroom.outbox_id_seq CACHE 10; DROP INDEX "
                  "postroom.outbox_by_xid");
    pr_error_clear(&err);
    check_ok(pr_postgres_doctor(store, NULL, stop, &found, &err), &err, "stopped by the callback");
    assert_int_equal(found.count, 1);
    pr_store_free(store);
    ground_done(&on);
}

static void a_server_that_cannot_be_written(void **state)
{
    ground on;
    findings found;
    (void)state;
    ground_make(&databases, NULL, &on);
    db_run(on.db, "DO $$ BEGIN EXECUTE 'ALTER DATABASE ' || current_database() || ' SET "
                  "default_transaction_read_only = on'; END $$");
    pr_store *store = open_any(on.uri, NULL);
    look(store, NULL, &found);
    find(&found, "read-only", PR_FINDING_WARNING, "read-only by default", "a default");
    pr_store_free(store);
    postgres_server_do(databases.server, "standby");
    store = open_any(on.uri, NULL);
    look(store, NULL, &found);
    size_t at = find(&found, "read-only", PR_FINDING_FAULT, "a standby", "a standby");
    assert_non_null(strstr(found.items[at].remedy, "target_session_attrs=read-write"));
    pr_store_free(store);
    ground_done(&on);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_refused),
        cmocka_unit_test(each_fault_of_the_schema_is_found),
        cmocka_unit_test(settings_that_lose_what_was_committed),
        cmocka_unit_test(a_transaction_that_holds_the_horizon),
        cmocka_unit_test(clocks_that_differ),
        cmocka_unit_test(a_server_that_cannot_be_written), /* the last: it stays so */
    };
    const postgres_server_options options = {.fsync = true,
                                             .settings = {"max_prepared_transactions=2"}};
    databases.server = postgres_server_start(&options);
    int failed = RUN_TESTS(tests);
    postgres_server_free(databases.server);
    return failed;
}
