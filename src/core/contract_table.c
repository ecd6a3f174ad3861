/*
 * Field tables: how a C struct lies in JSON, checked once at registration.
 *
 * Owns: the rules of a table: names, kinds, flags, and that no two fields share memory.
 * Keeps: with a table that passed, the codec writes nowhere but into the object.
 * Must not know: how JSON is read; a default is checked by writing it.
 */
#include <limits.h>
#include <string.h>

#include "base/error.h"
#include "base/text.h"
#include "core/contract.h"

#define ORIGIN          "contract"
#define NESTING_MAX     32
#define FLAGS_KNOWN     (PR_FIELD_OPTIONAL | PR_FIELD_MESSAGE_ID | PR_FIELD_OCCURRED_AT)
#define FIELD_NAME_SIZE 255
#define ENUM_NAMES_MAX  1000

static size_t kind_size(pr_field_kind kind)
{
    switch (kind) {
    case PR_FIELD_TEXT:
        return sizeof(const char *);
    case PR_FIELD_BYTES:
        return sizeof(pr_bytes);
    case PR_FIELD_INT64:
    case PR_FIELD_INSTANT:
        return sizeof(int64_t);
    case PR_FIELD_DOUBLE:
        return sizeof(double);
    case PR_FIELD_BOOL:
        return sizeof(bool);
    case PR_FIELD_UUID:
        return 37;
    case PR_FIELD_NESTED:
        return 0; /* its table does not say: element_size does */
    case PR_FIELD_LIST:
        return sizeof(pr_list);
    case PR_FIELD_ENUM:
        return sizeof(int);
    case PR_FIELD_OTHERS:
        return sizeof(const char *);
    }
    return 0;
}

size_t pr__field_size(const pr_field *field)
{
    return field->kind == PR_FIELD_NESTED ? field->element_size : kind_size(field->kind);
}

size_t pr__field_element_size(const pr_field *field)
{
    return field->element_kind == PR_FIELD_NESTED ? field->element_size
                                                  : kind_size(field->element_kind);
}

bool pr__fields_name(const pr_field *fields, const char *name)
{
    for (const pr_field *field = fields; field->name; field++) {
        if (field->kind != PR_FIELD_OTHERS && strcmp(field->name, name) == 0)
            return true;
    }
    return false;
}

/* The tables that are being checked, from the outermost: one that nests itself ends there. */
typedef struct table_path {
    const struct table_path *outer;
    const pr_field *fields;
    size_t object_size;
    size_t depth;
    bool by_list;  /* its struct is an element of a list, not a part of the one around it */
    bool defaults; /* the second round: defaults are written by tables that passed the first */
} table_path;

static pr_status fail_field(pr_error *err, pr_status status, const pr_field *field,
                            const char *what)
{
    return pr__fail(err, status, ORIGIN, "field '%s' %s", field->name, what);
}

static pr_status check_name(const pr_field *fields, size_t index, pr_error *err)
{
    const char *name = fields[index].name;
    size_t size = strlen(name);
    if (size == 0)
        return pr__fail(err, PR_E_CONTENT, ORIGIN, "field %zu has an empty name", index);
    if (size > FIELD_NAME_SIZE)
        return pr__fail(err, PR_E_LIMIT, ORIGIN, "the name of field %zu has %zu bytes, at most %d",
                        index, size, FIELD_NAME_SIZE);
    if (!pr__utf8_valid(name, size))
        return pr__fail(err, PR_E_CONTENT, ORIGIN, "the name of field %zu is not valid UTF-8",
                        index);
    for (size_t i = 0; i < index; i++) {
        if (strcmp(fields[i].name, name) == 0)
            return fail_field(err, PR_E_INVALID, &fields[index], "stands twice in its table");
    }
    return PR_OK;
}

static bool kind_valid(pr_field_kind kind)
{
    return kind >= PR_FIELD_TEXT && kind <= PR_FIELD_OTHERS;
}

