/*
 * Subscriptions of the database transport: a reader of the log with claims of its own.
 *
 * Owns: the handle, the claims in hand, and when to look for more.
 * Keeps: a verdict is committed with all others of its batch, and the next claim comes in the same
 * commit; what was not settled goes back when it closes, or is taken over when its lease has run
 * out. An idle subscription reads and writes nothing. All leases are the database's; the clock here
 * only says when to renew.
 * Must not know: inboxes, handlers, retries; they are the endpoint's.
 */
#include "transport/database/subscription.h"

#include <string.h>

#include "base/error.h"
#include "base/fault.h"
#include "base/memory.h"
#include "base/time.h"
#include "port/observe.h"
#include "transport/database/holding.h"
#include "transport/database/reader.h"

#define ORIGIN          "database.subscription"
#define PREFETCH_MAX    65535
#define HOLDINGS_MAX    8 /* so that a slow message keeps its own lanes waiting, not all */
#define LANES_PER_CLAIM 4
#define CLAIM_BYTES_MAX (4u * 1024 * 1024)
#define PROMOTE_MAX     500
#define BUSY_FOR_US     1000000 /* keep claiming at the busy pace so long after a change */
#define PROBE_US        500000  /* a claim at least this often */
#define PARKED_WAIT_US  50000   /* due, but leased or blocked: look again */
#define CLOSE_US        10000000
#define BACKLOG_MS      2000
#define BUSY_US         (PR_POLL_BUSY_MS_DEFAULT * 1000)
#define IDLE_US         (PR_POLL_IDLE_MS_DEFAULT * 1000)

typedef struct database_subscription {
    pr_subscription base;
    pr_store *store;
    int64_t reader;
    bool temporary;
    bool reconnect;
    uint32_t prefetch;
    int64_t lease_ms;
    int64_t expiry_ms;
    const char *owner; /* the transport's */
    uint32_t generation;
    pr__holding holdings[HOLDINGS_MAX];
    uint32_t holding_count;
    /* monotonic times */
    int64_t busy_until_us;
    int64_t probe_at_us;
    int64_t parked_at_us;
    int64_t promote_at_us;
    int64_t kept_at_us;
} database_subscription;

static database_subscription *self_of(pr_subscription *subscription)
{
    return (database_subscription *)subscription;
}

static int64_t now_of(const database_subscription *self)
{
    const pr_clock *clock = self->base.transport->clock;
    return clock->monotonic_us(clock->user);
}

/* Every failure of the store passes here: a spent handle is replaced before its next use. */
static pr_status seen(database_subscription *self, pr_status status, const pr_error *fault,
                      pr_error *err)
{
    if (status != PR_OK && fault->retry == PR_RETRY_RECONNECT)
        self->reconnect = true;
    pr__error_copy(err, fault);
    return status;
}

static void tell(const database_subscription *self, pr_observation_kind kind, uint64_t count,
                 pr_status status)
{
    if (count == 0)
        return;
    const pr_observation observation = {.size = (uint32_t)sizeof(observation),
                                        .kind = kind,
                                        .count = count,
                                        .reader = self->reader,
                                        .subject = self->base.transport->name,
                                        .status = status};
    pr__observe(self->base.transport->observer, &observation);
}

/* ---- claims in hand ---- */

static uint32_t room_of(const database_subscription *self)
{
    uint32_t in_hand = 0;
    for (uint32_t i = 0; i < self->holding_count; i++)
        in_hand += pr__holding_open(&self->holdings[i]);
    return in_hand < self->prefetch ? self->prefetch - in_hand : 0;
}

static pr__claim_options claim_options(const database_subscription *self, uint32_t room)
{
    return (pr__claim_options){.reader = self->reader,
                               .lease_ms = self->lease_ms,
                               .batch_max = room,
                               .bytes_max = CLAIM_BYTES_MAX,
                               .lanes_max = LANES_PER_CLAIM,
                               .owner = self->owner};
}

