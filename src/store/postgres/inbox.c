/*
 * The inbox in a unit's transaction: marks, and the parked rows of a consumer.
 *
 * Owns: the statements behind pr__unit_ops.inbox_….
 * Invariant: a leased row is changed by its token only, and the row count is looked at; a mark is
 * never changed once it stands. Ids of others are kept exactly as they came. Statements run on the
 * host's connection too, whatever its search_path.
 * Must not know: when an endpoint marks, parks or retries, and in which order.
 */
#include "store/postgres/inbox.h"

#include <string.h>

#include "base/error.h"
#include "base/text.h"
#include "store/postgres/row.h"
#include "store/postgres/unit.h"
#include "store/postgres/value.h"

#define ORIGIN       "postgres.inbox"
#define DELAY_MAX_MS (INT64_C(366) * 24 * 3600 * 1000 * 100) /* a century: no overflow beyond it */

#define NOW          "pg_catalog.clock_timestamp()"
#define KEY          "tenant = $1 AND consumer = $2 AND message_id = $3"

const char pr__pg_sql_mark[] =
    "INSERT INTO {p}inbox (tenant, consumer, message_id, body_hash, processed_at) VALUES ($1, $2, "
    "$3, $4, " NOW ") ON CONFLICT DO NOTHING RETURNING pg_catalog.pg_current_xact_id(), "
    "processed_at";
static const char SQL_MARK_HASH[] = "SELECT body_hash FROM {p}inbox WHERE " KEY;
/* A transaction that has written nothing gets its id now: the unit is known by it. */
static const char SQL_STANDING[] =
    "SELECT body_hash, pg_catalog.pg_current_xact_id() FROM {p}inbox WHERE " KEY;
static const char SQL_UNMARK[] = "DELETE FROM {p}inbox WHERE " KEY;
const char pr__pg_sql_find[] =
    "SELECT state, attempts, takeovers, lock_token, next_attempt_at, locked_until, body_hash FROM "
    "{p}inbox_parked WHERE " KEY;
const char pr__pg_sql_blocked[] =
    "SELECT 1 FROM {p}inbox_parked WHERE tenant = $1 AND consumer = $2 AND key = $4 AND place < "
    "coalesce((SELECT place FROM {p}inbox_parked WHERE " KEY
    "), 9223372036854775807) AND (state <> 'dead' OR $5) LIMIT 1";
/* $1 to $16 are the message's columns. */
static const char SQL_PARK[] =
    "INSERT INTO {p}inbox_parked (" PR__PG_MESSAGE_COLUMNS ", consumer, original_id, body_hash, "
    "state, resume_state, attempts, next_attempt_at, lock_token, locked_until, owner, last_error, "
    "first_failed_at, parked_at, unreadable) SELECT $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, "
    "$12, $13, $14, $15, $16, $17, $18, $19, $20, $21, $22, now + $23 * interval '1 millisecond', "
    "$24, CASE WHEN $24 IS NOT NULL THEN now + $25 * interval '1 millisecond' END, $26, $27, CASE "
    "WHEN $28 THEN now END, now, $29 FROM (SELECT " NOW " AS now) AS c ON CONFLICT (tenant, "
    "consumer, message_id) DO NOTHING";
static const char SQL_REPARK[] =
    "UPDATE {p}inbox_parked SET state = $5, resume_state = $6, attempts = $7, takeovers = 0, "
    "next_attempt_at = now + $8 * interval '1 millisecond', lock_token = $9, locked_until = CASE "
    "WHEN $9 IS NOT NULL THEN now + $10 * interval '1 millisecond' END, owner = $11, last_error = "
    "coalesce($12, last_error), first_failed_at = coalesce(first_failed_at, CASE WHEN $13 THEN now "
    "END), redriven_at = CASE WHEN $5 = 'held' THEN redriven_at END FROM (SELECT " NOW " AS now) "
    "AS c WHERE " KEY " AND state = 'processing' AND lock_token = $4";
static const char SQL_UNPARK[] = "DELETE FROM {p}inbox_parked WHERE " KEY
                                 " AND ($4 IS NULL OR (state = 'processing' AND lock_token = $4))";

/* The connection of a live unit, for a key that can be found again. */
static pr_status live(pr_unit *unit, const pr__inbox_key *key, pr__pg_conn **ret_conn,
                      pr_error *err)
{
    TRY(pr__inbox_key_check(key, ORIGIN, err));
    TRY(pr__pg_unit_live(unit, err));
    *ret_conn = pr__pg_unit_of(unit)->conn;
    return PR_OK;
}

