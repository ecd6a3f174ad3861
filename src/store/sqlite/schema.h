/*
 * The schema that stands: its version, and whether it is the one that this library was written for.
 */
#ifndef PR_STORE_SQLITE_SCHEMA_H
#define PR_STORE_SQLITE_SCHEMA_H

#include <stdint.h>

#include "store/sqlite/store.h"

/* 0 = there is none. */
pr_status pr__sqlite_schema_version(pr__sqlite_conn *conn, uint32_t *ret_version, pr_error *err);
/* Limits are bytes of UTF-8, and texts are read as they lie: SCHEMA when the file is in UTF-16. */
pr_status pr__sqlite_schema_encoding(pr__sqlite_store *store, pr_error *err);
/* The error of a schema that is newer than this library. */
pr_status pr__sqlite_schema_newer(const pr__sqlite_store *store, uint32_t version, pr_error *err);

#endif
