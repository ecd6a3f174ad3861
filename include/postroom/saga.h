/*
 * Sagas: a row of state that messages move, in the same transaction as their inbox mark and what
 * they send.
 *
 * A saga type says which messages it takes, how each finds its instance, and what each does. The
 * runtime is a handler: give pr_saga_handle and the pr_saga to an endpoint. For steps that call the
 * outside there is a lease, under which nothing else moves the saga.
 */
#ifndef POSTROOM_SAGA_H
#define POSTROOM_SAGA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <postroom/contract.h>
#include <postroom/endpoint.h>
#include <postroom/saga_operations.h>

#define PR_SAGA_STATE_SIZE_DEFAULT    (256LL * 1024)
#define PR_SAGA_TIMEOUTS_MAX          64 /* open ones of one instance */
#define PR_SAGA_TIMEOUT_NAME_SIZE_MAX 63

typedef struct pr_saga pr_saga;             /* the runtime of one type */
typedef struct pr_saga_step pr_saga_step;   /* one message at one instance */
typedef struct pr_saga_lease pr_saga_lease; /* a step that works outside the database */

/* Moves the state, which is the object of the newest state contract, zeroed at a start. Texts that
   are put into it must live until the handler has returned: pr_saga_step_text copies. OK saves it;
   anything else rolls all back. */
typedef pr_handled (*pr_saga_handler)(void *user, pr_saga_step *step, void *state);

/* Is this the end? Asked after each step. */
typedef bool (*pr_saga_predicate)(void *user, const void *state);

/* Write the correlation key of the message in hand: 1 to 255 bytes of UTF-8. False: it has none. */
typedef bool (*pr_saga_correlate)(void *user, const pr_scope *scope, char *ret_key, size_t size);

/* What becomes of a message for which there is no instance. */
typedef pr_handled (*pr_saga_missing_handler)(void *user, pr_scope *scope, const char *key);

/* One schema version of the state. */
typedef struct pr_saga_state {
    const pr_contract *contract; /* all of one type; each version is one more than the one before */
    pr_upcast upcast;            /* from the version before; NULL for the first */
} pr_saga_state;

typedef enum pr_saga_missing {
    PR_SAGA_MISSING_DEFAULT = 0, /* of a message: as the type says; of the type: IGNORE */
    PR_SAGA_MISSING_IGNORE,      /* done, and counted */
    PR_SAGA_MISSING_DEAD,        /* parked as dead */
    PR_SAGA_MISSING_CALL         /* on_missing decides */
} pr_saga_missing;

/* A starting message whose key belongs to a completed saga, before retention has removed it. */
typedef enum pr_saga_reuse {
    PR_SAGA_REUSE_LATE = 0, /* late like any other: starts nothing, is counted */
    PR_SAGA_REUSE_REFUSE,   /* parked as dead */
    PR_SAGA_REUSE_RESTART   /* another instance takes the place of the completed one */
} pr_saga_reuse;

#define PR_SAGA_STARTS 0x1u /* this message may start an instance */

typedef struct pr_saga_message {
    const char *type; /* URN */
    pr_saga_handler handler;
    /* How its instance is found: a field of its contract, as a path ("order.id"), text, UUID or
       integer; or a function; neither = the message's key. */
    const char *correlation_field;
    pr_saga_correlate correlate;
    uint32_t flags; /* PR_SAGA_… */
    pr_saga_missing missing;
} pr_saga_message;

typedef struct pr_saga_timeout {
    const char *name;
    pr_saga_handler handler;
} pr_saga_timeout;

/* Tables and texts are borrowed for the life of the pr_saga. */
typedef struct pr_saga_type {
    uint32_t size;
    pr_saga_missing missing;
    const char *name;            /* in its rows: never change it; 1 to 255 bytes */
    const pr_saga_state *states; /* oldest first; the newest is what handlers see */
    size_t state_count;
    const pr_saga_message *messages;
    size_t message_count;
    const pr_saga_timeout *timeouts; /* may be NULL */
    size_t timeout_count;
    const char *timeout_type;        /* URN of its timeouts, which the endpoint subscribes to too */
    const char *timeout_destination; /* address; NULL = the topic of timeout_type */
    pr_saga_predicate complete;      /* NULL = only pr_saga_step_complete ends it */
    pr_saga_missing_handler on_missing;
    pr_saga_reuse reuse;
    uint32_t reserved;
    uint64_t state_size_max;  /* of an encoded state; 0 = 256 KiB */
    int64_t timeout_grace_ms; /* a timeout this young waits for its instance; 0 = 60,000 */
    void *user;               /* given to all functions of the type */
} pr_saga_type;

