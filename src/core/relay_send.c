/*
 * Calls of the transports, and what each outcome means.
 *
 * Keeps: nothing is submitted beyond the window, the rate, the lease, an open breaker or a message
 * that is sent alone; every outcome is matched to its item by ticket, once.
 * Must not know: how the store keeps what is decided here.
 */
#include <string.h>

#include "base/error.h"
#include "base/fault.h"
#include "base/text.h"
#include "core/backoff.h"
#include "core/relay_engine.h"
#include "port/route.h"

#define TEXT_SIZE       600
#define SUBMIT_MAX      256 /* submissions a call */
#define OPEN_ONLY_MS    1000
#define OPEN_ONE_OF_MS  200     /* the others wait meanwhile */
#define OPEN_AGAIN_US   3000000 /* at least so often: it goes on within 5 s of the cure */
#define HOLD_US         5000
#define SUSPICION_SHOWN 3 /* lost once in company and twice alone */

static uint64_t ticket_of(const pr__work *work, uint32_t index)
{
    return (uint64_t)work->serial << 32 | index;
}

static bool another_up(const pr_relay *relay, const pr__relay_transport *transport)
{
    for (uint32_t i = 0; i < relay->transport_count; i++) {
        if (&relay->transports[i] != transport && relay->transports[i].up)
            return true;
    }
    return false;
}

static int64_t retry_wait_us(pr_relay *relay, uint32_t failures)
{
    const pr__backoff backoff = {.initial_ms = relay->opt.poll_idle_ms,
                                 .max_ms = relay->opt.round_backoff_max_ms,
                                 .jitter_percent = relay->opt.jitter_percent};
    int64_t wait_us = pr__backoff_ms(&backoff, failures, pr__relay_random(relay)) * 1000;
    return wait_us < OPEN_AGAIN_US ? wait_us : OPEN_AGAIN_US;
}

static void set_cause(pr__relay_transport *transport, const char *cause)
{
    pr__format(transport->cause, sizeof transport->cause, "%s", cause && *cause ? cause : "down");
}

/* It is opened again at once after the first failure, then after waits that double. */
static void transport_failed(pr_relay *relay, pr__relay_transport *transport, pr_status status,
                             const char *cause)
{
    bool was_up = transport->up;
    transport->up = transport->blocked = false;
    if (transport->failures < UINT32_MAX)
        transport->failures++;
    set_cause(transport, cause);
    transport->retry_at_us =
        pr__relay_now(relay) +
        (transport->failures > 1 ? retry_wait_us(relay, transport->failures - 1) : 0);
    if (was_up || transport->failures == 1)
        pr__relay_tell_subject(relay, PR_OBSERVE_TRANSPORT_STATE, transport->name, status,
                               transport->cause);
}

static void transport_up(pr_relay *relay, pr__relay_transport *transport)
{
    transport->up = true;
    transport->blocked = false;
    transport->cause[0] = '\0';
    transport->hold_until_us = transport->stalled_at_us = 0;
    pr__relay_tell_subject(relay, PR_OBSERVE_TRANSPORT_STATE, transport->name, PR_OK, "up");
}

static void look_at(pr_relay *relay, pr__relay_transport *transport, int64_t now_us)
{
    if (!transport->up && !transport->blocked)
        return; /* only open can tell */
    pr_transport_state state;
    pr_transport_state_get(transport->port, &state);
    switch (state.kind) {
    case PR_TRANSPORT_UP:
        if (!transport->up)
            transport_up(relay, transport);
        break;
    case PR_TRANSPORT_BLOCKED:
        if (transport->blocked)
            break;
        transport->up = false;
        transport->blocked = true;
        set_cause(transport, state.cause);
        transport->retry_at_us = now_us + relay->opt.poll_idle_ms * 1000;
        pr__relay_tell_subject(relay, PR_OBSERVE_TRANSPORT_STATE, transport->name, PR_E_BUSY,
                               transport->cause);
        break;
    case PR_TRANSPORT_DOWN:
        transport_failed(relay, transport, PR_E_BACKEND, state.cause);
        break;
    }
}

void pr__relay_look(pr_relay *relay, int64_t now_us)
{
    for (uint32_t i = 0; i < relay->transport_count; i++)
        look_at(relay, &relay->transports[i], now_us);
}

