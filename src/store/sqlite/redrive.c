/*
 * Redrive, discard, cancel: what operators change, each in one transaction with its audit row.
 *
 * Invariant: only what is dead is redriven or discarded, only what is delayed is cancelled; the
 * state is looked at and changed under one write lock, so of two at once one succeeds. In the inbox
 * the mark is touched before the parked row: a dead row never stands beside a mark.
 * Must not know: roles and permissions; who may do it was decided before.
 */
#include <inttypes.h>
#include <string.h>

#include "base/buffer.h"
#include "base/error.h"
#include "base/fault.h"
#include "base/memory.h"
#include "base/text.h"
#include "port/audit.h"
#include "port/redrive.h"
#include "store/sqlite/operations.h"
#include "store/sqlite/record.h"

#define ORIGIN "sqlite.redrive"

static const char sql_retention[] =
    "SELECT CAST(value AS INTEGER) FROM {p}_setting WHERE name = 'inbox_retention_ms'";

static const char sql_reader[] = "SELECT reader FROM {p}_subscription WHERE name = ?1";

static const char sql_audit[] = "INSERT INTO {p}_audit (at, who, action, subject, reason, count) "
                                "VALUES (?1, ?2, ?3, ?4, ?5, ?6)";

/* Candidates: place, state, type, version, occurred_at, when it failed first, is it marked, id */
static const char sql_outbox_one[] =
    "SELECT place, state, type, type_version, occurred_at, first_failed_at, 0, log_id "
    "FROM {p}_outbox_parked WHERE message_id IN (?1, lower(?1)) AND reader = ?2 "
    "ORDER BY state <> 'dead', log_id";

static const char sql_outbox_filter[] =
    "SELECT place, state, type, type_version, occurred_at, first_failed_at, 0, log_id "
    "FROM {p}_outbox_parked AS t WHERE reader = ?2 AND state = 'dead' "
    "AND (?3 IS NULL OR t.type = ?3) "
    "AND (?4 IS NULL OR coalesce(t.destination, ?5 || '://topic/' || t.type) = ?4) "
    "AND ?1 IS NULL ORDER BY log_id";

#define MARKED                                                                                     \
    "EXISTS (SELECT 1 FROM {p}_inbox AS m WHERE m.tenant = t.tenant "                              \
    "AND m.consumer = t.consumer AND m.message_id = t.message_id)"

static const char sql_inbox_one[] =
    "SELECT place, state, type, type_version, occurred_at, "
    "coalesce(first_failed_at, parked_at), " MARKED ", place "
    "FROM {p}_inbox_parked AS t WHERE message_id = ?1 AND consumer = ?2 "
    "ORDER BY state <> 'dead', place";

static const char sql_inbox_filter[] =
    "SELECT place, state, type, type_version, occurred_at, "
    "coalesce(first_failed_at, parked_at), " MARKED ", place "
    "FROM {p}_inbox_parked AS t WHERE consumer = ?2 AND state = 'dead' "
    "AND (?3 IS NULL OR t.type = ?3) "
    "AND (?4 IS NULL OR coalesce(t.destination, ?5 || '://topic/' || t.type) = ?4) "
    "AND ?1 IS NULL ORDER BY place";

static const char sql_revive_outbox[] =
    "UPDATE {p}_outbox_parked SET state = 'failed', resume_state = NULL, attempts = 0, "
    "takeovers = 0, suspicion = 0, deferred = 0, next_attempt_at = ?2, lock_token = NULL, "
    "locked_until = NULL, owner = NULL, redriven_at = ?2 WHERE place = ?1 AND state = 'dead'";

static const char sql_revive_inbox[] =
    "UPDATE {p}_inbox_parked AS t SET state = 'failed', resume_state = NULL, attempts = 0, "
    "takeovers = 0, next_attempt_at = ?2, lock_token = NULL, locked_until = NULL, owner = NULL, "
    "redriven_at = ?2 WHERE place = ?1 AND state = 'dead' AND NOT " MARKED;

