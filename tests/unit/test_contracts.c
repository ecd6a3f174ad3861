/*
 * The registry at work: old versions become the newest by steps, and codecs of the application's
 * own stand beside the field table, one a content type.
 */
#include <postroom/contract.h>

#include "support/test.h"

#include "base/error.h"
#include "base/fault.h"
#include "core/contract.h"

#define TYPE   "urn:message:shop:price-set"
#define BINARY "application/x-price"

typedef struct price_1 {
    const char *article;
    int64_t cents;
} price_1;

typedef struct price_2 {
    const char *article;
    double amount;
    const char *currency;
} price_2;

typedef struct price_3 {
    const char *label;
    double amount;
} price_3;

static const pr_field fields_1[] = {
    {.name = "article", .kind = PR_FIELD_TEXT, .offset = offsetof(price_1, article)},
    {.name = "cents", .kind = PR_FIELD_INT64, .offset = offsetof(price_1, cents)},
    {.name = NULL},
};
static const pr_field fields_2[] = {
    {.name = "article", .kind = PR_FIELD_TEXT, .offset = offsetof(price_2, article)},
    {.name = "amount", .kind = PR_FIELD_DOUBLE, .offset = offsetof(price_2, amount)},
    {.name = "currency", .kind = PR_FIELD_TEXT, .offset = offsetof(price_2, currency)},
    {.name = NULL},
};
static const pr_field fields_3[] = {
    {.name = "label", .kind = PR_FIELD_TEXT, .offset = offsetof(price_3, label)},
    {.name = "amount", .kind = PR_FIELD_DOUBLE, .offset = offsetof(price_3, amount)},
    {.name = NULL},
};

#define CONTRACT(n)                                                                                \
    {                                                                                              \
        .size = sizeof(pr_contract), .type_version = n, .type = TYPE,                              \
        .kind = PR_CONTRACT_INTEGRATION_EVENT, .fields = fields_##n,                               \
        .object_size = sizeof(price_##n)                                                           \
    }
static const pr_contract contract_1 = CONTRACT(1);
static const pr_contract contract_2 = CONTRACT(2);
static const pr_contract contract_3 = CONTRACT(3);

typedef enum step_fault { NO_FAULT, HOLE, REFUSES, SAYS_WHY, NO_MEMORY } step_fault;

static pr_status step_1_2(void *user, const void *from, void *to, pr_decoded *decoded,
                          pr_error *err)
{
    const price_1 *old = from;
    price_2 *new = to;
    const step_fault *fault = user;
    (void)decoded;
    assert_true(new->amount == 0 && !new->article && !new->currency); /* zeroed */
    if (fault && *fault == REFUSES)
        return PR_E_CONTENT;
    if (fault && *fault == NO_MEMORY)
        return PR_E_NOMEM;
    if (fault && *fault == SAYS_WHY)
        return pr_error_set(err, PR_E_CONTENT, PR_RETRY_NEVER, "shop", "cents are out of use");
    new->article = old->article;
    new->amount = (double)old->cents / 100;
    new->currency = fault &&*fault == HOLE ? NULL : "EUR";
    return PR_OK;
}

static pr_status step_2_3(void *user, const void *from, void *to, pr_decoded *decoded,
                          pr_error *err)
{
    const price_2 *old = from;
    price_3 *new = to;
    size_t size = strlen(old->article) + strlen(old->currency) + 2;
    char *label = pr_decoded_alloc(decoded, size);
    (void)user;
    if (!label)
        return pr_error_set(err, PR_E_NOMEM, PR_RETRY_SAME, "shop", "no memory for the label");
    snprintf(label, size, "%s/%s", old->article, old->currency);
    new->label = label;
    new->amount = old->amount;
    return PR_OK;
}

static pr_contracts *make_contracts(void)
{
    pr_error err = PR_ERROR_INIT;
    pr_contracts *contracts = NULL;
    check_ok(pr_contracts_new(&contracts, &err), &err, "new");
    check_ok(pr_contracts_register(contracts, &contract_1, &err), &err, "1");
    check_ok(pr_contracts_register(contracts, &contract_2, &err), &err, "2");
    check_ok(pr_contracts_register(contracts, &contract_3, &err), &err, "3");
    return contracts;
}

static pr_message message_of(uint32_t version, const char *body)
{
    pr_message message = PR_MESSAGE(.type = TYPE, .type_version = version, .body = body,
                                    .body_size_bytes = (uint64_t)strlen(body));
    return message;
}

/* ---- steps ---- */

static void test_every_version_becomes_the_newest(void **state)
{
    (void)state;
    static const struct {
        uint32_t version;
        const char *body, *label;
        double amount;
    } cases[] = {
        {0, "{\"article\":\"cup\",\"cents\":250}", "cup/EUR", 2.5},
        {1, "{\"article\":\"cup\",\"cents\":250}", "cup/EUR", 2.5},
        {2, "{\"article\":\"cup\",\"amount\":3,\"currency\":\"USD\"}", "cup/USD", 3.0},
        {3, "{\"label\":\"mug\",\"amount\":4}", "mug", 4.0},
    };
    pr_error err = PR_ERROR_INIT;
    AUTO(pr_contracts) contracts = make_contracts();
    check_ok(pr_contracts_upcast(contracts, TYPE, 0, step_1_2, NULL, &err), &err, "1 to 2");
    check_ok(pr_contracts_upcast(contracts, TYPE, 2, step_2_3, NULL, &err), &err, "2 to 3");
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        AUTO(pr_decoded) decoded = NULL;
        pr_message message = message_of(cases[i].version, cases[i].body);
        check_ok(pr_contracts_decode(contracts, &message, &decoded, &err), &err, cases[i].body);
        const price_3 *price = pr_decoded_object(decoded);
        assert_ptr_equal(pr_decoded_contract(decoded), &contract_3);
        assert_string_equal(price->label, cases[i].label);
        assert_true(price->amount == cases[i].amount);
    }
}

