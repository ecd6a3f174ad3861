/*
 * The registry of contracts: one (type, version) one contract, one descriptor once; tables are
 * checked before anything is decoded with them.
 */
#include <postroom/contract.h>

#include "support/test.h"

#include "core/contract.h"
#include "unit/order_contract.h"

/* ---- the registry ---- */

static void test_a_duplicate_is_refused_naming_both(void **state)
{
    (void)state;
    pr_contract version_1 = order_contract, twin = order_contract;
    version_1.type_version = 0; /* means 1 */
    twin.kind = PR_CONTRACT_COMMAND;
    pr_error err = PR_ERROR_INIT;
    AUTO(pr_contracts) contracts = NULL;
    check_ok(pr_contracts_new(&contracts, &err), &err, "new");
    check_ok(pr_contracts_register(contracts, &order_contract, &err), &err, "first");
    check_ok(pr_contracts_register(contracts, &version_1, &err), &err, "another version");
    check_error(pr_contracts_register(contracts, &twin, &err), &err, PR_E_CONFLICT,
                "'" TYPE "' version 2 (command) is registered already, as '" TYPE
                "' version 2 (domain event)",
                "same type and version");
    pr_error_clear(&err);
    check_error(pr_contracts_register(contracts, &version_1, &err), &err, PR_E_CONFLICT,
                "the descriptor of '" TYPE "' version 1 is registered already, as '" TYPE
                "' version 1",
                "same descriptor");
    /* also when it says something else now: the registry holds a pointer to it */
    version_1.type = "urn:message:shop:other";
    version_1.type_version = 9;
    pr_error_clear(&err);
    check_error(
        pr_contracts_register(contracts, &version_1, &err), &err, PR_E_CONFLICT,
        "the descriptor of 'urn:message:shop:other' version 9 is registered already, as '" TYPE
        "' version 1",
        "same descriptor, changed");
    assert_ptr_equal(pr_contracts_find(contracts, TYPE, 2), &order_contract);
    assert_ptr_equal(pr_contracts_find(contracts, TYPE, 1), &version_1);
    assert_ptr_equal(pr_contracts_find(contracts, TYPE, 0), &version_1);
    assert_null(pr_contracts_find(contracts, TYPE, 3));
    assert_null(pr_contracts_find(contracts, "urn:message:shop:other", 9));
    assert_null(pr_contracts_find(contracts, NULL, 1));
    assert_null(pr_contracts_find(NULL, TYPE, 1));
}

static void test_every_kind_shares_one_registry(void **state)
{
    (void)state;
    enum { COUNT = 500 };
    static pr_contract all[COUNT];
    static char types[COUNT][40];
    pr_error err = PR_ERROR_INIT;
    AUTO(pr_contracts) contracts = NULL;
    check_ok(pr_contracts_new(&contracts, &err), &err, "new");
    for (size_t i = 0; i < COUNT; i++) {
        snprintf(types[i], sizeof(types[i]), "urn:message:shop:t%zu", i / 5);
        all[i] = raw_contract;
        all[i].type = types[i];
        all[i].type_version = (uint32_t)(i % 5 + 1);
        all[i].kind = (pr_contract_kind)(i % 4 + PR_CONTRACT_DOMAIN_EVENT);
        check_ok(pr_contracts_register(contracts, &all[i], &err), &err, types[i]);
    }
    for (size_t i = 0; i < COUNT; i++)
        assert_ptr_equal(pr_contracts_find(contracts, types[i], (uint32_t)(i % 5 + 1)), &all[i]);
}

