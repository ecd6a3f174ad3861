/*
 * Other languages: plain INSERT, the view, from the sqlite3 shell and from Python's own module,
 * give the rows that C gives, lane included; what is no message is refused by name (capability
 * 48).
 */
#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>

#include "support/enqueue.h"
#include "support/sqlite_world.h"

#include "port/store.h"

#define TYPE "urn:message:shop:order-placed"

extern char **environ;

/* Run a program with arguments; its standard error is shown. The exit status. */
static int spawn(char *const argv[])
{
    pid_t pid = 0;
    int how = 0;
    if (posix_spawnp(&pid, argv[0], NULL, NULL, argv, environ) != 0)
        return -1;
    assert_int_equal(waitpid(pid, &how, 0), pid);
    return WIFEXITED(how) ? WEXITSTATUS(how) : -1;
}

static int shell(const sqlite_world *at, const char *sql)
{
    char *const argv[] = {(char *)(uintptr_t) "sqlite3", (char *)(uintptr_t) "-bail",
                          (char *)(uintptr_t)at->path, (char *)(uintptr_t)sql, NULL};
    return spawn(argv);
}

static int python(const sqlite_world *at, const char *code)
{
    char *const argv[] = {(char *)(uintptr_t) "/usr/bin/python3", (char *)(uintptr_t) "-c",
                          (char *)(uintptr_t)code, (char *)(uintptr_t)at->path, NULL};
    return spawn(argv);
}

static void enqueue_c(const sqlite_world *at, const pr_message *message)
{
    pr_error err = PR_ERROR_INIT;
    pr_store *store = NULL;
    check_ok(sqlite_world_store(at, 0, 0, &store, &err), &err, "store");
    enqueue_and_commit(store, message);
    pr_store_free(store);
}

static const char PYTHON_PLAIN[] =
    "import sqlite3, sys\n"
    "db = sqlite3.connect(sys.argv[1])\n"
    "db.execute('INSERT INTO postroom_outbox (message_id, type, body, key, destination, tenant,'\n"
    "           ' headers) VALUES (?, ?, ?, ?, ?, ?, ?)',\n"
    "           ('0190a5c0-7000-7abc-8def-000000000002', 'urn:message:shop:order-placed',\n"
    "            b'{\"n\": 1}', 'order-\\u00fc-77', 'b://in/x', 'acme', '{\"a\": \"b\"}'))\n"
    "db.commit()\n";

static const char PYTHON_VIEW[] =
    "import sqlite3, sys\n"
    "db = sqlite3.connect(sys.argv[1])\n"
    "db.execute('INSERT INTO postroom_enqueue (type, body, key, destination, tenant, headers,'\n"
    "           ' message_id) VALUES (?, ?, ?, ?, ?, ?, ?)',\n"
    "           ('urn:message:shop:order-placed', '{\"n\": 1}', 'order-\\u00fc-77', 'b://in/x',\n"
    "            'acme', '{\"a\": \"b\"}', '0190A5C0-7000-7ABC-8DEF-000000000003'))\n"
    "db.commit()\n";

