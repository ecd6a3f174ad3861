/*
 * Units of work: our own transaction, or the host's.
 *
 * Invariants: no statement runs unless the transaction is live; an error of the database makes the
 * unit rollback-only, because SQLite leaves the transaction open and would commit the rest; what
 * the unit enqueued before is asked of the database, never remembered, so that a savepoint that
 * the host rolls back is rolled back here too.
 */
#include "store/sqlite/unit.h"

#include <string.h>
#include <sys/stat.h>

#include "base/error.h"
#include "base/fault.h"
#include "base/memory.h"
#include "base/text.h"
#include "base/time.h"
#include "store/sqlite/failure.h"
#include "store/sqlite/inbox.h"
#include "store/sqlite/row.h"
#include "store/sqlite/saga.h"

#define ORIGIN  "sqlite.unit"
#define UNKNOWN (-1) /* a base that was not read */

/* A commit or rollback that other code runs on our own connection ends the unit. */
static int ended_by_commit(void *user)
{
    pr__sqlite_unit *unit = user;
    unit->ended = true;
    unit->ended_by_commit = true;
    pr__sqlite_give_turn(unit->conn);
    return 0;
}

static void ended_by_rollback(void *user)
{
    pr__sqlite_unit *unit = user;
    unit->ended = true;
    pr__sqlite_give_turn(unit->conn);
}

static void watch(pr__sqlite_unit *unit, bool on)
{
    sqlite3_commit_hook(unit->conn->db, on ? ended_by_commit : NULL, unit);
    sqlite3_rollback_hook(unit->conn->db, on ? ended_by_rollback : NULL, unit);
}

static const char *ended_text(const pr__sqlite_unit *unit)
{
    if (unit->base.joined)
        return "no transaction is open on the host's connection: begin one, then join it";
    if (unit->ended_by_commit)
        return "the unit's transaction was committed by other code: use the unit's commit only";
    return "the unit's transaction was rolled back by other code, or by SQLite after an error";
}

pr_status pr__sqlite_unit_live(pr_unit *base, pr_error *err)
{
    pr__sqlite_unit *unit = pr__sqlite_unit_of(base);
    if (!unit->ended && pr__sqlite_in_transaction(unit->conn))
        return PR_OK;
    base->rollback_only = true;
    return pr__fail(err, PR_E_STATE, ORIGIN, "%s", ended_text(unit));
}

pr_status pr__sqlite_unit_status(pr_unit *unit, pr_status status)
{
    switch (status) {
    case PR_E_BACKEND:
    case PR_E_BUSY:
    case PR_E_NOMEM:
    case PR_E_SCHEMA:
        unit->rollback_only = true;
        break;
    case PR_OK:
    case PR_E_INVALID:
    case PR_E_LIMIT:
    case PR_E_CONTENT:
    case PR_E_NOT_FOUND:
    case PR_E_STATE:
    case PR_E_CONFLICT:
    case PR_E_FENCED:
    case PR_E_UNSUPPORTED:
    case PR_E_CANCELLED:
        break;
    }
    return status;
}

/* Nothing changes, but the transaction holds the write lock from here on: what is read afterwards
   stays true until its end. */
static const char SQL_LOCK[] = "UPDATE {p}_setting SET value = value WHERE 0";
static const char SQL_LOG_BASE[] = "SELECT seq FROM sqlite_sequence WHERE name = '{p}_outbox'";
static const char SQL_PARKED_BASE[] =
    "SELECT seq FROM sqlite_sequence WHERE name = '{p}_outbox_parked'";

static pr_status read_bases(pr__sqlite_unit *unit, pr_error *err)
{
    if (unit->log_base != UNKNOWN && unit->parked_base != UNKNOWN)
        return PR_OK;
    if (sqlite3_txn_state(unit->conn->db, "main") != SQLITE_TXN_WRITE)
        TRY(pr__sqlite_run(unit->conn, SQL_LOCK, NULL, err, ""));
    int64_t value = 0;
    if (unit->log_base == UNKNOWN) {
        TRY(pr__sqlite_int(unit->conn, SQL_LOG_BASE, &value, NULL, err, ""));
        unit->log_base = value;
    }
    value = 0;
    if (unit->parked_base == UNKNOWN) {
        TRY(pr__sqlite_int(unit->conn, SQL_PARKED_BASE, &value, NULL, err, ""));
        unit->parked_base = value;
    }
    return PR_OK;
}

