/*
 * Subscriptions of the database transport on a SQLite store, beside what the suite of transports
 * shows: leases, what an idle one writes, slow messages, locked databases, expiry, out of memory.
 */
#include <time.h>

#include "support/sqlite_world.h"
#include "support/test.h"

#include <postroom/database.h>

#include "base/fault.h"
#include "port/store.h"

#define OTHERS 300
#define TYPE_A "urn:message:unit:a"

typedef struct world {
    sqlite_world files;
    pr_store *store;
    pr_transport *transport;
    unsigned sent;
    unsigned fenced;
    unsigned takeovers;
    pr_observer observer;
} world;

static int64_t now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static void observe(void *user, const pr_observation *observation)
{
    world *at = user;
    if (observation->kind == PR_OBSERVE_FENCED)
        at->fenced += (unsigned)observation->count;
    if (observation->kind == PR_OBSERVE_TAKEOVER)
        at->takeovers += (unsigned)observation->count;
}

static int setup(void **state)
{
    pr_error err = PR_ERROR_INIT;
    world *at = calloc(1, sizeof(*at));
    assert_non_null(at);
    at->observer = (pr_observer){(uint32_t)sizeof(at->observer), observe, at};
    check_ok(sqlite_world_open(&at->files, &err), &err, "world");
    check_ok(sqlite_world_store(&at->files, 150, 0, &at->store, &err), &err, "store");
    pr_database_options options = {.size = (uint32_t)sizeof(options), .observer = &at->observer};
    check_ok(pr_database_transport_new(at->store, &options, &at->transport, &err), &err, "new");
    check_ok(pr_transport_open(at->transport, 0, &err), &err, "open");
    *state = at;
    return 0;
}

static int teardown(void **state)
{
    world *at = *state;
    pr_transport_free(at->transport);
    pr_store_free(at->store);
    sqlite_world_close(&at->files);
    free(at);
    return 0;
}

static pr_subscription *subscribe(world *at, const char *endpoint, int64_t lease_ms,
                                  int64_t temporary_ms)
{
    pr_subscribe_options options = {.size = (uint32_t)sizeof(options),
                                    .endpoint = endpoint,
                                    .lease_ms = lease_ms,
                                    .temporary = temporary_ms > 0,
                                    .expiry_ms = temporary_ms};
    pr_subscription *subscription = NULL;
    pr_error err = PR_ERROR_INIT;
    check_ok(pr_transport_subscribe(at->transport, &options, &subscription, &err), &err, endpoint);
    return subscription;
}

static pr_submit_outcome send(world *at, const char *path, const char *key)
{
    char id[37];
    char destination[128];
    char body[16];
    snprintf(id, sizeof(id), "018e0000-0000-7000-8000-%012u", at->sent + 1);
    snprintf(body, sizeof(body), "%u", at->sent++);
    snprintf(destination, sizeof(destination), "database://%s", path);
    const pr_message message =
        PR_MESSAGE(.id = id, .type = TYPE_A, .type_version = 1, .content_type = "text/plain",
                   .destination = destination, .key = key, .body = body,
                   .body_size_bytes = strlen(body), .occurred_at_us = 1700000000000000);
    pr_submission submission = {7, &message};
    pr_submitted outcome = {0};
    pr_error err = PR_ERROR_INIT;
    size_t count = 0;
    check_ok(pr_transport_submit(at->transport, &submission, 1, &count, &err), &err, "submit");
    check_ok(pr_transport_poll(at->transport, 0, &outcome, 1, &count, &err), &err, "poll");
    assert_int_equal(count, 1);
    return outcome.outcome;
}

static size_t receive(pr_subscription *subscription, int64_t timeout_ms, pr_delivery *ret,
                      size_t max)
{
    size_t got = 0;
    pr_error err = PR_ERROR_INIT;
    check_ok(pr_subscription_receive(subscription, timeout_ms, ret, max, &got, &err), &err,
             "receive");
    return got;
}

