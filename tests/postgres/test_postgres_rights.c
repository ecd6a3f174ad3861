/*
 * The rights that docs/design/postgres.md lists are enough: who migrates, who relays and handles,
 * who enqueues in transactions of its own.
 */
#include "postgres/ground.h"

static postgres_databases databases;

/* The same address as another user. */
static void address_as(const char *uri, const char *user, char out[POSTGRES_CONNINFO_SIZE])
{
    const char *at = strstr(uri, "user=postgres");
    assert_non_null(at);
    snprintf(out, POSTGRES_CONNINFO_SIZE, "%.*suser=%s%s", (int)(at - uri), uri, user,
             at + strlen("user=postgres"));
}

static void grant(PGconn *db, const char *role, const char *rights)
{
    char sql[900];
    snprintf(sql, sizeof sql, "DROP ROLE IF EXISTS %s; CREATE ROLE %s LOGIN", role, role);
    db_run(db, sql);
    db_run(db, rights);
}

static void drop(PGconn *db, const char *role)
{
    char sql[200];
    snprintf(sql, sizeof sql, "DROP OWNED BY %s CASCADE; DROP ROLE %s", role, role);
    db_run(db, sql);
}

/* ---- relays and endpoints ---- */

static void fail_all(pr_store *store)
{
    pr_error err = PR_ERROR_INIT;
    pr__settle_report report = {0};
    pr__batch *batch = ground_claim(store, 10);
    assert_non_null(batch);
    for (uint32_t i = 0; i < batch->item_count; i++)
        batch->items[i].result = PR__RESULT_FAILED;
    pr__batch_close(batch);
    check_ok(pr__store_renew(store, batch, 1000, &err), &err, "renew");
    check_ok(pr__store_settle(store, batch, NULL, &report, NULL, &err), &err, "settle");
    pr__batch_free(batch);
}

static void mark_and_park(pr_store *store)
{
    static const uint8_t hash[PR_CONTENT_HASH_SIZE] = {1};
    const pr__inbox_key key = {.tenant = "", .consumer = "billing", .message_id = "1"};
    const pr_message message =
        PR_MESSAGE(.id = "019a22d1-1ccc-7ba9-89b4-d7b94c7fb226", .type = TYPE_PLACED,
                   .type_version = 1, .body = "1", .body_size_bytes = 1, .occurred_at_us = 1);
    const pr__inbox_park park = {.state = PR_STATE_FAILED, .attempts = 1, .error = "on purpose"};
    pr_error err = PR_ERROR_INIT;
    pr_unit *unit = NULL;
    pr__mark mark;
    bool done = false;
    check_ok(pr_unit_begin(store, &unit, &err), &err, "begin");
    check_ok(unit->ops->inbox_mark(unit, &key, hash, &mark, &err), &err, "mark");
    check_ok(unit->ops->inbox_park(unit, &key, &message, &park, &done, &err), &err, "park");
    check_ok(unit->ops->inbox_unmark(unit, &key, &err), &err, "unmark");
    check_ok(unit->ops->inbox_unpark(unit, &key, NULL, &done, &err), &err, "unpark");
    check_ok(pr_unit_commit(unit, NULL, &err), &err, "commit");
    pr_unit_free(unit);
}

static bool count_record(void *user, const pr_record *record)
{
    (void)record;
    ++*(int *)user;
    return true;
}

/* All that relay, endpoint and operator ask of a store. */
static void do_everything(pr_store *store, PGconn *db)
{
    static const char *const topics[] = {"local://topic/" TYPE_PLACED};
    const pr__reader_spec spec = {
        .name = "billing", .destinations = topics, .destination_count = 1};
    pr__claim_options opt = ground_claim_options(10);
    pr__inbox_claim_options inbox = {
        .consumer = "billing", .lease_ms = 1000, .batch_max = 1, .owner = "rights"};
    pr_status_report status = {.size = (uint32_t)sizeof status};
    pr__settle_report report = {0};
    pr_error err = PR_ERROR_INIT;
    pr__batch *batch = NULL;
    int64_t reader = 0, next_ms = 0;
    uint32_t count = 0;
    int records = 0;
    char id[64];
    check_ok(pr_store_check(store, &err), &err, "check");
    check_ok(pr__store_reader_open(store, &spec, &reader, &err), &err, "subscribe");
    ground_post(store, "k", "x");
    fail_all(store);
    check_ok(pr__store_claim_parked(store, &opt, &batch, &err), &err, "claim parked");
    assert_non_null(batch);
    batch->items[0].result = PR__RESULT_DEAD;
    check_ok(pr__store_settle(store, batch, NULL, &report, NULL, &err), &err, "settle parked");
    pr__batch_free(batch);
    db_run(db, "SELECT postroom.enqueue('" TYPE_PLACED "', ''::text, deliver_at => "
               "clock_timestamp() + interval '1 ms')");
    check_ok(pr__store_promote(store, 10, &count, &next_ms, &err), &err, "promote");
    mark_and_park(store);
    batch = NULL;
    check_ok(pr__store_inbox_claim(store, &inbox, &batch, &err), &err, "claim of a consumer");
    assert_null(batch);
    check_ok(pr__store_maintain(store, &err), &err, "maintain");
    check_ok(store->ops->status(store, &status, &err), &err, "status");
    db_text(db, "SELECT message_id FROM postroom.outbox LIMIT 1", id, sizeof id);
    check_ok(store->ops->show(store, id, count_record, &records, &err), &err, "show");
    const pr_redrive_options redrive = {.size = (uint32_t)sizeof redrive,
                                        .box = PR_BOX_OUTBOX,
                                        .limit = 10,
                                        .who = "tester",
                                        .reason = "rights"};
    uint64_t redriven = 0;
    check_ok(store->ops->redrive(store, &redrive, NULL, NULL, &redriven, &err), &err, "redrive");
    assert_int_equal(redriven, 1);
    check_ok(pr__store_reader_drop(store, reader, &err), &err, "unsubscribe");
}

