/*
 * What a bus leans on goes away beneath it: the database and the broker at once, a queue, an
 * exchange, the broker's memory and disk. It says so, and goes on by itself; nothing is lost,
 * nothing is handled twice.
 */
#include "base/time.h"
#include "bus/stand.h"

#define MESSAGES 60
#define FOLLOWED "SELECT count(*) FROM effects WHERE id LIKE 'follow%'"
#define DISTINCT "SELECT count(DISTINCT id) FROM effects"

typedef struct outage {
    stand s;
    atomic_int orders, follows, asked;
    atomic_bool slow;
} outage;

/* Its effect, and a follow-up through the outbox. */
static pr_handled write_and_follow(void *user, pr_scope *scope)
{
    outage *o = user;
    char body[64];
    const pr_message *order = pr_scope_message(scope);
    pr_unit *unit = pr_scope_unit(scope);
    (void)snprintf(body, sizeof body, "\"%.36s\"", order->id);
    pr_message follow =
        PR_MESSAGE(.type = TYPE_FOLLOW, .body = body, .body_size_bytes = strlen(body));
    if (!unit || !o->s.w->provider->effect(unit, order->id) ||
        pr_scope_publish(scope, &follow, NULL, NULL) != PR_OK)
        return PR_HANDLED_RETRY;
    if (atomic_load(&o->slow))
        pr__sleep_us(5000);
    atomic_fetch_add(&o->orders, 1);
    return PR_HANDLED_OK;
}

static pr_handled write_follow(void *user, pr_scope *scope)
{
    outage *o = user;
    char id[64];
    const pr_message *m = pr_scope_message(scope);
    pr_unit *unit = pr_scope_unit(scope);
    (void)snprintf(id, sizeof id, "follow %.36s",
                   m->body_size_bytes > 36 ? (const char *)m->body + 1 : "");
    if (!unit || !o->s.w->provider->effect(unit, id))
        return PR_HANDLED_RETRY;
    atomic_fetch_add(&o->follows, 1);
    return PR_HANDLED_OK;
}

static pr_handled answer(void *user, pr_scope *scope)
{
    outage *o = user;
    pr_message price = PR_MESSAGE(.type = TYPE_PRICE, .body = "{}", .body_size_bytes = 2);
    atomic_fetch_add(&o->asked, 1);
    return pr_scope_reply(scope, &price, NULL, NULL) == PR_OK ? PR_HANDLED_OK : PR_HANDLED_RETRY;
}

static void outage_open(outage *o, world *w)
{
    static const char *const types[] = {TYPE_ORDER}, *const follows[] = {TYPE_FOLLOW};
    pr_error err = PR_ERROR_INIT;
    memset(o, 0, sizeof *o);
    stand_open_alone(&o->s, w);
    pr_endpoint_options orders =
        PR_ENDPOINT_OPTIONS(.id = "orders", .types = types, .type_count = 1,
                            .handler = write_and_follow, .user = o, .concurrency = 4, .poll_ms = 5,
                            .retry_max = 50, .backoff_initial_ms = 20);
    pr_endpoint_options alone =
        PR_ENDPOINT_OPTIONS(.id = "follows", .types = follows, .type_count = 1,
                            .handler = write_follow, .user = o, .concurrency = 1, .poll_ms = 5,
                            .retry_max = 50, .backoff_initial_ms = 20);
    check_ok(pr_bus_add_endpoint(o->s.bus, &orders, NULL, &err), &err, "orders");
    check_ok(pr_bus_add_endpoint(o->s.bus, &alone, NULL, &err), &err, "follows");
    check_ok(pr_bus_on(o->s.bus, "prices", TYPE_ASK, answer, o, &err), &err, "prices");
    stand_start(&o->s);
}

static void enqueue(outage *o, int count)
{
    pr_error err = PR_ERROR_INIT;
    pr_unit *unit = NULL;
    pr_message message = PR_MESSAGE(.type = TYPE_ORDER, .body = "{}", .body_size_bytes = 2);
    check_ok(pr_unit_begin(o->s.w->store, &unit, &err), &err, "begin");
    for (int i = 0; i < count; i++)
        check_ok(pr_bus_enqueue(o->s.bus, unit, NULL, &message, NULL, &err), &err, "enqueue");
    check_ok(pr_unit_commit(unit, NULL, &err), &err, "commit");
    pr_unit_free(unit);
}

static void wait_at_least(atomic_int *seen, int wanted, const char *label)
{
    int64_t until_us = pr__monotonic_us() + PATIENCE_US;
    while (atomic_load(seen) < wanted && pr__monotonic_us() < until_us)
        pr__sleep_us(1000);
    if (atomic_load(seen) < wanted)
        fail_msg("%s: %d, wanted %d or more", label, atomic_load(seen), wanted);
}

