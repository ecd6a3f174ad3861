/*
 * The connection: opening, statements, transactions, waiting for other writers.
 *
 * Invariants: a transaction that writes begins with BEGIN IMMEDIATE (a deferred one fails with
 * BUSY_SNAPSHOT without waiting); the database file is never opened or closed by other means, which
 * would drop the POSIX locks of this process.
 *
 * Must not know: the tables.
 */
#include "store/sqlite/connection.h"

#include <stdarg.h>
#include <string.h>
#include <sys/stat.h>

#include "base/buffer.h"
#include "base/error.h"
#include "base/fault.h"
#include "base/hash.h"
#include "base/memory.h"
#include "base/text.h"
#include "base/time.h"
#include "store/sqlite/failure.h"
#include "store/sqlite/turn.h"

#define ORIGIN "sqlite"

/*
 * SQLite's own handler sleeps up to 100 ms between tries, and a writer that commits in a loop
 * leaves gaps of microseconds: it starves everybody else. Short waits find a gap soon; they grow,
 * so that many waiters of a long transaction cost little.
 */
#define BUSY_SLEEP_MIN_US 100
#define BUSY_SLEEP_MAX_US 2000
#define ROLLBACK_TRIES    3
#define YIELD_LIMIT_US    20000 /* a waiter that is slower than this was stopped, or died */
#define BUSY_TRY_US       90    /* what a try and a timer that comes late cost beside the sleep */

static int64_t busy_sleep_us(int count)
{
    int64_t us = count < 100 ? BUSY_SLEEP_MIN_US : BUSY_SLEEP_MIN_US * (count / 50);
    return us > BUSY_SLEEP_MAX_US ? BUSY_SLEEP_MAX_US : us;
}

int pr__sqlite_busy_wait(int count, int64_t waited_us, int64_t limit_us)
{
    if (waited_us >= limit_us)
        return 0;
    /* waiters that woke together must not stay together */
    pr__sleep_us(busy_sleep_us(count) + pr__monotonic_us() % 61);
    return 1;
}

int64_t pr__sqlite_busy_waited_us(int count)
{
    int64_t us = 0;
    for (int i = 0; i < count && busy_sleep_us(i) < BUSY_SLEEP_MAX_US; i++)
        us += busy_sleep_us(i) + BUSY_TRY_US;
    int grown = BUSY_SLEEP_MAX_US / BUSY_SLEEP_MIN_US * 50;
    if (count > grown)
        us += (int64_t)(count - grown) * (BUSY_SLEEP_MAX_US + BUSY_TRY_US);
    return us;
}

static int busy_handler(void *user, int count)
{
    pr__sqlite_conn *conn = user;
    int64_t now = pr__monotonic_us();
    if (count == 0 && !conn->waiting) /* else it began with the wait in line */
        conn->busy_since_us = now;
    if (conn->waiting && conn->turn < 0)
        conn->turn = pr__turn_take(sqlite3_db_filename(conn->db, "main"));
    return pr__sqlite_busy_wait(count, now - conn->busy_since_us, conn->busy_ms * 1000);
}

/* Runs after the write lock was given up. */
static int after_commit(void *user, sqlite3 *db, const char *name, int pages)
{
    (void)user;
    (void)pages;
    const char *path = sqlite3_db_filename(db, name);
    if (path && path[0])
        pr__turn_yield(path, YIELD_LIMIT_US);
    return SQLITE_OK;
}

void pr__sqlite_give_turns(sqlite3 *db)
{
    sqlite3_wal_hook(db, after_commit, NULL);
}

static pr_status exec(pr__sqlite_conn *conn, const char *sql, pr_error *err)
{
    int code = sqlite3_exec(conn->db, sql, NULL, NULL, NULL);
    return code == SQLITE_OK ? PR_OK : pr__sqlite_fail(conn, code, err);
}

/* Processes that open a new file together meet while the first turns WAL on; that lock is not
   always waited for by the busy handler. */
pr_status pr__sqlite_conn_use_wal(pr__sqlite_conn *conn, pr_error *err)
{
    int64_t until = pr__monotonic_us() + conn->busy_ms * 1000;
    for (;;) {
        sqlite3_stmt *stmt = NULL;
        bool wal = false;
        int code = sqlite3_prepare_v2(conn->db, "PRAGMA journal_mode = WAL", -1, &stmt, NULL);
        if (code == SQLITE_OK)
            code = sqlite3_step(stmt);
        if (code == SQLITE_ROW) {
            const char *mode = (const char *)sqlite3_column_text(stmt, 0);
            wal = mode && strcmp(mode, "wal") == 0;
        }
        sqlite3_finalize(stmt);
        if (wal)
            return PR_OK;
        if (code == SQLITE_ROW)
            return pr__fail(err, PR_E_BACKEND, ORIGIN,
                            "the database does not take write-ahead logging (WAL): keep it on a "
                            "local file system that is writable");
        if ((code & 0xff) != SQLITE_BUSY || pr__monotonic_us() >= until)
            return pr__sqlite_fail(conn, code, err);
        pr__sleep_us(BUSY_SLEEP_MAX_US);
    }
}

