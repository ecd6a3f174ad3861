/*
 * What a field table says, as a JSON Schema and as an example.
 *
 * Owns: how each kind is described: draft 2020-12, each nested table a definition of its own.
 * Keeps: what the table takes the schema allows; it forbids what the table refuses as far as the
 * words of a schema go (docs/design/contract.md names the rest). The example passes both.
 * Must not know: the registry, and objects.
 */
#include <string.h>

#include "base/error.h"
#include "base/text.h"
#include "base/time.h"
#include "core/contract.h"
#include "core/type.h"

#define ORIGIN       "contract"
#define DRAFT        "https://json-schema.org/draft/2020-12/schema"
#define PATTERN_UUID "^[0-9A-Fa-f]{8}(-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}$"
#define PATTERN_BYTES                                                                              \
    "^([A-Za-z0-9+/]{4})*([A-Za-z0-9+/][AQgw]==|[A-Za-z0-9+/]{2}[AEIMQUYcgkosw048]=)?$"
#define PATTERN_INSTANT                                                                            \
    "^[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])[Tt]([01][0-9]|2[0-3]):[0-5][0-9]:"         \
    "[0-5][0-9](\\.[0-9]{1,9})?([Zz]|[+-]([01][0-9]|2[0-3]):[0-5][0-9])$"
#define EXAMPLE_UUID  "01980000-0000-7000-8000-000000000001"
#define EXAMPLE_US    INT64_C(1767225600000000) /* 2026-01-01T00:00:00Z */
#define EXAMPLE_TEXT  "text"
#define EXAMPLE_BYTES "\x00\x01\x02"
#define NAME_SIZE     80
#define TREE_MAX      2 /* levels of a table within itself that an example shows */

typedef struct definition {
    const pr_field *fields;
    char name[NAME_SIZE];
} definition;

typedef struct schema {
    pr__json json;
    const pr_contract *contract;
    definition *definitions; /* of nested tables, in the order in which they were met */
    size_t definition_count;
    pr_error *err;
} schema;

/* ---- definitions ---- */

static bool name_taken(const schema *s, const char *name)
{
    for (size_t i = 0; i < s->definition_count; i++) {
        if (strcmp(s->definitions[i].name, name) == 0)
            return true;
    }
    return false;
}

/* A reference needs no escape: names with anything else than letters, digits, - and _ are not
   used. */
