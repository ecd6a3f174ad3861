/*
 * What enqueuing costs: bytes of WAL at 200 messages a transaction, and the rate of 16 clients at
 * one message a transaction against a bare INSERT of the same bytes with a unique id.
 *
 * Both sides of the rate send BEGIN, one statement and COMMIT, without named statements.
 */
#include <string.h>

#include <postroom/postgres.h>

#include "bench.h"
#include "crew.h"
#include "database.h"
#include "postgres.h"
#include "postgres_relay.h"

#include "base/text.h"

#define CLIENTS   16
#define WAL_BATCH 200

static pr_message message_of(uint64_t i, const void *body, char key[32])
{
    pr__format(key, 32, "order-%llu", (unsigned long long)(i % 10000));
    return (pr_message)PR_MESSAGE(.type = BENCH_PG_TYPE, .key = key, .body = body,
                                  .body_size_bytes = BENCH_PG_BODY_SIZE);
}

/* ---- WAL ---- */

static void enqueue_batches(pr_store *store, uint64_t count)
{
    char body[BENCH_PG_BODY_SIZE], keys[WAL_BATCH][32];
    pr_message messages[WAL_BATCH];
    pr_error err = PR_ERROR_INIT;
    memset(body, 'x', sizeof body);
    for (uint64_t done = 0; done < count; done += WAL_BATCH) {
        pr_unit *unit = NULL;
        for (uint64_t i = 0; i < WAL_BATCH; i++)
            messages[i] = message_of(done + i, body, keys[i]);
        bench_check(pr_unit_begin(store, &unit, &err), &err, "begin");
        bench_check(pr_unit_enqueue_many(unit, messages, WAL_BATCH, NULL, &err), &err, "enqueue");
        bench_check(pr_unit_commit(unit, NULL, &err), &err, "commit");
        pr_unit_free(unit);
    }
}

/* Bytes a message since then, full-page images apart; *ret_images: of those. */
static double wal_since(PGconn *db, const bench_usage *since, uint64_t count, double *ret_images)
{
    bench_pg_run(db, "SELECT pg_current_xact_id()"); /* a commit: all before it is flushed */
    bench_usage now = bench_usage_get(db);
    *ret_images = bench_page_image_bytes(db, since) / (double)count;
    return (now.wal_bytes - since->wal_bytes) / (double)count - *ret_images;
}

void bench_postgres_wal(const bench_options *opt, bench_report *report)
{
    double enqueued[1], whole[1], images[1], drained;
    uint64_t count = opt->messages - opt->messages % WAL_BATCH;
    bench_database database = bench_database_make(opt->server, "wal");
    PGconn *db = bench_pg_open(database.address);
    bench_relay relay;
    bench_relay_open(&relay, &database, WAL_BATCH);
    pr_store *store = bench_pg_store(&database);
    atomic_uint_least64_t published = 0;
    relay.all_published = &published;
    relay.wanted = 1000;
    enqueue_batches(store, 1000);
    bench_relay_drain(&relay);
    relay.wanted += count;
    bench_usage before = bench_usage_get(db);
    enqueue_batches(store, count);
    enqueued[0] = wal_since(db, &before, count, &images[0]);
    before = bench_usage_get(db);
    bench_relay_drain(&relay);
    double drain_images = 0;
    drained = wal_since(db, &before, count, &drain_images);
    images[0] += drain_images;
    whole[0] = enqueued[0] + drained;
    if (relay.published != relay.wanted)
        bench_fail("WAL", "not all messages came");
    bench_report_add(report, "WAL, enqueue of 200 a transaction", "bytes/message", "-", enqueued,
                     NULL, 1, BENCH_NO_GOAL, 0);
    bench_report_add(report, "WAL, the same, then a relay of 200", "bytes/message", "-", whole,
                     NULL, 1, BENCH_AT_MOST, 800);
    bench_report_add(report, "WAL, full-page images beside it", "bytes/message", "-", images, NULL,
                     1, BENCH_NO_GOAL, 0);
    pr_store_free(store);
    bench_relay_close(&relay);
    PQfinish(db);
    bench_database_drop(&database);
}

/* ---- one a transaction ---- */

