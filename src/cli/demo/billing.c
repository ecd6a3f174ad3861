/*
 * Billing of the demo: another host program, with its own database, that writes an invoice for each
 * order. It knows nothing of relays and crashes; its inbox keeps a message that comes twice from
 * taking effect twice.
 */
#include <postroom/database.h>

#include "base/error.h"
#include "base/text.h"
#include "base/time.h"
#include "cli/demo/demo.h"
#include "cli/wiring.h"
#include "transport/amqp/inspect.h"

#define BUSY_MS    10000
#define LEASE_MS   1000
#define POLL_MS    5
#define RETRY_MS   150
#define FAIL_EVERY 300 /* one order in so many fails once, and is tried again */
#define FAIL_AT    42
#define QUIET_US   300000 /* nothing more comes, presumably */

static const char *const types[] = {PR__DEMO_TYPE};

/* In the unit of the delivery: the invoice and the inbox's mark commit together. */
static pr_handled bill(void *user, pr_scope *scope)
{
    const pr__order *order = pr_scope_object(scope);
    const pr__demo_db db = pr__demo_of_unit(pr_scope_unit(scope));
    char number[24], seq[24], amount[24];
    pr_error err = PR_ERROR_INIT;
    (void)user;
    if (order->number % FAIL_EVERY == FAIL_AT && pr_scope_attempts(scope) == 0) {
        pr_scope_fail(scope, "the card service did not answer (once, on purpose)", RETRY_MS);
        return PR_HANDLED_RETRY;
    }
    pr__format(number, sizeof(number), "%lld", (long long)order->number);
    pr__format(seq, sizeof(seq), "%lld", (long long)order->seq);
    pr__format(amount, sizeof(amount), "%lld", (long long)order->amount_cents);
    const char *params[] = {number, order->customer, seq, amount};
    if (pr__demo_query(&db,
                       "INSERT INTO invoices (order_number, customer, seq, amount_cents)"
                       " VALUES ($1, $2, $3, $4)",
                       params, 4, NULL, NULL, &err) == PR_OK)
        return PR_HANDLED_OK;
    pr_scope_fail(scope, err.message, -1);
    return PR_HANDLED_RETRY;
}

static void *run(void *user)
{
    pr__billing *billing = user;
    pr_status status = pr_endpoint_run(billing->endpoint, &billing->err);
    (void)status; /* it is in err */
    atomic_store(&billing->ended, true);
    return NULL;
}

static pr_status make_database(const char *store, pr__billing *billing, pr_error *err)
{
    pr__common common = {.store = store, .busy_ms = BUSY_MS};
    pr__store_request request = {.common = &common, .create = true};
    pr__demo_db db;
    TRY(pr__wiring_store(&request, &billing->store, err));
    TRY(pr_store_migrate(billing->store, NULL, NULL, err));
    TRY(pr__demo_open(store, /* read_only= */ false, &db, err));
    /* no column but id is unique: an invoice that is written twice would show */
    pr_status status =
        pr__demo_exec(&db,
                      db.pg ? "CREATE TABLE invoices (id bigint GENERATED ALWAYS AS IDENTITY,"
                              " order_number integer NOT NULL, customer text NOT NULL,"
                              " seq integer NOT NULL, amount_cents integer NOT NULL)"
                            : "CREATE TABLE invoices (id INTEGER PRIMARY KEY AUTOINCREMENT,"
                              " order_number INTEGER NOT NULL, customer TEXT NOT NULL,"
                              " seq INTEGER NOT NULL, amount_cents INTEGER NOT NULL) STRICT",
                      err);
    if (status == PR_OK)
        status = pr__demo_exec(&db,
                               "CREATE TABLE demo_broker (delivered integer NOT NULL,"
                               " duplicates integer NOT NULL);"
                               "INSERT INTO demo_broker VALUES (0, 0);",
                               err);
    pr__demo_close(&db);
    return status;
}

static pr_subscribe_options subscription(void)
{
    return (pr_subscribe_options){.size = (uint32_t)sizeof(pr_subscribe_options),
                                  .endpoint = PR__DEMO_ENDPOINT,
                                  .types = types,
                                  .type_count = 1};
}