static void test_without_a_step_a_version_stays(void **state)
{
    (void)state;
    pr_error err = PR_ERROR_INIT;
    AUTO(pr_contracts) contracts = make_contracts();
    check_ok(pr_contracts_upcast(contracts, TYPE, 2, step_2_3, NULL, &err), &err, "2 to 3");
    AUTO(pr_decoded) decoded = NULL;
    pr_message message = message_of(1, "{\"article\":\"cup\",\"cents\":250}");
    check_ok(pr_contracts_decode(contracts, &message, &decoded, &err), &err, "1");
    assert_ptr_equal(pr_decoded_contract(decoded), &contract_1);
    assert_int_equal(((const price_1 *)pr_decoded_object(decoded))->cents, 250);
    message.type_version = 4;
    pr_decoded *none = NULL;
    check_error(pr_contracts_decode(contracts, &message, &none, &err), &err, PR_E_NOT_FOUND,
                "no contract for type '" TYPE "' version 4", "4");
}

static void test_bad_steps_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *label, *type;
        uint32_t version;
        pr_upcast step;
        pr_status status;
        const char *wanted;
    } cases[] = {
        {"no step", TYPE, 1, NULL, PR_E_INVALID, "step is NULL"},
        {"no type", NULL, 1, step_1_2, PR_E_INVALID, "type or step is NULL"},
        {"another type", "urn:message:shop:other", 1, step_1_2, PR_E_INVALID,
         "'urn:message:shop:other' version 1 is not registered"},
        {"the newest", TYPE, 3, step_1_2, PR_E_INVALID,
         "'" TYPE
         "' version 4 is not registered: register both versions before the step from 3 to 4"},
        {"twice", TYPE, 1, step_1_2, PR_E_CONFLICT, "has a step from version 1 to 2 already"},
    };
    pr_error err = PR_ERROR_INIT;
    AUTO(pr_contracts) contracts = make_contracts();
    check_ok(pr_contracts_upcast(contracts, TYPE, 1, step_1_2, NULL, &err), &err, "first");
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        pr_error_clear(&err);
        check_error(pr_contracts_upcast(contracts, cases[i].type, cases[i].version, cases[i].step,
                                        NULL, &err),
                    &err, cases[i].status, cases[i].wanted, cases[i].label);
    }
}

static void test_a_step_that_fails_says_where(void **state)
{
    (void)state;
    static const struct {
        step_fault fault;
        pr_status status;
        const char *wanted;
    } cases[] = {
        {HOLE, PR_E_CONTENT, "'" TYPE "', from version 1 to 2: field 'currency' is NULL"},
        {REFUSES, PR_E_CONTENT, "from version 1 to 2: the step up refused the object"},
        {SAYS_WHY, PR_E_CONTENT, "from version 1 to 2: cents are out of use"},
        {NO_MEMORY, PR_E_NOMEM, "from version 1 to 2"},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        pr_error err = PR_ERROR_INIT;
        AUTO(pr_contracts) contracts = make_contracts();
        step_fault fault = cases[i].fault;
        check_ok(pr_contracts_upcast(contracts, TYPE, 1, step_1_2, &fault, &err), &err, "step");
        pr_decoded *none = NULL;
        pr_message message = message_of(1, "{\"article\":\"s3cret\",\"cents\":250}");
        check_error(pr_contracts_decode(contracts, &message, &none, &err), &err, cases[i].status,
                    cases[i].wanted, cases[i].wanted);
        assert_null(none);
        assert_null(strstr(err.message, "s3cret"));
    }
}