static void choose_name(const schema *s, const char *wanted, char out[NAME_SIZE])
{
    bool plain =
        strlen(wanted) < NAME_SIZE / 2 &&
        strspn(wanted, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_") ==
            strlen(wanted);
    pr__format(out, NAME_SIZE, "%s", plain ? wanted : "table");
    for (size_t n = 2; name_taken(s, out); n++)
        pr__format(out, NAME_SIZE, "%s-%zu", plain ? wanted : "table", n);
}

static pr_status find_definition(schema *s, const pr_field *field, const char **ret_name)
{
    for (size_t i = 0; i < s->definition_count; i++) {
        if (s->definitions[i].fields == field->nested) {
            *ret_name = s->definitions[i].name;
            return PR_OK;
        }
    }
    definition *grown =
        pr__realloc_array(s->definitions, s->definition_count + 1, sizeof(*s->definitions));
    if (!grown)
        return pr__fail_nomem(s->err, ORIGIN);
    s->definitions = grown;
    definition *added = &grown[s->definition_count];
    added->fields = field->nested;
    choose_name(s, field->name, added->name);
    s->definition_count++;
    *ret_name = added->name;
    return PR_OK;
}

/* ---- kinds ---- */

static void describe_text(schema *s, const char *format, const char *pattern)
{
    pr__json_member_text(&s->json, "type", "string");
    if (format)
        pr__json_member_text(&s->json, "format", format);
    if (pattern)
        pr__json_member_text(&s->json, "pattern", pattern);
}

static void describe_enum(schema *s, const pr_field *field)
{
    pr__json_key(&s->json, "enum");
    pr__json_array_begin(&s->json);
    for (const pr_enum_name *name = field->names; name->name; name++)
        pr__json_text(&s->json, name->name);
    pr__json_array_end(&s->json);
}

static void describe_integer(schema *s)
{
    pr__json_member_text(&s->json, "type", "integer");
    pr__json_member_int(&s->json, "minimum", INT64_MIN);
    pr__json_member_int(&s->json, "maximum", INT64_MAX);
}

static pr_status describe_table(schema *s, const pr_field *field)
{
    const char *name = NULL;
    char reference[NAME_SIZE + 16];
    TRY(find_definition(s, field, &name));
    pr__format(reference, sizeof(reference), "#/$defs/%s", name);
    pr__json_member_text(&s->json, "$ref", reference);
    return PR_OK;
}

/* The members of a schema of one kind, in an object that stands open. */
static pr_status describe(schema *s, const pr_field *field, pr_field_kind kind)
{
    size_t size_max = kind == field->kind ? field->size_max : 0;
    switch (kind) {
    case PR_FIELD_TEXT:
        describe_text(s, NULL, NULL);
        if (size_max > 0)
            /* of characters: never fewer than bytes */
            pr__json_member_uint(&s->json, "maxLength", size_max);
        return PR_OK;
    case PR_FIELD_BYTES:
        describe_text(s, NULL, PATTERN_BYTES);
        pr__json_member_text(&s->json, "contentEncoding", "base64");
        if (size_max > 0)
            pr__json_member_uint(&s->json, "maxLength", (size_max + 2) / 3 * 4);
        return PR_OK;
    case PR_FIELD_INT64:
        describe_integer(s);
        return PR_OK;
    case PR_FIELD_DOUBLE:
        pr__json_member_text(&s->json, "type", "number");
        return PR_OK;
    case PR_FIELD_BOOL:
        pr__json_member_text(&s->json, "type", "boolean");
        return PR_OK;
    case PR_FIELD_UUID:
        describe_text(s, "uuid", PATTERN_UUID);
        return PR_OK;
    case PR_FIELD_INSTANT:
        describe_text(s, "date-time", PATTERN_INSTANT);
        return PR_OK;
    case PR_FIELD_NESTED:
        return describe_table(s, field);
    case PR_FIELD_LIST:
        pr__json_member_text(&s->json, "type", "array");
        pr__json_key(&s->json, "items");
        pr__json_object_begin(&s->json);
        TRY(describe(s, field, field->element_kind));
        pr__json_object_end(&s->json);
        if (size_max > 0)
            pr__json_member_uint(&s->json, "maxItems", size_max);
        return PR_OK;
    case PR_FIELD_ENUM:
        describe_enum(s, field);
        return PR_OK;
    case PR_FIELD_OTHERS:
        return PR_OK;
    }
    return PR_OK;
}

static pr_status describe_field(schema *s, const pr_field *field)
{
    bool optional = (field->flags & PR_FIELD_OPTIONAL) != 0;
    pr__json_key(&s->json, field->name);
    pr__json_object_begin(&s->json);
    if (optional) {
        pr__json_key(&s->json, "anyOf");
        pr__json_array_begin(&s->json);
        pr__json_object_begin(&s->json);
    }
    TRY(describe(s, field, field->kind));
    if (optional) {
        pr__json_object_end(&s->json);
        pr__json_object_begin(&s->json);
        pr__json_member_text(&s->json, "type", "null");
        pr__json_object_end(&s->json);
        pr__json_array_end(&s->json);
    }
    if (field->description)
        pr__json_member_text(&s->json, "description", field->description);
    if (field->default_value) {
        pr__json_key(&s->json, "default");
        TRY(pr__contract_json_value(&s->json, field, field->default_value, s->err));
    }
    pr__json_object_end(&s->json);
    return PR_OK;
}

static void describe_required(schema *s, const pr_field *fields)
{
    bool any = false;
    for (const pr_field *field = fields; field->name; field++) {
        if (field->kind == PR_FIELD_OTHERS || field->default_value ||
            (field->flags & PR_FIELD_OPTIONAL))
            continue;
        if (!any) {
            pr__json_key(&s->json, "required");
            pr__json_array_begin(&s->json);
        }
        any = true;
        pr__json_text(&s->json, field->name);
    }
    if (any)
        pr__json_array_end(&s->json);
}

/* The members of the schema of an object. */
static pr_status describe_fields(schema *s, const pr_field *fields)
{
    bool others = false;
    pr__json_member_text(&s->json, "type", "object");
    pr__json_key(&s->json, "properties");
    pr__json_object_begin(&s->json);
    for (const pr_field *field = fields; field->name; field++) {
        others |= field->kind == PR_FIELD_OTHERS;
        if (field->kind != PR_FIELD_OTHERS)
            TRY(describe_field(s, field));
    }
    pr__json_object_end(&s->json);
    describe_required(s, fields);
    if ((s->contract->flags & PR_CONTRACT_REFUSE_UNKNOWN) && !others)
        pr__json_member_bool(&s->json, "additionalProperties", false);
    return PR_OK;
}

/* Describing a table may find more of them. */
static pr_status describe_definitions(schema *s)
{
    if (s->definition_count == 0)
        return PR_OK;
    pr__json_key(&s->json, "$defs");
    pr__json_object_begin(&s->json);
    for (size_t i = 0; i < s->definition_count; i++) {
        pr__json_key(&s->json, s->definitions[i].name);
        pr__json_object_begin(&s->json);
        TRY(describe_fields(s, s->definitions[i].fields));
        pr__json_object_end(&s->json);
    }
    pr__json_object_end(&s->json);
    return PR_OK;
}

static pr_status describe_contract(schema *s)
{
    const pr_contract *contract = s->contract;
    char text[64];
    pr__format(text, sizeof(text), "%s, version %u", pr__contract_kind_text(contract->kind),
               (unsigned)pr__type_version(contract->type_version));
    pr__json_object_begin(&s->json);
    pr__json_member_text(&s->json, "$schema", DRAFT);
    pr__json_member_text(&s->json, "title", contract->type);
    pr__json_member_text(&s->json, "description", text);
    TRY(describe_fields(s, contract->fields));
    TRY(describe_definitions(s));
    pr__json_object_end(&s->json);
    return PR_OK;
}

/* ---- examples ---- */

/* The tables around a value, from the innermost. */
typedef struct around {
    const struct around *outer;
    const pr_field *fields;
} around;

static pr_status show_fields(schema *s, const pr_field *fields, const around *outer);

static bool is_deep(const around *outer, const pr_field *fields)
{
    size_t count = 0;
    for (; outer; outer = outer->outer)
        count += outer->fields == fields;
    return count >= TREE_MAX;
}

static size_t at_most(size_t size, size_t size_max)
{
    return size_max > 0 && size_max < size ? size_max : size;
}

static pr_status show(schema *s, const pr_field *field, pr_field_kind kind, const around *outer)
{
    size_t size_max = kind == field->kind ? field->size_max : 0;
    switch (kind) {
    case PR_FIELD_TEXT:
        pr__json_text_n(&s->json, EXAMPLE_TEXT, at_most(strlen(EXAMPLE_TEXT), size_max));
        break;
    case PR_FIELD_BYTES:
        pr__json_base64(&s->json, EXAMPLE_BYTES, at_most(sizeof(EXAMPLE_BYTES) - 1, size_max));
        break;
    case PR_FIELD_INT64:
        pr__json_int(&s->json, 1);
        break;
    case PR_FIELD_DOUBLE:
        pr__json_double(&s->json, 1.5);
        break;
    case PR_FIELD_BOOL:
        pr__json_bool(&s->json, true);
        break;
    case PR_FIELD_UUID:
        pr__json_text(&s->json, EXAMPLE_UUID);
        break;
    case PR_FIELD_INSTANT:
        pr__json_instant(&s->json, EXAMPLE_US);
        break;
    case PR_FIELD_NESTED:
        return show_fields(s, field->nested, outer);
    case PR_FIELD_LIST:
        pr__json_array_begin(&s->json);
        if (field->element_kind != PR_FIELD_NESTED || !is_deep(outer, field->nested))
            TRY(show(s, field, field->element_kind, outer));
        pr__json_array_end(&s->json);
        break;
    case PR_FIELD_ENUM:
        pr__json_text(&s->json, field->names[0].name);
        break;
    case PR_FIELD_OTHERS:
        break;
    }
    return PR_OK;
}

static pr_status show_fields(schema *s, const pr_field *fields, const around *outer)
{
    around here = {outer, fields};
    pr__json_object_begin(&s->json);
    for (const pr_field *field = fields; field->name; field++) {
        if (field->kind == PR_FIELD_OTHERS)
            continue;
        pr__json_key(&s->json, field->name);
        TRY(field->default_value
                ? pr__contract_json_value(&s->json, field, field->default_value, s->err)
                : show(s, field, field->kind, &here));
    }
    pr__json_object_end(&s->json);
    return PR_OK;
}

static pr_status show_contract(schema *s)
{
    return show_fields(s, s->contract->fields, NULL);
}

/* ---- both ---- */

/* Only a table that passed its checks is walked. */
static pr_status write_text(const pr_contract *contract, pr_status (*write)(schema *s),
                            char **ret_text, pr_error *err)
{
    TRY(pr__contract_check_shape(contract, err));
    if (!ret_text)
        return pr__fail(err, PR_E_INVALID, ORIGIN, "the place for the text is NULL");
    if (!contract->fields)
        return pr__fail(err, PR_E_UNSUPPORTED, ORIGIN,
                        "'%.200s' version %u has no fields to describe", contract->type,
                        (unsigned)pr__type_version(contract->type_version));
    TRY(pr__contract_check(contract, err));
    AUTO_BUFFER text = PR_BUFFER_INIT;
    schema s = {.contract = contract, .err = err};
    pr__json_init(&s.json, &text);
    pr_status status = write(&s);
    pr__free(s.definitions);
    TRY(status);
    if (s.json.failed)
        return pr__fail(err, PR_E_CONTENT, ORIGIN, "'%.200s' nests deeper than 32", contract->type);
    char *taken = pr__buffer_take(&text);
    if (!taken)
        return pr__fail_nomem(err, ORIGIN);
    *ret_text = taken;
    return PR_OK;
}

pr_status pr_contract_schema(const pr_contract *contract, char **ret_schema, pr_error *err)
{
    return write_text(contract, describe_contract, ret_schema, err);
}

pr_status pr_contract_example(const pr_contract *contract, char **ret_example, pr_error *err)
{
    return write_text(contract, show_contract, ret_example, err);
}
