/*
 * The RabbitMQ transport: AMQP 0-9-1 through librabbitmq, on threads of its own.
 *
 * docs/wire.md has the table of what a message looks like on the wire.
 */
#ifndef POSTROOM_AMQP_H
#define POSTROOM_AMQP_H

#include <stdint.h>

#include <postroom/transport.h>

typedef enum pr_amqp_queue_kind {
    PR_AMQP_QUEUE_DEFAULT = 0, /* classic */
    PR_AMQP_QUEUE_CLASSIC,
    PR_AMQP_QUEUE_QUORUM
} pr_amqp_queue_kind;

/* Subscriptions declare what they need. Without it they only check: topology is a command's. */
#define PR_AMQP_DECLARE 0x1u
/* Publish in the binary mode of CloudEvents 1.0; received is either form in any case. */
#define PR_AMQP_CLOUDEVENTS 0x2u

typedef struct pr_amqp_options {
    uint32_t size;
    uint32_t window;              /* unconfirmed at most; 1 to 65,535; 0 = 256 */
    uint32_t flags;               /* PR_AMQP_… */
    uint32_t queue_kind;          /* pr_amqp_queue_kind, of queues that are declared or checked */
    const char *name;             /* scheme in addresses; NULL = "rabbitmq" */
    const char *connection_name;  /* shown by the broker; NULL = "postroom <host> <pid>" */
    const char *prefix;           /* in front of every exchange and queue; NULL = "" */
    const pr_observer *observer;  /* borrowed; may be NULL */
    const pr_clock *clock;        /* borrowed; NULL = the system's */
    int64_t bytes_in_flight_max;  /* bodies of unconfirmed messages; 0 = 16 MiB */
    int64_t body_size_max;        /* a larger one is TOO_LARGE; 0 = 64 MiB, the highest */
    int64_t publish_deadline_ms;  /* then a message is LOST; 0 = 10,000 */
    int64_t reconnect_initial_ms; /* wait after the first failure, doubled with jitter; 0 = 100 */
    int64_t reconnect_max_ms;     /* longest wait between attempts; 0 = 2,000 */
    int64_t close_timeout_ms;     /* an orderly close takes no longer; 0 = 1,000 */
} pr_amqp_options;

/* clang-format off */
#define PR_AMQP_OPTIONS(...) {.size = (uint32_t)sizeof(pr_amqp_options), __VA_ARGS__}
/* clang-format on */

/* What happened since the transport was made, all of its connections together. */
typedef struct pr_amqp_stats {
    uint32_t size;
    uint32_t connections;    /* open now: one to publish, one a subscription */
    uint64_t connects;       /* successful logins */
    uint64_t failures;       /* connections that broke or could not be made */
    uint64_t channel_closes; /* by the broker */
    uint64_t blocks;         /* connection.blocked */
    uint64_t confirmed;
    uint64_t returned;
    uint64_t refused;
    uint64_t lost;
    uint64_t deadlines;    /* publishes that the watchdog cut off */
    uint64_t stale_tags;   /* settles that came too late and were dropped */
    uint64_t dead_letters; /* deliveries without an id or malformed, rejected unread */
    uint64_t cancels;      /* consumers that the broker cancelled */
} pr_amqp_stats;

PR_BEGIN_DECLS

/**
 * A transport onto a RabbitMQ broker. Nothing is connected before pr_transport_open().
 *
 * Shape   uris: `amqp://user:password@host:port/vhost?query`, or amqps://; several, for the nodes
 *         of one cluster, are separated by commas and tried in turn. The query takes RabbitMQ's
 *         parameters: heartbeat, connection_timeout, channel_max, auth_mechanism, cacertfile,
 *         certfile, keyfile, verify, server_name_indication.
 * Owner   uris and what opt points to as text are copied; observer and clock are borrowed and must
 *         outlive the transport. *ret_transport is the caller's: pr_transport_free().
 * Errors  INVALID: an option out of range. CONTENT: a URI is malformed; a password is never shown.
 *         NOMEM.
 * Thread  one thread at a time for the transport, and for each subscription.
 * Source  RabbitMQ URI specification and URI query parameters; AMQP 0-9-1.
 * Since   0.1
 */
PR_API PR_MUST_CHECK pr_status pr_amqp_transport_new(const char *uris, const pr_amqp_options *opt,
                                                     pr_transport **ret_transport, pr_error *err);

/**
 * Counters of a RabbitMQ transport.
 *
 * Owner   *ret_stats is the caller's memory, its size set.
 * Errors  INVALID: it is another kind of transport.
 * Thread  any.
 * Since   0.1
 */
PR_API PR_MUST_CHECK pr_status pr_amqp_stats_get(pr_transport *transport, pr_amqp_stats *ret_stats,
                                                 pr_error *err);

PR_END_DECLS

#endif
