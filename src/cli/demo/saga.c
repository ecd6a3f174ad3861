/*
 * `postroom demo --saga`: orders go through four services while their workers are killed at random;
 * then money and stock are reconciled.
 *
 * This process opens nothing of the library while its children run: it only starts them, kills
 * them, and looks at the database by plain SQL.
 */
#include "cli/demo/saga.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <postroom/random.h>

#include "base/error.h"
#include "base/time.h"
#include "cli/demo/demo.h"
#include "cli/output.h"
#include "cli/wiring.h"

#define ORIGIN      "demo"
#define WORKERS     3
#define LOOK_US     50000
#define DEADLINE_US INT64_C(120000000)
#define KILL_MIN_MS 200
#define KILL_MORE   600 /* up to so many milliseconds more */

typedef struct show {
    const pr__saga_demo *of;
    pid_t shop;
    pid_t workers[WORKERS];
    uint32_t kills;
    int64_t started_us;
    int64_t kill_at_us;
    int64_t finished; /* sagas that are completed */
} show;

static uint32_t random_below(uint32_t limit)
{
    uint32_t value = 0;
    const pr_random *random = pr_random_system();
    random->fill(random->user, &value, sizeof(value));
    return value % limit;
}

/* ---- children ---- */

static int in_child(const show *s, bool shop)
{
    pr_error err = PR_ERROR_INIT;
    pr_status status = shop ? pr__saga_shop(s->of->store, s->of->orders, &err)
                            : pr__saga_worker(s->of->store, /* make_queues= */ false, &err);
    if (status != PR_OK)
        fprintf(stderr, "demo: %s: %s\n", shop ? "the shop" : "a worker", err.message);
    return status == PR_OK ? 0 : 1;
}

static pr_status start_child(const show *s, bool shop, pid_t *ret_pid, pr_error *err)
{
    fflush(NULL);
    pid_t pid = fork();
    if (pid < 0)
        return pr__fail(err, PR_E_BACKEND, ORIGIN, "cannot start a process");
    if (pid == 0)
        _exit(in_child(s, shop));
    *ret_pid = pid;
    return PR_OK;
}

static int end_child(pid_t *pid, int number)
{
    int status = 0;
    if (*pid <= 0)
        return 0;
    if (number != 0)
        kill(*pid, number);
    while (waitpid(*pid, &status, 0) < 0 && errno == EINTR)
        continue;
    *pid = 0;
    return status;
}

static void end_all(show *s)
{
    (void)end_child(&s->shop, SIGTERM);
    for (size_t i = 0; i < WORKERS; i++)
        (void)end_child(&s->workers[i], SIGTERM);
}

static void choose_kill(show *s)
{
    s->kill_at_us = pr__monotonic_us() + (KILL_MIN_MS + (int64_t)random_below(KILL_MORE)) * 1000;
}

static pr_status kill_one(show *s, pr_error *err)
{
    if (s->kills == s->of->kills || pr__monotonic_us() < s->kill_at_us)
        return PR_OK;
    size_t which = random_below(WORKERS);
    (void)end_child(&s->workers[which], SIGKILL);
    s->kills++;
    choose_kill(s);
    return start_child(s, /* shop= */ false, &s->workers[which], err);
}

/* ---- the show ---- */

static pr_status look(show *s, bool *ret_done, pr_error *err)
{
    pr__demo_db db = {NULL, NULL};
    int64_t left = 0;
    TRY(pr__demo_open(s->of->store, /* read_only= */ true, &db, err));
    pr_status status =
        pr__demo_number(&db, "SELECT count(*) FROM {t}saga WHERE completed_at IS NOT NULL", NULL, 0,
                        &s->finished, err);
    if (status == PR_OK)
        status = pr__demo_number(&db, "SELECT count(*) FROM {t}inbox_parked WHERE state <> 'dead'",
                                 NULL, 0, &left, err);
    pr__demo_close(&db);
    TRY(status);
    *ret_done = s->finished >= (int64_t)s->of->orders && left == 0 && s->kills == s->of->kills;
    return PR_OK;
}

static pr_status check_going(show *s, pr_error *err)
{
    if (pr__demo_stopped())
        return pr__fail(err, PR_E_CANCELLED, ORIGIN, "stopped; the database stays in %s",
                        s->of->place);
    if (pr__monotonic_us() - s->started_us > DEADLINE_US + (int64_t)s->of->orders * 200000)
        return pr__fail(err, PR_E_BACKEND, ORIGIN, "it takes too long: %lld of %llu orders ended",
                        (long long)s->finished, (unsigned long long)s->of->orders);
    return PR_OK;
}

