/*
 * Claiming parked rows of a reader, and when the next may be claimed.
 *
 * Invariants: whether a held row may go is derived at each claim, from the rows of its key, never
 * stored; of a key one holder has the whole run that may go, in order. Heads are locked with SKIP
 * LOCKED in a materialised CTE; a run follows its locked head only, and ends at the first row of it
 * that is not locked at once.
 */
#include <string.h>

#include "base/error.h"
#include "base/fault.h"
#include "base/text.h"
#include "store/postgres/parked.h"
#include "store/postgres/reader.h"
#include "store/postgres/row.h"
#include "store/postgres/value.h"

#define ORIGIN        "postgres.parked"
#define TAKEOVERS_MAX 3 /* are one charge */
#define SQL_SIZE      2600

/* A row that is claimed, or one that others of its key follow. */
typedef struct candidate {
    int64_t place;
    int64_t log_id;
    int64_t size;
    const char *tenant; /* NULL: no key, or order does not matter */
    const char *key;
    uint32_t head; /* of a successor: the index of its head */
} candidate;

typedef struct gatherer {
    pr__pg_store *store;
    const pr__claim_options *opt;
    pr__batch *batch;
    bool halt;
    bool skip;
    bool alone; /* one that may have killed its holder more than once */
    candidate *heads;
    uint32_t head_count;
    candidate *followers; /* by head, in order; only those that may go */
    uint32_t follower_count;
    int64_t *places; /* all that is claimed, runs one after the other */
    uint32_t place_count;
    uint64_t bytes_left;
    char token[PR_UUID_TEXT_SIZE];
} gatherer;

/* No older row of the same key blocks; $1 reader, $2 halt, $3 skip. */
#define NOT_BLOCKED                                                                                \
    "($3 OR a.key IS NULL OR NOT EXISTS (SELECT FROM {p}outbox_parked AS b WHERE b.reader = "      \
    "a.reader AND b.tenant = a.tenant AND b.key = a.key AND b.log_id < a.log_id AND (b.state <> "  \
    "'dead' OR $2)))"
#define HEAD   "a.place, a.log_id, a.tenant, a.key, a.takeovers, octet_length(a.body)"
#define LOCKED " FOR UPDATE OF a SKIP LOCKED) SELECT * FROM h"

static const char SQL_EXPIRED[] =
    "WITH h AS MATERIALIZED (SELECT " HEAD " FROM {p}outbox_parked AS a WHERE a.reader = $1 AND "
    "a.state = 'processing' AND a.locked_until <= statement_timestamp() AND " NOT_BLOCKED
    " ORDER BY a.takeovers DESC, a.log_id LIMIT {l}" LOCKED;
static const char SQL_FAILED[] =
    "WITH h AS MATERIALIZED (SELECT " HEAD " FROM {p}outbox_parked AS a WHERE a.reader = $1 AND "
    "a.state IN ('delayed', 'failed') AND a.next_attempt_at <= statement_timestamp() AND NOT "
    "a.operator_hold AND " NOT_BLOCKED " ORDER BY a.next_attempt_at, a.log_id LIMIT {l}" LOCKED;
/* The order policy is skip: nothing holds anything, also not what was held under another policy. */
static const char SQL_HELD_ANY[] =
    "WITH h AS MATERIALIZED (SELECT " HEAD " FROM {p}outbox_parked AS a WHERE a.reader = $1 AND "
    "($2 OR true) AND $3 AND a.state = 'held' AND NOT a.operator_hold ORDER BY a.log_id LIMIT "
    "{l}" LOCKED;
/* From key to key over the index of held rows: the cost is in keys, not in rows. A key may go when
   its first blocking row is a held one. */
static const char SQL_HELD[] =
    "WITH RECURSIVE k AS ((SELECT tenant, key FROM {p}outbox_parked WHERE reader = $1 AND state = "
    "'held' ORDER BY tenant, key LIMIT 1) UNION ALL SELECT n.tenant, n.key FROM k CROSS JOIN "
    "LATERAL (SELECT tenant, key FROM {p}outbox_parked WHERE reader = $1 AND state = 'held' AND "
    "(tenant, key) > (k.tenant, k.key) ORDER BY tenant, key LIMIT 1) AS n), "
    "f AS (SELECT b.place FROM k CROSS JOIN LATERAL (SELECT place, state, operator_hold FROM "
    "{p}outbox_parked WHERE reader = $1 AND tenant = k.tenant AND key = k.key AND (state <> 'dead' "
    "OR $2) ORDER BY log_id LIMIT 1) AS b WHERE NOT $3 AND b.state = 'held' AND NOT "
    "b.operator_hold LIMIT {l}), "
    "h AS MATERIALIZED (SELECT " HEAD " FROM {p}outbox_parked AS a JOIN f ON f.place = a.place "
    "WHERE a.state = 'held' AND NOT a.operator_hold ORDER BY a.log_id" LOCKED;

