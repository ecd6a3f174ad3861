/*
 * Text: UTF-8 as Unicode defines it, and parsers that take the whole text or refuse it.
 */
#include <locale.h>

#include "support/test.h"

#include "base/text.h"

static void test_utf8(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        size_t size;
        bool valid;
    } cases[] = {
        {"\xC0\x80", 2, false},
        {"\xC1\xBF", 2, false},
        {"\xE0\x9F\xBF", 3, false},
        {"\xF0\x8F\xBF\xBF", 4, false},
        {"\xED\xA0\x80", 3, false},
        {"\xED\xBF\xBF", 3, false},
        {"\xF4\x90\x80\x80", 4, false},
        {"\xF5\x80\x80\x80", 4, false},
        {"\x80", 1, false},
        {"a\xBF", 2, false},
        {"\xC3", 1, false},
        {"\xE2\x82", 2, false},
        {"\xF0\x9F\x93", 3, false},
        {"\xC3\x28", 2, false},
        {"\xE2\x28\xA1", 3, false},
        {"\xF0\x9F\x28\xAE", 4, false},
        {"\xFE", 1, false},
        {"\xFF", 1, false},
        {"", 0, true},
        {"abc", 3, true},
        {"a\0b", 3, true},
        {"\xC2\x80", 2, true},
        {"\xDF\xBF", 2, true},
        {"\xE0\xA0\x80", 3, true},
        {"\xED\x9F\xBF", 3, true},
        {"\xEE\x80\x80", 3, true},
        {"\xEF\xBF\xBF", 3, true},
        {"\xF0\x90\x80\x80", 4, true},
        {"\xF4\x8F\xBF\xBF", 4, true},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        if (pr__utf8_valid(cases[i].text, cases[i].size) != cases[i].valid)
            fail_msg("row %zu", i);
    }
}

static void test_utf8_cut_never_splits(void **state)
{
    (void)state;
    const char *text = "a\xC3\xA4\xE2\x82\xAC\xF0\x9F\x93\xAEz";
    static const size_t wanted[] = {0, 1, 1, 3, 3, 3, 6, 6, 6, 6, 10, 11, 11};
    for (size_t limit = 0; limit < COUNT_OF(wanted); limit++)
        assert_int_equal(pr__utf8_cut(text, 11, limit), wanted[limit]);
    assert_true(pr__utf8_cut("\x80\x80\x80\x80\x80\x80", 6, 5) >= 2); /* not text: bounded */
}

static void test_int64(void **state)
{
    (void)state;
    static const char *const bad[] = {"",
                                      "-",
                                      "+1",
                                      " 1",
                                      "1 ",
                                      "1x",
                                      "0x10",
                                      "--1",
                                      "1.0",
                                      "9223372036854775808",
                                      "-9223372036854775809",
                                      "99999999999999999999999999"};
    int64_t value = 42;
    for (size_t i = 0; i < COUNT_OF(bad); i++)
        CHECK_CASE(!pr__parse_int64(bad[i], INT64_MIN, INT64_MAX, &value), bad[i]);
    assert_false(pr__parse_int64(NULL, 0, 9, &value));
    assert_false(pr__parse_int64("10", 0, 9, &value));
    assert_false(pr__parse_int64("-1", 0, 9, &value));
    assert_int_equal(value, 42);
    assert_true(pr__parse_int64("9223372036854775807", INT64_MIN, INT64_MAX, &value));
    assert_int_equal(value, INT64_MAX);
    assert_true(pr__parse_int64("-9223372036854775808", INT64_MIN, INT64_MAX, &value));
    assert_true(value == INT64_MIN);
    assert_true(pr__parse_int64("007", 0, 9, &value));
    assert_int_equal(value, 7);
}

static void check_parse_double(void)
{
    static const char *const bad[] = {"",    ".",     "-",     "e5",    "1e",
                                      "1e+", "1,5",   " 1",    "1 ",    "inf",
                                      "nan", "0x1p3", "1e400", "1.5.2", "infinity"};
    double value = 42;
    for (size_t i = 0; i < COUNT_OF(bad); i++)
        CHECK_CASE(!pr__parse_double(bad[i], strlen(bad[i]), &value), bad[i]);
    assert_false(pr__parse_double("1\0"
                                  "5",
                                  3, &value));
    assert_true(value == 42.0);
    assert_true(pr__parse_double("1.5xyz", 3, &value));
    assert_true(value == 1.5);
    assert_true(pr__parse_double("-2.5e-3", 7, &value));
    assert_true(value == -2.5e-3);
}

static void test_double_in_any_locale(void **state)
{
    (void)state;
    check_parse_double();
    if (setlocale(LC_ALL, "de_DE.UTF-8")) /* where it is installed: "1,5" is a number there */
        check_parse_double();
    setlocale(LC_ALL, "C");
}

static void test_names(void **state)
{
    (void)state;
    static const char *const bad[] = {"",         "a b", "a-b",   "a.b",
                                      "\xC3\xA4", "a;",  "\"a\"", "abcdefghi"};
    for (size_t i = 0; i < COUNT_OF(bad); i++)
        CHECK_CASE(!pr__name_valid(bad[i], 8), bad[i]);
    assert_false(pr__name_valid(NULL, 8));
    assert_true(pr__name_valid("aZ_09xyz", 8));
}

