/*
 * Opening a store while others enqueue: its checks read a database that changes between them.
 */
#include <pthread.h>
#include <stdatomic.h>

#include "support/sqlite_world.h"

#define OPENS 100

typedef struct producer {
    const char *path;
    atomic_bool stop;
    uint64_t enqueued;
    pr_error err;
} producer;

static pr_status enqueue_one(pr_store *store, pr_error *err)
{
    static const pr_message message = PR_MESSAGE(.type = "urn:message:test:placed");
    pr_unit *unit = NULL;
    pr_status status = pr_unit_begin(store, &unit, err);
    if (status == PR_OK)
        status = pr_unit_enqueue(unit, &message, NULL, err);
    if (status == PR_OK)
        status = pr_unit_commit(unit, NULL, err);
    pr_unit_free(unit);
    return status;
}

static void *enqueue_until_stopped(void *user)
{
    producer *p = user;
    pr_sqlite_options opt = PR_SQLITE_OPTIONS(.path = p->path);
    pr_store *store = NULL;
    if (pr_sqlite_store_open(&opt, &store, &p->err) != PR_OK)
        return NULL;
    while (!atomic_load(&p->stop) && enqueue_one(store, &p->err) == PR_OK)
        p->enqueued++;
    pr_store_free(store);
    return NULL;
}

static void test_open_beside_a_producer(void **state)
{
    (void)state;
    sqlite_world at;
    pr_error err = PR_ERROR_INIT;
    pthread_t thread;
    pr_store *store = sqlite_world_begin(&at, 0);
    producer p = {.path = at.path, .err = PR_ERROR_INIT};
    assert_int_equal(pthread_create(&thread, NULL, enqueue_until_stopped, &p), 0);
    pr_status status = PR_OK;
    for (int i = 0; i < OPENS && status == PR_OK; i++)
        status = pr_store_check(store, &err);
    atomic_store(&p.stop, true);
    pthread_join(thread, NULL);
    check_ok(status, &err, "check beside a producer");
    check_ok(p.err.status, &p.err, "the producer");
    assert_true(p.enqueued > 0);
    sqlite_world_end(&at, store);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_open_beside_a_producer)};
    return RUN_TESTS(tests);
}
