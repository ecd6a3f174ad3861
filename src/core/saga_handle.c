/*
 * Messages and timeouts of sagas: which instance, whether it may move, and the step.
 *
 * Keeps: late messages and closed timeouts change nothing and are counted; a state that cannot be
 * read stays as it is and costs its own message only; what has to wait for another (a lease, a
 * commit that is not visible yet) is put off, never done.
 * Must not know: transports, how often a message is tried.
 */
#include <string.h>

#include "base/error.h"
#include "base/fault.h"
#include "base/text.h"
#include "core/saga.h"
#include "core/saga_key.h"
#include "core/saga_ride.h"

#define ORIGIN         PR_SAGA_ORIGIN
#define PUT_OFF_MS_MAX 1000 /* a lease may be given back before it ends */
#define EARLY_MS       200  /* between two looks for the instance of an early timeout */
#define LOST_MS        50

static inline void auto_done(pr_saga_step *step)
{
    pr__saga_step_done(step);
}
#define AUTO_STEP __attribute__((cleanup(auto_done))) pr_saga_step

const pr_saga_message *pr__saga_message_find(const pr_saga *saga, const char *type)
{
    for (size_t i = 0; i < saga->type.message_count; i++) {
        if (strcmp(saga->type.messages[i].type, type) == 0)
            return &saga->type.messages[i];
    }
    return NULL;
}

/* ---- answers ---- */

static pr_handled put_off(pr_scope *scope, const char *reason, int64_t delay_ms)
{
    pr_scope_fail(scope, reason, delay_ms);
    return PR_HANDLED_DEFER;
}

static pr_handled dead(pr_scope *scope, const char *reason)
{
    pr_scope_fail(scope, reason, -1);
    return PR_HANDLED_PERMANENT;
}

/* What an error of a step means for its message. */
static pr_handled refused(pr_saga *saga, pr_scope *scope, const pr_error *why)
{
    if (why->status == PR_E_SCHEMA || why->status == PR_E_CONTENT)
        PR_SAGA_COUNT(saga, unreadable);
    if (why->status == PR_E_LIMIT)
        PR_SAGA_COUNT(saga, too_large);
    if (why->status == PR_E_CONTENT || why->status == PR_E_LIMIT)
        return dead(scope, why->message);
    if (why->retry != PR_RETRY_NEVER || why->status == PR_E_BUSY || why->status == PR_E_NOMEM)
        return put_off(scope, why->message, LOST_MS);
    pr_scope_fail(scope, why->message, -1); /* such as a newer state: a newer program may come by */
    return PR_HANDLED_RETRY;
}

static pr_handled wait_for_lease(pr_saga_step *step)
{
    char reason[512];
    int64_t left_ms = (step->row.lease_until_us - step->row.now_us) / 1000 + 1;
    PR_SAGA_COUNT(step->saga, leased);
    pr__format(reason, sizeof reason, "saga '%s', key '%s' is leased by '%s'", step->key.saga_type,
               step->key.correlation_key, step->row.lease_owner ? step->row.lease_owner : "");
    return put_off(step->scope, reason, left_ms < PUT_OFF_MS_MAX ? left_ms : PUT_OFF_MS_MAX);
}

/* ---- the step ---- */

static pr_handled run(pr_saga_step *step, pr_saga_handler handler)
{
    pr_saga *saga = step->saga;
    PR_FAULT("saga.before_handler");
    pr_handled handled = handler(saga->type.user, step, step->state);
    PR_FAULT("saga.after_handler");
    if (handled != PR_HANDLED_OK) {
        PR_SAGA_COUNT(saga, failed);
        return handled;
    }
    bool saved = false;
    pr_error local = PR_ERROR_INIT;
    if (pr__saga_step_save(step, NULL, &saved, &local) != PR_OK)
        return local.status == PR_E_CONTENT ? dead(step->scope, local.message)
                                            : refused(saga, step->scope, &local);
    if (!saved)
        return pr__saga_ride_put_off(step->scope);
    step->counted.stepped++;
    if (step->restart_id[0])
        step->counted.restarted++;
    if (step->fresh)
        step->counted.started++;
    return PR_HANDLED_OK;
}

/* Open timeouts and state of a row that runs. */
static pr_status read_instance(pr_saga_step *step, pr_error *err)
{
    TRY(pr__saga_open_read(step, err));
    if (step->row.version == 0)
        return pr__saga_state_fresh(step, err);
    return pr__saga_state_read(step, err);
}

