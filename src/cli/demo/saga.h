/*
 * The parts of `postroom demo --saga`: an order goes through stock, payment and shipping, by a saga
 * that makes up for a refused payment; the workers that run all four are killed at random.
 */
#ifndef PR_CLI_DEMO_SAGA_H
#define PR_CLI_DEMO_SAGA_H

#include <stdbool.h>
#include <stdint.h>

#include <postroom/endpoint.h>
#include <postroom/saga.h>

#include "cli/cli.h"
#include "cli/demo/sql.h"

#define PR__SAGA_NAME         "order"
#define PR__SAGA_PLACED       "urn:message:demo:order-placed"
#define PR__SAGA_RESERVE      "urn:message:demo:stock-reserve" /* commands */
#define PR__SAGA_RELEASE      "urn:message:demo:stock-release"
#define PR__SAGA_CHARGE       "urn:message:demo:payment-charge"
#define PR__SAGA_SHIP         "urn:message:demo:shipping-ship"
#define PR__SAGA_RESERVED     "urn:message:demo:stock-reserved" /* what came of them */
#define PR__SAGA_RELEASED     "urn:message:demo:stock-released"
#define PR__SAGA_CHARGED      "urn:message:demo:payment-charged"
#define PR__SAGA_REFUSED      "urn:message:demo:payment-refused"
#define PR__SAGA_SHIPPED      "urn:message:demo:shipping-shipped"
#define PR__SAGA_TIMEOUT      "urn:message:demo:order-timeout"

#define PR__SAGA_REFUSE_EVERY 3  /* so many orders, of which payment refuses one */
#define PR__SAGA_SILENT_EVERY 20 /* so many charges, of which the first try is never answered */

/* The body of all of them. */
typedef struct pr__saga_order {
    int64_t number;
    const char *customer;
    const char *article;
    int64_t quantity;
    int64_t amount_cents;
    int64_t attempt; /* of a charge, from 1 */
} pr__saga_order;

/* Enqueue one in the unit, in order with the others of its order. */
pr_status pr__saga_tell(pr_unit *unit, const char *type, const pr__saga_order *order,
                        pr_error *err);
/* *ret_contracts is the caller's. */
pr_status pr__saga_contracts(pr_contracts **ret_contracts, pr_error *err);
/* The saga; *ret_saga is the caller's, to be freed before the contracts. */
pr_status pr__saga_make(pr_contracts *contracts, pr_saga **ret_saga, pr_error *err);

/* ---- the services ---- */

pr_handled pr__saga_stock(void *user, pr_scope *scope);
pr_handled pr__saga_payment(void *user, pr_scope *scope);
pr_handled pr__saga_shipping(void *user, pr_scope *scope);
/* Their tables, with what they hold at the beginning; and the queues of all four. */
pr_status pr__saga_tables(const char *store, uint64_t orders, pr_error *err);

/* ---- the processes ---- */

/* Place the orders, one transaction each. */
pr_status pr__saga_shop(const char *store, uint64_t orders, pr_error *err);
/* Run all four services until a signal comes. make_queues: only subscribe, and return. */
pr_status pr__saga_worker(const char *store, bool make_queues, pr_error *err);

/* ---- the reconciliation ---- */

#define PR__SAGA_CHECK_COUNT 17

typedef struct pr__saga_check {
    int64_t values[PR__SAGA_CHECK_COUNT];
    bool right[PR__SAGA_CHECK_COUNT];
    bool ok;
} pr__saga_check;

/* Ask the database by plain SQL. */
pr_status pr__saga_reconcile(const char *store, pr__saga_check *ret_check, pr_error *err);
const char *pr__saga_check_key(size_t index); /* NULL beyond the last */
const char *pr__saga_check_text(size_t index);

/* ---- the whole ---- */

typedef struct pr__saga_demo {
    pr__cli *cli;
    const char *store;
    const char *place; /* where it stays, for people */
    uint64_t orders;
    uint32_t kills;
} pr__saga_demo;

pr__exit pr__saga_demo_run(const pr__saga_demo *demo);
/* Only reconcile the database of an earlier one. */
pr__exit pr__saga_demo_check(const pr__saga_demo *demo);

#endif
