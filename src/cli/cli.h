/*
 * What every file of the command shares: the invocation, the description of a command, exit codes.
 *
 * A command is a constant: its table of options makes its parser, its --help and its page in
 * docs/cli.md, so none of them can differ from another.
 */
#ifndef PR_CLI_CLI_H
#define PR_CLI_CLI_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <postroom/error.h>

#include "cli/options.h"

/* Exit codes: docs/cli.md, "Exit codes". */
typedef enum pr__exit {
    PR__EXIT_OK = 0,
    PR__EXIT_FAILED = 1,
    PR__EXIT_USAGE = 2,
    PR__EXIT_NOT_FOUND = 3,
    PR__EXIT_STATE = 4,
    PR__EXIT_PARTIAL = 5
} pr__exit;

typedef struct pr__cli pr__cli;

struct pr__command {
    const char *name;          /* "send", "outbox list" */
    const char *arguments;     /* of the usage line; "" = none */
    const char *summary;       /* one line */
    const char *details;       /* paragraphs for --help; NULL = none */
    const pr__option *options; /* its own; ended by a name of NULL */
    size_t values_size;        /* of its values, which begin with a pr__common */
    size_t arguments_min;
    size_t arguments_max;
    bool uses_store; /* it has --store and its like */
    pr__exit (*run)(pr__cli *cli, const void *values);
};

/* One invocation. */
struct pr__cli {
    const char *program;        /* argv[0] as it was typed */
    const pr__command *command; /* NULL until it is known */
    bool json;
    int output_errno;    /* of the first write to standard output that failed; 0 = none */
    pr__texts arguments; /* what is no option */
};

extern const pr__command pr__command_demo;
extern const pr__command pr__command_migrate;
extern const pr__command pr__command_send;
extern const pr__command pr__command_relay;
extern const pr__command pr__command_receive;
extern const pr__command pr__command_status;
extern const pr__command pr__command_outbox_list;
extern const pr__command pr__command_outbox_show;
extern const pr__command pr__command_inbox_list;
extern const pr__command pr__command_dead_list;
extern const pr__command pr__command_dead_show;
extern const pr__command pr__command_dead_redrive;
extern const pr__command pr__command_dead_discard;
extern const pr__command pr__command_saga_list;
extern const pr__command pr__command_saga_show;
extern const pr__command pr__command_saga_release;
extern const pr__command pr__command_explain;
extern const pr__command pr__command_cancel;
extern const pr__command pr__command_doctor;
extern const pr__command pr__command_contract_list;
extern const pr__command pr__command_contract_show;
extern const pr__command pr__command_topology_declare;
extern const pr__command pr__command_topology_check;
extern const pr__command pr__command_topology_show;

#endif
