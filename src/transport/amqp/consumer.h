/*
 * A subscription: a link of its own that consumes one queue.
 */
#ifndef PR_TRANSPORT_AMQP_CONSUMER_H
#define PR_TRANSPORT_AMQP_CONSUMER_H

#include "transport/amqp/settings.h"

/* The transport's subscribe. */
pr_status pr__amqp_subscribe(pr_transport *transport, pr__amqp_settings *settings,
                             const pr_subscribe_options *options,
                             pr_subscription **ret_subscription, pr_error *err);
/* For tests: cut its connection, as a broken network would. Any thread. */
void pr__amqp_subscription_cut(pr_subscription *subscription);

#endif
