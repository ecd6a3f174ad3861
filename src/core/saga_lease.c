/*
 * Steps that work outside the database: under a lease that stands in the instance's row.
 *
 * Keeps: no transaction is open while the outside is called; a save counts only by the lease's
 * token and the version that was loaded, so that whoever was taken over saves nothing; of the two,
 * the token is safety, the time is only progress.
 * Must not know: what is called outside.
 */
#include <string.h>

#include "base/error.h"
#include "base/fault.h"
#include "base/sized.h"
#include "base/text.h"
#include "core/saga.h"

#define ORIGIN PR_SAGA_ORIGIN

struct pr_saga_lease {
    pr_saga *saga;
    pr_store *store;
    pr_saga_step seen; /* as it was when the lease was taken; its unit is over */
    char token[PR_UUID_TEXT_SIZE];
    char owner[128];
    int64_t lease_ms;
    bool over; /* saved, or known to be lost */
};

DEFINE_AUTO(pr_unit, pr_unit_free);
DEFINE_AUTO(pr_saga_lease, pr_saga_lease_free);

static pr__saga_lease wire(const pr_saga_lease *lease)
{
    return (pr__saga_lease){.instance_id = lease->seen.row.instance_id,
                            .token = lease->token,
                            .owner = lease->owner,
                            .lease_ms = lease->lease_ms};
}

static pr_status lost(pr_saga_lease *lease, pr_error *err)
{
    lease->over = true;
    return pr__fail(err, PR_E_FENCED, ORIGIN,
                    "the lease of saga '%s', key '%s' was lost: another took it, or an operator "
                    "released it; nothing was saved",
                    lease->seen.key.saga_type, lease->seen.key.correlation_key);
}

static pr_status check_free(pr_saga_step *step, bool found, pr_error *err)
{
    const char *type = step->key.saga_type;
    const char *key = step->key.correlation_key;
    if (!found)
        return pr__fail(err, PR_E_NOT_FOUND, ORIGIN, "there is no saga '%s' with the key '%s'",
                        type, key);
    if (step->row.completed_at_us != 0)
        return pr__fail(err, PR_E_STATE, ORIGIN, "saga '%s', key '%s' is completed", type, key);
    if (pr__saga_row_leased(&step->row))
        return pr__fail_retry(err, PR_E_BUSY, PR_RETRY_SAME, ORIGIN,
                              "saga '%s', key '%s' is leased by '%s'", type, key,
                              step->row.lease_owner ? step->row.lease_owner : "");
    return PR_OK;
}

static pr_status take(pr_saga_lease *lease, pr_unit *unit, pr_error *err)
{
    pr_saga_step *step = &lease->seen;
    bool done = false;
    TRY(pr__saga_step_load(step, &done, err));
    TRY(check_free(step, done, err));
    TRY(pr__saga_open_read(step, err));
    if (step->row.version == 0)
        TRY(pr__saga_state_fresh(step, err));
    else
        TRY(pr__saga_state_read(step, err));
    pr__saga_new_id(lease->store, lease->token);
    pr__saga_lease held = wire(lease);
    TRY(unit->ops->saga_lease(unit, &step->key, &held, &done, err));
    if (!done)
        return pr__fail_retry(err, PR_E_BUSY, PR_RETRY_SAME, ORIGIN,
                              "saga '%s', key '%s' was leased meanwhile", step->key.saga_type,
                              step->key.correlation_key);
    PR_FAULT("saga.before_lease_commit");
    TRY(pr_unit_commit(unit, NULL, err));
    PR_FAULT("saga.after_lease_commit");
    return PR_OK;
}

static pr_status check_options(pr_saga *saga, pr_store *store, const pr_saga_lease_options *opt,
                               pr_saga_lease **ret_lease, pr_error *err)
{
    TRY(pr__sized_check(opt, sizeof *opt, "pr_saga_lease_options", ORIGIN, err));
    if (!saga || !store || !ret_lease)
        return pr__fail(err, PR_E_INVALID, ORIGIN, "saga, store or ret_lease is NULL");
    if (opt->lease_ms < 0)
        return pr__fail(err, PR_E_INVALID, ORIGIN, "lease_ms is %lld, must be > 0",
                        (long long)opt->lease_ms);
    pr__saga_key key = {.tenant = opt->tenant ? opt->tenant : "",
                        .saga_type = saga->type.name,
                        .correlation_key = opt->key};
    return pr__saga_key_check(&key, err);
}

