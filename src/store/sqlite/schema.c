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
#include "store/sqlite/reader.h"

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

static const char SQL_ENCODING[] = "SELECT encoding <> 'UTF-8' FROM pragma_encoding";

pr_status pr__sqlite_schema_encoding(pr__sqlite_store *store, pr_error *err)
{
    int64_t other = 0;
    TRY(pr__sqlite_int(&store->conn, SQL_ENCODING, &other, NULL, err, ""));
    if (other)
        return pr__fail(err, PR_E_SCHEMA, ORIGIN,
                        "'%s' holds its texts in UTF-16: a store needs a database in UTF-8",
                        store->path);
    return PR_OK;
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

/* What stands is copied beside the model, so that a query each finds what differs. */
static const char SQL_BESIDE[] =
    "CREATE TEMP TABLE col (tab TEXT, name TEXT, type TEXT, demanding INTEGER, required INTEGER, "
    "pk "
    "INTEGER, hidden INTEGER, PRIMARY KEY (tab, name)) WITHOUT ROWID; CREATE TEMP TABLE obj (name "
    "TEXT PRIMARY KEY, type TEXT, auto INTEGER, strict INTEGER) WITHOUT ROWID;";
static const char SQL_COLUMNS[] =
    "SELECT m.name, x.name, x.type, x.\"notnull\" AND x.dflt_value IS NULL AND NOT x.pk AND NOT "
    "x.hidden, x.\"notnull\", x.pk, x.hidden FROM sqlite_schema AS m, pragma_table_xinfo(m.name) "
    "AS "
    "x WHERE m.type = 'table' AND substr(m.name, 1, length('{p}_')) = '{p}_'";
static const char SQL_OBJECTS[] =
    "SELECT name, type, type = 'table' AND sql LIKE '%AUTOINCREMENT%', type = 'table' AND sql LIKE "
    "'%)%STRICT%' FROM sqlite_schema WHERE substr(name, 1, length('{p}_')) = '{p}_'";

#define OURS "m.name NOT LIKE 'sqlite\\_%' ESCAPE '\\'"

/* Each query gives a sentence about the first thing that is wrong, or no row. */
static const char *const DIFFERENCES[] = {
    "SELECT 'table ''' || m.name || ''' lacks its built-in column ''' || x.name || ''': restore "
    "it' "
    "FROM sqlite_schema AS m, pragma_table_xinfo(m.name) AS x WHERE m.type = 'table' AND m.name IN "
    "(SELECT name FROM temp.obj) AND " OURS " AND NOT EXISTS (SELECT 1 FROM temp.col AS c WHERE "
    "c.tab = m.name AND c.name = x.name) ORDER BY m.name, x.cid LIMIT 1",
    "SELECT 'built-in column ''' || x.name || ''' of table ''' || m.name || ''' was altered: it "
    "must "
    "be ' || x.type || iif(x.\"notnull\", ' NOT NULL', '') || iif(x.hidden, ', generated', '') || "
    "iif(x.pk, ', column ' || x.pk || ' of the key', '') "
    "FROM "
    "sqlite_schema AS m, pragma_table_xinfo(m.name) AS x CROSS JOIN temp.col AS c ON c.tab = "
    "m.name AND "
    "c.name = x.name WHERE m.type = 'table' AND (c.type, c.required, c.pk, c.hidden) <> (x.type, "
    "x.\"notnull\", x.pk, x.hidden) ORDER BY m.name, x.cid LIMIT 1",
    "SELECT m.type || ' ''' || m.name || ''' is missing: restore it' FROM sqlite_schema AS m "
    "WHERE " OURS
    " AND NOT EXISTS (SELECT 1 FROM temp.obj AS o WHERE o.name = m.name AND o.type = m.type) "
    "ORDER BY m.rowid LIMIT 1",
    "SELECT 'table ''' || m.name || ''' was altered: its key must be AUTOINCREMENT, or ids come "
    "again' FROM sqlite_schema AS m JOIN temp.obj AS o ON o.name = m.name WHERE m.type = 'table' "
    "AND "
    "m.sql LIKE '%AUTOINCREMENT%' AND NOT o.auto LIMIT 1",
    "SELECT 'table ''' || m.name || ''' was altered: it must be STRICT' FROM sqlite_schema AS m "
    "JOIN "
    "temp.obj AS o ON o.name = m.name WHERE m.type = 'table' AND NOT o.strict LIMIT 1",
    "SELECT 'table ''' || c.tab || ''' has an extra column ''' || c.name || ''' that is NOT NULL "
    "without a default: give it one' FROM temp.col AS c WHERE c.demanding AND EXISTS (SELECT 1 "
    "FROM "
    "sqlite_schema AS m WHERE m.name = c.tab) AND NOT EXISTS (SELECT 1 FROM "
    "pragma_table_xinfo(c.tab) AS x WHERE x.name = c.name) LIMIT 1",
};

/* Copy the rows of a query into a table of the model. */
static pr_status copy_rows(pr__sqlite_conn *conn, const char *sql, sqlite3 *model,
                           const char *insert, pr_error *err)
{
    AUTO_STMT from = NULL;
    sqlite3_stmt *to = NULL;
    TRY(pr__sqlite_query(conn, sql, &from, err, ""));
    int code = sqlite3_prepare_v2(model, insert, -1, &to, NULL);
    bool row = true;
    pr_status status = PR_OK;
    while (code == SQLITE_OK && status == PR_OK) {
        status = pr__sqlite_step(conn, from, &row, err);
        if (status != PR_OK || !row)
            break;
        for (int i = 0; i < sqlite3_column_count(from); i++)
            sqlite3_bind_value(to, i + 1, sqlite3_column_value(from, i));
        sqlite3_step(to);
        code = sqlite3_reset(to);
    }
    sqlite3_finalize(to);
    if (status == PR_OK && code != SQLITE_OK)
        status = pr__fail(err, PR_E_BACKEND, ORIGIN, "%s", sqlite3_errmsg(model));
    return status;
}

static pr_status find_difference(sqlite3 *model, const char *sql, pr_error *err)
{
    sqlite3_stmt *stmt = NULL;
    int code = sqlite3_prepare_v2(model, sql, -1, &stmt, NULL);
    if (code == SQLITE_OK)
        code = sqlite3_step(stmt);
    pr_status status = PR_OK;
    if (code == SQLITE_ROW)
        status =
            pr__fail(err, PR_E_SCHEMA, ORIGIN, "%s", (const char *)sqlite3_column_text(stmt, 0));
    else if (code != SQLITE_DONE)
        status = pr__fail(err, PR_E_BACKEND, ORIGIN, "%s", sqlite3_errmsg(model));
    sqlite3_finalize(stmt);
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

static const char SQL_RELAY[] = "SELECT reader FROM {p}_subscription WHERE reader = 1";
static const char SQL_LAST_LANE[] = "SELECT max(lane) FROM {p}_outbox_claim WHERE reader = 1";

/* The text of the lane's expression in a CREATE TABLE, which SQLite keeps as it was given; empty
   when there is none. */
static void find_expression(const char *sql, const char **ret_begin, size_t *ret_size)
{
    const char *begin = sql ? strstr(sql, " GENERATED ALWAYS AS (") : NULL;
    const char *end = begin ? strstr(begin, ") VIRTUAL") : NULL;
    *ret_begin = end ? begin : "";
    *ret_size = end ? (size_t)(end - begin) : 0;
}

static const char SQL_OUTBOX[] =
    "SELECT sql FROM sqlite_schema WHERE type = 'table' AND name = '{p}_outbox'";

/* Who computes another lane than this program thinks sends a key's messages out of order. */
static pr_status check_lane(pr__sqlite_store *store, pr_error *err)
{
    AUTO_STMT stmt = NULL;
    bool row = false;
    const char *stands = "";
    const char *wanted = "";
    size_t stands_size = 0;
    size_t wanted_size = 0;
    const pr__migration_values values = {
        .default_transport = "", .order = "", .lanes = store->settings.lanes};
    AUTO(char)
    text = pr__sqlite_migration_render(pr__sqlite_migrations[0].sql, store->conn.prefix, &values);
    if (!text)
        return pr__fail_nomem(err, ORIGIN);
    TRY(pr__sqlite_query(&store->conn, SQL_OUTBOX, &stmt, err, ""));
    TRY(pr__sqlite_step(&store->conn, stmt, &row, err));
    if (row)
        find_expression((const char *)sqlite3_column_text(stmt, 0), &stands, &stands_size);
    find_expression(text, &wanted, &wanted_size);
    if (stands_size == wanted_size && memcmp(stands, wanted, wanted_size) == 0)
        return PR_OK;
    return pr__fail(err, PR_E_SCHEMA, ORIGIN,
                    "built-in column 'lane' of table '%s_outbox' was altered: it computes other "
                    "lanes than the %u of the setting 'lanes', restore what was changed",
                    store->conn.prefix, store->settings.lanes);
}

/* Of the relay only: a subscription that others broke costs nobody but its own readers. */
static pr_status check_lanes(pr__sqlite_store *store, pr_error *err)
{
    pr__sqlite_conn *conn = &store->conn;
    int64_t last = 0;
    bool found = false;
    TRY(pr__sqlite_int(conn, SQL_RELAY, &last, &found, err, ""));
    if (!found)
        return pr__fail(err, PR_E_SCHEMA, ORIGIN,
                        "reader 1, the relay, is missing from '%s_subscription': restore it",
                        conn->prefix);
    TRY(pr__sqlite_int(conn, SQL_LAST_LANE, &last, &found, err, ""));
    if (found && last >= (int64_t)store->settings.lanes)
        return pr__fail(err, PR_E_SCHEMA, ORIGIN,
                        "setting 'lanes' in '%s_setting' is %u, but the journal has a lane %lld: "
                        "the number of lanes is fixed at creation, restore it",
                        conn->prefix, store->settings.lanes, (long long)last);
    return pr__sqlite_reader_whole(store, PR_READER_RELAY, err);
}

static pr_status compare(pr__sqlite_store *store, sqlite3 *model, pr_error *err)
{
    const pr__migration_values values = {
        .default_transport = "database", .order = "hold", .lanes = PR_LANES_DEFAULT};
    TRY(pr__sqlite_migration_model(model, store->conn.prefix, &values, err));
    if (sqlite3_exec(model, SQL_BESIDE, NULL, NULL, NULL) != SQLITE_OK)
        return pr__fail(err, PR_E_BACKEND, ORIGIN, "%s", sqlite3_errmsg(model));
    TRY(copy_rows(&store->conn, SQL_COLUMNS, model,
                  "INSERT INTO temp.col VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)", err));
    TRY(copy_rows(&store->conn, SQL_OBJECTS, model, "INSERT INTO temp.obj VALUES (?1, ?2, ?3, ?4)",
                  err));
    for (size_t i = 0; i < sizeof DIFFERENCES / sizeof DIFFERENCES[0]; i++)
        TRY(find_difference(model, DIFFERENCES[i], err));
    return PR_OK;
}

pr_status pr__sqlite_check(pr_store *base, pr_error *err)
{
    pr__sqlite_store *store = pr__sqlite_store_of(base);
    TRY(pr__sqlite_ready(store, err));
    TRY(check_version(store, err));
    TRY(pr__sqlite_schema_encoding(store, err));
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
    TRY(check_lanes(store, err));
    TRY(check_lane(store, err));
    return check_sequence(&store->conn, err);
}
