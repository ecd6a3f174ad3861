/*
 * The innermost of an endpoint's chain: the work unit, the inbox in it, the handler.
 *
 * Keeps: the handler runs only while its mark stands in the open unit, or its lease is held; the
 * unit is committed once, here, and rolled back on every other way out; with the leased inbox no
 * transaction is open before the handler asks for it.
 * Must not know: what becomes of the message afterwards (endpoint_work.c).
 */
#include <string.h>

#include "base/error.h"
#include "base/fault.h"
#include "base/memory.h"
#include "base/text.h"
#include "base/time.h"
#include "base/uuid.h"
#include "core/endpoint.h"
#include "core/saga_ride.h"
#include "core/scope.h"
#include "core/unit.h"

#define ORIGIN       "endpoint"
#define BUSY_STEP_US 25000

static bool leased(const pr_scope *scope)
{
    return scope->endpoint->opt.inbox == PR_INBOX_LEASED;
}

/* Is it settled already what becomes of the message? */
static bool stopped(const pr_scope *scope)
{
    return scope->committed || scope->entry != 0 || scope->trouble.status != PR_OK;
}

static pr_handled stop(pr_scope *scope, pr__inbox_entry entry)
{
    if (scope->entry == 0)
        scope->entry = entry;
    return PR_HANDLED_STOPPED;
}

/* ---- the unit ---- */

static pr_status guard(pr_scope *scope, pr_error *err)
{
    return pr__unit_guard(scope->unit, err);
}

static pr_status open_unit(pr_scope *scope, pr_error *err)
{
    TRY(pr__store_unit_begin(scope->store, &scope->unit, err));
    scope->unit_state = PR__UNIT_OPEN;
    return guard(scope, err);
}

static void close_unit(pr_scope *scope)
{
    if (scope->unit)
        pr__unit_unguard(scope->unit);
    pr__saga_ride_done(scope);
    scope->unit = pr_unit_free(scope->unit); /* rolled back unless it was committed */
    scope->unit_state = PR__UNIT_NONE;
    scope->inbox->row_gone = false;
}

/* The slow part is over: take the row into a transaction, so that nobody can have it any more. The
   lease goes on while the store is busy. */
static pr_status open_leased_unit(pr_scope *scope, pr_error *err)
{
    pr_endpoint *endpoint = scope->endpoint;
    int64_t until_us = pr__endpoint_now_us(endpoint) + endpoint->opt.busy_wait_ms * 1000;
    pr__inbox_entry entry = PR__INBOX_LOST;
    pr_error local = PR_ERROR_INIT;
    pr_status status;
    for (;;) {
        status = pr__inbox_lease_unit(scope->store, scope->inbox, &scope->unit, &entry, &local);
        bool busy = status != PR_OK && (status == PR_E_BUSY || local.retry == PR_RETRY_SAME);
        if (!busy || pr__endpoint_now_us(endpoint) >= until_us)
            break;
        pr_error_clear(&local);
        pr__sleep_us(BUSY_STEP_US);
    }
    if (status != PR_OK) {
        (void)pr__scope_trouble(scope, &local);
        pr__error_copy(err, &local);
        return status;
    }
    if (entry != PR__INBOX_RUN) {
        (void)stop(scope, PR__INBOX_LOST);
        return pr__fail(err, PR_E_FENCED, ORIGIN,
                        "the lease of the message was lost: somebody took it over");
    }
    pr__renewer_drop(endpoint->renewer, &scope->lease);
    scope->unit_state = PR__UNIT_OPEN;
    scope->inbox->row_gone = true;
    TRY(guard(scope, err));
    return pr__scope_inherit(scope, err);
}

/* One of a batch asks for the unit: what it writes from here on stands behind a savepoint and a
   mark of its own. After an error the savepoint may be set, or not: going back to it tells. */
