/*
 * The inbox side of the store port, compiled once and run against every store: marks, and what is
 * kept in parked rows. Retries and tokens are in store_inbox_retry.c.
 */
#include <stdlib.h>

#include "base/hash.h"
#include "base/text.h"
#include "contract/inbox_steps.h"
#include "contract/store_inbox_cases.h"

/* ---- marks ---- */

void case_keys_that_cannot_be_found_again_are_refused(void **state)
{
    store_fixture *fix = *state;
    char long_id[PR_ID_SIZE_MAX + 2];
    memset(long_id, 'x', sizeof long_id - 1);
    long_id[sizeof long_id - 1] = '\0';
    const struct {
        const char *label;
        pr__inbox_key key;
        pr_status wanted;
    } cases[] = {
        {"no id", {.tenant = "", .consumer = CONSUMER, .message_id = ""}, PR_E_INVALID},
        {"no consumer", {.tenant = "", .consumer = "", .message_id = "m"}, PR_E_INVALID},
        {"256 bytes", {.tenant = "", .consumer = CONSUMER, .message_id = long_id}, PR_E_CONTENT},
        {"not UTF-8", {.tenant = "", .consumer = CONSUMER, .message_id = "a\xFF"}, PR_E_CONTENT},
        {"tenant", {.tenant = "\xC0\x80", .consumer = CONSUMER, .message_id = "m"}, PR_E_CONTENT},
    };
    pr_message message = inbox_message("m", NULL, "{}");
    pr__inbox_park park = {.state = PR_STATE_DEAD};
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        uint8_t hash[PR_CONTENT_HASH_SIZE] = {0};
        pr__mark got = 0;
        bool flag = false;
        pr_error err = PR_ERROR_INIT;
        pr_unit *unit = begin_unit(store_at(fix, 0));
        check_error(unit->ops->inbox_mark(unit, &cases[i].key, hash, &got, &err), &err,
                    cases[i].wanted, "message id", cases[i].label);
        err = (pr_error)PR_ERROR_INIT;
        check_error(unit->ops->inbox_park(unit, &cases[i].key, &message, &park, &flag, &err), &err,
                    cases[i].wanted, "message id", cases[i].label);
        commit_unit(unit); /* the unit is unharmed */
    }
    check_sql(fix, "SELECT count(*) FROM {p}_inbox", "0", "marks");
    check_sql(fix, "SELECT count(*) FROM {p}_inbox_parked", "0", "parked");
}

void case_a_mark_is_new_then_done_then_a_conflict(void **state)
{
    store_fixture *fix = *state;
    assert_int_equal(inbox_mark_now(store_at(fix, 0), &inbox_base_key, "{}"), PR__MARK_NEW);
    assert_int_equal(inbox_mark_now(store_at(fix, 1), &inbox_base_key, "{}"), PR__MARK_DONE);
    assert_int_equal(inbox_mark_now(store_at(fix, 1), &inbox_base_key, "{\"other\":1}"),
                     PR__MARK_CONFLICT);
    assert_int_equal(inbox_mark_now(store_at(fix, 0), &inbox_base_key, "{}"), PR__MARK_DONE);
    check_sql(fix, "SELECT count(*) FROM {p}_inbox", "1", "one row");
    pr_unit *unit = begin_unit(store_at(fix, 0));
    pr_error err = PR_ERROR_INIT;
    check_ok(unit->ops->inbox_unmark(unit, &inbox_base_key, &err), &err, "unmark");
    commit_unit(unit);
    assert_int_equal(inbox_mark_now(store_at(fix, 1), &inbox_base_key, "{\"other\":1}"),
                     PR__MARK_NEW);
}

