/*
 * Checking a schema at start: version, tables, columns, indexes, views, functions, the sequence.
 *
 * What is expected is not written down a second time: it is read out of the embedded migrations,
 * whose form (a column a line, indented by four) is theirs and ours. Extra columns, tables and
 * indexes are fine.
 */
#include "store/postgres/schema.h"

#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "base/text.h"
#include "store/postgres/migration.h"
#include "store/postgres/value.h"

#define ORIGIN    "postgres.check"
#define WORD_SIZE 64

static const char SQL_HAS_VERSION[] =
    "SELECT 1 FROM pg_catalog.pg_class AS c JOIN pg_catalog.pg_namespace AS n ON n.oid = "
    "c.relnamespace WHERE n.nspname = $1 AND c.relname = $2 AND c.relkind = 'r'";
static const char SQL_VERSION[] = "SELECT pg_catalog.max(version) FROM {p}schema_version";

static void table_name(const pr__pg_conn *conn, const char *name, char *out, size_t size)
{
    pr__format(out, size, "%s%s", conn->prefix, name);
}

pr_status pr__pg_schema_version(pr__pg_conn *conn, uint32_t *ret_version, pr_error *err)
{
    char table[2 * PR__PG_NAME_SIZE];
    int64_t value = 0;
    bool found = false;
    table_name(conn, "schema_version", table, sizeof table);
    TRY(pr__pg_int(conn, SQL_HAS_VERSION, &value, &found, err, "tt", conn->schema, table));
    value = 0;
    if (found)
        TRY(pr__pg_int(conn, SQL_VERSION, &value, NULL, err, ""));
    *ret_version = (uint32_t)value;
    return PR_OK;
}

pr_status pr__pg_schema_newer(const pr__pg_store *store, uint32_t version, pr_error *err)
{
    char what[256];
    pr__pg_describe(store, what, sizeof what);
    return pr__fail(err, PR_E_SCHEMA, ORIGIN,
                    "schema version %u in '%s' is newer than the %zu of this program: use a newer "
                    "postroom",
                    version, what, pr__postgres_migration_count);
}

pr_status pr__pg_check_version(pr__pg_store *store, pr_error *err)
{
    uint32_t version = 0;
    char what[256];
    TRY(pr__pg_schema_version(&store->conn, &version, err));
    pr__pg_describe(store, what, sizeof what);
    if (version == 0)
        return pr__fail(err, PR_E_SCHEMA, ORIGIN,
                        "'%s' has no tables of ours: run `postroom migrate` on it", what);
    if (version > pr__postgres_migration_count)
        return pr__pg_schema_newer(store, version, err);
    if (version < pr__postgres_migration_count)
        return pr__fail(err, PR_E_SCHEMA, ORIGIN,
                        "schema version %u in '%s' is older than the %zu of this program: run "
                        "`postroom migrate` on it",
                        version, what, pr__postgres_migration_count);
    return PR_OK;
}

/* What the migrations make, as arrays of equal length. */
typedef struct expectation {
    const pr__pg_conn *conn;
    pr__pg_array tables, columns, types, not_null; /* of columns */
    pr__pg_array kinds, names;                     /* of indexes, views, functions */
} expectation;

static const char *word(const char *at, char out[WORD_SIZE])
{
    size_t size = strspn(at, "abcdefghijklmnopqrstuvwxyz0123456789_[]");
    pr__format(out, WORD_SIZE, "%.*s", (int)(size < WORD_SIZE ? size : WORD_SIZE - 1), at);
    at += size;
    return at + strspn(at, " ");
}

