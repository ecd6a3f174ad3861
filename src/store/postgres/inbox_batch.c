/*
 * Several messages through one unit: looked for at once, entered one by one, marked at once.
 *
 * Invariants: a mark that is held stands behind the savepoint of its own message, so that it goes
 * when that is taken back; the marks of all others are the last thing that is written, in the order
 * of their keys, so that two batches do not wait for one another. Each look after a mark is a
 * statement of its own, with a snapshot that is younger than the wait for the mark.
 * Must not know: which messages are run, and what is done about what was found.
 */
#include <string.h>

#include "base/error.h"
#include "base/text.h"
#include "store/postgres/inbox.h"
#include "store/postgres/unit.h"
#include "store/postgres/value.h"

#define ORIGIN "postgres.inbox"

/* What stands under a message's id, or before it in its key; one look into an index each, whatever
   the planner believes of the tables. $4 consumer, $5 whether dead ones block. */
#define THEM "ROWS FROM (pg_catalog.unnest($1), pg_catalog.unnest($2), pg_catalog.unnest($3))"
#define IS   "OPERATOR(pg_catalog.=)"
#define W    "tenant " IS " w.tenant AND consumer " IS " $4 AND message_id " IS " w.message_id"
#define A_MARK                                                                                     \
    "LEFT JOIN LATERAL (SELECT true AS yes FROM {p}inbox WHERE " W " OFFSET 0) AS m ON true "
#define A_ROW                                                                                      \
    "LEFT JOIN LATERAL (SELECT true AS yes FROM {p}inbox_parked WHERE " W " OFFSET 0) AS p ON "    \
    "true "
#define A_BLOCK                                                                                    \
    "LEFT JOIN LATERAL (SELECT true AS yes FROM {p}inbox_parked WHERE tenant " IS                  \
    " w.tenant AND consumer " IS " $4 AND key " IS                                                 \
    " w.key AND (state OPERATOR(pg_catalog.<>) 'dead' OR $5) LIMIT 1) AS b ON true "

/* $1 tenants, $2 ids, $3 keys. */
static const char SQL_LOOK[] =
    "SELECT w.i FROM " THEM " WITH ORDINALITY AS w (tenant, message_id, key, "
    "i) " A_MARK A_ROW A_BLOCK "WHERE m.yes OR p.yes OR b.yes";
static const char SQL_MARK[] =
    "INSERT INTO {p}inbox (tenant, consumer, message_id, body_hash, processed_at) SELECT w.tenant, "
    "$4, w.message_id, w.hash, pg_catalog.clock_timestamp() FROM " THEM " AS "
    "w (tenant, message_id, hash) ORDER BY w.tenant COLLATE pg_catalog.\"C\", w.message_id COLLATE "
    "pg_catalog.\"C\" ON CONFLICT DO NOTHING RETURNING pg_catalog.pg_current_xact_id(), "
    "processed_at";
static const char SQL_BLOCKED[] =
    "SELECT 1 FROM " THEM " AS w (tenant, message_id, key) " A_ROW A_BLOCK
    "WHERE p.yes OR b.yes LIMIT 1";
static const char SQL_STAND[] =
    "SELECT pg_catalog.count(*) FROM " THEM " AS w (tenant, message_id, hash) "
    "CROSS JOIN LATERAL (SELECT FROM {p}inbox WHERE " W " AND body_hash " IS
    " w.hash OFFSET 0) AS m";

/* ---- what is asked ---- */

enum { TENANTS, IDS, KEYS, HASHES, ARRAYS };

/* The arrays of some of the visits. */
typedef struct crowd {
    pr__pg_array arrays[ARRAYS];
    const char *consumer;
    bool halt;
    uint32_t count;
} crowd;

static void crowd_init(crowd *some, const pr__inbox_visit *visits)
{
    for (int i = 0; i < ARRAYS; i++)
        pr__pg_array_init(&some->arrays[i], i == HASHES ? PR__PG_BYTEA : PR__PG_TEXT);
    some->consumer = visits[0].key->consumer;
    some->halt = visits[0].order == PR_ORDER_HALT;
    some->count = 0;
}

static void crowd_done(crowd *some)
{
    for (int i = 0; i < ARRAYS; i++)
        pr__pg_array_done(&some->arrays[i]);
}
#define AUTO_CROWD __attribute__((cleanup(crowd_done))) crowd

