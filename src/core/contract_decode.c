/*
 * Reading JSON into an object by its field table: jansson reads, the table says what must stand.
 *
 * Owns: what each kind takes.
 * Keeps: nothing is written but into the object and memory of its arena; errors name the path of
 * the field and the byte, and never what stands there.
 * Must not know: the registry.
 */
#include <string.h>

#include <postroom/limits.h>

#include "base/error.h"
#include "base/text.h"
#include "base/time.h"
#include "base/uuid.h"
#include "core/contract.h"
#include "core/field_path.h"
#include "core/json.h"
#include "core/message.h"

#define ORIGIN "contract"

typedef struct decoder {
    const pr_message *message;
    pr__arena *arena;
    bool refuse_unknown;
    bool widened; /* a whole number beyond 64 bits stands there as a real */
    pr_error *err;
} decoder;

static pr_status fail(decoder *d, const pr__field_path *path, pr_status status, const char *what)
{
    return pr__field_fail_at(path, d->message->body, (size_t)d->message->body_size_bytes, status,
                             d->err, what);
}

static pr_status fail_at(const pr__field_path *path, decoder *d, const char *what)
{
    return fail(d, path, PR_E_CONTENT, what);
}

static pr_status check_size(decoder *d, const pr_field *field, pr_field_kind kind, size_t size,
                            const pr__field_path *path)
{
    /* an element of a list has no limit of its own */
    if (field->size_max == 0 || kind != field->kind || size <= field->size_max)
        return PR_OK;
    return fail(d, path, PR_E_LIMIT, "is larger than its size_max");
}

static pr_status decode_object(decoder *d, const pr_field *fields, json_t *value, void *object,
                               const pr__field_path *outer);

static pr_status decode_text(decoder *d, const pr_field *field, json_t *value, char *at,
                             const pr__field_path *path)
{
    if (!json_is_string(value))
        return fail_at(path, d, "is not text");
    TRY(check_size(d, field, PR_FIELD_TEXT, json_string_length(value), path));
    const char *text =
        pr__arena_strndup(d->arena, json_string_value(value), json_string_length(value));
    if (!text)
        return pr__fail_nomem(d->err, ORIGIN);
    memcpy(at, &text, sizeof(text));
    return PR_OK;
}

static pr_status decode_bytes(decoder *d, const pr_field *field, json_t *value, char *at,
                              const pr__field_path *path)
{
    if (!json_is_string(value))
        return fail_at(path, d, "is not base64");
    size_t text_size = json_string_length(value);
    pr_bytes bytes = {NULL, 0};
    char *data = pr__arena_alloc(d->arena, text_size / 4 * 3 + 1);
    if (!data)
        return pr__fail_nomem(d->err, ORIGIN);
    if (!pr__base64_decode(json_string_value(value), text_size, data, &bytes.size))
        return fail_at(path, d, "is not base64");
    TRY(check_size(d, field, PR_FIELD_BYTES, bytes.size, path));
    bytes.data = data;
    memcpy(at, &bytes, sizeof(bytes));
    return PR_OK;
}

static pr_status decode_uuid(decoder *d, const pr_field *field, json_t *value, char *at,
                             const pr__field_path *path)
{
    uint8_t bytes[16];
    if (!json_is_string(value) || !pr__uuid_parse(json_string_value(value), bytes))
        return fail_at(path, d, "is not a UUID");
    pr__uuid_text(bytes, at);
    if ((field->flags & PR_FIELD_MESSAGE_ID) && d->message->id &&
        !pr__message_id_equal(at, d->message->id))
        return fail_at(path, d, "is the message's id, but differs from the envelope's");
    return PR_OK;
}

static pr_status decode_instant(decoder *d, const pr_field *field, json_t *value, char *at,
                                const pr__field_path *path)
{
    int64_t instant_us;
    if (!json_is_string(value) ||
        !pr__instant_parse(json_string_value(value), json_string_length(value), &instant_us))
        return fail_at(path, d, "is not an RFC 3339 time");
    memcpy(at, &instant_us, sizeof(instant_us));
    if ((field->flags & PR_FIELD_OCCURRED_AT) && d->message->occurred_at_us != 0 &&
        instant_us != d->message->occurred_at_us)
        return fail_at(path, d, "is the occurrence time, but differs from the envelope's");
    return PR_OK;
}

