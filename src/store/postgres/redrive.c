/*
 * Redrive, discard, cancel: what operators change, each in one transaction with its audit row.
 *
 * Invariant: only what is dead is redriven or discarded, only what is delayed is cancelled; rows
 * are locked before their state is looked at, so of two at once one succeeds. In the inbox the mark
 * is touched before the parked row: a dead row never stands beside a mark.
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
#include "store/postgres/operations.h"
#include "store/postgres/record.h"
#include "store/postgres/value.h"

#define ORIGIN "postgres.redrive"

static const char SQL_RETENTION[] =
    "SELECT CASE WHEN value ~ '^[0-9]{1,18}$' THEN value::int8 END FROM {p}setting WHERE name = "
    "'inbox_retention_ms'";

static const char SQL_READER[] = "SELECT reader FROM {p}subscription WHERE name = $1";

static const char SQL_AUDIT[] = "INSERT INTO {p}audit (who, action, subject, reason, count) VALUES "
                                "($1, $2, $3, $4, $5)";

/* Candidates: place, state, type, version, occurred_at, when it failed first, is it marked, id in
   the log, lane. $1 the id, $2 reader or consumer, $3 type, $4 destination, $5 transport. */
#define OUTBOX_COLUMNS                                                                             \
    "SELECT t.place, t.state, t.type, t.type_version, t.occurred_at, t.first_failed_at, false, "   \
    "t.log_id, t.lane FROM {p}outbox_parked AS t WHERE "
#define INBOX_COLUMNS                                                                              \
    "SELECT t.place, t.state, t.type, t.type_version, t.occurred_at, coalesce(t.first_failed_at, " \
    "t.parked_at), EXISTS (SELECT FROM {p}inbox AS m WHERE m.tenant = t.tenant AND m.consumer = "  \
    "t.consumer AND m.message_id = t.message_id), t.place, 0 FROM {p}inbox_parked AS t WHERE "
#define MATCHES                                                                                    \
    "($3 IS NULL OR t.type = $3) AND ($4 IS NULL OR coalesce(t.destination, $5 || '://topic/' || " \
    "t.type) = $4)"

#define OUTBOX_ONE "t.message_id = $1 AND t.reader = $2 ORDER BY t.state <> 'dead', t.log_id"
#define OUTBOX_FILTER                                                                              \
    "t.reader = $2 AND t.state = 'dead' AND " MATCHES " ORDER BY t.log_id LIMIT 10000"
#define INBOX_ONE "t.message_id = $1 AND t.consumer = $2 ORDER BY t.state <> 'dead', t.place"
#define INBOX_FILTER                                                                               \
    "t.consumer = $2 AND t.state = 'dead' AND " MATCHES " ORDER BY t.place LIMIT 10000"
#define LOCK " FOR UPDATE"

/* By box, by one or by filter, locked or only looked at. */
static const char *const CANDIDATES[2][2][2] = {
    {{OUTBOX_COLUMNS OUTBOX_FILTER, OUTBOX_COLUMNS OUTBOX_FILTER LOCK},
     {OUTBOX_COLUMNS OUTBOX_ONE, OUTBOX_COLUMNS OUTBOX_ONE LOCK}},
    {{INBOX_COLUMNS INBOX_FILTER, INBOX_COLUMNS INBOX_FILTER LOCK},
     {INBOX_COLUMNS INBOX_ONE, INBOX_COLUMNS INBOX_ONE LOCK}}};

static const char SQL_REVIVE_OUTBOX[] =
    "UPDATE {p}outbox_parked SET state = 'failed', resume_state = NULL, attempts = 0, takeovers = "
    "0, suspicion = 0, deferred = false, next_attempt_at = clock_timestamp(), lock_token = NULL, "
    "locked_until = NULL, owner = NULL, redriven_at = clock_timestamp() WHERE place = ANY ($1) AND "
    "state = 'dead'";
static const char SQL_REVIVE_INBOX[] =
    "UPDATE {p}inbox_parked SET state = 'failed', resume_state = NULL, attempts = 0, takeovers = "
    "0, next_attempt_at = clock_timestamp(), lock_token = NULL, locked_until = NULL, owner = NULL, "
    "redriven_at = clock_timestamp() WHERE place = ANY ($1) AND state = 'dead'";

static const char SQL_IN_LOG[] = "SELECT count(*) FROM {p}outbox WHERE message_id = $1";
static const char SQL_IS_MARKED[] = PR__PG_MARKS_OF_ID "SELECT count(*) FROM m WHERE consumer = $2";
static const char SQL_MARK_DEAD[] =
    "INSERT INTO {p}inbox (tenant, consumer, message_id, body_hash, processed_at) SELECT tenant, "
    "consumer, message_id, body_hash, clock_timestamp() FROM {p}inbox_parked WHERE place = $1 AND "
    "state = 'dead' ON CONFLICT DO NOTHING";