static uint32_t room(const gatherer *g)
{
    return g->opt->batch_max - g->head_count;
}

static pr_status gather_heads(gatherer *g, const char *template, bool expired, pr_error *err)
{
    char sql[SQL_SIZE];
    AUTO_RESULT result = NULL;
    bool failed = false;
    if (room(g) == 0 || g->alone)
        return PR_OK;
    pr__pg_with_limit(template, room(g), sql, sizeof sql);
    TRY(pr__pg_query(&g->store->conn, sql, &result, err, "ioo", g->batch->reader, (int)g->halt,
                     (int)g->skip));
    for (int row = 0; row < PQntuples(result) && room(g) > 0 && !g->alone; row++) {
        candidate *head = &g->heads[g->head_count++];
        *head = (candidate){.place = pr__pg_value_int(result, row, 0),
                            .log_id = pr__pg_value_int(result, row, 1),
                            .size = pr__pg_value_int(result, row, 5)};
        /* the one with the most takeovers came first */
        g->alone = expired && pr__pg_value_int(result, row, 4) > 0;
        if (g->skip || g->alone || PQgetisnull(result, row, 3))
            continue;
        head->tenant = pr__pg_value_copy(result, row, 2, g->batch->arena, &failed);
        head->key = pr__pg_value_copy(result, row, 3, g->batch->arena, &failed);
    }
    return failed ? pr__fail_nomem(err, ORIGIN) : PR_OK;
}

static const char SQL_RUNS[] =
    "SELECT h.n, r.place, r.log_id, r.size, r.dead, r.may FROM ROWS FROM (unnest($2), unnest($3), "
    "unnest($4)) WITH ORDINALITY AS h (tenant, key, log_id, n) CROSS JOIN LATERAL (SELECT a.place, "
    "a.log_id, octet_length(a.body) AS size, a.state = 'dead' AS dead, NOT a.operator_hold AND "
    "(a.state = 'held' OR a.state = 'failed' AND a.next_attempt_at <= statement_timestamp() OR "
    "a.state = 'processing' AND a.locked_until <= statement_timestamp() AND a.takeovers = 0) AS "
    "may FROM {p}outbox_parked AS a WHERE a.reader = $1 AND a.tenant = h.tenant AND a.key = h.key "
    "AND a.log_id > h.log_id ORDER BY a.log_id LIMIT {l}) AS r ORDER BY h.n, r.log_id";
static const char SQL_LOCK[] =
    "WITH h AS MATERIALIZED (SELECT a.place FROM {p}outbox_parked AS a WHERE a.place = ANY ($1) "
    "AND NOT a.operator_hold AND (a.state = 'held' OR a.state = 'failed' AND a.next_attempt_at <= "
    "statement_timestamp() OR a.state = 'processing' AND a.locked_until <= statement_timestamp() "
    "AND a.takeovers = 0) ORDER BY a.place" LOCKED;

/* The successors of each head, up to the first that may not go. */
static void read_runs(gatherer *g, const PGresult *result, const uint32_t *heads)
{
    uint32_t ended = UINT32_MAX;
    for (int row = 0; row < PQntuples(result); row++) {
        uint32_t head = heads[pr__pg_value_int(result, row, 0) - 1];
        if (head == ended || g->follower_count == g->opt->batch_max)
            continue;
        if (pr__pg_value_int(result, row, 4) && !g->halt)
            continue; /* a dead one frees its key under hold */
        if (!pr__pg_value_int(result, row, 5)) {
            ended = head;
            continue;
        }
        g->followers[g->follower_count++] = (candidate){.place = pr__pg_value_int(result, row, 1),
                                                        .log_id = pr__pg_value_int(result, row, 2),
                                                        .size = pr__pg_value_int(result, row, 3),
                                                        .head = head};
    }
}

