/*
 * Retries of a consumer: which parked rows are due, who holds them, and giving them back.
 *
 * Owns: pr__store_ops.inbox_claim, inbox_due, inbox_release, inbox_renew.
 * Invariant: a claim takes whole runs of a key from its head on, never a row with an older blocking
 * one of its key, never one that an operator holds. Of a dead holder's rows one is taken over at a
 * time, the first in the batch's order; the others go back to what they were, uncharged. Claims of
 * one consumer come one after the other, by a lock of their transactions; holders never wait for
 * it. Must not know: what a handler does with them.
 */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/fault.h"
#include "base/memory.h"
#include "base/text.h"
#include "store/postgres/inbox.h"
#include "store/postgres/row.h"
#include "store/postgres/store.h"
#include "store/postgres/value.h"

#define ORIGIN        "postgres.inbox_claim"
#define TAKEOVERS_MAX 3 /* so many make a charge */
#define SQL_SIZE      2200

/* $1 consumer, $2 halt: dead ones block as well, $3 skip */
#define OLDER_BLOCKS                                                                               \
    "EXISTS (SELECT FROM {p}inbox_parked AS o WHERE o.tenant = p.tenant AND o.consumer = "         \
    "p.consumer AND o.key = p.key AND o.place < p.place AND (o.state <> 'dead' OR $2))"
#define MAY_GO "($3 OR p.key IS NULL OR NOT " OLDER_BLOCKS ")"
/* The first held row of each key, when nothing older blocks it. */
#define HELD_HEADS                                                                                 \
    "SELECT p.place FROM (SELECT tenant, key, min(place) AS place FROM {p}inbox_parked WHERE "     \
    "consumer = $1 AND state = 'held' AND NOT $3 GROUP BY tenant, key) AS f JOIN "                 \
    "{p}inbox_parked AS p ON p.place = f.place WHERE NOT p.operator_hold AND NOT " OLDER_BLOCKS    \
    " UNION ALL SELECT p.place FROM {p}inbox_parked AS p WHERE $3 AND p.consumer = $1 AND "        \
    "p.state = 'held' AND NOT p.operator_hold"

static const char SQL_DUE[] =
    "SELECT clock_timestamp(), EXISTS (" HELD_HEADS "), (SELECT p.next_attempt_at FROM "
    "{p}inbox_parked AS p WHERE p.consumer = $1 AND p.state = 'failed' AND NOT p.operator_hold "
    "AND " MAY_GO
    " ORDER BY p.next_attempt_at LIMIT 1), (SELECT p.locked_until FROM {p}inbox_parked AS p "
    "WHERE p.consumer = $1 AND p.state = 'processing' AND NOT p.operator_hold AND " MAY_GO
    " ORDER BY p.locked_until LIMIT 1)";

static const char SQL_LOCK[] =
    "SELECT pg_advisory_xact_lock(hashtextextended('postroom inbox {p} ' || $1, 0))";

/* Whose lease ended first, and the row that this holder was at, as far as the order of a batch
   tells. */
#define LAPSED                                                                                     \
    "p.consumer = $1 AND p.state = 'processing' AND NOT p.operator_hold AND p.locked_until <= "    \
    "statement_timestamp() AND " MAY_GO
static const char SQL_LAPSED[] =
    "SELECT p.place, p.lock_token FROM {p}inbox_parked AS p WHERE " LAPSED " AND p.lock_token = "
    "(SELECT p.lock_token FROM {p}inbox_parked AS p WHERE " LAPSED " ORDER BY p.locked_until, "
    "p.place LIMIT 1) ORDER BY p.tenant, p.key NULLS FIRST, p.place LIMIT 1";
static const char SQL_LAPSED_OTHERS[] =
    "UPDATE {p}inbox_parked SET state = coalesce(resume_state, 'failed'), resume_state = NULL, "
    "lock_token = NULL, locked_until = NULL, owner = NULL WHERE consumer = $1 AND state = "
    "'processing' AND locked_until <= statement_timestamp() AND lock_token = $2 AND place <> $3";

