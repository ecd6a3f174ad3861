/*
 * An endpoint with several workers: threads that handle, each with a connection and a scope of its
 * own, and the endpoint's thread, which receives, settles and keeps what is in hand.
 *
 * Keeps: a message is one worker's at a time; only the endpoint's thread uses the transport and
 * changes what is in hand; no lock is held while a message is handled; at stop what is handled is
 * waited for, and told to give up when the grace is over.
 * Must not know: the inbox's steps, how keys are ordered.
 */
#include "base/error.h"
#include "base/fault.h"
#include "base/memory.h"
#include "base/text.h"
#include "base/thread.h"
#include "core/endpoint.h"

#define WAIT_MIN_US  1000  /* between two looks at the transport while workers are busy */
#define STOP_LOOK_US 20000 /* how soon a stop is seen */
#define ASK_MAX_US   20000 /* the transport is asked as often at least, while there is room */

/* ---- a worker ---- */

/* What is to be tried next, and how many; 0 = nothing. Locked. */
static uint32_t pick(pr_endpoint *endpoint, pr__work *ret_works[PR_ENDPOINT_BATCH_MAX])
{
    if (endpoint->draining)
        return 0;
    int64_t now_us = pr__endpoint_now_us(endpoint);
    uint32_t index = pr__endpoint_next_ready(endpoint, now_us);
    bool have_delivery = index < endpoint->work_count;
    bool retry =
        pr__endpoint_retry_ready(endpoint, now_us) && (endpoint->retry_turn || !have_delivery);
    if (!retry && !have_delivery)
        return 0;
    pr__endpoint_count_turn(endpoint, retry);
    if (!retry)
        return pr__endpoint_pick_batch(endpoint, index, now_us, ret_works);
    ret_works[0] = endpoint->retry;
    return 1;
}

static pr_status open_store(pr__worker *worker, pr_error *err)
{
    pr_endpoint *endpoint = worker->endpoint;
    if (!worker->store)
        TRY(pr_store_clone(endpoint->store, &worker->store, err));
    /* follow-ups wake the same relay, whoever commits them */
    worker->store->doorbell = endpoint->store->doorbell;
    worker->store->doorbell_user = endpoint->store->doorbell_user;
    return PR_OK;
}

static void try_by(pr__worker *worker, pr__work *work)
{
    pr_endpoint *endpoint = worker->endpoint;
    pr__verdict verdict = PR__WORK_TROUBLE;
    pr_error local = PR_ERROR_INIT;
    pr_status status = open_store(worker, &local);
    if (status == PR_OK)
        status = pr__work_try(endpoint, worker->store, work, &verdict, &local);
    if (status == PR_E_BACKEND) /* a handle that met an error may be good for nothing any more */
        worker->store = pr_store_free(worker->store);
    work->verdict = verdict;
    pr__format(work->trouble, sizeof work->trouble, "%s", local.message);
}

/* What does not go together is tried again one by one, and tells then what was wrong. */
static void try_batch_by(pr__worker *worker, pr__work *const *works, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        works[i]->verdict = PR__WORK_WAIT;
    pr_status status = open_store(worker, NULL);
    if (status == PR_OK)
        status = pr__batch_try(worker->endpoint, worker->store, works, count, NULL);
    else
        works[0]->alone = true;
    if (status == PR_E_BACKEND)
        worker->store = pr_store_free(worker->store);
}