static pr_status perform(show *s, pr_error *err)
{
    bool done = false;
    for (size_t i = 0; i < WORKERS; i++)
        TRY(start_child(s, /* shop= */ false, &s->workers[i], err));
    TRY(start_child(s, /* shop= */ true, &s->shop, err));
    choose_kill(s);
    while (!done) {
        TRY(check_going(s, err));
        TRY(kill_one(s, err));
        TRY(look(s, &done, err));
        if (!done)
            pr__sleep_us(LOOK_US);
    }
    if (end_child(&s->shop, 0) != 0)
        return pr__fail(err, PR_E_BACKEND, ORIGIN, "the shop failed");
    return PR_OK;
}

/* The schema, the tables, the queues: in this process, and closed before the children begin. */
static pr_status prepare(const pr__saga_demo *of, pr_error *err)
{
    pr__common common = {.store = of->store, .busy_ms = 20000};
    pr__store_request request = {.common = &common, .create = true};
    pr_migrate_options migrate = {.size = (uint32_t)sizeof(migrate), .default_transport = "local"};
    {
        AUTO(pr_store) store = NULL;
        TRY(pr__wiring_store(&request, &store, err));
        TRY(pr_store_migrate(store, &migrate, NULL, err));
    }
    TRY(pr__saga_tables(of->store, of->orders, err));
    return pr__saga_worker(of->store, /* make_queues= */ true, err);
}

static void print_check(const show *s, const pr__saga_check *check)
{
    pr__cli *cli = s->of->cli;
    pr__print(cli, "%s", "");
    pr__print(cli, "Reconciliation, read from the database by plain SQL:");
    for (size_t i = 0; pr__saga_check_text(i); i++)
        pr__print(cli, "  %-46s %8lld%s", pr__saga_check_text(i), (long long)check->values[i],
                  check->right[i] ? "" : "   WRONG");
}

static void print_json(const show *s, const pr__saga_check *check, int64_t elapsed_us)
{
    AUTO_BUFFER out = PR_BUFFER_INIT;
    pr__json json;
    pr__json_init(&json, &out);
    pr__json_object_begin(&json);
    pr__json_member_text(&json, "store", s->of->store);
    if (elapsed_us > 0) {
        pr__json_member_double(&json, "seconds", (double)elapsed_us / 1e6);
        pr__json_member_uint(&json, "worker_kills", s->kills);
    }
    pr__json_member_bool(&json, "ok", check->ok);
    for (size_t i = 0; pr__saga_check_key(i); i++)
        pr__json_member_int(&json, pr__saga_check_key(i), check->values[i]);
    pr__json_object_end(&json);
    pr__print_buffer(s->of->cli, &out);
}

static pr__exit reconcile(const show *s, int64_t elapsed_us)
{
    pr__cli *cli = s->of->cli;
    pr_error err = PR_ERROR_INIT;
    pr__saga_check check;
    if (pr__saga_reconcile(s->of->store, &check, &err) != PR_OK)
        return pr__report_error(cli, &err);
    if (cli->json)
        print_json(s, &check, elapsed_us);
    else
        print_check(s, &check);
    if (!check.ok)
        return pr__report(cli, PR__EXIT_FAILED, "wrong",
                          "the reconciliation is wrong; the database is in %s", s->of->place);
    if (!cli->json && elapsed_us > 0)
        pr__print(cli, "\nMoney and stock balance, through %u kills, in %.1f s.", s->kills,
                  (double)elapsed_us / 1e6);
    return PR__EXIT_OK;
}

pr__exit pr__saga_demo_check(const pr__saga_demo *of)
{
    show s = {.of = of};
    return reconcile(&s, 0);
}

pr__exit pr__saga_demo_run(const pr__saga_demo *of)
{
    show s = {.of = of, .started_us = pr__monotonic_us()};
    pr_error err = PR_ERROR_INIT;
    if (!of->cli->json) {
        pr__print(of->cli, "Postroom demo of a saga in %s", of->place);
        pr__print(of->cli, "  %llu orders: stock is reserved, payment charged, goods shipped",
                  (unsigned long long)of->orders);
        pr__print(of->cli, "  payment refuses a third; then the stock is given back");
        pr__print(of->cli, "  %d workers run all of it, and %u times one is killed with kill -9",
                  WORKERS, of->kills);
    }
    pr_status status = prepare(of, &err);
    if (status == PR_OK)
        status = perform(&s, &err);
    end_all(&s);
    if (status != PR_OK)
        return pr__report(of->cli, PR__EXIT_FAILED, pr_status_text(status), "%s", err.message);
    return reconcile(&s, pr__monotonic_us() - s.started_us);
}