pr_status pr__relay_open(pr_relay *relay, pr__relay_transport *transport, pr_error *err)
{
    pr_error why = PR_ERROR_INIT;
    pr_status status = pr_transport_open(
        transport->port, relay->transport_count > 1 ? OPEN_ONE_OF_MS : OPEN_ONLY_MS, &why);
    if (status == PR_OK) {
        transport_up(relay, transport);
        return PR_OK;
    }
    int64_t now_us = pr__relay_now(relay);
    if (transport->blocked) { /* its state tells when it takes something again */
        transport->failures += transport->failures < UINT32_MAX;
        transport->retry_at_us = now_us + retry_wait_us(relay, transport->failures);
    } else {
        transport_failed(relay, transport, status, why.message);
        transport->retry_at_us = now_us + retry_wait_us(relay, transport->failures);
        if (!pr__relay_any_up(relay)) {
            pr__relay_round_failed(relay, PR__TURN_LOG, &why, now_us);
            if (relay->backoff_until_us > now_us + OPEN_AGAIN_US)
                relay->backoff_until_us = now_us + OPEN_AGAIN_US;
            transport->retry_at_us = relay->backoff_until_us; /* one attempt a step */
        }
    }
    pr__error_copy(err, &why);
    return status;
}

/* ---- what may be sent ---- */

typedef enum gate {
    GATE_SEND = 1,
    GATE_DECIDED,    /* it has its result now */
    GATE_OPEN_FIRST, /* the transport is to be opened before */
    GATE_COUNT_FIRST /* the parked rows of its lane are to be counted before */
} gate;

static gate put_off(pr_relay *relay, pr__work *work, uint32_t index, int64_t delay_ms,
                    const char *why, int64_t now_us)
{
    return pr__relay_put_off(relay, work, index, delay_ms, why, now_us) ? GATE_DECIDED
                                                                        : GATE_COUNT_FIRST;
}

static gate pass_transport(pr_relay *relay, pr__work *work, pr__relay_transport *transport,
                           uint32_t index, int64_t now_us)
{
    if (transport->up)
        return GATE_SEND;
    if (!transport->blocked && transport->retry_at_us <= now_us)
        return GATE_OPEN_FIRST;
    work->outage = true;
    if (!another_up(relay, transport)) {
        pr__work_decide(work, index, PR__RESULT_OPEN); /* its lane waits, nothing is parked */
        return GATE_DECIDED;
    }
    char why[TEXT_SIZE];
    pr__format(why, sizeof why, "transport '%s' is %s: %s", transport->name,
               transport->blocked ? "blocked" : "down", transport->cause);
    const pr__backoff backoff = {.initial_ms = relay->opt.breaker_open_ms,
                                 .max_ms = PR__RELAY_BACKOFF_MAX_MS,
                                 .jitter_percent = relay->opt.jitter_percent};
    uint32_t failures = transport->failures > 0 ? transport->failures : 1;
    return put_off(relay, work, index, pr__backoff_ms(&backoff, failures, pr__relay_random(relay)),
                   why, now_us);
}

static gate pass_breaker(pr_relay *relay, pr__work *work, uint32_t index, int64_t now_us)
{
    const char *to = pr__work_destination_of(work, index)->text;
    int64_t wait_us = 0;
    switch (pr__breakers_ask(relay->breakers, to, now_us, &wait_us)) {
    case PR__BREAKER_PASS:
        return GATE_SEND;
    case PR__BREAKER_PROBE:
        work->items[index].probe = true;
        pr__relay_tell_subject(relay, PR_OBSERVE_BREAKER, to, PR_OK, "half-open");
        return GATE_SEND;
    case PR__BREAKER_REFUSE:
        break;
    }
    char why[TEXT_SIZE + PR_DESTINATION_SIZE_MAX];
    pr__format(why, sizeof why, "destination '%s' answers nothing: its breaker is open", to);
    return put_off(relay, work, index, wait_us / 1000 + 1, why, now_us);
}

