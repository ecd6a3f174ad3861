/*
 * A world for the relay, in memory and in virtual time: a ledger with the rules of the claim and
 * the settle, store handles onto it that can fail, be fenced or die, and transports that do what a
 * test tells them.
 *
 * The world also watches: what arrives is checked against the order of its key, what is settled as
 * published against the confirmations, what is charged against the failures that were given.
 */
#ifndef PR_TESTS_SIM_H
#define PR_TESTS_SIM_H

#include <postroom/relay.h>

#include "port/store.h"
#include "support/test.h"

#define SIM_ROWS_MAX   4096
#define SIM_LANES_MAX  16
#define SIM_FLYING_MAX 512
#define SIM_TIMES_MAX  64
#define MS(n)          ((int64_t)(n)*1000)
#define SECONDS(n)     ((int64_t)(n)*1000000)

typedef enum sim_place { SIM_LOG = 0, SIM_PARKED, SIM_PUBLISHED } sim_place;

typedef struct sim_row {
    int64_t id;
    uint32_t lane;
    char message_id[PR_UUID_TEXT_SIZE];
    char key[16]; /* "" = none */
    char destination[80];
    const char *headers;
    const char *unreadable;
    int64_t expires_at_us;
    sim_place place;
    /* parked */
    pr_state state; /* FAILED, HELD or DEAD */
    uint32_t attempts, takeovers;
    bool uncharged; /* failed, though nothing was charged: deferred or lost */
    int64_t next_at_us, locked_until_us;
    char token[PR_UUID_TEXT_SIZE];
    char error[256];
    uint32_t suspicion; /* kept with rest */
    /* what happened */
    uint32_t submitted, arrived, confirmed, refused;
    uint32_t lost_as_killer, poisoned;
} sim_row;

typedef struct sim_lane {
    int64_t seq, pos;
    int64_t open[SIM_ROWS_MAX], rest[SIM_ROWS_MAX]; /* ids */
    uint32_t open_count, rest_count;
    char token[PR_UUID_TEXT_SIZE];
    uint32_t attempt;
    int64_t lease_until_us;
} sim_lane;

typedef struct sim_world {
    int64_t now_us;
    int64_t wall_offset_us; /* the host's clock against the database's */
    uint64_t random_state;
    pr_clock clock;
    pr_random random;
    pr_order order;
    uint32_t lane_count;
    sim_lane lanes[SIM_LANES_MAX];
    sim_row rows[SIM_ROWS_MAX];
    uint32_t row_count;
    sim_row delayed[16];
    int64_t delayed_at_us[16];
    uint32_t delayed_count;
    uint64_t tokens;
    bool relaxed_order; /* the order of keys is not watched */
} sim_world;

typedef enum sim_method {
    SIM_CLAIM = 0,
    SIM_CLAIM_PARKED,
    SIM_SETTLE,
    SIM_RENEW,
    SIM_PROMOTE,
    SIM_PARKED_DUE,
    SIM_PARKED_COUNT,
    SIM_CHANGED,
    SIM_MAINTAIN,
    SIM_BACKLOG,
    SIM_SET_ORDER,
    SIM_METHODS
} sim_method;

typedef struct sim_store {
    pr_store base;
    sim_world *world;
    bool down; /* every call fails */
    pr_retry down_retry;
    uint32_t fail_next[SIM_METHODS]; /* that many calls fail */
    int64_t takes_us[SIM_METHODS];   /* how long a call takes */
    bool changed;                    /* what the next probe says */
    uint32_t calls[SIM_METHODS];
    uint32_t calls_all;
    int64_t times[SIM_METHODS][SIM_TIMES_MAX]; /* of the first calls */
    bool parked_count_set;
    uint32_t parked_count; /* what is answered when set */
    uint64_t last_skipped; /* lanes that the last claim left alone */
    uint32_t settled_with_next;
    bool ignores_skipped;
} sim_store;

/* What becomes of one submission. */
typedef struct sim_fate {
    pr_submit_outcome outcome;
    int64_t after_us;
    bool arrives;
    bool kills; /* closes the connection: all that flies is lost */
    bool never; /* no outcome by itself */
} sim_fate;

typedef struct sim_flying {
    uint64_t ticket;
    sim_row *row;
    const pr_message *message;
    sim_fate fate;
    int64_t due_us, sent_at_us;
    bool suspect;
} sim_flying;

typedef struct sim_transport {
    pr_transport base;
    sim_world *world;
    void (*decide)(struct sim_transport *transport, const sim_row *row, sim_fate *ret_fate);
    void *user;
    struct sim_transport *group_next; /* ring of one relay's: one message of a key flies in it */
    pr_transport_state_kind state;
    bool refuses_open; /* open fails */
    uint32_t fail_submits, fail_polls;
    pr_status submit_status; /* of failing submits; 0 = BACKEND */
    bool takes_nothing;      /* submit accepts none */
    bool closed;             /* its process died: everything is lost */
    int64_t overdue_us; /* older ones are no longer watched: the relay gave them up; 0 = never */
    sim_flying flying[SIM_FLYING_MAX];
    uint32_t flying_count, flying_most;
    uint32_t opens, submits, polls, submitted;
    int64_t open_times[SIM_TIMES_MAX];
    int64_t submit_times[SIM_TIMES_MAX];
    uint32_t calls_all;
} sim_transport;

/* ---- the world ---- */
sim_world *sim_world_new(uint64_t seed, uint32_t lanes);
void sim_world_free(sim_world *world);
uint64_t sim_random(sim_world *world, uint64_t below);
/* key "" = none: spread over the lanes by id. */
sim_row *sim_add(sim_world *world, const char *key, const char *destination);
sim_row *sim_row_of(sim_world *world, int64_t id);
uint32_t sim_count(const sim_world *world, sim_place place, pr_state state);
bool sim_all_final(const sim_world *world); /* published or dead */
bool sim_any_leased(const sim_world *world);

/* ---- handles ---- */
void sim_store_init(sim_store *store, sim_world *world);
void sim_transport_init(sim_transport *transport, sim_world *world, const char *name);
/* By the destination: "ok", "refuse", "return", "large", "hang" (no outcome), "lose", "kill". */
void sim_decide_by_name(sim_transport *transport, const sim_row *row, sim_fate *ret_fate);

/* ---- driving ---- */
/* Step until until_us or until *done; the clock goes on by the waits. Returns the steps made. */
uint32_t sim_run(sim_world *world, pr_relay *relay, int64_t until_us, bool (*done)(void *user),
                 void *user);
uint32_t sim_run_for(sim_world *world, pr_relay *relay, int64_t us);
pr_relay_snapshot sim_snapshot(pr_relay *relay);

/* One world with one relay, as most tests want it. */
typedef struct sim_bench {
    sim_world *world;
    sim_store store;
    sim_transport transport, second; /* "mem" and "two" */
    pr_relay *relay;
    pr_observer observer;
    uint32_t observed[PR_OBSERVE_COUNT];
    char last_text[256];     /* of the last BREAKER or ROUND_FAILED */
    char breaker_texts[256]; /* of all BREAKER observations, joined by ';' */
} sim_bench;

sim_bench *sim_bench_new(pr_relay_options opt, uint32_t transports);
void sim_bench_free(sim_bench *bench);

#endif
