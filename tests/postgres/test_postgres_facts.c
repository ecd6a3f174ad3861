/*
 * What was measured of PostgreSQL, each as it concerns the store: commits that are none, locks and
 * rivals, snapshots, servers that are read-only, readers that pin the horizon.
 */
#include <unistd.h>

#include "postgres/ground.h"

static postgres_databases databases;

static pr_status open_with(const pr_postgres_options *more, const char *uri, pr_store **ret_store,
                           pr_error *err)
{
    pr_postgres_options options = *more;
    options.size = (uint32_t)sizeof options;
    options.conninfo = uri;
    return pr_postgres_store_open(&options, ret_store, err);
}

static pr__batch *claim(pr_store *store, pr_status *ret_status, pr_error *err)
{
    pr__claim_options opt = {.reader = PR_READER_RELAY,
                             .lease_ms = 1000,
                             .batch_max = 100,
                             .bytes_max = 1024 * 1024,
                             .owner = "facts"};
    pr__batch *batch = NULL;
    *ret_status = pr__store_claim(store, &opt, &batch, err);
    return batch;
}

static pr_unit *begin_with_message(pr_store *store)
{
    pr_error err = PR_ERROR_INIT;
    pr_unit *unit = NULL;
    pr_message message = PR_MESSAGE(.type = TYPE_PLACED, .body = "1", .body_size_bytes = 1);
    check_ok(pr_unit_begin(store, &unit, &err), &err, "begin");
    check_ok(pr_unit_enqueue(unit, &message, NULL, &err), &err, "enqueue");
    return unit;
}

/* The server answers COMMIT of an aborted transaction with success. */
static void a_commit_of_an_aborted_transaction_is_none(void **state)
{
    ground on;
    char sqlstate[6];
    pr_error err = PR_ERROR_INIT;
    pr_outcome outcome = PR_OUTCOME_COMMITTED;
    pr_message message = PR_MESSAGE(.type = TYPE_PLACED, .body = "1", .body_size_bytes = 1);
    (void)state;
    ground_make(&databases, NULL, &on);
    pr_store *store = ground_store(on.uri);
    pr_unit *unit = begin_with_message(store);
    assert_false(db_try(pr_postgres_unit_connection(unit), "SELECT 1 / 0", sqlstate));
    check_error(pr_unit_enqueue(unit, &message, NULL, &err), &err, PR_E_STATE, "abort", "enqueue");
    pr_error_clear(&err);
    pr_status status = pr_unit_commit(unit, &outcome, &err);
    assert_int_not_equal(status, PR_OK);
    assert_int_equal(outcome, PR_OUTCOME_NOT_COMMITTED);
    pr_unit_free(unit);
    assert_int_equal(db_number(on.db, "SELECT count(*) FROM postroom.outbox"), 0);
    ground_post(store, "k", "x"); /* the store goes on */
    pr_store_free(store);
    ground_done(&on);
}

/* The connection is gone, there is no SQLSTATE: it is found out, and it was not committed. */
static void a_backend_that_was_killed_before_its_commit(void **state)
{
    ground on;
    pr_error err = PR_ERROR_INIT;
    pr_outcome outcome = PR_OUTCOME_COMMITTED;
    char sql[100];
    (void)state;
    ground_make(&databases, NULL, &on);
    pr_store *store = ground_store(on.uri);
    pr_unit *unit = begin_with_message(store);
    snprintf(sql, sizeof sql, "SELECT pg_terminate_backend(%d, 10000)",
             PQbackendPID(pr_postgres_unit_connection(unit)));
    assert_int_equal(db_number(on.db, sql), 1);
    pr_status status = pr_unit_commit(unit, &outcome, &err);
    assert_int_not_equal(status, PR_OK);
    assert_int_equal(outcome, PR_OUTCOME_NOT_COMMITTED);
    pr_unit_free(unit);
    assert_int_equal(db_number(on.db, "SELECT count(*) FROM postroom.outbox"), 0);
    ground_post(store, "k", "x"); /* it connects again by itself */
    pr_store_free(store);
    ground_done(&on);
}

/* A unit that does nothing is ended by the server, so that it holds nobody up for ever. */
static void an_idle_unit_is_ended(void **state)
{
    ground on;
    pr_error err = PR_ERROR_INIT;
    pr_outcome outcome = PR_OUTCOME_COMMITTED;
    const pr_postgres_options idle = {.unit_idle_ms = 300};
    pr_store *store = NULL;
    (void)state;
    ground_make(&databases, NULL, &on);
    check_ok(open_with(&idle, on.uri, &store, &err), &err, "open");
    pr_unit *unit = begin_with_message(store);
    char sql[120];
    snprintf(sql, sizeof sql, "SELECT count(*) = 0 FROM pg_stat_activity WHERE pid = %d",
             PQbackendPID(pr_postgres_unit_connection(unit)));
    db_wait(on.db, sql, 1, "the server ends it");
    assert_int_not_equal(pr_unit_commit(unit, &outcome, &err), PR_OK);
    assert_int_equal(outcome, PR_OUTCOME_NOT_COMMITTED);
    pr_unit_free(unit);
    pr_store_free(store);
    ground_done(&on);
}

