/*
 * Lines of a file, a pipe or a terminal, one at a time in bounded memory.
 */
#ifndef PR_CLI_LINE_READER_H
#define PR_CLI_LINE_READER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <postroom/error.h>

typedef struct pr__line_reader {
    int fd;     /* borrowed */
    char *data; /* bytes read and not yet handed out: data[start..end) */
    size_t capacity;
    size_t start;
    size_t end;
    size_t searched; /* no newline before it */
    size_t line_max; /* bytes of a line at most */
    uint64_t number; /* of the line handed out last, from 1 */
    bool ended;      /* the file has no more */
} pr__line_reader;

void pr__line_reader_init(pr__line_reader *reader, int fd, size_t line_max);
void pr__line_reader_done(pr__line_reader *reader);

/* The next line without its end (LF or CRLF; the last may lack it). *ret_line NULL: no more. It is
   valid until the next call. LIMIT: too long. CANCELLED: a signal came. BACKEND: cannot read. */
pr_status pr__line_reader_next(pr__line_reader *reader, const char **ret_line, size_t *ret_size,
                               pr_error *err);

/* Would the next line be there without waiting? */
bool pr__line_reader_ready(const pr__line_reader *reader);

/* All that is left, as one block; LIMIT beyond max. *ret_data is the caller's: pr__free. */
pr_status pr__read_all(int fd, size_t max, char **ret_data, size_t *ret_size, pr_error *err);

#endif
