/*
 * The services of the saga demo: stock, payment and shipping, each with tables of its own, whose
 * rows are written in the unit of the delivery. They know nothing of the saga.
 *
 * Each answers a command that it has carried out before with what came of it, and does nothing
 * twice: payment is asked again when it does not answer in time.
 */
#include "base/error.h"
#include "base/text.h"
#include "cli/demo/saga.h"

#define ARTICLES  5
#define CUSTOMERS 20

/* A number as a parameter. */
typedef struct digits {
    char text[24];
} digits;

static digits digits_of(int64_t number)
{
    digits d = {""};
    pr__format(d.text, sizeof d.text, "%lld", (long long)number);
    return d;
}

/* Statements with the order's number, article, quantity, customer and amount as $1 to $5. */
static pr_status run_all(pr_scope *scope, const pr__saga_order *order, const char *const *sqls,
                         pr_error *err)
{
    const pr__demo_db db = pr__demo_of_unit(pr_scope_unit(scope));
    const digits number = digits_of(order->number);
    const digits quantity = digits_of(order->quantity);
    const digits amount = digits_of(order->amount_cents);
    const char *params[] = {number.text, order->article, quantity.text, order->customer,
                            amount.text};
    for (; *sqls; sqls++)
        TRY(pr__demo_query(&db, *sqls, params, 5, NULL, NULL, err));
    return PR_OK;
}

static pr_status count_of(pr_scope *scope, const pr__saga_order *order, const char *sql,
                          int64_t *ret_count, pr_error *err)
{
    const pr__demo_db db = pr__demo_of_unit(pr_scope_unit(scope));
    const digits number = digits_of(order->number);
    const char *params[] = {number.text};
    return pr__demo_number(&db, sql, params, 1, ret_count, err);
}

static pr_handled answer(pr_scope *scope, const char *type, pr_status status, pr_error *err)
{
    if (status == PR_OK)
        status = pr__saga_tell(pr_scope_unit(scope), type, pr_scope_object(scope), err);
    if (status == PR_OK)
        return PR_HANDLED_OK;
    pr_scope_fail(scope, err->message, -1);
    return PR_HANDLED_RETRY;
}

/* ---- stock ---- */

#define PARAMETERS                                                                                 \
    "SELECT CAST($1 AS integer) AS n, CAST($2 AS text) AS a, CAST($3 AS integer) AS q, "           \
    "CAST($4 AS text) AS c, CAST($5 AS integer) AS m"

static const char *const reserve[] = {
    "WITH p AS (" PARAMETERS ") INSERT INTO reservations (order_number, article, quantity, state) "
    "SELECT n, a, q, 'reserved' FROM p",
    "WITH p AS (" PARAMETERS ") UPDATE stock SET on_hand = on_hand - (SELECT q FROM p), reserved = "
    "reserved + (SELECT q FROM p) WHERE article = (SELECT a FROM p)",
    NULL,
};
static const char *const release[] = {
    "WITH p AS (" PARAMETERS ") UPDATE reservations SET state = 'released' WHERE order_number = "
    "(SELECT n FROM p)",
    "WITH p AS (" PARAMETERS ") UPDATE stock SET on_hand = on_hand + (SELECT q FROM p), reserved = "
    "reserved - (SELECT q FROM p) WHERE article = (SELECT a FROM p)",
    NULL,
};
static const char *const ship[] = {
    "WITH p AS (" PARAMETERS ") UPDATE reservations SET state = 'shipped' WHERE order_number = "
    "(SELECT n FROM p)",
    "WITH p AS (" PARAMETERS ") UPDATE stock SET reserved = reserved - (SELECT q FROM p) WHERE "
    "article = (SELECT a FROM p)",
    "WITH p AS (" PARAMETERS ") INSERT INTO shipments (order_number, article, quantity) SELECT n, "
    "a, q FROM p",
    NULL,
};

pr_handled pr__saga_stock(void *user, pr_scope *scope)
{
    const pr__saga_order *order = pr_scope_object(scope);
    bool giving = pr__text_equal(pr_scope_message(scope)->type, PR__SAGA_RELEASE);
    pr_error err = PR_ERROR_INIT;
    (void)user;
    pr_status status = run_all(scope, order, giving ? release : reserve, &err);
    return answer(scope, giving ? PR__SAGA_RELEASED : PR__SAGA_RESERVED, status, &err);
}

/* ---- payment ---- */

