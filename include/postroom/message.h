/*
 * A message: id, type, version, envelope, body bytes. Fixed at birth; retry, redelivery and redrive
 * change none of it.
 *
 * Text fields are NUL-terminated UTF-8; NULL means "none" and, for id, type_version, content_type,
 * destination and occurred_at_us, "choose the default at enqueue".
 */
#ifndef POSTROOM_MESSAGE_H
#define POSTROOM_MESSAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <postroom/error.h>
#include <postroom/limits.h>

#define PR_CONTENT_TYPE_JSON "application/json"

typedef struct pr_message {
    uint32_t size;            /* sizeof(pr_message) */
    uint32_t type_version;    /* schema version >= 1; 0 = 1 */
    const char *id;           /* UUID text; NULL = a UUIDv7 made at enqueue. Received: any text */
    const char *type;         /* urn:message:<namespace>:<name> */
    const char *content_type; /* NULL = PR_CONTENT_TYPE_JSON */
    const char *destination;  /* an address; NULL = the type's topic on the default transport */
    const char *source;       /* who sends it */
    const char *key;          /* order scope; NULL = no order. "" is refused */
    const char *tenant;       /* NULL and "" are the same: none */
    const char *correlation_id;
    const char *causation_id;
    const char *traceparent; /* W3C trace context */
    const char *tracestate;
    const char *headers; /* JSON object text, see pr_headers; NULL = none */
    const void *body;    /* NULL only when body_size_bytes is 0 */
    uint64_t body_size_bytes;
    int64_t occurred_at_us; /* microseconds since 1970, UTC; 0 = now */
    int64_t expires_at_us;  /* not sent afterwards; 0 = never */
    int64_t deliver_at_us;  /* not sent before; 0 = at once */
} pr_message;

/* clang-format off */
/* In a PR_MESSAGE: a body that is a string literal, such as PR_BODY("{\"order\":1}"). */
#define PR_BODY(literal) .body = "" literal, .body_size_bytes = sizeof("" literal) - 1
#define PR_MESSAGE(...) {.size = (uint32_t)sizeof(pr_message), __VA_ARGS__}
/* clang-format on */

PR_BEGIN_DECLS

/**
 * Check a message against every limit: sizes in bytes, UTF-8, id, instants, headers, address.
 *
 * Shape   body_size_max: the highest body size allowed; 0 = PR_BODY_SIZE_DEFAULT.
 * Owner   message is borrowed.
 * Errors  INVALID: size, NULL body with a length, no type. LIMIT: a field is too long; the message
 *         names it, its size and the limit. CONTENT: not UTF-8, a malformed type, id, address,
 *         header, an all-zero id, an instant out of range.
 * Source  docs/design/message.md.
 * Since   0.1
 */
PR_API PR_MUST_CHECK pr_status pr_message_check(const pr_message *message, uint64_t body_size_max,
                                                pr_error *err);

/**
 * Copy a message and all it points to into one block.
 *
 * Owner   *ret_copy is the caller's: pr_message_free().
 * Errors  NOMEM.
 * Since   0.1
 */
PR_API PR_MUST_CHECK pr_status pr_message_copy(const pr_message *message, pr_message **ret_copy,
                                               pr_error *err);

/**
 * Free a message made by pr_message_copy.
 *
 * Owner   accepts NULL; returns NULL.
 * Since   0.1
 */
PR_API pr_message *pr_message_free(pr_message *message);

PR_END_DECLS

#endif
