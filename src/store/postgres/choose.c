/*
 * Choosing what a claim takes.
 *
 * Invariants (docs/design/postgres.md): what is read of a lane is read by one statement with one
 * snapshot; late rows that do not fit are never cut off: their transactions move to drain and are
 * taken slice by slice, with nothing fresh beside them; limits are applied before the reader's
 * filter; a takeover gives the same messages and nothing fresh, and rest goes before the others.
 * Limits stand in the statement as literals: with a parameter the planner may read a whole index;
 * and what is looked up row by row is a subquery with a limit: a join may read the whole log.
 */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/text.h"
#include "store/postgres/claim.h"
#include "store/postgres/reader.h"

#define ORIGIN         "postgres.claim"
#define LANES_AT_FIRST 4 /* so many fill a batch when there is a backlog; others take the rest */
#define READ_MIN       32

/* $1..$2 known ids; $3..$7 transactions whose late rows are sought; $8..$9 lanes with fresh rows;
   $10 does the reader go by types? A row: its class and lane in one number, id, size, … */
static const char SQL_LOOK[] =
    "SELECT 0::int8, NULL::int8, NULL::int4, NULL::text, NULL::text, NULL::xid8, "
    "pg_current_snapshot() "
    "UNION ALL SELECT k.lane * 8 + 1, k.id, o.size, NULL, NULL, NULL, NULL FROM ROWS FROM "
    "(unnest($1), unnest($2)) AS k (lane, id) LEFT JOIN LATERAL (SELECT octet_length(t.body) AS "
    "size FROM {p}outbox AS t WHERE t.lane = k.lane AND t.id = k.id LIMIT 1) AS o ON true "
    "UNION ALL SELECT d.lane * 8 + CASE WHEN d.frozen THEN 2 ELSE 3 END, r.id, r.size, "
    "r.destination, r.type, d.xid, NULL FROM ROWS FROM (unnest($3), unnest($4), unnest($5), "
    "unnest($6), unnest($7)) AS d (lane, xid, after, upto, frozen) LEFT JOIN LATERAL (SELECT o.id, "
    "octet_length(o.body) AS size, o.destination, CASE WHEN $10 THEN o.type END AS type FROM "
    "{p}outbox AS o WHERE o.xid = d.xid AND o.lane = d.lane AND o.id > d.after AND o.id <= d.upto "
    "ORDER BY o.id LIMIT {l}) AS r ON true WHERE d.frozen OR pg_visible_in_snapshot(d.xid, "
    "pg_current_snapshot()) "
    "UNION ALL SELECT f.lane * 8 + 4, r.id, r.size, r.destination, r.type, NULL, NULL FROM ROWS "
    "FROM (unnest($8), unnest($9)) AS f (lane, pos) CROSS JOIN LATERAL (SELECT o.id, "
    "octet_length(o.body) AS size, o.destination, CASE WHEN $10 THEN o.type END AS type FROM "
    "{p}outbox AS o WHERE o.lane = f.lane AND o.id > f.pos ORDER BY o.id LIMIT {l}) AS r";

enum { LOOK_SNAPSHOT, LOOK_KNOWN, LOOK_DRAIN, LOOK_PEND, LOOK_FRESH };
enum { AT_PLACE, AT_ID, AT_SIZE, AT_DESTINATION, AT_TYPE, AT_XID, AT_SNAPSHOT };
#define PLACE(class, lane) ((int64_t)(lane)*8 + (class))

static bool left_alone(const pr__pg_claimer *c, uint32_t lane)
{
    const uint64_t *skipped = c->opt->lanes_skipped;
    return skipped && ((skipped[lane / 64] >> (lane % 64)) & 1) != 0;
}

/* Choose the source of a lane, by its newest row (after a settle, by what follows it). */
static void decide(pr__pg_claimer *c, pr__pg_lane *lane)
{
    pr__pg_journal *head = &lane->head;
    lane->source = PR__PG_SOURCE_NOTHING;
    if (!head->stands || left_alone(c, lane->lane))
        return;
    if (head->open && (head->hidden || head->lease_until_us > c->now_us))
        return;
    if (head->ids.count > 0) {
        lane->source = PR__PG_SOURCE_TAKEOVER;
        lane->poison = head->attempt >= PR__PG_TAKEOVERS_MAX;
        lane->single = head->attempt + 1 >= PR__PG_TAKEOVERS_MAX;
    } else if (head->rest.count > 0) {
        lane->source = PR__PG_SOURCE_REST;
        lane->single = head->attempt >= PR__PG_TAKEOVERS_MAX;
    } else {
        lane->source = PR__PG_SOURCE_LATE;
    }
}

