/*
 * The error object: the caller's own memory, filled by the first failure.
 *
 * Every fallible function takes a pr_error * as its last parameter; NULL is allowed. Nothing in it
 * needs freeing. Messages are one line without bodies or secrets.
 */
#ifndef POSTROOM_ERROR_H
#define POSTROOM_ERROR_H

#include <stdint.h>

#include <postroom/status.h>

/* What to do about an error. UNKNOWN is never folded into SAME. */
typedef enum pr_retry {
    PR_RETRY_NEVER = 0, /* the same call fails again */
    PR_RETRY_SAME,      /* run the whole transaction again after a wait */
    PR_RETRY_RECONNECT, /* drop the connection first */
    PR_RETRY_UNKNOWN    /* the outcome of a commit or a publish is not known */
} pr_retry;

#define PR_ERROR_MESSAGE_SIZE 1024
#define PR_ERROR_ORIGIN_SIZE  48

typedef struct pr_error {
    uint32_t size;    /* sizeof(pr_error), set by PR_ERROR_INIT */
    pr_status status; /* PR_OK until the first failure */
    pr_retry retry;
    int32_t os_errno;                    /* 0 when none */
    int32_t backend_code;                /* result code of the database or broker, 0 when none */
    char sqlstate[6];                    /* "" when absent */
    char origin[PR_ERROR_ORIGIN_SIZE];   /* which part failed, such as "sqlite.claim" */
    char message[PR_ERROR_MESSAGE_SIZE]; /* one line of UTF-8, cut at a code point */
} pr_error;

/* clang-format off */
#define PR_ERROR_INIT {(uint32_t)sizeof(pr_error), PR_OK, PR_RETRY_NEVER, 0, 0, "", "", ""}
/* clang-format on */

PR_BEGIN_DECLS

/**
 * Make an error object ready for use again.
 *
 * Owner   err is the caller's; NULL is allowed.
 * Since   0.1
 */
PR_API void pr_error_clear(pr_error *err);

/**
 * Fill an error object, for codecs, transports and other code that the library calls: nothing
 * happens when it holds a failure already. The text is made one line of valid UTF-8.
 *
 * Shape   returns status, so that `return pr_error_set(err, …)` tells the caller.
 * Errors  those that it is given.
 * Owner   err is the caller's; NULL is allowed.
 * Since   0.1
 */
PR_API pr_status pr_error_set(pr_error *err, pr_status status, pr_retry retry, const char *origin,
                              const char *format, ...) PR_PRINTF(5, 6);

PR_END_DECLS

#endif
