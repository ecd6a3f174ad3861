/*
 * Sagas in a unit's transaction: one row each, moved by conditional updates.
 *
 * Invariant: a row is saved only when instance and version are those that were loaded, and a leased
 * step only by its token; whoever lost learns it from the row count. The unit began IMMEDIATE, so
 * that nobody else writes between load and save.
 * Must not know: what a state means, when a saga is complete.
 */
#include "store/sqlite/saga.h"

#include "base/error.h"
#include "base/text.h"
#include "store/sqlite/failure.h"
#include "store/sqlite/row.h"
#include "store/sqlite/unit.h"

#define ORIGIN "sqlite.saga"
#define KEY    "tenant = ?1 AND saga_type = ?2 AND correlation_key = ?3"

static const char sql_load[] =
    "SELECT instance_id, version, state_version, state, timeouts, last_messages, lease_token, "
    "lease_owner, lease_until, started_at, updated_at, completed_at FROM {p}_saga WHERE " KEY;

static const char sql_insert[] =
    "INSERT INTO {p}_saga (tenant, saga_type, correlation_key, instance_id, version, state, "
    "state_version, started_at, updated_at) VALUES (?1, ?2, ?3, ?4, 0, x'', 0, ?5, ?5) "
    "ON CONFLICT (tenant, saga_type, correlation_key) DO NOTHING";

static const char sql_save[] =
    "UPDATE {p}_saga SET version = version + 1, state_version = ?7, state = ?8, timeouts = ?9, "
    "last_messages = ?10, updated_at = ?11, completed_at = CASE WHEN ?12 THEN ?11 END, "
    "started_at = CASE WHEN ?13 IS NULL THEN started_at ELSE ?11 END, "
    "instance_id = coalesce(?13, instance_id), "
    "lease_token = CASE WHEN ?6 IS NULL THEN lease_token END, "
    "lease_owner = CASE WHEN ?6 IS NULL THEN lease_owner END, "
    "lease_until = CASE WHEN ?6 IS NULL THEN lease_until END "
    "WHERE " KEY " AND instance_id = ?4 AND version = ?5 AND (?6 IS NULL OR lease_token = ?6)";

static const char sql_complete[] = "UPDATE {p}_saga SET completed_at = ?5 WHERE " KEY
                                   " AND instance_id = ?4 AND completed_at IS NULL";

static const char sql_lease[] =
    "UPDATE {p}_saga SET lease_token = ?5, lease_owner = ?6, lease_until = ?7 + ?8 WHERE " KEY
    " AND instance_id = ?4 AND completed_at IS NULL "
    "AND (lease_token IS NULL OR lease_until <= ?7)";

static const char sql_renew[] = "UPDATE {p}_saga SET lease_until = ?6 + ?7 WHERE " KEY
                                " AND instance_id = ?4 AND lease_token = ?5";

static const char sql_unlease[] =
    "UPDATE {p}_saga SET lease_token = NULL, lease_owner = NULL, lease_until = NULL WHERE " KEY
    " AND lease_token = ?4";

/* The connection of a live unit, for a key that can be found again. */
static pr_status live(pr_unit *unit, const pr__saga_key *key, pr__sqlite_conn **ret_conn,
                      pr_error *err)
{
    TRY(pr__saga_key_check(key, err));
    TRY(pr__sqlite_unit_live(unit, err));
    *ret_conn = pr__sqlite_unit_of(unit)->conn;
    return PR_OK;
}

static const char *tenant_of(const pr__saga_key *key)
{
    return key->tenant ? key->tenant : "";
}

static pr_status read_row(sqlite3_stmt *stmt, pr__arena *arena, pr__saga_row *row, pr_error *err)
{
    const char *id = (const char *)sqlite3_column_text(stmt, 0);
    const void *state = sqlite3_column_blob(stmt, 3);
    const char *token = (const char *)sqlite3_column_text(stmt, 6);
    bool failed = false;
    pr__format(row->instance_id, sizeof row->instance_id, "%s", id ? id : "");
    pr__format(row->lease_token, sizeof row->lease_token, "%s", token ? token : "");
    row->version = sqlite3_column_int64(stmt, 1);
    row->state_version = (uint32_t)sqlite3_column_int64(stmt, 2);
    row->state_size = (size_t)sqlite3_column_bytes(stmt, 3);
    row->state = pr__arena_memdup(arena, state, row->state_size);
    row->timeouts = pr__sqlite_column_text(stmt, 4, arena, &failed);
    row->last_messages = pr__sqlite_column_text(stmt, 5, arena, &failed);
    row->lease_owner = pr__sqlite_column_text(stmt, 7, arena, &failed);
    row->lease_until_us = sqlite3_column_int64(stmt, 8);
    row->started_at_us = sqlite3_column_int64(stmt, 9);
    row->updated_at_us = sqlite3_column_int64(stmt, 10);
    row->completed_at_us = sqlite3_column_int64(stmt, 11);
    if (failed || !row->state)
        return pr__fail_nomem(err, ORIGIN);
    return PR_OK;
}

