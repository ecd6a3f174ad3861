/*
 * Draining the log through the relay into the memory transport, against a bare C loop that reads
 * the same rows and marks them by one UPDATE a batch of 500; with a long history before it; and
 * the relay's memory with a large backlog.
 */
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include <postroom/memory.h>

#include "bench.h"
#include "database.h"

#include "base/text.h"

#define BARE_BATCH 500

extern char **environ;

static uint64_t drain_ours(pr_store *store)
{
    pr_error err = PR_ERROR_INIT;
    pr_memory_broker *broker = NULL;
    pr_transport *transport = NULL;
    pr_relay *relay = NULL;
    uint64_t published = 0;
    pr_memory_options memory = {
        .size = (uint32_t)sizeof memory, .name = "database", .discard = true};
    pr_relay_options opt = PR_RELAY_OPTIONS(.owner = "bench");
    bench_check(pr_memory_broker_new(&broker, &err), &err, "make a broker");
    bench_check(pr_memory_transport_new(broker, &memory, &transport, &err), &err,
                "make a transport");
    bench_check(pr_relay_new(store, &transport, 1, &opt, &relay, &err), &err, "make a relay");
    bench_check(pr_relay_run_once(relay, &published, &err), &err, "run the relay");
    pr_relay_free(relay);
    pr_transport_free(transport);
    pr_memory_broker_free(broker);
    return published;
}

/* Read every column of a batch as a relay must, and touch the body. */
static uint64_t read_batch(sqlite3 *db, sqlite3_stmt *select, int64_t *last, uint64_t *sum)
{
    uint64_t rows = 0;
    int result;
    sqlite3_bind_int64(select, 1, *last);
    while ((result = sqlite3_step(select)) == SQLITE_ROW) {
        *last = sqlite3_column_int64(select, 0);
        for (int c = 1; c <= 7; c++) {
            const unsigned char *bytes = sqlite3_column_blob(select, c);
            int size = sqlite3_column_bytes(select, c);
            *sum += size > 0 ? bytes[0] + (uint64_t)size : 0;
        }
        rows++;
    }
    bench_check_sqlite(result, db, "read");
    sqlite3_reset(select);
    return rows;
}

static uint64_t drain_bare(sqlite3 *db)
{
    sqlite3_stmt *select =
        bench_prepare(db, "SELECT id, message_id, type, type_version, content_type, key, body, "
                          "occurred_at FROM bare WHERE id > ? ORDER BY id LIMIT 500");
    sqlite3_stmt *update =
        bench_prepare(db, "UPDATE bare SET published = 1 WHERE id > ? AND id <= ?");
    int64_t last = 0;
    uint64_t drained = 0, sum = 0;
    for (;;) {
        int64_t first = last;
        uint64_t rows = read_batch(db, select, &last, &sum);
        if (rows == 0)
            break;
        bench_exec(db, "BEGIN IMMEDIATE");
        sqlite3_bind_int64(update, 1, first);
        sqlite3_bind_int64(update, 2, last);
        bench_check_sqlite(sqlite3_step(update), db, "mark");
        sqlite3_reset(update);
        bench_exec(db, "COMMIT");
        drained += rows;
    }
    sqlite3_finalize(select);
    sqlite3_finalize(update);
    return sum ? drained : 0;
}

static double rate_ours(pr_store *store, uint64_t messages)
{
    double start = bench_seconds();
    bench_check_drained(drain_ours(store), messages, "drain");
    return (double)messages / (bench_seconds() - start);
}