/* ---- codecs ---- */

/* "article:cents" */
static pr_status encode_binary(void *user, const pr_contract *contract, const void *object,
                               void **ret_body, size_t *ret_size, pr_error *err)
{
    const price_1 *price = object;
    int *calls = user;
    char text[64];
    (void)contract;
    ++*calls;
    if (price->cents < 0)
        return pr_error_set(err, PR_E_CONTENT, PR_RETRY_NEVER, "price", "cents are negative");
    if (price->cents == 99)
        return PR_E_CONTENT; /* without a word */
    if (price->cents == 98) {
        *ret_size = 5; /* and no body */
        return PR_OK;
    }
    if (price->cents == 0)
        return PR_OK; /* an empty body */
    int size = snprintf(text, sizeof(text), "%s:%d", price->article, (int)price->cents);
    char *body = pr_alloc((size_t)size);
    if (!body)
        return PR_E_NOMEM;
    memcpy(body, text, (size_t)size);
    *ret_body = body;
    *ret_size = (size_t)size;
    return PR_OK;
}

static pr_status decode_binary(void *user, const pr_contract *contract, const pr_message *message,
                               pr_decoded *decoded, void *object, pr_error *err)
{
    price_1 *price = object;
    int *calls = user;
    const char *body = message->body;
    size_t size = (size_t)message->body_size_bytes;
    const char *colon = size > 0 ? memchr(body, ':', size) : NULL;
    (void)contract;
    (void)err;
    ++*calls;
    assert_true(price->cents == 0 && !price->article); /* zeroed */
    if (!colon)
        return PR_E_CONTENT; /* without a word */
    char *article = pr_decoded_alloc(decoded, size);
    if (!article)
        return PR_E_NOMEM;
    memcpy(article, body, (size_t)(colon - body));
    price->article = article;
    for (const char *digit = colon + 1; digit < body + size; digit++)
        price->cents = price->cents * 10 + (*digit - '0');
    return PR_OK;
}

static int binary_calls;

static const pr_codec binary_codec = {.size = sizeof(pr_codec),
                                      .content_type = BINARY,
                                      .user = &binary_calls,
                                      .encode = encode_binary,
                                      .decode = decode_binary};
static const pr_codec *const binary_codecs[] = {&binary_codec, NULL};

static pr_contract with_codec(const pr_field *fields, const char *content_type)
{
    pr_contract contract = contract_1;
    contract.fields = fields;
    contract.content_type = content_type;
    contract.codecs = binary_codecs;
    return contract;
}

static void test_the_content_type_chooses_the_codec(void **state)
{
    (void)state;
    static const char json[] = "{\"article\":\"cup\",\"cents\":250}";
    const pr_contract both = with_codec(fields_1, NULL);
    const pr_contract binary_first = with_codec(fields_1, BINARY);
    const pr_contract binary_only = with_codec(NULL, NULL);
    const struct {
        const char *label;
        const pr_contract *contract;
        const char *writes, *body;
        const char *other, *other_body; /* NULL = it has no other */
    } cases[] = {
        {"table, and a codec", &both, "application/json", json, BINARY "; v=1", "cup:250"},
        {"codec, and a table", &binary_first, BINARY, "cup:250", "application/json", json},
        {"codec", &binary_only, BINARY, "cup:250", NULL, NULL},
    };
    const price_1 price = {"cup", 250};
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        pr_error err = PR_ERROR_INIT;
        AUTO(pr_contracts) contracts = NULL;
        check_ok(pr_contracts_new(&contracts, &err), &err, "new");
        check_ok(pr_contracts_register(contracts, cases[i].contract, &err), &err, cases[i].label);
        assert_string_equal(pr_contract_content_type(cases[i].contract), cases[i].writes);
        for (int round = 0; round < (cases[i].other ? 2 : 1); round++) {
            const char *content_type = round == 0 ? cases[i].writes : cases[i].other;
            const char *wanted = round == 0 ? cases[i].body : cases[i].other_body;
            AUTO(void) body = NULL;
            AUTO(pr_decoded) decoded = NULL;
            size_t size = 0;
            pr_status status =
                round == 0 ? pr_contract_encode(cases[i].contract, &price, &body, &size, &err)
                           : pr_contract_encode_as(cases[i].contract, content_type, &price, &body,
                                                   &size, &err);
            check_ok(status, &err, cases[i].label);
            assert_int_equal(size, strlen(wanted));
            assert_memory_equal(body, wanted, size);
            pr_message message = message_of(1, "");
            message.body = body;
            message.body_size_bytes = size;
            message.content_type = content_type;
            check_ok(pr_contracts_decode(contracts, &message, &decoded, &err), &err,
                     cases[i].label);
            const price_1 *back = pr_decoded_object(decoded);
            assert_string_equal(back->article, "cup");
            assert_int_equal(back->cents, 250);
        }
    }
    assert_int_equal(binary_calls, 6);
}

