/*
 * The bus: transports by scheme, fan-out, the same envelope by both ways, start and stop, requests.
 * Each case runs on the memory transport and on the database transport of the store itself, or on
 * the carrier that the program was started for.
 */
#include "bus/stand.h"

#include <postroom/amqp.h>

#include "base/time.h"

static pr_handled count_one(void *user, pr_scope *scope)
{
    (void)scope;
    atomic_fetch_add((atomic_int *)user, 1);
    return PR_HANDLED_OK;
}

static pr_message order_message(const char *body)
{
    return (pr_message)PR_MESSAGE(.type = TYPE_ORDER, .body = body,
                                  .body_size_bytes = strlen(body));
}

static pr_status misuse(stand *s, size_t which, pr_error *err)
{
    const pr_request_options backwards = PR_REQUEST_OPTIONS(.timeout_ms = -1);
    pr_message message = order_message("{}"), later = message;
    pr_reply *reply = NULL;
    pr_endpoint_options opt = s->w->opt;
    later.deliver_at_us = 4102444800000000;
    opt.id = "a";
    switch (which) {
    case 0:
        return pr_bus_add_transport(s->bus, s->memory, err);
    case 1:
        return pr_bus_add_endpoint(s->bus, &opt, "carrier", err);
    case 2:
        return pr_bus_add_endpoint(s->bus, &opt, NULL, err);
    case 3:
        return pr_bus_send(s->bus, "carrier://in/a", &message, NULL, err);
    case 4:
        return pr_bus_send(s->bus, "memory://out/a", &message, NULL, err);
    case 5:
        return pr_bus_send(s->bus, "", &message, NULL, err);
    case 6:
        return pr_bus_publish(s->bus, &later, NULL, err);
    case 7:
        return pr_bus_request(s->bus, "a", &message, NULL, &reply, err);
    case 8:
        return pr_bus_request(s->bus, "a", &message, &backwards, &reply, err);
    case 9:
        check_ok(pr_bus_start(s->bus, err), err, "start");
        return pr_bus_start(s->bus, err);
    }
    return PR_OK;
}

static void misuse_is_refused(void **state)
{
    static stand s;
    pr_error err = PR_ERROR_INIT;
    pr_bus *none = NULL;
    check_error(pr_bus_new(&(pr_bus_options)PR_BUS_OPTIONS(.store = NULL), &none, &err), &err,
                PR_E_INVALID, "needs a store", "no store");
    stand_open(&s, *state, "memory");
    const pr_bus_options hasty = PR_BUS_OPTIONS(.store = s.w->store, .reply_expiry_ms = 99);
    err = (pr_error)PR_ERROR_INIT;
    check_error(pr_bus_new(&hasty, &none, &err), &err, PR_E_INVALID,
                "reply_expiry_ms is 99, must be 0 or >= 100", "expiry");
    const struct {
        const char *label;
        pr_status wanted;
        const char *text;
    } cases[] = {
        {"twice", PR_E_CONFLICT, "a transport 'memory' already"},
        {"no such transport", PR_E_NOT_FOUND, "no transport 'carrier' on this bus"},
        {"endpoint twice", PR_E_CONFLICT, "an endpoint 'a' already"},
        {"unknown scheme", PR_E_NOT_FOUND, "no transport 'carrier' on this bus"},
        {"bad address", PR_E_CONTENT, ""},
        {"nowhere", PR_E_INVALID, "is empty"},
        {"delayed", PR_E_INVALID, "pr_bus_enqueue"},
        {"not started", PR_E_STATE, "not started"},
        {"timeout", PR_E_INVALID, "timeout_ms is -1"},
        {"started", PR_E_STATE, "stop it first"},
    };
    check_ok(pr_bus_on(s.bus, "a", TYPE_ORDER, count_one, &s.seen[0], &err), &err, "on");
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        pr_error_clear(&err);
        pr_status status = misuse(&s, i, &err);
        check_error(status, &err, cases[i].wanted, cases[i].text, cases[i].label);
    }
    assert_null(pr_bus_endpoint(s.bus, "b"));
    stand_close(&s);
}

