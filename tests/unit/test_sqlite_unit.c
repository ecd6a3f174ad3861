/*
 * Units on SQLite: what was measured of its transactions, each row as a test (capabilities 20, 22,
 * 26, 32, 33).
 */
#include "support/sqlite_world.h"

#include "base/fault.h"
#include "port/store.h"

#define TYPE "urn:message:shop:order-placed"

typedef struct bench {
    sqlite_world at;
    pr_store *store;
    sqlite3 *host;
} bench;

static int setup(void **state)
{
    bench *b = calloc(1, sizeof *b);
    pr_error err = PR_ERROR_INIT;
    assert_non_null(b);
    check_ok(sqlite_world_open(&b->at, &err), &err, "world");
    check_ok(sqlite_world_store(&b->at, 300, 0, &b->store, &err), &err, "store");
    b->host = sqlite_world_connect(&b->at);
    sqlite_run(b->host, "CREATE TABLE orders (n INTEGER PRIMARY KEY, t TEXT)");
    *state = b;
    return 0;
}

static int teardown(void **state)
{
    bench *b = *state;
    sqlite3_close(b->host);
    pr_store_free(b->store);
    sqlite_world_close(&b->at);
    free(b);
    return 0;
}

static int run_on(sqlite3 *db, const char *sql)
{
    return sqlite3_exec(db, sql, NULL, NULL, NULL);
}

static int64_t ask(bench *b, const char *sql)
{
    sqlite3_stmt *stmt = NULL;
    assert_int_equal(sqlite3_prepare_v2(b->host, sql, -1, &stmt, NULL), SQLITE_OK);
    int64_t value = sqlite3_step(stmt) == SQLITE_ROW ? sqlite3_column_int64(stmt, 0) : -1;
    sqlite3_finalize(stmt);
    return value;
}

static pr_unit *begin(bench *b)
{
    pr_error err = PR_ERROR_INIT;
    pr_unit *unit = NULL;
    check_ok(pr_unit_begin(b->store, &unit, &err), &err, "begin");
    return unit;
}

static pr_unit *join(bench *b)
{
    pr_error err = PR_ERROR_INIT;
    pr_unit *unit = NULL;
    check_ok(pr_sqlite_unit_join(b->store, b->host, &unit, &err), &err, "join");
    return unit;
}

static pr_message message_of(const char *key)
{
    return (pr_message)PR_MESSAGE(.type = TYPE, .key = key, .destination = "b://in/x");
}

static void test_join_refused(void **state)
{
    bench *b = *state;
    sqlite3 *memory = NULL;
    sqlite_world elsewhere;
    sqlite3 *other = NULL;
    pr_unit *unit = NULL;
    pr_error err = PR_ERROR_INIT;
    check_error(pr_sqlite_unit_join(b->store, NULL, &unit, &err), &err, PR_E_INVALID, "NULL", "db");
    pr_error_clear(&err);
    assert_int_equal(sqlite3_open(":memory:", &memory), SQLITE_OK);
    run_on(memory, "BEGIN");
    check_error(pr_sqlite_unit_join(b->store, memory, &unit, &err), &err, PR_E_INVALID,
                "the connection is on ':memory:'", "memory");
    pr_error_clear(&err);
    check_ok(sqlite_world_open(&elsewhere, &err), &err, "elsewhere");
    assert_int_equal(sqlite3_open(elsewhere.path, &other), SQLITE_OK);
    run_on(other, "BEGIN");
    check_error(pr_sqlite_unit_join(b->store, other, &unit, &err), &err, PR_E_INVALID,
                elsewhere.path, "another database");
    pr_error_clear(&err);
    check_error(pr_sqlite_unit_join(b->store, b->host, &unit, &err), &err, PR_E_STATE,
                "BEGIN IMMEDIATE", "no transaction");
    pr_error_clear(&err);
    run_on(b->host,
           "BEGIN; DROP VIEW postroom_outbox_state; DROP VIEW postroom_enqueue; DROP TABLE "
           "postroom_outbox");
    check_error(pr_sqlite_unit_join(b->store, b->host, &unit, &err), &err, PR_E_SCHEMA,
                "tables are not there", "no tables");
    run_on(b->host, "ROLLBACK");
    assert_null(unit);
    pr_error_clear(&err);
    pr_unit *own = begin(b);
    check_error(pr_sqlite_unit_join(b->store, pr_sqlite_unit_connection(own), &unit, &err), &err,
                PR_E_STATE, "pr_unit_nest", "a unit's own transaction");
    pr_unit_free(own);
    sqlite3_close(memory);
    sqlite3_close(other);
    sqlite_world_close(&elsewhere);
}

