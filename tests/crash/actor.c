/*
 * The host programs of the crash tests: `produce` places orders with their messages in the same
 * transactions, `handle` bills each with its inbox. The campaigns kill them, start them again and
 * count from outside; so neither keeps anything that is not in its database.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <sqlite3.h>

#include <postroom/database.h>
#include <postroom/postroom.h>
#include <postroom/sqlite.h>

#define ORDER_TYPE  "urn:message:crash:order-placed"
#define BILLED_TYPE "urn:message:crash:order-billed"

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

static pr_store *open_store(const char *path)
{
    pr_error err = PR_ERROR_INIT;
    pr_sqlite_options opt = PR_SQLITE_OPTIONS(.path = path, .busy_ms = 10000);
    pr_store *store = NULL;
    check(pr_sqlite_store_open(&opt, &store, &err), &err, path);
    return store;
}

static void run_sql(sqlite3 *db, const char *sql)
{
    char *message = NULL;
    if (sqlite3_exec(db, sql, NULL, NULL, &message) != SQLITE_OK)
        die(sql, message ? message : "?");
}

static long long one_number(sqlite3 *db, const char *sql)
{
    sqlite3_stmt *stmt = NULL;
    if (sqlite3_prepare_v2(db, sql, -1, &stmt, NULL) != SQLITE_OK)
        die(sql, sqlite3_errmsg(db));
    long long number = sqlite3_step(stmt) == SQLITE_ROW ? sqlite3_column_int64(stmt, 0) : 0;
    sqlite3_finalize(stmt);
    return number;
}

/* The n-th order: its number is its place in the order of its customer too. */
typedef struct order {
    long long number;
    long long customer;
    char id[37];
    char key[32];
    char body[160];
} order;

static order make_order(long long number, long long customers)
{
    order o = {.number = number, .customer = number % customers};
    snprintf(o.id, sizeof o.id, "00000000-0000-7000-8000-%012llx", number + 1);
    snprintf(o.key, sizeof o.key, "customer-%lld", o.customer);
    snprintf(o.body, sizeof o.body, "{\"order\":%lld,\"customer\":%lld}", number, o.customer);
    return o;
}

static void insert_order(sqlite3 *db, const order *o)
{
    char sql[200];
    snprintf(sql, sizeof sql,
             "INSERT INTO orders (number, customer, message_id) VALUES (%lld, %lld, '%s')",
             o->number, o->customer, o->id);
    run_sql(db, sql);
}

/* Every 5th order is tried once, rolled back, and placed only then; every 7th is delayed a
   little and has no key, so that its later delivery breaks no order. */
static void place_order(pr_store *store, sqlite3 *db, const order *o, bool give_up)
{
    pr_error err = PR_ERROR_INIT;
    pr_unit *unit = NULL;
    bool delayed = o->number % 7 == 6;
    pr_message message = PR_MESSAGE(.id = o->id, .type = ORDER_TYPE, .key = delayed ? NULL : o->key,
                                    .body = o->body, .body_size_bytes = strlen(o->body));
    if (delayed)
        message.deliver_at_us = pr_clock_system()->wall_us(NULL) + 100000;
    run_sql(db, "BEGIN IMMEDIATE");
    insert_order(db, o);
    check(pr_sqlite_unit_join(store, db, &unit, &err), &err, "join");
    check(pr_unit_enqueue(unit, &message, NULL, &err), &err, "enqueue");
    run_sql(db, give_up ? "ROLLBACK" : "COMMIT");
    check(pr_unit_finished(unit, give_up ? PR_OUTCOME_NOT_COMMITTED : PR_OUTCOME_COMMITTED, &err),
          &err, "finished");
    pr_unit_free(unit);
}

static int produce(const char *path, long long count, long long customers)
{
    pr_error err = PR_ERROR_INIT;
    sqlite3 *db = NULL;
    pr_store *store = open_store(path);
    if (sqlite3_open(path, &db) != SQLITE_OK)
        die(path, sqlite3_errmsg(db));
    check(pr_sqlite_prepare(db, 10000, &err), &err, "prepare");
    long long next = one_number(db, "SELECT 1 + ifnull(max(number), -1) FROM orders");
    for (; next < count; next++) {
        order o = make_order(next, customers);
        if (next % 5 == 4)
            place_order(store, db, &o, true);
        place_order(store, db, &o, false);
    }
    sqlite3_close(db);
    pr_store_free(store);
    return 0;
}

static void on_signal(int number)
{
    (void)number;
    if (stopped_by_signal)
        pr_endpoint_stop(stopped_by_signal);
}

