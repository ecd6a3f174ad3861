/*
 * A relay on a real store in real time.
 */
#include "sim/live.h"

#include <stdio.h>

#include "base/text.h"
#include "base/time.h"

int64_t live_now_ms(void)
{
    return pr__monotonic_us() / 1000;
}

void live_pause(void)
{
    pr__sleep_us(1000);
}

/* ---- the transport ---- */

static live_transport *self_of(pr_transport *transport)
{
    return (live_transport *)(void *)transport;
}

static pr_status live_open(pr_transport *transport, int64_t timeout_ms, pr_error *err)
{
    (void)transport;
    (void)timeout_ms;
    (void)err;
    return PR_OK;
}

static void note(live *at, const pr_message *message)
{
    const char *text = message->body;
    char *end = NULL;
    live_received got = {.key = (int32_t)strtol(text, &end, 10)};
    got.number = (int32_t)strtol(end, NULL, 10);
    pthread_mutex_lock(&at->lock);
    if (at->received_count < LIVE_RECEIVED_MAX)
        at->received[at->received_count++] = got;
    pthread_mutex_unlock(&at->lock);
}

static pr_status live_submit(pr_transport *transport, const pr_submission *submissions,
                             size_t count, size_t *ret_accepted, pr_error *err)
{
    (void)err;
    live_transport *self = self_of(transport);
    size_t i = 0;
    for (; i < count && self->waiting < COUNT_OF(self->tickets); i++) {
        note(self->at, submissions[i].message);
        self->tickets[self->waiting++] = submissions[i].ticket;
    }
    self->due_us = pr__monotonic_us() + self->outcome_after_ms * 1000;
    *ret_accepted = i;
    return PR_OK;
}

static pr_status live_poll(pr_transport *transport, int64_t timeout_ms, pr_submitted *ret_outcomes,
                           size_t max, size_t *ret_count, pr_error *err)
{
    (void)err;
    live_transport *self = self_of(transport);
    int64_t wait_us = self->due_us - pr__monotonic_us();
    if (wait_us > 0) {
        pr__sleep_us(wait_us < timeout_ms * 1000 ? wait_us : timeout_ms * 1000);
        if (wait_us > timeout_ms * 1000)
            return PR_OK;
    }
    while (*ret_count < max && self->waiting > 0)
        ret_outcomes[(*ret_count)++] = (pr_submitted){.ticket = self->tickets[--self->waiting],
                                                      .outcome = PR_SUBMIT_CONFIRMED};
    return PR_OK;
}

static const pr_transport_ops live_ops = {
    .size = sizeof live_ops,
    .scheme = "live",
    .open = live_open,
    .submit = live_submit,
    .poll = live_poll,
};

/* ---- the world ---- */

int live_setup(void **state)
{
    live *at = calloc(1, sizeof *at);
    assert_non_null(at);
    pr_error err = PR_ERROR_INIT;
    check_ok(sqlite_world_open(&at->db, &err), &err, "world");
    check_ok(sqlite_world_store(&at->db, 5000, 0, &at->store, &err), &err, "store");
    pthread_mutex_init(&at->lock, NULL);
    *state = at;
    return 0;
}

int live_teardown(void **state)
{
    live *at = *state;
    for (uint32_t i = 0; i < LIVE_RELAYS_MAX; i++) {
        if (at->relays[i].runs)
            live_stop(&at->relays[i]);
        pr_relay_free(at->relays[i].relay);
        pr_store_free(at->relays[i].store);
    }
    pr_store_free(at->store);
    sqlite_world_close(&at->db);
    pthread_mutex_destroy(&at->lock);
    free(at);
    return 0;
}

