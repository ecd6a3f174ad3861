/*
 * What a subscription has in hand.
 *
 * Owns: the course of each item: waiting, with the consumer, decided, passed over, stale.
 * Keeps: under hold and halt a key has one item with the consumer at most, in id order, and none
 * goes out behind one that was not acknowledged; pr__batch_close does the rest at the settle.
 * Must not know: stores and time.
 */
#include "transport/database/holding.h"

#include <string.h>

#include <postroom/address.h>

#include "base/hash.h"
#include "base/memory.h"
#include "base/text.h"

#define NONE            UINT32_MAX
#define POISON_DELAY_MS PR_BACKOFF_INITIAL_MS_DEFAULT

typedef enum item_state {
    ITEM_WAITING = 0, /* may be handed out when its key is free */
    ITEM_OUT,         /* with the consumer */
    ITEM_DECIDED,
    ITEM_PASSED, /* not to be handed out by this holding */
    ITEM_STALE,  /* somebody took it over */
    ITEM_LENT    /* somebody took it over, and the consumer does not know it yet */
} item_state;

static const char *tenant_of(const pr_message *message)
{
    return message->tenant ? message->tenant : "";
}

static bool same_key(const pr_message *a, const pr_message *b)
{
    return strcmp(a->key, b->key) == 0 && strcmp(tenant_of(a), tenant_of(b)) == 0;
}

/* For each item the one before it of its key, by a table of the last one seen. */
static bool link_keys(pr__holding *holding)
{
    pr__batch *batch = holding->batch;
    size_t capacity = 16;
    while (capacity < (size_t)batch->item_count * 2)
        capacity *= 2;
    uint32_t *last = pr__arena_alloc(batch->arena, capacity * sizeof(*last)); /* index + 1 */
    if (!last)
        return false;
    for (uint32_t i = 0; i < batch->item_count; i++) {
        const pr_message *message = &batch->items[i].message;
        holding->previous[i] = NONE;
        if (!message->key || batch->order == PR_ORDER_SKIP)
            continue;
        const char *tenant = tenant_of(message);
        uint64_t hash = pr__quick_hash(message->key, strlen(message->key),
                                       pr__quick_hash(tenant, strlen(tenant), 0));
        size_t at = (size_t)hash & (capacity - 1);
        while (last[at] != 0 && !same_key(&batch->items[last[at] - 1].message, message))
            at = (at + 1) & (capacity - 1);
        if (last[at] != 0)
            holding->previous[i] = last[at] - 1;
        last[at] = i + 1;
    }
    return true;
}

static void decide_at_once(pr__batch *batch, pr__item *item, pr__result result, const char *why)
{
    item->result = result;
    pr__batch_set_error(batch, item, why);
}

/* What no consumer is to see. */
static bool is_decided_already(pr__batch *batch, pr__item *item)
{
    if (item->unreadable) {
        decide_at_once(batch, item, PR__RESULT_DEAD, item->unreadable);
    } else if (item->blocked) {
        return false; /* closing the batch makes it held */
    } else if (item->message.expires_at_us != 0 &&
               item->message.expires_at_us <= batch->claimed_at_us) {
        decide_at_once(batch, item, PR__RESULT_EXPIRED, "expired before it was delivered");
    } else if (item->poison) {
        bool last = item->attempts >= PR_RETRY_MAX_DEFAULT;
        item->retry_delay_ms = (int64_t)POISON_DELAY_MS
                               << (item->attempts < 8 ? item->attempts : 8);
        decide_at_once(batch, item, last ? PR__RESULT_DEAD : PR__RESULT_FAILED,
                       "its holders ended before they settled it, three times");
    } else {
        return false;
    }
    return true;
}

/* `local://…` as consumers address it. */
static bool rename_destination(pr__batch *batch, pr_message *message, const char *name)
{
    static const char scheme[] = PR_TRANSPORT_LOCAL "://";
    if (!pr__text_starts_with(message->destination, scheme))
        return true;
    const char *rest = message->destination + strlen(PR_TRANSPORT_LOCAL);
    size_t name_size = strlen(name);
    size_t rest_size = strlen(rest);
    char *text = pr__arena_alloc(batch->arena, name_size + rest_size + 1);
    if (!text)
        return false;
    memcpy(text, name, name_size);
    memcpy(text + name_size, rest, rest_size + 1);
    message->destination = text;
    return true;
}

bool pr__holding_init(pr__holding *holding, pr__batch *batch, const char *name)
{
    *holding = (pr__holding){.batch = batch};
    holding->states = pr__arena_alloc(batch->arena, batch->item_count);
    holding->previous =
        pr__arena_alloc(batch->arena, batch->item_count * sizeof(*holding->previous));
    if (!holding->states || !holding->previous || !link_keys(holding))
        return false;
    for (uint32_t i = 0; i < batch->item_count; i++) {
        pr__item *item = &batch->items[i];
        if (is_decided_already(batch, item))
            holding->states[i] = ITEM_DECIDED;
        else if (item->blocked)
            holding->states[i] = ITEM_PASSED;
        else if (!rename_destination(batch, &item->message, name))
            return false;
    }
    return true;
}

