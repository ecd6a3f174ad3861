/*
 * Settling and renewing parked rows that a batch holds.
 *
 * Invariant: every change of a claimed row is conditional on its token and state, and which rows
 * were changed is looked at: a row that somebody took over keeps what they make of it.
 */
#include "base/error.h"
#include "base/fault.h"
#include "base/time.h"
#include "port/park.h"
#include "store/postgres/parked.h"
#include "store/postgres/value.h"

#define ORIGIN         "postgres.parked"
#define COLUMNS        9
#define REPEAT_WAIT_US 50000 /* before a commit of unknown outcome is looked at again */

/* $1 reader, $2 log ids, $3 tokens */
#define MINE                                                                                       \
    " WHERE p.reader = $1 AND p.log_id = k.log_id AND p.lock_token = k.token AND p.state = "       \
    "'processing' RETURNING p.log_id"
#define KEYS "ROWS FROM (unnest($2), unnest($3)) AS k (log_id, token)"

static const char SQL_PUBLISHED[] = "DELETE FROM {p}outbox_parked AS p USING " KEYS MINE;
static const char SQL_RELEASED[] =
    "UPDATE {p}outbox_parked AS p SET state = resume_state, resume_state = NULL, lock_token = "
    "NULL, locked_until = NULL, owner = NULL FROM " KEYS MINE;
static const char SQL_REPARKED[] =
    "UPDATE {p}outbox_parked AS p SET state = k.state, attempts = k.attempts, deferred = "
    "k.deferred, next_attempt_at = clock_timestamp() + k.delay_us * interval '1 microsecond', "
    "last_error = coalesce(k.error, p.last_error), first_failed_at = coalesce(p.first_failed_at, "
    "CASE WHEN k.failed THEN clock_timestamp() END), suspicion = k.suspicion, takeovers = 0, "
    "resume_state = NULL, lock_token = NULL, locked_until = NULL, owner = NULL FROM ROWS FROM "
    "(unnest($2), unnest($3), unnest($4), unnest($5), unnest($6), unnest($7), unnest($8), "
    "unnest($9), unnest($10)) AS k (log_id, token, state, attempts, deferred, delay_us, error, "
    "failed, suspicion)" MINE;
static const char SQL_RENEWED[] =
    "UPDATE {p}outbox_parked AS p SET locked_until = clock_timestamp() + $4 * interval '1 "
    "millisecond' FROM " KEYS MINE;

typedef enum change { CHANGE_DELETE = 0, CHANGE_RELEASE, CHANGE_REPARK, CHANGE_RENEW } change;

static change change_of(const pr__item *item)
{
    if (item->result == PR__RESULT_PUBLISHED)
        return CHANGE_DELETE;
    return item->result == PR__RESULT_OPEN ? CHANGE_RELEASE : CHANGE_REPARK;
}

static void add_item(pr__pg_array *arrays, const pr__item *item, bool repark)
{
    pr__pg_array_int(&arrays[0], item->log_id);
    pr__pg_array_uuid(&arrays[1], item->token);
    if (!repark)
        return;
    pr__park park = pr__park_of(item, /* now= */ 0);
    bool lost = item->result == PR__RESULT_LOST;
    pr__pg_array_text(&arrays[2], park.state);
    pr__pg_array_int(&arrays[3], park.attempts);
    pr__pg_array_bool(&arrays[4], park.deferred);
    pr__pg_array_int(&arrays[5], park.next_attempt_at);
    pr__pg_array_text(&arrays[6], park.error);
    pr__pg_array_bool(&arrays[7], park.failed || lost);
    pr__pg_array_int(&arrays[8], lost ? item->suspicion : 0);
}

/* Whether a row was changed stands in the result, else its item is fenced. */
static void note_changed(pr__batch *batch, const pr__item *const *items, uint32_t count,
                         const PGresult *result)
{
    for (uint32_t i = 0; i < count; i++) {
        bool changed = false;
        for (int row = 0; row < PQntuples(result) && !changed; row++)
            changed = pr__pg_value_int(result, row, 0) == items[i]->log_id;
        batch->items[items[i] - batch->items].fenced = !changed;
    }
}

static pr_status run(pr__pg_store *store, pr__batch *batch, change what,
                     const pr__item *const *items, uint32_t count, int64_t lease_ms, pr_error *err)
{
    static const char *const texts[] = {SQL_PUBLISHED, SQL_RELEASED, SQL_REPARKED, SQL_RENEWED};
    static const Oid types[COLUMNS] = {PR__PG_INT8, PR__PG_UUID, PR__PG_TEXT,
                                       PR__PG_INT8, PR__PG_BOOL, PR__PG_INT8,
                                       PR__PG_TEXT, PR__PG_BOOL, PR__PG_INT8};
    pr__pg_array arrays[COLUMNS];
    AUTO_PARAMS params = {.count = 0};
    AUTO_RESULT result = NULL;
    for (size_t i = 0; i < COLUMNS; i++)
        pr__pg_array_init(&arrays[i], types[i]);
    for (uint32_t i = 0; i < count; i++)
        add_item(arrays, items[i], what == CHANGE_REPARK);
    pr__pg_add_int(&params, batch->reader);
    for (size_t i = 0; i < (what == CHANGE_REPARK ? COLUMNS : 2); i++)
        pr__pg_add_array(&params, &arrays[i]);
    if (what == CHANGE_RENEW)
        pr__pg_add_int(&params, lease_ms);
    pr_status status = pr__pg_exec(&store->conn, texts[what], &params, &result, err);
    for (size_t i = 0; i < COLUMNS; i++)
        pr__pg_array_done(&arrays[i]);
    TRY(status);
    note_changed(batch, items, count, result);
    return PR_OK;
}