static pr_status find_runs(gatherer *g, pr__pg_array arrays[3], pr_error *err)
{
    char sql[SQL_SIZE];
    AUTO_PARAMS params = {.count = 0};
    AUTO_RESULT result = NULL;
    uint32_t count = 0;
    uint32_t *heads = pr__arena_alloc(g->batch->arena, (g->head_count + 1) * sizeof *heads);
    if (!heads)
        return pr__fail_nomem(err, ORIGIN);
    for (uint32_t i = 0; i < g->head_count; i++) {
        if (!g->heads[i].key)
            continue;
        pr__pg_array_text(&arrays[0], g->heads[i].tenant);
        pr__pg_array_text(&arrays[1], g->heads[i].key);
        pr__pg_array_int(&arrays[2], g->heads[i].log_id);
        heads[count++] = i;
    }
    if (count == 0)
        return PR_OK;
    uint32_t share = (g->opt->batch_max + count - 1) / count;
    uint32_t limit = 8;
    while (limit < share * 2)
        limit *= 2;
    pr__pg_with_limit(SQL_RUNS, limit, sql, sizeof sql);
    pr__pg_add_int(&params, g->batch->reader);
    for (int i = 0; i < 3; i++)
        pr__pg_add_array(&params, &arrays[i]);
    TRY(pr__pg_exec(&g->store->conn, sql, &params, &result, err));
    read_runs(g, result, heads);
    return PR_OK;
}

/* Lock the successors; a run ends at the first that somebody else has. */
static pr_status lock_runs(gatherer *g, pr__pg_array *places, pr_error *err)
{
    AUTO_PARAMS params = {.count = 0};
    AUTO_RESULT result = NULL;
    if (g->follower_count == 0)
        return PR_OK;
    for (uint32_t i = 0; i < g->follower_count; i++)
        pr__pg_array_int(places, g->followers[i].place);
    pr__pg_add_array(&params, places);
    TRY(pr__pg_exec(&g->store->conn, SQL_LOCK, &params, &result, err));
    uint32_t kept = 0;
    uint32_t ended = UINT32_MAX;
    for (uint32_t i = 0; i < g->follower_count; i++) {
        bool locked = false;
        for (int row = 0; row < PQntuples(result) && !locked; row++)
            locked = pr__pg_value_int(result, row, 0) == g->followers[i].place;
        if (!locked)
            ended = g->followers[i].head;
        else if (g->followers[i].head != ended)
            g->followers[kept++] = g->followers[i];
    }
    g->follower_count = kept;
    return PR_OK;
}

static pr_status gather_runs(gatherer *g, pr_error *err)
{
    static const Oid types[4] = {PR__PG_TEXT, PR__PG_TEXT, PR__PG_INT8, PR__PG_INT8};
    pr__pg_array arrays[4];
    if (g->skip || g->alone)
        return PR_OK;
    for (int i = 0; i < 4; i++)
        pr__pg_array_init(&arrays[i], types[i]);
    pr_status status = find_runs(g, arrays, err);
    if (status == PR_OK)
        status = lock_runs(g, &arrays[3], err);
    for (int i = 0; i < 4; i++)
        pr__pg_array_done(&arrays[i]);
    return status;
}

/* Take one row unless it is too large to go with the others. */
static bool take_place(gatherer *g, const candidate *one)
{
    if (g->place_count >= g->opt->batch_max ||
        (g->place_count > 0 && (uint64_t)one->size > g->bytes_left)) {
        g->batch->more = true;
        return false;
    }
    g->places[g->place_count++] = one->place;
    g->bytes_left -= (uint64_t)one->size < g->bytes_left ? (uint64_t)one->size : g->bytes_left;
    return true;
}

/* Each head and its share of what is left for its successors. */
static void choose(gatherer *g)
{
    uint32_t next = 0;
    for (uint32_t i = 0; i < g->head_count; i++) {
        uint32_t heads_left = g->head_count - i;
        uint32_t left = g->opt->batch_max - g->place_count;
        uint32_t share = (left + heads_left - 1) / heads_left;
        if (left == 0 || !take_place(g, &g->heads[i]))
            return;
        bool going = true;
        for (uint32_t taken = 1; next < g->follower_count && g->followers[next].head == i; next++) {
            if (taken >= share)
                g->batch->more = true;
            going = going && taken < share && take_place(g, &g->followers[next]);
            taken++;
        }
    }
}

static pr_status gather(gatherer *g, pr_error *err)
{
    TRY(gather_heads(g, SQL_EXPIRED, /* expired= */ true, err));
    TRY(gather_heads(g, SQL_FAILED, false, err));
    TRY(gather_heads(g, g->skip ? SQL_HELD_ANY : SQL_HELD, false, err));
    TRY(gather_runs(g, err));
    if (g->head_count == g->opt->batch_max || g->alone)
        g->batch->more = true;
    choose(g);
    return PR_OK;
}