/* The same file by another path is the same database. */
static void test_join_by_another_path(void **state)
{
    bench *b = *state;
    char path[340];
    sqlite3 *other = NULL;
    pr_unit *unit = NULL;
    pr_error err = PR_ERROR_INIT;
    snprintf(path, sizeof path, "%s/../%s/shop.db", b->at.folder, strrchr(b->at.folder, '/') + 1);
    assert_int_equal(sqlite3_open(path, &other), SQLITE_OK);
    run_on(other, "BEGIN IMMEDIATE");
    check_ok(pr_sqlite_unit_join(b->store, other, &unit, &err), &err, "join");
    pr_unit_free(unit);
    sqlite3_close(other);
}

/* A deferred transaction that read before another committed cannot write any more; SQLite says so
   at once, and our unit must not pretend otherwise. */
static void test_busy_snapshot(void **state)
{
    bench *b = *state;
    pr_error err = PR_ERROR_INIT;
    pr_message message = message_of(NULL);
    run_on(b->host, "BEGIN");
    assert_int_equal(ask(b, "SELECT count(*) FROM orders"), 0);
    pr_unit *unit = join(b);
    pr_unit *rival = begin(b);
    check_ok(pr_unit_enqueue(rival, &message, NULL, &err), &err, "rival");
    check_ok(pr_unit_commit(rival, NULL, &err), &err, "rival");
    pr_unit_free(rival);
    check_error(pr_unit_enqueue(unit, &message, NULL, &err), &err, PR_E_BUSY, "BEGIN IMMEDIATE",
                "snapshot");
    assert_int_equal(err.backend_code, SQLITE_BUSY_SNAPSHOT);
    assert_int_equal(err.retry, PR_RETRY_SAME);
    pr_error_clear(&err);
    check_error(pr_unit_enqueue(unit, &message, NULL, &err), &err, PR_E_STATE, "rolled back",
                "rollback-only");
    run_on(b->host, "ROLLBACK");
    pr_unit_free(unit);
    assert_int_equal(ask(b, "SELECT count(*) FROM postroom_outbox"), 1);
}

/* Joining alone reads nothing, so that it does not take a snapshot behind the host's back. */
static void test_join_takes_no_snapshot(void **state)
{
    bench *b = *state;
    pr_error err = PR_ERROR_INIT;
    pr_message message = message_of(NULL);
    message.id = "0190a5c0-7000-7abc-8def-0123456789ab";
    run_on(b->host, "BEGIN");
    pr_unit *unit = join(b);
    pr_unit *rival = begin(b);
    check_ok(pr_unit_enqueue(rival, &message, NULL, &err), &err, "rival");
    check_ok(pr_unit_commit(rival, NULL, &err), &err, "rival");
    pr_unit_free(rival);
    check_ok(pr_unit_enqueue(unit, &message, NULL, &err), &err, "a snapshot of now");
    run_on(b->host, "COMMIT");
    pr_unit_free(unit);
    assert_int_equal(ask(b, "SELECT count(*) FROM postroom_outbox"), 2);
}

