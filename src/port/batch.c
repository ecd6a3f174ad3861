/*
 * The batch and the order rules of a slice.
 *
 * Invariant: when pr__batch_close returns, no item of a key is to be parked while an earlier one of
 * that key goes to rest, and nothing of a key is marked sendable behind one that was not published.
 * It knows nothing of databases or transports.
 */
#include "port/batch.h"

#include <string.h>

#include "base/error.h"
#include "base/hash.h"
#include "base/text.h"

#define BATCH_ARENA_CHUNK (64 * 1024)

pr__batch *pr__batch_new(void)
{
    AUTO(pr__arena) arena = pr__arena_new(BATCH_ARENA_CHUNK);
    if (!arena)
        return NULL;
    pr__batch *batch = pr__arena_alloc(arena, sizeof *batch);
    if (!batch)
        return NULL;
    batch->arena = TAKE(arena);
    return batch;
}

void *pr__batch_free(pr__batch *batch)
{
    if (batch)
        pr__arena_free(batch->arena); /* the batch itself lies in it */
    return NULL;
}

void pr__batch_set_error(pr__batch *batch, pr__item *item, const char *text)
{
    char line[PR_ERROR_TEXT_SIZE_MAX + 1];
    size_t size = pr__one_line(line, sizeof line, text, strlen(text));
    const char *kept = pr__arena_strndup(batch->arena, line, size);
    item->error = kept ? kept : "out of memory while the reason was kept";
}

/* What the keys seen so far in a slice have come to. */
typedef enum key_state { KEY_CLEAR = 0, KEY_TO_REST, KEY_TO_HELD } key_state;

typedef struct key_entry {
    const pr_message *message; /* the first of its (tenant, key); NULL = free */
    key_state state;
} key_entry;

static const char *tenant_of(const pr_message *message)
{
    return message->tenant ? message->tenant : "";
}

static key_entry *find_key(key_entry *table, size_t capacity, const pr_message *message)
{
    const char *tenant = tenant_of(message);
    uint64_t hash = pr__quick_hash(message->key, strlen(message->key),
                                   pr__quick_hash(tenant, strlen(tenant), 0));
    for (size_t i = (size_t)hash & (capacity - 1);; i = (i + 1) & (capacity - 1)) {
        if (!table[i].message) {
            table[i].message = message;
            return &table[i];
        }
        if (strcmp(table[i].message->key, message->key) == 0 &&
            strcmp(tenant_of(table[i].message), tenant) == 0)
            return &table[i];
    }
}

static key_state state_after(const pr__item *item)
{
    switch (item->result) {
    case PR__RESULT_PUBLISHED:
        return KEY_CLEAR;
    case PR__RESULT_OPEN:
    case PR__RESULT_LOST:
        return KEY_TO_REST;
    case PR__RESULT_FAILED:
    case PR__RESULT_DEFERRED:
    case PR__RESULT_DEAD:
    case PR__RESULT_EXPIRED:
    case PR__RESULT_HELD:
        return KEY_TO_HELD;
    }
    return KEY_TO_REST;
}

/* One item of the log, given what came before it in its key. */
static void close_log_item(pr__item *item, key_entry *entry)
{
    if (item->result == PR__RESULT_PUBLISHED)
        return;
    if (entry->state == KEY_TO_REST) {
        item->result = PR__RESULT_OPEN;
        return;
    }
    if (item->result == PR__RESULT_OPEN && (item->blocked || entry->state == KEY_TO_HELD))
        item->result = PR__RESULT_HELD;
    if (entry->state == KEY_CLEAR)
        entry->state = state_after(item);
}

static void close_parked_item(pr__item *item, key_entry *entry)
{
    if (entry->state != KEY_CLEAR && item->result != PR__RESULT_PUBLISHED)
        item->result = PR__RESULT_OPEN;
    else if (entry->state == KEY_CLEAR)
        entry->state = state_after(item);
}

void pr__batch_close(pr__batch *batch)
{
    if (batch->order == PR_ORDER_SKIP || batch->item_count == 0)
        return;
    size_t capacity = 16;
    while (capacity < (size_t)batch->item_count * 2)
        capacity *= 2;
    key_entry *table = pr__arena_alloc(batch->arena, capacity * sizeof *table);
    for (uint32_t i = 0; i < batch->item_count; i++) {
        pr__item *item = &batch->items[i];
        if (!item->message.key) {
            if (item->result == PR__RESULT_OPEN && item->blocked)
                item->result = PR__RESULT_HELD;
            continue;
        }
        if (!table) { /* out of memory: everything that is not published waits in rest */
            if (item->result != PR__RESULT_PUBLISHED)
                item->result = PR__RESULT_OPEN;
            continue;
        }
        key_entry *entry = find_key(table, capacity, &item->message);
        if (batch->slices)
            close_log_item(item, entry);
        else
            close_parked_item(item, entry);
    }
}
