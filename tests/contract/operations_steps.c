/*
 * Steps of operations, for their suites.
 */
#include "contract/operations_steps.h"

#include "base/text.h"
#include "port/state.h"

id_text post_message(store_fixture *fix, const pr_message *message)
{
    pr_enqueued enqueued;
    id_text id;
    pr_error err = PR_ERROR_INIT;
    pr_unit *unit = begin_unit(store_at(fix, 0));
    check_ok(pr_unit_enqueue(unit, message, &enqueued, &err), &err, "enqueue");
    commit_unit(unit);
    memcpy(id.id, enqueued.id, sizeof id.id);
    return id;
}

id_text post(store_fixture *fix, const char *key, const char *destination)
{
    /* by the database's clock, which the test moves, not the host's */
    pr_message message =
        PR_MESSAGE(.type = TYPE_PLACED, .key = key, .destination = destination, .body = "{\"a\":1}",
                   .body_size_bytes = 7, .occurred_at_us = store_now_us(fix));
    return post_message(fix, &message);
}

static uint32_t settle(store_fixture *fix, pr__batch *batch, pr__result result, int64_t delay_ms)
{
    if (!batch)
        return 0;
    pr__settle_report report = {0};
    pr_error err = PR_ERROR_INIT;
    for (uint32_t i = 0; i < batch->item_count; i++) {
        batch->items[i].result = result;
        batch->items[i].retry_delay_ms = delay_ms;
        if (result != PR__RESULT_PUBLISHED && result != PR__RESULT_OPEN)
            pr__batch_set_error(batch, &batch->items[i], "refused: no such book");
    }
    uint32_t count = batch->item_count;
    pr__batch_close(batch);
    check_ok(pr__store_settle(store_at(fix, 0), batch, NULL, &report, NULL, &err), &err, "settle");
    pr__batch_free(batch);
    return count;
}

static const pr__claim_options relay_claim = {.reader = PR_READER_RELAY,
                                              .lease_ms = LONG_LEASE_MS,
                                              .batch_max = 500,
                                              .bytes_max = 8 * 1024 * 1024,
                                              .owner = "relay-a"};

uint32_t settle_pending(store_fixture *fix, pr__result result, int64_t delay_ms)
{
    pr__batch *batch = NULL;
    pr_error err = PR_ERROR_INIT;
    check_ok(pr__store_claim(store_at(fix, 0), &relay_claim, &batch, &err), &err, "claim");
    return settle(fix, batch, result, delay_ms);
}

uint32_t settle_parked(store_fixture *fix, pr__result result, int64_t delay_ms)
{
    pr__batch *batch = NULL;
    pr_error err = PR_ERROR_INIT;
    check_ok(pr__store_claim_parked(store_at(fix, 0), &relay_claim, &batch, &err), &err, "claim");
    return settle(fix, batch, result, delay_ms);
}

id_text post_dead(store_fixture *fix, const char *key, const char *destination)
{
    id_text id = post(fix, key, destination);
    assert_int_equal(settle_pending(fix, PR__RESULT_DEAD, 0), 1);
    return id;
}

void park_at(store_fixture *fix, const char *consumer, const char *id, const char *key,
             pr_state state)
{
    bool inserted = false;
    pr_error err = PR_ERROR_INIT;
    pr__inbox_key at = {.tenant = "", .consumer = consumer, .message_id = id};
    pr_message message = PR_MESSAGE(.id = id, .type = TYPE_PLACED, .type_version = 1, .key = key,
                                    .destination = "memory://in/books", .body = "{\"b\":2}",
                                    .body_size_bytes = 7, .occurred_at_us = store_now_us(fix));
    pr__inbox_park park = {.state = state,
                           .attempts = 1,
                           .retry_delay_ms = 60000,
                           .error = "no such account",
                           .token = state == PR_STATE_PUBLISHING ? "token" : NULL,
                           .owner = "endpoint-a",
                           .lease_ms = state == PR_STATE_PUBLISHING ? LONG_LEASE_MS : 0};
    pr_unit *unit = begin_unit(store_at(fix, 0));
    check_ok(unit->ops->inbox_park(unit, &at, &message, &park, &inserted, &err), &err, id);
    commit_unit(unit);
    assert_true(inserted);
}

