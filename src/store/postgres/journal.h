/*
 * The claim journal: the newest row of each lane, and the rows that follow it.
 *
 * Only the newest row of a (reader, lane) is ever read, so every row carries the whole state.
 */
#ifndef PR_STORE_POSTGRES_JOURNAL_H
#define PR_STORE_POSTGRES_JOURNAL_H

#include <stdbool.h>
#include <stdint.h>

#include "base/memory.h"
#include "base/uuid.h"
#include "store/postgres/connection.h"
#include "store/postgres/value.h"

/* Takeovers without a settle after which messages of a slice are claimed one at a time. */
#define PR__PG_TAKEOVERS_MAX 3
#define PR__PG_OWNER_SIZE    128

/* Numbers in ascending order: ids, or transactions. */
typedef struct pr__pg_list {
    int64_t *items;
    uint32_t count;
    uint32_t capacity;
} pr__pg_list;

typedef struct pr__pg_journal {
    bool stands; /* false: the reader has no row in this lane */
    bool open;   /* a slice is open: ids is not empty, or */
    bool hidden; /* its lease was live, and its ids were not read */
    int64_t seq;
    int64_t pos, drain_pos, rebase_id;
    int64_t acked, passed;
    int64_t system_id;
    int64_t lease_until_us;
    uint32_t attempt;
    char token[PR_UUID_TEXT_SIZE];
    char owner[PR__PG_OWNER_SIZE]; /* kept by rows that name nobody else */
    pr__pg_list ids, rest;
    pr__pg_list suspects; /* pairs: id, times lost; in no order */
    pr__pg_list pend, drain;
} pr__pg_journal;

/* A row that is to be written. */
typedef struct pr__pg_entry {
    uint32_t lane;
    const char *kind; /* claim, settle, renew, release */
    const pr__pg_journal *row;
    int64_t lease_ms; /* -1 = no slice is open */
    uint64_t xmax;    /* not 0: pend is to have all transactions from it to our own as well */
    bool won;         /* set by the write: it stands, once the commit has succeeded */
} pr__pg_entry;

/* How a message is to be parked by the same statement, if its lane's row is won. */
typedef struct pr__pg_parking {
    uint32_t lane;
    int64_t log_id;
    const char *state;
    int64_t attempts;
    bool deferred;
    bool failed; /* it counts as the first failure */
    int64_t delay_us;
    const char *error;
} pr__pg_parking;

/* Lists live in an arena; they grow. Errors: NOMEM. */
pr_status pr__pg_list_add(pr__pg_list *list, pr__arena *arena, int64_t item, pr_error *err);
void pr__pg_list_sort(pr__pg_list *list); /* and leave doubles out */
/* Items of list that are not in without (sorted). */
pr_status pr__pg_list_subtract(const pr__pg_list *list, const pr__pg_list *without,
                               pr__arena *arena, pr__pg_list *ret_list, pr_error *err);
pr_status pr__pg_suspect_set(pr__pg_list *suspects, pr__arena *arena, int64_t id, uint32_t count,
                             pr_error *err);
uint32_t pr__pg_suspect_get(const pr__pg_list *suspects, int64_t id);

/* The newest row of each lane into ret_rows[lane], the database's time, and the reader's order
   policy: "" when the reader is gone. begins: the transaction of a claim is begun with it. Unless
   whole, ids of slices with a live lease stay hidden. */
pr_status pr__pg_journal_heads(pr__pg_conn *conn, bool begins, int64_t reader, uint32_t lanes,
                               bool whole, pr__arena *arena, pr__pg_journal *ret_rows,
                               int64_t *ret_now_us, char ret_order[8], pr_error *err);
/* What is to be written: rows by lane, ascending; each with seq + 1. */
typedef struct pr__pg_writing {
    int64_t reader;
    int64_t system_id;
    pr__pg_entry *entries;
    uint32_t count;
    const pr__pg_parking *parkings;
    uint32_t parking_count;
} pr__pg_writing;

/* Insert the rows and park what their lanes park, then run what comes after it, as pr__pg_exec_all
   does; the write is the first of all. A row whose place is taken is not won. */
pr_status pr__pg_journal_write(pr__pg_conn *conn, const pr__pg_writing *writing, pr__pg_call *after,
                               int after_count, int *ret_sent, int *ret_done, pr_error *err);
/* Does the row at entry->row->seq + 1 carry the token and kind of the entry? */
pr_status pr__pg_journal_is_mine(pr__pg_conn *conn, int64_t reader, const pr__pg_entry *entry,
                                 bool *ret_mine, pr_error *err);

#endif
