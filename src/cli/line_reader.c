/*
 * One buffer that grows to the longest line and no further than the limit.
 */
#include "cli/line_reader.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/memory.h"

#define ORIGIN     "cli.read"
#define FIRST_SIZE ((size_t)64 * 1024)

void pr__line_reader_init(pr__line_reader *reader, int fd, size_t line_max)
{
    *reader = (pr__line_reader){.fd = fd, .line_max = line_max};
}

void pr__line_reader_done(pr__line_reader *reader)
{
    reader->data = pr__free(reader->data);
}

/* Make room for at least one byte more. */
static pr_status make_room(pr__line_reader *reader, pr_error *err)
{
    if (reader->start > 0) {
        memmove(reader->data, reader->data + reader->start, reader->end - reader->start);
        reader->end -= reader->start;
        reader->searched -= reader->start;
        reader->start = 0;
    }
    if (reader->end < reader->capacity)
        return PR_OK;
    size_t capacity = reader->capacity ? reader->capacity * 2 : FIRST_SIZE;
    if (capacity > reader->line_max + 2)
        capacity = reader->line_max + 2; /* CRLF */
    if (capacity <= reader->capacity)
        return pr__fail(err, PR_E_LIMIT, ORIGIN, "it is longer than %zu bytes", reader->line_max);
    char *data = pr__realloc_array(reader->data, capacity, 1);
    if (!data)
        return pr__fail_nomem(err, ORIGIN);
    reader->data = data;
    reader->capacity = capacity;
    return PR_OK;
}

static pr_status read_more(pr__line_reader *reader, pr_error *err)
{
    TRY(make_room(reader, err));
    ssize_t count = read(reader->fd, reader->data + reader->end, reader->capacity - reader->end);
    if (count < 0 && errno == EINTR)
        return pr__fail(err, PR_E_CANCELLED, ORIGIN, "stopped by a signal");
    if (count < 0)
        return pr__fail(err, PR_E_BACKEND, ORIGIN, "cannot read the input: %s", strerror(errno));
    if (count == 0)
        reader->ended = true;
    reader->end += (size_t)count;
    return PR_OK;
}

pr_status pr__line_reader_next(pr__line_reader *reader, const char **ret_line, size_t *ret_size,
                               pr_error *err)
{
    char *newline = NULL;
    for (;;) {
        if (reader->end > reader->searched)
            newline = memchr(reader->data + reader->searched, '\n', reader->end - reader->searched);
        if (newline || reader->ended)
            break;
        reader->searched = reader->end;
        pr_status status = read_more(reader, err);
        if (status == PR_E_LIMIT)
            reader->number++; /* the line that is too long */
        TRY(status);
    }
    if (!newline && reader->start == reader->end) {
        *ret_line = NULL;
        *ret_size = 0;
        return PR_OK;
    }
    const char *line = reader->data + reader->start;
    size_t end = newline ? (size_t)(newline - reader->data) : reader->end;
    size_t size = end - reader->start;
    reader->start = newline ? end + 1 : end;
    reader->searched = reader->start;
    reader->number++;
    if (size > 0 && line[size - 1] == '\r')
        size--;
    if (size > reader->line_max)
        return pr__fail(err, PR_E_LIMIT, ORIGIN, "it is longer than %zu bytes", reader->line_max);
    *ret_line = line;
    *ret_size = size;
    return PR_OK;
}

bool pr__line_reader_ready(const pr__line_reader *reader)
{
    struct pollfd readable = {.fd = reader->fd, .events = POLLIN};
    if (reader->ended)
        return true;
    if (reader->end > reader->start &&
        memchr(reader->data + reader->start, '\n', reader->end - reader->start))
        return true;
    return poll(&readable, 1, 0) != 0;
}

pr_status pr__read_all(int fd, size_t max, char **ret_data, size_t *ret_size, pr_error *err)
{
    size_t size = 0, capacity = FIRST_SIZE;
    AUTO(char) data = pr__alloc(capacity);
    if (!data)
        return pr__fail_nomem(err, ORIGIN);
    for (;;) {
        ssize_t count = read(fd, data + size, capacity - size);
        if (count < 0 && errno == EINTR)
            return pr__fail(err, PR_E_CANCELLED, ORIGIN, "stopped by a signal");
        if (count < 0)
            return pr__fail(err, PR_E_BACKEND, ORIGIN, "cannot read the body: %s", strerror(errno));
        if (count == 0)
            break;
        size += (size_t)count;
        if (size > max)
            return pr__fail(err, PR_E_LIMIT, ORIGIN,
                            "the body is larger than %zu bytes; raise --body-max", max);
        if (size == capacity) {
            char *more = pr__realloc_array(data, capacity * 2, 1);
            if (!more)
                return pr__fail_nomem(err, ORIGIN);
            data = more;
            capacity *= 2;
        }
    }
    *ret_data = TAKE(data);
    *ret_size = size;
    return PR_OK;
}
