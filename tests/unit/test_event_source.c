/*
 * Domain events: enqueued at the end of a unit, once a transaction, kept until it has committed.
 */
#include <postroom/unit.h>

#include "unit/fake_store.h"

#define PLACED "urn:message:shop:order-placed"
#define NOTE   "urn:message:shop:note"

typedef struct placed {
    char event_id[37];
    int64_t occurred_at_us;
    int64_t total;
    const char *customer;
} placed;

static const pr_field placed_fields[] = {
    {.name = "eventId",
     .kind = PR_FIELD_UUID,
     .flags = PR_FIELD_MESSAGE_ID,
     .offset = offsetof(placed, event_id)},
    {.name = "occurredAt",
     .kind = PR_FIELD_INSTANT,
     .flags = PR_FIELD_OCCURRED_AT,
     .offset = offsetof(placed, occurred_at_us)},
    {.name = "total", .kind = PR_FIELD_INT64, .offset = offsetof(placed, total)},
    {.name = "customer", .kind = PR_FIELD_TEXT, .offset = offsetof(placed, customer)},
    {.name = NULL},
};

static const pr_contract placed_contract = {
    .size = (uint32_t)sizeof placed_contract,
    .type = PLACED,
    .type_version = 1,
    .kind = PR_CONTRACT_DOMAIN_EVENT,
    .fields = placed_fields,
    .object_size = sizeof(placed),
};

static const pr_contract note_contract = {
    .size = (uint32_t)sizeof note_contract,
    .type = NOTE,
    .type_version = 2,
    .kind = PR_CONTRACT_DOMAIN_EVENT,
    .flags = PR_CONTRACT_RAW | PR_CONTRACT_UNROUTED_OK,
};

typedef struct fixture {
    fake_store fake;
    pr_contracts *contracts;
    pr_event_source source;
} fixture;

static int set_up(void **state)
{
    static fixture f;
    fake_store_init(&f.fake);
    pr_event_source_init(&f.source);
    if (pr_contracts_new(&f.contracts, NULL) != PR_OK ||
        pr_contracts_register(f.contracts, &placed_contract, NULL) != PR_OK ||
        pr_contracts_register(f.contracts, &note_contract, NULL) != PR_OK)
        return -1;
    *state = &f;
    return 0;
}

static int tear_down(void **state)
{
    fixture *f = *state;
    pr_event_source_done(&f->source);
    pr_contracts_free(f->contracts);
    fake_store_done(&f->fake);
    return f->fake.units_open == 0 ? 0 : -1;
}

static pr_unit *begin(fixture *f)
{
    pr_unit *unit = NULL;
    assert_int_equal(pr_unit_begin(&f->fake.base, &unit, NULL), PR_OK);
    return unit;
}

static pr_unit *begin_tracking(fixture *f)
{
    pr_unit *unit = begin(f);
    assert_int_equal(pr_unit_track(unit, &f->source, f->contracts, NULL), PR_OK);
    return unit;
}

static void raise_placed(fixture *f, int64_t total)
{
    placed event = {.total = total, .customer = "ada"};
    assert_int_equal(
        pr_event_source_raise(&f->source, PLACED, 1, "order-7", &event, sizeof event, NULL), PR_OK);
}

static void assert_body_has(const pr_message *message, const char *part)
{
    if (!memmem(message->body, (size_t)message->body_size_bytes, part, strlen(part)))
        fail_msg("'%.*s' lacks '%s'", (int)message->body_size_bytes, (const char *)message->body,
                 part);
}

static void bad_events_are_refused_when_raised(void **state)
{
    fixture *f = *state;
    static char long_key[300];
    memset(long_key, 'k', sizeof long_key - 1);
    pr_event_source raw = {0};
    const struct {
        const char *label;
        pr_event_source *source;
        const char *type;
        const char *key;
        const void *event;
        size_t size;
        pr_status status;
    } cases[] = {
        {"no source", NULL, PLACED, NULL, "x", 1, PR_E_INVALID},
        {"not initialised", &raw, PLACED, NULL, "x", 1, PR_E_INVALID},
        {"no type", &f->source, NULL, NULL, "x", 1, PR_E_INVALID},
        {"no object", &f->source, PLACED, NULL, NULL, 1, PR_E_INVALID},
        {"no size", &f->source, PLACED, NULL, "x", 0, PR_E_INVALID},
        {"empty key", &f->source, PLACED, "", "x", 1, PR_E_INVALID},
        {"long key", &f->source, PLACED, long_key, "x", 1, PR_E_LIMIT},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        pr_status status = pr_event_source_raise(cases[i].source, cases[i].type, 1, cases[i].key,
                                                 cases[i].event, cases[i].size, NULL);
        if (status != cases[i].status)
            fail_msg("%s: %s", cases[i].label, pr_status_text(status));
    }
    assert_int_equal(f->source.count, 0);
}

