/*
 * The schema that stands: its version, and whether it is the one that this library was written for.
 */
#ifndef PR_STORE_POSTGRES_SCHEMA_H
#define PR_STORE_POSTGRES_SCHEMA_H

#include <stdint.h>

#include "store/postgres/store.h"

/* Is it a store of this adapter? */
bool pr__pg_is_postgres(const pr_store *store);
/* 0 = there is none. */
pr_status pr__pg_schema_version(pr__pg_conn *conn, uint32_t *ret_version, pr_error *err);
/* The error of a schema that is newer than this library. */
pr_status pr__pg_schema_newer(const pr__pg_store *store, uint32_t version, pr_error *err);
/* The parts of the check, for the doctor too: version; tables, columns, keys and the rest; with
   the settings loaded, the relay's rows, what computes the lane, the sequence. */
pr_status pr__pg_check_version(pr__pg_store *store, pr_error *err);
pr_status pr__pg_check_objects(pr__pg_store *store, pr_error *err);
pr_status pr__pg_check_journal(pr__pg_store *store, pr_error *err);
pr_status pr__pg_check_lane(pr__pg_store *store, pr_error *err);
pr_status pr__pg_check_sequence(pr__pg_store *store, pr_error *err);

#endif
