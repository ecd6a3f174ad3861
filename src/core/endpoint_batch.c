/*
 * Several messages in one unit: the handler for each, one commit for all.
 *
 * Keeps: nothing is done before the commit is. A message that asks for the unit gets a savepoint
 * and its mark first, so that whatever ends the transaction, no effect is without its mark and no
 * mark without its handler; one that never asks has nothing to be taken back, and its mark is
 * written at the end with those of its kind. What failed, is busy, or is not to run is taken back
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

/* *ret_good: it may be committed. *ret_touched: something may stand behind the savepoint. */
static pr_status run_one(pr_endpoint *endpoint, pr__shared *shared, pr__work *work, bool *ret_good,
                         bool *ret_touched, pr_error *err)
{
    pr_unit *unit = shared->unit;
    work->began_us = pr__endpoint_now_us(endpoint);
    AUTO(pr_scope) scope = pr__work_scope(endpoint, work, work->began_us);
    if (!scope)
        return pr__fail_nomem(err, ORIGIN);
    scope->shared = shared;
    pr_next first = {.chain = &endpoint->chain};
    pr_handled answer = pr_next_invoke(&first, scope);
    work->marked = scope->marked;
    *ret_touched = scope->touched;
    *ret_good = answer == PR_HANDLED_OK && scope->good && !unit->rollback_only &&
                (!scope->touched || unit->ops->live(unit, NULL) == PR_OK);
    if (!is_simple(unit))
        return pr__fail(err, PR_E_STATE, ORIGIN, "the handler needs a unit of its own");
    return PR_OK;
}

/* Keep it, or take it back and let it go alone. */
static pr_status do_one(pr_endpoint *endpoint, pr__shared *shared, pr__work *work, pr_error *err)
{
    bool good = false, touched = false;
    pr_unit *unit = shared->unit;
    uint64_t before = enqueued(unit);
    size_t after = pr__unit_after_count(unit);
    TRY(run_one(endpoint, shared, work, &good, &touched, err));
    if (good) {
        work->verdict = PR__WORK_ACK;
        return PR_OK;
    }
    work->alone = true;
    if (touched)
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

/* What stands already, or stands against one, is not run here. */
static pr_status look(pr_unit *unit, pr__work *const *works, uint32_t count, pr_error *err)
{
    pr__inbox_visit visits[PR_ENDPOINT_BATCH_MAX] = {{.key = NULL}};
    bool stands[PR_ENDPOINT_BATCH_MAX] = {false};
    for (uint32_t i = 0; i < count; i++)
        visits[i] = pr__inbox_visit_of(&works[i]->inbox);
    TRY(unit->ops->inbox_look_all(unit, visits, count, stands, err));
    for (uint32_t i = 0; i < count; i++)
        works[i]->alone = stands[i];
    return PR_OK;
}

static pr_status do_all(pr_endpoint *endpoint, pr_unit *unit, pr__work *const *works,
                        uint32_t count, pr_error *err)
{
    int64_t until_us = pr__endpoint_now_us(endpoint) + BATCH_US;
    pr__shared shared = {.unit = unit};
    TRY(look(unit, works, count, err));
    for (uint32_t i = 0; i < count; i++) {
        bool late = pr__endpoint_now_us(endpoint) >= until_us;
        if (late || atomic_load(&endpoint->stopping))
            break; /* the rest waits in hand */
        if (must_wait(endpoint, works, i))
            works[i]->alone = true;
        if (works[i]->alone)
            continue;
        works[i]->store = unit->store;
        TRY(do_one(endpoint, &shared, works[i], err));
    }
    return PR_OK;
}

/* Every one that is to be committed gets its mark, if it has none, and no other has one: what was
   taken back took its mark with it. *ret_done: so many are to be committed. */
static pr_status mark(pr_unit *unit, pr__work *const *works, uint32_t count, uint32_t *ret_done,
                      pr_error *err)
{
    pr__inbox_visit visits[PR_ENDPOINT_BATCH_MAX] = {{.key = NULL}};
    bool marked[PR_ENDPOINT_BATCH_MAX] = {false};
    bool all = true;
    *ret_done = 0;
    for (uint32_t i = 0; i < count; i++) {
        if (works[i]->verdict != PR__WORK_ACK)
            continue;
        visits[*ret_done] = pr__inbox_visit_of(&works[i]->inbox);
        marked[(*ret_done)++] = works[i]->marked;
    }
    if (*ret_done == 0)
        return PR_OK;
    PR_FAULT("endpoint.before_batch_marks");
    TRY(unit->ops->inbox_mark_all(unit, visits, marked, *ret_done, &all, err));
    PR_FAULT("endpoint.after_batch_marks");
    if (!all)
        return pr__fail_retry(err, PR_E_BUSY, PR_RETRY_SAME, ORIGIN,
                              "others were at messages of the batch meanwhile");
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
    pr_status status = do_all(endpoint, unit, works, count, err);
    pr__unit_unguard(unit);
    if (status == PR_OK)
        status = mark(unit, works, count, &done, err);
    if (status == PR_OK && done > 0)
        status = commit(endpoint, unit, err);
    return status;
}

pr_status pr__batch_try(pr_endpoint *endpoint, pr_store *store, pr__work *const *works,
                        uint32_t count, pr_error *err)
{
    pr_unit *unit = NULL;
    for (uint32_t i = 0; i < count; i++) {
        works[i]->verdict = PR__WORK_WAIT;
        works[i]->marked = false;
    }
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
