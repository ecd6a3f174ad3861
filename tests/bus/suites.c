/*
 * All suites of endpoints and the bus on one store.
 */
#include "bus/world.h"

#define CASES_MAX 128

int bus_suites_run(const bus_provider *provider)
{
    static size_t (*const suites[])(const struct CMUnitTest **) = {
        middleware_suite, leased_suite, scope_suite, workers_suite, bus_suite, process_suite};
    static struct CMUnitTest all[CASES_MAX];
    size_t count = 0;
    const char *only = getenv("POSTROOM_TEST_ONLY"); /* for whoever looks for a fault */
    bus_provider_in_use = provider;
    for (size_t i = 0; i < COUNT_OF(suites); i++) {
        const struct CMUnitTest *tests = NULL;
        size_t number = suites[i](&tests);
        for (size_t n = 0; n < number && count < CASES_MAX; n++) {
            if (!only || strstr(tests[n].name, only))
                all[count++] = tests[n];
        }
    }
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return _cmocka_run_group_tests("bus", all, count, NULL, NULL);
}