/* Somebody holds the journal: a claim waits its limit, says so, and may be tried again. */
static void a_lock_is_waited_for_and_not_longer(void **state)
{
    ground on;
    pr_error err = PR_ERROR_INIT;
    pr_status status;
    const pr_postgres_options short_wait = {.busy_ms = 200};
    pr_store *store = NULL;
    (void)state;
    ground_make(&databases, NULL, &on);
    store = ground_store(on.uri);
    ground_post(store, "k", "x");
    pr_store_free(store);
    store = NULL;
    check_ok(open_with(&short_wait, on.uri, &store, &err), &err, "open");
    db_run(on.db, "BEGIN; LOCK TABLE postroom.outbox_claim IN SHARE MODE");
    assert_null(claim(store, &status, &err));
    assert_int_not_equal(status, PR_OK);
    assert_string_equal(err.sqlstate, "55P03");
    assert_int_equal(err.retry, PR_RETRY_SAME);
    db_run(on.db, "ROLLBACK");
    pr_error_clear(&err);
    pr__batch *batch = claim(store, &status, &err);
    check_ok(status, &err, "after it");
    assert_non_null(batch);
    pr__batch_free(batch);
    pr_store_free(store);
    ground_done(&on);
}

/* Writers and readers that pin the horizon, here and in another database, stop nothing. */
static void pinned_horizons_stop_nothing(void **state)
{
    ground on, other;
    (void)state;
    ground_make(&databases, NULL, &on);
    ground_make(&databases, NULL, &other);
    PGconn *reader = db_open(on.uri);
    PGconn *writer = db_open(on.uri);
    db_run(reader, "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM postroom.outbox");
    db_run(writer, "BEGIN; SELECT pg_current_xact_id()");
    db_run(other.db, "BEGIN; SELECT pg_current_xact_id()");
    pr_store *store = ground_store(on.uri);
    for (int i = 0; i < 20; i++) {
        ground_post(store, "k", "x");
        assert_int_equal(ground_drain(store, 1000, NULL, NULL), 1);
    }
    db_run(writer, "INSERT INTO postroom.outbox (type, destination, body) VALUES ('" TYPE_PLACED
                   "', '" TO_BROKER "', ''); COMMIT");
    assert_int_equal(ground_drain(store, 1000, NULL, NULL), 1);
    PQfinish(reader);
    PQfinish(writer);
    pr_store_free(store);
    ground_done(&on);
    ground_done(&other);
}

/* An empty claim writes nothing at all, and takes no transaction id. */
static void an_empty_claim_writes_nothing(void **state)
{
    ground on;
    pr_error err = PR_ERROR_INIT;
    pr_status status;
    (void)state;
    ground_make(&databases, NULL, &on);
    pr_store *store = ground_store(on.uri);
    ground_post(store, "k", "x");
    assert_int_equal(ground_drain(store, 1000, NULL, NULL), 1);
    int64_t next = db_number(on.db, "SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint");
    int64_t rows = db_number(on.db, "SELECT count(*) FROM postroom.outbox_claim");
    for (int i = 0; i < 50; i++)
        assert_null(claim(store, &status, &err));
    assert_int_equal(db_number(on.db, "SELECT count(*) FROM postroom.outbox_claim"), rows);
    assert_int_equal(
        db_number(on.db, "SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint"), next);
    pr_store_free(store);
    ground_done(&on);
}

/* The wrong node: nothing is charged, and the same store goes on once it may write again. */
static void a_server_that_turned_read_only(void **state)
{
    ground on;
    pr_error err = PR_ERROR_INIT;
    pr_status status;
    pr__batch *batch = NULL;
    (void)state;
    ground_make(&databases, NULL, &on);
    pr_store *store = ground_store(on.uri);
    ground_post(store, "k", "x");
    postgres_server_do(databases.server, "standby");
    for (int i = 0; i < 5; i++) {
        pr_error_clear(&err);
        batch = claim(store, &status, &err);
        assert_null(batch);
        assert_int_not_equal(status, PR_OK);
        if (err.retry != PR_RETRY_RECONNECT)
            fail_msg("%d: retry %d, '%s': %s", i, (int)err.retry, err.sqlstate, err.message);
    }
    assert_string_equal(err.sqlstate, "25006");
    PQreset(on.db);
    assert_int_equal(db_number(on.db, "SELECT pg_promote(true, 30)"), 1);
    int64_t until = now_ms() + 30000;
    while (!batch && now_ms() < until) {
        pr_error_clear(&err);
        batch = claim(store, &status, &err);
    }
    check_ok(status, &err, "promoted");
    assert_non_null(batch);
    assert_int_equal(batch->items[0].attempts, 0);
    pr__batch_free(batch);
    pr_store_free(store);
    ground_done(&on);
}

