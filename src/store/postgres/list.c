/*
 * Lists: a page of the outbox, of an inbox, or of what failed in both, found by key.
 *
 * Owns: which rows make a page and in which order, and the cursor.
 * Invariant: a page is read in one snapshot and handed over after it; a cursor names the last row
 * that was handed over, so that rows which come or go neither shift nor repeat a page.
 * Must not know: what a record holds; that is record.c's.
 */
#include "base/error.h"
#include "base/text.h"
#include "port/cursor.h"
#include "port/state.h"
#include "store/postgres/operations.h"
#include "store/postgres/record.h"
#include "store/postgres/value.h"

#define ORIGIN "postgres.list"
typedef struct page_lister {
    const pr_list_options *opt;
    pr__pg_records records;
    pr__position after; /* from the oldest when it is nowhere */
    bool use_log;       /* rows of the log may be in that state, not only parked ones */
    bool bounded;       /* only those that are not settled: what lies below needs no look */
} page_lister;

/* $1 body, $2 reader, $3 after, $4 type, $5 destination, $6 key, $7 transport, $8 limit, $9 state,
   $10 lanes, $11 consumer, $12 use_log, $13 bounded, $14 occurred_at, $15 box, $16 place */
#define MATCHES                                                                                    \
    "($4 IS NULL OR t.type = $4) AND ($6 IS NULL OR t.key = $6) AND ($5 IS NULL OR "               \
    "coalesce(t.destination, $7 || '://topic/' || t.type) = $5)"
#define IN_STATE "($9 IS NULL OR " PR__PG_PARKED_STATE " = $9)"
#define LOW                                                                                        \
    "CASE WHEN cardinality(j.pend) + cardinality(j.drain) > 0 THEN 0 ELSE least(j.pos + 1, "       \
    "(SELECT min(x) FROM unnest(j.ids || j.rest) AS x)) END"

/* clang-format off */
static const char SQL_OUTBOX[] =
    "(" PR__PG_RECORD_LOG(PR__PG_LOG_STATE)
    "FROM {p}subscription AS s CROSS JOIN generate_series(0, $10 - 1) AS l(lane) CROSS JOIN "
    PR__PG_NEWEST
    " CROSS JOIN LATERAL (SELECT * FROM {p}outbox AS t WHERE t.lane = l.lane AND t.id > $3 AND "
    "(NOT $13 OR t.id >= " LOW ") AND " PR__PG_TAKES("$7") " AND " MATCHES
    " AND ($9 IS NULL OR " PR__PG_LOG_STATE " = $9) AND NOT EXISTS (SELECT FROM "
    "{p}outbox_parked AS p WHERE p.reader = s.reader AND p.log_id = t.id) ORDER BY t.id LIMIT $8) "
    "AS t WHERE s.reader = $2 AND $12 ORDER BY t.id LIMIT $8) UNION ALL (" PR__PG_RECORD_PARKED
    "WHERE t.reader = $2 AND t.log_id > $3 AND " IN_STATE " AND " MATCHES
    " ORDER BY t.log_id LIMIT $8) ORDER BY log_id LIMIT $8";
static const char SQL_DELAYED[] =
    PR__PG_RECORD_PARKED
    "WHERE t.reader = 0 AND t.log_id > $3 AND " IN_STATE " AND " MATCHES
    " ORDER BY t.log_id LIMIT $8";
static const char SQL_INBOX[] =
    PR__PG_RECORD_INBOX
    "WHERE t.place > $3 AND ($11 IS NULL OR t.consumer = $11) AND " IN_STATE " AND " MATCHES
    " ORDER BY t.place LIMIT $8";

#define BEHIND(box)                                                                                \
    "($14 IS NULL OR (t.occurred_at, " box "::int8, t.place) > ($14, $15, $16))"
