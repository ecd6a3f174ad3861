/*
 * What an error of PostgreSQL means: one table by SQLSTATE, never by message text.
 */
#ifndef PR_STORE_POSTGRES_FAILURE_H
#define PR_STORE_POSTGRES_FAILURE_H

#include <stdbool.h>

#include <libpq-fe.h>

#include "store/postgres/connection.h"

typedef struct pr__pg_class {
    const char *sqlstate; /* five characters, or the first two for a whole class; "" = absent */
    pr_status status;
    pr_retry retry;
    const char *advice; /* what to do next; NULL when it is not known */
} pr__pg_class;

/* The row of a code; never NULL. A code may be NULL or "": the server sent none. */
const pr__pg_class *pr__pg_classify(const char *sqlstate);

/* Fill err from the result of a statement that failed. Our own connection is dropped when its class
   says so. The primary message only: the detail may hold values of a row. */
pr_status pr__pg_fail_result(pr__pg_conn *conn, const PGresult *result, pr_error *err);
/* The same from the connection itself: it was lost, or could not be made. */
pr_status pr__pg_fail_connection(pr__pg_conn *conn, const char *what, pr_error *err);
/* No answer within the deadline. */
pr_status pr__pg_fail_deadline(pr__pg_conn *conn, int64_t limit_ms, pr_error *err);

#endif
