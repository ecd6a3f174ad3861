/*
 * A unit's life: it ends once, failures inside make it rollback-only, and the end is told rightly.
 */
#include <postroom/unit.h>

#include "core/unit.h"
#include "unit/fake_store.h"

#define TYPE "urn:message:shop:order-placed"

static const pr_message message = PR_MESSAGE(.type = TYPE);

static pr_unit *join(fake_store *fake)
{
    pr_unit *unit = NULL;
    assert_int_equal(fake_unit_new(fake, /* joined= */ true, &unit, NULL), PR_OK);
    return unit;
}

static pr_unit *nest(pr_unit *outer)
{
    pr_unit *unit = NULL;
    assert_int_equal(pr_unit_nest(outer, &unit, NULL), PR_OK);
    return unit;
}

static void assert_says(const pr_error *err, const char *part)
{
    if (!strstr(err->message, part))
        fail_msg("'%s' does not say '%s'", err->message, part);
}

static void misuse_is_refused(void **state)
{
    fake_store *fake = *state;
    pr_unit *unit = NULL;
    assert_int_equal(pr_unit_begin(NULL, &unit, NULL), PR_E_INVALID);
    assert_int_equal(pr_unit_begin(&fake->base, NULL, NULL), PR_E_INVALID);
    assert_int_equal(pr_unit_commit(NULL, NULL, NULL), PR_E_INVALID);
    assert_int_equal(pr_unit_rollback(NULL, NULL), PR_E_INVALID);
    assert_int_equal(pr_unit_nest(NULL, &unit, NULL), PR_E_INVALID);
    assert_null(pr_unit_free(NULL));

    unit = fake_begin(fake);
    pr_error err = PR_ERROR_INIT;
    assert_int_equal(pr_unit_finished(unit, PR_OUTCOME_COMMITTED, &err), PR_E_STATE);
    assert_says(&err, "not joined");
    assert_int_equal(pr_unit_commit(unit, NULL, NULL), PR_OK);
    pr_error_clear(&err);
    assert_int_equal(pr_unit_commit(unit, NULL, &err), PR_E_STATE);
    assert_says(&err, "finished");
    assert_int_equal(pr_unit_rollback(unit, NULL), PR_E_STATE);
    assert_int_equal(pr_unit_nest(unit, &unit, NULL), PR_E_STATE);
    assert_int_equal(fake->commits, 1);
    pr_unit_free(unit);
}

static void a_commit_has_three_outcomes_and_each_is_told(void **state)
{
    fake_store *fake = *state;
    const struct {
        const char *label;
        pr_status status;
        pr_outcome outcome;
        size_t rings;
        size_t seen;
    } cases[] = {
        {"committed", PR_OK, PR_OUTCOME_COMMITTED, 1, 1},
        {"not committed", PR_E_BACKEND, PR_OUTCOME_NOT_COMMITTED, 0, 0},
        {"unknown", PR_E_BACKEND, PR_OUTCOME_UNKNOWN, 1, 0},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        fake_store_done(fake);
        fake_store_init(fake);
        fake->commit_status = cases[i].status;
        fake->commit_outcome = cases[i].outcome;
        pr_unit *unit = fake_begin(fake);
        assert_int_equal(pr_unit_enqueue(unit, &message, NULL, NULL), PR_OK);
        assert_int_equal(fake->rings, 0); /* never inside the transaction */
        pr_outcome outcome = 0;
        pr_status status = pr_unit_commit(unit, &outcome, NULL);
        if (status != cases[i].status || outcome != cases[i].outcome ||
            fake->rings != cases[i].rings || fake->enqueued_seen != cases[i].seen)
            fail_msg("%s: status %d outcome %d rings %zu seen %zu", cases[i].label, (int)status,
                     (int)outcome, fake->rings, fake->enqueued_seen);
        assert_int_equal(pr_unit_commit(unit, NULL, NULL), PR_E_STATE);
        pr_unit_free(unit);
    }
}

static void an_empty_unit_rings_nobody(void **state)
{
    fake_store *fake = *state;
    pr_unit *unit = fake_begin(fake);
    assert_int_equal(pr_unit_commit(unit, NULL, NULL), PR_OK);
    assert_int_equal(fake->rings, 0);
    pr_unit_free(unit);
}

