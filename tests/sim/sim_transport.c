/*
 * The transports of the simulated world, and the driving of a relay in virtual time.
 */
#include "sim/sim.h"

#include "base/error.h"
#include "base/memory.h"
#include "base/text.h"

static sim_transport *transport_of(pr_transport *transport)
{
    return (sim_transport *)(void *)transport;
}

static void everything_lost(sim_transport *transport, const sim_row *killer)
{
    for (uint32_t i = 0; i < transport->flying_count; i++) {
        sim_flying *flying = &transport->flying[i];
        flying->due_us = transport->world->now_us;
        flying->fate.outcome = PR_SUBMIT_LOST;
        flying->fate.never = false;
        flying->suspect = killer && flying->row == killer;
        flying->row->lost_as_killer += flying->suspect;
    }
}

static pr_status sim_open(pr_transport *base, int64_t timeout_ms, pr_error *err)
{
    (void)timeout_ms;
    sim_transport *transport = transport_of(base);
    if (transport->opens < SIM_TIMES_MAX)
        transport->open_times[transport->opens] = transport->world->now_us;
    transport->opens++;
    transport->calls_all++;
    if (transport->refuses_open || transport->closed || transport->state == PR_TRANSPORT_BLOCKED)
        return pr__fail_retry(err, PR_E_BACKEND, PR_RETRY_RECONNECT, "sim.transport",
                              "no answer from the simulated broker");
    transport->state = PR_TRANSPORT_UP;
    return PR_OK;
}

/* One unconfirmed message of a key in a group, and first arrivals in the order of ids. */
static void watch(sim_transport *transport, const sim_row *row, bool arrives)
{
    const sim_world *world = transport->world;
    if (!row->key[0] || world->order == PR_ORDER_SKIP || world->relaxed_order)
        return;
    const sim_transport *t = transport;
    do {
        for (uint32_t i = 0; i < t->flying_count; i++) {
            /* what it gave up, or what another holder brought to its end meanwhile, may linger */
            const sim_flying *old = &t->flying[i];
            bool given_up =
                (t->overdue_us > 0 && world->now_us - old->sent_at_us >= t->overdue_us) ||
                old->row->place == SIM_PUBLISHED;
            if (!given_up && strcmp(t->flying[i].row->key, row->key) == 0)
                fail_msg("two of key '%s' fly at once: %lld (%d, state %d) and %lld", row->key,
                         (long long)t->flying[i].row->id, (int)t->flying[i].row->place,
                         (int)t->flying[i].row->state, (long long)row->id);
        }
        t = t->group_next;
    } while (t && t != transport);
    if (!arrives || row->arrived > 0)
        return;
    for (int64_t i = 0; i < row->id - 1; i++) {
        const sim_row *older = &world->rows[i];
        if (strcmp(older->key, row->key) == 0 && older->arrived == 0 &&
            !(older->place == SIM_PARKED && older->state == PR_STATE_DEAD))
            fail_msg("%lld of key '%s' arrives before %lld", (long long)row->id, row->key,
                     (long long)older->id);
    }
}

static void take(sim_transport *transport, const pr_submission *submission)
{
    sim_world *world = transport->world;
    uint32_t at = 0;
    while (at < world->row_count &&
           strcmp(world->rows[at].message_id, submission->message->id) != 0)
        at++;
    assert_true(at < world->row_count);
    sim_row *row = &world->rows[at];
    sim_fate fate = {.outcome = PR_SUBMIT_CONFIRMED, .after_us = 100, .arrives = true};
    transport->decide(transport, row, &fate);
    watch(transport, row, fate.arrives);
    row->submitted++;
    row->arrived += fate.arrives;
    assert_true(transport->flying_count < SIM_FLYING_MAX);
    transport->flying[transport->flying_count++] =
        (sim_flying){.ticket = submission->ticket,
                     .row = row,
                     .message = submission->message,
                     .fate = fate,
                     .due_us = world->now_us + fate.after_us,
                     .sent_at_us = world->now_us};
    if (transport->flying_count > transport->flying_most)
        transport->flying_most = transport->flying_count;
    if (fate.kills) {
        everything_lost(transport, row);
        transport->state = PR_TRANSPORT_DOWN;
    }
}

