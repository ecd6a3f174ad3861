/*
 * Names at the broker: one for each thing, none cut, none for two.
 */
#include "support/test.h"

#include "transport/amqp/names.h"

#define PLACED "urn:message:shop.orders:order.placed"

static pr_message to(const char *destination)
{
    return (pr_message)PR_MESSAGE(.id = "1", .type = PLACED, .type_version = 7,
                                  .destination = destination);
}

static void targets(void **state)
{
    (void)state;
    static const struct {
        const char *destination, *prefix, *exchange, *key;
    } cases[] = {
        {"rabbitmq://topic/" PLACED, "", "shop.orders", "shop.orders.order.placed.v7"},
        {"rabbitmq://topic/" PLACED, "eu.", "eu.shop.orders", "shop.orders.order.placed.v7"},
        {"rabbitmq://in/billing", "", "", "billing"},
        {"rabbitmq://in/billing", "eu.", "", "eu.billing"},
        {"rabbitmq://in/" PLACED "/billing", "", "in:billing", PLACED},
        {"rabbitmq://in/" PLACED "/billing", "eu.", "eu.in:billing", PLACED},
        {"rabbitmq://reply/7f3a", "", "", "reply:7f3a"},
        {"rabbitmq://reply/7f3a", "eu.", "", "eu.reply:7f3a"},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        pr_error err = PR_ERROR_INIT;
        pr__amqp_target target;
        pr_message message = to(cases[i].destination);
        check_ok(pr__amqp_target_of(&message, "rabbitmq", cases[i].prefix, &target, &err), &err,
                 cases[i].destination);
        CHECK_CASE(strcmp(target.exchange, cases[i].exchange) == 0, cases[i].destination);
        CHECK_CASE(strcmp(target.key, cases[i].key) == 0, cases[i].destination);
        CHECK_CASE(target.mandatory, cases[i].destination);
    }
}

/* Only a topic may reach nobody, and only when the message says so. */
static void mandatory_unless_it_says_otherwise(void **state)
{
    (void)state;
    static const struct {
        const char *destination, *headers;
        bool mandatory;
    } cases[] = {
        {"rabbitmq://topic/" PLACED, "{\"postroom-unrouted-ok\":\"\"}", false},
        {"rabbitmq://topic/" PLACED, "{\"postroom-unrouted-ok\":{\"bool\":false}}", true},
        {"rabbitmq://in/billing", "{\"postroom-unrouted-ok\":\"\"}", true},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        pr_error err = PR_ERROR_INIT;
        pr__amqp_target target;
        pr_message message = to(cases[i].destination);
        message.headers = cases[i].headers;
        check_ok(pr__amqp_target_of(&message, "rabbitmq", "", &target, &err), &err, "a target");
        CHECK_CASE(target.mandatory == cases[i].mandatory, cases[i].headers);
    }
}

static void bad_targets(void **state)
{
    (void)state;
    char long_id[320], long_type[320];
    snprintf(long_id, sizeof(long_id), "rabbitmq://in/%0250d", 1);
    snprintf(long_type, sizeof(long_type), "rabbitmq://topic/urn:message:a:%0253d", 1);
    const struct {
        const char *label, *destination;
        pr_status wanted;
    } cases[] = {
        {"no address", "nonsense", PR_E_CONTENT},
        {"another transport", "database://in/billing", PR_E_CONTENT},
        {"a longer name", "rabbitmq2://in/billing", PR_E_CONTENT},
        {"no kind", "rabbitmq://billing", PR_E_CONTENT},
        {"no urn", "rabbitmq://topic/order", PR_E_CONTENT},
        {"no name", "rabbitmq://topic/urn:message:shop:", PR_E_CONTENT},
        {"no namespace", "rabbitmq://topic/urn:message::order", PR_E_CONTENT},
        {"one part", "rabbitmq://topic/urn:message:shop", PR_E_CONTENT},
        {"a long endpoint", long_id, PR_E_LIMIT},
        {"a long type", long_type, PR_E_LIMIT},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        pr_error err = PR_ERROR_INIT;
        pr__amqp_target target;
        pr_message message = to(cases[i].destination);
        pr_status status = pr__amqp_target_of(&message, "rabbitmq", "prefix.", &target, &err);
        check_error(status, &err, cases[i].wanted, "", cases[i].label);
    }
}

