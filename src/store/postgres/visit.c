/*
 * A message's way into a unit, and out of it: one round trip each, with the saga that it moves.
 *
 * Invariants: the statements stay those of the single steps, in their order, each with a snapshot
 * of its own, since the mark may have waited for another's commit. Nothing is committed unless the
 * transaction is still the one that made the mark, and the mark stands in it, and the row that it
 * is to take with it went, and its saga's row is as it was loaded: a statement that finds it
 * otherwise raises an error, and what stands behind it in the pipeline is not run. What was not
 * answered is not believed.
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
#include "store/postgres/saga.h"
#include "store/postgres/value.h"

#define ORIGIN              "postgres.unit"
#define NOTHING             "22012" /* division by zero: what was to be there is not */

#define SAME_TRANSACTION(n) "pg_catalog.pg_current_xact_id_if_assigned() OPERATOR(pg_catalog.=) $" n

/* When the mark was made before anything else, nothing but the end of its transaction takes it
   back: no savepoint is older. Neither is a constant, for the planner would raise it. */
static const char SQL_SAME[] =
    "SELECT 1 OPERATOR(pg_catalog./) coalesce(" SAME_TRANSACTION("1") ", false)::pg_catalog.int4";
static const char SQL_MARKED[] =
    "SELECT 1 OPERATOR(pg_catalog./) pg_catalog.count(*) FROM {p}inbox WHERE tenant "
    "OPERATOR(pg_catalog.=) $2 AND consumer OPERATOR(pg_catalog.=) $3 AND message_id "
    "OPERATOR(pg_catalog.=) $4 AND processed_at OPERATOR(pg_catalog.=) $5 AND " SAME_TRANSACTION(
        "1");
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

enum { ENTER_MARK = PR__PG_BEGIN_CALLS, ENTER_FIND, ENTER_MORE, ENTER_MAX = ENTER_MORE + 2 };

typedef struct entering {
    pr__pg_unit_settings settings;
    pr__pg_params mark, find, blocked, look;
    pr__pg_call calls[ENTER_MAX];
    int count;
    int blocked_at, look_at; /* of them; 0 = it is not asked for */
} entering;

static void ask_blocked(entering *in, const pr__inbox_visit *visit)
{
    add_key(&in->blocked, visit->key);
    pr__pg_add_text(&in->blocked, visit->message_key);
    pr__pg_add_bool(&in->blocked, visit->order == PR_ORDER_HALT);
    in->blocked_at = in->count;
    in->calls[in->count++] = (pr__pg_call){.sql = pr__pg_sql_blocked, .params = &in->blocked};
}

/* The last one: what cannot be had of it spoils nothing that is found before. */
static void ask_look(entering *in, const pr__inbox_visit *visit)
{
    pr__pg_saga_add_key(&in->look, visit->saga->key);
    in->look_at = in->count;
    in->calls[in->count++] = (pr__pg_call){.sql = pr__pg_sql_saga_look, .params = &in->look};
}

static void entering_fill(entering *in, const pr__pg_store *store, const pr__inbox_visit *visit)
{
    pr__pg_params_init(&in->mark);
    pr__pg_params_init(&in->find);
    pr__pg_params_init(&in->blocked);
    pr__pg_params_init(&in->look);
    in->blocked_at = in->look_at = 0;
    pr__pg_begin_unit_calls(&store->conn, store->unit_idle_ms, &in->settings, in->calls);
    add_key(&in->mark, visit->key);
    pr__pg_add_bytes(&in->mark, visit->hash, PR_CONTENT_HASH_SIZE);
    in->calls[ENTER_MARK] = (pr__pg_call){.sql = pr__pg_sql_mark, .params = &in->mark};
    add_key(&in->find, visit->key);
    in->calls[ENTER_FIND] = (pr__pg_call){.sql = pr__pg_sql_find, .params = &in->find};
    in->count = ENTER_MORE;
    if (!pr__text_empty(visit->message_key) && visit->order != PR_ORDER_SKIP)
        ask_blocked(in, visit);
    if (visit->saga && pr__saga_key_check(visit->saga->key, NULL) == PR_OK)
        ask_look(in, visit);
}

