/*
 * The database transport.
 *
 * Owns: its own handle on the other store, the window, and the state of the connection.
 * Keeps: what was submitted is appended by the next poll, in one transaction; everything accepted
 * gets one outcome. A busy database is blocked, one that fails is down until open() answers.
 * Must not know: which database it is; it uses the store port alone.
 */
#include "transport/database/transport.h"

#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "base/process.h"
#include "base/sized.h"
#include "base/text.h"
#include "port/observe.h"
#include "port/route.h"
#include "transport/database/append.h"
#include "transport/database/subscription.h"

#define ORIGIN           "database.transport"
#define WINDOW_MAX       65536
#define BLOCKED_RETRY_US 200000

static pr__database_transport *self_of(pr_transport *transport)
{
    return (pr__database_transport *)transport;
}

/* ---- state ---- */

void pr__database_state_set(pr__database_transport *self, pr_transport_state_kind state,
                            const char *cause)
{
    bool changed = self->state != state;
    self->state = state;
    pr__format(self->cause, sizeof(self->cause), "%s", cause);
    if (!changed)
        return;
    const pr_observation seen = {.size = (uint32_t)sizeof(seen),
                                 .kind = PR_OBSERVE_TRANSPORT_STATE,
                                 .count = 1,
                                 .subject = self->name,
                                 .status = state == PR_TRANSPORT_UP ? PR_OK : PR_E_BACKEND,
                                 .text = self->cause};
    pr__observe(self->base.observer, &seen);
}

void pr__database_state_failed(pr__database_transport *self, const pr_error *err)
{
    if (err->retry == PR_RETRY_RECONNECT || err->retry == PR_RETRY_UNKNOWN)
        self->reconnect = true;
    if (err->status == PR_E_BUSY || err->status == PR_E_NOMEM || err->retry == PR_RETRY_SAME) {
        const pr_clock *clock = self->base.clock;
        self->blocked_until_us = clock->monotonic_us(clock->user) + BLOCKED_RETRY_US;
        pr__database_state_set(self, PR_TRANSPORT_BLOCKED, err->message);
    } else {
        pr__database_state_set(self, PR_TRANSPORT_DOWN, err->message);
    }
}

static void database_state(pr_transport *transport, pr_transport_state *ret_state)
{
    pr__database_transport *self = self_of(transport);
    const pr_clock *clock = transport->clock;
    bool over = self->state == PR_TRANSPORT_BLOCKED &&
                clock->monotonic_us(clock->user) >= self->blocked_until_us;
    ret_state->kind = over ? PR_TRANSPORT_UP : self->state;
    pr__format(ret_state->cause, sizeof(ret_state->cause), "%s", over ? "" : self->cause);
}

pr_status pr__database_reconnect(pr_store **store, pr_error *err)
{
    pr_store *fresh = NULL;
    TRY(pr_store_clone(*store, &fresh, err));
    pr_store_free(*store);
    *store = fresh;
    return PR_OK;
}

static pr_status database_open(pr_transport *transport, int64_t timeout_ms, pr_error *err)
{
    (void)timeout_ms; /* bounded by the store's own busy limit */
    pr__database_transport *self = self_of(transport);
    if (self->state == PR_TRANSPORT_UP && !self->reconnect)
        return PR_OK;
    pr_error fault = PR_ERROR_INIT;
    pr_status status = self->reconnect ? pr__database_reconnect(&self->store, &fault) : PR_OK;
    if (status == PR_OK) {
        self->reconnect = false;
        status = pr_store_check(self->store, &fault);
    }
    if (status == PR_OK)
        pr__database_state_set(self, PR_TRANSPORT_UP, "");
    else
        pr__database_state_failed(self, &fault);
    pr__error_copy(err, &fault);
    return status;
}

/* ---- sending ---- */

static pr_status database_submit(pr_transport *transport, const pr_submission *submissions,
                                 size_t count, size_t *ret_accepted, pr_error *err)
{
    pr__database_transport *self = self_of(transport);
    if (self->state == PR_TRANSPORT_DOWN)
        return pr__fail_retry(err, PR_E_BACKEND, PR_RETRY_RECONNECT, ORIGIN,
                              "transport '%s' is down, open it again: %s", self->name, self->cause);
    size_t room = transport->window - self->waiting_count - self->outcomes.count;
    size_t accepted = count < room ? count : room;
    memcpy(self->waiting + self->waiting_count, submissions, accepted * sizeof(*submissions));
    self->waiting_count += (uint32_t)accepted;
    *ret_accepted = accepted;
    return PR_OK;
}

