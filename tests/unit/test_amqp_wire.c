/*
 * The wire format: out and in again is the same; what others send is read; what cannot be said or
 * held is refused before it does harm.
 */
#include "support/test.h"

#include "transport/amqp/wire.h"

#define FRAME 131072

typedef struct wire {
    pr__wire_out out;
    amqp_basic_properties_t properties;
    amqp_pool_t pool;
    char encoded[2 * FRAME];
} wire;

static void close_wire(wire *at)
{
    pr__wire_out_done(&at->out);
    empty_amqp_pool(&at->pool);
}

static const amqp_field_value_t *header_of(const amqp_basic_properties_t *properties,
                                           const char *name)
{
    const amqp_field_value_t *found = NULL;
    for (int i = 0; i < properties->headers.num_entries; i++) {
        if (!pr__wire_name_is(properties->headers.entries[i].key, name))
            continue;
        if (found)
            fail_msg("header '%s' is there twice", name);
        found = &properties->headers.entries[i].value;
    }
    return found;
}

static void check_text(const amqp_basic_properties_t *properties, const char *name,
                       const char *wanted)
{
    const amqp_field_value_t *value = header_of(properties, name);
    CHECK_CASE(!value == !wanted, name);
    if (!wanted)
        return;
    CHECK_CASE(value->kind == AMQP_FIELD_KIND_UTF8, name);
    CHECK_CASE(value->value.bytes.len == strlen(wanted) &&
                   memcmp(value->value.bytes.bytes, wanted, strlen(wanted)) == 0,
               name);
}

static const pr_message full =
    PR_MESSAGE(.type_version = 7, .id = "018e0000-0000-7000-8000-000000000001",
               .type = "urn:message:shop:order-placed", .content_type = "application/json",
               .destination = "rabbitmq://topic/urn:message:shop:order-placed",
               .source = "urn:shop:checkout", .key = "k\xC3\xA9y \"1\"", .tenant = "acme",
               .correlation_id = "correlation", .causation_id = "cause",
               .traceparent = "00-4bf9-01", .tracestate = "v=1", .body = "{}", .body_size_bytes = 2,
               .occurred_at_us = 1709164800123456, .expires_at_us = 4102444800000001);

static void encode(wire *at, const pr_message *message, bool cloudevents)
{
    pr_error err = PR_ERROR_INIT;
    check_ok(pr__wire_encode(&at->out, message, cloudevents, FRAME, &at->properties, &err), &err,
             "encode");
}

/* As the broker would hand it on: encoded and decoded by librabbitmq. */
static pr__wire_in *travel(wire *at, uint64_t body_size)
{
    pr_error err = PR_ERROR_INIT;
    pr__wire_in *in = NULL;
    amqp_bytes_t bytes = {sizeof(at->encoded), at->encoded};
    int size = amqp_encode_properties(AMQP_BASIC_CLASS, &at->properties, bytes);
    assert_true(size > 0);
    bytes.len = (size_t)size;
    void *decoded = NULL;
    init_amqp_pool(&at->pool, 4096);
    assert_int_equal(amqp_decode_properties(AMQP_BASIC_CLASS, &at->pool, bytes, &decoded), 0);
    check_ok(pr__wire_decode(decoded, body_size, &in, &err), &err, "decode");
    return in;
}

