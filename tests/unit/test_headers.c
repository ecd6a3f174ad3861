/*
 * Headers: kinds survive the JSON text; limits and shape are checked, values are never shown.
 */
#include <math.h>

#include <postroom/headers.h>
#include <postroom/limits.h>

#include "support/test.h"

#include "base/buffer.h"
#include "base/fault.h"
#include "core/headers.h"

static void test_bad_text_is_refused_without_showing_it(void **state)
{
    (void)state;
    static const struct {
        const char *json, *wanted;
    } cases[] = {
        {"[]", "not a JSON object"},
        {"\"s3cret\"", "not a JSON object"},
        {"null", "not a JSON object"},
        {"{", "at byte 1"},
        {"{\"a\":\"s3cret\"", "it ends too early"},
        {"{\"a\":\"s3cret\"} x", "something stands behind its end"},
        {"{\"a\":s3cret}", "bad syntax at byte"},
        {"{\"a\":\"s3cret\",\"a\":\"b\"}", "a name stands twice"},
        {"{\"a\":\"\\u0000s3cret\"}", "a NUL character"},
        {"{\"a\":{\"int\":99999999999999999999}}", "a number is too large"},
        {"{\"a\":1}", "header 'a' is neither a string nor"},
        {"{\"a\":null}", "header 'a' is neither"},
        {"{\"a\":true}", "header 'a' is neither"},
        {"{\"a\":[\"s3cret\"]}", "header 'a' is neither"},
        {"{\"a\":{}}", "header 'a' is neither"},
        {"{\"a\":{\"int\":1,\"bool\":true}}", "header 'a' is neither"},
        {"{\"a\":{\"\":1}}", "header 'a' has an empty kind"},
        {"{\"a\":{\"int\":1.5}}", "header 'a' of kind int"},
        {"{\"a\":{\"int\":\"s3cret\"}}", "header 'a' of kind int"},
        {"{\"a\":{\"double\":\"s3cret\"}}", "header 'a' of kind double"},
        {"{\"a\":{\"bool\":1}}", "header 'a' of kind bool"},
        {"{\"a\":{\"instant\":\"s3cret\"}}", "header 'a' of kind instant"},
        {"{\"a\":{\"instant\":5}}", "header 'a' of kind instant"},
        {"{\"a\":{\"bytes\":\"s3cret!\"}}", "header 'a' of kind bytes"},
        {"{\"a\":{\"bytes\":5}}", "header 'a' of kind bytes"},
        {"{\"\":\"a\"}", "the name of a header is empty"},
        {"{\"a\\n\":\"b\"}", "control character in its name"},
        {"{\"\xFF\":\"s3cret\"}", "not valid UTF-8"},
        {"{\"a\":\"\xED\xA0\x80s3cret\"}", "not valid UTF-8"},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        pr_error err = PR_ERROR_INIT;
        pr_headers *headers = NULL;
        check_error(pr_headers_parse(cases[i].json, &headers, &err), &err, PR_E_CONTENT,
                    cases[i].wanted, cases[i].json);
        assert_null(headers);
        CHECK_CASE(!strstr(err.message, "s3cret"), cases[i].json);
        pr_error again = PR_ERROR_INIT;
        CHECK_CASE(pr__headers_check(cases[i].json, &again) == PR_E_CONTENT, cases[i].json);
        CHECK_CASE(strcmp(again.message, err.message) == 0, cases[i].json);
    }
}

/* `{"<name>":"xxx…"}` with name_size and text_size bytes. */
static void one_header(pr__buffer *out, size_t name_size, size_t text_size)
{
    pr__buffer_clear(out);
    pr__buffer_append_text(out, "{\"");
    for (size_t i = 0; i < name_size; i++)
        pr__buffer_append_char(out, 'n');
    pr__buffer_append_text(out, "\":\"");
    for (size_t i = 0; i < text_size; i++)
        pr__buffer_append_char(out, 'x');
    pr__buffer_append_text(out, "\"}");
}

