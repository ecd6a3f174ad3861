/*
 * A middleware of one's own: it stands outside of the work unit and lets nothing through for a
 * tenant that has not paid. What it refuses is dead; what it lets through is handled as usual. The
 * log beside it writes a line for each message.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

static void publish(pr_bus *bus, const char *id, const char *tenant, pr_error *err)
{
    pr_message message = PR_MESSAGE(.id = id, .type = ORDERED, .tenant = tenant, PR_BODY("{}"));
    must(pr_bus_publish(bus, &message, NULL, err), "publish", err);
    must(pr_bus_wait_idle(bus, 30000, err), "wait", err); /* so that the lines come in order */
}

int main(void)
{
    static char paid[] = "north";
    pr_error err = PR_ERROR_INIT;
    pr_bus *bus = NULL;
    /* the outermost first; the inbox must stand inside of the unit */
    const pr_log log = {.size = (uint32_t)sizeof log, .write = write_line};
    const pr_middleware chain[] = {
        pr_middleware_log(&log),
        PR_MIDDLEWARE(.name = "paid", .invoke = only_who_paid, .user = paid),
        pr_middleware_unit(),
        pr_middleware_inbox(),
    };
    const char *const types[] = {ORDERED};
    pr_endpoint_options orders =
        PR_ENDPOINT_OPTIONS(.id = "orders", .types = types, .type_count = 1, .handler = take_order,
                            .middleware = chain, .middleware_count = 4);
    pr_endpoint_snapshot seen = {.size = (uint32_t)sizeof seen};
    must(pr_bus_open(pr_sqlite_open, "shop.db", NULL, &bus, &err), "open", &err);
    must(pr_bus_add_endpoint(bus, &orders, NULL, &err), "endpoint", &err);
    must(pr_bus_start(bus, &err), "start", &err);
    publish(bus, "0197a5c0-0000-7000-8000-000000000001", "north", &err);
    publish(bus, "0197a5c0-0000-7000-8000-000000000002", "south", &err);
    must(pr_endpoint_snapshot_get(pr_bus_endpoint(bus, "orders"), &seen, &err), "snapshot", &err);
    printf("handled %d, dead %d\n", (int)seen.handled, (int)seen.dead);
    pr_bus_free(bus);
    return EXIT_SUCCESS;
}
