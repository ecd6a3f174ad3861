/*
 * The order of a key through a whole bus: whatever makes an endpoint give back what it has in hand,
 * no message is handled before an earlier one of its key.
 */
#include "base/time.h"
#include "bus/stand.h"

#define MESSAGES 120
#define KEYS     3

typedef struct record {
    stand s;
    pthread_mutex_t mutex;
    int next[KEYS]; /* the number that each key waits for */
    int passed;     /* handled before an earlier one */
    atomic_int handled;
} record;

static pr_handled note(void *user, pr_scope *scope)
{
    record *r = user;
    const pr_message *m = pr_scope_message(scope);
    char body[16] = "";
    memcpy(body, m->body, m->body_size_bytes < 15 ? m->body_size_bytes : 15);
    int number = (int)strtol(body, NULL, 10), key = m->key[0] - 'a';
    pr__sleep_us(3000);
    pthread_mutex_lock(&r->mutex);
    if (number != r->next[key])
        r->passed++;
    r->next[key] = number + 1;
    atomic_fetch_add(&r->handled, 1);
    pthread_mutex_unlock(&r->mutex);
    return PR_HANDLED_OK;
}

static void publish_all(record *r, int from, int to)
{
    pr_error err = PR_ERROR_INIT;
    for (int i = from; i < to; i++) {
        char body[16], key[2] = {(char)('a' + i % KEYS), '\0'};
        (void)snprintf(body, sizeof body, "%d", i / KEYS);
        pr_message message = PR_MESSAGE(.type = TYPE_ORDER, .key = key, .body = body,
                                        .body_size_bytes = strlen(body));
        check_ok(pr_bus_publish(r->s.bus, &message, NULL, &err), &err, r->s.scheme);
    }
}

static void record_open_with(record *r, world *w, const char *scheme, uint32_t concurrency,
                             pr_handler handler)
{
    static const char *const types[] = {TYPE_ORDER};
    pr_error err = PR_ERROR_INIT;
    memset(r, 0, sizeof *r);
    pthread_mutex_init(&r->mutex, NULL); /* lives on when the case fails: so does who uses it */
    stand_open(&r->s, w, scheme);
    pr_endpoint_options opt =
        PR_ENDPOINT_OPTIONS(.id = "orders", .types = types, .type_count = 1, .handler = handler,
                            .user = r, .concurrency = concurrency, .prefetch = 32, .poll_ms = 5);
    check_ok(pr_bus_add_endpoint(r->s.bus, &opt, NULL, &err), &err, scheme);
    stand_start(&r->s);
}

static void record_open(record *r, world *w, const char *scheme, uint32_t concurrency)
{
    record_open_with(r, w, scheme, concurrency, note);
}

static void record_close(record *r, const char *label)
{
    wait_seen(&r->handled, MESSAGES, label);
    stand_close(&r->s);
    pthread_mutex_destroy(&r->mutex);
    if (r->passed > 0)
        fail_msg("%s: %d were handled before an earlier one of their key", label, r->passed);
}

static void a_pause_keeps_the_order_of_a_key(void **state)
{
    for (size_t n = 0; scheme_at(n); n++) {
        for (uint32_t concurrency = 1; concurrency <= 4; concurrency += 3) {
            static record r;
            record_open(&r, *state, scheme_at(n), concurrency);
            pr_endpoint *orders = pr_bus_endpoint(r.s.bus, "orders");
            publish_all(&r, 0, MESSAGES / 2);
            for (int i = 0; i < 4; i++) {
                pr_endpoint_pause(orders);
                int64_t until_us = pr__monotonic_us() + PATIENCE_US;
                while (bus_snapshot(&r.s).paused != 1 && pr__monotonic_us() < until_us)
                    pr__sleep_us(1000);
                pr__sleep_us(150000); /* what went back has come again */
                pr_endpoint_resume(orders);
                pr__sleep_us(10000);
            }
            publish_all(&r, MESSAGES / 2, MESSAGES);
            record_close(&r, scheme_at(n));
        }
    }
}

/* What a stop gives back stands before what comes later. */
static void a_stop_keeps_the_order_of_a_key(void **state)
{
    for (size_t n = 0; scheme_at(n); n++) {
        static record r;
        pr_error err = PR_ERROR_INIT;
        record_open(&r, *state, scheme_at(n), 4);
        publish_all(&r, 0, MESSAGES / 2);
        for (int i = 0; i < 3; i++) {
            pr_bus_stop(r.s.bus);
            check_ok(pr_bus_start(r.s.bus, &err), &err, scheme_at(n));
            pr__sleep_us(10000);
        }
        publish_all(&r, MESSAGES / 2, MESSAGES);
        record_close(&r, scheme_at(n));
    }
}

