/*
 * An endpoint's inbox: one effect an id, whatever is delivered twice, refused, busy or broken.
 */
#include "e2e/endpoint/world.h"

#include <postroom/headers.h>

#include "base/fault.h"

#define ID_A "0198c5f2-7d3e-7a10-8b2c-00000000000a"
#define ID_B "0198c5f2-7d3e-7a10-8b2c-00000000000b"
#define ID_C "0198c5f2-7d3e-7a10-8b2c-00000000000c"

static world *start(void **state)
{
    world *w = *state;
    world_start(w);
    return w;
}

static void a_message_is_handled_once_however_often_it_comes(void **state)
{
    world *w = start(state);
    for (int i = 0; i < 5; i++)
        world_send(w, ID_A, NULL, "{}");
    world_send(w, "0198C5F2-7D3E-7A10-8B2C-00000000000A", NULL, "{}"); /* the same id */
    world_step_until(w, duplicate, 5);
    assert_int_equal(world_snapshot(w).handled, 1);
    assert_int_equal(w->calls, 1); /* a duplicate stops before the handler */
    assert_int_equal(world_number(w, EFFECTS), 1);
    assert_int_equal(world_number(w, MARKS), 1);
    assert_int_equal(world_number(w, PARKED), 0);
    assert_int_equal(w->seen[PR_OBSERVE_HANDLED], 1);
    assert_int_equal(w->seen[PR_OBSERVE_DUPLICATE], 5);
}

static void tenants_and_consumers_have_their_own_marks(void **state)
{
    world *w = start(state);
    pr_message message = PR_MESSAGE(.id = ID_A, .type = TYPE_ORDER, .type_version = 1,
                                    .content_type = "application/json", .occurred_at_us = 1,
                                    .destination = "memory://topic/" TYPE_ORDER);
    world_send_message(w, &message);
    message.tenant = "north";
    world_send_message(w, &message);
    world_step_until(w, handled, 2);
    pr_endpoint *billing = w->endpoint;
    w->opt.id = "audit";
    world_start(w); /* another consumer gets its own copy from here on */
    pr_endpoint *audit = w->endpoint;
    world_send_message(w, &message);
    world_step_until(w, handled, 1);
    w->endpoint = billing;
    world_step_until(w, duplicate, 1);
    assert_int_equal(world_number(w, MARKS), 3);
    assert_int_equal(world_number(w, EFFECTS), 3);
    pr_endpoint_free(audit);
}

static void the_same_id_with_other_content_is_kept_dead_apart(void **state)
{
    world *w = start(state);
    world_send(w, ID_A, NULL, "{\"a\":1}");
    world_step_until(w, handled, 1);
    world_send(w, ID_A, NULL, "{\"a\":2}");
    world_send(w, ID_A, NULL, "{\"a\":2}"); /* and it once only */
    world_step_until(w, conflict, 2);
    assert_int_equal(w->calls, 1);
    assert_int_equal(world_number(w, EFFECTS), 1);
    assert_int_equal(world_number(w, PARKED), 1);
    assert_memory_equal(world_text(w, "SELECT message_id FROM postroom_inbox_parked"),
                        "conflict:", 9);
    assert_string_equal(world_text(w, "SELECT original_id FROM postroom_inbox_parked"), ID_A);
    assert_string_equal(world_text(w, "SELECT state FROM postroom_inbox_parked"), "dead");
    assert_string_equal(world_text(w, "SELECT body FROM postroom_inbox_parked"), "{\"a\":2}");
    assert_non_null(
        strstr(world_text(w, "SELECT last_error FROM postroom_inbox_parked"), "other content"));
    assert_int_equal(
        world_number(w, "SELECT count(*) FROM postroom_inbox WHERE message_id = '" ID_A "'"), 1);
    /* beside a parked one it is the same */
    w->act = act_permanent;
    world_send(w, ID_B, NULL, "1");
    world_step_until(w, dead, 1);
    world_send(w, ID_B, NULL, "2");
    world_step_until(w, conflict, 3);
    assert_int_equal(world_number(w, PARKED), 3);
}

