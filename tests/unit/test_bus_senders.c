/*
 * Publishing directly from several threads, over a transport of the test's own that confirms when
 * it is told to: as many messages are in flight as threads publish, up to the bound; who finds no
 * sender waits no longer than its deadline; the transport is cloned by one thread at a time.
 */
#include <pthread.h>
#include <stdatomic.h>

#include "support/test.h"

#include <postroom/bus.h>

#include "base/error.h"
#include "base/time.h"
#include "core/bus.h"
#include "unit/fake_store.h"

#define TYPE     "urn:message:unit:direct"
#define SPARE    3
#define THREADS  (PR__BUS_SENDERS_MAX + SPARE)
#define LATE_MS  1500 /* all of them must have come to wait by then */
#define PATIENCE PATIENCE_MS

/* The other side, and what was seen of it. */
typedef struct side {
    atomic_int clones, open, in_flight, cloning;
    atomic_bool two_cloned;
    atomic_bool confirms;
    atomic_bool fails;
} side;

typedef struct fake_transport {
    pr_transport base;
    side *side;
    bool holds;
} fake_transport;

static const pr_transport_ops OPS;

static fake_transport *of(pr_transport *transport)
{
    return (fake_transport *)(void *)transport;
}

static pr_status fake_open(pr_transport *transport, int64_t timeout_ms, pr_error *err)
{
    (void)timeout_ms;
    return atomic_load(&of(transport)->side->fails)
               ? pr__fail_retry(err, PR_E_BACKEND, PR_RETRY_RECONNECT, "fake", "it is away")
               : PR_OK;
}

static pr_status fake_submit(pr_transport *transport, const pr_submission *submissions,
                             size_t count, size_t *ret_accepted, pr_error *err)
{
    (void)submissions;
    (void)count;
    (void)err;
    of(transport)->holds = true;
    atomic_fetch_add(&of(transport)->side->in_flight, 1);
    *ret_accepted = 1;
    return PR_OK;
}

static pr_status fake_poll(pr_transport *transport, int64_t timeout_ms, pr_submitted *ret_outcomes,
                           size_t max, size_t *ret_count, pr_error *err)
{
    (void)max;
    (void)err;
    fake_transport *self = of(transport);
    int64_t until_us = pr__monotonic_us() + timeout_ms * 1000;
    while (!atomic_load(&self->side->confirms) && pr__monotonic_us() < until_us)
        pr__sleep_us(1000);
    if (!self->holds || !atomic_load(&self->side->confirms))
        return PR_OK;
    self->holds = false;
    atomic_fetch_sub(&self->side->in_flight, 1);
    ret_outcomes[0] = (pr_submitted){.ticket = 1, .outcome = PR_SUBMIT_CONFIRMED};
    *ret_count = 1;
    return PR_OK;
}

static void fake_free(pr_transport *transport)
{
    fake_transport *self = of(transport);
    if (self->holds)
        atomic_fetch_sub(&self->side->in_flight, 1);
    atomic_fetch_sub(&self->side->open, 1);
    free(self);
}

static pr_transport *fake_new(side *at)
{
    fake_transport *self = calloc(1, sizeof *self);
    assert_non_null(self);
    self->base = (pr_transport){.ops = &OPS, .name = "fake", .window = 1};
    self->side = at;
    atomic_fetch_add(&at->open, 1);
    return &self->base;
}

static pr_status fake_clone(pr_transport *transport, pr_transport **ret_transport, pr_error *err)
{
    (void)err;
    side *at = of(transport)->side;
    if (atomic_fetch_add(&at->cloning, 1) != 0)
        atomic_store(&at->two_cloned, true);
    pr__sleep_us(2000); /* long enough for a second one to come */
    atomic_fetch_add(&at->clones, 1);
    *ret_transport = fake_new(at);
    atomic_fetch_sub(&at->cloning, 1);
    return PR_OK;
}

static const pr_transport_ops OPS = {.size = (uint32_t)sizeof OPS,
                                     .scheme = "fake",
                                     .open = fake_open,
                                     .submit = fake_submit,
                                     .poll = fake_poll,
                                     .free = fake_free,
                                     .clone = fake_clone};

/* ---- a bus, and threads that publish by it ---- */

typedef struct bench {
    fake_store store;
    side side;
    pr_transport *transport;
    pr_bus *bus;
} bench;

static void bench_open(bench *b, int64_t deadline_ms)
{
    pr_error err = PR_ERROR_INIT;
    memset(b, 0, sizeof *b);
    fake_store_init(&b->store);
    b->transport = fake_new(&b->side);
    pr_bus_options opt =
        PR_BUS_OPTIONS(.store = &b->store.base, .publish_deadline_ms = deadline_ms);
    check_ok(pr_bus_new(&opt, &b->bus, &err), &err, "bus");
    check_ok(pr_bus_add_transport(b->bus, b->transport, &err), &err, "transport");
}

static void bench_close(bench *b)
{
    pr_bus_free(b->bus);
    assert_int_equal(atomic_load(&b->side.open), 1); /* every clone was freed */
    assert_false(atomic_load(&b->side.two_cloned));
    pr_transport_free(b->transport);
    fake_store_done(&b->store);
}

typedef struct publisher {
    pr_bus *bus;
    pthread_t thread;
    pr_status status;
    pr_error err;
} publisher;

