/*
 * Every allocation fails once. A scenario runs again and again, with the first, the second, …
 * allocation failing, until a run has no more of them; each failed run must say so with NOMEM (or
 * a failed database), and what it leaves must be whole: the scenario's check counts from outside.
 * Allocations of SQLite and jansson are counted with ours.
 */
#include <string.h>
#include <unistd.h>

#include <jansson.h>
#include <sqlite3.h>

#include <postroom/database.h>
#include <postroom/memory.h>
#include <postroom/postroom.h>
#include <postroom/sqlite.h>

#include "base/fault.h"
#include "base/memory.h"
#include "base/text.h"
#include "base/time.h"
#include "support/enqueue.h"
#include "support/test.h"

#define TYPE        "urn:message:memory:placed"
#define RUNS_MAX    20000
#define STEPS_MAX   400
#define IDLE_STEPS  40               /* each waits a poll, 1 ms: it has nothing to do any more */
#define RELAY_WAITS 4                /* it has nothing to do any more */
#define WAIT_US     (10 * 1000000LL) /* beyond leases, backoffs and pauses */

/* ---- one counter for all allocators ---- */

static sqlite3_mem_methods real_sqlite;
static bool sqlite_counts = true; /* of the scenario in hand */

static void *sqlite_alloc(int size)
{
    return sqlite_counts && pr__fault_alloc_fails() ? NULL : real_sqlite.xMalloc(size);
}

static void *sqlite_realloc(void *p, int size)
{
    return sqlite_counts && pr__fault_alloc_fails() ? NULL : real_sqlite.xRealloc(p, size);
}

/* ---- a clock that goes on when a test would wait ---- */

static int64_t skipped_us;

static int64_t skipping_wall_us(void *user)
{
    (void)user;
    return pr__wall_us() + skipped_us;
}

static int64_t skipping_monotonic_us(void *user)
{
    (void)user;
    return pr__monotonic_us() + skipped_us;
}

static const pr_clock skipping_clock = {.size = (uint32_t)sizeof(pr_clock),
                                        .wall_us = skipping_wall_us,
                                        .monotonic_us = skipping_monotonic_us};

static void *json_alloc(size_t size)
{
    return pr__alloc(size);
}

static void json_free(void *p)
{
    pr__free(p);
}

static void hook_allocators(void)
{
    sqlite3_mem_methods hooked;
    assert_int_equal(sqlite3_config(SQLITE_CONFIG_GETMALLOC, &real_sqlite), SQLITE_OK);
    hooked = real_sqlite;
    hooked.xMalloc = sqlite_alloc;
    hooked.xRealloc = sqlite_realloc;
    assert_int_equal(sqlite3_config(SQLITE_CONFIG_MALLOC, &hooked), SQLITE_OK);
    json_set_alloc_funcs(json_alloc, json_free);
}

/* ---- the world of a scenario ---- */

static const char *const types[] = {TYPE};
static const pr_subscribe_options subscription = {
    .size = (uint32_t)sizeof subscription, .endpoint = "memory", .types = types, .type_count = 1};

typedef struct world {
    char folder[64];
    char path[96];
    pr_store *store;
    pr_memory_broker *broker;
    pr_transport *transport;
    uint64_t enqueued; /* committed by us, without faults or with */
    uint64_t handled;  /* by the handler, also in units that were rolled back */
} world;

static void open_world(world *w)
{
    pr_error err = PR_ERROR_INIT;
    *w = (world){.folder = "/dev/shm/postroom-memory-XXXXXX"};
    assert_non_null(mkdtemp(w->folder));
    pr__format(w->path, sizeof w->path, "%s/store.db", w->folder);
    pr_sqlite_options opt = PR_SQLITE_OPTIONS(.create = true, .schema_check_off = true,
                                              .path = w->path, .clock = &skipping_clock);
    pr_migrate_options migrate = {
        .size = (uint32_t)sizeof migrate, .lanes = 2, .default_transport = "memory"};
    check_ok(pr_sqlite_store_open(&opt, &w->store, &err), &err, "open");
    check_ok(pr_store_migrate(w->store, &migrate, NULL, &err), &err, "migrate");
    pr_memory_options memory = {.size = (uint32_t)sizeof memory, .clock = &skipping_clock};
    check_ok(pr_memory_broker_new(&w->broker, &err), &err, "broker");
    check_ok(pr_memory_transport_new(w->broker, &memory, &w->transport, &err), &err, "transport");
    check_ok(pr_transport_topology(w->transport, &subscription, false, &err), &err, "topology");
}

