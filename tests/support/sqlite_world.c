/*
 * A SQLite store in a folder of its own, from mkdtemp() to rmdir(): who leaves anything else behind
 * in the folder fails.
 */
#include "support/sqlite_world.h"

#include <errno.h>
#include <unistd.h>

#include "base/error.h"

#define BUSY_MS 5000

pr_status sqlite_world_make(sqlite_world *at, pr_error *err)
{
    const char *root = getenv("TMPDIR");
    snprintf(at->folder, sizeof at->folder, "%s/postroom-test-XXXXXX",
             root && *root ? root : "/tmp");
    if (!mkdtemp(at->folder))
        return pr__fail(err, PR_E_BACKEND, "test", "mkdtemp: %s", strerror(errno));
    snprintf(at->path, sizeof at->path, "%s/shop.db", at->folder);
    return PR_OK;
}

pr_status sqlite_world_migrate(const sqlite_world *at, const pr_migrate_options *opt, pr_error *err)
{
    const pr_sqlite_options options =
        PR_SQLITE_OPTIONS(.create = true, .schema_check_off = true, .path = at->path);
    pr_store *store = NULL;
    TRY(pr_sqlite_store_open(&options, &store, err));
    pr_status status = pr_store_migrate(store, opt, NULL, err);
    pr_store_free(store);
    return status;
}

pr_status sqlite_world_open(sqlite_world *at, pr_error *err)
{
    TRY(sqlite_world_make(at, err));
    return sqlite_world_migrate(at, NULL, err);
}

pr_status sqlite_world_store(const sqlite_world *at, int64_t busy_ms, uint64_t body_size_max,
                             pr_store **ret_store, pr_error *err)
{
    const pr_sqlite_options options =
        PR_SQLITE_OPTIONS(.path = at->path, .busy_ms = busy_ms, .body_size_max = body_size_max);
    return pr_sqlite_store_open(&options, ret_store, err);
}

pr_store *sqlite_world_begin(sqlite_world *at, int64_t busy_ms)
{
    pr_error err = PR_ERROR_INIT;
    pr_store *store = NULL;
    check_ok(sqlite_world_open(at, &err), &err, "world");
    check_ok(sqlite_world_store(at, busy_ms, 0, &store, &err), &err, "store");
    return store;
}

void sqlite_world_end(sqlite_world *at, pr_store *store)
{
    pr_store_free(store);
    sqlite_world_close(at);
}

void sqlite_world_close(sqlite_world *at)
{
    static const char *const suffixes[] = {"", "-wal", "-shm", "-journal"};
    char path[320];
    for (size_t i = 0; i < COUNT_OF(suffixes); i++) {
        snprintf(path, sizeof path, "%s%s", at->path, suffixes[i]);
        unlink(path);
    }
    if (rmdir(at->folder) != 0)
        fail_msg("something was left in %s", at->folder);
}

sqlite3 *sqlite_world_connect(const sqlite_world *at)
{
    sqlite3 *db = NULL;
    assert_int_equal(sqlite3_open(at->path, &db), SQLITE_OK);
    return db;
}

void sqlite_run(sqlite3 *db, const char *sql)
{
    if (sqlite3_exec(db, sql, NULL, NULL, NULL) != SQLITE_OK)
        fail_msg("%s: %s", sql, sqlite3_errmsg(db));
}

void sqlite_world_run(const sqlite_world *at, const char *sql)
{
    sqlite3 *db = sqlite_world_connect(at);
    sqlite_run(db, sql);
    sqlite3_close(db);
}

int64_t sqlite_world_number(const sqlite_world *at, const char *sql, const char *text)
{
    sqlite3 *db = sqlite_world_connect(at);
    sqlite3_stmt *stmt = NULL;
    int64_t number = 0;
    int code = sqlite3_busy_timeout(db, BUSY_MS);
    if (code == SQLITE_OK)
        code = sqlite3_prepare_v2(db, sql, -1, &stmt, NULL);
    if (code == SQLITE_OK && text)
        code = sqlite3_bind_text(stmt, 1, text, -1, SQLITE_STATIC);
    if (code == SQLITE_OK)
        code = sqlite3_step(stmt);
    if (code == SQLITE_ROW)
        number = sqlite3_column_int64(stmt, 0);
    if (code != SQLITE_ROW)
        fail_msg("%s: %s", sql, sqlite3_errmsg(db));
    sqlite3_finalize(stmt);
    sqlite3_close(db);
    return number;
}
