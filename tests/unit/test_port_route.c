/*
 * Routes: what transports read out of destinations, and refuse.
 */
#include "support/test.h"

#include "port/route.h"

static void test_malformed_destinations_name_the_part(void **state)
{
    (void)state;
    static const struct {
        const char *destination;
        const char *part;
    } cases[] = {
        {"", "transport"},
        {"topic/urn:message:a:b", "transport"},
        {"://topic/x", "transport"},
        {"Memory://topic/x", "transport"},
        {"m12345678901234567890123456789012://in/x", "transport"},
        {"memory://", "kind"},
        {"memory://queue/x", "kind"},
        {"memory://topic/", "type"},
        {"memory://topic/a/b", "type"},
        {"memory://in/", "endpoint id"},
        {"memory://in//x", "type"},
        {"memory://in/urn:message:a:b/", "endpoint id"},
        {"memory://in/urn:message:a:b/x/y", "endpoint id"},
        {"memory://reply/", "reply id"},
        {"memory://reply/a/b", "reply id"},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        pr__route route = {.path = "untouched"};
        pr_error err = PR_ERROR_INIT;
        pr_status status = pr__route_parse(cases[i].destination, &route, &err);
        check_error(status, &err, PR_E_CONTENT, cases[i].part, cases[i].destination);
        CHECK_CASE(strcmp(route.path, "untouched") == 0, cases[i].destination);
    }
}

static void test_destinations_are_taken_apart(void **state)
{
    (void)state;
    static const struct {
        const char *destination;
        pr__route_kind kind;
        const char *scheme;
        const char *path;
        const char *type; /* "" = none */
        const char *endpoint;
    } cases[] = {
        {"memory://topic/urn:message:a:b", PR__ROUTE_TOPIC, "memory", "topic/urn:message:a:b",
         "urn:message:a:b", ""},
        {"a+1.x-y://in/billing", PR__ROUTE_IN, "a+1.x-y", "in/billing", "", "billing"},
        {"m://in/urn:message:a:b/billing", PR__ROUTE_IN, "m", "in/urn:message:a:b/billing",
         "urn:message:a:b", "billing"},
        {"local://reply/7f3a", PR__ROUTE_REPLY, "local", "reply/7f3a", "", "7f3a"},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        const char *label = cases[i].destination;
        pr__route route;
        pr_error err = PR_ERROR_INIT;
        check_ok(pr__route_parse(label, &route, &err), &err, label);
        CHECK_CASE(route.kind == cases[i].kind, label);
        CHECK_CASE(pr__span_equal(route.scheme, cases[i].scheme), label);
        CHECK_CASE(strcmp(route.path, cases[i].path) == 0, label);
        CHECK_CASE((route.type.text == NULL) == (cases[i].type[0] == '\0'), label);
        CHECK_CASE(!route.type.text || pr__span_equal(route.type, cases[i].type), label);
        CHECK_CASE((route.endpoint.text == NULL) == (cases[i].endpoint[0] == '\0'), label);
        CHECK_CASE(!route.endpoint.text || pr__span_equal(route.endpoint, cases[i].endpoint),
                   label);
    }
}

static void test_a_span_is_its_own_length(void **state)
{
    (void)state;
    pr__span span = {"billing-2", 7};
    assert_true(pr__span_equal(span, "billing"));
    assert_false(pr__span_equal(span, "billin"));
    assert_false(pr__span_equal(span, "billing-2"));
    assert_false(pr__span_equal((pr__span){NULL, 0}, ""));
}

static void test_unrouted_ok_is_a_header_of_its_own(void **state)
{
    (void)state;
    static const struct {
        const char *headers;
        bool wanted;
    } cases[] = {
        {NULL, false},
        {"", false},
        {"{}", false},
        {"{\"postroom-unrouted-ok\":\"1\"}", true},
        {"{ \"a\" : [1,{\"b\":2}] , \"postroom-unrouted-ok\" : { \"bool\" : true } }", true},
        {"{\"postroom-unrouted-ok\" : { \"bool\" : false } }", false},
        {"{\"postroom-unrouted-okay\":\"1\"}", false},
        {"{\"a\":\"postroom-unrouted-ok\"}", false},
        {"{\"a\":{\"postroom-unrouted-ok\":\"1\"}}", false},
        {"{\"a\":\"\\\\\",\"postroom-unrouted-ok\":\"1\"}", true},
        {"{\"a\":\"\\\",\\\"postroom-unrouted-ok\\\":1\"}", false},
        {"{\"postroom-unrouted-ok\"", false},
        {"{\"a\":\"postroom-unrouted-ok\\", false},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        const pr_message message = PR_MESSAGE(.headers = cases[i].headers);
        CHECK_CASE(pr__route_unrouted_ok(&message) == cases[i].wanted,
                   cases[i].headers ? cases[i].headers : "NULL");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_malformed_destinations_name_the_part),
        cmocka_unit_test(test_destinations_are_taken_apart),
        cmocka_unit_test(test_a_span_is_its_own_length),
        cmocka_unit_test(test_unrouted_ok_is_a_header_of_its_own),
    };
    return RUN_TESTS(tests);
}
