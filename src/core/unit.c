/*
 * Units of work: their life, nesting, the context that messages inherit, and the three outcomes.
 *
 * Keeps: a unit ends once; whatever failed inside makes it rollback-only, whoever ignores the
 * error; events leave their aggregate only when the outcome is "committed"; the doorbell rings
 * after the commit, never inside.
 * Must not know: which database it is, what a message is made of.
 */
#include "core/unit.h"

#include <string.h>

#include "base/error.h"
#include "base/fault.h"
#include "base/sized.h"
#include "base/text.h"

#define ORIGIN "unit"

/* ---- core's part ---- */

pr_status pr__unit_core_get(pr_unit *unit, pr__unit_core **ret_core, pr_error *err)
{
    pr__unit_core *core = unit->core ? unit->core : pr__alloc(sizeof *core);
    if (!core) {
        (void)pr__fail_nomem(err, ORIGIN);
        return PR_E_NOMEM;
    }
    unit->core = core;
    *ret_core = core;
    return PR_OK;
}

static void core_free(pr_unit *unit)
{
    if (!unit->core)
        return;
    pr__arena_free(unit->core->context_arena);
    pr__free(unit->core->tracked);
    pr__unit_after_forget(unit, 0);
    pr__free(unit->core->after);
    unit->core = pr__free(unit->core);
}

pr_unit *pr__unit_root(pr_unit *unit)
{
    while (unit->outer)
        unit = unit->outer;
    return unit;
}

void pr__unit_spoil(pr_unit *unit, const char *reason)
{
    for (pr_unit *each = unit; each; each = each->outer) {
        each->rollback_only = true;
        if (each->core && each->core->reason[0] == '\0')
            pr__one_line(each->core->reason, sizeof each->core->reason, reason, strlen(reason));
    }
}

static const char *spoil_reason(const pr_unit *unit)
{
    bool known = unit->core && unit->core->reason[0] != '\0';
    return known ? unit->core->reason : "something in it failed before";
}

static pr_status check_unit(const pr_unit *unit, pr_error *err)
{
    if (!unit)
        return pr__fail(err, PR_E_INVALID, ORIGIN, "the unit is NULL");
    return PR_OK;
}

static pr_status check_open(const pr_unit *unit, pr_error *err)
{
    for (const pr_unit *each = unit; each; each = each->outer) {
        if (each->finished)
            return pr__fail(err, PR_E_STATE, ORIGIN, "the unit is finished; begin another one");
    }
    return PR_OK;
}

static pr_status check_sound(const pr_unit *unit, pr_error *err)
{
    for (const pr_unit *each = unit; each; each = each->outer) {
        if (each->rollback_only)
            return pr__fail(err, PR_E_STATE, ORIGIN, "the unit can only be rolled back: %s",
                            spoil_reason(each));
    }
    return PR_OK;
}

pr_status pr__unit_usable(pr_unit *unit, pr_error *err)
{
    TRY(check_unit(unit, err));
    TRY(check_open(unit, err));
    TRY(check_sound(unit, err));
    pr_unit *root = pr__unit_root(unit);
    return root->ops->live(root, err);
}

/* ---- begin and nest ---- */

pr_status pr_unit_begin(pr_store *store, pr_unit **ret_unit, pr_error *err)
{
    return pr__store_unit_begin(store, ret_unit, err);
}

static void nested_free(pr_unit *unit)
{
    pr__free(unit);
}

static const pr__unit_ops nested_ops = {.free = nested_free};

pr_status pr_unit_nest(pr_unit *outer, pr_unit **ret_unit, pr_error *err)
{
    if (!ret_unit)
        return pr__fail(err, PR_E_INVALID, ORIGIN, "ret_unit is NULL");
    TRY(pr__unit_usable(outer, err));
    pr__unit_core *outer_core = NULL;
    TRY(pr__unit_core_get(outer, &outer_core, err));
    pr_unit *unit = pr__alloc(sizeof *unit);
    if (!unit)
        return pr__fail_nomem(err, ORIGIN);
    pr__unit_init(unit, &nested_ops, outer->store, outer->joined);
    unit->outer = outer;
    outer_core->nested_open++;
    *ret_unit = unit;
    return PR_OK;
}

