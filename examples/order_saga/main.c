/*
 * Runs the saga and its three services in one process, on one database, until two orders have
 * ended: one is shipped, one is refused by payment and compensated.
 */
#include <stdio.h>
#include <stdlib.h>

#include <sqlite3.h>

#include <postroom/database.h>
#include <postroom/sqlite.h>

#include "order_saga.h"

#define SERVICES 4

static void must(pr_status status, const char *what, const pr_error *err)
{
    if (status == PR_OK)
        return;
    fprintf(stderr, "%s: %s (%s)\n", what, err->message, pr_status_text(status));
    exit(EXIT_FAILURE);
}

static pr_store *open_store(pr_error *err)
{
    pr_store *store = NULL;
    pr_sqlite_options options =
        PR_SQLITE_OPTIONS(.path = "shop.db", .create = true, .schema_check_off = true);
    /* messages are read where they are written, by the endpoints on this very database */
    pr_migrate_options migrate = {.size = (uint32_t)sizeof(migrate), .default_transport = "local"};
    must(pr_sqlite_store_open(&options, &store, err), "open", err);
    must(pr_store_migrate(store, &migrate, NULL, err), "migrate", err);
    return store;
}

static void run_sql(const char *sql, sqlite3_callback row)
{
    sqlite3 *db = NULL;
    if (sqlite3_open("shop.db", &db) != SQLITE_OK ||
        sqlite3_exec(db, sql, row, NULL, NULL) != SQLITE_OK)
        exit(EXIT_FAILURE);
    sqlite3_close(db);
}

static int print_row(void *user, int count, char **values, char **names)
{
    (void)user;
    for (int i = 0; i < count; i++)
        printf("%s %s%s", names[i], values[i], i + 1 < count ? ", " : "\n");
    return 0;
}

static void place(pr_store *store, int64_t number, int64_t cents, pr_error *err)
{
    pr_unit *unit = NULL;
    order_message order = {.order = number, .cents = cents};
    must(pr_unit_begin(store, &unit, err), "begin", err);
    must(order_send(unit, ORDER_PLACED, &order, err), "send", err);
    must(pr_unit_commit(unit, NULL, err), "commit", err);
    pr_unit_free(unit);
}

int main(void)
{
    static const char *const order_types[] = {ORDER_PLACED, RESERVED, RELEASED,     CHARGED,
                                              REFUSED,      SHIPPED,  ORDER_TIMEOUT};
    static const char *const stock_types[] = {RESERVE, RELEASE};
    static const char *const payment_types[] = {CHARGE};
    static const char *const shipping_types[] = {SHIP};
    pr_error err = PR_ERROR_INIT;
    pr_contracts *contracts = NULL;
    pr_saga *saga = NULL;
    pr_transport *transports[SERVICES];
    pr_endpoint *endpoints[SERVICES];
    pr_store *store = open_store(&err);
    must(pr_contracts_new(&contracts, &err), "contracts", &err);
    must(order_contracts(contracts, &err), "contracts", &err);
    must(order_saga(contracts, &saga, &err), "saga", &err);
    run_sql("CREATE TABLE stock (pieces INTEGER); INSERT INTO stock VALUES (10);"
            "CREATE TABLE charges (number INTEGER PRIMARY KEY, cents INTEGER);"
            "CREATE TABLE shipments (number INTEGER)",
            NULL);
    const struct {
        const char *id;
        const char *const *types;
        size_t type_count;
        pr_handler handler;
    } services[SERVICES] = {{"order", order_types, 7, pr_saga_handle},
                            {"stock", stock_types, 2, stock_handle},
                            {"payment", payment_types, 1, payment_handle},
                            {"shipping", shipping_types, 1, shipping_handle}};
    int64_t wait_ms = 0;
    for (int i = 0; i < SERVICES; i++) {
        pr_endpoint_options options =
            PR_ENDPOINT_OPTIONS(.id = services[i].id, .types = services[i].types,
                                .type_count = services[i].type_count, .contracts = contracts,
                                .handler = services[i].handler, .user = saga, .poll_ms = 1);
        must(pr_database_transport_new(store, NULL, &transports[i], &err), "transport", &err);
        must(pr_endpoint_new(store, transports[i], &options, &endpoints[i], &err), "new", &err);
        must(pr_endpoint_step(endpoints[i], &wait_ms, &err), "subscribe", &err);
    }
    const int64_t cents[] = {4200, 99900}; /* of two orders */
    for (uint64_t i = 0; i < 2; i++) {
        pr_saga_snapshot seen = {.size = (uint32_t)sizeof(seen)};
        place(store, (int64_t)i + 1, cents[i], &err);
        while (seen.completed <= i) {
            for (int k = 0; k < SERVICES; k++)
                must(pr_endpoint_step(endpoints[k], &wait_ms, &err), "step", &err);
            must(pr_saga_snapshot_get(saga, &seen, &err), "snapshot", &err);
        }
    }
    run_sql("SELECT pieces, (SELECT sum(cents) FROM charges) AS cents, "
            "(SELECT count(*) FROM shipments) AS shipments FROM stock",
            print_row);
    for (int i = 0; i < SERVICES; i++) {
        pr_endpoint_free(endpoints[i]);
        pr_transport_free(transports[i]);
    }
    pr_saga_free(saga);
    pr_contracts_free(contracts);
    pr_store_free(store);
    return EXIT_SUCCESS;
}
