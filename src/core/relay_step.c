/*
 * The scheduler: which call of a port comes next, and when.
 *
 * Keeps: one call a step; what is in hand goes before new work; between rounds promotion, parked
 * rows, the log, counting and checkpoints take turns; after a failure no call of the store is made
 * before its backoff is over.
 * Must not know: what the calls do.
 */
#include "core/relay_engine.h"

#include "base/error.h"
#include "base/text.h"
#include "core/backoff.h"

#define POLL_ONE_MS  20      /* wait for outcomes when one transport has all that flies */
#define POLL_MANY_MS 2       /* when several have */
#define OVERLAP_US   100000  /* others go on while something flies that long */
#define IDLE_US      1000000 /* wait when nothing has a time */

int64_t pr__relay_now(const pr_relay *relay)
{
    return relay->opt.clock->monotonic_us(relay->opt.clock->user);
}

uint32_t pr__relay_random(pr_relay *relay)
{
    uint32_t value = 0;
    relay->opt.random->fill(relay->opt.random->user, &value, sizeof value);
    return value;
}

bool pr__relay_any_up(const pr_relay *relay)
{
    for (uint32_t i = 0; i < relay->transport_count; i++) {
        if (relay->transports[i].up)
            return true;
    }
    return false;
}

void pr__relay_round_failed(pr_relay *relay, pr__relay_turn turn, const pr_error *why,
                            int64_t now_us)
{
    const pr__backoff backoff = {.initial_ms = relay->opt.poll_idle_ms,
                                 .max_ms = relay->opt.round_backoff_max_ms,
                                 .jitter_percent = relay->opt.jitter_percent};
    if (relay->failures < UINT32_MAX)
        relay->failures++;
    relay->failed_turn = turn;
    relay->backoff_until_us =
        now_us + pr__backoff_ms(&backoff, relay->failures, pr__relay_random(relay)) * 1000;
    pr__format(relay->failed_why, sizeof relay->failed_why, "%s", why->message);
    pr__relay_tell_subject(relay, PR_OBSERVE_ROUND_FAILED, why->origin, why->status, why->message);
}

/* ---- from outside ---- */

/* At the end of the grace period what is known is settled and the rest given back. */
static void cut_short(pr_relay *relay)
{
    for (uint32_t i = 0; i < PR__RELAY_WORKS; i++) {
        pr__work *work = &relay->works[i];
        if (work->phase != PR__WORK_SENDING)
            continue;
        pr__work_leave_unsent(work, PR__NO_SLICE);
        pr__relay_lose_flying(relay, work, "the relay was stopped before its outcome came",
                              INT64_MAX);
    }
}

static void notice(pr_relay *relay, int64_t now_us)
{
    if (atomic_exchange(&relay->woken, false) && !relay->stopping) {
        if (now_us >= relay->busy_until_us) /* out of its sleep: what rang is in the log */
            relay->turn = PR__TURN_LOG;
        relay->busy_until_us = now_us + 1000000;
        relay->log_at_us = relay->promote_at_us = now_us;
    }
    if (atomic_load(&relay->stop_wanted) && !relay->stopping) {
        relay->stopping = true;
        relay->stop_at_us = now_us + relay->opt.stop_grace_ms * 1000;
    }
    if (relay->stopping && now_us >= relay->stop_at_us)
        cut_short(relay);
    if (relay->lane_waits[0] && now_us >= relay->lane_waits_until_us)
        relay->lane_waits[0] = '\0';
}

/* ---- what is in hand ---- */

static bool store_rests(const pr_relay *relay, int64_t now_us)
{
    bool last_chance = relay->stopping && now_us >= relay->stop_at_us;
    return now_us < relay->backoff_until_us && !last_chance;
}

static bool step_renew(pr_relay *relay, int64_t now_us, pr_status *ret_status, pr_error *err)
{
    for (uint32_t i = 0; i < PR__RELAY_WORKS; i++) {
        pr__work *work = &relay->works[i];
        if (work->phase != PR__WORK_SENDING || now_us < work->renew_at_us ||
            store_rests(relay, now_us))
            continue;
        *ret_status = pr__relay_renew(relay, work, err);
        return true;
    }
    return false;
}

