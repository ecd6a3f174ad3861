/*
 * What every test includes: cmocka with what it needs, and assertions that say which case failed
 * and which error came instead.
 */
#ifndef PR_TESTS_TEST_H
#define PR_TESTS_TEST_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <postroom/error.h>

#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))

/* How long a test waits for what must come: generous, because it costs that only where something is
   broken. Where one thing comes after the other, each has that time. */
#ifdef __SANITIZE_THREAD__
#define PATIENCE_MS INT64_C(180000)
#elif defined(__SANITIZE_ADDRESS__)
#define PATIENCE_MS INT64_C(120000)
#else
#define PATIENCE_MS INT64_C(60000)
#endif
#define PATIENCE_US (PATIENCE_MS * 1000)

/* Run a table of tests with TAP output. */
#define RUN_TESTS(tests)                                                                           \
    (cmocka_set_message_output(CM_OUTPUT_TAP), cmocka_run_group_tests((tests), NULL, NULL))

/* A condition of a table-driven case: the label is in the failure. */
#define CHECK_CASE(condition, label)                                                               \
    do {                                                                                           \
        if (!(condition))                                                                          \
            fail_msg("case '%s': %s", (label), #condition);                                        \
    } while (0)

/* Success, or the error's own text in the failure. */
static inline void check_ok(pr_status status, const pr_error *err, const char *label)
{
    if (status != PR_OK)
        fail_msg("case '%s': %s (%s)", label, err ? err->message : "", pr_status_text(status));
}

/* This very status, on the call and in the object, and a text that is in the message. */
static inline void check_error(pr_status status, const pr_error *err, pr_status wanted,
                               const char *text, const char *label)
{
    if (status != wanted || err->status != wanted)
        fail_msg("case '%s': wanted %s, got %s: %s", label, pr_status_text(wanted),
                 pr_status_text(status), err->message);
    if (!strstr(err->message, text))
        fail_msg("case '%s': wanted '%s' in: %s", label, text, err->message);
    if (strchr(err->message, '\n'))
        fail_msg("case '%s': more than one line: %s", label, err->message);
}

#endif
