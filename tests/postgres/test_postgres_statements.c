/*
 * Statements as the server runs them: prepared ones that are gone, stand already or fit no more;
 * plans that must take no more than was asked for; limits that are literals; many in one.
 */
#include <postroom/store.h>

#include "postgres/ground.h"

#define ROWS  200
#define TAKEN 5
#define TRIES 8

static postgres_databases databases;

/* The store's own session: that of a unit of its. */
static PGconn *session_of(pr_store *store)
{
    pr_error err = PR_ERROR_INIT;
    pr_unit *unit = NULL;
    check_ok(pr_unit_begin(store, &unit, &err), &err, "begin");
    PGconn *session = pr_postgres_unit_connection(unit);
    pr_unit_free(unit);
    return session;
}

/* ---- prepared statements ---- */

/* Post, claim, settle until it has gone well; how often the server refused, each time with a code
   that is in codes and to be tried again the same way. */
static int go_on(pr_store *store, const char *codes, const char *label)
{
    int refused = 0;
    for (int i = 0; i < TRIES; i++) {
        pr_error err = PR_ERROR_INIT;
        pr__claim_options opt = ground_claim_options(10);
        pr__settle_report report = {0};
        AUTO(pr__batch) batch = NULL;
        pr_status status = pr__store_claim(store, &opt, &batch, &err);
        if (status == PR_OK && !batch)
            return refused;
        if (status == PR_OK) {
            batch->items[0].result = PR__RESULT_PUBLISHED;
            pr__batch_close(batch);
            status = pr__store_settle(store, batch, NULL, &report, NULL, &err);
        }
        if (status == PR_OK)
            continue;
        refused++;
        if (err.retry != PR_RETRY_SAME || !err.sqlstate[0] || !strstr(codes, err.sqlstate))
            fail_msg("%s: retry %d, '%s': %s", label, (int)err.retry, err.sqlstate, err.message);
    }
    fail_msg("%s: it does not end", label);
    return 0;
}

/* The names of ours in the session, as statements that PREPARE them. */
static void names_of(PGconn *session, char *out, size_t size)
{
    db_text(session,
            "SELECT string_agg('PREPARE ' || name || ' AS SELECT 1;', ' ') FROM "
            "pg_prepared_statements WHERE name LIKE 'pr\\_%'",
            out, size);
    assert_true(out[0] != '\0');
}

static void prepared_statements_come_and_go(void **state)
{
    static const struct {
        const char *label;
        const char *codes; /* what it may be refused with; "" = nothing */
        const char *harm;  /* in the store's session; NULL: another store's names stand there */
        bool elsewhere;    /* by other hands */
    } cases[] = {
        {"DISCARD ALL", "26000", "DISCARD ALL", false},
        {"prepared twice", "42P05", NULL, false},
        {"a column more", "", "ALTER TABLE postroom.outbox ADD COLUMN note text", true},
        /* refused behind the commit of a claim, which then reads its messages again */
        {"a column of another type", "",
         "ALTER TABLE postroom.outbox ALTER COLUMN headers TYPE varchar COLLATE \"C\"", true},
        {"an index less", "", "DROP INDEX postroom.outbox_parked_by_key", true},
    };
    (void)state;
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        ground on;
        char names[20000];
        ground_make(&databases, NULL, &on);
        pr_store *store = ground_store(on.uri), *other = ground_store(on.uri);
        ground_post(store, "k", "x");
        assert_int_equal(go_on(store, "", cases[i].label), 0);
        if (!cases[i].harm) {
            names_of(session_of(store), names, sizeof names);
            db_run(session_of(other), "DISCARD ALL");
            db_run(session_of(other), names);
        } else {
            db_run(cases[i].elsewhere ? on.db : session_of(store), cases[i].harm);
        }
        pr_store *harmed = cases[i].harm ? store : other;
        db_run(on.db, "INSERT INTO postroom.outbox (type, destination, body) VALUES ('" TYPE_PLACED
                      "', '" TO_BROKER "', '')");
        int refused = go_on(harmed, cases[i].codes, cases[i].label);
        CHECK_CASE((refused > 0) == (cases[i].codes[0] != '\0'), cases[i].label);
        ground_post(harmed, "k", "y");
        assert_int_equal(go_on(harmed, "", cases[i].label), 0);
        assert_int_equal(db_number(on.db, "SELECT count(*) FROM postroom.outbox_state WHERE state "
                                          "= 'published'"),
                         3);
        pr_store_free(store);
        pr_store_free(other);
        ground_done(&on);
    }
}

/* ---- all kinds of claims ---- */

typedef struct claims {
    int64_t log, parked, delayed, inbox; /* how many each gave */
} claims;

/* Keyless rows that are due: in the parked table, delayed, and of a consumer; none in the log but
   those. */
