/*
 * The growing buffer: what is appended is what stands there, and out of memory is never half a
 * text.
 */
#include "support/test.h"

#include "base/buffer.h"
#include "base/fault.h"
#include "base/memory.h"

static void test_empty_is_an_empty_text(void **state)
{
    (void)state;
    AUTO_BUFFER buffer = PR_BUFFER_INIT;
    assert_string_equal(pr__buffer_text(&buffer), "");
    AUTO(char) taken = pr__buffer_take(&buffer);
    assert_string_equal(taken, "");
}

static void test_appends_in_order_over_many_growths(void **state)
{
    (void)state;
    AUTO_BUFFER buffer = PR_BUFFER_INIT;
    for (int i = 0; i < 10000; i++)
        pr__buffer_printf(&buffer, "%04d", i);
    pr__buffer_append_char(&buffer, '|');
    pr__buffer_append(&buffer, "a\0b", 3);
    pr__buffer_append_text(&buffer, "end");
    assert_int_equal(buffer.size, 40000 + 1 + 3 + 3);
    for (int i = 0; i < 10000; i += 777) {
        char wanted[8];
        snprintf(wanted, sizeof(wanted), "%04d", i);
        assert_memory_equal(buffer.data + (size_t)i * 4, wanted, 4);
    }
    assert_memory_equal(buffer.data + 40000, "|a\0bend", 8); /* the NUL as well */
    pr__buffer_clear(&buffer);
    assert_string_equal(pr__buffer_text(&buffer), "");
    assert_true(buffer.capacity > 40000);
}

static void test_an_exact_fit_keeps_room_for_the_nul(void **state)
{
    (void)state;
    for (size_t size = 120; size < 136; size++) {
        AUTO_BUFFER buffer = PR_BUFFER_INIT;
        for (size_t i = 0; i < size; i++)
            pr__buffer_append_char(&buffer, 'x');
        assert_int_equal(strlen(pr__buffer_text(&buffer)), size);
        assert_true(buffer.capacity > size);
    }
}

static void test_absurd_sizes_fail_and_stay_failed(void **state)
{
    (void)state;
    AUTO_BUFFER buffer = PR_BUFFER_INIT;
    pr__buffer_append_text(&buffer, "abc");
    pr__buffer_append(&buffer, "", SIZE_MAX - 1);
    assert_null(pr__buffer_text(&buffer));
    pr__buffer_append_text(&buffer, "def");
    assert_null(pr__buffer_text(&buffer));
    pr__buffer_clear(&buffer);
    pr__buffer_append_text(&buffer, "def");
    assert_string_equal(pr__buffer_text(&buffer), "def");
    pr__buffer_append(&buffer, "", SIZE_MAX - 1);
    assert_null(pr__buffer_take(&buffer));
}

#ifdef PR_FAULT_POINTS
static void test_out_of_memory_is_never_half_a_text(void **state)
{
    (void)state;
    int64_t failures = 0;
    for (int64_t n = 1;; n++) {
        AUTO_BUFFER buffer = PR_BUFFER_INIT;
        pr__fault_alloc_fail_at(n);
        for (int i = 0; i < 100; i++)
            pr__buffer_printf(&buffer, "piece %d of a text that has to grow;", i);
        bool reached = pr__fault_alloc_count() >= n;
        pr__fault_alloc_fail_at(0);
        if (!reached) {
            assert_non_null(pr__buffer_text(&buffer));
            break;
        }
        assert_null(pr__buffer_text(&buffer));
        failures++;
    }
    assert_true(failures >= 3);
}
#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_empty_is_an_empty_text),
        cmocka_unit_test(test_appends_in_order_over_many_growths),
        cmocka_unit_test(test_an_exact_fit_keeps_room_for_the_nul),
        cmocka_unit_test(test_absurd_sizes_fail_and_stay_failed),
#ifdef PR_FAULT_POINTS
        cmocka_unit_test(test_out_of_memory_is_never_half_a_text),
#endif
    };
    return RUN_TESTS(tests);
}
