/*
 * Which exchanges are known to exist on this connection: publishing to one that does not closes the
 * channel, and all that is on its way with it.
 */
#ifndef PR_TRANSPORT_AMQP_EXCHANGES_H
#define PR_TRANSPORT_AMQP_EXCHANGES_H

#include <stdbool.h>
#include <stddef.h>

#include "transport/amqp/connection.h"

#define PR__EXCHANGES_MAX     256 /* known at a time; the set begins anew when it is full */
#define PR__EXCHANGES_CHANNEL 2   /* asking for a missing one closes the channel that asks */

typedef struct pr__exchanges {
    char names[PR__EXCHANGES_MAX][PR__AMQP_NAME_SIZE];
    size_t count;
    size_t last;       /* where the last one was found */
    bool channel_open; /* the one to ask on */
} pr__exchanges;

/* The connection is new, or what was known is not to be trusted any more. */
void pr__exchanges_forget(pr__exchanges *exchanges, bool new_connection);
/* *ret_exists; any error is the connection's. */
pr_status pr__exchanges_ask(pr__exchanges *exchanges, pr__amqp_connection *connection,
                            const char *name, bool *ret_exists, pr_error *err);

#endif