static pr_status open_transport(pr__billing *billing, pr_error *err)
{
    pr_subscribe_options subscribe = subscription();
    if (billing->broker) {
        pr__common common = {.store = NULL};
        pr__link_request request = {.text = PR__DEMO_TRANSPORT "=amqp:",
                                    .common = &common,
                                    .exchange_prefix = billing->broker->prefix};
        pr__link link = {NULL, NULL, ""};
        TRY(pr__wiring_link(&request, &link, err));
        billing->transport = link.transport;
    } else {
        pr_database_options link = {.size = (uint32_t)sizeof(link), .name = PR__DEMO_TRANSPORT};
        TRY(pr_database_transport_new(billing->store, &link, &billing->transport, err));
    }
    TRY(pr_transport_open(billing->transport, BUSY_MS, err));
    /* before the first message comes: a topic that reaches nobody is refused */
    return pr_transport_topology(billing->transport, &subscribe, /* check_only= */ false, err);
}

pr_status pr__billing_start(const char *store, const pr__demo_broker *broker,
                            pr__billing *ret_billing, pr_error *err)
{
    pr__billing *billing = ret_billing;
    billing->err = (pr_error)PR_ERROR_INIT;
    billing->broker = broker;
    billing->store_name = store;
    TRY(make_database(store, billing, err));
    TRY(pr__demo_contracts(&billing->contracts, err));
    TRY(open_transport(billing, err));
    pr_endpoint_options opt =
        PR_ENDPOINT_OPTIONS(.id = PR__DEMO_ENDPOINT, .types = types, .type_count = 1,
                            .contracts = billing->contracts, .handler = bill,
                            .backoff_initial_ms = RETRY_MS, .lease_ms = LEASE_MS,
                            .poll_ms = POLL_MS, .concurrency = 1, .owner = "demo billing");
    TRY(pr_endpoint_new(billing->store, billing->transport, &opt, &billing->endpoint, err));
    if (pthread_create(&billing->thread, NULL, run, billing) != 0)
        return pr__fail(err, PR_E_BACKEND, "demo", "cannot start a thread");
    billing->thread_started = true;
    return PR_OK;
}

pr_status pr__billing_quiet(pr__billing *billing, bool *ret_quiet, pr_error *err)
{
    char queue[64];
    uint32_t messages = 0, consumers = 0;
    pr_endpoint_snapshot seen = {.size = (uint32_t)sizeof(seen)};
    int64_t now_us = pr__monotonic_us();
    *ret_quiet = !billing->broker;
    if (*ret_quiet)
        return PR_OK;
    TRY(pr_endpoint_snapshot_get(billing->endpoint, &seen, err));
    if (seen.received != billing->received || billing->quiet_us == 0) {
        billing->received = seen.received;
        billing->quiet_us = now_us;
    }
    if (now_us - billing->quiet_us < QUIET_US)
        return PR_OK;
    pr__format(queue, sizeof(queue), "%s%s", billing->broker->prefix, PR__DEMO_ENDPOINT);
    TRY(pr__amqp_queue_look(billing->transport, queue, &messages, &consumers, err));
    *ret_quiet = messages == 0;
    return PR_OK;
}

static void stop(pr__billing *billing)
{
    if (billing->thread_started) {
        pr_endpoint_stop(billing->endpoint);
        pthread_join(billing->thread, NULL);
    }
    billing->thread_started = false;
}

pr_status pr__billing_close(pr__billing *billing, pr_error *err)
{
    pr_endpoint_snapshot seen = {.size = (uint32_t)sizeof(seen)};
    pr_subscribe_options subscribe = subscription();
    char sql[128];
    pr__demo_db db;
    stop(billing);
    if (!billing->broker)
        return PR_OK;
    TRY(pr_endpoint_snapshot_get(billing->endpoint, &seen, err));
    billing->endpoint = pr_endpoint_free(billing->endpoint);
    pr__format(sql, sizeof(sql), "UPDATE demo_broker SET delivered = %llu, duplicates = %llu",
               (unsigned long long)seen.received, (unsigned long long)seen.duplicate);
    TRY(pr__demo_open(billing->store_name, /* read_only= */ false, &db, err));
    pr_status status = pr__demo_exec(&db, sql, err);
    pr__demo_close(&db);
    TRY(status);
    return pr__amqp_topology_remove(billing->transport, &subscribe, err);
}

void pr__billing_done(pr__billing *billing)
{
    stop(billing);
    billing->endpoint = pr_endpoint_free(billing->endpoint);
    billing->transport = pr_transport_free(billing->transport);
    billing->store = pr_store_free(billing->store);
    billing->contracts = pr_contracts_free(billing->contracts);
}
