/*
 * `postroom doctor`: what is wrong with the store's database, or will be, and what mends it.
 *
 * It opens a store whatever its schema and changes nothing.
 */
#include <sqlite3.h>

#include <postroom/postgres.h>

#include "base/error.h"
#include "base/text.h"
#include "cli/cli.h"
#include "cli/output.h"
#include "cli/store_name.h"
#include "cli/wiring.h"

/* Before this version two connections that checkpoint and write at once could reset the WAL. */
#define WAL_RESET_MENDED 3051003

typedef struct doctor_values {
    pr__common common;
    int64_t horizon_ms;
} doctor_values;

static const pr__option options[] = {
    {"horizon", PR__OPTION_DURATION, "TIME",
     "PostgreSQL: name transactions that have been open for so long (default 5m)",
     offsetof(doctor_values, horizon_ms), 1, 31536000000, NULL},
    {NULL, 0, NULL, NULL, 0, 0, 0, NULL},
};

typedef struct findings {
    pr__cli *cli;
    pr__json *json;
    uint32_t count;
    uint32_t faults;
} findings;

static const char *level_text(pr_finding_level level)
{
    switch (level) {
    case PR_FINDING_NOTE:
        return "note";
    case PR_FINDING_WARNING:
        return "warning";
    case PR_FINDING_FAULT:
        return "fault";
    }
    return "fault";
}

static void print_json(pr__json *json, const pr_finding *finding)
{
    pr__json_object_begin(json);
    pr__json_member_text(json, "level", level_text(finding->level));
    pr__json_member_text(json, "subject", finding->subject);
    pr__json_member_text(json, "text", finding->text);
    if (finding->remedy)
        pr__json_member_text(json, "remedy", finding->remedy);
    pr__json_object_end(json);
}

static bool take(void *user, const pr_finding *finding)
{
    findings *of = user;
    of->count++;
    of->faults += finding->level == PR_FINDING_FAULT;
    if (of->cli->json) {
        print_json(of->json, finding);
        return true;
    }
    pr__print(of->cli, "%-8s %s", level_text(finding->level), finding->text);
    if (finding->remedy)
        pr__print(of->cli, "%-8s mend it: %s", "", finding->remedy);
    return true;
}

static pr_status examine_sqlite(pr_store *store, findings *of, pr_error *err)
{
    pr_error cause = PR_ERROR_INIT;
    pr_status status = pr_store_check(store, &cause);
    if (status == PR_E_SCHEMA) {
        pr_finding finding = {.size = (uint32_t)sizeof(finding),
                              .level = PR_FINDING_FAULT,
                              .subject = "schema",
                              .text = cause.message};
        take(of, &finding);
    } else if (status != PR_OK) {
        if (err)
            *err = cause;
        return status;
    }
    if (sqlite3_libversion_number() < WAL_RESET_MENDED) {
        char text[320];
        pr__format(text, sizeof(text),
                   "SQLite %s can damage its write-ahead log when two connections checkpoint and "
                   "write at the same moment; ours never do: the relay alone checkpoints",
                   sqlite3_libversion());
        pr_finding finding = {.size = (uint32_t)sizeof(finding),
                              .level = PR_FINDING_NOTE,
                              .subject = "wal-reset",
                              .text = text,
                              .remedy = "set host connections up with pr_sqlite_prepare(), or use "
                                        "SQLite 3.51.3 or newer"};
        take(of, &finding);
    }
    return PR_OK;
}

static pr_status examine(const doctor_values *values, findings *of, pr_error *err)
{
    AUTO(pr_store) store = NULL;
    const pr__common *common = &values->common;
    pr_postgres_doctor_options opt = {.size = (uint32_t)sizeof opt,
                                      .horizon_ms = pr__option_or(values->horizon_ms, 0)};
    pr__store_request request = {.common = common, .schema_check_off = true};
    TRY(pr__wiring_store(&request, &store, err));
    if (pr__store_kind_of(pr__wiring_store_name(common)) == PR__STORE_POSTGRES)
        return pr_postgres_doctor(store, &opt, take, of, err);
    return examine_sqlite(store, of, err);
}

static pr__exit run(pr__cli *cli, const void *v)
{
    const doctor_values *values = v;
    pr_error err = PR_ERROR_INIT;
    AUTO_BUFFER out = PR_BUFFER_INIT;
    pr__json json;
    findings of = {.cli = cli, .json = &json};
    pr__json_init(&json, &out);
    pr__json_object_begin(&json);
    pr__json_key(&json, "findings");
    pr__json_array_begin(&json);
    if (examine(values, &of, &err) != PR_OK)
        return pr__report_error(cli, &err);
    pr__json_array_end(&json);
    pr__json_member_bool(&json, "ok", of.faults == 0);
    pr__json_object_end(&json);
    if (cli->json)
        pr__print_buffer(cli, &out);
    else if (of.count == 0)
        pr__print(cli, "nothing was found");
    return of.faults > 0 ? PR__EXIT_FAILED : PR__EXIT_OK;
}

const pr__command pr__command_doctor = {
    .name = "doctor",
    .arguments = "",
    .summary = "look for what is wrong with the database, or will be",
    .details =
        "Schema and columns; the sequence of ids; fsync and full_page_writes; transactions that "
        "have been open for long; clocks that differ; known faults of the database's version. "
        "Each finding says what mends it. Exit 1 when there is a fault; warnings and notes leave "
        "it 0. Nothing is changed.",
    .options = options,
    .values_size = sizeof(doctor_values),
    .uses_store = true,
    .run = run,
};
