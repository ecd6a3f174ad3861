/*
 * Installing: many migrators at once, two installations in one database, what producers in other
 * languages may do, what is refused when a store is opened, and a dump in a younger cluster.
 */
#include <ctype.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>

#include "base/fault.h"
#include "postgres/ground.h"
#include "support/enqueue.h"

#define MIGRATORS   20
#define DEADLINE_MS 60000
#define HITS_MAX    200

static postgres_databases databases;

/* A migrator that is to be killed. */
typedef struct faulty {
    const char *point;
    char uri[POSTGRES_CONNINFO_SIZE];
} faulty;

static pr_status open_named(const char *uri, const char *schema, const char *prefix, bool unchecked,
                            pr_store **ret_store, pr_error *err)
{
    pr_postgres_options options =
        PR_POSTGRES_OPTIONS(.conninfo = uri, .schema = schema, .prefix = prefix,
                            .schema_check_off = unchecked);
    return pr_postgres_store_open(&options, ret_store, err);
}

static int migrate_child(void *user, int n)
{
    pr_error err = PR_ERROR_INIT;
    pr_store *store = NULL;
    (void)n;
    check_ok(open_named(user, NULL, NULL, true, &store, &err), &err, "open");
    check_ok(pr_store_migrate(store, NULL, NULL, &err), &err, "migrate");
    check_ok(pr_store_check(store, &err), &err, "check");
    pr_store_free(store);
    return 0;
}

static void twenty_migrators_at_once(void **state)
{
    char uri[POSTGRES_CONNINFO_SIZE];
    int pids[MIGRATORS];
    (void)state;
    postgres_database_make(&databases, uri);
    for (int i = 0; i < MIGRATORS; i++)
        pids[i] = child_start(migrate_child, uri, i);
    for (int i = 0; i < MIGRATORS; i++)
        child_wait(pids[i], 0, DEADLINE_MS);
    assert_int_equal(
        db_number_at(uri, "SELECT count(*) - max(version) FROM postroom.schema_version"), 0);
    assert_int_equal(db_number_at(uri, "SELECT count(*) FROM postroom.outbox_claim"), 16);
}

#ifdef PR_FAULT_POINTS
static int migrate_faulty(void *user, int hit)
{
    char spec[80];
    const faulty *of = user;
    snprintf(spec, sizeof spec, "%s:%d:kill", of->point, hit);
    pr__fault_reset(spec);
    char uri[POSTGRES_CONNINFO_SIZE];
    snprintf(uri, sizeof uri, "%s", of->uri);
    return migrate_child(uri, hit);
}

/* Kill a migrator at the n-th hit of a point, until one comes through; whatever a killed one left,
   the next one ends it. How many were killed. */
static int kill_at_each(const char *point, int stride)
{
    for (int hit = 1, kills = 0; hit < HITS_MAX; hit += stride) {
        int how = 0;
        faulty of = {.point = point};
        postgres_database_make(&databases, of.uri);
        int pid = child_start(migrate_faulty, &of, hit);
        assert_int_equal(waitpid(pid, &how, 0), pid);
        assert_int_equal(migrate_child(of.uri, 0), 0);
        assert_int_equal(
            db_number_at(of.uri, "SELECT count(*) - max(version) FROM postroom.schema_version"), 0);
        pr_store *store = ground_store(of.uri);
        ground_post(store, "k", "x");
        assert_int_equal(ground_drain(store, 1000, NULL, NULL), 1);
        pr_store_free(store);
        if (WIFEXITED(how)) {
            assert_int_equal(WEXITSTATUS(how), 0);
            return kills;
        }
        assert_int_equal(WTERMSIG(how), SIGKILL);
        kills++;
    }
    fail_msg("%s: no end of hits", point);
    return 0;
}
#endif

static void a_migrator_that_is_killed_at_each_statement(void **state)
{
    (void)state;
#ifdef PR_FAULT_POINTS
    const char *soak = getenv("POSTROOM_SOAK");
    bool all = soak && soak[0] == '1';
    int kills = kill_at_each("store.before_migrate_statement", all ? 1 : 5);
    assert_true(kills >= (all ? 40 : 8));
    assert_true(kill_at_each("store.before_migrate_commit", 1) > 1);
    assert_true(kill_at_each("store.after_migrate_commit", 1) > 1);
#else
    skip();
#endif
}

