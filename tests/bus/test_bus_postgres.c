/*
 * The suites of endpoints and the bus on PostgreSQL.
 */
#include <sys/socket.h>

#include <postroom/postgres.h>

#include "bus/world.h"
#include "support/postgres_db.h"

static postgres_databases databases;

static void make(char ret_address[ADDRESS_MAX])
{
    char uri[POSTGRES_CONNINFO_SIZE];
    pr_error err = PR_ERROR_INIT;
    pr_store *store = NULL;
    postgres_database_make(&databases, uri);
    (void)snprintf(ret_address, ADDRESS_MAX, "%s", uri);
    pr_postgres_options opt = PR_POSTGRES_OPTIONS(.conninfo = uri, .schema_check_off = true);
    check_ok(pr_postgres_store_open(&opt, &store, &err), &err, "make");
    check_ok(pr_store_migrate(store, NULL, NULL, &err), &err, "migrate");
    pr_store_free(store);
    db_run_at(uri, "CREATE TABLE effects (n bigserial PRIMARY KEY, id text NOT NULL)");
}

static void remove_none(const char *address)
{
    (void)address; /* it goes with the server */
}

static pr_store *open_store(const char *address)
{
    pr_error err = PR_ERROR_INIT;
    pr_store *store = NULL;
    pr_postgres_options opt =
        PR_POSTGRES_OPTIONS(.conninfo = address, .busy_ms = 2000, .clock = bus_clock_in_use);
    check_ok(pr_postgres_store_open(&opt, &store, &err), &err, "open");
    return store;
}

static bool effect(pr_unit *unit, const char *id)
{
    const char *const values[] = {id};
    PGresult *result =
        PQexecParams(pr_postgres_unit_connection(unit), "INSERT INTO effects (id) VALUES ($1)", 1,
                     NULL, values, NULL, NULL, 0);
    bool good = PQresultStatus(result) == PGRES_COMMAND_OK;
    PQclear(result);
    return good;
}

static bool run(pr_unit *unit, const char *sql)
{
    PGresult *result = PQexec(pr_postgres_unit_connection(unit), sql);
    ExecStatusType status = PQresultStatus(result);
    PQclear(result);
    return status == PGRES_COMMAND_OK || status == PGRES_TUPLES_OK;
}

static void close_connection(pr_unit *unit)
{
    (void)shutdown(PQsocket(pr_postgres_unit_connection(unit)), SHUT_RDWR);
}

static void text(const char *address, const char *sql, char *out, size_t size)
{
    char *expanded = db_expand(sql, "postroom.");
    PGconn *db = db_open(address);
    db_text(db, expanded, out, size);
    PQfinish(db);
    free(expanded);
}

static int64_t number(const char *address, const char *sql)
{
    char out[64];
    text(address, sql, out, sizeof out);
    return strtoll(out, NULL, 10);
}

static void crash(void)
{
    postgres_server_do(databases.server, "restart immediate");
}

static void down(bool is_down)
{
    postgres_server_do(databases.server, is_down ? "stop immediate" : "start");
}

static const bus_provider provider = {.name = "postgres",
                                      .make = make,
                                      .remove = remove_none,
                                      .open = open_store,
                                      .opener = pr_postgres_open,
                                      .effect = effect,
                                      .run = run,
                                      .close = close_connection,
                                      .number = number,
                                      .text = text,
                                      .crash = crash,
                                      .down = down};

int main(int argc, char **argv)
{
    if (argc == 6 && strcmp(argv[1], "--child") == 0)
        return bus_child_run(&provider, argv);
    databases.server = postgres_server_start(NULL);
    int failed = bus_suites_run(&provider);
    postgres_server_free(databases.server);
    return failed;
}
