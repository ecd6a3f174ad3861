/*
 * Enqueue inside the host's transaction against a bare INSERT of the same bytes into a bare table,
 * both on the host's own connection to the same file, synchronous=FULL.
 */
#include <string.h>

#include "bench.h"
#include "database.h"

#include "base/text.h"

/* Seconds for `transactions` transactions of `batch` messages each through the library. */
static double enqueue_ours(pr_store *store, sqlite3 *db, uint64_t transactions, uint64_t batch)
{
    char body[BENCH_BODY_SIZE], key[32];
    pr_error err = PR_ERROR_INIT;
    memset(body, 'x', sizeof body);
    double start = bench_seconds();
    for (uint64_t t = 0; t < transactions; t++) {
        pr_unit *unit = NULL;
        bench_exec(db, "BEGIN IMMEDIATE");
        bench_check(pr_sqlite_unit_join(store, db, &unit, &err), &err, "join");
        for (uint64_t i = 0; i < batch; i++) {
            pr_message message = bench_message(t * batch + i, 1000, body, key);
            bench_check(pr_unit_enqueue(unit, &message, NULL, &err), &err, "enqueue");
        }
        bench_exec(db, "COMMIT");
        bench_check(pr_unit_finished(unit, PR_OUTCOME_COMMITTED, &err), &err, "finish");
        pr_unit_free(unit);
    }
    return bench_seconds() - start;
}

static double enqueue_bare(sqlite3 *db, sqlite3_stmt *insert, uint64_t transactions, uint64_t batch)
{
    char body[BENCH_BODY_SIZE], key[32];
    memset(body, 'x', sizeof body);
    double start = bench_seconds();
    for (uint64_t t = 0; t < transactions; t++) {
        bench_exec(db, "BEGIN IMMEDIATE");
        for (uint64_t i = 0; i < batch; i++) {
            pr_message message = bench_message(t * batch + i, 1000, body, key);
            bench_bare_bind(insert, &message);
            bench_check_sqlite(sqlite3_step(insert), db, "insert");
            sqlite3_reset(insert);
        }
        bench_exec(db, "COMMIT");
    }
    return bench_seconds() - start;
}

static void enqueue_batch(const bench_options *opt, bench_report *report, uint64_t batch,
                          const char *name, double goal)
{
    double ours[BENCH_ROUNDS_MAX], bare[BENCH_ROUNDS_MAX];
    for (int round = 0; round < opt->rounds; round++) {
        bench_folder folder = bench_folder_make();
        char path[300];
        pr__format(path, sizeof path, "%s/enqueue.db", folder.path);
        pr_store *store = bench_store_open(path);
        sqlite3 *db = bench_connection_open(path);
        bench_bare_create(db);
        sqlite3_stmt *insert = bench_bare_insert(db);
        /* A few of each first, and the sides change their order from round to round. */
        (void)enqueue_ours(store, db, 20, batch);
        (void)enqueue_bare(db, insert, 20, batch);
        if (round % 2 == 0)
            ours[round] = enqueue_ours(store, db, opt->transactions, batch);
        bare[round] = enqueue_bare(db, insert, opt->transactions, batch);
        if (round % 2 == 1)
            ours[round] = enqueue_ours(store, db, opt->transactions, batch);
        ours[round] *= 1e6 / (double)(opt->transactions * batch);
        bare[round] *= 1e6 / (double)(opt->transactions * batch);
        sqlite3_finalize(insert);
        sqlite3_close(db);
        pr_store_free(store);
        bench_folder_remove(&folder);
    }
    bench_report_add(report, name, "us/message", "bare INSERT", ours, bare, opt->rounds,
                     BENCH_AT_MOST, goal);
}

void bench_enqueue(const bench_options *opt, bench_report *report)
{
    enqueue_batch(opt, report, 1, "enqueue, 1 a transaction", 1.5);
    enqueue_batch(opt, report, 100, "enqueue, 100 a transaction", 2.0);
}