static void installations_do_not_see_each_other(void **state)
{
    static const struct {
        const char *schema;
        const char *prefix;
    } places[] = {{"shop_a", NULL}, {"shop_b", NULL}, {"shop_a", "second_"}, {"Shop_C", NULL}};
    pr_store *stores[COUNT_OF(places)] = {NULL};
    char uri[POSTGRES_CONNINFO_SIZE];
    (void)state;
    postgres_database_make(&databases, uri);
    for (size_t i = 0; i < COUNT_OF(places); i++) {
        pr_error err = PR_ERROR_INIT;
        pr_store *store = NULL;
        check_ok(open_named(uri, places[i].schema, places[i].prefix, true, &store, &err), &err,
                 "open");
        check_ok(pr_store_migrate(store, NULL, NULL, &err), &err, "migrate");
        pr_store_free(store);
        check_ok(open_named(uri, places[i].schema, places[i].prefix, false, &stores[i], &err), &err,
                 "open");
    }
    for (size_t i = 0; i < COUNT_OF(places); i++)
        for (size_t count = 0; count <= i; count++)
            ground_post(stores[i], "k", "x");
    for (size_t i = 0; i < COUNT_OF(places); i++)
        assert_int_equal(ground_drain(stores[i], 1000, NULL, NULL), i + 1);
    for (size_t i = 0; i < COUNT_OF(places); i++)
        pr_store_free(stores[i]);
}

static void hostile_names_are_refused(void **state)
{
    static const char *const names[] = {
        "a b",
        "a\"b",
        "a;b",
        "a'b",
        "\xc3\xa4",
        "a.b",
        "a_name_that_is_so_long_that_the_longest_suffix_of_ours_has_no_room"};
    char uri[POSTGRES_CONNINFO_SIZE];
    (void)state;
    postgres_database_make(&databases, uri);
    for (size_t i = 0; i < COUNT_OF(names); i++) {
        pr_error err = PR_ERROR_INIT;
        pr_store *store = NULL;
        check_error(open_named(uri, names[i], NULL, true, &store, &err), &err, PR_E_INVALID, "",
                    names[i]);
        pr_error_clear(&err);
        check_error(open_named(uri, NULL, names[i], true, &store, &err), &err, PR_E_INVALID, "",
                    names[i]);
    }
}

/* ---- producers ---- */

#define COLUMNS "(type, key, body)"
#define ROW     "'" TYPE_PLACED "', 'customer-7', '\\x31'"

static const struct {
    const char *label;
    const char *sql;
    const char *sqlstate; /* "" = it works */
} deeds[] = {
    {"insert", "INSERT INTO postroom.outbox " COLUMNS " VALUES (" ROW ")", ""},
    {"insert from a select", "INSERT INTO postroom.outbox " COLUMNS " SELECT " ROW "::bytea", ""},
    {"the function, text",
     "SELECT postroom.enqueue('" TYPE_PLACED "', '1'::text, key => "
     "'customer-7')",
     ""},
    {"the function, bytes",
     "SELECT postroom.enqueue('" TYPE_PLACED "', '\\x31'::bytea, NULL, "
     "'customer-7')",
     ""},
    {"the version", "SELECT postroom.api_version()", ""},
    {"a delayed one",
     "SELECT postroom.enqueue('" TYPE_PLACED "', '1'::text, deliver_at => now() + "
     "interval '1 day')",
     ""},
    {"xid", "INSERT INTO postroom.outbox (xid, type, body) VALUES ('1', '" TYPE_PLACED "', '')",
     "42501"},
    {"lane", "INSERT INTO postroom.outbox (lane, type, body) VALUES (1, '" TYPE_PLACED "', '')",
     "428C9"},
    {"id", "INSERT INTO postroom.outbox (id, type, body) VALUES (1, '" TYPE_PLACED "', '')",
     "428C9"},
    {"read", "SELECT count(body) FROM postroom.outbox", "42501"},
    {"update", "UPDATE postroom.outbox SET body = ''", "42501"},
    {"delete", "DELETE FROM postroom.outbox", "42501"},
    {"truncate", "TRUNCATE postroom.outbox", "42501"},
    {"the journal", "SELECT * FROM postroom.outbox_claim", "42501"},
    {"parked rows", "DELETE FROM postroom.outbox_parked", "42501"},
    {"the inbox", "SELECT * FROM postroom.inbox", "42501"},
    {"marks", "DELETE FROM postroom.inbox", "42501"},
    {"settings", "UPDATE postroom.setting SET value = '1'", "42501"},
    {"the view", "SELECT * FROM postroom.outbox_state", "42501"},
    {"the sequence", "SELECT setval('postroom.outbox_id_seq', 1)", "42501"},
    {"a table of its own", "CREATE TABLE postroom.x (n integer)", "42501"},
    {"a nil id",
     "SELECT postroom.enqueue('" TYPE_PLACED "', ''::text, message_id => "
     "'00000000-0000-0000-0000-000000000000')",
     "23514"},
    {"an endless time",
     "INSERT INTO postroom.outbox (type, body, occurred_at) VALUES ('" TYPE_PLACED
     "', '', 'infinity')",
     "23514"},
    {"an empty key",
     "INSERT INTO postroom.outbox (type, body, key) VALUES ('" TYPE_PLACED "', '', '')", "23514"},
    {"headers that are no object",
     "INSERT INTO postroom.outbox (type, body, headers) VALUES ('" TYPE_PLACED "', '', '[]')",
     "23514"},
};