static pr_status set_up(pr__sqlite_conn *conn, pr_error *err)
{
    sqlite3_extended_result_codes(conn->db, 1);
    sqlite3_busy_handler(conn->db, busy_handler, conn);
    TRY(exec(conn, PR__SQLITE_PRAGMAS, err));
    pr__sqlite_give_turns(conn->db);
    return PR_OK;
}

pr_status pr__sqlite_conn_open(pr__sqlite_conn *conn, const char *path, const char *prefix,
                               int64_t busy_ms, bool create, pr__line *line, pr_error *err)
{
    memset(conn, 0, sizeof *conn);
    conn->turn = -1;
    conn->line = line;
    pr__format(conn->prefix, sizeof conn->prefix, "%s", prefix);
    conn->busy_ms = busy_ms;
    int flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX | (create ? SQLITE_OPEN_CREATE : 0);
    int code = sqlite3_open_v2(path, &conn->db, flags, NULL);
    pr_status status = code == SQLITE_OK ? PR_OK : pr__sqlite_fail(conn, code, err);
    if (status == PR_OK && sqlite3_db_readonly(conn->db, "main") == 1)
        status = pr__fail(err, PR_E_BACKEND, ORIGIN,
                          "the file is read-only: make the file and its folder writable");
    if (status == PR_OK)
        status = set_up(conn, err);
    if (status != PR_OK)
        pr__sqlite_conn_done(conn);
    return status;
}

void pr__sqlite_conn_borrow(pr__sqlite_conn *conn, sqlite3 *db, const char *prefix)
{
    memset(conn, 0, sizeof *conn);
    conn->turn = -1;
    pr__format(conn->prefix, sizeof conn->prefix, "%s", prefix);
    conn->db = db;
    conn->borrowed = true;
}

void pr__sqlite_conn_done(pr__sqlite_conn *conn)
{
    for (size_t i = 0; i < PR__SQLITE_STATEMENTS_MAX; i++) {
        sqlite3_finalize(conn->statements[i].stmt);
        conn->statements[i] = (pr__sqlite_statement){NULL, NULL};
    }
    conn->statement_count = 0;
    if (!conn->borrowed)
        sqlite3_close_v2(conn->db);
    conn->db = NULL;
    pr__sqlite_give_turn(conn);
}

char *pr__sqlite_expand(const char *sql, const char *prefix)
{
    AUTO_BUFFER text = PR_BUFFER_INIT;
    for (const char *at = sql;;) {
        const char *next = strstr(at, "{p}");
        if (!next) {
            pr__buffer_append_text(&text, at);
            return pr__buffer_take(&text);
        }
        pr__buffer_append(&text, at, (size_t)(next - at));
        pr__buffer_append_text(&text, prefix);
        at = next + 3;
    }
}

static pr__sqlite_statement *find_statement(pr__sqlite_conn *conn, const char *sql)
{
    uintptr_t address = (uintptr_t)sql;
    size_t mask = PR__SQLITE_STATEMENTS_MAX - 1;
    size_t i = (size_t)pr__quick_hash(&address, sizeof address, 0) & mask;
    while (conn->statements[i].sql && conn->statements[i].sql != sql)
        i = (i + 1) & mask;
    return &conn->statements[i];
}

pr_status pr__sqlite_prepare(pr__sqlite_conn *conn, const char *sql, sqlite3_stmt **ret_stmt,
                             pr_error *err)
{
    TRY(pr__sqlite_usable(conn, err));
    pr__sqlite_statement *slot = find_statement(conn, sql);
    if (!slot->sql) {
        if (conn->statement_count >= PR__SQLITE_STATEMENTS_MAX * 3 / 4)
            return pr__fail(err, PR_E_LIMIT, ORIGIN, "more than %d prepared statements",
                            PR__SQLITE_STATEMENTS_MAX * 3 / 4);
        AUTO(char) text = pr__sqlite_expand(sql, conn->prefix);
        if (!text)
            return pr__fail_nomem(err, ORIGIN);
        sqlite3_stmt *stmt = NULL;
        unsigned flags = conn->borrowed ? 0 : SQLITE_PREPARE_PERSISTENT;
        int code = sqlite3_prepare_v3(conn->db, text, -1, flags, &stmt, NULL);
        if (code != SQLITE_OK)
            return pr__sqlite_fail(conn, code, err);
        *slot = (pr__sqlite_statement){sql, stmt};
        conn->statement_count++;
    }
    *ret_stmt = slot->stmt;
    return PR_OK;
}