void pr__holding_done(pr__holding *holding)
{
    pr__batch_free(holding->batch);
    *holding = (pr__holding){0};
}

static bool is_acknowledged(const pr__holding *holding, uint32_t i)
{
    return holding->states[i] == ITEM_DECIDED &&
           holding->batch->items[i].result == PR__RESULT_PUBLISHED;
}

/* Is the item before it of its key still to be waited for? */
static bool waits_for(const pr__holding *holding, uint32_t i)
{
    return holding->states[i] == ITEM_WAITING || holding->states[i] == ITEM_OUT;
}

/* A waiting item whose predecessor ended otherwise than by an ack does not go out any more. */
static void pass_over(pr__holding *holding)
{
    for (uint32_t i = 0; i < holding->batch->item_count; i++) {
        uint32_t before = holding->previous[i];
        if (holding->states[i] == ITEM_WAITING && before != NONE && !waits_for(holding, before) &&
            !is_acknowledged(holding, before))
            holding->states[i] = ITEM_PASSED;
    }
}

uint32_t pr__holding_open(const pr__holding *holding)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < holding->batch->item_count; i++)
        count += holding->states[i] == ITEM_WAITING || holding->states[i] == ITEM_OUT;
    return count;
}

bool pr__holding_complete(const pr__holding *holding)
{
    return pr__holding_open(holding) == 0;
}

bool pr__holding_lent(const pr__holding *holding)
{
    for (uint32_t i = 0; i < holding->batch->item_count; i++) {
        if (holding->states[i] == ITEM_LENT)
            return true;
    }
    return false;
}

static pr_delivery delivery_of(const pr__holding *holding, uint32_t i)
{
    const pr__item *item = &holding->batch->items[i];
    pr_delivery delivery = {
        .message = item->message,
        .tag = (uint64_t)holding->generation << 32 | (i + 1),
        .redelivered = true, /* a parked one was requeued, or waited behind one that was */
        .delivery_count = item->attempts,
    };
    if (item->slice != PR__NO_SLICE && holding->batch->slices) {
        const pr__slice *slice = &holding->batch->slices[item->slice];
        delivery.redelivered = slice->takeover || slice->again || item->attempts > 0;
        delivery.delivery_count = slice->attempt;
    }
    return delivery;
}

uint32_t pr__holding_hand_out(pr__holding *holding, pr_delivery *ret_deliveries, uint32_t max)
{
    uint32_t count = 0;
    pass_over(holding);
    for (uint32_t i = 0; i < holding->batch->item_count && count < max; i++) {
        uint32_t before = holding->previous[i];
        if (holding->states[i] != ITEM_WAITING ||
            (before != NONE && !is_acknowledged(holding, before)))
            continue;
        holding->states[i] = ITEM_OUT;
        ret_deliveries[count++] = delivery_of(holding, i);
    }
    return count;
}

pr__item *pr__holding_find(pr__holding *holding, uint64_t tag)
{
    uint64_t place = tag & UINT32_MAX;
    if (tag >> 32 != holding->generation || place == 0 || place > holding->batch->item_count)
        return NULL;
    uint8_t state = holding->states[place - 1];
    if (state == ITEM_LENT)
        holding->states[place - 1] = ITEM_STALE; /* whoever asks is told */
    if (state != ITEM_OUT && !(holding->settling && state == ITEM_DECIDED))
        return NULL;
    return &holding->batch->items[place - 1];
}

void pr__holding_decide(pr__holding *holding, pr__item *item, pr_verdict verdict,
                        int64_t requeue_delay_ms)
{
    switch (verdict) {
    case PR_VERDICT_ACK:
        item->result = PR__RESULT_PUBLISHED;
        break;
    case PR_VERDICT_REQUEUE:
        item->retry_delay_ms = requeue_delay_ms < INT32_MAX ? requeue_delay_ms : INT32_MAX;
        decide_at_once(holding->batch, item, PR__RESULT_DEFERRED, "requeued by its consumer");
        break;
    case PR_VERDICT_REJECT:
        decide_at_once(holding->batch, item, PR__RESULT_DEAD, "rejected by its consumer");
        break;
    }
    holding->states[item - holding->batch->items] = ITEM_DECIDED;
    pass_over(holding);
}

uint32_t pr__holding_drop_fenced(pr__holding *holding)
{
    uint32_t stale = 0;
    for (uint32_t i = 0; i < holding->batch->item_count; i++) {
        const pr__item *item = &holding->batch->items[i];
        bool fenced =
            holding->batch->slices ? holding->batch->slices[item->slice].fenced : item->fenced;
        if (!fenced || holding->states[i] == ITEM_STALE || holding->states[i] == ITEM_LENT)
            continue;
        holding->states[i] = holding->states[i] == ITEM_OUT ? ITEM_LENT : ITEM_STALE;
        stale++;
    }
    return stale;
}
