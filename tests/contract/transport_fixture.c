/*
 * The fixture of the transport suite.
 */
#include "contract/transport_fixture.h"

#include <time.h>

#define QUIET_MS 120 /* how long "nothing comes" is watched */

int64_t now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* *state comes in as the provider's address, see transport_contract_run. */
int fixture_setup(void **state)
{
    const transport_provider *const *provider = *state;
    fixture *fix = calloc(1, sizeof(*fix));
    assert_non_null(fix);
    fix->provider = *provider;
    fix->posts = calloc(POSTS_MAX, sizeof(*fix->posts));
    fix->random = 20240229;
    fix->next_ticket = 1000;
    assert_non_null(fix->posts);
    pr_error err = PR_ERROR_INIT;
    check_ok(fix->provider->begin(&fix->world, &err), &err, "a world of its own");
    *state = fix;
    return 0;
}

int fixture_teardown(void **state)
{
    fixture *fix = *state;
    for (size_t i = 0; i < fix->subscription_count; i++)
        pr_subscription_free(fix->subscriptions[i]);
    for (size_t i = 0; i < COUNT_OF(fix->transports); i++)
        pr_transport_free(fix->transports[i]);
    fix->provider->end(fix->world);
    free(fix->posts);
    free(fix);
    return 0;
}

pr_transport *transport_at(fixture *fix, size_t index)
{
    if (!fix->transports[index]) {
        pr_error err = PR_ERROR_INIT;
        check_ok(fix->provider->connect(fix->world, 64, &fix->transports[index], &err), &err,
                 "connect");
        check_ok(pr_transport_open(fix->transports[index], 5000, &err), &err, "open");
    }
    return fix->transports[index];
}

uint32_t random_below(fixture *fix, uint32_t limit)
{
    fix->random ^= fix->random << 13;
    fix->random ^= fix->random >> 17;
    fix->random ^= fix->random << 5;
    return fix->random % limit;
}

post *post_to(fixture *fix, const char *path, const char *key)
{
    assert_true(fix->post_count < POSTS_MAX);
    size_t number = fix->post_count++;
    post *one = &fix->posts[number];
    snprintf(one->id, sizeof(one->id), "018e0000-0000-7000-8000-%012zx", number + 1);
    snprintf(one->destination, sizeof(one->destination), "%s://%s", fix->provider->address, path);
    snprintf(one->body, sizeof(one->body), "%zu", number);
    snprintf(one->key, sizeof(one->key), "%s", key ? key : "");
    one->message =
        (pr_message)PR_MESSAGE(.type_version = 1, .id = one->id, .type = TYPE_PLACED,
                               .content_type = "application/json", .destination = one->destination,
                               .key = key ? one->key : NULL, .body = one->body,
                               .body_size_bytes = strlen(one->body),
                               .occurred_at_us = 1709164800123456 + (int64_t)number);
    return one;
}

size_t post_number(const pr_message *message)
{
    char text[64] = "";
    assert_true(message->body_size_bytes > 0 && message->body_size_bytes < sizeof(text));
    memcpy(text, message->body, message->body_size_bytes);
    char *end;
    size_t number = strtoul(text, &end, 10);
    if (*end != '\0' || number >= POSTS_MAX)
        fail_msg("a delivery that nobody sent: '%s'", text);
    return number;
}

static void publish_some(fixture *fix, pr_transport *transport, const pr_submission *submissions,
                         size_t count, pr_submitted *ret_outcomes)
{
    pr_error err = PR_ERROR_INIT;
    uint64_t first = submissions[0].ticket;
    size_t sent = 0;
    size_t ended = 0;
    int64_t deadline = now_ms() + fix->provider->patience_ms;
    while (ended < count) {
        size_t accepted = 0;
        if (sent < count)
            check_ok(
                pr_transport_submit(transport, submissions + sent, count - sent, &accepted, &err),
                &err, "submit");
        sent += accepted;
        pr_submitted outcomes[16];
        size_t got = 0;
        check_ok(pr_transport_poll(transport, 10, outcomes, COUNT_OF(outcomes), &got, &err), &err,
                 "poll");
        for (size_t i = 0; i < got; i++) {
            size_t at = (size_t)(outcomes[i].ticket - first);
            if (at >= sent || ret_outcomes[at].outcome != 0)
                fail_msg("an outcome too many: ticket %llu",
                         (unsigned long long)outcomes[i].ticket);
            ret_outcomes[at] = outcomes[i];
        }
        ended += got;
        if (now_ms() > deadline)
            fail_msg("%zu of %zu had no outcome in time", count - ended, count);
    }
}

