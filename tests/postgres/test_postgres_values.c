/*
 * Bytes, texts and times as they were given: nothing is cut at a NUL, parsed, converted or shifted,
 * and what the server would refuse is refused before it hears of it.
 */
#include <postroom/headers.h>

#include "postgres/ground.h"
#include "support/enqueue.h"

static postgres_databases databases;

/* Every byte, every limit, microseconds, and text that only looks like SQL. */
static void what_is_given_comes_back(void **state)
{
    ground on;
    unsigned char body[1024];
    (void)state;
    ground_make(&databases, NULL, &on);
    pr_store *store = ground_store(on.uri);
    for (size_t i = 0; i < sizeof body; i++)
        body[i] = (unsigned char)i;
    const pr_message message =
        PR_MESSAGE(.type = TYPE_PLACED, .key = "it's \\ \"a\" ; -- key \xf0\x9f\x93\xae",
                   .correlation_id = "{1,2}", .source = "$1", .tenant = "t\t\n",
                   .destination = TO_BROKER, .content_type = "application/octet-stream",
                   .occurred_at_us = 1767225599123457, .body = body,
                   .body_size_bytes = sizeof body);
    enqueue_and_commit(store, &message);
    pr__batch *batch = ground_claim(store, 100);
    assert_non_null(batch);
    const pr_message *got = &batch->items[0].message;
    assert_int_equal(got->body_size_bytes, sizeof body);
    assert_memory_equal(got->body, body, sizeof body);
    assert_string_equal(got->key, message.key);
    assert_string_equal(got->correlation_id, message.correlation_id);
    assert_string_equal(got->source, message.source);
    assert_string_equal(got->tenant, message.tenant);
    assert_true(got->occurred_at_us == message.occurred_at_us);
    pr__batch_free(batch);
    pr_store_free(store);
    ground_done(&on);
}

/* ---- ways in ---- */

/* Messages that differ in the columns that they have. */
static size_t some_messages(pr_message out[16])
{
    const pr_message least = PR_MESSAGE(.type = TYPE_PLACED, .occurred_at_us = 1767225599123457,
                                        .body = "1", .body_size_bytes = 1);
    size_t count = 0;
    out[count++] = least;
    out[count] = least, out[count++].key = "k";
    out[count] = least, out[count++].type_version = 2147483647;
    out[count] = least, out[count++].content_type = "application/json";
    out[count] = least, out[count++].content_type = "text/plain";
    out[count] = least, out[count++].destination = TO_BROKER;
    out[count] = least, out[count++].source = "shop";
    out[count] = least, out[count++].tenant = "";
    out[count] = least, out[count++].tenant = "north";
    out[count] = least, out[count++].correlation_id = "c";
    out[count] = least, out[count++].causation_id = "d";
    out[count] = least, out[count++].traceparent = "p";
    out[count] = least, out[count++].tracestate = "s";
    out[count] = least, out[count++].headers = "{\"a\": \"b\"}";
    out[count] = least, out[count++].expires_at_us = 4102444800000001;
    out[count] = least, out[count].body = "", out[count++].body_size_bytes = 0;
    return count;
}

/* The rows that stand, but for their ids, transactions and lanes, each as often as it does. */
#define KINDS                                                                                      \
    "SELECT string_agg(n || ' ' || row, ' ' ORDER BY row) FROM (SELECT count(*) AS n, ROW(type, "  \
    "type_version, content_type, destination, source, key, tenant, correlation_id, "               \
    "causation_id, traceparent, tracestate, headers, body, occurred_at, expires_at)::text AS row " \
    "FROM postroom.outbox GROUP BY 2) AS k"

/* The statement that is prepared, the host's, one for many, and one that looks for the id first
   write the same rows. */