/* Old rows have no completed_at, though their state says that they are: it is filled in now. */
static pr_status fill_in(pr_saga_step *step, bool *ret_complete, pr_error *err)
{
    const pr_saga_type *type = &step->saga->type;
    *ret_complete =
        step->row.version > 0 && type->complete && type->complete(type->user, step->state);
    if (!*ret_complete)
        return PR_OK;
    bool changed = false;
    TRY(step->unit->ops->saga_complete(step->unit, &step->key, step->row.instance_id, &changed,
                                       err));
    if (changed)
        step->counted.filled++;
    return PR_OK;
}

static pr_handled start_again(pr_saga_step *step, pr_saga_handler handler)
{
    pr_error local = PR_ERROR_INIT;
    pr__saga_new_id(step->unit->store, step->restart_id);
    step->fresh = true;
    step->open_count = 0;
    step->row.last_messages = "[]";
    if (pr__saga_state_fresh(step, &local) != PR_OK)
        return refused(step->saga, step->scope, &local);
    return run(step, handler);
}

/* A message for an instance that is completed. */
static pr_handled late(pr_saga_step *step, const pr_saga_message *entry)
{
    char reason[512];
    pr_saga *saga = step->saga;
    if (!(entry->flags & PR_SAGA_STARTS) || saga->type.reuse == PR_SAGA_REUSE_LATE) {
        step->counted.late++;
        return PR_HANDLED_OK;
    }
    if (saga->type.reuse == PR_SAGA_REUSE_RESTART)
        return start_again(step, entry->handler);
    step->counted.late++;
    pr__format(reason, sizeof reason,
               "saga '%s', key '%s' was completed, and its key is not free before retention",
               step->key.saga_type, step->key.correlation_key);
    return dead(step->scope, reason);
}

static pr_handled move(pr_saga_step *step, const pr_saga_message *entry)
{
    pr_error local = PR_ERROR_INIT;
    bool complete = false;
    if (step->row.completed_at_us != 0)
        return late(step, entry);
    if (pr__saga_row_leased(&step->row))
        return wait_for_lease(step);
    if (read_instance(step, &local) != PR_OK || fill_in(step, &complete, &local) != PR_OK)
        return refused(step->saga, step->scope, &local);
    return complete ? late(step, entry) : run(step, entry->handler);
}

static pr_handled missing(pr_saga_step *step, const pr_saga_message *entry)
{
    char reason[512];
    const pr_saga_type *type = &step->saga->type;
    pr_saga_missing policy = entry->missing ? entry->missing : type->missing;
    step->counted.missing++;
    switch (policy) {
    case PR_SAGA_MISSING_CALL:
        return type->on_missing(type->user, step->scope, step->key.correlation_key);
    case PR_SAGA_MISSING_DEAD:
        pr__format(reason, sizeof reason, "there is no saga '%s' with the key '%s'",
                   step->key.saga_type, step->key.correlation_key);
        return dead(step->scope, reason);
    case PR_SAGA_MISSING_DEFAULT:
    case PR_SAGA_MISSING_IGNORE:
        break;
    }
    return PR_HANDLED_OK;
}

/* The instance of a message, made where there is none and this one starts it. */
static pr_status find(pr_saga_step *step, bool starts, bool *ret_here, pr_error *err)
{
    bool looked = pr__saga_step_loaded(step, ret_here);
    if (looked && (*ret_here || !starts))
        return PR_OK;
    if (starts)
        TRY(pr__saga_step_insert(step, ret_here, err));
    return *ret_here ? PR_OK : pr__saga_step_load(step, ret_here, err);
}

static pr_handled handle_message(pr_saga_step *step, const pr_saga_message *entry)
{
    char key[PR_SAGA_KEY_SIZE];
    pr_error local = PR_ERROR_INIT;
    bool here = false;
    bool starts = (entry->flags & PR_SAGA_STARTS) != 0;
    if (pr__saga_key_of(step->saga, entry, step->scope, key, &local) != PR_OK)
        return dead(step->scope, local.message);
    step->key.correlation_key = key;
    if (find(step, starts, &here, &local) != PR_OK)
        return refused(step->saga, step->scope, &local);
    if (here)
        return move(step, entry);
    if (starts) /* swept, or rolled back, between two statements */
        return put_off(step->scope, "the saga ended while it was looked for", LOST_MS);
    return missing(step, entry);
}

/* ---- timeouts ---- */

/* The step that armed it may not be visible yet. */
static pr_handled early(pr_saga_step *step)
{
    PR_SAGA_COUNT(step->saga, timeouts_early);
    return put_off(step->scope, "the step that armed this timeout is not visible yet", EARLY_MS);
}

static pr_handled drop(pr_saga_step *step)
{
    step->counted.timeouts_dropped++;
    return PR_HANDLED_OK;
}

