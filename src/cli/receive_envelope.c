/*
 * How a command sees a message: its envelope in the environment, or all of it as a JSON line.
 *
 * Keeps: no variable of an outer `postroom receive` is seen; the names of headers, which are
 * anybody's, stay behind a prefix. A line has one newline, at its end.
 */
#include <ctype.h>
#include <string.h>
#include <unistd.h>

#include <postroom/headers.h>

#include "base/json_writer.h"
#include "base/text.h"
#include "base/time.h"
#include "cli/line.h"
#include "cli/receive.h"

#define HEADER_PREFIX "POSTROOM_HEADER_"
#define VARIABLES_MAX 24 /* of the envelope */

/* The envelope's own; POSTROOM_STORE and its like stay, as the command may call us. */
static const char *const own_names[] = {
    "POSTROOM_MESSAGE_ID",   "POSTROOM_TYPE",        "POSTROOM_TYPE_VERSION",
    "POSTROOM_CONTENT_TYPE", "POSTROOM_DESTINATION", "POSTROOM_SOURCE",
    "POSTROOM_KEY",          "POSTROOM_TENANT",      "POSTROOM_CORRELATION_ID",
    "POSTROOM_CAUSATION_ID", "POSTROOM_TRACEPARENT", "POSTROOM_TRACESTATE",
    "POSTROOM_HEADERS",      "POSTROOM_OCCURRED_AT", "POSTROOM_EXPIRES_AT",
    "POSTROOM_ATTEMPT",      "POSTROOM_ENDPOINT",
};

static bool is_own(const char *variable)
{
    size_t size = strcspn(variable, "=");
    if (pr__text_starts_with(variable, HEADER_PREFIX))
        return true;
    for (size_t i = 0; i < sizeof(own_names) / sizeof(own_names[0]); i++) {
        if (strlen(own_names[i]) == size && memcmp(own_names[i], variable, size) == 0)
            return true;
    }
    return false;
}

typedef struct variables {
    pr__arena *arena;
    char **items;
    size_t count;
    bool failed;
} variables;

static void add(variables *to, const char *name, const char *value)
{
    if (!value || value[0] == '\0')
        return;
    size_t size = strlen(name) + strlen(value) + 2;
    char *text = pr__arena_alloc(to->arena, size);
    if (!text) {
        to->failed = true;
        return;
    }
    pr__format(text, size, "%s=%s", name, value);
    to->items[to->count++] = text;
}

static void add_number(variables *to, const char *name, uint64_t value)
{
    char text[24];
    pr__format(text, sizeof(text), "%llu", (unsigned long long)value);
    add(to, name, text);
}

static void add_instant(variables *to, const char *name, int64_t instant_us)
{
    char text[PR_INSTANT_TEXT_SIZE];
    if (instant_us == 0)
        return;
    pr__instant_text(instant_us, text);
    add(to, name, text);
}

/* A header as text, whatever its kind. */
static const char *header_text(const pr_header *header, pr__arena *arena)
{
    AUTO_BUFFER out = PR_BUFFER_INIT;
    pr__json json;
    if (header->kind == PR_HEADER_TEXT || header->kind == PR_HEADER_OTHER)
        return header->text;
    pr__json_init(&json, &out);
    switch (header->kind) {
    case PR_HEADER_INT:
        pr__json_int(&json, header->integer);
        break;
    case PR_HEADER_DOUBLE:
        pr__json_double(&json, header->real);
        break;
    case PR_HEADER_BOOL:
        pr__json_bool(&json, header->integer != 0);
        break;
    case PR_HEADER_INSTANT:
        pr__json_instant(&json, header->integer);
        break;
    case PR_HEADER_BYTES:
        pr__json_base64(&json, header->bytes, header->bytes_size);
        break;
    case PR_HEADER_TEXT:
    case PR_HEADER_OTHER:
        break;
    }
    const char *text = pr__buffer_text(&out);
    if (text && text[0] == '"') /* no quotes, and nothing in it that needs an escape */
        return pr__arena_strndup(arena, text + 1, out.size - 2);
    return pr__arena_strdup(arena, text);
}

/* "order-id" is POSTROOM_HEADER_ORDER_ID; of two that come to the same name the first wins. */
static void add_header(variables *to, const pr_header *header)
{
    char name[sizeof(HEADER_PREFIX) + 256];
    pr__format(name, sizeof(name), HEADER_PREFIX "%s", header->name);
    for (char *c = name + sizeof(HEADER_PREFIX) - 1; *c != '\0'; c++)
        *c = isalnum((unsigned char)*c) ? (char)toupper((unsigned char)*c) : '_';
    size_t size = strlen(name);
    for (size_t i = 0; i < to->count; i++) {
        if (strncmp(to->items[i], name, size) == 0 && to->items[i][size] == '=')
            return;
    }
    add(to, name, header_text(header, to->arena));
}

