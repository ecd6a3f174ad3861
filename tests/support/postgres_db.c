/*
 * Plain libpq for tests.
 */
#include "support/postgres_db.h"

#include <time.h>
#include <unistd.h>

#define WAIT_MS 60000

/* SQL that the suites share is written in SQLite's words; these make PostgreSQL understand them.
   Numbers for instants are as good as any: nobody looks at what became of them. */
static const char compatible_sql[] =
    "CREATE FUNCTION instant(bigint) RETURNS timestamptz IMMUTABLE LANGUAGE sql AS "
    "$$ SELECT to_timestamp($1 / 1e6) $$;"
    "CREATE FUNCTION instant(integer) RETURNS timestamptz IMMUTABLE LANGUAGE sql AS "
    "$$ SELECT to_timestamp($1 / 1e6) $$;"
    "CREATE CAST (bigint AS timestamptz) WITH FUNCTION instant(bigint) AS ASSIGNMENT;"
    "CREATE CAST (integer AS timestamptz) WITH FUNCTION instant(integer) AS ASSIGNMENT;"
    "CREATE FUNCTION less_us(timestamptz, bigint) RETURNS timestamptz IMMUTABLE LANGUAGE sql AS "
    "$$ SELECT $1 - $2 * interval '1 microsecond' $$;"
    "CREATE OPERATOR - (LEFTARG = timestamptz, RIGHTARG = bigint, FUNCTION = less_us);"
    "CREATE FUNCTION join_text(text, text) RETURNS text IMMUTABLE LANGUAGE sql AS "
    "$$ SELECT CASE WHEN $1 IS NULL THEN $2 ELSE $1 || ',' || $2 END $$;"
    "CREATE FUNCTION join_uuid(text, uuid) RETURNS text IMMUTABLE LANGUAGE sql AS "
    "$$ SELECT join_text($1, $2::text) $$;"
    "CREATE FUNCTION join_with(text, text, text) RETURNS text IMMUTABLE LANGUAGE sql AS "
    "$$ SELECT CASE WHEN $1 IS NULL THEN $2 ELSE $1 || $3 || $2 END $$;"
    "CREATE AGGREGATE group_concat(text) (SFUNC = join_text, STYPE = text);"
    "CREATE AGGREGATE group_concat(text, text) (SFUNC = join_with, STYPE = text);"
    "CREATE AGGREGATE group_concat(uuid) (SFUNC = join_uuid, STYPE = text);"
    /* the database's clock is the test's: it stands still or goes on, and can be moved */
    "SET allow_system_table_mods = on;"
    "CREATE TABLE test_clock (still_at timestamptz, moved interval NOT NULL);"
    "INSERT INTO test_clock VALUES (NULL, '0');"
    "GRANT SELECT ON test_clock TO PUBLIC;"
    "ALTER FUNCTION pg_catalog.clock_timestamp() RENAME TO true_clock_timestamp;"
    "ALTER FUNCTION pg_catalog.statement_timestamp() RENAME TO true_statement_timestamp;"
    "CREATE FUNCTION pg_catalog.clock_timestamp() RETURNS timestamptz VOLATILE LANGUAGE sql AS "
    "$$ SELECT coalesce(still_at, pg_catalog.true_clock_timestamp()) + moved FROM "
    "public.test_clock $$;"
    "CREATE FUNCTION pg_catalog.statement_timestamp() RETURNS timestamptz STABLE LANGUAGE sql AS "
    "$$ SELECT coalesce(still_at, pg_catalog.true_statement_timestamp()) + moved FROM "
    "public.test_clock $$;";

/* What a statement would call that does not say whose function it means. */
static const char evil_sql[] =
    "CREATE SCHEMA evil;"
    "DO $do$ DECLARE one text; BEGIN FOREACH one IN ARRAY ARRAY["
    "'clock_timestamp() RETURNS timestamptz', 'now() RETURNS timestamptz', "
    "'pg_current_xact_id() RETURNS xid8', 'pg_current_snapshot() RETURNS pg_snapshot', "
    "'pg_snapshot_xip(pg_snapshot) RETURNS SETOF xid8', "
    "'pg_snapshot_xmax(pg_snapshot) RETURNS xid8', 'unnest(bigint[]) RETURNS SETOF bigint', "
    "'cardinality(bigint[]) RETURNS integer', 'octet_length(bytea) RETURNS integer', "
    "'gen_random_uuid() RETURNS uuid', 'hashtextextended(text, bigint) RETURNS bigint', "
    "'length(text) RETURNS integer', 'lower(text) RETURNS text', "
    "'set_config(text, text, boolean) RETURNS text', 'current_setting(text) RETURNS text', "
    "'generate_series(integer, integer) RETURNS SETOF integer'] LOOP "
    "EXECUTE 'CREATE FUNCTION evil.' || one || ' LANGUAGE plpgsql AS $f$ BEGIN RAISE EXCEPTION "
    "''evil''; END $f$'; END LOOP; END $do$;";