/* Kind, element kind, nested table and sizes go together. */
static pr_status check_kind(const pr_field *field, pr_error *err)
{
    bool list = field->kind == PR_FIELD_LIST;
    bool nested =
        field->kind == PR_FIELD_NESTED || (list && field->element_kind == PR_FIELD_NESTED);
    if (!kind_valid(field->kind))
        return fail_field(err, PR_E_INVALID, field, "has an unknown kind");
    if (list && (!kind_valid(field->element_kind) || field->element_kind == PR_FIELD_LIST ||
                 field->element_kind == PR_FIELD_OTHERS))
        return fail_field(err, PR_E_INVALID, field,
                          "is a list of an unknown kind, or of lists: nest a struct instead");
    if (!list && (int)field->element_kind != 0)
        return fail_field(err, PR_E_INVALID, field, "has an element_kind, but is no list");
    if (nested && (!field->nested || field->element_size == 0))
        return fail_field(err, PR_E_INVALID, field,
                          "needs the table `nested` and element_size, the sizeof its struct");
    if (!nested && field->nested)
        return fail_field(err, PR_E_INVALID, field, "has a nested table, but nests nothing");
    if (!nested && field->element_size != 0 &&
        (!list || field->element_size != kind_size(field->element_kind)))
        return fail_field(err, PR_E_INVALID, field, "has an element_size that does not fit");
    return PR_OK;
}

static pr_status check_enum_name(const pr_field *field, size_t index, pr_error *err)
{
    const pr_enum_name *name = &field->names[index];
    if (!pr__utf8_valid(name->name, strlen(name->name)))
        return fail_field(err, PR_E_CONTENT, field, "has a name that is not valid UTF-8");
    if (name->value < INT_MIN || name->value > INT_MAX)
        return fail_field(err, PR_E_INVALID, field, "has a name whose value is no int");
    for (size_t i = 0; i < index; i++) {
        if (strcmp(field->names[i].name, name->name) == 0 || field->names[i].value == name->value)
            return fail_field(err, PR_E_INVALID, field, "has a name or a value twice");
    }
    return PR_OK;
}

static pr_status check_names(const pr_field *field, pr_error *err)
{
    bool wanted = field->kind == PR_FIELD_ENUM ||
                  (field->kind == PR_FIELD_LIST && field->element_kind == PR_FIELD_ENUM);
    if (wanted && (!field->names || !field->names[0].name))
        return fail_field(err, PR_E_INVALID, field, "is an enum, and has no names");
    if (!wanted && field->names)
        return fail_field(err, PR_E_INVALID, field, "has names, but is no enum");
    for (size_t i = 0; wanted && field->names[i].name; i++) {
        if (i == ENUM_NAMES_MAX)
            return fail_field(err, PR_E_LIMIT, field,
                              "has more than 1000 names, or no end: one that is NULL");
        TRY(check_enum_name(field, i, err));
    }
    return PR_OK;
}

/* A default must be one that could be written: it is, and thrown away. */
static pr_status check_default(const pr_field *field, pr_error *err)
{
    AUTO_BUFFER text = PR_BUFFER_INIT;
    pr__json json;
    if (!field->default_value)
        return PR_OK;
    if (field->flags != 0)
        return fail_field(err, PR_E_INVALID, field,
                          "has a default: it can neither be optional nor repeat the envelope");
    pr__json_init(&json, &text);
    pr_error local = PR_ERROR_INIT;
    pr_status status = pr__contract_json_value(&json, field, field->default_value, &local);
    if (status == PR_OK && text.failed)
        status = pr__fail_nomem(&local, ORIGIN);
    if (status == PR_OK && json.failed)
        status = fail_field(&local, PR_E_CONTENT, field, "nests deeper than 32");
    if (status != PR_OK)
        pr__error_context(&local, "default_value");
    pr__error_copy(err, &local);
    return status;
}

static pr_status check_extras(const pr_field *fields, size_t index, pr_error *err)
{
    const pr_field *field = &fields[index];
    bool sized = field->kind == PR_FIELD_TEXT || field->kind == PR_FIELD_BYTES ||
                 field->kind == PR_FIELD_LIST;
    TRY(check_names(field, err));
    if (!sized && field->size_max != 0)
        return fail_field(err, PR_E_INVALID, field, "has a size_max: only texts, bytes, lists do");
    if (field->kind != PR_FIELD_OTHERS)
        return PR_OK;
    if (field->flags != 0 || field->default_value)
        return fail_field(err, PR_E_INVALID, field, "has flags or a default, but keeps the others");
    for (size_t i = 0; i < index; i++) {
        if (fields[i].kind == PR_FIELD_OTHERS)
            return fail_field(err, PR_E_INVALID, field, "is the second that keeps the others");
    }
    return PR_OK;
}