static void copy_one(PGconn *db)
{
    static const char line[] = TYPE_PLACED "\tcustomer-7\t\\\\x31\n";
    PGresult *result = PQexec(db, "COPY postroom.outbox " COLUMNS " FROM STDIN");
    assert_int_equal(PQresultStatus(result), PGRES_COPY_IN);
    PQclear(result);
    assert_int_equal(PQputCopyData(db, line, (int)sizeof line - 1), 1);
    assert_int_equal(PQputCopyEnd(db, NULL), 1);
    while ((result = PQgetResult(db)) != NULL) {
        assert_int_equal(PQresultStatus(result), PGRES_COMMAND_OK);
        PQclear(result);
    }
}

static void producers_can_enqueue_and_nothing_else(void **state)
{
    ground on;
    char sqlstate[6], role[80];
    (void)state;
    ground_make(&databases, NULL, &on);
    db_text(on.db, "SELECT rolname FROM pg_roles WHERE rolname LIKE 'postroom%producer'", role,
            sizeof role);
    assert_string_equal(role, "postroom_producer");
    db_run(on.db, "CREATE ROLE app LOGIN IN ROLE postroom_producer");
    db_run(on.db, "SET ROLE app");
    for (size_t i = 0; i < COUNT_OF(deeds); i++) {
        bool good = db_try(on.db, deeds[i].sql, sqlstate);
        if (strcmp(sqlstate, deeds[i].sqlstate) != 0 || good != (sqlstate[0] == '\0'))
            fail_msg("%s: wanted '%s', got '%s'", deeds[i].label, deeds[i].sqlstate, sqlstate);
    }
    copy_one(on.db);
    db_run(on.db, "RESET ROLE");
    pr_store *store = ground_store(on.uri);
    pr_message message =
        PR_MESSAGE(.type = TYPE_PLACED, .key = "customer-7", .body = "1", .body_size_bytes = 1);
    enqueue_and_commit(store, &message);
    pr_store_free(store);
    /* all of them are alike but for ids and times */
    assert_int_equal(
        db_number(on.db, "SELECT count(DISTINCT (lane, type, type_version, content_type, "
                         "coalesce(destination, ''), key, tenant, body, headers IS NULL)) FROM "
                         "postroom.outbox"),
        1);
    assert_int_equal(db_number(on.db, "SELECT count(*) FROM postroom.outbox"), 6);
    assert_int_equal(db_number(on.db, "SELECT count(*) FROM postroom.outbox WHERE message_id::text "
                                      "!~ '^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab]'"),
                     0);
    db_run(on.db, "DROP OWNED BY app; DROP ROLE app");
    ground_done(&on);
}

/* ---- what is refused at the start ---- */

