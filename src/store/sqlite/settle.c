/*
 * The settle: record what became of a batch, and claim the next one in the same commit.
 *
 * Invariants: a slice is settled only while its token stands in the newest row of its lane,
 * whatever the clock says; what is not published is in rest or parked, in the commit that closes
 * the slice; a commit whose outcome is not known is looked up by token, never guessed.
 */
#include "store/sqlite/settle.h"

#include <string.h>

#include "base/error.h"
#include "base/fault.h"
#include "base/text.h"
#include "store/sqlite/parked.h"
#include "store/sqlite/row.h"

#define ORIGIN "sqlite.settle"

static const char SQL_PARK[] =
    "INSERT INTO {p}_outbox_parked (" PR__MESSAGE_COLUMNS
    ", reader, log_id, lane, state, attempts, "
    "deferred, next_attempt_at, last_error, first_failed_at, parked_at) SELECT " PR__MESSAGE_COLUMNS
    ", ?2, id, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10 FROM {p}_outbox WHERE id = ?1 ON CONFLICT (reader, "
    "log_id) DO NOTHING";

static const char SQL_NOT_PARKED[] =
    "SELECT 1 FROM {p}_outbox WHERE id = ?1 AND NOT EXISTS (SELECT 1 FROM {p}_outbox_parked WHERE "
    "reader = ?2 AND log_id = ?1)";

/* A full copy, made by the database: the row may be one that cannot be read as a message. */
static pr_status park(pr__claimer *c, const pr__item *item, pr_error *err)
{
    pr__park p = pr__park_of(item, c->now);
    pr__sqlite_conn *conn = &c->store->conn;
    int64_t changes = 0;
    if (p.failed)
        TRY(pr__sqlite_run(conn, SQL_PARK, &changes, err, "iiitiiitii", item->log_id,
                           c->batch->reader, (int64_t)item->lane, p.state, p.attempts,
                           (int64_t)p.deferred, p.next_attempt_at, p.error, c->now, c->now));
    else
        TRY(pr__sqlite_run(conn, SQL_PARK, &changes, err, "iiitiiitni", item->log_id,
                           c->batch->reader, (int64_t)item->lane, p.state, p.attempts,
                           (int64_t)p.deferred, p.next_attempt_at, p.error, c->now));
    if (changes == 1)
        return PR_OK;
    /* it stands there already, or was deleted from the log; else it would vanish here */
    int64_t one = 0;
    bool swallowed = false;
    TRY(pr__sqlite_int(conn, SQL_NOT_PARKED, &one, &swallowed, err, "ii", item->log_id,
                       c->batch->reader));
    return swallowed ? pr__sqlite_wrote_one(conn, changes, "outbox_parked", err) : PR_OK;
}

/* What becomes of one item of a slice that is ours. */
static pr_status settle_item(pr__claimer *c, pr__claim_lane *lane, const pr__item *item,
                             pr_error *err)
{
    pr__journal *head = &lane->head;
    pr__arena *arena = c->batch->arena;
    if (pr__result_kept(item->result)) {
        TRY(pr__id_list_add(&head->rest, arena, item->log_id, err));
        return pr__suspect_list_set(&head->suspects, arena, item->log_id, item->suspicion, err);
    }
    head->acked++;
    lane->released = false;
    return item->result == PR__RESULT_PUBLISHED ? PR_OK : park(c, item, err);
}

