/*
 * Steps of sagas, for their suite.
 */
#include "contract/saga_steps.h"

pr__saga_key saga_key_of(const char *key)
{
    return (pr__saga_key){.tenant = "", .saga_type = SAGA_TYPE, .correlation_key = key};
}

bool saga_load_in(pr_unit *unit, const char *key, pr__arena *arena, pr__saga_row *ret_row)
{
    pr__saga_key whole = saga_key_of(key);
    bool found = false;
    pr_error err = PR_ERROR_INIT;
    check_ok(unit->ops->saga_load(unit, &whole, arena, &found, ret_row, &err), &err, key);
    return found;
}

bool saga_load_now(pr_store *store, const char *key, pr__saga_row *ret_row)
{
    pr_unit *unit = begin_unit(store);
    pr__arena *arena = pr__arena_new(0);
    assert_non_null(arena);
    bool found = saga_load_in(unit, key, arena, ret_row);
    commit_unit(unit);
    ret_row->state = NULL;
    ret_row->timeouts = ret_row->last_messages = ret_row->lease_owner = NULL;
    pr__arena_free(arena);
    return found;
}

bool saga_insert_in(pr_unit *unit, const char *key, const char *instance_id)
{
    pr__saga_key whole = saga_key_of(key);
    bool inserted = false;
    int64_t now_us = 0;
    pr_error err = PR_ERROR_INIT;
    check_ok(unit->ops->saga_insert(unit, &whole, instance_id, &inserted, &now_us, &err), &err,
             key);
    return inserted;
}

bool saga_save_in(pr_unit *unit, const char *key, const pr__saga_save *save)
{
    pr__saga_key whole = saga_key_of(key);
    bool saved = false;
    pr_error err = PR_ERROR_INIT;
    check_ok(unit->ops->saga_save(unit, &whole, save, &saved, &err), &err, key);
    return saved;
}

bool saga_save_now(pr_store *store, const char *key, const pr__saga_save *save)
{
    pr_unit *unit = begin_unit(store);
    bool saved = saga_save_in(unit, key, save);
    commit_unit(unit);
    return saved;
}

pr__saga_save saga_state(const char *instance_id, int64_t version, const char *state)
{
    return (pr__saga_save){.instance_id = instance_id,
                           .version = version,
                           .state_version = 1,
                           .state = state,
                           .state_size = strlen(state),
                           .timeouts = "[]",
                           .last_messages = "[]"};
}

void saga_start(pr_store *store, const char *key, const char *instance_id, const char *state)
{
    pr_unit *unit = begin_unit(store);
    assert_true(saga_insert_in(unit, key, instance_id));
    pr__saga_save save = saga_state(instance_id, 0, state);
    assert_true(saga_save_in(unit, key, &save));
    commit_unit(unit);
}

bool saga_lease_now(pr_store *store, const char *key, const char *token, int64_t lease_ms)
{
    pr__saga_key whole = saga_key_of(key);
    pr__saga_lease lease = {
        .instance_id = INSTANCE_1, .token = token, .owner = "worker", .lease_ms = lease_ms};
    bool taken = false;
    pr_error err = PR_ERROR_INIT;
    pr_unit *unit = begin_unit(store);
    check_ok(unit->ops->saga_lease(unit, &whole, &lease, &taken, &err), &err, "lease");
    commit_unit(unit);
    return taken;
}

bool saga_renew_now(pr_store *store, const char *key, const char *token, int64_t lease_ms)
{
    pr__saga_key whole = saga_key_of(key);
    pr__saga_lease lease = {.instance_id = INSTANCE_1, .token = token, .lease_ms = lease_ms};
    bool kept = false;
    pr_error err = PR_ERROR_INIT;
    pr_unit *unit = begin_unit(store);
    check_ok(unit->ops->saga_renew(unit, &whole, &lease, &kept, &err), &err, "renew");
    commit_unit(unit);
    return kept;
}

bool saga_unlease_now(pr_store *store, const char *key, const char *token)
{
    pr__saga_key whole = saga_key_of(key);
    bool released = false;
    pr_error err = PR_ERROR_INIT;
    pr_unit *unit = begin_unit(store);
    check_ok(unit->ops->saga_unlease(unit, &whole, token, &released, &err), &err, "unlease");
    commit_unit(unit);
    return released;
}
