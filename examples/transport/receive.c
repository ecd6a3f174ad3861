/*
 * Receiving: what is delivered is leased. A holder that is never heard of again loses it when the
 * lease has run out, and its tags are worth nothing then.
 */
#include <string.h>
#include <time.h>

#include "shelf.h"

#define LEASE_MS_DEFAULT  30000
#define EXPIRY_MS_DEFAULT 60000
#define PREFETCH_DEFAULT  32

/* A copy, as it is lent to the receiver until it settles, whatever becomes of the queue's own. */
typedef struct held {
    uint64_t tag;
    pr_message *message;
} held;

typedef struct shelf_subscription {
    pr_subscription base; /* first: Postroom sees this */
    char *name;
    uint64_t owner; /* of a temporary one */
    int64_t lease_us;
    int64_t expiry_us;
    size_t prefetch;
    size_t held_count;
    held held[]; /* room for the prefetch */
} shelf_subscription;

static shelf_queue *lock_queue(shelf_subscription *self, int64_t *ret_now_us)
{
    shelf *place = shelf_of(self->base.transport);
    pthread_mutex_lock(&place->mutex);
    *ret_now_us = shelf_now_us(self->base.transport);
    shelf_queue *queue = shelf_find(place, self->name, *ret_now_us);
    if (queue && queue->owner != self->owner)
        queue = NULL; /* another's, of the same name */
    if (queue && self->owner != 0)
        queue->expires_us = *ret_now_us + self->expiry_us; /* heard of */
    return queue;
}

static void unlock(shelf_subscription *self)
{
    pthread_mutex_unlock(&shelf_of(self->base.transport)->mutex);
}

static void forget(shelf_subscription *self, size_t index)
{
    pr_message_free(self->held[index].message);
    self->held[index] = self->held[--self->held_count];
}

/* False: no memory; the message stays where it is. */
static bool deliver(shelf_subscription *self, shelf_item *item, int64_t now_us, pr_delivery *out)
{
    held *kept = &self->held[self->held_count];
    if (pr_message_copy(item->message, &kept->message, NULL) != PR_OK)
        return false;
    self->held_count++;
    kept->tag = item->tag = ++shelf_of(self->base.transport)->next_number;
    item->until_us = now_us + self->lease_us;
    *out = (pr_delivery){.message = *kept->message,
                         .tag = item->tag,
                         .redelivered = item->deliveries > 0,
                         .delivery_count = item->deliveries};
    item->deliveries++;
    return true;
}

static pr_status receive_now(shelf_subscription *self, pr_delivery *out, size_t max,
                             size_t *ret_count, pr_error *err)
{
    int64_t now_us;
    shelf_queue *queue = lock_queue(self, &now_us);
    bool gone = !queue;
    while (queue && *ret_count < max && self->held_count < self->prefetch) {
        shelf_item *item = shelf_next(queue, now_us);
        if (!item || !deliver(self, item, now_us, &out[*ret_count]))
            break;
        ++*ret_count;
    }
    unlock(self);
    if (gone)
        return pr_error_set(err, PR_E_NOT_FOUND, PR_RETRY_NEVER, SHELF_NAME,
                            "the subscription '%s' has expired; subscribe again", self->name);
    return PR_OK;
}

static pr_status receive(pr_subscription *subscription, int64_t timeout_ms,
                         pr_delivery *ret_deliveries, size_t max, size_t *ret_count, pr_error *err)
{
    shelf_subscription *self = (shelf_subscription *)subscription;
    int64_t deadline_us = shelf_now_us(subscription->transport) + timeout_ms * 1000;
    const struct timespec a_moment = {.tv_nsec = 1000000};
    *ret_count = 0;
    for (;;) {
        pr_status status = receive_now(self, ret_deliveries, max, ret_count, err);
        if (status != PR_OK || *ret_count > 0 ||
            shelf_now_us(subscription->transport) >= deadline_us)
            return status;
        nanosleep(&a_moment, NULL); /* a client would wait on its socket here */
    }
}

static void apply(shelf_queue *queue, shelf_item *item, pr_verdict verdict, int64_t until_us)
{
    if (verdict == PR_VERDICT_REQUEUE) {
        item->tag = 0;
        item->until_us = until_us;
        return;
    }
    queue->dead_count += verdict == PR_VERDICT_REJECT; /* a server would keep the message */
    shelf_remove(queue, item);
}

