/*
 * A message's way into a unit and out of it on PostgreSQL: how many round trips, what becomes of it
 * when one of them is harmed, what a handler may have done to the transaction meanwhile, and who
 * else is at the same mark.
 */
#include <limits.h>
#include <pthread.h>

#include "base/hash.h"
#include "core/inbox.h"
#include "postgres/ground.h"
#include "support/postgres_proxy.h"

#define CONSUMER "billing"
#define TOKEN    "0198c5f2-7d3e-7a10-8b2c-0000000000aa"
#define OTHER    "0198c5f2-7d3e-7a10-8b2c-0000000000bb"
#define MARKS    "SELECT count(*) FROM postroom.inbox"
#define PARKED   "SELECT count(*) FROM postroom.inbox_parked"
#define EFFECTS  "SELECT count(*) FROM effects"
#define BUSY_MS  300

static postgres_databases databases;
static postgres_proxy *proxy;

typedef struct scene {
    ground on;
    pr_store *store; /* through the proxy */
    int64_t marks, effects;
} scene;

static void scene_begin(scene *of)
{
    char name[64], through[POSTGRES_CONNINFO_SIZE];
    pr_error err = PR_ERROR_INIT;
    *of = (scene){.marks = 0};
    ground_make(&databases, NULL, &of->on);
    db_run(of->on.db, "CREATE TABLE effects (id text UNIQUE DEFERRABLE INITIALLY DEFERRED)");
    snprintf(name, sizeof name, "%.*s", (int)strcspn(of->on.uri + 14, "?"), of->on.uri + 14);
    postgres_proxy_uri(proxy, name, through);
    pr_postgres_options options = PR_POSTGRES_OPTIONS(.conninfo = through, .busy_ms = BUSY_MS);
    check_ok(pr_postgres_store_open(&options, &of->store, &err), &err, "open");
}

static void scene_end(scene *of)
{
    pr_store_free(of->store);
    ground_done(&of->on);
}

/* The server may have been crashed on purpose. */
static int64_t ask(const scene *of, const char *sql)
{
    PGresult *alive = PQexec(of->on.db, "SELECT 1");
    if (PQresultStatus(alive) != PGRES_TUPLES_OK)
        PQreset(of->on.db);
    PQclear(alive);
    return db_number(of->on.db, sql);
}

typedef struct visitor {
    pr_message message;
    pr__inbox_work work;
    pr_unit *unit;
    pr__inbox_entry entry;
    pr_outcome outcome;
    pr_error err;
} visitor;

static void visitor_init(visitor *v, const char *id, const char *key, const char *token)
{
    *v = (visitor){.message = PR_MESSAGE(.id = id, .type = TYPE_PLACED, .type_version = 1,
                                         .content_type = "application/json", .key = key,
                                         .body = "1", .body_size_bytes = 1, .occurred_at_us = 1),
                   .err = PR_ERROR_INIT};
    v->work = (pr__inbox_work){.message = &v->message,
                               .key = {.tenant = "", .consumer = CONSUMER, .message_id = id},
                               .token = token,
                               .order = PR_ORDER_HOLD};
    pr__content_hash(TYPE_PLACED, 1, "1", 1, v->work.hash);
}

static pr_status enter(const scene *of, visitor *v)
{
    return pr__inbox_enter(of->store, &v->work, &v->unit, &v->entry, &v->err);
}

static pr_status complete(visitor *v)
{
    pr_status status = pr__inbox_complete(v->unit, &v->work, &v->entry, &v->outcome, &v->err);
    v->unit = pr_unit_free(v->unit);
    return status;
}

static void run(const visitor *v, const char *sql)
{
    PGresult *result = PQexec(pr_postgres_unit_connection(v->unit), sql);
    PQclear(result);
}

static void effect(const visitor *v)
{
    char sql[100];
    snprintf(sql, sizeof sql, "INSERT INTO effects (id) VALUES ('%s')", v->message.id);
    run(v, sql);
}

/* A processing row of this id, held by TOKEN. */
static void park_held(const scene *of, const char *id)
{
    visitor v;
    visitor_init(&v, id, NULL, "");
    pr__inbox_park park = {.state = PR_STATE_PUBLISHING,
                           .attempts = 1,
                           .token = TOKEN,
                           .owner = "me",
                           .lease_ms = 60000};
    check_ok(pr__inbox_park_work(of->store, &v.work, &park, &v.entry, &v.err), &v.err, "park");
    assert_int_equal(v.entry, PR__INBOX_PARKED);
}