/* ---- context ---- */

static pr_status check_context(const pr_unit_context *context, pr_error *err)
{
    TRY(pr__sized_check(context, sizeof *context, "pr_unit_context", ORIGIN, err));
    /* the limits of a context are those of the messages that inherit it */
    pr_message probe = PR_MESSAGE(.type = "urn:message:postroom:context", .type_version = 1);
    probe.correlation_id = context->correlation_id;
    probe.causation_id = context->causation_id;
    probe.traceparent = context->traceparent;
    probe.tracestate = context->tracestate;
    probe.tenant = context->tenant;
    probe.source = context->source;
    pr_status status = pr_message_check(&probe, 0, err);
    if (status != PR_OK)
        pr__error_context(err, "the unit's context");
    return status;
}

/* Copy a text into the arena; false when out of memory. */
static bool keep_text(pr__arena *arena, const char *text, const char **ret_copy)
{
    *ret_copy = pr__arena_strdup(arena, text);
    return !text || *ret_copy;
}

pr_status pr_unit_set_context(pr_unit *unit, const pr_unit_context *context, pr_error *err)
{
    TRY(check_unit(unit, err));
    TRY(check_open(unit, err));
    TRY(check_context(context, err));
    pr__unit_core *core = NULL;
    TRY(pr__unit_core_get(unit, &core, err));
    AUTO(pr__arena) arena = pr__arena_new(1024);
    pr_unit_context copy = {.size = (uint32_t)sizeof copy};
    bool kept = arena && keep_text(arena, context->correlation_id, &copy.correlation_id) &&
                keep_text(arena, context->causation_id, &copy.causation_id) &&
                keep_text(arena, context->traceparent, &copy.traceparent) &&
                keep_text(arena, context->tracestate, &copy.tracestate) &&
                keep_text(arena, context->tenant, &copy.tenant) &&
                keep_text(arena, context->source, &copy.source);
    if (!kept)
        return pr__fail_nomem(err, ORIGIN);
    pr__arena_free(core->context_arena);
    core->context_arena = TAKE(arena);
    core->context = copy;
    return PR_OK;
}

const pr_unit_context *pr__unit_context(const pr_unit *unit)
{
    static const pr_unit_context none = {.size = (uint32_t)sizeof none};
    for (const pr_unit *each = unit; each; each = each->outer) {
        if (each->core && each->core->context_arena)
            return &each->core->context;
    }
    return &none;
}

/* ---- the end ---- */

pr_status pr__unit_guard(pr_unit *unit, pr_error *err)
{
    pr__unit_core *core = NULL;
    TRY(pr__unit_core_get(unit, &core, err));
    core->guarded = true;
    return PR_OK;
}

void pr__unit_unguard(pr_unit *unit)
{
    if (unit->core)
        unit->core->guarded = false;
}

static pr_status check_guard(pr_unit *unit, const char *call, pr_error *err)
{
    if (!unit->core || !unit->core->guarded)
        return PR_OK;
    char reason[128];
    pr__format(reason, sizeof reason, "the handler called %s; the endpoint ends the unit", call);
    pr__unit_spoil(unit, reason);
    return pr__fail(err, PR_E_STATE, ORIGIN, "%s", reason);
}

static pr_status check_no_nested(const pr_unit *unit, pr_error *err)
{
    if (unit->core && unit->core->nested_open > 0)
        return pr__fail(err, PR_E_STATE, ORIGIN,
                        "%u nested units are still open; commit or free them first",
                        unit->core->nested_open);
    return PR_OK;
}

