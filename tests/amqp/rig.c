/*
 * The rig of the fault cases.
 */
#include "amqp/rig.h"

#include <time.h>

int64_t rig_now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

int rig_setup(void **state)
{
    amqp_rig *at = calloc(1, sizeof *at);
    assert_non_null(at);
    at->broker = fake_broker_start();
    *state = at;
    return 0;
}

int rig_teardown(void **state)
{
    amqp_rig *at = *state;
    rig_close(at);
    fake_broker_free(at->broker);
    free(at);
    return 0;
}

void rig_check_text(const char *text)
{
    if (strstr(text, RIG_PASSWORD))
        fail_msg("a password is shown: %s", text);
    if (strchr(text, '\n'))
        fail_msg("more than one line: %s", text);
}

void rig_attach(amqp_rig *rig, const char *uris, const pr_amqp_options *options)
{
    pr_error err = PR_ERROR_INIT;
    pr_amqp_options usual = PR_AMQP_OPTIONS(.flags = PR_AMQP_DECLARE);
    pr_amqp_options asked = options ? *options : usual;
    if (asked.reconnect_initial_ms == 0)
        asked.reconnect_initial_ms = 5;
    if (asked.reconnect_max_ms == 0)
        asked.reconnect_max_ms = 20;
    if (asked.close_timeout_ms == 0)
        asked.close_timeout_ms = 200;
    pr_transport_free(rig->transport);
    rig->transport = NULL;
    check_ok(pr_amqp_transport_new(uris, &asked, &rig->transport, &err), &err, "a transport");
}

void rig_connect(amqp_rig *rig, const pr_amqp_options *options, const char *query)
{
    char uri[400];
    snprintf(uri, sizeof uri, "amqp://shop:" RIG_PASSWORD "@127.0.0.1:%d/vh?%s",
             fake_broker_port(rig->broker), query ? query : "connection_timeout=150");
    rig_attach(rig, uri, options);
}

void rig_up(amqp_rig *rig, const pr_amqp_options *options)
{
    pr_error err = PR_ERROR_INIT;
    rig_connect(rig, options, "connection_timeout=20000");
    check_ok(pr_transport_open(rig->transport, RIG_PATIENCE, &err), &err, "open");
}

pr_status rig_open(amqp_rig *rig, pr_error *err)
{
    pr_error_clear(err);
    pr_status status = pr_transport_open(rig->transport, RIG_TIMEOUT, err);
    rig_check_text(err->message);
    return status;
}

void rig_recover(amqp_rig *rig, const char *label)
{
    pr_error err = PR_ERROR_INIT;
    int64_t deadline = rig_now_ms() + RIG_PATIENCE;
    while (rig_open(rig, &err) != PR_OK) {
        if (rig_now_ms() > deadline)
            fail_msg("case '%s': it does not recover: %s", label, err.message);
    }
}

pr_transport_state rig_state(amqp_rig *rig)
{
    pr_transport_state state = {.size = (uint32_t)sizeof state};
    pr_transport_state_get(rig->transport, &state);
    rig_check_text(state.cause);
    return state;
}

/* Collect outcomes, once. */
static void poll_once(amqp_rig *rig, int64_t ms, const char *label)
{
    pr_error err = PR_ERROR_INIT;
    pr_submitted outcomes[16];
    size_t count = 0;
    pr_status status =
        pr_transport_poll(rig->transport, ms, outcomes, COUNT_OF(outcomes), &count, &err);
    rig_check_text(err.message);
    if (status != PR_OK)
        return; /* nothing could be learned */
    for (size_t i = 0; i < count; i++) {
        rig_check_text(outcomes[i].reason);
        size_t at = (size_t)outcomes[i].ticket;
        if (at >= rig->submitted || rig->posts[at].outcome.outcome != 0)
            fail_msg("case '%s': an outcome too many, ticket %zu", label, at);
        rig->posts[at].outcome = outcomes[i];
        rig->ended++;
    }
}

static bool reaches(amqp_rig *rig, pr_transport_state_kind kind, const char *text, int64_t ms,
                    const char *label)
{
    int64_t deadline = rig_now_ms() + ms;
    for (;;) {
        pr_transport_state state = rig_state(rig);
        if (state.kind == kind && strstr(state.cause, text))
            return true;
        if (rig_now_ms() > deadline)
            return false;
        poll_once(rig, 5, label);
    }
}

void rig_wait_state(amqp_rig *rig, pr_transport_state_kind kind, const char *text,
                    const char *label)
{
    if (reaches(rig, kind, text, RIG_PATIENCE, label))
        return;
    pr_transport_state state = rig_state(rig);
    fail_msg("case '%s': state %d, '%s'; wanted %d, '%s'", label, (int)state.kind, state.cause,
             (int)kind, text);
}

/* Its connections hear of an alarm after those who set it, and say so at the next publish: one that
   comes too early is confirmed. */
void rig_submit_until_blocked(amqp_rig *rig, const char *text, const char *label)
{
    for (int i = 0; i < 5; i++) {
        rig_posts(rig, 1);
        rig_submit(rig, label);
        if (reaches(rig, PR_TRANSPORT_BLOCKED, text, /* ms= */ 2500, label))
            return;
    }
    rig_wait_state(rig, PR_TRANSPORT_BLOCKED, text, label);
}

