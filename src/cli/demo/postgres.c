/*
 * Plain libpq for the demo, as a host program on PostgreSQL would use it.
 */
#include "cli/demo/postgres.h"

#include <libpq-fe.h>
#include <stdlib.h>
#include <string.h>

#include "base/buffer.h"
#include "base/error.h"
#include "base/text.h"
#include "base/time.h"
#include "cli/store_name.h"

#define ORIGIN      "demo"
#define COLUMNS_MAX 8
#define BURY_MAX_US 5000000
#define LOOK_US     1000

static inline void clear(PGresult **result)
{
    PQclear(*result);
}
#define AUTO_RESULT __attribute__((cleanup(clear))) PGresult *

/* The server's first line, without the prefix that libpq puts before it. */
static pr_status failed(PGconn *db, const PGresult *result, pr_error *err)
{
    const char *text = PQresultErrorField(result, PG_DIAG_MESSAGE_PRIMARY);
    if (!text)
        text = PQerrorMessage(db);
    return pr__fail(err, PR_E_BACKEND, ORIGIN, "a statement of the demo: %.*s",
                    (int)strcspn(text, "\n"), text);
}

static void keep_quiet(void *user, const char *text)
{
    (void)user, (void)text;
}

pr_status pr__demo_postgres_open(const char *conninfo, PGconn **ret_db, pr_error *err)
{
    PGconn *db = PQconnectdb(conninfo);
    if (PQstatus(db) != CONNECTION_OK) {
        const char *text = PQerrorMessage(db);
        pr_status status =
            pr__fail(err, PR_E_BACKEND, ORIGIN, "%.*s", (int)strcspn(text, "\n"), text);
        PQfinish(db);
        return status;
    }
    PQsetNoticeProcessor(db, keep_quiet, NULL);
    *ret_db = db;
    return PR_OK;
}

void pr__demo_postgres_close(PGconn *db)
{
    PQfinish(db);
}

static bool is_good(const PGresult *result)
{
    ExecStatusType status = PQresultStatus(result);
    return status == PGRES_COMMAND_OK || status == PGRES_TUPLES_OK;
}

pr_status pr__demo_postgres_exec(PGconn *db, const char *sql, pr_error *err)
{
    AUTO_RESULT result = PQexec(db, sql);
    return is_good(result) ? PR_OK : failed(db, result, err);
}

pr_status pr__demo_postgres_query(PGconn *db, const char *sql, const char *const *params,
                                  size_t param_count, pr__demo_row row, void *user, pr_error *err)
{
    AUTO_RESULT result =
        PQexecParams(db, sql, (int)param_count, NULL, params, NULL, NULL, /* resultFormat= */ 0);
    if (!is_good(result))
        return failed(db, result, err);
    for (int i = 0; row && i < PQntuples(result); i++) {
        const char *columns[COLUMNS_MAX] = {NULL};
        int count = PQnfields(result);
        for (int j = 0; j < count && j < COLUMNS_MAX; j++)
            columns[j] = PQgetisnull(result, i, j) ? NULL : PQgetvalue(result, i, j);
        row(user, columns, (size_t)count);
    }
    return PR_OK;
}

pr_status pr__demo_postgres_lock(PGconn *db, bool *ret_locked, pr_error *err)
{
    AUTO_RESULT result = PQexec(db, "BEGIN; SET LOCAL lock_timeout = '100ms';"
                                    "LOCK TABLE postroom.outbox_claim IN SHARE MODE");
    *ret_locked = is_good(result);
    if (*ret_locked)
        return PR_OK;
    const char *state = PQresultErrorField(result, PG_DIAG_SQLSTATE);
    if (!pr__text_equal(state, "55P03"))
        return failed(db, result, err);
    return pr__demo_postgres_exec(db, "ROLLBACK", err);
}

/* The server does not see that a client died while it waits for a lock: once it gets it, it would
   still do what the client sent before. */
pr_status pr__demo_postgres_bury(PGconn *db, pr_error *err)
{
    static const char waiting[] =
        "SELECT count(pg_terminate_backend(pid)) FROM pg_locks WHERE NOT granted AND "
        "relation = 'postroom.outbox_claim'::regclass";
    const pr__demo_db of = {.pg = db};
    int64_t until_us = pr__monotonic_us() + BURY_MAX_US, left = 1;
    while (left > 0 && pr__monotonic_us() < until_us) {
        TRY(pr__demo_number(&of, waiting, NULL, 0, &left, err));
        if (left > 0)
            pr__sleep_us(LOOK_US);
    }
    return PR_OK;
}

static void append_escaped(pr__buffer *out, const char *text)
{
    for (; *text; text++) {
        if (strchr("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._~/", *text))
            pr__buffer_append_char(out, *text);
        else
            pr__buffer_printf(out, "%%%02X", (unsigned)(unsigned char)*text);
    }
}

/* The server's address with another database, and without its password. */
static pr_status address(const PQconninfoOption *options, const char *name, char *out, size_t size,
                         pr_error *err)
{
    AUTO_BUFFER uri = PR_BUFFER_INIT;
    char before = '?';
    pr__buffer_printf(&uri, "postgresql:///%s", name);
    for (const PQconninfoOption *option = options; option->keyword; option++) {
        if (!option->val || strcmp(option->keyword, "dbname") == 0)
            continue;
        if (strcmp(option->keyword, "password") == 0) {
            if (setenv("PGPASSWORD", option->val, 1) != 0)
                return pr__fail_nomem(err, ORIGIN);
            continue;
        }
        pr__buffer_printf(&uri, "%c%s=", before, option->keyword);
        append_escaped(&uri, option->val);
        before = '&';
    }
    const char *text = pr__buffer_text(&uri);
    if (!text || strlen(text) >= size)
        return pr__fail(err, PR_E_INVALID, ORIGIN, "the address of the server is too long");
    pr__format(out, size, "%s", text);
    return PR_OK;
}

pr_status pr__demo_make_databases(const char *server, const char *const names[2],
                                  char *const ret_stores[2], size_t size, pr_error *err)
{
    pr__demo_db db = {NULL, NULL};
    char sql[128];
    PQconninfoOption *options = PQconninfoParse(pr__store_conninfo(server), NULL);
    if (!options)
        return pr__fail(err, PR_E_INVALID, ORIGIN, "the address of the server cannot be read");
    pr_status status = pr__demo_postgres_open(pr__store_conninfo(server), &db.pg, err);
    for (int i = 0; i < 2 && status == PR_OK; i++) {
        pr__format(sql, sizeof(sql), "CREATE DATABASE %s TEMPLATE template0 ENCODING 'UTF8'",
                   names[i]);
        status = pr__demo_postgres_exec(db.pg, sql, err);
        if (status == PR_OK)
            status = address(options, names[i], ret_stores[i], size, err);
    }
    PQconninfoFree(options);
    pr__demo_close(&db);
    return status;
}
