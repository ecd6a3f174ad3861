/*
 * A connection: one PGconn used our way, its statements, its transactions, its deadlines.
 *
 * Nothing is kept in the session: what a transaction needs is set in it. Statements are text with
 * {p} for the schema and prefix of the tables; parameters and results are binary.
 */
#ifndef PR_STORE_POSTGRES_CONNECTION_H
#define PR_STORE_POSTGRES_CONNECTION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <libpq-fe.h>

#include <postroom/error.h>

#include "store/postgres/params.h"

#define PR__PG_NAME_SIZE      64
#define PR__PG_STATEMENTS_MAX 256 /* slots of the cache; a power of two */

typedef struct pr__pg_limits {
    int64_t busy_ms;    /* lock_timeout */
    int64_t timeout_ms; /* for one answer */
    int64_t connect_ms; /* a host */
    int64_t idle_ms;    /* idle_in_transaction_session_timeout of our own transactions */
} pr__pg_limits;

typedef struct pr__pg_conn {
    PGconn *pg;                           /* NULL = not connected */
    char schema[PR__PG_NAME_SIZE];        /* in lower case */
    char prefix[PR__PG_NAME_SIZE];        /* "" = none */
    char qualifier[2 * PR__PG_NAME_SIZE]; /* what {p} stands for: "schema".prefix */
    pr__pg_limits limits;
    bool borrowed;       /* pg is the host's */
    bool named;          /* named statements are used */
    bool watching;       /* a unit of ours is open: */
    bool committed;      /* other code has committed it */
    bool begun;          /* other code has begun another transaction in its place */
    bool aborted;        /* a borrowed connection gave no answer: it is not used again */
    uint64_t generation; /* counts connections: what was known of another one is old */
    uint32_t statement_count;
    uint32_t statement_epoch; /* in the names of statements: those that were forgotten may stand */
    uint64_t statements[PR__PG_STATEMENTS_MAX]; /* hashes of texts that are prepared; 0 = free */
} pr__pg_conn;

void pr__pg_conn_init(pr__pg_conn *conn, const char *schema, const char *prefix,
                      const pr__pg_limits *limits, bool named);
/* Connect; conninfo NULL or "" = the PG* variables. The password is in no message. */
pr_status pr__pg_conn_open(pr__pg_conn *conn, const char *conninfo, pr_error *err);
/* Use a connection of the host, as it is: no named statements, no settings. */
void pr__pg_conn_borrow(pr__pg_conn *conn, PGconn *pg, const pr__pg_conn *like);
/* Close our own connection; a borrowed one is marked as not to be used. */
void pr__pg_conn_drop(pr__pg_conn *conn);
/* Forget which statements are prepared. */
void pr__pg_conn_forget(pr__pg_conn *conn);

/* Replace {p} and {n}. The result is the caller's: pr__free; NULL when out of memory. */
char *pr__pg_expand(const pr__pg_conn *conn, const char *sql);

/* Put a limit as a literal in place of each {l}: with a parameter the planner may read a whole
   index. out must hold the text. */
void pr__pg_with_limit(const char *sql, uint32_t limit, char *out, size_t size);

static inline void pr__pg_auto_clear(PGresult **result)
{
    PQclear(*result);
}
/* A result that is cleared when it goes out of scope: AUTO_RESULT result = NULL; */
#define AUTO_RESULT __attribute__((cleanup(pr__pg_auto_clear))) PGresult *

/* Run one statement; *ret_result (may be NULL) is the caller's: PQclear, binary. params may be
   NULL. On an error the transaction that is open is aborted. */
pr_status pr__pg_exec(pr__pg_conn *conn, const char *sql, const pr__pg_params *params,
                      PGresult **ret_result, pr_error *err);
/* One of several statements. */
typedef struct pr__pg_call {
    const char *sql;
    const pr__pg_params *params; /* may be NULL */
    PGresult *result;            /* of one that was done: pr__pg_calls_done */
} pr__pg_call;
#define PR__PG_CALLS_MAX 8

/* Run them in order, up to the first that fails, in one round trip where statements have names.
   *ret_done: so many succeeded; *ret_sent: so many may have. */
pr_status pr__pg_exec_all(pr__pg_conn *conn, pr__pg_call *calls, int count, int *ret_sent,
                          int *ret_done, pr_error *err);
