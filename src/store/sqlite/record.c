/*
 * Reading rows as records.
 *
 * Owns: which columns a record is made of, for each place where a message may stand.
 * Invariant: a row that cannot be read as a message is a record with the reason beside it, never
 * the error of a whole page. Bodies are read only where they were asked for.
 */
#include "base/error.h"
#include "base/text.h"
#include "port/state.h"
#include "store/sqlite/operations.h"
#include "store/sqlite/record.h"
#include "store/sqlite/row.h"

#define ORIGIN "sqlite.operations"

struct pr__record_node {
    pr_record record;
    pr__record_node *next;
};

/* What a parked row adds to its message, from the column after the message's on. */
#define PARKED_COLUMNS                                                                             \
    ", " PR__PARKED_STATE ", attempts, takeovers, "                                                \
    "CASE WHEN t.state IN ('failed', 'delayed') THEN next_attempt_at END, lock_token, "            \
    "locked_until, owner, last_error, first_failed_at, operator_hold, "

#define FROM_PARKED                                                                                \
    "reader, log_id, lane FROM {p}_outbox_parked AS t "                                            \
    "WHERE reader = ?2 AND log_id = ?3"
#define FROM_INBOX "place, consumer FROM {p}_inbox_parked AS t WHERE place = ?2"
#define FROM_LOG   ", lane FROM {p}_outbox WHERE id = ?2"

static const char sql_parked[] = "SELECT " PR__MESSAGE_SELECT PARKED_COLUMNS FROM_PARKED;
static const char sql_parked_head[] =
    "SELECT " PR__MESSAGE_SELECT_NO_BODY PARKED_COLUMNS FROM_PARKED;
static const char sql_inbox[] = "SELECT " PR__MESSAGE_SELECT PARKED_COLUMNS FROM_INBOX;
static const char sql_inbox_head[] = "SELECT " PR__MESSAGE_SELECT_NO_BODY PARKED_COLUMNS FROM_INBOX;
static const char sql_log[] = "SELECT " PR__MESSAGE_SELECT FROM_LOG;
static const char sql_log_head[] = "SELECT " PR__MESSAGE_SELECT_NO_BODY FROM_LOG;

static const char sql_log_state[] =
    "SELECT state, lock_token, locked_until, CASE WHEN state = 'publishing' THEN "
    "(SELECT owner FROM {p}_outbox_claim AS c WHERE c.reader = ?1 AND c.lane = v.lane "
    "ORDER BY seq DESC LIMIT 1) END FROM {p}_outbox_state AS v WHERE reader = ?1 AND log_id = ?2";

/* NULL when out of memory. */
static pr_record *append(pr__records *records)
{
    pr__record_node *node = pr__arena_alloc(records->arena, sizeof *node);
    if (!node)
        return NULL;
    node->record.size = (uint32_t)sizeof node->record;
    if (records->last)
        records->last->next = node;
    else
        records->first = node;
    records->last = node;
    records->count++;
    return &node->record;
}

/* The message of a row that was stepped to, with its destination resolved. */
static pr_status read_message(pr__records *records, sqlite3_stmt *stmt, pr_record *record,
                              pr_error *err)
{
    uint64_t size_max = records->with_body ? records->store->base.body_size_max : UINT64_MAX;
    TRY(pr__sqlite_read_message(stmt, 0, records->arena, size_max, &record->message,
                                &record->unreadable, err));
    record->body_size_bytes = record->message.body_size_bytes;
    if (!record->message.body)
        record->message.body_size_bytes = 0;
    if (record->message.destination)
        return PR_OK;
    record->message.destination = pr__sqlite_topic(
        records->arena, records->store->settings.default_transport, record->message.type);
    return record->message.destination ? PR_OK : pr__fail_nomem(err, ORIGIN);
}

/* The columns of PARKED_COLUMNS; *ret_next is the column after them. */
static pr_status read_parked(pr__records *records, sqlite3_stmt *stmt, pr_record *record,
                             int *ret_next, pr_error *err)
{
    int at = PR__MESSAGE_SELECT_COUNT;
    bool failed = false;
    const char *state = pr__sqlite_column_text(stmt, at++, records->arena, &failed);
    record->attempts = (uint32_t)sqlite3_column_int64(stmt, at++);
    record->takeovers = (uint32_t)sqlite3_column_int64(stmt, at++);
    record->next_attempt_at_us = sqlite3_column_int64(stmt, at++);
    record->lock_token = pr__sqlite_column_text(stmt, at++, records->arena, &failed);
    record->locked_until_us = sqlite3_column_int64(stmt, at++);
    record->owner = pr__sqlite_column_text(stmt, at++, records->arena, &failed);
    record->last_error = pr__sqlite_column_text(stmt, at++, records->arena, &failed);
    record->first_failed_at_us = sqlite3_column_int64(stmt, at++);
    record->operator_hold = sqlite3_column_int64(stmt, at++) != 0;
    *ret_next = at;
    if (failed)
        return pr__fail_nomem(err, ORIGIN);
    if (!pr__state_parse(state, &record->state))
        return pr__fail(err, PR_E_BACKEND, ORIGIN, "a parked row is in no known state");
    return PR_OK;
}

