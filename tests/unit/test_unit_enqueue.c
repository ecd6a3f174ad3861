/*
 * Enqueue: what is refused before any statement runs, what is filled in, what is inherited.
 */
#include <postroom/unit.h>

#include "base/text.h"
#include "unit/fake_store.h"

#define TYPE "urn:message:shop:order-placed"
#define ID   "0198c5f2-7d3e-7a10-8b2c-0123456789ab"

static void assert_contains(const char *label, const char *text, const char *part)
{
    if (!strstr(text, part))
        fail_msg("%s: '%s' does not say '%s'", label, text, part);
}

static void bad_messages_are_refused_and_leave_the_unit_unharmed(void **state)
{
    fake_store *fake = *state;
    static char long_key[300], big_body[1025];
    memset(long_key, 'k', sizeof long_key - 1);
    const struct {
        const char *label;
        pr_message message;
        pr_status status;
        const char *text;
    } cases[] = {
        {"no size", {.type = TYPE}, PR_E_INVALID, "size of pr_message is 0"},
        {"no type", PR_MESSAGE(.key = "k"), PR_E_INVALID, "type"},
        {"bad type", PR_MESSAGE(.type = "order-placed"), PR_E_CONTENT, "type"},
        {"id is no uuid", PR_MESSAGE(.type = TYPE, .id = "17"), PR_E_CONTENT, "id"},
        {"id is all zero", PR_MESSAGE(.type = TYPE, .id = "00000000-0000-0000-0000-000000000000"),
         PR_E_CONTENT, "zero"},
        {"empty key", PR_MESSAGE(.type = TYPE, .key = ""), PR_E_INVALID, "key"},
        {"long key", PR_MESSAGE(.type = TYPE, .key = long_key), PR_E_LIMIT, "255"},
        {"bad utf-8", PR_MESSAGE(.type = TYPE, .tenant = "\xff"), PR_E_CONTENT, "tenant"},
        {"bad address", PR_MESSAGE(.type = TYPE, .destination = "nowhere"), PR_E_CONTENT,
         "destination"},
        {"body above the store's limit",
         PR_MESSAGE(.type = TYPE, .body = big_body, .body_size_bytes = sizeof big_body), PR_E_LIMIT,
         "1025"},
        {"NULL body with a length", PR_MESSAGE(.type = TYPE, .body_size_bytes = 1), PR_E_INVALID,
         "body"},
        {"time out of range", PR_MESSAGE(.type = TYPE, .occurred_at_us = INT64_MAX), PR_E_CONTENT,
         "occurred_at"},
        {"headers are no object", PR_MESSAGE(.type = TYPE, .headers = "[1]"), PR_E_CONTENT,
         "header"},
    };
    pr_unit *unit = fake_begin(fake);
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        pr_error err = PR_ERROR_INIT;
        pr_status status = pr_unit_enqueue(unit, &cases[i].message, NULL, &err);
        if (status != cases[i].status || err.retry != PR_RETRY_NEVER)
            fail_msg("%s: %s, expected %s (%s)", cases[i].label, pr_status_text(status),
                     pr_status_text(cases[i].status), err.message);
        assert_contains(cases[i].label, err.message, cases[i].text);
    }
    assert_int_equal(fake->row_count, 0);
    pr_message good = PR_MESSAGE(.type = TYPE);
    assert_int_equal(pr_unit_enqueue(unit, &good, NULL, NULL), PR_OK);
    assert_int_equal(pr_unit_commit(unit, NULL, NULL), PR_OK);
    assert_int_equal(fake->committed_count, 1);
    pr_unit_free(unit);
}

static void refused_without_a_live_transaction(void **state)
{
    fake_store *fake = *state;
    pr_message message = PR_MESSAGE(.type = TYPE);
    pr_error err = PR_ERROR_INIT;
    assert_int_equal(pr_unit_enqueue(NULL, &message, NULL, &err), PR_E_INVALID);

    pr_unit *unit = fake_begin(fake);
    fake->dead = true;
    pr_error_clear(&err);
    assert_int_equal(pr_unit_enqueue(unit, &message, NULL, &err), PR_E_STATE);
    assert_contains("dead", err.message, "no transaction is open");
    fake->dead = false;
    assert_int_equal(pr_unit_commit(unit, NULL, NULL), PR_OK);
    pr_error_clear(&err);
    assert_int_equal(pr_unit_enqueue(unit, &message, NULL, &err), PR_E_STATE);
    assert_contains("finished", err.message, "finished");
    assert_int_equal(fake->row_count, 0);
    pr_unit_free(unit);
}

