/*
 * The loop that steps and sleeps, and run-once.
 *
 * Keeps: the loop ends by stop alone; it sleeps only when a step has nothing to do, and anybody's
 * wake ends the sleep.
 * Must not know: what a step does.
 */
#include <poll.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/error.h"
#include "core/relay_engine.h"

#define ORIGIN "relay"

/* A signal ends it early; the next step finds out that there is nothing to do. */
static void sleep_us(pr_relay *relay, int64_t wait_us)
{
    struct pollfd bells[] = {{.fd = relay->wake_fd, .events = POLLIN},
                             {.fd = relay->bell.fd, .events = POLLIN}};
    struct timespec left = {.tv_sec = (time_t)(wait_us / 1000000),
                            .tv_nsec = (long)(wait_us % 1000000) * 1000};
    if (ppoll(bells, 2, &left, NULL) <= 0)
        return;
    uint64_t rings = 0;
    ssize_t size = read(relay->wake_fd, &rings, sizeof rings);
    (void)size;
    if (pr__bell_take(&relay->bell))
        atomic_store(&relay->woken, true);
}

static pr_status begin(pr_relay *relay, pr_error *err)
{
    if (!relay)
        return pr__fail(err, PR_E_INVALID, ORIGIN, "relay is NULL");
    if (atomic_exchange(&relay->running, true))
        return pr__fail(err, PR_E_STATE, ORIGIN, "it runs already; one runs");
    return PR_OK;
}

static void end(pr_relay *relay)
{
    relay->now.running = false;
    pr__relay_publish_snapshot(relay);
    atomic_store(&relay->running, false);
}

pr_status pr_relay_run(pr_relay *relay, pr_error *err)
{
    TRY(begin(relay, err));
    while (!relay->stopped) {
        int64_t wait_us = 0;
        pr__bell_tend(&relay->bell, pr__relay_now(relay));
        pr_status status = pr__relay_advance(relay, &wait_us, NULL);
        (void)status; /* counted, backed off and told to the observer */
        if (wait_us > 0)
            sleep_us(relay, wait_us);
    }
    pr__bell_done(&relay->bell);
    end(relay);
    pr__error_copy(err, &relay->stop_error);
    return relay->stop_error.status;
}

/* ---- run-once ---- */

static pr_status once_count(pr_relay *relay)
{
    int64_t due_us = relay->backlog_at_us;
    pr_status status = pr__relay_turn_run(relay, PR__TURN_BACKLOG, NULL);
    relay->backlog_at_us = due_us;
    relay->once_limit = relay->now.backlog_known ? relay->now.backlog : UINT64_MAX;
    relay->once = PR__ONCE_PARKED;
    return status;
}

static pr_status once_promote(pr_relay *relay, pr_error *err)
{
    uint32_t count = 0;
    pr_status status = pr__relay_promote(relay, &count, err);
    if (status != PR_OK || count < relay->opt.batch_max)
        relay->once = PR__ONCE_COUNT;
    return status;
}

static bool in_hand(const pr_relay *relay)
{
    for (uint32_t i = 0; i < PR__RELAY_WORKS; i++) {
        if (relay->works[i].phase == PR__WORK_SENDING || relay->works[i].phase == PR__WORK_DECIDED)
            return true;
    }
    return false;
}

/* Parked rows first: what they free goes on behind them. */
static pr_status once_parked(pr_relay *relay, bool *ret_called, pr_error *err)
{
    if (in_hand(relay)) { /* what it publishes may free more of its key */
        *ret_called = false;
        return PR_OK;
    }
    relay->ask_due = false;
    if (!pr__relay_any_up(relay) || relay->parked_at_us > pr__relay_now(relay)) {
        relay->once = PR__ONCE_LOG;
        *ret_called = false;
        return PR_OK;
    }
    pr_status status = pr__relay_turn_run(relay, PR__TURN_PARKED, err);
    if (status != PR_OK || relay->ask_due)
        relay->once = PR__ONCE_LOG;
    return status;
}

static pr_status once_log(pr_relay *relay, bool *ret_called, pr_error *err)
{
    bool rests = relay->log_at_us > pr__relay_now(relay);
    if (!pr__relay_any_up(relay) || relay->once_claimed >= relay->once_limit ||
        (rests && !in_hand(relay)))
        relay->once = PR__ONCE_DONE;
    if (rests || relay->once == PR__ONCE_DONE) {
        *ret_called = false; /* an overlapping claim may find all lanes held by this very relay */
        return PR_OK;
    }
    return pr__relay_turn_run(relay, PR__TURN_LOG, err);
}

pr_status pr__relay_once_turn(pr_relay *relay, bool *ret_called, pr_error *err)
{
    *ret_called = true;
    switch (relay->once) {
    case PR__ONCE_PROMOTE:
        return once_promote(relay, err);
    case PR__ONCE_COUNT:
        return once_count(relay);
    case PR__ONCE_PARKED:
        return once_parked(relay, ret_called, err);
    case PR__ONCE_LOG:
        return once_log(relay, ret_called, err);
    case PR__ONCE_OFF:
    case PR__ONCE_DONE:
        break;
    }
    *ret_called = false;
    return PR_OK;
}

static void once_begin(pr_relay *relay)
{
    int64_t now_us = pr__relay_now(relay);
    relay->once = PR__ONCE_PROMOTE;
    relay->once_claimed = 0;
    memset(relay->once_lane_done, 0, sizeof relay->once_lane_done);
    relay->parked_at_us = relay->log_at_us = relay->backoff_until_us = now_us;
    for (uint32_t i = 0; i < relay->transport_count; i++) {
        if (relay->transports[i].up)
            continue;
        relay->transports[i].retry_at_us = now_us;
        relay->transports[i].failures = 0;
    }
}

pr_status pr_relay_run_once(pr_relay *relay, uint64_t *ret_published, pr_error *err)
{
    if (!ret_published)
        return pr__fail(err, PR_E_INVALID, ORIGIN, "ret_published is NULL");
    TRY(begin(relay, err));
    uint64_t before = relay->now.published;
    pr_error first = PR_ERROR_INIT;
    once_begin(relay);
    while (!relay->stopped && (relay->once != PR__ONCE_DONE || in_hand(relay))) {
        int64_t wait_us = 0;
        pr_error why = PR_ERROR_INIT;
        if (pr__relay_advance(relay, &wait_us, &why) != PR_OK && !relay->stopped)
            pr__error_copy(&first, &why);
        if (relay->backoff_until_us > pr__relay_now(relay))
            relay->once = PR__ONCE_DONE; /* one attempt: no second round after a failed one */
        if (wait_us > 0)
            sleep_us(relay, wait_us);
    }
    relay->once = PR__ONCE_OFF;
    relay->log_at_us = relay->parked_at_us = pr__relay_now(relay);
    *ret_published = relay->now.published - before;
    end(relay);
    pr__error_copy(err, &first);
    return first.status;
}
