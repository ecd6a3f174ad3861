/*
 * Types of sagas: checked once, when the runtime is made; its counters.
 *
 * Keeps: a runtime that was made never changes but for its counters, so that any number of threads
 * may handle messages with it.
 * Must not know: stores.
 */
#include "core/saga.h"

#include <stddef.h>
#include <string.h>

#include "base/error.h"
#include "base/sized.h"
#include "base/text.h"
#include "core/saga_key.h"
#include "core/unit.h"

#define ORIGIN           PR_SAGA_ORIGIN
#define STATES_MAX       64
#define VERSIONS_LOOKED  64 /* of a message's contract, for its correlation field */
#define GRACE_MS_DEFAULT 60000

static pr_status check_name(const char *text, const char *what, size_t limit, pr_error *err)
{
    if (pr__text_empty(text))
        return pr__fail(err, PR_E_INVALID, ORIGIN, "%s is missing", what);
    size_t size = strlen(text);
    if (size > limit)
        return pr__fail(err, PR_E_LIMIT, ORIGIN, "%s has %zu bytes, at most %zu", what, size,
                        limit);
    if (!pr__utf8_valid(text, size))
        return pr__fail(err, PR_E_CONTENT, ORIGIN, "%s is not valid UTF-8", what);
    return PR_OK;
}

static uint32_t version_of(const pr_contract *contract)
{
    return contract->type_version ? contract->type_version : 1;
}

static pr_status check_state(const pr_saga *saga, size_t index, pr_error *err)
{
    const char *name = saga->type.name;
    const pr_saga_state *state = &saga->type.states[index];
    if (!state->contract)
        return pr__fail(err, PR_E_INVALID, ORIGIN, "saga '%s': state %zu has no contract", name,
                        index);
    uint32_t version = version_of(state->contract);
    if ((index > 0) != (state->upcast != NULL))
        return pr__fail(err, PR_E_INVALID, ORIGIN, "saga '%s': state version %u %s an upcast", name,
                        version, index > 0 ? "needs" : "is the first and cannot have");
    if (index == 0)
        return PR_OK;
    const pr_contract *before = saga->type.states[index - 1].contract;
    if (version != version_of(before) + 1 || !pr__text_equal(before->type, state->contract->type))
        return pr__fail(err, PR_E_INVALID, ORIGIN,
                        "saga '%s': state version %u follows %u; they are of one type, and each is "
                        "one more than the one before",
                        name, version, version_of(before));
    return PR_OK;
}

static pr_status register_states(pr_saga *saga, pr_error *err)
{
    const pr_saga_type *type = &saga->type;
    for (size_t i = 0; i < type->state_count; i++) {
        const pr_saga_state *state = &type->states[i];
        TRY(check_state(saga, i, err));
        TRY(pr_contracts_register(saga->own, state->contract, err));
        if (i > 0)
            TRY(pr_contracts_upcast(saga->own, state->contract->type,
                                    version_of(state->contract) - 1, state->upcast, type->user,
                                    err));
    }
    return PR_OK;
}

static pr_status check_states(pr_saga *saga, pr_error *err)
{
    const pr_saga_type *type = &saga->type;
    if (!type->states || type->state_count == 0 || type->state_count > STATES_MAX)
        return pr__fail(err, PR_E_INVALID, ORIGIN, "saga '%s' needs 1 to %d state contracts",
                        type->name, STATES_MAX);
    pr_status status = register_states(saga, err);
    if (status != PR_OK)
        pr__error_context(err, "the states of saga '%s'", type->name);
    return status;
}

/* At least one version of the message has the field, and each that has a table has it. */
static pr_status check_field(const pr_saga *saga, const pr_saga_message *message, pr_error *err)
{
    bool known = false;
    for (uint32_t version = 1; saga->contracts && version <= VERSIONS_LOOKED; version++) {
        const pr_contract *contract =
            pr__contracts_reached(saga->contracts, message->type, version);
        if (!contract)
            continue;
        known = true;
        if (!pr__saga_key_field(contract, message->correlation_field, NULL))
            return pr__fail(err, PR_E_INVALID, ORIGIN,
                            "saga '%s': version %u of '%s' has no text, UUID or integer '%s'",
                            saga->type.name, version, message->type, message->correlation_field);
    }
    if (known)
        return PR_OK;
    return pr__fail(err, PR_E_INVALID, ORIGIN,
                    "saga '%s': a correlation field needs a contract of '%s', and none was given",
                    saga->type.name, message->type);
}

