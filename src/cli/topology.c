/*
 * `postroom topology declare`, `check` and `show`: the exchanges and queues of an endpoint on
 * RabbitMQ.
 *
 * Nothing that stands is changed: what differs is told, and an operator decides.
 */
#include <stdlib.h>

#include <postroom/amqp.h>

#include "base/error.h"
#include "base/text.h"
#include "cli/cli.h"
#include "cli/output.h"
#include "cli/wiring.h"
#include "transport/amqp/inspect.h"
#include "transport/amqp/names.h"

#define ORIGIN "cli.topology"

typedef struct topology_values {
    pr__common common;
    const char *broker;
    const char *exchange_prefix;
    pr__texts types;
    bool quorum;
} topology_values;

static const pr__option options[] = {
    {"broker", PR__OPTION_TEXT, "URI",
     "amqp:// or amqps://; several, for one cluster, joined by commas (default: the environment's "
     "POSTROOM_AMQP)",
     offsetof(topology_values, broker), 0, 0, NULL},
    {"type", PR__OPTION_LIST, "URN", "a type that the endpoint takes; may be given several times",
     offsetof(topology_values, types), 0, 0, NULL},
    {"exchange-prefix", PR__OPTION_TEXT, "TEXT",
     "stands in front of every exchange and queue (default none)",
     offsetof(topology_values, exchange_prefix), 0, 0, NULL},
    {"quorum", PR__OPTION_FLAG, NULL, "quorum queues (default: classic ones)",
     offsetof(topology_values, quorum), 0, 0, NULL},
    {NULL, 0, NULL, NULL, 0, 0, 0, NULL},
};

static pr_subscribe_options wanted(const pr__cli *cli, const topology_values *values)
{
    return (pr_subscribe_options){.size = (uint32_t)sizeof(pr_subscribe_options),
                                  .endpoint = cli->arguments.items[0],
                                  .types = values->types.items,
                                  .type_count = values->types.count};
}

static pr_status open_broker(const topology_values *values, pr__link *ret_link, pr_error *err)
{
    pr__link_request request = {
        .text = values->broker ? values->broker : "amqp:",
        .common = &values->common,
        .exchange_prefix = values->exchange_prefix,
        .queue_kind = values->quorum ? PR_AMQP_QUEUE_QUORUM : PR_AMQP_QUEUE_CLASSIC,
    };
    if (!pr__wiring_is_amqp(request.text))
        return pr__fail(err, PR_E_INVALID, ORIGIN,
                        "--broker begins neither with amqp:// nor with amqps://");
    return pr__wiring_link(&request, ret_link, err);
}

/* ---- declare, check ---- */

static pr__exit made_or_checked(pr__cli *cli, const topology_values *values, bool check_only)
{
    pr_error err = PR_ERROR_INIT;
    pr__link link = {NULL, NULL, ""};
    pr_subscribe_options opt = wanted(cli, values);
    pr_status status = open_broker(values, &link, &err);
    if (status == PR_OK)
        status = pr_transport_topology(link.transport, &opt, check_only, &err);
    pr__link_done(&link);
    if (status != PR_OK)
        return pr__report_error(cli, &err);
    if (cli->json) {
        AUTO_BUFFER out = PR_BUFFER_INIT;
        pr__json json;
        pr__json_init(&json, &out);
        pr__json_object_begin(&json);
        pr__json_member_text(&json, "endpoint", opt.endpoint);
        pr__json_member_bool(&json, check_only ? "equal" : "declared", true);
        pr__json_object_end(&json);
        pr__print_buffer(cli, &out);
    } else {
        pr__print(cli, check_only ? "endpoint '%s' stands as it should" : "endpoint '%s' is there",
                  opt.endpoint);
    }
    return PR__EXIT_OK;
}

static pr__exit run_declare(pr__cli *cli, const void *v)
{
    return made_or_checked(cli, v, /* check_only= */ false);
}

static pr__exit run_check(pr__cli *cli, const void *v)
{
    return made_or_checked(cli, v, /* check_only= */ true);
}

/* ---- show ---- */

typedef struct row {
    const char *kind;   /* exchange, queue, binding */
    const char *name;   /* of it; of a binding the queue */
    const char *from;   /* a binding's exchange */
    const char *key;    /* a binding's routing key */
    const char *detail; /* type and arguments */
} row;

typedef struct showing {
    pr__cli *cli;
    pr__table *table;
    pr__json *json;
    pr_transport *transport; /* NULL: no broker is named */
} showing;

static void member(pr__json *json, const char *key, const char *value)
{
    if (value)
        pr__json_member_text(json, key, value);
}

/* How many stand in a queue now; a queue that is not there is told as such. */
static pr_status look(const showing *of, const row *what, char *out, size_t out_size, pr_error *err)
{
    uint32_t messages = 0, consumers = 0;
    pr_error local = PR_ERROR_INIT;
    out[0] = '\0';
    if (!of->transport || what->kind[0] != 'q')
        return PR_OK;
    pr_status status =
        pr__amqp_queue_look(of->transport, what->name, &messages, &consumers, &local);
    if (status == PR_OK)
        pr__format(out, out_size, "%u ready, %u consumers", messages, consumers);
    else if (status == PR_E_NOT_FOUND)
        pr__format(out, out_size, "missing");
    else
        pr__error_copy(err, &local);
    return status == PR_E_NOT_FOUND ? PR_OK : status;
}

