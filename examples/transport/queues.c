/*
 * The server: queues, by name. Nothing here is seen by Postroom.
 */
#include <string.h>

#include "shelf.h"

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

bool shelf_has(const char *const *types, size_t count, const char *type)
{
    for (size_t i = 0; i < count; i++) {
        if (strcmp(types[i], type) == 0)
            return true;
    }
    return false;
}

bool shelf_takes(const shelf_queue *queue, const char *type)
{
    return shelf_has((const char *const *)queue->types, queue->type_count, type);
}
