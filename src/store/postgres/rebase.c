/*
 * Rebase: the database was moved into another cluster (a dump restored, an upgrade), and the
 * transaction ids that stand in the journal mean nothing there.
 *
 * Invariants: the log is locked against writers, so that no row with an id below the highest is
 * still on its way; what pend holds has ended, for its cluster is gone, and is drained once; from
 * then on late rows are sought above rebase_id only, or old ones would come again when the young
 * cluster's ids reach the old numbers. All of it is in the next row of each lane, so that a crash
 * half way does no harm.
 */
#include <string.h>

#include "base/error.h"
#include "base/fault.h"
#include "store/postgres/claim.h"

#define ORIGIN "postgres.rebase"

static const char SQL_LOCK[] = "LOCK TABLE {p}outbox IN SHARE MODE";
static const char SQL_HIGHEST[] =
    "SELECT coalesce(max(t.id), 0) FROM generate_series(0, $1 - 1) AS l(lane) CROSS JOIN LATERAL "
    "(SELECT o.id FROM {p}outbox AS o WHERE o.lane = l.lane ORDER BY o.id DESC LIMIT 1) AS t";
static const char SQL_REMAINDER[] =
    "SELECT o.id FROM unnest($1) AS d(xid) JOIN {p}outbox AS o ON o.xid = d.xid WHERE o.lane = $2 "
    "AND o.id > $3 AND o.id <= $4 ORDER BY o.id";

/* A drain that is not at its end goes to rest, which comes before the new one. */
static pr_status keep_drain(pr__pg_claimer *c, pr__pg_lane *lane, pr_error *err)
{
    pr__pg_journal *head = &lane->head;
    if (head->drain.count == 0)
        return PR_OK;
    AUTO_PARAMS params = {.count = 0};
    AUTO_RESULT result = NULL;
    pr__pg_array drain;
    pr__pg_array_init(&drain, PR__PG_XID8);
    for (uint32_t i = 0; i < head->drain.count; i++)
        pr__pg_array_int(&drain, head->drain.items[i]);
    pr__pg_add_array(&params, &drain);
    pr__pg_add_int(&params, lane->lane);
    pr__pg_add_int(&params, head->drain_pos);
    pr__pg_add_int(&params, head->pos);
    pr_status status = pr__pg_exec(&c->store->conn, SQL_REMAINDER, &params, &result, err);
    pr__pg_array_done(&drain);
    TRY(status);
    for (int row = 0; row < PQntuples(result); row++)
        TRY(pr__pg_list_add(&head->rest, c->batch->arena, pr__pg_value_int(result, row, 0), err));
    pr__pg_list_sort(&head->rest);
    return PR_OK;
}

/* The row keeps everything else: an open slice stays open, with the lease that it had. */
static pr_status rebase_lanes(pr__pg_claimer *c, int64_t highest, pr_error *err)
{
    c->entry_count = 0;
    for (uint32_t i = 0; i < c->lane_count; i++) {
        pr__pg_lane *lane = &c->lanes[i];
        pr__pg_journal *head = &lane->head;
        if (!head->stands || head->system_id == c->store->settings.system_id)
            continue;
        TRY(keep_drain(c, lane, err));
        head->drain = head->pend;
        head->drain_pos = head->rebase_id;
        head->pend = (pr__pg_list){0};
        head->rebase_id = highest;
        int64_t left_us = head->lease_until_us - c->now_us;
        c->entries[c->entry_count++] =
            (pr__pg_entry){.lane = lane->lane,
                           .kind = head->open ? "renew" : "release",
                           .row = head,
                           .lease_ms = head->open ? (left_us > 0 ? left_us / 1000 : 0) : -1};
    }
    return PR_OK;
}

static pr_status rebase(pr__pg_store *store, pr__pg_claimer *c, pr_error *err)
{
    int64_t highest = 0;
    TRY(pr__pg_int(&store->conn, SQL_HIGHEST, &highest, NULL, err, "i", (int64_t)c->lane_count));
    TRY(rebase_lanes(c, highest, err));
    int sent = 0;
    int done = 0;
    pr__pg_writing writing = {.reader = c->batch->reader,
                              .system_id = store->settings.system_id,
                              .entries = c->entries,
                              .count = c->entry_count};
    return pr__pg_journal_write(&store->conn, &writing, NULL, 0, &sent, &done, err);
}

pr_status pr__pg_rebase(pr__pg_store *store, int64_t reader, pr_error *err)
{
    pr__pg_claimer *c = NULL;
    TRY(pr__pg_begin(&store->conn, err));
    pr_status status = pr__pg_run(&store->conn, SQL_LOCK, NULL, err, "");
    if (status == PR_OK)
        status = pr__pg_claimer_begin(store, reader, NULL, &c, err);
    AUTO(pr__batch) batch = c ? c->batch : NULL;
    (void)batch; /* freed at the end */
    if (status == PR_OK && c)
        status = rebase(store, c, err);
    PR_FAULT("store.before_rebase_commit");
    return pr__pg_end(&store->conn, status, err);
}
