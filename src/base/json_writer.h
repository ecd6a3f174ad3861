/*
 * An append-only JSON writer over a buffer. Commas and nesting are its own business; strings are
 * escaped; invalid UTF-8 becomes U+FFFD; doubles are the shortest that read back, in the C locale.
 */
#ifndef PR_BASE_JSON_WRITER_H
#define PR_BASE_JSON_WRITER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buffer.h"

#define PR_JSON_DEPTH_MAX 32

typedef struct pr__json {
    pr__buffer *buffer; /* borrowed */
    uint32_t depth;
    uint64_t comma; /* bit d: a value stands before the next one at depth d */
    bool after_key;
    bool failed; /* too deep, unbalanced, or a non-finite double */
} pr__json;

void pr__json_init(pr__json *json, pr__buffer *buffer);
void pr__json_object_begin(pr__json *json);
void pr__json_object_end(pr__json *json);
void pr__json_array_begin(pr__json *json);
void pr__json_array_end(pr__json *json);
void pr__json_key(pr__json *json, const char *key);
void pr__json_text(pr__json *json, const char *text); /* NULL writes null */
void pr__json_text_n(pr__json *json, const char *text, size_t size);
void pr__json_int(pr__json *json, int64_t value);
void pr__json_uint(pr__json *json, uint64_t value);
void pr__json_double(pr__json *json, double value);
void pr__json_bool(pr__json *json, bool value);
void pr__json_null(pr__json *json);
void pr__json_base64(pr__json *json, const void *data, size_t size);
void pr__json_instant(pr__json *json, int64_t instant_us);       /* RFC 3339 text */
void pr__json_raw(pr__json *json, const char *raw, size_t size); /* one whole JSON value */

/* A key and its value. */
void pr__json_member_text(pr__json *json, const char *key, const char *text); /* NULL: null */
void pr__json_member_int(pr__json *json, const char *key, int64_t value);
void pr__json_member_uint(pr__json *json, const char *key, uint64_t value);
void pr__json_member_double(pr__json *json, const char *key, double value);
void pr__json_member_bool(pr__json *json, const char *key, bool value);

#endif
