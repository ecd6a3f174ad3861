/*
 * The conversation: each method of the client with its usual answer, and the faults in its place.
 */
#include "support/fake_session.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HEADER_SIZE 8
#define SLOW_MS     2
#define DRIP_MS     300

const fake_rule *fake_session_seen(fake_broker *broker, fake_step step)
{
    const fake_rule *found = NULL;
    broker->counts[step]++;
    pthread_cond_broadcast(&broker->changed);
    for (size_t i = 0; i < broker->rule_count; i++) {
        fake_active_rule *at = &broker->rules[i];
        if (at->rule.step != step)
            continue;
        unsigned seen = at->seen++;
        if (!found && seen >= at->rule.after &&
            (at->rule.times == 0 || seen < at->rule.after + at->rule.times))
            found = &at->rule;
    }
    return found;
}

static void put_close(fake_session *session, const fake_rule *rule, uint16_t channel)
{
    amqp_connection_close_t connection = {.reply_code = rule->code,
                                          .reply_text = fake_field(rule->text)};
    amqp_channel_close_t of_channel = {.reply_code = rule->code,
                                       .reply_text = fake_field(rule->text)};
    if (session->channels[channel].confirms) { /* as for what a publish has done */
        of_channel.class_id = AMQP_BASIC_CLASS;
        of_channel.method_id = AMQP_BASIC_PUBLISH_METHOD & 0xFFFF;
    }
    if (rule->fault == FAKE_CLOSED || channel == 0) {
        fake_put_method(&session->out, 0, AMQP_CONNECTION_CLOSE_METHOD, &connection);
        return;
    }
    session->channels[channel].closing = true;
    fake_put_method(&session->out, channel, AMQP_CHANNEL_CLOSE_METHOD, &of_channel);
}

static void put_other(fake_session *session, uint16_t channel)
{
    amqp_tx_rollback_ok_t other = {0};
    fake_put_method(&session->out, channel, AMQP_TX_ROLLBACK_OK_METHOD, &other);
}

static void put_bad_end(fake_session *session, const fake_bytes *answer)
{
    fake_bytes_add(&session->out, answer->data, answer->size);
    if (answer->size > 0)
        session->out.data[session->out.size - 1] = 0x11;
}

void fake_session_answer(fake_session *session, const fake_rule *rule, uint16_t channel,
                         const fake_bytes *answer)
{
    static const char http[] = "HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n";
    static const unsigned char garbage[] = {0xA5, 0x5A, 0xFF, 0x00, 0x13, 0x37, 0xCE, 0x42,
                                            0xA5, 0x5A, 0xFF, 0x00, 0x13, 0x37, 0xCE, 0x42};
    static const unsigned char huge[] = {1, 0, 0, 0x7F, 0xFF, 0xFF, 0xFF, 0, 10, 0, 10};
    fake_fault fault = rule ? rule->fault : FAKE_NONE;
    switch (fault) {
    case FAKE_SLOW:
    case FAKE_DRIP:
        session->drip_ms = fault == FAKE_SLOW ? SLOW_MS : DRIP_MS;
        fake_bytes_add(&session->out, answer->data, answer->size);
        break;
    case FAKE_NONE:
    case FAKE_FRAME_MAX_1:
        fake_bytes_add(&session->out, answer->data, answer->size);
        break;
    case FAKE_RESET:
    case FAKE_CUT:
        session->reset = fault == FAKE_RESET;
        session->ending = true;
        break;
    case FAKE_SILENCE:
        break;
    case FAKE_DEAF:
        session->deaf = true;
        break;
    case FAKE_GARBAGE:
        fake_bytes_add(&session->out, garbage, sizeof garbage);
        break;
    case FAKE_HTTP:
        fake_bytes_add(&session->out, http, sizeof http - 1);
        session->ending = true;
        break;
    case FAKE_HALF:
        fake_bytes_add(&session->out, answer->data, answer->size / 2);
        session->ending = true;
        break;
    case FAKE_BAD_END:
        put_bad_end(session, answer);
        break;
    case FAKE_HUGE:
        fake_bytes_add(&session->out, huge, sizeof huge);
        break;
    case FAKE_OTHER:
        put_other(session, channel);
        break;
    case FAKE_OLD:
        fake_bytes_add(&session->out, "AMQP\0\0\x08\0", HEADER_SIZE);
        session->ending = true;
        break;
    case FAKE_CLOSED:
    case FAKE_CHANNEL_CLOSED:
        put_close(session, rule, channel);
        break;
    }
}

