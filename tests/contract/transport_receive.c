/*
 * The transport suite, receiving: envelopes, settling, redelivery, order, stopping.
 */
#include "contract/transport_cases.h"
#include "contract/transport_fixture.h"

static void same_text(const char *got, const char *sent, const char *label)
{
    if (!got != !sent || (got && strcmp(got, sent) != 0))
        fail_msg("%s: sent '%s', got '%s'", label, sent ? sent : "NULL", got ? got : "NULL");
}

static void same_message(const pr_message *got, const pr_message *sent)
{
    same_text(got->id, sent->id, "id");
    same_text(got->type, sent->type, "type");
    same_text(got->content_type, sent->content_type, "content_type");
    same_text(got->destination, sent->destination, "destination");
    same_text(got->source, sent->source, "source");
    same_text(got->key, sent->key, "key");
    same_text(got->tenant ? got->tenant : "", sent->tenant ? sent->tenant : "", "tenant");
    same_text(got->correlation_id, sent->correlation_id, "correlation_id");
    same_text(got->causation_id, sent->causation_id, "causation_id");
    same_text(got->traceparent, sent->traceparent, "traceparent");
    same_text(got->tracestate, sent->tracestate, "tracestate");
    same_text(got->headers, sent->headers, "headers");
    assert_int_equal(got->type_version, sent->type_version);
    assert_int_equal(got->body_size_bytes, sent->body_size_bytes);
    if (sent->body_size_bytes > 0)
        assert_memory_equal(got->body, sent->body, sent->body_size_bytes);
    assert_int_equal(got->occurred_at_us, sent->occurred_at_us);
    assert_int_equal(got->expires_at_us, sent->expires_at_us);
    assert_int_equal(got->deliver_at_us, 0);
    assert_int_equal(got->size, sizeof(pr_message));
}

/* Capabilities 9, 13, 17, 19 as far as a transport goes. */
void case_the_envelope_arrives_as_it_was_sent(void **state)
{
    fixture *fix = *state;
    static const unsigned char bytes[] = {0, 255, 10, 0, 39, 34, 128};
    pr_subscription *billing = subscribe(fix, transport_at(fix, 0), "billing", 0);
    post *run = post_to(fix, "topic/" TYPE_PLACED, "kéy 🗝 'quoted\"");
    pr_message *full = &run[0].message;
    full->type_version = 7;
    full->content_type = "application/octet-stream";
    full->source = "urn:shop:checkout";
    full->tenant = "acme";
    full->correlation_id = "correlation-1";
    full->causation_id = "cause \xF0\x9F\x90\x88";
    full->traceparent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    full->tracestate = "vendor=value";
    full->headers = "{ \"b\":\"2\", \"a\" : {\"int\": 9007199254740993}, \"é\":\"x\"}";
    full->body = bytes;
    full->body_size_bytes = sizeof(bytes);
    full->expires_at_us = 4102444800000001;
    pr_message *empty = &post_to(fix, "in/billing", NULL)->message;
    empty->body = NULL;
    empty->body_size_bytes = 0;
    pr_message *old = &post_to(fix, "in/billing", NULL)->message;
    old->occurred_at_us = -1;
    publish(fix, transport_at(fix, 0), run, 3, PR_SUBMIT_CONFIRMED);
    pr_delivery got[3];
    receive_exactly(fix, billing, got, 3);
    unsigned found = 0;
    for (size_t i = 0; i < 3; i++) {
        for (size_t k = 0; k < 3; k++) {
            if (strcmp(got[i].message.id, run[k].id) != 0)
                continue;
            same_message(&got[i].message, &run[k].message);
            found |= 1u << k;
        }
        assert_false(got[i].redelivered);
        assert_int_equal(got[i].delivery_count, 0);
        settle(billing, got[i].tag, PR_VERDICT_ACK);
    }
    assert_int_equal(found, 7);
}

/* A message whose deliver_at lies ahead was due when the relay sent it: it is not held up again. */
void case_deliver_at_does_not_hold_it_up(void **state)
{
    fixture *fix = *state;
    pr_subscription *billing = subscribe(fix, transport_at(fix, 0), "billing", 0);
    post *one = post_to(fix, "in/billing", NULL);
    one->message.deliver_at_us = 4102444800000000;
    publish(fix, transport_at(fix, 0), one, 1, PR_SUBMIT_CONFIRMED);
    pr_delivery delivery;
    receive_exactly(fix, billing, &delivery, 1);
    assert_int_equal(delivery.message.deliver_at_us, 0);
    settle(billing, delivery.tag, PR_VERDICT_ACK);
}

