/*
 * The publisher.
 *
 * Owns: the queues between the caller and the link's thread, and what became of each submission.
 * Keeps: each submission that was taken gets one outcome, also when the connection went, or when it
 * was never published. At most a window of them is without a polled outcome, so no queue overflows.
 * Must not know: frames.
 */
#include "transport/amqp/publisher.h"

#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "base/text.h"
#include "base/time.h"

#define ORIGIN "amqp.publisher"

/* ---- outcomes ---- */

static void count_outcome(pr__amqp_settings *settings, pr_submit_outcome outcome)
{
    switch (outcome) {
    case PR_SUBMIT_CONFIRMED:
        PR__AMQP_COUNT(settings, confirmed);
        return;
    case PR_SUBMIT_RETURNED:
        PR__AMQP_COUNT(settings, returned);
        return;
    case PR_SUBMIT_REFUSED:
    case PR_SUBMIT_TOO_LARGE:
        PR__AMQP_COUNT(settings, refused);
        return;
    case PR_SUBMIT_LOST:
        PR__AMQP_COUNT(settings, lost);
        return;
    }
}

void pr__publisher_tell(pr__publisher *self, uint64_t ticket, const pr_message *message,
                        pr_submit_outcome outcome, bool suspect, const char *reason)
{
    count_outcome(self->link.settings, outcome);
    pthread_mutex_lock(&self->link.lock);
    pr_submitted *out = pr__outcomes_add(&self->outcomes, ticket, outcome);
    out->suspect = suspect;
    if (outcome != PR_SUBMIT_CONFIRMED)
        pr__one_line(out->reason, sizeof(out->reason), reason, strlen(reason));
    self->bytes_in_flight -= message->body_size_bytes;
    pthread_mutex_unlock(&self->link.lock);
}

static void flush(void *user)
{
    pr__publisher *self = user;
    pthread_mutex_lock(&self->link.lock);
    if (self->waiting && self->outcomes.count > 0) {
        self->waiting = false;
        pthread_cond_broadcast(&self->link.changed);
    }
    pthread_mutex_unlock(&self->link.lock);
}

/* ---- the caller's side ---- */

pr_status pr__publisher_submit(pr__publisher *self, const pr_submission *submissions, size_t count,
                               size_t *ret_accepted, pr_error *err)
{
    const pr__amqp_settings *settings = self->link.settings;
    int64_t now_us = pr__monotonic_us();
    size_t accepted = 0;
    pr_status status = PR_OK;
    pthread_mutex_lock(&self->link.lock);
    if (self->link.kind == PR_TRANSPORT_DOWN)
        status = pr__fail_retry(err, PR_E_BACKEND, PR_RETRY_RECONNECT, ORIGIN,
                                "transport '%s' is down: %s", settings->name, self->link.cause);
    while (self->link.kind == PR_TRANSPORT_UP && accepted < count &&
           self->in_flight < settings->window) {
        const pr_message *message = submissions[accepted].message;
        if (self->bytes_in_flight > 0 && /* one is always taken, however large it is */
            (self->bytes_in_flight >= settings->bytes_in_flight_max ||
             message->body_size_bytes > settings->bytes_in_flight_max - self->bytes_in_flight))
            break;
        self->inbox[self->inbox_count++] = (pr__pending){
            .ticket = submissions[accepted].ticket, .message = message, .accepted_at_us = now_us};
        self->bytes_in_flight += message->body_size_bytes;
        self->in_flight++;
        accepted++;
    }
    if (accepted > 0)
        pr__amqp_link_wake(&self->link);
    pthread_mutex_unlock(&self->link.lock);
    *ret_accepted = accepted;
    return status;
}

void pr__publisher_poll(pr__publisher *self, int64_t timeout_ms, pr_submitted *ret_outcomes,
                        size_t max, size_t *ret_count)
{
    int64_t until_us = 0;
    size_t count = 0;
    pthread_mutex_lock(&self->link.lock);
    while (self->outcomes.count == 0 && timeout_ms > 0) {
        if (until_us == 0)
            until_us =
                pr__monotonic_us() + (timeout_ms < INT32_MAX ? timeout_ms : INT32_MAX) * 1000;
        self->waiting = true;
        if (!pr__amqp_link_wait(&self->link, until_us))
            break;
    }
    self->waiting = false;
    count = pr__outcomes_take(&self->outcomes, ret_outcomes, max);
    self->in_flight -= (uint32_t)count;
    pthread_mutex_unlock(&self->link.lock);
    *ret_count = count;
}