/* ---- round trips ---- */

static void count_from_now(void)
{
    postgres_proxy_arm(proxy, PROXY_DELAY, INT_MAX);
}

static void a_unit_with_a_mark_is_two_round_trips(void **state)
{
    static const struct {
        const char *label, *key, *token;
    } cases[] = {
        {"the first one, which prepares", NULL, ""},
        {"plain", NULL, ""},
        {"with a key", "k", ""},
        {"held by its token", NULL, TOKEN},
    };
    scene at;
    (void)state;
    scene_begin(&at);
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        visitor v;
        char id[16];
        snprintf(id, sizeof id, "m%zu", i);
        visitor_init(&v, id, cases[i].key, cases[i].token);
        if (cases[i].token[0])
            park_held(&at, id);
        count_from_now();
        check_ok(enter(&at, &v), &v.err, cases[i].label);
        CHECK_CASE(v.entry == PR__INBOX_RUN, cases[i].label);
        CHECK_CASE(postgres_proxy_requests(proxy) == 1, cases[i].label);
        check_ok(complete(&v), &v.err, cases[i].label);
        CHECK_CASE(v.outcome == PR_OUTCOME_COMMITTED, cases[i].label);
        CHECK_CASE(postgres_proxy_requests(proxy) == 2, cases[i].label);
        CHECK_CASE(db_number(at.on.db, MARKS) == (int64_t)i + 1, cases[i].label);
        CHECK_CASE(db_number(at.on.db, PARKED) == 0, cases[i].label);
    }
    postgres_proxy_disarm(proxy);
    scene_end(&at);
}

/* ---- harm ---- */

typedef struct harm_case {
    const char *label;
    proxy_harm harm;
    int at; /* 1 = the way in, 2 = the way out */
    bool committed;
} harm_case;

/* What the harm leaves behind is what is reported, and the same message goes its way after it. */
static void harm_one(scene *of, const harm_case *with, const char *id, const char *token)
{
    visitor v;
    if (token[0])
        park_held(of, id);
    visitor_init(&v, id, NULL, token);
    if (with->at == 1)
        postgres_proxy_arm(proxy, with->harm, 1);
    pr_status status = enter(of, &v);
    bool entered = with->at == 2 || with->harm == PROXY_DELAY;
    CHECK_CASE((status == PR_OK) == entered, with->label);
    if (entered) {
        effect(&v);
        if (with->at == 2) /* not counting the effect's */
            postgres_proxy_arm(proxy, with->harm, 1);
        status = complete(&v);
        CHECK_CASE(v.outcome == (with->committed ? PR_OUTCOME_COMMITTED : PR_OUTCOME_NOT_COMMITTED),
                   with->label);
    }
    CHECK_CASE((status == PR_OK) == with->committed, with->label);
    CHECK_CASE(status == PR_OK || v.err.retry == PR_RETRY_RECONNECT, with->label);
    CHECK_CASE(postgres_proxy_disarm(proxy), with->label);
    of->marks += with->committed;
    CHECK_CASE(ask(of, MARKS) == of->marks && ask(of, EFFECTS) == of->marks, with->label);
    CHECK_CASE(ask(of, PARKED) == (token[0] && !with->committed ? 1 : 0), with->label);
    if (with->committed)
        return;
    visitor_init(&v, id, NULL, token);
    check_ok(enter(of, &v), &v.err, with->label);
    effect(&v);
    check_ok(complete(&v), &v.err, with->label);
    of->marks++;
    CHECK_CASE(ask(of, MARKS) == of->marks && ask(of, PARKED) == 0, with->label);
}

