/*
 * When an endpoint with workers asks its transport: seldom while they have enough in hand, at once
 * when they are about to have nothing. The clock stands still unless a case moves it, and nothing
 * is settled before its case says so: what is counted depends on no speed.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "base/time.h"
#include "e2e/endpoint/world.h"

#define WAIT_US      20000000
#define PREFETCH     64
#define HALF         (PREFETCH / 2)
#define WORKERS      2
#define MESSAGES_MAX 256
#define ASK_MAX_US   20000 /* as endpoint_workers.c has it */

/* A queue that counts; what of it may be taken, the case says. */
typedef struct queue {
    pr_transport transport;
    pr_subscription subscription;
    pr_message messages[MESSAGES_MAX];
    char ids[MESSAGES_MAX][16];
    int delivered; /* the endpoint's thread's */
    atomic_int available, receives, settled;
} queue;

typedef struct fixture {
    world *w;
    queue queue;
    _Atomic int64_t now_us;
    pr_clock clock;
    pr_endpoint *endpoint;
    pthread_t thread;
    bool running;
    atomic_int begun, allowed; /* handlers */
    atomic_bool first_hangs;   /* the first message's, until this is false */
} fixture;

static queue *queue_of(pr_subscription *subscription)
{
    return (queue *)(void *)subscription->transport;
}

static pr_status queue_receive(pr_subscription *subscription, int64_t timeout_ms,
                               pr_delivery *ret_deliveries, size_t max, size_t *ret_count,
                               pr_error *err)
{
    queue *q = queue_of(subscription);
    (void)err;
    *ret_count = 0;
    for (; *ret_count < max && q->delivered < atomic_load(&q->available); q->delivered++)
        ret_deliveries[(*ret_count)++] =
            (pr_delivery){.message = q->messages[q->delivered], .tag = (uint64_t)q->delivered + 1};
    if (*ret_count == 0 && timeout_ms > 0)
        pr__sleep_us(1000);
    atomic_fetch_add(&q->receives, 1);
    return PR_OK;
}

static pr_status queue_settle(pr_subscription *subscription, uint64_t tag, pr_verdict verdict,
                              int64_t requeue_delay_ms, pr_error *err)
{
    (void)tag;
    (void)requeue_delay_ms;
    (void)err;
    if (verdict == PR_VERDICT_ACK)
        atomic_fetch_add(&queue_of(subscription)->settled, 1);
    return PR_OK;
}

static pr_status queue_keep(pr_subscription *subscription, pr_error *err)
{
    (void)subscription;
    (void)err;
    return PR_OK;
}

static void queue_unsubscribe(pr_subscription *subscription)
{
    (void)subscription;
}

static const pr_subscription_ops subscription_ops = {
    .size = (uint32_t)sizeof subscription_ops,
    .receive = queue_receive,
    .settle = queue_settle,
    .keep = queue_keep,
    .free = queue_unsubscribe,
};

static pr_status queue_open(pr_transport *transport, int64_t timeout_ms, pr_error *err)
{
    (void)transport;
    (void)timeout_ms;
    (void)err;
    return PR_OK;
}

static pr_status queue_subscribe(pr_transport *transport, const pr_subscribe_options *options,
                                 pr_subscription **ret_subscription, pr_error *err)
{
    queue *q = (queue *)(void *)transport;
    (void)options;
    (void)err;
    q->subscription = (pr_subscription){&subscription_ops, transport};
    *ret_subscription = &q->subscription;
    return PR_OK;
}

static void queue_free(pr_transport *transport)
{
    (void)transport;
}

static const pr_transport_ops transport_ops = {
    .size = (uint32_t)sizeof transport_ops,
    .capabilities = PR_TRANSPORT_CAN_SUBSCRIBE,
    .scheme = "queue",
    .open = queue_open,
    .subscribe = queue_subscribe,
    .free = queue_free,
};

static int64_t still_us(void *user)
{
    return atomic_load(&((fixture *)user)->now_us);
}

static bool reached(atomic_int *count, int wanted)
{
    int64_t until_us = pr__monotonic_us() + WAIT_US;
    while (atomic_load(count) < wanted && pr__monotonic_us() < until_us)
        pr__sleep_us(200);
    return atomic_load(count) >= wanted;
}

static pr_handled handle(void *user, pr_scope *scope)
{
    fixture *f = user;
    bool first = strcmp(pr_scope_message(scope)->id, "m-0") == 0;
    int mine = atomic_fetch_add(&f->begun, 1) + 1;
    if (!first || !atomic_load(&f->first_hangs))
        return reached(&f->allowed, mine) ? PR_HANDLED_OK : PR_HANDLED_PERMANENT;
    int64_t until_us = pr__monotonic_us() + WAIT_US;
    while (atomic_load(&f->first_hangs) && pr__monotonic_us() < until_us)
        pr__sleep_us(200);
    return PR_HANDLED_OK;
}

static pr_handled pass(void *user, pr_scope *scope, pr_next *next)
{
    (void)user;
    return pr_next_invoke(next, scope);
}

static int set_up(void **state)
{
    static fixture kept; /* larger than a stack should hold */
    fixture *f = &kept;
    void *inner = NULL;
    memset(f, 0, sizeof *f);
    if (world_setup(&inner) != 0)
        return -1;
    f->w = inner;
    f->queue.transport.ops = &transport_ops;
    f->queue.transport.name = "queue";
    f->queue.transport.clock = pr_clock_system();
    f->queue.transport.window = 1;
    for (int i = 0; i < MESSAGES_MAX; i++) {
        (void)snprintf(f->queue.ids[i], sizeof f->queue.ids[i], "m-%d", i);
        f->queue.messages[i] =
            (pr_message)PR_MESSAGE(.id = f->queue.ids[i], .type = TYPE_ORDER, .type_version = 1,
                                   .body = "{}", .content_type = "application/json",
                                   .body_size_bytes = 2, .occurred_at_us = 1);
    }
    atomic_store(&f->now_us, 1000000000);
    f->clock = *pr_clock_system();
    f->clock.monotonic_us = still_us;
    f->clock.user = f;
    *state = f;
    return 0;
}