static pr_delivery receive_one(pr_subscription *subscription)
{
    pr_delivery delivery;
    assert_int_equal(receive(subscription, PATIENCE_MS, &delivery, 1), 1);
    return delivery;
}

static void ack(pr_subscription *subscription, uint64_t tag)
{
    pr_error err = PR_ERROR_INIT;
    check_ok(pr_subscription_settle(subscription, tag, PR_VERDICT_ACK, 0, &err), &err, "ack");
}

static unsigned number_of(const pr_delivery *delivery)
{
    char text[16] = "";
    assert_true(delivery->message.body_size_bytes < sizeof(text));
    memcpy(text, delivery->message.body, delivery->message.body_size_bytes);
    return (unsigned)strtoul(text, NULL, 10);
}

/* A lease may be found lost while nothing is asked about it: the message stays readable until its
   consumer is told. */
static void test_a_lost_delivery_is_readable_until_it_is_told(void **state)
{
    world *at = *state;
    pr_error err = PR_ERROR_INIT;
    for (int told_by_keep = 0; told_by_keep < 2; told_by_keep++) {
        pr_subscription *late = subscribe(at, "billing", 300, 0);
        pr_subscription *rival = subscribe(at, "billing", 30000, 0);
        send(at, "in/billing", NULL);
        pr_delivery mine = receive_one(late);
        pr_delivery taken = receive_one(rival);
        pr_delivery none;
        at->fenced = 0;
        for (int i = 0; i < 3; i++)
            assert_int_equal(receive(late, 0, &none, 1), 0);
        assert_int_equal(at->fenced, 1); /* it knows, and has settled nothing yet */
        assert_int_equal(number_of(&mine), told_by_keep);
        pr_status status = told_by_keep
                               ? pr_subscription_keep(late, &err)
                               : pr_subscription_settle(late, mine.tag, PR_VERDICT_ACK, 0, &err);
        assert_int_equal(status, PR_E_FENCED);
        pr_error_clear(&err);
        ack(rival, taken.tag);
        assert_int_equal(receive(late, 0, &none, 1), 0);
        pr_subscription_free(late);
        pr_subscription_free(rival);
    }
}

static void test_keep_holds_a_lease_and_tells_when_it_is_lost(void **state)
{
    world *at = *state;
    pr_error err = PR_ERROR_INIT;
    pr_subscription *slow = subscribe(at, "billing", 2000, 0);
    pr_subscription *rival = subscribe(at, "billing", 30000, 0);
    assert_int_equal(send(at, "in/billing", NULL), PR_SUBMIT_CONFIRMED);
    pr_delivery mine = receive_one(slow);
    assert_false(mine.redelivered);
    pr_delivery none;
    for (int64_t until = now_ms() + 4500; now_ms() < until;) { /* over two leases */
        check_ok(pr_subscription_keep(slow, &err), &err, "keep");
        assert_int_equal(receive(rival, 100, &none, 1), 0);
    }
    pr_delivery taken = receive_one(rival); /* nobody keeps it any more */
    assert_true(taken.redelivered);
    assert_int_equal(taken.delivery_count, 1);
    assert_int_equal(at->takeovers, 1);
    check_error(pr_subscription_keep(slow, &err), &err, PR_E_FENCED, "taken over", "keep");
    pr_error_clear(&err);
    check_error(pr_subscription_settle(slow, mine.tag, PR_VERDICT_ACK, 0, &err), &err, PR_E_FENCED,
                "stale", "settle");
    assert_true(at->fenced >= 1);
    ack(rival, taken.tag);
    pr_subscription_free(slow);
    pr_subscription_free(rival);
}

