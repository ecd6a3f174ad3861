/*
 * Units of work: our own transaction, or the host's.
 *
 * Invariants: no statement runs unless the transaction is live; a commit has three outcomes, and an
 * unknown one is resolved before it is reported (outcome.c); on the host's connection nothing is
 * set, prepared or retried.
 */
#include "store/postgres/unit.h"

#include <string.h>

#include "base/error.h"
#include "base/fault.h"
#include "base/memory.h"
#include "base/text.h"
#include "store/postgres/enqueue.h"
#include "store/postgres/inbox.h"
#include "store/postgres/outcome.h"
#include "store/postgres/saga.h"
#include "store/postgres/schema.h"
#include "store/postgres/value.h"

#define ORIGIN "postgres.unit"

/* What has become of a transaction that is not live any more. */
static const char *ended_text(const pr__pg_unit *unit, PGTransactionStatusType state)
{
    if (state == PQTRANS_UNKNOWN)
        return "the connection was lost: nothing of the unit was committed";
    if (unit->conn->committed)
        return "the unit's transaction was committed by other code: use the unit's commit only";
    if (state == PQTRANS_INERROR)
        return "the transaction was aborted by an error before: roll it back";
    if (state == PQTRANS_ACTIVE)
        return "a statement of other code is running on the connection: finish it first";
    if (unit->base.joined)
        return "no transaction is open on the host's connection: begin one, then join it";
    return "the unit's transaction was rolled back by other code: use the unit's rollback only";
}

pr_status pr__pg_unit_live(pr_unit *base, pr_error *err)
{
    pr__pg_unit *unit = pr__pg_unit_of(base);
    const pr__pg_conn *conn = unit->conn;
    PGTransactionStatusType state =
        conn->pg && !conn->aborted ? PQtransactionStatus(conn->pg) : PQTRANS_UNKNOWN;
    if (state == PQTRANS_INTRANS && !conn->committed && !conn->begun)
        return PR_OK;
    base->rollback_only = true;
    return pr__fail(err, PR_E_STATE, ORIGIN, "%s", ended_text(unit, state));
}

pr_status pr__pg_unit_status(pr_unit *base, pr_status status)
{
    pr__pg_conn *conn = pr__pg_unit_of(base)->conn;
    bool live = conn->pg && !conn->aborted && PQtransactionStatus(conn->pg) == PQTRANS_INTRANS;
    if (status != PR_OK && (!live || status == PR_E_NOMEM))
        base->rollback_only = true;
    return status;
}

static pr_status unit_enqueue(pr_unit *base, pr__enqueue *messages, size_t count, pr_error *err)
{
    TRY(pr__pg_unit_live(base, err));
    if (count == 0)
        return PR_OK;
    pr__pg_unit *unit = pr__pg_unit_of(base);
    return pr__pg_unit_status(base, pr__pg_enqueue(unit->conn, messages, count, err));
}

void pr__pg_unit_finish(pr__pg_unit *unit)
{
    unit->base.finished = true;
    if (unit->base.joined)
        return;
    pr__pg_store *store = pr__pg_store_of(unit->base.store);
    store->unit_open = false;
    store->conn.watching = false;
    store->own_writes++;
}

static const char SQL_MINE[] =
    "SELECT pg_catalog.current_setting('postroom.unit', true) OPERATOR(pg_catalog.=) $1, x.id, "
    "pg_catalog.pg_postmaster_start_time(), o.lane, o.id, o.message_id FROM (SELECT "
    "pg_catalog.pg_current_xact_id_if_assigned() AS id) AS x LEFT JOIN LATERAL (SELECT t.lane, "
    "t.id, t.message_id FROM {p}outbox AS t WHERE t.xid OPERATOR(pg_catalog.=) x.id ORDER BY "
    "t.xid, t.lane, t.id LIMIT 1) AS o ON true";

