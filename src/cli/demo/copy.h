/*
 * What counts of the demo's two databases, read into a scratch database in memory.
 */
#ifndef PR_CLI_DEMO_COPY_H
#define PR_CLI_DEMO_COPY_H

#include "cli/demo/sql.h"

/* *ret_db is the caller's: sqlite3_close(); the shop's tables are main, billing's are billing. */
pr_status pr__demo_copy(const char *orders_store, const char *billing_store,
                        struct sqlite3 **ret_db, pr_error *err);

#endif