/* clang-format off */
#define PR_SAGA_TYPE(...) {.size = (uint32_t)sizeof(pr_saga_type), __VA_ARGS__}
/* clang-format on */

/* Counted when a handler returns: what was rolled back afterwards and tried again counts twice. */
typedef struct pr_saga_snapshot {
    uint32_t size;
    uint32_t reserved;
    uint64_t started;            /* instances */
    uint64_t restarted;          /* of them, in the place of a completed one */
    uint64_t stepped;            /* messages and timeouts that moved a state */
    uint64_t completed;          /* instances */
    uint64_t filled;             /* whose completed_at was missing, and was filled in late */
    uint64_t missing;            /* messages without an instance */
    uint64_t late;               /* messages after completion */
    uint64_t failed;             /* a handler said RETRY or PERMANENT */
    uint64_t leased;             /* put off: somebody holds the lease */
    uint64_t lost;               /* saves that were refused */
    uint64_t unreadable;         /* states that could not be decoded */
    uint64_t too_large;          /* states beyond state_size_max */
    uint64_t timeouts_set;       /* armed */
    uint64_t timeouts_cancelled; /* closed before they fired: by name, replaced, or by completion */
    uint64_t timeouts_fired;
    uint64_t timeouts_dropped; /* cancelled ones, and those of finished instances, on arrival */
    uint64_t timeouts_early;   /* put off: what armed it is not visible yet */
} pr_saga_snapshot;

typedef struct pr_saga_lease_options {
    uint32_t size;
    uint32_t reserved;
    const char *tenant; /* NULL = none */
    const char *key;    /* correlation key */
    const char *owner;  /* for people; NULL = unnamed */
    int64_t lease_ms;   /* 0 = 30,000 */
} pr_saga_lease_options;

/* clang-format off */
#define PR_SAGA_LEASE_OPTIONS(...) {.size = (uint32_t)sizeof(pr_saga_lease_options), __VA_ARGS__}
/* clang-format on */

PR_BEGIN_DECLS

/**
 * The runtime of a saga type.
 *
 * Shape   contracts: those of its messages, for correlation fields; NULL = there are none. The
 *         contract of its timeouts is registered there.
 * Owner   type is copied, what it points to and contracts are borrowed. *ret_saga is the caller's:
 *         pr_saga_free(), after the registry was used last.
 * Errors  INVALID: the type, a table, a field that no contract has. CONFLICT: timeout_type is
 *         taken. CONTENT, LIMIT: names. NOMEM.
 * Since   0.1
 */
PR_API PR_MUST_CHECK pr_status pr_saga_new(const pr_saga_type *type, pr_contracts *contracts,
                                           pr_saga **ret_saga, pr_error *err);

/**
 * Free a runtime; no endpoint may use it any more.
 *
 * Owner   accepts NULL; returns NULL.
 * Since   0.1
 */
PR_API pr_saga *pr_saga_free(pr_saga *saga);

/**
 * A pr_handler: load the instance under a lock, or start it; run the message's handler; save the
 * state with version + 1. All in the unit of the delivery.
 *
 * Shape   user: the pr_saga. The endpoint subscribes to the types of its messages, and to
 *         timeout_type.
 * Thread  any number at once.
 * Since   0.1
 */
PR_API pr_handled pr_saga_handle(void *user, pr_scope *scope);

/**
 * Counters as of now.
 *
 * Owner   *ret_snapshot is the caller's memory; its size must be set.
 * Errors  INVALID.
 * Thread  any.
 * Since   0.1
 */
PR_API PR_MUST_CHECK pr_status pr_saga_snapshot_get(pr_saga *saga, pr_saga_snapshot *ret_snapshot,
                                                    pr_error *err);

/**
 * The message's scope; NULL in the save of a lease.
 *
 * Owner   step's.
 * Since   0.1
 */
PR_API pr_scope *pr_saga_step_scope(pr_saga_step *step);

/**
 * The unit in which the state is saved: enqueue commands here.
 *
 * Owner   step's.
 * Since   0.1
 */
PR_API pr_unit *pr_saga_step_unit(pr_saga_step *step);

/**
 * The correlation key.
 *
 * Owner   step's.
 * Since   0.1
 */
PR_API const char *pr_saga_step_key(const pr_saga_step *step);