/* Take over a batch that was claimed; without memory for it, it is given back. */
static pr_status hold(database_subscription *self, pr__batch *batch, int64_t claimed_at_us,
                      pr_error *err)
{
    pr__holding holding;
    uint64_t takeovers = 0;
    for (uint32_t i = 0; i < batch->slice_count; i++)
        takeovers += batch->slices[i].takeover;
    tell(self, PR_OBSERVE_TAKEOVER, takeovers, PR_OK);
    if (!pr__holding_init(&holding, batch, self->base.transport->name)) {
        pr__settle_report report = {0};
        for (uint32_t i = 0; i < batch->item_count; i++)
            batch->items[i].result = PR__RESULT_OPEN;
        pr__batch_close(batch);
        (void)pr__store_settle(self->store, batch, NULL, &report, NULL,
                               NULL); /* or its lease ends */
        pr__batch_free(batch);
        return pr__fail_nomem(err, ORIGIN);
    }
    holding.generation = ++self->generation;
    holding.leased_at_us = claimed_at_us;
    self->holdings[self->holding_count++] = holding;
    return PR_OK;
}

static void let_go(database_subscription *self, uint32_t i)
{
    pr__holding_done(&self->holdings[i]);
    self->holding_count--;
    memmove(&self->holdings[i], &self->holdings[i + 1],
            (self->holding_count - i) * sizeof(self->holdings[0]));
}

/* Settle a holding in which all is decided; with `claim`, and room, the next comes with it. Of the
   item `watched` (may be NULL) it tells whether its outcome was discarded. */
static pr_status settle_holding(database_subscription *self, uint32_t i, bool claim,
                                const pr__item *watched, bool *ret_fenced, pr_error *err)
{
    pr__holding *holding = &self->holdings[i];
    pr__batch *next_batch = NULL;
    pr__settle_report report = {0};
    pr_error fault = PR_ERROR_INIT;
    uint32_t room = room_of(self);
    int64_t now_us = now_of(self);
    bool is_log = holding->batch->slices != NULL;
    const pr__claim_options next = claim_options(self, room);
    claim = claim && room > 0 && is_log && !holding->settling;
    holding->settling = true;
    pr__batch_close(holding->batch);
    PR_FAULT("transport.before_ack_settle");
    pr_status status = pr__store_settle(self->store, holding->batch, claim ? &next : NULL, &report,
                                        &next_batch, &fault);
    PR_FAULT("transport.after_ack_settle");
    if (status != PR_OK)
        return seen(self, status, &fault, err);
    tell(self, PR_OBSERVE_FENCED, report.fenced_items, PR_E_FENCED);
    tell(self, PR_OBSERVE_EXPIRED, report.expired, PR_OK);
    tell(self, PR_OBSERVE_DEAD, report.dead, PR_OK);
    if (!is_log || report.failed + report.deferred + report.held + report.dead > 0)
        self->parked_at_us = 0; /* something of its key may go, or is due soon */
    if (report.rest > 0)
        self->probe_at_us = 0;
    if (watched)
        *ret_fenced = watched->fenced;
    let_go(self, i);
    if (next_batch)
        (void)hold(self, next_batch, now_us, NULL); /* out of memory: it was given back */
    return PR_OK;
}

static pr_status renew_holding(database_subscription *self, uint32_t i, bool *ret_lost,
                               pr_error *err)
{
    pr__holding *holding = &self->holdings[i];
    pr_error fault = PR_ERROR_INIT;
    int64_t now_us = now_of(self);
    pr_status status = pr__store_renew(self->store, holding->batch, self->lease_ms, &fault);
    if (status != PR_OK)
        return seen(self, status, &fault, err);
    holding->leased_at_us = now_us;
    uint32_t stale = pr__holding_drop_fenced(holding);
    tell(self, PR_OBSERVE_FENCED, stale, PR_E_FENCED);
    *ret_lost = *ret_lost || stale > 0;
    return PR_OK;
}

/* Renew what is older than a part of its lease. */
static pr_status renew_older(database_subscription *self, int64_t part, bool *ret_lost,
                             pr_error *err)
{
    for (uint32_t i = 0; i < self->holding_count; i++) {
        int64_t age_us = now_of(self) - self->holdings[i].leased_at_us;
        if (!self->holdings[i].settling && age_us >= self->lease_ms * 1000 / part)
            TRY(renew_holding(self, i, ret_lost, err));
    }
    return PR_OK;
}

/* ---- looking for more ---- */

static pr_status keep_reader(database_subscription *self, pr_error *err)
{
    int64_t now_us = now_of(self);
    if (!self->temporary || now_us - self->kept_at_us < self->expiry_ms * 1000 / 3)
        return PR_OK;
    pr_error fault = PR_ERROR_INIT;
    pr_status status = pr__store_reader_keep(self->store, self->reader, &fault);
    if (status == PR_OK)
        self->kept_at_us = now_us;
    if (status == PR_E_NOT_FOUND)
        pr__error_context(&fault, "the temporary subscription is gone; subscribe again");
    return seen(self, status, &fault, err);
}