static const char sql_in_log[] =
    "SELECT count(*) FROM {p}_outbox WHERE message_id IN (?1, lower(?1))";

static const char sql_is_marked[] = PR__MARKS_OF_ID "SELECT count(*) FROM m WHERE consumer = ?2";

static const char sql_mark_dead[] =
    "INSERT INTO {p}_inbox (tenant, consumer, message_id, body_hash, processed_at) "
    "SELECT tenant, consumer, message_id, body_hash, ?2 FROM {p}_inbox_parked "
    "WHERE place = ?1 AND state = 'dead' ON CONFLICT DO NOTHING";

static const char sql_drop_inbox[] =
    "DELETE FROM {p}_inbox_parked WHERE place = ?1 AND state = 'dead'";

static const char sql_drop_outbox[] =
    "DELETE FROM {p}_outbox_parked WHERE place = ?1 AND state = 'dead'";

static const char sql_drop_log[] = "DELETE FROM {p}_outbox WHERE id = ?1";

static const char sql_cancel[] =
    "DELETE FROM {p}_outbox_parked WHERE message_id IN (?1, lower(?1)) AND reader = 0";

/* ---- what all of them do ---- */

pr_status pr__sqlite_audit(pr__sqlite_conn *conn, const pr__audit_subject *subject,
                           const char *action, const char *who, const char *reason, int64_t now_us,
                           uint64_t count, pr_error *err)
{
    AUTO_BUFFER buffer = PR_BUFFER_INIT;
    pr__audit_subject_write(subject, &buffer);
    const char *text = pr__buffer_text(&buffer);
    if (!text)
        return pr__fail_nomem(err, ORIGIN);
    return pr__sqlite_run(conn, sql_audit, NULL, err, "itttti", now_us, who, action, text, reason,
                          (int64_t)count);
}

/* The subscription of a name; the relay for NULL. */
static pr_status reader_of(pr__sqlite_conn *conn, const char *name, int64_t *ret_reader,
                           bool *ret_found, pr_error *err)
{
    *ret_found = true;
    *ret_reader = PR_READER_RELAY;
    if (!name)
        return PR_OK;
    return pr__sqlite_int(conn, sql_reader, ret_reader, ret_found, err, "t", name);
}

/* ---- redrive ---- */

typedef struct redrive_job {
    pr__redrive base;
    pr__sqlite_store *store;
    int64_t reader;
} redrive_job;

static pr_status load_retention(redrive_job *redrive, pr_error *err)
{
    int64_t ms = 0;
    TRY(pr__sqlite_int(&redrive->store->conn, sql_retention, &ms, NULL, err, ""));
    pr__redrive_remembers(&redrive->base, ms);
    return PR_OK;
}

static pr_status collect(redrive_job *redrive, pr_error *err)
{
    pr__sqlite_conn *conn = &redrive->store->conn;
    const pr_redrive_options *opt = redrive->base.opt;
    const char *transport = redrive->store->settings.default_transport;
    AUTO_STMT stmt = NULL;
    bool row = false;
    if (opt->message_id && redrive->base.inbox)
        TRY(pr__sqlite_query(conn, sql_inbox_one, &stmt, err, "tt", opt->message_id,
                             opt->consumer));
    else if (opt->message_id)
        TRY(pr__sqlite_query(conn, sql_outbox_one, &stmt, err, "ti", opt->message_id,
                             redrive->reader));
    else if (redrive->base.inbox)
        TRY(pr__sqlite_query(conn, sql_inbox_filter, &stmt, err, "ntttt", opt->consumer, opt->type,
                             opt->destination, transport));
    else
        TRY(pr__sqlite_query(conn, sql_outbox_filter, &stmt, err, "nittt", redrive->reader,
                             opt->type, opt->destination, transport));
    while (pr__redrive_room(&redrive->base)) {
        TRY(pr__sqlite_step(conn, stmt, &row, err));
        if (!row)
            break;
        const pr__redrive_row found = {.place = sqlite3_column_int64(stmt, 0),
                                       .state = (const char *)sqlite3_column_text(stmt, 1),
                                       .type = (const char *)sqlite3_column_text(stmt, 2),
                                       .type_version = (uint32_t)sqlite3_column_int64(stmt, 3),
                                       .occurred_at_us = sqlite3_column_int64(stmt, 4),
                                       .failed_at_us = sqlite3_column_int64(stmt, 5),
                                       .marked = sqlite3_column_int(stmt, 6) != 0};
        pr__redrive_consider(&redrive->base, &found);
    }
    return PR_OK;
}

