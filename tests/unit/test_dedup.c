/*
 * By what a message is known again, and what is left out of one that cannot be handled.
 */
#include "support/test.h"

#include "core/dedup.h"

static void no_usable_id_is_an_error_that_says_why(void **state)
{
    (void)state;
    const struct {
        const char *label;
        const char *id;
        const char *headers;
        const char *text;
    } cases[] = {
        {"none", NULL, NULL, "neither a header postroom-message-id nor a message id"},
        {"empty", "", NULL, "its message id is empty"},
        {"all zero", "00000000-0000-0000-0000-000000000000", NULL, "all zero"},
        {"not utf-8", "\xc3", NULL, "UTF-8"},
        {"double header", "id", "{\"postroom-message-id\":{\"double\":1.5}}", "neither a text"},
        {"bytes header", "id", "{\"postroom-message-id\":{\"bytes\":\"YQ==\"}}", "neither a text"},
        {"zero header", "id", "{\"postroom-message-id\":\"00000000-0000-0000-0000-000000000000\"}",
         "all zero"},
        {"broken headers", "id", "{\"postroom-message-id\":", ""},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        pr_message message = PR_MESSAGE(.id = cases[i].id, .headers = cases[i].headers);
        char id[PR_DEDUP_ID_SIZE];
        pr_error err = PR_ERROR_INIT;
        pr_status status = pr__dedup_id(&message, id, &err);
        check_error(status, &err, PR_E_CONTENT, cases[i].text, cases[i].label);
    }
}

static void the_header_goes_before_the_id(void **state)
{
    (void)state;
    static char long_id[300];
    memset(long_id, 'x', sizeof long_id - 1);
    const struct {
        const char *label;
        const char *id;
        const char *headers;
        const char *expected;
    } cases[] = {
        {"id", "any text", NULL, "any text"},
        {"uuid in lower case", "0198C5F2-7D3E-7A10-8B2C-00000000000A", "{}",
         "0198c5f2-7d3e-7a10-8b2c-00000000000a"},
        {"text header", "id", "{\"postroom-message-id\":\"h\"}", "h"},
        {"int header", "id", "{\"postroom-message-id\":{\"int\":-5}}", "-5"},
        {"header without id", NULL, "{\"postroom-message-id\":\"h\"}", "h"},
        {"the name as a value is no header", "id", "{\"x\":\"postroom-message-id\"}", "id"},
    };
    char id[PR_DEDUP_ID_SIZE];
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        pr_message message = PR_MESSAGE(.id = cases[i].id, .headers = cases[i].headers);
        pr_error err = PR_ERROR_INIT;
        check_ok(pr__dedup_id(&message, id, &err), &err, cases[i].label);
        CHECK_CASE(strcmp(id, cases[i].expected) == 0, cases[i].label);
    }
    pr_message message = PR_MESSAGE(.id = long_id);
    char other[PR_DEDUP_ID_SIZE];
    assert_int_equal(pr__dedup_id(&message, id, NULL), PR_OK);
    assert_memory_equal(id, "hash:", 5);
    assert_int_equal(strlen(id), 5 + 32);
    long_id[298] = 'y';
    assert_int_equal(pr__dedup_id(&message, other, NULL), PR_OK);
    assert_string_not_equal(id, other);
    long_id[255] = '\0'; /* 255 bytes are kept as they are */
    assert_int_equal(pr__dedup_id(&message, id, NULL), PR_OK);
    assert_string_equal(id, long_id);
}

static void what_cannot_be_kept_is_left_out_and_the_rest_stays(void **state)
{
    (void)state;
    static char long_text[40000];
    memset(long_text, 'x', sizeof long_text - 1);
    pr_message bad =
        PR_MESSAGE(.type = "\xff", .type_version = UINT32_MAX, .content_type = "",
                   .destination = long_text, .source = long_text, .key = "", .tenant = "\xff",
                   .correlation_id = long_text, .causation_id = long_text, .traceparent = long_text,
                   .tracestate = long_text, .headers = "no json", .body = NULL,
                   .body_size_bytes = 5, .occurred_at_us = INT64_MAX, .expires_at_us = INT64_MIN,
                   .deliver_at_us = INT64_MAX);
    pr__dedup_make_keepable(&bad);
    assert_string_equal(bad.type, "urn:message:unknown:unreadable");
    assert_int_equal(bad.type_version, 1);
    assert_string_equal(bad.content_type, "application/octet-stream");
    assert_null(bad.destination);
    assert_null(bad.source);
    assert_null(bad.key);
    assert_null(bad.tenant);
    assert_null(bad.correlation_id);
    assert_null(bad.causation_id);
    assert_null(bad.traceparent);
    assert_null(bad.tracestate);
    assert_null(bad.headers);
    assert_int_equal(bad.body_size_bytes, 0);
    assert_int_equal(bad.occurred_at_us + bad.expires_at_us + bad.deliver_at_us, 0);

    pr_message good =
        PR_MESSAGE(.type = "urn:message:a:b", .type_version = 3, .content_type = "x/y", .key = "k",
                   .tenant = "t", .headers = "{\"a\":\"b\"}", .body = "body", .body_size_bytes = 4,
                   .occurred_at_us = 7);
    pr_message kept = good;
    pr__dedup_make_keepable(&kept);
    assert_memory_equal(&kept, &good, sizeof good);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_usable_id_is_an_error_that_says_why),
        cmocka_unit_test(the_header_goes_before_the_id),
        cmocka_unit_test(what_cannot_be_kept_is_left_out_and_the_rest_stays),
    };
    return RUN_TESTS(tests);
}