static pr_status restore(database_subscription *self, pr_error *err)
{
    if (!self->reconnect)
        return PR_OK;
    TRY(pr__database_reconnect(&self->store, err));
    self->reconnect = false;
    return PR_OK;
}

static pr_status claim_log(database_subscription *self, bool *ret_progress, pr_error *err)
{
    uint32_t room = room_of(self);
    if (room == 0 || self->holding_count == HOLDINGS_MAX)
        return PR_OK;
    pr_error fault = PR_ERROR_INIT;
    pr__batch *batch = NULL;
    int64_t now_us = now_of(self);
    const pr__claim_options options = claim_options(self, room);
    pr_status status = pr__store_claim(self->store, &options, &batch, &fault);
    if (status != PR_OK)
        return seen(self, status, &fault, err);
    if (!batch)
        return PR_OK;
    *ret_progress = true;
    return hold(self, batch, now_us, err);
}

static pr_status claim_due(database_subscription *self, bool *ret_progress, pr_error *err)
{
    uint32_t room = room_of(self);
    if (room == 0 || self->holding_count == HOLDINGS_MAX)
        return PR_OK;
    pr_error fault = PR_ERROR_INIT;
    pr__batch *batch = NULL;
    int64_t wait_ms = -1;
    int64_t now_us = now_of(self);
    pr_status status = pr__store_parked_due(self->store, self->reader, &wait_ms, &fault);
    if (status == PR_OK && wait_ms == 0) {
        const pr__claim_options options = claim_options(self, room);
        status = pr__store_claim_parked(self->store, &options, &batch, &fault);
    }
    if (status != PR_OK)
        return seen(self, status, &fault, err);
    if (batch) {
        *ret_progress = true;
        self->parked_at_us = 0; /* there may be more */
        return hold(self, batch, now_us, err);
    }
    if (wait_ms < 0)
        self->parked_at_us = INT64_MAX;
    else
        self->parked_at_us = now_us + (wait_ms > 0 ? wait_ms * 1000 : PARKED_WAIT_US);
    return PR_OK;
}

/* Every reader's loop promotes delayed messages of the log that it reads. */
static pr_status promote(database_subscription *self, bool *ret_progress, pr_error *err)
{
    pr_error fault = PR_ERROR_INIT;
    uint32_t count = 0;
    int64_t next_ms = -1;
    int64_t now_us = now_of(self);
    pr_status status = pr__store_promote(self->store, PROMOTE_MAX, &count, &next_ms, &fault);
    if (status != PR_OK)
        return seen(self, status, &fault, err);
    tell(self, PR_OBSERVE_PROMOTED, count, PR_OK);
    self->promote_at_us = next_ms < 0 ? INT64_MAX : now_us + next_ms * 1000;
    if (count > 0) {
        self->busy_until_us = now_us + BUSY_FOR_US;
        *ret_progress = true;
    }
    return PR_OK;
}

/* The messages of a holding go with it, so nobody may be reading one. */
static bool may_settle(const pr__holding *holding)
{
    return pr__holding_complete(holding) && !pr__holding_lent(holding);
}

/* Settle what is complete, then look wherever something may have come. */
static pr_status advance(database_subscription *self, bool *ret_progress, pr_error *err)
{
    for (uint32_t i = 0; i < self->holding_count;) {
        if (!may_settle(&self->holdings[i])) {
            i++;
            continue;
        }
        TRY(settle_holding(self, i, /* claim= */ true, NULL, NULL, err));
        *ret_progress = true;
    }
    bool changed = false;
    pr_error fault = PR_ERROR_INIT;
    pr_status status = pr__store_changed(self->store, &changed, &fault);
    if (status != PR_OK)
        return seen(self, status, &fault, err);
    int64_t now_us = now_of(self);
    bool probe = now_us >= self->probe_at_us;
    if (changed)
        self->busy_until_us = now_us + BUSY_FOR_US;
    if (probe)
        self->probe_at_us = now_us + PROBE_US;
    if (probe || now_us >= self->promote_at_us)
        TRY(promote(self, ret_progress, err));
    if (probe || changed || now_us >= self->parked_at_us)
        TRY(claim_due(self, ret_progress, err));
    if (probe || now_us < self->busy_until_us)
        TRY(claim_log(self, ret_progress, err));
    return PR_OK;
}

