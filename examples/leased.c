/*
 * A slow handler: it calls an outside service, which takes its time, and writes down the answer.
 * With the leased inbox no transaction is open during the call; a lease that is renewed keeps the
 * message. The unit begins when the handler asks for it, and commits effect and mark together. The
 * service is called with the message's id, so that it can tell a second call of the same message.
 */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <sqlite3.h>

#include <postroom/postroom.h>
#include <postroom/sqlite.h>

#define CHARGE "urn:message:shop:charge-card"

static void must(pr_status status, const char *what, const pr_error *err)
{
    if (status == PR_OK)
        return;
    fprintf(stderr, "%s: %s (%s)\n", what, err->message, pr_status_text(status));
    exit(EXIT_FAILURE);
}

/* The service of somebody else: slow, and at first it does not answer at all. */
static bool card_service(const char *idempotency_key, const pr_scope *scope)
{
    (void)idempotency_key;
    for (int i = 0; i < 20 && !pr_scope_cancelled(scope); i++)
        usleep(5000);
    return pr_scope_attempts(scope) > 0;
}

static pr_handled charge(void *user, pr_scope *scope)
{
    (void)user;
    /* the slow part: nothing is locked meanwhile */
    if (!card_service(pr_scope_message(scope)->id, scope)) {
        printf("the service did not answer\n");
        pr_scope_fail(scope, "the card service did not answer", 10);
        return PR_HANDLED_RETRY;
    }
    /* from here on it is one transaction; NULL: the lease was lost, another has the message */
    pr_unit *unit = pr_scope_unit(scope);
    if (!unit)
        return PR_HANDLED_RETRY;
    sqlite3 *db = pr_sqlite_unit_connection(unit);
    if (sqlite3_exec(db, "INSERT INTO charges (amount) VALUES (10)", NULL, NULL, NULL) != SQLITE_OK)
        return PR_HANDLED_RETRY;
    printf("charged at attempt %d\n", (int)pr_scope_attempts(scope) + 1);
    return PR_HANDLED_OK;
}

static void make_table(pr_store *store, pr_error *err)
{
    pr_unit *unit = NULL;
    must(pr_unit_begin(store, &unit, err), "begin", err);
    sqlite3_exec(pr_sqlite_unit_connection(unit), "CREATE TABLE charges (amount INTEGER)", NULL,
                 NULL, NULL);
    must(pr_unit_commit(unit, NULL, err), "commit", err);
    pr_unit_free(unit);
}

int main(void)
{
    pr_error err = PR_ERROR_INIT;
    pr_bus *bus = NULL;
    const char *const types[] = {CHARGE};
    pr_endpoint_options slow =
        PR_ENDPOINT_OPTIONS(.id = "cards", .types = types, .type_count = 1, .handler = charge,
                            .inbox = PR_INBOX_LEASED, .processing_timeout_ms = 60000);
    pr_message message = PR_MESSAGE(.type = CHARGE, PR_BODY("{}"));
    must(pr_bus_open(pr_sqlite_open, "shop.db", NULL, &bus, &err), "open", &err);
    make_table(pr_bus_store(bus), &err);
    must(pr_bus_add_endpoint(bus, &slow, NULL, &err), "endpoint", &err);
    must(pr_bus_start(bus, &err), "start", &err);
    must(pr_bus_publish(bus, &message, NULL, &err), "publish", &err);
    must(pr_bus_wait_idle(bus, 30000, &err), "wait", &err); /* the retry too */
    pr_bus_free(bus);
    return EXIT_SUCCESS;
}
