/*
 * Several messages in one unit: a savepoint, a mark and the handler for each, one commit for all.
 *
 * Keeps: nothing is done before the commit is; what failed, is busy, or is not to run is taken back
 * to its savepoint, harms no other, and is tried again alone, so that attempts, parking, conflicts
 * and all the rest have one way only; behind such a one nothing of its key is run. Where the
 * transaction itself is in doubt all of them go that way.
 * Must not know: how messages are picked, transports.
 */
#include <string.h>

#include "base/error.h"
#include "base/fault.h"
#include "base/memory.h"
#include "core/endpoint.h"
#include "core/scope.h"
#include "core/unit.h"

#define ORIGIN "endpoint"
/* No new message is begun after that: marks are locks, and their twins wait elsewhere. */
#define BATCH_US 250000

DEFINE_AUTO(pr_scope, pr__scope_free);

static uint64_t enqueued(const pr_unit *unit)
{
    return unit->core ? unit->core->enqueued_count : 0;
}

/* Nothing in it that a savepoint does not reach: a word that spoiled it, nested units, events of
   aggregates, which are written at the end of a unit and with one message's context. */
static bool is_simple(const pr_unit *unit)
{
    const pr__unit_core *core = unit->core;
    return !core || (core->reason[0] == '\0' && core->nested_open == 0 && core->tracked_count == 0);
}

/* *ret_good: what it wrote may be committed. */
static pr_status run_one(pr_endpoint *endpoint, pr_unit *unit, pr__work *work, bool *ret_good,
                         pr_error *err)
{
    work->began_us = pr__endpoint_now_us(endpoint);
    AUTO(pr_scope) scope = pr__work_scope(endpoint, work, work->began_us);
    if (!scope)
        return pr__fail_nomem(err, ORIGIN);
    scope->shared = unit;
    pr_next first = {.chain = &endpoint->chain};
    pr_handled answer = pr_next_invoke(&first, scope);
    *ret_good = answer == PR_HANDLED_OK && scope->good && !unit->rollback_only;
    if (!is_simple(unit))
        return pr__fail(err, PR_E_STATE, ORIGIN, "the handler needs a unit of its own");
    return PR_OK;
}

/* Keep it, or take it back and let it go alone. */
static pr_status do_one(pr_endpoint *endpoint, pr_unit *unit, pr__work *work, pr_error *err)
{
    bool good = false;
    uint64_t before = enqueued(unit);
    size_t after = pr__unit_after_count(unit);
    TRY(run_one(endpoint, unit, work, &good, err));
    if (good && unit->ops->savepoint(unit, PR__SAVEPOINT_NEXT, NULL) == PR_OK) {
        work->verdict = PR__WORK_ACK;
        return PR_OK;
    }
    work->alone = true;
    TRY(unit->ops->savepoint(unit, PR__SAVEPOINT_BACK, err));
    pr__unit_after_forget(unit, after);
    if (unit->core)
        unit->core->enqueued_count = before;
    return PR_OK;
}

/* An earlier one of its key was taken back. */
static bool must_wait(const pr_endpoint *endpoint, pr__work *const *works, uint32_t index)
{
    const pr__work *work = works[index];
    if (endpoint->opt.order == PR_ORDER_SKIP || !work->message.key)
        return false;
    for (uint32_t i = 0; i < index; i++) {
        const pr__work *earlier = works[i];
        if (earlier->alone && earlier->message.key &&
            strcmp(earlier->message.key, work->message.key) == 0 &&
            strcmp(earlier->inbox.key.tenant, work->inbox.key.tenant) == 0)
            return true;
    }
    return false;
}

/* *ret_done: so many are to be committed. */
static pr_status do_all(pr_endpoint *endpoint, pr_unit *unit, pr__work *const *works,
                        uint32_t count, uint32_t *ret_done, pr_error *err)
{
    int64_t until_us = pr__endpoint_now_us(endpoint) + BATCH_US;
    TRY(unit->ops->savepoint(unit, PR__SAVEPOINT_SET, err));
    for (uint32_t i = 0; i < count; i++) {
        bool late = pr__endpoint_now_us(endpoint) >= until_us;
        if (late || atomic_load(&endpoint->stopping))
            break; /* the rest waits in hand */
        if (must_wait(endpoint, works, i)) {
            works[i]->alone = true;
            continue;
        }
        works[i]->store = unit->store;
        TRY(do_one(endpoint, unit, works[i], err));
        *ret_done += works[i]->verdict == PR__WORK_ACK ? 1 : 0;
    }
    return PR_OK;
}

static pr_status commit(pr_endpoint *endpoint, pr_unit *unit, pr_error *err)
{
    pr_outcome outcome;
    if (PR_FAULT_FAILS("endpoint.before_batch_commit"))
        return pr__fail_retry(err, PR_E_BACKEND, PR_RETRY_SAME, ORIGIN, "a fault was ordered");
    TRY(pr_unit_commit(unit, &outcome, err));
    PR_FAULT("endpoint.after_batch_commit");
    PR_ENDPOINT_COUNT(endpoint, batches);
    return PR_OK;
}

static pr_status in_unit(pr_endpoint *endpoint, pr_unit *unit, pr__work *const *works,
                         uint32_t count, pr_error *err)
{
    uint32_t done = 0;
    TRY(pr__unit_guard(unit, err));
    pr_status status = do_all(endpoint, unit, works, count, &done, err);
    pr__unit_unguard(unit);
    if (status == PR_OK && done > 0)
        status = commit(endpoint, unit, err);
    return status;
}

pr_status pr__batch_try(pr_endpoint *endpoint, pr_store *store, pr__work *const *works,
                        uint32_t count, pr_error *err)
{
    pr_unit *unit = NULL;
    for (uint32_t i = 0; i < count; i++)
        works[i]->verdict = PR__WORK_WAIT;
    pr_status status = pr__store_unit_begin(store, &unit, err);
    if (status == PR_OK)
        status = in_unit(endpoint, unit, works, count, err);
    pr_unit_free(unit); /* rolled back unless it was committed */
    for (uint32_t i = 0; i < count; i++) {
        pr__work *work = works[i];
        if (status != PR_OK) { /* alone each meets what hindered them, or what stands already */
            work->verdict = PR__WORK_WAIT;
            work->alone = true;
        } else if (work->verdict == PR__WORK_ACK) {
            pr__work_handled(endpoint, work, work->began_us);
        }
    }
    return status;
}