static bool step_send(pr_relay *relay, int64_t now_us, pr_status *ret_status, pr_error *err)
{
    for (uint32_t i = 0; i < PR__RELAY_WORKS; i++) {
        pr__relay_check_times(relay, &relay->works[i], now_us);
        if (relay->works[i].phase == PR__WORK_SENDING &&
            pr__relay_send(relay, &relay->works[i], ret_status, err))
            return true;
    }
    return false;
}

static bool turn_due(const pr_relay *relay, pr__relay_turn turn, int64_t now_us)
{
    switch (turn) {
    case PR__TURN_PROMOTE:
        return now_us >= relay->promote_at_us;
    case PR__TURN_PARKED:
        return now_us >= relay->parked_at_us && pr__relay_any_up(relay);
    case PR__TURN_LOG:
        return now_us >= relay->log_at_us && pr__relay_any_up(relay);
    case PR__TURN_BACKLOG:
        return now_us >= relay->backlog_at_us && relay->failures == 0;
    case PR__TURN_MAINTAIN:
        return relay->dirty && now_us >= relay->maintain_at_us && relay->failures == 0;
    case PR__TURN_COUNT:
        break;
    }
    return false;
}

static bool others_in_hand(const pr_relay *relay, const pr__work *but)
{
    for (uint32_t i = 0; i < PR__RELAY_WORKS; i++) {
        pr__work_phase phase = relay->works[i].phase;
        if (&relay->works[i] != but && (phase == PR__WORK_SENDING || phase == PR__WORK_DECIDED))
            return true;
    }
    return false;
}

/* Settle and claim share a commit unless something else has its turn now. */
static bool may_claim_with(const pr_relay *relay, const pr__work *work, int64_t now_us)
{
    if (relay->stopping || work->outage || work->waiting > 0 || !pr__relay_any_up(relay) ||
        others_in_hand(relay, work))
        return false;
    if (relay->once != PR__ONCE_OFF)
        return relay->once == PR__ONCE_LOG && relay->once_claimed < relay->once_limit;
    for (int turn = 0; turn < PR__TURN_COUNT; turn++) {
        if (turn != PR__TURN_LOG && turn_due(relay, (pr__relay_turn)turn, now_us))
            return false;
    }
    return true;
}

static bool straggles(const pr__work *work, const pr_relay *relay, int64_t now_us)
{
    return work->flying > 0 &&
           now_us >= work->deadline_at_us - relay->opt.publish_deadline_ms * 1000 + OVERLAP_US;
}

static bool step_settle(pr_relay *relay, int64_t now_us, pr_status *ret_status, pr_error *err)
{
    for (uint32_t i = 0; i < PR__RELAY_WORKS; i++) {
        pr__work *work = &relay->works[i];
        if (store_rests(relay, now_us))
            continue;
        if (work->phase == PR__WORK_DECIDED) {
            *ret_status = pr__relay_settle(relay, work, may_claim_with(relay, work, now_us), err);
            return true;
        }
        if (work->phase == PR__WORK_SENDING && now_us >= work->part_at_us &&
            straggles(work, relay, now_us) && !pr__work_has_ready(work) &&
            pr__relay_settle_part(relay, work, ret_status, err))
            return true;
    }
    return false;
}

/* ---- new work ---- */

/* New work is begun when nothing in hand can go on but by waiting for slow outcomes. */
static bool may_begin(pr_relay *relay, int64_t now_us)
{
    if (relay->stopping || now_us < relay->backoff_until_us || !pr__relay_free_slot(relay))
        return false;
    bool busy = false;
    for (uint32_t i = 0; i < PR__RELAY_WORKS; i++) {
        const pr__work *work = &relay->works[i];
        if (work->phase == PR__WORK_DECIDED ||
            (work->phase == PR__WORK_SENDING &&
             (pr__work_has_ready(work) || !straggles(work, relay, now_us))))
            return false;
        busy |= work->phase == PR__WORK_SENDING;
    }
    return !busy || pr__relay_bytes_left(relay) >= relay->opt.batch_bytes_max / 4;
}

