/*
 * Rounds: the calls of the store.
 *
 * Keeps: a failed call counts as a failed round and makes the next one wait; a claim's lease is
 * counted from before the call; what a settle reports is what the counters say.
 * Must not know: transports.
 */
#include <string.h>

#include "base/error.h"
#include "base/fault.h"
#include "core/relay_engine.h"

#define BACKLOG_LIMIT_MS  2000
#define BACKLOG_SHARE     20      /* counting takes at most 1/20 of the time */
#define PART_US           50000   /* a part is looked for that often */
#define BUSY_US           1000000 /* claim at the busy pace that long after a change */
#define MAINTAIN_US       1000000
#define BREAKER_MEMORY_US (600LL * 1000000)

static void work_hard(pr_relay *relay, int64_t now_us)
{
    relay->busy_until_us = now_us + BUSY_US;
    relay->log_at_us = now_us;
    relay->dirty = true;
}

/* Nothing to claim: at the busy pace for a while, then only when a probe says so, or at times. */
static void found_nothing(pr_relay *relay, int64_t now_us)
{
    if (now_us < relay->busy_until_us) {
        relay->log_at_us = now_us + relay->opt.poll_busy_ms * 1000;
        relay->probe_at_us = INT64_MAX;
    } else {
        relay->log_at_us = now_us + relay->opt.probe_max_ms * 1000;
        relay->probe_at_us = now_us + relay->opt.poll_idle_ms * 1000;
    }
}

/* Only what failed can show that it works again: with the database locked by others, looking for
   parked rows succeeds all the while. */
static void works(pr_relay *relay, pr__relay_turn turn)
{
    if (turn == relay->failed_turn)
        relay->failures = 0;
}

static void round_good(pr_relay *relay, pr__relay_turn turn)
{
    works(relay, turn);
    relay->now.first_round_done = true;
    relay->now.last_round_at_us = relay->opt.clock->wall_us(relay->opt.clock->user);
}

static pr_status store_failed(pr_relay *relay, pr__relay_turn turn, pr_status status,
                              const pr_error *why, pr_error *err)
{
    pr__relay_round_failed(relay, turn, why, pr__relay_now(relay));
    pr__error_copy(err, why);
    return status;
}

uint64_t pr__relay_bytes_left(const pr_relay *relay)
{
    uint64_t held = 0;
    for (uint32_t i = 0; i < PR__RELAY_WORKS; i++) {
        if (relay->works[i].batch)
            held += pr__arena_bytes(relay->works[i].batch->arena);
    }
    return held < relay->opt.batch_bytes_max ? relay->opt.batch_bytes_max - held : 0;
}

pr__work *pr__relay_free_slot(pr_relay *relay)
{
    for (uint32_t i = 0; i < PR__RELAY_WORKS; i++) {
        if (relay->works[i].phase == PR__WORK_FREE)
            return &relay->works[i];
    }
    return NULL;
}

/* ret_skipped[PR_LANES_MAX / 64]; returns it, or NULL when no lane is left alone. */
static const uint64_t *lanes_skipped(const pr_relay *relay, uint64_t *ret_skipped, int64_t now_us)
{
    bool any = false;
    memset(ret_skipped, 0, PR_LANES_MAX / 8);
    for (uint32_t lane = 0; lane < PR_LANES_MAX; lane++) {
        if (relay->lane_wait_until_us[lane] > now_us ||
            (relay->once != PR__ONCE_OFF && relay->once_lane_done[lane])) {
            ret_skipped[lane / 64] |= 1ULL << (lane % 64);
            any = true;
        }
    }
    return any ? ret_skipped : NULL;
}

static pr__claim_options claim_options(const pr_relay *relay, uint64_t *skipped, int64_t now_us)
{
    uint64_t left = pr__relay_bytes_left(relay);
    return (pr__claim_options){.reader = PR_READER_RELAY,
                               .lease_ms = relay->opt.lease_ms,
                               .batch_max = relay->opt.batch_max,
                               .bytes_max = left > 0 ? left : 1,
                               .owner = relay->owner,
                               .lanes_skipped = lanes_skipped(relay, skipped, now_us)};
}