static void add_envelope(variables *to, const pr__receiver *receiver, const pr_scope *scope)
{
    const pr_message *message = pr_scope_message(scope);
    add(to, "POSTROOM_ENDPOINT", receiver->endpoint);
    add(to, "POSTROOM_MESSAGE_ID", message->id);
    add(to, "POSTROOM_TYPE", message->type);
    add_number(to, "POSTROOM_TYPE_VERSION", message->type_version);
    add(to, "POSTROOM_CONTENT_TYPE", message->content_type);
    add(to, "POSTROOM_DESTINATION", message->destination);
    add(to, "POSTROOM_SOURCE", message->source);
    add(to, "POSTROOM_KEY", message->key);
    add(to, "POSTROOM_TENANT", message->tenant);
    add(to, "POSTROOM_CORRELATION_ID", message->correlation_id);
    add(to, "POSTROOM_CAUSATION_ID", message->causation_id);
    add(to, "POSTROOM_TRACEPARENT", message->traceparent);
    add(to, "POSTROOM_TRACESTATE", message->tracestate);
    add(to, "POSTROOM_HEADERS", message->headers);
    add_instant(to, "POSTROOM_OCCURRED_AT", message->occurred_at_us);
    add_instant(to, "POSTROOM_EXPIRES_AT", message->expires_at_us);
    add_number(to, "POSTROOM_ATTEMPT", (uint64_t)pr_scope_attempts(scope) + 1);
}

static size_t count_headers(const pr_headers *headers)
{
    size_t count = 0;
    while (pr_headers_at(headers, count))
        count++;
    return count;
}

char **pr__receive_environment(const pr__receiver *receiver, const pr_scope *scope,
                               pr__arena *arena)
{
    pr_headers *headers = NULL;
    size_t inherited = 0;
    while (environ[inherited])
        inherited++;
    /* headers that cannot be read were refused before the handler */
    if (scope && pr_headers_parse(pr_scope_message(scope)->headers, &headers, NULL) != PR_OK)
        headers = NULL;
    size_t header_count = headers ? count_headers(headers) : 0;
    variables to = {.arena = arena};
    to.items =
        pr__arena_alloc(arena, (inherited + header_count + VARIABLES_MAX + 1) * sizeof(*to.items));
    for (size_t i = 0; to.items && i < inherited; i++) {
        if (!is_own(environ[i]))
            to.items[to.count++] = environ[i];
    }
    if (to.items && scope) {
        add_envelope(&to, receiver, scope);
        for (size_t i = 0; i < header_count; i++)
            add_header(&to, pr_headers_at(headers, i));
    }
    pr_headers_free(headers);
    return to.failed ? NULL : to.items;
}

/* ---- as a line ---- */

static void text(pr__json *json, const char *name, const char *value)
{
    if (!pr__text_empty(value))
        pr__json_member_text(json, name, value);
}

static bool is_json(const pr_message *message)
{
    if (message->content_type && !strstr(message->content_type, "json"))
        return false;
    return pr__line_is_json(message->body, (size_t)message->body_size_bytes);
}

/* JSON as it stands: raw newlines can only be between its parts, and become blanks. */
static void write_json(pr__json *json, const char *raw, size_t size)
{
    AUTO(char) copy = pr__memdup(raw, size);
    if (!copy) {
        json->failed = true;
        return;
    }
    for (size_t i = 0; i < size; i++) {
        if (copy[i] == '\n' || copy[i] == '\r')
            copy[i] = ' ';
    }
    pr__json_raw(json, copy, size);
}

static void write_body(pr__json *json, const pr_message *message)
{
    const char *body = message->body ? message->body : "";
    size_t size = (size_t)message->body_size_bytes;
    bool utf8 = pr__utf8_valid(body, size) && !memchr(body, '\0', size);
    if (size > 0 && utf8 && is_json(message)) {
        pr__json_key(json, "body");
        write_json(json, body, size);
    } else if (utf8) {
        pr__json_key(json, "body_text");
        pr__json_text_n(json, body, size);
    } else {
        pr__json_key(json, "body_base64");
        pr__json_base64(json, body, size);
    }
}

void pr__receive_render(const pr__receiver *receiver, const pr_scope *scope, pr__buffer *out)
{
    const pr_message *message = pr_scope_message(scope);
    pr__json json;
    pr__json_init(&json, out);
    pr__json_object_begin(&json);
    text(&json, "id", message->id);
    text(&json, "type", message->type);
    pr__json_member_uint(&json, "version", message->type_version);
    pr__json_member_uint(&json, "attempt", (uint64_t)pr_scope_attempts(scope) + 1);
    text(&json, "endpoint", receiver->endpoint);
    text(&json, "content_type", message->content_type);
    text(&json, "destination", message->destination);
    text(&json, "source", message->source);
    text(&json, "key", message->key);
    text(&json, "tenant", message->tenant);
    text(&json, "correlation_id", message->correlation_id);
    text(&json, "causation_id", message->causation_id);
    text(&json, "traceparent", message->traceparent);
    text(&json, "tracestate", message->tracestate);
    if (!pr__text_empty(message->headers)) {
        pr__json_key(&json, "headers");
        write_json(&json, message->headers, strlen(message->headers));
    }
    if (message->occurred_at_us != 0) {
        pr__json_key(&json, "occurred_at");
        pr__json_instant(&json, message->occurred_at_us);
    }
    write_body(&json, message);
    pr__json_object_end(&json);
    pr__buffer_append_char(out, '\n');
    out->failed = out->failed || json.failed;
}
