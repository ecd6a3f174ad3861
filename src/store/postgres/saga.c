/*
 * Sagas in a unit's transaction: one row each, locked at load, moved by conditional updates.
 *
 * Invariant: a row is saved only when instance and version are those that were loaded, and a leased
 * step only by its token; whoever lost learns it from the row count. Statements run on the host's
 * connection too, whatever its search_path.
 * Must not know: what a state means, when a saga is complete.
 */
#include "store/postgres/saga.h"

#include "base/error.h"
#include "base/text.h"
#include "store/postgres/unit.h"
#include "store/postgres/value.h"

#define ORIGIN "postgres.saga"
#define IS     "OPERATOR(pg_catalog.=)"
#define KEY    "tenant " IS " $1 AND saga_type " IS " $2 AND correlation_key " IS " $3"
#define NOW    "pg_catalog.clock_timestamp()"
#define MS     "interval '1 millisecond'"

#define LOAD                                                                                       \
    "SELECT instance_id, version, state_version, state, timeouts, last_messages, lease_token, "    \
    "lease_owner, lease_until, started_at, updated_at, completed_at, " NOW                         \
    " FROM {p}saga WHERE " KEY
static const char SQL_LOAD[] = LOAD " FOR UPDATE";
/* A transaction that has written nothing has made no mark: whoever is not to run waits for no one.
   */
const char pr__pg_sql_saga_look[] =
    LOAD " AND pg_catalog.pg_current_xact_id_if_assigned() IS NOT NULL FOR UPDATE";
static const char SQL_NOW[] = "SELECT " NOW;
static const char SQL_INSERT[] =
    "INSERT INTO {p}saga (tenant, saga_type, correlation_key, instance_id, version, state, "
    "state_version, started_at, updated_at) SELECT $1, $2, $3, $4, 0, '', 0, now, now FROM "
    "(SELECT " NOW " AS now) AS c ON CONFLICT (tenant, saga_type, correlation_key) DO NOTHING "
    "RETURNING started_at";
#define SAVE                                                                                       \
    "UPDATE {p}saga SET version = version OPERATOR(pg_catalog.+) 1, state_version = $7, state = "  \
    "$8, timeouts = $9, last_messages = $10, updated_at = now, completed_at = CASE WHEN $11 "      \
    "THEN now END, started_at = CASE WHEN $12 IS NULL THEN started_at ELSE now END, instance_id "  \
    "= coalesce($12, "                                                                             \
    "instance_id), lease_token = CASE WHEN $6 IS NULL THEN lease_token END, lease_owner = CASE "   \
    "WHEN $6 IS NULL THEN lease_owner END, lease_until = CASE WHEN $6 IS NULL THEN lease_until "   \
    "END FROM (SELECT " NOW " AS now) AS c WHERE " KEY " AND instance_id " IS                      \
    " $4 AND version " IS " $5 AND ($6 IS NULL OR lease_token " IS " $6)"
static const char SQL_SAVE[] = SAVE;
/* What is refused divides by zero. */
const char pr__pg_sql_saga_change[] =
    "WITH saved AS (" SAVE " RETURNING 1) SELECT 1 OPERATOR(pg_catalog./) pg_catalog.count(*) FROM "
    "saved";
static const char SQL_COMPLETE[] = "UPDATE {p}saga SET completed_at = " NOW " WHERE " KEY
                                   " AND instance_id = $4 AND completed_at IS NULL";
static const char SQL_LEASE[] =
    "UPDATE {p}saga SET lease_token = $5, lease_owner = $6, lease_until = now + $7 * " MS
    " FROM (SELECT " NOW " AS now) AS c WHERE " KEY
    " AND instance_id = $4 AND completed_at IS NULL AND (lease_token IS NULL OR lease_until <= "
    "now)";
static const char SQL_RENEW[] = "UPDATE {p}saga SET lease_until = " NOW " + $6 * " MS " WHERE " KEY
                                " AND instance_id = $4 AND lease_token = $5";
static const char SQL_UNLEASE[] =
    "UPDATE {p}saga SET lease_token = NULL, lease_owner = NULL, lease_until = NULL WHERE " KEY
    " AND lease_token = $4";

