/*
 * Reading JSON through jansson.
 *
 * Owns: which JSON is taken (no duplicate names, no NUL, any value at the top), and how a fault
 * is said.
 * Keeps: jansson's own error text quotes the input, so it is never passed on; code and offset are.
 * Must not know: what the values are for.
 */
#include "core/json.h"

#include <math.h>
#include <string.h>

#include "base/buffer.h"
#include "base/error.h"
#include "base/memory.h"

#define LOAD_FLAGS      (JSON_REJECT_DUPLICATES | JSON_DECODE_ANY)
#define LOAD_PROBE_SIZE ((size_t)64 * 1024)
#define WIDE_FROM       0x1p63

static const char *reason(enum json_error_code code)
{
    switch (code) {
    case json_error_out_of_memory:
        return "out of memory";
    case json_error_stack_overflow:
        return "nested too deep";
    case json_error_invalid_utf8:
        return "invalid UTF-8";
    case json_error_premature_end_of_input:
        return "it ends too early";
    case json_error_end_of_input_expected:
        return "something stands behind its end";
    case json_error_null_character:
    case json_error_null_byte_in_key:
        return "a NUL character";
    case json_error_duplicate_key:
        return "a name stands twice";
    case json_error_numeric_overflow:
        return "a number is too large";
    case json_error_unknown:
    case json_error_cannot_open_file:
    case json_error_invalid_argument:
    case json_error_invalid_syntax:
    case json_error_invalid_format:
    case json_error_wrong_type:
    case json_error_null_value:
    case json_error_item_not_found:
    case json_error_index_out_of_range:
        return "bad syntax";
    }
    return "bad syntax";
}

/* jansson may tell an allocation that failed while it read a word as bad syntax or an early end.
   Such a message would be dead for want of memory; so no fault is believed that does not come
   again once memory is seen to be there. */
