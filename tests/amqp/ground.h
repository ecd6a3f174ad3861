/*
 * The real broker of the RabbitMQ cases: one for the program, a virtual host a case, a rig on it.
 */
#ifndef PR_TESTS_AMQP_GROUND_H
#define PR_TESTS_AMQP_GROUND_H

#include "amqp/rig.h"
#include "support/rabbitmq_server.h"

#define GROUND_CURE_MS 5000 /* recovered within so much of the cure */

typedef struct ground {
    rabbitmq_server *server;
    amqp_rig rig; /* without a fake broker */
    unsigned cases;
    char vhost[32];              /* and the user's name in it */
    char uri[RABBITMQ_URI_SIZE]; /* user: the vhost's name, password: RIG_PASSWORD */
} ground;

int ground_group_setup(void **state);
int ground_group_teardown(void **state);
/* A virtual host with a user of its own; nothing is connected. */
int ground_setup(void **state);
int ground_teardown(void **state);

/* The rig's transport, opened; options may be NULL. */
void ground_up(ground *at, const pr_amqp_options *options);
/* Make the queue "billing" (with its exchange and dead queue), bound to RIG_TYPE. */
void ground_queue(ground *at);
long ground_depth(ground *at, const char *queue);
void ground_wait_depth(ground *at, const char *queue, long wanted, const char *label);
/* The broker's memory alarm, as when it is short of it. */
void ground_alarm(ground *at, bool set);
/* Publish again and again until one is confirmed, which must be so within GROUND_CURE_MS; what was
   accepted before that may be lost. */
void ground_works_again(ground *at, const char *label);

#endif