static const char SQL_BOTH[] =
    "(" PR__PG_RECORD_PARKED
    "WHERE ($2 = 0 OR t.reader = $2) AND t.reader <> 0 AND $11 IS NULL AND "
    IN_STATE " AND " MATCHES " AND " BEHIND("1")
    " ORDER BY t.occurred_at, t.place LIMIT $8) UNION ALL (" PR__PG_RECORD_INBOX
    "WHERE ($11 IS NULL OR t.consumer = $11) AND " IN_STATE " AND " MATCHES " AND " BEHIND("2")
    " ORDER BY t.occurred_at, t.place LIMIT $8) ORDER BY occurred_at, box, place LIMIT $8";
/* clang-format on */

static const char SQL_MARKS[] =
    "SELECT tenant, consumer, message_id, processed_at FROM {p}inbox WHERE ($1 IS NULL OR "
    "processed_at >= $1) AND ($2 IS NULL OR consumer = $2) ORDER BY processed_at, tenant, "
    "consumer, message_id LIMIT $3 OFFSET $4";

/* Marks of one instant are told apart by their number. */
static pr__position position_of(const page_lister *lister, uint32_t index)
{
    const pr__pg_record_node *node = lister->records.first;
    int64_t given = lister->after.kind == PR__AT_MARK ? lister->after.part[1] : 0;
    int64_t instant = lister->after.kind == PR__AT_MARK ? lister->after.part[0] : 0;
    for (uint32_t i = 0;; i++, node = node->next) {
        if (node->record.settled_at_us != 0) {
            given = node->record.settled_at_us == instant ? given + 1 : 1;
            instant = node->record.settled_at_us;
        }
        if (i == index)
            break;
    }
    const pr_record *record = &node->record;
    if (lister->opt->box == PR_BOX_BOTH)
        return (pr__position){PR__AT_BOTH,
                              {record->message.occurred_at_us, record->box, node->place}};
    if (record->settled_at_us != 0)
        return (pr__position){PR__AT_MARK, {instant, given}};
    if (lister->opt->box == PR_BOX_INBOX)
        return (pr__position){PR__AT_INBOX, {node->place}};
    return (pr__position){record->state == PR_STATE_DELAYED ? PR__AT_DELAYED : PR__AT_LOG,
                          {record->log_id}};
}

/* ---- finding ---- */

static uint32_t room(const page_lister *lister)
{
    return lister->opt->limit + 1 - lister->records.count;
}

static pr_status find_rows(page_lister *lister, const char *sql, int64_t after, pr_error *err)
{
    const pr_list_options *opt = lister->opt;
    const pr__pg_settings *settings = &lister->records.store->settings;
    AUTO_PARAMS params = {.count = 0};
    AUTO_RESULT result = NULL;
    pr__pg_add_int(&params, pr__pg_records_body_max(&lister->records));
    pr__pg_add_int(&params, opt->reader);
    pr__pg_add_int(&params, after);
    pr__pg_add_text(&params, opt->type);
    pr__pg_add_text(&params, opt->destination);
    pr__pg_add_text(&params, opt->key);
    pr__pg_add_text(&params, settings->default_transport);
    pr__pg_add_int(&params, room(lister));
    pr__pg_add_text(&params, opt->state ? pr__state_text(opt->state) : NULL);
    pr__pg_add_int(&params, settings->lanes);
    pr__pg_add_text(&params, opt->consumer);
    pr__pg_add_bool(&params, lister->use_log);
    pr__pg_add_bool(&params, lister->bounded);
    if (lister->after.kind == PR__AT_BOTH)
        pr__pg_add_moment(&params, lister->after.part[0]);
    else
        pr__pg_add_instant(&params, 0);
    pr__pg_add_int(&params, lister->after.part[1]);
    pr__pg_add_int(&params, lister->after.part[2]);
    TRY(pr__pg_exec(&lister->records.store->conn, sql, &params, &result, err));
    return pr__pg_records_add(&lister->records, result, err);
}

