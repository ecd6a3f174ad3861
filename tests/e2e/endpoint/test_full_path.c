/*
 * A message's whole way: unit, outbox, relay, broker, inbox, handler, follow-up, and events of an
 * aggregate on a database that refuses the commit.
 */
#include <postroom/relay.h>

#include "e2e/endpoint/world.h"

#define ID_A "0198c5f2-7d3e-7a10-8b2c-00000000000a"

static pr_unit *begin(world *w)
{
    pr_unit *unit = NULL;
    pr_error err = PR_ERROR_INIT;
    check_ok(pr_unit_begin(w->store, &unit, &err), &err, "begin");
    return unit;
}

static void relay_once(world *w, uint64_t wanted)
{
    pr_relay *relay = NULL;
    pr_relay_options opt = PR_RELAY_OPTIONS(.clock = &w->clock, .observer = &w->observer);
    uint64_t published = 0;
    pr_error err = PR_ERROR_INIT;
    check_ok(pr_relay_new(w->store, &w->sender, 1, &opt, &relay, &err), &err, "relay");
    check_ok(pr_relay_run_once(relay, &published, &err), &err, "run once");
    pr_relay_free(relay);
    assert_int_equal(published, wanted);
}

static const char body[] = "{\"total\": 1, \"odd\":\"\\u0000\"}";

static pr_message whole_message(void)
{
    return (pr_message)PR_MESSAGE(
            .id = ID_A, .type = TYPE_ORDER, .type_version = 3, .content_type = "application/x-odd",
            .destination = "memory://topic/" TYPE_ORDER, .source = "shop/1", .key = "order-1",
            .tenant = "north", .correlation_id = "talk-1", .causation_id = "before",
            .traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            .tracestate = "rojo=00f067aa0ba902b7", .headers = "{\"a\":\"b\",\"n\":{\"int\":7}}",
            .body = body, .body_size_bytes = sizeof body - 1, .occurred_at_us = 1767225600123456,
            .expires_at_us = 4102444800000001);
}

static void assert_same(const char *name, const char *a, const char *b)
{
    if ((a == NULL) != (b == NULL) || (a && strcmp(a, b) != 0))
        fail_msg("%s: '%s' became '%s'", name, a ? a : "NULL", b ? b : "NULL");
}

static pr_handled act_compare(world *w, pr_scope *scope)
{
    const pr_message *got = pr_scope_message(scope);
    const pr_message sent = whole_message();
    assert_same("id", sent.id, got->id);
    assert_same("type", sent.type, got->type);
    assert_same("content_type", sent.content_type, got->content_type);
    assert_same("source", sent.source, got->source);
    assert_same("key", sent.key, got->key);
    assert_same("tenant", sent.tenant, got->tenant);
    assert_same("correlation_id", sent.correlation_id, got->correlation_id);
    assert_same("causation_id", sent.causation_id, got->causation_id);
    assert_same("traceparent", sent.traceparent, got->traceparent);
    assert_same("tracestate", sent.tracestate, got->tracestate);
    assert_same("headers", sent.headers, got->headers);
    assert_int_equal(got->type_version, sent.type_version);
    assert_int_equal(got->occurred_at_us, sent.occurred_at_us);
    assert_int_equal(got->expires_at_us, sent.expires_at_us);
    assert_int_equal(got->body_size_bytes, sent.body_size_bytes);
    assert_memory_equal(got->body, sent.body, (size_t)sent.body_size_bytes);
    (*(int *)w->extra)++;
    if (pr_scope_attempts(scope) == 0)
        return PR_HANDLED_RETRY; /* once more, out of its parked row */
    pr_message follow = PR_MESSAGE(.type = TYPE_FOLLOW);
    return pr_unit_enqueue(pr_scope_unit(scope), &follow, NULL, NULL) == PR_OK ? PR_HANDLED_OK
                                                                               : PR_HANDLED_RETRY;
}