/* One line of a CREATE TABLE: a column when it is indented by four. */
static void read_column(expectation *e, const char *table, const char *line, const char *end)
{
    char column[WORD_SIZE];
    char type[WORD_SIZE];
    char rest[160];
    const char *at = line + strspn(line, " ");
    if (at - line != 4 || *at < 'a' || *at > 'z')
        return;
    at = word(word(at, column), type);
    pr__format(rest, sizeof rest, "%.*s", (int)(end > at ? end - at : 0), at);
    pr__pg_array_text(&e->tables, table);
    pr__pg_array_text(&e->columns, column);
    pr__pg_array_text(&e->types, type);
    pr__pg_array_bool(&e->not_null, strstr(rest, "NOT NULL") || strstr(rest, "IDENTITY"));
}

static void read_object(expectation *e, const char *kind, const char *at)
{
    char name[WORD_SIZE];
    char whole[2 * PR__PG_NAME_SIZE];
    word(at, name);
    table_name(e->conn, name, whole, sizeof whole);
    pr__pg_array_text(&e->kinds, kind);
    pr__pg_array_text(&e->names, whole);
}

static void read_migration(expectation *e, const char *sql)
{
    static const struct {
        const char *begin;
        const char *kind;
    } objects[] = {{"CREATE INDEX {n}", "index"},
                   {"CREATE VIEW {p}", "view"},
                   {"CREATE FUNCTION {p}", "function"}};
    char table[2 * PR__PG_NAME_SIZE] = "";
    for (const char *line = sql; *line;) {
        const char *end = line + strcspn(line, "\n");
        for (size_t i = 0; i < sizeof objects / sizeof objects[0]; i++)
            if (pr__text_starts_with(line, objects[i].begin))
                read_object(e, objects[i].kind, line + strlen(objects[i].begin));
        if (pr__text_starts_with(line, "CREATE TABLE {p}")) {
            char name[WORD_SIZE];
            word(line + strlen("CREATE TABLE {p}"), name);
            table_name(e->conn, name, table, sizeof table);
        } else if (pr__text_starts_with(line, ");")) {
            table[0] = '\0';
        } else if (table[0]) {
            read_column(e, table, line, end);
        }
        line = end + (*end == '\n');
    }
}

/* $1 schema, $2 tables, $3 columns, $4 types, $5 not null */
#define EXPECTED                                                                                   \
    "ROWS FROM (pg_catalog.unnest($2), pg_catalog.unnest($3), pg_catalog.unnest($4), "             \
    "pg_catalog.unnest($5)) AS e (tab, col, typ, nn)"
#define OUR_TABLE                                                                                  \
    "pg_catalog.pg_class AS c JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace AND "    \
    "n.nspname = $1"
static const char SQL_COLUMNS[] =
    "SELECT e.tab, e.col, e.typ, e.nn, c.oid IS NULL, a.attname IS NULL FROM " EXPECTED
    " LEFT JOIN (" OUR_TABLE ") ON c.relname = e.tab AND c.relkind IN ('r', 'p') LEFT JOIN "
    "pg_catalog.pg_attribute AS a ON a.attrelid = c.oid AND a.attname = e.col AND NOT "
    "a.attisdropped WHERE a.attname IS NULL OR a.atttypid <> pg_catalog.to_regtype(e.typ) OR "
    "a.attnotnull <> e.nn LIMIT 1";
static const char SQL_EXTRA[] =
    "SELECT c.relname::pg_catalog.text, a.attname::pg_catalog.text FROM " OUR_TABLE
    " JOIN pg_catalog.pg_attribute AS a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT "
    "a.attisdropped WHERE c.relkind IN ('r', 'p') AND c.relname = ANY ($2) AND a.attnotnull AND "
    "NOT "
    "a.atthasdef AND a.attidentity = '' AND NOT EXISTS (SELECT FROM " EXPECTED
    " WHERE e.tab = c.relname AND e.col = a.attname) LIMIT 1";
