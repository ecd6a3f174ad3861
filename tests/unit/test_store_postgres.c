/*
 * The PostgreSQL store without a server: what errors mean, how migrations fall into statements,
 * what is refused before any connection is made.
 */
#include "support/test.h"

#include <postroom/postgres.h>

#include "base/memory.h"
#include "store/postgres/failure.h"
#include "store/postgres/migration.h"
#include "store/postgres/params.h"

typedef struct failure_case {
    const char *label;
    const char *sqlstate;
    pr_status status;
    pr_retry retry;
} failure_case;

static const failure_case FAILURES[] = {
    {"no code at all", NULL, PR_E_BACKEND, PR_RETRY_RECONNECT},
    {"an empty code", "", PR_E_BACKEND, PR_RETRY_RECONNECT},
    {"a code that nobody knows", "ZZ123", PR_E_BACKEND, PR_RETRY_NEVER},
    {"a known class, an unknown code", "08ZZZ", PR_E_BACKEND, PR_RETRY_RECONNECT},
    {"connection failure", "08006", PR_E_BACKEND, PR_RETRY_RECONNECT},
    {"protocol violation", "08P01", PR_E_BACKEND, PR_RETRY_RECONNECT},
    {"a cached plan must not change its result", "0A000", PR_E_BACKEND, PR_RETRY_SAME},
    {"bad UTF-8", "22021", PR_E_CONTENT, PR_RETRY_NEVER},
    {"untranslatable character", "22P05", PR_E_CONTENT, PR_RETRY_NEVER},
    {"unique violation", "23505", PR_E_BACKEND, PR_RETRY_NEVER},
    {"not null violation", "23502", PR_E_CONTENT, PR_RETRY_NEVER},
    {"check violation", "23514", PR_E_CONTENT, PR_RETRY_NEVER},
    {"no active transaction", "25P01", PR_E_STATE, PR_RETRY_NEVER},
    {"read-only server", "25006", PR_E_BACKEND, PR_RETRY_RECONNECT},
    {"failed transaction", "25P02", PR_E_STATE, PR_RETRY_NEVER},
    {"idle in transaction", "25P03", PR_E_BACKEND, PR_RETRY_RECONNECT},
    {"transaction timeout", "25P04", PR_E_BACKEND, PR_RETRY_RECONNECT},
    {"statement gone", "26000", PR_E_BACKEND, PR_RETRY_SAME},
    {"bad password", "28P01", PR_E_BACKEND, PR_RETRY_NEVER},
    {"no such database", "3D000", PR_E_BACKEND, PR_RETRY_NEVER},
    {"no such schema", "3F000", PR_E_SCHEMA, PR_RETRY_NEVER},
    {"serialization", "40001", PR_E_BUSY, PR_RETRY_SAME},
    {"completion unknown", "40003", PR_E_BACKEND, PR_RETRY_UNKNOWN},
    {"deadlock", "40P01", PR_E_BUSY, PR_RETRY_SAME},
    {"no right", "42501", PR_E_BACKEND, PR_RETRY_NEVER},
    {"no such column", "42703", PR_E_SCHEMA, PR_RETRY_NEVER},
    {"no such function", "42883", PR_E_SCHEMA, PR_RETRY_NEVER},
    {"no such table", "42P01", PR_E_SCHEMA, PR_RETRY_NEVER},
    {"statement prepared twice", "42P05", PR_E_BACKEND, PR_RETRY_SAME},
    {"syntax", "42601", PR_E_BACKEND, PR_RETRY_NEVER},
    {"disk full", "53100", PR_E_BACKEND, PR_RETRY_SAME},
    {"out of memory", "53200", PR_E_BACKEND, PR_RETRY_SAME},
    {"too many connections", "53300", PR_E_BACKEND, PR_RETRY_RECONNECT},
    {"too complex", "54001", PR_E_LIMIT, PR_RETRY_NEVER},
    {"not in the right state", "55000", PR_E_BACKEND, PR_RETRY_NEVER},
    {"object in use", "55006", PR_E_BUSY, PR_RETRY_SAME},
    {"lock timeout", "55P03", PR_E_BUSY, PR_RETRY_SAME},
    {"cancelled, statement timeout", "57014", PR_E_BUSY, PR_RETRY_SAME},
    {"admin shutdown", "57P01", PR_E_BACKEND, PR_RETRY_RECONNECT},
    {"crash shutdown", "57P02", PR_E_BACKEND, PR_RETRY_RECONNECT},
    {"cannot connect now", "57P03", PR_E_BACKEND, PR_RETRY_RECONNECT},
    {"database dropped", "57P04", PR_E_BACKEND, PR_RETRY_NEVER},
    {"idle session", "57P05", PR_E_BACKEND, PR_RETRY_RECONNECT},
    {"I/O error", "58030", PR_E_BACKEND, PR_RETRY_RECONNECT},
    {"snapshot too old", "72000", PR_E_BUSY, PR_RETRY_SAME},
    {"configuration", "F0001", PR_E_BACKEND, PR_RETRY_NEVER},
    {"damaged data", "XX001", PR_E_BACKEND, PR_RETRY_NEVER},
};

