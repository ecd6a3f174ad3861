/*
 * Counts: how many messages are in each state, how old the oldest pending one is, who is at work.
 *
 * Owns: status. The counts are those of the views, found without reading every row of the log: what
 * is neither pending, publishing nor parked is published.
 * Invariant: read only, one snapshot.
 */
#include "base/error.h"
#include "base/text.h"
#include "port/state.h"
#include "store/sqlite/operations.h"
#include "store/sqlite/record.h"

#define US_PER_MS 1000
#define ORIGIN    "sqlite.status"
#define LANES                                                                                      \
    "WITH RECURSIVE lane (n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM lane WHERE n + 1 < "         \
    "(SELECT CAST(value AS INTEGER) FROM {p}_setting WHERE name = 'lanes')), "                     \
    "newest AS MATERIALIZED (SELECT j.* FROM lane JOIN {p}_outbox_claim AS j "                     \
    "ON j.reader = 1 AND j.lane = lane.n AND j.seq = "                                             \
    "(SELECT max(seq) FROM {p}_outbox_claim WHERE reader = 1 AND lane = lane.n)) "

static const char sql_log_count[] = "SELECT count(*) FROM {p}_outbox";

static const char sql_lanes[] = LANES
    "SELECT coalesce(sum(json_array_length(ids)), 0), coalesce(sum(json_array_length(rest)), 0), "
    "coalesce(sum(passed), 0) FROM newest";

#define MINE                                                                                       \
    "coalesce(o.destination NOT GLOB 'local://*', "                                                \
    "(SELECT value <> 'local' FROM {p}_setting WHERE name = 'default_transport'))"

/* Rows that the relay has not passed: all, and its own. */
static const char sql_ahead[] =
    LANES "SELECT count(*), coalesce(sum(" MINE "), 0) "
          "FROM newest JOIN {p}_outbox AS o ON o.lane = newest.lane AND o.id > newest.pos";

/* The first row of each lane that is not passed, and what is in rest. */
static const char sql_oldest[] =
    LANES "SELECT min(occurred_at) FROM ("
          "SELECT (SELECT o.occurred_at FROM {p}_outbox AS o WHERE o.lane = newest.lane "
          "AND o.id > newest.pos AND " MINE " ORDER BY o.id LIMIT 1) AS occurred_at FROM newest "
          "UNION ALL SELECT o.occurred_at FROM newest JOIN json_each(newest.rest) AS r "
          "JOIN {p}_outbox AS o ON o.id = r.value)";

static const char sql_outbox_parked[] =
    "SELECT " PR__PARKED_STATE ", count(*) FROM {p}_outbox_parked AS t WHERE reader IN (0, 1) "
    "GROUP BY 1";

static const char sql_inbox_parked[] =
    "SELECT " PR__PARKED_STATE ", count(*) FROM {p}_inbox_parked AS t GROUP BY 1";

static const char sql_marks[] = "SELECT count(*) FROM {p}_inbox";
static const char sql_journal[] = "SELECT count(*) FROM {p}_outbox_claim";

static const char sql_owners[] =
    LANES "SELECT count(*) FROM (SELECT owner FROM newest WHERE lease_until > ?1 AND ids <> '[]' "
          "UNION SELECT owner FROM {p}_outbox_parked WHERE reader = 1 AND state = 'processing' "
          "AND locked_until > ?1)";

static pr_status count_parked(pr__sqlite_conn *conn, const char *sql,
                              uint64_t ret_counts[PR_STATE_COUNT], uint64_t *ret_sum, pr_error *err)
{
    AUTO_STMT stmt = NULL;
    bool row = false;
    TRY(pr__sqlite_query(conn, sql, &stmt, err, ""));
    for (;;) {
        TRY(pr__sqlite_step(conn, stmt, &row, err));
        if (!row)
            return PR_OK;
        pr_state state = PR_STATE_DEAD;
        uint64_t count = (uint64_t)sqlite3_column_int64(stmt, 1);
        if (pr__state_parse((const char *)sqlite3_column_text(stmt, 0), &state))
            ret_counts[state] += count;
        if (state != PR_STATE_DELAYED)
            *ret_sum += count; /* a delayed one is not in the log yet */
    }
}