static void crowd_add(crowd *some, const pr__inbox_visit *visit)
{
    bool ordered = !pr__text_empty(visit->message_key) && visit->order != PR_ORDER_SKIP;
    pr__pg_array_text(&some->arrays[TENANTS], visit->key->tenant ? visit->key->tenant : "");
    pr__pg_array_text(&some->arrays[IDS], visit->key->message_id);
    pr__pg_array_text(&some->arrays[KEYS], ordered ? visit->message_key : NULL);
    pr__pg_array_bytes(&some->arrays[HASHES], visit->hash, PR_CONTENT_HASH_SIZE);
    some->count++;
}

/* $1 tenants, $2 ids, $3 keys or hashes, $4 consumer, and where keys are looked at, $5. */
static void crowd_ask(crowd *some, int third, pr__pg_params *params)
{
    *params = (pr__pg_params){.count = 0};
    pr__pg_add_array(params, &some->arrays[TENANTS]);
    pr__pg_add_array(params, &some->arrays[IDS]);
    pr__pg_add_array(params, &some->arrays[third]);
    pr__pg_add_text(params, some->consumer);
    if (third == KEYS)
        pr__pg_add_bool(params, some->halt);
}

static pr_status check_keys(const pr__inbox_visit *visits, size_t count, pr_error *err)
{
    for (size_t i = 0; i < count; i++)
        TRY(pr__inbox_key_check(visits[i].key, ORIGIN, err));
    return PR_OK;
}

/* ---- at the beginning ---- */

static pr_status look(pr__pg_conn *conn, const pr__inbox_visit *visits, size_t count,
                      bool *ret_stands, pr_error *err)
{
    AUTO_CROWD all;
    AUTO_PARAMS params;
    AUTO_RESULT result = NULL;
    crowd_init(&all, visits);
    for (size_t i = 0; i < count; i++)
        crowd_add(&all, &visits[i]);
    crowd_ask(&all, KEYS, &params);
    TRY(pr__pg_exec(conn, SQL_LOOK, &params, &result, err));
    memset(ret_stands, 0, count * sizeof *ret_stands);
    for (int i = 0; i < PQntuples(result); i++)
        ret_stands[pr__pg_value_int(result, i, 0) - 1] = true;
    return PR_OK;
}

pr_status pr__pg_inbox_look_all(pr_unit *unit, const pr__inbox_visit *visits, size_t count,
                                bool *ret_stands, pr_error *err)
{
    TRY(check_keys(visits, count, err));
    TRY(pr__pg_unit_live(unit, err));
    return pr__pg_unit_status(unit,
                              look(pr__pg_unit_of(unit)->conn, visits, count, ret_stands, err));
}

/* ---- one by one ---- */

enum { NEXT_MAX = 5 };

typedef struct next {
    pr__pg_params mark, find, blocked;
    pr__pg_call calls[NEXT_MAX];
    int count;
} next;

static void next_done(next *in)
{
    pr__pg_calls_done(in->calls, in->count);
    pr__pg_params_done(&in->mark);
    pr__pg_params_done(&in->find);
    pr__pg_params_done(&in->blocked);
}

static pr__pg_params *next_ask(next *in, const char *sql, pr__pg_params *params,
                               const pr__inbox_key *key)
{
    *params = (pr__pg_params){.count = 0};
    pr__pg_add_text(params, key->tenant ? key->tenant : "");
    pr__pg_add_text(params, key->consumer);
    pr__pg_add_text(params, key->message_id);
    in->calls[in->count++] = (pr__pg_call){.sql = sql, .params = params};
    return params;
}

static void next_fill(next *in, pr__savepoint_step step, const pr__inbox_visit *visit)
{
    *in = (next){.count = 0};
    if (step == PR__SAVEPOINT_NEXT)
        in->calls[in->count++] = (pr__pg_call){.sql = "RELEASE SAVEPOINT postroom_message"};
    in->calls[in->count++] = (pr__pg_call){.sql = "SAVEPOINT postroom_message"};
    pr__pg_add_bytes(next_ask(in, pr__pg_sql_mark, &in->mark, visit->key), visit->hash,
                     PR_CONTENT_HASH_SIZE);
    (void)next_ask(in, pr__pg_sql_find, &in->find, visit->key);
    if (pr__text_empty(visit->message_key) || visit->order == PR_ORDER_SKIP)
        return;
    pr__pg_params *blocked = next_ask(in, pr__pg_sql_blocked, &in->blocked, visit->key);
    pr__pg_add_text(blocked, visit->message_key);
    pr__pg_add_bool(blocked, visit->order == PR_ORDER_HALT);
}