static void test_equal_rows(void **state)
{
    (void)state;
    sqlite_world at;
    pr_error err = PR_ERROR_INIT;
    check_ok(sqlite_world_open(&at, &err), &err, "world");
    pr_message message =
        PR_MESSAGE(.id = "0190a5c0-7000-7abc-8def-000000000001", .type = TYPE, .body = "{\"n\": 1}",
                   .body_size_bytes = 8, .key = "order-\xc3\xbc-77", .destination = "b://in/x",
                   .tenant = "acme", .headers = "{\"a\": \"b\"}");
    enqueue_c(&at, &message);
    assert_int_equal(python(&at, PYTHON_PLAIN), 0);
    assert_int_equal(python(&at, PYTHON_VIEW), 0);
    assert_int_equal(
        shell(&at, "INSERT INTO postroom_outbox (message_id, type, body, key, destination, tenant, "
                   "headers) VALUES ('0190a5c0-7000-7abc-8def-000000000004', "
                   "'urn:message:shop:order-placed', CAST('{\"n\": 1}' AS BLOB), 'order-' || "
                   "char(252) || '-77', 'b://in/x', 'acme', '{\"a\": \"b\"}')"),
        0);
    assert_int_equal(
        shell(&at, "INSERT INTO postroom_enqueue (type, body, key, destination, tenant, headers) "
                   "VALUES ('urn:message:shop:order-placed', '{\"n\": 1}', 'order-' || char(252) "
                   "|| '-77', 'b://in/x', 'acme', '{\"a\": \"b\"}')"),
        0);
    assert_int_equal(sqlite_world_number(&at, "SELECT count(*) FROM postroom_outbox", NULL), 5);
    assert_int_equal(
        sqlite_world_number(
            &at,
            "SELECT count(*) FROM (SELECT DISTINCT lane, type, type_version, content_type, "
            "destination, source, key, tenant, correlation_id, causation_id, traceparent, "
            "tracestate, headers, body, expires_at FROM postroom_outbox)",
            NULL),
        1);
    assert_int_equal(sqlite_world_number(&at,
                                         "SELECT count(*) FROM postroom_outbox WHERE "
                                         "abs(occurred_at - CAST(strftime('%s', 'now') AS "
                                         "INTEGER) * 1000000) < 600000000",
                                         NULL),
                     5);
    pr_store *store = NULL;
    pr__batch *batch = NULL;
    pr__claim_options opt = {.reader = 1, .lease_ms = 1000, .batch_max = 10, .bytes_max = 10000};
    check_ok(sqlite_world_store(&at, 0, 0, &store, &err), &err, "store");
    check_ok(pr__store_claim(store, &opt, &batch, &err), &err, "claim");
    assert_int_equal(batch->item_count, 5);
    for (uint32_t i = 0; i < 5; i++) {
        assert_null(batch->items[i].unreadable);
        check_ok(pr_message_check(&batch->items[i].message, 0, &err), &err, "a message by itself");
    }
    assert_string_equal(batch->items[2].message.id, "0190a5c0-7000-7abc-8def-000000000003");
    pr__batch_free(batch);
    pr_store_free(store);
    sqlite_world_close(&at);
}

/* In the transaction of the other program's own business rows. */
static void test_transaction_of_python(void **state)
{
    (void)state;
    sqlite_world at;
    pr_error err = PR_ERROR_INIT;
    check_ok(sqlite_world_open(&at, &err), &err, "world");
    assert_int_equal(
        python(&at, "import sqlite3, sys\n"
                    "db = sqlite3.connect(sys.argv[1])\n"
                    "db.execute('CREATE TABLE orders (n)')\n"
                    "def place(n):\n"
                    "    db.execute('INSERT INTO orders VALUES (?)', (n,))\n"
                    "    db.execute('INSERT INTO postroom_enqueue (type, body) VALUES (?, ?)',\n"
                    "               ('urn:message:shop:order-placed', '{}'))\n"
                    "place(1); db.commit(); place(2); db.rollback()\n"),
        0);
    assert_int_equal(sqlite_world_number(&at, "SELECT count(*) FROM postroom_outbox", NULL), 1);
    assert_int_equal(sqlite_world_number(&at, "SELECT count(*) FROM orders", NULL), 1);
    sqlite_world_close(&at);
}

static void test_delayed_by_view(void **state)
{
    (void)state;
    sqlite_world at;
    pr_error err = PR_ERROR_INIT;
    check_ok(sqlite_world_open(&at, &err), &err, "world");
    assert_int_equal(
        shell(&at, "INSERT INTO postroom_enqueue (type, body, deliver_at) VALUES "
                   "('urn:message:a:b', 'late', (strftime('%s', 'now') + 3600) * 1000000), "
                   "('urn:message:a:b', 'later', (strftime('%s', 'now') + 7200) * 1000000), "
                   "('urn:message:a:b', 'past', (strftime('%s', 'now') - 1) * 1000000)"),
        0);
    assert_int_equal(sqlite_world_number(&at,
                                         "SELECT count(*) FROM postroom_outbox_state WHERE state = "
                                         "'delayed'",
                                         NULL),
                     2);
    assert_int_equal(
        sqlite_world_number(&at, "SELECT count(DISTINCT log_id) FROM postroom_outbox_parked", NULL),
        2);
    assert_int_equal(sqlite_world_number(&at, "SELECT count(*) FROM postroom_outbox", NULL), 1);
    sqlite_world_close(&at);
}

