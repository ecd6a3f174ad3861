/*
 * Building parameters.
 *
 * Invariant: every value goes over in its binary form with its type and length, so that no NUL
 * cuts it, no locale or time zone reads it, and no type is guessed. Errors stick and are looked at
 * once, before the statement is sent.
 */
#include "store/postgres/params.h"

#include <limits.h>
#include <string.h>

#include "base/text.h"
#include "base/uuid.h"

#define ARENA_CHUNK  2048
#define ARRAY_HEADER 20 /* dimensions, nulls, type, size, lower bound */

static void put32(char *out, uint32_t value)
{
    for (int i = 0; i < 4; i++)
        out[i] = (char)(unsigned char)(value >> (24 - 8 * i));
}

static void put64(char *out, uint64_t value)
{
    put32(out, (uint32_t)(value >> 32));
    put32(out + 4, (uint32_t)value);
}

void pr__pg_params_done(pr__pg_params *params)
{
    pr__arena_free(params->arena);
    params->arena = NULL;
}

static void add(pr__pg_params *params, Oid type, const void *data, size_t size)
{
    if (params->count >= PR__PG_PARAMS_MAX || size > INT_MAX) {
        params->failed = true;
        return;
    }
    int i = params->count++;
    params->types[i] = type;
    params->values[i] = data;
    params->lengths[i] = (int)size;
    params->formats[i] = 1;
}

/* Room for a value that is made here. */
static char *room(pr__pg_params *params, size_t size)
{
    if (!params->arena)
        params->arena = pr__arena_new(ARENA_CHUNK);
    char *data = params->arena ? pr__arena_alloc(params->arena, size) : NULL;
    if (!data)
        params->failed = true;
    return data;
}

static void add64(pr__pg_params *params, Oid type, uint64_t value)
{
    char *data = room(params, 8);
    if (!data)
        return;
    put64(data, value);
    add(params, type, data, 8);
}

void pr__pg_add_int(pr__pg_params *params, int64_t value)
{
    add64(params, PR__PG_INT8, (uint64_t)value);
}

void pr__pg_add_xid(pr__pg_params *params, uint64_t xid)
{
    add64(params, PR__PG_XID8, xid);
}

void pr__pg_add_bool(pr__pg_params *params, bool value)
{
    add(params, PR__PG_BOOL, value ? "\1" : "\0", 1);
}

void pr__pg_add_text(pr__pg_params *params, const char *text)
{
    add(params, PR__PG_TEXT, text, text ? strlen(text) : 0);
}

void pr__pg_add_bytes(pr__pg_params *params, const void *data, size_t size)
{
    add(params, PR__PG_BYTEA, data, data ? size : 0);
}

void pr__pg_add_uuid(pr__pg_params *params, const char *text)
{
    char *data = room(params, 16);
    if (!data)
        return;
    bool given = !pr__text_empty(text) && pr__uuid_parse(text, (uint8_t *)data);
    add(params, PR__PG_UUID, given ? data : NULL, given ? 16 : 0);
}

void pr__pg_add_instant(pr__pg_params *params, int64_t instant_us)
{
    if (instant_us == 0)
        add(params, PR__PG_TIMESTAMPTZ, NULL, 0);
    else
        add64(params, PR__PG_TIMESTAMPTZ, (uint64_t)(instant_us - PR__PG_EPOCH_US));
}

void pr__pg_add_moment(pr__pg_params *params, int64_t instant_us)
{
    add64(params, PR__PG_TIMESTAMPTZ, (uint64_t)(instant_us - PR__PG_EPOCH_US));
}

void pr__pg_array_init(pr__pg_array *array, Oid element)
{
    static const char header[ARRAY_HEADER] = {0};
    *array = (pr__pg_array){.buffer = PR_BUFFER_INIT, .element = element};
    pr__buffer_append(&array->buffer, header, sizeof header);
}

void pr__pg_array_done(pr__pg_array *array)
{
    pr__buffer_done(&array->buffer);
}

static void append(pr__pg_array *array, const void *data, size_t size)
{
    char length[4];
    if (size > INT_MAX) {
        array->buffer.failed = true;
        return;
    }
    put32(length, (uint32_t)size);
    pr__buffer_append(&array->buffer, length, sizeof length);
    pr__buffer_append(&array->buffer, data, size);
    array->count++;
}

void pr__pg_array_null(pr__pg_array *array)
{
    pr__buffer_append(&array->buffer, "\xff\xff\xff\xff", 4);
    array->count++;
    array->nulls = true;
}

void pr__pg_array_int(pr__pg_array *array, int64_t value)
{
    char data[8];
    put64(data, (uint64_t)value);
    append(array, data, sizeof data);
}

void pr__pg_array_bool(pr__pg_array *array, bool value)
{
    append(array, value ? "\1" : "\0", 1);
}

void pr__pg_array_text(pr__pg_array *array, const char *text)
{
    if (text)
        append(array, text, strlen(text));
    else
        pr__pg_array_null(array);
}

void pr__pg_array_bytes(pr__pg_array *array, const void *data, size_t size)
{
    if (data || size == 0)
        append(array, data ? data : "", size);
    else
        pr__pg_array_null(array);
}

void pr__pg_array_uuid(pr__pg_array *array, const char *text)
{
    uint8_t bytes[16];
    if (!pr__text_empty(text) && pr__uuid_parse(text, bytes))
        append(array, bytes, sizeof bytes);
    else
        pr__pg_array_null(array);
}

void pr__pg_array_instant(pr__pg_array *array, int64_t instant_us)
{
    if (instant_us == 0)
        pr__pg_array_null(array);
    else
        pr__pg_array_int(array, instant_us - PR__PG_EPOCH_US);
}

static Oid array_type(Oid element)
{
    switch (element) {
    case PR__PG_BOOL:
        return 1000;
    case PR__PG_BYTEA:
        return 1001;
    case PR__PG_TEXT:
        return 1009;
    case PR__PG_TIMESTAMPTZ:
        return 1185;
    case PR__PG_UUID:
        return 2951;
    case PR__PG_XID8:
        return 271;
    default:
        return 1016; /* bigint[] */
    }
}

void pr__pg_add_array(pr__pg_params *params, pr__pg_array *array)
{
    if (array->buffer.failed) {
        params->failed = true;
        return;
    }
    char *data = array->buffer.data;
    bool empty = array->count == 0;
    put32(data, empty ? 0 : 1);
    put32(data + 4, array->nulls ? 1 : 0);
    put32(data + 8, (uint32_t)array->element);
    put32(data + 12, array->count);
    put32(data + 16, 1);
    add(params, array_type(array->element), data, empty ? 12 : array->buffer.size);
}