/* Without keep, the settle itself finds out that somebody took over, and says so. */
static void test_a_late_settle_is_fenced(void **state)
{
    world *at = *state;
    pr_error err = PR_ERROR_INIT;
    pr_subscription *late = subscribe(at, "billing", 300, 0);
    pr_subscription *rival = subscribe(at, "billing", 30000, 0);
    send(at, "in/billing", NULL);
    pr_delivery mine = receive_one(late);
    pr_delivery taken = receive_one(rival);
    check_error(pr_subscription_settle(late, mine.tag, PR_VERDICT_REJECT, 0, &err), &err,
                PR_E_FENCED, "taken over", "the only delivery of its claim");
    ack(rival, taken.tag);
    pr_subscription_free(late);
    pr_subscription_free(rival);
    assert_int_equal(
        sqlite_world_number(&at->files, "SELECT count(*) FROM postroom_outbox_parked", NULL), 0);
}

static void test_an_idle_subscription_writes_nothing(void **state)
{
    world *at = *state;
    pr_subscription *billing = subscribe(at, "billing", 0, 0);
    pr_subscription *other = subscribe(at, "other", 0, 0);
    send(at, "in/billing", NULL);
    pr_delivery delivery = receive_one(billing);
    ack(billing, delivery.tag);
    assert_int_equal(receive(billing, 1200, &delivery, 1), 0); /* calm down: others' claims move */
    assert_int_equal(receive(other, 1200, &delivery, 1), 0);
    sqlite3 *db = NULL;
    sqlite3_stmt *stmt = NULL;
    assert_int_equal(sqlite3_open_v2(at->files.path, &db, SQLITE_OPEN_READWRITE, NULL), SQLITE_OK);
    assert_int_equal(sqlite3_prepare_v2(db, "PRAGMA data_version", -1, &stmt, NULL), SQLITE_OK);
    int before = -1, after = 0;
    for (int i = 0; i < 5 && before != after; i++) { /* a machine that paused calms down later */
        assert_int_equal(sqlite3_step(stmt), SQLITE_ROW);
        before = sqlite3_column_int(stmt, 0);
        sqlite3_reset(stmt);
        assert_int_equal(receive(billing, 1500, &delivery, 1), 0); /* three probes each */
        assert_int_equal(receive(other, 1500, &delivery, 1), 0);
        assert_int_equal(sqlite3_step(stmt), SQLITE_ROW);
        after = sqlite3_column_int(stmt, 0);
        sqlite3_reset(stmt);
    }
    assert_int_equal(after, before);
    sqlite3_finalize(stmt);
    sqlite3_close(db);
    pr_subscription_free(billing);
    pr_subscription_free(other);
}

/* One message that is slow holds up its own lanes only. */
static void test_a_slow_message_does_not_stop_the_others(void **state)
{
    world *at = *state;
    enum { TOTAL = 64 };
    pr_subscription *billing = subscribe(at, "billing", 0, 0);
    for (int i = 0; i < TOTAL; i++)
        send(at, "in/billing", NULL);
    pr_delivery slow = receive_one(billing);
    unsigned done = 0;
    pr_delivery delivery;
    while (receive(billing, 300, &delivery, 1) == 1) {
        ack(billing, delivery.tag);
        done++;
    }
    assert_true(done >= TOTAL / 2);
    ack(billing, slow.tag);
    for (; done < TOTAL - 1; done++) {
        delivery = receive_one(billing);
        ack(billing, delivery.tag);
    }
    assert_int_equal(receive(billing, 100, &delivery, 1), 0);
    pr_subscription_free(billing);
}