static const char *tenant_of(const pr__inbox_key *key)
{
    return key->tenant ? key->tenant : "";
}

static bool same_hash(const PGresult *result, int column, const uint8_t hash[PR_CONTENT_HASH_SIZE])
{
    return PQgetlength(result, 0, column) == PR_CONTENT_HASH_SIZE &&
           memcmp(PQgetvalue(result, 0, column), hash, PR_CONTENT_HASH_SIZE) == 0;
}

static pr__mark mark_of(const PGresult *result, const uint8_t hash[PR_CONTENT_HASH_SIZE])
{
    if (PQntuples(result) == 0)
        return PR__MARK_NEW;
    return same_hash(result, 0, hash) ? PR__MARK_DONE : PR__MARK_CONFLICT;
}

/* NEW when none stands. */
static pr_status look_mark(pr__pg_conn *conn, const pr__inbox_key *key,
                           const uint8_t hash[PR_CONTENT_HASH_SIZE], pr__mark *ret_mark,
                           pr_error *err)
{
    AUTO_RESULT result = NULL;
    TRY(pr__pg_query(conn, SQL_MARK_HASH, &result, err, "ttt", tenant_of(key), key->consumer,
                     key->message_id));
    *ret_mark = mark_of(result, hash);
    return PR_OK;
}

static pr_status compare_mark(pr__pg_unit *unit, const pr__inbox_key *key,
                              const uint8_t hash[PR_CONTENT_HASH_SIZE], pr__mark *ret_mark,
                              pr_error *err)
{
    AUTO_RESULT result = NULL;
    TRY(pr__pg_query(unit->conn, SQL_STANDING, &result, err, "ttt", tenant_of(key), key->consumer,
                     key->message_id));
    *ret_mark = mark_of(result, hash);
    if (*ret_mark == PR__MARK_NEW) /* swept, or taken back, between two statements */
        return pr__fail_retry(err, PR_E_BUSY, PR_RETRY_SAME, ORIGIN,
                              "the mark of message \"%s\" was refused, but does not stand any more",
                              key->message_id);
    unit->xid = pr__pg_value_int(result, 0, 1);
    return PR_OK;
}

pr_status pr__pg_inbox_read_mark(pr__pg_unit *unit, const pr__inbox_key *key,
                                 const uint8_t hash[PR_CONTENT_HASH_SIZE], const PGresult *result,
                                 pr__mark *ret_mark, pr_error *err)
{
    if (PQntuples(result) == 0)
        return compare_mark(unit, key, hash, ret_mark, err);
    unit->xid = pr__pg_value_int(result, 0, 0);
    unit->marked_at_us = pr__pg_value_instant(result, 0, 1);
    *ret_mark = PR__MARK_NEW;
    return PR_OK;
}

pr_status pr__pg_inbox_mark(pr_unit *unit, const pr__inbox_key *key,
                            const uint8_t hash[PR_CONTENT_HASH_SIZE], pr__mark *ret_mark,
                            pr_error *err)
{
    pr__pg_conn *conn = NULL;
    AUTO_RESULT result = NULL;
    TRY(live(unit, key, &conn, err));
    pr_status status =
        pr__pg_query(conn, pr__pg_sql_mark, &result, err, "tttb", tenant_of(key), key->consumer,
                     key->message_id, (const void *)hash, (size_t)PR_CONTENT_HASH_SIZE);
    if (status == PR_OK)
        status = pr__pg_inbox_read_mark(pr__pg_unit_of(unit), key, hash, result, ret_mark, err);
    if (status == PR_E_BUSY)
        unit->rollback_only = true;
    return pr__pg_unit_status(unit, status);
}

pr_status pr__pg_inbox_look(pr_unit *unit, const pr__inbox_key *key,
                            const uint8_t hash[PR_CONTENT_HASH_SIZE], pr__mark *ret_mark,
                            pr_error *err)
{
    pr__pg_conn *conn = NULL;
    TRY(live(unit, key, &conn, err));
    return pr__pg_unit_status(unit, look_mark(conn, key, hash, ret_mark, err));
}

