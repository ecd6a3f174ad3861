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
#include "store/sqlite/operations.h"
#include "store/sqlite/record.h"

#define ORIGIN "sqlite.list"

/* A row of the page. */
typedef struct position {
    pr__position at;
    int64_t reader, log_id; /* of BOTH: they lead to the row */
} position;

typedef struct page_lister {
    pr__sqlite_store *store;
    const pr_list_options *opt;
    const char *state;     /* NULL = any */
    const char *transport; /* the default one: what a row without destination goes to */
    pr__arena *arena;
    pr__records records;
    pr__position after;  /* nowhere: from the oldest */
    position *positions; /* opt->limit + 1 of them fit */
    uint32_t count;
} page_lister;

/* ?1 reader, ?2 after, ?3 state, ?4 type, ?5 destination, ?6 key, ?7 transport, ?8 limit */
#define LIST_FORMAT "iittttti"
#define LIST_ARGUMENTS(lister, reader, after)                                                      \
    (reader), (after), (lister)->state, (lister)->opt->type, (lister)->opt->destination,           \
        (lister)->opt->key, (lister)->transport, (int64_t)((lister)->opt->limit + 1)

#define MATCHES                                                                                    \
    "(?4 IS NULL OR t.type = ?4) AND (?6 IS NULL OR t.key = ?6) "                                  \
    "AND (?5 IS NULL OR coalesce(t.destination, ?7 || '://topic/' || t.type) = ?5) "

static const char sql_parked[] =
    "SELECT t.log_id FROM {p}_outbox_parked AS t WHERE t.reader = ?1 AND t.log_id > ?2 "
    "AND (?3 IS NULL OR " PR__PARKED_STATE " = ?3) AND " MATCHES "ORDER BY t.log_id LIMIT ?8";

#define LANES                                                                                      \
    "WITH RECURSIVE lane (n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM lane WHERE n + 1 < "         \
    "(SELECT CAST(value AS INTEGER) FROM {p}_setting WHERE name = 'lanes')) "

/* Rows of the log with the states of the view, in the order of the log. The view itself would be
   computed for every row before the first is given: it is a union. */
static const char sql_log[] =
    LANES ", newest AS MATERIALIZED (SELECT j.* FROM lane JOIN {p}_outbox_claim AS j "
          "ON j.reader = ?1 AND j.lane = lane.n AND j.seq = (SELECT max(seq) FROM {p}_outbox_claim "
          "WHERE reader = ?1 AND lane = lane.n)) "
          "SELECT t.id FROM {p}_subscription AS s CROSS JOIN {p}_outbox AS t "
          "CROSS JOIN newest AS j ON j.lane = t.lane "
          "LEFT JOIN {p}_outbox_parked AS p ON p.reader = ?1 AND p.log_id = t.id "
          "WHERE s.reader = ?1 AND t.id > ?2 AND t.id > s.start_id AND " MATCHES
          "AND CASE WHEN ?1 = 1 THEN coalesce(t.destination NOT GLOB 'local://*', ?7 <> 'local') "
          "ELSE coalesce(t.destination, ?7 || '://topic/' || t.type) IN "
          "(SELECT value FROM json_each(s.destinations)) END "
          "AND (?3 IS NULL OR ?3 = CASE WHEN p.place IS NOT NULL THEN "
          "CASE WHEN p.state = 'processing' THEN 'publishing' "
          "WHEN p.state = 'failed' AND p.attempts = 0 AND p.redriven_at IS NOT NULL THEN 'pending' "
          "ELSE p.state END "
          "WHEN t.id > j.pos THEN 'pending' WHEN t.id < j.low THEN 'published' "
          "WHEN t.id IN (SELECT value FROM json_each(j.ids)) THEN 'publishing' "
          "WHEN t.id IN (SELECT value FROM json_each(j.rest)) THEN 'pending' ELSE 'published' END) "
          "ORDER BY t.id LIMIT ?8";

/* The open slices, out of the journal: no scan of the log. */
static const char sql_open[] =
    LANES "SELECT t.id FROM lane JOIN {p}_outbox_claim AS j ON j.reader = ?1 AND j.lane = lane.n "
          "AND j.seq = (SELECT max(seq) FROM {p}_outbox_claim WHERE reader = ?1 AND lane = lane.n) "
          "JOIN json_each(j.ids) AS open JOIN {p}_outbox AS t ON t.id = open.value "
          "WHERE ?3 = 'publishing' AND t.id > ?2 AND " MATCHES "ORDER BY t.id LIMIT ?8";

