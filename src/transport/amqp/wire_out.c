/*
 * A message on its way out.
 *
 * Owns: which property and header holds which part of the envelope.
 * Keeps: what librabbitmq could not encode is found here, before a frame was sent: short strings,
 * and the size of the content header. Nothing is cut.
 * Must not know: exchanges, channels.
 */
#include <string.h>

#include "base/error.h"
#include "base/text.h"
#include "base/time.h"
#include "transport/amqp/wire.h"

#define ORIGIN "amqp.wire"
#define MARGIN 64 /* of a frame: its head and end, class, size, flags, delivery mode, timestamp */
#define CE     PR__WIRE_CE_COLON

void pr__wire_out_done(pr__wire_out *out)
{
    pr__free(out->entries);
    json_decref(out->json);
    pr__buffer_done(&out->bytes);
    *out = (pr__wire_out){.entries = NULL};
}

static amqp_bytes_t bytes_of(const char *text, size_t size)
{
    /* librabbitmq takes what it only reads as void * */
    union {
        const char *text;
        void *bytes;
    } u = {.text = text};
    return (amqp_bytes_t){.len = size, .bytes = u.bytes};
}

static amqp_bytes_t bytes_of_text(const char *text)
{
    return bytes_of(text, strlen(text));
}

/* ---- the table ---- */

static amqp_table_entry_t *add(pr__wire_out *out, const char *name, uint8_t kind,
                               size_t encoded_size)
{
    if (out->count == out->capacity) {
        size_t capacity = out->capacity ? out->capacity * 2 : 32;
        amqp_table_entry_t *grown =
            pr__realloc_array(out->entries, capacity, sizeof(*out->entries));
        if (!grown) {
            out->failed = true;
            return NULL;
        }
        out->entries = grown;
        out->capacity = capacity;
    }
    amqp_table_entry_t *entry = &out->entries[out->count++];
    *entry = (amqp_table_entry_t){.key = bytes_of_text(name), .value = {.kind = kind}};
    out->table_size += 1 + entry->key.len + 1 + encoded_size;
    return entry;
}

static void add_bytes(pr__wire_out *out, const char *name, uint8_t kind, const char *text,
                      size_t size)
{
    amqp_table_entry_t *entry = add(out, name, kind, 4 + size);
    if (entry)
        entry->value.value.bytes = bytes_of(text, size);
}

static void add_text(pr__wire_out *out, const char *name, const char *text)
{
    if (text)
        add_bytes(out, name, AMQP_FIELD_KIND_UTF8, text, strlen(text));
}

static void add_int(pr__wire_out *out, const char *name, int64_t value)
{
    amqp_table_entry_t *entry = add(out, name, AMQP_FIELD_KIND_I64, 8);
    if (entry)
        entry->value.value.i64 = value;
}

/* Room that stays where it is until the next message: an arena of one block. */
static char *room(pr__wire_out *out, size_t size)
{
    if (out->bytes.failed || out->bytes.size + size > out->bytes.capacity) {
        out->failed = true;
        return NULL;
    }
    char *at = out->bytes.data + out->bytes.size;
    out->bytes.size += size;
    return at;
}

/* ---- headers of the message, as native ones ---- */

bool pr__wire_is_brokers(const char *name, size_t size)
{
    static const char *const whole[] = {"CC", "BCC", "x-delivery-count", "x-received-from",
                                        "x-acquired-count"};
    static const char *const begins[] = {"x-death", "x-first-death", "x-last-death", "x-opt-",
                                         "x-stream-"};
    for (size_t i = 0; i < sizeof(whole) / sizeof(whole[0]); i++) {
        if (strlen(whole[i]) == size && memcmp(name, whole[i], size) == 0)
            return true;
    }
    for (size_t i = 0; i < sizeof(begins) / sizeof(begins[0]); i++) {
        size_t prefix = strlen(begins[i]);
        if (size >= prefix && memcmp(name, begins[i], prefix) == 0)
            return true;
    }
    return false;
}

