/*
 * The bus: transports, endpoints, a relay for the store's outbox, and ways to publish, send and
 * request, in one object that is started and stopped.
 *
 * It runs threads of its own, each with a clone of the store and of the transport that it uses.
 */
#ifndef POSTROOM_BUS_H
#define POSTROOM_BUS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <postroom/contract.h>
#include <postroom/endpoint.h>
#include <postroom/relay.h>
#include <postroom/store.h>
#include <postroom/transport.h>

typedef struct pr_bus pr_bus;
typedef struct pr_reply pr_reply;

typedef struct pr_bus_options {
    uint32_t size;
    bool relay_off;                /* the outbox is another process's business */
    pr_store *store;               /* borrowed: outbox and inboxes. NULL for pr_bus_open alone */
    const pr_contracts *contracts; /* borrowed; of its endpoints and replies. May be NULL */
    const char *source;            /* of messages that name none; copied; NULL = none */
    const pr_relay_options *relay; /* copied; NULL = defaults */
    int64_t publish_deadline_ms;   /* of a direct publish; 0 = 10,000 */
    int64_t start_wait_ms;         /* start waits so long for subscriptions; 0 = 5,000 */
    const pr_clock *clock;         /* borrowed; NULL = the system's */
    const pr_random *random;       /* borrowed; NULL = the system's */
    const pr_observer *observer;   /* borrowed, told by several threads at once; may be NULL */
    /* The subscription for answers outlives a process that died so long; >= 100 ms; 0 = 60,000 */
    int64_t reply_expiry_ms;
} pr_bus_options;

/* clang-format off */
#define PR_BUS_OPTIONS(...) {.size = (uint32_t)sizeof(pr_bus_options), __VA_ARGS__}
/* clang-format on */

typedef struct pr_request_options {
    uint32_t size;
    uint32_t reserved;
    int64_t timeout_ms;             /* 0 = 30,000 */
    const char *const *reply_types; /* URNs of the answers that are wanted; NULL = any */
    size_t reply_type_count;
} pr_request_options;

/* clang-format off */
#define PR_REQUEST_OPTIONS(...) {.size = (uint32_t)sizeof(pr_request_options), __VA_ARGS__}
/* clang-format on */

typedef struct pr_bus_snapshot {
    uint32_t size;
    bool started;
    bool relay_running;
    pr_health health;
    char health_reason[256]; /* "" when healthy */
    uint32_t transport_count;
    uint32_t endpoint_count;
    uint32_t accepting, busy, paused, stopped; /* endpoints in that state */
    uint64_t published;                        /* directly, and confirmed */
    uint64_t refused;                          /* directly: returned, refused, too large, lost */
    uint64_t requests, replies, timeouts;
    uint64_t late_replies; /* came when nobody waited any more; dropped */
} pr_bus_snapshot;

PR_BEGIN_DECLS

/**
 * Make a bus; nothing happens before it is started.
 *
 * Owner   what opt points to is borrowed and must outlive it. *ret_bus is the caller's:
 *         pr_bus_free().
 * Errors  INVALID: options, no store. NOMEM.
 * Thread  whoever makes it also adds, starts, stops and frees: one at a time.
 * Since   0.1
 */
PR_API PR_MUST_CHECK pr_status pr_bus_new(const pr_bus_options *opt, pr_bus **ret_bus,
                                          pr_error *err);

/**
 * Open a bus that has all that it needs: the store of that address, made and migrated where it is
 * missing (so it asks for the right to do that), and the database transport on the store itself,
 * named "database", as the default. What is published is durable there once it is confirmed.
 *
 *     pr_bus_open(pr_sqlite_open, "shop.db", NULL, &bus, &err)
 *     pr_bus_open(pr_postgres_open, "postgresql:///shop", NULL, &bus, &err)
 *
 * Shape   open_store: of an adapter. where: what that takes. opt: NULL = defaults; its store must
 *         be NULL. More transports may be added.
 * Owner   the bus owns store and transport; *ret_bus is the caller's: pr_bus_free(). What opt
 *         points to is borrowed, as for pr_bus_new.
 * Errors  as open_store. INVALID: options. SCHEMA, BACKEND, NOMEM. Nothing stays open.
 * Since   0.1
 */
PR_API PR_MUST_CHECK pr_status pr_bus_open(pr_store_opener open_store, const char *where,
                                           const pr_bus_options *opt, pr_bus **ret_bus,
                                           pr_error *err);

/**
 * The store of a bus, for units of work: pr_unit_begin(pr_bus_store(bus), …).
 *
 * Owner   the bus's, or the host's where it gave it; never free what pr_bus_open opened.
 * Thread  one at a time: the bus works on clones of it.
 * Since   0.1
 */
