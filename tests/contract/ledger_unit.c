/*
 * Units of work: capabilities 20 to 24 and 26.
 */
#include "contract/ledger_cases.h"

static pr_unit *begin(fixture *fix)
{
    pr_error err = PR_ERROR_INIT;
    pr_unit *unit = NULL;
    check_ok(pr_unit_begin(store_at(fix, 0), &unit, &err), &err, "begin");
    return unit;
}

static pr_unit *join(fixture *fix)
{
    pr_error err = PR_ERROR_INIT;
    pr_unit *unit = NULL;
    check_ok(fix->provider->host_join(host_of(fix), store_at(fix, 0), &unit, &err), &err, "join");
    return unit;
}

static void host(fixture *fix, const char *sql)
{
    if (!fix->provider->host_run(host_of(fix), sql))
        fail_msg("the host's statement: %s", sql);
}

static void enqueue_ok(pr_unit *unit, const pr_message *message, bool duplicate, const char *label)
{
    pr_error err = PR_ERROR_INIT;
    pr_enqueued enqueued = {0};
    check_ok(pr_unit_enqueue(unit, message, &enqueued, &err), &err, label);
    CHECK_CASE(enqueued.duplicate == duplicate, label);
}

void case_unit_begin_refused(void **state)
{
    fixture *fix = *state;
    pr_error err = PR_ERROR_INIT;
    pr_unit *second = NULL;
    pr_unit *unit = begin(fix);
    check_error(pr_unit_begin(store_at(fix, 0), &second, &err), &err, PR_E_STATE, "is open",
                "twice");
    pr_error_clear(&err);
    pr__batch *batch = NULL;
    pr__claim_options opt = claim_options(1, 10);
    check_error(pr__store_claim(store_at(fix, 0), &opt, &batch, &err), &err, PR_E_STATE,
                "transaction is open", "claim inside a unit");
    pr_unit_free(unit);
    unit = begin(fix); /* freed means rolled back: another may begin */
    pr_unit_free(unit);
}

void case_unit_join_refused(void **state)
{
    fixture *fix = *state;
    pr_error err = PR_ERROR_INIT;
    pr_unit *unit = NULL;
    check_error(fix->provider->host_join(host_of(fix), store_at(fix, 0), &unit, &err), &err,
                PR_E_STATE, "no transaction", "join without a transaction");
    assert_null(unit);
}

void case_unit_enqueue_needs_transaction(void **state)
{
    fixture *fix = *state;
    pr_error err = PR_ERROR_INIT;
    letter one = letter_to(fix, TO_BROKER, NULL);
    one.message.body = one.body;
    host(fix, "BEGIN");
    pr_unit *unit = join(fix);
    host(fix, "ROLLBACK");
    check_error(pr_unit_enqueue(unit, &one.message, NULL, &err), &err, PR_E_STATE, "no transaction",
                "after the host's rollback");
    pr_unit_free(unit);
    assert_int_equal(rows(fix, "outbox"), 0);

    unit = begin(fix);
    assert_true(fix->provider->unit_run(unit, "ROLLBACK"));
    pr_error_clear(&err);
    check_error(pr_unit_enqueue(unit, &one.message, NULL, &err), &err, PR_E_STATE,
                "rolled back by other", "after a rollback by other code");
    pr_unit_free(unit);

    unit = begin(fix);
    assert_true(fix->provider->unit_run(unit, "COMMIT"));
    assert_true(fix->provider->unit_run(unit, "BEGIN"));
    pr_error_clear(&err);
    check_error(pr_unit_enqueue(unit, &one.message, NULL, &err), &err, PR_E_STATE,
                "committed by other", "in another transaction than the unit's");
    assert_true(fix->provider->unit_run(unit, "ROLLBACK"));
    pr_unit_free(unit);
    assert_int_equal(rows(fix, "outbox"), 0);
}