static void set_lease(const pr_relay *relay, pr__work *work, int64_t before_us)
{
    work->lease_from_us = before_us;
    work->renew_at_us = before_us + relay->opt.lease_ms * 1000 / 3;
}

/* A batch was claimed: it is this work now. */
static void adopt(pr_relay *relay, pr__work *work, pr__batch *batch, int64_t before_us)
{
    int64_t now_us = pr__relay_now(relay);
    uint32_t takeovers = 0;
    for (uint32_t i = 0; i < batch->slice_count; i++)
        takeovers += batch->slices[i].takeover;
    if (!batch->slices) {
        for (uint32_t i = 0; i < batch->item_count; i++) {
            pr__item *item = &batch->items[i];
            if (item->suspicion == 0 && pr__relay_killer(relay, item->log_id))
                item->suspicion = 1;
        }
    } else {
        relay->once_claimed += batch->item_count;
    }
    batch->lease_ms = relay->opt.lease_ms;
    work->serial = ++relay->serial;
    work->claimed_at_us = now_us;
    set_lease(relay, work, before_us);
    pr__work_load(work, batch, relay->names, relay->transport_count);
    pr__rate_begin(&relay->rate);
    work_hard(relay, now_us);
    relay->now.claimed += batch->item_count;
    if (batch->item_count > 0)
        pr__relay_tell(relay, PR_OBSERVE_CLAIMED, batch->item_count, 0);
    if (takeovers > 0)
        pr__relay_tell(relay, PR_OBSERVE_TAKEOVER, takeovers, 0);
    if (batch->item_count == 0 && batch->slice_count == 0)
        pr__work_clear(work); /* rows were passed over, nothing is held */
}

static pr_status claim(pr_relay *relay, pr__work *work, bool parked, pr_error *err)
{
    int64_t before_us = pr__relay_now(relay);
    uint64_t skipped[PR_LANES_MAX / 64];
    pr__claim_options opt = claim_options(relay, skipped, before_us);
    pr__batch *batch = NULL;
    pr_error why = PR_ERROR_INIT;
    PR_FAULT("relay.before_claim");
    pr_status status = parked ? pr__store_claim_parked(relay->store, &opt, &batch, &why)
                              : pr__store_claim(relay->store, &opt, &batch, &why);
    PR_FAULT("relay.after_claim");
    pr__relay_turn turn = parked ? PR__TURN_PARKED : PR__TURN_LOG;
    if (status != PR_OK)
        return store_failed(relay, turn, status, &why, err);
    int64_t now_us = pr__relay_now(relay);
    if (batch) {
        adopt(relay, work, batch, before_us);
        if (parked)
            relay->parked_at_us = now_us; /* once more, until none is due */
        return PR_OK;
    }
    round_good(relay, turn);
    if (parked)
        relay->ask_due = true;
    else
        found_nothing(relay, now_us);
    return PR_OK;
}

/* ---- settle ---- */

static void tell_items(pr_relay *relay, const pr__batch *batch)
{
    for (uint32_t i = 0; i < batch->item_count; i++) {
        const pr__item *item = &batch->items[i];
        if (item->fenced)
            continue;
        switch (item->result) {
        case PR__RESULT_FAILED:
            pr__relay_tell_item(relay, PR_OBSERVE_FAILED, item);
            break;
        case PR__RESULT_DEAD:
            pr__relay_tell_item(relay, PR_OBSERVE_DEAD, item);
            break;
        case PR__RESULT_EXPIRED:
            pr__relay_tell_item(relay, PR_OBSERVE_EXPIRED, item);
            break;
        case PR__RESULT_LOST:
            relay->now.lost++;
            pr__relay_tell_item(relay, PR_OBSERVE_LOST, item);
            break;
        case PR__RESULT_OPEN:
        case PR__RESULT_PUBLISHED:
        case PR__RESULT_DEFERRED:
        case PR__RESULT_HELD:
            break;
        }
    }
}

