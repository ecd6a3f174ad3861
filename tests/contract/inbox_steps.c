/*
 * Steps of the inbox, for its suite.
 */
#include "contract/inbox_steps.h"

#include "base/text.h"

const pr__inbox_key inbox_base_key = {.tenant = "", .consumer = CONSUMER, .message_id = "m-1"};

pr__inbox_key inbox_key_of(const char *id)
{
    pr__inbox_key key = inbox_base_key;
    key.message_id = id;
    return key;
}

pr_message inbox_message(const char *id, const char *key, const char *body)
{
    return (pr_message)PR_MESSAGE(.id = id, .type = TYPE_PLACED, .type_version = 1,
                                  .content_type = "application/json",
                                  .destination = "memory://in/billing", .key = key, .body = body,
                                  .body_size_bytes = strlen(body),
                                  .occurred_at_us = 1700000000123456);
}

void inbox_hash(const char *body, uint8_t ret_hash[PR_CONTENT_HASH_SIZE])
{
    pr__content_hash(TYPE_PLACED, 1, body, strlen(body), ret_hash);
}

pr__mark inbox_mark_in(pr_unit *unit, const pr__inbox_key *key, const char *body)
{
    uint8_t hash[PR_CONTENT_HASH_SIZE];
    pr__mark got = 0;
    pr_error err = PR_ERROR_INIT;
    inbox_hash(body, hash);
    check_ok(unit->ops->inbox_mark(unit, key, hash, &got, &err), &err, key->message_id);
    return got;
}

/* Mark in a transaction of its own. */
pr__mark inbox_mark_now(pr_store *store, const pr__inbox_key *key, const char *body)
{
    pr_unit *unit = begin_unit(store);
    pr__mark got = inbox_mark_in(unit, key, body);
    commit_unit(unit);
    return got;
}

bool inbox_park_message(pr_store *store, const pr__inbox_key *key, const pr_message *message,
                        const pr__inbox_park *park)
{
    bool inserted = false;
    pr_error err = PR_ERROR_INIT;
    pr_unit *unit = begin_unit(store);
    check_ok(unit->ops->inbox_park(unit, key, message, park, &inserted, &err), &err,
             key->message_id);
    commit_unit(unit);
    return inserted;
}

/* Park in a transaction of its own: id, order key, state, due in so many milliseconds. */
bool inbox_park_row(store_fixture *fix, const char *id, const char *message_key, pr_state state,
                    int64_t delay_ms)
{
    pr__inbox_key key = inbox_key_of(id);
    pr_message message = inbox_message(id, message_key, "{}");
    return inbox_park_message(
        store_at(fix, 0), &key, &message,
        &(pr__inbox_park){.state = state,
                          .attempts = state == PR_STATE_HELD ? 0 : 1,
                          .retry_delay_ms = delay_ms,
                          .error = state == PR_STATE_HELD ? NULL : "no account"});
}

bool inbox_find_row(pr_store *store, const char *id, pr__inbox_row *ret_row)
{
    uint8_t hash[PR_CONTENT_HASH_SIZE];
    bool found = false;
    pr_error err = PR_ERROR_INIT;
    pr__inbox_key key = inbox_key_of(id);
    pr_unit *unit = begin_unit(store);
    inbox_hash("{}", hash);
    check_ok(unit->ops->inbox_find(unit, &key, hash, &found, ret_row, &err), &err, id);
    rollback_unit(unit);
    return found;
}

bool inbox_repark_row(pr_store *store, const char *id, const char *token,
                      const pr__inbox_park *park)
{
    bool changed = false;
    pr_error err = PR_ERROR_INIT;
    pr__inbox_key key = inbox_key_of(id);
    pr_unit *unit = begin_unit(store);
    check_ok(unit->ops->inbox_repark(unit, &key, token, park, &changed, &err), &err, id);
    commit_unit(unit);
    return changed;
}

bool inbox_unpark_row(pr_store *store, const char *id, const char *token)
{
    bool deleted = false;
    pr_error err = PR_ERROR_INIT;
    pr__inbox_key key = inbox_key_of(id);
    pr_unit *unit = begin_unit(store);
    check_ok(unit->ops->inbox_unpark(unit, &key, token, &deleted, &err), &err, id);
    commit_unit(unit);
    return deleted;
}

pr__batch *inbox_claim_as(pr_store *store, pr_order order, uint32_t max)
{
    pr__batch *batch = NULL;
    pr_error err = PR_ERROR_INIT;
    pr__inbox_claim_options opt = {.consumer = CONSUMER,
                                   .owner = "tester",
                                   .lease_ms = LEASE_MS,
                                   .batch_max = max,
                                   .order = order};
    check_ok(pr__store_inbox_claim(store, &opt, &batch, &err), &err, "claim");
    return batch;
}

pr__batch *inbox_claim_all(pr_store *store)
{
    return inbox_claim_as(store, PR_ORDER_HOLD, 100);
}

int64_t inbox_due_ms(pr_store *store, pr_order order)
{
    int64_t ms = -2;
    pr_error err = PR_ERROR_INIT;
    check_ok(pr__store_inbox_due(store, CONSUMER, order, &ms, &err), &err, "due");
    return ms;
}

/* The ids of a batch, in order, as "a,b,c"; "" for none. Frees the batch. */
const char *inbox_ids(pr__batch *batch, char *out, size_t size)
{
    out[0] = '\0';
    for (uint32_t i = 0; batch && i < batch->item_count; i++)
        pr__format(out + strlen(out), size - strlen(out), "%s%s", i ? "," : "",
                   batch->items[i].message.id);
    pr__batch_free(batch);
    return out;
}
