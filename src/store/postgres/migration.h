/*
 * The numbered migrations, embedded from sql/postgres at build, and their text made ready to run.
 */
#ifndef PR_STORE_POSTGRES_MIGRATION_H
#define PR_STORE_POSTGRES_MIGRATION_H

#include <stddef.h>
#include <stdint.h>

#include "port/migration.h"
#include "store/postgres/connection.h"

/* In order of version, 1, 2, 3, … without a gap. */
extern const pr__migration pr__postgres_migrations[];
extern const size_t pr__postgres_migration_count;

/* The text of a migration, {p}, {s}, {n} and {r} included; the caller's: pr__free. NULL when out of
   memory. */
char *pr__pg_migration_render(const char *sql, const pr__pg_conn *conn,
                              const pr__migration_values *values);
/* The length of the first statement of sql, with its comments and its semicolon; 0 at the end. */
size_t pr__pg_migration_statement(const char *sql);

#endif