static bool is_ours(const char *name)
{
    static const char *const ours[] = {
        PR__WIRE_TYPE_VERSION, PR__WIRE_DESTINATION,  PR__WIRE_SOURCE,      PR__WIRE_KEY,
        PR__WIRE_TENANT,       PR__WIRE_CAUSATION_ID, PR__WIRE_OCCURRED_AT, PR__WIRE_EXPIRES_AT,
        PR__WIRE_HEADERS,      PR__WIRE_TRACEPARENT,  PR__WIRE_TRACESTATE};
    for (size_t i = 0; i < sizeof(ours) / sizeof(ours[0]); i++) {
        if (strcmp(name, ours[i]) == 0)
            return true;
    }
    return pr__text_starts_with(name, PR__WIRE_CE_COLON) ||
           pr__text_starts_with(name, PR__WIRE_CE_UNDERSCORE);
}

static void add_base64(pr__wire_out *out, const char *name, const json_t *value)
{
    size_t size = 0;
    char *at = json_is_string(value) ? room(out, json_string_length(value) + 1) : NULL;
    if (at && pr__base64_decode(json_string_value(value), json_string_length(value), at, &size))
        add_bytes(out, name, AMQP_FIELD_KIND_BYTES, at, size);
}

/* A header of another kind than text; the whole of it stands in postroom-headers anyhow. */
static void add_kind(pr__wire_out *out, const char *name, const char *kind, json_t *value)
{
    int64_t instant = 0;
    amqp_table_entry_t *entry = NULL;
    if (strcmp(kind, "int") == 0 && json_is_integer(value)) {
        add_int(out, name, json_integer_value(value));
    } else if (strcmp(kind, "double") == 0 && json_is_number(value)) {
        entry = add(out, name, AMQP_FIELD_KIND_F64, 8);
        if (entry)
            entry->value.value.f64 = json_number_value(value);
    } else if (strcmp(kind, "bool") == 0 && json_is_boolean(value)) {
        entry = add(out, name, AMQP_FIELD_KIND_BOOLEAN, 1);
        if (entry)
            entry->value.value.boolean = json_is_true(value);
    } else if (strcmp(kind, "instant") == 0 && json_is_string(value) &&
               pr__instant_parse(json_string_value(value), json_string_length(value), &instant) &&
               instant >= 0) {
        entry = add(out, name, AMQP_FIELD_KIND_TIMESTAMP, 8);
        if (entry)
            entry->value.value.u64 = (uint64_t)(instant / 1000000);
    } else if (strcmp(kind, "bytes") == 0) {
        add_base64(out, name, value);
    } else if (json_is_string(value)) {
        add_bytes(out, name, AMQP_FIELD_KIND_UTF8, json_string_value(value),
                  json_string_length(value));
    }
}

static pr_status add_headers(pr__wire_out *out, const char *text, pr_error *err)
{
    size_t size = strlen(text);
    json_error_t fault;
    out->json = json_loadb(text, size, JSON_REJECT_DUPLICATES, &fault);
    if (!json_is_object(out->json))
        return pr__fail(err, PR_E_CONTENT, ORIGIN, "its headers are no JSON object");
    if (out->bytes.capacity < size + 1) { /* decoded bytes are never more than their text */
        pr__buffer_done(&out->bytes);
        out->bytes.data = pr__alloc(size + 1);
        out->bytes.capacity = out->bytes.data ? size + 1 : 0;
        out->bytes.failed = !out->bytes.data;
    }
    out->bytes.size = 0;
    add_bytes(out, PR__WIRE_HEADERS, AMQP_FIELD_KIND_UTF8, text, size);
    const char *name;
    json_t *member;
    json_object_foreach(out->json, name, member)
    {
        size_t name_size = strlen(name);
        if (name_size > PR__WIRE_SHORT_MAX || pr__wire_is_brokers(name, name_size) || is_ours(name))
            continue;
        if (json_is_string(member))
            add_bytes(out, name, AMQP_FIELD_KIND_UTF8, json_string_value(member),
                      json_string_length(member));
        else if (json_is_object(member) && json_object_size(member) == 1)
            add_kind(out, name, json_object_iter_key(json_object_iter(member)),
                     json_object_iter_value(json_object_iter(member)));
    }
    return PR_OK;
}

/* ---- CloudEvents 1.0, binary mode ---- */

static void add_cloudevent(pr__wire_out *out, const pr_message *message)
{
    add_text(out, CE "specversion", "1.0");
    add_text(out, CE "id", message->id);
    add_text(out, CE "source", pr__text_empty(message->source) ? "urn:postroom" : message->source);
    add_text(out, CE "type", message->type);
    if (pr__instant_valid(message->occurred_at_us) && message->occurred_at_us != 0) {
        pr__instant_text(message->occurred_at_us, out->time);
        add_text(out, CE "time", out->time);
    }
    add_text(out, CE "partitionkey", message->key);
    add_text(out, CE "traceparent", message->traceparent);
    add_text(out, CE "tracestate", message->tracestate);
}

