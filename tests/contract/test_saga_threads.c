/*
 * The workers of one endpoint and one runtime of a saga, on the SQLite store.
 */
#include "contract/sqlite_provider.h"

int main(void)
{
    return saga_threads_run(&sqlite_provider);
}