static void prefixes(void **state)
{
    (void)state;
    char longest[PR__AMQP_PREFIX_MAX + 2];
    memset(longest, 'p', sizeof(longest));
    longest[PR__AMQP_PREFIX_MAX + 1] = '\0';
    const char *const bad[] = {"amq.mine", "a b", "a\n", "a\xFF", longest};
    for (size_t i = 0; i < COUNT_OF(bad); i++) {
        pr_error err = PR_ERROR_INIT;
        check_error(pr__amqp_prefix_check(bad[i], &err), &err, PR_E_INVALID, "prefix", bad[i]);
    }
    longest[PR__AMQP_PREFIX_MAX] = '\0';
    assert_int_equal(pr__amqp_prefix_check(longest, NULL), PR_OK);
    assert_int_equal(pr__amqp_prefix_check("", NULL), PR_OK);
}

static void endpoints(void **state)
{
    (void)state;
    pr_error err = PR_ERROR_INIT;
    pr__amqp_names names;
    pr_subscribe_options options = {.size = sizeof(options), .endpoint = "billing"};
    check_ok(pr__amqp_names_of(&options, "eu.", &names, &err), &err, "an endpoint");
    assert_string_equal(names.queue, "eu.billing");
    assert_string_equal(names.dead, "eu.billing.dead");
    assert_string_equal(names.exchange, "eu.in:billing");
    options.temporary = true;
    check_ok(pr__amqp_names_of(&options, "eu.", &names, &err), &err, "a temporary one");
    assert_string_equal(names.queue, "eu.reply:billing");
    assert_string_equal(names.dead, "");
    assert_string_equal(names.exchange, "");
    options.temporary = false;
    char long_id[256];
    memset(long_id, 'x', 251);
    long_id[251] = '\0';
    const struct {
        const char *endpoint;
        pr_status wanted;
    } bad[] = {{"billing.dead", PR_E_CONTENT},
               {".dead", PR_E_CONTENT},
               {"reply:7", PR_E_CONTENT},
               {"amq.gen-1", PR_E_CONTENT},
               {long_id, PR_E_LIMIT}};
    for (size_t i = 0; i < COUNT_OF(bad); i++) {
        pr_error_clear(&err);
        options.endpoint = bad[i].endpoint;
        check_error(pr__amqp_names_of(&options, "", &names, &err), &err, bad[i].wanted, "",
                    bad[i].endpoint);
    }
}

static void bindings(void **state)
{
    (void)state;
    pr_error err = PR_ERROR_INIT;
    pr__amqp_target target;
    check_ok(pr__amqp_binding_of(PLACED, "eu.", &target, &err), &err, "a binding");
    assert_string_equal(target.exchange, "eu.shop.orders");
    assert_string_equal(target.key, "shop.orders.order.placed.*"); /* any version */
    check_error(pr__amqp_binding_of("order", "", &target, &err), &err, PR_E_CONTENT, "urn:message",
                "no urn");
}

static void sets_of_types(void **state)
{
    (void)state;
    static const char *const ab[] = {"urn:message:s:a", "urn:message:s:b"};
    static const char *const bab[] = {"urn:message:s:b", "urn:message:s:a", "urn:message:s:b"};
    static const char *const a[] = {"urn:message:s:a"};
    static char texts[40][64];
    const char *many[40];
    pr_error err = PR_ERROR_INIT;
    char out[4][PR__AMQP_NAME_SIZE];
    pr_subscribe_options options = {.size = sizeof(options), .endpoint = "e", .types = ab};
    options.type_count = 2;
    check_ok(pr__amqp_types_text(&options, "e", out[0], &err), &err, "two");
    assert_string_equal(out[0], "e takes s:a s:b");
    options.types = bab;
    options.type_count = 3;
    check_ok(pr__amqp_types_text(&options, "e", out[1], &err), &err, "the same, said otherwise");
    assert_string_equal(out[1], out[0]);
    options.types = a;
    options.type_count = 1;
    check_ok(pr__amqp_types_text(&options, "e", out[1], &err), &err, "one");
    assert_string_not_equal(out[1], out[0]);
    options.type_count = 0;
    check_ok(pr__amqp_types_text(&options, "e", out[1], &err), &err, "none");
    assert_string_equal(out[1], "e takes");
    for (size_t i = 0; i < COUNT_OF(many); i++) {
        snprintf(texts[i], sizeof(texts[i]), "urn:message:shop:event-%zu", i);
        many[i] = texts[i];
    }
    options.types = many;
    for (size_t i = 0; i < 2; i++) {
        options.type_count = COUNT_OF(many) - i;
        check_ok(pr__amqp_types_text(&options, "e", out[2 + i], &err), &err, "many");
        assert_non_null(strstr(out[2 + i], "hash:"));
    }
    assert_string_not_equal(out[2], out[3]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(targets),       cmocka_unit_test(mandatory_unless_it_says_otherwise),
        cmocka_unit_test(bad_targets),   cmocka_unit_test(prefixes),
        cmocka_unit_test(endpoints),     cmocka_unit_test(bindings),
        cmocka_unit_test(sets_of_types),
    };
    return RUN_TESTS(tests);
}
