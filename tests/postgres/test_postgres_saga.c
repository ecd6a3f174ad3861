/*
 * Steps of sagas at an endpoint on PostgreSQL: how many round trips each takes, what becomes of one
 * whose save rides with the commit and is refused, what was done to it in between, and of one whose
 * way is cut.
 */
#include <limits.h>
#include <pthread.h>
#include <stddef.h>

#include <postroom/endpoint.h>
#include <postroom/memory.h>
#include <postroom/middleware.h>
#include <postroom/saga.h>
#include <postroom/transport.h>

#include "base/text.h"
#include "base/time.h"
#include "postgres/ground.h"
#include "support/postgres_proxy.h"

#define PAID    "urn:message:saga:paid"    /* by the message's key */
#define BOOKED  "urn:message:saga:booked"  /* by a field */
#define SHIPPED "urn:message:saga:shipped" /* by a function */
#define BEGUN   "urn:message:saga:begun"   /* starts it, by the message's key */
#define LATE    "urn:message:saga:late"    /* its timeouts */
#define SAGA    "parcel"
#define BUSY_MS 300
#define DONE_MS 40000
#define ROW     " FROM postroom.saga WHERE correlation_key = 'k'"

static postgres_databases databases;
static postgres_proxy *proxy;

/* What a handler, or a middleware around it, does beside. */
typedef enum doing {
    NOTHING = 0,
    SEND,      /* a command */
    RUN,       /* the scene's SQL, on the unit's connection */
    ASK_AFTER, /* a middleware asks for the unit again after the handler, and runs it */
    RUN_AND_ASK
} doing;

typedef struct scene {
    ground on;
    pr_clock clock;
    int64_t skipped_us;
    pr_store *store; /* through the proxy */
    pr_contracts *contracts;
    pr_saga *saga;
    pr_memory_broker *broker;
    pr_transport *in, *out;
    pr_endpoint *endpoint;
    doing does;
    const char *sql; /* of RUN and ASK_AFTER; done once */
    int requests;    /* of the last message that was handled, or not */
    int seen;        /* messages that have gone through the outermost middleware */
} scene;

/* ---- the saga ---- */

typedef struct parcel {
    int64_t steps;
} parcel;

typedef struct booked {
    const char *key;
} booked;

static const pr_field parcel_fields[] = {
    {.name = "steps", .kind = PR_FIELD_INT64, .offset = offsetof(parcel, steps)},
    {.name = NULL},
};
static const pr_field booked_fields[] = {
    {.name = "key", .kind = PR_FIELD_TEXT, .offset = offsetof(booked, key)},
    {.name = NULL},
};

#define CONTRACT(urn, table, object)                                                               \
    {                                                                                              \
        .size = (uint32_t)sizeof(pr_contract), .type_version = 1, .type = (urn),                   \
        .kind = PR_CONTRACT_DOMAIN_EVENT, .fields = (table), .object_size = sizeof(object)         \
    }
static const pr_contract state_contract =
    CONTRACT("urn:message:saga:parcel", parcel_fields, parcel);
static const pr_contract contracts[] = {
    CONTRACT(PAID, booked_fields, booked),
    CONTRACT(BOOKED, booked_fields, booked),
    CONTRACT(SHIPPED, booked_fields, booked),
    CONTRACT(BEGUN, booked_fields, booked),
};

static void run_once(scene *of, pr_unit *unit)
{
    const char *sql = of->sql;
    of->sql = NULL;
    if (sql)
        PQclear(PQexec(pr_postgres_unit_connection(unit), sql));
}

static pr_handled step(void *user, pr_saga_step *step, void *object)
{
    scene *of = user;
    pr_unit *unit = pr_saga_step_unit(step);
    ((parcel *)object)->steps++;
    if (of->does == RUN || of->does == RUN_AND_ASK)
        run_once(of, unit);
    pr_message command =
        PR_MESSAGE(.type = "urn:message:saga:go", .body = "1", .body_size_bytes = 1);
    if (of->does == SEND && pr_unit_enqueue(unit, &command, NULL, NULL) != PR_OK)
        return PR_HANDLED_RETRY;
    return PR_HANDLED_OK;
}

static bool correlate(void *user, const pr_scope *scope, char *ret_key, size_t size)
{
    (void)user;
    pr__format(ret_key, size, "%s", pr_scope_message(scope)->key);
    return true;
}

