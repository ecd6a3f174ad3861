/*
 * What a subscription has in hand: deliveries that wait, that were handed out, and that are stale.
 *
 * Pure: the owner holds a lock around every call.
 */
#ifndef PR_TRANSPORT_AMQP_IN_HAND_H
#define PR_TRANSPORT_AMQP_IN_HAND_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <postroom/transport.h>

#include "transport/amqp/wire.h"

#define PR__IN_HAND_MAX 65536 /* slots: what is in hand of this and of earlier channels */

typedef enum pr__slot_state {
    PR__SLOT_FREE,
    PR__SLOT_READY,  /* to be handed out */
    PR__SLOT_HANDED, /* with the caller */
    PR__SLOT_STALE   /* with the caller, but its channel is gone */
} pr__slot_state;

typedef struct pr__slot {
    pr__wire_in *in;
    uint64_t delivery_tag; /* the channel's */
    uint32_t next;         /* in its list */
    uint32_t epoch;
    pr__slot_state state;
    bool redelivered;
} pr__slot;

typedef struct pr__slot_list {
    uint32_t first, last; /* PR__NO_SLOT when empty */
} pr__slot_list;

#define PR__NO_SLOT UINT32_MAX

typedef struct pr__in_hand {
    pr__slot *slots;
    uint32_t capacity;
    pr__slot_list unused, ready;
    uint32_t handed; /* with the caller, of this channel */
    uint32_t
        epoch; /* of the channel that is open; begins at random, so that a tag is of one only */
} pr__in_hand;

void pr__in_hand_init(pr__in_hand *hand, uint32_t epoch);
void pr__in_hand_done(pr__in_hand *hand);
/* Takes over `in`. false: no memory, or too much in hand; `in` stays the caller's. */
bool pr__in_hand_add(pr__in_hand *hand, pr__wire_in *in, uint64_t delivery_tag, bool redelivered);
/* The next that is ready; its message is borrowed until it is settled. */
bool pr__in_hand_take(pr__in_hand *hand, pr_delivery *ret_delivery);
/* The next that is ready and has no key. */
bool pr__in_hand_take_unkeyed(pr__in_hand *hand, pr_delivery *ret_delivery);
/* What is ready need not be handed out any more: forget the first, and give its channel's tag. */
bool pr__in_hand_forget(pr__in_hand *hand, uint64_t *ret_delivery_tag);
/* Has the message of this tag a key? */
bool pr__in_hand_keyed(const pr__in_hand *hand, uint64_t tag);
/* The caller is done with it. true and the channel's tag, or false: it is stale, or none. */
bool pr__in_hand_settle(pr__in_hand *hand, uint64_t tag, uint64_t *ret_delivery_tag);
/* The channel is gone: what is ready is dropped, what was handed out is stale; a new epoch. */
void pr__in_hand_renew(pr__in_hand *hand);

#endif
