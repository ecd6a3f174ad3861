/*
 * An outbox: a business row and a message in one transaction, on the host's own connection. Either
 * both are there after the commit, or neither.
 */
#include <stdio.h>
#include <stdlib.h>

#include <sqlite3.h>

#include <postroom/postroom.h>
#include <postroom/sqlite.h>

static int fail(const char *what, const pr_error *err)
{
    fprintf(stderr, "%s: %s (%s)\n", what, err->message, pr_status_text(err->status));
    return EXIT_FAILURE;
}

static int place_order(pr_store *store, sqlite3 *db, pr_error *err)
{
    pr_unit *unit = NULL;
    pr_message message = PR_MESSAGE(.type = "urn:message:shop:order-placed", .key = "order-1",
                                    PR_BODY("{\"order\":1}"));
    if (sqlite3_exec(db, "BEGIN IMMEDIATE; INSERT INTO orders VALUES (1)", NULL, NULL, NULL))
        return fail("insert", err);
    if (pr_sqlite_unit_join(store, db, &unit, err))
        return fail("join", err);
    if (pr_unit_enqueue(unit, &message, NULL, err))
        return fail("enqueue", err);
    if (sqlite3_exec(db, "COMMIT", NULL, NULL, NULL))
        return fail("commit", err);
    if (pr_unit_finished(unit, PR_OUTCOME_COMMITTED, err))
        return fail("finished", err);
    pr_unit_free(unit);
    return EXIT_SUCCESS;
}

static int print_row(void *user, int count, char **values, char **names)
{
    (void)user;
    (void)count;
    (void)names;
    printf("%s %s\n", values[0], values[1]);
    return 0;
}

int main(int argc, char **argv)
{
    pr_error err = PR_ERROR_INIT;
    pr_store *store = NULL;
    sqlite3 *db = NULL;
    const char *path = argc > 1 ? argv[1] : "shop.db";
    if (pr_sqlite_open(path, &store, &err))
        return fail("open", &err);
    if (sqlite3_open(path, &db) || pr_sqlite_prepare(db, 0, &err))
        return fail("prepare", &err);
    if (sqlite3_exec(db, "CREATE TABLE orders (id INTEGER PRIMARY KEY) STRICT", NULL, NULL, NULL))
        return fail("create", &err);
    int result = place_order(store, db, &err);
    sqlite3_exec(db, "SELECT type, state FROM postroom_outbox_state", print_row, NULL, NULL);
    sqlite3_close(db);
    pr_store_free(store);
    return result;
}