/* --- what the client says ----------------------------------------------------------------------*/

/* A method without fields, or with fields that say nothing here. */
static void put_empty(fake_bytes *to, uint16_t channel, amqp_method_number_t id)
{
    unsigned char nothing[256] = {0};
    fake_put_method(to, channel, id, nothing);
}

static void put_start(fake_bytes *to)
{
    amqp_table_entry_t known[] = {
        {.key = amqp_cstring_bytes("product"),
         .value = {.kind = AMQP_FIELD_KIND_UTF8, .value.bytes = amqp_cstring_bytes("fake")}},
        {.key = amqp_cstring_bytes("version"),
         .value = {.kind = AMQP_FIELD_KIND_UTF8, .value.bytes = amqp_cstring_bytes("3.10.0")}},
    };
    amqp_connection_start_t start = {.version_minor = 9,
                                     .server_properties = {2, known},
                                     .mechanisms = amqp_cstring_bytes("PLAIN AMQPLAIN EXTERNAL"),
                                     .locales = amqp_cstring_bytes("en_US")};
    fake_put_method(to, 0, AMQP_CONNECTION_START_METHOD, &start);
}

static void take_login(fake_broker *broker, const amqp_connection_start_ok_t *login)
{
    fake_text(login->mechanism, broker->mechanism, sizeof broker->mechanism);
    broker->capabilities[0] = '\0';
    for (int i = 0; i < login->client_properties.num_entries; i++) {
        const amqp_table_entry_t *entry = &login->client_properties.entries[i];
        char name[64];
        fake_text(entry->key, name, sizeof name);
        if (strcmp(name, "capabilities") != 0 || entry->value.kind != AMQP_FIELD_KIND_TABLE)
            continue;
        for (int k = 0; k < entry->value.value.table.num_entries; k++) {
            const amqp_table_entry_t *one = &entry->value.value.table.entries[k];
            fake_text(one->key, name, sizeof name);
            size_t used = strlen(broker->capabilities);
            if (one->value.kind == AMQP_FIELD_KIND_BOOLEAN && one->value.value.boolean)
                snprintf(broker->capabilities + used, sizeof broker->capabilities - used, " %s ",
                         name);
        }
    }
}

static void take_settle(fake_broker *broker, fake_session *session, fake_settled settled)
{
    if (broker->settled_count == broker->settled_room) {
        broker->settled_room = broker->settled_room ? 2 * broker->settled_room : 64;
        broker->settled = realloc(broker->settled, broker->settled_room * sizeof *broker->settled);
        if (!broker->settled)
            abort();
    }
    settled.connection = session->number;
    broker->settled[broker->settled_count++] = settled;
}

static void put_tune(const fake_broker *broker, const fake_rule *rule, fake_bytes *to)
{
    amqp_connection_tune_t tune = {
        .channel_max = broker->tune.channel_max ? broker->tune.channel_max : 2047,
        .frame_max = broker->tune.frame_max ? broker->tune.frame_max : 131072,
        .heartbeat = broker->tune.heartbeat_s ? broker->tune.heartbeat_s : 60};
    if (rule && rule->fault == FAKE_FRAME_MAX_1)
        tune.frame_max = 1;
    fake_put_method(to, 0, AMQP_CONNECTION_TUNE_METHOD, &tune);
}

static void put_declared(fake_broker *broker, const amqp_queue_declare_t *declare, uint16_t channel,
                         fake_bytes *to)
{
    char name[32];
    amqp_queue_declare_ok_t declared = {.queue = declare->queue};
    if (declare->queue.len == 0) {
        snprintf(name, sizeof name, "amq.gen-%u", broker->counts[FAKE_QUEUE_DECLARE]);
        declared.queue = amqp_cstring_bytes(name);
    }
    fake_put_method(to, channel, AMQP_QUEUE_DECLARE_OK_METHOD, &declared);
}

