/*
 * Headers: JSON text in, headers with kinds out, and back.
 *
 * Owns: the form `{"name": "text", "name": {"<kind>": value}}`, the limits of one header and of
 * all.
 * Keeps: a kind survives; what is no known kind is kept as JSON. Errors name the header, never its
 * value.
 * Must not know: which headers mean something to whom.
 */
#include "core/headers.h"

#include <jansson.h>
#include <math.h>
#include <string.h>

#include <postroom/limits.h>

#include "base/buffer.h"
#include "base/error.h"
#include "base/json_writer.h"
#include "base/text.h"
#include "base/time.h"
#include "core/json.h"
#include "port/route.h"

#define ORIGIN     "headers"
#define NAME_SHOWN 64 /* bytes of a header's name in an error */

typedef struct header_entry {
    pr_header header; /* its pointers go into block */
    char *block;      /* name and value; owned */
} header_entry;

struct pr_headers {
    header_entry *entries;
    size_t count;
    size_t capacity;
    pr__buffer json; /* the last text that was given out */
};

static pr_status fail_header(pr_error *err, pr_status status, const char *name, const char *what)
{
    char shown[NAME_SHOWN];
    pr__format(shown, sizeof(shown), "%s", name);
    return pr__fail(err, status, ORIGIN, "header '%s' %s", shown, what);
}

static pr_status check_name(const char *name, pr_error *err)
{
    if (pr__text_empty(name))
        return pr__fail(err, PR_E_CONTENT, ORIGIN, "the name of a header is empty");
    size_t size = strlen(name);
    if (size > PR_HEADER_NAME_SIZE_MAX)
        return pr__fail(err, PR_E_LIMIT, ORIGIN, "the name of a header has %zu bytes, at most %d",
                        size, PR_HEADER_NAME_SIZE_MAX);
    if (!pr__utf8_valid(name, size))
        return pr__fail(err, PR_E_CONTENT, ORIGIN, "the name of a header is not valid UTF-8");
    for (size_t i = 0; i < size; i++) {
        if ((unsigned char)name[i] < 0x20 || name[i] == 0x7F)
            return fail_header(err, PR_E_CONTENT, name, "has a control character in its name");
    }
    return PR_OK;
}

static const char *const kind_names[] = {
    [PR_HEADER_INT] = "int",         [PR_HEADER_DOUBLE] = "double", [PR_HEADER_BOOL] = "bool",
    [PR_HEADER_INSTANT] = "instant", [PR_HEADER_BYTES] = "bytes",
};

static pr_header_kind kind_of_name(const char *name)
{
    for (int kind = PR_HEADER_INT; kind <= PR_HEADER_BYTES; kind++) {
        if (strcmp(kind_names[kind], name) == 0)
            return (pr_header_kind)kind;
    }
    return PR_HEADER_OTHER;
}

/* The value of a known kind. *ret_bytes is the caller's, for BYTES. */
static pr_status read_value(pr_header *header, const json_t *value, char **ret_bytes, pr_error *err)
{
    switch (header->kind) {
    case PR_HEADER_TEXT:
    case PR_HEADER_OTHER:
        return PR_OK;
    case PR_HEADER_INT:
        if (!json_is_integer(value))
            return fail_header(err, PR_E_CONTENT, header->name, "of kind int is not an integer");
        header->integer = json_integer_value(value);
        return PR_OK;
    case PR_HEADER_DOUBLE:
        if (!json_is_number(value))
            return fail_header(err, PR_E_CONTENT, header->name, "of kind double is not a number");
        header->real = json_number_value(value);
        return PR_OK;
    case PR_HEADER_BOOL:
        if (!json_is_boolean(value))
            return fail_header(err, PR_E_CONTENT, header->name, "of kind bool is no boolean");
        header->integer = json_is_true(value);
        return PR_OK;
    case PR_HEADER_INSTANT:
        if (!json_is_string(value) ||
            !pr__instant_parse(json_string_value(value), json_string_length(value),
                               &header->integer))
            return fail_header(err, PR_E_CONTENT, header->name,
                               "of kind instant is no RFC 3339 time");
        return PR_OK;
    case PR_HEADER_BYTES: {
        size_t size = json_is_string(value) ? json_string_length(value) : 0;
        AUTO(char) bytes = pr__alloc(size + 1);
        if (!bytes)
            return pr__fail_nomem(err, ORIGIN);
        if (!json_is_string(value) ||
            !pr__base64_decode(json_string_value(value), size, bytes, &header->bytes_size))
            return fail_header(err, PR_E_CONTENT, header->name, "of kind bytes is not base64");
        header->bytes = bytes;
        *ret_bytes = TAKE(bytes);
        return PR_OK;
    }
    }
    return PR_OK;
}

