/*
 * The claim: read the newest rows, choose, write the next rows, commit; the bodies are read after
 * that (claim_read.c).
 *
 * Invariants: nothing is chosen that another token holds with a live lease; the next row of a lane
 * goes in at the place behind the one that was read, or not at all; a commit whose outcome is not
 * known is repeated, and waits for the first at the very same place; an idle claim writes nothing.
 */
#include "store/postgres/claim.h"

#include <string.h>

#include "base/assert.h"
#include "base/error.h"
#include "base/fault.h"
#include "base/text.h"
#include "base/time.h"
#include "port/state.h"
#include "store/postgres/reader.h"

#define ORIGIN         "postgres.claim"
#define TRIES_MAX      3     /* of a claim that lost all its lanes to others */
#define STAY_ROUNDS    8     /* with the same lanes, after some were lost to others */
#define REPEAT_WAIT_US 50000 /* before a commit of unknown outcome is tried again */

static pr_status new_claimer(pr__pg_store *store, int64_t reader, const pr__claim_options *opt,
                             pr__pg_claimer **ret_claimer, pr_error *err)
{
    AUTO(pr__batch) batch = pr__batch_new();
    pr__pg_claimer *c = batch ? pr__arena_alloc(batch->arena, sizeof *c) : NULL;
    if (!c)
        return pr__fail_nomem(err, ORIGIN);
    c->lane_count = store->settings.lanes;
    c->lanes = pr__arena_alloc(batch->arena, c->lane_count * sizeof *c->lanes);
    c->entries = pr__arena_alloc(batch->arena, c->lane_count * sizeof *c->entries);
    if (!c->lanes || !c->entries)
        return pr__fail_nomem(err, ORIGIN);
    for (uint32_t lane = 0; lane < c->lane_count; lane++)
        c->lanes[lane].lane = lane;
    c->store = store;
    c->opt = opt;
    c->last_lane = UINT32_MAX;
    if (opt) {
        pr__pg_token(&store->base, c->token);
        c->count_left = opt->batch_max;
        c->bytes_left = opt->bytes_max;
        batch->lease_ms = opt->lease_ms;
    }
    batch->reader = reader;
    c->batch = TAKE(batch);
    *ret_claimer = c;
    return PR_OK;
}

static pr_status load(pr__pg_claimer *c, bool begins, pr_error *err)
{
    char order[8];
    pr__arena *arena = c->batch->arena;
    pr__pg_journal *heads = pr__arena_alloc(arena, c->lane_count * sizeof *heads);
    if (!heads)
        return pr__fail_nomem(err, ORIGIN);
    TRY(pr__pg_journal_heads(&c->store->conn, begins, c->batch->reader, c->lane_count,
                             /* whole= */ !c->opt, arena, heads, &c->now_us, order, err));
    for (uint32_t i = 0; i < c->lane_count; i++)
        c->lanes[i].head = heads[i];
    c->batch->order = pr__order_parse(order);
    c->batch->claimed_at_us = c->now_us;
    if (!c->opt)
        return PR_OK;
    if (!order[0])
        return pr__reader_gone(c->batch->reader, ORIGIN, err);
    return pr__pg_reader_filter(c->store, c->batch->reader, err);
}

static pr_status begin(pr__pg_store *store, int64_t reader, const pr__claim_options *opt,
                       bool begins, pr__pg_claimer **ret_claimer, pr_error *err)
{
    pr__pg_claimer *c = NULL;
    TRY(pr__pg_settings_load(store, err));
    TRY(new_claimer(store, reader, opt, &c, err));
    pr_assert(c);
    pr_status status = load(c, begins, err);
    if (status == PR_OK)
        *ret_claimer = c;
    else
        pr__batch_free(c->batch);
    return status;
}

pr_status pr__pg_claimer_begin(pr__pg_store *store, int64_t reader, const pr__claim_options *opt,
                               pr__pg_claimer **ret_claimer, pr_error *err)
{
    return begin(store, reader, opt, /* begins= */ false, ret_claimer, err);
}

/* Transaction ids of another cluster stand in some row. */
static bool is_foreign(const pr__pg_claimer *c)
{
    for (uint32_t i = 0; i < c->lane_count; i++)
        if (c->lanes[i].head.stands && c->lanes[i].head.system_id != c->store->settings.system_id)
            return true;
    return false;
}

pr_status pr__pg_claimer_open(pr__pg_store *store, int64_t reader, const pr__claim_options *opt,
                              pr__pg_claimer **ret_claimer, pr_error *err)
{
    for (bool rebased = false;; rebased = true) {
        bool known = store->settings.generation == store->conn.generation;
        if (!known) /* they are read in the transaction */
            TRY(pr__pg_begin_claim(&store->conn, /* writes= */ true, err));
        pr_status status = begin(store, reader, opt, /* begins= */ known, ret_claimer, err);
        if (status == PR_OK && (rebased || !is_foreign(*ret_claimer)))
            return PR_OK;
        pr__pg_rollback(&store->conn);
        TRY(status);
        pr__batch_free((*ret_claimer)->batch);
        TRY(pr__pg_rebase(store, reader, err));
    }
}

