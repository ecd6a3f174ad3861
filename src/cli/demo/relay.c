/*
 * The relay of the demo, in a process of its own, and the way to kill it at the worst moment.
 *
 * The worst moment is after the receiver has committed and before the relay has settled. To hit it
 * for certain the demo holds a lock on the shop's database while a slice of the relay is open
 * there: the relay may still append to billing's, but it cannot settle. When all of the slice
 * stands at billing, the relay is killed; then the lock is let go.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/error.h"
#include "base/text.h"
#include "base/time.h"
#include "cli/demo/demo.h"

#define ORIGIN          "demo"
#define BUSY_MS         10000
#define TRY_US          300   /* between two looks */
#define CATCH_FOR_US    30000 /* without anything in flight: give up for now */
#define APPEND_MAX_US   3000000
#define APPEND_QUIET_US 200000
#define STOP_MAX_US     5000000

/* The messages of the slices that the relay of this owner holds now. */
static const char in_flight_sqlite[] =
    "SELECT o.message_id FROM {t}outbox_claim AS c, json_each(c.ids) AS e"
    " JOIN {t}outbox AS o ON o.id = e.value"
    " WHERE c.reader = 1 AND c.owner = $1 AND c.lease_until > 0 AND c.seq ="
    " (SELECT max(seq) FROM {t}outbox_claim WHERE reader = 1 AND lane = c.lane)";
static const char in_flight_pg[] =
    "SELECT o.message_id FROM {t}outbox_claim AS c"
    " JOIN {t}outbox AS o ON o.lane = c.lane AND o.id = ANY (c.ids)"
    " WHERE c.reader = 1 AND c.owner = $1 AND c.lease_until IS NOT NULL AND c.seq ="
    " (SELECT max(seq) FROM {t}outbox_claim WHERE reader = 1 AND lane = c.lane)";

pr_status pr__demo_relay_open(pr__demo_relay *relay, pr_error *err)
{
    TRY(pr__demo_open(relay->orders_store, /* read_only= */ false, &relay->orders, err));
    return pr__demo_open(relay->billing_store, /* read_only= */ false, &relay->billing, err);
}

static void owner_name(const pr__demo_relay *relay, char owner[32])
{
    pr__format(owner, 32, "demo relay %u", relay->count);
}

/* A process group of its own: Ctrl-C is for the demo, which then ends it. */
static int spawn(pr__demo_relay *relay, char *const *argv)
{
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    if (posix_spawn_file_actions_init(&actions) != 0)
        return ENOMEM;
    if (posix_spawnattr_init(&attributes) != 0) {
        posix_spawn_file_actions_destroy(&actions);
        return ENOMEM;
    }
    int failed = posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);
    if (failed == 0)
        failed = posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    if (failed == 0)
        failed = posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, relay->log_path,
                                                  O_WRONLY | O_CREAT | O_APPEND, 0644);
    if (failed == 0)
        failed = posix_spawn_file_actions_adddup2(&actions, STDOUT_FILENO, STDERR_FILENO);
    if (failed == 0)
        failed = posix_spawn(&relay->pid, "/proc/self/exe", &actions, &attributes, argv, environ);
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&actions);
    return failed;
}

pr_status pr__demo_relay_start(pr__demo_relay *relay, pr_error *err)
{
    char owner[32], parent[32], target[PR__DEMO_PATH_SIZE + 32];
    relay->count++;
    owner_name(relay, owner);
    pr__format(parent, sizeof(parent), "%d", (int)getpid());
    pr__format(target, sizeof(target), PR__DEMO_TRANSPORT "=%s",
               relay->broker ? "amqp:" : relay->billing_store);
    /* it looks now and then, so that there is something in a slice */
    const char *arguments[] = {"postroom",
                               "relay",
                               "--store",
                               relay->orders_store,
                               "--to",
                               target,
                               "--lease",
                               "1s",
                               "--batch",
                               "40",
                               "--poll",
                               "50ms",
                               "--grace",
                               "3s",
                               "--owner",
                               owner,
                               "--parent",
                               parent,
                               "--verbose",
                               "--exchange-prefix",
                               relay->broker ? relay->broker->prefix : "",
                               NULL};
    char *argv[sizeof(arguments) / sizeof(arguments[0])];
    memcpy(argv, arguments, sizeof(arguments)); /* posix_spawn takes them without const */
    int failed = spawn(relay, argv);
    if (failed != 0) {
        relay->pid = 0;
        return pr__fail(err, PR_E_BACKEND, ORIGIN, "cannot start the relay: %s", strerror(failed));
    }
    return PR_OK;
}