void live_enqueue(live *at, int32_t key, uint32_t count, const char *destination)
{
    pr_error err = PR_ERROR_INIT;
    pr_unit *unit = NULL;
    pr_outcome outcome;
    check_ok(pr_unit_begin(at->store, &unit, &err), &err, "begin");
    int32_t *number = &at->numbers[key < 0 ? 63 : key];
    for (uint32_t i = 0; i < count; i++) {
        char body[32], name[16];
        pr__format(body, sizeof body, "%d %d", key, (*number)++);
        pr__format(name, sizeof name, "key-%d", key);
        const pr_message message =
            PR_MESSAGE(.type = "urn:message:live:thing", .content_type = "text/plain", .body = body,
                       .body_size_bytes = strlen(body) + 1, .key = key < 0 ? NULL : name,
                       .destination = destination);
        check_ok(pr_unit_enqueue(unit, &message, NULL, &err), &err, "enqueue");
    }
    check_ok(pr_unit_commit(unit, &outcome, &err), &err, "commit");
    pr_unit_free(unit);
}

live_relay *live_relay_new(live *at, uint32_t n, pr_relay_options opt)
{
    live_relay *relay = &at->relays[n];
    pr_error err = PR_ERROR_INIT;
    relay->transport =
        (live_transport){.base = {.ops = &live_ops, .name = "mem", .window = 256}, .at = at};
    check_ok(sqlite_world_store(&at->db, 100, 0, &relay->store, &err), &err, "store");
    pr_transport *list[] = {&relay->transport.base};
    opt.size = sizeof opt;
    check_ok(pr_relay_new(relay->store, list, 1, &opt, &relay->relay, &err), &err, "relay");
    return relay;
}

static void *run(void *user)
{
    live_relay *relay = user;
    relay->err = (pr_error)PR_ERROR_INIT;
    relay->status = pr_relay_run(relay->relay, &relay->err);
    return NULL;
}

void live_start(live_relay *relay)
{
    relay->runs = true;
    assert_int_equal(pthread_create(&relay->thread, NULL, run, relay), 0);
}

void live_stop(live_relay *relay)
{
    pr_relay_stop(relay->relay);
    pthread_join(relay->thread, NULL);
    relay->runs = false;
}

uint32_t live_received_count(live *at)
{
    pthread_mutex_lock(&at->lock);
    uint32_t count = at->received_count;
    pthread_mutex_unlock(&at->lock);
    return count;
}

void live_wait_received(live *at, uint32_t count)
{
    int64_t until_ms = live_now_ms() + LIVE_WAIT_MS;
    while (live_received_count(at) < count) {
        if (live_now_ms() > until_ms)
            fail_msg("%u of %u arrived", live_received_count(at), count);
        live_pause();
    }
}

int64_t live_number(live *at, const char *sql)
{
    return sqlite_world_number(&at->db, sql, NULL);
}

void live_wait_state(live *at, const char *state, int64_t count)
{
    int64_t until_ms = live_now_ms() + LIVE_WAIT_MS, found;
    while ((found = sqlite_world_number(
                &at->db, "SELECT count(*) FROM postroom_outbox_state WHERE state = ?1", state)) !=
           count) {
        if (live_now_ms() > until_ms)
            fail_msg("%lld are %s, wanted %lld", (long long)found, state, (long long)count);
        live_pause();
    }
}

uint32_t live_check(live *at)
{
    bool *seen = calloc(64 * LIVE_RECEIVED_MAX, sizeof *seen);
    int32_t next[64] = {0};
    uint32_t twice = 0;
    assert_non_null(seen);
    for (uint32_t i = 0; i < at->received_count; i++) {
        int32_t key = at->received[i].key < 0 ? 63 : at->received[i].key;
        int32_t number = at->received[i].number;
        bool *mark = &seen[(int64_t)key * LIVE_RECEIVED_MAX + number];
        if (!*mark && key < 63 && number != next[key])
            fail_msg("key %d: %d arrives, wanted %d", key, number, next[key]);
        next[key] += !*mark;
        twice += *mark;
        *mark = true;
    }
    for (int key = 0; key < 64; key++) {
        for (int32_t number = 0; number < at->numbers[key]; number++) {
            if (!seen[(int64_t)key * LIVE_RECEIVED_MAX + number])
                fail_msg("key %d: %d never arrived", key, number);
        }
    }
    free(seen);
    return twice;
}