static void the_envelope_is_the_same_by_outbox_directly_and_out_of_a_parked_row(void **state)
{
    world *w = *state;
    int compared = 0;
    w->extra = &compared;
    w->act = act_compare;
    world_start(w);
    pr_message message = whole_message();
    pr_unit *unit = begin(w);
    assert_int_equal(pr_unit_enqueue(unit, &message, NULL, NULL), PR_OK);
    assert_int_equal(pr_unit_commit(unit, NULL, NULL), PR_OK);
    pr_unit_free(unit);
    relay_once(w, 1);
    world_step_until(w, failed, 1);
    world_advance(w, 3600000);
    world_step_until(w, handled, 1);
    assert_int_equal(compared, 2);
    assert_string_equal(
        world_text(w, "SELECT correlation_id || '|' || causation_id || '|' || traceparent || '|' "
                      "|| tracestate || '|' || tenant FROM postroom_outbox WHERE type = "
                      "'" TYPE_FOLLOW "'"),
        "talk-1|" ID_A "|00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01|"
        "rojo=00f067aa0ba902b7|north");
    /* the same one, published directly, is known again by its content */
    world_send_message(w, &message);
    world_step_until(w, duplicate, 1);
    assert_int_equal(world_snapshot(w).conflict, 0);
    /* and another consumer sees the same fields of a direct one */
    w->endpoint = pr_endpoint_free(w->endpoint);
    w->opt.id = "audit";
    world_start(w);
    world_send_message(w, &message);
    world_step_until(w, failed, 1);
    assert_int_equal(compared, 3);
}

static void a_rolled_back_unit_sends_nothing(void **state)
{
    world *w = *state;
    world_start(w);
    pr_message message = whole_message();
    pr_unit *unit = begin(w);
    assert_int_equal(pr_unit_enqueue(unit, &message, NULL, NULL), PR_OK);
    assert_int_equal(pr_unit_rollback(unit, NULL), PR_OK);
    pr_unit_free(unit);
    relay_once(w, 0);
    world_steps(w, 20);
    assert_int_equal(w->calls, 0);
    assert_int_equal(world_number(w, "SELECT count(*) FROM postroom_outbox"), 0);
}

typedef struct placed {
    int64_t total;
} placed;

static const pr_field placed_fields[] = {
    {.name = "total", .kind = PR_FIELD_INT64, .offset = offsetof(placed, total)},
    {.name = NULL},
};
static const pr_contract placed_contract = {
    .size = (uint32_t)sizeof placed_contract,
    .type = TYPE_ORDER,
    .type_version = 1,
    .kind = PR_CONTRACT_DOMAIN_EVENT,
    .fields = placed_fields,
    .object_size = sizeof(placed),
};

static void exec(pr_unit *unit, const char *sql)
{
    assert_true(host_unit_try(unit, sql));
}

/* A foreign key that is checked at COMMIT makes the database refuse the commit itself. */
static void events_survive_a_commit_that_the_database_refuses(void **state)
{
    world *w = *state;
    pr_contracts *contracts = NULL;
    pr_event_source source;
    pr_event_source_init(&source);
    assert_int_equal(pr_contracts_new(&contracts, NULL), PR_OK);
    assert_int_equal(pr_contracts_register(contracts, &placed_contract, NULL), PR_OK);
    world_run(w, "CREATE TABLE customers (id INTEGER PRIMARY KEY); CREATE TABLE orders (customer "
                 "INTEGER REFERENCES customers (id) DEFERRABLE INITIALLY DEFERRED)");
    placed event = {.total = 42};
    assert_int_equal(
        pr_event_source_raise(&source, TYPE_ORDER, 1, "order-1", &event, sizeof event, NULL),
        PR_OK);
    if (world_provided.enforce_keys)
        world_provided.enforce_keys(w);
    for (int attempt = 0; attempt < 3; attempt++) {
        bool good = attempt == 2;
        pr_unit *unit = begin(w);
        assert_int_equal(pr_unit_track(unit, &source, contracts, NULL), PR_OK);
        if (good)
            exec(unit, "INSERT INTO customers VALUES (7)");
        exec(unit, "INSERT INTO orders VALUES (7)");
        pr_outcome outcome = 0;
        pr_status status = pr_unit_commit(unit, &outcome, NULL);
        pr_unit_free(unit);
        assert_int_equal(status == PR_OK, good);
        assert_int_equal(outcome, good ? PR_OUTCOME_COMMITTED : PR_OUTCOME_NOT_COMMITTED);
        assert_int_equal(source.count, good ? 0 : 1);
        assert_int_equal(world_number(w, "SELECT count(*) FROM orders"), good ? 1 : 0);
        assert_int_equal(world_number(w, "SELECT count(*) FROM postroom_outbox"), good ? 1 : 0);
    }
    assert_string_equal(world_text(w, "SELECT CAST(body AS TEXT) FROM postroom_outbox"),
                        "{\"total\":42}");
    pr_event_source_done(&source);
    pr_contracts_free(contracts);
}

static pr_handled act_break_foreign_key(world *w, pr_scope *scope)
{
    (void)w;
    exec(pr_scope_unit(scope), "INSERT INTO orders VALUES (99)");
    return PR_HANDLED_OK;
}

