/*
 * Keyed deliveries go back to their queue, without losing their order.
 *
 * RabbitMQ puts a message that is rejected back in its place, and delivers what stands first at
 * once to whoever has room. Given back one by one they would come again in the order of the
 * rejects, with later ones between them.
 *
 * Keeps: while any goes back none with a key is handed out (consumer.c); they go when the consumer
 * is cancelled, together with all that was prefetched, the oldest first (a quorum queue delivers
 * what was returned in the order of its return); then consuming begins anew.
 * Must not know: callers.
 */
#include "transport/amqp/give_back.h"

#include <amqp_framing.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "base/time.h"

#define ORIGIN "amqp.consumer"

pr_status pr__give_back_due(pr__consumer *self, pr__amqp_connection *connection, int64_t now_us,
                            int64_t *wait_ms, pr_error *err)
{
    int64_t due_us = INT64_MAX;
    if (self->cancelling)
        return PR_OK;
    pthread_mutex_lock(&self->link.lock);
    for (uint32_t i = 0; self->returning > 0 && i < self->verdict_count; i++) {
        if (self->verdicts[i].keyed && self->verdicts[i].due_us < due_us)
            due_us = self->verdicts[i].due_us;
    }
    pthread_mutex_unlock(&self->link.lock);
    if (due_us > now_us) {
        int64_t left_us = due_us - now_us;
        if (left_us / 1000 < *wait_ms)
            *wait_ms = left_us / 1000 + 1;
        return PR_OK;
    }
    amqp_basic_cancel_t cancel = {.consumer_tag = amqp_cstring_bytes(PR__CONSUMER_TAG)};
    int status = amqp_send_method(connection->state, PR__CONSUMER_CHANNEL, AMQP_BASIC_CANCEL_METHOD,
                                  &cancel);
    self->cancelling = true;
    return pr__amqp_check_status(connection, status, "basic.cancel", err);
}

static int by_age(const void *a, const void *b)
{
    const uint64_t *left = a, *right = b;
    return *left < *right ? -1 : *left > *right;
}

/* The tags of all that goes: the verdicts about keyed ones, and what is ready. Locked. */
static size_t collect(pr__consumer *self, uint64_t *ret_tags)
{
    size_t count = 0;
    uint32_t kept = 0;
    for (uint32_t i = 0; i < self->verdict_count; i++) {
        if (self->verdicts[i].keyed)
            ret_tags[count++] = self->verdicts[i].delivery_tag;
        else
            self->verdicts[kept++] = self->verdicts[i];
    }
    self->verdict_count = kept;
    self->returning = 0;
    while (pr__in_hand_forget(&self->hand, &ret_tags[count]))
        count++;
    return count;
}

static int consume_again(pr__consumer *self, pr__amqp_connection *connection)
{
    amqp_basic_consume_t consume = {.queue = amqp_cstring_bytes(self->names.queue),
                                    .consumer_tag = amqp_cstring_bytes(PR__CONSUMER_TAG),
                                    .exclusive = self->options.temporary,
                                    .arguments = amqp_empty_table};
    return amqp_send_method(connection->state, PR__CONSUMER_CHANNEL, AMQP_BASIC_CONSUME_METHOD,
                            &consume);
}

pr_status pr__give_back(pr__consumer *self, pr__amqp_connection *connection, pr_error *err)
{
    const pr__amqp_settings *settings = self->link.settings;
    int status = AMQP_STATUS_OK;
    size_t count = 0;
    pthread_mutex_lock(&self->link.lock);
    size_t most = (size_t)self->verdict_count + self->hand.capacity + 1;
    uint64_t *tags = pr__alloc_array(most, sizeof *tags);
    if (tags)
        count = collect(self, tags);
    pthread_mutex_unlock(&self->link.lock);
    if (!tags)
        return pr__fail_nomem(err, ORIGIN);
    qsort(tags, count, sizeof *tags, by_age);
    pr__watchdog_arm(settings->watchdog, &self->link.guard,
                     pr__monotonic_us() + settings->publish_deadline_ms * 1000);
    for (size_t i = 0; status == AMQP_STATUS_OK && i < count; i++)
        status = amqp_basic_reject(connection->state, PR__CONSUMER_CHANNEL, tags[i],
                                   /* requeue= */ 1);
    if (status == AMQP_STATUS_OK)
        status = consume_again(self, connection);
    pr__watchdog_disarm(settings->watchdog, &self->link.guard);
    pr__free(tags);
    self->cancelling = false;
    return pr__amqp_check_status(connection, status, "give back", err);
}
