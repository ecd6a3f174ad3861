/*
 * Result codes of SQLite, classified.
 *
 * Invariant: after an I/O error, or when the file is damaged or is none, the handle is never used
 * again: SQLite's manual leaves open what such a handle believes of the file.
 */
#include "store/sqlite/failure.h"

#include <stddef.h>

#include "base/error.h"

#define ORIGIN "sqlite"

static const pr__sqlite_class CLASSES[] = {
    {SQLITE_BUSY, PR_E_BUSY, PR_RETRY_SAME, false,
     "another writer holds the database: try again later"},
    {SQLITE_BUSY_SNAPSHOT, PR_E_BUSY, PR_RETRY_SAME, false,
     "another writer committed since this transaction first read: roll it back, and begin it with "
     "BEGIN IMMEDIATE"},
    {SQLITE_LOCKED, PR_E_BUSY, PR_RETRY_SAME, false,
     "another statement of this connection holds the table"},
    {SQLITE_PROTOCOL, PR_E_BUSY, PR_RETRY_SAME, false,
     "the locks of the file are contended: try again later"},
    {SQLITE_SCHEMA, PR_E_BUSY, PR_RETRY_SAME, false, "the schema changed meanwhile: try again"},
    {SQLITE_INTERRUPT, PR_E_BUSY, PR_RETRY_SAME, false, "it was cut short"},
    {SQLITE_NOMEM, PR_E_NOMEM, PR_RETRY_SAME, false, NULL},
    {SQLITE_IOERR_NOMEM, PR_E_NOMEM, PR_RETRY_SAME, false, NULL},
    {SQLITE_FULL, PR_E_BACKEND, PR_RETRY_SAME, false, "make room on the disk"},
    {SQLITE_TOOBIG, PR_E_LIMIT, PR_RETRY_NEVER, false, "a value is larger than SQLite takes"},
    {SQLITE_CONSTRAINT, PR_E_BACKEND, PR_RETRY_NEVER, false, NULL},
    {SQLITE_CONSTRAINT_CHECK, PR_E_CONTENT, PR_RETRY_NEVER, false, NULL},
    {SQLITE_CONSTRAINT_DATATYPE, PR_E_CONTENT, PR_RETRY_NEVER, false, NULL},
    {SQLITE_CONSTRAINT_NOTNULL, PR_E_CONTENT, PR_RETRY_NEVER, false, NULL},
    {SQLITE_READONLY, PR_E_BACKEND, PR_RETRY_NEVER, false, "make the file and its folder writable"},
    {SQLITE_READONLY_DBMOVED, PR_E_BACKEND, PR_RETRY_RECONNECT, true,
     "the file was moved or replaced: open it again"},
    {SQLITE_PERM, PR_E_BACKEND, PR_RETRY_NEVER, false, "make the file and its folder accessible"},
    {SQLITE_AUTH, PR_E_BACKEND, PR_RETRY_NEVER, false, NULL},
    {SQLITE_CANTOPEN, PR_E_BACKEND, PR_RETRY_RECONNECT, false,
     "look at the path and the rights of its folder"},
    {SQLITE_IOERR, PR_E_BACKEND, PR_RETRY_RECONNECT, true,
     "look at the disk, then open the store again"},
    {SQLITE_CORRUPT, PR_E_BACKEND, PR_RETRY_NEVER, true,
     "the database is damaged: stop, and restore or `.recover` it"},
    {SQLITE_NOTADB, PR_E_BACKEND, PR_RETRY_NEVER, true, "name an SQLite file, or restore this one"},
    {SQLITE_MISUSE, PR_E_BACKEND, PR_RETRY_NEVER, false, NULL},
    {SQLITE_ERROR, PR_E_BACKEND, PR_RETRY_NEVER, false, NULL},
};

static const pr__sqlite_class OTHER = {0, PR_E_BACKEND, PR_RETRY_NEVER, false, NULL};

static const pr__sqlite_class *find(int code)
{
    for (size_t i = 0; i < sizeof CLASSES / sizeof CLASSES[0]; i++)
        if (CLASSES[i].code == code)
            return &CLASSES[i];
    return NULL;
}

const pr__sqlite_class *pr__sqlite_classify(int code)
{
    const pr__sqlite_class *found = find(code);
    if (!found)
        found = find(code & 0xff);
    return found ? found : &OTHER;
}

pr_status pr__sqlite_fail(pr__sqlite_conn *conn, int code, pr_error *err)
{
    int extended = code;
    if (conn->db && (code & 0xff) == code && (sqlite3_extended_errcode(conn->db) & 0xff) == code)
        extended = sqlite3_extended_errcode(conn->db);
    const pr__sqlite_class *class = pr__sqlite_classify(extended);
    if (class->poison && !conn->borrowed)
        conn->poisoned_code = extended;
    const char *text = conn->db && sqlite3_errcode(conn->db) != SQLITE_OK
                           ? sqlite3_errmsg(conn->db)
                           : sqlite3_errstr(extended);
    bool first = err && err->status == PR_OK;
    pr_status status =
        pr__fail_retry(err, class->status, class->retry, ORIGIN, "%s (code %d)%s%s", text, extended,
                       class->advice ? ": " : "", class->advice ? class->advice : "");
    if (first) {
        err->backend_code = extended;
        err->os_errno = conn->db ? sqlite3_system_errno(conn->db) : 0;
    }
    return status;
}

pr_status pr__sqlite_usable(const pr__sqlite_conn *conn, pr_error *err)
{
    if (conn->poisoned_code == 0)
        return PR_OK;
    const pr__sqlite_class *class = pr__sqlite_classify(conn->poisoned_code);
    bool first = err && err->status == PR_OK;
    pr_status status =
        pr__fail_retry(err, PR_E_BACKEND, class->retry, ORIGIN,
                       "this handle is not used again since %s (code %d): %s",
                       sqlite3_errstr(conn->poisoned_code), conn->poisoned_code, class->advice);
    if (first)
        err->backend_code = conn->poisoned_code;
    return status;
}
