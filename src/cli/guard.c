/*
 * The guard of commands.
 *
 * A command that goes on after its receiver was killed would work beside the one that takes the
 * message over; a signal at the parent's death (prctl) reaches the shell, not what it has started.
 * So a process waits for our end, which closes a pipe, and ends the groups that are left.
 *
 * Keeps: a command stands in its slot before it is itself, so that there is no moment in which it
 * is not guarded; what a slot names is a group of ours.
 * Must not know: what commands do.
 */
#include "cli/guard.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "base/error.h"
#include "base/time.h"

#define ORIGIN     "cli.guard"
#define LOOK_US    10000
#define SLOTS_SIZE (PR__GUARD_SLOTS * sizeof(pr__guard_slot))

static const int deaf_to[] = {SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGPIPE, SIGUSR1, SIGUSR2};

/* ---- in the guard ---- */

/* Whether any is left. */
static bool signal_all(pr__guard_slot *slots, int number)
{
    bool left = false;
    for (size_t i = 0; i < PR__GUARD_SLOTS; i++) {
        pid_t group = atomic_load(&slots[i].group);
        if (group <= 0)
            continue;
        if (kill(-group, number) == 0)
            left = true;
        else if (errno == ESRCH)
            atomic_store(&slots[i].group, 0); /* the number may be another's from now on */
    }
    return left;
}

static void watch(pr__guard_slot *slots, int fd, int64_t kill_after_ms)
{
    char nothing;
    while (read(fd, &nothing, 1) < 0 && errno == EINTR)
        continue;
    int64_t until_us = pr__monotonic_us() + kill_after_ms * 1000;
    bool left = signal_all(slots, SIGTERM);
    left = left && signal_all(slots, SIGCONT); /* also one that is stopped */
    while (left && pr__monotonic_us() < until_us) {
        pr__sleep_us(LOOK_US);
        left = signal_all(slots, 0);
    }
    if (left)
        (void)signal_all(slots, SIGKILL);
}

/* Of ours it keeps the one descriptor: no file of a caller stays open, no lock is held. */
static void become(int fd)
{
    setsid();
    prctl(PR_SET_NAME, "postroom-guard");
    for (size_t i = 0; i < sizeof(deaf_to) / sizeof(deaf_to[0]); i++)
        signal(deaf_to[i], SIG_IGN);
    int null = open("/dev/null", O_RDWR);
    for (int standard = 0; standard <= 2; standard++)
        dup2(null, standard);
    close_range(3, (unsigned)fd - 1, 0);
    close_range((unsigned)fd + 1, ~0U, 0);
    if (chdir("/") != 0)
        return;
}

/* ---- from outside ---- */

static pr_status fail(pr_error *err, const char *what)
{
    return pr__fail(err, PR_E_BACKEND, ORIGIN, "cannot %s: %s", what, strerrordesc_np(errno));
}

pr_status pr__guard_start(int64_t kill_after_ms, pr__guard *ret_guard, pr_error *err)
{
    int ends[2];
    void *slots = mmap(NULL, SLOTS_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (slots == MAP_FAILED)
        return fail(err, "share memory with a process");
    pr_status status = pipe2(ends, O_CLOEXEC) == 0 ? PR_OK : fail(err, "open a pipe");
    pid_t pid = status == PR_OK ? fork() : -1;
    if (pid == 0) {
        become(ends[0]);
        watch(slots, ends[0], kill_after_ms);
        _exit(0);
    }
    if (status == PR_OK) {
        close(ends[0]);
        if (pid < 0) {
            status = fail(err, "start a process");
            close(ends[1]);
        }
    }
    if (status != PR_OK) {
        munmap(slots, SLOTS_SIZE);
        return status;
    }
    *ret_guard = (pr__guard){.slots = slots, .fd = ends[1]};
    return PR_OK;
}

void pr__guard_done(pr__guard *guard)
{
    if (!guard->slots)
        return;
    munmap(guard->slots, SLOTS_SIZE);
    guard->slots = NULL;
    close(guard->fd); /* not waited for: we are about to end ourselves */
}

pr__guard_slot *pr__guard_reserve(pr__guard *guard)
{
    for (size_t i = 0; i < PR__GUARD_SLOTS; i++) {
        int none = 0;
        if (atomic_compare_exchange_strong(&guard->slots[i].group, &none, -1)) {
            atomic_store(&guard->slots[i].exec_errno, 0);
            return &guard->slots[i];
        }
    }
    return NULL;
}

void pr__guard_enter(pr__guard_slot *slot, pid_t group)
{
    atomic_store(&slot->group, group);
}

void pr__guard_leave(pr__guard_slot *slot)
{
    atomic_store(&slot->group, 0);
}