static void test_disk_full(void **state)
{
    bench *b = *state;
    static char body[100000];
    pr_error err = PR_ERROR_INIT;
    pr_outcome outcome = PR_OUTCOME_UNKNOWN;
    pr_message message = message_of(NULL);
    message.body = body;
    message.body_size_bytes = sizeof body;
    pr_unit *unit = begin(b);
    sqlite3 *db = pr_sqlite_unit_connection(unit);
    run_on(db, "INSERT INTO orders VALUES (1, 'x')");
    run_on(db, "PRAGMA max_page_count = 100");
    pr_status status = PR_OK;
    for (int i = 0; i < 20 && status == PR_OK; i++)
        status = pr_unit_enqueue(unit, &message, NULL, &err);
    check_error(status, &err, PR_E_BACKEND, "make room", "full");
    assert_int_equal(err.backend_code, SQLITE_FULL);
    message.body_size_bytes = 1; /* SQLite itself would take it, and COMMIT what stands */
    pr_error_clear(&err);
    check_error(pr_unit_enqueue(unit, &message, NULL, &err), &err, PR_E_STATE, "rolled back",
                "after it");
    pr_error_clear(&err);
    assert_int_not_equal(pr_unit_commit(unit, &outcome, &err), PR_OK);
    assert_int_equal(outcome, PR_OUTCOME_NOT_COMMITTED);
    pr_unit_free(unit);
    assert_int_equal(ask(b, "SELECT count(*) FROM postroom_outbox"), 0);
    assert_int_equal(ask(b, "SELECT count(*) FROM orders"), 0);

    pr_error_clear(&err); /* a disk that has room again is fine again */
    unit = begin(b);
    run_on(pr_sqlite_unit_connection(unit), "PRAGMA max_page_count = 100000");
    check_ok(pr_unit_enqueue(unit, &message, NULL, &err), &err, "room again");
    check_ok(pr_unit_commit(unit, &outcome, &err), &err, "room again");
    pr_unit_free(unit);
}

/* INSERT OR ROLLBACK ends the transaction; what comes next would run outside of any. */
static void test_or_rollback(void **state)
{
    bench *b = *state;
    pr_error err = PR_ERROR_INIT;
    pr_outcome outcome = PR_OUTCOME_UNKNOWN;
    pr_message message = message_of(NULL);
    run_on(b->host, "INSERT INTO orders VALUES (1, 'x'); BEGIN");
    pr_unit *unit = join(b);
    assert_int_equal(run_on(b->host, "INSERT OR ROLLBACK INTO orders VALUES (1, 'y')"),
                     SQLITE_CONSTRAINT);
    check_error(pr_unit_enqueue(unit, &message, NULL, &err), &err, PR_E_STATE, "no transaction",
                "joined");
    pr_unit_free(unit);
    pr_error_clear(&err);
    unit = begin(b);
    run_on(pr_sqlite_unit_connection(unit), "INSERT OR ROLLBACK INTO orders VALUES (1, 'y')");
    check_error(pr_unit_enqueue(unit, &message, NULL, &err), &err, PR_E_STATE, "rolled back by",
                "own");
    pr_error_clear(&err);
    check_error(pr_unit_commit(unit, &outcome, &err), &err, PR_E_STATE, "rolled back by", "commit");
    assert_int_equal(outcome, PR_OUTCOME_NOT_COMMITTED);
    pr_unit_free(unit);
    assert_int_equal(ask(b, "SELECT count(*) FROM postroom_outbox"), 0);
}

static void test_texts_stay_texts(void **state)
{
    bench *b = *state;
    pr_error err = PR_ERROR_INIT;
    static const char *const keys[] = {"1e3", "1000", "0x10", " 1", "007"};
    for (size_t i = 0; i < COUNT_OF(keys); i++) {
        pr_message message = message_of(keys[i]);
        pr_unit *unit = begin(b);
        check_ok(pr_unit_enqueue(unit, &message, NULL, &err), &err, keys[i]);
        check_ok(pr_unit_commit(unit, NULL, &err), &err, keys[i]);
        pr_unit_free(unit);
    }
    pr__claim_options opt = {.reader = 1, .lease_ms = 1000, .batch_max = 10, .bytes_max = 1000};
    pr__batch *batch = NULL;
    check_ok(pr__store_claim(b->store, &opt, &batch, &err), &err, "claim");
    for (uint32_t i = 0; i < batch->item_count; i++)
        assert_string_equal(batch->items[i].message.key, keys[batch->items[i].log_id - 1]);
    pr__batch_free(batch);
}