static void properties_and_headers(void **state)
{
    (void)state;
    wire at = {.out = {.count = 0}};
    encode(&at, &full, false);
    const amqp_basic_properties_t *p = &at.properties;
    assert_int_equal(p->_flags, AMQP_BASIC_MESSAGE_ID_FLAG | AMQP_BASIC_TYPE_FLAG |
                                    AMQP_BASIC_CONTENT_TYPE_FLAG | AMQP_BASIC_CORRELATION_ID_FLAG |
                                    AMQP_BASIC_TIMESTAMP_FLAG | AMQP_BASIC_DELIVERY_MODE_FLAG |
                                    AMQP_BASIC_HEADERS_FLAG);
    assert_int_equal(p->delivery_mode, 2);
    assert_int_equal(p->timestamp, 1709164800);
    assert_memory_equal(p->message_id.bytes, full.id, p->message_id.len);
    check_text(p, "postroom-destination", full.destination);
    check_text(p, "postroom-source", full.source);
    check_text(p, "postroom-key", full.key);
    check_text(p, "postroom-tenant", "acme");
    check_text(p, "postroom-causation-id", "cause");
    check_text(p, "traceparent", "00-4bf9-01");
    check_text(p, "tracestate", "v=1");
    check_text(p, "postroom-headers", NULL);
    assert_int_equal(header_of(p, "postroom-type-version")->value.i64, 7);
    assert_int_equal(header_of(p, "postroom-occurred-at")->value.i64, 1709164800123456);
    assert_int_equal(header_of(p, "postroom-expires-at")->value.i64, 4102444800000001);
    assert_int_equal(p->headers.num_entries, 10);
    close_wire(&at);
}

static void same_text(const char *a, const char *b, const char *label)
{
    CHECK_CASE(!a == !b && (!a || strcmp(a, b) == 0), label);
}

static void same(const pr_message *got, const pr_message *sent)
{
    same_text(got->id, sent->id, "id");
    same_text(got->type, sent->type, "type");
    same_text(got->content_type, sent->content_type, "content_type");
    same_text(got->destination, sent->destination, "destination");
    same_text(got->source, sent->source, "source");
    same_text(got->key, sent->key, "key");
    same_text(got->tenant, sent->tenant, "tenant");
    same_text(got->correlation_id, sent->correlation_id, "correlation_id");
    same_text(got->causation_id, sent->causation_id, "causation_id");
    same_text(got->traceparent, sent->traceparent, "traceparent");
    same_text(got->tracestate, sent->tracestate, "tracestate");
    same_text(got->headers, sent->headers, "headers");
    assert_int_equal(got->type_version, sent->type_version);
    assert_int_equal(got->occurred_at_us, sent->occurred_at_us);
    assert_int_equal(got->expires_at_us, sent->expires_at_us);
    assert_int_equal(got->deliver_at_us, 0);
    assert_int_equal(got->body_size_bytes, sent->body_size_bytes);
}

static void out_and_in_is_the_same(void **state)
{
    (void)state;
    static const char *const headers[] = {
        NULL,
        "{ \"b\":\"2\", \"a\" : {\"int\": 9007199254740993}, \"\xC3\xA9\":\"x\"}",
        "{\"t\":{\"instant\":\"2026-01-31T12:00:00.000001Z\"},\"d\":{\"double\":1.5},\"x\":"
        "{\"bytes\":\"AP8=\"},\"f\":{\"bool\":false},\"o\":{\"money\":{\"eur\":1}}}",
        "{\"CC\":\"a\",\"BCC\":\"b\",\"x-death\":\"c\",\"postroom-key\":\"mine\",\"traceparent\":"
        "\"t\",\"cloudEvents:id\":\"no\"}",
    };
    for (unsigned mode = 0; mode < 2; mode++) {
        for (size_t i = 0; i < COUNT_OF(headers); i++) {
            wire at = {.out = {.count = 0}};
            pr_message message = full;
            message.headers = headers[i];
            encode(&at, &message, mode);
            AUTO(pr__wire_in) in = travel(&at, 2);
            assert_true(pr__wire_fill(in, (amqp_bytes_t){2, (char[]){"{}"}}));
            same(&in->message, &message);
            assert_memory_equal(in->message.body, "{}", 2);
            close_wire(&at);
        }
    }
    wire at = {.out = {.count = 0}};
    pr_message least = PR_MESSAGE(.id = "x", .type = "t", .destination = "d", .type_version = 1,
                                  .occurred_at_us = -1);
    encode(&at, &least, false);
    AUTO(pr__wire_in) in = travel(&at, 0);
    same(&in->message, &least);
    close_wire(&at);
}