static void make_rows(PGconn *db)
{
    db_run(db, "INSERT INTO postroom.outbox (type, destination, body) SELECT '" TYPE_PLACED
               "', '" TO_BROKER "', '' FROM generate_series(1, 200)");
    db_run(db, "INSERT INTO postroom.outbox_parked (reader, log_id, lane, message_id, type, "
               "type_version, content_type, destination, tenant, body, occurred_at, state, "
               "next_attempt_at) SELECT r, 1000 + n, r - 1, gen_random_uuid(), '" TYPE_PLACED
               "', 1, 'application/json', '" TO_BROKER "', '', '', now(), CASE r WHEN 0 THEN "
               "'delayed' ELSE 'failed' END, now() FROM generate_series(0, 1) AS r, "
               "generate_series(1, 200) AS n");
    db_run(db, "INSERT INTO postroom.inbox_parked (tenant, consumer, message_id, original_id, "
               "body_hash, type, type_version, content_type, body, occurred_at, state, "
               "next_attempt_at, parked_at) SELECT '', 'billing', n, n, decode(repeat('00', 16), "
               "'hex'), '" TYPE_PLACED "', 1, 'application/json', '', now(), 'failed', now(), "
               "now() FROM generate_series(1, 200) AS n");
}

static claims claim_all(pr_store *store)
{
    claims got = {0};
    pr_error err = PR_ERROR_INIT;
    pr__claim_options opt = ground_claim_options(TAKEN);
    pr__inbox_claim_options inbox = {
        .consumer = "billing", .lease_ms = 1000, .batch_max = TAKEN, .owner = "statements"};
    pr__batch *batch = NULL;
    uint32_t count = 0;
    int64_t next_ms = 0;
    check_ok(pr__store_claim(store, &opt, &batch, &err), &err, "log");
    got.log = batch ? batch->item_count : 0;
    pr__batch_free(batch);
    batch = NULL;
    check_ok(pr__store_claim_parked(store, &opt, &batch, &err), &err, "parked");
    got.parked = batch ? batch->item_count : 0;
    pr__batch_free(batch);
    batch = NULL;
    check_ok(pr__store_promote(store, TAKEN, &count, &next_ms, &err), &err, "promote");
    got.delayed = count;
    check_ok(pr__store_inbox_claim(store, &inbox, &batch, &err), &err, "inbox");
    got.inbox = batch ? batch->item_count : 0;
    pr__batch_free(batch);
    return got;
}

/* Under a nested loop an UPDATE with a LIMIT and FOR UPDATE SKIP LOCKED in its subquery took all
   rows. */
static void a_claim_takes_what_it_asked_for(void **state)
{
    static const struct {
        const char *label;
        const char *off[5];
    } plans[] = {
        {"nested loops only",
         {"enable_hashjoin", "enable_mergejoin", "enable_material", "enable_hashagg", NULL}},
        {"no index", {"enable_indexscan", "enable_bitmapscan", "enable_indexonlyscan", NULL}},
        {"sequences of joins", {"enable_nestloop", "enable_hashjoin", "enable_seqscan", NULL}},
    };
    (void)state;
    for (size_t i = 0; i < COUNT_OF(plans); i++) {
        ground on;
        char sql[200], name[64];
        ground_make(&databases, NULL, &on);
        db_text(on.db, "SELECT current_database()", name, sizeof name);
        for (size_t n = 0; plans[i].off[n]; n++) {
            snprintf(sql, sizeof sql, "ALTER DATABASE %s SET %s = off", name, plans[i].off[n]);
            db_run(on.db, sql);
        }
        make_rows(on.db);
        pr_store *store = ground_store(on.uri);
        claims got = claim_all(store);
        CHECK_CASE(got.log == TAKEN && got.parked == TAKEN, plans[i].label);
        CHECK_CASE(got.delayed == TAKEN && got.inbox == TAKEN, plans[i].label);
        assert_int_equal(db_number(on.db, "SELECT count(*) FROM postroom.outbox_parked WHERE state "
                                          "= 'processing'"),
                         TAKEN);
        assert_int_equal(db_number(on.db, "SELECT count(*) FROM postroom.inbox_parked WHERE state "
                                          "= 'processing'"),
                         TAKEN);
        assert_int_equal(db_number(on.db, "SELECT count(*) FROM postroom.outbox_parked WHERE "
                                          "state = 'delayed'"),
                         ROWS - TAKEN);
        pr_store_free(store);
        ground_done(&on);
    }
}

/* With a parameter for a limit a generic plan may read a whole index; and where names are not
   wanted there are none. */
static void limits_are_literals(void **state)
{
    ground on;
    pr_error err = PR_ERROR_INIT;
    pr_postgres_options options = PR_POSTGRES_OPTIONS(.statements_off = true);
    pr_store *unnamed = NULL;
    (void)state;
    ground_make(&databases, NULL, &on);
    make_rows(on.db);
    pr_store *named = ground_store(on.uri);
    claims got = claim_all(named);
    assert_int_equal(got.log + got.parked + got.delayed + got.inbox, 4 * TAKEN);
    PGconn *session = session_of(named);
    assert_true(db_number(session, "SELECT count(*) FROM pg_prepared_statements WHERE statement ~ "
                                   "'LIMIT [0-9]'") >= 4);
    assert_int_equal(
        db_number(session,
                  "SELECT count(*) FROM pg_prepared_statements WHERE statement ~ 'LIMIT \\$'"),
        0);
    options.conninfo = on.uri;
    check_ok(pr_postgres_store_open(&options, &unnamed, &err), &err, "open");
    got = claim_all(unnamed);
    assert_int_equal(got.parked, TAKEN);
    assert_int_equal(db_number(session_of(unnamed), "SELECT count(*) FROM pg_prepared_statements"),
                     0);
    pr_store_free(named);
    pr_store_free(unnamed);
    ground_done(&on);
}

