/*
 * Settling: a delivery ends by a verdict, stays in hand while it is kept, or is given back. A tag
 * whose lease has run out and was taken over is stale: FENCED.
 */
#include "shelf.h"

static void forget(shelf_subscription *self, size_t index)
{
    pr_message_free(self->held[index].message);
    self->held[index] = self->held[--self->held_count];
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

pr_status shelf_settle(pr_subscription *subscription, uint64_t tag, pr_verdict verdict,
                       int64_t requeue_delay_ms, pr_error *err)
{
    shelf_subscription *self = (shelf_subscription *)subscription;
    size_t index = 0;
    int64_t now_us;
    while (index < self->held_count && self->held[index].tag != tag)
        index++;
    bool known = index < self->held_count;
    shelf_queue *queue = shelf_lock_queue(self, &now_us);
    shelf_item *item = queue && known ? shelf_delivered(queue, tag) : NULL;
    if (item)
        apply(queue, item, verdict, now_us + requeue_delay_ms * 1000);
    shelf_unlock(self);
    if (known)
        forget(self, index);
    if (item)
        return PR_OK;
    return pr_error_set(err, PR_E_FENCED, PR_RETRY_NEVER, SHELF_NAME,
                        "the delivery is not in hand any more; it comes, or came, again");
}

pr_status shelf_keep(pr_subscription *subscription, pr_error *err)
{
    shelf_subscription *self = (shelf_subscription *)subscription;
    size_t lost = 0;
    int64_t now_us;
    const shelf_queue *queue = shelf_lock_queue(self, &now_us);
    for (size_t i = self->held_count; i-- > 0;) {
        shelf_item *item = queue ? shelf_delivered(queue, self->held[i].tag) : NULL;
        if (item) {
            item->until_us = now_us + self->lease_us;
            continue;
        }
        forget(self, i);
        lost++;
    }
    shelf_unlock(self);
    if (lost == 0)
        return PR_OK;
    return pr_error_set(err, PR_E_FENCED, PR_RETRY_NEVER, SHELF_NAME,
                        "%zu deliveries were taken over by another", lost);
}

/* What is in hand is free at once, for whoever comes next. */
void shelf_give_back(pr_subscription *subscription)
{
    shelf_subscription *self = (shelf_subscription *)subscription;
    int64_t now_us;
    shelf_queue *queue = shelf_lock_queue(self, &now_us);
    while (self->held_count > 0) {
        shelf_item *item = queue ? shelf_delivered(queue, self->held[0].tag) : NULL;
        if (item)
            apply(queue, item, PR_VERDICT_REQUEUE, now_us);
        forget(self, 0);
    }
    shelf_unlock(self);
}
