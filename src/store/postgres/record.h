/*
 * Records: rows of the log, of the parked tables and of the inbox as operations show them.
 *
 * They are gathered inside a read transaction and handed over after it, so that no callback of
 * somebody else runs while a transaction is open. Every statement that gives records gives the same
 * columns, whatever the place of the row.
 */
#ifndef PR_STORE_POSTGRES_RECORD_H
#define PR_STORE_POSTGRES_RECORD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <postroom/operations.h>

#include "base/memory.h"
#include "store/postgres/row.h"
#include "store/postgres/store.h"

/* The state that the views show of a parked row; the table has the alias t. */
#define PR__PG_PARKED_STATE                                                                        \
    "CASE WHEN t.state = 'processing' THEN 'publishing' WHEN t.state = 'failed' AND t.attempts = " \
    "0 AND t.redriven_at IS NOT NULL THEN 'pending' ELSE t.state END"

/* The state of a row t of the log that is not parked, by the newest journal row j. */
#define PR__PG_LOG_STATE                                                                           \
    "CASE WHEN t.id > j.pos THEN 'pending' WHEN t.id = ANY (j.ids) THEN 'publishing' WHEN t.id = " \
    "ANY (j.rest) OR t.id > j.rebase_id AND t.xid = ANY (j.pend) OR t.id > j.drain_pos AND t.xid " \
    "= ANY (j.drain) THEN 'pending' ELSE 'published' END"

/* Is the row t of the log for the reader of the subscription s? transport is the default one. */
#define PR__PG_TAKES(transport)                                                                    \
    "(t.id > s.start_id OR t.xid = ANY (s.start_pend)) AND CASE WHEN s.reader = 1 THEN "           \
    "coalesce(t.destination NOT LIKE 'local://%', " transport " <> 'local') ELSE "                 \
    "coalesce(t.destination, " transport " || '://topic/' || t.type) = ANY (s.destinations) END"

/* The columns of a record, in this order; $1 is the largest body to be read, -1 for none. */
#define PR__PG_RECORD_MESSAGE PR__PG_MESSAGE_SELECT("t.", "$1")
#define PR__PG_RECORD_PARKED                                                                       \
    "SELECT " PR__PG_RECORD_MESSAGE ", " PR__PG_PARKED_STATE " AS view_state, t.attempts, "        \
    "t.takeovers, CASE WHEN t.state IN ('failed', 'delayed') THEN t.next_attempt_at END, "         \
    "t.lock_token::text, t.locked_until, t.owner, t.last_error, t.first_failed_at, "               \
    "t.operator_hold, t.reader, t.log_id AS log_id, t.lane, NULL::text, NULL::text, 1::int8 AS "   \
    "box, t.place AS place FROM {p}outbox_parked AS t "
#define PR__PG_RECORD_INBOX                                                                        \
    "SELECT " PR__PG_RECORD_MESSAGE ", " PR__PG_PARKED_STATE " AS view_state, t.attempts, "        \
    "t.takeovers, CASE WHEN t.state = 'failed' THEN t.next_attempt_at END, t.lock_token::text, "   \
    "t.locked_until, t.owner, t.last_error, t.first_failed_at, t.operator_hold, 0::int8, t.place " \
    "AS log_id, 0, t.consumer, t.unreadable, 2::int8 AS box, t.place AS place FROM "               \
    "{p}inbox_parked AS t "
#define PR__PG_RECORD_LOG(state)                                                                   \
    "SELECT " PR__PG_RECORD_MESSAGE ", " state " AS view_state, 0, 0, NULL::timestamptz, CASE "    \
    "WHEN t.id = ANY (j.ids) THEN j.token::text END, CASE WHEN t.id = ANY (j.ids) THEN "           \
    "j.lease_until END, CASE WHEN t.id = ANY (j.ids) THEN j.owner END, NULL::text, "               \
    "NULL::timestamptz, false, j.reader, t.id AS log_id, t.lane, NULL::text, NULL::text, 1::int8 " \
    "AS box, t.id AS place "
#define PR__PG_NEWEST                                                                              \
    "LATERAL (SELECT * FROM {p}outbox_claim AS c WHERE c.reader = s.reader AND c.lane = l.lane "   \
    "ORDER BY c.seq DESC LIMIT 1) AS j"

/* The marks of a message id, without an index by id: one look for each (tenant, consumer). The
   expression is named m; $1 is the id. */
#define PR__PG_MARKS_OF_ID                                                                         \
    "WITH RECURSIVE pair AS ((SELECT tenant, consumer FROM {p}inbox ORDER BY tenant, consumer "    \
    "LIMIT 1) UNION ALL SELECT n.tenant, n.consumer FROM pair CROSS JOIN LATERAL (SELECT tenant, " \
    "consumer FROM {p}inbox AS i WHERE (i.tenant, i.consumer) > (pair.tenant, pair.consumer) "     \
    "ORDER BY i.tenant, i.consumer LIMIT 1) AS n), m AS (SELECT i.* FROM pair JOIN {p}inbox AS i " \
    "ON i.tenant = pair.tenant AND i.consumer = pair.consumer AND i.message_id = $1) "

typedef struct pr__pg_record_node {
    pr_record record;
    int64_t place; /* in its table */
    struct pr__pg_record_node *next;
} pr__pg_record_node;

typedef struct pr__pg_records {
    pr__pg_store *store;
    pr__arena *arena; /* borrowed */
    pr__pg_record_node *first, *last;
    uint32_t count;
    bool with_body;
} pr__pg_records;

/* The value of $1. */
int64_t pr__pg_records_body_max(const pr__pg_records *records);
/* Append all rows of a result with the columns of a record. */
pr_status pr__pg_records_add(pr__pg_records *records, const PGresult *result, pr_error *err);
/* Append a mark: tenant, consumer, message_id, processed_at are the columns of the row. */
pr_status pr__pg_records_add_mark(pr__pg_records *records, const PGresult *result, int row,
                                  pr_error *err);
/* Hand up to max over in order; returns how many were, the one that stopped it included. */
uint32_t pr__pg_records_deliver(const pr__pg_records *records, uint32_t max,
                                pr_record_callback callback, void *user);

#endif