/* A large body is read after the claim's commit, whether it is claimed fresh or taken over. */
static void test_large_bodies(void **state)
{
    bench *b = *state;
    static char body[300000];
    static const uint32_t sizes[] = {0, 1, 4096, 4097, sizeof body};
    pr_error err = PR_ERROR_INIT;
    for (size_t i = 0; i < sizeof body; i++)
        body[i] = (char)(i * 31 + i / 251);
    pr_unit *unit = begin(b);
    for (size_t i = 0; i < COUNT_OF(sizes); i++) {
        pr_message message = message_of("k");
        message.body = body;
        message.body_size_bytes = sizes[i];
        check_ok(pr_unit_enqueue(unit, &message, NULL, &err), &err, "enqueue");
    }
    check_ok(pr_unit_commit(unit, NULL, &err), &err, "commit");
    pr_unit_free(unit);
    for (int again = 0; again < 2; again++) {
        pr__claim_options opt = {
            .reader = 1, .lease_ms = 1, .batch_max = 10, .bytes_max = 10000000};
        pr__batch *batch = NULL;
        while (!batch) /* until the lease of the first has run out */
            check_ok(pr__store_claim(b->store, &opt, &batch, &err), &err, "claim");
        assert_int_equal(batch->item_count, COUNT_OF(sizes));
        for (uint32_t i = 0; i < batch->item_count; i++) {
            const pr_message *got = &batch->items[i].message;
            assert_null(batch->items[i].unreadable);
            assert_int_equal(got->body_size_bytes, sizes[i]);
            assert_non_null(got->body);
            assert_memory_equal(got->body, body, sizes[i]);
        }
        pr__batch_free(batch);
    }
}

static void test_begin_refused(void **state)
{
    bench *b = *state;
    pr_error err = PR_ERROR_INIT;
    pr_unit *unit = begin(b);
    sqlite3 *db = pr_sqlite_unit_connection(unit);
    pr_unit_free(unit);
    run_on(db, "BEGIN"); /* the host uses our connection */
    check_error(pr_unit_begin(b->store, &unit, &err), &err, PR_E_STATE, "somebody else", "begin");
    run_on(db, "ROLLBACK");
    pr_error_clear(&err);
    run_on(b->host, "BEGIN IMMEDIATE"); /* another writer, for longer than the busy limit */
    check_error(pr_unit_begin(b->store, &unit, &err), &err, PR_E_BUSY, "another writer", "busy");
    assert_int_equal(err.retry, PR_RETRY_SAME);
    run_on(b->host, "ROLLBACK");
    unit = begin(b);
    pr_unit_free(unit);
}

#ifdef PR_FAULT_POINTS
/* The disk fails under COMMIT: it is looked up through another connection. */
static void test_commit_unknown(void **state)
{
    bench *b = *state;
    static const struct {
        const char *label;
        const char *fault;
        pr_status status;
        pr_outcome outcome;
        int rows;
    } cases[] = {
        {"it stands", "sqlite.after_commit:1:fail", PR_OK, PR_OUTCOME_COMMITTED, 1},
        {"it does not", "sqlite.before_commit:1:fail", PR_E_BACKEND, PR_OUTCOME_UNKNOWN, 1},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        pr_error err = PR_ERROR_INIT;
        pr_outcome outcome = 0;
        pr_message message = message_of(NULL);
        pr_unit *unit = begin(b);
        check_ok(pr_unit_enqueue(unit, &message, NULL, &err), &err, cases[i].label);
        pr__fault_reset(cases[i].fault);
        CHECK_CASE(pr_unit_commit(unit, &outcome, &err) == cases[i].status, cases[i].label);
        CHECK_CASE(outcome == cases[i].outcome, cases[i].label);
        if (cases[i].status != PR_OK)
            CHECK_CASE(err.retry == PR_RETRY_UNKNOWN, cases[i].label);
        pr__fault_reset(NULL);
        pr_unit_free(unit);
        CHECK_CASE(ask(b, "SELECT count(*) FROM postroom_outbox") == cases[i].rows, cases[i].label);
    }
}
#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_join_refused, setup, teardown),
        cmocka_unit_test_setup_teardown(test_join_by_another_path, setup, teardown),
        cmocka_unit_test_setup_teardown(test_busy_snapshot, setup, teardown),
        cmocka_unit_test_setup_teardown(test_join_takes_no_snapshot, setup, teardown),
        cmocka_unit_test_setup_teardown(test_disk_full, setup, teardown),
        cmocka_unit_test_setup_teardown(test_or_rollback, setup, teardown),
        cmocka_unit_test_setup_teardown(test_texts_stay_texts, setup, teardown),
        cmocka_unit_test_setup_teardown(test_large_bodies, setup, teardown),
        cmocka_unit_test_setup_teardown(test_begin_refused, setup, teardown),
#ifdef PR_FAULT_POINTS
        cmocka_unit_test_setup_teardown(test_commit_unknown, setup, teardown),
#endif
    };
    return RUN_TESTS(tests);
}
