/*
 * A store of the test's own: it keeps what a unit enqueues in memory and answers as it is told.
 *
 * For tests of core alone; what a database does is shown by the contract suites.
 */
#ifndef PR_TESTS_FAKE_STORE_H
#define PR_TESTS_FAKE_STORE_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include <postroom/unit.h>

#include "base/error.h"
#include "base/memory.h"
#include "port/store.h"
#include "support/test.h"

#define FAKE_ROWS_MAX 64

typedef struct fake_row {
    pr_message *message;
    bool caller_id;
} fake_row;

typedef struct fake_store {
    pr_store base;
    /* what was done */
    fake_row rows[FAKE_ROWS_MAX]; /* of the transaction in hand, then of the committed one */
    size_t row_count;
    size_t committed_count;
    size_t rollbacks;
    size_t commits;
    size_t units_open;
    size_t rings;
    size_t enqueued_seen; /* by the observer */
    /* what to answer */
    bool dead; /* somebody else ended the transaction */
    pr_status enqueue_status;
    pr_retry enqueue_retry;
    bool enqueue_duplicate;
    pr_status commit_status;
    pr_outcome commit_outcome;
    int64_t now_us;
    uint8_t next_random;
    pr_clock clock;
    pr_random random;
    pr_observer observer;
} fake_store;

static inline fake_store *fake_of(pr_unit *unit)
{
    return (fake_store *)(void *)unit->store;
}

static inline void fake_drop_rows(fake_store *fake, size_t from)
{
    for (size_t i = from; i < fake->row_count; i++)
        pr_message_free(fake->rows[i].message);
    fake->row_count = from;
}

static inline pr_status fake_live(pr_unit *unit, pr_error *err)
{
    return fake_of(unit)->dead ? pr__fail(err, PR_E_STATE, "fake", "no transaction is open")
                               : PR_OK;
}

static inline pr_status fake_enqueue(pr_unit *unit, pr__enqueue *messages, size_t count,
                                     pr_error *err)
{
    fake_store *fake = fake_of(unit);
    if (fake->enqueue_status != PR_OK)
        return pr__fail_retry(err, fake->enqueue_status, fake->enqueue_retry, "fake",
                              "told to fail");
    for (size_t i = 0; i < count; i++) {
        messages[i].duplicate = fake->enqueue_duplicate;
        if (fake->enqueue_duplicate || fake->row_count == FAKE_ROWS_MAX)
            continue;
        fake_row *row = &fake->rows[fake->row_count++];
        row->caller_id = messages[i].caller_id;
        TRY(pr_message_copy(messages[i].message, &row->message, err));
    }
    return PR_OK;
}

static inline pr_status fake_commit(pr_unit *unit, pr_outcome *ret_outcome, pr_error *err)
{
    fake_store *fake = fake_of(unit);
    fake->commits++;
    *ret_outcome = PR_OUTCOME_UNKNOWN;
    TRY(fake_live(unit, err));
    *ret_outcome = fake->commit_outcome;
    if (fake->commit_outcome == PR_OUTCOME_COMMITTED)
        fake->committed_count = fake->row_count;
    if (fake->commit_status != PR_OK)
        return pr__fail(err, fake->commit_status, "fake", "commit was told to fail");
    return PR_OK;
}

static inline pr_status fake_rollback(pr_unit *unit, pr_error *err)
{
    fake_store *fake = fake_of(unit);
    fake->rollbacks++;
    fake_drop_rows(fake, fake->committed_count);
    (void)err;
    return PR_OK;
}

static inline void fake_unit_free(pr_unit *unit)
{
    fake_of(unit)->units_open--;
    pr__free(unit);
}

static const pr__unit_ops fake_unit_ops = {
    .live = fake_live,
    .enqueue = fake_enqueue,
    .commit = fake_commit,
    .rollback = fake_rollback,
    .free = fake_unit_free,
};

static inline pr_status fake_unit_new(fake_store *fake, bool joined, pr_unit **ret_unit,
                                      pr_error *err)
{
    pr_unit *unit = pr__alloc(sizeof *unit);
    if (!unit)
        return pr__fail_nomem(err, "fake");
    pr__unit_init(unit, &fake_unit_ops, &fake->base, joined);
    fake->units_open++;
    *ret_unit = unit;
    return PR_OK;
}

static inline pr_status fake_unit_begin(pr_store *store, pr_unit **ret_unit, pr_error *err)
{
    return fake_unit_new((fake_store *)(void *)store, /* joined= */ false, ret_unit, err);
}

static inline int64_t fake_wall_us(void *user)
{
    return ((fake_store *)user)->now_us;
}

static inline void fake_fill(void *user, void *bytes, size_t count)
{
    memset(bytes, ++((fake_store *)user)->next_random, count);
}

static inline void fake_ring(void *user)
{
    ((fake_store *)user)->rings++;
}

static inline void fake_observe(void *user, const pr_observation *observation)
{
    if (observation->kind == PR_OBSERVE_ENQUEUED)
        ((fake_store *)user)->enqueued_seen += observation->count;
}

static const pr__store_ops fake_store_ops = {.name = "fake", .unit_begin = fake_unit_begin};

static inline void fake_store_init(fake_store *fake)
{
    memset(fake, 0, sizeof *fake);
    fake->now_us = 1767225600000000; /* 2026-01-01 */
    fake->commit_outcome = PR_OUTCOME_COMMITTED;
    fake->clock = (pr_clock){(uint32_t)sizeof fake->clock, fake_wall_us, fake_wall_us, fake};
    fake->random = (pr_random){(uint32_t)sizeof fake->random, fake_fill, fake};
    fake->observer = (pr_observer){(uint32_t)sizeof fake->observer, fake_observe, fake};
    fake->base.ops = &fake_store_ops;
    fake->base.clock = &fake->clock;
    fake->base.random = &fake->random;
    fake->base.observer = &fake->observer;
    fake->base.body_size_max = 1024;
    fake->base.doorbell = fake_ring;
    fake->base.doorbell_user = fake;
}

static inline void fake_store_done(fake_store *fake)
{
    fake_drop_rows(fake, 0);
}

/* Of each case: a store without rows, and no unit left open behind it. */
static inline int fake_store_set_up(void **state)
{
    static fake_store fake;
    fake_store_init(&fake);
    *state = &fake;
    return 0;
}

static inline int fake_store_tear_down(void **state)
{
    fake_store *fake = *state;
    fake_store_done(fake);
    return fake->units_open == 0 ? 0 : -1;
}

static inline pr_unit *fake_begin(fake_store *fake)
{
    pr_unit *unit = NULL;
    pr_error err = PR_ERROR_INIT;
    check_ok(pr_unit_begin(&fake->base, &unit, &err), &err, "begin");
    return unit;
}

#endif