static const char SQL_OWN[] =
    "SELECT type, type_version, body FROM {p}_outbox WHERE message_id = lower(?1) AND id > ?2 "
    "UNION "
    "ALL SELECT type, type_version, body FROM {p}_outbox_parked WHERE message_id = lower(?1) AND "
    "place > ?3 AND reader = 0 LIMIT 1";

/* Does the id stand in this transaction already? */
static pr_status find_own(pr__sqlite_unit *unit, pr__enqueue *one, pr_error *err)
{
    const pr_message *message = one->message;
    TRY(read_bases(unit, err));
    AUTO_STMT stmt = NULL;
    bool row = false;
    TRY(pr__sqlite_query(unit->conn, SQL_OWN, &stmt, err, "tii", message->id, unit->log_base,
                         unit->parked_base));
    TRY(pr__sqlite_step(unit->conn, stmt, &row, err));
    if (!row)
        return PR_OK;
    const char *type = (const char *)sqlite3_column_text(stmt, 0);
    const void *body = sqlite3_column_blob(stmt, 2);
    size_t size = (size_t)sqlite3_column_bytes(stmt, 2);
    uint32_t version = message->type_version ? message->type_version : 1;
    one->duplicate = type && strcmp(type, message->type) == 0 &&
                     sqlite3_column_int64(stmt, 1) == version && size == message->body_size_bytes &&
                     (size == 0 || memcmp(body, message->body, size) == 0);
    if (!one->duplicate)
        return pr__fail(err, PR_E_CONFLICT, ORIGIN,
                        "id '%s' stands in this unit with other content: use another id",
                        message->id);
    return PR_OK;
}

static const char SQL_INSERT[] = "INSERT INTO {p}_outbox (" PR__MESSAGE_COLUMNS ") VALUES (?1, ?2, "
                                 "?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16)";
static const char SQL_INSERT_DELAYED[] =
    "INSERT INTO {p}_outbox_parked (" PR__MESSAGE_COLUMNS ", reader, log_id, lane, state, "
    "next_attempt_at, parked_at) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, "
    "?14, ?15, ?16, 0, 1 + coalesce((SELECT seq FROM sqlite_sequence WHERE name = "
    "'{p}_outbox_parked'), 0), -1, 'delayed', ?17, ?18)";

static pr_status insert(pr__sqlite_unit *unit, const pr_message *message, int64_t now,
                        pr_error *err)
{
    bool delayed = message->deliver_at_us > now;
    AUTO_STMT stmt = NULL;
    TRY(pr__sqlite_prepare(unit->conn, delayed ? SQL_INSERT_DELAYED : SQL_INSERT, &stmt, err));
    TRY(pr__sqlite_bind_message(unit->conn, stmt, 1, message, err));
    if (delayed) {
        sqlite3_bind_int64(stmt, PR__MESSAGE_COLUMN_COUNT + 1, message->deliver_at_us);
        sqlite3_bind_int64(stmt, PR__MESSAGE_COLUMN_COUNT + 2, now);
    }
    bool row = false;
    TRY(pr__sqlite_step(unit->conn, stmt, &row, err));
    TRY(pr__sqlite_wrote_one(unit->conn, sqlite3_changes64(unit->conn->db),
                             delayed ? "outbox_parked" : "outbox", err));
    int64_t *seen = delayed ? &unit->parked_base : &unit->log_base;
    if (*seen == UNKNOWN)
        *seen = sqlite3_last_insert_rowid(unit->conn->db) - 1;
    pr__format(unit->last_id, sizeof unit->last_id, "%s", message->id);
    unit->last_delayed = delayed;
    return PR_OK;
}

static pr_status enqueue_all(pr__sqlite_unit *unit, pr__enqueue *messages, size_t count,
                             pr_error *err)
{
    int64_t now = pr__sqlite_now(unit->base.store);
    for (size_t i = 0; i < count; i++) {
        messages[i].duplicate = false;
        pr_status status = PR_OK;
        if (messages[i].caller_id)
            status = find_own(unit, &messages[i], err);
        if (status == PR_OK && !messages[i].duplicate)
            status = insert(unit, messages[i].message, now, err);
        if (status != PR_OK) {
            if (count > 1)
                pr__error_context(err, "message %zu", i);
            return status;
        }
    }
    return PR_OK;
}