static const pr__pg_list *known_ids(const pr__pg_lane *lane)
{
    return lane->source == PR__PG_SOURCE_TAKEOVER ? &lane->head.ids : &lane->head.rest;
}

static pr_status enqueue(pr__pg_claimer *c, pr__pg_lane *lane, const pr__pg_candidate *candidate,
                         pr_error *err)
{
    if (lane->queue_count == lane->queue_capacity) {
        uint32_t wanted = lane->queue_capacity ? lane->queue_capacity * 2 : 32;
        pr__pg_candidate *larger = pr__arena_alloc(c->batch->arena, wanted * sizeof *larger);
        if (!larger)
            return pr__fail_nomem(err, ORIGIN);
        if (lane->queue_count > 0)
            memcpy(larger, lane->queue, lane->queue_count * sizeof *larger);
        lane->queue = larger;
        lane->queue_capacity = wanted;
    }
    lane->queue[lane->queue_count++] = *candidate;
    return PR_OK;
}

/* ---- the look at the log ---- */

#define LOOK_ARRAYS 9

static void ask_transactions(pr__pg_array *arrays, const pr__pg_lane *lane,
                             const pr__pg_list *transactions, int64_t after, bool frozen)
{
    for (uint32_t i = 0; i < transactions->count; i++) {
        pr__pg_array_int(&arrays[2], lane->lane);
        pr__pg_array_int(&arrays[3], transactions->items[i]);
        pr__pg_array_int(&arrays[4], after);
        pr__pg_array_int(&arrays[5], lane->head.pos);
        pr__pg_array_bool(&arrays[6], frozen);
    }
}

static void ask(pr__pg_array *arrays, const pr__pg_lane *lane)
{
    const pr__pg_journal *head = &lane->head;
    switch (lane->source) {
    case PR__PG_SOURCE_TAKEOVER:
    case PR__PG_SOURCE_REST:
        for (uint32_t i = 0; i < known_ids(lane)->count; i++) {
            pr__pg_array_int(&arrays[0], lane->lane);
            pr__pg_array_int(&arrays[1], known_ids(lane)->items[i]);
        }
        break;
    case PR__PG_SOURCE_LATE:
        ask_transactions(arrays, lane, &head->drain, head->drain_pos, true);
        ask_transactions(arrays, lane, &head->pend, head->rebase_id, false);
        pr__pg_array_int(&arrays[7], lane->lane);
        pr__pg_array_int(&arrays[8], head->pos);
        break;
    case PR__PG_SOURCE_UNDECIDED:
    case PR__PG_SOURCE_NOTHING:
        break;
    }
}

/* How many rows of one transaction were read, to see where the limit cut. */
typedef struct look {
    PGresult *result;
    int rows;
    int64_t *places; /* of each row */
    uint32_t limit;
    pr__pg_list xip;
    uint64_t xmax;
} look;

/* What each row is, once; and the snapshot. */
static pr_status read_places(pr__pg_claimer *c, look *l, pr_error *err)
{
    pr__pg_snapshot snapshot;
    l->rows = PQntuples(l->result);
    l->places = pr__arena_alloc(c->batch->arena, ((size_t)l->rows + 1) * sizeof *l->places);
    if (!l->places)
        return pr__fail_nomem(err, ORIGIN);
    for (int row = 0; row < l->rows; row++)
        l->places[row] = pr__pg_value_int(l->result, row, AT_PLACE);
    if (!pr__pg_value_snapshot(l->result, 0, AT_SNAPSHOT, c->batch->arena, &snapshot))
        return pr__fail(err, PR_E_BACKEND, ORIGIN, "the snapshot cannot be read");
    l->xmax = snapshot.xmax;
    l->xip = (pr__pg_list){snapshot.xip, snapshot.xip_count, snapshot.xip_count};
    return PR_OK;
}

