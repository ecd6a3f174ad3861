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
#include "store/postgres/operations.h"
#include "store/postgres/record.h"
#include "store/postgres/value.h"

#define ORIGIN   "postgres.operations"
#define ROWS_MAX "1000" /* of one id, in one answer */

/* $1 body, $2 id as uuid (null when it is none), $3 default transport, $4 lanes. A row of the log
   as each of its readers sees it, its parked copy instead where one stands; as the relay does when
   nobody reads it. */
/* clang-format off */
static const char SQL_LOG[] =
    "(" PR__PG_RECORD_LOG(PR__PG_LOG_STATE)
    "FROM {p}outbox AS t JOIN {p}subscription AS s ON " PR__PG_TAKES("$3")
    " CROSS JOIN LATERAL (SELECT t.lane) AS l CROSS JOIN " PR__PG_NEWEST
    " WHERE t.message_id = $2 AND NOT EXISTS (SELECT FROM {p}outbox_parked AS p WHERE p.reader = "
    "s.reader AND p.log_id = t.id)) UNION ALL (" PR__PG_RECORD_LOG("'published'")
    "FROM {p}outbox AS t JOIN {p}subscription AS s ON s.reader = 1 CROSS JOIN LATERAL (SELECT "
    "t.lane) AS l CROSS JOIN " PR__PG_NEWEST
    " WHERE t.message_id = $2 AND NOT EXISTS (SELECT FROM {p}subscription AS s WHERE "
    PR__PG_TAKES("$3")
    ") AND NOT EXISTS (SELECT FROM {p}outbox_parked AS p WHERE p.log_id = t.id AND p.reader <> "
    "0)) UNION ALL (" PR__PG_RECORD_PARKED
    "WHERE t.message_id = $2 AND t.reader <> 0) ORDER BY log_id LIMIT " ROWS_MAX;
static const char SQL_DELAYED[] =
    PR__PG_RECORD_PARKED
    "WHERE t.message_id = $2 AND t.reader = 0 ORDER BY t.log_id LIMIT " ROWS_MAX;

/* $2 id as text */
static const char SQL_INBOX[] =
    PR__PG_RECORD_INBOX "WHERE t.message_id = $2 ORDER BY t.place LIMIT " ROWS_MAX;
static const char SQL_ORIGINAL[] =
    PR__PG_RECORD_INBOX
    "WHERE t.original_id = $2 AND t.message_id <> $2 ORDER BY t.place LIMIT " ROWS_MAX;
static const char SQL_MARKS[] =
    PR__PG_MARKS_OF_ID
    "SELECT tenant, consumer, message_id, processed_at FROM m LIMIT " ROWS_MAX;
/* clang-format on */

/* Why it is not there any more. */
static const char SQL_GONE[] =
    "SELECT action, who FROM {p}audit WHERE action IN ('discard', 'cancel') AND subject::json ->> "
    "'message_id' = $1 ORDER BY id DESC LIMIT 1";

static pr_status show_outbox(pr__pg_records *records, const char *sql, const char *message_id,
                             pr_error *err)
{
    const pr__pg_settings *settings = &records->store->settings;
    AUTO_RESULT result = NULL;
    TRY(pr__pg_query(&records->store->conn, sql, &result, err, "iuti",
                     pr__pg_records_body_max(records), message_id, settings->default_transport,
                     (int64_t)settings->lanes));
    return pr__pg_records_add(records, result, err);
}

static pr_status show_inbox(pr__pg_records *records, const char *sql, const char *message_id,
                            pr_error *err)
{
    AUTO_RESULT result = NULL;
    TRY(pr__pg_query(&records->store->conn, sql, &result, err, "it",
                     pr__pg_records_body_max(records), message_id));
    return pr__pg_records_add(records, result, err);
}

static pr_status show_marks(pr__pg_records *records, const char *message_id, pr_error *err)
{
    AUTO_RESULT result = NULL;
    TRY(pr__pg_query(&records->store->conn, SQL_MARKS, &result, err, "t", message_id));
    for (int row = 0; row < PQntuples(result); row++)
        TRY(pr__pg_records_add_mark(records, result, row, err));
    return PR_OK;
}