static const char SQL_FAILED_HEADS[] =
    "SELECT p.place, p.key IS NOT NULL AND NOT $3, octet_length(p.body) FROM {p}inbox_parked AS p "
    "WHERE p.consumer = $1 AND p.state = 'failed' AND NOT p.operator_hold AND p.next_attempt_at <= "
    "statement_timestamp() AND " MAY_GO " ORDER BY p.next_attempt_at, p.place LIMIT {l}";
static const char SQL_HELD_HEADS[] =
    "SELECT p.place, p.key IS NOT NULL AND NOT $3, octet_length(p.body) FROM (" HELD_HEADS
    ") AS h JOIN {p}inbox_parked AS p ON p.place = h.place ORDER BY p.place LIMIT {l}";
static const char SQL_RUN[] =
    "SELECT r.place, r.state, NOT r.operator_hold AND (r.state = 'held' OR r.state = 'failed' AND "
    "r.next_attempt_at <= statement_timestamp()), octet_length(r.body) FROM {p}inbox_parked AS h "
    "JOIN {p}inbox_parked AS r ON r.tenant = h.tenant AND r.consumer = h.consumer AND r.key = "
    "h.key AND r.place > h.place WHERE h.place = $1 ORDER BY r.place LIMIT {l}";

static const char SQL_TAKE[] =
    "UPDATE {p}inbox_parked AS a SET resume_state = CASE a.state WHEN 'processing' THEN "
    "a.resume_state ELSE a.state END, takeovers = a.takeovers + (a.state = 'processing')::int4, "
    "state = 'processing', lock_token = $2, locked_until = clock_timestamp() + $3 * interval '1 "
    "millisecond', owner = $4 WHERE a.place = ANY ($1) AND NOT a.operator_hold AND (a.state IN "
    "('failed', 'held') OR a.state = 'processing' AND a.locked_until <= statement_timestamp()) "
    "RETURNING " PR__PG_MESSAGE_SELECT("a.", "$5") ", a.place, a.attempts, a.takeovers, "
                                                   "clock_timestamp(), a.unreadable";

static const char SQL_RELEASE[] =
    "UPDATE {p}inbox_parked SET state = coalesce(resume_state, 'failed'), resume_state = NULL, "
    "lock_token = NULL, locked_until = NULL, owner = NULL WHERE tenant = $1 AND consumer = $2 AND "
    "message_id = $3 AND state = 'processing' AND lock_token = $4";
static const char SQL_RENEW[] =
    "UPDATE {p}inbox_parked SET locked_until = clock_timestamp() + $5 * interval '1 millisecond' "
    "WHERE tenant = $1 AND consumer = $2 AND message_id = $3 AND state = 'processing' AND "
    "lock_token = $4";

/* One claim while it is being made. */
typedef struct retry_claim {
    pr__pg_store *store;
    const pr__inbox_claim_options *opt;
    bool halt, skip; /* the order, as the statements ask for it */
    char token[PR_UUID_TEXT_SIZE];
    int64_t *places;
    uint32_t count;
    uint64_t bytes;
    bool full; /* a limit was hit */
} retry_claim;

static pr_status due(pr__pg_store *store, const char *consumer, pr_order order,
                     int64_t *ret_next_ms, pr_error *err)
{
    AUTO_RESULT result = NULL;
    TRY(pr__pg_query(&store->conn, SQL_DUE, &result, err, "too", consumer,
                     (int)(order == PR_ORDER_HALT), (int)(order == PR_ORDER_SKIP)));
    int64_t now_us = pr__pg_value_instant(result, 0, 0);
    *ret_next_ms = pr__pg_value_int(result, 0, 1) ? 0 : -1;
    for (int column = 2; column <= 3; column++) {
        if (PQgetisnull(result, 0, column))
            continue;
        int64_t wait = pr__pg_wait_ms(now_us, pr__pg_value_instant(result, 0, column));
        if (*ret_next_ms < 0 || wait < *ret_next_ms)
            *ret_next_ms = wait;
    }
    return PR_OK;
}

