/*
 * The ledger of the simulated world: claim, settle, renew, parked rows, by the rules that a serial
 * writer has. A test double: plain loops, no speed.
 */
#include "sim/sim.h"

#include "base/error.h"
#include "base/memory.h"
#include "base/text.h"

static sim_store *store_of(pr_store *store)
{
    return (sim_store *)(void *)store;
}

static int64_t wall_us(void *user)
{
    sim_world *world = user;
    return world->now_us + world->wall_offset_us;
}

static int64_t monotonic_us(void *user)
{
    return ((sim_world *)user)->now_us;
}

uint64_t sim_random(sim_world *world, uint64_t below)
{
    uint64_t x = world->random_state;
    x ^= x << 13;
    x ^= x >> 7;
    x ^= x << 17;
    world->random_state = x;
    return below ? (x >> 11) % below : x;
}

static void fill(void *user, void *bytes, size_t count)
{
    unsigned char *at = bytes;
    for (size_t i = 0; i < count; i++)
        at[i] = (unsigned char)(sim_random(user, 0) >> 24);
}

sim_world *sim_world_new(uint64_t seed, uint32_t lanes)
{
    sim_world *world = pr__alloc(sizeof *world);
    assert_non_null(world);
    world->now_us = SECONDS(1000);
    world->random_state = seed * 0x9E3779B97F4A7C15ULL + 0x1234567ULL;
    world->clock = (pr_clock){.size = sizeof world->clock,
                              .wall_us = wall_us,
                              .monotonic_us = monotonic_us,
                              .user = world};
    world->random = (pr_random){.size = sizeof world->random, .fill = fill, .user = world};
    world->order = PR_ORDER_HOLD;
    world->lane_count = lanes;
    return world;
}

void sim_world_free(sim_world *world)
{
    pr__free(world);
}

static sim_row new_row(sim_world *world, const char *key, const char *destination)
{
    sim_row row = {.id = 0};
    pr__format(row.message_id, sizeof row.message_id, "01890000-0000-7000-8000-%012llx",
               (unsigned long long)++world->tokens);
    pr__format(row.key, sizeof row.key, "%s", key);
    pr__format(row.destination, sizeof row.destination, "%s", destination);
    return row;
}

static sim_row *append(sim_world *world, sim_row row)
{
    assert_true(world->row_count < SIM_ROWS_MAX);
    row.id = (int64_t)world->row_count + 1;
    uint64_t hash = (uint64_t)row.id;
    if (row.key[0]) {
        hash = 5381;
        for (const char *at = row.key; *at; at++)
            hash = hash * 33 + (unsigned char)*at;
    }
    row.lane = (uint32_t)(hash % world->lane_count);
    world->rows[world->row_count] = row;
    return &world->rows[world->row_count++];
}

sim_row *sim_add(sim_world *world, const char *key, const char *destination)
{
    return append(world, new_row(world, key, destination));
}

sim_row *sim_row_of(sim_world *world, int64_t id)
{
    assert_true(id >= 1 && id <= (int64_t)world->row_count);
    return &world->rows[id - 1];
}

uint32_t sim_count(const sim_world *world, sim_place place, pr_state state)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < world->row_count; i++)
        count +=
            world->rows[i].place == place && (place != SIM_PARKED || world->rows[i].state == state);
    return count;
}

bool sim_all_final(const sim_world *world)
{
    for (uint32_t i = 0; i < world->row_count; i++) {
        const sim_row *row = &world->rows[i];
        if (row->place == SIM_LOG || (row->place == SIM_PARKED && row->state != PR_STATE_DEAD))
            return false;
    }
    return world->delayed_count == 0;
}

bool sim_any_leased(const sim_world *world)
{
    for (uint32_t i = 0; i < world->lane_count; i++) {
        if (world->lanes[i].open_count > 0 && world->lanes[i].lease_until_us > world->now_us)
            return true;
    }
    for (uint32_t i = 0; i < world->row_count; i++) {
        if (world->rows[i].place == SIM_PARKED && world->rows[i].locked_until_us > world->now_us)
            return true;
    }
    return false;
}