static pr_status enter_next(pr__pg_unit *unit, const next *in, int mark,
                            const pr__inbox_visit *visit, pr__inbox_facts *ret_facts, pr_error *err)
{
    pr__inbox_facts facts = {.found = false};
    TRY(pr__pg_inbox_read_mark(unit, visit->key, visit->hash, in->calls[mark].result, &facts.mark,
                               err));
    facts.found = pr__pg_inbox_read_row(in->calls[mark + 1].result, visit->hash, &facts.row);
    facts.blocked = in->count > mark + 2 && PQntuples(in->calls[mark + 2].result) > 0;
    *ret_facts = facts;
    return PR_OK;
}

pr_status pr__pg_inbox_enter_next(pr_unit *base, pr__savepoint_step step,
                                  const pr__inbox_visit *visit, pr__inbox_facts *ret_facts,
                                  pr_error *err)
{
    next in;
    int sent = 0, done = 0;
    pr__pg_unit *unit = pr__pg_unit_of(base);
    TRY(pr__inbox_key_check(visit->key, ORIGIN, err));
    TRY(pr__pg_unit_live(base, err));
    next_fill(&in, step, visit);
    int mark = step == PR__SAVEPOINT_NEXT ? 2 : 1;
    pr_status status = pr__pg_exec_all(unit->conn, in.calls, in.count, &sent, &done, err);
    if (status == PR_OK)
        status = enter_next(unit, &in, mark, visit, ret_facts, err);
    next_done(&in);
    return pr__pg_unit_status(base, status);
}

/* ---- at the end ---- */

enum { END_MARK, END_BLOCKED, END_STAND, END_MAX };

/* Marked one by one, or now: each mark stands, none of those of now stood before, and nothing
   stands against one of them. */
static pr_status settle(pr__pg_unit *unit, crowd *all, crowd *fresh, bool *ret_all, pr_error *err)
{
    AUTO_PARAMS mark = {.count = 0};
    AUTO_PARAMS blocked = {.count = 0};
    AUTO_PARAMS stand = {.count = 0};
    int sent = 0, done = 0;
    crowd_ask(fresh, HASHES, &mark);
    crowd_ask(fresh, KEYS, &blocked);
    crowd_ask(all, HASHES, &stand);
    pr__pg_call calls[END_MAX] = {{.sql = SQL_MARK, .params = &mark},
                                  {.sql = SQL_BLOCKED, .params = &blocked},
                                  {.sql = SQL_STAND, .params = &stand}};
    pr_status status = pr__pg_exec_all(unit->conn, calls, END_MAX, &sent, &done, err);
    if (status == PR_OK) {
        const PGresult *marked = calls[END_MARK].result;
        *ret_all = (uint32_t)PQntuples(marked) == fresh->count &&
                   PQntuples(calls[END_BLOCKED].result) == 0 &&
                   pr__pg_value_int(calls[END_STAND].result, 0, 0) == all->count;
    }
    pr__pg_calls_done(calls, END_MAX);
    return status;
}

pr_status pr__pg_inbox_mark_all(pr_unit *base, const pr__inbox_visit *visits, const bool *marked,
                                size_t count, bool *ret_all, pr_error *err)
{
    AUTO_CROWD all;
    AUTO_CROWD fresh;
    crowd_init(&all, visits);
    crowd_init(&fresh, visits);
    for (size_t i = 0; i < count; i++) {
        crowd_add(&all, &visits[i]);
        if (!marked[i])
            crowd_add(&fresh, &visits[i]);
    }
    TRY(check_keys(visits, count, err));
    TRY(pr__pg_unit_live(base, err));
    return pr__pg_unit_status(base, settle(pr__pg_unit_of(base), &all, &fresh, ret_all, err));
}
