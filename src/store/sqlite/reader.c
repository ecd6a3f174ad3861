/*
 * Readers: making, finding, keeping, dropping.
 *
 * Invariants: a reader's number is never used again (AUTOINCREMENT), for the journal's seq would
 * start again with it; its filter never changes; a new one starts behind everything that is
 * committed, in the same transaction that makes it (writers are serial: nothing is open then).
 */
#include "store/sqlite/reader.h"

#include "base/buffer.h"
#include "base/error.h"
#include "base/fault.h"
#include "base/json_writer.h"
#include "base/text.h"
#include "port/state.h"
#include "store/sqlite/journal.h"
#include "store/sqlite/row.h"

#define ORIGIN           "sqlite.reader"
#define DROP_EXPIRED_MAX 8

static const char SQL_LOAD[] = "SELECT order_policy FROM {p}_subscription WHERE reader = ?1 AND "
                               "(expires_at IS NULL OR expires_at > ?2)";
static const char SQL_FILTER[] =
    "SELECT e.value FROM {p}_subscription AS s, json_each(s.destinations) AS e WHERE s.reader = ?1";

static pr_status load_filter(pr__sqlite_store *store, int64_t reader, pr_error *err)
{
    pr__reader_filter *filter = &store->filter;
    if (filter->reader == reader)
        return PR_OK;
    pr__arena_free(filter->arena);
    *filter = (pr__reader_filter){.arena = pr__arena_new(0)};
    if (!filter->arena)
        return pr__fail_nomem(err, ORIGIN);
    AUTO_STMT stmt = NULL;
    bool failed = false;
    size_t capacity = 0;
    TRY(pr__sqlite_query(&store->conn, SQL_FILTER, &stmt, err, "i", reader));
    for (;;) {
        bool row = false;
        TRY(pr__sqlite_step(&store->conn, stmt, &row, err));
        if (!row)
            break;
        if (filter->count == capacity) {
            size_t wanted = capacity ? capacity * 2 : 8;
            const char **larger = pr__arena_alloc(filter->arena, wanted * sizeof *larger);
            if (!larger)
                return pr__fail_nomem(err, ORIGIN);
            for (size_t i = 0; i < filter->count; i++)
                larger[i] = filter->destinations[i];
            filter->destinations = larger;
            capacity = wanted;
        }
        filter->destinations[filter->count++] =
            pr__sqlite_column_text(stmt, 0, filter->arena, &failed);
        if (failed)
            return pr__fail_nomem(err, ORIGIN);
    }
    filter->reader = reader;
    return PR_OK;
}

pr_status pr__sqlite_reader_load(pr__sqlite_store *store, int64_t reader, pr_order *ret_order,
                                 pr_error *err)
{
    AUTO_STMT stmt = NULL;
    bool row = false;
    TRY(pr__sqlite_settings_load(store, err));
    TRY(pr__sqlite_query(&store->conn, SQL_LOAD, &stmt, err, "ii", reader,
                         pr__sqlite_now(&store->base)));
    TRY(pr__sqlite_step(&store->conn, stmt, &row, err));
    if (!row)
        return pr__reader_gone(reader, ORIGIN, err);
    *ret_order = pr__order_parse((const char *)sqlite3_column_text(stmt, 0));
    return load_filter(store, reader, err);
}

static const char SQL_LANE_LOST[] =
    "WITH RECURSIVE lane (n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM lane WHERE n + 1 < ?2) "
    "SELECT n FROM lane WHERE NOT EXISTS (SELECT 1 FROM {p}_outbox_claim WHERE reader = ?1 AND "
    "lane = n) LIMIT 1";

pr_status pr__sqlite_reader_whole(pr__sqlite_store *store, int64_t reader, pr_error *err)
{
    int64_t lane = 0;
    bool lost = false;
    TRY(pr__sqlite_int(&store->conn, SQL_LANE_LOST, &lane, &lost, err, "ii", reader,
                       (int64_t)store->settings.lanes));
    if (!lost)
        return PR_OK;
    return pr__fail(
        err, PR_E_SCHEMA, ORIGIN,
        "reader %lld has no row for lane %lld of %u in '%s_outbox_claim', so nothing of "
        "it would be sent: restore the row, or the setting 'lanes' if that was changed",
        (long long)reader, (long long)lane, store->settings.lanes, store->conn.prefix);
}

