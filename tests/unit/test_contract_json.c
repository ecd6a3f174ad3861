/*
 * Bodies: they come back as they went out; a bad one is refused with the name of the field, or the
 * byte where the JSON is bad, never its content.
 */
#include <math.h>

#include <postroom/contract.h>

#include "support/test.h"

#include "base/buffer.h"
#include "base/fault.h"
#include "base/time.h"
#include "core/contract.h"
#include "unit/order_contract.h"

#define BODY(rest)                                                                                 \
    "{\"id\":\"" ID "\",\"placedAt\":\"2026-01-31T12:00:00.000001Z\",\"customer\":{\"name\":"      \
    "\"Ada\",\"reference\":\"" ID                                                                  \
    "\"},\"lines\":[],\"tags\":[],\"signature\":\"\",\"gift\":false" rest "}"

static pr_message message_of(const pr_contract *contract, const void *body, size_t size)
{
    pr_message message =
        PR_MESSAGE(.type = contract->type, .type_version = contract->type_version, .id = ID,
                   .occurred_at_us = AT, .body = body, .body_size_bytes = size);
    return message;
}

static void test_round_trip_of_every_kind(void **state)
{
    (void)state;
    line lines[] = {{"a\"1", INT64_MAX, true, 0.1}, {"", INT64_MIN, false, 7.0}};
    const char *tags[] = {"\xE2\x82\xAC", "x\ny"};
    order given = {.id = ID,
                   .placed_at = AT,
                   .who = {"Ada", "00000000-0000-0000-0000-000000000000"},
                   .lines = {lines, 2},
                   .tags = {tags, 2},
                   .signature = {"\x00\xFF\x01\x02", 4},
                   .gift = true,
                   .has_second = true,
                   .second = {"Bob", ID}};
    pr_error err = PR_ERROR_INIT;
    AUTO(char) body = NULL;
    void *encoded = NULL;
    size_t size = 0;
    check_ok(pr_contract_encode(&order_contract, &given, &encoded, &size, &err), &err, "encode");
    body = encoded;
    assert_string_equal(
        body, "{\"id\":\"" ID "\",\"placedAt\":\"2026-01-31T12:00:00.000001Z\","
              "\"customer\":{\"name\":\"Ada\","
              "\"reference\":\"00000000-0000-0000-0000-000000000000\"},"
              "\"lines\":[{\"article\":\"a\\\"1\",\"amount\":9223372036854775807,\"price\":0.1},"
              "{\"article\":\"\",\"amount\":-9223372036854775808}],"
              "\"tags\":[\"\xE2\x82\xAC\",\"x\\ny\"],\"signature\":\"AP8BAg==\",\"gift\":true,"
              "\"second\":{\"name\":\"Bob\",\"reference\":\"" ID "\"}}");
    assert_int_equal(size, strlen(body));

    pr_message message = message_of(&order_contract, body, size);
    AUTO(pr_decoded) decoded = NULL;
    check_ok(pr_contract_decode(&order_contract, &message, &decoded, &err), &err, "decode");
    memset(body, 'X', size); /* nothing of the body is pointed to */
    const order *back = pr_decoded_object(decoded);
    assert_string_equal(back->id, ID);
    assert_true(back->placed_at == AT);
    assert_string_equal(back->who.name, "Ada");
    assert_int_equal(back->lines.count, 2);
    const line *back_lines = back->lines.items;
    assert_string_equal(back_lines[0].article, "a\"1");
    assert_true(back_lines[0].amount == INT64_MAX && back_lines[1].amount == INT64_MIN);
    assert_true(back_lines[0].has_price && back_lines[0].price == 0.1);
    assert_false(back_lines[1].has_price);
    assert_true(back_lines[1].price == 0.0);
    assert_int_equal(back->tags.count, 2);
    assert_string_equal(((const char *const *)back->tags.items)[1], "x\ny");
    assert_int_equal(back->signature.size, 4);
    assert_memory_equal(back->signature.data, "\x00\xFF\x01\x02", 4);
    assert_true(back->gift && back->has_second && !back->has_note);
    assert_null(back->note);
    assert_string_equal(back->second.reference, ID);
}

