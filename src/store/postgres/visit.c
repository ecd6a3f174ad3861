/*
 * A message's way into a unit, and out of it: one round trip each.
 *
 * Invariants: the statements stay those of the single steps, in their order, each with a snapshot
 * of its own, since the mark may have waited for another's commit. Nothing is committed unless the
 * transaction is still the one that made the mark, and the mark stands in it, and the row that it
 * is to take with it went: a statement that finds it otherwise raises an error, and what stands
 * behind it in the pipeline is not run. What was not answered is not believed.
 *
 * Must not know: what is done about what was found.
 */
#include <string.h>

#include "base/error.h"
#include "base/fault.h"
#include "base/memory.h"
#include "base/text.h"
#include "store/postgres/inbox.h"
#include "store/postgres/outcome.h"
#include "store/postgres/value.h"

#define ORIGIN  "postgres.unit"

#define NOTHING "22012" /* division by zero: there was none */
#define FOREIGN "2201F" /* the root of a negative number: another transaction */

/* A mark of ours in the transaction that made it: 1. Without a mark, or when it stands in another
   transaction, an error. The count is no constant, so that nothing is raised by the planner. */
static const char SQL_CHECK[] =
    "SELECT CASE WHEN n OPERATOR(pg_catalog.=) 0 OR pg_catalog.pg_current_xact_id_if_assigned() "
    "OPERATOR(pg_catalog.=) $5 THEN 1 OPERATOR(pg_catalog./) n ELSE pg_catalog.sqrt("
    "(OPERATOR(pg_catalog.-) n)::pg_catalog.float8)::pg_catalog.int8 END FROM (SELECT "
    "pg_catalog.count(*) AS n FROM {p}inbox WHERE tenant OPERATOR(pg_catalog.=) $1 AND consumer "
    "OPERATOR(pg_catalog.=) $2 AND message_id OPERATOR(pg_catalog.=) $3 AND body_hash "
    "OPERATOR(pg_catalog.=) $4) AS m";
static const char SQL_TAKE[] =
    "WITH gone AS (DELETE FROM {p}inbox_parked WHERE tenant OPERATOR(pg_catalog.=) $1 AND consumer "
    "OPERATOR(pg_catalog.=) $2 AND message_id OPERATOR(pg_catalog.=) $3 AND state "
    "OPERATOR(pg_catalog.=) 'processing' AND lock_token OPERATOR(pg_catalog.=) $4 RETURNING 1) "
    "SELECT 1 OPERATOR(pg_catalog./) pg_catalog.count(*) FROM gone";

static void add_key(pr__pg_params *params, const pr__inbox_key *key)
{
    pr__pg_add_text(params, key->tenant ? key->tenant : "");
    pr__pg_add_text(params, key->consumer);
    pr__pg_add_text(params, key->message_id);
}

/* ---- in ---- */

enum { ENTER_MARK = PR__PG_BEGIN_CALLS, ENTER_FIND, ENTER_BLOCKED, ENTER_MAX };

typedef struct entering {
    pr__pg_unit_begin_calls begin;
    pr__pg_params mark, find, blocked;
    pr__pg_call calls[ENTER_MAX];
    int count;
} entering;

static void entering_fill(entering *in, const pr__pg_unit *unit, int64_t idle_ms,
                          const pr__inbox_visit *visit)
{
    in->mark = in->find = in->blocked = (pr__pg_params){.count = 0};
    pr__pg_begin_unit_calls(unit->conn, idle_ms, unit->token, &in->begin, in->calls);
    add_key(&in->mark, visit->key);
    pr__pg_add_bytes(&in->mark, visit->hash, PR_CONTENT_HASH_SIZE);
    in->calls[ENTER_MARK] = (pr__pg_call){.sql = pr__pg_sql_mark, .params = &in->mark};
    add_key(&in->find, visit->key);
    in->calls[ENTER_FIND] = (pr__pg_call){.sql = pr__pg_sql_find, .params = &in->find};
    in->count = ENTER_BLOCKED;
    if (pr__text_empty(visit->message_key) || visit->order == PR_ORDER_SKIP)
        return;
    add_key(&in->blocked, visit->key);
    pr__pg_add_text(&in->blocked, visit->message_key);
    pr__pg_add_bool(&in->blocked, visit->order == PR_ORDER_HALT);
    in->calls[in->count++] = (pr__pg_call){.sql = pr__pg_sql_blocked, .params = &in->blocked};
}

static pr_status read_facts(pr__pg_unit *unit, const pr__inbox_visit *visit, const entering *in,
                            pr__inbox_facts *facts, pr_error *err)
{
    TRY(pr__pg_inbox_read_mark(unit, visit->key, visit->hash, in->calls[ENTER_MARK].result,
                               &facts->mark, err));
    facts->found = pr__pg_inbox_read_row(in->calls[ENTER_FIND].result, visit->hash, &facts->row);
    facts->blocked = in->count > ENTER_BLOCKED && PQntuples(in->calls[ENTER_BLOCKED].result) > 0;
    return PR_OK;
}

/* Without named statements each of them is a round trip, and the settings are sent with BEGIN. */
static pr_status run_entering(pr__pg_store *store, pr__pg_unit *unit, entering *in, pr_error *err)
{
    int sent = 0;
    int done = 0;
    pr__pg_conn *conn = unit->conn;
    if (!conn->named) {
        TRY(pr__pg_begin_unit(conn, store->unit_idle_ms, unit->token, err));
        return pr__pg_exec_all(conn, &in->calls[ENTER_MARK], in->count - ENTER_MARK, &sent, &done,
                               err);
    }
    pr_error found = PR_ERROR_INIT;
    pr_status status = pr__pg_exec_all(conn, in->calls, in->count, &sent, &done, &found);
    return pr__pg_unit_begun(conn, status, done, &found, err);
}