static void dedup_ids(void **state)
{
    world *w = start(state);
    static char long_a[400], long_b[400];
    memset(long_a, 'x', sizeof long_a - 1);
    memcpy(long_b, long_a, sizeof long_b);
    long_b[398] = 'y'; /* differs after byte 255: an id that was cut would not see it */
    const struct {
        const char *label;
        const char *id;
        const char *headers;
        const char *marked; /* LIKE pattern of the mark; NULL = parked dead */
        const char *error;
    } cases[] = {
        {"any text", "order 17/ü", NULL, "order 17/ü", NULL},
        {"long", long_a, NULL, "hash:%", NULL},
        {"other long", long_b, NULL, "hash:%", NULL},
        {"header", ID_A, "{\"postroom-message-id\":\"h-1\"}", "h-1", NULL},
        {"int header", ID_A, "{\"postroom-message-id\":{\"int\":17}}", "17", NULL},
        {"bool header", ID_A, "{\"postroom-message-id\":{\"bool\":true}}", NULL, "text nor an int"},
        {"empty header", ID_B, "{\"postroom-message-id\":\"\"}", NULL, "empty"},
        {"all zero", "00000000-0000-0000-0000-000000000000", NULL, NULL, "all zero"},
        {"empty", "", NULL, NULL, "empty"},
        {"not utf-8", "\xff\xfe", NULL, NULL, "UTF-8"},
    };
    uint64_t handled = 0, dead = 0;
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        char body[16], sql[512];
        (void)snprintf(body, sizeof body, "%zu", i);
        pr_message message =
            PR_MESSAGE(.id = cases[i].id, .type = TYPE_ORDER, .type_version = 1,
                       .content_type = "application/json",
                       .destination = "memory://topic/" TYPE_ORDER, .headers = cases[i].headers,
                       .body = body, .body_size_bytes = strlen(body), .occurred_at_us = 1);
        world_send_message(w, &message);
        if (cases[i].marked)
            world_step_until(w, handled, ++handled);
        else
            world_step_until(w, dead, ++dead);
        (void)snprintf(sql, sizeof sql,
                       cases[i].marked
                           ? "SELECT count(*) FROM postroom_inbox WHERE message_id LIKE '%s'"
                           : "SELECT count(*) FROM postroom_inbox_parked WHERE state = 'dead' AND "
                             "CAST(body AS TEXT) = '%s' AND message_id LIKE 'no-id:%%'",
                       cases[i].marked ? cases[i].marked : body);
        CHECK_CASE(world_number(w, sql) == (i == 2 ? 2 : 1), cases[i].label);
        if (cases[i].error)
            CHECK_CASE(strstr(w->last_text[PR_OBSERVE_HANDLER_DEAD], cases[i].error),
                       cases[i].label);
    }
    /* and known again */
    world_send(w, long_a, NULL, "1");
    world_step_until(w, duplicate, 1);
}