/* The verdict stands although the database was locked when it came; nothing is delivered again. */
static void test_a_verdict_outlives_a_locked_database(void **state)
{
    world *at = *state;
    pr_error err = PR_ERROR_INIT;
    pr_subscription *billing = subscribe(at, "billing", 0, 0);
    send(at, "in/billing", "k");
    send(at, "in/billing", "k");
    pr_delivery first = receive_one(billing);
    ack(billing, first.tag);
    pr_delivery second = receive_one(billing);
    sqlite3 *db = NULL;
    assert_int_equal(sqlite3_open(at->files.path, &db), SQLITE_OK);
    assert_int_equal(sqlite3_exec(db, "BEGIN IMMEDIATE", NULL, NULL, NULL), SQLITE_OK);
    check_error(pr_subscription_settle(billing, second.tag, PR_VERDICT_ACK, 0, &err), &err,
                PR_E_BUSY, "", "settle while locked");
    pr_delivery none;
    assert_int_equal(receive(billing, 50, &none, 1), 0); /* busy is nothing to tell */
    pr_error_clear(&err);
    check_ok(pr_subscription_keep(billing, &err), &err, "keep while locked");
    assert_int_equal(sqlite3_exec(db, "COMMIT", NULL, NULL, NULL), SQLITE_OK);
    sqlite3_close(db);
    ack(billing, second.tag); /* the same verdict again is welcome */
    check_error(pr_subscription_settle(billing, second.tag, PR_VERDICT_ACK, 0, &err), &err,
                PR_E_FENCED, "stale", "it is done");
    pr_subscription_free(billing);
    billing = subscribe(at, "billing", 0, 0);
    assert_int_equal(receive(billing, 200, &none, 1), 0);
    pr_subscription_free(billing);
}

static void test_a_locked_database_blocks_sending(void **state)
{
    world *at = *state;
    pr_subscription *billing = subscribe(at, "billing", 0, 0);
    sqlite3 *db = NULL;
    assert_int_equal(sqlite3_open(at->files.path, &db), SQLITE_OK);
    assert_int_equal(sqlite3_exec(db, "BEGIN IMMEDIATE", NULL, NULL, NULL), SQLITE_OK);
    assert_int_equal(send(at, "in/billing", NULL), PR_SUBMIT_LOST);
    pr_transport_state seen;
    pr_transport_state_get(at->transport, &seen);
    assert_int_equal(seen.kind, PR_TRANSPORT_BLOCKED);
    assert_true(seen.cause[0] != '\0');
    assert_int_equal(sqlite3_exec(db, "COMMIT", NULL, NULL, NULL), SQLITE_OK);
    sqlite3_close(db);
    assert_int_equal(send(at, "in/billing", NULL), PR_SUBMIT_CONFIRMED);
    pr_transport_state_get(at->transport, &seen);
    assert_int_equal(seen.kind, PR_TRANSPORT_UP);
    pr_delivery delivery = receive_one(billing);
    assert_int_equal(number_of(&delivery), 1); /* the lost one did not go in */
    ack(billing, delivery.tag);
    assert_int_equal(receive(billing, 100, &delivery, 1), 0);
    pr_subscription_free(billing);
}

static void test_a_temporary_reader_is_kept_and_expires(void **state)
{
    world *at = *state;
    pr_error err = PR_ERROR_INIT;
    pr_subscription *replies = subscribe(at, "r1", 0, 1500);
    pr_delivery delivery;
    for (int64_t until = now_ms() + 3200; now_ms() < until;) /* two expiries */
        assert_int_equal(receive(replies, 100, &delivery, 1), 0);
    assert_int_equal(send(at, "reply/r1", NULL), PR_SUBMIT_CONFIRMED);
    delivery = receive_one(replies);
    ack(replies, delivery.tag);
    /* its holder is not heard of any more */
    int64_t deadline = now_ms() + PATIENCE_MS;
    while (send(at, "reply/r1", NULL) != PR_SUBMIT_RETURNED)
        assert_true(now_ms() < deadline);
    size_t got = 0;
    check_error(pr_subscription_receive(replies, 0, &delivery, 1, &got, &err), &err, PR_E_NOT_FOUND,
                "gone", "it learns it");
    pr_subscription *second = subscribe(at, "r1", 0, 500); /* the id is free again */
    pr_subscription_free(second);
    pr_subscription_free(replies);
    assert_int_equal(
        sqlite_world_number(&at->files,
                            "SELECT count(*) FROM postroom_subscription WHERE temporary", NULL),
        0);
}

