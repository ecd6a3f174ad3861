/*
 * The numbered migrations, embedded from sql/sqlite at build, and their text made ready to run.
 */
#ifndef PR_STORE_SQLITE_MIGRATION_H
#define PR_STORE_SQLITE_MIGRATION_H

#include <stddef.h>
#include <stdint.h>

#include <sqlite3.h>

#include "port/migration.h"

/* In order of version, 1, 2, 3, … without a gap. */
extern const pr__migration pr__sqlite_migrations[];
extern const size_t pr__sqlite_migration_count;

/* The text of a migration, {p} included; the caller's: pr__free. NULL when out of memory. */
char *pr__sqlite_migration_render(const char *sql, const char *prefix,
                                  const pr__migration_values *values);
/* The length of the first statement of sql, with its comments and its semicolon; 0 at the end. */
size_t pr__sqlite_migration_statement(const char *sql);
/* Run all migrations on an empty database in memory: what a store is compared with. */
pr_status pr__sqlite_migration_model(sqlite3 *db, const char *prefix,
                                     const pr__migration_values *values, pr_error *err);

#endif
