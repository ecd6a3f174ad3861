/*
 * Settling and renewing parked rows that a batch holds.
 *
 * Invariant: every change of a claimed row is conditional on its token and state, and the row count
 * is looked at: a row that somebody took over keeps what they make of it.
 */
#include "base/error.h"
#include "base/fault.h"
#include "store/sqlite/parked.h"

#define MINE "WHERE reader = ?1 AND log_id = ?2 AND lock_token = ?3 AND state = 'processing'"

static const char SQL_PUBLISHED[] = "DELETE FROM {p}_outbox_parked " MINE;
static const char SQL_RELEASED[] =
    "UPDATE {p}_outbox_parked SET state = coalesce(resume_state, 'failed'), resume_state = NULL, "
    "lock_token = NULL, locked_until = NULL, owner = NULL " MINE;
static const char SQL_REPARKED[] =
    "UPDATE {p}_outbox_parked SET state = ?4, attempts = ?5, deferred = ?6, next_attempt_at = ?7, "
    "last_error = coalesce(?8, last_error), first_failed_at = coalesce(first_failed_at, ?9), "
    "suspicion = ?10, takeovers = 0, resume_state = NULL, lock_token = NULL, locked_until = NULL, "
    "owner = NULL " MINE;

static pr_status repark(pr__sqlite_store *store, const pr__batch *batch, const pr__item *item,
                        int64_t now, int64_t *ret_changes, pr_error *err)
{
    pr__park park = pr__park_of(item, now);
    int64_t suspicion = item->result == PR__RESULT_LOST ? item->suspicion : 0;
    if (park.failed || item->result == PR__RESULT_LOST)
        return pr__sqlite_run(&store->conn, SQL_REPARKED, ret_changes, err, "iittiiitii",
                              batch->reader, item->log_id, item->token, park.state, park.attempts,
                              (int64_t)park.deferred, park.next_attempt_at, park.error, now,
                              suspicion);
    return pr__sqlite_run(&store->conn, SQL_REPARKED, ret_changes, err, "iittiiitni", batch->reader,
                          item->log_id, item->token, park.state, park.attempts,
                          (int64_t)park.deferred, park.next_attempt_at, park.error, suspicion);
}

static pr_status settle_item(pr__sqlite_store *store, pr__batch *batch, pr__item *item, int64_t now,
                             pr__settle_report *report, pr_error *err)
{
    int64_t changes = 0;
    const char *sql = item->result == PR__RESULT_PUBLISHED ? SQL_PUBLISHED : SQL_RELEASED;
    if (item->result == PR__RESULT_PUBLISHED || item->result == PR__RESULT_OPEN)
        TRY(pr__sqlite_run(&store->conn, sql, &changes, err, "iit", batch->reader, item->log_id,
                           item->token));
    else
        TRY(repark(store, batch, item, now, &changes, err));
    item->fenced = changes == 0;
    if (item->fenced)
        report->fenced_items++;
    else
        pr__settle_report_count(report, item->result);
    return PR_OK;
}

static pr_status settle_items(pr__sqlite_store *store, pr__batch *batch, pr__settle_report *report,
                              pr_error *err)
{
    int64_t now = pr__sqlite_now(&store->base);
    for (uint32_t i = 0; i < batch->item_count; i++)
        TRY(settle_item(store, batch, &batch->items[i], now, report, err));
    return PR_OK;
}

static const char SQL_STILL_MINE[] = "SELECT 1 FROM {p}_outbox_parked " MINE;

/* Did a commit of unknown outcome take place? It did when a row that it changed has lost its token.
   */
static bool took_place(pr__sqlite_store *store, const pr__batch *batch)
{
    const pr__item *witness = NULL;
    for (uint32_t i = 0; i < batch->item_count && !witness; i++)
        if (!batch->items[i].fenced)
            witness = &batch->items[i];
    int64_t one = 0;
    bool found = true;
    return witness && pr__sqlite_reopen(store, NULL) == PR_OK &&
           pr__sqlite_int(&store->conn, SQL_STILL_MINE, &one, &found, NULL, "iit", batch->reader,
                          witness->log_id, witness->token) == PR_OK &&
           !found;
}

pr_status pr__sqlite_settle_parked(pr__sqlite_store *store, pr__batch *batch,
                                   pr__settle_report *report, pr_error *err)
{
    TRY(pr__sqlite_begin(&store->conn, /* write= */ true, err));
    pr_status status = settle_items(store, batch, report, err);
    if (status != PR_OK) {
        pr__sqlite_rollback(&store->conn);
        return status;
    }
    PR_FAULT("store.before_settle_parked_commit");
    pr_error found = PR_ERROR_INIT;
    status = pr__sqlite_commit(&store->conn, &found);
    PR_FAULT("store.after_settle_parked_commit");
    if (status != PR_OK && found.retry == PR_RETRY_UNKNOWN && took_place(store, batch))
        return PR_OK;
    pr__error_copy(err, &found);
    return status;
}

static const char SQL_RENEW[] = "UPDATE {p}_outbox_parked SET locked_until = ?4 " MINE;

static pr_status renew_items(pr__sqlite_store *store, pr__batch *batch, int64_t until,
                             pr_error *err)
{
    for (uint32_t i = 0; i < batch->item_count; i++) {
        pr__item *item = &batch->items[i];
        int64_t changes = 0;
        if (item->fenced)
            continue;
        TRY(pr__sqlite_run(&store->conn, SQL_RENEW, &changes, err, "iiti", batch->reader,
                           item->log_id, item->token, until));
        item->fenced = changes == 0;
    }
    return PR_OK;
}

pr_status pr__sqlite_renew_parked(pr__sqlite_store *store, pr__batch *batch, int64_t lease_ms,
                                  pr_error *err)
{
    TRY(pr__sqlite_begin(&store->conn, /* write= */ true, err));
    int64_t until = pr__sqlite_now(&store->base) + lease_ms * 1000;
    PR_FAULT("store.before_renew_parked_commit");
    pr_status status = pr__sqlite_end(&store->conn, renew_items(store, batch, until, err), err);
    PR_FAULT("store.after_renew_parked_commit");
    return status;
}
