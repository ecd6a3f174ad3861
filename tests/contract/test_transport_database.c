/*
 * The transport suite on the database transport over SQLite.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <sqlite3.h>

#include <postroom/database.h>
#include <postroom/sqlite.h>

#include "base/error.h"
#include "contract/transport_provider.h"

#define BODY_SIZE_MAX (256 * 1024)

typedef struct world {
    char folder[256];
    char path[300];
    pr_store *store;
} world;

static void end(void *world_of)
{
    static const char *const suffixes[] = {"", "-wal", "-shm"};
    world *at = world_of;
    char path[320];
    pr_store_free(at->store);
    for (size_t i = 0; i < 3; i++) {
        snprintf(path, sizeof(path), "%s%s", at->path, suffixes[i]);
        unlink(path);
    }
    rmdir(at->folder);
    free(at);
}

static pr_status begin(void **ret_world, pr_error *err)
{
    const char *tmp = getenv("TMPDIR");
    world *at = calloc(1, sizeof(*at));
    if (!at)
        return pr__fail_nomem(err, "provider");
    snprintf(at->folder, sizeof(at->folder), "%s/postroom-transport-XXXXXX", tmp ? tmp : "/tmp");
    if (!mkdtemp(at->folder)) {
        free(at);
        return pr__fail(err, PR_E_BACKEND, "provider", "mkdtemp: %s", strerror(errno));
    }
    snprintf(at->path, sizeof(at->path), "%s/shop.db", at->folder);
    pr_sqlite_options options = PR_SQLITE_OPTIONS(.create = true, .schema_check_off = true,
                                                  .path = at->path, .body_size_max = BODY_SIZE_MAX);
    pr_status status = pr_sqlite_store_open(&options, &at->store, err);
    if (status == PR_OK)
        status = pr_store_migrate(at->store, NULL, NULL, err);
    if (status != PR_OK) {
        end(at);
        return status;
    }
    *ret_world = at;
    return PR_OK;
}

static pr_status connect_to(void *world_of, uint32_t window, pr_transport **ret_transport,
                            pr_error *err)
{
    world *at = world_of;
    pr_database_options options = {.size = (uint32_t)sizeof(options), .window = window};
    return pr_database_transport_new(at->store, &options, ret_transport, err);
}

/* By plain SQL, so that the suite does not believe the store's own words. */
static pr_status dead_count(void *world_of, const char *endpoint, size_t *ret_count, pr_error *err)
{
    world *at = world_of;
    sqlite3 *db = NULL;
    sqlite3_stmt *stmt = NULL;
    int code = sqlite3_open_v2(at->path, &db, SQLITE_OPEN_READONLY, NULL);
    if (code == SQLITE_OK)
        code = sqlite3_prepare_v2(db,
                                  "SELECT count(*) FROM postroom_outbox_parked AS p JOIN "
                                  "postroom_subscription AS s ON s.reader = p.reader WHERE "
                                  "s.name = ?1 AND p.state = 'dead'",
                                  -1, &stmt, NULL);
    if (code == SQLITE_OK)
        code = sqlite3_bind_text(stmt, 1, endpoint, -1, SQLITE_STATIC);
    if (code == SQLITE_OK)
        code = sqlite3_step(stmt);
    if (code == SQLITE_ROW)
        *ret_count = (size_t)sqlite3_column_int64(stmt, 0);
    pr_status status = code == SQLITE_ROW
                           ? PR_OK
                           : pr__fail(err, PR_E_BACKEND, "provider", "%s", sqlite3_errmsg(db));
    sqlite3_finalize(stmt);
    sqlite3_close(db);
    return status;
}

int main(void)
{
    const transport_provider provider = {
        .name = "transport on a SQLite database",
        .scheme = "database",
        .address = "database",
        .ordered = true,
        .body_size_max = BODY_SIZE_MAX,
        .lease_ms = 700,
        .patience_ms = 20000,
        .begin = begin,
        .connect = connect_to,
        .vanish = NULL, /* its lease runs out */
        .dead_count = dead_count,
        .end = end,
    };
    return transport_contract_run(&provider);
}