static bool missing_known(pr_saga_missing missing)
{
    return missing >= PR_SAGA_MISSING_DEFAULT && missing <= PR_SAGA_MISSING_CALL;
}

static pr_status check_message(const pr_saga *saga, size_t index, pr_error *err)
{
    const pr_saga_type *type = &saga->type;
    const pr_saga_message *message = &type->messages[index];
    TRY(check_name(message->type, "the type of a saga's message", PR_TYPE_SIZE_MAX, err));
    if (!message->handler)
        return pr__fail(err, PR_E_INVALID, ORIGIN, "saga '%s': '%s' has no handler", type->name,
                        message->type);
    for (size_t i = 0; i < index; i++) {
        if (strcmp(type->messages[i].type, message->type) == 0)
            return pr__fail(err, PR_E_INVALID, ORIGIN, "saga '%s': '%s' stands twice", type->name,
                            message->type);
    }
    if (message->flags & ~PR_SAGA_STARTS || !missing_known(message->missing))
        return pr__fail(err, PR_E_INVALID, ORIGIN,
                        "saga '%s': '%s' has flags or a policy that are not known", type->name,
                        message->type);
    bool calls = message->missing == PR_SAGA_MISSING_CALL ||
                 (message->missing == 0 && type->missing == PR_SAGA_MISSING_CALL);
    if (calls && !type->on_missing)
        return pr__fail(err, PR_E_INVALID, ORIGIN, "saga '%s' has no on_missing to call",
                        type->name);
    if (message->correlation_field && message->correlate)
        return pr__fail(err, PR_E_INVALID, ORIGIN,
                        "saga '%s': '%s' has a correlation field and a function; give one",
                        type->name, message->type);
    return message->correlation_field ? check_field(saga, message, err) : PR_OK;
}

static pr_status check_messages(const pr_saga *saga, pr_error *err)
{
    const pr_saga_type *type = &saga->type;
    bool starts = false;
    if (!type->messages || type->message_count == 0)
        return pr__fail(err, PR_E_INVALID, ORIGIN, "saga '%s' has no messages", type->name);
    for (size_t i = 0; i < type->message_count; i++) {
        TRY(check_message(saga, i, err));
        starts = starts || (type->messages[i].flags & PR_SAGA_STARTS);
    }
    if (!starts)
        return pr__fail(err, PR_E_INVALID, ORIGIN, "saga '%s': no message starts it", type->name);
    return PR_OK;
}

static pr_status check_timeouts(pr_saga *saga, pr_contracts *contracts, pr_error *err)
{
    const pr_saga_type *type = &saga->type;
    if (!type->timeouts || type->timeout_count == 0)
        return PR_OK;
    for (size_t i = 0; i < type->timeout_count; i++) {
        const pr_saga_timeout *timeout = &type->timeouts[i];
        TRY(check_name(timeout->name, "the name of a timeout", PR_SAGA_TIMEOUT_NAME_SIZE_MAX, err));
        if (!timeout->handler)
            return pr__fail(err, PR_E_INVALID, ORIGIN, "saga '%s': timeout '%s' has no handler",
                            type->name, timeout->name);
        for (size_t k = 0; k < i; k++) {
            if (strcmp(type->timeouts[k].name, timeout->name) == 0)
                return pr__fail(err, PR_E_INVALID, ORIGIN, "saga '%s': timeout '%s' stands twice",
                                type->name, timeout->name);
        }
    }
    if (pr__text_empty(type->timeout_type))
        return pr__fail(err, PR_E_INVALID, ORIGIN,
                        "saga '%s' has timeouts, and needs a timeout_type of its own", type->name);
    saga->timeout = pr__saga_timeout_contract(type->timeout_type);
    TRY(pr_contracts_register(saga->own, &saga->timeout, err));
    return contracts ? pr_contracts_register(contracts, &saga->timeout, err) : PR_OK;
}

