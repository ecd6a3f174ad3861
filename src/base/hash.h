/*
 * Hashing: BLAKE2b-128 by libsodium for content, a quick unkeyed hash for tables in memory.
 */
#ifndef PR_BASE_HASH_H
#define PR_BASE_HASH_H

#include <stddef.h>
#include <stdint.h>

#define PR_CONTENT_HASH_SIZE      16
#define PR_CONTENT_HASH_TEXT_SIZE 33

/* BLAKE2b-128 of type, NUL, decimal version, NUL, body: what "same content" means everywhere. */
void pr__content_hash(const char *type, uint32_t type_version, const void *body, size_t body_size,
                      uint8_t ret_hash[PR_CONTENT_HASH_SIZE]);
void pr__hash_bytes(const void *data, size_t size, uint8_t ret_hash[PR_CONTENT_HASH_SIZE]);
void pr__hash_text(const uint8_t hash[PR_CONTENT_HASH_SIZE], char out[PR_CONTENT_HASH_TEXT_SIZE]);
uint64_t pr__quick_hash(const void *data, size_t size, uint64_t seed);

#endif