static const struct {
    const char *label;
    const char *harm;
    const char *text; /* in the sentence */
    bool mends;       /* the sentence ends with a statement after "run " */
} harms[] = {
    {"a cached sequence", "ALTER SEQUENCE postroom.outbox_id_seq CACHE 20", "cache", true},
    {"a sequence that steps", "ALTER SEQUENCE postroom.outbox_id_seq INCREMENT BY 2", "altered",
     true},
    {"a sequence that is behind",
     "INSERT INTO postroom.outbox (type, body) SELECT '" TYPE_PLACED
     "', '' FROM generate_series(1, 9); ALTER SEQUENCE postroom.outbox_id_seq RESTART WITH 3",
     "stands at", true},
    {"a column that is gone", "ALTER TABLE postroom.outbox DROP COLUMN headers CASCADE", "headers",
     false},
    {"a column of another type",
     "ALTER TABLE postroom.inbox ALTER COLUMN body_hash TYPE text USING ''", "body_hash", false},
    {"a column without its rules",
     "ALTER TABLE postroom.outbox ALTER COLUMN source TYPE text COLLATE \"C\"",
     "it must be \"postroom\".message_source", false},
    {"a lane of another expression",
     "ALTER TABLE postroom.outbox DROP COLUMN lane CASCADE, ADD COLUMN lane integer NOT NULL "
     "GENERATED ALWAYS AS (((id * 3) & 15)::integer) STORED; ALTER TABLE postroom.outbox ADD "
     "PRIMARY KEY (lane, id); CREATE INDEX outbox_by_xid ON postroom.outbox (xid, lane, id); "
     "CREATE VIEW postroom.outbox_state AS SELECT 1",
     "built-in column 'lane' of table 'outbox' was altered: it computes other lanes", false},
    {"a lane by another column",
     "ALTER TABLE postroom.outbox DROP COLUMN lane CASCADE, ADD COLUMN lane integer NOT NULL "
     "GENERATED ALWAYS AS ((length(type) & 15)::integer) STORED; ALTER TABLE postroom.outbox ADD "
     "PRIMARY KEY (lane, id); CREATE INDEX outbox_by_xid ON postroom.outbox (xid, lane, id); "
     "CREATE VIEW postroom.outbox_state AS SELECT 1",
     "built-in column 'lane' of table 'outbox' was altered: it computes other lanes", false},
    {"a lane that is given", "ALTER TABLE postroom.outbox ALTER COLUMN lane DROP EXPRESSION",
     "built-in column 'lane' of table 'outbox' was altered: it must be integer NOT NULL, generated",
     false},
    {"ids that producers may give",
     "ALTER TABLE postroom.outbox ALTER COLUMN id SET GENERATED BY DEFAULT",
     "it must be bigint NOT NULL GENERATED ALWAYS AS IDENTITY", false},
    {"no transaction id", "ALTER TABLE postroom.outbox ALTER COLUMN xid DROP DEFAULT",
     "built-in column 'xid' of table 'outbox' was altered", false},
    {"a fixed transaction id", "ALTER TABLE postroom.outbox ALTER COLUMN xid SET DEFAULT '9'",
     "with the default pg_current_xact_id()", false},
    {"a transaction id behind the id",
     "ALTER TABLE postroom.outbox DROP COLUMN xid CASCADE, ADD COLUMN xid xid8 NOT NULL DEFAULT "
     "pg_current_xact_id(); CREATE INDEX outbox_by_xid ON postroom.outbox (xid, lane, id)",
     "it must stand before id", false},
    {"lanes that were changed", "UPDATE postroom.setting SET value = '8' WHERE name = 'lanes'",
     "setting 'lanes' in \"postroom\".setting is 8, but the journal has a lane 15", false},
    {"lanes that were raised", "UPDATE postroom.setting SET value = '32' WHERE name = 'lanes'",
     "has no row for lane 16 of 32", false},
    {"no lanes", "DELETE FROM postroom.setting WHERE name = 'lanes'", "setting 'lanes'", false},
    {"a lane's row that is gone", "DELETE FROM postroom.outbox_claim WHERE lane = 3",
     "has no row for lane 3 of 16", false},
    {"no relay", "DELETE FROM postroom.subscription", "reader 1, the relay, is missing", false},
    {"a journal without its key",
     "ALTER TABLE postroom.outbox_claim DROP CONSTRAINT outbox_claim_pkey",
     "table 'outbox_claim' lacks its key", true},
    {"a journal with another key",
     "ALTER TABLE postroom.outbox_claim DROP CONSTRAINT outbox_claim_pkey, ADD CONSTRAINT "
     "outbox_claim_pkey PRIMARY KEY (lane, reader, seq)",
     "lacks its key: run ALTER TABLE \"postroom\".outbox_claim ADD PRIMARY KEY (reader, lane, seq)",
     false},
    {"parked rows that may stand twice",
     "ALTER TABLE postroom.outbox_parked DROP CONSTRAINT outbox_parked_by_log_id",
     "table 'outbox_parked' lacks its key", true},
    {"an index that is gone", "DROP INDEX postroom.outbox_by_xid",
     "index 'outbox_by_xid' is missing", false},
    {"an index that is not valid",
     "UPDATE pg_index SET indisvalid = false WHERE indexrelid = 'postroom.outbox_by_xid'::regclass",
     "index 'outbox_by_xid' is missing or not valid", false},
    {"a view that is gone", "DROP VIEW postroom.inbox_state", "view 'inbox_state' is missing",
     false},
    {"a function that is gone", "DROP FUNCTION postroom.api_version()",
     "function 'api_version' is missing", false},
    {"procedures that are gone",
     "DROP PROCEDURE postroom.append(uuid, text, bytea, timestamptz, text); DROP PROCEDURE "
     "postroom.append(uuid, text, bigint, text, text, text, text, text, text, text, text, text, "
     "text, bytea, timestamptz, timestamptz)",
     "procedure 'append' is missing", false},
    {"an older schema", "DELETE FROM postroom.schema_version WHERE version > 2",
     "schema version 2 in", false},
    {"a column of a host that must be given",
     "ALTER TABLE postroom.node ADD COLUMN more text NOT NULL",
     "extra column 'more' that is NOT NULL without a default", false},
    {"a table that is gone", "DROP TABLE postroom.inbox CASCADE", "inbox", false},
    {"a newer schema",
     "INSERT INTO postroom.schema_version (version, name) VALUES (1000, 'future')", "newer", false},
    {"no schema", "DROP SCHEMA postroom CASCADE", "migrate", false},
};

