/*
 * Operations: the read model and the commands that operators use. The command line, and later HTTP
 * and the dashboard, are written on top of this.
 */
#ifndef POSTROOM_OPERATIONS_H
#define POSTROOM_OPERATIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <postroom/message.h>
#include <postroom/store.h>

typedef enum pr_state {
    PR_STATE_PENDING = 1,
    PR_STATE_PUBLISHING,
    PR_STATE_PUBLISHED,
    PR_STATE_FAILED,
    PR_STATE_HELD,
    PR_STATE_DELAYED,
    PR_STATE_DEAD
} pr_state;
#define PR_STATE_COUNT 8 /* array size that a pr_state can index */

/* Where a parked or dead message stands. */
typedef enum pr_box {
    PR_BOX_OUTBOX = 1,
    PR_BOX_INBOX,
    PR_BOX_BOTH /* of a list of failed, held or dead ones */
} pr_box;

/* One row of a list: outbox_state, or inbox_state. Text is valid during the callback only. */
typedef struct pr_record {
    uint32_t size;
    pr_box box;
    pr_state state;
    int64_t reader;       /* outbox: 1 = the relay */
    int64_t log_id;       /* outbox: id in the log; a delayed one: its parked id */
    uint32_t lane;        /* outbox */
    const char *consumer; /* inbox: the endpoint; else NULL */
    pr_message message;   /* body only in pr_operations_show */
    uint64_t body_size_bytes;
    uint32_t attempts;
    uint32_t takeovers;
    int64_t next_attempt_at_us; /* 0 = none */
    int64_t locked_until_us;    /* 0 = not leased */
    const char *lock_token;     /* NULL = not leased */
    const char *owner;          /* who holds the lease; NULL = none */
    const char *last_error;     /* NULL = none */
    int64_t first_failed_at_us; /* 0 = never */
    bool operator_hold;
    const char *unreadable; /* not NULL: this row could not be read, and why */
    int64_t settled_at_us;  /* inbox, published: when it was handled; 0 = not known */
} pr_record;

typedef struct pr_list_options {
    uint32_t size;
    uint32_t limit;          /* 1..1,000; 0 = 100 */
    pr_box box;              /* 0 = outbox; for pr_operations_dead 0 = both */
    pr_state state;          /* 0 = any */
    const char *type;        /* NULL = any */
    const char *destination; /* NULL = any */
    const char *key;         /* NULL = any */
    const char *consumer;    /* inbox; NULL = any */
    int64_t reader;          /* outbox; 0 = the relay; of BOTH: every reader */
    const char *after;       /* cursor of the page before; NULL = from the oldest */
} pr_list_options;

typedef struct pr_list_page {
    uint32_t size;
    uint32_t count;
    char next[160]; /* cursor for the next page; "" = this was the last */
} pr_list_page;

typedef bool (*pr_record_callback)(void *user, const pr_record *record); /* false stops */

struct pr_contracts;

typedef struct pr_redrive_options {
    uint32_t size;
    uint32_t limit; /* 1..1,000; 0 = 100 */
    bool dry_run;
    bool force;              /* also what is older than the inbox remembers: it will run again */
    pr_box box;              /* 0 = outbox */
    const char *message_id;  /* one message; NULL = by filter */
    const char *type;        /* filter; NULL = any */
    const char *destination; /* filter; NULL = any */
    const char *consumer;    /* inbox: required; outbox: a subscription's name, NULL = the relay */
    const char *who;         /* audit: who does it */
    const char *reason;      /* audit: why; required */
    /* Borrowed; refuse what is of no contract registered here. NULL = not checked. */
    const struct pr_contracts *contracts;
} pr_redrive_options;