static void a_relay_has_enough(void **state)
{
    ground on;
    char uri[POSTGRES_CONNINFO_SIZE];
    (void)state;
    ground_make(&databases, NULL, &on);
    grant(on.db, "relay",
          "GRANT USAGE ON SCHEMA postroom TO relay; "
          "GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA postroom TO relay; "
          "GRANT USAGE, SELECT ON ALL SEQUENCES IN SCHEMA postroom TO relay");
    address_as(on.uri, "relay", uri);
    pr_store *store = ground_store(uri);
    do_everything(store, on.db);
    pr_store_free(store);
    drop(on.db, "relay");
    ground_done(&on);
}

/* ---- hosts ---- */

static const struct {
    const char *label;
    const char *rights; /* beside those on the message columns */
    bool id, delayed;   /* what else it can do */
} hosts[] = {
    {"messages with ids of ours", "SELECT 1", false, false},
    {"ids of its own, and delays",
     "GRANT SELECT ON postroom.outbox TO host; GRANT SELECT, INSERT ON postroom.outbox_parked TO "
     "host; GRANT USAGE ON SEQUENCE postroom.outbox_parked_place_seq TO host",
     true, true},
};

static pr_status enqueue_as(pr_store *store, PGconn *db, bool id, bool delayed, pr_error *err)
{
    pr_message message = PR_MESSAGE(.type = TYPE_PLACED, .destination = TO_BROKER, .body = "1",
                                    .body_size_bytes = 1);
    pr_unit *unit = NULL;
    if (id)
        message.id = "019a22d1-1ccc-7ba9-89b4-d7b94c7fb226";
    if (delayed)
        message.deliver_at_us = INT64_C(4102444800000000); /* 2100 */
    db_run(db, "BEGIN");
    pr_status status = pr_postgres_unit_join(store, db, &unit, err);
    if (status == PR_OK)
        status = pr_unit_enqueue(unit, &message, NULL, err);
    db_run(db, status == PR_OK ? "COMMIT" : "ROLLBACK");
    pr_unit_free(unit);
    return status;
}

static void a_host_has_enough(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(hosts); i++) {
        ground on;
        char uri[POSTGRES_CONNINFO_SIZE];
        pr_error err = PR_ERROR_INIT;
        pr_store *store = NULL;
        ground_make(&databases, NULL, &on);
        grant(on.db, "host",
              "GRANT USAGE ON SCHEMA postroom TO host; "
              "GRANT SELECT ON postroom.setting, postroom.schema_version TO host; "
              "GRANT INSERT (message_id, type, type_version, content_type, destination, source, "
              "key, tenant, correlation_id, causation_id, traceparent, tracestate, headers, body, "
              "occurred_at, expires_at) ON postroom.outbox TO host");
        db_run(on.db, hosts[i].rights);
        address_as(on.uri, "host", uri);
        const pr_postgres_options opt =
            PR_POSTGRES_OPTIONS(.conninfo = uri, .schema_check_off = true);
        check_ok(pr_postgres_store_open(&opt, &store, &err), &err, hosts[i].label);
        PGconn *db = db_open(uri);
        check_ok(enqueue_as(store, db, false, false, &err), &err, hosts[i].label);
        for (int n = 0; n < 2; n++) {
            bool able = n == 0 ? hosts[i].id : hosts[i].delayed;
            pr_error_clear(&err);
            pr_status status = enqueue_as(store, db, n == 0, n == 1, &err);
            CHECK_CASE((status == PR_OK) == able, hosts[i].label);
            CHECK_CASE(able || strcmp(err.sqlstate, "42501") == 0, hosts[i].label);
        }
        assert_int_equal(db_number(on.db, "SELECT count(*) FROM postroom.outbox"),
                         hosts[i].id ? 2 : 1);
        PQfinish(db);
        pr_store_free(store);
        drop(on.db, "host");
        ground_done(&on);
    }
}

