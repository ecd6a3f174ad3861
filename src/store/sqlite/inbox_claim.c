/*
 * Retries of a consumer: which parked rows are due, who holds them, and giving them back.
 *
 * Owns: pr__store_ops.inbox_claim, inbox_due, inbox_release, inbox_renew.
 * Invariant: a claim takes whole runs of a key from its head on, never a row with an older blocking
 * one of its key, never one that an operator holds. Of a dead holder's rows one is taken over at a
 * time, the first in the batch's order; the others go back to what they were, uncharged. Nothing is
 * written when nothing is due.
 * Must not know: what a handler does with them.
 */
#include <string.h>

#include "base/error.h"
#include "base/fault.h"
#include "base/memory.h"
#include "base/text.h"
#include "store/sqlite/inbox.h"
#include "store/sqlite/row.h"
#include "store/sqlite/store.h"

#define ORIGIN        "sqlite.inbox_claim"
#define TAKEOVERS_MAX 3 /* so many make a charge */
#define US_PER_MS     1000

/* An older blocking row of p's key; ?2: dead ones block as well (halt). */
#define OLDER_BLOCKS                                                                               \
    "EXISTS (SELECT 1 FROM {p}_inbox_parked AS o WHERE o.tenant = p.tenant "                       \
    "AND o.consumer = p.consumer AND o.key = p.key AND o.place < p.place "                         \
    "AND (o.state <> 'dead' OR ?2))"

/* ?1 consumer, ?2 halt, ?3 skip */
static const char sql_next_failed[] =
    "SELECT p.next_attempt_at FROM {p}_inbox_parked AS p "
    "WHERE p.consumer = ?1 AND p.state = 'failed' AND p.operator_hold = 0 "
    "AND (?3 OR p.key IS NULL OR NOT " OLDER_BLOCKS ") ORDER BY p.next_attempt_at LIMIT 1";

static const char sql_next_lease[] =
    "SELECT p.locked_until FROM {p}_inbox_parked AS p "
    "WHERE p.consumer = ?1 AND p.state = 'processing' AND p.operator_hold = 0 "
    "AND (?3 OR p.key IS NULL OR NOT " OLDER_BLOCKS ") ORDER BY p.locked_until LIMIT 1";

/* The first held row of each key, when nothing older blocks it; ?4 is the limit. */
static const char sql_held_heads[] =
    "SELECT p.place FROM (SELECT tenant, consumer, key, min(place) AS place, operator_hold "
    "FROM {p}_inbox_parked WHERE consumer = ?1 AND state = 'held' GROUP BY consumer, tenant, key) "
    "AS p WHERE p.operator_hold = 0 AND NOT " OLDER_BLOCKS " ORDER BY p.place LIMIT ?4";

static const char sql_held_any[] =
    "SELECT place FROM {p}_inbox_parked WHERE consumer = ?1 AND state = 'held' "
    "AND operator_hold = 0 ORDER BY place LIMIT ?4";

/* ?4 now, ?5 limit */
static const char sql_failed_heads[] =
    "SELECT p.place FROM {p}_inbox_parked AS p "
    "WHERE p.consumer = ?1 AND p.state = 'failed' AND p.operator_hold = 0 "
    "AND p.next_attempt_at <= ?4 AND (?3 OR p.key IS NULL OR NOT " OLDER_BLOCKS ") "
    "ORDER BY p.next_attempt_at, p.place LIMIT ?5";

static const char sql_run[] =
    "SELECT r.place, r.state, r.next_attempt_at, r.operator_hold, length(r.body) "
    "FROM {p}_inbox_parked AS h JOIN {p}_inbox_parked AS r "
    "ON r.tenant = h.tenant AND r.consumer = h.consumer AND r.key = h.key AND r.place > h.place "
    "WHERE h.place = ?1 ORDER BY r.place";

static const char sql_row_size[] = "SELECT length(body) FROM {p}_inbox_parked WHERE place = ?1";

/* Of whom is the lease that ended first? */
static const char sql_lapsed_token[] =
    "SELECT p.lock_token, p.locked_until FROM {p}_inbox_parked AS p "
    "WHERE p.consumer = ?1 AND p.state = 'processing' AND p.operator_hold = 0 "
    "AND p.locked_until <= ?4 AND (?3 OR p.key IS NULL OR NOT " OLDER_BLOCKS ") "
    "ORDER BY p.locked_until, p.place LIMIT 1";

