/*
 * All suites of endpoints and the bus on one store; with a broker as carrier those of the bus.
 */
#include "bus/rabbitmq.h"
#include "bus/world.h"

#define CASES_MAX 256

int bus_suites_run(const bus_provider *provider)
{
    static const struct {
        size_t (*cases)(const struct CMUnitTest **ret_tests);
        bool carried; /* the others ask nothing of a transport that memory does not show */
    } suites[] = {{middleware_suite, false}, {leased_suite, false}, {scope_suite, false},
                  {workers_suite, false},    {batch_suite, false},  {batch_marks_suite, false},
                  {bus_suite, true},         {idle_suite, false},   {life_suite, true},
                  {order_suite, true},       {process_suite, true}, {kill_suite, true},
                  {strain_suite, true},      {outage_suite, true}};
    static struct CMUnitTest all[CASES_MAX];
    size_t count = 0;
    const char *only = getenv("POSTROOM_TEST_ONLY"); /* for whoever looks for a fault */
    bus_provider_in_use = provider;
    bus_carrier_in_use = rabbitmq_carrier_start();
    for (size_t i = 0; i < COUNT_OF(suites); i++) {
        const struct CMUnitTest *tests = NULL;
        if (bus_carrier_in_use && !suites[i].carried)
            continue;
        size_t number = suites[i].cases(&tests);
        for (size_t n = 0; n < number; n++) {
            if (only && !strstr(tests[n].name, only))
                continue;
            if (count == CASES_MAX) {
                fprintf(stderr, "bus: over %d cases: raise CASES_MAX\n", CASES_MAX);
                return 1; /* none is left out in silence */
            }
            all[count++] = tests[n];
        }
    }
    cmocka_set_message_output(CM_OUTPUT_TAP);
    int failed = _cmocka_run_group_tests("bus", all, count, NULL, NULL);
    rabbitmq_carrier_stop();
    return failed;
}