/* Ids that the database makes are UUIDv7: they sort by time, and are not the same twice. */
static void test_ids_by_view(void **state)
{
    (void)state;
    sqlite_world at;
    pr_error err = PR_ERROR_INIT;
    check_ok(sqlite_world_open(&at, &err), &err, "world");
    assert_int_equal(shell(&at, "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n "
                                "WHERE i < 500) INSERT INTO postroom_enqueue (type, body) SELECT "
                                "'urn:message:a:b', 'x' FROM n"),
                     0);
    assert_int_equal(
        sqlite_world_number(&at,
                            "SELECT count(DISTINCT message_id) FROM postroom_outbox WHERE "
                            "length(message_id) = 36 AND message_id GLOB '*-*-7*-[89ab]*-*'",
                            NULL),
        500);
    sqlite_world_close(&at);
}

static void test_refused_by_name(void **state)
{
    (void)state;
    sqlite_world at;
    pr_error err = PR_ERROR_INIT;
    static const struct {
        const char *columns;
        const char *values;
        const char *text;
    } cases[] = {
        {"message_id", "'x'", "message_id_is_a_lower_case_uuid"},
        {"message_id", "'00000000-0000-0000-0000-000000000000'", "message_id_is_a_lower_case_uuid"},
        {"type", "'order-placed'", "type_is_urn_message"},
        {"type", "'urn:message:a:' || printf('%.*c', 190, 'x')", "of_200_bytes_at_most"},
        {"type_version", "0", "type_version_is_1_or_more"},
        {"content_type", "''", "content_type_has_1_to_255_bytes"},
        {"destination", "'nowhere'", "destination_is_an_address"},
        {"key", "''", "key_has_1_to_255_bytes"},
        {"key", "printf('%.*c', 256, 'x')", "key_has_1_to_255_bytes"},
        /* 128 characters of two bytes: limits are bytes */
        {"key", "replace(printf('%.*c', 128, 'x'), 'x', char(252))", "key_has_1_to_255_bytes"},
        {"tenant", "printf('%.*c', 256, 'x')", "tenant_has_255_bytes_at_most"},
        {"correlation_id", "printf('%.*c', 256, 'x')", "correlation_id_has_255_bytes_at_most"},
        {"traceparent", "printf('%.*c', 129, 'x')", "traceparent_has_128_bytes_at_most"},
        {"tracestate", "printf('%.*c', 513, 'x')", "tracestate_has_512_bytes_at_most"},
        {"headers", "'[]'", "headers_is_a_json_object"},
        {"headers", "'{'", "headers_is_a_json_object"},
        {"headers", "'{\"a\":\"' || printf('%.*c', 32768, 'x') || '\"}'",
         "headers_is_a_json_object"},
        {"body", "NULL", "body"},
        {"body", "zeroblob(67108865)", "body_has_67108864_bytes_at_most"},
        {"occurred_at", "253402300800000000", "occurred_at_is_microseconds"},
        {"expires_at", "-62135596800000001", "expires_at_is_microseconds"},
        {"lane", "3", "lane"},
    };
    check_ok(sqlite_world_open(&at, &err), &err, "world");
    sqlite3 *db = NULL;
    db = sqlite_world_connect(&at);
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        char sql[512];
        char *text = NULL;
        const char *column = cases[i].columns;
        bool delayed = i % 2 == 1 && strcmp(column, "lane") != 0; /* the same holds for these */
        snprintf(sql, sizeof sql, "INSERT INTO postroom_%s (%s%s%s%s%s) VALUES (%s%s%s%s%s)",
                 strcmp(column, "lane") == 0 ? "outbox" : "enqueue", column,
                 strcmp(column, "type") ? ", type" : "", strcmp(column, "body") ? ", body" : "",
                 strcmp(column, "lane") ? "" : ", message_id", delayed ? ", deliver_at" : "",
                 cases[i].values, strcmp(column, "type") ? ", 'urn:message:a:b'" : "",
                 strcmp(column, "body") ? ", x'01'" : "",
                 strcmp(column, "lane") ? "" : ", '0190a5c0-7000-7abc-8def-000000000001'",
                 delayed ? ", 9000000000000000" : "");
        CHECK_CASE(sqlite3_exec(db, sql, NULL, NULL, &text) != SQLITE_OK, sql);
        if (!text || !strstr(text, cases[i].text))
            fail_msg("wanted '%s' in: %s", cases[i].text, text ? text : "");
        sqlite3_free(text);
    }
    sqlite3_close(db);
    assert_int_equal(sqlite_world_number(&at,
                                         "SELECT (SELECT count(*) FROM postroom_outbox) + (SELECT "
                                         "count(*) FROM postroom_outbox_parked)",
                                         NULL),
                     0);
    sqlite_world_close(&at);
}

