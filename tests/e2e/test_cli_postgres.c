/*
 * The command on PostgreSQL: how a store is named, messages from and to SQLite, the doctor, and the
 * demo between two databases of a server.
 */
#include <unistd.h>

#include "program.h"
#include "support/postgres_db.h"

static postgres_databases databases;

static void enter(folder *here, char uri[POSTGRES_CONNINFO_SIZE])
{
    folder_enter(here);
    postgres_database_make(&databases, uri);
}

static const char *database_of(const char *uri, char name[64])
{
    snprintf(name, 64, "%.*s", (int)strcspn(uri + 14, "?"), uri + 14);
    return name;
}

static void a_store_has_many_names(void **state)
{
    folder here;
    char uri[POSTGRES_CONNINFO_SIZE], words[400], hosts[600], name[64], port[16];
    (void)state;
    enter(&here, uri);
    database_of(uri, name);
    snprintf(port, sizeof port, "%d", POSTGRES_SERVER_PORT);
    expect(4, "", "migrate", "status", "--store", uri);
    expect(0, "CREATE TABLE", "", "migrate", "--store", uri, "--print");
    expect(4, "", "migrate", "status", "--store", uri); /* printing made nothing */
    expect(0, "made", "", "migrate", "--store", uri);
    expect(0, "already", "", "migrate", "--store", uri);
    snprintf(words, sizeof words, "host='%s' port=%s user=postgres dbname=%s",
             postgres_server_folder(databases.server), port, name);
    expect(0, "schema version", "", "status", "--store", words);
    snprintf(hosts, sizeof hosts,
             "postgresql:///%s?host=/nowhere,%s&port=%s&user=postgres"
             "&target_session_attrs=read-write",
             name, postgres_server_folder(databases.server), port);
    expect(0, "schema version", "", "status", "--store", hosts);
    setenv("PGHOST", postgres_server_folder(databases.server), 1);
    setenv("PGPORT", port, 1);
    setenv("PGUSER", "postgres", 1);
    setenv("PGDATABASE", name, 1);
    expect(0, "schema version", "", "status", "--store", "postgresql:");
    expect(0, "schema version", "", "status", "--store", "postgres:");
    setenv("PGPORT", "1", 1); /* what is named goes before the variables */
    expect(1, "", NULL, "status", "--store", "postgresql:");
    expect(0, "schema version", "", "status", "--store", uri);
    setenv("PGPORT", port, 1);
    setenv("PGAPPNAME", "the tester", 1);
    setenv("PGOPTIONS", "-c search_path=nowhere -c default_transaction_read_only=on", 1);
    expect(0, NULL, "", "send", "urn:message:shop:a", "{}", "--store", "postgresql:");
    unsetenv("PGAPPNAME");
    unsetenv("PGOPTIONS");
    expect(0, "made", "", "migrate", "--store", "postgresql:", "--schema", "other");
    expect(0, "schema version", "", "status", "--store", "postgresql:", "--schema", "other",
           "--pooler");
    expect(2, "", "schema", "migrate", "--store", "postgresql:", "--schema", "a;b");
    unsetenv("PGHOST");
    unsetenv("PGPORT");
    unsetenv("PGUSER");
    unsetenv("PGDATABASE");
    folder_leave(&here);
}

/* Of several hosts the one that can be written, wherever it stands in the list. */
static void the_writable_host_is_found(void **state)
{
    static const struct {
        bool standby_first;
        const char *attributes;
        int code;
        const char *text; /* on standard error */
    } cases[] = {
        {true, "&target_session_attrs=read-write", 0, ""},
        {false, "&target_session_attrs=read-write", 0, ""},
        {false, "", 0, ""},
        {true, "", 1, "name all hosts and target_session_attrs=read-write"},
        {false, "&target_session_attrs=read-only", 1, "read-only"},
    };
    folder here;
    char uri[700];
    (void)state;
    folder_enter(&here);
    postgres_server *standby = postgres_server_start(NULL);
    postgres_server_do(standby, "standby");
    const char *writable = postgres_server_folder(databases.server);
    postgres_server_uri(databases.server, "postgres", uri);
    expect(0, "made", "", "migrate", "--store", uri, "--schema", "hosts");
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        const char *other = postgres_server_folder(standby);
        result r;
        snprintf(uri, sizeof uri, "postgresql:///postgres?host=%s,%s&port=%d&user=postgres%s",
                 cases[i].standby_first ? other : writable,
                 cases[i].standby_first ? writable : other, POSTGRES_SERVER_PORT,
                 cases[i].attributes);
        run(&r, "migrate", "--store", uri, "--schema", "hosts");
        check_result(&r, cases[i].code, cases[i].code ? "" : "already", cases[i].text, uri);
        result_done(&r);
    }
    postgres_server_free(standby);
    folder_leave(&here);
}

