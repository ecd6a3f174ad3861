/*
 * The world of the endpoint tests on SQLite: a file in a folder of its own.
 */
#include <stdlib.h>
#include <sqlite3.h>
#include <unistd.h>

#include <postroom/sqlite.h>

#include "e2e/endpoint/world.h"

#define FOLDER_SIZE 64

static int run(int (*suite)(void))
{
    return suite();
}

static void make(world *w)
{
    const char *base = getenv("TMPDIR");
    char *folder = calloc(1, FOLDER_SIZE);
    assert_non_null(folder);
    (void)snprintf(folder, FOLDER_SIZE, "%.30s/endpoint-XXXXXX", base ? base : "/tmp");
    assert_non_null(mkdtemp(folder));
    (void)snprintf(w->address, sizeof w->address, "%s/billing.db", folder);
    w->place = folder;
}

static void done(world *w)
{
    char command[FOLDER_SIZE + 16];
    (void)snprintf(command, sizeof command, "rm -rf '%s'", (const char *)w->place);
    assert_int_equal(system(command), 0);
    free(w->place);
}

/* A pragma of the store's own connection, which no transaction may stand open on. */
static void set_pragma(world *w, const char *sql)
{
    pr_unit *unit = NULL;
    pr_error err = PR_ERROR_INIT;
    check_ok(pr_unit_begin(w->store, &unit, &err), &err, "begin");
    sqlite3 *own = pr_sqlite_unit_connection(unit);
    pr_unit_free(unit);
    assert_int_equal(sqlite3_exec(own, sql, NULL, NULL, NULL), SQLITE_OK);
}

static void enforce_keys(world *w)
{
    set_pragma(w, "PRAGMA foreign_keys = ON");
}

static void set_full(world *w, bool full)
{
    char sql[64];
    (void)snprintf(sql, sizeof sql, "PRAGMA max_page_count = %d",
                   full ? (int)world_number(w, "PRAGMA page_count") + 3 : 100000);
    set_pragma(w, sql);
}

const world_provider world_provided = {
    .kind = "sqlite",
    .begin = "BEGIN IMMEDIATE",
    .run = run,
    .make = make,
    .done = done,
    .set_full = set_full,
    .enforce_keys = enforce_keys,
};
