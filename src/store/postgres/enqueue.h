/*
 * Enqueueing: one statement for any number of messages, in the transaction that is open.
 */
#ifndef PR_STORE_POSTGRES_ENQUEUE_H
#define PR_STORE_POSTGRES_ENQUEUE_H

#include "port/store.h"
#include "store/postgres/connection.h"

/* CONFLICT: a caller's id stands in this transaction with other content; nothing was inserted. */
pr_status pr__pg_enqueue(pr__pg_conn *conn, pr__enqueue *messages, size_t count, pr_error *err);

#endif