static void put_consuming(fake_broker *broker, fake_channel *at,
                          const amqp_basic_consume_t *consume, uint16_t channel, fake_bytes *to)
{
    if (consume->consumer_tag.len > 0)
        fake_text(consume->consumer_tag, at->consumer, sizeof at->consumer);
    else
        snprintf(at->consumer, sizeof at->consumer, "amq.ctag-%u", ++broker->consumers);
    at->consumes = true;
    amqp_basic_consume_ok_t consuming = {.consumer_tag = amqp_cstring_bytes(at->consumer)};
    fake_put_method(to, channel, AMQP_BASIC_CONSUME_OK_METHOD, &consuming);
}

/* Methods whose usual answer has no fields that matter: what the client says, the step, the answer.
 */
static const struct {
    amqp_method_number_t said;
    fake_step step;
    amqp_method_number_t answer;
} simple[] = {
    {AMQP_CHANNEL_OPEN_METHOD, FAKE_CHANNEL_OPEN, AMQP_CHANNEL_OPEN_OK_METHOD},
    {AMQP_CONFIRM_SELECT_METHOD, FAKE_CONFIRM_SELECT, AMQP_CONFIRM_SELECT_OK_METHOD},
    {AMQP_EXCHANGE_DECLARE_METHOD, FAKE_EXCHANGE_DECLARE, AMQP_EXCHANGE_DECLARE_OK_METHOD},
    {AMQP_QUEUE_BIND_METHOD, FAKE_QUEUE_BIND, AMQP_QUEUE_BIND_OK_METHOD},
    {AMQP_QUEUE_UNBIND_METHOD, FAKE_QUEUE_UNBIND, AMQP_QUEUE_UNBIND_OK_METHOD},
    {AMQP_BASIC_QOS_METHOD, FAKE_QOS, AMQP_BASIC_QOS_OK_METHOD},
    {AMQP_CHANNEL_CLOSE_METHOD, FAKE_CHANNEL_CLOSE, AMQP_CHANNEL_CLOSE_OK_METHOD},
    {AMQP_CONNECTION_CLOSE_METHOD, FAKE_CLOSE, AMQP_CONNECTION_CLOSE_OK_METHOD},
    {AMQP_CONNECTION_OPEN_METHOD, FAKE_OPEN, AMQP_CONNECTION_OPEN_OK_METHOD},
};

static void serve_simple(fake_broker *broker, fake_session *session, uint16_t channel,
                         amqp_method_number_t id)
{
    fake_channel *at = &session->channels[channel];
    fake_bytes answer = {0};
    for (size_t i = 0; i < sizeof simple / sizeof simple[0]; i++) {
        if (simple[i].said != id)
            continue;
        if (id == AMQP_CHANNEL_OPEN_METHOD)
            *at = (fake_channel){.open = true};
        if (id == AMQP_CHANNEL_CLOSE_METHOD)
            *at = (fake_channel){0};
        if (id == AMQP_CONFIRM_SELECT_METHOD)
            at->confirms = true;
        const fake_rule *rule = fake_session_seen(broker, simple[i].step);
        put_empty(&answer, channel, simple[i].answer);
        fake_session_answer(session, rule, channel, &answer);
        session->ending = session->ending || (id == AMQP_CONNECTION_CLOSE_METHOD && !rule);
    }
    fake_bytes_done(&answer);
}

