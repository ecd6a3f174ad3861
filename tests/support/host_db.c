/*
 * A host program's own connection to either database.
 */
#include "support/host_db.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <libpq-fe.h>
#include <sqlite3.h>

#include <postroom/postgres.h>
#include <postroom/sqlite.h>

#define NAME_HEAD  "postroom_"
#define BUSY_MS    10000
#define TYPE_TRUTH 16 /* the oid of boolean */

struct host_db {
    sqlite3 *file; /* one of the two */
    PGconn *pg;
};

bool host_is_postgres(const char *address)
{
    return strncmp(address, "postgresql://", 13) == 0;
}

static void give_up(const char *what, const char *why)
{
    fprintf(stderr, "host: %s: %s\n", what, why);
    fflush(NULL);
    abort();
}

host_db *host_db_open(const char *address)
{
    host_db *db = calloc(1, sizeof *db);
    if (!db)
        give_up(address, "no memory");
    if (host_is_postgres(address)) {
        db->pg = PQconnectdb(address);
        if (PQstatus(db->pg) != CONNECTION_OK)
            give_up(address, PQerrorMessage(db->pg));
        /* bodies read as the text that they are */
        host_db_run(db, "SET client_min_messages = warning; SET bytea_output = 'escape'");
        return db;
    }
    if (sqlite3_open(address, &db->file) != SQLITE_OK)
        give_up(address, sqlite3_errmsg(db->file));
    sqlite3_busy_timeout(db->file, BUSY_MS);
    return db;
}

void host_db_free(host_db *db)
{
    if (!db)
        return;
    if (db->pg)
        PQfinish(db->pg);
    else
        sqlite3_close(db->file);
    free(db);
}

/* The same statement with the names of PostgreSQL; the caller's: free(). */
static char *translated(const char *sql)
{
    char *copy = strdup(sql);
    if (!copy)
        give_up(sql, "no memory");
    for (char *at = copy; (at = strstr(at, NAME_HEAD)) != NULL; at += strlen(NAME_HEAD))
        at[strlen(NAME_HEAD) - 1] = '.';
    return copy;
}

static PGresult *run_postgres(PGconn *pg, const char *sql)
{
    char *with_schema = translated(sql);
    PGresult *result = PQexec(pg, with_schema);
    free(with_schema);
    return result;
}

static bool went_well(const PGresult *result)
{
    ExecStatusType status = PQresultStatus(result);
    return status == PGRES_COMMAND_OK || status == PGRES_TUPLES_OK;
}

static void tell(char *ret_why, size_t size, const char *why)
{
    if (ret_why && size > 0)
        snprintf(ret_why, size, "%s", why);
}

bool host_db_try(host_db *db, const char *sql, char *ret_why, size_t size)
{
    if (!db->pg) {
        char *message = NULL;
        bool well = sqlite3_exec(db->file, sql, NULL, NULL, &message) == SQLITE_OK;
        tell(ret_why, size, message ? message : "");
        sqlite3_free(message);
        return well;
    }
    PGresult *result = run_postgres(db->pg, sql);
    bool well = went_well(result);
    tell(ret_why, size, well ? "" : PQerrorMessage(db->pg));
    PQclear(result);
    return well;
}

void host_db_run(host_db *db, const char *sql)
{
    char why[512];
    if (!host_db_try(db, sql, why, sizeof why))
        give_up(sql, why);
}

static bool ask_file(sqlite3 *file, const char *sql, char *out, size_t size)
{
    sqlite3_stmt *stmt = NULL;
    int code = sqlite3_prepare_v2(file, sql, -1, &stmt, NULL);
    if (code == SQLITE_OK)
        code = sqlite3_step(stmt);
    bool well = code == SQLITE_ROW || code == SQLITE_DONE;
    const char *text = code == SQLITE_ROW ? (const char *)sqlite3_column_text(stmt, 0) : "";
    tell(out, size, !well ? sqlite3_errmsg(file) : text ? text : "");
    sqlite3_finalize(stmt);
    return well;
}

