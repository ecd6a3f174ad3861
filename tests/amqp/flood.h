/*
 * Publishing without end while the broker is restarted again and again: what was confirmed must be
 * there afterwards. What is lost is sent again under its own id, as a relay does it.
 */
#ifndef PR_TESTS_AMQP_FLOOD_H
#define PR_TESTS_AMQP_FLOOD_H

#include "amqp/ground.h"

void flood_over_restarts(ground *at, bool soak);

#endif
