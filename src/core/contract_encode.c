/*
 * Writing an object as JSON by its field table.
 *
 * Owns: how each kind stands in JSON.
 * Keeps: what it wrote is read back to the same object; errors name the path of the field, such as
 * 'lines[3].price', and never what stands there.
 * Must not know: the registry.
 */
#include <math.h>
#include <string.h>

#include "base/error.h"
#include "base/text.h"
#include "base/time.h"
#include "base/uuid.h"
#include "core/contract.h"
#include "core/field_path.h"
#include "core/json.h"

#define ORIGIN "contract"

static pr_status fail_at(const pr__field_path *path, pr_error *err, const char *what)
{
    return pr__field_fail(path, PR_E_CONTENT, err, what);
}

static pr_status too_large(const pr__field_path *path, pr_error *err)
{
    return pr__field_fail(path, PR_E_LIMIT, err, "is larger than its size_max");
}

static bool fits(const pr_field *field, pr_field_kind kind, size_t size)
{
    /* an element of a list has no limit of its own */
    return field->size_max == 0 || kind != field->kind || size <= field->size_max;
}

static pr_status encode_object(pr__json *json, const pr_field *fields, const void *object,
                               const pr__field_path *outer, pr_error *err);

static pr_status encode_text(pr__json *json, const pr_field *field, const char *at,
                             const pr__field_path *path, pr_error *err)
{
    const char *text;
    memcpy(&text, at, sizeof(text));
    if (!text)
        return fail_at(path, err, "is NULL");
    size_t size = strlen(text);
    if (!pr__utf8_valid(text, size))
        return fail_at(path, err, "is not valid UTF-8");
    if (!fits(field, PR_FIELD_TEXT, size))
        return too_large(path, err);
    pr__json_text_n(json, text, size);
    return PR_OK;
}

static pr_status encode_number(pr__json *json, pr_field_kind kind, const char *at,
                               const pr__field_path *path, pr_error *err)
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

static pr_status encode_bytes(pr__json *json, const pr_field *field, const char *at,
                              const pr__field_path *path, pr_error *err)
{
    pr_bytes bytes;
    memcpy(&bytes, at, sizeof(bytes));
    if (!bytes.data && bytes.size > 0)
        return fail_at(path, err, "is NULL with a size");
    if (!fits(field, PR_FIELD_BYTES, bytes.size))
        return too_large(path, err);
    pr__json_base64(json, bytes.data, bytes.size);
    return PR_OK;
}

static pr_status encode_uuid(pr__json *json, const char *at, const pr__field_path *path,
                             pr_error *err)
{
    if (!memchr(at, '\0', PR_UUID_TEXT_SIZE) || !pr__uuid_valid(at))
        return fail_at(path, err, "is not a UUID");
    pr__json_text(json, at);
    return PR_OK;
}

static pr_status encode_enum(pr__json *json, const pr_field *field, const char *at,
                             const pr__field_path *path, pr_error *err)
{
    int value;
    memcpy(&value, at, sizeof(value));
    for (const pr_enum_name *name = field->names; name->name; name++) {
        if (name->value == value) {
            pr__json_text(json, name->name);
            return PR_OK;
        }
    }
    return fail_at(path, err, "is a value without a name");
}

/* The members that a decoder found and the table does not name; none of them may come twice. */
static pr_status encode_others(pr__json *json, const pr_field *fields, const char *at,
                               const pr__field_path *path, pr_error *err)
{
    const char *text, *name;
    AUTO(json_t) object = NULL;
    json_t *member;
    memcpy(&text, at, sizeof(text));
    if (!text)
        return PR_OK;
    pr_status status = pr__json_load(text, strlen(text), ORIGIN, "others", &object, NULL);
    if (status == PR_E_NOMEM)
        return pr__fail_nomem(err, ORIGIN);
    if (status != PR_OK || !json_is_object(object))
        return fail_at(path, err, "is not the text of a JSON object");
    json_object_foreach(object, name, member)
    {
        if (pr__fields_name(fields, name))
            return fail_at(path, err, "has a member that the table names");
        pr__json_key(json, name);
        pr__json_put(json, member);
    }
    return json->failed ? fail_at(path, err, "nests deeper than 32") : PR_OK;
}

static pr_status encode_value(pr__json *json, pr_field_kind kind, const pr_field *field,
                              const char *at, const pr__field_path *path, pr_error *err);

static pr_status encode_list(pr__json *json, const pr_field *field, const char *at,
                             const pr__field_path *path, pr_error *err)
{
    pr_list list;
    memcpy(&list, at, sizeof(list));
    if (!list.items && list.count > 0)
        return fail_at(path, err, "is NULL with a count");
    if (!fits(field, PR_FIELD_LIST, list.count))
        return too_large(path, err);
    size_t step = pr__field_element_size(field);
    pr__json_array_begin(json);
    for (size_t i = 0; i < list.count; i++) {
        pr__field_path element = {path, NULL, i, path->depth + 1};
        TRY(encode_value(json, field->element_kind, field, (const char *)list.items + i * step,
                         &element, err));
    }
    pr__json_array_end(json);
    return PR_OK;
}

static pr_status encode_value(pr__json *json, pr_field_kind kind, const pr_field *field,
                              const char *at, const pr__field_path *path, pr_error *err)
{
    bool boolean;
    switch (kind) {
    case PR_FIELD_TEXT:
        return encode_text(json, field, at, path, err);
    case PR_FIELD_BYTES:
        return encode_bytes(json, field, at, path, err);
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
    case PR_FIELD_ENUM:
        return encode_enum(json, field, at, path, err);
    case PR_FIELD_OTHERS:
        break; /* no value: encode_object */
    }
    return fail_at(path, err, "has an unknown kind");
}

static pr_status encode_object(pr__json *json, const pr_field *fields, const void *object,
                               const pr__field_path *outer, pr_error *err)
{
    uint32_t depth = outer ? outer->depth + 1 : 1;
    if (depth > PR_JSON_DEPTH_MAX)
        return fail_at(outer, err, "nests deeper than 32");
    pr__json_object_begin(json);
    for (const pr_field *field = fields; field->name; field++) {
        pr__field_path path = {outer, field->name, 0, depth};
        const char *at = (const char *)object + field->offset;
        if (field->kind == PR_FIELD_OTHERS) {
            TRY(encode_others(json, fields, at, &path, err));
            continue;
        }
        if (field->flags & PR_FIELD_OPTIONAL) {
            bool present;
            memcpy(&present, (const char *)object + field->presence_offset, sizeof(present));
            if (!present)
                continue;
        }
        pr__json_key(json, field->name);
        TRY(encode_value(json, field->kind, field, at, &path, err));
    }
    pr__json_object_end(json);
    return PR_OK;
}

pr_status pr__contract_json_value(pr__json *json, const pr_field *field, const void *at,
                                  pr_error *err)
{
    pr__field_path path = {NULL, field->name, 0, 1};
    return encode_value(json, field->kind, field, at, &path, err);
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
