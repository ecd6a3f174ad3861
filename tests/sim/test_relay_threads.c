/*
 * The relay in threads: started and stopped, woken, asked from outside, stopped by a signal.
 */
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include "sim/live.h"

#include "base/time.h"

/* Nothing is sent unless it is started; started twice, one runs. */
static void test_started(void **state)
{
    live *at = *state;
    live_relay *it = live_relay_new(at, 0, (pr_relay_options){0});
    live_enqueue(at, 1, 10, LIVE_TOPIC);
    assert_int_equal(live_received_count(at), 0);
    assert_int_equal(live_number(at, "SELECT count(*) FROM postroom_outbox_claim WHERE kind = 1"),
                     0);
    live_start(it);
    live_wait_received(at, 10);
    pr_error err = PR_ERROR_INIT;
    uint64_t published;
    int64_t wait_ms;
    check_error(pr_relay_run(it->relay, &err), &err, PR_E_STATE, "it runs already", "run");
    pr_error_clear(&err);
    check_error(pr_relay_run_once(it->relay, &published, &err), &err, PR_E_STATE, "one runs",
                "run once");
    pr_error_clear(&err);
    check_error(pr_relay_step(it->relay, &wait_ms, &err), &err, PR_E_STATE, "one runs", "step");
    live_stop(it);
    check_ok(it->status, &it->err, "run");
    live_wait_state(at, "published", 10);
    assert_int_equal(live_check(at), 0);
}

/* Stopped before it is run: it does not run; nothing is sent. */
static void test_stopped_before(void **state)
{
    live *at = *state;
    live_relay *it = live_relay_new(at, 0, (pr_relay_options){0});
    live_enqueue(at, 1, 1, LIVE_TOPIC);
    pr_relay_stop(it->relay);
    pr_error err = PR_ERROR_INIT;
    check_ok(pr_relay_run(it->relay, &err), &err, "run");
    assert_int_equal(live_received_count(at), 0);
}

#define FAR_MS 600000 /* longer than any wait here */

/* A relay that sleeps for ten minutes when nobody wakes it. */
static live_relay *sleeper(live *at, uint32_t n, const char *doorbell)
{
    live_relay *it = live_relay_new(at, n,
                                    (pr_relay_options){.poll_idle_ms = FAR_MS,
                                                       .probe_max_ms = FAR_MS,
                                                       .round_backoff_max_ms = FAR_MS,
                                                       .doorbell = doorbell});
    live_start(it);
    pr_relay_snapshot snapshot = {.size = sizeof snapshot};
    int64_t until_ms = live_now_ms() + LIVE_WAIT_MS;
    do {
        live_pause();
        assert_int_equal(pr_relay_snapshot_get(it->relay, &snapshot, NULL), PR_OK);
    } while (!snapshot.first_round_done && live_now_ms() < until_ms);
    pr__sleep_us(1300000); /* its busy second is over */
    return it;
}

/* Woken after a commit it comes before the next poll, which is far away here. */
static void test_wake(void **state)
{
    live *at = *state;
    live_relay *it = sleeper(at, 0, "");
    for (uint32_t i = 1; i <= 5; i++) {
        live_enqueue(at, 1, 1, LIVE_TOPIC);
        pr_relay_wake(it->relay);
        live_wait_received(at, i);
    }
    live_stop(it);
    check_ok(it->status, &it->err, "run");
}

/* What this program does when it is called by itself, with a path: it commits one message. */
static int commit_one(const char *path)
{
    pr_store *store = NULL;
    pr_unit *unit = NULL;
    pr_error err = PR_ERROR_INIT;
    const pr_sqlite_options opt = PR_SQLITE_OPTIONS(.path = path);
    const pr_message message = PR_MESSAGE(.type = "urn:message:live:thing", .body = "1 0",
                                          .body_size_bytes = 4, .destination = LIVE_TOPIC);
    pr_status status = pr_sqlite_store_open(&opt, &store, &err);
    if (status == PR_OK)
        status = pr_unit_begin(store, &unit, &err);
    if (status == PR_OK)
        status = pr_unit_enqueue(unit, &message, NULL, &err);
    if (status == PR_OK)
        status = pr_unit_commit(unit, NULL, &err);
    pr_unit_free(unit);
    pr_store_free(store);
    fputs(err.message, stderr);
    return status == PR_OK ? 0 : 1;
}

/* In a process of its own; a fork alone would carry this one's SQLite along. */
static void commit_elsewhere(live *at, const char *doorbell)
{
    char bell[360], program[] = "relay", path[320];
    char *arguments[] = {program, path, NULL}, *environment[] = {bell, NULL};
    pid_t pid = 0;
    int how = -1;
    snprintf(bell, sizeof bell, "POSTROOM_DOORBELL=%s", doorbell);
    snprintf(path, sizeof path, "%s", at->db.path);
    assert_int_equal(posix_spawn(&pid, "/proc/self/exe", NULL, NULL, arguments, environment), 0);
    assert_int_equal(waitpid(pid, &how, 0), pid);
    assert_int_equal(how, 0);
}

/* Rung by a datagram, of another process or of another store handle. */
static void test_doorbell(void **state)
{
    live *at = *state;
    char path[320];
    pr_error err = PR_ERROR_INIT;
    snprintf(path, sizeof path, "%s-bell", at->db.path);
    live_relay *it = sleeper(at, 0, path);
    check_ok(pr_store_set_doorbell_path(at->store, path, &err), &err, "path");
    for (uint32_t i = 0; i < 2; i++) {
        if (i == 0)
            commit_elsewhere(at, path);
        else
            live_enqueue(at, 2, 1, LIVE_TOPIC);
        live_wait_received(at, i + 1);
        pr__sleep_us(1300000); /* it sleeps again */
    }
    live_stop(it);
    check_ok(it->status, &it->err, "run");
    assert_int_equal(access(path, F_OK), -1);
}