static void what_breaks_a_limit_is_dead_with_its_bytes_and_stops_nobody(void **state)
{
    world *w = start(state);
    static char long_text[40000], deep[] = "{\"a\":{\"odd\":{}}}";
    memset(long_text, 'x', sizeof long_text - 1);
    const struct {
        const char *label;
        pr_message message;
        const char *error;
    } cases[] = {
        {"tenant", PR_MESSAGE(.tenant = long_text), "tenant"},
        {"key", PR_MESSAGE(.key = long_text), "key"},
        {"empty key", PR_MESSAGE(.key = ""), "key"},
        {"correlation", PR_MESSAGE(.correlation_id = long_text), "correlation_id"},
        {"headers", PR_MESSAGE(.headers = long_text), "headers"},
        {"no headers", PR_MESSAGE(.headers = "[]"), "header"},
        {"time", PR_MESSAGE(.occurred_at_us = INT64_MIN), "occurred_at"},
    };
    (void)deep;
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        pr_message message = cases[i].message;
        char id[40];
        (void)snprintf(id, sizeof id, "bad-%zu", i);
        message.id = id;
        message.type = TYPE_ORDER;
        message.type_version = 1;
        message.content_type = "application/json";
        message.destination = "memory://topic/" TYPE_ORDER;
        message.body = "kept";
        message.body_size_bytes = 4;
        world_send_message(w, &message);
        world_step_until(w, dead, i + 1);
        CHECK_CASE(strstr(w->last_text[PR_OBSERVE_HANDLER_DEAD], cases[i].error), cases[i].label);
        CHECK_CASE(!strstr(w->last_text[PR_OBSERVE_HANDLER_DEAD], "kept"), cases[i].label);
    }
    assert_int_equal(w->calls, 0);
    assert_int_equal(
        world_number(w, "SELECT count(*) FROM postroom_inbox_parked "
                        "WHERE state = 'dead' AND CAST(body AS TEXT) = 'kept' AND attempts = 1"),
        (int64_t)COUNT_OF(cases));
    world_send(w, ID_A, NULL, "{}");
    world_step_until(w, handled, 1);
}

typedef struct order {
    int64_t total;
} order;

static const pr_field order_fields[] = {
    {.name = "total", .kind = PR_FIELD_INT64, .offset = offsetof(order, total)},
    {.name = NULL},
};
static const pr_contract order_contract = {
    .size = (uint32_t)sizeof order_contract,
    .type = TYPE_ORDER,
    .type_version = 1,
    .kind = PR_CONTRACT_INTEGRATION_EVENT,
    .fields = order_fields,
    .object_size = sizeof(order),
};

static pr_handled act_check_total(world *w, pr_scope *scope)
{
    (void)w;
    const order *decoded = pr_scope_object(scope);
    return decoded && decoded->total == 42 ? PR_HANDLED_OK : PR_HANDLED_PERMANENT;
}

static void unknown_contracts_and_bad_bodies_are_dead_at_once(void **state)
{
    world *w = *state;
    pr_contracts *contracts = NULL;
    assert_int_equal(pr_contracts_new(&contracts, NULL), PR_OK);
    assert_int_equal(pr_contracts_register(contracts, &order_contract, NULL), PR_OK);
    w->opt.contracts = contracts;
    w->act = act_check_total;
    world_start(w);
    const struct {
        const char *label;
        const char *id;
        uint32_t version;
        const char *body;
        const char *error;
    } cases[] = {
        {"unknown version", "v9", 9, "{\"total\":42}", "no contract"},
        {"not json", "j", 1, "{\"total\":", "total"},
        {"wrong type", "w", 1, "{\"total\":\"secret\"}", "total"},
        {"missing", "m", 1, "{}", "total"},
        {"null body", "n", 1, "null", ""},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        pr_message message =
            PR_MESSAGE(.id = cases[i].id, .type = TYPE_ORDER, .type_version = cases[i].version,
                       .content_type = "application/json",
                       .destination = "memory://topic/" TYPE_ORDER, .body = cases[i].body,
                       .body_size_bytes = strlen(cases[i].body), .occurred_at_us = 1);
        world_send_message(w, &message);
        world_step_until(w, dead, i + 1);
        const char *text = w->last_text[PR_OBSERVE_HANDLER_DEAD];
        if (i != 1) /* a JSON error names the place, a field error the field */
            CHECK_CASE(strstr(text, cases[i].error), cases[i].label);
        CHECK_CASE(text[0] != '\0' && !strstr(text, "secret"), cases[i].label);
        char sql[256];
        (void)snprintf(sql, sizeof sql,
                       "SELECT count(*) FROM postroom_inbox_parked WHERE message_id = '%s' AND "
                       "state = 'dead' AND CAST(body AS TEXT) = '%s'",
                       cases[i].id, cases[i].body);
        CHECK_CASE(world_number(w, sql) == 1, cases[i].label);
    }
    assert_int_equal(w->calls, 0);
    world_send(w, ID_A, NULL, "{\"total\":42}");
    world_step_until(w, handled, 1);
    assert_int_equal(w->calls, 1);
    w->endpoint = pr_endpoint_free(w->endpoint);
    pr_contracts_free(contracts);
}

