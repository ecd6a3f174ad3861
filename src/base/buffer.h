/*
 * A growing byte buffer with a sticky error: append without checking, look once at the end.
 */
#ifndef PR_BASE_BUFFER_H
#define PR_BASE_BUFFER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <postroom/export.h>

typedef struct pr__buffer {
    char *data;  /* NUL-terminated whenever size > 0 or after pr__buffer_text */
    size_t size; /* without the NUL */
    size_t capacity;
    bool failed; /* out of memory happened: the content is not whole */
} pr__buffer;

#define PR_BUFFER_INIT                                                                             \
    {                                                                                              \
        NULL, 0, 0, false                                                                          \
    }

void pr__buffer_done(pr__buffer *buffer);
void pr__buffer_clear(pr__buffer *buffer); /* keeps the capacity */
void pr__buffer_append(pr__buffer *buffer, const void *data, size_t size);
void pr__buffer_append_text(pr__buffer *buffer, const char *text);
void pr__buffer_append_char(pr__buffer *buffer, char c);
void pr__buffer_printf(pr__buffer *buffer, const char *format, ...) PR_PRINTF(2, 3);
const char *pr__buffer_text(pr__buffer *buffer); /* "" when empty; NULL when failed */
char *pr__buffer_take(pr__buffer *buffer);       /* the caller's, pr__free; NULL when failed */

#define AUTO_BUFFER __attribute__((cleanup(pr__buffer_done))) pr__buffer

#endif
