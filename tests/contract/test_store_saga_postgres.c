/*
 * The saga suite on the PostgreSQL store.
 */
#include "contract/postgres_world.h"

static int suite(void)
{
    return store_saga_contract_run(&postgres_provider);
}

int main(void)
{
    return postgres_suite_run(suite);
}
