/*
 * Hello: one message goes into the outbox, a relay sends it to a broker in memory, an endpoint
 * handles it. Everything happens in this process, step by step.
 */
#include <stdio.h>
#include <stdlib.h>

#include <postroom/memory.h>
#include <postroom/postroom.h>
#include <postroom/sqlite.h>

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
    printf("received: %.*s\n", (int)message->body_size_bytes, (const char *)message->body);
    return PR_HANDLED_OK;
}

int main(void)
{
    pr_error err = PR_ERROR_INIT;
    pr_store *store = NULL;
    pr_sqlite_options at =
        PR_SQLITE_OPTIONS(.path = "hello.db", .create = true, .schema_check_off = true);
    must(pr_sqlite_store_open(&at, &store, &err), "open", &err);
    must(pr_store_migrate(store, NULL, NULL, &err), "migrate", &err);

    pr_memory_broker *broker = NULL;
    pr_transport *out = NULL, *in = NULL;
    must(pr_memory_broker_new(&broker, &err), "broker", &err);
    must(pr_memory_transport_new(broker, NULL, &out, &err), "transport", &err);
    must(pr_memory_transport_new(broker, NULL, &in, &err), "transport", &err);

    /* the first step subscribes, so that the message finds somebody */
    const char *const types[] = {GREETED};
    pr_endpoint_options receive = PR_ENDPOINT_OPTIONS(.id = "printer", .types = types,
                                                      .type_count = 1, .handler = print_body);
    pr_endpoint *endpoint = NULL;
    int64_t wait_ms = 0;
    must(pr_endpoint_new(store, in, &receive, &endpoint, &err), "endpoint", &err);
    must(pr_endpoint_step(endpoint, &wait_ms, &err), "subscribe", &err);

    pr_unit *unit = NULL;
    pr_message message = PR_MESSAGE(.type = GREETED, .destination = "memory://topic/" GREETED,
                                    .body = "\"hello\"", .body_size_bytes = 7);
    must(pr_unit_begin(store, &unit, &err), "begin", &err);
    must(pr_unit_enqueue(unit, &message, NULL, &err), "enqueue", &err);
    must(pr_unit_commit(unit, NULL, &err), "commit", &err);
    pr_unit_free(unit);

    pr_relay *relay = NULL;
    uint64_t published = 0;
    must(pr_relay_new(store, &out, 1, NULL, &relay, &err), "relay", &err);
    must(pr_relay_run_once(relay, &published, &err), "relay", &err);
    printf("published: %d\n", (int)published);

    pr_endpoint_snapshot seen = {.size = (uint32_t)sizeof(seen)};
    while (seen.handled == 0) {
        must(pr_endpoint_step(endpoint, &wait_ms, &err), "step", &err);
        must(pr_endpoint_snapshot_get(endpoint, &seen, &err), "snapshot", &err);
    }

    pr_endpoint_free(endpoint);
    pr_relay_free(relay);
    pr_transport_free(in);
    pr_transport_free(out);
    pr_memory_broker_free(broker);
    pr_store_free(store);
    return EXIT_SUCCESS;
}
