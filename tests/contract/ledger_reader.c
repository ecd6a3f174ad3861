/*
 * Readers of the log: who takes which message, where a new one starts, and that none comes again.
 */
#include "contract/ledger_cases.h"

void case_reader_relay_passes_local(void **state)
{
    fixture *fix = *state;
    post_many(fix, 5, TO_LOCAL, NULL); /* 1 to 5 */
    pr__batch *batch = claim_some(fix, store_at(fix, 0), 1, 10);
    assert_int_equal(batch->item_count, 0); /* passed over, and pos has moved */
    assert_int_equal(batch->passed_count, 5);
    pr__batch_free(batch);
    assert_int_equal(count(fix, "SELECT sum(passed) FROM {t}outbox_claim WHERE reader = 1"), 5);
    assert_null(claim(fix, store_at(fix, 0), 1, 10));
    post(fix, NULL, NULL); /* 6: the default transport is `database` */
    batch = claim_some(fix, store_at(fix, 0), 1, 10);
    assert_int_equal(number_of(&batch->items[0]), 6);
    assert_string_equal(batch->items[0].message.destination, "database://topic/" TYPE_PLACED);
    pr__batch_free(batch);
}

void case_reader_default_local(void **state)
{
    fixture *fix = *state;
    pr_error err = PR_ERROR_INIT;
    pr_migrate_options opt = {.size = (uint32_t)sizeof opt, .default_transport = "local"};
    check_ok(pr_store_migrate(store_at(fix, 0), &opt, NULL, &err), &err, "setting");
    int64_t reader =
        open_reader(fix, store_at(fix, 0), "topic", "local://topic/" TYPE_PLACED, PR_ORDER_HOLD);
    post(fix, NULL, NULL);
    pr__batch *batch = claim_some(fix, store_at(fix, 0), 1, 10);
    assert_int_equal(batch->item_count, 0);
    pr__batch_free(batch);
    batch = claim_some(fix, store_at(fix, 0), reader, 10);
    assert_int_equal(batch->item_count, 1);
    assert_string_equal(batch->items[0].message.destination, "local://topic/" TYPE_PLACED);
    pr__batch_free(batch);
    assert_int_equal(in_state(fix, 1, "pending"), 0); /* it is no message of the relay */
    assert_int_equal(in_state(fix, reader, "publishing"), 1);
}

void case_reader_filter_after_limits(void **state)
{
    fixture *fix = *state;
    int64_t reader = open_reader(fix, store_at(fix, 0), "billing", TO_LOCAL, PR_ORDER_HOLD);
    for (int i = 0; i < 10; i++) {
        post_many(fix, 9, TO_BROKER, NULL);
        post(fix, TO_LOCAL, NULL);
    }
    uint32_t got = 0;
    uint32_t passed = 0;
    int claims = 0;
    for (pr__batch *batch = claim(fix, store_at(fix, 0), reader, 7); batch;
         batch = claim(fix, store_at(fix, 0), reader, 7)) {
        assert_true(batch->item_count + batch->passed_count <= 7);
        got += batch->item_count;
        passed += batch->passed_count;
        claims++;
        for (uint32_t i = 0; i < batch->item_count; i++)
            assert_string_equal(batch->items[i].message.destination, TO_LOCAL);
        set_all(batch, PR__RESULT_PUBLISHED);
        settle_free(fix, store_at(fix, 0), batch);
    }
    assert_int_equal(got, 10);
    assert_int_equal(passed, 90);
    assert_true(claims >= 15);
    assert_int_equal(in_state(fix, reader, "published"), 10);
    assert_int_equal(in_state(fix, 1, "pending"), 90);
}

void case_reader_starts_at_the_end(void **state)
{
    fixture *fix = *state;
    post_many(fix, 20, TO_LOCAL, NULL);
    int64_t reader = open_reader(fix, store_at(fix, 0), "billing", TO_LOCAL, PR_ORDER_HOLD);
    assert_null(claim(fix, store_at(fix, 0), reader, 100));
    uint32_t number = post(fix, TO_LOCAL, NULL);
    pr__batch *batch = claim_some(fix, store_at(fix, 0), reader, 100);
    assert_int_equal(batch->item_count, 1);
    assert_int_equal(number_of(&batch->items[0]), number);
    pr__batch_free(batch);
}

