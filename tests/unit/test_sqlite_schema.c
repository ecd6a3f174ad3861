/*
 * The schema of a SQLite store: what a start refuses and in which words; migrating, many at once
 * and killed at each point (capabilities 45, 124, 125).
 */
#include <signal.h>
#include <sys/wait.h>

#include "support/enqueue.h"
#include "support/sqlite_world.h"

#include "base/fault.h"
#include "port/store.h"

#define MIGRATORS 20

static int64_t number(const sqlite_world *at, const char *sql)
{
    return sqlite_world_number(at, sql, NULL);
}

/* NULL text: it is fine */
static const struct {
    const char *label;
    const char *sql;
    const char *text;
} ALTERATIONS[] = {
    {"column dropped", "ALTER TABLE postroom_saga DROP COLUMN lease_owner",
     "table 'postroom_saga' lacks its built-in column 'lease_owner'"},
    {"column renamed", "ALTER TABLE postroom_node RENAME COLUMN role TO part",
     "table 'postroom_node' lacks its built-in column 'role'"},
    {"large table's column renamed", "ALTER TABLE postroom_outbox RENAME COLUMN source TO origin",
     "table 'postroom_outbox' lacks its built-in column 'source'"},
    {"type altered",
     "DROP TABLE postroom_node; CREATE TABLE postroom_node (name TEXT NOT NULL PRIMARY KEY, "
     "role INTEGER NOT NULL, started_at INTEGER NOT NULL, seen_at INTEGER NOT NULL, detail "
     "TEXT) STRICT",
     "built-in column 'role' of table 'postroom_node' was altered: it must be TEXT NOT NULL"},
    {"not strict",
     "DROP TABLE postroom_node; CREATE TABLE postroom_node (name TEXT NOT NULL PRIMARY KEY, "
     "role TEXT NOT NULL, started_at INTEGER NOT NULL, seen_at INTEGER NOT NULL, detail TEXT)",
     "table 'postroom_node' was altered: it must be STRICT"},
    {"demanding column",
     "DROP TABLE postroom_node; CREATE TABLE postroom_node (name TEXT NOT NULL PRIMARY KEY, "
     "role TEXT NOT NULL, started_at INTEGER NOT NULL, seen_at INTEGER NOT NULL, detail TEXT, "
     "more TEXT NOT NULL) STRICT",
     "extra column 'more' that is NOT NULL without a default"},
    {"no autoincrement",
     "DROP TABLE postroom_audit; CREATE TABLE postroom_audit (id INTEGER PRIMARY KEY, at "
     "INTEGER NOT NULL, who TEXT NOT NULL, action TEXT NOT NULL, subject TEXT NOT NULL, reason "
     "TEXT NOT NULL, count INTEGER NOT NULL) STRICT; CREATE INDEX postroom_audit_by_at ON "
     "postroom_audit (at)",
     "table 'postroom_audit' was altered: its key must be AUTOINCREMENT"},
    {"table dropped", "DROP TABLE postroom_node", "table 'postroom_node' is missing"},
    {"index dropped", "DROP INDEX postroom_outbox_by_lane",
     "index 'postroom_outbox_by_lane' is missing"},
    {"view dropped", "DROP VIEW postroom_inbox_state", "view 'postroom_inbox_state' is missing"},
    {"trigger dropped", "DROP TRIGGER postroom_enqueue_insert",
     "trigger 'postroom_enqueue_insert' is missing"},
    {"lanes lost", "DELETE FROM postroom_setting WHERE name = 'lanes'", "setting 'lanes'"},
    {"lanes bad", "UPDATE postroom_setting SET value = '3' WHERE name = 'lanes'",
     "setting 'lanes'"},
    {"seven lanes", "UPDATE postroom_setting SET value = '7' WHERE name = 'lanes'",
     "no power of two"},
    {"transport's name bad",
     "UPDATE postroom_setting SET value = 'a b' WHERE name = 'default_transport'",
     "'default_transport' in 'postroom_setting' is missing or no transport"},
    {"transport's name no UTF-8",
     "UPDATE postroom_setting SET value = CAST(x'ff' AS TEXT) WHERE name = 'default_transport'",
     "'default_transport' in 'postroom_setting' is missing or no transport"},
    {"transport lost", "DELETE FROM postroom_setting WHERE name = 'default_transport'",
     "setting 'default_transport'"},
    {"lanes lowered", "UPDATE postroom_setting SET value = '8' WHERE name = 'lanes'",
     "setting 'lanes' in 'postroom_setting' is 8, but the journal has a lane 15"},
    {"lanes raised", "UPDATE postroom_setting SET value = '32' WHERE name = 'lanes'",
     "no row for lane 16 of 32"},
    {"lane's row lost", "DELETE FROM postroom_outbox_claim WHERE lane = 3",
     "reader 1 has no row for lane 3 of 16"},
    {"journal lost", "DELETE FROM postroom_outbox_claim", "reader 1 has no row for lane 0"},
    {"relay lost", "DELETE FROM postroom_subscription", "reader 1, the relay, is missing"},
    {"lane computed otherwise",
     "PRAGMA writable_schema = ON; UPDATE sqlite_schema SET sql = replace(sql, '1640531527', "
     "'1640531529') WHERE name = 'postroom_outbox'",
     "built-in column 'lane' of table 'postroom_outbox' was altered: it computes other lanes"},
    {"lane not computed",
     "PRAGMA writable_schema = ON; UPDATE sqlite_schema SET sql = substr(sql, 1, instr(sql, "
     "' GENERATED')) || substr(sql, instr(sql, 'VIRTUAL,') + 7) WHERE name = 'postroom_outbox'",
     "built-in column 'lane' of table 'postroom_outbox' was altered"},
    {"journal without its key",
     "PRAGMA writable_schema = ON; UPDATE sqlite_schema SET sql = replace(sql, 'PRIMARY KEY "
     "(reader, lane, seq)', 'PRIMARY KEY (lane, reader, seq)') WHERE name = "
     "'postroom_outbox_claim'",
     "built-in column 'reader' of table 'postroom_outbox_claim' was altered: it must be "
     "INTEGER "
     "NOT NULL, column 1 of the key"},
    {"older",
     "DROP VIEW postroom_enqueue; DROP VIEW postroom_inbox_state; DROP VIEW "
     "postroom_outbox_state; DELETE FROM postroom_schema_version WHERE version = 3",
     "schema version 2 in"},
    {"newer", "INSERT INTO postroom_schema_version VALUES (99, 'future', 0)",
     "newer than the 3 of this program"},
    {"extra column", "ALTER TABLE postroom_outbox ADD COLUMN shop TEXT", NULL},
    {"extra column with default",
     "ALTER TABLE postroom_outbox ADD COLUMN shop TEXT NOT NULL DEFAULT 'x'", NULL},
    {"extra index", "CREATE INDEX mine ON postroom_outbox (occurred_at)", NULL},
};

