/*
 * Sagas for operators: lists, one of them, the release of a lease, and the sweep of tombstones.
 *
 * Invariant: a page is read in one snapshot and handed over after it; a release and its audit row
 * are one commit; a row with a lease is never swept, nor one exactly at the cutoff.
 * Must not know: what a state means.
 */
#include "base/error.h"
#include "base/fault.h"
#include "base/text.h"
#include "store/sqlite/operations.h"
#include "store/sqlite/row.h"
#include "store/sqlite/saga.h"
#include "store/sqlite/store.h"

#define ORIGIN "sqlite.saga"
#define KEY    "tenant = ?1 AND saga_type = ?2 AND correlation_key = ?3"
#define COLUMNS                                                                                    \
    "tenant, saga_type, correlation_key, instance_id, version, state_version, "                    \
    "length(state), timeouts, last_messages, lease_token, lease_owner, lease_until, "              \
    "started_at, updated_at, completed_at"

static const char sql_list[] =
    "SELECT " COLUMNS " FROM {p}_saga WHERE instance_id > ?1 AND (?2 IS NULL OR saga_type = ?2) "
    "AND (?3 IS NULL OR tenant = ?3) AND (?4 = 0 OR (completed_at IS NOT NULL) = (?4 = 2)) "
    "AND (NOT ?5 OR lease_token IS NOT NULL) ORDER BY instance_id LIMIT ?6";

static const char sql_show[] = "SELECT " COLUMNS ", state FROM {p}_saga WHERE " KEY;

static const char sql_lease[] = "SELECT lease_token, lease_owner, lease_until FROM {p}_saga "
                                "WHERE " KEY;

static const char sql_clear[] =
    "UPDATE {p}_saga SET lease_token = NULL, lease_owner = NULL, lease_until = NULL WHERE " KEY;

static const char sql_sweep[] =
    "DELETE FROM {p}_saga WHERE rowid IN (SELECT rowid FROM {p}_saga WHERE completed_at < ?1 "
    "AND lease_token IS NULL ORDER BY completed_at LIMIT ?2)";

typedef struct records {
    pr__arena *arena;
    pr_saga_record *items;
    uint32_t count;
    bool more;
} records;

static pr_status read_record(sqlite3_stmt *stmt, pr__arena *arena, int64_t now_us,
                             pr_saga_record *ret, pr_error *err)
{
    bool failed = false;
    pr_saga_record record = {.size = (uint32_t)sizeof record};
    record.tenant = pr__sqlite_column_text(stmt, 0, arena, &failed);
    record.saga_type = pr__sqlite_column_text(stmt, 1, arena, &failed);
    record.key = pr__sqlite_column_text(stmt, 2, arena, &failed);
    record.instance_id = pr__sqlite_column_text(stmt, 3, arena, &failed);
    record.version = sqlite3_column_int64(stmt, 4);
    record.state_version = (uint32_t)sqlite3_column_int64(stmt, 5);
    record.state_size_bytes = (uint64_t)sqlite3_column_int64(stmt, 6);
    record.timeouts = pr__sqlite_column_text(stmt, 7, arena, &failed);
    record.last_messages = pr__sqlite_column_text(stmt, 8, arena, &failed);
    record.started_at_us = sqlite3_column_int64(stmt, 12);
    record.updated_at_us = sqlite3_column_int64(stmt, 13);
    record.completed_at_us = sqlite3_column_int64(stmt, 14);
    if (sqlite3_column_type(stmt, 9) != SQLITE_NULL) {
        const char *owner = pr__sqlite_column_text(stmt, 10, arena, &failed);
        record.lease_owner = owner ? owner : "";
        record.lease_until_us = sqlite3_column_int64(stmt, 11);
        record.lease_left_ms = (record.lease_until_us - now_us) / 1000;
    }
    if (failed)
        return pr__fail_nomem(err, ORIGIN);
    *ret = record;
    return PR_OK;
}

static pr_status read_page(pr__sqlite_store *store, const pr_saga_list_options *opt, records *found,
                           pr_error *err)
{
    AUTO_STMT stmt = NULL;
    bool row = false;
    int64_t now_us = pr__sqlite_now(&store->base);
    TRY(pr__sqlite_query(&store->conn, sql_list, &stmt, err, "tttiii", opt->after ? opt->after : "",
                         opt->saga_type, opt->tenant, (int64_t)opt->phase, (int64_t)opt->leased,
                         (int64_t)opt->limit + 1));
    for (;;) {
        TRY(pr__sqlite_step(&store->conn, stmt, &row, err));
        if (!row)
            return PR_OK;
        found->more = found->count == opt->limit;
        if (found->more)
            return PR_OK;
        TRY(read_record(stmt, found->arena, now_us, &found->items[found->count], err));
        found->count++;
    }
}

pr_status pr__sqlite_saga_list(pr_store *base, const pr_saga_list_options *opt,
                               pr_saga_list_page *ret_page, pr_saga_record_callback callback,
                               void *user, pr_error *err)
{
    pr__sqlite_store *store = pr__sqlite_store_of(base);
    TRY(pr__sqlite_ready(store, err));
    AUTO(pr__arena) arena = pr__arena_new(0);
    records found = {.arena = arena};
    if (arena)
        found.items = pr__arena_alloc(arena, opt->limit * sizeof *found.items);
    if (!found.items)
        return pr__fail_nomem(err, ORIGIN);
    TRY(pr__sqlite_begin(&store->conn, /* write= */ false, err));
    TRY(pr__sqlite_end(&store->conn, read_page(store, opt, &found, err), err));
    uint32_t given = 0;
    bool on = true;
    while (on && given < found.count)
        on = callback(user, &found.items[given++]);
    ret_page->count = given;
    ret_page->next[0] = '\0';
    if (given > 0 && (given < found.count || found.more))
        pr__format(ret_page->next, sizeof ret_page->next, "%s", found.items[given - 1].instance_id);
    return PR_OK;
}