static void messages_cross_from_and_to_sqlite(void **state)
{
    folder here;
    char uri[POSTGRES_CONNINFO_SIZE], id[64];
    result r;
    (void)state;
    enter(&here, uri);
    expect(0, "made", "", "migrate", "--store", uri);
    expect(0, "made", "", "migrate", "--store", "a.db");
    PGconn *db = db_open(uri);
    change("a.db", "INSERT INTO postroom_subscription (name, destinations, order_policy, temporary,"
                   " start_id, created_at) VALUES ('billing',"
                   " '[\"local://topic/urn:message:shop:order-placed\"]', 'hold', 0, 0, 0)");
    db_run(db, "INSERT INTO postroom.subscription (name, destinations, order_policy, temporary,"
               " start_id, start_pend) VALUES ('billing',"
               " '{local://topic/urn:message:shop:order-placed}', 'hold', false, 0, '{}')");
    for (int i = 0; i < 5; i++)
        expect(0, NULL, "", "send", "urn:message:shop:order-placed", "{\"n\": 1}", "--key", "c",
               "--store", uri);
    expect(0, "5 published", "", "relay", "--once", "--store", uri, "--to", "sqlite:a.db");
    assert_int_equal(number_of("a.db", "SELECT count(*) FROM postroom_outbox"), 5);
    assert_int_equal(db_number(db,
                               "SELECT count(*) FROM postroom.outbox_state WHERE reader = 1 AND "
                               "state = 'published'"),
                     5);
    for (int i = 0; i < 3; i++)
        expect(0, NULL, "", "send", "urn:message:shop:order-placed", "{\"n\": 2}", "--key", "d",
               "--store", "a.db");
    expect(0, "3 published", "", "relay", "--once", "--store", "a.db", "--to", uri);
    assert_int_equal(db_number(db, "SELECT count(*) FROM postroom.outbox"), 8);
    run(&r, "outbox", "list", "--store", uri, "--json");
    check_result(&r, 0, "order-placed", "", "list");
    result_done(&r);
    db_text(db, "SELECT message_id FROM postroom.outbox ORDER BY id LIMIT 1", id, sizeof id);
    expect(0, "published", "", "explain", id, "--store", uri);
    expect(0, id, "", "outbox", "show", id, "--store", uri);
    expect(3, "", NULL, "outbox", "show", "01a22d1f-1ccc-7ba9-89b4-d7b94c7fb226", "--store", uri);
    PQfinish(db);
    folder_leave(&here);
}

static void the_doctor_finds_faults(void **state)
{
    static const struct {
        const char *label;
        const char *harm;
        int code;
        const char *text;
    } cases[] = {
        {"a healthy store", "SELECT 1", 0, "nothing was found"},
        {"a sequence that is behind",
         "INSERT INTO postroom.outbox (type, body) SELECT 'urn:message:shop:x', '' FROM "
         "generate_series(1, 5); ALTER SEQUENCE postroom.outbox_id_seq RESTART WITH 2",
         1, "stands at 1, but id 5 was used"},
        {"a warning", "ALTER SYSTEM SET autovacuum = off", 0, "warning  autovacuum is off"},
        {"a cached sequence", "ALTER SEQUENCE postroom.outbox_id_seq CACHE 9", 1, "CACHE 1"},
        {"a column that is gone",
         "ALTER TABLE postroom.outbox_parked DROP COLUMN operator_hold "
         "CASCADE",
         1, "operator_hold"},
        {"an older schema", "DELETE FROM postroom.schema_version WHERE version > 1", 1, "migrate"},
        {"a newer schema", "INSERT INTO postroom.schema_version (version, name) VALUES (99, 'x')",
         1, "newer"},
        {"no schema", "DROP SCHEMA postroom CASCADE", 1, "migrate"},
        {"full_page_writes", "ALTER SYSTEM SET full_page_writes = off", 1, "full_page_writes"},
    };
    (void)state;
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        folder here;
        char uri[POSTGRES_CONNINFO_SIZE];
        result r;
        enter(&here, uri);
        expect(0, "made", "", "migrate", "--store", uri);
        db_run_at(uri, cases[i].harm);
        db_run_at(uri, "SELECT pg_reload_conf()");
        if (strstr(cases[i].harm, "ALTER SYSTEM")) {
            PGconn *db = db_open(uri);
            db_wait(db,
                    "SELECT 'off' IN (current_setting('full_page_writes'), "
                    "current_setting('autovacuum'))",
                    1, cases[i].label);
            PQfinish(db);
        }
        run(&r, "doctor", "--store", uri);
        check_result(&r, cases[i].code, cases[i].text, "", cases[i].label);
        result_done(&r);
        run(&r, "doctor", "--store", uri, "--json");
        check_result(&r, cases[i].code, cases[i].code ? "\"ok\":false" : "\"ok\":true", "",
                     cases[i].label);
        result_done(&r);
        db_run_at(uri, "ALTER SYSTEM RESET ALL");
        db_run_at(uri, "SELECT pg_reload_conf()");
        folder_leave(&here);
    }
}