/* Until its health is, or is no longer, HEALTHY; a part of the reason, "" = any. */
static void wait_health(outage *o, bool healthy, const char *part, const char *label)
{
    int64_t until_us = pr__monotonic_us() + PATIENCE_US;
    pr_bus_snapshot seen = bus_snapshot(&o->s);
    while (((seen.health == PR_HEALTH_HEALTHY) != healthy || !strstr(seen.health_reason, part)) &&
           pr__monotonic_us() < until_us) {
        pr__sleep_us(1000);
        seen = bus_snapshot(&o->s);
    }
    if ((seen.health == PR_HEALTH_HEALTHY) != healthy || !strstr(seen.health_reason, part))
        fail_msg("%s: health is %d, '%s'", label, (int)seen.health, seen.health_reason);
}

/* Until so many endpoints say that they accept, or handle, something. */
static void wait_serving(outage *o, uint32_t wanted, const char *label)
{
    int64_t until_us = pr__monotonic_us() + PATIENCE_US;
    pr_bus_snapshot seen = bus_snapshot(&o->s);
    while (seen.accepting + seen.busy != wanted && pr__monotonic_us() < until_us) {
        pr__sleep_us(1000);
        seen = bus_snapshot(&o->s);
    }
    if (seen.accepting + seen.busy != wanted)
        fail_msg("%s: %u endpoints accept or handle, wanted %u", label, seen.accepting + seen.busy,
                 wanted);
}

static void check_ask(outage *o, int64_t timeout_ms, const char *label)
{
    pr_error err = PR_ERROR_INIT;
    pr_reply *reply = NULL;
    pr_message question = PR_MESSAGE(.type = TYPE_ASK, .body = "{}", .body_size_bytes = 2);
    const pr_request_options opt = PR_REQUEST_OPTIONS(.timeout_ms = timeout_ms);
    check_ok(pr_bus_request(o->s.bus, "prices", &question, &opt, &reply, &err), &err, label);
    pr_reply_free(reply);
}

/* ---- the database and the broker ---- */

static void both_may_go_at_once(void **state)
{
    static const struct {
        const char *label;
        bool database_first; /* to come again */
    } cases[] = {{"the database comes first", true}, {"the broker comes first", false}};
    static outage o;
    world *w = *state;
    pr_message message = PR_MESSAGE(.type = TYPE_ORDER, .body = "{}", .body_size_bytes = 2);
    outage_open(&o, w);
    atomic_store(&o.slow, true);
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        pr_error err = PR_ERROR_INIT;
        pr_unit *unit = NULL;
        int before = atomic_load(&o.orders);
        enqueue(&o, MESSAGES);
        wait_at_least(&o.orders, before + 5, cases[i].label);
        w->provider->down(true);
        bus_carrier_in_use->down(true);
        wait_health(&o, false, "", cases[i].label);
        wait_serving(&o, 0, cases[i].label);
        assert_int_equal(pr_bus_publish(o.s.bus, &message, NULL, &err), PR_E_BACKEND);
        assert_int_equal(pr_unit_begin(w->store, &unit, &err), PR_E_BACKEND);
        if (cases[i].database_first)
            w->provider->down(false);
        bus_carrier_in_use->down(false);
        if (!cases[i].database_first)
            w->provider->down(false);
        wait_health(&o, true, "", cases[i].label);
        wait_serving(&o, 3, cases[i].label);
        world_until_number(w, FOLLOWED, (int)(i + 1) * MESSAGES);
        CHECK_CASE(world_number(w, EFFECTS) == 2 * (int)(i + 1) * MESSAGES, cases[i].label);
        CHECK_CASE(world_number(w, DISTINCT) == 2 * (int)(i + 1) * MESSAGES, cases[i].label);
        CHECK_CASE(world_number(w, PARKED) == 0, cases[i].label);
        check_ask(&o, PATIENCE_MS, cases[i].label);
    }
    stand_close(&o.s);
}

/* ---- what somebody deletes ---- */

/* Published, under one id, until it reaches somebody again. */
static void publish_until_taken(outage *o, const char *type, size_t number)
{
    char id[40];
    pr_error err = PR_ERROR_INIT;
    (void)snprintf(id, sizeof id, "0198c5f2-7d3e-7a10-8b2c-%012zx", number);
    pr_message message = PR_MESSAGE(.id = id, .type = type, .body = "{}", .body_size_bytes = 2);
    pr_status status = PR_E_NOT_FOUND;
    int64_t until_us = pr__monotonic_us() + PATIENCE_US;
    while (status != PR_OK && pr__monotonic_us() < until_us) {
        pr_error_clear(&err);
        status = pr_bus_publish(o->s.bus, &message, NULL, &err);
        pr__sleep_us(1000);
    }
    check_ok(status, &err, type);
}

