/*
 * The memory transport, as its subscriptions see it.
 */
#ifndef PR_TRANSPORT_MEMORY_TRANSPORT_H
#define PR_TRANSPORT_MEMORY_TRANSPORT_H

#include "port/outcomes.h"
#include "transport/memory/broker.h"

typedef struct pr__memory_transport {
    pr_transport base;
    pr_memory_broker *broker;
    bool discard;
    char name[32];
    pr__outcomes outcomes;
} pr__memory_transport;

pr_status pr__memory_subscribe(pr_transport *transport, const pr_subscribe_options *options,
                               pr_subscription **ret_subscription, pr_error *err);

#endif
