/*
 * Housekeeping and counting: has anything changed, the checkpoint of the WAL, the backlog.
 *
 * Invariant: one checkpointer at a time among all processes, by a lease in `setting`: SQLite before
 * 3.51.3 may reset the WAL wrongly when two connections checkpoint and write at once.
 */
#include <sys/stat.h>

#include "base/error.h"
#include "base/fault.h"
#include "base/text.h"
#include "base/time.h"
#include "store/sqlite/journal.h"
#include "store/sqlite/store.h"

#define ORIGIN              "sqlite.maintain"

#define WAL_LARGE_BYTES     (4LL * 1024 * 1024)
#define WAL_HUGE_BYTES      (64LL * 1024 * 1024) /* writers have to wait for a reset */
#define CHECKPOINT_LEASE_US (60LL * 1000 * 1000)
#define PROGRESS_STEPS      2000 /* virtual machine steps between two looks at the clock */

static const char SQL_DATA_VERSION[] = "PRAGMA data_version";

pr_status pr__sqlite_changed(pr_store *base, bool *ret_changed, pr_error *err)
{
    pr__sqlite_store *store = pr__sqlite_store_of(base);
    TRY(pr__sqlite_ready(store, err));
    int64_t version = 0;
    TRY(pr__sqlite_int(&store->conn, SQL_DATA_VERSION, &version, NULL, err, ""));
    *ret_changed = !store->changed_known || version != store->data_version ||
                   store->conn.own_commits != store->seen_commits;
    store->changed_known = true;
    store->data_version = version;
    store->seen_commits = store->conn.own_commits;
    return PR_OK;
}

/* stat() neither opens nor closes the file, so that no lock of ours is dropped. */
static int64_t wal_size(const pr__sqlite_store *store)
{
    char path[4096];
    struct stat info;
    pr__format(path, sizeof path, "%s-wal", store->path);
    return stat(path, &info) == 0 ? (int64_t)info.st_size : 0;
}

static const char SQL_LEASE[] =
    "INSERT INTO {p}_setting (name, value) VALUES ('checkpoint_until', ?1) ON CONFLICT (name) DO "
    "UPDATE SET value = ?1 WHERE CAST(value AS INTEGER) NOT BETWEEN ?2 + 1 AND CAST(?1 AS INTEGER)";
static const char SQL_RELEASE[] = "DELETE FROM {p}_setting WHERE name = 'checkpoint_until' AND "
                                  "value = ?1";

static pr_status take_lease(pr__sqlite_store *store, const char *until, int64_t now,
                            bool *ret_taken, pr_error *err)
{
    int64_t changes = 0;
    TRY(pr__sqlite_begin(&store->conn, /* write= */ true, err));
    pr_status status = pr__sqlite_run(&store->conn, SQL_LEASE, &changes, err, "ti", until, now);
    *ret_taken = changes > 0;
    if (status == PR_OK && !*ret_taken) {
        pr__sqlite_rollback(&store->conn);
        return PR_OK;
    }
    return pr__sqlite_end(&store->conn, status, err);
}

static pr_status release_lease(pr__sqlite_store *store, const char *until, pr_error *err)
{
    TRY(pr__sqlite_begin(&store->conn, /* write= */ true, err));
    return pr__sqlite_end(&store->conn,
                          pr__sqlite_run(&store->conn, SQL_RELEASE, NULL, err, "t", until), err);
}

/* PASSIVE disturbs nobody. Under steady writing it never comes to the end, and the WAL grows; then
   RESTART makes writers wait for the rest of it. */
static void checkpoint(pr__sqlite_store *store, int64_t size)
{
    int log = 0;
    int done = 0;
    sqlite3 *db = store->conn.db;
    sqlite3_wal_checkpoint_v2(db, "main", SQLITE_CHECKPOINT_PASSIVE, &log, &done);
    if (size >= WAL_HUGE_BYTES)
        sqlite3_wal_checkpoint_v2(db, "main", SQLITE_CHECKPOINT_TRUNCATE, &log, &done);
}

pr_status pr__sqlite_maintain(pr_store *base, pr_error *err)
{
    pr__sqlite_store *store = pr__sqlite_store_of(base);
    TRY(pr__sqlite_ready(store, err));
    int64_t size = wal_size(store);
    if (size < WAL_LARGE_BYTES)
        return PR_OK;
    int64_t now = pr__wall_us();
    char until[32];
    bool taken = false;
    pr__format(until, sizeof until, "%lld", (long long)(now + CHECKPOINT_LEASE_US));
    TRY(take_lease(store, until, now, &taken, err));
    if (!taken)
        return PR_OK;
    PR_FAULT("store.before_checkpoint");
    checkpoint(store, size);
    PR_FAULT("store.after_checkpoint");
    return release_lease(store, until, err);
}

