/*
 * Queues of the memory broker.
 *
 * Owns: the entries of one endpoint, from the push until they are finished or buried.
 * Keeps: of one (tenant, key) at most one entry is ready, delayed or in hand; the others wait in
 * the key's chain, in the order in which they came. An entry is in one list at a time.
 * Must not know: locks, subscriptions, routing.
 */
#include "transport/memory/queue.h"

#include <string.h>

#include "base/hash.h"
#include "base/memory.h"

#define BUCKETS_FIRST 64

struct pr__chain {
    pr__chain *next; /* in its bucket */
    uint64_t hash;
    char *tenant; /* "" for none */
    char *key;
    size_t users;            /* entries that point here, prepared ones too */
    bool busy;               /* one is ready, delayed or in hand */
    pr__entry *first, *last; /* waiting behind it */
};

/* ---- lists ---- */

static void list_insert(pr__entry_list *list, pr__entry *before, pr__entry *entry)
{
    entry->next = before;
    entry->prev = before ? before->prev : list->last;
    if (entry->prev)
        entry->prev->next = entry;
    else
        list->first = entry;
    if (before)
        before->prev = entry;
    else
        list->last = entry;
    list->count++;
}

static pr__entry *list_take_first(pr__entry_list *list)
{
    pr__entry *entry = list->first;
    if (!entry)
        return NULL;
    list->first = entry->next;
    if (entry->next)
        entry->next->prev = NULL;
    else
        list->last = NULL;
    entry->prev = entry->next = NULL;
    list->count--;
    return entry;
}

/* ---- chains ---- */

static uint64_t chain_hash(const char *tenant, const char *key)
{
    return pr__quick_hash(key, strlen(key), pr__quick_hash(tenant, strlen(tenant), 0));
}

static bool grow_buckets(pr__queue *queue)
{
    size_t count = queue->bucket_count ? queue->bucket_count * 2 : BUCKETS_FIRST;
    pr__chain **buckets = pr__alloc_array(count, sizeof(*buckets));
    if (!buckets)
        return queue->bucket_count > 0; /* a full table still works */
    for (size_t i = 0; i < queue->bucket_count; i++) {
        while (queue->buckets[i]) {
            pr__chain *chain = queue->buckets[i];
            queue->buckets[i] = chain->next;
            pr__chain **bucket = &buckets[chain->hash & (count - 1)];
            chain->next = *bucket;
            *bucket = chain;
        }
    }
    pr__free(queue->buckets);
    queue->buckets = buckets;
    queue->bucket_count = count;
    return true;
}

static void *chain_free(pr__chain *chain)
{
    if (chain) {
        pr__free(chain->tenant);
        pr__free(chain->key);
    }
    return pr__free(chain);
}

/* The chain of a message's key, made when missing; NULL when out of memory. */
static pr__chain *chain_of(pr__queue *queue, const pr_message *message)
{
    const char *tenant = message->tenant ? message->tenant : "";
    uint64_t hash = chain_hash(tenant, message->key);
    if (queue->chain_count >= queue->bucket_count && !grow_buckets(queue))
        return NULL;
    pr__chain **bucket = &queue->buckets[hash & (queue->bucket_count - 1)];
    for (pr__chain *chain = *bucket; chain; chain = chain->next) {
        if (chain->hash == hash && strcmp(chain->key, message->key) == 0 &&
            strcmp(chain->tenant, tenant) == 0)
            return chain;
    }
    pr__chain *chain = pr__alloc(sizeof(*chain));
    if (!chain)
        return NULL;
    chain->hash = hash;
    chain->tenant = pr__strdup(tenant);
    chain->key = pr__strdup(message->key);
    if (!chain->tenant || !chain->key)
        return chain_free(chain);
    chain->next = *bucket;
    *bucket = chain;
    queue->chain_count++;
    return chain;
}

static void chain_leave(pr__queue *queue, pr__chain *chain)
{
    if (--chain->users > 0)
        return;
    pr__chain **at = &queue->buckets[chain->hash & (queue->bucket_count - 1)];
    while (*at != chain)
        at = &(*at)->next;
    *at = chain->next;
    queue->chain_count--;
    chain_free(chain);
}

/* ---- the queue ---- */

pr__queue *pr__queue_new(const pr_subscribe_options *options)
{
    pr__queue *queue = pr__alloc(sizeof(*queue));
    if (!queue)
        return NULL;
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&queue->some, &monotonic);
    pthread_condattr_destroy(&monotonic);
    queue->temporary = options->temporary;
    queue->name = pr__strdup(options->endpoint);
    queue->types = pr__alloc_array(options->type_count, sizeof(*queue->types));
    if (!queue->name || !queue->types)
        return pr__queue_free(queue);
    for (size_t i = 0; i < options->type_count; i++) {
        if (pr__queue_takes_type(queue, options->types[i], strlen(options->types[i])))
            continue;
        queue->types[queue->type_count] = pr__strdup(options->types[i]);
        if (!queue->types[queue->type_count])
            return pr__queue_free(queue);
        queue->type_count++;
    }
    return queue;
}

static void *entry_free(pr__entry *entry)
{
    pr__envelope_release(entry->envelope);
    return pr__free(entry);
}

