/*
 * What every world of endpoints has.
 */
#include "support/endpoint_world.h"

#include "support/test.h"

void order_send_message(pr_transport *sender, const pr_message *message)
{
    pr_error err = PR_ERROR_INIT;
    pr_submission submission = {.ticket = 1, .message = message};
    pr_submitted outcome;
    size_t count = 0;
    check_ok(pr_transport_submit(sender, &submission, 1, &count, &err), &err, "submit");
    assert_int_equal(count, 1);
    check_ok(pr_transport_poll(sender, PATIENCE_MS, &outcome, 1, &count, &err), &err, "poll");
    if (count != 1 || outcome.outcome != PR_SUBMIT_CONFIRMED)
        fail_msg("the broker answered %d: %s", (int)outcome.outcome, outcome.reason);
}

void order_send(pr_transport *sender, const char *id, const char *key, const char *body)
{
    pr_message message =
        PR_MESSAGE(.id = id, .type = TYPE_ORDER, .type_version = 1,
                   .content_type = "application/json", .destination = "memory://topic/" TYPE_ORDER,
                   .key = key, .body = body, .body_size_bytes = strlen(body),
                   .occurred_at_us = 1767225600000000);
    order_send_message(sender, &message);
}

pr_endpoint_snapshot endpoint_snapshot(pr_endpoint *endpoint)
{
    pr_endpoint_snapshot snapshot = {.size = (uint32_t)sizeof snapshot};
    assert_int_equal(pr_endpoint_snapshot_get(endpoint, &snapshot, NULL), PR_OK);
    return snapshot;
}

pr_handled act_ok(world *w, pr_scope *scope)
{
    (void)w;
    (void)scope;
    return PR_HANDLED_OK;
}

pr_handled act_retry(world *w, pr_scope *scope)
{
    (void)w;
    pr_scope_fail(scope, "not yet", -1);
    return PR_HANDLED_RETRY;
}

pr_handled act_permanent(world *w, pr_scope *scope)
{
    (void)w;
    pr_scope_fail(scope, "never", -1);
    return PR_HANDLED_PERMANENT;
}
