/*
 * The host programs of the crash tests, on either store: `produce` places orders with their
 * messages in the same transactions, `handle` bills each with its inbox. The campaigns kill them,
 * start them again and count from outside; so neither keeps anything that is not in its database.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <postroom/database.h>
#include <postroom/postroom.h>

#include "support/host_db.h"

#define ORDER_TYPE  "urn:message:crash:order-placed"
#define BILLED_TYPE "urn:message:crash:order-billed"
#define BUSY_MS     10000
#define BODY_SIZE   160

/* Handled slowly, if so asked: while others wait behind it their leases are renewed. */
#define SLOW_FIRST 0  /* at its first attempt */
#define SLOW_AGAIN 10 /* when it is tried again */

typedef struct handler {
    long long lease_ms;
    long long retry_ms; /* after a failure */
    long long slow_ms;
} handler;

static pr_endpoint *stopped_by_signal;

static void die(const char *what, const char *why)
{
    fprintf(stderr, "actor: %s: %s\n", what, why);
    exit(1);
}

static void check(pr_status status, const pr_error *err, const char *what)
{
    if (status != PR_OK)
        die(what, err->message);
}

static pr_store *open_store(const char *address, bool create)
{
    pr_error err = PR_ERROR_INIT;
    host_settings settings = {.create = create, .busy_ms = BUSY_MS};
    pr_store *store = NULL;
    check(host_store_open(address, &settings, &store, &err), &err, address);
    return store;
}

/* The n-th order: its number is its place in the order of its customer too. */
typedef struct order {
    long long number;
    long long customer;
    char id[37];
    char key[32];
    char body[BODY_SIZE];
} order;

static order make_order(long long number, long long customers)
{
    order o = {.number = number, .customer = number % customers};
    snprintf(o.id, sizeof o.id, "00000000-0000-7000-8000-%012llx", number + 1);
    snprintf(o.key, sizeof o.key, "customer-%lld", o.customer);
    snprintf(o.body, sizeof o.body, "{\"order\":%lld,\"customer\":%lld}", number, o.customer);
    return o;
}

static void insert_order(host_db *db, const order *o)
{
    char sql[200];
    snprintf(sql, sizeof sql,
             "INSERT INTO orders (number, customer, message_id) VALUES (%lld, %lld, '%s')",
             o->number, o->customer, o->id);
    host_db_run(db, sql);
}

typedef struct producer {
    pr_store *store;
    host_db *db;
    bool on_postgres;
    const char *begin;
} producer;

/* Every 5th order is tried once, rolled back, and placed only then; every 7th is delayed a
   little and has no key, so that its later delivery breaks no order. */
static void place_order(producer *of, const order *o, bool give_up)
{
    pr_error err = PR_ERROR_INIT;
    pr_unit *unit = NULL;
    bool delayed = o->number % 7 == 6;
    pr_message message = PR_MESSAGE(.id = o->id, .type = ORDER_TYPE, .key = delayed ? NULL : o->key,
                                    .body = o->body, .body_size_bytes = strlen(o->body));
    if (delayed)
        message.deliver_at_us = pr_clock_system()->wall_us(NULL) + 100000;
    host_db_run(of->db, of->begin);
    insert_order(of->db, o);
    check(host_unit_join(of->store, of->db, &unit, &err), &err, "join");
    check(pr_unit_enqueue(unit, &message, NULL, &err), &err, "enqueue");
    host_db_run(of->db, give_up ? "ROLLBACK" : "COMMIT");
    check(pr_unit_finished(unit, give_up ? PR_OUTCOME_NOT_COMMITTED : PR_OUTCOME_COMMITTED, &err),
          &err, "finished");
    pr_unit_free(unit);
}

/* The first order that is not there. One before us may have been killed in its commit, which
   PostgreSQL then ends without it: that is waited for. */
static long long next_order(const producer *of)
{
    if (of->on_postgres)
        host_db_run(of->db, "BEGIN; LOCK TABLE orders IN EXCLUSIVE MODE; COMMIT");
    return host_db_number(of->db, "SELECT 1 + coalesce(max(number), -1) FROM orders");
}

static int produce(const char *address, long long count, long long customers)
{
    pr_error err = PR_ERROR_INIT;
    bool on_postgres = host_is_postgres(address);
    producer of = {.store = open_store(address, false),
                   .db = host_db_open(address),
                   .on_postgres = on_postgres,
                   .begin = on_postgres ? "BEGIN" : "BEGIN IMMEDIATE"};
    check(host_db_prepare(of.db, BUSY_MS, &err), &err, "prepare");
    for (long long next = next_order(&of); next < count; next++) {
        order o = make_order(next, customers);
        if (next % 5 == 4)
            place_order(&of, &o, true);
        place_order(&of, &o, false);
    }
    host_db_free(of.db);
    pr_store_free(of.store);
    return 0;
}

static void on_signal(int number)
{
    (void)number;
    if (stopped_by_signal)
        pr_endpoint_stop(stopped_by_signal);
}

/* The two numbers of a body of ours. */
static bool read_body(const pr_message *message, char body[BODY_SIZE], long long *ret_number,
                      long long *ret_customer)
{
    char *end = NULL;
    if (message->body_size_bytes >= BODY_SIZE)
        return false;
    memcpy(body, message->body, (size_t)message->body_size_bytes);
    body[message->body_size_bytes] = '\0';
    const char *colon = strchr(body, ':');
    if (!colon)
        return false;
    *ret_number = strtoll(colon + 1, &end, 10);
    colon = end ? strchr(end, ':') : NULL;
    *ret_customer = colon ? strtoll(colon + 1, NULL, 10) : -1;
    return colon != NULL;
}