/* The clock of a row that is not there is that of the mark, an instant ago. */
static pr_status read_look(const pr__pg_unit *unit, const PGresult *result, pr__saga_look *look,
                           pr_error *err)
{
    pr__saga_row row = {.now_us = unit->marked_at_us};
    look->found = PQntuples(result) > 0;
    if (look->found)
        TRY(pr__pg_saga_read(result, look->arena, &row, err));
    look->row = row;
    look->loaded = true;
    return PR_OK;
}

static pr_status read_facts(pr__pg_unit *unit, const pr__inbox_visit *visit, const entering *in,
                            pr__inbox_facts *facts, pr_error *err)
{
    TRY(pr__pg_inbox_read_mark(unit, visit->key, visit->hash, in->calls[ENTER_MARK].result,
                               &facts->mark, err));
    unit->marked_first = facts->mark == PR__MARK_NEW;
    facts->found = pr__pg_inbox_read_row(in->calls[ENTER_FIND].result, visit->hash, &facts->row);
    facts->blocked = in->blocked_at && PQntuples(in->calls[in->blocked_at].result) > 0;
    return visit->saga && in->look_at && facts->mark == PR__MARK_NEW
               ? read_look(unit, in->calls[in->look_at].result, visit->saga, err)
               : PR_OK;
}

