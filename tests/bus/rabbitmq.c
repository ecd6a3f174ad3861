/*
 * The carrier of the bus suite on a real RabbitMQ broker.
 */
#include "bus/rabbitmq.h"

#include <postroom/amqp.h>

#include "support/rabbitmq_server.h"

static rabbitmq_server *server;
static unsigned cases;
static char vhost[24];

static void fresh(void)
{
    if (vhost[0])
        rabbitmq_server_vhost_remove(server, vhost);
    (void)snprintf(vhost, sizeof vhost, "bus%u", ++cases);
    rabbitmq_server_vhost(server, vhost);
}

static pr_status make(pr_transport **ret_transport, pr_error *err)
{
    char uri[RABBITMQ_URI_SIZE];
    const pr_amqp_options opt = PR_AMQP_OPTIONS(.flags = PR_AMQP_DECLARE);
    rabbitmq_server_uri(server, vhost, uri);
    return pr_amqp_transport_new(uri, &opt, ret_transport, err);
}

static const char *address(void)
{
    static char uri[RABBITMQ_URI_SIZE];
    rabbitmq_server_uri(server, vhost, uri);
    return uri;
}

static void block(bool on)
{
    rabbitmq_server_eval(server, NULL, 0, "%s",
                         on ? "rabbit_alarm:set_alarm({{resource_limit, memory, node()}, []})"
                            : "rabbit_alarm:clear_alarm({resource_limit, memory, node()})");
}

static void cut(void)
{
    rabbitmq_server_eval(server, NULL, 0, "rabbit_networking:close_all_connections(\"a test\")");
}

static void kill_and_start(void)
{
    rabbitmq_server_do(server, "restart kill");
}

const bus_carrier *rabbitmq_carrier_start(void)
{
    static const bus_carrier carrier = {.scheme = "rabbitmq",
                                        .fresh = fresh,
                                        .make = make,
                                        .address = address,
                                        .block = block,
                                        .cut = cut,
                                        .kill = kill_and_start};
    const char *wanted = getenv("POSTROOM_BUS_CARRIER");
    if (!wanted || strcmp(wanted, carrier.scheme) != 0)
        return NULL;
    server = rabbitmq_server_start(NULL);
    return &carrier;
}

void rabbitmq_carrier_stop(void)
{
    rabbitmq_server_free(server);
    server = NULL;
}