/* Keys of the usual shapes spread over the lanes: none is empty, none holds three times its share.
   */
static void test_lanes_spread(void **state)
{
    (void)state;
    static const char *const keys[] = {
        "'order-' || i",
        "CAST(i AS TEXT)",
        "printf('customer/%08d', i * 17)",
        "lower(hex(randomblob(16)))",
        "'0190a5c0-7000-7abc-8def-' || printf('%012x', i)",
        "'tenant' || (i % 40) || ':item-' || i",
        "printf('%04d-A', i)",
    };
    static const uint32_t lanes[] = {4, 16, 64};
    for (size_t l = 0; l < COUNT_OF(lanes); l++) {
        sqlite_world at;
        pr_error err = PR_ERROR_INIT;
        pr_store *store = NULL;
        pr_migrate_options opt = {.size = (uint32_t)sizeof opt, .lanes = lanes[l]};
        check_ok(sqlite_world_open(&at, &err), &err, "world");
        pr_sqlite_options own =
            PR_SQLITE_OPTIONS(.path = at.path, .prefix = "spread", .schema_check_off = true);
        check_ok(pr_sqlite_store_open(&own, &store, &err), &err, "store");
        check_ok(pr_store_migrate(store, &opt, NULL, &err), &err, "migrate");
        pr_store_free(store);
        for (size_t k = 0; k < COUNT_OF(keys); k++) {
            char sql[512];
            snprintf(sql, sizeof sql,
                     "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < "
                     "%u) INSERT INTO spread_enqueue (type, body, key) SELECT 'urn:message:a:b', "
                     "'x', %s FROM n",
                     lanes[l] * 100, keys[k]);
            assert_int_equal(shell(&at, sql), 0);
            int64_t used =
                sqlite_world_number(&at, "SELECT count(DISTINCT lane) FROM spread_outbox", NULL);
            int64_t most = sqlite_world_number(
                &at, "SELECT max(n) FROM (SELECT count(*) AS n FROM spread_outbox GROUP BY lane)",
                NULL);
            if (used != lanes[l] || most > 300)
                fail_msg("%s: %lld of %u lanes, at most %lld in one", keys[k], (long long)used,
                         lanes[l], (long long)most);
            assert_int_equal(shell(&at, "DELETE FROM spread_outbox"), 0);
        }
        sqlite_world_close(&at);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_equal_rows),      cmocka_unit_test(test_transaction_of_python),
        cmocka_unit_test(test_delayed_by_view), cmocka_unit_test(test_ids_by_view),
        cmocka_unit_test(test_refused_by_name), cmocka_unit_test(test_lanes_spread),
    };
    return RUN_TESTS(tests);
}
