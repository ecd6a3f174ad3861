/*
 * Plain SQL for the demo, as a host program would use it: what is done on SQLite, and which of the
 * two kinds a connection is.
 */
#include "cli/demo/sql.h"

#include <sqlite3.h>
#include <stdlib.h>
#include <string.h>

#include <postroom/postgres.h>
#include <postroom/sqlite.h>

#include "base/buffer.h"
#include "base/error.h"
#include "cli/demo/postgres.h"
#include "cli/store_name.h"

#define ORIGIN      "demo"
#define BUSY_MS     10000
#define COLUMNS_MAX 8

static pr_status failed(sqlite3 *db, pr_error *err)
{
    return pr__fail(err, PR_E_BACKEND, ORIGIN, "a statement of the demo: %s",
                    db ? sqlite3_errmsg(db) : "out of memory");
}

static pr_status open_sqlite(const char *store, bool read_only, pr__demo_db *ret_db, pr_error *err)
{
    sqlite3 *db = NULL;
    const char *path = pr__store_path(store);
    int flags = read_only ? SQLITE_OPEN_READONLY : SQLITE_OPEN_READWRITE;
    pr_status status = PR_OK;
    if (sqlite3_open_v2(path, &db, flags, NULL) != SQLITE_OK)
        status = pr__fail(err, PR_E_BACKEND, ORIGIN, "cannot open '%s': %s", path,
                          db ? sqlite3_errmsg(db) : "out of memory");
    else if (read_only)
        sqlite3_busy_timeout(db, BUSY_MS);
    else
        status = pr_sqlite_prepare(db, BUSY_MS, err);
    if (status != PR_OK)
        sqlite3_close(db);
    else
        ret_db->sqlite = db;
    return status;
}

pr_status pr__demo_open(const char *store, bool read_only, pr__demo_db *ret_db, pr_error *err)
{
    *ret_db = (pr__demo_db){NULL, NULL};
    if (pr__store_kind_of(store) == PR__STORE_POSTGRES)
        return pr__demo_postgres_open(pr__store_conninfo(store), &ret_db->pg, err);
    return open_sqlite(store, read_only, ret_db, err);
}

void pr__demo_close(pr__demo_db *db)
{
    sqlite3_close(db->sqlite);
    pr__demo_postgres_close(db->pg);
    *db = (pr__demo_db){NULL, NULL};
}

pr__demo_db pr__demo_of_unit(pr_unit *unit)
{
    return (pr__demo_db){pr_sqlite_unit_connection(unit), pr_postgres_unit_connection(unit)};
}

pr_status pr__demo_join(pr_store *store, const pr__demo_db *db, pr_unit **ret_unit, pr_error *err)
{
    if (db->pg)
        return pr_postgres_unit_join(store, db->pg, ret_unit, err);
    return pr_sqlite_unit_join(store, db->sqlite, ret_unit, err);
}

/* The statement with the names of the tables; buffer holds it. NULL: out of memory. */
static const char *expanded(const pr__demo_db *db, const char *sql, pr__buffer *buffer)
{
    const char *mark;
    while ((mark = strstr(sql, "{t}")) != NULL) {
        pr__buffer_append(buffer, sql, (size_t)(mark - sql));
        pr__buffer_append_text(buffer, db->pg ? "postroom." : "postroom_");
        sql = mark + strlen("{t}");
    }
    pr__buffer_append_text(buffer, sql);
    return pr__buffer_text(buffer);
}

pr_status pr__demo_exec(const pr__demo_db *db, const char *sql, pr_error *err)
{
    AUTO_BUFFER buffer = PR_BUFFER_INIT;
    const char *text = expanded(db, sql, &buffer);
    if (!text)
        return pr__fail_nomem(err, ORIGIN);
    if (db->pg)
        return pr__demo_postgres_exec(db->pg, text, err);
    if (sqlite3_exec(db->sqlite, text, NULL, NULL, NULL) != SQLITE_OK)
        return failed(db->sqlite, err);
    return PR_OK;
}

static pr_status query_sqlite(sqlite3 *db, const char *sql, const char *const *params,
                              size_t param_count, pr__demo_row row, void *user, pr_error *err)
{
    sqlite3_stmt *statement = NULL;
    int result = sqlite3_prepare_v2(db, sql, -1, &statement, NULL);
    for (size_t i = 0; result == SQLITE_OK && i < param_count; i++)
        result = sqlite3_bind_text(statement, (int)i + 1, params[i], -1, SQLITE_STATIC);
    if (result != SQLITE_OK)
        return failed(db, err); /* the statement is NULL, or ends with the connection */
    while ((result = sqlite3_step(statement)) == SQLITE_ROW) {
        const char *columns[COLUMNS_MAX] = {NULL};
        int count = sqlite3_column_count(statement);
        for (int i = 0; i < count && i < COLUMNS_MAX; i++)
            columns[i] = (const char *)sqlite3_column_text(statement, i);
        if (row)
            row(user, columns, (size_t)count);
    }
    sqlite3_finalize(statement);
    return result == SQLITE_DONE ? PR_OK : failed(db, err);
}

pr_status pr__demo_query(const pr__demo_db *db, const char *sql, const char *const *params,
                         size_t param_count, pr__demo_row row, void *user, pr_error *err)
{
    AUTO_BUFFER buffer = PR_BUFFER_INIT;
    const char *text = expanded(db, sql, &buffer);
    if (!text)
        return pr__fail_nomem(err, ORIGIN);
    if (db->pg)
        return pr__demo_postgres_query(db->pg, text, params, param_count, row, user, err);
    return query_sqlite(db->sqlite, text, params, param_count, row, user, err);
}

typedef struct number {
    int64_t value;
    bool found;
} number;

static void take_number(void *user, const char *const *columns, size_t count)
{
    number *of = user;
    if (count > 0 && columns[0] && !of->found) {
        of->value = strtoll(columns[0], NULL, 10);
        of->found = true;
    }
}

pr_status pr__demo_number(const pr__demo_db *db, const char *sql, const char *const *params,
                          size_t param_count, int64_t *ret_value, pr_error *err)
{
    number of = {0, false};
    TRY(pr__demo_query(db, sql, params, param_count, take_number, &of, err));
    if (!of.found)
        return pr__fail(err, PR_E_BACKEND, ORIGIN, "a statement of the demo gave no number");
    *ret_value = of.value;
    return PR_OK;
}

pr_status pr__demo_begin(const pr__demo_db *db, pr_error *err)
{
    return pr__demo_exec(db, db->pg ? "BEGIN" : "BEGIN IMMEDIATE", err);
}

pr_status pr__demo_lock(const pr__demo_db *db, bool *ret_locked, pr_error *err)
{
    if (db->pg)
        return pr__demo_postgres_lock(db->pg, ret_locked, err);
    int result = sqlite3_exec(db->sqlite, "BEGIN IMMEDIATE", NULL, NULL, NULL);
    *ret_locked = result == SQLITE_OK;
    return result == SQLITE_OK || result == SQLITE_BUSY ? PR_OK : failed(db->sqlite, err);
}

void pr__demo_unlock(const pr__demo_db *db)
{
    pr_status status = pr__demo_exec(db, "ROLLBACK", NULL);
    (void)status; /* the connection is lost, or nothing was open */
}

pr_status pr__demo_bury(const pr__demo_db *db, pr_error *err)
{
    return db->pg ? pr__demo_postgres_bury(db->pg, err) : PR_OK;
}
