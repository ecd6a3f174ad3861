/*
 * The append-only JSON writer.
 *
 * Owns: commas, nesting and escaping (RFC 8259).
 * Keeps: what it wrote is valid JSON as long as `failed` is false, `depth` is 0 and the calls
 * paired; doubles read back as the same double, whatever the locale.
 * Must not know: what the values mean.
 */
#include "base/json_writer.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/text.h"
#include "base/time.h"

void pr__json_init(pr__json *json, pr__buffer *buffer)
{
    *json = (pr__json){.buffer = buffer};
}

/* What stands before a value: nothing after a key or at the top, else a comma if it is not first.
 */
static void before_value(pr__json *json)
{
    if (json->after_key) {
        json->after_key = false;
        return;
    }
    uint64_t bit = UINT64_C(1) << json->depth;
    if (json->depth > 0 && (json->comma & bit))
        pr__buffer_append_char(json->buffer, ',');
    json->comma |= bit;
}

static void nest_begin(pr__json *json, char open)
{
    before_value(json);
    if (json->depth >= PR_JSON_DEPTH_MAX) {
        json->failed = true;
        return;
    }
    json->depth++;
    json->comma &= ~(UINT64_C(1) << json->depth);
    pr__buffer_append_char(json->buffer, open);
}

static void nest_end(pr__json *json, char close)
{
    if (json->depth == 0 || json->after_key) {
        json->failed = true;
        return;
    }
    json->depth--;
    pr__buffer_append_char(json->buffer, close);
}

void pr__json_object_begin(pr__json *json)
{
    nest_begin(json, '{');
}

void pr__json_object_end(pr__json *json)
{
    nest_end(json, '}');
}

void pr__json_array_begin(pr__json *json)
{
    nest_begin(json, '[');
}

void pr__json_array_end(pr__json *json)
{
    nest_end(json, ']');
}

static void append_escaped(pr__buffer *buffer, unsigned char c)
{
    switch (c) {
    case '"':
        pr__buffer_append(buffer, "\\\"", 2);
        break;
    case '\\':
        pr__buffer_append(buffer, "\\\\", 2);
        break;
    case '\n':
        pr__buffer_append(buffer, "\\n", 2);
        break;
    case '\r':
        pr__buffer_append(buffer, "\\r", 2);
        break;
    case '\t':
        pr__buffer_append(buffer, "\\t", 2);
        break;
    default:
        pr__buffer_printf(buffer, "\\u%04x", (unsigned)c);
        break;
    }
}

/* Runs of bytes that need no escape are copied at once. */
static void append_string(pr__buffer *buffer, const char *text, size_t size)
{
    pr__buffer_append_char(buffer, '"');
    size_t run = 0;
    size_t i = 0;
    while (i < size) {
        unsigned char c = (unsigned char)text[i];
        size_t length = pr__utf8_step(text + i, size - i);
        if (length != 0 && c >= 0x20 && c != '"' && c != '\\' && c != 0x7F) {
            i += length;
            continue;
        }
        if (i > run)
            pr__buffer_append(buffer, text + run, i - run);
        if (length == 0)
            pr__buffer_append(buffer, "\xEF\xBF\xBD", 3);
        else
            append_escaped(buffer, c);
        i++;
        run = i;
    }
    if (i > run)
        pr__buffer_append(buffer, text + run, i - run);
    pr__buffer_append_char(buffer, '"');
}

void pr__json_key(pr__json *json, const char *key)
{
    if (json->after_key || json->depth == 0)
        json->failed = true;
    before_value(json);
    append_string(json->buffer, key, strlen(key));
    pr__buffer_append_char(json->buffer, ':');
    json->after_key = true;
}

void pr__json_member_text(pr__json *json, const char *key, const char *text)
{
    pr__json_key(json, key);
    pr__json_text(json, text);
}

void pr__json_member_int(pr__json *json, const char *key, int64_t value)
{
    pr__json_key(json, key);
    pr__json_int(json, value);
}

void pr__json_member_uint(pr__json *json, const char *key, uint64_t value)
{
    pr__json_key(json, key);
    pr__json_uint(json, value);
}