static void a_busy_store_is_waited_for_and_then_the_message_goes_back_uncharged(void **state)
{
    world *w = start(state);
    world_lock(w);
    world_send(w, ID_A, NULL, "{}");
    world_step_until(w, requeued, 1);
    pr_endpoint_snapshot snapshot = world_snapshot(w);
    assert_true(snapshot.busy >= 1);
    assert_false(snapshot.paused);
    assert_int_equal(snapshot.handled + snapshot.duplicate + snapshot.failed, 0);
    assert_int_equal(w->calls, 0);
    world_unlock(w);
    world_step_until(w, handled, 1);
    assert_int_equal(world_number(w, EFFECTS), 1);
    assert_int_equal(world_number(w, PARKED), 0);
}

static void a_short_wait_ends_in_the_handler_not_in_the_queue(void **state)
{
    world *w = *state;
    w->opt.busy_wait_ms = 60000;
    world_start(w);
    world_lock(w);
    world_send(w, ID_A, NULL, "{}");
    world_step_until(w, busy, 1);
    world_unlock(w);
    world_step_until(w, handled, 1);
    assert_int_equal(world_snapshot(w).requeued, 0);
}

static pr_handled act_commit_raw(world *w, pr_scope *scope)
{
    (void)w;
    (void)host_unit_try(pr_scope_unit(scope), "COMMIT");
    return PR_HANDLED_OK;
}

static pr_handled act_rollback_raw(world *w, pr_scope *scope)
{
    (void)w;
    (void)host_unit_try(pr_scope_unit(scope), "ROLLBACK");
    return PR_HANDLED_OK;
}

static pr_handled act_rollback_and_begin(world *w, pr_scope *scope)
{
    (void)w;
    (void)host_unit_try(pr_scope_unit(scope),
                        "ROLLBACK; BEGIN; INSERT INTO effects (id) VALUES ('ghost')");
    return PR_HANDLED_OK;
}

static pr_handled act_commit_and_begin(world *w, pr_scope *scope)
{
    (void)w;
    (void)host_unit_try(pr_scope_unit(scope),
                        "COMMIT; BEGIN; INSERT INTO effects (id) VALUES ('ghost')");
    return PR_HANDLED_OK;
}

static pr_handled act_unit_commit(world *w, pr_scope *scope)
{
    (void)w;
    (void)!pr_unit_commit(pr_scope_unit(scope), NULL, NULL);
    return PR_HANDLED_OK;
}

static pr_handled act_unit_rollback(world *w, pr_scope *scope)
{
    (void)w;
    (void)!pr_unit_rollback(pr_scope_unit(scope), NULL);
    return PR_HANDLED_OK;
}

static pr_handled act_unit_free(world *w, pr_scope *scope)
{
    (void)w;
    pr_unit_free(pr_scope_unit(scope));
    return PR_HANDLED_OK;
}

static pr_handled act_leave_nested_failed(world *w, pr_scope *scope)
{
    (void)w;
    pr_unit *nested = NULL;
    if (pr_unit_nest(pr_scope_unit(scope), &nested, NULL) == PR_OK)
        pr_unit_free(nested);
    return PR_HANDLED_OK;
}

static pr_handled act_nonsense(world *w, pr_scope *scope)
{
    (void)w;
    (void)scope;
    return (pr_handled)77;
}

