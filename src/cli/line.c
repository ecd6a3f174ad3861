/*
 * Reading a message from JSON with jansson, by a table of fields.
 *
 * The member "body" is written anew by our writer (compact, doubles at their shortest); who needs
 * the very bytes gives them as "body_text" or "body_base64".
 */
#include "cli/line.h"

#include <string.h>

#include <jansson.h>

#include "base/error.h"
#include "base/json_writer.h"
#include "base/text.h"
#include "base/time.h"
#include "cli/options.h"

#define ORIGIN "cli.line"

typedef enum field_kind {
    FIELD_TEXT = 1,
    FIELD_VERSION,
    FIELD_INSTANT,
    FIELD_AFTER, /* a duration from now on, into an instant */
    FIELD_HEADERS,
    FIELD_BODY,
    FIELD_BODY_TEXT,
    FIELD_BODY_BASE64
} field_kind;

typedef struct field {
    const char *name;
    field_kind kind;
    size_t offset; /* in pr_message */
} field;

static const field fields[] = {
    {"type", FIELD_TEXT, offsetof(pr_message, type)},
    {"version", FIELD_VERSION, 0},
    {"body", FIELD_BODY, 0},
    {"body_text", FIELD_BODY_TEXT, 0},
    {"body_base64", FIELD_BODY_BASE64, 0},
    {"content_type", FIELD_TEXT, offsetof(pr_message, content_type)},
    {"key", FIELD_TEXT, offsetof(pr_message, key)},
    {"destination", FIELD_TEXT, offsetof(pr_message, destination)},
    {"headers", FIELD_HEADERS, 0},
    {"id", FIELD_TEXT, offsetof(pr_message, id)},
    {"tenant", FIELD_TEXT, offsetof(pr_message, tenant)},
    {"source", FIELD_TEXT, offsetof(pr_message, source)},
    {"correlation_id", FIELD_TEXT, offsetof(pr_message, correlation_id)},
    {"causation_id", FIELD_TEXT, offsetof(pr_message, causation_id)},
    {"traceparent", FIELD_TEXT, offsetof(pr_message, traceparent)},
    {"tracestate", FIELD_TEXT, offsetof(pr_message, tracestate)},
    {"occurred_at", FIELD_INSTANT, offsetof(pr_message, occurred_at_us)},
    {"expires_at", FIELD_INSTANT, offsetof(pr_message, expires_at_us)},
    {"expires_in", FIELD_AFTER, offsetof(pr_message, expires_at_us)},
    {"deliver_at", FIELD_INSTANT, offsetof(pr_message, deliver_at_us)},
    {"delay", FIELD_AFTER, offsetof(pr_message, deliver_at_us)},
};
enum { FIELD_COUNT = sizeof(fields) / sizeof(fields[0]) };

typedef struct reading {
    pr__arena *arena;
    pr_message *message;
    int64_t now_us;
    bool body_given;
    const char *body_content_type; /* by the member that gave the body */
} reading;

/* name: the member that it is written for */
static pr_status write_value(pr__json *out, const char *name, json_t *value, pr_error *err)
{
    const char *key;
    size_t index;
    json_t *child;
    if (out->depth >= PR_JSON_DEPTH_MAX)
        return pr__fail(err, PR_E_LIMIT, ORIGIN, "\"%s\" is nested deeper than %d%s", name,
                        PR_JSON_DEPTH_MAX,
                        strcmp(name, "body") == 0 ? "; give it as \"body_text\"" : "");
    switch (json_typeof(value)) {
    case JSON_OBJECT:
        pr__json_object_begin(out);
        json_object_foreach(value, key, child)
        {
            pr__json_key(out, key);
            TRY(write_value(out, name, child, err));
        }
        pr__json_object_end(out);
        return PR_OK;
    case JSON_ARRAY:
        pr__json_array_begin(out);
        json_array_foreach(value, index, child)
        {
            TRY(write_value(out, name, child, err));
        }
        pr__json_array_end(out);
        return PR_OK;
    case JSON_STRING:
        pr__json_text_n(out, json_string_value(value), json_string_length(value));
        return PR_OK;
    case JSON_INTEGER:
        pr__json_int(out, json_integer_value(value));
        return PR_OK;
    case JSON_REAL:
        pr__json_double(out, json_real_value(value));
        return PR_OK;
    case JSON_TRUE:
        pr__json_bool(out, true);
        return PR_OK;
    case JSON_FALSE:
        pr__json_bool(out, false);
        return PR_OK;
    case JSON_NULL:
        pr__json_null(out);
        return PR_OK;
    }
    return PR_OK;
}