static void account(pr_relay *relay, const pr__batch *batch, const pr__settle_report *report,
                    int64_t duration_us)
{
    uint32_t fenced =
        report->fenced_items > report->fenced_slices ? report->fenced_items : report->fenced_slices;
    relay->now.published += report->published;
    relay->now.failed += report->failed;
    relay->now.deferred += report->deferred;
    relay->now.dead += report->dead;
    relay->now.expired += report->expired;
    relay->now.held += report->held;
    relay->now.fenced += fenced;
    if (report->published > 0)
        pr__relay_tell(relay, PR_OBSERVE_PUBLISHED, report->published, 0);
    if (report->deferred > 0)
        pr__relay_tell(relay, PR_OBSERVE_DEFERRED, report->deferred, 0);
    if (report->held > 0)
        pr__relay_tell(relay, PR_OBSERVE_HELD, report->held, 0);
    if (fenced > 0)
        pr__relay_tell(relay, PR_OBSERVE_FENCED, fenced, 0);
    if (report->published < batch->item_count)
        tell_items(relay, batch);
    pr__relay_tell(relay, PR_OBSERVE_ROUND, batch->item_count, duration_us);
}

/* In a run-once, a lane that has something left is not claimed again: each is sent once. */
static void note_lanes_done(pr_relay *relay, const pr__batch *batch)
{
    for (uint32_t i = 0; relay->once != PR__ONCE_OFF && i < batch->item_count; i++) {
        const pr__item *item = &batch->items[i];
        if (item->lane < PR_LANES_MAX &&
            (item->result == PR__RESULT_OPEN || item->result == PR__RESULT_LOST))
            relay->once_lane_done[item->lane] = true;
    }
}

static pr__relay_turn turn_of(const pr__work *work)
{
    return work->batch->slices ? PR__TURN_LOG : PR__TURN_PARKED;
}

/* When the next round of this kind comes. */
static void schedule_next(pr_relay *relay, const pr__work *work, const pr__settle_report *report,
                          int64_t now_us)
{
    bool progress = report->published + report->failed + report->deferred + report->dead +
                        report->expired + report->held + report->fenced_slices +
                        report->fenced_items >
                    0;
    pr__relay_turn turn = turn_of(work);
    bool outage = work->outage && !progress && work->waiting == 0;
    if (outage) {
        pr_error why = PR_ERROR_INIT;
        (void)pr__fail(&why, PR_E_BACKEND, "relay",
                       "nothing of this round was delivered, its messages wait");
        pr__relay_round_failed(relay, turn, &why, now_us);
    } else {
        round_good(relay, turn);
    }
    if (!work->batch->slices) {
        relay->parked_at_us = report->published > 0 || work->batch->more
                                  ? now_us
                                  : now_us + relay->opt.poll_idle_ms * 1000;
        return;
    }
    if (report->failed + report->deferred > 0 && relay->parked_at_us > now_us) {
        relay->ask_due = true; /* something may be due before the time set so far */
        relay->parked_at_us = now_us;
    }
    relay->log_at_us = now_us;
    if (!progress && work->batch->item_count > 0)
        relay->log_at_us += relay->opt.poll_idle_ms * 1000;
}

static void end_work(pr__work *work)
{
    if (work->flying > 0)
        work->phase = PR__WORK_DRAINING; /* a transport still reads its messages */
    else
        pr__work_clear(work);
}

static pr_status settle_failed(pr_relay *relay, pr__work *work, pr_status status,
                               const pr_error *why, pr_error *err)
{
    int64_t now_us = pr__relay_now(relay);
    bool expired = now_us >= work->lease_from_us + work->batch->lease_ms * 1000;
    pr__relay_turn turn = turn_of(work);
    bool last = relay->stopping && now_us >= relay->stop_at_us;
    if (last)
        pr__error_copy(&relay->stop_error, why);
    /* Whoever takes an expired slice over sends it again; to keep it would help nobody when the
       call can never succeed, or when this is the end. */
    if (work->phase == PR__WORK_DECIDED &&
        ((expired && why->retry == PR_RETRY_NEVER) || relay->once != PR__ONCE_OFF || last))
        end_work(work);
    return store_failed(relay, turn, status, why, err);
}

