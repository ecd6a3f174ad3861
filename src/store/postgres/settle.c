/*
 * The settle: record what became of a batch, and claim the next one in the same commit.
 *
 * Invariants: a slice is settled only while its token stands in the newest row of its lane,
 * whatever the clock says; what is not published is in rest or parked, in the commit that closes
 * the slice and only if that row was won; a commit whose outcome is not known is repeated at the
 * same place, never guessed.
 */
#include <string.h>

#include "base/error.h"
#include "base/fault.h"
#include "base/text.h"
#include "port/park.h"
#include "store/postgres/claim.h"
#include "store/postgres/parked.h"

#define ORIGIN    "postgres.settle"
#define TRIES_MAX 4 /* a place may be taken by a renewal of ours that came late */

typedef enum slice_fate { FATE_OPEN = 0, FATE_SETTLED, FATE_FENCED } slice_fate;

static pr_status add_parking(pr__pg_claimer *c, const pr__item *item, pr_error *err)
{
    if (c->parking_count == c->parking_capacity) {
        uint32_t wanted = c->parking_capacity ? c->parking_capacity * 2 : 16;
        pr__pg_parking *larger = pr__arena_alloc(c->batch->arena, wanted * sizeof *larger);
        if (!larger)
            return pr__fail_nomem(err, ORIGIN);
        if (c->parking_count > 0)
            memcpy(larger, c->parkings, c->parking_count * sizeof *larger);
        c->parkings = larger;
        c->parking_capacity = wanted;
    }
    pr__park park = pr__park_of(item, /* now= */ 0);
    c->parkings[c->parking_count++] = (pr__pg_parking){.lane = item->lane,
                                                       .log_id = item->log_id,
                                                       .state = park.state,
                                                       .attempts = park.attempts,
                                                       .deferred = park.deferred,
                                                       .failed = park.failed,
                                                       .delay_us = park.next_attempt_at,
                                                       .error = park.error};
    return PR_OK;
}

/* What becomes of one item of a slice that is ours. */
static pr_status settle_item(pr__pg_claimer *c, pr__pg_lane *lane, const pr__item *item,
                             pr_error *err)
{
    pr__pg_journal *head = &lane->head;
    pr__arena *arena = c->batch->arena;
    if (pr__result_kept(item->result)) {
        TRY(pr__pg_list_add(&head->rest, arena, item->log_id, err));
        return pr__pg_suspect_set(&head->suspects, arena, item->log_id, item->suspicion, err);
    }
    head->acked++;
    lane->released = false;
    return item->result == PR__RESULT_PUBLISHED ? PR_OK : add_parking(c, item, err);
}

/* Close one slice in the lane's head; the row is written with the claim's. */
static pr_status close_slice(pr__pg_claimer *c, const pr__batch *batch, uint32_t index,
                             pr_error *err)
{
    pr__pg_lane *lane = &c->lanes[batch->slices[index].lane];
    pr__pg_journal *head = &lane->head;
    lane->settled = true;
    lane->released = true;
    for (uint32_t i = 0; i < batch->item_count; i++)
        if (batch->items[i].slice == index)
            TRY(settle_item(c, lane, &batch->items[i], err));
    pr__pg_list_sort(&head->rest);
    head->ids = (pr__pg_list){0};
    head->open = false;
    head->lease_until_us = 0;
    if (head->rest.count == 0 || head->attempt < PR__PG_TAKEOVERS_MAX)
        head->attempt = 0;
    return PR_OK;
}

/* Close the slices whose token stands; those whose token does not are fenced. */
static pr_status close_slices(pr__pg_claimer *c, pr__batch *batch, slice_fate *fates, pr_error *err)
{
    for (uint32_t i = 0; i < batch->slice_count; i++) {
        if (fates[i] != FATE_OPEN)
            continue;
        const pr__slice *slice = &batch->slices[i];
        const pr__pg_journal *head = &c->lanes[slice->lane].head;
        if (!head->stands || strcmp(head->token, slice->token) != 0)
            fates[i] = FATE_FENCED;
        else if (!head->open)
            fates[i] = FATE_SETTLED; /* my own settle, whose outcome I did not learn */
        else
            TRY(close_slice(c, batch, i, err));
    }
    return PR_OK;
}