static void test_what_no_codec_is_for_is_refused(void **state)
{
    (void)state;
    const pr_contract binary_only = with_codec(NULL, NULL);
    const price_1 price = {"s3cret", 250};
    pr_error err = PR_ERROR_INIT;
    AUTO(void) body = NULL;
    size_t size = 0;
    check_error(pr_contract_encode_as(&binary_only, "application/json", &price, &body, &size, &err),
                &err, PR_E_UNSUPPORTED, "version 1: it has no codec for 'application/json'",
                "encode");
    pr_message message = message_of(1, "{}");
    pr_decoded *none = NULL;
    pr_error_clear(&err);
    check_error(pr_contract_decode(&binary_only, &message, &none, &err), &err, PR_E_CONTENT,
                "the message has content type 'application/json', the contract '" BINARY "'",
                "decode");
    message = message_of(1, "s3cret");
    message.content_type = BINARY;
    pr_error_clear(&err);
    check_error(pr_contract_decode(&binary_only, &message, &none, &err), &err, PR_E_CONTENT,
                "version 1: the codec of '" BINARY "' refused the body", "a codec without a word");
    assert_null(strstr(err.message, "s3cret"));
}

static void test_codecs_that_fail_or_misbehave(void **state)
{
    (void)state;
    static const struct {
        int64_t cents;
        pr_status status;
        const char *wanted;
    } cases[] = {
        {-1, PR_E_CONTENT, "version 1: cents are negative"},
        {99, PR_E_CONTENT, "version 1: the codec of '" BINARY "' refused the object"},
        {98, PR_E_INVALID, "the codec of '" BINARY "' gave NULL with a size"},
    };
    const pr_contract binary_only = with_codec(NULL, NULL);
    AUTO(void) body = NULL;
    size_t size = 7;
    pr_error err = PR_ERROR_INIT;
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        const price_1 price = {"cup", cases[i].cents};
        pr_error_clear(&err);
        check_error(pr_contract_encode(&binary_only, &price, &body, &size, &err), &err,
                    cases[i].status, cases[i].wanted, cases[i].wanted);
        assert_null(body);
        assert_int_equal(size, 7);
    }
    const price_1 empty = {"cup", 0};
    pr_error_clear(&err);
    check_ok(pr_contract_encode(&binary_only, &empty, &body, &size, &err), &err, "empty");
    assert_non_null(body);
    assert_int_equal(size, 0);
}

static void test_bad_codecs_are_refused(void **state)
{
    (void)state;
    pr_codec no_size = binary_codec, no_decode = binary_codec, json = binary_codec;
    pr_codec bad_type = binary_codec;
    no_size.size = 0;
    no_decode.decode = NULL;
    json.content_type = "application/x+json";
    bad_type.content_type = "a\nb";
    const pr_codec *lists[][3] = {
        {&no_size}, {&no_decode}, {&json}, {&binary_codec, &binary_codec}, {&bad_type}, {NULL}};
    const struct {
        const pr_field *fields;
        const char *content_type;
        pr_status status;
        const char *wanted;
    } cases[] = {
        {fields_1, NULL, PR_E_INVALID, "codec 0 has no size"},
        {fields_1, NULL, PR_E_INVALID, "no encode or no decode"},
        {fields_1, NULL, PR_E_INVALID, "codec 0 is for 'application/x+json', which the fields are"},
        {NULL, NULL, PR_E_INVALID, "two codecs are for '" BINARY "'"},
        {NULL, NULL, PR_E_CONTENT, "control character"},
        {NULL, NULL, PR_E_INVALID, "has no fields"},
    };
    AUTO(pr_contracts) contracts = NULL;
    pr_error err = PR_ERROR_INIT;
    check_ok(pr_contracts_new(&contracts, &err), &err, "new");
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        pr_contract contract = contract_1;
        contract.fields = cases[i].fields;
        contract.content_type = cases[i].content_type;
        contract.codecs = lists[i];
        pr_error_clear(&err);
        check_error(pr_contracts_register(contracts, &contract, &err), &err, cases[i].status,
                    cases[i].wanted, cases[i].wanted);
    }
    pr_contract other = with_codec(fields_1, "text/plain");
    pr_error_clear(&err);
    check_error(pr_contracts_register(contracts, &other, &err), &err, PR_E_INVALID,
                "content_type is 'text/plain'", "no codec for what it writes");
}

