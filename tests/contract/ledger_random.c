/*
 * Random histories: several holders claim, send, die, settle late and in part, while messages come
 * in. Checked from outside: nothing is lost, nothing is sent that was not committed, no two live
 * leases, first deliveries of a key in order, and everything ends.
 */
#include "contract/ledger_cases.h"

#define HOLDERS      3
#define MESSAGES_MAX 400
#define KEYS         7

typedef struct holder {
    pr__batch *batch;
    int64_t until; /* the suite's own clock: when its lease ends */
} holder;

typedef struct history {
    fixture *fix;
    int64_t now;
    holder holders[HOLDERS];
    uint32_t key_of[MESSAGES_MAX + 1];     /* 0 = none */
    uint32_t deliveries[MESSAGES_MAX + 1]; /* at the other side */
    bool confirmed[MESSAGES_MAX + 1];
    bool dead[MESSAGES_MAX + 1];
    uint32_t last_first[KEYS + 1]; /* the highest number delivered of a key */
    pr_order order;
} history;

static void advance(history *h, int64_t ms)
{
    pass_ms(h->fix, ms);
    h->now += ms;
}

static void enqueue(history *h)
{
    if (h->fix->made >= MESSAGES_MAX)
        return;
    uint32_t key = random_below(h->fix, KEYS + 1);
    char text[16];
    snprintf(text, sizeof text, "k%u", key);
    uint32_t number = post(h->fix, TO_BROKER, key ? text : NULL);
    h->key_of[number] = key;
}

/* The message arrives at the other side. */
static void deliver(history *h, uint32_t number)
{
    uint32_t key = h->key_of[number];
    assert_true(number >= 1 && number <= h->fix->made);
    if (h->deliveries[number]++ == 0 && key != 0 && h->order != PR_ORDER_SKIP) {
        if (number < h->last_first[key])
            fail_msg("message %u of key %u came first after %u", number, key, h->last_first[key]);
        h->last_first[key] = number;
    }
}

/* Send what may be sent, with random ends; a keyed message that is not confirmed ends its key. */
static void send_all(history *h, pr__batch *batch)
{
    bool stopped[KEYS + 1] = {false};
    for (uint32_t i = 0; i < batch->item_count; i++) {
        pr__item *item = &batch->items[i];
        uint32_t number = number_of(item);
        uint32_t key = h->order == PR_ORDER_SKIP ? 0 : h->key_of[number];
        uint32_t dice = random_below(h->fix, 100);
        item->retry_delay_ms = 1 + random_below(h->fix, 2000);
        if (item->poison) {
            item->result = PR__RESULT_FAILED;
            stopped[key] = key != 0;
            continue;
        }
        if (item->blocked || stopped[key] || dice < 4) { /* not sent */
            stopped[key] = key != 0;
            continue;
        }
        if (dice < 70) {
            deliver(h, number);
            item->result = PR__RESULT_PUBLISHED;
        } else if (dice < 80) { /* arrived, but the confirm was lost */
            deliver(h, number);
            item->result = PR__RESULT_LOST;
        } else if (dice < 85) {
            item->result = PR__RESULT_LOST;
        } else if (dice < 93) {
            item->result = PR__RESULT_FAILED;
        } else if (dice < 97) {
            item->result = PR__RESULT_DEFERRED;
        } else {
            item->result = PR__RESULT_DEAD;
        }
        stopped[key] = key != 0 && item->result != PR__RESULT_PUBLISHED;
    }
}

static void note_settled(history *h, pr__batch *batch)
{
    for (uint32_t i = 0; i < batch->item_count; i++) {
        const pr__item *item = &batch->items[i];
        if (item->fenced)
            continue;
        if (item->result == PR__RESULT_PUBLISHED)
            h->confirmed[number_of(item)] = true;
        if (item->result == PR__RESULT_DEAD)
            h->dead[number_of(item)] = true;
    }
}

/* No message is in two live batches. */
static void check_leases(history *h, const pr__batch *fresh)
{
    for (size_t n = 0; n < HOLDERS; n++) {
        const holder *other = &h->holders[n];
        if (!other->batch || other->until <= h->now || other->batch == fresh)
            continue;
        for (uint32_t i = 0; i < other->batch->item_count; i++)
            for (uint32_t j = 0; j < fresh->item_count; j++)
                assert_int_not_equal(other->batch->items[i].log_id, fresh->items[j].log_id);
    }
}

static void hold(history *h, size_t n, pr__batch *batch)
{
    h->holders[n].batch = batch;
    h->holders[n].until = h->now + LEASE_MS;
    if (batch)
        check_leases(h, batch);
}

