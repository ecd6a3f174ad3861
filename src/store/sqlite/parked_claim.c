/*
 * Claiming parked rows of a reader, and when the next may be claimed.
 *
 * Invariants: whether a held row may go is derived at each claim, from the rows of its key, never
 * stored; of a key one holder has the whole run that may go, in order.
 */
#include <string.h>

#include "base/error.h"
#include "base/fault.h"
#include "store/sqlite/parked.h"
#include "store/sqlite/reader.h"
#include "store/sqlite/row.h"

#define ORIGIN        "sqlite.parked"
#define TAKEOVERS_MAX 3 /* are one charge */

/* What is chosen to be claimed. */
typedef struct candidate {
    int64_t place;
    int64_t log_id;
    const char *tenant; /* NULL: no key, or order does not matter */
    const char *key;
} candidate;

typedef struct gatherer {
    pr__sqlite_store *store;
    const pr__claim_options *opt;
    pr__batch *batch;
    int64_t now;
    bool halt;
    bool skip;
    candidate *heads; /* first rows that may go, one a key */
    uint32_t head_count;
    int64_t *places; /* all that is claimed, runs one after the other */
    uint32_t place_count;
    uint64_t bytes_left;
    char token[PR_UUID_TEXT_SIZE];
} gatherer;

/* An older row of the same key that blocks; ?2 = halt, ?3 = skip. */
#define NOT_BLOCKED                                                                                \
    "(?3 OR a.key IS NULL OR NOT EXISTS (SELECT 1 FROM {p}_outbox_parked AS b WHERE b.reader = "   \
    "a.reader AND b.tenant = a.tenant AND b.key = a.key AND b.log_id < a.log_id AND (b.state <> "  \
    "'dead' OR ?2)))"

static const char SQL_FAILED_DUE[] =
    "SELECT a.place, a.log_id, a.tenant, a.key FROM {p}_outbox_parked AS a WHERE a.reader = ?1 AND "
    "a.state IN ('delayed', 'failed') AND a.next_attempt_at <= ?4 AND NOT a.operator_hold "
    "AND " NOT_BLOCKED " ORDER BY a.next_attempt_at, a.log_id LIMIT ?5";
static const char SQL_EXPIRED[] =
    "SELECT a.place, a.log_id, a.tenant, a.key, a.takeovers FROM {p}_outbox_parked AS a WHERE "
    "a.reader = ?1 AND a.state = 'processing' AND a.locked_until <= ?4 AND " NOT_BLOCKED
    " ORDER BY a.takeovers DESC, a.log_id LIMIT ?5";
static const char SQL_HELD_ANY[] =
    "SELECT a.place, a.log_id, a.tenant, a.key FROM {p}_outbox_parked AS a WHERE a.reader = ?1 AND "
    "a.state = 'held' AND NOT a.operator_hold ORDER BY a.log_id LIMIT ?2";
/* The next key that has a held row, and the first blocking row of a key. */
static const char SQL_HELD_KEY[] =
    "SELECT tenant, key FROM {p}_outbox_parked WHERE reader = ?1 AND state = 'held' AND (tenant, "
    "key) > (?2, ?3) ORDER BY tenant, key LIMIT 1";
static const char SQL_KEY_HEAD[] =
    "SELECT place, log_id, state = 'held' AND NOT operator_hold FROM {p}_outbox_parked WHERE "
    "reader "
    "= ?1 AND tenant = ?2 AND key = ?3 AND (state <> 'dead' OR ?4) ORDER BY log_id LIMIT 1";

static pr_status add_head(gatherer *g, sqlite3_stmt *stmt, pr_error *err)
{
    bool failed = false;
    candidate *head = &g->heads[g->head_count];
    *head = (candidate){.place = sqlite3_column_int64(stmt, 0),
                        .log_id = sqlite3_column_int64(stmt, 1)};
    if (!g->skip && sqlite3_column_type(stmt, 3) != SQLITE_NULL) {
        head->tenant = pr__sqlite_column_text(stmt, 2, g->batch->arena, &failed);
        head->key = pr__sqlite_column_text(stmt, 3, g->batch->arena, &failed);
    }
    if (failed)
        return pr__fail_nomem(err, ORIGIN);
    g->head_count++;
    return PR_OK;
}

static uint32_t room(const gatherer *g)
{
    return g->opt->batch_max - g->head_count;
}

