/*
 * The world of the endpoint tests on PostgreSQL: a database of its own for each case, on the
 * program's server. The store goes by the clock of the database, which the test moves with its own.
 */
#include "contract/postgres_world.h"
#include "e2e/endpoint/world.h"

static void make(world *w)
{
    postgres_world *place = postgres_world_new();
    (void)snprintf(w->address, sizeof w->address, "%s", place->uri);
    w->place = place;
}

static void done(world *w)
{
    postgres_world_free(w->place);
}

static void pass(world *w, int64_t ms)
{
    postgres_world_pass(w->place, ms);
}

/* The server has as little room as a test that says so: what it answers then is SQLSTATE 53100. */
static void set_full(world *w, bool full)
{
    world_run(w, full ? "CREATE FUNCTION no_room() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
                        "RAISE EXCEPTION 'could not extend file: No space left on device' "
                        "USING ERRCODE = '53100'; END $$;"
                        "CREATE TRIGGER full_1 BEFORE INSERT ON effects EXECUTE FUNCTION "
                        "no_room();"
                        "CREATE TRIGGER full_2 BEFORE INSERT ON postroom_inbox_parked EXECUTE "
                        "FUNCTION no_room()"
                      : "DROP FUNCTION no_room() CASCADE");
}

const world_provider world_provided = {
    .kind = "postgres",
    .begin = "BEGIN",
    .lock = "LOCK TABLE postroom_inbox, postroom_inbox_parked IN EXCLUSIVE MODE",
    .run = postgres_suite_run,
    .make = make,
    .done = done,
    .pass = pass,
    .set_full = set_full,
};
