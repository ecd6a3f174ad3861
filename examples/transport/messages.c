/*
 * The server: what waits in a queue. A message is put into all queues that its address reaches, or
 * into none; of a key the oldest alone may be delivered.
 */
#include <string.h>

#include "shelf.h"

static bool reaches(const pr_address *to, const shelf_queue *queue)
{
    bool fits = to->type[0] == '\0' || shelf_takes(queue, to->type);
    if (to->kind == PR_ADDRESS_TOPIC)
        return fits;
    bool temporary = to->kind == PR_ADDRESS_REPLY;
    return strcmp(to->endpoint, queue->name) == 0 && temporary == (queue->owner != 0) && fits;
}

static shelf_item *new_item(const pr_message *message)
{
    pr_message due = *message;
    shelf_item *item = pr_alloc(sizeof(*item));
    due.deliver_at_us = 0; /* it was over when it was sent */
    if (item && pr_message_copy(&due, &item->message, NULL) == PR_OK)
        return item;
    pr_free(item);
    return NULL;
}

bool shelf_put(shelf *self, const pr_address *to, const pr_message *message, size_t *ret_count)
{
    shelf_item *made = NULL; /* all of them before the first is put */
    *ret_count = 0;
    for (shelf_queue *queue = self->queues; queue; queue = queue->next) {
        if (!reaches(to, queue))
            continue;
        shelf_item *item = new_item(message);
        if (item) {
            item->next = made;
            made = item;
            ++*ret_count;
            continue;
        }
        for (; made; made = item) {
            item = made->next;
            pr_message_free(made->message);
            pr_free(made);
        }
        return false;
    }
    for (shelf_queue *queue = self->queues; queue && made; queue = queue->next) {
        if (!reaches(to, queue))
            continue;
        shelf_item **end = &queue->items, *item = made;
        made = made->next;
        while (*end)
            end = &(*end)->next;
        item->next = NULL;
        *end = item;
    }
    return true;
}

static bool same_text(const char *a, const char *b)
{
    return strcmp(a ? a : "", b ? b : "") == 0;
}

/* What stands before it in the queue is not settled: of its key, it has to wait for that. */
static bool waits(const shelf_queue *queue, const shelf_item *item)
{
    const pr_message *message = item->message;
    for (const shelf_item *earlier = queue->items; earlier != item; earlier = earlier->next) {
        if (message->key && same_text(message->key, earlier->message->key) &&
            same_text(message->tenant, earlier->message->tenant))
            return true;
    }
    return false;
}

shelf_item *shelf_next(shelf_queue *queue, int64_t now_us)
{
    for (shelf_item *item = queue->items; item; item = item->next) {
        if (item->until_us <= now_us && !waits(queue, item))
            return item;
    }
    return NULL;
}

shelf_item *shelf_delivered(const shelf_queue *queue, uint64_t tag)
{
    shelf_item *item = queue->items;
    while (item && item->tag != tag)
        item = item->next;
    return item;
}

void shelf_remove(shelf_queue *queue, shelf_item *item)
{
    shelf_item **at = &queue->items;
    while (*at != item)
        at = &(*at)->next;
    *at = item->next;
    pr_message_free(item->message);
    pr_free(item);
}
