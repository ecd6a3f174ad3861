/*
 * The transport suite, sending: routing, outcomes, windows, borrowed memory.
 */
#include "contract/transport_cases.h"
#include "contract/transport_fixture.h"

void case_the_provider_is_the_one_named(void **state)
{
    fixture *fix = *state;
    pr_transport *transport = transport_at(fix, 0);
    assert_string_equal(transport->ops->scheme, fix->provider->scheme);
    assert_string_equal(transport->name, fix->provider->address);
    assert_true(transport->ops->size >= sizeof(pr_transport_ops));
    assert_int_equal(transport->window, 64);
    pr_transport_state up;
    pr_transport_state_get(transport, &up);
    assert_int_equal(up.kind, PR_TRANSPORT_UP);
    assert_string_equal(up.cause, "");
}

/* Capability 97. */
void case_a_topic_reaches_each_subscription_once(void **state)
{
    fixture *fix = *state;
    static const char *const both[] = {TYPE_PLACED, TYPE_PAID};
    pr_subscribe_options options = options_of("audit");
    options.types = both;
    options.type_count = COUNT_OF(both);
    pr_subscription *audit = subscribe_with(fix, transport_at(fix, 0), &options);
    pr_subscription *billing = subscribe(fix, transport_at(fix, 0), "billing", 0);
    pr_subscription *mail = subscribe(fix, transport_at(fix, 1), "mail", 0);
    post *placed = post_to(fix, "topic/" TYPE_PLACED, NULL);
    post *paid = post_to(fix, "topic/" TYPE_PAID, NULL);
    paid->message.type = TYPE_PAID;
    publish(fix, transport_at(fix, 2), placed, 2, PR_SUBMIT_CONFIRMED);
    unsigned seen[POSTS_MAX] = {0};
    drain(fix, billing, 1, seen);
    drain(fix, mail, 1, seen);
    drain(fix, audit, 2, seen);
    assert_int_equal(seen[0], 3);
    assert_int_equal(seen[1], 1);
    receive_nothing(fix, billing);
    receive_nothing(fix, mail);
    receive_nothing(fix, audit);
}

void case_an_endpoint_address_reaches_it_alone(void **state)
{
    fixture *fix = *state;
    pr_subscription *billing = subscribe(fix, transport_at(fix, 0), "billing", 0);
    pr_subscription *mail = subscribe(fix, transport_at(fix, 0), "mail", 0);
    post *one = post_to(fix, "in/billing", NULL);
    post_to(fix, "in/" TYPE_PLACED "/billing", NULL);
    publish(fix, transport_at(fix, 1), one, 2, PR_SUBMIT_CONFIRMED);
    unsigned seen[POSTS_MAX] = {0};
    drain(fix, billing, 2, seen);
    assert_true(seen[0] == 1 && seen[1] == 1);
    receive_nothing(fix, mail);
    receive_nothing(fix, billing);
}

void case_nobody_there_is_returned(void **state)
{
    fixture *fix = *state;
    static const char *const paths[] = {
        "topic/" TYPE_UNKNOWN,
        "in/nobody",
        "in/" TYPE_PAID "/billing", /* billing does not take this type */
        "reply/nobody",
    };
    pr_subscription *billing = subscribe(fix, transport_at(fix, 0), "billing", 0);
    for (size_t i = 0; i < COUNT_OF(paths); i++) {
        pr_submitted outcome = publish_one(fix, transport_at(fix, 1), post_to(fix, paths[i], NULL));
        CHECK_CASE(outcome.outcome == PR_SUBMIT_RETURNED, paths[i]);
        CHECK_CASE(outcome.reason[0] != '\0', paths[i]);
    }
    /* the neighbours of one that is returned go through */
    post *run = post_to(fix, "in/billing", NULL);
    post *lost = post_to(fix, "in/nobody", NULL);
    post_to(fix, "in/billing", NULL);
    pr_submission three[] = {{1, &run->message}, {2, &lost->message}, {3, &run[2].message}};
    size_t accepted = 0;
    pr_error err = PR_ERROR_INIT;
    check_ok(pr_transport_submit(transport_at(fix, 1), three, 3, &accepted, &err), &err, "submit");
    assert_int_equal(accepted, 3);
    int outcomes[4] = {0};
    for (size_t have = 0; have < 3;) {
        pr_submitted out[4];
        size_t got = 0;
        check_ok(pr_transport_poll(transport_at(fix, 1), 100, out, 4, &got, &err), &err, "poll");
        for (size_t i = 0; i < got; i++)
            outcomes[out[i].ticket] = (int)out[i].outcome;
        have += got;
    }
    assert_int_equal(outcomes[1], PR_SUBMIT_CONFIRMED);
    assert_int_equal(outcomes[2], PR_SUBMIT_RETURNED);
    assert_int_equal(outcomes[3], PR_SUBMIT_CONFIRMED);
    unsigned seen[POSTS_MAX] = {0};
    drain(fix, billing, 2, seen);
    assert_true(seen[4] == 1 && seen[5] == 0 && seen[6] == 1);
    receive_nothing(fix, billing);
}

