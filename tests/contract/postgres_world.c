/*
 * The PostgreSQL store as a provider of the store suites.
 *
 * The store goes by the clock of the database, which nobody can move; so time passes by making
 * everything that stands older, which is the same.
 */
#include "contract/postgres_world.h"

#include <stdio.h>
#include <stdlib.h>

#include <postroom/postgres.h>

#include "base/error.h"

#define QUALIFIER "postroom."

static postgres_databases databases = {.compatible = true};

int postgres_suite_run(int (*suite)(void))
{
    databases.server = postgres_server_start(NULL);
    int failed = suite();
    postgres_server_free(databases.server);
    return failed;
}

postgres_world *postgres_world_new(void)
{
    postgres_world *world = calloc(1, sizeof *world);
    assert_non_null(world);
    postgres_database_make(&databases, world->uri);
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
    char sql[1200];
    snprintf(sql, sizeof sql,
             "DO $$ DECLARE one record; BEGIN SET LOCAL lock_timeout = '5s'; FOR one IN "
             "SELECT c.table_name, string_agg(format('%%1$I = %%1$I - interval ''%lld ms''', "
             "column_name), ', ') AS sets FROM information_schema.columns AS c JOIN "
             "information_schema.tables AS t USING (table_schema, table_name) WHERE table_schema = "
             "'postroom' AND table_type = 'BASE TABLE' AND data_type LIKE 'timestamp%%' AND "
             "column_name <> 'occurred_at' GROUP BY c.table_name LOOP "
             "EXECUTE format('UPDATE postroom.%%I SET %%s', one.table_name, one.sets); END LOOP; "
             "END $$",
             (long long)ms);
    db_run(postgres_world_db(world), sql);
}

static void end(void *user)
{
    postgres_world_free(user);
}

static pr_status open_store(void *user, const store_settings *settings, pr_store **ret_store,
                            pr_error *err)
{
    const postgres_world *world = user;
    pr_postgres_options options = PR_POSTGRES_OPTIONS(.conninfo = world->uri);
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
        PR_POSTGRES_OPTIONS(.conninfo = world->uri, .schema_check_off = true);
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
    .begin = begin,
    .open = open_store,
    .pass_ms = pass,
    .ask = ask,
    .end = end,
};
