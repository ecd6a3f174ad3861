/*
 * An outbox on PostgreSQL: a business row and a message in one transaction, on the host's own
 * connection. The address is the argument, or what the PG* variables say.
 */
#include <stdio.h>
#include <stdlib.h>

#include <libpq-fe.h>

#include <postroom/postgres.h>
#include <postroom/postroom.h>

static int fail(const char *what, const char *text)
{
    fprintf(stderr, "%s: %s\n", what, text);
    return EXIT_FAILURE;
}

static bool run(PGconn *db, const char *sql)
{
    PGresult *result = PQexec(db, sql);
    bool good = PQresultStatus(result) == PGRES_COMMAND_OK;
    PQclear(result);
    return good;
}

static int place_order(pr_store *store, PGconn *db, pr_error *err)
{
    pr_unit *unit = NULL;
    pr_message message = PR_MESSAGE(.type = "urn:message:shop:order-placed", .key = "order-1",
                                    PR_BODY("{\"order\":1}"));
    if (!run(db, "BEGIN") || !run(db, "INSERT INTO orders VALUES (1)"))
        return fail("insert", PQerrorMessage(db));
    if (pr_postgres_unit_join(store, db, &unit, err))
        return fail("join", err->message);
    if (pr_unit_enqueue(unit, &message, NULL, err))
        return fail("enqueue", err->message);
    bool committed = run(db, "COMMIT");
    if (pr_unit_finished(unit, committed ? PR_OUTCOME_COMMITTED : PR_OUTCOME_UNKNOWN, err))
        return fail("finished", err->message);
    pr_unit_free(unit);
    return committed ? EXIT_SUCCESS : fail("commit", PQerrorMessage(db));
}

int main(int argc, char **argv)
{
    pr_error err = PR_ERROR_INIT;
    pr_store *store = NULL;
    const char *address = argc > 1 ? argv[1] : "";
    if (pr_postgres_open(address, &store, &err))
        return fail("open", err.message);
    PGconn *db = PQconnectdb(address);
    if (PQstatus(db) != CONNECTION_OK || !run(db, "CREATE TABLE orders (id integer PRIMARY KEY)"))
        return fail("create", PQerrorMessage(db));
    int result = place_order(store, db, &err);
    PGresult *rows = PQexec(db, "SELECT type, state FROM postroom.outbox_state");
    for (int i = 0; i < PQntuples(rows); i++)
        printf("%s %s\n", PQgetvalue(rows, i, 0), PQgetvalue(rows, i, 1));
    PQclear(rows);
    PQfinish(db);
    pr_store_free(store);
    return result;
}