/* A subscription that another made a moment ago is seen; what was returned never comes. */
void case_a_new_subscription_is_seen_at_once(void **state)
{
    fixture *fix = *state;
    post *early = post_to(fix, "topic/" TYPE_PLACED, NULL);
    publish(fix, transport_at(fix, 0), early, 1, PR_SUBMIT_RETURNED);
    pr_subscription *billing = subscribe(fix, transport_at(fix, 1), "billing", 0);
    post *later = post_to(fix, "topic/" TYPE_PLACED, NULL);
    publish(fix, transport_at(fix, 0), later, 1, PR_SUBMIT_CONFIRMED);
    pr_delivery delivery;
    receive_exactly(fix, billing, &delivery, 1);
    assert_int_equal(post_number(&delivery.message), 1);
    settle(billing, delivery.tag, PR_VERDICT_ACK);
    receive_nothing(fix, billing);
}

void case_unrouted_ok_is_confirmed(void **state)
{
    fixture *fix = *state;
    static const struct {
        const char *headers;
        pr_submit_outcome wanted;
    } cases[] = {
        {"{\"postroom-unrouted-ok\": \"true\"}", PR_SUBMIT_CONFIRMED},
        {"{\"a\":\"}\",\"postroom-unrouted-ok\":{\"bool\":true}}", PR_SUBMIT_CONFIRMED},
        {"{\"postroom-unrouted-ok\":{\"bool\":false}}", PR_SUBMIT_RETURNED},
        {"{\"note\":\"postroom-unrouted-ok\"}", PR_SUBMIT_RETURNED},
        {"{\"note\":\"\\\"postroom-unrouted-ok\\\":\"}", PR_SUBMIT_RETURNED},
        {"{\"note\":{\"postroom-unrouted-ok\":1}}", PR_SUBMIT_RETURNED},
        {NULL, PR_SUBMIT_RETURNED},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        post *one = post_to(fix, "topic/" TYPE_UNKNOWN, NULL);
        one->message.headers = cases[i].headers;
        pr_submitted outcome = publish_one(fix, transport_at(fix, 0), one);
        CHECK_CASE(outcome.outcome == cases[i].wanted, cases[i].headers ? cases[i].headers : "");
    }
    /* it speaks of topics: an endpoint that is not there is not there */
    post *one = post_to(fix, "in/nobody", NULL);
    one->message.headers = cases[0].headers;
    assert_int_equal(publish_one(fix, transport_at(fix, 0), one).outcome, PR_SUBMIT_RETURNED);
}

void case_a_bad_message_fails_alone(void **state)
{
    fixture *fix = *state;
    pr_subscription *billing = subscribe(fix, transport_at(fix, 0), "billing", 0);
    uint64_t size = fix->provider->body_size_max + 1;
    char *large = calloc(1, size);
    assert_non_null(large);
    post *run = post_to(fix, "in/billing", NULL);
    for (size_t i = 0; i < 4; i++)
        post_to(fix, "in/billing", NULL);
    run[1].message.body = large;
    run[1].message.body_size_bytes = size;
    run[3].message.destination = "nonsense";
    pr_submission five[5];
    for (size_t i = 0; i < 5; i++)
        five[i] = (pr_submission){i, &run[i].message};
    pr_error err = PR_ERROR_INIT;
    size_t accepted = 0;
    check_ok(pr_transport_submit(transport_at(fix, 0), five, 5, &accepted, &err), &err, "submit");
    assert_int_equal(accepted, 5);
    pr_submitted outcomes[5] = {{0}};
    for (size_t have = 0; have < 5;) {
        size_t got = 0;
        check_ok(
            pr_transport_poll(transport_at(fix, 0), 100, outcomes + have, 5 - have, &got, &err),
            &err, "poll");
        have += got;
    }
    for (size_t i = 0; i < 5; i++) {
        pr_submit_outcome wanted = outcomes[i].ticket == 1   ? PR_SUBMIT_TOO_LARGE
                                   : outcomes[i].ticket == 3 ? PR_SUBMIT_REFUSED
                                                             : PR_SUBMIT_CONFIRMED;
        if (outcomes[i].outcome != wanted)
            fail_msg("message %d: outcome %d, reason '%s'", (int)outcomes[i].ticket,
                     (int)outcomes[i].outcome, outcomes[i].reason);
        assert_true((outcomes[i].reason[0] == '\0') == (wanted == PR_SUBMIT_CONFIRMED));
        assert_null(strchr(outcomes[i].reason, '\n'));
    }
    unsigned seen[POSTS_MAX] = {0};
    drain(fix, billing, 3, seen);
    assert_true(seen[0] == 1 && seen[2] == 1 && seen[4] == 1);
    receive_nothing(fix, billing);
    free(large);
}