/* Nothing was redriven, and that is not what was asked for: say why. */
static pr_status refuse(redrive_job *redrive, pr_error *err)
{
    const pr_redrive_options *opt = redrive->base.opt;
    pr__sqlite_conn *conn = &redrive->store->conn;
    int64_t known = 0;
    if (pr__redrive_asks(&redrive->base) && redrive->base.inbox)
        TRY(pr__sqlite_int(conn, sql_is_marked, &known, NULL, err, "tt", opt->message_id,
                           opt->consumer));
    else if (pr__redrive_asks(&redrive->base))
        TRY(pr__sqlite_int(conn, sql_in_log, &known, NULL, err, "t", opt->message_id));
    return pr__redrive_refuse(&redrive->base, known > 0, ORIGIN, err);
}

/* Those of the candidates that are still dead. */
static pr_status revive(redrive_job *redrive, pr_error *err)
{
    pr__redrive *base = &redrive->base;
    pr__sqlite_conn *conn = &redrive->store->conn;
    uint32_t candidates = base->count;
    base->count = 0;
    for (uint32_t i = 0; i < candidates; i++) {
        int64_t changes = 0;
        TRY(pr__sqlite_run(conn, base->inbox ? sql_revive_inbox : sql_revive_outbox, &changes, err,
                           "ii", base->places[i], base->now_us));
        base->count += (uint32_t)changes;
    }
    if (base->count == 0)
        return PR_OK; /* others were faster */
    pr__audit_subject subject = pr__redrive_subject(base);
    TRY(pr__sqlite_audit(conn, &subject, "redrive", base->opt->who, base->opt->reason, base->now_us,
                         base->count, err));
    PR_FAULT("store.before_redrive_commit");
    return PR_OK;
}

static pr_status find_dead(redrive_job *redrive, pr_error *err)
{
    const char *consumer = redrive->base.opt->consumer;
    TRY(load_retention(redrive, err));
    redrive->base.now_us = pr__sqlite_now(&redrive->store->base);
    if (!redrive->base.inbox) {
        bool found = false;
        TRY(reader_of(&redrive->store->conn, consumer, &redrive->reader, &found, err));
        if (!found)
            return pr__fail(err, PR_E_NOT_FOUND, ORIGIN, "there is no subscription \"%s\"",
                            consumer);
    }
    TRY(collect(redrive, err));
    return redrive->base.count == 0 ? refuse(redrive, err) : PR_OK;
}

static pr_status find_and_revive(redrive_job *redrive, pr_error *err)
{
    TRY(find_dead(redrive, err));
    return redrive->base.count > 0 ? revive(redrive, err) : PR_OK;
}

/* By a filter all dead ones may have to be looked at: not under the write lock, which holds up
   every writer of the file. */
static pr_status redrive_rows(redrive_job *redrive, pr_error *err)
{
    pr__sqlite_conn *conn = &redrive->store->conn;
    const pr_redrive_options *opt = redrive->base.opt;
    if (opt->message_id && !opt->dry_run) {
        TRY(pr__sqlite_begin(conn, /* write= */ true, err));
        return pr__sqlite_end(conn, find_and_revive(redrive, err), err);
    }
    TRY(pr__sqlite_begin(conn, /* write= */ false, err));
    TRY(pr__sqlite_end(conn, find_dead(redrive, err), err));
    if (opt->dry_run || redrive->base.count == 0)
        return PR_OK;
    TRY(pr__sqlite_begin(conn, /* write= */ true, err));
    return pr__sqlite_end(conn, revive(redrive, err), err);
}

