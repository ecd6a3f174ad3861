/*
 * The publisher's channel: confirms, returns, and what its end means for those on their way.
 *
 * Keeps: a channel that the broker closes costs nobody an attempt. What may have been the reason is
 * a suspect, which the caller sends alone; what was alone already is decided.
 * Must not know: sockets, queues of callers.
 */
#include <amqp.h>
#include <amqp_framing.h>
#include <string.h>

#include "base/error.h"
#include "base/text.h"
#include "base/time.h"
#include "transport/amqp/publisher.h"

#define ORIGIN "amqp.publisher"

pr_status pr__publisher_channel_open(pr__publisher *self, pr__amqp_connection *connection,
                                     bool was_closed, pr_error *err)
{
    TRY(pr__amqp_channel_open(connection, PR__PUBLISHER_CHANNEL, was_closed, err));
    amqp_confirm_select(connection->state, PR__PUBLISHER_CHANNEL);
    TRY(pr__amqp_check_rpc(connection, "confirm.select", err));
    self->channel_open = true;
    return PR_OK;
}

/* ---- confirms ---- */

static void tell_confirmed(void *user, const pr__confirm_entry *entry, pr_submit_outcome outcome)
{
    pr__publisher *self = user;
    char reason[256] = "";
    if (outcome == PR_SUBMIT_RETURNED)
        pr__format(reason, sizeof(reason), "no queue is bound for it (%u)",
                   (unsigned)entry->return_code);
    else if (outcome == PR_SUBMIT_REFUSED)
        pr__format(reason, sizeof(reason),
                   "the broker did not take it (basic.nack): a queue is "
                   "full, or failed");
    pr__publisher_tell(self, entry->ticket, entry->message, outcome, false, reason);
}

static void confirmed(pr__publisher *self, uint64_t tag, bool multiple, bool acked)
{
    pr__confirms_settle(&self->confirms, tag, multiple, acked, tell_confirmed, self);
    self->closes = 0;
    if (self->link.failures > 0)
        pr__amqp_link_served(&self->link);
}

/* ---- the end of the channel ---- */

typedef struct ending {
    pr__publisher *publisher;
    pr_submit_outcome outcome; /* of all that were not returned */
} ending;

static void tell_ended(void *user, const pr__confirm_entry *entry, pr_submit_outcome outcome)
{
    ending *end = user;
    pr__publisher *self = end->publisher;
    bool returned = outcome == PR_SUBMIT_RETURNED;
    if (!returned)
        outcome = end->outcome; /* and the channel's end is why */
    bool suspect = outcome == PR_SUBMIT_LOST;
    if (suspect && self->close_code == AMQP_NOT_FOUND) {
        /* An exchange is gone: whoever goes to the default one has nothing to do with it. */
        pr__amqp_target target;
        suspect = pr__amqp_target_of(entry->message, self->link.settings->name,
                                     self->link.settings->prefix, &target, NULL) == PR_OK &&
                  target.exchange[0] != '\0';
    }
    pr__publisher_tell(self, entry->ticket, entry->message, outcome, suspect,
                       returned ? "no queue is bound for it" : self->reason);
}

/* How many have no outcome and were not returned? */
static uint32_t undecided(const pr__confirms *confirms)
{
    uint32_t count = 0;
    for (uint64_t tag = confirms->confirmed; tag < confirms->sent; tag++) {
        const pr__confirm_entry *entry = &confirms->entries[tag % confirms->capacity];
        count += !entry->settled && entry->message && entry->return_code == 0;
    }
    return count;
}

/* Alone, it is the reason. A right that is missing is not the message's fault. */
static pr_submit_outcome outcome_alone(uint16_t code)
{
    if (code == AMQP_PRECONDITION_FAILED)
        return PR_SUBMIT_REFUSED;
    return code == AMQP_NOT_FOUND ? PR_SUBMIT_RETURNED : PR_SUBMIT_LOST;
}