pr_status pr__pg_unit_enter(pr_store *base, const pr__inbox_visit *visit, pr_unit **ret_unit,
                            pr__inbox_facts *ret_facts, pr_error *err)
{
    entering in;
    pr__pg_unit *unit = NULL;
    pr__inbox_facts facts = {.found = false};
    pr__pg_store *store = pr__pg_store_of(base);
    TRY(pr__inbox_key_check(visit->key, ORIGIN, err));
    TRY(pr__pg_unit_prepare(base, &unit, err));
    entering_fill(&in, unit, store->unit_idle_ms, visit);
    pr_status status = run_entering(store, unit, &in, err);
    if (status == PR_OK)
        status = read_facts(unit, visit, &in, &facts, err);
    pr__pg_calls_done(in.calls, in.count);
    if (status != PR_OK) {
        store->conn.watching = false;
        pr__pg_rollback(&store->conn);
        pr__free(unit);
        return status;
    }
    store->unit_open = true;
    *ret_facts = facts;
    *ret_unit = &unit->base;
    return PR_OK;
}

/* ---- out ---- */

enum { LEAVE_CHECK, LEAVE_TAKE, LEAVE_MAX = 3 }; /* and the commit, the last one */

typedef struct leaving {
    pr__pg_params check, take;
    pr__pg_call calls[LEAVE_MAX];
    int count, sent, done;
} leaving;

static void leaving_fill(leaving *out, const pr__pg_unit *unit, const pr__inbox_end *end)
{
    *out = (leaving){.count = 0};
    add_key(&out->check, end->key);
    pr__pg_add_bytes(&out->check, end->hash, PR_CONTENT_HASH_SIZE);
    pr__pg_add_xid(&out->check, (uint64_t)unit->xid);
    out->calls[out->count++] = (pr__pg_call){.sql = SQL_CHECK, .params = &out->check};
    if (end->token) {
        add_key(&out->take, end->key);
        pr__pg_add_text(&out->take, end->token);
        out->calls[out->count++] = (pr__pg_call){.sql = SQL_TAKE, .params = &out->take};
    }
    out->calls[out->count++] = (pr__pg_call){.sql = PR__PG_COMMIT};
}

/* Which statement was refused, and with which code: the connection stands, or the server said why
   it does not go on in a way that no commit can be behind. */
static pr_status refused(const leaving *out, pr_error *found, pr__inbox_check *ret_check,
                         pr_outcome *ret_outcome, pr_error *err)
{
    bool checked = out->done > LEAVE_CHECK;
    if (out->done == out->count - 1) {
        pr__error_context(found, "commit");
    } else if (!checked && pr__text_equal(found->sqlstate, FOREIGN)) {
        return pr__pg_unit_not_mine(ret_outcome, err);
    } else if (pr__text_equal(found->sqlstate, NOTHING)) {
        *ret_check = checked ? PR__INBOX_TAKEN : PR__INBOX_UNMARKED;
        return PR_OK;
    } else {
        *ret_check = PR__INBOX_BROKEN;
    }
    pr__error_copy(err, found);
    return found->status;
}

/* The commit was sent, and the connection is gone. A pooler may say so in the server's place. */
static bool is_lost(const pr__pg_conn *conn, const leaving *out, const pr_error *found)
{
    return !conn->pg && out->sent == out->count && !pr__text_equal(found->sqlstate, "25006");
}

static pr_status run_leaving(pr__pg_unit *unit, leaving *out, const pr__inbox_end *end,
                             pr__inbox_check *ret_check, pr_outcome *ret_outcome, pr_error *err)
{
    pr__pg_conn *conn = unit->conn;
    pr_error found = PR_ERROR_INIT;
    pr_status status =
        pr__pg_exec_all(conn, out->calls, out->count, &out->sent, &out->done, &found);
    PR_FAULT("store.after_unit_commit");
    if (status == PR_OK)
        status = pr__pg_committed(out->calls[out->count - 1].result, err);
    else if (is_lost(conn, out, &found)) {
        pr__pg_trace own = {.xid = unit->xid, .mark = end->key, .marked_at_us = unit->marked_at_us};
        pr__error_context(&found, "commit");
        return pr__pg_resolve(pr__pg_store_of(unit->base.store), &own, &found, ret_outcome, err);
    } else {
        status = refused(out, &found, ret_check, ret_outcome, err);
        pr__pg_rollback(conn);
        return status;
    }
    if (status == PR_OK)
        *ret_outcome = PR_OUTCOME_COMMITTED;
    return status;
}

pr_status pr__pg_inbox_complete(pr_unit *base, const pr__inbox_end *end, pr__inbox_check *ret_check,
                                pr_outcome *ret_outcome, pr_error *err)
{
    leaving out;
    pr__pg_unit *unit = pr__pg_unit_of(base);
    *ret_check = PR__INBOX_KEPT;
    TRY(pr__pg_unit_may_commit(base, ret_outcome, err));
    leaving_fill(&out, unit, end);
    pr__pg_unit_finish(unit);
    PR_FAULT("store.before_unit_commit");
    pr_status status = run_leaving(unit, &out, end, ret_check, ret_outcome, err);
    pr__pg_calls_done(out.calls, out.count);
    pr__pg_params_done(&out.check);
    return status;
}
