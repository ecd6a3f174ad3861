/*
 * What a call may answer. Each status is something that a caller can act on.
 *
 * "Nothing to claim" and "would block" are results (ret_ parameters), never a status.
 */
#ifndef POSTROOM_STATUS_H
#define POSTROOM_STATUS_H

#include <postroom/export.h>

/* X(name, text, what the caller does) */
#define PR_STATUS_LIST(X)                                                                          \
    X(OK, "ok", "nothing")                                                                         \
    X(E_INVALID, "invalid", "mend the call: an argument or option is wrong")                       \
    X(E_LIMIT, "limit", "make it smaller, or raise the limit that the message names")              \
    X(E_CONTENT, "content", "mend the content: bad UTF-8, bad JSON, a field of the wrong type")    \
    X(E_NOT_FOUND, "not-found", "check the id or the name")                                        \
    X(E_STATE, "state", "look at its state first: the operation does not apply to it")             \
    X(E_CONFLICT, "conflict", "use another id: this one stands with other content")                \
    X(E_BUSY, "busy", "try again later: somebody else holds it")                                   \
    X(E_FENCED, "fenced", "discard the outcome: somebody else took over")                          \
    X(E_SCHEMA, "schema", "migrate, or use the matching version")                                  \
    X(E_BACKEND, "backend", "look at err->retry: the database or the broker failed")               \
    X(E_UNSUPPORTED, "unsupported", "use another adapter, or do without")                          \
    X(E_CANCELLED, "cancelled", "nothing: it was asked to stop")                                   \
    X(E_NOMEM, "no-memory", "free memory")

typedef enum pr_status {
#define PR_STATUS_ENUM(name, text, action) PR_##name,
    PR_STATUS_LIST(PR_STATUS_ENUM)
#undef PR_STATUS_ENUM
} pr_status;

PR_BEGIN_DECLS

/**
 * The stable name of a status, such as "busy"; "unknown" for a value that is none.
 *
 * Owner   a constant string.
 * Since   0.1
 */
PR_API const char *pr_status_text(pr_status status);

PR_END_DECLS

#endif
