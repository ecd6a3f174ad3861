/*
 * The SQLite store as a provider of the store suites.
 */
#ifndef PR_TESTS_SQLITE_PROVIDER_H
#define PR_TESTS_SQLITE_PROVIDER_H

#include "contract/store_provider.h"

extern const store_provider sqlite_provider;

#endif
