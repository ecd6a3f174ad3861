/*
 * A connection: one sqlite3 handle set up our way, its prepared statements, its transactions.
 *
 * Statements are named by their SQL: a string constant of the caller, with {p} for the prefix of
 * the table names, is prepared once a connection and found again by its address.
 */
#ifndef PR_STORE_SQLITE_CONNECTION_H
#define PR_STORE_SQLITE_CONNECTION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <sqlite3.h>

#include <postroom/error.h>

#include "store/sqlite/line.h"

#define PR__SQLITE_STATEMENTS_MAX  256 /* slots of the cache; a power of two */
#define PR__SQLITE_PREFIX_SIZE     64

#define PR__SQLITE_BUSY_MS_DEFAULT 5000
#define PR__SQLITE_BUSY_MS_MAX     (60LL * 60 * 1000)

/* Of our connections and of those that hosts prepare. A log of writes that was checkpointed gives
   its room back when it is begun anew, or its size would ask for a checkpoint for ever. */
#define PR__SQLITE_PRAGMAS                                                                         \
    "PRAGMA synchronous = FULL; PRAGMA wal_autocheckpoint = 0; PRAGMA journal_size_limit = "       \
    "1048576"

typedef struct pr__sqlite_statement {
    const char *sql; /* the template's address; NULL = free */
    sqlite3_stmt *stmt;
} pr__sqlite_statement;

typedef struct pr__sqlite_conn {
    sqlite3 *db;
    char prefix[PR__SQLITE_PREFIX_SIZE];
    int64_t busy_ms;
    int64_t busy_since_us; /* monotonic: when the wait in hand began */
    bool waiting;          /* BEGIN IMMEDIATE is in hand */
    int turn;              /* the sign that we wait (turn.h); -1 = none */
    pr__line *line;        /* of this process, shared with clones; NULL = a host's handle */
    bool in_turn;          /* the turn in line is ours: a write transaction is open, or begun */
    int poisoned_code;     /* not 0: an I/O error or damage; the handle is not used again */
    uint64_t own_commits;  /* that wrote; data_version does not tell of them */
    bool borrowed;         /* db is the host's */
    uint32_t statement_count;
    pr__sqlite_statement statements[PR__SQLITE_STATEMENTS_MAX];
} pr__sqlite_conn;

/* Open path and set the handle up: FULL, busy handler, no checkpoints by itself. line: where it
   stands to write; borrowed, and not looked at after pr__sqlite_conn_done. */
pr_status pr__sqlite_conn_open(pr__sqlite_conn *conn, const char *path, const char *prefix,
                               int64_t busy_ms, bool create, pr__line *line, pr_error *err);
/* Turn write-ahead logging on; it stays with the file. */
pr_status pr__sqlite_conn_use_wal(pr__sqlite_conn *conn, pr_error *err);
/* Use a handle of the host as it is. */
void pr__sqlite_conn_borrow(pr__sqlite_conn *conn, sqlite3 *db, const char *prefix);
/* Finalize all statements; close the handle unless it is borrowed. */
void pr__sqlite_conn_done(pr__sqlite_conn *conn);

/* Let those through that wait, after each commit on a handle. Takes the place of a WAL hook. */
void pr__sqlite_give_turns(sqlite3 *db);

/* For a busy handler: sleep before try count + 1 unless waited_us has reached limit_us; the
   handler's answer. How long count tries have slept in all, for a handler that has no clock of its
   own. */
int pr__sqlite_busy_wait(int count, int64_t waited_us, int64_t limit_us);
int64_t pr__sqlite_busy_waited_us(int count);

/* The prepared statement of a template, reset and without bindings. Do not use one template twice
   at the same time. */
pr_status pr__sqlite_prepare(pr__sqlite_conn *conn, const char *sql, sqlite3_stmt **ret_stmt,
                             pr_error *err);
/* Replace {p}. The result is the caller's: pr__free; NULL when out of memory. */
char *pr__sqlite_expand(const char *sql, const char *prefix);

/*
 * Prepare and bind ?1, ?2, … by a format: i int64_t, t const char * (NULL = null), b const void *
 * and size_t (NULL = null), n null (no argument). Text and blobs are borrowed until the statement
 * is reset.
 */
pr_status pr__sqlite_query(pr__sqlite_conn *conn, const char *sql, sqlite3_stmt **ret_stmt,
                           pr_error *err, const char *format, ...);
/* The same, run to its end; *ret_changes (may be NULL): rows changed. */
pr_status pr__sqlite_run(pr__sqlite_conn *conn, const char *sql, int64_t *ret_changes,
                         pr_error *err, const char *format, ...);
/* One integer of one row; *ret_found (may be NULL) false: no row, or null. */
/* One row must have been written: a trigger of other hands can refuse a row without an error.
   table: the base name behind the prefix. Errors: BACKEND. */
pr_status pr__sqlite_wrote_one(const pr__sqlite_conn *conn, int64_t changes, const char *table,
                               pr_error *err);
pr_status pr__sqlite_int(pr__sqlite_conn *conn, const char *sql, int64_t *ret_value,
                         bool *ret_found, pr_error *err, const char *format, ...);
/* Step; *ret_row false at the end. */
pr_status pr__sqlite_step(pr__sqlite_conn *conn, sqlite3_stmt *stmt, bool *ret_row, pr_error *err);
/* Reset and forget the bindings; accepts NULL. */
void pr__sqlite_reset(sqlite3_stmt *stmt);

static inline void pr__sqlite_auto_reset(sqlite3_stmt **stmt)
{
    pr__sqlite_reset(*stmt);
}
/* A statement that is reset when it goes out of scope: AUTO_STMT stmt = NULL; */
#define AUTO_STMT __attribute__((cleanup(pr__sqlite_auto_reset))) sqlite3_stmt *

/* Let the next in line write: the write transaction has ended, or is about to. */
void pr__sqlite_give_turn(pr__sqlite_conn *conn);

/* Is a transaction open on the handle? */
bool pr__sqlite_in_transaction(const pr__sqlite_conn *conn);
/* BEGIN IMMEDIATE, or BEGIN for reading. STATE: one is open. BUSY: beyond the busy limit. */
pr_status pr__sqlite_begin(pr__sqlite_conn *conn, bool write, pr_error *err);
/* COMMIT; busy is waited for. On failure nothing is open any more, and retry is UNKNOWN unless it
   is sure that nothing was committed. */
pr_status pr__sqlite_commit(pr__sqlite_conn *conn, pr_error *err);
void pr__sqlite_rollback(pr__sqlite_conn *conn);
/* End a transaction by the status of its body: commit, or roll back and return the status. */
pr_status pr__sqlite_end(pr__sqlite_conn *conn, pr_status status, pr_error *err);

#endif
