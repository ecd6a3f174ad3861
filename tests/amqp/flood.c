/*
 * The flood: one thread publishes, another restarts the broker.
 */
#include "amqp/flood.h"

#include <pthread.h>
#include <unistd.h>

#define RESTARTS      2
#define RESTARTS_SOAK 5
#define BETWEEN       2000 /* confirmed before the next restart */
#define SOAK_MESSAGES 100000
#define TICKETS_MAX   400000

typedef struct flood {
    ground *at;
    bool soak;
    pthread_mutex_t lock;
    bool over; /* the restarts are */
    char (*ids)[40];
    bool *confirmed;
    unsigned char *arrived;
    uint64_t next, confirmed_count, lost_count;
} flood;

static uint64_t confirmed_of(flood *of)
{
    pthread_mutex_lock(&of->lock);
    uint64_t count = of->confirmed_count;
    pthread_mutex_unlock(&of->lock);
    return count;
}

static void *restart_again_and_again(void *user)
{
    flood *of = user;
    int restarts = of->soak ? RESTARTS_SOAK : RESTARTS;
    for (int i = 0; i <= restarts; i++) {
        uint64_t before = confirmed_of(of);
        for (int64_t until = rig_now_ms() + 2 * RIG_PATIENCE; /* in the middle of it */
             confirmed_of(of) < before + BETWEEN && rig_now_ms() < until;)
            usleep(1000);
        if (i < restarts)
            rabbitmq_server_do(of->at->server, i % 2 == 0 ? "restart kill" : "restart term");
    }
    pthread_mutex_lock(&of->lock);
    of->over = true;
    pthread_mutex_unlock(&of->lock);
    return NULL;
}

static bool is_over(flood *of)
{
    pthread_mutex_lock(&of->lock);
    bool over = of->over && (!of->soak || of->confirmed_count >= SOAK_MESSAGES);
    pthread_mutex_unlock(&of->lock);
    return over;
}

#define FLOOD_SLOTS 256

/* What is on its way; a lost one is sent again with its own id. */
typedef struct slots {
    pr_message messages[FLOOD_SLOTS];
    pr_submission ready[FLOOD_SLOTS]; /* to submit: new ones and lost ones */
    size_t ready_count, open;         /* open: made, not confirmed */
} slots;

static void flood_refill(flood *of, slots *with, bool more)
{
    while (more && with->open < FLOOD_SLOTS && of->next < TICKETS_MAX) {
        uint64_t number = of->next;
        size_t free_slot = 0;
        while (with->messages[free_slot].id)
            free_slot++; /* there is one: fewer than FLOOD_SLOTS are open */
        pr_message *message = &with->messages[free_slot];
        snprintf(of->ids[number], sizeof of->ids[number], "018e0000-0000-7000-8000-%012llx",
                 (unsigned long long)number);
        *message =
            (pr_message)PR_MESSAGE(.type_version = 1, .id = of->ids[number], .type = RIG_TYPE,
                                   .content_type = "text/plain",
                                   .destination = "rabbitmq://in/billing", .body = of->ids[number],
                                   .body_size_bytes = 36, .occurred_at_us = 1709164800123456);
        with->ready[with->ready_count++] = (pr_submission){number, message};
        with->open++;
        of->next++;
    }
}

static pr_message *flood_find(slots *with, const char *id)
{
    for (size_t i = 0; i < FLOOD_SLOTS; i++)
        if (with->messages[i].id == id)
            return &with->messages[i];
    fail_msg("an outcome of a message that is not on its way: %s", id);
    return NULL;
}

