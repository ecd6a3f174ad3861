/*
 * Reading and writing rows of the claim journal.
 *
 * Invariant: nothing here updates or deletes a row; seq grows by one with each row of a lane.
 * Lists are read by SQLite's own json_each and only when they are not empty, which is the rare
 * case.
 */
#include "store/sqlite/journal.h"

#include <stdlib.h>
#include <string.h>

#include "base/buffer.h"
#include "base/error.h"
#include "base/json_writer.h"
#include "base/text.h"

#define ORIGIN        "sqlite.journal"
#define LIST_CAPACITY 16

static bool grow(void **items, uint32_t count, uint32_t *capacity, size_t size, pr__arena *arena)
{
    if (count < *capacity)
        return true;
    uint32_t wanted = *capacity ? *capacity * 2 : LIST_CAPACITY;
    void *larger = pr__arena_alloc(arena, wanted * size);
    if (!larger)
        return false;
    if (count > 0)
        memcpy(larger, *items, count * size);
    *items = larger;
    *capacity = wanted;
    return true;
}

pr_status pr__id_list_add(pr__id_list *list, pr__arena *arena, int64_t id, pr_error *err)
{
    void *items = list->ids;
    if (!grow(&items, list->count, &list->capacity, sizeof *list->ids, arena))
        return pr__fail_nomem(err, ORIGIN);
    list->ids = items;
    list->ids[list->count++] = id;
    return PR_OK;
}

