/*
 * Readers: making, finding, keeping, dropping.
 *
 * Invariants: a reader's number is never used again (a sequence), for the journal's seq would start
 * again with it; its filter never changes; a new one starts behind everything that its first
 * statement sees, and seeks the rows of the transactions that were open then, by the claim's own
 * rule: else a message whose transaction was open at that moment would reach it never.
 */
#include "store/postgres/reader.h"

#include "base/error.h"
#include "base/fault.h"
#include "base/memory.h"
#include "base/text.h"
#include "port/state.h"
#include "store/postgres/value.h"

#define ORIGIN           "postgres.reader"
#define DROP_EXPIRED_MAX 8

#define NOT_EXPIRED      "(s.expires_at IS NULL OR s.expires_at > clock_timestamp())"

static const char SQL_FILTER[] =
    "SELECT d FROM {p}subscription AS s, unnest(s.destinations) AS d WHERE s.reader = $1";
static const char SQL_ORDER[] =
    "SELECT s.order_policy FROM {p}subscription AS s WHERE s.reader = $1 AND " NOT_EXPIRED;

pr_status pr__pg_reader_filter(pr__pg_store *store, int64_t reader, pr_error *err)
{
    pr__reader_filter *filter = &store->filter;
    if (filter->reader == reader)
        return PR_OK;
    pr__arena_free(filter->arena);
    *filter = (pr__reader_filter){.arena = pr__arena_new(0)};
    if (!filter->arena)
        return pr__fail_nomem(err, ORIGIN);
    AUTO_RESULT result = NULL;
    bool failed = false;
    TRY(pr__pg_query(&store->conn, SQL_FILTER, &result, err, "i", reader));
    size_t count = (size_t)PQntuples(result);
    filter->destinations =
        pr__arena_alloc(filter->arena, (count + 1) * sizeof *filter->destinations);
    if (!filter->destinations)
        return pr__fail_nomem(err, ORIGIN);
    for (size_t i = 0; i < count; i++)
        filter->destinations[i] = pr__pg_value_copy(result, (int)i, 0, filter->arena, &failed);
    if (failed)
        return pr__fail_nomem(err, ORIGIN);
    filter->count = count;
    filter->reader = reader;
    return PR_OK;
}

pr_status pr__pg_reader_load(pr__pg_store *store, int64_t reader, pr_order *ret_order,
                             pr_error *err)
{
    AUTO_RESULT result = NULL;
    TRY(pr__pg_query(&store->conn, SQL_ORDER, &result, err, "i", reader));
    if (PQntuples(result) == 0)
        return pr__reader_gone(reader, ORIGIN, err);
    *ret_order = pr__order_parse(pr__pg_value_text(result, 0, 0));
    return pr__pg_reader_filter(store, reader, err);
}

static pr_status filter_array(const pr__reader_spec *spec, pr__pg_array *array, pr_error *err)
{
    AUTO(void) sorted = NULL;
    size_t count = 0;
    TRY(pr__reader_spec_sort(spec, ORIGIN, &sorted, &count, err));
    const char *const *destinations = sorted;
    for (size_t i = 0; i < count; i++)
        pr__pg_array_text(array, destinations[i]);
    return PR_OK;
}

/* Of two that make one name at once the second waits here. */
static const char SQL_LOCK[] =
    "SELECT pg_advisory_xact_lock(hashtextextended('postroom reader {p} ' || $1, 0))";
static const char SQL_FIND[] =
    "SELECT s.reader, s.destinations = $2, NOT " NOT_EXPIRED " FROM {p}subscription AS s WHERE "
    "s.name = $1";
static const char SQL_SET_ORDER[] = "UPDATE {p}subscription AS s SET order_policy = $2 WHERE "
                                    "s.reader = $1 AND order_policy <> $2";
static const char SQL_KEEP[] =
    "UPDATE {p}subscription AS s SET expires_at = clock_timestamp() + expiry_ms * interval '1 "
    "millisecond' WHERE s.reader = $1 AND s.temporary AND s.expires_at > clock_timestamp()";

/* One snapshot sees the highest id and who is running; our own id is taken after it. */
static const char SQL_MAKE[] =
    "WITH seen AS MATERIALIZED (SELECT pg_current_snapshot() AS s, coalesce((SELECT max(t.id) FROM "
    "generate_series(0, $7 - 1) AS l(lane) CROSS JOIN LATERAL (SELECT o.id FROM {p}outbox AS o "
    "WHERE o.lane = l.lane ORDER BY o.id DESC LIMIT 1) AS t), 0) AS id), "
    "own AS MATERIALIZED (SELECT pg_current_xact_id()::text::int8 AS xid FROM seen), "
    "start AS MATERIALIZED (SELECT seen.id, ARRAY(SELECT pg_snapshot_xip(seen.s) UNION SELECT "
    "g::text::xid8 FROM generate_series(pg_snapshot_xmax(seen.s)::text::int8, own.xid - 1) AS g) "
    "AS pend FROM seen, own), "
    "made AS (INSERT INTO {p}subscription (name, destinations, order_policy, temporary, expiry_ms, "
    "expires_at, start_id, start_pend) SELECT $1, $2, $3, $4, nullif($5, 0), CASE WHEN $4 THEN "
    "clock_timestamp() + $5 * interval '1 millisecond' END, start.id, start.pend FROM start "
    "RETURNING reader), "
    "rows AS (INSERT INTO {p}outbox_claim (reader, lane, seq, pos, drain_pos, rebase_id, acked, "
    "passed, system_id, lease_until, at, attempt, token, kind, owner, ids, rest, suspects, pend, "
    "drain) SELECT made.reader, l.lane, 0, start.id, 0, 0, 0, 0, $6, NULL, clock_timestamp(), 0, "
    "'00000000-0000-0000-0000-000000000000', 'release', '', '{}', '{}', '{}', start.pend, '{}' "
    "FROM made, start, generate_series(0, $7 - 1) AS l(lane)) SELECT reader FROM made";

