/*
 * What operators change, on every store: redrive, discard, cancel, each with its audit row.
 */
#include <stdlib.h>
#include <unistd.h>

#include <postroom/contract.h>

#include "base/text.h"
#include "contract/operations_steps.h"
#include "contract/store_operations_cases.h"

#define DAY_MS INT64_C(86400000)

#define AUDITED                                                                                    \
    "SELECT who || ' ' || action || ' ' || reason || ' ' || count FROM {p}_audit "                 \
    "ORDER BY id DESC LIMIT 1"

void case_redrive_of_one_that_is_not_dead_is_refused(void **state)
{
    store_fixture *fix = *state;
    pr_redrive_options opt = redrive_one("0190aaaa-0000-7000-8000-000000000000");
    check_redrive_refused(fix, &opt, PR_E_NOT_FOUND, "there is no message", "missing");
    id_text delayed = post_message(
        fix, &(pr_message)PR_MESSAGE(.type = TYPE_PLACED, .body = "", .body_size_bytes = 0,
                                     .deliver_at_us = store_now_us(fix) + 3600000000));
    id_text published = post(fix, NULL, DESTINATION);
    settle_pending(fix, PR__RESULT_PUBLISHED, 0);
    id_text failed = post(fix, "a", DESTINATION);
    settle_pending(fix, PR__RESULT_FAILED, 60000);
    id_text held = post(fix, "a", DESTINATION);
    settle_pending(fix, PR__RESULT_OPEN, 0);
    id_text pending = post(fix, NULL, DESTINATION);
    const struct {
        const char *label, *id, *text;
    } cases[] = {
        {"delayed", delayed.id, "not dead"},       {"published", published.id, "not dead"},
        {"failed", failed.id, "failed, not dead"}, {"held", held.id, "held, not dead"},
        {"pending", pending.id, "not dead"},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        opt = redrive_one(cases[i].id);
        check_redrive_refused(fix, &opt, i == 0 ? PR_E_NOT_FOUND : PR_E_STATE,
                              i == 0 ? "there is no message" : cases[i].text, cases[i].label);
    }
    check_sql(fix, "SELECT count(*) FROM {p}_audit", "0", "nothing was done");
    assert_int_equal(fix->observed[PR_OBSERVE_REDRIVEN], 0);
}

void case_redrive_of_a_dead_one_makes_it_pending(void **state)
{
    store_fixture *fix = *state;
    id_text id = post_dead(fix, "a", DESTINATION);
    shown before = show(fix, id.id);
    assert_int_equal(before.record.state, PR_STATE_DEAD);
    assert_int_equal(before.record.attempts, 1);
    pass_ms(fix, 5000);
    pr_redrive_options opt = redrive_one(id.id);
    assert_int_equal(redrive(fix, &opt, "dead"), 1);
    shown after = show(fix, id.id);
    assert_int_equal(after.record.state, PR_STATE_PENDING);
    assert_int_equal(after.record.attempts, 0);
    assert_true(after.record.next_attempt_at_us <= store_now_us(fix));
    assert_int_equal(after.record.message.occurred_at_us, before.record.message.occurred_at_us);
    assert_string_equal(after.body, "{\"a\":1}");
    check_sql(fix, "SELECT state FROM {p}_outbox_state", "pending", "the view");
    check_sql(fix, AUDITED, "ada redrive mended 1", "audit");
    check_sql(
        fix,
        "SELECT count(*) FROM {p}_audit, {p}_outbox WHERE subject LIKE '%' || message_id || '%'",
        "1", "whom");
    assert_int_equal(fix->observed[PR_OBSERVE_REDRIVEN], 1);
    check_redrive_refused(fix, &opt, PR_E_STATE, "not dead", "again");
    assert_int_equal(settle_pending(fix, PR__RESULT_PUBLISHED, 0), 0); /* never by the log again */
    assert_int_equal(settle_parked(fix, PR__RESULT_PUBLISHED, 0), 1);
    assert_int_equal(show(fix, id.id).record.state, PR_STATE_PUBLISHED);
    check_sql(fix, "SELECT count(*) FROM {p}_audit", "1", "one row");
}

