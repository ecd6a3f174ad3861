/*
 * Rows and messages: which columns, in which order, and what is wrong with a row that is no
 * message.
 */
#ifndef PR_STORE_POSTGRES_ROW_H
#define PR_STORE_POSTGRES_ROW_H

#include <stdint.h>

#include <libpq-fe.h>

#include <postroom/message.h>

#include "base/memory.h"
#include "store/postgres/params.h"

/* The columns of a message, as the log and the parked tables name them. */
#define PR__PG_MESSAGE_COLUMNS                                                                     \
    "message_id, type, type_version, content_type, destination, source, key, tenant, "             \
    "correlation_id, causation_id, traceparent, tracestate, headers, body, occurred_at, "          \
    "expires_at"
#define PR__PG_MESSAGE_COLUMN_COUNT 16

#define PR__PG_MESSAGE_HEAD(a)      a "message_id::text, " PR__PG_MESSAGE_REST(a)
#define PR__PG_MESSAGE_REST(a)                                                                     \
    a "type, " a "type_version, " a "content_type, " a "destination, " a "source, " a "key, " a    \
      "tenant, " a "correlation_id, " a "causation_id, " a "traceparent, " a "tracestate, " a      \
      "headers"
/* The same to be read, 17 columns; a is the table's alias with its dot, max the largest body that
   is worth loading, as it stands in the statement. */
#define PR__PG_MESSAGE_SELECT(a, max)                                                              \
    PR__PG_MESSAGE_HEAD(a)                                                                         \
    ", CASE WHEN octet_length(" a "body) <= " max " THEN " a "body END, " a "occurred_at, " a      \
    "expires_at, octet_length(" a "body)"
#define PR__PG_MESSAGE_SELECT_COUNT 17

/* The same of the log, with as few values as can be: the id is a uuid, what has its default is
   null, and the size of the body stands there only when the body does not. */
#define PR__PG_MESSAGE_SELECT_BINARY(a, max)                                                       \
    a "message_id, " a "type, NULLIF(" a "type_version, 1), NULLIF(" a                             \
      "content_type, '" PR__PG_CONTENT_TYPE "'), " a "destination, " a "source, " a                \
      "key, NULLIF(" a "tenant, ''), " a "correlation_id, " a "causation_id, " a "traceparent, " a \
      "tracestate, " a "headers, CASE WHEN octet_length(" a "body) <= " max " THEN " a             \
      "body END, " a "occurred_at, " a "expires_at, CASE WHEN octet_length(" a "body) > " max      \
      " THEN octet_length(" a "body) END"
#define PR__PG_CONTENT_TYPE "application/json"

/* The same without the body, for lists. */
#define PR__PG_MESSAGE_SELECT_NO_BODY(a)                                                           \
    PR__PG_MESSAGE_HEAD(a)                                                                         \
    ", NULL::bytea, " a "occurred_at, " a "expires_at, octet_length(" a "body)"

/*
 * Read a message from columns [first, first + 17) of a row into the arena. A body over
 * body_size_max is left out, and *ret_unreadable (else NULL) says so. A destination that is NULL
 * stays NULL. Errors  NOMEM.
 */
pr_status pr__pg_read_message(const PGresult *result, int row, int first, pr__arena *arena,
                              uint64_t body_size_max, pr_message *ret_message,
                              const char **ret_unreadable, pr_error *err);

/* Add the 16 columns as parameters; the message is borrowed until the statement has run. A NULL
   tenant is "", times that are 0 are NULL where the column allows it. id_is_text: of the inbox. */
void pr__pg_add_message(pr__pg_params *params, const pr_message *message, bool id_is_text);

/* "<transport>://topic/<type>" for a message without destination; NULL when out of memory. */
const char *pr__pg_topic(pr__arena *arena, const char *transport, const char *type);

#endif
