/*
 * Runs the command with files for its outputs, so that no amount of output can block it.
 */
#include "program.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sqlite3.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define ARGUMENTS_MAX 64

extern char **environ;

/* The folder of the case that runs; a case that failed leaves it to the next one or to the end. */
static folder current;

static void remove_current(void)
{
    char command[FOLDER_SIZE + 32];
    if (current.path[0] == '\0')
        return;
    snprintf(command, sizeof(command), "rm -rf '%s'", current.path);
    if (chdir(current.before) != 0 || system(command) != 0)
        fprintf(stderr, "cannot remove %s\n", current.path);
    current.path[0] = '\0';
}

void folder_enter(folder *of)
{
    static bool registered;
    const char *temporary = getenv("TMPDIR");
    if (!registered)
        atexit(remove_current);
    registered = true;
    remove_current();
    if (!getcwd(of->before, sizeof(of->before)))
        fail_msg("getcwd: %s", strerror(errno));
    snprintf(of->path, sizeof(of->path), "%s/postroom-e2e-XXXXXX",
             temporary && strlen(temporary) < 80 ? temporary : "/tmp");
    if (!mkdtemp(of->path) || chdir(of->path) != 0)
        fail_msg("cannot make %s: %s", of->path, strerror(errno));
    current = *of;
    unsetenv("POSTROOM_STORE");
}

void folder_leave(folder *of)
{
    assert_string_equal(of->path, current.path);
    remove_current();
    assert_false(file_exists(of->path));
}

static pid_t spawn(int input, const char *const *arguments)
{
    const char *program = getenv("POSTROOM_PROGRAM");
    char *argv[ARGUMENTS_MAX];
    size_t count = 0;
    pid_t pid = 0;
    posix_spawn_file_actions_t actions;
    if (!program)
        fail_msg("POSTROOM_PROGRAM is not set: run it by meson test");
    argv[count++] = strdup(program);
    for (size_t i = 0; arguments[i] && count + 1 < ARGUMENTS_MAX; i++)
        argv[count++] = strdup(arguments[i]);
    argv[count] = NULL;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, input, 0);
    posix_spawn_file_actions_addopen(&actions, 1, "out", O_WRONLY | O_CREAT | O_TRUNC, 0600);
    posix_spawn_file_actions_addopen(&actions, 2, "err", O_WRONLY | O_CREAT | O_TRUNC, 0600);
    int failed = posix_spawn(&pid, program, &actions, NULL, argv, environ);
    posix_spawn_file_actions_destroy(&actions);
    for (size_t i = 0; i < count; i++)
        free(argv[i]);
    if (failed != 0)
        fail_msg("cannot start %s: %s", program, strerror(failed));
    return pid;
}

void finish_program(pid_t pid, result *ret)
{
    int how = 0;
    struct stat of_out;
    int64_t until = now_ms() + 4 * DEADLINE_MS;
    pid_t ended;
    while ((ended = waitpid(pid, &how, WNOHANG)) == 0 && now_ms() < until)
        sleep_a_little();
    if (ended == 0) {
        kill(pid, SIGKILL);
        waitpid(pid, &how, 0);
        fail_msg("the program does not end: %s", read_file("err"));
    }
    ret->code = WIFEXITED(how) ? WEXITSTATUS(how) : 128 + WTERMSIG(how);
    ret->out = read_file("out");
    ret->err = read_file("err");
    ret->out_size = stat("out", &of_out) == 0 ? (size_t)of_out.st_size : 0;
}

void run_program(result *ret, const char *input, size_t input_size, const char *const *arguments)
{
    int fd = open("in", O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd < 0 || (input_size > 0 && write(fd, input, input_size) != (ssize_t)input_size) ||
        lseek(fd, 0, SEEK_SET) != 0)
        fail_msg("cannot write the input: %s", strerror(errno));
    pid_t pid = spawn(fd, arguments);
    close(fd);
    finish_program(pid, ret);
}

pid_t start_program(int *ret_input, const char *const *arguments)
{
    int ends[2];
    if (!ret_input) {
        int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
        pid_t pid = spawn(null, arguments);
        close(null);
        return pid;
    }
    if (pipe2(ends, O_CLOEXEC) != 0)
        fail_msg("pipe: %s", strerror(errno));
    pid_t pid = spawn(ends[0], arguments);
    close(ends[0]);
    *ret_input = ends[1];
    return pid;
}

