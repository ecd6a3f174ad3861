/*
 * `postroom saga` on both stores, and the demo of a saga, whose reconciliation must notice what was
 * done to the database.
 */
#include <unistd.h>

#include "program.h"
#include "support/postgres_db.h"

#define ID_1 "019b0000-0000-7000-8000-000000000001"
#define ID_2 "019b0000-0000-7000-8000-000000000002"
#define ID_3 "019b0000-0000-7000-8000-000000000003"

static postgres_databases databases;

/* ---- saga list, show, release ---- */

/* The rows of three sagas: one runs, one has an expired lease, one a live one. {p} stands before
   the table, {now} for the instant, {t} for a timeout. */
static const char rows[] =
    "INSERT INTO {p}saga (tenant, saga_type, correlation_key, instance_id, version, state, "
    "state_version, timeouts, last_messages, lease_token, lease_owner, lease_until, started_at, "
    "updated_at, completed_at) VALUES "
    "('', 'order', 'o-1', '" ID_1 "', 3, {state}, 2, "
    "'[{\"name\":\"pay\",\"token\":\"" ID_2 "\",\"due_at\":1767225600000000}]', "
    "'[{\"id\":\"m-1\",\"type\":\"urn:message:a:b\"}]', NULL, NULL, NULL, {now}, {now}, NULL), "
    "('', 'order', 'o-2', '" ID_2 "', 1, {state}, 1, '[]', '[]', '" ID_1
    "', 'dead worker', {past}, "
    "{now}, {now}, NULL), "
    "('acme', 'claim', 'c-1', '" ID_3 "', 1, {odd}, 1, '[]', '[]', '" ID_2 "', 'worker', {future}, "
    "{now}, {now}, {now})";

/* Put words in the place of others; the result is the caller's. */
static char *fill(const char *text, const char *const *words)
{
    char *out = strdup(text);
    for (; words[0]; words += 2) {
        for (char *at; (at = strstr(out, words[0])) != NULL;) {
            size_t size = strlen(out) + strlen(words[1]) + 1;
            char *next = malloc(size);
            snprintf(next, size, "%.*s%s%s", (int)(at - out), out, words[1], at + strlen(words[0]));
            free(out);
            out = next;
        }
    }
    return out;
}

static void fill_sqlite(const char *path)
{
    const char *const words[] = {"{p}",      "postroom_",
                                 "{now}",    "1767225600000000",
                                 "{past}",   "1767225600000000",
                                 "{future}", "4102444800000000",
                                 "{state}",  "CAST('{\"sum\":7}' AS BLOB)",
                                 "{odd}",    "x'00ff'",
                                 NULL};
    char *sql = fill(rows, words);
    change(path, sql);
    free(sql);
}

static void fill_postgres(const char *uri)
{
    const char *const words[] = {"{p}",      "postroom.",
                                 "{now}",    "clock_timestamp()",
                                 "{past}",   "clock_timestamp() - interval '1 hour'",
                                 "{future}", "clock_timestamp() + interval '9 years'",
                                 "{state}",  "convert_to('{\"sum\":7}', 'UTF8')",
                                 "{odd}",    "'\\x00ff'::bytea",
                                 NULL};
    char *sql = fill(rows, words);
    db_run_at(uri, sql);
    free(sql);
}

static void check_sagas(const char *store)
{
    setenv("POSTROOM_STORE", store, 1);
    expect(0, "o-1", "", "saga", "list");
    expect(0, "dead worker (expired)", "", "saga", "list", "--type", "order");
    expect(0, "c-1", "", "saga", "list", "--phase", "completed");
    expect(0, "no sagas", "", "saga", "list", "--tenant", "nobody");
    expect(0, "more: repeat with --after '" ID_1, "", "saga", "list", "--limit", "1");
    expect(0, "\"next\":null", "", "saga", "list", "--json", "--after", ID_2);
    expect(2, "", "--phase", "saga", "list", "--phase", "sleeping");
    expect(2, "", "no cursor", "saga", "list", "--after", "x");

    expect(2, "", NULL, "saga", "show", "order");
    expect(3, "", "there is no saga \"o-9\" of type \"order\"", "saga", "show", "order", "o-9");
    expect(0, "{\"sum\":7}", "", "saga", "show", "order", "o-1");
    expect(0, "pay", "", "saga", "show", "order", "o-1");
    expect(0, "\"state\":{\"sum\":7},\"state_base64\":null", "", "saga", "show", "order", "o-1",
           "--json");
    expect(0, "\"due_at\":\"2026-01-01T00:00:00.000000Z\"", "", "saga", "show", "order", "o-1",
           "--json");
    expect(0, "\"last_messages\":[{\"id\":\"m-1\",\"type\":\"urn:message:a:b\"}]", "", "saga",
           "show", "order", "o-1", "--json");
    expect(0, "\"state\":null,\"state_base64\":\"AP8=\"", "", "saga", "show", "claim", "c-1",
           "--tenant", "acme", "--json");

    expect(2, "", "reason", "saga", "release", "order", "o-2");
    expect(3, "", "there is no saga", "saga", "release", "order", "o-9", "--reason", "r");
    expect(4, "", "not leased", "saga", "release", "order", "o-1", "--reason", "r");
    expect(4, "", "leased by \"worker\"", "saga", "release", "claim", "c-1", "--tenant", "acme",
           "--reason", "r");
    expect(0, "released order o-2", "", "saga", "release", "order", "o-2", "--reason", "it died",
           "--who", "anna");
    expect(4, "", "not leased", "saga", "release", "order", "o-2", "--reason", "again");
    expect(0, "\"done\":\"released\"", "", "saga", "release", "claim", "c-1", "--tenant", "acme",
           "--reason", "it must go on", "--force", "--json");
    unsetenv("POSTROOM_STORE");
}

