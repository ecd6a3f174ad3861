/*
 * The SQLite store as a provider of the store suites: a database file in a folder of its own.
 */
#include "contract/sqlite_provider.h"

#include <sqlite3.h>

#include "base/error.h"
#include "base/memory.h"
#include "base/text.h"
#include "store/sqlite/connection.h"
#include "support/sqlite_world.h"

#define PREFIX "postroom"

static void end(void *world)
{
    if (world)
        sqlite_world_close(world);
    pr__free(world);
}

static pr_status open_store(void *user, const store_settings *settings, pr_store **ret_store,
                            pr_error *err)
{
    const sqlite_world *world = user;
    pr_sqlite_options options = PR_SQLITE_OPTIONS(.path = world->path);
    if (settings) {
        options.busy_ms = settings->busy_ms;
        options.body_size_max = settings->body_size_max;
        options.clock = settings->clock;
        options.observer = settings->observer;
    }
    return pr_sqlite_store_open(&options, ret_store, err);
}

static pr_status begin(const pr_migrate_options *opt, void **ret_world, pr_error *err)
{
    sqlite_world *world = pr__alloc(sizeof *world);
    if (!world)
        return pr__fail_nomem(err, "test");
    pr_status status = sqlite_world_make(world, err);
    if (status != PR_OK) {
        pr__free(world);
        return status;
    }
    status = sqlite_world_migrate(world, opt, err);
    if (status != PR_OK)
        end(world);
    else
        *ret_world = world;
    return status;
}

static pr_status ask(void *user, const char *sql, char *out, size_t size, pr_error *err)
{
    const sqlite_world *world = user;
    sqlite3 *db = NULL;
    sqlite3_stmt *stmt = NULL;
    AUTO(char) expanded = pr__sqlite_expand(sql, PREFIX);
    out[0] = '\0';
    int code =
        expanded ? sqlite3_open_v2(world->path, &db, SQLITE_OPEN_READWRITE, NULL) : SQLITE_NOMEM;
    if (code == SQLITE_OK)
        code = sqlite3_busy_timeout(db, 5000);
    if (code == SQLITE_OK)
        code = sqlite3_prepare_v2(db, expanded, -1, &stmt, NULL);
    if (code == SQLITE_OK)
        code = sqlite3_step(stmt);
    if (code == SQLITE_ROW) {
        const char *text = (const char *)sqlite3_column_text(stmt, 0);
        pr__format(out, size, "%s", text ? text : "");
    }
    if (code != SQLITE_ROW && code != SQLITE_DONE)
        (void)pr__fail(err, PR_E_BACKEND, "test", "%s", db ? sqlite3_errmsg(db) : "no memory");
    sqlite3_finalize(stmt);
    sqlite3_close(db);
    return code == SQLITE_ROW || code == SQLITE_DONE ? PR_OK : PR_E_BACKEND;
}

const store_provider sqlite_provider = {
    .name = "store on SQLite",
    .kind = "sqlite",
    .clock_given = true,
    .begin = begin,
    .open = open_store,
    .ask = ask,
    .end = end,
};
