/*
 * The claim journal: the newest row of a lane, and the next one.
 *
 * Only the newest row of a (reader, lane) is ever read, so each row written carries the whole state
 * of its lane: what a row drops is lost.
 */
#ifndef PR_STORE_SQLITE_JOURNAL_H
#define PR_STORE_SQLITE_JOURNAL_H

#include <stdbool.h>
#include <stdint.h>

#include "base/memory.h"
#include "base/uuid.h"
#include "store/sqlite/connection.h"

/* Takeovers without a settle after which messages of a slice are claimed one at a time. */
#define PR__SQLITE_TAKEOVERS_MAX 3

#define PR__JOURNAL_OWNER_SIZE   128

typedef enum pr__journal_kind {
    PR__JOURNAL_CLAIM = 1,
    PR__JOURNAL_SETTLE,
    PR__JOURNAL_RENEW,
    PR__JOURNAL_RELEASE
} pr__journal_kind;

/* Ids in ascending order. */
typedef struct pr__id_list {
    int64_t *ids;
    uint32_t count;
    uint32_t capacity;
} pr__id_list;

typedef struct pr__suspect {
    int64_t id;
    uint32_t count;
} pr__suspect;

typedef struct pr__suspect_list {
    pr__suspect *suspects;
    uint32_t count;
    uint32_t capacity;
} pr__suspect_list;

typedef struct pr__journal {
    bool stands; /* false: the reader has no row in this lane */
    int64_t seq;
    char token[PR_UUID_TEXT_SIZE];
    char owner[PR__JOURNAL_OWNER_SIZE]; /* kept by rows that name nobody else */
    int64_t pos;
    bool open; /* a slice is open; its ids are in `ids` once they were loaded */
    bool has_rest;
    bool has_suspects;
    uint32_t attempt;
    int64_t lease_until;
    int64_t acked;
    int64_t passed;
    pr__id_list ids;
    pr__id_list rest;
    pr__suspect_list suspects;
} pr__journal;

/* Lists live in an arena; they grow. Errors: NOMEM. */
pr_status pr__id_list_add(pr__id_list *list, pr__arena *arena, int64_t id, pr_error *err);
void pr__id_list_sort(pr__id_list *list);
pr_status pr__suspect_list_set(pr__suspect_list *list, pr__arena *arena, int64_t id, uint32_t count,
                               pr_error *err);
uint32_t pr__suspect_list_get(const pr__suspect_list *list, int64_t id);

/* Read the newest row, without its lists. */
pr_status pr__journal_head(pr__sqlite_conn *conn, int64_t reader, uint32_t lane,
                           pr__journal *ret_journal, pr_error *err);
/* Load the lists that the row has: ids of the open slice (with_ids), rest and suspects. */
pr_status pr__journal_load(pr__sqlite_conn *conn, int64_t reader, uint32_t lane, bool with_ids,
                           pr__arena *arena, pr__journal *journal, pr_error *err);
/* Write the row journal->seq + 1 and set seq to it; owner NULL = the one before. Suspects that are
   in neither list are left out. */
pr_status pr__journal_write(pr__sqlite_conn *conn, int64_t reader, uint32_t lane,
                            pr__journal_kind kind, const char *owner, int64_t now_us,
                            pr__journal *journal, pr_error *err);
/* The token of the row at seq. */
pr_status pr__journal_token(pr__sqlite_conn *conn, int64_t reader, uint32_t lane, int64_t seq,
                            bool *ret_found, char ret_token[PR_UUID_TEXT_SIZE], pr_error *err);

#endif