PR_API pr_store *pr_bus_store(pr_bus *bus);

/**
 * Add a transport; its name is the scheme of the addresses that it serves. The first is the
 * default: topics and bare endpoint ids are sought there.
 *
 * Owner   transport is borrowed and must outlive the bus, which uses clones of it.
 * Errors  INVALID. CONFLICT: one of that name stands already. UNSUPPORTED: it cannot be cloned.
 *         STATE: the bus was started. LIMIT: there are 16 already.
 * Since   0.1
 */
PR_API PR_MUST_CHECK pr_status pr_bus_add_transport(pr_bus *bus, pr_transport *transport,
                                                    pr_error *err);

/**
 * Add an endpoint.
 *
 * Shape   transport: the name of one that was added; NULL = the default. What opt leaves out
 *         (contracts, clock, random, observer) is the bus's, publish_to is the default transport.
 * Owner   the endpoint is the bus's; what opt points to as in pr_endpoint_new.
 * Errors  as pr_endpoint_new. NOT_FOUND: no such transport. CONFLICT: the id stands already.
 *         STATE: the bus was started, or has no transport yet. LIMIT: there are 256 already.
 * Since   0.1
 */
PR_API PR_MUST_CHECK pr_status pr_bus_add_endpoint(pr_bus *bus, const pr_endpoint_options *opt,
                                                   const char *transport, pr_error *err);

/**
 * The short form of pr_bus_add_endpoint: one type, one handler, all defaults. An endpoint has one
 * handler: for a second type of the same id list both in pr_bus_add_endpoint.
 *
 * Errors  as pr_bus_add_endpoint.
 * Since   0.1
 */
PR_API PR_MUST_CHECK pr_status pr_bus_on(pr_bus *bus, const char *endpoint, const char *type,
                                         pr_handler handler, void *user, pr_error *err);

/**
 * Start the relay and the endpoints, and wait until they have subscribed, start_wait_ms at most.
 * What cannot subscribe now (a broker that is down, a wrong password) goes on trying: the health of
 * the snapshot and the observer say why.
 *
 * Errors  STATE: it is started, has no transport, or a handler of it calls. BACKEND, NOMEM: nothing
 *         was started.
 * Thread  any.
 * Since   0.1
 */
PR_API PR_MUST_CHECK pr_status pr_bus_start(pr_bus *bus, pr_error *err);

/**
 * Wait until nothing is left to do: the outbox that the bus relays is empty, no endpoint of the bus
 * has a message at its queue, in hand, or parked for another try, and no request waits. Follow-ups
 * count like what they follow. For programs that end when all is done, and for tests.
 *
 * What will never move by itself does not count: dead ones, those held by an operator. A message
 * with a deliver_at in the future (also a saga's timeout) does not count until it is due; one that
 * failed, or was put off by its handler, counts until it was handled or is dead.
 *
 * Shape   what other threads and processes publish meanwhile may be missed.
 * Units   timeout_ms: milliseconds, 0 = look once; a year at most.
 * Errors  BUSY: not within that time; says what is still open, and where. INVALID. STATE: the bus
 *         is not started. CANCELLED: it was stopped meanwhile. UNSUPPORTED: a transport of an
 *         endpoint cannot tell what it holds (RabbitMQ). BACKEND.
 * Thread  any but a handler, whose own message would never be done.
 * Since   0.1
 */
PR_API PR_MUST_CHECK pr_status pr_bus_wait_idle(pr_bus *bus, int64_t timeout_ms, pr_error *err);

/**
 * Stop: endpoints give back what they have in hand and wait for their handlers, the relay for its
 * round, each within its grace; who waits for an answer is told CANCELLED. It may be started again.
 *
 * In a handler of the bus it cannot wait, for the handler itself is to end: all are told to stop,
 * it returns at once, and the next pr_bus_stop, pr_bus_start or pr_bus_free of another thread
 * waits.
 *
 * Owner   accepts NULL and one that is not started.
 * Thread  any; several at once all return when it is stopped.
 * Since   0.1
 */
PR_API void pr_bus_stop(pr_bus *bus);

/**
 * Stop and free a bus. Nobody may publish meanwhile, or use it afterwards.
 *
 * Owner   accepts NULL; returns NULL. In a handler of the bus it does what pr_bus_stop does there,
 *         and returns the bus: free it elsewhere.
 * Thread  any, and the last one that uses it.
 * Since   0.1
 */
PR_API pr_bus *pr_bus_free(pr_bus *bus);

