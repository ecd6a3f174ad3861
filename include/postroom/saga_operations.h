/*
 * Operations on sagas: what runs, what one looks like, and the release of a lease that its holder
 * left behind. The command `postroom saga` is written on top of this.
 */
#ifndef POSTROOM_SAGA_OPERATIONS_H
#define POSTROOM_SAGA_OPERATIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <postroom/store.h>

typedef enum pr_saga_phase {
    PR_SAGA_RUNNING = 1,
    PR_SAGA_COMPLETED /* a tombstone until retention */
} pr_saga_phase;

/* One saga. Text is valid during the callback only. */
typedef struct pr_saga_record {
    uint32_t size;
    uint32_t state_version;    /* of the state's contract; 0 = nothing was saved yet */
    const char *tenant;        /* "" = none */
    const char *saga_type;     /* name of its type */
    const char *key;           /* correlation key */
    const char *instance_id;   /* of this run of the key */
    int64_t version;           /* saves so far */
    const void *state;         /* as it stands; only in pr_operations_saga_show */
    uint64_t state_size_bytes; /* also where the state is not given */
    const char *timeouts;      /* JSON array of {name, token, due_at}: the open ones */
    const char *last_messages; /* JSON array of {id, type}, oldest first */
    const char *lease_owner;   /* NULL = not leased */
    int64_t lease_until_us;    /* 0 = not leased */
    int64_t lease_left_ms;     /* <= 0: it has expired, or there is none */
    int64_t started_at_us;
    int64_t updated_at_us;
    int64_t completed_at_us; /* 0 = running */
    const char *unreadable;  /* not NULL: this row was damaged, and how */
} pr_saga_record;

typedef bool (*pr_saga_record_callback)(void *user, const pr_saga_record *record); /* false stops */

typedef struct pr_saga_list_options {
    uint32_t size;
    uint32_t limit;        /* 1..1,000; 0 = 100 */
    pr_saga_phase phase;   /* 0 = any */
    uint32_t leased;       /* 1 = only those with a lease, live or expired; 0 = any */
    const char *saga_type; /* NULL = any */
    const char *tenant;    /* NULL = any */
    const char *after;     /* cursor of the page before; NULL = from the oldest */
} pr_saga_list_options;

typedef struct pr_saga_list_page {
    uint32_t size;
    uint32_t count;
    char next[40]; /* cursor for the next page; "" = this was the last */
} pr_saga_list_page;

typedef struct pr_saga_release_options {
    uint32_t size;
    uint32_t force;        /* 1 = also a live lease: its holder's save will be refused */
    const char *tenant;    /* NULL = none */
    const char *saga_type; /* required */
    const char *key;       /* required */
    const char *who;       /* audit: who does it */
    const char *reason;    /* audit: why; required */
} pr_saga_release_options;

PR_BEGIN_DECLS

/**
 * List sagas in the order in which they were started, a page at a time. One damaged row costs one
 * row.
 *
 * Owner   records are valid during the callback only; *ret_page (may be NULL) is the caller's.
 * Errors  INVALID: limit, cursor, phase. BACKEND.
 * Since   0.1
 */
PR_API PR_MUST_CHECK pr_status pr_operations_sagas(pr_store *store, const pr_saga_list_options *opt,
                                                   pr_saga_list_page *ret_page,
                                                   pr_saga_record_callback callback, void *user,
                                                   pr_error *err);

/**
 * Show one saga, with its state.
 *
 * Shape   tenant: NULL = none.
 * Errors  NOT_FOUND. INVALID, BACKEND.
 * Since   0.1
 */
PR_API PR_MUST_CHECK pr_status pr_operations_saga_show(pr_store *store, const char *tenant,
                                                       const char *saga_type, const char *key,
                                                       pr_saga_record_callback callback, void *user,
                                                       pr_error *err);

/**
 * Clear the lease of a saga whose holder is gone. Its events move it again, and its tombstone can
 * go. Audited.
 *
 * Errors  NOT_FOUND. STATE: it is not leased, or the lease is live and force is 0. INVALID: no
 *         reason. BACKEND.
 * Atomic  one transaction.
 * Since   0.1
 */
PR_API PR_MUST_CHECK pr_status pr_operations_saga_release(pr_store *store,
                                                          const pr_saga_release_options *opt,
                                                          pr_error *err);

/**
 * Delete the tombstones of sagas that were completed longer than retention_ms ago, the oldest
 * first. Never one that runs, nor one with a lease, even an expired one: somebody may still be at
 * its step.
 *
 * Units   retention_ms: milliseconds, > 0. max: rows of this call, 1..10,000.
 * Shape   *ret_count (may be NULL) less than max: nothing is left that old.
 * Errors  INVALID, BACKEND.
 * Atomic  one transaction.
 * Since   0.1
 */
PR_API PR_MUST_CHECK pr_status pr_operations_saga_sweep(pr_store *store, int64_t retention_ms,
                                                        uint32_t max, uint64_t *ret_count,
                                                        pr_error *err);

PR_END_DECLS

#endif