/* Other languages see the headers under their own names, in their own kinds; what the broker would
   obey, and what is part of the envelope, is not sent a second time. */
static void headers_are_native_too(void **state)
{
    (void)state;
    wire at = {.out = {.count = 0}};
    pr_message message = full;
    message.headers = "{\"s\":\"text\",\"i\":{\"int\":-5},\"d\":{\"double\":0.5},\"b\":{\"bool\":"
                      "true},\"t\":{\"instant\":\"2026-01-31T12:00:00.9Z\"},\"x\":{\"bytes\":"
                      "\"AP8=\"},\"o\":{\"decimal\":\"1.20\"},\"CC\":\"a\",\"x-death\":\"b\","
                      "\"postroom-key\":\"c\",\"postroom-message-id\":\"d\"}";
    encode(&at, &message, false);
    const amqp_basic_properties_t *p = &at.properties;
    check_text(p, "postroom-headers", message.headers);
    check_text(p, "s", "text");
    check_text(p, "o", "1.20");
    check_text(p, "postroom-message-id", "d");
    check_text(p, "postroom-key", full.key);
    assert_null(header_of(p, "CC"));
    assert_null(header_of(p, "x-death"));
    assert_int_equal(header_of(p, "i")->kind, AMQP_FIELD_KIND_I64);
    assert_int_equal(header_of(p, "i")->value.i64, -5);
    assert_int_equal(header_of(p, "d")->kind, AMQP_FIELD_KIND_F64);
    assert_true(header_of(p, "d")->value.f64 == 0.5);
    assert_int_equal(header_of(p, "b")->kind, AMQP_FIELD_KIND_BOOLEAN);
    assert_true(header_of(p, "b")->value.boolean);
    assert_int_equal(header_of(p, "t")->kind, AMQP_FIELD_KIND_TIMESTAMP);
    assert_int_equal(header_of(p, "t")->value.u64, 1769860800);
    assert_int_equal(header_of(p, "x")->kind, AMQP_FIELD_KIND_BYTES);
    assert_memory_equal(header_of(p, "x")->value.bytes.bytes, "\x00\xFF", 2);
    /* the size that was reckoned is the size that is encoded */
    amqp_bytes_t bytes = {sizeof(at.encoded), at.encoded};
    int size = amqp_encode_properties(AMQP_BASIC_CLASS, &at.properties, bytes);
    assert_true(size > 0 && (size_t)size > at.out.table_size);
    assert_true((size_t)size < at.out.table_size + 4 + 4 * 256 + 32);
    close_wire(&at);
}

static void what_cannot_be_said(void **state)
{
    (void)state;
    char longer[257], large[5000];
    memset(longer, 'x', 256);
    longer[256] = '\0';
    memset(large, 'y', sizeof(large) - 1);
    large[sizeof(large) - 1] = '\0';
    const struct {
        const char *label;
        pr_message message;
        pr_status wanted;
        const char *words;
    } cases[] = {
        {"an id of 256 bytes", PR_MESSAGE(.id = longer, .type = "t"), PR_E_LIMIT, "id has 256"},
        {"a type of 256 bytes", PR_MESSAGE(.id = "i", .type = longer), PR_E_LIMIT, "type has"},
        {"a content type", PR_MESSAGE(.id = "i", .type = "t", .content_type = longer), PR_E_LIMIT,
         "content type"},
        {"a correlation id", PR_MESSAGE(.id = "i", .type = "t", .correlation_id = longer),
         PR_E_LIMIT, "correlation id"},
        {"more than a frame", PR_MESSAGE(.id = "i", .type = "t", .tracestate = large), PR_E_LIMIT,
         "a frame of the broker"},
        {"headers of no JSON", PR_MESSAGE(.id = "i", .type = "t", .headers = "{"), PR_E_CONTENT,
         "JSON"},
        {"headers of an array", PR_MESSAGE(.id = "i", .type = "t", .headers = "[]"), PR_E_CONTENT,
         "JSON"},
    };
    wire at = {.out = {.count = 0}};
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        pr_error err = PR_ERROR_INIT;
        pr_status status =
            pr__wire_encode(&at.out, &cases[i].message, false, 4096, &at.properties, &err);
        check_error(status, &err, cases[i].wanted, cases[i].words, cases[i].label);
    }
    encode(&at, &full, false); /* and then one that can */
    close_wire(&at);
}