void case_a_redriven_one_has_all_its_retries_again(void **state)
{
    store_fixture *fix = *state;
    id_text id = post_dead(fix, NULL, DESTINATION);
    pr_redrive_options opt = redrive_one(id.id);
    assert_int_equal(redrive(fix, &opt, "dead"), 1);
    assert_int_equal(settle_parked(fix, PR__RESULT_FAILED, 60000), 1);
    shown got = show(fix, id.id);
    assert_int_equal(got.record.state, PR_STATE_FAILED);
    assert_int_equal(got.record.attempts, 1);
    assert_string_equal(got.last_error, "refused: no such book");
}

void case_redrive_by_filter(void **state)
{
    store_fixture *fix = *state;
    char ids[3][37];
    for (int i = 0; i < 3; i++)
        memcpy(ids[i], post_dead(fix, NULL, DESTINATION).id, 37);
    id_text elsewhere = post_dead(fix, NULL, "memory://in/mail");
    pr_message paid =
        PR_MESSAGE(.type = TYPE_PAID, .destination = DESTINATION, .body = "", .body_size_bytes = 0);
    id_text other_type = post_message(fix, &paid);
    settle_pending(fix, PR__RESULT_DEAD, 0);
    pr_redrive_options opt = redrive_where(TYPE_PLACED, DESTINATION);
    opt.dry_run = true;
    assert_int_equal(redrive(fix, &opt, "dry run"), 3);
    check_sql(fix, "SELECT count(*) FROM {p}_outbox_state WHERE state = 'dead'", "5", "dry run");
    check_sql(fix, "SELECT count(*) FROM {p}_audit", "0", "dry run");
    assert_int_equal(fix->observed[PR_OBSERVE_REDRIVEN], 0);
    opt.dry_run = false;
    opt.limit = 2;
    assert_int_equal(redrive(fix, &opt, "two, the oldest first"), 2);
    assert_int_equal(show(fix, ids[0]).record.state, PR_STATE_PENDING);
    assert_int_equal(show(fix, ids[1]).record.state, PR_STATE_PENDING);
    assert_int_equal(show(fix, ids[2]).record.state, PR_STATE_DEAD);
    check_sql(fix, AUDITED, "ada redrive mended 2", "audit");
    assert_int_equal(redrive(fix, &opt, "the rest"), 1);
    assert_int_equal(redrive(fix, &opt, "none is left"), 0);
    check_sql(fix, "SELECT count(*) FROM {p}_audit", "2", "nothing done, nothing written");
    assert_int_equal(show(fix, elsewhere.id).record.state, PR_STATE_DEAD);
    assert_int_equal(show(fix, other_type.id).record.state, PR_STATE_DEAD);
    opt = redrive_where(NULL, NULL);
    assert_int_equal(redrive(fix, &opt, "any"), 2);
    assert_int_equal(fix->observed[PR_OBSERVE_REDRIVEN], 5);
}

void case_redrive_by_filter_takes_a_hundred_and_knows_the_default_topic(void **state)
{
    store_fixture *fix = *state;
    pr_error err = PR_ERROR_INIT;
    pr_message message = PR_MESSAGE(.type = TYPE_PLACED, .body = "", .body_size_bytes = 0);
    pr_unit *unit = begin_unit(store_at(fix, 0));
    for (int i = 0; i < 120; i++)
        check_ok(pr_unit_enqueue(unit, &message, NULL, &err), &err, "enqueue");
    commit_unit(unit);
    while (settle_pending(fix, PR__RESULT_DEAD, 0) > 0)
        continue;
    pr_redrive_options opt = redrive_where(NULL, "database://topic/" TYPE_PAID);
    assert_int_equal(redrive(fix, &opt, "of another type"), 0);
    opt = redrive_where(NULL, "database://topic/" TYPE_PLACED);
    assert_int_equal(redrive(fix, &opt, "a hundred"), 100);
    check_sql(fix, "SELECT count(*) FROM {p}_outbox_state WHERE state = 'dead'", "20", "left");
    check_sql(fix,
              "SELECT max(log_id) < (SELECT min(log_id) FROM {p}_outbox_state WHERE state = "
              "'dead') FROM {p}_outbox_state WHERE state = 'pending'",
              "1", "oldest first");
    opt.limit = 1000;
    assert_int_equal(redrive(fix, &opt, "the others"), 20);
}

