/*
 * The transport suite, subscriptions: what stands, what vanishes, what is refused.
 */
#include "contract/transport_cases.h"
#include "contract/transport_fixture.h"

/* Capability 98, the transport's part: a reply address lives as long as its subscription. */
void case_a_temporary_subscription_vanishes(void **state)
{
    fixture *fix = *state;
    if (!(transport_at(fix, 0)->ops->capabilities & PR_TRANSPORT_CAN_TEMPORARY))
        return;
    pr_subscribe_options options = options_of("7f3a");
    options.type_count = 0;
    options.temporary = true;
    pr_subscription *replies = subscribe_with(fix, transport_at(fix, 0), &options);
    post *run = post_to(fix, "reply/7f3a", NULL);
    post_to(fix, "reply/7f3a", NULL);
    post_to(fix, "reply/7f3a", NULL);
    publish(fix, transport_at(fix, 1), run, 1, PR_SUBMIT_CONFIRMED);
    publish(fix, transport_at(fix, 1), run + 1, 1, PR_SUBMIT_CONFIRMED);
    pr_delivery delivery;
    receive_exactly(fix, replies, &delivery, 1);
    settle(replies, delivery.tag, PR_VERDICT_ACK);

    pr_subscription *second = NULL;
    pr_error err = PR_ERROR_INIT;
    pr_status status = pr_transport_subscribe(transport_at(fix, 1), &options, &second, &err);
    check_error(status, &err, PR_E_CONFLICT, "7f3a", "a second holder of a reply address");
    assert_null(second);

    unsubscribe(fix, replies);
    publish(fix, transport_at(fix, 1), run + 2, 1, PR_SUBMIT_RETURNED);
}

void case_a_temporary_subscription_takes_topics(void **state)
{
    fixture *fix = *state;
    if (!(transport_at(fix, 0)->ops->capabilities & PR_TRANSPORT_CAN_TEMPORARY))
        return;
    pr_subscribe_options options = options_of("watch-1");
    options.temporary = true;
    pr_subscription *watch = subscribe_with(fix, transport_at(fix, 0), &options);
    post *run = post_to(fix, "topic/" TYPE_PLACED, NULL);
    post_to(fix, "in/watch-1", NULL);
    post_to(fix, "topic/" TYPE_PLACED, NULL);
    publish(fix, transport_at(fix, 1), run, 1, PR_SUBMIT_CONFIRMED);
    publish(fix, transport_at(fix, 1), run + 1, 1, PR_SUBMIT_RETURNED); /* it is no endpoint */
    unsigned seen[POSTS_MAX] = {0};
    drain(fix, watch, 1, seen);
    unsubscribe(fix, watch);
    publish(fix, transport_at(fix, 1), run + 2, 1, PR_SUBMIT_RETURNED);
}

void case_a_queue_stands_without_its_holder(void **state)
{
    fixture *fix = *state;
    unsubscribe(fix, subscribe(fix, transport_at(fix, 0), "billing", 0));
    post *one = post_to(fix, "topic/" TYPE_PLACED, NULL);
    publish(fix, transport_at(fix, 1), one, 1, PR_SUBMIT_CONFIRMED);
    pr_subscription *billing = subscribe(fix, transport_at(fix, 2), "billing", 0);
    unsigned seen[POSTS_MAX] = {0};
    drain(fix, billing, 1, seen);
    assert_int_equal(seen[0], 1);
}

