/*
 * The parts of `postroom demo`: a shop with its orders, billing with its invoices, the relay
 * between them, and the reconciliation. They stand for two programs of a host, each with a database
 * of its own, both on SQLite or both on PostgreSQL.
 */
#ifndef PR_CLI_DEMO_DEMO_H
#define PR_CLI_DEMO_DEMO_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include <postroom/contract.h>
#include <postroom/endpoint.h>
#include <postroom/store.h>

#include "base/uuid.h"
#include "cli/demo/sql.h"

#define PR__DEMO_PATH_SIZE 1024
#define PR__DEMO_TYPE      "urn:message:shop:order-placed"
#define PR__DEMO_TRANSPORT "billing"
#define PR__DEMO_ENDPOINT  "billing"

/* The body of the message, by its contract. */
typedef struct pr__order {
    int64_t number;
    const char *customer;
    int64_t seq; /* of the customer's orders, from 1: shows whether order is kept */
    int64_t amount_cents;
} pr__order;

const pr_contract *const *pr__demo_contract_list(void); /* ended by NULL */
pr_status pr__demo_contracts(pr_contracts **ret_contracts, pr_error *err);

/* ---- the shop ---- */

typedef struct pr__shop {
    pr_store *store;
    pr__demo_db db; /* the shop's own connection, on which its transactions run */
    pr_contracts *contracts;
    uint64_t placed;
    uint64_t committed;
    uint64_t rolled_back;
} pr__shop;

/* Make its store; orders is how many it will try to place. pr__shop_done after a failure too. */
pr_status pr__shop_open(const char *store, uint64_t orders, pr__shop *ret_shop, pr_error *err);
/* Place the next order: its row and its message in one transaction; about one in ten is rolled back
   on purpose. */
pr_status pr__shop_place(pr__shop *shop, pr_error *err);
void pr__shop_done(pr__shop *shop);

/* ---- billing ---- */

/* The broker between the two; NULL where there is none. Its URI stands in POSTROOM_AMQP. */
typedef struct pr__demo_broker {
    char prefix[32]; /* of everything that the demo makes there */
} pr__demo_broker;

typedef struct pr__billing {
    const pr__demo_broker *broker; /* borrowed */
    const char *store_name;
    int64_t quiet_us;  /* nothing came since then */
    uint64_t received; /* until then */
    pr_store *store;
    pr_transport *transport;
    pr_contracts *contracts;
    pr_endpoint *endpoint;
    pthread_t thread;
    bool thread_started;
    atomic_bool ended; /* the endpoint's loop came to an end */
    pr_error err;      /* why; read after the thread has ended */
} pr__billing;

/* Make its store, subscribe, and handle messages on a thread; pr__billing_done after a failure
   too. */
pr_status pr__billing_start(const char *store, const pr__demo_broker *broker,
                            pr__billing *ret_billing, pr_error *err);
/* Is the broker's queue empty, and has nothing come for a while? Without a broker: yes. */
pr_status pr__billing_quiet(pr__billing *billing, bool *ret_quiet, pr_error *err);
/* End the endpoint; what a broker delivered is written down for the reconciliation, and what the
   demo made at the broker is deleted. */
pr_status pr__billing_close(pr__billing *billing, pr_error *err);
void pr__billing_done(pr__billing *billing);

/* ---- the relay ---- */

#define PR__CAUGHT_MAX 512

typedef struct pr__demo_relay {
    const char *orders_store;
    const char *billing_store;
    const char *log_path;
    const pr__demo_broker *broker; /* borrowed; NULL = it carries to billing's database */
    pid_t pid;                     /* 0 = none runs */
    uint32_t count;                /* how many were started */
    uint32_t kills;
    pr__demo_db orders; /* connections of its own, to look at what it does */
    pr__demo_db billing;
    char caught[PR__CAUGHT_MAX][PR_UUID_TEXT_SIZE]; /* in flight when it was killed last */
    size_t caught_count;
    size_t arrived_count; /* of them, that the receiver had committed */
} pr__demo_relay;

pr_status pr__demo_relay_open(pr__demo_relay *relay, pr_error *err);
pr_status pr__demo_relay_start(pr__demo_relay *relay, pr_error *err);
/* Try for a while to catch it between the receiver's commit and its own settle, and kill it there.
 *ret_killed false: there was nothing in flight. */
pr_status pr__demo_relay_kill(pr__demo_relay *relay, bool *ret_killed, pr_error *err);
/* Were the messages that were in flight settled meanwhile, by the one that took over? */
pr_status pr__demo_relay_recovered(pr__demo_relay *relay, bool *ret_recovered, pr_error *err);
/* Ask it to stop and wait; kills it when it does not. */
pr_status pr__demo_relay_stop(pr__demo_relay *relay, pr_error *err);
/* Has everything been published and handled? */
pr_status pr__demo_drained(pr__demo_relay *relay, uint64_t orders, uint64_t *ret_handled,
                           bool *ret_drained, pr_error *err);
void pr__demo_relay_done(pr__demo_relay *relay);

/* ---- the reconciliation ---- */

#define PR__CHECK_COUNT 14

typedef struct pr__check {
    int64_t values[PR__CHECK_COUNT]; /* in the order of pr__check_at */
    bool right[PR__CHECK_COUNT];
    bool ok; /* all of them are right */
} pr__check;

/* Read both databases by plain SQL on fresh connections. NOT_FOUND: they are not there. */
pr_status pr__check_run(const char *orders_store, const char *billing_store, pr__check *ret_check,
                        pr_error *err);
/* The JSON key and the text of a value; NULL beyond the last. */
const char *pr__check_key(size_t index);
const char *pr__check_text(size_t index);

/* Has Ctrl-C, or SIGTERM, been seen? */
bool pr__demo_stopped(void);

#endif