static void defaults_come_from_the_stores_clock_and_randomness(void **state)
{
    fake_store *fake = *state;
    pr_unit *unit = fake_begin(fake);
    pr_message message = PR_MESSAGE(.type = TYPE);
    pr_enqueued enqueued;
    assert_int_equal(pr_unit_enqueue(unit, &message, &enqueued, NULL), PR_OK);
    const pr_message *row = fake->rows[0].message;
    /* 2026-01-01 is 0x019b76da9400 ms since 1970 */
    assert_memory_equal(enqueued.id, "019b76da-a800-7", 9);
    assert_int_equal(enqueued.id[14], '7');
    assert_string_equal(row->id, enqueued.id);
    assert_false(enqueued.duplicate);
    assert_false(fake->rows[0].caller_id);
    assert_int_equal(row->type_version, 1);
    assert_string_equal(row->content_type, "application/json");
    assert_int_equal(row->occurred_at_us, fake->now_us);
    assert_null(row->destination);
    assert_null(row->correlation_id);
    assert_int_equal(row->body_size_bytes, 0);
    pr_unit_free(unit);
}

static void an_id_of_the_caller_is_written_in_lower_case_and_looked_for(void **state)
{
    fake_store *fake = *state;
    pr_unit *unit = fake_begin(fake);
    pr_message message = PR_MESSAGE(.type = TYPE, .id = "0198C5F2-7D3E-7A10-8B2C-0123456789AB",
                                    .occurred_at_us = 17);
    pr_enqueued enqueued;
    assert_int_equal(pr_unit_enqueue(unit, &message, &enqueued, NULL), PR_OK);
    assert_string_equal(enqueued.id, ID);
    assert_string_equal(fake->rows[0].message->id, ID);
    assert_true(fake->rows[0].caller_id);
    assert_int_equal(fake->rows[0].message->occurred_at_us, 17);
    fake->enqueue_duplicate = true;
    assert_int_equal(pr_unit_enqueue(unit, &message, &enqueued, NULL), PR_OK);
    assert_true(enqueued.duplicate);
    assert_int_equal(pr_unit_commit(unit, NULL, NULL), PR_OK);
    assert_int_equal(fake->enqueued_seen, 1); /* a duplicate is not counted */
    pr_unit_free(unit);
}

static void the_context_is_inherited_unless_the_message_says_otherwise(void **state)
{
    fake_store *fake = *state;
    pr_unit *unit = fake_begin(fake);
    char correlation[] = "conversation-1";
    pr_unit_context context = {.size = (uint32_t)sizeof context,
                               .correlation_id = correlation,
                               .causation_id = "cause-1",
                               .traceparent = "00-aa-bb-01",
                               .tracestate = "v=1",
                               .tenant = "north",
                               .source = "shop"};
    assert_int_equal(pr_unit_set_context(unit, &context, NULL), PR_OK);
    memset(correlation, 'x', sizeof correlation - 1); /* it was copied */
    pr_message plain = PR_MESSAGE(.type = TYPE);
    pr_message own = PR_MESSAGE(.type = TYPE, .correlation_id = "mine", .tenant = "",
                                .traceparent = "00-cc-dd-01");
    assert_int_equal(pr_unit_enqueue(unit, &plain, NULL, NULL), PR_OK);
    assert_int_equal(pr_unit_enqueue(unit, &own, NULL, NULL), PR_OK);
    const pr_message *first = fake->rows[0].message, *second = fake->rows[1].message;
    assert_string_equal(first->correlation_id, "conversation-1");
    assert_string_equal(first->causation_id, "cause-1");
    assert_string_equal(first->traceparent, "00-aa-bb-01");
    assert_string_equal(first->tracestate, "v=1");
    assert_string_equal(first->tenant, "north");
    assert_string_equal(first->source, "shop");
    assert_string_equal(second->correlation_id, "mine");
    assert_string_equal(second->tenant, "");
    assert_string_equal(second->traceparent, "00-cc-dd-01");
    assert_null(second->tracestate); /* a state never goes with another parent */
    assert_string_equal(second->causation_id, "cause-1");

    pr_unit *nested = NULL;
    assert_int_equal(pr_unit_nest(unit, &nested, NULL), PR_OK);
    assert_int_equal(pr_unit_enqueue(nested, &plain, NULL, NULL), PR_OK);
    assert_string_equal(fake->rows[2].message->correlation_id, "conversation-1");
    context.correlation_id = "inner";
    assert_int_equal(pr_unit_set_context(nested, &context, NULL), PR_OK);
    assert_int_equal(pr_unit_enqueue(nested, &plain, NULL, NULL), PR_OK);
    assert_int_equal(pr_unit_enqueue(unit, &plain, NULL, NULL), PR_OK);
    assert_string_equal(fake->rows[3].message->correlation_id, "inner");
    assert_string_equal(fake->rows[4].message->correlation_id, "conversation-1");
    assert_int_equal(pr_unit_commit(nested, NULL, NULL), PR_OK);
    pr_unit_free(nested);
    pr_unit_free(unit);
}

