/*
 * The leased inbox: the slow part has no transaction, the lease is renewed, and a lease that was
 * lost takes everything with it.
 */
#include "bus/world.h"

#include "base/time.h"

#define ID_A          "0198c5f2-7d3e-7a10-8b2c-00000000000a"
#define ID_B          "0198c5f2-7d3e-7a10-8b2c-00000000000b"
#define LONG_LEASE_MS 2000 /* no pause of the machine is as long as what is left of it */
#define ROW           "SELECT state || ' ' || attempts || ' ' || takeovers FROM {p}_inbox_parked"

static world *leased(void **state, world_act act)
{
    world *w = *state;
    w->opt.inbox = PR_INBOX_LEASED;
    if (w->opt.lease_ms == 0)
        w->opt.lease_ms = 600;
    w->no_effect = true; /* the handler writes when it wants to */
    w->act = act;
    world_start(w);
    return w;
}

static bool write_effect(world *w, pr_scope *scope)
{
    pr_unit *unit = pr_scope_unit(scope);
    return unit && w->provider->effect(unit, pr_scope_message(scope)->id);
}

/* From a connection of its own: what is seen was committed, and nothing locks it out. */
static pr_handled act_look_then_write(world *w, pr_scope *scope)
{
    assert_string_equal(world_text(w, ROW), "processing 0 0");
    assert_int_equal(world_number(w, MARKS), 0);
    pr_error err = PR_ERROR_INIT;
    pr_store *other = w->provider->open(w->address);
    pr_unit *unit = NULL; /* no writer is in the way, on SQLite either */
    check_ok(pr_unit_begin(other, &unit, &err), &err, "begin");
    assert_true(w->provider->effect(unit, "beside"));
    check_ok(pr_unit_commit(unit, NULL, &err), &err, "commit");
    pr_unit_free(unit);
    pr_store_free(other);
    if (!write_effect(w, scope))
        return PR_HANDLED_RETRY;
    pr_message follow = PR_MESSAGE(.type = TYPE_FOLLOW, .body = "{}", .body_size_bytes = 2);
    check_ok(pr_scope_publish(scope, &follow, NULL, &err), &err, "publish");
    return PR_HANDLED_OK;
}

static void the_slow_part_has_no_transaction_and_the_rest_is_one_commit(void **state)
{
    world *w = leased(state, act_look_then_write);
    world_send(w, ID_A, NULL, "{}");
    world_until(w, handled, 1);
    assert_int_equal(world_number(w, EFFECTS), 2);
    assert_int_equal(world_number(w, MARKS), 1);
    assert_int_equal(world_number(w, PARKED), 0);
    assert_string_equal(world_text(w, "SELECT causation_id FROM {p}_outbox"), ID_A);
    world_send(w, ID_A, NULL, "{}");
    world_until(w, duplicate, 1);
    assert_int_equal(w->calls, 1);
    assert_int_equal(world_number(w, PARKED), 0);
    world_send(w, ID_A, NULL, "{\"other\":1}");
    world_until(w, conflict, 1);
    assert_int_equal(world_number(w, PARKED), 1);
    assert_int_equal(world_number(w, MARKS), 1);
}

static void a_handler_without_a_unit_is_marked_all_the_same(void **state)
{
    world *w = leased(state, act_ok);
    world_send(w, ID_A, NULL, "{}");
    world_send(w, ID_A, NULL, "{}");
    world_until(w, duplicate, 1);
    assert_int_equal(w->calls, 1);
    assert_int_equal(world_number(w, MARKS), 1);
    assert_int_equal(world_number(w, PARKED), 0);
}

/* Longer than two leases; another endpoint of the same id looks for what is due. */
static pr_handled act_sleep(world *w, pr_scope *scope)
{
    int64_t until_us = pr__monotonic_us() + LONG_LEASE_MS * INT64_C(2200);
    pr_endpoint *rival = w->extra;
    int64_t wait_ms = 0;
    while (pr__monotonic_us() < until_us) {
        (void)!pr_endpoint_step(rival, &wait_ms, NULL);
        assert_false(pr_scope_cancelled(scope));
        pr__sleep_us(20000);
    }
    return write_effect(w, scope) ? PR_HANDLED_OK : PR_HANDLED_RETRY;
}

typedef struct rival {
    pr_store *store;
    pr_transport *transport;
    pr_endpoint *endpoint;
} rival;