static pr_status filter_json(const pr__reader_spec *spec, pr__buffer *buffer, pr_error *err)
{
    AUTO(void) sorted = NULL;
    size_t count = 0;
    TRY(pr__reader_spec_sort(spec, ORIGIN, &sorted, &count, err));
    const char *const *destinations = sorted;
    pr__json json;
    pr__json_init(&json, buffer);
    pr__json_array_begin(&json);
    for (size_t i = 0; i < count; i++)
        pr__json_text(&json, destinations[i]);
    pr__json_array_end(&json);
    return pr__buffer_text(buffer) && !json.failed ? PR_OK : pr__fail_nomem(err, ORIGIN);
}

static const char SQL_FIND[] = "SELECT reader, destinations, expires_at IS NOT NULL AND expires_at "
                               "<= ?2 FROM {p}_subscription WHERE name = ?1";
static const char SQL_SET_ORDER[] =
    "UPDATE {p}_subscription SET order_policy = ?2 WHERE reader = ?1 AND order_policy <> ?2";
static const char SQL_KEEP[] =
    "UPDATE {p}_subscription SET expires_at = ?2 + expiry_ms * 1000 WHERE reader = ?1 AND "
    "temporary AND expires_at > ?2";
static const char SQL_INSERT[] =
    "INSERT INTO {p}_subscription (name, destinations, order_policy, temporary, expiry_ms, "
    "expires_at, start_id, created_at) VALUES (?1, ?2, ?3, ?4, ?5, ?6, (SELECT coalesce(max(id), "
    "0) "
    "FROM {p}_outbox), ?7)";
static const char SQL_START[] =
    "INSERT INTO {p}_outbox_claim (reader, lane, seq, kind, token, owner, pos, low, ids, rest, "
    "suspects, attempt, lease_until, acked, passed, at) WITH RECURSIVE lane (n) AS (SELECT 0 UNION "
    "ALL SELECT n + 1 FROM lane WHERE n + 1 < ?2) SELECT ?1, n, 0, 'release', '', '', s.start_id, "
    "s.start_id + 1, '[]', '[]', '{}', 0, 0, 0, 0, ?3 FROM lane, {p}_subscription AS s WHERE "
    "s.reader = ?1";
static const char SQL_EXPIRED[] =
    "SELECT reader FROM {p}_subscription WHERE temporary AND expires_at <= ?1 ORDER BY reader "
    "LIMIT 1";
static const char SQL_DROP_PARKED[] = "DELETE FROM {p}_outbox_parked WHERE reader = ?1";
static const char SQL_DROP_JOURNAL[] = "DELETE FROM {p}_outbox_claim WHERE reader = ?1";
static const char SQL_DROP[] = "DELETE FROM {p}_subscription WHERE reader = ?1";

static pr_status drop(pr__sqlite_store *store, int64_t reader, int64_t *ret_count, pr_error *err)
{
    TRY(pr__sqlite_run(&store->conn, SQL_DROP_PARKED, NULL, err, "i", reader));
    TRY(pr__sqlite_run(&store->conn, SQL_DROP_JOURNAL, NULL, err, "i", reader));
    return pr__sqlite_run(&store->conn, SQL_DROP, ret_count, err, "i", reader);
}

/* What others left who died: nobody else ever looks for it. A few at a time, the oldest first. */
static pr_status drop_expired(pr__sqlite_store *store, pr_error *err)
{
    int64_t now = pr__sqlite_now(&store->base);
    for (int i = 0; i < DROP_EXPIRED_MAX; i++) {
        int64_t reader = 0, count = 0;
        {
            AUTO_STMT stmt = NULL;
            bool row = false;
            TRY(pr__sqlite_query(&store->conn, SQL_EXPIRED, &stmt, err, "i", now));
            TRY(pr__sqlite_step(&store->conn, stmt, &row, err));
            if (!row)
                return PR_OK;
            reader = sqlite3_column_int64(stmt, 0);
        }
        TRY(drop(store, reader, &count, err));
    }
    return PR_OK;
}