/* A broker that does not tell what it has given out cannot be waited for; idle_suite.c has those
   that do. */
static void an_endpoint_on_a_carrier_cannot_be_waited_for(void **state)
{
    static stand s;
    pr_error err = PR_ERROR_INIT;
    if (!bus_carrier_in_use)
        return;
    stand_open(&s, *state, scheme_at(0));
    check_ok(pr_bus_on(s.bus, "a", TYPE_ORDER, count_one, &s.seen[0], &err), &err, "on");
    stand_start(&s);
    check_error(pr_bus_wait_idle(s.bus, 1000, &err), &err, PR_E_UNSUPPORTED, "backlog", "wait");
    stand_close(&s);
}

/* It starts and goes on trying; but nobody takes it for healthy, and why is to be seen. */
static void an_endpoint_that_cannot_subscribe_is_told(void **state)
{
    world *w = *state;
    pr_error err = PR_ERROR_INIT;
    pr_bus *bus = NULL;
    pr_transport *nowhere = NULL;
    const pr_bus_options opt =
        PR_BUS_OPTIONS(.store = w->store, .start_wait_ms = 50, .relay_off = true);
    check_ok(pr_amqp_transport_new("amqp://me:sekret@127.0.0.1:1", NULL, &nowhere, &err), &err,
             "transport");
    check_ok(pr_bus_new(&opt, &bus, &err), &err, "bus");
    check_ok(pr_bus_add_transport(bus, nowhere, &err), &err, "add");
    check_ok(pr_bus_on(bus, "billing", TYPE_ORDER, count_one, NULL, &err), &err, "on");
    check_ok(pr_bus_start(bus, &err), &err, "start");
    pr_bus_snapshot seen = {.size = (uint32_t)sizeof seen};
    int64_t until_us = pr__monotonic_us() + PATIENCE_US;
    do {
        pr__sleep_us(1000);
        check_ok(pr_bus_snapshot_get(bus, &seen, &err), &err, "snapshot");
    } while (!strstr(seen.health_reason, "nobody answers") && pr__monotonic_us() < until_us);
    assert_non_null(strstr(seen.health_reason, "billing: connect to 127.0.0.1:1: nobody answers"));
    assert_null(strstr(seen.health_reason, "sekret"));
    assert_int_equal(seen.health, PR_HEALTH_DEGRADED);
    assert_int_equal(seen.stopped, 1);
    assert_int_equal(seen.accepting, 0);
    pr_endpoint_snapshot one = {.size = (uint32_t)sizeof one};
    check_ok(pr_endpoint_snapshot_get(pr_bus_endpoint(bus, "billing"), &one, &err), &err, "one");
    assert_true(one.running);
    assert_int_equal(one.state, PR_ENDPOINT_STOPPED);
    assert_non_null(strstr(one.unreached_reason, "nobody answers"));
    pr_bus_free(bus);
    pr_transport_free(nowhere);
}

static void a_publish_reaches_each_endpoint_once_and_a_send_one(void **state)
{
    static const char *const ids[] = {"north", "south", "west"};
    for (size_t n = 0; scheme_at(n); n++) {
        static stand s;
        pr_error err = PR_ERROR_INIT;
        stand_open(&s, *state, scheme_at(n));
        for (size_t i = 0; i < COUNT_OF(ids); i++)
            check_ok(pr_bus_on(s.bus, ids[i], TYPE_ORDER, count_one, &s.seen[i], &err), &err,
                     ids[i]);
        stand_start(&s);
        pr_message message = order_message("{}");
        pr_enqueued enqueued;
        for (int i = 0; i < 5; i++)
            check_ok(pr_bus_publish(s.bus, &message, &enqueued, &err), &err, scheme_at(n));
        assert_int_equal(strlen(enqueued.id), 36);
        check_ok(pr_bus_send(s.bus, "south", &message, NULL, &err), &err, scheme_at(n));
        wait_seen(&s.seen[0], 5, "north");
        wait_seen(&s.seen[1], 6, "south");
        wait_seen(&s.seen[2], 5, "west");
        check_error(pr_bus_publish(s.bus,
                                   &(pr_message)PR_MESSAGE(.type = TYPE_NONE, .body = "{}",
                                                           .body_size_bytes = 2),
                                   NULL, &err),
                    &err, PR_E_NOT_FOUND, "nobody would get it", scheme_at(n));
        pr_bus_snapshot snapshot = bus_snapshot(&s);
        assert_true(snapshot.started && snapshot.relay_running);
        assert_int_equal(snapshot.endpoint_count, 3);
        assert_int_equal(snapshot.accepting + snapshot.busy, 3);
        assert_int_equal(snapshot.published, 6);
        assert_int_equal(snapshot.refused, 1);
        stand_close(&s);
    }
}

