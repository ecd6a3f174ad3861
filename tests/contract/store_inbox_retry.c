/*
 * The inbox side of the store port: which parked rows are given for a retry and in which order, and
 * that a leased one is changed by its token only.
 */
#include <stdlib.h>

#include "base/hash.h"
#include "base/text.h"
#include "contract/inbox_steps.h"
#include "contract/store_inbox_cases.h"

#define MiB (1024 * 1024)

/* ---- order ---- */

typedef struct order_row {
    const char *id, *key;
    pr_state state;
    int64_t delay_ms;
} order_row;

static const struct {
    const char *label;
    order_row rows[6];
    const char *hold, *halt, *skip; /* what a claim gives */
} order_cases[] = {
    {"a run goes whole",
     {{"1", "a", PR_STATE_FAILED, 0}, {"2", "a", PR_STATE_HELD, 0}, {"3", "a", PR_STATE_HELD, 0}},
     "1,2,3",
     "1,2,3",
     "1,2,3"},
    {"the head is not due",
     {{"1", "a", PR_STATE_FAILED, 60000}, {"2", "a", PR_STATE_HELD, 0}},
     "",
     "",
     "2"},
    {"a failed one behind one that is not due",
     {{"1", "a", PR_STATE_FAILED, 60000}, {"2", "a", PR_STATE_FAILED, 0}},
     "",
     "",
     "2"},
    {"a run ends at one that is not due",
     {{"1", "a", PR_STATE_HELD, 0},
      {"2", "a", PR_STATE_FAILED, 60000},
      {"3", "a", PR_STATE_HELD, 0}},
     "1",
     "1",
     "1,3"},
    {"a dead head",
     {{"1", "a", PR_STATE_DEAD, 0}, {"2", "a", PR_STATE_HELD, 0}, {"3", "a", PR_STATE_HELD, 0}},
     "2,3",
     "",
     "2,3"},
    {"a dead one in the middle",
     {{"1", "a", PR_STATE_HELD, 0}, {"2", "a", PR_STATE_DEAD, 0}, {"3", "a", PR_STATE_HELD, 0}},
     "1,3",
     "1",
     "1,3"},
    {"keys do not wait for one another",
     {{"1", "a", PR_STATE_FAILED, 60000},
      {"2", "b", PR_STATE_FAILED, 0},
      {"3", "a", PR_STATE_HELD, 0},
      {"4", NULL, PR_STATE_FAILED, 0},
      {"5", "b", PR_STATE_HELD, 0}},
     "4,2,5",
     "4,2,5",
     "4,3,2,5"},
    {"keyless ones are independent",
     {{"1", NULL, PR_STATE_FAILED, 60000},
      {"2", NULL, PR_STATE_FAILED, 0},
      {"3", NULL, PR_STATE_DEAD, 0},
      {"4", NULL, PR_STATE_FAILED, 0}},
     "2,4",
     "2,4",
     "2,4"},
};

static void check_order(store_fixture *fix, size_t i, pr_order order, const char *wanted)
{
    const char *label = order_cases[i].label;
    char ids[64];
    run_sql(fix, "DELETE FROM {p}_inbox_parked");
    for (const order_row *row = order_cases[i].rows; row->id; row++)
        CHECK_CASE(inbox_park_row(fix, row->id, row->key, row->state, row->delay_ms), label);
    int64_t wait_ms = inbox_due_ms(store_at(fix, 0), order);
    CHECK_CASE((wait_ms == 0) == (*wanted != '\0'), label);
    inbox_ids(inbox_claim_as(store_at(fix, 0), order, 100), ids, sizeof ids);
    if (strcmp(ids, wanted) != 0)
        fail_msg("case '%s', order %d: wanted '%s', got '%s'", label, (int)order, wanted, ids);
    /* what was not given is not due, what was given is leased */
    CHECK_CASE(inbox_claim_as(store_at(fix, 1), order, 100) == NULL, label);
    CHECK_CASE(inbox_due_ms(store_at(fix, 1), order) != 0, label);
}

