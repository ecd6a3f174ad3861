/*
 * Parameters of statements, in PostgreSQL's binary formats, with explicit types and lengths.
 */
#ifndef PR_STORE_POSTGRES_PARAMS_H
#define PR_STORE_POSTGRES_PARAMS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <libpq-fe.h>

#include "base/buffer.h"
#include "base/memory.h"

#define PR__PG_PARAMS_MAX 40

/* Types of pg_type; they are the same in every database. */
#define PR__PG_BOOL        16
#define PR__PG_BYTEA       17
#define PR__PG_INT8        20
#define PR__PG_TEXT        25
#define PR__PG_TIMESTAMPTZ 1184
#define PR__PG_UUID        2950
#define PR__PG_XID8        5069

#define PR__PG_EPOCH_US    946684800000000LL /* 2000-01-01, where timestamptz begins */

typedef struct pr__pg_params {
    pr__arena *arena; /* NULL until something is added */
    int count;
    bool failed; /* out of memory, or too many */
    Oid types[PR__PG_PARAMS_MAX];
    const char *values[PR__PG_PARAMS_MAX];
    int lengths[PR__PG_PARAMS_MAX];
    int formats[PR__PG_PARAMS_MAX];
} pr__pg_params;

/* As {.count = 0}, for less: the columns of what is not there are left alone. */
static inline void pr__pg_params_init(pr__pg_params *params)
{
    params->arena = NULL;
    params->count = 0;
    params->failed = false;
}
void pr__pg_params_done(pr__pg_params *params);
#define AUTO_PARAMS __attribute__((cleanup(pr__pg_params_done))) pr__pg_params

/* Text and bytes are borrowed until the statement has run; the rest is copied. */
void pr__pg_add_int(pr__pg_params *params, int64_t value);
void pr__pg_add_bool(pr__pg_params *params, bool value);
void pr__pg_add_text(pr__pg_params *params, const char *text);               /* NULL = null */
void pr__pg_add_bytes(pr__pg_params *params, const void *data, size_t size); /* NULL = null */
void pr__pg_add_uuid(pr__pg_params *params, const char *text);      /* NULL, "" or none = null */
void pr__pg_add_instant(pr__pg_params *params, int64_t instant_us); /* 0 = null */
void pr__pg_add_moment(pr__pg_params *params, int64_t instant_us);  /* never null */
void pr__pg_add_xid(pr__pg_params *params, uint64_t xid);

/* An array, element by element. */
typedef struct pr__pg_array {
    pr__buffer buffer;
    Oid element;
    uint32_t count;
    bool nulls;
} pr__pg_array;

void pr__pg_array_init(pr__pg_array *array, Oid element);
void pr__pg_array_done(pr__pg_array *array);
void pr__pg_array_int(pr__pg_array *array, int64_t value); /* of INT8, XID8 */
void pr__pg_array_bool(pr__pg_array *array, bool value);
void pr__pg_array_text(pr__pg_array *array, const char *text);
void pr__pg_array_bytes(pr__pg_array *array, const void *data, size_t size);
void pr__pg_array_uuid(pr__pg_array *array, const char *text);
void pr__pg_array_instant(pr__pg_array *array, int64_t instant_us);
void pr__pg_array_null(pr__pg_array *array);
/* Add it as the next parameter; the array is borrowed until the statement has run. */
void pr__pg_add_array(pr__pg_params *params, pr__pg_array *array);

#endif
