/*
 * Messages: every limit, in bytes, with the error that names field, size and limit; copies.
 */
#include <postroom/message.h>

#include "support/test.h"

#include "base/fault.h"
#include "base/time.h"
#include "core/message.h"

#define ID    "0190b8f5-7d0c-7000-8000-000000000001"
#define NIL   "00000000-0000-0000-0000-000000000000"
#define TYPE  "urn:message:shop:order-placed"
#define EURO  "\xE2\x82\xAC"
#define LARGE ((size_t)PR_BODY_SIZE_DEFAULT + 1)

static pr_message good(void)
{
    pr_message message = PR_MESSAGE(.type = TYPE);
    return message;
}

static pr_message received(void)
{
    pr_message message = PR_MESSAGE(.type = TYPE, .id = ID, .occurred_at_us = 1);
    return message;
}

/* A message with one field changed, and what must be said of it. */
typedef struct bad_message {
    const char *label;
    pr_message message;
    pr_status status;
    const char *wanted;
} bad_message;

#define BAD(label, status, wanted, ...)                                                            \
    {                                                                                              \
        label, PR_MESSAGE(.type = TYPE, __VA_ARGS__), status, wanted                               \
    }

static void test_what_is_refused(void **state)
{
    (void)state;
    static const bad_message cases[] = {
        {"no size", {.type = TYPE}, PR_E_INVALID, "size of pr_message"},
        {"a size of garbage", {.size = 1u << 30, .type = TYPE}, PR_E_INVALID, "size of pr_message"},
        {"no type", PR_MESSAGE(.id = ID), PR_E_INVALID, "type is missing"},
        {"empty type", PR_MESSAGE(.type = ""), PR_E_CONTENT, "type '' is not urn:message:"},
        {"a C name", PR_MESSAGE(.type = "struct order"), PR_E_CONTENT, "is not urn:message:"},
        {"another urn", PR_MESSAGE(.type = "urn:isbn:1"), PR_E_CONTENT, "is not urn:message:"},
        {"type not UTF-8", PR_MESSAGE(.type = "urn:message:a:\xFF"), PR_E_CONTENT,
         "type is not valid UTF-8"},
        {"type with a control character", PR_MESSAGE(.type = "urn:message:a:b\n"), PR_E_CONTENT,
         "the name of type"},
        BAD("version", PR_E_LIMIT, "type_version is 2147483648", .type_version = 2147483648u),
        BAD("id is text", PR_E_CONTENT, "id 'order-1' is not a UUID", .id = "order-1"),
        BAD("id is empty", PR_E_CONTENT, "id '' is not a UUID", .id = ""),
        BAD("id is all zero", PR_E_CONTENT, "id is all zero", .id = NIL),
        BAD("id not UTF-8", PR_E_CONTENT, "id is not valid UTF-8", .id = "\xFF"),
        BAD("empty key", PR_E_INVALID, "key is empty", .key = ""),
        BAD("key not UTF-8", PR_E_CONTENT, "key is not valid UTF-8", .key = "a\xC3"),
        BAD("tenant not UTF-8", PR_E_CONTENT, "tenant is not valid UTF-8",
            .tenant = "\xED\xA0\x80"),
        BAD("empty content type", PR_E_INVALID, "content_type is empty", .content_type = ""),
        BAD("content type of two lines", PR_E_CONTENT, "content_type has a control character",
            .content_type = "a/b\r\nx: y"),
        BAD("traceparent of two lines", PR_E_CONTENT, "traceparent has a control character",
            .traceparent = "00-\n"),
        BAD("destination", PR_E_CONTENT, "destination: address 'billing': there is no <transport>",
            .destination = "billing"),
        BAD("destination of a bad type", PR_E_CONTENT, "the name of type",
            .destination = "m://topic/urn:message:a:"),
        BAD("empty headers", PR_E_CONTENT, "headers are empty text", .headers = ""),
        BAD("headers", PR_E_CONTENT, "header 'a' is neither", .headers = "{\"a\":1}"),
        BAD("header name not UTF-8", PR_E_CONTENT, "headers are not valid UTF-8",
            .headers = "{\"\xFF\":\"a\"}"),
        BAD("NULL body with a length", PR_E_INVALID, "body is NULL, but body_size_bytes is 1",
            .body_size_bytes = 1),
        BAD("time before year 1", PR_E_CONTENT, "occurred_at_us is -62135596800000001",
            .occurred_at_us = PR_INSTANT_MIN_US - 1),
        BAD("time after 9999", PR_E_CONTENT, "occurred_at_us is 253402300800000000",
            .occurred_at_us = PR_INSTANT_MAX_US + 1),
        BAD("minus infinity", PR_E_CONTENT, "occurred_at_us is -9223372036854775808",
            .occurred_at_us = INT64_MIN),
        BAD("infinity", PR_E_CONTENT, "expires_at_us is 9223372036854775807",
            .expires_at_us = INT64_MAX),
        BAD("delivery", PR_E_CONTENT, "deliver_at_us is 9223372036854775807",
            .deliver_at_us = INT64_MAX),
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        pr_error err = PR_ERROR_INIT;
        check_error(pr_message_check(&cases[i].message, 0, &err), &err, cases[i].status,
                    cases[i].wanted, cases[i].label);
        CHECK_CASE(err.retry == PR_RETRY_NEVER, cases[i].label);
    }
    assert_int_equal(pr_message_check(NULL, 0, NULL), PR_E_INVALID);
}