static pr_status open_claimer(pr__pg_store *store, const pr__batch *batch,
                              const pr__claim_options *next, pr__pg_claimer **ret_claimer,
                              pr_error *err)
{
    pr_error found = PR_ERROR_INIT;
    pr_status status = pr__pg_claimer_open(store, batch->reader, next, ret_claimer, &found);
    if (status == PR_E_NOT_FOUND && next) /* the reader is gone; what it held is settled still */
        return pr__pg_claimer_open(store, batch->reader, NULL, ret_claimer, err);
    pr__error_copy(err, &found);
    return status;
}

static pr_status close_and_choose(pr__pg_claimer *c, pr__batch *batch, slice_fate *fates,
                                  pr_error *err)
{
    TRY(close_slices(c, batch, fates, err));
    return c->opt ? pr__pg_claimer_choose(c, err) : PR_OK;
}

static bool owes(const pr__pg_claimer *c)
{
    for (uint32_t i = 0; i < c->lane_count; i++)
        if (c->lanes[i].settled || c->lanes[i].chosen.count > 0 || c->lanes[i].passed > 0)
            return true;
    return false;
}

/* One commit; slices whose place was taken stay open, to be looked at again. */
static pr_status settle_once(pr__pg_store *store, pr__batch *batch, const pr__claim_options *next,
                             slice_fate *fates, pr__batch **ret_next, pr_error *err)
{
    pr__pg_claimer *c = NULL;
    TRY(open_claimer(store, batch, next, &c, err));
    AUTO(pr__batch) next_batch = c->batch;
    pr_status status = close_and_choose(c, batch, fates, err);
    if (status != PR_OK || !owes(c)) {
        pr__pg_rollback(&store->conn);
        return status;
    }
    TRY(pr__pg_claimer_commit(c, "settle", err));
    for (uint32_t i = 0; i < batch->slice_count; i++)
        if (fates[i] == FATE_OPEN && c->lanes[batch->slices[i].lane].wrote)
            fates[i] = FATE_SETTLED;
    if (!c->opt || !pr__pg_claimer_found(c))
        return PR_OK;
    if (pr__pg_claimer_read(c, NULL) == PR_OK)
        *ret_next = TAKE(next_batch);
    else /* the settle is done and must not look failed; the claim is given up */
        pr__pg_give_back(store, next_batch);
    return PR_OK;
}

static bool any_open(const slice_fate *fates, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        if (fates[i] == FATE_OPEN)
            return true;
    return false;
}

static pr_status settle_log(pr__pg_store *store, pr__batch *batch, const pr__claim_options *next,
                            pr__settle_report *report, pr__batch **ret_next, pr_error *err)
{
    slice_fate *fates = pr__arena_alloc(batch->arena, (batch->slice_count + 1) * sizeof *fates);
    if (!fates)
        return pr__fail_nomem(err, ORIGIN);
    for (uint32_t i = 0; i < batch->slice_count; i++)
        batch->slices[i].fenced = false;
    pr_status status = settle_once(store, batch, next, fates, ret_next, err);
    for (int i = 1; i < TRIES_MAX && status == PR_OK && any_open(fates, batch->slice_count); i++)
        status = settle_once(store, batch, NULL, fates, ret_next, err);
    if (status != PR_OK && *ret_next) {
        pr__pg_give_back(store, *ret_next);
        *ret_next = pr__batch_free(*ret_next);
    }
    TRY(status);
    for (uint32_t i = 0; i < batch->slice_count; i++) {
        if (fates[i] == FATE_SETTLED)
            pr__settle_report_count_slice(report, batch, i);
        else
            pr__slice_fence(batch, i, report);
    }
    return PR_OK;
}

