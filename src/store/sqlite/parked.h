/*
 * Parked rows of a reader: what settle.c and parked.c share.
 */
#ifndef PR_STORE_SQLITE_PARKED_H
#define PR_STORE_SQLITE_PARKED_H

#include "store/sqlite/store.h"

/* How an item that is not passed on stands parked. */
typedef struct pr__park {
    const char *state;
    int64_t attempts;
    bool deferred;
    bool failed; /* it counts as the first failure when there was none */
    int64_t next_attempt_at;
    const char *error;
} pr__park;

/* Count one item that was settled. */
void pr__settle_report_count(pr__settle_report *report, pr__result result);

pr__park pr__park_of(const pr__item *item, int64_t now);

pr_status pr__sqlite_settle_parked(pr__sqlite_store *store, pr__batch *batch,
                                   pr__settle_report *report, pr_error *err);
pr_status pr__sqlite_renew_parked(pr__sqlite_store *store, pr__batch *batch, int64_t lease_ms,
                                  pr_error *err);

#endif
