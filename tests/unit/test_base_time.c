/*
 * Instants: RFC 3339 both ways, exact to the microsecond from year 1 to 9999.
 */
#include <stdio.h>
#include <time.h>

#include "support/test.h"

#include "base/time.h"

static void test_what_is_no_instant(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "",
        "2026",
        "2026-01-31",
        "2026-01-31T12:00:00",
        "2026-01-31 12:00:00Z",
        "2026-13-01T00:00:00Z",
        "2026-00-01T00:00:00Z",
        "2026-02-29T00:00:00Z",
        "1900-02-29T00:00:00Z",
        "2026-04-31T00:00:00Z",
        "2026-01-00T00:00:00Z",
        "2026-01-31T24:00:00Z",
        "2026-01-31T12:60:00Z",
        "2026-01-31T12:00:60Z",
        "2026-01-31T12:00:00.Z",
        "2026-01-31T12:00:00.1234567890Z",
        "2026-01-31T12:00:00,5Z",
        "2026-01-31T12:00:00+0100",
        "2026-01-31T12:00:00+24:00",
        "2026-01-31T12:00:00Zx",
        "0000-01-01T00:00:00Z",
        "0001-01-01T00:00:00+00:01",
        "9999-12-31T23:59:59-00:01",
        "+026-01-31T12:00:00Z",
        "infinity",
    };
    int64_t value = 42;
    for (size_t i = 0; i < COUNT_OF(bad); i++)
        CHECK_CASE(!pr__instant_parse(bad[i], strlen(bad[i]), &value), bad[i]);
    assert_int_equal(value, 42);
    assert_false(pr__instant_valid(PR_INSTANT_MIN_US - 1));
    assert_false(pr__instant_valid(PR_INSTANT_MAX_US + 1));
    assert_false(pr__instant_valid(INT64_MIN));
    assert_false(pr__instant_valid(INT64_MAX));
}

static void test_known_instants(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int64_t wanted;
        const char *printed; /* NULL = the text itself */
    } cases[] = {
        {"1970-01-01T00:00:00.000000Z", 0, NULL},
        {"1969-12-31T23:59:59.999999Z", -1, NULL},
        {"0001-01-01T00:00:00.000000Z", PR_INSTANT_MIN_US, NULL},
        {"9999-12-31T23:59:59.999999Z", PR_INSTANT_MAX_US, NULL},
        {"2000-02-29T12:30:45.123456Z", 951827445123456, NULL},
        {"2026-01-31T12:00:00Z", 1769860800000000, "2026-01-31T12:00:00.000000Z"},
        {"2026-01-31t13:30:00.5+01:30", 1769860800500000, "2026-01-31T12:00:00.500000Z"},
        {"2026-01-31T07:00:00.123456789-05:00", 1769860800123456, "2026-01-31T12:00:00.123456Z"},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        int64_t value = 0;
        char text[PR_INSTANT_TEXT_SIZE];
        CHECK_CASE(pr__instant_parse(cases[i].text, strlen(cases[i].text), &value), cases[i].text);
        CHECK_CASE(value == cases[i].wanted, cases[i].text);
        pr__instant_text(value, text);
        CHECK_CASE(strcmp(text, cases[i].printed ? cases[i].printed : cases[i].text) == 0,
                   cases[i].text);
    }
}

static void test_agrees_with_the_c_library_on_every_kind_of_day(void **state)
{
    (void)state;
    const int64_t step = 86400000000LL * 17 + 12345678901LL;
    for (int64_t at = PR_INSTANT_MIN_US; at < PR_INSTANT_MAX_US; at += step) {
        char text[PR_INSTANT_TEXT_SIZE], wanted[64];
        int64_t back, second = at / 1000000 - (at % 1000000 < 0);
        struct tm parts;
        time_t seconds = (time_t)second;
        assert_non_null(gmtime_r(&seconds, &parts));
        snprintf(wanted, sizeof(wanted), "%04d-%02d-%02dT%02d:%02d:%02d.%06dZ",
                 parts.tm_year + 1900, parts.tm_mon + 1, parts.tm_mday, parts.tm_hour, parts.tm_min,
                 parts.tm_sec, (int)(at - second * 1000000));
        pr__instant_text(at, text);
        assert_string_equal(text, wanted);
        assert_true(pr__instant_parse(text, strlen(text), &back));
        assert_true(back == at);
    }
}

static void test_durations(void **state)
{
    (void)state;
    static const struct {
        int64_t us;
        const char *wanted;
    } cases[] = {
        {0, "0 us"},
        {999, "999 us"},
        {1000, "1 ms"},
        {999999, "999 ms"},
        {1500000, "1.5 s"},
        {59999999, "59.9 s"},
        {182000000, "3 min 2 s"},
        {3600000000, "1 h 0 min"},
        {187200000000, "2 d 4 h"},
        {-1500000, "-1.5 s"},
        {INT64_MIN, "-106751991 d 4 h"},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        char text[32];
        pr__duration_text(cases[i].us, text, sizeof(text));
        assert_string_equal(text, cases[i].wanted);
    }
}

static void test_clocks(void **state)
{
    (void)state;
    int64_t wall = pr__wall_us(), monotonic = pr__monotonic_us();
    int64_t seconds = (int64_t)time(NULL);
    assert_in_range(wall / 1000000, seconds - 2, seconds + 2);
    pr__sleep_us(2000);
    pr__sleep_us(-1);
    assert_true(pr__monotonic_us() - monotonic >= 2000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_is_no_instant),
        cmocka_unit_test(test_known_instants),
        cmocka_unit_test(test_agrees_with_the_c_library_on_every_kind_of_day),
        cmocka_unit_test(test_durations),
        cmocka_unit_test(test_clocks),
    };
    return RUN_TESTS(tests);
}
