/*
 * Types of sagas: what is refused when a runtime is made, and what it takes to make one.
 */
#include <stddef.h>

#include <postroom/saga.h>

#include "support/test.h"

#define OPENED  "urn:message:shop:opened"
#define CLOSED  "urn:message:shop:closed"
#define TIMEOUT "urn:message:shop:timeout"

typedef struct inner {
    const char *id;
    double weight;
} inner;

typedef struct event {
    inner order;
    int64_t number;
} event;

typedef struct sum {
    int64_t n;
} sum;

static const pr_field inner_fields[] = {
    {.name = "id", .kind = PR_FIELD_TEXT, .offset = offsetof(inner, id)},
    {.name = "weight", .kind = PR_FIELD_DOUBLE, .offset = offsetof(inner, weight)},
    {.name = NULL},
};
static const pr_field event_fields[] = {
    {.name = "order",
     .kind = PR_FIELD_NESTED,
     .offset = offsetof(event, order),
     .element_size = sizeof(inner),
     .nested = inner_fields},
    {.name = "number", .kind = PR_FIELD_INT64, .offset = offsetof(event, number)},
    {.name = NULL},
};
static const pr_field sum_fields[] = {
    {.name = "n", .kind = PR_FIELD_INT64, .offset = offsetof(sum, n)},
    {.name = NULL},
};

#define CONTRACT(urn, version, table, object)                                                      \
    {                                                                                              \
        .size = (uint32_t)sizeof(pr_contract), .type_version = (version), .type = (urn),           \
        .kind = PR_CONTRACT_DOMAIN_EVENT, .fields = (table), .object_size = sizeof(object)         \
    }
static const pr_contract event_1 = CONTRACT(OPENED, 1, event_fields, event);
static const pr_contract event_2 = CONTRACT(OPENED, 2, sum_fields, sum);
static const pr_contract state_1 = CONTRACT("urn:message:shop:state", 1, sum_fields, sum);
static const pr_contract state_2 = CONTRACT("urn:message:shop:state", 2, sum_fields, sum);
static const pr_contract state_3 = CONTRACT("urn:message:shop:state", 3, sum_fields, sum);
static const pr_contract stranger = CONTRACT("urn:message:shop:stranger", 2, sum_fields, sum);

static pr_handled handle(void *user, pr_saga_step *step, void *state)
{
    (void)user;
    (void)step;
    (void)state;
    return PR_HANDLED_OK;
}

static bool correlate(void *user, const pr_scope *scope, char *ret_key, size_t size)
{
    (void)user;
    (void)scope;
    (void)ret_key;
    (void)size;
    return false;
}

static pr_status up(void *user, const void *from, void *to, pr_decoded *decoded, pr_error *err)
{
    (void)user;
    (void)decoded;
    (void)err;
    *(sum *)to = *(const sum *)from;
    return PR_OK;
}

static const pr_saga_state one_state[] = {{&state_1, NULL}};
static const pr_saga_message one_message[] = {
    {.type = OPENED, .handler = handle, .flags = PR_SAGA_STARTS}};
static const pr_saga_timeout one_timeout[] = {{"pay", handle}};

/* A type that is good; each case changes one thing. */
static pr_saga_type good(void)
{
    pr_saga_type type = PR_SAGA_TYPE(.name = "order", .states = one_state, .state_count = 1,
                                     .messages = one_message, .message_count = 1);
    return type;
}

static void refused(const pr_saga_type *type, pr_contracts *contracts, pr_status wanted,
                    const char *text, const char *label)
{
    pr_saga *saga = NULL;
    pr_error err = PR_ERROR_INIT;
    check_error(pr_saga_new(type, contracts, &saga, &err), &err, wanted, text, label);
    assert_null(saga);
}