static const char *or_none(const char *text)
{
    return text ? text : "-";
}

/* All that a receiver sees, but for the id and the time, which are given. */
static pr_handled write_envelope(void *user, pr_scope *scope)
{
    stand *s = user;
    const pr_message *m = pr_scope_message(scope);
    int at = atomic_load(&s->envelope_count);
    (void)snprintf(s->envelopes[at], sizeof s->envelopes[at],
                   "%s|%u|%s|%s|%s|%s|%s|%s|%s|%s|%s|%s|%lld|%lld|%lld|%.*s", m->type,
                   m->type_version, m->content_type, or_none(m->destination), or_none(m->source),
                   or_none(m->key), or_none(m->tenant), or_none(m->correlation_id),
                   or_none(m->causation_id), or_none(m->traceparent), or_none(m->tracestate),
                   or_none(m->headers), (long long)m->occurred_at_us, (long long)m->expires_at_us,
                   (long long)m->body_size_bytes, (int)m->body_size_bytes, (const char *)m->body);
    atomic_store(&s->envelope_count, at + 1);
    return PR_HANDLED_OK;
}

static void directly_and_by_the_outbox_it_is_the_same_envelope(void **state)
{
    for (size_t n = 0; scheme_at(n); n++) {
        static stand s;
        pr_error err = PR_ERROR_INIT;
        stand_open(&s, *state, scheme_at(n));
        check_ok(pr_bus_on(s.bus, "reader", TYPE_ORDER, write_envelope, &s, &err), &err, "on");
        stand_start(&s);
        pr_message message = order_message("{\"a\":1}");
        message.key = "k";
        message.tenant = "north";
        message.correlation_id = "talk";
        message.headers = "{\"x\":\"y\",\"n\":{\"int\":1}}";
        message.traceparent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        message.occurred_at_us = 1767225600123456;
        message.expires_at_us = 4102444800000000;
        check_ok(pr_bus_publish(s.bus, &message, NULL, &err), &err, "publish");
        wait_seen(&s.envelope_count, 1, "directly");
        pr_unit *unit = NULL;
        check_ok(pr_unit_begin(s.w->store, &unit, &err), &err, "begin");
        check_ok(pr_bus_enqueue(s.bus, unit, NULL, &message, NULL, &err), &err, "enqueue");
        check_ok(pr_unit_commit(unit, NULL, &err), &err, "commit");
        pr_unit_free(unit);
        wait_seen(&s.envelope_count, 2, "outbox");
        assert_string_equal(s.envelopes[0], s.envelopes[1]);
        assert_non_null(strstr(s.envelopes[0], "|tests|k|north|talk|"));
        stand_close(&s);
    }
}

