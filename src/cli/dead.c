/*
 * `postroom dead list | redrive | discard`: what was given up, and what an operator does with it.
 */
#include <stdio.h>

#include <postroom/operations.h>

#include "base/error.h"
#include "base/memory.h"
#include "base/text.h"
#include "cli/cli.h"
#include "cli/list.h"
#include "cli/operator.h"
#include "cli/output.h"
#include "cli/record.h"
#include "cli/wiring.h"

/* ---- list ---- */

typedef struct list_values {
    pr__common common;
    int64_t box;
    int64_t limit;
    const char *type;
    const char *destination;
    const char *key;
    const char *consumer;
    const char *after;
} list_values;

static const char *const boxes[] = {"outbox", "inbox", NULL};

static const pr__option list_options[] = {
    {"box", PR__OPTION_CHOICE, "BOX", "only the outbox or only the inbox (default both)",
     offsetof(list_values, box), 0, 0, boxes},
    {"type", PR__OPTION_TEXT, "URN", "only those of this type", offsetof(list_values, type), 0, 0,
     NULL},
    {"destination", PR__OPTION_TEXT, "ADDRESS", "only those to this address",
     offsetof(list_values, destination), 0, 0, NULL},
    {"key", PR__OPTION_TEXT, "KEY", "only those of this key", offsetof(list_values, key), 0, 0,
     NULL},
    {"consumer", PR__OPTION_TEXT, "ENDPOINT", "only those of this endpoint's inbox",
     offsetof(list_values, consumer), 0, 0, NULL},
    {"limit", PR__OPTION_COUNT, "N", "at most so many, up to 1000 (default 100)",
     offsetof(list_values, limit), 1, 1000, NULL},
    {"after", PR__OPTION_TEXT, "CURSOR", "go on where the page before ended",
     offsetof(list_values, after), 0, 0, NULL},
    {NULL, 0, NULL, NULL, 0, 0, 0, NULL},
};

static pr__exit list_run(pr__cli *cli, const void *v)
{
    const list_values *values = v;
    static const pr_box of_choice[] = {PR_BOX_OUTBOX, PR_BOX_INBOX};
    pr_box box = values->consumer ? PR_BOX_INBOX : PR_BOX_BOTH;
    pr_list_options opt = {.size = (uint32_t)sizeof(opt),
                           .limit = (uint32_t)pr__option_or(values->limit, 0),
                           .box = values->box == PR__UNSET ? box : of_choice[values->box],
                           .state = PR_STATE_DEAD,
                           .type = values->type,
                           .destination = values->destination,
                           .key = values->key,
                           .consumer = values->consumer,
                           .after = values->after};
    if (values->consumer && opt.box == PR_BOX_OUTBOX)
        return pr__report_usage(cli, "--consumer is of the inbox; leave out --box outbox");
    return pr__list_print(cli, &values->common, &opt, PR__VIEW_DEAD);
}

const pr__command pr__command_dead_list = {
    .name = "dead list",
    .arguments = "",
    .summary = "list what was given up, of outbox and inbox, oldest first",
    .options = list_options,
    .values_size = sizeof(list_values),
    .uses_store = true,
    .run = list_run,
};

/* ---- in which inbox ---- */

typedef struct dead_place {
    char consumer[PR_ID_SIZE_MAX + 1]; /* "" = none was found */
} dead_place;

static bool find_dead(void *user, const pr_record *record)
{
    dead_place *place = user;
    if (record->box != PR_BOX_INBOX || record->state != PR_STATE_DEAD || !record->consumer)
        return true;
    pr__format(place->consumer, sizeof(place->consumer), "%s", record->consumer);
    return false;
}

/* One message could not be dealt with; is it an inbox's, and nobody said whose? */
static pr__exit refuse(pr__cli *cli, pr_store *store, const char *id, const char *consumer,
                       const pr_error *err)
{
    dead_place place = {.consumer = ""};
    pr_error told = PR_ERROR_INIT;
    if (id && !consumer && (err->status == PR_E_NOT_FOUND || err->status == PR_E_STATE) &&
        pr_operations_show(store, id, find_dead, &place, NULL) == PR_OK && place.consumer[0]) {
        pr_status status = pr__fail(&told, err->status, "cli.dead",
                                    "message \"%s\" is dead in the inbox of '%s', not in the "
                                    "outbox; add --consumer '%s'",
                                    id, place.consumer, place.consumer);
        (void)status;
        return pr__report_error(cli, &told);
    }
    return pr__report_error(cli, err);
}

/* ---- redrive ---- */

typedef struct redrive_values {
    pr__common common;
    pr__operator by;
    int64_t limit;
    bool dry_run;
    bool force;
    bool yes;
    const char *type;
    const char *destination;
    const char *consumer;
} redrive_values;

static const pr__option redrive_options[] = {
    PR__OPERATOR_OPTIONS(redrive_values, by),
    {"type", PR__OPTION_TEXT, "URN", "without ID: those of this type",
     offsetof(redrive_values, type), 0, 0, NULL},
    {"destination", PR__OPTION_TEXT, "ADDRESS", "without ID: those to this address",
     offsetof(redrive_values, destination), 0, 0, NULL},
    {"consumer", PR__OPTION_TEXT, "ENDPOINT", "of this endpoint's inbox instead of the outbox",
     offsetof(redrive_values, consumer), 0, 0, NULL},
    {"limit", PR__OPTION_COUNT, "N",
     "without ID: at most so many, oldest first, up to 1000 "
     "(default 100)",
     offsetof(redrive_values, limit), 1, 1000, NULL},
    {"dry-run", PR__OPTION_FLAG, NULL, "only count", offsetof(redrive_values, dry_run), 0, 0, NULL},
    {"yes", PR__OPTION_FLAG, NULL, "really redrive more than one", offsetof(redrive_values, yes), 0,
     0, NULL},
    {"force", PR__OPTION_FLAG, NULL, "also what is older than inboxes remember: it will run again",
     offsetof(redrive_values, force), 0, 0, NULL},
    {NULL, 0, NULL, NULL, 0, 0, 0, NULL},
};

