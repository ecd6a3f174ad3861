/*
 * The store port: what core, the database transport and operations need of a database.
 *
 * Adapters fill the vtable; callers use the pr__store_… functions, which check arguments. All times
 * are the database's. Every call is one transaction of its own unless it takes a unit; on any error
 * nothing has changed, except where retry is PR_RETRY_UNKNOWN.
 */
#ifndef PR_PORT_STORE_H
#define PR_PORT_STORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <postroom/operations.h>
#include <postroom/store.h>
#include <postroom/unit.h>

#include "base/hash.h"
#include "port/batch.h"
#include "port/observe.h"
#include "port/saga.h"

/* ---- readers ---- */

typedef struct pr__reader_spec {
    const char *name;                /* unique; an endpoint id */
    const char *const *destinations; /* exact addresses that it takes, with the `local` scheme */
    size_t destination_count;
    pr_order order; /* DEFAULT = HOLD */
    bool temporary;
    int64_t expiry_ms; /* of a temporary one */
} pr__reader_spec;

/* ---- claim ---- */

typedef struct pr__claim_options {
    int64_t reader;
    int64_t lease_ms;   /* > 0 */
    uint32_t batch_max; /* > 0 */
    uint64_t bytes_max; /* > 0; one message is given whatever its size */
    uint32_t lanes_max; /* lanes to claim at most; 0 = all */
    const char *owner;  /* shown by explain; not an identity */
    /* Bitmap of PR_LANES_MAX bits: lanes to leave alone, because what they hold waits for a
       destination that is down. NULL = none. Of claim only; claim_parked does not look at it. */
    const uint64_t *lanes_skipped;
    /* Local destinations of other readers to leave alone, and the like, are the store's. */
} pr__claim_options;

typedef struct pr__settle_report {
    uint32_t published, failed, deferred, dead, expired, held, rest;
    uint32_t fenced_slices;
    uint32_t fenced_items; /* outcomes that were discarded */
} pr__settle_report;

/* ---- inbox ---- */

typedef struct pr__inbox_key {
    const char *tenant; /* "" for none */
    const char *consumer;
    const char *message_id;
} pr__inbox_key;

typedef enum pr__mark {
    PR__MARK_NEW = 1, /* inserted in this unit */
    PR__MARK_DONE,    /* stood before, same content */
    PR__MARK_CONFLICT /* stood before, other content */
} pr__mark;

/* A parked row of the inbox, without its body. */
typedef struct pr__inbox_row {
    pr_state state; /* FAILED, HELD, DEAD; PUBLISHING stands for processing */
    uint32_t attempts;
    uint32_t takeovers;
    char token[PR_UUID_TEXT_SIZE]; /* "" when not leased */
    int64_t next_attempt_at_us;
    int64_t locked_until_us;
    bool same_content; /* as the hash that was asked for */
} pr__inbox_row;

/* A message that wants in: what inbox_mark, inbox_find and inbox_blocked are to be asked for it. */
typedef struct pr__inbox_visit {
    const pr__inbox_key *key;
    const uint8_t *hash;     /* PR_CONTENT_HASH_SIZE bytes */
    const char *message_key; /* NULL or "" = none, and nothing blocks it */
    pr_order order;
    pr__saga_look *saga; /* of unit_enter: to be loaded too, if the mark is NEW; NULL = none */
} pr__inbox_visit;

/* What they found. */
typedef struct pr__inbox_facts {
    pr__mark mark;
    bool found; /* this and the others are set with a mark that is NEW only */
    pr__inbox_row row;
    bool blocked; /* may be left unset with a row that was found */
} pr__inbox_facts;

/* The way out of a unit whose mark was NEW. */
typedef struct pr__inbox_end {
    const pr__inbox_key *key;
    const uint8_t *hash;         /* PR_CONTENT_HASH_SIZE bytes */
    const char *token;           /* of the parked row that goes with it; NULL = none does */
    const pr__saga_change *saga; /* to be saved, the last thing before the commit; NULL = none */
} pr__inbox_end;

