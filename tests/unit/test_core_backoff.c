/*
 * Backoff: the doubling, its ceiling, the jitter's range, and when a message is dead.
 */
#include <limits.h>

#include "support/test.h"

#include "core/backoff.h"

static void waits_double_up_to_the_ceiling(void **state)
{
    (void)state;
    static const struct {
        const char *label;
        pr__backoff backoff;
        uint32_t failures;
        uint32_t random;
        int64_t expected;
    } cases[] = {
        {"no failure", {5000, 900000, 25}, 0, UINT32_MAX, 0},
        {"first", {5000, 900000, 0}, 1, 7, 5000},
        {"second", {5000, 900000, 0}, 2, 7, 10000},
        {"eighth", {5000, 900000, 0}, 8, 7, 640000},
        {"ninth is cut", {5000, 900000, 0}, 9, 7, 900000},
        {"thousandth", {5000, 900000, 0}, 1000, 7, 900000},
        {"no overflow", {INT64_MAX / 2 + 1, INT64_MAX, 0}, 1000, 7, INT64_MAX},
        {"no overflow with jitter", {INT64_MAX, INT64_MAX, 100}, 4, UINT32_MAX, INT64_MAX},
        {"initial above max", {5000, 10, 0}, 1, 7, 10},
        {"lowest jitter", {5000, 900000, 25}, 1, 0, 3750},
        {"highest jitter", {5000, 900000, 25}, 1, UINT32_MAX, 6250},
        {"all of it", {5000, 900000, 100}, 1, 0, 0},
        {"jitter above 100 counts as 100", {5000, 900000, 400}, 1, 0, 0},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        int64_t wait = pr__backoff_ms(&cases[i].backoff, cases[i].failures, cases[i].random);
        if (wait != cases[i].expected)
            fail_msg("%s: %lld, expected %lld", cases[i].label, (long long)wait,
                     (long long)cases[i].expected);
    }
}

static void n_retries_are_n_plus_one_attempts(void **state)
{
    (void)state;
    assert_true(pr__backoff_exhausted(1, 0));
    assert_false(pr__backoff_exhausted(1, 1));
    assert_true(pr__backoff_exhausted(2, 1));
    assert_false(pr__backoff_exhausted(10, 10));
    assert_true(pr__backoff_exhausted(11, 10));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(waits_double_up_to_the_ceiling),
        cmocka_unit_test(n_retries_are_n_plus_one_attempts),
    };
    return RUN_TESTS(tests);
}