static void test_altered(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(ALTERATIONS); i++) {
        sqlite_world at;
        pr_error err = PR_ERROR_INIT;
        pr_store *store = NULL;
        check_ok(sqlite_world_open(&at, &err), &err, ALTERATIONS[i].label);
        sqlite_world_run(&at, ALTERATIONS[i].sql);
        pr_status status = sqlite_world_store(&at, 0, 0, &store, &err);
        if (ALTERATIONS[i].text)
            check_error(status, &err, PR_E_SCHEMA, ALTERATIONS[i].text, ALTERATIONS[i].label);
        else
            check_ok(status, &err, ALTERATIONS[i].label);
        CHECK_CASE((store == NULL) == (status != PR_OK), ALTERATIONS[i].label);
        sqlite_world_end(&at, store);
    }
}

static void enqueue_one(pr_store *store)
{
    pr_message message = PR_MESSAGE(.type = "urn:message:shop:a", .destination = "b://in/x");
    enqueue_and_commit(store, &message);
}

/* The sequence of ids stands behind ids that were used: new rows would be taken for old ones. */
static void test_sequence_behind(void **state)
{
    (void)state;
    sqlite_world at;
    pr_error err = PR_ERROR_INIT;
    pr__batch *batch = NULL;
    pr_store *store = sqlite_world_begin(&at, 0);
    for (int i = 0; i < 5; i++)
        enqueue_one(store);
    pr__claim_options opt = {.reader = 1, .lease_ms = 1000, .batch_max = 10, .bytes_max = 1000};
    check_ok(pr__store_claim(store, &opt, &batch, &err), &err, "claim");
    pr__batch_free(batch);
    pr_store_free(store);
    store = NULL;
    sqlite_world_run(&at, "DELETE FROM postroom_outbox; DELETE FROM sqlite_sequence");
    check_error(sqlite_world_store(&at, 0, 0, &store, &err), &err, PR_E_SCHEMA,
                "stands at 0, but id 5 was used", "behind");
    const char *mend = strstr(err.message, "run DELETE");
    assert_non_null(mend);
    sqlite_world_run(&at, mend + 4); /* the statement that it names does mend it */
    pr_error_clear(&err);
    check_ok(sqlite_world_store(&at, 0, 0, &store, &err), &err, "mended");
    enqueue_one(store);
    pr_store_free(store);
    assert_int_equal(number(&at, "SELECT max(id) FROM postroom_outbox"), 6);
    sqlite_world_close(&at);
}

static void test_id_never_again(void **state)
{
    (void)state;
    sqlite_world at;
    pr_store *store = sqlite_world_begin(&at, 0);
    enqueue_one(store);
    enqueue_one(store);
    sqlite_world_run(&at, "DELETE FROM postroom_outbox");
    enqueue_one(store);
    assert_int_equal(number(&at, "SELECT id FROM postroom_outbox"), 3);
    sqlite_world_end(&at, store);
}

/* The journal must be looked up for each message. The other way round, through a lane for each row
   of the journal, a count over 100,000 messages took two minutes. */
