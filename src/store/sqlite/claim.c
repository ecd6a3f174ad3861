/*
 * The claim: choose and read, write the journal, commit, then read the large bodies.
 *
 * Invariants (ledger.md): a lane whose slice is leased is left alone; a takeover gives the same
 * messages and nothing fresh; rest goes before fresh; fresh rows are limited before they are
 * filtered, and pos moves over what was passed; an idle claim takes no write lock and writes
 * nothing.
 *
 * What blocks a key is looked up after the commit, with the bodies: rows of a lane's keys are
 * parked only by the holder of its slice, which by then is this claim.
 */
#include "store/sqlite/claim.h"

#include <string.h>

#include "base/assert.h"
#include "base/error.h"
#include "base/fault.h"
#include "store/sqlite/reader.h"
#include "store/sqlite/row.h"
#include "store/sqlite/settle.h"

#define ORIGIN "sqlite.claim"

pr_status pr__claimer_begin(pr__sqlite_store *store, int64_t reader, const pr__claim_options *opt,
                            pr__claimer **ret_claimer, pr_error *err)
{
    pr_order order = PR_ORDER_HOLD;
    TRY(pr__sqlite_settings_load(store, err));
    if (opt)
        TRY(pr__sqlite_reader_load(store, reader, &order, err));
    AUTO(pr__batch) batch = pr__batch_new();
    pr__claimer *c = batch ? pr__arena_alloc(batch->arena, sizeof *c) : NULL;
    if (!c)
        return pr__fail_nomem(err, ORIGIN);
    c->lane_count = store->settings.lanes;
    c->lanes = pr__arena_alloc(batch->arena, c->lane_count * sizeof *c->lanes);
    if (!c->lanes)
        return pr__fail_nomem(err, ORIGIN);
    for (uint32_t lane = 0; lane < c->lane_count; lane++)
        c->lanes[lane].lane = lane;
    c->store = store;
    c->opt = opt;
    c->now = pr__sqlite_now(&store->base);
    c->last_lane = UINT32_MAX;
    if (opt) {
        pr__sqlite_token(&store->base, c->token);
        c->count_left = opt->batch_max;
        c->bytes_left = opt->bytes_max;
    }
    batch->reader = reader;
    batch->order = order;
    batch->claimed_at_us = c->now;
    batch->lease_ms = opt ? opt->lease_ms : 0;
    c->batch = TAKE(batch);
    *ret_claimer = c;
    return PR_OK;
}

static bool left_alone(const pr__claimer *c, uint32_t lane)
{
    const uint64_t *skipped = c->opt->lanes_skipped;
    return skipped && ((skipped[lane / 64] >> (lane % 64)) & 1) != 0;
}

/* Choose the source of a lane, by its newest journal row. */
static pr_status decide(pr__claimer *c, pr__claim_lane *lane, pr_error *err)
{
    pr__sqlite_conn *conn = &c->store->conn;
    pr__journal *head = &lane->head;
    lane->source = PR__CLAIM_NOTHING;
    if (left_alone(c, lane->lane))
        return PR_OK;
    if (!lane->head_known) {
        TRY(pr__journal_head(conn, c->batch->reader, lane->lane, head, err));
        if (!head->stands || (head->open && head->lease_until > c->now))
            return PR_OK;
        TRY(pr__journal_load(conn, c->batch->reader, lane->lane, /* with_ids= */ true,
                             c->batch->arena, head, err));
        lane->head_known = true;
    }
    lane->pos = head->pos;
    if (head->ids.count > 0) {
        lane->source = PR__CLAIM_TAKEOVER;
        lane->source_ids = head->ids;
        lane->poison = head->attempt >= PR__SQLITE_TAKEOVERS_MAX;
        lane->single = head->attempt + 1 >= PR__SQLITE_TAKEOVERS_MAX;
    } else if (head->rest.count > 0) {
        lane->source = PR__CLAIM_REST;
        lane->source_ids = head->rest;
        lane->single = head->attempt >= PR__SQLITE_TAKEOVERS_MAX;
    } else {
        lane->source = PR__CLAIM_FRESH;
    }
    return PR_OK;
}