pr_list_options list_of(pr_box box, pr_state state)
{
    return (pr_list_options){.size = (uint32_t)sizeof(pr_list_options), .box = box, .state = state};
}

typedef struct id_collector {
    char *out;
    pr_state state;
    uint32_t count;
} id_collector;

static bool collect(void *user, const pr_record *record)
{
    id_collector *collector = user;
    size_t used = strlen(collector->out);
    if (collector->state && record->state != collector->state)
        fail_msg("message %s is %s, not %s", record->message.id, pr__state_text(record->state),
                 pr__state_text(collector->state));
    pr__format(collector->out + used, IDS_SIZE - used, "%s%s", used ? "," : "", record->message.id);
    collector->count++;
    return true;
}

const char *listed(store_fixture *fix, const pr_list_options *opt, char out[IDS_SIZE])
{
    id_collector collector = {.out = out, .state = opt->state};
    pr_list_options page_options = *opt;
    pr_list_page page = {.size = (uint32_t)sizeof page};
    out[0] = '\0';
    for (int pages = 0; pages < 10000; pages++) {
        pr_error err = PR_ERROR_INIT;
        uint32_t before = collector.count;
        check_ok(
            pr_operations_list(store_at(fix, 0), &page_options, &page, collect, &collector, &err),
            &err, "list");
        assert_int_equal(page.count, collector.count - before);
        if (!page.next[0])
            return out;
        assert_int_equal(page.count, opt->limit ? opt->limit : 100);
        page_options.after = page.next;
    }
    fail_msg("the pages never end");
    return out;
}

static bool keep(void *user, const pr_record *record)
{
    shown *got = user;
    if (got->count++ > 0)
        return true;
    got->record = *record;
    pr__format(got->last_error, sizeof got->last_error, "%s",
               record->last_error ? record->last_error : "");
    pr__format(got->unreadable, sizeof got->unreadable, "%s",
               record->unreadable ? record->unreadable : "");
    pr__format(got->body, sizeof got->body, "%.*s", (int)record->message.body_size_bytes,
               record->message.body ? (const char *)record->message.body : "");
    return true;
}

shown show(store_fixture *fix, const char *id)
{
    shown got = {0};
    pr_error err = PR_ERROR_INIT;
    check_ok(pr_operations_show(store_at(fix, 0), id, keep, &got, &err), &err, id);
    return got;
}

pr_redrive_options redrive_one(const char *id)
{
    return (pr_redrive_options){.size = (uint32_t)sizeof(pr_redrive_options),
                                .message_id = id,
                                .who = OPERATOR,
                                .reason = REASON};
}

pr_redrive_options redrive_where(const char *type, const char *destination)
{
    return (pr_redrive_options){.size = (uint32_t)sizeof(pr_redrive_options),
                                .type = type,
                                .destination = destination,
                                .who = OPERATOR,
                                .reason = REASON};
}

uint64_t redrive(store_fixture *fix, const pr_redrive_options *opt, const char *label)
{
    uint64_t count = 0;
    pr_error err = PR_ERROR_INIT;
    check_ok(pr_operations_redrive(store_at(fix, 0), opt, &count, &err), &err, label);
    return count;
}

void check_redrive_refused(store_fixture *fix, const pr_redrive_options *opt, pr_status wanted,
                           const char *text, const char *label)
{
    uint64_t count = 99;
    pr_error err = PR_ERROR_INIT;
    check_error(pr_operations_redrive(store_at(fix, 0), opt, &count, &err), &err, wanted, text,
                label);
    CHECK_CASE(count == 99, label);
}

pr_explanation explain(store_fixture *fix, const char *id)
{
    pr_explanation got = {.size = (uint32_t)sizeof got};
    pr_error err = PR_ERROR_INIT;
    check_ok(pr_operations_explain(store_at(fix, 0), id, &got, &err), &err, id);
    return got;
}