typedef struct pr_status_report {
    uint32_t size;
    uint32_t schema_version;
    uint32_t lanes;
    uint32_t relays_seen;            /* owners with a live lease */
    uint64_t outbox[PR_STATE_COUNT]; /* by pr_state, the relay's view */
    uint64_t inbox[PR_STATE_COUNT];  /* published: what was handled, that is, the marks */
    uint64_t inbox_marks;
    int64_t oldest_pending_age_ms; /* 0 = none */
    int64_t journal_rows;
    char store[256]; /* what it is, without secrets */
} pr_status_report;

typedef struct pr_explanation {
    uint32_t size;
    pr_state state;
    pr_box box;
    char consumer[256];
    char summary[512];    /* one sentence: why it is not moving, or where it went */
    char blocker_id[256]; /* message id of what it waits for; "" = nothing */
    char owner[128];
    int64_t lease_left_ms; /* 0 = not leased */
    int64_t next_attempt_at_us;
    uint32_t attempts;
} pr_explanation;

PR_BEGIN_DECLS

/**
 * Counts by state, oldest pending age and who is at work.
 *
 * Owner   *ret_report is the caller's memory; its size must be set.
 * Errors  INVALID, BACKEND.
 * Since   0.1
 */
PR_API PR_MUST_CHECK pr_status pr_operations_status(pr_store *store, pr_status_report *ret_report,
                                                    pr_error *err);

/**
 * List messages, oldest first, a page at a time. One unreadable row costs one row.
 *
 * Owner   records are valid during the callback only; *ret_page (may be NULL) is the caller's.
 * Errors  INVALID: limit, cursor. BACKEND.
 * Since   0.1
 */
PR_API PR_MUST_CHECK pr_status pr_operations_list(pr_store *store, const pr_list_options *opt,
                                                  pr_list_page *ret_page,
                                                  pr_record_callback callback, void *user,
                                                  pr_error *err);

/**
 * Show what stands of one message id, body included: its row in the log or parked, and every parked
 * row and mark of a consumer.
 *
 * Errors  NOT_FOUND. INVALID, BACKEND.
 * Since   0.1
 */
PR_API PR_MUST_CHECK pr_status pr_operations_show(pr_store *store, const char *message_id,
                                                  pr_record_callback callback, void *user,
                                                  pr_error *err);

/**
 * Return dead messages to pending: attempts 0, due now, the same id. Audited.
 *
 * Shape   *ret_count: how many were, or with dry_run would be, redriven.
 * Errors  NOT_FOUND, STATE: one message that is missing, not dead. INVALID: limit > 1,000, no
 *         reason.
 * Atomic  one transaction.
 * Since   0.1
 */
PR_API PR_MUST_CHECK pr_status pr_operations_redrive(pr_store *store, const pr_redrive_options *opt,
                                                     uint64_t *ret_count, pr_error *err);

/**
 * Discard one dead message; an inbox one leaves its mark, so that a late duplicate does not run.
 * Audited.
 *
 * Shape   consumer: NULL = the outbox, else that consumer's inbox.
 * Errors  NOT_FOUND, STATE, INVALID, BACKEND.
 * Since   0.1
 */
PR_API PR_MUST_CHECK pr_status pr_operations_discard(pr_store *store, const char *message_id,
                                                     const char *consumer, const char *who,
                                                     const char *reason, pr_error *err);

/**
 * Cancel a delayed message that was not promoted yet. Audited.
 *
 * Errors  NOT_FOUND, STATE: promoted already. INVALID, BACKEND.
 * Since   0.1
 */
PR_API PR_MUST_CHECK pr_status pr_operations_cancel(pr_store *store, const char *message_id,
                                                    const char *who, const char *reason,
                                                    pr_error *err);

/**
 * Say why a message is not moving: state, owner, lease left, next attempt, blocker.
 *
 * Owner   *ret_explanation is the caller's memory; its size must be set.
 * Errors  NOT_FOUND, INVALID, BACKEND.
 * Since   0.1
 */
PR_API PR_MUST_CHECK pr_status pr_operations_explain(pr_store *store, const char *message_id,
                                                     pr_explanation *ret_explanation,
                                                     pr_error *err);

PR_END_DECLS

#endif
