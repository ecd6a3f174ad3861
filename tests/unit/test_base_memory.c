/*
 * Memory: zeroed, overflow-checked blocks; locals that free themselves; the arena.
 */
#include "support/test.h"

#include "base/fault.h"
#include "base/memory.h"

static bool is_zero(const void *data, size_t size)
{
    const unsigned char *at = data;
    for (size_t i = 0; i < size; i++) {
        if (at[i] != 0)
            return false;
    }
    return true;
}

static void test_overflow_is_out_of_memory(void **state)
{
    (void)state;
    assert_null(pr__alloc_array(SIZE_MAX / 2, 3));
    assert_null(pr__realloc_array(NULL, SIZE_MAX / 2, 3));
    assert_null(pr__memdup("", SIZE_MAX));
    AUTO(pr__arena) arena = pr__arena_new(0);
    assert_null(pr__arena_alloc(arena, SIZE_MAX - 4));
    assert_null(pr__arena_memdup(arena, "", SIZE_MAX));
}

static void test_blocks(void **state)
{
    (void)state;
    AUTO(char) block = pr__alloc_array(100, 7);
    assert_true(is_zero(block, 700));
    memset(block, 'x', 700);
    char *grown = pr__realloc_array(block, 1000, 2);
    assert_non_null(grown);
    block = grown;
    assert_memory_equal(block, "xxxxxxx", 7);
    AUTO(void) nothing = pr__alloc(0);
    assert_non_null(nothing);
    AUTO(char) text = pr__strndup("abcdef", 3);
    assert_string_equal(text, "abc");
    assert_null(pr__strdup(NULL));
    AUTO(char) none = pr__memdup(NULL, 0);
    assert_string_equal(none, "");
    assert_null(pr__free(NULL));
}

typedef struct thing {
    int *freed;
} thing;

static void *thing_free(thing *t)
{
    (*t->freed)++;
    return NULL;
}
DEFINE_AUTO(thing, thing_free);

static void leave_scope(int *freed, thing **ret_taken)
{
    thing one = {freed}, two = {freed};
    AUTO(thing) cleaned = &one;
    AUTO(thing) taken = &two;
    AUTO(thing) null = NULL;
    assert_null(null);
    assert_non_null(cleaned);
    *ret_taken = TAKE(taken);
    assert_null(taken);
}

static void test_locals_clean_themselves_up_once(void **state)
{
    (void)state;
    int freed = 0;
    thing *taken = NULL;
    leave_scope(&freed, &taken);
    assert_int_equal(freed, 1);
    assert_non_null(taken);
}

static void test_arena_pieces_are_zeroed_aligned_and_apart(void **state)
{
    (void)state;
    static const size_t sizes[] = {1, 0, 7, 16, 100, 40000, 3, 8192, 9000, 1};
    unsigned char *pieces[COUNT_OF(sizes) * 50];
    AUTO(pr__arena) arena = pr__arena_new(0);
    assert_non_null(arena);
    size_t count = 0;
    for (int round = 0; round < 50; round++) {
        for (size_t i = 0; i < COUNT_OF(sizes); i++) {
            unsigned char *piece = pr__arena_alloc(arena, sizes[i]);
            assert_non_null(piece);
            assert_int_equal((uintptr_t)piece % _Alignof(max_align_t), 0);
            assert_true(is_zero(piece, sizes[i]));
            memset(piece, (int)(count % 251 + 1), sizes[i]);
            pieces[count++] = piece;
        }
    }
    for (size_t i = 0; i < count; i++) {
        for (size_t j = 0; j < sizes[i % COUNT_OF(sizes)]; j++)
            assert_int_equal(pieces[i][j], i % 251 + 1);
    }
    /* what it holds is not much more than what was asked for */
    assert_in_range(pr__arena_bytes(arena), 50 * 57320, 50 * 57320 * 13 / 10);
}

static void test_arena_text(void **state)
{
    (void)state;
    AUTO(pr__arena) arena = pr__arena_new(64);
    assert_null(pr__arena_strdup(arena, NULL));
    assert_string_equal(pr__arena_strdup(arena, "abc"), "abc");
    assert_string_equal(pr__arena_strndup(arena, "abcdef", 2), "ab");
    const char *bytes = pr__arena_memdup(arena, "a\0b", 3);
    assert_memory_equal(bytes, "a\0b", 4);
    for (size_t size = 0; size < 70; size++) { /* whatever stands behind a text */
        char text[80];
        memset(text, 'x', sizeof text);
        const char *copy = pr__arena_strndup(arena, text, size);
        unsigned char *piece = pr__arena_alloc(arena, 24);
        char *other = pr__arena_strndup(arena, text, size % 7);
        unsigned char *block = pr__arena_memdup(arena, text, 9);
        assert_int_equal(strlen(copy), size);
        assert_int_equal(strlen(other), size % 7);
        assert_int_equal((uintptr_t)piece % _Alignof(max_align_t), 0);
        assert_int_equal((uintptr_t)block % _Alignof(max_align_t), 0);
        assert_true(is_zero(piece, 24));
        assert_memory_equal(block, "xxxxxxxxx", 10);
    }
    assert_null(pr__arena_free(NULL));
}

#ifdef PR_FAULT_POINTS
static void test_the_ordered_allocation_fails_and_no_other(void **state)
{
    (void)state;
    for (int64_t n = 1; n <= 4; n++) {
        pr__fault_alloc_fail_at(n);
        AUTO(void) one = pr__alloc(10);
        AUTO(char) two = pr__strdup("two");
        AUTO(void) three = pr__realloc_array(NULL, 3, 3);
        assert_int_equal(one == NULL, n == 1);
        assert_int_equal(two == NULL, n == 2);
        assert_int_equal(three == NULL, n == 3);
        assert_int_equal(pr__fault_alloc_count(), 3);
        pr__fault_alloc_fail_at(0);
    }
    AUTO(char) block = pr__strdup("kept");
    pr__fault_alloc_fail_at(1);
    assert_null(pr__realloc_array(block, 1000, 1));
    pr__fault_alloc_fail_at(0);
    assert_string_equal(block, "kept");
    AUTO(pr__arena) arena = pr__arena_new(0);
    pr__fault_alloc_fail_at(1);
    assert_null(pr__arena_alloc(arena, 8));
    assert_non_null(pr__arena_alloc(arena, 8));
    pr__fault_alloc_fail_at(0);
}
#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_overflow_is_out_of_memory),
        cmocka_unit_test(test_blocks),
        cmocka_unit_test(test_locals_clean_themselves_up_once),
        cmocka_unit_test(test_arena_pieces_are_zeroed_aligned_and_apart),
        cmocka_unit_test(test_arena_text),
#ifdef PR_FAULT_POINTS
        cmocka_unit_test(test_the_ordered_allocation_fails_and_no_other),
#endif
    };
    return RUN_TESTS(tests);
}