static void test_limits_in_bytes(void **state)
{
    (void)state;
    AUTO_BUFFER text = PR_BUFFER_INIT;
    pr_error err = PR_ERROR_INIT;
    one_header(&text, 255, 1);
    check_ok(pr__headers_check(text.data, &err), &err, "longest name");
    one_header(&text, 256, 1);
    check_error(pr__headers_check(text.data, &err), &err, PR_E_LIMIT,
                "the name of a header has 256 bytes, at most 255", "longer name");
    pr_error_clear(&err);
    one_header(&text, 1, PR_HEADER_SIZE_MAX - 6); /* two quoted texts and a colon */
    check_ok(pr__headers_check(text.data, &err), &err, "longest header");
    one_header(&text, 1, PR_HEADER_SIZE_MAX - 5);
    check_error(pr__headers_check(text.data, &err), &err, PR_E_LIMIT,
                "header 'n' has 4097 bytes with its name, at most 4096", "longer header");
    pr_error_clear(&err);
    one_header(&text, 1, PR_HEADERS_SIZE_MAX);
    check_error(pr__headers_check(text.data, &err), &err, PR_E_LIMIT,
                "headers have 32776 bytes in all, at most 32768", "all");
}

static void test_set_refuses(void **state)
{
    (void)state;
    static const char big[PR_HEADER_SIZE_MAX + 1];
    static const struct {
        const char *label;
        pr_header header;
        pr_status status;
        const char *wanted;
    } cases[] = {
        {"no name", {.kind = PR_HEADER_TEXT, .text = "a"}, PR_E_INVALID, "name is NULL"},
        {"empty name", {.kind = PR_HEADER_TEXT, .name = "", .text = "a"}, PR_E_CONTENT, "empty"},
        {"no kind", {.name = "a", .text = "a"}, PR_E_INVALID, "unknown kind"},
        {"no text", {.kind = PR_HEADER_TEXT, .name = "a"}, PR_E_INVALID, "has no text"},
        {"bad text", {.kind = PR_HEADER_TEXT, .name = "a", .text = "\xC3"}, PR_E_CONTENT, "UTF-8"},
        {"nan",
         {.kind = PR_HEADER_DOUBLE, .name = "a", .real = (double)NAN},
         PR_E_CONTENT,
         "not a finite number"},
        {"instant",
         {.kind = PR_HEADER_INSTANT, .name = "a", .integer = INT64_MAX},
         PR_E_CONTENT,
         "out of the years"},
        {"null bytes",
         {.kind = PR_HEADER_BYTES, .name = "a", .bytes_size = 1},
         PR_E_INVALID,
         "NULL with a length"},
        {"many bytes",
         {.kind = PR_HEADER_BYTES, .name = "a", .bytes = big, .bytes_size = sizeof(big)},
         PR_E_LIMIT,
         "more bytes"},
        {"bytes that grow beyond the limit as base64",
         {.kind = PR_HEADER_BYTES, .name = "a", .bytes = big, .bytes_size = 4000},
         PR_E_LIMIT,
         "header 'a' has 5352 bytes"},
        {"other is no JSON",
         {.kind = PR_HEADER_OTHER, .name = "a", .text = "{"},
         PR_E_CONTENT,
         "no valid JSON"},
        {"other is no object",
         {.kind = PR_HEADER_OTHER, .name = "a", .text = "\"x\""},
         PR_E_CONTENT,
         "is not {"},
        {"other has two kinds",
         {.kind = PR_HEADER_OTHER, .name = "a", .text = "{\"x\":1,\"y\":2}"},
         PR_E_CONTENT,
         "is neither"},
    };
    pr_error err = PR_ERROR_INIT;
    AUTO(pr_headers) headers = NULL;
    check_ok(pr_headers_parse(NULL, &headers, &err), &err, "none");
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        pr_error_clear(&err);
        check_error(pr_headers_set(headers, &cases[i].header, &err), &err, cases[i].status,
                    cases[i].wanted, cases[i].label);
    }
    const char *json = "untouched";
    pr_error_clear(&err);
    check_ok(pr_headers_json(headers, &json, &err), &err, "nothing was set");
    assert_null(json);
}

