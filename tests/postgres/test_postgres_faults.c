/*
 * Whatever is cut, swallowed, delayed, terminated or crashes at whichever request of an operation:
 * nothing is lost, nothing is settled twice, an error that is not "unknown" means that nothing was
 * written, and a commit whose answer was lost is told as it was.
 */
#include "postgres/ground.h"
#include "support/postgres_proxy.h"

#define STEPS_MAX 60
#define LEASE_MS  1 /* over at once, so that another may take over */

static postgres_databases databases;
static postgres_proxy *proxy;

static const struct {
    const char *label;
    proxy_harm harm;
    int stride; /* in the short form: every so many steps of an operation with many */
} harms[] = {
    {"the request is cut", PROXY_CUT_REQUEST, 5},
    {"the reply is swallowed", PROXY_CUT_REPLY, 1}, /* one of them is a commit's */
    {"the reply is late", PROXY_DELAY, 15},
    {"the backend is terminated", PROXY_TERMINATE, 8},
    {"the server crashes", PROXY_CRASH, 13},
};

/* With POSTROOM_SOAK=1 every harm at every step; without, at some where there are many. */
static int stride_of(size_t harm, bool few_steps)
{
    const char *soak = getenv("POSTROOM_SOAK");
    if (soak && soak[0] == '1')
        return 1;
    return few_steps ? 1 : harms[harm].stride;
}

/* One database, a store on it through the proxy, and how many messages were committed to it. */
typedef struct scene {
    char uri[POSTGRES_CONNINFO_SIZE];
    pr_store *store;
    pr_store *honest; /* another process, not through the proxy */
    PGconn *db;       /* other hands */
    int64_t sent;
    bool crashes;      /* the server does, on purpose */
    const char *label; /* of what is being done to it */
    char what[120];
} scene;

static void scene_begin(scene *of, const char *operation, const char *harm)
{
    char name[64], through[POSTGRES_CONNINFO_SIZE];
    pr_migrate_options opt = {.size = (uint32_t)sizeof opt, .lanes = 1};
    *of = (scene){.sent = 0};
    snprintf(of->what, sizeof of->what, "%s: %s", operation, harm);
    of->label = of->what;
    postgres_database_make(&databases, of->uri);
    ground_migrate(of->uri, &opt);
    snprintf(name, sizeof name, "%.*s", (int)strcspn(of->uri + 14, "?"), of->uri + 14);
    postgres_proxy_uri(proxy, name, through);
    of->store = ground_store(through);
    of->honest = ground_store(of->uri);
    of->db = db_open(of->uri);
}

static void scene_end(scene *of)
{
    PQfinish(of->db);
    pr_store_free(of->honest);
    pr_store_free(of->store);
}

static int64_t ask(const scene *of, const char *sql)
{
    PGresult *alive = PQexec(of->db, "SELECT 1");
    if (PQresultStatus(alive) != PGRES_TUPLES_OK)
        PQreset(of->db); /* the server was crashed on purpose */
    PQclear(alive);
    return db_number(of->db, sql);
}

static int64_t published(const scene *of)
{
    return ask(of, "SELECT count(*) FROM postroom.outbox_state WHERE state = 'published'");
}

static int64_t written(const scene *of)
{
    return ask(of, "SELECT (SELECT count(*) FROM postroom.outbox_claim) + (SELECT count(*) FROM "
                   "postroom.outbox)");
}

/* By an honest store: messages of two keys. */
static void send_some(scene *of, int count)
{
    for (int i = 0; i < count; i++, of->sent++)
        ground_post(of->honest, i % 2 ? "a" : NULL, "x");
}

static pr__claim_options options_of(uint32_t batch_max)
{
    return (pr__claim_options){.reader = PR_READER_RELAY,
                               .lease_ms = LEASE_MS,
                               .batch_max = batch_max,
                               .bytes_max = 1024 * 1024,
                               .owner = "faults"};
}

static void publish_all(pr__batch *batch)
{
    for (uint32_t i = 0; i < batch->item_count; i++)
        batch->items[i].result = PR__RESULT_PUBLISHED;
    pr__batch_close(batch);
}

/* After an error: unless it is "unknown", nothing was written. */
static void check_nothing(const scene *of, pr_status status, const pr_error *err, int64_t before)
{
    if (status == PR_OK || err->retry == PR_RETRY_UNKNOWN)
        return;
    int64_t now = written(of);
    if (now != before)
        fail_msg("%s: '%s' (retry %d) although something was written", of->label, err->message,
                 (int)err->retry);
}

/* ---- the operations ---- */

