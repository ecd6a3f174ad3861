/*
 * Several messages in one transaction: one commit, and nobody pays for what another one did.
 */
#include "bus/world.h"

#include "base/fault.h"

#define MANY     60
#define FEW      5
#define DISTINCT "SELECT count(DISTINCT id) FROM effects"

static pr_handled pass(void *user, pr_scope *scope, pr_next *next)
{
    (void)user;
    return pr_next_invoke(next, scope);
}

static void what_a_batch_cannot_be_is_refused(void **state)
{
    world *w = *state;
    const pr_middleware outside[] = {PR_MIDDLEWARE(.name = "own", .invoke = pass),
                                     pr_middleware_unit(), pr_middleware_inbox()};
    const struct {
        const char *label;
        uint32_t prefetch, batch_max;
        pr_inbox_mode inbox;
        size_t middleware_count;
        const char *error;
    } cases[] = {
        {"too many", 256, 61, PR_INBOX_TRANSACTIONAL, 0, "batch_max is 61, at most 60"},
        {"more than prefetch", 8, 9, PR_INBOX_TRANSACTIONAL, 0, "at most prefetch, 8"},
        {"leased", 256, 2, PR_INBOX_LEASED, 0, "with the leased inbox"},
        {"outside", 256, 2, PR_INBOX_TRANSACTIONAL, 3, "'unit' must be the outermost"},
        {"no inbox", 256, 2, PR_INBOX_TRANSACTIONAL, 1, "'unit' must be the outermost"},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        pr_endpoint *endpoint = NULL;
        pr_error err = PR_ERROR_INIT;
        pr_endpoint_options opt = w->opt;
        opt.prefetch = cases[i].prefetch;
        opt.batch_max = cases[i].batch_max;
        opt.inbox = cases[i].inbox;
        opt.concurrency = 1;
        opt.middleware = cases[i].middleware_count ? outside : NULL;
        opt.middleware_count = cases[i].middleware_count;
        check_error(pr_endpoint_new(w->store, w->receiver, &opt, &endpoint, &err), &err,
                    PR_E_INVALID, cases[i].error, cases[i].label);
    }
}

static void start_with(world *w, world_act act, int count)
{
    w->opt.prefetch = 256;
    w->opt.batch_max = MANY;
    w->act = act;
    world_start(w);
    for (int i = 0; i < count; i++) {
        char id[16];
        (void)snprintf(id, sizeof id, "m-%02d", i);
        world_send(w, id, NULL, "{}");
    }
}

static bool is(pr_scope *scope, const char *id)
{
    return strcmp(pr_scope_message(scope)->id, id) == 0;
}

static pr_handled act_look(world *w, pr_scope *scope)
{
    if (is(scope, "m-59")) /* another connection sees nothing of all those before */
        atomic_store(&w->flag, (int)(1 + world_number(w, EFFECTS) + world_number(w, MARKS)));
    return PR_HANDLED_OK;
}

static void a_batch_is_one_commit(void **state)
{
    world *w = *state;
    start_with(w, act_look, MANY);
    world_until(w, handled, MANY);
    assert_int_equal(atomic_load(&w->flag), 1);
    assert_int_equal(world_snapshot(w).batches, 1);
    assert_int_equal(w->seen[PR_OBSERVE_HANDLED], MANY);
    assert_int_equal(w->calls, MANY);
    assert_int_equal(world_number(w, EFFECTS), MANY);
    assert_int_equal(world_number(w, MARKS), MANY);
    assert_int_equal(world_snapshot(w).in_hand, 0);
}

/* ---- one that fails ---- */

static pr_handled act_poison(world *w, pr_scope *scope)
{
    return is(scope, "m-30") ? act_permanent(w, scope) : PR_HANDLED_OK;
}

/* A statement that fails aborts the whole transaction on PostgreSQL, up to the savepoint. */
static pr_handled act_abort(world *w, pr_scope *scope)
{
    if (!is(scope, "m-30"))
        return PR_HANDLED_OK;
    assert_false(w->provider->run(pr_scope_unit(scope), "SELECT nothing FROM nowhere"));
    return act_permanent(w, scope);
}