static void a_deleted_queue_is_made_again(void **state)
{
    static const char *const cases[][2] = {
        {"orders", TYPE_ORDER}, {"follows", TYPE_FOLLOW}, {"orders", TYPE_ORDER}};
    static outage o;
    outage_open(&o, *state);
    enqueue(&o, 5);
    world_until_number(*state, FOLLOWED, 5);
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        bus_carrier_in_use->remove("queue", cases[i][0]);
        publish_until_taken(&o, cases[i][1], i);
        enqueue(&o, 5);
        world_until_number(*state, FOLLOWED, 5 + 6 * ((int64_t)i + 1));
    }
    wait_health(&o, true, "", "after");
    wait_serving(&o, 3, "after");
    stand_close(&o.s);
}

static void wait_reason(world *w, const char *part)
{
    int64_t until_us = pr__monotonic_us() + PATIENCE_US;
    pr_endpoint_snapshot seen = world_snapshot(w);
    bool wanted = part[0] == '\0';
    while ((seen.state == PR_ENDPOINT_ACCEPTING) != wanted && pr__monotonic_us() < until_us) {
        pr__sleep_us(1000);
        seen = world_snapshot(w);
    }
    if ((seen.state == PR_ENDPOINT_ACCEPTING) != wanted || !strstr(seen.unreached_reason, part))
        fail_msg("state %d, because '%s', wanted '%s'", (int)seen.state, seen.unreached_reason,
                 part);
}

/* A receiver that may not declare says what is missing, and goes on once it was declared. */
static void a_deleted_queue_that_it_may_not_make_is_named(void **state)
{
    static const char *const types[] = {TYPE_ORDER};
    world *w = *state;
    pr_error err = PR_ERROR_INIT;
    pr_transport *declarer = NULL;
    const pr_subscribe_options opt = {
        .size = (uint32_t)sizeof opt, .endpoint = CONSUMER, .types = types, .type_count = 1};
    bus_carrier_in_use->fresh();
    check_ok(bus_carrier_in_use->make(&declarer, &err), &err, "declarer");
    check_ok(pr_transport_topology(declarer, &opt, false, &err), &err, "declare");
    w->receiver = pr_transport_free(w->receiver);
    check_ok(bus_carrier_in_use->make_checking(&w->receiver, &err), &err, "receiver");
    world_run(w);
    wait_reason(w, "");
    bus_carrier_in_use->remove("queue", CONSUMER);
    wait_reason(w, CONSUMER);
    assert_int_equal(world_snapshot(w).state, PR_ENDPOINT_STOPPED);
    check_ok(pr_transport_topology(declarer, &opt, false, &err), &err, "declare again");
    wait_reason(w, "");
    world_stop(w);
    pr_transport_free(declarer);
}

static void a_deleted_exchange_is_told_and_comes_with_the_subscription(void **state)
{
    static outage o;
    pr_error err = PR_ERROR_INIT;
    pr_message message = PR_MESSAGE(.type = TYPE_ORDER, .body = "{}", .body_size_bytes = 2);
    outage_open(&o, *state);
    check_ok(pr_bus_publish(o.s.bus, &message, NULL, &err), &err, "before");
    bus_carrier_in_use->remove("exchange", "shop");
    assert_int_equal(pr_bus_publish(o.s.bus, &message, NULL, &err), PR_E_NOT_FOUND);
    assert_non_null(strstr(err.message, "exchange"));
    assert_int_equal(pr_bus_publish(o.s.bus, &message, NULL, NULL), PR_E_NOT_FOUND);
    bus_carrier_in_use->cut(); /* they subscribe anew */
    publish_until_taken(&o, TYPE_ORDER, 0);
    world_until_number(*state, FOLLOWED, 2);
    assert_int_equal(world_number(*state, EFFECTS), 4);
    stand_close(&o.s);
}

/* ---- alarms ---- */