static pr_status touch(pr_scope *scope, pr_error *err)
{
    pr__shared *shared = scope->shared;
    pr__savepoint_step step = shared->savepoint ? PR__SAVEPOINT_NEXT : PR__SAVEPOINT_SET;
    pr__inbox_entry entry = PR__INBOX_RUN;
    pr_error local = PR_ERROR_INIT;
    shared->savepoint = scope->touched = true;
    pr_status status =
        scope->in_inbox ? pr__inbox_enter_shared(shared->unit, step, scope->inbox, &entry, &local)
                        : shared->unit->ops->savepoint(shared->unit, step, &local);
    if (status != PR_OK) {
        (void)pr__scope_trouble(scope, &local);
        pr__error_copy(err, &local);
        return status;
    }
    if (entry != PR__INBOX_RUN) {
        (void)stop(scope, entry);
        return pr__fail_retry(err, PR_E_BUSY, PR_RETRY_SAME, ORIGIN,
                              "somebody else was at the message meanwhile: return RETRY");
    }
    scope->marked = scope->in_inbox;
    scope->unit = shared->unit;
    scope->unit_state = PR__UNIT_OPEN;
    return pr__scope_inherit(scope, err);
}

static pr_status get_unit(pr_scope *scope, pr_unit **ret_unit, pr_error *err)
{
    if (scope->unit_state == PR__UNIT_LAZY && !scope->in_inbox && !scope->shared)
        return pr__fail(err, PR_E_STATE, ORIGIN,
                        "with the leased inbox there is a unit only inside of 'inbox'");
    if (scope->unit_state == PR__UNIT_LAZY && stopped(scope))
        return pr__fail(err, PR_E_STATE, ORIGIN, "the unit could not be begun before");
    if (scope->unit_state == PR__UNIT_LAZY)
        TRY(scope->shared ? touch(scope, err) : open_leased_unit(scope, err));
    if (scope->unit_state != PR__UNIT_OPEN)
        return pr__fail(err, PR_E_STATE, ORIGIN,
                        "there is no work unit here: list pr_middleware_unit among the endpoint's "
                        "middleware, outside of what needs it");
    *ret_unit = scope->unit;
    return PR_OK;
}

pr_status pr_scope_unit_get(pr_scope *scope, pr_unit **ret_unit, pr_error *err)
{
    if (!scope || !ret_unit)
        return pr__fail(err, PR_E_INVALID, ORIGIN, "scope or ret_unit is NULL");
    TRY(get_unit(scope, ret_unit, err));
    return pr__saga_ride_flush(scope, err);
}

pr_unit *pr_scope_unit(pr_scope *scope)
{
    pr_unit *unit = NULL;
    pr_error local = PR_ERROR_INIT;
    if (pr_scope_unit_get(scope, &unit, &local) != PR_OK && scope && scope->reason[0] == '\0')
        pr__scope_set_reason(scope, local.message);
    return unit;
}

/* ---- completing ---- */

/* Without an inbox: what the handler wrote, and no mark. */
static pr_status complete_plain(pr_unit *unit, pr_outcome *ret_outcome, pr_error *err)
{
    pr_error local = PR_ERROR_INIT;
    *ret_outcome = PR_OUTCOME_NOT_COMMITTED;
    if (unit->ops->live(unit, &local) != PR_OK)
        return pr__fail(err, PR_E_STATE, ORIGIN,
                        "the handler ended or broke its own transaction: %s", local.message);
    return pr_unit_commit(unit, ret_outcome, err);
}

/* The commit failed. Not committed: the message failed, unless the database only wants it again.
   */
static bool failed_for_good(const pr_error *err, pr_outcome outcome)
{
    if (outcome != PR_OUTCOME_NOT_COMMITTED || err->status == PR_E_BUSY)
        return false;
    return err->retry == PR_RETRY_NEVER;
}