/* Is it still our transaction, and what is there to know it by? */
static pr_status look_mine(pr__pg_unit *unit, bool *ret_mine, pr__pg_trace *ret_trace,
                           pr_error *err)
{
    AUTO_RESULT result = NULL;
    TRY(pr__pg_query(unit->conn, SQL_MINE, &result, err, "t", unit->token));
    ret_trace->xid = pr__pg_value_int(result, 0, 1);
    *ret_mine = unit->xid != 0 ? ret_trace->xid == unit->xid : pr__pg_value_int(result, 0, 0) != 0;
    ret_trace->started_at_us = pr__pg_value_instant(result, 0, 2);
    ret_trace->lane = pr__pg_value_int(result, 0, 3);
    ret_trace->log_id = pr__pg_value_int(result, 0, 4);
    pr__pg_value_uuid(result, 0, 5, ret_trace->message_id);
    return PR_OK;
}

/* Of a transaction that is not live nothing is committed. */
static pr_status commit_dead(pr__pg_unit *unit, pr_outcome *ret_outcome, pr_status status)
{
    const pr__pg_conn *conn = unit->conn;
    bool ended = conn->committed || conn->begun ||
                 (conn->pg && PQtransactionStatus(conn->pg) == PQTRANS_IDLE);
    *ret_outcome = ended ? PR_OUTCOME_UNKNOWN : PR_OUTCOME_NOT_COMMITTED;
    pr__pg_unit_finish(unit);
    pr__pg_rollback(unit->conn);
    return status;
}

pr_status pr__pg_unit_may_commit(pr_unit *base, pr_outcome *ret_outcome, pr_error *err)
{
    pr__pg_unit *unit = pr__pg_unit_of(base);
    pr_status status = pr__pg_unit_live(base, err);
    if (status != PR_OK)
        return commit_dead(unit, ret_outcome, status);
    *ret_outcome = PR_OUTCOME_NOT_COMMITTED;
    if (!base->rollback_only)
        return PR_OK;
    pr__pg_unit_finish(unit);
    pr__pg_rollback(unit->conn);
    return pr__fail(err, PR_E_STATE, ORIGIN, "the unit is rollback-only: it was rolled back");
}

pr_status pr__pg_unit_not_mine(pr_outcome *ret_outcome, pr_error *err)
{
    *ret_outcome = PR_OUTCOME_UNKNOWN; /* other code ended ours and began another */
    return pr__fail(err, PR_E_STATE, ORIGIN,
                    "the unit's transaction was ended by other code, which began another: that one "
                    "was rolled back");
}

static pr_status unit_commit(pr_unit *base, pr_outcome *ret_outcome, pr_error *err)
{
    pr__pg_unit *unit = pr__pg_unit_of(base);
    TRY(pr__pg_unit_may_commit(base, ret_outcome, err));
    bool mine = false;
    pr__pg_trace own = {.xid = 0};
    pr_status status = look_mine(unit, &mine, &own, err);
    if (status == PR_OK && !mine)
        status = pr__pg_unit_not_mine(ret_outcome, err);
    pr__pg_unit_finish(unit);
    if (status != PR_OK) {
        pr__pg_rollback(unit->conn);
        return status;
    }
    PR_FAULT("store.before_unit_commit");
    pr_error found = PR_ERROR_INIT;
    status = pr__pg_commit(unit->conn, &found);
    PR_FAULT("store.after_unit_commit");
    if (status == PR_OK) {
        *ret_outcome = PR_OUTCOME_COMMITTED;
        return PR_OK;
    }
    if (found.retry == PR_RETRY_UNKNOWN)
        return pr__pg_resolve(pr__pg_store_of(base->store), &own, &found, ret_outcome, err);
    pr__error_copy(err, &found);
    return status;
}

static pr_status unit_rollback(pr_unit *base, pr_error *err)
{
    (void)err;
    pr__pg_unit *unit = pr__pg_unit_of(base);
    pr__pg_unit_finish(unit);
    if (!base->joined)
        pr__pg_rollback(unit->conn);
    return PR_OK;
}

static void unit_free(pr_unit *base)
{
    pr__pg_unit *unit = pr__pg_unit_of(base);
    if (!base->joined && !base->finished) {
        pr__pg_unit_finish(unit);
        pr__pg_rollback(unit->conn);
    }
    pr__free(unit);
}

/* Aborted, but still ours: then a savepoint brings it back. */
static bool is_ours(const pr__pg_conn *conn)
{
    PGTransactionStatusType state =
        conn->pg && !conn->aborted ? PQtransactionStatus(conn->pg) : PQTRANS_UNKNOWN;
    return (state == PQTRANS_INTRANS || state == PQTRANS_INERROR) && !conn->committed &&
           !conn->begun;
}

