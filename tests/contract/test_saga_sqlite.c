/*
 * The runtime of sagas on the SQLite store.
 */
#include "contract/sqlite_provider.h"

int main(void)
{
    return saga_contract_run(&sqlite_provider);
}