static pr_status query_row(pr__records *records, const char *with_body, const char *head,
                           int64_t first, int64_t second, sqlite3_stmt **ret_stmt, bool *ret_row,
                           pr_error *err)
{
    pr__sqlite_conn *conn = &records->store->conn;
    const char *sql = records->with_body ? with_body : head;
    int64_t size_max = (int64_t)records->store->base.body_size_max;
    if (second < 0)
        TRY(pr__sqlite_query(conn, sql, ret_stmt, err, "ii", size_max, first));
    else
        TRY(pr__sqlite_query(conn, sql, ret_stmt, err, "iii", size_max, first, second));
    return pr__sqlite_step(conn, *ret_stmt, ret_row, err);
}

pr_status pr__records_add_parked(pr__records *records, int64_t reader, int64_t log_id,
                                 bool *ret_found, pr_error *err)
{
    AUTO_STMT stmt = NULL;
    bool row = false;
    TRY(query_row(records, sql_parked, sql_parked_head, reader, log_id, &stmt, &row, err));
    if (ret_found)
        *ret_found = row;
    if (!row)
        return PR_OK;
    pr_record *record = append(records);
    if (!record)
        return pr__fail_nomem(err, ORIGIN);
    int at = 0;
    TRY(read_message(records, stmt, record, err));
    TRY(read_parked(records, stmt, record, &at, err));
    record->box = PR_BOX_OUTBOX;
    record->reader = sqlite3_column_int64(stmt, at++);
    record->log_id = sqlite3_column_int64(stmt, at++);
    int64_t lane = sqlite3_column_int64(stmt, at);
    record->lane = lane < 0 ? 0 : (uint32_t)lane;
    if (record->state == PR_STATE_DELAYED) {
        record->reader = PR_READER_RELAY;
        record->message.deliver_at_us = record->next_attempt_at_us;
    }
    return PR_OK;
}

static pr_status read_log_state(pr__records *records, pr_record *record, pr_error *err)
{
    AUTO_STMT stmt = NULL;
    bool row = false;
    bool failed = false;
    TRY(pr__sqlite_query(&records->store->conn, sql_log_state, &stmt, err, "ii", record->reader,
                         record->log_id));
    TRY(pr__sqlite_step(&records->store->conn, stmt, &row, err));
    record->state = PR_STATE_PUBLISHED;
    if (!row)
        return PR_OK;
    const char *state = pr__sqlite_column_text(stmt, 0, records->arena, &failed);
    record->lock_token = pr__sqlite_column_text(stmt, 1, records->arena, &failed);
    record->locked_until_us = sqlite3_column_int64(stmt, 2);
    record->owner = pr__sqlite_column_text(stmt, 3, records->arena, &failed);
    if (failed)
        return pr__fail_nomem(err, ORIGIN);
    if (!pr__state_parse(state, &record->state))
        return pr__fail(err, PR_E_BACKEND, ORIGIN, "a row of the log is in no known state");
    return PR_OK;
}

pr_status pr__records_add_log(pr__records *records, int64_t reader, int64_t log_id, pr_error *err)
{
    bool parked = false;
    TRY(pr__records_add_parked(records, reader, log_id, &parked, err));
    if (parked)
        return PR_OK;
    AUTO_STMT stmt = NULL;
    bool row = false;
    TRY(query_row(records, sql_log, sql_log_head, log_id, -1, &stmt, &row, err));
    if (!row)
        return PR_OK;
    pr_record *record = append(records);
    if (!record)
        return pr__fail_nomem(err, ORIGIN);
    TRY(read_message(records, stmt, record, err));
    record->box = PR_BOX_OUTBOX;
    record->reader = reader;
    record->log_id = log_id;
    record->lane = (uint32_t)sqlite3_column_int64(stmt, PR__MESSAGE_SELECT_COUNT);
    return read_log_state(records, record, err);
}

pr_status pr__records_add_inbox(pr__records *records, int64_t place, pr_error *err)
{
    AUTO_STMT stmt = NULL;
    bool row = false;
    bool failed = false;
    TRY(query_row(records, sql_inbox, sql_inbox_head, place, -1, &stmt, &row, err));
    if (!row)
        return PR_OK;
    pr_record *record = append(records);
    if (!record)
        return pr__fail_nomem(err, ORIGIN);
    int at = 0;
    TRY(read_message(records, stmt, record, err));
    TRY(read_parked(records, stmt, record, &at, err));
    record->box = PR_BOX_INBOX;
    record->log_id = sqlite3_column_int64(stmt, at++);
    record->consumer = pr__sqlite_column_text(stmt, at, records->arena, &failed);
    return failed ? pr__fail_nomem(err, ORIGIN) : PR_OK;
}

pr_status pr__records_add_mark(pr__records *records, const char *tenant, const char *consumer,
                               const char *message_id, int64_t processed_at_us, pr_error *err)
{
    pr_record *record = append(records);
    if (!record)
        return pr__fail_nomem(err, ORIGIN);
    record->box = PR_BOX_INBOX;
    record->state = PR_STATE_PUBLISHED;
    record->settled_at_us = processed_at_us;
    record->consumer = pr__arena_strdup(records->arena, consumer ? consumer : "");
    record->message.size = (uint32_t)sizeof record->message;
    record->message.id = pr__arena_strdup(records->arena, message_id ? message_id : "");
    record->message.tenant = pr__arena_strdup(records->arena, tenant ? tenant : "");
    if (!record->consumer || !record->message.id || !record->message.tenant)
        return pr__fail_nomem(err, ORIGIN);
    return PR_OK;
}

uint32_t pr__records_deliver(const pr__records *records, pr_record_callback callback, void *user)
{
    uint32_t count = 0;
    for (const pr__record_node *node = records->first; node; node = node->next) {
        count++;
        if (!callback(user, &node->record))
            break;
    }
    return count;
}
