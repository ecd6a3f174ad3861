/*
 * Publishing an object of a contract directly: what stands in the message, and what is refused.
 */
#include "support/test.h"

#include <postroom/bus.h>
#include <postroom/contract.h>
#include <postroom/memory.h>

#include "unit/fake_store.h"

#define TYPE   "urn:message:unit:order-placed"
#define NOBODY "urn:message:unit:unheard"
#define AWAIT  10000

typedef struct order {
    int64_t number;
    const char *text;
} order;

static const pr_field fields[] = {
    {.name = "number", .kind = PR_FIELD_INT64, .offset = offsetof(order, number)},
    {.name = "text", .kind = PR_FIELD_TEXT, .offset = offsetof(order, text)},
    {.name = NULL},
};

static pr_contract contract_of(const char *type, uint32_t version, uint32_t flags)
{
    return (pr_contract){.size = (uint32_t)sizeof(pr_contract),
                         .kind = PR_CONTRACT_INTEGRATION_EVENT,
                         .type = type,
                         .type_version = version,
                         .flags = flags,
                         .fields = fields,
                         .object_size = sizeof(order)};
}

typedef struct ground {
    fake_store store;
    pr_memory_broker *broker;
    pr_transport *sender, *receiver;
    pr_subscription *subscription;
    pr_bus *bus;
} ground;

static int setup(void **state)
{
    ground *g = calloc(1, sizeof *g);
    assert_non_null(g);
    static const char *const types[] = {TYPE};
    const pr_subscribe_options subscribe =
        PR_SUBSCRIBE_OPTIONS(.endpoint = "billing", .types = types, .type_count = 1);
    pr_error err = PR_ERROR_INIT;
    fake_store_init(&g->store);
    check_ok(pr_memory_broker_new(&g->broker, &err), &err, "broker");
    check_ok(pr_memory_transport_new(g->broker, NULL, &g->sender, &err), &err, "sender");
    check_ok(pr_memory_transport_new(g->broker, NULL, &g->receiver, &err), &err, "receiver");
    check_ok(pr_transport_open(g->receiver, AWAIT, &err), &err, "open");
    check_ok(pr_transport_subscribe(g->receiver, &subscribe, &g->subscription, &err), &err,
             "subscribe");
    pr_bus_options opt = PR_BUS_OPTIONS(.store = &g->store.base);
    check_ok(pr_bus_new(&opt, &g->bus, &err), &err, "bus");
    check_ok(pr_bus_add_transport(g->bus, g->sender, &err), &err, "transport");
    *state = g;
    return 0;
}

static int teardown(void **state)
{
    ground *g = *state;
    pr_bus_free(g->bus);
    pr_subscription_free(g->subscription);
    pr_transport_free(g->receiver);
    pr_transport_free(g->sender);
    pr_memory_broker_free(g->broker);
    fake_store_done(&g->store);
    free(g);
    return 0;
}

static void what_is_refused(void **state)
{
    ground *g = *state;
    const order good = {7, "x"}, hollow = {7, NULL};
    const pr_contract placed = contract_of(TYPE, 1, 0), unheard = contract_of(NOBODY, 1, 0);
    const struct {
        const char *label;
        const pr_contract *contract;
        const order *object;
        pr_status status;
        const char *text;
    } cases[] = {
        {"no contract", NULL, &good, PR_E_INVALID, "the contract is NULL"},
        {"no object", &placed, NULL, PR_E_INVALID, "object"},
        {"a hole in the object", &placed, &hollow, PR_E_CONTENT, "field 'text' is NULL"},
        {"nobody listens", &unheard, &good, PR_E_NOT_FOUND, NOBODY},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        pr_error err = PR_ERROR_INIT;
        pr_enqueued enqueued = {.id = "none"};
        check_error(pr_bus_publish_object(g->bus, cases[i].contract, cases[i].object, NULL,
                                          &enqueued, &err),
                    &err, cases[i].status, cases[i].text, cases[i].label);
        assert_string_equal(enqueued.id, "none");
    }
}

static void nobody_need_listen(void **state)
{
    ground *g = *state;
    const order object = {7, "x"};
    const pr_contract contract = contract_of(NOBODY, 1, PR_CONTRACT_UNROUTED_OK);
    pr_error err = PR_ERROR_INIT;
    check_ok(pr_bus_publish_object(g->bus, &contract, &object, NULL, NULL, &err), &err, "publish");
}

static void what_stands_in_the_message(void **state)
{
    ground *g = *state;
    const order object = {7, "x"};
    const pr_contract contract = contract_of(TYPE, 3, 0);
    pr_error err = PR_ERROR_INIT;
    pr_enqueued enqueued = {0};
    pr_delivery delivery;
    size_t count = 0;
    check_ok(pr_bus_publish_object(g->bus, &contract, &object, "customer-1", &enqueued, &err), &err,
             "publish");
    check_ok(pr_subscription_receive(g->subscription, AWAIT, &delivery, 1, &count, &err), &err,
             "receive");
    assert_int_equal(count, 1);
    const pr_message *message = &delivery.message;
    assert_string_equal(message->id, enqueued.id);
    assert_string_equal(message->type, TYPE);
    assert_int_equal(message->type_version, 3);
    assert_string_equal(message->content_type, "application/json");
    assert_string_equal(message->key, "customer-1");
    assert_string_equal(message->destination, "memory://topic/" TYPE);
    static const char body[] = "{\"number\":7,\"text\":\"x\"}";
    assert_int_equal(message->body_size_bytes, sizeof body - 1);
    assert_memory_equal(message->body, body, sizeof body - 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(what_is_refused, setup, teardown),
        cmocka_unit_test_setup_teardown(nobody_need_listen, setup, teardown),
        cmocka_unit_test_setup_teardown(what_stands_in_the_message, setup, teardown),
    };
    return RUN_TESTS(tests);
}
