/*
 * The inner side of a unit of work: what core keeps beside an adapter's unit.
 */
#ifndef PR_CORE_UNIT_H
#define PR_CORE_UNIT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <postroom/unit.h>

#include "base/memory.h"
#include "port/store.h"

/* An aggregate whose events go with the unit. */
typedef struct pr__tracked {
    pr_event_source *source;
    const pr_contracts *contracts;
    pr_unit *unit;          /* through which it was tracked: its context goes with the events */
    uint32_t flushed_count; /* events, from the oldest, that are enqueued in this transaction */
} pr__tracked;

/* Something to do once the transaction has committed. */
typedef struct pr__after_commit {
    void (*call)(void *user, void *data);
    void *user;
    void *data; /* owned */
} pr__after_commit;

struct pr__unit_core {
    pr__arena *context_arena; /* the texts of context; NULL = nothing set here */
    pr_unit_context context;
    pr__tracked *tracked; /* of the outermost unit only */
    size_t tracked_count;
    size_t tracked_capacity;
    uint64_t enqueued_count; /* of the outermost unit only */
    pr__after_commit *after; /* the same, in order */
    size_t after_count;
    uint32_t nested_open;
    bool guarded;     /* an endpoint ends it: whoever else tries makes it rollback-only */
    char reason[256]; /* why it is rollback-only; "" otherwise */
};

/* Core's part of a unit, made at first use. */
pr_status pr__unit_core_get(pr_unit *unit, pr__unit_core **ret_core, pr_error *err);

/* The unit of the adapter, in which a nested one lives. */
pr_unit *pr__unit_root(pr_unit *unit);

/* Make the unit and all around it good for rollback only; the first reason stays. */
void pr__unit_spoil(pr_unit *unit, const char *reason);

/* STATE unless statements of the unit can still be part of a commit. */
pr_status pr__unit_usable(pr_unit *unit, pr_error *err);

/* The context that messages of the unit inherit: its own, else that of the unit around it. */
const pr_unit_context *pr__unit_context(const pr_unit *unit);

/* Enqueue with ids that are not the caller's: nothing of that id can stand in the transaction. */
pr_status pr__outbox_enqueue_events(pr_unit *unit, const pr_message *messages, size_t count,
                                    pr_error *err);

/* Enqueue the events that were tracked through this unit, or, for an outermost one, all. */
pr_status pr__events_flush(pr_unit *unit, pr_error *err);

/* The transaction's end: drop what was committed, or keep everything for another try. */
void pr__events_settle(pr_unit *root, bool committed);

/* A nested unit ends: what it tracked is the outer one's from now on. */
void pr__events_hand_over(pr_unit *nested);

/* Commit what the inbox let in, the way its store does that in one go (inbox_complete). */
pr_status pr__unit_complete(pr_unit *unit, const pr__inbox_end *end, pr__inbox_check *ret_check,
                            pr_outcome *ret_outcome, pr_error *err);

/* Call it after the commit, if that is certain; never otherwise. data is the unit's to free, also
   when this fails: NOMEM. */
pr_status pr__unit_after_commit(pr_unit *unit, void (*call)(void *user, void *data), void *user,
                                void *data, pr_error *err);

/* How many there are, and: forget all but so many, as a savepoint was rolled back to. */
size_t pr__unit_after_count(pr_unit *unit);
void pr__unit_after_forget(pr_unit *unit, size_t kept);

/* While guarded, only the holder of the guard may end the unit. */
pr_status pr__unit_guard(pr_unit *unit, pr_error *err);
void pr__unit_unguard(pr_unit *unit);

#endif
