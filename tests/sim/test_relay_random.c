/*
 * Thousands of random histories: two relays step in turn over one ledger, with crashes, freezes,
 * expired leases, lost and refused sends, killed connections, outages of the database and of the
 * transports. The world checks while it goes: published only after a confirmation (S3), settles
 * fenced by token (S6), first arrivals in the order of the key (S10), nothing charged that is
 * unknown (S12). At the end: nothing vanished (S4), no lease is left (S5), all is published or
 * dead once the faults are over.
 *
 * A failure prints its seed: run again with POSTROOM_SIM_SEED=<seed>. POSTROOM_SIM_RUNS: how many.
 */
#include "sim/sim.h"

#include "base/memory.h"
#include "base/text.h"

#define RELAYS 2
#if defined __SANITIZE_ADDRESS__ || defined __SANITIZE_THREAD__
#define RUNS 500 /* they take ten times as long */
#else
#define RUNS 3000
#endif
#define STEPS     400
#define MINE      "mem://topic/urn:message:sim:a"
#define OTHER     "mem://topic/urn:message:sim:b"
#define ELSEWHERE "two://topic/urn:message:sim:c"

/* A relay with its handles: what one process has. */
typedef struct process {
    sim_store store;
    sim_transport transport, second;
    pr_relay *relay;
    int64_t frozen_until_us;
} process;

/* What all histories together must have met, or they show nothing. */
typedef struct totals {
    uint64_t seed; /* in hand; 0 = none */
    uint64_t crashes, takeovers, fenced, lost, failed, dead, held, deferred, expired, breakers;
} totals;

typedef struct play {
    totals *totals;
    pr_observer observer;
    sim_world *world;
    process processes[RELAYS];
    bool faults;
    uint32_t harshness; /* percent of sends that go wrong */
    uint32_t transports;
} play;

static void decide(sim_transport *transport, const sim_row *row, sim_fate *ret_fate)
{
    (void)row;
    const play *p = transport->user;
    sim_world *world = transport->world;
    ret_fate->after_us = (int64_t)sim_random(world, 3000);
    if (!p->faults || sim_random(world, 100) >= p->harshness)
        return;
    ret_fate->arrives = sim_random(world, 2);
    switch (sim_random(world, 8)) {
    case 0:
        ret_fate->outcome = PR_SUBMIT_REFUSED;
        ret_fate->arrives = false;
        break;
    case 1:
        ret_fate->outcome = PR_SUBMIT_RETURNED;
        ret_fate->arrives = false;
        break;
    case 2:
        ret_fate->arrives = sim_random(world, 4) > 0;
        if (!ret_fate->arrives)
            ret_fate->outcome = PR_SUBMIT_TOO_LARGE;
        break;
    case 3:
        ret_fate->outcome = PR_SUBMIT_LOST;
        ret_fate->kills = true;
        break;
    case 4:
        ret_fate->after_us =
            SECONDS(1 + (int64_t)sim_random(world, 6)); /* past lease or deadline */
        ret_fate->arrives = true;
        break;
    default:
        ret_fate->outcome = PR_SUBMIT_LOST;
        break;
    }
}

static void observe(void *user, const pr_observation *observation)
{
    play *p = user;
    if (observation->kind == PR_OBSERVE_TAKEOVER)
        p->totals->takeovers += observation->count;
    if (observation->kind == PR_OBSERVE_BREAKER && strcmp(observation->text, "open") == 0)
        p->totals->breakers++;
}

/* Before a relay goes: what it counted. */
static void add_up(play *p, uint32_t i)
{
    pr_relay_snapshot s = sim_snapshot(p->processes[i].relay);
    p->totals->fenced += s.fenced;
    p->totals->lost += s.lost;
    p->totals->failed += s.failed;
    p->totals->dead += s.dead;
    p->totals->held += s.held;
    p->totals->deferred += s.deferred;
    p->totals->expired += s.expired;
}

static void start(play *p, uint32_t i)
{
    process *it = &p->processes[i];
    sim_store_init(&it->store, p->world);
    sim_transport_init(&it->transport, p->world, "mem");
    sim_transport_init(&it->second, p->world, "two");
    sim_transport *both[2] = {&it->transport, &it->second};
    for (int k = 0; k < 2; k++) {
        both[k]->decide = decide;
        both[k]->user = p;
        both[k]->group_next = both[1 - k];
        both[k]->base.window = 1 + (uint32_t)sim_random(p->world, 8);
        both[k]->overdue_us = MS(3000);
    }
    pr_transport *list[2] = {&it->transport.base, &it->second.base};
    pr_relay_options opt =
        PR_RELAY_OPTIONS(.batch_max = 1 + (uint32_t)sim_random(p->world, 12), .lease_ms = 2000,
                         .publish_deadline_ms = 3000, .backoff_initial_ms = 200,
                         .backoff_max_ms = 2000, .retry_max = 3, .breaker_failures = 3,
                         .parked_cap_per_lane = 4, .round_backoff_max_ms = 1000,
                         .observer = &p->observer, .clock = &p->world->clock,
                         .random = &p->world->random);
    pr_error err = PR_ERROR_INIT;
    check_ok(pr_relay_new(&it->store.base, list, p->transports, &opt, &it->relay, &err), &err,
             "start");
}