static pr_status no_saga(const pr__saga_key *key, pr_error *err)
{
    return pr__fail(err, PR_E_NOT_FOUND, ORIGIN, "there is no saga \"%s\" of type \"%s\"",
                    key->correlation_key, key->saga_type);
}

static pr_status read_one(pr__sqlite_store *store, const pr__saga_key *key, pr__arena *arena,
                          pr_saga_record *record, pr_error *err)
{
    AUTO_STMT stmt = NULL;
    bool row = false;
    TRY(pr__sqlite_query(&store->conn, sql_show, &stmt, err, "ttt", key->tenant ? key->tenant : "",
                         key->saga_type, key->correlation_key));
    TRY(pr__sqlite_step(&store->conn, stmt, &row, err));
    if (!row)
        return no_saga(key, err);
    TRY(read_record(stmt, arena, pr__sqlite_now(&store->base), record, err));
    const void *state = sqlite3_column_blob(stmt, 15);
    record->state_size_bytes = (uint64_t)sqlite3_column_bytes(stmt, 15);
    record->state = pr__arena_memdup(arena, state, (size_t)record->state_size_bytes);
    return record->state ? PR_OK : pr__fail_nomem(err, ORIGIN);
}

pr_status pr__sqlite_saga_show(pr_store *base, const pr__saga_key *key,
                               pr_saga_record_callback callback, void *user, pr_error *err)
{
    pr__sqlite_store *store = pr__sqlite_store_of(base);
    TRY(pr__sqlite_ready(store, err));
    AUTO(pr__arena) arena = pr__arena_new(0);
    if (!arena)
        return pr__fail_nomem(err, ORIGIN);
    pr_saga_record record;
    TRY(pr__sqlite_begin(&store->conn, /* write= */ false, err));
    TRY(pr__sqlite_end(&store->conn, read_one(store, key, arena, &record, err), err));
    (void)callback(user, &record);
    return PR_OK;
}

static pr_status release(pr__sqlite_store *store, const pr__saga_key *key, bool force,
                         const char *who, const char *reason, pr_error *err)
{
    pr__sqlite_conn *conn = &store->conn;
    const char *tenant = key->tenant ? key->tenant : "";
    int64_t now_us = pr__sqlite_now(&store->base);
    {
        AUTO_STMT stmt = NULL;
        bool row = false;
        TRY(pr__sqlite_query(conn, sql_lease, &stmt, err, "ttt", tenant, key->saga_type,
                             key->correlation_key));
        TRY(pr__sqlite_step(conn, stmt, &row, err));
        if (!row)
            return no_saga(key, err);
        if (sqlite3_column_type(stmt, 0) == SQLITE_NULL)
            return pr__fail(err, PR_E_STATE, ORIGIN, "saga \"%s\" is not leased",
                            key->correlation_key);
        int64_t left_us = sqlite3_column_int64(stmt, 2) - now_us;
        const char *owner = (const char *)sqlite3_column_text(stmt, 1);
        if (left_us > 0 && !force)
            return pr__fail(err, PR_E_STATE, ORIGIN,
                            "saga \"%s\" is leased by \"%s\" for another %lld ms: wait, or use "
                            "force",
                            key->correlation_key, owner ? owner : "", (long long)(left_us / 1000));
    }
    TRY(pr__sqlite_run(conn, sql_clear, NULL, err, "ttt", tenant, key->saga_type,
                       key->correlation_key));
    pr__audit_subject subject = {.saga_type = key->saga_type,
                                 .key = key->correlation_key,
                                 .tenant = tenant[0] ? tenant : NULL,
                                 .forced = force};
    TRY(pr__sqlite_audit(conn, &subject, "saga-release", who, reason, now_us, 1, err));
    PR_FAULT("store.before_saga_release_commit");
    return PR_OK;
}

pr_status pr__sqlite_saga_release(pr_store *base, const pr__saga_key *key, bool force,
                                  const char *who, const char *reason, pr_error *err)
{
    pr__sqlite_store *store = pr__sqlite_store_of(base);
    TRY(pr__sqlite_ready(store, err));
    TRY(pr__sqlite_begin(&store->conn, /* write= */ true, err));
    return pr__sqlite_end(&store->conn, release(store, key, force, who, reason, err), err);
}

pr_status pr__sqlite_saga_sweep(pr_store *base, int64_t retention_ms, uint32_t max,
                                uint64_t *ret_count, pr_error *err)
{
    pr__sqlite_store *store = pr__sqlite_store_of(base);
    int64_t changes = 0;
    int64_t cutoff_us = pr__sqlite_now(base) - pr__saga_lease_bounded(retention_ms) * 1000;
    TRY(pr__sqlite_ready(store, err));
    TRY(pr__sqlite_begin(&store->conn, /* write= */ true, err));
    pr_status status =
        pr__sqlite_run(&store->conn, sql_sweep, &changes, err, "ii", cutoff_us, (int64_t)max);
    TRY(pr__sqlite_end(&store->conn, status, err));
    *ret_count = (uint64_t)changes;
    return PR_OK;
}
