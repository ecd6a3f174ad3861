/*
 * Domain events, integration events, commands and replies: one registry, one inbox. Each comes
 * twice and takes effect once. An old version reaches the handler as the newest.
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

/* ---- versions ---- */

typedef struct euros {
    int64_t euros;
} euros;

typedef struct cents {
    int64_t cents;
} cents;

static const pr_field euros_fields[] = {
    {.name = "euros", .kind = PR_FIELD_INT64, .offset = offsetof(euros, euros)},
    {.name = NULL},
};
static const pr_field cents_fields[] = {
    {.name = "cents", .kind = PR_FIELD_INT64, .offset = offsetof(cents, cents)},
    {.name = NULL},
};
static const pr_contract versions[] = {
    {.size = (uint32_t)sizeof(pr_contract),
     .type_version = 1,
     .type = TYPE_ORDER,
     .kind = PR_CONTRACT_COMMAND,
     .fields = euros_fields,
     .object_size = sizeof(euros)},
    {.size = (uint32_t)sizeof(pr_contract),
     .type_version = 2,
     .type = TYPE_ORDER,
     .kind = PR_CONTRACT_COMMAND,
     .fields = cents_fields,
     .object_size = sizeof(cents)},
};

static pr_status to_cents(void *user, const void *from, void *to, pr_decoded *decoded,
                          pr_error *err)
{
    const euros *old = from;
    (void)user, (void)decoded;
    if (old->euros < 0)
        return pr_error_set(err, PR_E_CONTENT, PR_RETRY_NEVER, "shop", "a debt");
    ((cents *)to)->cents = old->euros * 100;
    return PR_OK;
}

static pr_handled act_check_cents(world *w, pr_scope *scope)
{
    const cents *object = pr_scope_object(scope);
    (void)w;
    return object && object->cents == 700 ? PR_HANDLED_OK : PR_HANDLED_PERMANENT;
}

static void test_an_old_version_reaches_the_handler_as_the_newest(void **state)
{
    static const struct {
        const char *id;
        uint32_t version;
        const char *body;
    } cases[] = {
        {"00000000-0000-7000-8000-000000000001", 1, "{\"euros\":7}"},
        {"00000000-0000-7000-8000-000000000002", 2, "{\"cents\":700}"},
        {"00000000-0000-7000-8000-000000000003", 1, "{\"euros\":-7}"}, /* the step refuses it */
    };
    world *w = *state;
    pr_error err = PR_ERROR_INIT;
    pr_contracts *registry = NULL;
    check_ok(pr_contracts_new(&registry, &err), &err, "registry");
    for (size_t i = 0; i < COUNT_OF(versions); i++)
        check_ok(pr_contracts_register(registry, &versions[i], &err), &err, "register");
    check_ok(pr_contracts_upcast(registry, TYPE_ORDER, 1, to_cents, NULL, &err), &err, "step");
    w->opt.contracts = registry;
    w->act = act_check_cents;
    world_start(w);
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        pr_message message =
            PR_MESSAGE(.id = cases[i].id, .type = TYPE_ORDER, .type_version = cases[i].version,
                       .content_type = "application/json",
                       .destination = "memory://topic/" TYPE_ORDER, .body = cases[i].body,
                       .body_size_bytes = strlen(cases[i].body), .occurred_at_us = 1);
        world_send_message(w, &message);
    }
    world_step_until(w, dead, 1);
    assert_int_equal(world_snapshot(w).handled, 2);
    assert_int_equal(w->calls, 2);
    assert_non_null(strstr(w->last_text[PR_OBSERVE_HANDLER_DEAD], "version 1 to 2: a debt"));
    w->endpoint = pr_endpoint_free(w->endpoint);
    pr_contracts_free(registry);
}

static int suite(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_every_kind_once, world_setup, world_teardown),
        cmocka_unit_test_setup_teardown(test_an_old_version_reaches_the_handler_as_the_newest,
                                        world_setup, world_teardown),
    };
    return RUN_TESTS(tests);
}

int main(void)
{
    return world_main(suite);
}
