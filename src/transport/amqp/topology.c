/*
 * Topology.
 *
 * Owns: what is declared for an endpoint, in which order, and how a difference is told.
 * Keeps: nothing that stands is changed, bound anew or deleted when it differs: it is reported. The
 * set of types is an argument of the endpoint's own exchange, declared first, so that another set
 * is found before a binding is made. A check makes nothing that is missing.
 * Must not know: consuming.
 *
 * Bindings themselves cannot be asked for in AMQP 0-9-1; a declare makes them again.
 */
#include "transport/amqp/topology.h"

#include <string.h>

#include "base/error.h"
#include "base/text.h"

#define ORIGIN "amqp.topology"

typedef struct asking {
    pr__amqp_connection *connection;
    const char *prefix;
    const char *endpoint;
    bool quorum;
    bool check_only;
    bool open; /* the channel is */
} asking;

static amqp_table_entry_t argument(const char *name, const char *value)
{
    amqp_table_entry_t entry = {.key = amqp_cstring_bytes(name),
                                .value = {.kind = AMQP_FIELD_KIND_UTF8}};
    entry.value.value.bytes = amqp_cstring_bytes(value);
    return entry;
}

static pr_status open_channel(asking *ask, pr_error *err)
{
    if (!ask->open)
        TRY(pr__amqp_channel_open(ask->connection, PR__TOPOLOGY_CHANNEL, false, err));
    ask->open = true;
    return PR_OK;
}

/* How the last call went. A closed channel is opened again, so that the connection stays of use. */
static pr_status answer(asking *ask, const char *what, pr_error *err)
{
    pr_error local = PR_ERROR_INIT;
    pr_status status = pr__amqp_check_rpc(ask->connection, what, &local);
    if (status == PR_OK)
        return PR_OK;
    if (status == PR_E_NOT_FOUND)
        pr__error_context(&local, "endpoint '%s' is not declared (postroom topology declare)",
                          ask->endpoint);
    else if (status == PR_E_CONFLICT)
        pr__error_context(&local, "endpoint '%s' stands with other properties; nothing was changed",
                          ask->endpoint);
    pr__error_copy(err, &local);
    if (!ask->connection->broken) {
        pr_status ignored =
            pr__amqp_channel_open(ask->connection, PR__TOPOLOGY_CHANNEL, true, NULL);
        (void)ignored;
    }
    return status;
}

static pr_status ask_exchange(asking *ask, const char *name, const char *kind, bool passive,
                              amqp_table_t arguments, pr_error *err)
{
    char what[PR__AMQP_NAME_SIZE + 40];
    TRY(open_channel(ask, err));
    pr__format(what, sizeof(what), "exchange.declare '%s'", name);
    amqp_exchange_declare(ask->connection->state, PR__TOPOLOGY_CHANNEL, amqp_cstring_bytes(name),
                          amqp_cstring_bytes(kind), passive, /* durable= */ 1,
                          /* auto_delete= */ 0, /* internal= */ 0, arguments);
    return answer(ask, what, err);
}

/* To check is: is it there, and if so, would declaring it be the same? */
static pr_status exchange(asking *ask, const char *name, const char *kind, amqp_table_t arguments,
                          pr_error *err)
{
    if (ask->check_only)
        TRY(ask_exchange(ask, name, kind, /* passive= */ true, amqp_empty_table, err));
    return ask_exchange(ask, name, kind, /* passive= */ false, arguments, err);
}

static pr_status ask_queue(asking *ask, const char *name, bool passive, amqp_table_t arguments,
                           pr_error *err)
{
    char what[PR__AMQP_NAME_SIZE + 40];
    TRY(open_channel(ask, err));
    pr__format(what, sizeof(what), "queue.declare '%s'", name);
    amqp_queue_declare(ask->connection->state, PR__TOPOLOGY_CHANNEL, amqp_cstring_bytes(name),
                       passive, /* durable= */ 1, /* exclusive= */ 0, /* auto_delete= */ 0,
                       arguments);
    return answer(ask, what, err);
}

