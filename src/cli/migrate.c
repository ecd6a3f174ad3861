/*
 * `postroom migrate`: makes a store or brings its schema up to date; the only command that
 * creates a database file.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <postroom/store.h>

#include "base/error.h"
#include "base/text.h"
#include "cli/cli.h"
#include "cli/output.h"
#include "cli/store_name.h"
#include "cli/wiring.h"

#define ORIGIN "cli.migrate"

typedef struct migrate_values {
    pr__common common;
    int64_t lanes;
    const char *default_transport;
    int64_t order;
    bool print;
} migrate_values;

static const char *const orders[] = {"hold", "skip", "halt", NULL};

static const pr__option options[] = {
    {"lanes", PR__OPTION_COUNT, "N",
     "lanes of a new store, a power of two up to 256: the most relays that can work at once "
     "(default 16); fixed once the store stands",
     offsetof(migrate_values, lanes), 1, 256, NULL},
    {"default-transport", PR__OPTION_TEXT, "NAME",
     "where messages without a destination go (default database)",
     offsetof(migrate_values, default_transport), 0, 0, NULL},
    {"order", PR__OPTION_CHOICE, "POLICY",
     "what becomes of later messages of a key when one fails: hold, skip or halt (default hold)",
     offsetof(migrate_values, order), 0, 0, orders},
    {"print", PR__OPTION_FLAG, NULL, "print the SQL that would run, change nothing",
     offsetof(migrate_values, print), 0, 0, NULL},
    {NULL, 0, NULL, NULL, 0, 0, 0, NULL},
};

/* What --print collects: JSON in an array, or SQL as it is. */
typedef struct printer {
    pr__cli *cli;
    pr__json json;
    pr__buffer buffer;
} printer;

static void print_statement(void *user, const char *sql)
{
    printer *to = user;
    size_t size = strlen(sql);
    while (size > 0 && strchr(" \n\t;", sql[size - 1]))
        size--;
    if (to->cli->json) {
        pr__json_text_n(&to->json, sql, size);
        return;
    }
    pr__buffer_clear(&to->buffer);
    pr__buffer_append(&to->buffer, sql, size);
    pr__buffer_append_char(&to->buffer, ';');
    pr__print_buffer(to->cli, &to->buffer);
}

/* --print of a store that is not there yet: asked of an empty one in a folder of its own, so that
   no file appears where it was named. */
static pr_status open_scratch(const migrate_values *values, char folder[64], char path[96],
                              pr_store **ret_store, pr_error *err)
{
    const char *temporary = getenv("TMPDIR");
    if (!temporary || temporary[0] == '\0' || strlen(temporary) > 40)
        temporary = "/tmp";
    pr__format(folder, 64, "%s/postroom-XXXXXX", temporary);
    if (!mkdtemp(folder)) {
        folder[0] = '\0';
        return pr__fail(err, PR_E_BACKEND, ORIGIN, "cannot make a folder in '%s': %s", temporary,
                        strerror(errno));
    }
    pr__format(path, 96, "%s/new.db", folder);
    pr__common common = values->common;
    common.store = path;
    pr__store_request request = {.common = &common, .create = true};
    return pr__wiring_store(&request, ret_store, err);
}

static void remove_scratch(const char *folder, const char *path)
{
    static const char *const suffixes[] = {"", "-wal", "-shm", "-journal"};
    char name[128];
    if (folder[0] == '\0')
        return;
    for (size_t i = 0; i < sizeof(suffixes) / sizeof(suffixes[0]); i++) {
        pr__format(name, sizeof(name), "%s%s", path, suffixes[i]);
        unlink(name);
    }
    rmdir(folder);
}

static void report(pr__cli *cli, const migrate_values *values, const pr_migrate_report *done)
{
    char name[PR__STORE_LABEL_SIZE];
    pr__store_label(pr__wiring_store_name(&values->common), name, sizeof(name));
    if (cli->json) {
        AUTO_BUFFER out = PR_BUFFER_INIT;
        pr__json json;
        pr__json_init(&json, &out);
        pr__json_object_begin(&json);
        pr__json_member_text(&json, "store", name);
        pr__json_member_uint(&json, "version_before", done->version_before);
        pr__json_member_uint(&json, "version_after", done->version_after);
        pr__json_object_end(&json);
        pr__print_buffer(cli, &out);
    } else if (done->version_before == done->version_after) {
        pr__print(cli, "%s is at schema version %u already", name, done->version_after);
    } else if (done->version_before == 0) {
        pr__print(cli, "%s: made, schema version %u", name, done->version_after);
    } else {
        pr__print(cli, "%s: schema version %u -> %u", name, done->version_before,
                  done->version_after);
    }
}

/* The whole of --print; `store` is the real one, or an empty one in its place. */
static pr_status print_all(pr__cli *cli, pr_store *store, const pr_migrate_options *given,
                           pr_error *err)
{
    pr_migrate_options opt = *given;
    printer to = {.cli = cli, .buffer = PR_BUFFER_INIT};
    pr_migrate_report done = {.size = (uint32_t)sizeof(done)};
    pr__json_init(&to.json, &to.buffer);
    opt.print = print_statement;
    opt.user = &to;
    if (cli->json) {
        pr__json_object_begin(&to.json);
        pr__json_key(&to.json, "statements");
        pr__json_array_begin(&to.json);
    }
    pr_status status = pr_store_migrate(store, &opt, &done, err);
    if (cli->json && status == PR_OK) {
        pr__json_array_end(&to.json);
        pr__json_object_end(&to.json);
        pr__print_buffer(cli, &to.buffer);
    }
    pr__buffer_done(&to.buffer);
    return status;
}

static pr__exit run(pr__cli *cli, const void *v)
{
    const migrate_values *values = v;
    pr_error err = PR_ERROR_INIT;
    AUTO(pr_store) store = NULL;
    char folder[64] = "", path[96] = "";
    pr_migrate_report done = {.size = (uint32_t)sizeof(done)};
    pr_migrate_options opt = {.size = (uint32_t)sizeof(opt),
                              .lanes = (uint32_t)pr__option_or(values->lanes, 0),
                              .default_transport = values->default_transport,
                              .relay_order = (pr_order)(pr__option_or(values->order, -1) + 1)};
    pr__store_request request = {.common = &values->common, .create = true};
    const char *name = pr__wiring_store_name(&values->common);
    const char *file = name ? pr__store_path(name) : NULL;
    pr_status status;
    if (values->print && file && access(file, F_OK) != 0)
        status = open_scratch(values, folder, path, &store, &err);
    else
        status = pr__wiring_store(&request, &store, &err);
    if (status == PR_OK)
        status = values->print ? print_all(cli, store, &opt, &err)
                               : pr_store_migrate(store, &opt, &done, &err);
    store = pr_store_free(store);
    remove_scratch(folder, path);
    if (status != PR_OK)
        return pr__report_error(cli, &err);
    if (!values->print)
        report(cli, values, &done);
    return PR__EXIT_OK;
}

const pr__command pr__command_migrate = {
    .name = "migrate",
    .arguments = "",
    .summary = "make a store, or bring its schema up to date",
    .details = "Safe to repeat and to run from several processes at once. No other command makes a "
               "database.",
    .options = options,
    .values_size = sizeof(migrate_values),
    .uses_store = true,
    .run = run,
};