/* One member of the headers object as a header. *ret_owned holds what header points to, if any. */
static pr_status read_member(const char *name, json_t *member, pr_header *ret_header,
                             char **ret_owned, pr_error *err)
{
    *ret_header = (pr_header){.kind = PR_HEADER_TEXT, .name = name};
    TRY(check_name(name, err));
    if (json_is_string(member)) {
        ret_header->text = json_string_value(member);
        return PR_OK;
    }
    if (!json_is_object(member) || json_object_size(member) != 1)
        return fail_header(err, PR_E_CONTENT, name, "is neither a string nor {\"<kind>\": value}");
    const char *kind = NULL;
    json_t *value = NULL;
    pr__json_only_member(member, &kind, &value);
    if (kind[0] == '\0')
        return fail_header(err, PR_E_CONTENT, name, "has an empty kind");
    ret_header->kind = kind_of_name(kind);
    if (ret_header->kind != PR_HEADER_OTHER)
        return read_value(ret_header, value, ret_owned, err);
    char *text = pr__json_dump(member);
    if (!text)
        return pr__fail_nomem(err, ORIGIN);
    ret_header->text = text;
    *ret_owned = text;
    return PR_OK;
}

static void write_value(pr__json *json, const pr_header *header)
{
    if (header->kind == PR_HEADER_TEXT) {
        pr__json_text(json, header->text);
        return;
    }
    if (header->kind == PR_HEADER_OTHER) {
        pr__json_raw(json, header->text, strlen(header->text));
        return;
    }
    pr__json_object_begin(json);
    pr__json_key(json, kind_names[header->kind]);
    switch (header->kind) {
    case PR_HEADER_TEXT:
    case PR_HEADER_OTHER:
        break;
    case PR_HEADER_INT:
        pr__json_int(json, header->integer);
        break;
    case PR_HEADER_DOUBLE:
        pr__json_double(json, header->real);
        break;
    case PR_HEADER_BOOL:
        pr__json_bool(json, header->integer != 0);
        break;
    case PR_HEADER_INSTANT:
        pr__json_instant(json, header->integer);
        break;
    case PR_HEADER_BYTES:
        pr__json_base64(json, header->bytes, header->bytes_size);
        break;
    }
    pr__json_object_end(json);
}

/* The size of `"name":value` as JSON text, checked against the limit of one header. */
static pr_status check_header_size(const pr_header *header, pr_error *err)
{
    AUTO_BUFFER buffer = PR_BUFFER_INIT;
    pr__json json;
    pr__json_init(&json, &buffer);
    pr__json_object_begin(&json);
    pr__json_key(&json, header->name);
    write_value(&json, header);
    if (buffer.failed)
        return pr__fail_nomem(err, ORIGIN);
    size_t size = buffer.size - 1; /* without the brace */
    if (size > PR_HEADER_SIZE_MAX) {
        char what[96];
        pr__format(what, sizeof(what), "has %zu bytes with its name, at most %d", size,
                   PR_HEADER_SIZE_MAX);
        return fail_header(err, PR_E_LIMIT, header->name, what);
    }
    return PR_OK;
}

static pr_status check_total(size_t size, pr_error *err)
{
    if (size > PR_HEADERS_SIZE_MAX)
        return pr__fail(err, PR_E_LIMIT, ORIGIN, "headers have %zu bytes in all, at most %d", size,
                        PR_HEADERS_SIZE_MAX);
    return PR_OK;
}

typedef pr_status (*header_sink)(void *user, const pr_header *header, pr_error *err);

