/*
 * A message that arrived.
 *
 * Keeps: our own headers come first, then AMQP properties, then CloudEvents; nothing is cut. What a
 * text of C cannot hold (a NUL) or a number cannot be is an error, told with the field's name.
 * Whether the message makes sense (an id, a type, UTF-8) is core's to judge.
 * Must not know: channels, acknowledgements.
 */
#include <string.h>

#include "base/error.h"
#include "base/text.h"
#include "base/time.h"
#include "transport/amqp/wire.h"

#define ORIGIN "amqp.wire"

/* The texts of a message, in the order in which they stand in the block. */
typedef enum field {
    FIELD_ID,
    FIELD_TYPE,
    FIELD_CONTENT_TYPE,
    FIELD_DESTINATION,
    FIELD_SOURCE,
    FIELD_KEY,
    FIELD_TENANT,
    FIELD_CORRELATION_ID,
    FIELD_CAUSATION_ID,
    FIELD_TRACEPARENT,
    FIELD_TRACESTATE,
    FIELD_HEADERS,
    FIELD_COUNT
} field;

static const struct {
    const char *header; /* NULL: a property of AMQP */
    const char *cloud;  /* the attribute of CloudEvents; NULL: none */
} field_names[FIELD_COUNT] = {
    [FIELD_ID] = {NULL, "id"},
    [FIELD_TYPE] = {NULL, "type"},
    [FIELD_CONTENT_TYPE] = {NULL, "datacontenttype"},
    [FIELD_DESTINATION] = {PR__WIRE_DESTINATION, NULL},
    [FIELD_SOURCE] = {PR__WIRE_SOURCE, "source"},
    [FIELD_KEY] = {PR__WIRE_KEY, "partitionkey"},
    [FIELD_TENANT] = {PR__WIRE_TENANT, NULL},
    [FIELD_CORRELATION_ID] = {NULL, NULL},
    [FIELD_CAUSATION_ID] = {PR__WIRE_CAUSATION_ID, NULL},
    [FIELD_TRACEPARENT] = {PR__WIRE_TRACEPARENT, "traceparent"},
    [FIELD_TRACESTATE] = {PR__WIRE_TRACESTATE, "tracestate"},
    [FIELD_HEADERS] = {PR__WIRE_HEADERS, NULL},
};

typedef struct reading {
    amqp_bytes_t texts[FIELD_COUNT]; /* bytes NULL: not there */
    amqp_bytes_t cloud[FIELD_COUNT];
    char numbers[FIELD_COUNT][24]; /* texts that came as integers */
    amqp_bytes_t cloud_time;
    int64_t version, occurred_at_us, expires_at_us, delivery_count;
    bool has_occurred_at;
} reading;

/* ---- values ---- */

static bool integer_of(const amqp_field_value_t *value, int64_t *ret_value)
{
    switch (value->kind) {
    case AMQP_FIELD_KIND_I8:
        *ret_value = INT64_C(0) + value->value.i8;
        return true;
    case AMQP_FIELD_KIND_U8:
        *ret_value = value->value.u8;
        return true;
    case AMQP_FIELD_KIND_I16:
        *ret_value = value->value.i16;
        return true;
    case AMQP_FIELD_KIND_U16:
        *ret_value = value->value.u16;
        return true;
    case AMQP_FIELD_KIND_I32:
        *ret_value = value->value.i32;
        return true;
    case AMQP_FIELD_KIND_U32:
        *ret_value = value->value.u32;
        return true;
    case AMQP_FIELD_KIND_I64:
        *ret_value = value->value.i64;
        return true;
    case AMQP_FIELD_KIND_U64:
        *ret_value = (int64_t)value->value.u64;
        return value->value.u64 <= INT64_MAX;
    default: /* a kind is a byte from the wire, no enum of ours */
        return false;
    }
}

static bool is_text(const amqp_field_value_t *value)
{
    return value->kind == AMQP_FIELD_KIND_UTF8 || value->kind == AMQP_FIELD_KIND_BYTES;
}