static void close_world(world *w)
{
    static const char *const suffixes[] = {"", "-wal", "-shm", "-journal"};
    pr_transport_free(w->transport);
    pr_memory_broker_free(w->broker);
    pr_store_free(w->store);
    for (size_t i = 0; i < COUNT_OF(suffixes); i++) {
        char path[128];
        pr__format(path, sizeof path, "%s%s", w->path, suffixes[i]);
        (void)unlink(path);
    }
    assert_int_equal(rmdir(w->folder), 0);
}

static int64_t count(const world *w, const char *sql)
{
    sqlite3 *db = NULL;
    sqlite3_stmt *stmt = NULL;
    assert_int_equal(sqlite3_open_v2(w->path, &db, SQLITE_OPEN_READONLY, NULL), SQLITE_OK);
    if (sqlite3_prepare_v2(db, sql, -1, &stmt, NULL) != SQLITE_OK)
        fail_msg("%s: %s", sql, sqlite3_errmsg(db));
    assert_int_equal(sqlite3_step(stmt), SQLITE_ROW);
    int64_t value = sqlite3_column_int64(stmt, 0);
    sqlite3_finalize(stmt);
    sqlite3_close(db);
    return value;
}

static pr_message a_message(void)
{
    static const char body[] = "{\"number\":1}";
    return (pr_message)PR_MESSAGE(.type = TYPE, .key = "key", .correlation_id = "correlation",
                                  .headers = "{\"colour\":\"red\",\"size\":{\"int\":3}}",
                                  .body = body, .body_size_bytes = sizeof body - 1);
}

static void enqueue_one(world *w)
{
    pr_message message = a_message();
    enqueue_and_commit(w->store, &message);
    w->enqueued++;
}

static void enqueue_once(world *w)
{
    if (w->enqueued == 0)
        enqueue_one(w);
}

/* ---- scenarios: prepare without faults, run with one, check without ---- */

static pr_status run_open(world *w, pr_error *err)
{
    pr_store *store = NULL;
    pr_sqlite_options opt = PR_SQLITE_OPTIONS(.path = w->path, .clock = &skipping_clock);
    pr_status status = pr_sqlite_store_open(&opt, &store, err);
    pr_store_free(store);
    return status;
}

static pr_status run_bus_open(world *w, pr_error *err)
{
    pr_bus *bus = NULL;
    pr_status status = pr_bus_open(pr_sqlite_open, w->path, NULL, &bus, err);
    assert_true((bus != NULL) == (status == PR_OK));
    pr_bus_free(bus);
    return status;
}

static pr_status run_enqueue(world *w, pr_error *err)
{
    pr_unit *unit = NULL;
    pr_message message = a_message();
    pr_status status = pr_unit_begin(w->store, &unit, err);
    for (int i = 0; i < 3 && status == PR_OK; i++)
        status = pr_unit_enqueue(unit, &message, NULL, err);
    if (status == PR_OK)
        status = pr_unit_commit(unit, NULL, err);
    pr_unit_free(unit);
    if (status == PR_OK)
        w->enqueued += 3;
    return status;
}

static void check_enqueue(world *w)
{
    assert_int_equal(count(w, "SELECT count(*) FROM postroom_outbox"), w->enqueued);
}

/* Steps instead of a loop: whatever it would wait for, the clock skips. */
static pr_status run_relay(world *w, pr_error *err)
{
    pr_relay *relay = NULL;
    pr_relay_options opt = PR_RELAY_OPTIONS(.owner = "memory", .clock = &skipping_clock);
    pr_status first = pr_relay_new(w->store, &w->transport, 1, &opt, &relay, err);
    for (int i = 0, waits = 0; i < STEPS_MAX && waits < RELAY_WAITS && relay; i++) {
        int64_t wait_ms = 0;
        pr_error local = PR_ERROR_INIT;
        pr_status status = pr_relay_step(relay, &wait_ms, &local);
        skipped_us += wait_ms * 1000;
        waits += wait_ms > 0;
        if (status != PR_OK && first == PR_OK) {
            first = status;
            *err = local;
        }
    }
    pr_relay_free(relay);
    return first;
}

/* Whatever the failed run left, an unharmed relay brings to its end: nothing is lost or stuck. A
   slice that was claimed and neither settled nor released comes back with its lease. */
