/*
 * The conformance suite of the transport port: compiled once, run against every transport.
 */
#include "contract/transport_cases.h"
#include "contract/transport_fixture.h"

int transport_contract_run(const transport_provider *provider)
{
    const transport_provider *shared = provider; /* cmocka hands on a pointer that is not const */
#define TRANSPORT_CASE_ENTRY(name) {#name, case_##name, fixture_setup, fixture_teardown, &shared},
    const struct CMUnitTest tests[] = {TRANSPORT_CASES(TRANSPORT_CASE_ENTRY)};
#undef TRANSPORT_CASE_ENTRY
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests_name(provider->name, tests, NULL, NULL);
}