/* Capability 97: competing consumers share without doubling. */
void case_competing_consumers_share(void **state)
{
    fixture *fix = *state;
    enum { TOTAL = 200 };
    pr_subscription *pair[2] = {subscribe(fix, transport_at(fix, 0), "billing", 8),
                                subscribe(fix, transport_at(fix, 1), "billing", 8)};
    post *run = &fix->posts[0];
    for (size_t i = 0; i < TOTAL; i++)
        post_to(fix, i % 2 ? "in/billing" : "topic/" TYPE_PLACED, NULL);
    publish(fix, transport_at(fix, 2), run, TOTAL, PR_SUBMIT_CONFIRMED);
    unsigned seen[POSTS_MAX] = {0};
    size_t count[2] = {0};
    int64_t deadline = now_ms() + 2 * fix->provider->patience_ms;
    pr_error err = PR_ERROR_INIT;
    while (count[0] + count[1] < TOTAL && now_ms() < deadline) {
        for (size_t who = 0; who < 2; who++) {
            pr_delivery out[4];
            size_t got = 0;
            check_ok(pr_subscription_receive(pair[who], 20, out, 4, &got, &err), &err, "receive");
            for (size_t i = 0; i < got; i++) {
                seen[post_number(&out[i].message)]++;
                assert_false(out[i].redelivered);
                settle(pair[who], out[i].tag, PR_VERDICT_ACK);
            }
            count[who] += got;
        }
    }
    for (size_t i = 0; i < TOTAL; i++)
        assert_int_equal(seen[i], 1);
    assert_true(count[0] > 0 && count[1] > 0);
    receive_nothing(fix, pair[0]);
    receive_nothing(fix, pair[1]);
}

void case_requeue_brings_it_again(void **state)
{
    fixture *fix = *state;
    pr_subscription *billing = subscribe(fix, transport_at(fix, 0), "billing", 0);
    post *run = post_to(fix, "in/billing", NULL);
    post_to(fix, "in/billing", NULL);
    publish(fix, transport_at(fix, 0), run, 2, PR_SUBMIT_CONFIRMED);
    pr_delivery first[2];
    receive_exactly(fix, billing, first, 2);
    size_t again = post_number(&first[0].message);
    pr_error err = PR_ERROR_INIT;
    check_ok(pr_subscription_settle(billing, first[0].tag, PR_VERDICT_REQUEUE, 30, &err), &err, "");
    settle(billing, first[1].tag, PR_VERDICT_ACK);
    for (int round = 0; round < 3; round++) {
        pr_delivery delivery;
        receive_exactly(fix, billing, &delivery, 1);
        assert_int_equal(post_number(&delivery.message), again);
        assert_true(delivery.redelivered);
        same_message(&delivery.message, &run[again].message);
        settle(billing, delivery.tag, round < 2 ? PR_VERDICT_REQUEUE : PR_VERDICT_ACK);
    }
    receive_nothing(fix, billing);
    size_t dead = 9;
    check_ok(fix->provider->dead_count(fix->world, "billing", &dead, &err), &err, "dead");
    assert_int_equal(dead, 0);
}

void case_reject_ends_in_the_dead_queue(void **state)
{
    fixture *fix = *state;
    pr_subscription *billing = subscribe(fix, transport_at(fix, 0), "billing", 0);
    post *run = post_to(fix, "in/billing", "k");
    post_to(fix, "in/billing", "k");
    publish(fix, transport_at(fix, 0), run, 2, PR_SUBMIT_CONFIRMED);
    pr_delivery delivery;
    receive_exactly(fix, billing, &delivery, 1);
    assert_int_equal(post_number(&delivery.message), 0);
    settle(billing, delivery.tag, PR_VERDICT_REJECT);
    receive_exactly(fix, billing, &delivery, 1); /* the next of its key may go */
    assert_int_equal(post_number(&delivery.message), 1);
    settle(billing, delivery.tag, PR_VERDICT_ACK);
    receive_nothing(fix, billing);
    size_t dead = 9;
    pr_error err = PR_ERROR_INIT;
    check_ok(fix->provider->dead_count(fix->world, "billing", &dead, &err), &err, "dead");
    assert_int_equal(dead, 1);
}

