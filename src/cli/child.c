/*
 * Processes of the user's commands.
 *
 * Owns: starting, feeding, watching and ending one process and its group.
 * Keeps: no descriptor of ours is open in a child but its standard files; a child never outlives
 * its thread's process; nothing waits without a bound.
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
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/error.h"
#include "base/text.h"
#include "base/time.h"

#define ORIGIN    "cli.child"
#define SLICE_MS  50 /* how soon a cancel is seen */
#define READ_SIZE ((size_t)16 * 1024)
#define REAP_MS   5000 /* a process that was killed is waited for so long */

static void close_fd(int *fd)
{
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

/* ---- starting ---- */

/* In the child, between fork and exec: calls that are safe in a signal handler, and no others. */
static void become(const char *command, char *const *environment, pid_t parent, int input,
                   int output)
{
    char shell[] = "/bin/sh", flag[] = "-c";
    char *arguments[] = {shell, flag, (char *)(uintptr_t)command, NULL};
    sigset_t none;
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() != parent) /* it was gone before */
        _exit(127);
    signal(SIGPIPE, SIG_DFL); /* what we ignore a program would ignore too */
    signal(SIGTERM, SIG_DFL);
    signal(SIGINT, SIG_DFL);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    if (dup2(input, 0) < 0 || (output >= 0 && dup2(output, 1) < 0))
        _exit(127);
    execve(shell, arguments, environment);
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

pr_status pr__child_start(const char *command, char *const *environment, bool read_output,
                          pr__child *ret_child, pr_error *err)
{
    int input[2] = {-1, -1}, output[2] = {-1, -1};
    pid_t parent = getpid(), pid = -1;
    int pid_fd = -1;
    pr_status status = open_pipes(input, output, read_output, err);
    if (status == PR_OK) {
        pid = fork();
        if (pid == 0)
            become(command, environment, parent, input[0], output[1]);
        status = pid > 0 ? PR_OK : fail(err, "start a process");
    }
    if (pid > 0) {
        setpgid(pid, pid); /* whoever of the two is first */
        pid_fd = pidfd_open(pid, 0);
        if (pid_fd < 0) {
            status = fail(err, "watch a process");
            kill(pid, SIGKILL);
            waitpid(pid, NULL, 0);
        }
    }
    close_fd(&input[0]);
    close_fd(&output[1]);
    if (status != PR_OK) {
        close_fd(&input[1]);
        close_fd(&output[0]);
        return status;
    }
    *ret_child = (pr__child){.pid = pid, .pid_fd = pid_fd, .input = input[1], .output = output[0]};
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

/* It has ended: what it wrote before is still in the pipe. */
static pr__child_end ended(pr__child *child, pr__exchange *exchange)
{
    struct pollfd left = {.fd = child->output, .events = POLLIN};
    while (child->output >= 0 && poll(&left, 1, 0) > 0 && (left.revents & POLLIN) != 0) {
        if (!read_some(child, exchange))
            break;
        left.fd = child->output;
    }
    waitpid(child->pid, &child->status, 0);
    child->pid = 0;
    close_fd(&child->pid_fd);
    close_fd(&child->input);
    close_fd(&child->output);
    return has_line(exchange) ? PR__CHILD_ANSWERED : PR__CHILD_ENDED;
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
    }
}

bool pr__child_is_idle(const pr__child *child)
{
    struct pollfd files[] = {
        {.fd = child->pid_fd, .events = POLLIN},
        {.fd = child->output, .events = POLLIN},
    };
    return child->pid > 0 && poll(files, 2, 0) == 0;
}

/* ---- ending ---- */

static bool wait_end(pr__child *child, int64_t wait_ms)
{
    struct pollfd file = {.fd = child->pid_fd, .events = POLLIN};
    int64_t deadline_us = pr__monotonic_us() + wait_ms * 1000;
    for (;;) {
        int64_t left_ms = (deadline_us - pr__monotonic_us() + 999) / 1000;
        int count = poll(&file, 1, left_ms > 0 ? (int)left_ms : 0);
        if (count > 0)
            return true;
        if (left_ms <= 0 || (count < 0 && errno != EINTR))
            return false;
    }
}

void pr__child_stop(pr__child *child, int64_t wait_ms, int64_t kill_after_ms)
{
    if (child->pid == 0)
        return;
    close_fd(&child->input);
    bool over = wait_end(child, wait_ms);
    if (!over) {
        kill(-child->pid, SIGTERM);
        over = wait_end(child, kill_after_ms);
    }
    kill(-child->pid, SIGKILL); /* also what it left behind in its group */
    if (over || wait_end(child, REAP_MS))
        waitpid(child->pid, &child->status, 0);
    child->pid = 0;
    close_fd(&child->pid_fd);
    close_fd(&child->output);
}

void pr__child_end_text(const pr__child *child, char *out, size_t size)
{
    if (WIFSIGNALED(child->status))
        pr__format(out, size, "was killed by signal %d", WTERMSIG(child->status));
    else
        pr__format(out, size, "ended with exit %d", WEXITSTATUS(child->status));
}