/* It never waits for more: all that was submitted has its outcome after one append. */
static pr_status database_poll(pr_transport *transport, int64_t timeout_ms,
                               pr_submitted *ret_outcomes, size_t max, size_t *ret_count,
                               pr_error *err)
{
    (void)timeout_ms;
    (void)err;
    pr__database_transport *self = self_of(transport);
    if (self->waiting_count > 0)
        pr__database_append(self);
    *ret_count = pr__outcomes_take(&self->outcomes, ret_outcomes, max);
    return PR_OK;
}

static void database_free(pr_transport *transport)
{
    pr__database_transport *self = self_of(transport);
    pr_store_free(self->store);
    pr__free(self->waiting);
    pr__outcomes_done(&self->outcomes);
    pr__free(self->entries);
    pr__free(self->messages);
    pr__free(self->entry_places);
    pr__free(self);
}

/* The store is only cloned once more: nothing of its connection is looked at. */
static pr_status database_clone(pr_transport *transport, pr_transport **ret_transport,
                                pr_error *err)
{
    const pr__database_transport *self = self_of(transport);
    const pr_database_options opt = {.size = (uint32_t)sizeof opt,
                                     .window = transport->window,
                                     .name = self->name,
                                     .owner = self->owner,
                                     .observer = transport->observer,
                                     .clock = transport->clock};
    return pr_database_transport_new(self->store, &opt, ret_transport, err);
}

static const pr_transport_ops database_ops = {
    .size = (uint32_t)sizeof(pr_transport_ops),
    .capabilities = PR_TRANSPORT_CAN_SUBSCRIBE | PR_TRANSPORT_CAN_TEMPORARY |
                    PR_TRANSPORT_CAN_TOPOLOGY | PR_TRANSPORT_DURABLE,
    .scheme = "database",
    .open = database_open,
    .submit = database_submit,
    .poll = database_poll,
    .state = database_state,
    .topology = pr__database_topology,
    .subscribe = pr__database_subscribe,
    .free = database_free,
    .clone = database_clone,
    .backlog = pr__database_backlog,
};

static void set_owner(pr__database_transport *self, const char *owner)
{
    if (owner)
        pr__format(self->owner, sizeof(self->owner), "%s", owner);
    else
        pr__process_name(self->owner, sizeof(self->owner));
}

static pr_status make_room(pr__database_transport *self, pr_error *err)
{
    uint32_t window = self->base.window;
    self->waiting = pr__alloc_array(window, sizeof(*self->waiting));
    self->entries = pr__alloc_array(window, sizeof(*self->entries));
    self->messages = pr__alloc_array(window, sizeof(*self->messages));
    self->entry_places = pr__alloc_array(window, sizeof(*self->entry_places));
    if (!self->waiting || !self->entries || !self->messages || !self->entry_places)
        return pr__fail_nomem(err, ORIGIN);
    return pr__outcomes_init(&self->outcomes, window, ORIGIN, err);
}

pr_status pr_database_transport_new(pr_store *store, const pr_database_options *opt,
                                    pr_transport **ret_transport, pr_error *err)
{
    static const pr_database_options defaults = {.size = (uint32_t)sizeof(pr_database_options)};
    if (!store || !ret_transport)
        return pr__fail(err, PR_E_INVALID, ORIGIN, "store or ret_transport is NULL");
    if (!opt)
        opt = &defaults;
    TRY(pr__sized_check(opt, sizeof(*opt), "pr_database_options", ORIGIN, err));
    if (opt->window > WINDOW_MAX)
        return pr__fail(err, PR_E_INVALID, ORIGIN, "window is %u, at most %d", opt->window,
                        WINDOW_MAX);
    const char *name = opt->name ? opt->name : "database";
    TRY(pr__scheme_check(name, err));

    pr__database_transport *self = pr__alloc(sizeof(*self));
    if (!self)
        return pr__fail_nomem(err, ORIGIN);
    pr__format(self->name, sizeof(self->name), "%s", name);
    set_owner(self, opt->owner);
    self->base.ops = &database_ops;
    self->base.name = self->name;
    self->base.observer = opt->observer;
    self->base.clock = opt->clock ? opt->clock : pr_clock_system();
    self->base.window = opt->window ? opt->window : PR_CONFIRM_WINDOW_DEFAULT;
    self->state = PR_TRANSPORT_DOWN;
    pr__format(self->cause, sizeof(self->cause), "not opened yet");
    pr_status status = make_room(self, err);
    if (status == PR_OK)
        status = pr_store_clone(store, &self->store, err);
    if (status == PR_OK)
        status = pr_store_check(self->store, err);
    if (status != PR_OK) {
        database_free(&self->base);
        return status;
    }
    *ret_transport = &self->base;
    return PR_OK;
}