static pr_status each_header(const char *text, header_sink sink, void *user, pr_error *err)
{
    size_t size = strlen(text);
    TRY(check_total(size, err));
    if (!pr__utf8_valid(text, size))
        return pr__fail(err, PR_E_CONTENT, ORIGIN, "headers are not valid UTF-8");
    AUTO(json_t) object = NULL;
    TRY(pr__json_load(text, size, ORIGIN, "headers", &object, err));
    if (!json_is_object(object))
        return pr__fail(err, PR_E_CONTENT, ORIGIN, "headers are not a JSON object");
    const char *name;
    json_t *member;
    json_object_foreach(object, name, member)
    {
        pr_header header;
        AUTO(char) owned = NULL;
        TRY(read_member(name, member, &header, &owned, err));
        TRY(check_header_size(&header, err));
        if (sink)
            TRY(sink(user, &header, err));
    }
    return PR_OK;
}

pr_status pr__headers_check(const char *json, pr_error *err)
{
    return pr__text_empty(json) ? PR_OK : each_header(json, NULL, NULL, err);
}

static header_entry *find_entry(const pr_headers *headers, const char *name)
{
    for (size_t i = 0; i < headers->count; i++) {
        if (strcmp(headers->entries[i].header.name, name) == 0)
            return &headers->entries[i];
    }
    return NULL;
}

static pr_status reserve_entry(pr_headers *headers, pr_error *err)
{
    if (headers->count < headers->capacity)
        return PR_OK;
    size_t capacity = headers->capacity ? headers->capacity * 2 : 8;
    header_entry *grown = pr__realloc_array(headers->entries, capacity, sizeof(*headers->entries));
    if (!grown)
        return pr__fail_nomem(err, ORIGIN);
    headers->entries = grown;
    headers->capacity = capacity;
    return PR_OK;
}

/* Copy a checked header into an entry: one block with name, text and bytes. */
static pr_status make_entry(const pr_header *header, header_entry *ret_entry, pr_error *err)
{
    size_t name_size = strlen(header->name) + 1;
    bool texty = header->kind == PR_HEADER_TEXT || header->kind == PR_HEADER_OTHER;
    size_t text_size = texty ? strlen(header->text) + 1 : 0;
    size_t bytes_size = header->kind == PR_HEADER_BYTES ? header->bytes_size : 0;
    char *block = pr__alloc(name_size + text_size + bytes_size + 1);
    if (!block)
        return pr__fail_nomem(err, ORIGIN);
    header_entry entry = {.header = {.kind = header->kind}, .block = block};
    memcpy(block, header->name, name_size);
    entry.header.name = block;
    if (texty) {
        memcpy(block + name_size, header->text, text_size);
        entry.header.text = block + name_size;
    } else if (header->kind == PR_HEADER_BYTES) {
        if (bytes_size > 0)
            memcpy(block + name_size, header->bytes, bytes_size);
        entry.header.bytes = block + name_size;
        entry.header.bytes_size = bytes_size;
    } else {
        entry.header.integer = header->integer;
        entry.header.real = header->real;
    }
    *ret_entry = entry;
    return PR_OK;
}

static pr_status keep_header(void *user, const pr_header *header, pr_error *err)
{
    pr_headers *headers = user;
    header_entry entry;
    header_entry *old = find_entry(headers, header->name);
    if (!old)
        TRY(reserve_entry(headers, err));
    TRY(make_entry(header, &entry, err));
    if (old)
        pr__free(old->block);
    else
        old = &headers->entries[headers->count++];
    *old = entry;
    return PR_OK;
}

pr_status pr_headers_parse(const char *json, pr_headers **ret_headers, pr_error *err)
{
    if (!ret_headers)
        return pr__fail(err, PR_E_INVALID, ORIGIN, "ret_headers is NULL");
    AUTO(pr_headers) headers = pr__alloc(sizeof(*headers));
    if (!headers)
        return pr__fail_nomem(err, ORIGIN);
    if (!pr__text_empty(json))
        TRY(each_header(json, keep_header, headers, err));
    *ret_headers = TAKE(headers);
    return PR_OK;
}

