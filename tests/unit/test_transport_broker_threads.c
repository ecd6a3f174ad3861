/*
 * One memory broker under many threads: producers, two endpoints with two consumers each that ack
 * and requeue, and a thread that opens and closes temporary subscriptions. Nothing is lost or
 * doubled, and each key stays in order. Meant to run under ThreadSanitizer as well.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

#include "support/test.h"

#include <postroom/memory.h>

#define TYPE_A "urn:message:unit:a"

enum { PRODUCERS = 3, EACH = 400, ENDPOINTS = 2, CONSUMERS = 4, TOTAL = PRODUCERS * EACH };

typedef struct shared {
    pr_memory_broker *broker;
    atomic_uint acked[ENDPOINTS][TOTAL];
    atomic_uint done[ENDPOINTS];
    atomic_int last_of_key[ENDPOINTS][PRODUCERS]; /* a producer is a key */
    atomic_uint faults;
    atomic_bool stop;
} shared;

typedef struct worker {
    shared *all;
    int number;
} worker;

static int64_t now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static void fault(shared *all)
{
    atomic_fetch_add(&all->faults, 1); /* asserted in the test's own thread */
}

static void *produce(void *user)
{
    worker *self = user;
    pr_transport *transport = NULL;
    pr_error err = PR_ERROR_INIT;
    char key[8];
    snprintf(key, sizeof(key), "k%d", self->number);
    if (pr_memory_transport_new(self->all->broker, NULL, &transport, &err) != PR_OK) {
        fault(self->all);
        return NULL;
    }
    for (int i = 0; i < EACH; i++) {
        int number = self->number * EACH + i;
        const pr_message message =
            PR_MESSAGE(.id = "018e0000-0000-7000-8000-000000000001", .type = TYPE_A,
                       .type_version = 1, .destination = "memory://topic/" TYPE_A, .key = key,
                       .body = &number, .body_size_bytes = sizeof(number), .occurred_at_us = 1);
        pr_submission submission = {1, &message};
        pr_submitted outcome = {0};
        size_t count = 0;
        if (pr_transport_submit(transport, &submission, 1, &count, &err) != PR_OK || count != 1 ||
            pr_transport_poll(transport, 0, &outcome, 1, &count, &err) != PR_OK || count != 1 ||
            outcome.outcome != PR_SUBMIT_CONFIRMED)
            fault(self->all);
    }
    pr_transport_free(transport);
    return NULL;
}

static void take(worker *self, pr_subscription *subscription, const pr_delivery *delivery,
                 unsigned *random)
{
    shared *all = self->all;
    int endpoint = self->number % ENDPOINTS;
    int number;
    pr_error err = PR_ERROR_INIT;
    memcpy(&number, delivery->message.body, sizeof(number));
    *random = *random * 1103515245u + 12345u;
    pr_verdict verdict = (*random >> 16) % 8 == 0 ? PR_VERDICT_REQUEUE : PR_VERDICT_ACK;
    int last = atomic_load(&all->last_of_key[endpoint][number / EACH]);
    if (number % EACH != last + 1)
        fault(all);
    if (verdict == PR_VERDICT_ACK) {
        atomic_store(&all->last_of_key[endpoint][number / EACH], number % EACH);
        atomic_fetch_add(&all->acked[endpoint][number], 1);
    }
    if (pr_subscription_settle(subscription, delivery->tag, verdict, 1, &err) != PR_OK)
        fault(all);
    if (verdict == PR_VERDICT_ACK)
        atomic_fetch_add(&all->done[endpoint], 1);
}

static pr_status open_subscription(shared *all, const char *endpoint, bool temporary,
                                   pr_transport **ret_transport, pr_subscription **ret_subscription)
{
    static const char *const types[] = {TYPE_A};
    pr_subscribe_options options = {.size = (uint32_t)sizeof(options),
                                    .prefetch = 2,
                                    .endpoint = endpoint,
                                    .types = types,
                                    .type_count = 1,
                                    .temporary = temporary};
    pr_status status = pr_memory_transport_new(all->broker, NULL, ret_transport, NULL);
    if (status == PR_OK)
        status = pr_transport_subscribe(*ret_transport, &options, ret_subscription, NULL);
    return status;
}