/* Bills an order: one effect, and a follow-up. Each 11th fails at its first attempt. */
static pr_handled bill(void *user, pr_scope *scope)
{
    const pr_message *message = pr_scope_message(scope);
    sqlite3 *db = pr_sqlite_unit_connection(pr_scope_unit(scope));
    long long number = -1, customer = -1;
    char body[160] = "", sql[240];
    (void)user;
    if (message->body_size_bytes < sizeof body)
        memcpy(body, message->body, (size_t)message->body_size_bytes);
    const char *colon = strchr(body, ':');
    if (!colon)
        return PR_HANDLED_PERMANENT;
    char *end = NULL;
    number = strtoll(colon + 1, &end, 10);
    colon = end ? strchr(end, ':') : NULL;
    customer = colon ? strtoll(colon + 1, NULL, 10) : -1;
    snprintf(sql, sizeof sql,
             "INSERT INTO invoices (number, customer, message_id, keyed) "
             "VALUES (%lld, %lld, '%s', %d)",
             number, customer, message->id, message->key ? 1 : 0);
    if (sqlite3_exec(db, sql, NULL, NULL, NULL) != SQLITE_OK)
        return PR_HANDLED_RETRY;
    pr_message billed = PR_MESSAGE(.type = BILLED_TYPE, .destination = "database://in/ledger",
                                   .body = body, .body_size_bytes = strlen(body));
    if (pr_unit_enqueue(pr_scope_unit(scope), &billed, NULL, NULL) != PR_OK)
        return PR_HANDLED_RETRY;
    if (number % 11 == 10 && pr_scope_attempts(scope) == 0) {
        pr_scope_fail(scope, "the first attempt fails on purpose", 50);
        return PR_HANDLED_RETRY;
    }
    return PR_HANDLED_OK;
}

static int handle(const char *path, long long lease_ms)
{
    static const char *const types[] = {ORDER_TYPE};
    pr_error err = PR_ERROR_INIT;
    pr_store *store = open_store(path);
    pr_transport *transport = NULL;
    pr_database_options database = {.size = (uint32_t)sizeof database};
    pr_endpoint_options opt =
        PR_ENDPOINT_OPTIONS(.id = "billing", .types = types, .type_count = 1, .handler = bill,
                            .lease_ms = lease_ms, .backoff_initial_ms = 50, .poll_ms = 10,
                            .prefetch = 16);
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

/* The tables, the schemas and the subscription, so that a run starts with a routable topic. */
static int prepare(const char *orders, const char *billing)
{
    pr_error err = PR_ERROR_INIT;
    const char *const paths[] = {orders, billing};
    for (int i = 0; i < 2; i++) {
        pr_sqlite_options opt =
            PR_SQLITE_OPTIONS(.create = true, .schema_check_off = true, .path = paths[i]);
        pr_migrate_options migrate = {.size = (uint32_t)sizeof migrate, .lanes = 4};
        pr_store *store = NULL;
        sqlite3 *db = NULL;
        check(pr_sqlite_store_open(&opt, &store, &err), &err, paths[i]);
        check(pr_store_migrate(store, &migrate, NULL, &err), &err, "migrate");
        pr_store_free(store);
        if (sqlite3_open(paths[i], &db) != SQLITE_OK)
            die(paths[i], sqlite3_errmsg(db));
        run_sql(db, i == 0 ? "CREATE TABLE orders (number INTEGER PRIMARY KEY, customer INTEGER, "
                             "message_id TEXT)"
                           : "CREATE TABLE invoices (id INTEGER PRIMARY KEY AUTOINCREMENT, "
                             "number INTEGER, customer INTEGER, message_id TEXT, keyed INTEGER)");
        sqlite3_close(db);
    }
    static const char *const types[] = {ORDER_TYPE};
    pr_store *store = open_store(billing);
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

int main(int argc, char **argv)
{
    if (argc == 4 && strcmp(argv[1], "prepare") == 0)
        return prepare(argv[2], argv[3]);
    if (argc == 5 && strcmp(argv[1], "produce") == 0)
        return produce(argv[2], strtoll(argv[3], NULL, 10), strtoll(argv[4], NULL, 10));
    if (argc == 4 && strcmp(argv[1], "handle") == 0)
        return handle(argv[2], strtoll(argv[3], NULL, 10));
    fprintf(stderr, "usage: actor prepare ORDERS BILLING | produce ORDERS COUNT CUSTOMERS | "
                    "handle BILLING LEASE_MS\n");
    return 2;
}
