/*
 * The inbox in a unit's transaction: marks, and the parked rows of a consumer.
 *
 * Owns: the statements behind pr__unit_ops.inbox_….
 * Invariant: a leased row is changed by its token only, and the row count is looked at; a mark is
 * never changed once it stands. Ids of others are kept exactly as they came.
 * Must not know: when an endpoint marks, parks or retries, and in which order.
 */
#include "store/sqlite/inbox.h"

#include <string.h>

#include "base/error.h"
#include "base/text.h"
#include "store/sqlite/failure.h"
#include "store/sqlite/row.h"
#include "store/sqlite/unit.h"

#define ORIGIN       "sqlite.inbox"
#define US_PER_MS    1000
#define DELAY_MAX_MS (INT64_C(366) * 24 * 3600 * 1000 * 100) /* a century: no overflow beyond it */

static const char sql_mark[] =
    "INSERT INTO {p}_inbox (tenant, consumer, message_id, body_hash, processed_at) "
    "VALUES (?1, ?2, ?3, ?4, ?5) ON CONFLICT DO NOTHING";

static const char sql_mark_hash[] =
    "SELECT body_hash FROM {p}_inbox WHERE tenant = ?1 AND consumer = ?2 AND message_id = ?3";

static const char sql_unmark[] =
    "DELETE FROM {p}_inbox WHERE tenant = ?1 AND consumer = ?2 AND message_id = ?3";

static const char sql_find[] =
    "SELECT state, attempts, takeovers, lock_token, next_attempt_at, locked_until, body_hash "
    "FROM {p}_inbox_parked WHERE tenant = ?1 AND consumer = ?2 AND message_id = ?3";

static const char sql_blocked[] =
    "SELECT 1 FROM {p}_inbox_parked WHERE tenant = ?1 AND consumer = ?2 AND key = ?4 "
    "AND place < coalesce((SELECT place FROM {p}_inbox_parked WHERE tenant = ?1 AND consumer = ?2 "
    "AND message_id = ?3), 9223372036854775807) AND (state <> 'dead' OR ?5) LIMIT 1";

/* ?1 to ?16 are the message's columns. */
static const char sql_park[] =
    "INSERT INTO {p}_inbox_parked (" PR__MESSAGE_COLUMNS ", consumer, original_id, body_hash, "
    "state, resume_state, attempts, next_attempt_at, lock_token, locked_until, owner, last_error, "
    "first_failed_at, parked_at) "
    "VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, "
    "?17, ?18, ?19, ?20, ?21, ?22, ?23, ?24, ?25, ?26, ?27, ?28, ?29) "
    "ON CONFLICT (tenant, consumer, message_id) DO NOTHING";

static const char sql_repark[] =
    "UPDATE {p}_inbox_parked SET state = ?5, resume_state = ?6, attempts = ?7, takeovers = 0, "
    "next_attempt_at = ?8, lock_token = ?9, locked_until = ?10, owner = ?11, "
    "last_error = coalesce(?12, last_error), first_failed_at = coalesce(first_failed_at, ?13), "
    "redriven_at = CASE WHEN ?5 = 'held' THEN redriven_at END "
    "WHERE tenant = ?1 AND consumer = ?2 AND message_id = ?3 AND state = 'processing' "
    "AND lock_token = ?4";

static const char sql_unpark[] =
    "DELETE FROM {p}_inbox_parked WHERE tenant = ?1 AND consumer = ?2 AND message_id = ?3 "
    "AND (?4 IS NULL OR (state = 'processing' AND lock_token = ?4))";

/* The connection of a live unit, for a key that can be found again. */
static pr_status live(pr_unit *unit, const pr__inbox_key *key, pr__sqlite_conn **ret_conn,
                      pr_error *err)
{
    TRY(pr__inbox_key_check(key, ORIGIN, err));
    TRY(pr__sqlite_unit_live(unit, err));
    *ret_conn = pr__sqlite_unit_of(unit)->conn;
    return PR_OK;
}

static const char *tenant_of(const pr__inbox_key *key)
{
    return key->tenant ? key->tenant : "";
}

/* NEW when none stands. */
static pr_status look_mark(pr__sqlite_conn *conn, const pr__inbox_key *key,
                           const uint8_t hash[PR_CONTENT_HASH_SIZE], pr__mark *ret_mark,
                           pr_error *err)
{
    AUTO_STMT stmt = NULL;
    bool row = false;
    TRY(pr__sqlite_query(conn, sql_mark_hash, &stmt, err, "ttt", tenant_of(key), key->consumer,
                         key->message_id));
    TRY(pr__sqlite_step(conn, stmt, &row, err));
    if (!row) {
        *ret_mark = PR__MARK_NEW;
        return PR_OK;
    }
    const void *stored = sqlite3_column_blob(stmt, 0);
    bool same = stored && sqlite3_column_bytes(stmt, 0) == PR_CONTENT_HASH_SIZE &&
                memcmp(stored, hash, PR_CONTENT_HASH_SIZE) == 0;
    *ret_mark = same ? PR__MARK_DONE : PR__MARK_CONFLICT;
    return PR_OK;
}

