/*
 * Rows and messages: which columns, in which order, and what is wrong with a row that is no
 * message.
 */
#ifndef PR_STORE_SQLITE_ROW_H
#define PR_STORE_SQLITE_ROW_H

#include <stdint.h>

#include <sqlite3.h>

#include <postroom/message.h>

#include "base/memory.h"
#include "store/sqlite/connection.h"

/* The columns of a message, as the log and the parked tables name them. */
#define PR__MESSAGE_HEAD                                                                           \
    "message_id, type, type_version, content_type, destination, source, key, tenant, "             \
    "correlation_id, causation_id, traceparent, tracestate, headers"
#define PR__MESSAGE_COLUMNS      PR__MESSAGE_HEAD ", body, occurred_at, expires_at"
#define PR__MESSAGE_COLUMN_COUNT 16

/* The same to be read: 17 columns; ?1 is the largest body that is worth loading. */
#define PR__MESSAGE_SELECT                                                                         \
    PR__MESSAGE_HEAD ", CASE WHEN length(body) <= ?1 THEN body END, occurred_at, expires_at, "     \
                     "length(body)"
#define PR__MESSAGE_SELECT_COUNT 17

/* The same without the body, for lists. ?1 is not used. */
#define PR__MESSAGE_SELECT_NO_BODY PR__MESSAGE_HEAD ", NULL, occurred_at, expires_at, length(body)"

/* The texts of the row that was read before, in the same arena: rows repeat their type, content
   type, destination and source, and what is equal is neither checked nor copied again. */
typedef struct pr__row_memory {
    const char *texts[PR__MESSAGE_SELECT_COUNT];
    size_t sizes[PR__MESSAGE_SELECT_COUNT];
} pr__row_memory;

/*
 * Read a message from columns [first, first + 17) into the arena. Text that cannot be a message's
 * (invalid UTF-8, a NUL inside) is read as "" or NULL, and *ret_unreadable (else NULL) says what is
 * wrong; so it does for a body over body_size_max. A destination that is NULL stays NULL.
 * Errors  NOMEM.
 */
pr_status pr__sqlite_read_message(sqlite3_stmt *stmt, int first, pr__arena *arena,
                                  uint64_t body_size_max, pr_message *ret_message,
                                  const char **ret_unreadable, pr_error *err);

/* The same with what the row before has left, for many rows into one arena; {0} at first. A body
   that was left out though it is not over body_size_max is NULL: it is for the caller to load. */
pr_status pr__sqlite_read_next(sqlite3_stmt *stmt, int first, pr__arena *arena,
                               uint64_t body_size_max, pr__row_memory *memory,
                               pr_message *ret_message, const char **ret_unreadable, pr_error *err);

/* Bind the 16 columns at ?first, ?first + 1, …; the message is borrowed until the reset. A NULL
   tenant is bound as "", times that are 0 as NULL where the column allows it. */
pr_status pr__sqlite_bind_message(pr__sqlite_conn *conn, sqlite3_stmt *stmt, int first,
                                  const pr_message *message, pr_error *err);

/* "<transport>://topic/<type>" for a message without destination; NULL when out of memory. */
const char *pr__sqlite_topic(pr__arena *arena, const char *transport, const char *type);

/* Copy a text column; NULL for NULL. *ret_failed is set when out of memory, never cleared. */
const char *pr__sqlite_column_text(sqlite3_stmt *stmt, int column, pr__arena *arena,
                                   bool *ret_failed);

#endif
