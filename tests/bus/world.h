/*
 * A world for the suites of endpoints and the bus: a store, a broker in memory, a handler that
 * writes an effect in its unit and then does what the test says. The suites run on every store;
 * what depends on the database is the provider's.
 */
#ifndef PR_TESTS_BUS_WORLD_H
#define PR_TESTS_BUS_WORLD_H

#include <pthread.h>
#include <stdatomic.h>
#include <sys/types.h>

#include <postroom/database.h>
#include <postroom/memory.h>
#include <postroom/postroom.h>

#include "support/endpoint_world.h"
#include "support/test.h"

#define ADDRESS_MAX       400

#define WORLD_THREADS_MAX 200
#define WORLD_ENDS_MAX    4
#define WORLD_OTHERS_MAX  8

typedef struct bus_provider {
    const char *name;
    /* A fresh database with the schema and a table effects(n, id); its address. */
    void (*make)(char ret_address[ADDRESS_MAX]);
    void (*remove)(const char *address);
    pr_store *(*open)(const char *address);
    pr_store_opener opener; /* the adapter's short form */
    /* INSERT INTO effects on the unit's own connection. */
    bool (*effect)(pr_unit *unit, const char *id);
    /* Any statement on the unit's own connection. */
    bool (*run)(pr_unit *unit, const char *sql);
    /* The unit's connection is closed, or as near to it as the library of the database allows. */
    void (*close)(pr_unit *unit);
    /* One number, by a connection of its own; {p}_ stands for the names of our tables. */
    int64_t (*number)(const char *address, const char *sql);
    void (*text)(const char *address, const char *sql, char *out, size_t size);
    void (*crash)(void); /* the server is killed and started again; NULL: there is none */
    void (*down)(bool down);
} bus_provider;

/* A transport for the bus suite to run on instead of the memory and the database transports. */
typedef struct bus_carrier {
    const char *scheme;
    void (*fresh)(void); /* nothing of earlier cases is at the other side */
    pr_status (*make)(pr_transport **ret_transport, pr_error *err);
    /* One that only looks whether what it needs was declared. */
    pr_status (*make_checking)(pr_transport **ret_transport, pr_error *err);
    const char *(*address)(void); /* for another process; valid until the next call */
    void (*block)(bool on);       /* it takes nothing from anybody */
    void (*cut)(void);            /* all connections are closed */
    void (*kill)(void);           /* it is killed and started again */
    void (*down)(bool down);
    void (*alarm)(const char *resource, bool on); /* "memory", "disk": a real one of the broker */
    void (*remove)(const char *kind, const char *name); /* "queue", "exchange": deleted */
    /* The first queue of which the name begins so; "" = none. */
    void (*find_queue)(const char *start, char ret_name[128]);
} bus_carrier;

/* What a case that fails leaves behind. It is stopped, then the threads of the case are awaited,
   who may use it to the last, then it is closed. */
typedef struct world_end {
    void (*stop)(void *of);
    void (*close)(void *of);
    void *of;
} world_end;

struct world {
    const bus_provider *provider;
    char address[ADDRESS_MAX];
    pr_store *store;
    pr_memory_broker *broker;
    pr_transport *sender;
    pr_transport *receiver;
    pr_endpoint_options opt; /* change it before world_start or world_run */
    pr_endpoint *endpoint;
    pr_observer observer;
    _Atomic uint64_t seen[PR_OBSERVE_COUNT];
    pthread_mutex_t mutex;
    char last_text[512]; /* of the last observation that had one */
    world_act act;
    bool no_effect; /* the handler leaves the effect out */
    atomic_int calls;
    pthread_t thread;
    bool running;
    void *extra;
    atomic_int flag;
    atomic_bool over; /* the threads of the case are to end */
    pthread_t threads[WORLD_THREADS_MAX];
    size_t thread_count;
    world_end ends[WORLD_ENDS_MAX];
    size_t end_count;
    pid_t others[WORLD_OTHERS_MAX]; /* processes of the case; 0 = none */
};

extern const bus_provider *bus_provider_in_use;
extern const bus_carrier *bus_carrier_in_use; /* NULL = memory and database */
extern const pr_clock *bus_clock_in_use; /* of stores, transports and buses; NULL = the host's */

int world_setup(void **state);
int world_teardown(void **state);
/* Another one, for the next row of a table: nothing is left of the row before. */
world *world_afresh(void **state);

/* Make the endpoint and let it subscribe; then step it, or run it in a thread. */
void world_start(world *w);
void world_run(world *w);
void world_stop(world *w); /* joins the thread; accepts one that does not run */

/* A failed assertion jumps out of a case: what its threads touch must still be there, and is static
   or the world's; they look at w->over. The teardown ends them, or the program. */
void world_thread(world *w, void *(*thread)(void *), void *user);
void world_join(world *w); /* all of them end by themselves */
/* Stopped and closed by the teardown, unless it was let go before. */
void world_owns(world *w, const world_end *end);
void world_lets_go(world *w, const void *of);
/* A process, killed by the teardown, unless it ended before. */
void world_other(world *w, pid_t pid);
void world_other_ended(world *w, pid_t pid);

void world_send(world *w, const char *id, const char *key, const char *body);
void world_send_message(world *w, const pr_message *message);

pr_endpoint_snapshot world_snapshot(world *w);
/* Step, or wait while it runs, until a count of the snapshot is reached; fails when nothing changes
   any more. */
#define world_until(w, field, wanted)                                                              \
    world_until_at((w), #field, offsetof(pr_endpoint_snapshot, field), (wanted))
void world_until_at(world *w, const char *name, size_t offset, uint64_t wanted);
/* Until a query gives this number. */
void world_until_number(world *w, const char *sql, int64_t wanted);

int64_t world_number(world *w, const char *sql);
const char *world_text(world *w, const char *sql); /* valid until the next call */
const char *world_last_text(world *w);
#define MARKS  "SELECT count(*) FROM {p}_inbox"
#define PARKED "SELECT count(*) FROM {p}_inbox_parked"
#define OUTBOX "SELECT count(*) FROM {p}_outbox"

/* The suites: their cases; returns how many. */
size_t middleware_suite(const struct CMUnitTest **ret_tests);
size_t leased_suite(const struct CMUnitTest **ret_tests);
size_t scope_suite(const struct CMUnitTest **ret_tests);
size_t workers_suite(const struct CMUnitTest **ret_tests);
size_t bus_suite(const struct CMUnitTest **ret_tests);
size_t life_suite(const struct CMUnitTest **ret_tests);
size_t outage_suite(const struct CMUnitTest **ret_tests);
size_t strain_suite(const struct CMUnitTest **ret_tests);
size_t order_suite(const struct CMUnitTest **ret_tests);
size_t batch_suite(const struct CMUnitTest **ret_tests);
size_t idle_suite(const struct CMUnitTest **ret_tests);
size_t batch_marks_suite(const struct CMUnitTest **ret_tests);
size_t kill_suite(const struct CMUnitTest **ret_tests);
size_t process_suite(const struct CMUnitTest **ret_tests);
/* The program as another process of a test: argv is "--child", mode, address, threads,
   fault. */
int bus_child_run(const bus_provider *provider, char **argv);
int bus_suites_run(const bus_provider *provider);

#define CASE(name) cmocka_unit_test_setup_teardown(name, world_setup, world_teardown)

#endif