static pr_status load(pr__sqlite_conn *conn, const pr__saga_key *key, pr__arena *arena,
                      bool *ret_found, pr__saga_row *row, pr_error *err)
{
    AUTO_STMT stmt = NULL;
    TRY(pr__sqlite_query(conn, sql_load, &stmt, err, "ttt", tenant_of(key), key->saga_type,
                         key->correlation_key));
    TRY(pr__sqlite_step(conn, stmt, ret_found, err));
    return *ret_found ? read_row(stmt, arena, row, err) : PR_OK;
}

pr_status pr__sqlite_saga_load(pr_unit *unit, const pr__saga_key *key, pr__arena *arena,
                               bool *ret_found, pr__saga_row *ret_row, pr_error *err)
{
    pr__sqlite_conn *conn = NULL;
    TRY(live(unit, key, &conn, err));
    pr__saga_row row = {.now_us = pr__sqlite_now(unit->store)};
    TRY(pr__sqlite_unit_status(unit, load(conn, key, arena, ret_found, &row, err)));
    *ret_row = row;
    return PR_OK;
}

/* A conditional change of the row: *ret_changed tells whether it was. */
static pr_status changed(pr_unit *unit, pr_status status, int64_t changes, bool *ret_changed)
{
    if (status == PR_OK)
        *ret_changed = changes == 1;
    return pr__sqlite_unit_status(unit, status);
}

pr_status pr__sqlite_saga_insert(pr_unit *unit, const pr__saga_key *key, const char *instance_id,
                                 bool *ret_inserted, int64_t *ret_now_us, pr_error *err)
{
    pr__sqlite_conn *conn = NULL;
    int64_t changes = 0;
    TRY(live(unit, key, &conn, err));
    *ret_now_us = pr__sqlite_now(unit->store);
    pr_status status =
        pr__sqlite_run(conn, sql_insert, &changes, err, "tttti", tenant_of(key), key->saga_type,
                       key->correlation_key, instance_id, *ret_now_us);
    return changed(unit, status, changes, ret_inserted);
}

pr_status pr__sqlite_saga_save(pr_unit *unit, const pr__saga_key *key, const pr__saga_save *save,
                               bool *ret_saved, pr_error *err)
{
    pr__sqlite_conn *conn = NULL;
    int64_t changes = 0;
    TRY(live(unit, key, &conn, err));
    pr_status status = pr__sqlite_run(
        conn, sql_save, &changes, err, "ttttitibttiit", tenant_of(key), key->saga_type,
        key->correlation_key, save->instance_id, save->version, save->lease_token,
        (int64_t)save->state_version, save->state ? save->state : (const void *)"",
        save->state_size, save->timeouts, save->last_messages, pr__sqlite_now(unit->store),
        (int64_t)save->complete, save->restart_id);
    return changed(unit, status, changes, ret_saved);
}

pr_status pr__sqlite_saga_complete(pr_unit *unit, const pr__saga_key *key, const char *instance_id,
                                   bool *ret_changed, pr_error *err)
{
    pr__sqlite_conn *conn = NULL;
    int64_t changes = 0;
    TRY(live(unit, key, &conn, err));
    pr_status status =
        pr__sqlite_run(conn, sql_complete, &changes, err, "tttti", tenant_of(key), key->saga_type,
                       key->correlation_key, instance_id, pr__sqlite_now(unit->store));
    return changed(unit, status, changes, ret_changed);
}

pr_status pr__sqlite_saga_lease(pr_unit *unit, const pr__saga_key *key, const pr__saga_lease *lease,
                                bool *ret_taken, pr_error *err)
{
    pr__sqlite_conn *conn = NULL;
    int64_t changes = 0;
    TRY(live(unit, key, &conn, err));
    pr_status status =
        pr__sqlite_run(conn, sql_lease, &changes, err, "ttttttii", tenant_of(key), key->saga_type,
                       key->correlation_key, lease->instance_id, lease->token, lease->owner,
                       pr__sqlite_now(unit->store), pr__saga_lease_bounded(lease->lease_ms) * 1000);
    return changed(unit, status, changes, ret_taken);
}

pr_status pr__sqlite_saga_renew(pr_unit *unit, const pr__saga_key *key, const pr__saga_lease *lease,
                                bool *ret_kept, pr_error *err)
{
    pr__sqlite_conn *conn = NULL;
    int64_t changes = 0;
    TRY(live(unit, key, &conn, err));
    pr_status status =
        pr__sqlite_run(conn, sql_renew, &changes, err, "tttttii", tenant_of(key), key->saga_type,
                       key->correlation_key, lease->instance_id, lease->token,
                       pr__sqlite_now(unit->store), pr__saga_lease_bounded(lease->lease_ms) * 1000);
    return changed(unit, status, changes, ret_kept);
}

pr_status pr__sqlite_saga_unlease(pr_unit *unit, const pr__saga_key *key, const char *token,
                                  bool *ret_released, pr_error *err)
{
    pr__sqlite_conn *conn = NULL;
    int64_t changes = 0;
    TRY(live(unit, key, &conn, err));
    pr_status status = pr__sqlite_run(conn, sql_unlease, &changes, err, "tttt", tenant_of(key),
                                      key->saga_type, key->correlation_key, token);
    return changed(unit, status, changes, ret_released);
}
