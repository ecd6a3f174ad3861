/*
 * `postroom inbox list`: what endpoints have handled, and what waits to be tried again.
 */
#include <postroom/operations.h>

#include "cli/cli.h"
#include "cli/list.h"
#include "cli/record.h"

typedef struct list_values {
    pr__common common;
    int64_t limit;
    int64_t state;
    const char *consumer;
    const char *type;
    const char *key;
    const char *after;
} list_values;

/* redriven, in hand, handled; then as in the outbox */
static const char *const states[] = {"pending", "publishing", "published", "failed",
                                     "held",    "dead",       NULL};
static const pr_state of_choice[] = {PR_STATE_PENDING, PR_STATE_PUBLISHING, PR_STATE_PUBLISHED,
                                     PR_STATE_FAILED,  PR_STATE_HELD,       PR_STATE_DEAD};

static const pr__option list_options[] = {
    {"state", PR__OPTION_CHOICE, "STATE",
     "only those that are pending (redriven), publishing (in hand), published (handled), failed, "
     "held or dead",
     offsetof(list_values, state), 0, 0, states},
    {"consumer", PR__OPTION_TEXT, "ENDPOINT", "only those of this endpoint",
     offsetof(list_values, consumer), 0, 0, NULL},
    {"type", PR__OPTION_TEXT, "URN", "only those of this type", offsetof(list_values, type), 0, 0,
     NULL},
    {"key", PR__OPTION_TEXT, "KEY", "only those of this key", offsetof(list_values, key), 0, 0,
     NULL},
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
                           .box = PR_BOX_INBOX,
                           .type = values->type,
                           .key = values->key,
                           .consumer = values->consumer,
                           .after = values->after};
    if (values->state != PR__UNSET)
        opt.state = of_choice[values->state];
    return pr__list_print(cli, &values->common, &opt, PR__VIEW_INBOX);
}

const pr__command pr__command_inbox_list = {
    .name = "inbox list",
    .arguments = "",
    .summary = "list messages of the inbox: handled, failed, held, dead",
    .details = "With --state failed: what endpoints try again, and why. `explain ID` says when.",
    .options = list_options,
    .values_size = sizeof(list_values),
    .uses_store = true,
    .run = list_run,
};