typedef struct client {
    PGconn *db;
    pr_store *store; /* NULL: the bare side */
    uint64_t first;
    uint64_t transactions;
} client;

static void enqueue_ours(void *item)
{
    client *self = item;
    char body[BENCH_PG_BODY_SIZE], key[32];
    pr_error err = PR_ERROR_INIT;
    memset(body, 'x', sizeof body);
    for (uint64_t i = 0; i < self->transactions; i++) {
        pr_unit *unit = NULL;
        pr_message message = message_of(self->first + i, body, key);
        bench_pg_run(self->db, "BEGIN");
        bench_check(pr_postgres_unit_join(self->store, self->db, &unit, &err), &err, "join");
        bench_check(pr_unit_enqueue(unit, &message, NULL, &err), &err, "enqueue");
        bench_pg_run(self->db, "COMMIT");
        bench_check(pr_unit_finished(unit, PR_OUTCOME_COMMITTED, &err), &err, "finish");
        pr_unit_free(unit);
    }
}

static void enqueue_bare(void *item)
{
    client *self = item;
    char body[BENCH_PG_BODY_SIZE], key[32];
    memset(body, 'x', sizeof body);
    for (uint64_t i = 0; i < self->transactions; i++) {
        pr_message message = message_of(self->first + i, body, key);
        const char *values[] = {message.type, "1", "application/json", key, body};
        const int lengths[] = {0, 0, 0, 0, BENCH_PG_BODY_SIZE};
        const int formats[] = {0, 0, 0, 0, 1};
        bench_pg_run(self->db, "BEGIN");
        PQclear(bench_pg_checked(
            self->db,
            PQexecParams(self->db,
                         "INSERT INTO bare (type, type_version, content_type, key, body) VALUES "
                         "($1, $2, $3, $4, $5)",
                         5, NULL, values, lengths, formats, 0),
            "insert"));
        bench_pg_run(self->db, "COMMIT");
    }
}

static double rate(client clients[CLIENTS], void (*work)(void *), uint64_t first, uint64_t each)
{
    for (uint64_t i = 0; i < CLIENTS; i++) {
        clients[i].first = first + i * each;
        clients[i].transactions = each;
    }
    return (double)(each * CLIENTS) / bench_crew_run(work, clients, sizeof *clients, CLIENTS);
}

void bench_postgres_enqueue(const bench_options *opt, bench_report *report)
{
    double ours[BENCH_ROUNDS_MAX], bare[BENCH_ROUNDS_MAX];
    client clients[CLIENTS];
    bench_database database = bench_database_make(opt->server, "enqueue");
    PGconn *db = bench_pg_open(database.address);
    pr_store_free(bench_pg_store(&database));
    bench_pg_run(db, "CREATE TABLE bare (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, "
                     "message_id uuid NOT NULL UNIQUE DEFAULT gen_random_uuid(), type text NOT "
                     "NULL, type_version bigint NOT NULL, content_type text NOT NULL, key text, "
                     "body bytea NOT NULL, occurred_at timestamptz NOT NULL DEFAULT now())");
    for (int i = 0; i < CLIENTS; i++)
        clients[i] =
            (client){.db = bench_pg_open(database.address), .store = bench_pg_store(&database)};
    (void)rate(clients, enqueue_ours, 0, 20);
    (void)rate(clients, enqueue_bare, 0, 20);
    bench_pg_settle(db);
    for (int round = 0; round < opt->rounds; round++) {
        uint64_t first = (uint64_t)round * CLIENTS * opt->transactions;
        if (round % 2 == 0)
            ours[round] = rate(clients, enqueue_ours, first, opt->transactions);
        bare[round] = rate(clients, enqueue_bare, first, opt->transactions);
        if (round % 2 == 1)
            ours[round] = rate(clients, enqueue_ours, first, opt->transactions);
    }
    for (int i = 0; i < CLIENTS; i++) {
        PQfinish(clients[i].db);
        pr_store_free(clients[i].store);
    }
    PQfinish(db);
    bench_database_drop(&database);
    bench_report_add(report, "enqueue, 1 a transaction, 16 clients", "messages/s",
                     "bare INSERT, unique id", ours, bare, opt->rounds, BENCH_AT_LEAST, 0.9);
}
