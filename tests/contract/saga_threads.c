/*
 * One runtime of a saga, used by all workers of an endpoint at once.
 */
#include <pthread.h>

#include "base/text.h"
#include "base/time.h"
#include "contract/saga_cases.h"
#include "contract/saga_world.h"

#define EVENTS      60
#define KEYS        3
#define DEADLINE_US INT64_C(120000000)

static void *run(void *user)
{
    tally_worker *worker = user;
    pr_status ignored = pr_endpoint_run(worker->endpoint, NULL);
    (void)ignored;
    return NULL;
}

static void wait_for_steps(tally_worker *worker, uint64_t wanted)
{
    int64_t until_us = pr__monotonic_us() + DEADLINE_US;
    while (tally_counters(worker).stepped < wanted) {
        if (pr__monotonic_us() > until_us)
            fail_msg("only %llu steps", (unsigned long long)tally_counters(worker).stepped);
        pr__sleep_us(2000);
    }
}

void case_the_workers_of_an_endpoint_share_a_runtime(void **state)
{
    store_fixture *fix = *state;
    tally_worker worker;
    pthread_t thread;
    tally_subscribe(fix);
    for (int i = 0; i < EVENTS; i++) {
        char key[8];
        pr__format(key, sizeof key, "k%d", i % KEYS);
        tally_send_loose(fix, NULL, TALLY_OPENED, key, 1);
    }
    tally_open(fix, NULL, &worker);
    assert_int_equal(pthread_create(&thread, NULL, run, &worker), 0);
    wait_for_steps(&worker, EVENTS);
    pr_endpoint_stop(worker.endpoint);
    assert_int_equal(pthread_join(thread, NULL), 0);
    for (int i = 0; i < KEYS; i++) {
        char key[8];
        pr__format(key, sizeof key, "k%d", i);
        tally_row row = tally_read(fix, key);
        assert_int_equal(row.state.sum, EVENTS / KEYS);
        assert_int_equal(row.version, EVENTS / KEYS);
    }
    assert_int_equal(tally_number(fix, TOLD_SQL), EVENTS);
    assert_int_equal(tally_number(fix, DEAD_SQL), 0);
    tally_close(&worker);
}

int saga_threads_run(const store_provider *provider)
{
    const store_provider *shared = provider; /* cmocka hands on a pointer that is not const */
    const struct CMUnitTest tests[] = {{"the_workers_of_an_endpoint_share_a_runtime",
                                        case_the_workers_of_an_endpoint_share_a_runtime, saga_setup,
                                        store_teardown, &shared}};
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests_name(provider->name, tests, NULL, NULL);
}