static void check_relay(world *w)
{
    pr_error err = PR_ERROR_INIT;
    for (int i = 0; i < 100; i++) {
        pr_error_clear(&err);
        check_ok(run_relay(w, &err), &err, "an unharmed relay");
        if (count(w, "SELECT count(*) FROM postroom_outbox_state WHERE reader = 1 "
                     "AND state <> 'published'") == 0)
            break;
        skipped_us += WAIT_US;
    }
    assert_int_equal(count(w, "SELECT count(*) FROM postroom_outbox_state WHERE reader = 1 "
                              "AND state = 'published'"),
                     w->enqueued);
}

static pr_handled insert_effect(void *user, pr_scope *scope)
{
    world *w = user;
    sqlite3 *db = pr_sqlite_unit_connection(pr_scope_unit(scope));
    char sql[160];
    w->handled++;
    pr__format(sql, sizeof sql, "INSERT INTO effects (message_id) VALUES ('%s')",
               pr_scope_message(scope)->id);
    return sqlite3_exec(db, sql, NULL, NULL, NULL) == SQLITE_OK ? PR_HANDLED_OK : PR_HANDLED_RETRY;
}

static pr_status run_endpoint(world *w, pr_error *err)
{
    pr_endpoint *endpoint = NULL;
    pr_endpoint_options opt = PR_ENDPOINT_OPTIONS(.id = "memory", .types = types, .type_count = 1,
                                                  .handler = insert_effect, .user = w, .poll_ms = 1,
                                                  .backoff_initial_ms = 1, .backoff_max_ms = 1);
    pr_status first = pr_endpoint_new(w->store, w->transport, &opt, &endpoint, err);
    for (int i = 0, idle = 0; i < STEPS_MAX && idle < IDLE_STEPS && endpoint; i++) {
        int64_t wait_ms = 0;
        pr_error local = PR_ERROR_INIT;
        uint64_t before = w->handled;
        pr_status status = pr_endpoint_step(endpoint, &wait_ms, &local);
        if (status != PR_OK && first == PR_OK) {
            first = status;
            *err = local;
        }
        if (i > 4 && wait_ms > 0)
            break;
        idle = status == PR_OK && w->handled == before ? idle + 1 : 0;
    }
    pr_endpoint_free(endpoint);
    return first;
}

static void prepare_endpoint(world *w)
{
    sqlite3 *db = NULL;
    assert_int_equal(sqlite3_open(w->path, &db), SQLITE_OK);
    assert_int_equal(
        sqlite3_exec(db, "CREATE TABLE IF NOT EXISTS effects (message_id TEXT)", NULL, NULL, NULL),
        SQLITE_OK);
    sqlite3_close(db);
    enqueue_one(w);
    check_relay(w);
}

static void check_endpoint(world *w)
{
    for (int i = 0; i < 400; i++) {
        pr_error err = PR_ERROR_INIT;
        (void)run_endpoint(w, &err);
        if (count(w, "SELECT count(DISTINCT message_id) FROM effects") == (int64_t)w->enqueued)
            break;
        skipped_us += WAIT_US;
    }
    assert_int_equal(count(w, "SELECT count(*) FROM effects"), w->enqueued);
    assert_int_equal(count(w, "SELECT count(*) FROM postroom_inbox"), w->enqueued);
    assert_int_equal(count(w, "SELECT count(*) FROM postroom_inbox_parked"), 0);
}

static bool any_record(void *user, const pr_record *record)
{
    (void)record;
    ++*(int *)user;
    return true;
}

static pr_status run_operations(world *w, pr_error *err)
{
    int seen = 0;
    pr_list_options list = {.size = (uint32_t)sizeof list, .limit = 10};
    pr_list_page page = {.size = (uint32_t)sizeof page};
    pr_status_report report = {.size = (uint32_t)sizeof report};
    pr_status status = pr_operations_list(w->store, &list, &page, any_record, &seen, err);
    if (status == PR_OK)
        status = pr_operations_status(w->store, &report, err);
    if (status == PR_OK)
        assert_int_equal(report.outbox[PR_STATE_PENDING], w->enqueued);
    return status;
}