static void faults_are_found_when_it_is_opened(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(harms); i++) {
        ground on;
        pr_error err = PR_ERROR_INIT;
        pr_store *store = NULL;
        ground_make(&databases, NULL, &on);
        db_run(on.db, harms[i].harm);
        check_error(open_named(on.uri, NULL, NULL, false, &store, &err), &err, PR_E_SCHEMA,
                    harms[i].text, harms[i].label);
        const char *remedy = strstr(err.message, "run ");
        if (harms[i].mends) {
            CHECK_CASE(remedy != NULL, harms[i].label);
            db_run(on.db, remedy + 4);
            pr_error_clear(&err);
            check_ok(open_named(on.uri, NULL, NULL, false, &store, &err), &err, harms[i].label);
            pr_store_free(store);
        }
        ground_done(&on);
    }
}

static void more_columns_are_fine(void **state)
{
    ground on;
    (void)state;
    ground_make(&databases, NULL, &on);
    pr_store *store = ground_store(on.uri);
    ground_post(store, "k", "x");
    assert_int_equal(ground_drain(store, 1000, NULL, NULL), 1);
    /* also while statements are prepared */
    db_run(on.db, "ALTER TABLE postroom.outbox ADD COLUMN note text, ADD COLUMN n integer NOT NULL "
                  "DEFAULT 3; ALTER TABLE postroom.outbox_claim ADD COLUMN note text; "
                  "ALTER TABLE postroom.outbox_parked ADD COLUMN note text");
    ground_post(store, "k", "x");
    assert_int_equal(ground_drain(store, 1000, NULL, NULL), 1);
    pr_store_free(store);
    store = ground_store(on.uri);
    ground_post(store, "k", "x");
    assert_int_equal(ground_drain(store, 1000, NULL, NULL), 1);
    pr_store_free(store);
    ground_done(&on);
}

/* ---- a younger cluster ---- */

static void burn_ids(PGconn *db, int count)
{
    for (int i = 0; i < count; i++)
        PQclear(PQexec(db, "SELECT pg_current_xact_id()"));
}

typedef struct tally {
    int count[400];
} tally;