static pr_status see_memory(size_t size, const char *origin, pr_error *err)
{
    AUTO(void) probe = pr__alloc(LOAD_PROBE_SIZE + 2 * size);
    return probe ? PR_OK : pr__fail_nomem(err, origin);
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static bool out_of_memory(const json_error_t *error)
{
    return json_error_code(error) == json_error_out_of_memory;
}

/* Whether digits, of a number that is negative or not, are more than an int64_t holds. */
static bool is_wide(const char *digits, size_t count, bool negative)
{
    const char *limit = negative ? "9223372036854775808" : "9223372036854775807";
    size_t limit_size = strlen(limit);
    return count > limit_size || (count == limit_size && memcmp(digits, limit, count) > 0);
}

/* The text with whole numbers that jansson's integer may not hold written as reals, "1e3" and all
   else as it is. What is no JSON stays none. */
static void write_widened(const char *text, size_t size, pr__buffer *out)
{
    for (size_t i = 0; i < size;) {
        size_t start = i;
        if (text[i] == '"') {
            for (i++; i < size && text[i] != '"'; i++)
                i += text[i] == '\\' ? 1 : 0;
            i++;
        } else if (is_digit(text[i])) {
            while (i < size && is_digit(text[i]))
                i++;
            size_t digits = i - start;
            while (i < size && (is_digit(text[i]) || memchr(".eE+-", text[i], 5)))
                i++;
            bool negative = start > 0 && text[start - 1] == '-';
            if (start + digits == i && is_wide(text + start, digits, negative)) {
                pr__buffer_append(out, text + start, digits);
                start = i;
                pr__buffer_append(out, ".0", 2);
            }
        } else {
            i++;
        }
        pr__buffer_append(out, text + start, (i < size ? i : size) - start);
    }
}

static json_t *load_widened(const char *text, size_t size)
{
    AUTO_BUFFER out = PR_BUFFER_INIT;
    json_error_t ignored;
    write_widened(text, size, &out);
    return out.failed ? NULL : json_loadb(out.data, out.size, LOAD_FLAGS, &ignored);
}

static pr_status load(const char *text, size_t size, const char *origin, const char *what,
                      bool *ret_widened, json_t **ret_value, pr_error *err)
{
    json_error_t error;
    json_t *value = json_loadb(text, size, LOAD_FLAGS, &error);
    if (!value && !out_of_memory(&error)) {
        TRY(see_memory(size, origin, err));
        value = json_loadb(text, size, LOAD_FLAGS, &error);
    }
    if (!value && ret_widened && json_error_code(&error) == json_error_numeric_overflow) {
        value = load_widened(text, size);
        *ret_widened = value != NULL;
    }
    if (!value && out_of_memory(&error))
        return pr__fail_nomem(err, origin);
    if (!value)
        return pr__fail(err, PR_E_CONTENT, origin, "%s: no valid JSON, %s at byte %d", what,
                        reason(json_error_code(&error)), error.position);
    *ret_value = value;
    return PR_OK;
}

pr_status pr__json_load(const char *text, size_t size, const char *origin, const char *what,
                        json_t **ret_value, pr_error *err)
{
    return load(text, size, origin, what, NULL, ret_value, err);
}

pr_status pr__json_load_wide(const char *text, size_t size, const char *origin, const char *what,
                             bool *ret_widened, json_t **ret_value, pr_error *err)
{
    *ret_widened = false;
    return load(text, size, origin, what, ret_widened, ret_value, err);
}

bool pr__json_has_wide(const json_t *value)
{
    const char *name;
    json_t *inner;
    size_t index;
    if (json_is_real(value))
        return fabs(json_real_value(value)) >= WIDE_FROM;
    json_object_foreach((json_t *)(uintptr_t)value, name, inner)
    {
        if (pr__json_has_wide(inner))
            return true;
    }
    json_array_foreach(value, index, inner)
    {
        if (pr__json_has_wide(inner))
            return true;
    }
    return false;
}

void pr__json_only_member(json_t *object, const char **ret_name, json_t **ret_value)
{
    void *iterator = json_object_iter(object);
    *ret_name = json_object_iter_key(iterator);
    *ret_value = json_object_iter_value(iterator);
}

static int append(const char *piece, size_t size, void *user)
{
    pr__buffer_append(user, piece, size);
    return 0;
}

char *pr__json_dump(const json_t *value)
{
    AUTO_BUFFER buffer = PR_BUFFER_INIT;
    if (json_dump_callback(value, append, &buffer, JSON_COMPACT | JSON_ENCODE_ANY) != 0)
        return NULL;
    return pr__buffer_take(&buffer);
}

static void put_object(pr__json *json, const json_t *value)
{
    const char *name;
    json_t *member;
    pr__json_object_begin(json);
    json_object_foreach((json_t *)(uintptr_t)value, name, member)
    {
        if (json->failed)
            return;
        pr__json_key(json, name);
        pr__json_put(json, member);
    }
    pr__json_object_end(json);
}

static void put_array(pr__json *json, const json_t *value)
{
    pr__json_array_begin(json);
    for (size_t i = 0; i < json_array_size(value) && !json->failed; i++)
        pr__json_put(json, json_array_get(value, i));
    pr__json_array_end(json);
}

void pr__json_put(pr__json *json, const json_t *value)
{
    if (json->failed)
        return; /* too deep: not a level more */
    switch (json_typeof(value)) {
    case JSON_OBJECT:
        put_object(json, value);
        break;
    case JSON_ARRAY:
        put_array(json, value);
        break;
    case JSON_STRING:
        pr__json_text_n(json, json_string_value(value), json_string_length(value));
        break;
    case JSON_INTEGER:
        pr__json_int(json, json_integer_value(value));
        break;
    case JSON_REAL:
        pr__json_double(json, json_real_value(value));
        break;
    case JSON_TRUE:
    case JSON_FALSE:
        pr__json_bool(json, json_is_true(value));
        break;
    case JSON_NULL:
        pr__json_null(json);
        break;
    }
}