/* ---- the broker goes ---- */

#define THROUGH_OUTBOX 300

static pr_handled write_effect(void *user, pr_scope *scope)
{
    record *r = user;
    const pr_message *m = pr_scope_message(scope);
    char id[16] = "";
    memcpy(id, m->body, m->body_size_bytes < 15 ? m->body_size_bytes : 15);
    pr__sleep_us(1000);
    pr_unit *unit = pr_scope_unit(scope);
    return unit && r->s.w->provider->effect(unit, id) ? PR_HANDLED_OK : PR_HANDLED_RETRY;
}

static void enqueue_some(record *r, int from, int to)
{
    pr_error err = PR_ERROR_INIT;
    for (int i = from; i < to; i++) {
        char body[16], key[2] = {(char)('a' + i % KEYS), '\0'};
        pr_unit *unit = NULL;
        (void)snprintf(body, sizeof body, "%s%04d", key, i);
        pr_message message = PR_MESSAGE(.type = TYPE_ORDER, .key = key, .body = body,
                                        .body_size_bytes = strlen(body));
        if (pr_unit_begin(r->s.w->store, &unit, NULL) != PR_OK) /* its server was killed */
            check_ok(pr_unit_begin(r->s.w->store, &unit, &err), &err, "begin");
        check_ok(pr_bus_enqueue(r->s.bus, unit, NULL, &message, NULL, &err), &err, "enqueue");
        check_ok(pr_unit_commit(unit, NULL, &err), &err, "commit");
        pr_unit_free(unit);
    }
}

static void check_once_in_order(record *r)
{
    world *w = r->s.w;
    world_until_number(w, EFFECTS, THROUGH_OUTBOX);
    assert_int_equal(world_number(w, "SELECT count(DISTINCT id) FROM effects"), THROUGH_OUTBOX);
    assert_int_equal(world_number(w, "SELECT count(*) FROM effects a JOIN effects b ON "
                                     "substr(a.id, 1, 1) = substr(b.id, 1, 1) AND a.n < b.n AND "
                                     "a.id > b.id"),
                     0);
    world_until_number(w, PARKED, 0);
    assert_int_equal(world_number(w, MARKS), THROUGH_OUTBOX);
}

/* The server is killed with handlers inside, twice. */
static void a_database_that_goes_loses_and_turns_nothing(void **state)
{
    static record r;
    world *w = *state;
    record_open_with(&r, w, scheme_at(0), 4, write_effect);
    for (int i = 0; i < 2; i++) {
        enqueue_some(&r, i * 150, (i + 1) * 150);
        w->provider->crash();
    }
    check_once_in_order(&r);
    stand_close(&r.s);
    pthread_mutex_destroy(&r.mutex);
}

/* Connections are closed under load, then the broker is killed: all is handled once, and of a key
   in order. */
static void a_broker_that_goes_loses_and_turns_nothing(void **state)
{
    static record r;
    world *w = *state;
    record_open_with(&r, w, scheme_at(0), 4, write_effect);
    for (int i = 0; i < 5; i++) {
        enqueue_some(&r, i * 40, (i + 1) * 40);
        bus_carrier_in_use->cut();
    }
    enqueue_some(&r, 200, 250);
    bus_carrier_in_use->kill();
    enqueue_some(&r, 250, THROUGH_OUTBOX);
    check_once_in_order(&r);
    stand_close(&r.s);
    pthread_mutex_destroy(&r.mutex);
}

size_t order_suite(const struct CMUnitTest **ret_tests)
{
    static const struct CMUnitTest all[] = {
        CASE(a_pause_keeps_the_order_of_a_key),
        CASE(a_stop_keeps_the_order_of_a_key),
        CASE(a_database_that_goes_loses_and_turns_nothing),
        CASE(a_broker_that_goes_loses_and_turns_nothing),
    };
    static struct CMUnitTest tests[COUNT_OF(all)];
    const bool may[COUNT_OF(all)] = {true, true, bus_provider_in_use->crash != NULL,
                                     bus_carrier_in_use && bus_carrier_in_use->kill};
    size_t count = 0;
    for (size_t i = 0; i < COUNT_OF(all); i++) {
        if (may[i])
            tests[count++] = all[i];
    }
    *ret_tests = tests;
    return count;
}
