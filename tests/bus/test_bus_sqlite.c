/*
 * The suites of endpoints and the bus on SQLite.
 */
#include <unistd.h>

#include <sqlite3.h>

#include <postroom/sqlite.h>

#include "bus/world.h"

static sqlite3 *eyes(const char *path)
{
    sqlite3 *db = NULL;
    if (sqlite3_open(path, &db) != SQLITE_OK)
        fail_msg("%s: %s", path, sqlite3_errmsg(db));
    sqlite3_busy_timeout(db, 10000);
    return db;
}

static void make(char ret_address[ADDRESS_MAX])
{
    const char *base = getenv("TMPDIR");
    char folder[ADDRESS_MAX - 16];
    (void)snprintf(folder, sizeof folder, "%.200s/bus-XXXXXX", base ? base : "/tmp");
    assert_non_null(mkdtemp(folder));
    (void)snprintf(ret_address, ADDRESS_MAX, "%s/bus.db", folder);
    pr_error err = PR_ERROR_INIT;
    pr_store *store = NULL;
    pr_sqlite_options opt =
        PR_SQLITE_OPTIONS(.create = true, .schema_check_off = true, .path = ret_address);
    check_ok(pr_sqlite_store_open(&opt, &store, &err), &err, "make");
    check_ok(pr_store_migrate(store, NULL, NULL, &err), &err, "migrate");
    pr_store_free(store);
    sqlite3 *db = eyes(ret_address);
    assert_int_equal(sqlite3_exec(db,
                                  "CREATE TABLE effects (n INTEGER PRIMARY KEY, id TEXT NOT NULL)",
                                  NULL, NULL, NULL),
                     SQLITE_OK);
    sqlite3_close(db);
}

static void remove_all(const char *path)
{
    char name[ADDRESS_MAX + 8];
    static const char *const ends[] = {"", "-wal", "-shm"};
    for (size_t i = 0; i < COUNT_OF(ends); i++) {
        (void)snprintf(name, sizeof name, "%s%s", path, ends[i]);
        unlink(name);
    }
    (void)snprintf(name, sizeof name, "%.*s", (int)(strrchr(path, '/') - path), path);
    if (rmdir(name) != 0)
        fail_msg("something was left in %s", name);
}

static pr_store *open_store(const char *path)
{
    pr_error err = PR_ERROR_INIT;
    pr_store *store = NULL;
    pr_sqlite_options opt =
        PR_SQLITE_OPTIONS(.path = path, .busy_ms = 2000, .clock = bus_clock_in_use);
    check_ok(pr_sqlite_store_open(&opt, &store, &err), &err, "open");
    return store;
}

static bool effect(pr_unit *unit, const char *id)
{
    sqlite3_stmt *stmt = NULL;
    sqlite3 *db = pr_sqlite_unit_connection(unit);
    if (sqlite3_prepare_v2(db, "INSERT INTO effects (id) VALUES (?1)", -1, &stmt, NULL) !=
        SQLITE_OK)
        return false;
    sqlite3_bind_text(stmt, 1, id, -1, SQLITE_TRANSIENT);
    int code = sqlite3_step(stmt);
    sqlite3_finalize(stmt);
    return code == SQLITE_DONE;
}

static bool run(pr_unit *unit, const char *sql)
{
    return sqlite3_exec(pr_sqlite_unit_connection(unit), sql, NULL, NULL, NULL) == SQLITE_OK;
}

static void close_connection(pr_unit *unit)
{
    sqlite3_close(pr_sqlite_unit_connection(unit)); /* refused by SQLite: statements are prepared */
}

static void expand(const char *sql, char *out, size_t size)
{
    static const char prefix[] = "postroom_";
    size_t used = 0;
    for (const char *at = sql; *at && used + sizeof prefix < size;) {
        bool mark = strncmp(at, "{p}_", 4) == 0;
        if (mark)
            memcpy(out + used, prefix, sizeof prefix);
        else
            out[used] = *at;
        used += mark ? sizeof prefix - 1 : 1;
        at += mark ? 4 : 1;
    }
    out[used] = '\0';
}

static void text(const char *path, const char *sql, char *out, size_t size)
{
    char expanded[2048];
    sqlite3_stmt *stmt = NULL;
    sqlite3 *db = eyes(path);
    expand(sql, expanded, sizeof expanded);
    if (sqlite3_prepare_v2(db, expanded, -1, &stmt, NULL) != SQLITE_OK)
        fail_msg("%s: %s", expanded, sqlite3_errmsg(db));
    out[0] = '\0';
    if (sqlite3_step(stmt) == SQLITE_ROW && sqlite3_column_text(stmt, 0))
        (void)snprintf(out, size, "%s", (const char *)sqlite3_column_text(stmt, 0));
    sqlite3_finalize(stmt);
    sqlite3_close(db);
}

static int64_t number(const char *path, const char *sql)
{
    char out[64];
    text(path, sql, out, sizeof out);
    return strtoll(out, NULL, 10);
}

static const bus_provider provider = {.name = "sqlite",
                                      .make = make,
                                      .remove = remove_all,
                                      .open = open_store,
                                      .opener = pr_sqlite_open,
                                      .effect = effect,
                                      .run = run,
                                      .close = close_connection,
                                      .number = number,
                                      .text = text};

int main(int argc, char **argv)
{
    if (argc == 6 && strcmp(argv[1], "--child") == 0)
        return bus_child_run(&provider, argv);
    return bus_suites_run(&provider);
}