static void what_is_harmed_on_its_way_is_told_as_it_is(void **state)
{
    static const harm_case cases[] = {
        {"in, the request is cut", PROXY_CUT_REQUEST, 1, false},
        {"in, the reply is swallowed", PROXY_CUT_REPLY, 1, false},
        {"in, all but its Sync comes", PROXY_CUT_SYNC, 1, false},
        {"in, the reply breaks off", PROXY_CUT_INSIDE, 1, false},
        {"in, the backend is terminated", PROXY_TERMINATE, 1, false},
        {"in, the server crashes", PROXY_CRASH, 1, false},
        {"in, late", PROXY_DELAY, 1, true},
        {"out, the request is cut", PROXY_CUT_REQUEST, 2, false},
        {"out, the reply is swallowed", PROXY_CUT_REPLY, 2, true},
        {"out, all but its Sync comes", PROXY_CUT_SYNC, 2, true},
        {"out, the reply breaks off", PROXY_CUT_INSIDE, 2, true},
        {"out, the backend is terminated", PROXY_TERMINATE, 2, false},
        {"out, the server crashes", PROXY_CRASH, 2, false},
        {"out, late", PROXY_DELAY, 2, true},
    };
    scene at;
    (void)state;
    scene_begin(&at);
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        for (int held = 0; held < 2; held++) {
            char id[16];
            snprintf(id, sizeof id, "m%zu-%d", i, held);
            harm_one(&at, &cases[i], id, held ? TOKEN : "");
        }
    }
    scene_end(&at);
}

/* ---- what the handler did ---- */

static void a_transaction_that_is_not_the_marks_any_more_is_not_committed(void **state)
{
    static const struct {
        const char *label, *does;
        pr_status status;
        const char *error;
        pr_outcome outcome;
    } cases[] = {
        {"rolls back and chains", "ROLLBACK AND CHAIN", PR_E_STATE, "its mark is gone",
         PR_OUTCOME_NOT_COMMITTED},
        {"the same, and writes", "ROLLBACK AND CHAIN; INSERT INTO effects (id) VALUES ('ghost')",
         PR_E_STATE, "its mark is gone", PR_OUTCOME_NOT_COMMITTED},
        {"rolls back, begins", "ROLLBACK; BEGIN", PR_E_STATE, "ended or broke",
         PR_OUTCOME_NOT_COMMITTED},
        {"an error", "SELECT 1 / 0", PR_E_STATE, "ended or broke", PR_OUTCOME_NOT_COMMITTED},
        {"a constraint at the commit", "INSERT INTO effects (id) VALUES ('a'), ('a')", PR_E_BACKEND,
         "commit: ", PR_OUTCOME_NOT_COMMITTED},
        {"drops the statements", "DEALLOCATE ALL", PR_E_BACKEND, "26000", PR_OUTCOME_NOT_COMMITTED},
    };
    scene at;
    (void)state;
    scene_begin(&at);
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        visitor v;
        visitor_init(&v, "first", NULL, "");
        check_ok(enter(&at, &v), &v.err, cases[i].label);
        effect(&v);
        run(&v, cases[i].does);
        pr_status status = complete(&v);
        check_error(status, &v.err, cases[i].status, cases[i].error, cases[i].label);
        CHECK_CASE(v.outcome == cases[i].outcome, cases[i].label);
        CHECK_CASE(db_number(at.on.db, MARKS) == (int64_t)i, cases[i].label);
        CHECK_CASE(db_number(at.on.db, EFFECTS) == (int64_t)i, cases[i].label);
        char id[16];
        snprintf(id, sizeof id, "m%zu", i);
        visitor_init(&v, id, NULL, ""); /* and the store goes on */
        check_ok(enter(&at, &v), &v.err, cases[i].label);
        effect(&v);
        check_ok(complete(&v), &v.err, cases[i].label);
    }
    scene_end(&at);
}

/* Something stood between the unit and its inbox, and put a savepoint before the mark. */
static void a_savepoint_before_the_mark_may_take_it_back(void **state)
{
    scene at;
    visitor v;
    (void)state;
    scene_begin(&at);
    for (int back = 1; back >= 0; back--) {
        visitor_init(&v, "m", NULL, "");
        check_ok(pr_unit_begin(at.store, &v.unit, &v.err), &v.err, "begin");
        run(&v, "SAVEPOINT before");
        check_ok(pr__inbox_enter_unit(v.unit, &v.work, &v.entry, &v.err), &v.err, "enter");
        assert_int_equal(v.entry, PR__INBOX_RUN);
        if (back)
            run(&v, "ROLLBACK TO SAVEPOINT before");
        effect(&v);
        pr_status status = complete(&v);
        if (back)
            check_error(status, &v.err, PR_E_STATE, "its mark is gone", "taken back");
        else
            check_ok(status, &v.err, "kept");
        assert_int_equal(db_number(at.on.db, MARKS), back ? 0 : 1);
        assert_int_equal(db_number(at.on.db, EFFECTS), back ? 0 : 1);
    }
    scene_end(&at);
}

