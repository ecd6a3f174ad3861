/*
 * Reading the messages of a claim, after its commit.
 *
 * Invariants: what was claimed is read, and nothing else, by one statement for all lanes where it
 * can be: fresh messages of a lane are a run of its index, and are read as one; what is scattered
 * over the log (taken over, rest, late), and what a run did not give, is read one by one. Values
 * that are there for each message cost most: none is sent that another one tells.
 *
 * What blocks a key is looked up with the bodies: rows of a lane's keys are parked only by the
 * holder of its slice, which by now is this claim, and what a settle in the same commit has parked
 * is seen.
 */
#include <string.h>

#include "base/assert.h"
#include "base/error.h"
#include "store/postgres/claim.h"
#include "store/postgres/row.h"

#define ORIGIN  "postgres.claim"
#define RUN_MIN 64

/* $1 the largest body, $2 reader, $3 halt, $4 does anything block, $5… the lanes and ids. */
#define SELECT_MESSAGES                                                                            \
    "SELECT " PR__PG_MESSAGE_SELECT_BINARY(                                                        \
        "o.", "$1") ", CASE WHEN o.key IS NOT NULL AND $4 AND "                                    \
                    "EXISTS (SELECT FROM {p}outbox_parked AS b WHERE b.reader = $2 AND b.tenant "  \
                    "= o.tenant AND "                                                              \
                    "b.key = o.key AND b.log_id < o.id AND (b.state <> 'dead' OR $3)) THEN true "  \
                    "END, k.n, o.id "

static const char SQL_ONE_BY_ONE[] =
    SELECT_MESSAGES "FROM ROWS FROM (unnest($5), unnest($6)) WITH ORDINALITY AS k (lane, id, n) "
                    "CROSS JOIN LATERAL (SELECT * FROM {p}outbox AS t WHERE t.lane = k.lane AND "
                    "t.id = k.id LIMIT 1) AS o";
static const char SQL_RUNS[] =
    SELECT_MESSAGES "FROM ROWS FROM (unnest($5), unnest($6), unnest($7)) WITH ORDINALITY AS k "
                    "(lane, first, last, n) CROSS JOIN LATERAL (SELECT * FROM {p}outbox AS t WHERE "
                    "t.lane = k.lane AND t.id >= k.first AND t.id <= k.last ORDER BY t.id LIMIT "
                    "{l}) AS o";
#define COLUMN_BLOCKED PR__PG_MESSAGE_SELECT_COUNT
#define COLUMN_PLACE   (PR__PG_MESSAGE_SELECT_COUNT + 1)
#define COLUMN_ID      (PR__PG_MESSAGE_SELECT_COUNT + 2)
#define ARRAYS_MAX     3

/* Items of one lane that stand side by side in the batch, by id. */
typedef struct run {
    uint32_t first, count;
} run;

/* One statement: what its row number n is about. */
typedef struct request {
    pr__pg_array arrays[ARRAYS_MAX];
    int array_count;
    run *runs;
    uint32_t run_count;
    uint32_t longest;
} request;

static void add_slice(pr__pg_claimer *c, pr__pg_lane *lane)
{
    pr__batch *batch = c->batch;
    pr__slice *slice = &batch->slices[batch->slice_count];
    *slice = (pr__slice){.lane = lane->lane,
                         .seq = lane->head.seq,
                         .attempt = lane->head.attempt,
                         .takeover = lane->source == PR__PG_SOURCE_TAKEOVER,
                         .again = lane->source == PR__PG_SOURCE_REST};
    memcpy(slice->token, lane->head.token, sizeof slice->token);
    for (uint32_t i = 0; i < lane->chosen.count; i++) {
        pr__item *item = &batch->items[batch->item_count++];
        item->log_id = lane->chosen.items[i];
        item->lane = lane->lane;
        item->slice = batch->slice_count;
        item->suspicion = pr__pg_suspect_get(&lane->head.suspects, item->log_id);
        item->poison = lane->poison;
    }
    batch->slice_count++;
}

