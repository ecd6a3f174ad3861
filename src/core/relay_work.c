/*
 * The work in hand: chains of keys, queues of ready items, what was decided.
 *
 * Owns: the batch and the tables over it; the tables are kept from one batch to the next, so that a
 * drain allocates nothing here.
 * Keeps: under order, at most one item of a (tenant, key) is ready or flying; every item is decided
 * exactly once; undecided and flying are the true counts.
 * Must not know: ports, clocks, why something failed.
 */
#include "core/relay_work.h"

#include <string.h>

#include "base/assert.h"
#include "base/hash.h"
#include "port/route.h"

static const pr__work_queue empty_queue = {PR__WORK_NONE, PR__WORK_NONE};

static bool reserve(pr__work *work, uint32_t count)
{
    if (count <= work->capacity)
        return true;
    uint32_t slots = 16;
    while (slots < count * 2)
        slots *= 2;
    pr__work_item *items = pr__realloc_array(work->items, count, sizeof *items);
    if (items)
        work->items = items;
    pr__work_destination *destinations =
        pr__realloc_array(work->destinations, count, sizeof *destinations);
    if (destinations)
        work->destinations = destinations;
    uint32_t *table = pr__realloc_array(work->slots, slots, sizeof *table);
    if (table)
        work->slots = table;
    if (!items || !destinations || !table)
        return false; /* grown in part at most: capacity still tells the least */
    work->capacity = count;
    work->slot_count = slots;
    return true;
}

static void clear_slots(pr__work *work)
{
    memset(work->slots, 0xFF, work->slot_count * sizeof *work->slots); /* PR__WORK_NONE */
}

static uint32_t find_transport(const char *destination, const char *const *names, uint32_t count,
                               bool *ret_malformed)
{
    pr__route route;
    if (pr__route_parse(destination, &route, NULL) != PR_OK) {
        *ret_malformed = true;
        return PR__WORK_NOWHERE;
    }
    for (uint32_t i = 0; i < count; i++) {
        if (pr__span_equal(route.scheme, names[i]))
            return i;
    }
    return PR__WORK_NOWHERE;
}

/* Each destination text is read once a batch. */
static void load_destinations(pr__work *work, const char *const *names, uint32_t count)
{
    clear_slots(work);
    work->destination_count = 0;
    const char *last_text = NULL;
    uint32_t last = 0;
    for (uint32_t i = 0; i < work->batch->item_count; i++) {
        const char *text = work->batch->items[i].message.destination;
        if (!text)
            text = ""; /* of an unreadable row */
        if (last_text && strcmp(last_text, text) == 0) {
            work->items[i].destination = last;
            continue;
        }
        uint64_t hash = pr__quick_hash(text, strlen(text), 0);
        uint32_t slot = (uint32_t)hash & (work->slot_count - 1);
        while (work->slots[slot] != PR__WORK_NONE) {
            const pr__work_destination *known = &work->destinations[work->slots[slot]];
            if (known->hash == hash && strcmp(known->text, text) == 0)
                break;
            slot = (slot + 1) & (work->slot_count - 1);
        }
        if (work->slots[slot] == PR__WORK_NONE) {
            pr__work_destination *added = &work->destinations[work->destination_count];
            *added = (pr__work_destination){.text = text, .hash = hash};
            added->transport = find_transport(text, names, count, &added->malformed);
            work->slots[slot] = work->destination_count++;
        }
        last = work->items[i].destination = work->slots[slot];
        last_text = text;
    }
}

static const char *tenant_of(const pr__item *item)
{
    return item->message.tenant ? item->message.tenant : "";
}

/* Slot of the last item so far with this one's (tenant, key), or the free one for it. */
static uint32_t *find_key(pr__work *work, const pr__item *item)
{
    const char *tenant = tenant_of(item);
    uint64_t hash = pr__quick_hash(item->message.key, strlen(item->message.key),
                                   pr__quick_hash(tenant, strlen(tenant), 0));
    uint32_t slot = (uint32_t)hash & (work->slot_count - 1);
    for (;; slot = (slot + 1) & (work->slot_count - 1)) {
        if (work->slots[slot] == PR__WORK_NONE)
            return &work->slots[slot];
        const pr__item *last = &work->batch->items[work->slots[slot]];
        if (strcmp(last->message.key, item->message.key) == 0 &&
            strcmp(tenant_of(last), tenant) == 0)
            return &work->slots[slot];
    }
}