static void check_poison(world *w, world_act act)
{
    start_with(w, act, MANY);
    world_until(w, dead, 1);
    world_until(w, handled, MANY - 1);
    assert_int_equal(world_snapshot(w).batches, 1);
    assert_int_equal(world_snapshot(w).failed, 0);
    assert_int_equal(w->calls, MANY + 1); /* the poison again, alone */
    assert_int_equal(world_number(w, EFFECTS), MANY - 1);
    assert_int_equal(world_number(w, MARKS), MANY - 1);
    assert_int_equal(world_number(w, "SELECT attempts FROM {p}_inbox_parked WHERE message_id = "
                                     "'m-30' AND state = 'dead'"),
                     1);
}

static void one_poison_among_sixty_is_parked_and_the_rest_done(void **state)
{
    check_poison(*state, act_poison);
}

static void one_that_aborts_its_transaction_harms_no_other(void **state)
{
    check_poison(*state, act_abort);
}

static pr_handled act_follow_up(world *w, pr_scope *scope)
{
    pr_message follow =
        PR_MESSAGE(.type = TYPE_FOLLOW, .type_version = 1, .content_type = "application/json",
                   .body = "{}", .body_size_bytes = 2);
    if (pr_scope_publish(scope, &follow, NULL, NULL) != PR_OK)
        return PR_HANDLED_PERMANENT;
    return is(scope, "m-02") ? act_permanent(w, scope) : PR_HANDLED_OK;
}

static void follow_ups_go_with_their_own_message(void **state)
{
    world *w = *state;
    start_with(w, act_follow_up, FEW);
    world_until(w, dead, 1);
    world_until(w, handled, FEW - 1);
    assert_int_equal(world_snapshot(w).batches, 1);
    assert_int_equal(world_number(w, OUTBOX), FEW - 1);
    assert_int_equal(world_number(w, OUTBOX " WHERE causation_id = 'm-02'"), 0);
    assert_int_equal(world_number(w, "SELECT count(DISTINCT causation_id) FROM {p}_outbox"),
                     FEW - 1);
}

/* ---- the transaction itself ---- */

static pr_handled run_on_two(world *w, pr_scope *scope, const char *sql)
{
    if (is(scope, "m-02"))
        (void)w->provider->run(pr_scope_unit(scope), sql);
    return PR_HANDLED_OK;
}

static pr_handled act_commit(world *w, pr_scope *scope)
{
    return run_on_two(w, scope, "COMMIT");
}

static pr_handled act_roll_back(world *w, pr_scope *scope)
{
    return run_on_two(w, scope, "ROLLBACK");
}

static pr_handled act_roll_back_unit(world *w, pr_scope *scope)
{
    (void)w;
    if (is(scope, "m-02"))
        assert_int_equal(pr_unit_rollback(pr_scope_unit(scope), NULL), PR_E_STATE);
    return PR_HANDLED_OK;
}

static void check_misuse(world *w, world_act act, uint64_t duplicates)
{
    w->opt.retry_max = PR_RETRY_NONE;
    start_with(w, act, FEW);
    bool committed = duplicates > 0;
    world_until(w, duplicate, duplicates);
    world_until(w, dead, committed ? 0 : 1);
    world_until(w, handled, committed ? FEW - duplicates : FEW - 1);
    assert_int_equal(world_snapshot(w).batches, 0);
    assert_int_equal(world_number(w, EFFECTS), committed ? FEW : FEW - 1);
    assert_int_equal(world_number(w, DISTINCT), committed ? FEW : FEW - 1);
    assert_int_equal(world_number(w, EFFECTS " WHERE id = 'm-02'"), committed ? 1 : 0);
}

static void a_handler_that_commits_has_each_effect_once(void **state)
{
    check_misuse(*state, act_commit, 3);
}

static void a_handler_that_rolls_back_costs_itself_alone(void **state)
{
    check_misuse(*state, act_roll_back, 0);
}

static void a_handler_that_ends_the_unit_costs_itself_alone(void **state)
{
    check_misuse(*state, act_roll_back_unit, 0);
}