static int redrive_in_child(store_fixture *fix, int n)
{
    (void)n;
    char id[64] = "";
    pr_error err = PR_ERROR_INIT;
    check_ok(
        fix->provider->ask(fix->world, "SELECT message_id FROM {p}_outbox", id, sizeof id, &err),
        &err, "id");
    pr_redrive_options opt = redrive_one(id);
    pr_status status = pr_operations_redrive(store_at(fix, 0), &opt, NULL, &err);
    if (status != PR_OK && status != PR_E_STATE)
        fail_msg("%s", err.message);
    return status == PR_OK;
}

void case_of_two_redrives_at_once_one_succeeds(void **state)
{
    store_fixture *fix = *state;
    post_dead(fix, NULL, DESTINATION);
    close_stores(fix);
    for (int round = 0; round < 3; round++) {
        int pids[4], succeeded = 0;
        for (int i = 0; i < 4; i++)
            pids[i] = start_child(fix, redrive_in_child, i);
        for (int i = 0; i < 4; i++)
            succeeded += child_result(pids[i]);
        assert_int_equal(succeeded, 1);
        assert_int_equal(settle_parked(fix, PR__RESULT_DEAD, 0), 1);
        close_stores(fix);
    }
    check_sql(fix, "SELECT count(*) FROM {p}_audit", "3", "audit");
}

void case_what_is_older_than_the_inbox_remembers_needs_force(void **state)
{
    store_fixture *fix = *state;
    pr_message message =
        PR_MESSAGE(.type = TYPE_PLACED, .destination = DESTINATION, .body = "",
                   .body_size_bytes = 0, .occurred_at_us = store_now_us(fix) - 31 * DAY_MS * 1000);
    id_text old = post_message(fix, &message);
    settle_pending(fix, PR__RESULT_DEAD, 0);
    pr_redrive_options opt = redrive_one(old.id);
    check_redrive_refused(fix, &opt, PR_E_STATE, "older than the inbox remembers (30 d", "old");
    opt.dry_run = true;
    check_redrive_refused(fix, &opt, PR_E_STATE, "may run again", "old, dry run");
    opt = redrive_where(NULL, NULL);
    check_redrive_refused(fix, &opt, PR_E_STATE, "the 1 dead", "old, by filter");
    id_text young = post_dead(fix, NULL, DESTINATION);
    assert_int_equal(redrive(fix, &opt, "the young one"), 1);
    assert_int_equal(show(fix, young.id).record.state, PR_STATE_PENDING);
    assert_int_equal(show(fix, old.id).record.state, PR_STATE_DEAD);
    run_sql(fix,
            "INSERT INTO {p}_setting (name, value) VALUES ('inbox_retention_ms', '3456000000')");
    opt = redrive_one(old.id);
    opt.dry_run = true;
    assert_int_equal(redrive(fix, &opt, "an inbox that remembers 40 days"), 1);
    run_sql(fix, "DELETE FROM {p}_setting WHERE name = 'inbox_retention_ms'");
    opt.dry_run = false;
    opt.force = true;
    assert_int_equal(redrive(fix, &opt, "forced"), 1);
    assert_int_equal(show(fix, old.id).record.state, PR_STATE_PENDING);
    check_sql(fix,
              "SELECT subject LIKE '%\"forced\":true%' FROM {p}_audit ORDER BY id DESC LIMIT 1",
              "1", "audit");
}