/* The value as JSON text in the arena. */
static pr_status text_of_value(reading *to, const char *name, json_t *value, const char **ret_text,
                               size_t *ret_size, pr_error *err)
{
    AUTO_BUFFER out = PR_BUFFER_INIT;
    pr__json json;
    pr__json_init(&json, &out);
    TRY(write_value(&json, name, value, err));
    if (json.failed)
        return pr__fail(err, PR_E_CONTENT, ORIGIN, "\"%s\" holds what cannot be written anew",
                        name);
    const char *text = pr__buffer_text(&out);
    *ret_text = text ? pr__arena_memdup(to->arena, text, out.size) : NULL;
    *ret_size = out.size;
    return *ret_text ? PR_OK : pr__fail_nomem(err, ORIGIN);
}

static pr_status text_value(const char *name, json_t *value, const char **ret_text, pr_error *err)
{
    if (!json_is_string(value))
        return pr__fail(err, PR_E_CONTENT, ORIGIN, "\"%s\" must be a string", name);
    if (strlen(json_string_value(value)) != json_string_length(value))
        return pr__fail(err, PR_E_CONTENT, ORIGIN, "\"%s\" has a NUL in it", name);
    *ret_text = json_string_value(value);
    return PR_OK;
}

static pr_status read_body(reading *to, const field *of, json_t *value, pr_error *err)
{
    pr_message *message = to->message;
    size_t size = 0;
    if (to->body_given)
        return pr__fail(err, PR_E_CONTENT, ORIGIN,
                        "\"%s\" is a second body; give one of body, body_text, body_base64",
                        of->name);
    to->body_given = true;
    if (of->kind == FIELD_BODY) {
        const char *text = "";
        TRY(text_of_value(to, of->name, value, &text, &size, err));
        message->body = text;
        to->body_content_type = PR_CONTENT_TYPE_JSON;
    } else if (!json_is_string(value)) {
        return pr__fail(err, PR_E_CONTENT, ORIGIN, "\"%s\" must be a string", of->name);
    } else {
        const char *text = json_string_value(value);
        size_t text_size = json_string_length(value);
        void *bytes = pr__arena_memdup(to->arena, text, text_size);
        if (!bytes)
            return pr__fail_nomem(err, ORIGIN);
        size = text_size;
        to->body_content_type = pr__content_type_of(bytes, size);
        if (of->kind == FIELD_BODY_BASE64) {
            if (!pr__base64_decode(text, text_size, bytes, &size))
                return pr__fail(err, PR_E_CONTENT, ORIGIN, "\"body_base64\" is not base64");
            to->body_content_type = "application/octet-stream";
        }
        message->body = bytes;
    }
    message->body_size_bytes = size;
    return PR_OK;
}

static pr_status read_instant(reading *to, const field *of, json_t *value, pr_error *err)
{
    int64_t *at = (void *)((char *)to->message + of->offset);
    const char *text = "";
    TRY(text_value(of->name, value, &text, err));
    if (of->kind == FIELD_INSTANT) {
        if (!pr__instant_parse(text, strlen(text), at))
            return pr__fail(err, PR_E_CONTENT, ORIGIN,
                            "\"%s\" must be an instant such as \"2026-01-31T12:00:00Z\"", of->name);
        return PR_OK;
    }
    int64_t ms;
    if (!pr__parse_duration_ms(text, &ms) || ms > (PR_INSTANT_MAX_US - to->now_us) / 1000)
        return pr__fail(err, PR_E_CONTENT, ORIGIN,
                        "\"%s\" must be a duration such as \"250ms\", \"30s\", \"12h\"", of->name);
    *at = to->now_us + ms * 1000;
    return PR_OK;
}

