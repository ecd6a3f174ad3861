/*
 * Failure, retry, dead letter, order policies, delayed: capabilities 34, 51 to 54, 58 to 60.
 */
#include "contract/ledger_cases.h"

static void set_order(fixture *fix, pr_order order)
{
    pr_error err = PR_ERROR_INIT;
    check_ok(pr__store_reader_set_order(store_at(fix, 0), 1, order, &err), &err, "set_order");
}

/* Claim all and settle: message `number` ends as result, the others as rest_result. */
static pr__settle_report one_ends(fixture *fix, uint32_t number, pr__result result,
                                  pr__result rest_result)
{
    pr__batch *batch = claim_some(fix, store_at(fix, 0), 1, 100);
    set_all(batch, rest_result);
    pr__item *item = item_of(batch, number);
    item->result = result;
    item->retry_delay_ms = 5000;
    pr__batch_set_error(batch, item, "no\nsuch exchange");
    return settle_free(fix, store_at(fix, 0), batch);
}

void case_parked_failed_then_published(void **state)
{
    fixture *fix = *state;
    post(fix, TO_BROKER, NULL);
    assert_int_equal(due_ms(fix, store_at(fix, 0), 1), -1);
    assert_int_equal(one_ends(fix, 1, PR__RESULT_FAILED, PR__RESULT_OPEN).failed, 1);
    assert_int_equal(in_state(fix, 1, "failed"), 1);
    assert_int_equal(count(fix, "SELECT count(*) FROM {t}outbox_state WHERE attempts = 1 AND "
                                "last_error = 'no such exchange' AND next_attempt_at IS NOT NULL"),
                     1);
    assert_int_equal(due_ms(fix, store_at(fix, 0), 1), 5000);
    assert_null(claim_parked(fix, store_at(fix, 0), 1, 10));
    assert_null(claim(fix, store_at(fix, 0), 1, 10));
    pass_ms(fix, 5000);
    assert_int_equal(due_ms(fix, store_at(fix, 0), 1), 0);
    pr__batch *batch = claim_parked(fix, store_at(fix, 1), 1, 10);
    assert_int_equal(batch->item_count, 1);
    assert_null(batch->slices);
    assert_int_equal(batch->items[0].attempts, 1);
    assert_int_equal(number_of(&batch->items[0]), 1);
    assert_int_equal(in_state(fix, 1, "publishing"), 1);
    assert_null(claim_parked(fix, store_at(fix, 0), 1, 10)); /* leased */
    assert_int_equal(due_ms(fix, store_at(fix, 0), 1), LEASE_MS);
    batch->items[0].result = PR__RESULT_FAILED;
    batch->items[0].retry_delay_ms = 10;
    assert_int_equal(settle_free(fix, store_at(fix, 1), batch).failed, 1);
    assert_int_equal(count(fix, "SELECT attempts FROM {t}outbox_parked"), 2);
    pass_ms(fix, 10);
    batch = claim_parked(fix, store_at(fix, 0), 1, 10);
    set_all(batch, PR__RESULT_PUBLISHED);
    assert_int_equal(settle_free(fix, store_at(fix, 0), batch).published, 1);
    assert_int_equal(rows(fix, "outbox_parked"), 0);
    assert_int_equal(in_state(fix, 1, "published"), 1);
}

void case_parked_results(void **state)
{
    fixture *fix = *state;
    const struct {
        const char *label;
        pr__result result;
        const char *view;
        int attempts;
    } cases[] = {
        {"failed", PR__RESULT_FAILED, "failed", 1},
        {"deferred", PR__RESULT_DEFERRED, "failed", 0},
        {"dead", PR__RESULT_DEAD, "dead", 1},
        {"expired", PR__RESULT_EXPIRED, "dead", 0},
        {"open", PR__RESULT_OPEN, "pending", 0},
        {"lost", PR__RESULT_LOST, "pending", 0},
        {"published", PR__RESULT_PUBLISHED, "published", 0},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        char sql[200];
        uint32_t number = post(fix, TO_BROKER, NULL);
        one_ends(fix, number, cases[i].result, PR__RESULT_PUBLISHED);
        snprintf(sql, sizeof sql,
                 "SELECT count(*) FROM {t}outbox_state WHERE log_id = %u AND state = '%s' AND "
                 "attempts = %d",
                 number, cases[i].view, cases[i].attempts);
        CHECK_CASE(count(fix, sql) == 1, cases[i].label);
    }
    assert_int_equal(count(fix, "SELECT count(*) FROM {t}outbox_state WHERE state = 'dead' AND "
                                "last_error IS NULL"),
                     0); /* an expired one says why, too */
}

