/*
 * A saga's row on its way with the message: loaded by the way in, saved by the way out.
 *
 * Keeps: what was loaded is used once, by a step of the same key in the same unit; a save that
 * waits is done before anybody else gets the unit, or with the commit, or nothing is committed.
 * Must not know: how a store does two things at once.
 */
#include "core/saga_ride.h"

#include <string.h>

#include "base/assert.h"
#include "base/error.h"
#include "base/text.h"
#include "core/unit.h"

#define ORIGIN  PR_SAGA_ORIGIN
#define MOVED   "another has moved the saga meanwhile"
#define LOST_MS 50

static pr__saga_ride *ride_of(pr_scope *scope)
{
    if (!scope->ride)
        scope->ride = pr__alloc(sizeof *scope->ride);
    return scope->ride;
}

/* ---- in ---- */

/* The key of a timeout stands in its body. */
static bool key_of_timeout(const pr_saga *saga, pr_scope *scope, char ret_key[PR_SAGA_KEY_SIZE])
{
    if (!saga->contracts || !pr__scope_decode_early(scope))
        return false;
    const pr__saga_timeout_body *body = pr_scope_object(scope);
    if (!body || !body->key || !pr__text_equal(body->saga, saga->type.name))
        return false;
    pr__format(ret_key, PR_SAGA_KEY_SIZE, "%s", body->key);
    return strcmp(ret_key, body->key) == 0;
}

/* A function of the host's is not asked before its time: it may look at what it likes. */
static bool key_of(const pr_saga *saga, pr_scope *scope, bool may_decode,
                   char ret_key[PR_SAGA_KEY_SIZE])
{
    const pr_message *message = scope->message;
    if (saga->timeout.type && strcmp(message->type, saga->timeout.type) == 0)
        return may_decode && key_of_timeout(saga, scope, ret_key);
    const pr_saga_message *entry = pr__saga_message_find(saga, message->type);
    if (!entry || entry->correlate)
        return false;
    if (entry->correlation_field && (!may_decode || !pr__scope_decode_early(scope)))
        return false;
    return pr__saga_key_of(saga, entry, scope, ret_key, NULL) == PR_OK;
}

void pr__saga_ride_ask(pr_saga *saga, pr_scope *scope, bool may_decode)
{
    char key[PR_SAGA_KEY_SIZE];
    const pr_message *message = scope->message;
    if (!saga || !scope->store->ops->unit_enter || !message->type ||
        !key_of(saga, scope, may_decode, key))
        return;
    pr__saga_ride *ride = ride_of(scope);
    if (!ride)
        return;
    memcpy(ride->key_text, key, sizeof ride->key_text);
    ride->key = (pr__saga_key){.tenant = message->tenant ? message->tenant : "",
                               .saga_type = saga->type.name,
                               .correlation_key = ride->key_text};
    if (!ride->look.arena)
        ride->look.arena = pr__arena_new(0);
    ride->look.key = &ride->key;
    ride->look.loaded = false;
    scope->inbox->look = ride->look.arena ? &ride->look : NULL;
}

static bool same_key(const pr__saga_key *a, const pr__saga_key *b)
{
    return strcmp(a->correlation_key, b->correlation_key) == 0 &&
           strcmp(a->saga_type, b->saga_type) == 0 && strcmp(a->tenant, b->tenant) == 0;
}

bool pr__saga_ride_loaded(pr_scope *scope, const pr__saga_key *key, bool *ret_found,
                          pr__saga_row *ret_row)
{
    pr__saga_ride *ride = scope ? scope->ride : NULL;
    if (!ride || !ride->look.loaded)
        return false;
    ride->look.loaded = false;
    if (!same_key(&ride->key, key))
        return false;
    *ret_found = ride->look.found;
    *ret_row = ride->look.row;
    return true;
}

/* ---- out ---- */

bool pr__saga_ride_may_wait(const pr_saga_step *step)
{
    const pr_scope *scope = step->scope;
    return scope && scope->inbox && scope->in_inbox && !scope->shared &&
           scope->unit_state == PR__UNIT_OPEN && scope->unit == step->unit &&
           step->unit->ops->inbox_complete;
}

static pr_status keep_texts(const pr_saga_step *step, pr__saga_ride *ride, pr_error *err)
{
    pr__arena *arena = step->arena;
    pr__saga_save *save = &ride->change.save;
    const char *restart = save->restart_id;
    ride->change_key = step->key;
    ride->change_key.correlation_key = pr__arena_strdup(arena, step->key.correlation_key);
    save->instance_id = pr__arena_strdup(arena, save->instance_id);
    save->restart_id = pr__arena_strdup(arena, restart);
    if (!ride->change_key.correlation_key || !save->instance_id || (restart && !save->restart_id))
        return pr__fail_nomem(err, ORIGIN);
    return PR_OK;
}

static void forget_save(pr_scope *scope)
{
    pr__saga_ride *ride = scope->ride;
    scope->inbox->change = NULL;
    ride->saga = NULL;
    ride->state = pr__free(ride->state);
    ride->arena = pr__arena_free(ride->arena);
}

pr_status pr__saga_ride_wait(pr_saga_step *step, const pr__saga_save *save, void *state,
                             pr_error *err)
{
    pr_scope *scope = step->scope;
    pr__saga_ride *ride = ride_of(scope);
    if (!ride)
        return pr__fail_nomem(err, ORIGIN);
    pr_assert(!ride->saga); /* it was flushed when the unit was asked for */
    ride->change.save = *save;
    TRY(keep_texts(step, ride, err));
    ride->change.key = &ride->change_key;
    ride->saga = step->saga;
    ride->state = state;
    ride->arena = step->arena;
    step->arena = NULL;
    scope->inbox->change = &ride->change;
    return PR_OK;
}

pr_status pr__saga_ride_flush(pr_scope *scope, pr_error *err)
{
    pr__saga_ride *ride = scope->ride;
    if (!ride || !ride->saga)
        return PR_OK;
    bool saved = false;
    pr_error local = PR_ERROR_INIT;
    pr_status status = scope->unit->ops->saga_save(scope->unit, ride->change.key,
                                                   &ride->change.save, &saved, &local);
    if (status == PR_OK && !saved) {
        PR_SAGA_COUNT(ride->saga, lost);
        ride->refused = true;
        status = pr__fail_retry(&local, PR_E_BUSY, PR_RETRY_SAME, ORIGIN, "%s", MOVED);
    }
    forget_save(scope);
    if (status == PR_OK)
        return PR_OK;
    pr__unit_spoil(scope->unit, local.message);
    pr__error_copy(err, &local);
    return status;
}

bool pr__saga_ride_refused(const pr_scope *scope)
{
    return scope->ride && scope->ride->refused;
}

pr_handled pr__saga_ride_put_off(pr_scope *scope)
{
    pr_scope_fail(scope, MOVED, LOST_MS);
    return PR_HANDLED_DEFER;
}

pr_handled pr__saga_ride_lost(pr_scope *scope)
{
    if (scope->ride && scope->ride->saga)
        PR_SAGA_COUNT(scope->ride->saga, lost);
    return pr__saga_ride_put_off(scope);
}

void pr__saga_ride_done(pr_scope *scope)
{
    pr__saga_ride *ride = scope->ride;
    if (!ride)
        return;
    forget_save(scope);
    scope->inbox->look = NULL;
    pr__arena_free(ride->look.arena);
    scope->ride = pr__free(ride);
}