pr_headers *pr_headers_free(pr_headers *headers)
{
    if (!headers)
        return NULL;
    for (size_t i = 0; i < headers->count; i++)
        pr__free(headers->entries[i].block);
    pr__free(headers->entries);
    pr__buffer_done(&headers->json);
    return pr__free(headers);
}

/* OTHER is given as JSON text: it must be an object of one member, as it would be read. */
static pr_status check_other(const pr_header *header, pr_error *err)
{
    AUTO(json_t) value = NULL;
    TRY(pr__json_load(header->text, strlen(header->text), ORIGIN, "a header of another kind",
                      &value, err));
    pr_header read;
    AUTO(char) owned = NULL;
    if (!json_is_object(value))
        return fail_header(err, PR_E_CONTENT, header->name, "is not {\"<kind>\": value}");
    return read_member(header->name, value, &read, &owned, err);
}

static pr_status check_header(const pr_header *header, pr_error *err)
{
    switch (header->kind) {
    case PR_HEADER_TEXT:
    case PR_HEADER_OTHER:
        if (!header->text)
            return fail_header(err, PR_E_INVALID, header->name, "has no text");
        if (!pr__utf8_valid(header->text, strlen(header->text)))
            return fail_header(err, PR_E_CONTENT, header->name, "is not valid UTF-8");
        return header->kind == PR_HEADER_OTHER ? check_other(header, err) : PR_OK;
    case PR_HEADER_INT:
    case PR_HEADER_BOOL:
        return PR_OK;
    case PR_HEADER_DOUBLE:
        if (!isfinite(header->real))
            return fail_header(err, PR_E_CONTENT, header->name, "is not a finite number");
        return PR_OK;
    case PR_HEADER_INSTANT:
        if (!pr__instant_valid(header->integer))
            return fail_header(err, PR_E_CONTENT, header->name, "is out of the years 1 to 9999");
        return PR_OK;
    case PR_HEADER_BYTES:
        if (!header->bytes && header->bytes_size > 0)
            return fail_header(err, PR_E_INVALID, header->name, "is NULL with a length");
        if (header->bytes_size > PR_HEADER_SIZE_MAX)
            return fail_header(err, PR_E_LIMIT, header->name, "has more bytes than a header holds");
        return PR_OK;
    }
    return fail_header(err, PR_E_INVALID, header->name, "is of an unknown kind");
}

pr_status pr_headers_set(pr_headers *headers, const pr_header *header, pr_error *err)
{
    if (!headers || !header || !header->name)
        return pr__fail(err, PR_E_INVALID, ORIGIN, "headers, header or its name is NULL");
    TRY(check_name(header->name, err));
    TRY(check_header(header, err));
    TRY(check_header_size(header, err));
    return keep_header(headers, header, err);
}

const pr_header *pr_headers_get(const pr_headers *headers, const char *name)
{
    const header_entry *entry = headers && name ? find_entry(headers, name) : NULL;
    return entry ? &entry->header : NULL;
}

const pr_header *pr_headers_at(const pr_headers *headers, size_t index)
{
    return headers && index < headers->count ? &headers->entries[index].header : NULL;
}

pr_status pr_headers_json(pr_headers *headers, const char **ret_json, pr_error *err)
{
    if (!headers || !ret_json)
        return pr__fail(err, PR_E_INVALID, ORIGIN, "headers or ret_json is NULL");
    if (headers->count == 0) {
        *ret_json = NULL;
        return PR_OK;
    }
    pr__json json;
    pr__buffer_clear(&headers->json);
    pr__json_init(&json, &headers->json);
    pr__json_object_begin(&json);
    for (size_t i = 0; i < headers->count; i++) {
        pr__json_key(&json, headers->entries[i].header.name);
        write_value(&json, &headers->entries[i].header);
    }
    pr__json_object_end(&json);
    const char *text = pr__buffer_text(&headers->json);
    if (!text)
        return pr__fail_nomem(err, ORIGIN);
    TRY(check_total(headers->json.size, err));
    *ret_json = text;
    return PR_OK;
}

bool pr_message_unrouted_ok(const pr_message *message)
{
    return message && pr__route_unrouted_ok(message);
}