static void every_way_in_gives_the_same_row(void **state)
{
    enum { PREPARED, JOINED, MANY, CALLERS, WAYS };
    static const char *const labels[WAYS] = {"prepared", "joined", "many", "caller's ids"};
    char first[8000], rows[8000], id[40];
    (void)state;
    for (int way = 0; way < WAYS; way++) {
        ground on;
        pr_error err = PR_ERROR_INIT;
        pr_unit *unit = NULL;
        pr_message messages[16];
        size_t count = some_messages(messages);
        ground_make(&databases, NULL, &on);
        pr_store *store = ground_store(on.uri);
        db_run(on.db, "BEGIN");
        check_ok(way == JOINED ? pr_postgres_unit_join(store, on.db, &unit, &err)
                               : pr_unit_begin(store, &unit, &err),
                 &err, labels[way]);
        for (size_t i = 0; i < count && way != MANY; i++) {
            snprintf(id, sizeof id, "019a22d1-1ccc-7ba9-89b4-d7b94c7fb2%02x", (unsigned)i);
            messages[i].id = way == CALLERS ? id : NULL;
            check_ok(pr_unit_enqueue(unit, &messages[i], NULL, &err), &err, labels[way]);
        }
        if (way == MANY)
            check_ok(pr_unit_enqueue_many(unit, messages, count, NULL, &err), &err, labels[way]);
        if (way != JOINED)
            check_ok(pr_unit_commit(unit, NULL, &err), &err, labels[way]);
        db_run(on.db, "COMMIT");
        if (way == JOINED)
            check_ok(pr_unit_finished(unit, PR_OUTCOME_COMMITTED, &err), &err, labels[way]);
        pr_unit_free(unit);
        assert_int_equal(db_number(on.db, "SELECT count(*) FROM postroom.outbox"), count);
        db_text(on.db, KINDS, way == 0 ? first : rows, sizeof rows);
        if (way > 0)
            assert_string_equal(rows, first);
        pr_store_free(store);
        ground_done(&on);
    }
}

/* A body that the server could not take would look like an outage for ever: it is refused here. */
static void a_body_beyond_the_limit_is_refused_before(void **state)
{
    ground on;
    pr_error err = PR_ERROR_INIT;
    const size_t size = 1024 * 1024 + 1;
    char *body = calloc(1, size);
    (void)state;
    ground_make(&databases, NULL, &on);
    pr_store *store = ground_store(on.uri);
    pr_message message = PR_MESSAGE(.type = TYPE_PLACED, .body = body, .body_size_bytes = size);
    pr_unit *unit = NULL;
    check_ok(pr_unit_begin(store, &unit, &err), &err, "begin");
    check_error(pr_unit_enqueue(unit, &message, NULL, &err), &err, PR_E_LIMIT, "body", "too large");
    assert_int_equal(err.retry, PR_RETRY_NEVER);
    pr_error_clear(&err);
    check_ok(pr_unit_commit(unit, NULL, &err), &err, "the unit is unharmed");
    pr_unit_free(unit);
    free(body);
    pr_store_free(store);
    ground_done(&on);
}

/* ---- bodies are bytes ---- */

#define DEPTH 100000

static char *deep_body(void)
{
    char *body = malloc(2 * DEPTH);
    assert_non_null(body);
    memset(body, '[', DEPTH);
    memset(body + DEPTH, ']', DEPTH);
    return body;
}

/* What a jsonb column refuses, changes or chokes on passes as it is, through each of the ways in,
   through the parked table too. */
