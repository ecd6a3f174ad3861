/*
 * The relay's inside, shared by the files relay*.c and by nobody else.
 *
 * relay.c        making and freeing, stop and wake, the public step
 * relay_step.c   the scheduler: which port call comes next; how long to wait
 * relay_round.c  calls of the store: claim, settle, renew, promote, count
 * relay_send.c   calls of the transports: open, submit, poll; what each outcome means
 * relay_park.c   what becomes of what cannot be sent: failed, dead, deferred, or the lane waits
 * relay_loop.c   the loop that sleeps, and run-once
 * relay_snapshot.c  counters, health, observations
 */
#ifndef PR_CORE_RELAY_ENGINE_H
#define PR_CORE_RELAY_ENGINE_H

#include <pthread.h>
#include <stdatomic.h>

#include <postroom/relay.h>

#include "base/bell.h"
#include "core/breaker.h"
#include "core/rate.h"
#include "core/relay_options.h"
#include "core/relay_work.h"
#include "port/store.h"

#define PR__RELAY_WORKS        3   /* batches in hand at most; they share batch_bytes_max */
#define PR__RELAY_OUTCOMES_MAX 256 /* outcomes a poll */
#define PR__RELAY_KILLERS_MAX  64  /* messages that were charged as suspects: remembered */

/* One transport, as the relay sees it. */
typedef struct pr__relay_transport {
    pr_transport *port;
    const char *name;
    bool up;
    bool blocked; /* not up because the other side takes nothing now */
    bool served;  /* something else was confirmed since a suspect was last lost */
    bool alone;   /* a suspect flies: nothing beside it */
    uint32_t in_flight;
    uint32_t failures;   /* in a row; a confirmation resets it */
    uint32_t single;     /* so many are submitted one by one: the other side could not tell which */
    int64_t retry_at_us; /* when open is tried again */
    int64_t hold_until_us; /* it took nothing: submit not before */
    int64_t stalled_at_us; /* since when it takes nothing although nothing flies; 0 = it takes */
    int64_t poll_at_us;    /* a poll failed: not before */
    char cause[256];       /* of being down or blocked; "" when up */
} pr__relay_transport;

/* What happens between rounds, in turn, so that none starves another. */
typedef enum pr__relay_turn {
    PR__TURN_PROMOTE = 0,
    PR__TURN_PARKED,
    PR__TURN_LOG,
    PR__TURN_BACKLOG,
    PR__TURN_MAINTAIN,
    PR__TURN_COUNT
} pr__relay_turn;

typedef enum pr__relay_once_stage {
    PR__ONCE_OFF = 0,
    PR__ONCE_PROMOTE,
    PR__ONCE_COUNT,
    PR__ONCE_PARKED,
    PR__ONCE_LOG,
    PR__ONCE_DONE
} pr__relay_once_stage;

/* The two destinations that were confirmed last, to tell whether others than one were served. */
typedef struct pr__relay_served {
    uint64_t hash, mark;
} pr__relay_served;

struct pr_relay {
    pr_store *store;
    pr_relay_options opt; /* resolved */
    char owner[128];
    pr__relay_transport transports[PR__WORK_TRANSPORTS_MAX];
    const char *names[PR__WORK_TRANSPORTS_MAX];
    uint32_t transport_count;
    pr__breakers *breakers;
    pr__rate rate;
    pr__work works[PR__RELAY_WORKS];
    uint32_t serial;
    pr_submitted *outcomes; /* [PR__RELAY_OUTCOMES_MAX] */

    /* schedule, on the monotonic clock */
    pr__relay_turn turn;
    bool order_pending; /* the order policy is to be stored first */
    bool ask_due;       /* no parked row was due: ask when one will be */
    bool dirty;         /* something was written: there is a checkpoint to make */
    int64_t log_at_us, probe_at_us, parked_at_us, promote_at_us, backlog_at_us, maintain_at_us;
    int64_t busy_until_us; /* claim at the busy pace until then */
    int64_t backoff_until_us;
    uint32_t failures;          /* rounds in a row */
    pr__relay_turn failed_turn; /* what failed last: its success ends the row */
    char failed_why[128];       /* the last one, for the health */
    uint32_t poll_turn;

    /* lanes that wait because too much of theirs is parked for a destination that is down */
    int64_t lane_wait_until_us[PR_LANES_MAX];
    uint32_t lane_parked[PR_LANES_MAX];
    int64_t lane_counted_at_us[PR_LANES_MAX]; /* INT64_MIN = never */
    char lane_waits[200];                     /* "" = none does */
    int64_t lane_waits_until_us;

    uint64_t served_mark; /* counts confirmations */
    pr__relay_served served[2];
    int64_t killers[PR__RELAY_KILLERS_MAX]; /* log ids; 0 = free */
    uint32_t killer_next;

