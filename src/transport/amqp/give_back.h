/*
 * Keyed deliveries go back to their queue, without losing their order.
 */
#ifndef PR_TRANSPORT_AMQP_GIVE_BACK_H
#define PR_TRANSPORT_AMQP_GIVE_BACK_H

#include "transport/amqp/consume.h"

/* When the first of them is due, deliveries are stopped. */
pr_status pr__give_back_due(pr__consumer *self, pr__amqp_connection *connection, int64_t now_us,
                            int64_t *wait_ms, pr_error *err);
/* No more come: give back all that goes, and what was not handed out; then consume again. */
pr_status pr__give_back(pr__consumer *self, pr__amqp_connection *connection, pr_error *err);

#endif
