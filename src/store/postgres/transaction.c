/*
 * Transactions on a connection.
 *
 * Invariants: nothing is set but within a transaction, so that a pooler may hand every transaction
 * to another session; every transaction of ours is READ COMMITTED (or one read-only snapshot) with
 * a lock timeout, an end to being idle, and a commit that waits for the disk, whatever the
 * database's defaults are; names are looked up in pg_catalog alone.
 *
 * Must not know: the tables.
 */
#include <string.h>

#include "base/error.h"
#include "base/text.h"
#include "store/postgres/connection.h"

#define ORIGIN "postgres"

bool pr__pg_in_transaction(const pr__pg_conn *conn)
{
    if (!conn->pg)
        return false;
    switch (PQtransactionStatus(conn->pg)) {
    case PQTRANS_INTRANS:
    case PQTRANS_INERROR:
    case PQTRANS_ACTIVE:
        return true;
    case PQTRANS_IDLE:
    case PQTRANS_UNKNOWN:
        return false;
    }
    return false;
}

/* In a unit other code works too, by its own search_path; the unit's token stands in a setting of
   its transaction, so that a commit behind its back shows. */
#define READ_WRITE_REFUSED "0A000" /* what BEGIN … READ WRITE gets from a standby */

/* The wrong node, said in the words of other statements: the next connection may find another. */
static pr_status refuse_standby(pr__pg_conn *conn, pr_error *err)
{
    pr_status status =
        pr__fail_retry(err, PR_E_BACKEND, PR_RETRY_RECONNECT, ORIGIN,
                       "the server is read-only: name all hosts and target_session_attrs="
                       "read-write");
    if (err)
        pr__format(err->sqlstate, sizeof err->sqlstate, "25006");
    pr__pg_conn_drop(conn);
    return status;
}

/* What is set in each transaction; %s: more of it. */
#define SETTINGS                                                                                   \
    "SELECT pg_catalog.set_config('lock_timeout', '%lld', true), "                                 \
    "pg_catalog.set_config('statement_timeout', '%lld', true), "                                   \
    "pg_catalog.set_config('idle_in_transaction_session_timeout', '%lld', true), "                 \
    "pg_catalog.set_config('synchronous_commit', 'on', true), %s, '%s', true)"
#define SETTINGS_OURS                                                                              \
    "pg_catalog.set_config('jit', 'off', true), pg_catalog.set_config('search_path'"
/* The statements of a claim are planned once for a connection and not at each use, since planning
   costs more than running them; by their indexes, since the plan may be older than the rows. */
#define SETTINGS_PLANNED                                                                           \
    "pg_catalog.set_config('plan_cache_mode', 'force_generic_plan', true), "                       \
    "pg_catalog.set_config('enable_seqscan', 'off', true), "                                       \
    "pg_catalog.set_config('enable_bitmapscan', 'off', true), " SETTINGS_OURS
#define SETTINGS_UNIT "pg_catalog.set_config('postroom.unit'"
#define BEGIN_WRITE   "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE"
#define BEGIN_READ    "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"

static pr_status may_begin(pr__pg_conn *conn, pr_error *err)
{
    TRY(pr__pg_usable(conn, err));
    if (pr__pg_in_transaction(conn))
        return pr__fail(err, PR_E_STATE, ORIGIN,
                        "a transaction is open on this store: finish its unit first, or use a "
                        "clone of the store");
    return PR_OK;
}

static pr_status begun(pr__pg_conn *conn, pr_status status, const pr_error *found, pr_error *err)
{
    if (status != PR_OK && pr__text_equal(found->sqlstate, READ_WRITE_REFUSED))
        return refuse_standby(conn, err);
    if (status != PR_OK)
        pr__error_copy(err, found);
    return status;
}

static pr_status begin(pr__pg_conn *conn, const char *mode, int64_t idle_ms, int64_t lock_ms,
                       int64_t statement_ms, const char *more, const char *last, pr_error *err)
{
    char text[PR__PG_BEGIN_SIZE];
    TRY(may_begin(conn, err));
    pr__format(text, sizeof text, "%s; " SETTINGS, mode, (long long)lock_ms,
               (long long)statement_ms, (long long)idle_ms, more, last);
    pr_error found = PR_ERROR_INIT;
    pr_status status = pr__pg_script(conn, text, NULL, &found);
    return begun(conn, status, &found, err);
}

/* ---- of a claim ---- */

void pr__pg_begin_calls(const pr__pg_conn *conn, bool writes, char text[PR__PG_BEGIN_SIZE],
                        pr__pg_call calls[PR__PG_BEGIN_CALLS])
{
    pr__format(text, PR__PG_BEGIN_SIZE, SETTINGS, (long long)conn->limits.busy_ms, 0LL,
               (long long)conn->limits.idle_ms, SETTINGS_PLANNED, "pg_catalog");
    calls[0] = (pr__pg_call){.sql = writes ? BEGIN_WRITE : BEGIN_READ};
    calls[1] = (pr__pg_call){.sql = text};
}

pr_status pr__pg_begin_claim(pr__pg_conn *conn, bool writes, pr_error *err)
{
    return begin(conn, writes ? BEGIN_WRITE : BEGIN_READ, conn->limits.idle_ms,
                 conn->limits.busy_ms, 0, SETTINGS_PLANNED, "pg_catalog", err);
}

