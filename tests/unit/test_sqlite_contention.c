/*
 * Several processes on one SQLite file: a steady writer starves nobody, locks stay, the WAL is
 * checkpointed by one at a time.
 */
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "support/enqueue.h"
#include "support/sqlite_world.h"

#include "port/store.h"

/* A host that inserts one row a transaction without a pause. */
static void write_for_ever(const char *path, bool prepared)
{
    sqlite3 *db = NULL;
    if (sqlite3_open(path, &db) != SQLITE_OK)
        _exit(1);
    if (prepared && pr_sqlite_prepare(db, 5000, NULL) != PR_OK)
        _exit(1);
    if (!prepared) {
        sqlite3_exec(db, "PRAGMA synchronous = FULL; PRAGMA wal_autocheckpoint = 0", NULL, NULL,
                     NULL);
        sqlite3_busy_timeout(db, 5000);
    }
    for (;;)
        if (sqlite3_exec(db,
                         "BEGIN IMMEDIATE; INSERT INTO postroom_enqueue (type, body, destination) "
                         "VALUES ('urn:message:shop:a', 'x', 'b://in/x'); COMMIT",
                         NULL, NULL, NULL) != SQLITE_OK)
            _exit(2);
}

static void claim_beside(pr_store *store, int claims)
{
    pr_error err = PR_ERROR_INIT;
    pr__claim_options opt = {.reader = 1, .lease_ms = 60000, .batch_max = 500, .bytes_max = 100000};
    for (int i = 0; i < claims;) {
        pr__batch *batch = NULL;
        pr__settle_report report;
        check_ok(pr__store_claim(store, &opt, &batch, &err), &err, "claim beside the writer");
        if (!batch)
            continue;
        for (uint32_t n = 0; n < batch->item_count; n++)
            batch->items[n].result = PR__RESULT_PUBLISHED;
        check_ok(pr__store_settle(store, batch, NULL, &report, NULL, &err), &err, "settle");
        assert_true(report.published > 0);
        pr__batch_free(batch);
        i++;
    }
}

/* With the waits of SQLite's own busy handler a claim comes through about once a second. A host
   that prepared its connection lets us through; another leaves gaps that we find. */
static void test_steady_writer(void **state)
{
    (void)state;
    for (int prepared = 0; prepared < 2; prepared++) {
        sqlite_world at;
        pr_error err = PR_ERROR_INIT;
        pr_store *store = NULL;
        check_ok(sqlite_world_open(&at, &err), &err, "world");
        pid_t pid = fork();
        if (pid == 0)
            write_for_ever(at.path, prepared != 0);
        check_ok(sqlite_world_store(&at, prepared ? 1000 : 5000, 0, &store, &err), &err, "store");
        claim_beside(store, prepared ? 30 : 3);
        assert_int_equal(waitpid(pid, NULL, WNOHANG), 0); /* nor did it end the writer */
        assert_int_equal(kill(pid, SIGKILL), 0);
        assert_int_equal(waitpid(pid, NULL, 0), pid);
        sqlite_world_end(&at, store);
    }
}

/* A wait for others is bounded, also on the host's prepared connection. */
static void test_wait_is_bounded(void **state)
{
    (void)state;
    sqlite_world at;
    pr_error err = PR_ERROR_INIT;
    pr_unit *unit = NULL;
    pr_store *store = sqlite_world_begin(&at, 100);
    sqlite3 *holder = sqlite_world_connect(&at);
    sqlite3 *host = sqlite_world_connect(&at);
    check_ok(pr_sqlite_prepare(host, 100, &err), &err, "prepare");
    sqlite_run(holder, "BEGIN IMMEDIATE");
    check_error(pr_unit_begin(store, &unit, &err), &err, PR_E_BUSY, "another writer", "unit");
    assert_int_equal(sqlite3_exec(host, "BEGIN IMMEDIATE", NULL, NULL, NULL), SQLITE_BUSY);
    /* an idle poll needs no lock, so that it is not in anybody's way */
    pr__claim_options opt = {.reader = 1, .lease_ms = 1000, .batch_max = 5, .bytes_max = 1000};
    pr__batch *batch = NULL;
    pr_error_clear(&err);
    check_ok(pr__store_claim(store, &opt, &batch, &err), &err, "idle claim");
    check_ok(pr__store_claim_parked(store, &opt, &batch, &err), &err, "idle claim of parked");
    sqlite_run(holder, "ROLLBACK");
    sqlite3_close(holder);
    sqlite3_close(host);
    sqlite_world_end(&at, store);
}

/* Opening and closing other handles on the file, in vain or not, must not drop the locks that a
   unit of this process holds. */