static void events_are_enqueued_at_commit_in_order_and_then_cleared(void **state)
{
    fixture *f = *state;
    pr_unit *unit = begin_tracking(f);
    raise_placed(f, 1); /* raised after it was tracked, and before */
    raise_placed(f, 2);
    assert_int_equal(f->fake.row_count, 0); /* nothing happens while the aggregate is saved */
    assert_int_equal(f->source.count, 2);
    assert_int_equal(pr_unit_commit(unit, NULL, NULL), PR_OK);
    assert_int_equal(f->source.count, 0);
    assert_int_equal(f->fake.committed_count, 2);
    for (size_t i = 0; i < 2; i++) {
        const pr_message *row = f->fake.rows[i].message;
        assert_string_equal(row->type, PLACED);
        assert_string_equal(row->key, "order-7");
        assert_string_equal(row->content_type, "application/json");
        assert_false(f->fake.rows[i].caller_id);
        assert_null(row->headers);
        char total[32];
        (void)snprintf(total, sizeof total, "\"total\":%zu", i + 1);
        assert_body_has(row, total);
        assert_body_has(row, row->id); /* the id that the body repeats is the envelope's */
    }
    pr_unit_free(unit);
}

static void a_failed_commit_keeps_the_events_and_a_retry_writes_each_once(void **state)
{
    fixture *f = *state;
    const struct {
        const char *label;
        pr_outcome outcome;
    } cases[] = {{"not committed", PR_OUTCOME_NOT_COMMITTED}, {"unknown", PR_OUTCOME_UNKNOWN}};
    for (size_t i = 0; i < 2; i++) {
        raise_placed(f, 5);
        f->fake.commit_status = PR_E_BACKEND;
        f->fake.commit_outcome = cases[i].outcome;
        pr_unit *unit = begin_tracking(f);
        assert_int_equal(pr_unit_commit(unit, NULL, NULL), PR_E_BACKEND);
        pr_unit_free(unit);
        if (f->source.count != 1)
            fail_msg("%s: %u events are left", cases[i].label, f->source.count);
        char first_id[37] = "";
        if (cases[i].outcome == PR_OUTCOME_UNKNOWN)
            memcpy(first_id, f->fake.rows[0].message->id, sizeof first_id);
        fake_drop_rows(&f->fake, 0);

        f->fake.commit_status = PR_OK;
        f->fake.commit_outcome = PR_OUTCOME_COMMITTED;
        unit = begin_tracking(f);
        assert_int_equal(pr_unit_commit(unit, NULL, NULL), PR_OK);
        pr_unit_free(unit);
        assert_int_equal(f->source.count, 0);
        assert_int_equal(f->fake.row_count, 1);
        /* the same message, should the first one have been committed after all */
        if (first_id[0] != '\0')
            assert_string_equal(f->fake.rows[0].message->id, first_id);
        fake_drop_rows(&f->fake, 0);
        f->fake.committed_count = 0;
    }
}

static void rollback_and_free_keep_the_events(void **state)
{
    fixture *f = *state;
    raise_placed(f, 1);
    pr_unit *unit = begin_tracking(f);
    assert_int_equal(pr_unit_flush(unit, NULL), PR_OK);
    assert_int_equal(pr_unit_rollback(unit, NULL), PR_OK);
    pr_unit_free(unit);
    assert_int_equal(f->source.count, 1);
    unit = begin_tracking(f);
    pr_unit_free(unit);
    assert_int_equal(f->source.count, 1);
}

