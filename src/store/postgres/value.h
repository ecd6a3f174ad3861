/*
 * Reading values of binary results.
 */
#ifndef PR_STORE_POSTGRES_VALUE_H
#define PR_STORE_POSTGRES_VALUE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <libpq-fe.h>

#include "base/memory.h"
#include "base/uuid.h"

/* An integer of any width, or a boolean; 0 for null. */
int64_t pr__pg_value_int(const PGresult *result, int row, int column);
/* A timestamptz as microseconds since 1970; 0 for null. */
int64_t pr__pg_value_instant(const PGresult *result, int row, int column);
/* A uuid as text; "" for null. */
void pr__pg_value_uuid(const PGresult *result, int row, int column, char out[PR_UUID_TEXT_SIZE]);
/* Text that ends with a NUL, valid as long as the result; NULL for null. */
const char *pr__pg_value_text(const PGresult *result, int row, int column);
/* A copy; NULL for null. *ret_failed is set when out of memory, never cleared. */
const char *pr__pg_value_copy(const PGresult *result, int row, int column, pr__arena *arena,
                              bool *ret_failed);

/* Elements of a bigint[] or xid8[] without nulls, copied; *ret_count 0 for null. false: out of
   memory, or no such array. */
bool pr__pg_value_ints(const PGresult *result, int row, int column, pr__arena *arena,
                       int64_t **ret_values, uint32_t *ret_count);

/* A pg_snapshot: xmin, xmax and the transactions in progress between them. */
typedef struct pr__pg_snapshot {
    uint64_t xmin, xmax;
    int64_t *xip;
    uint32_t xip_count;
} pr__pg_snapshot;

bool pr__pg_value_snapshot(const PGresult *result, int row, int column, pr__arena *arena,
                           pr__pg_snapshot *ret_snapshot);

#endif
