/*
 * One transport of a bus: its clones, and the senders of those who publish directly.
 *
 * Owns: the senders, clones with one message in flight each. As many are made as threads publish
 * at once, up to a bound; who comes later waits for one, no longer than its deadline.
 * Keeps: a transport is cloned by one thread at a time; a sender is one thread's at a time; one
 * that failed is closed, with whatever it still holds.
 * Must not know: messages.
 */
#include "base/error.h"
#include "base/thread.h"
#include "base/time.h"
#include "core/bus.h"

#define ORIGIN "bus"

pr_status pr__bus_transport_init(pr__bus_transport *at, pr_bus *bus, pr_transport *given,
                                 pr_error *err)
{
    pr_transport *sender = NULL; /* whether it can be cloned shows here, and not at the start */
    TRY(pr_transport_clone(given, &sender, err));
    *at = (pr__bus_transport){.given = given, .box = {.bus = bus}};
    at->idle[at->idle_count++] = sender;
    at->sender_count = 1;
    pthread_mutex_init(&at->mutex, NULL);
    pr__cond_init(&at->returned);
    return PR_OK;
}

void pr__bus_transport_done(pr__bus_transport *at)
{
    for (uint32_t i = 0; i < at->idle_count; i++)
        pr_transport_free(at->idle[i]);
    pthread_cond_destroy(&at->returned);
    pthread_mutex_destroy(&at->mutex);
}

pr_status pr__bus_transport_clone(pr__bus_transport *at, pr_transport **ret_clone, pr_error *err)
{
    pthread_mutex_lock(&at->mutex);
    pr_status status = pr_transport_clone(at->given, ret_clone, err);
    pthread_mutex_unlock(&at->mutex);
    return status;
}

static bool is_set(const atomic_bool *cancelled)
{
    return cancelled && atomic_load(cancelled);
}

/* Locked. */
static bool wait_returned(pr__bus_transport *at, int64_t until_us, const atomic_bool *cancelled)
{
    while (at->idle_count == 0 && at->sender_count == PR__BUS_SENDERS_MAX) {
        int64_t left_us = until_us - pr__monotonic_us();
        if (left_us <= 0 || is_set(cancelled))
            return false;
        pr__cond_wait_us(&at->returned, &at->mutex,
                         cancelled && left_us > PR__BUS_SLICE_US ? PR__BUS_SLICE_US : left_us);
    }
    return true;
}

pr_status pr__bus_transport_take(pr__bus_transport *at, int64_t until_us,
                                 const atomic_bool *cancelled, pr_transport **ret_sender,
                                 pr_error *err)
{
    pr_status status = PR_OK;
    pthread_mutex_lock(&at->mutex);
    bool returned = wait_returned(at, until_us, cancelled);
    if (is_set(cancelled)) {
        status = pr__fail(err, PR_E_CANCELLED, ORIGIN, "the bus was stopped before it was sent");
    } else if (!returned) {
        status = pr__fail_retry(err, PR_E_BUSY, PR_RETRY_SAME, ORIGIN,
                                "transport '%s' has %d messages in flight that were published "
                                "directly: publish it again, or use the outbox",
                                at->given->name, PR__BUS_SENDERS_MAX);
    } else if (at->idle_count > 0) {
        *ret_sender = at->idle[--at->idle_count]; /* the last one used: the others may be let go */
    } else {
        status = pr_transport_clone(at->given, ret_sender, err);
        at->sender_count += status == PR_OK ? 1 : 0;
    }
    pthread_mutex_unlock(&at->mutex);
    return status;
}

void pr__bus_transport_give(pr__bus_transport *at, pr_transport *take_sender, bool sound)
{
    if (!sound)
        pr_transport_free(take_sender); /* before its place is another's: the bound holds */
    pthread_mutex_lock(&at->mutex);
    if (sound)
        at->idle[at->idle_count++] = take_sender;
    else
        at->sender_count--;
    pthread_cond_signal(&at->returned);
    pthread_mutex_unlock(&at->mutex);
}
