/*
 * Domain events, integration events, commands and replies: one registry, one inbox. Each comes
 * twice and takes effect once.
 */
#include "world.h"

#include <postroom/contract.h>

#define COMMAND "urn:message:shop:bill-order"
#define REPLY   "urn:message:shop:order-billed"

static const char *const types[] = {TYPE_ORDER, TYPE_FOLLOW, COMMAND, REPLY};
static const pr_contract contracts[] = {
    {.size = (uint32_t)sizeof(pr_contract),
     .type_version = 1,
     .type = TYPE_ORDER,
     .kind = PR_CONTRACT_DOMAIN_EVENT,
     .flags = PR_CONTRACT_RAW},
    {.size = (uint32_t)sizeof(pr_contract),
     .type_version = 1,
     .type = TYPE_FOLLOW,
     .kind = PR_CONTRACT_INTEGRATION_EVENT,
     .flags = PR_CONTRACT_RAW},
    {.size = (uint32_t)sizeof(pr_contract),
     .type_version = 1,
     .type = COMMAND,
     .kind = PR_CONTRACT_COMMAND,
     .flags = PR_CONTRACT_RAW},
    {.size = (uint32_t)sizeof(pr_contract),
     .type_version = 1,
     .type = REPLY,
     .kind = PR_CONTRACT_REPLY,
     .flags = PR_CONTRACT_RAW},
};

static void test_every_kind_once(void **state)
{
    world *w = *state;
    pr_error err = PR_ERROR_INIT;
    pr_contracts *registry = NULL;
    check_ok(pr_contracts_new(&registry, &err), &err, "registry");
    for (size_t i = 0; i < COUNT_OF(contracts); i++)
        check_ok(pr_contracts_register(registry, &contracts[i], &err), &err, contracts[i].type);
    w->opt.contracts = registry;
    w->opt.types = types;
    w->opt.type_count = COUNT_OF(types);
    w->act = act_ok;
    world_start(w);
    for (size_t i = 0; i < 2 * COUNT_OF(types); i++) {
        size_t kind = i % COUNT_OF(types);
        char id[] = "00000000-0000-7000-8000-000000000001";
        char destination[128];
        id[35] = (char)('1' + kind);
        snprintf(destination, sizeof destination, "memory://topic/%s", types[kind]);
        pr_message message =
            PR_MESSAGE(.id = id, .type = types[kind], .type_version = 1,
                       .content_type = "application/octet-stream", .destination = destination,
                       .body = "x", .body_size_bytes = 1, .occurred_at_us = 1700000000000000);
        world_send_message(w, &message);
    }
    world_step_until(w, duplicate, COUNT_OF(types));
    assert_int_equal(world_snapshot(w).handled, COUNT_OF(types));
    assert_int_equal(world_number(w, EFFECTS), COUNT_OF(types));
    assert_int_equal(world_number(w, MARKS), COUNT_OF(types));
    w->endpoint = pr_endpoint_free(w->endpoint);
    pr_contracts_free(registry);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_every_kind_once, world_setup, world_teardown)};
    return RUN_TESTS(tests);
}