static pr_status read_field(reading *to, const field *of, json_t *value, pr_error *err)
{
    const char *text = "";
    size_t size = 0;
    if (json_is_null(value) && of->kind != FIELD_BODY)
        return PR_OK; /* as if it were not there: what `show --json` writes */
    switch (of->kind) {
    case FIELD_TEXT:
        TRY(text_value(of->name, value, &text, err));
        text = pr__arena_strdup(to->arena, text);
        memcpy((char *)to->message + of->offset, &text, sizeof(text));
        return text ? PR_OK : pr__fail_nomem(err, ORIGIN);
    case FIELD_VERSION:
        if (!json_is_integer(value) || json_integer_value(value) < 1 ||
            json_integer_value(value) > INT32_MAX)
            return pr__fail(err, PR_E_CONTENT, ORIGIN, "\"version\" must be a whole number >= 1");
        to->message->type_version = (uint32_t)json_integer_value(value);
        return PR_OK;
    case FIELD_INSTANT:
    case FIELD_AFTER:
        return read_instant(to, of, value, err);
    case FIELD_HEADERS:
        if (!json_is_object(value))
            return pr__fail(err, PR_E_CONTENT, ORIGIN, "\"headers\" must be an object");
        TRY(text_of_value(to, of->name, value, &text, &size, err));
        to->message->headers = text;
        return PR_OK;
    case FIELD_BODY:
    case FIELD_BODY_TEXT:
    case FIELD_BODY_BASE64:
        return read_body(to, of, value, err);
    }
    return PR_OK;
}

static pr_status unknown_field(const char *name, pr_error *err)
{
    const char *names[FIELD_COUNT];
    for (size_t i = 0; i < FIELD_COUNT; i++)
        names[i] = fields[i].name;
    const char *near = pr__nearest(name, names, FIELD_COUNT);
    if (near)
        return pr__fail(err, PR_E_CONTENT, ORIGIN, "unknown field \"%.64s\"; did you mean \"%s\"?",
                        name, near);
    return pr__fail(err, PR_E_CONTENT, ORIGIN, "unknown field \"%.64s\"", name);
}

static pr_status read_object(reading *to, json_t *object, pr_error *err)
{
    const char *name;
    json_t *value;
    if (!json_is_object(object))
        return pr__fail(err, PR_E_CONTENT, ORIGIN, "it is no JSON object");
    json_object_foreach(object, name, value)
    {
        size_t i = 0;
        while (i < FIELD_COUNT && strcmp(fields[i].name, name) != 0)
            i++;
        if (i == FIELD_COUNT)
            return unknown_field(name, err);
        TRY(read_field(to, &fields[i], value, err));
    }
    return PR_OK;
}

/* A whole number of any size is one; jansson has none beyond 64 bits, but it takes a real. */
bool pr__line_is_json(const void *text, size_t size)
{
    json_t *value = json_loadb(size > 0 ? text : "", size,
                               JSON_DECODE_ANY | JSON_ALLOW_NUL | JSON_DECODE_INT_AS_REAL, NULL);
    bool valid = value != NULL;
    json_decref(value);
    return valid;
}

const char *pr__content_type_of(const void *body, size_t size)
{
    if (pr__line_is_json(body, size))
        return PR_CONTENT_TYPE_JSON;
    if (size > 0 && pr__utf8_valid(body, size))
        return "text/plain; charset=utf-8";
    return "application/octet-stream";
}

pr_status pr__line_parse(const char *text, size_t size, const pr_message *defaults, int64_t now_us,
                         uint64_t body_size_max, pr__arena *arena, pr_message *ret_message,
                         pr_error *err)
{
    json_error_t where;
    pr_message message = *defaults;
    reading to = {.arena = arena, .message = &message, .now_us = now_us};
    const char *nul = memchr(text, '\0', size);
    if (nul)
        return pr__fail(err, PR_E_CONTENT, ORIGIN, "a NUL byte stands at column %zu",
                        (size_t)(nul - text) + 1);
    json_t *object = json_loadb(text, size, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &where);
    if (!object) {
        /* jansson's text quotes what it found: the content stays out of errors */
        const char *near = strstr(where.text, " near ");
        int keep = near ? (int)(near - where.text) : (int)strlen(where.text);
        return pr__fail(err, PR_E_CONTENT, ORIGIN, "bad JSON at column %d: %.*s", where.column,
                        keep, where.text);
    }
    pr_status status = read_object(&to, object, err);
    json_decref(object);
    TRY(status);
    if (!message.type)
        return pr__fail(err, PR_E_CONTENT, ORIGIN, "\"type\" is missing");
    if (!to.body_given)
        return pr__fail(err, PR_E_CONTENT, ORIGIN,
                        "a body is missing; give body, body_text or body_base64");
    if (!message.content_type)
        message.content_type = to.body_content_type;
    TRY(pr_message_check(&message, body_size_max, err));
    *ret_message = message;
    return PR_OK;
}