static void bodies_are_never_parsed(void **state)
{
    char *deep = deep_body();
    const struct {
        const char *label;
        const char *body;
        size_t size;
    } cases[] = {
        {"an escaped NUL", "{\"a\":\"\\u0000\"}", 14},
        {"a key twice", "{\"a\":1, \"a\":2}", 14},
        {"a number beyond all", "{\"a\":1E400}", 11},
        {"depth", deep, (size_t)2 * DEPTH},
        {"a lone surrogate", "{\"a\":\"\\ud800\"}", 14},
        {"no JSON", "{", 1},
        {"no UTF-8", "\xff\xfe\x00\xc3", 4},
        {"only a NUL", "", 1},
        {"nothing", "", 0},
    };
    (void)state;
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        ground on;
        pr_error err = PR_ERROR_INIT;
        pr_unit *unit = NULL;
        pr__settle_report report = {0};
        ground_make(&databases, NULL, &on);
        pr_store *store = ground_store(on.uri);
        const pr_message plain =
            PR_MESSAGE(.type = TYPE_PLACED, .destination = TO_BROKER,
                       .content_type = "application/json", .body = cases[i].body,
                       .body_size_bytes = cases[i].size);
        pr_message own_id = plain;
        own_id.id = "019a22d1-1ccc-7ba9-89b4-d7b94c7fb226";
        const pr_message both[] = {plain, plain};
        check_ok(pr_unit_begin(store, &unit, &err), &err, cases[i].label);
        check_ok(pr_unit_enqueue(unit, &plain, NULL, &err), &err, cases[i].label);
        check_ok(pr_unit_enqueue(unit, &own_id, NULL, &err), &err, cases[i].label);
        check_ok(pr_unit_enqueue(unit, &own_id, NULL, &err), &err, cases[i].label); /* the same */
        check_ok(pr_unit_enqueue_many(unit, both, 2, NULL, &err), &err, cases[i].label);
        check_ok(pr_unit_commit(unit, NULL, &err), &err, cases[i].label);
        pr_unit_free(unit);
        for (int round = 0; round < 2; round++) { /* out of the log, then out of the parked table */
            pr__claim_options opt = ground_claim_options(100);
            pr__batch *batch = NULL;
            check_ok(round ? pr__store_claim_parked(store, &opt, &batch, &err)
                           : pr__store_claim(store, &opt, &batch, &err),
                     &err, cases[i].label);
            assert_non_null(batch);
            assert_int_equal(batch->item_count, 4);
            for (uint32_t n = 0; n < batch->item_count; n++) {
                const pr_message *got = &batch->items[n].message;
                CHECK_CASE(got->body_size_bytes == cases[i].size, cases[i].label);
                CHECK_CASE(memcmp(got->body, cases[i].body, cases[i].size) == 0, cases[i].label);
                batch->items[n].result = round ? PR__RESULT_PUBLISHED : PR__RESULT_FAILED;
            }
            pr__batch_close(batch);
            check_ok(pr__store_settle(store, batch, NULL, &report, NULL, &err), &err, "settle");
            pr__batch_free(batch);
        }
        assert_int_equal(report.published, 4);
        pr_store_free(store);
        ground_done(&on);
    }
    free(deep);
}

/* A header of bytes, an opaque id and an error's text with NULs in them come back whole, or as one
   line of text. */
static void nothing_is_cut_at_a_nul(void **state)
{
    ground on;
    pr_error err = PR_ERROR_INIT;
    pr_headers *headers = NULL, *got = NULL;
    const char *json = NULL;
    (void)state;
    ground_make(&databases, NULL, &on);
    pr_store *store = ground_store(on.uri);
    const pr_header header = {
        .kind = PR_HEADER_BYTES, .name = "signature", .bytes = "a\0b\0", .bytes_size = 4};
    check_ok(pr_headers_parse(NULL, &headers, &err), &err, "headers");
    check_ok(pr_headers_set(headers, &header, &err), &err, "set");
    check_ok(pr_headers_json(headers, &json, &err), &err, "json");
    const pr_message message = PR_MESSAGE(.type = TYPE_PLACED, .destination = TO_BROKER,
                                          .headers = json, .body = "\0x\0", .body_size_bytes = 3);
    enqueue_and_commit(store, &message);
    assert_int_equal(db_number(on.db, "SELECT body = '\\x007800' FROM postroom.outbox"), 1);
    pr__batch *batch = ground_claim(store, 1);
    assert_non_null(batch);
    check_ok(pr_headers_parse(batch->items[0].message.headers, &got, &err), &err, "parse");
    const pr_header *back = pr_headers_get(got, "signature");
    assert_non_null(back);
    assert_int_equal(back->bytes_size, 4);
    assert_memory_equal(back->bytes, "a\0b\0", 4);
    pr__batch_free(batch);
    pr_headers_free(got);
    pr_headers_free(headers);
    pr_store_free(store);
    ground_done(&on);
}