static const char *const pay[] = {
    "WITH p AS (" PARAMETERS ") INSERT INTO payments (order_number, customer, amount_cents, state) "
    "SELECT n, c, m, 'charged' FROM p",
    "WITH p AS (" PARAMETERS ") UPDATE accounts SET cents = cents - (SELECT m FROM p) WHERE owner "
    "= (SELECT c FROM p)",
    "WITH p AS (" PARAMETERS ") UPDATE accounts SET cents = cents + (SELECT m FROM p) WHERE owner "
    "= 'the shop'",
    NULL,
};
static const char *const refuse[] = {
    "WITH p AS (" PARAMETERS ") INSERT INTO payments (order_number, customer, amount_cents, state) "
    "SELECT n, c, 0, 'refused' FROM p",
    NULL,
};

pr_handled pr__saga_payment(void *user, pr_scope *scope)
{
    const pr__saga_order *order = pr_scope_object(scope);
    bool refused = order->number % PR__SAGA_REFUSE_EVERY == 0;
    pr_error err = PR_ERROR_INIT;
    int64_t before = 0;
    (void)user;
    if (order->number % PR__SAGA_SILENT_EVERY == 1 && order->attempt == 1)
        return PR_HANDLED_OK; /* it says nothing at all; the saga's timeout asks again */
    pr_status status = count_of(scope, order,
                                "SELECT count(*) FROM payments WHERE order_number = "
                                "CAST($1 AS integer)",
                                &before, &err);
    if (status == PR_OK && before == 0)
        status = run_all(scope, order, refused ? refuse : pay, &err);
    return answer(scope, refused ? PR__SAGA_REFUSED : PR__SAGA_CHARGED, status, &err);
}

/* ---- shipping ---- */

pr_handled pr__saga_shipping(void *user, pr_scope *scope)
{
    pr_error err = PR_ERROR_INIT;
    (void)user;
    pr_status status = run_all(scope, pr_scope_object(scope), ship, &err);
    return answer(scope, PR__SAGA_SHIPPED, status, &err);
}

/* ---- tables ---- */

/* No order is unique in payments and shipments: what is done twice would show. */
static const char make_tables[] =
    "CREATE TABLE orders (number integer PRIMARY KEY, customer text NOT NULL, article text NOT "
    "NULL, quantity integer NOT NULL, amount_cents integer NOT NULL);"
    "CREATE TABLE stock (article text PRIMARY KEY, on_hand integer NOT NULL, reserved integer NOT "
    "NULL, at_first integer NOT NULL);"
    "CREATE TABLE reservations (order_number integer NOT NULL, article text NOT NULL, quantity "
    "integer NOT NULL, state text NOT NULL);"
    "CREATE TABLE accounts (owner text PRIMARY KEY, cents integer NOT NULL, at_first integer NOT "
    "NULL);"
    "CREATE TABLE payments (order_number integer NOT NULL, customer text NOT NULL, amount_cents "
    "integer NOT NULL, state text NOT NULL);"
    "CREATE TABLE shipments (order_number integer NOT NULL, article text NOT NULL, quantity "
    "integer NOT NULL);"
    "CREATE TABLE demo_run (orders integer NOT NULL);"
    "CREATE INDEX payments_by_order ON payments (order_number);"
    "CREATE INDEX reservations_by_order ON reservations (order_number);";

static pr_status fill_tables(const pr__demo_db *db, uint64_t orders, pr_error *err)
{
    char sql[256];
    TRY(pr__demo_exec(db, make_tables, err));
    pr__format(sql, sizeof(sql), "INSERT INTO demo_run VALUES (%llu)", (unsigned long long)orders);
    TRY(pr__demo_exec(db, sql, err));
    TRY(pr__demo_exec(db, "INSERT INTO accounts VALUES ('the shop', 0, 0)", err));
    for (int i = 0; i < ARTICLES; i++) {
        pr__format(sql, sizeof(sql), "INSERT INTO stock VALUES ('article-%d', 1000000, 0, 1000000)",
                   i);
        TRY(pr__demo_exec(db, sql, err));
    }
    for (int i = 0; i < CUSTOMERS; i++) {
        pr__format(sql, sizeof(sql),
                   "INSERT INTO accounts VALUES ('customer-%d', 100000000, 100000000)", i);
        TRY(pr__demo_exec(db, sql, err));
    }
    return PR_OK;
}

pr_status pr__saga_tables(const char *store, uint64_t orders, pr_error *err)
{
    pr__demo_db db = {NULL, NULL};
    TRY(pr__demo_open(store, /* read_only= */ false, &db, err));
    pr_status status = fill_tables(&db, orders, err);
    pr__demo_close(&db);
    return status;
}