static pr_status wrong(amqp_bytes_t name, const char *what, pr_error *err)
{
    return pr__fail(err, PR_E_CONTENT, ORIGIN, "header '%.*s' %s",
                    name.len < 64 ? (int)name.len : 64, (const char *)name.bytes, what);
}

/* An integer, also as decimal text; other languages have their own habits. */
static pr_status take_integer(const amqp_table_entry_t *entry, int64_t *slot, pr_error *err)
{
    char digits[24];
    if (integer_of(&entry->value, slot))
        return PR_OK;
    if (is_text(&entry->value) && entry->value.value.bytes.len < sizeof(digits)) {
        size_t size = entry->value.value.bytes.len;
        if (size > 0)
            memcpy(digits, entry->value.value.bytes.bytes, size);
        digits[size] = '\0';
        if (pr__parse_int64(digits, INT64_MIN, INT64_MAX, slot))
            return PR_OK;
    }
    return wrong(entry->key, "is no integer", err);
}

/* An instant: microseconds, or an AMQP timestamp, or RFC 3339. */
static pr_status take_instant(const amqp_table_entry_t *entry, int64_t *slot, pr_error *err)
{
    const amqp_field_value_t *value = &entry->value;
    if (value->kind == AMQP_FIELD_KIND_TIMESTAMP) {
        if (value->value.u64 > PR_INSTANT_MAX_US / 1000000)
            return wrong(entry->key, "is out of the years 1 to 9999", err);
        *slot = (int64_t)value->value.u64 * 1000000;
        return PR_OK;
    }
    if (is_text(value) && pr__instant_parse(value->value.bytes.bytes, value->value.bytes.len, slot))
        return PR_OK;
    return take_integer(entry, slot, err);
}

static pr_status take_text(reading *read, field which, const amqp_table_entry_t *entry,
                           pr_error *err)
{
    int64_t number = 0;
    if (is_text(&entry->value)) {
        read->texts[which] = entry->value.value.bytes;
    } else if (integer_of(&entry->value, &number)) {
        pr__format(read->numbers[which], sizeof(read->numbers[which]), "%lld", (long long)number);
        read->texts[which] = (amqp_bytes_t){strlen(read->numbers[which]), read->numbers[which]};
    } else {
        return wrong(entry->key, "is no text", err);
    }
    if (!read->texts[which].bytes) /* empty, and yet there */
        read->texts[which].bytes = read->numbers[which];
    return PR_OK;
}

/* ---- which header is which ---- */

static bool cloud_attribute(amqp_bytes_t name, const char **ret_attribute, size_t *ret_size)
{
    static const size_t prefix = sizeof(PR__WIRE_CE_COLON) - 1;
    if (name.len <= prefix || (memcmp(name.bytes, PR__WIRE_CE_COLON, prefix) != 0 &&
                               memcmp(name.bytes, PR__WIRE_CE_UNDERSCORE, prefix) != 0))
        return false;
    *ret_attribute = (const char *)name.bytes + prefix;
    *ret_size = name.len - prefix;
    return true;
}

static bool attribute_is(const char *attribute, size_t size, const char *text)
{
    return strlen(text) == size && memcmp(attribute, text, size) == 0;
}

/* Where the value of a CloudEvents attribute goes; NULL: it stays a header. */
static amqp_bytes_t *cloud_slot(reading *read, amqp_bytes_t name, bool *ret_known)
{
    const char *attribute;
    size_t size;
    *ret_known = false;
    if (!cloud_attribute(name, &attribute, &size))
        return NULL;
    *ret_known = attribute_is(attribute, size, "specversion");
    if (attribute_is(attribute, size, "time"))
        return &read->cloud_time;
    for (int i = 0; i < FIELD_COUNT; i++) {
        if (field_names[i].cloud && attribute_is(attribute, size, field_names[i].cloud))
            return &read->cloud[i];
    }
    return NULL;
}

