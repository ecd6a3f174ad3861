/*
 * A relay on a real store in real time: a SQLite file, transports that write down what reaches
 * them, relays in threads of their own.
 */
#ifndef PR_TESTS_LIVE_H
#define PR_TESTS_LIVE_H

#include <pthread.h>
#include <stdatomic.h>

#include <postroom/postroom.h>
#include <postroom/sqlite.h>

#include "support/sqlite_world.h"
#include "support/test.h"

#define LIVE_RECEIVED_MAX 20000
#define LIVE_RELAYS_MAX   4
#define LIVE_WAIT_MS      PATIENCE_MS /* deadline of every wait */

typedef struct live_received {
    int32_t key, number;
} live_received;

typedef struct live live;

/* Confirms what it is given, and notes key and number, which the body tells. */
typedef struct live_transport {
    pr_transport base;
    live *at;
    uint64_t tickets[256];
    uint32_t waiting;
    int64_t outcome_after_ms; /* how long an outcome takes */
    int64_t due_us;
} live_transport;

typedef struct live_relay {
    live_transport transport;
    pr_store *store;
    pr_relay *relay;
    pthread_t thread;
    bool runs;
    pr_status status;
    pr_error err;
} live_relay;

struct live {
    sqlite_world db;
    pr_store *store; /* the test's own */
    pthread_mutex_t lock;
    live_received received[LIVE_RECEIVED_MAX];
    uint32_t received_count;
    live_relay relays[LIVE_RELAYS_MAX];
    int32_t numbers[64]; /* the next number of each key */
};

int live_setup(void **state);
int live_teardown(void **state);

/* Enqueue count messages of a key (below 0: none) in one transaction; body "<key> <number>". */
void live_enqueue(live *at, int32_t key, uint32_t count, const char *destination);
#define LIVE_TOPIC "mem://topic/urn:message:live:thing"

/* Make a relay with a store handle of its own, busy limit 100 ms. */
live_relay *live_relay_new(live *at, uint32_t n, pr_relay_options opt);
void live_start(live_relay *relay);
void live_stop(live_relay *relay); /* and join; what run returned is in status */

uint32_t live_received_count(live *at);
/* Wait until that many were received; fails after LIVE_WAIT_MS. */
void live_wait_received(live *at, uint32_t count);
void live_wait_state(live *at, const char *state, int64_t count); /* of the view */
int64_t live_number(live *at, const char *sql);
/* Each number of each key arrived; first arrivals in order. Returns how many came twice. */
uint32_t live_check(live *at);
int64_t live_now_ms(void);
void live_pause(void); /* one look's pause of a wait loop */

#endif