void case_the_address_of_another_transport_is_refused(void **state)
{
    fixture *fix = *state;
    pr_subscription *billing = subscribe(fix, transport_at(fix, 0), "billing", 0);
    post *one = post_to(fix, "in/billing", NULL);
    one->message.destination = "elsewhere://in/billing";
    pr_submitted outcome = publish_one(fix, transport_at(fix, 0), one);
    assert_int_equal(outcome.outcome, PR_SUBMIT_REFUSED);
    receive_nothing(fix, billing);
}

void case_no_more_than_the_window_is_taken(void **state)
{
    fixture *fix = *state;
    pr_error err = PR_ERROR_INIT;
    check_ok(fix->provider->connect(fix->world, 4, &fix->transports[0], &err), &err, "connect");
    check_ok(pr_transport_open(fix->transports[0], 5000, &err), &err, "open");
    pr_transport *narrow = fix->transports[0];
    assert_int_equal(narrow->window, 4);
    pr_subscription *billing = subscribe(fix, narrow, "billing", 0);
    pr_submission all[10];
    for (size_t i = 0; i < 10; i++)
        all[i] = (pr_submission){i, &post_to(fix, "in/billing", NULL)->message};
    size_t accepted = 0;
    check_ok(pr_transport_submit(narrow, all, 10, &accepted, &err), &err, "submit");
    assert_int_equal(accepted, 4);
    size_t more = 7;
    check_ok(pr_transport_submit(narrow, all + 4, 6, &more, &err), &err, "submit when full");
    assert_int_equal(more, 0);
    pr_submitted outcomes[10];
    size_t got = 0;
    int64_t deadline = now_ms() + fix->provider->patience_ms;
    while (got == 0 && now_ms() < deadline)
        check_ok(pr_transport_poll(narrow, 100, outcomes, 1, &got, &err), &err, "poll one");
    assert_int_equal(got, 1);
    check_ok(pr_transport_submit(narrow, all + 4, 6, &more, &err), &err, "submit the rest");
    assert_in_range(more, 1, 1);
    size_t total = 1;
    size_t sent = 5;
    while (total < 10 && now_ms() < deadline) {
        check_ok(pr_transport_submit(narrow, all + sent, 10 - sent, &more, &err), &err, "more");
        sent += more;
        check_ok(pr_transport_poll(narrow, 100, outcomes, 10, &got, &err), &err, "poll");
        assert_true(got <= 4);
        for (size_t i = 0; i < got; i++)
            assert_int_equal(outcomes[i].outcome, PR_SUBMIT_CONFIRMED);
        total += got;
    }
    assert_int_equal(total, 10);
    unsigned seen[POSTS_MAX] = {0};
    drain(fix, billing, 10, seen);
    for (size_t i = 0; i < 10; i++)
        assert_int_equal(seen[i], 1);
}

/* Once an outcome was polled the caller's memory is the caller's again. */
void case_memory_is_borrowed_until_the_outcome(void **state)
{
    fixture *fix = *state;
    pr_subscription *billing = subscribe(fix, transport_at(fix, 0), "billing", 0);
    post *run = post_to(fix, "in/billing", "k1");
    post_to(fix, "topic/" TYPE_PLACED, "k2");
    post kept[2] = {run[0], run[1]};
    publish(fix, transport_at(fix, 0), run, 2, PR_SUBMIT_CONFIRMED);
    memset(run, 0x5A, 2 * sizeof(*run));
    pr_delivery deliveries[2];
    receive_exactly(fix, billing, deliveries, 2);
    for (size_t i = 0; i < 2; i++) {
        size_t number = post_number(&deliveries[i].message);
        assert_true(number < 2);
        assert_string_equal(deliveries[i].message.id, kept[number].id);
        assert_string_equal(deliveries[i].message.key, kept[number].key);
        assert_string_equal(deliveries[i].message.destination, kept[number].destination);
        settle(billing, deliveries[i].tag, PR_VERDICT_ACK);
    }
}