void pr__json_member_double(pr__json *json, const char *key, double value)
{
    pr__json_key(json, key);
    pr__json_double(json, value);
}

void pr__json_member_bool(pr__json *json, const char *key, bool value)
{
    pr__json_key(json, key);
    pr__json_bool(json, value);
}

void pr__json_text(pr__json *json, const char *text)
{
    if (!text) {
        pr__json_null(json);
        return;
    }
    pr__json_text_n(json, text, strlen(text));
}

void pr__json_text_n(pr__json *json, const char *text, size_t size)
{
    before_value(json);
    append_string(json->buffer, text, size);
}

/* Numbers are the bulk of what is written often; printf takes ten times as long. */
static void append_digits(pr__json *json, uint64_t value)
{
    char text[20];
    size_t at = sizeof text;
    do {
        text[--at] = (char)('0' + value % 10);
        value /= 10;
    } while (value > 0);
    pr__buffer_append(json->buffer, text + at, sizeof text - at);
}

void pr__json_int(pr__json *json, int64_t value)
{
    before_value(json);
    if (value < 0)
        pr__buffer_append_char(json->buffer, '-');
    append_digits(json, value < 0 ? 0 - (uint64_t)value : (uint64_t)value);
}

void pr__json_uint(pr__json *json, uint64_t value)
{
    before_value(json);
    append_digits(json, value);
}

/* printf takes the decimal point of the process's locale, which may be several bytes: put '.'. */
static void force_point(char *text)
{
    char *to = text;
    bool in_point = false;
    for (const char *from = text; *from != '\0'; from++) {
        bool plain = (*from >= '0' && *from <= '9') || *from == '-' || *from == '+' || *from == 'e';
        if (plain)
            *to++ = *from;
        else if (!in_point)
            *to++ = '.';
        in_point = !plain;
    }
    *to = '\0';
}

void pr__json_double(pr__json *json, double value)
{
    before_value(json);
    if (!isfinite(value)) {
        json->failed = true;
        pr__buffer_append(json->buffer, "null", 4);
        return;
    }
    char text[64];
    for (int digits = 15; digits <= 17; digits++) {
        double back;
        snprintf(text, sizeof(text), "%.*g", digits, value);
        force_point(text);
        /* 17 digits always read back: IEEE 754 binary64 */
        if (pr__parse_double(text, strlen(text), &back) &&
            memcmp(&back, &value, sizeof(value)) == 0)
            break;
    }
    if (strcmp(text, "-0") == 0)
        memcpy(text, "-0.0", 5); /* readers take "-0" for an integer and lose the sign */
    pr__buffer_append_text(json->buffer, text);
}

void pr__json_bool(pr__json *json, bool value)
{
    before_value(json);
    pr__buffer_append_text(json->buffer, value ? "true" : "false");
}

void pr__json_null(pr__json *json)
{
    before_value(json);
    pr__buffer_append(json->buffer, "null", 4);
}

void pr__json_base64(pr__json *json, const void *data, size_t size)
{
    /* in pieces of whole groups, so that no second copy of a large body is made */
    enum { PIECE = 3 * 1024 };
    char text[PIECE / 3 * 4 + 1];
    const unsigned char *at = data;
    before_value(json);
    pr__buffer_append_char(json->buffer, '"');
    while (size > 0) {
        size_t piece = size < PIECE ? size : PIECE;
        pr__buffer_append(json->buffer, text, pr__base64_encode(text, at, piece));
        at += piece;
        size -= piece;
    }
    pr__buffer_append_char(json->buffer, '"');
}

void pr__json_instant(pr__json *json, int64_t instant_us)
{
    char text[PR_INSTANT_TEXT_SIZE];
    pr__instant_text(instant_us, text);
    pr__json_text_n(json, text, PR_INSTANT_TEXT_SIZE - 1);
}

void pr__json_raw(pr__json *json, const char *raw, size_t size)
{
    before_value(json);
    pr__buffer_append(json->buffer, raw, size);
}
