/*
 * The headers of a message: JSON text of an object whose values are strings, or {"<kind>": value}
 * for other kinds, so that kinds survive every store and transport.
 */
#ifndef POSTROOM_HEADERS_H
#define POSTROOM_HEADERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <postroom/error.h>
#include <postroom/message.h>

typedef struct pr_headers pr_headers;

typedef enum pr_header_kind {
    PR_HEADER_TEXT = 1,
    PR_HEADER_INT,     /* {"int": 1} */
    PR_HEADER_DOUBLE,  /* {"double": 1.5} */
    PR_HEADER_BOOL,    /* {"bool": true} */
    PR_HEADER_INSTANT, /* {"instant": "2026-01-31T12:00:00.000000Z"} */
    PR_HEADER_BYTES,   /* {"bytes": "<base64>"} */
    PR_HEADER_OTHER    /* any other {"<kind>": value}: kept as it is */
} pr_header_kind;

typedef struct pr_header {
    pr_header_kind kind;
    const char *name;
    const char *text;  /* TEXT; the JSON text of OTHER */
    int64_t integer;   /* INT, BOOL (0 or 1), INSTANT (microseconds) */
    double real;       /* DOUBLE */
    const void *bytes; /* BYTES */
    size_t bytes_size;
} pr_header;

/* The header that lets a topic message be published although nobody subscribes. */
#define PR_HEADER_NAME_UNROUTED_OK "postroom-unrouted-ok"

/* The header that, where it is set, is the id by which a receiver knows a message again: text, or
   an int in decimal; any other kind is refused. Without it the id is the message's own. */
#define PR_HEADER_NAME_MESSAGE_ID "postroom-message-id"

PR_BEGIN_DECLS

/**
 * Read headers from JSON text; NULL or "" gives none.
 *
 * Owner   *ret_headers is the caller's: pr_headers_free().
 * Errors  CONTENT: not an object, a value of the wrong shape. LIMIT: one or all too long. NOMEM.
 * Since   0.1
 */
PR_API PR_MUST_CHECK pr_status pr_headers_parse(const char *json, pr_headers **ret_headers,
                                                pr_error *err);

/**
 * Free headers.
 *
 * Owner   accepts NULL; returns NULL.
 * Since   0.1
 */
PR_API pr_headers *pr_headers_free(pr_headers *headers);

/**
 * Set one header, replacing one of the same name.
 *
 * Owner   header is borrowed and copied.
 * Errors  INVALID, CONTENT (UTF-8, non-finite number), LIMIT, NOMEM.
 * Since   0.1
 */
PR_API PR_MUST_CHECK pr_status pr_headers_set(pr_headers *headers, const pr_header *header,
                                              pr_error *err);

/**
 * The header of a name, or NULL.
 *
 * Owner   headers'; valid until the next change.
 * Since   0.1
 */
PR_API const pr_header *pr_headers_get(const pr_headers *headers, const char *name);

/**
 * The i-th header in order of insertion, or NULL beyond the last.
 *
 * Owner   headers'; valid until the next change.
 * Since   0.1
 */
PR_API const pr_header *pr_headers_at(const pr_headers *headers, size_t index);

/**
 * The JSON text for pr_message.headers; NULL when there is no header.
 *
 * Owner   *ret_json is headers'; valid until the next change.
 * Errors  LIMIT: all headers together are too long. NOMEM.
 * Since   0.1
 */
PR_API PR_MUST_CHECK pr_status pr_headers_json(pr_headers *headers, const char **ret_json,
                                               pr_error *err);

/**
 * May this message be published although nobody subscribes to its topic? For transports: it says so
 * in the header PR_HEADER_NAME_UNROUTED_OK, as a contract with PR_CONTRACT_UNROUTED_OK does.
 *
 * Owner   message is borrowed.
 * Thread  any.
 * Since   0.1
 */
PR_API bool pr_message_unrouted_ok(const pr_message *message);

PR_END_DECLS

#endif
