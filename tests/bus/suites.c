/*
 * All suites of endpoints and the bus on one store; with a broker as carrier those of the bus.
 */
#include "bus/rabbitmq.h"
#include "bus/world.h"

#define CASES_MAX 128

int bus_suites_run(const bus_provider *provider)
{
    static size_t (*const suites[])(const struct CMUnitTest **) = {
        middleware_suite, leased_suite, scope_suite, workers_suite, batch_suite,
        bus_suite,        idle_suite,   life_suite,  order_suite,   process_suite};
    static struct CMUnitTest all[CASES_MAX];
    size_t count = 0;
    const char *only = getenv("POSTROOM_TEST_ONLY"); /* for whoever looks for a fault */
    bus_provider_in_use = provider;
    bus_carrier_in_use = rabbitmq_carrier_start();
    for (size_t i = 0; i < COUNT_OF(suites); i++) {
        const struct CMUnitTest *tests = NULL;
        if (bus_carrier_in_use && suites[i] != bus_suite && suites[i] != order_suite &&
            suites[i] != life_suite)
            continue; /* the others ask nothing of a transport that memory does not show */
        size_t number = suites[i](&tests);
        for (size_t n = 0; n < number && count < CASES_MAX; n++) {
            if (!only || strstr(tests[n].name, only))
                all[count++] = tests[n];
        }
    }
    cmocka_set_message_output(CM_OUTPUT_TAP);
    int failed = _cmocka_run_group_tests("bus", all, count, NULL, NULL);
    rabbitmq_carrier_stop();
    return failed;
}