static void settle_all(scene *of, pr__batch *batch, const pr__claim_options *next)
{
    pr_error err = PR_ERROR_INIT;
    pr__settle_report report = {0};
    pr__batch *ret_next = NULL;
    int64_t before = written(of), done = published(of);
    publish_all(batch);
    pr_status status =
        pr__store_settle(of->store, batch, next, &report, next ? &ret_next : NULL, &err);
    check_nothing(of, status, &err, before);
    if (status == PR_OK && report.fenced_slices > 0)
        fail_msg("%s: fenced by nobody", of->label);
    if (status == PR_OK && published(of) != done + batch->item_count)
        fail_msg("%s: settled, but not in the view", of->label);
    pr__batch_free(ret_next);
}

static void claim_and_settle(scene *of)
{
    pr_error err = PR_ERROR_INIT;
    pr__claim_options opt = options_of(2);
    AUTO(pr__batch) batch = NULL;
    /* bodies are read after its commit: then its lease has to run out */
    if (pr__store_claim(of->store, &opt, &batch, &err) == PR_OK && batch)
        settle_all(of, batch, NULL);
}

static void claim_settle_and_claim(scene *of)
{
    pr_error err = PR_ERROR_INIT;
    pr__claim_options opt = options_of(2);
    AUTO(pr__batch) batch = NULL;
    if (pr__store_claim(of->store, &opt, &batch, &err) == PR_OK && batch)
        settle_all(of, batch, &opt);
}

static void renew(scene *of)
{
    pr_error err = PR_ERROR_INIT;
    pr__claim_options opt = options_of(2);
    AUTO(pr__batch) batch = NULL;
    if (pr__store_claim(of->store, &opt, &batch, &err) != PR_OK || !batch)
        return;
    pr_status status = pr__store_renew(of->store, batch, LEASE_MS, &err);
    if (status == PR_OK)
        settle_all(of, batch, NULL);
}

/* The first one is parked as failed, due at once; then claimed and published. */
static void park_and_retry(scene *of)
{
    pr_error err = PR_ERROR_INIT;
    pr__claim_options opt = options_of(2);
    pr__settle_report report = {0};
    AUTO(pr__batch) batch = NULL;
    AUTO(pr__batch) parked = NULL;
    if (pr__store_claim(of->store, &opt, &batch, &err) != PR_OK || !batch)
        return;
    publish_all(batch);
    batch->items[0].result = PR__RESULT_FAILED;
    pr__batch_set_error(batch, &batch->items[0], "on purpose");
    pr__batch_close(batch);
    pr_error_clear(&err);
    if (pr__store_settle(of->store, batch, NULL, &report, NULL, &err) != PR_OK)
        return;
    if (pr__store_claim_parked(of->store, &opt, &parked, &err) == PR_OK && parked) {
        publish_all(parked);
        pr_status status = pr__store_settle(of->store, parked, NULL, &report, NULL, &err);
        (void)status; /* what is not settled comes again */
    }
}

static void commit_unit(scene *of)
{
    pr_error err = PR_ERROR_INIT;
    pr_unit *unit = NULL;
    pr_outcome outcome = PR_OUTCOME_NOT_COMMITTED;
    pr_message message = PR_MESSAGE(.type = TYPE_PLACED, .key = "u", .destination = TO_BROKER,
                                    .body = "u", .body_size_bytes = 1);
    int64_t before = ask(of, "SELECT count(*) FROM postroom.outbox");
    pr_status status = pr_unit_begin(of->store, &unit, &err);
    if (status == PR_OK)
        status = pr_unit_enqueue(unit, &message, NULL, &err);
    if (status == PR_OK)
        status = pr_unit_commit(unit, &outcome, &err);
    pr_unit_free(unit);
    int64_t rows = ask(of, "SELECT count(*) FROM postroom.outbox") - before;
    of->sent += rows;
    if (outcome == PR_OUTCOME_UNKNOWN && of->crashes)
        return; /* its number may be one of the future after the crash, which proves nothing */
    if (outcome == PR_OUTCOME_UNKNOWN)
        fail_msg("%s: the outcome could have been found out: %s", of->label, err.message);
    if (rows != (outcome == PR_OUTCOME_COMMITTED))
        fail_msg("%s: told outcome %d, but %lld rows stand", of->label, (int)outcome,
                 (long long)rows);
    if ((status == PR_OK) != (outcome == PR_OUTCOME_COMMITTED))
        fail_msg("%s: status %s with outcome %d", of->label, pr_status_text(status), (int)outcome);
}

/* A delayed one becomes due and is moved into the log. When the next one is due is asked after the
   commit, so an error says nothing of it; the end does. */