static pr__span span_of(const look *l, int row, int column)
{
    return (pr__span){pr__pg_value_text(l->result, row, column),
                      (size_t)PQgetlength(l->result, row, column)};
}

static pr__pg_candidate candidate_of(const pr__pg_claimer *c, const look *l, int row)
{
    return (pr__pg_candidate){
        .id = pr__pg_value_int(l->result, row, AT_ID),
        .size = pr__pg_value_int(l->result, row, AT_SIZE),
        .found = !PQgetisnull(l->result, row, AT_SIZE),
        .takes = pr__reader_takes(&c->store->filter, c->store->settings.default_transport,
                                  span_of(l, row, AT_DESTINATION), span_of(l, row, AT_TYPE))};
}

/* Late rows of a lane: of the drain, or when that has no more, of what has ended in pend. */
static pr_status read_late(pr__pg_claimer *c, look *l, pr__pg_lane *lane, int class, pr_error *err)
{
    int64_t last_xid = 0;
    uint32_t run = 0;
    for (int row = 0; row < l->rows; row++) {
        if (l->places[row] != PLACE(class, lane->lane))
            continue;
        int64_t xid = pr__pg_value_int(l->result, row, AT_XID);
        run = xid == last_xid ? run + 1 : 1;
        last_xid = xid;
        if (class == LOOK_PEND && run == 1)
            TRY(pr__pg_list_add(&lane->ended, c->batch->arena, xid, err));
        if (PQgetisnull(l->result, row, AT_ID)) /* it wrote nothing here */
            continue;
        if (run > l->limit)
            lane->late_cut = true;
        pr__pg_candidate late = candidate_of(c, l, row);
        late.late = true;
        TRY(enqueue(c, lane, &late, err));
    }
    return PR_OK;
}

static int compare_candidates(const void *a, const void *b)
{
    int64_t x = ((const pr__pg_candidate *)a)->id;
    int64_t y = ((const pr__pg_candidate *)b)->id;
    return (x > y) - (x < y);
}

static pr_status read_rows(pr__pg_claimer *c, look *l, pr__pg_lane *lane, int class, pr_error *err)
{
    uint32_t count = 0;
    for (int row = 0; row < l->rows; row++) {
        if (l->places[row] != PLACE(class, lane->lane))
            continue;
        if (class == LOOK_FRESH && count++ == l->limit) {
            lane->fresh_cut = true;
            return PR_OK;
        }
        pr__pg_candidate one = candidate_of(c, l, row);
        one.takes = one.takes || class == LOOK_KNOWN;
        TRY(enqueue(c, lane, &one, err));
    }
    return PR_OK;
}

/* The queue of a lane of late and fresh rows. */
static pr_status read_lane(pr__pg_claimer *c, look *l, pr__pg_lane *lane, pr_error *err)
{
    lane->xmax = l->xmax;
    lane->xip = &l->xip;
    if (lane->source != PR__PG_SOURCE_LATE) {
        TRY(read_rows(c, l, lane, LOOK_KNOWN, err));
        if (lane->queue_count > 1)
            qsort(lane->queue, lane->queue_count, sizeof *lane->queue, compare_candidates);
        return PR_OK;
    }
    TRY(read_late(c, l, lane, LOOK_DRAIN, err));
    lane->draining = lane->queue_count > 0;
    if (!lane->draining) { /* exhausted, or empty: passed over in this very claim */
        lane->head.drain = (pr__pg_list){0};
        lane->head.drain_pos = 0;
        TRY(read_late(c, l, lane, LOOK_PEND, err));
        pr__pg_list_sort(&lane->ended);
    }
    if (lane->queue_count > 1)
        qsort(lane->queue, lane->queue_count, sizeof *lane->queue, compare_candidates);
    if (lane->late_cut || lane->queue_count > l->limit) {
        /* behind the limit of one transaction the order of all is not known */
        lane->late_cut = true;
        if (lane->queue_count > l->limit)
            lane->queue_count = l->limit;
    }
    lane->late_count = lane->queue_count;
    if (lane->draining || lane->late_cut)
        return PR_OK;
    return read_rows(c, l, lane, LOOK_FRESH, err);
}