static int bind_one(sqlite3_stmt *stmt, int i, char kind, va_list *args)
{
    switch (kind) {
    case 'i':
        return sqlite3_bind_int64(stmt, i, va_arg(*args, int64_t));
    case 't': {
        const char *text = va_arg(*args, const char *);
        return text ? sqlite3_bind_text64(stmt, i, text, strlen(text), SQLITE_STATIC, SQLITE_UTF8)
                    : sqlite3_bind_null(stmt, i);
    }
    case 'b': {
        const void *data = va_arg(*args, const void *);
        size_t size = va_arg(*args, size_t);
        return data ? sqlite3_bind_blob64(stmt, i, data, size, SQLITE_STATIC)
                    : sqlite3_bind_null(stmt, i);
    }
    default:
        return sqlite3_bind_null(stmt, i);
    }
}

static pr_status query(pr__sqlite_conn *conn, const char *sql, sqlite3_stmt **ret_stmt,
                       pr_error *err, const char *format, va_list *args)
{
    sqlite3_stmt *stmt = NULL;
    TRY(pr__sqlite_prepare(conn, sql, &stmt, err));
    for (int i = 0; format[i]; i++) {
        int code = bind_one(stmt, i + 1, format[i], args);
        if (code != SQLITE_OK) {
            pr_status status = pr__sqlite_fail(conn, code, err);
            pr__sqlite_reset(stmt);
            return status;
        }
    }
    *ret_stmt = stmt;
    return PR_OK;
}

pr_status pr__sqlite_query(pr__sqlite_conn *conn, const char *sql, sqlite3_stmt **ret_stmt,
                           pr_error *err, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    pr_status status = query(conn, sql, ret_stmt, err, format, &args);
    va_end(args);
    return status;
}

pr_status pr__sqlite_run(pr__sqlite_conn *conn, const char *sql, int64_t *ret_changes,
                         pr_error *err, const char *format, ...)
{
    AUTO_STMT stmt = NULL;
    va_list args;
    va_start(args, format);
    pr_status status = query(conn, sql, &stmt, err, format, &args);
    va_end(args);
    TRY(status);
    bool row = true;
    while (row)
        TRY(pr__sqlite_step(conn, stmt, &row, err));
    if (ret_changes)
        *ret_changes = sqlite3_changes64(conn->db);
    return PR_OK;
}

pr_status pr__sqlite_wrote_one(const pr__sqlite_conn *conn, int64_t changes, const char *table,
                               pr_error *err)
{
    if (changes == 1)
        return PR_OK;
    return pr__fail(err, PR_E_BACKEND, ORIGIN,
                    "a row of '%s_%s' was swallowed without an error: look for a trigger on it, "
                    "and drop that",
                    conn->prefix, table);
}

pr_status pr__sqlite_int(pr__sqlite_conn *conn, const char *sql, int64_t *ret_value,
                         bool *ret_found, pr_error *err, const char *format, ...)
{
    AUTO_STMT stmt = NULL;
    va_list args;
    va_start(args, format);
    pr_status status = query(conn, sql, &stmt, err, format, &args);
    va_end(args);
    TRY(status);
    bool row = false;
    TRY(pr__sqlite_step(conn, stmt, &row, err));
    bool found = row && sqlite3_column_type(stmt, 0) != SQLITE_NULL;
    if (found)
        *ret_value = sqlite3_column_int64(stmt, 0);
    if (ret_found)
        *ret_found = found;
    return PR_OK;
}

pr_status pr__sqlite_step(pr__sqlite_conn *conn, sqlite3_stmt *stmt, bool *ret_row, pr_error *err)
{
    int code = sqlite3_step(stmt);
    /* A check that had no memory to look says no; what is really wrong is wrong again. */
    if (code == SQLITE_CONSTRAINT_CHECK) {
        sqlite3_reset(stmt);
        code = sqlite3_step(stmt);
    }
    if (code != SQLITE_ROW && code != SQLITE_DONE)
        return pr__sqlite_fail(conn, code, err);
    *ret_row = code == SQLITE_ROW;
    return PR_OK;
}

void pr__sqlite_reset(sqlite3_stmt *stmt)
{
    if (!stmt)
        return;
    sqlite3_reset(stmt);
    sqlite3_clear_bindings(stmt);
}

bool pr__sqlite_in_transaction(const pr__sqlite_conn *conn)
{
    return sqlite3_get_autocommit(conn->db) == 0;
}

/* Stand in line before SQLite is asked; whoever does not get the turn in time finds what it would
   have found without a line. */