static bool list_drop_first(pr__entry_list *list)
{
    pr__entry *entry = list_take_first(list);
    if (entry)
        entry_free(entry);
    return entry != NULL;
}

static void list_free(pr__entry_list *list)
{
    while (list_drop_first(list))
        continue;
}

void *pr__queue_free(pr__queue *queue)
{
    if (!queue)
        return NULL;
    list_free(&queue->ready);
    list_free(&queue->delayed);
    list_free(&queue->dead);
    for (size_t i = 0; i < queue->bucket_count; i++) {
        while (queue->buckets[i]) {
            pr__chain *chain = queue->buckets[i];
            queue->buckets[i] = chain->next;
            while (chain->first) {
                pr__entry *entry = chain->first;
                chain->first = entry->next;
                entry_free(entry);
            }
            chain_free(chain);
        }
    }
    pr__free(queue->buckets);
    for (size_t i = 0; queue->types && i < queue->type_count; i++)
        pr__free(queue->types[i]);
    pr__free(queue->types);
    pr__free(queue->name);
    pthread_cond_destroy(&queue->some);
    return pr__free(queue);
}

bool pr__queue_takes_type(const pr__queue *queue, const char *type, size_t type_size)
{
    for (size_t i = 0; i < queue->type_count; i++) {
        if (strlen(queue->types[i]) == type_size && memcmp(queue->types[i], type, type_size) == 0)
            return true;
    }
    return false;
}

bool pr__queue_same_types(const pr__queue *queue, const pr_subscribe_options *options)
{
    for (size_t i = 0; i < options->type_count; i++) {
        if (!pr__queue_takes_type(queue, options->types[i], strlen(options->types[i])))
            return false;
    }
    for (size_t i = 0; i < queue->type_count; i++) {
        bool wanted = false;
        for (size_t k = 0; k < options->type_count && !wanted; k++)
            wanted = strcmp(queue->types[i], options->types[k]) == 0;
        if (!wanted)
            return false;
    }
    return true;
}

pr__entry *pr__queue_prepare(pr__queue *queue, pr__envelope *envelope)
{
    pr__entry *entry = pr__alloc(sizeof(*entry));
    if (!entry)
        return NULL;
    if (envelope->message.key) {
        entry->chain = chain_of(queue, &envelope->message);
        if (!entry->chain)
            return pr__free(entry);
        entry->chain->users++;
    }
    entry->envelope = pr__envelope_hold(envelope);
    return entry;
}

void pr__queue_unprepare(pr__queue *queue, pr__entry *entry)
{
    if (entry->chain)
        chain_leave(queue, entry->chain);
    entry_free(entry);
}

void pr__queue_push(pr__queue *queue, pr__entry *entry)
{
    queue->held_count++;
    queue->held_bytes += entry->envelope->size;
    pr__chain *chain = entry->chain;
    if (chain && chain->busy) {
        if (chain->last)
            chain->last->next = entry;
        else
            chain->first = entry;
        chain->last = entry;
        return;
    }
    if (chain)
        chain->busy = true;
    list_insert(&queue->ready, NULL, entry);
    pthread_cond_broadcast(&queue->some);
}

void pr__queue_wake_due(pr__queue *queue, int64_t now_us)
{
    while (queue->delayed.first && queue->delayed.first->due_us <= now_us)
        list_insert(&queue->ready, NULL, list_take_first(&queue->delayed));
}

pr__entry *pr__queue_take(pr__queue *queue)
{
    return list_take_first(&queue->ready);
}

void pr__queue_give_back(pr__queue *queue, pr__entry *entry)
{
    list_insert(&queue->ready, queue->ready.first, entry);
    pthread_cond_broadcast(&queue->some);
}

void pr__queue_delay(pr__queue *queue, pr__entry *entry, int64_t due_us)
{
    entry->due_us = due_us;
    pr__entry *before = NULL;
    pr__entry *last = queue->delayed.last;
    for (; last && last->due_us > due_us; last = last->prev)
        before = last;
    list_insert(&queue->delayed, before, entry);
    pthread_cond_broadcast(&queue->some); /* whoever sleeps has to look at the new time */
}

/* The entry leaves the living: the next of its key may go. */
static void leave(pr__queue *queue, pr__entry *entry)
{
    queue->held_count--;
    queue->held_bytes -= entry->envelope->size;
    pr__chain *chain = entry->chain;
    if (!chain)
        return;
    pr__entry *successor = chain->first;
    if (successor) {
        chain->first = successor->next;
        if (!chain->first)
            chain->last = NULL;
        list_insert(&queue->ready, NULL, successor);
        pthread_cond_broadcast(&queue->some);
    } else {
        chain->busy = false;
    }
    entry->chain = NULL;
    chain_leave(queue, chain);
}

void pr__queue_finish(pr__queue *queue, pr__entry *entry)
{
    leave(queue, entry);
    entry_free(entry);
}

void pr__queue_bury(pr__queue *queue, pr__entry *entry, size_t dead_max)
{
    leave(queue, entry);
    list_insert(&queue->dead, NULL, entry);
    if (queue->dead.count > dead_max)
        list_drop_first(&queue->dead);
}
