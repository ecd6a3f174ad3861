/*
 * Sending: each message that is taken ends in one outcome. Here the outcome is known at once; with
 * a server it comes later, and what is under way when the connection goes ends as LOST.
 */
#include <stdio.h>
#include <string.h>

#include "shelf.h"

#define WINDOW_DEFAULT 256

typedef struct shelf_transport {
    pr_transport base; /* first: Postroom sees this */
    shelf *shelf;
    pr_submitted *outcomes; /* room for a window; not polled yet */
    size_t outcome_count;
} shelf_transport;

shelf *shelf_of(pr_transport *transport)
{
    return ((shelf_transport *)transport)->shelf;
}

static pr_status open(pr_transport *transport, int64_t timeout_ms, pr_error *err)
{
    (void)transport, (void)timeout_ms, (void)err; /* connect here, within timeout_ms */
    return PR_OK;
}

/* May a topic be published that reaches nobody? */
static bool unrouted_ok(const pr_message *message)
{
    pr_headers *headers = NULL;
    bool ok = false;
    if (pr_headers_parse(message->headers, &headers, NULL) == PR_OK) {
        const pr_header *header = pr_headers_get(headers, PR_HEADER_NAME_UNROUTED_OK);
        ok = header && ((header->kind == PR_HEADER_BOOL && header->integer != 0) ||
                        (header->kind == PR_HEADER_TEXT && strcmp(header->text, "true") == 0));
    }
    pr_headers_free(headers);
    return ok;
}

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
    if (count == 0 && !(to.kind == PR_ADDRESS_TOPIC && unrouted_ok(message)))
        return give(out, PR_SUBMIT_RETURNED, "nobody is there");
    return PR_SUBMIT_CONFIRMED;
}

static pr_status submit(pr_transport *transport, const pr_submission *submissions, size_t count,
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

static pr_status poll(pr_transport *transport, int64_t timeout_ms, pr_submitted *ret_outcomes,
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

static void close_transport(pr_transport *transport)
{
    pr_free(((shelf_transport *)transport)->outcomes);
    pr_free(transport);
}

/* No `state`: it is always up. */
static const pr_transport_ops ops = {
    .size = (uint32_t)sizeof(pr_transport_ops),
    .capabilities =
        PR_TRANSPORT_CAN_SUBSCRIBE | PR_TRANSPORT_CAN_TEMPORARY | PR_TRANSPORT_CAN_TOPOLOGY,
    .scheme = SHELF_NAME,
    .open = open,
    .submit = submit,
    .poll = poll,
    .topology = shelf_topology,
    .subscribe = shelf_subscribe,
    .free = close_transport,
};

pr_status shelf_connect(shelf *self, uint32_t window, pr_transport **ret_transport, pr_error *err)
{
    shelf_transport *made = pr_alloc(sizeof(*made));
    if (made) {
        made->base = (pr_transport){.ops = &ops, .name = SHELF_NAME, .clock = pr_clock_system()};
        made->base.window = window > 0 ? window : WINDOW_DEFAULT;
        made->shelf = self;
        made->outcomes = pr_alloc(made->base.window * sizeof(*made->outcomes));
    }
    if (!made || !made->outcomes) {
        pr_free(made);
        return pr_error_set(err, PR_E_NOMEM, PR_RETRY_SAME, SHELF_NAME, "out of memory");
    }
    *ret_transport = &made->base;
    return PR_OK;
}
