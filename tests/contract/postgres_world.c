/*
 * The PostgreSQL store as a provider of the store suites.
 *
 * The store goes by the clock of the database, which is the test's own there: see
 * support/postgres_db.c.
 */
#include "contract/postgres_world.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <postroom/postgres.h>

#include "base/error.h"
#include "support/postgres_pooler.h"

#define QUALIFIER     "postroom."

#define POOL_SESSIONS 3 /* fewer than there are clients, so that they change places */

static postgres_databases databases = {.compatible = true};
static postgres_pooler *pooler;

static const postgres_server_options hostile = {
    .locale = "de_DE",
    .settings =
        {
            "default_transaction_isolation='serializable'",
            "default_transaction_deferrable=on",
            "timezone='Pacific/Chatham'",
            "DateStyle='SQL, DMY'",
            "IntervalStyle='sql_standard'",
            "bytea_output='escape'",
            "standard_conforming_strings=off",
            "backslash_quote=on",
            "escape_string_warning=off",
            "extra_float_digits=-15",
            "search_path='evil, pg_catalog, public'",
            "transform_null_equals=on",
            "plan_cache_mode='force_generic_plan'",
        },
};

static bool mode_is(const char *wanted)
{
    const char *mode = getenv("POSTROOM_POSTGRES_MODE");
    return mode && strcmp(mode, wanted) == 0;
}

int postgres_suite_run(int (*suite)(void))
{
    databases.hostile = mode_is("hostile");
    databases.server = postgres_server_start(databases.hostile ? &hostile : NULL);
    if (mode_is("pooled"))
        pooler = postgres_pooler_start(databases.server, POOL_SESSIONS);
    int failed = suite();
    postgres_pooler_free(pooler);
    postgres_server_free(databases.server);
    return failed;
}

postgres_world *postgres_world_new(void)
{
    postgres_world *world = calloc(1, sizeof *world);
    assert_non_null(world);
    postgres_database_make(&databases, world->uri);
    snprintf(world->store_uri, sizeof world->store_uri, "%s", world->uri);
    world->pooled = pooler != NULL;
    if (pooler) {
        char name[64];
        snprintf(name, sizeof name, "%.*s", (int)strcspn(world->uri + 14, "?"), world->uri + 14);
        postgres_folder_uri(postgres_pooler_folder(pooler), name, world->store_uri);
    }
    return world;
}

PGconn *postgres_world_db(postgres_world *world)
{
    if (!world->db)
        world->db = db_open(world->uri);
    return world->db;
}

void postgres_world_free(postgres_world *world)
{
    if (!world)
        return;
    PQfinish(world->db);
    free(world);
}

void postgres_world_pass(postgres_world *world, int64_t ms)
{
    char sql[120];
    snprintf(sql, sizeof sql, "UPDATE public.test_clock SET moved = moved + interval '%lld ms'",
             (long long)ms);
    db_run(postgres_world_db(world), sql);
}

void postgres_world_stand_still(postgres_world *world)
{
    db_run(postgres_world_db(world),
           "UPDATE public.test_clock SET still_at = pg_catalog.true_clock_timestamp()");
}

static void end(void *user)
{
    postgres_world_free(user);
}

static pr_status open_store(void *user, const store_settings *settings, pr_store **ret_store,
                            pr_error *err)
{
    const postgres_world *world = user;
    pr_postgres_options options =
        PR_POSTGRES_OPTIONS(.conninfo = world->store_uri, .statements_off = world->pooled);
    if (settings) {
        options.busy_ms = settings->busy_ms;
        options.body_size_max = settings->body_size_max;
        options.clock = settings->clock;
        options.observer = settings->observer;
    }
    return pr_postgres_store_open(&options, ret_store, err);
}

static pr_status begin(const pr_migrate_options *opt, void **ret_world, pr_error *err)
{
    postgres_world *world = postgres_world_new();
    pr_postgres_options options =
        PR_POSTGRES_OPTIONS(.conninfo = world->store_uri, .schema_check_off = true,
                            .statements_off = world->pooled);
    pr_store *store = NULL;
    pr_status status = pr_postgres_store_open(&options, &store, err);
    if (status == PR_OK)
        status = pr_store_migrate(store, opt, NULL, err);
    pr_store_free(store);
    if (status != PR_OK)
        postgres_world_free(world);
    else
        *ret_world = world;
    return status;
}

static pr_status ask(void *user, const char *sql, char *out, size_t size, pr_error *err)
{
    postgres_world *world = user;
    char *expanded = db_expand(sql, QUALIFIER);
    (void)err;
    db_text(postgres_world_db(world), expanded, out, size);
    free(expanded);
    return PR_OK;
}

static void pass(void *user, int64_t ms)
{
    postgres_world_pass(user, ms);
}

const store_provider postgres_provider = {
    .name = "store on PostgreSQL",
    .kind = "postgres",
    .clock_given = false,
    .text_checked = true,
    .begin = begin,
    .open = open_store,
    .pass_ms = pass,
    .ask = ask,
    .end = end,
};