static void work(history *h, size_t n)
{
    fixture *fix = h->fix;
    pr_store *store = store_at(fix, n + 1);
    holder *self = &h->holders[n];
    if (!self->batch) {
        pr__batch *batch = random_below(fix, 3) ? claim(fix, store, 1, 1 + random_below(fix, 12))
                                                : claim_parked(fix, store, 1, 12);
        hold(h, n, batch);
        if (batch)
            send_all(h, batch);
        return;
    }
    pr_error err = PR_ERROR_INIT;
    uint32_t dice = random_below(fix, 10);
    if (dice == 0) { /* dies */
        self->batch = pr__batch_free(self->batch);
    } else if (dice == 1) { /* sleeps longer than its lease, then goes on */
        advance(h, LEASE_MS + random_below(fix, 500));
    } else if (dice == 2) {
        check_ok(pr__store_renew(store, self->batch, LEASE_MS, &err), &err, "renew");
        self->until = h->now; /* of what was lost we hold nothing; the others are not checked */
    } else {
        pr__claim_options opt = claim_options(1, 8);
        pr__settle_report report;
        pr__batch *next = NULL;
        bool chain = self->batch->slices && random_below(fix, 2);
        pr__batch_close(self->batch);
        check_ok(pr__store_settle(store, self->batch, chain ? &opt : NULL, &report, &next, &err),
                 &err, "settle");
        note_settled(h, self->batch);
        self->batch = pr__batch_free(self->batch);
        hold(h, n, next);
        if (next)
            send_all(h, next);
    }
}

/* One sober holder ends what is left. */
static void drain(history *h)
{
    fixture *fix = h->fix;
    pr_store *store = store_at(fix, 0);
    for (size_t n = 0; n < HOLDERS; n++)
        h->holders[n].batch = pr__batch_free(h->holders[n].batch);
    for (int idle = 0; idle < 8;) {
        advance(h, 3000);
        pr__batch *batch = claim(fix, store, 1, 50);
        if (!batch)
            batch = claim_parked(fix, store, 1, 50);
        idle = batch ? 0 : idle + 1;
        if (!batch)
            continue;
        for (uint32_t i = 0; i < batch->item_count; i++) {
            if (batch->items[i].blocked || batch->items[i].poison) {
                batch->items[i].result =
                    batch->items[i].poison ? PR__RESULT_FAILED : PR__RESULT_OPEN;
                continue;
            }
            deliver(h, number_of(&batch->items[i]));
            batch->items[i].result = PR__RESULT_PUBLISHED;
        }
        pr__batch_close(batch);
        pr_error err = PR_ERROR_INIT;
        pr__settle_report report;
        check_ok(pr__store_settle(store, batch, NULL, &report, NULL, &err), &err, "settle");
        note_settled(h, batch);
        pr__batch_free(batch);
    }
}

static void check_end(history *h)
{
    fixture *fix = h->fix;
    uint32_t dead = 0;
    for (uint32_t n = 1; n <= fix->made; n++) {
        dead += h->dead[n];
        if (!h->confirmed[n] && !h->dead[n])
            fail_msg("message %u (key %u) is neither published nor dead", n, h->key_of[n]);
        if (h->confirmed[n] && h->deliveries[n] == 0)
            fail_msg("message %u is published and was never sent", n);
    }
    assert_int_equal(rows(fix, "outbox"), fix->made);
    assert_int_equal(in_state(fix, 1, "dead"), dead);
    assert_int_equal(in_state(fix, 1, "published"), fix->made - dead);
    /* the journal's own books: what was acked and passed is what stands in the log */
    assert_int_equal(count(fix, "SELECT sum(acked + passed) FROM {t}outbox_claim AS j WHERE seq = "
                                "(SELECT max(seq) FROM {t}outbox_claim WHERE reader = j.reader AND "
                                "lane = j.lane) AND reader = 1"),
                     fix->made);
}

static void play(fixture *fix, pr_order order)
{
    pr_error err = PR_ERROR_INIT;
    history *h = calloc(1, sizeof *h);
    assert_non_null(h);
    h->fix = fix;
    h->order = order;
    check_ok(pr__store_reader_set_order(store_at(fix, 0), 1, order, &err), &err, "order");
    for (int step = 0; step < 1200; step++) {
        uint32_t dice = random_below(fix, 10);
        if (dice < 3)
            enqueue(h);
        else if (dice < 9)
            work(h, random_below(fix, HOLDERS));
        else
            advance(h, random_below(fix, 600));
    }
    drain(h);
    check_end(h);
    free(h);
}

void case_random_hold(void **state)
{
    play(*state, PR_ORDER_HOLD);
}

void case_random_skip(void **state)
{
    play(*state, PR_ORDER_SKIP);
}

void case_random_one_lane(void **state)
{
    fixture *fix = *state;
    fix->random = 42;
    play(fix, PR_ORDER_HOLD);
}