static bool step_open(pr_relay *relay, int64_t now_us, pr_status *ret_status, pr_error *err)
{
    for (uint32_t i = 0; i < relay->transport_count && !relay->stopping; i++) {
        pr__relay_transport *transport = &relay->transports[i];
        if (transport->up || now_us < transport->retry_at_us ||
            (relay->once != PR__ONCE_OFF && transport->failures > 1))
            continue;
        *ret_status = pr__relay_open(relay, transport, err);
        return true;
    }
    return false;
}

static bool run_turn(pr_relay *relay, pr__relay_turn turn, int64_t now_us, pr_status *ret_status,
                     pr_error *err)
{
    if (!turn_due(relay, turn, now_us))
        return false;
    *ret_status = pr__relay_turn_run(relay, turn, err);
    return true;
}

/* Counting and checkpoints go on beside a round that waits for something. */
static bool step_background(pr_relay *relay, int64_t now_us, pr_status *ret_status, pr_error *err)
{
    if (relay->stopping || relay->once != PR__ONCE_OFF)
        return false;
    return run_turn(relay, PR__TURN_BACKLOG, now_us, ret_status, err) ||
           run_turn(relay, PR__TURN_MAINTAIN, now_us, ret_status, err);
}

static bool step_begin(pr_relay *relay, int64_t now_us, pr_status *ret_status, pr_error *err)
{
    if (!may_begin(relay, now_us))
        return step_background(relay, now_us, ret_status, err);
    if (relay->order_pending) {
        *ret_status = pr__relay_set_order(relay, err);
        return true;
    }
    if (relay->once != PR__ONCE_OFF) {
        bool called = false;
        *ret_status = pr__relay_once_turn(relay, &called, err);
        return called;
    }
    for (int i = 0; i < PR__TURN_COUNT; i++) {
        pr__relay_turn turn = (pr__relay_turn)(((int)relay->turn + i) % PR__TURN_COUNT);
        if (!run_turn(relay, turn, now_us, ret_status, err))
            continue;
        relay->turn = (pr__relay_turn)(((int)turn + 1) % PR__TURN_COUNT);
        return true;
    }
    if (now_us >= relay->probe_at_us && pr__relay_any_up(relay)) {
        *ret_status = pr__relay_probe(relay, err);
        return true;
    }
    return false;
}

/* ---- times ---- */