static pr_status run_contract(world *w, pr_error *err)
{
    typedef struct placed {
        const char *text;
        int64_t number;
        pr_list lines;
    } placed;
    static const pr_field fields[] = {
        {.name = "text", .kind = PR_FIELD_TEXT, .offset = offsetof(placed, text)},
        {.name = "number", .kind = PR_FIELD_INT64, .offset = offsetof(placed, number)},
        {.name = "lines",
         .kind = PR_FIELD_LIST,
         .element_kind = PR_FIELD_INT64,
         .offset = offsetof(placed, lines),
         .element_size = sizeof(int64_t)},
        {.name = NULL},
    };
    static const pr_contract contract = {.size = (uint32_t)sizeof contract,
                                         .type_version = 1,
                                         .type = TYPE,
                                         .kind = PR_CONTRACT_COMMAND,
                                         .fields = fields,
                                         .object_size = sizeof(placed)};
    int64_t lines[] = {1, 2, 3};
    placed object = {.text = "text", .number = 7, .lines = {.items = lines, .count = 3}};
    pr_contracts *contracts = NULL;
    pr_decoded *decoded = NULL;
    void *body = NULL;
    size_t size = 0;
    (void)w;
    pr_status status = pr_contracts_new(&contracts, err);
    if (status == PR_OK)
        status = pr_contracts_register(contracts, &contract, err);
    if (status == PR_OK)
        status = pr_contract_encode(&contract, &object, &body, &size, err);
    if (status == PR_OK) {
        pr_message message =
            PR_MESSAGE(.type = TYPE, .type_version = 1, .body = body, .body_size_bytes = size);
        status = pr_contract_decode(&contract, &message, &decoded, err);
    }
    if (status == PR_OK)
        assert_int_equal(((const placed *)pr_decoded_object(decoded))->lines.count, 3);
    pr_decoded_free(decoded);
    pr_free(body);
    pr_contracts_free(contracts);
    return status;
}

typedef struct scenario {
    const char *name;
    void (*prepare)(world *w); /* before each run; NULL = nothing */
    pr_status (*run)(world *w, pr_error *err);
    void (*check)(world *w); /* after each run; NULL = nothing */
    bool hides;              /* a failure may be mended inside and not be told */
    bool ours_only;          /* SQLite's own are not counted: it makes a model of the schema */
} scenario;

static const scenario scenarios[] = {
    {"open a store", NULL, run_open, NULL, false, true},
    {"open a bus", NULL, run_bus_open, NULL, false, true},
    {"enqueue three and commit", NULL, run_enqueue, check_enqueue, false, false},
    {"relay one", enqueue_one, run_relay, check_relay, true, false},
    {"handle one", prepare_endpoint, run_endpoint, check_endpoint, true, false},
    {"list and count", enqueue_once, run_operations, NULL, false, false},
    {"encode and decode", NULL, run_contract, NULL, false, false},
};

/* NOMEM, or what a database that had no memory may say. */
static bool is_honest(pr_status status)
{
    return status == PR_E_NOMEM || status == PR_E_BACKEND;
}

static void run_scenario(const scenario *s)
{
    world w;
    int64_t n;
    open_world(&w);
    for (n = 1; n <= RUNS_MAX; n++) {
        pr_error err = PR_ERROR_INIT;
        if (s->prepare)
            s->prepare(&w);
        sqlite_counts = !s->ours_only;
        pr__fault_alloc_fail_at(n);
        pr_status status = s->run(&w, &err);
        int64_t passed = pr__fault_alloc_count();
        pr__fault_alloc_fail_at(0);
        bool failed_one = passed >= n;
        if (failed_one && !s->hides && status != PR_OK && !is_honest(status))
            fail_msg("'%s', allocation %d: %s (%s)", s->name, (int)n, err.message,
                     pr_status_text(status));
        if (status != PR_OK && err.message[0] == '\0')
            fail_msg("'%s', allocation %d: failed without a word", s->name, (int)n);
        if (!failed_one && status != PR_OK)
            fail_msg("'%s' failed although no allocation did: %s", s->name, err.message);
        if (s->check)
            s->check(&w);
        if (!failed_one)
            break;
    }
    assert_true(n > 3); /* it did allocate */
    assert_true(n <= RUNS_MAX);
    print_message("# %s: %d allocations\n", s->name, (int)n - 1);
    close_world(&w);
}

static void test_scenario(void **state)
{
    run_scenario(*state);
}

int main(void)
{
    struct CMUnitTest tests[COUNT_OF(scenarios)];
    hook_allocators();
    for (size_t i = 0; i < COUNT_OF(scenarios); i++) {
        static scenario copies[COUNT_OF(scenarios)];
        copies[i] = scenarios[i];
        tests[i] = (struct CMUnitTest){copies[i].name, test_scenario, NULL, NULL, &copies[i]};
    }
    return RUN_TESTS(tests);
}
