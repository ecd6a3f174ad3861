/*
 * From the return of a commit to the relay's claim, with a relay that has been idle for more than a
 * second: by polling alone, and woken by the doorbell of the process.
 *
 * The claim is seen in the relay's own counters, looked at every 50 us. Pauses between samples are
 * of different lengths, so that they fall anywhere between two polls.
 */
#include <pthread.h>
#include <string.h>
#include <time.h>

#include "bench.h"
#include "database.h"
#include "postgres.h"
#include "postgres_relay.h"

#include "base/memory.h"

#define LOOK_NS   50000
#define IDLE_MS   1200 /* a relay is at its busy pace for 1 s after a change */
#define SPREAD_MS 150
#define STRIDE_MS 37
#define GIVE_UP_S 10.0

static void sleep_ns(int64_t ns)
{
    struct timespec span = {.tv_sec = ns / 1000000000, .tv_nsec = ns % 1000000000};
    (void)nanosleep(&span, NULL);
}

static void *run_relay(void *argument)
{
    bench_relay *relay = argument;
    pr_error err = PR_ERROR_INIT;
    bench_check(pr_relay_run(relay->relay, &err), &err, "run the relay");
    return NULL;
}

static uint64_t claimed(const bench_relay *relay)
{
    pr_error err = PR_ERROR_INIT;
    pr_relay_snapshot snapshot = {.size = (uint32_t)sizeof snapshot};
    bench_check(pr_relay_snapshot_get(relay->relay, &snapshot, &err), &err, "look at the relay");
    return snapshot.claimed;
}

static void commit_one(pr_store *store)
{
    char body[BENCH_PG_BODY_SIZE];
    pr_error err = PR_ERROR_INIT;
    pr_unit *unit = NULL;
    memset(body, 'x', sizeof body);
    pr_message message =
        (pr_message)PR_MESSAGE(.type = BENCH_PG_TYPE, .body = body, .body_size_bytes = sizeof body);
    bench_check(pr_unit_begin(store, &unit, &err), &err, "begin");
    bench_check(pr_unit_enqueue(unit, &message, NULL, &err), &err, "enqueue");
    bench_check(pr_unit_commit(unit, NULL, &err), &err, "commit");
    pr_unit_free(unit);
}

static double sample_ms(bench_relay *relay, pr_store *store)
{
    uint64_t before = claimed(relay);
    commit_one(store);
    double start = bench_seconds();
    while (claimed(relay) == before) {
        if (bench_seconds() - start > GIVE_UP_S)
            bench_fail("latency", "a message was not claimed");
        sleep_ns(LOOK_NS);
    }
    return (bench_seconds() - start) * 1000;
}

static void ring(void *user)
{
    bench_relay *relay = user;
    pr_relay_wake(relay->relay);
}

static void take_samples(bench_relay *relay, pr_store *store, double *samples, int count)
{
    for (int i = 0; i < count; i++) {
        sleep_ns((IDLE_MS + (int64_t)i * STRIDE_MS % SPREAD_MS) * 1000000);
        samples[i] = sample_ms(relay, store);
    }
    bench_sort(samples, (size_t)count);
}

void bench_postgres_latency(const bench_options *opt, bench_report *report)
{
    pr_error err = PR_ERROR_INIT;
    int count = opt->samples;
    bench_database database = bench_database_make(opt->server, "latency");
    double *samples = pr__alloc((size_t)count * sizeof *samples);
    if (!samples)
        bench_fail("latency", "out of memory");
    bench_relay relay;
    pthread_t thread;
    bench_relay_open(&relay, &database, 500);
    pr_store *store = bench_pg_store(&database);
    if (pthread_create(&thread, NULL, run_relay, &relay) != 0)
        bench_fail("latency", "no thread");
    commit_one(store);
    take_samples(&relay, store, samples, count);
    double half = bench_percentile(samples, (size_t)count, 50),
           most = bench_percentile(samples, (size_t)count, 99);
    bench_report_add(report, "commit to claim, idle relay, p50", "ms", "-", &half, NULL, 1,
                     BENCH_AT_MOST, 40);
    bench_report_add(report, "commit to claim, idle relay, p99", "ms", "-", &most, NULL, 1,
                     BENCH_AT_MOST, 100);
    bench_check(pr_store_set_doorbell(store, ring, &relay, &err), &err, "set the doorbell");
    take_samples(&relay, store, samples, count);
    half = bench_percentile(samples, (size_t)count, 50);
    most = bench_percentile(samples, (size_t)count, 99);
    bench_report_add(report, "commit to claim, doorbell, p50", "ms", "-", &half, NULL, 1,
                     BENCH_NO_GOAL, 0);
    bench_report_add(report, "commit to claim, doorbell, p99", "ms", "-", &most, NULL, 1,
                     BENCH_AT_MOST, 5);
    pr_relay_stop(relay.relay);
    pthread_join(thread, NULL);
    pr_store_free(store);
    bench_relay_close(&relay);
    pr__free(samples);
    bench_database_drop(&database);
}