static int64_t sooner(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static int64_t later(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* When something in hand has its time: a send, a renewal, a deadline. */
static int64_t work_at_us(const pr_relay *relay, const pr__work *work, int64_t now_us)
{
    if (work->phase == PR__WORK_DECIDED)
        return relay->backoff_until_us;
    if (work->phase != PR__WORK_SENDING)
        return INT64_MAX;
    int64_t at = sooner(work->deadline_at_us, later(work->renew_at_us, relay->backoff_until_us));
    int64_t lease_end_us = work->lease_from_us + work->batch->lease_ms * 1000;
    if (lease_end_us > now_us)
        at = sooner(at, lease_end_us);
    for (uint32_t i = 0; i < relay->transport_count; i++) {
        const pr__relay_transport *transport = &relay->transports[i];
        if (pr__work_queue_empty(&work->ready[i]) && pr__work_queue_empty(&work->suspects[i]))
            continue;
        int64_t send_at_us = later(transport->hold_until_us, relay->rate.next_at_us);
        if (send_at_us > now_us || transport->in_flight == 0) /* else an outcome comes first */
            at = sooner(at, send_at_us);
    }
    return at;
}

static int64_t poll_timeout_ms(const pr_relay *relay, int64_t now_us)
{
    uint32_t flying = 0;
    for (uint32_t i = 0; i < relay->transport_count; i++)
        flying += relay->transports[i].in_flight > 0;
    int64_t timeout_us = (flying > 1 ? POLL_MANY_MS : POLL_ONE_MS) * 1000;
    for (uint32_t i = 0; i < PR__RELAY_WORKS; i++)
        timeout_us = sooner(timeout_us, work_at_us(relay, &relay->works[i], now_us) - now_us);
    if (relay->stopping)
        timeout_us = sooner(timeout_us, relay->stop_at_us - now_us);
    return timeout_us <= 0 ? 0 : (timeout_us + 999) / 1000;
}

static int64_t background_at_us(const pr_relay *relay)
{
    if (relay->failures > 0)
        return INT64_MAX;
    return relay->dirty ? sooner(relay->backlog_at_us, relay->maintain_at_us)
                        : relay->backlog_at_us;
}

static int64_t begin_at_us(const pr_relay *relay)
{
    int64_t at = relay->promote_at_us;
    if (pr__relay_any_up(relay)) {
        at = sooner(at, sooner(relay->parked_at_us, relay->log_at_us));
        at = sooner(at, relay->probe_at_us);
    }
    return later(at, relay->backoff_until_us);
}

static int64_t wait_us(pr_relay *relay, int64_t now_us)
{
    int64_t at = INT64_MAX;
    bool in_hand = others_in_hand(relay, NULL);
    for (uint32_t i = 0; i < PR__RELAY_WORKS; i++)
        at = sooner(at, work_at_us(relay, &relay->works[i], now_us));
    for (uint32_t i = 0; i < relay->transport_count; i++) {
        const pr__relay_transport *transport = &relay->transports[i];
        if (transport->in_flight > 0)
            at = sooner(at, transport->poll_at_us);
        if (transport->blocked)
            at = sooner(at, now_us + relay->opt.poll_idle_ms * 1000);
        if (!transport->up && !relay->stopping && relay->once == PR__ONCE_OFF)
            at = sooner(at, transport->retry_at_us);
    }
    if (relay->stopping)
        at = sooner(at, relay->stop_at_us);
    else if (relay->once == PR__ONCE_OFF)
        at = sooner(at, background_at_us(relay));
    if (!relay->stopping && !in_hand && pr__relay_free_slot(relay))
        at = sooner(at, begin_at_us(relay));
    if (at == INT64_MAX)
        return IDLE_US;
    return at > now_us ? at - now_us : 0;
}

/* ---- the step ---- */

static bool step_stop(pr_relay *relay)
{
    if (!relay->stopping || others_in_hand(relay, NULL))
        return false;
    relay->stopped = true;
    return true;
}

static bool step_any(pr_relay *relay, int64_t now_us, pr_status *ret_status, pr_error *err)
{
    if (step_renew(relay, now_us, ret_status, err) || step_send(relay, now_us, ret_status, err) ||
        step_settle(relay, now_us, ret_status, err) || step_open(relay, now_us, ret_status, err) ||
        step_begin(relay, now_us, ret_status, err))
        return true;
    return pr__relay_poll(relay, poll_timeout_ms(relay, now_us), ret_status, err);
}

pr_status pr__relay_advance(pr_relay *relay, int64_t *ret_wait_us, pr_error *err)
{
    *ret_wait_us = 0;
    int64_t now_us = pr__relay_now(relay);
    notice(relay, now_us);
    if (relay->stopped || step_stop(relay)) {
        relay->now.running = false;
        pr__relay_publish_snapshot(relay);
        return pr__fail(err, PR_E_STATE, "relay", "it was stopped");
    }
    relay->now.running = true;
    pr__relay_look(relay, now_us);
    pr_status status = PR_OK;
    if (!step_any(relay, now_us, &status, err)) {
        /* what was decided without a call may be settled at once */
        *ret_wait_us = step_stop(relay) ? 0 : wait_us(relay, pr__relay_now(relay));
    }
    pr__relay_publish_snapshot(relay);
    return status;
}
