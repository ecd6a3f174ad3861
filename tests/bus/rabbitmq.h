/*
 * RabbitMQ as the carrier of the bus suite: a broker of the program's own, a virtual host a case.
 */
#ifndef PR_TESTS_BUS_RABBITMQ_H
#define PR_TESTS_BUS_RABBITMQ_H

#include "bus/world.h"

/* Start the broker when POSTROOM_BUS_CARRIER says "rabbitmq"; else NULL, and nothing is started. */
const bus_carrier *rabbitmq_carrier_start(void);
void rabbitmq_carrier_stop(void);

#endif