void pr__pg_calls_done(pr__pg_call *calls, int count);
/* Is there a connection that may be used? */
pr_status pr__pg_usable(pr__pg_conn *conn, pr_error *err);
/*
 * The same with $1, $2, … by a format: i int64_t, o bool (int), t const char * (NULL = null), b
 * const void * and size_t (NULL = null), u uuid text (NULL or "" = null), s instant (0 = null).
 */
pr_status pr__pg_query(pr__pg_conn *conn, const char *sql, PGresult **ret_result, pr_error *err,
                       const char *format, ...);
/* Run it; *ret_changes (may be NULL): rows changed. */
pr_status pr__pg_run(pr__pg_conn *conn, const char *sql, int64_t *ret_changes, pr_error *err,
                     const char *format, ...);
/* One integer, boolean or instant of one row; *ret_found (may be NULL) false: no row, or null. */
pr_status pr__pg_int(pr__pg_conn *conn, const char *sql, int64_t *ret_value, bool *ret_found,
                     pr_error *err, const char *format, ...);
/* One or more statements without parameters, in one message; the first error, or the last result.
   */
pr_status pr__pg_script(pr__pg_conn *conn, const char *text, PGresult **ret_result, pr_error *err);

/* Begin a transaction that writes: READ COMMITTED, with our settings, local to it. STATE: one is
   open. */
pr_status pr__pg_begin(pr__pg_conn *conn, pr_error *err);
/* The same with another limit for being idle, or for locks; 0 = the usual. */
pr_status pr__pg_begin_with(pr__pg_conn *conn, int64_t idle_ms, int64_t lock_ms,
                            int64_t statement_ms, pr_error *err);
/* The same for the statements of a claim, or for its reading: they are planned once. */
pr_status pr__pg_begin_claim(pr__pg_conn *conn, bool writes, pr_error *err);
/* And a first statement in the same round trip. On an error a transaction may be open. */
pr_status pr__pg_begin_claim_with(pr__pg_conn *conn, const char *sql, const pr__pg_params *params,
                                  PGresult **ret_result, pr_error *err);
#define PR__PG_BEGIN_SIZE  1000
#define PR__PG_BEGIN_CALLS 2
/* What begins it, to be run with others; text is to stay until then. */
void pr__pg_begin_calls(const pr__pg_conn *conn, bool writes, char text[PR__PG_BEGIN_SIZE],
                        pr__pg_call calls[PR__PG_BEGIN_CALLS]);
/* The same for a unit of work: idle for idle_ms at most; token is kept in its setting
   postroom.unit. */
pr_status pr__pg_begin_unit(pr__pg_conn *conn, int64_t idle_ms, const char *token, pr_error *err);
/* What begins one that is known by the id of its transaction, to be run with others: no token is
   set. It points into itself: not to be copied. */
typedef struct pr__pg_unit_settings {
    char lock_ms[24], idle_ms[24];
    pr__pg_params params;
} pr__pg_unit_settings;
void pr__pg_begin_unit_calls(const pr__pg_conn *conn, int64_t idle_ms,
                             pr__pg_unit_settings *settings, pr__pg_call calls[PR__PG_BEGIN_CALLS]);
/* What is to be said when its first statements were run: so many were done. */
pr_status pr__pg_unit_begun(pr__pg_conn *conn, pr_status status, int done, const pr_error *found,
                            pr_error *err);
/* Begin one that reads, in one snapshot. statement_ms 0 = no limit but timeout_ms. */
pr_status pr__pg_begin_read(pr__pg_conn *conn, int64_t statement_ms, pr_error *err);
#define PR__PG_COMMIT "COMMIT"
/* What the answer to COMMIT says: STATE when it was a ROLLBACK. */
pr_status pr__pg_committed(PGresult *result, pr_error *err);
/* COMMIT. On failure nothing is open any more; retry is UNKNOWN when the answer was lost. */
pr_status pr__pg_commit(pr__pg_conn *conn, pr_error *err);
void pr__pg_rollback(pr__pg_conn *conn);
/* End a transaction by the status of its body: commit, or roll back and return the status. */
pr_status pr__pg_end(pr__pg_conn *conn, pr_status status, pr_error *err);
bool pr__pg_in_transaction(const pr__pg_conn *conn);

#endif