static const char *savepoint_text(pr__savepoint_step step)
{
    switch (step) {
    case PR__SAVEPOINT_SET:
        break;
    case PR__SAVEPOINT_NEXT: /* one round trip */
        return "RELEASE SAVEPOINT postroom_message; SAVEPOINT postroom_message";
    case PR__SAVEPOINT_BACK:
        return "ROLLBACK TO SAVEPOINT postroom_message";
    }
    return "SAVEPOINT postroom_message";
}

static pr_status unit_savepoint(pr_unit *base, pr__savepoint_step step, pr_error *err)
{
    pr__pg_unit *unit = pr__pg_unit_of(base);
    bool back = step == PR__SAVEPOINT_BACK;
    if (!back || !is_ours(unit->conn))
        TRY(pr__pg_unit_live(base, err));
    pr_status status = pr__pg_script(unit->conn, savepoint_text(step), NULL, err);
    if (status != PR_OK)
        base->rollback_only = true;
    else if (back)
        base->rollback_only = false;
    return status;
}

static const pr__unit_ops OPS = {
    .live = pr__pg_unit_live,
    .enqueue = unit_enqueue,
    .commit = unit_commit,
    .rollback = unit_rollback,
    .free = unit_free,
    .inbox_mark = pr__pg_inbox_mark,
    .inbox_look = pr__pg_inbox_look,
    .inbox_unmark = pr__pg_inbox_unmark,
    .inbox_find = pr__pg_inbox_find,
    .inbox_blocked = pr__pg_inbox_blocked,
    .inbox_park = pr__pg_inbox_park,
    .inbox_repark = pr__pg_inbox_repark,
    .inbox_unpark = pr__pg_inbox_unpark,
    .saga_load = pr__pg_saga_load,
    .saga_insert = pr__pg_saga_insert,
    .saga_save = pr__pg_saga_save,
    .saga_complete = pr__pg_saga_complete,
    .saga_lease = pr__pg_saga_lease,
    .saga_renew = pr__pg_saga_renew,
    .saga_unlease = pr__pg_saga_unlease,
    .savepoint = unit_savepoint,
    .inbox_enter_next = pr__pg_inbox_enter_next,
    .inbox_look_all = pr__pg_inbox_look_all,
    .inbox_mark_all = pr__pg_inbox_mark_all,
    .inbox_complete = pr__pg_inbox_complete,
};

static pr__pg_unit *unit_new(pr_store *store, bool joined)
{
    pr__pg_unit *unit = pr__alloc(sizeof *unit);
    if (unit)
        pr__unit_init(&unit->base, &OPS, store, joined);
    return unit;
}

pr_status pr__pg_unit_prepare(pr_store *base, pr__pg_unit **ret_unit, pr_error *err)
{
    pr__pg_store *store = pr__pg_store_of(base);
    if (store->unit_open)
        return pr__fail(err, PR_E_STATE, ORIGIN,
                        "a unit is open on this store: finish it first, nest one in it, or use a "
                        "clone of the store");
    if (pr__pg_in_transaction(&store->conn))
        return pr__fail(err, PR_E_STATE, ORIGIN,
                        "a transaction of somebody else is open on the store's connection: join it "
                        "instead (pr_postgres_unit_join)");
    TRY(pr__pg_ready(store, err));
    TRY(pr__pg_settings_load(store, err));
    pr__pg_unit *unit = unit_new(base, /* joined= */ false);
    if (!unit)
        return pr__fail_nomem(err, ORIGIN);
    unit->conn = &store->conn;
    pr__pg_token(base, unit->token);
    *ret_unit = unit;
    return PR_OK;
}

pr_status pr__pg_unit_begin(pr_store *base, pr_unit **ret_unit, pr_error *err)
{
    pr__pg_unit *unit = NULL;
    pr__pg_store *store = pr__pg_store_of(base);
    TRY(pr__pg_unit_prepare(base, &unit, err));
    pr_status status = pr__pg_begin_unit(&store->conn, store->unit_idle_ms, unit->token, err);
    if (status != PR_OK) {
        pr__free(unit);
        return status;
    }
    store->unit_open = true;
    *ret_unit = &unit->base;
    return PR_OK;
}