static void test_bad_bodies_name_the_field_never_the_content(void **state)
{
    (void)state;
    static const struct {
        const char *body, *wanted;
    } cases[] = {
        {"", "the body is empty, the contract has fields"},
        {"null", "the body is null, must be a JSON object"},
        {"[\"s3cret\"]", "the body is another kind of value"},
        {"\"s3cret\"", "the body is another kind of value"},
        {"{\"id\":\"s3cret", "body: no valid JSON, it ends too early at byte 13"},
        {"{\"id\":s3cret}", "body: no valid JSON, bad syntax at byte "},
        {"{} s3cret", "something stands behind its end at byte "},
        {"{\"id\":\"\xFFs3cret\"}", "invalid UTF-8 at byte "},
        {"{\"id\":\"\\u0000s3cret\"}", "a NUL character at byte "},
        {"{\"a\":\"s3cret\",\"a\":1}", "a name stands twice at byte "},
        {"{\"a\":1e999}", "a number is too large at byte "},
        {"{\"a\":123456789012345678901", "a number is too large at byte "},
        {"{}", "field 'id' is missing"},
        {"{\"id\":null}", "field 'id' is not a UUID"},
        {"{\"id\":\"s3cret\"}", "field 'id' is not a UUID"},
        {"{\"id\":5}", "field 'id' is not a UUID"},
        {"{\"id\":\"0190b8f5-7d0c-7000-8000-00000000000b\"}",
         "field 'id' is the message's id, but differs from the envelope's"},
        {"{\"id\":\"" ID "\",\"placedAt\":\"s3cret\"}", "field 'placedAt' is not an RFC 3339 time"},
        {"{\"id\":\"" ID "\",\"placedAt\":1769860800}", "field 'placedAt' is not an RFC 3339 time"},
        {"{\"id\":\"" ID "\",\"placedAt\":\"2026-01-31T12:00:00.000002Z\"}",
         "field 'placedAt' is the occurrence time, but differs from the envelope's"},
        {"{\"id\":\"" ID "\",\"placedAt\":\"2026-01-31T12:00:00.000001Z\",\"customer\":[]}",
         "field 'customer' is not an object"},
        {"{\"id\":\"" ID "\",\"placedAt\":\"2026-01-31T12:00:00.000001Z\",\"customer\":{}}",
         "field 'customer.name' is missing"},
        {"{\"id\":\"" ID "\",\"placedAt\":\"2026-01-31T12:00:00.000001Z\",\"customer\":{"
         "\"name\":[\"s3cret\"]}}",
         "field 'customer.name' is not text"},
        {BODY(",\"note\":5"), "field 'note' is not text"},
        {BODY(",\"second\":{\"name\":\"s3cret\"}"), "field 'second.reference' is missing"},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        pr_error err = PR_ERROR_INIT;
        pr_decoded *decoded = NULL;
        pr_message message = message_of(&order_contract, cases[i].body, strlen(cases[i].body));
        check_error(pr_contract_decode(&order_contract, &message, &decoded, &err), &err,
                    PR_E_CONTENT, cases[i].wanted, cases[i].body);
        CHECK_CASE(err.retry == PR_RETRY_NEVER, cases[i].body);
        CHECK_CASE(!strstr(err.message, "s3cret"), cases[i].body);
        CHECK_CASE(strstr(err.message, "'" TYPE "' version 2: "), cases[i].body);
        assert_null(decoded);
    }
}

typedef struct kinds {
    pr_list numbers;
    pr_list lines;
    pr_list flags;
    pr_list bytes;
} kinds;

static const pr_field kinds_fields[] = {
    {.name = "numbers",
     .kind = PR_FIELD_LIST,
     .element_kind = PR_FIELD_DOUBLE,
     .offset = offsetof(kinds, numbers)},
    {.name = "lines",
     .kind = PR_FIELD_LIST,
     .element_kind = PR_FIELD_NESTED,
     .offset = offsetof(kinds, lines),
     .element_size = sizeof(line),
     .nested = line_fields},
    {.name = "flags",
     .kind = PR_FIELD_LIST,
     .element_kind = PR_FIELD_BOOL,
     .offset = offsetof(kinds, flags)},
    {.name = "bytes",
     .kind = PR_FIELD_LIST,
     .element_kind = PR_FIELD_BYTES,
     .offset = offsetof(kinds, bytes)},
    {.name = NULL},
};

static const pr_contract kinds_contract = {
    .size = sizeof(pr_contract),
    .type = "urn:message:shop:kinds",
    .kind = PR_CONTRACT_REPLY,
    .flags = PR_CONTRACT_REFUSE_UNKNOWN,
    .content_type = "application/vnd.shop+json",
    .fields = kinds_fields,
    .object_size = sizeof(kinds),
};