static void promote(scene *of)
{
    pr_error err = PR_ERROR_INIT;
    uint32_t count = 0;
    int64_t next_ms = 0;
    pr_status status = pr__store_promote(of->store, 10, &count, &next_ms, &err);
    if (status == PR_OK && count != 1)
        fail_msg("%s: %u promoted", of->label, count);
}

static void delay_some(scene *of)
{
    db_run_at(of->uri,
              "SELECT postroom.enqueue('" TYPE_PLACED "', 'd'::text, destination => '" TO_BROKER
              "', deliver_at => clock_timestamp() + interval '1 hour')");
    db_run_at(of->uri,
              "UPDATE postroom.outbox_parked SET next_attempt_at = now() WHERE reader = 0");
    of->sent++;
}

static void post_four(scene *of)
{
    send_some(of, 4);
}

static void post_none(scene *of)
{
    (void)of;
}

static const struct {
    const char *label;
    void (*before)(scene *of);
    void (*run)(scene *of);
    bool few_steps; /* each is tried in the short form too */
} operations[] = {
    {"claim, settle", post_four, claim_and_settle, false},
    {"settle and claim in one", post_four, claim_settle_and_claim, false},
    {"renew", post_four, renew, false},
    {"park, claim it, settle it", post_four, park_and_retry, false},
    {"unit", post_none, commit_unit, true},
    {"promote", delay_some, promote, true},
};

/* An honest relay finishes: everything is published, each counted once. */
static void finish(scene *of)
{
    pr_store *honest = of->honest;
    pr_error err = PR_ERROR_INIT;
    pr__claim_options opt = options_of(100);
    uint32_t count = 0;
    int64_t next_ms = 0, until = now_ms() + 30000;
    int64_t clock_us = 0;
    pr_status alive = pr__store_now(honest, &clock_us, NULL); /* after a crash it connects again */
    (void)alive;
    while (published(of) < of->sent && now_ms() < until) {
        pr__batch *parked = NULL;
        check_ok(pr__store_promote(honest, 100, &count, &next_ms, &err), &err, of->label);
        ground_drain(honest, 1000, NULL, NULL);
        db_run(of->db, "UPDATE postroom.outbox_parked SET next_attempt_at = now(), "
                       "locked_until = now() WHERE reader = 1");
        check_ok(pr__store_claim_parked(honest, &opt, &parked, &err), &err, of->label);
        if (parked) {
            pr__settle_report report = {0};
            publish_all(parked);
            check_ok(pr__store_settle(honest, parked, NULL, &report, NULL, &err), &err, of->label);
            pr__batch_free(parked);
        }
    }
    if (published(of) != of->sent || ask(of, "SELECT count(*) FROM postroom.outbox") != of->sent)
        fail_msg("%s: %lld of %lld published", of->label, (long long)published(of),
                 (long long)of->sent);
    int64_t counted = ask(of, "SELECT sum(acked) FROM postroom.outbox_claim AS c WHERE seq = "
                              "(SELECT max(seq) FROM postroom.outbox_claim AS o WHERE o.lane = "
                              "c.lane AND o.reader = c.reader) AND reader = 1");
    if (counted != of->sent)
        fail_msg("%s: the journal counted %lld of %lld", of->label, (long long)counted,
                 (long long)of->sent);
}

static void every_step_of(size_t operation)
{
    for (size_t i = 0; i < COUNT_OF(harms); i++) {
        scene at;
        int step = 1;
        bool done = true;
        scene_begin(&at, operations[operation].label, harms[i].label);
        for (; done && step < STEPS_MAX; step += stride_of(i, operations[operation].few_steps)) {
            snprintf(at.what, sizeof at.what, "%s: %s, step %d", operations[operation].label,
                     harms[i].label, step);
            operations[operation].before(&at);
            at.crashes = harms[i].harm == PROXY_CRASH;
            postgres_proxy_arm(proxy, harms[i].harm, step);
            operations[operation].run(&at);
            done = postgres_proxy_disarm(proxy);
            finish(&at);
        }
        print_message("# %s ended it\n", at.what);
        assert_true(step > 2 && step < STEPS_MAX); /* it was hit, and it came to an end */
        scene_end(&at);
    }
}

static void claim_and_settle_at_each_step(void **state)
{
    (void)state;
    every_step_of(0);
}

static void settle_and_claim_at_each_step(void **state)
{
    (void)state;
    every_step_of(1);
}

static void renew_at_each_step(void **state)
{
    (void)state;
    every_step_of(2);
}

static void parked_at_each_step(void **state)
{
    (void)state;
    every_step_of(3);
}

