/*
 * Whatever comes in: thousands of damaged addresses, headers and bodies end in success or in an
 * error that names what is wrong, and what is taken comes back the same when it is written and read
 * again.
 */
#include <postroom/address.h>
#include <postroom/contract.h>
#include <postroom/headers.h>

#include "support/test.h"

#include "base/text.h"
#include "core/contract.h"
#include "core/headers.h"
#include "unit/order_contract.h"

#define ROUNDS   20000
#define TEXT_MAX 1024

static uint64_t next_random(uint64_t *state)
{
    *state ^= *state << 13; /* xorshift64: the same damage every time */
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

/* A few bytes changed, dropped, doubled, or taken from the alphabet of the grammar. */
static size_t damage(uint64_t *random, const char *from, size_t size, const char *alphabet,
                     char out[TEXT_MAX])
{
    memcpy(out, from, size);
    for (uint64_t changes = next_random(random) % 4 + 1; changes > 0 && size > 1; changes--) {
        size_t at = (size_t)(next_random(random) % size);
        switch (next_random(random) % 4) {
        case 0:
            out[at] = (char)next_random(random);
            break;
        case 1:
            out[at] = alphabet[next_random(random) % strlen(alphabet)];
            break;
        case 2:
            memmove(out + at, out + at + 1, size - at - 1);
            size--;
            break;
        default:
            if (size + 1 >= TEXT_MAX)
                break;
            memmove(out + at + 1, out + at, size - at);
            size++;
            break;
        }
    }
    return size;
}

static void check_refusal(pr_status status, const pr_error *err)
{
    if (status != PR_E_CONTENT && status != PR_E_LIMIT)
        fail_msg("%s: %s", pr_status_text(status), err->message);
    assert_int_equal(err->status, status);
    assert_int_equal(err->retry, PR_RETRY_NEVER);
    assert_true(err->message[0] != '\0');
    assert_true(pr__utf8_valid(err->message, strlen(err->message)));
}

static void test_addresses(void **state)
{
    (void)state;
    static const char *const seeds[] = {"memory://topic/urn:message:shop:placed", "m://in/billing",
                                        "m://reply/0190b8f5",
                                        "database://in/urn:message:shop:placed/billing"};
    uint64_t random = 1;
    size_t taken = 0, refused = 0;
    for (int i = 0; i < ROUNDS; i++) {
        char text[TEXT_MAX], again[512];
        const char *seed = seeds[(size_t)i % COUNT_OF(seeds)];
        size_t size = damage(&random, seed, strlen(seed), ":/urn.-A", text);
        pr_address address;
        pr_error err = PR_ERROR_INIT;
        text[size] = '\0'; /* a NUL inside ends it earlier */
        pr_status status = pr_address_parse(text, &address, &err);
        if (status != PR_OK) {
            check_refusal(status, &err);
            refused++;
            continue;
        }
        check_ok(pr_address_print(&address, again, sizeof(again), &err), &err, text);
        assert_string_equal(again, text);
        taken++;
    }
    assert_true(taken > ROUNDS / 100 && refused > ROUNDS / 100);
}

static void test_headers(void **state)
{
    (void)state;
    static const char seed[] =
        "{\"a\":\"text\",\"b\":{\"int\":-12},\"c\":{\"double\":1.5},\"d\":{\"bool\":"
        "true},\"e\":{\"instant\":\"2026-01-31T12:00:00Z\"},\"f\":{\"bytes\":"
        "\"AAEC\"},\"g\":{\"x\":[1,{\"y\":null}]}}";
    uint64_t random = 2;
    size_t taken = 0, refused = 0;
    for (int i = 0; i < ROUNDS; i++) {
        char text[TEXT_MAX];
        text[damage(&random, seed, sizeof(seed) - 1, "{}[]\",:\\u0e", text)] = '\0';
        AUTO(pr_headers) first = NULL;
        AUTO(pr_headers) second = NULL;
        const char *once = NULL, *twice = NULL;
        pr_error err = PR_ERROR_INIT;
        pr_status status = pr_headers_parse(text, &first, &err);
        if (status != PR_OK) {
            check_refusal(status, &err);
            refused++;
            continue;
        }
        check_ok(pr_headers_json(first, &once, &err), &err, text);
        check_ok(pr_headers_parse(once, &second, &err), &err, text);
        check_ok(pr_headers_json(second, &twice, &err), &err, text);
        assert_true(pr__text_equal(once, twice));
        taken++;
    }
    assert_true(taken > ROUNDS / 100 && refused > ROUNDS / 100);
}

static void test_bodies(void **state)
{
    (void)state;
    static const char seed[] =
        "{\"id\":\"" ID "\",\"placedAt\":\"2026-01-31T12:00:00Z\",\"customer\":{\"name\":\"Ada\","
        "\"reference\":\"" ID
        "\"},\"lines\":[{\"article\":\"a\",\"amount\":1,\"price\":0.5},{\"article\""
        ":\"b\",\"amount\":-2}],\"tags\":[\"x\",\"y\"],\"signature\":\"AAEC\",\"gift\":true,"
        "\"note\":null}";
    uint64_t random = 3;
    size_t taken = 0, refused = 0;
    for (int i = 0; i < ROUNDS; i++) {
        char text[TEXT_MAX];
        size_t size = damage(&random, seed, sizeof(seed) - 1, "{}[]\",:\\u0e", text);
        AUTO(char) exact = pr__memdup(text, size); /* the sanitizer sees a read beyond the end */
        pr_message message =
            PR_MESSAGE(.type = TYPE, .type_version = 2, .body = exact, .body_size_bytes = size);
        AUTO(pr_decoded) first = NULL;
        AUTO(pr_decoded) second = NULL;
        void *once = NULL, *twice = NULL;
        size_t once_size = 0, twice_size = 0;
        pr_error err = PR_ERROR_INIT;
        pr_status status = pr_contract_decode(&order_contract, &message, &first, &err);
        if (status != PR_OK) {
            check_refusal(status, &err);
            refused++;
            continue;
        }
        check_ok(
            pr_contract_encode(&order_contract, pr_decoded_object(first), &once, &once_size, &err),
            &err, text);
        message.body = once;
        message.body_size_bytes = once_size;
        check_ok(pr_contract_decode(&order_contract, &message, &second, &err), &err, text);
        check_ok(pr_contract_encode(&order_contract, pr_decoded_object(second), &twice, &twice_size,
                                    &err),
                 &err, text);
        assert_int_equal(once_size, twice_size);
        assert_memory_equal(once, twice, once_size);
        pr_free(once);
        pr_free(twice);
        taken++;
    }
    assert_true(taken > ROUNDS / 100 && refused > ROUNDS / 100);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_addresses),
        cmocka_unit_test(test_headers),
        cmocka_unit_test(test_bodies),
    };
    return RUN_TESTS(tests);
}
