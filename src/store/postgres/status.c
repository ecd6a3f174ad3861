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
#include "store/postgres/operations.h"
#include "store/postgres/record.h"
#include "store/postgres/value.h"

#define ORIGIN           "postgres.status"
#define BACKLOG_LIMIT_MS 2000

#define MINE                                                                                       \
    "coalesce(o.destination NOT LIKE 'local://%', (SELECT value <> 'local' FROM {p}setting WHERE " \
    "name = 'default_transport'))"

/* Rows that are not settled beside the open slices and rest: all, and those that are the relay's.
   */
static const char SQL_LANES[] =
    "WITH newest AS MATERIALIZED (SELECT j.* FROM generate_series(0, $1 - 1) AS l(lane) CROSS JOIN "
    "LATERAL (SELECT * FROM {p}outbox_claim AS c WHERE c.reader = 1 AND c.lane = l.lane ORDER BY "
    "c.seq DESC LIMIT 1) AS j), ahead AS MATERIALIZED (SELECT " MINE " AS mine FROM newest AS j "
    "JOIN {p}outbox AS o ON o.lane = j.lane AND o.id > j.pos UNION ALL SELECT " MINE " FROM newest "
    "AS j CROSS JOIN LATERAL unnest(j.pend) AS d(xid) JOIN {p}outbox AS o ON o.xid = d.xid AND "
    "o.lane = j.lane WHERE o.id > j.rebase_id AND o.id <= j.pos UNION ALL SELECT " MINE
    " FROM newest AS j CROSS JOIN LATERAL unnest(j.drain) AS d(xid) JOIN {p}outbox AS o ON o.xid = "
    "d.xid AND o.lane = j.lane WHERE o.id > j.drain_pos AND o.id <= j.pos) "
    "SELECT (SELECT count(*) FROM {p}outbox), coalesce(sum(cardinality(ids)), 0)::int8, "
    "coalesce(sum(cardinality(rest)), 0)::int8, coalesce(sum(passed), 0)::int8, (SELECT count(*) "
    "FROM ahead), (SELECT count(*) FROM ahead WHERE mine) FROM newest";

static const char SQL_OUTBOX_PARKED[] =
    "SELECT " PR__PG_PARKED_STATE ", count(*) FROM {p}outbox_parked AS t WHERE t.reader IN (0, 1) "
    "GROUP BY 1";
static const char SQL_INBOX_PARKED[] =
    "SELECT " PR__PG_PARKED_STATE ", count(*) FROM {p}inbox_parked AS t GROUP BY 1";

static const char SQL_REST[] =
    "SELECT (SELECT count(*) FROM {p}inbox), (SELECT count(*) FROM {p}outbox_claim), (SELECT "
    "count(*) FROM (SELECT j.owner FROM generate_series(0, $1 - 1) AS l(lane) CROSS JOIN LATERAL "
    "(SELECT * FROM {p}outbox_claim AS c WHERE c.reader = 1 AND c.lane = l.lane ORDER BY c.seq "
    "DESC LIMIT 1) AS j WHERE j.lease_until > clock_timestamp() AND cardinality(j.ids) > 0 UNION "
    "SELECT owner FROM {p}outbox_parked WHERE reader = 1 AND state = 'processing' AND locked_until "
    "> clock_timestamp()) AS owners)";

static pr_status count_parked(pr__pg_conn *conn, const char *sql,
                              uint64_t ret_counts[PR_STATE_COUNT], uint64_t *ret_sum, pr_error *err)
{
    AUTO_RESULT result = NULL;
    TRY(pr__pg_query(conn, sql, &result, err, ""));
    for (int row = 0; row < PQntuples(result); row++) {
        pr_state state = PR_STATE_DEAD;
        uint64_t count = (uint64_t)pr__pg_value_int(result, row, 1);
        if (pr__state_parse(pr__pg_value_text(result, row, 0), &state))
            ret_counts[state] += count;
        if (state != PR_STATE_DELAYED)
            *ret_sum += count; /* a delayed one is not in the log yet */
    }
    return PR_OK;
}

static pr_status count_outbox(pr__pg_store *store, pr_status_report *report, pr_error *err)
{
    uint64_t parked = 0;
    AUTO_RESULT result = NULL;
    TRY(pr__pg_query(&store->conn, SQL_LANES, &result, err, "i", (int64_t)store->settings.lanes));
    TRY(count_parked(&store->conn, SQL_OUTBOX_PARKED, report->outbox, &parked, err));
    int64_t total = pr__pg_value_int(result, 0, 0);
    int64_t open = pr__pg_value_int(result, 0, 1);
    int64_t rest = pr__pg_value_int(result, 0, 2);
    int64_t passed = pr__pg_value_int(result, 0, 3);
    int64_t ahead = pr__pg_value_int(result, 0, 4);
    report->outbox[PR_STATE_PENDING] += (uint64_t)(pr__pg_value_int(result, 0, 5) + rest);
    report->outbox[PR_STATE_PUBLISHING] += (uint64_t)open;
    int64_t published = total - ahead - passed - open - rest - (int64_t)parked;
    report->outbox[PR_STATE_PUBLISHED] = published > 0 ? (uint64_t)published : 0;
    return PR_OK;
}

static pr_status count_all(pr__pg_store *store, pr_status_report *report, pr_error *err)
{
    uint64_t unused = 0;
    AUTO_RESULT result = NULL;
    TRY(pr__pg_settings_load(store, err));
    report->schema_version = store->settings.schema_version;
    report->lanes = store->settings.lanes;
    TRY(count_outbox(store, report, err));
    TRY(count_parked(&store->conn, SQL_INBOX_PARKED, report->inbox, &unused, err));
    TRY(pr__pg_query(&store->conn, SQL_REST, &result, err, "i", (int64_t)store->settings.lanes));
    report->inbox_marks = (uint64_t)pr__pg_value_int(result, 0, 0);
    report->inbox[PR_STATE_PUBLISHED] = report->inbox_marks;
    report->journal_rows = pr__pg_value_int(result, 0, 1);
    report->relays_seen = (uint32_t)pr__pg_value_int(result, 0, 2);
    return PR_OK;
}

pr_status pr__pg_status(pr_store *base, pr_status_report *ret_report, pr_error *err)
{
    pr__pg_store *store = pr__pg_store_of(base);
    TRY(pr__pg_ready(store, err));
    pr__pg_describe(store, ret_report->store, sizeof ret_report->store);
    TRY(pr__pg_begin_read(&store->conn, 0, err));
    TRY(pr__pg_end(&store->conn, count_all(store, ret_report, err), err));
    pr__backlog backlog = {0};
    TRY(pr__pg_backlog(base, PR_READER_RELAY, BACKLOG_LIMIT_MS, &backlog, err));
    ret_report->oldest_pending_age_ms = backlog.oldest_pending_age_ms;
    return PR_OK;
}