static uint32_t hand_out(database_subscription *self, pr_delivery *ret_deliveries, size_t max)
{
    uint32_t count = 0;
    uint32_t limit = max < self->prefetch ? (uint32_t)max : self->prefetch;
    for (uint32_t i = 0; i < self->holding_count && count < limit; i++)
        count += pr__holding_hand_out(&self->holdings[i], ret_deliveries + count, limit - count);
    return count;
}

/* One look: hand out what may go, else settle, renew, claim. */
static pr_status look(database_subscription *self, pr_delivery *ret_deliveries, size_t max,
                      size_t *ret_count, bool *ret_progress, pr_error *err)
{
    bool lost = false;
    TRY(restore(self, err));
    TRY(keep_reader(self, err));
    TRY(renew_older(self, 3, &lost, err)); /* what has run out is not handed out */
    *ret_count = hand_out(self, ret_deliveries, max);
    return *ret_count > 0 ? PR_OK : advance(self, ret_progress, err);
}

/* A busy database is nothing to tell: it is as if nothing had come, and verdicts wait. Passing over
   the messages of others is no reason to stay: the log may grow by them for ever. */
static pr_status database_receive(pr_subscription *subscription, int64_t timeout_ms,
                                  pr_delivery *ret_deliveries, size_t max, size_t *ret_count,
                                  pr_error *err)
{
    database_subscription *self = self_of(subscription);
    int64_t wait_ms = timeout_ms < INT32_MAX ? timeout_ms : INT32_MAX;
    int64_t deadline_us = pr__monotonic_us() + wait_ms * 1000;
    for (;;) {
        pr_error fault = PR_ERROR_INIT;
        bool progress = false;
        pr_status status = look(self, ret_deliveries, max, ret_count, &progress, &fault);
        if (status != PR_OK && status != PR_E_BUSY) {
            pr__error_copy(err, &fault);
            return status;
        }
        int64_t left_us = deadline_us - pr__monotonic_us();
        if (*ret_count == 0 && left_us <= 0) /* what the last look claimed is not left lying */
            *ret_count = hand_out(self, ret_deliveries, max);
        if (*ret_count > 0 || left_us <= 0)
            return PR_OK;
        if (progress && status == PR_OK)
            continue;
        int64_t nap_us = now_of(self) < self->busy_until_us ? BUSY_US : IDLE_US;
        pr__sleep_us(nap_us < left_us ? nap_us : left_us);
    }
}

/* ---- settling ---- */

static pr_status database_settle(pr_subscription *subscription, uint64_t tag, pr_verdict verdict,
                                 int64_t requeue_delay_ms, pr_error *err)
{
    database_subscription *self = self_of(subscription);
    for (uint32_t i = 0; i < self->holding_count; i++) {
        pr__holding *holding = &self->holdings[i];
        pr__item *item = pr__holding_find(holding, tag);
        if (!item)
            continue;
        if (!holding->settling)
            pr__holding_decide(holding, item, verdict, requeue_delay_ms);
        if (!may_settle(holding))
            return PR_OK;
        TRY(restore(self, err));
        bool fenced = false;
        TRY(settle_holding(self, i, /* claim= */ true, item, &fenced, err));
        if (fenced)
            return pr__fail(err, PR_E_FENCED, ORIGIN,
                            "its lease ran out and was taken over; the delivery comes again");
        return PR_OK;
    }
    tell(self, PR_OBSERVE_FENCED, 1, PR_E_FENCED);
    return pr__fail(err, PR_E_FENCED, ORIGIN,
                    "the tag is stale: its delivery was settled, or comes again");
}

static pr_status keep_all(database_subscription *self, bool *ret_lost, pr_error *err)
{
    TRY(restore(self, err));
    TRY(keep_reader(self, err));
    TRY(renew_older(self, 4, ret_lost, err));
    /* a settle that failed is tried again; what was lost is told, so that nobody reads it now */
    for (uint32_t i = self->holding_count; i-- > 0;) {
        *ret_lost = *ret_lost || pr__holding_lent(&self->holdings[i]);
        if (pr__holding_complete(&self->holdings[i]))
            TRY(settle_holding(self, i, /* claim= */ false, NULL, NULL, err));
    }
    return PR_OK;
}

