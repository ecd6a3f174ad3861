/*
 * Processes of the user's commands.
 *
 * Owns: starting, feeding, watching and ending one process and its group.
 * Keeps: no descriptor of ours is open in a child but its standard files; a child is in a slot of
 * the guard, so that it never outlives us; nothing waits without a bound, but for a child that is
 * alive and was given no time.
 * Must not know: what is written to it and what its answers mean.
 */
#include "cli/child.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/error.h"
#include "base/text.h"
#include "base/time.h"

#define ORIGIN      "cli.child"
#define SLICE_MS    50 /* how soon a cancel is seen */
#define READ_SIZE   ((size_t)16 * 1024)
#define REAP_MS     5000 /* a process that was killed is waited for so long */
#define CLOSED_MS   1000 /* one that closes its files is about to end, or it is deaf */
#define WAIT_MS_MAX INT32_MAX

static void close_fd(int *fd)
{
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

/* ---- starting ---- */

/* In the child, between fork and exec: calls that are safe in a signal handler, and no others. */
static void become(const char *command, char *const *environment, pr__guard_slot *slot, int input,
                   int output)
{
    char shell[] = "/bin/sh", flag[] = "-c";
    char *arguments[] = {shell, flag, (char *)(uintptr_t)command, NULL};
    sigset_t none;
    setpgid(0, 0);
    pr__guard_enter(slot, getpid());
    signal(SIGPIPE, SIG_DFL); /* what we ignore a program would ignore too */
    signal(SIGTERM, SIG_DFL);
    signal(SIGINT, SIG_DFL);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    if (dup2(input, 0) >= 0 && (output < 0 || dup2(output, 1) >= 0))
        execve(shell, arguments, environment);
    atomic_store(&slot->exec_errno, errno);
    _exit(127);
}

static pr_status fail(pr_error *err, const char *what)
{
    return pr__fail_retry(err, PR_E_BACKEND, PR_RETRY_SAME, ORIGIN, "cannot %s: %s", what,
                          strerrordesc_np(errno));
}

static pr_status open_pipes(int input[2], int output[2], bool read_output, pr_error *err)
{
    if (pipe2(input, O_CLOEXEC) != 0)
        return fail(err, "open a pipe");
    if (read_output && pipe2(output, O_CLOEXEC) != 0)
        return fail(err, "open a pipe");
    fcntl(input[1], F_SETFL, O_NONBLOCK);
    if (read_output)
        fcntl(output[0], F_SETFL, O_NONBLOCK);
    return PR_OK;
}

/* The process, which stands in the slot; *ret_pid_fd is readable when it has ended. */
static pr_status start_process(const char *command, char *const *environment, pr__guard_slot *slot,
                               int input, int output, pid_t *ret_pid, int *ret_pid_fd,
                               pr_error *err)
{
    pid_t pid = fork();
    if (pid == 0)
        become(command, environment, slot, input, output);
    if (pid < 0)
        return fail(err, "start a process");
    setpgid(pid, pid); /* whoever of the two is first */
    pr__guard_enter(slot, pid);
    *ret_pid_fd = pidfd_open(pid, 0);
    *ret_pid = pid;
    if (*ret_pid_fd >= 0)
        return PR_OK;
    pr_status status = fail(err, "watch a process");
    kill(-pid, SIGKILL);
    pr__guard_leave(slot);
    waitpid(pid, NULL, 0);
    return status;
}

pr_status pr__child_start(pr__guard *guard, const char *command, char *const *environment,
                          bool read_output, pr__child *ret_child, pr_error *err)
{
    int input[2] = {-1, -1}, output[2] = {-1, -1}, pid_fd = -1;
    pid_t pid = 0;
    pr__guard_slot *slot = pr__guard_reserve(guard);
    if (!slot)
        return pr__fail(err, PR_E_LIMIT, ORIGIN, "%d commands run already", PR__GUARD_SLOTS);
    pr_status status = open_pipes(input, output, read_output, err);
    if (status == PR_OK)
        status = start_process(command, environment, slot, input[0], output[1], &pid, &pid_fd, err);
    close_fd(&input[0]);
    close_fd(&output[1]);
    if (status != PR_OK) {
        pr__guard_leave(slot);
        close_fd(&input[1]);
        close_fd(&output[0]);
        return status;
    }
    *ret_child = (pr__child){
        .pid = pid, .pid_fd = pid_fd, .input = input[1], .output = output[0], .slot = slot};
    return PR_OK;
}

/* ---- exchanging ---- */

static void send_some(pr__child *child, pr__exchange *exchange)
{
    size_t left = exchange->input_size - exchange->sent;
    if (left > 0) {
        ssize_t sent = write(child->input, exchange->input + exchange->sent, left);
        if (sent > 0)
            exchange->sent += (size_t)sent;
        else if (errno != EAGAIN && errno != EINTR)
            close_fd(&child->input); /* it reads no more: its own affair */
    }
    if (exchange->close_input && exchange->sent == exchange->input_size)
        close_fd(&child->input);
}

/* What is there now. False: it ended, or more than may be kept. */
static bool read_some(pr__child *child, pr__exchange *exchange)
{
    char piece[READ_SIZE];
    ssize_t size = read(child->output, piece, sizeof(piece));
    if (size < 0 && (errno == EAGAIN || errno == EINTR))
        return true;
    if (size <= 0) {
        close_fd(&child->output);
        return true;
    }
    if (exchange->output.size + (size_t)size > exchange->output_max)
        return false;
    pr__buffer_append(&exchange->output, piece, (size_t)size);
    return !exchange->output.failed;
}

static bool has_line(const pr__exchange *exchange)
{
    return exchange->until_line && exchange->output.size > 0 &&
           memchr(exchange->output.data, '\n', exchange->output.size);
}

/* Wait for it and for nothing else; with `group` what it has left there is ended. While it is not
   waited for, its number is nobody else's. */
static void reap(pr__child *child, bool group)
{
    if (group)
        kill(-child->pid, SIGKILL);
    child->exec_errno = atomic_load(&child->slot->exec_errno);
    pr__guard_leave(child->slot);
    waitpid(child->pid, &child->status, 0);
    child->pid = 0;
    close_fd(&child->pid_fd);
    close_fd(&child->input);
    close_fd(&child->output);
}

static bool succeeded(const pr__child *child)
{
    siginfo_t how = {.si_pid = 0};
    return waitid(P_PID, (id_t)child->pid, &how, WEXITED | WNOWAIT) == 0 &&
           how.si_code == CLD_EXITED && how.si_status == 0;
}

/* It has ended: what it wrote before is still in the pipe. What it leaves behind goes on only
   after a success: beside another try it would do harm. */
static pr__child_end ended(pr__child *child, pr__exchange *exchange)
{
    struct pollfd left = {.fd = child->output, .events = POLLIN};
    bool kept = true;
    while (kept && child->output >= 0 && poll(&left, 1, 0) > 0 && (left.revents & POLLIN) != 0) {
        kept = read_some(child, exchange);
        left.fd = child->output;
    }
    reap(child, /* group= */ exchange->until_line || !succeeded(child));
    if (!kept)
        return PR__CHILD_TOO_LONG;
    return has_line(exchange) ? PR__CHILD_ANSWERED : PR__CHILD_ENDED;
}

/* It can neither be told nor tell anything any more: then it is expected to end. */
static bool is_deaf(const pr__child *child, const pr__exchange *exchange)
{
    return exchange->until_line && (child->input < 0 || child->output < 0);
}

static int slice_ms(const pr__exchange *exchange, int64_t now_us, int64_t deadline_us)
{
    int64_t left_ms = (deadline_us - now_us + 999) / 1000;
    if (exchange->timeout_ms == 0 || left_ms > SLICE_MS)
        return SLICE_MS;
    return left_ms < 0 ? 0 : (int)left_ms;
}

pr__child_end pr__child_exchange(pr__child *child, pr__exchange *exchange)
{
    int64_t deadline_us = pr__monotonic_us() + exchange->timeout_ms * 1000;
    int64_t deaf_us = 0; /* since when */
    for (;;) {
        int64_t now_us = pr__monotonic_us();
        bool sending =
            child->input >= 0 && (exchange->sent < exchange->input_size || exchange->close_input);
        struct pollfd files[] = {
            {.fd = child->pid_fd, .events = POLLIN},
            {.fd = sending ? child->input : -1, .events = POLLOUT},
            {.fd = child->output, .events = POLLIN},
        };
        poll(files, sizeof(files) / sizeof(files[0]), slice_ms(exchange, now_us, deadline_us));
        if (files[1].revents != 0)
            send_some(child, exchange);
        if (files[2].revents != 0 && !read_some(child, exchange))
            return PR__CHILD_TOO_LONG;
        if (has_line(exchange))
            return PR__CHILD_ANSWERED;
        if (files[0].revents != 0)
            return ended(child, exchange);
        if (exchange->cancelled(exchange->user))
            return PR__CHILD_CANCELLED;
        if (exchange->timeout_ms > 0 && pr__monotonic_us() >= deadline_us)
            return PR__CHILD_TIMED_OUT;
        if (deaf_us == 0 && is_deaf(child, exchange))
            deaf_us = now_us;
        if (deaf_us > 0 && now_us >= deaf_us + (int64_t)CLOSED_MS * 1000)
            return PR__CHILD_CLOSED;
    }
}

bool pr__child_is_idle(const pr__child *child)
{
    struct pollfd files[] = {
        {.fd = child->pid_fd, .events = POLLIN},
        {.fd = child->output, .events = POLLIN},
        {.fd = child->input, .events = 0}, /* an error when nobody reads it any more */
    };
    return child->pid > 0 && child->input >= 0 && child->output >= 0 && poll(files, 3, 0) == 0;
}

/* ---- ending ---- */

static bool wait_end(const pr__child *child, int64_t until_us)
{
    struct pollfd file = {.fd = child->pid_fd, .events = POLLIN};
    for (;;) {
        int64_t left_ms = (until_us - pr__monotonic_us() + 999) / 1000;
        if (left_ms > WAIT_MS_MAX)
            left_ms = WAIT_MS_MAX;
        int count = poll(&file, 1, left_ms > 0 ? (int)left_ms : 0);
        if (count > 0)
            return true;
        if (left_ms <= 0 || (count < 0 && errno != EINTR))
            return false;
    }
}

/* Wait for all of them, so long in all. */
static void wait_ends(pr__child *const *children, size_t count, int64_t wait_ms)
{
    int64_t until_us = pr__monotonic_us() + wait_ms * 1000;
    for (size_t i = 0; i < count; i++) {
        if (children[i]->pid > 0 && !wait_end(children[i], until_us))
            return;
    }
}

void pr__child_stop_all(pr__child *const *children, size_t count, int64_t wait_ms,
                        int64_t kill_after_ms)
{
    for (size_t i = 0; i < count; i++) {
        if (children[i]->pid > 0)
            close_fd(&children[i]->input);
    }
    wait_ends(children, count, wait_ms);
    for (size_t i = 0; i < count; i++) {
        if (children[i]->pid > 0 && !wait_end(children[i], 0)) {
            kill(-children[i]->pid, SIGTERM);
            kill(-children[i]->pid, SIGCONT); /* also one that is stopped */
        }
    }
    wait_ends(children, count, kill_after_ms);
    for (size_t i = 0; i < count; i++) {
        if (children[i]->pid > 0)
            kill(-children[i]->pid, SIGKILL); /* also what it left behind in its group */
    }
    wait_ends(children, count, REAP_MS);
    for (size_t i = 0; i < count; i++) {
        if (children[i]->pid > 0 && wait_end(children[i], 0))
            reap(children[i], /* group= */ false);
    }
}

void pr__child_stop(pr__child *child, int64_t wait_ms, int64_t kill_after_ms)
{
    pr__child_stop_all(&child, 1, wait_ms, kill_after_ms);
}

void pr__child_end_text(const pr__child *child, char *out, size_t size)
{
    if (WIFSIGNALED(child->status))
        pr__format(out, size, "was killed by signal %d", WTERMSIG(child->status));
    else
        pr__format(out, size, "ended with exit %d", WEXITSTATUS(child->status));
}
