/*
 * Rows of sagas, as the store port hands them over. The methods are in store.h.
 */
#ifndef PR_PORT_SAGA_H
#define PR_PORT_SAGA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <postroom/saga_operations.h>

#include "base/memory.h"
#include "base/uuid.h"

typedef struct pr__saga_key {
    const char *tenant; /* "" or NULL for none */
    const char *saga_type;
    const char *correlation_key;
} pr__saga_key;

/* A row that was loaded and is locked until the unit ends. Texts and state are the arena's. */
typedef struct pr__saga_row {
    char instance_id[PR_UUID_TEXT_SIZE];
    int64_t version; /* saves so far; 0 = inserted, nothing saved yet */
    uint32_t state_version;
    const void *state;
    size_t state_size;
    const char *timeouts;                /* JSON array */
    const char *last_messages;           /* JSON array */
    char lease_token[PR_UUID_TEXT_SIZE]; /* "" = not leased */
    const char *lease_owner;
    int64_t lease_until_us;
    int64_t started_at_us, updated_at_us, completed_at_us;
    int64_t now_us; /* the database's clock; set also when no row was found */
} pr__saga_row;

/* How a row is to stand after a step. */
typedef struct pr__saga_save {
    const char *instance_id; /* that it must have */
    int64_t version;         /* that it must have; it is one more afterwards */
    const char *lease_token; /* that must stand, and is cleared; NULL = the lease is left alone */
    const char *restart_id;  /* the instance that begins anew; NULL = it goes on */
    uint32_t state_version;
    bool complete; /* set completed_at */
    const void *state;
    size_t state_size;
    const char *timeouts;
    const char *last_messages;
} pr__saga_save;

/* A row that is to be loaded with something else, and what came of it. */
typedef struct pr__saga_look {
    const pr__saga_key *key;
    pr__arena *arena; /* of what the row points to */
    bool loaded;      /* set by the store: as saga_load would; else load it by that */
    bool found;
    pr__saga_row row;
} pr__saga_look;

/* A save that is to be done with something else. */
typedef struct pr__saga_change {
    const pr__saga_key *key;
    pr__saga_save save;
} pr__saga_change;

typedef struct pr__saga_lease {
    const char *instance_id;
    const char *token;
    const char *owner;
    int64_t lease_ms; /* > 0 */
} pr__saga_lease;

/* The arguments that every store checks alike; INVALID, CONTENT. */
pr_status pr__saga_key_check(const pr__saga_key *key, pr_error *err);

/* Lengths that no lease goes beyond, so that nothing overflows. */
int64_t pr__saga_lease_bounded(int64_t lease_ms);

#endif