/* The envelope is repeated by fields of the object itself: there the outbox fills them in. */
static pr_status check_flags(const pr_field *field, size_t depth, pr_error *err)
{
    if (field->flags & ~FLAGS_KNOWN)
        return fail_field(err, PR_E_INVALID, field, "has unknown flags");
    if ((field->flags & PR_FIELD_MESSAGE_ID) && field->kind != PR_FIELD_UUID)
        return fail_field(err, PR_E_INVALID, field, "is the message's id, but no uuid");
    if ((field->flags & PR_FIELD_OCCURRED_AT) && field->kind != PR_FIELD_INSTANT)
        return fail_field(err, PR_E_INVALID, field, "is the occurrence time, but no instant");
    if ((field->flags & (PR_FIELD_MESSAGE_ID | PR_FIELD_OCCURRED_AT)) && depth > 1)
        return fail_field(err, PR_E_INVALID, field,
                          "repeats the envelope: it cannot stand in a nested table");
    return PR_OK;
}

static bool overlap(size_t a, size_t a_size, size_t b, size_t b_size)
{
    return a < b + b_size && b < a + a_size;
}

/* Where a field lies, against the object's size and the fields before it. */
static pr_status check_place(const pr_field *fields, size_t index, size_t object_size,
                             pr_error *err)
{
    const pr_field *field = &fields[index];
    size_t size = pr__field_size(field);
    bool optional = (field->flags & PR_FIELD_OPTIONAL) != 0;
    if (size > object_size || field->offset > object_size - size)
        return fail_field(err, PR_E_INVALID, field, "lies outside of its struct");
    if (optional && field->presence_offset >= object_size)
        return fail_field(err, PR_E_INVALID, field, "has a presence_offset outside of its struct");
    if (optional && overlap(field->offset, size, field->presence_offset, sizeof(bool)))
        return fail_field(err, PR_E_INVALID, field,
                          "is optional: presence_offset must point to a bool of its own");
    for (size_t i = 0; i < index; i++) {
        const pr_field *other = &fields[i];
        size_t other_size = pr__field_size(other);
        bool shared = overlap(field->offset, size, other->offset, other_size);
        if (optional)
            shared |= overlap(field->presence_offset, sizeof(bool), other->offset, other_size);
        if (other->flags & PR_FIELD_OPTIONAL)
            shared |= overlap(other->presence_offset, sizeof(bool), field->offset, size);
        if (shared)
            return pr__fail(err, PR_E_INVALID, ORIGIN, "fields '%s' and '%s' share memory",
                            other->name, field->name);
    }
    return PR_OK;
}

static pr_status check_table(const table_path *path, pr_error *err);

static pr_status check_nested(const pr_field *field, const table_path *path, pr_error *err)
{
    bool by_list = field->kind == PR_FIELD_LIST;
    table_path inner = {path,    field->nested, field->element_size, path->depth + 1,
                        by_list, path->defaults};
    for (const table_path *outer = path; outer; outer = outer->outer) {
        if (outer->fields != inner.fields) {
            by_list |= outer->by_list;
            continue;
        }
        if (!by_list)
            return fail_field(err, PR_E_INVALID, field,
                              "is a struct within itself: only a list may nest its own table");
        if (outer->object_size != inner.object_size)
            return fail_field(err, PR_E_INVALID, field, "nests a table with two sizes of struct");
        return PR_OK;
    }
    if (inner.depth > NESTING_MAX)
        return fail_field(err, PR_E_LIMIT, field, "nests tables deeper than 32");
    pr_error local = PR_ERROR_INIT;
    pr_status status = check_table(&inner, &local);
    if (status != PR_OK) {
        pr__error_context(&local, "field '%s'", field->name);
        pr__error_copy(err, &local);
    }
    return status;
}

static pr_status check_field(const table_path *path, size_t index, pr_error *err)
{
    const pr_field *field = &path->fields[index];
    TRY(check_name(path->fields, index, err));
    TRY(check_kind(field, err));
    TRY(check_flags(field, path->depth, err));
    TRY(check_extras(path->fields, index, err));
    return check_place(path->fields, index, path->object_size, err);
}

static pr_status check_table(const table_path *path, pr_error *err)
{
    const pr_field *fields = path->fields;
    for (size_t i = 0; fields[i].name; i++) {
        if (i == PR_FIELDS_MAX)
            return pr__fail(err, PR_E_LIMIT, ORIGIN,
                            "a table has more than %d fields, or no end: a field without a name",
                            PR_FIELDS_MAX);
        TRY(path->defaults ? check_default(&fields[i], err) : check_field(path, i, err));
        if (fields[i].nested)
            TRY(check_nested(&fields[i], path, err));
    }
    return PR_OK;
}

pr_status pr__contract_table_check(const pr_contract *contract, pr_error *err)
{
    table_path path = {NULL, contract->fields, contract->object_size, 1, false, false};
    TRY(check_table(&path, err));
    path.defaults = true;
    return check_table(&path, err);
}
