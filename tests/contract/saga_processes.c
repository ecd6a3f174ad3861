/*
 * Sagas moved by several processes at once, killed and frozen on the way.
 */
#include <errno.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fault.h"
#include "base/text.h"
#include "base/time.h"
#include "contract/saga_cases.h"
#include "contract/saga_world.h"

#define WORKERS    3
#define QUIET_MS   250
#define STEPS      10000
#define STEP_KEYS  25
#define SEND_BATCH 500
#define TRIES_MAX  20 /* a server needs a while to see that a process is dead */

/* ---- at once ---- */

static int work(store_fixture *fix, int n)
{
    (void)n;
    tally_work(fix, QUIET_MS);
    return 0;
}

static void work_all(store_fixture *fix)
{
    int pids[WORKERS];
    close_stores(fix);
    for (int i = 0; i < WORKERS; i++)
        pids[i] = start_child(fix, work, i);
    for (int i = 0; i < WORKERS; i++)
        assert_int_equal(child_result(pids[i]), 0);
    /* what was put off when they left */
    for (int tries = 0; tries < TRIES_MAX && tally_number(fix, PARKED_SQL) > 0; tries++)
        tally_work(fix, QUIET_MS);
}

void case_ten_starts_at_once_make_one_instance(void **state)
{
    store_fixture *fix = *state;
    tally_subscribe(fix);
    for (int i = 0; i < 10; i++)
        tally_send_loose(fix, NULL, TALLY_OPENED, "k", 1 << i);
    work_all(fix);
    tally_row row = tally_read(fix, "k");
    assert_int_equal(row.state.sum, 1023);
    assert_int_equal(row.state.steps, 10);
    assert_int_equal(row.version, 10);
    assert_int_equal(tally_number(fix, "SELECT count(*) FROM {p}_saga"), 1);
    assert_int_equal(tally_number(fix, TOLD_SQL), 10);
    assert_int_equal(tally_number(fix, MARKS_SQL), 10);
    /* each saw another sum: the commands tell ten different ones */
    assert_int_equal(
        tally_number(fix,
                     "SELECT count(DISTINCT body) FROM {p}_outbox WHERE type = '" TALLY_TOLD "'"),
        10);
    assert_int_equal(tally_number(fix, "SELECT count(*) FROM {p}_inbox_parked"), 0);
}

void case_events_at_once_reordered_and_twice(void **state)
{
    store_fixture *fix = *state;
    tally_subscribe(fix);
    for (int i = 0; i < 8; i++) {
        char key[16], id[PR_UUID_TEXT_SIZE];
        pr__format(key, sizeof key, "k%d", i);
        /* every message comes twice, and in half of them the other one first */
        for (int turn = 0; turn < 4; turn++) {
            int which = (turn + i) % 2;
            pr__format(id, sizeof id, "0198c5f2-7d3e-7a10-8b2c-0000000%d00%02d", which, i);
            tally_send_loose(fix, id, TALLY_OPENED, key, which ? 10 : 1);
        }
    }
    work_all(fix);
    for (int i = 0; i < 8; i++) {
        char key[16];
        pr__format(key, sizeof key, "k%d", i);
        tally_row row = tally_read(fix, key);
        if (row.state.sum != 11 || row.version != 2)
            fail_msg("key %s: sum %lld, version %lld", key, (long long)row.state.sum,
                     (long long)row.version);
    }
    assert_int_equal(tally_number(fix, TOLD_SQL), 16);
    assert_int_equal(tally_number(fix, "SELECT count(*) FROM {p}_inbox_parked"), 0);
}

/* ---- killed ---- */

#ifdef PR_FAULT_POINTS
static const char *fault_spec; /* of the child to come */

static int work_with_fault(store_fixture *fix, int n)
{
    (void)n;
    pr__fault_reset(fault_spec);
    tally_work(fix, QUIET_MS);
    return 0;
}

/* True: it was killed. */
static bool run_to_death(store_fixture *fix, child_work act, const char *spec)
{
    int status = 0;
    close_stores(fix);
    fault_spec = spec;
    pid_t pid = start_child(fix, act, 0);
    while (waitpid(pid, &status, 0) < 0)
        assert_int_equal(errno, EINTR);
    if (WIFSIGNALED(status)) {
        assert_int_equal(WTERMSIG(status), SIGKILL);
        return true;
    }
    assert_int_equal(WEXITSTATUS(status), 0);
    return false;
}