/* Close one slice in memory and park what failed; the journal row is written with the claim's. */
static pr_status settle_slice(pr__claimer *c, pr__batch *batch, uint32_t index,
                              pr__settle_report *report, pr_error *err)
{
    pr__slice *slice = &batch->slices[index];
    pr__claim_lane *lane = &c->lanes[slice->lane];
    pr__journal *head = &lane->head;
    TRY(pr__journal_head(&c->store->conn, batch->reader, slice->lane, head, err));
    if (!head->stands || strcmp(head->token, slice->token) != 0) {
        pr__slice_fence(batch, index, report);
        return PR_OK;
    }
    bool repeated = !head->open; /* my own settle, whose outcome I did not learn, was committed */
    TRY(pr__journal_load(&c->store->conn, batch->reader, slice->lane, /* with_ids= */ false,
                         c->batch->arena, head, err));
    lane->head_known = true;
    lane->settled = !repeated;
    lane->released = true;
    for (uint32_t i = 0; i < batch->item_count; i++) {
        if (batch->items[i].slice != index)
            continue;
        pr__settle_report_count(report, batch->items[i].result);
        if (!repeated)
            TRY(settle_item(c, lane, &batch->items[i], err));
    }
    pr__id_list_sort(&head->rest);
    head->open = false;
    head->lease_until = 0;
    if (head->rest.count == 0 || head->attempt < PR__SQLITE_TAKEOVERS_MAX)
        head->attempt = 0;
    return PR_OK;
}

/* The newest row may be a live claim of somebody else: then the lane is not known here and the
   claim reads it anew. */
static pr_status settle_slices(pr__claimer *c, pr__batch *batch, pr__settle_report *report,
                               pr_error *err)
{
    for (uint32_t i = 0; i < batch->slice_count; i++) {
        batch->slices[i].fenced = false;
        TRY(settle_slice(c, batch, i, report, err));
    }
    return PR_OK;
}

static pr_status begin_claimer(pr__sqlite_store *store, const pr__batch *batch,
                               const pr__claim_options *next, pr__claimer **ret_claimer,
                               pr_error *err)
{
    pr_error found = PR_ERROR_INIT;
    pr_status status = pr__claimer_begin(store, batch->reader, next, ret_claimer, &found);
    if (status == PR_E_NOT_FOUND && next) /* the reader is gone; what it held is settled still */
        return pr__claimer_begin(store, batch->reader, NULL, ret_claimer, err);
    pr__error_copy(err, &found);
    return status;
}

static pr_status settle_in_transaction(pr__sqlite_store *store, pr__batch *batch,
                                       const pr__claim_options *next, pr__settle_report *report,
                                       pr__claimer **ret_claimer, pr_error *err)
{
    TRY(begin_claimer(store, batch, next, ret_claimer, err));
    pr__claimer *c = *ret_claimer;
    TRY(settle_slices(c, batch, report, err));
    if (c->opt)
        TRY(pr__claimer_choose(c, err));
    return pr__claimer_write(c, err);
}

pr_status pr__sqlite_claim_commit(pr__sqlite_store *store, pr__claimer *c, pr_error *err)
{
    pr_error found = PR_ERROR_INIT;
    pr_status status = pr__sqlite_commit(&store->conn, &found);
    if (status != PR_OK && found.retry == PR_RETRY_UNKNOWN && c->wrote &&
        pr__sqlite_reopen(store, NULL) == PR_OK) {
        bool stands = false;
        char token[PR_UUID_TEXT_SIZE];
        if (pr__journal_token(&store->conn, c->batch->reader, c->witness_lane, c->witness_seq,
                              &stands, token, NULL) == PR_OK &&
            stands && strcmp(token, c->witness_token) == 0)
            return PR_OK;
    }
    pr__error_copy(err, &found);
    return status;
}

static pr_status settle_log(pr__sqlite_store *store, pr__batch *batch,
                            const pr__claim_options *next, pr__settle_report *report,
                            pr__batch **ret_next, pr_error *err)
{
    pr__claimer *claimer = NULL;
    TRY(pr__sqlite_begin(&store->conn, /* write= */ true, err));
    pr_status status = settle_in_transaction(store, batch, next, report, &claimer, err);
    AUTO(pr__batch) next_batch = claimer ? claimer->batch : NULL;
    if (status != PR_OK || !claimer || !claimer->wrote) {
        pr__sqlite_rollback(&store->conn); /* or every slice was fenced and nothing was claimed */
        return status;
    }
    PR_FAULT("store.before_settle_commit");
    status = pr__sqlite_claim_commit(store, claimer, err);
    PR_FAULT("store.after_settle_commit");
    TRY(status);
    if (!claimer->opt || !pr__claimer_found(claimer))
        return PR_OK;
    if (pr__claimer_read(claimer, NULL) == PR_OK)
        *ret_next = TAKE(next_batch);
    else /* the settle is done and must not look failed; the claim is given up */
        pr__sqlite_give_back(store, next_batch);
    return PR_OK;
}