typedef enum pr__inbox_check {
    PR__INBOX_KEPT = 1, /* the mark stood and the row went */
    PR__INBOX_UNMARKED, /* the mark is gone, or has other content */
    PR__INBOX_TAKEN,    /* no row with that token stood */
    PR__INBOX_BROKEN,   /* it could not be looked at */
    PR__INBOX_UNSAVED,  /* the saga's row is not as it was loaded: the save is refused, as saga_save
                           would; or, with an error, it could not be done */
} pr__inbox_check;

/* How a message is to stand parked. */
typedef struct pr__inbox_park {
    pr_state state; /* FAILED, HELD, DEAD, or PUBLISHING for processing */
    uint32_t attempts;
    int64_t retry_delay_ms; /* due this long after the database's now */
    const char *error;      /* one line; NULL = none */
    const char *token;      /* PUBLISHING: the lock; else NULL */
    const char *owner;      /* PUBLISHING: who */
    int64_t lease_ms;       /* PUBLISHING: > 0 */
} pr__inbox_park;

/* A due row that was claimed for a retry; the batch's items carry token, attempts and message. */
typedef struct pr__inbox_claim_options {
    const char *consumer;
    const char *owner;
    int64_t lease_ms;
    uint32_t batch_max;
    pr_order order;
} pr__inbox_claim_options;

/* ---- operations ---- */

typedef struct pr__backlog {
    uint64_t pending;              /* of the reader: not passed, or open, or in rest */
    int64_t oldest_pending_age_ms; /* 0 = none */
} pr__backlog;

/* May a message of this type be redriven? Called inside the transaction; must not use the store. */
typedef bool (*pr__redrive_check)(void *user, const char *type, uint32_t type_version);

/* What stands around a message of the log, for explain. */
typedef struct pr__place {
    bool worked;             /* somebody has claimed for this reader, in any lane */
    bool in_slice;           /* the message is in the open slice of its lane */
    bool in_rest;            /* claimed before, neither published nor parked: goes first */
    bool passed_over;        /* not this reader's: `local` for the relay, filtered out */
    uint32_t slice_count;    /* messages in the open slice of its lane; 0 = none is open */
    uint32_t attempt;        /* takeovers of that slice without a settle */
    uint32_t deferred_count; /* rows of its lane that wait uncharged for a destination */
    int64_t lease_until_us;  /* of the open slice; 0 = none */
    int64_t last_at_us;      /* the newest journal row of the reader; 0 = none */
    int64_t settled_at_us;   /* when the message was settled; 0 = not, or no longer known */
    char owner[128];         /* of the open slice; else who wrote the newest journal row */
    char reader_name[256];   /* "" = the relay */
} pr__place;

/* One enqueue, prepared by core: every default filled in, every limit checked. */
typedef struct pr__enqueue {
    /* id, type_version, content_type, occurred_at_us are set; destination may be NULL;
       deliver_at_us in the future: parked as delayed */
    const pr_message *message;
    bool caller_id; /* the id is the caller's: look for it in this transaction */
    bool duplicate; /* set by the store: stood already, same content */
} pr__enqueue;

/* ---- the vtables ---- */

/* What becomes of the savepoint of a unit that does the work of several messages. */
typedef enum pr__savepoint_step {
    PR__SAVEPOINT_SET = 1, /* the first one */
    PR__SAVEPOINT_NEXT,    /* keep what was written since, and set the next one in its place */
    PR__SAVEPOINT_BACK     /* take back what was written since; it stays set */
} pr__savepoint_step;