void case_other_types_for_one_endpoint_conflict(void **state)
{
    fixture *fix = *state;
    static const char *const other[] = {TYPE_PAID};
    static const char *const more[] = {TYPE_PAID, TYPE_PLACED};
    static const char *const twice[] = {TYPE_PLACED, TYPE_PLACED};
    static const struct {
        const char *label;
        const char *const *types;
        size_t count;
        pr_status wanted;
    } cases[] = {
        {"another type", other, 1, PR_E_CONFLICT},
        {"one more", more, 2, PR_E_CONFLICT},
        {"none", NULL, 0, PR_E_CONFLICT},
        {"the same, said twice", twice, 2, PR_OK},
    };
    subscribe(fix, transport_at(fix, 0), "billing", 0);
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        pr_error err = PR_ERROR_INIT;
        pr_subscription *subscription = NULL;
        pr_subscribe_options options = options_of("billing");
        options.types = cases[i].types;
        options.type_count = cases[i].count;
        pr_status status =
            pr_transport_subscribe(transport_at(fix, 1), &options, &subscription, &err);
        if (cases[i].wanted == PR_OK)
            check_ok(status, &err, cases[i].label);
        else
            check_error(status, &err, cases[i].wanted, "billing", cases[i].label);
        CHECK_CASE((subscription == NULL) == (status != PR_OK), cases[i].label);
        pr_subscription_free(subscription);
    }
}

void case_topology_is_made_and_checked(void **state)
{
    fixture *fix = *state;
    pr_transport *transport = transport_at(fix, 0);
    if (!(transport->ops->capabilities & PR_TRANSPORT_CAN_TOPOLOGY))
        return;
    pr_subscribe_options options = options_of("billing");
    pr_error err = PR_ERROR_INIT;
    check_error(pr_transport_topology(transport, &options, true, &err), &err, PR_E_NOT_FOUND,
                "billing", "checked before it was made");
    pr_error_clear(&err);
    post *run = post_to(fix, "topic/" TYPE_PLACED, NULL);
    post_to(fix, "topic/" TYPE_PLACED, NULL);
    publish(fix, transport_at(fix, 1), run, 1, PR_SUBMIT_RETURNED); /* checking made nothing */
    check_ok(pr_transport_topology(transport, &options, false, &err), &err, "make");
    check_ok(pr_transport_topology(transport, &options, false, &err), &err, "make again");
    check_ok(pr_transport_topology(transport, &options, true, &err), &err, "check");
    publish(fix, transport_at(fix, 1), run + 1, 1, PR_SUBMIT_CONFIRMED);
    static const char *const other[] = {TYPE_PAID};
    options.types = other;
    check_error(pr_transport_topology(transport, &options, true, &err), &err, PR_E_CONFLICT,
                "billing", "check with other types");
    pr_error_clear(&err);
    check_error(pr_transport_topology(transport, &options, false, &err), &err, PR_E_CONFLICT,
                "billing", "make with other types");
    unsigned seen[POSTS_MAX] = {0};
    drain(fix, subscribe(fix, transport, "billing", 0), 1, seen);
}

static void check_invalid(pr_status status, pr_error *err, const char *label)
{
    check_error(status, err, PR_E_INVALID, "", label);
    assert_int_equal(err->retry, PR_RETRY_NEVER);
    pr_error_clear(err);
}

void case_garbage_is_refused_when_sending(void **state)
{
    fixture *fix = *state;
    pr_transport *transport = transport_at(fix, 0);
    pr_error err = PR_ERROR_INIT;
    size_t count = 0;
    pr_submitted outcome;
    post *one = post_to(fix, "in/billing", NULL);
    pr_submission submission = {1, &one->message};
    check_invalid(pr_transport_open(NULL, 0, &err), &err, "open nothing");
    check_invalid(pr_transport_open(transport, -1, &err), &err, "open, negative");
    check_invalid(pr_transport_submit(NULL, &submission, 1, &count, &err), &err, "submit to none");
    check_invalid(pr_transport_submit(transport, NULL, 1, &count, &err), &err, "submit none");
    check_invalid(pr_transport_submit(transport, &submission, 1, NULL, &err), &err, "no count");
    check_invalid(pr_transport_poll(transport, -1, &outcome, 1, &count, &err), &err, "negative");
    check_invalid(pr_transport_poll(transport, 0, &outcome, 0, &count, &err), &err, "no room");
    check_invalid(pr_transport_poll(transport, 0, NULL, 1, &count, &err), &err, "NULL room");
    check_invalid(pr_transport_poll(NULL, 0, &outcome, 1, &count, &err), &err, "poll none");
    const pr_message whole = one->message;
    one->message.destination = NULL;
    check_invalid(pr_transport_submit(transport, &submission, 1, &count, &err), &err, "nowhere");
    one->message = whole;
    one->message.id = NULL;
    check_invalid(pr_transport_submit(transport, &submission, 1, &count, &err), &err, "no id");
    one->message = whole;
    one->message.body = NULL;
    check_invalid(pr_transport_submit(transport, &submission, 1, &count, &err), &err, "no body");
    submission.message = NULL;
    check_invalid(pr_transport_submit(transport, &submission, 1, &count, &err), &err, "no message");
    /* nothing of it is under way, and an empty submit is nothing */
    check_ok(pr_transport_submit(transport, NULL, 0, &count, &err), &err, "an empty submit");
    assert_int_equal(count, 0);
    check_ok(pr_transport_poll(transport, 0, &outcome, 1, &count, &err), &err, "poll");
    assert_int_equal(count, 0);
    assert_null(pr_transport_free(NULL));
}