void case_a_claim_gives_whole_runs_in_order(void **state)
{
    store_fixture *fix = *state;
    for (size_t i = 0; i < COUNT_OF(order_cases); i++) {
        check_order(fix, i, PR_ORDER_HOLD, order_cases[i].hold);
        check_order(fix, i, PR_ORDER_HALT, order_cases[i].halt);
        check_order(fix, i, PR_ORDER_SKIP, order_cases[i].skip);
    }
}

void case_the_rest_of_a_run_waits_for_its_beginning(void **state)
{
    store_fixture *fix = *state;
    for (int i = 1; i <= 5; i++) {
        char id[8];
        pr__format(id, sizeof id, "%d", i);
        assert_true(inbox_park_row(fix, id, "a", PR_STATE_HELD, 0));
    }
    pr__batch *batch = inbox_claim_as(store_at(fix, 0), PR_ORDER_HOLD, 2);
    assert_non_null(batch);
    assert_int_equal(batch->item_count, 2);
    assert_true(batch->more);
    assert_null(inbox_claim_as(store_at(fix, 1), PR_ORDER_HOLD, 2)); /* one holder a key */
    assert_true(inbox_unpark_row(store_at(fix, 0), "1", batch->items[0].token));
    assert_null(inbox_claim_as(store_at(fix, 1), PR_ORDER_HOLD, 2));
    assert_true(inbox_unpark_row(store_at(fix, 0), "2", batch->items[1].token));
    pr__batch_free(batch);
    char ids[32];
    assert_string_equal(
        inbox_ids(inbox_claim_as(store_at(fix, 1), PR_ORDER_HOLD, 2), ids, sizeof ids), "3,4");
}

void case_whether_a_key_is_blocked(void **state)
{
    store_fixture *fix = *state;
    assert_true(inbox_park_row(fix, "dead", "d", PR_STATE_DEAD, 0));
    assert_true(inbox_park_row(fix, "failed", "f", PR_STATE_FAILED, 0));
    assert_true(inbox_park_row(fix, "held", "f", PR_STATE_HELD, 0));
    const struct {
        const char *label, *id, *key;
        bool hold, halt;
    } cases[] = {
        {"nothing of its key", "new", "x", false, false},
        {"behind a failed one", "new", "f", true, true},
        {"behind a dead one", "new", "d", false, true},
        {"its own row is the head", "failed", "f", false, false},
        {"its own row is the second", "held", "f", true, true},
        {"its own row is dead", "dead", "d", false, false},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        for (pr_order order = PR_ORDER_HOLD; order <= PR_ORDER_HALT; order++) {
            bool wanted = order == PR_ORDER_HOLD   ? cases[i].hold
                          : order == PR_ORDER_HALT ? cases[i].halt
                                                   : false;
            bool blocked = !wanted;
            pr_error err = PR_ERROR_INIT;
            pr__inbox_key key = inbox_key_of(cases[i].id);
            pr_unit *unit = begin_unit(store_at(fix, 0));
            check_ok(unit->ops->inbox_blocked(unit, &key, cases[i].key, order, &blocked, &err),
                     &err, cases[i].label);
            rollback_unit(unit);
            CHECK_CASE(blocked == wanted, cases[i].label);
        }
    }
    pr__inbox_key elsewhere = {.tenant = "acme", .consumer = CONSUMER, .message_id = "new"};
    bool blocked = true;
    pr_error err = PR_ERROR_INIT;
    pr_unit *unit = begin_unit(store_at(fix, 0));
    check_ok(unit->ops->inbox_blocked(unit, &elsewhere, "f", PR_ORDER_HALT, &blocked, &err), &err,
             "another tenant");
    rollback_unit(unit);
    assert_false(blocked);
}