static void push_back(pr__work *work, pr__work_queue *queue, uint32_t index)
{
    work->items[index].next_ready = PR__WORK_NONE;
    if (queue->last == PR__WORK_NONE)
        queue->first = index;
    else
        work->items[queue->last].next_ready = index;
    queue->last = index;
}

static void make_ready(pr__work *work, uint32_t index)
{
    const pr__item *item = &work->batch->items[index];
    uint32_t transport = pr__work_destination_of(work, index)->transport;
    if (item->blocked || item->unreadable || item->poison || transport == PR__WORK_NOWHERE)
        push_back(work, &work->ready[PR__WORK_NOWHERE], index);
    else if (item->suspicion > 0)
        push_back(work, &work->suspects[transport], index);
    else
        push_back(work, &work->ready[transport], index);
}

void pr__work_load(pr__work *work, pr__batch *batch, const char *const *names, uint32_t count)
{
    work->batch = batch;
    work->flying = work->undecided = work->waiting = 0;
    work->closed = work->outage = false;
    work->view = NULL;
    work->settled = NULL;
    work->part_at_us = INT64_MIN;
    work->deadline_at_us = INT64_MAX;
    for (uint32_t i = 0; i <= PR__WORK_TRANSPORTS_MAX; i++)
        work->ready[i] = empty_queue;
    for (uint32_t i = 0; i < PR__WORK_TRANSPORTS_MAX; i++)
        work->suspects[i] = empty_queue;
    if (batch->item_count == 0 || !reserve(work, batch->item_count)) {
        work->phase = PR__WORK_DECIDED; /* every result is OPEN */
        return;
    }
    memset(work->items, 0, batch->item_count * sizeof *work->items);
    load_destinations(work, names, count);
    clear_slots(work);
    work->phase = PR__WORK_SENDING;
    work->undecided = batch->item_count;
    bool ordered = batch->order != PR_ORDER_SKIP;
    for (uint32_t i = 0; i < batch->item_count; i++) {
        pr__item *item = &batch->items[i];
        item->result = PR__RESULT_OPEN;
        work->items[i].next_of_key = PR__WORK_NONE;
        if (ordered && item->message.key) {
            uint32_t *slot = find_key(work, item);
            uint32_t before = *slot;
            *slot = i;
            if (before != PR__WORK_NONE) {
                work->items[before].next_of_key = i;
                continue;
            }
        }
        make_ready(work, i);
    }
}

void pr__work_clear(pr__work *work)
{
    pr__batch_free(work->batch);
    work->batch = NULL;
    work->phase = PR__WORK_FREE;
}

void pr__work_done(pr__work *work)
{
    pr__work_clear(work);
    work->items = pr__free(work->items);
    work->destinations = pr__free(work->destinations);
    work->slots = pr__free(work->slots);
    work->capacity = 0;
}

uint32_t pr__work_pop(pr__work *work, pr__work_queue *queue)
{
    uint32_t index = queue->first;
    if (index != PR__WORK_NONE) {
        queue->first = work->items[index].next_ready;
        if (queue->first == PR__WORK_NONE)
            queue->last = PR__WORK_NONE;
    }
    return index;
}

void pr__work_push_front(pr__work *work, pr__work_queue *queue, uint32_t index)
{
    work->items[index].next_ready = queue->first;
    queue->first = index;
    if (queue->last == PR__WORK_NONE)
        queue->last = index;
}

bool pr__work_queue_empty(const pr__work_queue *queue)
{
    return queue->first == PR__WORK_NONE;
}

static void set_decided(pr__work *work, uint32_t index)
{
    pr_assert(!work->items[index].decided && work->undecided > 0);
    work->items[index].decided = true;
    if (--work->undecided == 0 && work->phase == PR__WORK_SENDING)
        work->phase = PR__WORK_DECIDED;
}

void pr__work_decide(pr__work *work, uint32_t index, pr__result result)
{
    work->batch->items[index].result = result;
    uint32_t next = work->items[index].next_of_key;
    if (result == PR__RESULT_PUBLISHED) {
        if (next != PR__WORK_NONE && !work->items[next].decided)
            make_ready(work, next);
    } else {
        for (; next != PR__WORK_NONE; next = work->items[next].next_of_key) {
            if (!work->items[next].decided)
                set_decided(work, next);
        }
    }
    set_decided(work, index);
}

static void keep_if_wanted(pr__work *work, pr__work_queue *queue)
{
    pr__work_queue old = *queue;
    *queue = empty_queue;
    for (uint32_t i = old.first; i != PR__WORK_NONE;) {
        uint32_t next = work->items[i].next_ready;
        if (!work->items[i].decided)
            push_back(work, queue, i);
        i = next;
    }
}