/* The oldest row of any lane that is not settled; the rows before it are not pending. */
static const char sql_first_unsettled[] =
    LANES "SELECT min((SELECT min(o.id) FROM {p}_outbox AS o WHERE o.lane = lane.n AND o.id >= "
          "coalesce((SELECT low FROM {p}_outbox_claim WHERE reader = ?1 AND lane = lane.n "
          "ORDER BY seq DESC LIMIT 1), 0))) FROM lane";

/* As above, ?9 consumer */
static const char sql_inbox[] =
    "SELECT t.place FROM {p}_inbox_parked AS t WHERE t.place > ?2 "
    "AND (?9 IS NULL OR t.consumer = ?9) AND (?3 IS NULL OR " PR__PARKED_STATE " = ?3) "
    "AND ?1 IS NOT NULL AND " MATCHES "ORDER BY t.place LIMIT ?8";

static const char sql_marks[] =
    "SELECT tenant, consumer, message_id, processed_at FROM {p}_inbox "
    "WHERE processed_at >= ?1 AND (?2 IS NULL OR consumer = ?2) "
    "ORDER BY processed_at, tenant, consumer, message_id LIMIT ?3 OFFSET ?4";

/* ?10 occurred_at, ?11 box, ?12 place of the last one; reader 0: every reader's */
static const char sql_both[] =
    "SELECT occurred_at, box, place, reader, log_id FROM ("
    "SELECT t.occurred_at, 1 AS box, t.place, t.reader, t.log_id FROM {p}_outbox_parked AS t "
    "WHERE (?1 = 0 OR t.reader = ?1) AND t.reader <> 0 AND ?2 IS NOT NULL AND ?9 IS NULL "
    "AND " PR__PARKED_STATE " = ?3 AND " MATCHES "UNION ALL "
    "SELECT t.occurred_at, 2, t.place, 0, t.place FROM {p}_inbox_parked AS t "
    "WHERE (?9 IS NULL OR t.consumer = ?9) AND " PR__PARKED_STATE " = ?3 AND " MATCHES
    ") WHERE ?10 IS NULL OR (occurred_at, box, place) > (?10, ?11, ?12) "
    "ORDER BY occurred_at, box, place LIMIT ?8";

/* ---- positions ---- */

static bool full(const page_lister *lister)
{
    return lister->count > lister->opt->limit;
}

/* Take the ids of a statement's rows, merged with those that stand already from `from` on: both are
   ascending, and one that is in both is one. */
static pr_status merge_ids(page_lister *lister, pr__position_kind kind, uint32_t from,
                           sqlite3_stmt *stmt, pr_error *err)
{
    uint32_t capacity = lister->opt->limit + 1;
    int64_t *ids = pr__arena_alloc(lister->arena, capacity * sizeof *ids);
    if (!ids)
        return pr__fail_nomem(err, ORIGIN);
    uint32_t count = 0;
    bool row = true;
    while (count < capacity) {
        TRY(pr__sqlite_step(&lister->store->conn, stmt, &row, err));
        if (!row)
            break;
        ids[count++] = sqlite3_column_int64(stmt, 0);
    }
    uint32_t old_count = lister->count - from;
    position *old =
        pr__arena_memdup(lister->arena, lister->positions + from, old_count * sizeof *old);
    if (!old)
        return pr__fail_nomem(err, ORIGIN);
    uint32_t i = 0, k = 0;
    lister->count = from;
    while ((i < count || k < old_count) && !full(lister)) {
        int64_t mine = i < count ? ids[i] : INT64_MAX;
        int64_t theirs = k < old_count ? old[k].at.part[0] : INT64_MAX;
        int64_t id = mine < theirs ? mine : theirs;
        i += mine == id;
        k += theirs == id;
        lister->positions[lister->count++] = (position){.at = {kind, {id}}};
    }
    return PR_OK;
}

static pr_status add_ids(page_lister *lister, pr__position_kind kind, uint32_t from,
                         const char *sql, int64_t reader, int64_t after, pr_error *err)
{
    AUTO_STMT stmt = NULL;
    TRY(pr__sqlite_query(&lister->store->conn, sql, &stmt, err, LIST_FORMAT,
                         LIST_ARGUMENTS(lister, reader, after)));
    return merge_ids(lister, kind, from, stmt, err);
}