static void test_bad_contracts_are_refused(void **state)
{
    (void)state;
    static char long_type[220] = "urn:message:shop:";
    memset(long_type + 17, 'x', 184);
    const struct {
        const char *label;
        pr_contract contract;
        pr_status status;
        const char *wanted;
    } cases[] = {
#define CONTRACT(...) {.size = sizeof(pr_contract), .kind = PR_CONTRACT_COMMAND, __VA_ARGS__}
        {"no size", {.type = TYPE}, PR_E_INVALID, "size"},
        {"no type", CONTRACT(.flags = PR_CONTRACT_RAW), PR_E_INVALID, "no type"},
        {"a C name", CONTRACT(.flags = PR_CONTRACT_RAW, .type = "order_placed"), PR_E_CONTENT,
         "is not urn:message:"},
        {"too long for a routing key", CONTRACT(.flags = PR_CONTRACT_RAW, .type = long_type),
         PR_E_LIMIT, "type has 201 bytes, at most 200, so that routing keys stay below 255"},
        {"not UTF-8", CONTRACT(.flags = PR_CONTRACT_RAW, .type = "urn:message:a:\xC3"),
         PR_E_CONTENT, "not valid UTF-8"},
        {"version", CONTRACT(.flags = PR_CONTRACT_RAW, .type = TYPE, .type_version = UINT32_MAX),
         PR_E_LIMIT, "type_version is 4294967295"},
        {"flags", CONTRACT(.flags = PR_CONTRACT_RAW | 64u, .type = TYPE), PR_E_INVALID, "flags"},
        {"kind",
         {.size = sizeof(pr_contract), .type = TYPE, .flags = PR_CONTRACT_RAW},
         PR_E_INVALID,
         "kind is none"},
        {"no table", CONTRACT(.type = TYPE), PR_E_INVALID, "no fields or no object_size"},
        {"no object size", CONTRACT(.type = TYPE, .fields = order_fields), PR_E_INVALID,
         "no object_size"},
        {"raw with a table",
         CONTRACT(.type = TYPE, .flags = PR_CONTRACT_RAW, .fields = order_fields), PR_E_INVALID,
         "is raw bytes"},
        {"raw and unknown fields",
         CONTRACT(.type = TYPE, .flags = PR_CONTRACT_RAW | PR_CONTRACT_REFUSE_UNKNOWN),
         PR_E_INVALID, "raw bytes have no fields"},
        {"content type of fields",
         CONTRACT(.type = TYPE, .fields = order_fields, .object_size = sizeof(order),
                  .content_type = "text/plain"),
         PR_E_INVALID, "fields are written as JSON"},
        {"content type", CONTRACT(.type = TYPE, .flags = PR_CONTRACT_RAW, .content_type = "a\nb"),
         PR_E_CONTENT, "control character"},
#undef CONTRACT
    };
    pr_error err = PR_ERROR_INIT;
    AUTO(pr_contracts) contracts = NULL;
    check_ok(pr_contracts_new(&contracts, &err), &err, "new");
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        pr_error_clear(&err);
        check_error(pr_contracts_register(contracts, &cases[i].contract, &err), &err,
                    cases[i].status, cases[i].wanted, cases[i].label);
        assert_null(pr_contracts_find(contracts, TYPE, 1));
    }
    assert_int_equal(pr_contracts_register(NULL, &order_contract, NULL), PR_E_INVALID);
    assert_int_equal(pr_contracts_register(contracts, NULL, NULL), PR_E_INVALID);
}

/* ---- tables ---- */

typedef struct pair {
    int64_t a;
    int64_t b;
    bool has_a;
    char more[40];
} pair;

/* Only a struct of no other size, at offset 0, could be its own part: it would have no end. */
static const pr_field self_fields[] = {
    {.name = "inner", .kind = PR_FIELD_NESTED, .nested = self_fields, .element_size = sizeof(pair)},
    {.name = NULL},
};

static const pr_field id_fields[] = {
    {.name = "id", .kind = PR_FIELD_UUID, .flags = PR_FIELD_MESSAGE_ID},
    {.name = NULL},
};

