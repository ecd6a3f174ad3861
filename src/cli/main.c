/*
 * The command `postroom`: finds the command, parses its options, runs it, turns what it says into
 * an exit code.
 */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <postroom/export.h>

#include "base/error.h"
#include "base/memory.h"
#include "base/text.h"
#include "cli/cli.h"
#include "cli/output.h"

/* one a line, so that each is a line of a diff */
/* clang-format off */
static const pr__command *const commands[] = {
    &pr__command_demo,
    &pr__command_migrate,
    &pr__command_send,
    &pr__command_relay,
    &pr__command_receive,
    &pr__command_status,
    &pr__command_outbox_list,
    &pr__command_outbox_show,
    &pr__command_inbox_list,
    &pr__command_dead_list,
    &pr__command_dead_show,
    &pr__command_dead_redrive,
    &pr__command_dead_discard,
    &pr__command_explain,
    &pr__command_cancel,
    &pr__command_doctor,
    &pr__command_contract_list,
    &pr__command_contract_show,
    &pr__command_topology_declare,
    &pr__command_topology_check,
    &pr__command_topology_show,
    &pr__command_saga_list,
    &pr__command_saga_show,
    &pr__command_saga_release,
};
/* clang-format on */
enum { COMMAND_COUNT = sizeof(commands) / sizeof(commands[0]) };

/* Without these a database file could be opened as standard output and be written over. */
static void open_standard_files(void)
{
    for (int fd = 0; fd <= 2; fd++) {
        if (fcntl(fd, F_GETFD) == -1) {
            int opened = open("/dev/null", fd == 0 ? O_WRONLY : O_RDONLY);
            (void)opened;
        }
    }
}

/* Help on everything, or on the commands of one group such as "outbox"; NULL = all. */
static void global_help(pr__buffer *out, const char *group)
{
    pr__buffer_printf(out, "usage: postroom %s%sCOMMAND [options]\n\n", group ? group : "",
                      group ? " " : "");
    if (!group)
        pr__buffer_append_text(
            out, "Reliable messages out of the database that you already use: a transactional\n"
                 "outbox, a relay and an idempotent inbox.\n\n");
    pr__buffer_append_text(out, "commands:\n");
    for (size_t i = 0; i < COMMAND_COUNT; i++) {
        if (group && !(pr__text_starts_with(commands[i]->name, group) &&
                       commands[i]->name[strlen(group)] == ' '))
            continue;
        pr__buffer_printf(out, "  %-17s %s\n", commands[i]->name, commands[i]->summary);
    }
    pr__buffer_append_text(
        out, "\n`postroom COMMAND --help` shows the options of a command. The store is named by\n"
             "--store PATH (or sqlite:PATH), --store postgresql://HOST/DATABASE, or by the\n"
             "environment's POSTROOM_STORE.\n"
             "\n"
             "exit codes: 0 ok, 1 failed, 2 usage, 3 not found, 4 wrong state, 5 partial\n");
    out->size--; /* the printer adds the last newline */
}

static bool is_group(const char *word)
{
    size_t size = strlen(word);
    for (size_t i = 0; i < COMMAND_COUNT; i++) {
        if (strncmp(commands[i]->name, word, size) == 0 && commands[i]->name[size] == ' ')
            return true;
    }
    return false;
}

static const pr__command *find_command(const char *name)
{
    for (size_t i = 0; i < COMMAND_COUNT; i++) {
        if (strcmp(commands[i]->name, name) == 0)
            return commands[i];
    }
    return NULL;
}

static pr__exit unknown_command(pr__cli *cli, const char *name)
{
    const char *names[COMMAND_COUNT];
    for (size_t i = 0; i < COMMAND_COUNT; i++)
        names[i] = commands[i]->name;
    if (name[0] == '-')
        return pr__report_usage(
            cli, "the command comes first: postroom COMMAND %s; see postroom --help", name);
    const char *near = pr__nearest(name, names, COMMAND_COUNT);
    if (near)
        return pr__report_usage(cli, "unknown command '%s'; did you mean '%s'? see postroom --help",
                                name, near);
    return pr__report_usage(cli, "unknown command '%s'; see postroom --help", name);
}

static bool asks_json(int argc, char **argv)
{
    for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++) {
        if (strcmp(argv[i], "--json") == 0)
            return true;
    }
    return false;
}

static bool asks_help(const char *word)
{
    return strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0 || strcmp(word, "help") == 0;
}

static pr__exit run_command(pr__cli *cli, const pr__command *command, int argc, char **argv)
{
    pr_error err = PR_ERROR_INIT;
    void *values = pr__alloc(command->values_size);
    pr__exit code;
    cli->command = command;
    if (!values)
        return pr__report(cli, PR__EXIT_FAILED, "no-memory", "out of memory");
    if (pr__options_parse(command, argc, argv, values, &cli->arguments, &err) != PR_OK) {
        code = pr__report_error(cli, &err);
    } else if (((pr__common *)values)->help) {
        AUTO_BUFFER help = PR_BUFFER_INIT;
        pr__options_help(command, &help);
        help.size--;
        pr__print_buffer(cli, &help);
        code = PR__EXIT_OK;
    } else {
        cli->json = ((pr__common *)values)->json;
        code = command->run(cli, values);
    }
    pr__options_done(command, values, &cli->arguments);
    pr__free(values);
    return code;
}

/* Find the command in argv[1], or in argv[1] and argv[2], and run it. */
static pr__exit dispatch(pr__cli *cli, int argc, char **argv)
{
    AUTO_BUFFER help = PR_BUFFER_INIT;
    char name[64];
    if (argc < 2) {
        return pr__report_usage(cli, "a command is missing; see postroom --help");
    }
    if (strcmp(argv[1], "--version") == 0) {
        pr__print(cli, "postroom %s", PR_VERSION_TEXT);
        return PR__EXIT_OK;
    }
    if (asks_help(argv[1]) && argc > 2 && argv[2][0] != '-') {
        /* "help outbox list" is "outbox list --help" */
        char *turned[4] = {argv[0], argv[2], argc > 3 ? argv[3] : argv[1], argv[1]};
        char help_word[] = "--help";
        turned[argc > 3 ? 3 : 2] = help_word;
        return dispatch(cli, argc > 3 ? 4 : 3, turned);
    }
    if (asks_help(argv[1])) {
        global_help(&help, NULL);
        pr__print_buffer(cli, &help);
        return PR__EXIT_OK;
    }
    if (!is_group(argv[1])) {
        const pr__command *command = find_command(argv[1]);
        return command ? run_command(cli, command, argc - 2, argv + 2)
                       : unknown_command(cli, argv[1]);
    }
    if (argc > 2 && asks_help(argv[2])) {
        global_help(&help, argv[1]);
        pr__print_buffer(cli, &help);
        return PR__EXIT_OK;
    }
    if (argc < 3 || argv[2][0] == '-')
        return pr__report_usage(cli, "'%s' needs a second word; see postroom %s --help", argv[1],
                                argv[1]);
    pr__format(name, sizeof(name), "%.20s %.40s", argv[1], argv[2]);
    const pr__command *command = find_command(name);
    return command ? run_command(cli, command, argc - 3, argv + 3) : unknown_command(cli, name);
}

int main(int argc, char **argv)
{
    pr__cli cli = {.program = argc > 0 ? argv[0] : "postroom", .json = asks_json(argc, argv)};
    open_standard_files();
    signal(SIGPIPE, SIG_IGN); /* a reader that went away is a failed write, not a death */
    pr__exit code = dispatch(&cli, argc, argv);
    return (int)pr__output_finish(&cli, code);
}