static const char SQL_DROP_INBOX[] =
    "DELETE FROM {p}inbox_parked WHERE place = $1 AND state = 'dead'";
static const char SQL_DROP_OUTBOX[] =
    "DELETE FROM {p}outbox_parked WHERE place = $1 AND state = 'dead'";
static const char SQL_DROP_LOG[] = "DELETE FROM {p}outbox WHERE id = $1 AND lane = $2";
static const char SQL_CANCEL[] =
    "DELETE FROM {p}outbox_parked WHERE message_id = $1 AND reader = 0";

/* ---- what all of them do ---- */

pr_status pr__pg_audit(pr__pg_conn *conn, const pr__audit_subject *subject, const char *action,
                       const char *who, const char *reason, uint64_t count, pr_error *err)
{
    AUTO_BUFFER buffer = PR_BUFFER_INIT;
    pr__audit_subject_write(subject, &buffer);
    const char *text = pr__buffer_text(&buffer);
    if (!text)
        return pr__fail_nomem(err, ORIGIN);
    return pr__pg_run(conn, SQL_AUDIT, NULL, err, "tttti", who, action, text, reason,
                      (int64_t)count);
}

/* The subscription of a name; the relay for NULL. */
static pr_status reader_of(pr__pg_conn *conn, const char *name, int64_t *ret_reader,
                           bool *ret_found, pr_error *err)
{
    *ret_found = true;
    *ret_reader = PR_READER_RELAY;
    if (!name)
        return PR_OK;
    return pr__pg_int(conn, SQL_READER, ret_reader, ret_found, err, "t", name);
}

/* ---- redrive ---- */

typedef struct redrive_job {
    pr__redrive base;
    pr__pg_store *store;
    int64_t reader;
} redrive_job;

static pr_status load_retention(redrive_job *redrive, pr_error *err)
{
    int64_t ms = 0;
    TRY(pr__pg_int(&redrive->store->conn, SQL_RETENTION, &ms, NULL, err, ""));
    pr__redrive_remembers(&redrive->base, ms);
    return PR_OK;
}

static pr_status collect(redrive_job *redrive, pr_error *err)
{
    pr__pg_conn *conn = &redrive->store->conn;
    const pr_redrive_options *opt = redrive->base.opt;
    const char *transport = redrive->store->settings.default_transport;
    const char *sql = CANDIDATES[redrive->base.inbox][opt->message_id != NULL][!opt->dry_run];
    AUTO_RESULT result = NULL;
    if (opt->message_id && redrive->base.inbox)
        TRY(pr__pg_query(conn, sql, &result, err, "tt", opt->message_id, opt->consumer));
    else if (opt->message_id)
        TRY(pr__pg_query(conn, sql, &result, err, "ui", opt->message_id, redrive->reader));
    else if (redrive->base.inbox)
        TRY(pr__pg_query(conn, sql, &result, err, "ttttt", (const char *)NULL, opt->consumer,
                         opt->type, opt->destination, transport));
    else
        TRY(pr__pg_query(conn, sql, &result, err, "tittt", (const char *)NULL, redrive->reader,
                         opt->type, opt->destination, transport));
    for (int row = 0; row < PQntuples(result) && pr__redrive_room(&redrive->base); row++) {
        const pr__redrive_row found = {.place = pr__pg_value_int(result, row, 0),
                                       .state = pr__pg_value_text(result, row, 1),
                                       .type = pr__pg_value_text(result, row, 2),
                                       .type_version = (uint32_t)pr__pg_value_int(result, row, 3),
                                       .occurred_at_us = pr__pg_value_instant(result, row, 4),
                                       .failed_at_us = pr__pg_value_instant(result, row, 5),
                                       .marked = pr__pg_value_int(result, row, 6) != 0};
        pr__redrive_consider(&redrive->base, &found);
    }
    return PR_OK;
}

/* Nothing was redriven, and that is not what was asked for: say why. */
static pr_status refuse(redrive_job *redrive, pr_error *err)
{
    const pr_redrive_options *opt = redrive->base.opt;
    pr__pg_conn *conn = &redrive->store->conn;
    int64_t known = 0;
    if (pr__redrive_asks(&redrive->base) && redrive->base.inbox)
        TRY(pr__pg_int(conn, SQL_IS_MARKED, &known, NULL, err, "tt", opt->message_id,
                       opt->consumer));
    else if (pr__redrive_asks(&redrive->base))
        TRY(pr__pg_int(conn, SQL_IN_LOG, &known, NULL, err, "u", opt->message_id));
    return pr__redrive_refuse(&redrive->base, known > 0, ORIGIN, err);
}

