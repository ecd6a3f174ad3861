/*
 * The reconciliation on PostgreSQL: two databases cannot be asked in one statement there, so what
 * counts is read from both by plain SQL into a scratch database in memory, and judged there by the
 * same statements as two SQLite files.
 */
#include "cli/demo/copy.h"

#include <sqlite3.h>

#include "base/error.h"

#define ORIGIN      "demo"
#define COLUMNS_MAX 8

typedef struct table {
    const char *make;   /* in the scratch database; billing's in the one attached as billing */
    const char *insert; /* a row of it */
    const char *select; /* from PostgreSQL */
} table;

#define BODY "convert_from(body, 'UTF8')"

static const table orders_tables[] = {
    {"CREATE TABLE demo_run (orders_attempted INTEGER)", "INSERT INTO demo_run VALUES (?1)",
     "SELECT orders_attempted FROM demo_run"},
    {"CREATE TABLE orders (number INTEGER PRIMARY KEY, customer TEXT, seq INTEGER,"
     " amount_cents INTEGER)",
     "INSERT INTO orders VALUES (?1, ?2, ?3, ?4)",
     "SELECT number, customer, seq, amount_cents FROM orders"},
    {"CREATE TABLE postroom_outbox (message_id TEXT, type TEXT, body TEXT)",
     "INSERT INTO postroom_outbox VALUES (?1, ?2, ?3)",
     "SELECT message_id, type, " BODY " FROM {t}outbox"},
    {"CREATE TABLE postroom_outbox_state (reader INTEGER, type TEXT, state TEXT)",
     "INSERT INTO postroom_outbox_state VALUES (?1, ?2, ?3)",
     "SELECT reader, type, state FROM {t}outbox_state"},
    {"CREATE TABLE postroom_outbox_parked (type TEXT, state TEXT)",
     "INSERT INTO postroom_outbox_parked VALUES (?1, ?2)",
     "SELECT type, state FROM {t}outbox_parked"},
};

static const table billing_tables[] = {
    {"CREATE TABLE billing.invoices (id INTEGER, order_number INTEGER, customer TEXT, seq INTEGER,"
     " amount_cents INTEGER)",
     "INSERT INTO billing.invoices VALUES (?1, ?2, ?3, ?4, ?5)",
     "SELECT id, order_number, customer, seq, amount_cents FROM invoices"},
    {"CREATE TABLE billing.demo_broker (delivered INTEGER, duplicates INTEGER)",
     "INSERT INTO billing.demo_broker VALUES (?1, ?2)",
     "SELECT delivered, duplicates FROM demo_broker"},
    {"CREATE TABLE billing.postroom_outbox (message_id TEXT, type TEXT, body TEXT)",
     "INSERT INTO billing.postroom_outbox VALUES (?1, ?2, ?3)",
     "SELECT message_id, type, " BODY " FROM {t}outbox"},
    {"CREATE TABLE billing.postroom_outbox_state (reader INTEGER, type TEXT, state TEXT)",
     "INSERT INTO billing.postroom_outbox_state VALUES (?1, ?2, ?3)",
     "SELECT reader, type, state FROM {t}outbox_state"},
    {"CREATE TABLE billing.postroom_outbox_parked (type TEXT, state TEXT)",
     "INSERT INTO billing.postroom_outbox_parked VALUES (?1, ?2)",
     "SELECT type, state FROM {t}outbox_parked"},
    {"CREATE TABLE billing.postroom_inbox_parked (type TEXT, state TEXT)",
     "INSERT INTO billing.postroom_inbox_parked VALUES (?1, ?2)",
     "SELECT type, state FROM {t}inbox_parked"},
};

/* Where the rows of one statement go. */
typedef struct sink {
    sqlite3_stmt *insert;
    bool failed;
} sink;

static void take_row(void *user, const char *const *columns, size_t count)
{
    sink *to = user;
    for (size_t i = 0; i < count && i < COLUMNS_MAX; i++)
        sqlite3_bind_text(to->insert, (int)i + 1, columns[i], -1, SQLITE_STATIC);
    to->failed = sqlite3_step(to->insert) != SQLITE_DONE || to->failed;
    sqlite3_reset(to->insert);
}

static pr_status copy_table(const pr__demo_db *from, sqlite3 *to, const table *of, pr_error *err)
{
    sink rows = {NULL, false};
    pr_status status = PR_OK;
    if (sqlite3_exec(to, of->make, NULL, NULL, NULL) != SQLITE_OK ||
        sqlite3_prepare_v2(to, of->insert, -1, &rows.insert, NULL) != SQLITE_OK)
        status = pr__fail(err, PR_E_BACKEND, ORIGIN, "scratch database: %s", sqlite3_errmsg(to));
    if (status == PR_OK)
        status = pr__demo_query(from, of->select, NULL, 0, take_row, &rows, err);
    sqlite3_finalize(rows.insert);
    if (status == PR_OK && rows.failed)
        status = pr__fail(err, PR_E_BACKEND, ORIGIN, "scratch database: %s", sqlite3_errmsg(to));
    return status;
}

static pr_status copy_all(const char *store, sqlite3 *to, const table *tables, size_t count,
                          pr_error *err)
{
    pr__demo_db from;
    TRY(pr__demo_open(store, /* read_only= */ true, &from, err));
    pr_status status = PR_OK;
    for (size_t i = 0; i < count && status == PR_OK; i++)
        status = copy_table(&from, to, &tables[i], err);
    pr__demo_close(&from);
    return status;
}

static pr_status fill(const char *orders_store, const char *billing_store, sqlite3 *to,
                      pr_error *err)
{
    if (sqlite3_exec(to, "ATTACH ':memory:' AS billing", NULL, NULL, NULL) != SQLITE_OK)
        return pr__fail(err, PR_E_BACKEND, ORIGIN, "scratch database: %s", sqlite3_errmsg(to));
    TRY(copy_all(orders_store, to, orders_tables, sizeof(orders_tables) / sizeof(orders_tables[0]),
                 err));
    return copy_all(billing_store, to, billing_tables,
                    sizeof(billing_tables) / sizeof(billing_tables[0]), err);
}

pr_status pr__demo_copy(const char *orders_store, const char *billing_store, sqlite3 **ret_db,
                        pr_error *err)
{
    sqlite3 *db = NULL;
    if (sqlite3_open(":memory:", &db) != SQLITE_OK) {
        sqlite3_close(db);
        return pr__fail_nomem(err, ORIGIN);
    }
    pr_status status = fill(orders_store, billing_store, db, err);
    if (status != PR_OK)
        sqlite3_close(db);
    else
        *ret_db = db;
    return status;
}
