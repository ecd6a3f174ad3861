/*
 * A middleware of one's own: it stands outside of the work unit and lets nothing through for a
 * tenant that has not paid. What it refuses is dead; what it lets through is handled as usual. The
 * log beside it writes a line for each message.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <postroom/memory.h>
#include <postroom/postroom.h>
#include <postroom/sqlite.h>

#define ORDERED "urn:message:shop:ordered"

static void must(pr_status status, const char *what, const pr_error *err)
{
    if (status == PR_OK)
        return;
    fprintf(stderr, "%s: %s (%s)\n", what, err->message, pr_status_text(status));
    exit(EXIT_FAILURE);
}

/* Wraps the rest: calls it, or answers in its place. */
static pr_handled only_who_paid(void *user, pr_scope *scope, pr_next *next)
{
    const char *tenant = pr_scope_message(scope)->tenant;
    if (tenant && strcmp(tenant, (const char *)user) == 0)
        return pr_next_invoke(next, scope);
    pr_scope_fail(scope, "this tenant has not paid", -1);
    return PR_HANDLED_PERMANENT;
}

static pr_handled take_order(void *user, pr_scope *scope)
{
    (void)user;
    printf("order of %s\n", pr_scope_message(scope)->tenant);
    return PR_HANDLED_OK;
}

static void write_line(void *user, const char *line)
{
    const char *end = strstr(line, " duration_us="); /* it is never the same */
    (void)user;
    printf("log: %.*s\n", end ? (int)(end - line) : 0, line);
}

static void publish(pr_transport *out, const char *id, const char *tenant, pr_error *err)
{
    pr_message message =
        PR_MESSAGE(.id = id, .type = ORDERED, .type_version = 1, .tenant = tenant,
                   .content_type = "application/json", .destination = "memory://topic/" ORDERED,
                   .body = "{}", .body_size_bytes = 2, .occurred_at_us = 1767225600000000);
    pr_submission submission = {.ticket = 1, .message = &message};
    pr_submitted outcome;
    size_t count = 0;
    must(pr_transport_submit(out, &submission, 1, &count, err), "submit", err);
    must(pr_transport_poll(out, 1000, &outcome, 1, &count, err), "poll", err);
}

int main(void)
{
    static char paid[] = "north";
    pr_error err = PR_ERROR_INIT;
    pr_store *store = NULL;
    pr_memory_broker *broker = NULL;
    pr_transport *in = NULL, *out = NULL;
    pr_endpoint *endpoint = NULL;
    pr_sqlite_options at =
        PR_SQLITE_OPTIONS(.path = "shop.db", .create = true, .schema_check_off = true);
    must(pr_sqlite_store_open(&at, &store, &err), "open", &err);
    must(pr_store_migrate(store, NULL, NULL, &err), "migrate", &err);
    must(pr_memory_broker_new(&broker, &err), "broker", &err);
    must(pr_memory_transport_new(broker, NULL, &in, &err), "transport", &err);
    must(pr_memory_transport_new(broker, NULL, &out, &err), "transport", &err);

    /* the outermost first; the inbox must stand inside of the unit */
    const pr_log log = {.size = (uint32_t)sizeof log, .write = write_line};
    const pr_middleware chain[] = {
        pr_middleware_log(&log),
        PR_MIDDLEWARE(.name = "paid", .invoke = only_who_paid, .user = paid),
        pr_middleware_unit(),
        pr_middleware_inbox(),
    };
    const char *const types[] = {ORDERED};
    pr_endpoint_options opt =
        PR_ENDPOINT_OPTIONS(.id = "orders", .types = types, .type_count = 1, .handler = take_order,
                            .middleware = chain, .middleware_count = 4);
    must(pr_endpoint_new(store, in, &opt, &endpoint, &err), "endpoint", &err);

    int64_t wait_ms = 0;
    must(pr_endpoint_step(endpoint, &wait_ms, &err), "subscribe", &err);
    publish(out, "0197a5c0-0000-7000-8000-000000000001", "north", &err);
    publish(out, "0197a5c0-0000-7000-8000-000000000002", "south", &err);
    pr_endpoint_snapshot seen = {.size = (uint32_t)sizeof seen};
    while (seen.handled + seen.dead < 2) {
        must(pr_endpoint_step(endpoint, &wait_ms, &err), "step", &err);
        must(pr_endpoint_snapshot_get(endpoint, &seen, &err), "snapshot", &err);
    }
    printf("handled %d, dead %d\n", (int)seen.handled, (int)seen.dead);

    pr_endpoint_free(endpoint);
    pr_transport_free(in);
    pr_transport_free(out);
    pr_memory_broker_free(broker);
    pr_store_free(store);
    return EXIT_SUCCESS;
}
