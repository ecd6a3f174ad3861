/*
 * `postroom outbox show` and `postroom dead show`: every row of one message id that is asked for,
 * bodies included.
 */
#include <postroom/operations.h>

#include "base/memory.h"
#include "cli/cli.h"
#include "cli/output.h"
#include "cli/record.h"
#include "cli/wiring.h"
#include "ops/render.h"
#include "port/state.h"

/* What is asked for. */
typedef struct show_filter {
    pr_box box;     /* 0 = both */
    pr_state state; /* 0 = any */
} show_filter;

typedef struct shower {
    pr__cli *cli;
    pr__json *json;
    const show_filter *filter;
    uint32_t shown;
    uint32_t passed;
    pr_state passed_state;
} shower;

static bool show_record(void *user, const pr_record *record)
{
    shower *to = user;
    if ((to->filter->box != 0 && record->box != to->filter->box) ||
        (to->filter->state != 0 && record->state != to->filter->state)) {
        to->passed++;
        to->passed_state = record->state;
        return true;
    }
    if (to->cli->json) {
        pr__render_record(to->json, record, true);
    } else {
        if (to->shown > 0)
            pr__print(to->cli, "%s", "");
        pr__record_print(to->cli, record);
    }
    to->shown++;
    return !pr__output_failed(to->cli);
}

/* Exit 3: nothing of that id; 4: it stands, but in another state than asked for. */
static pr__exit show(pr__cli *cli, const pr__common *common, const show_filter *filter)
{
    const char *id = cli->arguments.items[0];
    AUTO_BUFFER out = PR_BUFFER_INIT;
    AUTO(pr_store) store = NULL;
    pr_error err = PR_ERROR_INIT;
    pr__json json;
    shower to = {.cli = cli, .json = &json, .filter = filter};
    pr__store_request request = {.common = common};
    pr__json_init(&json, &out);
    pr__json_object_begin(&json);
    pr__json_key(&json, "messages");
    pr__json_array_begin(&json);
    pr_status status = pr__wiring_store(&request, &store, &err);
    if (status == PR_OK)
        status = pr_operations_show(store, id, show_record, &to, &err);
    pr__json_array_end(&json);
    pr__json_object_end(&json);
    if (status != PR_OK)
        return pr__report_error(cli, &err);
    if (to.shown == 0 && filter->state != 0 && to.passed > 0)
        return pr__report(cli, PR__EXIT_STATE, "state",
                          "message '%s' is %s, not %s; see postroom explain %s", id,
                          pr__state_text(to.passed_state), pr__state_text(filter->state), id);
    if (to.shown == 0)
        return pr__report(cli, PR__EXIT_NOT_FOUND, "not-found",
                          "there is no message '%s' in the %s", id, pr__box_text(filter->box));
    if (cli->json)
        pr__print_buffer(cli, &out);
    return PR__EXIT_OK;
}

static const pr__option options[] = {{NULL, 0, NULL, NULL, 0, 0, 0, NULL}};

static pr__exit outbox_run(pr__cli *cli, const void *values)
{
    return show(cli, values, &(show_filter){.box = PR_BOX_OUTBOX});
}

const pr__command pr__command_outbox_show = {
    .name = "outbox show",
    .arguments = "ID",
    .summary = "show one message of the outbox, body included",
    .options = options,
    .values_size = sizeof(pr__common),
    .arguments_min = 1,
    .arguments_max = 1,
    .uses_store = true,
    .run = outbox_run,
};

static pr__exit dead_run(pr__cli *cli, const void *values)
{
    return show(cli, values, &(show_filter){.state = PR_STATE_DEAD});
}

const pr__command pr__command_dead_show = {
    .name = "dead show",
    .arguments = "ID",
    .summary = "show one dead message, body and last error included",
    .options = options,
    .values_size = sizeof(pr__common),
    .arguments_min = 1,
    .arguments_max = 1,
    .uses_store = true,
    .run = dead_run,
};