static void test_names_and_limits(void **state)
{
    (void)state;
    char long_name[300];
    memset(long_name, 'x', sizeof long_name - 1);
    long_name[sizeof long_name - 1] = '\0';
    pr_saga_type type = good();
    type.name = "";
    refused(&type, NULL, PR_E_INVALID, "the name of a saga type is missing", "no name");
    type.name = long_name;
    refused(&type, NULL, PR_E_LIMIT, "has 299 bytes, at most 255", "long name");
    type.name = "\xFF";
    refused(&type, NULL, PR_E_CONTENT, "not valid UTF-8", "bad name");
    type = good();
    type.size = 0;
    refused(&type, NULL, PR_E_INVALID, "size of pr_saga_type", "size");
    type = good();
    type.reuse = 7;
    refused(&type, NULL, PR_E_INVALID, "a policy that is not known", "reuse");
    type = good();
    type.state_size_max = (uint64_t)PR_BODY_SIZE_MAX + 1;
    refused(&type, NULL, PR_E_INVALID, "state_size_max", "state size");
    type = good();
    type.timeout_grace_ms = -1;
    refused(&type, NULL, PR_E_INVALID, "timeout_grace_ms", "grace");
    refused(NULL, NULL, PR_E_INVALID, "pr_saga_type is NULL", "NULL");
}

static void test_states(void **state)
{
    (void)state;
    static const pr_saga_state lists[][2] = {
        {{NULL, NULL}, {NULL, NULL}},         {{&state_1, up}, {NULL, NULL}},
        {{&state_1, NULL}, {&state_2, NULL}}, {{&state_2, NULL}, {&state_1, up}},
        {{&state_1, NULL}, {&state_3, up}},   {{&state_1, NULL}, {&stranger, up}},
    };
    static const struct {
        const char *label;
        size_t count;
        const char *text;
    } cases[] = {
        {"no contract", 1, "has no contract"},
        {"first with upcast", 1, "cannot have an upcast"},
        {"without upcast", 2, "needs an upcast"},
        {"descending", 2, "one more than"},
        {"a gap", 2, "one more than"},
        {"another type", 2, "of one type"},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        pr_saga_type type = good();
        type.states = lists[i];
        type.state_count = cases[i].count;
        refused(&type, NULL, PR_E_INVALID, cases[i].text, cases[i].label);
    }
    pr_saga_type type = good();
    type.state_count = 0;
    refused(&type, NULL, PR_E_INVALID, "needs 1 to", "none");
}

static void test_messages(void **state)
{
    (void)state;
    static const struct {
        const char *label;
        pr_saga_message message;
        const char *text;
    } cases[] = {
        {"no type", {.handler = handle, .flags = PR_SAGA_STARTS}, "type of a saga's message"},
        {"no handler", {.type = OPENED, .flags = PR_SAGA_STARTS}, "has no handler"},
        {"flags", {.type = OPENED, .handler = handle, .flags = 8}, "flags or a policy"},
        {"policy", {.type = OPENED, .handler = handle, .missing = 9}, "flags or a policy"},
        {"nothing starts it", {.type = OPENED, .handler = handle}, "no message starts it"},
        {"nobody to call",
         {.type = OPENED, .handler = handle, .missing = PR_SAGA_MISSING_CALL},
         "has no on_missing"},
        {"two ways to a key",
         {.type = OPENED, .handler = handle, .correlation_field = "n", .correlate = correlate},
         "give one"},
        {"a field without contracts",
         {.type = OPENED, .handler = handle, .correlation_field = "n"},
         "needs a contract of"},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        pr_saga_type type = good();
        type.messages = &cases[i].message;
        refused(&type, NULL, PR_E_INVALID, cases[i].text, cases[i].label);
    }
    const pr_saga_message twice[] = {one_message[0], one_message[0]};
    pr_saga_type type = good();
    type.messages = twice;
    type.message_count = 2;
    refused(&type, NULL, PR_E_INVALID, "stands twice", "twice");
    type = good();
    type.missing = PR_SAGA_MISSING_CALL;
    refused(&type, NULL, PR_E_INVALID, "has no on_missing", "of the type");
}