static pr_status take_turn(pr__sqlite_conn *conn, pr_error *err)
{
    conn->busy_since_us = pr__monotonic_us();
    if (conn->line && !pr__line_enter(conn->line, conn->busy_since_us + conn->busy_ms * 1000))
        return pr__sqlite_fail(conn, SQLITE_BUSY, err);
    conn->in_turn = conn->line != NULL;
    return PR_OK;
}

void pr__sqlite_give_turn(pr__sqlite_conn *conn)
{
    if (conn->in_turn)
        pr__line_leave(conn->line);
    conn->in_turn = false;
}

static const char SQL_BEGIN[] = "BEGIN";
static const char SQL_BEGIN_WRITE[] = "BEGIN IMMEDIATE";
static const char SQL_COMMIT[] = "COMMIT";
static const char SQL_ROLLBACK[] = "ROLLBACK";

pr_status pr__sqlite_begin(pr__sqlite_conn *conn, bool write, pr_error *err)
{
    TRY(pr__sqlite_usable(conn, err));
    if (pr__sqlite_in_transaction(conn))
        return pr__fail(err, PR_E_STATE, ORIGIN,
                        "a transaction is open on this store: finish its unit first, or use a "
                        "clone of the store");
    /* The way out is made before the way in: a rollback is wanted most where memory ran out. */
    sqlite3_stmt *rollback;
    TRY(pr__sqlite_prepare(conn, SQL_ROLLBACK, &rollback, err));
    if (write)
        TRY(take_turn(conn, err));
    conn->waiting = write;
    pr_status status = pr__sqlite_run(conn, write ? SQL_BEGIN_WRITE : SQL_BEGIN, NULL, err, "");
    conn->waiting = false;
    conn->turn = pr__turn_release(conn->turn);
    if (status != PR_OK)
        pr__sqlite_give_turn(conn);
    return status;
}

void pr__sqlite_rollback(pr__sqlite_conn *conn)
{
    for (int i = 0; i < ROLLBACK_TRIES && pr__sqlite_in_transaction(conn); i++) {
        sqlite3_stmt *rollback = NULL;
        if (pr__sqlite_prepare(conn, SQL_ROLLBACK, &rollback, NULL) == PR_OK)
            (void)sqlite3_step(rollback);
        pr__sqlite_reset(rollback);
    }
    if (!pr__sqlite_in_transaction(conn))
        pr__sqlite_give_turn(conn);
}

/* After these a commit record may or may not stand in the WAL. */
static bool outcome_unknown(int code)
{
    return pr__sqlite_classify(code)->poison;
}

/* Run COMMIT, waiting for whoever keeps it busy. The result code. */
static int run_commit(pr__sqlite_conn *conn, sqlite3_stmt *stmt, bool wrote)
{
    int64_t until = pr__monotonic_us() + conn->busy_ms * 1000;
    for (;;) {
        if (wrote && PR_FAULT_FAILS("sqlite.before_commit"))
            return SQLITE_IOERR_FSYNC;
        int code = sqlite3_step(stmt);
        if (code == SQLITE_DONE && wrote && PR_FAULT_FAILS("sqlite.after_commit"))
            return SQLITE_IOERR_FSYNC; /* it stands, and we do not know */
        if ((code & 0xff) != SQLITE_BUSY || !pr__sqlite_in_transaction(conn) ||
            pr__monotonic_us() >= until)
            return code;
        sqlite3_reset(stmt);
        pr__sleep_us(BUSY_SLEEP_MAX_US);
    }
}

pr_status pr__sqlite_commit(pr__sqlite_conn *conn, pr_error *err)
{
    sqlite3_stmt *stmt = NULL;
    bool wrote = sqlite3_txn_state(conn->db, "main") == SQLITE_TXN_WRITE;
    pr_error found = PR_ERROR_INIT;
    pr_status status = pr__sqlite_prepare(conn, SQL_COMMIT, &stmt, &found);
    if (status == PR_OK) {
        int code = run_commit(conn, stmt, wrote);
        if (code == SQLITE_DONE) {
            pr__sqlite_reset(stmt);
            pr__sqlite_give_turn(conn);
            conn->own_commits += wrote;
            return PR_OK;
        }
        status = pr__sqlite_fail(conn, code, &found);
        pr__sqlite_reset(stmt);
        if (wrote && outcome_unknown(found.backend_code))
            found.retry = PR_RETRY_UNKNOWN;
    }
    pr__sqlite_rollback(conn);
    pr__error_context(&found, "commit");
    pr__error_copy(err, &found);
    return status;
}

pr_status pr__sqlite_end(pr__sqlite_conn *conn, pr_status status, pr_error *err)
{
    if (status == PR_OK)
        return pr__sqlite_commit(conn, err);
    pr__sqlite_rollback(conn);
    return status;
}
