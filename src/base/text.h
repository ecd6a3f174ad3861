/*
 * Text: UTF-8, numbers, comparison. Nothing here depends on the locale.
 */
#ifndef PR_BASE_TEXT_H
#define PR_BASE_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <postroom/export.h>

bool pr__utf8_valid(const char *text, size_t size); /* no surrogates, no overlong, <= U+10FFFF */
/* Bytes of the valid code point that text starts with; 0 when it starts with none. */
size_t pr__utf8_step(const char *text, size_t size);
size_t pr__utf8_cut(const char *text, size_t size, size_t limit); /* <= limit, at a code point */
bool pr__text_equal(const char *a, const char *b);                /* NULL equals NULL only */
bool pr__text_starts_with(const char *text, const char *prefix);
/* Can it stand in an address as it is: no '/', no space, no control character? */
bool pr__text_addressable(const char *text, size_t size);
bool pr__parse_int64(const char *text, int64_t min, int64_t max,
                     int64_t *ret_value);                                /* decimal, whole */
bool pr__parse_double(const char *text, size_t size, double *ret_value); /* finite, any locale */
bool pr__name_valid(const char *name, size_t limit); /* [A-Za-z0-9_]+, <= limit bytes */
bool pr__parse_duration_ms(const char *text,
                           int64_t *ret_ms); /* "250ms", "30s", "15m", "7d", "12h" */
bool pr__parse_size_bytes(const char *text,
                          int64_t *ret_bytes); /* "4096", "8KiB", "1MiB", "1GiB" */
/* snprintf into a fixed buffer; the result is cut at a code point when too long. */
void pr__format(char *out, size_t size, const char *format, ...) PR_PRINTF(3, 4);
/* Base64, standard alphabet with padding. out needs 4 * ((size + 2) / 3) + 1 bytes. */
size_t pr__base64_encode(char *out, const void *data, size_t size);
bool pr__base64_decode(const char *text, size_t text_size, void *out,
                       size_t *ret_size); /* strict */

static inline bool pr__text_empty(const char *text) /* NULL or "" */
{
    return !text || text[0] == '\0';
}

#endif