void case_the_version_and_the_type_are_content(void **state)
{
    store_fixture *fix = *state;
    uint8_t first[PR_CONTENT_HASH_SIZE], second[PR_CONTENT_HASH_SIZE];
    pr__content_hash(TYPE_PLACED, 1, "{}", 2, first);
    pr__content_hash(TYPE_PLACED, 2, "{}", 2, second);
    pr__mark got = 0;
    pr_error err = PR_ERROR_INIT;
    pr_unit *unit = begin_unit(store_at(fix, 0));
    check_ok(unit->ops->inbox_mark(unit, &inbox_base_key, first, &got, &err), &err, "first");
    assert_int_equal(got, PR__MARK_NEW);
    check_ok(unit->ops->inbox_mark(unit, &inbox_base_key, second, &got, &err), &err, "second");
    assert_int_equal(got, PR__MARK_CONFLICT);
    commit_unit(unit);
}

void case_each_consumer_and_tenant_has_its_own_mark(void **state)
{
    store_fixture *fix = *state;
    const pr__inbox_key keys[] = {
        {.tenant = "", .consumer = "billing", .message_id = "m"},
        {.tenant = "", .consumer = "mail", .message_id = "m"},
        {.tenant = "acme", .consumer = "billing", .message_id = "m"},
        {.tenant = "", .consumer = "billing", .message_id = "M"},
        {.tenant = "", .consumer = "billing", .message_id = "0190ABCD"},
        {.tenant = "", .consumer = "billing", .message_id = "0190abcd"},
        {.tenant = "", .consumer = "billing", .message_id = " m"},
        {.tenant = "", .consumer = "billing", .message_id = "conflict:00' OR '1'='1"},
        {.tenant = "", .consumer = "billing", .message_id = "\xE2\x82\xAC\xF0\x9F\x93\xAE"},
    };
    for (size_t i = 0; i < COUNT_OF(keys); i++)
        CHECK_CASE(inbox_mark_now(store_at(fix, 0), &keys[i], "{}") == PR__MARK_NEW,
                   keys[i].message_id);
    for (size_t i = 0; i < COUNT_OF(keys); i++)
        CHECK_CASE(inbox_mark_now(store_at(fix, 1), &keys[i], "{}") == PR__MARK_DONE,
                   keys[i].message_id);
}

void case_a_rollback_leaves_no_mark(void **state)
{
    store_fixture *fix = *state;
    pr_unit *unit = begin_unit(store_at(fix, 0));
    assert_int_equal(inbox_mark_in(unit, &inbox_base_key, "{}"), PR__MARK_NEW);
    assert_int_equal(inbox_mark_in(unit, &inbox_base_key, "{}"), PR__MARK_DONE); /* its own */
    rollback_unit(unit);
    assert_int_equal(inbox_mark_now(store_at(fix, 1), &inbox_base_key, "{}"), PR__MARK_NEW);
}

void case_a_duplicate_leaves_the_transaction_usable(void **state)
{
    store_fixture *fix = *state;
    assert_int_equal(inbox_mark_now(store_at(fix, 0), &inbox_base_key, "{}"), PR__MARK_NEW);
    pr_unit *unit = begin_unit(store_at(fix, 1));
    assert_int_equal(inbox_mark_in(unit, &inbox_base_key, "{}"), PR__MARK_DONE);
    pr_message message = inbox_message(NULL, NULL, "{}");
    pr_error err = PR_ERROR_INIT;
    check_ok(pr_unit_enqueue(unit, &message, NULL, &err), &err, "enqueue");
    commit_unit(unit);
    check_sql(fix, "SELECT count(*) FROM {p}_outbox", "1", "the business went on");
}