static pr_handled complete(pr_scope *scope)
{
    pr__inbox_entry entry = PR__INBOX_HANDLED;
    pr_outcome outcome = PR_OUTCOME_NOT_COMMITTED;
    pr_error local = PR_ERROR_INIT;
    pr_unit *unit = NULL;
    if (get_unit(scope, &unit, &local) != PR_OK) {
        if (stopped(scope))
            return PR_HANDLED_STOPPED;
        return pr__scope_trouble(scope, &local);
    }
    if (pr__saga_ride_refused(scope))
        return pr__saga_ride_put_off(scope);
    pr__unit_unguard(unit);
    pr_status status = scope->in_inbox
                           ? pr__inbox_complete(unit, scope->inbox, &entry, &outcome, &local)
                           : complete_plain(unit, &outcome, &local);
    if (status != PR_OK && failed_for_good(&local, outcome)) {
        pr__scope_set_reason(scope, local.message);
        return PR_HANDLED_RETRY;
    }
    if (status != PR_OK)
        return pr__scope_trouble(scope, &local);
    if (entry == PR__INBOX_MOVED)
        return pr__saga_ride_lost(scope);
    if (entry != PR__INBOX_HANDLED)
        return stop(scope, entry);
    scope->committed = true;
    return PR_HANDLED_OK;
}

/* One of a batch: whoever runs it keeps or takes back what is written here, and commits. */
static pr_handled invoke_shared(pr_scope *scope, pr_next *next)
{
    if (scope->unit_state != PR__UNIT_NONE)
        return PR_HANDLED_STOPPED;
    scope->unit_state = PR__UNIT_LAZY;
    pr_handled handled = pr_next_invoke(next, scope);
    scope->good = handled == PR_HANDLED_OK && scope->in_inbox && !stopped(scope);
    return handled;
}

pr_handled pr__unit_invoke(void *user, pr_scope *scope, pr_next *next)
{
    (void)user;
    if (scope->shared)
        return invoke_shared(scope, next);
    if (stopped(scope) || scope->unit_state != PR__UNIT_NONE)
        return PR_HANDLED_STOPPED; /* a middleware asked once more after the end */
    pr_error local = PR_ERROR_INIT;
    scope->unit_state = PR__UNIT_LAZY;
    /* the inbox begins its unit and enters it in one go, when nothing stands between them */
    bool waits = leased(scope) || pr__next_is_inbox(next);
    if (!waits && open_unit(scope, &local) != PR_OK) {
        close_unit(scope);
        return pr__scope_trouble(scope, &local);
    }
    pr_handled handled = pr_next_invoke(next, scope);
    if (handled == PR_HANDLED_OK)
        handled = stopped(scope) ? PR_HANDLED_STOPPED : complete(scope);
    close_unit(scope);
    pr__renewer_drop(scope->endpoint->renewer, &scope->lease);
    scope->in_inbox = false;
    return handled;
}

/* ---- the inbox ---- */

static pr_status enter(pr_scope *scope, pr__inbox_entry *ret_entry, pr_error *err)
{
    if (scope->unit_state == PR__UNIT_LAZY) {
        TRY(pr__inbox_enter(scope->store, scope->inbox, &scope->unit, ret_entry, err));
    } else {
        pr__unit_unguard(scope->unit); /* what is held, or done before, is committed inside */
        TRY(pr__inbox_enter_unit(scope->unit, scope->inbox, ret_entry, err));
    }
    if (*ret_entry != PR__INBOX_RUN)
        return PR_OK;
    scope->unit_state = PR__UNIT_OPEN;
    return guard(scope, err);
}

/* Its saga's row comes with the message; where something stands before the handler, only what is
   known of it undecoded. */
static void ask_saga(pr_scope *scope, const pr_next *next)
{
    const pr_endpoint_options *opt = &scope->endpoint->opt;
    if (opt->handler == pr_saga_handle && scope->unit_state == PR__UNIT_LAZY)
        pr__saga_ride_ask(opt->user, scope, pr__next_is_handler(next));
}

static pr_handled enter_transactional(pr_scope *scope, pr_next *next)
{
    pr__inbox_entry entry = PR__INBOX_RUN;
    pr_error local = PR_ERROR_INIT;
    ask_saga(scope, next);
    pr_status status = enter(scope, &entry, &local);
    if (status != PR_OK)
        return pr__scope_trouble(scope, &local);
    if (entry != PR__INBOX_RUN)
        return stop(scope, entry);
    scope->in_inbox = true;
    return pr_next_invoke(next, scope);
}