static void count_one(void *user, const pr__item *item)
{
    tally *of = user;
    char text[16] = "";
    snprintf(text, sizeof text, "%.*s", (int)item->message.body_size_bytes,
             (const char *)item->message.body);
    of->count[strtol(text, NULL, 10)]++;
}

static void post_numbers(pr_store *store, int from, int to)
{
    for (int i = from; i < to; i++) {
        char body[16], key[16];
        snprintf(body, sizeof body, "%d", i);
        snprintf(key, sizeof key, "k%d", i % 7);
        ground_post(store, i % 3 ? key : NULL, body);
    }
}

/* What was settled before does not come again, what was not comes, also once the young cluster's
   transaction ids reach those that were written in the old one. */
static void a_dump_in_a_younger_cluster(void **state)
{
    ground old;
    char answer[200], folder[160], bin[120], command[1400], uri[POSTGRES_CONNINFO_SIZE];
    tally seen = {{0}};
    (void)state;
    ground_make(&databases, NULL, &old);
    pr_store *store = ground_store(old.uri);
    burn_ids(old.db, 3000); /* it is older in transactions */
    post_numbers(store, 0, 100);
    assert_int_equal(ground_drain(store, 1000, count_one, &seen), 100);
    /* one that is open while others pass it: its id stays in pend */
    PGconn *late = db_open(old.uri);
    db_run(late, "BEGIN; SELECT pg_current_xact_id(); INSERT INTO postroom.outbox (type, "
                 "destination, body) VALUES ('" TYPE_PLACED "', '" TO_BROKER "', '300')");
    post_numbers(store, 100, 150);
    assert_int_equal(ground_drain(store, 1000, count_one, &seen), 50);
    db_run(late, "COMMIT");
    PQfinish(late);
    post_numbers(store, 150, 200); /* not claimed */
    pr_store_free(store);
    postgres_server_ask(databases.server, "which", bin, sizeof bin);
    postgres_server_ask(databases.server, "copy", answer, sizeof answer);
    snprintf(folder, sizeof folder, "%.*s", (int)strcspn(answer, " "), answer);
    postgres_folder_uri(folder, "postgres", uri);
    snprintf(command, sizeof command,
             "'%s/pg_dump' '%s' | '%s/psql' -qX -v ON_ERROR_STOP=1 '%s' >/dev/null", bin, old.uri,
             bin, uri);
    db_run_at(uri, "CREATE ROLE postroom_producer"); /* roles are no part of a dump */
    if (system(command) != 0)
        fail_msg("cannot restore: %s", command);
    PGconn *young = db_open(uri);
    assert_true(db_number(young, "SELECT pg_current_xact_id()::text::bigint") <
                db_number(old.db, "SELECT pg_current_xact_id()::text::bigint"));
    pr_error err = PR_ERROR_INIT;
    store = ground_store(uri);
    check_ok(pr__store_maintain(store, &err), &err, "maintain");
    assert_int_equal(ground_drain(store, 1000, count_one, &seen), 51);
    post_numbers(store, 200, 250);
    for (int i = 0; i < 8; i++) { /* beyond the old numbers, with a claim now and then */
        burn_ids(young, 500);
        ground_drain(store, 1000, count_one, &seen);
    }
    assert_true(db_number(young, "SELECT pg_current_xact_id()::text::bigint") >
                db_number(old.db, "SELECT pg_current_xact_id()::text::bigint"));
    ground_drain(store, 1000, count_one, &seen);
    for (int i = 0; i < 250; i++)
        if (seen.count[i] != 1)
            fail_msg("message %d came %d times", i, seen.count[i]);
    assert_int_equal(seen.count[300], 1);
    pr_store_free(store);
    PQfinish(young);
    ground_done(&old);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hostile_names_are_refused),
        cmocka_unit_test(faults_are_found_when_it_is_opened),
        cmocka_unit_test(twenty_migrators_at_once),
        cmocka_unit_test(a_migrator_that_is_killed_at_each_statement),
        cmocka_unit_test(installations_do_not_see_each_other),
        cmocka_unit_test(producers_can_enqueue_and_nothing_else),
        cmocka_unit_test(more_columns_are_fine),
        cmocka_unit_test(a_dump_in_a_younger_cluster),
    };
    databases.server = postgres_server_start(NULL);
    int failed = RUN_TESTS(tests);
    postgres_server_free(databases.server);
    return failed;
}
