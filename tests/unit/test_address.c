/*
 * Addresses: parse and print are a round trip; a malformed one is refused, naming the part.
 */
#include <postroom/address.h>
#include <postroom/limits.h>

#include "support/test.h"

static char *long_text(char *out, const char *prefix, size_t fill, const char *suffix)
{
    size_t at = strlen(prefix);
    memcpy(out, prefix, at);
    memset(out + at, 'x', fill);
    memcpy(out + at + fill, suffix, strlen(suffix) + 1);
    return out;
}

static void test_malformed_names_the_part(void **state)
{
    (void)state;
    static const struct {
        const char *text, *wanted;
    } cases[] = {
        {"", "no <transport>://"},
        {"memory", "no <transport>://"},
        {"memory:/topic/urn:message:a:b", "no <transport>://"},
        {"://topic/urn:message:a:b", "the transport is missing"},
        {"Memory://topic/urn:message:a:b", "the transport is not"},
        {"1m://topic/urn:message:a:b", "the transport is not"},
        {"me_m://topic/urn:message:a:b", "the transport is not"},
        {"memory://", "none of topic/, in/, reply/"},
        {"memory://topic", "none of topic/, in/, reply/"},
        {"memory://queue/x", "none of topic/, in/, reply/"},
        {"memory://topic/", "the type is missing"},
        {"memory://topic/order-placed", "is not urn:message:"},
        {"memory://topic/urn:message:shop", "has no name"},
        {"memory://topic/urn:message::placed", "the namespace of type"},
        {"memory://topic/urn:message:shop:", "the name of type"},
        {"memory://topic/urn:message:shop:a:b", "the name of type"},
        {"memory://topic/urn:message:shop:a/b", "the name of type"},
        {"memory://topic/urn:message:shop:a#", "the name of type"},
        {"memory://topic/urn:message:sh*p:a", "the namespace of type"},
        {"memory://topic/urn:message:sh p:a", "the namespace of type"},
        {"memory://in/", "the endpoint id is missing"},
        {"memory://in/urn:message:shop:placed/", "the endpoint id is missing"},
        {"memory://in//billing", "the type is missing"},
        {"memory://in/placed/billing", "is not urn:message:"},
        {"memory://in/urn:message:shop:placed/bil/ling", "the endpoint id has"},
        {"memory://in/bil ling", "the endpoint id has"},
        {"memory://in/bil\nling", "the endpoint id has"},
        {"memory://reply/", "the reply id is missing"},
        {"memory://reply/a/b", "the reply id has"},
        {"memory://in/\xFF", "not valid UTF-8"},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        pr_error err = PR_ERROR_INIT;
        pr_address address;
        memset(&address, 0x55, sizeof(address));
        check_error(pr_address_parse(cases[i].text, &address, &err), &err, PR_E_CONTENT,
                    cases[i].wanted, cases[i].text);
        CHECK_CASE(address.kind == (pr_address_kind)0x55555555, cases[i].text); /* not touched */
    }
    pr_address address;
    assert_int_equal(pr_address_parse(NULL, &address, NULL), PR_E_INVALID);
    assert_int_equal(pr_address_parse("memory://in/a", NULL, NULL), PR_E_INVALID);
}

static void test_limits_name_part_size_and_limit(void **state)
{
    (void)state;
    static const struct {
        const char *prefix, *suffix, *wanted;
        size_t fill_ok;
    } cases[] = {
        {"", "://in/a", "the transport of an address has 32 bytes, at most 31", 31},
        {"m://topic/urn:message:a:", "", "type has 201 bytes, at most 200", 200 - 14},
        {"m://in/", "", "the endpoint id of an address has 256 bytes, at most 255", 255},
        {"m://reply/", "", "the reply id of an address has 256 bytes, at most 255", 255},
    };
    char text[700];
    pr_address address;
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        pr_error err = PR_ERROR_INIT;
        long_text(text, cases[i].prefix, cases[i].fill_ok, cases[i].suffix);
        check_ok(pr_address_parse(text, &address, &err), &err, cases[i].wanted);
        long_text(text, cases[i].prefix, cases[i].fill_ok + 1, cases[i].suffix);
        check_error(pr_address_parse(text, &address, &err), &err, PR_E_LIMIT, cases[i].wanted,
                    cases[i].wanted);
    }
    pr_error err = PR_ERROR_INIT;
    long_text(text, "m://in/", 600, "");
    check_error(pr_address_parse(text, &address, &err), &err, PR_E_LIMIT,
                "address has 607 bytes, at most 512", "whole address");
}