void case_parked_dead_stays(void **state)
{
    fixture *fix = *state;
    post(fix, TO_BROKER, "k");
    one_ends(fix, 1, PR__RESULT_DEAD, PR__RESULT_OPEN);
    pass_ms(fix, INT64_C(365) * 24 * 3600 * 1000);
    assert_null(claim_parked(fix, store_at(fix, 0), 1, 10));
    assert_int_equal(due_ms(fix, store_at(fix, 0), 1), -1);
    assert_int_equal(in_state(fix, 1, "dead"), 1);
    assert_int_equal(count(fix, "SELECT count(*) FROM {t}outbox_parked WHERE key = 'k' AND "
                                "length(body) = 1"),
                     1);
}

void case_parked_uncharged_count(void **state)
{
    fixture *fix = *state;
    pr_error err = PR_ERROR_INIT;
    uint32_t parked = 9;
    post_many(fix, 3, TO_BROKER, NULL);
    one_ends(fix, 3, PR__RESULT_FAILED, PR__RESULT_DEFERRED);
    check_ok(pr__store_parked_count(store_at(fix, 0), 1, 0, &parked, &err), &err, "count");
    assert_int_equal(parked, 2);
}

/* The head fails: its successors wait in order, and come as one run. */
void case_parked_hold(void **state)
{
    fixture *fix = *state;
    post_many(fix, 3, TO_BROKER, "k"); /* 1 to 3 */
    post(fix, TO_BROKER, "other");     /* 4 */
    pr__batch *batch = claim_some(fix, store_at(fix, 0), 1, 100);
    item_of(batch, 1)->result = PR__RESULT_FAILED;
    item_of(batch, 1)->retry_delay_ms = 1000;
    item_of(batch, 4)->result = PR__RESULT_PUBLISHED;
    pr__settle_report report = settle_free(fix, store_at(fix, 0), batch);
    assert_int_equal(report.failed, 1);
    assert_int_equal(report.held, 2);
    post(fix, TO_BROKER, "k"); /* 5 */
    batch = claim_some(fix, store_at(fix, 0), 1, 100);
    assert_true(batch->items[0].blocked);
    assert_int_equal(settle_free(fix, store_at(fix, 0), batch).held, 1);
    assert_int_equal(in_state(fix, 1, "held"), 3);
    assert_null(claim_parked(fix, store_at(fix, 0), 1, 100)); /* the head is not due */
    pass_ms(fix, 1000);
    batch = claim_parked(fix, store_at(fix, 0), 1, 100);
    const uint32_t wanted[] = {1, 2, 3, 5};
    assert_int_equal(batch->item_count, 4);
    for (uint32_t i = 0; i < 4; i++)
        assert_int_equal(number_of(&batch->items[i]), wanted[i]);
    item_of(batch, 1)->result = PR__RESULT_PUBLISHED;
    item_of(batch, 2)->result = PR__RESULT_FAILED; /* a new head; 3 and 5 stay held */
    item_of(batch, 2)->retry_delay_ms = 1000;
    report = settle_free(fix, store_at(fix, 0), batch);
    assert_int_equal(report.rest, 2);
    assert_int_equal(in_state(fix, 1, "held"), 2);
    assert_null(claim_parked(fix, store_at(fix, 0), 1, 100));
    pass_ms(fix, 1000);
    batch = claim_parked(fix, store_at(fix, 0), 1, 2);
    assert_int_equal(batch->item_count, 2); /* limited: the run is cut, never its order */
    assert_int_equal(number_of(&batch->items[0]), 2);
    assert_null(claim_parked(fix, store_at(fix, 1), 1, 100)); /* 5 is behind a processing one */
    set_all(batch, PR__RESULT_PUBLISHED);
    settle_free(fix, store_at(fix, 0), batch);
    assert_int_equal(due_ms(fix, store_at(fix, 0), 1), 0); /* free, though nobody released it */
    batch = claim_parked(fix, store_at(fix, 1), 1, 100);
    assert_int_equal(number_of(&batch->items[0]), 5);
    pr__batch_free(batch);
}