typedef struct text_limit {
    const char *name;
    size_t offset;
    size_t limit;
} text_limit;

static const text_limit text_limits[] = {
    {"content_type", offsetof(pr_message, content_type), 255},
    {"source", offsetof(pr_message, source), 255},
    {"key", offsetof(pr_message, key), 255},
    {"tenant", offsetof(pr_message, tenant), 255},
    {"correlation_id", offsetof(pr_message, correlation_id), 255},
    {"causation_id", offsetof(pr_message, causation_id), 255},
    {"traceparent", offsetof(pr_message, traceparent), 128},
    {"tracestate", offsetof(pr_message, tracestate), 512},
};

static void test_text_limits_are_bytes(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(text_limits); i++) {
        const text_limit *field = &text_limits[i];
        char text[600], wanted[100];
        const char *value = text;
        pr_error err = PR_ERROR_INIT;
        pr_message message = received(); /* its rules are these and more */
        memcpy((char *)&message + field->offset, &value, sizeof(value));

        memset(text, 'x', field->limit);
        text[field->limit] = '\0';
        check_ok(pr_message_check(&message, 0, &err), &err, field->name);
        check_ok(pr__message_check_received(&message, 0, &err), &err, field->name);

        /* one byte over in bytes, though a third of it in characters */
        size_t used = 0;
        while (used + 3 <= field->limit + 1) {
            memcpy(text + used, EURO, 3);
            used += 3;
        }
        memset(text + used, 'x', field->limit + 1 - used);
        text[field->limit + 1] = '\0';
        snprintf(wanted, sizeof(wanted), "%s has %zu bytes, at most %zu", field->name,
                 field->limit + 1, field->limit);
        check_error(pr_message_check(&message, 0, &err), &err, PR_E_LIMIT, wanted, field->name);
        pr_error_clear(&err);
        check_error(pr__message_check_received(&message, 0, &err), &err, PR_E_LIMIT, wanted,
                    field->name);
    }
}

static void test_type_and_destination_limits(void **state)
{
    (void)state;
    char text[600] = "urn:message:a:";
    pr_error err = PR_ERROR_INIT;
    pr_message message = good();
    message.type = text;
    memset(text + 14, 'x', 186);
    check_ok(pr_message_check(&message, 0, &err), &err, "type of 200 bytes");
    memset(text + 14, 'x', 187);
    check_error(pr_message_check(&message, 0, &err), &err, PR_E_LIMIT,
                "type has 201 bytes, at most 200", "type");
    pr_error_clear(&err);
    message = good();
    message.destination = text;
    memset(text, 'x', 513);
    check_error(pr_message_check(&message, 0, &err), &err, PR_E_LIMIT,
                "destination: address has 513 bytes, at most 512", "destination");
}

static void test_body_limits(void **state)
{
    (void)state;
    char *body = calloc(1, LARGE);
    pr_error err = PR_ERROR_INIT;
    pr_message message = good();
    message.body = body;
    message.body_size_bytes = LARGE - 1;
    check_ok(pr_message_check(&message, 0, &err), &err, "1 MiB");
    message.body_size_bytes = LARGE;
    check_error(pr_message_check(&message, 0, &err), &err, PR_E_LIMIT,
                "body has 1048577 bytes, at most 1048576", "default");
    pr_error_clear(&err);
    check_ok(pr_message_check(&message, LARGE, &err), &err, "a limit of the store's own");
    message.body_size_bytes = 11;
    check_error(pr_message_check(&message, 10, &err), &err, PR_E_LIMIT,
                "body has 11 bytes, at most 10", "own");
    pr_error_clear(&err);
    check_ok(pr_message_check(&message, (uint64_t)PR_BODY_SIZE_MAX, &err), &err, "64 MiB");
    check_error(pr_message_check(&message, (uint64_t)PR_BODY_SIZE_MAX + 1, &err), &err,
                PR_E_INVALID, "body_size_max is 67108865", "no higher");
    free(body);
}