/* ---- who migrates ---- */

static void a_migrator_has_enough(void **state)
{
    static const struct {
        const char *label;
        const char *rights; /* %s: the database */
        bool works;
    } cases[] = {
        {"nothing", "SELECT 1", false},
        {"the database", "GRANT CREATE ON DATABASE %s TO migrator", true},
        {"a schema that stands", "CREATE SCHEMA postroom AUTHORIZATION migrator", true},
        {"rights on a schema", "CREATE SCHEMA postroom; GRANT ALL ON SCHEMA postroom TO migrator",
         true},
    };
    (void)state;
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        char own[POSTGRES_CONNINFO_SIZE], uri[POSTGRES_CONNINFO_SIZE], name[64], sql[200];
        pr_error err = PR_ERROR_INIT;
        pr_store *store = NULL;
        postgres_database_make(&databases, own);
        PGconn *db = db_open(own);
        db_text(db, "SELECT current_database()", name, sizeof name);
        const char *mark = strstr(cases[i].rights, "%s");
        snprintf(sql, sizeof sql, "%.*s%s%s",
                 mark ? (int)(mark - cases[i].rights) : (int)strlen(cases[i].rights),
                 cases[i].rights, mark ? name : "", mark ? mark + 2 : "");
        grant(db, "migrator", sql);
        address_as(own, "migrator", uri);
        const pr_postgres_options opt =
            PR_POSTGRES_OPTIONS(.conninfo = uri, .schema_check_off = true);
        check_ok(pr_postgres_store_open(&opt, &store, &err), &err, cases[i].label);
        pr_status status = pr_store_migrate(store, NULL, NULL, &err);
        if (cases[i].works) {
            check_ok(status, &err, cases[i].label);
            check_ok(pr_store_check(store, &err), &err, cases[i].label);
            ground_post(store, "k", "x");
        } else {
            CHECK_CASE(status != PR_OK, cases[i].label);
            assert_string_equal(err.sqlstate, "42501");
        }
        pr_store_free(store);
        drop(db, "migrator");
        PQfinish(db);
    }
}

/* The short form makes the schema, asks for no right where it stands, and leaves alone what it does
   not know. */
static void the_short_form_makes_what_is_missing(void **state)
{
    char own[POSTGRES_CONNINFO_SIZE], uri[POSTGRES_CONNINFO_SIZE];
    pr_error err = PR_ERROR_INIT;
    pr_store *store = NULL;
    (void)state;
    check_error(pr_postgres_open("host=h password='x", &store, &err), &err, PR_E_INVALID,
                "cannot be read", "bad conninfo");
    pr_error_clear(&err);
    check_error(pr_postgres_open(NULL, NULL, &err), &err, PR_E_INVALID, "ret_store", "no result");
    pr_error_clear(&err);
    postgres_database_make(&databases, own);
    PGconn *db = db_open(own);
    grant(db, "guest", "SELECT 1");
    address_as(own, "guest", uri);
    assert_int_not_equal(pr_postgres_open(uri, &store, &err), PR_OK);
    assert_string_equal(err.sqlstate, "42501");
    assert_null(store);
    pr_error_clear(&err);
    check_ok(pr_postgres_open(own, &store, &err), &err, "made");
    ground_post(store, "k", "x");
    store = pr_store_free(store);
    db_run(db, "GRANT USAGE ON SCHEMA postroom TO guest; "
               "GRANT SELECT ON ALL TABLES IN SCHEMA postroom TO guest; "
               "GRANT SELECT ON ALL SEQUENCES IN SCHEMA postroom TO guest");
    check_ok(pr_postgres_open(uri, &store, &err), &err, "it stands: no right to make it is needed");
    store = pr_store_free(store);
    db_run(db, "INSERT INTO postroom.schema_version (version, name) VALUES (999, 'later')");
    check_error(pr_postgres_open(own, &store, &err), &err, PR_E_SCHEMA, "999", "newer");
    assert_null(store);
    drop(db, "guest");
    PQfinish(db);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_migrator_has_enough),
        cmocka_unit_test(the_short_form_makes_what_is_missing),
        cmocka_unit_test(a_host_has_enough),
        cmocka_unit_test(a_relay_has_enough),
    };
    databases.server = postgres_server_start(NULL);
    int failed = RUN_TESTS(tests);
    postgres_server_free(databases.server);
    return failed;
}