static void rival_open(world *w, rival *r)
{
    pr_error err = PR_ERROR_INIT;
    check_ok(pr_store_clone(w->store, &r->store, &err), &err, "clone");
    check_ok(pr_memory_transport_new(w->broker, NULL, &r->transport, &err), &err, "transport");
    pr_endpoint_options opt = w->opt;
    opt.prefetch = 1;
    opt.concurrency = 1;
    check_ok(pr_endpoint_new(r->store, r->transport, &opt, &r->endpoint, &err), &err, "rival");
    w->extra = r->endpoint;
}

static void rival_close(rival *r)
{
    pr_endpoint_free(r->endpoint);
    pr_transport_free(r->transport);
    pr_store_free(r->store);
}

static void a_long_handler_keeps_its_lease(void **state)
{
    world *w = *state;
    w->opt.lease_ms = LONG_LEASE_MS;
    (void)leased(state, act_sleep);
    rival r;
    rival_open(w, &r);
    world_send(w, ID_A, NULL, "{}");
    world_until(w, handled, 1);
    assert_int_equal(w->calls, 1);
    assert_int_equal(world_number(w, EFFECTS), 1);
    assert_int_equal(world_number(w, PARKED), 0);
    assert_int_equal(world_snapshot(w).fenced, 0);
    rival_close(&r);
}

static pr_handled act_be_robbed(world *w, pr_scope *scope)
{
    pr_error err = PR_ERROR_INIT;
    pr_store *other = w->provider->open(w->address);
    pr_unit *unit = NULL;
    check_ok(pr_unit_begin(other, &unit, &err), &err, "begin");
    bool robbed = w->provider->run(unit, strcmp(w->provider->name, "sqlite") == 0
                                             ? "UPDATE postroom_inbox_parked SET lock_token = "
                                               "'0198c5f2-7d3e-7a10-8b2c-0000000000ff'"
                                             : "UPDATE postroom.inbox_parked SET lock_token = "
                                               "'0198c5f2-7d3e-7a10-8b2c-0000000000ff'");
    assert_true(robbed);
    check_ok(pr_unit_commit(unit, NULL, &err), &err, "commit");
    pr_unit_free(unit);
    pr_store_free(other);
    if (w->flag) { /* wait until the renewal sees it */
        int64_t until_us = pr__monotonic_us() + PATIENCE_US;
        while (!pr_scope_cancelled(scope) && pr__monotonic_us() < until_us)
            pr__sleep_us(2000);
        assert_true(pr_scope_cancelled(scope));
        return PR_HANDLED_OK;
    }
    pr_unit *none = NULL;
    check_error(pr_scope_unit_get(scope, &none, &err), &err, PR_E_FENCED, "took it over", "unit");
    assert_null(pr_scope_unit(scope));
    return PR_HANDLED_OK;
}

/* Nothing of it stands, and the row of the new holder is as it was. */
static void a_lost_lease_takes_everything_with_it(void **state)
{
    world *w = leased(state, act_be_robbed);
    for (w->flag = 0; w->flag < 2; w->flag++) {
        world_send(w, w->flag ? ID_B : ID_A, NULL, "{}");
        world_until(w, fenced, (uint64_t)w->flag + 1);
        assert_int_equal(world_number(w, EFFECTS), 0);
        assert_int_equal(world_number(w, MARKS), 0);
        assert_int_equal(world_number(w, PARKED " WHERE state = 'processing'"), w->flag + 1);
    }
    assert_int_equal(world_snapshot(w).failed, 0);
}

static pr_handled act_wait_for_cancel(world *w, pr_scope *scope)
{
    int64_t until_us = pr__monotonic_us() + PATIENCE_US;
    w->flag = 1;
    while (!pr_scope_cancelled(scope) && pr__monotonic_us() < until_us)
        pr__sleep_us(1000);
    return PR_HANDLED_RETRY;
}

static void a_processing_timeout_cancels_and_is_charged(void **state)
{
    world *w = *state;
    w->opt.processing_timeout_ms = 50;
    w->opt.retry_max = 1;
    (void)leased(state, act_wait_for_cancel);
    world_send(w, ID_A, NULL, "{}");
    world_until(w, failed, 1);
    assert_string_equal(world_text(w, ROW), "failed 1 0");
    assert_non_null(strstr(world_text(w, "SELECT last_error FROM {p}_inbox_parked"),
                           "longer than processing_timeout_ms, 50"));
    world_until(w, dead, 1);
    assert_int_equal(world_snapshot(w).cancelled, 2);
    assert_int_equal(world_number(w, MARKS), 0);
}

