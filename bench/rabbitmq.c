/*
 * The bare publisher, and the queue that all sides publish to.
 */
#include "rabbitmq.h"

#include <stdlib.h>
#include <string.h>

#include <amqp_framing.h>
#include <amqp_tcp_socket.h>

#include "database.h"

#include "base/text.h"

#define WAIT_S    30
#define BODY_MAX  4096
#define FRAME_MAX 131072

static void check_reply(amqp_rpc_reply_t reply, const char *what)
{
    if (reply.reply_type == AMQP_RESPONSE_LIBRARY_EXCEPTION)
        bench_fail(what, amqp_error_string2(reply.library_error));
    if (reply.reply_type != AMQP_RESPONSE_NORMAL)
        bench_fail(what, "the broker refused");
}

bench_mq bench_mq_open(const char *uri)
{
    char copy[256];
    struct amqp_connection_info info;
    bench_mq mq = {.connection = amqp_new_connection()};
    amqp_socket_t *tcp = amqp_tcp_socket_new(mq.connection);
    pr__format(copy, sizeof copy, "%s", uri);
    if (!tcp || amqp_parse_url(copy, &info) != AMQP_STATUS_OK)
        bench_fail("read the address", "it is not amqp://user:password@host:port/vhost");
    if (amqp_socket_open(tcp, info.host, info.port) != AMQP_STATUS_OK)
        bench_fail("connect to the broker", "nobody listens");
    check_reply(amqp_login(mq.connection, info.vhost, 0, FRAME_MAX, 0, AMQP_SASL_METHOD_PLAIN,
                           info.user, info.password),
                "log in");
    amqp_channel_open(mq.connection, 1);
    check_reply(amqp_get_rpc_reply(mq.connection), "open a channel");
    amqp_confirm_select(mq.connection, 1);
    check_reply(amqp_get_rpc_reply(mq.connection), "ask for confirms");
    return mq;
}

void bench_mq_close(bench_mq *mq)
{
    amqp_connection_close(mq->connection, AMQP_REPLY_SUCCESS);
    amqp_destroy_connection(mq->connection);
}

static pr_subscribe_options endpoint(void)
{
    return (pr_subscribe_options){.size = (uint32_t)sizeof(pr_subscribe_options),
                                  .endpoint = BENCH_MQ_QUEUE};
}

void bench_mq_queue(bench_mq *mq, const char *uri, bool quorum)
{
    pr_error err = PR_ERROR_INIT;
    const pr_subscribe_options options = endpoint();
    amqp_queue_delete(mq->connection, 1, amqp_cstring_bytes(BENCH_MQ_QUEUE), 0, 0);
    check_reply(amqp_get_rpc_reply(mq->connection), "delete the queue");
    amqp_queue_delete(mq->connection, 1, amqp_cstring_bytes(BENCH_MQ_QUEUE ".dead"), 0, 0);
    check_reply(amqp_get_rpc_reply(mq->connection), "delete the dead queue");
    pr_transport *transport = bench_mq_transport(uri, quorum);
    bench_check(pr_transport_topology(transport, &options, false, &err), &err, "declare the queue");
    pr_transport_free(transport);
}

long bench_mq_depth(bench_mq *mq)
{
    const amqp_queue_declare_ok_t *declared =
        amqp_queue_declare(mq->connection, 1, amqp_cstring_bytes(BENCH_MQ_QUEUE), true, false,
                           false, false, amqp_empty_table);
    check_reply(amqp_get_rpc_reply(mq->connection), "look at the queue");
    return (long)declared->message_count;
}

static amqp_table_entry_t header(const char *name, const char *value)
{
    amqp_table_entry_t entry = {.key = amqp_cstring_bytes(name),
                                .value = {.kind = AMQP_FIELD_KIND_UTF8}};
    entry.value.value.bytes = amqp_cstring_bytes(value);
    return entry;
}

void bench_mq_publish(bench_mq *mq, const char *id, const void *body, size_t body_size)
{
    amqp_table_entry_t headers[] = {
        header("postroom-destination", "rabbitmq://in/" BENCH_MQ_QUEUE),
        header("postroom-occurred-at", "2026-01-01T00:00:00.000000Z"),
    };
    amqp_basic_properties_t properties = {
        ._flags = AMQP_BASIC_MESSAGE_ID_FLAG | AMQP_BASIC_TYPE_FLAG | AMQP_BASIC_CONTENT_TYPE_FLAG |
                  AMQP_BASIC_DELIVERY_MODE_FLAG | AMQP_BASIC_TIMESTAMP_FLAG |
                  AMQP_BASIC_HEADERS_FLAG,
        .message_id = {36, (void *)(uintptr_t)id},
        .type = amqp_cstring_bytes(BENCH_MQ_TYPE),
        .content_type = amqp_cstring_bytes("application/json"),
        .delivery_mode = 2,
        .timestamp = 1767225600,
        .headers = {2, headers}};
    int status = amqp_basic_publish(mq->connection, 1, amqp_empty_bytes,
                                    amqp_cstring_bytes(BENCH_MQ_QUEUE), true, false, &properties,
                                    (amqp_bytes_t){body_size, (void *)(uintptr_t)body});
    if (status != AMQP_STATUS_OK)
        bench_fail("publish", amqp_error_string2(status));
    mq->published++;
}

void bench_mq_wait(bench_mq *mq, uint64_t most)
{
    struct timeval patience = {.tv_sec = WAIT_S};
    while (mq->published - mq->confirmed > most) {
        amqp_frame_t frame;
        int status = amqp_simple_wait_frame_noblock(mq->connection, &frame, &patience);
        if (status != AMQP_STATUS_OK)
            bench_fail("wait for a confirm", amqp_error_string2(status));
        if (frame.frame_type != AMQP_FRAME_METHOD ||
            frame.payload.method.id != AMQP_BASIC_ACK_METHOD)
            bench_fail("wait for a confirm", "the broker said something else");
        const amqp_basic_ack_t *ack = frame.payload.method.decoded;
        mq->confirmed = ack->multiple ? ack->delivery_tag : mq->confirmed + 1;
        amqp_maybe_release_buffers(mq->connection);
    }
}

pr_transport *bench_mq_transport(const char *uri, bool quorum)
{
    pr_error err = PR_ERROR_INIT;
    pr_transport *transport = NULL;
    const pr_amqp_options options =
        PR_AMQP_OPTIONS(.window = BENCH_MQ_WINDOW, .flags = PR_AMQP_DECLARE,
                        .queue_kind = quorum ? PR_AMQP_QUEUE_QUORUM : PR_AMQP_QUEUE_CLASSIC);
    bench_check(pr_amqp_transport_new(uri, &options, &transport, &err), &err, "make a transport");
    bench_check(pr_transport_open(transport, WAIT_S * 1000, &err), &err, "open the transport");
    return transport;
}

double bench_mq_bare(bench_mq *mq, uint64_t count, size_t body_size)
{
    static char body[BODY_MAX];
    char id[40];
    memset(body, 'x', sizeof body);
    double start = bench_seconds();
    for (uint64_t i = 0; i < count; i++) {
        pr__format(id, sizeof id, "018e0000-0000-7000-8000-%012llx", (unsigned long long)i);
        bench_mq_publish(mq, id, body, body_size);
        bench_mq_wait(mq, BENCH_MQ_WINDOW - 1);
    }
    bench_mq_wait(mq, 0);
    return (double)count / (bench_seconds() - start);
}
