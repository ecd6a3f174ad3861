/*
 * Your own transport at work: the bus, its relay and its endpoint know of no other. The transport
 * is in transport/, to be copied; neither side knows what is behind it.
 */
#include <stdio.h>
#include <stdlib.h>

#include <postroom/sqlite.h>

#include "transport/shelf.h"

#define GREETED "urn:message:hello:greeted"

static void must(pr_status status, const char *what, const pr_error *err)
{
    if (status == PR_OK)
        return;
    fprintf(stderr, "%s: %s (%s)\n", what, err->message, pr_status_text(status));
    exit(EXIT_FAILURE);
}

static pr_handled print_body(void *user, pr_scope *scope)
{
    const pr_message *message = pr_scope_message(scope);
    (void)user;
    printf("%s: %.*s\n", message->destination, (int)message->body_size_bytes,
           (const char *)message->body);
    return PR_HANDLED_OK;
}

/* In the outbox with its transaction; the bus's relay carries it from there. */
static void send(pr_bus *bus, const pr_message *message, pr_error *err)
{
    pr_unit *unit = NULL;
    must(pr_unit_begin(pr_bus_store(bus), &unit, err), "begin", err);
    must(pr_bus_enqueue(bus, unit, NULL, message, NULL, err), "enqueue", err);
    must(pr_unit_commit(unit, NULL, err), "commit", err);
    pr_unit_free(unit);
}

int main(void)
{
    pr_error err = PR_ERROR_INIT;
    pr_store *store = NULL;
    pr_transport *transport = NULL;
    pr_bus *bus = NULL;
    pr_message hi = PR_MESSAGE(.type = GREETED, .key = "a", PR_BODY("\"hi\""));
    pr_message ho = PR_MESSAGE(.type = GREETED, .key = "a", PR_BODY("\"ho\""));
    shelf *broker = shelf_new();
    must(broker ? PR_OK : PR_E_NOMEM, "shelf", &err);
    must(shelf_connect(broker, /* window= */ 0, &transport, &err), "connect", &err);
    must(pr_sqlite_open("hello.db", &store, &err), "open", &err);
    must(pr_bus_new(&(pr_bus_options)PR_BUS_OPTIONS(.store = store), &bus, &err), "bus", &err);
    must(pr_bus_add_transport(bus, transport, &err), "transport", &err); /* the default one */
    must(pr_bus_on(bus, "printer", GREETED, print_body, NULL, &err), "printer", &err);
    must(pr_bus_start(bus, &err), "start", &err);

    send(bus, &hi, &err);
    must(pr_bus_wait_idle(bus, 30000, &err), "wait", &err);
    must(pr_bus_publish(bus, &ho, NULL, &err), "publish", &err); /* directly */
    must(pr_bus_wait_idle(bus, 30000, &err), "wait", &err);

    pr_bus_free(bus);
    pr_transport_free(transport);
    pr_store_free(store);
    shelf_free(broker);
    return EXIT_SUCCESS;
}