static void an_unknown_scheme_parks_that_message_alone(void **state)
{
    static stand s;
    pr_error err = PR_ERROR_INIT;
    stand_open(&s, *state, scheme_at(0));
    check_ok(pr_bus_on(s.bus, "reader", TYPE_ORDER, count_one, &s.seen[0], &err), &err, "on");
    stand_start(&s);
    pr_message message = order_message("{}");
    pr_unit *unit = NULL;
    check_ok(pr_unit_begin(s.w->store, &unit, &err), &err, "begin");
    for (int i = 0; i < 6; i++) {
        const char *to = i == 2  ? "carrier://in/reader"
                         : i % 2 ? "database://in/reader2"
                                 : "reader";
        if (i % 2 == 1)
            to = "reader";
        check_ok(pr_bus_enqueue(s.bus, unit, to, &message, NULL, &err), &err, "enqueue");
    }
    check_ok(pr_unit_commit(unit, NULL, &err), &err, "commit");
    pr_unit_free(unit);
    wait_seen(&s.seen[0], 5, "the others");
    int64_t until_us = pr__monotonic_us() + PATIENCE_US;
    while (world_number(s.w, "SELECT count(*) FROM {p}_outbox_parked") != 1 &&
           pr__monotonic_us() < until_us)
        pr__sleep_us(10000);
    assert_string_equal(world_text(s.w, "SELECT destination FROM {p}_outbox_parked"),
                        "carrier://in/reader");
    stand_close(&s);
}

static pr_handled follow_on(void *user, pr_scope *scope)
{
    (void)user;
    pr_message follow = PR_MESSAGE(.type = TYPE_FOLLOW, .body = "{}", .body_size_bytes = 2);
    return pr_scope_publish(scope, &follow, NULL, NULL) == PR_OK ? PR_HANDLED_OK : PR_HANDLED_RETRY;
}

/* Publish, handle with a follow-up, relay, handle: on either transport as the default. */
static void a_follow_up_goes_on_by_the_default_transport(void **state)
{
    for (size_t n = 0; scheme_at(n); n++) {
        static stand s;
        pr_error err = PR_ERROR_INIT;
        stand_open(&s, *state, scheme_at(n));
        check_ok(pr_bus_on(s.bus, "first", TYPE_ORDER, follow_on, NULL, &err), &err, "first");
        check_ok(pr_bus_on(s.bus, "second", TYPE_FOLLOW, count_one, &s.seen[0], &err), &err,
                 "second");
        stand_start(&s);
        pr_message message = order_message("{}");
        for (int i = 0; i < 20; i++)
            check_ok(pr_bus_publish(s.bus, &message, NULL, &err), &err, scheme_at(n));
        wait_seen(&s.seen[0], 20, scheme_at(n));
        stand_close(&s);
    }
}

/* Stopped, what comes meanwhile waits; started again, it is handled. */
static void a_bus_is_stopped_and_started_again(void **state)
{
    for (size_t n = 0; scheme_at(n); n++) {
        static stand s;
        pr_error err = PR_ERROR_INIT;
        stand_open(&s, *state, scheme_at(n));
        check_ok(pr_bus_on(s.bus, "reader", TYPE_ORDER, count_one, &s.seen[0], &err), &err, "on");
        stand_start(&s);
        pr_message message = order_message("{}");
        check_ok(pr_bus_publish(s.bus, &message, NULL, &err), &err, "publish");
        wait_seen(&s.seen[0], 1, scheme_at(n));
        pr_bus_stop(s.bus);
        pr_bus_stop(s.bus);
        pr_bus_snapshot snapshot = bus_snapshot(&s);
        assert_false(snapshot.started || snapshot.relay_running);
        assert_int_equal(snapshot.stopped, 1);
        check_ok(pr_bus_publish(s.bus, &message, NULL, &err), &err, "while stopped");
        stand_start(&s);
        wait_seen(&s.seen[0], 2, scheme_at(n));
        pr_endpoint *reader = pr_bus_endpoint(s.bus, "reader");
        pr_endpoint_pause(reader);
        int64_t until_us = pr__monotonic_us() + PATIENCE_US;
        while (bus_snapshot(&s).paused != 1 && pr__monotonic_us() < until_us)
            pr__sleep_us(1000);
        snapshot = bus_snapshot(&s);
        assert_int_equal(snapshot.paused, 1);
        pr_endpoint_resume(reader);
        stand_close(&s);
    }
}

