/*
 * Checking a schema at start: version, tables, columns, indexes, views, the sequence of ids.
 *
 * What is expected is not written down a second time: the migrations are run on an empty database
 * in memory, and the store is compared with it. Extra columns, tables and indexes are fine.
 */
#include "store/sqlite/schema.h"

#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "base/text.h"
#include "store/sqlite/failure.h"
#include "store/sqlite/migration.h"

#define ORIGIN "sqlite.check"

static const char SQL_HAS_VERSION[] =
    "SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = '{p}_schema_version'";
static const char SQL_VERSION[] = "SELECT max(version) FROM {p}_schema_version";

pr_status pr__sqlite_schema_version(pr__sqlite_conn *conn, uint32_t *ret_version, pr_error *err)
{
    int64_t value = 0;
    bool found = false;
    TRY(pr__sqlite_int(conn, SQL_HAS_VERSION, &value, &found, err, ""));
    value = 0;
    if (found)
        TRY(pr__sqlite_int(conn, SQL_VERSION, &value, &found, err, ""));
    *ret_version = (uint32_t)value;
    return PR_OK;
}

pr_status pr__sqlite_schema_newer(const pr__sqlite_store *store, uint32_t version, pr_error *err)
{
    return pr__fail(err, PR_E_SCHEMA, ORIGIN,
                    "schema version %u in '%s' is newer than the %zu of this program: use a newer "
                    "postroom",
                    version, store->path, pr__sqlite_migration_count);
}

static pr_status check_version(pr__sqlite_store *store, pr_error *err)
{
    uint32_t version = 0;
    TRY(pr__sqlite_schema_version(&store->conn, &version, err));
    if (version == 0)
        return pr__fail(err, PR_E_SCHEMA, ORIGIN,
                        "'%s' has no tables with the prefix '%s': run `postroom migrate` on it",
                        store->path, store->conn.prefix);
    if (version > pr__sqlite_migration_count)
        return pr__sqlite_schema_newer(store, version, err);
    if (version < pr__sqlite_migration_count)
        return pr__fail(err, PR_E_SCHEMA, ORIGIN,
                        "schema version %u in '%s' is older than the %zu of this program: run "
                        "`postroom migrate` on it",
                        version, store->path, pr__sqlite_migration_count);
    return PR_OK;
}

static const char SQL_EXPECTED_COLUMNS[] =
    "SELECT m.name, x.name, x.type, x.\"notnull\", x.pk, x.hidden FROM sqlite_schema AS m, "
    "pragma_table_xinfo(m.name) AS x WHERE m.type = 'table' AND m.name NOT LIKE 'sqlite\\_%' "
    "ESCAPE '\\' ORDER BY m.name, x.cid";
static const char SQL_COLUMN[] = "SELECT type, \"notnull\", pk, hidden FROM pragma_table_xinfo(?1) "
                                 "WHERE name = ?2";

static pr_status check_column(pr__sqlite_conn *conn, sqlite3_stmt *expected, pr_error *err)
{
    const char *table = (const char *)sqlite3_column_text(expected, 0);
    const char *column = (const char *)sqlite3_column_text(expected, 1);
    const char *type = (const char *)sqlite3_column_text(expected, 2);
    if (!table || !column || !type)
        return pr__fail_nomem(err, ORIGIN);
    AUTO_STMT stmt = NULL;
    bool row = false;
    TRY(pr__sqlite_query(conn, SQL_COLUMN, &stmt, err, "tt", table, column));
    TRY(pr__sqlite_step(conn, stmt, &row, err));
    if (!row)
        return pr__fail(err, PR_E_SCHEMA, ORIGIN,
                        "table '%s' lacks its built-in column '%s': restore it", table, column);
    const char *actual = (const char *)sqlite3_column_text(stmt, 0);
    bool same = actual && strcmp(actual, type) == 0;
    for (int i = 1; i <= 3; i++)
        same = same && sqlite3_column_int(stmt, i) == sqlite3_column_int(expected, i + 2);
    if (!same)
        return pr__fail(err, PR_E_SCHEMA, ORIGIN,
                        "built-in column '%s' of table '%s' was altered: it must be %s%s%s", column,
                        table, type, sqlite3_column_int(expected, 3) ? " NOT NULL" : "",
                        sqlite3_column_int(expected, 5) ? ", generated" : "");
    return PR_OK;
}