/* ---- the thread's side ---- */

static void take_inbox(pr__publisher *self)
{
    uint32_t window = self->link.settings->window;
    pthread_mutex_lock(&self->link.lock);
    for (uint32_t i = 0; i < self->inbox_count; i++) {
        uint32_t at = (self->pending_first + self->pending_count++) % window;
        self->pending[at] = self->inbox[i];
    }
    self->inbox_count = 0;
    pthread_mutex_unlock(&self->link.lock);
}

static void lose_pending(pr__publisher *self, int64_t accepted_before_us, const char *reason)
{
    while (self->pending_count > 0) {
        pr__pending *first = &self->pending[self->pending_first];
        if (first->accepted_at_us >= accepted_before_us)
            return;
        pr__publisher_tell(self, first->ticket, first->message, PR_SUBMIT_LOST, false, reason);
        self->pending_first = (self->pending_first + 1) % self->link.settings->window;
        self->pending_count--;
    }
}

static void tell_lost(void *user, const pr__confirm_entry *entry, pr_submit_outcome outcome)
{
    pr__publisher *self = user;
    pr__publisher_tell(self, entry->ticket, entry->message, outcome,
                       self->suspects && outcome == PR_SUBMIT_LOST,
                       outcome == PR_SUBMIT_RETURNED ? "no queue is bound for it" : self->reason);
}

static bool is_blocked(pr__publisher *self, char *cause, size_t cause_size)
{
    pthread_mutex_lock(&self->link.lock);
    bool blocked = self->link.kind == PR_TRANSPORT_BLOCKED;
    if (blocked)
        pr__format(cause, cause_size, "%s", self->link.cause);
    pthread_mutex_unlock(&self->link.lock);
    return blocked;
}

/* What outlasted its deadline is lost. A connection that confirms nothing is of no use, but for a
   blocked one: what it confirms late costs nothing, and a new one would be blocked as well. */
static pr_status check_deadlines(pr__publisher *self, bool blocked, const char *cause,
                                 int64_t now_us, int64_t *wait_ms, pr_error *err)
{
    int64_t deadline_us = self->link.settings->publish_deadline_ms * 1000;
    int64_t due_us = INT64_MAX;
    if (self->was_blocked && !blocked)
        self->grace_from_us = now_us;
    self->was_blocked = blocked;
    if (self->pending_count > 0) {
        lose_pending(self, now_us - deadline_us,
                     blocked ? cause : "it could not be sent before its deadline");
        if (self->pending_count > 0)
            due_us = self->pending[self->pending_first].accepted_at_us + deadline_us;
    }
    if (pr__confirms_count(&self->confirms) > 0) {
        int64_t sent_us = pr__confirms_at(&self->confirms, self->confirms.confirmed)->sent_at_us;
        int64_t from_us = sent_us > self->grace_from_us ? sent_us : self->grace_from_us;
        if (blocked) {
            pr__format(self->reason, sizeof(self->reason), "no confirm in time: %s", cause);
            self->suspects = false;
            pr__confirms_expire(&self->confirms, now_us - deadline_us, tell_lost, self);
        } else if (now_us - from_us >= deadline_us) {
            PR__AMQP_COUNT(self->link.settings, deadlines);
            return pr__fail_retry(err, PR_E_BACKEND, PR_RETRY_UNKNOWN, ORIGIN,
                                  "the broker confirmed nothing for %lld ms",
                                  (long long)self->link.settings->publish_deadline_ms);
        } else if (from_us + deadline_us < due_us) {
            due_us = from_us + deadline_us;
        }
    }
    if (due_us != INT64_MAX && (due_us - now_us) / 1000 + 1 < *wait_ms)
        *wait_ms = due_us > now_us ? (due_us - now_us) / 1000 + 1 : 1;
    return PR_OK;
}