/* The connection of a live unit, for a key that can be found again. */
static pr_status live(pr_unit *unit, const pr__saga_key *key, pr__pg_conn **ret_conn, pr_error *err)
{
    TRY(pr__saga_key_check(key, err));
    TRY(pr__pg_unit_live(unit, err));
    *ret_conn = pr__pg_unit_of(unit)->conn;
    return PR_OK;
}

static const char *tenant_of(const pr__saga_key *key)
{
    return key->tenant ? key->tenant : "";
}

void pr__pg_saga_add_key(pr__pg_params *params, const pr__saga_key *key)
{
    pr__pg_add_text(params, tenant_of(key));
    pr__pg_add_text(params, key->saga_type);
    pr__pg_add_text(params, key->correlation_key);
}

void pr__pg_saga_add_save(pr__pg_params *params, const pr__saga_key *key, const pr__saga_save *save)
{
    pr__pg_saga_add_key(params, key);
    pr__pg_add_uuid(params, save->instance_id);
    pr__pg_add_int(params, save->version);
    pr__pg_add_uuid(params, save->lease_token);
    pr__pg_add_int(params, save->state_version);
    pr__pg_add_bytes(params, save->state ? save->state : (const void *)"", save->state_size);
    pr__pg_add_text(params, save->timeouts);
    pr__pg_add_text(params, save->last_messages);
    pr__pg_add_bool(params, save->complete);
    pr__pg_add_uuid(params, save->restart_id);
}

pr_status pr__pg_saga_read(const PGresult *result, pr__arena *arena, pr__saga_row *row,
                           pr_error *err)
{
    bool failed = false;
    pr__pg_value_uuid(result, 0, 0, row->instance_id);
    row->version = pr__pg_value_int(result, 0, 1);
    row->state_version = (uint32_t)pr__pg_value_int(result, 0, 2);
    row->state_size = (size_t)PQgetlength(result, 0, 3);
    row->state = pr__arena_memdup(arena, PQgetvalue(result, 0, 3), row->state_size);
    row->timeouts = pr__pg_value_copy(result, 0, 4, arena, &failed);
    row->last_messages = pr__pg_value_copy(result, 0, 5, arena, &failed);
    pr__pg_value_uuid(result, 0, 6, row->lease_token);
    row->lease_owner = pr__pg_value_copy(result, 0, 7, arena, &failed);
    row->lease_until_us = pr__pg_value_instant(result, 0, 8);
    row->started_at_us = pr__pg_value_instant(result, 0, 9);
    row->updated_at_us = pr__pg_value_instant(result, 0, 10);
    row->completed_at_us = pr__pg_value_instant(result, 0, 11);
    row->now_us = pr__pg_value_instant(result, 0, 12);
    if (failed || !row->state)
        return pr__fail_nomem(err, ORIGIN);
    return PR_OK;
}

static pr_status load(pr__pg_conn *conn, const pr__saga_key *key, pr__arena *arena, bool *ret_found,
                      pr__saga_row *row, pr_error *err)
{
    AUTO_RESULT result = NULL;
    TRY(pr__pg_query(conn, SQL_LOAD, &result, err, "ttt", tenant_of(key), key->saga_type,
                     key->correlation_key));
    *ret_found = PQntuples(result) > 0;
    if (*ret_found)
        return pr__pg_saga_read(result, arena, row, err);
    return pr__pg_int(conn, SQL_NOW, &row->now_us, NULL, err, "");
}

/* After waiting too long for a lock nothing of the unit can be committed. */
static pr_status ended(pr_unit *unit, pr_status status)
{
    if (status == PR_E_BUSY)
        unit->rollback_only = true;
    return pr__pg_unit_status(unit, status);
}

pr_status pr__pg_saga_load(pr_unit *unit, const pr__saga_key *key, pr__arena *arena,
                           bool *ret_found, pr__saga_row *ret_row, pr_error *err)
{
    pr__pg_conn *conn = NULL;
    pr__saga_row row = {.version = 0};
    TRY(live(unit, key, &conn, err));
    TRY(ended(unit, load(conn, key, arena, ret_found, &row, err)));
    *ret_row = row;
    return PR_OK;
}

