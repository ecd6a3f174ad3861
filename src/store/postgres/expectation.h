/*
 * What the migrations make, read out of their text, so that it is not written down a second time:
 * columns, keys, indexes, views, functions, and the expression of the lane.
 */
#ifndef PR_STORE_POSTGRES_EXPECTATION_H
#define PR_STORE_POSTGRES_EXPECTATION_H

#include "store/postgres/connection.h"
#include "store/postgres/params.h"

/* Arrays of texts, as parameters of the queries that look for what differs. */
typedef struct pr__pg_expectation {
    const pr__pg_conn *conn;
    /* Of columns. source: "a" and "d" for an identity (always, by default), "s" for a generated
       one, "v" for one with a default, else "". */
    pr__pg_array tables, columns, types, not_null, sources;
    pr__pg_array key_tables, key_kinds, key_columns; /* kind "p" or "u"; columns "a, b" */
    pr__pg_array object_kinds, object_names;
} pr__pg_expectation;

void pr__pg_expectation_read(pr__pg_expectation *expectation, const pr__pg_conn *conn);
void pr__pg_expectation_done(pr__pg_expectation *expectation);
#define AUTO_EXPECTATION __attribute__((cleanup(pr__pg_expectation_done))) pr__pg_expectation

/* The expression of the column lane, with {mask}; the caller's: pr__free. NULL when out of memory.
 */
char *pr__pg_expectation_lane(void);
/* A table's name with the prefix. */
void pr__pg_expectation_table(const pr__pg_conn *conn, const char *name, char *out, size_t size);

#endif