void case_reader_found_again(void **state)
{
    fixture *fix = *state;
    pr_error err = PR_ERROR_INIT;
    const char *both[] = {"local://in/billing", "local://topic/" TYPE_PLACED};
    const char *turned[] = {both[1], both[0], both[1]};
    pr__reader_spec spec = {.name = "billing", .destinations = both, .destination_count = 2};
    int64_t first = 0;
    int64_t second = 0;
    check_ok(pr__store_reader_open(store_at(fix, 0), &spec, &first, &err), &err, "new");
    assert_true(first > 1);
    spec.destinations = turned; /* the same set, in another order and with a double */
    spec.destination_count = 3;
    check_ok(pr__store_reader_open(store_at(fix, 1), &spec, &second, &err), &err, "again");
    assert_true(second == first);
    spec.destination_count = 1;
    check_error(pr__store_reader_open(store_at(fix, 1), &spec, &second, &err), &err, PR_E_CONFLICT,
                "'billing'", "other destinations");
    bool exists = false;
    pr_error_clear(&err);
    check_ok(pr__store_reader_exists(store_at(fix, 0), both[0], &exists, &err), &err, "exists");
    assert_true(exists);
    check_ok(pr__store_reader_exists(store_at(fix, 0), "local://in/x", &exists, &err), &err, "not");
    assert_false(exists);
    check_ok(pr__store_reader_find(store_at(fix, 1), "billing", &second, &err), &err, "find");
    assert_true(second == first);
    check_ok(pr__store_reader_find(store_at(fix, 1), "x", &second, &err), &err, "find nothing");
    assert_int_equal(second, 0);
}

void case_reader_number_never_again(void **state)
{
    fixture *fix = *state;
    pr_error err = PR_ERROR_INIT;
    int64_t first = open_reader(fix, store_at(fix, 0), "billing", TO_LOCAL, PR_ORDER_HOLD);
    post(fix, TO_LOCAL, NULL);
    pr__batch *batch = claim_some(fix, store_at(fix, 0), first, 10);
    check_ok(pr__store_reader_drop(store_at(fix, 1), first, &err), &err, "drop");
    check_error(pr__store_reader_drop(store_at(fix, 1), first, &err), &err, PR_E_NOT_FOUND,
                "no reader", "twice");
    int64_t second = open_reader(fix, store_at(fix, 1), "billing", TO_LOCAL, PR_ORDER_HOLD);
    assert_true(second > first);
    set_all(batch, PR__RESULT_PUBLISHED); /* the zombie of the dropped one */
    pr__settle_report report = settle_free(fix, store_at(fix, 0), batch);
    assert_int_equal(report.fenced_slices, 1);
    assert_int_equal(report.published, 0);
    pr_error_clear(&err);
    check_error(pr__store_reader_drop(store_at(fix, 0), 1, &err), &err, PR_E_INVALID, "relay",
                "the relay's own");
}

void case_reader_temporary(void **state)
{
    fixture *fix = *state;
    pr_error err = PR_ERROR_INIT;
    const char *to = TO_LOCAL;
    pr__reader_spec spec = {.name = "reply",
                            .destinations = &to,
                            .destination_count = 1,
                            .temporary = true,
                            .expiry_ms = 10000};
    int64_t reader = 0;
    int64_t other = 0;
    bool exists = false;
    check_ok(pr__store_reader_open(store_at(fix, 0), &spec, &reader, &err), &err, "open");
    for (int i = 0; i < 3; i++) {
        pass_ms(fix, 9999);
        check_ok(pr__store_reader_keep(store_at(fix, 0), reader, &err), &err, "keep");
    }
    pass_ms(fix, 10000);
    check_error(pr__store_reader_keep(store_at(fix, 0), reader, &err), &err, PR_E_NOT_FOUND, "gone",
                "expired");
    pr_error_clear(&err);
    check_ok(pr__store_reader_exists(store_at(fix, 0), to, &exists, &err), &err, "exists");
    assert_false(exists);
    check_ok(pr__store_reader_find(store_at(fix, 0), "reply", &other, &err), &err, "find");
    assert_int_equal(other, 0);
    pr__claim_options opt = claim_options(reader, 10);
    pr__batch *batch = NULL;
    check_error(pr__store_claim(store_at(fix, 0), &opt, &batch, &err), &err, PR_E_NOT_FOUND, "gone",
                "claim of an expired one");
    pr_error_clear(&err);
    check_ok(pr__store_reader_open(store_at(fix, 0), &spec, &other, &err), &err, "a new one");
    assert_true(other > reader);
}

void case_reader_orders_apart(void **state)
{
    fixture *fix = *state;
    pr_error err = PR_ERROR_INIT;
    int64_t reader = open_reader(fix, store_at(fix, 0), "billing", TO_LOCAL, PR_ORDER_SKIP);
    post(fix, TO_LOCAL, NULL);
    pr__batch *batch = claim_some(fix, store_at(fix, 0), reader, 10);
    assert_int_equal(batch->order, PR_ORDER_SKIP);
    set_all(batch, PR__RESULT_PUBLISHED);
    settle_free(fix, store_at(fix, 0), batch);
    check_ok(pr__store_reader_set_order(store_at(fix, 0), reader, PR_ORDER_HALT, &err), &err,
             "set");
    post_many(fix, 2, TO_LOCAL, NULL);
    batch = claim_some(fix, store_at(fix, 1), reader, 10);
    assert_int_equal(batch->order, PR_ORDER_HALT);
    pr__batch_free(batch);
    check_error(pr__store_reader_set_order(store_at(fix, 0), 77, PR_ORDER_HALT, &err), &err,
                PR_E_NOT_FOUND, "no reader", "no such reader");
}
