/*
 * An empty handler with the transactional inbox, on each store and transport, against a bare loop
 * that does one INSERT and one COMMIT a message on the same kind of database; what middleware
 * costs; and batches of messages in one transaction against one message each.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <postroom/database.h>
#include <postroom/memory.h>

#include "bench.h"
#include "database.h"
#include "postgres.h"

#include "base/text.h"
#include "base/time.h"
#include "base/uuid.h"

#define HANDLED_TYPE "urn:message:bench:handled"
#define IDLE_US      200
#define EXTRA        4
#define BATCH        50
#define FEED         200 /* submitted at once */

static pr_handled nothing(void *user, pr_scope *scope)
{
    (void)user;
    (void)scope;
    return PR_HANDLED_OK;
}

static pr_handled pass(void *user, pr_scope *scope, pr_next *next)
{
    (void)user;
    return pr_next_invoke(next, scope);
}

/* Where messages come from: a broker in memory, or the log of the endpoint's own store. */
typedef struct source {
    pr_memory_broker *broker;
    pr_store *store; /* NULL = memory */
} source;

static pr_transport *open_transport(const source *from)
{
    pr_error err = PR_ERROR_INIT;
    pr_transport *transport = NULL;
    const pr_database_options database = {.size = (uint32_t)sizeof database, .window = FEED};
    const pr_memory_options memory = {.size = (uint32_t)sizeof memory, .window = FEED};
    if (from->store)
        bench_check(pr_database_transport_new(from->store, &database, &transport, &err), &err,
                    "make a transport");
    else
        bench_check(pr_memory_transport_new(from->broker, &memory, &transport, &err), &err,
                    "make a transport");
    bench_check(pr_transport_open(transport, 1000, &err), &err, "open a transport");
    return transport;
}

static void confirm(pr_transport *out, size_t count)
{
    pr_error err = PR_ERROR_INIT;
    pr_submitted outcomes[FEED];
    for (size_t done = 0, taken = 0; done < count; done += taken) {
        bench_check(pr_transport_poll(out, 1000, outcomes, FEED, &taken, &err), &err, "poll");
        for (size_t i = 0; i < taken; i++) {
            if (outcomes[i].outcome != PR_SUBMIT_CONFIRMED)
                bench_fail("feed", outcomes[i].reason);
        }
    }
}

static void feed(const source *from, uint64_t count)
{
    static const char body[BENCH_BODY_SIZE];
    pr_error err = PR_ERROR_INIT;
    pr_transport *out = open_transport(from);
    char destination[128];
    pr__format(destination, sizeof destination, "%s://topic/" HANDLED_TYPE, out->name);
    for (uint64_t done = 0; done < count;) {
        char ids[FEED][PR_UUID_TEXT_SIZE];
        pr_message messages[FEED];
        pr_submission submissions[FEED];
        size_t part = count - done < FEED ? (size_t)(count - done) : FEED, taken = 0;
        for (size_t i = 0; i < part; i++) {
            uint8_t random[10] = {0};
            uint64_t number = done + i;
            memcpy(random, &number, sizeof number);
            pr__uuid7(pr__wall_us(), random, ids[i]);
            messages[i] =
                (pr_message)PR_MESSAGE(.id = ids[i], .type = HANDLED_TYPE, .type_version = 1,
                                       .body = body, .content_type = "application/octet-stream",
                                       .destination = destination, .body_size_bytes = sizeof body,
                                       .occurred_at_us = 1767225600000000);
            submissions[i] = (pr_submission){.ticket = number, .message = &messages[i]};
        }
        bench_check(pr_transport_submit(out, submissions, part, &taken, &err), &err, "submit");
        confirm(out, taken);
        done += taken;
    }
    pr_transport_free(out);
}

typedef struct run_of {
    pr_endpoint *endpoint;
    uint64_t count;
} run_of;

static void *stop_when_done(void *user)
{
    const run_of *run = user;
    pr_endpoint_snapshot seen = {.size = (uint32_t)sizeof seen};
    pr_error err = PR_ERROR_INIT;
    while (seen.handled < run->count) {
        pr__sleep_us(IDLE_US);
        bench_check(pr_endpoint_snapshot_get(run->endpoint, &seen, &err), &err, "snapshot");
    }
    pr_endpoint_stop(run->endpoint);
    return NULL;
}

