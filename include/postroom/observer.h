/*
 * The observer port: the library never logs, it tells an observer what happened.
 *
 * An observation never holds a body, a header value or a secret.
 */
#ifndef POSTROOM_OBSERVER_H
#define POSTROOM_OBSERVER_H

#include <stdint.h>

#include <postroom/status.h>

/* X(name, OpenTelemetry name) */
#define PR_OBSERVATION_LIST(X)                                                                     \
    X(ENQUEUED, "messaging.outbox.enqueued")                                                       \
    X(CLAIMED, "messaging.outbox.claimed")                                                         \
    X(PUBLISHED, "messaging.outbox.published")                                                     \
    X(FAILED, "messaging.outbox.failed")                                                           \
    X(DEFERRED, "messaging.outbox.deferred")                                                       \
    X(DEAD, "messaging.outbox.dead")                                                               \
    X(HELD, "messaging.outbox.held")                                                               \
    X(LOST, "messaging.outbox.lost")                                                               \
    X(EXPIRED, "messaging.outbox.expired")                                                         \
    X(FENCED, "messaging.outbox.fenced")                                                           \
    X(TAKEOVER, "messaging.outbox.takeover")                                                       \
    X(PROMOTED, "messaging.outbox.promoted")                                                       \
    X(REDRIVEN, "messaging.outbox.redrive.count")                                                  \
    X(DISCARDED, "messaging.outbox.discarded")                                                     \
    X(ROUND, "messaging.relay.round")                                                              \
    X(ROUND_FAILED, "messaging.relay.round.failed")                                                \
    X(BREAKER, "messaging.relay.breaker")                                                          \
    X(TRANSPORT_STATE, "messaging.transport.state")                                                \
    X(HANDLED, "messaging.inbox.handled")                                                          \
    X(DUPLICATE, "messaging.inbox.duplicate")                                                      \
    X(BUSY, "messaging.inbox.busy")                                                                \
    X(CONFLICT, "messaging.inbox.conflict")                                                        \
    X(HANDLER_FAILED, "messaging.inbox.failed")                                                    \
    X(HANDLER_DEAD, "messaging.inbox.dead")                                                        \
    X(HANDLER_HELD, "messaging.inbox.held")                                                        \
    X(REQUEUED, "messaging.inbox.requeued")                                                        \
    X(ENDPOINT_STATE, "messaging.endpoint.state")                                                  \
    X(HANDLER_DEFERRED, "messaging.inbox.deferred")                                                \
    X(REPLY_LATE, "messaging.bus.reply.late")

typedef enum pr_observation_kind {
#define PR_OBSERVATION_ENUM(name, text) PR_OBSERVE_##name,
    PR_OBSERVATION_LIST(PR_OBSERVATION_ENUM)
#undef PR_OBSERVATION_ENUM
        PR_OBSERVE_COUNT
} pr_observation_kind;

typedef struct pr_observation {
    uint32_t size;
    pr_observation_kind kind;
    uint64_t count;          /* how many messages, 1 for a single one */
    int64_t duration_us;     /* 0 where it does not apply */
    int64_t reader;          /* reader of the log, 0 where it does not apply */
    const char *message_id;  /* NULL for a batch */
    const char *type;        /* NULL for a batch */
    const char *destination; /* NULL for a batch */
    const char *subject;     /* transport, endpoint or breaker that it is about; may be NULL */
    pr_status status;        /* PR_OK or what failed */
    const char *text;        /* the reason, one line, or NULL */
} pr_observation;

typedef struct pr_observer {
    uint32_t size;
    /* Called from the thread that does the work; must not block and not call back into it. */
    void (*observe)(void *user, const pr_observation *observation);
    void *user;
} pr_observer;

PR_BEGIN_DECLS

/**
 * The OpenTelemetry name of a kind, such as "messaging.outbox.published".
 *
 * Owner   a constant string; "unknown" for a value that is none.
 * Since   0.1
 */
PR_API const char *pr_observation_name(pr_observation_kind kind);

PR_END_DECLS

#endif
