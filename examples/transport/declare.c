/*
 * The server: a queue is made, or seen to stand as it is wanted. Its types are fixed from then on;
 * a temporary one has one subscription, and expires when that is not heard of.
 */
#include <string.h>

#include "shelf.h"

static bool same_types(const shelf_queue *queue, const pr_subscribe_options *options)
{
    for (size_t i = 0; i < options->type_count; i++) {
        if (!shelf_takes(queue, options->types[i]))
            return false;
    }
    for (size_t i = 0; i < queue->type_count; i++) {
        if (!shelf_has(options->types, options->type_count, queue->types[i]))
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
        return shelf_no_memory(err);
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
    return shelf_no_memory(err);
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