static void a_commit_that_fails_leaves_each_once_in_the_end(void **state)
{
#ifdef PR_FAULT_POINTS
    world *w = *state;
    pr__fault_reset("endpoint.before_batch_commit:1:fail");
    start_with(w, act_ok, FEW);
    world_until(w, handled, FEW);
    pr__fault_reset(NULL);
    assert_int_equal(w->calls, 2 * FEW);
    assert_int_equal(world_snapshot(w).batches, 0);
    assert_int_equal(world_snapshot(w).failed, 0);
    assert_int_equal(world_number(w, EFFECTS), FEW);
    assert_int_equal(world_number(w, DISTINCT), FEW);
    assert_int_equal(world_number(w, MARKS), FEW);
#else
    (void)state;
    skip();
#endif
}

/* ---- ids and keys ---- */

static void copies_of_one_message_have_one_effect(void **state)
{
    world *w = *state;
    start_with(w, act_ok, FEW);
    for (int i = 0; i < FEW; i++) {
        char id[16];
        (void)snprintf(id, sizeof id, "m-%02d", i);
        world_send(w, id, NULL, i == 4 ? "{\"other\":1}" : "{}");
    }
    world_until(w, duplicate, FEW - 1);
    world_until(w, conflict, 1);
    assert_int_equal(world_snapshot(w).handled, FEW);
    assert_int_equal(world_number(w, EFFECTS), FEW);
    assert_int_equal(world_number(w, DISTINCT), FEW);
}

/* One of them may be what killed a process: it must be found, and take no other with it. */
static void what_comes_again_goes_alone(void **state)
{
    world *w = *state;
    int64_t wait_ms = 0;
    start_with(w, act_ok, FEW);
    while (world_snapshot(w).in_hand < FEW)
        assert_int_equal(pr_endpoint_step(w->endpoint, &wait_ms, NULL), PR_OK);
    world_start(w); /* the one before gives back what it has */
    world_until(w, handled, FEW);
    assert_int_equal(world_snapshot(w).batches, 0);
    assert_int_equal(world_number(w, EFFECTS), FEW);
}

#define KEYS     4
#define MESSAGES 120

/* ---- many of a key at once ---- */

/* A transport that delivers what lies there in order, whatever its key, as a queue of a broker
   does; our own give one of a key at a time. */
typedef struct line_transport {
    pr_transport base;
    struct {
        char id[16], key[8];
        bool out, done, again;
    } items[MESSAGES];
} line_transport;

typedef struct line_subscription {
    pr_subscription base;
    line_transport *line;
} line_subscription;

static pr_status line_receive(pr_subscription *subscription, int64_t timeout_ms,
                              pr_delivery *ret_deliveries, size_t max, size_t *ret_count,
                              pr_error *err)
{
    line_transport *line = ((line_subscription *)(void *)subscription)->line;
    (void)timeout_ms;
    (void)err;
    *ret_count = 0;
    for (size_t i = 0; i < MESSAGES && *ret_count < max; i++) {
        if (line->items[i].out || line->items[i].done)
            continue;
        line->items[i].out = true;
        pr_message message =
            PR_MESSAGE(.id = line->items[i].id, .type = TYPE_ORDER, .type_version = 1,
                       .content_type = "application/json", .key = line->items[i].key, .body = "{}",
                       .body_size_bytes = 2, .occurred_at_us = 1767225600000000);
        ret_deliveries[(*ret_count)++] =
            (pr_delivery){.message = message, .tag = i + 1, .redelivered = line->items[i].again};
    }
    return PR_OK;
}

static pr_status line_settle(pr_subscription *subscription, uint64_t tag, pr_verdict verdict,
                             int64_t requeue_delay_ms, pr_error *err)
{
    line_transport *line = ((line_subscription *)(void *)subscription)->line;
    (void)requeue_delay_ms;
    (void)err;
    line->items[tag - 1].out = false;
    line->items[tag - 1].again = true;
    line->items[tag - 1].done = verdict != PR_VERDICT_REQUEUE;
    return PR_OK;
}

static pr_status line_keep(pr_subscription *subscription, pr_error *err)
{
    (void)subscription;
    (void)err;
    return PR_OK;
}

static void line_close(pr_subscription *subscription)
{
    free(subscription);
}

static const pr_subscription_ops line_subscription_ops = {
    (uint32_t)sizeof line_subscription_ops, line_receive, line_settle, line_keep, line_close};

