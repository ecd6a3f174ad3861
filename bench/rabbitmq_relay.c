/*
 * From PostgreSQL to RabbitMQ, end to end: the library's relay (claim, publish and settle overlap)
 * against the bare publisher, which reads no database, and against the naive relay (one message:
 * claim, publish, wait, mark) in the same round.
 */
#include <string.h>
#include <sys/resource.h>
#include <time.h>

#include "bench.h"
#include "database.h"
#include "postgres.h"
#include "rabbitmq.h"

#include "base/text.h"

#define BODY_SIZE   256
#define NAIVE_SHARE 40 /* the naive relay gets a fortieth of the messages: it is that slow */

typedef struct figures {
    double relay[BENCH_ROUNDS_MAX], bare[BENCH_ROUNDS_MAX], naive[BENCH_ROUNDS_MAX];
    double cpu_us[BENCH_ROUNDS_MAX];
} figures;

static void fill(PGconn *db, uint64_t count, bool keyed)
{
    char sql[400];
    pr__format(sql, sizeof sql,
               "INSERT INTO postroom.outbox (type, destination, key, body) SELECT '" BENCH_MQ_TYPE
               "', 'rabbitmq://in/" BENCH_MQ_QUEUE "', %s, convert_to(repeat('x', %d), 'UTF8') "
               "FROM generate_series(1, %llu) AS i",
               keyed ? "'order-' || i % 10000" : "NULL", BODY_SIZE, (unsigned long long)count);
    bench_pg_run(db, sql);
}

