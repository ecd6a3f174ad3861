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

static pr_status make_with(uint32_t flags, pr_transport **ret_transport, pr_error *err)
{
    char uri[RABBITMQ_URI_SIZE];
    const pr_amqp_options opt = PR_AMQP_OPTIONS(.flags = flags);
    rabbitmq_server_uri(server, vhost, uri);
    return pr_amqp_transport_new(uri, &opt, ret_transport, err);
}

static pr_status make(pr_transport **ret_transport, pr_error *err)
{
    return make_with(PR_AMQP_DECLARE, ret_transport, err);
}

static pr_status make_checking(pr_transport **ret_transport, pr_error *err)
{
    return make_with(0, ret_transport, err);
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

static void down(bool is_down)
{
    rabbitmq_server_do(server, is_down ? "stop kill" : "start");
}

/* A limit that is passed, and the one of tools/rabbitmq-server. */
static void alarm_of(const char *resource, bool on)
{
    const char *memory = on ? "0.000001" : "0.6", *disk = on ? "999999999999999" : "100000000";
    if (strcmp(resource, "memory") == 0)
        rabbitmq_server_eval(server, NULL, 0, "vm_memory_monitor:set_vm_memory_high_watermark(%s)",
                             memory);
    else
        rabbitmq_server_eval(server, NULL, 0, "rabbit_disk_monitor:set_disk_free_limit(%s)", disk);
}

static void remove_one(const char *kind, const char *name)
{
    if (strcmp(kind, "queue") == 0)
        rabbitmq_server_eval(
            server, NULL, 0,
            "{ok, Q} = rabbit_amqqueue:lookup(rabbit_misc:r(<<\"%s\">>, queue, <<\"%s\">>)), "
            "rabbit_amqqueue:delete(Q, false, false, <<\"test\">>)",
            vhost, name);
    else
        rabbitmq_server_eval(
            server, NULL, 0,
            "rabbit_exchange:delete(rabbit_misc:r(<<\"%s\">>, exchange, <<\"%s\">>), false, "
            "<<\"test\">>)",
            vhost, name);
}

static void find_queue(const char *start, char ret_name[128])
{
    char all[4000];
    rabbitmq_server_eval(server, all, sizeof all,
                         "[binary_to_list(element(4, N)) || N <- rabbit_amqqueue:list_names(), "
                         "element(2, N) =:= <<\"%s\">>]",
                         vhost);
    const char *at = strstr(all, start);
    (void)snprintf(ret_name, 128, "%.*s", at ? (int)strcspn(at, "\"") : 0, at ? at : "");
}

const bus_carrier *rabbitmq_carrier_start(void)
{
    static const bus_carrier carrier = {.scheme = "rabbitmq",
                                        .fresh = fresh,
                                        .make = make,
                                        .make_checking = make_checking,
                                        .address = address,
                                        .block = block,
                                        .cut = cut,
                                        .kill = kill_and_start,
                                        .down = down,
                                        .alarm = alarm_of,
                                        .remove = remove_one,
                                        .find_queue = find_queue};
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
