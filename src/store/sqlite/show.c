/*
 * One message: every row of its id, what blocks it, and what stands around it in the log.
 *
 * Owns: the facts that explain is made of.
 * Invariant: read only; each answer is read in one snapshot.
 * Must not know: the words of the explanation.
 */
#include <string.h>

#include <postroom/address.h>

#include "base/error.h"
#include "base/text.h"
#include "port/state.h"
#include "store/sqlite/operations.h"
#include "store/sqlite/record.h"

#define ORIGIN   "sqlite.operations"
#define ROWS_MAX 1000 /* of one id, in one answer */

/* An id of the log is written in lower case, whatever case it is asked in. */
static const char sql_log[] =
    "SELECT id FROM {p}_outbox WHERE message_id IN (?1, lower(?1)) ORDER BY id LIMIT ?2";

/* By the id in the log: the view is a union, and anything else makes it whole first. */
static const char sql_readers[] =
    "SELECT reader FROM {p}_outbox_state WHERE log_id = ?1 AND state <> 'delayed' ORDER BY reader";

/* Parked rows whose row of the log is gone: they are full copies, and go on. */
static const char sql_alone[] =
    "SELECT log_id, reader FROM {p}_outbox_parked AS t WHERE message_id IN (?1, lower(?1)) AND "
    "reader <> 0 AND NOT EXISTS (SELECT 1 FROM {p}_outbox AS o WHERE o.id = t.log_id) ORDER BY "
    "log_id, reader LIMIT ?2";

static const char sql_delayed[] =
    "SELECT log_id FROM {p}_outbox_parked WHERE message_id IN (?1, lower(?1)) AND reader = 0 "
    "ORDER BY log_id LIMIT ?2";

static const char sql_inbox[] =
    "SELECT place FROM {p}_inbox_parked WHERE message_id = ?1 ORDER BY place LIMIT ?2";

static const char sql_original[] =
    "SELECT place FROM {p}_inbox_parked WHERE original_id = ?1 AND message_id <> ?1 "
    "ORDER BY place LIMIT ?2";

static const char sql_handled[] =
    PR__MARKS_OF_ID "SELECT tenant, consumer, message_id, processed_at FROM m LIMIT ?2";

/* Why it is not there any more. */
static const char sql_gone[] =
    "SELECT action, who FROM {p}_audit WHERE json_extract(subject, '$.message_id') = ?1 "
    "AND action IN ('discard', 'cancel') ORDER BY id DESC LIMIT 1";

/* A row of the log as each of its readers sees it; as the relay does when nobody reads it. */
static pr_status show_readers(pr__records *records, int64_t log_id, pr_error *err)
{
    pr__sqlite_conn *conn = &records->store->conn;
    AUTO_STMT stmt = NULL;
    bool row = false;
    uint32_t before = records->count;
    TRY(pr__sqlite_query(conn, sql_readers, &stmt, err, "i", log_id));
    for (;;) {
        TRY(pr__sqlite_step(conn, stmt, &row, err));
        if (!row)
            break;
        TRY(pr__records_add_log(records, sqlite3_column_int64(stmt, 0), log_id, err));
    }
    if (records->count > before)
        return PR_OK;
    return pr__records_add_log(records, PR_READER_RELAY, log_id, err);
}

static pr_status show_log(pr__records *records, const char *message_id, pr_error *err)
{
    pr__sqlite_conn *conn = &records->store->conn;
    AUTO_STMT stmt = NULL;
    bool row = false;
    TRY(pr__sqlite_query(conn, sql_log, &stmt, err, "ti", message_id, (int64_t)ROWS_MAX));
    for (;;) {
        TRY(pr__sqlite_step(conn, stmt, &row, err));
        if (!row)
            return PR_OK;
        TRY(show_readers(records, sqlite3_column_int64(stmt, 0), err));
    }
}