/* The channel that the broker closed: open it again when its time has come. */
static pr_status revive_channel(pr__publisher *self, pr__amqp_connection *connection,
                                int64_t now_us, int64_t *wait_ms, pr_error *err)
{
    if (now_us < self->reopen_at_us) {
        int64_t left_ms = (self->reopen_at_us - now_us) / 1000 + 1;
        *wait_ms = left_ms < *wait_ms ? left_ms : *wait_ms;
        return PR_OK;
    }
    TRY(pr__publisher_channel_open(self, connection, /* was_closed= */ true, err));
    pthread_mutex_lock(&self->link.lock);
    if (self->link.kind == PR_TRANSPORT_DOWN)
        pr__amqp_link_state_set(&self->link, PR_TRANSPORT_UP, "");
    pthread_mutex_unlock(&self->link.lock);
    return PR_OK;
}

static pr_status work(void *user, pr__amqp_connection *connection, bool writable,
                      bool *ret_want_write, int64_t *wait_ms, pr_error *err)
{
    pr__publisher *self = user;
    char cause[256] = "";
    int64_t now_us = pr__monotonic_us();
    take_inbox(self);
    bool blocked = is_blocked(self, cause, sizeof(cause));
    TRY(check_deadlines(self, blocked, cause, now_us, wait_ms, err));
    if (!self->channel_open)
        TRY(revive_channel(self, connection, now_us, wait_ms, err));
    if (blocked || !self->channel_open || self->pending_count == 0)
        return PR_OK;
    if (!writable) {
        *ret_want_write = !pr__confirms_full(&self->confirms);
        return PR_OK;
    }
    return pr__publisher_send(self, connection, ret_want_write, err);
}

static pr_status setup(void *user, pr__amqp_connection *connection, pr_error *err)
{
    pr__publisher *self = user;
    self->closes = 0;
    self->return_code = 0;
    self->grace_from_us = 0;
    self->was_blocked = false;
    pr__exchanges_forget(&self->exchanges, /* new_connection= */ true);
    return pr__publisher_channel_open(self, connection, /* was_closed= */ false, err);
}

/* A hard error of the protocol may be a message's doing; a restart or a cable is not. */
static bool may_be_a_message(const pr_error *why)
{
    return why && why->backend_code >= 501 && why->backend_code <= 541;
}

static void down(void *user, pr__amqp_connection *connection, const pr_error *why)
{
    pr__publisher *self = user;
    (void)connection;
    take_inbox(self);
    pr__format(self->reason, sizeof(self->reason), "%s",
               why ? why->message : "the transport was closed");
    self->suspects = may_be_a_message(why);
    pr__confirms_reset(&self->confirms, tell_lost, self);
    self->suspects = false;
    lose_pending(self, INT64_MAX, self->reason);
    self->channel_open = false;
    self->destination[0] = '\0';
}

static const pr__amqp_link_ops publisher_ops = {
    .setup = setup, .work = work, .frame = pr__publisher_frame, .flush = flush, .down = down};

/* ---- life ---- */

pr_status pr__publisher_init(pr__publisher *self, pr__amqp_settings *settings, pr_error *err)
{
    uint32_t window = settings->window;
    TRY(pr__confirms_init(&self->confirms, window, err));
    self->inbox = pr__alloc_array(window, sizeof(*self->inbox));
    self->pending = pr__alloc_array(window, sizeof(*self->pending));
    pr_status status = self->inbox && self->pending ? PR_OK : pr__fail_nomem(err, ORIGIN);
    if (status == PR_OK)
        status = pr__outcomes_init(&self->outcomes, window, ORIGIN, err);
    if (status == PR_OK)
        status = pr__amqp_link_init(&self->link, settings, &publisher_ops, self, "publish", err);
    if (status != PR_OK) {
        pr__confirms_done(&self->confirms);
        pr__free(self->inbox);
        pr__free(self->pending);
        pr__outcomes_done(&self->outcomes);
    }
    return status;
}

void pr__publisher_done(pr__publisher *self)
{
    pr__amqp_link_done(&self->link);
    pr__wire_out_done(&self->wire);
    pr__confirms_done(&self->confirms);
    pr__free(self->inbox);
    pr__free(self->pending);
    pr__outcomes_done(&self->outcomes);
}
