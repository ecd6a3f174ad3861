/*
 * The runtime of sagas on the PostgreSQL store.
 */
#include "contract/postgres_world.h"

static int suite(void)
{
    return saga_contract_run(&postgres_provider);
}

int main(void)
{
    return postgres_suite_run(suite);
}
