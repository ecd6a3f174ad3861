/*
 * Stock, payment and shipping: each carries out its commands in the unit of the delivery, and
 * answers with an event in the same transaction. None of them knows the saga.
 */
#include <stdio.h>
#include <string.h>

#include <sqlite3.h>

#include <postroom/sqlite.h>

#include "order_saga.h"

/* Run a statement with the order's number and amount, and answer. */
static pr_handled carry_out(pr_scope *scope, const char *sql, const char *event)
{
    const order_message *order = pr_scope_object(scope);
    sqlite3 *db = pr_sqlite_unit_connection(pr_scope_unit(scope));
    sqlite3_stmt *stmt = NULL;
    pr_error err = PR_ERROR_INIT;
    int code = sqlite3_prepare_v2(db, sql, -1, &stmt, NULL);
    if (code == SQLITE_OK) {
        sqlite3_bind_int64(stmt, 1, order->order);
        sqlite3_bind_int64(stmt, 2, order->cents);
        code = sqlite3_step(stmt);
    }
    sqlite3_finalize(stmt);
    printf("order %lld: %s\n", (long long)order->order, strrchr(event, ':') + 1);
    if (code == SQLITE_DONE && order_send(pr_scope_unit(scope), event, order, &err) == PR_OK)
        return PR_HANDLED_OK;
    pr_scope_fail(scope, "it could not be carried out", -1);
    return PR_HANDLED_RETRY;
}

pr_handled stock_handle(void *user, pr_scope *scope)
{
    (void)user;
    if (strcmp(pr_scope_message(scope)->type, RELEASE) == 0)
        return carry_out(scope, "UPDATE stock SET pieces = pieces + 1 WHERE ?1 > 0 AND ?2 > 0",
                         RELEASED);
    return carry_out(scope, "UPDATE stock SET pieces = pieces - 1 WHERE ?1 > 0 AND ?2 > 0",
                     RESERVED);
}

/* The card takes up to 100.00; an order that was charged is not charged again. */
pr_handled payment_handle(void *user, pr_scope *scope)
{
    const order_message *order = pr_scope_object(scope);
    (void)user;
    if (order->cents > 10000)
        return carry_out(scope, "SELECT 1 WHERE ?1 < 0 AND ?2 < 0", REFUSED);
    return carry_out(scope, "INSERT INTO charges VALUES (?1, ?2) ON CONFLICT DO NOTHING", CHARGED);
}

pr_handled shipping_handle(void *user, pr_scope *scope)
{
    (void)user;
    return carry_out(scope, "INSERT INTO shipments SELECT ?1 WHERE ?2 > 0", SHIPPED);
}
