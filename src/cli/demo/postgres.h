/*
 * Plain libpq for the demo: what sql.c does on PostgreSQL.
 */
#ifndef PR_CLI_DEMO_POSTGRES_H
#define PR_CLI_DEMO_POSTGRES_H

#include "cli/demo/sql.h"

pr_status pr__demo_postgres_open(const char *conninfo, struct pg_conn **ret_db, pr_error *err);
void pr__demo_postgres_close(struct pg_conn *db); /* accepts NULL */
pr_status pr__demo_postgres_exec(struct pg_conn *db, const char *sql, pr_error *err);
pr_status pr__demo_postgres_query(struct pg_conn *db, const char *sql, const char *const *params,
                                  size_t param_count, pr__demo_row row, void *user, pr_error *err);
pr_status pr__demo_postgres_lock(struct pg_conn *db, bool *ret_locked, pr_error *err);
pr_status pr__demo_postgres_bury(struct pg_conn *db, pr_error *err);

#endif