static void test_correlation_fields(void **state)
{
    (void)state;
    static const struct {
        const char *field;
        bool good;
    } cases[] = {
        {"order.id", true}, {"number", true},      {"order", false}, {"order.weight", false},
        {"none", false},    {"order.none", false}, {"", false},      {"number.x", false},
        {"order.", false},  {".", false},
    };
    pr_contracts *contracts = NULL;
    pr_error err = PR_ERROR_INIT;
    check_ok(pr_contracts_new(&contracts, &err), &err, "contracts");
    check_ok(pr_contracts_register(contracts, &event_1, &err), &err, "event");
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        pr_saga *saga = NULL;
        pr_saga_type type = good();
        const pr_saga_message message = {.type = OPENED,
                                         .handler = handle,
                                         .flags = PR_SAGA_STARTS,
                                         .correlation_field = cases[i].field};
        type.messages = &message;
        if (cases[i].good)
            check_ok(pr_saga_new(&type, contracts, &saga, &err), &err, cases[i].field);
        else
            refused(&type, contracts, PR_E_INVALID, "has no text, UUID or integer", cases[i].field);
        pr_saga_free(saga);
    }
    /* every version that there is must have it */
    check_ok(pr_contracts_register(contracts, &event_2, &err), &err, "second version");
    const pr_saga_message message = {
        .type = OPENED, .handler = handle, .flags = PR_SAGA_STARTS, .correlation_field = "number"};
    pr_saga_type type = good();
    type.messages = &message;
    refused(&type, contracts, PR_E_INVALID, "version 2 of", "a version without it");
    pr_contracts_free(contracts);
}

static void test_timeouts(void **state)
{
    (void)state;
    static const pr_saga_timeout bad[][2] = {
        {{"", handle}, {NULL, NULL}},
        {{"pay", NULL}, {NULL, NULL}},
        {{"pay", handle}, {"pay", handle}},
    };
    static const char *const texts[] = {"the name of a timeout", "has no handler", "stands twice"};
    for (size_t i = 0; i < COUNT_OF(bad); i++) {
        pr_saga_type type = good();
        type.timeouts = bad[i];
        type.timeout_count = i == 2 ? 2 : 1;
        type.timeout_type = TIMEOUT;
        refused(&type, NULL, PR_E_INVALID, texts[i], texts[i]);
    }
    pr_saga_type type = good();
    type.timeouts = one_timeout;
    type.timeout_count = 1;
    refused(&type, NULL, PR_E_INVALID, "timeout_type", "no type");
    type.timeout_type = "no urn";
    refused(&type, NULL, PR_E_CONTENT, "", "no urn");
    pr_contracts *contracts = NULL;
    pr_saga *first = NULL;
    pr_error err = PR_ERROR_INIT;
    check_ok(pr_contracts_new(&contracts, &err), &err, "contracts");
    type.timeout_type = TIMEOUT;
    check_ok(pr_saga_new(&type, contracts, &first, &err), &err, "first");
    assert_non_null(pr_contracts_find(contracts, TIMEOUT, 1));
    refused(&type, contracts, PR_E_CONFLICT, TIMEOUT, "two sagas with one type of timeouts");
    pr_contracts_free(contracts);
    pr_saga_free(first);
}

static void test_misuse(void **state)
{
    (void)state;
    pr_saga *saga = NULL;
    pr_saga_type type = good();
    pr_saga_snapshot snapshot = {.size = 0};
    pr_error err = PR_ERROR_INIT;
    assert_null(pr_saga_free(NULL));
    assert_null(pr_saga_lease_free(NULL));
    assert_null(pr_saga_step_key(NULL));
    assert_null(pr_saga_step_alloc(NULL, 1));
    assert_false(pr_saga_timeout_cancel(NULL, "pay"));
    check_error(pr_saga_timeout_set(NULL, "pay", 1, &err), &err, PR_E_INVALID, "step is NULL",
                "step");
    err = (pr_error)PR_ERROR_INIT;
    check_error(pr_saga_new(&type, NULL, NULL, &err), &err, PR_E_INVALID, "ret_saga", "result");
    err = (pr_error)PR_ERROR_INIT;
    check_ok(pr_saga_new(&type, NULL, &saga, &err), &err, "good");
    check_error(pr_saga_snapshot_get(saga, &snapshot, &err), &err, PR_E_INVALID, "size", "size");
    snapshot.size = (uint32_t)sizeof snapshot;
    err = (pr_error)PR_ERROR_INIT;
    check_ok(pr_saga_snapshot_get(saga, &snapshot, &err), &err, "snapshot");
    assert_int_equal(snapshot.started, 0);
    pr_saga_free(saga);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_names_and_limits), cmocka_unit_test(test_states),
        cmocka_unit_test(test_messages),         cmocka_unit_test(test_correlation_fields),
        cmocka_unit_test(test_timeouts),         cmocka_unit_test(test_misuse),
    };
    return RUN_TESTS(tests);
}