typedef struct pr__unit_ops {
    /* Is the transaction that the unit began in, or joined, still live and not aborted? STATE if
       not. */
    pr_status (*live)(pr_unit *unit, pr_error *err);
    /* Insert in order, all or none (savepoint). CONFLICT: a caller's id stands in this transaction
       with other content; names its index. On BACKEND errors the transaction is good for rollback
       only. */
    pr_status (*enqueue)(pr_unit *unit, pr__enqueue *messages, size_t count, pr_error *err);
    /* Of a transaction that is not live nothing is committed: STATE, and the outcome is UNKNOWN
       when somebody else ended it, NOT_COMMITTED when it was aborted. */
    pr_status (*commit)(pr_unit *unit, pr_outcome *ret_outcome, pr_error *err);
    pr_status (*rollback)(pr_unit *unit, pr_error *err);
    /* Free the adapter's part and the memory of the unit itself; never commits. */
    void (*free)(pr_unit *unit);

    /* Inbox, all in the unit's transaction; the mark is touched before the parked row, always.
       `hash` is pr__content_hash of type, version, body. BUSY: waited beyond the busy limit. */
    pr_status (*inbox_mark)(pr_unit *unit, const pr__inbox_key *key,
                            const uint8_t hash[PR_CONTENT_HASH_SIZE], pr__mark *ret_mark,
                            pr_error *err);
    pr_status (*inbox_unmark)(pr_unit *unit, const pr__inbox_key *key, pr_error *err);
    /* Read only: DONE, CONFLICT, or NEW when none stands. */
    pr_status (*inbox_look)(pr_unit *unit, const pr__inbox_key *key,
                            const uint8_t hash[PR_CONTENT_HASH_SIZE], pr__mark *ret_mark,
                            pr_error *err);
    pr_status (*inbox_find)(pr_unit *unit, const pr__inbox_key *key,
                            const uint8_t hash[PR_CONTENT_HASH_SIZE], bool *ret_found,
                            pr__inbox_row *ret_row, pr_error *err);
    /* Does an older blocking row of key's tenant and consumer with this message_key stand? Older
       than the parked row of `key` itself, or, where none stands (a message not parked yet), any.
       Blocking: failed, held, processing; under HALT dead too. */
    pr_status (*inbox_blocked)(pr_unit *unit, const pr__inbox_key *key, const char *message_key,
                               pr_order order, bool *ret_blocked, pr_error *err);
    /* INSERT … ON CONFLICT DO NOTHING of a full copy. */
    pr_status (*inbox_park)(pr_unit *unit, const pr__inbox_key *key, const pr_message *message,
                            const pr__inbox_park *park, bool *ret_inserted, pr_error *err);
    /* Conditional on token; clears it. *ret_changed false: lost. */
    pr_status (*inbox_repark)(pr_unit *unit, const pr__inbox_key *key, const char *token,
                              const pr__inbox_park *park, bool *ret_changed, pr_error *err);
    /* token NULL: whatever stands there; else only by token. */
    pr_status (*inbox_unpark)(pr_unit *unit, const pr__inbox_key *key, const char *token,
                              bool *ret_deleted, pr_error *err);

    /* Sagas, all in the unit's transaction. Load locks the row until its end; the store's clock is
       in *ret_row even when no row is found. BUSY: waited for another beyond the busy limit. */
    pr_status (*saga_load)(pr_unit *unit, const pr__saga_key *key, pr__arena *arena,
                           bool *ret_found, pr__saga_row *ret_row, pr_error *err);
    /* INSERT … ON CONFLICT DO NOTHING of an instance with version 0 and no state; waits for another
       that is at it. Not inserted: it stands, load it. *ret_now_us: the store's clock. */
    pr_status (*saga_insert)(pr_unit *unit, const pr__saga_key *key, const char *instance_id,
                             bool *ret_inserted, int64_t *ret_now_us, pr_error *err);
    /* Conditional on instance, version and, where it is given, the lease's token; *ret_saved false:
       lost. */
    pr_status (*saga_save)(pr_unit *unit, const pr__saga_key *key, const pr__saga_save *save,
                           bool *ret_saved, pr_error *err);
    /* Set completed_at of a row whose state says so, and whose completed_at was never written. */
    pr_status (*saga_complete)(pr_unit *unit, const pr__saga_key *key, const char *instance_id,
                               bool *ret_changed, pr_error *err);
    /* Take the lease of a running instance that nobody holds, or whose lease has expired. */
    pr_status (*saga_lease)(pr_unit *unit, const pr__saga_key *key, const pr__saga_lease *lease,
                            bool *ret_taken, pr_error *err);
    /* By token: prolong it from now on; an expired one that nobody took may be prolonged. */
    pr_status (*saga_renew)(pr_unit *unit, const pr__saga_key *key, const pr__saga_lease *lease,
                            bool *ret_kept, pr_error *err);
    /* By token: give it back. */
    pr_status (*saga_unlease)(pr_unit *unit, const pr__saga_key *key, const char *token,
                              bool *ret_released, pr_error *err);

    /* A savepoint around each message of a batch. BACK makes a transaction that a statement of the
       message aborted good again, and so the unit. Any error, among them that somebody ended the
       transaction or the savepoint: nothing of the unit can be committed. */
    pr_status (*savepoint)(pr_unit *unit, pr__savepoint_step step, pr_error *err);
    /* The savepoint of one of them, SET or NEXT, and then what inbox_mark, inbox_find and
       inbox_blocked say of it, in one go, where a store can do that for less; NULL: by single
       steps. After an error BACK shows whether the rest of the unit can be committed. */
    pr_status (*inbox_enter_next)(pr_unit *unit, pr__savepoint_step step,
                                  const pr__inbox_visit *visit, pr__inbox_facts *ret_facts,
                                  pr_error *err);
    /* Before any of them: under which of these ids, of one consumer, does a mark or a parked row
       stand, or a row that blocks its key? A look: nothing is locked by it. */
    pr_status (*inbox_look_all)(pr_unit *unit, const pr__inbox_visit *visits, size_t count,
                                bool *ret_stands, pr_error *err);
    /* After all of them: mark those that are not `marked`. *ret_all: every one of them has its
       mark now, with its content; those of now had none, and no parked row stands under their ids
       or blocks their keys. Without it nothing of the unit may be committed. */
    pr_status (*inbox_mark_all)(pr_unit *unit, const pr__inbox_visit *visits, const bool *marked,
                                size_t count, bool *ret_all, pr_error *err);

    /* Is the mark still there, take the row out, save the saga, commit: in one go, where a store
       can do that for less; NULL: by single steps. Of anything but KEPT nothing is committed, and
       the unit is at its end; with KEPT the status is that of the commit, with BROKEN and UNSAVED
       it says why. STATE with an UNKNOWN outcome: other code ended the transaction. */
    pr_status (*inbox_complete)(pr_unit *unit, const pr__inbox_end *end, pr__inbox_check *ret_check,
                                pr_outcome *ret_outcome, pr_error *err);
} pr__unit_ops;