static pr_relay *signalled; /* what the handler stops; one thread sets it, before the signal */

static void on_signal(int number)
{
    (void)number;
    pr_relay_stop(signalled);
}

static void test_signal(void **state)
{
    live *at = *state;
    live_relay *it = live_relay_new(at, 0, (pr_relay_options){0});
    struct sigaction action = {.sa_handler = on_signal}, before;
    signalled = it->relay;
    assert_int_equal(sigaction(SIGUSR1, &action, &before), 0);
    live_start(it);
    live_enqueue(at, 1, 100, LIVE_TOPIC);
    live_wait_received(at, 100);
    assert_int_equal(pthread_kill(it->thread, SIGUSR1), 0);
    pthread_join(it->thread, NULL);
    it->runs = false;
    assert_int_equal(sigaction(SIGUSR1, &before, NULL), 0);
    check_ok(it->status, &it->err, "run");
    live_wait_state(at, "published", 100);
}

/* Stop waits for the round in hand; what it could not send is free for the next relay at once. */
static void test_stop_releases(void **state)
{
    live *at = *state;
    live_relay *it = live_relay_new(
        at, 0,
        (pr_relay_options){.lease_ms = 600000, .messages_per_second = 20, .stop_grace_ms = 300});
    live_enqueue(at, -1, 200, LIVE_TOPIC);
    live_start(it);
    live_wait_received(at, 2);
    live_stop(it);
    check_ok(it->status, &it->err, "run");
    live_relay *next = live_relay_new(at, 1, (pr_relay_options){0});
    uint64_t published = 0;
    pr_error err = PR_ERROR_INIT;
    check_ok(pr_relay_run_once(next->relay, &published, &err), &err, "run once");
    assert_in_range(published, 50, 198); /* all 200 would have taken it 10 s */
    live_wait_state(at, "published", 200);
    assert_int_equal(live_check(at), 0);
}

typedef struct asker {
    pr_relay *relay;
    atomic_bool stop;
    uint64_t asked;
} asker;

static void *ask(void *user)
{
    asker *it = user;
    while (!atomic_load(&it->stop)) {
        pr_relay_snapshot snapshot = {.size = sizeof snapshot};
        it->asked += pr_relay_snapshot_get(it->relay, &snapshot, NULL) == PR_OK;
        pr_relay_wake(it->relay);
    }
    return NULL;
}

/* Asked and woken from other threads all the while. */
static void test_asked(void **state)
{
    live *at = *state;
    live_relay *it = live_relay_new(at, 0, (pr_relay_options){.batch_max = 20});
    asker askers[2] = {{.relay = it->relay}, {.relay = it->relay}};
    pthread_t threads[2];
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, ask, &askers[i]), 0);
    live_start(it);
    for (int i = 0; i < 30; i++)
        live_enqueue(at, i % 4, 10, LIVE_TOPIC);
    live_wait_received(at, 300);
    live_stop(it);
    for (int i = 0; i < 2; i++) {
        atomic_store(&askers[i].stop, true);
        pthread_join(threads[i], NULL);
        assert_true(askers[i].asked > 0);
    }
    pr_relay_snapshot snapshot = {.size = sizeof snapshot};
    assert_int_equal(pr_relay_snapshot_get(it->relay, &snapshot, NULL), PR_OK);
    assert_int_equal(snapshot.published, 300);
    assert_false(snapshot.running);
    assert_int_equal(live_check(at), 0);
}

/* Two relays in two threads share the work of one store: each message once, each key in order. */
static void test_two(void **state)
{
    live *at = *state;
    live_relay *one = live_relay_new(at, 0, (pr_relay_options){.batch_max = 50});
    live_relay *two = live_relay_new(at, 1, (pr_relay_options){.batch_max = 50});
    live_start(one);
    live_start(two);
    for (int i = 0; i < 60; i++)
        live_enqueue(at, i % 12 - 2 < 0 ? -1 : i % 12, 25, LIVE_TOPIC);
    live_wait_received(at, 1500);
    live_wait_state(at, "published", 1500);
    live_stop(one);
    live_stop(two);
    assert_int_equal(live_check(at), 0);
    pr_relay_snapshot a = {.size = sizeof a}, b = {.size = sizeof b};
    assert_int_equal(pr_relay_snapshot_get(one->relay, &a, NULL), PR_OK);
    assert_int_equal(pr_relay_snapshot_get(two->relay, &b, NULL), PR_OK);
    assert_int_equal(a.published + b.published, 1500);
    assert_int_equal(a.fenced + b.fenced, 0);
}

int main(int argc, char **argv)
{
    if (argc > 1)
        return commit_one(argv[1]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_started, live_setup, live_teardown),
        cmocka_unit_test_setup_teardown(test_stopped_before, live_setup, live_teardown),
        cmocka_unit_test_setup_teardown(test_wake, live_setup, live_teardown),
        cmocka_unit_test_setup_teardown(test_doorbell, live_setup, live_teardown),
        cmocka_unit_test_setup_teardown(test_signal, live_setup, live_teardown),
        cmocka_unit_test_setup_teardown(test_stop_releases, live_setup, live_teardown),
        cmocka_unit_test_setup_teardown(test_asked, live_setup, live_teardown),
        cmocka_unit_test_setup_teardown(test_two, live_setup, live_teardown),
    };
    return RUN_TESTS(tests);
}
