/*
 * Shows every row of one message id that the filter lets through, bodies included.
 */
#include "cli/show.h"

#include <stdio.h>

#include "base/memory.h"
#include "cli/output.h"
#include "cli/record.h"
#include "cli/wiring.h"
#include "ops/render.h"
#include "port/state.h"

typedef struct shower {
    pr__cli *cli;
    pr__json *json;
    const pr__show_filter *filter;
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

pr__exit pr__show_print(pr__cli *cli, const pr__common *common, const char *id,
                        const pr__show_filter *filter)
{
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
                          "there is no message '%s' in the %s", id, pr__box_name(filter->box));
    if (cli->json)
        pr__print_buffer(cli, &out);
    return PR__EXIT_OK;
}