/* A joined unit is on the host's connection, whatever its settings. */
static void a_joined_unit_of_a_serializable_host(void **state)
{
    ground on;
    pr_error err = PR_ERROR_INIT;
    pr_unit *unit = NULL;
    pr_message message = PR_MESSAGE(.type = TYPE_PLACED, .destination = TO_BROKER, .body = "1",
                                    .body_size_bytes = 1);
    (void)state;
    ground_make(&databases, NULL, &on);
    pr_store *store = ground_store(on.uri);
    db_run(on.db, "SET search_path = pg_temp; SET TimeZone = 'Asia/Kathmandu'; SET DateStyle = "
                  "'German'; SET bytea_output = 'escape'; SET standard_conforming_strings = off");
    db_run(on.db, "BEGIN ISOLATION LEVEL SERIALIZABLE");
    check_ok(pr_postgres_unit_join(store, on.db, &unit, &err), &err, "join");
    check_ok(pr_unit_enqueue(unit, &message, NULL, &err), &err, "enqueue");
    check_ok(pr_unit_enqueue(unit, &message, NULL, &err), &err, "enqueue");
    db_run(on.db, "COMMIT");
    check_ok(pr_unit_finished(unit, PR_OUTCOME_COMMITTED, &err), &err, "finished");
    pr_unit_free(unit);
    assert_int_equal(ground_drain(store, 1000, NULL, NULL), 2);
    char text[40];
    db_text(on.db, "SHOW search_path", text, sizeof text);
    assert_string_equal(text, "pg_temp"); /* nothing of the session was changed */
    pr_store_free(store);
    ground_done(&on);
}

/* ---- rivals and snapshots ---- */

#define POST_ROW                                                                                   \
    "INSERT INTO postroom.outbox (type, destination, key, body) VALUES ('" TYPE_PLACED             \
    "', '" TO_BROKER "', 'k', '')"

/* A running transaction above the latest completed one is in no snapshot's list; its row has a
   lower id than one that is passed. */
static void a_transaction_that_no_snapshot_lists(void **state)
{
    ground on;
    char sql[300], xid[32];
    (void)state;
    ground_make(&databases, NULL, &on);
    pr_store *store = ground_store(on.uri);
    PGconn *early = db_open(on.uri), *late = db_open(on.uri);
    db_run(early, "BEGIN; SELECT pg_current_xact_id()");
    db_run(late, "BEGIN; " POST_ROW);
    db_text(late, "SELECT pg_current_xact_id()", xid, sizeof xid);
    db_run(early, POST_ROW "; COMMIT");
    snprintf(sql, sizeof sql,
             "SELECT pg_snapshot_xmax(pg_current_snapshot()) <= '%s'::xid8 AND NOT EXISTS (SELECT "
             "FROM pg_snapshot_xip(pg_current_snapshot()) AS x WHERE x = '%s'::xid8)",
             xid, xid);
    assert_int_equal(db_number(on.db, sql), 1); /* it is as the case wants it */
    assert_int_equal(ground_drain(store, 1000, NULL, NULL), 1);
    assert_int_equal(db_number(on.db, "SELECT max(pos) FROM postroom.outbox_claim"), 2);
    db_run(late, "COMMIT");
    assert_int_equal(ground_drain(store, 1000, NULL, NULL), 1);
    PQfinish(early);
    PQfinish(late);
    pr_store_free(store);
    ground_done(&on);
}

/* Another relay's next row of the lane, before its commit. */
#define RIVAL                                                                                      \
    "BEGIN; INSERT INTO postroom.outbox_claim SELECT (jsonb_populate_record(c, "                   \
    "jsonb_build_object('seq', c.seq + 1))).* FROM postroom.outbox_claim AS c WHERE c.lane = "     \
    "(SELECT lane FROM postroom.outbox)"