/* Rows whose holder died. One that may have killed it more than once is taken alone. */
static pr_status gather_expired(gatherer *g, bool *ret_alone, pr_error *err)
{
    *ret_alone = false;
    AUTO_STMT stmt = NULL;
    TRY(pr__sqlite_query(&g->store->conn, SQL_EXPIRED, &stmt, err, "iiiii", g->batch->reader,
                         (int64_t)g->halt, (int64_t)g->skip, g->now, (int64_t)room(g)));
    while (room(g) > 0) {
        bool row = false;
        TRY(pr__sqlite_step(&g->store->conn, stmt, &row, err));
        if (!row)
            break;
        bool again = sqlite3_column_int64(stmt, 4) > 0;
        TRY(add_head(g, stmt, err));
        if (again) {
            *ret_alone = true;
            break;
        }
    }
    return PR_OK;
}

static pr_status gather_failed(gatherer *g, pr_error *err)
{
    if (room(g) == 0)
        return PR_OK;
    AUTO_STMT stmt = NULL;
    TRY(pr__sqlite_query(&g->store->conn, SQL_FAILED_DUE, &stmt, err, "iiiii", g->batch->reader,
                         (int64_t)g->halt, (int64_t)g->skip, g->now, (int64_t)room(g)));
    while (room(g) > 0) {
        bool row = false;
        TRY(pr__sqlite_step(&g->store->conn, stmt, &row, err));
        if (!row)
            return PR_OK;
        TRY(add_head(g, stmt, err));
    }
    return PR_OK;
}

/* The order policy is skip: nothing holds anything, also not what was held under another policy. */
static pr_status gather_held_any(gatherer *g, pr_error *err)
{
    AUTO_STMT stmt = NULL;
    TRY(pr__sqlite_query(&g->store->conn, SQL_HELD_ANY, &stmt, err, "ii", g->batch->reader,
                         (int64_t)room(g)));
    while (room(g) > 0) {
        bool row = false;
        TRY(pr__sqlite_step(&g->store->conn, stmt, &row, err));
        if (!row)
            return PR_OK;
        TRY(add_head(g, stmt, err));
    }
    return PR_OK;
}

/* Is the first blocking row of this key a held one? Then it may go. */
static pr_status try_key(gatherer *g, const char *tenant, const char *key, pr_error *err)
{
    AUTO_STMT stmt = NULL;
    bool row = false;
    TRY(pr__sqlite_query(&g->store->conn, SQL_KEY_HEAD, &stmt, err, "itti", g->batch->reader,
                         tenant, key, (int64_t)g->halt));
    TRY(pr__sqlite_step(&g->store->conn, stmt, &row, err));
    if (!row || !sqlite3_column_int(stmt, 2))
        return PR_OK;
    g->heads[g->head_count++] = (candidate){.place = sqlite3_column_int64(stmt, 0),
                                            .log_id = sqlite3_column_int64(stmt, 1),
                                            .tenant = tenant,
                                            .key = key};
    return PR_OK;
}

/* Step from key to key over the index of held rows: the cost is in keys, not in rows. */
static pr_status gather_held(gatherer *g, pr_error *err)
{
    if (g->skip)
        return gather_held_any(g, err);
    const char *tenant = "";
    const char *key = "";
    while (room(g) > 0) {
        bool failed = false;
        {
            AUTO_STMT stmt = NULL;
            bool row = false;
            TRY(pr__sqlite_query(&g->store->conn, SQL_HELD_KEY, &stmt, err, "itt", g->batch->reader,
                                 tenant, key));
            TRY(pr__sqlite_step(&g->store->conn, stmt, &row, err));
            if (!row)
                return PR_OK;
            tenant = pr__sqlite_column_text(stmt, 0, g->batch->arena, &failed);
            key = pr__sqlite_column_text(stmt, 1, g->batch->arena, &failed);
        }
        if (failed)
            return pr__fail_nomem(err, ORIGIN);
        TRY(try_key(g, tenant, key, err));
    }
    return PR_OK;
}

static const char SQL_SIZE[] = "SELECT length(body) FROM {p}_outbox_parked WHERE place = ?1";
static const char SQL_RUN[] =
    "SELECT place, length(body), state = 'dead', state = 'held' AND NOT operator_hold OR state = "
    "'failed' AND next_attempt_at <= ?5 AND NOT operator_hold OR state = 'processing' AND "
    "locked_until <= ?5 AND takeovers = 0 FROM {p}_outbox_parked WHERE reader = ?1 AND tenant = ?2 "
    "AND key = ?3 AND log_id > ?4 ORDER BY log_id";