static void test_every_error_has_its_class(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof FAILURES / sizeof FAILURES[0]; i++) {
        const failure_case *c = &FAILURES[i];
        const pr__pg_class *class = pr__pg_classify(c->sqlstate);
        if (class->status != c->status || class->retry != c->retry)
            fail_msg("%s: %s, retry %d", c->label, pr_status_text(class->status), class->retry);
    }
}

static void test_statements_end_outside_of_quotes(void **state)
{
    (void)state;
    static const struct {
        const char *label;
        const char *sql;
        const char *first;
    } cases[] = {
        {"nothing", "", ""},
        {"blanks and a comment", " \n-- a; b\n", ""},
        {"two", "SELECT 1;SELECT 2;", "SELECT 1;"},
        {"no end", "SELECT 1", "SELECT 1"},
        {"in a comment", "-- a;\nSELECT 1;x", "-- a;\nSELECT 1;"},
        {"in quotes", "SELECT ';', \";\";x", "SELECT ';', \";\";"},
        {"in dollars", "DO $$ BEGIN; '$' END; $$;x", "DO $$ BEGIN; '$' END; $$;"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        size_t size = pr__pg_migration_statement(cases[i].sql);
        if (size != strlen(cases[i].first))
            fail_msg("%s: %zu bytes", cases[i].label, size);
    }
}

static void test_placeholders_and_empty_arrays(void **state)
{
    (void)state;
    pr__pg_conn conn;
    pr__pg_limits limits = {0};
    pr__pg_conn_init(&conn, "shop", "a_", &limits, false);
    const pr__migration_values values = {.default_transport = "amqp", .order = "halt", .lanes = 8};
    char *text = pr__pg_migration_render(
        "{p}x {s} {n}y {r} {lanes} {mask} {default_transport} {order} '{}' {other}", &conn,
        &values);
    assert_string_equal(text,
                        "\"shop\".a_x \"shop\" a_y shop_a_producer 8 7 amqp halt '{}' {other}");
    pr__free(text);
    text = pr__pg_expand(&conn, "{p}x {n}y '{}' {");
    assert_string_equal(text, "\"shop\".a_x a_y '{}' {");
    pr__free(text);
}

static void test_parameters_are_binary(void **state)
{
    (void)state;
    pr__pg_params params = {.count = 0};
    pr__pg_array array;
    pr__pg_add_int(&params, -2);
    pr__pg_add_instant(&params, 0);
    pr__pg_add_instant(&params, PR__PG_EPOCH_US + 1);
    pr__pg_add_uuid(&params, "");
    pr__pg_add_bytes(&params, "a\0b", 3);
    pr__pg_add_bytes(&params, "", 0);
    pr__pg_array_init(&array, PR__PG_INT8);
    pr__pg_add_array(&params, &array);
    pr__pg_array_int(&array, 7);
    pr__pg_array_null(&array);
    pr__pg_add_array(&params, &array);
    assert_false(params.failed);
    assert_int_equal(params.count, 8);
    assert_memory_equal(params.values[0], "\xff\xff\xff\xff\xff\xff\xff\xfe", 8);
    assert_null(params.values[1]);
    assert_memory_equal(params.values[2], "\0\0\0\0\0\0\0\1", 8);
    assert_null(params.values[3]);
    assert_int_equal(params.lengths[4], 3);
    assert_non_null(params.values[5]);
    assert_int_equal(params.lengths[5], 0);
    assert_int_equal(params.lengths[6], 12);
    assert_int_equal(params.lengths[7], 20 + 12 + 4);
    assert_memory_equal(params.values[7],
                        "\0\0\0\1\0\0\0\1\0\0\0\x14\0\0\0\2\0\0\0\1"
                        "\0\0\0\x08\0\0\0\0\0\0\0\7\xff\xff\xff\xff",
                        36);
    pr__pg_array_done(&array);
    for (int i = 0; i < PR__PG_PARAMS_MAX; i++)
        pr__pg_add_text(&params, "x");
    assert_true(params.failed);
    pr__pg_params_done(&params);
}

static void test_options_are_refused_before_connecting(void **state)
{
    (void)state;
    static const struct {
        const char *label;
        pr_postgres_options opt;
        const char *text;
    } cases[] = {
        {"no size", {.size = 0}, "size is not set"},
        {"a quote in the schema", PR_POSTGRES_OPTIONS(.schema = "a\"b"), "the schema is"},
        {"a digit first", PR_POSTGRES_OPTIONS(.schema = "1a"), "the schema is"},
        {"a dot", PR_POSTGRES_OPTIONS(.prefix = "a.b"), "the prefix is"},
        {"PostgreSQL's own", PR_POSTGRES_OPTIONS(.schema = "PG_x"), "begin with pg_"},
        {"a prefix of 37 bytes",
         PR_POSTGRES_OPTIONS(.prefix = "a234567890123456789012345678901234567"), "at most 36"},
        {"both too long",
         PR_POSTGRES_OPTIONS(.schema = "a23456789012345678901234567890123456789",
                             .prefix = "a2345678901234567"),
         "together"},
        {"a negative wait", PR_POSTGRES_OPTIONS(.busy_ms = -1), "busy_ms is -1"},
        {"a body beyond all", PR_POSTGRES_OPTIONS(.body_size_max = 1ULL << 40), "body_size_max"},
        {"a string that cannot be read",
         PR_POSTGRES_OPTIONS(.conninfo = "host=h password='hidden-away"), "cannot be read"},
        {"an address that cannot be read",
         PR_POSTGRES_OPTIONS(.conninfo = "postgresql://u:hidden-away@[h"), "cannot be read"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        pr_store *store = NULL;
        pr_error err = PR_ERROR_INIT;
        pr_status status = pr_postgres_store_open(&cases[i].opt, &store, &err);
        if (status != PR_E_INVALID || !strstr(err.message, cases[i].text) ||
            strstr(err.message, "hidden-away") || store)
            fail_msg("%s: %s: %s", cases[i].label, pr_status_text(status), err.message);
    }
}

static void test_no_server_is_a_reason_to_connect_again(void **state)
{
    (void)state;
    pr_store *store = NULL;
    pr_error err = PR_ERROR_INIT;
    pr_postgres_options opt =
        PR_POSTGRES_OPTIONS(.conninfo = "postgresql://u:hidden-away@/d?host=/nonexistent",
                            .connect_ms = 2000);
    assert_int_equal(pr_postgres_store_open(&opt, &store, &err), PR_E_BACKEND);
    assert_int_equal(err.retry, PR_RETRY_RECONNECT);
    assert_string_equal(err.sqlstate, "");
    assert_null(strstr(err.message, "hidden-away"));
    assert_null(store);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_error_has_its_class),
        cmocka_unit_test(test_statements_end_outside_of_quotes),
        cmocka_unit_test(test_placeholders_and_empty_arrays),
        cmocka_unit_test(test_parameters_are_binary),
        cmocka_unit_test(test_options_are_refused_before_connecting),
        cmocka_unit_test(test_no_server_is_a_reason_to_connect_again),
    };

    return RUN_TESTS(tests);
}
