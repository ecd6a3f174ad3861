/*
 * The state of a saga: decoded by the contract of its version, brought up to the newest one, and
 * encoded by that.
 *
 * Keeps: what cannot be read is never written over: reading fails before anything else happens.
 * Must not know: stores, messages.
 */
#include <string.h>

#include "base/error.h"
#include "base/text.h"
#include "core/saga.h"

#define ORIGIN PR_SAGA_ORIGIN

static uint32_t version_of(const pr_contract *contract)
{
    return contract->type_version ? contract->type_version : 1;
}

static size_t size_of(const pr_contract *contract)
{
    return contract->flags & PR_CONTRACT_RAW ? sizeof(pr_bytes) : contract->object_size;
}

const pr_contract *pr__saga_state_newest(const pr_saga *saga)
{
    return saga->type.states[saga->type.state_count - 1].contract;
}

pr_status pr__saga_state_fresh(pr_saga_step *step, pr_error *err)
{
    step->state = pr__arena_alloc(step->arena, size_of(pr__saga_state_newest(step->saga)));
    return step->state ? PR_OK : pr__fail_nomem(err, ORIGIN);
}

static pr_status unreadable(const pr_saga_step *step, pr_status status, const char *why,
                            pr_error *err)
{
    return pr__fail(err, status, ORIGIN,
                    "the state of saga '%s', key '%s', instance %s cannot be read: %s; it was left "
                    "as it is",
                    step->key.saga_type, step->key.correlation_key, step->row.instance_id, why);
}

/* What is of no version here may be of one to come. */
static pr_status no_version(const pr_saga_step *step, pr_error *err)
{
    char why[160];
    uint32_t newest = version_of(pr__saga_state_newest(step->saga));
    bool newer = step->row.state_version > newest;
    pr__format(why, sizeof why, "it is of version %u, %s the %u of this program",
               step->row.state_version, newer ? "newer than" : "which has no contract up to",
               newest);
    return unreadable(step, newer ? PR_E_SCHEMA : PR_E_CONTENT, why, err);
}

pr_status pr__saga_state_read(pr_saga_step *step, pr_error *err)
{
    const char *type = pr__saga_state_newest(step->saga)->type;
    const pr_contract *contract = pr_contracts_find(step->saga->own, type, step->row.state_version);
    if (!contract || step->row.state_version == 0)
        return no_version(step, err);
    pr_message message =
        PR_MESSAGE(.type = type, .type_version = step->row.state_version,
                   .content_type = pr_contract_content_type(contract), .body = step->row.state,
                   .body_size_bytes = step->row.state_size);
    pr_error local = PR_ERROR_INIT;
    pr_decoded *decoded = NULL;
    pr_status status = pr_contracts_decode(step->saga->own, &message, &decoded, &local);
    if (status == PR_E_NOMEM)
        return pr__fail_nomem(err, ORIGIN);
    if (status != PR_OK)
        return unreadable(step, PR_E_CONTENT, local.message, err);
    step->decoded[step->decoded_count++] = decoded;
    step->state = pr__arena_memdup(step->arena, pr_decoded_object(decoded),
                                   size_of(pr__saga_state_newest(step->saga)));
    return step->state ? PR_OK : pr__fail_nomem(err, ORIGIN);
}

pr_status pr__saga_state_write(pr_saga_step *step, void **ret_state, size_t *ret_size,
                               pr_error *err)
{
    const pr_saga_type *type = &step->saga->type;
    pr_error local = PR_ERROR_INIT;
    pr_status status = pr_contract_encode(pr__saga_state_newest(step->saga), step->state, ret_state,
                                          ret_size, &local);
    if (status == PR_E_NOMEM)
        return pr__fail_nomem(err, ORIGIN);
    if (status != PR_OK)
        return pr__fail(err, PR_E_CONTENT, ORIGIN,
                        "the state of saga '%s', key '%s' cannot be written: %s", type->name,
                        step->key.correlation_key, local.message);
    if (*ret_size <= type->state_size_max)
        return PR_OK;
    size_t size = *ret_size;
    *ret_state = pr_free(*ret_state);
    return pr__fail(err, PR_E_LIMIT, ORIGIN,
                    "the state of saga '%s', key '%s' has %zu bytes, at most %llu", type->name,
                    step->key.correlation_key, size, (unsigned long long)type->state_size_max);
}