/* Take one row unless it is too large to go with the others. */
static bool take_place(gatherer *g, int64_t place, int64_t size)
{
    if (g->place_count >= g->opt->batch_max ||
        (g->place_count > 0 && (uint64_t)size > g->bytes_left)) {
        g->batch->more = true;
        return false;
    }
    g->places[g->place_count++] = place;
    g->bytes_left -= (uint64_t)size < g->bytes_left ? (uint64_t)size : g->bytes_left;
    return true;
}

/* A head and the successors of its key that may follow it, up to share. */
static pr_status take_run(gatherer *g, const candidate *head, uint32_t share, pr_error *err)
{
    int64_t size = 0;
    TRY(pr__sqlite_int(&g->store->conn, SQL_SIZE, &size, NULL, err, "i", head->place));
    if (!take_place(g, head->place, size) || !head->key)
        return PR_OK;
    AUTO_STMT stmt = NULL;
    TRY(pr__sqlite_query(&g->store->conn, SQL_RUN, &stmt, err, "ittii", g->batch->reader,
                         head->tenant, head->key, head->log_id, g->now));
    for (uint32_t taken = 1;;) {
        bool row = false;
        TRY(pr__sqlite_step(&g->store->conn, stmt, &row, err));
        if (!row)
            return PR_OK;
        if (sqlite3_column_int(stmt, 2) && !g->halt)
            continue; /* a dead one frees its key under hold */
        if (!sqlite3_column_int(stmt, 3))
            return PR_OK;
        if (taken >= share) {
            g->batch->more = true;
            return PR_OK;
        }
        if (!take_place(g, sqlite3_column_int64(stmt, 0), sqlite3_column_int64(stmt, 1)))
            return PR_OK;
        taken++;
    }
}

static pr_status gather(gatherer *g, pr_error *err)
{
    bool alone = false;
    TRY(gather_expired(g, &alone, err));
    if (alone) { /* the one with the most takeovers came first */
        g->head_count = 1;
        g->heads[0].key = NULL;
        g->batch->more = true;
    } else {
        TRY(gather_failed(g, err));
        TRY(gather_held(g, err));
    }
    if (g->head_count == g->opt->batch_max)
        g->batch->more = true;
    for (uint32_t i = 0; i < g->head_count; i++) {
        uint32_t heads_left = g->head_count - i;
        uint32_t left = g->opt->batch_max - g->place_count;
        if (left == 0)
            break;
        TRY(take_run(g, &g->heads[i], (left + heads_left - 1) / heads_left, err));
    }
    return PR_OK;
}

static pr_status gatherer_init(gatherer *g, pr__sqlite_store *store, const pr__claim_options *opt,
                               pr__batch *batch, pr_error *err)
{
    TRY(pr__sqlite_reader_load(store, opt->reader, &batch->order, err));
    *g = (gatherer){.store = store,
                    .opt = opt,
                    .batch = batch,
                    .now = pr__sqlite_now(&store->base),
                    .halt = batch->order == PR_ORDER_HALT,
                    .skip = batch->order == PR_ORDER_SKIP,
                    .bytes_left = opt->bytes_max};
    batch->reader = opt->reader;
    batch->claimed_at_us = g->now;
    batch->lease_ms = opt->lease_ms;
    g->heads = pr__arena_alloc(batch->arena, opt->batch_max * sizeof *g->heads);
    g->places = pr__arena_alloc(batch->arena, opt->batch_max * sizeof *g->places);
    if (!g->heads || !g->places)
        return pr__fail_nomem(err, ORIGIN);
    pr__sqlite_token(&store->base, g->token);
    return PR_OK;
}

static const char SQL_LOCK[] =
    "UPDATE {p}_outbox_parked SET resume_state = CASE state WHEN 'processing' THEN resume_state "
    "WHEN 'held' THEN 'held' ELSE 'failed' END, takeovers = takeovers + (state = 'processing'), "
    "state = 'processing', lock_token = "
    "?2, locked_until = ?3, owner = ?4 WHERE place = ?1";