static void choose_log(page_lister *lister)
{
    lister->use_log = true;
    switch (lister->opt->state) {
    case PR_STATE_FAILED:
    case PR_STATE_HELD:
    case PR_STATE_DEAD:
    case PR_STATE_DELAYED:
        lister->use_log = false;
        break;
    case PR_STATE_PUBLISHING:
    case PR_STATE_PENDING:
        lister->bounded = true;
        break;
    case PR_STATE_PUBLISHED:
        break;
    }
}

static pr_status find_outbox(page_lister *lister, pr_error *err)
{
    pr_state state = lister->opt->state;
    bool resumed = lister->after.kind == PR__AT_DELAYED;
    choose_log(lister);
    if (!resumed && state != PR_STATE_DELAYED)
        TRY(find_rows(lister, SQL_OUTBOX, lister->after.part[0], err));
    bool any = state == 0 || state == PR_STATE_DELAYED;
    if (room(lister) == 0 || !any || lister->opt->reader != PR_READER_RELAY)
        return PR_OK;
    return find_rows(lister, SQL_DELAYED, resumed ? lister->after.part[0] : 0, err);
}

static pr_status find_marks(page_lister *lister, pr_error *err)
{
    bool resumed = lister->after.kind == PR__AT_MARK;
    AUTO_RESULT result = NULL;
    TRY(pr__pg_query(&lister->records.store->conn, SQL_MARKS, &result, err, "stii",
                     resumed ? lister->after.part[0] : 0, lister->opt->consumer,
                     (int64_t)room(lister), resumed ? lister->after.part[1] : 0));
    for (int row = 0; row < PQntuples(result); row++)
        TRY(pr__pg_records_add_mark(&lister->records, result, row, err));
    return PR_OK;
}

static pr_status find_inbox(page_lister *lister, pr_error *err)
{
    const pr_list_options *opt = lister->opt;
    if (lister->after.kind != PR__AT_MARK && opt->state != PR_STATE_PUBLISHED)
        TRY(find_rows(lister, SQL_INBOX, lister->after.part[0], err));
    bool any = opt->state == 0 || opt->state == PR_STATE_PUBLISHED;
    if (room(lister) == 0 || !any || opt->type || opt->destination || opt->key)
        return PR_OK; /* a mark remembers none of these */
    return find_marks(lister, err);
}

static pr_status find(page_lister *lister, pr_error *err)
{
    TRY(pr__pg_settings_load(lister->records.store, err));
    switch (lister->opt->box) {
    case PR_BOX_OUTBOX:
        return find_outbox(lister, err);
    case PR_BOX_INBOX:
        return find_inbox(lister, err);
    case PR_BOX_BOTH:
        return find_rows(lister, SQL_BOTH, 0, err);
    }
    return PR_OK;
}

pr_status pr__pg_list(pr_store *base, const pr_list_options *opt, pr_list_page *ret_page,
                      pr_record_callback callback, void *user, pr_error *err)
{
    pr__pg_store *store = pr__pg_store_of(base);
    TRY(pr__pg_ready(store, err));
    AUTO(pr__arena) arena = pr__arena_new(0);
    if (!arena)
        return pr__fail_nomem(err, ORIGIN);
    page_lister lister = {.opt = opt, .records = {.store = store, .arena = arena}};
    TRY(pr__cursor_read(opt, &lister.after, err));
    TRY(pr__pg_begin_read(&store->conn, 0, err));
    TRY(pr__pg_end(&store->conn, find(&lister, err), err));
    uint32_t found = lister.records.count;
    uint32_t given = pr__pg_records_deliver(&lister.records, opt->limit, callback, user);
    ret_page->count = given;
    ret_page->next[0] = '\0';
    if (given > 0 && given < found) {
        pr__position last = position_of(&lister, given - 1);
        pr__cursor_write(&last, ret_page->next, sizeof ret_page->next);
    }
    return PR_OK;
}