void case_unit_commits_together(void **state)
{
    fixture *fix = *state;
    pr_error err = PR_ERROR_INIT;
    pr_outcome outcome = 0;
    letter one = letter_to(fix, TO_BROKER, NULL);
    one.message.body = one.body;
    pr_unit *unit = begin(fix);
    assert_true(fix->provider->unit_run(unit, "INSERT INTO orders VALUES (1)"));
    enqueue_ok(unit, &one.message, false, "own unit");
    assert_int_equal(rows(fix, "outbox"), 0); /* seen by nobody yet */
    check_ok(pr_unit_commit(unit, &outcome, &err), &err, "commit");
    assert_int_equal(outcome, PR_OUTCOME_COMMITTED);
    pr_unit_free(unit);
    assert_int_equal(rows(fix, "outbox"), 1);
    assert_int_equal(count(fix, "SELECT count(*) FROM orders"), 1);

    host(fix, "BEGIN");
    host(fix, "INSERT INTO orders VALUES (2)");
    unit = join(fix);
    enqueue_ok(unit, &one.message, false, "joined unit");
    host(fix, "COMMIT");
    check_ok(pr_unit_finished(unit, PR_OUTCOME_COMMITTED, &err), &err, "finished");
    pr_unit_free(unit);
    assert_int_equal(rows(fix, "outbox"), 2);
    assert_int_equal(count(fix, "SELECT count(*) FROM orders"), 2);
}

void case_unit_rolls_back_together(void **state)
{
    fixture *fix = *state;
    pr_error err = PR_ERROR_INIT;
    letter one = letter_to(fix, TO_BROKER, NULL);
    one.message.body = one.body;
    pr_unit *unit = begin(fix);
    assert_true(fix->provider->unit_run(unit, "INSERT INTO orders VALUES (1)"));
    enqueue_ok(unit, &one.message, false, "own unit");
    check_ok(pr_unit_rollback(unit, &err), &err, "rollback");
    pr_unit_free(unit);

    unit = begin(fix);
    enqueue_ok(unit, &one.message, false, "a unit that is dropped");
    pr_unit_free(unit);

    host(fix, "BEGIN");
    host(fix, "INSERT INTO orders VALUES (2)");
    unit = join(fix);
    enqueue_ok(unit, &one.message, false, "joined unit");
    host(fix, "ROLLBACK");
    check_ok(pr_unit_finished(unit, PR_OUTCOME_NOT_COMMITTED, &err), &err, "finished");
    pr_unit_free(unit);
    assert_int_equal(rows(fix, "outbox"), 0);
    assert_int_equal(count(fix, "SELECT count(*) FROM orders"), 0);
    assert_null(claim(fix, store_at(fix, 1), 1, 10));
}

void case_unit_copies(void **state)
{
    fixture *fix = *state;
    pr_error err = PR_ERROR_INIT;
    char body[] = "1";
    char key[] = "order-1";
    char type[] = TYPE_PLACED;
    pr_message message = PR_MESSAGE(.type = type, .key = key, .body = body, .body_size_bytes = 1,
                                    .destination = TO_BROKER);
    pr_unit *unit = begin(fix);
    enqueue_ok(unit, &message, false, "copy");
    body[0] = '9';
    key[0] = 'X';
    type[12] = 'X';
    check_ok(pr_unit_commit(unit, NULL, &err), &err, "commit");
    pr_unit_free(unit);
    pr__batch *batch = claim_some(fix, store_at(fix, 0), 1, 10);
    assert_int_equal(number_of(&batch->items[0]), 1);
    assert_string_equal(batch->items[0].message.key, "order-1");
    assert_string_equal(batch->items[0].message.type, TYPE_PLACED);
    pr__batch_free(batch);
}

#define OWN_ID "0190a5c0-7000-7abc-8def-0123456789ab"