/* Methods with fields that matter; false: it is another. */
static bool serve_known(fake_broker *broker, fake_session *session, uint16_t channel,
                        amqp_method_number_t id, void *method)
{
    fake_channel *at = &session->channels[channel];
    const fake_rule *rule = NULL;
    fake_bytes answer = {0};
    if (id == AMQP_CONNECTION_START_OK_METHOD) {
        take_login(broker, method);
        rule = fake_session_seen(broker, FAKE_START_OK);
        put_tune(broker, rule, &answer);
    } else if (id == AMQP_CONNECTION_TUNE_OK_METHOD) {
        rule = fake_session_seen(broker, FAKE_TUNE_OK);
    } else if (id == AMQP_QUEUE_DECLARE_METHOD) {
        rule = fake_session_seen(broker, FAKE_QUEUE_DECLARE);
        put_declared(broker, method, channel, &answer);
    } else if (id == AMQP_BASIC_CONSUME_METHOD) {
        rule = fake_session_seen(broker, FAKE_CONSUME);
        put_consuming(broker, at, method, channel, &answer);
    } else if (id == AMQP_BASIC_CANCEL_METHOD) {
        amqp_basic_cancel_ok_t cancelled = {.consumer_tag = amqp_cstring_bytes(at->consumer)};
        rule = fake_session_seen(broker, FAKE_CANCEL);
        at->consumes = false;
        fake_put_method(&answer, channel, AMQP_BASIC_CANCEL_OK_METHOD, &cancelled);
    } else if (id == AMQP_BASIC_ACK_METHOD) {
        const amqp_basic_ack_t *ack = method;
        take_settle(
            broker, session,
            (fake_settled){.tag = ack->delivery_tag, .verdict = 'a', .multiple = ack->multiple});
        rule = fake_session_seen(broker, FAKE_SETTLE);
    } else if (id == AMQP_BASIC_NACK_METHOD) {
        const amqp_basic_nack_t *nack = method;
        take_settle(broker, session,
                    (fake_settled){.tag = nack->delivery_tag,
                                   .verdict = 'n',
                                   .multiple = nack->multiple,
                                   .requeue = nack->requeue});
        rule = fake_session_seen(broker, FAKE_SETTLE);
    } else if (id == AMQP_BASIC_REJECT_METHOD) {
        const amqp_basic_reject_t *reject = method;
        take_settle(broker, session,
                    (fake_settled){
                        .tag = reject->delivery_tag, .verdict = 'r', .requeue = reject->requeue});
        rule = fake_session_seen(broker, FAKE_SETTLE);
    } else {
        return false;
    }
    fake_session_answer(session, rule, channel, &answer);
    fake_bytes_done(&answer);
    return true;
}

static void serve_method(fake_broker *broker, fake_session *session, const fake_frame *frame)
{
    amqp_method_number_t id = (amqp_method_number_t)fake_number(frame->payload, 4);
    fake_channel *at = &session->channels[frame->channel];
    amqp_bytes_t fields = {.len = frame->size - 4,
                           .bytes = (void *)(uintptr_t)(frame->payload + 4)};
    void *method = NULL;
    amqp_pool_t pool;
    if (id == AMQP_CHANNEL_CLOSE_OK_METHOD)
        *at = (fake_channel){0};
    if (id == AMQP_CONNECTION_CLOSE_OK_METHOD)
        session->ending = true;
    if (at->closing)
        return; /* as brokers do: nothing but close-ok counts now */
    init_amqp_pool(&pool, 4096);
    if (amqp_decode_method(id, &pool, fields, &method) != 0)
        abort();
    if (id == AMQP_CONNECTION_OPEN_METHOD)
        fake_text(((amqp_connection_open_t *)method)->virtual_host, broker->vhost,
                  sizeof broker->vhost);
    if (id == AMQP_BASIC_PUBLISH_METHOD) {
        session->content_channel = frame->channel;
        const amqp_basic_publish_t *publish = method;
        fake_text(publish->exchange, session->exchange, sizeof session->exchange);
        fake_text(publish->routing_key, session->routing_key, sizeof session->routing_key);
        session->mandatory = publish->mandatory;
        session->properties.size = session->body.size = 0;
    } else if (!serve_known(broker, session, frame->channel, id, method))
        serve_simple(broker, session, frame->channel, id);
    empty_amqp_pool(&pool);
}

/* --- what it publishes -------------------------------------------------------------------------*/

static void take_headers(const amqp_table_t *headers, char *ret_text, size_t size)
{
    size_t used = 0;
    ret_text[0] = '\0';
    for (int i = 0; i < headers->num_entries; i++) {
        const amqp_table_entry_t *entry = &headers->entries[i];
        char name[256], value[512];
        fake_text(entry->key, name, sizeof name);
        bool text = entry->value.kind == AMQP_FIELD_KIND_UTF8;
        if (text)
            fake_text(entry->value.value.bytes, value, sizeof value);
        else
            snprintf(value, sizeof value, "%c", entry->value.kind);
        int put = snprintf(ret_text + used, size - used, "%s%c%s\n", name, text ? '=' : ':', value);
        if (put < 0 || (size_t)put >= size - used)
            return;
        used += (size_t)put;
    }
}

