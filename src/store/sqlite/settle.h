/*
 * Settling slices: commits whose outcome matters, and giving slices back.
 */
#ifndef PR_STORE_SQLITE_SETTLE_H
#define PR_STORE_SQLITE_SETTLE_H

#include "store/sqlite/claim.h"

/* Commit what the claimer wrote. When the outcome is not known it is looked up by the token of a
   row that was written: found means committed, and the store goes on with a new connection. */
pr_status pr__sqlite_claim_commit(pr__sqlite_store *store, pr__claimer *claimer, pr_error *err);

/* Give the slices of a batch back, nothing sent, as well as can be: the lease ends at any rate. */
void pr__sqlite_give_back(pr__sqlite_store *store, pr__batch *batch);

#endif