pr_status pr__pg_inbox_unmark(pr_unit *unit, const pr__inbox_key *key, pr_error *err)
{
    pr__pg_conn *conn = NULL;
    TRY(live(unit, key, &conn, err));
    return pr__pg_unit_status(unit, pr__pg_run(conn, SQL_UNMARK, NULL, err, "ttt", tenant_of(key),
                                               key->consumer, key->message_id));
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

bool pr__pg_inbox_read_row(const PGresult *result, const uint8_t hash[PR_CONTENT_HASH_SIZE],
                           pr__inbox_row *ret_row)
{
    if (PQntuples(result) == 0)
        return false;
    pr__inbox_row row = {
        .state = state_of(pr__pg_value_text(result, 0, 0)),
        .attempts = (uint32_t)pr__pg_value_int(result, 0, 1),
        .takeovers = (uint32_t)pr__pg_value_int(result, 0, 2),
        .next_attempt_at_us = pr__pg_value_instant(result, 0, 4),
        .locked_until_us = pr__pg_value_instant(result, 0, 5),
        .same_content = same_hash(result, 6, hash),
    };
    const char *token = pr__pg_value_text(result, 0, 3);
    pr__format(row.token, sizeof row.token, "%s", token ? token : "");
    *ret_row = row;
    return true;
}

static pr_status find(pr__pg_conn *conn, const pr__inbox_key *key,
                      const uint8_t hash[PR_CONTENT_HASH_SIZE], bool *ret_found,
                      pr__inbox_row *ret_row, pr_error *err)
{
    AUTO_RESULT result = NULL;
    TRY(pr__pg_query(conn, pr__pg_sql_find, &result, err, "ttt", tenant_of(key), key->consumer,
                     key->message_id));
    *ret_found = pr__pg_inbox_read_row(result, hash, ret_row);
    return PR_OK;
}

pr_status pr__pg_inbox_find(pr_unit *unit, const pr__inbox_key *key,
                            const uint8_t hash[PR_CONTENT_HASH_SIZE], bool *ret_found,
                            pr__inbox_row *ret_row, pr_error *err)
{
    pr__pg_conn *conn = NULL;
    TRY(live(unit, key, &conn, err));
    return pr__pg_unit_status(unit, find(conn, key, hash, ret_found, ret_row, err));
}

pr_status pr__pg_inbox_blocked(pr_unit *unit, const pr__inbox_key *key, const char *message_key,
                               pr_order order, bool *ret_blocked, pr_error *err)
{
    pr__pg_conn *conn = NULL;
    TRY(live(unit, key, &conn, err));
    if (pr__text_empty(message_key) || order == PR_ORDER_SKIP) {
        *ret_blocked = false;
        return PR_OK;
    }
    int64_t one = 0;
    pr_status status =
        pr__pg_int(conn, pr__pg_sql_blocked, &one, ret_blocked, err, "tttto", tenant_of(key),
                   key->consumer, key->message_id, message_key, (int)(order == PR_ORDER_HALT));
    return pr__pg_unit_status(unit, status);
}

/* How pr__inbox_park lies in the columns. */
typedef struct park_columns {
    const char *state;
    const char *resume_state;
    const char *token;
    const char *owner;
    int64_t delay_ms;
    int64_t lease_ms;
    bool failed;
} park_columns;

static int64_t bounded(int64_t ms)
{
    if (ms < 0)
        return 0;
    return ms < DELAY_MAX_MS ? ms : DELAY_MAX_MS;
}

static pr_status columns_of(const pr__inbox_park *park, park_columns *ret, pr_error *err)
{
    *ret = (park_columns){.delay_ms = bounded(park->retry_delay_ms)};
    switch (park->state) {
    case PR_STATE_FAILED:
        ret->state = "failed";
        ret->failed = true;
        return PR_OK;
    case PR_STATE_HELD:
        ret->state = "held";
        return PR_OK;
    case PR_STATE_DEAD:
        ret->state = "dead";
        ret->failed = true;
        return PR_OK;
    case PR_STATE_PUBLISHING:
        if (pr__text_empty(park->token) || park->lease_ms <= 0)
            return pr__fail(err, PR_E_INVALID, ORIGIN,
                            "a processing row needs a token and a lease");
        ret->state = "processing";
        ret->resume_state = "failed";
        ret->token = park->token;
        ret->owner = park->owner;
        ret->lease_ms = bounded(park->lease_ms);
        return PR_OK;
    case PR_STATE_PENDING:
    case PR_STATE_PUBLISHED:
    case PR_STATE_DELAYED:
        break;
    }
    return pr__fail(err, PR_E_INVALID, ORIGIN,
                    "a message is parked failed, held, dead or processing");
}

/* Text that the database would refuse is left out, and said to be. */
static void fit_text(const char **text, const char *fallback, const char *name, char *why,
                     size_t size)
{
    if (!*text || pr__utf8_valid(*text, strlen(*text)))
        return;
    *text = fallback;
    if (!*why)
        pr__format(why, size, "%s is not valid UTF-8", name);
}

/* What has no place in the columns is made to have one: a copy is kept of anything that came. */
static pr_message fit(const pr_message *from, const pr__inbox_key *key, char *why, size_t size)
{
    pr_message message = *from;
    why[0] = '\0';
    fit_text(&message.type, "", "type", why, size);
    fit_text(&message.content_type, "", "content_type", why, size);
    fit_text(&message.destination, "", "destination", why, size);
    fit_text(&message.source, NULL, "source", why, size);
    fit_text(&message.key, NULL, "key", why, size);
    fit_text(&message.correlation_id, NULL, "correlation_id", why, size);
    fit_text(&message.causation_id, NULL, "causation_id", why, size);
    fit_text(&message.traceparent, NULL, "traceparent", why, size);
    fit_text(&message.tracestate, NULL, "tracestate", why, size);
    fit_text(&message.headers, NULL, "headers", why, size);
    message.id = key->message_id; /* exactly as it came, and the dedup id */
    message.tenant = tenant_of(key);
    if (!message.type)
        message.type = "";
    if (!message.body)
        message.body_size_bytes = 0;
    if (message.key && !*message.key)
        message.key = NULL;
    return message;
}

static pr_status park_row(pr__pg_conn *conn, const pr__inbox_key *key, const pr_message *message,
                          const pr__inbox_park *park, bool *ret_inserted, pr_error *err)
{
    AUTO_PARAMS params = {.count = 0};
    AUTO_RESULT result = NULL;
    park_columns columns;
    uint8_t hash[PR_CONTENT_HASH_SIZE];
    char why[64];
    const char *original = message->id ? message->id : "";
    TRY(columns_of(park, &columns, err));
    pr_message fitted = fit(message, key, why, sizeof why);
    pr__content_hash(message->type ? message->type : "", fitted.type_version, fitted.body,
                     (size_t)fitted.body_size_bytes, hash);
    pr__pg_add_message(&params, &fitted, /* id_is_text= */ true);
    pr__pg_add_text(&params, key->consumer);
    pr__pg_add_text(&params, pr__utf8_valid(original, strlen(original)) ? original : "");
    pr__pg_add_bytes(&params, hash, sizeof hash);
    pr__pg_add_text(&params, columns.state);
    pr__pg_add_text(&params, columns.resume_state);
    pr__pg_add_int(&params, park->attempts);
    pr__pg_add_int(&params, columns.delay_ms);
    pr__pg_add_text(&params, columns.token);
    pr__pg_add_int(&params, columns.lease_ms);
    pr__pg_add_text(&params, columns.owner);
    pr__pg_add_text(&params, park->error);
    pr__pg_add_bool(&params, columns.failed);
    pr__pg_add_text(&params, why[0] ? why : NULL);
    TRY(pr__pg_exec(conn, SQL_PARK, &params, &result, err));
    *ret_inserted = strcmp(PQcmdTuples(result), "1") == 0;
    return PR_OK;
}

pr_status pr__pg_inbox_park(pr_unit *unit, const pr__inbox_key *key, const pr_message *message,
                            const pr__inbox_park *park, bool *ret_inserted, pr_error *err)
{
    pr__pg_conn *conn = NULL;
    TRY(live(unit, key, &conn, err));
    return pr__pg_unit_status(unit, park_row(conn, key, message, park, ret_inserted, err));
}

pr_status pr__pg_inbox_repark(pr_unit *unit, const pr__inbox_key *key, const char *token,
                              const pr__inbox_park *park, bool *ret_changed, pr_error *err)
{
    pr__pg_conn *conn = NULL;
    park_columns columns;
    int64_t changes = 0;
    TRY(live(unit, key, &conn, err));
    TRY(columns_of(park, &columns, err));
    pr_status status =
        pr__pg_run(conn, SQL_REPARK, &changes, err, "ttttttiititto", tenant_of(key), key->consumer,
                   key->message_id, token, columns.state, columns.resume_state,
                   (int64_t)park->attempts, columns.delay_ms, columns.token, columns.lease_ms,
                   columns.owner, park->error, (int)columns.failed);
    *ret_changed = status == PR_OK && changes == 1;
    return pr__pg_unit_status(unit, status);
}

pr_status pr__pg_inbox_unpark(pr_unit *unit, const pr__inbox_key *key, const char *token,
                              bool *ret_deleted, pr_error *err)
{
    pr__pg_conn *conn = NULL;
    int64_t changes = 0;
    TRY(live(unit, key, &conn, err));
    pr_status status = pr__pg_run(conn, SQL_UNPARK, &changes, err, "tttt", tenant_of(key),
                                  key->consumer, key->message_id, token);
    if (status == PR_OK)
        *ret_deleted = changes == 1;
    return pr__pg_unit_status(unit, status);
}