/* ---- what others send ---- */

static amqp_table_entry_t entry(const char *name, uint8_t kind)
{
    return (amqp_table_entry_t){.key = amqp_cstring_bytes(name), .value = {.kind = kind}};
}

static amqp_table_entry_t text_entry(const char *name, const char *value)
{
    amqp_table_entry_t made = entry(name, AMQP_FIELD_KIND_UTF8);
    made.value.value.bytes = amqp_cstring_bytes(value);
    return made;
}

static pr_status decode(amqp_table_entry_t *entries, size_t count, pr__wire_in **ret_in,
                        pr_error *err)
{
    amqp_basic_properties_t properties = {
        ._flags = AMQP_BASIC_HEADERS_FLAG,
        .headers = {.num_entries = (int)count, .entries = entries}};
    return pr__wire_decode(&properties, 0, ret_in, err);
}

static void a_message_of_nothing(void **state)
{
    (void)state;
    pr_error err = PR_ERROR_INIT;
    amqp_basic_properties_t properties = {._flags = 0};
    AUTO(pr__wire_in) in = NULL;
    check_ok(pr__wire_decode(&properties, 3, &in, &err), &err, "bare");
    assert_null(in->message.id);
    assert_null(in->message.type);
    assert_null(in->message.headers);
    assert_int_equal(in->message.type_version, 1);
    assert_int_equal(in->message.occurred_at_us, 0);
    assert_true(pr__wire_fill(in, (amqp_bytes_t){2, (char[]){"ab"}}));
    assert_false(pr__wire_fill(in, (amqp_bytes_t){2, (char[]){"cd"}}));
    assert_true(pr__wire_fill(in, (amqp_bytes_t){1, (char[]){"c"}}));
    assert_memory_equal(in->message.body, "abc", 3);
}

static void kinds_of_others(void **state)
{
    (void)state;
    amqp_table_entry_t inner[] = {text_entry("k", "v")};
    amqp_field_value_t items[] = {{.kind = AMQP_FIELD_KIND_I8}, {.kind = AMQP_FIELD_KIND_VOID}};
    items[0].value.i8 = -1;
    amqp_table_entry_t entries[] = {
        entry("i16", AMQP_FIELD_KIND_I16),        entry("u64", AMQP_FIELD_KIND_U64),
        entry("f32", AMQP_FIELD_KIND_F32),        entry("nan", AMQP_FIELD_KIND_F64),
        entry("time", AMQP_FIELD_KIND_TIMESTAMP), entry("decimal", AMQP_FIELD_KIND_DECIMAL),
        entry("table", AMQP_FIELD_KIND_TABLE),    entry("array", AMQP_FIELD_KIND_ARRAY),
        entry("flag", AMQP_FIELD_KIND_BOOLEAN),   entry("bytes", AMQP_FIELD_KIND_BYTES),
        entry("broken", AMQP_FIELD_KIND_UTF8),    entry("nul", AMQP_FIELD_KIND_UTF8),
        text_entry("x-death", "the broker's"),    text_entry("plain", "caf\xC3\xA9"),
    };
    entries[0].value.value.i16 = -300;
    entries[1].value.value.u64 = UINT64_MAX;
    entries[2].value.value.f32 = 0.25f;
    entries[3].value.value.f64 = __builtin_nan("");
    entries[4].value.value.u64 = 1769860800;
    entries[5].value.value.decimal = (amqp_decimal_t){.decimals = 2, .value = 120};
    entries[6].value.value.table = (amqp_table_t){.num_entries = 1, .entries = inner};
    entries[7].value.value.array = (amqp_array_t){.num_entries = 2, .entries = items};
    entries[8].value.value.boolean = 1;
    entries[9].value.value.bytes = amqp_cstring_bytes("ab");
    entries[10].value.value.bytes = amqp_cstring_bytes("\xFF");
    entries[11].value.value.bytes = (amqp_bytes_t){3, (char[]){"a\0b"}};
    pr_error err = PR_ERROR_INIT;
    AUTO(pr__wire_in) in = NULL;
    check_ok(decode(entries, COUNT_OF(entries), &in, &err), &err, "all kinds");
    assert_string_equal(
        in->message.headers,
        "{\"i16\":{\"int\":-300},\"u64\":{\"uint\":18446744073709551615},\"f32\":{\"double\":0.25},"
        "\"nan\":{\"non-finite\":\"nan\"},\"time\":{\"instant\":\"2026-01-31T12:00:00.000000Z\"},"
        "\"decimal\":{\"decimal\":\"120E-2\"},\"table\":{\"table\":{\"k\":\"v\"}},\"array\":"
        "{\"array\":[{\"int\":-1},{\"void\":\"\"}]},\"flag\":{\"bool\":true},\"bytes\":{\"bytes\":"
        "\"YWI=\"},\"broken\":{\"bytes\":\"/w==\"},\"nul\":{\"bytes\":\"YQBi\"},\"plain\":"
        "\"caf\xC3\xA9\"}");
}