static void flush_writes_each_event_once_and_a_joined_unit_clears_when_told(void **state)
{
    fixture *f = *state;
    pr_unit *unit = NULL;
    assert_int_equal(fake_unit_new(&f->fake, /* joined= */ true, &unit, NULL), PR_OK);
    assert_int_equal(pr_unit_track(unit, &f->source, f->contracts, NULL), PR_OK);
    assert_int_equal(pr_unit_track(unit, &f->source, f->contracts, NULL), PR_OK); /* again: once */
    raise_placed(f, 1);
    assert_int_equal(pr_unit_flush(unit, NULL), PR_OK);
    assert_int_equal(pr_unit_flush(unit, NULL), PR_OK);
    assert_int_equal(f->fake.row_count, 1);
    raise_placed(f, 2);
    assert_int_equal(pr_unit_flush(unit, NULL), PR_OK);
    assert_int_equal(f->fake.row_count, 2);
    assert_int_equal(f->source.count, 2); /* until the outcome is known */
    raise_placed(f, 3);                   /* raised too late for this commit: it stays */
    assert_int_equal(pr_unit_finished(unit, PR_OUTCOME_COMMITTED, NULL), PR_OK);
    assert_int_equal(f->source.count, 1);
    pr_unit_free(unit);
}

static void an_event_that_cannot_be_encoded_stops_the_commit_and_nothing_is_lost(void **state)
{
    fixture *f = *state;
    const placed event = {.customer = "ada"};
    const struct {
        const char *label;
        const char *type;
        uint32_t version;
        size_t size;
        pr_status status;
        const char *text;
    } cases[] = {
        {"no contract", PLACED, 9, sizeof event, PR_E_INVALID, "no contract"},
        {"other struct", PLACED, 1, sizeof event - 8, PR_E_INVALID, "bytes"},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        raise_placed(f, 1);
        assert_int_equal(pr_event_source_raise(&f->source, cases[i].type, cases[i].version, NULL,
                                               &event, cases[i].size, NULL),
                         PR_OK);
        pr_unit *unit = begin_tracking(f);
        pr_outcome outcome = PR_OUTCOME_COMMITTED;
        pr_error err = PR_ERROR_INIT;
        pr_status status = pr_unit_commit(unit, &outcome, &err);
        if (status != cases[i].status || !strstr(err.message, cases[i].text))
            fail_msg("%s: %s '%s'", cases[i].label, pr_status_text(status), err.message);
        assert_int_equal(outcome, PR_OUTCOME_NOT_COMMITTED);
        assert_int_equal(f->fake.commits, 0);
        assert_int_equal(f->fake.row_count, 0); /* the good one before it was not written either */
        assert_int_equal(f->source.count, 2);
        pr_unit_free(unit);
        pr_event_source_done(&f->source);
    }
}

static void raw_contracts_and_unrouted_ok_reach_the_envelope(void **state)
{
    fixture *f = *state;
    pr_bytes bytes = {.data = "hello", .size = 5};
    assert_int_equal(pr_event_source_raise(&f->source, NOTE, 2, NULL, &bytes, sizeof bytes, NULL),
                     PR_OK);
    pr_unit *unit = begin_tracking(f);
    pr_unit_context context = {.size = (uint32_t)sizeof context, .correlation_id = "talk"};
    assert_int_equal(pr_unit_set_context(unit, &context, NULL), PR_OK);
    assert_int_equal(pr_unit_commit(unit, NULL, NULL), PR_OK);
    const pr_message *row = f->fake.rows[0].message;
    assert_int_equal(row->type_version, 2);
    assert_string_equal(row->content_type, "application/octet-stream");
    assert_int_equal(row->body_size_bytes, 5);
    assert_memory_equal(row->body, "hello", 5);
    assert_string_equal(row->headers, "{\"postroom-unrouted-ok\":{\"bool\":true}}");
    assert_string_equal(row->correlation_id, "talk");
    assert_null(row->key);
    pr_unit_free(unit);
}

static pr_status encode_upper(void *user, const pr_contract *contract, const void *object,
                              void **ret_body, size_t *ret_size, pr_error *err)
{
    const char *const *customer = object;
    char *body = pr_alloc(strlen(*customer));
    (void)user, (void)contract, (void)err;
    if (!body)
        return PR_E_NOMEM;
    for (size_t i = 0; (*customer)[i] != '\0'; i++)
        body[i] = (char)((*customer)[i] - 'a' + 'A');
    *ret_body = body;
    *ret_size = strlen(*customer);
    return PR_OK;
}

static pr_status decode_nothing(void *user, const pr_contract *contract, const pr_message *message,
                                pr_decoded *decoded, void *object, pr_error *err)
{
    (void)user, (void)contract, (void)message, (void)decoded, (void)object;
    return pr_error_set(err, PR_E_UNSUPPORTED, PR_RETRY_NEVER, "test", "not read");
}