/* A conditional change of the row: *ret_changed tells whether it was. */
static pr_status changed(pr_unit *unit, pr_status status, int64_t changes, bool *ret_changed)
{
    if (status == PR_OK)
        *ret_changed = changes == 1;
    return ended(unit, status);
}

pr_status pr__pg_saga_insert(pr_unit *unit, const pr__saga_key *key, const char *instance_id,
                             bool *ret_inserted, int64_t *ret_now_us, pr_error *err)
{
    pr__pg_conn *conn = NULL;
    bool inserted = false;
    TRY(live(unit, key, &conn, err));
    TRY(ended(unit, pr__pg_int(conn, SQL_INSERT, ret_now_us, &inserted, err, "tttu", tenant_of(key),
                               key->saga_type, key->correlation_key, instance_id)));
    *ret_inserted = inserted;
    return PR_OK;
}

pr_status pr__pg_saga_save(pr_unit *unit, const pr__saga_key *key, const pr__saga_save *save,
                           bool *ret_saved, pr_error *err)
{
    pr__pg_conn *conn = NULL;
    AUTO_PARAMS params = {.count = 0};
    AUTO_RESULT result = NULL;
    int64_t changes = 0;
    TRY(live(unit, key, &conn, err));
    pr__pg_saga_add_save(&params, key, save);
    pr_status status = pr__pg_exec(conn, SQL_SAVE, &params, &result, err);
    if (status == PR_OK)
        (void)pr__parse_int64(PQcmdTuples(result), 0, INT64_MAX, &changes);
    return changed(unit, status, changes, ret_saved);
}

pr_status pr__pg_saga_complete(pr_unit *unit, const pr__saga_key *key, const char *instance_id,
                               bool *ret_changed, pr_error *err)
{
    pr__pg_conn *conn = NULL;
    int64_t changes = 0;
    TRY(live(unit, key, &conn, err));
    pr_status status = pr__pg_run(conn, SQL_COMPLETE, &changes, err, "tttu", tenant_of(key),
                                  key->saga_type, key->correlation_key, instance_id);
    return changed(unit, status, changes, ret_changed);
}

pr_status pr__pg_saga_lease(pr_unit *unit, const pr__saga_key *key, const pr__saga_lease *lease,
                            bool *ret_taken, pr_error *err)
{
    pr__pg_conn *conn = NULL;
    int64_t changes = 0;
    TRY(live(unit, key, &conn, err));
    pr_status status =
        pr__pg_run(conn, SQL_LEASE, &changes, err, "tttuuti", tenant_of(key), key->saga_type,
                   key->correlation_key, lease->instance_id, lease->token, lease->owner,
                   pr__saga_lease_bounded(lease->lease_ms));
    return changed(unit, status, changes, ret_taken);
}

pr_status pr__pg_saga_renew(pr_unit *unit, const pr__saga_key *key, const pr__saga_lease *lease,
                            bool *ret_kept, pr_error *err)
{
    pr__pg_conn *conn = NULL;
    int64_t changes = 0;
    TRY(live(unit, key, &conn, err));
    pr_status status = pr__pg_run(conn, SQL_RENEW, &changes, err, "tttuui", tenant_of(key),
                                  key->saga_type, key->correlation_key, lease->instance_id,
                                  lease->token, pr__saga_lease_bounded(lease->lease_ms));
    return changed(unit, status, changes, ret_kept);
}

pr_status pr__pg_saga_unlease(pr_unit *unit, const pr__saga_key *key, const char *token,
                              bool *ret_released, pr_error *err)
{
    pr__pg_conn *conn = NULL;
    int64_t changes = 0;
    TRY(live(unit, key, &conn, err));
    pr_status status = pr__pg_run(conn, SQL_UNLEASE, &changes, err, "tttu", tenant_of(key),
                                  key->saga_type, key->correlation_key, token);
    return changed(unit, status, changes, ret_released);
}
