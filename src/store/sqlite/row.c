/*
 * Reading rows as messages and binding messages as rows.
 *
 * Invariant: one row that other hands wrote badly costs that row only; it is read with the reason
 * beside it, never as an error of the whole batch. Bodies are never parsed.
 */
#include "store/sqlite/row.h"

#include <string.h>

#include "base/error.h"
#include "base/text.h"
#include "base/uuid.h"
#include "store/sqlite/failure.h"

#define ORIGIN      "sqlite"
#define REASON_SIZE 160

typedef struct row_reader {
    sqlite3_stmt *stmt;
    int first;
    pr__arena *arena;
    pr__row_memory *memory;
    bool failed;            /* out of memory */
    const char *unreadable; /* the first thing that was wrong */
} row_reader;

static void complain(row_reader *reader, const char *what, const char *why)
{
    if (reader->unreadable)
        return;
    char text[REASON_SIZE];
    pr__format(text, sizeof text, "%s %s", what, why);
    reader->unreadable = pr__arena_strdup(reader->arena, text);
    if (!reader->unreadable)
        reader->failed = true;
}

static const char *keep_text(row_reader *reader, const char *text, size_t size, const char *name,
                             const char *fallback)
{
    if (memchr(text, '\0', size)) {
        complain(reader, name, "holds a NUL character");
        return fallback;
    }
    if (!pr__utf8_valid(text, size)) {
        complain(reader, name, "is not valid UTF-8");
        return fallback;
    }
    const char *copy = pr__arena_strndup(reader->arena, text, size);
    if (!copy)
        reader->failed = true;
    return copy;
}

/* The bytes are taken as they are: the encoding is UTF-8 (checked when a store is opened), and
   asking for text would make a copy of each only to put a NUL behind it. */
static const char *read_text(row_reader *reader, int column, const char *name, const char *fallback)
{
    if (sqlite3_column_type(reader->stmt, column) == SQLITE_NULL)
        return NULL;
    const char *text = sqlite3_column_blob(reader->stmt, column);
    size_t size = (size_t)sqlite3_column_bytes(reader->stmt, column);
    if (size == 0)
        return "";
    if (!text) {
        reader->failed = true;
        return fallback;
    }
    const char **before = &reader->memory->texts[column - reader->first];
    size_t *size_before = &reader->memory->sizes[column - reader->first];
    if (*before && *size_before == size && memcmp(*before, text, size) == 0)
        return *before;
    const char *kept = keep_text(reader, text, size, name, fallback);
    *before = kept != fallback ? kept : NULL;
    *size_before = size;
    return kept;
}

static void read_body(row_reader *reader, int column, uint64_t size_max, pr_message *message)
{
    int64_t size = sqlite3_column_int64(reader->stmt, column + 3);
    message->body_size_bytes = (uint64_t)size;
    if (sqlite3_column_type(reader->stmt, column) == SQLITE_NULL) {
        if ((uint64_t)size > size_max) {
            char why[REASON_SIZE];
            pr__format(why, sizeof why, "has %lld bytes, the store takes %llu", (long long)size,
                       (unsigned long long)size_max);
            complain(reader, "the body", why);
        }
        return;
    }
    const void *body = sqlite3_column_blob(reader->stmt, column);
    if (!body && size > 0) {
        reader->failed = true;
        return;
    }
    message->body = pr__arena_memdup(reader->arena, body, (size_t)size);
    if (!message->body)
        reader->failed = true;
}

pr_status pr__sqlite_read_message(sqlite3_stmt *stmt, int first, pr__arena *arena,
                                  uint64_t body_size_max, pr_message *ret_message,
                                  const char **ret_unreadable, pr_error *err)
{
    pr__row_memory none = {{NULL}, {0}};
    return pr__sqlite_read_next(stmt, first, arena, body_size_max, &none, ret_message,
                                ret_unreadable, err);
}