/* It must be there until the demo ends it. */
static pr_status check_alive(pr__demo_relay *relay, pr_error *err)
{
    int how = 0;
    if (waitpid(relay->pid, &how, WNOHANG) != relay->pid)
        return PR_OK;
    relay->pid = 0;
    return pr__fail(err, PR_E_BACKEND, ORIGIN, "the relay ended by itself; see %s",
                    relay->log_path);
}

static void take_id(void *user, const char *const *columns, size_t count)
{
    pr__demo_relay *relay = user;
    if (count > 0 && columns[0] && relay->caught_count < PR__CAUGHT_MAX)
        pr__format(relay->caught[relay->caught_count++], PR_UUID_TEXT_SIZE, "%s", columns[0]);
}

/* What is in flight, into relay->caught. */
static pr_status find_in_flight(pr__demo_relay *relay, pr_error *err)
{
    char owner[32];
    const char *params[] = {owner};
    owner_name(relay, owner);
    relay->caught_count = 0;
    return pr__demo_query(&relay->orders, relay->orders.pg ? in_flight_pg : in_flight_sqlite,
                          params, 1, take_id, relay, err);
}

/* How many of the caught messages satisfy the query of one id. */
static pr_status count_caught(pr__demo_relay *relay, const pr__demo_db *db, const char *sql,
                              size_t *ret_count, pr_error *err)
{
    size_t count = 0;
    for (size_t i = 0; i < relay->caught_count; i++) {
        const char *params[] = {relay->caught[i]};
        int64_t found = 0;
        TRY(pr__demo_number(db, sql, params, 1, &found, err));
        count += found > 0;
    }
    *ret_count = count;
    return PR_OK;
}

/* Holding the lock: wait until the slice stands at the receiver, or no more of it comes because the
   relay has begun to wait for the lock. */
static pr_status wait_for_append(pr__demo_relay *relay, size_t *ret_arrived, pr_error *err)
{
    /* behind a broker it is its own inbox that says so: there is no copy of the message */
    const char *sql = relay->broker ? "SELECT count(*) FROM {t}inbox WHERE message_id = $1"
                                    : "SELECT count(*) FROM {t}outbox WHERE message_id = $1";
    int64_t until_us = pr__monotonic_us() + APPEND_MAX_US, grown_us = pr__monotonic_us();
    size_t arrived = 0, before = 0;
    do {
        TRY(count_caught(relay, &relay->billing, sql, &arrived, err));
        if (arrived == relay->caught_count)
            break;
        if (arrived > before)
            grown_us = pr__monotonic_us();
        before = arrived;
        if (arrived > 0 && pr__monotonic_us() - grown_us > APPEND_QUIET_US)
            break;
        TRY(check_alive(relay, err));
        pr__sleep_us(TRY_US);
    } while (pr__monotonic_us() < until_us && !pr__demo_stopped());
    *ret_arrived = arrived;
    return PR_OK;
}

static void kill_now(pr__demo_relay *relay)
{
    kill(relay->pid, SIGKILL);
    while (waitpid(relay->pid, NULL, 0) < 0 && errno == EINTR)
        continue;
    relay->pid = 0;
}