static void fields_of_others(void **state)
{
    (void)state;
    pr_error err = PR_ERROR_INIT;
    amqp_table_entry_t entries[] = {
        entry("postroom-key", AMQP_FIELD_KIND_I32),
        text_entry("postroom-type-version", "3"),
        entry("postroom-occurred-at", AMQP_FIELD_KIND_TIMESTAMP),
        text_entry("postroom-expires-at", "2026-01-31T12:00:00Z"),
        entry("x-delivery-count", AMQP_FIELD_KIND_I64),
        text_entry("postroom-tenant", ""),
    };
    entries[0].value.value.i32 = 42;
    entries[2].value.value.u64 = 1769860800;
    entries[4].value.value.i64 = 5;
    AUTO(pr__wire_in) in = NULL;
    check_ok(decode(entries, COUNT_OF(entries), &in, &err), &err, "other kinds for our fields");
    assert_string_equal(in->message.key, "42");
    assert_string_equal(in->message.tenant, "");
    assert_int_equal(in->message.type_version, 3);
    assert_int_equal(in->message.occurred_at_us, 1769860800000000);
    assert_int_equal(in->message.expires_at_us, 1769860800000000);
    assert_int_equal(in->delivery_count, 5);
    assert_null(in->message.headers);
}

static void what_cannot_be_held(void **state)
{
    (void)state;
    amqp_table_entry_t nested[20];
    for (size_t i = 0; i < COUNT_OF(nested); i++) {
        nested[i] = entry("n", AMQP_FIELD_KIND_TABLE);
        nested[i].value.value.table =
            (amqp_table_t){.num_entries = i + 1 < COUNT_OF(nested), .entries = &nested[i + 1]};
    }
    amqp_table_entry_t nul = entry("postroom-key", AMQP_FIELD_KIND_UTF8);
    nul.value.value.bytes = (amqp_bytes_t){3, (char[]){"a\0b"}};
    amqp_table_entry_t nul_name = text_entry("a", "b");
    nul_name.key = (amqp_bytes_t){3, (char[]){"a\0b"}};
    amqp_table_entry_t negative = entry("postroom-type-version", AMQP_FIELD_KIND_I64);
    negative.value.value.i64 = -1;
    amqp_table_entry_t late = entry("postroom-occurred-at", AMQP_FIELD_KIND_TIMESTAMP);
    late.value.value.u64 = UINT64_MAX;
    const struct {
        const char *label, *words;
        amqp_table_entry_t entry;
    } cases[] = {
        {"nested too deeply", "nested", nested[0]},
        {"a NUL in a field", "postroom-key has a NUL", nul},
        {"a NUL in a name", "no name", nul_name},
        {"a name of no bytes", "no name", text_entry("", "b")},
        {"a version of words", "is no integer", text_entry("postroom-type-version", "three")},
        {"a negative version", "out of range", negative},
        {"an instant of words", "is no integer", text_entry("postroom-expires-at", "soon")},
        {"an instant too late", "out of the years", late},
        {"a key of truth", "is no text", entry("postroom-key", AMQP_FIELD_KIND_BOOLEAN)},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        pr_error err = PR_ERROR_INIT;
        pr__wire_in *in = NULL;
        amqp_table_entry_t one = cases[i].entry;
        pr_status status = decode(&one, 1, &in, &err);
        check_error(status, &err, PR_E_CONTENT, cases[i].words, cases[i].label);
        CHECK_CASE(!in, cases[i].label);
    }
}