static pr_saga *make_saga(scene *of)
{
    static const pr_saga_state states[] = {{&state_contract, NULL}};
    static const pr_saga_message messages[] = {
        {.type = PAID, .handler = step},
        {.type = BOOKED, .handler = step, .correlation_field = "key"},
        {.type = SHIPPED, .handler = step, .correlate = correlate},
        {.type = BEGUN, .handler = step, .flags = PR_SAGA_STARTS},
    };
    static const pr_saga_timeout timeouts[] = {{"ring", step}};
    pr_error err = PR_ERROR_INIT;
    pr_saga *saga = NULL;
    pr_saga_type type =
        PR_SAGA_TYPE(.name = SAGA, .states = states, .state_count = 1, .messages = messages,
                     .message_count = COUNT_OF(messages), .timeouts = timeouts, .timeout_count = 1,
                     .timeout_type = LATE, .user = of);
    check_ok(pr_contracts_new(&of->contracts, &err), &err, "contracts");
    for (size_t i = 0; i < COUNT_OF(contracts); i++)
        check_ok(pr_contracts_register(of->contracts, &contracts[i], &err), &err, "register");
    check_ok(pr_saga_new(&type, of->contracts, &saga, &err), &err, "saga");
    return saga;
}

/* ---- the scene ---- */

static int64_t wall_us(void *user)
{
    return pr__wall_us() + ((const scene *)user)->skipped_us;
}

static int64_t monotonic_us(void *user)
{
    return pr__monotonic_us() + ((const scene *)user)->skipped_us;
}

/* Round trips of one message, from before its unit to after it. */
static pr_handled count(void *user, pr_scope *scope, pr_next *next)
{
    scene *of = user;
    int before = postgres_proxy_requests(proxy);
    pr_handled handled = pr_next_invoke(next, scope);
    of->requests = postgres_proxy_requests(proxy) - before;
    of->seen++;
    return handled;
}

static pr_handled inner(void *user, pr_scope *scope, pr_next *next)
{
    scene *of = user;
    pr_unit *unit = NULL;
    pr_handled handled = pr_next_invoke(next, scope);
    bool asks = of->does == ASK_AFTER || of->does == RUN_AND_ASK;
    if (asks && pr_scope_unit_get(scope, &unit, NULL) == PR_OK)
        run_once(of, unit);
    return handled;
}

static pr_transport *open_transport(scene *of)
{
    pr_error err = PR_ERROR_INIT;
    pr_transport *transport = NULL;
    pr_memory_options options = PR_MEMORY_OPTIONS(.clock = &of->clock);
    check_ok(pr_memory_transport_new(of->broker, &options, &transport, &err), &err, "transport");
    return transport;
}

static void open_endpoint(scene *of, bool within, pr_inbox_mode inbox)
{
    static const char *const types[] = {PAID, BOOKED, SHIPPED, BEGUN, LATE};
    pr_error err = PR_ERROR_INIT;
    int64_t wait_ms = 0;
    const pr_middleware chain[] = {
        PR_MIDDLEWARE(.name = "count", .invoke = count, .user = of),
        pr_middleware_unit(),
        pr_middleware_inbox(),
        PR_MIDDLEWARE(.name = "inner", .invoke = inner, .user = of),
    };
    pr_endpoint_options options =
        PR_ENDPOINT_OPTIONS(.id = SAGA, .types = types, .type_count = COUNT_OF(types),
                            .contracts = of->contracts, .handler = pr_saga_handle, .user = of->saga,
                            .backoff_initial_ms = 1, .backoff_max_ms = 1,
                            .jitter_percent = PR_JITTER_NONE, .poll_ms = 1, .lease_ms = 300,
                            .middleware = chain, .middleware_count = within ? 4 : 3, .inbox = inbox,
                            .clock = &of->clock);
    check_ok(pr_endpoint_new(of->store, of->in, &options, &of->endpoint, &err), &err, "endpoint");
    check_ok(pr_endpoint_step(of->endpoint, &wait_ms, &err), &err, "subscribe");
}

