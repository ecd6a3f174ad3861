/*
 * The transport itself: made, cloned for another thread, closed. Postroom checks all arguments
 * before it calls one of these functions; what a transport cannot do it leaves out of the table.
 */
#include "shelf.h"

#define WINDOW_DEFAULT 256

int64_t shelf_now_us(const pr_transport *transport)
{
    return transport->clock->monotonic_us(transport->clock->user);
}

pr_status shelf_no_memory(pr_error *err)
{
    return pr_error_set(err, PR_E_NOMEM, PR_RETRY_SAME, SHELF_NAME, "out of memory");
}

static pr_status open(pr_transport *transport, int64_t timeout_ms, pr_error *err)
{
    (void)transport, (void)timeout_ms, (void)err; /* connect here, within timeout_ms */
    return PR_OK;
}

static void close_transport(pr_transport *transport)
{
    pr_free(((shelf_transport *)transport)->outcomes);
    pr_free(transport);
}

/* From any thread: it looks at nothing that the owner changes. */
static pr_status another(pr_transport *transport, pr_transport **ret_transport, pr_error *err)
{
    return shelf_connect(((shelf_transport *)transport)->shelf, transport->window, ret_transport,
                         err);
}

/* No `state`: it is always up. */
static const pr_transport_ops ops = {
    .size = (uint32_t)sizeof(pr_transport_ops),
    .capabilities =
        PR_TRANSPORT_CAN_SUBSCRIBE | PR_TRANSPORT_CAN_TEMPORARY | PR_TRANSPORT_CAN_TOPOLOGY,
    .scheme = SHELF_NAME,
    .open = open,
    .submit = shelf_submit,
    .poll = shelf_poll,
    .topology = shelf_topology,
    .subscribe = shelf_subscribe,
    .free = close_transport,
    .clone = another,
    .backlog = shelf_backlog,
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
        return shelf_no_memory(err);
    }
    *ret_transport = &made->base;
    return PR_OK;
}