static int field_of(amqp_bytes_t name)
{
    for (int i = 0; i < FIELD_COUNT; i++) {
        if (field_names[i].header && pr__wire_name_is(name, field_names[i].header))
            return i;
    }
    return -1;
}

static bool is_number(amqp_bytes_t name)
{
    return pr__wire_name_is(name, PR__WIRE_TYPE_VERSION) ||
           pr__wire_name_is(name, PR__WIRE_OCCURRED_AT) ||
           pr__wire_name_is(name, PR__WIRE_EXPIRES_AT);
}

/* Is this entry a part of the envelope, or the broker's, so that it is no header of the message? */
static bool is_envelope(void *user, const amqp_table_entry_t *entry)
{
    reading *read = user;
    bool known;
    if (field_of(entry->key) >= 0 || is_number(entry->key) ||
        pr__wire_is_brokers(entry->key.bytes, entry->key.len))
        return true;
    return (cloud_slot(read, entry->key, &known) && is_text(&entry->value)) || known;
}

static pr_status read_entry(reading *read, const amqp_table_entry_t *entry, pr_error *err)
{
    bool known;
    amqp_bytes_t *slot = cloud_slot(read, entry->key, &known);
    if (slot) {
        if (is_text(&entry->value))
            *slot = entry->value.value.bytes;
        return PR_OK;
    }
    if (pr__wire_name_is(entry->key, "x-delivery-count")) {
        if (!integer_of(&entry->value, &read->delivery_count))
            read->delivery_count = 0;
        return PR_OK;
    }
    if (pr__wire_name_is(entry->key, PR__WIRE_TYPE_VERSION))
        return take_integer(entry, &read->version, err);
    if (pr__wire_name_is(entry->key, PR__WIRE_OCCURRED_AT)) {
        read->has_occurred_at = true;
        return take_instant(entry, &read->occurred_at_us, err);
    }
    if (pr__wire_name_is(entry->key, PR__WIRE_EXPIRES_AT))
        return take_instant(entry, &read->expires_at_us, err);
    int which = field_of(entry->key);
    return which >= 0 ? take_text(read, (field)which, entry, err) : PR_OK;
}

static void read_property(reading *read, field which, const amqp_basic_properties_t *properties,
                          amqp_flags_t flag, amqp_bytes_t value)
{
    if (!(properties->_flags & flag))
        return;
    read->texts[which] = value;
    if (!value.bytes)
        read->texts[which] = (amqp_bytes_t){0, read->numbers[which]};
}

static pr_status read_all(reading *read, const amqp_basic_properties_t *properties, pr_error *err)
{
    read_property(read, FIELD_ID, properties, AMQP_BASIC_MESSAGE_ID_FLAG, properties->message_id);
    read_property(read, FIELD_TYPE, properties, AMQP_BASIC_TYPE_FLAG, properties->type);
    read_property(read, FIELD_CONTENT_TYPE, properties, AMQP_BASIC_CONTENT_TYPE_FLAG,
                  properties->content_type);
    read_property(read, FIELD_CORRELATION_ID, properties, AMQP_BASIC_CORRELATION_ID_FLAG,
                  properties->correlation_id);
    if (properties->_flags & AMQP_BASIC_HEADERS_FLAG) {
        for (int i = 0; i < properties->headers.num_entries; i++)
            TRY(read_entry(read, &properties->headers.entries[i], err));
    }
    for (int i = 0; i < FIELD_COUNT; i++) {
        if (!read->texts[i].bytes)
            read->texts[i] = read->cloud[i];
        const amqp_bytes_t text = read->texts[i];
        if (text.len > 0 && memchr(text.bytes, '\0', text.len))
            return pr__fail(err, PR_E_CONTENT, ORIGIN, "its %s has a NUL",
                            field_names[i].header ? field_names[i].header
                                                  : "id, type, content "
                                                    "type or correlation "
                                                    "id");
    }
    if (read->version < 0 || read->version > UINT32_MAX)
        return pr__fail(err, PR_E_CONTENT, ORIGIN, "header '%s' is out of range",
                        PR__WIRE_TYPE_VERSION);
    if (!read->has_occurred_at && (properties->_flags & AMQP_BASIC_TIMESTAMP_FLAG) &&
        properties->timestamp <= PR_INSTANT_MAX_US / 1000000)
        read->occurred_at_us = (int64_t)properties->timestamp * 1000000;
    else if (!read->has_occurred_at && read->cloud_time.len > 0 &&
             !pr__instant_parse(read->cloud_time.bytes, read->cloud_time.len,
                                &read->occurred_at_us))
        read->occurred_at_us = 0;
    return PR_OK;
}

