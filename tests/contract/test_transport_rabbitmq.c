/*
 * The transport suite on a real RabbitMQ broker: a virtual host a case, a user a transport.
 *
 * A holder vanishes when its user is removed: the broker cuts its connections, and it cannot come
 * back.
 */
#include <postroom/amqp.h>

#include "contract/transport_provider.h"
#include "support/rabbitmq_server.h"
#include "support/test.h"
#include "transport/amqp/consumer.h"

#define BODY_SIZE_MAX  ((int64_t)(256 * 1024))
#define TRANSPORTS_MAX 8

static rabbitmq_server *server;
static unsigned worlds;

typedef struct world {
    char vhost[24];
    pr_transport *transports[TRANSPORTS_MAX]; /* the index is part of its user's name */
    size_t count;
} world;

static pr_status begin(void **ret_world, pr_error *err)
{
    world *at = calloc(1, sizeof *at);
    (void)err;
    assert_non_null(at);
    snprintf(at->vhost, sizeof at->vhost, "case%u", ++worlds);
    rabbitmq_server_vhost(server, at->vhost);
    *ret_world = at;
    return PR_OK;
}

static void remove_user(const world *at, size_t index)
{
    rabbitmq_server_eval(server, NULL, 0,
                         "rabbit_auth_backend_internal:delete_user(<<\"%s-%zu\">>, <<\"test\">>)",
                         at->vhost, index);
}

static void end(void *user)
{
    world *at = user;
    rabbitmq_server_vhost_remove(server, at->vhost);
    free(at);
}

static pr_status connect_to(void *user, uint32_t window, pr_transport **ret_transport,
                            pr_error *err)
{
    world *at = user;
    char uri[RABBITMQ_URI_SIZE];
    pr_amqp_options options =
        PR_AMQP_OPTIONS(.window = window, .flags = PR_AMQP_DECLARE, .body_size_max = BODY_SIZE_MAX);
    assert_true(at->count < TRANSPORTS_MAX);
    rabbitmq_server_eval(
        server, NULL, 0,
        "U = <<\"%s-%zu\">>, A = <<\".*\">>, rabbit_auth_backend_internal:add_user(U, "
        "<<\"word\">>, "
        "<<\"test\">>), rabbit_auth_backend_internal:set_permissions(U, <<\"%s\">>, A, A, A, "
        "<<\"test\">>)",
        at->vhost, at->count, at->vhost);
    snprintf(uri, sizeof uri, "amqp://%s-%zu:word@localhost:%d/%s", at->vhost, at->count,
             rabbitmq_server_port(server), at->vhost);
    pr_status status = pr_amqp_transport_new(uri, &options, ret_transport, err);
    if (status == PR_OK)
        at->transports[at->count++] = *ret_transport;
    return status;
}

static void vanish(void *user, pr_subscription *subscription)
{
    world *at = user;
    for (size_t i = 0; i < at->count; i++) {
        if (at->transports[i] == subscription->transport) {
            remove_user(at, i);
            /* the broker cuts what it has on its list of connections, which may come late */
            pr__amqp_subscription_cut(subscription);
            return;
        }
    }
    fail_msg("a subscription of no transport");
}

/* The broker's own count, so that the suite does not believe the transport's words. */
static pr_status dead_count(void *user, const char *endpoint, size_t *ret_count, pr_error *err)
{
    const world *at = user;
    char queue[300];
    (void)err;
    snprintf(queue, sizeof queue, "%s.dead", endpoint);
    long depth = rabbitmq_server_depth(server, at->vhost, queue);
    *ret_count = depth < 0 ? 0 : (size_t)depth;
    return PR_OK;
}

int main(void)
{
    const transport_provider provider = {
        .name = "transport on RabbitMQ",
        .scheme = "rabbitmq",
        .address = "rabbitmq",
        .ordered = false, /* competing consumers of one queue */
        .body_size_max = (uint64_t)BODY_SIZE_MAX,
        .lease_ms = 0,
        .patience_ms = 20000,
        .begin = begin,
        .connect = connect_to,
        .vanish = vanish,
        .dead_count = dead_count,
        .end = end,
    };
    server = rabbitmq_server_start(NULL);
    int failed = transport_contract_run(&provider);
    rabbitmq_server_free(server);
    return failed;
}