/* Lay out slices and items by (lane, id). */
static pr_status lay_out(pr__pg_claimer *c, pr_error *err)
{
    uint32_t items = 0;
    uint32_t slices = 0;
    pr__batch *batch = c->batch;
    for (uint32_t i = 0; i < c->lane_count; i++) {
        items += c->lanes[i].chosen.count;
        slices += c->lanes[i].chosen.count > 0;
        batch->passed_count += c->lanes[i].passed;
    }
    batch->more = c->limited;
    batch->slices = pr__arena_alloc(batch->arena, (slices + 1) * sizeof(pr__slice));
    batch->items = pr__arena_alloc(batch->arena, (items + 1) * sizeof(pr__item));
    if (!batch->slices || !batch->items)
        return pr__fail_nomem(err, ORIGIN);
    for (uint32_t i = 0; i < c->lane_count; i++)
        if (c->lanes[i].chosen.count > 0)
            add_slice(c, &c->lanes[i]);
    return PR_OK;
}

static bool is_read(const pr__item *item)
{
    return item->message.type != NULL;
}

static pr_status read_item(pr__pg_claimer *c, const PGresult *result, int row, pr__item *item,
                           pr_error *err)
{
    pr__batch *batch = c->batch;
    TRY(pr__pg_read_message(result, row, 0, batch->arena, c->store->base.body_size_max,
                            &item->message, &item->unreadable, err));
    if (!item->message.destination)
        item->message.destination =
            pr__pg_topic(batch->arena, c->store->settings.default_transport, item->message.type);
    item->blocked = !PQgetisnull(result, row, COLUMN_BLOCKED);
    return item->message.destination ? PR_OK : pr__fail_nomem(err, ORIGIN);
}

/* The item of a run with this id; NULL: it was not claimed. *from: where to look first. */
static pr__item *find_item(pr__batch *batch, const run *r, int64_t id, uint32_t *from)
{
    for (uint32_t i = *from; i < r->count; i++) {
        pr__item *item = &batch->items[r->first + i];
        if (item->log_id > id)
            return NULL;
        *from = i;
        if (item->log_id == id)
            return item;
    }
    return NULL;
}

/* Rows come run by run, by id; should they not, what is not found is read one by one. */
static pr_status read_rows(pr__pg_claimer *c, const request *r, const PGresult *result,
                           pr_error *err)
{
    int64_t place = 0;
    uint32_t from = 0;
    for (int row = 0; row < PQntuples(result); row++) {
        int64_t n = pr__pg_value_int(result, row, COLUMN_PLACE);
        if (n < 1 || n > r->run_count)
            return pr__fail(err, PR_E_BACKEND, ORIGIN, "the messages of a claim cannot be read");
        if (n != place)
            from = 0;
        place = n;
        pr__item *item =
            find_item(c->batch, &r->runs[n - 1], pr__pg_value_int(result, row, COLUMN_ID), &from);
        if (item && !is_read(item))
            TRY(read_item(c, result, row, item, err));
    }
    return PR_OK;
}

static pr_status send_request(pr__pg_claimer *c, request *r, const char *sql, pr_error *err)
{
    AUTO_PARAMS params = {.count = 0};
    AUTO_RESULT result = NULL;
    pr__batch *batch = c->batch;
    pr__pg_add_int(&params, (int64_t)c->store->base.body_size_max);
    pr__pg_add_int(&params, batch->reader);
    pr__pg_add_bool(&params, batch->order == PR_ORDER_HALT);
    pr__pg_add_bool(&params, batch->order != PR_ORDER_SKIP);
    for (int i = 0; i < r->array_count; i++)
        pr__pg_add_array(&params, &r->arrays[i]);
    TRY(pr__pg_exec(&c->store->conn, sql, &params, &result, err));
    return read_rows(c, r, result, err);
}