/* ---- requests ---- */

static pr_handled answer(void *user, pr_scope *scope)
{
    stand *s = user;
    const pr_message *request = pr_scope_message(scope);
    pr_message price = PR_MESSAGE(.type = TYPE_PRICE, .body = request->body,
                                  .body_size_bytes = request->body_size_bytes);
    pr_message none = PR_MESSAGE(.type = TYPE_NONE, .body = "{}", .body_size_bytes = 2);
    bool known = request->body_size_bytes > 2;
    atomic_fetch_add(&s->seen[0], 1);
    return pr_scope_reply(scope, known ? &price : &none, NULL, NULL) == PR_OK ? PR_HANDLED_OK
                                                                              : PR_HANDLED_RETRY;
}

static pr_message ask(const char *body)
{
    return (pr_message)PR_MESSAGE(.type = TYPE_ASK, .body = body, .body_size_bytes = strlen(body));
}

static void a_request_gets_its_own_answer(void **state)
{
    static const char *const wanted[] = {TYPE_PRICE};
    for (size_t n = 0; scheme_at(n); n++) {
        static stand s;
        pr_error err = PR_ERROR_INIT;
        pr_reply *reply = NULL;
        stand_open(&s, *state, scheme_at(n));
        check_ok(pr_bus_on(s.bus, "prices", TYPE_ASK, answer, &s, &err), &err, "on");
        stand_start(&s);
        for (int i = 0; i < 5; i++) {
            char body[32];
            (void)snprintf(body, sizeof body, "{\"n\":%d}", i);
            pr_message request = ask(body);
            check_ok(pr_bus_request(s.bus, "prices", &request, NULL, &reply, &err), &err,
                     scheme_at(n));
            assert_string_equal(pr_reply_message(reply)->type, TYPE_PRICE);
            assert_memory_equal(pr_reply_message(reply)->body, body, strlen(body));
            assert_null(pr_reply_object(reply));
            reply = pr_reply_free(reply);
        }
        /* of several types one came that was not asked for; without a list any will do */
        const pr_request_options only =
            PR_REQUEST_OPTIONS(.reply_types = wanted, .reply_type_count = 1);
        pr_message request = ask("{}");
        check_error(pr_bus_request(s.bus, "prices", &request, &only, &reply, &err), &err,
                    PR_E_CONTENT, TYPE_NONE, scheme_at(n));
        pr_error_clear(&err);
        check_ok(pr_bus_request(s.bus, "prices", &request, NULL, &reply, &err), &err, scheme_at(n));
        assert_string_equal(pr_reply_message(reply)->type, TYPE_NONE);
        pr_reply_free(reply);
        pr_bus_snapshot snapshot = bus_snapshot(&s);
        assert_int_equal(snapshot.requests, 7);
        assert_int_equal(snapshot.replies, 7);
        assert_int_equal(snapshot.timeouts, 0);
        stand_close(&s);
    }
}

static pr_handled answer_twice(void *user, pr_scope *scope)
{
    return answer(user, scope) == PR_HANDLED_OK ? answer(user, scope) : PR_HANDLED_RETRY;
}

/* One of them is the answer, the other came too late. */
static void a_second_answer_is_dropped(void **state)
{
    for (size_t n = 0; scheme_at(n); n++) {
        static stand s;
        pr_error err = PR_ERROR_INIT;
        pr_reply *reply = NULL;
        stand_open(&s, *state, scheme_at(n));
        check_ok(pr_bus_on(s.bus, "prices", TYPE_ASK, answer_twice, &s, &err), &err, "on");
        stand_start(&s);
        pr_message request = ask("{\"n\":1}");
        check_ok(pr_bus_request(s.bus, "prices", &request, NULL, &reply, &err), &err, scheme_at(n));
        assert_string_equal(pr_reply_message(reply)->type, TYPE_PRICE);
        int64_t until_us = pr__monotonic_us() + PATIENCE_US;
        while (bus_snapshot(&s).late_replies == 0 && pr__monotonic_us() < until_us)
            pr__sleep_us(1000);
        assert_int_equal(bus_snapshot(&s).late_replies, 1);
        assert_int_equal(bus_snapshot(&s).replies, 1);
        pr_reply_free(reply);
        stand_close(&s);
    }
}

