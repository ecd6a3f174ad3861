/*
 * The fake broker's thread, and what tests ask of it.
 *
 * One lock for all: the thread holds it while it serves, a test while it asks or says something.
 */
#include "support/fake_broker.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "support/fake_session.h"

#define READ_SIZE 65536
#define IDLE_MS   200

static int64_t now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static void must(bool good)
{
    if (!good)
        abort();
}

/* --- the thread --------------------------------------------------------------------------------*/

static void session_end(fake_broker *broker, fake_session *session)
{
    const struct linger at_once = {.l_onoff = 1, .l_linger = 0};
    if (session->reset)
        setsockopt(session->fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
    close(session->fd);
    fake_bytes_done(&session->in);
    fake_bytes_done(&session->out);
    fake_bytes_done(&session->properties);
    fake_bytes_done(&session->body);
    *session = (fake_session){.fd = -1};
    fake_session_seen(broker, FAKE_END);
}

static void session_begin(fake_broker *broker)
{
    int fd = accept4(broker->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    for (size_t i = 0; fd >= 0 && i < FAKE_SESSIONS_MAX; i++) {
        fake_session *session = &broker->sessions[i];
        if (session->fd >= 0)
            continue;
        *session = (fake_session){.fd = fd, .number = ++broker->connections, .beat_ms = now_ms()};
        const fake_bytes nothing = {0};
        fake_session_answer(session, fake_session_seen(broker, FAKE_CONNECT), 0, &nothing);
        return;
    }
    must(fd < 0);
}

/* False at its end. */
static bool session_read(fake_broker *broker, fake_session *session)
{
    unsigned char piece[READ_SIZE];
    ssize_t got = recv(session->fd, piece, sizeof piece, 0);
    if (got <= 0)
        return got < 0 && (errno == EAGAIN || errno == EINTR);
    fake_bytes_add(&session->in, piece, (size_t)got);
    fake_session_serve(broker, session);
    return true;
}

/* False when it is over. */
static bool session_write(fake_session *session)
{
    int64_t now = now_ms();
    while (session->out.size > 0 && (session->drip_ms == 0 || session->due_ms <= now)) {
        size_t size = session->drip_ms ? 1 : session->out.size;
        ssize_t put = send(session->fd, session->out.data, size, MSG_NOSIGNAL);
        if (put < 0 && (errno == EAGAIN || errno == EINTR))
            return true;
        if (put < 0)
            return false;
        fake_bytes_drop(&session->out, (size_t)put);
        session->due_ms = now + session->drip_ms;
    }
    return !(session->ending && session->out.size == 0);
}

static void beat(const fake_broker *broker, fake_session *session)
{
    int64_t every_ms = broker->tune.heartbeat_s ? broker->tune.heartbeat_s * 500 : 30000;
    if (!session->greeted || session->deaf || session->drip_ms || now_ms() < session->beat_ms)
        return;
    if (session->beat_ms > 0 && session->channels[1].open)
        fake_put_frame(&session->out, AMQP_FRAME_HEARTBEAT, 0, "", 0);
    session->beat_ms = now_ms() + every_ms;
}

/* How long poll may sleep. */
static int patience(const fake_broker *broker)
{
    int ms = IDLE_MS;
    for (size_t i = 0; i < FAKE_SESSIONS_MAX; i++) {
        const fake_session *session = &broker->sessions[i];
        if (session->fd >= 0 && session->drip_ms > 0 && session->out.size > 0)
            ms = 1;
    }
    return ms;
}

static void serve(fake_broker *broker, const struct pollfd *of)
{
    char drained[64];
    if (of[0].revents)
        session_begin(broker);
    if (of[1].revents)
        must(read(broker->wake[0], drained, sizeof drained) > 0);
    for (size_t i = 0; i < FAKE_SESSIONS_MAX; i++) {
        fake_session *session = &broker->sessions[i];
        if (session->fd < 0)
            continue;
        bool going = true;
        if (of[2 + i].fd == session->fd && of[2 + i].revents && !session->ending && !session->deaf)
            going = session_read(broker, session);
        beat(broker, session);
        if (!going || !session_write(session))
            session_end(broker, session);
    }
}

static void *run(void *user)
{
    fake_broker *broker = user;
    pthread_mutex_lock(&broker->lock);
    while (!broker->stopping) {
        struct pollfd of[2 + FAKE_SESSIONS_MAX];
        of[0] = (struct pollfd){.fd = broker->listener, .events = POLLIN};
        of[1] = (struct pollfd){.fd = broker->wake[0], .events = POLLIN};
        for (size_t i = 0; i < FAKE_SESSIONS_MAX; i++) {
            const fake_session *at = &broker->sessions[i];
            short events = at->deaf ? 0 : POLLIN;
            if (at->out.size > 0 && at->drip_ms == 0)
                events |= POLLOUT;
            of[2 + i] = (struct pollfd){.fd = events ? at->fd : -1, .events = events};
        }
        int ms = patience(broker);
        pthread_mutex_unlock(&broker->lock);
        (void)poll(of, 2 + FAKE_SESSIONS_MAX, ms);
        pthread_mutex_lock(&broker->lock);
        serve(broker, of);
    }
    pthread_mutex_unlock(&broker->lock);
    return NULL;
}

static void wake(const fake_broker *broker)
{
    (void)!write(broker->wake[1], "", 1); /* full: it is awake */
}

/* --- its life ----------------------------------------------------------------------------------*/

fake_broker *fake_broker_start(void)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof address;
    pthread_condattr_t monotonic;
    fake_broker *broker = calloc(1, sizeof *broker);
    must(broker);
    broker->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    must(bind(broker->listener, (const struct sockaddr *)&address, sizeof address) == 0 &&
         listen(broker->listener, FAKE_SESSIONS_MAX) == 0 &&
         getsockname(broker->listener, (struct sockaddr *)&address, &size) == 0 &&
         pipe2(broker->wake, O_CLOEXEC | O_NONBLOCK) == 0);
    broker->port = ntohs(address.sin_port);
    for (size_t i = 0; i < FAKE_SESSIONS_MAX; i++)
        broker->sessions[i].fd = -1;
    pthread_mutex_init(&broker->lock, NULL);
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&broker->changed, &monotonic);
    pthread_condattr_destroy(&monotonic);
    must(pthread_create(&broker->thread, NULL, run, broker) == 0);
    return broker;
}