static void test_paths_go_into_lists(void **state)
{
    (void)state;
    static const struct {
        const char *body, *wanted; /* NULL = taken */
    } cases[] = {
        {"{\"numbers\":[1,2.5,\"s3cret\"],\"lines\":[],\"flags\":[],\"bytes\":[]}",
         "field 'numbers[2]' is not a number"},
        {"{\"numbers\":[null]}", "field 'numbers[0]' is not a number"},
        {"{\"numbers\":{}}", "field 'numbers' is not a list"},
        {"{\"numbers\":[],\"lines\":[{\"article\":\"s3cret\",\"amount\":1},{\"article\":\"a\","
         "\"amount\":1.0}]}",
         "field 'lines[1].amount' is not an integer"},
        {"{\"numbers\":[],\"lines\":[5]}", "field 'lines[0]' is not an object"},
        {"{\"numbers\":[],\"lines\":[],\"flags\":[true,0]}",
         "field 'flags[1]' is not true or false"},
        {"{\"numbers\":[],\"lines\":[],\"flags\":[],\"bytes\":[\"AA==\",\"s3cret!!\"]}",
         "field 'bytes[1]' is not base64"},
        {"{\"numbers\":[],\"lines\":[{\"article\":\"a\",\"amount\":1,\"colour\":\"s3cret\"}],"
         "\"flags\":[],\"bytes\":[]}",
         "field 'lines[0].colour' is not in the contract"},
        {"{\"more\":\"s3cret\",\"numbers\":[],\"lines\":[],\"flags\":[],\"bytes\":[]}",
         "field 'more' is not in the contract"},
        {"{\"numbers\":[1,-0.0,1e300],\"lines\":[{\"amount\":1,\"article\":\"a\",\"price\":null}],"
         "\"flags\":[true],\"bytes\":[\"\"]}",
         NULL},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        pr_error err = PR_ERROR_INIT;
        AUTO(pr_decoded) decoded = NULL;
        pr_message message = message_of(&kinds_contract, cases[i].body, strlen(cases[i].body));
        pr_status status = pr_contract_decode(&kinds_contract, &message, &decoded, &err);
        if (cases[i].wanted) {
            check_error(status, &err, PR_E_CONTENT, cases[i].wanted, cases[i].body);
            CHECK_CASE(!strstr(err.message, "s3cret"), cases[i].body);
            continue;
        }
        check_ok(status, &err, cases[i].body);
        const kinds *back = pr_decoded_object(decoded);
        const double *numbers = back->numbers.items;
        assert_int_equal(back->numbers.count, 3);
        assert_true(numbers[0] == 1.0 && signbit(numbers[1]) && numbers[2] == 1e300);
        assert_false(((const line *)back->lines.items)->has_price); /* null is "not present" */
    }
}

static void test_unknown_fields_are_ignored_by_default(void **state)
{
    (void)state;
    static const char body[] = BODY(",\"more\":{\"a\":[1]},\"note\":null");
    pr_error err = PR_ERROR_INIT;
    AUTO(pr_decoded) decoded = NULL;
    pr_message message = message_of(&order_contract, body, sizeof(body) - 1);
    check_ok(pr_contract_decode(&order_contract, &message, &decoded, &err), &err, "decode");
    assert_false(((const order *)pr_decoded_object(decoded))->has_note);
}