static void *run(void *user)
{
    pr_status ignored = pr_endpoint_run(((fixture *)user)->endpoint, NULL);
    (void)ignored;
    return NULL;
}

/* No unit and no inbox: no handler waits for another. */
static void start(fixture *f, int available)
{
    static const pr_middleware chain[] = {PR_MIDDLEWARE(.name = "pass", .invoke = pass)};
    pr_error err = PR_ERROR_INIT;
    pr_endpoint_options opt = f->w->opt;
    opt.handler = handle;
    opt.user = f;
    opt.observer = NULL;
    opt.clock = &f->clock;
    opt.prefetch = PREFETCH;
    opt.concurrency = WORKERS;
    opt.middleware = chain;
    opt.middleware_count = COUNT_OF(chain);
    atomic_store(&f->queue.available, available);
    check_ok(pr_endpoint_new(f->w->store, &f->queue.transport, &opt, &f->endpoint, &err), &err,
             "endpoint");
    assert_int_equal(pthread_create(&f->thread, NULL, run, f), 0);
    f->running = true;
}

static int tear_down(void **state)
{
    fixture *f = *state;
    void *inner = f->w;
    atomic_store(&f->first_hangs, false);
    atomic_store(&f->allowed, MESSAGES_MAX);
    if (f->running) {
        pr_endpoint_stop(f->endpoint);
        pthread_join(f->thread, NULL);
    }
    pr_endpoint_free(f->endpoint);
    return world_teardown(&inner);
}

/* One handler after the other ends, each when the one before is settled: whoever asked after each
   settle has asked so often. Returns how often it asked until then. */
static int settle_up_to(fixture *f, int count)
{
    for (int i = atomic_load(&f->queue.settled) + 1; i <= count; i++) {
        atomic_store(&f->allowed, i);
        if (!reached(&f->queue.settled, i))
            fail_msg("%d of %d were settled", atomic_load(&f->queue.settled), count);
        /* by the time the next one begins, the round of the settle before may not be over yet */
        assert_true(reached(&f->begun, i + WORKERS < f->queue.available ? i + WORKERS : i));
    }
    return atomic_load(&f->queue.receives);
}

static void a_full_hand_is_filled_up_by_halves(void **state)
{
    fixture *f = *state;
    start(f, MESSAGES_MAX);
    int asked = settle_up_to(f, MESSAGES_MAX - HALF);
    /* the first one, then one for each half, and one that found nothing more; no worker was about
       to have nothing, so that many fewer would be a hand that is filled too late */
    assert_in_range(asked, 6, MESSAGES_MAX / HALF + 2);
    (void)settle_up_to(f, MESSAGES_MAX);
}

static void what_had_nothing_more_is_left_in_peace(void **state)
{
    fixture *f = *state;
    start(f, HALF - 4); /* never half full: each look would be for the rest */
    int asked = settle_up_to(f, 4);
    assert_in_range(asked, 1, 3);
    assert_in_range(settle_up_to(f, HALF - 4 - 4 * WORKERS), asked, asked + 1);
}

static void it_is_asked_from_time_to_time_for_all_that(void **state)
{
    fixture *f = *state;
    start(f, PREFETCH);
    int asked = settle_up_to(f, 4);
    for (int i = 1; i <= 5; i++) {
        atomic_fetch_add(&f->now_us, ASK_MAX_US);
        CHECK_CASE(reached(&f->queue.receives, asked + i), "asked after its time");
    }
    assert_int_equal(settle_up_to(f, 8), asked + 5);
}

static void a_free_worker_gets_what_comes_at_once(void **state)
{
    fixture *f = *state;
    atomic_store(&f->first_hangs, true);
    start(f, 1);
    assert_true(reached(&f->begun, 1));
    atomic_store(&f->allowed, MESSAGES_MAX);
    for (int i = 2; i <= 6; i++) { /* while the other one hangs, and no time goes by */
        atomic_store(&f->queue.available, i);
        CHECK_CASE(reached(&f->queue.settled, i - 1), "the next one");
    }
}

static void what_waits_for_its_key_keeps_no_worker_busy(void **state)
{
    fixture *f = *state;
    const int other = PREFETCH - 4;
    atomic_store(&f->first_hangs, true);
    for (int i = 0; i < other; i++)
        f->queue.messages[i].key = "hot";
    start(f, other);
    assert_true(reached(&f->begun, 1));
    atomic_store(&f->allowed, MESSAGES_MAX);
    assert_true(reached(&f->queue.receives, 3)); /* all of the key are in hand */
    atomic_store(&f->queue.available, other + 1);
    CHECK_CASE(reached(&f->queue.settled, 1), "the one of no key");
    assert_int_equal(f->begun, 2);
}

static int suite(void)
{
#define ASKING_CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        ASKING_CASE(a_full_hand_is_filled_up_by_halves),
        ASKING_CASE(what_had_nothing_more_is_left_in_peace),
        ASKING_CASE(it_is_asked_from_time_to_time_for_all_that),
        ASKING_CASE(a_free_worker_gets_what_comes_at_once),
        ASKING_CASE(what_waits_for_its_key_keeps_no_worker_busy),
    };
#undef ASKING_CASE
    return RUN_TESTS(tests);
}

int main(void)
{
    return world_main(suite);
}