static void *worker_run(void *user)
{
    pr__worker *worker = user;
    pr_endpoint *endpoint = worker->endpoint;
    atomic_store(&worker->self, pthread_self());
    atomic_store(&worker->begun, true);
    pthread_mutex_lock(&endpoint->hand_mutex);
    while (!endpoint->ending) {
        pr__work *works[PR_ENDPOINT_BATCH_MAX];
        uint32_t count = pick(endpoint, works);
        if (count == 0) {
            pthread_cond_wait(&endpoint->to_try, &endpoint->hand_mutex);
            continue;
        }
        works[0]->state = PR__WORK_TRYING;
        endpoint->busy_count++;
        pthread_mutex_unlock(&endpoint->hand_mutex);
        if (count > 1)
            try_batch_by(worker, works, count);
        else
            try_by(worker, works[0]);
        pthread_mutex_lock(&endpoint->hand_mutex);
        if (count > 1)
            pr__endpoint_end_batch(endpoint, works, count);
        else
            works[0]->state = PR__WORK_TRIED;
        endpoint->busy_count--;
        pthread_cond_signal(&endpoint->tried);
    }
    pthread_mutex_unlock(&endpoint->hand_mutex);
    worker->store = pr_store_free(worker->store);
    return NULL;
}

/* ---- the endpoint's thread ---- */

/* One whose verdict stands: its index, or work_count; *ret_retry: it is the retry instead. */
static uint32_t find_tried(pr_endpoint *endpoint, bool *ret_retry)
{
    pthread_mutex_lock(&endpoint->hand_mutex);
    *ret_retry = endpoint->retry && endpoint->retry->state == PR__WORK_TRIED;
    uint32_t index = 0;
    while (index < endpoint->work_count && endpoint->works[index]->state != PR__WORK_TRIED)
        index++;
    pthread_mutex_unlock(&endpoint->hand_mutex);
    return index;
}

static void collect_one(pr_endpoint *endpoint, bool retry, uint32_t index)
{
    pr__work *work = retry ? endpoint->retry : endpoint->works[index];
    pr__verdict verdict = work->verdict;
    char trouble[sizeof work->trouble];
    pr__format(trouble, sizeof trouble, "%s", work->trouble);
    pr_error local = PR_ERROR_INIT;
    pr_status status = retry ? pr__endpoint_after_retry(endpoint, verdict, &local)
                             : pr__endpoint_after_delivery(endpoint, index, verdict, &local);
    (void)status; /* what could not be settled comes again */
    if (verdict == PR__WORK_TROUBLE)
        pr__endpoint_pause_for(endpoint, trouble);
}

/* Settle all that was tried; how many. */
static uint32_t collect(pr_endpoint *endpoint)
{
    uint32_t count = 0;
    for (;; count++) {
        bool retry = false;
        uint32_t index = find_tried(endpoint, &retry);
        if (!retry && index == endpoint->work_count)
            break;
        collect_one(endpoint, retry, index);
    }
    return count;
}

static void wake_workers(pr_endpoint *endpoint)
{
    pthread_mutex_lock(&endpoint->hand_mutex);
    pthread_cond_broadcast(&endpoint->to_try);
    pthread_mutex_unlock(&endpoint->hand_mutex);
}

/* Wait until a worker is done with one, or so long. */
static void wait_tried(pr_endpoint *endpoint, int64_t wait_us)
{
    pthread_mutex_lock(&endpoint->hand_mutex);
    bool tried = endpoint->retry && endpoint->retry->state == PR__WORK_TRIED;
    for (uint32_t i = 0; i < endpoint->work_count && !tried; i++)
        tried = endpoint->works[i]->state == PR__WORK_TRIED;
    if (!tried)
        pr__cond_wait_us(&endpoint->tried, &endpoint->hand_mutex, wait_us);
    pthread_mutex_unlock(&endpoint->hand_mutex);
}

static bool nothing_in_hand(pr_endpoint *endpoint)
{
    pthread_mutex_lock(&endpoint->hand_mutex);
    bool nothing = endpoint->work_count == 0 && endpoint->busy_count == 0 && !endpoint->retry;
    pthread_mutex_unlock(&endpoint->hand_mutex);
    return nothing;
}