/**
 * The instance's id: a UUID that no other run of the key has.
 *
 * Owner   step's.
 * Since   0.1
 */
PR_API const char *pr_saga_step_instance_id(const pr_saga_step *step);

/**
 * Saves before this one; 0 = this message starts the instance.
 *
 * Since   0.1
 */
PR_API int64_t pr_saga_step_version(const pr_saga_step *step);

/**
 * The database's clock when the instance was loaded.
 *
 * Units   microseconds since 1970.
 * Since   0.1
 */
PR_API int64_t pr_saga_step_now_us(const pr_saga_step *step);

/**
 * Memory for the state, zeroed; it lives until the step is saved.
 *
 * Owner   step's. NULL when out of memory.
 * Since   0.1
 */
PR_API void *pr_saga_step_alloc(pr_saga_step *step, size_t size);

/**
 * A copy of a text for the state.
 *
 * Owner   step's; NULL for NULL, or when out of memory.
 * Since   0.1
 */
PR_API const char *pr_saga_step_text(pr_saga_step *step, const char *text);

/**
 * This step is the last one, whatever the predicate says. Open timeouts are closed.
 *
 * Since   0.1
 */
PR_API void pr_saga_step_complete(pr_saga_step *step);

/**
 * Arm a timeout: a delayed message that comes back to this instance. One of the same name that is
 * open is replaced. It fires only while it is open: not after it was cancelled, and not after
 * completion.
 *
 * Units   delay_ms: milliseconds by the database's clock, >= 0; a century at most.
 * Errors  INVALID: no timeout of that name in the type; delay_ms. LIMIT: too many are open. As
 *         pr_unit_enqueue.
 * Atomic  with the step.
 * Since   0.1
 */
PR_API PR_MUST_CHECK pr_status pr_saga_timeout_set(pr_saga_step *step, const char *name,
                                                   int64_t delay_ms, pr_error *err);

/**
 * Close the timeout of that name; true: it was open.
 *
 * Atomic  with the step.
 * Since   0.1
 */
PR_API bool pr_saga_timeout_cancel(pr_saga_step *step, const char *name);

/**
 * Take the lease of a running instance, for a step that calls the outside: until it is saved, given
 * back or expired, messages of the instance are put off, uncharged.
 *
 * Owner   saga and store are borrowed and must outlive it; opt is borrowed. *ret_lease is the
 *         caller's: pr_saga_lease_free().
 * Errors  NOT_FOUND: no such instance. STATE: it is completed. BUSY: another holds the lease.
 *         CONTENT, SCHEMA: its state cannot be read. INVALID, BACKEND.
 * Thread  the store's.
 * Since   0.1
 */
PR_API PR_MUST_CHECK pr_status pr_saga_lease_take(pr_saga *saga, pr_store *store,
                                                  const pr_saga_lease_options *opt,
                                                  pr_saga_lease **ret_lease, pr_error *err);

/**
 * The state as it was when the lease was taken; nothing else moves it while the lease is held.
 *
 * Owner   lease's.
 * Since   0.1
 */
PR_API const void *pr_saga_lease_state(const pr_saga_lease *lease);

/**
 * Prolong the lease from now on.
 *
 * Errors  FENCED: it was taken over, or released by an operator. BACKEND.
 * Thread  the store's; with a store of its own, any.
 * Since   0.1
 */
PR_API PR_MUST_CHECK pr_status pr_saga_lease_renew(pr_saga_lease *lease, pr_store *store,
                                                   pr_error *err);

/**
 * Save what came of it, and give the lease back: begin a unit, run the handler on the state, save
 * with version + 1, commit.
 *
 * Shape   handler: as of a message; it enqueues commands and timeouts. Anything but OK rolls back,
 *         and the lease stays.
 * Errors  FENCED: the lease was lost, and nothing was saved. STATE: the handler did not say OK.
 *         LIMIT, CONTENT: the state. BUSY, BACKEND: err->retry says what to do.
 * Atomic  one transaction.
 * Thread  the store's.
 * Since   0.1
 */
PR_API PR_MUST_CHECK pr_status pr_saga_lease_save(pr_saga_lease *lease, pr_saga_handler handler,
                                                  void *user, pr_error *err);

/**
 * Give the lease back where it is still held, and free it.
 *
 * Owner   accepts NULL; returns NULL.
 * Thread  the store's.
 * Since   0.1
 */
PR_API pr_saga_lease *pr_saga_lease_free(pr_saga_lease *lease);

PR_END_DECLS

#endif