/* The row that its holder was at when it died, as far as the order of a batch tells. */
static const char sql_lapsed_first[] =
    "SELECT p.place FROM {p}_inbox_parked AS p "
    "WHERE p.consumer = ?1 AND p.state = 'processing' AND p.operator_hold = 0 "
    "AND p.locked_until <= ?4 AND p.lock_token = ?5 "
    "AND (?3 OR p.key IS NULL OR NOT " OLDER_BLOCKS ") "
    "ORDER BY p.tenant, p.key, p.place LIMIT 1";

static const char sql_lapsed_others[] =
    "UPDATE {p}_inbox_parked SET state = coalesce(resume_state, 'failed'), resume_state = NULL, "
    "lock_token = NULL, locked_until = NULL, owner = NULL "
    "WHERE consumer = ?1 AND state = 'processing' AND locked_until <= ?2 AND lock_token = ?3 "
    "AND place <> ?4";

static const char sql_take_over[] =
    "UPDATE {p}_inbox_parked SET takeovers = takeovers + 1, lock_token = ?2, locked_until = ?3, "
    "owner = ?4 WHERE place = ?1 AND state = 'processing'";

static const char sql_take[] =
    "UPDATE {p}_inbox_parked SET resume_state = state, state = 'processing', lock_token = ?2, "
    "locked_until = ?3, owner = ?4 WHERE place = ?1 AND state IN ('failed', 'held')";

/* ?1 is the largest body that is loaded. */
static const char sql_taken[] =
    "SELECT " PR__MESSAGE_SELECT ", place, attempts, takeovers FROM {p}_inbox_parked "
    "WHERE consumer = ?2 AND state = 'processing' AND locked_until = ?3 AND lock_token = ?4 "
    "ORDER BY tenant, key, place";

static const char sql_release[] =
    "UPDATE {p}_inbox_parked SET state = coalesce(resume_state, 'failed'), resume_state = NULL, "
    "lock_token = NULL, locked_until = NULL, owner = NULL "
    "WHERE tenant = ?1 AND consumer = ?2 AND message_id = ?3 AND state = 'processing' "
    "AND lock_token = ?4";

static const char sql_renew[] =
    "UPDATE {p}_inbox_parked SET locked_until = ?5 "
    "WHERE tenant = ?1 AND consumer = ?2 AND message_id = ?3 AND state = 'processing' "
    "AND lock_token = ?4";

/* One claim while it is being made. */
typedef struct retry_claim {
    pr__sqlite_store *store;
    const pr__inbox_claim_options *opt;
    int64_t now_us;
    int64_t until_us;
    int64_t halt, skip; /* the order, as the statements ask for it */
    char token[PR_UUID_TEXT_SIZE];
    int64_t *places;
    uint32_t count;
    uint64_t bytes;
    bool full; /* a limit was hit */
} retry_claim;

static void set_order(retry_claim *claim, pr_order order)
{
    claim->halt = order == PR_ORDER_HALT;
    claim->skip = order == PR_ORDER_SKIP;
}

/* When the next row is due: now_us at once, INT64_MAX never. */
static pr_status next_due(pr__sqlite_conn *conn, const char *consumer, const retry_claim *order,
                          int64_t now_us, int64_t *ret_due_us, pr_error *err)
{
    int64_t due_us = INT64_MAX;
    int64_t value = 0;
    bool found = false;
    if (order->skip)
        TRY(pr__sqlite_int(conn, sql_held_any, &value, &found, err, "tnni", consumer, INT64_C(1)));
    else
        TRY(pr__sqlite_int(conn, sql_held_heads, &value, &found, err, "tini", consumer, order->halt,
                           INT64_C(1)));
    if (found) {
        *ret_due_us = now_us;
        return PR_OK;
    }
    const char *const queries[] = {sql_next_failed, sql_next_lease};
    for (size_t i = 0; i < 2; i++) {
        TRY(pr__sqlite_int(conn, queries[i], &value, &found, err, "tii", consumer, order->halt,
                           order->skip));
        if (found && value < due_us)
            due_us = value;
    }
    *ret_due_us = due_us;
    return PR_OK;
}