void fake_broker_free(fake_broker *broker)
{
    if (!broker)
        return;
    pthread_mutex_lock(&broker->lock);
    broker->stopping = true;
    wake(broker);
    pthread_mutex_unlock(&broker->lock);
    pthread_join(broker->thread, NULL);
    for (size_t i = 0; i < FAKE_SESSIONS_MAX; i++) {
        if (broker->sessions[i].fd >= 0)
            session_end(broker, &broker->sessions[i]);
    }
    for (size_t i = 0; i < broker->published_count; i++) {
        fake_bytes_done(&broker->published[i].properties);
        fake_bytes_done(&broker->published[i].body);
    }
    free(broker->published);
    free(broker->settled);
    close(broker->listener);
    close(broker->wake[0]);
    close(broker->wake[1]);
    pthread_cond_destroy(&broker->changed);
    pthread_mutex_destroy(&broker->lock);
    free(broker);
}

int fake_broker_port(const fake_broker *broker)
{
    return broker->port;
}

void fake_broker_tune(fake_broker *broker, fake_tune tune)
{
    pthread_mutex_lock(&broker->lock);
    broker->tune = tune;
    pthread_mutex_unlock(&broker->lock);
}

void fake_broker_rule(fake_broker *broker, fake_rule rule)
{
    pthread_mutex_lock(&broker->lock);
    must(broker->rule_count < FAKE_RULES_MAX);
    broker->rules[broker->rule_count++] = (fake_active_rule){.rule = rule};
    pthread_mutex_unlock(&broker->lock);
}

void fake_broker_heal(fake_broker *broker)
{
    pthread_mutex_lock(&broker->lock);
    broker->rule_count = 0;
    for (size_t i = 0; i < FAKE_SESSIONS_MAX; i++) {
        fake_session *session = &broker->sessions[i];
        if (session->fd >= 0 && (session->deaf || session->drip_ms > 2)) {
            session->out.size = 0;
            session->ending = true;
        }
    }
    wake(broker);
    pthread_mutex_unlock(&broker->lock);
}

void fake_broker_hold(fake_broker *broker, bool hold)
{
    pthread_mutex_lock(&broker->lock);
    broker->hold = hold;
    pthread_mutex_unlock(&broker->lock);
}

/* --- what it saw -------------------------------------------------------------------------------*/