/* The process dies: its database connection too, and nobody polls its transports any more. */
static void crash(play *p, uint32_t i)
{
    process *it = &p->processes[i];
    it->store.down = true;
    it->transport.closed = it->second.closed = true;
    int64_t now_us = p->world->now_us;
    add_up(p, i);
    pr_relay_free(it->relay);
    p->world->now_us = now_us;
    p->totals->crashes++;
    start(p, i);
    it->frozen_until_us = now_us + (int64_t)sim_random(p->world, 3) * SECONDS(1);
}

static void misfortune(play *p)
{
    uint32_t i = (uint32_t)sim_random(p->world, RELAYS);
    process *it = &p->processes[i];
    switch (sim_random(p->world, 10)) {
    case 0:
        crash(p, i);
        break;
    case 1: /* longer than its lease, or not */
        it->frozen_until_us = p->world->now_us + (int64_t)sim_random(p->world, 4000) * 1000;
        break;
    case 2:
        it->store.fail_next[sim_random(p->world, SIM_METHODS)] =
            1 + (uint32_t)sim_random(p->world, 3);
        break;
    case 3:
        it->store.down = !it->store.down;
        break;
    case 4:
        it->transport.state = PR_TRANSPORT_DOWN;
        break;
    case 5:
        it->second.refuses_open = !it->second.refuses_open;
        it->second.state = PR_TRANSPORT_DOWN;
        break;
    case 6:
        it->transport.state = PR_TRANSPORT_BLOCKED;
        break;
    case 7:
        it->transport.fail_submits = 1 + (uint32_t)sim_random(p->world, 2);
        break;
    case 8:
        it->transport.fail_polls = 1;
        break;
    default:
        it->transport.takes_nothing = !it->transport.takes_nothing;
        break;
    }
}

static void add_some(play *p)
{
    static const char *const keys[] = {"", "", "k1", "k2", "k3"};
    static const char *const destinations[] = {MINE, MINE, OTHER, ELSEWHERE};
    uint32_t count = 1 + (uint32_t)sim_random(p->world, 6);
    for (uint32_t i = 0; i < count && p->world->row_count < 60; i++) {
        const char *destination = destinations[sim_random(p->world, p->transports == 2 ? 4 : 3)];
        sim_row *row = sim_add(p->world, keys[sim_random(p->world, COUNT_OF(keys))], destination);
        if (sim_random(p->world, 40) == 0)
            row->expires_at_us = p->world->now_us + MS(sim_random(p->world, 3000));
    }
}

/* Each relay comes when it asked to: two processes share the clock. */
static void step(play *p, int64_t *due_us)
{
    uint32_t i = due_us[0] <= due_us[1] ? 0 : 1;
    process *it = &p->processes[i];
    if (due_us[i] > p->world->now_us)
        p->world->now_us = due_us[i];
    if (it->frozen_until_us > p->world->now_us) {
        due_us[i] = it->frozen_until_us;
        return;
    }
    int64_t wait_ms = 0;
    pr_status status = pr_relay_step(it->relay, &wait_ms, NULL);
    assert_true(status != PR_E_STATE);
    due_us[i] = p->world->now_us + MS(wait_ms);
}

static void heal(play *p)
{
    p->faults = false;
    for (uint32_t i = 0; i < RELAYS; i++) {
        process *it = &p->processes[i];
        memset(it->store.fail_next, 0, sizeof it->store.fail_next);
        it->store.down = it->second.refuses_open = it->transport.takes_nothing = false;
        it->transport.fail_submits = it->transport.fail_polls = 0;
        if (it->transport.state == PR_TRANSPORT_BLOCKED)
            it->transport.state = PR_TRANSPORT_UP;
    }
}