rig_post *rig_posts(amqp_rig *rig, size_t count)
{
    size_t first = rig->submitted;
    assert_true(first + count <= RIG_POSTS);
    for (size_t i = first; i < first + count; i++) {
        rig_post *post = &rig->posts[i];
        *post = (rig_post){.id = ""};
        snprintf(post->id, sizeof post->id, "018e0000-0000-7000-8000-%012zx", i + 1);
        snprintf(post->body, sizeof post->body, "body %zu", i);
        post->message =
            (pr_message)PR_MESSAGE(.type_version = 1, .id = post->id, .type = RIG_TYPE,
                                   .content_type = "text/plain",
                                   .destination = "rabbitmq://in/billing", .body = post->body,
                                   .body_size_bytes = strlen(post->body),
                                   .occurred_at_us = 1709164800123456);
    }
    return &rig->posts[first];
}

void rig_forget(amqp_rig *rig)
{
    assert_int_equal(rig->ended, rig->submitted);
    memset(rig->posts, 0, sizeof rig->posts);
    rig->submitted = rig->ended = 0;
}

/* Posts that were made and not submitted. */
static size_t waiting(const amqp_rig *rig)
{
    size_t count = 0;
    while (rig->submitted + count < RIG_POSTS &&
           rig->posts[rig->submitted + count].message.id != NULL)
        count++;
    return count;
}

void rig_submit(amqp_rig *rig, const char *label)
{
    pr_error err = PR_ERROR_INIT;
    pr_submission submissions[RIG_POSTS];
    int64_t deadline = rig_now_ms() + RIG_PATIENCE;
    for (size_t count; (count = waiting(rig)) > 0;) {
        size_t accepted = 0;
        for (size_t i = 0; i < count; i++)
            submissions[i] =
                (pr_submission){rig->submitted + i, &rig->posts[rig->submitted + i].message};
        check_ok(pr_transport_submit(rig->transport, submissions, count, &accepted, &err), &err,
                 label);
        rig->submitted += accepted;
        if (accepted == 0)
            poll_once(rig, 5, label);
        if (rig_now_ms() > deadline)
            fail_msg("case '%s': %zu are not taken", label, count);
    }
}

void rig_outcomes(amqp_rig *rig, const char *label)
{
    int64_t deadline = rig_now_ms() + RIG_PATIENCE;
    while (rig->ended < rig->submitted) {
        poll_once(rig, 20, label);
        if (rig_now_ms() > deadline)
            fail_msg("case '%s': %zu of %zu have no outcome: %s", label,
                     rig->submitted - rig->ended, rig->submitted, rig_state(rig).cause);
    }
}

void rig_no_outcome(amqp_rig *rig, int64_t ms, const char *label)
{
    size_t before = rig->ended;
    for (int64_t until = rig_now_ms() + ms; rig_now_ms() < until;)
        poll_once(rig, 10, label);
    CHECK_CASE(rig->ended == before, label);
}

void rig_works(amqp_rig *rig, const char *label)
{
    rig_post *post = NULL;
    for (int i = 0; i < RIG_ATTEMPTS; i++) {
        post = rig_posts(rig, 1);
        rig_submit(rig, label);
        rig_outcomes(rig, label);
        if (post->outcome.outcome != PR_SUBMIT_LOST)
            break;
        rig_recover(rig, label);
    }
    if (post->outcome.outcome != PR_SUBMIT_CONFIRMED)
        fail_msg("case '%s': it does not work: outcome %d, %s", label, (int)post->outcome.outcome,
                 post->outcome.reason);
}

pr_status rig_subscribe(amqp_rig *rig, pr_subscription **ret_subscription, pr_error *err)
{
    static const char *const types[] = {RIG_TYPE};
    const pr_subscribe_options options = {.size = (uint32_t)sizeof options,
                                          .prefetch = 8,
                                          .endpoint = "billing",
                                          .types = types,
                                          .type_count = COUNT_OF(types)};
    pr_error_clear(err);
    pr_status status = pr_transport_subscribe(rig->transport, &options, ret_subscription, err);
    rig_check_text(err->message);
    rig->subscription = *ret_subscription;
    return status;
}

void rig_unsubscribe(amqp_rig *rig)
{
    rig->subscription = pr_subscription_free(rig->subscription);
}

void rig_close(amqp_rig *rig)
{
    rig_unsubscribe(rig);
    rig->transport = pr_transport_free(rig->transport);
}

pr_delivery rig_receive(pr_subscription *subscription, const char *label)
{
    pr_error err = PR_ERROR_INIT;
    pr_delivery delivery = {0};
    size_t count = 0;
    for (int64_t until = rig_now_ms() + RIG_PATIENCE; count == 0;) {
        pr_error_clear(&err);
        (void)!pr_subscription_receive(subscription, 50, &delivery, 1, &count, &err);
        rig_check_text(err.message);
        if (rig_now_ms() > until)
            fail_msg("case '%s': no delivery: %s", label, err.message);
    }
    return delivery;
}

void rig_receive_nothing(pr_subscription *subscription, int64_t ms, const char *label)
{
    pr_error err = PR_ERROR_INIT;
    pr_delivery delivery;
    for (int64_t until = rig_now_ms() + ms; rig_now_ms() < until;) {
        size_t count = 0;
        pr_error_clear(&err);
        (void)!pr_subscription_receive(subscription, 10, &delivery, 1, &count, &err);
        rig_check_text(err.message);
        CHECK_CASE(count == 0, label);
    }
}

pr_amqp_stats rig_stats(amqp_rig *rig)
{
    pr_error err = PR_ERROR_INIT;
    pr_amqp_stats stats = {.size = (uint32_t)sizeof stats};
    check_ok(pr_amqp_stats_get(rig->transport, &stats, &err), &err, "stats");
    return stats;
}