static void print_redriven(pr__cli *cli, uint64_t count, bool dry_run)
{
    AUTO_BUFFER out = PR_BUFFER_INIT;
    pr__json json;
    if (!cli->json) {
        pr__print(cli, dry_run ? "%llu would be redriven" : "%llu redriven",
                  (unsigned long long)count);
        return;
    }
    pr__json_init(&json, &out);
    pr__json_object_begin(&json);
    pr__json_member_uint(&json, "count", count);
    pr__json_member_bool(&json, "dry_run", dry_run);
    pr__json_object_end(&json);
    pr__print_buffer(cli, &out);
}

/* By filter and without --yes: count first; more than one is only done when it was confirmed. */
static pr__exit confirm(pr__cli *cli, pr_store *store, const pr_redrive_options *opt)
{
    pr_error err = PR_ERROR_INIT;
    pr_redrive_options counting = *opt;
    uint64_t count = 0;
    counting.dry_run = true;
    if (pr_operations_redrive(store, &counting, &count, &err) != PR_OK)
        return pr__report_error(cli, &err);
    if (count > 1)
        return pr__report_usage(cli, "this would redrive %llu messages; repeat with --yes to do it",
                                (unsigned long long)count);
    return PR__EXIT_OK;
}

static pr__exit redrive_run(pr__cli *cli, const void *v)
{
    const redrive_values *values = v;
    const char *id = cli->arguments.count > 0 ? cli->arguments.items[0] : NULL;
    pr_error err = PR_ERROR_INIT;
    AUTO(pr_store) store = NULL;
    char who[PR__WHO_SIZE];
    uint64_t count = 0;
    pr__store_request request = {.common = &values->common};
    pr_redrive_options opt = {.size = (uint32_t)sizeof(opt),
                              .limit = (uint32_t)pr__option_or(values->limit, 0),
                              .dry_run = values->dry_run,
                              .force = values->force,
                              .box = values->consumer ? PR_BOX_INBOX : PR_BOX_OUTBOX,
                              .message_id = id,
                              .type = values->type,
                              .destination = values->destination,
                              .consumer = values->consumer,
                              .who = pr__operator_who(&values->by, who),
                              .reason = values->by.reason};
    if (id && (values->type || values->destination || values->limit != PR__UNSET))
        return pr__report_usage(cli, "an ID and a filter together; give one of them");
    if (!opt.reason && !opt.dry_run)
        return pr__report_usage(cli, "a reason is needed for the audit; add --reason TEXT");
    if (!opt.reason)
        opt.reason = "dry run";
    if (pr__wiring_store(&request, &store, &err) != PR_OK)
        return pr__report_error(cli, &err);
    if (!id && !values->dry_run && !values->yes) {
        pr__exit code = confirm(cli, store, &opt);
        if (code != PR__EXIT_OK)
            return code;
    }
    if (pr_operations_redrive(store, &opt, &count, &err) != PR_OK)
        return refuse(cli, store, id, values->consumer, &err);
    print_redriven(cli, count, values->dry_run);
    return PR__EXIT_OK;
}

const pr__command pr__command_dead_redrive = {
    .name = "dead redrive",
    .arguments = "[ID]",
    .summary = "return dead messages to pending, with the same id",
    .details = "One by its ID, or by filter. A redriven message is outside the order of its key.",
    .options = redrive_options,
    .values_size = sizeof(redrive_values),
    .arguments_max = 1,
    .uses_store = true,
    .run = redrive_run,
};

/* ---- discard ---- */

typedef struct discard_values {
    pr__common common;
    pr__operator by;
    const char *consumer;
} discard_values;

static const pr__option discard_options[] = {
    PR__OPERATOR_OPTIONS(discard_values, by),
    {"consumer", PR__OPTION_TEXT, "ENDPOINT", "of this endpoint's inbox instead of the outbox",
     offsetof(discard_values, consumer), 0, 0, NULL},
    {NULL, 0, NULL, NULL, 0, 0, 0, NULL},
};

static pr__exit discard_run(pr__cli *cli, const void *v)
{
    const discard_values *values = v;
    const char *id = cli->arguments.items[0];
    pr_error err = PR_ERROR_INIT;
    AUTO(pr_store) store = NULL;
    char who[PR__WHO_SIZE];
    pr__exit code = pr__operator_store(cli, &values->common, &values->by, &store);
    if (code != PR__EXIT_OK)
        return code;
    pr_status status = pr_operations_discard(
        store, id, values->consumer, pr__operator_who(&values->by, who), values->by.reason, &err);
    if (status != PR_OK)
        return refuse(cli, store, id, values->consumer, &err);
    pr__operator_done(cli, "discarded", id);
    return PR__EXIT_OK;
}

const pr__command pr__command_dead_discard = {
    .name = "dead discard",
    .arguments = "ID",
    .summary = "drop one dead message for good",
    .details = "Of an inbox it leaves the mark, so that a late duplicate does not run.",
    .options = discard_options,
    .values_size = sizeof(discard_values),
    .arguments_min = 1,
    .arguments_max = 1,
    .uses_store = true,
    .run = discard_run,
};