static void a_bad_context_is_refused_and_the_old_one_stays(void **state)
{
    fake_store *fake = *state;
    pr_unit *unit = fake_begin(fake);
    pr_unit_context context = {.size = (uint32_t)sizeof context, .correlation_id = "good"};
    assert_int_equal(pr_unit_set_context(unit, &context, NULL), PR_OK);
    pr_error err = PR_ERROR_INIT;
    context.correlation_id = "\xc0";
    assert_int_equal(pr_unit_set_context(unit, &context, &err), PR_E_CONTENT);
    assert_contains("utf-8", err.message, "correlation_id");
    static char long_tenant[300];
    memset(long_tenant, 't', sizeof long_tenant - 1);
    context = (pr_unit_context){.size = (uint32_t)sizeof context, .tenant = long_tenant};
    pr_error_clear(&err);
    assert_int_equal(pr_unit_set_context(unit, &context, &err), PR_E_LIMIT);
    assert_contains("limit", err.message, "tenant");
    context = (pr_unit_context){.size = 4};
    pr_error_clear(&err);
    assert_int_equal(pr_unit_set_context(unit, &context, &err), PR_E_INVALID);
    assert_contains("size", err.message, "size");
    pr_message message = PR_MESSAGE(.type = TYPE);
    assert_int_equal(pr_unit_enqueue(unit, &message, NULL, NULL), PR_OK);
    assert_string_equal(fake->rows[0].message->correlation_id, "good");
    pr_unit_free(unit);
}

static void many_are_written_in_order_or_not_at_all(void **state)
{
    fake_store *fake = *state;
    pr_unit *unit = fake_begin(fake);
    pr_message messages[] = {
        PR_MESSAGE(.type = TYPE, .key = "a"),
        PR_MESSAGE(.type = TYPE, .key = "b"),
        PR_MESSAGE(.type = TYPE, .key = ""),
    };
    pr_error err = PR_ERROR_INIT;
    assert_int_equal(pr_unit_enqueue_many(unit, messages, 3, NULL, &err), PR_E_INVALID);
    assert_contains("index", err.message, "message 2: ");
    assert_int_equal(fake->row_count, 0);
    messages[2].key = "c";
    pr_enqueued enqueued[3];
    assert_int_equal(pr_unit_enqueue_many(unit, messages, 3, enqueued, NULL), PR_OK);
    assert_int_equal(fake->row_count, 3);
    for (size_t i = 0; i < 3; i++) {
        assert_string_equal(fake->rows[i].message->key, messages[i].key);
        assert_string_equal(fake->rows[i].message->id, enqueued[i].id);
    }
    assert_string_not_equal(enqueued[0].id, enqueued[1].id);
    assert_int_equal(pr_unit_enqueue_many(unit, NULL, 0, NULL, NULL), PR_OK);
    assert_int_equal(pr_unit_enqueue_many(unit, NULL, 1, NULL, NULL), PR_E_INVALID);
    pr_unit_free(unit);
}

static void a_conflict_leaves_the_unit_unharmed_but_a_broken_database_does_not(void **state)
{
    fake_store *fake = *state;
    pr_unit *unit = fake_begin(fake);
    pr_message message = PR_MESSAGE(.type = TYPE, .id = ID);
    fake->enqueue_status = PR_E_CONFLICT;
    assert_int_equal(pr_unit_enqueue(unit, &message, NULL, NULL), PR_E_CONFLICT);
    fake->enqueue_status = PR_OK;
    assert_int_equal(pr_unit_enqueue(unit, &message, NULL, NULL), PR_OK);

    fake->enqueue_status = PR_E_BACKEND;
    fake->enqueue_retry = PR_RETRY_RECONNECT;
    pr_error err = PR_ERROR_INIT;
    assert_int_equal(pr_unit_enqueue(unit, &message, NULL, &err), PR_E_BACKEND);
    assert_int_equal(err.retry, PR_RETRY_RECONNECT);
    fake->enqueue_status = PR_OK;
    pr_error_clear(&err);
    assert_int_equal(pr_unit_enqueue(unit, &message, NULL, &err), PR_E_STATE);
    assert_contains("why", err.message, "told to fail");
    pr_outcome outcome = PR_OUTCOME_COMMITTED;
    assert_int_equal(pr_unit_commit(unit, &outcome, NULL), PR_E_STATE);
    assert_int_equal(outcome, PR_OUTCOME_NOT_COMMITTED);
    assert_int_equal(fake->rollbacks, 1);
    assert_int_equal(fake->row_count, 0);
    pr_unit_free(unit);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define CASE(name) cmocka_unit_test_setup_teardown(name, fake_store_set_up, fake_store_tear_down)
        CASE(bad_messages_are_refused_and_leave_the_unit_unharmed),
        CASE(refused_without_a_live_transaction),
        CASE(defaults_come_from_the_stores_clock_and_randomness),
        CASE(an_id_of_the_caller_is_written_in_lower_case_and_looked_for),
        CASE(the_context_is_inherited_unless_the_message_says_otherwise),
        CASE(a_bad_context_is_refused_and_the_old_one_stays),
        CASE(many_are_written_in_order_or_not_at_all),
        CASE(a_conflict_leaves_the_unit_unharmed_but_a_broken_database_does_not),
#undef CASE
    };
    return RUN_TESTS(tests);
}
