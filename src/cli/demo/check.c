/*
 * The reconciliation: what must be true of both databases afterwards, asked by plain SQL.
 *
 * It uses nothing of the library and fresh connections that only read, so that it would also find
 * what the library gets wrong. Messages of other types are not its business.
 */
#include <unistd.h>

#include "base/error.h"
#include "cli/demo/copy.h"
#include "cli/demo/demo.h"
#include "cli/store_name.h"

#define ORIGIN  "demo"
#define OF_TYPE " type = '" PR__DEMO_TYPE "'"
#define ORDER   "json_extract(CAST(body AS TEXT), '$.order')"

typedef enum rule {
    RULE_NONE = 0, /* told, not judged */
    RULE_ZERO,
    RULE_POSITIVE,
    RULE_COMMITTED /* as many as orders were committed */
} rule;

typedef struct question {
    const char *key;
    const char *text;
    const char *sql; /* orders.db is main, billing.db is billing */
    rule rule;
} question;

enum { COMMITTED = 1 };

static const question questions[PR__CHECK_COUNT] = {
    {"orders_placed", "orders placed", "SELECT orders_attempted FROM demo_run", RULE_POSITIVE},
    {"orders_committed", "orders committed", "SELECT count(*) FROM orders", RULE_POSITIVE},
    {"orders_rolled_back", "orders rolled back on purpose",
     "SELECT orders_attempted - (SELECT count(*) FROM orders) FROM demo_run", RULE_NONE},
    {"published", "messages published",
     "SELECT count(*) FROM postroom_outbox_state WHERE reader = 1 AND" OF_TYPE
     " AND state = 'published'",
     RULE_COMMITTED},
    {"delivered", "deliveries to billing",
     "SELECT (SELECT count(*) FROM billing.postroom_outbox WHERE" OF_TYPE ")"
     " + (SELECT delivered FROM billing.demo_broker)",
     RULE_POSITIVE},
    {"duplicates_absorbed", "duplicates absorbed by the inbox",
     "SELECT (SELECT count(*) - count(DISTINCT message_id) FROM billing.postroom_outbox"
     " WHERE" OF_TYPE ") + (SELECT duplicates FROM billing.demo_broker)"
     " - (SELECT count(*) - count(DISTINCT order_number) FROM billing.invoices)",
     RULE_POSITIVE},
    {"handled", "orders billed", "SELECT count(DISTINCT order_number) FROM billing.invoices",
     RULE_COMMITTED},
    {"lost", "lost: committed, never billed",
     "SELECT count(*) FROM orders WHERE number NOT IN (SELECT order_number FROM billing.invoices)",
     RULE_ZERO},
    {"ghosts", "ghosts: billed or sent, never committed",
     "SELECT (SELECT count(*) FROM billing.invoices"
     "        WHERE order_number NOT IN (SELECT number FROM orders))"
     " + (SELECT count(*) FROM main.postroom_outbox WHERE" OF_TYPE "    AND coalesce(" ORDER
     " NOT IN (SELECT number FROM orders), 1))"
     " + (SELECT count(*) FROM billing.postroom_outbox WHERE" OF_TYPE "    AND coalesce(" ORDER
     " NOT IN (SELECT number FROM orders), 1))",
     RULE_ZERO},
    {"billed_twice", "billed twice",
     "SELECT count(*) - count(DISTINCT order_number) FROM billing.invoices", RULE_ZERO},
    {"altered", "billed with other content",
     "SELECT count(*) FROM billing.invoices AS i JOIN orders AS o ON o.number = i.order_number"
     " WHERE (i.customer, i.seq, i.amount_cents) <> (o.customer, o.seq, o.amount_cents)",
     RULE_ZERO},
    {"order_violations", "order violations per customer",
     "SELECT count(*) FROM (SELECT seq, lag(seq) OVER (PARTITION BY customer ORDER BY id) AS before"
     " FROM billing.invoices) WHERE before IS NOT NULL AND seq < before",
     RULE_ZERO},
    {"unfinished", "unfinished",
     "SELECT (SELECT count(*) FROM main.postroom_outbox_state WHERE reader = 1 AND" OF_TYPE
     " AND state NOT IN ('published', 'dead'))"
     " + (SELECT count(*) FROM billing.postroom_outbox_state WHERE reader <> 1 AND" OF_TYPE
     " AND state NOT IN ('published', 'dead'))"
     " + (SELECT count(*) FROM billing.postroom_inbox_parked WHERE" OF_TYPE " AND state <> 'dead')",
     RULE_ZERO},
    {"dead", "dead",
     "SELECT (SELECT count(*) FROM main.postroom_outbox_parked WHERE" OF_TYPE " AND state = 'dead')"
     " + (SELECT count(*) FROM billing.postroom_outbox_parked WHERE" OF_TYPE " AND state = 'dead')"
     " + (SELECT count(*) FROM billing.postroom_inbox_parked WHERE" OF_TYPE " AND state = 'dead')",
     RULE_ZERO},
};

const char *pr__check_key(size_t index)
{
    return index < PR__CHECK_COUNT ? questions[index].key : NULL;
}

const char *pr__check_text(size_t index)
{
    return index < PR__CHECK_COUNT ? questions[index].text : NULL;
}

static bool is_right(const pr__check *check, size_t index)
{
    int64_t value = check->values[index];
    switch (questions[index].rule) {
    case RULE_NONE:
        return true;
    case RULE_ZERO:
        return value == 0;
    case RULE_POSITIVE:
        return value > 0;
    case RULE_COMMITTED:
        return value == check->values[COMMITTED];
    }
    return false;
}

/* Both files, read-only, in one connection. */
static pr_status open_files(const char *orders_path, const char *billing_path, pr__demo_db *ret_db,
                            pr_error *err)
{
    const char *params[] = {billing_path};
    if (access(orders_path, F_OK) != 0 || access(billing_path, F_OK) != 0)
        return pr__fail(err, PR_E_NOT_FOUND, ORIGIN,
                        "there is no '%s' or no '%s'; make them with: postroom demo", orders_path,
                        billing_path);
    TRY(pr__demo_open(orders_path, /* read_only= */ true, ret_db, err));
    pr_status status = pr__demo_query(ret_db, "ATTACH $1 AS billing", params, 1, NULL, NULL, err);
    if (status != PR_OK)
        pr__demo_close(ret_db);
    return status;
}

static pr_status ask_all(const pr__demo_db *db, pr__check *check, pr_error *err)
{
    check->ok = true;
    for (size_t i = 0; i < PR__CHECK_COUNT; i++)
        TRY(pr__demo_number(db, questions[i].sql, NULL, 0, &check->values[i], err));
    for (size_t i = 0; i < PR__CHECK_COUNT; i++) {
        check->right[i] = is_right(check, i);
        check->ok = check->ok && check->right[i];
    }
    return PR_OK;
}

pr_status pr__check_run(const char *orders_store, const char *billing_store, pr__check *ret_check,
                        pr_error *err)
{
    pr__demo_db db = {NULL, NULL};
    const char *orders_path = pr__store_path(orders_store);
    const char *billing_path = pr__store_path(billing_store);
    if (orders_path && billing_path)
        TRY(open_files(orders_path, billing_path, &db, err));
    else
        TRY(pr__demo_copy(orders_store, billing_store, &db.sqlite, err));
    pr_status status = ask_all(&db, ret_check, err);
    pr__demo_close(&db);
    return status;
}