static pr_status make(pr__sqlite_store *store, const pr__reader_spec *spec, const char *filter,
                      int64_t *ret_reader, pr_error *err)
{
    int64_t now = pr__sqlite_now(&store->base);
    pr__sqlite_conn *conn = &store->conn;
    const char *order = pr__order_text(spec->order);
    if (spec->temporary)
        TRY(pr__sqlite_run(conn, SQL_INSERT, NULL, err, "tttiiii", spec->name, filter, order,
                           (int64_t)1, spec->expiry_ms, now + spec->expiry_ms * 1000, now));
    else
        TRY(pr__sqlite_run(conn, SQL_INSERT, NULL, err, "tttinni", spec->name, filter, order,
                           (int64_t)0, now));
    *ret_reader = sqlite3_last_insert_rowid(conn->db);
    TRY(pr__sqlite_run(conn, SQL_START, NULL, err, "iii", *ret_reader,
                       (int64_t)store->settings.lanes, now));
    return spec->temporary ? drop_expired(store, err) : PR_OK;
}

static pr_status find_or_make(pr__sqlite_store *store, const pr__reader_spec *spec,
                              const char *filter, int64_t *ret_reader, pr_error *err)
{
    int64_t now = pr__sqlite_now(&store->base);
    int64_t reader = 0;
    bool same = false;
    bool expired = false;
    {
        AUTO_STMT stmt = NULL;
        bool row = false;
        TRY(pr__sqlite_query(&store->conn, SQL_FIND, &stmt, err, "ti", spec->name, now));
        TRY(pr__sqlite_step(&store->conn, stmt, &row, err));
        if (row) {
            reader = sqlite3_column_int64(stmt, 0);
            same = pr__text_equal((const char *)sqlite3_column_text(stmt, 1), filter);
            expired = sqlite3_column_int(stmt, 2) != 0;
        }
    }
    if (reader != 0 && expired) {
        int64_t count = 0;
        TRY(drop(store, reader, &count, err));
        reader = 0;
    }
    if (reader == 0)
        return make(store, spec, filter, ret_reader, err);
    if (!same)
        return pr__reader_conflict(spec, ORIGIN, err);
    TRY(pr__sqlite_reader_whole(store, reader, err));
    if (spec->order != PR_ORDER_DEFAULT)
        TRY(pr__sqlite_run(&store->conn, SQL_SET_ORDER, NULL, err, "it", reader,
                           pr__order_text(spec->order)));
    TRY(pr__sqlite_run(&store->conn, SQL_KEEP, NULL, err, "ii", reader, now));
    *ret_reader = reader;
    return PR_OK;
}

pr_status pr__sqlite_reader_open(pr_store *base, const pr__reader_spec *spec, int64_t *ret_reader,
                                 pr_error *err)
{
    pr__sqlite_store *store = pr__sqlite_store_of(base);
    TRY(pr__sqlite_ready(store, err));
    AUTO_BUFFER filter = PR_BUFFER_INIT;
    TRY(filter_json(spec, &filter, err));
    TRY(pr__sqlite_begin(&store->conn, /* write= */ true, err));
    int64_t reader = 0;
    pr_status status = pr__sqlite_settings_load(store, err);
    if (status == PR_OK)
        status = find_or_make(store, spec, filter.data, &reader, err);
    PR_FAULT("store.before_reader_commit");
    TRY(pr__sqlite_end(&store->conn, status, err));
    PR_FAULT("store.after_reader_commit");
    *ret_reader = reader;
    return PR_OK;
}