void case_killed_at_each_point_of_a_step(void **state)
{
    store_fixture *fix = *state;
    static const char *const points[] = {
        "saga.after_insert:1",      "saga.after_load:1",       "saga.after_load:2",
        "saga.before_handler:1",    "saga.after_handler:2",    "saga.after_timeout:1",
        "saga.before_save:2",       "saga.after_save:1",       "saga.after_save:3",
        "endpoint.before_commit:2", "endpoint.after_commit:1", "endpoint.after_commit:3",
    };
    tally_subscribe(fix);
    for (size_t i = 0; i < COUNT_OF(points); i++) {
        char key[16], spec[64];
        pr__format(key, sizeof key, "k%d", (int)i);
        pr__format(spec, sizeof spec, "%s:kill", points[i]);
        tally_send(fix, TALLY_OPENED, key, 1, NULL);
        tally_send(fix, TALLY_ARMED, key, 3600000, "ring");
        tally_send(fix, TALLY_ADDED, key, 2, NULL);
        tally_send(fix, TALLY_ADDED, key, 4, NULL);
        if (!run_to_death(fix, work_with_fault, spec))
            fail_msg("nothing came by %s", points[i]);
        pass_ms(fix, 600); /* the leases of what it had in hand are over */
        tally_row row = {.found = false};
        for (int tries = 0; tries < TRIES_MAX && row.version < 4; tries++) {
            assert_false(run_to_death(fix, work_with_fault, ""));
            row = tally_read(fix, key);
        }
        if (row.state.sum != 7 || row.version != 4 || row.state.steps != 4)
            fail_msg("after %s: sum %lld, version %lld", points[i], (long long)row.state.sum,
                     (long long)row.version);
    }
    int64_t all = 4 * (int64_t)COUNT_OF(points);
    assert_int_equal(tally_number(fix, TOLD_SQL), all);
    assert_int_equal(tally_number(fix, MARKS_SQL), all);
    assert_int_equal(tally_number(fix, "SELECT count(*) FROM {p}_inbox_parked"), 0);
    assert_int_equal(
        tally_number(fix,
                     "SELECT count(*) FROM {p}_outbox_parked WHERE type = '" TALLY_TIMEOUT "'"),
        (int64_t)COUNT_OF(points));
}

static pr_handled add_hundred(void *user, pr_saga_step *step, void *object)
{
    (void)user;
    (void)step;
    ((tally *)object)->sum += 100;
    return PR_HANDLED_OK;
}

static int lease_and_save(store_fixture *fix, int n)
{
    tally_worker worker;
    pr_saga_lease *lease = NULL;
    pr_error err = PR_ERROR_INIT;
    pr_saga_lease_options opt = {
        .size = (uint32_t)sizeof opt, .key = "k", .owner = "child", .lease_ms = 1000};
    (void)n;
    pr__fault_reset(fault_spec);
    tally_open(fix, NULL, &worker);
    check_ok(pr_saga_lease_take(worker.saga, worker.store, &opt, &lease, &err), &err, "take");
    pr_status status = pr_saga_lease_save(lease, add_hundred, NULL, &err);
    pr_saga_lease_free(lease);
    tally_close(&worker);
    return status == PR_OK ? 0 : status == PR_E_FENCED ? 1 : 2;
}

void case_killed_while_it_holds_a_lease(void **state)
{
    store_fixture *fix = *state;
    static const struct {
        const char *spec;
        int64_t sum; /* that it leaves */
        bool leased;
    } cases[] = {
        {"saga.before_lease_commit:1:kill", 5, false},
        {"saga.after_lease_commit:1:kill", 5, true},
        {"saga.before_leased_commit:1:kill", 5, true},
        {"saga.after_leased_commit:1:kill", 105, false},
    };
    tally_subscribe(fix);
    tally_send(fix, TALLY_OPENED, "k", 5, NULL);
    tally_work(fix, 60);
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        CHECK_CASE(run_to_death(fix, lease_and_save, cases[i].spec), cases[i].spec);
        tally_row row = tally_read(fix, "k");
        CHECK_CASE(row.state.sum == cases[i].sum, cases[i].spec);
        CHECK_CASE(row.leased == cases[i].leased, cases[i].spec);
        pass_ms(fix, 1500); /* then another may take it */
    }
    tally_worker worker;
    tally_send(fix, TALLY_ADDED, "k", 1, NULL);
    tally_open(fix, NULL, &worker);
    tally_run(&worker, 60);
    assert_int_equal(tally_read(fix, "k").state.sum, 106);
    tally_close(&worker);
}