static pr_status line_open(pr_transport *transport, int64_t timeout_ms, pr_error *err)
{
    (void)transport;
    (void)timeout_ms;
    (void)err;
    return PR_OK;
}

static pr_status line_subscribe(pr_transport *transport, const pr_subscribe_options *options,
                                pr_subscription **ret_subscription, pr_error *err)
{
    line_subscription *subscription = calloc(1, sizeof *subscription);
    (void)options;
    (void)err;
    subscription->base = (pr_subscription){&line_subscription_ops, transport};
    subscription->line = (line_transport *)(void *)transport;
    *ret_subscription = &subscription->base;
    return PR_OK;
}

static void line_free(pr_transport *transport)
{
    free(transport);
}

static const pr_transport_ops line_ops = {.size = (uint32_t)sizeof line_ops,
                                          .capabilities = PR_TRANSPORT_CAN_SUBSCRIBE,
                                          .scheme = "line",
                                          .open = line_open,
                                          .subscribe = line_subscribe,
                                          .free = line_free};

static pr_transport *line_new(void)
{
    line_transport *line = calloc(1, sizeof *line);
    line->base = (pr_transport){&line_ops, "line", NULL, pr_clock_system(), 1};
    for (int i = 0; i < MESSAGES; i++) {
        (void)snprintf(line->items[i].id, sizeof line->items[i].id, "k%d-%04d", i % KEYS, i);
        (void)snprintf(line->items[i].key, sizeof line->items[i].key, "k%d", i % KEYS);
    }
    return &line->base;
}

static pr_handled act_some_fail(world *w, pr_scope *scope)
{
    (void)w;
    int number = (int)strtol(pr_scope_message(scope)->id + 3, NULL, 10);
    if (number % 13 != 5 || pr_scope_attempts(scope) > 0)
        return PR_HANDLED_OK;
    pr_scope_fail(scope, "once", 10);
    return PR_HANDLED_RETRY;
}

static void check_order(world *w, bool workers)
{
    w->opt.prefetch = 64;
    w->opt.batch_max = 16;
    w->act = act_some_fail;
    w->receiver = pr_transport_free(w->receiver);
    w->receiver = line_new();
    if (workers)
        world_run(w);
    else
        world_start(w);
    world_until(w, handled, MESSAGES);
    world_until_number(w, PARKED, 0);
    world_stop(w);
    assert_true(world_snapshot(w).batches > 0);
    assert_true(world_snapshot(w).failed > 0);
    assert_int_equal(world_number(w, EFFECTS), MESSAGES);
    assert_int_equal(world_number(w, DISTINCT), MESSAGES);
    assert_int_equal(world_number(w, "SELECT count(*) FROM effects AS a JOIN effects AS b ON "
                                     "b.n > a.n AND substr(b.id, 1, 2) = substr(a.id, 1, 2) AND "
                                     "b.id < a.id"),
                     0);
}

static void a_key_keeps_its_order_in_batches(void **state)
{
    check_order(*state, /* workers= */ false);
}

static void a_key_keeps_its_order_in_batches_of_several_workers(void **state)
{
    check_order(*state, /* workers= */ true);
}

size_t batch_suite(const struct CMUnitTest **ret_tests)
{
    static const struct CMUnitTest tests[] = {
        CASE(what_a_batch_cannot_be_is_refused),
        CASE(a_batch_is_one_commit),
        CASE(one_poison_among_sixty_is_parked_and_the_rest_done),
        CASE(one_that_aborts_its_transaction_harms_no_other),
        CASE(follow_ups_go_with_their_own_message),
        CASE(a_handler_that_commits_has_each_effect_once),
        CASE(a_handler_that_rolls_back_costs_itself_alone),
        CASE(a_handler_that_ends_the_unit_costs_itself_alone),
        CASE(a_commit_that_fails_leaves_each_once_in_the_end),
        CASE(what_comes_again_goes_alone),
        CASE(copies_of_one_message_have_one_effect),
        CASE(a_key_keeps_its_order_in_batches),
        CASE(a_key_keeps_its_order_in_batches_of_several_workers),
    };
    *ret_tests = tests;
    return COUNT_OF(tests);
}