static void take_properties(fake_published *to, const fake_bytes *properties)
{
    amqp_pool_t pool;
    void *decoded = NULL;
    init_amqp_pool(&pool, 4096);
    amqp_bytes_t fields = {.len = properties->size, .bytes = properties->data};
    if (amqp_decode_properties(AMQP_BASIC_CLASS, &pool, fields, &decoded) != 0)
        abort();
    const amqp_basic_properties_t *of = decoded;
    to->delivery_mode = of->_flags & AMQP_BASIC_DELIVERY_MODE_FLAG ? of->delivery_mode : 0;
    if (of->_flags & AMQP_BASIC_MESSAGE_ID_FLAG)
        fake_text(of->message_id, to->message_id, sizeof to->message_id);
    if (of->_flags & AMQP_BASIC_TYPE_FLAG)
        fake_text(of->type, to->type, sizeof to->type);
    if (of->_flags & AMQP_BASIC_CONTENT_TYPE_FLAG)
        fake_text(of->content_type, to->content_type, sizeof to->content_type);
    if (of->_flags & AMQP_BASIC_HEADERS_FLAG)
        take_headers(&of->headers, to->headers, sizeof to->headers);
    empty_amqp_pool(&pool);
}

static void take_publish(fake_broker *broker, fake_session *session, uint16_t channel)
{
    fake_channel *at = &session->channels[channel];
    if (broker->published_count == broker->published_room) {
        broker->published_room = broker->published_room ? 2 * broker->published_room : 64;
        broker->published =
            realloc(broker->published, broker->published_room * sizeof *broker->published);
        if (!broker->published)
            abort();
    }
    fake_record *record = &broker->published[broker->published_count++];
    *record = (fake_record){.properties = session->properties, .body = session->body};
    fake_published *to = &record->published;
    to->connection = session->number;
    to->tag = at->confirms ? ++at->published : 0;
    to->mandatory = session->mandatory;
    memcpy(to->exchange, session->exchange, sizeof to->exchange);
    memcpy(to->routing_key, session->routing_key, sizeof to->routing_key);
    take_properties(to, &session->properties);
    to->body_size = session->body.size;
    fake_text((amqp_bytes_t){session->body.size, session->body.data}, to->body, sizeof to->body);
    session->properties = session->body = (fake_bytes){0};
}

static void end_publish(fake_broker *broker, fake_session *session)
{
    uint16_t channel = session->content_channel;
    session->content_channel = 0;
    if (session->channels[channel].closing)
        return;
    take_publish(broker, session, channel);
    const fake_rule *rule = fake_session_seen(broker, FAKE_PUBLISH);
    fake_bytes answer = {0};
    amqp_basic_ack_t ack = {.delivery_tag = session->channels[channel].published};
    if (session->channels[channel].confirms && !broker->hold)
        fake_put_method(&answer, channel, AMQP_BASIC_ACK_METHOD, &ack);
    fake_session_answer(session, rule, channel, &answer);
    fake_bytes_done(&answer);
}

static void serve_frame(fake_broker *broker, fake_session *session, const fake_frame *frame)
{
    if (frame->channel >= FAKE_CHANNELS_MAX)
        abort();
    if (frame->type == AMQP_FRAME_METHOD) {
        serve_method(broker, session, frame);
    } else if (frame->type == AMQP_FRAME_HEARTBEAT) {
        fake_session_seen(broker, FAKE_HEARTBEAT);
    } else if (session->content_channel == 0 || session->content_channel != frame->channel) {
        return; /* the rest of a publish on a channel that was closed meanwhile */
    } else if (frame->type == AMQP_FRAME_HEADER) {
        session->content_size = fake_number(frame->payload + 4, 8);
        fake_bytes_add(&session->properties, frame->payload + 12, frame->size - 12);
    } else {
        fake_bytes_add(&session->body, frame->payload, frame->size);
    }
    if (session->content_channel != 0 && session->properties.size > 0 &&
        session->body.size >= session->content_size)
        end_publish(broker, session);
}

void fake_session_serve(fake_broker *broker, fake_session *session)
{
    fake_frame frame;
    size_t size;
    if (!session->greeted && session->in.size >= HEADER_SIZE) {
        fake_bytes answer = {0};
        session->greeted = true;
        put_start(&answer);
        fake_session_answer(session, fake_session_seen(broker, FAKE_HEADER), 0, &answer);
        fake_bytes_done(&answer);
        fake_bytes_drop(&session->in, HEADER_SIZE);
    }
    if (!session->greeted)
        return;
    while (!session->ending && !session->deaf &&
           (size = fake_first_frame(&session->in, &frame)) > 0) {
        serve_frame(broker, session, &frame);
        fake_bytes_drop(&session->in, size);
    }
}