/* ---- texts are checked before a statement is sent ---- */

static const struct {
    const char *label;
    const char *text;
} BAD_TEXTS[] = {
    {"a lone continuation", "a\x80"},
    {"cut in mid character", "a\xc3"},
    {"overlong", "\xc0\xaf"},
    {"a surrogate", "\xed\xa0\x80"},
    {"above U+10FFFF", "\xf4\x90\x80\x80"},
    {"a byte that is never used", "\xff"},
};

static pr_message with_text(size_t field, const char *text)
{
    pr_message message = PR_MESSAGE(.type = TYPE_PLACED, .destination = TO_BROKER, .body = "x",
                                    .body_size_bytes = 1);
    const char **fields[] = {&message.type,           &message.content_type, &message.destination,
                             &message.source,         &message.key,          &message.tenant,
                             &message.correlation_id, &message.causation_id, &message.traceparent,
                             &message.tracestate,     &message.headers,      &message.id};
    if (field >= COUNT_OF(fields))
        message.size = 0; /* there is no such field */
    else
        *fields[field] = text;
    return message;
}

/* An error 22021 would abort the host's transaction; ours is told before anything is sent. */
static void invalid_text_harms_no_transaction(void **state)
{
    ground on;
    (void)state;
    ground_make(&databases, NULL, &on);
    pr_store *store = ground_store(on.uri);
    db_run(on.db, "CREATE TABLE business (n integer)");
    for (size_t i = 0; i < COUNT_OF(BAD_TEXTS); i++) {
        size_t fields = 0;
        pr_error err = PR_ERROR_INIT;
        pr_unit *unit = NULL;
        db_run(on.db, "BEGIN; INSERT INTO business VALUES (1)");
        check_ok(pr_postgres_unit_join(store, on.db, &unit, &err), &err, "join");
        for (pr_message bad; (bad = with_text(fields, BAD_TEXTS[i].text)).size > 0; fields++) {
            pr_error_clear(&err);
            CHECK_CASE(pr_unit_enqueue(unit, &bad, NULL, &err) != PR_OK, BAD_TEXTS[i].label);
            CHECK_CASE(err.retry == PR_RETRY_NEVER && !err.sqlstate[0], BAD_TEXTS[i].label);
        }
        assert_int_equal(fields, 12);
        pr_message good = PR_MESSAGE(.type = TYPE_PLACED, .destination = TO_BROKER, .body = "x",
                                     .body_size_bytes = 1);
        pr_error_clear(&err);
        check_ok(pr_unit_enqueue(unit, &good, NULL, &err), &err, BAD_TEXTS[i].label);
        db_run(on.db, "COMMIT");
        check_ok(pr_unit_finished(unit, PR_OUTCOME_COMMITTED, &err), &err, "finished");
        pr_unit_free(unit);
    }
    assert_int_equal(db_number(on.db, "SELECT count(*) FROM business"), COUNT_OF(BAD_TEXTS));
    assert_int_equal(ground_drain(store, 1000, NULL, NULL), COUNT_OF(BAD_TEXTS));
    pr_store_free(store);
    ground_done(&on);
}

/* ---- times ---- */

