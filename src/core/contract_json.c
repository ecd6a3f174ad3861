/*
 * The JSON codec of a field table: jansson reads, our own writer writes.
 *
 * Owns: how each kind stands in JSON.
 * Keeps: what it wrote it reads back to the same object; errors name the path of the field, such as
 * 'lines[3].price', and never what stands there.
 * Must not know: the registry.
 */
#include <math.h>
#include <string.h>

#include "base/error.h"
#include "base/json_writer.h"
#include "base/text.h"
#include "base/time.h"
#include "base/uuid.h"
#include "core/contract.h"
#include "core/json.h"
#include "core/message.h"

#define ORIGIN     "contract"
#define PATH_SIZE  256
#define NAME_SHOWN 64

/* Where in the object we are; lives on the stack, written out for an error only. */
typedef struct field_path {
    const struct field_path *outer;
    const char *name; /* NULL for an element of a list */
    size_t index;
    uint32_t depth;
} field_path;

static void path_text(const field_path *path, pr__buffer *out)
{
    if (path->outer)
        path_text(path->outer, out);
    if (!path->name)
        pr__buffer_printf(out, "[%zu]", path->index);
    else
        pr__buffer_printf(out, "%s%.*s", out->size > 0 ? "." : "", NAME_SHOWN, path->name);
}

static pr_status fail_at(const field_path *path, pr_error *err, const char *what)
{
    AUTO_BUFFER text = PR_BUFFER_INIT;
    char shown[PATH_SIZE];
    path_text(path, &text);
    const char *whole = pr__buffer_text(&text);
    pr__format(shown, sizeof(shown), "%s", whole ? whole : "?");
    return pr__fail(err, PR_E_CONTENT, ORIGIN, "field '%s' %s", shown, what);
}

/* ---- writing ---- */

static pr_status encode_object(pr__json *json, const pr_field *fields, const void *object,
                               const field_path *outer, pr_error *err);

static pr_status encode_text(pr__json *json, const char *at, const field_path *path, pr_error *err)
{
    const char *text;
    memcpy(&text, at, sizeof(text));
    if (!text)
        return fail_at(path, err, "is NULL");
    size_t size = strlen(text);
    if (!pr__utf8_valid(text, size))
        return fail_at(path, err, "is not valid UTF-8");
    pr__json_text_n(json, text, size);
    return PR_OK;
}

static pr_status encode_number(pr__json *json, pr_field_kind kind, const char *at,
                               const field_path *path, pr_error *err)
{
    double real;
    int64_t integer;
    if (kind == PR_FIELD_DOUBLE) {
        memcpy(&real, at, sizeof(real));
        if (!isfinite(real))
            return fail_at(path, err, "is not a finite number");
        pr__json_double(json, real);
        return PR_OK;
    }
    memcpy(&integer, at, sizeof(integer));
    if (kind == PR_FIELD_INT64) {
        pr__json_int(json, integer);
        return PR_OK;
    }
    if (!pr__instant_valid(integer))
        return fail_at(path, err, "is a time out of the years 1 to 9999");
    pr__json_instant(json, integer);
    return PR_OK;
}

static pr_status encode_bytes(pr__json *json, const char *at, const field_path *path, pr_error *err)
{
    pr_bytes bytes;
    memcpy(&bytes, at, sizeof(bytes));
    if (!bytes.data && bytes.size > 0)
        return fail_at(path, err, "is NULL with a size");
    pr__json_base64(json, bytes.data, bytes.size);
    return PR_OK;
}

static pr_status encode_uuid(pr__json *json, const char *at, const field_path *path, pr_error *err)
{
    if (!memchr(at, '\0', PR_UUID_TEXT_SIZE) || !pr__uuid_valid(at))
        return fail_at(path, err, "is not a UUID");
    pr__json_text(json, at);
    return PR_OK;
}

static pr_status encode_value(pr__json *json, pr_field_kind kind, const pr_field *field,
                              const char *at, const field_path *path, pr_error *err);

static pr_status encode_list(pr__json *json, const pr_field *field, const char *at,
                             const field_path *path, pr_error *err)
{
    pr_list list;
    memcpy(&list, at, sizeof(list));
    if (!list.items && list.count > 0)
        return fail_at(path, err, "is NULL with a count");
    size_t step = pr__field_element_size(field);
    pr__json_array_begin(json);
    for (size_t i = 0; i < list.count; i++) {
        field_path element = {path, NULL, i, path->depth + 1};
        TRY(encode_value(json, field->element_kind, field, (const char *)list.items + i * step,
                         &element, err));
    }
    pr__json_array_end(json);
    return PR_OK;
}