static void an_event_is_written_by_the_codec_of_its_contract(void **state)
{
    static const pr_codec upper = {.size = (uint32_t)sizeof upper,
                                   .content_type = "text/x-upper",
                                   .encode = encode_upper,
                                   .decode = decode_nothing};
    static const pr_codec *const codecs[] = {&upper, NULL};
    static const pr_contract called = {.size = (uint32_t)sizeof called,
                                       .type = "urn:message:shop:called",
                                       .type_version = 3,
                                       .kind = PR_CONTRACT_DOMAIN_EVENT,
                                       .object_size = sizeof(const char *),
                                       .codecs = codecs};
    fixture *f = *state;
    const char *customer = "ada";
    assert_int_equal(pr_contracts_register(f->contracts, &called, NULL), PR_OK);
    assert_int_equal(
        pr_event_source_raise(&f->source, called.type, 3, NULL, &customer, sizeof customer, NULL),
        PR_OK);
    pr_unit *unit = begin_tracking(f);
    assert_int_equal(pr_unit_commit(unit, NULL, NULL), PR_OK);
    pr_unit_free(unit);
    const pr_message *message = f->fake.rows[0].message;
    assert_int_equal(f->fake.row_count, 1);
    assert_string_equal(message->content_type, "text/x-upper");
    assert_int_equal(message->type_version, 3);
    assert_int_equal(message->body_size_bytes, 3);
    assert_memory_equal(message->body, "ADA", 3);
}

static void the_events_own_id_and_time_win_where_it_has_them(void **state)
{
    fixture *f = *state;
    placed event = {.event_id = "0198C5F2-7D3E-7A10-8B2C-0123456789AB",
                    .occurred_at_us = 1700000000000000,
                    .customer = "ada"};
    assert_int_equal(pr_event_source_raise(&f->source, PLACED, 1, NULL, &event, sizeof event, NULL),
                     PR_OK);
    pr_unit *unit = begin_tracking(f);
    assert_int_equal(pr_unit_commit(unit, NULL, NULL), PR_OK);
    const pr_message *row = f->fake.rows[0].message;
    assert_string_equal(row->id, "0198c5f2-7d3e-7a10-8b2c-0123456789ab");
    assert_int_equal(row->occurred_at_us, 1700000000000000);
    pr_unit_free(unit);
}

static void what_a_nested_unit_tracked_goes_with_its_context_and_the_outer_end(void **state)
{
    fixture *f = *state;
    pr_unit *outer = begin(f);
    pr_unit *nested = NULL;
    assert_int_equal(pr_unit_nest(outer, &nested, NULL), PR_OK);
    pr_unit_context context = {.size = (uint32_t)sizeof context, .correlation_id = "inner"};
    assert_int_equal(pr_unit_set_context(nested, &context, NULL), PR_OK);
    assert_int_equal(pr_unit_track(nested, &f->source, f->contracts, NULL), PR_OK);
    raise_placed(f, 1);
    assert_int_equal(pr_unit_commit(nested, NULL, NULL), PR_OK);
    pr_unit_free(nested);
    assert_string_equal(f->fake.rows[0].message->correlation_id, "inner");
    assert_int_equal(f->source.count, 1);
    raise_placed(f, 2); /* the source is the outer unit's from here on */
    assert_int_equal(pr_unit_commit(outer, NULL, NULL), PR_OK);
    assert_int_equal(f->fake.committed_count, 2);
    assert_null(f->fake.rows[1].message->correlation_id);
    assert_int_equal(f->source.count, 0);
    pr_unit_free(outer);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
        CASE(bad_events_are_refused_when_raised),
        CASE(events_are_enqueued_at_commit_in_order_and_then_cleared),
        CASE(a_failed_commit_keeps_the_events_and_a_retry_writes_each_once),
        CASE(rollback_and_free_keep_the_events),
        CASE(flush_writes_each_event_once_and_a_joined_unit_clears_when_told),
        CASE(an_event_that_cannot_be_encoded_stops_the_commit_and_nothing_is_lost),
        CASE(raw_contracts_and_unrouted_ok_reach_the_envelope),
        CASE(an_event_is_written_by_the_codec_of_its_contract),
        CASE(the_events_own_id_and_time_win_where_it_has_them),
        CASE(what_a_nested_unit_tracked_goes_with_its_context_and_the_outer_end),
#undef CASE
    };
    return RUN_TESTS(tests);
}