/* It names who holds vacuum up; that is a warning. */
static void the_doctor_names_a_long_transaction(void **state)
{
    folder here;
    char uri[POSTGRES_CONNINFO_SIZE], text[120];
    (void)state;
    enter(&here, uri);
    expect(0, "made", "", "migrate", "--store", uri);
    PGconn *holder = db_open(uri);
    db_run(holder, "SET application_name = 'the report'; BEGIN ISOLATION LEVEL REPEATABLE READ; "
                   "SELECT 1; SELECT pg_sleep(0.01)");
    db_wait(holder, "SELECT current_setting('full_page_writes') = 'on'", 1, "as it was");
    expect(0, "nothing was found", "", "doctor", "--store", uri);
    snprintf(text, sizeof text, "warning  session %d of postgres in ", PQbackendPID(holder));
    expect(0, text, "", "doctor", "--store", uri, "--horizon", "1ms");
    expect(0, "(the report), idle in transaction has been open for ", "", "doctor", "--store", uri,
           "--horizon", "1ms");
    expect(2, "", "--horizon", "doctor", "--store", uri, "--horizon", "0");
    PQfinish(holder);
    folder_leave(&here);
}

static void the_demo_ends_well(void **state)
{
    folder here;
    char uri[POSTGRES_CONNINFO_SIZE];
    result r;
    (void)state;
    enter(&here, uri);
    run(&r, "demo", "--quick", "--dir", "d", "--json", "--postgres", uri);
    check_result(&r, 0, "\"ok\":true", "", "demo");
    if (!strstr(r.out, "\"orders_committed\":180,") || !strstr(r.out, "\"lost\":0,") ||
        !strstr(r.out, "\"billed_twice\":0,") || strstr(r.out, "\"duplicates_absorbed\":0,"))
        fail_msg("%s", r.out);
    result_done(&r);
    /* again from outside */
    char billing[POSTGRES_CONNINFO_SIZE];
    postgres_server_uri(databases.server, "postroom_billing", billing);
    assert_int_equal(db_number_at(billing, "SELECT count(*) FROM invoices"), 180);
    assert_int_equal(db_number_at(billing, "SELECT count(*) FROM postroom.inbox"), 180);
    expect(1, "", "already exists", "demo", "--quick", "--dir", "e", "--postgres", uri);
    folder_leave(&here);
}

/* The leased inbox of `receive`, and what its command sends, on PostgreSQL. */
static void a_command_receives(void **state)
{
#define RECEIVE "receive", "--store", uri, "--endpoint", "billing", "--type", "urn:message:shop:a"
    folder here;
    char uri[POSTGRES_CONNINFO_SIZE];
    (void)state;
    enter(&here, uri);
    expect(0, "made", "", "migrate", "--store", uri, "--default-transport", "local");
    expect(0, "0 handled", "", RECEIVE, "--exec", "false", "--until-idle", "100ms");
    expect(0, NULL, "", "send", "--store", uri, "urn:message:shop:a", "{\"n\": 1}");
    expect(0, NULL, "", "send", "--store", uri, "urn:message:shop:a", "bad");
    expect(0, "1 handled, 1 failed, 1 dead", "is dead: the", RECEIVE, "--follow-ups", "--backoff",
           "10ms", "--until-idle", "1s", "--exec",
           "body=$(cat); [ \"$body\" = bad ] && exit 65; [ $POSTROOM_ATTEMPT = 1 ] && exit 75;"
           "echo "
           "'{\"type\":\"urn:message:billing:written\",\"destination\":\"database://in/"
           "x\",\"body\":1}'");
    expect(0, "urn:message:billing:written", "", "outbox", "list", "--store", uri);
    expect(0, "the command ended with exit 65", "", "dead", "list", "--json", "--store", uri);
    folder_leave(&here);
#undef RECEIVE
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_store_has_many_names),
        cmocka_unit_test(the_writable_host_is_found),
        cmocka_unit_test(messages_cross_from_and_to_sqlite),
        cmocka_unit_test(the_doctor_finds_faults),
        cmocka_unit_test(the_doctor_names_a_long_transaction),
        cmocka_unit_test(a_command_receives),
        cmocka_unit_test(the_demo_ends_well),
    };
    const postgres_server_options durable = {.fsync = true};
    databases.server = postgres_server_start(&durable);
    int failed = RUN_TESTS(tests);
    postgres_server_free(databases.server);
    return failed;
}