static pr_status count_outbox(pr__sqlite_conn *conn, pr_status_report *report, pr_error *err)
{
    uint64_t parked = 0;
    int64_t total = 0;
    int64_t open = 0, rest = 0, passed = 0, ahead = 0, mine = 0;
    bool row = false;
    TRY(pr__sqlite_int(conn, sql_log_count, &total, NULL, err, ""));
    {
        AUTO_STMT stmt = NULL;
        TRY(pr__sqlite_query(conn, sql_lanes, &stmt, err, ""));
        TRY(pr__sqlite_step(conn, stmt, &row, err));
        open = sqlite3_column_int64(stmt, 0);
        rest = sqlite3_column_int64(stmt, 1);
        passed = sqlite3_column_int64(stmt, 2);
    }
    {
        AUTO_STMT stmt = NULL;
        TRY(pr__sqlite_query(conn, sql_ahead, &stmt, err, ""));
        TRY(pr__sqlite_step(conn, stmt, &row, err));
        ahead = sqlite3_column_int64(stmt, 0);
        mine = sqlite3_column_int64(stmt, 1);
    }
    TRY(count_parked(conn, sql_outbox_parked, report->outbox, &parked, err));
    report->outbox[PR_STATE_PENDING] += (uint64_t)(mine + rest);
    report->outbox[PR_STATE_PUBLISHING] += (uint64_t)open;
    int64_t published = total - ahead - passed - open - rest - (int64_t)parked;
    report->outbox[PR_STATE_PUBLISHED] = published > 0 ? (uint64_t)published : 0;
    return PR_OK;
}

static pr_status count_all(pr__sqlite_store *store, pr_status_report *report, pr_error *err)
{
    pr__sqlite_conn *conn = &store->conn;
    uint64_t unused = 0;
    int64_t marks = 0, owners = 0, oldest_us = 0;
    int64_t now_us = pr__sqlite_now(&store->base);
    bool pending = false;
    TRY(count_outbox(conn, report, err));
    TRY(count_parked(conn, sql_inbox_parked, report->inbox, &unused, err));
    TRY(pr__sqlite_int(conn, sql_marks, &marks, NULL, err, ""));
    TRY(pr__sqlite_int(conn, sql_journal, &report->journal_rows, NULL, err, ""));
    TRY(pr__sqlite_int(conn, sql_owners, &owners, NULL, err, "i", now_us));
    TRY(pr__sqlite_int(conn, sql_oldest, &oldest_us, &pending, err, ""));
    if (pending)
        report->oldest_pending_age_ms = oldest_us < now_us ? (now_us - oldest_us) / US_PER_MS : 0;
    report->inbox[PR_STATE_PUBLISHED] = (uint64_t)marks;
    report->inbox_marks = (uint64_t)marks;
    report->relays_seen = (uint32_t)owners;
    return PR_OK;
}

pr_status pr__sqlite_status(pr_store *store, pr_status_report *ret_report, pr_error *err)
{
    pr__sqlite_store *self = pr__sqlite_store_of(store);
    TRY(pr__sqlite_ready(self, err));
    TRY(pr__sqlite_settings_load(self, err));
    ret_report->schema_version = self->settings.schema_version;
    ret_report->lanes = self->settings.lanes;
    pr__format(ret_report->store, sizeof ret_report->store, "sqlite %s", self->path);
    TRY(pr__sqlite_begin(&self->conn, /* write= */ false, err));
    TRY(pr__sqlite_end(&self->conn, count_all(self, ret_report, err), err));
    return PR_OK;
}