/* The holder is gone; what it had in hand comes to another, marked; its tags are worth nothing. */
void case_a_vanished_holder_is_replaced(void **state)
{
    fixture *fix = *state;
    pr_subscribe_options options = options_of("billing");
    options.lease_ms = fix->provider->lease_ms;
    pr_subscription *gone = subscribe_with(fix, transport_at(fix, 0), &options);
    post *run = &fix->posts[0];
    for (size_t i = 0; i < 6; i++)
        post_to(fix, "in/billing", i % 2 ? "k" : NULL);
    publish(fix, transport_at(fix, 0), run, 6, PR_SUBMIT_CONFIRMED);
    pr_delivery held[4];
    receive_exactly(fix, gone, held, 4); /* three without a key, one with */
    size_t numbers[4];                   /* the messages are gone when the heir has settled them */
    for (size_t i = 0; i < 4; i++)
        numbers[i] = post_number(&held[i].message);
    if (fix->provider->vanish)
        fix->provider->vanish(fix->world, gone);
    pr_subscription *heir = subscribe_with(fix, transport_at(fix, 1), &options);
    unsigned seen[POSTS_MAX] = {0};
    unsigned again[POSTS_MAX] = {0};
    for (size_t i = 0; i < 6; i++) {
        pr_delivery delivery;
        receive_exactly(fix, heir, &delivery, 1);
        size_t number = post_number(&delivery.message);
        seen[number]++;
        again[number] += delivery.redelivered;
        settle(heir, delivery.tag, PR_VERDICT_ACK);
    }
    for (size_t i = 0; i < 6; i++)
        assert_int_equal(seen[i], 1);
    for (size_t i = 0; i < 4; i++)
        assert_int_equal(again[numbers[i]], 1);
    bool fenced = false;
    pr_error err = PR_ERROR_INIT;
    for (size_t i = 0; i < 4; i++) {
        pr_status status = pr_subscription_settle(gone, held[i].tag, PR_VERDICT_REJECT, 0, &err);
        assert_true(status == PR_E_FENCED || status == PR_OK);
        fenced = fenced || status == PR_E_FENCED; /* the last one at the latest */
        pr_error_clear(&err);
    }
    assert_true(fenced);
    receive_nothing(fix, heir);
    size_t dead = 9;
    check_ok(fix->provider->dead_count(fix->world, "billing", &dead, &err), &err, "dead");
    assert_int_equal(dead, 0);
}

/* A slow handler keeps its message for as long as it says so, however short the lease is. */
void case_keep_keeps_what_is_in_hand(void **state)
{
    fixture *fix = *state;
    pr_subscribe_options options = options_of("billing");
    options.lease_ms = fix->provider->lease_ms;
    pr_subscription *slow = subscribe_with(fix, transport_at(fix, 0), &options);
    pr_subscription *other = subscribe_with(fix, transport_at(fix, 1), &options);
    post *one = post_to(fix, "in/billing", NULL);
    publish(fix, transport_at(fix, 2), one, 1, PR_SUBMIT_CONFIRMED);
    pr_delivery delivery;
    pr_error err = PR_ERROR_INIT;
    receive_exactly(fix, slow, &delivery, 1);
    int64_t until = now_ms() + fix->provider->lease_ms * 5 / 2;
    while (now_ms() < until) {
        pr_delivery stolen;
        size_t got = 0;
        check_ok(pr_subscription_keep(slow, &err), &err, "keep");
        check_ok(
            pr_subscription_receive(other, fix->provider->lease_ms / 10, &stolen, 1, &got, &err),
            &err, "receive");
        assert_int_equal(got, 0);
    }
    settle(slow, delivery.tag, PR_VERDICT_ACK);
    receive_nothing(fix, other);
}

void case_stale_tags_are_fenced(void **state)
{
    fixture *fix = *state;
    pr_subscription *billing = subscribe(fix, transport_at(fix, 0), "billing", 0);
    settle_fenced(billing, 0, "zero");
    settle_fenced(billing, UINT64_MAX, "all ones");
    post *run = post_to(fix, "in/billing", NULL);
    post_to(fix, "in/billing", NULL);
    publish(fix, transport_at(fix, 0), run, 2, PR_SUBMIT_CONFIRMED);
    pr_delivery held[2];
    receive_exactly(fix, billing, held, 2);
    assert_true(held[0].tag != held[1].tag);
    settle_fenced(billing, held[0].tag ^ 0xFFFF0000, "none of its tags");
    settle(billing, held[0].tag, PR_VERDICT_ACK);
    settle_fenced(billing, held[0].tag, "settled before");
    settle(billing, held[1].tag, PR_VERDICT_ACK);
    settle_fenced(billing, held[1].tag, "settled before, the last");
    receive_nothing(fix, billing);

    /* two that have gone the same way: a tag is of one subscription */
    pr_subscription *pair[2] = {subscribe(fix, transport_at(fix, 0), "mail", 0),
                                subscribe(fix, transport_at(fix, 1), "stock", 0)};
    post *both = post_to(fix, "topic/" TYPE_PLACED, NULL);
    publish(fix, transport_at(fix, 0), both, 1, PR_SUBMIT_CONFIRMED);
    receive_exactly(fix, pair[0], &held[0], 1);
    receive_exactly(fix, pair[1], &held[1], 1);
    settle_fenced(pair[0], held[1].tag, "of the second");
    settle_fenced(pair[1], held[0].tag, "of the first");
    settle(pair[0], held[0].tag, PR_VERDICT_ACK);
    settle(pair[1], held[1].tag, PR_VERDICT_ACK);
}