static pr_status encode_value(pr__json *json, pr_field_kind kind, const pr_field *field,
                              const char *at, const field_path *path, pr_error *err)
{
    bool boolean;
    switch (kind) {
    case PR_FIELD_TEXT:
        return encode_text(json, at, path, err);
    case PR_FIELD_BYTES:
        return encode_bytes(json, at, path, err);
    case PR_FIELD_INT64:
    case PR_FIELD_DOUBLE:
    case PR_FIELD_INSTANT:
        return encode_number(json, kind, at, path, err);
    case PR_FIELD_BOOL:
        memcpy(&boolean, at, sizeof(boolean));
        pr__json_bool(json, boolean);
        return PR_OK;
    case PR_FIELD_UUID:
        return encode_uuid(json, at, path, err);
    case PR_FIELD_NESTED:
        return encode_object(json, field->nested, at, path, err);
    case PR_FIELD_LIST:
        return encode_list(json, field, at, path, err);
    }
    return fail_at(path, err, "has an unknown kind");
}

static pr_status encode_object(pr__json *json, const pr_field *fields, const void *object,
                               const field_path *outer, pr_error *err)
{
    uint32_t depth = outer ? outer->depth + 1 : 1;
    if (depth > PR_JSON_DEPTH_MAX)
        return fail_at(outer, err, "nests deeper than 32");
    pr__json_object_begin(json);
    for (const pr_field *field = fields; field->name; field++) {
        field_path path = {outer, field->name, 0, depth};
        if (field->flags & PR_FIELD_OPTIONAL) {
            bool present;
            memcpy(&present, (const char *)object + field->presence_offset, sizeof(present));
            if (!present)
                continue;
        }
        pr__json_key(json, field->name);
        TRY(encode_value(json, field->kind, field, (const char *)object + field->offset, &path,
                         err));
    }
    pr__json_object_end(json);
    return PR_OK;
}

pr_status pr__contract_json_encode(const pr_field *fields, const void *object, pr__buffer *out,
                                   pr_error *err)
{
    pr__json json;
    pr__json_init(&json, out);
    TRY(encode_object(&json, fields, object, NULL, err));
    if (json.failed)
        return pr__fail(err, PR_E_CONTENT, ORIGIN, "the object nests deeper than 32");
    return PR_OK;
}

/* ---- reading ---- */

typedef struct decoder {
    const pr_message *message;
    pr__arena *arena;
    bool refuse_unknown;
    pr_error *err;
} decoder;

static pr_status decode_object(decoder *d, const pr_field *fields, json_t *value, void *object,
                               const field_path *outer);

static pr_status decode_text(decoder *d, json_t *value, char *at, const field_path *path)
{
    if (!json_is_string(value))
        return fail_at(path, d->err, "is not text");
    const char *text =
        pr__arena_strndup(d->arena, json_string_value(value), json_string_length(value));
    if (!text)
        return pr__fail_nomem(d->err, ORIGIN);
    memcpy(at, &text, sizeof(text));
    return PR_OK;
}

static pr_status decode_bytes(decoder *d, json_t *value, char *at, const field_path *path)
{
    if (!json_is_string(value))
        return fail_at(path, d->err, "is not base64");
    size_t text_size = json_string_length(value);
    pr_bytes bytes = {NULL, 0};
    char *data = pr__arena_alloc(d->arena, text_size / 4 * 3 + 1);
    if (!data)
        return pr__fail_nomem(d->err, ORIGIN);
    if (!pr__base64_decode(json_string_value(value), text_size, data, &bytes.size))
        return fail_at(path, d->err, "is not base64");
    bytes.data = data;
    memcpy(at, &bytes, sizeof(bytes));
    return PR_OK;
}

static pr_status decode_uuid(decoder *d, const pr_field *field, json_t *value, char *at,
                             const field_path *path)
{
    uint8_t bytes[16];
    if (!json_is_string(value) || !pr__uuid_parse(json_string_value(value), bytes))
        return fail_at(path, d->err, "is not a UUID");
    pr__uuid_text(bytes, at);
    if ((field->flags & PR_FIELD_MESSAGE_ID) && d->message->id &&
        !pr__message_id_equal(at, d->message->id))
        return fail_at(path, d->err, "is the message's id, but differs from the envelope's");
    return PR_OK;
}

static pr_status decode_instant(decoder *d, const pr_field *field, json_t *value, char *at,
                                const field_path *path)
{
    int64_t instant_us;
    if (!json_is_string(value) ||
        !pr__instant_parse(json_string_value(value), json_string_length(value), &instant_us))
        return fail_at(path, d->err, "is not an RFC 3339 time");
    memcpy(at, &instant_us, sizeof(instant_us));
    if ((field->flags & PR_FIELD_OCCURRED_AT) && d->message->occurred_at_us != 0 &&
        instant_us != d->message->occurred_at_us)
        return fail_at(path, d->err, "is the occurrence time, but differs from the envelope's");
    return PR_OK;
}

static pr_status decode_value(decoder *d, pr_field_kind kind, const pr_field *field, json_t *value,
                              char *at, const field_path *path);

