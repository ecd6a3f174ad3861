/*
 * Reading the messages of a claim, after its commit.
 *
 * Invariants: what was claimed is read, and nothing else. Fresh messages of a lane are a run of its
 * index, and are read as one, all lanes by one statement that is sent together with the commit and
 * run after it; what is scattered over the log (taken over, rest, late), and what a run did not
 * give, is read one by one. Values that are there for each message cost most: none is sent that
 * another one tells.
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

/* $1 the largest body, $2 reader, $3 halt, $4 does anything block, $5… lanes and ids. A table of no
   page has no row, which is known without a look for each message. */
#define SELECT_MESSAGES                                                                            \
    "SELECT " PR__PG_MESSAGE_SELECT_BINARY(                                                        \
        "o.", "$1") ", CASE WHEN o.key IS NOT NULL AND $4 AND (SELECT "                            \
                    "pg_relation_size('{p}outbox_parked'::regclass) > 0) AND EXISTS (SELECT FROM " \
                    "{p}outbox_parked AS b WHERE b.reader = $2 AND b.tenant = o.tenant AND "       \
                    "b.key = o.key AND b.log_id < o.id AND (b.state <> 'dead' OR $3)) THEN true "  \
                    "END, o.id "

static const char SQL_ONE_BY_ONE[] =
    SELECT_MESSAGES "FROM ROWS FROM (unnest($5), unnest($6)) AS k (lane, id) "
                    "CROSS JOIN LATERAL (SELECT * FROM {p}outbox AS t WHERE t.lane = k.lane AND "
                    "t.id = k.id LIMIT 1) AS o";
static const char SQL_RUNS[] =
    SELECT_MESSAGES "FROM ROWS FROM (unnest($5), unnest($6), unnest($7)) AS k (lane, "
                    "first, last) CROSS JOIN LATERAL (SELECT * FROM {p}outbox AS t WHERE "
                    "t.lane = k.lane AND t.id >= k.first AND t.id <= k.last ORDER BY t.id LIMIT "
                    "{l}) AS o";
#define COLUMN_BLOCKED PR__PG_MESSAGE_SELECT_COUNT
#define COLUMN_ID      (PR__PG_MESSAGE_SELECT_COUNT + 1)

/* Items of one lane that stand side by side in the batch, by id. */
typedef struct run {
    uint32_t first, count;
} run;

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