/**
 * Publish a message directly, to every subscription of its topic: what its transport has confirmed
 * stands, whatever becomes of the caller's transaction. pr_bus_enqueue is the way through the
 * outbox; both make the same envelope.
 *
 * Owner   message is borrowed; *ret_enqueued (may be NULL) is the caller's memory.
 * Errors  INVALID, LIMIT, CONTENT: the message. NOT_FOUND: nobody would get it, or no transport of
 *         that scheme. BUSY: the transport takes nothing within publish_deadline_ms, or 8 messages
 *         are in flight on it.
 *         BACKEND: retry = UNKNOWN, it may have arrived; publish it again with the same id.
 * Thread  any; up to 8 at once a transport, each on a connection of its own.
 * Since   0.1
 */
PR_API PR_MUST_CHECK pr_status pr_bus_publish(pr_bus *bus, const pr_message *message,
                                              pr_enqueued *ret_enqueued, pr_error *err);

/**
 * Send a message directly to one receiver.
 *
 * Shape   to: an address, or the id of an endpoint on the default transport.
 * Owner   as pr_bus_publish.
 * Errors  as pr_bus_publish.
 * Thread  any.
 * Since   0.1
 */
PR_API PR_MUST_CHECK pr_status pr_bus_send(pr_bus *bus, const char *to, const pr_message *message,
                                           pr_enqueued *ret_enqueued, pr_error *err);

/**
 * Publish, or send where `to` is given, through the outbox: in the unit's transaction.
 *
 * Shape   to: NULL = the topic of its type on the default transport; else as pr_bus_send.
 * Owner   as pr_unit_enqueue.
 * Errors  as pr_unit_enqueue.
 * Thread  the unit's.
 * Since   0.1
 */
PR_API PR_MUST_CHECK pr_status pr_bus_enqueue(pr_bus *bus, pr_unit *unit, const char *to,
                                              const pr_message *message, pr_enqueued *ret_enqueued,
                                              pr_error *err);

/**
 * Publish an object of a contract directly.
 *
 * Shape   key: NULL = no order.
 * Owner   object is borrowed.
 * Errors  as pr_bus_publish, and as pr_contract_encode.
 * Thread  any.
 * Since   0.1
 */
PR_API PR_MUST_CHECK pr_status pr_bus_publish_object(pr_bus *bus, const pr_contract *contract,
                                                     const void *object, const char *key,
                                                     pr_enqueued *ret_enqueued, pr_error *err);

/**
 * Send a request and wait for its answer. Not inside an open unit: the answer may need the very
 * locks that the unit holds.
 *
 * Shape   to: as pr_bus_send. opt: NULL = defaults. The answer is the first that names the request
 *         as its cause.
 * Owner   *ret_reply is the caller's: pr_reply_free().
 * Errors  as pr_bus_send. INVALID: the request's id is no UUID. BACKEND, retry = UNKNOWN: no answer
 *         in time; the request may have been handled. CONTENT: an answer of a type that is not
 *         wanted, or that cannot be decoded. CANCELLED: the bus was stopped. STATE: it is not
 *         started.
 * Thread  any; several may wait at once.
 * Since   0.1
 */
PR_API PR_MUST_CHECK pr_status pr_bus_request(pr_bus *bus, const char *to,
                                              const pr_message *request,
                                              const pr_request_options *opt, pr_reply **ret_reply,
                                              pr_error *err);

/**
 * The answer's message.
 *
 * Owner   reply's; valid until pr_reply_free().
 * Since   0.1
 */
PR_API const pr_message *pr_reply_message(const pr_reply *reply);

/**
 * The answer's decoded object; NULL when the bus has no contracts.
 *
 * Owner   reply's; valid until pr_reply_free().
 * Since   0.1
 */
PR_API const void *pr_reply_object(const pr_reply *reply);

/**
 * Free an answer.
 *
 * Owner   accepts NULL; returns NULL.
 * Since   0.1
 */
PR_API pr_reply *pr_reply_free(pr_reply *reply);

/**
 * An endpoint of the bus, to pause, resume or look at; NULL: there is none of that id.
 *
 * Owner   the bus's. It must not be run, stepped or freed.
 * Thread  any, after the last pr_bus_add_endpoint.
 * Since   0.1
 */
PR_API pr_endpoint *pr_bus_endpoint(pr_bus *bus, const char *id);

/**
 * State, health and counters as of now.
 *
 * Owner   *ret_snapshot is the caller's memory; its size must be set.
 * Errors  INVALID.
 * Thread  any.
 * Since   0.1
 */
PR_API PR_MUST_CHECK pr_status pr_bus_snapshot_get(pr_bus *bus, pr_bus_snapshot *ret_snapshot,
                                                   pr_error *err);

PR_END_DECLS

#endif