/* ---- the whole ---- */

static pr_status set_short(amqp_basic_properties_t *properties, amqp_bytes_t *slot,
                           amqp_flags_t flag, const char *text, const char *what, pr_error *err)
{
    if (!text)
        return PR_OK;
    *slot = bytes_of_text(text);
    if (slot->len > PR__WIRE_SHORT_MAX)
        return pr__fail(err, PR_E_LIMIT, ORIGIN, "its %s has %zu bytes, AMQP takes %d", what,
                        slot->len, PR__WIRE_SHORT_MAX);
    properties->_flags |= flag;
    return PR_OK;
}

static pr_status set_properties(const pr_message *message, amqp_basic_properties_t *properties,
                                pr_error *err)
{
    *properties = (amqp_basic_properties_t){._flags = AMQP_BASIC_DELIVERY_MODE_FLAG,
                                            .delivery_mode = AMQP_DELIVERY_PERSISTENT};
    TRY(set_short(properties, &properties->message_id, AMQP_BASIC_MESSAGE_ID_FLAG, message->id,
                  "id", err));
    TRY(set_short(properties, &properties->type, AMQP_BASIC_TYPE_FLAG, message->type, "type", err));
    TRY(set_short(properties, &properties->content_type, AMQP_BASIC_CONTENT_TYPE_FLAG,
                  message->content_type, "content type", err));
    TRY(set_short(properties, &properties->correlation_id, AMQP_BASIC_CORRELATION_ID_FLAG,
                  message->correlation_id, "correlation id", err));
    if (message->occurred_at_us > 0) {
        properties->timestamp = (uint64_t)(message->occurred_at_us / 1000000);
        properties->_flags |= AMQP_BASIC_TIMESTAMP_FLAG;
    }
    return PR_OK;
}

/* The short strings as they are encoded: a byte of length each. */
static size_t short_size(const amqp_basic_properties_t *properties)
{
    return 4 + properties->message_id.len + properties->type.len + properties->content_type.len +
           properties->correlation_id.len;
}

pr_status pr__wire_encode(pr__wire_out *out, const pr_message *message, bool cloudevents,
                          size_t frame_max, amqp_basic_properties_t *ret_properties, pr_error *err)
{
    json_decref(out->json);
    out->json = NULL;
    out->count = 0;
    out->table_size = 0;
    out->failed = false;
    TRY(set_properties(message, ret_properties, err));
    add_int(out, PR__WIRE_TYPE_VERSION, message->type_version ? message->type_version : 1);
    if (message->occurred_at_us != 0)
        add_int(out, PR__WIRE_OCCURRED_AT, message->occurred_at_us);
    if (message->expires_at_us != 0)
        add_int(out, PR__WIRE_EXPIRES_AT, message->expires_at_us);
    add_text(out, PR__WIRE_DESTINATION, message->destination);
    add_text(out, PR__WIRE_SOURCE, message->source);
    add_text(out, PR__WIRE_KEY, message->key);
    if (!pr__text_empty(message->tenant))
        add_text(out, PR__WIRE_TENANT, message->tenant);
    add_text(out, PR__WIRE_CAUSATION_ID, message->causation_id);
    add_text(out, PR__WIRE_TRACEPARENT, message->traceparent);
    add_text(out, PR__WIRE_TRACESTATE, message->tracestate);
    if (cloudevents)
        add_cloudevent(out, message);
    if (!pr__text_empty(message->headers))
        TRY(add_headers(out, message->headers, err));
    if (out->failed)
        return pr__fail_nomem(err, ORIGIN);
    size_t size = out->table_size + short_size(ret_properties) + MARGIN;
    if (size > frame_max)
        return pr__fail(err, PR_E_LIMIT, ORIGIN,
                        "its headers have %zu bytes as AMQP, a frame of the broker takes %zu",
                        out->table_size, frame_max);
    ret_properties->headers =
        (amqp_table_t){.num_entries = (int)out->count, .entries = out->entries};
    ret_properties->_flags |= AMQP_BASIC_HEADERS_FLAG;
    return PR_OK;
}