static void scene_begin(scene *of, bool within, pr_inbox_mode inbox)
{
    char name[64], through[POSTGRES_CONNINFO_SIZE];
    pr_error err = PR_ERROR_INIT;
    *of = (scene){.skipped_us = 0};
    of->clock = (pr_clock){(uint32_t)sizeof of->clock, wall_us, monotonic_us, of};
    ground_make(&databases, NULL, &of->on);
    db_run(of->on.db, "CREATE TABLE effects (id text)");
    snprintf(name, sizeof name, "%.*s", (int)strcspn(of->on.uri + 14, "?"), of->on.uri + 14);
    postgres_proxy_uri(proxy, name, through);
    pr_postgres_options options =
        PR_POSTGRES_OPTIONS(.conninfo = through, .busy_ms = BUSY_MS, .clock = &of->clock);
    check_ok(pr_postgres_store_open(&options, &of->store, &err), &err, "open");
    check_ok(pr_memory_broker_new(&of->broker, &err), &err, "broker");
    of->in = open_transport(of);
    of->out = open_transport(of);
    check_ok(pr_transport_open(of->out, 1000, &err), &err, "open");
    of->saga = make_saga(of);
    open_endpoint(of, within, inbox);
    postgres_proxy_arm(proxy, PROXY_DELAY, INT_MAX);
}

static void scene_end(scene *of)
{
    postgres_proxy_disarm(proxy);
    pr_endpoint_free(of->endpoint);
    pr_transport_free(of->in);
    pr_transport_free(of->out);
    pr_memory_broker_free(of->broker);
    pr_saga_free(of->saga);
    pr_contracts_free(of->contracts);
    pr_store_free(of->store);
    ground_done(&of->on);
}

static int64_t ask(const scene *of, const char *sql)
{
    PGresult *alive = PQexec(of->on.db, "SELECT 1");
    if (PQresultStatus(alive) != PGRES_TUPLES_OK)
        PQreset(of->on.db); /* the server was crashed on purpose */
    PQclear(alive);
    return db_number(of->on.db, sql);
}

static void deliver(scene *of, const char *type, const char *id)
{
    static const char booking[] = "{\"key\":\"k\"}";
    static const char timeout[] =
        "{\"saga\":\"" SAGA
        "\",\"key\":\"k\",\"instance\":\"0198c5f2-7d3e-7a10-8b2c-000000000001\","
        "\"token\":\"0198c5f2-7d3e-7a10-8b2c-000000000002\",\"name\":\"ring\",\"version\":1}";
    const char *body = strcmp(type, LATE) == 0 ? timeout : booking;
    char topic[128];
    pr_error err = PR_ERROR_INIT;
    pr__format(topic, sizeof topic, "memory://topic/%s", type);
    pr_message message =
        PR_MESSAGE(.id = id, .type = type, .type_version = 1, .content_type = "application/json",
                   .destination = topic, .key = "k", .body = body, .body_size_bytes = strlen(body),
                   .occurred_at_us = 1767225600000000);
    pr_submission submission = {.ticket = 1, .message = &message};
    pr_submitted outcome = {0};
    size_t submitted = 0;
    check_ok(pr_transport_submit(of->out, &submission, 1, &submitted, &err), &err, "submit");
    check_ok(pr_transport_poll(of->out, 1000, &outcome, 1, &submitted, &err), &err, "poll");
    assert_int_equal(outcome.outcome, PR_SUBMIT_CONFIRMED);
}

static void go_on_once(scene *of)
{
    int64_t wait_ms = 0;
    (void)!pr_endpoint_step(of->endpoint, &wait_ms, NULL);
    if (wait_ms <= 0)
        return;
    of->skipped_us += wait_ms * 1000; /* the host waits no time of its own */
    sleep_ms(1);
}

/* Let the endpoint go on until so many have come through. */
static void go_on(scene *of, int seen)
{
    int64_t until = now_ms() + DONE_MS;
    while (of->seen < seen) {
        go_on_once(of);
        if (now_ms() > until)
            fail_msg("message %d did not come through", seen);
    }
}

static void take(scene *of, const char *type, const char *id)
{
    deliver(of, type, id);
    go_on(of, of->seen + 1);
}

static pr_saga_snapshot counters(const scene *of)
{
    pr_error err = PR_ERROR_INIT;
    pr_saga_snapshot snapshot = {.size = (uint32_t)sizeof snapshot};
    check_ok(pr_saga_snapshot_get(of->saga, &snapshot, &err), &err, "counters");
    return snapshot;
}