static pr_status not_found(pr__pg_conn *conn, const char *message_id, pr_error *err)
{
    AUTO_RESULT result = NULL;
    TRY(pr__pg_query(conn, SQL_GONE, &result, err, "t", message_id));
    if (PQntuples(result) == 0)
        return pr__fail(err, PR_E_NOT_FOUND, ORIGIN, "there is no message \"%s\"", message_id);
    bool cancelled = pr__text_equal(pr__pg_value_text(result, 0, 0), "cancel");
    return pr__fail(err, PR_E_NOT_FOUND, ORIGIN, "message \"%s\" was %s by \"%s\"; see the audit",
                    message_id, cancelled ? "cancelled" : "discarded",
                    pr__pg_value_text(result, 0, 1));
}

static pr_status show_all(pr__pg_records *records, const char *message_id, pr_error *err)
{
    TRY(pr__pg_settings_load(records->store, err));
    TRY(show_outbox(records, SQL_LOG, message_id, err));
    TRY(show_outbox(records, SQL_DELAYED, message_id, err));
    TRY(show_inbox(records, SQL_INBOX, message_id, err));
    TRY(show_inbox(records, SQL_ORIGINAL, message_id, err));
    TRY(show_marks(records, message_id, err));
    if (records->count == 0)
        return not_found(&records->store->conn, message_id, err);
    return PR_OK;
}

pr_status pr__pg_show(pr_store *base, const char *message_id, pr_record_callback callback,
                      void *user, pr_error *err)
{
    pr__pg_store *store = pr__pg_store_of(base);
    TRY(pr__pg_ready(store, err));
    AUTO(pr__arena) arena = pr__arena_new(0);
    if (!arena)
        return pr__fail_nomem(err, ORIGIN);
    pr__pg_records records = {.store = store, .arena = arena, .with_body = true};
    TRY(pr__pg_begin_read(&store->conn, 0, err));
    TRY(pr__pg_end(&store->conn, show_all(&records, message_id, err), err));
    (void)pr__pg_records_deliver(&records, UINT32_MAX, callback, user);
    return PR_OK;
}

/* ---- what blocks it ---- */

static const char SQL_LOG_BLOCKER[] =
    "SELECT b.message_id::text FROM {p}outbox_parked AS b JOIN {p}subscription AS s ON s.reader = "
    "b.reader WHERE b.reader = $1 AND b.tenant = $2 AND b.key = $3 AND b.log_id < $4 AND (b.state "
    "<> 'dead' OR s.order_policy = 'halt') AND s.order_policy <> 'skip' ORDER BY b.log_id LIMIT 1";
/* The order is the endpoint's and stands nowhere: a dead one blocks only what is held behind
   nothing else, which is what halt looks like. */
static const char SQL_INBOX_BLOCKER[] =
    "SELECT message_id FROM {p}inbox_parked WHERE tenant = $1 AND consumer = $2 AND key = $3 AND "
    "place < (SELECT place FROM {p}inbox_parked WHERE tenant = $1 AND consumer = $2 AND message_id "
    "= $4) AND (state <> 'dead' OR $5) ORDER BY state = 'dead', place LIMIT 1";

static pr_status find_blocker(pr__pg_conn *conn, const pr_record *record, char *ret_message_id,
                              size_t ret_size, pr_error *err)
{
    const pr_message *message = &record->message;
    const char *tenant = message->tenant ? message->tenant : "";
    AUTO_RESULT result = NULL;
    if (record->box == PR_BOX_INBOX)
        TRY(pr__pg_query(conn, SQL_INBOX_BLOCKER, &result, err, "tttto", tenant, record->consumer,
                         message->key, message->id, (int)(record->state == PR_STATE_HELD)));
    else
        TRY(pr__pg_query(conn, SQL_LOG_BLOCKER, &result, err, "itti", record->reader, tenant,
                         message->key, record->log_id));
    if (PQntuples(result) > 0)
        pr__format(ret_message_id, ret_size, "%s", pr__pg_value_text(result, 0, 0));
    return PR_OK;
}

pr_status pr__pg_blocker(pr_store *base, const pr_record *record, char *ret_message_id,
                         size_t ret_size, pr_error *err)
{
    pr__pg_store *store = pr__pg_store_of(base);
    TRY(pr__pg_ready(store, err));
    ret_message_id[0] = '\0';
    if (!pr__record_blockable(record))
        return PR_OK;
    TRY(pr__pg_begin_read(&store->conn, 0, err));
    return pr__pg_end(&store->conn,
                      find_blocker(&store->conn, record, ret_message_id, ret_size, err), err);
}

/* ---- what stands around it ---- */

static const char SQL_LANE[] =
    "SELECT $3 = ANY (ids), $3 = ANY (rest), cardinality(ids), attempt, lease_until, owner FROM "
    "{p}outbox_claim WHERE reader = $1 AND lane = $2 ORDER BY seq DESC LIMIT 1";