static pr_status settle(pr_subscription *subscription, uint64_t tag, pr_verdict verdict,
                        int64_t requeue_delay_ms, pr_error *err)
{
    shelf_subscription *self = (shelf_subscription *)subscription;
    size_t index = 0;
    int64_t now_us;
    while (index < self->held_count && self->held[index].tag != tag)
        index++;
    bool known = index < self->held_count;
    shelf_queue *queue = lock_queue(self, &now_us);
    shelf_item *item = queue && known ? shelf_delivered(queue, tag) : NULL;
    if (item)
        apply(queue, item, verdict, now_us + requeue_delay_ms * 1000);
    unlock(self);
    if (known)
        forget(self, index);
    if (item)
        return PR_OK;
    return pr_error_set(err, PR_E_FENCED, PR_RETRY_NEVER, SHELF_NAME,
                        "the delivery is not in hand any more; it comes, or came, again");
}

static pr_status keep(pr_subscription *subscription, pr_error *err)
{
    shelf_subscription *self = (shelf_subscription *)subscription;
    size_t lost = 0;
    int64_t now_us;
    const shelf_queue *queue = lock_queue(self, &now_us);
    for (size_t i = self->held_count; i-- > 0;) {
        shelf_item *item = queue ? shelf_delivered(queue, self->held[i].tag) : NULL;
        if (item) {
            item->until_us = now_us + self->lease_us;
            continue;
        }
        forget(self, i);
        lost++;
    }
    unlock(self);
    if (lost == 0)
        return PR_OK;
    return pr_error_set(err, PR_E_FENCED, PR_RETRY_NEVER, SHELF_NAME,
                        "%zu deliveries were taken over by another", lost);
}

/* What is in hand is free at once; a temporary queue goes with its subscription. */
static void close_subscription(pr_subscription *subscription)
{
    shelf_subscription *self = (shelf_subscription *)subscription;
    int64_t now_us;
    shelf_queue *queue = lock_queue(self, &now_us);
    while (self->held_count > 0) {
        shelf_item *item = queue ? shelf_delivered(queue, self->held[0].tag) : NULL;
        if (item)
            apply(queue, item, PR_VERDICT_REQUEUE, now_us);
        forget(self, 0);
    }
    if (queue && self->owner != 0)
        shelf_drop(shelf_of(subscription->transport), queue);
    unlock(self);
    pr_free(self->name);
    pr_free(self);
}

static const pr_subscription_ops ops = {
    .size = (uint32_t)sizeof(pr_subscription_ops),
    .receive = receive,
    .settle = settle,
    .keep = keep,
    .free = close_subscription,
};

pr_status shelf_topology(pr_transport *transport, const pr_subscribe_options *options,
                         bool check_only, pr_error *err)
{
    shelf *place = shelf_of(transport);
    pthread_mutex_lock(&place->mutex);
    pr_status status =
        shelf_declare(place, options, /* owner= */ 0, check_only, shelf_now_us(transport), err);
    pthread_mutex_unlock(&place->mutex);
    return status;
}

pr_status shelf_subscribe(pr_transport *transport, const pr_subscribe_options *options,
                          pr_subscription **ret_subscription, pr_error *err)
{
    shelf *place = shelf_of(transport);
    size_t prefetch = options->prefetch > 0 ? options->prefetch : PREFETCH_DEFAULT;
    shelf_subscription *self = pr_alloc(sizeof(*self) + prefetch * sizeof(held));
    char *name = pr_alloc(strlen(options->endpoint) + 1);
    pr_status status = PR_OK;
    if (self && name) {
        memcpy(name, options->endpoint, strlen(options->endpoint) + 1);
        self->base = (pr_subscription){.ops = &ops, .transport = transport};
        self->name = name;
        self->prefetch = prefetch;
        self->lease_us = (options->lease_ms > 0 ? options->lease_ms : LEASE_MS_DEFAULT) * 1000;
        self->expiry_us = (options->expiry_ms > 0 ? options->expiry_ms : EXPIRY_MS_DEFAULT) * 1000;
        pthread_mutex_lock(&place->mutex);
        if (options->temporary)
            self->owner = ++place->next_number;
        status = shelf_declare(place, options, self->owner, /* check_only= */ false,
                               shelf_now_us(transport), err);
        pthread_mutex_unlock(&place->mutex);
    } else {
        status = pr_error_set(err, PR_E_NOMEM, PR_RETRY_SAME, SHELF_NAME, "out of memory");
    }
    if (status != PR_OK) {
        pr_free(name);
        pr_free(self);
        return status;
    }
    *ret_subscription = &self->base;
    return PR_OK;
}