void case_what_an_operator_holds_stays(void **state)
{
    store_fixture *fix = *state;
    assert_true(inbox_park_row(fix, "1", "a", PR_STATE_FAILED, 0));
    assert_true(inbox_park_row(fix, "2", "a", PR_STATE_HELD, 0));
    assert_true(inbox_park_row(fix, "3", "b", PR_STATE_HELD, 0));
    assert_true(inbox_park_row(fix, "4", "b", PR_STATE_HELD, 0));
    char ids[32];
    run_sql(fix, "UPDATE {p}_inbox_parked SET operator_hold = true WHERE message_id IN ('1', '4')");
    assert_string_equal(inbox_ids(inbox_claim_all(store_at(fix, 0)), ids, sizeof ids), "3");
    assert_true(inbox_due_ms(store_at(fix, 0), PR_ORDER_HOLD) > 0); /* the lease of 3 */
    pass_ms(fix, LEASE_MS + 1);
    run_sql(fix, "UPDATE {p}_inbox_parked SET operator_hold = true WHERE message_id = '3'");
    assert_null(inbox_claim_all(store_at(fix, 0))); /* not even a takeover */
    assert_int_equal(inbox_due_ms(store_at(fix, 0), PR_ORDER_HOLD), -1);
    assert_true(inbox_park_row(fix, "5", "c", PR_STATE_HELD, 0));
    assert_true(inbox_park_row(fix, "6", "c", PR_STATE_FAILED, 0));
    run_sql(fix, "UPDATE {p}_inbox_parked SET operator_hold = true WHERE message_id = '5'");
    assert_null(inbox_claim_all(store_at(fix, 0))); /* nor what stands behind it in its key */
    run_sql(fix, "UPDATE {p}_inbox_parked SET operator_hold = false WHERE message_id = '1'");
    assert_string_equal(inbox_ids(inbox_claim_all(store_at(fix, 0)), ids, sizeof ids), "1,2");
}

void case_a_batch_is_bounded_in_bytes(void **state)
{
    store_fixture *fix = *state;
    char *body = calloc(1, MiB);
    assert_non_null(body);
    for (int i = 0; i < 10; i++) {
        char id[8];
        pr__format(id, sizeof id, "%d", i);
        pr__inbox_key key = inbox_key_of(id);
        pr_message message = inbox_message(id, "a", "");
        message.body = body;
        message.body_size_bytes = MiB;
        assert_true(inbox_park_message(store_at(fix, 0), &key, &message,
                                       &(pr__inbox_park){.state = PR_STATE_HELD}));
    }
    free(body);
    pr__batch *batch = inbox_claim_all(store_at(fix, 0));
    assert_non_null(batch);
    assert_int_equal(batch->item_count, 8);
    assert_true(batch->more);
    pr__batch_free(batch);
}

void case_one_unreadable_row_costs_one_row(void **state)
{
    store_fixture *fix = *state;
    assert_true(inbox_park_row(fix, "1", NULL, PR_STATE_FAILED, 0));
    pr__inbox_key key = inbox_key_of("2");
    pr_message bad = inbox_message("2", NULL, "{}");
    bad.source = "\xFF\xFE";
    assert_true(inbox_park_message(store_at(fix, 0), &key, &bad,
                                   &(pr__inbox_park){.state = PR_STATE_FAILED}));
    assert_true(inbox_park_row(fix, "3", NULL, PR_STATE_FAILED, 0));
    pr__batch *batch = inbox_claim_all(store_at(fix, 0));
    assert_non_null(batch);
    assert_int_equal(batch->item_count, 3);
    assert_null(batch->items[0].unreadable);
    assert_non_null(batch->items[1].unreadable);
    assert_non_null(strstr(batch->items[1].unreadable, "source is not valid UTF-8"));
    assert_string_equal(batch->items[1].message.id, "2");
    assert_null(batch->items[2].unreadable);
    assert_true(inbox_repark_row(store_at(fix, 0), "2", batch->items[1].token,
                                 &(pr__inbox_park){.state = PR_STATE_DEAD, .error = "unreadable"}));
    pr__batch_free(batch);
}

/* ---- tokens and leases ---- */

