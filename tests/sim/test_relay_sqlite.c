/*
 * The relay on a SQLite store: claims, takeovers, parked rows, delayed ones, a database that is
 * locked by others.
 */
#include "sim/live.h"

#include "base/fault.h"
#include "base/time.h"
#include "port/store.h"

static pr_relay_snapshot snapshot_of(const live_relay *it)
{
    pr_relay_snapshot snapshot = {.size = sizeof snapshot};
    assert_int_equal(pr_relay_snapshot_get(it->relay, &snapshot, NULL), PR_OK);
    return snapshot;
}

static uint64_t once(live_relay *it)
{
    uint64_t published = 0;
    pr_error err = PR_ERROR_INIT;
    check_ok(pr_relay_run_once(it->relay, &published, &err), &err, "run once");
    return published;
}

static void test_drains(void **state)
{
    live *at = *state;
    live_relay *it = live_relay_new(at, 0, (pr_relay_options){0});
    for (int key = -1; key < 20; key++)
        live_enqueue(at, key, 200, LIVE_TOPIC);
    assert_int_equal(once(it), 4200);
    assert_int_equal(once(it), 0);
    assert_int_equal(live_check(at), 0);
    live_wait_state(at, "published", 4200);
    pr_relay_snapshot snapshot = snapshot_of(it);
    assert_int_equal(snapshot.published, 4200);
    assert_int_equal(snapshot.fenced, 0);
}

/* A slice whose holder is gone comes back when its lease is over, with the same messages. */
static void test_takeover(void **state)
{
    live *at = *state;
    live_relay *it = live_relay_new(at, 0, (pr_relay_options){0});
    live_enqueue(at, 1, 30, LIVE_TOPIC);
    const pr__claim_options opt = {.reader = PR_READER_RELAY,
                                   .lease_ms = 2000,
                                   .batch_max = 100,
                                   .bytes_max = 1 << 20,
                                   .owner = "gone"};
    pr__batch *batch = NULL;
    pr_error err = PR_ERROR_INIT;
    check_ok(pr__store_claim(at->store, &opt, &batch, &err), &err, "claim");
    assert_non_null(batch);
    assert_int_equal(once(it), 0); /* its lease lives */
    live_start(it);
    live_wait_received(at, 30);
    live_wait_state(at, "published", 30);
    pr__settle_report report = {0};
    for (uint32_t i = 0; i < batch->item_count; i++)
        batch->items[i].result = PR__RESULT_PUBLISHED;
    check_ok(pr__store_settle(at->store, batch, NULL, &report, NULL, &err), &err, "late settle");
    assert_int_equal(report.published, 0);
    assert_int_equal(report.fenced_items, 30);
    pr__batch_free(batch);
    live_stop(it);
    assert_int_equal(live_check(at), 0);
}

/* An unknown transport fails that message alone; its key waits, others do not; when it dies, the
   key goes on. */
static void test_fails_and_frees(void **state)
{
    live *at = *state;
    live_relay *it = live_relay_new(at, 0,
                                    (pr_relay_options){.retry_max = 2,
                                                       .backoff_initial_ms = 1000,
                                                       .jitter_percent = PR_JITTER_NONE});
    live_enqueue(at, 1, 3, LIVE_TOPIC);
    at->numbers[1] += 100; /* the one that fails is none that must arrive */
    live_enqueue(at, 1, 1, "nowhere://topic/urn:message:live:thing");
    at->numbers[1] = 3;
    live_enqueue(at, 1, 3, LIVE_TOPIC);
    live_enqueue(at, 2, 5, LIVE_TOPIC);
    assert_int_equal(once(it), 8);
    live_wait_state(at, "failed", 1);
    live_wait_state(at, "held", 3);
    live_start(it);
    live_wait_state(at, "dead", 1);
    live_wait_state(at, "published", 11);
    live_stop(it);
    assert_int_equal(live_check(at), 0);
    assert_int_equal(
        live_number(at, "SELECT attempts FROM postroom_outbox_state WHERE state = 'dead'"), 3);
    assert_int_equal(live_number(at,
                                 "SELECT count(*) FROM postroom_outbox_state WHERE state = 'dead' "
                                 "AND last_error LIKE '%no transport is named ''nowhere''%'"),
                     1);
    pr_relay_snapshot snapshot = snapshot_of(it);
    assert_int_equal(snapshot.failed, 2);
    assert_int_equal(snapshot.dead, 1);
    assert_int_equal(snapshot.held, 3);
}