/* One statement in a transaction of its own. */
static pr_status change(pr__sqlite_store *store, const char *sql, int64_t reader, const char *text,
                        int64_t now, int64_t *ret_count, pr_error *err)
{
    TRY(pr__sqlite_ready(store, err));
    TRY(pr__sqlite_begin(&store->conn, /* write= */ true, err));
    pr_status status = text ? pr__sqlite_run(&store->conn, sql, ret_count, err, "it", reader, text)
                            : pr__sqlite_run(&store->conn, sql, ret_count, err, "ii", reader, now);
    return pr__sqlite_end(&store->conn, status, err);
}

static const char SQL_STANDS[] =
    "SELECT temporary FROM {p}_subscription WHERE reader = ?1 AND (expires_at IS NULL OR "
    "expires_at > ?2)";

pr_status pr__sqlite_reader_keep(pr_store *base, int64_t reader, pr_error *err)
{
    pr__sqlite_store *store = pr__sqlite_store_of(base);
    TRY(pr__sqlite_ready(store, err));
    int64_t now = pr__sqlite_now(base);
    int64_t temporary = 0;
    int64_t count = 0;
    bool found = false;
    TRY(pr__sqlite_int(&store->conn, SQL_STANDS, &temporary, &found, err, "ii", reader, now));
    if (found && !temporary)
        return PR_OK;
    if (found)
        TRY(change(store, SQL_KEEP, reader, NULL, now, &count, err));
    if (count == 0)
        return pr__reader_gone(reader, ORIGIN, err);
    return PR_OK;
}

pr_status pr__sqlite_reader_drop(pr_store *base, int64_t reader, pr_error *err)
{
    pr__sqlite_store *store = pr__sqlite_store_of(base);
    TRY(pr__sqlite_ready(store, err));
    TRY(pr__sqlite_begin(&store->conn, /* write= */ true, err));
    int64_t count = 0;
    TRY(pr__sqlite_end(&store->conn, drop(store, reader, &count, err), err));
    if (count == 0)
        return pr__reader_unknown(reader, ORIGIN, err);
    return PR_OK;
}

pr_status pr__sqlite_reader_set_order(pr_store *base, int64_t reader, pr_order order, pr_error *err)
{
    pr__sqlite_store *store = pr__sqlite_store_of(base);
    TRY(pr__sqlite_ready(store, err));
    int64_t temporary = 0;
    int64_t count = 0;
    bool found = false;
    TRY(pr__sqlite_int(&store->conn, SQL_STANDS, &temporary, &found, err, "ii", reader,
                       pr__sqlite_now(base)));
    if (!found)
        return pr__reader_unknown(reader, ORIGIN, err);
    return change(store, SQL_SET_ORDER, reader, pr__order_text(order), 0, &count, err);
}

static const char SQL_EXISTS[] =
    "SELECT 1 FROM {p}_subscription AS s WHERE (s.expires_at IS NULL OR s.expires_at > ?2) AND "
    "EXISTS (SELECT 1 FROM json_each(s.destinations) WHERE value = ?1) LIMIT 1";

pr_status pr__sqlite_reader_exists(pr_store *base, const char *destination, bool *ret_exists,
                                   pr_error *err)
{
    pr__sqlite_store *store = pr__sqlite_store_of(base);
    TRY(pr__sqlite_ready(store, err));
    int64_t one = 0;
    return pr__sqlite_int(&store->conn, SQL_EXISTS, &one, ret_exists, err, "ti", destination,
                          pr__sqlite_now(base));
}

pr_status pr__sqlite_reader_find(pr_store *base, const char *name, int64_t *ret_reader,
                                 pr_error *err)
{
    pr__sqlite_store *store = pr__sqlite_store_of(base);
    TRY(pr__sqlite_ready(store, err));
    AUTO_STMT stmt = NULL;
    bool row = false;
    TRY(pr__sqlite_query(&store->conn, SQL_FIND, &stmt, err, "ti", name, pr__sqlite_now(base)));
    TRY(pr__sqlite_step(&store->conn, stmt, &row, err));
    bool stands = row && sqlite3_column_int(stmt, 2) == 0;
    *ret_reader = stands ? sqlite3_column_int64(stmt, 0) : 0;
    return PR_OK;
}