    /* run-once */
    pr__relay_once_stage once;
    uint64_t once_limit, once_claimed;
    bool once_lane_done[PR_LANES_MAX];

    /* stop, and whoever comes from outside */
    atomic_bool stop_wanted, woken, running;
    bool stopping, stopped;
    int64_t stop_at_us;
    pr_error stop_error; /* what could not be settled at the end */
    int wake_fd;
    pr__bell bell; /* listens while it runs */

    pthread_mutex_t lock; /* guards snapshot alone */
    pr_relay_snapshot snapshot;
    pr_relay_snapshot now; /* the relay's own copy */
};

/* ---- relay_step.c ---- */

int64_t pr__relay_now(const pr_relay *relay);
/* One step, in microseconds; STATE once it is stopped. */
pr_status pr__relay_advance(pr_relay *relay, int64_t *ret_wait_us, pr_error *err);
bool pr__relay_any_up(const pr_relay *relay);
/* A round failed: counts, and no call of the store is made before the backoff is over. */
void pr__relay_round_failed(pr_relay *relay, pr__relay_turn turn, const pr_error *why,
                            int64_t now_us);
uint32_t pr__relay_random(pr_relay *relay);

/* ---- relay_round.c: each makes one call of the store ---- */

pr_status pr__relay_settle(pr_relay *relay, pr__work *work, bool with_next, pr_error *err);
/* Settle the slices that are done while others wait for slow outcomes; false: there is none. */
bool pr__relay_settle_part(pr_relay *relay, pr__work *work, pr_status *ret_status, pr_error *err);
pr_status pr__relay_renew(pr_relay *relay, pr__work *work, pr_error *err);
pr_status pr__relay_promote(pr_relay *relay, uint32_t *ret_count, pr_error *err);
pr_status pr__relay_turn_run(pr_relay *relay, pr__relay_turn turn, pr_error *err);
pr_status pr__relay_probe(pr_relay *relay, pr_error *err);
pr_status pr__relay_set_order(pr_relay *relay, pr_error *err);
pr__work *pr__relay_free_slot(pr_relay *relay);
uint64_t pr__relay_bytes_left(const pr_relay *relay);

/* ---- relay_send.c: at most one call of a transport ---- */

/* Send what can be sent of this work; false when no port was called. */
bool pr__relay_send(pr_relay *relay, pr__work *work, pr_status *ret_status, pr_error *err);
pr_status pr__relay_open(pr_relay *relay, pr__relay_transport *transport, pr_error *err);
bool pr__relay_poll(pr_relay *relay, int64_t timeout_ms, pr_status *ret_status, pr_error *err);
/* See whether the state that the transports tell of themselves has changed. */
void pr__relay_look(pr_relay *relay, int64_t now_us);
/* Mark overdue ones as lost, and stop sending what the lease no longer covers. */
void pr__relay_check_times(pr_relay *relay, pr__work *work, int64_t now_us);
void pr__relay_lose_flying(pr_relay *relay, pr__work *work, const char *why, int64_t overdue_us);

/* ---- relay_park.c: no call of a port but pr__relay_count_lane ---- */

void pr__relay_message_failed(pr_relay *relay, pr__work *work, uint32_t index, const char *text);
void pr__relay_message_dead(pr__work *work, uint32_t index, const char *text);
bool pr__relay_expired(const pr__work *work, uint32_t index, int64_t now_us);
/* Decide all that goes nowhere: blocked, poison, unreadable, no transport for it. */
void pr__relay_sort_out(pr_relay *relay, pr__work *work);
/* It cannot be sent now: deferred, or left, or, false, its lane must be counted first. */
bool pr__relay_put_off(pr_relay *relay, pr__work *work, uint32_t index, int64_t delay_ms,
                       const char *why, int64_t now_us);
pr_status pr__relay_count_lane(pr_relay *relay, uint32_t lane, pr_error *err);
/* Was it charged for the connections that it closed? Then its retries go alone from the start. */
bool pr__relay_killer(const pr_relay *relay, int64_t log_id);
void pr__relay_killer_add(pr_relay *relay, int64_t log_id);

/* ---- relay_loop.c ---- */

pr_status pr__relay_once_turn(pr_relay *relay, bool *ret_called, pr_error *err);

/* ---- relay_snapshot.c ---- */

void pr__relay_tell(pr_relay *relay, pr_observation_kind kind, uint64_t count, int64_t duration_us);
void pr__relay_tell_item(pr_relay *relay, pr_observation_kind kind, const pr__item *item);
void pr__relay_tell_subject(pr_relay *relay, pr_observation_kind kind, const char *subject,
                            pr_status status, const char *text);
void pr__relay_publish_snapshot(pr_relay *relay);

#endif
