/*
 * Parked rows of a reader: what settle.c needs of them.
 */
#ifndef PR_STORE_POSTGRES_PARKED_H
#define PR_STORE_POSTGRES_PARKED_H

#include "store/postgres/store.h"

pr_status pr__pg_settle_parked(pr__pg_store *store, pr__batch *batch, pr__settle_report *report,
                               pr_error *err);
pr_status pr__pg_renew_parked(pr__pg_store *store, pr__batch *batch, int64_t lease_ms,
                              pr_error *err);

#endif
