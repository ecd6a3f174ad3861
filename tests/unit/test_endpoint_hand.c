/*
 * What an endpoint has in hand, when one of it goes back: what follows it in its key goes too, from
 * the youngest, so that nothing passes it; others stay. The transports of memory and the database
 * never have two of a key in one hand, so that this is shown here, and by a broker that has.
 */
#include "support/test.h"

#include "core/endpoint.h"
#include "unit/fake_store.h"

#define HELD 4

typedef struct hand {
    fake_store store;
    pr_transport transport;
    pr_subscription subscription;
    pr_endpoint *endpoint;
    char settled[2 * HELD + 1]; /* tags as letters, in order: lower case = requeued */
} hand;

static hand at;

static pr_status note_settle(pr_subscription *subscription, uint64_t tag, pr_verdict verdict,
                             int64_t requeue_delay_ms, pr_error *err)
{
    (void)subscription;
    (void)requeue_delay_ms;
    (void)err;
    char first = verdict == PR_VERDICT_REQUEUE ? 'a' : 'A';
    at.settled[strlen(at.settled)] = (char)(first + (int)tag);
    return PR_OK;
}

static void free_nothing(pr_subscription *subscription)
{
    (void)subscription;
}

static pr_handled never(void *user, pr_scope *scope)
{
    (void)user;
    (void)scope;
    return PR_HANDLED_PERMANENT;
}

/* Holds deliveries a, b, c, ..., each with the key of that letter; '-' = none. */
static void hold(const char *keys, pr_order order, const char *label)
{
    static const char *const types[] = {"urn:message:unit:held"};
    static const pr_transport_ops transport_ops = {.size = (uint32_t)sizeof transport_ops,
                                                   .scheme = "fake"};
    static const pr_subscription_ops ops = {
        .size = (uint32_t)sizeof ops, .settle = note_settle, .free = free_nothing};
    pr_error err = PR_ERROR_INIT;
    pr_delivery deliveries[HELD];
    static char ids[HELD][16], texts[HELD][2];
    at = (hand){.transport = {.ops = &transport_ops, .name = "fake"}};
    fake_store_init(&at.store);
    at.subscription = (pr_subscription){&ops, &at.transport};
    const pr_endpoint_options opt =
        PR_ENDPOINT_OPTIONS(.id = "hand", .types = types, .type_count = 1, .handler = never,
                            .order = order);
    check_ok(pr_endpoint_new(&at.store.base, &at.transport, &opt, &at.endpoint, &err), &err, label);
    at.endpoint->subscription = &at.subscription;
    for (size_t i = 0; i < HELD; i++) {
        (void)snprintf(ids[i], sizeof ids[i], "id-%zu", i);
        texts[i][0] = keys[i];
        deliveries[i] =
            (pr_delivery){.tag = i,
                          .message = PR_MESSAGE(.id = ids[i], .type = types[0], .type_version = 1,
                                                .destination = "fake://in/hand", .body = "{}",
                                                .body_size_bytes = 2, .occurred_at_us = 1,
                                                .key = keys[i] == '-' ? NULL : texts[i])};
    }
    check_ok(pr__endpoint_take(at.endpoint, deliveries, HELD, &err), &err, label);
    CHECK_CASE(at.endpoint->work_count == HELD, label);
}

static void drop(void)
{
    while (at.endpoint->work_count > 0)
        (void)!pr__endpoint_after_delivery(at.endpoint, 0, PR__WORK_ACK, NULL);
    pr_endpoint_free(at.endpoint);
    fake_store_done(&at.store);
}

static void test_followers_go_back_with_it(void **state)
{
    (void)state;
    static const struct {
        const char *label, *keys;
        pr_order order;
        uint32_t index;
        int tried; /* a worker has that one; -1 = none */
        pr__verdict verdict;
        const char *settled;
    } cases[] = {
        {"those of its key", "kkok", PR_ORDER_DEFAULT, 0, -1, PR__WORK_GIVE_BACK, "dba"},
        {"none that came before it", "kkok", PR_ORDER_DEFAULT, 1, -1, PR__WORK_GIVE_BACK, "db"},
        {"none without a key", "--k-", PR_ORDER_DEFAULT, 0, -1, PR__WORK_GIVE_BACK, "a"},
        {"none where order does not matter", "kkkk", PR_ORDER_SKIP, 0, -1, PR__WORK_GIVE_BACK, "a"},
        {"not one that a worker has", "kkok", PR_ORDER_DEFAULT, 0, 3, PR__WORK_GIVE_BACK, "ba"},
        {"none of one that is done", "kkok", PR_ORDER_DEFAULT, 0, -1, PR__WORK_ACK, "A"},
        {"none of one that is rejected", "kkok", PR_ORDER_DEFAULT, 0, -1, PR__WORK_REJECT, "A"},
        {"none while it waits in hand", "kkok", PR_ORDER_DEFAULT, 0, -1, PR__WORK_WAIT, ""},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        pr_error err = PR_ERROR_INIT;
        hold(cases[i].keys, cases[i].order, cases[i].label);
        if (cases[i].tried >= 0)
            pr__endpoint_set_state(at.endpoint, at.endpoint->works[cases[i].tried],
                                   PR__WORK_TRYING);
        pr__endpoint_set_state(at.endpoint, at.endpoint->works[cases[i].index], PR__WORK_TRIED);
        check_ok(pr__endpoint_after_delivery(at.endpoint, cases[i].index, cases[i].verdict, &err),
                 &err, cases[i].label);
        if (strcmp(at.settled, cases[i].settled) != 0)
            fail_msg("case '%s': settled '%s', wanted '%s'", cases[i].label, at.settled,
                     cases[i].settled);
        CHECK_CASE(at.endpoint->work_count == HELD - strlen(cases[i].settled), cases[i].label);
        drop();
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_followers_go_back_with_it)};
    return RUN_TESTS(tests);
}
