/*
 * The processes of the saga demo: a shop that places orders, and workers that run the saga and the
 * three services. They may be killed at any moment: what they have in hand is in the database.
 */
#include <postroom/database.h>

#include "base/error.h"
#include "base/text.h"
#include "base/time.h"
#include "cli/demo/demo.h"
#include "cli/demo/saga.h"
#include "cli/wiring.h"

#define BUSY_MS       20000
#define LEASE_MS      1000
#define IDLE_US       2000
#define CUSTOMERS     20
#define ARTICLES      5
#define SERVICE_COUNT 4

DEFINE_AUTO(pr_unit, pr_unit_free);

/* ---- the shop ---- */

static pr_status place(pr_store *store, const pr__demo_db *db, int64_t number, pr_error *err)
{
    char customer[32], article[32], sql[256];
    pr__format(customer, sizeof(customer), "customer-%d", (int)(number * 7 % CUSTOMERS));
    pr__format(article, sizeof(article), "article-%d", (int)(number % ARTICLES));
    pr__saga_order order = {.number = number,
                            .customer = customer,
                            .article = article,
                            .quantity = 1 + number % 4,
                            .amount_cents = 100 + number * 37 % 9000};
    pr__format(sql, sizeof(sql), "INSERT INTO orders VALUES (%lld, '%s', '%s', %lld, %lld)",
               (long long)number, customer, article, (long long)order.quantity,
               (long long)order.amount_cents);
    AUTO(pr_unit) unit = NULL;
    TRY(pr__demo_begin(db, err));
    TRY(pr__demo_exec(db, sql, err));
    TRY(pr__demo_join(store, db, &unit, err));
    TRY(pr__saga_tell(unit, PR__SAGA_PLACED, &order, err));
    TRY(pr__demo_exec(db, "COMMIT", err));
    return pr_unit_finished(unit, PR_OUTCOME_COMMITTED, err);
}

static pr_status open_store(const char *name, pr_store **ret_store, pr_error *err)
{
    pr__common common = {.store = name, .busy_ms = BUSY_MS};
    pr__store_request request = {.common = &common};
    return pr__wiring_store(&request, ret_store, err);
}

pr_status pr__saga_shop(const char *name, uint64_t orders, pr_error *err)
{
    AUTO(pr_store) store = NULL;
    pr__demo_db db = {NULL, NULL};
    TRY(open_store(name, &store, err));
    pr_status status = pr__demo_open(name, /* read_only= */ false, &db, err);
    for (uint64_t i = 1; status == PR_OK && i <= orders && !pr__demo_stopped(); i++)
        status = place(store, &db, (int64_t)i, err);
    pr__demo_close(&db);
    return status;
}

/* ---- a worker ---- */

typedef struct service {
    const char *id;
    const char *types[8];
    size_t type_count;
    pr_handler handler;
} service;

static const service services[SERVICE_COUNT] = {
    {"order",
     {PR__SAGA_PLACED, PR__SAGA_RESERVED, PR__SAGA_RELEASED, PR__SAGA_CHARGED, PR__SAGA_REFUSED,
      PR__SAGA_SHIPPED, PR__SAGA_TIMEOUT},
     7,
     pr_saga_handle},
    {"stock", {PR__SAGA_RESERVE, PR__SAGA_RELEASE}, 2, pr__saga_stock},
    {"payment", {PR__SAGA_CHARGE}, 1, pr__saga_payment},
    {"shipping", {PR__SAGA_SHIP}, 1, pr__saga_shipping},
};

typedef struct worker {
    pr_contracts *contracts;
    pr_saga *saga;
    pr_store *stores[SERVICE_COUNT];
    pr_transport *transports[SERVICE_COUNT];
    pr_endpoint *endpoints[SERVICE_COUNT];
} worker;

static pr_status open_service(worker *w, size_t i, const char *store, pr_error *err)
{
    const service *of = &services[i];
    pr_endpoint_options opt =
        PR_ENDPOINT_OPTIONS(.id = of->id, .types = of->types, .type_count = of->type_count,
                            .contracts = w->contracts, .handler = of->handler,
                            .user = i == 0 ? w->saga : NULL, .backoff_initial_ms = 100,
                            .lease_ms = LEASE_MS, .poll_ms = 1, .owner = "demo worker");
    TRY(open_store(store, &w->stores[i], err));
    TRY(pr_database_transport_new(w->stores[i], NULL, &w->transports[i], err));
    return pr_endpoint_new(w->stores[i], w->transports[i], &opt, &w->endpoints[i], err);
}

/* What fails here is tried again: the database may only be busy. */
static bool step_all(worker *w)
{
    bool idle = true;
    for (size_t i = 0; i < SERVICE_COUNT; i++) {
        int64_t wait_ms = 0;
        pr_status status = pr_endpoint_step(w->endpoints[i], &wait_ms, NULL);
        idle = idle && (status != PR_OK || wait_ms > 0);
    }
    return idle;
}

static pr_status make_queue(worker *w, size_t i, pr_error *err)
{
    pr_subscribe_options opt = {.size = (uint32_t)sizeof(opt),
                                .endpoint = services[i].id,
                                .types = services[i].types,
                                .type_count = services[i].type_count};
    TRY(pr_transport_open(w->transports[i], BUSY_MS, err));
    return pr_transport_topology(w->transports[i], &opt, /* check_only= */ false, err);
}

static void worker_done(worker *w)
{
    for (size_t i = 0; i < SERVICE_COUNT; i++) {
        pr_endpoint_free(w->endpoints[i]);
        pr_transport_free(w->transports[i]);
        pr_store_free(w->stores[i]);
    }
    pr_saga_free(w->saga);
    pr_contracts_free(w->contracts);
}

static pr_status worker_open(worker *w, const char *store, pr_error *err)
{
    TRY(pr__saga_contracts(&w->contracts, err));
    TRY(pr__saga_make(w->contracts, &w->saga, err));
    for (size_t i = 0; i < SERVICE_COUNT; i++)
        TRY(open_service(w, i, store, err));
    return PR_OK;
}

pr_status pr__saga_worker(const char *store, bool make_queues, pr_error *err)
{
    worker w = {.contracts = NULL};
    pr_status status = worker_open(&w, store, err);
    for (size_t i = 0; status == PR_OK && make_queues && i < SERVICE_COUNT; i++)
        status = make_queue(&w, i, err);
    while (status == PR_OK && !make_queues && !pr__demo_stopped()) {
        if (step_all(&w))
            pr__sleep_us(IDLE_US);
    }
    worker_done(&w);
    return status;
}