static void sagas_on_sqlite(void **state)
{
    (void)state;
    folder here;
    folder_enter(&here);
    expect(0, "made", "", "migrate", "--store", "a.db");
    fill_sqlite("a.db");
    check_sagas("a.db");
    assert_int_equal(number_of("a.db", "SELECT count(*) FROM postroom_audit WHERE action = "
                                       "'saga-release'"),
                     2);
    assert_int_equal(number_of("a.db", "SELECT count(*) FROM postroom_audit WHERE who = 'anna' AND "
                                       "reason = 'it died'"),
                     1);
    folder_leave(&here);
}

static void sagas_on_postgres(void **state)
{
    (void)state;
    folder here;
    char uri[POSTGRES_CONNINFO_SIZE];
    folder_enter(&here);
    postgres_database_make(&databases, uri);
    expect(0, "made", "", "migrate", "--store", uri);
    fill_postgres(uri);
    check_sagas(uri);
    assert_int_equal(db_number_at(uri, "SELECT count(*) FROM postroom.audit WHERE action = "
                                       "'saga-release'"),
                     2);
    folder_leave(&here);
}

/* ---- the demo ---- */

static const struct {
    const char *key; /* that notices it */
    const char *sql;
} tamperings[] = {
    {"money_difference", "UPDATE accounts SET cents = cents + 1 WHERE owner = 'customer-1'"},
    {"income_difference", "UPDATE accounts SET cents = cents + 1 WHERE owner = 'the shop'"},
    {"stock_difference", "UPDATE stock SET on_hand = on_hand - 1 WHERE article = 'article-1'"},
    {"still_reserved", "UPDATE stock SET reserved = 1 WHERE article = 'article-1'"},
    {"shipped_twice", "INSERT INTO shipments SELECT * FROM shipments LIMIT 1"},
    {"charged_twice", "INSERT INTO payments SELECT * FROM payments LIMIT 1"},
    {"unfinished", "DELETE FROM shipments WHERE order_number = 1"},
    {"wrongly_ended", "INSERT INTO shipments VALUES (3, 'article-1', 0)"},
    {"sagas_running", "UPDATE postroom_saga SET completed_at = NULL WHERE correlation_key = '5'"},
    {"timeouts_open", "UPDATE postroom_saga SET timeouts = '[1]' WHERE correlation_key = '5'"},
};

static int64_t member(const result *of, const char *key)
{
    json_t *all = json_loads(of->out, 0, NULL);
    assert_non_null(all);
    json_t *value = json_object_get(all, key);
    if (!json_is_integer(value))
        fail_msg("there is no number '%s' in %s", key, of->out);
    int64_t number = json_integer_value(value);
    json_decref(all);
    return number;
}

static void check_demo(const result *r)
{
    check_result(r, 0, "\"ok\":true", "", "demo");
    assert_int_equal(member(r, "orders"), 100);
    assert_int_equal(member(r, "shipped"), 67);
    assert_int_equal(member(r, "compensated"), 33);
    assert_int_equal(member(r, "worker_kills"), 3);
    assert_true(member(r, "timeouts_fired") >= 5); /* those that payment never answers */
}

static void the_demo_balances_and_notices_tampering(void **state)
{
    (void)state;
    folder here;
    result r;
    folder_enter(&here);
    run(&r, "demo", "--saga", "--quick", "--dir", "d", "--json");
    check_demo(&r);
    result_done(&r);
    assert_int_equal(number_of("d/orders.db", "SELECT count(*) FROM shipments"), 67);
    expect(0, "difference in money, in cents", "", "demo", "--saga", "--check", "d");
    for (size_t i = 0; i < COUNT_OF(tamperings); i++) {
        assert_int_equal(system("rm -rf t && cp -r d t"), 0);
        change("t/orders.db", tamperings[i].sql);
        run(&r, "demo", "--saga", "--check", "t", "--json");
        check_result(&r, 1, "\"ok\":false", "the reconciliation is wrong", tamperings[i].key);
        CHECK_CASE(member(&r, tamperings[i].key) != 0, tamperings[i].key);
        result_done(&r);
    }
    expect(2, "", "--check", "demo", "--saga", "--check", "d", "--quick");
    folder_leave(&here);
}

static void the_demo_balances_on_postgres(void **state)
{
    (void)state;
    folder here;
    result r;
    char uri[POSTGRES_CONNINFO_SIZE];
    folder_enter(&here);
    postgres_server_uri(databases.server, "postgres", uri);
    run(&r, "demo", "--saga", "--quick", "--dir", "d", "--postgres", uri, "--json");
    check_demo(&r);
    result_done(&r);
    folder_leave(&here);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sagas_on_sqlite),
        cmocka_unit_test(the_demo_balances_and_notices_tampering),
        cmocka_unit_test(sagas_on_postgres),
        cmocka_unit_test(the_demo_balances_on_postgres),
    };
    databases.server = postgres_server_start(NULL);
    int failed = RUN_TESTS(tests);
    postgres_server_free(databases.server);
    return failed;
}