/* ---- round trips ---- */

typedef struct trip_case {
    const char *label, *type;
    doing does;
    int requests;
} trip_case;

static void one_trip(scene *of, const trip_case *with, int n, bool measured)
{
    char id[24];
    int64_t version = ask(of, "SELECT coalesce(sum(version), 0)" ROW);
    bool moves = strcmp(with->type, LATE) != 0;
    snprintf(id, sizeof id, "m%d-%d", n, measured);
    of->does = with->does;
    take(of, with->type, id);
    if (measured && of->requests != with->requests)
        fail_msg("%s: %d round trips, wanted %d", with->label, of->requests, with->requests);
    CHECK_CASE(ask(of, "SELECT coalesce(sum(version), 0)" ROW) == version + moves, with->label);
    CHECK_CASE(ask(of, "SELECT count(*) FROM postroom.inbox") == n + 1, with->label);
}

/* A first time, in which statements are prepared, and a second. */
static void check_trips(scene *of, const trip_case *cases, int case_count)
{
    for (int measured = 0; measured < 2; measured++) {
        db_run(of->on.db, "DELETE FROM postroom.saga; DELETE FROM postroom.inbox");
        for (int i = 0; i < case_count; i++)
            one_trip(of, &cases[i], i, measured == 1);
    }
    assert_int_equal(ask(of, "SELECT count(*) FROM postroom.inbox_parked"), 0);
}

static void a_step_is_two_round_trips(void **state)
{
    static const trip_case cases[] = {
        {"one that starts it", BEGUN, NOTHING, 3},
        {"by the message's key", PAID, NOTHING, 2},
        {"by a field of it", BOOKED, NOTHING, 2},
        {"by a function of the host's", SHIPPED, NOTHING, 3},
        {"one that could start it", BEGUN, NOTHING, 2},
        {"a timeout that is closed", LATE, NOTHING, 2},
        {"with a command", PAID, SEND, 3},
    };
    static const trip_case within[] = {
        {"one that starts it", BEGUN, NOTHING, 3},
        {"by the message's key", PAID, NOTHING, 2},
        {"a middleware would see what is decoded", BOOKED, NOTHING, 3},
        {"a middleware asks for the unit", PAID, ASK_AFTER, 3},
    };
    scene at;
    (void)state;
    scene_begin(&at, false, PR_INBOX_TRANSACTIONAL);
    check_trips(&at, cases, COUNT_OF(cases));
    scene_end(&at);
    scene_begin(&at, true, PR_INBOX_TRANSACTIONAL);
    check_trips(&at, within, COUNT_OF(within));
    scene_end(&at);
}

/* It says so, and nothing else. */
static void one_without_an_instance_is_two_round_trips(void **state)
{
    scene at;
    (void)state;
    scene_begin(&at, false, PR_INBOX_TRANSACTIONAL);
    take(&at, PAID, "m0");
    assert_int_equal(at.requests, 2);
    assert_int_equal(counters(&at).missing, 1);
    assert_int_equal(ask(&at, "SELECT count(*)" ROW), 0);
    scene_end(&at);
}

/* ---- the save ---- */

#define MOVED "another has moved the saga meanwhile"

/* Of a step that was not saved nothing stands, and it is put off without being charged; done again
   it goes its way. */