static pr_status show_alone(pr__records *records, const char *message_id, pr_error *err)
{
    pr__sqlite_conn *conn = &records->store->conn;
    AUTO_STMT stmt = NULL;
    bool row = false;
    TRY(pr__sqlite_query(conn, sql_alone, &stmt, err, "ti", message_id, (int64_t)ROWS_MAX));
    for (;;) {
        TRY(pr__sqlite_step(conn, stmt, &row, err));
        if (!row)
            return PR_OK;
        TRY(pr__records_add_parked(records, sqlite3_column_int64(stmt, 1),
                                   sqlite3_column_int64(stmt, 0), NULL, err));
    }
}

static pr_status show_rows(pr__records *records, const char *sql, bool inbox,
                           const char *message_id, pr_error *err)
{
    pr__sqlite_conn *conn = &records->store->conn;
    AUTO_STMT stmt = NULL;
    bool row = false;
    TRY(pr__sqlite_query(conn, sql, &stmt, err, "ti", message_id, (int64_t)ROWS_MAX));
    for (;;) {
        TRY(pr__sqlite_step(conn, stmt, &row, err));
        if (!row)
            return PR_OK;
        int64_t at = sqlite3_column_int64(stmt, 0);
        if (inbox)
            TRY(pr__records_add_inbox(records, at, err));
        else
            TRY(pr__records_add_parked(records, PR_READER_DELAYED, at, NULL, err));
    }
}

static pr_status show_marks(pr__records *records, const char *message_id, pr_error *err)
{
    pr__sqlite_conn *conn = &records->store->conn;
    AUTO_STMT stmt = NULL;
    bool row = false;
    TRY(pr__sqlite_query(conn, sql_handled, &stmt, err, "ti", message_id, (int64_t)ROWS_MAX));
    for (;;) {
        TRY(pr__sqlite_step(conn, stmt, &row, err));
        if (!row)
            return PR_OK;
        TRY(pr__records_add_mark(records, (const char *)sqlite3_column_text(stmt, 0),
                                 (const char *)sqlite3_column_text(stmt, 1),
                                 (const char *)sqlite3_column_text(stmt, 2),
                                 sqlite3_column_int64(stmt, 3), err));
    }
}

static pr_status not_found(pr__sqlite_conn *conn, const char *message_id, pr_error *err)
{
    AUTO_STMT stmt = NULL;
    bool row = false;
    TRY(pr__sqlite_query(conn, sql_gone, &stmt, err, "t", message_id));
    TRY(pr__sqlite_step(conn, stmt, &row, err));
    if (!row)
        return pr__fail(err, PR_E_NOT_FOUND, ORIGIN, "there is no message \"%s\"", message_id);
    bool cancelled = pr__text_equal((const char *)sqlite3_column_text(stmt, 0), "cancel");
    return pr__fail(err, PR_E_NOT_FOUND, ORIGIN, "message \"%s\" was %s by \"%s\"; see the audit",
                    message_id, cancelled ? "cancelled" : "discarded",
                    (const char *)sqlite3_column_text(stmt, 1));
}

static pr_status show_all(pr__records *records, const char *message_id, pr_error *err)
{
    TRY(show_log(records, message_id, err));
    TRY(show_alone(records, message_id, err));
    TRY(show_rows(records, sql_delayed, false, message_id, err));
    TRY(show_rows(records, sql_inbox, true, message_id, err));
    TRY(show_rows(records, sql_original, true, message_id, err));
    TRY(show_marks(records, message_id, err));
    if (records->count == 0)
        return not_found(&records->store->conn, message_id, err);
    return PR_OK;
}

pr_status pr__sqlite_show(pr_store *store, const char *message_id, pr_record_callback callback,
                          void *user, pr_error *err)
{
    pr__sqlite_store *self = pr__sqlite_store_of(store);
    TRY(pr__sqlite_ready(self, err));
    TRY(pr__sqlite_settings_load(self, err));
    AUTO(pr__arena) arena = pr__arena_new(0);
    if (!arena)
        return pr__fail_nomem(err, ORIGIN);
    pr__records records = {.store = self, .arena = arena, .with_body = true};
    TRY(pr__sqlite_begin(&self->conn, /* write= */ false, err));
    TRY(pr__sqlite_end(&self->conn, show_all(&records, message_id, err), err));
    (void)pr__records_deliver(&records, callback, user);
    return PR_OK;
}