/* Does one more message of this size fit? The first one always does. */
static bool fits(pr__claimer *c, int64_t body_size)
{
    if (!c->any || (uint64_t)body_size <= c->bytes_left)
        return true;
    c->limited = true;
    return false;
}

/* A place for one more message of a lane. */
static pr__item *add_item(pr__claimer *c, pr__claim_lane *lane)
{
    uint32_t count = lane->chosen.count;
    if (count == lane->item_capacity) {
        uint32_t wanted = count ? count * 2 : 32;
        pr__item **larger = pr__arena_alloc(c->batch->arena, wanted * sizeof(pr__item *));
        if (!larger)
            return NULL;
        for (uint32_t i = 0; i < count; i++)
            larger[i] = lane->items[i];
        lane->items = larger;
        lane->item_capacity = wanted;
    }
    lane->items[count] = pr__arena_alloc(c->batch->arena, sizeof(pr__item));
    return lane->items[count];
}

static const char SQL_BLOCKED[] =
    "SELECT 1 FROM {p}_outbox_parked WHERE reader = ?1 AND tenant = ?2 AND key = ?3 AND log_id < "
    "?4 AND (state <> 'dead' OR ?5) LIMIT 1";

static pr_status look_blocked(pr__claimer *c, pr__item *item, pr_error *err)
{
    if (!c->parked || !item->message.key)
        return PR_OK;
    int64_t one = 0;
    return pr__sqlite_int(&c->store->conn, SQL_BLOCKED, &one, &item->blocked, err, "ittii",
                          c->batch->reader, item->message.tenant, item->message.key, item->log_id,
                          (int64_t)(c->batch->order == PR_ORDER_HALT));
}

/* Take the message of the row in hand, whose columns are those of PR__MESSAGE_SELECT. */
static pr_status choose(pr__claimer *c, pr__claim_lane *lane, int64_t id, sqlite3_stmt *stmt,
                        pr_error *err)
{
    uint64_t body_max = c->store->base.body_size_max;
    pr__item *item = add_item(c, lane);
    if (!item)
        return pr__fail_nomem(err, ORIGIN);
    TRY(pr__sqlite_read_next(stmt, 0, c->batch->arena, body_max, &c->memory, &item->message,
                             &item->unreadable, err));
    if (!item->message.destination)
        item->message.destination = pr__sqlite_topic(
            c->batch->arena, c->store->settings.default_transport, item->message.type);
    if (!item->message.destination)
        return pr__fail_nomem(err, ORIGIN);
    item->log_id = id;
    TRY(look_blocked(c, item, err));
    TRY(pr__id_list_add(&lane->chosen, c->batch->arena, id, err));
    uint64_t size = item->message.body_size_bytes;
    c->bodies_left = c->bodies_left || (!item->message.body && size <= body_max);
    c->bytes_left -= size < c->bytes_left ? size : c->bytes_left;
    c->any = true;
    c->last_lane = lane->lane;
    return PR_OK;
}

/* Bodies up to this size are read with their row, where they lie at hand. */
#define BODY_AT_HAND 4096

static int64_t body_at_hand(const pr__claimer *c)
{
    uint64_t max = c->store->base.body_size_max;
    return max < BODY_AT_HAND ? (int64_t)max : BODY_AT_HAND;
}

#define COLUMN_TYPE        1
#define COLUMN_DESTINATION 4
#define COLUMN_SIZE        (PR__MESSAGE_SELECT_COUNT - 1)

static const char SQL_KNOWN[] = "SELECT " PR__MESSAGE_SELECT " FROM {p}_outbox WHERE id = ?2";

/* Look at one message that was claimed before; *ret_taken false: it does not fit any more. */
static pr_status take_known_one(pr__claimer *c, pr__claim_lane *lane, int64_t id, bool *ret_taken,
                                pr_error *err)
{
    AUTO_STMT stmt = NULL;
    bool row = false;
    *ret_taken = true;
    TRY(pr__sqlite_query(&c->store->conn, SQL_KNOWN, &stmt, err, "ii", body_at_hand(c), id));
    TRY(pr__sqlite_step(&c->store->conn, stmt, &row, err));
    if (!row) /* somebody deleted it from the log */
        return pr__id_list_add(&lane->lapsed, c->batch->arena, id, err);
    *ret_taken = fits(c, sqlite3_column_int64(stmt, COLUMN_SIZE));
    return *ret_taken ? choose(c, lane, id, stmt, err) : PR_OK;
}