#ifdef PR_FAULT_POINTS
typedef struct kept {
    const char *note;
    const char *others;
} kept;

static const pr_field kept_fields[] = {
    {.name = "note",
     .kind = PR_FIELD_TEXT,
     .offset = offsetof(kept, note),
     .default_value = &(const char *const){"none"}},
    {.name = "*", .kind = PR_FIELD_OTHERS, .offset = offsetof(kept, others)},
    {.name = NULL},
};
static const pr_contract kept_contract = {.size = sizeof(pr_contract),
                                          .type = "urn:message:shop:kept",
                                          .kind = PR_CONTRACT_COMMAND,
                                          .fields = kept_fields,
                                          .object_size = sizeof(kept)};

/* Each of the calls once; the first failure ends them. */
static pr_status use_everything(const pr_contract *both, pr_error *err)
{
    static const char odd[] = "{\"more\":{\"a\":[1.5,\"x\"]}}";
    AUTO(pr_contracts) contracts = NULL;
    AUTO(pr_decoded) decoded = NULL;
    AUTO(pr_decoded) with_more = NULL;
    AUTO(void) body = NULL;
    AUTO(void) again = NULL;
    AUTO(char) schema = NULL;
    AUTO(char) example = NULL;
    size_t size = 0;
    const price_1 price = {"cup", 250};
    TRY(pr_contracts_new(&contracts, err));
    TRY(pr_contracts_register(contracts, both, err));
    TRY(pr_contracts_register(contracts, &contract_2, err));
    TRY(pr_contracts_register(contracts, &contract_3, err));
    TRY(pr_contracts_register(contracts, &kept_contract, err));
    TRY(pr_contracts_upcast(contracts, TYPE, 1, step_1_2, NULL, err));
    TRY(pr_contracts_upcast(contracts, TYPE, 2, step_2_3, NULL, err));
    TRY(pr_contract_encode_as(both, BINARY, &price, &body, &size, err));
    pr_message message = message_of(1, "");
    message.content_type = BINARY;
    message.body = body;
    message.body_size_bytes = size;
    TRY(pr_contracts_decode(contracts, &message, &decoded, err));
    message = message_of(1, odd);
    message.type = kept_contract.type;
    TRY(pr_contracts_decode(contracts, &message, &with_more, err));
    TRY(pr_contract_encode(&kept_contract, pr_decoded_object(with_more), &again, &size, err));
    assert_int_equal(size, strlen("{\"note\":\"none\",") + strlen(odd) - 1);
    TRY(pr_contract_schema(both, &schema, err));
    return pr_contract_example(both, &example, err);
}

static void test_out_of_memory_at_every_allocation(void **state)
{
    (void)state;
    const pr_contract both = with_codec(fields_1, NULL);
    int64_t failed = 0;
    for (int64_t n = 1;; n++) {
        pr_error err = PR_ERROR_INIT;
        pr__fault_alloc_fail_at(n);
        pr_status status = use_everything(&both, &err);
        bool reached = pr__fault_alloc_count() >= n;
        pr__fault_alloc_fail_at(0);
        if (!reached) {
            check_ok(status, &err, "enough memory");
            break;
        }
        check_error(status, &err, PR_E_NOMEM, "", "n-th allocation");
        failed++;
    }
    assert_true(failed >= 20);
}
#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_version_becomes_the_newest),
        cmocka_unit_test(test_without_a_step_a_version_stays),
        cmocka_unit_test(test_bad_steps_are_refused),
        cmocka_unit_test(test_a_step_that_fails_says_where),
        cmocka_unit_test(test_the_content_type_chooses_the_codec),
        cmocka_unit_test(test_what_no_codec_is_for_is_refused),
        cmocka_unit_test(test_codecs_that_fail_or_misbehave),
        cmocka_unit_test(test_bad_codecs_are_refused),
#ifdef PR_FAULT_POINTS
        cmocka_unit_test(test_out_of_memory_at_every_allocation),
#endif
    };
    return RUN_TESTS(tests);
}
