/*
 * The ledger suite on SQLite: a file in a folder of its own for each case, and a clock of ours.
 */
#include "contract/ledger_provider.h"
#include "port/store.h"
#include "support/sqlite_world.h"

typedef struct world {
    sqlite_world files;
    int64_t now_us;
    pr_clock clock;
    sqlite3 *db; /* other hands */
} world;

static int64_t now_us(void *user)
{
    const world *w = user;
    return w->now_us;
}

static void end(void *user)
{
    world *w = user;
    sqlite3_close(w->db);
    sqlite_world_close(&w->files);
    free(w);
}

static pr_status begin(void **ret_world, pr_error *err)
{
    world *w = calloc(1, sizeof *w);
    assert_non_null(w);
    pr_status status = sqlite_world_make(&w->files, err);
    if (status != PR_OK) {
        free(w);
        return status;
    }
    w->now_us = 1700000000000000;
    w->clock = (pr_clock){(uint32_t)sizeof(pr_clock), now_us, now_us, w};
    *ret_world = w;
    return PR_OK;
}

static pr_status open_store(void *user, bool unchecked, pr_store **ret_store, pr_error *err)
{
    world *w = user;
    pr_sqlite_options opt =
        PR_SQLITE_OPTIONS(.create = true, .schema_check_off = unchecked, .path = w->files.path,
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
    if (!w->db && sqlite3_open(w->files.path, &w->db) != SQLITE_OK)
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
    return sqlite3_open(w->files.path, &db) == SQLITE_OK ? db : NULL;
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