static void a_handler_that_ends_or_breaks_its_transaction_is_caught(void **state)
{
    world *w = start(state);
    const struct {
        const char *label;
        world_act act;
        bool committed; /* the effect and its mark stand: nothing is parked */
        const char *error;
    } cases[] = {
        {"commit", act_commit_raw, true, "ended or broke its own transaction"},
        {"commit, begin", act_commit_and_begin, true, "ended or broke its own transaction"},
        {"rollback", act_rollback_raw, false, "ended or broke its own transaction"},
        {"rollback, begin", act_rollback_and_begin, false, "ended or broke its own transaction"},
        {"pr_unit_commit", act_unit_commit, false, "the handler called pr_unit_commit"},
        {"pr_unit_rollback", act_unit_rollback, false, "the handler called pr_unit_rollback"},
        {"pr_unit_free", act_unit_free, false, "the handler called pr_unit_free"},
        {"failed nested unit", act_leave_nested_failed, false, "nested unit"},
        {"nonsense", act_nonsense, false, "answered 77"},
    };
    int64_t effects = 0, parked = 0;
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        char id[40];
        (void)snprintf(id, sizeof id, "case-%zu", i);
        w->act = cases[i].act;
        world_send(w, id, NULL, "{}");
        uint64_t failures = w->seen[PR_OBSERVE_HANDLER_FAILED];
        for (int n = 0; n < 2000 && w->seen[PR_OBSERVE_HANDLER_FAILED] == failures; n++)
            world_steps(w, 1);
        effects += cases[i].committed ? 1 : 0;
        parked += cases[i].committed ? 0 : 1;
        CHECK_CASE(strstr(w->last_text[PR_OBSERVE_HANDLER_FAILED], cases[i].error), cases[i].label);
        CHECK_CASE(world_number(w, EFFECTS) == effects, cases[i].label);
        CHECK_CASE(world_number(w, MARKS) == effects, cases[i].label);
        CHECK_CASE(world_number(w, PARKED " WHERE state = 'failed'") == parked, cases[i].label);
    }
    assert_int_equal(world_snapshot(w).handled, 0);
    w->act = act_ok; /* and the endpoint goes on */
    world_send(w, ID_A, NULL, "{}");
    world_step_until(w, handled, 1);
}

static pr_handled act_follow_up(world *w, pr_scope *scope)
{
    (void)w;
    pr_message follow = PR_MESSAGE(.type = TYPE_FOLLOW, .body = "{}", .body_size_bytes = 2);
    return pr_unit_enqueue(pr_scope_unit(scope), &follow, NULL, NULL) == PR_OK ? PR_HANDLED_OK
                                                                               : PR_HANDLED_RETRY;
}

static void ring(void *user)
{
    (*(int *)user)++;
}

static void follow_ups_commit_with_the_effect_and_carry_the_conversation_on(void **state)
{
    world *w = *state;
    int rings = 0;
    assert_int_equal(pr_store_set_doorbell(w->store, ring, &rings, NULL), PR_OK);
    world_start(w);
    w->act = act_follow_up;
    pr_message message =
        PR_MESSAGE(.id = ID_A, .type = TYPE_ORDER, .type_version = 1,
                   .content_type = "application/json", .destination = "memory://topic/" TYPE_ORDER,
                   .correlation_id = "talk-1", .causation_id = "before",
                   .traceparent = "00-aa-bb-01", .tracestate = "v=1", .tenant = "north",
                   .occurred_at_us = 1);
    world_send_message(w, &message);
    world_step_until(w, handled, 1);
    assert_int_equal(rings, 1);
    assert_string_equal(world_text(w, "SELECT correlation_id || '|' || causation_id || '|' || "
                                      "traceparent || '|' || tracestate || '|' || tenant || '|' "
                                      "|| source FROM postroom_outbox"),
                        "talk-1|" ID_A "|00-aa-bb-01|v=1|north|" CONSUMER);
    /* a message that is in no conversation begins one */
    world_send(w, ID_B, NULL, "{}");
    world_step_until(w, handled, 2);
    assert_string_equal(
        world_text(w, "SELECT correlation_id FROM postroom_outbox ORDER BY id DESC LIMIT 1"), ID_B);
    assert_int_equal(w->seen[PR_OBSERVE_ENQUEUED], 2);
}

static pr_handled act_follow_up_and_fail(world *w, pr_scope *scope)
{
    (void)act_follow_up(w, scope);
    return act_retry(w, scope);
}