/* What the application enqueues in its own store for `local` is read there, delayed or not. */
static void test_a_store_is_its_own_transport(void **state)
{
    world *at = *state;
    pr_error err = PR_ERROR_INIT;
    pr_subscription *billing = subscribe(at, "billing", 0, 0);
    int64_t now_us = 0;
    check_ok(pr__store_now(at->store, &now_us, &err), &err, "now");
    pr_message message =
        PR_MESSAGE(.id = "018e0000-0000-7000-8000-0000000000aa", .type = TYPE_A, .type_version = 1,
                   .content_type = "text/plain", .destination = "local://in/billing", .body = "1",
                   .body_size_bytes = 1, .occurred_at_us = now_us);
    pr_message later = message;
    later.id = "018e0000-0000-7000-8000-0000000000bb";
    later.body = "2";
    later.deliver_at_us = now_us + 400000;
    pr__enqueue both[] = {{.message = &later}, {.message = &message}};
    pr_unit *unit = NULL;
    pr_outcome outcome = PR_OUTCOME_UNKNOWN;
    check_ok(pr__store_unit_begin(at->store, &unit, &err), &err, "begin");
    check_ok(unit->ops->enqueue(unit, both, 2, &err), &err, "enqueue");
    check_ok(unit->ops->commit(unit, &outcome, &err), &err, "commit");
    unit->ops->free(unit);
    for (unsigned i = 1; i <= 2; i++) {
        pr_delivery delivery = receive_one(billing);
        assert_int_equal(number_of(&delivery), i);
        assert_string_equal(delivery.message.destination, "database://in/billing");
        ack(billing, delivery.tag);
    }
    check_ok(pr__store_now(at->store, &now_us, &err), &err, "now");
    assert_true(now_us >= later.deliver_at_us);
    pr_subscription_free(billing);
}

static void test_an_expired_message_is_kept_and_not_delivered(void **state)
{
    world *at = *state;
    pr_subscription *billing = subscribe(at, "billing", 0, 0);
    const pr_message message =
        PR_MESSAGE(.id = "018e0000-0000-7000-8000-0000000000aa", .type = TYPE_A, .type_version = 1,
                   .content_type = "text/plain", .destination = "database://in/billing",
                   .body = "1", .body_size_bytes = 1, .occurred_at_us = 1700000000000000,
                   .expires_at_us = 1700000000000001);
    pr_submission submission = {7, &message};
    pr_submitted outcome = {0};
    pr_error err = PR_ERROR_INIT;
    size_t count = 0;
    check_ok(pr_transport_submit(at->transport, &submission, 1, &count, &err), &err, "submit");
    check_ok(pr_transport_poll(at->transport, 0, &outcome, 1, &count, &err), &err, "poll");
    assert_int_equal(outcome.outcome, PR_SUBMIT_CONFIRMED);
    pr_delivery delivery;
    assert_int_equal(receive(billing, 200, &delivery, 1), 0);
    assert_int_equal(sqlite_world_number(&at->files,
                                         "SELECT count(*) FROM postroom_outbox_parked WHERE state "
                                         "= 'dead' AND attempts = 0",
                                         NULL),
                     1);
    pr_subscription_free(billing);
}

