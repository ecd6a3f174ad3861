/*
 * `postroom status`: counts by state, the oldest pending message, who is at work.
 */
#include <stdio.h>

#include <postroom/operations.h>

#include "base/text.h"
#include "base/time.h"
#include "cli/cli.h"
#include "cli/output.h"
#include "cli/wiring.h"
#include "ops/render.h"
#include "port/state.h"

typedef struct status_values {
    pr__common common;
} status_values;

static const pr__option options[] = {{NULL, 0, NULL, NULL, 0, 0, 0, NULL}};

static void print_json(pr__cli *cli, const pr_status_report *report)
{
    AUTO_BUFFER out = PR_BUFFER_INIT;
    pr__json json;
    pr__json_init(&json, &out);
    pr__render_status(&json, report);
    pr__print_buffer(cli, &out);
}

static void print_text(pr__cli *cli, const pr_status_report *report)
{
    static const pr__column columns[] = {
        {"STATE", false, 0}, {"OUTBOX", true, 0}, {"INBOX", true, 0}};
    AUTO(pr__table) table = pr__table_new(columns, 3);
    char age[48] = "none pending";
    if (report->oldest_pending_age_ms > 0)
        pr__duration_text(report->oldest_pending_age_ms * 1000, age, sizeof(age));
    pr__print(cli, "store            %s", report->store);
    pr__print(cli, "schema version   %u", report->schema_version);
    pr__print(cli, "lanes            %u", report->lanes);
    pr__print(cli, "relays at work   %u", report->relays_seen);
    pr__print(cli, "oldest pending   %s", age);
    pr__print(cli, "inbox marks      %llu", (unsigned long long)report->inbox_marks);
    pr__print(cli, "journal rows     %lld", (long long)report->journal_rows);
    pr__print(cli, "%s", "");
    if (!table) {
        pr__print(cli, "out of memory");
        return;
    }
    for (int state = PR_STATE_PENDING; state < PR_STATE_COUNT; state++) {
        char outbox[24], inbox[24];
        pr__format(outbox, sizeof(outbox), "%llu", (unsigned long long)report->outbox[state]);
        pr__format(inbox, sizeof(inbox), "%llu", (unsigned long long)report->inbox[state]);
        /* an inbox publishes nothing: what is done there was handled */
        const char *name =
            state == PR_STATE_PUBLISHED ? "published, handled" : pr__state_text((pr_state)state);
        const char *cells[] = {name, outbox, inbox};
        pr__table_row(table, cells);
    }
    pr__table_print(cli, table);
}

static pr__exit run(pr__cli *cli, const void *v)
{
    const status_values *values = v;
    pr_error err = PR_ERROR_INIT;
    AUTO(pr_store) store = NULL;
    pr_status_report report = {.size = (uint32_t)sizeof(report)};
    pr__store_request request = {.common = &values->common};
    pr_status status = pr__wiring_store(&request, &store, &err);
    if (status == PR_OK)
        status = pr_operations_status(store, &report, &err);
    if (status != PR_OK)
        return pr__report_error(cli, &err);
    if (cli->json)
        print_json(cli, &report);
    else
        print_text(cli, &report);
    return PR__EXIT_OK;
}

const pr__command pr__command_status = {
    .name = "status",
    .arguments = "",
    .summary = "count messages by state, say who is at work",
    .options = options,
    .values_size = sizeof(status_values),
    .uses_store = true,
    .run = run,
};