static pr_status compare_mark(pr__sqlite_conn *conn, const pr__inbox_key *key,
                              const uint8_t hash[PR_CONTENT_HASH_SIZE], pr__mark *ret_mark,
                              pr_error *err)
{
    TRY(look_mark(conn, key, hash, ret_mark, err));
    if (*ret_mark == PR__MARK_NEW)
        return pr__fail(err, PR_E_BACKEND, ORIGIN,
                        "the mark of message \"%s\" was refused, but does not stand",
                        key->message_id);
    return PR_OK;
}

pr_status pr__sqlite_inbox_mark(pr_unit *unit, const pr__inbox_key *key,
                                const uint8_t hash[PR_CONTENT_HASH_SIZE], pr__mark *ret_mark,
                                pr_error *err)
{
    pr__sqlite_conn *conn = NULL;
    TRY(live(unit, key, &conn, err));
    int64_t changes = 0;
    pr_status status = pr__sqlite_run(conn, sql_mark, &changes, err, "tttbi", tenant_of(key),
                                      key->consumer, key->message_id, (const void *)hash,
                                      (size_t)PR_CONTENT_HASH_SIZE, pr__sqlite_now(unit->store));
    if (status == PR_OK && changes == 1)
        *ret_mark = PR__MARK_NEW;
    else if (status == PR_OK)
        status = compare_mark(conn, key, hash, ret_mark, err);
    return pr__sqlite_unit_status(unit, status);
}

pr_status pr__sqlite_inbox_look(pr_unit *unit, const pr__inbox_key *key,
                                const uint8_t hash[PR_CONTENT_HASH_SIZE], pr__mark *ret_mark,
                                pr_error *err)
{
    pr__sqlite_conn *conn = NULL;
    TRY(live(unit, key, &conn, err));
    return pr__sqlite_unit_status(unit, look_mark(conn, key, hash, ret_mark, err));
}

pr_status pr__sqlite_inbox_unmark(pr_unit *unit, const pr__inbox_key *key, pr_error *err)
{
    pr__sqlite_conn *conn = NULL;
    TRY(live(unit, key, &conn, err));
    pr_status status = pr__sqlite_run(conn, sql_unmark, NULL, err, "ttt", tenant_of(key),
                                      key->consumer, key->message_id);
    return pr__sqlite_unit_status(unit, status);
}

static pr_state state_of(const char *text)
{
    switch (text ? text[0] : '\0') {
    case 'f':
        return PR_STATE_FAILED;
    case 'h':
        return PR_STATE_HELD;
    case 'p':
        return PR_STATE_PUBLISHING;
    default:
        return PR_STATE_DEAD;
    }
}

static pr_status find(pr__sqlite_conn *conn, const pr__inbox_key *key,
                      const uint8_t hash[PR_CONTENT_HASH_SIZE], bool *ret_found,
                      pr__inbox_row *ret_row, pr_error *err)
{
    AUTO_STMT stmt = NULL;
    bool found = false;
    TRY(pr__sqlite_query(conn, sql_find, &stmt, err, "ttt", tenant_of(key), key->consumer,
                         key->message_id));
    TRY(pr__sqlite_step(conn, stmt, &found, err));
    *ret_found = found;
    if (!found)
        return PR_OK;
    pr__inbox_row row = {
        .state = state_of((const char *)sqlite3_column_text(stmt, 0)),
        .attempts = (uint32_t)sqlite3_column_int64(stmt, 1),
        .takeovers = (uint32_t)sqlite3_column_int64(stmt, 2),
        .next_attempt_at_us = sqlite3_column_int64(stmt, 4),
        .locked_until_us = sqlite3_column_int64(stmt, 5),
    };
    const char *token = (const char *)sqlite3_column_text(stmt, 3);
    pr__format(row.token, sizeof row.token, "%s", token ? token : "");
    const void *stored = sqlite3_column_blob(stmt, 6);
    row.same_content = stored && sqlite3_column_bytes(stmt, 6) == PR_CONTENT_HASH_SIZE &&
                       memcmp(stored, hash, PR_CONTENT_HASH_SIZE) == 0;
    *ret_row = row;
    return PR_OK;
}