static void a_failing_handler_leaves_nothing_but_its_parked_message(void **state)
{
    world *w = start(state);
    w->act = act_follow_up_and_fail;
    world_send(w, ID_A, NULL, "{\"a\":1}");
    world_step_until(w, failed, 1);
    assert_int_equal(world_number(w, EFFECTS), 0);
    assert_int_equal(world_number(w, MARKS), 0);
    assert_int_equal(world_number(w, "SELECT count(*) FROM postroom_outbox"), 0);
    assert_string_equal(world_text(w, "SELECT state || '|' || attempts || '|' || last_error || '|' "
                                      "|| body FROM postroom_inbox_parked"),
                        "failed|1|not yet|{\"a\":1}");
    /* the broker has nothing left of it, and a copy that comes again is not run beside it */
    world_send(w, ID_A, NULL, "{\"a\":1}");
    world_step_until(w, duplicate, 1);
    assert_int_equal(w->calls, 1);
}

static void a_store_that_cannot_park_gives_back_and_pauses_until_it_answers(void **state)
{
    world *w = start(state);
    w->act = act_retry;
#ifdef PR_FAULT_POINTS
    pr__fault_reset("endpoint.before_park_commit:1:fail,endpoint.before_park_commit:2:fail");
    world_send(w, ID_A, NULL, "{}");
    world_send(w, ID_B, NULL, "{}");
    pr_error err = PR_ERROR_INIT;
    while (world_step(w, &err) == PR_OK)
        continue;
    /* the first failure is told first, then that it could not be recorded */
    assert_int_equal(err.status, PR_E_BACKEND);
    assert_non_null(strstr(err.message, "'not yet'; and it could not be parked: "));
    pr_endpoint_snapshot snapshot = world_snapshot(w);
    assert_true(snapshot.paused);
    assert_non_null(strstr(snapshot.paused_reason, "not yet"));
    assert_int_equal(snapshot.failed, 0);
    assert_true(snapshot.requeued >= 1);
    assert_int_equal(world_number(w, PARKED), 0);
    assert_int_equal(w->seen[PR_OBSERVE_HANDLER_FAILED], 1);
    int64_t wait_ms = 0;
    assert_int_equal(pr_endpoint_step(w->endpoint, &wait_ms, NULL), PR_OK);
    assert_true(wait_ms > 0);
    world_advance(w, 10000); /* it resumes by itself, fails once more, resumes */
    w->act = act_ok;
    world_step_until(w, handled, 2);
    pr__fault_reset(NULL);
    assert_false(world_snapshot(w).paused);
    assert_int_equal(world_number(w, EFFECTS), 2);
#else
    (void)w;
    skip();
#endif
}

static void a_commit_that_fails_leaves_no_effect_and_is_tried_again(void **state)
{
    world *w = start(state);
#ifdef PR_FAULT_POINTS
    pr__fault_reset("endpoint.before_commit:1:fail");
    world_send(w, ID_A, NULL, "{}");
    for (int n = 0; n < 2000 && world_number(w, PARKED) == 0; n++)
        world_steps(w, 1);
    assert_int_equal(world_number(w, EFFECTS), 0);
    /* who broke the connection is not known: its row counts, and nobody waits for it */
    assert_int_equal(world_number(w, PARKED " WHERE state = 'processing' AND attempts = 0"), 1);
    assert_false(world_snapshot(w).paused);
    world_advance(w, 10000);
    world_step_until(w, handled, 1);
    pr__fault_reset(NULL);
    assert_int_equal(world_number(w, EFFECTS), 1);
    assert_int_equal(world_number(w, PARKED), 0);
#else
    (void)w;
    skip();
#endif
}