static const char SQL_OBJECTS[] =
    "SELECT e.kind, e.name FROM ROWS FROM (pg_catalog.unnest($2), pg_catalog.unnest($3)) AS e "
    "(kind, name) WHERE NOT EXISTS (SELECT FROM " OUR_TABLE
    " WHERE c.relname = e.name AND c.relkind IN ('i', 'v')) AND NOT EXISTS (SELECT FROM "
    "pg_catalog.pg_proc AS f JOIN pg_catalog.pg_namespace AS n ON n.oid = f.pronamespace WHERE "
    "n.nspname = $1 AND f.proname = e.name) LIMIT 1";

static pr_status check_columns(pr__pg_store *store, expectation *e, pr_error *err)
{
    AUTO_PARAMS params = {.count = 0};
    AUTO_RESULT result = NULL;
    AUTO_RESULT extra = NULL;
    pr__pg_conn *conn = &store->conn;
    pr__pg_add_text(&params, conn->schema);
    pr__pg_add_array(&params, &e->tables);
    pr__pg_add_array(&params, &e->columns);
    pr__pg_add_array(&params, &e->types);
    pr__pg_add_array(&params, &e->not_null);
    TRY(pr__pg_exec(conn, SQL_COLUMNS, &params, &result, err));
    if (PQntuples(result) > 0) {
        const char *table = pr__pg_value_text(result, 0, 0);
        const char *column = pr__pg_value_text(result, 0, 1);
        if (pr__pg_value_int(result, 0, 4))
            return pr__fail(err, PR_E_SCHEMA, ORIGIN,
                            "table '%s' is missing in schema '%s': restore it", table,
                            conn->schema);
        if (pr__pg_value_int(result, 0, 5))
            return pr__fail(err, PR_E_SCHEMA, ORIGIN,
                            "table '%s' lacks its built-in column '%s': restore it", table, column);
        return pr__fail(err, PR_E_SCHEMA, ORIGIN,
                        "built-in column '%s' of table '%s' was altered: it must be %s%s", column,
                        table, pr__pg_value_text(result, 0, 2),
                        pr__pg_value_int(result, 0, 3) ? " NOT NULL" : "");
    }
    TRY(pr__pg_exec(conn, SQL_EXTRA, &params, &extra, err));
    if (PQntuples(extra) > 0)
        return pr__fail(err, PR_E_SCHEMA, ORIGIN,
                        "table '%s' has an extra column '%s' that is NOT NULL without a default: "
                        "give it one",
                        pr__pg_value_text(extra, 0, 0), pr__pg_value_text(extra, 0, 1));
    return PR_OK;
}

static pr_status check_objects(pr__pg_store *store, expectation *e, pr_error *err)
{
    AUTO_PARAMS params = {.count = 0};
    AUTO_RESULT result = NULL;
    pr__pg_add_text(&params, store->conn.schema);
    pr__pg_add_array(&params, &e->kinds);
    pr__pg_add_array(&params, &e->names);
    TRY(pr__pg_exec(&store->conn, SQL_OBJECTS, &params, &result, err));
    if (PQntuples(result) > 0)
        return pr__fail(err, PR_E_SCHEMA, ORIGIN, "%s '%s' is missing in schema '%s': restore it",
                        pr__pg_value_text(result, 0, 0), pr__pg_value_text(result, 0, 1),
                        store->conn.schema);
    return PR_OK;
}

pr_status pr__pg_check_objects(pr__pg_store *store, pr_error *err)
{
    expectation e = {.conn = &store->conn};
    pr__pg_array *arrays[] = {&e.tables, &e.columns, &e.types, &e.not_null, &e.kinds, &e.names};
    size_t count = sizeof arrays / sizeof arrays[0];
    for (size_t i = 0; i < count; i++)
        pr__pg_array_init(arrays[i], arrays[i] == &e.not_null ? PR__PG_BOOL : PR__PG_TEXT);
    for (size_t i = 0; i < pr__postgres_migration_count; i++)
        read_migration(&e, pr__postgres_migrations[i].sql);
    pr_status status = check_columns(store, &e, err);
    if (status == PR_OK)
        status = check_objects(store, &e, err);
    for (size_t i = 0; i < count; i++)
        pr__pg_array_done(arrays[i]);
    return status;
}