void case_only_the_token_changes_a_leased_row(void **state)
{
    store_fixture *fix = *state;
    pr_store *store = store_at(fix, 0);
    pr__inbox_row row;
    const pr__inbox_park dead = {.state = PR_STATE_DEAD, .attempts = 9, .error = "no"};
    assert_true(inbox_park_row(fix, "m", NULL, PR_STATE_FAILED, 0));
    assert_false(inbox_repark_row(store, "m", "", &dead)); /* not leased: nobody's */
    pr__batch *batch = inbox_claim_all(store);
    assert_non_null(batch);
    const char *token = batch->items[0].token;
    assert_false(
        inbox_repark_row(store_at(fix, 1), "m", "00000000-0000-7000-8000-000000000000", &dead));
    assert_false(inbox_unpark_row(store_at(fix, 1), "m", "00000000-0000-7000-8000-000000000000"));
    assert_true(inbox_find_row(store, "m", &row));
    assert_int_equal(row.state, PR_STATE_PUBLISHING);
    assert_string_equal(row.token, token);
    assert_int_equal(row.attempts, 1);
    assert_true(row.locked_until_us > store_now_us(fix));
    assert_true(inbox_repark_row(
        store, "m", token,
        &(pr__inbox_park){
            .state = PR_STATE_FAILED, .attempts = 2, .retry_delay_ms = 60000, .error = "again"}));
    assert_true(inbox_find_row(store, "m", &row));
    assert_int_equal(row.state, PR_STATE_FAILED);
    assert_int_equal(row.attempts, 2);
    assert_string_equal(row.token, "");
    assert_int_equal(row.locked_until_us, 0);
    assert_false(
        inbox_repark_row(store, "m", token, &dead)); /* it was given back: the token is spent */
    assert_false(inbox_unpark_row(store, "m", token));
    assert_true(inbox_unpark_row(store, "m", NULL));
    assert_false(inbox_unpark_row(store, "m", NULL));
    pr__batch_free(batch);
}

void case_errors_are_kept_with_the_row(void **state)
{
    store_fixture *fix = *state;
    pr_store *store = store_at(fix, 0);
    assert_true(inbox_park_row(fix, "m", NULL, PR_STATE_FAILED, 0));
    check_sql(fix, "SELECT last_error FROM {p}_inbox_parked", "no account", "first");
    check_sql(fix, "SELECT first_failed_at IS NOT NULL FROM {p}_inbox_parked", "1", "first at");
    pr__batch *batch = inbox_claim_all(store);
    assert_true(inbox_repark_row(store, "m", batch->items[0].token,
                                 &(pr__inbox_park){.state = PR_STATE_HELD, .attempts = 1}));
    pr__batch_free(batch);
    check_sql(fix, "SELECT last_error FROM {p}_inbox_parked", "no account", "held keeps it");
    batch = inbox_claim_all(store);
    assert_non_null(batch);
    assert_true(inbox_repark_row(
        store, "m", batch->items[0].token,
        &(pr__inbox_park){.state = PR_STATE_DEAD, .attempts = 2, .error = "gone"}));
    pr__batch_free(batch);
    check_sql(fix, "SELECT last_error FROM {p}_inbox_parked", "gone", "newest wins");
    check_sql(fix, "SELECT state FROM {p}_inbox_state", "dead", "the view");
}

void case_a_live_lease_is_left_alone(void **state)
{
    store_fixture *fix = *state;
    assert_true(inbox_park_row(fix, "m", NULL, PR_STATE_FAILED, 0));
    pr__batch *batch = inbox_claim_all(store_at(fix, 0));
    assert_non_null(batch);
    assert_null(inbox_claim_all(store_at(fix, 1)));
    int64_t wait_ms = inbox_due_ms(store_at(fix, 1), PR_ORDER_HOLD);
    assert_true(wait_ms > LEASE_MS / 2 && wait_ms <= LEASE_MS);
    pass_ms(fix, LEASE_MS / 2);
    pr_error err = PR_ERROR_INIT;
    check_ok(pr__store_inbox_renew(store_at(fix, 0), CONSUMER, batch, LEASE_MS, &err), &err,
             "renew");
    assert_false(batch->items[0].fenced);
    pass_ms(fix, LEASE_MS * 3 / 4); /* beyond the first lease, within the renewed one */
    assert_null(inbox_claim_all(store_at(fix, 1)));
    pass_ms(fix, LEASE_MS / 2);
    pr__batch *taken = inbox_claim_all(store_at(fix, 1));
    assert_non_null(taken);
    pr__batch_free(taken);
    pr__batch_free(batch);
}