/* Of this process, all of its threads. */
static double own_cpu_us(void)
{
    struct rusage usage;
    if (getrusage(RUSAGE_SELF, &usage) != 0)
        bench_fail("count processor time", "getrusage");
    return (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1e6 +
           (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
}

static uint64_t step_until(pr_relay *relay, uint64_t wanted)
{
    pr_error err = PR_ERROR_INIT;
    pr_relay_snapshot snapshot = {.size = (uint32_t)sizeof snapshot};
    while (snapshot.published < wanted) {
        int64_t wait_ms = 0;
        bench_check(pr_relay_step(relay, &wait_ms, &err), &err, "step the relay");
        if (wait_ms > 0)
            (void)nanosleep(&(struct timespec){.tv_nsec = wait_ms < 1 ? 0 : 200000}, NULL);
        bench_check(pr_relay_snapshot_get(relay, &snapshot, &err), &err, "look at the relay");
    }
    return snapshot.published;
}

static void drain_relay(const bench_options *opt, bool quorum, bool keyed, figures *of, int round)
{
    pr_error err = PR_ERROR_INIT;
    bench_database database = bench_database_make(opt->server, "rabbitmq");
    pr_store *store = bench_pg_store(&database);
    PGconn *db = bench_pg_open(database.address);
    pr_transport *transport = bench_mq_transport(opt->broker, quorum);
    const pr_relay_options options = PR_RELAY_OPTIONS(.owner = "bench");
    pr_relay *relay = NULL;
    uint64_t rest = 0;
    fill(db, opt->published, keyed);
    bench_pg_settle(db);
    bench_check(pr_relay_new(store, &transport, 1, &options, &relay, &err), &err, "make a relay");
    double cpu = own_cpu_us(), start = bench_seconds();
    step_until(relay, opt->published);
    bench_check(pr_relay_run_once(relay, &rest, &err), &err, "settle");
    of->relay[round] = (double)opt->published / (bench_seconds() - start);
    of->cpu_us[round] = (own_cpu_us() - cpu) / (double)opt->published;
    pr_relay_free(relay);
    pr_transport_free(transport);
    pr_store_free(store);
    PQfinish(db);
    bench_database_drop(&database);
}

static const char naive_claim[] =
    "SELECT id, message_id, body FROM naive WHERE status = 0 ORDER BY id LIMIT 1 "
    "FOR UPDATE SKIP LOCKED";

static void naive_one(PGconn *db, bench_mq *mq)
{
    bench_pg_run(db, "BEGIN");
    PGresult *row = bench_pg_checked(
        db, PQexecParams(db, naive_claim, 0, NULL, NULL, NULL, NULL, 0), "claim one");
    if (PQntuples(row) != 1)
        bench_fail("claim one", "there is none");
    const char *id = PQgetvalue(row, 0, 0);
    bench_mq_publish(mq, PQgetvalue(row, 0, 1), PQgetvalue(row, 0, 2),
                     (size_t)PQgetlength(row, 0, 2));
    bench_mq_wait(mq, 0);
    PQclear(bench_pg_checked(db,
                             PQexecParams(db, "UPDATE naive SET status = 1 WHERE id = $1::bigint",
                                          1, NULL, &id, NULL, NULL, 0),
                             "mark one"));
    PQclear(row);
    bench_pg_run(db, "COMMIT");
}

static double drain_naive(const bench_options *opt, bench_mq *mq)
{
    char sql[300];
    uint64_t count = opt->published / NAIVE_SHARE;
    bench_database database = bench_database_make(opt->server, "naive");
    PGconn *db = bench_pg_open(database.address);
    bench_pg_run(db, "CREATE TABLE naive (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, "
                     "message_id text NOT NULL, body text NOT NULL, "
                     "status smallint NOT NULL DEFAULT 0); "
                     "CREATE INDEX ON naive (id) WHERE status = 0");
    pr__format(sql, sizeof sql,
               "INSERT INTO naive (message_id, body) SELECT gen_random_uuid(), repeat('x', %d) "
               "FROM generate_series(1, %llu)",
               BODY_SIZE, (unsigned long long)count);
    bench_pg_run(db, sql);
    bench_pg_settle(db);
    double start = bench_seconds();
    for (uint64_t i = 0; i < count; i++)
        naive_one(db, mq);
    double rate = (double)count / (bench_seconds() - start);
    PQfinish(db);
    bench_database_drop(&database);
    return rate;
}

static void relay_one(const bench_options *opt, bench_report *report, bool quorum, bool keyed)
{
    static figures of;
    char name[80];
    for (int round = 0; round < opt->rounds; round++) {
        bench_mq mq = bench_mq_open(opt->broker);
        for (int side = 0; side < 2; side++) {
            bench_mq_queue(&mq, opt->broker, quorum);
            if (side == round % 2)
                drain_relay(opt, quorum, keyed, &of, round);
            else
                of.bare[round] = bench_mq_bare(&mq, opt->published, BODY_SIZE);
        }
        bench_mq_queue(&mq, opt->broker, quorum);
        of.naive[round] = drain_naive(opt, &mq);
        bench_mq_close(&mq);
    }
    pr__format(name, sizeof name, "relay PostgreSQL to RabbitMQ, %s, %s",
               quorum ? "quorum" : "classic", keyed ? "10,000 keys" : "no key");
    bench_report_add(report, name, "messages/s", "bare publisher without a database", of.relay,
                     of.bare, opt->rounds, BENCH_AT_LEAST, quorum ? 0.6 : 0.85);
    bench_report_add(report, name, "messages/s", "naive relay, one by one", of.relay, of.naive,
                     opt->rounds, BENCH_AT_LEAST, quorum ? 20 : 12);
    bench_report_add(report, name, "us CPU/message", "-", of.cpu_us, NULL, opt->rounds,
                     BENCH_AT_MOST, 12);
}

void bench_rabbitmq_relay(const bench_options *opt, bench_report *report)
{
    for (int quorum = 0; quorum < 2; quorum++) {
        relay_one(opt, report, quorum != 0, true);
        relay_one(opt, report, quorum != 0, false);
    }
}

/* ---- the other way: a consumer with its inbox in PostgreSQL ---- */

static pr_handled handle(void *user, pr_scope *scope)
{
    (void)user;
    return pr_scope_message(scope)->body_size_bytes == BODY_SIZE ? PR_HANDLED_OK
                                                                 : PR_HANDLED_PERMANENT;
}

static void consume_all(pr_store *store, pr_transport *transport, uint64_t count)
{
    pr_error err = PR_ERROR_INIT;
    pr_endpoint *endpoint = NULL;
    pr_endpoint_snapshot snapshot = {.size = (uint32_t)sizeof snapshot};
    const pr_endpoint_options options =
        PR_ENDPOINT_OPTIONS(.id = BENCH_MQ_QUEUE, .handler = handle);
    bench_check(pr_endpoint_new(store, transport, &options, &endpoint, &err), &err,
                "make an endpoint");
    while (snapshot.handled < count) {
        int64_t wait_ms = 0;
        bench_check(pr_endpoint_step(endpoint, &wait_ms, &err), &err, "step the endpoint");
        bench_check(pr_endpoint_snapshot_get(endpoint, &snapshot, &err), &err, "look");
        if (snapshot.dead > 0 || snapshot.failed > 0)
            bench_fail("consume", "a message failed");
    }
    pr_endpoint_free(endpoint);
}

void bench_rabbitmq_consume(const bench_options *opt, bench_report *report)
{
    double rate[BENCH_ROUNDS_MAX], share[BENCH_ROUNDS_MAX];
    uint64_t count = opt->published / 4;
    bench_mq mq = bench_mq_open(opt->broker);
    for (int round = 0; round < opt->rounds; round++) {
        bench_database database = bench_database_make(opt->server, "inbox");
        pr_store *store = bench_pg_store(&database);
        bench_mq_queue(&mq, opt->broker, false);
        (void)bench_mq_bare(&mq, count, BODY_SIZE);
        pr_transport *transport = bench_mq_transport(opt->broker, false);
        double cpu = own_cpu_us(), start = bench_seconds();
        consume_all(store, transport, count);
        double seconds = bench_seconds() - start;
        rate[round] = (double)count / seconds;
        share[round] = (own_cpu_us() - cpu) / (seconds * 1e4);
        pr_transport_free(transport);
        pr_store_free(store);
        bench_database_drop(&database);
    }
    bench_mq_close(&mq);
    bench_report_add(report, "consume into an inbox on PostgreSQL", "messages/s", "-", rate, NULL,
                     opt->rounds, BENCH_NO_GOAL, 0);
    bench_report_add(report, "consume, the consumer's share of a processor", "%", "-", share, NULL,
                     opt->rounds, BENCH_NO_GOAL, 0);
}
