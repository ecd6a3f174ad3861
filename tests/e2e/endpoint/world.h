/*
 * A world for endpoint tests: a store in a database of its own, a broker in memory, an endpoint
 * whose handler does what the test says, and a clock that the test moves.
 *
 * The store is of the provider that the program is linked with: world_sqlite.c, world_postgres.c.
 * Effects are rows of a table of the handler's own, written in its unit; tests count them, marks
 * and parked rows with plain SQL on a connection of their own, in SQLite's names.
 */
#ifndef PR_TESTS_ENDPOINT_WORLD_H
#define PR_TESTS_ENDPOINT_WORLD_H

#include "support/endpoint_world.h"
#include "support/host_db.h"
#include "support/test.h"

struct world {
    char address[320];
    void *place; /* the provider's */
    int64_t clock_offset_us;
    pr_clock clock;
    pr_observer observer;
    uint64_t seen[PR_OBSERVE_COUNT];
    char last_text[PR_OBSERVE_COUNT][512];
    host_db *db; /* the test's own eyes */
    pr_store *store;
    pr_memory_broker *broker;
    pr_transport *sender;
    pr_transport *receiver;
    pr_endpoint_options opt; /* change it before world_start */
    pr_endpoint *endpoint;
    world_act act;
    int calls;
    char handled_ids[64][64]; /* in order of the calls */
    void *extra;
};

/* What a provider gives. */
typedef struct world_provider {
    const char *kind;  /* ops->name of the store that must really be in use */
    const char *begin; /* how a host opens a transaction that writes */
    const char *lock;  /* how it makes every writer of the inbox wait */
    int (*run)(int (*suite)(void));
    void (*make)(world *w); /* place and address */
    void (*done)(world *w);
    /* Let time go by for what stands in the database; NULL: it goes by the world's clock. */
    void (*pass)(world *w, int64_t ms);
    void (*set_full)(world *w, bool full); /* the disk */
    void (*enforce_keys)(world *w);        /* NULL: foreign keys are checked by themselves */
} world_provider;

extern const world_provider world_provided;

/* Run a suite on the provider; the program's exit status. */
int world_main(int (*suite)(void));
int world_setup(void **state);
int world_teardown(void **state);

void world_start(world *w); /* makes the endpoint and lets it subscribe */
void world_restart(world *w);
void world_advance(world *w, int64_t ms);

/* Send to the type's topic; id and key may be NULL (then the transport's message has none). */
void world_send(world *w, const char *id, const char *key, const char *body);
void world_send_message(world *w, const pr_message *message);

/* Step until a count of the snapshot reaches what is wanted, or fail after ten seconds. */
#define world_step_until(w, field, wanted)                                                         \
    world_step_until_at((w), #field, offsetof(pr_endpoint_snapshot, field), (wanted))
void world_step_until_at(world *w, const char *name, size_t offset, uint64_t wanted);
void world_steps(world *w, int count); /* errors are not looked at */
pr_status world_step(world *w, pr_error *err);
pr_endpoint_snapshot world_snapshot(world *w);

void world_run(world *w, const char *sql);
/* Nobody else can write to the inbox meanwhile. */
void world_lock(world *w);
void world_unlock(world *w);
/* One number out of the database; fails if there is none. */
int64_t world_number(world *w, const char *sql);
/* One text; "" = NULL or no row. Valid until the next call. */
const char *world_text(world *w, const char *sql);
#define MARKS  "SELECT count(*) FROM postroom_inbox"
#define PARKED "SELECT count(*) FROM postroom_inbox_parked"

#endif