static const char SQL_EXPIRED[] =
    "SELECT s.reader FROM {p}subscription AS s WHERE s.temporary AND NOT " NOT_EXPIRED
    " ORDER BY s.reader LIMIT 1 FOR UPDATE SKIP LOCKED";
static const char SQL_DROP_PARKED[] = "DELETE FROM {p}outbox_parked WHERE reader = $1";
static const char SQL_DROP_JOURNAL[] = "DELETE FROM {p}outbox_claim WHERE reader = $1";
static const char SQL_DROP[] = "DELETE FROM {p}subscription WHERE reader = $1";

static pr_status drop(pr__pg_store *store, int64_t reader, int64_t *ret_count, pr_error *err)
{
    TRY(pr__pg_run(&store->conn, SQL_DROP, ret_count, err, "i", reader));
    TRY(pr__pg_run(&store->conn, SQL_DROP_PARKED, NULL, err, "i", reader));
    return pr__pg_run(&store->conn, SQL_DROP_JOURNAL, NULL, err, "i", reader);
}

/* What others left who died: nobody else ever looks for it. A few at a time, the oldest first, and
   none that another drops just now. */
static pr_status drop_expired(pr__pg_store *store, pr_error *err)
{
    for (int i = 0; i < DROP_EXPIRED_MAX; i++) {
        int64_t reader = 0, count = 0;
        bool found = false;
        TRY(pr__pg_int(&store->conn, SQL_EXPIRED, &reader, &found, err, ""));
        if (!found)
            return PR_OK;
        TRY(drop(store, reader, &count, err));
    }
    return PR_OK;
}

static pr_status make(pr__pg_store *store, const pr__reader_spec *spec, pr__pg_array *filter,
                      int64_t *ret_reader, pr_error *err)
{
    AUTO_PARAMS params = {.count = 0};
    AUTO_RESULT result = NULL;
    pr__pg_add_text(&params, spec->name);
    pr__pg_add_array(&params, filter);
    pr__pg_add_text(&params, pr__order_text(spec->order));
    pr__pg_add_bool(&params, spec->temporary);
    pr__pg_add_int(&params, spec->temporary ? spec->expiry_ms : 0);
    pr__pg_add_int(&params, store->settings.system_id);
    pr__pg_add_int(&params, store->settings.lanes);
    TRY(pr__pg_exec(&store->conn, SQL_MAKE, &params, &result, err));
    *ret_reader = pr__pg_value_int(result, 0, 0);
    /* after it: our transaction has its id from there on */
    return spec->temporary ? drop_expired(store, err) : PR_OK;
}

static pr_status find_or_make(pr__pg_store *store, const pr__reader_spec *spec,
                              pr__pg_array *filter, int64_t *ret_reader, pr_error *err)
{
    AUTO_PARAMS params = {.count = 0};
    AUTO_RESULT result = NULL;
    pr__pg_add_text(&params, spec->name);
    pr__pg_add_array(&params, filter);
    TRY(pr__pg_query(&store->conn, SQL_LOCK, NULL, err, "t", spec->name));
    TRY(pr__pg_exec(&store->conn, SQL_FIND, &params, &result, err));
    bool found = PQntuples(result) > 0;
    int64_t reader = found ? pr__pg_value_int(result, 0, 0) : 0;
    if (found && pr__pg_value_int(result, 0, 2)) {
        int64_t count = 0;
        TRY(drop(store, reader, &count, err));
        found = false;
    }
    if (!found)
        return make(store, spec, filter, ret_reader, err);
    if (!pr__pg_value_int(result, 0, 1))
        return pr__reader_conflict(spec, ORIGIN, err);
    if (spec->order != PR_ORDER_DEFAULT)
        TRY(pr__pg_run(&store->conn, SQL_SET_ORDER, NULL, err, "it", reader,
                       pr__order_text(spec->order)));
    TRY(pr__pg_run(&store->conn, SQL_KEEP, NULL, err, "i", reader));
    *ret_reader = reader;
    return PR_OK;
}