/* ---- every call ---- */

static pr_status enter(pr_store *base, sim_method method, pr_error *err)
{
    sim_store *store = store_of(base);
    if (store->calls[method] < SIM_TIMES_MAX)
        store->times[method][store->calls[method]] = store->world->now_us;
    store->calls[method]++;
    store->calls_all++;
    store->world->now_us += store->takes_us[method];
    if (store->fail_next[method] > 0)
        store->fail_next[method]--;
    else if (!store->down)
        return PR_OK;
    return pr__fail_retry(err, PR_E_BACKEND, store->down_retry, "sim.store",
                          "the simulated database is down");
}

static void new_token(sim_world *world, char token[PR_UUID_TEXT_SIZE])
{
    pr__format(token, PR_UUID_TEXT_SIZE, "token-%llu", (unsigned long long)++world->tokens);
}

/* ---- items ---- */

static bool blocking(const sim_world *world, const sim_row *row)
{
    return row->place == SIM_PARKED &&
           (row->state != PR_STATE_DEAD || world->order == PR_ORDER_HALT);
}

static bool blocked_by_older(const sim_world *world, const sim_row *row)
{
    if (!row->key[0] || world->order == PR_ORDER_SKIP)
        return false;
    for (int64_t i = 0; i < row->id - 1; i++) {
        const sim_row *older = &world->rows[i];
        if (strcmp(older->key, row->key) == 0 && blocking(world, older))
            return true;
    }
    return false;
}

static pr__batch *new_batch(const sim_world *world, uint32_t items)
{
    pr__batch *batch = pr__batch_new();
    assert_non_null(batch);
    batch->reader = PR_READER_RELAY;
    batch->order = world->order;
    batch->claimed_at_us = world->now_us; /* the database's clock is the world's */
    batch->items = pr__arena_alloc(batch->arena, (items + 1) * sizeof *batch->items);
    assert_non_null(batch->items);
    return batch;
}

static pr__item *add_item(pr__batch *batch, const sim_row *row)
{
    pr__item *item = &batch->items[batch->item_count++];
    item->log_id = row->id;
    item->lane = row->lane;
    item->slice = PR__NO_SLICE;
    item->attempts = row->attempts;
    item->suspicion = row->suspicion;
    item->unreadable = row->unreadable;
    item->message = (pr_message){
        .size = sizeof item->message,
        .id = pr__arena_strdup(batch->arena, row->message_id),
        .type = "urn:message:sim:thing",
        .type_version = 1,
        .destination = pr__arena_strdup(batch->arena, row->destination),
        .key = row->key[0] ? pr__arena_strdup(batch->arena, row->key) : NULL,
        .headers = pr__arena_strdup(batch->arena, row->headers),
        .body = pr__arena_strdup(batch->arena, "{}"),
        .body_size_bytes = 2,
        .expires_at_us = row->expires_at_us,
    };
    return item;
}

/* ---- claim ---- */

static void add_slice_item(sim_world *world, pr__batch *batch, int64_t id, bool poison)
{
    sim_row *row = sim_row_of(world, id);
    pr__item *item = add_item(batch, row);
    item->slice = batch->slice_count;
    item->blocked = blocked_by_older(world, row);
    item->poison = poison;
    row->poisoned += poison;
}

