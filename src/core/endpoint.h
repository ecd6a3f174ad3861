/*
 * An endpoint's inside, shared by its files: endpoint.c (life), endpoint_options.c, endpoint_loop.c
 * (what comes next), endpoint_hand.c (deliveries in hand), endpoint_retry.c (parked rows),
 * endpoint_workers.c (its threads), endpoint_work.c (what becomes of one message), endpoint_chain.c
 * (one message through the unit, the inbox and the handler), endpoint_batch.c (several messages
 * through one unit).
 */
#ifndef PR_CORE_ENDPOINT_H
#define PR_CORE_ENDPOINT_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <postroom/endpoint.h>

#include "core/backoff.h"
#include "core/dedup.h"
#include "core/inbox.h"
#include "core/lease.h"
#include "core/middleware.h"
#include "port/batch.h"
#include "port/store.h"

#define PR_ENDPOINT_PREFETCH_MAX 4096
#define PR_ENDPOINT_WORKERS_MAX  256
#define PR_ENDPOINT_BATCH_MAX    60 /* PostgreSQL caches 64 subtransactions of a backend */

/* Whose a message in hand is. Changed under the lock of the hand. */
typedef enum pr__work_state {
    PR__WORK_WAITING = 0, /* nobody's */
    PR__WORK_TRYING,      /* a worker's */
    PR__WORK_TRIED,       /* the endpoint's thread's: its verdict stands */
    PR__WORK_LEAVING      /* being given back */
} pr__work_state;

/* What became of a try. */
typedef enum pr__verdict {
    PR__WORK_ACK = 1,   /* marked or parked, durably: settle it for good */
    PR__WORK_WAIT,      /* busy: keep it in hand, try again at ready_at_us */
    PR__WORK_GIVE_BACK, /* uncharged */
    PR__WORK_REJECT,    /* no store can keep it: to the transport's dead queue */
    PR__WORK_TROUBLE    /* the database could not do it: give all back and pause */
} pr__verdict;

/* One message in hand: a delivery of the transport, or a parked row claimed for a retry. */
typedef struct pr__work {
    pr_delivery delivery; /* of a delivery */
    const pr__item *item; /* of a retry, in the endpoint's batch; NULL for a delivery */
    pr_message message;   /* as the handler and the inbox see it; id is the key's */
    pr__inbox_work inbox; /* points into this struct */
    pr_store *store;      /* of the thread that tries it */
    pr_message *copy;     /* of the message, when a worker has it; else NULL */
    pr__work_state state;
    pr__verdict verdict; /* of the last try by a worker */
    char trouble[256];   /* what that met, for TROUBLE */
    char id[PR_DEDUP_ID_SIZE];
    char token[PR_UUID_TEXT_SIZE];
    bool alone;       /* not in a batch (again): by itself it gets what it deserves */
    bool picked;      /* for the batch that is being picked, under the lock */
    bool marked;      /* in the unit of its batch */
    int64_t began_us; /* monotonic, of its handling in a batch */
    bool refused;     /* it can never be handled: refusal says why */
    char refusal[PR_ERROR_MESSAGE_SIZE];
    int64_t busy_since_us; /* monotonic; 0 = not busy */
    int64_t ready_at_us;   /* monotonic; not before */
} pr__work;

static inline pr__work *pr__work_of(pr__inbox_work *inbox)
{
    return (pr__work *)(void *)((char *)inbox - offsetof(pr__work, inbox));
}

/* A thread that handles, with a connection of its own. */
typedef struct pr__worker {
    pr_endpoint *endpoint;
    pr_store *store; /* NULL: not opened, or dropped after a failure */
    pthread_t thread;
    _Atomic pthread_t self; /* as it knows itself */
    atomic_bool begun;      /* self stands */
} pr__worker;

struct pr_endpoint {
    pr_store *store;
    pr_transport *transport;
    pr_subscription *subscription; /* NULL = not subscribed now */
    pr_endpoint_options opt;       /* defaults filled in; texts are ours */
    pr__arena *arena;
    pr__backoff backoff;
    pr__chain chain;
    pr__renewer *renewer; /* of the leased inbox; else NULL */
    char owner[128];