/* With the lock in hand: kill it if something is in flight. */
static pr_status kill_locked(pr__demo_relay *relay, bool *ret_killed, pr_error *err)
{
    size_t arrived = 0;
    TRY(find_in_flight(relay, err));
    if (relay->caught_count == 0)
        return PR_OK;
    TRY(wait_for_append(relay, &arrived, err));
    if (arrived == 0)
        return PR_OK;
    kill_now(relay);
    relay->kills++;
    relay->arrived_count = arrived;
    *ret_killed = true;
    return pr__demo_bury(&relay->orders, err);
}

pr_status pr__demo_relay_kill(pr__demo_relay *relay, bool *ret_killed, pr_error *err)
{
    int64_t until_us = pr__monotonic_us() + CATCH_FOR_US;
    *ret_killed = false;
    do {
        TRY(check_alive(relay, err));
        bool locked = false;
        TRY(pr__demo_lock(&relay->orders, &locked, err));
        if (locked) {
            pr_status status = kill_locked(relay, ret_killed, err);
            pr__demo_unlock(&relay->orders);
            if (status != PR_OK || *ret_killed)
                return status;
        }
        pr__sleep_us(TRY_US);
    } while (pr__monotonic_us() < until_us && !pr__demo_stopped());
    return PR_OK;
}

pr_status pr__demo_relay_recovered(pr__demo_relay *relay, bool *ret_recovered, pr_error *err)
{
    size_t settled = 0;
    TRY(count_caught(relay, &relay->orders,
                     "SELECT count(*) FROM {t}outbox_state WHERE reader = 1"
                     " AND message_id = $1 AND state = 'published'",
                     &settled, err));
    *ret_recovered = settled == relay->caught_count;
    return relay->pid > 0 ? check_alive(relay, err) : PR_OK;
}

pr_status pr__demo_drained(pr__demo_relay *relay, uint64_t orders, uint64_t *ret_handled,
                           bool *ret_drained, pr_error *err)
{
    int64_t handled = 0, left = 0;
    *ret_drained = false;
    TRY(pr__demo_number(&relay->billing, "SELECT count(*) FROM invoices", NULL, 0, &handled, err));
    *ret_handled = (uint64_t)handled;
    if (relay->pid > 0)
        TRY(check_alive(relay, err));
    if ((uint64_t)handled < orders)
        return PR_OK;
    TRY(pr__demo_number(
        &relay->orders,
        "SELECT count(*) FROM {t}outbox_state WHERE reader = 1 AND state <> 'published'", NULL, 0,
        &left, err));
    if (left > 0)
        return PR_OK;
    /* the copies too: duplicates must have met the inbox */
    TRY(pr__demo_number(&relay->billing,
                        "SELECT (SELECT count(*) FROM {t}outbox_state WHERE state <> 'published')"
                        " + (SELECT count(*) FROM {t}inbox_parked)",
                        NULL, 0, &left, err));
    *ret_drained = left == 0;
    return PR_OK;
}

pr_status pr__demo_relay_stop(pr__demo_relay *relay, pr_error *err)
{
    int64_t until_us = pr__monotonic_us() + STOP_MAX_US;
    int how = 0;
    if (relay->pid == 0)
        return PR_OK;
    kill(relay->pid, SIGTERM);
    while (pr__monotonic_us() < until_us) {
        if (waitpid(relay->pid, &how, WNOHANG) == relay->pid) {
            relay->pid = 0;
            if (WIFEXITED(how) && WEXITSTATUS(how) == 0)
                return PR_OK;
            return pr__fail(err, PR_E_BACKEND, ORIGIN, "the relay did not stop well; see %s",
                            relay->log_path);
        }
        pr__sleep_us(TRY_US);
    }
    kill_now(relay);
    return pr__fail(err, PR_E_BACKEND, ORIGIN, "the relay did not stop when it was asked to");
}

void pr__demo_relay_done(pr__demo_relay *relay)
{
    if (relay->pid > 0)
        kill_now(relay);
    pr__demo_close(&relay->orders);
    pr__demo_close(&relay->billing);
}