void case_a_takeover_fences_the_old_holder(void **state)
{
    store_fixture *fix = *state;
    pr__inbox_row row;
    assert_true(inbox_park_row(fix, "m", NULL, PR_STATE_FAILED, 0));
    pr__batch *old = inbox_claim_all(store_at(fix, 0));
    assert_non_null(old);
    pass_ms(fix, LEASE_MS + 1);
    assert_int_equal(inbox_due_ms(store_at(fix, 1), PR_ORDER_HOLD), 0);
    pr__batch *new = inbox_claim_all(store_at(fix, 1));
    assert_non_null(new);
    assert_string_not_equal(new->items[0].token, old->items[0].token);
    assert_int_equal(new->items[0].attempts, 1); /* a takeover is not charged */
    assert_false(new->items[0].poison);
    /* the old one wakes up: it can neither complete, fail, renew nor give back */
    assert_false(inbox_unpark_row(store_at(fix, 0), "m", old->items[0].token));
    assert_false(inbox_repark_row(store_at(fix, 0), "m", old->items[0].token,
                                  &(pr__inbox_park){.state = PR_STATE_DEAD}));
    pr_error err = PR_ERROR_INIT;
    check_ok(pr__store_inbox_renew(store_at(fix, 0), CONSUMER, old, LEASE_MS, &err), &err, "renew");
    assert_true(old->items[0].fenced);
    old->items[0].fenced = false;
    check_ok(pr__store_inbox_release(store_at(fix, 0), CONSUMER, old, &err), &err, "release");
    assert_true(old->items[0].fenced);
    assert_true(inbox_find_row(store_at(fix, 1), "m", &row));
    assert_string_equal(row.token, new->items[0].token);
    assert_int_equal(row.takeovers, 1);
    assert_true(inbox_unpark_row(store_at(fix, 1), "m", new->items[0].token));
    pr__batch_free(old);
    pr__batch_free(new);
}

void case_an_expired_lease_that_nobody_took_still_counts(void **state)
{
    store_fixture *fix = *state;
    assert_true(inbox_park_row(fix, "m", NULL, PR_STATE_FAILED, 0));
    pr__batch *batch = inbox_claim_all(store_at(fix, 0));
    assert_non_null(batch);
    pass_ms(fix, LEASE_MS * 2);
    assert_true(inbox_unpark_row(store_at(fix, 0), "m", batch->items[0].token));
    pr__batch_free(batch);
}

/* Claim and vanish: the lease runs out. */
static void crash_with(store_fixture *fix, const char *wanted, bool poison)
{
    char ids[32];
    pr__batch *batch = inbox_claim_all(store_at(fix, 0));
    assert_non_null(batch);
    assert_int_equal(batch->items[0].poison, poison);
    assert_string_equal(inbox_ids(batch, ids, sizeof ids), wanted);
    pass_ms(fix, LEASE_MS + 1);
}

