/*
 * Sending: each message that is taken ends in one outcome. Here the outcome is known at once; with
 * a server it comes later, and what is under way when the connection goes ends as LOST.
 */
#include <stdio.h>
#include <string.h>

#include "shelf.h"

static pr_submit_outcome give(pr_submitted *out, pr_submit_outcome outcome, const char *reason)
{
    snprintf(out->reason, sizeof(out->reason), "%s", reason);
    return outcome;
}

static pr_submit_outcome carry(shelf_transport *self, const pr_message *message, pr_submitted *out)
{
    pr_address to = {.size = (uint32_t)sizeof(to)};
    size_t count = 0;
    if (message->body_size_bytes > SHELF_BODY_MAX)
        return give(out, PR_SUBMIT_TOO_LARGE, "the body is larger than a shelf takes");
    if (pr_address_parse(message->destination, &to, NULL) != PR_OK ||
        strcmp(to.transport, self->base.name) != 0)
        return give(out, PR_SUBMIT_REFUSED, "the destination is no address of this transport");
    pthread_mutex_lock(&self->shelf->mutex);
    shelf_expire(self->shelf, shelf_now_us(&self->base));
    bool put = shelf_put(self->shelf, &to, message, &count);
    pthread_mutex_unlock(&self->shelf->mutex);
    if (!put)
        return give(out, PR_SUBMIT_LOST, "out of memory"); /* no fault of the message */
    if (count == 0 && !(to.kind == PR_ADDRESS_TOPIC && pr_message_unrouted_ok(message)))
        return give(out, PR_SUBMIT_RETURNED, "nobody is there");
    return PR_SUBMIT_CONFIRMED;
}

pr_status shelf_submit(pr_transport *transport, const pr_submission *submissions, size_t count,
                       size_t *ret_accepted, pr_error *err)
{
    shelf_transport *self = (shelf_transport *)transport;
    size_t taken = 0;
    (void)err;
    for (; taken < count && self->outcome_count < transport->window; taken++) {
        pr_submitted *out = &self->outcomes[self->outcome_count++];
        *out = (pr_submitted){.ticket = submissions[taken].ticket};
        out->outcome = carry(self, submissions[taken].message, out);
    }
    *ret_accepted = taken;
    return PR_OK;
}

pr_status shelf_poll(pr_transport *transport, int64_t timeout_ms, pr_submitted *ret_outcomes,
                     size_t max, size_t *ret_count, pr_error *err)
{
    shelf_transport *self = (shelf_transport *)transport;
    size_t count = self->outcome_count < max ? self->outcome_count : max;
    (void)timeout_ms, (void)err; /* wait here for the first */
    memcpy(ret_outcomes, self->outcomes, count * sizeof(*ret_outcomes));
    self->outcome_count -= count;
    memmove(self->outcomes, self->outcomes + count, self->outcome_count * sizeof(*self->outcomes));
    *ret_count = count;
    return PR_OK;
}