static const char SQL_IDENTITY[] =
    "SELECT (SELECT system_identifier FROM pg_catalog.pg_control_system()), (SELECT "
    "oid::pg_catalog.int8 FROM pg_catalog.pg_database WHERE datname = "
    "pg_catalog.current_database()), (SELECT c.oid::pg_catalog.int8 FROM pg_catalog.pg_class AS c "
    "JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace WHERE n.nspname = $1 AND "
    "c.relname = $2)";

/* Is the host's connection on the store's database? Asked once a connection. */
static pr_status same_database(pr__pg_store *store, pr__pg_conn *conn, pr_error *err)
{
    pr__pg_known_host host = {conn->pg, PQbackendPID(conn->pg), PQsocket(conn->pg)};
    if (store->host.pg == host.pg && store->host.backend == host.backend &&
        store->host.socket == host.socket)
        return PR_OK;
    AUTO_RESULT result = NULL;
    char table[2 * PR__PG_NAME_SIZE];
    char what[256];
    pr__format(table, sizeof table, "%soutbox", store->conn.prefix);
    pr__pg_describe(store, what, sizeof what);
    TRY(pr__pg_query(conn, SQL_IDENTITY, &result, err, "tt", store->conn.schema, table));
    if (pr__pg_value_int(result, 0, 0) != store->settings.system_id ||
        pr__pg_value_int(result, 0, 1) != store->settings.database)
        return pr__fail(err, PR_E_INVALID, ORIGIN,
                        "the connection is on database '%s', the store on '%s': join a connection "
                        "on the store's database",
                        PQdb(conn->pg), what);
    if (PQgetisnull(result, 0, 2))
        return pr__fail(err, PR_E_SCHEMA, ORIGIN,
                        "the store's tables are not there: run `postroom migrate` on '%s'", what);
    store->host = host;
    return PR_OK;
}

static pr_status check_host(pr__pg_store *store, PGconn *db, pr_error *err)
{
    const char *encoding = pg_encoding_to_char(PQclientEncoding(db));
    if (PQtransactionStatus(db) == PQTRANS_INERROR)
        return pr__fail(err, PR_E_STATE, ORIGIN,
                        "the transaction on the connection was aborted by an error: roll it back");
    if (PQtransactionStatus(db) != PQTRANS_INTRANS)
        return pr__fail(err, PR_E_STATE, ORIGIN,
                        "no transaction is open on the connection: run BEGIN first");
    if (!pr__text_equal(encoding, "UTF8"))
        return pr__fail(err, PR_E_INVALID, ORIGIN,
                        "client_encoding of the connection is %s: set it to UTF8",
                        encoding ? encoding : "not known");
    if (db == store->conn.pg && store->unit_open)
        return pr__fail(err, PR_E_STATE, ORIGIN,
                        "the transaction is a unit's own: nest a unit in it (pr_unit_nest)");
    return PR_OK;
}

pr_status pr_postgres_unit_join(pr_store *base, struct pg_conn *db, pr_unit **ret_unit,
                                pr_error *err)
{
    if (!pr__pg_is_postgres(base) || !db || !ret_unit)
        return pr__fail(err, PR_E_INVALID, ORIGIN,
                        "store, db or ret_unit is NULL, or the store is not on PostgreSQL");
    pr__pg_store *store = pr__pg_store_of(base);
    TRY(check_host(store, db, err));
    if (store->settings.generation == 0) { /* opened without the check, and not used yet */
        TRY(pr__pg_ready(store, err));
        TRY(pr__pg_settings_load(store, err));
    }
    pr__pg_unit *unit = unit_new(base, /* joined= */ true);
    if (!unit)
        return pr__fail_nomem(err, ORIGIN);
    pr__pg_conn_borrow(&unit->borrowed, db, &store->conn);
    unit->conn = &unit->borrowed;
    pr_status status = same_database(store, unit->conn, err);
    if (status != PR_OK) {
        pr__free(unit);
        return status;
    }
    *ret_unit = &unit->base;
    return PR_OK;
}

struct pg_conn *pr_postgres_unit_connection(pr_unit *unit)
{
    while (unit && unit->outer)
        unit = unit->outer;
    if (!unit || unit->ops != &OPS)
        return NULL;
    return pr__pg_unit_of(unit)->conn->pg;
}