/* Settle a view of the work, which is all of it once everything is decided. */
static pr_status settle_view(pr_relay *relay, pr__work *work, pr__batch *view, pr__work *target,
                             pr_error *err)
{
    if (view != work->batch || !work->closed)
        pr__batch_close(view);
    work->closed = view == work->batch;
    int64_t before_us = pr__relay_now(relay);
    uint64_t skipped[PR_LANES_MAX / 64];
    pr__claim_options opt = claim_options(relay, skipped, before_us);
    if (target == work)
        opt.bytes_max = relay->opt.batch_bytes_max; /* this batch makes room for the next */
    pr__settle_report report = {0};
    pr__batch *next = NULL;
    pr_error why = PR_ERROR_INIT;
    PR_FAULT("relay.before_settle");
    pr_status status = pr__store_settle(relay->store, view, target ? &opt : NULL, &report,
                                        target ? &next : NULL, &why);
    PR_FAULT("relay.after_settle");
    if (status != PR_OK)
        return settle_failed(relay, work, status, &why, err);
    int64_t now_us = pr__relay_now(relay);
    relay->dirty = true;
    pr__work_viewed(work, view, /* settled= */ true);
    note_lanes_done(relay, view);
    account(relay, view, &report, now_us - work->claimed_at_us);
    schedule_next(relay, work, &report, now_us);
    if (work->phase == PR__WORK_DECIDED)
        end_work(work);
    if (next)
        adopt(relay, target, next, before_us);
    else if (target)
        found_nothing(relay, now_us);
    return PR_OK;
}

pr_status pr__relay_settle(pr_relay *relay, pr__work *work, bool with_next, pr_error *err)
{
    pr__work *target = work->flying > 0 ? pr__relay_free_slot(relay) : work;
    bool claims = with_next && work->batch->slices;
    pr__batch *view = pr__work_view(work, /* decided_only= */ false);
    return settle_view(relay, work, view ? view : work->batch, claims ? target : NULL, err);
}

bool pr__relay_settle_part(pr_relay *relay, pr__work *work, pr_status *ret_status, pr_error *err)
{
    work->part_at_us = pr__relay_now(relay) + PART_US;
    pr__batch *view = pr__work_view(work, /* decided_only= */ true);
    if (!view)
        return false;
    *ret_status = settle_view(relay, work, view, NULL, err);
    return true;
}

pr_status pr__relay_renew(pr_relay *relay, pr__work *work, pr_error *err)
{
    int64_t before_us = pr__relay_now(relay);
    pr_error why = PR_ERROR_INIT;
    pr__batch *view = pr__work_view(work, /* decided_only= */ false);
    PR_FAULT("relay.before_renew");
    pr_status status =
        pr__store_renew(relay->store, view ? view : work->batch, relay->opt.lease_ms, &why);
    PR_FAULT("relay.after_renew");
    if (status != PR_OK)
        return store_failed(relay, turn_of(work), status, &why, err);
    if (view)
        pr__work_viewed(work, view, /* settled= */ false);
    set_lease(relay, work, before_us);
    for (uint32_t i = 0; i < work->batch->slice_count; i++) {
        if (work->batch->slices[i].fenced)
            pr__work_leave_unsent(work, i);
    }
    return PR_OK;
}

/* ---- what happens between rounds ---- */

static int64_t next_look_us(const pr_relay *relay, int64_t next_ms, int64_t now_us)
{
    int64_t wait_ms =
        next_ms < 0 || next_ms > relay->opt.probe_max_ms ? relay->opt.probe_max_ms : next_ms;
    if (wait_ms < relay->opt.poll_busy_ms)
        wait_ms = relay->opt.poll_busy_ms;
    return now_us + wait_ms * 1000;
}

pr_status pr__relay_promote(pr_relay *relay, uint32_t *ret_count, pr_error *err)
{
    int64_t next_ms = -1;
    uint32_t count = 0;
    pr_error why = PR_ERROR_INIT;
    PR_FAULT("relay.before_promote");
    pr_status status =
        pr__store_promote(relay->store, relay->opt.batch_max, &count, &next_ms, &why);
    PR_FAULT("relay.after_promote");
    if (status != PR_OK)
        return store_failed(relay, PR__TURN_PROMOTE, status, &why, err);
    works(relay, PR__TURN_PROMOTE);
    int64_t now_us = pr__relay_now(relay);
    relay->promote_at_us =
        count >= relay->opt.batch_max ? now_us : next_look_us(relay, next_ms, now_us);
    if (count > 0) {
        work_hard(relay, now_us);
        pr__relay_tell(relay, PR_OBSERVE_PROMOTED, count, 0);
    }
    *ret_count = count;
    return PR_OK;
}