static pr_status decode_value(decoder *d, pr_field_kind kind, const pr_field *field, json_t *value,
                              char *at, const pr__field_path *path);

static pr_status decode_list(decoder *d, const pr_field *field, json_t *value, char *at,
                             const pr__field_path *path)
{
    if (!json_is_array(value))
        return fail_at(path, d, "is not a list");
    size_t step = pr__field_element_size(field);
    pr_list list = {NULL, json_array_size(value)};
    TRY(check_size(d, field, PR_FIELD_LIST, list.count, path));
    /* a few bytes of text may stand for a large struct */
    size_t held = pr__arena_bytes(d->arena);
    if (held > PR_DECODED_SIZE_MAX || list.count > (PR_DECODED_SIZE_MAX - held) / step)
        return fail(d, path, PR_E_LIMIT, "makes the object larger than PR_DECODED_SIZE_MAX");
    list.items = pr__arena_alloc(d->arena, list.count * step);
    if (!list.items)
        return pr__fail_nomem(d->err, ORIGIN);
    for (size_t i = 0; i < list.count; i++) {
        pr__field_path element = {path, NULL, i, path->depth + 1};
        TRY(decode_value(d, field->element_kind, field, json_array_get(value, i),
                         (char *)list.items + i * step, &element));
    }
    memcpy(at, &list, sizeof(list));
    return PR_OK;
}

static pr_status decode_enum(decoder *d, const pr_field *field, json_t *value, char *at,
                             const pr__field_path *path)
{
    if (!json_is_string(value))
        return fail_at(path, d, "is not one of its names");
    for (const pr_enum_name *name = field->names; name->name; name++) {
        if (strcmp(name->name, json_string_value(value)) == 0) {
            int number = (int)name->value;
            memcpy(at, &number, sizeof(number));
            return PR_OK;
        }
    }
    return fail_at(path, d, "is not one of its names");
}

static pr_status decode_number(decoder *d, pr_field_kind kind, json_t *value, char *at,
                               const pr__field_path *path)
{
    if (kind == PR_FIELD_INT64) {
        int64_t integer = json_integer_value(value);
        if (d->widened && json_is_real(value) && pr__json_has_wide(value))
            return fail_at(path, d, "is a number that 64 bits do not hold");
        if (!json_is_integer(value))
            return fail_at(path, d, "is not an integer");
        memcpy(at, &integer, sizeof(integer));
        return PR_OK;
    }
    double real = json_number_value(value);
    if (!json_is_number(value))
        return fail_at(path, d, "is not a number");
    memcpy(at, &real, sizeof(real));
    return PR_OK;
}

static pr_status decode_value(decoder *d, pr_field_kind kind, const pr_field *field, json_t *value,
                              char *at, const pr__field_path *path)
{
    bool boolean = json_is_true(value);
    switch (kind) {
    case PR_FIELD_TEXT:
        return decode_text(d, field, value, at, path);
    case PR_FIELD_BYTES:
        return decode_bytes(d, field, value, at, path);
    case PR_FIELD_INT64:
    case PR_FIELD_DOUBLE:
        return decode_number(d, kind, value, at, path);
    case PR_FIELD_BOOL:
        if (!json_is_boolean(value))
            return fail_at(path, d, "is not true or false");
        memcpy(at, &boolean, sizeof(boolean));
        return PR_OK;
    case PR_FIELD_UUID:
        return decode_uuid(d, field, value, at, path);
    case PR_FIELD_INSTANT:
        return decode_instant(d, field, value, at, path);
    case PR_FIELD_NESTED:
        if (!json_is_object(value))
            return fail_at(path, d, "is not an object");
        return decode_object(d, field->nested, value, at, path);
    case PR_FIELD_LIST:
        return decode_list(d, field, value, at, path);
    case PR_FIELD_ENUM:
        return decode_enum(d, field, value, at, path);
    case PR_FIELD_OTHERS:
        break; /* no value: decode_others */
    }
    return fail_at(path, d, "has an unknown kind");
}

