/*
 * Envelopes of the memory broker.
 *
 * Owns: the copy of a message, in one block.
 * Keeps: every byte as it was given, but for deliver_at; the body stands behind the texts.
 * Must not know: queues and subscriptions.
 */
#include "transport/memory/envelope.h"

#include <string.h>

#include "base/memory.h"

/* Every text of a message, in one place. */
#define TEXT_FIELDS(X)                                                                             \
    X(id)                                                                                          \
    X(type)                                                                                        \
    X(content_type)                                                                                \
    X(destination)                                                                                 \
    X(source)                                                                                      \
    X(key)                                                                                         \
    X(tenant)                                                                                      \
    X(correlation_id)                                                                              \
    X(causation_id)                                                                                \
    X(traceparent)                                                                                 \
    X(tracestate)                                                                                  \
    X(headers)

static size_t text_size(const char *text)
{
    return text ? strlen(text) + 1 : 0;
}

static const char *put(char **at, const char *text)
{
    if (!text)
        return NULL;
    size_t size = strlen(text) + 1;
    char *copy = *at;
    memcpy(copy, text, size);
    *at += size;
    return copy;
}

pr__envelope *pr__envelope_new(const pr_message *message)
{
    size_t texts = 0;
#define TEXT_SIZE(field) texts += text_size(message->field);
    TEXT_FIELDS(TEXT_SIZE)
#undef TEXT_SIZE
    size_t size;
    if (__builtin_add_overflow(sizeof(pr__envelope) + texts, message->body_size_bytes, &size))
        return NULL;
    pr__envelope *envelope = pr__alloc(size);
    if (!envelope)
        return NULL;
    envelope->references = 1;
    envelope->size = size;
    envelope->message = *message;
    envelope->message.size = (uint32_t)sizeof(pr_message);
    envelope->message.deliver_at_us = 0; /* it was due when it was sent */
    char *at = (char *)(envelope + 1);
#define TEXT_PUT(field) envelope->message.field = put(&at, message->field);
    TEXT_FIELDS(TEXT_PUT)
#undef TEXT_PUT
    if (message->body) {
        if (message->body_size_bytes > 0)
            memcpy(at, message->body, message->body_size_bytes);
        envelope->message.body = message->body_size_bytes > 0 ? at : "";
    }
    return envelope;
}

pr__envelope *pr__envelope_hold(pr__envelope *envelope)
{
    envelope->references++;
    return envelope;
}

void *pr__envelope_release(pr__envelope *envelope)
{
    if (envelope && --envelope->references == 0)
        pr__free(envelope);
    return NULL;
}