static void what_moved_in_between_is_not_written_over(void **state)
{
    static const struct {
        const char *label, *sql;
        bool within;
        doing does;
        pr_inbox_mode inbox;
    } cases[] = {
        {"its version", "UPDATE postroom.saga SET version = version + 1", false, RUN, 0},
        {"its instance", "UPDATE postroom.saga SET instance_id = gen_random_uuid()", false, RUN, 0},
        {"it is gone", "DELETE FROM postroom.saga", false, RUN, 0},
        {"with the leased inbox", "DELETE FROM postroom.saga", false, RUN, PR_INBOX_LEASED},
        {"seen by who asks for the unit", "DELETE FROM postroom.saga", true, RUN_AND_ASK, 0},
    };
    (void)state;
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        scene at;
        char sql[200];
        scene_begin(&at, cases[i].within, cases[i].inbox);
        take(&at, BEGUN, "m0");
        snprintf(sql, sizeof sql, "INSERT INTO public.effects (id) VALUES ('ghost'); %s",
                 cases[i].sql);
        at.does = cases[i].does;
        at.sql = sql;
        take(&at, PAID, "m1");
        CHECK_CASE(ask(&at, "SELECT version" ROW) == 1, cases[i].label);
        CHECK_CASE(ask(&at, "SELECT count(*) FROM effects") == 0, cases[i].label);
        CHECK_CASE(ask(&at, "SELECT count(*) FROM postroom.inbox") == 1, cases[i].label);
        CHECK_CASE(ask(&at, "SELECT count(*) FROM postroom.inbox_parked WHERE state = 'failed' AND "
                            "attempts = 0 AND last_error = '" MOVED "'") == 1,
                   cases[i].label);
        CHECK_CASE(counters(&at).lost == 1 && counters(&at).stepped == 1, cases[i].label);
        go_on(&at, at.seen + 1);
        CHECK_CASE(ask(&at, "SELECT version" ROW) == 2, cases[i].label);
        CHECK_CASE(ask(&at, "SELECT (convert_from(state, 'UTF8')::json->>'steps')::int" ROW) == 2,
                   cases[i].label);
        CHECK_CASE(ask(&at, "SELECT count(*) FROM postroom.inbox") == 2, cases[i].label);
        CHECK_CASE(ask(&at, "SELECT count(*) FROM postroom.inbox_parked") == 0, cases[i].label);
        CHECK_CASE(counters(&at).lost == 1 && counters(&at).stepped == 2, cases[i].label);
        scene_end(&at);
    }
}

/* Who asks for the unit after the handler sees the saga as it was left. */
static void whoever_asks_for_the_unit_again_sees_it_saved(void **state)
{
    scene at;
    (void)state;
    scene_begin(&at, true, PR_INBOX_TRANSACTIONAL);
    take(&at, BEGUN, "m0");
    at.does = ASK_AFTER;
    at.sql = "INSERT INTO public.effects SELECT version::text FROM postroom.saga";
    take(&at, PAID, "m1");
    assert_int_equal(ask(&at, "SELECT id::int FROM effects"), 2);
    assert_int_equal(ask(&at, "SELECT version" ROW), 2);
    assert_int_equal(ask(&at, "SELECT count(*) FROM postroom.inbox"), 2);
    scene_end(&at);
}

/* The database will not have it, and says why: that is told, and charged. */
static void a_save_that_fails_is_told_in_its_own_words(void **state)
{
    scene at;
    (void)state;
    scene_begin(&at, false, PR_INBOX_TRANSACTIONAL);
    take(&at, BEGUN, "m0");
    db_run(at.on.db,
           "CREATE FUNCTION no() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN RAISE 'not today'; "
           "END$$; CREATE TRIGGER no BEFORE UPDATE ON postroom.saga FOR EACH ROW EXECUTE FUNCTION "
           "no()");
    at.does = RUN;
    at.sql = "INSERT INTO public.effects (id) VALUES ('ghost')";
    take(&at, PAID, "m1");
    assert_int_equal(ask(&at, "SELECT version" ROW), 1);
    assert_int_equal(ask(&at, "SELECT count(*) FROM effects"), 0);
    assert_int_equal(ask(&at, "SELECT count(*) FROM postroom.inbox"), 1);
    assert_int_equal(ask(&at, "SELECT count(*) FROM postroom.inbox_parked WHERE state = 'failed' "
                              "AND attempts = 1 AND last_error LIKE '%not today%' AND last_error "
                              "NOT LIKE '%handler broke%'"),
                     1);
    assert_int_equal(counters(&at).lost, 0);
    db_run(at.on.db, "DROP TRIGGER no ON postroom.saga");
    go_on(&at, at.seen + 1);
    assert_int_equal(ask(&at, "SELECT version" ROW), 2);
    assert_int_equal(ask(&at, "SELECT count(*) FROM postroom.inbox_parked"), 0);
    scene_end(&at);
}

/* ---- others at the row ---- */

static pr_endpoint_snapshot endpoint_counters(const scene *of)
{
    pr_error err = PR_ERROR_INIT;
    pr_endpoint_snapshot snapshot = {.size = (uint32_t)sizeof snapshot};
    check_ok(pr_endpoint_snapshot_get(of->endpoint, &snapshot, &err), &err, "counters");
    return snapshot;
}

