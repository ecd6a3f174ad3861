/*
 * A unit of work on PostgreSQL: a transaction on the store's own connection, or one that the host
 * opened on its own.
 */
#ifndef PR_STORE_POSTGRES_UNIT_H
#define PR_STORE_POSTGRES_UNIT_H

#include "base/uuid.h"
#include "port/store.h"
#include "store/postgres/connection.h"
#include "store/postgres/store.h"

typedef struct pr__pg_unit {
    pr_unit base;                  /* first member */
    pr__pg_conn *conn;             /* the store's, or &borrowed */
    char token[PR_UUID_TEXT_SIZE]; /* of our own transaction, to tell it from one begun after it */
    int64_t xid;                   /* of the transaction, once it has marked; 0 = not known */
    int64_t marked_at_us;          /* of that mark */
    bool marked_first;             /* nothing was run before it, so that nothing takes it back */
    pr__pg_conn borrowed;          /* of a joined unit */
} pr__pg_unit;

static inline pr__pg_unit *pr__pg_unit_of(pr_unit *unit)
{
    return (pr__pg_unit *)(void *)unit;
}

/* Every statement in a unit comes after this: STATE unless the transaction is live. */
pr_status pr__pg_unit_live(pr_unit *unit, pr_error *err);
/* A unit to be begun on the store's own connection; the caller's to pr__free until it is. */
pr_status pr__pg_unit_prepare(pr_store *store, pr__pg_unit **ret_unit, pr_error *err);
/* May it be committed? On an error it is at its end, rolled back. */
pr_status pr__pg_unit_may_commit(pr_unit *unit, pr_outcome *ret_outcome, pr_error *err);
/* STATE, UNKNOWN: the transaction that is open is another one. */
pr_status pr__pg_unit_not_mine(pr_outcome *ret_outcome, pr_error *err);
/* The unit's transaction is no longer the unit's. */
void pr__pg_unit_finish(pr__pg_unit *unit);
/* Every status of a statement in a unit goes through this: an error of the database makes the unit
   rollback-only. Returns status. */
pr_status pr__pg_unit_status(pr_unit *unit, pr_status status);

#endif
