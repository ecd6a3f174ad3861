/*
 * Consuming.
 *
 * Owns: the channel of a subscription.
 * Keeps: what cannot be held as a message goes to the dead queue, once, also when librabbitmq
 * cannot read it: then its tag is rejected before the connection is given up, so that it does not
 * come in a loop. A consumer that the broker cancelled, a channel that it closed, are made anew
 * from the connection upward.
 * Must not know: callers.
 */
#include "transport/amqp/consume.h"

#include <amqp_framing.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>

#include "base/error.h"
#include "base/fault.h"
#include "base/memory.h"
#include "base/text.h"
#include "base/time.h"
#include "port/observe.h"
#include "transport/amqp/give_back.h"
#include "transport/amqp/topology.h"

#define ORIGIN   "amqp.consumer"
#define DRAIN_MS 500

void pr__consume_done(pr__consume *consume)
{
    pr__wire_in_free(consume->in);
    *consume = (pr__consume){.active = false};
}

/* ---- setting up ---- */

static pr_status prepare_queue(pr__consumer *self, pr__amqp_connection *connection, pr_error *err)
{
    bool declare = (self->link.settings->flags & PR_AMQP_DECLARE) != 0;
    if (!self->options.temporary)
        return pr__amqp_topology(connection, &self->options, /* check_only= */ !declare, err);
    if (!self->was_up)
        return pr__amqp_topology_temporary(connection, PR__CONSUMER_CHANNEL, &self->options,
                                           &self->names, err);
    pthread_mutex_lock(&self->link.lock);
    self->link.over = true;
    pthread_mutex_unlock(&self->link.lock);
    return pr__fail(err, PR_E_NOT_FOUND, ORIGIN,
                    "the temporary subscription '%s' went with its connection", self->endpoint);
}

static pr_status setup(void *user, pr__amqp_connection *connection, pr_error *err)
{
    pr__consumer *self = user;
    char what[PR__AMQP_NAME_SIZE + 40];
    pr__consume_done(&self->consume);
    TRY(pr__amqp_channel_open(connection, PR__CONSUMER_CHANNEL, false, err));
    TRY(prepare_queue(self, connection, err));
    amqp_basic_qos(connection->state, PR__CONSUMER_CHANNEL, 0, self->prefetch, /* global= */ 0);
    TRY(pr__amqp_check_rpc(connection, "basic.qos", err));
    pr__format(what, sizeof(what), "basic.consume '%s'", self->names.queue);
    amqp_basic_consume(connection->state, PR__CONSUMER_CHANNEL,
                       amqp_cstring_bytes(self->names.queue), amqp_cstring_bytes(PR__CONSUMER_TAG),
                       /* no_local= */ 0,
                       /* no_ack= */ 0, /* exclusive= */ self->options.temporary, amqp_empty_table);
    TRY(pr__amqp_check_rpc(connection, what, err));
    self->was_up = self->serving = true;
    return PR_OK;
}

/* ---- deliveries ---- */

static void tell_dead(pr__consumer *self, const char *why)
{
    PR__AMQP_COUNT(self->link.settings, dead_letters);
    const pr_observation dead = {.size = (uint32_t)sizeof(dead),
                                 .kind = PR_OBSERVE_HANDLER_DEAD,
                                 .count = 1,
                                 .subject = self->endpoint,
                                 .status = PR_E_CONTENT,
                                 .text = why};
    pr__observe(self->link.settings->observer, &dead);
}

static pr_status header_frame(pr__consumer *self, const amqp_frame_t *frame, pr_error *err)
{
    pr__consume *at = &self->consume;
    pr_error why = PR_ERROR_INIT;
    pr_status status = PR_OK;
    at->headed = true;
    at->left = frame->payload.properties.body_size;
    if (at->left > PR_BODY_SIZE_MAX)
        status = pr__fail(&why, PR_E_CONTENT, ORIGIN, "its body has %llu bytes, at most %lld",
                          (unsigned long long)at->left, (long long)PR_BODY_SIZE_MAX);
    if (status == PR_OK)
        status = pr__wire_decode(frame->payload.properties.decoded, at->left, &at->in, &why);
    if (status == PR_E_NOMEM) {
        pr__error_copy(err, &why);
        return status;
    }
    at->unwanted = status != PR_OK;
    if (at->unwanted)
        tell_dead(self, why.message);
    return PR_OK;
}

static pr_status body_frame(pr__consumer *self, const amqp_frame_t *frame, pr_error *err)
{
    pr__consume *at = &self->consume;
    amqp_bytes_t fragment = frame->payload.body_fragment;
    if (fragment.len > at->left || (at->in && !pr__wire_fill(at->in, fragment)))
        return pr__fail_retry(err, PR_E_BACKEND, PR_RETRY_RECONNECT, ORIGIN,
                              "a body has more bytes than were announced");
    at->left -= fragment.len;
    return PR_OK;
}