/* A step waits for it up to its limit, and is put off then; a duplicate has no business with it. */
static void a_row_that_another_holds_is_waited_for_by_steps_alone(void **state)
{
    scene at;
    (void)state;
    scene_begin(&at, false, PR_INBOX_TRANSACTIONAL);
    take(&at, BEGUN, "m0");
    for (int i = 0; i < 3; i++) /* the first duplicate prepares */
        take(&at, PAID, "m1");
    int alone = at.requests;
    db_run(at.on.db, "BEGIN; SELECT FROM postroom.saga FOR UPDATE");
    take(&at, PAID, "m1");
    assert_int_equal(endpoint_counters(&at).duplicate, 3);
    assert_int_equal(at.requests, alone);
    take(&at, PAID, "m2");
    assert_int_equal(endpoint_counters(&at).deferred, 1);
    assert_int_equal(ask(&at, "SELECT count(*) FROM postroom.inbox_parked WHERE state = 'failed' "
                              "AND attempts = 0 AND last_error LIKE '%lock timeout%'"),
                     1);
    db_run(at.on.db, "COMMIT");
    go_on(&at, at.seen + 1);
    assert_int_equal(ask(&at, "SELECT version" ROW), 3);
    assert_int_equal(ask(&at, "SELECT count(*) FROM postroom.inbox_parked"), 0);
    assert_int_equal(endpoint_counters(&at).failed, 0);
    scene_end(&at);
}

/* ---- harm ---- */

static bool is_done(const scene *of, int64_t version)
{
    return ask(of, "SELECT coalesce(max(version), 0)" ROW) >= version &&
           ask(of, "SELECT count(*) FROM postroom.inbox") >= version &&
           ask(of, "SELECT count(*) FROM postroom.inbox_parked") == 0;
}

/* Whatever is harmed on its way, and whatever was heard of it: the step is done once. */
static void a_step_that_is_harmed_is_done_once(void **state)
{
    static const struct {
        const char *label;
        proxy_harm harm;
    } cases[] = {
        {"the request is cut", PROXY_CUT_REQUEST},      {"the reply is swallowed", PROXY_CUT_REPLY},
        {"all but its Sync comes", PROXY_CUT_SYNC},     {"the reply breaks off", PROXY_CUT_INSIDE},
        {"the backend is terminated", PROXY_TERMINATE},
    };
    scene at;
    int64_t version = 1;
    (void)state;
    scene_begin(&at, false, PR_INBOX_TRANSACTIONAL);
    take(&at, BEGUN, "m0");
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        for (int way = 1; way <= 2; way++) {
            char id[16];
            int64_t until = now_ms() + DONE_MS;
            snprintf(id, sizeof id, "m%zu-%d", i, way);
            postgres_proxy_arm(proxy, cases[i].harm, way);
            version++;
            deliver(&at, PAID, id);
            while (!is_done(&at, version) && now_ms() < until)
                go_on_once(&at);
            CHECK_CASE(postgres_proxy_disarm(proxy), cases[i].label);
            CHECK_CASE(ask(&at, "SELECT version" ROW) == version, cases[i].label);
            CHECK_CASE(ask(&at, "SELECT (convert_from(state, 'UTF8')::json->>'steps')::int" ROW) ==
                           version,
                       cases[i].label);
            CHECK_CASE(ask(&at, "SELECT count(*) FROM postroom.inbox") == version, cases[i].label);
        }
    }
    scene_end(&at);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_step_is_two_round_trips),
        cmocka_unit_test(one_without_an_instance_is_two_round_trips),
        cmocka_unit_test(what_moved_in_between_is_not_written_over),
        cmocka_unit_test(whoever_asks_for_the_unit_again_sees_it_saved),
        cmocka_unit_test(a_save_that_fails_is_told_in_its_own_words),
        cmocka_unit_test(a_row_that_another_holds_is_waited_for_by_steps_alone),
        cmocka_unit_test(a_step_that_is_harmed_is_done_once),
    };
    databases.server = postgres_server_start(NULL);
    proxy = postgres_proxy_start(databases.server);
    int failed = RUN_TESTS(tests);
    postgres_proxy_free(proxy);
    postgres_server_free(databases.server);
    return failed;
}
