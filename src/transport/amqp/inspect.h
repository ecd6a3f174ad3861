/*
 * What operators and tests may see of a RabbitMQ transport beyond the port.
 */
#ifndef PR_TRANSPORT_AMQP_INSPECT_H
#define PR_TRANSPORT_AMQP_INSPECT_H

#include <stdint.h>

#include <postroom/amqp.h>

/* Ready messages and consumers of a queue, by its name at the broker. NOT_FOUND, BACKEND. */
pr_status pr__amqp_queue_look(pr_transport *transport, const char *queue, uint32_t *ret_messages,
                              uint32_t *ret_consumers, pr_error *err);

/* Delete what topology made for an endpoint, messages too; exchanges of namespaces only when no
   other queue is bound to them. Both: any thread, on a connection of their own. */
pr_status pr__amqp_topology_remove(pr_transport *transport, const pr_subscribe_options *options,
                                   pr_error *err);

#endif
