/*
 * Delayed messages, and how many rows of a lane wait for a destination.
 *
 * Invariant: a delayed message is promoted by one commit that inserts it into the log and deletes
 * the parked row; its place in the order is that of its due time, by the database's clock.
 */
#include "base/error.h"
#include "base/fault.h"
#include "store/postgres/row.h"
#include "store/postgres/store.h"
#include "store/postgres/value.h"

#define ORIGIN   "postgres.delayed"
#define SQL_SIZE 1500

#define WAITS    "reader = 0 AND state IN ('delayed', 'failed') AND NOT operator_hold"

static const char SQL_PROMOTE[] =
    "WITH due AS MATERIALIZED (SELECT place FROM {p}outbox_parked WHERE " WAITS
    " AND next_attempt_at <= statement_timestamp() ORDER BY next_attempt_at, place LIMIT {l} FOR "
    "UPDATE SKIP LOCKED), "
    "gone AS (DELETE FROM {p}outbox_parked AS p USING due WHERE p.place = due.place RETURNING "
    "p.*), "
    "moved AS (INSERT INTO {p}outbox (" PR__PG_MESSAGE_COLUMNS ") SELECT " PR__PG_MESSAGE_COLUMNS
    " FROM gone ORDER BY next_attempt_at, place) SELECT count(*) FROM gone";
static const char SQL_NEXT[] =
    "SELECT pg_catalog.clock_timestamp(), (SELECT next_attempt_at FROM {p}outbox_parked "
    "WHERE " WAITS " ORDER BY next_attempt_at LIMIT 1)";

static pr_status look_next(pr__pg_store *store, int64_t *ret_next_ms, pr_error *err)
{
    AUTO_RESULT result = NULL;
    TRY(pr__pg_query(&store->conn, SQL_NEXT, &result, err, ""));
    *ret_next_ms = PQgetisnull(result, 0, 1) ? -1
                                             : pr__pg_wait_ms(pr__pg_value_instant(result, 0, 0),
                                                              pr__pg_value_instant(result, 0, 1));
    return PR_OK;
}

pr_status pr__pg_promote(pr_store *base, uint32_t max, uint32_t *ret_count, int64_t *ret_next_ms,
                         pr_error *err)
{
    pr__pg_store *store = pr__pg_store_of(base);
    int64_t count = 0;
    char sql[SQL_SIZE];
    TRY(pr__pg_ready(store, err));
    TRY(look_next(store, ret_next_ms, err));
    *ret_count = 0;
    if (*ret_next_ms != 0)
        return PR_OK;
    TRY(pr__pg_begin(&store->conn, err));
    pr__pg_with_limit(SQL_PROMOTE, max, sql, sizeof sql);
    pr_status status = pr__pg_int(&store->conn, sql, &count, NULL, err, "");
    PR_FAULT("store.before_promote_commit");
    status = pr__pg_end(&store->conn, status, err);
    PR_FAULT("store.after_promote_commit");
    TRY(status);
    store->own_writes++;
    *ret_count = (uint32_t)count;
    return look_next(store, ret_next_ms, err);
}

static const char SQL_UNCHARGED[] =
    "SELECT pg_catalog.count(*) FROM {p}outbox_parked WHERE reader = $1 AND lane = $2 AND attempts "
    "= 0 AND state IN ('failed', 'held')";

pr_status pr__pg_parked_count(pr_store *base, int64_t reader, uint32_t lane, uint32_t *ret_count,
                              pr_error *err)
{
    pr__pg_store *store = pr__pg_store_of(base);
    int64_t count = 0;
    TRY(pr__pg_ready(store, err));
    TRY(pr__pg_int(&store->conn, SQL_UNCHARGED, &count, NULL, err, "ii", reader, (int64_t)lane));
    *ret_count = (uint32_t)count;
    return PR_OK;
}