typedef struct pr__unit_core pr__unit_core; /* core's part of a unit: context, events, nesting */

/* The first member of every adapter's unit. */
struct pr_unit {
    const pr__unit_ops *ops;
    pr_store *store;
    pr_unit *outer; /* of a nested unit; its ops are core's */
    bool joined;
    bool finished; /* committed, rolled back, or told by the host */
    bool rollback_only;
    pr__unit_core *core; /* made by core on first use; freed by pr_unit_free */
};

typedef struct pr__store_ops {
    const char *name; /* "sqlite", "postgres" */

    void (*free)(pr_store *store);
    pr_status (*clone)(pr_store *store, pr_store **ret_store, pr_error *err);
    pr_status (*migrate)(pr_store *store, const pr_migrate_options *opt,
                         pr_migrate_report *ret_report, pr_error *err);
    pr_status (*check)(pr_store *store, pr_error *err);

    /* Begin a transaction on the store's own connection. BUSY: beyond the busy limit. */
    pr_status (*unit_begin)(pr_store *store, pr_unit **ret_unit, pr_error *err);

    /* Find or make a reader. CONFLICT: it stands with other destinations. A temporary one's expiry
       is pushed on by reader_keep. */
    pr_status (*reader_open)(pr_store *store, const pr__reader_spec *spec, int64_t *ret_reader,
                             pr_error *err);
    pr_status (*reader_keep)(pr_store *store, int64_t reader,
                             pr_error *err); /* NOT_FOUND: expired */
    pr_status (*reader_drop)(pr_store *store, int64_t reader, pr_error *err);
    pr_status (*reader_set_order)(pr_store *store, int64_t reader, pr_order order, pr_error *err);
    /* Is there a reader for this destination (scheme `local`)? */
    pr_status (*reader_exists)(pr_store *store, const char *destination, bool *ret_exists,
                               pr_error *err);

    /* Claim slices of the log; *ret_batch NULL: nothing to claim, and nothing was written. */
    pr_status (*claim)(pr_store *store, const pr__claim_options *opt, pr__batch **ret_batch,
                       pr_error *err);
    /* Claim due parked rows of the reader, whole runs of a key; *ret_batch NULL: none is due. */
    pr_status (*claim_parked)(pr_store *store, const pr__claim_options *opt, pr__batch **ret_batch,
                              pr_error *err);
    /* Settle a closed batch of either kind; with next (log batches only) claim in the same commit.
       A lost race or token is not an error: see the report and the fenced flags. Repeats an unknown
       commit itself, by the token at seq + 1. The batch stays the caller's to free. */
    pr_status (*settle)(pr_store *store, pr__batch *batch, const pr__claim_options *next,
                        pr__settle_report *ret_report, pr__batch **ret_next, pr_error *err);
    /* Renew all leases of the batch; slices or items that were lost are marked fenced. */
    pr_status (*renew)(pr_store *store, pr__batch *batch, int64_t lease_ms, pr_error *err);
    /* Move due delayed rows into the log. *ret_next_ms: until the next one is due, -1 = none. */
    pr_status (*promote)(pr_store *store, uint32_t max, uint32_t *ret_count, int64_t *ret_next_ms,
                         pr_error *err);
    /* Milliseconds until the next parked row of the reader is due; -1 = none waits. */
    pr_status (*parked_due)(pr_store *store, int64_t reader, int64_t *ret_next_ms, pr_error *err);
    /* How many rows of a lane stand parked uncharged because their destination is down. */
    pr_status (*parked_count)(pr_store *store, int64_t reader, uint32_t lane, uint32_t *ret_count,
                              pr_error *err);

    /* Cheap look whether anything was committed by others since the last call (true at first). */
    pr_status (*changed)(pr_store *store, bool *ret_changed, pr_error *err);
    /* Housekeeping that the relay does now and then: checkpoint of the WAL. */
    pr_status (*maintain)(pr_store *store, pr_error *err);
    /* Give up after limit_ms with BUSY. */
    pr_status (*backlog)(pr_store *store, int64_t reader, int64_t limit_ms,
                         pr__backlog *ret_backlog, pr_error *err);

    /* Inbox retries: claim due parked rows of a consumer, due ones and processing ones whose lease
       has ended (takeovers + 1); NULL: none. After three takeovers the item is poison: the caller
       charges it, and repark sets takeovers back to 0. The item's message id is the row's key. */
    pr_status (*inbox_claim)(pr_store *store, const pr__inbox_claim_options *opt,
                             pr__batch **ret_batch, pr_error *err);
    /* Milliseconds until the next is due under this order; -1 = none. */
    pr_status (*inbox_due)(pr_store *store, const char *consumer, pr_order order,
                           int64_t *ret_next_ms, pr_error *err);
    /* Give claimed rows back as they were (by token), uncharged: at stop. */
    pr_status (*inbox_release)(pr_store *store, const char *consumer, pr__batch *batch,
                               pr_error *err);
    pr_status (*inbox_renew)(pr_store *store, const char *consumer, pr__batch *batch,
                             int64_t lease_ms, pr_error *err);

    /* Operations: semantics as in operations.h. */
    pr_status (*status)(pr_store *store, pr_status_report *ret_report, pr_error *err);
    pr_status (*list)(pr_store *store, const pr_list_options *opt, pr_list_page *ret_page,
                      pr_record_callback callback, void *user, pr_error *err);
    pr_status (*show)(pr_store *store, const char *message_id, pr_record_callback callback,
                      void *user, pr_error *err);
    /* check NULL: every type may. */
    pr_status (*redrive)(pr_store *store, const pr_redrive_options *opt, pr__redrive_check check,
                         void *user, uint64_t *ret_count, pr_error *err);
    pr_status (*discard)(pr_store *store, const char *message_id, const char *consumer,
                         const char *who, const char *reason, pr_error *err);
    pr_status (*cancel)(pr_store *store, const char *message_id, const char *who,
                        const char *reason, pr_error *err);
    /* The message that blocks this one (id of the oldest blocking row of its key); "" = none. */
    pr_status (*blocker)(pr_store *store, const pr_record *record, char *ret_message_id,
                         size_t ret_size, pr_error *err);
    /* The database's clock. */
    pr_status (*now)(pr_store *store, int64_t *ret_now_us, pr_error *err);
    /* What stands around an outbox record. */
    pr_status (*place)(pr_store *store, const pr_record *record, pr__place *ret_place,
                       pr_error *err);

    /* Operations on sagas: semantics as in saga_operations.h. */
    pr_status (*saga_list)(pr_store *store, const pr_saga_list_options *opt,
                           pr_saga_list_page *ret_page, pr_saga_record_callback callback,
                           void *user, pr_error *err);
    pr_status (*saga_show)(pr_store *store, const pr__saga_key *key,
                           pr_saga_record_callback callback, void *user, pr_error *err);
    pr_status (*saga_release)(pr_store *store, const pr__saga_key *key, bool force, const char *who,
                              const char *reason, pr_error *err);
    pr_status (*saga_sweep)(pr_store *store, int64_t retention_ms, uint32_t max,
                            uint64_t *ret_count, pr_error *err);

    /* Begin a unit, mark, find, look whether the key is blocked, and load a saga: in one go, where
       a store can do that for less; NULL: by single steps. What is found after the mark was waited
       for is as it stands then. A saga that cannot be loaded is left to saga_load. On any error no
       unit is open. */
    pr_status (*unit_enter)(pr_store *store, const pr__inbox_visit *visit, pr_unit **ret_unit,
                            pr__inbox_facts *ret_facts, pr_error *err);

    /* The reader of that name; 0 = there is none, or it has expired. Reads only. */
    pr_status (*reader_find)(pr_store *store, const char *name, int64_t *ret_reader, pr_error *err);
} pr__store_ops;

