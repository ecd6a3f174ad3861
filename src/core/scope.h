/*
 * A handler's scope: what one delivery gives to its handler and to the middleware around it.
 */
#ifndef PR_CORE_SCOPE_H
#define PR_CORE_SCOPE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include <postroom/endpoint.h>

#include "core/inbox.h"
#include "core/lease.h"

#define PR_REASON_SIZE   (PR_ERROR_TEXT_SIZE_MAX + 1)
#define PR__TRACE_PARENT 56 /* 00-<32>-<16>-<2> and a NUL */

/* How the unit of a scope stands. */
typedef enum pr__unit_state {
    PR__UNIT_NONE = 0, /* no work unit is around the handler */
    PR__UNIT_LAZY,     /* it begins when it is asked for: leased inbox; its part of it: a batch */
    PR__UNIT_OPEN
} pr__unit_state;

/* A unit that does the work of several messages. */
typedef struct pr__shared {
    pr_unit *unit;
    bool savepoint; /* that of a message is set in it */
} pr__shared;

struct pr_scope {
    pr_endpoint *endpoint;
    pr_store *store;       /* of the thread that handles */
    pr__inbox_work *inbox; /* the message's way through the inbox */
    const pr_message *message;
    pr_decoded *decoded;
    pr_unit *unit;
    struct pr__saga_ride *ride; /* what of a saga goes with the message; NULL = nothing */
    pr__shared *shared; /* of a batch: `unit` is that one, and is ended by others; else NULL */
    pr__unit_state unit_state;
    uint32_t attempts;
    bool decode_tried;
    bool in_inbox;   /* the mark stands in the unit, or the lease is held, or it is let in by a
                        look at a batch */
    bool in_handler; /* the handler was run */
    bool touched;    /* of a batch: the savepoint that is set is its own */
    bool marked;     /* of a batch: its mark stands in the unit */
    bool good;       /* of a batch: it may be committed with the others */
    bool delay_set;
    int64_t retry_delay_ms;
    int64_t deadline_us; /* monotonic, of processing_timeout_ms; 0 = none */
    pr__lease lease;     /* of the leased inbox, while it is held */

    /* What became of it, for the endpoint. The first that is set decides. */
    bool committed;             /* with its mark, where there is an inbox */
    atomic_bool cancelled_told; /* pr_scope_cancelled answered true */
    pr__inbox_entry entry;      /* of the inbox, when it is not to run, or not any more; 0 = none */
    pr_error trouble; /* status OK = none; else the database, or memory, could not do it */

    char traceparent[PR__TRACE_PARENT]; /* of this handling; "" = the message's */
    char reason[PR_REASON_SIZE];        /* why it failed; "" = the handler did not say */
};

void *pr__scope_free(pr_scope *scope);

/* Decode by contract. False: *scope says why (reason, or trouble when memory ran out). */
bool pr__scope_decode(pr_scope *scope);

/* The same before its time, when nobody stands between who sees it: what cannot be decoded is told
   in its time. */
bool pr__scope_decode_early(pr_scope *scope);

/* What messages enqueued by the handler inherit from the one in hand. */
pr_status pr__scope_inherit(pr_scope *scope, pr_error *err);

/* Keep what hindered the handling, unless something did before. */
pr_handled pr__scope_trouble(pr_scope *scope, const pr_error *err);
void pr__scope_set_reason(pr_scope *scope, const char *reason);

#endif