static pr_handled act_write_and_fail(world *w, pr_scope *scope)
{
    if (!write_effect(w, scope))
        return PR_HANDLED_PERMANENT;
    return w->calls < 3 ? act_retry(w, scope) : PR_HANDLED_OK;
}

static void a_failure_rolls_back_and_comes_again(void **state)
{
    world *w = leased(state, act_write_and_fail);
    world_send(w, ID_A, NULL, "{}");
    world_until(w, failed, 1);
    assert_int_equal(world_number(w, EFFECTS), 0);
    world_until(w, handled, 1);
    assert_int_equal(w->calls, 3);
    assert_int_equal(world_number(w, EFFECTS), 1);
    assert_int_equal(world_number(w, MARKS), 1);
    assert_int_equal(world_number(w, PARKED), 0);
}

static pr_handled act_second_delivery(world *w, pr_scope *scope)
{
    (void)scope;
    pr_endpoint *second = w->extra;
    pr_endpoint_snapshot s = {.size = (uint32_t)sizeof s};
    int64_t wait_ms = 0, until_us = pr__monotonic_us() + PATIENCE_US;
    while (s.duplicate == 0 && pr__monotonic_us() < until_us) {
        (void)!pr_endpoint_step(second, &wait_ms, NULL);
        assert_int_equal(pr_endpoint_snapshot_get(second, &s, NULL), PR_OK);
    }
    assert_int_equal(s.duplicate, 1); /* acked: the row is a durable copy */
    assert_int_equal(s.handled, 0);
    return PR_HANDLED_OK;
}

static void a_second_delivery_beside_the_row_is_acked_and_not_run(void **state)
{
    world *w = *state;
    w->opt.prefetch = 1; /* the other copy is for the rival */
    (void)leased(state, act_second_delivery);
    rival r;
    rival_open(w, &r);
    world_send(w, ID_A, NULL, "{}");
    world_send(w, ID_A, NULL, "{}");
    world_until(w, handled, 1);
    assert_int_equal(w->calls, 1);
    assert_int_equal(world_number(w, MARKS), 1);
    rival_close(&r);
}

static pr_handled act_fail_first(world *w, pr_scope *scope)
{
    if (!w->flag && strcmp(pr_scope_message(scope)->id, ID_B) == 0)
        w->extra = w; /* it passed the head */
    return w->flag ? PR_HANDLED_OK : act_retry(w, scope);
}

static void a_key_waits_behind_its_parked_head(void **state)
{
    world *w = *state;
    w->opt.backoff_initial_ms = 200;
    (void)leased(state, act_fail_first);
    world_send(w, ID_A, "k", "{}");
    world_until(w, failed, 1);
    world_send(w, ID_B, "k", "{}");
    world_until(w, held, 1);
    assert_null(w->extra);
    w->flag = 1;
    world_until(w, handled, 2);
    assert_int_equal(world_number(w, PARKED), 0);
    assert_int_equal(world_number(w, MARKS), 2);
}

static pr_handled act_roll_back(world *w, pr_scope *scope)
{
    pr_unit *unit = pr_scope_unit(scope);
    assert_non_null(unit);
    assert_true(w->provider->run(unit, "ROLLBACK"));
    assert_true(w->provider->run(unit, "BEGIN"));
    (void)w->provider->effect(unit, "outside");
    return PR_HANDLED_OK;
}

static void a_handler_that_rolls_back_is_caught(void **state)
{
    world *w = *state;
    w->opt.retry_max = PR_RETRY_NONE;
    (void)leased(state, act_roll_back);
    world_send(w, ID_A, NULL, "{}");
    world_until(w, dead, 1);
    assert_int_equal(world_number(w, EFFECTS), 0);
    assert_int_equal(world_number(w, MARKS), 0);
    assert_string_equal(world_text(w, ROW), "dead 1 0");
}

size_t leased_suite(const struct CMUnitTest **ret_tests)
{
    static const struct CMUnitTest tests[] = {
        CASE(the_slow_part_has_no_transaction_and_the_rest_is_one_commit),
        CASE(a_handler_without_a_unit_is_marked_all_the_same),
        CASE(a_long_handler_keeps_its_lease),
        CASE(a_lost_lease_takes_everything_with_it),
        CASE(a_processing_timeout_cancels_and_is_charged),
        CASE(a_failure_rolls_back_and_comes_again),
        CASE(a_second_delivery_beside_the_row_is_acked_and_not_run),
        CASE(a_key_waits_behind_its_parked_head),
        CASE(a_handler_that_rolls_back_is_caught),
    };
    *ret_tests = tests;
    return COUNT_OF(tests);
}
