/*
 * The operations suite on the SQLite store.
 */
#include "contract/sqlite_provider.h"

int main(void)
{
    return store_operations_contract_run(&sqlite_provider);
}