static void test_view_plan(void **state)
{
    (void)state;
    static const char *const queries[] = {
        ("EXPLAIN QUERY PLAN SELECT state, count(*) FROM postroom_outbox_state WHERE reader = 1 "
         "GROUP BY state"),
        "EXPLAIN QUERY PLAN SELECT * FROM postroom_outbox_state",
        "EXPLAIN QUERY PLAN SELECT * FROM postroom_outbox_state WHERE message_id = ?1",
    };
    sqlite_world at;
    pr_error err = PR_ERROR_INIT;
    check_ok(sqlite_world_open(&at, &err), &err, "world");
    sqlite3 *db = sqlite_world_connect(&at);
    for (size_t i = 0; i < COUNT_OF(queries); i++) {
        sqlite3_stmt *stmt = NULL;
        bool found = false;
        assert_int_equal(sqlite3_prepare_v2(db, queries[i], -1, &stmt, NULL), SQLITE_OK);
        while (sqlite3_step(stmt) == SQLITE_ROW) {
            const char *step = (const char *)sqlite3_column_text(stmt, 3);
            found = found ||
                    strcmp(step, "SEARCH j USING PRIMARY KEY (reader=? AND lane=? AND seq=?)") == 0;
        }
        sqlite3_finalize(stmt);
        CHECK_CASE(found, queries[i]);
    }
    sqlite3_close(db);
    sqlite_world_close(&at);
}

static void test_encoding(void **state)
{
    (void)state;
    sqlite_world at;
    pr_error err = PR_ERROR_INIT;
    check_ok(sqlite_world_make(&at, NULL), NULL, "world");
    sqlite_world_run(&at, "PRAGMA encoding = 'UTF-16'; CREATE TABLE theirs (a)");
    check_error(sqlite_world_migrate(&at, NULL, &err), &err, PR_E_SCHEMA, "UTF-16", "migrate");
    sqlite_world_close(&at);
}

/* And open it, which checks what was made. */
static pr_status migrate(const sqlite_world *at, pr_error *err)
{
    pr_store *store = NULL;
    pr_status status = sqlite_world_migrate(at, NULL, err);
    if (status == PR_OK)
        status = sqlite_world_store(at, 0, 0, &store, err);
    pr_store_free(store);
    return status;
}

static int end_of(pid_t pid)
{
    int how = 0;
    assert_int_equal(waitpid(pid, &how, 0), pid);
    return how;
}

static void test_many_at_once(void **state)
{
    (void)state;
    sqlite_world at;
    pid_t pids[MIGRATORS];
    check_ok(sqlite_world_make(&at, NULL), NULL, "world");
    for (int i = 0; i < MIGRATORS; i++) {
        pids[i] = fork();
        if (pids[i] == 0) {
            pr_error err = PR_ERROR_INIT;
            if (migrate(&at, &err) == PR_OK)
                _exit(0);
            fprintf(stderr, "# %s\n", err.message);
            _exit(1);
        }
    }
    for (int i = 0; i < MIGRATORS; i++) {
        int how = end_of(pids[i]);
        assert_true(WIFEXITED(how) && WEXITSTATUS(how) == 0);
    }
    assert_int_equal(number(&at, "SELECT count(*) FROM postroom_schema_version"), 3);
    assert_int_equal(number(&at, "SELECT count(*) FROM postroom_outbox_claim"), 16);
    sqlite_world_close(&at);
}

#ifdef PR_FAULT_POINTS
/* Kill a migrator at the n-th hit of a point until it comes through; then all must be there. */
static void kill_at_each(const char *point, int *ret_kills)
{
    for (int hit = 1; hit < 200; hit++) {
        sqlite_world at;
        char spec[80];
        check_ok(sqlite_world_make(&at, NULL), NULL, "world");
        snprintf(spec, sizeof spec, "%s:%d:kill", point, hit);
        pid_t pid = fork();
        if (pid == 0) {
            pr__fault_reset(spec);
            _exit(migrate(&at, NULL) == PR_OK ? 0 : 1);
        }
        int how = end_of(pid);
        pr_error err = PR_ERROR_INIT;
        check_ok(migrate(&at, &err), &err, spec);
        assert_int_equal(number(&at, "SELECT count(*) FROM postroom_schema_version"), 3);
        sqlite_world_close(&at);
        if (WIFEXITED(how)) {
            assert_int_equal(WEXITSTATUS(how), 0);
            return;
        }
        assert_int_equal(WTERMSIG(how), SIGKILL);
        (*ret_kills)++;
    }
    fail_msg("%s: no end of hits", point);
}
#endif

static void test_killed_anywhere(void **state)
{
    (void)state;
#ifdef PR_FAULT_POINTS
    int kills = 0;
    kill_at_each("store.before_migrate_statement", &kills);
    kill_at_each("store.before_migrate_commit", &kills);
    kill_at_each("store.after_migrate_commit", &kills);
    assert_true(kills > 40); /* some forty statements, three commits */
#else
    skip();
#endif
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_altered),         cmocka_unit_test(test_sequence_behind),
        cmocka_unit_test(test_id_never_again),  cmocka_unit_test(test_encoding),
        cmocka_unit_test(test_view_plan),       cmocka_unit_test(test_many_at_once),
        cmocka_unit_test(test_killed_anywhere),
    };
    return RUN_TESTS(tests);
}
