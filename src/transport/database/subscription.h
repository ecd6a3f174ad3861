/*
 * Subscriptions of the database transport.
 */
#ifndef PR_TRANSPORT_DATABASE_SUBSCRIPTION_H
#define PR_TRANSPORT_DATABASE_SUBSCRIPTION_H

#include "transport/database/transport.h"

pr_status pr__database_subscribe(pr_transport *transport, const pr_subscribe_options *options,
                                 pr_subscription **ret_subscription, pr_error *err);
pr_status pr__database_topology(pr_transport *transport, const pr_subscribe_options *options,
                                bool check_only, pr_error *err);
pr_status pr__database_backlog(pr_transport *transport, const pr_subscribe_options *options,
                               uint64_t *ret_count, pr_error *err);

#endif