static pr_status run_look(pr__pg_claimer *c, pr__pg_lane *const *lanes, uint32_t count, look *l,
                          pr_error *err)
{
    static const Oid types[LOOK_ARRAYS] = {PR__PG_INT8, PR__PG_INT8, PR__PG_INT8,
                                           PR__PG_XID8, PR__PG_INT8, PR__PG_INT8,
                                           PR__PG_BOOL, PR__PG_INT8, PR__PG_INT8};
    pr__pg_array arrays[LOOK_ARRAYS];
    AUTO_PARAMS params = {.count = 0};
    char sql[2400];
    pr__pg_with_limit(SQL_LOOK, l->limit + 1, sql, sizeof sql);
    for (size_t i = 0; i < LOOK_ARRAYS; i++)
        pr__pg_array_init(&arrays[i], types[i]);
    for (uint32_t i = 0; i < count; i++)
        ask(arrays, lanes[i]);
    for (size_t i = 0; i < LOOK_ARRAYS; i++)
        pr__pg_add_array(&params, &arrays[i]);
    pr__pg_add_bool(&params, c->batch->reader != PR_READER_RELAY);
    pr_status status = pr__pg_exec(&c->store->conn, sql, &params, &l->result, err);
    for (size_t i = 0; i < LOOK_ARRAYS; i++)
        pr__pg_array_done(&arrays[i]);
    return status;
}

/* Read what may be taken of these lanes, up to so many rows each. */
static pr_status look_at(pr__pg_claimer *c, pr__pg_lane *const *lanes, uint32_t count,
                         uint32_t limit, pr_error *err)
{
    look *l = pr__arena_alloc(c->batch->arena, sizeof *l);
    if (!l)
        return pr__fail_nomem(err, ORIGIN);
    l->limit = limit;
    pr_status status = run_look(c, lanes, count, l, err);
    if (status == PR_OK)
        status = read_places(c, l, err);
    for (uint32_t i = 0; i < count && status == PR_OK; i++)
        status = read_lane(c, l, lanes[i], err);
    PQclear(l->result);
    l->result = NULL;
    return status;
}

/* ---- taking ---- */

/* Does one more message of this size fit? The first one always does. */
static bool fits(pr__pg_claimer *c, int64_t body_size)
{
    if (!c->any || (uint64_t)body_size <= c->bytes_left)
        return true;
    c->limited = true;
    return false;
}

/* Take up to max of a lane's queue. */
static pr_status take(pr__pg_claimer *c, pr__pg_lane *lane, uint32_t max, pr_error *err)
{
    while (!lane->exhausted && lane->cursor < lane->queue_count) {
        const pr__pg_candidate *next = &lane->queue[lane->cursor];
        if (max == 0 || c->count_left == 0) {
            c->limited = c->limited || c->count_left == 0;
            return PR_OK;
        }
        if (next->found && next->takes && !fits(c, next->size)) {
            lane->exhausted = true;
            return PR_OK;
        }
        lane->cursor++;
        c->last_lane = lane->lane;
        if (!next->found || !next->takes) { /* deleted from the log, or of another reader */
            lane->passed++;
            c->count_left -= next->found;
            max -= next->found;
            continue;
        }
        TRY(pr__pg_list_add(&lane->chosen, c->batch->arena, next->id, err));
        lane->scattered += lane->source != PR__PG_SOURCE_LATE || next->late;
        c->bytes_left -=
            (uint64_t)next->size < c->bytes_left ? (uint64_t)next->size : c->bytes_left;
        c->any = true;
        c->count_left--;
        max--;
        if (lane->single)
            lane->exhausted = true;
    }
    return PR_OK;
}

static bool claimable(const pr__pg_lane *lane)
{
    return lane->source > PR__PG_SOURCE_NOTHING;
}

static bool touched(const pr__pg_lane *lane)
{
    return lane->cursor > 0;
}

/* Forget what was read of a lane of which nothing was taken, to read more of it. */
static void forget(pr__pg_lane *lane)
{
    lane->queue_count = 0;
    lane->late_count = 0;
    lane->cursor = 0;
    lane->draining = false;
    lane->late_cut = false;
    lane->fresh_cut = false;
    lane->ended = (pr__pg_list){0};
}