static pr_status lock_places(gatherer *g, pr_error *err)
{
    for (uint32_t i = 0; i < g->place_count; i++)
        TRY(pr__sqlite_run(&g->store->conn, SQL_LOCK, NULL, err, "itit", g->places[i], g->token,
                           g->now + g->opt->lease_ms * 1000, g->opt->owner ? g->opt->owner : ""));
    return PR_OK;
}

static const char SQL_MESSAGE[] = "SELECT " PR__MESSAGE_SELECT ", log_id, lane, attempts, "
                                  "suspicion, takeovers FROM {p}_outbox_parked WHERE place = ?2";

static pr_status read_item(gatherer *g, int64_t place, pr_error *err)
{
    pr__batch *batch = g->batch;
    pr__item *item = &batch->items[batch->item_count];
    pr__sqlite_store *store = g->store;
    AUTO_STMT stmt = NULL;
    bool row = false;
    TRY(pr__sqlite_query(&store->conn, SQL_MESSAGE, &stmt, err, "ii",
                         (int64_t)store->base.body_size_max, place));
    TRY(pr__sqlite_step(&store->conn, stmt, &row, err));
    if (!row)
        return PR_OK; /* an operator discarded it just now */
    TRY(pr__sqlite_read_message(stmt, 0, batch->arena, store->base.body_size_max, &item->message,
                                &item->unreadable, err));
    if (!item->message.destination)
        item->message.destination =
            pr__sqlite_topic(batch->arena, store->settings.default_transport, item->message.type);
    if (!item->message.destination)
        return pr__fail_nomem(err, ORIGIN);
    item->log_id = sqlite3_column_int64(stmt, PR__MESSAGE_SELECT_COUNT);
    item->lane = (uint32_t)sqlite3_column_int64(stmt, PR__MESSAGE_SELECT_COUNT + 1);
    item->slice = PR__NO_SLICE;
    item->attempts = (uint32_t)sqlite3_column_int64(stmt, PR__MESSAGE_SELECT_COUNT + 2);
    item->suspicion = (uint32_t)sqlite3_column_int64(stmt, PR__MESSAGE_SELECT_COUNT + 3);
    item->poison = sqlite3_column_int64(stmt, PR__MESSAGE_SELECT_COUNT + 4) >= TAKEOVERS_MAX;
    memcpy(item->token, g->token, sizeof item->token);
    batch->item_count++;
    return PR_OK;
}

static pr_status read_items(gatherer *g, pr_error *err)
{
    for (uint32_t i = 0; i < g->place_count; i++)
        TRY(read_item(g, g->places[i], err));
    return PR_OK;
}

static pr_status read_batch(gatherer *g, pr_error *err)
{
    g->batch->items = pr__arena_alloc(g->batch->arena, g->place_count * sizeof(pr__item));
    if (!g->batch->items)
        return pr__fail_nomem(err, ORIGIN);
    TRY(pr__sqlite_begin(&g->store->conn, /* write= */ false, err));
    return pr__sqlite_end(&g->store->conn, read_items(g, err), err);
}

static const char SQL_UNLOCK[] =
    "UPDATE {p}_outbox_parked SET state = coalesce(resume_state, 'failed'), resume_state = NULL, "
    "lock_token = NULL, locked_until = NULL, owner = NULL WHERE place = ?1 AND lock_token = ?2 AND "
    "state = "
    "'processing'";

/* The bodies could not be read after the claim was committed: give it up, as well as can be. */
static void unlock_places(gatherer *g)
{
    pr__sqlite_conn *conn = &g->store->conn;
    if (pr__sqlite_begin(conn, /* write= */ true, NULL) != PR_OK)
        return;
    pr_status status = PR_OK;
    for (uint32_t i = 0; i < g->place_count && status == PR_OK; i++)
        status = pr__sqlite_run(conn, SQL_UNLOCK, NULL, NULL, "it", g->places[i], g->token);
    (void)!pr__sqlite_end(conn, status, NULL);
}

static pr_status look_for_work(pr__sqlite_store *store, const pr__claim_options *opt,
                               pr__batch *batch, bool *ret_work, pr_error *err)
{
    gatherer g;
    bool alone = false;
    pr__claim_options one = *opt;
    one.batch_max = 1; /* the first row that may go answers the question */
    TRY(gatherer_init(&g, store, &one, batch, err));
    TRY(gather_expired(&g, &alone, err));
    TRY(gather_failed(&g, err));
    TRY(gather_held(&g, err));
    *ret_work = g.head_count > 0;
    return PR_OK;
}