typedef struct kind {
    const char *name;
    uint32_t workers;
    uint32_t batch;
    size_t extra;
    bool database; /* the database transport instead of memory */
} kind;

/* Seconds that so many messages took on this store. */
static double handle_on(pr_store *store, uint64_t count, const kind *how)
{
    pr_error err = PR_ERROR_INIT;
    source from = {.store = how->database ? store : NULL};
    pr_middleware chain[2 + EXTRA] = {pr_middleware_unit(), pr_middleware_inbox()};
    for (size_t i = 0; i < how->extra; i++)
        chain[2 + i] = (pr_middleware)PR_MIDDLEWARE(.name = "pass", .invoke = pass);
    const char *const types[] = {HANDLED_TYPE};
    pr_endpoint_options opt =
        PR_ENDPOINT_OPTIONS(.id = "bench", .types = types, .type_count = 1, .handler = nothing,
                            .prefetch = 256, .concurrency = how->workers, .middleware = chain,
                            .middleware_count = 2 + how->extra, .batch_max = how->batch);
    run_of run = {.count = count};
    pthread_t watcher;
    int64_t wait_ms = 0;
    bench_check(pr_memory_broker_new(&from.broker, &err), &err, "make a broker");
    pr_transport *in = open_transport(&from);
    bench_check(pr_endpoint_new(store, in, &opt, &run.endpoint, &err), &err, "make an endpoint");
    bench_check(pr_endpoint_step(run.endpoint, &wait_ms, &err), &err, "subscribe");
    feed(&from, count);
    double began = bench_seconds();
    if (pthread_create(&watcher, NULL, stop_when_done, &run) != 0)
        bench_fail("watch", "no thread");
    bench_check(pr_endpoint_run(run.endpoint, &err), &err, "run");
    double took = bench_seconds() - began;
    pthread_join(watcher, NULL);
    pr_endpoint_free(run.endpoint);
    pr_transport_free(in);
    pr_memory_broker_free(from.broker);
    return took;
}

static double handle_all(uint64_t count, const kind *how)
{
    bench_folder folder = bench_folder_make();
    char path[300];
    pr__format(path, sizeof path, "%s/bench.db", folder.path);
    pr_store *store = bench_store_open(path);
    double took = handle_on(store, count, how);
    pr_store_free(store);
    bench_folder_remove(&folder);
    return took;
}

static double bare_loop(uint64_t count)
{
    static const char body[BENCH_BODY_SIZE];
    bench_folder folder = bench_folder_make();
    char path[300], key[32];
    pr__format(path, sizeof path, "%s/bare.db", folder.path);
    sqlite3 *db = bench_connection_open(path);
    bench_bare_create(db);
    sqlite3_stmt *insert = bench_bare_insert(db);
    double began = bench_seconds();
    for (uint64_t i = 0; i < count; i++) {
        pr_message message = bench_message(i, 16, body, key);
        bench_exec(db, "BEGIN IMMEDIATE");
        bench_bare_bind(insert, &message);
        bench_check_sqlite(sqlite3_step(insert), db, "insert");
        sqlite3_reset(insert);
        bench_exec(db, "COMMIT");
    }
    double took = bench_seconds() - began;
    sqlite3_finalize(insert);
    sqlite3_close(db);
    bench_folder_remove(&folder);
    return took;
}

static const kind single = {"one message a transaction", 1, 0, 0, false};
static const kind batched = {"empty handler, batches of 50", 1, BATCH, 0, false};
static const kind alone[] = {
    {"empty handler, memory, 1 worker", 1, 0, 0, false},
    {"empty handler, memory, 4 workers", 4, 0, 0, false},
    {"empty handler, database, 1 worker", 1, 0, 0, true},
    {"empty handler, database, 4 workers", 4, 0, 0, true},
};
#define ALONE (sizeof alone / sizeof *alone)

