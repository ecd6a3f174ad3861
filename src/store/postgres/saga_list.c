/*
 * Sagas for operators: lists, one of them, the release of a lease, and the sweep of tombstones.
 *
 * Invariant: a page is handed over after it was read; a release and its audit row are one commit; a
 * row with a lease is never swept, nor one exactly at the cutoff.
 * Must not know: what a state means.
 */
#include "base/error.h"
#include "base/fault.h"
#include "base/memory.h"
#include "base/text.h"
#include "store/postgres/operations.h"
#include "store/postgres/saga.h"
#include "store/postgres/store.h"
#include "store/postgres/value.h"

#define ORIGIN "postgres.saga"
#define KEY    "tenant = $1 AND saga_type = $2 AND correlation_key = $3"
#define NOW    "pg_catalog.clock_timestamp()"
#define COLUMNS                                                                                    \
    "tenant, saga_type, correlation_key, instance_id, version, state_version, "                    \
    "pg_catalog.octet_length(state), timeouts, last_messages, lease_token, "                       \
    "lease_owner, lease_until, started_at, updated_at, completed_at, " NOW

static const char SQL_LIST[] =
    "SELECT " COLUMNS " FROM {p}saga WHERE ($1 IS NULL OR instance_id > $1) AND ($2 IS NULL OR "
    "saga_type = $2) AND ($3 IS NULL OR tenant = $3) AND ($4 = 0 OR (completed_at IS NOT NULL) = "
    "($4 = 2)) AND (NOT $5 OR lease_token IS NOT NULL) ORDER BY instance_id LIMIT $6";
static const char SQL_SHOW[] = "SELECT " COLUMNS ", state FROM {p}saga WHERE " KEY;
static const char SQL_LEASE[] =
    "SELECT lease_token, lease_owner, lease_until, " NOW " FROM {p}saga WHERE " KEY " FOR UPDATE";
static const char SQL_CLEAR[] =
    "UPDATE {p}saga SET lease_token = NULL, lease_owner = NULL, lease_until = NULL WHERE " KEY;
/* A row that an event or an operator works on is left for the next time. */
static const char SQL_SWEEP[] =
    "DELETE FROM {p}saga AS s USING (SELECT tenant, saga_type, correlation_key FROM {p}saga WHERE "
    "completed_at < " NOW " - $1 * interval '1 millisecond' AND lease_token IS NULL ORDER BY "
    "completed_at LIMIT $2 FOR UPDATE SKIP LOCKED) AS old WHERE s.tenant = old.tenant AND "
    "s.saga_type = old.saga_type AND s.correlation_key = old.correlation_key";

static pr_status read_record(const PGresult *result, int row, pr__arena *arena, pr_saga_record *ret,
                             pr_error *err)
{
    bool failed = false;
    pr_saga_record record = {.size = (uint32_t)sizeof record};
    char *id = pr__arena_alloc(arena, PR_UUID_TEXT_SIZE);
    if (!id)
        return pr__fail_nomem(err, ORIGIN);
    pr__pg_value_uuid(result, row, 3, id);
    record.instance_id = id;
    record.tenant = pr__pg_value_copy(result, row, 0, arena, &failed);
    record.saga_type = pr__pg_value_copy(result, row, 1, arena, &failed);
    record.key = pr__pg_value_copy(result, row, 2, arena, &failed);
    record.version = pr__pg_value_int(result, row, 4);
    record.state_version = (uint32_t)pr__pg_value_int(result, row, 5);
    record.state_size_bytes = (uint64_t)pr__pg_value_int(result, row, 6);
    record.timeouts = pr__pg_value_copy(result, row, 7, arena, &failed);
    record.last_messages = pr__pg_value_copy(result, row, 8, arena, &failed);
    record.started_at_us = pr__pg_value_instant(result, row, 12);
    record.updated_at_us = pr__pg_value_instant(result, row, 13);
    record.completed_at_us = pr__pg_value_instant(result, row, 14);
    if (!PQgetisnull(result, row, 9)) {
        const char *owner = pr__pg_value_copy(result, row, 10, arena, &failed);
        record.lease_owner = owner ? owner : "";
        record.lease_until_us = pr__pg_value_instant(result, row, 11);
        record.lease_left_ms =
            (record.lease_until_us - pr__pg_value_instant(result, row, 15)) / 1000;
    }
    if (failed)
        return pr__fail_nomem(err, ORIGIN);
    *ret = record;
    return PR_OK;
}