/* Many messages are one statement: one flush, one round trip. */
static void many_are_one_statement(void **state)
{
    enum { COUNT = 100 };
    ground on;
    pr_error err = PR_ERROR_INIT;
    pr_unit *unit = NULL;
    pr_message messages[COUNT];
    (void)state;
    ground_make(&databases, NULL, &on);
    pr_store *store = ground_store(on.uri);
    db_run(on.db, "CREATE SEQUENCE public.statements; CREATE FUNCTION public.count_one() RETURNS "
                  "trigger LANGUAGE plpgsql AS 'BEGIN PERFORM nextval(''public.statements''); "
                  "RETURN NULL; END'; CREATE TRIGGER t AFTER INSERT ON postroom.outbox FOR EACH "
                  "STATEMENT EXECUTE FUNCTION public.count_one()");
    for (size_t i = 0; i < COUNT; i++)
        messages[i] = (pr_message)PR_MESSAGE(.type = TYPE_PLACED, .destination = TO_BROKER,
                                             .key = "k", .body = "x", .body_size_bytes = 1);
    db_run(on.db, "BEGIN");
    check_ok(pr_postgres_unit_join(store, on.db, &unit, &err), &err, "join");
    check_ok(pr_unit_enqueue_many(unit, messages, COUNT, NULL, &err), &err, "enqueue");
    db_run(on.db, "COMMIT");
    check_ok(pr_unit_finished(unit, PR_OUTCOME_COMMITTED, &err), &err, "finished");
    pr_unit_free(unit);
    assert_int_equal(db_number(on.db, "SELECT last_value FROM public.statements"), 1);
    assert_int_equal(ground_drain(store, 1000, NULL, NULL), COUNT);
    pr_store_free(store);
    ground_done(&on);
}

/* On the host's connection nothing is prepared, and what happens to its session or to the table
   between two messages does no harm. */
static void a_joined_unit_prepares_nothing(void **state)
{
    static const struct {
        const char *label;
        const char *deed;
        bool elsewhere; /* by other hands */
    } cases[] = {
        {"nothing", "SELECT 1", false},
        {"names are found elsewhere", "SET search_path = nowhere", false},
        {"DISCARD ALL", "DISCARD ALL", false},
        {"a column more", "ALTER TABLE postroom.outbox ADD COLUMN note text", true},
        {"a column of another type",
         "ALTER TABLE postroom.outbox ALTER COLUMN headers TYPE varchar COLLATE \"C\"", true},
        {"another session", "SET SESSION AUTHORIZATION DEFAULT", false},
    };
    ground on;
    (void)state;
    ground_make(&databases, NULL, &on);
    pr_store *store = ground_store(on.uri);
    PGconn *host = db_open(on.uri);
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        pr_error err = PR_ERROR_INIT;
        pr_unit *unit = NULL;
        const pr_message messages[] = {
            PR_MESSAGE(.type = TYPE_PLACED, .body = "x", .body_size_bytes = 1),
            PR_MESSAGE(.type = TYPE_PLACED, .destination = TO_BROKER, .headers = "{}", .body = "x",
                       .body_size_bytes = 1)};
        db_run(cases[i].elsewhere ? on.db : host, cases[i].deed);
        db_run(host, "BEGIN");
        check_ok(pr_postgres_unit_join(store, host, &unit, &err), &err, cases[i].label);
        for (size_t n = 0; n < COUNT_OF(messages); n++)
            check_ok(pr_unit_enqueue(unit, &messages[n], NULL, &err), &err, cases[i].label);
        db_run(host, "COMMIT");
        check_ok(pr_unit_finished(unit, PR_OUTCOME_COMMITTED, &err), &err, cases[i].label);
        pr_unit_free(unit);
        assert_int_equal(db_number(host, "SELECT count(*) FROM pg_catalog.pg_prepared_statements"),
                         0);
        assert_int_equal(db_number(on.db, "SELECT count(*) FROM postroom.outbox"), 2 * (i + 1));
    }
    PQfinish(host);
    pr_store_free(store);
    ground_done(&on);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(prepared_statements_come_and_go),
        cmocka_unit_test(a_claim_takes_what_it_asked_for),
        cmocka_unit_test(limits_are_literals),
        cmocka_unit_test(many_are_one_statement),
        cmocka_unit_test(a_joined_unit_prepares_nothing),
    };
    databases.server = postgres_server_start(NULL);
    int failed = RUN_TESTS(tests);
    postgres_server_free(databases.server);
    return failed;
}