void case_parked_dead_head(void **state)
{
    fixture *fix = *state;
    const struct {
        const char *label;
        pr_order order;
        int held; /* after the head died in the slice */
        int free; /* may be claimed from parked then */
        bool later_blocked;
    } cases[] = {
        {"hold", PR_ORDER_HOLD, 2, 2, true}, /* while the held ones are there, a later one waits */
        {"halt", PR_ORDER_HALT, 2, 0, true},
        {"skip", PR_ORDER_SKIP, 0, 0, false},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        char key[16];
        snprintf(key, sizeof key, "key-%zu", i);
        set_order(fix, cases[i].order);
        uint32_t first = post(fix, TO_BROKER, key);
        post_many(fix, 2, TO_BROKER, key);
        pr__batch *batch = claim_some(fix, store_at(fix, 0), 1, 100);
        CHECK_CASE(batch->order == cases[i].order, cases[i].label);
        item_of(batch, first)->result = PR__RESULT_DEAD;
        if (cases[i].order == PR_ORDER_SKIP)
            item_of(batch, first + 1)->result = item_of(batch, first + 2)->result =
                PR__RESULT_PUBLISHED;
        CHECK_CASE((int)settle_free(fix, store_at(fix, 0), batch).held == cases[i].held,
                   cases[i].label);
        post(fix, TO_BROKER, key);
        batch = claim_some(fix, store_at(fix, 0), 1, 100);
        CHECK_CASE(batch->items[0].blocked == cases[i].later_blocked, cases[i].label);
        set_all(batch, PR__RESULT_PUBLISHED);
        if (cases[i].later_blocked)
            set_all(batch, PR__RESULT_HELD);
        settle_free(fix, store_at(fix, 0), batch);
        batch = claim_parked(fix, store_at(fix, 0), 1, 100);
        CHECK_CASE((batch ? (int)batch->item_count : 0) == (cases[i].free ? cases[i].free + 1 : 0),
                   cases[i].label);
        if (batch) {
            set_all(batch, PR__RESULT_PUBLISHED);
            settle_free(fix, store_at(fix, 0), batch);
        }
        run(fix, "DELETE FROM {t}outbox_parked");
    }
}

/* Nothing but a dead message stands there: under halt it blocks, under hold its key is free. */
void case_parked_dead_alone(void **state)
{
    fixture *fix = *state;
    static const pr_order orders[] = {PR_ORDER_HOLD, PR_ORDER_HALT};
    post(fix, TO_BROKER, "k");
    one_ends(fix, 1, PR__RESULT_DEAD, PR__RESULT_OPEN);
    post(fix, TO_BROKER, "k");
    for (size_t i = 0; i < COUNT_OF(orders); i++) {
        set_order(fix, orders[i]);
        pr__batch *batch = claim_some(fix, store_at(fix, 0), 1, 10);
        assert_true(batch->items[0].blocked == (orders[i] == PR_ORDER_HALT));
        set_all(batch, PR__RESULT_OPEN);
        batch->items[0].blocked = false; /* so that close sends it to rest */
        settle_free(fix, store_at(fix, 0), batch);
    }
}

/* Only what is older blocks: a younger one was parked while the order did not matter. */
void case_parked_younger_blocks_nothing(void **state)
{
    fixture *fix = *state;
    set_order(fix, PR_ORDER_SKIP);
    post_many(fix, 2, TO_BROKER, "k");
    one_ends(fix, 2, PR__RESULT_FAILED, PR__RESULT_LOST);
    set_order(fix, PR_ORDER_HOLD);
    pr__batch *batch = claim_some(fix, store_at(fix, 0), 1, 10);
    assert_int_equal(batch->item_count, 1);
    assert_int_equal(number_of(&batch->items[0]), 1);
    assert_false(batch->items[0].blocked);
    pr__batch_free(batch);
}

