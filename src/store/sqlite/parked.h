/*
 * Parked rows of a reader: what settle.c and parked.c share.
 */
#ifndef PR_STORE_SQLITE_PARKED_H
#define PR_STORE_SQLITE_PARKED_H

#include "port/park.h"
#include "store/sqlite/store.h"

pr_status pr__sqlite_settle_parked(pr__sqlite_store *store, pr__batch *batch,
                                   pr__settle_report *report, pr_error *err);
pr_status pr__sqlite_renew_parked(pr__sqlite_store *store, pr__batch *batch, int64_t lease_ms,
                                  pr_error *err);

#endif
