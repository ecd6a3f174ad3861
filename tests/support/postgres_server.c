/*
 * The test's side of tools/postgres-server: a child with a pipe to its standard input and one from
 * its standard output, one line each way.
 *
 * Every wait has a deadline. The child ends the cluster when our end of the pipe is closed or when
 * this process is no longer its parent, so nothing stays behind after a SIGKILL either.
 */
#include "support/postgres_server.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define ANSWER_MS     200000 /* above the deadlines of the program itself */
#define LINE_SIZE     1024
#define ARGUMENTS_MAX (12 + 2 * POSTGRES_SETTINGS_MAX)
#define NO_SERVER     3 /* the program's exit status */

struct postgres_server {
    pid_t pid;   /* of the program */
    pid_t owner; /* a fork of ours must not stop it */
    int to, from;
    char folder[160];
};

static void give_up(const char *what, const char *why)
{
    printf("Bail out! %s: %s\n", what, why);
    fflush(stdout);
    _exit(1);
}

static void no_server(void)
{
    const char *required = getenv("POSTROOM_REQUIRE_BACKENDS");
    if (required && strcmp(required, "1") == 0)
        give_up("postgres", "no server is installed, and backends are required");
    printf("1..0 # SKIP no PostgreSQL server is installed (Debian: postgresql)\n");
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
static bool read_line(postgres_server *server, char line[LINE_SIZE])
{
    size_t size = 0;
    int64_t until = now_ms() + ANSWER_MS;
    for (;;) {
        struct pollfd of = {.fd = server->from, .events = POLLIN};
        int64_t left = until - now_ms();
        if (left <= 0 || poll(&of, 1, (int)left) == 0)
            give_up("tools/postgres-server", "no answer in time");
        ssize_t got = read(server->from, line + size, 1);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return false;
        if (line[size] == '\n') {
            line[size] = '\0';
            return true;
        }
        if (size + 2 < LINE_SIZE)
            size++;
    }
}

static void start_program(const postgres_server_options *options, int to, int from)
{
    const char *program = getenv("POSTROOM_POSTGRES_SERVER");
    const char *template = getenv("POSTROOM_POSTGRES_TEMPLATE");
    const char *arguments[ARGUMENTS_MAX] = {program, "--parent"};
    char parent[24];
    size_t count = 2;
    snprintf(parent, sizeof parent, "%ld", (long)getppid()); /* set in the child: the test itself */
    arguments[count++] = parent;
    if (template) {
        arguments[count++] = "--template";
        arguments[count++] = template;
    }
    if (options && options->fsync)
        arguments[count++] = "--fsync";
    if (options && options->fresh)
        arguments[count++] = "--fresh";
    if (options && options->locale) {
        arguments[count++] = "--locale";
        arguments[count++] = options->locale;
    }
    for (size_t i = 0; options && i < POSTGRES_SETTINGS_MAX && options->settings[i]; i++) {
        arguments[count++] = "--set";
        arguments[count++] = options->settings[i];
    }
    dup2(to, 0);
    dup2(from, 1);
    setsid(); /* a signal to the test's group is not for it */
    execv(program, (char *const *)(uintptr_t)arguments);
    _exit(126);
}

postgres_server *postgres_server_start(const postgres_server_options *options)
{
    int to[2], from[2];
    char line[LINE_SIZE];
    if (!getenv("POSTROOM_POSTGRES_SERVER"))
        give_up("POSTROOM_POSTGRES_SERVER", "not set; run the test by meson test");
    signal(SIGPIPE, SIG_IGN);
    postgres_server *server = calloc(1, sizeof *server);
    if (!server || pipe2(to, O_CLOEXEC) != 0 || pipe2(from, O_CLOEXEC) != 0)
        give_up("postgres", "no memory or descriptors");
    fflush(stdout);
    server->owner = getpid();
    server->pid = fork();
    if (server->pid == 0)
        start_program(options, to[0], from[1]);
    if (server->pid < 0)
        give_up("fork", strerror(errno));
    close(to[0]);
    close(from[1]);
    server->to = to[1];
    server->from = from[0];
    if (!read_line(server, line))
        give_up("tools/postgres-server", "cannot be run");
    if (strncmp(line, "ready ", 6) != 0) {
        int how = 0;
        waitpid(server->pid, &how, 0);
        if (WIFEXITED(how) && WEXITSTATUS(how) == NO_SERVER)
            no_server();
        give_up("postgres", line);
    }
    snprintf(server->folder, sizeof server->folder, "%.*s", (int)strcspn(line + 6, " "), line + 6);
    return server;
}

void postgres_server_free(postgres_server *server)
{
    if (!server)
        return;
    close(server->to);
    close(server->from);
    if (server->owner == getpid())
        waitpid(server->pid, NULL, 0);
    free(server);
}

void postgres_server_ask(postgres_server *server, const char *command, char *ret_answer,
                         size_t size)
{
    char line[LINE_SIZE];
    snprintf(line, sizeof line, "%s\n", command);
    if (write(server->to, line, strlen(line)) != (ssize_t)strlen(line))
        give_up(command, "tools/postgres-server is gone");
    if (!read_line(server, line))
        give_up(command, "tools/postgres-server ended");
    if (strncmp(line, "ok", 2) != 0)
        give_up(command, line);
    if (ret_answer)
        snprintf(ret_answer, size, "%s", line[2] ? line + 3 : "");
}

void postgres_server_do(postgres_server *server, const char *command)
{
    postgres_server_ask(server, command, NULL, 0);
}

const char *postgres_server_folder(const postgres_server *server)
{
    return server->folder;
}

void postgres_folder_uri(const char *folder, const char *database,
                         char ret_uri[POSTGRES_CONNINFO_SIZE])
{
    snprintf(ret_uri, POSTGRES_CONNINFO_SIZE, "postgresql:///%s?host=%s&port=%d&user=postgres",
             database, folder, POSTGRES_SERVER_PORT);
}

void postgres_server_uri(const postgres_server *server, const char *database,
                         char ret_uri[POSTGRES_CONNINFO_SIZE])
{
    postgres_folder_uri(server->folder, database, ret_uri);
}