pr_status pr__pg_inbox_due(pr_store *base, const char *consumer, pr_order order,
                           int64_t *ret_next_ms, pr_error *err)
{
    pr__pg_store *store = pr__pg_store_of(base);
    TRY(pr__pg_ready(store, err));
    TRY(pr__pg_begin_read(&store->conn, 0, err));
    return pr__pg_end(&store->conn, due(store, consumer, order, ret_next_ms, err), err);
}

/* Add a row; false: the batch is full. One message is given whatever its size. */
static bool add(retry_claim *claim, int64_t place, uint64_t bytes)
{
    if (claim->count == claim->opt->batch_max ||
        (claim->count > 0 && claim->bytes + bytes > PR_BATCH_BYTES_DEFAULT)) {
        claim->full = true;
        return false;
    }
    claim->places[claim->count++] = place;
    claim->bytes += bytes;
    return true;
}

/* A head, and the successors that may go with it, in order, up to the first that may not. */
static pr_status add_head(retry_claim *claim, const PGresult *heads, int row, pr_error *err)
{
    int64_t head = pr__pg_value_int(heads, row, 0);
    if (!add(claim, head, (uint64_t)pr__pg_value_int(heads, row, 2)) ||
        !pr__pg_value_int(heads, row, 1))
        return PR_OK;
    char sql[SQL_SIZE];
    AUTO_RESULT result = NULL;
    pr__pg_with_limit(SQL_RUN, claim->opt->batch_max * 2, sql, sizeof sql);
    TRY(pr__pg_query(&claim->store->conn, sql, &result, err, "i", head));
    for (int i = 0; i < PQntuples(result); i++) {
        if (pr__text_equal(pr__pg_value_text(result, i, 1), "dead") && !claim->halt)
            continue;
        if (!pr__pg_value_int(result, i, 2) ||
            !add(claim, pr__pg_value_int(result, i, 0), (uint64_t)pr__pg_value_int(result, i, 3)))
            return PR_OK;
    }
    return PR_OK;
}

static pr_status find_heads(retry_claim *claim, const char *template, PGresult **ret_heads,
                            pr_error *err)
{
    char sql[SQL_SIZE];
    pr__pg_with_limit(template, claim->opt->batch_max, sql, sizeof sql);
    return pr__pg_query(&claim->store->conn, sql, ret_heads, err, "too", claim->opt->consumer,
                        (int)claim->halt, (int)claim->skip);
}

/* Heads that failed and heads that were held take turns, so that neither kind starves the other. */
static pr_status choose(retry_claim *claim, pr_error *err)
{
    AUTO_RESULT failed = NULL;
    AUTO_RESULT held = NULL;
    TRY(find_heads(claim, SQL_FAILED_HEADS, &failed, err));
    TRY(find_heads(claim, SQL_HELD_HEADS, &held, err));
    for (uint32_t i = 0; i < claim->opt->batch_max && !claim->full; i++) {
        if ((int)i < PQntuples(failed))
            TRY(add_head(claim, failed, (int)i, err));
        if ((int)i < PQntuples(held) && !claim->full)
            TRY(add_head(claim, held, (int)i, err));
    }
    return PR_OK;
}

/* Take one row over whose holder is gone. */
static pr_status take_over(retry_claim *claim, pr_error *err)
{
    pr__pg_conn *conn = &claim->store->conn;
    AUTO_RESULT result = NULL;
    TRY(pr__pg_query(conn, SQL_LAPSED, &result, err, "too", claim->opt->consumer, (int)claim->halt,
                     (int)claim->skip));
    if (PQntuples(result) == 0)
        return PR_OK;
    claim->places[claim->count++] = pr__pg_value_int(result, 0, 0);
    claim->full = true; /* the others may be due by now */
    return pr__pg_run(conn, SQL_LAPSED_OTHERS, NULL, err, "tti", claim->opt->consumer,
                      pr__pg_value_text(result, 0, 1), claim->places[0]);
}