static pr_status show_row(const showing *of, const row *what, pr_error *err)
{
    char now[64];
    TRY(look(of, what, now, sizeof(now), err));
    if (of->cli->json) {
        pr__json_object_begin(of->json);
        member(of->json, "kind", what->kind);
        member(of->json, "name", what->name);
        member(of->json, "from", what->from);
        member(of->json, "key", what->key);
        member(of->json, "detail", what->detail);
        member(of->json, "now", now[0] ? now : NULL);
        pr__json_object_end(of->json);
        return PR_OK;
    }
    const char *cells[] = {what->kind, what->name, what->from, what->key, what->detail, now};
    pr__table_row(of->table, cells);
    return PR_OK;
}

static pr_status show_all(const showing *of, const topology_values *values,
                          const pr_subscribe_options *opt, pr_error *err)
{
    const char *prefix = values->exchange_prefix ? values->exchange_prefix : "";
    pr__amqp_names names;
    char types[PR__AMQP_NAME_SIZE], own[PR__AMQP_NAME_SIZE + 40], dead[PR__AMQP_NAME_SIZE + 80];
    TRY(pr__amqp_prefix_check(prefix, err));
    TRY(pr__amqp_names_of(opt, prefix, &names, err));
    TRY(pr__amqp_types_text(opt, names.queue, types, err));
    pr__format(own, sizeof(own), "direct, alternate-exchange=%s", types);
    pr__format(dead, sizeof(dead), "%sx-dead-letter-exchange=, x-dead-letter-routing-key=%s",
               values->quorum ? "quorum, x-delivery-limit=1000000, " : "classic, ", names.dead);
    const row first[] = {
        {.kind = "exchange", .name = names.exchange, .detail = own},
        {.kind = "queue", .name = names.dead, .detail = values->quorum ? "quorum" : "classic"},
        {.kind = "queue", .name = names.queue, .detail = dead},
    };
    for (size_t i = 0; i < sizeof(first) / sizeof(first[0]); i++)
        TRY(show_row(of, &first[i], err));
    for (size_t i = 0; i < opt->type_count; i++) {
        pr__amqp_target target;
        TRY(pr__amqp_binding_of(opt->types[i], prefix, &target, err));
        const row each[] = {
            {.kind = "exchange", .name = target.exchange, .detail = "topic"},
            {.kind = "binding", .name = names.queue, .from = target.exchange, .key = target.key},
            {.kind = "binding", .name = names.queue, .from = names.exchange, .key = opt->types[i]},
        };
        for (size_t k = 0; k < sizeof(each) / sizeof(each[0]); k++)
            TRY(show_row(of, &each[k], err));
    }
    return PR_OK;
}

static pr__exit run_show(pr__cli *cli, const void *v)
{
    static const pr__column columns[] = {{"kind", false, 0},     {"name", false, 0.25},
                                         {"from", false, 0.2},   {"key", false, 0.25},
                                         {"detail", false, 0.3}, {"now", false, 0}};
    const topology_values *values = v;
    const char *said = getenv(PR__AMQP_ENVIRONMENT);
    pr_error err = PR_ERROR_INIT;
    pr__link link = {NULL, NULL, ""};
    pr_subscribe_options opt = wanted(cli, values);
    AUTO_BUFFER out = PR_BUFFER_INIT;
    AUTO(pr__table) table = pr__table_new(columns, sizeof(columns) / sizeof(columns[0]));
    pr__json json;
    pr__json_init(&json, &out);
    pr__json_object_begin(&json);
    member(&json, "endpoint", opt.endpoint);
    pr__json_key(&json, "topology");
    pr__json_array_begin(&json);
    pr_status status = table ? PR_OK : pr__fail_nomem(&err, ORIGIN);
    if (status == PR_OK && (values->broker || !pr__text_empty(said)))
        status = open_broker(values, &link, &err);
    showing of = {.cli = cli, .table = table, .json = &json, .transport = link.transport};
    if (status == PR_OK)
        status = show_all(&of, values, &opt, &err);
    pr__link_done(&link);
    if (status != PR_OK)
        return pr__report_error(cli, &err);
    pr__json_array_end(&json);
    pr__json_object_end(&json);
    if (cli->json)
        pr__print_buffer(cli, &out);
    else
        pr__table_print(cli, table);
    return PR__EXIT_OK;
}

const pr__command pr__command_topology_declare = {
    .name = "topology declare",
    .arguments = "ENDPOINT",
    .summary = "make an endpoint's exchanges and queues on RabbitMQ",
    .details =
        "A durable topic exchange for each namespace, a queue for the endpoint bound to its types, "
        "a dead queue, and an exchange of its own. It may be run again. What stands with other "
        "properties, or for other types, is told and not changed: exit 4.",
    .options = options,
    .values_size = sizeof(topology_values),
    .arguments_min = 1,
    .arguments_max = 1,
    .run = run_declare,
};

const pr__command pr__command_topology_check = {
    .name = "topology check",
    .arguments = "ENDPOINT",
    .summary = "look whether an endpoint stands on RabbitMQ as it should",
    .details = "Exit 3 when something is missing, 4 when something differs. Nothing is made. "
               "Bindings cannot be asked for in AMQP: declare makes them again.",
    .options = options,
    .values_size = sizeof(topology_values),
    .arguments_min = 1,
    .arguments_max = 1,
    .run = run_check,
};

const pr__command pr__command_topology_show = {
    .name = "topology show",
    .arguments = "ENDPOINT",
    .summary = "show what an endpoint has on RabbitMQ, by convention",
    .details = "Without a broker only names and arguments, for who makes them by other means; with "
               "one also what stands in the queues.",
    .options = options,
    .values_size = sizeof(topology_values),
    .arguments_min = 1,
    .arguments_max = 1,
    .run = run_show,
};