void result_done(result *of)
{
    free(of->out);
    free(of->err);
    of->out = of->err = NULL;
}

static void check_text(const result *of, const char *name, const char *got, const char *wanted,
                       const char *label)
{
    if (!wanted)
        return;
    if (wanted[0] == '\0' ? got[0] != '\0' : !strstr(got, wanted))
        fail_msg("%s: wanted '%s' on %s; exit %d\nout: %s\nerr: %s", label, wanted, name, of->code,
                 of->out, of->err);
}

void check_result(const result *of, int code, const char *out, const char *err, const char *label)
{
    if (of->code != code)
        fail_msg("%s: wanted exit %d, got %d\nout: %s\nerr: %s", label, code, of->code, of->out,
                 of->err);
    check_text(of, "standard output", of->out, out, label);
    check_text(of, "standard error", of->err, err, label);
    const char *newline = strchr(of->err, '\n');
    if (code != 0 && err && err[0] && newline && newline[1] != '\0')
        fail_msg("%s: more than one line of error: %s", label, of->err);
}

void expect_program(int code, const char *out, const char *err, const char *label,
                    const char *const *arguments)
{
    result r;
    run_program(&r, NULL, 0, arguments);
    check_result(&r, code, out, err, label);
    result_done(&r);
}

static sqlite3 *open_db(const char *path, int flags)
{
    sqlite3 *db = NULL;
    if (sqlite3_open_v2(path, &db, flags, NULL) != SQLITE_OK)
        fail_msg("cannot open %s: %s", path, sqlite3_errmsg(db));
    sqlite3_busy_timeout(db, DEADLINE_MS);
    return db;
}

int64_t number_of(const char *path, const char *sql)
{
    sqlite3 *db = open_db(path, SQLITE_OPEN_READWRITE);
    sqlite3_stmt *statement = NULL;
    int64_t value = 0;
    if (sqlite3_prepare_v2(db, sql, -1, &statement, NULL) != SQLITE_OK ||
        sqlite3_step(statement) != SQLITE_ROW)
        fail_msg("%s: %s: %s", path, sql, sqlite3_errmsg(db));
    value = sqlite3_column_int64(statement, 0);
    sqlite3_finalize(statement);
    sqlite3_close(db);
    return value;
}

void change(const char *path, const char *sql)
{
    sqlite3 *db = open_db(path, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE);
    if (sqlite3_exec(db, sql, NULL, NULL, NULL) != SQLITE_OK)
        fail_msg("%s: %s: %s", path, sql, sqlite3_errmsg(db));
    sqlite3_close(db);
}

void wait_number(const char *path, const char *sql, int64_t wanted)
{
    int64_t until = now_ms() + DEADLINE_MS, value;
    while ((value = number_of(path, sql)) < wanted) {
        if (now_ms() > until)
            fail_msg("%s: %s stays %lld, wanted %lld", path, sql, (long long)value,
                     (long long)wanted);
        sleep_a_little();
    }
}

void first_id(const char *path, char ret_id[64])
{
    sqlite3 *db = open_db(path, SQLITE_OPEN_READWRITE);
    sqlite3_stmt *statement = NULL;
    if (sqlite3_prepare_v2(db, "SELECT message_id FROM postroom_outbox ORDER BY id LIMIT 1", -1,
                           &statement, NULL) != SQLITE_OK ||
        sqlite3_step(statement) != SQLITE_ROW)
        fail_msg("%s has no message: %s", path, sqlite3_errmsg(db));
    snprintf(ret_id, 64, "%s", (const char *)sqlite3_column_text(statement, 0));
    sqlite3_finalize(statement);
    sqlite3_close(db);
}

char *read_file(const char *path)
{
    struct stat of;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &of) != 0)
        return NULL;
    char *text = calloc(1, (size_t)of.st_size + 1);
    ssize_t size = text ? read(fd, text, (size_t)of.st_size) : -1;
    close(fd);
    if (size < 0)
        fail_msg("cannot read %s", path);
    return text;
}

void write_file(const char *path, const char *text)
{
    FILE *file = fopen(path, "wbe");
    if (!file || fputs(text, file) == EOF || fclose(file) != 0)
        fail_msg("cannot write %s", path);
}

bool file_exists(const char *path)
{
    return access(path, F_OK) == 0;
}

void sleep_a_little(void)
{
    nanosleep(&(struct timespec){0, 5000000}, NULL);
}

int64_t now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}
