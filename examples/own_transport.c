/*
 * Your own transport at work: the relay sends through it, an endpoint receives from it. The
 * transport is in transport/, to be copied: neither side knows what is behind it.
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

static void send(pr_store *store, const char *body, pr_error *err)
{
    pr_unit *unit = NULL;
    pr_message message = PR_MESSAGE(.type = GREETED, .destination = "shelf://topic/" GREETED,
                                    .body = body, .body_size_bytes = 4);
    must(pr_unit_begin(store, &unit, err), "begin", err);
    must(pr_unit_enqueue(unit, &message, NULL, err), "enqueue", err);
    must(pr_unit_commit(unit, NULL, err), "commit", err);
    pr_unit_free(unit);
}

int main(void)
{
    pr_error err = PR_ERROR_INIT;
    pr_store *store = NULL;
    pr_transport *out = NULL, *in = NULL;
    pr_relay *relay = NULL;
    pr_endpoint *endpoint = NULL;
    shelf *broker = shelf_new();
    pr_sqlite_options at =
        PR_SQLITE_OPTIONS(.path = "hello.db", .create = true, .schema_check_off = true);
    must(broker ? PR_OK : PR_E_NOMEM, "shelf", &err);
    must(pr_sqlite_store_open(&at, &store, &err), "open", &err);
    must(pr_store_migrate(store, NULL, NULL, &err), "migrate", &err);
    must(shelf_connect(broker, /* window= */ 0, &out, &err), "connect", &err);
    must(shelf_connect(broker, /* window= */ 0, &in, &err), "connect", &err);

    /* the first step subscribes, so that the messages find somebody */
    const char *const types[] = {GREETED};
    pr_endpoint_options receive = PR_ENDPOINT_OPTIONS(.id = "printer", .types = types,
                                                      .type_count = 1, .handler = print_body);
    pr_endpoint_snapshot seen = {.size = (uint32_t)sizeof(seen)};
    int64_t wait_ms = 0;
    must(pr_endpoint_new(store, in, &receive, &endpoint, &err), "endpoint", &err);
    must(pr_endpoint_step(endpoint, &wait_ms, &err), "subscribe", &err);

    uint64_t published = 0;
    send(store, "\"hi\"", &err);
    send(store, "\"ho\"", &err);
    must(pr_relay_new(store, &out, 1, NULL, &relay, &err), "relay", &err);
    must(pr_relay_run_once(relay, &published, &err), "relay", &err);
    while (seen.handled < published) {
        must(pr_endpoint_step(endpoint, &wait_ms, &err), "step", &err);
        must(pr_endpoint_snapshot_get(endpoint, &seen, &err), "snapshot", &err);
    }
    printf("published %d, handled %d\n", (int)published, (int)seen.handled);

    pr_endpoint_free(endpoint);
    pr_relay_free(relay);
    pr_transport_free(in);
    pr_transport_free(out);
    shelf_free(broker);
    pr_store_free(store);
    return EXIT_SUCCESS;
}
