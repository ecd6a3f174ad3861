/*
 * Writing and reading cursors.
 *
 * Invariant: what write makes, read takes, and only for a list of the same box; anything else is
 * refused, never guessed.
 */
#include "port/cursor.h"

#include <inttypes.h>
#include <string.h>

#include "base/error.h"
#include "base/text.h"

#define ORIGIN "operations.list"

void pr__cursor_write(const pr__position *position, char *out, size_t size)
{
    pr__format(out, size, "%c:%" PRId64 ":%" PRId64 ":%" PRId64, (char)position->kind,
               position->part[0], position->part[1], position->part[2]);
}

static bool read_part(const char **text, int64_t *ret_value)
{
    char digits[24];
    const char *end = strchr(*text, ':');
    size_t size = end ? (size_t)(end - *text) : strlen(*text);
    if (size >= sizeof digits)
        return false;
    memcpy(digits, *text, size);
    digits[size] = '\0';
    *text += size + (end ? 1 : 0);
    return pr__parse_int64(digits, INT64_MIN, INT64_MAX, ret_value);
}

static bool kind_fits(const pr_list_options *opt, char kind)
{
    switch (opt->box) {
    case PR_BOX_OUTBOX:
        return kind == PR__AT_LOG || kind == PR__AT_DELAYED;
    case PR_BOX_INBOX:
        return kind == PR__AT_INBOX || kind == PR__AT_MARK;
    case PR_BOX_BOTH:
        return kind == PR__AT_BOTH;
    }
    return false;
}

pr_status pr__cursor_read(const pr_list_options *opt, pr__position *ret_position, pr_error *err)
{
    pr__position position = {.kind = PR__AT_NOWHERE};
    const char *text = opt->after;
    *ret_position = position;
    if (!text)
        return PR_OK;
    bool good = kind_fits(opt, text[0]) && text[1] == ':';
    const char *rest = text + 2;
    for (int i = 0; good && i < PR__CURSOR_PARTS; i++)
        good = read_part(&rest, &position.part[i]);
    if (!good || *rest || rest[-1] == ':')
        return pr__fail(err, PR_E_INVALID, ORIGIN,
                        "the cursor is none of this list; begin again without one");
    position.kind = (pr__position_kind)text[0];
    *ret_position = position;
    return PR_OK;
}
