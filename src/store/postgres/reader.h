/*
 * Readers of the log: who they are, what they take, in which order policy.
 */
#ifndef PR_STORE_POSTGRES_READER_H
#define PR_STORE_POSTGRES_READER_H

#include "store/postgres/store.h"

/* "hold", "skip", "halt"; anything else is HOLD. */
/* The error of a reader that was dropped, or has expired. */
pr_status pr__pg_reader_gone(int64_t reader, pr_error *err);
/* Load its filter into store->filter unless it is there. */
pr_status pr__pg_reader_filter(pr__pg_store *store, int64_t reader, pr_error *err);
/* The reader's order policy, its filter loaded. NOT_FOUND: it is gone. */
pr_status pr__pg_reader_load(pr__pg_store *store, int64_t reader, pr_order *ret_order,
                             pr_error *err);
/* Is a row of the log meant for the reader that was loaded last? destination may be NULL. */
bool pr__pg_reader_takes(const pr__pg_store *store, const char *destination, const char *type);

#endif
