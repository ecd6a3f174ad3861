/*
 * An inbox: a relay carries a message from the shop's database into billing's, twice, as it may
 * happen after a crash. Billing's handler writes its invoice in the unit of work of the delivery;
 * the second one is recognised and changes nothing.
 */
#include <stdio.h>
#include <stdlib.h>

#include <sqlite3.h>

#include <postroom/database.h>
#include <postroom/postroom.h>
#include <postroom/sqlite.h>

#define ORDER_PLACED "urn:message:shop:order-placed"

static void must(pr_status status, const char *what, const pr_error *err)
{
    if (status == PR_OK)
        return;
    fprintf(stderr, "%s: %s (%s)\n", what, err->message, pr_status_text(status));
    exit(EXIT_FAILURE);
}

static pr_store *open_store(const char *path, pr_error *err)
{
    pr_store *store = NULL;
    must(pr_sqlite_open(path, &store, err), path, err);
    return store;
}

/* The same message, with the id that its sender chose, in two transactions. */
static void send_twice(pr_store *shop, pr_error *err)
{
    pr_message message =
        PR_MESSAGE(.id = "0197a5c0-0000-7000-8000-000000000001", .type = ORDER_PLACED,
                   .key = "order-1", PR_BODY("{\"order\":1}"));
    for (int i = 0; i < 2; i++) {
        pr_unit *unit = NULL;
        must(pr_unit_begin(shop, &unit, err), "begin", err);
        must(pr_unit_enqueue(unit, &message, NULL, err), "enqueue", err);
        must(pr_unit_commit(unit, NULL, err), "commit", err);
        pr_unit_free(unit);
    }
}

/* Runs inside the unit whose commit also writes the inbox's mark. */
static pr_handled write_invoice(void *user, pr_scope *scope)
{
    (void)user;
    sqlite3 *db = pr_sqlite_unit_connection(pr_scope_unit(scope));
    printf("handling %s\n", pr_scope_message(scope)->type);
    if (sqlite3_exec(db, "INSERT INTO invoices (amount) VALUES (10)", NULL, NULL, NULL) ==
        SQLITE_OK)
        return PR_HANDLED_OK;
    pr_scope_fail(scope, "the invoice could not be written", -1);
    return PR_HANDLED_RETRY;
}

/* Steps until the endpoint has seen as many messages as were published. */
static void handle(pr_endpoint *endpoint, uint64_t published, pr_error *err)
{
    pr_endpoint_snapshot seen = {.size = (uint32_t)sizeof(seen)};
    int64_t wait_ms = 0;
    do {
        must(pr_endpoint_step(endpoint, &wait_ms, err), "step", err);
        must(pr_endpoint_snapshot_get(endpoint, &seen, err), "snapshot", err);
    } while (seen.handled + seen.duplicate < published);
    printf("published %d, handled %d, duplicates %d\n", (int)published, (int)seen.handled,
           (int)seen.duplicate);
}

int main(void)
{
    pr_error err = PR_ERROR_INIT;
    sqlite3 *db = NULL;
    pr_store *shop = open_store("shop.db", &err);
    pr_store *billing = open_store("billing.db", &err);
    pr_transport *out = NULL, *in = NULL;
    pr_relay *relay = NULL;
    pr_endpoint *endpoint = NULL;
    const char *const types[] = {ORDER_PLACED};
    pr_endpoint_options options = PR_ENDPOINT_OPTIONS(.id = "billing", .types = types,
                                                      .type_count = 1, .handler = write_invoice);

    sqlite3_open("billing.db", &db);
    sqlite3_exec(db, "CREATE TABLE invoices (id INTEGER PRIMARY KEY, amount INTEGER)", NULL, NULL,
                 NULL);
    sqlite3_close(db);

    must(pr_database_transport_new(billing, NULL, &out, &err), "transport", &err);
    must(pr_database_transport_new(billing, NULL, &in, &err), "transport", &err);
    must(pr_endpoint_new(billing, in, &options, &endpoint, &err), "endpoint", &err);
    int64_t wait_ms = 0;
    must(pr_endpoint_step(endpoint, &wait_ms, &err), "subscribe", &err);

    send_twice(shop, &err);
    uint64_t published = 0;
    must(pr_relay_new(shop, &out, 1, NULL, &relay, &err), "relay", &err);
    must(pr_relay_run_once(relay, &published, &err), "run", &err);
    handle(endpoint, published, &err);

    pr_endpoint_free(endpoint);
    pr_relay_free(relay);
    pr_transport_free(in);
    pr_transport_free(out);
    pr_store_free(billing);
    pr_store_free(shop);
    return EXIT_SUCCESS;
}