unsigned fake_broker_count(fake_broker *broker, fake_step step)
{
    pthread_mutex_lock(&broker->lock);
    unsigned count = broker->counts[step];
    pthread_mutex_unlock(&broker->lock);
    return count;
}

bool fake_broker_wait(fake_broker *broker, fake_step step, unsigned count, int64_t ms)
{
    int64_t until_ms = now_ms() + ms;
    const struct timespec until = {until_ms / 1000, (until_ms % 1000) * 1000000};
    pthread_mutex_lock(&broker->lock);
    while (broker->counts[step] < count &&
           pthread_cond_timedwait(&broker->changed, &broker->lock, &until) != ETIMEDOUT)
        continue;
    bool reached = broker->counts[step] >= count;
    pthread_mutex_unlock(&broker->lock);
    return reached;
}

unsigned fake_broker_living(fake_broker *broker)
{
    unsigned living = 0;
    pthread_mutex_lock(&broker->lock);
    for (size_t i = 0; i < FAKE_SESSIONS_MAX; i++)
        living += broker->sessions[i].fd >= 0;
    pthread_mutex_unlock(&broker->lock);
    return living;
}

bool fake_broker_published(fake_broker *broker, size_t index, fake_published *ret_published)
{
    pthread_mutex_lock(&broker->lock);
    bool there = index < broker->published_count;
    if (there)
        *ret_published = broker->published[index].published;
    pthread_mutex_unlock(&broker->lock);
    return there;
}

bool fake_broker_settled(fake_broker *broker, size_t index, fake_settled *ret_settled)
{
    pthread_mutex_lock(&broker->lock);
    bool there = index < broker->settled_count;
    if (there)
        *ret_settled = broker->settled[index];
    pthread_mutex_unlock(&broker->lock);
    return there;
}

void fake_broker_login(fake_broker *broker, char ret_mechanism[64], char ret_vhost[256])
{
    pthread_mutex_lock(&broker->lock);
    memcpy(ret_mechanism, broker->mechanism, sizeof broker->mechanism);
    memcpy(ret_vhost, broker->vhost, sizeof broker->vhost);
    pthread_mutex_unlock(&broker->lock);
}

bool fake_broker_capability(fake_broker *broker, const char *name)
{
    char word[80];
    snprintf(word, sizeof word, " %s ", name);
    pthread_mutex_lock(&broker->lock);
    bool told = strstr(broker->capabilities, word) != NULL;
    pthread_mutex_unlock(&broker->lock);
    return told;
}

/* --- what it says ------------------------------------------------------------------------------*/

/* The newest living session of that kind, and its channel; locks. NULL: none, and not locked. */
static fake_session *lock_peer(fake_broker *broker, fake_peer peer, uint16_t *ret_channel)
{
    fake_session *found = NULL;
    pthread_mutex_lock(&broker->lock);
    for (size_t i = 0; i < FAKE_SESSIONS_MAX; i++) {
        fake_session *session = &broker->sessions[i];
        if (session->fd < 0 || session->ending || (found && session->number < found->number))
            continue;
        for (uint16_t k = 1; k < FAKE_CHANNELS_MAX; k++) {
            const fake_channel *at = &session->channels[k];
            if (!at->closing && (peer == FAKE_PUBLISHER ? at->confirms : at->consumes)) {
                found = session;
                *ret_channel = k;
            }
        }
    }
    if (!found)
        pthread_mutex_unlock(&broker->lock);
    return found;
}

static bool unlock_peer(fake_broker *broker)
{
    wake(broker);
    pthread_mutex_unlock(&broker->lock);
    return true;
}

bool fake_broker_confirm(fake_broker *broker, bool ack, uint64_t tag, bool multiple)
{
    uint16_t channel;
    fake_session *session = lock_peer(broker, FAKE_PUBLISHER, &channel);
    amqp_basic_ack_t acked = {.delivery_tag = tag, .multiple = multiple};
    amqp_basic_nack_t nacked = {.delivery_tag = tag, .multiple = multiple};
    if (!session)
        return false;
    if (ack)
        fake_put_method(&session->out, channel, AMQP_BASIC_ACK_METHOD, &acked);
    else
        fake_put_method(&session->out, channel, AMQP_BASIC_NACK_METHOD, &nacked);
    return unlock_peer(broker);
}

