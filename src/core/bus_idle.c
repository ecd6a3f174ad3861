/*
 * Waiting until a bus has nothing left to do.
 *
 * Keeps: a message is never missed on its way. It stands in the outbox, then at an endpoint's
 * queue, then parked for that endpoint, and leaves each place only when it stands in the next; only
 * a handler puts it back at the beginning, and that is counted. So places are looked at in this
 * order, and a look counts only if no handler ended meanwhile.
 * Must not know: how the parts do their work.
 */
#include <string.h>

#include "base/error.h"
#include "base/fault.h"
#include "base/text.h"
#include "base/time.h"
#include "core/bus.h"
#include "core/endpoint.h"

#define ORIGIN         "bus"
#define LOOK_FIRST_US  1000 /* between two looks, doubled */
#define LOOK_MOST_US   50000
#define COUNT_MS       2000 /* for one count of the outbox */
#define OPEN_MS        1000 /* connecting to ask a queue */
#define PROMOTE_MAX    500
#define WHAT_SIZE      512
#define TIMEOUT_MS_MAX (365LL * 24 * 3600 * 1000)

DEFINE_AUTO(pr_store, pr_store_free);

/* What one look found. */
typedef struct look {
    pr_bus *bus;
    pr_store *store;
    char what[WHAT_SIZE]; /* what is open, for people; "" = nothing */
} look;

static void add(look *l, const char *where, const char *what, uint64_t count)
{
    size_t at = strlen(l->what);
    if (count == 0)
        return;
    pr__format(l->what + at, sizeof l->what - at, "%s%s: %llu %s", at > 0 ? "; " : "", where,
               (unsigned long long)count, what);
}

/* How often anything ended at any endpoint: whoever counts twice sees whether one did between. */
static uint64_t ends(pr_bus *bus)
{
    uint64_t count = 0;
    for (uint32_t i = 0; i < bus->endpoint_count; i++) {
        pr_endpoint *endpoint = bus->endpoints[i].endpoint;
        pthread_mutex_lock(&endpoint->mutex);
        const pr_endpoint_snapshot *s = &endpoint->snapshot;
        count += s->handled + s->duplicate + s->failed + s->dead + s->held + s->conflict +
                 s->deferred + s->requeued + s->fenced;
        pthread_mutex_unlock(&endpoint->mutex);
    }
    return count;
}

/* What was delayed and is due goes into the log, as the relay would do it soon; then the log, then
   what is parked: the way that they go. */
static pr_status look_at_outbox(look *l, pr_error *err)
{
    int64_t delayed_ms = -1, parked_ms = -1;
    uint32_t promoted = 0;
    pr__backlog backlog = {0};
    if (l->bus->opt.relay_off)
        return PR_OK;
    TRY(pr__store_promote(l->store, PROMOTE_MAX, &promoted, &delayed_ms, err));
    TRY(pr__store_backlog(l->store, PR_READER_RELAY, COUNT_MS, &backlog, err));
    TRY(pr__store_parked_due(l->store, PR_READER_RELAY, &parked_ms, err));
    add(l, "the outbox", "pending", backlog.pending);
    add(l, "the outbox", "or more to try again", parked_ms >= 0);
    return PR_OK;
}

/* A sender asks: it is ours until it is given back. */
static pr_status ask_queue(pr__bus_transport *at, const pr_subscribe_options *options,
                           uint64_t *ret_count, pr_error *err)
{
    pr_transport *sender = NULL;
    TRY(pr__bus_transport_take(at, pr__monotonic_us() + OPEN_MS * 1000, NULL, &sender, err));
    pr_status status = pr_transport_open(sender, OPEN_MS, err);
    if (status == PR_OK)
        status = pr_transport_backlog(sender, options, ret_count, err);
    pr__bus_transport_give(at, sender, status != PR_E_BACKEND);
    return status;
}

static pr_status look_at_queue(look *l, const pr__bus_endpoint *at, pr_error *err)
{
    const pr_endpoint_options *opt = &at->endpoint->opt;
    const pr_subscribe_options options = {.size = (uint32_t)sizeof options,
                                          .endpoint = opt->id,
                                          .types = opt->types,
                                          .type_count = opt->type_count};
    pr__bus_transport *on = pr__bus_transport_named(l->bus, at->transport->name);
    uint64_t count = 0;
    pr_status status = ask_queue(on, &options, &count, err);
    if (status != PR_OK)
        pr__error_context(err, "endpoint '%s'", opt->id);
    else
        add(l, opt->id, "not handled", count);
    return status;
}

