/*
 * Readers of the log: who they are, what they take, in which order policy.
 */
#ifndef PR_STORE_SQLITE_READER_H
#define PR_STORE_SQLITE_READER_H

#include "store/sqlite/store.h"

/* The reader's order policy; its filter is kept in store->filter. NOT_FOUND: it is gone, or a
   temporary one has expired. Inside a transaction, so that a dropped reader claims nothing. */
pr_status pr__sqlite_reader_load(pr__sqlite_store *store, int64_t reader, pr_order *ret_order,
                                 pr_error *err);

/* Has the reader a journal row in each lane? A lane without one is never claimed, and its messages
   would pass for published. Errors: SCHEMA. */
pr_status pr__sqlite_reader_whole(pr__sqlite_store *store, int64_t reader, pr_error *err);

#endif