static const char SQL_FRESH_COUNT[] = "SELECT count(*) FROM {p}_outbox WHERE lane = ?1 AND id > ?2";
static const char SQL_KNOWN_COUNT[] =
    "SELECT json_array_length(ids) + json_array_length(rest) FROM {p}_outbox_claim WHERE reader = "
    "?1 AND lane = ?2 AND seq = ?3";
static const char SQL_FRESH_OLDEST[] =
    "SELECT occurred_at FROM {p}_outbox WHERE lane = ?1 AND id > ?2 ORDER BY id LIMIT 1";
static const char SQL_KNOWN_OLDEST[] =
    "SELECT min(occurred_at) FROM {p}_outbox WHERE id IN (SELECT value FROM {p}_outbox_claim AS j, "
    "json_each(j.ids) WHERE j.reader = ?1 AND j.lane = ?2 AND j.seq = ?3 UNION ALL SELECT value "
    "FROM {p}_outbox_claim AS j, json_each(j.rest) WHERE j.reader = ?1 AND j.lane = ?2 AND j.seq = "
    "?3)";

static void note_oldest(int64_t *oldest, bool found, int64_t value)
{
    if (found && (*oldest == 0 || value < *oldest))
        *oldest = value;
}

static pr_status count_lane(pr__sqlite_store *store, int64_t reader, uint32_t lane,
                            uint64_t *pending, int64_t *oldest, pr_error *err)
{
    pr__sqlite_conn *conn = &store->conn;
    pr__journal head;
    int64_t value = 0;
    bool found = false;
    TRY(pr__journal_head(conn, reader, lane, &head, err));
    if (!head.stands)
        return PR_OK;
    TRY(pr__sqlite_int(conn, SQL_FRESH_COUNT, &value, NULL, err, "ii", (int64_t)lane, head.pos));
    *pending += (uint64_t)value;
    TRY(pr__sqlite_int(conn, SQL_FRESH_OLDEST, &value, &found, err, "ii", (int64_t)lane, head.pos));
    note_oldest(oldest, found, value);
    if (!head.open && !head.has_rest)
        return PR_OK;
    TRY(pr__sqlite_int(conn, SQL_KNOWN_COUNT, &value, NULL, err, "iii", reader, (int64_t)lane,
                       head.seq));
    *pending += (uint64_t)value;
    TRY(pr__sqlite_int(conn, SQL_KNOWN_OLDEST, &value, &found, err, "iii", reader, (int64_t)lane,
                       head.seq));
    note_oldest(oldest, found, value);
    return PR_OK;
}

static int past_deadline(void *user)
{
    return pr__monotonic_us() >= *(const int64_t *)user;
}

static pr_status count_lanes(pr__sqlite_store *store, int64_t reader, int64_t deadline,
                             pr__backlog *backlog, int64_t *oldest, pr_error *err)
{
    TRY(pr__sqlite_settings_load(store, err));
    for (uint32_t lane = 0; lane < store->settings.lanes; lane++) {
        if (past_deadline(&deadline))
            return pr__fail_retry(err, PR_E_BUSY, PR_RETRY_SAME, ORIGIN,
                                  "the backlog was not counted in time");
        TRY(count_lane(store, reader, lane, &backlog->pending, oldest, err));
    }
    return PR_OK;
}

pr_status pr__sqlite_backlog(pr_store *base, int64_t reader, int64_t limit_ms,
                             pr__backlog *ret_backlog, pr_error *err)
{
    pr__sqlite_store *store = pr__sqlite_store_of(base);
    TRY(pr__sqlite_ready(store, err));
    pr__backlog backlog = {0};
    int64_t oldest = 0;
    int64_t deadline = pr__monotonic_us() + limit_ms * 1000;
    TRY(pr__sqlite_begin(&store->conn, /* write= */ false, err));
    sqlite3_progress_handler(store->conn.db, PROGRESS_STEPS, past_deadline, &deadline);
    pr_status status = count_lanes(store, reader, deadline, &backlog, &oldest, err);
    sqlite3_progress_handler(store->conn.db, 0, NULL, NULL);
    TRY(pr__sqlite_end(&store->conn, status, err));
    if (oldest != 0) {
        int64_t age_us = pr__sqlite_now(base) - oldest;
        backlog.oldest_pending_age_ms = age_us > 0 ? age_us / 1000 : 0;
    }
    *ret_backlog = backlog;
    return PR_OK;
}