static int compare_ids(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a;
    int64_t y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

void pr__id_list_sort(pr__id_list *list)
{
    if (list->count > 1)
        qsort(list->ids, list->count, sizeof *list->ids, compare_ids);
}

pr_status pr__suspect_list_set(pr__suspect_list *list, pr__arena *arena, int64_t id, uint32_t count,
                               pr_error *err)
{
    for (uint32_t i = 0; i < list->count; i++) {
        if (list->suspects[i].id == id) {
            list->suspects[i].count = count;
            return PR_OK;
        }
    }
    if (count == 0)
        return PR_OK;
    void *items = list->suspects;
    if (!grow(&items, list->count, &list->capacity, sizeof *list->suspects, arena))
        return pr__fail_nomem(err, ORIGIN);
    list->suspects = items;
    list->suspects[list->count++] = (pr__suspect){id, count};
    return PR_OK;
}

uint32_t pr__suspect_list_get(const pr__suspect_list *list, int64_t id)
{
    for (uint32_t i = 0; i < list->count; i++)
        if (list->suspects[i].id == id)
            return list->suspects[i].count;
    return 0;
}

static const char SQL_HEAD[] =
    "SELECT seq, token, pos, ids <> '[]', rest <> '[]', suspects <> '{}', attempt, lease_until, "
    "acked, passed, owner FROM {p}_outbox_claim WHERE reader = ?1 AND lane = ?2 ORDER BY seq DESC "
    "LIMIT 1";

static void copy_token(char out[PR_UUID_TEXT_SIZE], sqlite3_stmt *stmt, int column)
{
    const char *token = (const char *)sqlite3_column_text(stmt, column);
    pr__format(out, PR_UUID_TEXT_SIZE, "%s", token ? token : "");
}

pr_status pr__journal_head(pr__sqlite_conn *conn, int64_t reader, uint32_t lane,
                           pr__journal *ret_journal, pr_error *err)
{
    memset(ret_journal, 0, sizeof *ret_journal);
    AUTO_STMT stmt = NULL;
    bool row = false;
    TRY(pr__sqlite_query(conn, SQL_HEAD, &stmt, err, "ii", reader, (int64_t)lane));
    TRY(pr__sqlite_step(conn, stmt, &row, err));
    if (!row)
        return PR_OK;
    ret_journal->stands = true;
    ret_journal->seq = sqlite3_column_int64(stmt, 0);
    copy_token(ret_journal->token, stmt, 1);
    ret_journal->pos = sqlite3_column_int64(stmt, 2);
    ret_journal->open = sqlite3_column_int(stmt, 3) != 0;
    ret_journal->has_rest = sqlite3_column_int(stmt, 4) != 0;
    ret_journal->has_suspects = sqlite3_column_int(stmt, 5) != 0;
    ret_journal->attempt = (uint32_t)sqlite3_column_int64(stmt, 6);
    ret_journal->lease_until = sqlite3_column_int64(stmt, 7);
    ret_journal->acked = sqlite3_column_int64(stmt, 8);
    ret_journal->passed = sqlite3_column_int64(stmt, 9);
    const char *owner = (const char *)sqlite3_column_text(stmt, 10);
    pr__format(ret_journal->owner, sizeof ret_journal->owner, "%s", owner ? owner : "");
    return PR_OK;
}

static const char SQL_IDS[] = "SELECT e.value FROM {p}_outbox_claim AS j, json_each(j.ids) AS e "
                              "WHERE j.reader = ?1 AND j.lane = ?2 AND j.seq = ?3";
static const char SQL_REST[] = "SELECT e.value FROM {p}_outbox_claim AS j, json_each(j.rest) AS e "
                               "WHERE j.reader = ?1 AND j.lane = ?2 AND j.seq = ?3";
static const char SQL_SUSPECTS[] =
    "SELECT CAST(e.key AS INTEGER), e.value FROM {p}_outbox_claim AS j, json_each(j.suspects) AS e "
    "WHERE j.reader = ?1 AND j.lane = ?2 AND j.seq = ?3";

static pr_status load_ids(pr__sqlite_conn *conn, const char *sql, int64_t reader, uint32_t lane,
                          int64_t seq, pr__arena *arena, pr__id_list *list, pr_error *err)
{
    AUTO_STMT stmt = NULL;
    bool row = false;
    TRY(pr__sqlite_query(conn, sql, &stmt, err, "iii", reader, (int64_t)lane, seq));
    for (;;) {
        TRY(pr__sqlite_step(conn, stmt, &row, err));
        if (!row)
            break;
        TRY(pr__id_list_add(list, arena, sqlite3_column_int64(stmt, 0), err));
    }
    pr__id_list_sort(list);
    return PR_OK;
}

static pr_status load_suspects(pr__sqlite_conn *conn, int64_t reader, uint32_t lane, int64_t seq,
                               pr__arena *arena, pr__suspect_list *list, pr_error *err)
{
    AUTO_STMT stmt = NULL;
    bool row = false;
    TRY(pr__sqlite_query(conn, SQL_SUSPECTS, &stmt, err, "iii", reader, (int64_t)lane, seq));
    for (;;) {
        TRY(pr__sqlite_step(conn, stmt, &row, err));
        if (!row)
            return PR_OK;
        TRY(pr__suspect_list_set(list, arena, sqlite3_column_int64(stmt, 0),
                                 (uint32_t)sqlite3_column_int64(stmt, 1), err));
    }
}

static pr_status load(pr__sqlite_conn *conn, int64_t reader, uint32_t lane, bool with_ids,
                      pr__arena *arena, pr__journal *journal, pr_error *err)
{
    if (with_ids && journal->open)
        TRY(load_ids(conn, SQL_IDS, reader, lane, journal->seq, arena, &journal->ids, err));
    if (journal->has_rest)
        TRY(load_ids(conn, SQL_REST, reader, lane, journal->seq, arena, &journal->rest, err));
    if (journal->has_suspects)
        TRY(load_suspects(conn, reader, lane, journal->seq, arena, &journal->suspects, err));
    return PR_OK;
}

pr_status pr__journal_load(pr__sqlite_conn *conn, int64_t reader, uint32_t lane, bool with_ids,
                           pr__arena *arena, pr__journal *journal, pr_error *err)
{
    pr_status status = load(conn, reader, lane, with_ids, arena, journal, err);
    if (status == PR_E_BACKEND)
        pr__error_context(err, "row (reader %lld, lane %u, seq %lld) of '%s_outbox_claim'",
                          (long long)reader, lane, (long long)journal->seq, conn->prefix);
    return status;
}

static void write_ids(pr__json *json, const pr__id_list *list)
{
    pr__json_array_begin(json);
    for (uint32_t i = 0; i < list->count; i++)
        pr__json_int(json, list->ids[i]);
    pr__json_array_end(json);
}

static bool in_list(const pr__id_list *list, int64_t id)
{
    return list->count > 0 &&
           bsearch(&id, list->ids, list->count, sizeof *list->ids, compare_ids) != NULL;
}

static void write_suspects(pr__json *json, const pr__journal *journal)
{
    pr__json_object_begin(json);
    for (uint32_t i = 0; i < journal->suspects.count; i++) {
        const pr__suspect *suspect = &journal->suspects.suspects[i];
        if (suspect->count == 0 ||
            (!in_list(&journal->ids, suspect->id) && !in_list(&journal->rest, suspect->id)))
            continue;
        char key[24];
        pr__format(key, sizeof key, "%lld", (long long)suspect->id);
        pr__json_member_uint(json, key, suspect->count);
    }
    pr__json_object_end(json);
}

static int64_t lowest(const pr__journal *journal)
{
    int64_t low = journal->pos + 1;
    if (journal->ids.count > 0 && journal->ids.ids[0] < low)
        low = journal->ids.ids[0];
    if (journal->rest.count > 0 && journal->rest.ids[0] < low)
        low = journal->rest.ids[0];
    return low;
}

static const char *kind_text(pr__journal_kind kind)
{
    switch (kind) {
    case PR__JOURNAL_CLAIM:
        return "claim";
    case PR__JOURNAL_SETTLE:
        return "settle";
    case PR__JOURNAL_RENEW:
        return "renew";
    case PR__JOURNAL_RELEASE:
        return "release";
    }
    return "";
}

static const char SQL_WRITE[] =
    "INSERT INTO {p}_outbox_claim (reader, lane, seq, kind, token, owner, pos, low, ids, rest, "
    "suspects, attempt, lease_until, acked, passed, at) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, "
    "?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16)";

pr_status pr__journal_write(pr__sqlite_conn *conn, int64_t reader, uint32_t lane,
                            pr__journal_kind kind, const char *owner, int64_t now_us,
                            pr__journal *journal, pr_error *err)
{
    if (owner)
        pr__format(journal->owner, sizeof journal->owner, "%s", owner);
    AUTO_BUFFER ids = PR_BUFFER_INIT;
    AUTO_BUFFER rest = PR_BUFFER_INIT;
    AUTO_BUFFER suspects = PR_BUFFER_INIT;
    pr__json json;
    pr__json_init(&json, &ids);
    write_ids(&json, &journal->ids);
    pr__json_init(&json, &rest);
    write_ids(&json, &journal->rest);
    pr__json_init(&json, &suspects);
    write_suspects(&json, journal);
    const char *ids_text = pr__buffer_text(&ids);
    const char *rest_text = pr__buffer_text(&rest);
    const char *suspects_text = pr__buffer_text(&suspects);
    if (!ids_text || !rest_text || !suspects_text)
        return pr__fail_nomem(err, ORIGIN);
    int64_t changes = 0;
    TRY(pr__sqlite_run(conn, SQL_WRITE, &changes, err, "iiitttiitttiiiii", reader, (int64_t)lane,
                       journal->seq + 1, kind_text(kind), journal->token, journal->owner,
                       journal->pos, lowest(journal), ids_text, rest_text, suspects_text,
                       (int64_t)journal->attempt, journal->lease_until, journal->acked,
                       journal->passed, now_us));
    TRY(pr__sqlite_wrote_one(conn, changes, "outbox_claim", err));
    journal->seq++;
    return PR_OK;
}

static const char SQL_TOKEN[] =
    "SELECT token FROM {p}_outbox_claim WHERE reader = ?1 AND lane = ?2 AND seq = ?3";

pr_status pr__journal_token(pr__sqlite_conn *conn, int64_t reader, uint32_t lane, int64_t seq,
                            bool *ret_found, char ret_token[PR_UUID_TEXT_SIZE], pr_error *err)
{
    AUTO_STMT stmt = NULL;
    TRY(pr__sqlite_query(conn, SQL_TOKEN, &stmt, err, "iii", reader, (int64_t)lane, seq));
    TRY(pr__sqlite_step(conn, stmt, ret_found, err));
    if (*ret_found)
        copy_token(ret_token, stmt, 0);
    return PR_OK;
}