static pr_status sim_submit(pr_transport *base, const pr_submission *submissions, size_t count,
                            size_t *ret_accepted, pr_error *err)
{
    sim_transport *transport = transport_of(base);
    if (transport->submits < SIM_TIMES_MAX)
        transport->submit_times[transport->submits] = transport->world->now_us;
    transport->submits++;
    transport->calls_all++;
    *ret_accepted = 0;
    if (transport->fail_submits > 0 || transport->closed || transport->state == PR_TRANSPORT_DOWN) {
        transport->fail_submits -= transport->fail_submits > 0;
        return pr__fail_retry(err,
                              transport->submit_status ? transport->submit_status : PR_E_BACKEND,
                              PR_RETRY_RECONNECT, "sim.transport", "the connection is gone");
    }
    if (transport->takes_nothing || transport->state == PR_TRANSPORT_BLOCKED)
        return PR_OK;
    size_t accepted = 0;
    while (accepted < count && transport->flying_count < base->window &&
           transport->state == PR_TRANSPORT_UP)
        take(transport, &submissions[accepted++]);
    transport->submitted += (uint32_t)accepted;
    *ret_accepted = accepted;
    return PR_OK;
}

static void give_outcome(sim_transport *transport, uint32_t index, pr_submitted *ret_outcome)
{
    sim_flying *flying = &transport->flying[index];
    sim_row *row = flying->row;
    /* the message is borrowed until now: reading it is what a sanitizer would object to */
    assert_string_equal(flying->message->id, row->message_id);
    *ret_outcome = (pr_submitted){
        .ticket = flying->ticket, .outcome = flying->fate.outcome, .suspect = flying->suspect};
    if (flying->fate.outcome != PR_SUBMIT_CONFIRMED)
        pr__format(ret_outcome->reason, sizeof ret_outcome->reason, "so it was decided");
    row->confirmed += flying->fate.outcome == PR_SUBMIT_CONFIRMED ||
                      (flying->fate.outcome == PR_SUBMIT_RETURNED && row->headers);
    row->refused += flying->fate.outcome == PR_SUBMIT_RETURNED ||
                    flying->fate.outcome == PR_SUBMIT_REFUSED ||
                    flying->fate.outcome == PR_SUBMIT_TOO_LARGE;
    memmove(flying, flying + 1, (transport->flying_count - index - 1) * sizeof *flying);
    transport->flying_count--;
}

static pr_status sim_poll(pr_transport *base, int64_t timeout_ms, pr_submitted *ret_outcomes,
                          size_t max, size_t *ret_count, pr_error *err)
{
    sim_transport *transport = transport_of(base);
    sim_world *world = transport->world;
    transport->polls++;
    transport->calls_all++;
    if (transport->fail_polls > 0) {
        transport->fail_polls--;
        return pr__fail_retry(err, PR_E_BACKEND, PR_RETRY_RECONNECT, "sim.transport",
                              "the connection is gone");
    }
    if (transport->closed)
        everything_lost(transport, NULL);
    int64_t until_us = world->now_us + timeout_ms * 1000, first_us = INT64_MAX;
    for (uint32_t i = 0; i < transport->flying_count; i++) {
        if (!transport->flying[i].fate.never && transport->flying[i].due_us < first_us)
            first_us = transport->flying[i].due_us;
    }
    if (first_us > world->now_us)
        world->now_us = first_us < until_us ? first_us : until_us;
    size_t count = 0;
    for (uint32_t i = 0; i < transport->flying_count && count < max;) {
        if (transport->flying[i].fate.never || transport->flying[i].due_us > world->now_us)
            i++;
        else
            give_outcome(transport, i, &ret_outcomes[count++]);
    }
    *ret_count = count;
    return PR_OK;
}

static void sim_state(pr_transport *base, pr_transport_state *ret_state)
{
    sim_transport *transport = transport_of(base);
    ret_state->kind = transport->closed ? PR_TRANSPORT_DOWN : transport->state;
    pr__format(ret_state->cause, sizeof ret_state->cause, "%s",
               ret_state->kind == PR_TRANSPORT_UP        ? ""
               : ret_state->kind == PR_TRANSPORT_BLOCKED ? "memory alarm"
                                                         : "connection lost");
}

static const pr_transport_ops sim_transport_ops = {
    .size = sizeof sim_transport_ops,
    .scheme = "sim",
    .open = sim_open,
    .submit = sim_submit,
    .poll = sim_poll,
    .state = sim_state,
};