static gate pass(pr_relay *relay, pr__work *work, pr__relay_transport *transport, uint32_t index,
                 int64_t now_us)
{
    const pr__item *item = &work->batch->items[index];
    if (item->fenced || (work->batch->slices && work->batch->slices[item->slice].fenced)) {
        pr__work_decide(work, index, PR__RESULT_OPEN);
        return GATE_DECIDED;
    }
    if (pr__relay_expired(work, index, now_us)) {
        pr__batch_set_error(work->batch, &work->batch->items[index],
                            "expires_at had passed before it was sent");
        pr__work_decide(work, index, PR__RESULT_EXPIRED);
        return GATE_DECIDED;
    }
    gate verdict = pass_transport(relay, work, transport, index, now_us);
    return verdict == GATE_SEND ? pass_breaker(relay, work, index, now_us) : verdict;
}

/* Fill indexes from a queue up to max. On OPEN_FIRST and COUNT_FIRST the item that asks is at the
   front of its queue again, and *ret_asks is its index. */
static gate gather(pr_relay *relay, pr__work *work, pr__relay_transport *transport,
                   pr__work_queue *queue, uint32_t max, uint32_t *indexes, uint32_t *ret_count,
                   uint32_t *ret_asks, int64_t now_us)
{
    *ret_count = 0;
    while (*ret_count < max) {
        uint32_t index = pr__work_pop(work, queue);
        if (index == PR__WORK_NONE)
            break;
        gate verdict = pass(relay, work, transport, index, now_us);
        if (verdict == GATE_SEND) {
            indexes[(*ret_count)++] = index;
        } else if (verdict != GATE_DECIDED) {
            pr__work_push_front(work, queue, index);
            *ret_asks = index;
            return *ret_count > 0 ? GATE_SEND : verdict;
        }
    }
    return *ret_count > 0 ? GATE_SEND : GATE_DECIDED;
}

/* ---- submit ---- */

static void give_back(pr_relay *relay, pr__work *work, pr__work_queue *queue,
                      const uint32_t *indexes, uint32_t from, uint32_t count)
{
    for (uint32_t i = count; i > from; i--) {
        pr__work_item *item = &work->items[indexes[i - 1]];
        if (item->probe)
            pr__breakers_unprobe(relay->breakers,
                                 pr__work_destination_of(work, indexes[i - 1])->text);
        item->probe = false;
        pr__work_push_front(work, queue, indexes[i - 1]);
    }
}

static void took(pr_relay *relay, pr__work *work, pr__relay_transport *transport, bool alone,
                 const uint32_t *indexes, size_t accepted, int64_t began_us, int64_t now_us)
{
    for (size_t i = 0; i < accepted; i++) {
        pr__work_sent(work, indexes[i], now_us, relay->opt.publish_deadline_ms * 1000);
        work->items[indexes[i]].sent_mark = relay->served_mark;
        work->items[indexes[i]].alone = alone;
    }
    transport->in_flight += (uint32_t)accepted;
    transport->alone = alone && accepted > 0;
    if (accepted > 0) {
        pr__rate_sent(&relay->rate, began_us);
        transport->stalled_at_us = 0;
        return;
    }
    /* It takes nothing now. With something on its way, its outcomes make room; else wait. */
    if (transport->in_flight > 0)
        return;
    transport->hold_until_us = now_us + HOLD_US;
    if (transport->stalled_at_us == 0)
        transport->stalled_at_us = now_us;
    else if (now_us - transport->stalled_at_us > relay->opt.publish_deadline_ms * 1000)
        transport_failed(relay, transport, PR_E_BUSY,
                         "it takes no message although none is on "
                         "its way");
}

/* Which failures of submit are about a message, not about the connection. */
static bool about_message(pr_status status)
{
    return status == PR_E_INVALID || status == PR_E_LIMIT || status == PR_E_CONTENT ||
           status == PR_E_UNSUPPORTED || status == PR_E_NOT_FOUND || status == PR_E_CONFLICT;
}

