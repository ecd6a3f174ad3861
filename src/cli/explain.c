/*
 * `postroom explain`: why a message is not moving, or where it went.
 */
#include <stdio.h>
#include <string.h>

#include <postroom/operations.h>

#include "base/text.h"
#include "base/time.h"
#include "cli/cli.h"
#include "cli/output.h"
#include "cli/wiring.h"
#include "ops/render.h"
#include "port/state.h"

typedef struct explain_values {
    pr__common common;
} explain_values;

static const pr__option explain_options[] = {{NULL, 0, NULL, NULL, 0, 0, 0, NULL}};

static void explain_json(pr__cli *cli, const char *id, const pr_explanation *found)
{
    AUTO_BUFFER out = PR_BUFFER_INIT;
    pr__json json;
    pr__json_init(&json, &out);
    pr__render_explanation(&json, id, found);
    pr__print_buffer(cli, &out);
}

static void explain_text(pr__cli *cli, const char *id, const pr_explanation *found)
{
    char text[PR_INSTANT_TEXT_SIZE], left[48];
    pr__print(cli, "%s", found->summary);
    pr__print(cli, "%s", "");
    pr__print(cli, "message          %s", id);
    pr__print(cli, "state            %s", pr__state_text(found->state));
    pr__print(cli, "box              %s", pr__box_text(found->box));
    if (found->consumer[0])
        pr__print(cli, "consumer         %s", found->consumer);
    pr__print(cli, "attempts         %u", found->attempts);
    if (found->blocker_id[0])
        pr__print(cli, "waits for        %s", found->blocker_id);
    if (found->owner[0])
        pr__print(cli, "owner            %s", found->owner);
    if (found->lease_left_ms > 0) {
        pr__duration_text(found->lease_left_ms * 1000, left, sizeof(left));
        pr__print(cli, "lease left       %s", left);
    }
    if (found->next_attempt_at_us != 0) {
        pr__instant_text(found->next_attempt_at_us, text);
        pr__print(cli, "next attempt at  %s", text);
    }
}

static pr__exit explain_run(pr__cli *cli, const void *v)
{
    const explain_values *values = v;
    const char *id = cli->arguments.items[0];
    pr_error err = PR_ERROR_INIT;
    AUTO(pr_store) store = NULL;
    pr_explanation found = {.size = (uint32_t)sizeof(found)};
    pr__store_request request = {.common = &values->common};
    pr_status status = pr__wiring_store(&request, &store, &err);
    if (status == PR_OK)
        status = pr_operations_explain(store, id, &found, &err);
    if (status != PR_OK)
        return pr__report_error(cli, &err);
    if (cli->json)
        explain_json(cli, id, &found);
    else
        explain_text(cli, id, &found);
    return PR__EXIT_OK;
}

const pr__command pr__command_explain = {
    .name = "explain",
    .arguments = "ID",
    .summary = "say why a message is not moving, or where it went",
    .options = explain_options,
    .values_size = sizeof(explain_values),
    .arguments_min = 1,
    .arguments_max = 1,
    .uses_store = true,
    .run = explain_run,
};