void case_a_message_that_kills_its_holder_is_found(void **state)
{
    store_fixture *fix = *state;
    pr__inbox_row row;
    /* 2 kills whoever handles it; 1 was handled before that, and is gone */
    assert_true(inbox_park_row(fix, "1", NULL, PR_STATE_FAILED, 0));
    assert_true(inbox_park_row(fix, "2", NULL, PR_STATE_FAILED, 0));
    assert_true(inbox_park_row(fix, "3", NULL, PR_STATE_FAILED, 0));
    assert_true(inbox_park_row(fix, "4", "a", PR_STATE_HELD, 0));
    pr__batch *batch = inbox_claim_all(store_at(fix, 0));
    assert_int_equal(batch->item_count, 4);
    assert_true(inbox_unpark_row(store_at(fix, 0), "1", batch->items[0].token));
    pr__batch_free(batch);
    pass_ms(fix, LEASE_MS + 1);
    crash_with(fix, "2", false); /* alone; the others went back as they were */
    assert_true(inbox_find_row(store_at(fix, 0), "4", &row));
    assert_int_equal(row.state, PR_STATE_HELD);
    assert_int_equal(row.takeovers, 0);
    crash_with(fix, "2", false);
    pr__batch *third = inbox_claim_all(store_at(fix, 0)); /* the third takeover: a charge is due */
    assert_non_null(third);
    assert_int_equal(third->item_count, 1);
    assert_true(third->items[0].poison);
    assert_true(third->more);
    assert_true(inbox_repark_row(store_at(fix, 0), "2", third->items[0].token,
                                 &(pr__inbox_park){.state = PR_STATE_FAILED,
                                                   .attempts = third->items[0].attempts + 1,
                                                   .retry_delay_ms = 60000,
                                                   .error = "it killed its holder three times"}));
    pr__batch_free(third);
    assert_true(inbox_find_row(store_at(fix, 0), "2", &row));
    assert_int_equal(row.takeovers, 0);
    assert_int_equal(row.attempts, 2);
    batch = inbox_claim_all(store_at(fix, 0)); /* its neighbours: uncharged */
    assert_non_null(batch);
    assert_int_equal(batch->item_count, 2);
    assert_int_equal(batch->items[0].attempts, 1);
    assert_int_equal(batch->items[1].attempts, 0);
    assert_false(batch->items[0].poison);
    pr__batch_free(batch);
}

void case_a_processing_row_of_a_delivery_comes_back(void **state)
{
    store_fixture *fix = *state;
    static const char token[] = "0190aaaa-0000-7000-8000-000000000001";
    pr__inbox_key key = inbox_key_of("m");
    pr_message message = inbox_message("m", "a", "{}");
    const pr__inbox_park processing = {
        .state = PR_STATE_PUBLISHING, .token = token, .owner = "tester", .lease_ms = LEASE_MS};
    assert_true(inbox_park_message(store_at(fix, 0), &key, &message, &processing));
    assert_false(
        inbox_park_message(store_at(fix, 1), &key, &message, &processing)); /* a copy stands */
    assert_null(inbox_claim_all(store_at(fix, 1)));
    check_sql(fix, "SELECT state FROM {p}_inbox_state", "publishing", "the view");
    pass_ms(fix, LEASE_MS + 1);
    pr__batch *batch = inbox_claim_all(store_at(fix, 1));
    assert_non_null(batch);
    assert_int_equal(batch->items[0].attempts, 0);
    assert_false(inbox_unpark_row(store_at(fix, 0), "m", token));
    pr_error err = PR_ERROR_INIT;
    check_ok(pr__store_inbox_release(store_at(fix, 1), CONSUMER, batch, &err), &err, "release");
    pr__batch_free(batch);
    assert_int_equal(inbox_due_ms(store_at(fix, 0), PR_ORDER_HOLD), 0);
}

void case_what_is_given_back_is_as_it_was(void **state)
{
    store_fixture *fix = *state;
    pr__inbox_row row;
    assert_true(inbox_park_row(fix, "1", "a", PR_STATE_FAILED, 0));
    assert_true(inbox_park_row(fix, "2", "a", PR_STATE_HELD, 0));
    assert_true(inbox_park_row(fix, "3", "a", PR_STATE_HELD, 0));
    pr__batch *batch = inbox_claim_all(store_at(fix, 0));
    assert_non_null(batch);
    assert_int_equal(batch->item_count, 3);
    assert_true(inbox_unpark_row(store_at(fix, 0), "1", batch->items[0].token)); /* handled */
    batch->items[0].result = PR__RESULT_PUBLISHED;
    pr_error err = PR_ERROR_INIT;
    check_ok(pr__store_inbox_release(store_at(fix, 0), CONSUMER, batch, &err), &err, "release");
    for (uint32_t i = 0; i < 3; i++)
        assert_false(batch->items[i].fenced);
    pr__batch_free(batch);
    assert_false(inbox_find_row(store_at(fix, 0), "1", &row));
    assert_true(inbox_find_row(store_at(fix, 0), "2", &row));
    assert_int_equal(row.state, PR_STATE_HELD);
    assert_int_equal(row.attempts, 0);
    assert_string_equal(row.token, "");
    char ids[32];
    assert_string_equal(inbox_ids(inbox_claim_all(store_at(fix, 1)), ids, sizeof ids), "2,3");
}