static pr_status decode_list(decoder *d, const pr_field *field, json_t *value, char *at,
                             const field_path *path)
{
    if (!json_is_array(value))
        return fail_at(path, d->err, "is not a list");
    size_t step = pr__field_element_size(field);
    pr_list list = {NULL, json_array_size(value)};
    if (list.count > SIZE_MAX / step)
        return pr__fail_nomem(d->err, ORIGIN);
    list.items = pr__arena_alloc(d->arena, list.count * step);
    if (!list.items)
        return pr__fail_nomem(d->err, ORIGIN);
    for (size_t i = 0; i < list.count; i++) {
        field_path element = {path, NULL, i, path->depth + 1};
        TRY(decode_value(d, field->element_kind, field, json_array_get(value, i),
                         (char *)list.items + i * step, &element));
    }
    memcpy(at, &list, sizeof(list));
    return PR_OK;
}

static pr_status decode_number(decoder *d, pr_field_kind kind, json_t *value, char *at,
                               const field_path *path)
{
    if (kind == PR_FIELD_INT64) {
        int64_t integer = json_integer_value(value);
        if (!json_is_integer(value))
            return fail_at(path, d->err, "is not an integer");
        memcpy(at, &integer, sizeof(integer));
        return PR_OK;
    }
    double real = json_number_value(value);
    if (!json_is_number(value))
        return fail_at(path, d->err, "is not a number");
    memcpy(at, &real, sizeof(real));
    return PR_OK;
}

static pr_status decode_value(decoder *d, pr_field_kind kind, const pr_field *field, json_t *value,
                              char *at, const field_path *path)
{
    bool boolean = json_is_true(value);
    switch (kind) {
    case PR_FIELD_TEXT:
        return decode_text(d, value, at, path);
    case PR_FIELD_BYTES:
        return decode_bytes(d, value, at, path);
    case PR_FIELD_INT64:
    case PR_FIELD_DOUBLE:
        return decode_number(d, kind, value, at, path);
    case PR_FIELD_BOOL:
        if (!json_is_boolean(value))
            return fail_at(path, d->err, "is not true or false");
        memcpy(at, &boolean, sizeof(boolean));
        return PR_OK;
    case PR_FIELD_UUID:
        return decode_uuid(d, field, value, at, path);
    case PR_FIELD_INSTANT:
        return decode_instant(d, field, value, at, path);
    case PR_FIELD_NESTED:
        if (!json_is_object(value))
            return fail_at(path, d->err, "is not an object");
        return decode_object(d, field->nested, value, at, path);
    case PR_FIELD_LIST:
        return decode_list(d, field, value, at, path);
    }
    return fail_at(path, d->err, "has an unknown kind");
}

static bool is_known(const pr_field *fields, const char *name)
{
    for (const pr_field *field = fields; field->name; field++) {
        if (strcmp(field->name, name) == 0)
            return true;
    }
    return false;
}

static pr_status check_unknown(decoder *d, const pr_field *fields, json_t *value,
                               const field_path *outer, uint32_t depth)
{
    const char *name;
    json_t *member;
    json_object_foreach(value, name, member)
    {
        field_path path = {outer, name, 0, depth};
        if (!is_known(fields, name))
            return fail_at(&path, d->err, "is not in the contract");
    }
    return PR_OK;
}

static pr_status decode_object(decoder *d, const pr_field *fields, json_t *value, void *object,
                               const field_path *outer)
{
    uint32_t depth = outer ? outer->depth + 1 : 1;
    if (depth > PR_JSON_DEPTH_MAX)
        return fail_at(outer, d->err, "nests deeper than 32");
    for (const pr_field *field = fields; field->name; field++) {
        field_path path = {outer, field->name, 0, depth};
        bool optional = (field->flags & PR_FIELD_OPTIONAL) != 0;
        json_t *member = json_object_get(value, field->name);
        bool there = member && !(optional && json_is_null(member));
        if (!there && !optional)
            return fail_at(&path, d->err, "is missing");
        if (optional)
            memcpy((char *)object + field->presence_offset, &there, sizeof(there));
        if (there)
            TRY(decode_value(d, field->kind, field, member, (char *)object + field->offset, &path));
    }
    return d->refuse_unknown ? check_unknown(d, fields, value, outer, depth) : PR_OK;
}

pr_status pr__contract_json_decode(const pr_contract *contract, const pr_message *message,
                                   pr__arena *arena, void *object, pr_error *err)
{
    if (message->body_size_bytes == 0)
        return pr__fail(err, PR_E_CONTENT, ORIGIN, "the body is empty, the contract has fields");
    AUTO(json_t) value = NULL;
    TRY(pr__json_load(message->body, (size_t)message->body_size_bytes, ORIGIN, "body", &value,
                      err));
    if (!json_is_object(value))
        return pr__fail(err, PR_E_CONTENT, ORIGIN, "the body is %s, must be a JSON object",
                        json_is_null(value) ? "null" : "another kind of value");
    decoder d = {message, arena, (contract->flags & PR_CONTRACT_REFUSE_UNKNOWN) != 0, err};
    return decode_object(&d, contract->fields, value, object, NULL);
}