static const char SQL_SEQUENCE[] =
    "SELECT s.seqcache, s.seqincrement, s.seqcycle, (SELECT CASE WHEN is_called THEN last_value "
    "ELSE last_value - 1 END FROM {p}outbox_id_seq) FROM pg_catalog.pg_sequence AS s WHERE "
    "s.seqrelid = '{p}outbox_id_seq'::pg_catalog.regclass";
/* The highest id that anybody has seen: in the log, or passed by a reader. */
static const char SQL_HIGHEST[] =
    "SELECT pg_catalog.int8larger(coalesce((SELECT pg_catalog.max(t.id) FROM "
    "pg_catalog.generate_series(0, $1::pg_catalog.int4 - 1) AS l(lane) CROSS JOIN LATERAL (SELECT "
    "o.id FROM {p}outbox AS o WHERE o.lane = l.lane ORDER BY o.id DESC LIMIT 1) AS t), 0), "
    "coalesce((SELECT pg_catalog.max(t.pos) FROM {p}subscription AS s CROSS JOIN "
    "pg_catalog.generate_series(0, $1::pg_catalog.int4 - 1) AS l(lane) CROSS JOIN LATERAL (SELECT "
    "c.pos FROM {p}outbox_claim AS c WHERE c.reader = s.reader AND c.lane = l.lane ORDER BY c.seq "
    "DESC LIMIT 1) AS t), 0))";

/* An id that is given a second time would be taken for one that was passed, and one out of a cache
   would be given after a higher one. */
pr_status pr__pg_check_sequence(pr__pg_store *store, pr_error *err)
{
    pr__pg_conn *conn = &store->conn;
    AUTO_RESULT result = NULL;
    int64_t highest = 0;
    /* before the sequence: others move both on meanwhile */
    TRY(pr__pg_int(conn, SQL_HIGHEST, &highest, NULL, err, "i", (int64_t)store->settings.lanes));
    TRY(pr__pg_query(conn, SQL_SEQUENCE, &result, err, ""));
    if (PQntuples(result) == 0)
        return pr__fail(err, PR_E_SCHEMA, ORIGIN, "the sequence %soutbox_id_seq is missing",
                        conn->qualifier);
    if (pr__pg_value_int(result, 0, 0) != 1)
        return pr__fail(err, PR_E_SCHEMA, ORIGIN,
                        "the sequence of ids has a cache of %lld, which breaks their order: run "
                        "ALTER SEQUENCE %soutbox_id_seq CACHE 1;",
                        (long long)pr__pg_value_int(result, 0, 0), conn->qualifier);
    if (pr__pg_value_int(result, 0, 1) != 1 || pr__pg_value_int(result, 0, 2) != 0)
        return pr__fail(err, PR_E_SCHEMA, ORIGIN,
                        "the sequence of ids was altered: run ALTER SEQUENCE %soutbox_id_seq "
                        "INCREMENT BY 1 NO CYCLE;",
                        conn->qualifier);
    if (pr__pg_value_int(result, 0, 3) >= highest)
        return PR_OK;
    return pr__fail(err, PR_E_SCHEMA, ORIGIN,
                    "the sequence of ids stands at %lld, but id %lld was used: run ALTER SEQUENCE "
                    "%soutbox_id_seq RESTART WITH %lld;",
                    (long long)pr__pg_value_int(result, 0, 3), (long long)highest, conn->qualifier,
                    (long long)highest + 1);
}

pr_status pr__pg_check(pr_store *base, pr_error *err)
{
    pr__pg_store *store = pr__pg_store_of(base);
    TRY(pr__pg_ready(store, err));
    TRY(pr__pg_check_version(store, err));
    TRY(pr__pg_check_objects(store, err));
    store->settings.generation = 0;
    TRY(pr__pg_settings_load(store, err));
    return pr__pg_check_sequence(store, err);
}