static void tell_stuck(const play *p)
{
    for (uint32_t i = 0; i < p->world->row_count; i++) {
        const sim_row *row = &p->world->rows[i];
        if (row->place == SIM_LOG || (row->place == SIM_PARKED && row->state != PR_STATE_DEAD))
            printf("# stuck: %lld lane %u key '%s' to %s, %s, state %d, attempts %u, %s\n",
                   (long long)row->id, row->lane, row->key, row->destination,
                   row->place == SIM_LOG ? "in the log" : "parked", (int)row->state, row->attempts,
                   row->error);
    }
}

static void check_end(play *p)
{
    for (uint32_t i = 0; i < p->world->row_count; i++) {
        const sim_row *row = &p->world->rows[i];
        if (row->place == SIM_PUBLISHED && (row->arrived == 0 || row->confirmed == 0))
            fail_msg("%lld is published but never arrived", (long long)row->id);
    }
    for (uint32_t i = 0; i < RELAYS; i++) {
        pr_relay_snapshot snapshot = sim_snapshot(p->processes[i].relay);
        if (snapshot.health != PR_HEALTH_HEALTHY)
            fail_msg("relay %u is not healthy in the end: %s", i, snapshot.health_reason);
    }
    if (sim_any_leased(p->world))
        fail_msg("a lease is left");
}

static void one_history(totals *sum, uint64_t seed)
{
    play *p = pr__alloc(sizeof *p);
    assert_non_null(p);
    sum->seed = seed;
    p->totals = sum;
    p->observer = (pr_observer){.size = sizeof p->observer, .observe = observe, .user = p};
    p->world = sim_world_new(seed, 1U << (seed % 3));
    p->world->order = seed % 11 == 0 ? PR_ORDER_SKIP : PR_ORDER_HOLD;
    p->transports = seed % 4 == 0 ? 2 : 1;
    p->harshness = (uint32_t)(seed * 7 % 40);
    p->faults = true;
    int64_t due_us[RELAYS] = {0};
    for (uint32_t i = 0; i < RELAYS; i++)
        start(p, i);
    for (int i = 0; i < STEPS; i++) {
        if (sim_random(p->world, 12) == 0)
            add_some(p);
        if (sim_random(p->world, 20) == 0)
            misfortune(p);
        step(p, due_us);
    }
    heal(p);
    int64_t healed_us = p->world->now_us;
    uint32_t steps = 0;
    while (!sim_all_final(p->world) && p->world->now_us < healed_us + SECONDS(120) &&
           ++steps < 200000)
        step(p, due_us);
    if (!sim_all_final(p->world)) {
        tell_stuck(p);
        fail_msg("after %llu s without faults something is not final",
                 (unsigned long long)((p->world->now_us - healed_us) / 1000000));
    }
    for (int64_t until_us = p->world->now_us + SECONDS(31); p->world->now_us < until_us;)
        step(p, due_us);
    check_end(p);
    for (uint32_t i = 0; i < RELAYS; i++) {
        add_up(p, i);
        pr_relay_free(p->processes[i].relay);
    }
    sim_world_free(p->world);
    pr__free(p);
    sum->seed = 0;
}

static uint64_t number(const char *name, uint64_t standard)
{
    const char *text = getenv(name);
    int64_t value = 0;
    return text && pr__parse_int64(text, 0, INT64_MAX, &value) ? (uint64_t)value : standard;
}

static void test_histories(void **state)
{
    totals *sum = *state;
    uint64_t only = number("POSTROOM_SIM_SEED", 0);
    uint64_t runs = number("POSTROOM_SIM_RUNS", RUNS);
    if (only) {
        one_history(sum, only);
        return;
    }
    for (uint64_t seed = 1; seed <= runs; seed++)
        one_history(sum, seed);
    const struct {
        const char *label;
        uint64_t met;
    } met[] = {{"crashes", sum->crashes},  {"takeovers", sum->takeovers}, {"fenced", sum->fenced},
               {"lost", sum->lost},        {"failed", sum->failed},       {"dead", sum->dead},
               {"held", sum->held},        {"deferred", sum->deferred},   {"expired", sum->expired},
               {"breakers", sum->breakers}};
    for (size_t i = 0; i < COUNT_OF(met); i++) {
        printf("# %s: %llu\n", met[i].label, (unsigned long long)met[i].met);
        CHECK_CASE(met[i].met > runs / 100, met[i].label);
    }
}

static int set_up(void **state)
{
    *state = pr__alloc(sizeof(totals));
    return *state ? 0 : -1;
}

static int tear_down(void **state)
{
    const totals *sum = *state;
    if (sum->seed)
        printf("# failed: run again with POSTROOM_SIM_SEED=%llu\n", (unsigned long long)sum->seed);
    pr__free(*state);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_histories, set_up, tear_down)};
    return RUN_TESTS(tests);
}
