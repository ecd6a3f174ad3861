/*
 * Subscribing: the queue of an endpoint is made, watched, and asked what it holds. A temporary one
 * is its subscription's alone and goes with it.
 */
#include <string.h>

#include "shelf.h"

#define LEASE_MS_DEFAULT  30000
#define EXPIRY_MS_DEFAULT 60000
#define PREFETCH_DEFAULT  32

pr_status shelf_topology(pr_transport *transport, const pr_subscribe_options *options,
                         bool check_only, pr_error *err)
{
    shelf *place = ((shelf_transport *)transport)->shelf;
    pthread_mutex_lock(&place->mutex);
    pr_status status =
        shelf_declare(place, options, /* owner= */ 0, check_only, shelf_now_us(transport), err);
    pthread_mutex_unlock(&place->mutex);
    return status;
}

/* All that is not settled, in hand or not. */
pr_status shelf_backlog(pr_transport *transport, const pr_subscribe_options *options,
                        uint64_t *ret_count, pr_error *err)
{
    shelf *place = ((shelf_transport *)transport)->shelf;
    (void)err;
    *ret_count = 0;
    pthread_mutex_lock(&place->mutex);
    const shelf_queue *queue = shelf_find(place, options->endpoint, shelf_now_us(transport));
    for (const shelf_item *item = queue ? queue->items : NULL; item; item = item->next)
        ++*ret_count;
    pthread_mutex_unlock(&place->mutex);
    return PR_OK;
}

shelf_queue *shelf_lock_queue(shelf_subscription *self, int64_t *ret_now_us)
{
    shelf *place = ((shelf_transport *)self->base.transport)->shelf;
    pthread_mutex_lock(&place->mutex);
    *ret_now_us = shelf_now_us(self->base.transport);
    shelf_queue *queue = shelf_find(place, self->name, *ret_now_us);
    if (queue && queue->owner != self->owner)
        queue = NULL; /* another's, of the same name */
    if (queue && self->owner != 0)
        queue->expires_us = *ret_now_us + self->expiry_us; /* heard of */
    return queue;
}

void shelf_unlock(shelf_subscription *self)
{
    pthread_mutex_unlock(&((shelf_transport *)self->base.transport)->shelf->mutex);
}

static void close_subscription(pr_subscription *subscription)
{
    shelf_subscription *self = (shelf_subscription *)subscription;
    int64_t now_us;
    shelf_give_back(subscription);
    const shelf_queue *queue = shelf_lock_queue(self, &now_us);
    if (queue && self->owner != 0)
        shelf_drop(((shelf_transport *)subscription->transport)->shelf, queue);
    shelf_unlock(self);
    pr_free(self->name);
    pr_free(self);
}

static const pr_subscription_ops ops = {
    .size = (uint32_t)sizeof(pr_subscription_ops),
    .receive = shelf_receive,
    .settle = shelf_settle,
    .keep = shelf_keep,
    .free = close_subscription,
};

pr_status shelf_subscribe(pr_transport *transport, const pr_subscribe_options *options,
                          pr_subscription **ret_subscription, pr_error *err)
{
    shelf *place = ((shelf_transport *)transport)->shelf;
    size_t prefetch = options->prefetch > 0 ? options->prefetch : PREFETCH_DEFAULT;
    shelf_subscription *self = pr_alloc(sizeof(*self) + prefetch * sizeof(shelf_held));
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
        status = shelf_no_memory(err);
    }
    if (status != PR_OK) {
        pr_free(name);
        pr_free(self);
        return status;
    }
    *ret_subscription = &self->base;
    return PR_OK;
}
