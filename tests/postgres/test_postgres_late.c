/*
 * One late transaction with very many rows: no claim takes more than it was told, in rows or in
 * bytes, none reads what it does not take over and over, and each row comes once, in its order.
 *
 * A hundred thousand rows with the other tests; a million with POSTROOM_SOAK=1.
 */
#include "postgres/ground.h"

#define LANES     4
#define BATCH_MAX 500
#define BYTES_MAX 65536
#define PASSED    200   /* committed after the late ones got their ids, and published before */
#define BIG_EVERY 50    /* of the late ones each such has a body that fills a claim */
#define BIG_SIZE  40000 /* two are more than BYTES_MAX */
#define BIG_ROWS  5000  /* they stand among the first rows only */
#define READS_MAX 12    /* rows read from the log for each that is taken, at most */

static postgres_databases databases;

typedef struct drain {
    unsigned char *seen; /* by id */
    int64_t seen_size;
    int64_t last[LANES]; /* the last late id of each lane */
    int64_t rows, claims, fresh;
} drain;

static int64_t late_rows(void)
{
    const char *soak = getenv("POSTROOM_SOAK");
    return soak && soak[0] == '1' ? 1000000 : 100000;
}

static void look(drain *of, const pr__batch *batch, int64_t late_max)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < batch->item_count; i++) {
        const pr__item *item = &batch->items[i];
        assert_true(item->log_id > 0 && item->log_id < of->seen_size);
        if (of->seen[item->log_id]++)
            fail_msg("row %lld came twice", (long long)item->log_id);
        bytes += item->message.body_size_bytes;
        of->fresh += item->log_id > late_max;
        int64_t *last = &of->last[item->log_id % LANES]; /* without a key the lane is the id's */
        if (item->log_id <= late_max && item->log_id <= *last)
            fail_msg("row %lld after row %lld", (long long)item->log_id, (long long)*last);
        if (item->log_id <= late_max)
            *last = item->log_id;
    }
    if (batch->item_count > BATCH_MAX || (batch->item_count > 1 && bytes > BYTES_MAX))
        fail_msg("%u rows of %llu bytes in a claim", batch->item_count, (unsigned long long)bytes);
    of->rows += batch->item_count;
    of->claims++;
}

/* As a relay: settle and claim in one commit, until nothing is left. */
static void drain_all(drain *of, pr_store *store, int64_t late_max)
{
    pr__claim_options opt = {.reader = PR_READER_RELAY,
                             .lease_ms = 120000,
                             .batch_max = BATCH_MAX,
                             .bytes_max = BYTES_MAX,
                             .owner = "late"};
    pr_error err = PR_ERROR_INIT;
    pr__batch *batch = NULL;
    check_ok(pr__store_claim(store, &opt, &batch, &err), &err, "claim");
    while (batch) {
        pr__batch *next = NULL;
        pr__settle_report report = {0};
        look(of, batch, late_max);
        for (uint32_t i = 0; i < batch->item_count; i++)
            batch->items[i].result = PR__RESULT_PUBLISHED;
        pr__batch_close(batch);
        check_ok(pr__store_settle(store, batch, &opt, &report, &next, &err), &err, "settle");
        assert_int_equal(report.fenced_slices, 0);
        pr__batch_free(batch);
        batch = next;
        if (!batch)
            check_ok(pr__store_claim(store, &opt, &batch, &err), &err, "claim");
    }
}

static void write_late(PGconn *late, int64_t rows)
{
    char sql[500];
    db_run(late, "BEGIN");
    snprintf(sql, sizeof sql,
             "INSERT INTO postroom.outbox (type, destination, body) SELECT '" TYPE_PLACED
             "', '" TO_BROKER "', convert_to(repeat('x', CASE WHEN n <= %d AND n %% %d = 0 THEN %d "
             "ELSE 1 END), 'UTF8') FROM generate_series(1, %lld) AS n",
             BIG_ROWS, BIG_EVERY, BIG_SIZE, (long long)rows);
    db_run(late, sql);
}

static int64_t rows_read(PGconn *db)
{
    return db_number(db, "SELECT idx_tup_fetch + seq_tup_read FROM pg_stat_user_tables WHERE "
                         "relname = 'outbox'");
}

static void every_claim_is_bounded(void **state)
{
    (void)state;
    ground on;
    pr_migrate_options migrate = {.size = (uint32_t)sizeof migrate, .lanes = LANES};
    int64_t rows = late_rows();
    drain of = {.seen_size = rows + PASSED + 2};
    of.seen = calloc(1, (size_t)of.seen_size);
    assert_non_null(of.seen);
    ground_make(&databases, &migrate, &on);
    pr_store *store = ground_store(on.uri);
    PGconn *late = db_open(on.uri);
    write_late(late, rows);
    for (int i = 0; i < PASSED; i++)
        ground_post(store, NULL, "x");
    drain_all(&of, store, rows);
    assert_int_equal(of.rows, PASSED); /* they are passed: those of the open one are not seen */
    assert_int_equal(of.fresh, PASSED);
    db_run(late, "COMMIT");
    db_run(late, "ANALYZE postroom.outbox");
    PQfinish(late);
    drain_all(&of, store, rows);
    assert_int_equal(of.rows, rows + PASSED);
    assert_int_equal(db_number(on.db, "SELECT count(*) FROM postroom.outbox"), of.rows);
    for (int64_t id = 1; id < of.seen_size - 1; id++)
        if (of.seen[id] != 1)
            fail_msg("row %lld came %d times", (long long)id, of.seen[id]);
    assert_int_equal(db_number(on.db, "SELECT count(*) FROM postroom.outbox_parked"), 0);
    pr_store_free(store); /* its statistics are sent when its session ends */
    db_wait(on.db,
            "SELECT (count(*) = 1)::int FROM pg_stat_activity WHERE datname = "
            "current_database() AND backend_type = 'client backend'",
            1, "the session ends");
    int64_t read = rows_read(on.db);
    print_message("# %lld rows in %lld claims, %.1f read for each\n", (long long)of.rows,
                  (long long)of.claims, (double)read / (double)of.rows);
    assert_true(read > of.rows && read < READS_MAX * of.rows);
    free(of.seen);
    ground_done(&on);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_claim_is_bounded),
    };
    databases.server = postgres_server_start(NULL);
    int failed = RUN_TESTS(tests);
    postgres_server_free(databases.server);
    return failed;
}
