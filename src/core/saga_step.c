/*
 * One step of one instance: its row, loaded under a lock, and saved with version + 1.
 *
 * Keeps: a row is saved only as it was loaded, and the counters tell of it when it was refused;
 * with completion every open timeout is closed.
 * Must not know: where the step comes from, a message or a lease.
 */
#include <string.h>

#include "base/error.h"
#include "base/fault.h"
#include "base/text.h"
#include "core/saga.h"
#include "core/saga_ride.h"

#define ORIGIN PR_SAGA_ORIGIN

bool pr__saga_step_begin(pr_saga_step *step, pr_saga *saga, pr_unit *unit)
{
    step->saga = saga;
    step->unit = unit;
    step->arena = pr__arena_new(0);
    return step->arena != NULL;
}

void pr__saga_step_done(pr_saga_step *step)
{
    while (step->decoded_count > 0)
        pr_decoded_free(step->decoded[--step->decoded_count]);
    step->arena = pr__arena_free(step->arena);
}

void pr__saga_new_id(const pr_store *store, char out[PR_UUID_TEXT_SIZE])
{
    uint8_t random[10];
    store->random->fill(store->random->user, random, sizeof random);
    pr__uuid7(store->clock->wall_us(store->clock->user), random, out);
}

static const pr__unit_ops *ops_of(const pr_saga_step *step)
{
    return step->unit->ops;
}

pr_status pr__saga_step_insert(pr_saga_step *step, bool *ret_inserted, pr_error *err)
{
    char id[PR_UUID_TEXT_SIZE];
    int64_t now_us = 0;
    pr__saga_new_id(step->unit->store, id);
    TRY(ops_of(step)->saga_insert(step->unit, &step->key, id, ret_inserted, &now_us, err));
    if (!*ret_inserted)
        return PR_OK;
    step->row = (pr__saga_row){
        .now_us = now_us, .started_at_us = now_us, .timeouts = "[]", .last_messages = "[]"};
    memcpy(step->row.instance_id, id, sizeof id);
    step->fresh = true;
    PR_FAULT("saga.after_insert");
    return PR_OK;
}

bool pr__saga_step_loaded(pr_saga_step *step, bool *ret_found)
{
    if (!pr__saga_ride_loaded(step->scope, &step->key, ret_found, &step->row))
        return false;
    PR_FAULT("saga.after_load");
    return true;
}

pr_status pr__saga_step_load(pr_saga_step *step, bool *ret_found, pr_error *err)
{
    if (pr__saga_step_loaded(step, ret_found))
        return PR_OK;
    TRY(ops_of(step)->saga_load(step->unit, &step->key, step->arena, ret_found, &step->row, err));
    PR_FAULT("saga.after_load");
    return PR_OK;
}

bool pr__saga_row_leased(const pr__saga_row *row)
{
    return row->lease_token[0] != '\0' && row->lease_until_us > row->now_us;
}

const char *pr__saga_step_instance(const pr_saga_step *step)
{
    return step->restart_id[0] ? step->restart_id : step->row.instance_id;
}

/* At once, or with the commit. */
static pr_status save_row(pr_saga_step *step, const pr__saga_save *save, void **state,
                          bool *ret_saved, pr_error *err)
{
    PR_FAULT("saga.before_save");
    *ret_saved = true;
    if (!save->lease_token && pr__saga_ride_may_wait(step)) {
        TRY(pr__saga_ride_wait(step, save, *state, err));
        *state = NULL;
    } else {
        TRY(ops_of(step)->saga_save(step->unit, &step->key, save, ret_saved, err));
    }
    PR_FAULT("saga.after_save");
    if (!*ret_saved)
        PR_SAGA_COUNT(step->saga, lost);
    return PR_OK;
}

pr_status pr__saga_step_save(pr_saga_step *step, const char *lease_token, bool *ret_saved,
                             pr_error *err)
{
    const pr_saga_type *type = &step->saga->type;
    AUTO(void) state = NULL;
    size_t size = 0;
    bool complete = step->complete || (type->complete && type->complete(type->user, step->state));
    TRY(pr__saga_state_write(step, &state, &size, err));
    if (complete)
        pr__saga_open_close_all(step);
    const pr_contract *newest = pr__saga_state_newest(step->saga);
    pr__saga_save save = {
        .instance_id = step->row.instance_id,
        .version = step->row.version,
        .lease_token = lease_token,
        .restart_id = step->restart_id[0] ? step->restart_id : NULL,
        .state_version = newest->type_version ? newest->type_version : 1,
        .complete = complete,
        .state = state,
        .state_size = size,
        .timeouts = pr__saga_open_write(step),
        .last_messages = pr__saga_messages_write(step),
    };
    if (!save.timeouts || !save.last_messages)
        return pr__fail_nomem(err, ORIGIN);
    TRY(save_row(step, &save, &state, ret_saved, err));
    if (*ret_saved && complete)
        step->counted.completed++;
    return PR_OK;
}

/* ---- what a handler sees ---- */

pr_scope *pr_saga_step_scope(pr_saga_step *step)
{
    return step ? step->scope : NULL;
}

pr_unit *pr_saga_step_unit(pr_saga_step *step)
{
    return step ? step->unit : NULL;
}

const char *pr_saga_step_key(const pr_saga_step *step)
{
    return step ? step->key.correlation_key : NULL;
}

const char *pr_saga_step_instance_id(const pr_saga_step *step)
{
    return step ? pr__saga_step_instance(step) : NULL;
}

int64_t pr_saga_step_version(const pr_saga_step *step)
{
    return step && !step->fresh ? step->row.version : 0;
}

int64_t pr_saga_step_now_us(const pr_saga_step *step)
{
    return step ? step->row.now_us : 0;
}

void *pr_saga_step_alloc(pr_saga_step *step, size_t size)
{
    return step ? pr__arena_alloc(step->arena, size) : NULL;
}

const char *pr_saga_step_text(pr_saga_step *step, const char *text)
{
    return step ? pr__arena_strdup(step->arena, text) : NULL;
}

void pr_saga_step_complete(pr_saga_step *step)
{
    if (step)
        step->complete = true;
}