static pr_status submit(pr_relay *relay, pr__work *work, pr__relay_transport *transport,
                        pr__work_queue *queue, bool alone, const uint32_t *indexes, uint32_t count,
                        pr_error *err)
{
    pr_submission submissions[SUBMIT_MAX];
    for (uint32_t i = 0; i < count; i++)
        submissions[i] = (pr_submission){.ticket = ticket_of(work, indexes[i]),
                                         .message = &work->batch->items[indexes[i]].message};
    int64_t began_us = pr__relay_now(relay);
    size_t accepted = 0;
    pr_error why = PR_ERROR_INIT;
    PR_FAULT("relay.before_submit");
    pr_status status = pr_transport_submit(transport->port, submissions, count, &accepted, &why);
    PR_FAULT("relay.after_submit");
    if (status == PR_OK) {
        if (accepted > count)
            accepted = count;
        give_back(relay, work, queue, indexes, (uint32_t)accepted, count);
        if (transport->single > 0 && accepted > 0)
            transport->single--;
        took(relay, work, transport, alone, indexes, accepted, began_us, pr__relay_now(relay));
        return PR_OK;
    }
    give_back(relay, work, queue, indexes, about_message(status) && count == 1 ? 1 : 0, count);
    if (!about_message(status)) {
        transport_failed(relay, transport, status, why.message);
    } else if (count > 1) {
        transport->single = count; /* find out which */
    } else {
        if (work->items[indexes[0]].probe)
            pr__breakers_unprobe(relay->breakers, pr__work_destination_of(work, indexes[0])->text);
        pr__relay_message_failed(relay, work, indexes[0], why.message);
    }
    pr__error_copy(err, &why);
    return status;
}

static uint32_t room(const pr_relay *relay, const pr__relay_transport *transport)
{
    uint32_t window = transport->port->window ? transport->port->window : SUBMIT_MAX;
    if (transport->alone || transport->in_flight >= window)
        return 0;
    uint32_t left = window - transport->in_flight;
    if (relay->rate.gap_us > 0 || transport->single > 0)
        return 1;
    return left < SUBMIT_MAX ? left : SUBMIT_MAX;
}

/* Suspects fly alone: only when nothing else of this transport is ready or on its way. */
static pr__work_queue *choose_queue(pr__work *work, uint32_t at, const pr__relay_transport *t,
                                    bool *ret_alone)
{
    *ret_alone = false;
    if (!pr__work_queue_empty(&work->ready[at]))
        return &work->ready[at];
    if (pr__work_queue_empty(&work->suspects[at]) || t->in_flight > 0)
        return NULL;
    *ret_alone = true;
    return &work->suspects[at];
}

/* Is there something that only a call can bring further? */
static bool send_to(pr_relay *relay, pr__work *work, uint32_t at, pr_status *ret_status,
                    pr_error *err)
{
    pr__relay_transport *transport = &relay->transports[at];
    for (;;) {
        int64_t now_us = pr__relay_now(relay);
        bool alone = false;
        pr__work_queue *queue = choose_queue(work, at, transport, &alone);
        uint32_t max = alone ? 1 : room(relay, transport);
        if (!queue || max == 0 || work->phase != PR__WORK_SENDING)
            return false;
        if (transport->up &&
            (now_us < transport->hold_until_us || pr__rate_wait_us(&relay->rate, now_us) > 0))
            return false;
        uint32_t indexes[SUBMIT_MAX], count = 0, asks = 0;
        switch (gather(relay, work, transport, queue, max, indexes, &count, &asks, now_us)) {
        case GATE_SEND:
            *ret_status = submit(relay, work, transport, queue, alone, indexes, count, err);
            return true;
        case GATE_OPEN_FIRST:
            *ret_status = pr__relay_open(relay, transport, err);
            return true;
        case GATE_COUNT_FIRST:
            *ret_status = pr__relay_count_lane(relay, work->batch->items[asks].lane, err);
            return true;
        case GATE_DECIDED:
            pr__relay_sort_out(relay, work);
            break; /* look again: decisions may have made others ready */
        }
    }
}

bool pr__relay_send(pr_relay *relay, pr__work *work, pr_status *ret_status, pr_error *err)
{
    pr__relay_sort_out(relay, work);
    for (uint32_t i = 0; i < relay->transport_count && work->phase == PR__WORK_SENDING; i++) {
        if (send_to(relay, work, i, ret_status, err))
            return true;
    }
    return false;
}

/* ---- outcomes ---- */

