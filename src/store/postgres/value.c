/*
 * Reading values of binary results: big-endian, with lengths, of known types.
 *
 * Invariant: a length is looked at before the bytes are.
 */
#include "store/postgres/value.h"

#include <string.h>

#include "store/postgres/params.h"

#define ARRAY_HEADER 20

static uint32_t get32(const char *data)
{
    const unsigned char *bytes = (const unsigned char *)data;
    return (uint32_t)bytes[0] << 24 | (uint32_t)bytes[1] << 16 | (uint32_t)bytes[2] << 8 | bytes[3];
}

static uint64_t get64(const char *data)
{
    return (uint64_t)get32(data) << 32 | get32(data + 4);
}

int64_t pr__pg_value_int(const PGresult *result, int row, int column)
{
    const char *data = PQgetvalue(result, row, column);
    if (PQgetisnull(result, row, column))
        return 0;
    switch (PQgetlength(result, row, column)) {
    case 1:
        return (unsigned char)data[0];
    case 2:
        return (int16_t)((unsigned char)data[0] << 8 | (unsigned char)data[1]);
    case 4:
        return (int32_t)get32(data);
    case 8:
        return (int64_t)get64(data);
    default:
        return 0;
    }
}

int64_t pr__pg_value_instant(const PGresult *result, int row, int column)
{
    if (PQgetisnull(result, row, column))
        return 0;
    return pr__pg_value_int(result, row, column) + PR__PG_EPOCH_US;
}

void pr__pg_value_uuid(const PGresult *result, int row, int column, char out[PR_UUID_TEXT_SIZE])
{
    out[0] = '\0';
    if (PQgetlength(result, row, column) == 16)
        pr__uuid_text((const uint8_t *)PQgetvalue(result, row, column), out);
}

const char *pr__pg_value_text(const PGresult *result, int row, int column)
{
    return PQgetisnull(result, row, column) ? NULL : PQgetvalue(result, row, column);
}

const char *pr__pg_value_copy(const PGresult *result, int row, int column, pr__arena *arena,
                              bool *ret_failed)
{
    if (PQgetisnull(result, row, column))
        return NULL;
    const char *copy = pr__arena_strdup(arena, PQgetvalue(result, row, column));
    if (!copy)
        *ret_failed = true;
    return copy;
}

bool pr__pg_value_ints(const PGresult *result, int row, int column, pr__arena *arena,
                       int64_t **ret_values, uint32_t *ret_count)
{
    const char *data = PQgetvalue(result, row, column);
    size_t size = (size_t)PQgetlength(result, row, column);
    *ret_values = NULL;
    *ret_count = 0;
    if (PQgetisnull(result, row, column) || (size >= 4 && get32(data) == 0))
        return true;
    if (size < ARRAY_HEADER || get32(data) != 1)
        return false;
    uint32_t count = get32(data + 12);
    if (size != ARRAY_HEADER + (size_t)count * 12)
        return false;
    int64_t *values = pr__arena_alloc(arena, count * sizeof *values);
    if (!values)
        return false;
    for (uint32_t i = 0; i < count; i++)
        values[i] = (int64_t)get64(data + ARRAY_HEADER + (size_t)i * 12 + 4);
    *ret_values = values;
    *ret_count = count;
    return true;
}

bool pr__pg_value_snapshot(const PGresult *result, int row, int column, pr__arena *arena,
                           pr__pg_snapshot *ret_snapshot)
{
    const char *data = PQgetvalue(result, row, column);
    size_t size = (size_t)PQgetlength(result, row, column);
    if (size < 20)
        return false;
    uint32_t count = get32(data);
    if (size != 20 + (size_t)count * 8)
        return false;
    *ret_snapshot = (pr__pg_snapshot){.xmin = get64(data + 4), .xmax = get64(data + 12)};
    ret_snapshot->xip = pr__arena_alloc(arena, (count + 1) * sizeof *ret_snapshot->xip);
    if (!ret_snapshot->xip)
        return false;
    for (uint32_t i = 0; i < count; i++)
        ret_snapshot->xip[i] = (int64_t)get64(data + 20 + (size_t)i * 8);
    ret_snapshot->xip_count = count;
    return true;
}