static pr_handled answer_late(void *user, pr_scope *scope)
{
    stand *s = user;
    int64_t until_us = pr__monotonic_us() + PATIENCE_US;
    while (atomic_load(&s->seen[1]) == 0 && pr__monotonic_us() < until_us)
        pr__sleep_us(1000); /* until the requester has given up */
    return answer(user, scope);
}

static void a_late_answer_is_counted_and_dropped(void **state)
{
    for (size_t n = 0; scheme_at(n); n++) {
        static stand s;
        pr_error err = PR_ERROR_INIT;
        pr_reply *reply = NULL;
        stand_open(&s, *state, scheme_at(n));
        pr_endpoint_options opt = PR_ENDPOINT_OPTIONS(.id = "slow", .handler = answer_late,
                                                      .user = &s, .inbox = PR_INBOX_LEASED);
        check_ok(pr_bus_add_endpoint(s.bus, &opt, NULL, &err), &err, "slow");
        stand_start(&s);
        const pr_request_options soon = PR_REQUEST_OPTIONS(.timeout_ms = 100);
        pr_message request = ask("{}");
        check_error(pr_bus_request(s.bus, "slow", &request, &soon, &reply, &err), &err,
                    PR_E_BACKEND, "did not answer within 100 ms", scheme_at(n));
        assert_int_equal(err.retry, PR_RETRY_UNKNOWN);
        assert_null(reply);
        atomic_store(&s.seen[1], 1);
        int64_t until_us = pr__monotonic_us() + PATIENCE_US;
        while (bus_snapshot(&s).late_replies == 0 && pr__monotonic_us() < until_us)
            pr__sleep_us(1000);
        assert_int_equal(bus_snapshot(&s).late_replies, 1);
        assert_int_equal(bus_snapshot(&s).timeouts, 1);
        assert_int_equal(bus_snapshot(&s).replies, 0);
        stand_close(&s);
    }
}

static pr_handled ask_further(void *user, pr_scope *scope)
{
    stand *s = user;
    pr_reply *inner = NULL;
    pr_message request = *pr_scope_message(scope);
    pr_message own = ask("{\"inner\":1}");
    s->nested = pr_bus_request(s->bus, "prices", &own, NULL, &inner, NULL);
    if (s->nested != PR_OK)
        return PR_HANDLED_PERMANENT;
    pr_message reply = PR_MESSAGE(.type = TYPE_PRICE, .body = pr_reply_message(inner)->body,
                                  .body_size_bytes = pr_reply_message(inner)->body_size_bytes);
    (void)request;
    pr_status status = pr_scope_reply(scope, &reply, NULL, NULL);
    pr_reply_free(inner);
    return status == PR_OK ? PR_HANDLED_OK : PR_HANDLED_RETRY;
}

static void a_handler_may_ask_another_before_it_answers(void **state)
{
    for (size_t n = 0; scheme_at(n); n++) {
        static stand s;
        pr_error err = PR_ERROR_INIT;
        pr_reply *reply = NULL;
        stand_open(&s, *state, scheme_at(n));
        pr_endpoint_options opt = PR_ENDPOINT_OPTIONS(.id = "outer", .handler = ask_further,
                                                      .user = &s, .inbox = PR_INBOX_LEASED);
        check_ok(pr_bus_add_endpoint(s.bus, &opt, NULL, &err), &err, "outer");
        check_ok(pr_bus_on(s.bus, "prices", TYPE_ASK, answer, &s, &err), &err, "prices");
        stand_start(&s);
        pr_message request = ask("{}");
        check_ok(pr_bus_request(s.bus, "outer", &request, NULL, &reply, &err), &err, scheme_at(n));
        assert_memory_equal(pr_reply_message(reply)->body, "{\"inner\":1}", 11);
        pr_reply_free(reply);
        stand_close(&s);
    }
}