static pr_status request_init(request *r, int array_count, uint32_t runs_max, pr__arena *arena,
                              pr_error *err)
{
    *r = (request){.array_count = array_count};
    for (int i = 0; i < array_count; i++)
        pr__pg_array_init(&r->arrays[i], PR__PG_INT8);
    r->runs = pr__arena_alloc(arena, (runs_max + 1) * sizeof *r->runs);
    return r->runs ? PR_OK : pr__fail_nomem(err, ORIGIN);
}

static void request_done(request *r)
{
    for (int i = 0; i < r->array_count; i++)
        pr__pg_array_done(&r->arrays[i]);
}

/* The fresh messages of a lane, if not too many others stand between them. */
static void add_run(request *r, const pr__pg_claimer *c, const pr__pg_lane *lane, uint32_t first)
{
    uint32_t fresh = lane->chosen.count - lane->scattered;
    if (fresh == 0 || lane->passed > fresh)
        return;
    const pr__item *items = c->batch->items;
    r->runs[r->run_count++] = (run){.first = first + lane->scattered, .count = fresh};
    pr__pg_array_int(&r->arrays[0], lane->lane);
    pr__pg_array_int(&r->arrays[1], items[first + lane->scattered].log_id);
    pr__pg_array_int(&r->arrays[2], items[first + lane->chosen.count - 1].log_id);
    if (fresh > r->longest)
        r->longest = fresh;
}

/* What has become visible meanwhile stands between them too, and is left out; so many of those are
   read at most. */
static uint32_t run_limit(uint32_t longest)
{
    uint32_t limit = RUN_MIN;
    while (limit < longest + longest / 4)
        limit *= 2;
    return limit;
}

static pr_status read_runs(pr__pg_claimer *c, pr_error *err)
{
    request r;
    char sql[2048];
    uint32_t first = 0;
    TRY(request_init(&r, 3, c->lane_count, c->batch->arena, err));
    for (uint32_t i = 0; i < c->lane_count; i++) {
        add_run(&r, c, &c->lanes[i], first);
        first += c->lanes[i].chosen.count;
    }
    pr__pg_with_limit(SQL_RUNS, run_limit(r.longest), sql, sizeof sql);
    pr_status status = r.run_count > 0 ? send_request(c, &r, sql, err) : PR_OK;
    request_done(&r);
    return status;
}

static pr_status read_others(pr__pg_claimer *c, pr_error *err)
{
    request r;
    pr__batch *batch = c->batch;
    TRY(request_init(&r, 2, batch->item_count, batch->arena, err));
    for (uint32_t i = 0; i < batch->item_count; i++) {
        if (is_read(&batch->items[i]))
            continue;
        r.runs[r.run_count++] = (run){.first = i, .count = 1};
        pr__pg_array_int(&r.arrays[0], batch->items[i].lane);
        pr__pg_array_int(&r.arrays[1], batch->items[i].log_id);
    }
    pr_status status = r.run_count > 0 ? send_request(c, &r, SQL_ONE_BY_ONE, err) : PR_OK;
    request_done(&r);
    return status;
}

static void mark_deleted(pr__batch *batch)
{
    for (uint32_t i = 0; i < batch->item_count; i++) {
        pr__item *item = &batch->items[i];
        if (is_read(item))
            continue;
        item->message = (pr_message)PR_MESSAGE(.id = "", .type = "", .destination = "");
        item->unreadable = "its row was deleted from the log";
    }
}

static pr_status read_items(pr__pg_claimer *c, pr_error *err)
{
    TRY(read_runs(c, err));
    TRY(read_others(c, err));
    mark_deleted(c->batch);
    return PR_OK;
}

pr_status pr__pg_claimer_read(pr__pg_claimer *c, pr_error *err)
{
    TRY(lay_out(c, err));
    if (c->batch->item_count == 0)
        return PR_OK;
    TRY(pr__pg_ready(c->store, err));
    TRY(pr__pg_begin_claim_read(&c->store->conn, err));
    return pr__pg_end(&c->store->conn, read_items(c, err), err);
}