/* Take up to max messages that were claimed before. */
static pr_status take_known(pr__claimer *c, pr__claim_lane *lane, uint32_t max, pr_error *err)
{
    while (lane->cursor < lane->source_ids.count) {
        if (max == 0 || c->count_left == 0) {
            c->limited = c->limited || c->count_left == 0;
            return PR_OK;
        }
        bool taken = false;
        uint32_t before = lane->chosen.count;
        TRY(take_known_one(c, lane, lane->source_ids.ids[lane->cursor], &taken, err));
        if (!taken)
            return PR_OK;
        lane->cursor++;
        if (lane->chosen.count == before)
            continue;
        max--;
        c->count_left--;
        if (lane->single)
            break;
    }
    lane->exhausted = true;
    c->limited = c->limited || lane->cursor < lane->source_ids.count;
    return PR_OK;
}

static const char SQL_FRESH[] = "SELECT " PR__MESSAGE_SELECT ", id FROM {p}_outbox WHERE lane = ?2 "
                                "AND id > ?3 ORDER BY id LIMIT ?4";

static bool takes(const pr__claimer *c, sqlite3_stmt *stmt)
{
    pr__span destination = {sqlite3_column_blob(stmt, COLUMN_DESTINATION),
                            (size_t)sqlite3_column_bytes(stmt, COLUMN_DESTINATION)};
    pr__span type = {sqlite3_column_blob(stmt, COLUMN_TYPE),
                     (size_t)sqlite3_column_bytes(stmt, COLUMN_TYPE)};
    return pr__reader_takes(&c->store->filter, c->store->settings.default_transport, destination,
                            type);
}

/* Take up to max rows behind pos; rows that are not this reader's are passed over and count. */
static pr_status take_fresh(pr__claimer *c, pr__claim_lane *lane, uint32_t max, pr_error *err)
{
    if (max > c->count_left)
        max = c->count_left;
    if (max == 0) {
        c->limited = true;
        return PR_OK;
    }
    AUTO_STMT stmt = NULL;
    TRY(pr__sqlite_query(&c->store->conn, SQL_FRESH, &stmt, err, "iiii", body_at_hand(c),
                         (int64_t)lane->lane, lane->pos, (int64_t)max));
    for (uint32_t n = 0; n < max; n++) {
        bool row = false;
        TRY(pr__sqlite_step(&c->store->conn, stmt, &row, err));
        if (!row) {
            lane->exhausted = true;
            return PR_OK;
        }
        int64_t id = sqlite3_column_int64(stmt, PR__MESSAGE_SELECT_COUNT);
        if (!takes(c, stmt)) {
            lane->passed++;
            c->last_lane = lane->lane;
        } else if (fits(c, sqlite3_column_int64(stmt, COLUMN_SIZE))) {
            TRY(choose(c, lane, id, stmt, err));
        } else {
            lane->exhausted = true; /* for this claim */
            return PR_OK;
        }
        lane->pos = id;
        c->count_left--;
    }
    return PR_OK;
}

static pr_status take(pr__claimer *c, pr__claim_lane *lane, uint32_t max, pr_error *err)
{
    switch (lane->source) {
    case PR__CLAIM_TAKEOVER:
    case PR__CLAIM_REST:
        return take_known(c, lane, max, err);
    case PR__CLAIM_FRESH:
        return take_fresh(c, lane, max, err);
    case PR__CLAIM_UNDECIDED:
    case PR__CLAIM_NOTHING:
        break;
    }
    lane->exhausted = true;
    return PR_OK;
}

static const char SQL_ANY_PARKED[] = "SELECT 1 FROM {p}_outbox_parked WHERE reader = ?1 LIMIT 1";

static pr_status look_parked(pr__claimer *c, pr_error *err)
{
    int64_t one = 0;
    if (c->batch->order == PR_ORDER_SKIP)
        return PR_OK;
    return pr__sqlite_int(&c->store->conn, SQL_ANY_PARKED, &one, &c->parked, err, "i",
                          c->batch->reader);
}

