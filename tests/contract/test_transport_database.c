/*
 * The transport suite on the database transport over SQLite.
 */
#include <postroom/database.h>

#include "base/error.h"
#include "contract/transport_provider.h"
#include "support/sqlite_world.h"

#define BODY_SIZE_MAX (256 * 1024)

typedef struct world {
    sqlite_world files;
    pr_store *store;
} world;

static void end(void *world_of)
{
    world *at = world_of;
    pr_store_free(at->store);
    sqlite_world_close(&at->files);
    free(at);
}

static pr_status begin(void **ret_world, pr_error *err)
{
    world *at = calloc(1, sizeof(*at));
    if (!at)
        return pr__fail_nomem(err, "provider");
    pr_status status = sqlite_world_open(&at->files, err);
    if (status == PR_OK)
        status = sqlite_world_store(&at->files, 0, BODY_SIZE_MAX, &at->store, err);
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
    (void)err;
    world *at = world_of;
    *ret_count = (size_t)sqlite_world_number(
        &at->files,
        "SELECT count(*) FROM postroom_outbox_parked AS p JOIN postroom_subscription AS s ON "
        "s.reader = p.reader WHERE s.name = ?1 AND p.state = 'dead'",
        endpoint);
    return PR_OK;
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