static pr_status database_keep(pr_subscription *subscription, pr_error *err)
{
    database_subscription *self = self_of(subscription);
    pr_error fault = PR_ERROR_INIT;
    bool lost = false;
    pr_status status = keep_all(self, &lost, &fault);
    if (lost)
        return pr__fail(err, PR_E_FENCED, ORIGIN,
                        "a lease ran out and was taken over; its deliveries come again");
    if (status == PR_E_BUSY) /* the next call tries again; a lease that is lost is told then */
        return PR_OK;
    pr__error_copy(err, &fault);
    return status;
}

static void database_subscription_free(pr_subscription *subscription)
{
    database_subscription *self = self_of(subscription);
    int64_t deadline_us = pr__monotonic_us() + CLOSE_US;
    if (restore(self, NULL) == PR_OK) {
        /* One try each, while time lasts: what is not given back comes when its lease ends. */
        while (self->holding_count > 0 && pr__monotonic_us() < deadline_us) {
            uint32_t last = self->holding_count - 1;
            if (self->temporary ||
                settle_holding(self, last, /* claim= */ false, NULL, NULL, NULL) != PR_OK)
                let_go(self, last);
        }
        if (self->temporary)
            (void)pr__store_reader_drop(self->store, self->reader, NULL); /* or it expires */
    }
    while (self->holding_count > 0)
        let_go(self, self->holding_count - 1);
    pr_store_free(self->store);
    pr__free(self);
}

static const pr_subscription_ops subscription_ops = {
    .size = (uint32_t)sizeof(pr_subscription_ops),
    .receive = database_receive,
    .settle = database_settle,
    .keep = database_keep,
    .free = database_subscription_free,
};

pr_status pr__database_subscribe(pr_transport *transport, const pr_subscribe_options *options,
                                 pr_subscription **ret_subscription, pr_error *err)
{
    pr__database_transport *parent = (pr__database_transport *)transport;
    uint32_t prefetch = options->prefetch ? options->prefetch : PR_PREFETCH_DEFAULT;
    if (prefetch > PREFETCH_MAX)
        return pr__fail(err, PR_E_INVALID, ORIGIN, "prefetch is %u, at most %d", prefetch,
                        PREFETCH_MAX);
    database_subscription *self = pr__alloc(sizeof(*self));
    if (!self)
        return pr__fail_nomem(err, ORIGIN);
    self->base.ops = &subscription_ops;
    self->base.transport = transport;
    self->owner = parent->owner;
    self->prefetch = prefetch;
    self->temporary = options->temporary;
    self->lease_ms = options->lease_ms ? options->lease_ms : PR_LEASE_MS_DEFAULT;
    self->expiry_ms = options->expiry_ms ? options->expiry_ms : PR__EXPIRY_MS_DEFAULT;
    pr_status status = pr_store_clone(parent->store, &self->store, err);
    if (status == PR_OK)
        status = pr__reader_attach(self->store, options, &self->reader, err);
    if (status != PR_OK) {
        pr_store_free(self->store);
        pr__free(self);
        return status;
    }
    /* no tag of another subscription is one of this */
    const pr_random *random = self->store->random;
    random->fill(random->user, &self->generation, sizeof(self->generation));
    self->kept_at_us = now_of(self);
    *ret_subscription = &self->base;
    return PR_OK;
}

pr_status pr__database_topology(pr_transport *transport, const pr_subscribe_options *options,
                                bool check_only, pr_error *err)
{
    pr__database_transport *self = (pr__database_transport *)transport;
    int64_t reader;
    if (options->temporary)
        return PR_OK; /* made by the subscription itself */
    return check_only ? pr__reader_verify(self->store, options, err)
                      : pr__reader_attach(self->store, options, &reader, err);
}

/* A message is pending until its settle, or parked until a later one: in this order none is missed
   on its way. How many are parked is not asked, only whether one is to come. */
pr_status pr__database_backlog(pr_transport *transport, const pr_subscribe_options *options,
                               uint64_t *ret_count, pr_error *err)
{
    pr__database_transport *self = (pr__database_transport *)transport;
    int64_t reader = 0;
    int64_t due_ms = -1;
    pr__backlog backlog = {0};
    TRY(pr__reader_look_up(self->store, options, &reader, err));
    if (reader == 0) {
        *ret_count = 0;
        return PR_OK;
    }
    TRY(pr__store_backlog(self->store, reader, BACKLOG_MS, &backlog, err));
    TRY(pr__store_parked_due(self->store, reader, &due_ms, err));
    *ret_count = backlog.pending + (due_ms >= 0 ? 1 : 0);
    return PR_OK;
}