/* Keep what the table does not name, as a JSON object. */
static pr_status keep_others(decoder *d, const pr_field *fields, json_t *value, char *at,
                             const pr__field_path *path)
{
    AUTO_BUFFER text = PR_BUFFER_INIT;
    pr__json json;
    const char *name;
    json_t *member;
    pr__json_init(&json, &text);
    json.depth = path->depth - 1; /* where it will be written again */
    pr__json_object_begin(&json);
    json_object_foreach(value, name, member)
    {
        if (pr__fields_name(fields, name))
            continue;
        if (d->widened && pr__json_has_wide(member))
            return fail_at(path, d, "would keep a number that 64 bits do not hold");
        pr__json_key(&json, name);
        pr__json_put(&json, member);
    }
    pr__json_object_end(&json);
    if (json.failed)
        return fail_at(path, d, "nests deeper than 32");
    const char *whole = pr__buffer_text(&text);
    char *kept = whole ? pr__arena_strndup(d->arena, whole, text.size) : NULL;
    if (!kept)
        return pr__fail_nomem(d->err, ORIGIN);
    memcpy(at, &kept, sizeof(kept));
    return PR_OK;
}

/* The members that the table does not name: kept, refused or ignored. */
static pr_status decode_others(decoder *d, const pr_field *fields, json_t *value, void *object,
                               const pr__field_path *outer, uint32_t depth)
{
    const char *name;
    json_t *member;
    for (const pr_field *field = fields; field->name; field++) {
        pr__field_path path = {outer, field->name, 0, depth};
        if (field->kind == PR_FIELD_OTHERS)
            return keep_others(d, fields, value, (char *)object + field->offset, &path);
    }
    if (!d->refuse_unknown)
        return PR_OK;
    json_object_foreach(value, name, member)
    {
        pr__field_path path = {outer, name, 0, depth};
        if (!pr__fields_name(fields, name))
            return fail_at(&path, d, "is not in the contract");
    }
    return PR_OK;
}

/* One field of an object; *ret_count counts the members that the table names. */
static pr_status decode_field(decoder *d, const pr_field *field, json_t *value, char *object,
                              const pr__field_path *path, size_t *ret_count)
{
    bool optional = (field->flags & PR_FIELD_OPTIONAL) != 0;
    json_t *member = json_object_get(value, field->name);
    bool there = member && !(optional && json_is_null(member));
    char *at = object + field->offset;
    *ret_count += member != NULL;
    if (optional)
        memcpy(object + field->presence_offset, &there, sizeof(there));
    if (there)
        return decode_value(d, field->kind, field, member, at, path);
    if (optional)
        return PR_OK;
    if (!field->default_value)
        return fail_at(path, d, "is missing");
    memcpy(at, field->default_value, pr__field_size(field));
    return PR_OK;
}

static pr_status decode_object(decoder *d, const pr_field *fields, json_t *value, void *object,
                               const pr__field_path *outer)
{
    uint32_t depth = outer ? outer->depth + 1 : 1;
    size_t named_count = 0;
    if (depth > PR_JSON_DEPTH_MAX)
        return fail_at(outer, d, "nests deeper than 32");
    for (const pr_field *field = fields; field->name; field++) {
        pr__field_path path = {outer, field->name, 0, depth};
        if (field->kind != PR_FIELD_OTHERS)
            TRY(decode_field(d, field, value, object, &path, &named_count));
    }
    if (named_count == json_object_size(value))
        return PR_OK;
    return decode_others(d, fields, value, object, outer, depth);
}

pr_status pr__contract_json_decode(const pr_contract *contract, const pr_message *message,
                                   pr__arena *arena, void *object, pr_error *err)
{
    if (message->body_size_bytes == 0)
        return pr__fail(err, PR_E_CONTENT, ORIGIN, "the body is empty, the contract has fields");
    AUTO(json_t) value = NULL;
    bool widened = false;
    TRY(pr__json_load_wide(message->body, (size_t)message->body_size_bytes, ORIGIN, "body",
                           &widened, &value, err));
    if (!json_is_object(value))
        return pr__fail(err, PR_E_CONTENT, ORIGIN, "the body is %s, must be a JSON object",
                        json_is_null(value) ? "null" : "another kind of value");
    decoder d = {message, arena, (contract->flags & PR_CONTRACT_REFUSE_UNKNOWN) != 0, widened, err};
    return decode_object(&d, contract->fields, value, object, NULL);
}