void case_what_no_contract_describes_is_not_redriven(void **state)
{
    store_fixture *fix = *state;
    static const pr_contract paid = {.size = (uint32_t)sizeof paid,
                                     .type_version = 1,
                                     .type = TYPE_PAID,
                                     .kind = PR_CONTRACT_DOMAIN_EVENT,
                                     .flags = PR_CONTRACT_RAW};
    static const pr_contract placed_v1 = {.size = (uint32_t)sizeof placed_v1,
                                          .type_version = 1,
                                          .type = TYPE_PLACED,
                                          .kind = PR_CONTRACT_DOMAIN_EVENT,
                                          .flags = PR_CONTRACT_RAW};
    pr_contracts *contracts = NULL;
    pr_error err = PR_ERROR_INIT;
    check_ok(pr_contracts_new(&contracts, &err), &err, "contracts");
    check_ok(pr_contracts_register(contracts, &paid, &err), &err, "paid");
    id_text id = post_dead(fix, NULL, DESTINATION);
    pr_redrive_options opt = redrive_one(id.id);
    opt.contracts = contracts;
    check_redrive_refused(fix, &opt, PR_E_STATE, "not registered", "by id");
    opt = redrive_where(NULL, NULL);
    opt.contracts = contracts;
    check_redrive_refused(fix, &opt, PR_E_STATE, "not registered", "by filter");
    assert_int_equal(show(fix, id.id).record.state, PR_STATE_DEAD);
    check_ok(pr_contracts_register(contracts, &placed_v1, &err), &err, "placed");
    assert_int_equal(redrive(fix, &opt, "registered"), 1);
    pr_contracts_free(contracts);
}

void case_an_inbox_redrive_goes_to_its_consumer_alone(void **state)
{
    store_fixture *fix = *state;
    pr_error err = PR_ERROR_INIT;
    park_at(fix, "billing", "m-1", NULL, PR_STATE_DEAD);
    park_at(fix, "mail", "m-1", NULL, PR_STATE_DEAD);
    park_at(fix, "billing", "m-2", NULL, PR_STATE_FAILED);
    pr_redrive_options opt = redrive_one("m-404");
    opt.box = PR_BOX_INBOX;
    opt.consumer = "billing";
    check_redrive_refused(fix, &opt, PR_E_NOT_FOUND, "no message \"m-404\" at \"billing\"", "none");
    opt.message_id = "m-2";
    check_redrive_refused(fix, &opt, PR_E_STATE, "failed, not dead", "failed");
    opt.message_id = "m-1";
    assert_int_equal(redrive(fix, &opt, "dead"), 1);
    check_sql(fix,
              "SELECT state FROM {p}_inbox_state WHERE consumer = 'billing' AND message_id = "
              "'m-1'",
              "pending", "the view");
    check_sql(fix, "SELECT state FROM {p}_inbox_state WHERE consumer = 'mail'", "dead", "mail's");
    check_redrive_refused(fix, &opt, PR_E_STATE, "not dead", "again");
    pr__inbox_claim_options claim = {.consumer = "billing",
                                     .owner = "e",
                                     .lease_ms = 1000,
                                     .batch_max = 10,
                                     .order = PR_ORDER_HOLD};
    pr__batch *batch = NULL;
    check_ok(pr__store_inbox_claim(store_at(fix, 1), &claim, &batch, &err), &err, "claim");
    assert_non_null(batch);
    assert_int_equal(batch->item_count, 1);
    assert_string_equal(batch->items[0].message.id, "m-1");
    assert_int_equal(batch->items[0].attempts, 0);
    pr__batch_free(batch);
    check_redrive_refused(fix, &opt, PR_E_STATE, "processing, not dead", "at work");
    opt.message_id = NULL;
    opt.consumer = "mail";
    assert_int_equal(redrive(fix, &opt, "by filter"), 1);
}

void case_an_inbox_redrive_is_no_second_effect(void **state)
{
    store_fixture *fix = *state;
    pr_redrive_options opt = redrive_one("m-1");
    opt.box = PR_BOX_INBOX;
    opt.consumer = "billing";
    /* a mark beside a dead row cannot come about; were it there, the row must not run */
    park_at(fix, "billing", "m-1", NULL, PR_STATE_DEAD);
    run_sql(fix, "INSERT INTO {p}_inbox SELECT tenant, consumer, message_id, body_hash, 1 FROM "
                 "{p}_inbox_parked");
    check_redrive_refused(fix, &opt, PR_E_STATE, "was handled already; discard it", "marked");
    run_sql(fix, "DELETE FROM {p}_inbox");
    run_sql(fix, "UPDATE {p}_inbox_parked SET occurred_at = first_failed_at - 2592000000001");
    check_redrive_refused(fix, &opt, PR_E_STATE, "older than the inbox remembers", "swept");
    run_sql(fix, "UPDATE {p}_inbox_parked SET occurred_at = first_failed_at - 2592000000000");
    pass_ms(fix, 1000); /* beside a parked row a mark is neither made nor swept */
    assert_int_equal(redrive(fix, &opt, "exactly as old"), 1);
}