void sim_decide_by_name(sim_transport *transport, const sim_row *row, sim_fate *ret_fate)
{
    (void)transport;
    static const struct {
        const char *word;
        pr_submit_outcome outcome;
        bool arrives, kills, never;
    } fates[] = {
        {"refuse", PR_SUBMIT_REFUSED, false, false, false},
        {"return", PR_SUBMIT_RETURNED, false, false, false},
        {"large", PR_SUBMIT_TOO_LARGE, false, false, false},
        {"lose", PR_SUBMIT_LOST, false, false, false},
        {"kill", PR_SUBMIT_LOST, false, true, false},
        {"hang", PR_SUBMIT_LOST, false, false, true},
    };
    for (size_t i = 0; i < COUNT_OF(fates); i++) {
        if (strstr(row->destination, fates[i].word)) {
            ret_fate->outcome = fates[i].outcome;
            ret_fate->arrives = fates[i].arrives;
            ret_fate->kills = fates[i].kills;
            ret_fate->never = fates[i].never;
        }
    }
}

void sim_transport_init(sim_transport *transport, sim_world *world, const char *name)
{
    memset(transport, 0, sizeof *transport);
    transport->base.ops = &sim_transport_ops;
    transport->base.name = name;
    transport->base.clock = &world->clock;
    transport->base.window = 256;
    transport->world = world;
    transport->decide = sim_decide_by_name;
    transport->state = PR_TRANSPORT_UP;
}

/* ---- driving ---- */

uint32_t sim_run(sim_world *world, pr_relay *relay, int64_t until_us, bool (*done)(void *user),
                 void *user)
{
    uint32_t steps = 0, still = 0;
    int64_t last_us = world->now_us;
    while (world->now_us < until_us && !(done && done(user))) {
        int64_t wait_ms = 0;
        pr_status status = pr_relay_step(relay, &wait_ms, NULL);
        steps++;
        if (status == PR_E_STATE)
            break;
        assert_true(wait_ms >= 0);
        if (wait_ms > 0)
            world->now_us +=
                MS(wait_ms) < until_us - world->now_us ? MS(wait_ms) : until_us - world->now_us;
        still = world->now_us == last_us ? still + 1 : 0;
        last_us = world->now_us;
        if (still > 20000)
            fail_msg("the relay spins: %u steps at one instant", still);
    }
    return steps;
}

uint32_t sim_run_for(sim_world *world, pr_relay *relay, int64_t us)
{
    return sim_run(world, relay, world->now_us + us, NULL, NULL);
}

pr_relay_snapshot sim_snapshot(pr_relay *relay)
{
    pr_relay_snapshot snapshot = {.size = sizeof snapshot};
    pr_error err = PR_ERROR_INIT;
    check_ok(pr_relay_snapshot_get(relay, &snapshot, &err), &err, "snapshot");
    return snapshot;
}

static void observe(void *user, const pr_observation *observation)
{
    sim_bench *bench = user;
    bench->observed[observation->kind] += (uint32_t)observation->count;
    if (observation->kind == PR_OBSERVE_BREAKER) {
        size_t used = strlen(bench->breaker_texts);
        pr__format(bench->breaker_texts + used, sizeof bench->breaker_texts - used, "%s;",
                   observation->text);
    }
    if (observation->kind == PR_OBSERVE_BREAKER || observation->kind == PR_OBSERVE_ROUND_FAILED)
        pr__format(bench->last_text, sizeof bench->last_text, "%s",
                   observation->text ? observation->text : "");
}

sim_bench *sim_bench_new(pr_relay_options opt, uint32_t transports)
{
    sim_bench *bench = pr__alloc(sizeof *bench);
    assert_non_null(bench);
    bench->world = sim_world_new(7, 4);
    sim_store_init(&bench->store, bench->world);
    sim_transport_init(&bench->transport, bench->world, "mem");
    sim_transport_init(&bench->second, bench->world, "two");
    bench->transport.group_next = &bench->second; /* a ring */
    bench->second.group_next = &bench->transport;
    bench->observer =
        (pr_observer){.size = sizeof bench->observer, .observe = observe, .user = bench};
    opt.size = sizeof opt;
    opt.clock = &bench->world->clock;
    opt.random = &bench->world->random;
    opt.observer = &bench->observer;
    pr_transport *list[2] = {&bench->transport.base, &bench->second.base};
    pr_error err = PR_ERROR_INIT;
    check_ok(pr_relay_new(&bench->store.base, list, transports, &opt, &bench->relay, &err), &err,
             "new relay");
    return bench;
}

void sim_bench_free(sim_bench *bench)
{
    pr_relay_free(bench->relay);
    sim_world_free(bench->world);
    pr__free(bench);
}