static const char SQL_SAVEPOINT[] = "SAVEPOINT postroom_enqueue";
static const char SQL_BACK[] = "ROLLBACK TO postroom_enqueue";
static const char SQL_RELEASE[] = "RELEASE postroom_enqueue";

static pr_status unit_enqueue(pr_unit *base, pr__enqueue *messages, size_t count, pr_error *err)
{
    pr__sqlite_unit *unit = pr__sqlite_unit_of(base);
    TRY(pr__sqlite_unit_live(base, err));
    if (count == 1)
        return pr__sqlite_unit_status(base, enqueue_all(unit, messages, count, err));
    TRY(pr__sqlite_unit_status(base, pr__sqlite_run(unit->conn, SQL_SAVEPOINT, NULL, err, "")));
    pr_status status = enqueue_all(unit, messages, count, err);
    if (status != PR_OK && pr__sqlite_in_transaction(unit->conn) &&
        pr__sqlite_run(unit->conn, SQL_BACK, NULL, NULL, "") != PR_OK)
        base->rollback_only = true;
    if (pr__sqlite_in_transaction(unit->conn)) {
        pr_status released = pr__sqlite_run(unit->conn, SQL_RELEASE, NULL, err, "");
        if (status == PR_OK)
            status = released;
    }
    return pr__sqlite_unit_status(base, status);
}

static const char SQL_STANDS[] =
    "SELECT 1 FROM {p}_outbox WHERE message_id = lower(?1) UNION ALL SELECT 1 FROM "
    "{p}_outbox_parked WHERE message_id = lower(?1) AND reader = 0 LIMIT 1";

/* The disk failed during COMMIT. Another connection sees what was committed; what it does not see
   may still come back when the log is recovered, so that "no" is not known. */
static pr_outcome resolve(pr__sqlite_store *store, const char *last_id)
{
    if (!last_id[0] || pr__sqlite_reopen(store, NULL) != PR_OK)
        return PR_OUTCOME_UNKNOWN;
    int64_t one = 0;
    bool found = false;
    if (pr__sqlite_int(&store->conn, SQL_STANDS, &one, &found, NULL, "t", last_id) != PR_OK)
        return PR_OUTCOME_UNKNOWN;
    return found ? PR_OUTCOME_COMMITTED : PR_OUTCOME_UNKNOWN;
}

static void finish(pr__sqlite_unit *unit)
{
    unit->base.finished = true;
    if (unit->base.joined)
        return;
    watch(unit, false);
    pr__sqlite_store_of(unit->base.store)->unit_open = false;
}

static pr_status unit_commit(pr_unit *base, pr_outcome *ret_outcome, pr_error *err)
{
    pr__sqlite_unit *unit = pr__sqlite_unit_of(base);
    pr_status status = pr__sqlite_unit_live(base, err);
    if (status != PR_OK) {
        finish(unit);
        pr__sqlite_rollback(unit->conn);
        *ret_outcome = unit->ended_by_commit ? PR_OUTCOME_UNKNOWN : PR_OUTCOME_NOT_COMMITTED;
        return status;
    }
    finish(unit);
    *ret_outcome = PR_OUTCOME_NOT_COMMITTED;
    if (base->rollback_only) {
        pr__sqlite_rollback(unit->conn);
        return pr__fail(err, PR_E_STATE, ORIGIN, "the unit is rollback-only: it was rolled back");
    }
    PR_FAULT("store.before_unit_commit");
    pr_error found = PR_ERROR_INIT;
    status = pr__sqlite_commit(unit->conn, &found);
    PR_FAULT("store.after_unit_commit");
    if (status == PR_OK) {
        *ret_outcome = PR_OUTCOME_COMMITTED;
        return PR_OK;
    }
    if (found.retry == PR_RETRY_UNKNOWN)
        *ret_outcome = resolve(pr__sqlite_store_of(base->store), unit->last_id);
    if (*ret_outcome == PR_OUTCOME_COMMITTED)
        return PR_OK;
    pr__error_copy(err, &found);
    return status;
}

static pr_status unit_rollback(pr_unit *base, pr_error *err)
{
    (void)err;
    pr__sqlite_unit *unit = pr__sqlite_unit_of(base);
    finish(unit);
    if (!base->joined)
        pr__sqlite_rollback(unit->conn);
    return PR_OK;
}