/* ---- writing ---- */

static const char *kind_of(const pr__pg_lane *lane)
{
    if (lane->chosen.count > 0 || lane->passed > 0)
        return "claim";
    if (lane->renewed)
        return "renew";
    return lane->released ? "release" : "settle";
}

/* Make the head of a lane that chose what the next row is to be. */
static void prepare(pr__pg_claimer *c, pr__pg_lane *lane)
{
    pr__pg_journal *head = &lane->head;
    bool chose = lane->chosen.count > 0;
    head->ids = lane->chosen;
    head->passed += lane->passed;
    if (chose || !lane->settled) /* who settled in this commit must still find its own token */
        memcpy(head->token, c->token, sizeof head->token);
    if (c->opt->owner)
        pr__format(head->owner, sizeof head->owner, "%s", c->opt->owner);
    if (!chose && head->rest.count == 0)
        head->attempt = 0;
}

static void prepare_entries(pr__pg_claimer *c)
{
    c->entry_count = 0;
    for (uint32_t i = 0; i < c->lane_count; i++) {
        pr__pg_lane *lane = &c->lanes[i];
        bool chose = lane->chosen.count > 0 || lane->passed > 0;
        lane->wrote = false;
        if (!chose && !lane->settled && !lane->renewed)
            continue;
        if (chose)
            prepare(c, lane);
        lane->entry = c->entry_count;
        bool open = lane->chosen.count > 0 || lane->renewed;
        c->entries[c->entry_count++] =
            (pr__pg_entry){.lane = lane->lane,
                           .kind = kind_of(lane),
                           .row = &lane->head,
                           .lease_ms = open ? c->batch->lease_ms : -1,
                           .xmax = chose && lane->source == PR__PG_SOURCE_LATE ? lane->xmax : 0};
    }
}

static pr__pg_writing writing_of(const pr__pg_claimer *c)
{
    return (pr__pg_writing){.reader = c->batch->reader,
                            .system_id = c->store->settings.system_id,
                            .entries = c->entries,
                            .count = c->entry_count,
                            .parkings = c->parkings,
                            .parking_count = c->parking_count};
}

/* The same rows again, in a transaction of their own, on another connection: they wait for the
   first ones if those are still on their way; what stands there then is ours, or another's. */
static pr_status write_again(pr__pg_claimer *c, pr_error *err)
{
    int sent = 0;
    int done = 0;
    pr__pg_conn *conn = &c->store->conn;
    int64_t system_id = c->store->settings.system_id;
    TRY(pr__pg_ready(c->store, err));
    TRY(pr__pg_begin_claim(conn, /* writes= */ true, err));
    pr_status status = pr__pg_settings_load(c->store, err);
    if (status == PR_OK && c->store->settings.system_id != system_id)
        status = pr__fail_retry(err, PR_E_BACKEND, PR_RETRY_UNKNOWN, ORIGIN,
                                "the server is another one than before");
    pr__pg_writing writing = writing_of(c);
    if (status == PR_OK)
        status = pr__pg_journal_write(conn, &writing, NULL, 0, &sent, &done, err);
    for (uint32_t i = 0; i < c->entry_count && status == PR_OK; i++)
        if (!c->entries[i].won)
            status = pr__pg_journal_is_mine(conn, c->batch->reader, &c->entries[i],
                                            &c->entries[i].won, err);
    return pr__pg_end(conn, status, err);
}

/* The answer to a commit was lost: until it is known. The server may be on its way back. */
static pr_status commit_again(pr__pg_claimer *c, const pr_error *why, pr_error *err)
{
    int64_t until_us = pr__monotonic_us() + c->store->conn.limits.busy_ms * 1000;
    for (;;) {
        if (write_again(c, NULL) == PR_OK)
            return PR_OK;
        if (pr__monotonic_us() >= until_us)
            break;
        pr__sleep_us(REPEAT_WAIT_US);
    }
    pr__error_copy(err, why);
    if (err) {
        err->retry = PR_RETRY_UNKNOWN;
        pr__error_context(err, "commit");
    }
    return why->status;
}

/* What stands behind the write in one round trip: its commit, and the reading of what it claims. */
enum { AFTER_COMMIT, AFTER_BEGIN, AFTER_READ = AFTER_BEGIN + PR__PG_BEGIN_CALLS, AFTER_END, AFTER };