static pr_status look_at_parked(look *l, const pr__bus_endpoint *at, pr_error *err)
{
    const pr_endpoint_options *opt = &at->endpoint->opt;
    int64_t due_ms = -1;
    TRY(pr__store_inbox_due(l->store, opt->id, opt->order, &due_ms, err));
    add(l, opt->id, "or more to try again", due_ms >= 0);
    return PR_OK;
}

static void look_at_hand(look *l, const pr__bus_endpoint *at)
{
    pr_endpoint *endpoint = at->endpoint;
    pthread_mutex_lock(&endpoint->hand_mutex);
    uint64_t count = endpoint->work_count + (endpoint->retry ? 1 : 0);
    pthread_mutex_unlock(&endpoint->hand_mutex);
    add(l, endpoint->opt.id, "in hand", count);
}

static void look_at_requests(look *l)
{
    uint64_t count = 0;
    pthread_mutex_lock(&l->bus->request_mutex);
    for (const pr__request *at = l->bus->waiting; at; at = at->next)
        count++;
    pthread_mutex_unlock(&l->bus->request_mutex);
    add(l, "requests", "without an answer", count);
}

static pr_status look_around(look *l, pr_error *err)
{
    pr_bus *bus = l->bus;
    uint64_t before = ends(bus);
    l->what[0] = '\0';
    TRY(look_at_outbox(l, err));
    PR_FAULT("bus.after_look_at_outbox");
    for (uint32_t i = 0; i < bus->endpoint_count; i++)
        TRY(look_at_queue(l, &bus->endpoints[i], err));
    for (uint32_t i = 0; i < bus->endpoint_count; i++)
        TRY(look_at_parked(l, &bus->endpoints[i], err));
    for (uint32_t i = 0; i < bus->endpoint_count; i++)
        look_at_hand(l, &bus->endpoints[i]);
    look_at_requests(l);
    if (l->what[0] == '\0' && ends(bus) != before)
        pr__format(l->what, sizeof l->what, "a handler ended just now");
    return PR_OK;
}

/* A database that is busy is asked again: whoever keeps it busy has work to do. */
static pr_status look_or_busy(look *l, pr_error *err)
{
    pr_error local = PR_ERROR_INIT;
    pr_status status = look_around(l, &local);
    if (status == PR_E_BUSY || (status == PR_E_BACKEND && local.retry == PR_RETRY_SAME)) {
        pr__format(l->what, sizeof l->what, "%s", local.message);
        return PR_OK;
    }
    pr__error_copy(err, &local);
    return status;
}

static pr_status wait_idle(look *l, int64_t timeout_ms, pr_error *err)
{
    int64_t until_us = pr__monotonic_us() + timeout_ms * 1000;
    for (int64_t wait_us = LOOK_FIRST_US;; wait_us *= 2) {
        int64_t began_us = pr__monotonic_us();
        TRY(look_or_busy(l, err));
        if (!atomic_load(&l->bus->started))
            return pr__fail(err, PR_E_CANCELLED, ORIGIN,
                            "the bus was stopped while it was waited "
                            "for");
        if (l->what[0] == '\0')
            return PR_OK;
        if (began_us >= until_us)
            return pr__fail_retry(err, PR_E_BUSY, PR_RETRY_SAME, ORIGIN,
                                  "not idle within %lld ms: %s", (long long)timeout_ms, l->what);
        wait_us = wait_us < LOOK_MOST_US ? wait_us : LOOK_MOST_US;
        int64_t left_us = until_us - pr__monotonic_us();
        if (left_us > 0)
            pr__sleep_us(wait_us < left_us ? wait_us : left_us);
    }
}

pr_status pr_bus_wait_idle(pr_bus *bus, int64_t timeout_ms, pr_error *err)
{
    if (!bus)
        return pr__fail(err, PR_E_INVALID, ORIGIN, "the bus is NULL");
    if (timeout_ms < 0 || timeout_ms > TIMEOUT_MS_MAX)
        return pr__fail(err, PR_E_INVALID, ORIGIN, "timeout_ms is %lld, must be 0 to %lld",
                        (long long)timeout_ms, TIMEOUT_MS_MAX);
    if (!atomic_load(&bus->started))
        return pr__fail(err, PR_E_STATE, ORIGIN, "the bus is not started: nothing would be done");
    AUTO(pr_store) store = NULL;
    TRY(pr_store_clone(bus->opt.store, &store, err));
    look l = {.bus = bus, .store = store};
    return wait_idle(&l, timeout_ms, err);
}
