/*
 * Correlation keys: out of a field of the message's contract, a function, or the message's own key.
 *
 * Keeps: a key that is given out can be found again: 1 to 255 bytes of UTF-8.
 * Must not know: stores.
 */
#include "core/saga_key.h"

#include <string.h>

#include "base/error.h"
#include "base/text.h"
#include "core/saga.h"

#define ORIGIN PR_SAGA_ORIGIN

static const pr_field *field_named(const pr_field *fields, const char *name, size_t size)
{
    for (const pr_field *field = fields; field && field->name; field++) {
        if (strlen(field->name) == size && memcmp(field->name, name, size) == 0)
            return field;
    }
    return NULL;
}

const pr_field *pr__saga_key_field(const pr_contract *contract, const char *path,
                                   size_t *ret_offset)
{
    const pr_field *fields = contract->fields;
    size_t offset = 0;
    for (;;) {
        size_t size = strcspn(path, ".");
        const pr_field *field = field_named(fields, path, size);
        if (!field)
            return NULL;
        offset += field->offset;
        if (path[size] == '\0') {
            bool fits = field->kind == PR_FIELD_TEXT || field->kind == PR_FIELD_UUID ||
                        field->kind == PR_FIELD_INT64;
            if (fits && ret_offset)
                *ret_offset = offset;
            return fits ? field : NULL;
        }
        if (field->kind != PR_FIELD_NESTED || (field->flags & PR_FIELD_OPTIONAL))
            return NULL;
        fields = field->nested;
        path += size + 1;
    }
}

static void read_field(const pr_field *field, const char *at, char ret_key[PR_SAGA_KEY_SIZE])
{
    if (field->kind == PR_FIELD_UUID) {
        pr__format(ret_key, PR_SAGA_KEY_SIZE, "%s", at);
    } else if (field->kind == PR_FIELD_INT64) {
        int64_t value;
        memcpy(&value, at, sizeof value);
        pr__format(ret_key, PR_SAGA_KEY_SIZE, "%lld", (long long)value);
    } else {
        const char *text;
        memcpy(&text, at, sizeof text);
        size_t size = text ? strlen(text) : 0;
        size_t cut = size < PR_SAGA_KEY_SIZE ? size : PR_SAGA_KEY_SIZE - 1;
        if (cut > 0)
            memcpy(ret_key, text, cut);
        ret_key[cut] = '\0';
    }
}

static pr_status by_field(const pr_saga *saga, const pr_saga_message *entry, const pr_scope *scope,
                          char ret_key[PR_SAGA_KEY_SIZE], pr_error *err)
{
    const pr_message *message = pr_scope_message(scope);
    const char *object = pr_scope_object(scope);
    uint32_t version = message->type_version;
    const pr_contract *contract = pr__contracts_reached(saga->contracts, message->type, version);
    size_t offset = 0;
    const pr_field *field =
        contract ? pr__saga_key_field(contract, entry->correlation_field, &offset) : NULL;
    if (!object || !field)
        return pr__fail(err, PR_E_CONTENT, ORIGIN,
                        "saga '%s': version %u of '%s' was not decoded with a contract that has "
                        "'%s'",
                        saga->type.name, version, message->type, entry->correlation_field);
    read_field(field, object + offset, ret_key);
    return PR_OK;
}

pr_status pr__saga_key_of(const pr_saga *saga, const pr_saga_message *entry, const pr_scope *scope,
                          char ret_key[PR_SAGA_KEY_SIZE], pr_error *err)
{
    const pr_message *message = pr_scope_message(scope);
    ret_key[0] = '\0';
    if (entry->correlation_field) {
        TRY(by_field(saga, entry, scope, ret_key, err));
    } else if (entry->correlate) {
        if (!entry->correlate(saga->type.user, scope, ret_key, PR_SAGA_KEY_SIZE))
            ret_key[0] = '\0';
        ret_key[PR_SAGA_KEY_SIZE - 1] = '\0';
    } else {
        pr__format(ret_key, PR_SAGA_KEY_SIZE, "%s", message->key ? message->key : "");
    }
    size_t size = strlen(ret_key);
    if (size == 0)
        return pr__fail(err, PR_E_CONTENT, ORIGIN, "saga '%s': a '%s' has no correlation key",
                        saga->type.name, message->type);
    if (size > PR_ID_SIZE_MAX || !pr__utf8_valid(ret_key, size))
        return pr__fail(err, PR_E_CONTENT, ORIGIN,
                        "saga '%s': the correlation key of a '%s' is not UTF-8 of 255 bytes at "
                        "most",
                        saga->type.name, message->type);
    return PR_OK;
}
