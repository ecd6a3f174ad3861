/*
 * What a result code of SQLite means for the caller: status and retry, by code, never by text.
 */
#ifndef PR_STORE_SQLITE_FAILURE_H
#define PR_STORE_SQLITE_FAILURE_H

#include <stdbool.h>

#include <postroom/error.h>

#include "store/sqlite/connection.h"

typedef struct pr__sqlite_class {
    int code; /* a primary or an extended result code; the extended one is looked for first */
    pr_status status;
    pr_retry retry;
    bool poison;        /* the handle must not be used again */
    const char *advice; /* what to do next; NULL = nothing to add */
} pr__sqlite_class;

/* Never NULL. */
const pr__sqlite_class *pr__sqlite_classify(int code);

/* Fill *err from the handle's last error and poison the connection if need be; returns the status.
   code is what the failed call returned. */
pr_status pr__sqlite_fail(pr__sqlite_conn *conn, int code, pr_error *err);

/* A poisoned connection refuses everything with this. PR_OK when it is not poisoned. */
pr_status pr__sqlite_usable(const pr__sqlite_conn *conn, pr_error *err);

#endif