void case_garbage_is_refused_when_receiving(void **state)
{
    fixture *fix = *state;
    pr_transport *transport = transport_at(fix, 0);
    pr_subscription *billing = subscribe(fix, transport, "billing", 0);
    pr_error err = PR_ERROR_INIT;
    size_t count = 0;
    pr_delivery delivery;
    pr_subscription *none = NULL;
    check_invalid(pr_subscription_receive(NULL, 0, &delivery, 1, &count, &err), &err, "from none");
    check_invalid(pr_subscription_receive(billing, -1, &delivery, 1, &count, &err), &err, "late");
    check_invalid(pr_subscription_receive(billing, 0, &delivery, 0, &count, &err), &err, "no room");
    check_invalid(pr_subscription_receive(billing, 0, NULL, 1, &count, &err), &err, "NULL room");
    check_invalid(pr_subscription_settle(NULL, 1, PR_VERDICT_ACK, 0, &err), &err, "settle none");
    check_invalid(pr_subscription_settle(billing, 1, (pr_verdict)0, 0, &err), &err, "no verdict");
    check_invalid(pr_subscription_settle(billing, 1, (pr_verdict)4, 0, &err), &err, "verdict 4");
    check_invalid(pr_subscription_settle(billing, 1, PR_VERDICT_REQUEUE, -1, &err), &err, "delay");
    check_invalid(pr_subscription_keep(NULL, &err), &err, "keep none");
    check_invalid(pr_transport_subscribe(transport, NULL, &none, &err), &err, "no options");
    pr_subscribe_options options = options_of("billing");
    check_invalid(pr_transport_subscribe(transport, &options, NULL, &err), &err, "no result");
    check_invalid(pr_transport_subscribe(NULL, &options, &none, &err), &err, "no transport");
    options.size = 0;
    check_invalid(pr_transport_subscribe(transport, &options, &none, &err), &err, "no size");
    options = options_of(NULL);
    check_invalid(pr_transport_subscribe(transport, &options, &none, &err), &err, "no endpoint");
    options = options_of("");
    check_invalid(pr_transport_subscribe(transport, &options, &none, &err), &err, "empty id");
    options = options_of("billing");
    options.types = NULL;
    check_invalid(pr_transport_subscribe(transport, &options, &none, &err), &err, "NULL types");
    options = options_of("billing");
    options.lease_ms = -1;
    check_invalid(pr_transport_subscribe(transport, &options, &none, &err), &err, "lease");
    static const struct {
        const char *endpoint;
        pr_status wanted;
    } ids[] = {{"a/b", PR_E_CONTENT},
               {"a b", PR_E_CONTENT},
               {"a\n", PR_E_CONTENT},
               {"a\xFF", PR_E_CONTENT}};
    for (size_t i = 0; i < COUNT_OF(ids); i++) {
        options = options_of(ids[i].endpoint);
        pr_status status = pr_transport_subscribe(transport, &options, &none, &err);
        check_error(status, &err, ids[i].wanted, "endpoint id", ids[i].endpoint);
        pr_error_clear(&err);
    }
    char long_id[300];
    memset(long_id, 'x', 256);
    long_id[256] = '\0';
    options = options_of(long_id);
    check_error(pr_transport_subscribe(transport, &options, &none, &err), &err, PR_E_LIMIT, "256",
                "a long id");
    assert_null(none);
    assert_null(pr_subscription_free(NULL));
    receive_nothing(fix, billing);
    pr_error_clear(&err);
    check_ok(pr_subscription_keep(billing, &err), &err, "keep with nothing in hand");
}