pr_status pr__sqlite_read_next(sqlite3_stmt *stmt, int first, pr__arena *arena,
                               uint64_t body_size_max, pr__row_memory *memory,
                               pr_message *ret_message, const char **ret_unreadable, pr_error *err)
{
    row_reader reader = {.stmt = stmt, .first = first, .arena = arena, .memory = memory};
    pr_message message = {.size = (uint32_t)sizeof message};
    int at = first;
    message.id = read_text(&reader, at++, "message_id", "");
    message.type = read_text(&reader, at++, "type", "");
    message.type_version = (uint32_t)sqlite3_column_int64(stmt, at++);
    message.content_type = read_text(&reader, at++, "content_type", "");
    message.destination = read_text(&reader, at++, "destination", "");
    message.source = read_text(&reader, at++, "source", NULL);
    message.key = read_text(&reader, at++, "key", NULL);
    message.tenant = read_text(&reader, at++, "tenant", "");
    message.correlation_id = read_text(&reader, at++, "correlation_id", NULL);
    message.causation_id = read_text(&reader, at++, "causation_id", NULL);
    message.traceparent = read_text(&reader, at++, "traceparent", NULL);
    message.tracestate = read_text(&reader, at++, "tracestate", NULL);
    message.headers = read_text(&reader, at++, "headers", NULL);
    read_body(&reader, at++, body_size_max, &message);
    message.occurred_at_us = sqlite3_column_int64(stmt, at++);
    message.expires_at_us = sqlite3_column_int64(stmt, at++);
    if (reader.failed)
        return pr__fail_nomem(err, ORIGIN);
    *ret_message = message;
    *ret_unreadable = reader.unreadable;
    return PR_OK;
}

static int bind_text(sqlite3_stmt *stmt, int i, const char *text)
{
    if (!text)
        return sqlite3_bind_null(stmt, i);
    return sqlite3_bind_text64(stmt, i, text, strlen(text), SQLITE_STATIC, SQLITE_UTF8);
}

/* The log takes ids in lower case only, so that equal ids are equal text. */
static int bind_id(sqlite3_stmt *stmt, int i, const char *id)
{
    char lower[PR_UUID_TEXT_SIZE];
    size_t size = strlen(id);
    bool upper = false;
    for (size_t n = 0; n < size; n++)
        upper = upper || (id[n] >= 'A' && id[n] <= 'F');
    if (!upper || size >= sizeof lower)
        return bind_text(stmt, i, id);
    for (size_t n = 0; n <= size; n++)
        lower[n] = (char)(id[n] >= 'A' && id[n] <= 'F' ? id[n] + ('a' - 'A') : id[n]);
    return sqlite3_bind_text64(stmt, i, lower, size, SQLITE_TRANSIENT, SQLITE_UTF8);
}

pr_status pr__sqlite_bind_message(pr__sqlite_conn *conn, sqlite3_stmt *stmt, int first,
                                  const pr_message *message, pr_error *err)
{
    int at = first;
    int code = bind_id(stmt, at++, message->id);
    code |= bind_text(stmt, at++, message->type);
    code |= sqlite3_bind_int64(stmt, at++, message->type_version ? message->type_version : 1);
    code |=
        bind_text(stmt, at++, message->content_type ? message->content_type : PR_CONTENT_TYPE_JSON);
    code |= bind_text(stmt, at++, message->destination);
    code |= bind_text(stmt, at++, message->source);
    code |= bind_text(stmt, at++, message->key);
    code |= bind_text(stmt, at++, message->tenant ? message->tenant : "");
    code |= bind_text(stmt, at++, message->correlation_id);
    code |= bind_text(stmt, at++, message->causation_id);
    code |= bind_text(stmt, at++, message->traceparent);
    code |= bind_text(stmt, at++, message->tracestate);
    code |= bind_text(stmt, at++, message->headers);
    if (message->body_size_bytes == 0)
        code |= sqlite3_bind_zeroblob(stmt, at++, 0);
    else
        code |=
            sqlite3_bind_blob64(stmt, at++, message->body, message->body_size_bytes, SQLITE_STATIC);
    code |= sqlite3_bind_int64(stmt, at++, message->occurred_at_us);
    code |= message->expires_at_us ? sqlite3_bind_int64(stmt, at, message->expires_at_us)
                                   : sqlite3_bind_null(stmt, at);
    if (code != SQLITE_OK)
        return pr__sqlite_fail(conn, sqlite3_errcode(conn->db), err);
    return PR_OK;
}

const char *pr__sqlite_topic(pr__arena *arena, const char *transport, const char *type)
{
    static const char topic[] = "://topic/"; /* once a message: put together without a format */
    size_t transport_size = strlen(transport), type_size = strlen(type);
    char *address = pr__arena_alloc(arena, transport_size + sizeof topic + type_size);
    if (!address)
        return NULL;
    memcpy(address, transport, transport_size);
    memcpy(address + transport_size, topic, sizeof topic - 1);
    memcpy(address + transport_size + sizeof topic - 1, type, type_size + 1);
    return address;
}

const char *pr__sqlite_column_text(sqlite3_stmt *stmt, int column, pr__arena *arena,
                                   bool *ret_failed)
{
    if (sqlite3_column_type(stmt, column) == SQLITE_NULL)
        return NULL;
    const char *text = (const char *)sqlite3_column_text(stmt, column);
    const char *copy = text ? pr__arena_strdup(arena, text) : NULL;
    if (!copy)
        *ret_failed = true;
    return copy;
}