static void remember_served(pr_relay *relay, uint64_t hash)
{
    relay->served_mark++;
    if (relay->served[0].hash != hash)
        relay->served[1] = relay->served[0];
    relay->served[0] = (pr__relay_served){.hash = hash, .mark = relay->served_mark};
}

static bool others_served_since(const pr_relay *relay, uint64_t hash, uint64_t mark)
{
    return relay->served[relay->served[0].hash == hash ? 1 : 0].mark > mark;
}

static void destination_answered(pr_relay *relay, const pr__work *work, uint32_t index)
{
    const char *to = pr__work_destination_of(work, index)->text;
    if (pr__breakers_answered(relay->breakers, to))
        pr__relay_tell_subject(relay, PR_OBSERVE_BREAKER, to, PR_OK, "closed");
}

static void published(pr_relay *relay, pr__work *work, pr__relay_transport *transport,
                      uint32_t index)
{
    transport->failures = 0;
    transport->served = true;
    remember_served(relay, pr__work_destination_of(work, index)->hash);
    destination_answered(relay, work, index);
    pr__work_decide(work, index, PR__RESULT_PUBLISHED);
}

static void destination_lost(pr_relay *relay, const pr__work *work, uint32_t index)
{
    const pr__work_destination *to = pr__work_destination_of(work, index);
    bool others = others_served_since(relay, to->hash, work->items[index].sent_mark);
    if (pr__breakers_lost(relay->breakers, to->text, others, pr__relay_now(relay)))
        pr__relay_tell_subject(relay, PR_OBSERVE_BREAKER, to->text, PR_E_BACKEND, "open");
}

/* A suspect that was lost alone for the second time, while the transport serves others, is at
   fault itself. Whether a loss is the destination's is only said when the transport stayed up. */
static void lost(pr_relay *relay, pr__work *work, pr__relay_transport *transport, uint32_t index,
                 bool suspect, const char *reason)
{
    pr__item *item = &work->batch->items[index];
    bool alone = work->items[index].alone;
    bool served = transport->served;
    work->outage = true;
    if (suspect) {
        if (item->suspicion < UINT32_MAX)
            item->suspicion++;
        if (alone)
            transport->served = false;
    } else if (transport->up) {
        destination_lost(relay, work, index);
    }
    if (work->items[index].probe)
        pr__breakers_unprobe(relay->breakers, pr__work_destination_of(work, index)->text);
    if (suspect && alone && served && item->suspicion >= SUSPICION_SHOWN) {
        char text[TEXT_SIZE];
        pr__format(text, sizeof text,
                   "lost %u times, twice alone, while the transport serves others: %s",
                   item->suspicion, reason);
        pr__relay_killer_add(relay, item->log_id);
        pr__relay_message_failed(relay, work, index, text);
        return;
    }
    pr__batch_set_error(work->batch, item, *reason ? reason : "lost: its outcome is not known");
    item->retry_delay_ms = relay->opt.breaker_open_ms;
    pr__work_decide(work, index, PR__RESULT_LOST);
}

static void apply(pr_relay *relay, pr__work *work, pr__relay_transport *transport, uint32_t index,
                  const pr_submitted *outcome)
{
    const pr_message *message = &work->batch->items[index].message;
    char text[TEXT_SIZE];
    switch (outcome->outcome) {
    case PR_SUBMIT_CONFIRMED:
        published(relay, work, transport, index);
        return;
    case PR_SUBMIT_RETURNED:
        if (pr__route_unrouted_ok(message)) {
            published(relay, work, transport, index);
            return;
        }
        destination_answered(relay, work, index);
        pr__format(text, sizeof text, "returned, nobody would get it: %s", outcome->reason);
        pr__relay_message_failed(relay, work, index, text);
        return;
    case PR_SUBMIT_REFUSED:
        destination_answered(relay, work, index);
        pr__format(text, sizeof text, "refused: %s", outcome->reason);
        pr__relay_message_failed(relay, work, index, text);
        return;
    case PR_SUBMIT_TOO_LARGE:
        destination_answered(relay, work, index);
        pr__format(text, sizeof text, "too large for the transport: %s", outcome->reason);
        pr__relay_message_dead(work, index, text);
        return;
    case PR_SUBMIT_LOST:
        break;
    }
    lost(relay, work, transport, index, outcome->suspect, outcome->reason);
}

