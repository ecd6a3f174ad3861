/*
 * Hashing: the content hash never changes and never runs two messages together.
 */
#include "support/test.h"

#include "base/hash.h"

static void content(const char *type, uint32_t version, const char *body, char out[33])
{
    uint8_t hash[PR_CONTENT_HASH_SIZE];
    pr__content_hash(type, version, body, strlen(body), hash);
    pr__hash_text(hash, out);
}

static void test_known_values(void **state)
{
    (void)state;
    uint8_t hash[PR_CONTENT_HASH_SIZE];
    char text[PR_CONTENT_HASH_TEXT_SIZE];
    /* python3: hashlib.blake2b(b"", digest_size=16) */
    pr__hash_bytes(NULL, 0, hash);
    pr__hash_text(hash, text);
    assert_string_equal(text, "cae66941d9efbd404e4d88758ea67670");
    /* hashlib.blake2b(b"urn:message:shop:placed\0" b"2\0" b"{}", digest_size=16): stored in inbox
       rows, so it must stay what it is */
    content("urn:message:shop:placed", 2, "{}", text);
    assert_string_equal(text, "0f26367b280964b2c94b83b28bb66f49");
}

static void test_each_part_counts_and_none_runs_into_the_next(void **state)
{
    (void)state;
    static const struct {
        const char *type, *body;
        uint32_t version;
    } all[] = {
        {"urn:a", "", 1},  {"urn:a", "", 11},    {"urn:a1", "", 1}, {"urn:a", "1", 1},
        {"urn:a", "a", 1}, {"urn:a", "\x01", 1}, {"urn:", "a", 1},
    };
    for (size_t i = 0; i < COUNT_OF(all); i++) {
        char one[33], other[33];
        content(all[i].type, all[i].version, all[i].body, one);
        for (size_t j = 0; j < i; j++) {
            content(all[j].type, all[j].version, all[j].body, other);
            assert_string_not_equal(one, other);
        }
    }
}

static void test_quick_hash_spreads(void **state)
{
    (void)state;
    enum { KEYS = 20000, BUCKETS = 16 };
    size_t buckets[BUCKETS] = {0};
    for (uint32_t i = 0; i < KEYS; i++)
        buckets[pr__quick_hash(&i, sizeof(i), 0) % BUCKETS]++;
    for (size_t i = 0; i < BUCKETS; i++)
        assert_in_range(buckets[i], KEYS / BUCKETS * 8 / 10, KEYS / BUCKETS * 12 / 10);
    assert_int_equal(pr__quick_hash("abcdefghij", 10, 1), pr__quick_hash("abcdefghij", 10, 1));
    assert_int_not_equal(pr__quick_hash("abcdefghij", 10, 1), pr__quick_hash("abcdefghij", 10, 2));
    assert_int_not_equal(pr__quick_hash("abcdefghij", 9, 1), pr__quick_hash("abcdefghij", 10, 1));
    assert_int_not_equal(pr__quick_hash("a\0", 1, 1), pr__quick_hash("a\0", 2, 1));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_known_values),
        cmocka_unit_test(test_each_part_counts_and_none_runs_into_the_next),
        cmocka_unit_test(test_quick_hash_spreads),
    };
    return RUN_TESTS(tests);
}
