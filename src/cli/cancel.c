/*
 * `postroom cancel`: takes back a delayed message before its time has come.
 */
#include <postroom/operations.h>

#include "cli/cli.h"
#include "cli/operator.h"
#include "cli/output.h"
#include "cli/wiring.h"

typedef struct cancel_values {
    pr__common common;
    pr__operator by;
} cancel_values;

static const pr__option options[] = {
    PR__OPERATOR_OPTIONS(cancel_values, by),
    {NULL, 0, NULL, NULL, 0, 0, 0, NULL},
};

static pr__exit run(pr__cli *cli, const void *v)
{
    const cancel_values *values = v;
    const char *id = cli->arguments.items[0];
    pr_error err = PR_ERROR_INIT;
    AUTO(pr_store) store = NULL;
    char who[PR__WHO_SIZE];
    pr__exit code = pr__operator_store(cli, &values->common, &values->by, &store);
    if (code != PR__EXIT_OK)
        return code;
    pr_status status = pr_operations_cancel(store, id, pr__operator_who(&values->by, who),
                                            values->by.reason, &err);
    if (status != PR_OK)
        return pr__report_error(cli, &err);
    pr__operator_done(cli, "cancelled", id);
    return PR__EXIT_OK;
}

const pr__command pr__command_cancel = {
    .name = "cancel",
    .arguments = "ID",
    .summary = "take back a delayed message before its time has come",
    .details = "A message that has already joined the outbox can no longer be taken back: exit 4.",
    .options = options,
    .values_size = sizeof(cancel_values),
    .arguments_min = 1,
    .arguments_max = 1,
    .uses_store = true,
    .run = run,
};