    /* Guards works, their state, whose turn it is, and the workers' part below. */
    pthread_mutex_t hand_mutex;
    pthread_cond_t to_try; /* something may be ready */
    pthread_cond_t tried;  /* a worker is done with one */
    pr__work **works;      /* deliveries in hand, in order of arrival */
    uint32_t work_count;
    pr__worker *workers; /* of a run with several */
    uint32_t worker_count;
    uint32_t busy_count;    /* workers with a message */
    bool draining;          /* workers take nothing new */
    bool ending;            /* workers end */
    bool retry_release;     /* the rows in hand go back when the one that is tried is done */
    pr__batch *retry_batch; /* parked rows in hand, or NULL */
    uint32_t retry_next;    /* of its items, after the one in retry */
    pr__work *retry;        /* the one whose turn it is, or NULL */
    uint32_t retries_in_row;
    int64_t retry_kept_us;         /* the batch's leases were begun or renewed last */
    bool retry_turn;               /* a due retry goes before the next delivery */
    _Atomic int64_t retry_look_us; /* when to look for due rows again */
    int64_t subscribe_at_us;       /* not before; after a failure */
    uint32_t subscribe_failures;
    int64_t asked_at_us;    /* the transport was asked last, by a run with workers */
    bool dry;               /* and had nothing */
    int64_t kept_at_us;     /* deliveries were kept alive last */
    int64_t maintain_at_us; /* the store's housekeeping: not before */
    int64_t resume_at_us;   /* while paused */
    uint32_t pauses;        /* in a row, without a message handled in between */

    bool troubled;    /* paused because the database could not do it */
    bool rested;      /* paused by its host, as far as its thread knows */
    bool unreached;   /* its subscription brings nothing now: snapshot.unreached_reason */
    atomic_bool held; /* its host wants it to pause */
    atomic_bool subscribed;
    _Atomic int64_t stop_seen_us; /* when the stop was seen first; 0 = not */
    atomic_bool stopping;
    atomic_bool running;
    atomic_bool cancelling;   /* stopped, and the grace is over: handlers are to give up */
    atomic_bool entered;      /* somebody is inside of step or run */
    _Atomic pthread_t inside; /* that one; 0 = nobody */
    pthread_mutex_t mutex;    /* guards snapshot */
    pr_endpoint_snapshot snapshot;
};

int64_t pr__endpoint_now_us(const pr_endpoint *endpoint);

/* Is the caller a handler of the endpoint, or one of its threads? */
bool pr__endpoint_on_own_thread(pr_endpoint *endpoint);

/* Counters and observations, by the endpoint's thread. */
#define PR_ENDPOINT_COUNT(endpoint, field)                                                         \
    do {                                                                                           \
        pthread_mutex_lock(&(endpoint)->mutex);                                                    \
        (endpoint)->snapshot.field++;                                                              \
        pthread_mutex_unlock(&(endpoint)->mutex);                                                  \
    } while (0)
void pr__endpoint_observe(const pr_endpoint *endpoint, pr_observation_kind kind,
                          const pr__work *work, pr_status status, const char *text);

/* A fresh lock token. */
void pr__endpoint_token(const pr_endpoint *endpoint, char out[PR_UUID_TEXT_SIZE]);

/* ---- endpoint_options.c ---- */

pr_status pr__endpoint_options_check(const pr_endpoint_options *opt, pr_error *err);
/* Defaults filled in, texts copied. False: out of memory. */
bool pr__endpoint_options_keep(pr_endpoint *endpoint, const pr_endpoint_options *given);

/* ---- endpoint_hand.c ---- */

/* What no worker has goes back, uncharged; bounded by the grace period. */
void pr__endpoint_give_back_all(pr_endpoint *endpoint);
/* Hold what was received; what cannot be held goes back. */
pr_status pr__endpoint_take(pr_endpoint *endpoint, const pr_delivery *deliveries, size_t count,
                            pr_error *err);
/* May it be tried now: it is due, and stands behind no earlier one of its key? */
bool pr__endpoint_is_ready(const pr_endpoint *endpoint, uint32_t index, int64_t now_us);
/* The first of those; work_count = none. */
uint32_t pr__endpoint_next_ready(const pr_endpoint *endpoint, int64_t now_us);
/* What may be handled in one unit with the one at `index`, that one first, in order of arrival; of
   each key from the earliest on. 1: that one goes by itself; more: they are being tried now. */
uint32_t pr__endpoint_pick_batch(pr_endpoint *endpoint, uint32_t index, int64_t now_us,
                                 pr__work *ret_works[PR_ENDPOINT_BATCH_MAX]);
