/*
 * `postroom contract list` and `postroom contract show`: what a program's contracts say.
 *
 * A contract is a table in a program. A shared object that has the same tables hands them to the
 * command by one constant, `postroom_contracts`; without one, the demo's are shown.
 */
#include <dlfcn.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include <postroom/contract.h>

#include "base/error.h"
#include "base/memory.h"
#include "base/text.h"
#include "cli/cli.h"
#include "cli/demo/demo.h"
#include "cli/output.h"

#define ORIGIN        "cli.contract"
#define SYMBOL        "postroom_contracts"
#define CONTRACTS_MAX 10000 /* of one shared object */
#define SHOW_FLAGS    (JSON_INDENT(2) | JSON_PRESERVE_ORDER)

DEFINE_AUTO(pr_contracts, pr_contracts_free);

typedef struct contract_values {
    pr__common common;
    const char *load;
    int64_t version;
    bool example;
} contract_values;

#define LOAD_OPTION                                                                                \
    {                                                                                              \
        "load", PR__OPTION_TEXT, "FILE",                                                           \
            "a shared object with the constant " SYMBOL " (default: the demo's contracts)",        \
            offsetof(contract_values, load), 0, 0, NULL                                            \
    }

static const pr__option list_options[] = {
    LOAD_OPTION,
    {NULL, 0, NULL, NULL, 0, 0, 0, NULL},
};

static const pr__option show_options[] = {
    LOAD_OPTION,
    {"version", PR__OPTION_COUNT, "N", "schema version of the type (default: the newest)",
     offsetof(contract_values, version), 1, INT32_MAX, NULL},
    {"example", PR__OPTION_FLAG, NULL,
     "an example instead of the schema: a line for postroom send --lines",
     offsetof(contract_values, example), 0, 0, NULL},
    {NULL, 0, NULL, NULL, 0, 0, 0, NULL},
};

/* What was loaded; the shared object stays, as the contracts are in it. */
typedef struct loaded {
    const pr_contract *const *items; /* ended by NULL */
    size_t count;
} loaded;

static pr_status open_object(const char *file, loaded *ret_loaded, pr_error *err)
{
    AUTO_BUFFER path = PR_BUFFER_INIT;
    /* a name without a slash would be looked for among the system's libraries */
    pr__buffer_printf(&path, "%s%s", strchr(file, '/') ? "" : "./", file);
    if (!pr__buffer_text(&path))
        return pr__fail_nomem(err, ORIGIN);
    void *object = dlopen(pr__buffer_text(&path), RTLD_NOW | RTLD_LOCAL);
    if (!object)
        return pr__fail(err, PR_E_NOT_FOUND, ORIGIN, "cannot load '%s': %s", file, dlerror());
    ret_loaded->items = dlsym(object, SYMBOL);
    if (!ret_loaded->items)
        return pr__fail(err, PR_E_INVALID, ORIGIN,
                        "'%s' has no '" SYMBOL "'; add: const pr_contract *const " SYMBOL
                        "[] = {&first, NULL};",
                        file);
    return PR_OK;
}

/* Whatever is shown was registered before: a bad table is told, not shown. */
static pr_status load(const char *file, loaded *ret_loaded, pr_error *err)
{
    AUTO(pr_contracts) contracts = NULL;
    if (file)
        TRY(open_object(file, ret_loaded, err));
    else
        ret_loaded->items = pr__demo_contract_list();
    TRY(pr_contracts_new(&contracts, err));
    for (ret_loaded->count = 0; ret_loaded->items[ret_loaded->count]; ret_loaded->count++) {
        if (ret_loaded->count == CONTRACTS_MAX)
            return pr__fail(err, PR_E_LIMIT, ORIGIN,
                            "more than %d contracts, or no end: one that is NULL", CONTRACTS_MAX);
        TRY(pr_contracts_register(contracts, ret_loaded->items[ret_loaded->count], err));
    }
    return PR_OK;
}

static uint32_t version_of(const pr_contract *contract)
{
    return contract->type_version == 0 ? 1 : contract->type_version;
}

static const char *kind_text(const pr_contract *contract)
{
    switch (contract->kind) {
    case PR_CONTRACT_DOMAIN_EVENT:
        return "domain event";
    case PR_CONTRACT_INTEGRATION_EVENT:
        return "integration event";
    case PR_CONTRACT_COMMAND:
        return "command";
    case PR_CONTRACT_REPLY:
        return "reply";
    }
    return "";
}

/* ---- contract list ---- */

static void list_json(pr__cli *cli, const loaded *all)
{
    AUTO_BUFFER out = PR_BUFFER_INIT;
    pr__json json;
    pr__json_init(&json, &out);
    pr__json_object_begin(&json);
    pr__json_key(&json, "contracts");
    pr__json_array_begin(&json);
    for (size_t i = 0; i < all->count; i++) {
        pr__json_object_begin(&json);
        pr__json_member_text(&json, "type", all->items[i]->type);
        pr__json_member_uint(&json, "version", version_of(all->items[i]));
        pr__json_member_text(&json, "kind", kind_text(all->items[i]));
        pr__json_member_text(&json, "content_type", pr_contract_content_type(all->items[i]));
        pr__json_object_end(&json);
    }
    pr__json_array_end(&json);
    pr__json_object_end(&json);
    pr__print_buffer(cli, &out);
}

