/*
 * Headers of others as our JSON text.
 *
 * Keeps: a kind stays itself: text is a string, everything else {"<kind>": value}. Text that is not
 * UTF-8, or has a NUL, is bytes.
 * Must not know: which headers mean something.
 */
#include <math.h>
#include <string.h>

#include "base/error.h"
#include "base/json_writer.h"
#include "base/text.h"
#include "base/time.h"
#include "transport/amqp/wire.h"

#define ORIGIN "amqp.wire"

static bool write_field(pr__json *json, const amqp_field_value_t *value, unsigned depth);

static void write_kind_text(pr__json *json, const char *kind, const char *text)
{
    pr__json_object_begin(json);
    pr__json_member_text(json, kind, text);
    pr__json_object_end(json);
}

static bool write_int(pr__json *json, int64_t value)
{
    pr__json_object_begin(json);
    pr__json_member_int(json, "int", value);
    pr__json_object_end(json);
    return true;
}

static bool write_bytes(pr__json *json, amqp_bytes_t bytes, bool texty)
{
    if (texty && pr__utf8_valid(bytes.bytes, bytes.len) &&
        (bytes.len == 0 || !memchr(bytes.bytes, '\0', bytes.len))) {
        pr__json_text_n(json, bytes.len > 0 ? bytes.bytes : "", bytes.len);
        return true;
    }
    pr__json_object_begin(json);
    pr__json_key(json, "bytes");
    pr__json_base64(json, bytes.bytes, bytes.len);
    pr__json_object_end(json);
    return true;
}

static bool write_double(pr__json *json, double value)
{
    if (!isfinite(value)) {
        write_kind_text(json, "non-finite", isnan(value) ? "nan" : value > 0 ? "inf" : "-inf");
        return true;
    }
    pr__json_object_begin(json);
    pr__json_member_double(json, "double", value);
    pr__json_object_end(json);
    return true;
}

static bool write_timestamp(pr__json *json, uint64_t seconds)
{
    if (seconds > PR_INSTANT_MAX_US / 1000000) {
        char text[24];
        pr__format(text, sizeof(text), "%llu", (unsigned long long)seconds);
        write_kind_text(json, "timestamp", text);
        return true;
    }
    pr__json_object_begin(json);
    pr__json_key(json, "instant");
    pr__json_instant(json, (int64_t)seconds * 1000000);
    pr__json_object_end(json);
    return true;
}

static bool write_decimal(pr__json *json, amqp_decimal_t decimal)
{
    char text[40];
    pr__format(text, sizeof(text), "%uE-%u", (unsigned)decimal.value, (unsigned)decimal.decimals);
    write_kind_text(json, "decimal", text);
    return true;
}

/* Keys of nested tables are no short strings to us: any NUL ends the attempt. */
static bool write_key(pr__json *json, amqp_bytes_t key)
{
    char name[PR__WIRE_SHORT_MAX + 1];
    if (key.len > PR__WIRE_SHORT_MAX || (key.len > 0 && memchr(key.bytes, '\0', key.len)))
        return false;
    if (key.len > 0)
        memcpy(name, key.bytes, key.len);
    name[key.len] = '\0';
    pr__json_key(json, name);
    return true;
}

static bool write_nested(pr__json *json, const amqp_field_value_t *value, unsigned depth)
{
    if (depth >= PR__WIRE_NEST_MAX)
        return false;
    bool whole = true;
    pr__json_object_begin(json);
    if (value->kind == AMQP_FIELD_KIND_TABLE) {
        pr__json_key(json, "table");
        pr__json_object_begin(json);
        for (int i = 0; i < value->value.table.num_entries && whole; i++) {
            const amqp_table_entry_t *entry = &value->value.table.entries[i];
            whole = write_key(json, entry->key) && write_field(json, &entry->value, depth + 1);
        }
        pr__json_object_end(json);
    } else {
        pr__json_key(json, "array");
        pr__json_array_begin(json);
        for (int i = 0; i < value->value.array.num_entries && whole; i++)
            whole = write_field(json, &value->value.array.entries[i], depth + 1);
        pr__json_array_end(json);
    }
    pr__json_object_end(json);
    return whole;
}