static void a_row_that_somebody_else_has_now_stops_the_commit(void **state)
{
    static const struct {
        const char *label, *does;
        pr_status status;
        const char *error; /* "" = lost */
    } cases[] = {
        {"taken over", "UPDATE postroom.inbox_parked SET lock_token = '" OTHER "'", PR_OK, ""},
        {"gone", "DELETE FROM postroom.inbox_parked", PR_OK, ""},
        {"read only", "SET TRANSACTION READ ONLY", PR_E_STATE, "broke its own transaction"},
    };
    scene at;
    (void)state;
    scene_begin(&at);
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        visitor v;
        char id[16];
        snprintf(id, sizeof id, "m%zu", i);
        park_held(&at, id);
        visitor_init(&v, id, NULL, TOKEN);
        check_ok(enter(&at, &v), &v.err, cases[i].label);
        effect(&v);
        run(&v, cases[i].does);
        pr_status status = complete(&v);
        if (cases[i].status == PR_OK)
            CHECK_CASE(status == PR_OK && v.entry == PR__INBOX_LOST, cases[i].label);
        else
            check_error(status, &v.err, cases[i].status, cases[i].error, cases[i].label);
        CHECK_CASE(v.outcome == PR_OUTCOME_NOT_COMMITTED, cases[i].label);
        CHECK_CASE(db_number(at.on.db, MARKS) == 0, cases[i].label);
        CHECK_CASE(db_number(at.on.db, EFFECTS) == 0, cases[i].label);
        CHECK_CASE(db_number(at.on.db, PARKED " WHERE lock_token = '" TOKEN "'") == (int64_t)i + 1,
                   cases[i].label);
    }
    scene_end(&at);
}

/* ---- others at the same mark ---- */

#define WAITS                                                                                      \
    "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = "                 \
    "current_database()"
#define PARK(id)                                                                                   \
    "INSERT INTO postroom.inbox_parked (tenant, consumer, message_id, original_id, body_hash, "    \
    "type, type_version, content_type, key, body, occurred_at, state, next_attempt_at, "           \
    "parked_at) SELECT '', '" CONSUMER "', '" id "', '', body_hash, 't', 1, 'c', 'k', '', "        \
    "now(), 'failed', now(), now() FROM postroom.inbox WHERE message_id = 'm'; DELETE FROM "       \
    "postroom.inbox WHERE message_id = 'm'; COMMIT"

/* Another at the mark, whose transaction goes on once somebody waits for it. */
typedef struct rival {
    PGconn *db, *eyes;
    const char *does;
    bool done;
} rival;

static void *rival_run(void *user)
{
    rival *r = user;
    int64_t until = now_ms() + 10000;
    for (bool waits = false; !waits && now_ms() < until;) {
        PGresult *result = PQexec(r->eyes, WAITS);
        waits = PQntuples(result) > 0;
        PQclear(result);
    }
    PGresult *result = PQexec(r->db, r->does);
    r->done = PQresultStatus(result) == PGRES_COMMAND_OK;
    PQclear(result);
    return NULL;
}

static void rival_hold(const scene *of, rival *r)
{
    visitor v;
    char hash[2 * PR_CONTENT_HASH_SIZE + 1], sql[256];
    visitor_init(&v, "m", NULL, "");
    for (size_t i = 0; i < PR_CONTENT_HASH_SIZE; i++)
        snprintf(hash + 2 * i, 3, "%02x", v.work.hash[i]);
    r->db = db_open(of->on.uri);
    r->eyes = db_open(of->on.uri);
    snprintf(sql, sizeof sql,
             "BEGIN; INSERT INTO postroom.inbox SELECT '', '" CONSUMER "', 'm', '\\x%s', now()",
             hash);
    db_run(r->db, sql);
}

