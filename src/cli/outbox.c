/*
 * `postroom outbox list`.
 */
#include <postroom/operations.h>

#include "cli/cli.h"
#include "cli/list.h"
#include "cli/record.h"

typedef struct list_values {
    pr__common common;
    int64_t limit;
    int64_t state;
    int64_t reader;
    const char *type;
    const char *destination;
    const char *key;
    const char *after;
} list_values;

/* in the order of pr_state, which begins at 1 */
static const char *const states[] = {"pending", "publishing", "published", "failed",
                                     "held",    "delayed",    "dead",      NULL};

static const pr__option list_options[] = {
    {"state", PR__OPTION_CHOICE, "STATE",
     "only those that are pending, publishing, published, failed, held, delayed or dead",
     offsetof(list_values, state), 0, 0, states},
    {"type", PR__OPTION_TEXT, "URN", "only those of this type", offsetof(list_values, type), 0, 0,
     NULL},
    {"destination", PR__OPTION_TEXT, "ADDRESS", "only those to this address",
     offsetof(list_values, destination), 0, 0, NULL},
    {"key", PR__OPTION_TEXT, "KEY", "only those of this key", offsetof(list_values, key), 0, 0,
     NULL},
    {"reader", PR__OPTION_COUNT, "N",
     "the states as this reader of the log has them (default 1, "
     "the relay)",
     offsetof(list_values, reader), 1, 0, NULL},
    {"limit", PR__OPTION_COUNT, "N", "at most so many, up to 1000 (default 100)",
     offsetof(list_values, limit), 1, 1000, NULL},
    {"after", PR__OPTION_TEXT, "CURSOR", "go on where the page before ended",
     offsetof(list_values, after), 0, 0, NULL},
    {NULL, 0, NULL, NULL, 0, 0, 0, NULL},
};

static pr__exit list_run(pr__cli *cli, const void *v)
{
    const list_values *values = v;
    pr_list_options opt = {.size = (uint32_t)sizeof(opt),
                           .limit = (uint32_t)pr__option_or(values->limit, 0),
                           .box = PR_BOX_OUTBOX,
                           .state = (pr_state)(pr__option_or(values->state, -1) + 1),
                           .type = values->type,
                           .destination = values->destination,
                           .key = values->key,
                           .reader = pr__option_or(values->reader, 0),
                           .after = values->after};
    return pr__list_print(cli, &values->common, &opt, PR__VIEW_OUTBOX);
}

const pr__command pr__command_outbox_list = {
    .name = "outbox list",
    .arguments = "",
    .summary = "list messages of the outbox, oldest first",
    .options = list_options,
    .values_size = sizeof(list_values),
    .uses_store = true,
    .run = list_run,
};
