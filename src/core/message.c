/*
 * Messages: every limit is checked here, before any transaction starts, and copies are made here.
 *
 * Owns: the limits of a message, in bytes, and the text that names the field, its size and the
 * limit.
 * Keeps: a message that passed can be stored by every store and carried by every transport.
 * Must not know: contracts, units, databases.
 */
#include "core/message.h"

#include <string.h>

#include <postroom/address.h>

#include "base/error.h"
#include "base/sized.h"
#include "base/text.h"
#include "base/time.h"
#include "core/headers.h"
#include "core/type.h"

#define ORIGIN "message"

typedef enum text_rule {
    TEXT_ANY,  /* valid UTF-8 */
    TEXT_LINE, /* and no control characters: it becomes part of a protocol line elsewhere */
} text_rule;

typedef struct text_field {
    const char *name;
    size_t offset; /* of a const char * in pr_message */
    size_t limit;
    text_rule rule;
} text_field;

/* id, type, destination and headers have rules of their own. */
static const text_field text_fields[] = {
    {"content_type", offsetof(pr_message, content_type), PR_CONTENT_TYPE_SIZE_MAX, TEXT_LINE},
    {"source", offsetof(pr_message, source), PR_SOURCE_SIZE_MAX, TEXT_LINE},
    {"key", offsetof(pr_message, key), PR_ID_SIZE_MAX, TEXT_ANY},
    {"tenant", offsetof(pr_message, tenant), PR_ID_SIZE_MAX, TEXT_ANY},
    {"correlation_id", offsetof(pr_message, correlation_id), PR_ID_SIZE_MAX, TEXT_ANY},
    {"causation_id", offsetof(pr_message, causation_id), PR_ID_SIZE_MAX, TEXT_ANY},
    {"traceparent", offsetof(pr_message, traceparent), PR_TRACEPARENT_SIZE_MAX, TEXT_LINE},
    {"tracestate", offsetof(pr_message, tracestate), PR_TRACESTATE_SIZE_MAX, TEXT_LINE},
};

static pr_status check_text(const char *name, const char *text, size_t limit, text_rule rule,
                            pr_error *err)
{
    size_t size = strlen(text);
    if (size > limit)
        return pr__fail(err, PR_E_LIMIT, ORIGIN, "%s has %zu bytes, at most %zu", name, size,
                        limit);
    if (!pr__utf8_valid(text, size))
        return pr__fail(err, PR_E_CONTENT, ORIGIN, "%s is not valid UTF-8", name);
    for (size_t i = 0; rule == TEXT_LINE && i < size; i++) {
        if ((unsigned char)text[i] < 0x20 || text[i] == 0x7F)
            return pr__fail(err, PR_E_CONTENT, ORIGIN, "%s has a control character at byte %zu",
                            name, i);
    }
    return PR_OK;
}

static pr_status check_text_fields(const pr_message *message, pr_error *err)
{
    for (size_t i = 0; i < sizeof(text_fields) / sizeof(text_fields[0]); i++) {
        const text_field *field = &text_fields[i];
        const char *text;
        memcpy(&text, (const char *)message + field->offset, sizeof(text));
        if (text)
            TRY(check_text(field->name, text, field->limit, field->rule, err));
    }
    if (message->content_type && message->content_type[0] == '\0')
        return pr__fail(err, PR_E_INVALID, ORIGIN,
                        "content_type is empty: leave it NULL for application/json");
    if (message->key && message->key[0] == '\0')
        return pr__fail(err, PR_E_INVALID, ORIGIN, "key is empty: leave it NULL for no order");
    return PR_OK;
}

static pr_status check_instant(const char *name, int64_t instant_us, pr_error *err)
{
    if (!pr__instant_valid(instant_us))
        return pr__fail(err, PR_E_CONTENT, ORIGIN,
                        "%s is %lld, must lie in the years 1 to 9999, as microseconds since 1970",
                        name, (long long)instant_us);
    return PR_OK;
}

static pr_status check_body(const pr_message *message, uint64_t body_size_max, pr_error *err)
{
    uint64_t limit = body_size_max ? body_size_max : (uint64_t)PR_BODY_SIZE_DEFAULT;
    if (limit > (uint64_t)PR_BODY_SIZE_MAX)
        return pr__fail(err, PR_E_INVALID, ORIGIN, "body_size_max is %llu, at most %lld",
                        (unsigned long long)limit, PR_BODY_SIZE_MAX);
    if (!message->body && message->body_size_bytes > 0)
        return pr__fail(err, PR_E_INVALID, ORIGIN, "body is NULL, but body_size_bytes is %llu",
                        (unsigned long long)message->body_size_bytes);
    if (message->body_size_bytes > limit)
        return pr__fail(err, PR_E_LIMIT, ORIGIN, "body has %llu bytes, at most %llu",
                        (unsigned long long)message->body_size_bytes, (unsigned long long)limit);
    return PR_OK;
}

/* What holds at birth and at receipt alike. */
static pr_status check_common(const pr_message *message, uint64_t body_size_max, pr_error *err)
{
    TRY(pr__type_version_check(message->type_version, err));
    TRY(check_text_fields(message, err));
    TRY(check_instant("occurred_at_us", message->occurred_at_us, err));
    TRY(check_instant("expires_at_us", message->expires_at_us, err));
    TRY(check_instant("deliver_at_us", message->deliver_at_us, err));
    TRY(check_body(message, body_size_max, err));
    if (message->headers)
        TRY(pr__headers_check(message->headers, err));
    return PR_OK;
}

