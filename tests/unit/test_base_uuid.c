/*
 * UUIDs: the canonical text alone is one, and version 7 sorts by its clock.
 */
#include "support/test.h"

#include "base/time.h"
#include "base/uuid.h"

#define NIL "00000000-0000-0000-0000-000000000000"

static void test_what_is_no_uuid(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "",
        "0190b8f5-7d0c-7000-8000-00000000000",
        "0190b8f5-7d0c-7000-8000-0000000000000",
        "0190b8f57d0c70008000000000000000",
        "0190b8f5-7d0c-7000-8000-00000000000g",
        "{0190b8f5-7d0c-7000-8000-000000000000}",
        "0190b8f5_7d0c-7000-8000-000000000000",
        "0190b8f57-d0c-7000-8000-000000000000",
        " 190b8f5-7d0c-7000-8000-000000000000",
    };
    uint8_t bytes[16];
    for (size_t i = 0; i < COUNT_OF(bad); i++) {
        CHECK_CASE(!pr__uuid_valid(bad[i]), bad[i]);
        CHECK_CASE(!pr__uuid_parse(bad[i], bytes), bad[i]);
        CHECK_CASE(!pr__uuid_nil(bad[i]), bad[i]);
    }
    assert_false(pr__uuid_valid(NULL));
}

static void test_text_round_trip(void **state)
{
    (void)state;
    uint8_t bytes[16];
    char text[PR_UUID_TEXT_SIZE];
    assert_true(pr__uuid_parse("0190B8F5-7D0C-7abc-8DEF-0123456789aB", bytes));
    pr__uuid_text(bytes, text);
    assert_string_equal(text, "0190b8f5-7d0c-7abc-8def-0123456789ab");
    assert_true(pr__uuid_nil(NIL));
    assert_false(pr__uuid_nil("00000000-0000-0000-0000-000000000001"));
}

static void test_version_7_layout(void **state)
{
    (void)state;
    static const uint8_t ones[10] = {255, 255, 255, 255, 255, 255, 255, 255, 255, 255};
    static const uint8_t zeros[10] = {0};
    char text[PR_UUID_TEXT_SIZE];
    /* RFC 9562, appendix A.6: 2022-02-22T19:22:22.000Z is 017f22e2-79b0 */
    pr__uuid7(1645557742000000, zeros, text);
    assert_string_equal(text, "017f22e2-79b0-7000-8000-000000000000");
    pr__uuid7(1645557742000000, ones, text);
    assert_string_equal(text, "017f22e2-79b0-7000-bfff-ffffffffffff");
    /* section 6.2, method 3: 999 of 1000 us is 4091 of 4096 */
    pr__uuid7(1645557742000999, zeros, text);
    assert_string_equal(text, "017f22e2-79b0-7ffb-8000-000000000000");
    pr__uuid7(-1, zeros, text); /* a clock before 1970 is no reason to wrap around */
    assert_string_equal(text, "00000000-0000-7000-8000-000000000000");
}

static void test_later_microseconds_sort_later(void **state)
{
    (void)state;
    static const uint8_t ones[10] = {255, 255, 255, 255, 255, 255, 255, 255, 255, 255};
    static const uint8_t zeros[10] = {0};
    char before[PR_UUID_TEXT_SIZE], after[PR_UUID_TEXT_SIZE];
    for (int64_t us = 1645557741998000; us < 1645557742002000; us++) {
        pr__uuid7(us, ones, before);
        pr__uuid7(us + 1, zeros, after);
        assert_true(strcmp(before, after) < 0);
        assert_true(pr__uuid_valid(before));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_is_no_uuid),
        cmocka_unit_test(test_text_round_trip),
        cmocka_unit_test(test_version_7_layout),
        cmocka_unit_test(test_later_microseconds_sort_later),
    };
    return RUN_TESTS(tests);
}
