/*
 * A follow-up: billing's handler writes an invoice and enqueues what happened, in the unit of
 * work of the delivery. Effect, follow-up and the inbox's mark are one commit; the first try
 * fails and leaves none of them. The follow-up carries the conversation on.
 */
#include <stdio.h>
#include <stdlib.h>

#include <sqlite3.h>

#include <postroom/postroom.h>
#include <postroom/sqlite.h>

#define PLACED  "urn:message:shop:order-placed"
#define WRITTEN "urn:message:billing:invoice-written"

static void must(pr_status status, const char *what, const pr_error *err)
{
    if (status == PR_OK)
        return;
    fprintf(stderr, "%s: %s (%s)\n", what, err->message, pr_status_text(status));
    exit(EXIT_FAILURE);
}

static pr_handled write_invoice(void *user, pr_scope *scope)
{
    (void)user;
    sqlite3 *db = pr_sqlite_unit_connection(pr_scope_unit(scope));
    pr_message written = PR_MESSAGE(.type = WRITTEN, PR_BODY("{}"));
    if (sqlite3_exec(db, "INSERT INTO invoices VALUES (1)", NULL, NULL, NULL) != SQLITE_OK ||
        pr_scope_publish(scope, &written, NULL, NULL) != PR_OK)
        return PR_HANDLED_RETRY;
    printf("attempt %d\n", (int)pr_scope_attempts(scope) + 1);
    if (pr_scope_attempts(scope) > 0)
        return PR_HANDLED_OK;
    pr_scope_fail(scope, "the printer is out of paper", /* retry_delay_ms= */ 10);
    return PR_HANDLED_RETRY;
}

static pr_handled file_invoice(void *user, pr_scope *scope)
{
    const pr_message *written = pr_scope_message(scope);
    (void)user;
    printf("%s of %s, because of %s\n", written->type, written->correlation_id,
           written->causation_id);
    return PR_HANDLED_OK;
}

static int print_row(void *user, int count, char **values, char **names)
{
    (void)user;
    for (int i = 0; i < count; i++)
        printf("%s: %s%s", names[i], values[i], i + 1 < count ? ", " : "\n");
    return 0;
}

int main(void)
{
    pr_error err = PR_ERROR_INIT;
    pr_bus *bus = NULL;
    sqlite3 *db = NULL;
    pr_message placed = PR_MESSAGE(.id = "0197a5c0-0000-7000-8000-000000000001", .type = PLACED,
                                   .correlation_id = "checkout-42", PR_BODY("{}"));
    must(pr_bus_open(pr_sqlite_open, "billing.db", NULL, &bus, &err), "open", &err);
    sqlite3_open("billing.db", &db);
    sqlite3_exec(db, "CREATE TABLE invoices (number INTEGER)", NULL, NULL, NULL);

    must(pr_bus_on(bus, "billing", PLACED, write_invoice, NULL, &err), "billing", &err);
    must(pr_bus_on(bus, "archive", WRITTEN, file_invoice, NULL, &err), "archive", &err);
    must(pr_bus_start(bus, &err), "start", &err);
    must(pr_bus_publish(bus, &placed, NULL, &err), "publish", &err);
    must(pr_bus_wait_idle(bus, 30000, &err), "wait", &err); /* the follow-up too */
    sqlite3_exec(db, "SELECT count(*) AS invoices FROM invoices", print_row, NULL, NULL);

    sqlite3_close(db);
    pr_bus_free(bus);
    return EXIT_SUCCESS;
}
