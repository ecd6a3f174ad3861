/*
 * A disk that fails and a file that is damaged: the handle is not used again, a commit of unknown
 * outcome is looked up by token, and one bad row costs one row.
 */
#include "support/enqueue.h"
#include "support/sqlite_world.h"

#include "base/fault.h"
#include "port/store.h"

typedef struct bench {
    sqlite_world at;
    pr_store *store;
} bench;

static int setup(void **state)
{
    bench *b = calloc(1, sizeof *b);
    pr_error err = PR_ERROR_INIT;
    assert_non_null(b);
    check_ok(sqlite_world_open(&b->at, &err), &err, "world");
    check_ok(sqlite_world_store(&b->at, 300, 2000, &b->store, &err), &err, "store");
    *state = b;
    return 0;
}

static int teardown(void **state)
{
    bench *b = *state;
    pr_store_free(b->store);
    sqlite_world_close(&b->at);
    free(b);
    return 0;
}

static int64_t number(bench *b, const char *sql)
{
    return sqlite_world_number(&b->at, sql, NULL);
}

static void enqueue(bench *b, const char *key, int64_t deliver_at_us)
{
    pr_message message = PR_MESSAGE(.type = "urn:message:shop:a", .destination = "b://in/x",
                                    .key = key, .deliver_at_us = deliver_at_us);
    enqueue_and_commit(b->store, &message);
}

static const pr__claim_options CLAIM = {
    .reader = 1, .lease_ms = 60000, .batch_max = 10, .bytes_max = 100000};

static pr__batch *claim(bench *b)
{
    pr_error err = PR_ERROR_INIT;
    pr__batch *batch = NULL;
    check_ok(pr__store_claim(b->store, &CLAIM, &batch, &err), &err, "claim");
    assert_non_null(batch);
    return batch;
}

#ifdef PR_FAULT_POINTS

#define STANDS    "sqlite.after_commit:1:fail"
#define NOT_THERE "sqlite.before_commit:1:fail"

static void test_claim_unknown(void **state)
{
    bench *b = *state;
    pr_error err = PR_ERROR_INIT;
    pr__batch *batch = NULL;
    enqueue(b, "k", 0);
    pr__fault_reset(NOT_THERE);
    check_error(pr__store_claim(b->store, &CLAIM, &batch, &err), &err, PR_E_BACKEND, "commit",
                "not there");
    assert_int_equal(err.retry, PR_RETRY_UNKNOWN);
    assert_null(batch);
    pr__fault_reset(STANDS);
    batch = claim(b); /* found by its token: the claim goes on */
    assert_int_equal(batch->item_count, 1);
    pr__fault_reset(NULL);
    assert_int_equal(number(b, "SELECT count(*) FROM postroom_outbox_claim WHERE kind = 'claim'"),
                     1);
    pr__batch_free(batch);
}

static void test_settle_unknown(void **state)
{
    bench *b = *state;
    pr_error err = PR_ERROR_INIT;
    pr__settle_report report;
    pr__batch *next = NULL;
    enqueue(b, "k", 0);
    enqueue(b, "l", 0);
    pr__batch *batch = claim(b);
    assert_int_equal(batch->item_count, 2);
    batch->items[0].result = PR__RESULT_PUBLISHED;
    batch->items[1].result = PR__RESULT_FAILED;
    pr__batch_close(batch);
    pr__fault_reset(NOT_THERE);
    check_error(pr__store_settle(b->store, batch, &CLAIM, &report, &next, &err), &err, PR_E_BACKEND,
                "commit", "not there");
    assert_int_equal(err.retry, PR_RETRY_UNKNOWN);
    pr_error_clear(&err);
    enqueue(b, "m", 0);
    pr__fault_reset(STANDS);
    check_ok(pr__store_settle(b->store, batch, &CLAIM, &report, &next, &err), &err, "it stands");
    pr__fault_reset(NULL);
    assert_int_equal(report.published, 1);
    assert_int_equal(report.failed, 1);
    assert_int_equal(report.fenced_slices, 0);
    assert_non_null(next); /* the claim that this commit made is ours */
    assert_int_equal(next->item_count, 1);
    assert_int_equal(number(b, "SELECT count(*) FROM postroom_outbox_parked"), 1);
    assert_int_equal(number(b, "SELECT attempts FROM postroom_outbox_parked"), 1);
    pr__batch_free(batch);
    pr__batch_free(next);
}