static void test_kinds_survive(void **state)
{
    (void)state;
    static const pr_header all[] = {
        {.kind = PR_HEADER_TEXT, .name = "text", .text = "\xE2\x82\xAC \"quoted\"\n"},
        {.kind = PR_HEADER_INT, .name = "int", .integer = INT64_MIN},
        {.kind = PR_HEADER_DOUBLE, .name = "double", .real = 0.1},
        {.kind = PR_HEADER_DOUBLE, .name = "whole", .real = 5.0},
        {.kind = PR_HEADER_BOOL, .name = "yes", .integer = 1},
        {.kind = PR_HEADER_BOOL, .name = "no", .integer = 0},
        {.kind = PR_HEADER_INSTANT, .name = "at", .integer = 1769860800000001},
        {.kind = PR_HEADER_BYTES, .name = "bytes", .bytes = "\x00\xFF\x01", .bytes_size = 3},
        {.kind = PR_HEADER_BYTES, .name = "no bytes", .bytes = "", .bytes_size = 0},
        {.kind = PR_HEADER_OTHER, .name = "other", .text = "{\"table\":{\"a\":[1,null,\"x\"]}}"},
        {.kind = PR_HEADER_TEXT, .name = "empty", .text = ""},
    };
    pr_error err = PR_ERROR_INIT;
    AUTO(pr_headers) headers = NULL;
    check_ok(pr_headers_parse("", &headers, &err), &err, "none");
    for (size_t i = 0; i < COUNT_OF(all); i++)
        check_ok(pr_headers_set(headers, &all[i], &err), &err, all[i].name);
    const char *json = NULL;
    check_ok(pr_headers_json(headers, &json, &err), &err, "json");
    assert_string_equal(json,
                        "{\"text\":\"\xE2\x82\xAC \\\"quoted\\\"\\n\","
                        "\"int\":{\"int\":-9223372036854775808},\"double\":{\"double\":0.1},"
                        "\"whole\":{\"double\":5},\"yes\":{\"bool\":true},\"no\":{\"bool\":false},"
                        "\"at\":{\"instant\":\"2026-01-31T12:00:00.000001Z\"},"
                        "\"bytes\":{\"bytes\":\"AP8B\"},\"no bytes\":{\"bytes\":\"\"},"
                        "\"other\":{\"table\":{\"a\":[1,null,\"x\"]}},\"empty\":\"\"}");
    AUTO(pr_headers) back = NULL;
    check_ok(pr_headers_parse(json, &back, &err), &err, "parse");
    for (size_t i = 0; i < COUNT_OF(all); i++) {
        const pr_header *got = pr_headers_at(back, i); /* in the same order */
        assert_non_null(got);
        assert_ptr_equal(got, pr_headers_get(back, all[i].name));
        CHECK_CASE(got->kind == all[i].kind, all[i].name);
        CHECK_CASE(got->integer == all[i].integer, all[i].name);
        CHECK_CASE(got->real == all[i].real, all[i].name);
        CHECK_CASE(got->bytes_size == all[i].bytes_size, all[i].name);
        assert_string_equal(got->name, all[i].name);
        if (all[i].text)
            assert_string_equal(got->text, all[i].text);
        if (all[i].bytes_size > 0)
            assert_memory_equal(got->bytes, all[i].bytes, all[i].bytes_size);
    }
    assert_null(pr_headers_at(back, COUNT_OF(all)));
    assert_null(pr_headers_get(back, "missing"));
    const char *again = NULL;
    check_ok(pr_headers_json(back, &again, &err), &err, "json again");
    assert_string_equal(again, json);
}