void case_another_at_work_is_busy_and_not_done(void **state)
{
    store_fixture *fix = *state;
    pr_store *impatient = NULL;
    store_settings settings = {.busy_ms = 50};
    pr_error err = PR_ERROR_INIT;
    check_ok(fix->provider->open(fix->world, &settings, &impatient, &err), &err, "open");
    pr_unit *holder = begin_unit(store_at(fix, 0));
    assert_int_equal(inbox_mark_in(holder, &inbox_base_key, "{}"), PR__MARK_NEW);
    pr_unit *other = NULL;
    uint8_t hash[PR_CONTENT_HASH_SIZE];
    pr__mark got = 0;
    inbox_hash("{}", hash);
    pr_status status = pr_unit_begin(impatient, &other, &err);
    if (status == PR_OK) /* a store whose writers are not serial waits at the mark */
        status = other->ops->inbox_mark(other, &inbox_base_key, hash, &got, &err);
    check_error(status, &err, PR_E_BUSY, "try again", "while it is held");
    assert_int_equal(err.retry, PR_RETRY_SAME);
    assert_int_equal(got, 0);
    pr_unit_free(other);
    rollback_unit(holder); /* the holder dies: the message is processed */
    assert_int_equal(inbox_mark_now(impatient, &inbox_base_key, "{}"), PR__MARK_NEW);
    pr_store_free(impatient);
}

#define PARALLEL_CHILDREN 4
#define PARALLEL_IDS      40

/* Every child delivers every message; how many it was the first to mark. */
static int deliver_all(store_fixture *fix, int n)
{
    int first = 0;
    for (int i = 0; i < PARALLEL_IDS; i++) {
        char id[32];
        pr__format(id, sizeof id, "m-%d", n % 2 ? i : PARALLEL_IDS - 1 - i);
        pr__inbox_key key = inbox_key_of(id);
        pr_unit *unit = begin_unit(store_at(fix, 0));
        bool mine = inbox_mark_in(unit, &key, "{}") == PR__MARK_NEW;
        if (mine) {
            pr_message message = inbox_message(NULL, NULL, "{}");
            pr_error err = PR_ERROR_INIT;
            check_ok(pr_unit_enqueue(unit, &message, NULL, &err), &err, "effect");
            commit_unit(unit);
        } else {
            rollback_unit(unit);
        }
        first += mine;
    }
    return first;
}

void case_parallel_deliveries_have_one_effect(void **state)
{
    store_fixture *fix = *state;
    int pids[PARALLEL_CHILDREN];
    int first = 0;
    for (int i = 0; i < PARALLEL_CHILDREN; i++)
        pids[i] = start_child(fix, deliver_all, i);
    for (int i = 0; i < PARALLEL_CHILDREN; i++)
        first += child_result(pids[i]);
    assert_int_equal(first, PARALLEL_IDS);
    check_sql(fix, "SELECT count(*) FROM {p}_inbox", "40", "marks");
    check_sql(fix, "SELECT count(*) FROM {p}_outbox", "40", "effects");
}

/* ---- parked rows ---- */

void case_states_that_nothing_is_parked_in(void **state)
{
    store_fixture *fix = *state;
    const struct {
        const char *label;
        pr__inbox_park park;
        const char *text;
    } cases[] = {
        {"pending", {.state = PR_STATE_PENDING}, "failed, held, dead or processing"},
        {"published", {.state = PR_STATE_PUBLISHED}, "failed, held, dead or processing"},
        {"delayed", {.state = PR_STATE_DELAYED}, "failed, held, dead or processing"},
        {"no token", {.state = PR_STATE_PUBLISHING, .lease_ms = 1}, "token and a lease"},
        {"no lease", {.state = PR_STATE_PUBLISHING, .token = "t"}, "token and a lease"},
    };
    pr_message message = inbox_message("m-1", NULL, "{}");
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        bool flag = false;
        pr_error err = PR_ERROR_INIT;
        pr_unit *unit = begin_unit(store_at(fix, 0));
        check_error(
            unit->ops->inbox_park(unit, &inbox_base_key, &message, &cases[i].park, &flag, &err),
            &err, PR_E_INVALID, cases[i].text, cases[i].label);
        err = (pr_error)PR_ERROR_INIT;
        check_error(
            unit->ops->inbox_repark(unit, &inbox_base_key, "t", &cases[i].park, &flag, &err), &err,
            PR_E_INVALID, cases[i].text, cases[i].label);
        rollback_unit(unit);
    }
}