pr_status pr__pg_settle(pr_store *base, pr__batch *batch, const pr__claim_options *next,
                        pr__settle_report *ret_report, pr__batch **ret_next, pr_error *err)
{
    pr__pg_store *store = pr__pg_store_of(base);
    pr__settle_report report = {0};
    pr__batch *next_batch = NULL;
    TRY(pr__pg_ready(store, err));
    TRY(batch->slices ? settle_log(store, batch, next, &report, &next_batch, err)
                      : pr__pg_settle_parked(store, batch, &report, err));
    *ret_report = report;
    if (ret_next)
        *ret_next = next_batch;
    return PR_OK;
}

void pr__pg_give_back(pr__pg_store *store, pr__batch *batch)
{
    pr__settle_report report = {0};
    pr__batch *none = NULL;
    for (uint32_t i = 0; i < batch->item_count; i++)
        batch->items[i].result = PR__RESULT_OPEN;
    if (batch->slices && batch->slice_count > 0 && pr__pg_ready(store, NULL) == PR_OK &&
        settle_log(store, batch, NULL, &report, &none, NULL) != PR_OK)
        return; /* the lease runs out by itself */
}

/* A renewal is a row like any other: it carries everything. */
static void renew_slices(pr__pg_claimer *c, pr__batch *batch, bool *done)
{
    for (uint32_t i = 0; i < batch->slice_count; i++) {
        const pr__slice *slice = &batch->slices[i];
        pr__pg_lane *lane = &c->lanes[slice->lane];
        if (done[i] || slice->fenced)
            continue;
        lane->renewed =
            lane->head.stands && lane->head.open && strcmp(lane->head.token, slice->token) == 0;
        if (!lane->renewed)
            pr__slice_fence(batch, i, NULL);
    }
}

static pr_status renew_once(pr__pg_store *store, pr__batch *batch, int64_t lease_ms, bool *done,
                            bool *ret_all, pr_error *err)
{
    pr__pg_claimer *c = NULL;
    bool any = false;
    TRY(pr__pg_claimer_open(store, batch->reader, NULL, &c, err));
    AUTO(pr__batch) scratch = c->batch;
    scratch->lease_ms = lease_ms;
    renew_slices(c, batch, done);
    for (uint32_t i = 0; i < c->lane_count; i++)
        any = any || c->lanes[i].renewed;
    *ret_all = true;
    if (!any) {
        pr__pg_rollback(&store->conn);
        return PR_OK;
    }
    TRY(pr__pg_claimer_commit(c, "renew", err));
    for (uint32_t i = 0; i < batch->slice_count; i++) {
        const pr__pg_lane *lane = &c->lanes[batch->slices[i].lane];
        if (batch->slices[i].fenced || done[i])
            continue;
        done[i] = lane->wrote;
        *ret_all = *ret_all && done[i];
        if (done[i])
            batch->slices[i].seq = lane->head.seq;
    }
    return PR_OK;
}

pr_status pr__pg_renew(pr_store *base, pr__batch *batch, int64_t lease_ms, pr_error *err)
{
    pr__pg_store *store = pr__pg_store_of(base);
    TRY(pr__pg_ready(store, err));
    if (!batch->slices)
        return pr__pg_renew_parked(store, batch, lease_ms, err);
    bool *done = pr__arena_alloc(batch->arena, (batch->slice_count + 1) * sizeof *done);
    if (!done)
        return pr__fail_nomem(err, ORIGIN);
    bool all = false;
    for (int i = 0; i < TRIES_MAX && !all; i++)
        TRY(renew_once(store, batch, lease_ms, done, &all, err));
    for (uint32_t i = 0; i < batch->slice_count && !all; i++)
        if (!done[i] && !batch->slices[i].fenced)
            pr__slice_fence(batch, i, NULL);
    return PR_OK;
}
