/*
 * Reading and writing rows of the claim journal.
 *
 * Invariants: nothing here updates or deletes a row; a row is inserted at the place behind the one
 * that was read, and ON CONFLICT DO NOTHING makes that insert the lock and the fence; our own
 * transaction id is taken as the first thing of the statement that writes, after the snapshot that
 * chose; rows go in by ascending lane, so that two writers of several lanes never deadlock.
 */
#include "store/postgres/journal.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/text.h"

#define ORIGIN        "postgres.journal"
#define LIST_CAPACITY 16
#define DELAY_MAX_US                                                                               \
    (INT64_C(366) * 24 * 3600 * 1000000 * 100) /* a century: no overflow beyond
it */

pr_status pr__pg_list_add(pr__pg_list *list, pr__arena *arena, int64_t item, pr_error *err)
{
    if (list->count == list->capacity) {
        uint32_t wanted = list->capacity ? list->capacity * 2 : LIST_CAPACITY;
        int64_t *larger = pr__arena_alloc(arena, wanted * sizeof *larger);
        if (!larger)
            return pr__fail_nomem(err, ORIGIN);
        if (list->count > 0)
            memcpy(larger, list->items, list->count * sizeof *larger);
        list->items = larger;
        list->capacity = wanted;
    }
    list->items[list->count++] = item;
    return PR_OK;
}