PGconn *db_open(const char *conninfo)
{
    PGconn *db = PQconnectdb(conninfo);
    if (PQstatus(db) != CONNECTION_OK)
        fail_msg("%s: %s", conninfo, PQerrorMessage(db));
    PQclear(PQexec(db, "SET client_min_messages = warning; SET search_path = public"));
    return db;
}

bool db_try(PGconn *db, const char *sql, char ret_sqlstate[6])
{
    PGresult *result = PQexec(db, sql);
    ExecStatusType status = PQresultStatus(result);
    const char *state = PQresultErrorField(result, PG_DIAG_SQLSTATE);
    snprintf(ret_sqlstate, 6, "%s", state ? state : "");
    PQclear(result);
    return status == PGRES_COMMAND_OK || status == PGRES_TUPLES_OK;
}

void db_run(PGconn *db, const char *sql)
{
    char state[6];
    if (!db_try(db, sql, state))
        fail_msg("%s: %s", sql, PQerrorMessage(db));
}

void db_text(PGconn *db, const char *sql, char *out, size_t size)
{
    PGresult *result = PQexec(db, sql);
    ExecStatusType status = PQresultStatus(result);
    out[0] = '\0';
    if (status == PGRES_TUPLES_OK && PQntuples(result) > 0 && !PQgetisnull(result, 0, 0)) {
        const char *text = PQgetvalue(result, 0, 0);
        bool boolean = PQftype(result, 0) == 16;
        snprintf(out, size, "%s", boolean ? (text[0] == 't' ? "1" : "0") : text);
    }
    PQclear(result);
    if (status != PGRES_TUPLES_OK && status != PGRES_COMMAND_OK)
        fail_msg("%s: %s", sql, PQerrorMessage(db));
}

int64_t db_number(PGconn *db, const char *sql)
{
    char text[64];
    db_text(db, sql, text, sizeof text);
    return text[0] ? strtoll(text, NULL, 10) : -1;
}

int64_t db_number_at(const char *conninfo, const char *sql)
{
    PGconn *db = db_open(conninfo);
    int64_t number = db_number(db, sql);
    PQfinish(db);
    return number;
}

void db_run_at(const char *conninfo, const char *sql)
{
    PGconn *db = db_open(conninfo);
    db_run(db, sql);
    PQfinish(db);
}

void db_wait(PGconn *db, const char *sql, int64_t wanted, const char *label)
{
    int64_t got = -1;
    for (int i = 0; i < WAIT_MS / 10; i++) {
        got = db_number(db, sql);
        if (got >= wanted)
            return;
        nanosleep(&(struct timespec){0, 10000000}, NULL);
    }
    fail_msg("case '%s': %s stays %lld, wanted %lld", label, sql, (long long)got,
             (long long)wanted);
}

PGconn *postgres_maintenance(const postgres_databases *of)
{
    char uri[POSTGRES_CONNINFO_SIZE];
    postgres_server_uri(of->server, "postgres", uri);
    return db_open(uri);
}

void postgres_database_make(postgres_databases *of, char ret_uri[POSTGRES_CONNINFO_SIZE])
{
    if (of->compatible && of->made == 0) {
        char uri[POSTGRES_CONNINFO_SIZE];
        PGconn *db = postgres_maintenance(of);
        db_run(db, "CREATE DATABASE suite");
        PQfinish(db);
        postgres_server_uri(of->server, "suite", uri);
        db_run_at(uri, compatible_sql);
        if (of->hostile)
            db_run_at(uri, evil_sql);
    }
    postgres_database_copy(of, of->compatible ? "suite" : "template1", ret_uri);
}

void postgres_database_copy(postgres_databases *of, const char *from,
                            char ret_uri[POSTGRES_CONNINFO_SIZE])
{
    char sql[160], name[40];
    PGconn *db = postgres_maintenance(of);
    snprintf(name, sizeof name, "test_%d_%d", (int)getpid(), ++of->made);
    snprintf(sql, sizeof sql, "CREATE DATABASE %s TEMPLATE %s", name, from);
    db_run(db, sql);
    PQfinish(db);
    postgres_server_uri(of->server, name, ret_uri);
}

char *db_expand(const char *sql, const char *qualifier)
{
    size_t size = strlen(sql) + 1, step = strlen(qualifier);
    for (const char *at = sql; (at = strchr(at, '{')) != NULL; at++)
        size += step;
    char *out = calloc(1, size), *to = out;
    assert_non_null(out);
    while (*sql) {
        size_t skip = strncmp(sql, "{t}", 3) == 0 ? 3 : strncmp(sql, "{p}_", 4) == 0 ? 4 : 0;
        if (skip > 0) {
            memcpy(to, qualifier, step);
            to += step;
            sql += skip;
        } else {
            *to++ = *sql++;
        }
    }
    return out;
}
