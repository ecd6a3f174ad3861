/*
 * Ten thousand steps of sagas, counted against a model, on the SQLite store.
 */
#include "contract/sqlite_provider.h"

int main(void)
{
    return saga_steps_run(&sqlite_provider);
}