/* The delivery is whole. */
static pr_status delivered(pr__consumer *self, pr__amqp_connection *connection, pr_error *err)
{
    pr__consume *at = &self->consume;
    bool held = true;
    if (at->unwanted) {
        int sent = amqp_basic_reject(connection->state, PR__CONSUMER_CHANNEL, at->delivery_tag,
                                     /* requeue= */ 0);
        pr__consume_done(at);
        return pr__amqp_check_status(connection, sent, "basic.reject", err);
    }
    pthread_mutex_lock(&self->link.lock);
    held = pr__in_hand_add(&self->hand, at->in, at->delivery_tag, at->redelivered);
    pthread_mutex_unlock(&self->link.lock);
    if (!held)
        return pr__fail(err, PR_E_NOMEM, ORIGIN,
                        "no room for one more delivery; are stale ones settled?");
    at->in = NULL;
    pr__consume_done(at);
    pr__amqp_link_served(&self->link);
    return PR_OK;
}

static pr_status method_frame(pr__consumer *self, pr__amqp_connection *connection,
                              const amqp_method_t *method, pr_error *err)
{
    switch (method->id) {
    case AMQP_BASIC_DELIVER_METHOD: {
        const amqp_basic_deliver_t *deliver = method->decoded;
        pr__consume_done(&self->consume);
        self->consume.active = true;
        self->consume.delivery_tag = deliver->delivery_tag;
        self->consume.redelivered = deliver->redelivered != 0;
        return PR_OK;
    }
    case AMQP_BASIC_CANCEL_METHOD:
        PR__AMQP_COUNT(self->link.settings, cancels);
        return pr__fail_retry(err, PR_E_BACKEND, PR_RETRY_RECONNECT, ORIGIN,
                              "the broker at %s cancelled the consumer of '%s'; was the queue "
                              "deleted?",
                              connection->peer, self->names.queue);
    case AMQP_BASIC_CANCEL_OK_METHOD:
        return pr__give_back(self, connection, err);
    case AMQP_CHANNEL_CLOSE_METHOD: {
        const amqp_channel_close_t *close = method->decoded;
        PR__AMQP_COUNT(self->link.settings, channel_closes);
        pr_error local = PR_ERROR_INIT;
        pr_status ignored = pr__amqp_closed(connection, "the broker closed the channel",
                                            close->reply_code, close->reply_text, &local);
        (void)ignored;
        local.status = PR_E_BACKEND;
        local.retry = PR_RETRY_RECONNECT;
        pr__error_copy(err, &local);
        return PR_E_BACKEND;
    }
    default: /* numbers from the wire; what we did not ask for means nothing to us */
        return PR_OK;
    }
}

static pr_status frame(void *user, pr__amqp_connection *connection, const amqp_frame_t *given,
                       pr_error *err)
{
    pr__consumer *self = user;
    pr__consume *at = &self->consume;
    if (given->channel != PR__CONSUMER_CHANNEL)
        return PR_OK;
    if (given->frame_type == AMQP_FRAME_METHOD)
        return method_frame(self, connection, &given->payload.method, err);
    if (!at->active)
        return PR_OK;
    if (given->frame_type == AMQP_FRAME_HEADER && !at->headed)
        TRY(header_frame(self, given, err));
    else if (given->frame_type == AMQP_FRAME_BODY && at->headed)
        TRY(body_frame(self, given, err));
    return at->headed && at->left == 0 ? delivered(self, connection, err) : PR_OK;
}

static void flush(void *user)
{
    pr__consumer *self = user;
    pthread_mutex_lock(&self->link.lock);
    if (self->hand.ready.first != PR__NO_SLOT || self->cut || self->link.over)
        pthread_cond_broadcast(&self->link.changed);
    pthread_mutex_unlock(&self->link.lock);
}

/* ---- verdicts ---- */

static pr_status send_verdict(pr__amqp_connection *connection, const pr__verdict *verdict,
                              pr_error *err)
{
    int status = AMQP_STATUS_OK;
    PR_FAULT("amqp.before_verdict");
    switch (verdict->verdict) {
    case PR_VERDICT_ACK:
        status = amqp_basic_ack(connection->state, PR__CONSUMER_CHANNEL, verdict->delivery_tag,
                                /* multiple= */ 0);
        break;
    case PR_VERDICT_REQUEUE:
        status = amqp_basic_reject(connection->state, PR__CONSUMER_CHANNEL, verdict->delivery_tag,
                                   /* requeue= */ 1);
        break;
    case PR_VERDICT_REJECT:
        status = amqp_basic_reject(connection->state, PR__CONSUMER_CHANNEL, verdict->delivery_tag,
                                   /* requeue= */ 0);
        break;
    }
    return pr__amqp_check_status(connection, status, "settle", err);
}