/* ---- the block ---- */

static const char *put(char **at, amqp_bytes_t text)
{
    if (!text.bytes)
        return NULL;
    char *copy = *at;
    if (text.len > 0)
        memcpy(copy, text.bytes, text.len);
    copy[text.len] = '\0';
    *at += text.len + 1;
    return copy;
}

static pr__wire_in *build(const reading *read, uint64_t body_size)
{
    size_t size = sizeof(pr__wire_in) + 1;
    for (int i = 0; i < FIELD_COUNT; i++)
        size += read->texts[i].bytes ? read->texts[i].len + 1 : 0;
    if (__builtin_add_overflow(size, body_size, &size))
        return NULL;
    pr__wire_in *in = pr__alloc(size);
    if (!in)
        return NULL;
    char *at = (char *)(in + 1);
    const char *texts[FIELD_COUNT];
    for (int i = 0; i < FIELD_COUNT; i++)
        texts[i] = put(&at, read->texts[i]);
    in->body = (unsigned char *)at;
    in->delivery_count = read->delivery_count < 0            ? 0
                         : read->delivery_count > UINT32_MAX ? UINT32_MAX
                                                             : (uint32_t)read->delivery_count;
    in->message = (pr_message)
        PR_MESSAGE(.type_version = read->version ? (uint32_t)read->version : 1,
                   .id = texts[FIELD_ID], .type = texts[FIELD_TYPE],
                   .content_type = texts[FIELD_CONTENT_TYPE],
                   .destination = texts[FIELD_DESTINATION], .source = texts[FIELD_SOURCE],
                   .key = texts[FIELD_KEY], .tenant = texts[FIELD_TENANT],
                   .correlation_id = texts[FIELD_CORRELATION_ID],
                   .causation_id = texts[FIELD_CAUSATION_ID],
                   .traceparent = texts[FIELD_TRACEPARENT], .tracestate = texts[FIELD_TRACESTATE],
                   .headers = texts[FIELD_HEADERS], .body = in->body, .body_size_bytes = body_size,
                   .occurred_at_us = read->occurred_at_us, .expires_at_us = read->expires_at_us);
    return in;
}

pr_status pr__wire_decode(const amqp_basic_properties_t *properties, uint64_t body_size,
                          pr__wire_in **ret_in, pr_error *err)
{
    reading read = {.version = 0};
    AUTO_BUFFER json = PR_BUFFER_INIT;
    TRY(read_all(&read, properties, err));
    if (!read.texts[FIELD_HEADERS].bytes) {
        TRY(pr__wire_headers_json(&properties->headers, is_envelope, &read, properties, &json,
                                  err));
        if (json.size > 0)
            read.texts[FIELD_HEADERS] = (amqp_bytes_t){json.size, json.data};
    }
    pr__wire_in *in = build(&read, body_size);
    if (!in)
        return pr__fail_nomem(err, ORIGIN);
    *ret_in = in;
    return PR_OK;
}

bool pr__wire_fill(pr__wire_in *in, amqp_bytes_t fragment)
{
    if (fragment.len > in->message.body_size_bytes - in->body_filled)
        return false;
    if (fragment.len > 0)
        memcpy(in->body + in->body_filled, fragment.bytes, fragment.len);
    in->body_filled += fragment.len;
    return true;
}

void *pr__wire_in_free(pr__wire_in *in)
{
    return pr__free(in);
}
