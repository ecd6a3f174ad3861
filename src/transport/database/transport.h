/*
 * The database transport, as its parts see it.
 */
#ifndef PR_TRANSPORT_DATABASE_TRANSPORT_H
#define PR_TRANSPORT_DATABASE_TRANSPORT_H

#include <stdbool.h>
#include <stdint.h>

#include <postroom/database.h>

#include "port/outcomes.h"
#include "port/store.h"

typedef struct pr__database_transport {
    pr_transport base;
    pr_store *store; /* a handle of its own; subscriptions clone it */
    char name[32];
    char owner[256];
    pr_transport_state_kind state;
    int64_t blocked_until_us; /* BLOCKED is forgotten then: the next append finds out */
    char cause[512];
    bool reconnect; /* the handle is spent: clone it before it is used again */
    /* Submitted and not appended yet, then outcomes not polled yet: <= window together. */
    pr_submission *waiting;
    uint32_t waiting_count;
    pr__outcomes outcomes;
    /* Room for one append, base.window each. */
    pr__enqueue *entries;
    pr_message *messages;
    uint32_t *entry_places; /* which waiting submission an entry is */
} pr__database_transport;

/* Say how the connection is, to whoever asks and to the observer. */
void pr__database_state_set(pr__database_transport *self, pr_transport_state_kind state,
                            const char *cause);
/* The same from an error of the store: BLOCKED or DOWN. */
void pr__database_state_failed(pr__database_transport *self, const pr_error *err);
/* A handle that is spent gives way to a fresh one on the same database. */
pr_status pr__database_reconnect(pr_store **store, pr_error *err);

#endif