/* A truth is 1 or 0, as on SQLite. */
static bool ask_postgres(PGconn *pg, const char *sql, char *out, size_t size)
{
    PGresult *result = run_postgres(pg, sql);
    bool well = went_well(result);
    const char *text = "";
    if (well && PQntuples(result) > 0 && !PQgetisnull(result, 0, 0))
        text = PQgetvalue(result, 0, 0);
    if (well && PQnfields(result) > 0 && PQftype(result, 0) == TYPE_TRUTH)
        text = text[0] == 't' ? "1" : text[0] == 'f' ? "0" : "";
    tell(out, size, well ? text : PQerrorMessage(pg));
    PQclear(result);
    return well;
}

bool host_db_ask(host_db *db, const char *sql, char *out, size_t size)
{
    return db->pg ? ask_postgres(db->pg, sql, out, size) : ask_file(db->file, sql, out, size);
}

int64_t host_db_number(host_db *db, const char *sql)
{
    char text[512];
    if (!host_db_ask(db, sql, text, sizeof text))
        give_up(sql, text);
    return strtoll(text, NULL, 10);
}

pr_status host_db_prepare(host_db *db, int64_t busy_ms, pr_error *err)
{
    return db->pg ? PR_OK : pr_sqlite_prepare(db->file, busy_ms, err);
}

pr_status host_store_open(const char *address, const host_settings *settings, pr_store **ret_store,
                          pr_error *err)
{
    host_settings of = settings ? *settings : (host_settings){.busy_ms = BUSY_MS};
    if (host_is_postgres(address)) {
        pr_postgres_options opt =
            PR_POSTGRES_OPTIONS(.conninfo = address, .schema_check_off = of.create,
                                .busy_ms = of.busy_ms, .clock = of.clock, .observer = of.observer);
        return pr_postgres_store_open(&opt, ret_store, err);
    }
    pr_sqlite_options opt =
        PR_SQLITE_OPTIONS(.path = address, .create = of.create, .schema_check_off = of.create,
                          .busy_ms = of.busy_ms, .clock = of.clock, .observer = of.observer);
    return pr_sqlite_store_open(&opt, ret_store, err);
}

pr_status host_unit_join(pr_store *store, host_db *db, pr_unit **ret_unit, pr_error *err)
{
    if (db->pg)
        return pr_postgres_unit_join(store, db->pg, ret_unit, err);
    return pr_sqlite_unit_join(store, db->file, ret_unit, err);
}

bool host_unit_try(pr_unit *unit, const char *sql)
{
    sqlite3 *file = pr_sqlite_unit_connection(unit);
    if (file)
        return sqlite3_exec(file, sql, NULL, NULL, NULL) == SQLITE_OK;
    PGconn *pg = pr_postgres_unit_connection(unit);
    if (!pg)
        return false;
    PGresult *result = run_postgres(pg, sql);
    bool well = went_well(result);
    PQclear(result);
    return well;
}

static bool file_try_text(sqlite3 *file, const char *sql, const char *text)
{
    sqlite3_stmt *stmt = NULL;
    if (sqlite3_prepare_v2(file, sql, -1, &stmt, NULL) != SQLITE_OK)
        return false;
    sqlite3_bind_text(stmt, 1, text, -1, SQLITE_TRANSIENT);
    int code = sqlite3_step(stmt);
    sqlite3_finalize(stmt);
    return code == SQLITE_DONE;
}

bool host_unit_try_text(pr_unit *unit, const char *sql, const char *text)
{
    sqlite3 *file = pr_sqlite_unit_connection(unit);
    if (file)
        return file_try_text(file, sql, text);
    PGconn *pg = pr_postgres_unit_connection(unit);
    if (!pg)
        return false;
    PGresult *result = PQexecParams(pg, sql, 1, NULL, &text, NULL, NULL, 0);
    bool well = went_well(result);
    PQclear(result);
    return well;
}

const void *host_unit_connection(pr_unit *unit)
{
    const void *file = pr_sqlite_unit_connection(unit);
    return file ? file : pr_postgres_unit_connection(unit);
}