static void drain_keys(const bench_options *opt, bench_report *report, uint64_t keys,
                       const char *name)
{
    double ours[BENCH_ROUNDS_MAX], bare[BENCH_ROUNDS_MAX];
    for (int round = 0; round < opt->rounds; round++) {
        bench_folder folder = bench_folder_make();
        char path[300], bare_path[300];
        pr__format(path, sizeof path, "%s/ours.db", folder.path);
        pr__format(bare_path, sizeof bare_path, "%s/bare.db", folder.path);
        pr_store *store = bench_store_open(path);
        sqlite3 *db = bench_connection_open(bare_path);
        bench_exec(db, "PRAGMA wal_autocheckpoint = 1000");
        bench_bare_create(db);
        bench_fill(store, opt->messages, keys);
        bench_bare_fill(db, opt->messages, keys);
        bench_exec(db, "PRAGMA wal_checkpoint(TRUNCATE)");
        sqlite3 *checkpointer = bench_connection_open(path);
        bench_exec(checkpointer, "PRAGMA wal_checkpoint(TRUNCATE)");
        sqlite3_close(checkpointer);
        if (round % 2 == 0)
            ours[round] = rate_ours(store, opt->messages);
        double start = bench_seconds();
        bench_check_drained(drain_bare(db), opt->messages, "bare drain");
        bare[round] = (double)opt->messages / (bench_seconds() - start);
        if (round % 2 == 1)
            ours[round] = rate_ours(store, opt->messages);
        sqlite3_close(db);
        pr_store_free(store);
        bench_folder_remove(&folder);
    }
    bench_report_add(report, name, "messages/s", "bare loop, UPDATE of 500", ours, bare,
                     opt->rounds, BENCH_AT_LEAST, 0.6);
}

void bench_drain(const bench_options *opt, bench_report *report)
{
    drain_keys(opt, report, 0, "drain, no key");
    drain_keys(opt, report, 10000, "drain, 10,000 keys");
}

/* One database keeps the history through all rounds; the other starts empty. */
void bench_history(const bench_options *opt, bench_report *report)
{
    double with[BENCH_ROUNDS_MAX], without[BENCH_ROUNDS_MAX];
    bench_folder folder = bench_folder_make();
    char path[300];
    pr__format(path, sizeof path, "%s/history.db", folder.path);
    pr_store *history = bench_store_open(path);
    bench_fill(history, opt->older, 0);
    bench_check_drained(drain_ours(history), opt->older, "drain the history");
    for (int round = 0; round < opt->rounds; round++) {
        bench_folder fresh = bench_folder_make();
        pr__format(path, sizeof path, "%s/fresh.db", fresh.path);
        pr_store *store = bench_store_open(path);
        bench_fill(store, opt->messages, 0);
        bench_fill(history, opt->messages, 0);
        if (round % 2 == 0)
            with[round] = rate_ours(history, opt->messages);
        without[round] = rate_ours(store, opt->messages);
        if (round % 2 == 1)
            with[round] = rate_ours(history, opt->messages);
        pr_store_free(store);
        bench_folder_remove(&fresh);
    }
    pr_store_free(history);
    bench_folder_remove(&folder);
    bench_report_add(report, "drain, older rows in the log", "messages/s", "the same, empty log",
                     with, without, opt->rounds, BENCH_AT_LEAST, 0.9);
}

int bench_memory_child(const char *path)
{
    pr_store *store = bench_store_open(path);
    uint64_t drained = drain_ours(store);
    pr_store_free(store);
    return drained > 0 ? 0 : 1;
}

static double child_peak_mib(const char *path)
{
    char program[] = "postroom-bench", flag[] = "--memory-child", argument[300];
    pr__format(argument, sizeof argument, "%s", path);
    char *const argv[] = {program, flag, argument, NULL};
    pid_t pid;
    int status;
    struct rusage usage;
    if (posix_spawn(&pid, "/proc/self/exe", NULL, NULL, argv, environ) != 0)
        bench_fail("start a child", "posix_spawn");
    if (wait4(pid, &status, 0, &usage) != pid || status != 0)
        bench_fail("drain in a child", "it failed");
    return (double)usage.ru_maxrss / 1024;
}

/* A relay's peak on a backlog of count bodies of one size; 0 = small ones. */
static void memory_of(bench_report *report, const char *name, uint64_t count, uint64_t body_size)
{
    bench_folder folder = bench_folder_make();
    double peak[1];
    char path[300];
    pr__format(path, sizeof path, "%s/memory.db", folder.path);
    pr_store *store = bench_store_open(path);
    if (body_size)
        bench_fill_large(store, count, body_size);
    else
        bench_fill(store, count, 10000);
    pr_store_free(store);
    peak[0] = child_peak_mib(path);
    bench_report_add(report, name, "MiB", "-", peak, NULL, 1, BENCH_AT_MOST, 32);
    bench_folder_remove(&folder);
}

void bench_memory(const bench_options *opt, bench_report *report)
{
    memory_of(report, "relay's peak memory, small bodies", opt->messages * 2, 0);
    memory_of(report, "relay's peak memory, 1 MiB bodies", 200, PR_BODY_SIZE_DEFAULT);
}