void publish(fixture *fix, pr_transport *transport, post *posts, size_t count,
             pr_submit_outcome wanted)
{
    pr_submission *submissions = calloc(count, sizeof(*submissions));
    pr_submitted *outcomes = calloc(count, sizeof(*outcomes));
    assert_true(submissions && outcomes);
    for (size_t i = 0; i < count; i++)
        submissions[i] = (pr_submission){fix->next_ticket++, &posts[i].message};
    publish_some(fix, transport, submissions, count, outcomes);
    for (size_t i = 0; i < count; i++) {
        if (outcomes[i].outcome != wanted)
            fail_msg("message %zu to %s: wanted outcome %d, got %d: %s", i, posts[i].destination,
                     (int)wanted, (int)outcomes[i].outcome, outcomes[i].reason);
    }
    free(submissions);
    free(outcomes);
}

pr_submitted publish_one(fixture *fix, pr_transport *transport, const post *one)
{
    pr_submission submission = {fix->next_ticket++, &one->message};
    pr_submitted outcome = {0};
    publish_some(fix, transport, &submission, 1, &outcome);
    return outcome;
}

pr_subscribe_options options_of(const char *endpoint)
{
    static const char *const types[] = {TYPE_PLACED};
    return (pr_subscribe_options){.size = (uint32_t)sizeof(pr_subscribe_options),
                                  .prefetch = 32,
                                  .endpoint = endpoint,
                                  .types = types,
                                  .type_count = COUNT_OF(types)};
}

pr_subscription *subscribe_with(fixture *fix, pr_transport *transport,
                                const pr_subscribe_options *options)
{
    pr_error err = PR_ERROR_INIT;
    pr_subscription *subscription = NULL;
    assert_true(fix->subscription_count < COUNT_OF(fix->subscriptions));
    check_ok(pr_transport_subscribe(transport, options, &subscription, &err), &err, "subscribe");
    fix->subscriptions[fix->subscription_count++] = subscription;
    return subscription;
}

pr_subscription *subscribe(fixture *fix, pr_transport *transport, const char *endpoint,
                           uint32_t prefetch)
{
    pr_subscribe_options options = options_of(endpoint);
    options.prefetch = prefetch;
    return subscribe_with(fix, transport, &options);
}

void unsubscribe(fixture *fix, pr_subscription *subscription)
{
    for (size_t i = 0; i < fix->subscription_count; i++) {
        if (fix->subscriptions[i] != subscription)
            continue;
        fix->subscriptions[i] = fix->subscriptions[--fix->subscription_count];
        pr_subscription_free(subscription);
        return;
    }
    fail_msg("a subscription that the fixture does not know");
}

void receive_exactly(fixture *fix, pr_subscription *subscription, pr_delivery *ret_deliveries,
                     size_t count)
{
    pr_error err = PR_ERROR_INIT;
    int64_t deadline = now_ms() + fix->provider->patience_ms;
    for (size_t have = 0; have < count;) {
        size_t got = 0;
        check_ok(pr_subscription_receive(subscription, 100, ret_deliveries + have, count - have,
                                         &got, &err),
                 &err, "receive");
        have += got;
        if (have < count && now_ms() > deadline)
            fail_msg("%zu deliveries of %zu came in time", have, count);
    }
}

void receive_nothing(fixture *fix, pr_subscription *subscription)
{
    (void)fix;
    pr_error err = PR_ERROR_INIT;
    pr_delivery delivery;
    size_t got = 0;
    check_ok(pr_subscription_receive(subscription, QUIET_MS, &delivery, 1, &got, &err), &err,
             "receive");
    if (got > 0)
        fail_msg("a delivery that should not be there: post %zu", post_number(&delivery.message));
}

void settle(pr_subscription *subscription, uint64_t tag, pr_verdict verdict)
{
    pr_error err = PR_ERROR_INIT;
    check_ok(pr_subscription_settle(subscription, tag, verdict, 0, &err), &err, "settle");
}

void settle_fenced(pr_subscription *subscription, uint64_t tag, const char *label)
{
    pr_error err = PR_ERROR_INIT;
    pr_status status = pr_subscription_settle(subscription, tag, PR_VERDICT_ACK, 0, &err);
    check_error(status, &err, PR_E_FENCED, "", label);
}

void drain(fixture *fix, pr_subscription *subscription, size_t count, unsigned *seen)
{
    for (size_t i = 0; i < count; i++) {
        pr_delivery delivery;
        receive_exactly(fix, subscription, &delivery, 1);
        seen[post_number(&delivery.message)]++;
        settle(subscription, delivery.tag, PR_VERDICT_ACK);
    }
}