/* JavaScript writes 1e20 as a whole number; and of what nobody reads no number is too large. */
static void test_whole_numbers_beyond_64_bits(void **state)
{
    (void)state;
    static const struct {
        const char *amount, *price, *wanted; /* wanted: the error; NULL = none */
    } cases[] = {
        {"9223372036854775807", "100000000000000000000", NULL},
        {"-9223372036854775808", "-9223372036854775809", NULL},
        {"1", "9223372036854775808", NULL},
        {"9223372036854775808", "1", "amount' is a number that 64 bits do not hold, at byte"},
        {"-9223372036854775809", "1", "amount' is a number that 64 bits do not hold, at byte"},
        {"9223372036854775808.0", "1", "amount' is a number that 64 bits do not hold, at byte"},
        {"1.0", "1", "amount' is not an integer, at byte"},
        {"1e400", "1", "a number is too large at byte"},
        {"1", "100000000000000000000,", "a number is too large at byte"},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        char body[1024];
        pr_error err = PR_ERROR_INIT;
        AUTO(pr_decoded) decoded = NULL;
        snprintf(body, sizeof body,
                 "{\"id\":\"" ID "\",\"placedAt\":\"2026-01-31T12:00:00.000001Z\",\"gift\":true,"
                 "\"more\":[\"\\\"18446744073709551616\",{\"a\":18446744073709551616}],"
                 "\"customer\":{\"name\":\"\",\"reference\":\"" ID "\"},\"tags\":[],"
                 "\"lines\":[{\"article\":\"18446744073709551616\",\"amount\":%s,\"price\":%s}],"
                 "\"signature\":\"\"}",
                 cases[i].amount, cases[i].price);
        pr_message message = PR_MESSAGE(.type = TYPE, .type_version = 2, .body = body,
                                        .body_size_bytes = strlen(body));
        pr_status status = pr_contract_decode(&order_contract, &message, &decoded, &err);
        if (cases[i].wanted) {
            check_error(status, &err, PR_E_CONTENT, cases[i].wanted, cases[i].amount);
            continue;
        }
        check_ok(status, &err, cases[i].price);
        const line *first = ((const order *)pr_decoded_object(decoded))->lines.items;
        assert_string_equal(first->article, "18446744073709551616");
        assert_int_equal(first->amount, strtoll(cases[i].amount, NULL, 10));
        CHECK_CASE(first->price == strtod(cases[i].price, NULL), cases[i].price);
    }
}

static void test_identity_against_the_envelope(void **state)
{
    (void)state;
    static const char body[] = BODY("");
    static const struct {
        const char *label, *id;
        int64_t at;
        const char *wanted;
    } cases[] = {
        {"same", ID, AT, NULL},
        {"same in upper case", "0190B8F5-7D0C-7000-8000-00000000000A", AT, NULL},
        {"the envelope has neither", NULL, 0, NULL},
        {"another id", "0190b8f5-7d0c-7000-8000-00000000000c", AT,
         "field 'id' is the message's id"},
        {"id of others", "order-1", AT, "field 'id' is the message's id"},
        {"one microsecond later", ID, AT + 1, "field 'placedAt' is the occurrence time"},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        pr_error err = PR_ERROR_INIT;
        AUTO(pr_decoded) decoded = NULL;
        pr_message message = message_of(&order_contract, body, sizeof(body) - 1);
        message.id = cases[i].id;
        message.occurred_at_us = cases[i].at;
        pr_status status = pr_contract_decode(&order_contract, &message, &decoded, &err);
        if (cases[i].wanted)
            check_error(status, &err, PR_E_CONTENT, cases[i].wanted, cases[i].label);
        else
            check_ok(status, &err, cases[i].label);
    }
}

static void test_bad_objects_are_not_encoded(void **state)
{
    (void)state;
    enum { TEXT_NULL, TEXT_UTF8, UUID_BAD, UUID_ENDLESS, TIME, NAN_PRICE, LIST, BYTES, CASES };
    static const char *const wanted[CASES] = {
        [TEXT_NULL] = "field 'customer.name' is NULL",
        [TEXT_UTF8] = "field 'customer.name' is not valid UTF-8",
        [UUID_BAD] = "field 'id' is not a UUID",
        [UUID_ENDLESS] = "field 'id' is not a UUID",
        [TIME] = "field 'placedAt' is a time out of the years",
        [NAN_PRICE] = "field 'lines[0].price' is not a finite number",
        [LIST] = "field 'tags' is NULL with a count",
        [BYTES] = "field 'signature' is NULL with a size",
    };
    for (int i = 0; i < CASES; i++) {
        line one = {"a", 1, true, i == NAN_PRICE ? (double)NAN : 1.0};
        order bad = {.id = ID, .placed_at = AT, .who = {"Ada", ID}, .lines = {&one, 1}};
        if (i == TEXT_NULL)
            bad.who.name = NULL;
        if (i == TEXT_UTF8)
            bad.who.name = "s3cret\xC3";
        if (i == UUID_BAD)
            bad.id[3] = 'x';
        if (i == UUID_ENDLESS)
            memset(bad.id, '0', sizeof(bad.id));
        if (i == TIME)
            bad.placed_at = PR_INSTANT_MAX_US + 1;
        if (i == LIST)
            bad.tags.count = 1;
        if (i == BYTES)
            bad.signature.size = 1;
        pr_error err = PR_ERROR_INIT;
        void *body = NULL;
        size_t size = 99;
        check_error(pr_contract_encode(&order_contract, &bad, &body, &size, &err), &err,
                    PR_E_CONTENT, wanted[i], wanted[i]);
        assert_null(strstr(err.message, "s3cret"));
        assert_null(body);
        assert_int_equal(size, 99);
    }
}

