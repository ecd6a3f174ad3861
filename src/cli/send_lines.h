/*
 * What `postroom send` shares between its two ways: one message, and lines.
 */
#ifndef PR_CLI_SEND_LINES_H
#define PR_CLI_SEND_LINES_H

#include <stdint.h>

#include <postroom/message.h>
#include <postroom/store.h>

#include "cli/cli.h"

typedef struct pr__send_lines {
    int fd;                     /* borrowed */
    const char *file;           /* its name, for texts */
    const pr_message *defaults; /* what a line does not say */
    uint64_t batch;             /* messages a transaction */
    uint64_t from_line;         /* lines before it are passed over; 1 = none */
    uint64_t body_size_max;
} pr__send_lines;

/* Commit every line as a message, a batch a transaction; stops at the first bad line. */
pr__exit pr__send_lines_run(pr__cli *cli, pr_store *store, const pr__send_lines *opt);

#endif