/* Capability 100: whatever is submitted, in whatever portions, ends in exactly one outcome, and
   what was confirmed is exactly what arrives. */
void case_each_submit_ends_in_one_outcome(void **state)
{
    fixture *fix = *state;
    static const char *const paths[] = {"in/billing", "topic/" TYPE_PLACED, "in/nobody",
                                        "topic/" TYPE_UNKNOWN, "in/" TYPE_PLACED "/billing"};
    enum { TOTAL = 400 };
    pr_transport *transport = transport_at(fix, 0);
    pr_subscription *billing = subscribe(fix, transport_at(fix, 1), "billing", 0);
    pr_submission all[TOTAL];
    bool good[TOTAL];
    for (size_t i = 0; i < TOTAL; i++) {
        size_t path = random_below(fix, COUNT_OF(paths));
        char key[16];
        snprintf(key, sizeof(key), "k%u", random_below(fix, 7));
        post *one = post_to(fix, paths[path], random_below(fix, 3) ? key : NULL);
        good[i] = path != 2 && path != 3;
        if (random_below(fix, 20) == 0) {
            one->message.destination = "nonsense";
            good[i] = false;
        }
        all[i] = (pr_submission){i, &one->message};
    }
    unsigned ended[TOTAL] = {0};
    unsigned seen[POSTS_MAX] = {0};
    size_t sent = 0;
    size_t total = 0;
    size_t arrived = 0;
    pr_error err = PR_ERROR_INIT;
    int64_t deadline = now_ms() + 4 * fix->provider->patience_ms;
    while (total < TOTAL && now_ms() < deadline) {
        size_t portion = random_below(fix, 40);
        size_t accepted = 0;
        if (portion > TOTAL - sent)
            portion = TOTAL - sent;
        check_ok(pr_transport_submit(transport, all + sent, portion, &accepted, &err), &err, "");
        assert_true(accepted <= portion);
        sent += accepted;
        pr_submitted out[30];
        size_t got = 0;
        check_ok(pr_transport_poll(transport, 0, out, 1 + random_below(fix, 30), &got, &err), &err,
                 "poll");
        for (size_t i = 0; i < got; i++) {
            size_t at = (size_t)out[i].ticket;
            assert_true(at < sent);
            ended[at]++;
            bool confirmed = out[i].outcome == PR_SUBMIT_CONFIRMED;
            if (confirmed != good[at])
                fail_msg("message %zu: outcome %d %s", at, (int)out[i].outcome, out[i].reason);
            arrived += confirmed;
        }
        total += got;
    }
    for (size_t i = 0; i < TOTAL; i++)
        assert_int_equal(ended[i], 1);
    pr_submitted late;
    size_t got = 0;
    check_ok(pr_transport_poll(transport, 20, &late, 1, &got, &err), &err, "poll");
    assert_int_equal(got, 0);
    drain(fix, billing, arrived, seen);
    for (size_t i = 0; i < TOTAL; i++)
        assert_int_equal(seen[i], good[i] ? 1 : 0);
    receive_nothing(fix, billing);
}

void case_closing_with_outcomes_open_is_clean(void **state)
{
    fixture *fix = *state;
    pr_subscription *billing = subscribe(fix, transport_at(fix, 1), "billing", 0);
    pr_submission all[5];
    for (size_t i = 0; i < 5; i++)
        all[i] = (pr_submission){i, &post_to(fix, "in/billing", NULL)->message};
    pr_error err = PR_ERROR_INIT;
    size_t accepted = 0;
    check_ok(pr_transport_submit(transport_at(fix, 0), all, 5, &accepted, &err), &err, "submit");
    fix->transports[0] = pr_transport_free(transport_at(fix, 0));
    assert_null(fix->transports[0]);
    /* sent or not, nothing came twice */
    unsigned seen[POSTS_MAX] = {0};
    for (;;) {
        pr_delivery delivery;
        size_t got = 0;
        check_ok(pr_subscription_receive(billing, 100, &delivery, 1, &got, &err), &err, "receive");
        if (got == 0)
            break;
        assert_int_equal(++seen[post_number(&delivery.message)], 1);
        settle(billing, delivery.tag, PR_VERDICT_ACK);
    }
}
