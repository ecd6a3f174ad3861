/*
 * A saga's inside, shared by its files: saga.c (types), saga_state.c (the codec of the state),
 * saga_timeout.c (open timeouts), saga_step.c (load, run, save), saga_handle.c (messages),
 * saga_lease.c (steps that work outside the database). What goes with a message: saga_ride.h.
 */
#ifndef PR_CORE_SAGA_H
#define PR_CORE_SAGA_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include <postroom/saga.h>

#include "base/memory.h"
#include "core/contract.h"
#include "port/store.h"

#define PR_SAGA_ORIGIN       "saga"
#define PR_SAGA_MESSAGES_MAX 4 /* that a row remembers */

/* The body of a timeout's message. */
typedef struct pr__saga_timeout_body {
    const char *saga;
    const char *key;
    char instance[PR_UUID_TEXT_SIZE];
    char token[PR_UUID_TEXT_SIZE];
    const char *name;
    int64_t version; /* that the row has once the step which armed it has committed */
} pr__saga_timeout_body;

struct pr_saga {
    pr_saga_type type;
    const pr_contracts *contracts; /* of the messages; may be NULL */
    pr_contracts *own;             /* of the states and the timeouts */
    pr_contract timeout;           /* type NULL = it has no timeouts */
    pthread_mutex_t mutex;         /* guards counters */
    pr_saga_snapshot counters;
};

/* What happened, whatever becomes of the transaction. What is a step's own is counted in
   step->counted and told when that is sure (pr__saga_count). */
#define PR_SAGA_COUNT(saga, field)                                                                 \
    do {                                                                                           \
        pthread_mutex_lock(&(saga)->mutex);                                                        \
        (saga)->counters.field++;                                                                  \
        pthread_mutex_unlock(&(saga)->mutex);                                                      \
    } while (0)

/* An open timeout. */
typedef struct pr__saga_open {
    char name[PR_SAGA_TIMEOUT_NAME_SIZE_MAX + 1];
    char token[PR_UUID_TEXT_SIZE];
    int64_t due_at_us;
} pr__saga_open;

struct pr_saga_step {
    pr_saga *saga;
    pr_scope *scope; /* NULL in the save of a lease */
    pr_unit *unit;
    pr__arena *arena;
    pr__saga_key key;
    pr__saga_row row;
    bool fresh;                         /* this step starts the instance */
    char restart_id[PR_UUID_TEXT_SIZE]; /* "" = it does not take a completed one's place */
    bool complete;                      /* the handler said so */
    void *state;                        /* the object, in the arena */
    pr_decoded *decoded[2];             /* what the object points into */
    uint32_t decoded_count;
    pr__saga_open open[PR_SAGA_TIMEOUTS_MAX];
    uint32_t open_count;
    pr_saga_snapshot counted;              /* what is true once it is committed */
    const char *message_id, *message_type; /* that moves it; NULL in the save of a lease */
};

/* ---- saga.c ---- */

/* Add what was counted. */
void pr__saga_count(pr_saga *saga, const pr_saga_snapshot *counted);
/* The same, once the unit has committed, and never if it does not. */
void pr__saga_count_after(pr_saga *saga, pr_unit *unit, const pr_saga_snapshot *counted);

/* ---- saga_handle.c ---- */

/* What it does with messages of this type; NULL = nothing. */
const pr_saga_message *pr__saga_message_find(const pr_saga *saga, const char *type);

/* ---- saga_state.c ---- */

/* An empty object of the newest contract. NOMEM. */
pr_status pr__saga_state_fresh(pr_saga_step *step, pr_error *err);
/* Decode the row's state, up-cast to the newest. CONTENT: it cannot be read. SCHEMA: it was written
   by a newer program. */
pr_status pr__saga_state_read(pr_saga_step *step, pr_error *err);
/* *ret_state is the caller's: pr__free. LIMIT: beyond state_size_max. CONTENT: a field. */
pr_status pr__saga_state_write(pr_saga_step *step, void **ret_state, size_t *ret_size,
                               pr_error *err);
const pr_contract *pr__saga_state_newest(const pr_saga *saga);

/* ---- saga_timeout.c ---- */

/* The contract of its timeouts' messages, over pr__saga_timeout_body. */
pr_contract pr__saga_timeout_contract(const char *type);
const pr_saga_timeout *pr__saga_timeout_find(const pr_saga *saga, const char *name);
/* Read the open timeouts of the row. CONTENT: damaged. */
pr_status pr__saga_open_read(pr_saga_step *step, pr_error *err);
/* The list as JSON, in the arena; NULL when out of memory. */
const char *pr__saga_open_write(pr_saga_step *step);
/* Close the one with this token; false: it is not open. */
bool pr__saga_open_close(pr_saga_step *step, const char *token);
void pr__saga_open_close_all(pr_saga_step *step);
/* The row's last messages with the one in hand behind them; NULL when out of memory. */
const char *pr__saga_messages_write(pr_saga_step *step);

/* ---- saga_step.c ---- */

/* The instance that is in hand: of a restart the new one. */
const char *pr__saga_step_instance(const pr_saga_step *step);
bool pr__saga_step_begin(pr_saga_step *step, pr_saga *saga, pr_unit *unit);
void pr__saga_step_done(pr_saga_step *step);
/* A UUIDv7 of the store's clock and randomness. */
void pr__saga_new_id(const pr_store *store, char out[PR_UUID_TEXT_SIZE]);
/* Insert an instance where there is none. *ret_inserted false: one stands, load it. */
pr_status pr__saga_step_insert(pr_saga_step *step, bool *ret_inserted, pr_error *err);
pr_status pr__saga_step_load(pr_saga_step *step, bool *ret_found, pr_error *err);
/* False: its row did not come with the message, or was had before. */
bool pr__saga_step_loaded(pr_saga_step *step, bool *ret_found);
bool pr__saga_row_leased(const pr__saga_row *row);
/* Encode and save; lease_token NULL: not a leased step. *ret_saved false: lost. A save may wait for
   the commit of its message: it counts as saved, and is told of then. */
pr_status pr__saga_step_save(pr_saga_step *step, const char *lease_token, bool *ret_saved,
                             pr_error *err);

#endif