/* Which ids the lane gives now, by the rules of the claim; the lane's row is changed. */
static bool choose(sim_world *world, sim_lane *lane, uint32_t index, uint32_t max,
                   bool *ret_takeover)
{
    *ret_takeover = false;
    if (lane->open_count > 0) {
        if (lane->lease_until_us > world->now_us)
            return false;
        *ret_takeover = true;
        lane->attempt++;
        if (lane->attempt >= 3 && lane->open_count > 1) { /* one at a time */
            memmove(&lane->rest[lane->open_count - 1], lane->rest,
                    lane->rest_count * sizeof lane->rest[0]);
            memcpy(lane->rest, &lane->open[1], (lane->open_count - 1) * sizeof lane->rest[0]);
            lane->rest_count += lane->open_count - 1;
            lane->open_count = 1;
        }
        return true;
    }
    if (lane->rest_count > 0) {
        uint32_t take = lane->attempt >= 3 ? 1 : lane->rest_count < max ? lane->rest_count : max;
        memcpy(lane->open, lane->rest, take * sizeof lane->open[0]);
        lane->open_count = take;
        lane->rest_count -= take;
        memmove(lane->rest, &lane->rest[take], lane->rest_count * sizeof lane->rest[0]);
        return true;
    }
    lane->attempt = 0;
    for (int64_t id = lane->pos + 1; id <= (int64_t)world->row_count && lane->open_count < max;
         id++) {
        if (world->rows[id - 1].lane == index)
            lane->open[lane->open_count++] = id;
        lane->pos = id;
    }
    return lane->open_count > 0;
}

static void claim_lanes(sim_store *store, const pr__claim_options *opt, pr__batch **ret_batch)
{
    sim_world *world = store->world;
    *ret_batch = NULL;
    store->last_skipped = opt->lanes_skipped ? opt->lanes_skipped[0] : 0;
    pr__batch *batch = new_batch(world, world->row_count);
    batch->slices = pr__arena_alloc(batch->arena, world->lane_count * sizeof *batch->slices);
    for (uint32_t i = 0; i < world->lane_count; i++) {
        sim_lane *lane = &world->lanes[i];
        if (!store->ignores_skipped && (store->last_skipped >> i & 1))
            continue;
        if (batch->item_count >= opt->batch_max)
            break;
        bool takeover;
        if (!choose(world, lane, i, opt->batch_max - batch->item_count, &takeover))
            continue;
        bool poison = takeover && lane->attempt > 3 && lane->open_count == 1;
        lane->seq++;
        new_token(world, lane->token);
        lane->lease_until_us = world->now_us + opt->lease_ms * 1000;
        for (uint32_t k = 0; k < lane->open_count; k++)
            add_slice_item(world, batch, lane->open[k], poison);
        pr__slice *slice = &batch->slices[batch->slice_count++];
        slice->lane = i;
        slice->seq = lane->seq;
        slice->takeover = takeover;
        slice->attempt = lane->attempt;
        memcpy(slice->token, lane->token, sizeof slice->token);
    }
    batch->lease_ms = opt->lease_ms;
    if (batch->slice_count == 0)
        pr__batch_free(batch);
    else
        *ret_batch = batch;
}

static pr_status sim_claim(pr_store *base, const pr__claim_options *opt, pr__batch **ret_batch,
                           pr_error *err)
{
    TRY(enter(base, SIM_CLAIM, err));
    claim_lanes(store_of(base), opt, ret_batch);
    return PR_OK;
}

/* ---- parked ---- */

static bool may_go(const sim_world *world, const sim_row *row)
{
    if (row->place != SIM_PARKED || row->state == PR_STATE_DEAD ||
        row->locked_until_us > world->now_us)
        return false;
    if (row->state == PR_STATE_FAILED && row->next_at_us > world->now_us)
        return false;
    return true;
}

