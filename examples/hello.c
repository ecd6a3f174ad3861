/*
 * Hello: a bus with one endpoint; a message is published and handled. Each call answers PR_OK,
 * which is 0, so that a start-up reads as one chain.
 */
#include <stdatomic.h>
#include <stdio.h>
#include <unistd.h>

#include <postroom/memory.h>
#include <postroom/postroom.h>
#include <postroom/sqlite.h>

static pr_handled greet(void *done, pr_scope *scope)
{
    printf("received: %s\n", (const char *)pr_scope_message(scope)->body);
    atomic_store((atomic_bool *)done, true);
    return PR_HANDLED_OK;
}

int main(void)
{
    atomic_bool done = false;
    pr_error err = PR_ERROR_INIT;
    pr_store *store = NULL;
    pr_memory_broker *broker = NULL;
    pr_transport *memory = NULL;
    pr_bus *bus = NULL;
    pr_message hello =
        PR_MESSAGE(.type = "urn:message:demo:hello", .body = "\"hello\"", .body_size_bytes = 7);
    pr_sqlite_options at =
        PR_SQLITE_OPTIONS(.path = "hello.db", .create = true, .schema_check_off = true);

    if (pr_sqlite_store_open(&at, &store, &err) || pr_store_migrate(store, NULL, NULL, &err) ||
        pr_memory_broker_new(&broker, &err) ||
        pr_memory_transport_new(broker, NULL, &memory, &err) ||
        pr_bus_new(&(pr_bus_options)PR_BUS_OPTIONS(.store = store), &bus, &err) ||
        pr_bus_add_transport(bus, memory, &err) ||
        pr_bus_on(bus, "greeter", hello.type, greet, &done, &err) || pr_bus_start(bus, &err) ||
        pr_bus_publish(bus, &hello, NULL, &err))
        fprintf(stderr, "%s\n", err.message);
    while (err.status == PR_OK && !atomic_load(&done))
        usleep(1000);
    pr_bus_free(bus);
    pr_transport_free(memory);
    pr_memory_broker_free(broker);
    pr_store_free(store);
    return (int)err.status;
}
