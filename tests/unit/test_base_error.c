/*
 * The error object: the first failure wins, context is prefixed, the text is one line of UTF-8.
 */
#include "support/test.h"

#include "base/error.h"
#include "base/text.h"

static void test_null_is_allowed_and_keeps_the_status(void **state)
{
    (void)state;
    assert_int_equal(pr__fail(NULL, PR_E_BUSY, "x", "text"), PR_E_BUSY);
    assert_int_equal(pr__fail_nomem(NULL, "x"), PR_E_NOMEM);
    pr__error_context(NULL, "outer");
    pr_error_clear(NULL);
    pr__error_copy(NULL, NULL);
}

static void test_first_failure_wins(void **state)
{
    (void)state;
    pr_error err = PR_ERROR_INIT;
    pr__error_context(&err, "nothing failed yet");
    assert_string_equal(err.message, "");
    pr__fail_retry(&err, PR_E_BACKEND, PR_RETRY_UNKNOWN, "sqlite.commit", "disk is full");
    assert_int_equal(pr__fail(&err, PR_E_INVALID, "other", "second"), PR_E_INVALID);
    assert_int_equal(err.status, PR_E_BACKEND);
    assert_int_equal(err.retry, PR_RETRY_UNKNOWN);
    assert_string_equal(err.origin, "sqlite.commit");
    pr__error_context(&err, "message %d", 7);
    pr__error_context(&err, "batch");
    assert_string_equal(err.message, "batch: message 7: disk is full");
    pr_error other = PR_ERROR_INIT;
    pr__error_copy(&other, &err);
    assert_string_equal(other.message, err.message);
    assert_int_equal(other.retry, PR_RETRY_UNKNOWN);
    pr_error third = PR_ERROR_INIT;
    pr__fail(&third, PR_E_LIMIT, "x", "mine");
    pr__error_copy(&third, &err);
    assert_string_equal(third.message, "mine");
    pr_error_clear(&err);
    assert_int_equal(err.status, PR_OK);
    assert_string_equal(err.message, "");
    assert_int_equal(err.size, sizeof(pr_error));
}

static void test_one_line(void **state)
{
    (void)state;
    static const struct {
        const char *label, *text, *wanted;
        size_t text_size, size;
    } cases[] = {
        {"nothing", "", "", 0, 16},
        {"control characters become spaces", "a\r\n\tb\x7F", "a   b ", 6, 16},
        {"a NUL inside", "a\0b", "a b", 3, 16},
        {"line separator and next line",
         "a\xE2\x80\xA8"
         "b\xC2\x85",
         "a b ", 7, 16},
        {"invalid bytes",
         "\xFF"
         "a\xC3",
         "\xEF\xBF\xBD"
         "a\xEF\xBF\xBD",
         3, 16},
        {"a surrogate is three bad bytes", "\xED\xA0\x80", "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD",
         3, 16},
        {"cut at a code point", "ab\xE2\x82\xAC", "ab", 5, 5},
        {"just fits", "ab\xE2\x82\xAC", "ab\xE2\x82\xAC", 5, 6},
        {"room for the NUL alone", "ab", "", 2, 1},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        char out[16];
        memset(out, 'x', sizeof(out));
        size_t used = pr__one_line(out, cases[i].size, cases[i].text, cases[i].text_size);
        CHECK_CASE(strcmp(out, cases[i].wanted) == 0, cases[i].label);
        CHECK_CASE(used == strlen(cases[i].wanted), cases[i].label);
    }
    assert_int_equal(pr__one_line(NULL, 0, "a", 1), 0);
}

static void test_long_texts_are_cut_at_a_code_point(void **state)
{
    (void)state;
    char text[3000];
    for (size_t shift = 0; shift < 4; shift++) {
        memset(text, 'a', shift);
        size_t used = shift;
        while (used + 4 < sizeof(text)) {
            memcpy(text + used, "\xF0\x9F\x93\xAE", 4); /* a postbox */
            used += 4;
        }
        text[used] = '\0';
        pr_error err = PR_ERROR_INIT;
        pr__fail(&err, PR_E_INVALID, text, "%s", text);
        for (int i = 0; i < 3; i++) {
            assert_true(pr__utf8_valid(err.message, strlen(err.message)));
            assert_true(pr__utf8_valid(err.origin, strlen(err.origin)));
            assert_true(strlen(err.message) > PR_ERROR_MESSAGE_SIZE - 12);
            assert_null(strstr(err.message, "\xEF\xBF\xBD")); /* cut, not mended */
            pr__error_context(&err, "%s", text);
        }
    }
}

static void test_every_status_has_its_own_name(void **state)
{
    (void)state;
    static const pr_status all[] = {
#define EACH(name, text, action) PR_##name,
        PR_STATUS_LIST(EACH)
#undef EACH
    };
    for (size_t i = 0; i < COUNT_OF(all); i++) {
        assert_string_not_equal(pr_status_text(all[i]), "unknown");
        for (size_t j = 0; j < i; j++)
            assert_string_not_equal(pr_status_text(all[i]), pr_status_text(all[j]));
    }
    assert_string_equal(pr_status_text((pr_status)99), "unknown");
    assert_string_equal(pr_status_text(PR_E_NOT_FOUND), "not-found");
}

static void test_hosts_fill_errors_too(void **state)
{
    (void)state;
    pr_error err = PR_ERROR_INIT;
    assert_int_equal(pr_error_set(&err, PR_OK, PR_RETRY_NEVER, "codec", "nothing"), PR_OK);
    assert_string_equal(err.message, "");
    assert_int_equal(pr_error_set(NULL, PR_E_BUSY, PR_RETRY_SAME, NULL, "x"), PR_E_BUSY);
    assert_int_equal(pr_error_set(&err, PR_E_BACKEND, PR_RETRY_RECONNECT, NULL, "line %d\nof", 1),
                     PR_E_BACKEND);
    assert_int_equal(err.status, PR_E_BACKEND);
    assert_int_equal(err.retry, PR_RETRY_RECONNECT);
    assert_string_equal(err.origin, "");
    assert_string_equal(err.message, "line 1 of");
    assert_int_equal(pr_error_set(&err, PR_E_LIMIT, PR_RETRY_NEVER, "codec", "second"), PR_E_LIMIT);
    assert_string_equal(err.message, "line 1 of"); /* the first failure wins */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_null_is_allowed_and_keeps_the_status),
        cmocka_unit_test(test_first_failure_wins),
        cmocka_unit_test(test_one_line),
        cmocka_unit_test(test_long_texts_are_cut_at_a_code_point),
        cmocka_unit_test(test_every_status_has_its_own_name),
        cmocka_unit_test(test_hosts_fill_errors_too),
    };
    return RUN_TESTS(tests);
}