/* What blocks is looked up again for what was claimed before. */
void case_parked_blocks_takeover_and_rest(void **state)
{
    fixture *fix = *state;
    post(fix, TO_BROKER, "k"); /* 1 */
    one_ends(fix, 1, PR__RESULT_FAILED, PR__RESULT_OPEN);
    post(fix, TO_BROKER, "k"); /* 2 */
    pr__batch *batch = claim_some(fix, store_at(fix, 0), 1, 10);
    pr__batch_free(batch); /* its holder, who knew that 2 is to be held, dies */
    pass_ms(fix, LEASE_MS);
    batch = claim_some(fix, store_at(fix, 1), 1, 10);
    assert_true(batch->slices[0].takeover);
    assert_true(batch->items[0].blocked);
    batch->items[0].blocked = false; /* so that close sends it to rest */
    settle_free(fix, store_at(fix, 1), batch);
    batch = claim_some(fix, store_at(fix, 1), 1, 10);
    assert_true(batch->slices[0].again);
    assert_true(batch->items[0].blocked);
    pr__batch_free(batch);
}

void case_parked_blocks_tenant_and_reader(void **state)
{
    fixture *fix = *state;
    int64_t reader = open_reader(fix, store_at(fix, 0), "billing", TO_LOCAL, PR_ORDER_HOLD);
    pr_message message = PR_MESSAGE(.type = TYPE_PLACED, .body = "1", .body_size_bytes = 1,
                                    .destination = TO_BROKER, .key = "k", .tenant = "a");
    post_message(fix, &message);
    one_ends(fix, 1, PR__RESULT_FAILED, PR__RESULT_OPEN);
    message.tenant = "b"; /* the same key of another tenant is another key */
    message.body = "2";
    post_message(fix, &message);
    message.tenant = "a"; /* and so it is for another reader */
    message.destination = TO_LOCAL;
    post_message(fix, &message);
    pr__batch *batch = claim_some(fix, store_at(fix, 0), 1, 10);
    assert_int_equal(batch->item_count, 1);
    assert_false(batch->items[0].blocked);
    pr__batch_free(batch);
    batch = claim_some(fix, store_at(fix, 0), reader, 10);
    assert_int_equal(batch->item_count, 1);
    assert_false(batch->items[0].blocked);
    pr__batch_free(batch);
}

void case_parked_operator_hold(void **state)
{
    fixture *fix = *state;
    post_many(fix, 2, TO_BROKER, "k");
    one_ends(fix, 1, PR__RESULT_FAILED, PR__RESULT_OPEN);
    run(fix, "UPDATE {t}outbox_parked SET operator_hold = true WHERE log_id = 1");
    pass_ms(fix, 10000);
    assert_null(claim_parked(fix, store_at(fix, 0), 1, 10));
    assert_int_equal(due_ms(fix, store_at(fix, 0), 1), -1);
    run(fix, "UPDATE {t}outbox_parked SET operator_hold = false");
    run(fix, "UPDATE {t}outbox_parked SET operator_hold = true WHERE log_id = 2");
    pr__batch *batch = claim_parked(fix, store_at(fix, 0), 1, 10);
    assert_int_equal(batch->item_count, 1); /* the run ends before the one that is held */
    set_all(batch, PR__RESULT_PUBLISHED);
    settle_free(fix, store_at(fix, 0), batch);
    assert_null(claim_parked(fix, store_at(fix, 0), 1, 10));
    run(fix, "UPDATE {t}outbox_parked SET operator_hold = false");
    batch = claim_parked(fix, store_at(fix, 0), 1, 10);
    assert_int_equal(batch->item_count, 1);
    pr__batch_free(batch);
}

