/*
 * The link's side of a subscription: its channel, deliveries as they come, verdicts as they go.
 */
#ifndef PR_TRANSPORT_AMQP_CONSUME_H
#define PR_TRANSPORT_AMQP_CONSUME_H

#include "transport/amqp/in_hand.h"
#include "transport/amqp/link.h"
#include "transport/amqp/names.h"

#define PR__CONSUMER_CHANNEL     1
#define PR__CONSUMER_TAG         "postroom"
#define PR__SUBSCRIBE_TIMEOUT_MS 30000 /* connecting has shorter bounds of its own, for each URI */

typedef struct pr__verdict {
    uint64_t delivery_tag;
    int64_t due_us; /* 0 = at once */
    pr_verdict verdict;
    bool keyed;
} pr__verdict;

/* The delivery that is being read. */
typedef struct pr__consume {
    bool active;   /* its method came */
    bool headed;   /* its header came */
    bool unwanted; /* its body is skipped, then it is rejected */
    bool redelivered;
    uint64_t delivery_tag;
    uint64_t left; /* bytes of the body */
    pr__wire_in *in;
} pr__consume;

typedef struct pr__consumer {
    pr_subscription base;
    pr__amqp_link link;
    pr_subscribe_options options; /* its texts are ours */
    char *endpoint;
    char **types;
    pr__amqp_names names;
    uint16_t prefetch;
    /* under the link's lock */
    pr__in_hand hand;
    pr__verdict *verdicts; /* for this channel */
    uint32_t verdict_count, verdict_capacity;
    bool cut;           /* to be told: the channel went */
    uint32_t returning; /* verdicts that give a keyed delivery back */
    /* the thread's own */
    bool was_up;     /* once */
    bool serving;    /* now */
    bool cancelling; /* no more deliveries come, once the broker has said so */
    pr__consume consume;
} pr__consumer;

extern const pr__amqp_link_ops pr__consumer_link_ops;
void pr__consume_done(pr__consume *consume);

#endif