static pr_status revive_places(redrive_job *redrive, pr__pg_array *places, pr_error *err)
{
    AUTO_PARAMS params = {.count = 0};
    for (uint32_t i = 0; i < redrive->base.count; i++)
        pr__pg_array_int(places, redrive->base.places[i]);
    pr__pg_add_array(&params, places);
    return pr__pg_exec(&redrive->store->conn,
                       redrive->base.inbox ? SQL_REVIVE_INBOX : SQL_REVIVE_OUTBOX, &params, NULL,
                       err);
}

static pr_status revive(redrive_job *redrive, pr_error *err)
{
    const pr_redrive_options *opt = redrive->base.opt;
    pr__pg_array places;
    pr__pg_array_init(&places, PR__PG_INT8);
    pr_status status = revive_places(redrive, &places, err);
    pr__pg_array_done(&places);
    TRY(status);
    pr__audit_subject subject = pr__redrive_subject(&redrive->base);
    TRY(pr__pg_audit(&redrive->store->conn, &subject, "redrive", opt->who, opt->reason,
                     redrive->base.count, err));
    PR_FAULT("store.before_redrive_commit");
    return PR_OK;
}

static pr_status redrive_rows(redrive_job *redrive, pr_error *err)
{
    pr__pg_conn *conn = &redrive->store->conn;
    const pr_redrive_options *opt = redrive->base.opt;
    TRY(pr__pg_settings_load(redrive->store, err));
    TRY(load_retention(redrive, err));
    TRY(pr__pg_now(conn, &redrive->base.now_us, err));
    if (!redrive->base.inbox) {
        bool found = false;
        TRY(reader_of(conn, opt->consumer, &redrive->reader, &found, err));
        if (!found)
            return pr__fail(err, PR_E_NOT_FOUND, ORIGIN, "there is no subscription \"%s\"",
                            opt->consumer);
    }
    TRY(collect(redrive, err));
    if (redrive->base.count == 0)
        return refuse(redrive, err);
    return opt->dry_run ? PR_OK : revive(redrive, err);
}

pr_status pr__pg_redrive(pr_store *store, const pr_redrive_options *opt, pr__redrive_check check,
                         void *user, uint64_t *ret_count, pr_error *err)
{
    pr__pg_store *self = pr__pg_store_of(store);
    TRY(pr__pg_ready(self, err));
    AUTO(pr__arena) arena = pr__arena_new(0);
    redrive_job redrive = {.store = self};
    TRY(pr__redrive_begin(&redrive.base, arena, opt, check, user, err));
    TRY(opt->dry_run ? pr__pg_begin_read(&self->conn, 0, err) : pr__pg_begin(&self->conn, err));
    TRY(pr__pg_end(&self->conn, redrive_rows(&redrive, err), err));
    PR_FAULT("store.after_redrive_commit");
    *ret_count = redrive.base.count;
    return PR_OK;
}

/* ---- discard ---- */

/* The first row of a candidates' query: dead ones come first. */
typedef struct first_row {
    int64_t place; /* 0: there is none */
    int64_t log_id, lane;
    char state[16];
} first_row;

static void read_first(const PGresult *result, first_row *first)
{
    *first = (first_row){.place = 0};
    if (PQntuples(result) == 0)
        return;
    first->place = pr__pg_value_int(result, 0, 0);
    pr__format(first->state, sizeof first->state, "%s", pr__pg_value_text(result, 0, 1));
    first->log_id = pr__pg_value_int(result, 0, 7);
    first->lane = pr__pg_value_int(result, 0, 8);
}

/* The mark first: whoever handles this message now has it, and then this waits and finds nothing to
   drop. */
static pr_status discard_inbox(pr__pg_store *store, const char *message_id, const char *consumer,
                               bool *ret_found, pr_error *err)
{
    pr__pg_conn *conn = &store->conn;
    AUTO_RESULT result = NULL;
    first_row first;
    int64_t changes = 0;
    TRY(pr__pg_query(conn, CANDIDATES[1][1][0], &result, err, "tt", message_id, consumer));
    read_first(result, &first);
    *ret_found = first.place != 0;
    if (!*ret_found)
        return PR_OK;
    if (!pr__text_equal(first.state, "dead"))
        return pr__discard_refuse(message_id, first.state, ORIGIN, err);
    TRY(pr__pg_run(conn, SQL_MARK_DEAD, NULL, err, "i", first.place));
    TRY(pr__pg_run(conn, SQL_DROP_INBOX, &changes, err, "i", first.place));
    return changes == 1 ? PR_OK : pr__discard_refuse(message_id, "changed meanwhile", ORIGIN, err);
}