static pr_status publish(pr_bus *bus, pr_error *err)
{
    pr_message message =
        PR_MESSAGE(.type = TYPE, .type_version = 1, .body = "1", .body_size_bytes = 1);
    return pr_bus_publish(bus, &message, NULL, err);
}

static void *publish_one(void *user)
{
    publisher *self = user;
    self->status = publish(self->bus, &self->err);
    return NULL;
}

static void start(publisher *publishers, size_t count, pr_bus *bus)
{
    for (size_t i = 0; i < count; i++) {
        publishers[i] = (publisher){.bus = bus, .err = PR_ERROR_INIT};
        assert_int_equal(pthread_create(&publishers[i].thread, NULL, publish_one, &publishers[i]),
                         0);
    }
}

static void wait_in_flight(bench *b, int wanted)
{
    int64_t until_us = pr__monotonic_us() + PATIENCE * 1000;
    while (atomic_load(&b->side.in_flight) != wanted && pr__monotonic_us() < until_us)
        pr__sleep_us(1000);
    assert_int_equal(atomic_load(&b->side.in_flight), wanted);
}

/* ---- cases ---- */

static void test_none_is_left(void **state)
{
    (void)state;
    bench b;
    pr_error err = PR_ERROR_INIT;
    pr_transport *senders[PR__BUS_SENDERS_MAX + 1];
    bench_open(&b, PATIENCE);
    pr__bus_transport *at = &b.bus->transports[0];
    for (int i = 0; i < PR__BUS_SENDERS_MAX; i++)
        check_ok(pr__bus_transport_take(at, 0, NULL, &senders[i], &err), &err, "take");
    check_error(pr__bus_transport_take(at, 0, NULL, &senders[PR__BUS_SENDERS_MAX], &err), &err,
                PR_E_BUSY, "transport 'fake' has 8 messages in flight", "one too many");
    assert_int_equal(err.retry, PR_RETRY_SAME);
    for (int i = 0; i < PR__BUS_SENDERS_MAX; i++)
        pr__bus_transport_give(at, senders[i], /* sound= */ i % 2 == 0);
    assert_int_equal(atomic_load(&b.side.open), 1 + PR__BUS_SENDERS_MAX / 2);
    bench_close(&b);
}

static void test_nobody_waits_for_ever(void **state)
{
    (void)state;
    bench b;
    publisher publishers[THREADS];
    bench_open(&b, LATE_MS);
    start(publishers, THREADS, b.bus);
    size_t unconfirmed = 0, busy = 0;
    for (size_t i = 0; i < THREADS; i++) {
        pthread_join(publishers[i].thread, NULL);
        unconfirmed +=
            publishers[i].status == PR_E_BACKEND && publishers[i].err.retry == PR_RETRY_UNKNOWN;
        busy += publishers[i].status == PR_E_BUSY && publishers[i].err.retry == PR_RETRY_SAME;
    }
    assert_int_equal(unconfirmed + busy, THREADS); /* each was told, whichever it was */
    assert_true(unconfirmed >= PR__BUS_SENDERS_MAX);
    assert_int_equal(atomic_load(&b.side.in_flight), 0); /* what was not confirmed was dropped */
    bench_close(&b);
}

static void test_as_many_as_publish(void **state)
{
    (void)state;
    bench b;
    publisher publishers[THREADS];
    bench_open(&b, PATIENCE);
    start(publishers, THREADS, b.bus);
    wait_in_flight(&b, PR__BUS_SENDERS_MAX);
    atomic_store(&b.side.confirms, true);
    for (size_t i = 0; i < THREADS; i++) {
        pthread_join(publishers[i].thread, NULL);
        check_ok(publishers[i].status, &publishers[i].err, "publish");
    }
    assert_int_equal(atomic_load(&b.side.clones), PR__BUS_SENDERS_MAX);
    bench_close(&b);
}

static void test_one_thread_has_one_sender(void **state)
{
    (void)state;
    bench b;
    pr_error err = PR_ERROR_INIT;
    bench_open(&b, PATIENCE);
    atomic_store(&b.side.confirms, true);
    for (int i = 0; i < 20; i++)
        check_ok(publish(b.bus, &err), &err, "publish");
    assert_int_equal(atomic_load(&b.side.clones), 1);
    bench_close(&b);
}

static void test_one_that_failed_is_closed(void **state)
{
    (void)state;
    bench b;
    bench_open(&b, PATIENCE);
    atomic_store(&b.side.confirms, true);
    atomic_store(&b.side.fails, true);
    for (int i = 0; i < 2 * PR__BUS_SENDERS_MAX; i++) { /* its place is free again each time */
        pr_error err = PR_ERROR_INIT;
        check_error(publish(b.bus, &err), &err, PR_E_BACKEND, "it is away", "away");
        assert_int_equal(atomic_load(&b.side.open), 1);
    }
    atomic_store(&b.side.fails, false);
    pr_error err = PR_ERROR_INIT;
    check_ok(publish(b.bus, &err), &err, "back");
    bench_close(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_none_is_left),
        cmocka_unit_test(test_nobody_waits_for_ever),
        cmocka_unit_test(test_one_that_failed_is_closed),
        cmocka_unit_test(test_as_many_as_publish),
        cmocka_unit_test(test_one_thread_has_one_sender),
    };
    return RUN_TESTS(tests);
}