/* A tree: the table nests itself through a list. */
typedef struct node {
    pr_list children;
} node;

static const pr_field node_fields[] = {
    {.name = "children",
     .kind = PR_FIELD_LIST,
     .element_kind = PR_FIELD_NESTED,
     .offset = offsetof(node, children),
     .element_size = sizeof(node),
     .nested = node_fields},
    {.name = NULL},
};

static void test_trees_have_a_depth(void **state)
{
    (void)state;
    static const pr_contract tree = {.size = sizeof(pr_contract),
                                     .type = "urn:message:shop:tree",
                                     .kind = PR_CONTRACT_COMMAND,
                                     .fields = node_fields,
                                     .object_size = sizeof(node)};
    pr_error err = PR_ERROR_INIT;
    AUTO(pr_contracts) contracts = NULL;
    check_ok(pr_contracts_new(&contracts, &err), &err, "new");
    check_ok(pr_contracts_register(contracts, &tree, &err), &err, "register");
    node nodes[20] = {{{NULL, 0}}};
    for (size_t i = 0; i + 1 < COUNT_OF(nodes); i++)
        nodes[i].children = (pr_list){&nodes[i + 1], 1};
    void *body = NULL;
    size_t size = 0;
    /* 16 objects and their 16 lists are 32 deep */
    check_ok(pr_contract_encode(&tree, &nodes[COUNT_OF(nodes) - 16], &body, &size, &err), &err,
             "16 objects");
    pr_message message = message_of(&tree, body, size);
    AUTO(pr_decoded) decoded = NULL;
    check_ok(pr_contract_decode(&tree, &message, &decoded, &err), &err, "decode 16");
    pr_free(body);
    check_error(pr_contract_encode(&tree, &nodes[COUNT_OF(nodes) - 17], &body, &size, &err), &err,
                PR_E_CONTENT, "nests deeper than 32", "17 objects");
    AUTO_BUFFER deep = PR_BUFFER_INIT;
    for (int i = 0; i < 17; i++)
        pr__buffer_append_text(&deep, "{\"children\":[");
    for (int i = 0; i < 17; i++)
        pr__buffer_append_text(&deep, "]}");
    message = message_of(&tree, deep.data, deep.size);
    pr_error_clear(&err);
    pr_decoded *none = NULL;
    check_error(pr_contract_decode(&tree, &message, &none, &err), &err, PR_E_CONTENT,
                "nests deeper than 32", "decode 17");
    pr__buffer_clear(&deep);
    for (int i = 0; i < 100000; i++)
        pr__buffer_append_char(&deep, '[');
    message = message_of(&tree, deep.data, deep.size);
    pr_error_clear(&err);
    check_error(pr_contract_decode(&tree, &message, &none, &err), &err, PR_E_CONTENT,
                "nested too deep", "100,000 brackets");
}

static void test_raw_bytes_pass_as_they_are(void **state)
{
    (void)state;
    pr_error err = PR_ERROR_INIT;
    static const pr_bytes cases[] = {{"\x00\xFF{", 3}, {"", 0}, {NULL, 0}};
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        void *body = NULL;
        size_t size = 99;
        AUTO(pr_decoded) decoded = NULL;
        check_ok(pr_contract_encode(&raw_contract, &cases[i], &body, &size, &err), &err, "encode");
        assert_int_equal(size, cases[i].size);
        pr_message message = message_of(&raw_contract, body, size);
        message.content_type = "image/png"; /* any, as the contract names none */
        check_ok(pr_contract_decode(&raw_contract, &message, &decoded, &err), &err, "decode");
        const pr_bytes *back = pr_decoded_object(decoded);
        assert_int_equal(back->size, cases[i].size);
        assert_non_null(back->data);
        if (back->size > 0)
            assert_memory_equal(back->data, cases[i].data, back->size);
        pr_free(body);
    }
    pr_bytes bad = {NULL, 1};
    void *body = NULL;
    size_t size = 0;
    check_error(pr_contract_encode(&raw_contract, &bad, &body, &size, &err), &err, PR_E_INVALID,
                "NULL with a size", "raw");
}