#ifdef PR_FAULT_POINTS
/* Whichever allocation fails between submit and ack, nothing is lost. */
static void test_out_of_memory_loses_nothing(void **state)
{
    world *at = *state;
    bool reached = true;
    unsigned failures = 0;
    for (int64_t n = 1; reached; n++) {
        pr_error err = PR_ERROR_INIT;
        pr_subscription *billing = subscribe(at, "billing", 0, 0);
        unsigned before = at->sent;
        pr__fault_alloc_fail_at(n);
        pr_submit_outcome outcome = send(at, "in/billing", "k");
        pr_delivery delivery;
        size_t got = 0;
        pr_status status = pr_subscription_receive(billing, 200, &delivery, 1, &got, &err);
        bool acked = got == 1 && pr_subscription_settle(billing, delivery.tag, PR_VERDICT_ACK, 0,
                                                        NULL) == PR_OK;
        reached = pr__fault_alloc_count() >= n;
        pr__fault_alloc_fail_at(0);
        failures += outcome != PR_SUBMIT_CONFIRMED || status != PR_OK || got == 0 || !acked;
        assert_true(outcome == PR_SUBMIT_CONFIRMED || outcome == PR_SUBMIT_LOST);
        pr_error_clear(&err);
        check_ok(pr_transport_open(at->transport, 0, &err), &err, "open again");
        if (outcome == PR_SUBMIT_CONFIRMED && !acked) {
            if (got == 0)
                delivery = receive_one(billing);
            assert_int_equal(number_of(&delivery), before);
            ack(billing, delivery.tag);
        }
        assert_int_equal(receive(billing, 20, &delivery, 1), 0);
        pr_subscription_free(billing);
    }
    assert_true(failures >= 5);
}
#endif

/* Somebody publishes whenever the reader looks at its clock. */
static int64_t growing_us(void *user)
{
    world *at = user;
    if (at->sent < OTHERS)
        (void)send(at, "in/others", NULL);
    return pr_clock_system()->monotonic_us(NULL);
}

/* A log that grows by others' messages as fast as a reader passes them over must not keep it in a
   receive: whoever wants it to end, or to renew something, waits for that receive. */
static void test_a_receive_keeps_its_time_among_the_messages_of_others(void **state)
{
    world *at = *state;
    pr_error err = PR_ERROR_INIT;
    pr_delivery delivery;
    pr_clock clock = *pr_clock_system();
    clock.monotonic_us = growing_us;
    clock.user = at;
    pr_database_options options = {.size = (uint32_t)sizeof(options), .clock = &clock};
    pr_subscription *others = subscribe(at, "others", 0, 0);
    pr_transport *own = at->transport, *growing = NULL;
    check_ok(pr_database_transport_new(at->store, &options, &growing, &err), &err, "new");
    check_ok(pr_transport_open(growing, 0, &err), &err, "open");
    at->transport = growing;
    pr_subscription *mine = subscribe(at, "mine", 0, 0);
    at->transport = own;
    assert_int_equal(receive(mine, 0, &delivery, 1), 0);
    assert_true(at->sent < OTHERS);
    at->sent = OTHERS;
    assert_int_equal(send(at, "in/mine", NULL), PR_SUBMIT_CONFIRMED);
    delivery = receive_one(mine);
    assert_int_equal(number_of(&delivery), OTHERS);
    ack(mine, delivery.tag);
    pr_subscription_free(mine);
    pr_subscription_free(others);
    pr_transport_free(growing);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_keep_holds_a_lease_and_tells_when_it_is_lost, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_a_late_settle_is_fenced, setup, teardown),
        cmocka_unit_test_setup_teardown(test_a_lost_delivery_is_readable_until_it_is_told, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_an_idle_subscription_writes_nothing, setup, teardown),
        cmocka_unit_test_setup_teardown(test_a_receive_keeps_its_time_among_the_messages_of_others,
                                        setup, teardown),
        cmocka_unit_test_setup_teardown(test_a_slow_message_does_not_stop_the_others, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_a_verdict_outlives_a_locked_database, setup, teardown),
        cmocka_unit_test_setup_teardown(test_a_locked_database_blocks_sending, setup, teardown),
        cmocka_unit_test_setup_teardown(test_a_temporary_reader_is_kept_and_expires, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_a_store_is_its_own_transport, setup, teardown),
        cmocka_unit_test_setup_teardown(test_an_expired_message_is_kept_and_not_delivered, setup,
                                        teardown),
#ifdef PR_FAULT_POINTS
        cmocka_unit_test_setup_teardown(test_out_of_memory_loses_nothing, setup, teardown),
#endif
    };
    return RUN_TESTS(tests);
}
