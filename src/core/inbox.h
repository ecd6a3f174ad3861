/*
 * The inbox: one effect per (tenant, consumer, message id).
 *
 * Each function is one step of the protocol with a transaction of its own, except for those that
 * take a unit or hand one out: between pr__inbox_enter (or pr__inbox_lease_unit) and
 * pr__inbox_complete the handler runs in an open unit. On any error the transaction was rolled
 * back. BUSY: another holds the mark, or the store.
 */
#ifndef PR_CORE_INBOX_H
#define PR_CORE_INBOX_H

#include <stdbool.h>
#include <stdint.h>

#include <postroom/unit.h>

#include "base/hash.h"
#include "port/store.h"

/* A message on its way through the inbox. */
typedef struct pr__inbox_work {
    const pr_message *message; /* its id is the key's */
    const char *original_id;   /* the id that it came with, for people; NULL = the key's */
    pr__inbox_key key;
    uint8_t hash[PR_CONTENT_HASH_SIZE];
    const char *token; /* of the parked row that this work holds; "" = it holds none */
    bool row_gone;     /* that row was deleted in the unit that is open */
    uint32_t attempts; /* charged before */
    pr_order order;
    pr__saga_look *look; /* pr__inbox_enter loads it too, where a store can; NULL = none */
    const pr__saga_change *change; /* pr__inbox_complete saves it too; NULL = none */
} pr__inbox_work;

typedef enum pr__inbox_entry {
    PR__INBOX_RUN = 1,  /* enter: the mark stands in the open unit; run the handler */
    PR__INBOX_HANDLED,  /* complete: committed */
    PR__INBOX_PARKED,   /* park: a durable copy stands now */
    PR__INBOX_DONE,     /* it was done before; a parked row of its id is gone */
    PR__INBOX_COPY,     /* a durable copy stood already */
    PR__INBOX_HELD,     /* enter: parked behind an older one of its key */
    PR__INBOX_LOST,     /* the parked row is no longer this work's: nothing was changed */
    PR__INBOX_CONFLICT, /* the id stands with other content: nothing was changed */
    PR__INBOX_MOVED     /* complete: the saga's row is not as it was loaded: nothing was changed */
} pr__inbox_entry;

/* Mark, look for a parked row, look for a blocked key. *ret_unit is set for RUN only. */
pr_status pr__inbox_enter(pr_store *store, const pr__inbox_work *work, pr_unit **ret_unit,
                          pr__inbox_entry *ret_entry, pr_error *err);

/* The same in a unit that stands already and stays the caller's: good for more statements after RUN
   only, and else to be freed. */
pr_status pr__inbox_enter_unit(pr_unit *unit, const pr__inbox_work *work,
                               pr__inbox_entry *ret_entry, pr_error *err);

/* The same in a unit that does the work of others too, behind a savepoint of its own (step 0: it is
   set already): nothing is committed, and nothing written but the mark. What is not to RUN is to
   be taken back and entered by itself. While the mark is held nobody can park under its id: after
   RUN there is no row to be deleted. */
pr_status pr__inbox_enter_shared(pr_unit *unit, pr__savepoint_step step, const pr__inbox_work *work,
                                 pr__inbox_entry *ret_entry, pr_error *err);

/* What a store is asked for this work; points into it. */
pr__inbox_visit pr__inbox_visit_of(const pr__inbox_work *work);

/* Leased: insert the processing row that `park` describes, unless the work holds one, look for the
   mark, look for a blocked key, commit. RUN: the row stands with its lease; no unit is open. */
pr_status pr__inbox_lease_enter(pr_store *store, const pr__inbox_work *work,
                                const pr__inbox_park *park, pr__inbox_entry *ret_entry,
                                pr_error *err);

/* Leased, after the slow part: begin the business unit with the mark and without the processing
   row. RUN: *ret_unit is set. LOST: somebody took the row over; nothing was changed. */
pr_status pr__inbox_lease_unit(pr_store *store, const pr__inbox_work *work, pr_unit **ret_unit,
                               pr__inbox_entry *ret_entry, pr_error *err);

/* After the handler: is the unit still the one that was entered? Delete the parked row and
   commit. The unit stays the caller's to free. HANDLED, LOST or MOVED. STATE: the handler spoiled
   its unit. */
pr_status pr__inbox_complete(pr_unit *unit, const pr__inbox_work *work, pr__inbox_entry *ret_entry,
                             pr_outcome *ret_outcome, pr_error *err);

/* Park under the mark's mutex: PARKED, DONE, COPY, LOST or CONFLICT. With state PUBLISHING it is
   the processing row of a redelivered message. */
pr_status pr__inbox_park_work(pr_store *store, const pr__inbox_work *work,
                              const pr__inbox_park *park, pr__inbox_entry *ret_entry,
                              pr_error *err);

/* Keep what conflicts dead under an id of its own (see pr__inbox_conflict_id); a row that the
   work holds goes in the same commit. */
pr_status pr__inbox_park_conflict(pr_store *store, const pr__inbox_work *work, pr_error *err);

#define PR_INBOX_CONFLICT_ID_SIZE 48

/* "conflict:" and a hash of the id and the content: the same message again is the same row. */
void pr__inbox_conflict_id(const pr__inbox_work *work, char out[PR_INBOX_CONFLICT_ID_SIZE]);

#endif
