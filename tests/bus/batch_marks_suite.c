/*
 * The marks of a batch: one that asks for its unit is marked before it writes, one that never asks
 * is marked at the end, and whatever happens, no mark is without its handler and no effect without
 * its mark.
 */
#include "bus/world.h"

#define FEW 6
#define LOOSE_MARK                                                                                 \
    "SELECT count(*) FROM effects AS e WHERE NOT EXISTS (SELECT 1 FROM {p}_inbox AS i WHERE "      \
    "i.message_id = e.id)"

static bool is(pr_scope *scope, const char *id)
{
    return strcmp(pr_scope_message(scope)->id, id) == 0;
}

/* m-00, m-02, … write; m-01, m-03, … never ask for the unit. */
static pr_handled write_some(world *w, pr_scope *scope)
{
    const char *id = pr_scope_message(scope)->id;
    if ((id[3] - '0') % 2 == 1)
        return PR_HANDLED_OK;
    pr_unit *unit = pr_scope_unit(scope);
    return unit && w->provider->effect(unit, id) ? PR_HANDLED_OK : PR_HANDLED_RETRY;
}

static void send(world *w, int from, int to, const char *key)
{
    for (int i = from; i < to; i++) {
        char id[16];
        (void)snprintf(id, sizeof id, "m-%02d", i);
        world_send(w, id, key, "{}");
    }
}

static void begin(world *w, world_act act)
{
    w->opt.prefetch = 256;
    w->opt.batch_max = 2 * FEW;
    w->no_effect = true; /* the act decides */
    w->act = act;
    world_start(w);
}

static void check_all(world *w, int batches, int effects)
{
    assert_int_equal(world_snapshot(w).batches, batches);
    assert_int_equal(world_number(w, MARKS), FEW);
    assert_int_equal(world_number(w, EFFECTS), effects);
    assert_int_equal(world_number(w, LOOSE_MARK), 0);
    assert_int_equal(world_number(w, PARKED), 0);
}

static void who_asks_and_who_does_not_are_marked(void **state)
{
    world *w = *state;
    begin(w, write_some);
    send(w, 0, FEW, NULL);
    world_until(w, handled, FEW);
    assert_int_equal(w->calls, FEW);
    check_all(w, 1, FEW / 2);
}

static void nobody_asks(void **state)
{
    world *w = *state;
    begin(w, act_ok);
    send(w, 0, FEW, NULL);
    world_until(w, handled, FEW);
    check_all(w, 1, 0);
    send(w, 0, FEW, NULL); /* the marks hold */
    world_until(w, duplicate, FEW);
    assert_int_equal(w->calls, FEW);
}

/* ---- what stood before ---- */

static void those_done_before_go_alone_and_the_rest_together(void **state)
{
    world *w = *state;
    begin(w, write_some);
    send(w, 0, 3, NULL);
    world_until(w, handled, 3);
    world_send(w, "m-03", NULL, "{}");
    world_until(w, handled, 4);
    assert_int_equal(world_snapshot(w).batches, 1);
    send(w, 1, FEW, NULL); /* m-01 to m-03 a second time, among new ones */
    world_until(w, handled, FEW);
    world_until(w, duplicate, 3);
    assert_int_equal(w->calls, FEW);
    check_all(w, 2, FEW / 2);
}

static void one_of_other_content_is_parked_and_the_rest_done(void **state)
{
    world *w = *state;
    begin(w, write_some);
    world_send(w, "m-00", NULL, "{\"other\":1}");
    world_until(w, handled, 1);
    send(w, 0, FEW, NULL);
    world_until(w, conflict, 1);
    world_until(w, handled, FEW);
    assert_int_equal(world_snapshot(w).batches, 1);
    assert_int_equal(world_number(w, MARKS), FEW);
    assert_int_equal(world_number(w, PARKED " WHERE state = 'dead'"), 1);
    assert_int_equal(world_number(w, EFFECTS), FEW / 2);
}

/* ---- one that fails ---- */

static pr_handled act_fail_once(world *w, pr_scope *scope)
{
    pr_handled handled = write_some(w, scope);
    bool second = is(scope, "m-02") || is(scope, "m-03"); /* one of each kind */
    if (!second || pr_scope_attempts(scope) > 0)
        return handled;
    pr_scope_fail(scope, "once", 10);
    return PR_HANDLED_RETRY;
}

static void one_that_fails_leaves_no_mark(void **state)
{
    world *w = *state;
    begin(w, act_fail_once);
    send(w, 0, FEW, NULL);
    world_until(w, handled, FEW - 2);
    world_until(w, failed, 2);
    assert_int_equal(world_number(w, MARKS), FEW - 2);
    world_until(w, handled, FEW);
    world_until_number(w, PARKED, 0);
    check_all(w, 1, FEW / 2);
}