/* In a transaction that has been open for a while now() is old; what we take is the clock's. */
static void a_long_transaction_has_the_time_of_now(void **state)
{
    ground on;
    (void)state;
    ground_make(&databases, NULL, &on);
    db_run(on.db, "BEGIN; SELECT pg_sleep(0.4)");
    db_run(on.db, "INSERT INTO postroom.outbox (type, body) VALUES ('" TYPE_PLACED "', '')");
    db_run(on.db, "SELECT postroom.enqueue('" TYPE_PLACED "', ''::text)");
    /* due by the clock, though not by now(): it goes into the log at once */
    db_run(on.db, "SELECT postroom.enqueue('" TYPE_PLACED "', ''::text, deliver_at => now() + "
                  "interval '300 ms')");
    assert_int_equal(db_number(on.db, "SELECT count(*) FROM postroom.outbox WHERE occurred_at >= "
                                      "now() + interval '350 ms'"),
                     3);
    db_run(on.db, "COMMIT");
    assert_int_equal(db_number(on.db, "SELECT count(*) FROM postroom.outbox_parked"), 0);
    ground_done(&on);
}

/* Instants mean the same in every session, and none is endless. */
static void instants_have_a_zone_and_an_end(void **state)
{
    static const char *const endless[] = {
        "SELECT postroom.enqueue('" TYPE_PLACED "', ''::text, deliver_at => 'infinity')",
        "SELECT postroom.enqueue('" TYPE_PLACED "', ''::text, deliver_at => '10000-01-01Z')",
        "SELECT postroom.enqueue('" TYPE_PLACED "', ''::text, expires_at => 'infinity')",
        "SELECT postroom.enqueue('" TYPE_PLACED "', ''::text, occurred_at => '-infinity')",
        "UPDATE postroom.outbox_parked SET next_attempt_at = 'infinity'"};
    ground on;
    char sqlstate[6];
    (void)state;
    ground_make(&databases, NULL, &on);
    assert_int_equal(
        db_number(on.db, "SELECT count(*) FROM information_schema.columns WHERE table_schema = "
                         "'postroom' AND data_type IN ('timestamp without time zone', 'date', "
                         "'time without time zone')"),
        0);
    db_run(on.db, "SELECT postroom.enqueue('" TYPE_PLACED "', ''::text, deliver_at => "
                  "clock_timestamp() + interval '1 day')");
    for (size_t i = 0; i < COUNT_OF(endless); i++) {
        CHECK_CASE(!db_try(on.db, endless[i], sqlstate), endless[i]);
        assert_string_equal(sqlstate, "23514");
    }
    ground_done(&on);
}

typedef struct broken {
    const char *column;
    const char *value;
    const char *rule;
} broken;

/* The constraint that an INSERT of this value breaks. */
static void check_rule(PGconn *db, const broken *one)
{
    char sql[400];
    const char *others = "type, body, ";
    const char *values = "'" TYPE_PLACED "', '', ";
    if (strcmp(one->column, "type") == 0) {
        others = "body, ";
        values = "'', ";
    } else if (strcmp(one->column, "body") == 0) {
        others = "type, ";
        values = "'" TYPE_PLACED "', ";
    }
    snprintf(sql, sizeof sql, "INSERT INTO postroom.outbox (%s%s) VALUES (%s%s)", others,
             one->column, values, one->value);
    PGresult *result = PQexec(db, sql);
    CHECK_CASE(PQresultStatus(result) == PGRES_FATAL_ERROR, one->value);
    assert_string_equal(PQresultErrorField(result, PG_DIAG_SQLSTATE), "23514");
    assert_string_equal(PQresultErrorField(result, PG_DIAG_CONSTRAINT_NAME), one->rule);
    PQclear(result);
}

/* Limits are the database's own, in bytes, for whoever inserts; the error names the rule, also in a
   session that finds other operators first. */