void case_an_idle_consumer_waits_for_no_writer(void **state)
{
    store_fixture *fix = *state;
    pr_store *impatient = NULL;
    store_settings settings = {.busy_ms = 50};
    pr_error err = PR_ERROR_INIT;
    check_ok(fix->provider->open(fix->world, &settings, &impatient, &err), &err, "open");
    assert_true(inbox_park_row(fix, "m", NULL, PR_STATE_FAILED, 60000));
    pr_unit *writer = begin_unit(store_at(fix, 0));
    assert_int_equal(inbox_mark_in(writer, &inbox_base_key, "{}"), PR__MARK_NEW);
    assert_null(inbox_claim_all(impatient)); /* it looks, and takes no lock */
    assert_true(inbox_due_ms(impatient, PR_ORDER_HOLD) > 0);
    rollback_unit(writer);
    pr_store_free(impatient);
}

#define RETRIED 60

/* Claim and complete until nothing is left; how many were this child's. */
static int retry_all(store_fixture *fix, int n)
{
    (void)n;
    int done = 0;
    for (;;) {
        pr__batch *batch = inbox_claim_as(store_at(fix, 0), PR_ORDER_HOLD, 3);
        if (!batch)
            return done;
        for (uint32_t i = 0; i < batch->item_count; i++) {
            pr__inbox_key key = inbox_key_of(batch->items[i].message.id);
            bool deleted = false;
            pr_error err = PR_ERROR_INIT;
            pr_unit *unit = begin_unit(store_at(fix, 0));
            if (inbox_mark_in(unit, &key, "{}") != PR__MARK_NEW)
                fail_msg("handled twice: %s", key.message_id);
            check_ok(unit->ops->inbox_unpark(unit, &key, batch->items[i].token, &deleted, &err),
                     &err, key.message_id);
            if (!deleted)
                fail_msg("lost without a takeover: %s", key.message_id);
            commit_unit(unit);
            done++;
        }
        pr__batch_free(batch);
    }
}

void case_processes_share_the_retries(void **state)
{
    store_fixture *fix = *state;
    for (int i = 0; i < RETRIED; i++) {
        char id[16], key[16];
        pr__format(id, sizeof id, "m-%d", i);
        pr__format(key, sizeof key, "k-%d", i % 7);
        assert_true(inbox_park_row(fix, id, i % 3 ? key : NULL, PR_STATE_FAILED, 0));
    }
    close_stores(fix);
    int pids[3];
    int done = 0;
    for (int i = 0; i < 3; i++)
        pids[i] = start_child(fix, retry_all, i);
    for (int i = 0; i < 3; i++)
        done += child_result(pids[i]);
    char ids[64];
    /* a child may have left while another held the last of a key: they are due here */
    for (;;) {
        pr__batch *batch = inbox_claim_all(store_at(fix, 0));
        if (!batch)
            break;
        done += (int)batch->item_count;
        for (uint32_t i = 0; i < batch->item_count; i++)
            assert_true(inbox_unpark_row(store_at(fix, 0), batch->items[i].message.id,
                                         batch->items[i].token));
        inbox_ids(batch, ids, sizeof ids);
    }
    assert_int_equal(done, RETRIED);
    check_sql(fix, "SELECT count(*) FROM {p}_inbox_parked", "0", "none is left");
}