/* ---- what blocks it ---- */

static const char sql_log_blocker[] =
    "SELECT message_id FROM {p}_outbox_parked WHERE reader = ?1 AND tenant = ?2 AND key = ?3 "
    "AND log_id < ?4 AND (state <> 'dead' OR "
    "(SELECT order_policy FROM {p}_subscription WHERE reader = ?1) = 'halt') "
    "AND (SELECT order_policy FROM {p}_subscription WHERE reader = ?1) <> 'skip' "
    "ORDER BY log_id LIMIT 1";

/* The order is the endpoint's and stands nowhere: a dead one blocks only what is held behind
   nothing else, which is what halt looks like. */
static const char sql_inbox_blocker[] =
    "SELECT message_id FROM {p}_inbox_parked WHERE tenant = ?1 AND consumer = ?2 AND key = ?3 "
    "AND place < (SELECT place FROM {p}_inbox_parked WHERE tenant = ?1 AND consumer = ?2 "
    "AND message_id = ?4) AND (state <> 'dead' OR ?5) ORDER BY state = 'dead', place LIMIT 1";

pr_status pr__sqlite_blocker(pr_store *store, const pr_record *record, char *ret_message_id,
                             size_t ret_size, pr_error *err)
{
    pr__sqlite_store *self = pr__sqlite_store_of(store);
    TRY(pr__sqlite_ready(self, err));
    ret_message_id[0] = '\0';
    if (!pr__record_blockable(record))
        return PR_OK;
    const pr_message *message = &record->message;
    const char *tenant = message->tenant ? message->tenant : "";
    AUTO_STMT stmt = NULL;
    bool row = false;
    if (record->box == PR_BOX_INBOX)
        TRY(pr__sqlite_query(&self->conn, sql_inbox_blocker, &stmt, err, "tttti", tenant,
                             record->consumer, message->key, message->id,
                             (int64_t)(record->state == PR_STATE_HELD)));
    else
        TRY(pr__sqlite_query(&self->conn, sql_log_blocker, &stmt, err, "itti", record->reader,
                             tenant, message->key, record->log_id));
    TRY(pr__sqlite_step(&self->conn, stmt, &row, err));
    if (row)
        pr__format(ret_message_id, ret_size, "%s", (const char *)sqlite3_column_text(stmt, 0));
    return PR_OK;
}

/* ---- what stands around it ---- */

static const char sql_lane[] =
    "SELECT EXISTS (SELECT 1 FROM json_each(j.ids) WHERE value = ?3), "
    "EXISTS (SELECT 1 FROM json_each(j.rest) WHERE value = ?3), json_array_length(j.ids), "
    "attempt, lease_until, owner FROM {p}_outbox_claim AS j WHERE reader = ?1 AND lane = ?2 "
    "ORDER BY seq DESC LIMIT 1";

static const char sql_last[] =
    "SELECT at, owner FROM {p}_outbox_claim WHERE reader = ?1 AND seq > 0 AND owner <> '' "
    "ORDER BY at DESC LIMIT 1";

static const char sql_deferred[] =
    "SELECT count(*) FROM {p}_outbox_parked WHERE reader = ?1 AND lane = ?2 AND deferred = 1 "
    "AND state IN ('failed', 'held')";

/* The first journal row that has passed the id and does not hold it; none before it: not known. */
static const char sql_settled[] =
    "SELECT at FROM {p}_outbox_claim AS j WHERE reader = ?1 AND lane = ?2 AND pos >= ?3 "
    "AND NOT EXISTS (SELECT 1 FROM json_each(j.ids) WHERE value = ?3) "
    "AND NOT EXISTS (SELECT 1 FROM json_each(j.rest) WHERE value = ?3) "
    "AND seq > (SELECT min(seq) FROM {p}_outbox_claim WHERE reader = ?1 AND lane = ?2) "
    "ORDER BY seq LIMIT 1";

