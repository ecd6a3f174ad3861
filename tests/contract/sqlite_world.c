/*
 * The SQLite store as a provider of the store suites: a database file in a folder of its own.
 */
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <sqlite3.h>

#include <postroom/sqlite.h>

#include "base/error.h"
#include "base/memory.h"
#include "base/text.h"
#include "contract/sqlite_world.h"
#include "store/sqlite/connection.h"

#define PREFIX "postroom"

typedef struct database {
    char folder[256];
    char path[300];
} database;

static int drop_entry(const char *path, const struct stat *info, int type, struct FTW *place)
{
    (void)info, (void)type, (void)place;
    return remove(path);
}

static void end(void *user)
{
    database *world = user;
    if (world)
        (void)nftw(world->folder, drop_entry, 8, FTW_DEPTH | FTW_PHYS);
    pr__free(world);
}

static pr_status open_store(void *user, const store_settings *settings, pr_store **ret_store,
                            pr_error *err)
{
    const database *world = user;
    pr_sqlite_options options = PR_SQLITE_OPTIONS(.path = world->path);
    if (settings) {
        options.busy_ms = settings->busy_ms;
        options.body_size_max = settings->body_size_max;
        options.clock = settings->clock;
        options.observer = settings->observer;
    }
    return pr_sqlite_store_open(&options, ret_store, err);
}

static pr_status migrate(const database *world, const pr_migrate_options *opt, pr_error *err)
{
    pr_sqlite_options options =
        PR_SQLITE_OPTIONS(.path = world->path, .create = true, .schema_check_off = true);
    pr_store *store = NULL;
    TRY(pr_sqlite_store_open(&options, &store, err));
    pr_status status = pr_store_migrate(store, opt, NULL, err);
    pr_store_free(store);
    return status;
}

static pr_status begin(const pr_migrate_options *opt, void **ret_world, pr_error *err)
{
    const char *root = getenv("TMPDIR");
    database *world = pr__alloc(sizeof *world);
    if (!world)
        return pr__fail_nomem(err, "test");
    pr__format(world->folder, sizeof world->folder, "%s/postroom-store-XXXXXX",
               root && *root ? root : "/tmp");
    if (!mkdtemp(world->folder)) {
        pr__free(world);
        return pr__fail(err, PR_E_BACKEND, "test", "no folder could be made");
    }
    pr__format(world->path, sizeof world->path, "%s/store.db", world->folder);
    pr_status status = migrate(world, opt, err);
    if (status != PR_OK)
        end(world);
    else
        *ret_world = world;
    return status;
}

static pr_status ask(void *user, const char *sql, char *out, size_t size, pr_error *err)
{
    const database *world = user;
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
