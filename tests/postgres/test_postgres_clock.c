/*
 * The host's clock is wrong by an hour or a day, and jumps; the server is read-only for a while.
 * What is due, leased or expired goes by the database's clock alone, and an outage charges nothing.
 */
#include "postgres/shop.h"
#include "support/enqueue.h"

#define HOUR_US    INT64_C(3600000000)
#define DAY_US     (24 * HOUR_US)
#define DONE_MS    30000
#define DUE_MS     1200
#define LEASE_MS   700
#define OUTAGE_MS  10000
#define IDLE_STEPS 300

static postgres_databases databases;

static const struct {
    const char *label;
    int64_t offset_us;
} clocks[] = {
    {"a day behind", -DAY_US},
    {"a day ahead", DAY_US},
    {"an hour behind", -HOUR_US},
    {"an hour ahead", HOUR_US},
};

typedef struct scene {
    shop shop;
    ground on;
} scene;

static void scene_begin(scene *of, int64_t offset_us)
{
    *of = (scene){.shop.wall_offset_us = offset_us};
    ground_make(&databases, NULL, &of->on);
    shop_prepare(of->on.uri);
    shop_open(&of->shop, of->on.uri, of->on.uri);
}

static void scene_end(scene *of)
{
    shop_close(&of->shop);
    ground_done(&of->on);
}

static int64_t server_now_us(const scene *of)
{
    return db_number(of->on.db, "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint");
}

/* Through the store whose clock is wrong. */
static void post(scene *of, const char *body, int64_t deliver_at_us, int64_t expires_at_us)
{
    pr_message message = PR_MESSAGE(.type = TYPE_PLACED, .destination = SHOP_TOPIC, .body = body,
                                    .body_size_bytes = strlen(body), .deliver_at_us = deliver_at_us,
                                    .expires_at_us = expires_at_us);
    enqueue_and_commit(of->shop.relay_store, &message);
}

/* Until so many effects stand. */
static void run_until(scene *of, int64_t effects, const char *label)
{
    int64_t until = now_ms() + DONE_MS;
    while (db_number(of->on.db, "SELECT count(*) FROM effects") < effects) {
        if (now_ms() > until)
            fail_msg("case '%s': not done", label);
        shop_step_relay(&of->shop);
        shop_step_endpoint(&of->shop);
        of->shop.skipped_us += 1000;
    }
}

static void delayed_and_expired_ones_go_by_the_server(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(clocks); i++) {
        scene at;
        scene_begin(&at, clocks[i].offset_us);
        int64_t now_us = server_now_us(&at), due_us = now_us + DUE_MS * 1000;
        char sql[200];
        post(&at, "now", now_us - 1000000, now_us + 600 * INT64_C(1000000));
        post(&at, "expired", 0, now_us - 1000000);
        post(&at, "delayed", due_us, 0);
        CHECK_CASE(db_number(at.on.db, "SELECT count(*) FROM postroom.outbox_parked WHERE "
                                       "reader = 0") == 1,
                   clocks[i].label);
        run_until(&at, 2, clocks[i].label);
        for (int n = 0; n < IDLE_STEPS; n++) { /* and no third */
            shop_step_relay(&at.shop);
            shop_step_endpoint(&at.shop);
        }
        CHECK_CASE(db_number(at.on.db, "SELECT count(*) FROM effects") == 2, clocks[i].label);
        snprintf(sql, sizeof sql,
                 "SELECT count(*) FROM effects WHERE at >= to_timestamp(%lld / 1e6)",
                 (long long)due_us);
        CHECK_CASE(db_number(at.on.db, sql) == 1, clocks[i].label);
        CHECK_CASE(db_number(at.on.db, "SELECT count(*) FROM postroom.outbox AS o JOIN effects AS "
                                       "e ON e.id = o.message_id::text WHERE convert_from(o.body, "
                                       "'UTF8') = 'expired'") == 0,
                   clocks[i].label);
        pr_relay_snapshot seen = {.size = (uint32_t)sizeof seen};
        assert_int_equal(pr_relay_snapshot_get(at.shop.relay, &seen, NULL), PR_OK);
        CHECK_CASE(seen.expired == 1 && seen.published == 2, clocks[i].label);
        scene_end(&at);
    }
}

static pr__batch *claim(pr_store *store)
{
    pr_error err = PR_ERROR_INIT;
    pr__claim_options opt = {.reader = PR_READER_RELAY,
                             .lease_ms = LEASE_MS,
                             .batch_max = 10,
                             .bytes_max = 1024 * 1024,
                             .owner = "clock"};
    pr__batch *batch = NULL;
    check_ok(pr__store_claim(store, &opt, &batch, &err), &err, "claim");
    return batch;
}