static void test_parked_unknown(void **state)
{
    bench *b = *state;
    pr_error err = PR_ERROR_INIT;
    pr__settle_report report;
    enqueue(b, NULL, 0);
    pr__batch *batch = claim(b);
    batch->items[0].result = PR__RESULT_FAILED;
    check_ok(pr__store_settle(b->store, batch, NULL, &report, NULL, &err), &err, "park");
    pr__batch_free(batch);
    batch = NULL;
    check_ok(pr__store_claim_parked(b->store, &CLAIM, &batch, &err), &err, "claim");
    assert_non_null(batch);
    batch->items[0].result = PR__RESULT_PUBLISHED;
    pr__fault_reset(NOT_THERE);
    check_error(pr__store_settle(b->store, batch, NULL, &report, NULL, &err), &err, PR_E_BACKEND,
                "commit", "not there");
    assert_int_equal(err.retry, PR_RETRY_UNKNOWN);
    pr_error_clear(&err);
    pr__fault_reset(STANDS);
    check_ok(pr__store_settle(b->store, batch, NULL, &report, NULL, &err), &err, "it stands");
    pr__fault_reset(NULL);
    assert_int_equal(report.published, 1);
    assert_int_equal(number(b, "SELECT count(*) FROM postroom_outbox_parked"), 0);
    pr__batch_free(batch);
}

/* Whatever cannot be looked up leaves a handle that says so, and another one works. */
static void test_poisoned(void **state)
{
    bench *b = *state;
    pr_error err = PR_ERROR_INIT;
    uint32_t count = 0;
    int64_t next = 0;
    int64_t now = 0;
    check_ok(pr__store_now(b->store, &now, &err), &err, "now");
    enqueue(b, NULL, now + 20000);
    for (count = 0; next >= 0 && count == 0;) {
        pr__fault_reset(NOT_THERE);
        pr_error_clear(&err);
        if (pr__store_promote(b->store, 10, &count, &next, &err) != PR_OK)
            break;
    }
    pr__fault_reset(NULL);
    assert_int_equal(err.status, PR_E_BACKEND);
    assert_int_equal(err.retry, PR_RETRY_UNKNOWN);
    pr_unit *unit = NULL;
    pr_error_clear(&err);
    check_error(pr_unit_begin(b->store, &unit, &err), &err, PR_E_BACKEND, "not used again",
                "poisoned");
    assert_int_equal(err.backend_code, SQLITE_IOERR_FSYNC);
    bool changed = false;
    pr_error_clear(&err);
    check_error(pr__store_changed(b->store, &changed, &err), &err, PR_E_BACKEND, "not used again",
                "any call");
    pr_store_free(b->store);
    b->store = NULL;
    pr_error_clear(&err);
    check_ok(sqlite_world_store(&b->at, 300, 2000, &b->store, &err), &err, "another handle");
    check_ok(pr__store_promote(b->store, 10, &count, &next, &err), &err, "promote");
    assert_int_equal(count, 1);
    assert_int_equal(number(b, "SELECT count(*) FROM postroom_outbox"), 1);
}

#endif

