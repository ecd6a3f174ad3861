/*
 * The renewer: one thread an endpoint, with its own connection, that keeps leases alive.
 *
 * Keeps: a lease is renewed by its token only; what could not be renewed in time, or was taken
 * over, is marked lost, which the handler sees; no lock is held during a call of the database, so
 * that taking and dropping a lease never waits for one.
 * Must not know: what the rows are for.
 */
#include "core/lease.h"

#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "base/text.h"
#include "base/thread.h"

#define ORIGIN    "lease"
#define LOOK_US   20000 /* the endpoint's clock is looked at so often */
#define RETRY_US  200000
#define ROUND_MAX 64 /* leases renewed in one transaction */

struct pr__renewer {
    pr_store *store; /* the endpoint's; only to be cloned */
    pr_store *own;
    const char *consumer;
    const pr_clock *clock;
    int64_t lease_us;
    pthread_mutex_t mutex; /* guards all below */
    pthread_cond_t some;
    pthread_t thread;
    bool started;
    bool ending;
    pr__lease *first;
};

static int64_t now_us(const pr__renewer *renewer)
{
    return renewer->clock->monotonic_us(renewer->clock->user);
}

/* ---- a round ---- */

/* Copy what is due into a batch; NULL when nothing is, or memory ran out. Locked. */
static pr__batch *collect_due(pr__renewer *renewer, int64_t now)
{
    pr__batch *batch = NULL;
    uint32_t count = 0;
    for (pr__lease *lease = renewer->first; lease; lease = lease->next) {
        bool over = lease->give_up_us > 0 && now >= lease->give_up_us;
        if (atomic_load(&lease->lost) || over || now < lease->renew_us || count == ROUND_MAX)
            continue;
        if (!batch)
            batch = pr__batch_new();
        if (batch && !batch->items)
            batch->items = pr__arena_alloc(batch->arena, ROUND_MAX * sizeof(pr__item));
        if (!batch || !batch->items)
            break;
        pr__item *item = &batch->items[count++];
        item->message.size = (uint32_t)sizeof item->message;
        item->message.id = pr__arena_strdup(batch->arena, lease->key->message_id);
        item->message.tenant = pr__arena_strdup(batch->arena, lease->key->tenant);
        pr__format(item->token, sizeof item->token, "%s", lease->token);
        lease->renew_us = now + RETRY_US; /* unless this round renews it */
        if (!item->message.id)
            count--;
    }
    if (batch)
        batch->item_count = count;
    return batch;
}

/* The token carries safety, the clock only progress: a lease that ran out may still be renewed,
   unless somebody took the row over. */
static void note_one(pr__renewer *renewer, const pr__item *item, pr_status status, int64_t began)
{
    for (pr__lease *lease = renewer->first; lease; lease = lease->next) {
        if (strcmp(lease->token, item->token) != 0)
            continue;
        bool over = status != PR_OK && began >= lease->until_us;
        if (item->fenced || over) {
            atomic_store(&lease->lost, true);
        } else if (status == PR_OK) {
            lease->until_us = began + renewer->lease_us;
            lease->renew_us = began + renewer->lease_us / 3;
        }
        return;
    }
}

static pr_status renew(pr__renewer *renewer, pr__batch *batch)
{
    pr_error err = PR_ERROR_INIT;
    if (!renewer->own)
        TRY(pr_store_clone(renewer->store, &renewer->own, &err));
    return pr__store_inbox_renew(renewer->own, renewer->consumer, batch, renewer->lease_us / 1000,
                                 &err);
}

static void round_of(pr__renewer *renewer)
{
    int64_t began = now_us(renewer);
    pr__batch *batch = collect_due(renewer, began);
    if (!batch)
        return;
    pthread_mutex_unlock(&renewer->mutex);
    pr_status status = batch->item_count > 0 ? renew(renewer, batch) : PR_OK;
    pthread_mutex_lock(&renewer->mutex);
    for (uint32_t i = 0; i < batch->item_count; i++)
        note_one(renewer, &batch->items[i], status, began);
    pr__batch_free(batch);
}

static void *renewer_run(void *user)
{
    pr__renewer *renewer = user;
    pthread_mutex_lock(&renewer->mutex);
    while (!renewer->ending) {
        if (!renewer->first) {
            pthread_cond_wait(&renewer->some, &renewer->mutex);
            continue;
        }
        round_of(renewer);
        if (renewer->ending)
            break;
        pr__cond_wait_us(&renewer->some, &renewer->mutex, LOOK_US);
    }
    pthread_mutex_unlock(&renewer->mutex);
    return NULL;
}

/* ---- from outside ---- */

pr_status pr__renewer_new(pr_store *store, const char *consumer, const pr_clock *clock,
                          int64_t lease_ms, pr__renewer **ret_renewer, pr_error *err)
{
    pr__renewer *renewer = pr__alloc(sizeof *renewer);
    if (!renewer)
        return pr__fail_nomem(err, ORIGIN);
    renewer->store = store;
    renewer->consumer = consumer;
    renewer->clock = clock;
    renewer->lease_us = lease_ms * 1000;
    pr__cond_init(&renewer->some);
    pthread_mutex_init(&renewer->mutex, NULL);
    *ret_renewer = renewer;
    return PR_OK;
}

void *pr__renewer_free(pr__renewer *renewer)
{
    if (!renewer)
        return NULL;
    pthread_mutex_lock(&renewer->mutex);
    renewer->ending = true;
    pthread_cond_signal(&renewer->some);
    pthread_mutex_unlock(&renewer->mutex);
    if (renewer->started)
        pthread_join(renewer->thread, NULL);
    pr_store_free(renewer->own);
    pthread_cond_destroy(&renewer->some);
    pthread_mutex_destroy(&renewer->mutex);
    return pr__free(renewer);
}

pr_status pr__renewer_keep(pr__renewer *renewer, pr__lease *lease, const pr__inbox_key *key,
                           const char *token, int64_t taken_us, int64_t give_up_us, pr_error *err)
{
    lease->key = key;
    lease->token = token;
    lease->until_us = taken_us + renewer->lease_us;
    lease->renew_us = taken_us + renewer->lease_us / 3;
    lease->give_up_us = give_up_us;
    atomic_store(&lease->lost, false);
    pr_status status = PR_OK;
    pthread_mutex_lock(&renewer->mutex);
    if (!renewer->started)
        renewer->started = pr__thread_start(&renewer->thread, renewer_run, renewer);
    if (renewer->started) {
        lease->prev = NULL;
        lease->next = renewer->first;
        if (lease->next)
            lease->next->prev = lease;
        renewer->first = lease;
        lease->kept = true;
        pthread_cond_signal(&renewer->some);
    } else {
        status = pr__fail(err, PR_E_NOMEM, ORIGIN, "no thread can be made to renew leases");
    }
    pthread_mutex_unlock(&renewer->mutex);
    return status;
}

void pr__renewer_drop(pr__renewer *renewer, pr__lease *lease)
{
    if (!lease->kept)
        return;
    pthread_mutex_lock(&renewer->mutex);
    if (lease->prev)
        lease->prev->next = lease->next;
    else
        renewer->first = lease->next;
    if (lease->next)
        lease->next->prev = lease->prev;
    lease->kept = false;
    pthread_mutex_unlock(&renewer->mutex);
}