void case_a_subscriptions_dead_letter_is_redriven_by_its_name(void **state)
{
    store_fixture *fix = *state;
    const char *const destinations[] = {"local://in/books"};
    pr__reader_spec spec = {.name = "books", .destinations = destinations, .destination_count = 1};
    int64_t reader = 0;
    pr_error err = PR_ERROR_INIT;
    check_ok(pr__store_reader_open(store_at(fix, 0), &spec, &reader, &err), &err, "reader");
    id_text id = post(fix, NULL, "local://in/books");
    pr__claim_options opt = {.reader = reader,
                             .lease_ms = LONG_LEASE_MS,
                             .batch_max = 10,
                             .bytes_max = 1024 * 1024,
                             .owner = "endpoint-a"};
    pr__batch *batch = NULL;
    pr__settle_report report;
    check_ok(pr__store_claim(store_at(fix, 0), &opt, &batch, &err), &err, "claim");
    assert_non_null(batch);
    batch->items[0].result = PR__RESULT_DEAD;
    pr__batch_set_error(batch, &batch->items[0], "rejected");
    pr__batch_close(batch);
    check_ok(pr__store_settle(store_at(fix, 0), batch, NULL, &report, NULL, &err), &err, "settle");
    pr__batch_free(batch);
    pr_redrive_options redriven = redrive_one(id.id);
    check_redrive_refused(fix, &redriven, PR_E_STATE, "pending or published, not dead",
                          "the relay's");
    redriven.consumer = "nobody";
    check_redrive_refused(fix, &redriven, PR_E_NOT_FOUND, "no subscription \"nobody\"", "nobody");
    redriven.consumer = "books";
    assert_int_equal(redrive(fix, &redriven, "books"), 1);
    check_ok(pr__store_claim_parked(store_at(fix, 0), &opt, &batch, &err), &err, "claim");
    assert_non_null(batch);
    assert_string_equal(batch->items[0].message.id, id.id);
    batch->items[0].result = PR__RESULT_DEAD;
    pr__batch_close(batch);
    check_ok(pr__store_settle(store_at(fix, 0), batch, NULL, &report, NULL, &err), &err, "settle");
    pr__batch_free(batch);
    check_ok(pr_operations_discard(store_at(fix, 0), id.id, "books", OPERATOR, REASON, &err), &err,
             "discard");
    check_sql(fix, "SELECT count(*) FROM {p}_outbox_parked", "0", "its copy is gone");
    check_sql(fix, "SELECT count(*) FROM {p}_outbox", "1", "the log stays for other readers");
}

/* ---- discard, cancel ---- */

static void check_discard_refused(store_fixture *fix, const char *id, const char *consumer,
                                  pr_status wanted, const char *text, const char *label)
{
    pr_error err = PR_ERROR_INIT;
    check_error(pr_operations_discard(store_at(fix, 0), id, consumer, OPERATOR, REASON, &err), &err,
                wanted, text, label);
}

void case_discard_of_an_outbox_message(void **state)
{
    store_fixture *fix = *state;
    pr_error err = PR_ERROR_INIT;
    id_text failed = post(fix, NULL, DESTINATION);
    settle_pending(fix, PR__RESULT_FAILED, 60000);
    id_text published = post(fix, NULL, DESTINATION);
    settle_pending(fix, PR__RESULT_PUBLISHED, 0);
    id_text dead = post_dead(fix, NULL, DESTINATION);
    check_discard_refused(fix, "0190aaaa-0000-7000-8000-000000000000", NULL, PR_E_NOT_FOUND,
                          "there is no message", "missing");
    check_discard_refused(fix, failed.id, NULL, PR_E_STATE, "failed, not dead", "failed");
    check_discard_refused(fix, published.id, NULL, PR_E_STATE, "not dead", "published");
    check_sql(fix, "SELECT count(*) FROM {p}_outbox", "3", "untouched");
    check_ok(pr_operations_discard(store_at(fix, 0), dead.id, NULL, OPERATOR, REASON, &err), &err,
             "dead");
    check_sql(fix, "SELECT count(*) FROM {p}_outbox", "2", "gone");
    check_sql(fix, "SELECT count(*) FROM {p}_outbox_state WHERE state = 'published'", "1",
              "it does not count as published");
    check_sql(fix, AUDITED, "ada discard mended 1", "audit");
    assert_int_equal(fix->observed[PR_OBSERVE_DISCARDED], 1);
    check_discard_refused(fix, dead.id, NULL, PR_E_NOT_FOUND, "there is no message", "again");
    check_error(pr_operations_explain(store_at(fix, 0), dead.id,
                                      &(pr_explanation){.size = (uint32_t)sizeof(pr_explanation)},
                                      &err),
                &err, PR_E_NOT_FOUND, "was discarded by \"ada\"", "explain");
}