static void test_damaged_file(void **state)
{
    bench *b = *state;
    pr_error err = PR_ERROR_INIT;
    char garbage[4096];
    for (int i = 0; i < 50; i++)
        enqueue(b, NULL, 0);
    pr_store_free(b->store); /* the last connection: everything is in the file now */
    b->store = NULL;
    int64_t page = number(b, "SELECT rootpage FROM sqlite_schema WHERE name = "
                             "'postroom_outbox_by_lane'");
    FILE *file = fopen(b->at.path, "r+b");
    memset(garbage, 0x5a, sizeof garbage);
    assert_non_null(file);
    assert_int_equal(fseek(file, (page - 1) * 4096L, SEEK_SET), 0);
    assert_int_equal(fwrite(garbage, sizeof garbage, 1, file), 1);
    assert_int_equal(fclose(file), 0);
    check_ok(sqlite_world_store(&b->at, 300, 2000, &b->store, &err), &err, "open");
    pr__batch *batch = NULL;
    check_error(pr__store_claim(b->store, &CLAIM, &batch, &err), &err, PR_E_BACKEND, "damaged",
                "claim");
    assert_int_equal(err.retry, PR_RETRY_NEVER);
    assert_int_equal(err.backend_code & 0xff, SQLITE_CORRUPT);
    pr_error_clear(&err);
    check_error(pr__store_claim(b->store, &CLAIM, &batch, &err), &err, PR_E_BACKEND,
                "not used again", "again");
}

/* Rows that other hands wrote and that are no messages: each is shown with what is wrong. */
static void test_unreadable_rows(void **state)
{
    bench *b = *state;
    static const struct {
        const char *sql;
        const char *text;
    } cases[] = {
        {"INSERT INTO postroom_outbox (message_id, type, body, key) VALUES "
         "('0190a5c0-7000-7abc-8def-000000000001', 'urn:message:a:b', x'01', CAST(x'ff41' AS "
         "TEXT))",
         "key is not valid UTF-8"},
        {"INSERT INTO postroom_outbox (message_id, type, body, source) VALUES "
         "('0190a5c0-7000-7abc-8def-000000000002', 'urn:message:a:b', x'01', CAST(x'410042' AS "
         "TEXT))",
         "source holds a NUL"},
        {"INSERT INTO postroom_outbox (message_id, type, body) VALUES "
         "('0190a5c0-7000-7abc-8def-000000000003', 'urn:message:a:b', zeroblob(2001))",
         "the body has 2001 bytes, the store takes 2000"},
        {"INSERT INTO postroom_outbox (message_id, type, body) VALUES "
         "('0190a5c0-7000-7abc-8def-000000000004', 'urn:message:a:b', zeroblob(2000))",
         NULL},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++)
        sqlite_world_run(&b->at, cases[i].sql);
    pr__batch *batch = claim(b);
    assert_int_equal(batch->item_count, COUNT_OF(cases));
    for (uint32_t i = 0; i < batch->item_count; i++) {
        pr__item *item = &batch->items[i];
        const char *wanted = cases[item->log_id - 1].text;
        if (wanted) {
            assert_non_null(item->unreadable);
            if (!strstr(item->unreadable, wanted))
                fail_msg("wanted '%s' in: %s", wanted, item->unreadable);
            item->result = PR__RESULT_DEAD;
        } else {
            assert_null(item->unreadable);
            item->result = PR__RESULT_PUBLISHED;
        }
    }
    pr_error err = PR_ERROR_INIT;
    pr__settle_report report;
    pr__batch_close(batch);
    check_ok(pr__store_settle(b->store, batch, NULL, &report, NULL, &err), &err, "settle");
    assert_int_equal(report.dead, 3);
    assert_int_equal(number(b, "SELECT count(*) FROM postroom_outbox_parked AS p JOIN "
                               "postroom_outbox AS o ON o.id = p.log_id WHERE o.body = p.body AND "
                               "coalesce(o.key, '') = coalesce(p.key, '')"),
                     3); /* the copies are whole */
    pr__batch_free(batch);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#ifdef PR_FAULT_POINTS
        cmocka_unit_test_setup_teardown(test_claim_unknown, setup, teardown),
        cmocka_unit_test_setup_teardown(test_settle_unknown, setup, teardown),
        cmocka_unit_test_setup_teardown(test_parked_unknown, setup, teardown),
        cmocka_unit_test_setup_teardown(test_poisoned, setup, teardown),
#endif
        cmocka_unit_test_setup_teardown(test_damaged_file, setup, teardown),
        cmocka_unit_test_setup_teardown(test_unreadable_rows, setup, teardown),
    };
    return RUN_TESTS(tests);
}