static void test_durations_and_sizes(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int64_t wanted; /* -1 = refused */
    } durations[] = {
        {"250ms", 250},    {"30s", 30000},    {"15m", 900000},
        {"12h", 43200000}, {"7d", 604800000}, {"0", 0},
        {"0s", 0},         {"", -1},          {"5", -1},
        {"s", -1},         {"-5s", -1},       {"5 s", -1},
        {"5sec", -1},      {"1.5s", -1},      {"9999999999999999d", -1},
    };
    for (size_t i = 0; i < COUNT_OF(durations); i++) {
        int64_t value = -1;
        bool ok = pr__parse_duration_ms(durations[i].text, &value);
        CHECK_CASE(ok == (durations[i].wanted >= 0) && value == durations[i].wanted,
                   durations[i].text);
    }
    static const struct {
        const char *text;
        int64_t wanted;
    } sizes[] = {
        {"4096", 4096}, {"8KiB", 8192}, {"1MiB", 1048576}, {"1GiB", 1073741824},  {"5B", 5},
        {"1kb", -1},    {"KiB", -1},    {"1 KiB", -1},     {"9999999999GiB", -1}, {"-1", -1},
    };
    for (size_t i = 0; i < COUNT_OF(sizes); i++) {
        int64_t value = -1;
        bool ok = pr__parse_size_bytes(sizes[i].text, &value);
        CHECK_CASE(ok == (sizes[i].wanted >= 0) && value == sizes[i].wanted, sizes[i].text);
    }
}

static void test_format_cuts_at_a_code_point(void **state)
{
    (void)state;
    static const struct {
        size_t size;
        const char *wanted;
    } cases[] = {
        {1, ""},
        {2, "a"},
        {3, "a"},
        {4, "a"},
        {5, "a\xE2\x82\xAC"},
        {6, "a\xE2\x82\xAC"
            "b"},
        {7, "a\xE2\x82\xAC"
            "b"},
        {8, "a\xE2\x82\xAC"
            "b\xC3\xA4"},
        {9, "a\xE2\x82\xAC"
            "b\xC3\xA4z"},
        {16, "a\xE2\x82\xAC"
             "b\xC3\xA4z"},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        char out[16];
        memset(out, 'x', sizeof(out));
        pr__format(out, cases[i].size, "a%sz",
                   "\xE2\x82\xAC"
                   "b\xC3\xA4");
        assert_string_equal(out, cases[i].wanted);
    }
}

static void test_base64(void **state)
{
    (void)state;
    static const char *const bad[] = {"A",    "AA",   "AAA",       "A===",  "AA=A", "AB==",
                                      "AAB=", "!AAA", "AAAA\nAAA", " AAAA", "AA-_", "AAAA===="};
    char out[64];
    uint8_t bytes[64];
    size_t size = 99;
    for (size_t i = 0; i < COUNT_OF(bad); i++)
        CHECK_CASE(!pr__base64_decode(bad[i], strlen(bad[i]), bytes, &size), bad[i]);
    assert_int_equal(size, 99);
    for (size_t n = 0; n < 40; n++) {
        uint8_t data[40];
        for (size_t i = 0; i < n; i++)
            data[i] = (uint8_t)(i * 41 + n);
        size_t length = pr__base64_encode(out, data, n);
        assert_int_equal(length, 4 * ((n + 2) / 3));
        assert_int_equal(strlen(out), length);
        assert_true(pr__base64_decode(out, length, bytes, &size));
        assert_int_equal(size, n);
        if (n > 0)
            assert_memory_equal(bytes, data, n);
    }
    pr__base64_encode(out, "\xFB\xFF\xBF", 3);
    assert_string_equal(out, "+/+/"); /* the standard alphabet, RFC 4648 section 4 */
}

static void test_comparison(void **state)
{
    (void)state;
    assert_true(pr__text_equal(NULL, NULL));
    assert_false(pr__text_equal(NULL, ""));
    assert_false(pr__text_equal("", NULL));
    assert_true(pr__text_equal("a", "a"));
    assert_true(pr__text_empty(NULL) && pr__text_empty("") && !pr__text_empty("a"));
    assert_true(pr__text_starts_with("urn:message:x", "urn:message:"));
    assert_false(pr__text_starts_with("urn", "urn:message:"));
    assert_false(pr__text_starts_with(NULL, "urn"));
    assert_true(pr__text_addressable("b\xc3\xbcro:1", 7));
    assert_true(pr__text_addressable("a/", 1));
    assert_false(pr__text_addressable("a/", 2));
    assert_false(pr__text_addressable("a b", 3));
    assert_false(pr__text_addressable("a\x7f", 2));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_utf8),
        cmocka_unit_test(test_utf8_cut_never_splits),
        cmocka_unit_test(test_int64),
        cmocka_unit_test(test_double_in_any_locale),
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_durations_and_sizes),
        cmocka_unit_test(test_format_cuts_at_a_code_point),
        cmocka_unit_test(test_base64),
        cmocka_unit_test(test_comparison),
    };
    return RUN_TESTS(tests);
}