static void land(pr_relay *relay, pr__relay_transport *transport, const pr_submitted *outcome)
{
    uint32_t serial = (uint32_t)(outcome->ticket >> 32), index = (uint32_t)outcome->ticket;
    for (uint32_t i = 0; i < PR__RELAY_WORKS; i++) {
        pr__work *work = &relay->works[i];
        if (work->phase == PR__WORK_FREE || work->serial != serial ||
            index >= work->batch->item_count || !work->items || !work->items[index].flying)
            continue;
        work->items[index].flying = false;
        work->flying--;
        if (transport->in_flight > 0)
            transport->in_flight--;
        if (work->items[index].alone)
            transport->alone = false;
        if (!work->items[index].decided)
            apply(relay, work, transport, index, outcome);
        else if (work->phase != PR__WORK_DRAINING && outcome->outcome == PR_SUBMIT_CONFIRMED &&
                 work->batch->items[index].result == PR__RESULT_LOST)
            work->batch->items[index].result = PR__RESULT_PUBLISHED; /* late, but in time */
        if (work->phase == PR__WORK_DRAINING && work->flying == 0)
            pr__work_clear(work);
        return;
    }
}

static pr_status poll_one(pr_relay *relay, pr__relay_transport *transport, int64_t timeout_ms,
                          pr_error *err)
{
    size_t count = 0;
    pr_error why = PR_ERROR_INIT;
    pr_status status = pr_transport_poll(transport->port, timeout_ms, relay->outcomes,
                                         PR__RELAY_OUTCOMES_MAX, &count, &why);
    int64_t now_us = pr__relay_now(relay);
    if (status != PR_OK) {
        transport_failed(relay, transport, status, why.message);
        transport->poll_at_us = now_us + retry_wait_us(relay, transport->failures);
        pr__error_copy(err, &why);
        return status;
    }
    look_at(relay, transport, now_us);
    bool confirmed = false;
    for (size_t i = 0; i < count; i++) {
        confirmed |= relay->outcomes[i].outcome == PR_SUBMIT_CONFIRMED;
        land(relay, transport, &relay->outcomes[i]);
    }
    if (confirmed)
        PR_FAULT("relay.after_confirm");
    return PR_OK;
}

bool pr__relay_poll(pr_relay *relay, int64_t timeout_ms, pr_status *ret_status, pr_error *err)
{
    int64_t now_us = pr__relay_now(relay);
    for (uint32_t i = 0; i < relay->transport_count; i++) {
        uint32_t at = (relay->poll_turn + i) % relay->transport_count;
        pr__relay_transport *transport = &relay->transports[at];
        if (transport->in_flight == 0 || now_us < transport->poll_at_us)
            continue;
        relay->poll_turn = at + 1;
        *ret_status = poll_one(relay, transport, timeout_ms, err);
        return true;
    }
    return false;
}

/* ---- time ---- */

void pr__relay_lose_flying(pr_relay *relay, pr__work *work, const char *why, int64_t overdue_us)
{
    int64_t next_us = INT64_MAX, deadline_us = relay->opt.publish_deadline_ms * 1000;
    for (uint32_t i = 0; i < work->batch->item_count && work->phase == PR__WORK_SENDING; i++) {
        pr__work_item *item = &work->items[i];
        if (!item->flying || item->decided)
            continue;
        if (item->sent_at_us + deadline_us > overdue_us) {
            if (item->sent_at_us + deadline_us < next_us)
                next_us = item->sent_at_us + deadline_us;
            continue;
        }
        uint32_t at = pr__work_destination_of(work, i)->transport;
        lost(relay, work, &relay->transports[at], i, /* suspect= */ false, why);
    }
    work->deadline_at_us = next_us;
}

void pr__relay_check_times(pr_relay *relay, pr__work *work, int64_t now_us)
{
    if (work->phase != PR__WORK_SENDING)
        return;
    if (now_us >= work->lease_from_us + work->batch->lease_ms * 1000)
        pr__work_leave_unsent(work, PR__NO_SLICE);
    if (now_us >= work->deadline_at_us)
        pr__relay_lose_flying(relay, work, "no outcome within the publish deadline", now_us);
}
