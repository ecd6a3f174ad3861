/*
 * The outcome of a commit whose answer was lost.
 *
 * Invariant: nothing is called committed, or not, but by what stands in the database.
 *
 * A transaction's id alone resolves nothing once the server was down: what had not reached the disk
 * is forgotten, the id with it, and another's transaction gets it. So a row that the transaction
 * wrote is looked for as well; without one, an id is believed as long as the server has not been
 * started again.
 *
 * Must not know: units, how a commit is sent.
 */
#include "store/postgres/outcome.h"

#include "base/error.h"
#include "base/text.h"
#include "base/time.h"
#include "store/postgres/value.h"

#define NEVER_HEARD "22023" /* a transaction in the future of this server */
#define WAIT_US     20000   /* between two looks at a transaction that is still in progress */

#define STATUS(xid)                                                                                \
    "SELECT pg_catalog.pg_xact_status($" xid "::pg_catalog.text::pg_catalog.xid8), "               \
    "pg_catalog.pg_is_in_recovery(), pg_catalog.pg_postmaster_start_time(), "

static const char SQL_STATUS[] =
    STATUS("1") "EXISTS (SELECT FROM {p}outbox WHERE lane OPERATOR(pg_catalog.=) $2 AND id "
                "OPERATOR(pg_catalog.=) $3 AND xid OPERATOR(pg_catalog.=) "
                "$1::pg_catalog.text::pg_catalog.xid8 AND message_id OPERATOR(pg_catalog.=) $4)";
/* A mark is known by its moment: nobody else makes one of the message before it is taken back. */
#define MARK_STANDS                                                                                \
    "EXISTS (SELECT FROM {p}inbox WHERE tenant OPERATOR(pg_catalog.=) $1 AND consumer "            \
    "OPERATOR(pg_catalog.=) $2 AND message_id OPERATOR(pg_catalog.=) $3 AND processed_at "         \
    "OPERATOR(pg_catalog.=) $4)"
static const char SQL_MARK_STANDS[] = "SELECT " MARK_STANDS;
static const char SQL_MARK_HERE[] = "SELECT pg_catalog.pg_is_in_recovery(), " MARK_STANDS;
static const char SQL_STATUS_MARK[] = STATUS("5") MARK_STANDS;

static pr_outcome judge(const pr__pg_trace *own, const PGresult *result)
{
    const char *status = pr__pg_value_text(result, 0, 0);
    if (pr__text_equal(status, "aborted"))
        return PR_OUTCOME_NOT_COMMITTED;
    if (!pr__text_equal(status, "committed"))
        return PR_OUTCOME_UNKNOWN;
    if (own->mark || own->log_id != 0)
        return pr__pg_value_int(result, 0, 3) ? PR_OUTCOME_COMMITTED : PR_OUTCOME_NOT_COMMITTED;
    return pr__pg_value_instant(result, 0, 2) == own->started_at_us ? PR_OUTCOME_COMMITTED
                                                                    : PR_OUTCOME_UNKNOWN;
}

static pr_status ask(pr__pg_conn *conn, const pr__pg_trace *own, PGresult **ret_result,
                     pr_error *err)
{
    char xid[24];
    pr__format(xid, sizeof xid, "%lld", (long long)own->xid);
    const pr__inbox_key *mark = own->mark;
    if (!mark)
        return pr__pg_query(conn, SQL_STATUS, ret_result, err, "tiiu", xid, own->lane, own->log_id,
                            own->message_id);
    return pr__pg_query(conn, SQL_STATUS_MARK, ret_result, err, "tttst",
                        mark->tenant ? mark->tenant : "", mark->consumer, mark->message_id,
                        own->marked_at_us, xid);
}

pr_status pr__pg_mark_stands(pr__pg_conn *conn, const pr__pg_trace *own, bool *ret_stands,
                             pr_error *err)
{
    int64_t stands = 0;
    const pr__inbox_key *mark = own->mark;
    TRY(pr__pg_int(conn, SQL_MARK_STANDS, &stands, NULL, err, "ttts",
                   mark->tenant ? mark->tenant : "", mark->consumer, mark->message_id,
                   own->marked_at_us));
    *ret_stands = stands != 0;
    return PR_OK;
}

/* The server knows of no such id: it came back without the transaction, and so without its mark,
   unless it is a standby that has not heard of it. UNKNOWN: look again. */
static pr_outcome judge_mark(pr__pg_conn *conn, const pr__pg_trace *own)
{
    AUTO_RESULT result = NULL;
    const pr__inbox_key *mark = own->mark;
    if (pr__pg_query(conn, SQL_MARK_HERE, &result, NULL, "ttts", mark->tenant ? mark->tenant : "",
                     mark->consumer, mark->message_id, own->marked_at_us) != PR_OK ||
        pr__pg_value_int(result, 0, 0))
        return PR_OUTCOME_UNKNOWN;
    return pr__pg_value_int(result, 0, 1) ? PR_OUTCOME_COMMITTED : PR_OUTCOME_NOT_COMMITTED;
}

/* The old session may still be at it: then wait for its end. */
static pr_outcome find_out(pr__pg_store *store, const pr__pg_trace *own)
{
    int64_t system_id = store->settings.system_id;
    int64_t until_us = pr__monotonic_us() + store->conn.limits.timeout_ms * 1000;
    for (; pr__monotonic_us() < until_us; pr__sleep_us(WAIT_US)) {
        AUTO_RESULT result = NULL;
        if (pr__pg_ready(store, NULL) != PR_OK || pr__pg_settings_load(store, NULL) != PR_OK)
            continue;
        if (system_id != 0 && store->settings.system_id != system_id)
            return PR_OUTCOME_UNKNOWN; /* another cluster: its numbers mean nothing to us */
        pr_error found = PR_ERROR_INIT;
        if (ask(&store->conn, own, &result, &found) != PR_OK) {
            bool unheard = own->mark && pr__text_equal(found.sqlstate, NEVER_HEARD);
            pr_outcome outcome = unheard ? judge_mark(&store->conn, own) : PR_OUTCOME_UNKNOWN;
            if (outcome != PR_OUTCOME_UNKNOWN || (found.retry == PR_RETRY_NEVER && !unheard))
                return outcome;
            continue;
        }
        if (pr__pg_value_int(result, 0, 1) ||
            pr__text_equal(pr__pg_value_text(result, 0, 0), "in progress"))
            continue; /* a standby may not know it yet */
        return judge(own, result);
    }
    return PR_OUTCOME_UNKNOWN;
}

pr_status pr__pg_resolve(pr__pg_store *store, const pr__pg_trace *own, const pr_error *found,
                         pr_outcome *ret_outcome, pr_error *err)
{
    *ret_outcome = own->xid != 0 ? find_out(store, own) : PR_OUTCOME_NOT_COMMITTED;
    if (*ret_outcome == PR_OUTCOME_COMMITTED)
        return PR_OK;
    pr_error told = *found;
    told.retry = *ret_outcome == PR_OUTCOME_UNKNOWN ? PR_RETRY_UNKNOWN : PR_RETRY_RECONNECT;
    pr__error_copy(err, &told);
    return told.status;
}