static void *consume(void *user)
{
    worker *self = user;
    shared *all = self->all;
    int endpoint = self->number % ENDPOINTS;
    unsigned random = (unsigned)self->number + 1;
    pr_transport *transport = NULL;
    pr_subscription *subscription = NULL;
    int64_t deadline = now_ms() + 60000;
    if (open_subscription(all, endpoint ? "two" : "one", false, &transport, &subscription) != PR_OK)
        fault(all);
    while (subscription && atomic_load(&all->done[endpoint]) < TOTAL && now_ms() < deadline) {
        pr_delivery out[2];
        size_t got = 0;
        if (pr_subscription_receive(subscription, 20, out, 2, &got, NULL) != PR_OK)
            fault(all);
        for (size_t i = 0; i < got; i++)
            take(self, subscription, &out[i], &random);
    }
    pr_subscription_free(subscription);
    pr_transport_free(transport);
    return NULL;
}

static void *come_and_go(void *user)
{
    shared *all = user;
    while (!atomic_load(&all->stop)) {
        pr_transport *transport = NULL;
        pr_subscription *subscription = NULL;
        pr_delivery out[2];
        size_t got = 0;
        if (open_subscription(all, "guest", true, &transport, &subscription) != PR_OK ||
            pr_subscription_receive(subscription, 1, out, 2, &got, NULL) != PR_OK)
            fault(all);
        pr_subscription_free(subscription);
        pr_transport_free(transport);
    }
    return NULL;
}

static void declare_endpoints(shared *all)
{
    static const char *const names[] = {"one", "two"};
    for (size_t i = 0; i < COUNT_OF(names); i++) {
        pr_transport *transport = NULL;
        pr_subscription *subscription = NULL;
        assert_int_equal(open_subscription(all, names[i], false, &transport, &subscription), PR_OK);
        pr_subscription_free(subscription);
        pr_transport_free(transport);
    }
}

static void test_nothing_is_lost_between_threads(void **state)
{
    (void)state;
    shared *all = calloc(1, sizeof(*all));
    assert_non_null(all);
    pr_error err = PR_ERROR_INIT;
    check_ok(pr_memory_broker_new(&all->broker, &err), &err, "broker");
    declare_endpoints(all);
    for (int i = 0; i < ENDPOINTS; i++) {
        for (int k = 0; k < PRODUCERS; k++)
            atomic_store(&all->last_of_key[i][k], -1);
    }
    pthread_t threads[PRODUCERS + CONSUMERS];
    worker workers[PRODUCERS + CONSUMERS];
    pthread_t guest;
    for (int i = 0; i < PRODUCERS + CONSUMERS; i++) {
        bool producer = i < PRODUCERS;
        workers[i] = (worker){all, producer ? i : i - PRODUCERS};
        assert_int_equal(
            pthread_create(&threads[i], NULL, producer ? produce : consume, &workers[i]), 0);
    }
    assert_int_equal(pthread_create(&guest, NULL, come_and_go, all), 0);
    for (int i = 0; i < PRODUCERS + CONSUMERS; i++)
        pthread_join(threads[i], NULL);
    atomic_store(&all->stop, true);
    pthread_join(guest, NULL);
    assert_int_equal(atomic_load(&all->faults), 0);
    for (int i = 0; i < ENDPOINTS; i++) {
        for (int k = 0; k < TOTAL; k++)
            assert_int_equal(atomic_load(&all->acked[i][k]), 1);
    }
    pr_memory_broker_free(all->broker);
    free(all);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nothing_is_lost_between_threads),
    };
    return RUN_TESTS(tests);
}
