/*
 * The ledger suite on PostgreSQL.
 */
#include <stdlib.h>

#include <postroom/postgres.h>

#include "contract/ledger_provider.h"
#include "contract/postgres_world.h"
#include "port/store.h"

#define BODY_SIZE_MAX 4096

static pr_status begin(void **ret_world, pr_error *err)
{
    (void)err;
    postgres_world *world = postgres_world_new();
    postgres_world_stand_still(world);
    *ret_world = world;
    return PR_OK;
}

static void end(void *world)
{
    postgres_world_free(world);
}

static pr_status open_store(void *user, bool unchecked, pr_store **ret_store, pr_error *err)
{
    const postgres_world *world = user;
    pr_postgres_options opt =
        PR_POSTGRES_OPTIONS(.schema_check_off = unchecked, .conninfo = world->store_uri,
                            .statements_off = world->pooled, .body_size_max = BODY_SIZE_MAX);
    return pr_postgres_store_open(&opt, ret_store, err);
}

static void pass_ms(void *world, int64_t ms)
{
    postgres_world_pass(world, ms);
}

static bool raw(void *user, const char *sql, int64_t *ret_value)
{
    postgres_world *world = user;
    char *text = db_expand(sql, "postroom.");
    *ret_value = db_number(postgres_world_db(world), text);
    free(text);
    return true;
}

static void *host_open(void *user)
{
    const postgres_world *world = user;
    return db_open(world->uri);
}

static bool host_run(void *host, const char *sql)
{
    char state[6];
    return db_try(host, sql, state);
}

static pr_status host_join(void *host, pr_store *store, pr_unit **ret_unit, pr_error *err)
{
    return pr_postgres_unit_join(store, host, ret_unit, err);
}

static void host_close(void *host)
{
    PQfinish(host);
}

static bool unit_run(pr_unit *unit, const char *sql)
{
    return host_run(pr_postgres_unit_connection(unit), sql);
}

static int suite(void)
{
    const ledger_provider provider = {
        .name = "ledger on PostgreSQL",
        .kind = "postgres",
        .body_size_max = BODY_SIZE_MAX,
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

int main(void)
{
    return postgres_suite_run(suite);
}