/* After a batch: what was done is to be settled, the rest waits in hand. All at once, so that of a
   key nothing is given back past what waits. */
void pr__endpoint_end_batch(pr_endpoint *endpoint, pr__work *const *works, uint32_t count);
bool pr__endpoint_retry_ready(const pr_endpoint *endpoint, int64_t now_us);
/* A retry, or a delivery, is tried: whose turn comes next. */
void pr__endpoint_count_turn(pr_endpoint *endpoint, bool retry);
void pr__endpoint_set_state(pr_endpoint *endpoint, pr__work *work, pr__work_state state);
/* What the verdict on a delivery means for it and its followers. */
pr_status pr__endpoint_after_delivery(pr_endpoint *endpoint, uint32_t index, pr__verdict verdict,
                                      pr_error *err);

/* ---- endpoint_loop.c ---- */

/* Not while it is paused; looks whether the cause is over. */
pr_status pr__endpoint_may_work(pr_endpoint *endpoint, bool *ret_may, int64_t *ret_wait_ms,
                                pr_error *err);
void pr__endpoint_set_paused(pr_endpoint *endpoint, bool paused, const char *reason);
void pr__endpoint_pause_for(pr_endpoint *endpoint, const char *reason);
/* May the transport be asked now? Subscribes where that is due. */
pr_status pr__endpoint_reach_transport(pr_endpoint *endpoint, int64_t now_us, bool *ret_reached,
                                       pr_error *err);
pr_status pr__endpoint_receive(pr_endpoint *endpoint, int64_t timeout_ms, size_t *ret_count,
                               pr_error *err);
pr_status pr__endpoint_keep(pr_endpoint *endpoint, int64_t now_us, pr_error *err);
void pr__endpoint_unsubscribe(pr_endpoint *endpoint);
void pr__endpoint_maintain(pr_endpoint *endpoint);
/* When the next thing in hand, or the next look, is due; at most a poll away. */
int64_t pr__endpoint_idle_ms(pr_endpoint *endpoint, int64_t now_us);

/* ---- endpoint_workers.c ---- */

/* Run with workers until it is stopped. False: no thread could be made, nothing was done. */
bool pr__endpoint_run_workers(pr_endpoint *endpoint);

/* ---- endpoint_retry.c ---- */

/* Claim parked rows when one is due; the first of them becomes endpoint->retry. */
pr_status pr__endpoint_look_for_retry(pr_endpoint *endpoint, int64_t now_us, pr_error *err);
/* Renew the leases of the rows in hand where that is due. */
void pr__endpoint_keep_retries(pr_endpoint *endpoint, int64_t now_us);
/* As they were, uncharged. */
void pr__endpoint_release_retries(pr_endpoint *endpoint);
/* What the verdict on endpoint->retry means for the rows in hand. */
pr_status pr__endpoint_after_retry(pr_endpoint *endpoint, pr__verdict verdict, pr_error *err);

/* ---- endpoint_work.c ---- */

pr_status pr__work_from_delivery(const pr_endpoint *endpoint, const pr_delivery *delivery,
                                 pr__work **ret_work, pr_error *err);
/* The item must outlive the work. */
pr_status pr__work_from_row(const pr_endpoint *endpoint, const pr__item *item, pr__work **ret_work,
                            pr_error *err);
void *pr__work_free(pr__work *work);

/* What its handler gets; NULL: out of memory. pr__scope_free. */
pr_scope *pr__work_scope(pr_endpoint *endpoint, pr__work *work, int64_t began_us);
/* It is done, durably: count and tell. */
void pr__work_handled(pr_endpoint *endpoint, const pr__work *work, int64_t began_us);

/* Try it once, with the store of the thread that calls. The verdict is set whatever the status; the
   status tells what failed. */
pr_status pr__work_try(pr_endpoint *endpoint, pr_store *store, pr__work *work,
                       pr__verdict *ret_verdict, pr_error *err);

/* ---- endpoint_batch.c ---- */

/* Try several in one unit with one commit. Verdicts: ACK, or WAIT for what is to be tried again,
   `alone` where something stood against it. The status tells what hindered all of them. */
pr_status pr__batch_try(pr_endpoint *endpoint, pr_store *store, pr__work *const *works,
                        uint32_t count, pr_error *err);

#endif