static pr_status open_reader(pr__pg_store *store, const pr__reader_spec *spec, pr__pg_array *filter,
                             int64_t *ret_reader, pr_error *err)
{
    int64_t reader = 0;
    TRY(filter_array(spec, filter, err));
    TRY(pr__pg_begin(&store->conn, err));
    pr_status status = pr__pg_settings_load(store, err);
    if (status == PR_OK)
        status = find_or_make(store, spec, filter, &reader, err);
    PR_FAULT("store.before_reader_commit");
    TRY(pr__pg_end(&store->conn, status, err));
    PR_FAULT("store.after_reader_commit");
    *ret_reader = reader;
    return PR_OK;
}

pr_status pr__pg_reader_open(pr_store *base, const pr__reader_spec *spec, int64_t *ret_reader,
                             pr_error *err)
{
    pr__pg_store *store = pr__pg_store_of(base);
    TRY(pr__pg_ready(store, err));
    pr__pg_array filter;
    pr__pg_array_init(&filter, PR__PG_TEXT);
    pr_status status = open_reader(store, spec, &filter, ret_reader, err);
    pr__pg_array_done(&filter);
    return status;
}

static const char SQL_STANDS[] =
    "SELECT s.temporary FROM {p}subscription AS s WHERE s.reader = $1 AND " NOT_EXPIRED;

static pr_status keep(pr__pg_store *store, int64_t reader, pr_error *err)
{
    int64_t temporary = 0;
    int64_t count = 0;
    bool found = false;
    TRY(pr__pg_int(&store->conn, SQL_STANDS, &temporary, &found, err, "i", reader));
    if (found && !temporary)
        return PR_OK;
    if (found)
        TRY(pr__pg_run(&store->conn, SQL_KEEP, &count, err, "i", reader));
    return count > 0 ? PR_OK : pr__reader_gone(reader, ORIGIN, err);
}

pr_status pr__pg_reader_keep(pr_store *base, int64_t reader, pr_error *err)
{
    pr__pg_store *store = pr__pg_store_of(base);
    TRY(pr__pg_ready(store, err));
    TRY(pr__pg_begin(&store->conn, err));
    return pr__pg_end(&store->conn, keep(store, reader, err), err);
}

pr_status pr__pg_reader_drop(pr_store *base, int64_t reader, pr_error *err)
{
    pr__pg_store *store = pr__pg_store_of(base);
    TRY(pr__pg_ready(store, err));
    TRY(pr__pg_begin(&store->conn, err));
    int64_t count = 0;
    TRY(pr__pg_end(&store->conn, drop(store, reader, &count, err), err));
    if (count == 0)
        return pr__reader_unknown(reader, ORIGIN, err);
    return PR_OK;
}

static pr_status set_order(pr__pg_store *store, int64_t reader, pr_order order, pr_error *err)
{
    int64_t temporary = 0;
    bool found = false;
    TRY(pr__pg_int(&store->conn, SQL_STANDS, &temporary, &found, err, "i", reader));
    if (!found)
        return pr__reader_unknown(reader, ORIGIN, err);
    return pr__pg_run(&store->conn, SQL_SET_ORDER, NULL, err, "it", reader, pr__order_text(order));
}

pr_status pr__pg_reader_set_order(pr_store *base, int64_t reader, pr_order order, pr_error *err)
{
    pr__pg_store *store = pr__pg_store_of(base);
    TRY(pr__pg_ready(store, err));
    TRY(pr__pg_begin(&store->conn, err));
    return pr__pg_end(&store->conn, set_order(store, reader, order, err), err);
}

/* Without a transaction of ours names are looked up by whatever search_path the session has. */
#define NOT_EXPIRED_ANYWHERE                                                                       \
    "(s.expires_at IS NULL OR s.expires_at OPERATOR(pg_catalog.>) pg_catalog.clock_timestamp())"
static const char SQL_EXISTS[] =
    "SELECT pg_catalog.count(*) FROM {p}subscription AS s WHERE " NOT_EXPIRED_ANYWHERE
    " AND $1 OPERATOR(pg_catalog.=) ANY (s.destinations)";

pr_status pr__pg_reader_exists(pr_store *base, const char *destination, bool *ret_exists,
                               pr_error *err)
{
    pr__pg_store *store = pr__pg_store_of(base);
    int64_t count = 0;
    TRY(pr__pg_ready(store, err));
    TRY(pr__pg_int(&store->conn, SQL_EXISTS, &count, NULL, err, "t", destination));
    *ret_exists = count > 0;
    return PR_OK;
}

static const char SQL_NAMED[] = "SELECT s.reader FROM {p}subscription AS s WHERE s.name "
                                "OPERATOR(pg_catalog.=) $1 AND " NOT_EXPIRED_ANYWHERE;

pr_status pr__pg_reader_find(pr_store *base, const char *name, int64_t *ret_reader, pr_error *err)
{
    pr__pg_store *store = pr__pg_store_of(base);
    AUTO_RESULT result = NULL;
    TRY(pr__pg_ready(store, err));
    TRY(pr__pg_query(&store->conn, SQL_NAMED, &result, err, "t", name));
    *ret_reader = PQntuples(result) > 0 ? pr__pg_value_int(result, 0, 0) : 0;
    return PR_OK;
}