static uint64_t backlog_of(fixture *fix, const char *endpoint)
{
    pr_error err = PR_ERROR_INIT;
    pr_subscribe_options options = options_of(endpoint);
    uint64_t count = UINT64_MAX;
    check_ok(pr_transport_backlog(transport_at(fix, 2), &options, &count, &err), &err, endpoint);
    return count;
}

/* Until the other side has noticed; a count that may be too small is told from none alone. */
static void backlog_until(fixture *fix, bool wanted, const char *label)
{
    int64_t deadline = now_ms() + fix->provider->patience_ms;
    while ((backlog_of(fix, "billing") > 0) != wanted) {
        if (now_ms() > deadline)
            fail_msg("%s: the backlog is %llu", label,
                     (unsigned long long)backlog_of(fix, "billing"));
        receive_nothing(fix, fix->subscriptions[0]); /* verdicts may wait for the next receive */
    }
}

/* Waiting, in hand, requeued: it is there until it is settled for good. Asked by a third party. */
void case_the_backlog_counts_until_it_is_settled(void **state)
{
    fixture *fix = *state;
    pr_transport *transport = transport_at(fix, 0);
    pr_subscribe_options options = options_of("billing");
    pr_error err = PR_ERROR_INIT;
    uint64_t count = 7;
    check_invalid(pr_transport_backlog(NULL, &options, &count, &err), &err, "of no transport");
    if (!(transport->ops->size > offsetof(pr_transport_ops, backlog) && transport->ops->backlog)) {
        check_error(pr_transport_backlog(transport, &options, &count, &err), &err, PR_E_UNSUPPORTED,
                    "backlog", "the other side cannot be asked");
        return;
    }
    check_invalid(pr_transport_backlog(transport, NULL, &count, &err), &err, "no options");
    check_invalid(pr_transport_backlog(transport, &options, NULL, &err), &err, "no result");
    assert_int_equal(backlog_of(fix, "billing"), 0); /* nobody has subscribed, and asking ... */
    post *one = post_to(fix, "topic/" TYPE_PLACED, NULL);
    publish(fix, transport_at(fix, 1), one, 1, PR_SUBMIT_RETURNED); /* ... made nothing */
    pr_subscription *billing = subscribe(fix, transport, "billing", 0);
    subscribe(fix, transport, "audit", 0);
    publish(fix, transport_at(fix, 1), post_to(fix, "in/billing", NULL), 1, PR_SUBMIT_CONFIRMED);
    assert_int_equal(backlog_of(fix, "billing"), 1);
    pr_delivery delivery;
    receive_exactly(fix, billing, &delivery, 1);
    assert_int_equal(backlog_of(fix, "billing"), 1);
    settle(billing, delivery.tag, PR_VERDICT_REQUEUE);
    assert_int_equal(backlog_of(fix, "billing"), 1);
    receive_exactly(fix, billing, &delivery, 1);
    assert_int_equal(backlog_of(fix, "billing"), 1);
    settle(billing, delivery.tag, PR_VERDICT_ACK);
    backlog_until(fix, false, "acknowledged");
    publish(fix, transport_at(fix, 1), post_to(fix, "in/billing", NULL), 1, PR_SUBMIT_CONFIRMED);
    receive_exactly(fix, billing, &delivery, 1);
    settle(billing, delivery.tag, PR_VERDICT_REJECT);
    backlog_until(fix, false, "in the dead queue");
}