static pr_status find_log(page_lister *lister, int64_t after, pr_error *err)
{
    int64_t reader = lister->opt->reader;
    int64_t first = 0;
    bool found = false;
    switch (lister->opt->state) {
    case PR_STATE_FAILED:
    case PR_STATE_HELD:
    case PR_STATE_DEAD:
        return add_ids(lister, PR__AT_LOG, 0, sql_parked, reader, after, err);
    case PR_STATE_PUBLISHING:
        TRY(add_ids(lister, PR__AT_LOG, 0, sql_parked, reader, after, err));
        return add_ids(lister, PR__AT_LOG, 0, sql_open, reader, after, err);
    case PR_STATE_PENDING:
        TRY(add_ids(lister, PR__AT_LOG, 0, sql_parked, reader, after, err));
        TRY(pr__sqlite_int(&lister->store->conn, sql_first_unsettled, &first, &found, err, "i",
                           reader));
        if (!found)
            return PR_OK;
        return add_ids(lister, PR__AT_LOG, 0, sql_log, reader, first > after ? first - 1 : after,
                       err);
    case PR_STATE_DELAYED:
        return PR_OK;
    case PR_STATE_PUBLISHED:
        break;
    }
    if (lister->opt->state == 0) /* a parked row may have outlived its row of the log */
        TRY(add_ids(lister, PR__AT_LOG, 0, sql_parked, reader, after, err));
    return add_ids(lister, PR__AT_LOG, 0, sql_log, reader, after, err);
}

static pr_status find_outbox(page_lister *lister, pr_error *err)
{
    int64_t delayed_after = 0;
    if (lister->after.kind == PR__AT_DELAYED)
        delayed_after = lister->after.part[0];
    else
        TRY(find_log(lister, lister->after.part[0], err));
    bool any = lister->opt->state == 0 || lister->opt->state == PR_STATE_DELAYED;
    if (full(lister) || !any || lister->opt->reader != PR_READER_RELAY)
        return PR_OK;
    return add_ids(lister, PR__AT_DELAYED, lister->count, sql_parked, PR_READER_DELAYED,
                   delayed_after, err);
}

/* Marks are records at once: they have no other key than their text. */
static pr_status find_marks(page_lister *lister, pr_error *err)
{
    bool resumed = lister->after.kind == PR__AT_MARK;
    int64_t instant = resumed ? lister->after.part[0] : INT64_MIN;
    int64_t given = resumed ? lister->after.part[1] : 0;
    AUTO_STMT stmt = NULL;
    bool row = false;
    TRY(pr__sqlite_query(&lister->store->conn, sql_marks, &stmt, err, "itii", instant,
                         lister->opt->consumer, (int64_t)(lister->opt->limit + 1 - lister->count),
                         given));
    while (!full(lister)) {
        TRY(pr__sqlite_step(&lister->store->conn, stmt, &row, err));
        if (!row)
            return PR_OK;
        int64_t at = sqlite3_column_int64(stmt, 3);
        given = at == instant ? given + 1 : 1;
        instant = at;
        lister->positions[lister->count++] = (position){.at = {PR__AT_MARK, {instant, given}}};
        if (full(lister))
            return PR_OK; /* one beyond the page: only that it stands matters */
        TRY(pr__records_add_mark(&lister->records, (const char *)sqlite3_column_text(stmt, 0),
                                 (const char *)sqlite3_column_text(stmt, 1),
                                 (const char *)sqlite3_column_text(stmt, 2), at, err));
    }
    return PR_OK;
}

static pr_status load(page_lister *lister, const position *at, pr_error *err)
{
    switch (at->at.kind) {
    case PR__AT_LOG:
        return pr__records_add_log(&lister->records, lister->opt->reader, at->at.part[0], err);
    case PR__AT_DELAYED:
        return pr__records_add_parked(&lister->records, PR_READER_DELAYED, at->at.part[0], NULL,
                                      err);
    case PR__AT_INBOX:
        return pr__records_add_inbox(&lister->records, at->at.part[0], err);
    case PR__AT_BOTH:
        if (at->at.part[1] == PR_BOX_INBOX)
            return pr__records_add_inbox(&lister->records, at->log_id, err);
        return pr__records_add_parked(&lister->records, at->reader, at->log_id, NULL, err);
    case PR__AT_NOWHERE:
    case PR__AT_MARK:
        return PR_OK;
    }
    return PR_OK;
}

