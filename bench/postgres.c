/*
 * What the benchmarks on PostgreSQL share.
 *
 * Processor time: the nanoseconds of each living child of the postmaster, plus what the postmaster
 * has been told of those that ended. Whoever measures keeps its connections open meanwhile.
 */
#include "postgres.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <postroom/postgres.h>

#include "database.h"

#include "base/text.h"

#define FILL_CHUNK 5000

PGresult *bench_pg_checked(PGconn *db, PGresult *result, const char *what)
{
    ExecStatusType status = PQresultStatus(result);
    if (status != PGRES_COMMAND_OK && status != PGRES_TUPLES_OK)
        bench_fail(what, PQerrorMessage(db));
    return result;
}

PGresult *bench_pg_query(PGconn *db, const char *sql)
{
    return bench_pg_checked(db, PQexec(db, sql), sql);
}

void bench_pg_run(PGconn *db, const char *sql)
{
    PQclear(bench_pg_query(db, sql));
}

double bench_pg_number(PGconn *db, const char *sql)
{
    PGresult *result = bench_pg_query(db, sql);
    if (PQntuples(result) != 1 || PQgetisnull(result, 0, 0))
        bench_fail(sql, "there is no number");
    double number = strtod(PQgetvalue(result, 0, 0), NULL);
    PQclear(result);
    return number;
}

static void ignore_notice(void *user, const char *text)
{
    (void)user;
    (void)text;
}

PGconn *bench_pg_open(const char *address)
{
    PGconn *db = PQconnectdb(address);
    if (PQstatus(db) != CONNECTION_OK)
        bench_fail("connect", PQerrorMessage(db));
    PQsetNoticeProcessor(db, ignore_notice, NULL);
    return db;
}

/* ---- databases ---- */

static void add_keyword(char *out, size_t size, const char *keyword, const char *value)
{
    size_t used = strlen(out);
    pr__format(out + used, size - used, "%s%s='", used ? " " : "", keyword);
    used = strlen(out);
    for (; *value && used + 4 < size; value++) {
        if (*value == '\'' || *value == '\\')
            out[used++] = '\\';
        out[used++] = *value;
    }
    out[used++] = '\'';
    out[used] = '\0';
}

/* The address of another database of the same server. */
static void address_of(const char *server, const char *name, char out[BENCH_PG_ADDRESS_SIZE])
{
    char *why = NULL;
    PQconninfoOption *options = PQconninfoParse(server, &why);
    if (!options)
        bench_fail("read the address", why ? why : "out of memory");
    out[0] = '\0';
    for (PQconninfoOption *o = options; o->keyword; o++)
        if (o->val && strcmp(o->keyword, "dbname") != 0)
            add_keyword(out, BENCH_PG_ADDRESS_SIZE, o->keyword, o->val);
    add_keyword(out, BENCH_PG_ADDRESS_SIZE, "dbname", name);
    PQconninfoFree(options);
}

static void run_at_server(const bench_database *database, const char *words, const char *more)
{
    char sql[160];
    PGconn *db = bench_pg_open(database->server);
    pr__format(sql, sizeof sql, "%s %s%s", words, database->name, more);
    bench_pg_run(db, sql);
    PQfinish(db);
}

bench_database bench_database_make(const char *server, const char *name)
{
    bench_database database = {.server = server};
    pr__format(database.name, sizeof database.name, "postroom_bench_%s", name);
    address_of(server, database.name, database.address);
    bench_database_drop(&database);
    run_at_server(&database, "CREATE DATABASE", "");
    return database;
}

void bench_database_drop(const bench_database *database)
{
    run_at_server(database, "DROP DATABASE IF EXISTS", " WITH (FORCE)");
}

pr_store *bench_pg_store(const bench_database *database)
{
    pr_error err = PR_ERROR_INIT;
    pr_postgres_options opt =
        PR_POSTGRES_OPTIONS(.schema_check_off = true, .conninfo = database->address);
    pr_store *store = NULL;
    bench_check(pr_postgres_store_open(&opt, &store, &err), &err, "open a store");
    bench_check(pr_store_migrate(store, NULL, NULL, &err), &err, "migrate");
    bench_check(pr_store_check(store, &err), &err, "check the store");
    return store;
}