/* The first member of every adapter's store. */
struct pr_store {
    const pr__store_ops *ops;
    const pr_clock *clock;       /* never NULL */
    const pr_random *random;     /* never NULL */
    const pr_observer *observer; /* may be NULL */
    uint64_t body_size_max;
    void (*doorbell)(void *user); /* rung after a commit that enqueued; NULL = none */
    void *doorbell_user;
    char *doorbell_path; /* of a datagram after it; NULL = what the environment says, "" = none */
};

/* ---- checked calls: one per method, the same arguments ---- */

pr_status pr__store_unit_begin(pr_store *store, pr_unit **ret_unit, pr_error *err);
pr_status pr__store_reader_open(pr_store *store, const pr__reader_spec *spec, int64_t *ret_reader,
                                pr_error *err);
pr_status pr__store_reader_keep(pr_store *store, int64_t reader, pr_error *err);
pr_status pr__store_reader_drop(pr_store *store, int64_t reader, pr_error *err);
pr_status pr__store_reader_set_order(pr_store *store, int64_t reader, pr_order order,
                                     pr_error *err);
pr_status pr__store_reader_exists(pr_store *store, const char *destination, bool *ret_exists,
                                  pr_error *err);
pr_status pr__store_reader_find(pr_store *store, const char *name, int64_t *ret_reader,
                                pr_error *err);