pr_status pr__sqlite_inbox_find(pr_unit *unit, const pr__inbox_key *key,
                                const uint8_t hash[PR_CONTENT_HASH_SIZE], bool *ret_found,
                                pr__inbox_row *ret_row, pr_error *err)
{
    pr__sqlite_conn *conn = NULL;
    TRY(live(unit, key, &conn, err));
    return pr__sqlite_unit_status(unit, find(conn, key, hash, ret_found, ret_row, err));
}

pr_status pr__sqlite_inbox_blocked(pr_unit *unit, const pr__inbox_key *key, const char *message_key,
                                   pr_order order, bool *ret_blocked, pr_error *err)
{
    pr__sqlite_conn *conn = NULL;
    TRY(live(unit, key, &conn, err));
    if (pr__text_empty(message_key) || order == PR_ORDER_SKIP) {
        *ret_blocked = false;
        return PR_OK;
    }
    int64_t one = 0;
    pr_status status = pr__sqlite_int(conn, sql_blocked, &one, ret_blocked, err, "tttti",
                                      tenant_of(key), key->consumer, key->message_id, message_key,
                                      (int64_t)(order == PR_ORDER_HALT));
    return pr__sqlite_unit_status(unit, status);
}

/* How pr__inbox_park lies in the columns. */
typedef struct park_columns {
    const char *state;
    const char *resume_state;
    const char *token;
    const char *owner;
    int64_t next_attempt_at_us;
    int64_t locked_until_us;    /* 0 = null */
    int64_t first_failed_at_us; /* 0 = null */
} park_columns;

static int64_t later(int64_t now_us, int64_t delay_ms)
{
    if (delay_ms < 0)
        delay_ms = 0;
    return now_us + (delay_ms < DELAY_MAX_MS ? delay_ms : DELAY_MAX_MS) * US_PER_MS;
}

static pr_status columns_of(const pr__inbox_park *park, int64_t now_us, park_columns *ret,
                            pr_error *err)
{
    *ret = (park_columns){.next_attempt_at_us = later(now_us, park->retry_delay_ms)};
    switch (park->state) {
    case PR_STATE_FAILED:
        ret->state = "failed";
        ret->first_failed_at_us = now_us;
        return PR_OK;
    case PR_STATE_HELD:
        ret->state = "held";
        return PR_OK;
    case PR_STATE_DEAD:
        ret->state = "dead";
        ret->first_failed_at_us = now_us;
        return PR_OK;
    case PR_STATE_PUBLISHING:
        if (pr__text_empty(park->token) || park->lease_ms <= 0)
            return pr__fail(err, PR_E_INVALID, ORIGIN,
                            "a processing row needs a token and a lease");
        ret->state = "processing";
        ret->resume_state = "failed";
        ret->token = park->token;
        ret->owner = park->owner;
        ret->locked_until_us = later(now_us, park->lease_ms);
        return PR_OK;
    case PR_STATE_PENDING:
    case PR_STATE_PUBLISHED:
    case PR_STATE_DELAYED:
        break;
    }
    return pr__fail(err, PR_E_INVALID, ORIGIN,
                    "a message is parked failed, held, dead or processing");
}

static int bind_text(sqlite3_stmt *stmt, int i, const char *text)
{
    if (!text)
        return sqlite3_bind_null(stmt, i);
    return sqlite3_bind_text64(stmt, i, text, strlen(text), SQLITE_STATIC, SQLITE_UTF8);
}

static int bind_instant(sqlite3_stmt *stmt, int i, int64_t instant_us)
{
    return instant_us ? sqlite3_bind_int64(stmt, i, instant_us) : sqlite3_bind_null(stmt, i);
}

/* What has no place in the columns is made to have one: a copy is kept of anything that came. */
static pr_message fit(const pr_message *from)
{
    pr_message message = *from;
    if (!message.id)
        message.id = "";
    if (!message.type)
        message.type = "";
    if (!message.body)
        message.body_size_bytes = 0;
    if (message.key && !*message.key)
        message.key = NULL;
    return message;
}