static const char SQL_LAST[] =
    "SELECT at, owner FROM {p}outbox_claim WHERE reader = $1 AND seq > 0 AND owner <> '' ORDER BY "
    "at DESC LIMIT 1";
static const char SQL_AROUND[] =
    "SELECT (SELECT count(*) FROM {p}outbox_parked WHERE reader = $1 AND lane = $2 AND deferred "
    "AND "
    "state IN ('failed', 'held')), (SELECT name FROM {p}subscription WHERE reader = $1 AND reader "
    "> 1)";
/* The first journal row that has passed the id and does not hold it; none before it: not known. */
static const char SQL_SETTLED[] =
    "SELECT j.at FROM {p}outbox_claim AS j CROSS JOIN (SELECT xid FROM {p}outbox WHERE lane = $2 "
    "AND id = $3) AS o WHERE j.reader = $1 AND j.lane = $2 AND j.pos >= $3 AND $3 <> ALL (j.ids) "
    "AND $3 <> ALL (j.rest) AND o.xid <> ALL (j.pend) AND (o.xid <> ALL (j.drain) OR $3 <= "
    "j.drain_pos) AND j.seq > (SELECT min(seq) FROM {p}outbox_claim WHERE reader = $1 AND lane = "
    "$2) ORDER BY j.seq LIMIT 1";

static pr_status place_lane(pr__pg_conn *conn, const pr_record *record, pr__place *place,
                            pr_error *err)
{
    AUTO_RESULT result = NULL;
    TRY(pr__pg_query(conn, SQL_LANE, &result, err, "iii", record->reader, (int64_t)record->lane,
                     record->log_id));
    if (PQntuples(result) == 0)
        return PR_OK;
    place->in_slice = pr__pg_value_int(result, 0, 0) != 0;
    place->in_rest = pr__pg_value_int(result, 0, 1) != 0;
    place->slice_count = (uint32_t)pr__pg_value_int(result, 0, 2);
    if (place->slice_count == 0)
        return PR_OK;
    place->attempt = (uint32_t)pr__pg_value_int(result, 0, 3);
    place->lease_until_us = pr__pg_value_instant(result, 0, 4);
    pr__format(place->owner, sizeof place->owner, "%s", pr__pg_value_text(result, 0, 5));
    return PR_OK;
}

static pr_status place_last(pr__pg_conn *conn, const pr_record *record, pr__place *place,
                            pr_error *err)
{
    AUTO_RESULT result = NULL;
    TRY(pr__pg_query(conn, SQL_LAST, &result, err, "i", record->reader));
    place->worked = PQntuples(result) > 0;
    if (!place->worked)
        return PR_OK;
    place->last_at_us = pr__pg_value_instant(result, 0, 0);
    if (!place->owner[0])
        pr__format(place->owner, sizeof place->owner, "%s", pr__pg_value_text(result, 0, 1));
    return PR_OK;
}

static pr_status find_place(pr__pg_conn *conn, const pr_record *record, pr__place *place,
                            pr_error *err)
{
    AUTO_RESULT result = NULL;
    place->passed_over =
        record->reader == PR_READER_RELAY &&
        pr__text_starts_with(record->message.destination, PR_TRANSPORT_LOCAL "://");
    TRY(place_lane(conn, record, place, err));
    TRY(place_last(conn, record, place, err));
    TRY(pr__pg_query(conn, SQL_AROUND, &result, err, "ii", record->reader, (int64_t)record->lane));
    place->deferred_count = (uint32_t)pr__pg_value_int(result, 0, 0);
    const char *name = pr__pg_value_text(result, 0, 1);
    pr__format(place->reader_name, sizeof place->reader_name, "%s", name ? name : "");
    if (record->state != PR_STATE_PUBLISHED)
        return PR_OK;
    return pr__pg_int(conn, SQL_SETTLED, &place->settled_at_us, NULL, err, "iii", record->reader,
                      (int64_t)record->lane, record->log_id);
}

pr_status pr__pg_place(pr_store *base, const pr_record *record, pr__place *ret_place, pr_error *err)
{
    pr__pg_store *store = pr__pg_store_of(base);
    pr__place place = {0};
    TRY(pr__pg_ready(store, err));
    TRY(pr__pg_begin_read(&store->conn, 0, err));
    TRY(pr__pg_end(&store->conn, find_place(&store->conn, record, &place, err), err));
    *ret_place = place;
    return PR_OK;
}