static void *stop_soon(void *user)
{
    stand *s = user;
    pr_bus_snapshot snapshot = {.size = (uint32_t)sizeof snapshot};
    while (pr_bus_snapshot_get(s->bus, &snapshot, NULL) == PR_OK && snapshot.published == 0 &&
           !atomic_load(&s->w->over))
        pr__sleep_us(1000);
    pr_bus_stop(s->bus);
    return NULL;
}

static void who_waits_is_told_that_the_bus_stops(void **state)
{
    static stand s;
    pr_error err = PR_ERROR_INIT;
    pr_reply *reply = NULL;
    stand_open(&s, *state, scheme_at(0));
    check_ok(pr_bus_on(s.bus, "silent", TYPE_ASK, count_one, &s.seen[0], &err), &err, "silent");
    stand_start(&s);
    world_thread(s.w, stop_soon, &s);
    pr_message request = ask("{}");
    check_error(pr_bus_request(s.bus, "silent", &request, NULL, &reply, &err), &err, PR_E_CANCELLED,
                "was stopped", "stop");
    world_join(s.w);
    stand_close(&s);
}

typedef struct asker {
    stand *s;
    int number;
    pr_status status;
    bool own;
} asker;

static void *ask_many(void *user)
{
    asker *a = user;
    for (int i = 0; i < 10 && a->status == PR_OK; i++) {
        char body[48];
        pr_reply *reply = NULL;
        (void)snprintf(body, sizeof body, "{\"asker\":%d,\"n\":%d}", a->number, i);
        pr_message request = ask(body);
        a->status = pr_bus_request(a->s->bus, "prices", &request, NULL, &reply, NULL);
        a->own =
            a->status == PR_OK && memcmp(pr_reply_message(reply)->body, body, strlen(body)) == 0;
        if (!a->own)
            a->status = PR_E_CONFLICT;
        pr_reply_free(reply);
    }
    return NULL;
}

static void answers_of_many_threads_are_not_mixed_up(void **state)
{
    static stand s;
    pr_error err = PR_ERROR_INIT;
    static asker askers[4];
    stand_open(&s, *state, scheme_at(0));
    check_ok(pr_bus_on(s.bus, "prices", TYPE_ASK, answer, &s, &err), &err, "on");
    stand_start(&s);
    for (int i = 0; i < 4; i++) {
        askers[i] = (asker){.s = &s, .number = i};
        world_thread(s.w, ask_many, &askers[i]);
    }
    world_join(s.w);
    for (int i = 0; i < 4; i++)
        assert_int_equal(askers[i].status, PR_OK);
    assert_int_equal(bus_snapshot(&s).replies, 40);
    stand_close(&s);
}

size_t bus_suite(const struct CMUnitTest **ret_tests)
{
    static const struct CMUnitTest tests[] = {
        CASE(misuse_is_refused),
        CASE(an_endpoint_on_a_carrier_cannot_be_waited_for),
        CASE(an_endpoint_that_cannot_subscribe_is_told),
        CASE(a_publish_reaches_each_endpoint_once_and_a_send_one),
        CASE(directly_and_by_the_outbox_it_is_the_same_envelope),
        CASE(an_unknown_scheme_parks_that_message_alone),
        CASE(a_follow_up_goes_on_by_the_default_transport),
        CASE(a_bus_is_stopped_and_started_again),
        CASE(a_request_gets_its_own_answer),
        CASE(a_late_answer_is_counted_and_dropped),
        CASE(a_second_answer_is_dropped),
        CASE(a_handler_may_ask_another_before_it_answers),
        CASE(who_waits_is_told_that_the_bus_stops),
        CASE(answers_of_many_threads_are_not_mixed_up),
    };
    *ret_tests = tests;
    return COUNT_OF(tests);
}
