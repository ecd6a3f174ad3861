/*
 * What becomes of a message that is not published: charged or not, parked or left.
 *
 * Keeps: a transport failure charges nothing, and when no other transport or destination is served
 * it parks nothing either; what is deferred stays below the cap of its lane, beyond which the lane
 * waits and says so.
 * Must not know: how a transport is called.
 */
#include <string.h>

#include "base/error.h"
#include "base/text.h"
#include "core/backoff.h"
#include "core/relay_engine.h"

#define TEXT_SIZE      600
#define COUNT_FRESH_US 1000000 /* a count of parked rows is believed that long */
#define LANE_WAIT_MS   1000    /* a lane beyond its cap is looked at again after that */

void pr__relay_message_failed(pr_relay *relay, pr__work *work, uint32_t index, const char *text)
{
    pr__item *item = &work->batch->items[index];
    uint32_t attempts = item->attempts < UINT32_MAX ? item->attempts + 1 : UINT32_MAX;
    pr__batch_set_error(work->batch, item, text);
    if (pr__backoff_exhausted(attempts, relay->opt.retry_max)) {
        pr__work_decide(work, index, PR__RESULT_DEAD);
        return;
    }
    const pr__backoff backoff = {.initial_ms = relay->opt.backoff_initial_ms,
                                 .max_ms = relay->opt.backoff_max_ms,
                                 .jitter_percent = relay->opt.jitter_percent};
    item->retry_delay_ms = pr__backoff_ms(&backoff, attempts, pr__relay_random(relay));
    pr__work_decide(work, index, PR__RESULT_FAILED);
}

void pr__relay_message_dead(pr__work *work, uint32_t index, const char *text)
{
    pr__batch_set_error(work->batch, &work->batch->items[index], text);
    pr__work_decide(work, index, PR__RESULT_DEAD);
}

bool pr__relay_expired(const pr__work *work, uint32_t index, int64_t now_us)
{
    int64_t expires_at_us = work->batch->items[index].message.expires_at_us;
    return expires_at_us != 0 &&
           expires_at_us <= work->batch->claimed_at_us + (now_us - work->claimed_at_us);
}

/* The scheme for an error text: what stands before "://". */
static int scheme_size(const char *destination)
{
    const char *end = strstr(destination, "://");
    return end ? (int)(end - destination) : 0;
}

static void sort_out_one(pr_relay *relay, pr__work *work, uint32_t index)
{
    const pr__item *item = &work->batch->items[index];
    const pr__work_destination *to = pr__work_destination_of(work, index);
    char text[TEXT_SIZE];
    if (item->blocked) {
        pr__work_decide(work, index, PR__RESULT_OPEN); /* closing the batch holds it */
    } else if (item->unreadable) {
        pr__relay_message_dead(work, index, item->unreadable);
    } else if (item->poison) {
        pr__relay_message_failed(relay, work, index,
                                 "three holders in a row ended while they had this message alone");
    } else if (to->malformed) {
        pr__format(text, sizeof text, "destination '%s' is no address", to->text);
        pr__relay_message_dead(work, index, text);
    } else {
        pr__format(text, sizeof text,
                   "no transport is named '%.*s': give the relay one, or mend the destination",
                   scheme_size(to->text), to->text);
        pr__relay_message_failed(relay, work, index, text);
    }
}

void pr__relay_sort_out(pr_relay *relay, pr__work *work)
{
    if (work->phase != PR__WORK_SENDING)
        return;
    for (;;) {
        uint32_t index = pr__work_pop(work, &work->ready[PR__WORK_NOWHERE]);
        if (index == PR__WORK_NONE)
            return;
        sort_out_one(relay, work, index);
    }
}

static void lane_waits(pr_relay *relay, uint32_t lane, const char *why, int64_t now_us)
{
    relay->lane_wait_until_us[lane] = now_us + LANE_WAIT_MS * 1000;
    relay->lane_waits_until_us = now_us + 2 * LANE_WAIT_MS * 1000;
    char text[sizeof relay->lane_waits];
    pr__format(text, sizeof text, "lane %u waits: %u of its messages are parked already: %s", lane,
               relay->lane_parked[lane], why);
    if (!relay->lane_waits[0])
        pr__relay_tell_subject(relay, PR_OBSERVE_BREAKER, "lane", PR_E_LIMIT, text);
    memcpy(relay->lane_waits, text, sizeof text);
}

static void defer(pr__work *work, uint32_t index, int64_t delay_ms, const char *why)
{
    pr__item *item = &work->batch->items[index];
    item->retry_delay_ms = delay_ms;
    pr__batch_set_error(work->batch, item, why);
    pr__work_decide(work, index, PR__RESULT_DEFERRED);
}

bool pr__relay_put_off(pr_relay *relay, pr__work *work, uint32_t index, int64_t delay_ms,
                       const char *why, int64_t now_us)
{
    uint32_t lane = work->batch->items[index].lane;
    if (!work->batch->slices || lane >= PR_LANES_MAX) {
        defer(work, index, delay_ms, why); /* it is parked already */
        return true;
    }
    bool cap = relay->lane_parked[lane] >= relay->opt.parked_cap_per_lane;
    bool waits = relay->lane_wait_until_us[lane] > now_us;
    if (!waits && now_us >= relay->backoff_until_us &&
        (relay->lane_counted_at_us[lane] == INT64_MIN ||
         now_us - relay->lane_counted_at_us[lane] > COUNT_FRESH_US))
        return false;
    if (waits || cap || relay->lane_counted_at_us[lane] == INT64_MIN) {
        if (!waits)
            lane_waits(relay, lane, why, now_us);
        work->waiting++;
        pr__work_decide(work, index, PR__RESULT_OPEN);
        return true;
    }
    relay->lane_parked[lane]++;
    defer(work, index, delay_ms, why);
    return true;
}

pr_status pr__relay_count_lane(pr_relay *relay, uint32_t lane, pr_error *err)
{
    uint32_t count = 0;
    pr_error why = PR_ERROR_INIT;
    pr_status status = pr__store_parked_count(relay->store, PR_READER_RELAY, lane, &count, &why);
    int64_t now_us = pr__relay_now(relay);
    if (status != PR_OK) {
        relay->lane_counted_at_us[lane] = INT64_MIN;
        pr__relay_round_failed(relay, PR__TURN_LOG, &why, now_us);
        pr__error_copy(err, &why);
        return status;
    }
    relay->lane_parked[lane] = count;
    relay->lane_counted_at_us[lane] = now_us;
    return PR_OK;
}

bool pr__relay_killer(const pr_relay *relay, int64_t log_id)
{
    for (uint32_t i = 0; i < PR__RELAY_KILLERS_MAX; i++) {
        if (relay->killers[i] == log_id)
            return true;
    }
    return false;
}

void pr__relay_killer_add(pr_relay *relay, int64_t log_id)
{
    if (pr__relay_killer(relay, log_id))
        return;
    relay->killers[relay->killer_next] = log_id;
    relay->killer_next = (relay->killer_next + 1) % PR__RELAY_KILLERS_MAX;
}