pr_status pr__store_claim(pr_store *store, const pr__claim_options *opt, pr__batch **ret_batch,
                          pr_error *err);
pr_status pr__store_claim_parked(pr_store *store, const pr__claim_options *opt,
                                 pr__batch **ret_batch, pr_error *err);
pr_status pr__store_settle(pr_store *store, pr__batch *batch, const pr__claim_options *next,
                           pr__settle_report *ret_report, pr__batch **ret_next, pr_error *err);
pr_status pr__store_renew(pr_store *store, pr__batch *batch, int64_t lease_ms, pr_error *err);
pr_status pr__store_promote(pr_store *store, uint32_t max, uint32_t *ret_count,
                            int64_t *ret_next_ms, pr_error *err);
pr_status pr__store_parked_due(pr_store *store, int64_t reader, int64_t *ret_next_ms,
                               pr_error *err);
pr_status pr__store_parked_count(pr_store *store, int64_t reader, uint32_t lane,
                                 uint32_t *ret_count, pr_error *err);
pr_status pr__store_changed(pr_store *store, bool *ret_changed, pr_error *err);
pr_status pr__store_maintain(pr_store *store, pr_error *err);
pr_status pr__store_backlog(pr_store *store, int64_t reader, int64_t limit_ms,
                            pr__backlog *ret_backlog, pr_error *err);