/* ---- CloudEvents ---- */

static void cloudevents_are_written(void **state)
{
    (void)state;
    wire at = {.out = {.count = 0}};
    encode(&at, &full, true);
    const amqp_basic_properties_t *p = &at.properties;
    check_text(p, "cloudEvents:specversion", "1.0");
    check_text(p, "cloudEvents:id", full.id);
    check_text(p, "cloudEvents:source", full.source);
    check_text(p, "cloudEvents:type", full.type);
    check_text(p, "cloudEvents:time", "2024-02-29T00:00:00.123456Z");
    check_text(p, "cloudEvents:partitionkey", full.key);
    check_text(p, "cloudEvents:traceparent", full.traceparent);
    close_wire(&at);
}

static void cloudevents_of_both_prefixes_are_read(void **state)
{
    (void)state;
    static const char *const prefixes[] = {"cloudEvents:", "cloudEvents_"};
    static const char *const attributes[][2] = {
        {"specversion", "1.0"},           {"id", "A234-1234"},
        {"source", "/mycontext"},         {"type", "com.example.some"},
        {"time", "2018-04-05T17:31:00Z"}, {"partitionkey", "k1"},
        {"datacontenttype", "text/xml"},  {"subject", "123"},
    };
    for (size_t i = 0; i < COUNT_OF(prefixes); i++) {
        char names[COUNT_OF(attributes)][48];
        amqp_table_entry_t entries[COUNT_OF(attributes)];
        for (size_t k = 0; k < COUNT_OF(attributes); k++) {
            snprintf(names[k], sizeof(names[k]), "%s%s", prefixes[i], attributes[k][0]);
            entries[k] = text_entry(names[k], attributes[k][1]);
        }
        pr_error err = PR_ERROR_INIT;
        AUTO(pr__wire_in) in = NULL;
        check_ok(decode(entries, COUNT_OF(entries), &in, &err), &err, prefixes[i]);
        assert_string_equal(in->message.id, "A234-1234");
        assert_string_equal(in->message.source, "/mycontext");
        assert_string_equal(in->message.type, "com.example.some");
        assert_string_equal(in->message.key, "k1");
        assert_string_equal(in->message.content_type, "text/xml");
        assert_int_equal(in->message.occurred_at_us, 1522949460000000);
        char left[64];
        snprintf(left, sizeof(left), "{\"%ssubject\":\"123\"}", prefixes[i]);
        assert_string_equal(in->message.headers, left);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(properties_and_headers),
        cmocka_unit_test(out_and_in_is_the_same),
        cmocka_unit_test(headers_are_native_too),
        cmocka_unit_test(what_cannot_be_said),
        cmocka_unit_test(a_message_of_nothing),
        cmocka_unit_test(kinds_of_others),
        cmocka_unit_test(fields_of_others),
        cmocka_unit_test(what_cannot_be_held),
        cmocka_unit_test(cloudevents_are_written),
        cmocka_unit_test(cloudevents_of_both_prefixes_are_read),
    };
    return RUN_TESTS(tests);
}