/* One of a key in hand at most, and in order, whatever is requeued on the way. */
void case_order_per_key_is_kept(void **state)
{
    fixture *fix = *state;
    if (!fix->provider->ordered)
        return;
    enum { KEYS = 5, EACH = 20 };
    pr_subscription *pair[2] = {subscribe(fix, transport_at(fix, 0), "billing", 8),
                                subscribe(fix, transport_at(fix, 1), "billing", 8)};
    post *run = &fix->posts[0];
    for (size_t i = 0; i < KEYS * EACH; i++) {
        char key[8];
        snprintf(key, sizeof(key), "k%zu", i % KEYS);
        post_to(fix, "in/billing", key);
    }
    publish(fix, transport_at(fix, 2), run, KEYS * EACH, PR_SUBMIT_CONFIRMED);
    size_t next[KEYS] = {0};
    bool in_hand[KEYS] = {false};
    size_t done = 0;
    pr_error err = PR_ERROR_INIT;
    int64_t deadline = now_ms() + 4 * fix->provider->patience_ms;
    while (done < KEYS * EACH && now_ms() < deadline) {
        pr_delivery out[2][8];
        size_t got[2] = {0};
        for (size_t who = 0; who < 2; who++) {
            check_ok(pr_subscription_receive(pair[who], 20, out[who], 8, &got[who], &err), &err,
                     "receive");
            for (size_t i = 0; i < got[who]; i++) {
                size_t number = post_number(&out[who][i].message);
                size_t key = number % KEYS;
                if (in_hand[key] || number / KEYS != next[key])
                    fail_msg("key %zu: number %zu came, %zu was next%s", key, number / KEYS,
                             next[key], in_hand[key] ? ", and one was in hand" : "");
                in_hand[key] = true;
            }
        }
        for (size_t who = 0; who < 2; who++) {
            for (size_t i = 0; i < got[who]; i++) {
                size_t key = post_number(&out[who][i].message) % KEYS;
                bool requeue = random_below(fix, 10) == 0;
                in_hand[key] = false;
                next[key] += !requeue;
                done += !requeue;
                settle(pair[who], out[who][i].tag, requeue ? PR_VERDICT_REQUEUE : PR_VERDICT_ACK);
            }
        }
    }
    assert_int_equal(done, KEYS * EACH);
    receive_nothing(fix, pair[0]);
    receive_nothing(fix, pair[1]);
}

void case_no_more_than_the_prefetch_is_in_hand(void **state)
{
    fixture *fix = *state;
    pr_subscription *billing = subscribe(fix, transport_at(fix, 0), "billing", 3);
    post *run = &fix->posts[0];
    for (size_t i = 0; i < 8; i++)
        post_to(fix, "in/billing", NULL);
    publish(fix, transport_at(fix, 0), run, 8, PR_SUBMIT_CONFIRMED);
    pr_delivery held[3];
    receive_exactly(fix, billing, held, 3);
    receive_nothing(fix, billing);
    unsigned seen[POSTS_MAX] = {0};
    for (size_t i = 0; i < 3; i++) {
        seen[post_number(&held[i].message)]++;
        settle(billing, held[i].tag, PR_VERDICT_ACK);
    }
    drain(fix, billing, 5, seen);
    for (size_t i = 0; i < 8; i++)
        assert_int_equal(seen[i], 1);
}

/* Capability 111: nothing that was prefetched is lost by a clean stop. */
void case_closing_gives_back_what_is_in_hand(void **state)
{
    fixture *fix = *state;
    pr_subscription *first = subscribe(fix, transport_at(fix, 0), "billing", 12);
    post *run = &fix->posts[0];
    for (size_t i = 0; i < 12; i++)
        post_to(fix, "in/billing", i < 6 ? NULL : "k");
    publish(fix, transport_at(fix, 0), run, 12, PR_SUBMIT_CONFIRMED);
    pr_delivery held[6];
    receive_exactly(fix, first, held, 6);
    unsigned seen[POSTS_MAX] = {0};
    seen[post_number(&held[2].message)]++;
    settle(first, held[2].tag, PR_VERDICT_ACK);
    unsubscribe(fix, first);
    pr_subscription *second = subscribe(fix, transport_at(fix, 1), "billing", 10);
    drain(fix, second, 11, seen);
    for (size_t i = 0; i < 12; i++)
        assert_int_equal(seen[i], 1);
    receive_nothing(fix, second);
    size_t dead = 9;
    pr_error err = PR_ERROR_INIT;
    check_ok(fix->provider->dead_count(fix->world, "billing", &dead, &err), &err, "dead");
    assert_int_equal(dead, 0);
}