void pr__work_leave_unsent(pr__work *work, uint32_t slice)
{
    if (work->phase != PR__WORK_SENDING)
        return;
    for (uint32_t i = 0; i < work->batch->item_count; i++) {
        if (work->items[i].decided || work->items[i].flying ||
            (slice != PR__NO_SLICE && work->batch->items[i].slice != slice))
            continue;
        set_decided(work, i);
    }
    for (uint32_t i = 0; i <= PR__WORK_TRANSPORTS_MAX; i++)
        keep_if_wanted(work, &work->ready[i]);
    for (uint32_t i = 0; i < PR__WORK_TRANSPORTS_MAX; i++)
        keep_if_wanted(work, &work->suspects[i]);
}

void pr__work_sent(pr__work *work, uint32_t index, int64_t now_us, int64_t deadline_us)
{
    pr__work_item *item = &work->items[index];
    item->flying = true;
    item->sent_at_us = now_us;
    work->flying++;
    if (now_us + deadline_us < work->deadline_at_us)
        work->deadline_at_us = now_us + deadline_us;
}

/* ---- parts ---- */

static bool make_view(pr__work *work)
{
    if (work->view)
        return true;
    pr__arena *arena = work->batch->arena;
    pr__batch *view = pr__arena_alloc(arena, sizeof *view);
    bool *settled = pr__arena_alloc(arena, work->batch->slice_count * sizeof *settled);
    work->view_items = pr__arena_alloc(arena, work->batch->item_count * sizeof *work->view_items);
    work->view_slices =
        pr__arena_alloc(arena, work->batch->slice_count * sizeof *work->view_slices);
    if (!view || !settled || !work->view_items || !work->view_slices)
        return false;
    *view = *work->batch;
    view->items = pr__arena_alloc(arena, work->batch->item_count * sizeof *view->items);
    view->slices = pr__arena_alloc(arena, work->batch->slice_count * sizeof *view->slices);
    if (!view->items || !view->slices)
        return false;
    work->view = view;
    work->settled = settled;
    return true;
}

/* Slices of which nothing is decided are no part; nor are those that were settled before. */
static bool is_part(const pr__work *work, uint32_t slice, bool decided_only)
{
    if (work->settled[slice])
        return false;
    for (uint32_t i = 0; decided_only && i < work->batch->item_count; i++) {
        if (work->batch->items[i].slice == slice && !work->items[i].decided)
            return false;
    }
    return true;
}

pr__batch *pr__work_view(pr__work *work, bool decided_only)
{
    if (!decided_only && !work->settled)
        return work->batch;
    if (!work->batch->slices || work->batch->slice_count < 2 || !make_view(work))
        return NULL;
    pr__batch *view = work->view;
    view->slice_count = view->item_count = 0;
    for (uint32_t s = 0; s < work->batch->slice_count; s++) {
        if (!is_part(work, s, decided_only))
            continue;
        view->slices[view->slice_count] = work->batch->slices[s];
        work->view_slices[view->slice_count] = s;
        for (uint32_t i = 0; i < work->batch->item_count; i++) {
            if (work->batch->items[i].slice != s)
                continue;
            work->view_items[view->item_count] = i;
            view->items[view->item_count] = work->batch->items[i];
            view->items[view->item_count++].slice = view->slice_count;
        }
        view->slice_count++;
    }
    return view->slice_count > 0 ? view : NULL;
}

void pr__work_viewed(pr__work *work, const pr__batch *view, bool settled)
{
    if (view == work->batch)
        return;
    for (uint32_t s = 0; s < view->slice_count; s++) {
        work->batch->slices[work->view_slices[s]] = view->slices[s];
        work->settled[work->view_slices[s]] |= settled;
    }
    for (uint32_t i = 0; i < view->item_count; i++)
        work->batch->items[work->view_items[i]].fenced = view->items[i].fenced;
}

bool pr__work_has_ready(const pr__work *work)
{
    if (work->phase != PR__WORK_SENDING)
        return false;
    for (uint32_t i = 0; i <= PR__WORK_TRANSPORTS_MAX; i++) {
        if (!pr__work_queue_empty(&work->ready[i]))
            return true;
    }
    for (uint32_t i = 0; i < PR__WORK_TRANSPORTS_MAX; i++) {
        if (!pr__work_queue_empty(&work->suspects[i]))
            return true;
    }
    return false;
}

const pr__work_destination *pr__work_destination_of(const pr__work *work, uint32_t index)
{
    return &work->destinations[work->items[index].destination];
}