static void stop_gives_everything_back_uncharged(void **state)
{
    world *w = start(state);
    for (int i = 0; i < 10; i++) {
        char id[16];
        (void)snprintf(id, sizeof id, "m-%d", i);
        world_send(w, id, NULL, "{}");
    }
    world_step_until(w, handled, 3);
    assert_int_equal(world_snapshot(w).received, 10);
    pr_endpoint_stop(w->endpoint);
    pr_error err = PR_ERROR_INIT;
    check_error(world_step(w, &err), &err, PR_E_STATE, "stopped", "step after stop");
    assert_int_equal(world_snapshot(w).requeued, 7);
    world_restart(w);
    world_step_until(w, handled, 7);
    assert_int_equal(world_number(w, EFFECTS), 10);
    assert_int_equal(world_number(w, PARKED), 0);
}

static void bad_options_are_refused(void **state)
{
    world *w = *state;
    static char long_id[300];
    memset(long_id, 'i', sizeof long_id - 1);
    static const char *const bad_types[] = {"order"};
    const struct {
        const char *label;
        pr_endpoint_options opt;
        pr_status status;
        const char *text;
    } cases[] = {
        {"no size", {.id = "x"}, PR_E_INVALID, "size"},
        {"no handler", PR_ENDPOINT_OPTIONS(.id = "x"), PR_E_INVALID, "handler"},
        {"no id", PR_ENDPOINT_OPTIONS(.handler = w->opt.handler), PR_E_INVALID, "id"},
        {"long id", PR_ENDPOINT_OPTIONS(.id = long_id, .handler = w->opt.handler), PR_E_LIMIT,
         "299"},
        {"bad type",
         PR_ENDPOINT_OPTIONS(.id = "x", .handler = w->opt.handler, .types = bad_types,
                             .type_count = 1),
         PR_E_CONTENT, "types[0]"},
        {"negative", PR_ENDPOINT_OPTIONS(.id = "x", .handler = w->opt.handler, .lease_ms = -1),
         PR_E_INVALID, "lease_ms"},
        {"backoff",
         PR_ENDPOINT_OPTIONS(.id = "x", .handler = w->opt.handler, .backoff_initial_ms = 10,
                             .backoff_max_ms = 5),
         PR_E_INVALID, "backoff_max_ms"},
        {"jitter", PR_ENDPOINT_OPTIONS(.id = "x", .handler = w->opt.handler, .jitter_percent = 101),
         PR_E_INVALID, "jitter"},
        {"prefetch", PR_ENDPOINT_OPTIONS(.id = "x", .handler = w->opt.handler, .prefetch = 100000),
         PR_E_INVALID, "prefetch"},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        pr_error err = PR_ERROR_INIT;
        pr_endpoint *endpoint = NULL;
        check_error(pr_endpoint_new(w->store, w->receiver, &cases[i].opt, &endpoint, &err), &err,
                    cases[i].status, cases[i].text, cases[i].label);
        assert_null(endpoint);
    }
}

static int suite(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, world_setup, world_teardown)
    const struct CMUnitTest tests[] = {
        CASE(bad_options_are_refused),
        CASE(a_message_is_handled_once_however_often_it_comes),
        CASE(tenants_and_consumers_have_their_own_marks),
        CASE(the_same_id_with_other_content_is_kept_dead_apart),
        CASE(dedup_ids),
        CASE(what_breaks_a_limit_is_dead_with_its_bytes_and_stops_nobody),
        CASE(unknown_contracts_and_bad_bodies_are_dead_at_once),
        CASE(a_busy_store_is_waited_for_and_then_the_message_goes_back_uncharged),
        CASE(a_short_wait_ends_in_the_handler_not_in_the_queue),
        CASE(a_handler_that_ends_or_breaks_its_transaction_is_caught),
        CASE(follow_ups_commit_with_the_effect_and_carry_the_conversation_on),
        CASE(a_failing_handler_leaves_nothing_but_its_parked_message),
        CASE(a_store_that_cannot_park_gives_back_and_pauses_until_it_answers),
        CASE(a_commit_that_fails_leaves_no_effect_and_is_tried_again),
        CASE(stop_gives_everything_back_uncharged),
    };
#undef CASE
    return RUN_TESTS(tests);
}

int main(void)
{
    return world_main(suite);
}
