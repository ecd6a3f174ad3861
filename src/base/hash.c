/*
 * Hashing of content (BLAKE2b-128, libsodium) and of keys in memory tables.
 *
 * Owns: what "the same content" means: type, version and body, each ended so that no two messages
 * run together.
 * Keeps: the content hash is stored in inbox rows, so its input format never changes.
 * Must not know: where hashes are kept.
 */
#include "base/hash.h"

#include <sodium.h>
#include <stdio.h>
#include <string.h>

void pr__content_hash(const char *type, uint32_t type_version, const void *body, size_t body_size,
                      uint8_t ret_hash[PR_CONTENT_HASH_SIZE])
{
    char version[16];
    int version_size = snprintf(version, sizeof(version), "%u", (unsigned)type_version);
    crypto_generichash_state state;
    crypto_generichash_init(&state, NULL, 0, PR_CONTENT_HASH_SIZE);
    /* each with its closing NUL */
    crypto_generichash_update(&state, (const unsigned char *)type, strlen(type) + 1);
    crypto_generichash_update(&state, (const unsigned char *)version, (size_t)version_size + 1);
    if (body_size > 0)
        crypto_generichash_update(&state, body, body_size);
    crypto_generichash_final(&state, ret_hash, PR_CONTENT_HASH_SIZE);
}

void pr__hash_bytes(const void *data, size_t size, uint8_t ret_hash[PR_CONTENT_HASH_SIZE])
{
    crypto_generichash(ret_hash, PR_CONTENT_HASH_SIZE, size ? data : (const void *)"", size, NULL,
                       0);
}

void pr__hash_text(const uint8_t hash[PR_CONTENT_HASH_SIZE], char out[PR_CONTENT_HASH_TEXT_SIZE])
{
    sodium_bin2hex(out, PR_CONTENT_HASH_TEXT_SIZE, hash, PR_CONTENT_HASH_SIZE);
}

/* The finaliser of splitmix64: every input bit reaches every output bit. */
static uint64_t mix(uint64_t h)
{
    h ^= h >> 30;
    h *= 0xBF58476D1CE4E5B9ULL;
    h ^= h >> 27;
    h *= 0x94D049BB133111EBULL;
    return h ^ (h >> 31);
}

uint64_t pr__quick_hash(const void *data, size_t size, uint64_t seed)
{
    const unsigned char *at = data;
    uint64_t h = mix(seed ^ (size * 0x9E3779B97F4A7C15ULL));
    while (size >= sizeof(uint64_t)) {
        uint64_t word;
        memcpy(&word, at, sizeof(word));
        h = mix(h ^ word);
        at += sizeof(word);
        size -= sizeof(word);
    }
    if (size > 0) {
        uint64_t word = 0;
        memcpy(&word, at, size);
        h = mix(h ^ word);
    }
    return h;
}