/* Lay out slices and items by (lane, id), once. */
static pr_status lay_out(pr__pg_claimer *c, pr_error *err)
{
    uint32_t items = 0;
    uint32_t slices = 0;
    pr__batch *batch = c->batch;
    if (batch->slices)
        return PR_OK;
    for (uint32_t i = 0; i < c->lane_count; i++) {
        items += c->lanes[i].chosen.count;
        slices += c->lanes[i].chosen.count > 0;
        batch->passed_count += c->lanes[i].passed;
    }
    batch->more = c->limited;
    batch->items = pr__arena_alloc(batch->arena, (items + 1) * sizeof(pr__item));
    batch->slices =
        batch->items ? pr__arena_alloc(batch->arena, (slices + 1) * sizeof(pr__slice)) : NULL;
    if (!batch->slices)
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

/* A topic that messages share, as they mostly do, is made once. */
typedef struct topic {
    const char *type; /* NULL: none yet */
    const char *address;
} topic;

static const char *topic_of(pr__pg_claimer *c, const char *type, topic *last)
{
    if (!last->type || strcmp(last->type, type) != 0)
        *last = (topic){
            .type = type,
            .address = pr__pg_topic(c->batch->arena, c->store->settings.default_transport, type)};
    return last->address;
}

static pr_status read_item(pr__pg_claimer *c, const PGresult *result, int row, pr__item *item,
                           topic *last, pr_error *err)
{
    pr__batch *batch = c->batch;
    TRY(pr__pg_read_message(result, row, 0, batch->arena, c->store->base.body_size_max,
                            &item->message, &item->unreadable, err));
    if (!item->message.destination)
        item->message.destination = topic_of(c, item->message.type, last);
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

/* Rows come run by run, by id, so that the next one is mostly near the last; ids are unique. */
static pr_status read_rows(pr__pg_claimer *c, const run *runs, uint32_t run_count,
                           const PGresult *result, pr_error *err)
{
    uint32_t last = 0;
    uint32_t from = 0;
    topic shared = {.type = NULL};
    for (int row = 0; row < PQntuples(result); row++) {
        int64_t id = pr__pg_value_int(result, row, COLUMN_ID);
        pr__item *item = NULL;
        for (uint32_t i = 0; i < run_count && !item; i++) {
            uint32_t at = (last + i) % run_count;
            uint32_t place = i == 0 ? from : 0;
            item = find_item(c->batch, &runs[at], id, &place);
            if (!item)
                continue;
            last = at;
            from = place;
        }
        if (item && !is_read(item))
            TRY(read_item(c, result, row, item, &shared, err));
    }
    return PR_OK;
}

static void add_common(pr__pg_params *params, const pr__pg_claimer *c)
{
    const pr__batch *batch = c->batch;
    pr__pg_add_int(params, (int64_t)c->store->base.body_size_max);
    pr__pg_add_int(params, batch->reader);
    pr__pg_add_bool(params, batch->order == PR_ORDER_HALT);
    pr__pg_add_bool(params, batch->order != PR_ORDER_SKIP);
}

/* ---- runs ---- */

/* The fresh messages of a lane, if not too many others stand between them. */
static uint32_t add_run(pr__pg_reading *r, const pr__pg_lane *lane)
{
    uint32_t fresh = lane->chosen.count - lane->scattered;
    if (fresh == 0 || lane->passed > fresh)
        return 0;
    r->lanes[r->lane_count++] = lane->lane;
    pr__pg_array_int(&r->arrays[0], lane->lane);
    pr__pg_array_int(&r->arrays[1], lane->chosen.items[lane->scattered]);
    pr__pg_array_int(&r->arrays[2], lane->chosen.items[lane->chosen.count - 1]);
    return fresh;
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

pr_status pr__pg_reading_init(pr__pg_reading *r, pr__pg_claimer *c, pr_error *err)
{
    uint32_t longest = 0;
    memset(r, 0, sizeof *r);
    for (int i = 0; i < 3; i++)
        pr__pg_array_init(&r->arrays[i], PR__PG_INT8);
    r->lanes = pr__arena_alloc(c->batch->arena, c->lane_count * sizeof *r->lanes);
    if (!r->lanes)
        return pr__fail_nomem(err, ORIGIN);
    for (uint32_t i = 0; i < c->lane_count; i++) {
        uint32_t count = add_run(r, &c->lanes[i]);
        longest = count > longest ? count : longest;
    }
    add_common(&r->params, c);
    for (int i = 0; i < 3; i++)
        pr__pg_add_array(&r->params, &r->arrays[i]);
    pr__pg_with_limit(SQL_RUNS, run_limit(longest), r->sql, sizeof r->sql);
    return PR_OK;
}

void pr__pg_reading_done(pr__pg_reading *r)
{
    PQclear(r->result);
    pr__pg_params_done(&r->params);
    for (int i = 0; i < 3; i++)
        pr__pg_array_done(&r->arrays[i]);
}

bool pr__pg_reading_call(const pr__pg_reading *r, pr__pg_call *ret_call)
{
    *ret_call = (pr__pg_call){.sql = r->sql, .params = &r->params};
    return r->lane_count > 0;
}

/* Where a lane's run stands in the batch; a lane that was lost has none there. */
static run run_of(const pr__pg_claimer *c, uint32_t lane)
{
    run found = {0};
    for (uint32_t i = 0; i < lane; i++)
        found.first += c->lanes[i].chosen.count;
    if (c->lanes[lane].chosen.count == 0)
        return found;
    found.first += c->lanes[lane].scattered;
    found.count = c->lanes[lane].chosen.count - c->lanes[lane].scattered;
    return found;
}

void pr__pg_reading_take(pr__pg_reading *r, pr__pg_claimer *c)
{
    if (!r->result || lay_out(c, NULL) != PR_OK)
        return;
    run *runs = pr__arena_alloc(c->batch->arena, (r->lane_count + 1) * sizeof *runs);
    if (!runs)
        return;
    for (uint32_t i = 0; i < r->lane_count; i++)
        runs[i] = run_of(c, r->lanes[i]);
    pr_status status = read_rows(c, runs, r->lane_count, r->result, NULL);
    (void)status; /* what is missing is read one by one, or fails there */
}

/* ---- what is left ---- */

static pr_status read_some(pr__pg_claimer *c, const run *runs, uint32_t count, pr__pg_array *arrays,
                           pr_error *err)
{
    AUTO_PARAMS params = {.count = 0};
    AUTO_RESULT result = NULL;
    add_common(&params, c);
    pr__pg_add_array(&params, &arrays[0]);
    pr__pg_add_array(&params, &arrays[1]);
    TRY(pr__pg_exec(&c->store->conn, SQL_ONE_BY_ONE, &params, &result, err));
    return read_rows(c, runs, count, result, err);
}

static pr_status read_others(pr__pg_claimer *c, pr_error *err)
{
    uint32_t count = 0;
    pr__pg_array arrays[2];
    pr__batch *batch = c->batch;
    run *runs = pr__arena_alloc(batch->arena, (batch->item_count + 1) * sizeof *runs);
    if (!runs)
        return pr__fail_nomem(err, ORIGIN);
    pr__pg_array_init(&arrays[0], PR__PG_INT8);
    pr__pg_array_init(&arrays[1], PR__PG_INT8);
    for (uint32_t i = 0; i < batch->item_count; i++) {
        if (is_read(&batch->items[i]))
            continue;
        runs[count] = (run){.first = i, .count = 1};
        count++;
        pr__pg_array_int(&arrays[0], batch->items[i].lane);
        pr__pg_array_int(&arrays[1], batch->items[i].log_id);
    }
    pr_status status = read_some(c, runs, count, arrays, err);
    pr__pg_array_done(&arrays[0]);
    pr__pg_array_done(&arrays[1]);
    return status;
}

/* Is any left? Then those that are not found any more were deleted. */
static bool left(const pr__batch *batch)
{
    for (uint32_t i = 0; i < batch->item_count; i++)
        if (!is_read(&batch->items[i]))
            return true;
    return false;
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

pr_status pr__pg_claimer_read(pr__pg_claimer *c, pr_error *err)
{
    TRY(lay_out(c, err));
    if (!left(c->batch))
        return PR_OK;
    TRY(pr__pg_ready(c->store, err));
    TRY(pr__pg_begin_claim(&c->store->conn, /* writes= */ false, err));
    TRY(pr__pg_end(&c->store->conn, read_others(c, err), err));
    mark_deleted(c->batch);
    return PR_OK;
}