pr_status pr__unit_after_commit(pr_unit *unit, void (*call)(void *user, void *data), void *user,
                                void *data, pr_error *err)
{
    pr__unit_core *core = NULL;
    AUTO(void) owned = data;
    TRY(pr__unit_core_get(pr__unit_root(unit), &core, err));
    pr__after_commit *grown =
        pr__realloc_array(core->after, core->after_count + 1, sizeof *core->after);
    if (!grown)
        return pr__fail_nomem(err, ORIGIN);
    core->after = grown;
    core->after[core->after_count++] =
        (pr__after_commit){.call = call, .user = user, .data = TAKE(owned)};
    return PR_OK;
}

size_t pr__unit_after_count(pr_unit *unit)
{
    const pr_unit *root = pr__unit_root(unit);
    return root->core ? root->core->after_count : 0;
}

void pr__unit_after_forget(pr_unit *unit, size_t kept)
{
    pr__unit_core *core = pr__unit_root(unit)->core;
    while (core && core->after_count > kept)
        pr__free(core->after[--core->after_count].data);
}

static void call_after_commit(const pr_unit *unit)
{
    for (size_t i = 0; unit->core && i < unit->core->after_count; i++)
        unit->core->after[i].call(unit->core->after[i].user, unit->core->after[i].data);
}

/* Tell everybody how the outermost unit's transaction ended. */
static void settle(pr_unit *unit, pr_outcome outcome)
{
    unit->finished = true;
    pr__events_settle(unit, outcome == PR_OUTCOME_COMMITTED);
    if (outcome == PR_OUTCOME_COMMITTED)
        call_after_commit(unit);
    uint64_t count = unit->core ? unit->core->enqueued_count : 0;
    if (count == 0 || outcome == PR_OUTCOME_NOT_COMMITTED)
        return;
    /* an unknown outcome rings too: a wake-up for nothing does no harm */
    pr__store_ring(unit->store);
    if (outcome == PR_OUTCOME_COMMITTED) {
        pr_observation observation = {
            .size = (uint32_t)sizeof observation, .kind = PR_OBSERVE_ENQUEUED, .count = count};
        pr__observe(unit->store->observer, &observation);
    }
}

static void roll_back_quietly(pr_unit *unit)
{
    pr_error ignored = PR_ERROR_INIT;
    pr_status status = unit->ops->rollback(unit, &ignored);
    (void)status; /* what cannot be rolled back is rolled back by the database itself */
    settle(unit, PR_OUTCOME_NOT_COMMITTED);
}

/* End a nested unit. One that failed takes the outer one with it. */
static void end_nested(pr_unit *unit, bool good, const char *reason)
{
    if (!good)
        pr__unit_spoil(unit, reason);
    unit->finished = true;
    pr__events_hand_over(unit);
    if (unit->outer->core && unit->outer->core->nested_open > 0)
        unit->outer->core->nested_open--;
}

static pr_status commit_nested(pr_unit *unit, pr_outcome *outcome, pr_error *err)
{
    pr_status status = check_sound(unit, err);
    if (status == PR_OK)
        status = pr__events_flush(unit, err);
    end_nested(unit, status == PR_OK, "events of a nested unit could not be enqueued");
    /* it goes the way of the outer one */
    *outcome = status == PR_OK ? PR_OUTCOME_COMMITTED : PR_OUTCOME_NOT_COMMITTED;
    return status;
}

/* The transaction is no longer what the unit began: nothing more may be written, or it would stand
   without its business rows. The adapter knows whether it can have been committed. */
static pr_status commit_dead(pr_unit *unit, pr_status status, pr_outcome *outcome)
{
    *outcome = PR_OUTCOME_UNKNOWN;
    pr_status ignored = unit->ops->commit(unit, outcome, NULL);
    (void)ignored;
    settle(unit, *outcome);
    return status;
}

/* How the inbox wants it committed; end NULL = plainly. */
typedef struct commit_way {
    const pr__inbox_end *end;
    pr__inbox_check *ret_check;
} commit_way;

