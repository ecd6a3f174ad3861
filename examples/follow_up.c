/*
 * A follow-up: billing's handler writes an invoice and enqueues what happened, in the unit of
 * work of the delivery. Effect, follow-up and the inbox's mark are one commit; the first try
 * fails and leaves none of them. The follow-up carries the conversation on.
 */
#include <stdio.h>
#include <stdlib.h>

#include <sqlite3.h>

#include <postroom/memory.h>
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
    pr_unit *unit = pr_scope_unit(scope);
    pr_message written = PR_MESSAGE(.type = WRITTEN, .body = "{}", .body_size_bytes = 2);
    sqlite3_exec(pr_sqlite_unit_connection(unit), "INSERT INTO invoices VALUES (1)", NULL, NULL,
                 NULL);
    if (pr_unit_enqueue(unit, &written, NULL, NULL) != PR_OK)
        return PR_HANDLED_RETRY;
    printf("attempt %d\n", (int)pr_scope_attempts(scope) + 1);
    if (pr_scope_attempts(scope) > 0)
        return PR_HANDLED_OK;
    pr_scope_fail(scope, "the printer is out of paper", /* retry_delay_ms= */ 10);
    return PR_HANDLED_RETRY;
}

static int print_row(void *user, int count, char **values, char **names)
{
    (void)user;
    for (int i = 0; i < count; i++)
        printf("%s: %s%s", names[i], values[i], i + 1 < count ? ", " : "\n");
    return 0;
}

/* Publish directly, as another service would. */
static void publish(pr_transport *transport, const pr_message *message, pr_error *err)
{
    pr_submission submission = {.message = message};
    pr_submitted outcome;
    size_t count = 0;
    must(pr_transport_submit(transport, &submission, 1, &count, err), "submit", err);
    must(pr_transport_poll(transport, 1000, &outcome, 1, &count, err), "poll", err);
}

int main(void)
{
    pr_error err = PR_ERROR_INIT;
    pr_store *store = NULL;
    pr_memory_broker *broker = NULL;
    pr_transport *out = NULL, *in = NULL;
    pr_endpoint *endpoint = NULL;
    sqlite3 *db = NULL;
    pr_sqlite_options at =
        PR_SQLITE_OPTIONS(.path = "billing.db", .create = true, .schema_check_off = true);
    must(pr_sqlite_store_open(&at, &store, &err), "open", &err);
    must(pr_store_migrate(store, NULL, NULL, &err), "migrate", &err);
    sqlite3_open("billing.db", &db);
    sqlite3_exec(db, "CREATE TABLE invoices (number INTEGER)", NULL, NULL, NULL);
    must(pr_memory_broker_new(&broker, &err), "broker", &err);
    must(pr_memory_transport_new(broker, NULL, &out, &err), "transport", &err);
    must(pr_memory_transport_new(broker, NULL, &in, &err), "transport", &err);

    const char *const types[] = {PLACED};
    pr_endpoint_options options = PR_ENDPOINT_OPTIONS(.id = "billing", .types = types,
                                                      .type_count = 1, .handler = write_invoice);
    pr_endpoint_snapshot seen = {.size = (uint32_t)sizeof(seen)};
    int64_t wait_ms = 0;
    must(pr_endpoint_new(store, in, &options, &endpoint, &err), "endpoint", &err);
    must(pr_endpoint_step(endpoint, &wait_ms, &err), "subscribe", &err);
    pr_message placed =
        PR_MESSAGE(.id = "0197a5c0-0000-7000-8000-000000000001", .type = PLACED, .type_version = 1,
                   .destination = "memory://topic/" PLACED, .content_type = "application/json",
                   .correlation_id = "checkout-42", .occurred_at_us = 1767225600000000);
    publish(out, &placed, &err);
    while (seen.handled == 0) {
        must(pr_endpoint_step(endpoint, &wait_ms, &err), "step", &err);
        must(pr_endpoint_snapshot_get(endpoint, &seen, &err), "snapshot", &err);
    }
    sqlite3_exec(db,
                 "SELECT (SELECT count(*) FROM invoices) AS invoices, type, correlation_id, "
                 "causation_id FROM postroom_outbox",
                 print_row, NULL, NULL);

    pr_endpoint_free(endpoint);
    pr_transport_free(in);
    pr_transport_free(out);
    pr_memory_broker_free(broker);
    sqlite3_close(db);
    pr_store_free(store);
    return EXIT_SUCCESS;
}