static pr_status check_columns(pr__sqlite_conn *conn, sqlite3 *model, pr_error *err)
{
    sqlite3_stmt *expected = NULL;
    if (sqlite3_prepare_v2(model, SQL_EXPECTED_COLUMNS, -1, &expected, NULL) != SQLITE_OK)
        return pr__fail(err, PR_E_BACKEND, ORIGIN, "%s", sqlite3_errmsg(model));
    pr_status status = PR_OK;
    while (status == PR_OK && sqlite3_step(expected) == SQLITE_ROW)
        status = check_column(conn, expected, err);
    sqlite3_finalize(expected);
    return status;
}

static const char SQL_EXPECTED_OBJECTS[] = "SELECT name, type, type = 'table' AND sql LIKE "
                                           "'%AUTOINCREMENT%' FROM sqlite_schema WHERE name "
                                           "NOT LIKE 'sqlite\\_%' ESCAPE '\\' ORDER BY rowid";
static const char SQL_OBJECT[] =
    "SELECT type = 'table' AND sql LIKE '%AUTOINCREMENT%', type <> 'table' OR (SELECT strict FROM "
    "pragma_table_list(?1) WHERE schema = 'main') FROM sqlite_schema WHERE name = ?1 AND type = ?2";

static pr_status check_object(pr__sqlite_conn *conn, sqlite3_stmt *expected, pr_error *err)
{
    const char *name = (const char *)sqlite3_column_text(expected, 0);
    const char *type = (const char *)sqlite3_column_text(expected, 1);
    if (!name || !type)
        return pr__fail_nomem(err, ORIGIN);
    AUTO_STMT stmt = NULL;
    bool row = false;
    TRY(pr__sqlite_query(conn, SQL_OBJECT, &stmt, err, "tt", name, type));
    TRY(pr__sqlite_step(conn, stmt, &row, err));
    if (!row)
        return pr__fail(err, PR_E_SCHEMA, ORIGIN, "%s '%s' is missing: restore it", type, name);
    if (sqlite3_column_int(expected, 2) && !sqlite3_column_int(stmt, 0))
        return pr__fail(err, PR_E_SCHEMA, ORIGIN,
                        "table '%s' was altered: its key must be AUTOINCREMENT, or ids come again",
                        name);
    if (!sqlite3_column_int(stmt, 1))
        return pr__fail(err, PR_E_SCHEMA, ORIGIN, "table '%s' was altered: it must be STRICT",
                        name);
    return PR_OK;
}

static pr_status check_objects(pr__sqlite_conn *conn, sqlite3 *model, pr_error *err)
{
    sqlite3_stmt *expected = NULL;
    if (sqlite3_prepare_v2(model, SQL_EXPECTED_OBJECTS, -1, &expected, NULL) != SQLITE_OK)
        return pr__fail(err, PR_E_BACKEND, ORIGIN, "%s", sqlite3_errmsg(model));
    pr_status status = PR_OK;
    while (status == PR_OK && sqlite3_step(expected) == SQLITE_ROW)
        status = check_object(conn, expected, err);
    sqlite3_finalize(expected);
    return status;
}

static const char SQL_EXPECTED_TABLES[] = "SELECT name FROM sqlite_schema WHERE type = 'table' AND "
                                          "name NOT LIKE 'sqlite\\_%' ESCAPE '\\'";
static const char SQL_DEMANDING[] = "SELECT name FROM pragma_table_xinfo(?1) WHERE \"notnull\" AND "
                                    "dflt_value IS NULL AND NOT pk AND NOT hidden";
static const char SQL_KNOWN[] = "SELECT 1 FROM pragma_table_xinfo(?1) WHERE name = ?2";

/* A column that we do not know and that wants a value would refuse every insert of ours. */
static pr_status check_extra(pr__sqlite_conn *conn, sqlite3 *model, const char *table,
                             pr_error *err)
{
    AUTO_STMT stmt = NULL;
    TRY(pr__sqlite_query(conn, SQL_DEMANDING, &stmt, err, "t", table));
    for (;;) {
        bool row = false;
        TRY(pr__sqlite_step(conn, stmt, &row, err));
        if (!row)
            return PR_OK;
        sqlite3_stmt *known = NULL;
        if (sqlite3_prepare_v2(model, SQL_KNOWN, -1, &known, NULL) != SQLITE_OK)
            return pr__fail(err, PR_E_BACKEND, ORIGIN, "%s", sqlite3_errmsg(model));
        sqlite3_bind_text(known, 1, table, -1, SQLITE_STATIC);
        sqlite3_bind_value(known, 2, sqlite3_column_value(stmt, 0));
        bool built_in = sqlite3_step(known) == SQLITE_ROW;
        sqlite3_finalize(known);
        if (!built_in)
            return pr__fail(err, PR_E_SCHEMA, ORIGIN,
                            "table '%s' has an extra column '%s' that is NOT NULL without a "
                            "default: give it one",
                            table, (const char *)sqlite3_column_text(stmt, 0));
    }
}

