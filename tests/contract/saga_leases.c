/*
 * Steps of sagas that work outside the database: leases, and what waits for them.
 */
#include "base/text.h"
#include "contract/saga_cases.h"
#include "contract/saga_world.h"

#define QUIET_MS 60

static pr_saga_lease *take(tally_worker *worker, const char *key, int64_t lease_ms)
{
    pr_saga_lease *lease = NULL;
    pr_error err = PR_ERROR_INIT;
    pr_saga_lease_options opt = {
        .size = (uint32_t)sizeof opt, .key = key, .owner = "caller", .lease_ms = lease_ms};
    check_ok(pr_saga_lease_take(worker->saga, worker->store, &opt, &lease, &err), &err, "take");
    return lease;
}

/* What the outside answered, and a command for it. */
static pr_handled add_hundred(void *user, pr_saga_step *step, void *object)
{
    tally *state = object;
    pr_error err = PR_ERROR_INIT;
    pr_message message = PR_MESSAGE(.type = TALLY_TOLD);
    assert_null(pr_saga_step_scope(step));
    state->sum += *(const int64_t *)user;
    return pr_unit_enqueue(pr_saga_step_unit(step), &message, NULL, &err) == PR_OK
               ? PR_HANDLED_OK
               : PR_HANDLED_RETRY;
}

static pr_handled refuse(void *user, pr_saga_step *step, void *object)
{
    (void)user;
    (void)step;
    ((tally *)object)->sum = -1;
    return PR_HANDLED_RETRY;
}

static void start(store_fixture *fix, tally_worker *worker)
{
    tally_subscribe(fix);
    tally_send(fix, TALLY_OPENED, "k", 5, NULL);
    tally_open(fix, NULL, worker);
    tally_run(worker, QUIET_MS);
}

void case_a_leased_saga_waits(void **state)
{
    store_fixture *fix = *state;
    tally_worker worker;
    int64_t hundred = 100;
    pr_error err = PR_ERROR_INIT;
    start(fix, &worker);
    pr_saga_lease *lease = take(&worker, "k", 60000);
    assert_true(tally_read(fix, "k").leased);
    tally_send(fix, TALLY_ADDED, "k", 7, NULL);
    tally_send(fix, TALLY_OPENED, "other", 1, NULL);
    tally_run(&worker, QUIET_MS);
    assert_int_equal(tally_read(fix, "k").state.sum, 5); /* it waits */
    assert_int_equal(tally_read(fix, "other").state.sum, 1);
    assert_true(tally_counters(&worker).leased >= 1);
    check_ok(pr_saga_lease_save(lease, add_hundred, &hundred, &err), &err, "save");
    assert_null(pr_saga_lease_free(lease));
    pass_ms(fix, 1100);
    tally_run(&worker, 300);
    tally_row row = tally_read(fix, "k");
    assert_int_equal(row.state.sum, 112);
    assert_int_equal(row.version, 3);
    assert_false(row.leased);
    assert_int_equal(tally_number(fix, "SELECT count(*) FROM {p}_inbox_parked"), 0);
    tally_close(&worker);
}

void case_a_leased_step_saves_and_sends(void **state)
{
    store_fixture *fix = *state;
    tally_worker worker;
    int64_t hundred = 100;
    pr_error err = PR_ERROR_INIT;
    start(fix, &worker);
    int64_t told = tally_number(fix, TOLD_SQL);
    pr_saga_lease *lease = take(&worker, "k", 60000);
    assert_int_equal(((const tally *)pr_saga_lease_state(lease))->sum, 5);
    check_error(pr_saga_lease_save(lease, refuse, NULL, &err), &err, PR_E_STATE,
                "its handler did not say OK", "refused");
    assert_true(tally_read(fix, "k").leased); /* and the lease stays */
    err = (pr_error)PR_ERROR_INIT;
    check_ok(pr_saga_lease_renew(lease, worker.store, &err), &err, "renew");
    check_ok(pr_saga_lease_save(lease, add_hundred, &hundred, &err), &err, "save");
    assert_int_equal(tally_read(fix, "k").state.sum, 105);
    assert_int_equal(tally_number(fix, TOLD_SQL), told + 1);
    check_error(pr_saga_lease_save(lease, add_hundred, &hundred, &err), &err, PR_E_FENCED, "over",
                "twice");
    pr_saga_lease_free(lease);
    lease = take(&worker, "k", 60000);
    pr_saga_lease_free(lease); /* given back, nothing saved */
    tally_row row = tally_read(fix, "k");
    assert_false(row.leased);
    assert_int_equal(row.version, 2);
    tally_close(&worker);
}

