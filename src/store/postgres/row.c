/*
 * Reading rows as messages and messages as parameters.
 *
 * Invariant: one row that is too large costs that row only; it is read with the reason beside it.
 * Bodies are never parsed. Text of the server is valid UTF-8 without NUL: it keeps no other.
 */
#include "store/postgres/row.h"

#include <string.h>

#include "base/error.h"
#include "base/text.h"
#include "store/postgres/value.h"

#define ORIGIN      "postgres"
#define REASON_SIZE 160

static bool read_body(const PGresult *result, int row, int column, pr__arena *arena,
                      uint64_t size_max, pr_message *message, const char **ret_unreadable)
{
    if (!PQgetisnull(result, row, column)) {
        size_t there = (size_t)PQgetlength(result, row, column);
        message->body_size_bytes = there;
        message->body = pr__arena_memdup(arena, PQgetvalue(result, row, column), there);
        return message->body != NULL;
    }
    uint64_t size = (uint64_t)pr__pg_value_int(result, row, column + 3);
    message->body_size_bytes = size;
    if (size <= size_max)
        return true;
    char why[REASON_SIZE];
    pr__format(why, sizeof why, "the body has %llu bytes, the store takes %llu",
               (unsigned long long)size, (unsigned long long)size_max);
    *ret_unreadable = pr__arena_strdup(arena, why);
    return *ret_unreadable != NULL;
}

/* Of the log a uuid, of the parked tables text. */
static const char *read_id(const PGresult *result, int row, int column, pr__arena *arena,
                           bool *ret_failed)
{
    if (PQftype(result, column) != PR__PG_UUID)
        return pr__pg_value_copy(result, row, column, arena, ret_failed);
    char *text = pr__arena_alloc(arena, PR_UUID_TEXT_SIZE);
    if (text)
        pr__pg_value_uuid(result, row, column, text);
    else
        *ret_failed = true;
    return text;
}

pr_status pr__pg_read_message(const PGresult *result, int row, int first, pr__arena *arena,
                              uint64_t body_size_max, pr_message *ret_message,
                              const char **ret_unreadable, pr_error *err)
{
    pr_message message = {.size = (uint32_t)sizeof message};
    const char *unreadable = NULL;
    bool failed = false;
    int at = first;
    message.id = read_id(result, row, at++, arena, &failed);
    message.type = pr__pg_value_copy(result, row, at++, arena, &failed);
    message.type_version = (uint32_t)pr__pg_value_int(result, row, at++);
    message.content_type = pr__pg_value_copy(result, row, at++, arena, &failed);
    message.destination = pr__pg_value_copy(result, row, at++, arena, &failed);
    message.source = pr__pg_value_copy(result, row, at++, arena, &failed);
    message.key = pr__pg_value_copy(result, row, at++, arena, &failed);
    message.tenant = pr__pg_value_copy(result, row, at++, arena, &failed);
    message.correlation_id = pr__pg_value_copy(result, row, at++, arena, &failed);
    message.causation_id = pr__pg_value_copy(result, row, at++, arena, &failed);
    message.traceparent = pr__pg_value_copy(result, row, at++, arena, &failed);
    message.tracestate = pr__pg_value_copy(result, row, at++, arena, &failed);
    message.headers = pr__pg_value_copy(result, row, at++, arena, &failed);
    if (!read_body(result, row, at++, arena, body_size_max, &message, &unreadable) || failed)
        return pr__fail_nomem(err, ORIGIN);
    message.occurred_at_us = pr__pg_value_instant(result, row, at++);
    message.expires_at_us = pr__pg_value_instant(result, row, at);
    if (message.type_version == 0)
        message.type_version = 1;
    if (!message.content_type)
        message.content_type = PR__PG_CONTENT_TYPE;
    if (!message.tenant)
        message.tenant = "";
    *ret_message = message;
    *ret_unreadable = unreadable;
    return PR_OK;
}

void pr__pg_add_message(pr__pg_params *params, const pr_message *message, bool id_is_text)
{
    if (id_is_text)
        pr__pg_add_text(params, message->id);
    else
        pr__pg_add_uuid(params, message->id);
    pr__pg_add_text(params, message->type);
    pr__pg_add_int(params, message->type_version ? message->type_version : 1);
    pr__pg_add_text(params, message->content_type ? message->content_type : PR_CONTENT_TYPE_JSON);
    pr__pg_add_text(params, message->destination);
    pr__pg_add_text(params, message->source);
    pr__pg_add_text(params, message->key);
    pr__pg_add_text(params, message->tenant ? message->tenant : "");
    pr__pg_add_text(params, message->correlation_id);
    pr__pg_add_text(params, message->causation_id);
    pr__pg_add_text(params, message->traceparent);
    pr__pg_add_text(params, message->tracestate);
    pr__pg_add_text(params, message->headers);
    pr__pg_add_bytes(params, message->body_size_bytes ? message->body : "",
                     (size_t)message->body_size_bytes);
    pr__pg_add_moment(params, message->occurred_at_us);
    pr__pg_add_instant(params, message->expires_at_us);
}

const char *pr__pg_topic(pr__arena *arena, const char *transport, const char *type)
{
    static const char between[] = "://topic/";
    size_t transport_size = strlen(transport);
    size_t type_size = strlen(type);
    size_t begin = transport_size + sizeof between - 1;
    char *address = pr__arena_alloc(arena, begin + type_size + 1);
    if (!address)
        return NULL;
    memcpy(address, transport, transport_size);
    memcpy(address + transport_size, between, sizeof between - 1);
    memcpy(address + begin, type, type_size);
    return address;
}