static pr_status bind_park(pr__sqlite_conn *conn, sqlite3_stmt *stmt, const pr__inbox_key *key,
                           const pr_message *message, const pr__inbox_park *park,
                           const park_columns *columns, int64_t now_us, pr_error *err)
{
    uint8_t hash[PR_CONTENT_HASH_SIZE];
    pr__content_hash(message->type, message->type_version, message->body, message->body_size_bytes,
                     hash);
    TRY(pr__sqlite_bind_message(conn, stmt, 1, message, err));
    int code = bind_text(stmt, 1, key->message_id); /* exactly as it came, and the dedup id */
    code |= sqlite3_bind_int64(stmt, 3, message->type_version);
    code |= bind_text(stmt, 8, tenant_of(key));
    code |= bind_text(stmt, 17, key->consumer);
    code |= bind_text(stmt, 18, message->id);
    code |= sqlite3_bind_blob(stmt, 19, hash, (int)sizeof hash, SQLITE_TRANSIENT);
    code |= bind_text(stmt, 20, columns->state);
    code |= bind_text(stmt, 21, columns->resume_state);
    code |= sqlite3_bind_int64(stmt, 22, park->attempts);
    code |= sqlite3_bind_int64(stmt, 23, columns->next_attempt_at_us);
    code |= bind_text(stmt, 24, columns->token);
    code |= bind_instant(stmt, 25, columns->locked_until_us);
    code |= bind_text(stmt, 26, columns->owner);
    code |= bind_text(stmt, 27, park->error);
    code |= bind_instant(stmt, 28, columns->first_failed_at_us);
    code |= sqlite3_bind_int64(stmt, 29, now_us);
    if (code != SQLITE_OK)
        return pr__sqlite_fail(conn, sqlite3_errcode(conn->db), err);
    return PR_OK;
}

static pr_status park_row(pr__sqlite_conn *conn, const pr__inbox_key *key,
                          const pr_message *message, const pr__inbox_park *park, int64_t now_us,
                          bool *ret_inserted, pr_error *err)
{
    park_columns columns;
    TRY(columns_of(park, now_us, &columns, err));
    pr_message fitted = fit(message);
    AUTO_STMT stmt = NULL;
    bool row = false;
    TRY(pr__sqlite_prepare(conn, sql_park, &stmt, err));
    TRY(bind_park(conn, stmt, key, &fitted, park, &columns, now_us, err));
    TRY(pr__sqlite_step(conn, stmt, &row, err));
    *ret_inserted = sqlite3_changes64(conn->db) == 1;
    if (*ret_inserted)
        return PR_OK;
    bool found = false; /* whoever takes it for parked acks it: then a copy must stand */
    pr__sqlite_reset(stmt);
    TRY(pr__sqlite_query(conn, sql_find, &stmt, err, "ttt", tenant_of(key), key->consumer,
                         key->message_id));
    TRY(pr__sqlite_step(conn, stmt, &found, err));
    return found ? PR_OK : pr__sqlite_wrote_one(conn, 0, "inbox_parked", err);
}

pr_status pr__sqlite_inbox_park(pr_unit *unit, const pr__inbox_key *key, const pr_message *message,
                                const pr__inbox_park *park, bool *ret_inserted, pr_error *err)
{
    pr__sqlite_conn *conn = NULL;
    TRY(live(unit, key, &conn, err));
    pr_status status =
        park_row(conn, key, message, park, pr__sqlite_now(unit->store), ret_inserted, err);
    return pr__sqlite_unit_status(unit, status);
}

pr_status pr__sqlite_inbox_repark(pr_unit *unit, const pr__inbox_key *key, const char *token,
                                  const pr__inbox_park *park, bool *ret_changed, pr_error *err)
{
    pr__sqlite_conn *conn = NULL;
    TRY(live(unit, key, &conn, err));
    park_columns columns;
    TRY(columns_of(park, pr__sqlite_now(unit->store), &columns, err));
    AUTO_STMT stmt = NULL;
    int64_t changes = 0;
    pr_status status = pr__sqlite_query(
        conn, sql_repark, &stmt, err, "ttttttiitntt", tenant_of(key), key->consumer,
        key->message_id, token, columns.state, columns.resume_state, (int64_t)park->attempts,
        columns.next_attempt_at_us, columns.token, columns.owner, park->error);
    if (status == PR_OK && (bind_instant(stmt, 10, columns.locked_until_us) |
                            bind_instant(stmt, 13, columns.first_failed_at_us)) != SQLITE_OK)
        status = pr__sqlite_fail(conn, sqlite3_errcode(conn->db), err);
    bool row = false;
    if (status == PR_OK)
        status = pr__sqlite_step(conn, stmt, &row, err);
    if (status == PR_OK)
        changes = sqlite3_changes64(conn->db);
    *ret_changed = changes == 1;
    return pr__sqlite_unit_status(unit, status);
}

pr_status pr__sqlite_inbox_unpark(pr_unit *unit, const pr__inbox_key *key, const char *token,
                                  bool *ret_deleted, pr_error *err)
{
    pr__sqlite_conn *conn = NULL;
    TRY(live(unit, key, &conn, err));
    int64_t changes = 0;
    pr_status status = pr__sqlite_run(conn, sql_unpark, &changes, err, "tttt", tenant_of(key),
                                      key->consumer, key->message_id, token);
    if (status == PR_OK)
        *ret_deleted = changes == 1;
    return pr__sqlite_unit_status(unit, status);
}
