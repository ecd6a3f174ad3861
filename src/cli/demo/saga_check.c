/*
 * The reconciliation of the saga demo: money and goods, asked by plain SQL on a connection of its
 * own. What a saga says of itself is not believed: the services' tables are counted.
 */
#include "base/error.h"
#include "cli/demo/saga.h"

typedef enum rule {
    RULE_NONE = 0, /* told, not judged */
    RULE_ZERO,
    RULE_POSITIVE
} rule;

typedef struct question {
    const char *key;
    const char *text;
    const char *sql;
    rule rule;
} question;

#define REFUSED_ORDERS "(SELECT number FROM orders WHERE number % 3 = 0)"

static const question questions[PR__SAGA_CHECK_COUNT] = {
    {"orders", "orders placed", "SELECT count(*) FROM orders", RULE_POSITIVE},
    {"shipped", "orders paid and shipped", "SELECT count(DISTINCT order_number) FROM shipments",
     RULE_POSITIVE},
    {"compensated", "orders refused by payment, stock given back",
     "SELECT count(DISTINCT order_number) FROM reservations WHERE state = 'released'",
     RULE_POSITIVE},
    {"timeouts_fired", "timeouts of payment that fired",
     "SELECT count(*) - count(DISTINCT key) FROM {t}outbox WHERE type = '" PR__SAGA_CHARGE "'",
     RULE_POSITIVE},
    {"missing_orders", "orders that the shop could not place",
     "SELECT orders - (SELECT count(*) FROM orders) FROM demo_run", RULE_ZERO},
    {"unfinished", "orders neither shipped nor given back",
     "SELECT count(*) FROM orders WHERE number NOT IN (SELECT order_number FROM shipments) AND "
     "number NOT IN (SELECT order_number FROM reservations WHERE state = 'released')",
     RULE_ZERO},
    {"wrongly_ended", "orders that ended the wrong way",
     "SELECT (SELECT count(*) FROM shipments WHERE order_number IN " REFUSED_ORDERS ") + (SELECT "
     "count(*) FROM reservations WHERE state = 'released' AND order_number NOT IN " REFUSED_ORDERS
     ")",
     RULE_ZERO},
    {"charged_twice", "charged twice",
     "SELECT count(*) - count(DISTINCT order_number) FROM payments", RULE_ZERO},
    {"shipped_twice", "shipped twice",
     "SELECT count(*) - count(DISTINCT order_number) FROM shipments", RULE_ZERO},
    {"reserved_twice", "reserved twice",
     "SELECT count(*) - count(DISTINCT order_number) FROM reservations", RULE_ZERO},
    {"money_difference", "difference in money, in cents",
     "SELECT sum(cents) - sum(at_first) FROM accounts", RULE_ZERO},
    {"income_difference", "difference of the shop's income",
     "SELECT (SELECT cents FROM accounts WHERE owner = 'the shop') - (SELECT "
     "coalesce(sum(amount_cents), 0) FROM orders WHERE number IN (SELECT order_number FROM "
     "shipments))",
     RULE_ZERO},
    {"stock_difference", "difference in stock, in pieces",
     "SELECT (SELECT sum(on_hand + reserved) - sum(at_first) FROM stock) + (SELECT "
     "coalesce(sum(quantity), 0) FROM shipments)",
     RULE_ZERO},
    {"still_reserved", "pieces still reserved", "SELECT sum(reserved) FROM stock", RULE_ZERO},
    {"sagas_running", "sagas that still run",
     "SELECT (SELECT count(*) FROM {t}saga WHERE completed_at IS NULL) + abs((SELECT count(*) FROM "
     "orders) - (SELECT count(*) FROM {t}saga))",
     RULE_ZERO},
    {"timeouts_open", "timeouts still open", "SELECT count(*) FROM {t}saga WHERE timeouts <> '[]'",
     RULE_ZERO},
    {"parked", "messages parked or dead", "SELECT count(*) FROM {t}inbox_parked", RULE_ZERO},
};

const char *pr__saga_check_key(size_t index)
{
    return index < PR__SAGA_CHECK_COUNT ? questions[index].key : NULL;
}

const char *pr__saga_check_text(size_t index)
{
    return index < PR__SAGA_CHECK_COUNT ? questions[index].text : NULL;
}

pr_status pr__saga_reconcile(const char *store, pr__saga_check *ret_check, pr_error *err)
{
    pr__demo_db db = {NULL, NULL};
    pr__saga_check check = {.ok = true};
    TRY(pr__demo_open(store, /* read_only= */ true, &db, err));
    pr_status status = PR_OK;
    for (size_t i = 0; status == PR_OK && i < PR__SAGA_CHECK_COUNT; i++) {
        status = pr__demo_number(&db, questions[i].sql, NULL, 0, &check.values[i], err);
        check.right[i] = questions[i].rule == RULE_NONE ||
                         (questions[i].rule == RULE_ZERO) == (check.values[i] == 0);
        check.ok = check.ok && check.right[i];
    }
    pr__demo_close(&db);
    if (status == PR_OK)
        *ret_check = check;
    return status;
}
