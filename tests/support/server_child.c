/*
 * A child with a pipe each way, and deadlines on every wait.
 */
#include "support/server_child.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define ANSWER_MS 200000 /* above the deadlines of the programs themselves */
#define NO_SERVER 3      /* their exit status */

struct server_child {
    pid_t pid;   /* of the program */
    pid_t owner; /* a fork of ours must not stop it */
    int to, from;
};

__attribute__((noreturn)) static void give_up(const char *what, const char *why)
{
    printf("Bail out! %s: %s\n", what, why);
    fflush(stdout);
    _exit(1);
}

__attribute__((noreturn)) static void no_server(const char *what, const char *why)
{
    const char *required = getenv("POSTROOM_REQUIRE_BACKENDS");
    if (required && strcmp(required, "1") == 0)
        give_up(what, "no server is installed, and backends are required");
    printf("1..0 # SKIP %s\n", why);
    fflush(stdout);
    _exit(0);
}

static int64_t now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* One line without its end; false: the program closed its output. */
static bool read_line(server_child *child, char line[SERVER_LINE_SIZE])
{
    size_t size = 0;
    int64_t until = now_ms() + ANSWER_MS;
    for (;;) {
        struct pollfd of = {.fd = child->from, .events = POLLIN};
        int64_t left = until - now_ms();
        if (left <= 0 || poll(&of, 1, (int)left) == 0)
            give_up("the server's program", "no answer in time");
        ssize_t got = read(child->from, line + size, 1);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return false;
        if (line[size] == '\n') {
            line[size] = '\0';
            return true;
        }
        if (size + 2 < SERVER_LINE_SIZE)
            size++;
    }
}

static void start_program(const char *program, const char *const *more, int to, int from)
{
    const char *arguments[SERVER_ARGUMENTS_MAX + 4] = {program, "--parent"};
    char parent[24];
    size_t count = 2;
    snprintf(parent, sizeof parent, "%ld", (long)getppid()); /* set in the child: the test itself */
    arguments[count++] = parent;
    for (size_t i = 0; i < SERVER_ARGUMENTS_MAX && more[i]; i++)
        arguments[count++] = more[i];
    dup2(to, 0);
    dup2(from, 1);
    setsid(); /* a signal to the test's group is not for it */
    execv(program, (char *const *)(uintptr_t)arguments);
    _exit(126);
}

server_child *server_child_start(const char *variable, const char *const *arguments,
                                 char ret_ready[SERVER_LINE_SIZE])
{
    int to[2], from[2];
    const char *program = getenv(variable);
    if (!program)
        give_up(variable, "not set; run the test by meson test");
    signal(SIGPIPE, SIG_IGN);
    server_child *child = calloc(1, sizeof *child);
    if (!child || pipe2(to, O_CLOEXEC) != 0 || pipe2(from, O_CLOEXEC) != 0)
        give_up(program, "no memory or descriptors");
    fflush(stdout);
    child->owner = getpid();
    child->pid = fork();
    if (child->pid == 0)
        start_program(program, arguments, to[0], from[1]);
    if (child->pid < 0)
        give_up("fork", strerror(errno));
    close(to[0]);
    close(from[1]);
    child->to = to[1];
    child->from = from[0];
    if (!read_line(child, ret_ready))
        give_up(program, "cannot be run");
    if (strncmp(ret_ready, "ready ", 6) != 0) {
        int how = 0;
        waitpid(child->pid, &how, 0);
        if (WIFEXITED(how) && WEXITSTATUS(how) == NO_SERVER)
            no_server(program, ret_ready);
        give_up(program, ret_ready);
    }
    memmove(ret_ready, ret_ready + 6, SERVER_LINE_SIZE - 6); /* its NUL is in there */
    return child;
}

void server_child_free(server_child *child)
{
    if (!child)
        return;
    close(child->to);
    close(child->from);
    if (child->owner == getpid())
        waitpid(child->pid, NULL, 0);
    free(child);
}

void server_child_ask(server_child *child, const char *command, char *ret_answer, size_t size)
{
    char line[SERVER_LINE_SIZE];
    snprintf(line, sizeof line, "%s\n", command);
    if (write(child->to, line, strlen(line)) != (ssize_t)strlen(line))
        give_up(command, "the server's program is gone");
    if (!read_line(child, line))
        give_up(command, "the server's program ended");
    if (strncmp(line, "ok", 2) != 0)
        give_up(command, line);
    if (ret_answer)
        snprintf(ret_answer, size, "%s", line[2] ? line + 3 : "");
}