void case_unit_same_id(void **state)
{
    fixture *fix = *state;
    static const char *const labels[] = {"at once", "delayed"};
    for (size_t i = 0; i < 2; i++) {
        pr_error err = PR_ERROR_INIT;
        const char *table = i ? "outbox_parked" : "outbox";
        int64_t now = 0;
        check_ok(pr__store_now(store_at(fix, 0), &now, &err), &err, labels[i]);
        pr_message message =
            PR_MESSAGE(.id = OWN_ID, .type = TYPE_PLACED, .body = "1", .body_size_bytes = 1,
                       .destination = TO_BROKER, .deliver_at_us = i ? now + 60000000 : 0);
        int64_t before = rows(fix, table);
        pr_unit *unit = begin(fix);
        enqueue_ok(unit, &message, false, labels[i]);
        enqueue_ok(unit, &message, true, labels[i]);
        message.id = "0190A5C0-7000-7ABC-8DEF-0123456789AB"; /* the same id, written otherwise */
        enqueue_ok(unit, &message, true, labels[i]);
        message.body = "2";
        check_error(pr_unit_enqueue(unit, &message, NULL, &err), &err, PR_E_CONFLICT,
                    "other content", labels[i]);
        pr_error_clear(&err);
        message.body = "1";
        message.type_version = 2;
        check_error(pr_unit_enqueue(unit, &message, NULL, &err), &err, PR_E_CONFLICT,
                    "other content", labels[i]);
        pr_error_clear(&err);
        check_ok(pr_unit_commit(unit, NULL, &err), &err, "unharmed");
        pr_unit_free(unit);
        CHECK_CASE(rows(fix, table) == before + 1, labels[i]);
    }
}

/* What stood before the unit began is another matter: the log is not unique by id. */
void case_unit_same_id_later(void **state)
{
    fixture *fix = *state;
    pr_message message = PR_MESSAGE(.id = OWN_ID, .type = TYPE_PLACED, .body = "1",
                                    .body_size_bytes = 1, .destination = TO_BROKER);
    post_message(fix, &message);
    post_message(fix, &message);
    assert_int_equal(rows(fix, "outbox"), 2);
}

void case_unit_same_id_savepoint(void **state)
{
    fixture *fix = *state;
    pr_error err = PR_ERROR_INIT;
    pr_message message = PR_MESSAGE(.id = OWN_ID, .type = TYPE_PLACED, .body = "1",
                                    .body_size_bytes = 1, .destination = TO_BROKER);
    host(fix, "BEGIN");
    pr_unit *unit = join(fix);
    host(fix, "SAVEPOINT a");
    enqueue_ok(unit, &message, false, "before the savepoint is rolled back");
    host(fix, "ROLLBACK TO SAVEPOINT a");
    message.body = "2"; /* what was rolled back is no conflict either */
    enqueue_ok(unit, &message, false, "after the savepoint was rolled back");
    enqueue_ok(unit, &message, true, "once more");
    host(fix, "COMMIT");
    check_ok(pr_unit_finished(unit, PR_OUTCOME_COMMITTED, &err), &err, "finished");
    pr_unit_free(unit);
    assert_int_equal(rows(fix, "outbox"), 1);
    pr__batch *batch = claim_some(fix, store_at(fix, 0), 1, 10);
    assert_int_equal(number_of(&batch->items[0]), 2);
    pr__batch_free(batch);
}

void case_unit_many_all_or_none(void **state)
{
    fixture *fix = *state;
    pr_error err = PR_ERROR_INIT;
    pr_message messages[3] = {
        PR_MESSAGE(.type = TYPE_PLACED, .body = "1", .body_size_bytes = 1),
        PR_MESSAGE(.id = OWN_ID, .type = TYPE_PLACED, .body = "2", .body_size_bytes = 1),
        PR_MESSAGE(.id = OWN_ID, .type = TYPE_PLACED, .body = "3", .body_size_bytes = 1)};
    pr_unit *unit = begin(fix);
    check_error(pr_unit_enqueue_many(unit, messages, 3, NULL, &err), &err, PR_E_CONFLICT,
                "message 2", "the third conflicts with the second");
    pr_error_clear(&err);
    enqueue_ok(unit, &messages[1], false, "nothing of the call stands");
    check_ok(pr_unit_commit(unit, NULL, &err), &err, "commit");
    pr_unit_free(unit);
    assert_int_equal(rows(fix, "outbox"), 1);
}