static void channel_closed(pr__publisher *self, pr__amqp_connection *connection,
                           const amqp_channel_close_t *close)
{
    bool by_publish = close->class_id == AMQP_BASIC_CLASS;
    ending end = {.publisher = self, .outcome = PR_SUBMIT_LOST};
    if (by_publish && undecided(&self->confirms) == 1)
        end.outcome = outcome_alone(close->reply_code);
    pr_error why = PR_ERROR_INIT;
    pr_status ignored = pr__amqp_closed(connection, "the broker closed the channel",
                                        close->reply_code, close->reply_text, &why);
    (void)ignored;
    PR__AMQP_COUNT(self->link.settings, channel_closes);
    self->close_code = close->reply_code;
    pr__format(self->reason, sizeof(self->reason), "%s", why.message);
    pr__confirms_reset(&self->confirms, tell_ended, &end);
    pr__exchanges_forget(&self->exchanges, /* new_connection= */ false);
    self->channel_open = false;
    self->return_code = 0;
    self->reopen_at_us = 0;
    if (self->closes++ > 0) { /* again, and nothing was confirmed in between */
        self->reopen_at_us =
            pr__monotonic_us() + pr__amqp_link_backoff_ms(&self->link, self->closes - 1) * 1000;
        pthread_mutex_lock(&self->link.lock);
        pr__amqp_link_state_set(&self->link, PR_TRANSPORT_DOWN, why.message);
        self->link.last_error = why;
        self->link.failed_count++;
        pthread_mutex_unlock(&self->link.lock);
    }
}

/* ---- frames ---- */

static pr_status method_frame(pr__publisher *self, pr__amqp_connection *connection,
                              const amqp_method_t *method)
{
    switch (method->id) {
    case AMQP_BASIC_ACK_METHOD: {
        const amqp_basic_ack_t *ack = method->decoded;
        confirmed(self, ack->delivery_tag, ack->multiple != 0, true);
        return PR_OK;
    }
    case AMQP_BASIC_NACK_METHOD: {
        const amqp_basic_nack_t *nack = method->decoded;
        confirmed(self, nack->delivery_tag, nack->multiple != 0, false);
        return PR_OK;
    }
    case AMQP_BASIC_RETURN_METHOD: {
        const amqp_basic_return_t *back = method->decoded;
        self->return_code = back->reply_code ? back->reply_code : AMQP_NO_ROUTE;
        return PR_OK;
    }
    case AMQP_CHANNEL_CLOSE_METHOD:
        channel_closed(self, connection, method->decoded);
        return PR_OK;
    default: /* numbers from the wire; what we did not ask for means nothing to us */
        return PR_OK;
    }
}

pr_status pr__publisher_frame(void *user, pr__amqp_connection *connection,
                              const amqp_frame_t *frame, pr_error *err)
{
    pr__publisher *self = user;
    if (frame->channel == PR__EXCHANGES_CHANNEL && frame->frame_type == AMQP_FRAME_METHOD &&
        frame->payload.method.id == AMQP_CHANNEL_CLOSE_METHOD) {
        pr__exchanges_forget(&self->exchanges, /* new_connection= */ false);
        self->exchanges.channel_open = true;
        return pr__amqp_channel_open(connection, PR__EXCHANGES_CHANNEL, true, err);
    }
    if (frame->channel != PR__PUBLISHER_CHANNEL || !self->channel_open)
        return PR_OK;
    if (frame->frame_type == AMQP_FRAME_METHOD)
        return method_frame(self, connection, &frame->payload.method);
    if (frame->frame_type == AMQP_FRAME_HEADER && self->return_code != 0) {
        const amqp_basic_properties_t *properties = frame->payload.properties.decoded;
        if (properties->_flags & AMQP_BASIC_MESSAGE_ID_FLAG)
            pr__confirms_returned(&self->confirms, properties->message_id.bytes,
                                  properties->message_id.len, self->return_code);
        self->return_code = 0;
    }
    return PR_OK; /* the body of a return is of no interest */
}