/* Bills an order: one effect, and a follow-up. Each 11th fails at its first attempt. */
static pr_handled bill(void *user, pr_scope *scope)
{
    const handler *of = user;
    const pr_message *message = pr_scope_message(scope);
    long long number = -1, customer = -1;
    char body[BODY_SIZE], sql[240];
    if (!read_body(message, body, &number, &customer))
        return PR_HANDLED_PERMANENT;
    bool again = pr_scope_attempts(scope) > 0;
    if (number == SLOW_FIRST || (number == SLOW_AGAIN && again))
        usleep((useconds_t)of->slow_ms * 1000);
    snprintf(sql, sizeof sql,
             "INSERT INTO invoices (number, customer, message_id, keyed) "
             "VALUES (%lld, %lld, '%s', %d)",
             number, customer, message->id, message->key ? 1 : 0);
    if (!host_unit_try(pr_scope_unit(scope), sql))
        return PR_HANDLED_RETRY;
    pr_message billed = PR_MESSAGE(.type = BILLED_TYPE, .destination = "database://in/ledger",
                                   .body = body, .body_size_bytes = strlen(body));
    if (pr_unit_enqueue(pr_scope_unit(scope), &billed, NULL, NULL) != PR_OK)
        return PR_HANDLED_RETRY;
    if (number % 11 == 10 && !again) {
        pr_scope_fail(scope, "the first attempt fails on purpose", of->retry_ms);
        return PR_HANDLED_RETRY;
    }
    return PR_HANDLED_OK;
}

static int handle(const char *address, const handler *of)
{
    static const char *const types[] = {ORDER_TYPE};
    pr_error err = PR_ERROR_INIT;
    pr_store *store = open_store(address, false);
    pr_transport *transport = NULL;
    pr_database_options database = {.size = (uint32_t)sizeof database};
    pr_endpoint_options opt =
        PR_ENDPOINT_OPTIONS(.id = "billing", .types = types, .type_count = 1, .handler = bill,
                            .user = (void *)(uintptr_t)of, .lease_ms = of->lease_ms,
                            .backoff_initial_ms = 50, .poll_ms = 10, .prefetch = 16,
                            .concurrency = 1); /* so that fault points come in one order */
    check(pr_database_transport_new(store, &database, &transport, &err), &err, "transport");
    pr_endpoint *endpoint = NULL;
    check(pr_endpoint_new(store, transport, &opt, &endpoint, &err), &err, "endpoint");
    stopped_by_signal = endpoint;
    signal(SIGTERM, on_signal);
    check(pr_endpoint_run(endpoint, &err), &err, "run");
    stopped_by_signal = NULL;
    pr_endpoint_free(endpoint);
    pr_transport_free(transport);
    pr_store_free(store);
    return 0;
}

static void prepare_one(const char *address, const char *table, const char *columns)
{
    char sql[400];
    pr_error err = PR_ERROR_INIT;
    pr_migrate_options migrate = {.size = (uint32_t)sizeof migrate, .lanes = 4};
    pr_store *store = open_store(address, true);
    check(pr_store_migrate(store, &migrate, NULL, &err), &err, "migrate");
    pr_store_free(store);
    host_db *db = host_db_open(address);
    snprintf(sql, sizeof sql, "CREATE TABLE %s (id %s, %s)", table,
             host_is_postgres(address) ? "bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY"
                                       : "INTEGER PRIMARY KEY AUTOINCREMENT",
             columns);
    host_db_run(db, sql);
    host_db_free(db);
}

/* The tables, the schemas and the subscription, so that a run starts with a routable topic. */
static int prepare(const char *orders, const char *billing)
{
    static const char *const types[] = {ORDER_TYPE};
    pr_error err = PR_ERROR_INIT;
    prepare_one(orders, "orders", "number INTEGER UNIQUE, customer INTEGER, message_id TEXT");
    prepare_one(billing, "invoices",
                "number INTEGER, customer INTEGER, message_id TEXT, keyed INTEGER");
    pr_store *store = open_store(billing, false);
    pr_transport *transport = NULL;
    pr_database_options database = {.size = (uint32_t)sizeof database};
    pr_subscribe_options subscribe = {
        .size = (uint32_t)sizeof subscribe, .endpoint = "billing", .types = types, .type_count = 1};
    check(pr_database_transport_new(store, &database, &transport, &err), &err, "transport");
    check(pr_transport_topology(transport, &subscribe, false, &err), &err, "topology");
    pr_transport_free(transport);
    pr_store_free(store);
    return 0;
}

static long long to_number(const char *text)
{
    return strtoll(text, NULL, 10);
}

int main(int argc, char **argv)
{
    if (argc == 4 && strcmp(argv[1], "prepare") == 0)
        return prepare(argv[2], argv[3]);
    if (argc == 5 && strcmp(argv[1], "produce") == 0)
        return produce(argv[2], to_number(argv[3]), to_number(argv[4]));
    if (argc == 6 && strcmp(argv[1], "handle") == 0) {
        handler of = {to_number(argv[3]), to_number(argv[4]), to_number(argv[5])};
        return handle(argv[2], &of);
    }
    fprintf(stderr, "usage: actor prepare ORDERS BILLING | produce ORDERS COUNT CUSTOMERS | "
                    "handle BILLING LEASE_MS RETRY_MS SLOW_MS\n");
    return 2;
}
