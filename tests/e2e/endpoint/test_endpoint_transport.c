/*
 * An endpoint on a transport that misbehaves: foreign messages, lost leases, failing calls.
 */
#include "e2e/endpoint/fake_transport.h"
#include "e2e/endpoint/world.h"

typedef struct fixture {
    world *w;
    fake_transport fake;
} fixture;

static int set_up(void **state)
{
    fixture *f = calloc(1, sizeof *f);
    void *inner = NULL;
    if (world_setup(&inner) != 0)
        return -1;
    f->w = inner;
    fake_transport_init(&f->fake);
    f->w->opt.lease_ms = 3000;
    pr_error err = PR_ERROR_INIT;
    check_ok(pr_endpoint_new(f->w->store, &f->fake.base, &f->w->opt, &f->w->endpoint, &err), &err,
             "endpoint");
    *state = f;
    return 0;
}

static int tear_down(void **state)
{
    fixture *f = *state;
    void *inner = f->w;
    int code = world_teardown(&inner);
    free(f);
    return code;
}

static pr_message message_of(const char *id, const char *key)
{
    return (pr_message)PR_MESSAGE(.id = id, .type = TYPE_ORDER, .type_version = 1,
                                  .content_type = "application/json", .key = key, .body = "{}",
                                  .body_size_bytes = 2, .occurred_at_us = 1);
}

static void foreign_messages_land_in_dead_never_in_a_loop(void **state)
{
    fixture *f = *state;
    static const struct {
        const char *label;
        pr_message message;
    } cases[] = {
        {"nothing at all", PR_MESSAGE(.id = NULL)},
        {"no id",
         PR_MESSAGE(.type = TYPE_ORDER, .type_version = 1, .body = "x", .body_size_bytes = 1)},
        {"no type", PR_MESSAGE(.id = "foreign-1", .body = "y", .body_size_bytes = 1)},
        {"no body, but a size",
         PR_MESSAGE(.id = "foreign-2", .type = TYPE_ORDER, .body_size_bytes = 9)},
        {"type of another world", PR_MESSAGE(.id = "foreign-3", .type = "com.example.Thing\xff",
                                             .body = "z", .body_size_bytes = 1)},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        uint64_t tag = fake_deliver(&f->fake, &cases[i].message, false);
        world_step_until(f->w, dead, i + 1);
        CHECK_CASE(f->fake.verdicts[tag] == PR_VERDICT_ACK, cases[i].label);
    }
    assert_int_equal(f->w->calls, 0);
    assert_int_equal(world_number(f->w, PARKED " WHERE state = 'dead'"), COUNT_OF(cases));
    /* a type that is no URN of ours, but text, is handled when no contracts say otherwise */
    pr_message other = PR_MESSAGE(.id = "foreign-4", .type = "com.example.Thing");
    fake_deliver(&f->fake, &other, false);
    world_step_until(f->w, handled, 1);
}

static pr_handled act_slow(world *w, pr_scope *scope)
{
    (void)scope;
    world_advance(w, 1100); /* more than a third of the lease */
    return PR_HANDLED_OK;
}

static void deliveries_in_hand_are_kept_while_others_are_slow(void **state)
{
    fixture *f = *state;
    f->w->act = act_slow;
    char ids[4][8];
    for (int i = 0; i < 4; i++) {
        (void)snprintf(ids[i], sizeof ids[i], "m%d", i);
        pr_message message = message_of(ids[i], NULL);
        fake_deliver(&f->fake, &message, false);
    }
    world_step_until(f->w, handled, 4);
    assert_true(f->fake.keeps >= 3);
}

static void a_lost_lease_gives_the_rest_back(void **state)
{
    fixture *f = *state;
    f->w->act = act_slow;
    f->fake.keep_status = PR_E_FENCED;
    pr_message a = message_of("a", NULL), b = message_of("b", NULL);
    uint64_t tag_a = fake_deliver(&f->fake, &a, false);
    uint64_t tag_b = fake_deliver(&f->fake, &b, false);
    world_step_until(f->w, fenced, 1);
    assert_int_equal(f->fake.verdicts[tag_a], PR_VERDICT_ACK);
    assert_int_equal(f->fake.verdicts[tag_b], PR_VERDICT_REQUEUE);
    assert_int_equal(world_snapshot(f->w).handled, 1);
}

static void a_receive_that_fails_is_told_waited_for_and_repeated(void **state)
{
    fixture *f = *state;
    world_steps(f->w, 1);
    f->fake.receive_status = PR_E_BACKEND;
    pr_error err = PR_ERROR_INIT;
    while (world_step(f->w, &err) == PR_OK)
        continue;
    check_error(err.status, &err, PR_E_BACKEND, "the broker went away", "receive");
    int receives = f->fake.receives;
    world_steps(f->w, 5); /* the wait: nobody is asked */
    assert_int_equal(f->fake.receives, receives);
    assert_int_equal(f->fake.subscribes, 1); /* the subscription mends itself */
    f->fake.receive_status = PR_OK;
    pr_message message = message_of("a", NULL);
    fake_deliver(&f->fake, &message, false);
    world_advance(f->w, 10000);
    world_step_until(f->w, handled, 1);

    f->fake.receive_status = PR_E_NOT_FOUND; /* it is gone: subscribe again */
    while (f->fake.closes == 0)
        world_steps(f->w, 1);
    f->fake.receive_status = PR_OK;
    pr_message next = message_of("b", NULL);
    fake_deliver(&f->fake, &next, false);
    world_advance(f->w, 10000);
    world_step_until(f->w, handled, 2);
    assert_int_equal(f->fake.subscribes, 2);
}

