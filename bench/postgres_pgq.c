/*
 * PgQ. Finishing batch k and getting batch k + 1 are one commit, and a tick stands after every 500
 * messages, so that batches are as large as ours.
 */
#include "postgres_pgq.h"

#include <stdlib.h>

#include "database.h"
#include "postgres.h"

#include "base/text.h"

#define BATCH 500

bool bench_pgq_installed(PGconn *db)
{
    return bench_pg_number(db, "SELECT count(*) FROM pg_available_extensions WHERE name = 'pgq'") >
           0;
}

static void create_queue(PGconn *db, int queue)
{
    char sql[400];
    pr__format(sql, sizeof sql,
               "SELECT pgq.create_queue('bench_%d'), "
               "pgq.set_queue_config('bench_%d', 'ticker_max_count', '%d')",
               queue, queue, BATCH / 2); /* a sequence begins one short */
    bench_pg_run(db, sql);
    pr__format(sql, sizeof sql, "SELECT pgq.ticker('bench_%d')", queue);
    bench_pg_run(db, sql);
    pr__format(sql, sizeof sql, "SELECT pgq.register_consumer('bench_%d', 'bench')", queue);
    bench_pg_run(db, sql);
}

static void fill_batch(PGconn *db, int queue, uint64_t from)
{
    char sql[400];
    pr__format(sql, sizeof sql,
               "SELECT count(pgq.insert_event('bench_%d', '" BENCH_PG_TYPE
               "', repeat('x', 300), 'order-' || i %% 10000, gen_random_uuid()::text, "
               "'application/json', NULL)) FROM generate_series(%llu, %llu) AS i",
               queue, (unsigned long long)from, (unsigned long long)(from + BATCH - 1));
    bench_pg_run(db, sql);
    pr__format(sql, sizeof sql, "SELECT pgq.ticker('bench_%d')", queue);
    if (bench_pg_number(db, sql) <= 0)
        bench_fail("PgQ", "a tick did not come");
}

void bench_pgq_create(PGconn *db, int queues, uint64_t count)
{
    bench_pg_run(db, "CREATE EXTENSION pgq");
    for (int queue = 0; queue < queues; queue++) {
        create_queue(db, queue);
        for (uint64_t i = 0; i < count / (uint64_t)queues; i += BATCH)
            fill_batch(db, queue, i);
    }
}

void bench_pgq_open(bench_pgq_consumer *consumer, const char *address, int queue)
{
    *consumer = (bench_pgq_consumer){.db = bench_pg_open(address)};
    pr__format(consumer->queue, sizeof consumer->queue, "bench_%d", queue);
}

void bench_pgq_close(bench_pgq_consumer *consumer)
{
    PQfinish(consumer->db);
}

/* Finish one (0 = none yet) and get the next; 0 = there is none. */
static long long next_batch(bench_pgq_consumer *consumer, long long finished)
{
    char sql[200];
    bench_pg_run(consumer->db, "BEGIN");
    if (finished) {
        pr__format(sql, sizeof sql, "SELECT pgq.finish_batch(%lld)", finished);
        bench_pg_run(consumer->db, sql);
    }
    pr__format(sql, sizeof sql, "SELECT pgq.next_batch('%s', 'bench')", consumer->queue);
    PGresult *result = bench_pg_query(consumer->db, sql);
    long long batch =
        PQgetisnull(result, 0, 0) ? 0 : strtoll(PQgetvalue(result, 0, 0), NULL, /* base */ 10);
    PQclear(result);
    bench_pg_run(consumer->db, "COMMIT");
    return batch;
}

void bench_pgq_drain(void *item)
{
    bench_pgq_consumer *consumer = item;
    char sql[200];
    for (long long batch = 0; (batch = next_batch(consumer, batch)) != 0;) {
        pr__format(sql, sizeof sql, "SELECT * FROM pgq.get_batch_events(%lld)", batch);
        PGresult *result = bench_pg_checked(
            consumer->db,
            PQexecParams(consumer->db, sql, 0, NULL, NULL, NULL, NULL, /* binary */ 1), sql);
        for (int row = 0; row < PQntuples(result); row++)
            for (int column = 0; column < PQnfields(result); column++)
                if (PQgetlength(result, row, column) > 0)
                    consumer->touched += (unsigned char)PQgetvalue(result, row, column)[0];
        consumer->consumed += (uint64_t)PQntuples(result);
        PQclear(result);
    }
}