void case_parked_lease(void **state)
{
    fixture *fix = *state;
    pr_error err = PR_ERROR_INIT;
    post(fix, TO_BROKER, "k");
    one_ends(fix, 1, PR__RESULT_FAILED, PR__RESULT_OPEN);
    pass_ms(fix, 5000);
    pr__batch *first = claim_parked(fix, store_at(fix, 0), 1, 10);
    pass_ms(fix, LEASE_MS - 1);
    check_ok(pr__store_renew(store_at(fix, 0), first, LEASE_MS, &err), &err, "renew");
    assert_false(first->items[0].fenced);
    pass_ms(fix, LEASE_MS - 1);
    assert_null(claim_parked(fix, store_at(fix, 1), 1, 10));
    pass_ms(fix, 1);
    pr__batch *second = claim_parked(fix, store_at(fix, 1), 1, 10);
    assert_int_equal(second->item_count, 1);
    assert_string_not_equal(first->items[0].token, second->items[0].token);
    check_ok(pr__store_renew(store_at(fix, 0), first, LEASE_MS, &err), &err, "renew too late");
    assert_true(first->items[0].fenced);
    set_all(first, PR__RESULT_PUBLISHED);
    pr__settle_report report = settle_free(fix, store_at(fix, 0), first);
    assert_int_equal(report.fenced_items, 1);
    assert_int_equal(report.published, 0);
    assert_int_equal(rows(fix, "outbox_parked"), 1);
    set_all(second, PR__RESULT_PUBLISHED);
    assert_int_equal(settle_free(fix, store_at(fix, 1), second).published, 1);
    assert_int_equal(rows(fix, "outbox_parked"), 0);
}

void case_parked_open_is_as_before(void **state)
{
    fixture *fix = *state;
    post_many(fix, 2, TO_BROKER, "k");
    one_ends(fix, 1, PR__RESULT_FAILED, PR__RESULT_OPEN);
    pass_ms(fix, 5000);
    pr__batch *batch = claim_parked(fix, store_at(fix, 0), 1, 10);
    assert_int_equal(batch->item_count, 2);
    settle_free(fix, store_at(fix, 0), batch); /* given back at a stop */
    assert_int_equal(count(fix, "SELECT count(*) FROM {t}outbox_parked WHERE state = 'failed' AND "
                                "attempts = 1 AND log_id = 1 AND lock_token IS NULL"),
                     1);
    assert_int_equal(count(fix, "SELECT count(*) FROM {t}outbox_parked WHERE state = 'held' AND "
                                "attempts = 0 AND log_id = 2 AND locked_until IS NULL"),
                     1);
    batch = claim_parked(fix, store_at(fix, 0), 1, 10);
    assert_int_equal(batch->item_count, 2);
    pr__batch_free(batch);
}

void case_parked_lost(void **state)
{
    fixture *fix = *state;
    post(fix, TO_BROKER, NULL);
    one_ends(fix, 1, PR__RESULT_FAILED, PR__RESULT_OPEN);
    pass_ms(fix, 5000);
    pr__batch *batch = claim_parked(fix, store_at(fix, 0), 1, 10);
    batch->items[0].result = PR__RESULT_LOST;
    batch->items[0].suspicion = 1;
    settle_free(fix, store_at(fix, 0), batch);
    batch = claim_parked(fix, store_at(fix, 0), 1, 10);
    assert_int_equal(batch->items[0].attempts, 1); /* nothing was charged */
    assert_int_equal(batch->items[0].suspicion, 1);
    pr__batch_free(batch);
}

/* 2 kills whoever sends it; three takeovers are one charge, and only it is charged. */
void case_parked_isolates_killer(void **state)
{
    fixture *fix = *state;
    post_many(fix, 4, TO_BROKER, NULL);
    pr__batch *batch = claim_some(fix, store_at(fix, 0), 1, 10);
    set_all(batch, PR__RESULT_DEFERRED);
    settle_free(fix, store_at(fix, 0), batch);
    uint32_t published = 0;
    int crashes = 0;
    for (int round = 0; round < 30 && published < 3; round++) {
        batch = claim_parked(fix, store_at(fix, 0), 1, 10);
        if (!batch) {
            pass_ms(fix, LEASE_MS);
            continue;
        }
        bool killed = false;
        for (uint32_t i = 0; i < batch->item_count; i++)
            killed = killed || (number_of(&batch->items[i]) == 2 && !batch->items[i].poison);
        if (killed) {
            crashes++;
            pr__batch_free(batch);
            pass_ms(fix, LEASE_MS);
            continue;
        }
        for (uint32_t i = 0; i < batch->item_count; i++) {
            batch->items[i].result =
                batch->items[i].poison ? PR__RESULT_FAILED : PR__RESULT_PUBLISHED;
            batch->items[i].retry_delay_ms = 3600000;
        }
        published += settle_free(fix, store_at(fix, 0), batch).published;
    }
    assert_int_equal(published, 3);
    assert_true(crashes == 3);
    assert_int_equal(count(fix, "SELECT attempts FROM {t}outbox_parked"), 1);
    assert_int_equal(count(fix, "SELECT takeovers FROM {t}outbox_parked"), 0);
}