/* Behind what is parked nothing of its key is run, in a batch either. */
static pr_handled act_dead(world *w, pr_scope *scope)
{
    return is(scope, "m-00") ? act_permanent(w, scope) : write_some(w, scope);
}

static void what_is_blocked_is_held(void **state)
{
    world *w = *state;
    w->opt.order = PR_ORDER_HALT;
    begin(w, act_dead);
    send(w, 0, 1, "k");
    world_until(w, dead, 1);
    send(w, 1, 3, "k");
    send(w, 3, FEW, NULL);
    world_until(w, held, 2);
    world_until(w, handled, FEW - 3);
    assert_int_equal(world_snapshot(w).batches, 1);
    assert_int_equal(world_number(w, MARKS), FEW - 3);
    assert_int_equal(world_number(w, PARKED), 3);
}

/* ---- the transaction itself ---- */

static pr_handled run_on_two(world *w, pr_scope *scope, const char *sql)
{
    pr_handled handled = write_some(w, scope);
    if (is(scope, "m-02") && !w->provider->run(pr_scope_unit(scope), sql))
        return PR_HANDLED_RETRY;
    return handled;
}

static pr_handled act_commit(world *w, pr_scope *scope)
{
    return run_on_two(w, scope, "COMMIT");
}

/* m-00 and m-02 were written and marked; m-01 was run and left nothing, so it runs again. */
static void a_commit_behind_its_back_marks_nobody_else(void **state)
{
    world *w = *state;
    w->opt.retry_max = PR_RETRY_NONE;
    begin(w, act_commit);
    send(w, 0, FEW, NULL);
    world_until(w, duplicate, 2);
    world_until(w, handled, FEW - 2);
    check_all(w, 0, FEW / 2);
}

/* In a unit of its own there is no such savepoint. */
static pr_handled act_back(world *w, pr_scope *scope)
{
    pr_handled handled = write_some(w, scope);
    if (!is(scope, "m-02") || atomic_exchange(&w->flag, 1))
        return handled;
    assert_true(w->provider->run(pr_scope_unit(scope), "ROLLBACK TO SAVEPOINT postroom_message"));
    return w->provider->effect(pr_scope_unit(scope), "m-02") ? PR_HANDLED_OK : PR_HANDLED_RETRY;
}

/* Its effect would have stood without its mark. */
static void one_that_takes_its_mark_back_is_found(void **state)
{
    world *w = *state;
    begin(w, act_back);
    send(w, 0, FEW, NULL);
    world_until(w, handled, FEW);
    assert_int_equal(w->calls, 2 * FEW); /* all of them again, alone */
    check_all(w, 0, FEW / 2);
}

/* ---- others at the same time ---- */

/* The last one of the batch sees to it that another has committed `sql` meanwhile. SQLite holds its
   one lock from the first message on: there nobody can. */
static void meanwhile(world *w, const char *sql)
{
    pr_error err = PR_ERROR_INIT;
    pr_store *other = NULL;
    pr_unit *unit = NULL;
    check_ok(pr_store_clone(w->store, &other, &err), &err, "clone");
    check_ok(pr_unit_begin(other, &unit, &err), &err, "begin");
    assert_true(w->provider->run(unit, sql));
    check_ok(pr_unit_commit(unit, NULL, &err), &err, "commit");
    pr_unit_free(unit);
    pr_store_free(other);
}

static pr_handled act_marked_meanwhile(world *w, pr_scope *scope)
{
    if (is(scope, "m-05") && !atomic_exchange(&w->flag, 1))
        meanwhile(w, "INSERT INTO postroom.inbox (tenant, consumer, message_id, body_hash, "
                     "processed_at) SELECT '', '" CONSUMER "', 'm-03', decode(repeat('00', 16), "
                     "'hex'), now()");
    return write_some(w, scope);
}

static void one_marked_by_another_meanwhile_undoes_the_batch(void **state)
{
    world *w = *state;
    begin(w, act_marked_meanwhile);
    send(w, 0, FEW, NULL);
    world_until(w, conflict, 1); /* the other had other content */
    world_until(w, handled, FEW - 1);
    assert_int_equal(w->calls, 2 * FEW - 1);
    assert_int_equal(world_snapshot(w).batches, 0);
    assert_int_equal(world_number(w, MARKS), FEW);
    assert_int_equal(world_number(w, EFFECTS), FEW / 2);
    assert_int_equal(world_number(w, LOOSE_MARK), 0);
}

