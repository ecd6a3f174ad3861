/*
 * A SQLite store in a fresh folder, for tests that need a database, and plain SQL on it beside the
 * store.
 */
#ifndef PR_TESTS_SQLITE_WORLD_H
#define PR_TESTS_SQLITE_WORLD_H

#include <errno.h>
#include <unistd.h>

#include <sqlite3.h>

#include <postroom/sqlite.h>

#include "base/error.h"
#include "support/test.h"

typedef struct sqlite_world {
    char folder[256];
    char path[300];
} sqlite_world;

static inline pr_status sqlite_world_store(const sqlite_world *at, int64_t busy_ms,
                                           uint64_t body_size_max, pr_store **ret_store,
                                           pr_error *err)
{
    const pr_sqlite_options options =
        PR_SQLITE_OPTIONS(.path = at->path, .busy_ms = busy_ms, .body_size_max = body_size_max);
    return pr_sqlite_store_open(&options, ret_store, err);
}

/* Make the folder and the schema; no connection stays open, so the caller may fork. */
static inline pr_status sqlite_world_open(sqlite_world *at, pr_error *err)
{
    const char *tmp = getenv("TMPDIR");
    snprintf(at->folder, sizeof(at->folder), "%s/postroom-test-XXXXXX", tmp ? tmp : "/tmp");
    if (!mkdtemp(at->folder))
        return pr__fail(err, PR_E_BACKEND, "test", "mkdtemp: %s", strerror(errno));
    snprintf(at->path, sizeof(at->path), "%s/shop.db", at->folder);
    const pr_sqlite_options options =
        PR_SQLITE_OPTIONS(.create = true, .schema_check_off = true, .path = at->path);
    pr_store *store = NULL;
    pr_status status = pr_sqlite_store_open(&options, &store, err);
    if (status == PR_OK)
        status = pr_store_migrate(store, NULL, NULL, err);
    pr_store_free(store);
    return status;
}

static inline void sqlite_world_close(sqlite_world *at)
{
    static const char *const suffixes[] = {"", "-wal", "-shm"};
    char path[320];
    for (size_t i = 0; i < COUNT_OF(suffixes); i++) {
        snprintf(path, sizeof(path), "%s%s", at->path, suffixes[i]);
        unlink(path);
    }
    if (rmdir(at->folder) != 0)
        fail_msg("something was left in %s", at->folder);
}

/* One number by plain SQL on a connection of its own; text (may be NULL) is ?1. */
static inline int64_t sqlite_world_number(const sqlite_world *at, const char *sql, const char *text)
{
    sqlite3 *db = NULL;
    sqlite3_stmt *stmt = NULL;
    int64_t number = 0;
    int code = sqlite3_open_v2(at->path, &db, SQLITE_OPEN_READWRITE, NULL);
    if (code == SQLITE_OK)
        code = sqlite3_busy_timeout(db, 5000);
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

#endif
