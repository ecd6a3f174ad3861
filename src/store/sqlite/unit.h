/*
 * A unit of work on SQLite: a transaction on the store's own connection, or one that the host
 * opened on its own.
 */
#ifndef PR_STORE_SQLITE_UNIT_H
#define PR_STORE_SQLITE_UNIT_H

#include "port/store.h"
#include "store/sqlite/connection.h"
#include "store/sqlite/store.h"

typedef struct pr__sqlite_unit {
    pr_unit base;          /* first member */
    pr__sqlite_conn *conn; /* the store's, or &borrowed */
    bool ended_by_commit;  /* other code ran COMMIT on our connection */
    bool ended;            /* the transaction that we began is over */
    int64_t log_base;      /* ids above are of this transaction; -1 = not known yet */
    int64_t parked_base;   /* places above are of this transaction; -1 = not known yet */
    char last_id[37];      /* of the message that was enqueued last; "" = none */
    bool last_delayed;
    pr__sqlite_conn borrowed; /* of a joined unit */
} pr__sqlite_unit;

static inline pr__sqlite_unit *pr__sqlite_unit_of(pr_unit *unit)
{
    return (pr__sqlite_unit *)(void *)unit;
}

/* Every statement in a unit comes after this: STATE unless the transaction is live. */
pr_status pr__sqlite_unit_live(pr_unit *unit, pr_error *err);
/* Every status of a statement in a unit goes through this: an error of the database makes the unit
   rollback-only, because SQLite keeps a transaction open whose statement failed. Returns status. */
pr_status pr__sqlite_unit_status(pr_unit *unit, pr_status status);

#endif