/* The first publish of a connection may pass: it is what the broker blocks it for. */
static void an_alarm_holds_up_publishers_alone(void **state)
{
    static const char *const resources[] = {"disk", "memory"};
    static outage o;
    outage_open(&o, *state);
    check_ask(&o, PATIENCE_MS, "before");
    for (size_t i = 0; i < COUNT_OF(resources); i++) {
        pr_reply *reply = NULL;
        pr_error err = PR_ERROR_INIT;
        pr_message question = PR_MESSAGE(.type = TYPE_ASK, .body = "{}", .body_size_bytes = 2);
        const pr_request_options soon = PR_REQUEST_OPTIONS(.timeout_ms = 1500);
        int before = atomic_load(&o.orders);
        pr_endpoint_pause(pr_bus_endpoint(o.s.bus, "orders"));
        for (int n = 0; n < 5; n++) {
            pr_message message = PR_MESSAGE(.type = TYPE_ORDER, .body = "{}", .body_size_bytes = 2);
            check_ok(pr_bus_publish(o.s.bus, &message, NULL, &err), &err, resources[i]);
        }
        bus_carrier_in_use->alarm(resources[i], true);
        pr_endpoint_resume(pr_bus_endpoint(o.s.bus, "orders"));
        wait_at_least(&o.orders, before + 5, resources[i]); /* they are consumed all the same */
        wait_health(&o, false, "blocked", resources[i]);    /* the relay has their follow-ups */
        pr_status status = pr_bus_request(o.s.bus, "prices", &question, &soon, &reply, &err);
        assert_true(status == PR_E_BUSY || status == PR_E_BACKEND);
        bus_carrier_in_use->alarm(resources[i], false);
        wait_health(&o, true, "", resources[i]);
        world_until_number(*state, FOLLOWED, 5 * (int64_t)(i + 1));
        check_ask(&o, PATIENCE_MS, resources[i]);
    }
    assert_int_equal(world_number(*state, EFFECTS), 20);
    assert_int_equal(world_number(*state, DISTINCT), 20);
    stand_close(&o.s);
}

/* ---- the queue for answers ---- */

typedef struct waiter {
    outage *o;
    pr_status status;
} waiter;

static pr_handled answer_late(void *user, pr_scope *scope)
{
    outage *o = user;
    int64_t until_us = pr__monotonic_us() + PATIENCE_US;
    pr_message price = PR_MESSAGE(.type = TYPE_PRICE, .body = "{}", .body_size_bytes = 2);
    atomic_fetch_add(&o->asked, 1);
    while (atomic_load(&o->slow) && !atomic_load(&o->s.w->over) && pr__monotonic_us() < until_us)
        pr__sleep_us(1000);
    return pr_scope_reply(scope, &price, NULL, NULL) == PR_OK ? PR_HANDLED_OK : PR_HANDLED_RETRY;
}

static void *ask_late(void *user)
{
    waiter *at = user;
    pr_reply *reply = NULL;
    pr_message question = PR_MESSAGE(.type = TYPE_ASK, .body = "{}", .body_size_bytes = 2);
    const pr_request_options opt = PR_REQUEST_OPTIONS(.timeout_ms = 1500);
    at->status = pr_bus_request(at->o->s.bus, "late", &question, &opt, &reply, NULL);
    pr_reply_free(reply);
    return NULL;
}

/* A request whose answers went away ends in time, answered or not, and the next one works. */
static void a_deleted_queue_for_answers_costs_its_request_at_most(void **state)
{
    static outage o;
    static waiter at;
    pr_error err = PR_ERROR_INIT;
    at = (waiter){.o = &o};
    outage_open(&o, *state);
    pr_bus_stop(o.s.bus);
    check_ok(pr_bus_on(o.s.bus, "late", TYPE_NONE, answer_late, &o, &err), &err, "late");
    stand_start(&o.s);
    check_ask(&o, PATIENCE_MS, "before");
    atomic_store(&o.asked, 0);
    atomic_store(&o.slow, true);
    world_thread(*state, ask_late, &at);
    wait_seen(&o.asked, 1, "the question");
    char name[128] = "";
    bus_carrier_in_use->find_queue("reply:", name);
    assert_true(name[0] != '\0');
    bus_carrier_in_use->remove("queue", name);
    atomic_store(&o.slow, false);
    world_join(*state);
    assert_true(at.status == PR_OK || at.status == PR_E_BACKEND);
    check_ask(&o, PATIENCE_MS, "after");
    stand_close(&o.s);
}

size_t outage_suite(const struct CMUnitTest **ret_tests)
{
    static const struct CMUnitTest tests[] = {
        CASE(a_deleted_queue_is_made_again),
        CASE(a_deleted_queue_that_it_may_not_make_is_named),
        CASE(a_deleted_exchange_is_told_and_comes_with_the_subscription),
        CASE(a_deleted_queue_for_answers_costs_its_request_at_most),
        CASE(an_alarm_holds_up_publishers_alone),
        CASE(both_may_go_at_once),
    };
    *ret_tests = tests;
    if (!bus_carrier_in_use)
        return 0;
    return bus_provider_in_use->down ? COUNT_OF(tests) : COUNT_OF(tests) - 1;
}