static pr_status durable_queue(asking *ask, const char *name, amqp_table_t arguments, pr_error *err)
{
    if (ask->check_only)
        TRY(ask_queue(ask, name, /* passive= */ true, amqp_empty_table, err));
    return ask_queue(ask, name, /* passive= */ false, arguments, err);
}

static pr_status bind_queue(asking *ask, const char *name, const char *exchange_name,
                            const char *key, pr_error *err)
{
    char what[2 * PR__AMQP_NAME_SIZE + 60];
    if (ask->check_only)
        return PR_OK;
    pr__format(what, sizeof(what), "queue.bind '%s' to '%s'", name, exchange_name);
    amqp_queue_bind(ask->connection->state, PR__TOPOLOGY_CHANNEL, amqp_cstring_bytes(name),
                    amqp_cstring_bytes(exchange_name), amqp_cstring_bytes(key), amqp_empty_table);
    return answer(ask, what, err);
}

static pr_status queues(asking *ask, const pr__amqp_names *names, pr_error *err)
{
    amqp_table_entry_t entries[] = {
        argument("x-dead-letter-exchange", ""),
        argument("x-dead-letter-routing-key", names->dead),
        argument("x-queue-type", "quorum"),
        {.key = amqp_cstring_bytes("x-delivery-limit"), .value = {.kind = AMQP_FIELD_KIND_I64}},
    };
    /* A requeue charges nobody: RabbitMQ 4 would bury a message at its 21st. 3.10 takes no -1. */
    entries[3].value.value.i64 = PR__DELIVERY_LIMIT;
    const amqp_table_t dead = {.num_entries = ask->quorum ? 1 : 0, .entries = &entries[2]};
    const amqp_table_t own = {.num_entries = ask->quorum ? 4 : 2, .entries = entries};
    TRY(durable_queue(ask, names->dead, dead, err));
    return durable_queue(ask, names->queue, own, err);
}

static pr_status bindings(asking *ask, const pr_subscribe_options *options,
                          const pr__amqp_names *names, pr_error *err)
{
    for (size_t i = 0; i < options->type_count; i++) {
        pr__amqp_target target;
        TRY(pr__amqp_binding_of(options->types[i], ask->prefix, &target, err));
        TRY(exchange(ask, target.exchange, "topic", amqp_empty_table, err));
        TRY(bind_queue(ask, names->queue, target.exchange, target.key, err));
        TRY(bind_queue(ask, names->queue, names->exchange, options->types[i], err));
    }
    return PR_OK;
}

pr_status pr__amqp_topology(pr__amqp_connection *connection, const pr_subscribe_options *options,
                            bool check_only, pr_error *err)
{
    const pr__amqp_settings *settings = connection->settings;
    asking ask = {.connection = connection,
                  .prefix = settings->prefix,
                  .endpoint = options->endpoint,
                  .quorum = settings->quorum,
                  .check_only = check_only};
    pr__amqp_names names;
    char types[PR__AMQP_NAME_SIZE];
    TRY(pr__amqp_names_of(options, settings->prefix, &names, err));
    TRY(pr__amqp_types_text(options, names.queue, types, err));
    for (size_t i = 0; i < options->type_count; i++) {
        pr__amqp_target target; /* all of them can be said, or nothing is made */
        TRY(pr__amqp_binding_of(options->types[i], settings->prefix, &target, err));
    }
    amqp_table_entry_t mark = argument("alternate-exchange", types);
    const amqp_table_t arguments = {.num_entries = 1, .entries = &mark};
    TRY(exchange(&ask, names.exchange, "direct", arguments, err));
    TRY(queues(&ask, &names, err));
    return bindings(&ask, options, &names, err);
}