pr_status pr_saga_lease_take(pr_saga *saga, pr_store *store, const pr_saga_lease_options *opt,
                             pr_saga_lease **ret_lease, pr_error *err)
{
    TRY(check_options(saga, store, opt, ret_lease, err));
    AUTO(pr_unit) unit = NULL;
    AUTO(pr_saga_lease) lease = pr__alloc(sizeof *lease);
    if (!lease)
        return pr__fail_nomem(err, ORIGIN);
    lease->saga = saga;
    lease->store = store;
    lease->over = true; /* nothing to give back yet */
    lease->lease_ms = opt->lease_ms ? opt->lease_ms : PR_LEASE_MS_DEFAULT;
    pr__format(lease->owner, sizeof lease->owner, "%s", opt->owner ? opt->owner : "");
    TRY(pr_unit_begin(store, &unit, err));
    if (!pr__saga_step_begin(&lease->seen, saga, unit))
        return pr__fail_nomem(err, ORIGIN);
    lease->seen.key = (pr__saga_key){
        .tenant = pr__arena_strdup(lease->seen.arena, opt->tenant ? opt->tenant : ""),
        .saga_type = saga->type.name,
        .correlation_key = pr__arena_strdup(lease->seen.arena, opt->key)};
    if (!lease->seen.key.tenant || !lease->seen.key.correlation_key)
        return pr__fail_nomem(err, ORIGIN);
    TRY(take(lease, unit, err));
    lease->seen.unit = NULL;
    lease->over = false;
    *ret_lease = TAKE(lease);
    return PR_OK;
}

const void *pr_saga_lease_state(const pr_saga_lease *lease)
{
    return lease ? lease->seen.state : NULL;
}

pr_status pr_saga_lease_renew(pr_saga_lease *lease, pr_store *store, pr_error *err)
{
    if (!lease || !store)
        return pr__fail(err, PR_E_INVALID, ORIGIN, "lease or store is NULL");
    AUTO(pr_unit) unit = NULL;
    bool kept = false;
    pr__saga_lease held = wire(lease);
    TRY(pr_unit_begin(store, &unit, err));
    TRY(unit->ops->saga_renew(unit, &lease->seen.key, &held, &kept, err));
    if (!kept)
        return pr__fail(err, PR_E_FENCED, ORIGIN, "the lease of saga '%s', key '%s' was lost",
                        lease->seen.key.saga_type, lease->seen.key.correlation_key);
    return pr_unit_commit(unit, NULL, err);
}

/* ---- saving ---- */

static pr_status run(pr_saga_lease *lease, pr_saga_step *step, pr_saga_handler handler, void *user,
                     pr_error *err)
{
    bool found = false;
    TRY(pr__saga_step_load(step, &found, err));
    if (!found || step->row.version != lease->seen.row.version ||
        strcmp(step->row.instance_id, lease->seen.row.instance_id) != 0 ||
        strcmp(step->row.lease_token, lease->token) != 0) {
        PR_SAGA_COUNT(lease->saga, lost);
        return lost(lease, err);
    }
    TRY(pr__saga_open_read(step, err));
    if (step->row.version == 0)
        TRY(pr__saga_state_fresh(step, err));
    else
        TRY(pr__saga_state_read(step, err));
    if (handler(user, step, step->state) != PR_HANDLED_OK) {
        PR_SAGA_COUNT(lease->saga, failed);
        return pr__fail(err, PR_E_STATE, ORIGIN,
                        "the step of saga '%s', key '%s' was not saved: its handler did not say OK",
                        step->key.saga_type, step->key.correlation_key);
    }
    TRY(pr__saga_step_save(step, lease->token, &found, err));
    return found ? PR_OK : lost(lease, err);
}

static void count_step(pr_saga_step *step)
{
    step->counted.stepped++;
    pr__saga_count_after(step->saga, step->unit, &step->counted);
}

pr_status pr_saga_lease_save(pr_saga_lease *lease, pr_saga_handler handler, void *user,
                             pr_error *err)
{
    if (!lease || !handler)
        return pr__fail(err, PR_E_INVALID, ORIGIN, "lease or handler is NULL");
    if (lease->over)
        return pr__fail(err, PR_E_FENCED, ORIGIN, "the lease is over: it was saved, or lost");
    AUTO(pr_unit) unit = NULL;
    pr_saga_step step = {.key = lease->seen.key};
    TRY(pr_unit_begin(lease->store, &unit, err));
    if (!pr__saga_step_begin(&step, lease->saga, unit))
        return pr__fail_nomem(err, ORIGIN);
    pr_status status = run(lease, &step, handler, user, err);
    if (status == PR_OK)
        count_step(&step);
    pr__saga_step_done(&step);
    TRY(status);
    pr_outcome outcome;
    PR_FAULT("saga.before_leased_commit");
    status = pr_unit_commit(unit, &outcome, err);
    PR_FAULT("saga.after_leased_commit");
    /* an unknown outcome is none that a second save could find out: it would be told that nothing
       was saved */
    lease->over = outcome != PR_OUTCOME_NOT_COMMITTED;
    return status;
}

static void give_back(pr_saga_lease *lease)
{
    AUTO(pr_unit) unit = NULL;
    bool released = false;
    if (pr_unit_begin(lease->store, &unit, NULL) != PR_OK)
        return;
    pr_status status =
        unit->ops->saga_unlease(unit, &lease->seen.key, lease->token, &released, NULL);
    if (status == PR_OK && released)
        (void)!pr_unit_commit(unit, NULL, NULL); /* or it expires by itself */
}

pr_saga_lease *pr_saga_lease_free(pr_saga_lease *lease)
{
    if (!lease)
        return NULL;
    if (!lease->over)
        give_back(lease);
    pr__saga_step_done(&lease->seen);
    return pr__free(lease);
}
