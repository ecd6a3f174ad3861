/*
 * The JSON writer: valid JSON, exact text, doubles that read back in any locale.
 */
#include <locale.h>
#include <math.h>

#include "support/test.h"

#include "base/json_writer.h"
#include "base/text.h"

static void test_misuse_is_a_failure(void **state)
{
    (void)state;
    AUTO_BUFFER buffer = PR_BUFFER_INIT;
    pr__json json;
    pr__json_init(&json, &buffer);
    for (int i = 0; i < PR_JSON_DEPTH_MAX; i++)
        pr__json_array_begin(&json);
    assert_false(json.failed);
    pr__json_array_begin(&json);
    assert_true(json.failed);

    static const double bad[] = {(double)NAN, (double)INFINITY, -(double)INFINITY};
    for (size_t i = 0; i < COUNT_OF(bad); i++) {
        pr__json_init(&json, &buffer);
        pr__json_double(&json, bad[i]);
        assert_true(json.failed);
    }
    pr__json_init(&json, &buffer);
    pr__json_object_end(&json);
    assert_true(json.failed);
    pr__json_init(&json, &buffer);
    pr__json_key(&json, "a key outside of an object");
    assert_true(json.failed);
    pr__json_init(&json, &buffer);
    pr__json_object_begin(&json);
    pr__json_key(&json, "a");
    pr__json_object_end(&json); /* a key without a value */
    assert_true(json.failed);
}

static void test_everything_in_one_document(void **state)
{
    (void)state;
    AUTO_BUFFER buffer = PR_BUFFER_INIT;
    pr__json json;
    pr__json_init(&json, &buffer);
    pr__json_object_begin(&json);
    pr__json_key(&json, "a\"b");
    pr__json_array_begin(&json);
    pr__json_array_end(&json);
    pr__json_key(&json, "o");
    pr__json_object_begin(&json);
    pr__json_key(&json, "x");
    pr__json_null(&json);
    pr__json_object_end(&json);
    pr__json_key(&json, "list");
    pr__json_array_begin(&json);
    pr__json_int(&json, INT64_MIN);
    pr__json_uint(&json, UINT64_MAX);
    pr__json_bool(&json, true);
    pr__json_bool(&json, false);
    pr__json_text(&json, NULL);
    pr__json_text(&json, "");
    pr__json_text_n(&json, "a\0b", 3);
    pr__json_base64(&json, "\xFF\x00\x10", 3);
    pr__json_base64(&json, NULL, 0);
    pr__json_instant(&json, 1);
    pr__json_raw(&json, "{\"r\":1}", 7);
    pr__json_array_end(&json);
    pr__json_object_end(&json);
    assert_false(json.failed);
    assert_int_equal(json.depth, 0);
    assert_string_equal(pr__buffer_text(&buffer),
                        "{\"a\\\"b\":[],\"o\":{\"x\":null},\"list\":[-9223372036854775808,"
                        "18446744073709551615,true,false,null,\"\",\"a\\u0000b\",\"/wAQ\",\"\","
                        "\"1970-01-01T00:00:00.000001Z\",{\"r\":1}]}");
}

static void test_members(void **state)
{
    (void)state;
    AUTO_BUFFER buffer = PR_BUFFER_INIT;
    pr__json json;
    pr__json_init(&json, &buffer);
    pr__json_object_begin(&json);
    pr__json_member_text(&json, "text", "a");
    pr__json_member_text(&json, "none", NULL);
    pr__json_member_int(&json, "int", -1);
    pr__json_member_uint(&json, "uint", UINT64_MAX);
    pr__json_member_double(&json, "double", 0.5);
    pr__json_member_bool(&json, "bool", true);
    pr__json_object_end(&json);
    assert_false(json.failed);
    assert_string_equal(pr__buffer_text(&buffer),
                        "{\"text\":\"a\",\"none\":null,\"int\":-1,"
                        "\"uint\":18446744073709551615,\"double\":0.5,\"bool\":true}");
}