static void against_bare(const kind *how, uint64_t count, const bench_options *opt,
                         bench_report *report)
{
    double ours[BENCH_ROUNDS_MAX], bare[BENCH_ROUNDS_MAX];
    for (int i = 0; i < opt->rounds; i++) {
        ours[i] = (double)count / handle_all(count, how);
        bare[i] = (double)count / (how->extra ? handle_all(count, &single) : bare_loop(count));
    }
    bench_report_add(report, how->name, "messages/s",
                     how->extra ? "without them" : "bare INSERT and COMMIT", ours, bare,
                     opt->rounds, how->extra ? BENCH_NO_GOAL : BENCH_AT_LEAST, 0.8);
}

void bench_handler(const bench_options *opt, bench_report *report)
{
    static const kind more = {"empty handler, memory, 4 middlewares more", 1, 0, EXTRA, false};
    uint64_t count = opt->messages / 100 > 200 ? opt->messages / 100 : 200;
    for (size_t k = 0; k < ALONE; k++)
        against_bare(&alone[k], count, opt, report);
    against_bare(&more, count, opt, report);
    double ours[BENCH_ROUNDS_MAX], one[BENCH_ROUNDS_MAX];
    for (int i = 0; i < opt->rounds; i++) {
        ours[i] = (double)(count * BATCH / 5) / handle_all(count * BATCH / 5, &batched);
        one[i] = (double)count / handle_all(count, &single);
    }
    bench_report_add(report, batched.name, "messages/s", single.name, ours, one, opt->rounds,
                     BENCH_NO_GOAL, 0);
}

static double handle_on_postgres(const bench_options *opt, uint64_t count, const kind *how)
{
    bench_database database = bench_database_make(opt->server, "handler");
    pr_store *store = bench_pg_store(&database);
    double took = handle_on(store, count, how);
    pr_store_free(store);
    bench_database_drop(&database);
    return took;
}

/* The host's own loop: BEGIN, one INSERT of the same bytes, COMMIT, as three calls. */
static double bare_postgres(const bench_options *opt, uint64_t count)
{
    static const char body[BENCH_BODY_SIZE];
    static const char insert[] = "INSERT INTO bare (id, body) VALUES ($1, $2)";
    bench_database database = bench_database_make(opt->server, "bare");
    PGconn *db = bench_pg_open(database.address);
    bench_pg_run(db, "CREATE TABLE bare (id text PRIMARY KEY, body bytea NOT NULL)");
    PQclear(bench_pg_checked(db, PQprepare(db, "bare", insert, 0, NULL), insert));
    double began = bench_seconds();
    for (uint64_t i = 0; i < count; i++) {
        char id[40];
        pr__format(id, sizeof id, "00000000-0000-7000-8000-%012llu", (unsigned long long)i);
        const char *const values[] = {id, body};
        const int lengths[] = {0, (int)sizeof body}, formats[] = {0, 1};
        bench_pg_run(db, "BEGIN");
        PQclear(bench_pg_checked(db, PQexecPrepared(db, "bare", 2, values, lengths, formats, 0),
                                 insert));
        bench_pg_run(db, "COMMIT");
    }
    double took = bench_seconds() - began;
    PQfinish(db);
    bench_database_drop(&database);
    return took;
}

void bench_postgres_handler(const bench_options *opt, bench_report *report)
{
    double ours[BENCH_ROUNDS_MAX], one[BENCH_ROUNDS_MAX];
    uint64_t count = opt->messages / 100 > 500 ? opt->messages / 100 : 500;
    for (size_t k = 0; k < ALONE; k++) {
        for (int i = 0; i < opt->rounds; i++) {
            ours[i] = (double)count / handle_on_postgres(opt, count, &alone[k]);
            one[i] = (double)count / bare_postgres(opt, count);
        }
        bench_report_add(report, alone[k].name, "messages/s", "bare INSERT and COMMIT", ours, one,
                         opt->rounds, BENCH_AT_LEAST, 0.8);
    }
    for (int i = 0; i < opt->rounds; i++) {
        uint64_t many = count * BATCH / 5;
        ours[i] = (double)many / handle_on_postgres(opt, many, &batched);
        one[i] = (double)count / handle_on_postgres(opt, count, &single);
    }
    bench_report_add(report, batched.name, "messages/s", single.name, ours, one, opt->rounds,
                     BENCH_AT_LEAST, 5);
}