static void a_transaction_that_others_ended_is_unknown_and_nothing_is_written(void **state)
{
    fake_store *fake = *state;
    pr_unit *unit = fake_begin(fake);
    fake->dead = true;
    pr_outcome outcome = 0;
    pr_error err = PR_ERROR_INIT;
    assert_int_equal(pr_unit_commit(unit, &outcome, &err), PR_E_STATE);
    assert_int_equal(outcome, PR_OUTCOME_UNKNOWN);
    assert_int_equal(fake->row_count, 0);
    pr_unit_free(unit);
}

static void a_unit_that_is_freed_is_rolled_back_but_a_joined_one_is_the_hosts(void **state)
{
    fake_store *fake = *state;
    pr_unit *unit = fake_begin(fake);
    assert_int_equal(pr_unit_enqueue(unit, &message, NULL, NULL), PR_OK);
    assert_null(pr_unit_free(unit));
    assert_int_equal(fake->rollbacks, 1);
    assert_int_equal(fake->row_count, 0);

    unit = join(fake);
    assert_int_equal(pr_unit_enqueue(unit, &message, NULL, NULL), PR_OK);
    pr_unit_free(unit);
    assert_int_equal(fake->rollbacks, 1);
    assert_int_equal(fake->row_count, 1);
}

static void a_joined_unit_is_ended_by_its_host(void **state)
{
    fake_store *fake = *state;
    pr_unit *unit = join(fake);
    pr_outcome outcome = 0;
    pr_error err = PR_ERROR_INIT;
    assert_int_equal(pr_unit_enqueue(unit, &message, NULL, NULL), PR_OK);
    assert_int_equal(pr_unit_commit(unit, &outcome, &err), PR_E_STATE);
    assert_says(&err, "pr_unit_finished");
    assert_int_equal(outcome, PR_OUTCOME_NOT_COMMITTED);
    assert_int_equal(pr_unit_rollback(unit, NULL), PR_E_STATE);
    assert_int_equal(fake->commits + fake->rollbacks, 0);
    assert_int_equal(pr_unit_finished(unit, 0, NULL), PR_E_INVALID);
    assert_int_equal(pr_unit_finished(unit, PR_OUTCOME_COMMITTED, NULL), PR_OK);
    assert_int_equal(fake->rings, 1);
    assert_int_equal(pr_unit_finished(unit, PR_OUTCOME_COMMITTED, NULL), PR_E_STATE);
    assert_int_equal(fake->rings, 1);
    pr_unit_free(unit);

    unit = join(fake);
    assert_int_equal(pr_unit_enqueue(unit, &message, NULL, NULL), PR_OK);
    assert_int_equal(pr_unit_finished(unit, PR_OUTCOME_NOT_COMMITTED, NULL), PR_OK);
    assert_int_equal(fake->rings, 1);
    pr_unit_free(unit);
}

static void a_nested_unit_that_fails_spoils_the_outer_one_whoever_ignores_it(void **state)
{
    fake_store *fake = *state;
    static const char *const ways[] = {"rolled back", "freed", "backend error", "innermost"};
    for (size_t i = 0; i < COUNT_OF(ways); i++) {
        pr_unit *outer = fake_begin(fake);
        assert_int_equal(pr_unit_enqueue(outer, &message, NULL, NULL), PR_OK);
        pr_unit *nested = nest(outer);
        if (i == 0)
            assert_int_equal(pr_unit_rollback(nested, NULL), PR_OK);
        if (i == 2) {
            fake->enqueue_status = PR_E_BACKEND;
            assert_int_equal(pr_unit_enqueue(nested, &message, NULL, NULL), PR_E_BACKEND);
            fake->enqueue_status = PR_OK;
        }
        if (i == 3)
            pr_unit_free(nest(nested));
        pr_unit_free(nested);
        pr_error err = PR_ERROR_INIT;
        pr_unit *another = NULL;
        assert_int_equal(pr_unit_enqueue(outer, &message, NULL, &err), PR_E_STATE);
        assert_says(&err, "rolled back");
        assert_int_equal(pr_unit_nest(outer, &another, NULL), PR_E_STATE);
        pr_outcome outcome = 0;
        pr_status status = pr_unit_commit(outer, &outcome, NULL);
        if (status != PR_E_STATE || outcome != PR_OUTCOME_NOT_COMMITTED ||
            fake->rollbacks != i + 1 || fake->commits != 0 || fake->row_count != 0)
            fail_msg("%s: status %d, %zu rollbacks, %zu commits", ways[i], (int)status,
                     fake->rollbacks, fake->commits);
        pr_unit_free(outer);
    }
}