pr_status pr__pg_begin_claim_with(pr__pg_conn *conn, const char *sql, const pr__pg_params *params,
                                  PGresult **ret_result, pr_error *err)
{
    char text[PR__PG_BEGIN_SIZE];
    pr__pg_call calls[PR__PG_BEGIN_CALLS + 1];
    int sent = 0;
    int done = 0;
    pr_error found = PR_ERROR_INIT;
    if (!conn->named) {
        TRY(pr__pg_begin_claim(conn, /* writes= */ true, err));
        return pr__pg_exec(conn, sql, params, ret_result, err);
    }
    TRY(may_begin(conn, err));
    pr__pg_begin_calls(conn, /* writes= */ true, text, calls);
    calls[PR__PG_BEGIN_CALLS] = (pr__pg_call){.sql = sql, .params = params};
    pr_status status = pr__pg_exec_all(conn, calls, PR__PG_BEGIN_CALLS + 1, &sent, &done, &found);
    if (status == PR_OK) {
        *ret_result = calls[PR__PG_BEGIN_CALLS].result;
        calls[PR__PG_BEGIN_CALLS].result = NULL;
    }
    pr__pg_calls_done(calls, PR__PG_BEGIN_CALLS + 1);
    return begun(conn, status, &found, err);
}

/* ---- of all others ---- */

pr_status pr__pg_begin_with(pr__pg_conn *conn, int64_t idle_ms, int64_t lock_ms,
                            int64_t statement_ms, pr_error *err)
{
    return begin(conn, BEGIN_WRITE, idle_ms ? idle_ms : conn->limits.idle_ms,
                 lock_ms ? lock_ms : conn->limits.busy_ms, statement_ms, SETTINGS_OURS,
                 "pg_catalog", err);
}

pr_status pr__pg_begin(pr__pg_conn *conn, pr_error *err)
{
    return pr__pg_begin_with(conn, 0, 0, 0, err);
}

pr_status pr__pg_begin_read(pr__pg_conn *conn, int64_t statement_ms, pr_error *err)
{
    return begin(conn, BEGIN_READ, conn->limits.idle_ms, conn->limits.busy_ms, statement_ms,
                 SETTINGS_OURS, "pg_catalog", err);
}

/* A statement of its own, so that it comes before the locks of the next one. */
static const char SQL_UNIT_SETTINGS[] =
    "SELECT pg_catalog.set_config('lock_timeout', $1, true), "
    "pg_catalog.set_config('statement_timeout', '0', true), "
    "pg_catalog.set_config('idle_in_transaction_session_timeout', $2, true), "
    "pg_catalog.set_config('synchronous_commit', 'on', true)";

void pr__pg_begin_unit_calls(const pr__pg_conn *conn, int64_t idle_ms,
                             pr__pg_unit_settings *settings, pr__pg_call calls[PR__PG_BEGIN_CALLS])
{
    pr__pg_params_init(&settings->params);
    pr__format(settings->lock_ms, sizeof settings->lock_ms, "%lld",
               (long long)conn->limits.busy_ms);
    pr__format(settings->idle_ms, sizeof settings->idle_ms, "%lld", (long long)idle_ms);
    pr__pg_add_text(&settings->params, settings->lock_ms);
    pr__pg_add_text(&settings->params, settings->idle_ms);
    calls[0] = (pr__pg_call){.sql = BEGIN_WRITE};
    calls[1] = (pr__pg_call){.sql = SQL_UNIT_SETTINGS, .params = &settings->params};
}

pr_status pr__pg_unit_begun(pr__pg_conn *conn, pr_status status, int done, const pr_error *found,
                            pr_error *err)
{
    if (status != PR_OK && done == 0)
        return begun(conn, status, found, err);
    if (status != PR_OK) {
        pr__error_copy(err, found);
        return status;
    }
    conn->committed = false;
    conn->begun = false;
    conn->watching = true;
    return PR_OK;
}

pr_status pr__pg_begin_unit(pr__pg_conn *conn, int64_t idle_ms, const char *token, pr_error *err)
{
    TRY(begin(conn, BEGIN_WRITE, idle_ms, conn->limits.busy_ms, 0, SETTINGS_UNIT, token, err));
    conn->committed = false;
    conn->begun = false;
    conn->watching = true;
    return PR_OK;
}

pr_status pr__pg_committed(PGresult *result, pr_error *err)
{
    if (strcmp(PQcmdStatus(result), "COMMIT") == 0)
        return PR_OK;
    return pr__fail(err, PR_E_STATE, ORIGIN, /* success, and the tag ROLLBACK */
                    "the transaction was aborted before: it was rolled back");
}

pr_status pr__pg_commit(pr__pg_conn *conn, pr_error *err)
{
    TRY(pr__pg_usable(conn, err)); /* lost before: the server rolls back what was not committed */
    pr_error found = PR_ERROR_INIT;
    AUTO_RESULT result = NULL;
    pr_status status = pr__pg_script(conn, PR__PG_COMMIT, &result, &found);
    if (status == PR_OK)
        return pr__pg_committed(result, err);
    bool gone = conn->borrowed ? conn->aborted : !conn->pg;
    if (gone)
        found.retry = PR_RETRY_UNKNOWN;
    pr__error_context(&found, "commit");
    pr__error_copy(err, &found);
    if (!gone)
        pr__pg_rollback(conn);
    return status;
}

void pr__pg_rollback(pr__pg_conn *conn)
{
    if (pr__pg_in_transaction(conn) && pr__pg_script(conn, "ROLLBACK", NULL, NULL) != PR_OK)
        pr__pg_conn_drop(conn);
}

pr_status pr__pg_end(pr__pg_conn *conn, pr_status status, pr_error *err)
{
    if (status == PR_OK)
        return pr__pg_commit(conn, err);
    pr__pg_rollback(conn);
    return status;
}