static void retries_go_on_while_the_transport_is_away(void **state)
{
    fixture *f = *state;
    f->w->act = act_retry;
    pr_message message = message_of("a", NULL);
    fake_deliver(&f->fake, &message, false);
    world_step_until(f->w, failed, 1);
    f->w->endpoint = pr_endpoint_free(f->w->endpoint);
    f->fake.subscribe_failures = 1000000;
    pr_error err = PR_ERROR_INIT;
    check_ok(pr_endpoint_new(f->w->store, &f->fake.base, &f->w->opt, &f->w->endpoint, &err), &err,
             "endpoint");
    f->w->act = act_ok;
    world_advance(f->w, 3600000);
    world_step_until(f->w, handled, 1);
    assert_int_equal(world_number(f->w, PARKED), 0);
}

static void an_ack_that_is_fenced_or_lost_costs_nothing(void **state)
{
    fixture *f = *state;
    pr_message message = message_of("a", NULL);
    f->fake.settle_status = PR_E_FENCED;
    fake_deliver(&f->fake, &message, false);
    world_step_until(f->w, fenced, 1);
    assert_int_equal(world_snapshot(f->w).handled, 1);
    f->fake.settle_status = PR_E_BACKEND;
    pr_message other = message_of("b", NULL);
    fake_deliver(&f->fake, &other, false);
    pr_error err = PR_ERROR_INIT;
    while (world_step(f->w, &err) == PR_OK)
        continue;
    assert_int_equal(err.status, PR_E_BACKEND);
    assert_int_equal(world_snapshot(f->w).handled, 2);
    f->fake.settle_status = PR_OK;
    fake_deliver(&f->fake, &message, true); /* both come again */
    fake_deliver(&f->fake, &other, true);
    world_step_until(f->w, duplicate, 2);
    assert_int_equal(world_number(f->w, EFFECTS), 2);
    assert_int_equal(world_number(f->w, PARKED), 0);
}

static void of_a_key_nothing_in_hand_passes_what_waits(void **state)
{
    fixture *f = *state;
    pr_message a1 = message_of("a1", "A"), a2 = message_of("a2", "A"), b1 = message_of("b1", "B");
    uint64_t tags[3];
    world_lock(f->w);
    tags[0] = fake_deliver(&f->fake, &a1, false);
    tags[1] = fake_deliver(&f->fake, &a2, false);
    tags[2] = fake_deliver(&f->fake, &b1, false);
    while (f->fake.verdicts[tags[0]] == 0)
        world_steps(f->w, 1);
    world_unlock(f->w);
    assert_int_equal(f->fake.verdicts[tags[0]], PR_VERDICT_REQUEUE);
    assert_int_equal(f->fake.verdicts[tags[1]], PR_VERDICT_REQUEUE); /* it must not overtake a1 */
    world_step_until(f->w, handled, 1);
    assert_string_equal(f->w->handled_ids[0], "b1");
}

static pr_handled act_stop(world *w, pr_scope *scope)
{
    (void)scope;
    pr_endpoint_stop(w->endpoint);
    return PR_HANDLED_OK;
}

static void stop_in_a_handler_ends_it_after_its_commit(void **state)
{
    fixture *f = *state;
    f->w->act = act_stop;
    pr_message a = message_of("a", NULL), b = message_of("b", NULL);
    uint64_t tag_a = fake_deliver(&f->fake, &a, false);
    uint64_t tag_b = fake_deliver(&f->fake, &b, false);
    pr_error err = PR_ERROR_INIT;
    /* with one worker: the second one is in hand, and nobody's, at the stop */
    check_ok(pr_endpoint_run(f->w->endpoint, &err), &err, "run");
    assert_int_equal(f->fake.verdicts[tag_a], PR_VERDICT_ACK);
    assert_int_equal(f->fake.verdicts[tag_b], PR_VERDICT_REQUEUE);
    assert_int_equal(world_number(f->w, EFFECTS), 1);
    assert_int_equal(world_number(f->w, PARKED), 0);
    assert_int_equal(f->fake.closes, 1);
    assert_false(world_snapshot(f->w).running);
}

static int suite(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        CASE(foreign_messages_land_in_dead_never_in_a_loop),
        CASE(deliveries_in_hand_are_kept_while_others_are_slow),
        CASE(a_lost_lease_gives_the_rest_back),
        CASE(a_receive_that_fails_is_told_waited_for_and_repeated),
        CASE(retries_go_on_while_the_transport_is_away),
        CASE(an_ack_that_is_fenced_or_lost_costs_nothing),
        CASE(of_a_key_nothing_in_hand_passes_what_waits),
        CASE(stop_in_a_handler_ends_it_after_its_commit),
    };
#undef CASE
    return RUN_TESTS(tests);
}

int main(void)
{
    return world_main(suite);
}
