/*
 * Instants: microseconds since 1970, UTC, int64. Valid from year 1 to 9999.
 */
#ifndef PR_BASE_TIME_H
#define PR_BASE_TIME_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PR_INSTANT_MIN_US    (-62135596800000000LL) /* 0001-01-01T00:00:00Z */
#define PR_INSTANT_MAX_US    253402300799999999LL   /* 9999-12-31T23:59:59.999999Z */
#define PR_INSTANT_TEXT_SIZE 28                     /* "2026-01-31T12:00:00.000000Z" and a NUL */

int64_t pr__wall_us(void); /* the host's clock, for adapters and the system clock only */
int64_t pr__monotonic_us(void);
void pr__sleep_us(int64_t us);
bool pr__instant_valid(int64_t instant_us);
void pr__instant_text(int64_t instant_us, char out[PR_INSTANT_TEXT_SIZE]); /* RFC 3339, 6 digits */
bool pr__instant_parse(const char *text, size_t size, int64_t *ret_instant_us); /* RFC 3339 */
void pr__duration_text(int64_t us, char *out, size_t size); /* "1.5 s", "3 min 2 s", "2 d 4 h" */

#endif