static void test_locks_stay(void **state)
{
    (void)state;
    sqlite_world at;
    pr_error err = PR_ERROR_INIT;
    pr_store *other = NULL;
    pr_unit *unit = NULL;
    pr_unit *joined = NULL;
    pr_store *store = sqlite_world_begin(&at, 100);
    check_ok(pr_unit_begin(store, &unit, &err), &err, "begin");
    check_ok(sqlite_world_store(&at, 100, 0, &other, &err), &err, "another handle");
    assert_int_equal(pr_sqlite_unit_join(other, pr_sqlite_unit_connection(unit), &joined, &err),
                     PR_OK); /* looks whether it is the same file */
    pr_unit_free(joined);
    check_ok(pr__store_maintain(other, &err), &err, "maintain");
    pr_store_free(other);
    pid_t pid = fork();
    if (pid == 0) {
        sqlite3 *db = NULL;
        if (sqlite3_open(at.path, &db) != SQLITE_OK)
            _exit(1);
        _exit(sqlite3_exec(db, "BEGIN IMMEDIATE", NULL, NULL, NULL) == SQLITE_BUSY ? 0 : 2);
    }
    int how = 0;
    assert_int_equal(waitpid(pid, &how, 0), pid);
    assert_true(WIFEXITED(how));
    assert_int_equal(WEXITSTATUS(how), 0);
    check_ok(pr_unit_commit(unit, NULL, &err), &err, "commit");
    pr_unit_free(unit);
    sqlite_world_end(&at, store);
}

static int64_t wal_size(const sqlite_world *at)
{
    char path[340];
    struct stat info;
    snprintf(path, sizeof path, "%s-wal", at->path);
    return stat(path, &info) == 0 ? (int64_t)info.st_size : -1;
}

static void fill(pr_store *store, int count)
{
    static char body[100000];
    pr_message message = PR_MESSAGE(.type = "urn:message:shop:a", .destination = "b://in/x",
                                    .body = body, .body_size_bytes = sizeof body);
    for (int i = 0; i < count; i++)
        enqueue_and_commit(store, &message);
}

static void test_checkpoint(void **state)
{
    (void)state;
    sqlite_world at;
    pr_error err = PR_ERROR_INIT;
    pr_store *store = sqlite_world_begin(&at, 0);
    fill(store, 50);
    int64_t size = wal_size(&at);
    assert_true(size > 4 * 1024 * 1024); /* nobody checkpoints by the way */

    sqlite3 *db = sqlite_world_connect(&at); /* another checkpointer is at work */
    sqlite_run(db, "PRAGMA wal_autocheckpoint = 0; "
                   "INSERT INTO postroom_setting VALUES ('checkpoint_until', "
                   "(CAST(strftime('%s', 'now') AS INTEGER) + 60) * 1000000)");
    check_ok(pr__store_maintain(store, &err), &err, "not ours");
    size = wal_size(&at);
    fill(store, 10);
    assert_true(wal_size(&at) > size); /* it still grows: nothing was checkpointed */

    sqlite_run(db, "UPDATE postroom_setting SET value = '1' WHERE name = "
                   "'checkpoint_until'"); /* that one died */
    sqlite3_close(db);
    check_ok(pr__store_maintain(store, &err), &err, "ours");
    assert_int_equal(sqlite_world_number(&at,
                                         "SELECT count(*) FROM postroom_setting WHERE name = "
                                         "'checkpoint_until'",
                                         NULL),
                     0);
    for (int i = 0; i < 2; i++) { /* it begins anew from the front, and gives its room back */
        assert_true(wal_size(&at) <= 1024 * 1024);
        fill(store, 50);
        assert_true(wal_size(&at) > 4 * 1024 * 1024);
        check_ok(pr__store_maintain(store, &err), &err, "again");
    }
    sqlite_world_end(&at, store);
}

/* A redrive by filter looks at all dead rows without the write lock, and asks for it only when
   there is something to change. */
static void test_redrive_looks_first(void **state)
{
    (void)state;
    sqlite_world at;
    pr_error err = PR_ERROR_INIT;
    uint64_t count = 7;
    pr_redrive_options opt = {.size = (uint32_t)sizeof opt,
                              .limit = 10,
                              .box = PR_BOX_OUTBOX,
                              .type = "urn:message:shop:b",
                              .who = "ada",
                              .reason = "mended"};
    pr_store *store = sqlite_world_begin(&at, 50);
    sqlite3 *writer = sqlite_world_connect(&at);
    sqlite_run(writer,
               "INSERT INTO postroom_outbox_parked (reader, log_id, lane, message_id, type, "
               "type_version, content_type, tenant, body, occurred_at, state, "
               "next_attempt_at, parked_at) VALUES (1, 1, 0, "
               "'01a22d1f-1ccc-7ba9-89b4-d7b94c7fb226', 'urn:message:shop:a', 1, 'a/b', '', "
               "x'', strftime('%s', 'now') * 1000000, 'dead', 0, 0); BEGIN IMMEDIATE");
    check_ok(store->ops->redrive(store, &opt, NULL, NULL, &count, &err), &err, "nothing matches");
    assert_int_equal(count, 0);
    opt.type = NULL;
    check_error(store->ops->redrive(store, &opt, NULL, NULL, &count, &err), &err, PR_E_BUSY, "",
                "one matches");
    sqlite_run(writer, "COMMIT");
    pr_error_clear(&err);
    check_ok(store->ops->redrive(store, &opt, NULL, NULL, &count, &err), &err, "it is free");
    assert_int_equal(count, 1);
    sqlite3_close(writer);
    sqlite_world_end(&at, store);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_steady_writer),       cmocka_unit_test(test_wait_is_bounded),
        cmocka_unit_test(test_locks_stay),          cmocka_unit_test(test_checkpoint),
        cmocka_unit_test(test_redrive_looks_first),
    };
    return RUN_TESTS(tests);
}
