/*
 * Runs the saga and its three services on one bus, in one process and one database, until two
 * orders have ended: one is shipped, one is refused by payment and compensated.
 */
#include <stdio.h>
#include <stdlib.h>

#include <sqlite3.h>

#include <postroom/sqlite.h>

#include "order_saga.h"

static void must(pr_status status, const char *what, const pr_error *err)
{
    if (status == PR_OK)
        return;
    fprintf(stderr, "%s: %s (%s)\n", what, err->message, pr_status_text(status));
    exit(EXIT_FAILURE);
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

static void place(pr_bus *bus, int64_t number, int64_t cents, pr_error *err)
{
    pr_unit *unit = NULL;
    order_message order = {.order = number, .cents = cents};
    must(pr_unit_begin(pr_bus_store(bus), &unit, err), "begin", err);
    must(order_send(unit, ORDER_PLACED, &order, err), "send", err);
    must(pr_unit_commit(unit, NULL, err), "commit", err);
    pr_unit_free(unit);
    must(pr_bus_wait_idle(bus, 60000, err), "wait", err); /* all that follows from it */
}

int main(void)
{
    static const char *const order_types[] = {ORDER_PLACED, RESERVED, RELEASED,     CHARGED,
                                              REFUSED,      SHIPPED,  ORDER_TIMEOUT};
    static const char *const stock_types[] = {RESERVE, RELEASE};
    pr_error err = PR_ERROR_INIT;
    pr_contracts *contracts = NULL;
    pr_saga *saga = NULL;
    pr_bus *bus = NULL;
    must(pr_contracts_new(&contracts, &err), "contracts", &err);
    must(order_contracts(contracts, &err), "contracts", &err);
    must(order_saga(contracts, &saga, &err), "saga", &err);
    const pr_bus_options options = PR_BUS_OPTIONS(.contracts = contracts);
    must(pr_bus_open(pr_sqlite_open, "shop.db", &options, &bus, &err), "open", &err);
    run_sql("CREATE TABLE stock (pieces INTEGER); INSERT INTO stock VALUES (10);"
            "CREATE TABLE charges (number INTEGER PRIMARY KEY, cents INTEGER);"
            "CREATE TABLE shipments (number INTEGER)",
            NULL);
    const pr_endpoint_options order =
        PR_ENDPOINT_OPTIONS(.id = "order", .types = order_types, .type_count = 7,
                            .handler = pr_saga_handle, .user = saga);
    const pr_endpoint_options stock = PR_ENDPOINT_OPTIONS(.id = "stock", .types = stock_types,
                                                          .type_count = 2, .handler = stock_handle);
    must(pr_bus_add_endpoint(bus, &order, NULL, &err), "order", &err);
    must(pr_bus_add_endpoint(bus, &stock, NULL, &err), "stock", &err);
    must(pr_bus_on(bus, "payment", CHARGE, payment_handle, NULL, &err), "payment", &err);
    must(pr_bus_on(bus, "shipping", SHIP, shipping_handle, NULL, &err), "shipping", &err);
    must(pr_bus_start(bus, &err), "start", &err);
    place(bus, 1, 4200, &err);
    place(bus, 2, 99900, &err);
    run_sql("SELECT pieces, (SELECT sum(cents) FROM charges) AS cents, "
            "(SELECT count(*) FROM shipments) AS shipments FROM stock",
            print_row);
    pr_bus_free(bus);
    pr_saga_free(saga);
    pr_contracts_free(contracts);
    return EXIT_SUCCESS;
}