pr_status pr__amqp_topology_temporary(pr__amqp_connection *connection, uint16_t channel,
                                      const pr_subscribe_options *options,
                                      const pr__amqp_names *names, pr_error *err)
{
    char what[2 * PR__AMQP_NAME_SIZE + 60];
    pr__format(what, sizeof(what), "queue.declare '%s', exclusive", names->queue);
    amqp_queue_declare(connection->state, channel, amqp_cstring_bytes(names->queue),
                       /* passive= */ 0, /* durable= */ 0, /* exclusive= */ 1,
                       /* auto_delete= */ 1, amqp_empty_table);
    TRY(pr__amqp_check_rpc(connection, what, err));
    for (size_t i = 0; i < options->type_count; i++) {
        pr__amqp_target target;
        TRY(pr__amqp_binding_of(options->types[i], connection->settings->prefix, &target, err));
        pr__format(what, sizeof(what), "exchange.declare '%s'", target.exchange);
        amqp_exchange_declare(connection->state, channel, amqp_cstring_bytes(target.exchange),
                              amqp_cstring_bytes("topic"), /* passive= */ 0, /* durable= */ 1,
                              /* auto_delete= */ 0, /* internal= */ 0, amqp_empty_table);
        TRY(pr__amqp_check_rpc(connection, what, err));
        pr__format(what, sizeof(what), "queue.bind '%s' to '%s'", names->queue, target.exchange);
        amqp_queue_bind(connection->state, channel, amqp_cstring_bytes(names->queue),
                        amqp_cstring_bytes(target.exchange), amqp_cstring_bytes(target.key),
                        amqp_empty_table);
        TRY(pr__amqp_check_rpc(connection, what, err));
    }
    return PR_OK;
}

pr_status pr__amqp_topology_look(pr__amqp_connection *connection, const char *queue,
                                 uint32_t *ret_messages, uint32_t *ret_consumers, pr_error *err)
{
    char what[PR__AMQP_NAME_SIZE + 40];
    TRY(pr__amqp_channel_open(connection, PR__TOPOLOGY_CHANNEL, false, err));
    pr__format(what, sizeof(what), "queue.declare '%s', passive", queue);
    const amqp_queue_declare_ok_t *found = amqp_queue_declare(
        connection->state, PR__TOPOLOGY_CHANNEL, amqp_cstring_bytes(queue), /* passive= */ 1,
        /* durable= */ 1, /* exclusive= */ 0, /* auto_delete= */ 0, amqp_empty_table);
    TRY(pr__amqp_check_rpc(connection, what, err));
    *ret_messages = found ? found->message_count : 0;
    *ret_consumers = found ? found->consumer_count : 0;
    return PR_OK;
}

pr_status pr__amqp_topology_delete(pr__amqp_connection *connection,
                                   const pr_subscribe_options *options, pr_error *err)
{
    amqp_connection_state_t state = connection->state;
    const char *prefix = connection->settings->prefix;
    pr__amqp_names names;
    TRY(pr__amqp_names_of(options, prefix, &names, err));
    TRY(pr__amqp_channel_open(connection, PR__TOPOLOGY_CHANNEL, false, err));
    const char *const all[] = {names.queue, names.dead};
    for (size_t i = 0; i < 2; i++) {
        amqp_queue_delete(state, PR__TOPOLOGY_CHANNEL, amqp_cstring_bytes(all[i]),
                          /* if_unused= */ 0, /* if_empty= */ 0);
        TRY(pr__amqp_check_rpc(connection, "queue.delete", err));
    }
    amqp_exchange_delete(state, PR__TOPOLOGY_CHANNEL, amqp_cstring_bytes(names.exchange),
                         /* if_unused= */ 0);
    TRY(pr__amqp_check_rpc(connection, "exchange.delete", err));
    for (size_t i = 0; i < options->type_count; i++) {
        pr__amqp_target target;
        TRY(pr__amqp_binding_of(options->types[i], prefix, &target, err));
        amqp_exchange_delete(state, PR__TOPOLOGY_CHANNEL, amqp_cstring_bytes(target.exchange),
                             /* if_unused= */ 1);
        TRY(pr__amqp_check_rpc(connection, "exchange.delete", err));
    }
    return PR_OK;
}
