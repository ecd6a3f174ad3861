/*
 * Migrations, as far as no database is needed for them: their text made ready to run, and which
 * options a store takes.
 */
#ifndef PR_PORT_MIGRATION_H
#define PR_PORT_MIGRATION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <postroom/store.h>

#include "base/buffer.h"

/* A numbered file of sql/, embedded at build. */
typedef struct pr__migration {
    uint32_t version;
    const char *name;
    const char *sql; /* with {lanes}, {mask}, {default_transport}, {order}, and the store's own */
} pr__migration;

/* What the placeholders of every store stand for. */
typedef struct pr__migration_values {
    const char *default_transport;
    const char *order;
    uint32_t lanes;
} pr__migration_values;

/* Append the value of a placeholder of the store's own; false: it is none. */
typedef bool (*pr__migration_own)(const void *user, const char *name, size_t size,
                                  pr__buffer *text);

/* By the options, which may be NULL. */
pr__migration_values pr__migration_values_of(const pr_migrate_options *opt);
/* The text of a migration; the caller's: pr__free. NULL when out of memory. */
char *pr__migration_render(const char *sql, const pr__migration_values *values,
                           pr__migration_own own, const void *user);
/* What the options change in a store that stands: statements, "" when nothing; the caller's:
   pr__free. qualifier stands before the name of a table. NULL when out of memory. */
char *pr__migration_changes(const pr_migrate_options *opt, const char *qualifier);

/* INVALID: the default transport of the options is none. */
pr_status pr__migration_check(const pr_migrate_options *opt, const char *origin, pr_error *err);
/* INVALID: the options ask for other lanes than the store has. */
pr_status pr__migration_check_lanes(const pr_migrate_options *opt, uint32_t lanes,
                                    const char *origin, pr_error *err);

#endif
