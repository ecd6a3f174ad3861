/*
 * Text: UTF-8, numbers, names, base64. Nothing here depends on the locale of the process.
 *
 * Owns: every parser of a scalar that comes in as text.
 * Keeps: a parser takes the whole text or refuses it; ret_ values are set on success only.
 * Must not know: where the text comes from.
 */
#include "base/text.h"

#include <limits.h>
#include <locale.h>
#include <math.h>
#include <sodium.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DOUBLE_TEXT_MAX 1024 /* longer literals are refused: no double needs them */

static bool is_continuation(unsigned char c)
{
    return (c & 0xC0) == 0x80;
}

/* The table of well-formed sequences: Unicode 15, table 3-7. */
size_t pr__utf8_step(const char *text, size_t size)
{
    const unsigned char *at = (const unsigned char *)text;
    if (size == 0)
        return 0;
    if (at[0] < 0x80)
        return 1;
    if (at[0] >= 0xC2 && at[0] <= 0xDF)
        return size >= 2 && is_continuation(at[1]) ? 2 : 0;
    if (at[0] >= 0xE0 && at[0] <= 0xEF) {
        unsigned char low = at[0] == 0xE0 ? 0xA0 : 0x80;
        unsigned char high = at[0] == 0xED ? 0x9F : 0xBF;
        return size >= 3 && at[1] >= low && at[1] <= high && is_continuation(at[2]) ? 3 : 0;
    }
    if (at[0] >= 0xF0 && at[0] <= 0xF4) {
        unsigned char low = at[0] == 0xF0 ? 0x90 : 0x80;
        unsigned char high = at[0] == 0xF4 ? 0x8F : 0xBF;
        return size >= 4 && at[1] >= low && at[1] <= high && is_continuation(at[2]) &&
                       is_continuation(at[3])
                   ? 4
                   : 0;
    }
    return 0;
}

bool pr__utf8_valid(const char *text, size_t size)
{
    size_t i = 0;
    while (i < size) {
        size_t length = pr__utf8_step(text + i, size - i);
        if (length == 0)
            return false;
        i += length;
    }
    return true;
}

size_t pr__utf8_cut(const char *text, size_t size, size_t limit)
{
    if (size <= limit)
        return size;
    size_t cut = limit;
    while (cut > 0 && limit - cut < 3 && is_continuation((unsigned char)text[cut]))
        cut--;
    return cut;
}

bool pr__text_equal(const char *a, const char *b)
{
    if (!a || !b)
        return a == b;
    return strcmp(a, b) == 0;
}

bool pr__text_starts_with(const char *text, const char *prefix)
{
    return text && strncmp(text, prefix, strlen(prefix)) == 0;
}