static pr_status claim(gatherer *g, pr__sqlite_store *store, const pr__claim_options *opt,
                       pr__batch *batch, pr_error *err)
{
    TRY(pr__sqlite_begin(&store->conn, /* write= */ true, err));
    pr_status status = gatherer_init(g, store, opt, batch, err);
    if (status == PR_OK)
        status = gather(g, err);
    if (status == PR_OK)
        status = lock_places(g, err);
    if (status != PR_OK || g->place_count == 0) {
        pr__sqlite_rollback(&store->conn);
        return status;
    }
    PR_FAULT("store.before_claim_parked_commit");
    status = pr__sqlite_commit(&store->conn, err);
    PR_FAULT("store.after_claim_parked_commit");
    TRY(status);
    status = read_batch(g, err);
    if (status != PR_OK)
        unlock_places(g);
    return status;
}

pr_status pr__sqlite_claim_parked(pr_store *base, const pr__claim_options *opt,
                                  pr__batch **ret_batch, pr_error *err)
{
    pr__sqlite_store *store = pr__sqlite_store_of(base);
    TRY(pr__sqlite_ready(store, err));
    AUTO(pr__batch) batch = pr__batch_new();
    if (!batch)
        return pr__fail_nomem(err, ORIGIN);
    bool work = false;
    TRY(pr__sqlite_begin(&store->conn, /* write= */ false, err));
    TRY(pr__sqlite_end(&store->conn, look_for_work(store, opt, batch, &work, err), err));
    if (work) {
        gatherer g;
        TRY(claim(&g, store, opt, batch, err));
    }
    *ret_batch = batch->item_count > 0 ? TAKE(batch) : NULL;
    return PR_OK;
}

static const char SQL_FAILED_NEXT[] =
    "SELECT a.next_attempt_at FROM {p}_outbox_parked AS a WHERE a.reader = ?1 AND a.state IN "
    "('delayed', 'failed') AND NOT a.operator_hold AND " NOT_BLOCKED
    " ORDER BY a.next_attempt_at LIMIT 1";
static const char SQL_LEASE_NEXT[] =
    "SELECT a.locked_until FROM {p}_outbox_parked AS a WHERE a.reader = ?1 AND a.state = "
    "'processing' AND " NOT_BLOCKED " ORDER BY a.locked_until LIMIT 1";

static pr_status find_due(gatherer *g, int64_t *ret_next_ms, pr_error *err)
{
    static const char *const sql[] = {SQL_FAILED_NEXT, SQL_LEASE_NEXT};
    *ret_next_ms = -1;
    for (size_t i = 0; i < 2; i++) {
        int64_t due = 0;
        bool found = false;
        TRY(pr__sqlite_int(&g->store->conn, sql[i], &due, &found, err, "iii", g->batch->reader,
                           (int64_t)g->halt, (int64_t)g->skip));
        int64_t wait = found ? pr__sqlite_wait_ms(g->now, due) : -1;
        if (found && (*ret_next_ms < 0 || wait < *ret_next_ms))
            *ret_next_ms = wait;
    }
    if (*ret_next_ms == 0)
        return PR_OK;
    TRY(gather_held(g, err));
    if (g->head_count > 0)
        *ret_next_ms = 0;
    return PR_OK;
}

static pr_status due(pr__sqlite_store *store, int64_t reader, pr__batch *scratch,
                     int64_t *ret_next_ms, pr_error *err)
{
    gatherer g;
    pr__claim_options one = {.reader = reader, .lease_ms = 1, .batch_max = 1, .bytes_max = 1};
    TRY(gatherer_init(&g, store, &one, scratch, err));
    return find_due(&g, ret_next_ms, err);
}

pr_status pr__sqlite_parked_due(pr_store *base, int64_t reader, int64_t *ret_next_ms, pr_error *err)
{
    pr__sqlite_store *store = pr__sqlite_store_of(base);
    TRY(pr__sqlite_ready(store, err));
    AUTO(pr__batch) scratch = pr__batch_new();
    if (!scratch)
        return pr__fail_nomem(err, ORIGIN);
    TRY(pr__sqlite_begin(&store->conn, /* write= */ false, err));
    return pr__sqlite_end(&store->conn, due(store, reader, scratch, ret_next_ms, err), err);
}