pr_status pr__store_inbox_claim(pr_store *store, const pr__inbox_claim_options *opt,
                                pr__batch **ret_batch, pr_error *err);
pr_status pr__store_inbox_due(pr_store *store, const char *consumer, pr_order order,
                              int64_t *ret_next_ms, pr_error *err);
pr_status pr__store_inbox_release(pr_store *store, const char *consumer, pr__batch *batch,
                                  pr_error *err);
pr_status pr__store_inbox_renew(pr_store *store, const char *consumer, pr__batch *batch,
                                int64_t lease_ms, pr_error *err);
pr_status pr__store_blocker(pr_store *store, const pr_record *record, char *ret_message_id,
                            size_t ret_size, pr_error *err);
/* Can a mark or a parked row of this key be found again? INVALID, CONTENT. */
pr_status pr__inbox_key_check(const pr__inbox_key *key, const char *origin, pr_error *err);
/* Ring whatever doorbells there are, after a commit that enqueued. */
void pr__store_ring(const pr_store *store);
pr_status pr__store_now(pr_store *store, int64_t *ret_now_us, pr_error *err);
pr_status pr__store_place(pr_store *store, const pr_record *record, pr__place *ret_place,
                          pr_error *err);
pr_status pr__store_saga_list(pr_store *store, const pr_saga_list_options *opt,
                              pr_saga_list_page *ret_page, pr_saga_record_callback callback,
                              void *user, pr_error *err);
pr_status pr__store_saga_show(pr_store *store, const pr__saga_key *key,
                              pr_saga_record_callback callback, void *user, pr_error *err);
pr_status pr__store_saga_release(pr_store *store, const pr__saga_key *key, bool force,
                                 const char *who, const char *reason, pr_error *err);
pr_status pr__store_saga_sweep(pr_store *store, int64_t retention_ms, uint32_t max,
                               uint64_t *ret_count, pr_error *err);

/* Prepare the embedded part of an adapter's unit. */
void pr__unit_init(pr_unit *unit, const pr__unit_ops *ops, pr_store *store, bool joined);

#endif
