/*
 * `postroom saga list | show | release`: the sagas of a store, and leases that were left behind.
 */
#include <stdio.h>
#include <string.h>

#include <postroom/saga_operations.h>

#include "base/error.h"
#include "base/memory.h"
#include "base/text.h"
#include "base/time.h"
#include "cli/cli.h"
#include "cli/list.h"
#include "cli/operator.h"
#include "cli/output.h"
#include "cli/wiring.h"
#include "ops/render.h"

/* ---- list ---- */

typedef struct list_values {
    pr__common common;
    int64_t phase;
    int64_t limit;
    bool leased;
    const char *type;
    const char *tenant;
    const char *after;
} list_values;

static const char *const phases[] = {"running", "completed", NULL};

static const pr__option list_options[] = {
    {"type", PR__OPTION_TEXT, "NAME", "only those of this saga type", offsetof(list_values, type),
     0, 0, NULL},
    {"phase", PR__OPTION_CHOICE, "PHASE", "only running or only completed ones",
     offsetof(list_values, phase), 0, 0, phases},
    {"leased", PR__OPTION_FLAG, NULL, "only those with a lease, live or expired",
     offsetof(list_values, leased), 0, 0, NULL},
    {"tenant", PR__OPTION_TEXT, "TENANT", "only those of this tenant",
     offsetof(list_values, tenant), 0, 0, NULL},
    {"limit", PR__OPTION_COUNT, "N", "at most so many, up to 1000 (default 100)",
     offsetof(list_values, limit), 1, 1000, NULL},
    {"after", PR__OPTION_TEXT, "CURSOR", "go on where the page before ended",
     offsetof(list_values, after), 0, 0, NULL},
    {NULL, 0, NULL, NULL, 0, 0, 0, NULL},
};

static const pr__column list_columns[] = {
    {"TYPE", false, 0.2},  {"KEY", false, 0.3},   {"PHASE", false, 0},   {"VERSION", true, 0},
    {"UPDATED", false, 0}, {"LEASE", false, 0.2}, {"FAULT", false, 0.2},
};

typedef struct lister {
    pr__cli *cli;
    pr__json *json;
    pr__table *table;
} lister;

static bool list_record(void *user, const pr_saga_record *record)
{
    lister *to = user;
    char version[24], updated[PR_INSTANT_TEXT_SIZE], lease[160] = "";
    if (to->cli->json) {
        pr__render_saga(to->json, record, false);
        return true;
    }
    pr__format(version, sizeof(version), "%lld", (long long)record->version);
    pr__instant_text(record->updated_at_us, updated);
    if (record->lease_owner)
        pr__format(lease, sizeof(lease), "%s%s", record->lease_owner,
                   record->lease_left_ms > 0 ? "" : " (expired)");
    const char *cells[] = {
        record->saga_type, record->key, record->completed_at_us ? "completed" : "running",
        version,           updated,     lease,
        record->unreadable};
    pr__table_row(to->table, cells);
    return true;
}

static pr__exit list_run(pr__cli *cli, const void *v)
{
    const list_values *values = v;
    static const pr_saga_phase of_choice[] = {PR_SAGA_RUNNING, PR_SAGA_COMPLETED};
    AUTO_BUFFER out = PR_BUFFER_INIT;
    AUTO(pr_store) store = NULL;
    AUTO(pr__table)
    table = pr__table_new(list_columns, sizeof(list_columns) / sizeof(list_columns[0]));
    pr_error err = PR_ERROR_INIT;
    pr__json json;
    lister to = {.cli = cli, .json = &json, .table = table};
    pr_saga_list_page page = {.size = (uint32_t)sizeof(page)};
    pr_saga_list_options opt = {.size = (uint32_t)sizeof(opt),
                                .limit = (uint32_t)pr__option_or(values->limit, 0),
                                .phase = values->phase == PR__UNSET ? 0 : of_choice[values->phase],
                                .leased = values->leased,
                                .saga_type = values->type,
                                .tenant = values->tenant,
                                .after = values->after};
    pr__store_request request = {.common = &values->common};
    if (!table)
        return pr__report(cli, PR__EXIT_FAILED, "no-memory", "out of memory");
    pr__page_begin(&json, &out, "sagas");
    pr_status status = pr__wiring_store(&request, &store, &err);
    if (status == PR_OK)
        status = pr_operations_sagas(store, &opt, &page, list_record, &to, &err);
    if (status != PR_OK)
        return pr__report_error(cli, &err);
    pr__page_end(cli, &json, table, "sagas", page.count, page.next);
    return PR__EXIT_OK;
}

const pr__command pr__command_saga_list = {
    .name = "saga list",
    .arguments = "",
    .summary = "list sagas in the order in which they were started",
    .options = list_options,
    .values_size = sizeof(list_values),
    .uses_store = true,
    .run = list_run,
};

/* ---- show ---- */

typedef struct one_values {
    pr__common common;
    const char *tenant;
} one_values;

static const pr__option show_options[] = {
    {"tenant", PR__OPTION_TEXT, "TENANT", "of this tenant (default none)",
     offsetof(one_values, tenant), 0, 0, NULL},
    {NULL, 0, NULL, NULL, 0, 0, 0, NULL},
};