pr_status pr__sqlite_redrive(pr_store *store, const pr_redrive_options *opt,
                             pr__redrive_check check, void *user, uint64_t *ret_count,
                             pr_error *err)
{
    pr__sqlite_store *self = pr__sqlite_store_of(store);
    TRY(pr__sqlite_ready(self, err));
    TRY(pr__sqlite_settings_load(self, err));
    AUTO(pr__arena) arena = pr__arena_new(0);
    redrive_job redrive = {.store = self};
    TRY(pr__redrive_begin(&redrive.base, arena, opt, check, user, err));
    TRY(redrive_rows(&redrive, err));
    PR_FAULT("store.after_redrive_commit");
    *ret_count = redrive.base.count;
    return PR_OK;
}

/* ---- discard ---- */

/* The first row of a candidates' query: dead ones come first. *ret_place 0: there is none. */
static pr_status first_dead(pr__sqlite_conn *conn, sqlite3_stmt *stmt, int64_t *ret_place,
                            int64_t *ret_log_id, char *ret_state, size_t size, pr_error *err)
{
    bool row = false;
    *ret_place = 0;
    TRY(pr__sqlite_step(conn, stmt, &row, err));
    if (!row)
        return PR_OK;
    pr__format(ret_state, size, "%s", (const char *)sqlite3_column_text(stmt, 1));
    *ret_place = sqlite3_column_int64(stmt, 0);
    *ret_log_id = sqlite3_column_int64(stmt, 7);
    return PR_OK;
}

static pr_status discard_inbox(pr__sqlite_store *store, const char *message_id,
                               const char *consumer, int64_t now_us, bool *ret_found, pr_error *err)
{
    pr__sqlite_conn *conn = &store->conn;
    int64_t place = 0, unused = 0;
    char state[16] = "";
    {
        AUTO_STMT stmt = NULL;
        TRY(pr__sqlite_query(conn, sql_inbox_one, &stmt, err, "tt", message_id, consumer));
        TRY(first_dead(conn, stmt, &place, &unused, state, sizeof state, err));
    }
    *ret_found = place != 0;
    if (!*ret_found)
        return PR_OK;
    if (!pr__text_equal(state, "dead"))
        return pr__discard_refuse(message_id, state, ORIGIN, err);
    TRY(pr__sqlite_run(conn, sql_mark_dead, NULL, err, "ii", place, now_us));
    return pr__sqlite_run(conn, sql_drop_inbox, NULL, err, "i", place);
}

/* A row of the relay takes its row of the log with it, which would count as published. */
static pr_status discard_outbox(pr__sqlite_store *store, const char *message_id, int64_t reader,
                                int64_t *ret_log_id, bool *ret_found, pr_error *err)
{
    pr__sqlite_conn *conn = &store->conn;
    int64_t place = 0;
    char state[16] = "";
    {
        AUTO_STMT stmt = NULL;
        TRY(pr__sqlite_query(conn, sql_outbox_one, &stmt, err, "ti", message_id, reader));
        TRY(first_dead(conn, stmt, &place, ret_log_id, state, sizeof state, err));
    }
    *ret_found = place != 0;
    if (!*ret_found)
        return PR_OK;
    if (!pr__text_equal(state, "dead"))
        return pr__discard_refuse(message_id, state, ORIGIN, err);
    TRY(pr__sqlite_run(conn, sql_drop_outbox, NULL, err, "i", place));
    if (reader != PR_READER_RELAY)
        return PR_OK;
    return pr__sqlite_run(conn, sql_drop_log, NULL, err, "i", *ret_log_id);
}

