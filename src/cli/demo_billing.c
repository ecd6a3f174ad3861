/*
 * Billing of the demo: another host program, with its own database, that writes an invoice for each
 * order. It knows nothing of relays and crashes; its inbox keeps a message that comes twice from
 * taking effect twice.
 */
#include <postroom/database.h>

#include "base/error.h"
#include "base/text.h"
#include "cli/demo.h"
#include "cli/wiring.h"

#define BUSY_MS    10000
#define LEASE_MS   1000
#define POLL_MS    5
#define RETRY_MS   150
#define FAIL_EVERY 300 /* one order in so many fails once, and is tried again */
#define FAIL_AT    42

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
    pr__demo_close(&db);
    return status;
}

pr_status pr__billing_start(const char *store, pr__billing *ret_billing, pr_error *err)
{
    pr__billing *billing = ret_billing;
    pr_database_options link = {.size = (uint32_t)sizeof(link), .name = PR__DEMO_TRANSPORT};
    pr_subscribe_options subscribe = {.size = (uint32_t)sizeof(subscribe),
                                      .endpoint = "billing",
                                      .types = types,
                                      .type_count = 1};
    billing->err = (pr_error)PR_ERROR_INIT;
    TRY(make_database(store, billing, err));
    TRY(pr__demo_contracts(&billing->contracts, err));
    TRY(pr_database_transport_new(billing->store, &link, &billing->transport, err));
    TRY(pr_transport_open(billing->transport, BUSY_MS, err));
    /* before the first message comes: a topic that reaches nobody is refused */
    TRY(pr_transport_topology(billing->transport, &subscribe, /* check_only= */ false, err));
    pr_endpoint_options opt =
        PR_ENDPOINT_OPTIONS(.id = "billing", .types = types, .type_count = 1,
                            .contracts = billing->contracts, .handler = bill,
                            .backoff_initial_ms = RETRY_MS, .lease_ms = LEASE_MS,
                            .poll_ms = POLL_MS, .concurrency = 1, .owner = "demo billing");
    TRY(pr_endpoint_new(billing->store, billing->transport, &opt, &billing->endpoint, err));
    if (pthread_create(&billing->thread, NULL, run, billing) != 0)
        return pr__fail(err, PR_E_BACKEND, "demo", "cannot start a thread");
    billing->thread_started = true;
    return PR_OK;
}

void pr__billing_done(pr__billing *billing)
{
    if (billing->thread_started) {
        pr_endpoint_stop(billing->endpoint);
        pthread_join(billing->thread, NULL);
    }
    billing->thread_started = false;
    billing->endpoint = pr_endpoint_free(billing->endpoint);
    billing->transport = pr_transport_free(billing->transport);
    billing->store = pr_store_free(billing->store);
    billing->contracts = pr_contracts_free(billing->contracts);
}