pr_status pr__pg_saga_list(pr_store *base, const pr_saga_list_options *opt,
                           pr_saga_list_page *ret_page, pr_saga_record_callback callback,
                           void *user, pr_error *err)
{
    pr__pg_store *store = pr__pg_store_of(base);
    AUTO_RESULT result = NULL;
    TRY(pr__pg_ready(store, err));
    AUTO(pr__arena) arena = pr__arena_new(0);
    if (!arena)
        return pr__fail_nomem(err, ORIGIN);
    TRY(pr__pg_query(&store->conn, SQL_LIST, &result, err, "uttioi", opt->after, opt->saga_type,
                     opt->tenant, (int64_t)opt->phase, (int)opt->leased, (int64_t)opt->limit + 1));
    uint32_t rows = (uint32_t)PQntuples(result);
    uint32_t found = rows < opt->limit ? rows : opt->limit;
    uint32_t given = 0;
    pr_saga_record record = {.instance_id = ""};
    bool on = true;
    while (on && given < found) {
        TRY(read_record(result, (int)given, arena, &record, err));
        given++;
        on = callback(user, &record);
    }
    ret_page->count = given;
    ret_page->next[0] = '\0';
    if (given > 0 && given < rows)
        pr__format(ret_page->next, sizeof ret_page->next, "%s", record.instance_id);
    return PR_OK;
}

static pr_status no_saga(const pr__saga_key *key, pr_error *err)
{
    return pr__fail(err, PR_E_NOT_FOUND, ORIGIN, "there is no saga \"%s\" of type \"%s\"",
                    key->correlation_key, key->saga_type);
}

pr_status pr__pg_saga_show(pr_store *base, const pr__saga_key *key,
                           pr_saga_record_callback callback, void *user, pr_error *err)
{
    pr__pg_store *store = pr__pg_store_of(base);
    AUTO_RESULT result = NULL;
    TRY(pr__pg_ready(store, err));
    AUTO(pr__arena) arena = pr__arena_new(0);
    if (!arena)
        return pr__fail_nomem(err, ORIGIN);
    pr_saga_record record;
    TRY(pr__pg_query(&store->conn, SQL_SHOW, &result, err, "ttt", key->tenant ? key->tenant : "",
                     key->saga_type, key->correlation_key));
    if (PQntuples(result) == 0)
        return no_saga(key, err);
    TRY(read_record(result, 0, arena, &record, err));
    record.state = PQgetvalue(result, 0, 16);
    record.state_size_bytes = (uint64_t)PQgetlength(result, 0, 16);
    (void)callback(user, &record);
    return PR_OK;
}

static pr_status release(pr__pg_store *store, const pr__saga_key *key, bool force, const char *who,
                         const char *reason, pr_error *err)
{
    pr__pg_conn *conn = &store->conn;
    const char *tenant = key->tenant ? key->tenant : "";
    AUTO_RESULT result = NULL;
    TRY(pr__pg_query(conn, SQL_LEASE, &result, err, "ttt", tenant, key->saga_type,
                     key->correlation_key));
    if (PQntuples(result) == 0)
        return no_saga(key, err);
    if (PQgetisnull(result, 0, 0))
        return pr__fail(err, PR_E_STATE, ORIGIN, "saga \"%s\" is not leased", key->correlation_key);
    int64_t left_us = pr__pg_value_instant(result, 0, 2) - pr__pg_value_instant(result, 0, 3);
    const char *owner = pr__pg_value_text(result, 0, 1);
    if (left_us > 0 && !force)
        return pr__fail(err, PR_E_STATE, ORIGIN,
                        "saga \"%s\" is leased by \"%s\" for another %lld ms: wait, or use force",
                        key->correlation_key, owner ? owner : "", (long long)(left_us / 1000));
    TRY(pr__pg_run(conn, SQL_CLEAR, NULL, err, "ttt", tenant, key->saga_type,
                   key->correlation_key));
    pr__audit_subject subject = {.saga_type = key->saga_type,
                                 .key = key->correlation_key,
                                 .tenant = tenant[0] ? tenant : NULL,
                                 .forced = force};
    TRY(pr__pg_audit(conn, &subject, "saga-release", who, reason, 1, err));
    PR_FAULT("store.before_saga_release_commit");
    return PR_OK;
}

pr_status pr__pg_saga_release(pr_store *base, const pr__saga_key *key, bool force, const char *who,
                              const char *reason, pr_error *err)
{
    pr__pg_store *store = pr__pg_store_of(base);
    TRY(pr__pg_ready(store, err));
    TRY(pr__pg_begin(&store->conn, err));
    return pr__pg_end(&store->conn, release(store, key, force, who, reason, err), err);
}

pr_status pr__pg_saga_sweep(pr_store *base, int64_t retention_ms, uint32_t max, uint64_t *ret_count,
                            pr_error *err)
{
    pr__pg_store *store = pr__pg_store_of(base);
    int64_t changes = 0;
    TRY(pr__pg_ready(store, err));
    TRY(pr__pg_begin(&store->conn, err));
    pr_status status = pr__pg_run(&store->conn, SQL_SWEEP, &changes, err, "ii",
                                  pr__saga_lease_bounded(retention_ms), (int64_t)max);
    TRY(pr__pg_end(&store->conn, status, err));
    *ret_count = (uint64_t)changes;
    return PR_OK;
}