static void test_set_replaces_in_place_and_copies(void **state)
{
    (void)state;
    pr_error err = PR_ERROR_INIT;
    AUTO(pr_headers) headers = NULL;
    check_ok(pr_headers_parse("{\"a\":\"1\",\"b\":{\"int\":2}}", &headers, &err), &err, "parse");
    char text[] = "changed";
    pr_header header = {.kind = PR_HEADER_TEXT, .name = "a", .text = text};
    check_ok(pr_headers_set(headers, &header, &err), &err, "set");
    text[0] = 'X';
    /* also with what it holds itself */
    check_ok(pr_headers_set(headers, pr_headers_get(headers, "b"), &err), &err, "set itself");
    const char *json = NULL;
    check_ok(pr_headers_json(headers, &json, &err), &err, "json");
    assert_string_equal(json, "{\"a\":\"changed\",\"b\":{\"int\":2}}");
}

static void test_all_together_have_a_limit(void **state)
{
    (void)state;
    static char text[4001];
    memset(text, 'x', sizeof(text) - 1);
    pr_error err = PR_ERROR_INIT;
    AUTO(pr_headers) headers = NULL;
    check_ok(pr_headers_parse(NULL, &headers, &err), &err, "none");
    const char *json = NULL;
    for (char c = 'a'; c < 'a' + 9; c++) {
        char name[] = {c, '\0'};
        pr_header header = {.kind = PR_HEADER_TEXT, .name = name, .text = text};
        check_ok(pr_headers_set(headers, &header, &err), &err, name);
        if (c < 'a' + 8)
            check_ok(pr_headers_json(headers, &json, &err), &err, name);
    }
    check_error(pr_headers_json(headers, &json, &err), &err, PR_E_LIMIT, "at most 32768",
                "the ninth");
}

#ifdef PR_FAULT_POINTS
static void test_out_of_memory_leaks_and_loses_nothing(void **state)
{
    (void)state;
    int64_t failed = 0;
    for (int64_t n = 1;; n++) {
        pr_error err = PR_ERROR_INIT;
        AUTO(pr_headers) headers = NULL;
        const char *json = NULL;
        pr__fault_alloc_fail_at(n);
        pr_status status = pr_headers_parse("{\"a\":\"1\",\"b\":{\"bytes\":\"AAAA\"},"
                                            "\"c\":{\"x\":[1]}}",
                                            &headers, &err);
        if (status == PR_OK)
            status = pr_headers_json(headers, &json, &err);
        bool reached = pr__fault_alloc_count() >= n;
        pr__fault_alloc_fail_at(0);
        if (!reached) {
            check_ok(status, &err, "enough memory");
            assert_string_equal(json, "{\"a\":\"1\",\"b\":{\"bytes\":\"AAAA\"},\"c\":{\"x\":[1]}}");
            break;
        }
        check_error(status, &err, PR_E_NOMEM, "out of memory", "n-th allocation");
        failed++;
    }
    assert_true(failed >= 8);
}
#endif

/* Every way of saying it is in test_port_route.c. */
static void test_a_message_says_that_nobody_need_be_there(void **state)
{
    pr_message message = PR_MESSAGE(.type = "urn:message:a:b");
    (void)state;
    assert_false(pr_message_unrouted_ok(NULL));
    assert_false(pr_message_unrouted_ok(&message));
    message.headers = "{\"" PR_HEADER_NAME_UNROUTED_OK "\":{\"bool\":true}}";
    assert_true(pr_message_unrouted_ok(&message));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bad_text_is_refused_without_showing_it),
        cmocka_unit_test(test_limits_in_bytes),
        cmocka_unit_test(test_set_refuses),
        cmocka_unit_test(test_kinds_survive),
        cmocka_unit_test(test_set_replaces_in_place_and_copies),
        cmocka_unit_test(test_all_together_have_a_limit),
        cmocka_unit_test(test_a_message_says_that_nobody_need_be_there),
#ifdef PR_FAULT_POINTS
        cmocka_unit_test(test_out_of_memory_leaks_and_loses_nothing),
#endif
    };
    return RUN_TESTS(tests);
}
