/*
 * A relay of the library on PostgreSQL.
 */
#include "postgres_relay.h"

#include <time.h>

#include "database.h"

void bench_relay_open(bench_relay *relay, const bench_database *database, uint32_t batch)
{
    pr_error err = PR_ERROR_INIT;
    pr_memory_options memory = {
        .size = (uint32_t)sizeof memory, .name = "database", .discard = true};
    pr_relay_options opt = PR_RELAY_OPTIONS(.owner = "bench", .batch_max = batch);
    *relay = (bench_relay){.store = bench_pg_store(database)};
    bench_check(pr_memory_broker_new(&relay->broker, &err), &err, "make a broker");
    bench_check(pr_memory_transport_new(relay->broker, &memory, &relay->transport, &err), &err,
                "make a transport");
    bench_check(pr_relay_new(relay->store, &relay->transport, 1, &opt, &relay->relay, &err), &err,
                "make a relay");
}

void bench_relay_close(bench_relay *relay)
{
    pr_relay_free(relay->relay);
    pr_transport_free(relay->transport);
    pr_memory_broker_free(relay->broker);
    pr_store_free(relay->store);
}

/* Take what it has published since the last look into the count of all. */
static void count(bench_relay *relay)
{
    pr_error err = PR_ERROR_INIT;
    pr_relay_snapshot snapshot = {.size = (uint32_t)sizeof snapshot};
    bench_check(pr_relay_snapshot_get(relay->relay, &snapshot, &err), &err, "look at the relay");
    *relay->all_published += snapshot.published - relay->published;
    relay->published = snapshot.published;
}

void bench_relay_drain(void *item)
{
    bench_relay *relay = item;
    pr_error err = PR_ERROR_INIT;
    uint64_t rest = 0;
    while (*relay->all_published < relay->wanted) {
        int64_t wait_ms = 0;
        bench_check(pr_relay_step(relay->relay, &wait_ms, &err), &err, "step the relay");
        count(relay);
        if (wait_ms > 0)
            (void)nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
    bench_check(pr_relay_run_once(relay->relay, &rest, &err), &err, "settle");
    relay->published += rest;
}
