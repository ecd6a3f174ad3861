/*
 * A saga of the tests' own, and endpoints that run it on the store's own log: in this process, step
 * by step, or in children.
 *
 * It keeps a sum. Each message tells what it has done with a command of its own, so that states and
 * commands can be counted against each other.
 */
#ifndef PR_TESTS_SAGA_WORLD_H
#define PR_TESTS_SAGA_WORLD_H

#include <postroom/endpoint.h>
#include <postroom/saga.h>

#include "contract/store_fixture.h"

#define TALLY_OPENED  "urn:message:tally:opened" /* starts it; sum += n */
#define TALLY_ADDED   "urn:message:tally:added"  /* sum += n */
#define TALLY_CLOSED  "urn:message:tally:closed" /* done */
#define TALLY_ARMED   "urn:message:tally:armed"  /* timeout `note` in n ms */
#define TALLY_CALMED  "urn:message:tally:calmed" /* cancel timeout `note` */
#define TALLY_GROWN   "urn:message:tally:grown"  /* note gets n bytes */
#define TALLY_FAILED  "urn:message:tally:failed" /* tells, and then fails for good */
#define TALLY_ASKED   "urn:message:tally:asked"  /* note: what the step knows; n 1: the last step */
#define TALLY_TIMEOUT "urn:message:tally:timeout" /* of `ring`: sum += 1000; of `close`: done */
#define TALLY_TOLD    "urn:message:tally:told"    /* the command */
#define TALLY_ORDERS  "urn:message:tally:none"    /* not the saga's */
#define TALLY_ID      "tally"                     /* the endpoint, and the saga's type */
#define TALLY_SIZE    4096                        /* the highest of a state */

typedef struct tally_message {
    const char *key;
    int64_t n;
    const char *note;
} tally_message;

typedef struct tally {
    int64_t sum;
    int64_t steps;
    const char *note;
    bool done;
} tally;

/* What is in a row, read with the operators' eyes. */
typedef struct tally_row {
    bool found;
    tally state;
    char note[64];
    int64_t version;
    int64_t updated_at_us;
    bool completed;
    bool leased;
    char instance_id[PR_UUID_TEXT_SIZE];
    char timeouts[512];
    char last_messages[2048];
} tally_row;

/* A worker: store, contracts, saga, transport, endpoint. */
typedef struct tally_worker {
    pr_store *store;
    pr_contracts *contracts;
    pr_saga *saga;
    pr_transport *transport;
    pr_endpoint *endpoint;
} tally_worker;

/* Changes to the type, for cases that need another one. */
typedef struct tally_options {
    pr_saga_reuse reuse;
    pr_saga_missing missing;
    int64_t grace_ms;
    bool newer; /* states of version 2: the sum in a field `total` */
    uint32_t batch_max;
} tally_options;

int saga_setup(void **state); /* a store_fixture whose messages are read where they are */

void tally_open(store_fixture *fix, const tally_options *opt, tally_worker *worker);
void tally_close(tally_worker *worker);
/* Step until nothing has come for quiet_ms. */
void tally_run(tally_worker *worker, int64_t quiet_ms);
/* Open, run, close. */
void tally_work(store_fixture *fix, int64_t quiet_ms);
pr_saga_snapshot tally_counters(tally_worker *worker);
pr_endpoint_snapshot tally_endpoint(tally_worker *worker);

/* A message in a transaction of its own; id NULL = one of its own. In order per key, but for the
   loose ones. */
void tally_send(store_fixture *fix, const char *type, const char *key, int64_t n, const char *note);
void tally_send_as(store_fixture *fix, const char *id, const char *type, const char *key, int64_t n,
                   const char *note);
void tally_send_loose(store_fixture *fix, const char *id, const char *type, const char *key,
                      int64_t n);
tally_row tally_read(store_fixture *fix, const char *key);
/* Make the endpoint's queue, so that what is sent from now on is kept for it. */
void tally_subscribe(store_fixture *fix);

/* Let time go by, and put what is due then into the log: a worker that waits for the instant itself
   does not see that the clock was moved. */
void tally_pass(store_fixture *fix, int64_t ms);

/* A number by plain SQL. */
int64_t tally_number(store_fixture *fix, const char *sql);
#define TOLD_SQL   "SELECT count(*) FROM {p}_outbox WHERE type = '" TALLY_TOLD "'"
#define MARKS_SQL  "SELECT count(*) FROM {p}_inbox"
#define DEAD_SQL   "SELECT count(*) FROM {p}_inbox_parked WHERE state = 'dead'"
#define PARKED_SQL "SELECT count(*) FROM {p}_inbox_parked WHERE state <> 'dead'"

#endif
