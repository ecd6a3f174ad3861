/*
 * Showing what stands of one message id: shared by `outbox show` and `dead show`.
 */
#ifndef PR_CLI_SHOW_H
#define PR_CLI_SHOW_H

#include <postroom/operations.h>

#include "cli/cli.h"

typedef struct pr__show_filter {
    pr_box box;     /* 0 = both */
    pr_state state; /* 0 = any */
} pr__show_filter;

/* Exit 3: nothing of that id; 4: it stands, but in another state than asked for. */
pr__exit pr__show_print(pr__cli *cli, const pr__common *common, const char *id,
                        const pr__show_filter *filter);

#endif