static pr_status check_extras(pr__sqlite_conn *conn, sqlite3 *model, pr_error *err)
{
    sqlite3_stmt *tables = NULL;
    if (sqlite3_prepare_v2(model, SQL_EXPECTED_TABLES, -1, &tables, NULL) != SQLITE_OK)
        return pr__fail(err, PR_E_BACKEND, ORIGIN, "%s", sqlite3_errmsg(model));
    pr_status status = PR_OK;
    while (status == PR_OK && sqlite3_step(tables) == SQLITE_ROW) {
        const char *table = (const char *)sqlite3_column_text(tables, 0);
        status = table ? check_extra(conn, model, table, err) : pr__fail_nomem(err, ORIGIN);
    }
    sqlite3_finalize(tables);
    return status;
}

static const char SQL_SEQUENCE[] =
    "SELECT coalesce((SELECT seq FROM sqlite_sequence WHERE name = '{p}_outbox'), 0)";
/* The highest id that anybody has seen: in the log, or passed by a reader. */
static const char SQL_HIGHEST[] =
    "WITH RECURSIVE lane (n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM lane WHERE n + 1 < (SELECT "
    "CAST(value AS INTEGER) FROM {p}_setting WHERE name = 'lanes')) SELECT max(coalesce((SELECT "
    "max(id) FROM {p}_outbox), 0), coalesce((SELECT max((SELECT pos FROM {p}_outbox_claim WHERE "
    "reader = s.reader AND lane = lane.n ORDER BY seq DESC LIMIT 1)) FROM {p}_subscription AS s, "
    "lane), 0))";

/* An id that is given a second time would be taken for one that was passed. */
static pr_status check_sequence(pr__sqlite_conn *conn, pr_error *err)
{
    int64_t sequence = 0;
    int64_t highest = 0;
    /* the highest id first: what others insert meanwhile moves the sequence on, never back */
    TRY(pr__sqlite_int(conn, SQL_HIGHEST, &highest, NULL, err, ""));
    TRY(pr__sqlite_int(conn, SQL_SEQUENCE, &sequence, NULL, err, ""));
    if (sequence >= highest)
        return PR_OK;
    return pr__fail(err, PR_E_SCHEMA, ORIGIN,
                    "the sequence of '%s_outbox' stands at %lld, but id %lld was used: run DELETE "
                    "FROM sqlite_sequence WHERE name = '%s_outbox'; INSERT INTO sqlite_sequence "
                    "(name, seq) VALUES ('%s_outbox', %lld);",
                    conn->prefix, (long long)sequence, (long long)highest, conn->prefix,
                    conn->prefix, (long long)highest);
}

static pr_status compare(pr__sqlite_store *store, sqlite3 *model, pr_error *err)
{
    pr__migration_values values = {.prefix = store->conn.prefix,
                                   .default_transport = "database",
                                   .order = "hold",
                                   .lanes = PR_LANES_DEFAULT};
    TRY(pr__migration_model(model, &values, err));
    TRY(check_columns(&store->conn, model, err));
    TRY(check_objects(&store->conn, model, err));
    return check_extras(&store->conn, model, err);
}

pr_status pr__sqlite_check(pr_store *base, pr_error *err)
{
    pr__sqlite_store *store = pr__sqlite_store_of(base);
    TRY(pr__sqlite_ready(store, err));
    TRY(check_version(store, err));
    sqlite3 *model = NULL;
    pr_status status = PR_OK;
    if (sqlite3_open_v2(":memory:", &model, SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX, NULL) !=
        SQLITE_OK)
        status = pr__fail_nomem(err, ORIGIN);
    if (status == PR_OK)
        status = compare(store, model, err);
    sqlite3_close(model);
    TRY(status);
    store->settings.known = false;
    TRY(pr__sqlite_settings_load(store, err));
    return check_sequence(&store->conn, err);
}