static pr_handled fire(pr_saga_step *step, const pr__saga_timeout_body *body)
{
    char reason[256];
    pr_error local = PR_ERROR_INIT;
    bool complete = false;
    if (pr__saga_open_read(step, &local) != PR_OK)
        return refused(step->saga, step->scope, &local);
    if (!pr__saga_open_close(step, body->token))
        return step->row.version < body->version ? early(step) : drop(step);
    if (pr__saga_row_leased(&step->row))
        return wait_for_lease(step);
    const pr_saga_timeout *timeout = pr__saga_timeout_find(step->saga, body->name);
    if (!timeout) {
        pr__format(reason, sizeof reason, "saga '%s' has no timeout '%.63s' any more",
                   step->key.saga_type, body->name);
        return dead(step->scope, reason);
    }
    if (pr__saga_state_read(step, &local) != PR_OK || fill_in(step, &complete, &local) != PR_OK)
        return refused(step->saga, step->scope, &local);
    if (complete)
        return drop(step);
    pr_handled handled = run(step, timeout->handler);
    if (handled == PR_HANDLED_OK)
        step->counted.timeouts_fired++;
    return handled;
}

static pr_handled handle_body(pr_saga_step *step, const pr__saga_timeout_body *body)
{
    const pr_message *message = pr_scope_message(step->scope);
    pr_error local = PR_ERROR_INIT;
    bool here = false;
    if (strcmp(body->saga, step->saga->type.name) != 0)
        return drop(step);
    step->key.correlation_key = body->key;
    if (pr__saga_step_load(step, &here, &local) != PR_OK)
        return refused(step->saga, step->scope, &local);
    if (!here) {
        int64_t age_us = step->row.now_us - message->occurred_at_us;
        return age_us < step->saga->type.timeout_grace_ms * 1000 ? early(step) : drop(step);
    }
    bool same = strcmp(step->row.instance_id, body->instance) == 0;
    return same && step->row.completed_at_us == 0 ? fire(step, body) : drop(step);
}

static pr_handled handle_timeout(pr_saga_step *step)
{
    const pr_message *message = pr_scope_message(step->scope);
    const pr__saga_timeout_body *body = pr_scope_object(step->scope);
    if (body && step->saga->contracts)
        return handle_body(step, body);
    pr_decoded *decoded = NULL; /* the endpoint has no contracts: it is decoded here */
    pr_error local = PR_ERROR_INIT;
    if (pr_contract_decode(&step->saga->timeout, message, &decoded, &local) != PR_OK)
        return dead(step->scope, local.message);
    step->decoded[step->decoded_count++] = decoded;
    return handle_body(step, pr_decoded_object(decoded));
}

/* ---- the handler ---- */

/* Count what it did: of a step, when it is committed. What was rolled back did not happen; a
   message that is dead for want of an instance, or came late, is not tried again. */
static pr_handled tell(pr_saga_step *step, pr_handled handled)
{
    const pr_saga_snapshot dead = {.missing = step->counted.missing, .late = step->counted.late};
    if (handled == PR_HANDLED_OK)
        pr__saga_count_after(step->saga, step->unit, &step->counted);
    else if (handled == PR_HANDLED_PERMANENT)
        pr__saga_count(step->saga, &dead);
    return handled;
}

pr_handled pr_saga_handle(void *user, pr_scope *scope)
{
    pr_saga *saga = user;
    char reason[512];
    pr_unit *unit = NULL;
    pr_error local = PR_ERROR_INIT;
    const pr_message *message = pr_scope_message(scope);
    if (!saga || !message || pr_scope_unit_get(scope, &unit, &local) != PR_OK) {
        if (scope && pr__saga_ride_refused(scope))
            return pr__saga_ride_put_off(scope);
        return PR_HANDLED_RETRY; /* the scope keeps why there is no unit */
    }
    if (!unit->ops->saga_load)
        return dead(scope, "the store supports no sagas");
    bool timeout = saga->timeout.type && strcmp(message->type, saga->timeout.type) == 0;
    const pr_saga_message *entry = timeout ? NULL : pr__saga_message_find(saga, message->type);
    if (!timeout && !entry) {
        pr__format(reason, sizeof reason, "saga '%s' takes no '%s'", saga->type.name,
                   message->type);
        return dead(scope, reason);
    }
    AUTO_STEP step = {
        .scope = scope,
        .key = {.tenant = message->tenant ? message->tenant : "", .saga_type = saga->type.name},
        .message_id = message->id,
        .message_type = message->type};
    if (!pr__saga_step_begin(&step, saga, unit))
        return put_off(scope, "out of memory", LOST_MS);
    return tell(&step, timeout ? handle_timeout(&step) : handle_message(&step, entry));
}