/* Of the deliveries in hand those that a worker may take now, counted up to `enough`. */
static uint32_t count_ready(pr_endpoint *endpoint, int64_t now_us, uint32_t enough)
{
    uint32_t count = 0;
    pthread_mutex_lock(&endpoint->hand_mutex);
    for (uint32_t i = 0; i < endpoint->work_count && count < enough; i++)
        count += pr__endpoint_is_ready(endpoint, i, now_us) ? 1 : 0;
    pthread_mutex_unlock(&endpoint->hand_mutex);
    return count;
}

/* Is it time to ask the transport? To ask costs a look into its database, or a system call: so not
   for each place that gets free, but for half of them, and at once when workers are about to have
   nothing. What had nothing more to give is asked for the latter only. */
static bool hand_is_low(pr_endpoint *endpoint, int64_t now_us)
{
    uint32_t batch = endpoint->opt.batch_max > 1 ? endpoint->opt.batch_max : 1;
    uint32_t few = 2 * endpoint->worker_count * batch;
    uint32_t half = (endpoint->opt.prefetch + 1) / 2;
    if (now_us - endpoint->asked_at_us >= ASK_MAX_US)
        return true;
    if (few > half)
        few = half;
    uint32_t enough = endpoint->dry ? few : half;
    return count_ready(endpoint, now_us, enough) < enough;
}

static pr_status look_for_retry(pr_endpoint *endpoint, int64_t now_us, pr_error *err)
{
    if (endpoint->retry_batch || now_us < atomic_load(&endpoint->retry_look_us))
        return PR_OK;
    pr_error local = PR_ERROR_INIT;
    pr_status status = pr__endpoint_look_for_retry(endpoint, now_us, &local);
    if (status == PR_OK || status == PR_E_BUSY)
        return PR_OK;
    pr__endpoint_pause_for(endpoint, local.message);
    pr__error_copy(err, &local);
    return status;
}

/* One round: what came back, what is due, what is new. How long to wait for a worker is doubled
   while nothing happens, so that slow handlers cost no looks at the transport. */
static pr_status round_of(pr_endpoint *endpoint, int64_t *wait_us, pr_error *err)
{
    uint32_t collected = collect(endpoint);
    int64_t now_us = pr__endpoint_now_us(endpoint);
    int64_t pause_ms = 0;
    size_t received = 0;
    bool may = false, reached = false;
    TRY(pr__endpoint_may_work(endpoint, &may, &pause_ms, err));
    if (!may) {
        *wait_us = pause_ms * 1000 < STOP_LOOK_US ? pause_ms * 1000 + 1 : STOP_LOOK_US;
        return PR_OK;
    }
    pr__endpoint_keep_retries(endpoint, now_us);
    TRY(pr__endpoint_keep(endpoint, now_us, err));
    TRY(look_for_retry(endpoint, now_us, err));
    if (collected > 0)
        pr__endpoint_maintain(endpoint);
    wake_workers(endpoint);
    TRY(pr__endpoint_reach_transport(endpoint, now_us, &reached, err));
    bool none = nothing_in_hand(endpoint);
    int64_t idle_ms = pr__endpoint_idle_ms(endpoint, now_us);
    if (reached && hand_is_low(endpoint, now_us)) {
        endpoint->asked_at_us = now_us;
        TRY(pr__endpoint_receive(endpoint, none ? idle_ms : 0, &received, err));
        endpoint->dry = received == 0;
    }
    if (received > 0)
        wake_workers(endpoint);
    int64_t most_us = idle_ms * 1000 < STOP_LOOK_US ? idle_ms * 1000 : STOP_LOOK_US;
    *wait_us = collected > 0 || received > 0 ? WAIT_MIN_US : *wait_us * 2;
    if (*wait_us > most_us)
        *wait_us = most_us;
    if (received > 0 || (none && reached))
        *wait_us = 0;
    return PR_OK;
}