static void test_round_trip(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        pr_address_kind kind;
        const char *transport, *type, *endpoint;
    } cases[] = {
        {"memory://topic/urn:message:shop:order-placed", PR_ADDRESS_TOPIC, "memory",
         "urn:message:shop:order-placed", ""},
        {"database://in/billing", PR_ADDRESS_IN, "database", "", "billing"},
        {"database://in/urn:message:shop.orders:placed/billing.eu", PR_ADDRESS_IN, "database",
         "urn:message:shop.orders:placed", "billing.eu"},
        {"rabbitmq+tls.2-x://reply/0190b8f5-7d0c-7000-8000-000000000001", PR_ADDRESS_REPLY,
         "rabbitmq+tls.2-x", "", "0190b8f5-7d0c-7000-8000-000000000001"},
        {"local://in/b\xC3\xBC"
         "cher",
         PR_ADDRESS_IN, "local", "",
         "b\xC3\xBC"
         "cher"},
        {"m://topic/urn:message:b\xC3\xBC:\xE2\x82\xAC[x]", PR_ADDRESS_TOPIC, "m",
         "urn:message:b\xC3\xBC:\xE2\x82\xAC[x]", ""},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        pr_error err = PR_ERROR_INIT;
        pr_address address;
        char text[512];
        check_ok(pr_address_parse(cases[i].text, &address, &err), &err, cases[i].text);
        CHECK_CASE(address.kind == cases[i].kind, cases[i].text);
        assert_string_equal(address.transport, cases[i].transport);
        assert_string_equal(address.type, cases[i].type);
        assert_string_equal(address.endpoint, cases[i].endpoint);
        check_ok(pr_address_print(&address, text, sizeof(text), &err), &err, cases[i].text);
        assert_string_equal(text, cases[i].text);
        size_t size = strlen(text);
        check_ok(pr_address_print(&address, text, size + 1, &err), &err, "just fits");
        check_error(pr_address_print(&address, text, size, &err), &err, PR_E_LIMIT, "out has",
                    "one byte short");
    }
}

static void test_print_refuses_what_would_not_come_back(void **state)
{
    (void)state;
    static const struct {
        const char *label;
        pr_address address;
    } cases[] = {
        {"no size", {0, PR_ADDRESS_IN, "m", "", "a"}},
        {"no kind", {sizeof(pr_address), (pr_address_kind)0, "m", "", "a"}},
        {"no transport", {sizeof(pr_address), PR_ADDRESS_IN, "", "", "a"}},
        {"no endpoint", {sizeof(pr_address), PR_ADDRESS_IN, "m", "", ""}},
        {"no type", {sizeof(pr_address), PR_ADDRESS_TOPIC, "m", "", ""}},
        {"topic with endpoint",
         {sizeof(pr_address), PR_ADDRESS_TOPIC, "m", "urn:message:a:b", "e"}},
        {"reply with type", {sizeof(pr_address), PR_ADDRESS_REPLY, "m", "urn:message:a:b", "e"}},
        {"endpoint that holds a type",
         {sizeof(pr_address), PR_ADDRESS_IN, "m", "", "urn:message:a:b/c"}},
        {"transport that holds a path", {sizeof(pr_address), PR_ADDRESS_IN, "m://in/x", "", "a"}},
        {"bad type", {sizeof(pr_address), PR_ADDRESS_TOPIC, "m", "placed", ""}},
    };
    char text[512] = "untouched";
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        pr_error err = PR_ERROR_INIT;
        check_error(pr_address_print(&cases[i].address, text, sizeof(text), &err), &err,
                    PR_E_INVALID, "", cases[i].label);
        assert_string_equal(text, "untouched");
    }
    pr_address endless = {sizeof(pr_address), PR_ADDRESS_IN, "m", "", ""};
    memset(endless.endpoint, 'x', sizeof(endless.endpoint));
    pr_error err = PR_ERROR_INIT;
    check_error(pr_address_print(&endless, text, sizeof(text), &err), &err, PR_E_INVALID, "no NUL",
                "no NUL");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_malformed_names_the_part),
        cmocka_unit_test(test_limits_name_part_size_and_limit),
        cmocka_unit_test(test_round_trip),
        cmocka_unit_test(test_print_refuses_what_would_not_come_back),
    };
    return RUN_TESTS(tests);
}