void case_a_full_copy_is_kept(void **state)
{
    store_fixture *fix = *state;
    static const char body[] = "a\0b\xFF";
    char key_text[PR_ID_SIZE_MAX + 1];
    memset(key_text, 'k', PR_ID_SIZE_MAX);
    key_text[PR_ID_SIZE_MAX] = '\0';
    pr_message sent =
        PR_MESSAGE(.id = "foreign id", .type = TYPE_PAID, .type_version = 7,
                   .content_type = "application/octet-stream", .destination = "memory://in/billing",
                   .source = "shop", .key = key_text, .tenant = "acme", .correlation_id = "c-1",
                   .causation_id = "c-0",
                   .traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
                   .tracestate = "a=1", .headers = "{\"n\":{\"int\":1}}", .body = body,
                   .body_size_bytes = 4, .occurred_at_us = -1234567,
                   .expires_at_us = 4102444800000001);
    pr__inbox_key key = {.tenant = "acme", .consumer = CONSUMER, .message_id = "Dedup-ID"};
    assert_true(inbox_park_message(store_at(fix, 0), &key, &sent,
                                   &(pr__inbox_park){.state = PR_STATE_FAILED, .attempts = 3}));
    pr__batch *batch = inbox_claim_all(store_at(fix, 1));
    assert_non_null(batch);
    assert_int_equal(batch->item_count, 1);
    const pr__item *item = &batch->items[0];
    const pr_message *got = &item->message;
    assert_null(item->unreadable);
    assert_int_equal(item->attempts, 3);
    assert_false(item->poison);
    assert_int_equal(item->slice, PR__NO_SLICE);
    assert_int_equal(strlen(item->token), 36);
    assert_string_equal(got->id, "Dedup-ID"); /* the row's key, exactly */
    assert_string_equal(got->type, sent.type);
    assert_int_equal(got->type_version, 7);
    assert_string_equal(got->content_type, sent.content_type);
    assert_string_equal(got->destination, sent.destination);
    assert_string_equal(got->source, sent.source);
    assert_string_equal(got->key, sent.key);
    assert_string_equal(got->tenant, sent.tenant);
    assert_string_equal(got->correlation_id, sent.correlation_id);
    assert_string_equal(got->causation_id, sent.causation_id);
    assert_string_equal(got->traceparent, sent.traceparent);
    assert_string_equal(got->tracestate, sent.tracestate);
    assert_string_equal(got->headers, sent.headers);
    assert_int_equal(got->body_size_bytes, 4);
    assert_memory_equal(got->body, body, 4);
    assert_int_equal(got->occurred_at_us, sent.occurred_at_us);
    assert_int_equal(got->expires_at_us, sent.expires_at_us);
    pr__batch_free(batch);
}

void case_what_lacks_everything_is_kept_too(void **state)
{
    store_fixture *fix = *state;
    pr_message bare = {.size = (uint32_t)sizeof bare};
    pr__inbox_key key = inbox_key_of("bare");
    assert_true(inbox_park_message(store_at(fix, 0), &key, &bare,
                                   &(pr__inbox_park){.state = PR_STATE_FAILED}));
    pr__batch *batch = inbox_claim_all(store_at(fix, 0));
    assert_non_null(batch);
    assert_string_equal(batch->items[0].message.type, "");
    assert_int_equal(batch->items[0].message.body_size_bytes, 0);
    assert_null(batch->items[0].message.key);
    pr__batch_free(batch);
}