static void a_handler_whose_commit_is_refused_fails_that_message_alone(void **state)
{
    world *w = *state;
    world_run(w, "CREATE TABLE customers (id INTEGER PRIMARY KEY); CREATE TABLE orders (customer "
                 "INTEGER REFERENCES customers (id) DEFERRABLE INITIALLY DEFERRED)");
    if (world_provided.enforce_keys)
        world_provided.enforce_keys(w);
    world_start(w);
    w->act = act_break_foreign_key;
    world_send(w, ID_A, NULL, "{}");
    world_step_until(w, failed, 1);
    assert_false(world_snapshot(w).paused);
    assert_int_equal(world_number(w, EFFECTS), 0);
    assert_int_equal(world_number(w, MARKS), 0);
    assert_non_null(
        strcasestr(world_text(w, "SELECT last_error FROM postroom_inbox_parked"), "FOREIGN KEY"));
    w->act = act_ok;
    world_send(w, "another", NULL, "{}");
    world_step_until(w, handled, 1);
}

static void a_joined_unit_carries_events_with_the_hosts_commit(void **state)
{
    world *w = *state;
    pr_contracts *contracts = NULL;
    pr_event_source source;
    pr_error err = PR_ERROR_INIT;
    pr_event_source_init(&source);
    assert_int_equal(pr_contracts_new(&contracts, NULL), PR_OK);
    assert_int_equal(pr_contracts_register(contracts, &placed_contract, NULL), PR_OK);
    for (int attempt = 0; attempt < 2; attempt++) {
        placed event = {.total = attempt};
        pr_unit *unit = NULL;
        const char *end = attempt == 0 ? "ROLLBACK" : "COMMIT";
        world_run(w, world_provided.begin);
        check_ok(host_unit_join(w->store, w->db, &unit, &err), &err, "join");
        assert_int_equal(pr_unit_track(unit, &source, contracts, NULL), PR_OK);
        assert_int_equal(
            pr_event_source_raise(&source, TYPE_ORDER, 1, NULL, &event, sizeof event, NULL), PR_OK);
        check_ok(pr_unit_flush(unit, &err), &err, "flush");
        world_run(w, end);
        pr_outcome outcome = attempt == 0 ? PR_OUTCOME_NOT_COMMITTED : PR_OUTCOME_COMMITTED;
        assert_int_equal(pr_unit_finished(unit, outcome, NULL), PR_OK);
        pr_unit_free(unit);
        assert_int_equal(source.count, attempt == 0 ? 1 : 0);
    }
    assert_int_equal(world_number(w, "SELECT count(*) FROM postroom_outbox"), 2);
    assert_int_equal(world_number(w, "SELECT count(DISTINCT message_id) FROM postroom_outbox"), 2);
    pr_event_source_done(&source);
    pr_contracts_free(contracts);
}

static void a_failed_nested_unit_leaves_nothing_of_the_outer_one(void **state)
{
    world *w = *state;
    pr_message message = whole_message();
    pr_unit *outer = begin(w), *nested = NULL;
    exec(outer, "INSERT INTO effects (id) VALUES ('x')");
    assert_int_equal(pr_unit_enqueue(outer, &message, NULL, NULL), PR_OK);
    assert_int_equal(pr_unit_nest(outer, &nested, NULL), PR_OK);
    assert_ptr_equal(host_unit_connection(nested), host_unit_connection(outer));
    pr_unit_free(nested); /* failed, and nobody looks */
    assert_int_equal(pr_unit_commit(outer, NULL, NULL), PR_E_STATE);
    pr_unit_free(outer);
    assert_int_equal(world_number(w, EFFECTS), 0);
    assert_int_equal(world_number(w, "SELECT count(*) FROM postroom_outbox"), 0);
}

static int suite(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, world_setup, world_teardown)
    const struct CMUnitTest tests[] = {
        CASE(the_envelope_is_the_same_by_outbox_directly_and_out_of_a_parked_row),
        CASE(a_rolled_back_unit_sends_nothing),
        CASE(events_survive_a_commit_that_the_database_refuses),
        CASE(a_handler_whose_commit_is_refused_fails_that_message_alone),
        CASE(a_joined_unit_carries_events_with_the_hosts_commit),
        CASE(a_failed_nested_unit_leaves_nothing_of_the_outer_one),
    };
#undef CASE
    return RUN_TESTS(tests);
}

int main(void)
{
    return world_main(suite);
}
