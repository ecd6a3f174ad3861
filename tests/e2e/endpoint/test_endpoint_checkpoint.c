/*
 * An endpoint alone on a SQLite store keeps its files in order.
 */
#include <sys/stat.h>

#include "e2e/endpoint/world.h"

#define ID_A "0198c5f2-7d3e-7a10-8b2c-00000000000a"
#define ID_B "0198c5f2-7d3e-7a10-8b2c-00000000000b"

/* A store with an endpoint and no relay: its log of writes is brought into the database. */
static void the_write_ahead_log_is_checkpointed(void **state)
{
    world *w = *state;
    struct stat before, after;
    world_start(w);
    world_send(w, ID_A, NULL, "{}");
    world_step_until(w, handled, 1);
    world_run(w, "PRAGMA wal_autocheckpoint = 0; CREATE TABLE ballast (b);"
                 "INSERT INTO ballast VALUES (randomblob(6 * 1024 * 1024))");
    assert_int_equal(stat(w->address, &before), 0);
    world_advance(w, 2000);
    world_send(w, ID_B, NULL, "{}");
    world_step_until(w, handled, 2);
    assert_int_equal(stat(w->address, &after), 0);
    assert_true(after.st_size >= before.st_size + 6 * 1024 * 1024);
}

static int suite(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(the_write_ahead_log_is_checkpointed, world_setup,
                                        world_teardown),
    };
    return RUN_TESTS(tests);
}

int main(void)
{
    return world_main(suite);
}