static bool write_field(pr__json *json, const amqp_field_value_t *value, unsigned depth)
{
    switch (value->kind) {
    case AMQP_FIELD_KIND_UTF8:
        return write_bytes(json, value->value.bytes, true);
    case AMQP_FIELD_KIND_BYTES:
        return write_bytes(json, value->value.bytes, false);
    case AMQP_FIELD_KIND_BOOLEAN:
        pr__json_object_begin(json);
        pr__json_member_bool(json, "bool", value->value.boolean != 0);
        pr__json_object_end(json);
        return true;
    case AMQP_FIELD_KIND_I8:
        return write_int(json, value->value.i8);
    case AMQP_FIELD_KIND_U8:
        return write_int(json, value->value.u8);
    case AMQP_FIELD_KIND_I16:
        return write_int(json, value->value.i16);
    case AMQP_FIELD_KIND_U16:
        return write_int(json, value->value.u16);
    case AMQP_FIELD_KIND_I32:
        return write_int(json, value->value.i32);
    case AMQP_FIELD_KIND_U32:
        return write_int(json, value->value.u32);
    case AMQP_FIELD_KIND_I64:
        return write_int(json, value->value.i64);
    case AMQP_FIELD_KIND_U64:
        if (value->value.u64 <= INT64_MAX)
            return write_int(json, (int64_t)value->value.u64);
        pr__json_object_begin(json);
        pr__json_member_uint(json, "uint", value->value.u64);
        pr__json_object_end(json);
        return true;
    case AMQP_FIELD_KIND_F32:
        return write_double(json, (double)value->value.f32);
    case AMQP_FIELD_KIND_F64:
        return write_double(json, value->value.f64);
    case AMQP_FIELD_KIND_TIMESTAMP:
        return write_timestamp(json, value->value.u64);
    case AMQP_FIELD_KIND_DECIMAL:
        return write_decimal(json, value->value.decimal);
    case AMQP_FIELD_KIND_TABLE:
    case AMQP_FIELD_KIND_ARRAY:
        return write_nested(json, value, depth);
    case AMQP_FIELD_KIND_VOID:
        write_kind_text(json, "void", "");
        return true;
    default: /* a byte from the wire: librabbitmq refuses what is none */
        return false;
    }
}

/* Properties that we have no field for, and that a receiver may need. */
static void write_property(pr__json *json, const amqp_basic_properties_t *properties,
                           amqp_flags_t flag, const char *name, amqp_bytes_t value)
{
    if (!(properties->_flags & flag) || value.len == 0)
        return;
    pr__json_key(json, name);
    write_bytes(json, value, true);
}

pr_status pr__wire_headers_json(const amqp_table_t *table,
                                bool (*skip)(void *user, const amqp_table_entry_t *entry),
                                void *user, const amqp_basic_properties_t *properties,
                                pr__buffer *buffer, pr_error *err)
{
    pr__json json;
    pr__json_init(&json, buffer);
    pr__json_object_begin(&json);
    bool whole = true;
    bool have_table = (properties->_flags & AMQP_BASIC_HEADERS_FLAG) != 0;
    for (int i = 0; have_table && i < table->num_entries && whole; i++) {
        const amqp_table_entry_t *entry = &table->entries[i];
        if (skip(user, entry))
            continue;
        whole = entry->key.len > 0 && write_key(&json, entry->key) &&
                write_field(&json, &entry->value, 0);
    }
    write_property(&json, properties, AMQP_BASIC_REPLY_TO_FLAG, "amqp-reply-to",
                   properties->reply_to);
    write_property(&json, properties, AMQP_BASIC_CONTENT_ENCODING_FLAG, "amqp-content-encoding",
                   properties->content_encoding);
    pr__json_object_end(&json);
    if (buffer->failed)
        return pr__fail_nomem(err, ORIGIN);
    if (!whole || json.failed)
        return pr__fail(err, PR_E_CONTENT, ORIGIN,
                        "its headers are nested more than %d deep, or one has no name",
                        PR__WIRE_NEST_MAX);
    if (buffer->size <= 2) /* {} */
        pr__buffer_clear(buffer);
    return PR_OK;
}