static pr_status load_page(page_lister *lister, pr_error *err)
{
    uint32_t count = full(lister) ? lister->opt->limit : lister->count;
    for (uint32_t i = 0; i < count; i++)
        TRY(load(lister, &lister->positions[i], err));
    return PR_OK;
}

static pr_status find_inbox(page_lister *lister, pr_error *err)
{
    const pr_list_options *opt = lister->opt;
    if (lister->after.kind != PR__AT_MARK && opt->state != PR_STATE_PUBLISHED) {
        AUTO_STMT stmt = NULL;
        TRY(pr__sqlite_query(&lister->store->conn, sql_inbox, &stmt, err, LIST_FORMAT "t",
                             LIST_ARGUMENTS(lister, INT64_C(0), lister->after.part[0]),
                             opt->consumer));
        TRY(merge_ids(lister, PR__AT_INBOX, 0, stmt, err));
    }
    TRY(load_page(lister, err));
    bool any = opt->state == 0 || opt->state == PR_STATE_PUBLISHED;
    if (full(lister) || !any || opt->type || opt->destination || opt->key)
        return PR_OK; /* a mark remembers none of these */
    return find_marks(lister, err);
}

static pr_status find_both(page_lister *lister, pr_error *err)
{
    pr__sqlite_conn *conn = &lister->store->conn;
    const pr__position *after = &lister->after;
    AUTO_STMT stmt = NULL;
    bool row = false;
    if (after->kind)
        TRY(pr__sqlite_query(conn, sql_both, &stmt, err, LIST_FORMAT "tiii",
                             LIST_ARGUMENTS(lister, lister->opt->reader, INT64_C(0)),
                             lister->opt->consumer, after->part[0], after->part[1],
                             after->part[2]));
    else
        TRY(pr__sqlite_query(conn, sql_both, &stmt, err, LIST_FORMAT "tnnn",
                             LIST_ARGUMENTS(lister, lister->opt->reader, INT64_C(0)),
                             lister->opt->consumer));
    while (!full(lister)) {
        TRY(pr__sqlite_step(conn, stmt, &row, err));
        if (!row)
            break;
        lister->positions[lister->count++] =
            (position){.at = {PR__AT_BOTH,
                              {sqlite3_column_int64(stmt, 0), sqlite3_column_int64(stmt, 1),
                               sqlite3_column_int64(stmt, 2)}},
                       .reader = sqlite3_column_int64(stmt, 3),
                       .log_id = sqlite3_column_int64(stmt, 4)};
    }
    return load_page(lister, err);
}

static pr_status find(page_lister *lister, pr_error *err)
{
    switch (lister->opt->box) {
    case PR_BOX_OUTBOX:
        TRY(find_outbox(lister, err));
        return load_page(lister, err);
    case PR_BOX_INBOX:
        return find_inbox(lister, err);
    case PR_BOX_BOTH:
        return find_both(lister, err);
    }
    return PR_OK;
}

pr_status pr__sqlite_list(pr_store *store, const pr_list_options *opt, pr_list_page *ret_page,
                          pr_record_callback callback, void *user, pr_error *err)
{
    pr__sqlite_store *self = pr__sqlite_store_of(store);
    TRY(pr__sqlite_ready(self, err));
    TRY(pr__sqlite_settings_load(self, err));
    AUTO(pr__arena) arena = pr__arena_new(0);
    if (!arena)
        return pr__fail_nomem(err, ORIGIN);
    page_lister lister = {.store = self,
                          .opt = opt,
                          .state = opt->state ? pr__state_text(opt->state) : NULL,
                          .transport = self->settings.default_transport,
                          .arena = arena,
                          .records = {.store = self, .arena = arena}};
    TRY(pr__cursor_read(opt, &lister.after, err));
    lister.positions = pr__arena_alloc(arena, (opt->limit + 1) * sizeof *lister.positions);
    if (!lister.positions)
        return pr__fail_nomem(err, ORIGIN);
    TRY(pr__sqlite_begin(&self->conn, /* write= */ false, err));
    TRY(pr__sqlite_end(&self->conn, find(&lister, err), err));
    uint32_t found = lister.records.count;
    uint32_t given = pr__records_deliver(&lister.records, callback, user);
    ret_page->count = given;
    ret_page->next[0] = '\0';
    if (given > 0 && (given < found || full(&lister)))
        pr__cursor_write(&lister.positions[given - 1].at, ret_page->next, sizeof ret_page->next);
    return PR_OK;
}