static pr_status check_limits(const pr_saga_type *type, pr_error *err)
{
    if (!missing_known(type->missing) || type->reuse < PR_SAGA_REUSE_LATE ||
        type->reuse > PR_SAGA_REUSE_RESTART || type->reserved != 0)
        return pr__fail(err, PR_E_INVALID, ORIGIN, "saga '%s': a policy that is not known",
                        type->name);
    if (type->state_size_max > (uint64_t)PR_BODY_SIZE_MAX)
        return pr__fail(err, PR_E_INVALID, ORIGIN,
                        "saga '%s': state_size_max is %llu, at most %lld", type->name,
                        (unsigned long long)type->state_size_max, PR_BODY_SIZE_MAX);
    if (type->timeout_grace_ms < 0)
        return pr__fail(err, PR_E_INVALID, ORIGIN, "saga '%s': timeout_grace_ms is < 0",
                        type->name);
    return PR_OK;
}

DEFINE_AUTO(pr_saga, pr_saga_free);

pr_status pr_saga_new(const pr_saga_type *type, pr_contracts *contracts, pr_saga **ret_saga,
                      pr_error *err)
{
    TRY(pr__sized_check(type, sizeof *type, "pr_saga_type", ORIGIN, err));
    if (!ret_saga)
        return pr__fail(err, PR_E_INVALID, ORIGIN, "ret_saga is NULL");
    TRY(check_name(type->name, "the name of a saga type", PR_ID_SIZE_MAX, err));
    TRY(check_limits(type, err));
    AUTO(pr_saga) saga = pr__alloc(sizeof *saga);
    if (!saga)
        return pr__fail_nomem(err, ORIGIN);
    saga->type = *type;
    saga->contracts = contracts;
    if (saga->type.missing == PR_SAGA_MISSING_DEFAULT)
        saga->type.missing = PR_SAGA_MISSING_IGNORE;
    if (saga->type.state_size_max == 0)
        saga->type.state_size_max = PR_SAGA_STATE_SIZE_DEFAULT;
    if (saga->type.timeout_grace_ms == 0)
        saga->type.timeout_grace_ms = GRACE_MS_DEFAULT;
    pthread_mutex_init(&saga->mutex, NULL);
    TRY(pr_contracts_new(&saga->own, err));
    TRY(check_states(saga, err));
    TRY(check_messages(saga, err));
    TRY(check_timeouts(saga, contracts, err));
    *ret_saga = TAKE(saga);
    return PR_OK;
}

pr_saga *pr_saga_free(pr_saga *saga)
{
    if (!saga)
        return NULL;
    pr_contracts_free(saga->own);
    pthread_mutex_destroy(&saga->mutex);
    return pr__free(saga);
}

#define COUNTERS_OFFSET offsetof(pr_saga_snapshot, started) /* all behind it are counters */

void pr__saga_count(pr_saga *saga, const pr_saga_snapshot *counted)
{
    pthread_mutex_lock(&saga->mutex);
    for (size_t at = COUNTERS_OFFSET; at < sizeof *counted; at += sizeof(uint64_t)) {
        uint64_t sum, more;
        memcpy(&sum, (const char *)&saga->counters + at, sizeof sum);
        memcpy(&more, (const char *)counted + at, sizeof more);
        sum += more;
        memcpy((char *)&saga->counters + at, &sum, sizeof sum);
    }
    pthread_mutex_unlock(&saga->mutex);
}

static void count_committed(void *user, void *data)
{
    pr__saga_count(user, data);
}

void pr__saga_count_after(pr_saga *saga, pr_unit *unit, const pr_saga_snapshot *counted)
{
    pr_saga_snapshot *copy = pr__memdup(counted, sizeof *counted);
    if (!copy || pr__unit_after_commit(unit, count_committed, saga, copy, NULL) != PR_OK)
        pr__saga_count(saga, counted); /* no memory: rather too early than not at all */
}

pr_status pr_saga_snapshot_get(pr_saga *saga, pr_saga_snapshot *ret_snapshot, pr_error *err)
{
    if (!saga || !ret_snapshot || ret_snapshot->size < sizeof *ret_snapshot)
        return pr__fail(err, PR_E_INVALID, ORIGIN,
                        "saga is NULL, or size of pr_saga_snapshot is not set");
    uint32_t size = ret_snapshot->size;
    pthread_mutex_lock(&saga->mutex);
    *ret_snapshot = saga->counters;
    pthread_mutex_unlock(&saga->mutex);
    ret_snapshot->size = size;
    return PR_OK;
}
