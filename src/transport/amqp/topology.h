/*
 * Topology: exchanges, queues and bindings that an endpoint needs at the broker.
 */
#ifndef PR_TRANSPORT_AMQP_TOPOLOGY_H
#define PR_TRANSPORT_AMQP_TOPOLOGY_H

#include "transport/amqp/connection.h"
#include "transport/amqp/names.h"

/* The channels that it asks on: one that is missing or differs closes the channel. */
#define PR__TOPOLOGY_CHANNEL 3

#define PR__DELIVERY_LIMIT   1000000 /* of quorum queues */

/* NOT_FOUND: something is missing (check only). CONFLICT: something differs, and how. BACKEND. */
pr_status pr__amqp_topology(pr__amqp_connection *connection, const pr_subscribe_options *options,
                            bool check_only, pr_error *err);
/* The queue of a temporary subscription, exclusive to this connection, with its bindings. CONFLICT:
   another has it. */
pr_status pr__amqp_topology_temporary(pr__amqp_connection *connection, uint16_t channel,
                                      const pr_subscribe_options *options,
                                      const pr__amqp_names *names, pr_error *err);
/* What stands in a queue. NOT_FOUND: there is none. */
pr_status pr__amqp_topology_look(pr__amqp_connection *connection, const char *queue,
                                 uint32_t *ret_messages, uint32_t *ret_consumers, pr_error *err);

/* Delete what pr__amqp_topology() made. */
pr_status pr__amqp_topology_delete(pr__amqp_connection *connection,
                                   const pr_subscribe_options *options, pr_error *err);

#endif