static const char sql_name[] = "SELECT name FROM {p}_subscription WHERE reader = ?1 AND reader > 1";

static pr_status place_lane(pr__sqlite_conn *conn, const pr_record *record, pr__place *place,
                            pr_error *err)
{
    AUTO_STMT stmt = NULL;
    bool row = false;
    TRY(pr__sqlite_query(conn, sql_lane, &stmt, err, "iii", record->reader, (int64_t)record->lane,
                         record->log_id));
    TRY(pr__sqlite_step(conn, stmt, &row, err));
    if (!row)
        return PR_OK;
    place->in_slice = sqlite3_column_int(stmt, 0) != 0;
    place->in_rest = sqlite3_column_int(stmt, 1) != 0;
    place->slice_count = (uint32_t)sqlite3_column_int64(stmt, 2);
    if (place->slice_count == 0)
        return PR_OK;
    place->attempt = (uint32_t)sqlite3_column_int64(stmt, 3);
    place->lease_until_us = sqlite3_column_int64(stmt, 4);
    pr__format(place->owner, sizeof place->owner, "%s", (const char *)sqlite3_column_text(stmt, 5));
    return PR_OK;
}

static pr_status place_last(pr__sqlite_conn *conn, const pr_record *record, pr__place *place,
                            pr_error *err)
{
    AUTO_STMT stmt = NULL;
    TRY(pr__sqlite_query(conn, sql_last, &stmt, err, "i", record->reader));
    TRY(pr__sqlite_step(conn, stmt, &place->worked, err));
    if (!place->worked)
        return PR_OK;
    place->last_at_us = sqlite3_column_int64(stmt, 0);
    if (!place->owner[0])
        pr__format(place->owner, sizeof place->owner, "%s",
                   (const char *)sqlite3_column_text(stmt, 1));
    return PR_OK;
}

static pr_status place_name(pr__sqlite_conn *conn, const pr_record *record, pr__place *place,
                            pr_error *err)
{
    AUTO_STMT stmt = NULL;
    bool row = false;
    TRY(pr__sqlite_query(conn, sql_name, &stmt, err, "i", record->reader));
    TRY(pr__sqlite_step(conn, stmt, &row, err));
    if (row)
        pr__format(place->reader_name, sizeof place->reader_name, "%s",
                   (const char *)sqlite3_column_text(stmt, 0));
    return PR_OK;
}

static pr_status find_place(pr__sqlite_conn *conn, const pr_record *record, pr__place *place,
                            pr_error *err)
{
    int64_t deferred = 0;
    place->passed_over =
        record->reader == PR_READER_RELAY &&
        pr__text_starts_with(record->message.destination, PR_TRANSPORT_LOCAL "://");
    TRY(place_lane(conn, record, place, err));
    TRY(place_last(conn, record, place, err));
    TRY(place_name(conn, record, place, err));
    TRY(pr__sqlite_int(conn, sql_deferred, &deferred, NULL, err, "ii", record->reader,
                       (int64_t)record->lane));
    place->deferred_count = (uint32_t)deferred;
    if (record->state != PR_STATE_PUBLISHED)
        return PR_OK;
    return pr__sqlite_int(conn, sql_settled, &place->settled_at_us, NULL, err, "iii",
                          record->reader, (int64_t)record->lane, record->log_id);
}

pr_status pr__sqlite_place(pr_store *store, const pr_record *record, pr__place *ret_place,
                           pr_error *err)
{
    pr__sqlite_store *self = pr__sqlite_store_of(store);
    TRY(pr__sqlite_ready(self, err));
    pr__place place = {0};
    TRY(pr__sqlite_begin(&self->conn, /* write= */ false, err));
    TRY(pr__sqlite_end(&self->conn, find_place(&self->conn, record, &place, err), err));
    *ret_place = place;
    return PR_OK;
}