/* A row that was taken over before goes alone: others that are due are not put at risk with it. */
void case_parked_suspect_alone(void **state)
{
    fixture *fix = *state;
    post(fix, TO_BROKER, NULL);
    pr__batch *batch = claim_some(fix, store_at(fix, 0), 1, 10);
    set_all(batch, PR__RESULT_DEFERRED);
    settle_free(fix, store_at(fix, 0), batch);
    for (int crash = 0; crash < 2; crash++) {
        pr__batch_free(claim_parked(fix, store_at(fix, 0), 1, 10)); /* its holder dies */
        pass_ms(fix, LEASE_MS);
    }
    post(fix, TO_BROKER, NULL);
    batch = claim_some(fix, store_at(fix, 0), 1, 10);
    set_all(batch, PR__RESULT_DEFERRED);
    settle_free(fix, store_at(fix, 0), batch);
    batch = claim_parked(fix, store_at(fix, 0), 1, 10);
    assert_int_equal(batch->item_count, 1);
    assert_int_equal(number_of(&batch->items[0]), 1);
    assert_true(batch->more);
    pr__batch_free(batch);
    batch = claim_parked(fix, store_at(fix, 1), 1, 10);
    assert_int_equal(number_of(&batch->items[0]), 2);
    pr__batch_free(batch);
}

/* Runs of several keys share a batch: a long one leaves room for the others. */
void case_parked_runs_share(void **state)
{
    fixture *fix = *state;
    static const char *const keys[] = {"a", "b"};
    for (size_t i = 0; i < 2; i++)
        post_many(fix, 10, TO_BROKER, keys[i]);
    pr__batch *batch = claim_some(fix, store_at(fix, 0), 1, 100);
    item_of(batch, 1)->result = PR__RESULT_DEAD;
    item_of(batch, 11)->result = PR__RESULT_DEAD;
    assert_int_equal(settle_free(fix, store_at(fix, 0), batch).held, 18);
    batch = claim_parked(fix, store_at(fix, 0), 1, 8);
    uint32_t of_a = 0;
    for (uint32_t i = 0; i < batch->item_count; i++)
        of_a += strcmp(batch->items[i].message.key, keys[0]) == 0;
    assert_true(batch->item_count <= 8 && batch->more);
    assert_true(of_a >= 1 && of_a <= 4 && batch->item_count > of_a);
    pr__batch_free(batch);
}

/* A dead message in the middle of a run ends it under halt, and is passed over under hold. */
void case_parked_dead_within_run(void **state)
{
    fixture *fix = *state;
    set_order(fix, PR_ORDER_SKIP);
    post_many(fix, 3, TO_BROKER, "k");
    one_ends(fix, 2, PR__RESULT_DEAD, PR__RESULT_DEFERRED);
    set_order(fix, PR_ORDER_HALT);
    pr__batch *batch = claim_parked(fix, store_at(fix, 0), 1, 10);
    assert_int_equal(batch->item_count, 1);
    assert_int_equal(number_of(&batch->items[0]), 1);
    settle_free(fix, store_at(fix, 0), batch); /* given back */
    set_order(fix, PR_ORDER_HOLD);
    batch = claim_parked(fix, store_at(fix, 0), 1, 10);
    assert_int_equal(batch->item_count, 2);
    assert_int_equal(number_of(&batch->items[1]), 3);
    pr__batch_free(batch);
}