/* It was let in by a look at the whole batch: its mark comes with the unit, or at the end. A
   middleware may have asked for that already. */
static pr_handled enter_shared(pr_scope *scope, pr_next *next)
{
    pr__inbox_entry entry = PR__INBOX_RUN;
    pr_error local = PR_ERROR_INIT;
    if (stopped(scope))
        return PR_HANDLED_STOPPED;
    if (scope->touched &&
        pr__inbox_enter_shared(scope->unit, 0, scope->inbox, &entry, &local) != PR_OK)
        return pr__scope_trouble(scope, &local);
    if (entry != PR__INBOX_RUN)
        return stop(scope, entry);
    scope->marked = scope->touched;
    scope->in_inbox = true;
    return pr_next_invoke(next, scope);
}

/* The processing row with our token stands, or stood already; its lease is renewed. */
static pr_status take_lease(pr_scope *scope, pr__inbox_entry *ret_entry, pr_error *err)
{
    pr_endpoint *endpoint = scope->endpoint;
    pr__work *work = pr__work_of(scope->inbox);
    int64_t began_us = pr__endpoint_now_us(endpoint);
    bool fresh = work->token[0] == '\0';
    char token[PR_UUID_TEXT_SIZE];
    pr__endpoint_token(endpoint, token);
    pr__inbox_park park = {.state = PR_STATE_PUBLISHING,
                           .attempts = work->inbox.attempts,
                           .token = token,
                           .owner = endpoint->opt.owner,
                           .lease_ms = endpoint->opt.lease_ms};
    TRY(pr__inbox_lease_enter(scope->store, &work->inbox, &park, ret_entry, err));
    if (*ret_entry != PR__INBOX_RUN)
        return PR_OK;
    if (fresh)
        memcpy(work->token, token, sizeof token);
    /* a row that was claimed earlier is renewed at once */
    int64_t taken_us = fresh ? began_us : began_us - endpoint->opt.lease_ms * 1000 / 3;
    return pr__renewer_keep(endpoint->renewer, &scope->lease, &work->inbox.key, work->token,
                            taken_us, scope->deadline_us, err);
}

static pr_handled enter_leased(pr_scope *scope, pr_next *next)
{
    pr__inbox_entry entry = PR__INBOX_RUN;
    pr_error local = PR_ERROR_INIT;
    if (take_lease(scope, &entry, &local) != PR_OK)
        return pr__scope_trouble(scope, &local);
    if (entry != PR__INBOX_RUN)
        return stop(scope, entry);
    scope->in_inbox = true;
    pr_handled handled = pr_next_invoke(next, scope);
    if (handled != PR_HANDLED_OK)
        pr__renewer_drop(scope->endpoint->renewer, &scope->lease);
    return handled; /* after OK the lease is kept until its unit has begun */
}

pr_handled pr__inbox_invoke(void *user, pr_scope *scope, pr_next *next)
{
    (void)user;
    if (scope->shared)
        return enter_shared(scope, next);
    return leased(scope) ? enter_leased(scope, next) : enter_transactional(scope, next);
}

/* ---- the handler ---- */

pr_handled pr__handler_invoke(pr_scope *scope)
{
    pr_endpoint *endpoint = scope->endpoint;
    pr_error local = PR_ERROR_INIT;
    if (!pr__scope_decode(scope))
        return scope->trouble.status != PR_OK ? PR_HANDLED_STOPPED : PR_HANDLED_PERMANENT;
    if (scope->unit && pr__scope_inherit(scope, &local) != PR_OK) {
        if (local.status == PR_E_NOMEM)
            return pr__scope_trouble(scope, &local);
        pr__scope_set_reason(scope, local.message);
        return PR_HANDLED_RETRY;
    }
    scope->in_handler = true;
    PR_FAULT("endpoint.before_handler");
    pr_handled handled = endpoint->opt.handler(endpoint->opt.user, scope);
    PR_FAULT("endpoint.after_handler");
    return handled;
}