static void test_what_is_taken(void **state)
{
    (void)state;
    pr_error err = PR_ERROR_INIT;
    static const pr_message cases[] = {
        PR_MESSAGE(.type = TYPE),
        PR_MESSAGE(.type = TYPE, .body = "", .body_size_bytes = 0),
        PR_MESSAGE(.type = TYPE, .body = NULL, .body_size_bytes = 0),
        PR_MESSAGE(.type = TYPE, .body = "\x00\xFF", .body_size_bytes = 2), /* any bytes */
        PR_MESSAGE(.type = TYPE, .id = "0190B8F5-7D0C-7000-8000-00000000000A"),
        PR_MESSAGE(.type = TYPE, .tenant = "", .correlation_id = ""),
        PR_MESSAGE(.type = TYPE, .type_version = 2147483647, .occurred_at_us = PR_INSTANT_MIN_US,
                   .expires_at_us = PR_INSTANT_MAX_US, .deliver_at_us = 1),
        PR_MESSAGE(.type = TYPE, .key = EURO "\n", .headers = "{\"a\":{\"int\":1}}",
                   .destination = "database://in/billing", .source = "shop"),
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        char label[8];
        snprintf(label, sizeof(label), "row %zu", i);
        check_ok(pr_message_check(&cases[i], 0, &err), &err, label);
    }
}

static void test_a_longer_struct_of_a_newer_caller(void **state)
{
    (void)state;
    struct {
        pr_message message;
        uint64_t newer;
    } longer = {.message = good()};
    pr_error err = PR_ERROR_INIT;
    longer.message.size = (uint32_t)sizeof(longer);
    check_ok(pr_message_check(&longer.message, 0, &err), &err, "unused");
    longer.newer = 1;
    check_error(pr_message_check(&longer.message, 0, &err), &err, PR_E_INVALID, "newer version",
                "used");
}

static void test_received_takes_ids_and_types_of_others(void **state)
{
    (void)state;
    char text[300];
    pr_error err = PR_ERROR_INIT;
    pr_message message = received();
    message.id = "order/1 of others";
    message.type = "com.example.placed";
    message.destination = "queue of others";
    check_ok(pr__message_check_received(&message, 0, &err), &err, "of others");
    static const bad_message cases[] = {
        {"no id", PR_MESSAGE(.type = TYPE), PR_E_CONTENT, "id is missing"},
        {"empty id", PR_MESSAGE(.type = TYPE, .id = ""), PR_E_CONTENT, "id is missing"},
        {"all zero", PR_MESSAGE(.type = TYPE, .id = NIL), PR_E_CONTENT, "id is all zero"},
        {"no type", PR_MESSAGE(.id = ID), PR_E_CONTENT, "type is missing"},
        {"time", PR_MESSAGE(.type = TYPE, .id = ID, .occurred_at_us = INT64_MAX), PR_E_CONTENT,
         "occurred_at_us"},
        {"body", PR_MESSAGE(.type = TYPE, .id = ID, .body_size_bytes = 5), PR_E_INVALID,
         "body is NULL"},
        {"headers", PR_MESSAGE(.type = TYPE, .id = ID, .headers = "x"), PR_E_CONTENT, "headers"},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        pr_error_clear(&err);
        check_error(pr__message_check_received(&cases[i].message, 0, &err), &err, cases[i].status,
                    cases[i].wanted, cases[i].label);
    }
    memset(text, 'x', 256);
    text[256] = '\0';
    message.id = text;
    pr_error_clear(&err);
    check_error(pr__message_check_received(&message, 0, &err), &err, PR_E_LIMIT,
                "id has 256 bytes, at most 255", "id");
    text[255] = '\0';
    pr_error_clear(&err);
    check_ok(pr__message_check_received(&message, 0, &err), &err, "id of 255 bytes");
}