static uint32_t round_up(uint32_t value)
{
    uint32_t power = READ_MIN;
    while (power < value)
        power *= 2;
    return power;
}

/* Look at a group of lanes and take of them: each its share first, so that a busy one starves no
   other, then whatever is left. */
static pr_status take_group(pr__pg_claimer *c, pr__pg_lane *const *lanes, uint32_t count,
                            uint32_t lanes_max, pr_error *err)
{
    if (count == 0 || c->count_left == 0)
        return PR_OK;
    uint32_t sharers = count < lanes_max ? count : lanes_max;
    TRY(look_at(c, lanes, count, round_up((c->count_left + sharers - 1) / sharers), err));
    uint32_t left = lanes_max;
    for (uint32_t i = 0; i < count && left > 0; i++) {
        uint32_t to_come = count - i < left ? count - i : left;
        TRY(take(c, lanes[i], (c->count_left + to_come - 1) / to_come, err));
        left -= touched(lanes[i]);
    }
    for (uint32_t i = 0; i < count; i++)
        if (touched(lanes[i]))
            TRY(take(c, lanes[i], c->count_left, err));
    return PR_OK;
}

/* When few lanes have it all, their queues were too short: read the longest anew, alone. */
static pr_status take_deeper(pr__pg_claimer *c, pr_error *err)
{
    pr__pg_lane *lane = NULL;
    for (uint32_t i = 0; i < c->lane_count; i++) {
        pr__pg_lane *one = &c->lanes[i];
        bool cut = one->fresh_cut || one->late_cut;
        if (cut && touched(one) && one->cursor == one->queue_count && !one->exhausted &&
            (!lane || one->cursor > lane->cursor))
            lane = one;
    }
    if (!lane || c->count_left < c->opt->batch_max / 2)
        return PR_OK;
    for (uint32_t i = 0; i < lane->cursor; i++) {
        const pr__pg_candidate *taken = &lane->queue[i];
        c->count_left += taken->found;
        if (taken->found && taken->takes)
            c->bytes_left += (uint64_t)taken->size;
    }
    lane->chosen.count = 0;
    lane->scattered = 0;
    lane->passed = 0;
    forget(lane);
    TRY(look_at(c, &lane, 1, round_up(c->count_left), err));
    return take(c, lane, c->count_left, err);
}

/* ---- what follows from it ---- */

/* What is in neither the new slice nor gone stays in rest. */
static pr_status keep_rest(pr__pg_claimer *c, pr__pg_lane *lane, pr_error *err)
{
    pr__pg_list kept = {0};
    pr__arena *arena = c->batch->arena;
    if (lane->source == PR__PG_SOURCE_TAKEOVER)
        for (uint32_t i = 0; i < lane->head.rest.count; i++)
            TRY(pr__pg_list_add(&kept, arena, lane->head.rest.items[i], err));
    for (uint32_t i = lane->cursor; i < lane->queue_count; i++)
        TRY(pr__pg_list_add(&kept, arena, lane->queue[i].id, err));
    pr__pg_list_sort(&kept);
    lane->head.rest = kept;
    uint32_t attempt = lane->head.attempt;
    if (lane->source == PR__PG_SOURCE_TAKEOVER && attempt < PR__PG_TAKEOVERS_MAX)
        lane->head.attempt = attempt + 1;
    return PR_OK;
}

/* The running transactions of the snapshot join pend; those from xmax on join in the statement. */
static pr_status move_on(pr__pg_claimer *c, pr__pg_lane *lane, int64_t pos, pr_error *err)
{
    lane->head.pos = pos;
    pr__pg_list grown = {0};
    for (uint32_t i = 0; i < lane->head.pend.count; i++)
        TRY(pr__pg_list_add(&grown, c->batch->arena, lane->head.pend.items[i], err));
    for (uint32_t i = 0; i < lane->xip->count; i++)
        TRY(pr__pg_list_add(&grown, c->batch->arena, lane->xip->items[i], err));
    pr__pg_list_sort(&grown);
    lane->head.pend = grown;
    return PR_OK;
}