static pr_status fill_item(retry_claim *claim, const PGresult *result, int row, pr__batch *batch,
                           pr__item *item, pr_error *err)
{
    int at = PR__PG_MESSAGE_SELECT_COUNT;
    TRY(pr__pg_read_message(result, row, 0, batch->arena, claim->store->base.body_size_max,
                            &item->message, &item->unreadable, err));
    if (!item->message.destination)
        item->message.destination = pr__pg_topic(
            batch->arena, claim->store->settings.default_transport, item->message.type);
    if (!item->message.destination)
        return pr__fail_nomem(err, ORIGIN);
    item->log_id = pr__pg_value_int(result, row, at++);
    item->attempts = (uint32_t)pr__pg_value_int(result, row, at++);
    item->poison = pr__pg_value_int(result, row, at++) >= TAKEOVERS_MAX;
    item->slice = PR__NO_SLICE;
    batch->claimed_at_us = pr__pg_value_instant(result, row, at++);
    if (!PQgetisnull(result, row, at)) {
        bool failed = false;
        item->unreadable = pr__pg_value_copy(result, row, at, batch->arena, &failed);
        if (failed)
            return pr__fail_nomem(err, ORIGIN);
    }
    pr__format(item->token, sizeof item->token, "%s", claim->token);
    return PR_OK;
}

static int compare_items(const void *a, const void *b)
{
    const pr__item *x = a;
    const pr__item *y = b;
    int order = strcmp(x->message.tenant, y->message.tenant);
    if (order == 0 && (!x->message.key || !y->message.key))
        order = (x->message.key != NULL) - (y->message.key != NULL);
    else if (order == 0)
        order = strcmp(x->message.key, y->message.key);
    return order != 0 ? order : (x->log_id > y->log_id) - (x->log_id < y->log_id);
}

/* Lock what was chosen and read it. Should a row have changed meanwhile, nothing is taken: its run
   would have a hole. */
static pr_status take(retry_claim *claim, pr__pg_array *places, pr__batch *batch, pr_error *err)
{
    AUTO_PARAMS params = {.count = 0};
    AUTO_RESULT result = NULL;
    batch->items = pr__arena_alloc(batch->arena, claim->count * sizeof *batch->items);
    if (!batch->items)
        return pr__fail_nomem(err, ORIGIN);
    for (uint32_t i = 0; i < claim->count; i++)
        pr__pg_array_int(places, claim->places[i]);
    pr__pg_add_array(&params, places);
    pr__pg_add_text(&params, claim->token);
    pr__pg_add_int(&params, claim->opt->lease_ms);
    pr__pg_add_text(&params, claim->opt->owner);
    pr__pg_add_int(&params, (int64_t)claim->store->base.body_size_max);
    TRY(pr__pg_exec(&claim->store->conn, SQL_TAKE, &params, &result, err));
    if (PQntuples(result) != (int)claim->count)
        return pr__fail_retry(err, PR_E_BUSY, PR_RETRY_SAME, ORIGIN,
                              "a row that was due changed meanwhile: try again");
    for (uint32_t i = 0; i < claim->count; i++)
        TRY(fill_item(claim, result, (int)i, batch, &batch->items[batch->item_count++], err));
    qsort(batch->items, batch->item_count, sizeof *batch->items, compare_items);
    batch->order = claim->opt->order == PR_ORDER_DEFAULT ? PR_ORDER_HOLD : claim->opt->order;
    batch->lease_ms = claim->opt->lease_ms;
    batch->more = claim->full;
    return PR_OK;
}