static pr_status ask_due(pr_relay *relay, pr_error *err)
{
    int64_t next_ms = -1;
    pr_error why = PR_ERROR_INIT;
    pr_status status = pr__store_parked_due(relay->store, PR_READER_RELAY, &next_ms, &why);
    if (status != PR_OK)
        return store_failed(relay, PR__TURN_PARKED, status, &why, err);
    relay->ask_due = false;
    relay->parked_at_us = next_look_us(relay, next_ms, pr__relay_now(relay));
    return PR_OK;
}

/* A count that fails, or takes too long, says so and changes nothing else. */
static pr_status count_backlog(pr_relay *relay)
{
    pr__backlog backlog = {0};
    int64_t before_us = pr__relay_now(relay);
    pr_status status =
        pr__store_backlog(relay->store, PR_READER_RELAY, BACKLOG_LIMIT_MS, &backlog, NULL);
    int64_t now_us = pr__relay_now(relay);
    int64_t pause_us = relay->opt.backlog_every_ms * 1000;
    if ((now_us - before_us) * BACKLOG_SHARE > pause_us)
        pause_us = (now_us - before_us) * BACKLOG_SHARE;
    relay->backlog_at_us = now_us + pause_us;
    relay->now.backlog_known = status == PR_OK && now_us - before_us <= BACKLOG_LIMIT_MS * 1000LL;
    if (relay->now.backlog_known) {
        relay->now.backlog = backlog.pending;
        relay->now.oldest_pending_age_ms = backlog.oldest_pending_age_ms;
    }
    pr__breakers_prune(relay->breakers, now_us - BREAKER_MEMORY_US);
    return PR_OK;
}

/* A checkpoint that cannot be made now is made later; it is no failure of a round. */
static pr_status maintain(pr_relay *relay)
{
    pr_status status = pr__store_maintain(relay->store, NULL);
    relay->dirty = status != PR_OK && status != PR_E_UNSUPPORTED;
    relay->maintain_at_us = pr__relay_now(relay) + MAINTAIN_US;
    return PR_OK;
}

pr_status pr__relay_turn_run(pr_relay *relay, pr__relay_turn turn, pr_error *err)
{
    uint32_t promoted = 0;
    pr__work *slot = pr__relay_free_slot(relay);
    switch (turn) {
    case PR__TURN_PROMOTE:
        return pr__relay_promote(relay, &promoted, err);
    case PR__TURN_PARKED:
        if (relay->ask_due)
            return ask_due(relay, err);
        return claim(relay, slot, /* parked= */ true, err);
    case PR__TURN_LOG:
        return claim(relay, slot, /* parked= */ false, err);
    case PR__TURN_BACKLOG:
        return count_backlog(relay);
    case PR__TURN_MAINTAIN:
        return maintain(relay);
    case PR__TURN_COUNT:
        break;
    }
    return PR_OK;
}

pr_status pr__relay_probe(pr_relay *relay, pr_error *err)
{
    bool changed = false;
    pr_error why = PR_ERROR_INIT;
    pr_status status = pr__store_changed(relay->store, &changed, &why);
    if (status != PR_OK)
        return store_failed(relay, PR__TURN_LOG, status, &why, err);
    int64_t now_us = pr__relay_now(relay);
    relay->probe_at_us = now_us + relay->opt.poll_idle_ms * 1000;
    if (changed) {
        work_hard(relay, now_us);
        relay->parked_at_us = relay->promote_at_us = now_us;
        relay->ask_due = false;
    }
    return PR_OK;
}

pr_status pr__relay_set_order(pr_relay *relay, pr_error *err)
{
    pr_error why = PR_ERROR_INIT;
    pr_status status =
        pr__store_reader_set_order(relay->store, PR_READER_RELAY, relay->opt.order, &why);
    if (status != PR_OK)
        return store_failed(relay, PR__TURN_LOG, status, &why, err);
    relay->order_pending = false;
    return PR_OK;
}