/* Two passes over the lanes, from a place that moves on: in the first each lane may take its share
   of what is left, so that a busy lane starves no other; in the second the busy ones share the
   remainder. */
pr_status pr__claimer_choose(pr__claimer *c, pr_error *err)
{
    const uint32_t lane_count = c->lane_count;
    pr_assert(lane_count > 0); /* the settings were checked when they were read */
    TRY(look_parked(c, err));
    uint32_t start = c->store->next_lane % lane_count;
    uint32_t lanes_left = c->opt->lanes_max ? c->opt->lanes_max : lane_count;
    for (uint32_t i = 0; i < lane_count && lanes_left > 0; i++) {
        pr__claim_lane *lane = &c->lanes[(start + i) % lane_count];
        TRY(decide(c, lane, err));
        uint32_t to_come = lane_count - i;
        if (to_come > lanes_left)
            to_come = lanes_left;
        TRY(take(c, lane, (c->count_left + to_come - 1) / to_come, err));
        if (lane->chosen.count > 0 || lane->passed > 0)
            lanes_left--;
    }
    for (uint32_t i = 0; i < lane_count; i++) {
        pr__claim_lane *lane = &c->lanes[(start + i) % lane_count];
        if (lane->source > PR__CLAIM_NOTHING && !lane->exhausted &&
            (!c->opt->lanes_max || lane->chosen.count > 0 || lane->passed > 0))
            TRY(take(c, lane, c->count_left, err));
    }
    uint32_t after = c->limited && c->last_lane != UINT32_MAX ? c->last_lane : start;
    c->store->next_lane = (after + 1) % lane_count;
    return PR_OK;
}

bool pr__claimer_found(const pr__claimer *c)
{
    for (uint32_t i = 0; i < c->lane_count; i++)
        if (c->lanes[i].chosen.count > 0 || c->lanes[i].passed > 0 || c->lanes[i].lapsed.count > 0)
            return true;
    return false;
}

/* What is in neither the new slice nor gone stays in rest. */
static pr_status keep_rest(pr__claimer *c, pr__claim_lane *lane, pr_error *err)
{
    if (lane->source == PR__CLAIM_FRESH)
        return PR_OK;
    pr__id_list kept = {0};
    if (lane->source == PR__CLAIM_TAKEOVER)
        for (uint32_t i = 0; i < lane->head.rest.count; i++)
            TRY(pr__id_list_add(&kept, c->batch->arena, lane->head.rest.ids[i], err));
    for (uint32_t i = lane->cursor; i < lane->source_ids.count; i++)
        TRY(pr__id_list_add(&kept, c->batch->arena, lane->source_ids.ids[i], err));
    pr__id_list_sort(&kept);
    lane->head.rest = kept;
    return PR_OK;
}

static uint32_t next_attempt(const pr__claim_lane *lane)
{
    uint32_t attempt = lane->head.attempt;
    if (lane->source == PR__CLAIM_TAKEOVER)
        return attempt < PR__SQLITE_TAKEOVERS_MAX ? attempt + 1 : attempt;
    return lane->source == PR__CLAIM_REST ? attempt : 0;
}

static void remember(pr__claimer *c, const pr__claim_lane *lane)
{
    if (c->wrote)
        return;
    c->wrote = true;
    c->witness_lane = lane->lane;
    c->witness_seq = lane->head.seq;
    memcpy(c->witness_token, lane->head.token, sizeof c->witness_token);
}

static pr_status write_claim(pr__claimer *c, pr__claim_lane *lane, pr_error *err)
{
    pr__journal *head = &lane->head;
    TRY(keep_rest(c, lane, err));
    head->attempt = next_attempt(lane);
    head->ids = lane->chosen;
    head->pos = lane->pos;
    head->passed += lane->passed + lane->lapsed.count;
    if (lane->chosen.count > 0) {
        memcpy(head->token, c->token, sizeof head->token);
        head->lease_until = c->now + c->opt->lease_ms * 1000;
    } else {
        /* rows were passed only: whoever settled in this commit must still find its own token */
        if (!lane->settled)
            memcpy(head->token, c->token, sizeof head->token);
        head->lease_until = 0;
        if (head->rest.count == 0)
            head->attempt = 0;
    }
    TRY(pr__journal_write(&c->store->conn, c->batch->reader, lane->lane, PR__JOURNAL_CLAIM,
                          c->opt->owner, c->now, head, err));
    remember(c, lane);
    return PR_OK;
}