/* Two hosts two days apart: neither takes from the other what is leased, nor waits a day for it. */
static void leases_go_by_the_server(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(clocks); i++) {
        scene at;
        scene_begin(&at, clocks[i].offset_us);
        shop other = {.wall_offset_us = -clocks[i].offset_us};
        shop_open(&other, at.on.uri, at.on.uri);
        ground_post(at.shop.relay_store, "k", "x");
        pr__batch *first = claim(at.shop.relay_store);
        assert_non_null(first);
        pr__batch *second = NULL;
        int64_t until = now_ms() + DONE_MS;
        while (!second && now_ms() < until)
            second = claim(other.relay_store);
        CHECK_CASE(second && second->items[0].log_id == first->items[0].log_id, clocks[i].label);
        CHECK_CASE(db_number(at.on.db,
                             "SELECT count(*) FROM postroom.outbox_claim AS a JOIN "
                             "postroom.outbox_claim AS b ON b.lane = a.lane AND b.reader = "
                             "a.reader AND b.seq = a.seq + 1 WHERE a.kind = 'claim' AND b.kind = "
                             "'claim' AND b.at >= a.lease_until AND "
                             "b.at < a.lease_until + interval '30 s'") == 1,
                   clocks[i].label);
        pr__batch_free(second);
        pr__batch_free(first);
        shop_close(&other);
        scene_end(&at);
    }
}

/* Messages, failures and retries while the clock jumps to and fro. */
static void a_clock_that_jumps_costs_nothing(void **state)
{
    (void)state;
    scene at;
    char id[32];
    scene_begin(&at, 0);
    int sent = 0;
    for (size_t i = 0; i < 4 * COUNT_OF(clocks); i++) {
        at.shop.wall_offset_us = clocks[i % COUNT_OF(clocks)].offset_us;
        ground_post(at.shop.relay_store, "k", "1");
        post(&at, "1", 0, 0);
        snprintf(id, sizeof id, "direct-%zu", i);
        shop_deliver(&at.shop, id, "d", "once-bad");
        sent += 3;
        shop_step_relay(&at.shop);
        at.shop.wall_offset_us = -at.shop.wall_offset_us; /* in the middle of it */
        shop_step_endpoint(&at.shop);
    }
    /* those of ground_post are for a broker that is not there: a failure of its own */
    run_until(&at, sent - 4 * (int)COUNT_OF(clocks), "jumps");
    assert_int_equal(db_number(at.on.db, "SELECT count(*) - count(DISTINCT id) FROM effects"), 0);
    assert_int_equal(shop_endpoint_snapshot(&at.shop).dead, 0);
    /* waits are counted from the server's now: none is a day long */
    assert_int_equal(db_number(at.on.db,
                               "SELECT count(*) FROM postroom.outbox_parked WHERE next_attempt_at "
                               "NOT BETWEEN clock_timestamp() - interval '1 min' AND "
                               "clock_timestamp() + interval '15 min'"),
                     0);
    scene_end(&at);
}

static void check_unit_is_told(pr_store *store)
{
    pr_unit *unit = NULL;
    pr_error err = PR_ERROR_INIT;
    pr_message message = PR_MESSAGE(.type = TYPE_PLACED, .destination = SHOP_TOPIC);
    pr_status status = pr_unit_begin(store, &unit, &err);
    if (status == PR_OK)
        status = pr_unit_enqueue(unit, &message, NULL, &err);
    pr_unit_free(unit);
    assert_int_not_equal(status, PR_OK);
    assert_int_equal(err.retry, PR_RETRY_RECONNECT);
}

/* Ten seconds in which nothing can be written: nobody is charged, and all goes on by itself. */
static void a_server_that_is_read_only_for_ten_seconds(void **state)
{
    (void)state;
    scene at;
    char id[32];
    scene_begin(&at, 0);
    for (int i = 0; i < 30; i++)
        post(&at, "1", 0, 0);
    while (db_number(at.on.db, "SELECT count(*) FROM effects") == 0) {
        shop_step_relay(&at.shop);
        shop_step_endpoint(&at.shop);
    }
    postgres_server_do(databases.server, "standby");
    PQreset(at.on.db);
    for (int i = 0; i < 10; i++) {
        snprintf(id, sizeof id, "direct-%d", i);
        shop_deliver(&at.shop, id, "d", "1");
    }
    int64_t before = db_number(at.on.db, "SELECT count(*) FROM effects");
    assert_true(before < 40);
    check_unit_is_told(at.shop.relay_store);
    int64_t until = now_ms() + OUTAGE_MS;
    while (now_ms() < until) {
        shop_step_relay(&at.shop);
        shop_step_endpoint(&at.shop);
        sleep_ms(5);
    }
    assert_int_equal(db_number(at.on.db, "SELECT count(*) FROM effects"), before);
    assert_true(shop_endpoint_snapshot(&at.shop).paused);
    assert_int_equal(db_number(at.on.db, "SELECT pg_promote(true, 30)"), 1);
    run_until(&at, 40, "promoted");
    assert_int_equal(db_number(at.on.db, "SELECT count(*) FROM effects"), 40);
    assert_int_equal(db_number(at.on.db, "SELECT count(DISTINCT id) FROM effects"), 40);
    assert_int_equal(db_number(at.on.db, "SELECT (SELECT count(*) FROM postroom.outbox_parked) + "
                                         "(SELECT count(*) FROM postroom.inbox_parked)"),
                     0);
    pr_endpoint_snapshot now = shop_endpoint_snapshot(&at.shop);
    assert_int_equal(now.failed + now.dead, 0);
    assert_false(now.paused);
    scene_end(&at);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(delayed_and_expired_ones_go_by_the_server),
        cmocka_unit_test(leases_go_by_the_server),
        cmocka_unit_test(a_clock_that_jumps_costs_nothing),
        cmocka_unit_test(a_server_that_is_read_only_for_ten_seconds),
    };
    databases.server = postgres_server_start(NULL);
    int failed = RUN_TESTS(tests);
    postgres_server_free(databases.server);
    return failed;
}
