/*
 * One AMQP connection: socket, TLS, login, and what its errors mean.
 */
#ifndef PR_TRANSPORT_AMQP_CONNECTION_H
#define PR_TRANSPORT_AMQP_CONNECTION_H

#include <amqp.h>
#include <stdbool.h>
#include <stdint.h>

#include <postroom/error.h>

#include "transport/amqp/settings.h"

typedef struct pr__amqp_connection {
    pr__amqp_settings *settings;
    amqp_connection_state_t state; /* NULL = not open */
    pr__guard *guard;
    int fd;
    uint32_t frame_max;
    int heartbeat_s; /* as agreed; 0 = none */
    bool broken;     /* nothing more can be said on it: no orderly close */
    char peer[300];  /* host:port */
} pr__amqp_connection;

/* Connect to the first of the URIs that takes us; *turn is where to begin, and is moved on. role is
   part of the name that the broker shows. */
pr_status pr__amqp_connect(pr__amqp_settings *settings, const char *role, pr__guard *guard,
                           size_t *turn, pr__amqp_connection *ret_connection, pr_error *err);
/* Close in an orderly way where that is possible, within the close timeout. */
void pr__amqp_disconnect(pr__amqp_connection *connection);

/* Was the last call all right? what: the step, such as "queue.declare 'billing'". The broker's
   reply code goes to err->backend_code. 404 gives NOT_FOUND, 406 and 405 CONFLICT, all else
   BACKEND with retry = RECONNECT. */
pr_status pr__amqp_check_rpc(pr__amqp_connection *connection, const char *what, pr_error *err);
/* The same for a call that returns a status of the library. */
pr_status pr__amqp_check_status(pr__amqp_connection *connection, int status, const char *what,
                                pr_error *err);
pr_status pr__amqp_closed(pr__amqp_connection *connection, const char *what, uint16_t code,
                          amqp_bytes_t text, pr_error *err);
/* Open a channel; after the broker closed it, answer that first. */
pr_status pr__amqp_channel_open(pr__amqp_connection *connection, uint16_t channel, bool was_closed,
                                pr_error *err);

#endif