static int compare_items(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a;
    int64_t y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

void pr__pg_list_sort(pr__pg_list *list)
{
    if (list->count < 2)
        return;
    qsort(list->items, list->count, sizeof *list->items, compare_items);
    uint32_t kept = 1;
    for (uint32_t i = 1; i < list->count; i++)
        if (list->items[i] != list->items[kept - 1])
            list->items[kept++] = list->items[i];
    list->count = kept;
}

/* The list is sorted. */
static bool list_has(const pr__pg_list *list, int64_t item)
{
    return list->count > 0 &&
           bsearch(&item, list->items, list->count, sizeof *list->items, compare_items) != NULL;
}

pr_status pr__pg_list_subtract(const pr__pg_list *list, const pr__pg_list *without,
                               pr__arena *arena, pr__pg_list *ret_list, pr_error *err)
{
    *ret_list = (pr__pg_list){0};
    for (uint32_t i = 0; i < list->count; i++)
        if (!list_has(without, list->items[i]))
            TRY(pr__pg_list_add(ret_list, arena, list->items[i], err));
    return PR_OK;
}

pr_status pr__pg_suspect_set(pr__pg_list *suspects, pr__arena *arena, int64_t id, uint32_t count,
                             pr_error *err)
{
    for (uint32_t i = 0; i + 1 < suspects->count; i += 2) {
        if (suspects->items[i] == id) {
            suspects->items[i + 1] = count;
            return PR_OK;
        }
    }
    if (count == 0)
        return PR_OK;
    TRY(pr__pg_list_add(suspects, arena, id, err));
    return pr__pg_list_add(suspects, arena, count, err);
}

uint32_t pr__pg_suspect_get(const pr__pg_list *suspects, int64_t id)
{
    for (uint32_t i = 0; i + 1 < suspects->count; i += 2)
        if (suspects->items[i] == id)
            return (uint32_t)suspects->items[i + 1];
    return 0;
}

static const char SQL_HEADS[] =
    "SELECT c.lane, c.seq, c.pos, c.drain_pos, c.rebase_id, c.acked, c.passed, c.system_id, "
    "c.lease_until, c.attempt, c.token, c.owner, CASE WHEN $3 OR coalesce(c.lease_until, "
    "'-infinity') <= clock_timestamp() THEN c.ids END, c.rest, c.suspects, c.pend, c.drain, "
    "clock_timestamp(), coalesce((SELECT s.order_policy FROM {p}subscription AS s WHERE s.reader = "
    "$1 AND (s.expires_at IS NULL OR s.expires_at > clock_timestamp())), '') FROM "
    "generate_series(0, $2 - 1) AS l(lane) CROSS JOIN LATERAL (SELECT * FROM {p}outbox_claim AS j "
    "WHERE j.reader = $1 AND j.lane = l.lane ORDER BY j.seq DESC LIMIT 1) AS c";

static pr_status read_list(const PGresult *result, int row, int column, pr__arena *arena,
                           pr__pg_list *list, pr_error *err)
{
    *list = (pr__pg_list){0};
    if (!pr__pg_value_ints(result, row, column, arena, &list->items, &list->count))
        return pr__fail_nomem(err, ORIGIN);
    list->capacity = list->count;
    return PR_OK;
}

static pr_status read_head(const PGresult *result, int row, pr__arena *arena, pr__pg_journal *head,
                           pr_error *err)
{
    int at = 1;
    head->stands = true;
    head->seq = pr__pg_value_int(result, row, at++);
    head->pos = pr__pg_value_int(result, row, at++);
    head->drain_pos = pr__pg_value_int(result, row, at++);
    head->rebase_id = pr__pg_value_int(result, row, at++);
    head->acked = pr__pg_value_int(result, row, at++);
    head->passed = pr__pg_value_int(result, row, at++);
    head->system_id = pr__pg_value_int(result, row, at++);
    head->lease_until_us = pr__pg_value_instant(result, row, at++);
    head->attempt = (uint32_t)pr__pg_value_int(result, row, at++);
    pr__pg_value_uuid(result, row, at++, head->token);
    pr__format(head->owner, sizeof head->owner, "%s", pr__pg_value_text(result, row, at++));
    head->hidden = PQgetisnull(result, row, at);
    TRY(read_list(result, row, at++, arena, &head->ids, err));
    TRY(read_list(result, row, at++, arena, &head->rest, err));
    TRY(read_list(result, row, at++, arena, &head->suspects, err));
    TRY(read_list(result, row, at++, arena, &head->pend, err));
    TRY(read_list(result, row, at, arena, &head->drain, err));
    pr__pg_list_sort(&head->pend); /* a transaction that stands twice would give its rows twice */
    pr__pg_list_sort(&head->drain);
    head->open = head->hidden || head->ids.count > 0;
    return PR_OK;
}

pr_status pr__pg_journal_heads(pr__pg_conn *conn, bool begins, int64_t reader, uint32_t lanes,
                               bool whole, pr__arena *arena, pr__pg_journal *ret_rows,
                               int64_t *ret_now_us, char ret_order[8], pr_error *err)
{
    AUTO_PARAMS params = {.count = 0};
    AUTO_RESULT result = NULL;
    pr__pg_add_int(&params, reader);
    pr__pg_add_int(&params, lanes);
    pr__pg_add_bool(&params, whole);
    TRY(begins ? pr__pg_begin_claim_with(conn, SQL_HEADS, &params, &result, err)
               : pr__pg_exec(conn, SQL_HEADS, &params, &result, err));
    memset(ret_rows, 0, lanes * sizeof *ret_rows);
    ret_order[0] = '\0';
    for (int row = 0; row < PQntuples(result); row++) {
        int64_t lane = pr__pg_value_int(result, row, 0);
        if (lane < 0 || lane >= lanes)
            continue;
        TRY(read_head(result, row, arena, &ret_rows[lane], err));
        *ret_now_us = pr__pg_value_instant(result, row, 17);
        pr__format(ret_order, 8, "%s", pr__pg_value_text(result, row, 18));
    }
    return PR_OK;
}

/* The parameters of a write: a column of entries each, and the lists one behind the other, with
   where each entry's part begins and ends. */
enum {
    E_LANE,
    E_SEQ,
    E_POS,
    E_DRAIN_POS,
    E_REBASE_ID,
    E_ACKED,
    E_PASSED,
    E_LEASE_MS,
    E_ATTEMPT,
    E_XMAX,
    E_TOKEN,
    E_KIND,
    E_OWNER,
    E_FROM,            /* of ids, rest, suspects, pend, drain */
    E_TO = E_FROM + 5, /* the same */
    E_LIST = E_TO + 5, /* the same */
    E_COUNT = E_LIST + 5
};

/* clang-format off */
#define UNNEST(n) "unnest($" n "), "
#define PART(n, from, to) "coalesce(($" n ")[r." from ":r." to "], '{}')"
#define WON \
    "WITH own AS MATERIALIZED (SELECT pg_current_xact_id()::text::int8 AS xid, clock_timestamp() " \
    "AS now), won AS (INSERT INTO {p}outbox_claim (reader, lane, seq, pos, drain_pos, rebase_id, " \
    "acked, passed, system_id, lease_until, at, attempt, token, kind, owner, ids, rest, " \
    "suspects, pend, drain) SELECT $1, r.lane, r.seq, r.pos, r.drain_pos, r.rebase_id, r.acked, " \
    "r.passed, $2, own.now + r.lease_ms * interval '1 millisecond', own.now, r.attempt, r.token, " \
    "r.kind, r.owner, " PART("26", "f1", "t1") ", " PART("27", "f2", "t2") ", " \
    PART("28", "f3", "t3") ", " PART("29", "f4", "t4") " || CASE WHEN r.xmax > 0 THEN " \
    "ARRAY(SELECT g::text::xid8 FROM generate_series(r.xmax, own.xid - 1) AS g) ELSE '{}' END, " \
    PART("30", "f5", "t5") " FROM own CROSS JOIN ROWS FROM (" UNNEST("3") UNNEST("4") UNNEST("5") \
    UNNEST("6") UNNEST("7") UNNEST("8") UNNEST("9") UNNEST("10") UNNEST("11") UNNEST("12") \
    UNNEST("13") UNNEST("14") UNNEST("15") UNNEST("16") UNNEST("17") UNNEST("18") UNNEST("19") \
    UNNEST("20") UNNEST("21") UNNEST("22") UNNEST("23") UNNEST("24") "unnest($25)) AS r (lane, " \
    "seq, pos, drain_pos, rebase_id, acked, passed, lease_ms, attempt, xmax, token, kind, owner, " \
    "f1, f2, f3, f4, f5, t1, t2, t3, t4, t5) ORDER BY r.lane ON CONFLICT DO NOTHING RETURNING " \
    "lane)"
#define MESSAGE(a) \
    a "message_id, " a "type, " a "type_version, " a "content_type, " a "destination, " a \
    "source, " a "key, " a "tenant, " a "correlation_id, " a "causation_id, " a "traceparent, " a \
    "tracestate, " a "headers, " a "body, " a "occurred_at, " a "expires_at"

static const char SQL_WRITE[] = WON " SELECT lane FROM won";
/* A full copy, made by the database. */
static const char SQL_WRITE_AND_PARK[] = WON
    ", parked AS (INSERT INTO {p}outbox_parked (" MESSAGE("") ", reader, log_id, lane, state, "
    "attempts, deferred, next_attempt_at, last_error, first_failed_at, parked_at) SELECT "
    MESSAGE("o.") ", $1, o.id, o.lane, k.state, k.attempts, k.deferred, own.now + k.delay_us * "
    "interval '1 microsecond', k.error, CASE WHEN k.failed THEN own.now END, own.now FROM own "
    "CROSS JOIN ROWS FROM (" UNNEST("31") UNNEST("32") UNNEST("33") UNNEST("34") UNNEST("35")
    UNNEST("36") UNNEST("37") "unnest($38)) AS k (lane, id, state, attempts, deferred, failed, "
    "delay_us, error) JOIN won ON won.lane = k.lane CROSS JOIN LATERAL (SELECT * FROM {p}outbox AS "
    "t WHERE t.lane = k.lane AND t.id = k.id LIMIT 1) AS o ON CONFLICT (reader, log_id) DO "
    "NOTHING) SELECT lane FROM won";
/* clang-format on */

static void add_list(pr__pg_array *arrays, int which, const pr__pg_list *list)
{
    pr__pg_array *flat = &arrays[E_LIST + which];
    pr__pg_array_int(&arrays[E_FROM + which], (int64_t)flat->count + 1);
    for (uint32_t i = 0; i < list->count; i++)
        pr__pg_array_int(flat, list->items[i]);
    pr__pg_array_int(&arrays[E_TO + which], flat->count);
}

/* Suspects that are in neither list are left out. */
static void add_suspects(pr__pg_array *arrays, const pr__pg_journal *row)
{
    pr__pg_array *flat = &arrays[E_LIST + 2];
    pr__pg_array_int(&arrays[E_FROM + 2], (int64_t)flat->count + 1);
    for (uint32_t i = 0; i + 1 < row->suspects.count; i += 2) {
        int64_t id = row->suspects.items[i];
        int64_t lost = row->suspects.items[i + 1];
        if (lost == 0 || (!list_has(&row->ids, id) && !list_has(&row->rest, id)))
            continue;
        pr__pg_array_int(flat, id);
        pr__pg_array_int(flat, lost);
    }
    pr__pg_array_int(&arrays[E_TO + 2], flat->count);
}

static void add_entry(pr__pg_array *arrays, const pr__pg_entry *entry)
{
    const pr__pg_journal *row = entry->row;
    pr__pg_array_int(&arrays[E_LANE], entry->lane);
    pr__pg_array_int(&arrays[E_SEQ], row->seq + 1);
    pr__pg_array_int(&arrays[E_POS], row->pos);
    pr__pg_array_int(&arrays[E_DRAIN_POS], row->drain_pos);
    pr__pg_array_int(&arrays[E_REBASE_ID], row->rebase_id);
    pr__pg_array_int(&arrays[E_ACKED], row->acked);
    pr__pg_array_int(&arrays[E_PASSED], row->passed);
    if (entry->lease_ms >= 0)
        pr__pg_array_int(&arrays[E_LEASE_MS], entry->lease_ms);
    else
        pr__pg_array_null(&arrays[E_LEASE_MS]);
    pr__pg_array_int(&arrays[E_ATTEMPT], row->attempt);
    pr__pg_array_int(&arrays[E_XMAX], (int64_t)entry->xmax);
    pr__pg_array_uuid(&arrays[E_TOKEN], row->token);
    pr__pg_array_text(&arrays[E_KIND], entry->kind);
    pr__pg_array_text(&arrays[E_OWNER], row->owner);
    add_list(arrays, 0, &row->ids);
    add_list(arrays, 1, &row->rest);
    add_suspects(arrays, row);
    add_list(arrays, 3, &row->pend);
    add_list(arrays, 4, &row->drain);
}

#define P_COUNT 8

static void add_parking(pr__pg_array *arrays, const pr__pg_parking *parking)
{
    int64_t delay_us = parking->delay_us < 0 ? 0 : parking->delay_us;
    pr__pg_array_int(&arrays[0], parking->lane);
    pr__pg_array_int(&arrays[1], parking->log_id);
    pr__pg_array_text(&arrays[2], parking->state);
    pr__pg_array_int(&arrays[3], parking->attempts);
    pr__pg_array_bool(&arrays[4], parking->deferred);
    pr__pg_array_bool(&arrays[5], parking->failed);
    pr__pg_array_int(&arrays[6], delay_us < DELAY_MAX_US ? delay_us : DELAY_MAX_US);
    pr__pg_array_text(&arrays[7], parking->error);
}

static void read_won(const PGresult *result, pr__pg_entry *entries, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        entries[i].won = false;
    for (int row = 0; row < PQntuples(result); row++)
        for (uint32_t i = 0; i < count; i++)
            if (entries[i].lane == (uint32_t)pr__pg_value_int(result, row, 0))
                entries[i].won = true;
}

static pr_status run_write(pr__pg_conn *conn, const pr__pg_writing *w, pr__pg_array *arrays,
                           size_t array_count, pr__pg_call *after, int after_count, int *ret_sent,
                           int *ret_done, pr_error *err)
{
    AUTO_PARAMS params = {.count = 0};
    pr__pg_call calls[PR__PG_CALLS_MAX];
    pr__pg_add_int(&params, w->reader);
    pr__pg_add_int(&params, w->system_id);
    for (size_t i = 0; i < array_count; i++)
        pr__pg_add_array(&params, &arrays[i]);
    calls[0] = (pr__pg_call){.sql = array_count > E_COUNT ? SQL_WRITE_AND_PARK : SQL_WRITE,
                             .params = &params};
    for (int i = 0; i < after_count; i++)
        calls[i + 1] = after[i];
    pr_status status = pr__pg_exec_all(conn, calls, after_count + 1, ret_sent, ret_done, err);
    if (*ret_done > 0)
        read_won(calls[0].result, w->entries, w->count);
    PQclear(calls[0].result);
    for (int i = 0; i < after_count; i++)
        after[i] = calls[i + 1];
    return status;
}

pr_status pr__pg_journal_write(pr__pg_conn *conn, const pr__pg_writing *w, pr__pg_call *after,
                               int after_count, int *ret_sent, int *ret_done, pr_error *err)
{
    static const Oid parking_types[P_COUNT] = {PR__PG_INT8, PR__PG_INT8, PR__PG_TEXT, PR__PG_INT8,
                                               PR__PG_BOOL, PR__PG_BOOL, PR__PG_INT8, PR__PG_TEXT};
    pr__pg_array arrays[E_COUNT + P_COUNT];
    for (size_t i = 0; i < E_COUNT + P_COUNT; i++) {
        Oid type = PR__PG_INT8;
        if (i == E_TOKEN)
            type = PR__PG_UUID;
        else if (i == E_KIND || i == E_OWNER)
            type = PR__PG_TEXT;
        else if (i == E_LIST + 3 || i == E_LIST + 4)
            type = PR__PG_XID8;
        else if (i >= E_COUNT)
            type = parking_types[i - E_COUNT];
        pr__pg_array_init(&arrays[i], type);
    }
    for (uint32_t i = 0; i < w->count; i++)
        add_entry(arrays, &w->entries[i]);
    for (uint32_t i = 0; i < w->parking_count; i++)
        add_parking(arrays + E_COUNT, &w->parkings[i]);
    pr_status status =
        run_write(conn, w, arrays, w->parking_count > 0 ? E_COUNT + P_COUNT : E_COUNT, after,
                  after_count, ret_sent, ret_done, err);
    for (size_t i = 0; i < E_COUNT + P_COUNT; i++)
        pr__pg_array_done(&arrays[i]);
    return status;
}

static const char SQL_MINE[] = "SELECT token = $4 AND kind = $5 FROM {p}outbox_claim WHERE reader "
                               "= $1 AND lane = $2 AND seq = $3";

pr_status pr__pg_journal_is_mine(pr__pg_conn *conn, int64_t reader, const pr__pg_entry *entry,
                                 bool *ret_mine, pr_error *err)
{
    int64_t mine = 0;
    TRY(pr__pg_int(conn, SQL_MINE, &mine, NULL, err, "iiiut", reader, (int64_t)entry->lane,
                   entry->row->seq + 1, entry->row->token, entry->kind));
    *ret_mine = mine != 0;
    return PR_OK;
}