static const struct {
    const char *label;
    pr_field fields[3];
    pr_status status;
    const char *wanted;
} bad_tables[] = {
    {"empty name", {{.name = "", .kind = PR_FIELD_INT64}}, PR_E_CONTENT, "empty name"},
    {"name", {{.name = "\xFF", .kind = PR_FIELD_INT64}}, PR_E_CONTENT, "not valid UTF-8"},
    {"no kind", {{.name = "a"}}, PR_E_INVALID, "field 'a' has an unknown kind"},
    {"twice",
     {{.name = "a", .kind = PR_FIELD_INT64},
      {.name = "a", .kind = PR_FIELD_INT64, .offset = offsetof(pair, b)}},
     PR_E_INVALID,
     "field 'a' stands twice"},
    {"outside",
     {{.name = "a", .kind = PR_FIELD_INT64, .offset = sizeof(pair) - 7}},
     PR_E_INVALID,
     "field 'a' lies outside"},
    {"far outside",
     {{.name = "a", .kind = PR_FIELD_INT64, .offset = SIZE_MAX - 3}},
     PR_E_INVALID,
     "field 'a' lies outside"},
    {"one place for two",
     {{.name = "a", .kind = PR_FIELD_INT64}, {.name = "b", .kind = PR_FIELD_INT64, .offset = 4}},
     PR_E_INVALID,
     "fields 'a' and 'b' share memory"},
    {"presence forgotten",
     {{.name = "a", .kind = PR_FIELD_INT64, .flags = PR_FIELD_OPTIONAL}},
     PR_E_INVALID,
     "field 'a' is optional: presence_offset"},
    {"presence in another field",
     {{.name = "a", .kind = PR_FIELD_INT64},
      {.name = "b", .kind = PR_FIELD_INT64, .offset = 8, .flags = PR_FIELD_OPTIONAL}},
     PR_E_INVALID,
     "fields 'a' and 'b' share memory"},
    {"presence in a later field",
     {{.name = "a",
       .kind = PR_FIELD_INT64,
       .flags = PR_FIELD_OPTIONAL,
       .presence_offset = offsetof(pair, b) + 3},
      {.name = "b", .kind = PR_FIELD_INT64, .offset = offsetof(pair, b)}},
     PR_E_INVALID,
     "fields 'a' and 'b' share memory"},
    {"presence outside",
     {{.name = "a",
       .kind = PR_FIELD_INT64,
       .flags = PR_FIELD_OPTIONAL,
       .presence_offset = sizeof(pair)}},
     PR_E_INVALID,
     "presence_offset outside"},
    {"flags", {{.name = "a", .kind = PR_FIELD_INT64, .flags = 8}}, PR_E_INVALID, "unknown flags"},
    {"id of a number",
     {{.name = "a", .kind = PR_FIELD_INT64, .flags = PR_FIELD_MESSAGE_ID}},
     PR_E_INVALID,
     "no uuid"},
    {"time of a number",
     {{.name = "a", .kind = PR_FIELD_INT64, .flags = PR_FIELD_OCCURRED_AT}},
     PR_E_INVALID,
     "no instant"},
    {"id in a nested table",
     {{.name = "a", .kind = PR_FIELD_NESTED, .element_size = 37, .nested = id_fields}},
     PR_E_INVALID,
     "field 'id' repeats the envelope"},
    {"element of no list",
     {{.name = "a", .kind = PR_FIELD_INT64, .element_kind = PR_FIELD_TEXT}},
     PR_E_INVALID,
     "is no list"},
    {"list of nothing", {{.name = "a", .kind = PR_FIELD_LIST}}, PR_E_INVALID, "unknown kind"},
    {"list of lists",
     {{.name = "a", .kind = PR_FIELD_LIST, .element_kind = PR_FIELD_LIST}},
     PR_E_INVALID,
     "or of lists"},
    {"element size",
     {{.name = "a", .kind = PR_FIELD_LIST, .element_kind = PR_FIELD_INT64, .element_size = 4}},
     PR_E_INVALID,
     "element_size that does not fit"},
    {"nested without a table",
     {{.name = "a", .kind = PR_FIELD_NESTED, .element_size = 8}},
     PR_E_INVALID,
     "needs the table"},
    {"nested without a size",
     {{.name = "a", .kind = PR_FIELD_NESTED, .nested = line_fields}},
     PR_E_INVALID,
     "needs the table"},
    {"table of nothing",
     {{.name = "a", .kind = PR_FIELD_INT64, .nested = line_fields}},
     PR_E_INVALID,
     "nests nothing"},
    {"nested table is bad",
     {{.name = "a", .kind = PR_FIELD_NESTED, .nested = line_fields, .element_size = 8}},
     PR_E_INVALID,
     "field 'a': field 'amount' lies outside"},
    {"a struct within itself",
     {{.name = "a", .kind = PR_FIELD_NESTED, .nested = self_fields, .element_size = sizeof(pair)}},
     PR_E_INVALID,
     "field 'a': field 'inner' is a struct within itself"},
};

static void test_bad_tables_are_refused_naming_the_field(void **state)
{
    (void)state;
    pr_error err = PR_ERROR_INIT;
    AUTO(pr_contracts) contracts = NULL;
    check_ok(pr_contracts_new(&contracts, &err), &err, "new");
    for (size_t i = 0; i < COUNT_OF(bad_tables); i++) {
        pr_contract contract = order_contract;
        contract.fields = bad_tables[i].fields;
        contract.object_size = sizeof(pair);
        pr_error_clear(&err);
        check_error(pr_contracts_register(contracts, &contract, &err), &err, bad_tables[i].status,
                    bad_tables[i].wanted, bad_tables[i].label);
        CHECK_CASE(strstr(err.message, "contract '" TYPE "' version 2: "), bad_tables[i].label);
    }
    static pr_field endless[400];
    static char names[400][8];
    for (size_t i = 0; i < COUNT_OF(endless); i++) {
        snprintf(names[i], sizeof(names[i]), "f%zu", i);
        endless[i] = (pr_field){.name = names[i], .kind = PR_FIELD_BOOL, .offset = i};
    }
    pr_contract contract = order_contract;
    contract.fields = endless;
    contract.object_size = sizeof(endless);
    pr_error_clear(&err);
    check_error(pr_contracts_register(contracts, &contract, &err), &err, PR_E_LIMIT,
                "more than 256 fields", "no end");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_duplicate_is_refused_naming_both),
        cmocka_unit_test(test_every_kind_shares_one_registry),
        cmocka_unit_test(test_bad_contracts_are_refused),
        cmocka_unit_test(test_bad_tables_are_refused_naming_the_field),
    };
    return RUN_TESTS(tests);
}