static pr_status sim_claim_parked(pr_store *base, const pr__claim_options *opt,
                                  pr__batch **ret_batch, pr_error *err)
{
    TRY(enter(base, SIM_CLAIM_PARKED, err));
    sim_world *world = store_of(base)->world;
    *ret_batch = NULL;
    pr__batch *batch = new_batch(world, world->row_count);
    batch->lease_ms = opt->lease_ms;
    for (uint32_t i = 0; i < world->row_count; i++) {
        if (!may_go(world, &world->rows[i]) || blocked_by_older(world, &world->rows[i]))
            continue;
        for (uint32_t k = i; k < world->row_count; k++) { /* the run of its key */
            sim_row *row = &world->rows[k];
            bool same = k == i || (row->key[0] && world->order != PR_ORDER_SKIP &&
                                   strcmp(row->key, world->rows[i].key) == 0);
            if (!same || row->place != SIM_PARKED || row->state == PR_STATE_DEAD)
                continue;
            if (!may_go(world, row) || batch->item_count >= opt->batch_max)
                break;
            row->takeovers += row->locked_until_us != 0;
            new_token(world, row->token);
            row->locked_until_us = world->now_us + opt->lease_ms * 1000;
            pr__item *item = add_item(batch, row);
            memcpy(item->token, row->token, sizeof item->token);
            item->poison = row->takeovers >= 3;
            row->poisoned += item->poison;
        }
    }
    if (batch->item_count == 0)
        pr__batch_free(batch);
    else
        *ret_batch = batch;
    return PR_OK;
}

/* ---- settle ---- */

static void check_truth(const sim_row *row, const pr__item *item)
{
    if (item->result == PR__RESULT_PUBLISHED && row->confirmed == 0)
        fail_msg("%s is settled as published, but was never confirmed", row->message_id);
    uint32_t charges = row->attempts;
    if (item->result == PR__RESULT_FAILED || item->result == PR__RESULT_DEAD)
        charges++;
    uint32_t reasons =
        row->refused + row->lost_as_killer + row->poisoned + (row->unreadable != NULL) +
        (strncmp(row->destination, "mem", 3) && strncmp(row->destination, "two", 3) ? 1000U : 0U);
    if (charges > reasons)
        fail_msg("%s is charged %u times, but failed %u times: %s", row->message_id, charges,
                 reasons, item->error ? item->error : "");
}

static void park(sim_world *world, sim_row *row, const pr__item *item, pr_state state, bool charged,
                 pr__settle_report *report)
{
    row->place = SIM_PARKED;
    row->state = state;
    row->attempts += charged;
    row->uncharged = !charged && state == PR_STATE_FAILED;
    row->next_at_us = world->now_us + item->retry_delay_ms * 1000;
    row->locked_until_us = 0;
    row->takeovers = 0;
    row->suspicion = item->result == PR__RESULT_LOST ? item->suspicion : 0; /* as stores do */
    pr__format(row->error, sizeof row->error, "%s", item->error ? item->error : "");
    report->failed += state == PR_STATE_FAILED && charged;
    report->deferred += state == PR_STATE_FAILED && !charged;
    report->held += state == PR_STATE_HELD;
}

/* True when it goes to rest (log) or back to what it was (parked). */
static bool apply(sim_world *world, sim_row *row, const pr__item *item, bool parked,
                  pr__settle_report *report)
{
    check_truth(row, item);
    switch (item->result) {
    case PR__RESULT_PUBLISHED:
        row->place = SIM_PUBLISHED;
        report->published++;
        return false;
    case PR__RESULT_FAILED:
        park(world, row, item, PR_STATE_FAILED, true, report);
        return false;
    case PR__RESULT_DEFERRED:
        park(world, row, item, PR_STATE_FAILED, false, report);
        return false;
    case PR__RESULT_DEAD:
        park(world, row, item, PR_STATE_DEAD, true, report);
        report->dead++;
        return false;
    case PR__RESULT_EXPIRED:
        park(world, row, item, PR_STATE_DEAD, false, report);
        report->expired++;
        return false;
    case PR__RESULT_HELD:
        park(world, row, item, PR_STATE_HELD, false, report);
        return false;
    case PR__RESULT_LOST:
        if (!parked)
            break;
        park(world, row, item, PR_STATE_FAILED, false, report);
        report->deferred--;
        report->rest++;
        return false;
    case PR__RESULT_OPEN:
        break;
    }
    row->suspicion = item->suspicion;
    return true;
}

