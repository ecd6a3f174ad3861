/*
 * Receiving: what is delivered is leased. A holder that is never heard of again loses it when the
 * lease has run out, and its tags are worth nothing then.
 */
#include <time.h>

#include "shelf.h"

/* False: no memory; the message stays where it is. */
static bool deliver(shelf_subscription *self, shelf_item *item, int64_t now_us, pr_delivery *out)
{
    shelf_held *kept = &self->held[self->held_count];
    if (pr_message_copy(item->message, &kept->message, NULL) != PR_OK)
        return false;
    self->held_count++;
    kept->tag = item->tag = ++((shelf_transport *)self->base.transport)->shelf->next_number;
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
    shelf_queue *queue = shelf_lock_queue(self, &now_us);
    bool gone = !queue;
    while (queue && *ret_count < max && self->held_count < self->prefetch) {
        shelf_item *item = shelf_next(queue, now_us);
        if (!item || !deliver(self, item, now_us, &out[*ret_count]))
            break;
        ++*ret_count;
    }
    shelf_unlock(self);
    if (gone)
        return pr_error_set(err, PR_E_NOT_FOUND, PR_RETRY_NEVER, SHELF_NAME,
                            "the subscription '%s' has expired; subscribe again", self->name);
    return PR_OK;
}

pr_status shelf_receive(pr_subscription *subscription, int64_t timeout_ms,
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