void case_a_row_that_stands_is_not_replaced(void **state)
{
    store_fixture *fix = *state;
    pr__inbox_row row;
    assert_false(inbox_find_row(store_at(fix, 0), "m", &row));
    assert_true(inbox_park_row(fix, "m", NULL, PR_STATE_DEAD, 0));
    assert_false(
        inbox_park_row(fix, "m", NULL, PR_STATE_FAILED, 0)); /* an upsert would revive it */
    assert_true(inbox_find_row(store_at(fix, 1), "m", &row));
    assert_int_equal(row.state, PR_STATE_DEAD);
    assert_int_equal(row.attempts, 1);
    assert_true(row.same_content);
    assert_string_equal(row.token, "");
    pr_message other = inbox_message("n", NULL, "{\"other\":1}");
    pr__inbox_key key = inbox_key_of("n");
    assert_true(inbox_park_message(store_at(fix, 0), &key, &other,
                                   &(pr__inbox_park){.state = PR_STATE_HELD}));
    assert_true(inbox_find_row(store_at(fix, 1), "n", &row));
    assert_false(row.same_content);
    assert_int_equal(row.state, PR_STATE_HELD);
}

void case_a_dead_row_is_never_claimed(void **state)
{
    store_fixture *fix = *state;
    assert_true(inbox_park_row(fix, "m", NULL, PR_STATE_DEAD, 0));
    for (pr_order order = PR_ORDER_HOLD; order <= PR_ORDER_HALT; order++) {
        assert_null(inbox_claim_as(store_at(fix, 0), order, 10));
        assert_int_equal(inbox_due_ms(store_at(fix, 0), order), -1);
    }
    pass_ms(fix, 100);
    assert_null(inbox_claim_all(store_at(fix, 0)));
}

void case_a_due_time_is_respected(void **state)
{
    store_fixture *fix = *state;
    assert_int_equal(inbox_due_ms(store_at(fix, 0), PR_ORDER_HOLD), -1);
    assert_true(inbox_park_row(fix, "late", NULL, PR_STATE_FAILED, 400));
    assert_true(inbox_park_row(fix, "now", NULL, PR_STATE_FAILED, 0));
    char ids[64];
    assert_int_equal(inbox_due_ms(store_at(fix, 0), PR_ORDER_HOLD), 0);
    assert_string_equal(inbox_ids(inbox_claim_all(store_at(fix, 0)), ids, sizeof ids), "now");
    int64_t wait_ms = inbox_due_ms(store_at(fix, 0), PR_ORDER_HOLD);
    assert_true(wait_ms > 0 && wait_ms <= 400);
    assert_null(inbox_claim_all(store_at(fix, 0)));
    pass_ms(fix, 400);
    assert_int_equal(inbox_due_ms(store_at(fix, 0), PR_ORDER_HOLD), 0);
    assert_string_equal(inbox_ids(inbox_claim_all(store_at(fix, 0)), ids, sizeof ids), "late");
}

void case_a_long_delay_does_not_overflow(void **state)
{
    store_fixture *fix = *state;
    assert_true(inbox_park_row(fix, "m", NULL, PR_STATE_FAILED, INT64_MAX));
    assert_true(inbox_due_ms(store_at(fix, 0), PR_ORDER_HOLD) > INT64_C(1000) * 3600 * 24 * 366);
    assert_null(inbox_claim_all(store_at(fix, 0)));
    assert_true(inbox_park_row(fix, "past", NULL, PR_STATE_FAILED, -5));
    assert_int_equal(inbox_due_ms(store_at(fix, 0), PR_ORDER_HOLD), 0);
}

int store_inbox_contract_run(const store_provider *provider)
{
    const store_provider *shared = provider; /* cmocka hands on a pointer that is not const */
#define STORE_INBOX_CASE_ENTRY(name) {#name, case_##name, store_setup, store_teardown, &shared},
    const struct CMUnitTest tests[] = {STORE_INBOX_CASES(STORE_INBOX_CASE_ENTRY)};
#undef STORE_INBOX_CASE_ENTRY
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests_name(provider->name, tests, NULL, NULL);
}
