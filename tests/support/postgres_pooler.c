/*
 * PgBouncer before a test's server, in a folder within the server's, with which it goes.
 */
#include "support/postgres_pooler.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <pwd.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define PROGRAM  "/usr/sbin/pgbouncer"
#define READY_MS 20000

struct postgres_pooler {
    pid_t pid;
    char folder[200];
};

static void give_up(const char *why)
{
    printf("Bail out! pgbouncer: %s\n", why);
    fflush(stdout);
    _exit(1);
}

static void not_installed(void)
{
    const char *required = getenv("POSTROOM_REQUIRE_BACKENDS");
    if (required && strcmp(required, "1") == 0)
        give_up("not installed, and backends are required");
    printf("1..0 # SKIP pgbouncer is not installed\n");
    fflush(stdout);
    _exit(0);
}

static void write_settings(const postgres_pooler *pooler, const postgres_server *server,
                           int sessions)
{
    char path[260];
    snprintf(path, sizeof path, "%s/users", pooler->folder);
    FILE *file = fopen(path, "we");
    if (!file || fprintf(file, "\"postgres\" \"\"\n") < 0 || fclose(file) != 0)
        give_up("its users cannot be written");
    snprintf(path, sizeof path, "%s/ini", pooler->folder);
    file = fopen(path, "we");
    if (!file)
        give_up("its settings cannot be written");
    fprintf(file,
            "[databases]\n* = host=%s port=%d user=postgres\n[pgbouncer]\n"
            "pool_mode = transaction\nlisten_addr =\nlisten_port = %d\nunix_socket_dir = %s\n"
            "auth_type = any\nauth_file = %s/users\ndefault_pool_size = %d\n"
            "max_client_conn = 200\nlogfile = %s/log\nserver_round_robin = 1\n"
            "ignore_startup_parameters = extra_float_digits,options\n",
            postgres_server_folder(server), POSTGRES_SERVER_PORT, POSTGRES_SERVER_PORT,
            pooler->folder, pooler->folder, sessions, pooler->folder);
    if (fclose(file) != 0)
        give_up("its settings cannot be written");
}

/* In the child: as postgres when we are root, which it refuses to be, and not longer than we. */
static void run(const postgres_pooler *pooler)
{
    char path[260];
    const struct passwd *who = getuid() == 0 ? getpwnam("postgres") : NULL;
    snprintf(path, sizeof path, "%s/ini", pooler->folder);
    if (who && (setgroups(0, NULL) != 0 || setgid(who->pw_gid) != 0 || setuid(who->pw_uid) != 0))
        _exit(126);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    int quiet = open("/dev/null", O_RDWR | O_CLOEXEC);
    dup2(quiet, 0);
    dup2(quiet, 1);
    dup2(quiet, 2);
    execl(PROGRAM, PROGRAM, "-q", path, (char *)NULL);
    _exit(126);
}

postgres_pooler *postgres_pooler_start(const postgres_server *server, int sessions)
{
    char path[260];
    struct stat info;
    if (access(PROGRAM, X_OK) != 0)
        not_installed();
    postgres_pooler *pooler = calloc(1, sizeof *pooler);
    if (!pooler)
        give_up("no memory");
    snprintf(pooler->folder, sizeof pooler->folder, "%s/pooler", postgres_server_folder(server));
    const struct passwd *who = getuid() == 0 ? getpwnam("postgres") : NULL;
    if (mkdir(pooler->folder, 0755) != 0)
        give_up(strerror(errno));
    write_settings(pooler, server, sessions);
    if (who && chown(pooler->folder, who->pw_uid, who->pw_gid) != 0)
        give_up(strerror(errno));
    fflush(NULL);
    pooler->pid = fork();
    if (pooler->pid == 0)
        run(pooler);
    snprintf(path, sizeof path, "%s/.s.PGSQL.%d", pooler->folder, POSTGRES_SERVER_PORT);
    for (int i = 0; stat(path, &info) != 0; i++) {
        if (i > READY_MS / 10 || waitpid(pooler->pid, NULL, WNOHANG) != 0)
            give_up("it does not start");
        nanosleep(&(struct timespec){0, 10000000}, NULL);
    }
    return pooler;
}

void postgres_pooler_free(postgres_pooler *pooler)
{
    if (!pooler)
        return;
    kill(pooler->pid, SIGKILL);
    waitpid(pooler->pid, NULL, 0);
    free(pooler);
}

const char *postgres_pooler_folder(const postgres_pooler *pooler)
{
    return pooler->folder;
}