/* What waits goes back; what is handled is waited for. */
static void drain(pr_endpoint *endpoint)
{
    int64_t until_us = pr__endpoint_now_us(endpoint) + endpoint->opt.stop_grace_ms * 1000;
    pthread_mutex_lock(&endpoint->hand_mutex);
    endpoint->draining = true;
    pthread_mutex_unlock(&endpoint->hand_mutex);
    (void)collect(endpoint);
    pr__endpoint_give_back_all(endpoint);
    for (;;) {
        pthread_mutex_lock(&endpoint->hand_mutex);
        bool busy = endpoint->busy_count > 0;
        pthread_mutex_unlock(&endpoint->hand_mutex);
        (void)collect(endpoint);
        if (!busy)
            break;
        int64_t now_us = pr__endpoint_now_us(endpoint);
        if (now_us >= until_us)
            atomic_store(&endpoint->cancelling, true);
        pr__endpoint_keep_retries(endpoint, now_us);
        pr_status ignored = pr__endpoint_keep(endpoint, now_us, NULL);
        (void)ignored;
        wait_tried(endpoint, STOP_LOOK_US);
    }
    pr__endpoint_give_back_all(endpoint); /* what was told to wait */
}

static uint32_t start_workers(pr_endpoint *endpoint)
{
    uint32_t started = 0;
    endpoint->draining = endpoint->ending = false;
    endpoint->workers = pr__alloc_array(endpoint->opt.concurrency, sizeof *endpoint->workers);
    if (!endpoint->workers)
        return 0;
    pthread_mutex_lock(&endpoint->hand_mutex);
    for (uint32_t i = 0; i < endpoint->opt.concurrency; i++) {
        pr__worker *worker = &endpoint->workers[started];
        worker->endpoint = endpoint;
        started += pr__thread_start(&worker->thread, worker_run, worker) ? 1 : 0;
    }
    endpoint->worker_count = started;
    pthread_mutex_unlock(&endpoint->hand_mutex);
    return started;
}

static void end_workers(pr_endpoint *endpoint)
{
    pthread_mutex_lock(&endpoint->hand_mutex);
    endpoint->ending = true;
    pthread_cond_broadcast(&endpoint->to_try);
    pthread_mutex_unlock(&endpoint->hand_mutex);
    for (uint32_t i = 0; i < endpoint->worker_count; i++)
        pthread_join(endpoint->workers[i].thread, NULL);
    pthread_mutex_lock(&endpoint->hand_mutex);
    endpoint->worker_count = 0;
    pthread_mutex_unlock(&endpoint->hand_mutex);
    endpoint->workers = pr__free(endpoint->workers);
}

bool pr__endpoint_on_own_thread(pr_endpoint *endpoint)
{
    pthread_t self = pthread_self();
    bool own = pthread_equal(atomic_load(&endpoint->inside), self) != 0;
    pthread_mutex_lock(&endpoint->hand_mutex);
    for (uint32_t i = 0; i < endpoint->worker_count && !own; i++) {
        pr__worker *worker = &endpoint->workers[i];
        own = atomic_load(&worker->begun) && pthread_equal(atomic_load(&worker->self), self);
    }
    pthread_mutex_unlock(&endpoint->hand_mutex);
    return own;
}

bool pr__endpoint_run_workers(pr_endpoint *endpoint)
{
    /* what was received by steps before lies in the transport's memory: not for other threads */
    pr__endpoint_give_back_all(endpoint);
    if (start_workers(endpoint) == 0) {
        endpoint->workers = pr__free(endpoint->workers);
        return false;
    }
    int64_t wait_us = WAIT_MIN_US;
    while (!atomic_load(&endpoint->stopping)) {
        pr_status status = round_of(endpoint, &wait_us, NULL);
        if (status != PR_OK)
            wait_us = STOP_LOOK_US; /* the observer was told; an endpoint goes on */
        if (wait_us > 0)
            wait_tried(endpoint, wait_us);
        if (wait_us < WAIT_MIN_US)
            wait_us = WAIT_MIN_US;
    }
    drain(endpoint);
    end_workers(endpoint);
    return true;
}