/* A row of the relay takes its row of the log with it, which would count as published. */
static pr_status discard_outbox(pr__pg_store *store, const char *message_id, int64_t reader,
                                int64_t *ret_log_id, bool *ret_found, pr_error *err)
{
    pr__pg_conn *conn = &store->conn;
    AUTO_RESULT result = NULL;
    first_row first;
    TRY(pr__pg_query(conn, CANDIDATES[0][1][1], &result, err, "ui", message_id, reader));
    read_first(result, &first);
    *ret_found = first.place != 0;
    if (!*ret_found)
        return PR_OK;
    *ret_log_id = first.log_id;
    if (!pr__text_equal(first.state, "dead"))
        return pr__discard_refuse(message_id, first.state, ORIGIN, err);
    TRY(pr__pg_run(conn, SQL_DROP_OUTBOX, NULL, err, "i", first.place));
    if (reader != PR_READER_RELAY)
        return PR_OK;
    return pr__pg_run(conn, SQL_DROP_LOG, NULL, err, "ii", first.log_id, first.lane);
}

static pr_status discard_row(pr__pg_store *store, const char *message_id, const char *consumer,
                             const char *who, const char *reason, pr_error *err)
{
    pr__pg_conn *conn = &store->conn;
    int64_t log_id = 0;
    int64_t reader = 0;
    int64_t known = 0;
    bool found = false;
    if (consumer)
        TRY(discard_inbox(store, message_id, consumer, &found, err));
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
        TRY(pr__pg_int(conn, SQL_IN_LOG, &known, NULL, err, "u", message_id));
        if (known > 0)
            return pr__discard_refuse(message_id, "pending or published", ORIGIN, err);
        return pr__fail(err, PR_E_NOT_FOUND, ORIGIN, "there is no message \"%s\"", message_id);
    }
    pr__audit_subject subject = {.message_id = message_id,
                                 .consumer = consumer,
                                 .box = inbox ? "inbox" : "outbox",
                                 .log_id = reader == PR_READER_RELAY ? log_id : 0};
    TRY(pr__pg_audit(conn, &subject, "discard", who, reason, 1, err));
    PR_FAULT("store.before_discard_commit");
    return PR_OK;
}

pr_status pr__pg_discard(pr_store *store, const char *message_id, const char *consumer,
                         const char *who, const char *reason, pr_error *err)
{
    pr__pg_store *self = pr__pg_store_of(store);
    TRY(pr__pg_ready(self, err));
    TRY(pr__pg_begin(&self->conn, err));
    TRY(pr__pg_end(&self->conn, discard_row(self, message_id, consumer, who, reason, err), err));
    PR_FAULT("store.after_discard_commit");
    return PR_OK;
}

/* ---- cancel ---- */

static pr_status cancel_row(pr__pg_store *store, const char *message_id, const char *who,
                            const char *reason, pr_error *err)
{
    pr__pg_conn *conn = &store->conn;
    int64_t changes = 0;
    int64_t known = 0;
    TRY(pr__pg_run(conn, SQL_CANCEL, &changes, err, "u", message_id));
    if (changes == 0) {
        TRY(pr__pg_int(conn, SQL_IN_LOG, &known, NULL, err, "u", message_id));
        if (known > 0)
            return pr__fail(err, PR_E_STATE, ORIGIN,
                            "message \"%s\" is not delayed any more: it stands in the log",
                            message_id);
        return pr__fail(err, PR_E_NOT_FOUND, ORIGIN, "there is no message \"%s\"", message_id);
    }
    pr__audit_subject subject = {.message_id = message_id, .box = "outbox"};
    TRY(pr__pg_audit(conn, &subject, "cancel", who, reason, (uint64_t)changes, err));
    PR_FAULT("store.before_cancel_commit");
    return PR_OK;
}

pr_status pr__pg_cancel(pr_store *store, const char *message_id, const char *who,
                        const char *reason, pr_error *err)
{
    pr__pg_store *self = pr__pg_store_of(store);
    TRY(pr__pg_ready(self, err));
    TRY(pr__pg_begin(&self->conn, err));
    TRY(pr__pg_end(&self->conn, cancel_row(self, message_id, who, reason, err), err));
    PR_FAULT("store.after_cancel_commit");
    return PR_OK;
}