static pr_status advance(pr__pg_claimer *c, pr__pg_lane *lane, pr_error *err)
{
    pr__pg_journal *head = &lane->head;
    int64_t last = lane->queue[lane->cursor - 1].id;
    head->attempt = 0;
    if (lane->draining) {
        lane->xmax = 0;
        head->drain_pos = last;
        if (lane->cursor == lane->queue_count && !lane->late_cut) {
            head->drain = (pr__pg_list){0};
            head->drain_pos = 0;
        }
        return PR_OK;
    }
    pr__pg_list pend = {0};
    TRY(pr__pg_list_subtract(&head->pend, &lane->ended, c->batch->arena, &pend, err));
    head->pend = pend;
    if (lane->late_cut || lane->cursor < lane->late_count) { /* they do not fit */
        lane->xmax = 0;
        head->drain = lane->ended;
        head->drain_pos = last;
        return PR_OK;
    }
    if (lane->cursor > lane->late_count)
        return move_on(c, lane, last, err);
    lane->xmax = 0;
    return PR_OK;
}

/* Lanes that may be claimed, from a place that moves on; while it stays, those that are settled in
   this very commit go first. */
static uint32_t list_lanes(pr__pg_claimer *c, pr__pg_lane **lanes, bool stays)
{
    uint32_t count = 0;
    uint32_t start = c->store->next_lane % c->lane_count;
    for (uint32_t i = 0; i < c->lane_count; i++)
        decide(c, &c->lanes[i]);
    for (int settled = stays; settled >= 0; settled--) {
        for (uint32_t i = 0; i < c->lane_count; i++) {
            pr__pg_lane *lane = &c->lanes[(start + i) % c->lane_count];
            if (claimable(lane) && (!stays || lane->settled == (settled != 0)))
                lanes[count++] = lane;
        }
    }
    return count;
}

/* Where the next claim begins: behind the lane at which a limit stopped this one. */
static void move_place(pr__pg_claimer *c)
{
    uint32_t start = c->store->next_lane % c->lane_count;
    uint32_t after = c->limited && c->last_lane != UINT32_MAX ? c->last_lane : start;
    c->store->next_lane = (after + 1) % c->lane_count;
}

pr_status pr__pg_claimer_choose(pr__pg_claimer *c, pr_error *err)
{
    pr__pg_lane **lanes = pr__arena_alloc(c->batch->arena, c->lane_count * sizeof(pr__pg_lane *));
    if (!lanes)
        return pr__fail_nomem(err, ORIGIN);
    bool stays = c->store->stay_rounds > 0;
    uint32_t count = list_lanes(c, lanes, stays);
    uint32_t lanes_max = c->opt->lanes_max ? c->opt->lanes_max : c->lane_count;
    uint32_t first = count < LANES_AT_FIRST ? count : LANES_AT_FIRST;
    if (c->store->idle) /* nothing was found last time: one look at all */
        first = count;
    TRY(take_group(c, lanes, first, lanes_max, err));
    uint32_t used = 0;
    for (uint32_t i = 0; i < first; i++)
        used += touched(lanes[i]);
    if (used < lanes_max)
        TRY(take_group(c, lanes + first, count - first, lanes_max - used, err));
    TRY(take_deeper(c, err));
    bool found = false;
    for (uint32_t i = 0; i < count; i++) {
        if (!touched(lanes[i]))
            continue;
        found = true;
        c->limited = c->limited || lanes[i]->fresh_cut || lanes[i]->late_cut ||
                     lanes[i]->cursor < lanes[i]->queue_count;
        TRY(lanes[i]->source == PR__PG_SOURCE_LATE ? advance(c, lanes[i], err)
                                                   : keep_rest(c, lanes[i], err));
    }
    c->store->idle = !found;
    if (stays)
        c->store->stay_rounds--;
    else
        move_place(c);
    return PR_OK;
}

bool pr__pg_claimer_found(const pr__pg_claimer *c)
{
    for (uint32_t i = 0; i < c->lane_count; i++)
        if (c->lanes[i].chosen.count > 0 || c->lanes[i].passed > 0)
            return true;
    return false;
}