static void test_delayed(void **state)
{
    live *at = *state;
    live_relay *it = live_relay_new(at, 0, (pr_relay_options){0});
    pr_error err = PR_ERROR_INIT;
    pr_unit *unit = NULL;
    pr_outcome outcome;
    int64_t now_us = 0;
    check_ok(pr__store_now(at->store, &now_us, &err), &err, "now");
    check_ok(pr_unit_begin(at->store, &unit, &err), &err, "begin");
    const pr_message message =
        PR_MESSAGE(.type = "urn:message:live:thing", .content_type = "text/plain", .body = "1 0",
                   .body_size_bytes = 4, .destination = LIVE_TOPIC,
                   .deliver_at_us = now_us + 2000000);
    check_ok(pr_unit_enqueue(unit, &message, NULL, &err), &err, "enqueue");
    check_ok(pr_unit_commit(unit, &outcome, &err), &err, "commit");
    pr_unit_free(unit);
    at->numbers[1] = 1;
    assert_int_equal(once(it), 0);
    live_wait_state(at, "delayed", 1);
    live_start(it);
    live_wait_received(at, 1);
    int64_t arrived_us = 0;
    check_ok(pr__store_now(at->store, &arrived_us, &err), &err, "now");
    assert_true(arrived_us >= now_us + 2000000);
    live_stop(it);
    assert_int_equal(live_check(at), 0);
}

/* Enqueue until the lock is taken before all of it was published: a relay with nothing to do writes
   nothing, and meets no lock. How many were enqueued. */
static uint32_t lock_with_work_left(live *at, sqlite3 *other)
{
    uint32_t count = 0;
    for (int64_t left = 0; left == 0; count += 50) {
        if (count > 0)
            assert_int_equal(sqlite3_exec(other, "COMMIT", NULL, NULL, NULL), SQLITE_OK);
        live_enqueue(at, 1, 50, LIVE_TOPIC);
        assert_int_equal(sqlite3_exec(other, "BEGIN IMMEDIATE", NULL, NULL, NULL), SQLITE_OK);
        left = live_number(at,
                           "SELECT count(*) FROM postroom_outbox_state WHERE state <> 'published'");
    }
    return count;
}

/* Others lock the database for longer than the busy limit: rounds fail, the loop goes on, nothing
   is charged or lost, and health is good again by itself. */
static void test_locked(void **state)
{
    live *at = *state;
    live_relay *it = live_relay_new(at, 0, (pr_relay_options){.round_backoff_max_ms = 200});
    live_start(it);
    live_enqueue(at, 1, 50, LIVE_TOPIC);
    live_wait_received(at, 50);
    live_wait_state(at, "published", 50);
    sqlite3 *other = NULL;
    assert_int_equal(sqlite3_open(at->db.path, &other), SQLITE_OK);
    sqlite3_busy_timeout(other, 5000);
    uint32_t sent = 50 + lock_with_work_left(at, other);
    int64_t until_ms = live_now_ms() + LIVE_WAIT_MS;
    pr_relay_wake(it->relay);
    while (snapshot_of(it).consecutive_failures < 5 && live_now_ms() < until_ms) {
        pr_relay_wake(it->relay);
        live_pause();
    }
    pr_relay_snapshot snapshot = snapshot_of(it);
    if (snapshot.health != PR_HEALTH_UNHEALTHY)
        fail_msg("%u failures: %s", snapshot.consecutive_failures, snapshot.health_reason);
    assert_int_equal(sqlite3_exec(other, "COMMIT", NULL, NULL, NULL), SQLITE_OK);
    sqlite3_close(other);
    live_wait_received(at, sent);
    live_wait_state(at, "published", sent);
    while (snapshot_of(it).health != PR_HEALTH_HEALTHY && live_now_ms() < until_ms)
        live_pause();
    assert_int_equal(snapshot_of(it).health, PR_HEALTH_HEALTHY);
    assert_int_equal(snapshot_of(it).failed + snapshot_of(it).dead, 0);
    live_stop(it);
    check_ok(it->status, &it->err, "run");
    live_check(at);
}

/* Slow outcomes: the lease is renewed, nobody takes over, each arrives once. */
static void test_renews(void **state)
{
    live *at = *state;
    live_relay *one = live_relay_new(at, 0, (pr_relay_options){.lease_ms = 3000});
    live_relay *two = live_relay_new(at, 1, (pr_relay_options){.lease_ms = 3000});
    one->transport.outcome_after_ms = two->transport.outcome_after_ms = 5000;
    live_enqueue(at, -1, 40, LIVE_TOPIC);
    live_start(one);
    live_start(two);
    live_wait_state(at, "published", 40);
    live_stop(one);
    live_stop(two);
    assert_int_equal(live_check(at), 0);
    assert_int_equal(snapshot_of(one).fenced + snapshot_of(two).fenced, 0);
}