static void nested_units_commit_with_the_outer_one(void **state)
{
    fake_store *fake = *state;
    pr_unit *outer = fake_begin(fake);
    pr_unit *nested = nest(outer);
    assert_int_equal(pr_unit_enqueue(nested, &message, NULL, NULL), PR_OK);
    pr_error err = PR_ERROR_INIT;
    assert_int_equal(pr_unit_commit(outer, NULL, &err), PR_E_STATE);
    assert_says(&err, "nested");
    assert_int_equal(pr_unit_commit(nested, NULL, NULL), PR_OK);
    assert_int_equal(fake->commits, 0);
    assert_int_equal(pr_unit_enqueue(nested, &message, NULL, NULL), PR_E_STATE);
    pr_unit_free(nested);
    assert_int_equal(pr_unit_commit(outer, NULL, NULL), PR_OK);
    assert_int_equal(fake->commits, 1);
    assert_int_equal(fake->enqueued_seen, 1);
    pr_unit_free(outer);
}

static void a_refused_message_in_a_nested_unit_spoils_nothing(void **state)
{
    fake_store *fake = *state;
    pr_unit *outer = fake_begin(fake);
    pr_unit *nested = nest(outer);
    pr_message bad = PR_MESSAGE(.type = "no type");
    assert_int_equal(pr_unit_enqueue(nested, &bad, NULL, NULL), PR_E_CONTENT);
    assert_int_equal(pr_unit_commit(nested, NULL, NULL), PR_OK);
    pr_unit_free(nested);
    assert_int_equal(pr_unit_commit(outer, NULL, NULL), PR_OK);
    pr_unit_free(outer);
}

static void a_guarded_unit_is_ended_by_its_guard_only(void **state)
{
    fake_store *fake = *state;
    pr_unit *unit = fake_begin(fake);
    assert_int_equal(pr__unit_guard(unit, NULL), PR_OK);
    pr_error err = PR_ERROR_INIT;
    assert_int_equal(pr_unit_commit(unit, NULL, &err), PR_E_STATE);
    assert_says(&err, "the handler called pr_unit_commit");
    assert_int_equal(pr_unit_rollback(unit, NULL), PR_E_STATE);
    assert_null(pr_unit_free(unit)); /* and the memory stays */
    pr__unit_unguard(unit);
    pr_error_clear(&err);
    assert_int_equal(pr_unit_commit(unit, NULL, &err), PR_E_STATE);
    assert_says(&err, "pr_unit_commit");
    assert_int_equal(fake->commits, 0);
    assert_int_equal(fake->rollbacks, 1);
    pr_unit_free(unit);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define CASE(name) cmocka_unit_test_setup_teardown(name, fake_store_set_up, fake_store_tear_down)
        CASE(misuse_is_refused),
        CASE(a_commit_has_three_outcomes_and_each_is_told),
        CASE(an_empty_unit_rings_nobody),
        CASE(a_transaction_that_others_ended_is_unknown_and_nothing_is_written),
        CASE(a_unit_that_is_freed_is_rolled_back_but_a_joined_one_is_the_hosts),
        CASE(a_joined_unit_is_ended_by_its_host),
        CASE(a_nested_unit_that_fails_spoils_the_outer_one_whoever_ignores_it),
        CASE(nested_units_commit_with_the_outer_one),
        CASE(a_refused_message_in_a_nested_unit_spoils_nothing),
        CASE(a_guarded_unit_is_ended_by_its_guard_only),
#undef CASE
    };
    return RUN_TESTS(tests);
}