pr_status pr__sqlite_settle(pr_store *base, pr__batch *batch, const pr__claim_options *next,
                            pr__settle_report *ret_report, pr__batch **ret_next, pr_error *err)
{
    pr__sqlite_store *store = pr__sqlite_store_of(base);
    TRY(pr__sqlite_ready(store, err));
    pr__settle_report report = {0};
    pr__batch *next_batch = NULL;
    TRY(batch->slices ? settle_log(store, batch, next, &report, &next_batch, err)
                      : pr__sqlite_settle_parked(store, batch, &report, err));
    *ret_report = report;
    if (ret_next)
        *ret_next = next_batch;
    return PR_OK;
}

void pr__sqlite_give_back(pr__sqlite_store *store, pr__batch *batch)
{
    pr__settle_report report = {0};
    pr__batch *none = NULL;
    for (uint32_t i = 0; i < batch->item_count; i++)
        batch->items[i].result = PR__RESULT_OPEN;
    if (batch->slices && batch->slice_count > 0 &&
        settle_log(store, batch, NULL, &report, &none, NULL) != PR_OK)
        return; /* the lease runs out by itself */
}

/* A renewal is a row like any other: it carries everything. */
static pr_status renew_slice(pr__claimer *c, pr__batch *batch, uint32_t index, int64_t lease_ms,
                             pr_error *err)
{
    pr__slice *slice = &batch->slices[index];
    pr__sqlite_conn *conn = &c->store->conn;
    pr__journal head;
    TRY(pr__journal_head(conn, batch->reader, slice->lane, &head, err));
    if (!head.stands || !head.open || strcmp(head.token, slice->token) != 0) {
        pr__slice_fence(batch, index, NULL);
        return PR_OK;
    }
    TRY(pr__journal_load(conn, batch->reader, slice->lane, /* with_ids= */ true, c->batch->arena,
                         &head, err));
    head.lease_until = c->now + lease_ms * 1000;
    TRY(pr__journal_write(conn, batch->reader, slice->lane, PR__JOURNAL_RENEW, NULL, c->now, &head,
                          err));
    c->wrote = true;
    slice->seq = head.seq;
    return PR_OK;
}

static pr_status renew_slices(pr__claimer *c, pr__batch *batch, int64_t lease_ms, pr_error *err)
{
    for (uint32_t i = 0; i < batch->slice_count; i++)
        if (!batch->slices[i].fenced)
            TRY(renew_slice(c, batch, i, lease_ms, err));
    return PR_OK;
}

pr_status pr__sqlite_renew(pr_store *base, pr__batch *batch, int64_t lease_ms, pr_error *err)
{
    pr__sqlite_store *store = pr__sqlite_store_of(base);
    TRY(pr__sqlite_ready(store, err));
    if (!batch->slices)
        return pr__sqlite_renew_parked(store, batch, lease_ms, err);
    pr__claimer *claimer = NULL;
    TRY(pr__sqlite_begin(&store->conn, /* write= */ true, err));
    pr_status status = pr__claimer_begin(store, batch->reader, NULL, &claimer, err);
    AUTO(pr__batch) scratch = claimer ? claimer->batch : NULL;
    (void)scratch; /* freed with what lies in it */
    if (status == PR_OK && claimer)
        status = renew_slices(claimer, batch, lease_ms, err);
    if (status != PR_OK || !claimer || !claimer->wrote) {
        pr__sqlite_rollback(&store->conn);
        return status;
    }
    PR_FAULT("store.before_renew_commit");
    status = pr__sqlite_commit(&store->conn, err);
    PR_FAULT("store.after_renew_commit");
    return status;
}