/* Inside the transaction; batch->item_count stays 0 when nothing is due. */
static pr_status claim_rows(retry_claim *claim, pr__batch *batch, pr_error *err)
{
    TRY(pr__pg_settings_load(claim->store, err));
    TRY(pr__pg_query(&claim->store->conn, SQL_LOCK, NULL, err, "t", claim->opt->consumer));
    TRY(take_over(claim, err));
    if (claim->count == 0)
        TRY(choose(claim, err));
    if (claim->count == 0)
        return PR_OK;
    pr__pg_array places;
    pr__pg_array_init(&places, PR__PG_INT8);
    pr_status status = take(claim, &places, batch, err);
    pr__pg_array_done(&places);
    PR_FAULT("store.before_inbox_claim_commit");
    return status;
}

pr_status pr__pg_inbox_claim(pr_store *base, const pr__inbox_claim_options *opt,
                             pr__batch **ret_batch, pr_error *err)
{
    pr__pg_store *store = pr__pg_store_of(base);
    retry_claim claim = {.store = store,
                         .opt = opt,
                         .halt = opt->order == PR_ORDER_HALT,
                         .skip = opt->order == PR_ORDER_SKIP};
    int64_t next_ms = -1;
    TRY(pr__pg_inbox_due(base, opt->consumer, opt->order, &next_ms, err));
    *ret_batch = NULL;
    if (next_ms != 0)
        return PR_OK;
    AUTO(pr__batch) batch = pr__batch_new();
    if (batch)
        claim.places = pr__arena_alloc(batch->arena, opt->batch_max * sizeof *claim.places);
    if (!claim.places)
        return pr__fail_nomem(err, ORIGIN);
    pr__pg_token(base, claim.token);
    TRY(pr__pg_begin(&store->conn, err));
    TRY(pr__pg_end(&store->conn, claim_rows(&claim, batch, err), err));
    PR_FAULT("store.after_inbox_claim_commit");
    *ret_batch = batch->item_count > 0 ? TAKE(batch) : NULL;
    return PR_OK;
}

/* Run a statement by token for each item that its holder has not finished. lease_ms 0: release. */
static pr_status for_open_items(pr__pg_store *store, const char *consumer, pr__batch *batch,
                                int64_t lease_ms, pr_error *err)
{
    for (uint32_t i = 0; i < batch->item_count; i++) {
        pr__item *item = &batch->items[i];
        if (item->result != PR__RESULT_OPEN || item->fenced)
            continue;
        int64_t changes = 0;
        const char *tenant = item->message.tenant ? item->message.tenant : "";
        if (lease_ms != 0)
            TRY(pr__pg_run(&store->conn, SQL_RENEW, &changes, err, "tttti", tenant, consumer,
                           item->message.id, item->token, lease_ms));
        else
            TRY(pr__pg_run(&store->conn, SQL_RELEASE, &changes, err, "tttt", tenant, consumer,
                           item->message.id, item->token));
        item->fenced = changes != 1;
    }
    return PR_OK;
}

pr_status pr__pg_inbox_release(pr_store *base, const char *consumer, pr__batch *batch,
                               pr_error *err)
{
    pr__pg_store *store = pr__pg_store_of(base);
    TRY(pr__pg_ready(store, err));
    TRY(pr__pg_begin(&store->conn, err));
    pr_status status = for_open_items(store, consumer, batch, 0, err);
    PR_FAULT("store.before_inbox_release_commit");
    TRY(pr__pg_end(&store->conn, status, err));
    PR_FAULT("store.after_inbox_release_commit");
    return PR_OK;
}

pr_status pr__pg_inbox_renew(pr_store *base, const char *consumer, pr__batch *batch,
                             int64_t lease_ms, pr_error *err)
{
    pr__pg_store *store = pr__pg_store_of(base);
    TRY(pr__pg_ready(store, err));
    TRY(pr__pg_begin(&store->conn, err));
    pr_status status = for_open_items(store, consumer, batch, lease_ms, err);
    PR_FAULT("store.before_inbox_renew_commit");
    TRY(pr__pg_end(&store->conn, status, err));
    PR_FAULT("store.after_inbox_renew_commit");
    return PR_OK;
}
