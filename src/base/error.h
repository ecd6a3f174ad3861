/*
 * Filling error objects: the first failure wins, context is prefixed on the way up.
 */
#ifndef PR_BASE_ERROR_H
#define PR_BASE_ERROR_H

#include <stdbool.h>
#include <stddef.h>

#include <postroom/error.h>

/* Fill *err (NULL allowed) unless it already holds a failure; returns status, so that callers
   write `return pr__fail(err, PR_E_INVALID, "store.claim", "lease_ms is %d, must be > 0", x);`.
   retry is NEVER; set others with pr__fail_retry. The text is made one line of valid UTF-8. */
pr_status pr__fail(pr_error *err, pr_status status, const char *origin, const char *format, ...)
    PR_PRINTF(4, 5);
pr_status pr__fail_retry(pr_error *err, pr_status status, pr_retry retry, const char *origin,
                         const char *format, ...) PR_PRINTF(5, 6);
pr_status pr__fail_nomem(pr_error *err, const char *origin);

/* Prefix "context: " to the message of an error that is set; nothing for NULL. It returns nothing,
   so that a failure whose err is NULL cannot be turned into PR_OK by returning this. */
void pr__error_context(pr_error *err, const char *format, ...) PR_PRINTF(2, 3);

/* Copy one error into another that holds no failure yet. Both may be NULL. */
void pr__error_copy(pr_error *to, const pr_error *from);

/* Write any text as one line of valid UTF-8 into out[size], cut at a code point: control
   characters become spaces, invalid bytes U+FFFD. Returns the bytes written, without the NUL. */
size_t pr__one_line(char *out, size_t size, const char *text, size_t text_size);

#ifdef __clang_analyzer__
/* The analyzer does not see into error.c, where a failure returns the status that it was given. */
#define pr__fail(err, status, ...) ((void)(pr__fail)(err, status, __VA_ARGS__), (status))
#define pr__fail_retry(err, status, ...)                                                           \
    ((void)(pr__fail_retry)(err, status, __VA_ARGS__), (status))
#define pr__fail_nomem(err, origin) ((void)(pr__fail_nomem)(err, origin), PR_E_NOMEM)
#endif

/* The one macro that may hide a return. */
#define TRY(call)                                                                                  \
    do {                                                                                           \
        pr_status try_status_ = (call);                                                            \
        if (try_status_ != PR_OK)                                                                  \
            return try_status_;                                                                    \
    } while (0)

#endif
