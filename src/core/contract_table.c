/*
 * Field tables: how a C struct lies in JSON, checked once at registration.
 *
 * Owns: the rules of a table: names, kinds, flags, and that no two fields share memory.
 * Keeps: with a table that passed, the codec writes nowhere but into the object.
 * Must not know: JSON.
 */
#include <string.h>

#include "base/error.h"
#include "base/text.h"
#include "core/contract.h"

#define ORIGIN          "contract"
#define NESTING_MAX     32
#define FLAGS_KNOWN     (PR_FIELD_OPTIONAL | PR_FIELD_MESSAGE_ID | PR_FIELD_OCCURRED_AT)
#define FIELD_NAME_SIZE 255

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

/* The tables that are being checked, from the outermost: one that nests itself ends there. */
typedef struct table_path {
    const struct table_path *outer;
    const pr_field *fields;
    size_t object_size;
    size_t depth;
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
    return kind >= PR_FIELD_TEXT && kind <= PR_FIELD_LIST;
}

/* Kind, element kind, nested table and sizes go together. */
static pr_status check_kind(const pr_field *field, pr_error *err)
{
    bool list = field->kind == PR_FIELD_LIST;
    bool nested =
        field->kind == PR_FIELD_NESTED || (list && field->element_kind == PR_FIELD_NESTED);
    if (!kind_valid(field->kind))
        return fail_field(err, PR_E_INVALID, field, "has an unknown kind");
    if (list && (!kind_valid(field->element_kind) || field->element_kind == PR_FIELD_LIST))
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
    table_path inner = {path, field->nested, field->element_size, path->depth + 1};
    for (const table_path *outer = path; outer; outer = outer->outer) {
        if (outer->fields != inner.fields)
            continue;
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

static pr_status check_table(const table_path *path, pr_error *err)
{
    const pr_field *fields = path->fields;
    for (size_t i = 0; fields[i].name; i++) {
        if (i == PR_FIELDS_MAX)
            return pr__fail(err, PR_E_LIMIT, ORIGIN,
                            "a table has more than %d fields, or no end: a field without a name",
                            PR_FIELDS_MAX);
        TRY(check_name(fields, i, err));
        TRY(check_kind(&fields[i], err));
        TRY(check_flags(&fields[i], path->depth, err));
        TRY(check_place(fields, i, path->object_size, err));
        if (fields[i].nested)
            TRY(check_nested(&fields[i], path, err));
    }
    return PR_OK;
}

pr_status pr__contract_table_check(const pr_contract *contract, pr_error *err)
{
    table_path path = {NULL, contract->fields, contract->object_size, 1};
    return check_table(&path, err);
}