static pr_status commit_outermost(pr_unit *unit, commit_way way, pr_outcome *outcome, pr_error *err)
{
    pr_status status = unit->ops->live(unit, err);
    if (status != PR_OK)
        return commit_dead(unit, status, outcome);
    status = check_sound(unit, err);
    if (status == PR_OK)
        status = pr__events_flush(unit, err);
    if (status != PR_OK) {
        roll_back_quietly(unit);
        return status;
    }
    PR_FAULT("unit.before_commit");
    *outcome = PR_OUTCOME_UNKNOWN;
    status = way.end ? unit->ops->inbox_complete(unit, way.end, way.ret_check, outcome, err)
                     : unit->ops->commit(unit, outcome, err);
    PR_FAULT("unit.after_commit");
    if (*outcome == PR_OUTCOME_NOT_COMMITTED && unit->ops->live(unit, NULL) == PR_OK)
        roll_back_quietly(unit);
    else
        settle(unit, *outcome);
    return status;
}

static pr_status commit_by(pr_unit *unit, commit_way way, pr_outcome *ret_outcome, pr_error *err)
{
    pr_outcome unwanted = PR_OUTCOME_NOT_COMMITTED;
    pr_outcome *outcome = ret_outcome ? ret_outcome : &unwanted;
    *outcome = PR_OUTCOME_NOT_COMMITTED;
    TRY(check_unit(unit, err));
    TRY(check_open(unit, err));
    TRY(check_guard(unit, "pr_unit_commit", err));
    TRY(check_no_nested(unit, err));
    if (unit->outer)
        return commit_nested(unit, outcome, err);
    if (unit->joined)
        return pr__fail(err, PR_E_STATE, ORIGIN,
                        "the unit is joined: commit your own transaction, then call "
                        "pr_unit_finished");
    return commit_outermost(unit, way, outcome, err);
}

pr_status pr_unit_commit(pr_unit *unit, pr_outcome *ret_outcome, pr_error *err)
{
    return commit_by(unit, (commit_way){.end = NULL}, ret_outcome, err);
}

pr_status pr__unit_complete(pr_unit *unit, const pr__inbox_end *end, pr__inbox_check *ret_check,
                            pr_outcome *ret_outcome, pr_error *err)
{
    *ret_check = PR__INBOX_KEPT;
    return commit_by(unit, (commit_way){.end = end, .ret_check = ret_check}, ret_outcome, err);
}

pr_status pr_unit_rollback(pr_unit *unit, pr_error *err)
{
    TRY(check_unit(unit, err));
    TRY(check_open(unit, err));
    TRY(check_guard(unit, "pr_unit_rollback", err));
    if (unit->outer) {
        end_nested(unit, false, "a nested unit was rolled back");
        return PR_OK;
    }
    if (unit->joined)
        return pr__fail(err, PR_E_STATE, ORIGIN,
                        "the unit is joined: roll your own transaction back, then call "
                        "pr_unit_finished");
    pr_status status = unit->ops->rollback(unit, err);
    settle(unit, PR_OUTCOME_NOT_COMMITTED);
    return status;
}

pr_status pr_unit_finished(pr_unit *unit, pr_outcome outcome, pr_error *err)
{
    TRY(check_unit(unit, err));
    if (outcome < PR_OUTCOME_COMMITTED || outcome > PR_OUTCOME_UNKNOWN)
        return pr__fail(err, PR_E_INVALID, ORIGIN, "outcome %d is none", (int)outcome);
    if (!unit->joined || unit->outer)
        return pr__fail(err, PR_E_STATE, ORIGIN,
                        "the unit is not joined: end it with pr_unit_commit or pr_unit_rollback");
    if (unit->finished)
        return pr__fail(err, PR_E_STATE, ORIGIN, "the unit was told its outcome before");
    settle(unit, outcome);
    return PR_OK;
}

pr_unit *pr_unit_free(pr_unit *unit)
{
    if (!unit || check_guard(unit, "pr_unit_free", NULL) != PR_OK)
        return NULL;
    if (!unit->finished && unit->outer)
        end_nested(unit, false, "a nested unit was freed without a commit");
    else if (!unit->finished && !unit->joined)
        roll_back_quietly(unit);
    core_free(unit);
    unit->ops->free(unit);
    return NULL;
}