/* The holder sleeps with its lease taken and its step not saved: SIGSTOP at the point. */
void case_a_sleeping_holder_is_taken_over(void **state)
{
    store_fixture *fix = *state;
    int status = 0;
    tally_subscribe(fix);
    tally_send(fix, TALLY_OPENED, "k", 5, NULL);
    tally_work(fix, 60);
    close_stores(fix);
    fault_spec = "saga.after_lease_commit:1:pause";
    int pid = start_child(fix, lease_and_save, 0);
    assert_int_equal(waitpid(pid, &status, WUNTRACED), pid);
    assert_true(WIFSTOPPED(status));
    pass_ms(fix, 1500);
    fault_spec = "";
    int other = start_child(fix, lease_and_save, 1);
    assert_int_equal(child_result(other), 0);
    assert_int_equal(kill(pid, SIGCONT), 0);
    assert_int_equal(child_result(pid), 1); /* its save was refused */
    tally_row row = tally_read(fix, "k");
    assert_int_equal(row.state.sum, 105);
    assert_int_equal(row.version, 2);
    assert_false(row.leased);
}
#else
void case_killed_at_each_point_of_a_step(void **state)
{
    (void)state;
    skip();
}

void case_killed_while_it_holds_a_lease(void **state)
{
    (void)state;
    skip();
}

void case_a_sleeping_holder_is_taken_over(void **state)
{
    (void)state;
    skip();
}
#endif

/* ---- many steps ---- */

typedef struct model {
    int64_t sum[STEP_KEYS];
    int64_t steps[STEP_KEYS];
} model;

static uint64_t next(uint64_t *random)
{
    *random = *random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return *random >> 33;
}

/* Send random steps, some of them twice, and tell the model. */
static void send_steps(store_fixture *fix, model *wanted)
{
    uint64_t random = 42;
    pr_unit *unit = NULL;
    for (int i = 0; i < STEPS; i++) {
        char body[128], id[PR_UUID_TEXT_SIZE];
        pr_error err = PR_ERROR_INIT;
        size_t key = next(&random) % STEP_KEYS;
        int64_t n = (int64_t)(next(&random) % 1000) - 300;
        wanted->sum[key] += n;
        wanted->steps[key]++;
        pr__format(body, sizeof body, "{\"key\":\"k%d\",\"n\":%lld,\"note\":\"\"}", (int)key,
                   (long long)n);
        pr__format(id, sizeof id, "0198c5f2-7d3e-7a10-8b2c-%012d", i);
        pr_message message = PR_MESSAGE(.id = id, .type = TALLY_OPENED, .body = body,
                                        .body_size_bytes = strlen(body));
        if (!unit)
            unit = begin_unit(store_at(fix, 0));
        check_ok(pr_unit_enqueue(unit, &message, NULL, &err), &err, "enqueue");
        if (i % SEND_BATCH == SEND_BATCH - 1) {
            commit_unit(unit);
            unit = NULL;
            pr_unit *again = begin_unit(store_at(fix, 0)); /* with its id: a duplicate */
            check_ok(pr_unit_enqueue(again, &message, NULL, &err), &err, "again");
            commit_unit(again);
        }
    }
}

static void no_step_is_lost_in_ten_thousand(void **state)
{
    store_fixture *fix = *state;
    model wanted = {{0}, {0}};
    tally_subscribe(fix);
    send_steps(fix, &wanted);
    work_all(fix);
    for (int i = 0; i < STEP_KEYS; i++) {
        char key[16];
        pr__format(key, sizeof key, "k%d", i);
        tally_row row = tally_read(fix, key);
        if (row.state.sum != wanted.sum[i] || row.state.steps != wanted.steps[i] ||
            row.version != wanted.steps[i])
            fail_msg("key %s: wanted %lld in %lld steps, got %lld in %lld, version %lld", key,
                     (long long)wanted.sum[i], (long long)wanted.steps[i], (long long)row.state.sum,
                     (long long)row.state.steps, (long long)row.version);
    }
    assert_int_equal(tally_number(fix, TOLD_SQL), STEPS);
}

int saga_steps_run(const store_provider *provider)
{
    const store_provider *shared = provider; /* cmocka hands on a pointer that is not const */
    const struct CMUnitTest tests[] = {{"no_step_is_lost_in_ten_thousand",
                                        no_step_is_lost_in_ten_thousand, saga_setup, store_teardown,
                                        &shared}};
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests_name(provider->name, tests, NULL, NULL);
}