static void print_json(pr__cli *cli, const pr_saga_record *record)
{
    AUTO_BUFFER out = PR_BUFFER_INIT;
    pr__json json;
    pr__json_init(&json, &out);
    pr__render_saga(&json, record, true);
    pr__print_buffer(cli, &out);
}

static bool show_record(void *user, const pr_saga_record *record)
{
    pr__cli *cli = user;
    char number[48];
    if (cli->json) {
        print_json(cli, record);
        return true;
    }
    pr__print_field(cli, "saga type", record->saga_type);
    pr__print_field(cli, "key", record->key);
    pr__print_field(cli, "tenant", record->tenant);
    pr__print_field(cli, "instance", record->instance_id);
    pr__print_field(cli, "phase", record->completed_at_us ? "completed" : "running");
    pr__print_field(cli, "damaged", record->unreadable);
    pr__format(number, sizeof(number), "%lld", (long long)record->version);
    pr__print_field(cli, "version", number);
    if (record->lease_owner) {
        pr__print_field(cli, "leased by", record->lease_owner[0] ? record->lease_owner : "unnamed");
        pr__print_instant(cli, "leased until", record->lease_until_us);
        pr__print_field(cli, "lease", record->lease_left_ms > 0 ? "live" : "expired");
    }
    pr__print_instant(cli, "started at", record->started_at_us);
    pr__print_instant(cli, "updated at", record->updated_at_us);
    pr__print_instant(cli, "completed at", record->completed_at_us);
    pr__print_field(cli, "open timeouts", strcmp(record->timeouts, "[]") ? record->timeouts : NULL);
    pr__print_field(cli, "last messages", record->last_messages);
    pr__format(number, sizeof(number), "version %u, %llu bytes", record->state_version,
               (unsigned long long)record->state_size_bytes);
    pr__print_field(cli, "state", number);
    pr__print_data(cli, "state", record->state, (size_t)record->state_size_bytes, "");
    return true;
}

static pr__exit show_run(pr__cli *cli, const void *v)
{
    const one_values *values = v;
    pr_error err = PR_ERROR_INIT;
    AUTO(pr_store) store = NULL;
    pr__store_request request = {.common = &values->common};
    pr_status status = pr__wiring_store(&request, &store, &err);
    if (status == PR_OK)
        status = pr_operations_saga_show(store, values->tenant, cli->arguments.items[0],
                                         cli->arguments.items[1], show_record, cli, &err);
    return status == PR_OK ? PR__EXIT_OK : pr__report_error(cli, &err);
}

const pr__command pr__command_saga_show = {
    .name = "saga show",
    .arguments = "TYPE KEY",
    .summary = "show one saga: state, version, lease, last messages, open timeouts",
    .options = show_options,
    .values_size = sizeof(one_values),
    .arguments_min = 2,
    .arguments_max = 2,
    .uses_store = true,
    .run = show_run,
};

/* ---- release ---- */

typedef struct release_values {
    pr__common common;
    pr__operator by;
    const char *tenant;
    bool force;
} release_values;

static const pr__option release_options[] = {
    PR__OPERATOR_OPTIONS(release_values, by),
    {"tenant", PR__OPTION_TEXT, "TENANT", "of this tenant (default none)",
     offsetof(release_values, tenant), 0, 0, NULL},
    {"force", PR__OPTION_FLAG, NULL, "also a live lease: what its holder saves is refused then",
     offsetof(release_values, force), 0, 0, NULL},
    {NULL, 0, NULL, NULL, 0, 0, 0, NULL},
};

static void print_released(pr__cli *cli, const char *type, const char *key)
{
    AUTO_BUFFER out = PR_BUFFER_INIT;
    pr__json json;
    if (!cli->json) {
        pr__print(cli, "released %s %s", type, key);
        return;
    }
    pr__json_init(&json, &out);
    pr__json_object_begin(&json);
    pr__json_member_text(&json, "saga_type", type);
    pr__json_member_text(&json, "key", key);
    pr__json_member_text(&json, "done", "released");
    pr__json_object_end(&json);
    pr__print_buffer(cli, &out);
}

static pr__exit release_run(pr__cli *cli, const void *v)
{
    const release_values *values = v;
    pr_error err = PR_ERROR_INIT;
    AUTO(pr_store) store = NULL;
    char who[PR__WHO_SIZE];
    pr_saga_release_options opt = {.size = (uint32_t)sizeof(opt),
                                   .force = values->force,
                                   .tenant = values->tenant,
                                   .saga_type = cli->arguments.items[0],
                                   .key = cli->arguments.items[1],
                                   .who = pr__operator_who(&values->by, who),
                                   .reason = values->by.reason};
    pr__exit code = pr__operator_store(cli, &values->common, &values->by, &store);
    if (code != PR__EXIT_OK)
        return code;
    if (pr_operations_saga_release(store, &opt, &err) != PR_OK)
        return pr__report_error(cli, &err);
    print_released(cli, opt.saga_type, opt.key);
    return PR__EXIT_OK;
}

const pr__command pr__command_saga_release = {
    .name = "saga release",
    .arguments = "TYPE KEY",
    .summary = "clear the lease of a saga whose holder is gone",
    .details = "An expired one; a live one only with --force. Its messages move it again at once, "
               "and once it is completed it can be swept.",
    .options = release_options,
    .values_size = sizeof(release_values),
    .arguments_min = 2,
    .arguments_max = 2,
    .uses_store = true,
    .run = release_run,
};