/* *ret_without: all but the saga's row could be had, and nothing is wrong with the connection. */
static pr_status enter(pr_store *base, const pr__inbox_visit *visit, pr_unit **ret_unit,
                       pr__inbox_facts *ret_facts, bool *ret_without, pr_error *err)
{
    entering in;
    int sent = 0;
    int done = 0;
    pr__pg_unit *unit = NULL;
    pr__inbox_facts facts = {.found = false};
    pr__pg_store *store = pr__pg_store_of(base);
    pr_error found = PR_ERROR_INIT;
    TRY(pr__pg_unit_prepare(base, &unit, err));
    entering_fill(&in, store, visit);
    pr_status status = pr__pg_exec_all(unit->conn, in.calls, in.count, &sent, &done, &found);
    status = pr__pg_unit_begun(unit->conn, status, done, &found, err);
    if (status == PR_OK)
        status = read_facts(unit, visit, &in, &facts, err);
    pr__pg_calls_done(in.calls, in.count);
    *ret_without = status != PR_OK && in.look_at && done == in.look_at && store->conn.pg;
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

/* A row that cannot be had, such as one that another holds for long, is the handler's affair, and
   none of a message that is not to be handled: it enters without. */
pr_status pr__pg_unit_enter(pr_store *base, const pr__inbox_visit *visit, pr_unit **ret_unit,
                            pr__inbox_facts *ret_facts, pr_error *err)
{
    bool without = false;
    pr_error found = PR_ERROR_INIT;
    TRY(pr__inbox_key_check(visit->key, ORIGIN, err));
    pr_status status = enter(base, visit, ret_unit, ret_facts, &without, &found);
    if (without) {
        pr__inbox_visit alone = *visit;
        alone.saga = NULL;
        return enter(base, &alone, ret_unit, ret_facts, &without, err);
    }
    if (status != PR_OK)
        pr__error_copy(err, &found);
    return status;
}

/* ---- out ---- */

enum { LEAVE_CHECK, LEAVE_MORE, LEAVE_MAX = 4 }; /* and the commit, the last one */

typedef struct leaving {
    pr__pg_trace own;
    pr__pg_params check, take, change;
    pr__pg_call calls[LEAVE_MAX];
    int count, sent, done;
    int change_at; /* of them; 0 = no saga is to be saved */
} leaving;

static void leaving_fill(leaving *out, const pr__pg_unit *unit, const pr__inbox_end *end)
{
    out->own =
        (pr__pg_trace){.xid = unit->xid, .mark = end->key, .marked_at_us = unit->marked_at_us};
    out->count = 0;
    out->change_at = 0;
    pr__pg_params_init(&out->check);
    pr__pg_params_init(&out->take);
    pr__pg_params_init(&out->change);
    pr__pg_add_xid(&out->check, (uint64_t)unit->xid);
    if (!unit->marked_first) {
        add_key(&out->check, end->key);
        pr__pg_add_instant(&out->check, unit->marked_at_us);
    }
    out->calls[out->count++] =
        (pr__pg_call){.sql = unit->marked_first ? SQL_SAME : SQL_MARKED, .params = &out->check};
    if (end->token) {
        add_key(&out->take, end->key);
        pr__pg_add_text(&out->take, end->token);
        out->calls[out->count++] = (pr__pg_call){.sql = SQL_TAKE, .params = &out->take};
    }
    if (end->saga) {
        pr__pg_saga_add_save(&out->change, end->saga->key, &end->saga->save);
        out->change_at = out->count;
        out->calls[out->count++] =
            (pr__pg_call){.sql = pr__pg_sql_saga_change, .params = &out->change};
    }
    out->calls[out->count++] = (pr__pg_call){.sql = PR__PG_COMMIT};
}

/* The transaction is another one, or without its mark. What was ended with the mark was committed
   by other code, who knows with what. */
static pr_status unmarked(pr__pg_conn *conn, const leaving *out, pr__inbox_check *ret_check,
                          pr_outcome *ret_outcome, pr_error *err)
{
    bool stands = false;
    *ret_check = PR__INBOX_BROKEN;
    TRY(pr__pg_mark_stands(conn, &out->own, &stands, err));
    *ret_check = stands ? PR__INBOX_KEPT : PR__INBOX_UNMARKED;
    return stands ? pr__pg_unit_not_mine(ret_outcome, err) : PR_OK;
}

/* A statement was refused, and nothing is committed. */
static pr_status refused(pr__pg_conn *conn, const leaving *out, pr_error *found,
                         pr__inbox_check *ret_check, pr_outcome *ret_outcome, pr_error *err)
{
    bool nothing = pr__text_equal(found->sqlstate, NOTHING);
    bool commits = out->done == out->count - 1;
    pr__pg_rollback(conn);
    if (nothing && out->done == LEAVE_CHECK)
        return unmarked(conn, out, ret_check, ret_outcome, err);
    if (commits)
        pr__error_context(found, "commit");
    else if (out->change_at && out->done == out->change_at)
        *ret_check = PR__INBOX_UNSAVED;
    else
        *ret_check = nothing ? PR__INBOX_TAKEN : PR__INBOX_BROKEN;
    if (nothing && !commits)
        return PR_OK;
    pr__error_copy(err, found);
    return found->status;
}

/* The commit was sent, and the connection is gone. A pooler may say so in the server's place. */
static bool is_lost(const pr__pg_conn *conn, const leaving *out, const pr_error *found)
{
    return !conn->pg && out->sent == out->count && !pr__text_equal(found->sqlstate, "25006");
}

pr_status pr__pg_inbox_complete(pr_unit *base, const pr__inbox_end *end, pr__inbox_check *ret_check,
                                pr_outcome *ret_outcome, pr_error *err)
{
    leaving out;
    pr__pg_unit *unit = pr__pg_unit_of(base);
    pr__pg_conn *conn = unit->conn;
    *ret_check = PR__INBOX_KEPT;
    TRY(pr__pg_unit_may_commit(base, ret_outcome, err));
    leaving_fill(&out, unit, end);
    pr__pg_unit_finish(unit);
    pr_error found = PR_ERROR_INIT;
    PR_FAULT("store.before_unit_commit");
    pr_status status = pr__pg_exec_all(conn, out.calls, out.count, &out.sent, &out.done, &found);
    PR_FAULT("store.after_unit_commit");
    if (status == PR_OK) {
        status = pr__pg_committed(out.calls[out.count - 1].result, err);
        *ret_outcome = status == PR_OK ? PR_OUTCOME_COMMITTED : PR_OUTCOME_NOT_COMMITTED;
    } else if (is_lost(conn, &out, &found)) {
        pr__error_context(&found, "commit");
        status = pr__pg_resolve(pr__pg_store_of(base->store), &out.own, &found, ret_outcome, err);
    } else {
        status = refused(conn, &out, &found, ret_check, ret_outcome, err);
    }
    pr__pg_calls_done(out.calls, out.count);
    pr__pg_params_done(&out.check);
    pr__pg_params_done(&out.change);
    return status;
}
