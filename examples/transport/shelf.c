/*
 * The other side: queues, by name. A server would do this; nothing here is seen by Postroom.
 */
#include "shelf.h"

#include <string.h>

shelf *shelf_new(void)
{
    shelf *self = pr_alloc(sizeof(*self));
    if (self)
        pthread_mutex_init(&self->mutex, NULL);
    return self;
}

void shelf_drop(shelf *self, const shelf_queue *queue)
{
    shelf_queue **at = &self->queues;
    while (*at != queue)
        at = &(*at)->next;
    shelf_queue *gone = *at;
    *at = gone->next;
    while (gone->items)
        shelf_remove(gone, gone->items);
    for (size_t i = 0; gone->types && i < gone->type_count; i++)
        pr_free(gone->types[i]);
    pr_free(gone->types);
    pr_free(gone->name);
    pr_free(gone);
}

void shelf_free(shelf *self)
{
    while (self->queues)
        shelf_drop(self, self->queues);
    pthread_mutex_destroy(&self->mutex);
    pr_free(self);
}

void shelf_expire(shelf *self, int64_t now_us)
{
    shelf_queue *queue = self->queues;
    while (queue) {
        shelf_queue *next = queue->next;
        if (queue->owner != 0 && now_us >= queue->expires_us)
            shelf_drop(self, queue);
        queue = next;
    }
}

shelf_queue *shelf_find(shelf *self, const char *name, int64_t now_us)
{
    shelf_expire(self, now_us);
    shelf_queue *queue = self->queues;
    while (queue && strcmp(queue->name, name) != 0)
        queue = queue->next;
    return queue;
}

static bool takes(const shelf_queue *queue, const char *type)
{
    for (size_t i = 0; i < queue->type_count; i++) {
        if (strcmp(queue->types[i], type) == 0)
            return true;
    }
    return false;
}

static bool wants(const pr_subscribe_options *options, const char *type)
{
    for (size_t i = 0; i < options->type_count; i++) {
        if (strcmp(options->types[i], type) == 0)
            return true;
    }
    return false;
}

static bool same_types(const shelf_queue *queue, const pr_subscribe_options *options)
{
    for (size_t i = 0; i < options->type_count; i++) {
        if (!takes(queue, options->types[i]))
            return false;
    }
    for (size_t i = 0; i < queue->type_count; i++) {
        if (!wants(options, queue->types[i]))
            return false;
    }
    return true;
}

static char *copy_text(const char *text)
{
    char *copy = pr_alloc(strlen(text) + 1);
    return copy ? memcpy(copy, text, strlen(text) + 1) : NULL;
}

static pr_status make(shelf *self, const pr_subscribe_options *options, uint64_t owner,
                      int64_t now_us, pr_error *err)
{
    shelf_queue *queue = pr_alloc(sizeof(*queue));
    if (!queue)
        return pr_error_set(err, PR_E_NOMEM, PR_RETRY_SAME, SHELF_NAME, "out of memory");
    queue->owner = owner;
    queue->expires_us =
        now_us + (options->expiry_ms > 0 ? options->expiry_ms : 60000) * (int64_t)1000;
    queue->next = self->queues;
    self->queues = queue;
    queue->name = copy_text(options->endpoint);
    queue->types = pr_alloc((options->type_count + 1) * sizeof(*queue->types));
    bool whole = queue->name && queue->types;
    for (size_t i = 0; whole && i < options->type_count; i++) {
        queue->types[i] = copy_text(options->types[i]);
        whole = queue->types[i] != NULL;
        queue->type_count++;
    }
    if (whole)
        return PR_OK;
    shelf_drop(self, queue);
    return pr_error_set(err, PR_E_NOMEM, PR_RETRY_SAME, SHELF_NAME, "out of memory");
}

pr_status shelf_declare(shelf *self, const pr_subscribe_options *options, uint64_t owner,
                        bool check_only, int64_t now_us, pr_error *err)
{
    const char *name = options->endpoint;
    const shelf_queue *queue = shelf_find(self, name, now_us);
    if (!queue && check_only)
        return pr_error_set(err, PR_E_NOT_FOUND, PR_RETRY_NEVER, SHELF_NAME,
                            "there is no queue '%s'; make it first", name);
    if (!queue)
        return make(self, options, owner, now_us, err);
    if (owner != 0 || queue->owner != 0)
        return pr_error_set(err, PR_E_CONFLICT, PR_RETRY_NEVER, SHELF_NAME,
                            "'%s' is taken by another subscription", name);
    if (!same_types(queue, options))
        return pr_error_set(err, PR_E_CONFLICT, PR_RETRY_NEVER, SHELF_NAME,
                            "the queue '%s' stands with other types", name);
    return PR_OK;
}

/* ---- messages ---- */

static bool reaches(const pr_address *to, const shelf_queue *queue)
{
    bool fits = to->type[0] == '\0' || takes(queue, to->type);
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