static void test_the_codec_fits_type_version_and_content_type(void **state)
{
    (void)state;
    static const char body[] = BODY("");
    const pr_message good = message_of(&order_contract, body, sizeof(body) - 1);
    pr_decoded *none = NULL;
    pr_error err = PR_ERROR_INIT;
    pr_message message = good;
    message.type_version = 3;
    check_error(pr_contract_decode(&order_contract, &message, &none, &err), &err, PR_E_INVALID,
                "version 3: not of this contract", "version");
    message = good;
    message.type = "urn:message:shop:other";
    pr_error_clear(&err);
    check_error(pr_contract_decode(&order_contract, &message, &none, &err), &err, PR_E_INVALID,
                "'urn:message:shop:other' version 2: not of this contract", "type");
    message = good;
    message.body = NULL;
    pr_error_clear(&err);
    check_error(pr_contract_decode(&order_contract, &message, &none, &err), &err, PR_E_INVALID,
                "body is NULL, but body_size_bytes is", "NULL body");
    static const struct {
        const char *content_type;
        bool taken;
    } cases[] = {
        {NULL, true},
        {"application/json", true},
        {"Application/JSON; charset=utf-8", true},
        {"application/vnd.shop+json ; v=2", true},
        {"text/plain", false},
        {"application/jsonlines", false},
        {"json", false},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        const char *label = cases[i].content_type ? cases[i].content_type : "none";
        AUTO(pr_decoded) decoded = NULL;
        message = good;
        message.content_type = cases[i].content_type;
        pr_error_clear(&err);
        pr_status status = pr_contract_decode(&order_contract, &message, &decoded, &err);
        if (cases[i].taken)
            check_ok(status, &err, label);
        else
            check_error(status, &err, PR_E_CONTENT, "the message has content type", label);
    }
    pr_contract png = raw_contract;
    png.content_type = "image/png";
    message = message_of(&png, "x", 1);
    message.content_type = "image/jpeg";
    pr_error_clear(&err);
    check_error(pr_contract_decode(&png, &message, &none, &err), &err, PR_E_CONTENT,
                "content type 'image/jpeg', the contract 'image/png'", "raw");
    assert_string_equal(pr_contract_content_type(&order_contract), "application/json");
    assert_string_equal(pr_contract_content_type(&raw_contract), "application/octet-stream");
}

#ifdef PR_FAULT_POINTS
static void test_out_of_memory_at_every_allocation(void **state)
{
    (void)state;
    line lines[300];
    for (size_t i = 0; i < COUNT_OF(lines); i++)
        lines[i] = (line){"an article of some length", (int64_t)i, false, 0};
    order given = {.id = ID, .placed_at = AT, .who = {"Ada", ID}, .lines = {lines, 300}};
    int64_t failed = 0;
    for (int64_t n = 1;; n++) {
        pr_error err = PR_ERROR_INIT;
        AUTO(pr_contracts) contracts = NULL;
        AUTO(pr_decoded) decoded = NULL;
        void *body = NULL;
        size_t size = 0;
        pr__fault_alloc_fail_at(n);
        pr_status status = pr_contracts_new(&contracts, &err);
        if (status == PR_OK)
            status = pr_contracts_register(contracts, &order_contract, &err);
        if (status == PR_OK)
            status = pr_contract_encode(&order_contract, &given, &body, &size, &err);
        pr_message message = message_of(&order_contract, body, size);
        if (status == PR_OK)
            status = pr_contract_decode(&order_contract, &message, &decoded, &err);
        bool reached = pr__fault_alloc_count() >= n;
        pr__fault_alloc_fail_at(0);
        pr_free(body);
        if (!reached) {
            check_ok(status, &err, "enough memory");
            break;
        }
        check_error(status, &err, PR_E_NOMEM, "out of memory", "n-th allocation");
        failed++;
    }
    assert_true(failed >= 10);
}
#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip_of_every_kind),
        cmocka_unit_test(test_bad_bodies_name_the_field_never_the_content),
        cmocka_unit_test(test_paths_go_into_lists),
        cmocka_unit_test(test_unknown_fields_are_ignored_by_default),
        cmocka_unit_test(test_whole_numbers_beyond_64_bits),
        cmocka_unit_test(test_identity_against_the_envelope),
        cmocka_unit_test(test_bad_objects_are_not_encoded),
        cmocka_unit_test(test_trees_have_a_depth),
        cmocka_unit_test(test_raw_bytes_pass_as_they_are),
        cmocka_unit_test(test_the_codec_fits_type_version_and_content_type),
#ifdef PR_FAULT_POINTS
        cmocka_unit_test(test_out_of_memory_at_every_allocation),
#endif
    };
    return RUN_TESTS(tests);
}
