/*
 * Readers of the log: who they are, what they take, in which order policy.
 */
#ifndef PR_STORE_POSTGRES_READER_H
#define PR_STORE_POSTGRES_READER_H

#include "store/postgres/store.h"

/* Load its filter into store->filter unless it is there. */
pr_status pr__pg_reader_filter(pr__pg_store *store, int64_t reader, pr_error *err);
/* The reader's order policy, its filter loaded. NOT_FOUND: it is gone. */
pr_status pr__pg_reader_load(pr__pg_store *store, int64_t reader, pr_order *ret_order,
                             pr_error *err);

#endif