void case_discard_of_an_inbox_message_leaves_its_mark(void **state)
{
    store_fixture *fix = *state;
    pr_error err = PR_ERROR_INIT;
    park_at(fix, "billing", "m-1", NULL, PR_STATE_DEAD);
    park_at(fix, "mail", "m-1", NULL, PR_STATE_DEAD);
    park_at(fix, "billing", "m-2", NULL, PR_STATE_FAILED);
    check_discard_refused(fix, "m-2", "billing", PR_E_STATE, "failed, not dead", "failed");
    check_discard_refused(fix, "m-404", "billing", PR_E_NOT_FOUND, "no dead message", "missing");
    check_ok(pr_operations_discard(store_at(fix, 0), "m-1", "billing", OPERATOR, REASON, &err),
             &err, "dead");
    check_sql(fix, "SELECT count(*) FROM {p}_inbox_parked WHERE message_id = 'm-1'", "1", "mail's");
    check_sql(fix, AUDITED, "ada discard mended 1", "audit");
    pr__inbox_key key = {.tenant = "", .consumer = "billing", .message_id = "m-1"};
    uint8_t hash[PR_CONTENT_HASH_SIZE];
    pr__mark mark = 0;
    pr__content_hash(TYPE_PLACED, 1, "{\"b\":2}", 7, hash);
    pr_unit *unit = begin_unit(store_at(fix, 0));
    check_ok(unit->ops->inbox_mark(unit, &key, hash, &mark, &err), &err, "late duplicate");
    rollback_unit(unit);
    assert_int_equal(mark, PR__MARK_DONE);
    check_discard_refused(fix, "m-1", "billing", PR_E_NOT_FOUND, "no dead message", "again");
}

void case_cancel_of_a_delayed_message(void **state)
{
    store_fixture *fix = *state;
    pr_error err = PR_ERROR_INIT;
    pr_store *store = store_at(fix, 0);
    pr_message message = PR_MESSAGE(.type = TYPE_PLACED, .body = "", .body_size_bytes = 0,
                                    .deliver_at_us = store_now_us(fix) + 60000000);
    id_text first = post_message(fix, &message);
    id_text second = post_message(fix, &message);
    check_error(
        pr_operations_cancel(store, "0190aaaa-0000-7000-8000-000000000000", OPERATOR, REASON, &err),
        &err, PR_E_NOT_FOUND, "there is no message", "missing");
    err = (pr_error)PR_ERROR_INIT;
    check_ok(pr_operations_cancel(store, first.id, OPERATOR, REASON, &err), &err, "delayed");
    check_sql(fix, AUDITED, "ada cancel mended 1", "audit");
    check_error(pr_operations_cancel(store, first.id, OPERATOR, REASON, &err), &err, PR_E_NOT_FOUND,
                "there is no message", "again");
    pass_ms(fix, 60001);
    uint32_t promoted = 0;
    int64_t next_ms = 0;
    err = (pr_error)PR_ERROR_INIT;
    check_ok(pr__store_promote(store, 10, &promoted, &next_ms, &err), &err, "promote");
    assert_int_equal(promoted, 1);
    check_error(pr_operations_cancel(store, second.id, OPERATOR, REASON, &err), &err, PR_E_STATE,
                "not delayed any more", "promoted");
    check_sql(fix, "SELECT count(*) FROM {p}_audit", "1", "one was done");
}
