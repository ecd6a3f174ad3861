/*
 * UUIDs: text form, checks, and version 7 out of a clock and random bytes that are given.
 *
 * Owns: the layout of RFC 9562, section 5.7, with the sub-millisecond fraction of section 6.2,
 * method 3, so that ids of one clock sort by microsecond.
 * Keeps: text is lower case, 36 characters.
 * Must not know: clocks and random sources.
 */
#include "base/uuid.h"

#include <stddef.h>
#include <string.h>

static const char hex_digits[] = "0123456789abcdef";

static int hex_value(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    if (c >= 'A' && c <= 'F')
        return c - 'A' + 10;
    return -1;
}

static bool is_dash_position(size_t i)
{
    return i == 8 || i == 13 || i == 18 || i == 23;
}

bool pr__uuid_parse(const char *text, uint8_t ret_bytes[16])
{
    uint8_t bytes[16] = {0};
    if (!text)
        return false;
    size_t digits = 0;
    for (size_t i = 0; i < PR_UUID_TEXT_SIZE - 1; i++) {
        if (is_dash_position(i)) {
            if (text[i] != '-')
                return false;
            continue;
        }
        int value = hex_value(text[i]);
        if (value < 0)
            return false; /* a NUL too: nothing behind it is read */
        bytes[digits / 2] = (uint8_t)(bytes[digits / 2] << 4 | value);
        digits++;
    }
    if (text[PR_UUID_TEXT_SIZE - 1] != '\0')
        return false;
    memcpy(ret_bytes, bytes, sizeof(bytes));
    return true;
}

bool pr__uuid_valid(const char *text)
{
    uint8_t bytes[16];
    return pr__uuid_parse(text, bytes);
}

bool pr__uuid_nil(const char *text)
{
    static const uint8_t zero[16];
    uint8_t bytes[16];
    return pr__uuid_parse(text, bytes) && memcmp(bytes, zero, sizeof(zero)) == 0;
}

void pr__uuid_text(const uint8_t bytes[16], char out[PR_UUID_TEXT_SIZE])
{
    char *at = out;
    for (size_t i = 0; i < 16; i++) {
        if (i == 4 || i == 6 || i == 8 || i == 10)
            *at++ = '-';
        *at++ = hex_digits[bytes[i] >> 4];
        *at++ = hex_digits[bytes[i] & 0x0F];
    }
    *at = '\0';
}

void pr__uuid7(int64_t wall_us, const uint8_t random[10], char out[PR_UUID_TEXT_SIZE])
{
    uint64_t us = wall_us > 0 ? (uint64_t)wall_us : 0;
    uint64_t ms = us / 1000;
    uint64_t fraction = us % 1000 * 4096 / 1000; /* 12 bits of the millisecond */
    uint8_t bytes[16];
    for (size_t i = 0; i < 6; i++)
        bytes[i] = (uint8_t)(ms >> (8 * (5 - i)));
    bytes[6] = (uint8_t)(0x70 | fraction >> 8);
    bytes[7] = (uint8_t)fraction;
    memcpy(bytes + 8, random, 8);
    bytes[8] = (uint8_t)((bytes[8] & 0x3F) | 0x80);
    pr__uuid_text(bytes, out);
}
