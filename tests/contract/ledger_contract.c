/*
 * The contract suite of the ledger (the store port less inbox and operations): compiled once, run
 * against every store.
 */
#include "contract/ledger_cases.h"

/* The guard: a suite that ran against another store than the provider says would prove nothing. */
static void case_guard(void **state)
{
    fixture *fix = *state;
    pr_store *store = store_at(fix, 0);
    assert_string_equal(store->ops->name, fix->provider->kind);
    assert_true(store->body_size_max == fix->provider->body_size_max);
    post(fix, TO_BROKER, NULL);
    assert_int_equal(rows(fix, "outbox"), 1); /* other hands see this very database */
}

#define setup_     fixture_setup
#define setup_lane fixture_setup_lane
#define setup_bare fixture_setup_bare

int ledger_contract_run(const ledger_provider *provider)
{
    const ledger_provider *shared = provider; /* cmocka hands on a pointer that is not const */
#define LEDGER_CASE_ENTRY(name, setup)                                                             \
    {#name, case_##name, setup_##setup, fixture_teardown, &shared},
    const struct CMUnitTest tests[] = {
        {"guard", case_guard, fixture_setup, fixture_teardown, &shared},
        LEDGER_CASES(LEDGER_CASE_ENTRY)};
#undef LEDGER_CASE_ENTRY
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests_name(provider->name, tests, NULL, NULL);
}
