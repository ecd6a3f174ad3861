/*
 * JSON of operations: every field by its name, absent ones null, a body only where it is asked for.
 */
#include <jansson.h>

#include "support/test.h"

#include "ops/render.h"
#include "port/state.h"

static json_t *read_back(pr__json *json, pr__buffer *buffer)
{
    assert_false(json->failed);
    json_error_t failure;
    json_t *root = json_loads(pr__buffer_text(buffer), JSON_REJECT_DUPLICATES, &failure);
    if (!root)
        fail_msg("%s in: %s", failure.text, pr__buffer_text(buffer));
    return root;
}

static const char *string_of(json_t *root, const char *name)
{
    return json_string_value(json_object_get(root, name));
}

static void test_a_record(void **state)
{
    (void)state;
    static const char body[] = {'a', '\0', (char)0xFF};
    const struct {
        const char *label;
        pr_message message;
        bool with_body;
        const char *field, *value;
    } cases[] = {
        {"no body asked for", {.body = "{}", .body_size_bytes = 2}, false, NULL, NULL},
        {"JSON", {.body = "{\"a\":1}", .body_size_bytes = 7}, true, "body", "{\"a\":1}"},
        {"empty", {.body = NULL}, true, "body", ""},
        {"bytes",
         {.content_type = "application/octet-stream", .body = "abc", .body_size_bytes = 3},
         true,
         "body_base64",
         "YWJj"},
        {"text that is none",
         {.content_type = "text/plain", .body = body, .body_size_bytes = 3},
         true,
         "body_base64",
         "YQD/"},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        AUTO_BUFFER buffer = PR_BUFFER_INIT;
        pr__json json;
        pr__json_init(&json, &buffer);
        pr_record record = {.box = PR_BOX_INBOX,
                            .state = PR_STATE_FAILED,
                            .consumer = "billing",
                            .attempts = 2,
                            .next_attempt_at_us = 1,
                            .message = cases[i].message};
        record.message.id = "m\"1";
        pr__render_record(&json, &record, cases[i].with_body);
        json_t *root = read_back(&json, &buffer);
        CHECK_CASE(strcmp(string_of(root, "message_id"), "m\"1") == 0, cases[i].label);
        CHECK_CASE(strcmp(string_of(root, "box"), "inbox") == 0, cases[i].label);
        CHECK_CASE(strcmp(string_of(root, "state"), "failed") == 0, cases[i].label);
        CHECK_CASE(strcmp(string_of(root, "next_attempt_at"), "1970-01-01T00:00:00.000001Z") == 0,
                   cases[i].label);
        CHECK_CASE(json_is_null(json_object_get(root, "locked_until")), cases[i].label);
        CHECK_CASE(json_integer_value(json_object_get(root, "attempts")) == 2, cases[i].label);
        CHECK_CASE(!json_object_get(root, "lane"), cases[i].label);
        if (cases[i].field)
            CHECK_CASE(strcmp(string_of(root, cases[i].field), cases[i].value) == 0,
                       cases[i].label);
        else
            CHECK_CASE(!json_object_get(root, "body") && !json_object_get(root, "body_base64"),
                       cases[i].label);
        json_decref(root);
    }
}

static void test_status_has_every_state_with_zeros(void **state)
{
    (void)state;
    AUTO_BUFFER buffer = PR_BUFFER_INIT;
    pr__json json;
    pr__json_init(&json, &buffer);
    pr_status_report report = {.store = "sqlite /a/b.db", .lanes = 16};
    report.outbox[PR_STATE_DEAD] = 3;
    pr__render_status(&json, &report);
    json_t *root = read_back(&json, &buffer);
    json_t *outbox = json_object_get(root, "outbox");
    for (int i = PR_STATE_PENDING; i < PR_STATE_COUNT; i++) {
        json_t *value = json_object_get(outbox, pr__state_text((pr_state)i));
        CHECK_CASE(json_is_integer(value), pr__state_text((pr_state)i));
        CHECK_CASE(json_integer_value(value) == (i == PR_STATE_DEAD ? 3 : 0),
                   pr__state_text((pr_state)i));
    }
    assert_int_equal(json_object_size(outbox), PR_STATE_COUNT - 1);
    assert_int_equal(json_object_size(json_object_get(root, "inbox")), PR_STATE_COUNT - 1);
    json_decref(root);
}

static void test_an_explanation(void **state)
{
    (void)state;
    AUTO_BUFFER buffer = PR_BUFFER_INIT;
    pr__json json;
    pr__json_init(&json, &buffer);
    pr_explanation explanation = {
        .state = PR_STATE_HELD, .box = PR_BOX_OUTBOX, .summary = "is held", .blocker_id = "m0"};
    pr__render_explanation(&json, "m1", &explanation);
    json_t *root = read_back(&json, &buffer);
    assert_string_equal(string_of(root, "message_id"), "m1");
    assert_string_equal(string_of(root, "summary"), "is held");
    assert_string_equal(string_of(root, "blocker_id"), "m0");
    assert_true(json_is_null(json_object_get(root, "consumer")));
    json_decref(root);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_record),
        cmocka_unit_test(test_status_has_every_state_with_zeros),
        cmocka_unit_test(test_an_explanation),
    };
    return RUN_TESTS(tests);
}
