/*
 * An empty handler with the transactional inbox, on each store and transport, with one and four
 * workers, against a bare loop that does the same INSERT, of the same mark into the same table, and
 * a COMMIT for each message; what middleware costs; and batches of messages in one transaction
 * against one message each.
 */
#include <pthread.h>

#include "bench.h"
#include "database.h"
#include "postgres.h"
#include "source.h"

#include "base/hash.h"
#include "base/text.h"
#include "base/time.h"

#define LOOK_US 200 /* between two looks whether all are handled */
#define EXTRA   4
#define BATCH   50
#define WORKERS 4

/* The stores; the report names them. */
typedef enum place { SQLITE = 1, POSTGRES } place;

static const char *place_name(place on)
{
    return on == SQLITE ? "SQLite" : "PostgreSQL";
}

typedef struct kind {
    place on;
    bench_carrier carrier;
    uint32_t workers;
    uint32_t batch;
    size_t extra; /* middlewares beside unit and inbox */
} kind;

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

typedef struct run_of {
    pr_endpoint *endpoint;
    uint64_t count;
    double ended; /* when the last one was handled; stopping is not counted */
} run_of;

static void *stop_when_done(void *user)
{
    run_of *run = user;
    pr_endpoint_snapshot seen = {.size = (uint32_t)sizeof seen};
    pr_error err = PR_ERROR_INIT;
    while (seen.handled < run->count) {
        pr__sleep_us(LOOK_US);
        bench_check(pr_endpoint_snapshot_get(run->endpoint, &seen, &err), &err, "snapshot");
        if (seen.failed + seen.dead > 0)
            bench_fail("handle", "a message failed");
    }
    run->ended = bench_seconds();
    pr_endpoint_stop(run->endpoint);
    return NULL;
}

/* Messages/s on this store. */
static double handle_on(pr_store *store, const char *broker, uint64_t count, const kind *how)
{
    pr_error err = PR_ERROR_INIT;
    bench_source from = bench_source_open(how->carrier, store, broker);
    pr_middleware chain[2 + EXTRA] = {pr_middleware_unit(), pr_middleware_inbox()};
    for (size_t i = 0; i < how->extra; i++)
        chain[2 + i] = (pr_middleware)PR_MIDDLEWARE(.name = "pass", .invoke = pass);
    const char *const types[] = {BENCH_SOURCE_TYPE};
    /* what is fed to a broker goes to the endpoint itself: its queue stands, without a type */
    size_t type_count = how->carrier == BENCH_RABBITMQ ? 0 : 1;
    pr_endpoint_options opt =
        PR_ENDPOINT_OPTIONS(.id = BENCH_SOURCE_ENDPOINT, .types = types, .type_count = type_count,
                            .handler = nothing, .prefetch = 256, .concurrency = how->workers,
                            .middleware = chain, .middleware_count = 2 + how->extra,
                            .batch_max = how->batch);
    run_of run = {.count = count};
    pthread_t watcher;
    int64_t wait_ms = 0;
    pr_transport *in = bench_source_transport(&from);
    bench_check(pr_endpoint_new(store, in, &opt, &run.endpoint, &err), &err, "make an endpoint");
    bench_check(pr_endpoint_step(run.endpoint, &wait_ms, &err), &err, "subscribe");
    bench_source_feed(&from, count);
    double began = bench_seconds();
    if (pthread_create(&watcher, NULL, stop_when_done, &run) != 0)
        bench_fail("watch", "no thread");
    bench_check(pr_endpoint_run(run.endpoint, &err), &err, "run");
    pthread_join(watcher, NULL);
    pr_endpoint_free(run.endpoint);
    pr_transport_free(in);
    bench_source_close(&from);
    return (double)count / (run.ended - began);
}

/* ---- on SQLite ---- */