static void test_copy_owns_everything(void **state)
{
    (void)state;
    char id[] = ID, type[] = TYPE, key[] = "k1", headers[] = "{\"a\":\"b\"}", body[] = "x\0y";
    pr_message message =
        PR_MESSAGE(.type = type, .type_version = 3, .id = id, .key = key,
                   .content_type = "text/plain", .destination = "m://in/a", .source = "s",
                   .tenant = "t", .correlation_id = "co", .causation_id = "ca", .traceparent = "tp",
                   .tracestate = "ts", .headers = headers, .body = body, .body_size_bytes = 3,
                   .occurred_at_us = 1, .expires_at_us = 2, .deliver_at_us = 3);
    pr_error err = PR_ERROR_INIT;
    AUTO(pr_message) copy = NULL;
    check_ok(pr_message_copy(&message, &copy, &err), &err, "copy");
    memset(id, 'X', sizeof(id) - 1);
    memset(type, 'X', sizeof(type) - 1);
    memset(key, 'X', sizeof(key) - 1);
    memset(headers, 'X', sizeof(headers) - 1);
    memset(body, 'X', sizeof(body) - 1);
    assert_string_equal(copy->id, ID);
    assert_string_equal(copy->type, TYPE);
    assert_string_equal(copy->key, "k1");
    assert_string_equal(copy->content_type, "text/plain");
    assert_string_equal(copy->destination, "m://in/a");
    assert_string_equal(copy->source, "s");
    assert_string_equal(copy->tenant, "t");
    assert_string_equal(copy->correlation_id, "co");
    assert_string_equal(copy->causation_id, "ca");
    assert_string_equal(copy->traceparent, "tp");
    assert_string_equal(copy->tracestate, "ts");
    assert_string_equal(copy->headers, "{\"a\":\"b\"}");
    assert_int_equal(copy->body_size_bytes, 3);
    assert_memory_equal(copy->body, "x\0y", 4); /* with a NUL behind */
    assert_int_equal(copy->type_version, 3);
    assert_int_equal(copy->occurred_at_us, 1);
    assert_int_equal(copy->expires_at_us, 2);
    assert_int_equal(copy->deliver_at_us, 3);
    assert_null(pr_message_free(NULL));
}

static void test_copy_keeps_what_is_missing(void **state)
{
    (void)state;
    pr_message message = good();
    pr_error err = PR_ERROR_INIT;
    AUTO(pr_message) copy = NULL;
    check_ok(pr_message_copy(&message, &copy, &err), &err, "copy");
    assert_null(copy->id);
    assert_null(copy->key);
    assert_null(copy->headers);
    assert_null(copy->body);
    message.body_size_bytes = 9;
    pr_message *none = NULL;
    check_error(pr_message_copy(&message, &none, &err), &err, PR_E_INVALID, "NULL body", "body");
    assert_null(none);
#ifdef PR_FAULT_POINTS
    pr_error_clear(&err);
    message.body_size_bytes = 0;
    pr__fault_alloc_fail_at(1);
    pr_status status = pr_message_copy(&message, &none, &err);
    pr__fault_alloc_fail_at(0);
    check_error(status, &err, PR_E_NOMEM, "out of memory", "copy");
    assert_null(none);
#endif
}

static void test_ids_in_canonical_form(void **state)
{
    (void)state;
    char out[PR_UUID_TEXT_SIZE];
    assert_string_equal(pr__message_id_canonical("0190B8F5-7D0C-7000-8000-00000000000A", out),
                        "0190b8f5-7d0c-7000-8000-00000000000a");
    assert_string_equal(pr__message_id_canonical("Order-1", out), "Order-1");
    assert_true(pr__message_id_equal("0190B8F5-7D0C-7000-8000-00000000000A",
                                     "0190b8f5-7d0c-7000-8000-00000000000a"));
    assert_false(pr__message_id_equal("Order-1", "order-1"));
    assert_false(pr__message_id_equal(NULL, "order-1"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_is_refused),
        cmocka_unit_test(test_text_limits_are_bytes),
        cmocka_unit_test(test_type_and_destination_limits),
        cmocka_unit_test(test_body_limits),
        cmocka_unit_test(test_what_is_taken),
        cmocka_unit_test(test_a_longer_struct_of_a_newer_caller),
        cmocka_unit_test(test_received_takes_ids_and_types_of_others),
        cmocka_unit_test(test_copy_owns_everything),
        cmocka_unit_test(test_copy_keeps_what_is_missing),
        cmocka_unit_test(test_ids_in_canonical_form),
    };
    return RUN_TESTS(tests);
}