static void flood_collect(flood *of, slots *with)
{
    pr_error err = PR_ERROR_INIT;
    pr_submitted outcomes[64];
    size_t count = 0;
    if (pr_transport_poll(of->at->rig.transport, 20, outcomes, 64, &count, &err) != PR_OK)
        return;
    for (size_t i = 0; i < count; i++) {
        uint64_t number = outcomes[i].ticket;
        pr_message *message = flood_find(with, of->ids[number]);
        if (outcomes[i].outcome == PR_SUBMIT_CONFIRMED) {
            of->confirmed[number] = true;
            pthread_mutex_lock(&of->lock);
            of->confirmed_count++;
            pthread_mutex_unlock(&of->lock);
            message->id = NULL;
            with->open--;
        } else if (outcomes[i].outcome == PR_SUBMIT_LOST) {
            of->lost_count++;
            with->ready[with->ready_count++] = (pr_submission){number, message};
        } else {
            fail_msg("an outage charged to a message: outcome %d, %s", (int)outcomes[i].outcome,
                     outcomes[i].reason);
        }
    }
}

static void flood_publish(flood *of)
{
    static slots with;
    pr_error err = PR_ERROR_INIT;
    with = (slots){.open = 0};
    for (bool more = true; more || with.open > 0;) {
        size_t accepted = 0;
        more = more && !is_over(of);
        flood_refill(of, &with, more);
        if (pr_transport_submit(of->at->rig.transport, with.ready, with.ready_count, &accepted,
                                &err) != PR_OK)
            (void)!rig_open(&of->at->rig, &err);
        with.ready_count -= accepted;
        memmove(with.ready, with.ready + accepted, with.ready_count * sizeof *with.ready);
        flood_collect(of, &with);
    }
}

static void flood_check(flood *of)
{
    pr_error err = PR_ERROR_INIT;
    pr_subscription *billing = NULL;
    uint64_t missing = of->confirmed_count, doubled = 0;
    check_ok(rig_subscribe(&of->at->rig, &billing, &err), &err, "subscribe");
    for (int64_t quiet_since = rig_now_ms();
         missing > 0 && rig_now_ms() - quiet_since < 2 * RIG_PATIENCE;) {
        pr_delivery delivery;
        size_t count = 0;
        if (pr_subscription_receive(billing, 100, &delivery, 1, &count, &err) != PR_OK ||
            count == 0)
            continue;
        quiet_since = rig_now_ms();
        uint64_t number = strtoull(delivery.message.id + 24, NULL, 16);
        assert_true(number < of->next);
        missing -= of->arrived[number] == 0;
        doubled += of->arrived[number] > 0;
        of->arrived[number] = 1;
        check_ok(pr_subscription_settle(billing, delivery.tag, PR_VERDICT_ACK, 0, &err), &err,
                 "ack");
    }
    rig_unsubscribe(&of->at->rig);
    for (uint64_t i = 0; i < of->next; i++)
        if (of->confirmed[i] && !of->arrived[i])
            fail_msg("message %llu was confirmed and is lost", (unsigned long long)i);
    print_message("# %llu confirmed over restarts, %llu sent again, %llu came twice, none lost\n",
                  (unsigned long long)of->confirmed_count, (unsigned long long)of->lost_count,
                  (unsigned long long)doubled);
}

void flood_over_restarts(ground *at, bool soak)
{
    flood of = {.at = at, .soak = soak};
    pthread_t restarter;
    const pr_amqp_options options =
        PR_AMQP_OPTIONS(.flags = PR_AMQP_DECLARE, .reconnect_max_ms = 200);
    of.ids = calloc(TICKETS_MAX, sizeof *of.ids);
    of.confirmed = calloc(TICKETS_MAX, sizeof *of.confirmed);
    of.arrived = calloc(TICKETS_MAX, sizeof *of.arrived);
    assert_true(of.ids && of.confirmed && of.arrived);
    pthread_mutex_init(&of.lock, NULL);
    ground_up(at, &options);
    ground_queue(at);
    assert_int_equal(pthread_create(&restarter, NULL, restart_again_and_again, &of), 0);
    flood_publish(&of);
    pthread_join(restarter, NULL);
    assert_true(of.confirmed_count > (RESTARTS + 1) * (uint64_t)BETWEEN); /* it went on each time */
    assert_true(rig_stats(&at->rig).connects >= 1 + (unsigned)RESTARTS);
    flood_check(&of);
    pthread_mutex_destroy(&of.lock);
    free(of.ids);
    free(of.confirmed);
    free(of.arrived);
}