static pr_handled act_blocked_meanwhile(world *w, pr_scope *scope)
{
    if (is(scope, "m-05") && !atomic_exchange(&w->flag, 1))
        meanwhile(w,
                  "INSERT INTO postroom.inbox_parked (tenant, consumer, message_id, original_id, "
                  "body_hash, type, type_version, content_type, key, body, occurred_at, state, "
                  "next_attempt_at, parked_at) SELECT '', '" CONSUMER "', 'm-99', 'm-99', "
                  "decode(repeat('00', 16), 'hex'), '" TYPE_ORDER "', 1, 'application/json', 'k', "
                  "'{}', now(), 'dead', now(), now()");
    return write_some(w, scope);
}

static void one_blocked_by_another_meanwhile_undoes_the_batch(void **state)
{
    world *w = *state;
    w->opt.order = PR_ORDER_HALT;
    begin(w, act_blocked_meanwhile);
    send(w, 0, 1, NULL);
    send(w, 1, 2, "k");
    send(w, 2, FEW, NULL);
    world_until(w, held, 1);
    world_until(w, handled, FEW - 1);
    assert_int_equal(world_snapshot(w).batches, 0);
    assert_int_equal(world_number(w, MARKS), FEW - 1);
    assert_int_equal(world_number(w, MARKS " WHERE message_id = 'm-01'"), 0);
}

/* The same, of one that asks: what it is told is not an end for the others. */
static pr_handled act_asks_too_late(world *w, pr_scope *scope)
{
    if (is(scope, "m-02") && !atomic_exchange(&w->flag, 1)) {
        pr_unit *unit = NULL;
        pr_error err = PR_ERROR_INIT;
        meanwhile(w, "INSERT INTO postroom.inbox (tenant, consumer, message_id, body_hash, "
                     "processed_at) SELECT '', '" CONSUMER "', 'm-02', decode(repeat('00', 16), "
                     "'hex'), now()");
        check_error(pr_scope_unit_get(scope, &unit, &err), &err, PR_E_BUSY,
                    "somebody else was at the message meanwhile", "ask");
        assert_null(pr_scope_unit(scope)); /* and is told so again */
        return PR_HANDLED_OK;
    }
    return write_some(w, scope);
}

static void one_that_asks_too_late_goes_alone(void **state)
{
    world *w = *state;
    begin(w, act_asks_too_late);
    send(w, 0, FEW, NULL);
    world_until(w, conflict, 1);
    world_until(w, handled, FEW - 1);
    assert_int_equal(w->calls, FEW);
    assert_int_equal(world_snapshot(w).batches, 1);
    assert_int_equal(world_number(w, MARKS), FEW);
    assert_int_equal(world_number(w, EFFECTS), FEW / 2 - 1);
}

/* ---- middleware ---- */

/* Outside of the inbox: the unit is asked for before there is a mark. */
static pr_handled ask_first(void *user, pr_scope *scope, pr_next *next)
{
    world *w = user;
    if (is(scope, "m-04") && !pr_scope_unit(scope))
        atomic_store(&w->flag, -1);
    return pr_next_invoke(next, scope);
}

static void a_middleware_may_ask_first(void **state)
{
    world *w = *state;
    const pr_middleware chain[] = {pr_middleware_unit(),
                                   PR_MIDDLEWARE(.name = "own", .invoke = ask_first, .user = w),
                                   pr_middleware_inbox()};
    w->opt.middleware = chain;
    w->opt.middleware_count = COUNT_OF(chain);
    begin(w, act_fail_once);
    send(w, 0, FEW, NULL);
    world_until(w, handled, FEW);
    world_until_number(w, PARKED, 0);
    assert_int_equal(atomic_load(&w->flag), 0);
    check_all(w, 1, FEW / 2);
}

size_t batch_marks_suite(const struct CMUnitTest **ret_tests)
{
    static const struct CMUnitTest tests[] = {
        CASE(who_asks_and_who_does_not_are_marked),
        CASE(nobody_asks),
        CASE(those_done_before_go_alone_and_the_rest_together),
        CASE(one_of_other_content_is_parked_and_the_rest_done),
        CASE(one_that_fails_leaves_no_mark),
        CASE(what_is_blocked_is_held),
        CASE(a_commit_behind_its_back_marks_nobody_else),
        CASE(one_that_takes_its_mark_back_is_found),
        CASE(a_middleware_may_ask_first),
        /* where others can write while a unit is open */
        CASE(one_marked_by_another_meanwhile_undoes_the_batch),
        CASE(one_blocked_by_another_meanwhile_undoes_the_batch),
        CASE(one_that_asks_too_late_goes_alone),
    };
    bool serial = strcmp(bus_provider_in_use->name, "sqlite") == 0;
    *ret_tests = tests;
    return COUNT_OF(tests) - (serial ? 3 : 0);
}