static pr_status discard_row(pr__sqlite_store *store, const char *message_id, const char *consumer,
                             const char *who, const char *reason, pr_error *err)
{
    pr__sqlite_conn *conn = &store->conn;
    int64_t now_us = pr__sqlite_now(&store->base);
    int64_t log_id = 0;
    int64_t reader = 0;
    int64_t known = 0;
    bool found = false;
    if (consumer)
        TRY(discard_inbox(store, message_id, consumer, now_us, &found, err));
    bool inbox = found;
    if (!found) {
        TRY(reader_of(conn, consumer, &reader, &found, err));
        if (found)
            TRY(discard_outbox(store, message_id, reader, &log_id, &found, err));
    }
    if (!found) {
        if (consumer)
            return pr__fail(err, PR_E_NOT_FOUND, ORIGIN,
                            "there is no dead message \"%s\" at \"%s\"", message_id, consumer);
        TRY(pr__sqlite_int(conn, sql_in_log, &known, NULL, err, "t", message_id));
        if (known > 0)
            return pr__discard_refuse(message_id, "pending or published", ORIGIN, err);
        return pr__fail(err, PR_E_NOT_FOUND, ORIGIN, "there is no message \"%s\"", message_id);
    }
    pr__audit_subject subject = {.message_id = message_id,
                                 .consumer = consumer,
                                 .box = inbox ? "inbox" : "outbox",
                                 .log_id = reader == PR_READER_RELAY ? log_id : 0};
    TRY(pr__sqlite_audit(conn, &subject, "discard", who, reason, now_us, 1, err));
    PR_FAULT("store.before_discard_commit");
    return PR_OK;
}

pr_status pr__sqlite_discard(pr_store *store, const char *message_id, const char *consumer,
                             const char *who, const char *reason, pr_error *err)
{
    pr__sqlite_store *self = pr__sqlite_store_of(store);
    TRY(pr__sqlite_ready(self, err));
    TRY(pr__sqlite_begin(&self->conn, /* write= */ true, err));
    TRY(pr__sqlite_end(&self->conn, discard_row(self, message_id, consumer, who, reason, err),
                       err));
    PR_FAULT("store.after_discard_commit");
    return PR_OK;
}

/* ---- cancel ---- */

static pr_status cancel_row(pr__sqlite_store *store, const char *message_id, const char *who,
                            const char *reason, pr_error *err)
{
    pr__sqlite_conn *conn = &store->conn;
    int64_t changes = 0;
    int64_t known = 0;
    TRY(pr__sqlite_run(conn, sql_cancel, &changes, err, "t", message_id));
    if (changes == 0) {
        TRY(pr__sqlite_int(conn, sql_in_log, &known, NULL, err, "t", message_id));
        if (known > 0)
            return pr__fail(err, PR_E_STATE, ORIGIN,
                            "message \"%s\" is not delayed any more: it stands in the log",
                            message_id);
        return pr__fail(err, PR_E_NOT_FOUND, ORIGIN, "there is no message \"%s\"", message_id);
    }
    pr__audit_subject subject = {.message_id = message_id, .box = "outbox"};
    TRY(pr__sqlite_audit(conn, &subject, "cancel", who, reason, pr__sqlite_now(&store->base),
                         (uint64_t)changes, err));
    PR_FAULT("store.before_cancel_commit");
    return PR_OK;
}

pr_status pr__sqlite_cancel(pr_store *store, const char *message_id, const char *who,
                            const char *reason, pr_error *err)
{
    pr__sqlite_store *self = pr__sqlite_store_of(store);
    TRY(pr__sqlite_ready(self, err));
    TRY(pr__sqlite_begin(&self->conn, /* write= */ true, err));
    TRY(pr__sqlite_end(&self->conn, cancel_row(self, message_id, who, reason, err), err));
    PR_FAULT("store.after_cancel_commit");
    return PR_OK;
}