bool fake_broker_return(fake_broker *broker, size_t index, uint16_t code, const char *text)
{
    uint16_t channel;
    fake_session *session = lock_peer(broker, FAKE_PUBLISHER, &channel);
    if (!session)
        return false;
    must(index < broker->published_count);
    const fake_record *of = &broker->published[index];
    amqp_basic_return_t returned = {.reply_code = code,
                                    .reply_text = fake_field(text),
                                    .exchange = fake_field(of->published.exchange),
                                    .routing_key = fake_field(of->published.routing_key)};
    fake_put_method(&session->out, channel, AMQP_BASIC_RETURN_METHOD, &returned);
    fake_put_content(&session->out, channel, of->properties.data, of->properties.size,
                     of->body.data, of->body.size, 131072);
    return unlock_peer(broker);
}

bool fake_broker_close(fake_broker *broker, fake_peer peer, uint16_t code, const char *text)
{
    uint16_t channel;
    fake_session *session = lock_peer(broker, peer, &channel);
    const fake_rule rule = {.fault = FAKE_CLOSED, .code = code, .text = text};
    if (!session)
        return false;
    fake_session_answer(session, &rule, 0, NULL);
    return unlock_peer(broker);
}

bool fake_broker_close_channel(fake_broker *broker, fake_peer peer, uint16_t code, const char *text)
{
    uint16_t channel;
    fake_session *session = lock_peer(broker, peer, &channel);
    const fake_rule rule = {.fault = FAKE_CHANNEL_CLOSED, .code = code, .text = text};
    if (!session)
        return false;
    fake_session_answer(session, &rule, channel, NULL);
    return unlock_peer(broker);
}

bool fake_broker_block(fake_broker *broker, const char *reason)
{
    uint16_t channel;
    fake_session *session = lock_peer(broker, FAKE_PUBLISHER, &channel);
    amqp_connection_blocked_t blocked = {.reason = fake_field(reason)};
    amqp_connection_unblocked_t unblocked = {0};
    if (!session)
        return false;
    if (reason)
        fake_put_method(&session->out, 0, AMQP_CONNECTION_BLOCKED_METHOD, &blocked);
    else
        fake_put_method(&session->out, 0, AMQP_CONNECTION_UNBLOCKED_METHOD, &unblocked);
    return unlock_peer(broker);
}

bool fake_broker_cancel(fake_broker *broker)
{
    uint16_t channel;
    fake_session *session = lock_peer(broker, FAKE_CONSUMER, &channel);
    if (!session)
        return false;
    amqp_basic_cancel_t cancel = {.consumer_tag = fake_field(session->channels[channel].consumer),
                                  .nowait = true};
    fake_put_method(&session->out, channel, AMQP_BASIC_CANCEL_METHOD, &cancel);
    session->channels[channel].consumes = false;
    return unlock_peer(broker);
}

bool fake_broker_deliver(fake_broker *broker, const fake_delivery *delivery)
{
    uint16_t channel;
    fake_session *session = lock_peer(broker, FAKE_CONSUMER, &channel);
    if (!session)
        return false;
    fake_channel *at = &session->channels[channel];
    amqp_basic_deliver_t deliver = {
        .consumer_tag = fake_field(delivery->consumer_tag ? delivery->consumer_tag : at->consumer),
        .delivery_tag = ++at->deliveries,
        .redelivered = delivery->redelivered,
        .exchange = fake_field(delivery->exchange),
        .routing_key = fake_field(delivery->routing_key)};
    fake_put_method(&session->out, channel, AMQP_BASIC_DELIVER_METHOD, &deliver);
    fake_put_content(&session->out, channel, delivery->properties, delivery->properties_size,
                     delivery->body, delivery->body_size, 4096);
    return unlock_peer(broker);
}

bool fake_broker_raw(fake_broker *broker, fake_peer peer, const void *bytes, size_t size)
{
    uint16_t channel;
    fake_session *session = lock_peer(broker, peer, &channel);
    if (!session)
        return false;
    fake_bytes_add(&session->out, bytes, size);
    return unlock_peer(broker);
}

bool fake_broker_cut(fake_broker *broker, fake_peer peer)
{
    uint16_t channel;
    fake_session *session = lock_peer(broker, peer, &channel);
    if (!session)
        return false;
    session->ending = true;
    return unlock_peer(broker);
}

bool fake_broker_deaf(fake_broker *broker, fake_peer peer)
{
    uint16_t channel;
    fake_session *session = lock_peer(broker, peer, &channel);
    if (!session)
        return false;
    session->deaf = true;
    return unlock_peer(broker);
}
