/*
 * Several messages through one unit. It holds the write lock from its begin to its end, so that
 * what was looked for at the beginning stays true but for what its own handlers do.
 *
 * Invariant: a mark that is held stands behind the savepoint of its own message, so that it goes
 * when that is taken back; the marks of all others are the last thing that is written.
 * Must not know: which messages are run, and what is done about what was found.
 */
#include "store/sqlite/inbox.h"

#include "base/error.h"
#include "base/text.h"
#include "store/sqlite/unit.h"

/* ?1 tenant, ?2 consumer, ?3 id, ?4 key or null, ?5 whether dead ones block. */
static const char sql_stands[] =
    "SELECT 1 WHERE EXISTS (SELECT 1 FROM {p}_inbox WHERE tenant = ?1 AND consumer = ?2 AND "
    "message_id = ?3) OR EXISTS (SELECT 1 FROM {p}_inbox_parked WHERE tenant = ?1 AND consumer = "
    "?2 "
    "AND message_id = ?3) OR EXISTS (SELECT 1 FROM {p}_inbox_parked WHERE tenant = ?1 AND consumer "
    "= ?2 AND key = ?4 AND (state <> 'dead' OR ?5))";

static pr_status stands(pr__sqlite_conn *conn, const pr__inbox_visit *visit, bool *ret_stands,
                        pr_error *err)
{
    bool ordered = !pr__text_empty(visit->message_key) && visit->order != PR_ORDER_SKIP;
    int64_t one = 0;
    return pr__sqlite_int(conn, sql_stands, &one, ret_stands, err, "tttti",
                          visit->key->tenant ? visit->key->tenant : "", visit->key->consumer,
                          visit->key->message_id, ordered ? visit->message_key : NULL,
                          (int64_t)(visit->order == PR_ORDER_HALT));
}

pr_status pr__sqlite_inbox_look_all(pr_unit *unit, const pr__inbox_visit *visits, size_t count,
                                    bool *ret_stands, pr_error *err)
{
    pr_status status = pr__sqlite_unit_live(unit, err);
    for (size_t i = 0; i < count && status == PR_OK; i++)
        status = stands(pr__sqlite_unit_of(unit)->conn, &visits[i], &ret_stands[i], err);
    return pr__sqlite_unit_status(unit, status);
}

/* One that was marked before has its mark still; of the others none has. */
pr_status pr__sqlite_inbox_mark_all(pr_unit *unit, const pr__inbox_visit *visits,
                                    const bool *marked, size_t count, bool *ret_all, pr_error *err)
{
    bool all = true;
    for (size_t i = 0; i < count && all; i++) {
        pr__mark mark;
        if (marked[i])
            TRY(pr__sqlite_inbox_look(unit, visits[i].key, visits[i].hash, &mark, err));
        else
            TRY(pr__sqlite_inbox_mark(unit, visits[i].key, visits[i].hash, &mark, err));
        all = mark == (marked[i] ? PR__MARK_DONE : PR__MARK_NEW);
    }
    *ret_all = all;
    return PR_OK;
}
