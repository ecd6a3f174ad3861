/*
 * Dedup ids, and messages that are too bad to be handled but not to be kept.
 *
 * Keeps: the same message always gets the same id, whichever way it comes; no id is ever cut.
 * Must not know: the inbox, transports.
 */
#include "core/dedup.h"

#include <string.h>

#include <postroom/headers.h>

#include "base/error.h"
#include "base/text.h"
#include "base/time.h"
#include "base/uuid.h"
#include "core/headers.h"
#include "core/message.h"

#define ORIGIN "inbox"

static pr_status usable(const char *text, const char *where, char out[PR_DEDUP_ID_SIZE],
                        pr_error *err)
{
    size_t size = strlen(text);
    if (size == 0)
        return pr__fail(err, PR_E_CONTENT, ORIGIN, "%s is empty: nothing to know it by", where);
    if (!pr__utf8_valid(text, size))
        return pr__fail(err, PR_E_CONTENT, ORIGIN, "%s is not valid UTF-8", where);
    if (pr__uuid_nil(text))
        return pr__fail(err, PR_E_CONTENT, ORIGIN, "%s is all zero: nothing to know it by", where);
    if (size > PR_ID_SIZE_MAX) {
        uint8_t hash[PR_CONTENT_HASH_SIZE];
        char hex[PR_CONTENT_HASH_TEXT_SIZE];
        pr__hash_bytes(text, size, hash);
        pr__hash_text(hash, hex);
        pr__format(out, PR_DEDUP_ID_SIZE, "hash:%s", hex);
        return PR_OK;
    }
    char canonical[PR_UUID_TEXT_SIZE];
    pr__format(out, PR_DEDUP_ID_SIZE, "%s", pr__message_id_canonical(text, canonical));
    return PR_OK;
}

/* Text as it is, an integer in decimal; what other kinds mean as text is a matter of taste, and two
   receivers of different taste would not know a message again. */
static pr_status from_header(const pr_header *header, char out[PR_DEDUP_ID_SIZE], pr_error *err)
{
    if (header->kind == PR_HEADER_TEXT)
        return usable(header->text, "header " PR_HEADER_NAME_MESSAGE_ID, out, err);
    if (header->kind == PR_HEADER_INT) {
        pr__format(out, PR_DEDUP_ID_SIZE, "%lld", (long long)header->integer);
        return PR_OK;
    }
    return pr__fail(err, PR_E_CONTENT, ORIGIN,
                    "header " PR_HEADER_NAME_MESSAGE_ID " is neither a text nor an int");
}

pr_status pr__dedup_id(const pr_message *message, char out[PR_DEDUP_ID_SIZE], pr_error *err)
{
    /* hardly any message has it: look at the text before the headers are read */
    if (message->headers && strstr(message->headers, "\"" PR_HEADER_NAME_MESSAGE_ID "\"")) {
        AUTO(pr_headers) headers = NULL;
        TRY(pr_headers_parse(message->headers, &headers, err));
        const pr_header *header = pr_headers_get(headers, PR_HEADER_NAME_MESSAGE_ID);
        if (header)
            return from_header(header, out, err);
    }
    if (!message->id)
        return pr__fail(err, PR_E_CONTENT, ORIGIN,
                        "it has neither a header " PR_HEADER_NAME_MESSAGE_ID " nor a message id: "
                        "nothing to know it by");
    return usable(message->id, "its message id", out, err);
}

void pr__dedup_stand_in(const uint8_t hash[PR_CONTENT_HASH_SIZE], char out[PR_DEDUP_ID_SIZE])
{
    char hex[PR_CONTENT_HASH_TEXT_SIZE];
    pr__hash_text(hash, hex);
    pr__format(out, PR_DEDUP_ID_SIZE, "no-id:%s", hex);
}

static const char *keepable(const char *text, size_t limit, const char *otherwise)
{
    bool kept = text && strlen(text) <= limit && pr__utf8_valid(text, strlen(text));
    return kept ? text : otherwise;
}

void pr__dedup_make_keepable(pr_message *message)
{
    message->type = keepable(message->type, PR_TYPE_SIZE_MAX, "urn:message:unknown:unreadable");
    if (message->type[0] == '\0')
        message->type = "urn:message:unknown:unreadable";
    if (message->type_version == 0 || message->type_version > INT32_MAX)
        message->type_version = 1;
    message->content_type = keepable(message->content_type, PR_CONTENT_TYPE_SIZE_MAX, NULL);
    if (pr__text_empty(message->content_type))
        message->content_type = "application/octet-stream";
    message->destination = keepable(message->destination, PR_DESTINATION_SIZE_MAX, NULL);
    message->source = keepable(message->source, PR_SOURCE_SIZE_MAX, NULL);
    message->key = keepable(message->key, PR_ID_SIZE_MAX, NULL);
    if (message->key && message->key[0] == '\0')
        message->key = NULL;
    message->tenant = keepable(message->tenant, PR_ID_SIZE_MAX, NULL);
    message->correlation_id = keepable(message->correlation_id, PR_ID_SIZE_MAX, NULL);
    message->causation_id = keepable(message->causation_id, PR_ID_SIZE_MAX, NULL);
    message->traceparent = keepable(message->traceparent, PR_TRACEPARENT_SIZE_MAX, NULL);
    message->tracestate = keepable(message->tracestate, PR_TRACESTATE_SIZE_MAX, NULL);
    message->headers = keepable(message->headers, PR_HEADERS_SIZE_MAX, NULL);
    if (message->headers && pr__headers_check(message->headers, NULL) != PR_OK)
        message->headers = NULL;
    int64_t *const instants[] = {&message->occurred_at_us, &message->expires_at_us,
                                 &message->deliver_at_us};
    for (size_t i = 0; i < sizeof instants / sizeof instants[0]; i++) {
        if (!pr__instant_valid(*instants[i]))
            *instants[i] = 0;
    }
    if (!message->body)
        message->body_size_bytes = 0;
}