pr_status pr__claimer_write(pr__claimer *c, pr_error *err)
{
    for (uint32_t i = 0; i < c->lane_count; i++) {
        pr__claim_lane *lane = &c->lanes[i];
        if (lane->chosen.count > 0 || lane->passed > 0 || lane->lapsed.count > 0) {
            TRY(write_claim(c, lane, err));
        } else if (lane->settled) {
            TRY(pr__journal_write(&c->store->conn, c->batch->reader, lane->lane,
                                  lane->released ? PR__JOURNAL_RELEASE : PR__JOURNAL_SETTLE, NULL,
                                  c->now, &lane->head, err));
            remember(c, lane);
        }
    }
    return PR_OK;
}

static void add_slice(pr__claimer *c, pr__claim_lane *lane)
{
    pr__batch *batch = c->batch;
    pr__slice *slice = &batch->slices[batch->slice_count];
    *slice = (pr__slice){.lane = lane->lane,
                         .seq = lane->head.seq,
                         .attempt = lane->head.attempt,
                         .takeover = lane->source == PR__CLAIM_TAKEOVER,
                         .again = lane->source == PR__CLAIM_REST};
    memcpy(slice->token, lane->head.token, sizeof slice->token);
    for (uint32_t i = 0; i < lane->chosen.count; i++) {
        pr__item *item = &batch->items[batch->item_count++];
        *item = *lane->items[i];
        item->lane = lane->lane;
        item->slice = batch->slice_count;
        item->suspicion = pr__suspect_list_get(&lane->head.suspects, item->log_id);
        item->poison = lane->poison;
    }
    batch->slice_count++;
}

/* Lay out slices and items by (lane, id). */
static pr_status lay_out(pr__claimer *c, pr_error *err)
{
    uint32_t items = 0;
    uint32_t slices = 0;
    for (uint32_t i = 0; i < c->lane_count; i++) {
        items += c->lanes[i].chosen.count;
        slices += c->lanes[i].chosen.count > 0;
        c->batch->passed_count += c->lanes[i].passed;
    }
    c->batch->more = c->limited;
    c->batch->slices = pr__arena_alloc(c->batch->arena, (slices + 1) * sizeof(pr__slice));
    c->batch->items = pr__arena_alloc(c->batch->arena, (items + 1) * sizeof(pr__item));
    if (!c->batch->slices || !c->batch->items)
        return pr__fail_nomem(err, ORIGIN);
    for (uint32_t i = 0; i < c->lane_count; i++)
        if (c->lanes[i].chosen.count > 0)
            add_slice(c, &c->lanes[i]);
    return PR_OK;
}

static const char SQL_BODY[] = "SELECT body FROM {p}_outbox WHERE id = ?1";

static pr_status read_body(pr__claimer *c, pr__item *item, pr_error *err)
{
    AUTO_STMT stmt = NULL;
    bool row = false;
    pr_message *message = &item->message;
    TRY(pr__sqlite_query(&c->store->conn, SQL_BODY, &stmt, err, "i", item->log_id));
    TRY(pr__sqlite_step(&c->store->conn, stmt, &row, err));
    const void *body = row ? sqlite3_column_blob(stmt, 0) : NULL;
    if (!row || (uint64_t)sqlite3_column_bytes(stmt, 0) != message->body_size_bytes) {
        item->unreadable = "its row was deleted from the log, or its body was changed";
        return PR_OK;
    }
    if (body)
        message->body = pr__arena_memdup(c->batch->arena, body, (size_t)message->body_size_bytes);
    return message->body ? PR_OK : pr__fail_nomem(err, ORIGIN);
}

static pr_status read_bodies(pr__claimer *c, pr_error *err)
{
    for (uint32_t i = 0; i < c->batch->item_count; i++)
        if (!c->batch->items[i].message.body && !c->batch->items[i].unreadable)
            TRY(read_body(c, &c->batch->items[i], err));
    return PR_OK;
}