void bench_pg_fill(PGconn *db, uint64_t count)
{
    char sql[400];
    for (uint64_t done = 0; done < count; done += FILL_CHUNK) {
        uint64_t chunk = count - done < FILL_CHUNK ? count - done : FILL_CHUNK;
        pr__format(sql, sizeof sql,
                   "INSERT INTO postroom.outbox (type, key, body) SELECT '" BENCH_PG_TYPE
                   "', 'order-' || i %% 10000, " BENCH_PG_BODY
                   " FROM generate_series(%llu, %llu) AS i",
                   (unsigned long long)done, (unsigned long long)(done + chunk - 1));
        bench_pg_run(db, sql);
    }
}

void bench_pg_settle(PGconn *db)
{
    bench_pg_run(db, "VACUUM (ANALYZE)");
    bench_pg_run(db, "CHECKPOINT");
}

/* ---- what the server spent ---- */

/* The text of a file of /proc; false when the process is gone. */
static bool read_proc(long pid, const char *file, char *out, size_t size)
{
    char path[64];
    pr__format(path, sizeof path, "/proc/%ld/%s", pid, file);
    FILE *in = fopen(path, "r");
    size_t got = in ? fread(out, 1, size - 1, in) : 0;
    out[got] = '\0';
    if (in)
        (void)fclose(in);
    return got > 0;
}

/* The n-th field of /proc/PID/stat behind the name, which may hold blanks: 0 = the state. */
static double stat_field(const char *stat, int n)
{
    const char *at = strrchr(stat, ')');
    for (int i = 0; at && i <= n; i++)
        at = strchr(at + 1, ' ');
    return at ? strtod(at + 1, NULL) : 0;
}

enum { STAT_PARENT = 1, STAT_CHILDREN_USER = 13, STAT_CHILDREN_SYSTEM = 14 };

static double children_us(long postmaster)
{
    char text[1024];
    double total = 0;
    DIR *proc = opendir("/proc");
    if (!proc)
        bench_fail("read /proc", "it cannot be opened");
    for (struct dirent *entry; (entry = readdir(proc));) {
        long pid = strtol(entry->d_name, NULL, 10);
        if (pid > 0 && read_proc(pid, "stat", text, sizeof text) &&
            (long)stat_field(text, STAT_PARENT) == postmaster &&
            read_proc(pid, "schedstat", text, sizeof text))
            total += strtod(text, NULL) / 1000;
    }
    closedir(proc);
    return total;
}

static double cpu_us(PGconn *db)
{
    char text[1024];
    if (!read_proc(PQbackendPID(db), "stat", text, sizeof text))
        bench_fail("count processor time", "the server runs on another machine");
    long postmaster = (long)stat_field(text, STAT_PARENT);
    if (!read_proc(postmaster, "stat", text, sizeof text))
        bench_fail("count processor time", "the postmaster cannot be read");
    double ticks = stat_field(text, STAT_CHILDREN_USER) + stat_field(text, STAT_CHILDREN_SYSTEM);
    return children_us(postmaster) + ticks * 1e6 / (double)sysconf(_SC_CLK_TCK);
}

bench_usage bench_usage_get(PGconn *db)
{
    bench_usage usage = {.cpu_us = cpu_us(db)};
    PGresult *result = bench_pg_query(db, "SELECT pg_current_wal_insert_lsn(), "
                                          "pg_current_wal_insert_lsn() - '0/0'::pg_lsn");
    pr__format(usage.lsn, sizeof usage.lsn, "%s", PQgetvalue(result, 0, 0));
    usage.wal_bytes = strtod(PQgetvalue(result, 0, 1), NULL);
    PQclear(result);
    return usage;
}

double bench_page_image_bytes(PGconn *db, const bench_usage *since)
{
    char sql[200];
    if (PQserverVersion(db) < 150000 ||
        bench_pg_number(db, "SELECT count(*) FROM pg_available_extensions WHERE name = "
                            "'pg_walinspect'") == 0)
        return 0;
    bench_pg_run(db, "CREATE EXTENSION IF NOT EXISTS pg_walinspect");
    pr__format(sql, sizeof sql,
               "SELECT coalesce(sum(fpi_size), 0) FROM pg_get_wal_stats('%s', "
               "pg_current_wal_flush_lsn())",
               since->lsn);
    return bench_pg_number(db, sql);
}
