/*
 * Has anything changed, and the backlog. Housekeeping is the server's own: autovacuum.
 */
#include "base/error.h"
#include "store/postgres/store.h"
#include "store/postgres/value.h"

#define ORIGIN "postgres.maintain"

/* Both sequences only grow, and are read without a look at any row. */
static const char SQL_LAST[] = "SELECT o.last_value + o.is_called::pg_catalog.int4 + "
                               "p.last_value + p.is_called::pg_catalog.int4 FROM "
                               "{p}outbox_id_seq AS o, {p}outbox_parked_place_seq AS p";

pr_status pr__pg_changed(pr_store *base, bool *ret_changed, pr_error *err)
{
    pr__pg_store *store = pr__pg_store_of(base);
    int64_t last = 0;
    TRY(pr__pg_ready(store, err));
    TRY(pr__pg_int(&store->conn, SQL_LAST, &last, NULL, err, ""));
    *ret_changed = !store->changed_known || last != store->last_value ||
                   store->own_writes != store->seen_writes;
    store->changed_known = true;
    store->last_value = last;
    store->seen_writes = store->own_writes;
    return PR_OK;
}

pr_status pr__pg_maintain(pr_store *base, pr_error *err)
{
    return pr__pg_ready(pr__pg_store_of(base), err);
}

static const char SQL_BACKLOG[] =
    "SELECT coalesce(sum(cardinality(j.ids) + cardinality(j.rest) + (SELECT count(*) FROM "
    "{p}outbox AS o WHERE o.lane = l.lane AND o.id > j.pos) + (SELECT count(*) FROM unnest(j.pend) "
    "AS d(xid) JOIN {p}outbox AS o ON o.xid = d.xid AND o.lane = l.lane WHERE o.id > j.rebase_id "
    "AND o.id <= j.pos) + (SELECT count(*) FROM unnest(j.drain) AS d(xid) JOIN {p}outbox AS o ON "
    "o.xid = d.xid AND o.lane = l.lane WHERE o.id > j.drain_pos AND o.id <= j.pos)), 0)::int8, "
    "min(least((SELECT o.occurred_at FROM {p}outbox AS o WHERE o.lane = l.lane AND o.id > j.pos "
    "ORDER BY o.id LIMIT 1), (SELECT min(o.occurred_at) FROM {p}outbox AS o WHERE o.lane = l.lane "
    "AND o.id = ANY (j.ids || j.rest)))), clock_timestamp() FROM generate_series(0, $2 - 1) AS "
    "l(lane) CROSS JOIN LATERAL (SELECT * FROM {p}outbox_claim AS c WHERE c.reader = $1 AND c.lane "
    "= l.lane ORDER BY c.seq DESC LIMIT 1) AS j";

static pr_status count_pending(pr__pg_store *store, int64_t reader, pr__backlog *backlog,
                               pr_error *err)
{
    AUTO_RESULT result = NULL;
    TRY(pr__pg_settings_load(store, err));
    TRY(pr__pg_query(&store->conn, SQL_BACKLOG, &result, err, "ii", reader,
                     (int64_t)store->settings.lanes));
    backlog->pending = (uint64_t)pr__pg_value_int(result, 0, 0);
    if (PQgetisnull(result, 0, 1))
        return PR_OK;
    int64_t age_us = pr__pg_value_instant(result, 0, 2) - pr__pg_value_instant(result, 0, 1);
    backlog->oldest_pending_age_ms = age_us > 0 ? age_us / 1000 : 0;
    return PR_OK;
}

pr_status pr__pg_backlog(pr_store *base, int64_t reader, int64_t limit_ms, pr__backlog *ret_backlog,
                         pr_error *err)
{
    pr__pg_store *store = pr__pg_store_of(base);
    pr__backlog backlog = {0};
    TRY(pr__pg_ready(store, err));
    TRY(pr__pg_begin_read(&store->conn, limit_ms, err));
    TRY(pr__pg_end(&store->conn, count_pending(store, reader, &backlog, err), err));
    *ret_backlog = backlog;
    return PR_OK;
}