static void settle_slice(sim_world *world, pr__batch *batch, uint32_t s, pr__settle_report *report)
{
    pr__slice *slice = &batch->slices[s];
    sim_lane *lane = &world->lanes[slice->lane];
    bool mine = lane->seq == slice->seq && strcmp(lane->token, slice->token) == 0;
    if (!mine) {
        slice->fenced = true;
        report->fenced_slices++;
    }
    int64_t rest[SIM_ROWS_MAX];
    uint32_t rest_count = 0;
    for (uint32_t i = 0; i < batch->item_count; i++) {
        pr__item *item = &batch->items[i];
        if (item->slice != s)
            continue;
        item->fenced = !mine;
        report->fenced_items += !mine;
        if (mine && apply(world, sim_row_of(world, item->log_id), item, false, report)) {
            rest[rest_count++] = item->log_id;
            report->rest++;
        }
    }
    if (!mine)
        return;
    memmove(&lane->rest[rest_count], lane->rest, lane->rest_count * sizeof lane->rest[0]);
    memcpy(lane->rest, rest, rest_count * sizeof rest[0]);
    lane->rest_count += rest_count;
    lane->open_count = 0;
    lane->seq++;
    if (lane->rest_count == 0)
        lane->attempt = 0;
}

static pr_status sim_settle(pr_store *base, pr__batch *batch, const pr__claim_options *next,
                            pr__settle_report *ret_report, pr__batch **ret_next, pr_error *err)
{
    TRY(enter(base, SIM_SETTLE, err));
    sim_store *store = store_of(base);
    *ret_report = (pr__settle_report){0};
    for (uint32_t s = 0; s < batch->slice_count; s++)
        settle_slice(store->world, batch, s, ret_report);
    for (uint32_t i = 0; !batch->slices && i < batch->item_count; i++) {
        pr__item *item = &batch->items[i];
        sim_row *row = sim_row_of(store->world, item->log_id);
        item->fenced = row->place != SIM_PARKED || strcmp(row->token, item->token) != 0 ||
                       row->locked_until_us == 0;
        ret_report->fenced_items += item->fenced;
        if (!item->fenced && apply(store->world, row, item, true, ret_report)) {
            row->locked_until_us = 0;
            ret_report->rest++;
        }
    }
    if (next) {
        store->settled_with_next++;
        claim_lanes(store, next, ret_next);
    }
    return PR_OK;
}

/* ---- the rest ---- */

static pr_status sim_renew(pr_store *base, pr__batch *batch, int64_t lease_ms, pr_error *err)
{
    TRY(enter(base, SIM_RENEW, err));
    sim_world *world = store_of(base)->world;
    for (uint32_t s = 0; s < batch->slice_count; s++) {
        pr__slice *slice = &batch->slices[s];
        sim_lane *lane = &world->lanes[slice->lane];
        if (lane->seq != slice->seq || strcmp(lane->token, slice->token) != 0) {
            slice->fenced = true;
            continue;
        }
        slice->seq = ++lane->seq;
        lane->lease_until_us = world->now_us + lease_ms * 1000;
    }
    for (uint32_t i = 0; !batch->slices && i < batch->item_count; i++) {
        sim_row *row = sim_row_of(world, batch->items[i].log_id);
        batch->items[i].fenced =
            row->place != SIM_PARKED || strcmp(row->token, batch->items[i].token) != 0;
        if (!batch->items[i].fenced)
            row->locked_until_us = world->now_us + lease_ms * 1000;
    }
    return PR_OK;
}

static pr_status sim_promote(pr_store *base, uint32_t max, uint32_t *ret_count,
                             int64_t *ret_next_ms, pr_error *err)
{
    TRY(enter(base, SIM_PROMOTE, err));
    sim_world *world = store_of(base)->world;
    uint32_t kept = 0, count = 0;
    *ret_next_ms = -1;
    for (uint32_t i = 0; i < world->delayed_count; i++) {
        int64_t wait_us = world->delayed_at_us[i] - world->now_us;
        if (wait_us <= 0 && count < max) {
            append(world, world->delayed[i]);
            count++;
            continue;
        }
        int64_t wait_ms = wait_us <= 0 ? 0 : (wait_us + 999) / 1000;
        if (*ret_next_ms < 0 || wait_ms < *ret_next_ms)
            *ret_next_ms = wait_ms;
        world->delayed[kept] = world->delayed[i];
        world->delayed_at_us[kept++] = world->delayed_at_us[i];
    }
    world->delayed_count = kept;
    *ret_count = count;
    return PR_OK;
}

