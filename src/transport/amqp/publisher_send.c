/*
 * Publishing.
 *
 * Keeps: what cannot be said in AMQP, or has no exchange, is told before a byte of it was sent, so
 * that its neighbours and the connection never notice. A chunk at a time is sent, and only when the
 * socket takes something; in between confirms are read. Each publish has a deadline.
 * Must not know: what happens to confirms.
 */
#include <string.h>

#include "base/error.h"
#include "base/fault.h"
#include "base/text.h"
#include "base/time.h"
#include "transport/amqp/publisher.h"

#define ORIGIN         "amqp.publisher"
#define CHUNK_MESSAGES 64
#define CHUNK_BYTES    (128 * 1024)

static void drop_first(pr__publisher *self)
{
    self->pending_first = (self->pending_first + 1) % self->link.settings->window;
    self->pending_count--;
}

/* The first pending message ends here, unsent. */
static void fail_first(pr__publisher *self, pr_submit_outcome outcome, const char *reason)
{
    const pr__pending *first = &self->pending[self->pending_first];
    pr__publisher_tell(self, first->ticket, first->message, outcome, false, reason);
    drop_first(self);
}

static pr_submit_outcome outcome_of(pr_status status)
{
    if (status == PR_E_LIMIT)
        return PR_SUBMIT_TOO_LARGE;
    return status == PR_E_NOMEM ? PR_SUBMIT_LOST : PR_SUBMIT_REFUSED;
}

/* Where it goes; the same as the one before it, mostly. */
static pr_status find_target(pr__publisher *self, const pr_message *message, pr_error *err)
{
    if (self->destination[0] != '\0' && !message->headers && self->target_plain &&
        self->target_version == message->type_version &&
        strcmp(self->destination, message->destination) == 0)
        return PR_OK;
    self->destination[0] = '\0';
    TRY(pr__amqp_target_of(message, self->link.settings->name, self->link.settings->prefix,
                           &self->target, err));
    self->target_version = message->type_version;
    self->target_plain = !message->headers;
    if (strlen(message->destination) < sizeof(self->destination))
        pr__format(self->destination, sizeof(self->destination), "%s", message->destination);
    return PR_OK;
}

/* Look at everything that could go wrong with it. false: it has its outcome already. */
static pr_status prepare(pr__publisher *self, pr__amqp_connection *connection,
                         const pr_message *message, amqp_basic_properties_t *properties,
                         bool *ret_ready, pr_error *err)
{
    const pr__amqp_settings *settings = self->link.settings;
    pr_error fault = PR_ERROR_INIT;
    char reason[256];
    *ret_ready = false;
    if (message->body_size_bytes > settings->body_size_max) {
        pr__format(reason, sizeof(reason), "the body has %llu bytes, the transport takes %llu",
                   (unsigned long long)message->body_size_bytes,
                   (unsigned long long)settings->body_size_max);
        fail_first(self, PR_SUBMIT_TOO_LARGE, reason);
        return PR_OK;
    }
    pr_status status = find_target(self, message, &fault);
    if (status == PR_OK)
        status = pr__wire_encode(&self->wire, message, settings->flags & PR_AMQP_CLOUDEVENTS,
                                 connection->frame_max, properties, &fault);
    if (status != PR_OK) {
        fail_first(self, outcome_of(status), fault.message);
        return PR_OK;
    }
    bool exists = false;
    TRY(pr__exchanges_ask(&self->exchanges, connection, self->target.exchange, &exists, err));
    if (!exists) {
        pr__format(reason, sizeof(reason), "there is no exchange '%.160s'; was it declared?",
                   self->target.exchange);
        fail_first(self, self->target.mandatory ? PR_SUBMIT_RETURNED : PR_SUBMIT_CONFIRMED, reason);
        return PR_OK;
    }
    *ret_ready = true;
    return PR_OK;
}

static amqp_bytes_t body_of(const pr_message *message)
{
    union {
        const void *in;
        void *out;
    } u = {.in = message->body};
    return (amqp_bytes_t){.len = message->body_size_bytes, .bytes = u.out};
}

/* The first pending message: sent, or decided. *ret_held: it has to wait for a confirm. */
static pr_status send_first(pr__publisher *self, pr__amqp_connection *connection, int64_t now_us,
                            bool *ret_held, pr_error *err)
{
    const pr__pending first = self->pending[self->pending_first];
    uint32_t hash = pr__confirms_hash(first.message->id);
    if (pr__confirms_has(&self->confirms, first.message->id, hash)) {
        *ret_held = true; /* a return names the id alone: two of one id would be mixed up */
        return PR_OK;
    }
    amqp_basic_properties_t properties;
    bool ready = false;
    TRY(prepare(self, connection, first.message, &properties, &ready, err));
    if (!ready)
        return PR_OK;
    pr__confirms_push(&self->confirms, first.ticket, first.message, hash, now_us);
    drop_first(self);
    PR_FAULT("amqp.before_publish");
    int status = amqp_basic_publish(connection->state, PR__PUBLISHER_CHANNEL,
                                    amqp_cstring_bytes(self->target.exchange),
                                    amqp_cstring_bytes(self->target.key), self->target.mandatory,
                                    /* immediate= */ 0, &properties, body_of(first.message));
    return pr__amqp_check_status(connection, status, "publish", err);
}

pr_status pr__publisher_send(pr__publisher *self, pr__amqp_connection *connection,
                             bool *ret_want_write, pr_error *err)
{
    pr__amqp_settings *settings = self->link.settings;
    int64_t now_us = pr__monotonic_us();
    uint32_t count = 0;
    uint64_t bytes = 0;
    bool held = false;
    pr_status status = PR_OK;
    pr__watchdog_arm(settings->watchdog, &self->link.guard,
                     now_us + settings->publish_deadline_ms * 1000);
    while (status == PR_OK && self->pending_count > 0 && !held && count < CHUNK_MESSAGES &&
           bytes < CHUNK_BYTES && !pr__confirms_full(&self->confirms)) {
        bytes += self->pending[self->pending_first].message->body_size_bytes + 512;
        status = send_first(self, connection, now_us, &held, err);
        count++;
    }
    if (pr__watchdog_disarm(settings->watchdog, &self->link.guard) && status != PR_OK)
        PR__AMQP_COUNT(settings, deadlines);
    *ret_want_write = self->pending_count > 0 && !held && !pr__confirms_full(&self->confirms);
    return status;
}