pr_status pr__sqlite_inbox_due(pr_store *store, const char *consumer, pr_order order,
                               int64_t *ret_next_ms, pr_error *err)
{
    pr__sqlite_store *self = pr__sqlite_store_of(store);
    TRY(pr__sqlite_ready(self, err));
    retry_claim asked = {.store = self};
    set_order(&asked, order);
    int64_t now_us = pr__sqlite_now(store);
    int64_t due_us = INT64_MAX;
    TRY(next_due(&self->conn, consumer, &asked, now_us, &due_us, err));
    *ret_next_ms = due_us == INT64_MAX ? -1 : pr__sqlite_wait_ms(now_us, due_us);
    return PR_OK;
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

/* The successors of a head that may go with it, in order, up to the first that may not. */
static pr_status add_run(retry_claim *claim, int64_t head, pr_error *err)
{
    pr__sqlite_conn *conn = &claim->store->conn;
    AUTO_STMT stmt = NULL;
    bool row = false;
    TRY(pr__sqlite_query(conn, sql_run, &stmt, err, "i", head));
    for (;;) {
        TRY(pr__sqlite_step(conn, stmt, &row, err));
        if (!row)
            return PR_OK;
        const char *state = (const char *)sqlite3_column_text(stmt, 1);
        if (pr__text_equal(state, "dead") && !claim->halt)
            continue;
        bool due =
            pr__text_equal(state, "held") ||
            (pr__text_equal(state, "failed") && sqlite3_column_int64(stmt, 2) <= claim->now_us);
        if (!due || sqlite3_column_int64(stmt, 3) != 0)
            return PR_OK;
        if (!add(claim, sqlite3_column_int64(stmt, 0), (uint64_t)sqlite3_column_int64(stmt, 4)))
            return PR_OK;
    }
}

static pr_status add_head(retry_claim *claim, int64_t head, pr_error *err)
{
    int64_t bytes = 0;
    TRY(pr__sqlite_int(&claim->store->conn, sql_row_size, &bytes, NULL, err, "i", head));
    if (!add(claim, head, (uint64_t)bytes) || claim->skip)
        return PR_OK;
    return add_run(claim, head, err);
}

/* The places of a statement's rows. */
static pr_status collect(pr__sqlite_conn *conn, sqlite3_stmt *stmt, int64_t *ret_places,
                         uint32_t max, uint32_t *ret_count, pr_error *err)
{
    uint32_t count = 0;
    bool row = true;
    while (count < max) {
        TRY(pr__sqlite_step(conn, stmt, &row, err));
        if (!row)
            break;
        ret_places[count++] = sqlite3_column_int64(stmt, 0);
    }
    *ret_count = count;
    return PR_OK;
}

/* Heads that failed and heads that were held take turns, so that neither kind starves the other. */
static pr_status choose(retry_claim *claim, pr__arena *arena, pr_error *err)
{
    pr__sqlite_conn *conn = &claim->store->conn;
    const char *consumer = claim->opt->consumer;
    uint32_t max = claim->opt->batch_max;
    int64_t *failed = pr__arena_alloc(arena, (size_t)max * 2 * sizeof *failed);
    if (!failed)
        return pr__fail_nomem(err, ORIGIN);
    int64_t *held = failed + max;
    uint32_t failed_count = 0;
    uint32_t held_count = 0;
    {
        AUTO_STMT stmt = NULL;
        TRY(pr__sqlite_query(conn, sql_failed_heads, &stmt, err, "tiiii", consumer, claim->halt,
                             claim->skip, claim->now_us, (int64_t)max));
        TRY(collect(conn, stmt, failed, max, &failed_count, err));
    }
    {
        AUTO_STMT stmt = NULL;
        TRY(pr__sqlite_query(conn, claim->skip ? sql_held_any : sql_held_heads, &stmt, err, "tini",
                             consumer, claim->halt, (int64_t)max));
        TRY(collect(conn, stmt, held, max, &held_count, err));
    }
    for (uint32_t i = 0; i < max && !claim->full; i++) {
        if (i < failed_count)
            TRY(add_head(claim, failed[i], err));
        if (i < held_count && !claim->full)
            TRY(add_head(claim, held[i], err));
    }
    return PR_OK;
}

static pr_status take_all(retry_claim *claim, pr_error *err)
{
    for (uint32_t i = 0; i < claim->count; i++) {
        int64_t changes = 0;
        TRY(pr__sqlite_run(&claim->store->conn, sql_take, &changes, err, "itit", claim->places[i],
                           claim->token, claim->until_us, claim->opt->owner));
        if (changes != 1)
            return pr__fail(err, PR_E_BACKEND, ORIGIN,
                            "a row that was due changed under a write lock");
    }
    return PR_OK;
}

/* Take one row over whose holder is gone; *ret_taken false: there is none. */
static pr_status take_over(retry_claim *claim, bool *ret_taken, pr_error *err)
{
    pr__sqlite_conn *conn = &claim->store->conn;
    const char *consumer = claim->opt->consumer;
    char token[PR_UUID_TEXT_SIZE] = "";
    bool row = false;
    {
        AUTO_STMT stmt = NULL;
        TRY(pr__sqlite_query(conn, sql_lapsed_token, &stmt, err, "tiii", consumer, claim->halt,
                             claim->skip, claim->now_us));
        TRY(pr__sqlite_step(conn, stmt, &row, err));
        if (row && sqlite3_column_text(stmt, 0))
            pr__format(token, sizeof token, "%s", (const char *)sqlite3_column_text(stmt, 0));
    }
    *ret_taken = row;
    if (!row)
        return PR_OK;
    int64_t place = 0;
    TRY(pr__sqlite_int(conn, sql_lapsed_first, &place, &row, err, "tiiit", consumer, claim->halt,
                       claim->skip, claim->now_us, token));
    if (!row)
        return pr__fail(err, PR_E_BACKEND, ORIGIN, "a lease that ended changed under a write lock");
    TRY(pr__sqlite_run(conn, sql_lapsed_others, NULL, err, "titi", consumer, claim->now_us, token,
                       place));
    TRY(pr__sqlite_run(conn, sql_take_over, NULL, err, "itit", place, claim->token, claim->until_us,
                       claim->opt->owner));
    claim->count = 1;
    claim->full = true; /* the others may be due by now */
    return PR_OK;
}

static pr_status fill_item(retry_claim *claim, sqlite3_stmt *stmt, pr__batch *batch, pr__item *item,
                           pr_error *err)
{
    TRY(pr__sqlite_read_message(stmt, 0, batch->arena, claim->store->base.body_size_max,
                                &item->message, &item->unreadable, err));
    if (!item->message.destination) {
        item->message.destination = pr__sqlite_topic(
            batch->arena, claim->store->settings.default_transport, item->message.type);
        if (!item->message.destination)
            return pr__fail_nomem(err, ORIGIN);
    }
    item->log_id = sqlite3_column_int64(stmt, PR__MESSAGE_SELECT_COUNT);
    item->attempts = (uint32_t)sqlite3_column_int64(stmt, PR__MESSAGE_SELECT_COUNT + 1);
    item->poison = sqlite3_column_int64(stmt, PR__MESSAGE_SELECT_COUNT + 2) >= TAKEOVERS_MAX;
    item->slice = PR__NO_SLICE;
    pr__format(item->token, sizeof item->token, "%s", claim->token);
    return PR_OK;
}

static pr_status load(retry_claim *claim, pr__batch *batch, pr_error *err)
{
    pr__sqlite_conn *conn = &claim->store->conn;
    batch->items = pr__arena_alloc(batch->arena, claim->count * sizeof *batch->items);
    if (!batch->items)
        return pr__fail_nomem(err, ORIGIN);
    AUTO_STMT stmt = NULL;
    bool row = false;
    TRY(pr__sqlite_query(conn, sql_taken, &stmt, err, "itit",
                         (int64_t)claim->store->base.body_size_max, claim->opt->consumer,
                         claim->until_us, claim->token));
    while (batch->item_count < claim->count) {
        TRY(pr__sqlite_step(conn, stmt, &row, err));
        if (!row)
            break;
        TRY(fill_item(claim, stmt, batch, &batch->items[batch->item_count], err));
        batch->item_count++;
    }
    batch->order = claim->opt->order == PR_ORDER_DEFAULT ? PR_ORDER_HOLD : claim->opt->order;
    batch->claimed_at_us = claim->now_us;
    batch->lease_ms = claim->opt->lease_ms;
    batch->more = claim->full;
    return PR_OK;
}

/* Inside the write transaction; claim->count stays 0 when nothing is due. */
static pr_status claim_rows(retry_claim *claim, pr__batch *batch, pr_error *err)
{
    claim->now_us = pr__sqlite_now(&claim->store->base);
    claim->until_us = claim->now_us + claim->opt->lease_ms * US_PER_MS;
    bool taken = false;
    TRY(take_over(claim, &taken, err));
    if (!taken) {
        TRY(choose(claim, batch->arena, err));
        TRY(take_all(claim, err));
    }
    if (claim->count > 0)
        TRY(load(claim, batch, err));
    PR_FAULT("store.before_inbox_claim_commit");
    return PR_OK;
}

pr_status pr__sqlite_inbox_claim(pr_store *store, const pr__inbox_claim_options *opt,
                                 pr__batch **ret_batch, pr_error *err)
{
    pr__sqlite_store *self = pr__sqlite_store_of(store);
    TRY(pr__sqlite_ready(self, err));
    TRY(pr__sqlite_settings_load(self, err));
    retry_claim claim = {.store = self, .opt = opt};
    set_order(&claim, opt->order);
    int64_t now_us = pr__sqlite_now(store);
    int64_t due_us = INT64_MAX;
    TRY(next_due(&self->conn, opt->consumer, &claim, now_us, &due_us, err));
    if (due_us > now_us) {
        *ret_batch = NULL;
        return PR_OK;
    }
    AUTO(pr__batch) batch = pr__batch_new();
    if (batch)
        claim.places = pr__arena_alloc(batch->arena, opt->batch_max * sizeof *claim.places);
    if (!claim.places)
        return pr__fail_nomem(err, ORIGIN);
    pr__sqlite_token(store, claim.token);
    TRY(pr__sqlite_begin(&self->conn, /* write= */ true, err));
    TRY(pr__sqlite_end(&self->conn, claim_rows(&claim, batch, err), err));
    PR_FAULT("store.after_inbox_claim_commit");
    *ret_batch = batch->item_count > 0 ? TAKE(batch) : NULL;
    return PR_OK;
}

/* Run a statement by token for each item that its holder has not finished. */
static pr_status for_open_items(pr__sqlite_store *store, const char *sql, const char *consumer,
                                pr__batch *batch, int64_t until_us, pr_error *err)
{
    for (uint32_t i = 0; i < batch->item_count; i++) {
        pr__item *item = &batch->items[i];
        if (item->result != PR__RESULT_OPEN || item->fenced)
            continue;
        int64_t changes = 0;
        const char *tenant = item->message.tenant ? item->message.tenant : "";
        /* the release has no ?5: binding it would be out of range */
        if (until_us != 0)
            TRY(pr__sqlite_run(&store->conn, sql, &changes, err, "tttti", tenant, consumer,
                               item->message.id, item->token, until_us));
        else
            TRY(pr__sqlite_run(&store->conn, sql, &changes, err, "tttt", tenant, consumer,
                               item->message.id, item->token));
        item->fenced = changes != 1;
    }
    return PR_OK;
}

pr_status pr__sqlite_inbox_release(pr_store *store, const char *consumer, pr__batch *batch,
                                   pr_error *err)
{
    pr__sqlite_store *self = pr__sqlite_store_of(store);
    TRY(pr__sqlite_ready(self, err));
    TRY(pr__sqlite_begin(&self->conn, /* write= */ true, err));
    pr_status status = for_open_items(self, sql_release, consumer, batch, 0, err);
    PR_FAULT("store.before_inbox_release_commit");
    TRY(pr__sqlite_end(&self->conn, status, err));
    PR_FAULT("store.after_inbox_release_commit");
    return PR_OK;
}

pr_status pr__sqlite_inbox_renew(pr_store *store, const char *consumer, pr__batch *batch,
                                 int64_t lease_ms, pr_error *err)
{
    pr__sqlite_store *self = pr__sqlite_store_of(store);
    TRY(pr__sqlite_ready(self, err));
    TRY(pr__sqlite_begin(&self->conn, /* write= */ true, err));
    int64_t until_us = pr__sqlite_now(store) + lease_ms * US_PER_MS;
    pr_status status = for_open_items(self, sql_renew, consumer, batch, until_us, err);
    PR_FAULT("store.before_inbox_renew_commit");
    TRY(pr__sqlite_end(&self->conn, status, err));
    PR_FAULT("store.after_inbox_renew_commit");
    return PR_OK;
}