pr_status pr__claimer_read(pr__claimer *c, pr_error *err)
{
    TRY(lay_out(c, err));
    if (!c->bodies_left)
        return PR_OK;
    TRY(pr__sqlite_begin(&c->store->conn, /* write= */ false, err));
    return pr__sqlite_end(&c->store->conn, read_bodies(c, err), err);
}

static const char SQL_ANY_FRESH[] = "SELECT 1 FROM {p}_outbox WHERE lane = ?1 AND id > ?2 LIMIT 1";

static pr_status lane_has_work(pr__sqlite_store *store, const pr__claim_options *opt, uint32_t lane,
                               bool *ret_work, pr_error *err)
{
    pr__journal head;
    int64_t one = 0;
    *ret_work = false;
    if (opt->lanes_skipped && ((opt->lanes_skipped[lane / 64] >> (lane % 64)) & 1) != 0)
        return PR_OK;
    TRY(pr__journal_head(&store->conn, opt->reader, lane, &head, err));
    if (!head.stands)
        return PR_OK;
    if (head.open || head.has_rest) {
        *ret_work = !head.open || head.lease_until <= pr__sqlite_now(&store->base);
        return PR_OK;
    }
    return pr__sqlite_int(&store->conn, SQL_ANY_FRESH, &one, ret_work, err, "ii", (int64_t)lane,
                          head.pos);
}

static pr_status look_for_work(pr__sqlite_store *store, const pr__claim_options *opt,
                               bool *ret_work, pr_error *err)
{
    pr_order order = PR_ORDER_HOLD;
    TRY(pr__sqlite_reader_load(store, opt->reader, &order, err));
    *ret_work = false;
    for (uint32_t lane = 0; lane < store->settings.lanes && !*ret_work; lane++)
        TRY(lane_has_work(store, opt, lane, ret_work, err));
    return PR_OK;
}

static pr_status claim_in_transaction(pr__sqlite_store *store, const pr__claim_options *opt,
                                      pr__claimer **ret_claimer, pr_error *err)
{
    TRY(pr__claimer_begin(store, opt->reader, opt, ret_claimer, err));
    TRY(pr__claimer_choose(*ret_claimer, err));
    return pr__claimer_found(*ret_claimer) ? pr__claimer_write(*ret_claimer, err) : PR_OK;
}

static pr_status claim(pr__sqlite_store *store, const pr__claim_options *opt,
                       pr__claimer **ret_claimer, pr_error *err)
{
    TRY(pr__sqlite_begin(&store->conn, /* write= */ true, err));
    pr_status status = claim_in_transaction(store, opt, ret_claimer, err);
    if (status != PR_OK || !pr__claimer_found(*ret_claimer)) {
        pr__sqlite_rollback(&store->conn);
        return status;
    }
    PR_FAULT("store.before_claim_commit");
    status = pr__sqlite_claim_commit(store, *ret_claimer, err);
    PR_FAULT("store.after_claim_commit");
    TRY(status);
    pr_error found = PR_ERROR_INIT;
    status = pr__claimer_read(*ret_claimer, &found);
    if (status != PR_OK) {
        pr__sqlite_give_back(store, (*ret_claimer)->batch);
        pr__error_copy(err, &found);
    }
    return status;
}

pr_status pr__sqlite_claim(pr_store *base, const pr__claim_options *opt, pr__batch **ret_batch,
                           pr_error *err)
{
    pr__sqlite_store *store = pr__sqlite_store_of(base);
    TRY(pr__sqlite_ready(store, err));
    bool work = false;
    TRY(pr__sqlite_begin(&store->conn, /* write= */ false, err));
    TRY(pr__sqlite_end(&store->conn, look_for_work(store, opt, &work, err), err));
    if (!work) {
        *ret_batch = NULL;
        return PR_OK;
    }
    pr__claimer *claimer = NULL;
    pr_status status = claim(store, opt, &claimer, err);
    AUTO(pr__batch) batch = claimer ? claimer->batch : NULL;
    TRY(status);
    *ret_batch = pr__claimer_found(claimer) ? TAKE(batch) : NULL;
    return PR_OK;
}
