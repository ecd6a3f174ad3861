/*
 * The transport suite on the database transport over PostgreSQL.
 */
#include <stdlib.h>

#include <postroom/database.h>

#include "contract/postgres_world.h"
#include "contract/transport_provider.h"

#define BODY_SIZE_MAX (256 * 1024)

typedef struct world {
    postgres_world *database;
    pr_store *store;
} world;

static void end(void *user)
{
    world *at = user;
    pr_store_free(at->store);
    postgres_provider.end(at->database);
    free(at);
}

static pr_status begin(void **ret_world, pr_error *err)
{
    world *at = calloc(1, sizeof *at);
    void *database = NULL;
    const store_settings settings = {.body_size_max = BODY_SIZE_MAX};
    assert_non_null(at);
    pr_status status = postgres_provider.begin(NULL, &database, err);
    at->database = database;
    if (status == PR_OK)
        status = postgres_provider.open(database, &settings, &at->store, err);
    if (status != PR_OK) {
        end(at);
        return status;
    }
    *ret_world = at;
    return PR_OK;
}

static pr_status connect_to(void *user, uint32_t window, pr_transport **ret_transport,
                            pr_error *err)
{
    world *at = user;
    pr_database_options options = {.size = (uint32_t)sizeof options, .window = window};
    return pr_database_transport_new(at->store, &options, ret_transport, err);
}

/* By plain SQL, so that the suite does not believe the store's own words. */
static pr_status dead_count(void *user, const char *endpoint, size_t *ret_count, pr_error *err)
{
    world *at = user;
    char sql[320];
    (void)err;
    snprintf(sql, sizeof sql,
             "SELECT count(*) FROM postroom.outbox_parked AS p JOIN postroom.subscription AS s "
             "USING (reader) WHERE s.name = '%s' AND p.state = 'dead'",
             endpoint);
    *ret_count = (size_t)db_number(postgres_world_db(at->database), sql);
    return PR_OK;
}

static int suite(void)
{
    const transport_provider provider = {
        .name = "transport on a PostgreSQL database",
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

int main(void)
{
    return postgres_suite_run(suite);
}
