/*
 * Appending to the log of another store.
 */
#ifndef PR_TRANSPORT_DATABASE_APPEND_H
#define PR_TRANSPORT_DATABASE_APPEND_H

#include "transport/database/transport.h"

/* Append all that waits, and give each its outcome. */
void pr__database_append(pr__database_transport *self);

#endif
