/*
 * What of a saga goes with its message: its row comes along on the way into the unit, and is saved
 * on the way out of it, so that a step costs no round trip of its own.
 */
#ifndef PR_CORE_SAGA_RIDE_H
#define PR_CORE_SAGA_RIDE_H

#include <stdbool.h>

#include "core/saga.h"
#include "core/saga_key.h"
#include "core/scope.h"

/* Of a scope; NULL there = nothing goes along. */
typedef struct pr__saga_ride {
    char key_text[PR_SAGA_KEY_SIZE];
    pr__saga_key key; /* of look */
    pr__saga_look look;
    pr_saga *saga;           /* whose save waits; NULL = none does */
    pr__saga_key change_key; /* of change */
    pr__saga_change change;
    void *state;      /* in change */
    pr__arena *arena; /* of what else change points to */
    bool refused;     /* a save that had waited */
} pr__saga_ride;

/* Before the message enters: ask for the row of its instance. Where that is not known beforehand,
   or memory is short, nothing is asked for, and the step loads it by itself. may_decode: nobody
   sees it before the handler. */
void pr__saga_ride_ask(pr_saga *saga, pr_scope *scope, bool may_decode);

/* Was the row of this key loaded with the message? It is given out once, for it may move. */
bool pr__saga_ride_loaded(pr_scope *scope, const pr__saga_key *key, bool *ret_found,
                          pr__saga_row *ret_row);

/* Can the save of this step wait until its unit is committed? */
bool pr__saga_ride_may_wait(const pr_saga_step *step);
/* Let it wait. Takes the state, and the arena of the step. NOMEM: it took nothing. */
pr_status pr__saga_ride_wait(pr_saga_step *step, const pr__saga_save *save, void *state,
                             pr_error *err);

/* Somebody asks for the unit again: what waits is saved now, so that it is seen. On any error the
   unit is good for rollback only. BUSY: it was refused. */
pr_status pr__saga_ride_flush(pr_scope *scope, pr_error *err);

/* Was a save refused that had waited? */
bool pr__saga_ride_refused(const pr_scope *scope);
/* Another has moved the row: the message is put off. */
pr_handled pr__saga_ride_put_off(pr_scope *scope);
/* The same, of a save that was refused on the way out. */
pr_handled pr__saga_ride_lost(pr_scope *scope);

/* The unit is over. */
void pr__saga_ride_done(pr_scope *scope);

#endif
