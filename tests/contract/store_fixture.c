/*
 * What the cases of the store suites share.
 */
#include <errno.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/time.h"
#include "contract/store_fixture.h"

#define CHILD_FAILED 251

static int64_t skewed_wall_us(void *user)
{
    const store_fixture *fix = user;
    return pr__wall_us() + fix->skew_us;
}

static int64_t real_monotonic_us(void *user)
{
    (void)user;
    return pr__monotonic_us();
}

static void observe(void *user, const pr_observation *observation)
{
    store_fixture *fix = user;
    fix->observed[observation->kind] += observation->count;
}

int store_setup(void **state)
{
    return store_setup_with(state, NULL);
}

int store_setup_with(void **state, const pr_migrate_options *opt)
{
    const store_provider *provider = *(const store_provider *const *)*state;
    store_fixture *fix = calloc(1, sizeof *fix);
    if (!fix)
        return -1;
    fix->provider = provider;
    fix->clock = (pr_clock){.size = (uint32_t)sizeof fix->clock,
                            .wall_us = skewed_wall_us,
                            .monotonic_us = real_monotonic_us,
                            .user = fix};
    fix->observer =
        (pr_observer){.size = (uint32_t)sizeof fix->observer, .observe = observe, .user = fix};
    pr_error err = PR_ERROR_INIT;
    if (provider->begin(opt, &fix->world, &err) != PR_OK) {
        fprintf(stderr, "%s: %s\n", provider->name, err.message);
        free(fix);
        return -1;
    }
    *state = fix;
    return 0;
}

int store_teardown(void **state)
{
    store_fixture *fix = *state;
    close_stores(fix);
    fix->provider->end(fix->world);
    free(fix);
    return 0;
}

pr_store *store_at(store_fixture *fix, size_t n)
{
    assert_true(n < HANDLES_MAX);
    if (!fix->stores[n]) {
        store_settings settings = {.clock = fix->provider->clock_given ? &fix->clock : NULL,
                                   .observer = &fix->observer};
        pr_error err = PR_ERROR_INIT;
        check_ok(fix->provider->open(fix->world, &settings, &fix->stores[n], &err), &err, "open");
        assert_string_equal(fix->stores[n]->ops->name, fix->provider->kind);
    }
    return fix->stores[n];
}

void close_stores(store_fixture *fix)
{
    for (size_t i = 0; i < HANDLES_MAX; i++)
        fix->stores[i] = pr_store_free(fix->stores[i]);
}

void pass_ms(store_fixture *fix, int64_t ms)
{
    if (fix->provider->pass_ms)
        fix->provider->pass_ms(fix->world, ms);
    else
        fix->skew_us += ms * 1000;
}

int64_t store_now_us(store_fixture *fix)
{
    int64_t now_us = 0;
    pr_error err = PR_ERROR_INIT;
    check_ok(pr__store_now(store_at(fix, 0), &now_us, &err), &err, "now");
    return now_us;
}

void check_sql(store_fixture *fix, const char *sql, const char *wanted, const char *label)
{
    char got[1024];
    pr_error err = PR_ERROR_INIT;
    check_ok(fix->provider->ask(fix->world, sql, got, sizeof got, &err), &err, label);
    if (strcmp(got, wanted) != 0)
        fail_msg("case '%s': wanted '%s', got '%s' of: %s", label, wanted, got, sql);
}

void run_sql(store_fixture *fix, const char *sql)
{
    char got[64];
    pr_error err = PR_ERROR_INIT;
    check_ok(fix->provider->ask(fix->world, sql, got, sizeof got, &err), &err, sql);
}

pr_unit *begin_unit(pr_store *store)
{
    pr_unit *unit = NULL;
    pr_error err = PR_ERROR_INIT;
    check_ok(pr_unit_begin(store, &unit, &err), &err, "begin");
    return unit;
}

void commit_unit(pr_unit *unit)
{
    pr_error err = PR_ERROR_INIT;
    pr_outcome outcome = PR_OUTCOME_UNKNOWN;
    check_ok(pr_unit_commit(unit, &outcome, &err), &err, "commit");
    assert_int_equal(outcome, PR_OUTCOME_COMMITTED);
    pr_unit_free(unit);
}

void rollback_unit(pr_unit *unit)
{
    pr_error err = PR_ERROR_INIT;
    check_ok(pr_unit_rollback(unit, &err), &err, "rollback");
    pr_unit_free(unit);
}

int start_child(store_fixture *fix, child_work work, int n)
{
    for (size_t i = 0; i < HANDLES_MAX; i++)
        assert_null(fix->stores[i]); /* a handle must not be carried across a fork */
    fflush(NULL);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        int result = work(fix, n);
        close_stores(fix);
        _exit(result >= 0 && result < CHILD_FAILED ? result : CHILD_FAILED);
    }
    return (int)pid;
}

int child_result(int pid)
{
    int status = 0;
    while (waitpid(pid, &status, 0) < 0)
        assert_int_equal(errno, EINTR);
    if (!WIFEXITED(status) || WEXITSTATUS(status) >= CHILD_FAILED)
        fail_msg("a child ended with status 0x%x", (unsigned)status);
    return WEXITSTATUS(status);
}