/* What is of one kind goes in one statement. */
static pr_status settle_items(pr__pg_store *store, pr__batch *batch, pr_error *err)
{
    const pr__item **items =
        pr__arena_alloc(batch->arena, (batch->item_count + 1) * sizeof(pr__item *));
    if (!items)
        return pr__fail_nomem(err, ORIGIN);
    for (int what = CHANGE_DELETE; what <= CHANGE_REPARK; what++) {
        uint32_t count = 0;
        for (uint32_t i = 0; i < batch->item_count; i++)
            if (change_of(&batch->items[i]) == (change)what)
                items[count++] = &batch->items[i];
        if (count > 0)
            TRY(run(store, batch, (change)what, items, count, 0, err));
    }
    return PR_OK;
}

static const char SQL_STILL_MINE[] =
    "SELECT p.place FROM {p}outbox_parked AS p WHERE p.reader = $1 AND p.log_id = $2 AND "
    "p.lock_token = $3 AND p.state = 'processing' FOR UPDATE";

/* Did a commit of unknown outcome take place? It did when a row that it changed has lost its token;
   the lock waits for a commit that is still on its way. */
static pr_status look_again(pr__pg_store *store, pr__batch *batch, pr_error *err)
{
    const pr__item *witness = NULL;
    for (uint32_t i = 0; i < batch->item_count && !witness; i++)
        if (!batch->items[i].fenced)
            witness = &batch->items[i];
    if (!witness)
        return PR_OK;
    int64_t place = 0;
    bool found = false;
    TRY(pr__pg_ready(store, err));
    TRY(pr__pg_begin(&store->conn, err));
    pr_status status = pr__pg_int(&store->conn, SQL_STILL_MINE, &place, &found, err, "iiu",
                                  batch->reader, witness->log_id, witness->token);
    if (status == PR_OK && found)
        status = settle_items(store, batch, err);
    return pr__pg_end(&store->conn, status, err);
}

static void count_items(const pr__batch *batch, pr__settle_report *report)
{
    for (uint32_t i = 0; i < batch->item_count; i++) {
        if (batch->items[i].fenced)
            report->fenced_items++;
        else
            pr__settle_report_count(report, batch->items[i].result);
    }
}

pr_status pr__pg_settle_parked(pr__pg_store *store, pr__batch *batch, pr__settle_report *report,
                               pr_error *err)
{
    TRY(pr__pg_begin(&store->conn, err));
    pr_status status = settle_items(store, batch, err);
    if (status != PR_OK) {
        pr__pg_rollback(&store->conn);
        return status;
    }
    PR_FAULT("store.before_settle_parked_commit");
    pr_error found = PR_ERROR_INIT;
    status = pr__pg_commit(&store->conn, &found);
    PR_FAULT("store.after_settle_parked_commit");
    int64_t until_us = pr__monotonic_us() + store->conn.limits.busy_ms * 1000;
    while (status != PR_OK && found.retry == PR_RETRY_UNKNOWN) {
        status = look_again(store, batch, NULL);
        if (status == PR_OK || pr__monotonic_us() >= until_us)
            break;
        pr__sleep_us(REPEAT_WAIT_US); /* the server may be on its way back */
    }
    if (status != PR_OK) {
        pr__error_copy(err, &found);
        return status;
    }
    count_items(batch, report);
    return PR_OK;
}

static pr_status renew_items(pr__pg_store *store, pr__batch *batch, int64_t lease_ms, pr_error *err)
{
    const pr__item **items =
        pr__arena_alloc(batch->arena, (batch->item_count + 1) * sizeof(pr__item *));
    if (!items)
        return pr__fail_nomem(err, ORIGIN);
    uint32_t count = 0;
    for (uint32_t i = 0; i < batch->item_count; i++)
        if (!batch->items[i].fenced)
            items[count++] = &batch->items[i];
    return count > 0 ? run(store, batch, CHANGE_RENEW, items, count, lease_ms, err) : PR_OK;
}

pr_status pr__pg_renew_parked(pr__pg_store *store, pr__batch *batch, int64_t lease_ms,
                              pr_error *err)
{
    TRY(pr__pg_begin(&store->conn, err));
    PR_FAULT("store.before_renew_parked_commit");
    pr_status status = pr__pg_end(&store->conn, renew_items(store, batch, lease_ms, err), err);
    PR_FAULT("store.after_renew_parked_commit");
    return status;
}