static void unit_free(pr_unit *base)
{
    pr__sqlite_unit *unit = pr__sqlite_unit_of(base);
    if (base->joined) {
        pr__sqlite_conn_done(&unit->borrowed);
    } else if (!base->finished) {
        finish(unit);
        pr__sqlite_rollback(unit->conn);
    }
    pr__free(unit);
}

static const char SQL_MESSAGE[] = "SAVEPOINT postroom_message";
static const char SQL_MESSAGE_BACK[] = "ROLLBACK TO postroom_message";
static const char SQL_MESSAGE_RELEASE[] = "RELEASE postroom_message";

static pr_status unit_savepoint(pr_unit *base, pr__savepoint_step step, pr_error *err)
{
    pr__sqlite_unit *unit = pr__sqlite_unit_of(base);
    bool back = step == PR__SAVEPOINT_BACK;
    TRY(pr__sqlite_unit_live(base, err));
    pr_status status = PR_OK;
    if (step == PR__SAVEPOINT_NEXT)
        status = pr__sqlite_run(unit->conn, SQL_MESSAGE_RELEASE, NULL, err, "");
    if (status == PR_OK)
        status = pr__sqlite_run(unit->conn, back ? SQL_MESSAGE_BACK : SQL_MESSAGE, NULL, err, "");
    if (status != PR_OK)
        base->rollback_only = true;
    else if (back)
        base->rollback_only = false;
    return status;
}

static const pr__unit_ops OPS = {
    .live = pr__sqlite_unit_live,
    .enqueue = unit_enqueue,
    .commit = unit_commit,
    .rollback = unit_rollback,
    .free = unit_free,
    .inbox_mark = pr__sqlite_inbox_mark,
    .inbox_look = pr__sqlite_inbox_look,
    .inbox_unmark = pr__sqlite_inbox_unmark,
    .inbox_find = pr__sqlite_inbox_find,
    .inbox_blocked = pr__sqlite_inbox_blocked,
    .inbox_park = pr__sqlite_inbox_park,
    .inbox_repark = pr__sqlite_inbox_repark,
    .inbox_unpark = pr__sqlite_inbox_unpark,
    .saga_load = pr__sqlite_saga_load,
    .saga_insert = pr__sqlite_saga_insert,
    .saga_save = pr__sqlite_saga_save,
    .saga_complete = pr__sqlite_saga_complete,
    .saga_lease = pr__sqlite_saga_lease,
    .saga_renew = pr__sqlite_saga_renew,
    .saga_unlease = pr__sqlite_saga_unlease,
    .savepoint = unit_savepoint,
    .inbox_look_all = pr__sqlite_inbox_look_all,
    .inbox_mark_all = pr__sqlite_inbox_mark_all,
};

static pr__sqlite_unit *unit_new(pr_store *store, bool joined)
{
    pr__sqlite_unit *unit = pr__alloc(sizeof *unit);
    if (!unit)
        return NULL;
    pr__unit_init(&unit->base, &OPS, store, joined);
    unit->log_base = UNKNOWN;
    unit->parked_base = UNKNOWN;
    return unit;
}

pr_status pr__sqlite_unit_begin(pr_store *base, pr_unit **ret_unit, pr_error *err)
{
    pr__sqlite_store *store = pr__sqlite_store_of(base);
    TRY(pr__sqlite_ready(store, err));
    if (store->unit_open)
        return pr__fail(err, PR_E_STATE, ORIGIN,
                        "a unit is open on this store: finish it first, nest one in it, or use a "
                        "clone of the store");
    if (pr__sqlite_in_transaction(&store->conn))
        return pr__fail(err, PR_E_STATE, ORIGIN,
                        "a transaction of somebody else is open on the store's connection: join it "
                        "instead (pr_sqlite_unit_join)");
    pr__sqlite_unit *unit = unit_new(base, /* joined= */ false);
    if (!unit)
        return pr__fail_nomem(err, ORIGIN);
    unit->conn = &store->conn;
    pr_status status = pr__sqlite_begin(&store->conn, /* write= */ true, err);
    if (status != PR_OK) {
        pr__free(unit);
        return status;
    }
    store->unit_open = true;
    watch(unit, true);
    *ret_unit = &unit->base;
    return PR_OK;
}