/* Write, commit, and ask for what can be read already. */
static pr_status write_and_commit(pr__pg_claimer *c, pr__pg_reading *reading, pr_error *err)
{
    int sent = 0;
    int done = 0;
    char text[PR__PG_BEGIN_SIZE];
    pr__pg_conn *conn = &c->store->conn;
    pr__pg_writing writing = writing_of(c);
    pr__pg_call after[AFTER] = {
        [AFTER_COMMIT] = {.sql = PR__PG_COMMIT}, [AFTER_END] = {.sql = PR__PG_COMMIT}};
    pr__pg_begin_calls(conn, /* writes= */ false, text, &after[AFTER_BEGIN]);
    bool reads = pr__pg_reading_call(reading, &after[AFTER_READ]);
    pr_error found = PR_ERROR_INIT;
    pr_status status =
        pr__pg_journal_write(conn, &writing, after, reads ? AFTER : 1, &sent, &done, &found);
    bool committed = done > 1 + AFTER_COMMIT;
    if (committed)
        status = pr__pg_committed(after[AFTER_COMMIT].result, err);
    else if (sent > 1 && !conn->pg)
        status = commit_again(c, &found, err);
    else
        pr__error_copy(err, &found);
    if (committed && status == PR_OK && done > 1 + AFTER_READ) {
        reading->result = after[AFTER_READ].result;
        after[AFTER_READ].result = NULL;
    }
    pr__pg_rollback(conn); /* what failed behind the commit is done again */
    pr__pg_calls_done(after, AFTER);
    return status;
}

/* Another relay wanted the same lanes at the same time, and would so again and again: claims begin
   somewhere else, and for some rounds with the lanes that they settle, which nobody else can have
   seen free. */
static void part(pr__pg_store *store)
{
    uint8_t where = 0;
    store->base.random->fill(store->base.random->user, &where, sizeof where);
    store->next_lane = where;
    store->stay_rounds = STAY_ROUNDS;
}

/* What has become of each lane. */
static void note_won(pr__pg_claimer *c)
{
    bool lost = false;
    bool any = false;
    for (uint32_t i = 0; i < c->lane_count; i++) {
        pr__pg_lane *lane = &c->lanes[i];
        bool owed = lane->chosen.count > 0 || lane->passed > 0 || lane->settled || lane->renewed;
        lane->wrote = owed && c->entries[lane->entry].won;
        lost = lost || (owed && !lane->wrote);
        any = any || lane->wrote;
        if (lane->wrote)
            lane->head.seq++;
        else
            lane->chosen.count = lane->scattered = lane->passed = 0;
    }
    c->store->own_writes += any;
    if (lost)
        part(c->store);
}

pr_status pr__pg_claimer_commit(pr__pg_claimer *c, const char *fault, pr_error *err)
{
    (void)fault;
    char before[64];
    char after[64];
    pr__format(before, sizeof before, "store.before_%s_commit", fault);
    pr__format(after, sizeof after, "store.after_%s_commit", fault);
    prepare_entries(c);
    pr__pg_reading reading;
    pr_status status = pr__pg_reading_init(&reading, c, err);
    if (status == PR_OK) {
        PR_FAULT(before);
        status = write_and_commit(c, &reading, err);
        PR_FAULT(after);
    } else {
        pr__pg_rollback(&c->store->conn);
    }
    if (status == PR_OK) {
        note_won(c);
        pr__pg_reading_take(&reading, c);
    }
    pr__pg_reading_done(&reading);
    return status;
}

/* ---- the method ---- */

/* One try. *ret_lost: there was something, and others took it first. */
static pr_status claim_once(pr__pg_store *store, const pr__claim_options *opt,
                            pr__batch **ret_batch, bool *ret_lost, pr_error *err)
{
    pr__pg_claimer *c = NULL;
    *ret_lost = false;
    TRY(pr__pg_claimer_open(store, opt->reader, opt, &c, err));
    AUTO(pr__batch) batch = c->batch;
    pr_status status = pr__pg_claimer_choose(c, err);
    if (status != PR_OK || !pr__pg_claimer_found(c)) {
        pr__pg_rollback(&store->conn);
        return status;
    }
    TRY(pr__pg_claimer_commit(c, "claim", err));
    *ret_lost = !pr__pg_claimer_found(c);
    if (*ret_lost)
        return PR_OK;
    status = pr__pg_claimer_read(c, err);
    if (status != PR_OK) {
        pr__pg_give_back(store, c->batch);
        return status;
    }
    *ret_batch = TAKE(batch);
    return PR_OK;
}

pr_status pr__pg_claim(pr_store *base, const pr__claim_options *opt, pr__batch **ret_batch,
                       pr_error *err)
{
    pr__pg_store *store = pr__pg_store_of(base);
    pr__batch *batch = NULL;
    bool lost = true;
    TRY(pr__pg_ready(store, err));
    for (int i = 0; i < TRIES_MAX && lost; i++)
        TRY(claim_once(store, opt, &batch, &lost, err));
    *ret_batch = batch;
    return PR_OK;
}