static void what_was_waited_for_is_seen_as_it_stands_then(void **state)
{
    static const struct {
        const char *label, *does;
        pr__inbox_entry entry;
        int64_t marks;
    } cases[] = {
        {"it commits its mark", "COMMIT", PR__INBOX_DONE, 1},
        {"it rolls back", "ROLLBACK", PR__INBOX_RUN, 0},
        {"it parks the message", PARK("m"), PR__INBOX_COPY, 0},
        {"it parks an older one of the key", PARK("older"), PR__INBOX_HELD, 0},
    };
    (void)state;
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        scene at;
        visitor v;
        pthread_t thread;
        rival other = {.does = cases[i].does};
        scene_begin(&at);
        visitor_init(&v, "m", "k", "");
        pr_postgres_options options = PR_POSTGRES_OPTIONS(.conninfo = at.on.uri, .busy_ms = 20000);
        pr_store_free(at.store);
        check_ok(pr_postgres_store_open(&options, &at.store, &v.err), &v.err, "open");
        rival_hold(&at, &other);
        assert_int_equal(pthread_create(&thread, NULL, rival_run, &other), 0);
        pr_status status = enter(&at, &v);
        pthread_join(thread, NULL);
        check_ok(status, &v.err, cases[i].label);
        CHECK_CASE(other.done && v.entry == cases[i].entry, cases[i].label);
        v.unit = pr_unit_free(v.unit);
        CHECK_CASE(db_number(at.on.db, MARKS) == cases[i].marks, cases[i].label);
        PQfinish(other.db);
        PQfinish(other.eyes);
        scene_end(&at);
    }
}

static void a_mark_that_is_waited_for_too_long_is_busy_and_holds_nothing(void **state)
{
    scene at;
    visitor v;
    rival other = {.does = NULL};
    (void)state;
    scene_begin(&at);
    rival_hold(&at, &other);
    visitor_init(&v, "m", NULL, "");
    assert_int_equal(enter(&at, &v), PR_E_BUSY);
    assert_int_equal(v.err.retry, PR_RETRY_SAME);
    assert_null(v.unit);
    db_run(other.db, "ROLLBACK");
    visitor_init(&v, "m", NULL, "");
    check_ok(enter(&at, &v), &v.err, "after it");
    check_ok(complete(&v), &v.err, "after it");
    PQfinish(other.db);
    PQfinish(other.eyes);
    scene_end(&at);
}

/* What the handler runs is its own: none of it is planned or limited by what the way in set. */
static void a_unit_has_its_settings_and_no_more(void **state)
{
    static const struct {
        const char *name, *value;
    } settings[] = {
        {"lock_timeout", "300ms"},        {"statement_timeout", "0"},
        {"synchronous_commit", "on"},     {"idle_in_transaction_session_timeout", "1min"},
        {"transaction_read_only", "off"}, {"transaction_isolation", "read committed"},
        {"plan_cache_mode", "auto"},      {"enable_seqscan", "on"},
    };
    scene at;
    visitor v;
    (void)state;
    scene_begin(&at);
    visitor_init(&v, "m", NULL, "");
    check_ok(enter(&at, &v), &v.err, "enter");
    for (size_t i = 0; i < COUNT_OF(settings); i++) {
        char sql[100];
        snprintf(sql, sizeof sql, "SHOW %s", settings[i].name);
        PGresult *result = PQexec(pr_postgres_unit_connection(v.unit), sql);
        if (strcmp(PQgetvalue(result, 0, 0), settings[i].value) != 0)
            fail_msg("%s is %s", settings[i].name, PQgetvalue(result, 0, 0));
        PQclear(result);
    }
    check_ok(complete(&v), &v.err, "complete");
    scene_end(&at);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_unit_with_a_mark_is_two_round_trips),
        cmocka_unit_test(what_is_harmed_on_its_way_is_told_as_it_is),
        cmocka_unit_test(a_transaction_that_is_not_the_marks_any_more_is_not_committed),
        cmocka_unit_test(a_savepoint_before_the_mark_may_take_it_back),
        cmocka_unit_test(a_row_that_somebody_else_has_now_stops_the_commit),
        cmocka_unit_test(what_was_waited_for_is_seen_as_it_stands_then),
        cmocka_unit_test(a_mark_that_is_waited_for_too_long_is_busy_and_holds_nothing),
        cmocka_unit_test(a_unit_has_its_settings_and_no_more),
    };
    databases.server = postgres_server_start(NULL);
    proxy = postgres_proxy_start(databases.server);
    int failed = RUN_TESTS(tests);
    postgres_proxy_free(proxy);
    postgres_server_free(databases.server);
    return failed;
}
