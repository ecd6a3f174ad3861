/*
 * The shop of the demo: a host program that keeps its orders in a database of its own.
 *
 * Each order is one transaction on the shop's own connection, and its message is written in the
 * same transaction by joining a unit to it: they commit together or not at all.
 */
#include <postroom/unit.h>

#include "base/error.h"
#include "base/memory.h"
#include "base/text.h"
#include "cli/demo/demo.h"
#include "cli/wiring.h"

#define CUSTOMERS      40
#define BUSY_MS        10000
#define ROLLBACK_EVERY 10
#define ROLLBACK_AT    7

static pr_status make_tables(pr__shop *shop, uint64_t orders, pr_error *err)
{
    char sql[128];
    TRY(pr__demo_exec(&shop->db,
                      "CREATE TABLE orders (number INTEGER PRIMARY KEY, customer TEXT NOT NULL,"
                      " seq INTEGER NOT NULL, amount_cents INTEGER NOT NULL);"
                      "CREATE INDEX orders_of_customer ON orders (customer);"
                      "CREATE TABLE demo_run (orders_attempted INTEGER NOT NULL);",
                      err));
    pr__format(sql, sizeof(sql), "INSERT INTO demo_run VALUES (%llu)", (unsigned long long)orders);
    return pr__demo_exec(&shop->db, sql, err);
}

pr_status pr__shop_open(const char *store, uint64_t orders, pr__shop *ret_shop, pr_error *err)
{
    pr__common common = {.store = store, .busy_ms = BUSY_MS};
    pr__store_request request = {.common = &common, .create = true};
    pr_migrate_options opt = {.size = (uint32_t)sizeof(opt),
                              .default_transport = PR__DEMO_TRANSPORT};
    TRY(pr__wiring_store(&request, &ret_shop->store, err));
    TRY(pr_store_migrate(ret_shop->store, &opt, NULL, err));
    TRY(pr__demo_open(store, /* read_only= */ false, &ret_shop->db, err));
    TRY(pr__demo_contracts(&ret_shop->contracts, err));
    return make_tables(ret_shop, orders, err);
}

void pr__shop_done(pr__shop *shop)
{
    pr__demo_close(&shop->db);
    pr_store_free(shop->store);
    pr_contracts_free(shop->contracts);
}

/* The business part: the row of the order. */
static pr_status insert_order(pr__shop *shop, pr__order *order, pr_error *err)
{
    char number[24], seq[24], amount[24];
    TRY(pr__demo_number(&shop->db, "SELECT count(*) + 1 FROM orders WHERE customer = $1",
                        &order->customer, 1, &order->seq, err));
    pr__format(number, sizeof(number), "%lld", (long long)order->number);
    pr__format(seq, sizeof(seq), "%lld", (long long)order->seq);
    pr__format(amount, sizeof(amount), "%lld", (long long)order->amount_cents);
    const char *params[] = {number, order->customer, seq, amount};
    return pr__demo_query(&shop->db, "INSERT INTO orders VALUES ($1, $2, $3, $4)", params, 4, NULL,
                          NULL, err);
}

/* The message, in the same transaction, and then the end of it: commit, or rollback on purpose. */
static pr_status finish_order(pr__shop *shop, const pr__order *order, bool keep, pr_error *err)
{
    AUTO(void) body = NULL;
    size_t body_size = 0;
    pr_unit *unit = NULL;
    TRY(pr_contract_encode(pr_contracts_find(shop->contracts, PR__DEMO_TYPE, 1), order, &body,
                           &body_size, err));
    pr_message message =
        PR_MESSAGE(.type = PR__DEMO_TYPE, .type_version = 1, .key = order->customer,
                   .source = "shop", .body = body, .body_size_bytes = body_size);
    TRY(pr__demo_join(shop->store, &shop->db, &unit, err));
    pr_status status = pr_unit_enqueue(unit, &message, NULL, err);
    if (status == PR_OK)
        status = pr__demo_exec(&shop->db, keep ? "COMMIT" : "ROLLBACK", err);
    if (status == PR_OK)
        status =
            pr_unit_finished(unit, keep ? PR_OUTCOME_COMMITTED : PR_OUTCOME_NOT_COMMITTED, err);
    pr_unit_free(unit);
    return status;
}

pr_status pr__shop_place(pr__shop *shop, pr_error *err)
{
    char customer[32];
    uint64_t number = shop->placed + 1;
    bool keep = number % ROLLBACK_EVERY != ROLLBACK_AT;
    pr__format(customer, sizeof(customer), "customer-%02llu",
               (unsigned long long)(number * 17 % CUSTOMERS));
    pr__order order = {.number = (int64_t)number,
                       .customer = customer,
                       .amount_cents = (int64_t)(number * 37 % 10000 + 100)};
    TRY(pr__demo_begin(&shop->db, err));
    pr_status status = insert_order(shop, &order, err);
    if (status == PR_OK)
        status = finish_order(shop, &order, keep, err);
    if (status != PR_OK) {
        pr__demo_unlock(&shop->db);
        return status;
    }
    shop->placed++;
    if (keep)
        shop->committed++;
    else
        shop->rolled_back++;
    return PR_OK;
}