bool pr__text_addressable(const char *text, size_t size)
{
    for (size_t i = 0; i < size; i++) {
        unsigned char c = (unsigned char)text[i];
        if (c <= ' ' || c == 0x7F || c == '/')
            return false;
    }
    return true;
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* Digits from *at on; *at is left behind them. At least one, no overflow. */
static bool take_digits(const char **at, int64_t sign, int64_t *ret_value)
{
    int64_t value = 0;
    if (!is_digit(**at))
        return false;
    for (; is_digit(**at); (*at)++) {
        if (__builtin_mul_overflow(value, (int64_t)10, &value) ||
            __builtin_add_overflow(value, sign * (**at - '0'), &value))
            return false;
    }
    *ret_value = value;
    return true;
}

bool pr__parse_int64(const char *text, int64_t min, int64_t max, int64_t *ret_value)
{
    if (!text)
        return false;
    int64_t sign = *text == '-' ? -1 : 1;
    const char *at = *text == '-' ? text + 1 : text;
    int64_t value;
    if (!take_digits(&at, sign, &value) || *at != '\0' || value < min || value > max)
        return false;
    *ret_value = value;
    return true;
}

/* [-+]digits[.digits][e[-+]digits]; neither hexadecimal nor names, which strtod would take. */
static bool double_shape(const char *text)
{
    size_t digits = 0;
    if (*text == '-' || *text == '+')
        text++;
    for (; is_digit(*text); text++)
        digits++;
    if (*text == '.') {
        for (text++; is_digit(*text); text++)
            digits++;
    }
    if (digits == 0)
        return false;
    if (*text == 'e' || *text == 'E') {
        text++;
        if (*text == '-' || *text == '+')
            text++;
        if (!is_digit(*text))
            return false;
        while (is_digit(*text))
            text++;
    }
    return *text == '\0';
}

bool pr__parse_double(const char *text, size_t size, double *ret_value)
{
    char copy[DOUBLE_TEXT_MAX + 1];
    if (size > DOUBLE_TEXT_MAX)
        return false;
    memcpy(copy, text, size);
    copy[size] = '\0';
    if (strlen(copy) != size || !double_shape(copy))
        return false;
    locale_t c_locale = newlocale(LC_ALL_MASK, "C", (locale_t)0); /* glibc: a constant object */
    if (c_locale == (locale_t)0)
        return false;
    double value = strtod_l(copy, NULL, c_locale);
    freelocale(c_locale);
    if (!isfinite(value))
        return false;
    *ret_value = value;
    return true;
}

bool pr__name_valid(const char *name, size_t limit)
{
    if (pr__text_empty(name))
        return false;
    size_t size = 0;
    for (; name[size] != '\0'; size++) {
        char c = name[size];
        bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
        if (size >= limit || !(letter || is_digit(c) || c == '_'))
            return false;
    }
    return true;
}

typedef struct unit_factor {
    const char *unit;
    int64_t factor;
} unit_factor;

static bool parse_with_unit(const char *text, const unit_factor *units, size_t count,
                            int64_t *ret_value)
{
    if (!text)
        return false;
    const char *at = text;
    int64_t value;
    if (!take_digits(&at, 1, &value))
        return false;
    for (size_t i = 0; i < count; i++) {
        if (strcmp(at, units[i].unit) != 0)
            continue;
        if (__builtin_mul_overflow(value, units[i].factor, &value))
            return false;
        *ret_value = value;
        return true;
    }
    return false;
}

bool pr__parse_duration_ms(const char *text, int64_t *ret_ms)
{
    static const unit_factor units[] = {
        {"ms", 1}, {"s", 1000}, {"m", 60000}, {"h", 3600000}, {"d", 86400000},
    };
    if (text && strcmp(text, "0") == 0) { /* the one number that needs no unit */
        *ret_ms = 0;
        return true;
    }
    return parse_with_unit(text, units, sizeof(units) / sizeof(units[0]), ret_ms);
}

bool pr__parse_size_bytes(const char *text, int64_t *ret_bytes)
{
    static const unit_factor units[] = {
        {"", 1}, {"B", 1}, {"KiB", 1024}, {"MiB", 1048576}, {"GiB", 1073741824},
    };
    return parse_with_unit(text, units, sizeof(units) / sizeof(units[0]), ret_bytes);
}

void pr__format(char *out, size_t size, const char *format, ...)
{
    if (size == 0)
        return;
    va_list args;
    va_start(args, format);
    int length = vsnprintf(out, size, format, args);
    va_end(args);
    if (length < 0) {
        out[0] = '\0';
        return;
    }
    if ((size_t)length < size)
        return;
    /* cut off: drop a last code point that is not whole */
    size_t start = size - 1;
    while (start > 0 && size - 1 - start < 3 && is_continuation((unsigned char)out[start - 1]))
        start--;
    if (start > 0 && (unsigned char)out[start - 1] >= 0xC0)
        start--;
    if (start < size - 1 && pr__utf8_step(out + start, size - 1 - start) != size - 1 - start)
        out[start] = '\0';
}

size_t pr__base64_encode(char *out, const void *data, size_t size)
{
    size_t out_size = sodium_base64_encoded_len(size, sodium_base64_VARIANT_ORIGINAL);
    sodium_bin2base64(out, out_size, data, size, sodium_base64_VARIANT_ORIGINAL);
    return out_size - 1;
}

bool pr__base64_decode(const char *text, size_t text_size, void *out, size_t *ret_size)
{
    if (text_size % 4 != 0)
        return false;
    size_t size = 0;
    const char *end = NULL;
    if (text_size > 0 && (sodium_base642bin(out, text_size / 4 * 3, text, text_size, NULL, &size,
                                            &end, sodium_base64_VARIANT_ORIGINAL) != 0 ||
                          end != text + text_size))
        return false;
    *ret_size = size;
    return true;
}