static double handle_on_sqlite(const bench_options *opt, uint64_t count, const kind *how)
{
    bench_folder folder = bench_folder_make();
    char path[300];
    pr__format(path, sizeof path, "%s/bench.db", folder.path);
    pr_store *store = bench_store_open(path);
    double rate = handle_on(store, opt->broker, count, how);
    pr_store_free(store);
    bench_folder_remove(&folder);
    return rate;
}

static void bare_id(uint64_t number, char out[40])
{
    pr__format(out, 40, "018e0000-0000-7000-8000-%012llx", (unsigned long long)number);
}

static double bare_sqlite(uint64_t count)
{
    static const char mark[] = "INSERT INTO postroom_inbox (tenant, consumer, message_id, "
                               "body_hash, processed_at) VALUES ('', 'bench', ?1, ?2, ?3)";
    static const uint8_t hash[PR_CONTENT_HASH_SIZE];
    bench_folder folder = bench_folder_make();
    char path[300], id[40];
    pr__format(path, sizeof path, "%s/bare.db", folder.path);
    pr_store_free(bench_store_open(path));
    sqlite3 *db = bench_connection_open(path);
    sqlite3_stmt *insert = bench_prepare(db, mark);
    double began = bench_seconds();
    for (uint64_t i = 0; i < count; i++) {
        bare_id(i, id);
        bench_exec(db, "BEGIN IMMEDIATE");
        sqlite3_bind_text(insert, 1, id, -1, SQLITE_STATIC);
        sqlite3_bind_blob(insert, 2, hash, sizeof hash, SQLITE_STATIC);
        sqlite3_bind_int64(insert, 3, pr__wall_us());
        bench_check_sqlite(sqlite3_step(insert), db, "insert");
        sqlite3_reset(insert);
        bench_exec(db, "COMMIT");
    }
    double took = bench_seconds() - began;
    sqlite3_finalize(insert);
    sqlite3_close(db);
    bench_folder_remove(&folder);
    return (double)count / took;
}

/* ---- on PostgreSQL ---- */

static double handle_on_postgres(const bench_options *opt, uint64_t count, const kind *how)
{
    bench_database database = bench_database_make(opt->server, "handler");
    pr_store *store = bench_pg_store(&database);
    double rate = handle_on(store, opt->broker, count, how);
    pr_store_free(store);
    bench_database_drop(&database);
    return rate;
}

/* The host's own loop: BEGIN, the INSERT, COMMIT, as three calls. */
static double bare_postgres(const bench_options *opt, uint64_t count)
{
    static const char mark[] = "INSERT INTO postroom.inbox (tenant, consumer, message_id, "
                               "body_hash, processed_at) VALUES ('', 'bench', $1, $2, now())";
    static const char hash[PR_CONTENT_HASH_SIZE];
    bench_database database = bench_database_make(opt->server, "bare");
    pr_store_free(bench_pg_store(&database));
    PGconn *db = bench_pg_open(database.address);
    PQclear(bench_pg_checked(db, PQprepare(db, "bare", mark, 0, NULL), mark));
    double began = bench_seconds();
    for (uint64_t i = 0; i < count; i++) {
        char id[40];
        bare_id(i, id);
        const char *const values[] = {id, hash};
        const int lengths[] = {0, (int)sizeof hash}, formats[] = {0, 1};
        bench_pg_run(db, "BEGIN");
        PQclear(
            bench_pg_checked(db, PQexecPrepared(db, "bare", 2, values, lengths, formats, 0), mark));
        bench_pg_run(db, "COMMIT");
    }
    double took = bench_seconds() - began;
    PQfinish(db);
    bench_database_drop(&database);
    return (double)count / took;
}

/* ---- side by side ---- */

static double handle(const bench_options *opt, uint64_t count, const kind *how)
{
    return how->on == SQLITE ? handle_on_sqlite(opt, count, how)
                             : handle_on_postgres(opt, count, how);
}

