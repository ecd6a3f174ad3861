/*
 * The error object and the names of the statuses.
 *
 * Owns: how a failure is written down: one line of valid UTF-8, cut at a code point.
 * Keeps: the first failure wins; later ones change neither status nor retry, and context is only
 * ever prefixed.
 * Must not know: who failed, and why.
 */
#include "base/error.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/text.h"

#define CONTEXT_SIZE 256

static const char replacement[] = "\xEF\xBF\xBD"; /* U+FFFD */

const char *pr_status_text(pr_status status)
{
    switch (status) {
#define STATUS_CASE(name, text, action)                                                            \
    case PR_##name:                                                                                \
        return text;
        PR_STATUS_LIST(STATUS_CASE)
#undef STATUS_CASE
    }
    return "unknown";
}

void pr_error_clear(pr_error *err)
{
    if (!err)
        return;
    memset(err, 0, sizeof(*err));
    err->size = (uint32_t)sizeof(*err);
}

/* A control character (C0, DEL, C1) or a line or paragraph separator, which would break the line */
static bool breaks_line(const unsigned char *at, size_t length)
{
    if (length == 1)
        return at[0] < 0x20 || at[0] == 0x7F;
    if (length == 2)
        return at[0] == 0xC2 && at[1] < 0xA0;
    return length == 3 && at[0] == 0xE2 && at[1] == 0x80 && (at[2] == 0xA8 || at[2] == 0xA9);
}

size_t pr__one_line(char *out, size_t size, const char *text, size_t text_size)
{
    if (size == 0)
        return 0;
    size_t used = 0;
    for (size_t i = 0; i < text_size;) {
        size_t length = pr__utf8_step(text + i, text_size - i);
        const char *piece = length ? text + i : replacement;
        size_t piece_size = length ? length : sizeof(replacement) - 1;
        if (length && breaks_line((const unsigned char *)text + i, length)) {
            piece = " ";
            piece_size = 1;
        }
        if (piece_size > size - 1 - used)
            break;
        memcpy(out + used, piece, piece_size);
        used += piece_size;
        i += length ? length : 1;
    }
    out[used] = '\0';
    return used;
}

__attribute__((format(printf, 5, 0))) static pr_status fail_va(pr_error *err, pr_status status,
                                                               pr_retry retry, const char *origin,
                                                               const char *format, va_list args)
{
    if (!err || err->status != PR_OK)
        return status;
    char text[PR_ERROR_MESSAGE_SIZE];
    int length = vsnprintf(text, sizeof(text), format, args);
    if (length < 0)
        length = 0;
    /* vsnprintf cuts at a byte; the reserve of four lets the cut fall on a code point instead */
    size_t used = (size_t)length;
    if (used >= sizeof(text))
        used = pr__utf8_cut(text, sizeof(text) - 1, sizeof(text) - 4);
    err->size = (uint32_t)sizeof(*err);
    err->status = status;
    err->retry = retry;
    pr__one_line(err->origin, sizeof(err->origin), origin, strlen(origin));
    pr__one_line(err->message, sizeof(err->message), text, used);
    return status;
}

pr_status(pr__fail)(pr_error *err, pr_status status, const char *origin, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fail_va(err, status, PR_RETRY_NEVER, origin, format, args);
    va_end(args);
    return status;
}

pr_status(pr__fail_retry)(pr_error *err, pr_status status, pr_retry retry, const char *origin,
                          const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fail_va(err, status, retry, origin, format, args);
    va_end(args);
    return status;
}

pr_status pr_error_set(pr_error *err, pr_status status, pr_retry retry, const char *origin,
                       const char *format, ...)
{
    if (status == PR_OK || !format)
        return status;
    va_list args;
    va_start(args, format);
    fail_va(err, status, retry, origin ? origin : "", format, args);
    va_end(args);
    return status;
}

pr_status(pr__fail_nomem)(pr_error *err, const char *origin)
{
    return pr__fail_retry(err, PR_E_NOMEM, PR_RETRY_SAME, origin, "out of memory");
}

void pr__error_context(pr_error *err, const char *format, ...)
{
    if (!err || err->status == PR_OK)
        return;
    char context[CONTEXT_SIZE];
    va_list args;
    va_start(args, format);
    int length = vsnprintf(context, sizeof(context), format, args);
    va_end(args);
    size_t context_size = length < 0 ? 0 : (size_t)length;
    if (context_size >= sizeof(context))
        context_size = pr__utf8_cut(context, sizeof(context) - 1, sizeof(context) - 4);

    char text[PR_ERROR_MESSAGE_SIZE + CONTEXT_SIZE];
    size_t message_size = strnlen(err->message, sizeof(err->message) - 1);
    memcpy(text, context, context_size);
    memcpy(text + context_size, ": ", 2);
    memcpy(text + context_size + 2, err->message, message_size);
    pr__one_line(err->message, sizeof(err->message), text, context_size + 2 + message_size);
}

void pr__error_copy(pr_error *to, const pr_error *from)
{
    if (!to || !from || to->status != PR_OK)
        return;
    *to = *from;
    to->size = (uint32_t)sizeof(*to);
}