void case_a_lost_lease_saves_nothing(void **state)
{
    store_fixture *fix = *state;
    tally_worker worker;
    int64_t hundred = 100, thousand = 1000;
    pr_error err = PR_ERROR_INIT;
    start(fix, &worker);
    pr_saga_lease *first = take(&worker, "k", 1000);
    pass_ms(fix, 1500);
    pr_saga_lease *second = take(&worker, "k", 60000);
    check_error(pr_saga_lease_renew(first, worker.store, &err), &err, PR_E_FENCED, "was lost",
                "renew");
    err = (pr_error)PR_ERROR_INIT;
    check_error(pr_saga_lease_save(first, add_hundred, &hundred, &err), &err, PR_E_FENCED,
                "nothing was saved", "save");
    err = (pr_error)PR_ERROR_INIT;
    check_ok(pr_saga_lease_save(second, add_hundred, &thousand, &err), &err, "the other");
    assert_int_equal(tally_read(fix, "k").state.sum, 1005);
    assert_int_equal(tally_counters(&worker).lost, 1);
    pr_saga_lease_free(first);
    pr_saga_lease_free(second);
    /* an event moves what an expired lease left behind; the holder's save is refused then */
    first = take(&worker, "k", 1000);
    pass_ms(fix, 1500);
    tally_send(fix, TALLY_ADDED, "k", 1, NULL);
    tally_run(&worker, QUIET_MS);
    assert_int_equal(tally_read(fix, "k").state.sum, 1006);
    check_error(pr_saga_lease_save(first, add_hundred, &hundred, &err), &err, PR_E_FENCED,
                "nothing was saved", "an event moved it");
    pr_saga_lease_free(first);
    assert_int_equal(tally_read(fix, "k").state.sum, 1006);
    /* expired, and nobody came: its token still stands */
    err = (pr_error)PR_ERROR_INIT;
    first = take(&worker, "k", 1000);
    pass_ms(fix, 1500);
    check_ok(pr_saga_lease_save(first, add_hundred, &hundred, &err), &err, "nobody took it");
    pr_saga_lease_free(first);
    tally_close(&worker);
}

void case_who_may_take_a_lease(void **state)
{
    store_fixture *fix = *state;
    tally_worker worker;
    start(fix, &worker);
    tally_send(fix, TALLY_OPENED, "done", 5, NULL);
    tally_send(fix, TALLY_CLOSED, "done", 0, NULL);
    tally_run(&worker, QUIET_MS);
    pr_saga_lease *held = take(&worker, "k", 60000);
    const struct {
        const char *label;
        pr_saga_lease_options opt;
        pr_status wanted;
        const char *text;
    } cases[] = {
        {"none", {.key = "none"}, PR_E_NOT_FOUND, "there is no saga 'tally' with the key 'none'"},
        {"tenant", {.key = "k", .tenant = "acme"}, PR_E_NOT_FOUND, "there is no saga"},
        {"done", {.key = "done"}, PR_E_STATE, "is completed"},
        {"held", {.key = "k"}, PR_E_BUSY, "leased by 'caller'"},
        {"no key", {.key = NULL}, PR_E_INVALID, "correlation key"},
        {"negative", {.key = "k", .lease_ms = -1}, PR_E_INVALID, "lease_ms"},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        pr_saga_lease *lease = NULL;
        pr_error err = PR_ERROR_INIT;
        pr_saga_lease_options opt = cases[i].opt;
        opt.size = (uint32_t)sizeof opt;
        check_error(pr_saga_lease_take(worker.saga, worker.store, &opt, &lease, &err), &err,
                    cases[i].wanted, cases[i].text, cases[i].label);
        assert_null(lease);
    }
    pr_saga_lease_free(held);
    tally_close(&worker);
}
