/*
 * Slots of deliveries.
 *
 * Keeps: a tag names its slot, its epoch and the channel's own number, so that one of an earlier
 * channel, or one that was settled, is never taken for another. A stale delivery's memory stays
 * until the caller settles it.
 * Must not know: frames.
 */
#include "transport/amqp/in_hand.h"

#include "base/memory.h"

#define FIRST_SLOTS 64

static const pr__slot_list empty_list = {PR__NO_SLOT, PR__NO_SLOT};

static void append(pr__in_hand *hand, pr__slot_list *list, uint32_t index)
{
    hand->slots[index].next = PR__NO_SLOT;
    if (list->last == PR__NO_SLOT)
        list->first = index;
    else
        hand->slots[list->last].next = index;
    list->last = index;
}

static uint32_t take_first(pr__in_hand *hand, pr__slot_list *list)
{
    uint32_t index = list->first;
    if (index == PR__NO_SLOT)
        return index;
    list->first = hand->slots[index].next;
    if (list->first == PR__NO_SLOT)
        list->last = PR__NO_SLOT;
    return index;
}

void pr__in_hand_init(pr__in_hand *hand, uint32_t epoch)
{
    *hand = (pr__in_hand){.unused = empty_list, .ready = empty_list, .epoch = epoch};
}

void pr__in_hand_done(pr__in_hand *hand)
{
    for (uint32_t i = 0; i < hand->capacity; i++)
        pr__wire_in_free(hand->slots[i].in);
    hand->slots = pr__free(hand->slots);
    hand->capacity = 0;
}

static bool grow(pr__in_hand *hand)
{
    uint32_t capacity = hand->capacity ? hand->capacity * 2 : FIRST_SLOTS;
    if (capacity > PR__IN_HAND_MAX)
        return false;
    pr__slot *grown = pr__realloc_array(hand->slots, capacity, sizeof(*grown));
    if (!grown)
        return false;
    hand->slots = grown;
    for (uint32_t i = hand->capacity; i < capacity; i++) {
        hand->slots[i] = (pr__slot){.state = PR__SLOT_FREE};
        append(hand, &hand->unused, i);
    }
    hand->capacity = capacity;
    return true;
}

static void release(pr__in_hand *hand, uint32_t index)
{
    hand->slots[index].in = pr__wire_in_free(hand->slots[index].in);
    hand->slots[index].state = PR__SLOT_FREE;
    append(hand, &hand->unused, index);
}

bool pr__in_hand_add(pr__in_hand *hand, pr__wire_in *in, uint64_t delivery_tag, bool redelivered)
{
    if (hand->unused.first == PR__NO_SLOT && !grow(hand))
        return false;
    uint32_t index = take_first(hand, &hand->unused);
    hand->slots[index] = (pr__slot){.in = in,
                                    .delivery_tag = delivery_tag,
                                    .epoch = hand->epoch,
                                    .state = PR__SLOT_READY,
                                    .redelivered = redelivered};
    append(hand, &hand->ready, index);
    return true;
}

/* ---- tags: epoch, the end of the channel's own, slot ---- */

static uint64_t tag_of(const pr__in_hand *hand, uint32_t index)
{
    const pr__slot *slot = &hand->slots[index];
    return (uint64_t)slot->epoch << 32 | (slot->delivery_tag & 0xFFFF) << 16 | index;
}

static bool hand_out(pr__in_hand *hand, uint32_t index, pr_delivery *ret_delivery)
{
    if (index == PR__NO_SLOT)
        return false;
    pr__slot *slot = &hand->slots[index];
    slot->state = PR__SLOT_HANDED;
    hand->handed++;
    *ret_delivery = (pr_delivery){.message = slot->in->message,
                                  .tag = tag_of(hand, index),
                                  .redelivered = slot->redelivered,
                                  .delivery_count = slot->in->delivery_count};
    return true;
}

bool pr__in_hand_take(pr__in_hand *hand, pr_delivery *ret_delivery)
{
    return hand_out(hand, take_first(hand, &hand->ready), ret_delivery);
}

bool pr__in_hand_take_unkeyed(pr__in_hand *hand, pr_delivery *ret_delivery)
{
    uint32_t before = PR__NO_SLOT, index = hand->ready.first;
    while (index != PR__NO_SLOT && hand->slots[index].in->message.key) {
        before = index;
        index = hand->slots[index].next;
    }
    if (index == PR__NO_SLOT || before == PR__NO_SLOT)
        return index != PR__NO_SLOT && pr__in_hand_take(hand, ret_delivery);
    hand->slots[before].next = hand->slots[index].next;
    if (hand->ready.last == index)
        hand->ready.last = before;
    return hand_out(hand, index, ret_delivery);
}

bool pr__in_hand_forget(pr__in_hand *hand, uint64_t *ret_delivery_tag)
{
    uint32_t index = take_first(hand, &hand->ready);
    if (index == PR__NO_SLOT)
        return false;
    *ret_delivery_tag = hand->slots[index].delivery_tag;
    release(hand, index);
    return true;
}

bool pr__in_hand_keyed(const pr__in_hand *hand, uint64_t tag)
{
    uint32_t index = (uint32_t)(tag & 0xFFFF);
    return index < hand->capacity && tag_of(hand, index) == tag && hand->slots[index].in &&
           hand->slots[index].in->message.key;
}

bool pr__in_hand_settle(pr__in_hand *hand, uint64_t tag, uint64_t *ret_delivery_tag)
{
    uint32_t index = (uint32_t)(tag & 0xFFFF);
    if (index >= hand->capacity || tag_of(hand, index) != tag)
        return false;
    pr__slot_state state = hand->slots[index].state;
    if (state != PR__SLOT_HANDED && state != PR__SLOT_STALE)
        return false;
    *ret_delivery_tag = hand->slots[index].delivery_tag;
    hand->handed -= state == PR__SLOT_HANDED ? 1 : 0;
    release(hand, index);
    return state == PR__SLOT_HANDED;
}

void pr__in_hand_renew(pr__in_hand *hand)
{
    uint32_t index;
    while ((index = take_first(hand, &hand->ready)) != PR__NO_SLOT)
        release(hand, index);
    for (uint32_t i = 0; i < hand->capacity; i++) {
        if (hand->slots[i].state == PR__SLOT_HANDED)
            hand->slots[i].state = PR__SLOT_STALE;
    }
    hand->handed = 0;
    hand->epoch++;
}