/* Take out the next verdict that is due; what is not yet stays, in order, and so does what goes
   back in another way. */
static bool next_due(pr__consumer *self, int64_t now_us, uint32_t *at, pr__verdict *ret_verdict,
                     int64_t *wait_ms)
{
    bool found = false;
    pthread_mutex_lock(&self->link.lock);
    while (*at < self->verdict_count && !found) {
        const pr__verdict *verdict = &self->verdicts[*at];
        found = !verdict->keyed && verdict->due_us <= now_us;
        if (found) {
            *ret_verdict = *verdict;
            self->verdict_count--;
            memmove(&self->verdicts[*at], &self->verdicts[*at + 1],
                    (self->verdict_count - *at) * sizeof(*verdict));
        } else {
            int64_t left_ms = (verdict->due_us - now_us) / 1000 + 1;
            if (!verdict->keyed)
                *wait_ms = left_ms < *wait_ms ? left_ms : *wait_ms;
            ++*at;
        }
    }
    pthread_mutex_unlock(&self->link.lock);
    return found;
}

static pr_status send_verdicts(pr__consumer *self, pr__amqp_connection *connection, int64_t now_us,
                               int64_t *wait_ms, pr_error *err)
{
    const pr__amqp_settings *settings = self->link.settings;
    pr__verdict verdict;
    uint32_t at = 0;
    pr_status status = PR_OK;
    pr__watchdog_arm(settings->watchdog, &self->link.guard,
                     pr__monotonic_us() + settings->publish_deadline_ms * 1000);
    while (status == PR_OK && next_due(self, now_us, &at, &verdict, wait_ms))
        status = send_verdict(connection, &verdict, err);
    pr__watchdog_disarm(settings->watchdog, &self->link.guard);
    return status;
}

static pr_status work(void *user, pr__amqp_connection *connection, bool writable,
                      bool *ret_want_write, int64_t *wait_ms, pr_error *err)
{
    (void)writable;
    (void)ret_want_write;
    int64_t now_us = pr__monotonic_us();
    TRY(send_verdicts(user, connection, now_us, wait_ms, err));
    return pr__give_back_due(user, connection, now_us, wait_ms, err);
}

/* ---- the end of a channel ---- */

/* A header that librabbitmq cannot read: reject its tag, then let the broker read all of it before
   the socket is closed, because data that we do not read would make it a reset. */
static void reject_unreadable(pr__consumer *self, pr__amqp_connection *connection)
{
    char ignored[4096];
    tell_dead(self, "librabbitmq cannot read its header");
    if (amqp_basic_reject(connection->state, PR__CONSUMER_CHANNEL, self->consume.delivery_tag,
                          /* requeue= */ 0) != AMQP_STATUS_OK)
        return;
    shutdown(connection->fd, SHUT_WR);
    int64_t until_us = pr__monotonic_us() + DRAIN_MS * 1000;
    for (int64_t now_us = pr__monotonic_us(); now_us < until_us; now_us = pr__monotonic_us()) {
        struct pollfd fd = {.fd = connection->fd, .events = POLLIN};
        if (poll(&fd, 1, (int)((until_us - now_us) / 1000 + 1)) <= 0 ||
            recv(connection->fd, ignored, sizeof(ignored), MSG_DONTWAIT) <= 0)
            return;
    }
}

static void down(void *user, pr__amqp_connection *connection, const pr_error *why)
{
    pr__consumer *self = user;
    int64_t wait_ms = 0;
    if (!why) { /* orderly: what was settled is settled; what is put off goes back at once */
        pr_status ignored = send_verdicts(self, connection, INT64_MAX - 1, &wait_ms, NULL);
        (void)ignored;
    } else if (why->backend_code == AMQP_STATUS_BAD_AMQP_DATA && connection->state &&
               self->consume.active && !self->consume.headed) {
        reject_unreadable(self, connection);
    }
    pr__consume_done(&self->consume);
    pthread_mutex_lock(&self->link.lock);
    pr__in_hand_renew(&self->hand);
    self->verdict_count = 0;
    self->returning = 0; /* the end of the channel gives all of it back, in order */
    self->cut = self->cut || self->serving;
    if (self->options.temporary && self->was_up)
        self->link.over = true;
    pthread_mutex_unlock(&self->link.lock);
    self->serving = self->cancelling = false;
}

const pr__amqp_link_ops pr__consumer_link_ops = {
    .setup = setup, .work = work, .frame = frame, .flush = flush, .down = down};
