/*
 * The relay: making and freeing, and what others call from outside.
 *
 * Keeps: nothing is sent before it is stepped or run; one of run, run-once and step at a time;
 * stop and wake touch atomics and the wake descriptor only, so that a signal handler may call them.
 * Must not know: stores and transports, but through their ports.
 */
#include <postroom/relay.h>

#include <errno.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/error.h"
#include "base/process.h"
#include "base/text.h"
#include "core/relay_engine.h"
#include "port/route.h"

#define ORIGIN        "relay"
#define DRAIN_POLLS   50 /* polls for outcomes that are owed when a relay is freed */
#define DRAIN_POLL_MS 10

static pr_status check_transports(pr_transport *const *transports, size_t count, pr_error *err)
{
    if (count == 0 || !transports)
        return pr__fail(err, PR_E_INVALID, ORIGIN, "a relay needs a transport at least");
    if (count > PR__WORK_TRANSPORTS_MAX)
        return pr__fail(err, PR_E_INVALID, ORIGIN, "%zu transports, at most %d", count,
                        PR__WORK_TRANSPORTS_MAX);
    for (size_t i = 0; i < count; i++) {
        if (!transports[i] || !transports[i]->ops)
            return pr__fail(err, PR_E_INVALID, ORIGIN, "transport %zu is NULL", i);
        TRY(pr__scheme_check(transports[i]->name, err));
        for (size_t j = 0; j < i; j++) {
            if (pr__text_equal(transports[i]->name, transports[j]->name))
                return pr__fail(err, PR_E_INVALID, ORIGIN, "two transports are named '%s'",
                                transports[i]->name);
        }
    }
    return PR_OK;
}

static void set_owner(pr_relay *relay)
{
    if (relay->opt.owner)
        pr__format(relay->owner, sizeof relay->owner, "%s", relay->opt.owner);
    else
        pr__process_name(relay->owner, sizeof relay->owner);
}

static void set_up(pr_relay *relay, pr_transport *const *transports, size_t count)
{
    set_owner(relay);
    relay->transport_count = (uint32_t)count;
    int64_t now_us = pr__relay_now(relay);
    for (size_t i = 0; i < count; i++) {
        relay->transports[i].port = transports[i];
        relay->transports[i].name = relay->names[i] = transports[i]->name;
        relay->transports[i].retry_at_us = now_us;
        pr__format(relay->transports[i].cause, sizeof relay->transports[i].cause, "not opened yet");
    }
    for (uint32_t lane = 0; lane < PR_LANES_MAX; lane++)
        relay->lane_wait_until_us[lane] = relay->lane_counted_at_us[lane] = INT64_MIN;
    pr__rate_init(&relay->rate, relay->opt.messages_per_second);
    relay->order_pending = relay->opt.order != PR_ORDER_DEFAULT;
    relay->log_at_us = relay->parked_at_us = relay->promote_at_us = now_us;
    relay->backlog_at_us = relay->maintain_at_us = relay->busy_until_us = now_us;
    relay->probe_at_us = INT64_MAX;
    relay->backoff_until_us = now_us;
    relay->stop_error = (pr_error)PR_ERROR_INIT;
    relay->now.size = (uint32_t)sizeof relay->now;
    pr__relay_publish_snapshot(relay);
}

