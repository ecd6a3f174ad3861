/*
 * Delayed messages, and when the next parked row is due.
 *
 * Invariant: a delayed message is promoted by one commit that inserts it into the log and deletes
 * the parked row; its place in the order is that of its due time.
 */
#include "base/error.h"
#include "base/fault.h"
#include "store/sqlite/row.h"
#include "store/sqlite/store.h"

#define ORIGIN "sqlite.delayed"

#define WAITS  "reader = 0 AND state IN ('delayed', 'failed') AND NOT operator_hold"

static const char SQL_DUE[] = "SELECT place FROM {p}_outbox_parked WHERE " WAITS
                              " AND next_attempt_at <= ?1 ORDER BY next_attempt_at, place LIMIT 1";
static const char SQL_NEXT[] = "SELECT next_attempt_at FROM {p}_outbox_parked WHERE " WAITS
                               " ORDER BY next_attempt_at LIMIT 1";
static const char SQL_INSERT[] =
    "INSERT INTO {p}_outbox (" PR__MESSAGE_COLUMNS ") SELECT " PR__MESSAGE_COLUMNS
    " FROM {p}_outbox_parked WHERE place = ?1";
static const char SQL_DELETE[] = "DELETE FROM {p}_outbox_parked WHERE place = ?1";

static pr_status promote_due(pr__sqlite_store *store, uint32_t max, int64_t now,
                             uint32_t *ret_count, pr_error *err)
{
    pr__sqlite_conn *conn = &store->conn;
    for (*ret_count = 0; *ret_count < max; (*ret_count)++) {
        int64_t place = 0;
        bool found = false;
        TRY(pr__sqlite_int(conn, SQL_DUE, &place, &found, err, "i", now));
        if (!found)
            return PR_OK;
        int64_t changes = 0;
        TRY(pr__sqlite_run(conn, SQL_INSERT, &changes, err, "i", place));
        TRY(pr__sqlite_wrote_one(conn, changes, "outbox", err));
        TRY(pr__sqlite_run(conn, SQL_DELETE, &changes, err, "i", place));
        TRY(pr__sqlite_wrote_one(conn, changes, "outbox_parked", err));
    }
    return PR_OK;
}

static pr_status promote(pr__sqlite_store *store, uint32_t max, int64_t now, uint32_t *ret_count,
                         pr_error *err)
{
    TRY(pr__sqlite_begin(&store->conn, /* write= */ true, err));
    pr_status status = promote_due(store, max, now, ret_count, err);
    PR_FAULT("store.before_promote_commit");
    status = pr__sqlite_end(&store->conn, status, err);
    PR_FAULT("store.after_promote_commit");
    return status;
}

pr_status pr__sqlite_promote(pr_store *base, uint32_t max, uint32_t *ret_count,
                             int64_t *ret_next_ms, pr_error *err)
{
    pr__sqlite_store *store = pr__sqlite_store_of(base);
    TRY(pr__sqlite_ready(store, err));
    int64_t now = pr__sqlite_now(base);
    int64_t place = 0;
    uint32_t count = 0;
    bool found = false;
    TRY(pr__sqlite_int(&store->conn, SQL_DUE, &place, &found, err, "i", now));
    if (found)
        TRY(promote(store, max, now, &count, err));
    int64_t next = 0;
    TRY(pr__sqlite_int(&store->conn, SQL_NEXT, &next, &found, err, ""));
    *ret_next_ms = found ? pr__sqlite_wait_ms(now, next) : -1;
    *ret_count = count;
    return PR_OK;
}

static const char SQL_UNCHARGED[] =
    "SELECT count(*) FROM {p}_outbox_parked WHERE reader = ?1 AND lane = ?2 AND attempts = 0 AND "
    "state IN ('failed', 'held')";

pr_status pr__sqlite_parked_count(pr_store *base, int64_t reader, uint32_t lane,
                                  uint32_t *ret_count, pr_error *err)
{
    pr__sqlite_store *store = pr__sqlite_store_of(base);
    TRY(pr__sqlite_ready(store, err));
    int64_t count = 0;
    TRY(pr__sqlite_int(&store->conn, SQL_UNCHARGED, &count, NULL, err, "ii", reader,
                       (int64_t)lane));
    *ret_count = (uint32_t)count;
    return PR_OK;
}