static pr_status same_database(const pr__sqlite_store *store, sqlite3 *db, pr_error *err)
{
    const char *name = sqlite3_db_filename(db, "main");
    struct stat info;
    if (!name || !name[0] || stat(name, &info) != 0 || info.st_dev != store->device ||
        info.st_ino != store->inode)
        return pr__fail(err, PR_E_INVALID, ORIGIN,
                        "the connection is on '%s', the store on '%s': join a connection on the "
                        "store's database",
                        name && name[0] ? name : ":memory:", store->path);
    return PR_OK;
}

pr_status pr_sqlite_unit_join(pr_store *base, struct sqlite3 *db, pr_unit **ret_unit, pr_error *err)
{
    if (!base || base->ops->unit_begin != pr__sqlite_unit_begin || !db || !ret_unit)
        return pr__fail(err, PR_E_INVALID, ORIGIN,
                        "store, db or ret_unit is NULL, or the store is not on SQLite");
    pr__sqlite_store *store = pr__sqlite_store_of(base);
    TRY(pr__sqlite_ready(store, err));
    if (db == store->conn.db && store->unit_open)
        return pr__fail(err, PR_E_STATE, ORIGIN,
                        "the transaction is a unit's own: nest a unit in it (pr_unit_nest)");
    TRY(same_database(store, db, err));
    if (sqlite3_get_autocommit(db))
        return pr__fail(err, PR_E_STATE, ORIGIN,
                        "no transaction is open on the connection: run BEGIN IMMEDIATE first");
    pr__sqlite_unit *unit = unit_new(base, /* joined= */ true);
    if (!unit)
        return pr__fail_nomem(err, ORIGIN);
    pr__sqlite_conn_borrow(&unit->borrowed, db, store->conn.prefix);
    unit->conn = &unit->borrowed;
    sqlite3_stmt *stmt = NULL;
    pr_error found = PR_ERROR_INIT;
    pr_status status = pr__sqlite_prepare(unit->conn, SQL_INSERT, &stmt, &found);
    if (status != PR_OK) {
        unit_free(&unit->base);
        if (found.backend_code == SQLITE_ERROR)
            return pr__fail(err, PR_E_SCHEMA, ORIGIN,
                            "the store's tables are not there: run `postroom migrate` on '%s'",
                            store->path);
        pr__error_copy(err, &found);
        return status;
    }
    *ret_unit = &unit->base;
    return PR_OK;
}

struct sqlite3 *pr_sqlite_unit_connection(pr_unit *unit)
{
    while (unit && unit->outer)
        unit = unit->outer;
    if (!unit || unit->ops != &OPS)
        return NULL;
    return pr__sqlite_unit_of(unit)->conn->db;
}

/* The host's handle has no room for ours, so that the limit travels in the pointer itself, and the
   time waited is reckoned from the number of tries. */
static int host_busy_handler(void *user, int count)
{
    int64_t busy_us = (int64_t)(intptr_t)user * 1000;
    return pr__sqlite_busy_wait(count, pr__sqlite_busy_waited_us(count), busy_us);
}

pr_status pr_sqlite_prepare(struct sqlite3 *db, int64_t busy_ms, pr_error *err)
{
    if (!db || busy_ms < 0 || busy_ms > PR__SQLITE_BUSY_MS_MAX)
        return pr__fail(err, PR_E_INVALID, ORIGIN, "db is NULL, or busy_ms is not 0 to %lld",
                        (long long)PR__SQLITE_BUSY_MS_MAX);
    if (!sqlite3_get_autocommit(db))
        return pr__fail(err, PR_E_STATE, ORIGIN,
                        "a transaction is open on the connection: prepare it before");
    int64_t limit_ms = busy_ms ? busy_ms : PR__SQLITE_BUSY_MS_DEFAULT;
    sqlite3_busy_handler(db, host_busy_handler, (void *)(intptr_t)limit_ms);
    AUTO(void) conn = pr__alloc(sizeof(pr__sqlite_conn));
    if (!conn)
        return pr__fail_nomem(err, ORIGIN);
    pr__sqlite_conn_borrow(conn, db, "");
    ((pr__sqlite_conn *)conn)->busy_ms = limit_ms;
    TRY(pr__sqlite_conn_use_wal(conn, err));
    int code = sqlite3_exec(db, PR__SQLITE_PRAGMAS, NULL, NULL, NULL);
    if (code != SQLITE_OK)
        return pr__sqlite_fail(conn, code, err);
    pr__sqlite_give_turns(db);
    return PR_OK;
}
