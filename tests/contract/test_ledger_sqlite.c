/*
 * The ledger suite on SQLite: a file in a folder of its own for each case, and a clock of ours.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <sqlite3.h>

#include <postroom/sqlite.h>

#include "contract/ledger_provider.h"
#include "port/store.h"

typedef struct world {
    char folder[64];
    char path[96];
    int64_t now_us;
    pr_clock clock;
    sqlite3 *db; /* other hands */
} world;

static int64_t wall_us(void *user)
{
    const world *w = user;
    return w->now_us;
}

static int64_t monotonic_us(void *user)
{
    const world *w = user;
    return w->now_us;
}

static void end(void *user)
{
    world *w = user;
    static const char *const ends[] = {"", "-wal", "-shm", "-journal"};
    sqlite3_close(w->db);
    for (size_t i = 0; i < sizeof ends / sizeof ends[0]; i++) {
        char path[128];
        snprintf(path, sizeof path, "%s%s", w->path, ends[i]);
        unlink(path);
    }
    rmdir(w->folder);
    free(w);
}

static pr_status begin(void **ret_world, pr_error *err)
{
    (void)err;
    world *w = calloc(1, sizeof *w);
    if (!w)
        return PR_E_NOMEM;
    const char *base = getenv("TMPDIR");
    snprintf(w->folder, sizeof w->folder, "%.40s/storeXXXXXX", base ? base : "/tmp");
    if (!mkdtemp(w->folder)) {
        free(w);
        return PR_E_BACKEND;
    }
    snprintf(w->path, sizeof w->path, "%s/suite.db", w->folder);
    w->now_us = 1700000000000000;
    w->clock = (pr_clock){(uint32_t)sizeof(pr_clock), wall_us, monotonic_us, w};
    *ret_world = w;
    return PR_OK;
}

static pr_status open_store(void *user, bool unchecked, pr_store **ret_store, pr_error *err)
{
    world *w = user;
    pr_sqlite_options opt =
        PR_SQLITE_OPTIONS(.create = true, .schema_check_off = unchecked, .path = w->path,
                          .body_size_max = 4096, .clock = &w->clock);
    return pr_sqlite_store_open(&opt, ret_store, err);
}

static void pass_ms(void *user, int64_t ms)
{
    world *w = user;
    w->now_us += ms * 1000;
}

static void expand(char *out, size_t size, const char *sql)
{
    size_t used = 0;
    while (*sql && used + 10 < size) {
        if (strncmp(sql, "{t}", 3) == 0) {
            memcpy(out + used, "postroom_", 9);
            used += 9;
            sql += 3;
        } else {
            out[used++] = *sql++;
        }
    }
    out[used] = '\0';
}

static bool raw(void *user, const char *sql, int64_t *ret_value)
{
    world *w = user;
    char text[2048];
    sqlite3_stmt *stmt = NULL;
    if (!w->db && sqlite3_open(w->path, &w->db) != SQLITE_OK)
        return false;
    expand(text, sizeof text, sql);
    int code = sqlite3_prepare_v2(w->db, text, -1, &stmt, NULL);
    if (code == SQLITE_OK)
        code = sqlite3_step(stmt);
    *ret_value = code == SQLITE_ROW ? sqlite3_column_int64(stmt, 0) : -1;
    while (code == SQLITE_ROW)
        code = sqlite3_step(stmt);
    if (code != SQLITE_DONE)
        fprintf(stderr, "# %s: %s\n", text, sqlite3_errmsg(w->db));
    sqlite3_finalize(stmt);
    return code == SQLITE_DONE;
}

static void *host_open(void *user)
{
    const world *w = user;
    sqlite3 *db = NULL;
    return sqlite3_open(w->path, &db) == SQLITE_OK ? db : NULL;
}

static bool host_run(void *host, const char *sql)
{
    return sqlite3_exec(host, sql, NULL, NULL, NULL) == SQLITE_OK;
}

static pr_status host_join(void *host, pr_store *store, pr_unit **ret_unit, pr_error *err)
{
    return pr_sqlite_unit_join(store, host, ret_unit, err);
}

static void host_close(void *host)
{
    sqlite3_close(host);
}

static bool unit_run(pr_unit *unit, const char *sql)
{
    return sqlite3_exec(pr_sqlite_unit_connection(unit), sql, NULL, NULL, NULL) == SQLITE_OK;
}

int main(void)
{
    const ledger_provider provider = {
        .name = "ledger on SQLite",
        .kind = "sqlite",
        .body_size_max = 4096,
        .begin = begin,
        .open = open_store,
        .pass_ms = pass_ms,
        .raw = raw,
        .host_open = host_open,
        .host_run = host_run,
        .host_join = host_join,
        .host_close = host_close,
        .unit_run = unit_run,
        .end = end,
    };
    return ledger_contract_run(&provider);
}