/* Changes when another connection commits. */
static int64_t version_of(sqlite3 *db)
{
    sqlite3_stmt *stmt = NULL;
    assert_int_equal(sqlite3_prepare_v2(db, "PRAGMA data_version", -1, &stmt, NULL), SQLITE_OK);
    assert_int_equal(sqlite3_step(stmt), SQLITE_ROW);
    int64_t version = sqlite3_column_int64(stmt, 0);
    sqlite3_finalize(stmt);
    return version;
}

/* A burst leaves a large log of writes behind. Keeping it small ends: an idle relay writes nothing,
   and its own housekeeping is no news to itself. */
static void test_idle_after_burst(void **state)
{
    live *at = *state;
    live_relay *it = live_relay_new(at, 0, (pr_relay_options){0});
    sqlite3 *beside = NULL;
    assert_int_equal(sqlite3_open_v2(at->db.path, &beside, SQLITE_OPEN_READWRITE, NULL), SQLITE_OK);
    assert_int_equal(sqlite3_exec(beside,
                                  "CREATE TABLE burst (body BLOB); INSERT INTO burst VALUES "
                                  "(zeroblob(8 * 1024 * 1024))",
                                  NULL, NULL, NULL),
                     SQLITE_OK);
    live_enqueue(at, 1, 1, LIVE_TOPIC);
    live_start(it);
    live_wait_received(at, 1);
    int64_t until_ms = live_now_ms() + LIVE_WAIT_MS, since_ms = live_now_ms(), seen = -1;
    while (live_now_ms() - since_ms < 2500) {
        int64_t version = version_of(beside);
        if (version != seen)
            since_ms = live_now_ms();
        seen = version;
        if (live_now_ms() > until_ms)
            fail_msg("the relay still writes, although it has nothing to do");
        live_pause();
    }
    sqlite3_close(beside);
    live_stop(it);
}

#ifdef PR_FAULT_POINTS
/* The n-th allocation fails, for every n: nothing is lost, nothing is charged, nothing leaks. */
static void test_no_memory(void **state)
{
    live *at = *state;
    const pr_relay_options opt = {.lease_ms = 300};
    int64_t n = 1;
    for (bool failed = true; failed; n++) {
        live_enqueue(at, (int32_t)(n % 5), 3, LIVE_TOPIC);
        live_relay *it = live_relay_new(at, 0, opt);
        it->relay = pr_relay_free(it->relay);
        pr_relay_options sized = opt;
        sized.size = sizeof sized;
        pr_transport *list[] = {&it->transport.base};
        uint64_t published = 0;
        pr_error err = PR_ERROR_INIT;
        pr__fault_alloc_fail_at(n);
        pr_status status = pr_relay_new(it->store, list, 1, &sized, &it->relay, &err);
        if (status == PR_OK)
            status = pr_relay_run_once(it->relay, &published, &err);
        failed = pr__fault_alloc_count() >= n;
        pr__fault_alloc_fail_at(0);
        if (status != PR_OK && (status != PR_E_NOMEM || !failed) && status != PR_E_BACKEND)
            fail_msg("allocation %lld: %s: %s", (long long)n, pr_status_text(status), err.message);
        it->relay = pr_relay_free(it->relay);
        it->store = pr_store_free(it->store);
        assert_true(n < 5000);
    }
    live_relay *it = live_relay_new(at, 1, (pr_relay_options){0});
    live_start(it); /* it comes to the rest when the leases of those that failed are over */
    live_wait_state(at, "published", 3 * (n - 1));
    live_stop(it);
    assert_int_equal(live_number(at, "SELECT count(*) FROM postroom_outbox_parked"), 0);
    live_check(at);
    printf("# %lld allocations\n", (long long)n - 2);
}
#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_drains, live_setup, live_teardown),
        cmocka_unit_test_setup_teardown(test_takeover, live_setup, live_teardown),
        cmocka_unit_test_setup_teardown(test_fails_and_frees, live_setup, live_teardown),
        cmocka_unit_test_setup_teardown(test_delayed, live_setup, live_teardown),
        cmocka_unit_test_setup_teardown(test_locked, live_setup, live_teardown),
        cmocka_unit_test_setup_teardown(test_renews, live_setup, live_teardown),
        cmocka_unit_test_setup_teardown(test_idle_after_burst, live_setup, live_teardown),
#ifdef PR_FAULT_POINTS
        cmocka_unit_test_setup_teardown(test_no_memory, live_setup, live_teardown),
#endif
    };
    return RUN_TESTS(tests);
}