static pr_status check_nil(const char *id, pr_error *err)
{
    if (pr__uuid_nil(id))
        return pr__fail(err, PR_E_CONTENT, ORIGIN, "id is all zero: leave it NULL for a new one");
    return PR_OK;
}

pr_status pr_message_check(const pr_message *message, uint64_t body_size_max, pr_error *err)
{
    TRY(pr__sized_check(message, sizeof *message, "pr_message", ORIGIN, err));
    if (!message->type)
        return pr__fail(err, PR_E_INVALID, ORIGIN, "type is missing");
    TRY(pr__type_check(message->type, strlen(message->type), NULL, err));
    if (message->id) {
        TRY(check_text("id", message->id, PR_ID_SIZE_MAX, TEXT_ANY, err));
        if (!pr__uuid_valid(message->id))
            return pr__fail(err, PR_E_CONTENT, ORIGIN, "id '%s' is not a UUID", message->id);
        TRY(check_nil(message->id, err));
    }
    if (message->destination) {
        pr_address address;
        pr_error local = PR_ERROR_INIT;
        pr_status status = pr_address_parse(message->destination, &address, &local);
        if (status != PR_OK) {
            pr__error_context(&local, "destination");
            pr__error_copy(err, &local);
            return status;
        }
    }
    if (message->headers && message->headers[0] == '\0')
        return pr__fail(err, PR_E_CONTENT, ORIGIN, "headers are empty text: leave them NULL");
    return check_common(message, body_size_max, err);
}

pr_status pr__message_check_received(const pr_message *message, uint64_t body_size_max,
                                     pr_error *err)
{
    TRY(pr__sized_check(message, sizeof *message, "pr_message", ORIGIN, err));
    if (pr__text_empty(message->id))
        return pr__fail(err, PR_E_CONTENT, ORIGIN, "id is missing");
    if (pr__text_empty(message->type))
        return pr__fail(err, PR_E_CONTENT, ORIGIN, "type is missing");
    TRY(check_text("id", message->id, PR_ID_SIZE_MAX, TEXT_ANY, err));
    TRY(check_nil(message->id, err));
    TRY(check_text("type", message->type, PR_TYPE_SIZE_MAX, TEXT_ANY, err));
    if (message->destination)
        TRY(check_text("destination", message->destination, PR_DESTINATION_SIZE_MAX, TEXT_ANY,
                       err));
    return check_common(message, body_size_max, err);
}

const char *pr__message_id_canonical(const char *id, char out[PR_UUID_TEXT_SIZE])
{
    uint8_t bytes[16];
    if (!pr__uuid_parse(id, bytes))
        return id;
    pr__uuid_text(bytes, out);
    return out;
}

bool pr__message_id_equal(const char *a, const char *b)
{
    char canonical_a[PR_UUID_TEXT_SIZE], canonical_b[PR_UUID_TEXT_SIZE];
    if (!a || !b)
        return a == b;
    return strcmp(pr__message_id_canonical(a, canonical_a),
                  pr__message_id_canonical(b, canonical_b)) == 0;
}

/* Every text of a message, for the copy. */
static const size_t copied_texts[] = {
    offsetof(pr_message, id),           offsetof(pr_message, type),
    offsetof(pr_message, content_type), offsetof(pr_message, destination),
    offsetof(pr_message, source),       offsetof(pr_message, key),
    offsetof(pr_message, tenant),       offsetof(pr_message, correlation_id),
    offsetof(pr_message, causation_id), offsetof(pr_message, traceparent),
    offsetof(pr_message, tracestate),   offsetof(pr_message, headers),
};
#define COPIED_TEXTS (sizeof(copied_texts) / sizeof(copied_texts[0]))

pr_status pr_message_copy(const pr_message *message, pr_message **ret_copy, pr_error *err)
{
    TRY(pr__sized_check(message, sizeof *message, "pr_message", ORIGIN, err));
    if (!ret_copy || (!message->body && message->body_size_bytes > 0))
        return pr__fail(err, PR_E_INVALID, ORIGIN, "ret_copy is NULL, or a NULL body has a length");
    const char *texts[COPIED_TEXTS];
    size_t sizes[COPIED_TEXTS];
    size_t total = sizeof(*message);
    for (size_t i = 0; i < COPIED_TEXTS; i++) {
        memcpy(&texts[i], (const char *)message + copied_texts[i], sizeof(texts[i]));
        sizes[i] = texts[i] ? strlen(texts[i]) + 1 : 0;
        total += sizes[i];
    }
    if (message->body_size_bytes > SIZE_MAX - total - 1)
        return pr__fail_nomem(err, ORIGIN);
    total += (size_t)message->body_size_bytes + 1;

    char *block = pr__alloc(total);
    if (!block)
        return pr__fail_nomem(err, ORIGIN);
    pr_message *copy = (pr_message *)(void *)block;
    char *at = block + sizeof(*copy);
    memcpy(copy, message, sizeof(*copy));
    copy->size = (uint32_t)sizeof(*copy);
    for (size_t i = 0; i < COPIED_TEXTS; i++) {
        if (!texts[i])
            continue;
        memcpy(at, texts[i], sizes[i]);
        memcpy(block + copied_texts[i], &at, sizeof(at));
        at += sizes[i];
    }
    if (message->body) {
        if (message->body_size_bytes > 0)
            memcpy(at, message->body, (size_t)message->body_size_bytes);
        copy->body = at; /* a NUL stands behind it, for those who print it */
    }
    *ret_copy = copy;
    return PR_OK;
}

pr_message *pr_message_free(pr_message *message)
{
    return pr__free(message);
}