static const char SQL_TAKE[] =
    "UPDATE {p}outbox_parked AS a SET resume_state = CASE a.state WHEN 'processing' THEN "
    "a.resume_state ELSE a.state END, takeovers = a.takeovers + (a.state = 'processing')::int4, "
    "state = 'processing', lock_token = $2, locked_until = clock_timestamp() + $3 * interval '1 "
    "millisecond', owner = $4 WHERE a.place = ANY ($1) "
    "RETURNING " PR__PG_MESSAGE_SELECT("a.", "$5") ", a.place, a.log_id, a.lane, a.attempts, "
                                                   "a.suspicion, a.takeovers, clock_timestamp()";

static pr_status read_item(gatherer *g, const PGresult *result, int row, pr__item *item,
                           pr_error *err)
{
    pr__batch *batch = g->batch;
    pr__pg_store *store = g->store;
    int at = PR__PG_MESSAGE_SELECT_COUNT + 1;
    TRY(pr__pg_read_message(result, row, 0, batch->arena, store->base.body_size_max, &item->message,
                            &item->unreadable, err));
    if (!item->message.destination)
        item->message.destination =
            pr__pg_topic(batch->arena, store->settings.default_transport, item->message.type);
    if (!item->message.destination)
        return pr__fail_nomem(err, ORIGIN);
    item->log_id = pr__pg_value_int(result, row, at++);
    int64_t lane = pr__pg_value_int(result, row, at++);
    item->lane = lane < 0 ? 0 : (uint32_t)lane;
    item->slice = PR__NO_SLICE;
    item->attempts = (uint32_t)pr__pg_value_int(result, row, at++);
    item->suspicion = (uint32_t)pr__pg_value_int(result, row, at++);
    item->poison = pr__pg_value_int(result, row, at++) >= TAKEOVERS_MAX;
    batch->claimed_at_us = pr__pg_value_instant(result, row, at);
    memcpy(item->token, g->token, sizeof item->token);
    return PR_OK;
}

/* The rows come back in no order. */
static pr_status take(gatherer *g, pr__pg_array *places, pr_error *err)
{
    AUTO_PARAMS params = {.count = 0};
    AUTO_RESULT result = NULL;
    pr__batch *batch = g->batch;
    batch->items = pr__arena_alloc(batch->arena, g->place_count * sizeof(pr__item));
    if (!batch->items)
        return pr__fail_nomem(err, ORIGIN);
    for (uint32_t i = 0; i < g->place_count; i++)
        pr__pg_array_int(places, g->places[i]);
    pr__pg_add_array(&params, places);
    pr__pg_add_uuid(&params, g->token);
    pr__pg_add_int(&params, g->opt->lease_ms);
    pr__pg_add_text(&params, g->opt->owner ? g->opt->owner : "");
    pr__pg_add_int(&params, (int64_t)g->store->base.body_size_max);
    TRY(pr__pg_exec(&g->store->conn, SQL_TAKE, &params, &result, err));
    for (uint32_t i = 0; i < g->place_count; i++)
        for (int row = 0; row < PQntuples(result); row++)
            if (pr__pg_value_int(result, row, PR__PG_MESSAGE_SELECT_COUNT) == g->places[i])
                TRY(read_item(g, result, row, &batch->items[batch->item_count++], err));
    return PR_OK;
}

static pr_status gatherer_init(gatherer *g, pr__pg_store *store, const pr__claim_options *opt,
                               pr__batch *batch, pr_error *err)
{
    TRY(pr__pg_settings_load(store, err));
    TRY(pr__pg_reader_load(store, opt->reader, &batch->order, err));
    *g = (gatherer){.store = store,
                    .opt = opt,
                    .batch = batch,
                    .halt = batch->order == PR_ORDER_HALT,
                    .skip = batch->order == PR_ORDER_SKIP,
                    .bytes_left = opt->bytes_max};
    batch->reader = opt->reader;
    batch->lease_ms = opt->lease_ms;
    g->heads = pr__arena_alloc(batch->arena, opt->batch_max * sizeof *g->heads);
    g->followers = pr__arena_alloc(batch->arena, opt->batch_max * sizeof *g->followers);
    g->places = pr__arena_alloc(batch->arena, opt->batch_max * sizeof *g->places);
    if (!g->heads || !g->followers || !g->places)
        return pr__fail_nomem(err, ORIGIN);
    pr__pg_token(&store->base, g->token);
    return PR_OK;
}