static void a_broken_rule_is_named(void **state)
{
    static const broken cases[] = {
        {"message_id", "'00000000-0000-0000-0000-000000000000'", "message_id_is_not_nil"},
        {"type", "'order-placed'", "type_is_urn_message_namespace_name_of_200_bytes_at_most"},
        {"type", "'urn:message:a:' || pg_catalog.repeat('x', 187)",
         "type_is_urn_message_namespace_name_of_200_bytes_at_most"},
        {"type_version", "0", "type_version_is_1_or_more"},
        {"type_version", "4294967296", "type_version_is_1_or_more"},
        {"content_type", "''", "content_type_has_1_to_255_bytes"},
        {"content_type", "pg_catalog.repeat('x', 256)", "content_type_has_1_to_255_bytes"},
        {"destination", "'nowhere'", "destination_is_an_address_of_512_bytes_at_most"},
        {"destination", "'a://' || pg_catalog.repeat('x', 509)",
         "destination_is_an_address_of_512_bytes_at_most"},
        {"source", "pg_catalog.repeat('x', 256)", "source_has_255_bytes_at_most"},
        {"key", "''", "key_has_1_to_255_bytes"},
        {"key", "pg_catalog.repeat(U&'\\00fc', 128)", "key_has_1_to_255_bytes"},
        {"tenant", "pg_catalog.repeat('x', 256)", "tenant_has_255_bytes_at_most"},
        {"correlation_id", "pg_catalog.repeat('x', 256)", "correlation_id_has_255_bytes_at_most"},
        {"causation_id", "pg_catalog.repeat('x', 256)", "causation_id_has_255_bytes_at_most"},
        {"traceparent", "pg_catalog.repeat('x', 129)", "traceparent_has_128_bytes_at_most"},
        {"tracestate", "pg_catalog.repeat('x', 513)", "tracestate_has_512_bytes_at_most"},
        {"headers", "'[]'", "headers_is_a_json_object_of_32768_bytes_at_most"},
        {"headers", "pg_catalog.repeat('x', 32769)",
         "headers_is_a_json_object_of_32768_bytes_at_most"},
        {"body", "pg_catalog.decode(pg_catalog.repeat('00', 67108865), 'hex')",
         "body_has_67108864_bytes_at_most"},
        {"occurred_at", "'infinity'", "occurred_at_is_in_year_1_to_9999"},
        {"occurred_at", "'0001-12-31 23:59:59+00 BC'", "occurred_at_is_in_year_1_to_9999"},
        {"expires_at", "'-infinity'", "expires_at_is_in_year_1_to_9999"},
        {"expires_at", "'10000-01-01 00:00:00+00'", "expires_at_is_in_year_1_to_9999"},
    };
    ground on;
    (void)state;
    ground_make(&databases, NULL, &on);
    for (size_t i = 0; i < COUNT_OF(cases); i++)
        check_rule(on.db, &cases[i]);
    db_run(on.db,
           "CREATE SCHEMA odd; CREATE FUNCTION odd.never(text, text) RETURNS boolean LANGUAGE "
           "sql AS 'SELECT NULL::boolean'; CREATE OPERATOR odd.!~~ (LEFTARG = text, RIGHTARG "
           "= text, FUNCTION = odd.never); CREATE FUNCTION odd.octet_length(text) RETURNS "
           "integer LANGUAGE sql AS 'SELECT 1'; SET search_path = odd, pg_catalog");
    check_rule(on.db, &cases[1]);
    check_rule(on.db, &cases[2]);
    db_run(on.db, "INSERT INTO postroom.outbox (type, body, key, headers, expires_at) VALUES "
                  "('" TYPE_PLACED "', '', pg_catalog.repeat('x', 255), '{}', "
                  "'9999-12-31 23:59:59.999999+00')");
    ground_done(&on);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(invalid_text_harms_no_transaction),
        cmocka_unit_test(a_body_beyond_the_limit_is_refused_before),
        cmocka_unit_test(instants_have_a_zone_and_an_end),
        cmocka_unit_test(a_broken_rule_is_named),
        cmocka_unit_test(what_is_given_comes_back),
        cmocka_unit_test(every_way_in_gives_the_same_row),
        cmocka_unit_test(bodies_are_never_parsed),
        cmocka_unit_test(nothing_is_cut_at_a_nul),
        cmocka_unit_test(a_long_transaction_has_the_time_of_now),
    };
    databases.server = postgres_server_start(NULL);
    int failed = RUN_TESTS(tests);
    postgres_server_free(databases.server);
    return failed;
}
