/*
 * An endpoint's retries: parked rows claimed in runs, kept, and given back.
 *
 * Keeps: one batch in hand at most; of its rows one at a time has its turn; what is not run goes
 * back uncharged; a row's lease is renewed while it waits for its turn.
 * Must not know: deliveries, whose turn it is.
 */
#include "base/error.h"
#include "base/fault.h"
#include "base/memory.h"
#include "core/endpoint.h"

#define RETRY_LOOK_MS 250 /* others may park for this endpoint, an operator may redrive */
#define RETRY_BATCH   16  /* parked rows claimed at a time */

static void set_retry(pr_endpoint *endpoint, pr__work *work)
{
    pthread_mutex_lock(&endpoint->hand_mutex);
    pr__work *before = endpoint->retry;
    endpoint->retry = work;
    pthread_mutex_unlock(&endpoint->hand_mutex);
    pr__work_free(before);
}

/* A worker has it, or its verdict was not looked at yet. */
static bool in_a_workers_hand(pr_endpoint *endpoint)
{
    pthread_mutex_lock(&endpoint->hand_mutex);
    bool busy = endpoint->retry && (endpoint->retry->state == PR__WORK_TRYING ||
                                    endpoint->retry->state == PR__WORK_TRIED);
    if (endpoint->retry && !busy)
        endpoint->retry->state = PR__WORK_LEAVING;
    pthread_mutex_unlock(&endpoint->hand_mutex);
    return busy;
}

/* As they were, uncharged. Where that cannot be written, the rows' leases bring them back. */
void pr__endpoint_release_retries(pr_endpoint *endpoint)
{
    if (!endpoint->retry_batch)
        return;
    if (in_a_workers_hand(endpoint)) {
        endpoint->retry_release = true;
        return;
    }
    pr_status ignored =
        pr__store_inbox_release(endpoint->store, endpoint->opt.id, endpoint->retry_batch, NULL);
    (void)ignored;
    set_retry(endpoint, NULL);
    endpoint->retry_batch = pr__batch_free(endpoint->retry_batch);
}

/* The next claimed row becomes the one whose turn it is; none left: the batch is done with. */
static pr_status next_retry(pr_endpoint *endpoint, pr_error *err)
{
    pr__batch *batch = endpoint->retry_batch;
    pr__work *work = NULL;
    set_retry(endpoint, NULL);
    if (endpoint->retry_next < batch->item_count) {
        const pr__item *item = &batch->items[endpoint->retry_next++];
        pr_status status = pr__work_from_row(endpoint, item, &work, err);
        if (status == PR_OK)
            set_retry(endpoint, work);
        else
            pr__endpoint_release_retries(endpoint);
        return status;
    }
    endpoint->retry_batch = pr__batch_free(batch);
    atomic_store(&endpoint->retry_look_us, 0); /* what was held behind them may be due now */
    return PR_OK;
}

/* Claim parked rows when one is due. */
pr_status pr__endpoint_look_for_retry(pr_endpoint *endpoint, int64_t now_us, pr_error *err)
{
    int64_t due_ms;
    endpoint->retry_look_us = now_us + RETRY_LOOK_MS * 1000;
    TRY(pr__store_inbox_due(endpoint->store, endpoint->opt.id, endpoint->opt.order, &due_ms, err));
    if (due_ms != 0) {
        if (due_ms > 0)
            endpoint->retry_look_us =
                now_us + (due_ms < RETRY_LOOK_MS ? due_ms : RETRY_LOOK_MS) * 1000;
        return PR_OK;
    }
    pr__inbox_claim_options opt = {.consumer = endpoint->opt.id,
                                   .owner = endpoint->opt.owner,
                                   .lease_ms = endpoint->opt.lease_ms,
                                   .batch_max = RETRY_BATCH,
                                   .order = endpoint->opt.order};
    PR_FAULT("endpoint.before_retry_claim");
    TRY(pr__store_inbox_claim(endpoint->store, &opt, &endpoint->retry_batch, err));
    PR_FAULT("endpoint.after_retry_claim");
    if (!endpoint->retry_batch)
        return PR_OK;
    endpoint->retry_next = 0;
    endpoint->retry_kept_us = now_us;
    return next_retry(endpoint, err);
}

static bool in_a_workers_try(pr_endpoint *endpoint)
{
    pthread_mutex_lock(&endpoint->hand_mutex);
    bool tried = endpoint->retry && endpoint->retry->state != PR__WORK_WAITING;
    pthread_mutex_unlock(&endpoint->hand_mutex);
    return tried;
}

/* Several rows wait their turn: their leases must not end meanwhile. A row that was lost shows
   when its turn comes. */
void pr__endpoint_keep_retries(pr_endpoint *endpoint, int64_t now_us)
{
    if (!endpoint->retry_batch ||
        now_us - endpoint->retry_kept_us < endpoint->opt.lease_ms * 1000 / 3)
        return;
    endpoint->retry_kept_us = now_us;
    /* the leased inbox renews what is tried by itself, and may have it in a transaction: waiting
       for that one would hold up all others */
    bool alone = endpoint->opt.inbox == PR_INBOX_LEASED && in_a_workers_try(endpoint);
    pr__item *tried = alone ? &endpoint->retry_batch->items[endpoint->retry_next - 1] : NULL;
    if (tried)
        tried->result = PR__RESULT_PUBLISHED;
    pr_status ignored = pr__store_inbox_renew(endpoint->store, endpoint->opt.id,
                                              endpoint->retry_batch, endpoint->opt.lease_ms, NULL);
    (void)ignored;
    if (tried)
        tried->result = PR__RESULT_OPEN;
}

pr_status pr__endpoint_after_retry(pr_endpoint *endpoint, pr__verdict verdict, pr_error *err)
{
    bool release = endpoint->retry_release;
    bool again = verdict == PR__WORK_WAIT && !release;
    endpoint->retry_release = false;
    pr__endpoint_set_state(endpoint, endpoint->retry, again ? PR__WORK_WAITING : PR__WORK_LEAVING);
    if (release) {
        pr__endpoint_release_retries(endpoint);
        return PR_OK;
    }
    switch (verdict) {
    case PR__WORK_WAIT:
        return PR_OK;
    case PR__WORK_ACK:
        endpoint->pauses = 0;
        return next_retry(endpoint, err);
    case PR__WORK_REJECT: /* no transport to reject to: the row stays until its lease ends */
        return next_retry(endpoint, err);
    case PR__WORK_GIVE_BACK:
    case PR__WORK_TROUBLE:
        pr__endpoint_release_retries(endpoint);
        return PR_OK;
    }
    return PR_OK;
}