static pr_status claim(gatherer *g, pr__pg_store *store, const pr__claim_options *opt,
                       pr__batch *batch, pr_error *err)
{
    TRY(gatherer_init(g, store, opt, batch, err));
    TRY(gather(g, err));
    if (g->place_count == 0)
        return PR_OK;
    pr__pg_array places;
    pr__pg_array_init(&places, PR__PG_INT8);
    pr_status status = take(g, &places, err);
    pr__pg_array_done(&places);
    return status;
}

pr_status pr__pg_claim_parked(pr_store *base, const pr__claim_options *opt, pr__batch **ret_batch,
                              pr_error *err)
{
    pr__pg_store *store = pr__pg_store_of(base);
    gatherer g = {.place_count = 0};
    TRY(pr__pg_ready(store, err));
    AUTO(pr__batch) batch = pr__batch_new();
    if (!batch)
        return pr__fail_nomem(err, ORIGIN);
    TRY(pr__pg_begin(&store->conn, err));
    pr_status status = claim(&g, store, opt, batch, err);
    if (status != PR_OK || batch->item_count == 0) {
        pr__pg_rollback(&store->conn);
        TRY(status);
        *ret_batch = NULL;
        return PR_OK;
    }
    PR_FAULT("store.before_claim_parked_commit");
    status = pr__pg_commit(&store->conn, err); /* of unknown outcome: the leases run out */
    PR_FAULT("store.after_claim_parked_commit");
    TRY(status);
    *ret_batch = TAKE(batch);
    return PR_OK;
}

#define HELD_MAY_GO                                                                                \
    "WITH RECURSIVE k AS ((SELECT tenant, key FROM {p}outbox_parked WHERE reader = $1 AND state "  \
    "= 'held' ORDER BY tenant, key LIMIT 1) UNION ALL SELECT n.tenant, n.key FROM k CROSS JOIN "   \
    "LATERAL (SELECT tenant, key FROM {p}outbox_parked WHERE reader = $1 AND state = 'held' AND "  \
    "(tenant, key) > (k.tenant, k.key) ORDER BY tenant, key LIMIT 1) AS n) SELECT b.place FROM k " \
    "CROSS JOIN LATERAL (SELECT place, state, operator_hold FROM {p}outbox_parked WHERE reader = " \
    "$1 AND tenant = k.tenant AND key = k.key AND (state <> 'dead' OR $2) ORDER BY log_id LIMIT "  \
    "1) AS b WHERE b.state = 'held' AND NOT b.operator_hold LIMIT 1"

static const char SQL_DUE[] =
    "SELECT clock_timestamp(), (SELECT a.next_attempt_at FROM {p}outbox_parked AS a WHERE a.reader "
    "= $1 AND a.state IN ('delayed', 'failed') AND NOT a.operator_hold AND " NOT_BLOCKED
    " ORDER BY a.next_attempt_at LIMIT 1), (SELECT a.locked_until FROM {p}outbox_parked AS a WHERE "
    "a.reader = $1 AND a.state = 'processing' AND " NOT_BLOCKED
    " ORDER BY a.locked_until LIMIT 1), EXISTS (" HELD_MAY_GO ") OR $3 AND EXISTS (SELECT FROM "
    "{p}outbox_parked AS a WHERE a.reader = $1 AND a.state = 'held' AND NOT a.operator_hold)";

static pr_status due(pr__pg_store *store, int64_t reader, int64_t *ret_next_ms, pr_error *err)
{
    pr_order order = PR_ORDER_HOLD;
    AUTO_RESULT result = NULL;
    TRY(pr__pg_settings_load(store, err));
    TRY(pr__pg_reader_load(store, reader, &order, err));
    TRY(pr__pg_query(&store->conn, SQL_DUE, &result, err, "ioo", reader,
                     (int)(order == PR_ORDER_HALT), (int)(order == PR_ORDER_SKIP)));
    int64_t now_us = pr__pg_value_instant(result, 0, 0);
    *ret_next_ms = pr__pg_value_int(result, 0, 3) ? 0 : -1;
    for (int column = 1; column <= 2; column++) {
        if (PQgetisnull(result, 0, column))
            continue;
        int64_t wait = pr__pg_wait_ms(now_us, pr__pg_value_instant(result, 0, column));
        if (*ret_next_ms < 0 || wait < *ret_next_ms)
            *ret_next_ms = wait;
    }
    return PR_OK;
}

pr_status pr__pg_parked_due(pr_store *base, int64_t reader, int64_t *ret_next_ms, pr_error *err)
{
    pr__pg_store *store = pr__pg_store_of(base);
    TRY(pr__pg_ready(store, err));
    TRY(pr__pg_begin_read(&store->conn, 0, err));
    return pr__pg_end(&store->conn, due(store, reader, ret_next_ms, err), err);
}
