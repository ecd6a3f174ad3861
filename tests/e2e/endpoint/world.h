/*
 * A world for endpoint tests: a SQLite store in a folder of its own, a broker in memory, an
 * endpoint whose handler does what the test says, and a clock that the test moves.
 *
 * Effects are rows of a table of the handler's own, written in its unit; tests count them, marks
 * and parked rows with plain SQL on a connection of their own.
 */
#ifndef PR_TESTS_ENDPOINT_WORLD_H
#define PR_TESTS_ENDPOINT_WORLD_H

#include <sqlite3.h>

#include <postroom/endpoint.h>
#include <postroom/memory.h>
#include <postroom/sqlite.h>

#include "support/test.h"

#define TYPE_ORDER  "urn:message:shop:order-placed"
#define TYPE_FOLLOW "urn:message:billing:invoice-written"
#define CONSUMER    "billing"

typedef struct world world;

/* What the handler does, after it has written its effect. */
typedef pr_handled (*world_act)(world *w, pr_scope *scope);

struct world {
    char folder[64];
    char path[96];
    int64_t clock_offset_us;
    pr_clock clock;
    pr_observer observer;
    uint64_t seen[PR_OBSERVE_COUNT];
    char last_text[PR_OBSERVE_COUNT][512];
    sqlite3 *db; /* the test's own eyes */
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

/* One number out of the database; fails if there is none. */
int64_t world_number(world *w, const char *sql);
/* One text; "" = NULL or no row. Valid until the next call. */
const char *world_text(world *w, const char *sql);
#define EFFECTS "SELECT count(*) FROM effects"
#define MARKS   "SELECT count(*) FROM postroom_inbox"
#define PARKED  "SELECT count(*) FROM postroom_inbox_parked"

/* Acts. */
pr_handled act_ok(world *w, pr_scope *scope);
pr_handled act_retry(world *w, pr_scope *scope);
pr_handled act_permanent(world *w, pr_scope *scope);

#endif
