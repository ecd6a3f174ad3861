/*
 * What has become of a transaction whose COMMIT was not answered.
 */
#ifndef PR_STORE_POSTGRES_OUTCOME_H
#define PR_STORE_POSTGRES_OUTCOME_H

#include <stdbool.h>
#include <stdint.h>

#include "base/uuid.h"
#include "port/store.h"
#include "store/postgres/store.h"

/* What tells our transaction from another one with the same id. */
typedef struct pr__pg_trace {
    int64_t xid;           /* 0: it has written nothing */
    int64_t started_at_us; /* of the server */
    int64_t lane, log_id;  /* a row of ours in the log, which nobody changes; log_id 0 = none */
    char message_id[PR_UUID_TEXT_SIZE];
    const pr__inbox_key *mark; /* a mark of ours, which is better; NULL = none */
    int64_t marked_at_us;
} pr__pg_trace;

/* found: how the answer was lost. Ask on another connection until it is known, at most for a
   timeout: OK when it was committed, else found, and what to do about it. */
pr_status pr__pg_resolve(pr__pg_store *store, const pr__pg_trace *own, const pr_error *found,
                         pr_outcome *ret_outcome, pr_error *err);

/* Was the mark committed? */
pr_status pr__pg_mark_stands(pr__pg_conn *conn, const pr__pg_trace *own, bool *ret_stands,
                             pr_error *err);

#endif
