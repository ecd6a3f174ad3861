/*
 * UUIDs as text (36 characters, lower case) and UUIDv7 from a clock and random bytes.
 */
#ifndef PR_BASE_UUID_H
#define PR_BASE_UUID_H

#include <stdbool.h>
#include <stdint.h>

#define PR_UUID_TEXT_SIZE 37

bool pr__uuid_valid(const char *text); /* canonical 8-4-4-4-12 hex, either case */
bool pr__uuid_nil(const char *text);   /* valid and all zero */
bool pr__uuid_parse(const char *text, uint8_t ret_bytes[16]);
void pr__uuid_text(const uint8_t bytes[16], char out[PR_UUID_TEXT_SIZE]);
/* RFC 9562 section 5.7: ms of unix time, 12 bits of sub-millisecond, 62 random bits. */
void pr__uuid7(int64_t wall_us, const uint8_t random[10], char out[PR_UUID_TEXT_SIZE]);

#endif