static pr__exit list_table(pr__cli *cli, const loaded *all)
{
    static const pr__column columns[] = {{"TYPE", false, 0.6},
                                         {"VERSION", true, 0},
                                         {"KIND", false, 0},
                                         {"CONTENT TYPE", false, 0.4}};
    AUTO(pr__table) table = pr__table_new(columns, sizeof(columns) / sizeof(columns[0]));
    if (!table)
        return pr__report(cli, PR__EXIT_FAILED, "no-memory", "out of memory");
    for (size_t i = 0; i < all->count; i++) {
        char version[16];
        pr__format(version, sizeof(version), "%u", (unsigned)version_of(all->items[i]));
        const char *cells[] = {all->items[i]->type, version, kind_text(all->items[i]),
                               pr_contract_content_type(all->items[i])};
        pr__table_row(table, cells);
    }
    pr__table_print(cli, table);
    return PR__EXIT_OK;
}

static pr__exit list_run(pr__cli *cli, const void *v)
{
    const contract_values *values = v;
    pr_error err = PR_ERROR_INIT;
    loaded all = {NULL, 0};
    if (load(values->load, &all, &err) != PR_OK)
        return pr__report_error(cli, &err);
    if (!cli->json)
        return list_table(cli, &all);
    list_json(cli, &all);
    return PR__EXIT_OK;
}

const pr__command pr__command_contract_list = {
    .name = "contract list",
    .arguments = "",
    .summary = "list the contracts of a program's shared object",
    .options = list_options,
    .values_size = sizeof(contract_values),
    .run = list_run,
};

/* ---- contract show ---- */

static const pr_contract *find(const loaded *all, const char *type, int64_t version)
{
    const pr_contract *found = NULL;
    for (size_t i = 0; i < all->count; i++) {
        const pr_contract *contract = all->items[i];
        if (strcmp(contract->type, type) != 0)
            continue;
        if (version == PR__UNSET ? !found || version_of(contract) > version_of(found)
                                 : (int64_t)version_of(contract) == version)
            found = contract;
    }
    return found;
}

/* What the body repeats of the envelope stands there too: they must be the same. */
static void print_repeated(pr__json *json, const pr_contract *contract, const char *body)
{
    json_t *value = json_loads(body, 0, NULL);
    for (const pr_field *field = contract->fields; value && field->name; field++) {
        const char *text = json_string_value(json_object_get(value, field->name));
        if (!text || !(field->flags & (PR_FIELD_MESSAGE_ID | PR_FIELD_OCCURRED_AT)))
            continue;
        pr__json_member_text(json, field->flags & PR_FIELD_MESSAGE_ID ? "id" : "occurred_at", text);
    }
    json_decref(value);
}

/* The line that `postroom send --lines` reads. */
static pr_status print_example(pr__cli *cli, const pr_contract *contract, pr_error *err)
{
    AUTO_BUFFER out = PR_BUFFER_INIT;
    char *body = NULL;
    pr__json json;
    TRY(pr_contract_example(contract, &body, err));
    pr__json_init(&json, &out);
    pr__json_object_begin(&json);
    pr__json_member_text(&json, "type", contract->type);
    pr__json_member_uint(&json, "version", version_of(contract));
    print_repeated(&json, contract, body);
    pr__json_key(&json, "body");
    pr__json_raw(&json, body, strlen(body));
    pr__json_object_end(&json);
    pr_free(body);
    pr__print_buffer(cli, &out);
    return PR_OK;
}

static int append(const char *piece, size_t size, void *user)
{
    pr__buffer_append(user, piece, size);
    return 0;
}

static pr_status print_schema(pr__cli *cli, const pr_contract *contract, pr_error *err)
{
    AUTO_BUFFER out = PR_BUFFER_INIT;
    char *schema = NULL;
    TRY(pr_contract_schema(contract, &schema, err));
    json_t *value = cli->json ? NULL : json_loads(schema, 0, NULL);
    if (value) /* for eyes */
        json_dump_callback(value, append, &out, SHOW_FLAGS);
    else
        pr__buffer_append_text(&out, schema);
    json_decref(value);
    pr_free(schema);
    pr__print_buffer(cli, &out);
    return PR_OK;
}

static pr__exit show_run(pr__cli *cli, const void *v)
{
    const contract_values *values = v;
    const char *type = cli->arguments.items[0];
    pr_error err = PR_ERROR_INIT;
    loaded all = {NULL, 0};
    if (load(values->load, &all, &err) != PR_OK)
        return pr__report_error(cli, &err);
    const pr_contract *contract = find(&all, type, values->version);
    if (!contract)
        return pr__report(cli, PR__EXIT_NOT_FOUND, "not-found",
                          "there is no contract '%s'%s; see postroom contract list", type,
                          values->version == PR__UNSET ? "" : " of this version");
    pr_status status =
        values->example ? print_example(cli, contract, &err) : print_schema(cli, contract, &err);
    return status == PR_OK ? PR__EXIT_OK : pr__report_error(cli, &err);
}

const pr__command pr__command_contract_show = {
    .name = "contract show",
    .arguments = "TYPE",
    .summary = "show a contract's JSON Schema, or an example message",
    .details = "The shared object is code: load only what you would run.",
    .options = show_options,
    .values_size = sizeof(contract_values),
    .arguments_min = 1,
    .arguments_max = 1,
    .run = show_run,
};