pr_status pr_relay_new(pr_store *store, pr_transport *const *transports, size_t count,
                       const pr_relay_options *opt, pr_relay **ret_relay, pr_error *err)
{
    if (!store || !ret_relay)
        return pr__fail(err, PR_E_INVALID, ORIGIN, "store or ret_relay is NULL");
    pr_relay_options resolved;
    TRY(pr__relay_options_resolve(opt, &resolved, err));
    TRY(check_transports(transports, count, err));
    pr_relay *relay = pr__alloc(sizeof *relay);
    if (!relay)
        return pr__fail_nomem(err, ORIGIN);
    relay->store = store;
    relay->opt = resolved;
    relay->wake_fd = -1;
    pr__bell_init(&relay->bell, pr__bell_path(resolved.doorbell));
    if (pthread_mutex_init(&relay->lock, NULL) != 0) {
        pr__free(relay);
        return pr__fail_nomem(err, ORIGIN);
    }
    relay->breakers = pr__breakers_new(resolved.breaker_failures, resolved.breaker_open_ms,
                                       PR__RELAY_BACKOFF_MAX_MS);
    relay->outcomes = pr__alloc_array(PR__RELAY_OUTCOMES_MAX, sizeof *relay->outcomes);
    relay->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (!relay->breakers || !relay->outcomes || relay->wake_fd < 0) {
        bool no_descriptor = relay->wake_fd < 0;
        pr_relay_free(relay);
        return no_descriptor
                   ? pr__fail(err, PR_E_NOMEM, ORIGIN, "no descriptor for wake-ups is left")
                   : pr__fail_nomem(err, ORIGIN);
    }
    set_up(relay, transports, count);
    *ret_relay = relay;
    return PR_OK;
}

pr_status pr_relay_step(pr_relay *relay, int64_t *ret_wait_ms, pr_error *err)
{
    if (!relay || !ret_wait_ms)
        return pr__fail(err, PR_E_INVALID, ORIGIN, "relay or ret_wait_ms is NULL");
    if (atomic_exchange(&relay->running, true))
        return pr__fail(err, PR_E_STATE, ORIGIN, "it runs already; one runs");
    int64_t wait_us = 0;
    pr_status status = pr__relay_advance(relay, &wait_us, err);
    *ret_wait_ms = wait_us / 1000 + (wait_us % 1000 > 0);
    atomic_store(&relay->running, false);
    return status;
}

/* Async-signal-safe. */
static void ring(pr_relay *relay)
{
    int kept = errno;
    uint64_t one = 1;
    ssize_t written = write(relay->wake_fd, &one, sizeof one);
    (void)written; /* full: it rings already */
    errno = kept;
}

void pr_relay_stop(pr_relay *relay)
{
    if (!relay)
        return;
    atomic_store(&relay->stop_wanted, true);
    ring(relay);
}

void pr_relay_wake(pr_relay *relay)
{
    if (relay && !atomic_exchange(&relay->woken, true))
        ring(relay);
}

/* A transport may still read what it was given: wait for it within bounds. */
static void drain(pr_relay *relay)
{
    for (int i = 0; i < DRAIN_POLLS; i++) {
        pr_status status = PR_OK;
        for (uint32_t t = 0; t < relay->transport_count; t++)
            relay->transports[t].poll_at_us = INT64_MIN;
        if (!pr__relay_poll(relay, DRAIN_POLL_MS, &status, NULL))
            return; /* nothing flies */
    }
}

static void release(pr_relay *relay)
{
    drain(relay);
    for (uint32_t i = 0; i < PR__RELAY_WORKS; i++) {
        pr__work *work = &relay->works[i];
        if (work->phase == PR__WORK_SENDING) {
            pr__work_leave_unsent(work, PR__NO_SLICE);
            pr__relay_lose_flying(relay, work, "the relay was freed before its outcome came",
                                  INT64_MAX);
        }
        if (work->phase == PR__WORK_DECIDED && pr__relay_settle(relay, work, false, NULL) != PR_OK)
            continue; /* its lease brings it back */
    }
}

pr_relay *pr_relay_free(pr_relay *relay)
{
    if (!relay)
        return NULL;
    if (relay->transport_count > 0)
        release(relay);
    for (uint32_t i = 0; i < PR__RELAY_WORKS; i++) {
        if (relay->works[i].flying > 0)
            relay->works[i].batch =
                NULL; /* rather leaked than read by a transport after it is free */
        pr__work_done(&relay->works[i]);
    }
    pr__breakers_free(relay->breakers);
    pr__free(relay->outcomes);
    if (relay->wake_fd >= 0)
        close(relay->wake_fd);
    pthread_mutex_destroy(&relay->lock);
    pr__free(relay);
    return NULL;
}