static void unit_at_each_step(void **state)
{
    (void)state;
    every_step_of(4);
}

static void promote_at_each_step(void **state)
{
    (void)state;
    every_step_of(5);
}

/* After a crash the id of a transaction that never reached the disk may be another's, who has
   committed. Made here by a trigger that takes the unit's rows back as it commits, and a reply to
   COMMIT that is swallowed: the server says "committed", and what the unit wrote is not there. */
static void an_id_alone_proves_nothing(void **state)
{
    static const struct {
        const char *label;
        bool taken_back;
        pr_outcome outcome;
    } cases[] = {
        {"the row is not there", true, PR_OUTCOME_NOT_COMMITTED},
        {"the row is there", false, PR_OUTCOME_COMMITTED},
    };
    (void)state;
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        scene at;
        int64_t rows = 0;
        pr_outcome outcome = PR_OUTCOME_UNKNOWN;
        scene_begin(&at, "unit", cases[i].label);
        if (cases[i].taken_back)
            db_run(at.db,
                   "CREATE FUNCTION public.take_back() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN "
                   "DELETE FROM postroom.outbox WHERE id = NEW.id; RETURN NULL; END'; CREATE "
                   "CONSTRAINT TRIGGER take_back AFTER INSERT ON postroom.outbox DEFERRABLE "
                   "INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION public.take_back()");
        for (int turn = 0; turn < 2; turn++) { /* the first prepares what a commit asks */
            pr_error err = PR_ERROR_INIT;
            pr_unit *unit = NULL;
            pr_message message = PR_MESSAGE(.type = TYPE_PLACED);
            int64_t before = ask(&at, "SELECT count(*) FROM postroom.outbox");
            check_ok(pr_unit_begin(at.store, &unit, &err), &err, "begin");
            check_ok(pr_unit_enqueue(unit, &message, NULL, &err), &err, "enqueue");
            if (turn == 1) /* it looks at its transaction, then commits */
                postgres_proxy_arm(proxy, PROXY_CUT_REPLY, 2);
            outcome = PR_OUTCOME_UNKNOWN;
            pr_status status = pr_unit_commit(unit, &outcome, &err);
            (void)status;
            pr_unit_free(unit);
            rows = ask(&at, "SELECT count(*) FROM postroom.outbox") - before;
        }
        assert_true(postgres_proxy_disarm(proxy));
        CHECK_CASE(rows == !cases[i].taken_back, cases[i].label);
        CHECK_CASE(outcome == cases[i].outcome, cases[i].label);
        scene_end(&at);
    }
}

/* Each step of a migration, of an empty database. */
static void migration_at_each_step(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(harms); i++) {
        bool done = true;
        for (int step = 1; done && step < STEPS_MAX; step += stride_of(i, false)) {
            pr_error err = PR_ERROR_INIT;
            char uri[POSTGRES_CONNINFO_SIZE], through[POSTGRES_CONNINFO_SIZE], name[64];
            pr_store *store = NULL;
            postgres_database_make(&databases, uri);
            snprintf(name, sizeof name, "%.*s", (int)strcspn(uri + 14, "?"), uri + 14);
            postgres_proxy_uri(proxy, name, through);
            pr_postgres_options options =
                PR_POSTGRES_OPTIONS(.conninfo = through, .schema_check_off = true);
            check_ok(pr_postgres_store_open(&options, &store, &err), &err, harms[i].label);
            postgres_proxy_arm(proxy, harms[i].harm, step);
            pr_status status = pr_store_migrate(store, NULL, NULL, &err);
            done = postgres_proxy_disarm(proxy);
            pr_store_free(store);
            CHECK_CASE(done || status == PR_OK, harms[i].label);
            ground_migrate(uri, NULL); /* whatever stands, the next one ends it */
            store = ground_store(uri);
            ground_post(store, "k", "x");
            assert_int_equal(ground_drain(store, 1000, NULL, NULL), 1);
            pr_store_free(store);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(claim_and_settle_at_each_step),
        cmocka_unit_test(renew_at_each_step),
        cmocka_unit_test(settle_and_claim_at_each_step),
        cmocka_unit_test(parked_at_each_step),
        cmocka_unit_test(unit_at_each_step),
        cmocka_unit_test(an_id_alone_proves_nothing),
        cmocka_unit_test(promote_at_each_step),
        cmocka_unit_test(migration_at_each_step),
    };
    databases.server = postgres_server_start(NULL);
    proxy = postgres_proxy_start(databases.server);
    int failed = RUN_TESTS(tests);
    postgres_proxy_free(proxy);
    postgres_server_free(databases.server);
    return failed;
}