void case_parked_many_keys(void **state)
{
    fixture *fix = *state;
    for (int i = 0; i < 10; i++) {
        char key[16];
        snprintf(key, sizeof key, "k%d", i);
        post_many(fix, 3, TO_BROKER, key);
    }
    pr__batch *batch = claim_some(fix, store_at(fix, 0), 1, 100);
    for (uint32_t i = 0; i < batch->item_count; i++)
        if (number_of(&batch->items[i]) % 3 == 1)
            batch->items[i].result = PR__RESULT_DEAD;
    assert_int_equal(settle_free(fix, store_at(fix, 0), batch).held, 20);
    pr__batch *a = claim_parked(fix, store_at(fix, 0), 1, 8);
    pr__batch *b = claim_parked(fix, store_at(fix, 1), 1, 100);
    assert_int_equal(a->item_count, 8);
    assert_true(a->more);
    for (uint32_t i = 0; i < a->item_count; i++)
        for (uint32_t j = 0; j < b->item_count; j++)
            assert_string_not_equal(a->items[i].message.key, b->items[j].message.key);
    set_all(a, PR__RESULT_PUBLISHED);
    set_all(b, PR__RESULT_PUBLISHED);
    settle_free(fix, store_at(fix, 0), a);
    settle_free(fix, store_at(fix, 1), b);
    for (batch = claim_parked(fix, store_at(fix, 0), 1, 100); batch;
         batch = claim_parked(fix, store_at(fix, 0), 1, 100)) {
        set_all(batch, PR__RESULT_PUBLISHED);
        settle_free(fix, store_at(fix, 0), batch);
    }
    assert_int_equal(in_state(fix, 1, "published"), 20);
    assert_int_equal(in_state(fix, 1, "dead"), 10);
}

void case_delayed(void **state)
{
    fixture *fix = *state;
    pr_error err = PR_ERROR_INIT;
    int64_t now = 0;
    check_ok(pr__store_now(store_at(fix, 0), &now, &err), &err, "now");
    const struct {
        const char *body;
        int64_t delay_ms;
    } posts[] = {{"1", 20000}, {"2", 10000}, {"3", 10000}, {"4", 0}, {"5", -10000}};
    for (size_t i = 0; i < COUNT_OF(posts); i++) {
        pr_message message =
            PR_MESSAGE(.type = TYPE_PLACED, .body = posts[i].body, .body_size_bytes = 1,
                       .destination = TO_BROKER, .key = "k", .source = "shop",
                       .deliver_at_us = now + posts[i].delay_ms * 1000);
        post_message(fix, &message);
    }
    assert_int_equal(in_state(fix, 1, "delayed"), 3);
    assert_int_equal(rows(fix, "outbox"), 2); /* 4 and 5 went at once */
    uint32_t promoted = 9;
    int64_t next = 0;
    check_ok(pr__store_promote(store_at(fix, 0), 10, &promoted, &next, &err), &err, "early");
    assert_int_equal(promoted, 0);
    assert_int_equal(next, 10000);
    pass_ms(fix, 9999);
    check_ok(pr__store_promote(store_at(fix, 0), 10, &promoted, &next, &err), &err, "still early");
    assert_int_equal(promoted, 0);
    pass_ms(fix, 1);
    check_ok(pr__store_promote(store_at(fix, 0), 1, &promoted, &next, &err), &err, "one");
    assert_int_equal(promoted, 1);
    assert_int_equal(next, 0);
    pass_ms(fix, 15000);
    check_ok(pr__store_promote(store_at(fix, 1), 10, &promoted, &next, &err), &err, "all");
    assert_int_equal(promoted, 2);
    assert_int_equal(next, -1);
    check_ok(pr__store_promote(store_at(fix, 0), 10, &promoted, &next, &err), &err, "nobody twice");
    assert_int_equal(promoted, 0);
    assert_int_equal(rows(fix, "outbox_parked"), 0);
    pr__batch *batch = claim_some(fix, store_at(fix, 0), 1, 10);
    const uint32_t wanted[] = {4, 5, 2, 3, 1}; /* in the order of their due times */
    assert_int_equal(batch->item_count, 5);
    for (uint32_t i = 0; i < 5; i++)
        assert_int_equal(number_of(&batch->items[i]), wanted[i]);
    assert_string_equal(batch->items[4].message.source, "shop");
    pr__batch_free(batch);
}
