/*
 * `postroom contract`: what it shows of a shared object's contracts, and what of bad ones.
 */
#include <unistd.h>

#include "program.h"

#define PAID "urn:message:shop:paid"

static const char *module(const char *variable)
{
    const char *path = getenv(variable);
    assert_non_null(path);
    return path;
}
#define GOOD module("POSTROOM_CONTRACTS_MODULE")
#define BAD  module("POSTROOM_CONTRACTS_BAD_MODULE")

static json_t *read_json(const result *of)
{
    json_t *value = json_loads(of->out, 0, NULL);
    if (!value)
        fail_msg("no JSON: %s", of->out);
    return value;
}

static void it_lists_contracts(void **state)
{
    (void)state;
    result r;
    run(&r, "contract", "list", "--load", GOOD);
    check_result(&r, 0, PAID, "", "list");
    assert_non_null(strstr(r.out, "image/png"));
    result_done(&r);
    run(&r, "contract", "list", "--json", "--load", GOOD);
    check_result(&r, 0, PAID, "", "list --json");
    json_t *value = read_json(&r);
    json_t *all = json_object_get(value, "contracts");
    assert_int_equal(json_array_size(all), 4);
    json_t *last = json_array_get(all, 2);
    assert_string_equal(json_string_value(json_object_get(last, "type")), PAID);
    assert_int_equal(json_integer_value(json_object_get(last, "version")), 1);
    assert_string_equal(json_string_value(json_object_get(last, "kind")), "command");
    assert_string_equal(json_string_value(json_object_get(last, "content_type")),
                        "application/json");
    json_decref(value);
    result_done(&r);
    expect(0, "urn:message:shop:order-placed", "", "contract", "list"); /* the demo's */
}

static void it_shows_the_schema_of_the_newest_or_of_a_version(void **state)
{
    (void)state;
    static const struct {
        const char *version;
        size_t fields;
    } cases[] = {{NULL, 2}, {"1", 1}, {"2", 2}};
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        result r;
        const char *version = cases[i].version;
        run(&r, "contract", "show", PAID, "--load", GOOD, version ? "--version" : NULL, version);
        check_result(&r, 0, "draft/2020-12", "", version ? version : "newest");
        json_t *value = read_json(&r);
        assert_int_equal(json_object_size(json_object_get(value, "properties")), cases[i].fields);
        json_decref(value);
        result_done(&r);
    }
}

/* An example is a message: it goes into an outbox as it is. */
static void an_example_can_be_sent(void **state)
{
    (void)state;
    folder here;
    result example, sent;
    folder_enter(&here);
    expect(0, NULL, "", "migrate", "--store", "sqlite:a.db");
    run(&example, "contract", "show", PAID, "--example", "--load", GOOD);
    check_result(&example, 0, "\"body\":{\"order\":\"text\",\"cents\":1}", "", "example");
    run_input(&sent, example.out, "send", "--lines", "--store", "sqlite:a.db");
    check_result(&sent, 0, NULL, "", "send");
    assert_int_equal(number_of("a.db", "SELECT count(*) FROM postroom_outbox WHERE type = '" PAID
                                       "' AND type_version = 2 AND CAST(body AS TEXT) = "
                                       "'{\"order\":\"text\",\"cents\":1}'"),
                     1);
    result_done(&example);
    result_done(&sent);
    /* what the body repeats of the envelope stands there too: else its receiver would refuse it */
    run(&example, "contract", "show", "urn:message:shop:placed", "--example", "--load", GOOD);
    run_input(&sent, example.out, "send", "--lines", "--store", "sqlite:a.db");
    check_result(&sent, 0, NULL, "", "send");
    assert_int_equal(
        number_of("a.db", "SELECT count(*) FROM postroom_outbox WHERE body ->> 'orderId' = "
                          "message_id AND unixepoch(body ->> 'placedAt') * 1000000 = occurred_at"),
        1);
    result_done(&example);
    result_done(&sent);
    folder_leave(&here);
}

static void what_cannot_be_shown_is_told(void **state)
{
    (void)state;
    folder here;
    folder_enter(&here);
    write_file("text.so", "no code");
    expect(3, "", "there is no contract 'urn:message:shop:none'; see postroom contract list",
           "contract", "show", "urn:message:shop:none", "--load", GOOD);
    expect(3, "", "there is no contract '" PAID "' of this version", "contract", "show", PAID,
           "--version", "3", "--load", GOOD);
    expect(2, "", "has no fields to describe", "contract", "show", "urn:message:shop:picture",
           "--load", GOOD);
    expect(2, "", "has no fields to describe", "contract", "show", "urn:message:shop:picture",
           "--example", "--load", GOOD);
    expect(3, "", "cannot load 'none.so'", "contract", "list", "--load", "none.so");
    expect(3, "", "cannot load 'text.so'", "contract", "list", "--load", "text.so");
    assert_int_equal(symlink(module("POSTROOM_OTHER_LIBRARY"), "other.so"), 0);
    expect(2, "", "'other.so' has no 'postroom_contracts'", "contract", "list", "--load",
           "other.so");
    expect(2, "", "contract 'urn:message:shop:bad' version 1: field 'order' lies outside",
           "contract", "list", "--load", BAD);
    expect(2, "", "needs a second word", "contract");
    expect(2, "", NULL, "contract", "show");
    folder_leave(&here);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_lists_contracts),
        cmocka_unit_test(it_shows_the_schema_of_the_newest_or_of_a_version),
        cmocka_unit_test(an_example_can_be_sent),
        cmocka_unit_test(what_cannot_be_shown_is_told),
    };
    return RUN_TESTS(tests);
}
