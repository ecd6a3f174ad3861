/*
 * Draining by two relays, three ways in one round: the ledger through the library's own relay, the
 * usual table, and PgQ where it is installed. For each the rate, what the server spent of its
 * processors, and the WAL, a message.
 *
 * Each way has a database of its own, vacuumed, analyzed and checkpointed before it is drained.
 */
#include <postroom/memory.h>

#include "bench.h"
#include "crew.h"
#include "database.h"
#include "postgres.h"
#include "postgres_pgq.h"
#include "postgres_relay.h"
#include "postgres_table.h"

#include "base/text.h"

#define RELAYS 2
#define WAYS   3

enum { WAY_LEDGER, WAY_TABLE, WAY_PGQ };

/* Of one way, a round each. */
typedef struct figures {
    double rate[BENCH_ROUNDS_MAX];
    double cpu_us[BENCH_ROUNDS_MAX];
    double wal_bytes[BENCH_ROUNDS_MAX];
} figures;

/* One round of a way: its relays together, and what the server spent meanwhile. */
static void run(PGconn *db, void (*work)(void *relay), void *relays, size_t relay_size, figures *of,
                int round, uint64_t messages)
{
    bench_usage before = bench_usage_get(db);
    double seconds = bench_crew_run(work, relays, relay_size, RELAYS);
    bench_usage after = bench_usage_get(db);
    of->rate[round] = (double)messages / seconds;
    of->cpu_us[round] = (after.cpu_us - before.cpu_us) / (double)messages;
    of->wal_bytes[round] = (after.wal_bytes - before.wal_bytes) / (double)messages;
}

static void drain_ledger(const bench_options *opt, figures *of, int round)
{
    bench_relay relays[RELAYS];
    uint64_t published = 0;
    atomic_uint_least64_t all = 0;
    bench_database database = bench_database_make(opt->server, "ledger");
    PGconn *db = bench_pg_open(database.address);
    pr_store_free(bench_pg_store(&database));
    bench_pg_fill(db, opt->messages);
    bench_pg_settle(db);
    for (int i = 0; i < RELAYS; i++) {
        bench_relay_open(&relays[i], &database, 500);
        relays[i].wanted = opt->messages;
        relays[i].all_published = &all;
    }
    run(db, bench_relay_drain, relays, sizeof *relays, of, round, opt->messages);
    for (int i = 0; i < RELAYS; i++) {
        published += relays[i].published;
        bench_relay_close(&relays[i]);
    }
    bench_check_drained(published, opt->messages, "drain the ledger");
    PQfinish(db);
    bench_database_drop(&database);
}

static void drain_table(const bench_options *opt, figures *of, int round)
{
    bench_table_relay relays[RELAYS];
    uint64_t published = 0;
    bench_database database = bench_database_make(opt->server, "table");
    PGconn *db = bench_pg_open(database.address);
    bench_table_create(db);
    bench_table_fill(db, opt->messages);
    bench_pg_settle(db);
    for (int i = 0; i < RELAYS; i++)
        bench_table_open(&relays[i], database.address);
    run(db, bench_table_drain, relays, sizeof *relays, of, round, opt->messages);
    for (int i = 0; i < RELAYS; i++) {
        published += relays[i].published;
        bench_table_close(&relays[i]);
    }
    bench_check_drained(published, opt->messages, "drain the table");
    PQfinish(db);
    bench_database_drop(&database);
}

/* False: PgQ is not installed. */
static bool drain_pgq(const bench_options *opt, figures *of, int round)
{
    bench_pgq_consumer consumers[RELAYS];
    uint64_t consumed = 0;
    uint64_t messages = opt->messages - opt->messages % 1000;
    bench_database database = bench_database_make(opt->server, "pgq");
    PGconn *db = bench_pg_open(database.address);
    bool installed = bench_pgq_installed(db) && messages > 0;
    if (installed) {
        bench_pgq_create(db, RELAYS, messages);
        bench_pg_settle(db);
        for (int i = 0; i < RELAYS; i++)
            bench_pgq_open(&consumers[i], database.address, i);
        run(db, bench_pgq_drain, consumers, sizeof *consumers, of, round, messages);
        for (int i = 0; i < RELAYS; i++) {
            consumed += consumers[i].consumed;
            bench_pgq_close(&consumers[i]);
        }
        bench_check_drained(consumed, messages, "drain PgQ");
    }
    PQfinish(db);
    bench_database_drop(&database);
    return installed;
}

static void add_lines(const figures ways[WAYS], bool with_pgq, int rounds, bench_report *report)
{
    const figures *ledger = &ways[WAY_LEDGER], *table = &ways[WAY_TABLE], *pgq = &ways[WAY_PGQ];
    bench_report_add(report, "drain, 2 relays", "messages/s", "table, SKIP LOCKED of 500",
                     ledger->rate, table->rate, rounds, BENCH_AT_LEAST, 3.5);
    bench_report_add(report, "drain, server's processor time", "us/message", "table",
                     ledger->cpu_us, table->cpu_us, rounds, BENCH_OURS_AT_MOST, 14);
    bench_report_add(report, "drain, WAL", "bytes/message", "table", ledger->wal_bytes,
                     table->wal_bytes, rounds, BENCH_OURS_AT_MOST, 60);
    if (!with_pgq)
        return;
    bench_report_add(report, "drain, 2 relays", "messages/s", "PgQ, 2 queues", ledger->rate,
                     pgq->rate, rounds, BENCH_AT_LEAST, 0.8);
    bench_report_add(report, "drain, server's processor time", "us/message", "PgQ", ledger->cpu_us,
                     pgq->cpu_us, rounds, BENCH_NO_GOAL, 0);
    bench_report_add(report, "drain, WAL", "bytes/message", "PgQ", ledger->wal_bytes,
                     pgq->wal_bytes, rounds, BENCH_NO_GOAL, 0);
}

void bench_postgres_drain(const bench_options *opt, bench_report *report)
{
    figures ways[WAYS] = {0};
    bool with_pgq = true;
    for (int round = 0; round < opt->rounds; round++) {
        if (round % 2 == 0)
            drain_ledger(opt, &ways[WAY_LEDGER], round);
        drain_table(opt, &ways[WAY_TABLE], round);
        if (round % 2 == 1)
            drain_ledger(opt, &ways[WAY_LEDGER], round);
        with_pgq = with_pgq && drain_pgq(opt, &ways[WAY_PGQ], round);
    }
    add_lines(ways, with_pgq, opt->rounds, report);
}