static pr_status sim_parked_due(pr_store *base, int64_t reader, int64_t *ret_next_ms, pr_error *err)
{
    (void)reader;
    TRY(enter(base, SIM_PARKED_DUE, err));
    const sim_world *world = store_of(base)->world;
    int64_t next_us = INT64_MAX;
    for (uint32_t i = 0; i < world->row_count; i++) {
        const sim_row *row = &world->rows[i];
        if (row->place != SIM_PARKED || row->state == PR_STATE_DEAD || blocked_by_older(world, row))
            continue;
        int64_t at = row->state == PR_STATE_FAILED ? row->next_at_us : world->now_us;
        if (row->locked_until_us > at)
            at = row->locked_until_us;
        if (at < next_us)
            next_us = at;
    }
    *ret_next_ms = next_us == INT64_MAX       ? -1
                   : next_us <= world->now_us ? 0
                                              : (next_us - world->now_us + 999) / 1000;
    return PR_OK;
}

static pr_status sim_parked_count(pr_store *base, int64_t reader, uint32_t lane,
                                  uint32_t *ret_count, pr_error *err)
{
    (void)reader;
    TRY(enter(base, SIM_PARKED_COUNT, err));
    const sim_store *store = store_of(base);
    *ret_count = 0;
    for (uint32_t i = 0; i < store->world->row_count; i++) {
        const sim_row *row = &store->world->rows[i];
        *ret_count += row->place == SIM_PARKED && row->lane == lane && row->uncharged &&
                      row->state == PR_STATE_FAILED;
    }
    if (store->parked_count_set)
        *ret_count = store->parked_count;
    return PR_OK;
}

static pr_status sim_changed(pr_store *base, bool *ret_changed, pr_error *err)
{
    TRY(enter(base, SIM_CHANGED, err));
    *ret_changed = store_of(base)->changed;
    store_of(base)->changed = false;
    return PR_OK;
}

static pr_status sim_maintain(pr_store *base, pr_error *err)
{
    return enter(base, SIM_MAINTAIN, err);
}

static pr_status sim_backlog(pr_store *base, int64_t reader, int64_t limit_ms,
                             pr__backlog *ret_backlog, pr_error *err)
{
    (void)reader;
    (void)limit_ms;
    TRY(enter(base, SIM_BACKLOG, err));
    const sim_world *world = store_of(base)->world;
    ret_backlog->pending = sim_count(world, SIM_LOG, 0);
    ret_backlog->oldest_pending_age_ms = ret_backlog->pending ? 1234 : 0;
    return PR_OK;
}

static pr_status sim_set_order(pr_store *base, int64_t reader, pr_order order, pr_error *err)
{
    (void)reader;
    TRY(enter(base, SIM_SET_ORDER, err));
    store_of(base)->world->order = order;
    return PR_OK;
}

static const pr__store_ops sim_store_ops = {
    .name = "sim",
    .reader_set_order = sim_set_order,
    .claim = sim_claim,
    .claim_parked = sim_claim_parked,
    .settle = sim_settle,
    .renew = sim_renew,
    .promote = sim_promote,
    .parked_due = sim_parked_due,
    .parked_count = sim_parked_count,
    .changed = sim_changed,
    .maintain = sim_maintain,
    .backlog = sim_backlog,
};

void sim_store_init(sim_store *store, sim_world *world)
{
    *store = (sim_store){.world = world, .down_retry = PR_RETRY_SAME};
    store->base.ops = &sim_store_ops;
    store->base.clock = &world->clock;
    store->base.random = &world->random;
}
