/*
 * Who does it and why: what the audit needs of every command that changes messages.
 */
#ifndef PR_CLI_OPERATOR_H
#define PR_CLI_OPERATOR_H

#include <postroom/store.h>

#include "cli/cli.h"

#define PR__WHO_SIZE 128

typedef struct pr__operator {
    const char *reason;
    const char *who;
} pr__operator;

/* clang-format off */
#define PR__OPERATOR_OPTIONS(values, member)                                                       \
    {"reason", PR__OPTION_TEXT, "TEXT", "why, for the audit; required",                            \
     offsetof(values, member.reason), 0, 0, NULL},                                                 \
    {"who", PR__OPTION_TEXT, "NAME", "who does it, for the audit (default: the user's name)",      \
     offsetof(values, member.who), 0, 0, NULL}
/* clang-format on */

/* --who, or the name of the user, written into memory. */
const char *pr__operator_who(const pr__operator *by, char memory[PR__WHO_SIZE]);

/* The store, for a change that needs a reason; anything but OK was reported. */
pr__exit pr__operator_store(pr__cli *cli, const pr__common *common, const pr__operator *by,
                            pr_store **ret_store);

/* Say that one message was dealt with: "cancelled ID". */
void pr__operator_done(pr__cli *cli, const char *verb, const char *id);

#endif