static double bare(const bench_options *opt, uint64_t count, place on)
{
    return on == SQLITE ? bare_sqlite(count) : bare_postgres(opt, count);
}

static uint64_t count_of(const bench_options *opt)
{
    return opt->messages / 50 > 500 ? opt->messages / 50 : 500;
}

static void against_bare(const kind *how, const bench_options *opt, bench_report *report)
{
    double ours[BENCH_ROUNDS_MAX], theirs[BENCH_ROUNDS_MAX];
    char name[80];
    uint64_t count = count_of(opt);
    for (int i = 0; i < opt->rounds; i++) {
        ours[i] = handle(opt, count, how);
        theirs[i] = bare(opt, count, how->on);
    }
    pr__format(name, sizeof name, "empty handler, %s, %s, %u %s", place_name(how->on),
               bench_carrier_name(how->carrier), how->workers,
               how->workers == 1 ? "worker" : "workers");
    bench_report_add(report, name, "messages/s", "the same INSERT and COMMIT", ours, theirs,
                     opt->rounds, BENCH_AT_LEAST, 0.8);
}

static void with_middleware(place on, bench_carrier carrier, const bench_options *opt,
                            bench_report *report)
{
    const kind with = {on, carrier, 1, 0, EXTRA}, without = {on, carrier, 1, 0, 0};
    double ours[BENCH_ROUNDS_MAX], theirs[BENCH_ROUNDS_MAX];
    char name[80];
    uint64_t count = count_of(opt);
    for (int i = 0; i < opt->rounds; i++) {
        ours[i] = handle(opt, count, &with);
        theirs[i] = handle(opt, count, &without);
    }
    pr__format(name, sizeof name, "%d middlewares more, %s, %s", EXTRA, place_name(on),
               bench_carrier_name(carrier));
    bench_report_add(report, name, "messages/s", "without them", ours, theirs, opt->rounds,
                     BENCH_NO_GOAL, 0);
}

static void in_batches(place on, const bench_options *opt, bench_report *report)
{
    const kind many = {on, BENCH_MEMORY, 1, BATCH, 0}, single = {on, BENCH_MEMORY, 1, 0, 0};
    double ours[BENCH_ROUNDS_MAX], theirs[BENCH_ROUNDS_MAX];
    char name[80];
    uint64_t count = count_of(opt);
    for (int i = 0; i < opt->rounds; i++) {
        ours[i] = handle(opt, count * 8, &many);
        theirs[i] = handle(opt, count, &single);
    }
    pr__format(name, sizeof name, "empty handler, %s, batches of %d", place_name(on), BATCH);
    bench_report_add(report, name, "messages/s", "one message a transaction", ours, theirs,
                     opt->rounds, on == POSTGRES ? BENCH_AT_LEAST : BENCH_NO_GOAL, 5);
}

static void on_carrier(place on, bench_carrier carrier, const bench_options *opt,
                       bench_report *report)
{
    const kind one = {on, carrier, 1, 0, 0}, four = {on, carrier, WORKERS, 0, 0};
    against_bare(&one, opt, report);
    against_bare(&four, opt, report);
    with_middleware(on, carrier, opt, report);
}

void bench_handler(const bench_options *opt, bench_report *report)
{
    on_carrier(SQLITE, BENCH_MEMORY, opt, report);
    on_carrier(SQLITE, BENCH_DATABASE, opt, report);
    in_batches(SQLITE, opt, report);
}

void bench_postgres_handler(const bench_options *opt, bench_report *report)
{
    on_carrier(POSTGRES, BENCH_MEMORY, opt, report);
    on_carrier(POSTGRES, BENCH_DATABASE, opt, report);
    in_batches(POSTGRES, opt, report);
}

void bench_rabbitmq_handler(const bench_options *opt, bench_report *report)
{
    on_carrier(SQLITE, BENCH_RABBITMQ, opt, report);
    on_carrier(POSTGRES, BENCH_RABBITMQ, opt, report);
}