static void test_strings(void **state)
{
    (void)state;
    static const struct {
        const char *label, *text, *wanted;
    } cases[] = {
        {"plain", "abc", "\"abc\""},
        {"escapes", "\"\\\n\r\t\b\x01\x1F\x7F",
         "\"\\\"\\\\\\n\\r\\t\\u0008\\u0001\\u001f\\u007f\""},
        {"utf-8 stays", "\xC3\xA4\xE2\x82\xAC\xF0\x9F\x93\xAE",
         "\"\xC3\xA4\xE2\x82\xAC\xF0\x9F\x93\xAE\""},
        {"bad bytes are replaced",
         "a\xFF\xC3"
         "b",
         "\"a\xEF\xBF\xBD\xEF\xBF\xBD"
         "b\""},
        {"an escape first and last", "\"a\"", "\"\\\"a\\\"\""},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        AUTO_BUFFER buffer = PR_BUFFER_INIT;
        pr__json json;
        pr__json_init(&json, &buffer);
        pr__json_text(&json, cases[i].text);
        CHECK_CASE(strcmp(pr__buffer_text(&buffer), cases[i].wanted) == 0, cases[i].label);
    }
}

static void check_doubles(void)
{
    static const struct {
        double value;
        const char *wanted;
    } cases[] = {
        {0.0, "0"},
        {-0.0, "-0.0"},
        {1.0, "1"},
        {0.1, "0.1"},
        {-1.5, "-1.5"},
        {1e21, "1e+21"},
        {0.1 + 0.2, "0.30000000000000004"},
        {5e-324, "4.94065645841247e-324"},
        {1.7976931348623157e308, "1.7976931348623157e+308"},
        {123456789.125, "123456789.125"},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        AUTO_BUFFER buffer = PR_BUFFER_INIT;
        pr__json json;
        double back = 0;
        pr__json_init(&json, &buffer);
        pr__json_double(&json, cases[i].value);
        CHECK_CASE(strcmp(pr__buffer_text(&buffer), cases[i].wanted) == 0, cases[i].wanted);
        CHECK_CASE(pr__parse_double(buffer.data, buffer.size, &back), cases[i].wanted);
        CHECK_CASE(memcmp(&back, &cases[i].value, sizeof(back)) == 0, cases[i].wanted);
    }
}

static void test_doubles_in_any_locale(void **state)
{
    (void)state;
    static const char *const locales[] = {"de_DE.UTF-8", "fr_FR.UTF-8", "ps_AF.UTF-8"};
    check_doubles();
    for (size_t i = 0; i < COUNT_OF(locales); i++) {
        if (setlocale(LC_ALL, locales[i])) /* where they are installed */
            check_doubles();
    }
    setlocale(LC_ALL, "C");
}

static void test_random_doubles_read_back(void **state)
{
    (void)state;
    uint64_t bits = 88172645463325252ULL;
    for (int i = 0; i < 20000; i++) {
        bits ^= bits << 13; /* xorshift64: the same numbers every time */
        bits ^= bits >> 7;
        bits ^= bits << 17;
        double value, back;
        memcpy(&value, &bits, sizeof(value));
        if (!isfinite(value))
            continue;
        AUTO_BUFFER buffer = PR_BUFFER_INIT;
        pr__json json;
        pr__json_init(&json, &buffer);
        pr__json_double(&json, value);
        assert_true(pr__parse_double(buffer.data, buffer.size, &back));
        assert_memory_equal(&back, &value, sizeof(value));
    }
}

static void test_large_base64_is_in_one_piece(void **state)
{
    (void)state;
    static uint8_t data[10001], back[10003];
    for (size_t i = 0; i < sizeof(data); i++)
        data[i] = (uint8_t)(i * 31);
    AUTO_BUFFER buffer = PR_BUFFER_INIT;
    pr__json json;
    size_t size = 0;
    pr__json_init(&json, &buffer);
    pr__json_base64(&json, data, sizeof(data));
    assert_true(pr__base64_decode(buffer.data + 1, buffer.size - 2, back, &size));
    assert_int_equal(size, sizeof(data));
    assert_memory_equal(back, data, sizeof(data));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_misuse_is_a_failure),
        cmocka_unit_test(test_everything_in_one_document),
        cmocka_unit_test(test_members),
        cmocka_unit_test(test_strings),
        cmocka_unit_test(test_doubles_in_any_locale),
        cmocka_unit_test(test_random_doubles_read_back),
        cmocka_unit_test(test_large_base64_is_in_one_piece),
    };
    return RUN_TESTS(tests);
}