static int claim_beside_a_rival(void *user, int wanted)
{
    pr_error err = PR_ERROR_INIT;
    pr_status status;
    const pr_postgres_options options = {.busy_ms = wanted > 0 ? 20000 : 300};
    pr_store *store = NULL;
    check_ok(open_with(&options, user, &store, &err), &err, "open");
    pr__batch *batch = claim(store, &status, &err);
    if (wanted > 0) {
        check_ok(status, &err, "claim");
        assert_non_null(batch);
        assert_int_equal(batch->slices[0].seq, wanted);
    } else {
        assert_null(batch);
        assert_string_equal(err.sqlstate, "55P03");
        assert_int_equal(err.retry, PR_RETRY_SAME);
    }
    pr__batch_free(batch);
    pr_store_free(store);
    return 0;
}

/* Waits for the rival's end and takes what it leaves, whatever isolation the database's default is;
   and no longer than the limit. */
static void a_rival_at_the_journal(void **state)
{
    static const struct {
        const char *label;
        const char *end; /* NULL: it is frozen */
        int seq;         /* of the row that the claim makes; 0: it gives up */
    } cases[] = {{"the rival rolls back", "ROLLBACK", 1},
                 {"the rival commits", "COMMIT", 2},
                 {"the rival is frozen", NULL, 0}};
    (void)state;
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        ground on;
        ground_make(&databases, NULL, &on);
        db_run(on.db, "DO $$ BEGIN EXECUTE 'ALTER DATABASE ' || current_database() || ' SET "
                      "default_transaction_isolation = ''repeatable read'''; END $$");
        PGconn *rival = db_open(on.uri);
        db_run(rival, POST_ROW);
        db_run(rival, RIVAL);
        int pid = child_start(claim_beside_a_rival, on.uri, cases[i].seq);
        if (cases[i].end) {
            db_wait(on.db,
                    "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND "
                    "wait_event_type = 'Lock'",
                    1, cases[i].label);
            db_run(rival, cases[i].end);
        }
        child_wait(pid, 0, 20000);
        PQfinish(rival);
        ground_done(&on);
    }
}

/* A NOTIFY takes a lock of the whole cluster at each commit: there is none. */
static void nothing_is_notified(void **state)
{
    ground on;
    (void)state;
    ground_make(&databases, NULL, &on);
    pr_store *store = ground_store(on.uri);
    PGconn *listener = db_open(on.uri);
    db_run(listener, "LISTEN anything");
    db_run(listener, "BEGIN; SELECT 1"); /* it reads nothing: all that comes stays in the queue */
    for (int i = 0; i < 300; i++)
        ground_post(store, "k", "x");
    assert_int_equal(ground_drain(store, 1000, NULL, NULL), 300);
    assert_int_equal(db_number(on.db, "SELECT pg_notification_queue_usage() > 0"), 0);
    db_run(on.db, "SELECT pg_notify('anything', repeat('x', 7000)) FROM generate_series(1, 1)");
    db_run(on.db, "SELECT pg_notify('anything', repeat('y', 7000)) FROM generate_series(1, 1)");
    assert_int_equal(db_number(on.db, "SELECT pg_notification_queue_usage() > 0"), 1);
    PQfinish(listener);
    pr_store_free(store);
    ground_done(&on);
}

static void another_database_is_refused(void **state)
{
    ground on, other;
    pr_error err = PR_ERROR_INIT;
    pr_unit *unit = NULL;
    (void)state;
    ground_make(&databases, NULL, &on);
    ground_make(&databases, NULL, &other);
    pr_store *store = ground_store(on.uri);
    db_run(other.db, "BEGIN");
    check_error(pr_postgres_unit_join(store, other.db, &unit, &err), &err, PR_E_INVALID, "database",
                "another database");
    assert_null(unit);
    db_run(other.db, "ROLLBACK");
    pr_store_free(store);
    ground_done(&on);
    ground_done(&other);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(another_database_is_refused),
        cmocka_unit_test(a_commit_of_an_aborted_transaction_is_none),
        cmocka_unit_test(a_backend_that_was_killed_before_its_commit),
        cmocka_unit_test(an_idle_unit_is_ended),
        cmocka_unit_test(a_lock_is_waited_for_and_not_longer),
        cmocka_unit_test(pinned_horizons_stop_nothing),
        cmocka_unit_test(a_transaction_that_no_snapshot_lists),
        cmocka_unit_test(a_rival_at_the_journal),
        cmocka_unit_test(nothing_is_notified),
        cmocka_unit_test(an_empty_claim_writes_nothing),
        cmocka_unit_test(a_joined_unit_of_a_serializable_host),
        cmocka_unit_test(a_server_that_turned_read_only),
    };
    /* autovacuum's transactions would end between those of a case */
    const postgres_server_options quiet = {.settings = {"autovacuum=off"}};
    databases.server = postgres_server_start(&quiet);
    int failed = RUN_TESTS(tests);
    postgres_server_free(databases.server);
    return failed;
}
