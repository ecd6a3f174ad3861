/*
 * What operators read, on every store: counts, lists, one message, why it is not moving. What they
 * change is in store_redrive_contract.c.
 */
#include <stdlib.h>

#include "base/text.h"
#include "contract/operations_steps.h"
#include "contract/store_operations_cases.h"
#include "port/state.h"

#define VIEWED_IDS                                                                                 \
    "SELECT coalesce(group_concat(message_id), '') FROM (SELECT message_id FROM {p}_outbox_state " \
    "WHERE reader = 1 AND state = '%s' ORDER BY log_id) AS t"

/* One message at least in each state of the outbox. */
static void fill_outbox(store_fixture *fix)
{
    pr_error err = PR_ERROR_INIT;
    settle_pending(fix, PR__RESULT_PUBLISHED, 0);
    post(fix, NULL, "local://in/nobody"); /* none of the relay's */
    for (int i = 0; i < 3; i++)
        post(fix, NULL, DESTINATION);
    settle_pending(fix, PR__RESULT_PUBLISHED, 0);
    post(fix, "a", DESTINATION);
    settle_pending(fix, PR__RESULT_FAILED, 60000);
    post(fix, "a", DESTINATION);
    post(fix, "a", DESTINATION);
    settle_pending(fix, PR__RESULT_OPEN, 0); /* held behind the first */
    post_dead(fix, NULL, DESTINATION);
    post_dead(fix, NULL, NULL);
    id_text redriven = post_dead(fix, NULL, DESTINATION);
    pr_redrive_options opt = redrive_one(redriven.id);
    redrive(fix, &opt, "redrive");
    pr_message delayed = PR_MESSAGE(.type = TYPE_PLACED, .body = "", .body_size_bytes = 0,
                                    .deliver_at_us = store_now_us(fix) + 60000000);
    post_message(fix, &delayed);
    post_message(fix, &delayed);
    for (int i = 0; i < 4; i++)
        post(fix, NULL, DESTINATION);
    settle_pending(fix, PR__RESULT_OPEN, 0); /* rest: pending */
    for (int i = 0; i < 5; i++)
        post(fix, NULL, DESTINATION);
    pr__batch *batch = NULL;
    pr__claim_options claim = {.reader = PR_READER_RELAY,
                               .lease_ms = LONG_LEASE_MS,
                               .batch_max = 3,
                               .bytes_max = 1024 * 1024,
                               .owner = "relay-b"};
    check_ok(pr__store_claim(store_at(fix, 1), &claim, &batch, &err), &err, "claim");
    assert_non_null(batch);
    pr__batch_free(batch); /* its holder is gone: they stay publishing */
    post(fix, NULL, "local://in/nobody");
}

static void fill_inbox(store_fixture *fix)
{
    static const pr_state states[] = {PR_STATE_DEAD, PR_STATE_FAILED, PR_STATE_HELD,
                                      PR_STATE_PUBLISHING};
    pr_error err = PR_ERROR_INIT;
    for (int i = 0; i < 8; i++) {
        char id[16];
        pr__format(id, sizeof id, "m-%d", i);
        park_at(fix, i % 3 ? "billing" : "mail", id, i % 2 ? "k" : NULL, states[i % 4]);
    }
    pr_redrive_options opt = redrive_one("m-4");
    opt.box = PR_BOX_INBOX;
    opt.consumer = "billing";
    redrive(fix, &opt, "redrive");
    pr_unit *unit = begin_unit(store_at(fix, 0));
    for (int i = 0; i < 5; i++) {
        char id[16];
        uint8_t hash[PR_CONTENT_HASH_SIZE] = {0};
        pr__mark mark = 0;
        pr__format(id, sizeof id, "done-%d", i);
        pr__inbox_key key = {.tenant = "", .consumer = "billing", .message_id = id};
        check_ok(unit->ops->inbox_mark(unit, &key, hash, &mark, &err), &err, id);
    }
    commit_unit(unit);
}

static pr_status_report status_of(store_fixture *fix)
{
    pr_status_report report = {.size = (uint32_t)sizeof report};
    pr_error err = PR_ERROR_INIT;
    check_ok(pr_operations_status(store_at(fix, 0), &report, &err), &err, "status");
    return report;
}

void case_counts_are_those_of_the_views(void **state)
{
    store_fixture *fix = *state;
    fill_outbox(fix);
    fill_inbox(fix);
    pr_status_report report = status_of(fix);
    for (int i = PR_STATE_PENDING; i < PR_STATE_COUNT; i++) {
        char sql[160], wanted[24];
        const char *name = pr__state_text((pr_state)i);
        pr__format(sql, sizeof sql,
                   "SELECT count(*) FROM {p}_outbox_state WHERE reader = 1 AND state = '%s'", name);
        pr__format(wanted, sizeof wanted, "%llu", (unsigned long long)report.outbox[i]);
        check_sql(fix, sql, wanted, name);
        CHECK_CASE(report.outbox[i] > 0, name);
        pr__format(sql, sizeof sql, "SELECT count(*) FROM {p}_inbox_state WHERE state = '%s'",
                   name);
        pr__format(wanted, sizeof wanted, "%llu", (unsigned long long)report.inbox[i]);
        check_sql(fix, sql, wanted, name);
        CHECK_CASE((report.inbox[i] > 0) == (i != PR_STATE_DELAYED), name);
    }
    assert_int_equal(report.outbox[PR_STATE_PUBLISHING], 3);
    assert_int_equal(report.outbox[PR_STATE_DELAYED], 2);
    assert_int_equal(report.inbox_marks, 5);
    assert_int_equal(report.relays_seen, 1);
    assert_int_equal(report.lanes, 16);
    assert_true(report.schema_version > 0);
    assert_true(report.journal_rows >= 16);
    assert_true(pr__text_starts_with(report.store, fix->provider->kind));
}

void case_an_empty_store_counts_nothing(void **state)
{
    store_fixture *fix = *state;
    pr_status_report report = status_of(fix);
    for (int i = 0; i < PR_STATE_COUNT; i++) {
        assert_int_equal(report.outbox[i], 0);
        assert_int_equal(report.inbox[i], 0);
    }
    assert_int_equal(report.oldest_pending_age_ms, 0);
    assert_int_equal(report.relays_seen, 0);
}

void case_the_oldest_pending_one_is_told(void **state)
{
    store_fixture *fix = *state;
    int64_t now_us = store_now_us(fix);
    pr_message message = PR_MESSAGE(.type = TYPE_PLACED, .destination = DESTINATION, .body = "",
                                    .body_size_bytes = 0, .occurred_at_us = now_us - 90000000);
    post_message(fix, &message);
    message.occurred_at_us = now_us - 10000000;
    post_message(fix, &message);
    int64_t age_ms = status_of(fix).oldest_pending_age_ms;
    assert_true(age_ms >= 90000 && age_ms < 120000);
    settle_pending(fix, PR__RESULT_OPEN, 0); /* in rest they are pending still */
    age_ms = status_of(fix).oldest_pending_age_ms;
    assert_true(age_ms >= 90000 && age_ms < 120000);
    settle_pending(fix, PR__RESULT_PUBLISHED, 0);
    assert_int_equal(status_of(fix).oldest_pending_age_ms, 0);
}

/* ---- lists ---- */

void case_lists_are_those_of_the_view(void **state)
{
    store_fixture *fix = *state;
    char ids[IDS_SIZE], sql[512];
    fill_outbox(fix);
    for (int i = PR_STATE_PENDING; i < PR_STATE_COUNT; i++) {
        for (uint32_t limit = 1; limit <= 100; limit += limit < 3 ? 1 : 97) {
            pr_list_options opt = list_of(PR_BOX_OUTBOX, (pr_state)i);
            opt.limit = limit;
            pr__format(sql, sizeof sql, VIEWED_IDS, pr__state_text((pr_state)i));
            check_sql(fix, sql, listed(fix, &opt, ids), pr__state_text((pr_state)i));
            CHECK_CASE(ids[0] != '\0', pr__state_text((pr_state)i));
        }
    }
    pr_list_options any = list_of(PR_BOX_OUTBOX, 0);
    any.limit = 4;
    check_sql(fix,
              "SELECT group_concat(message_id) FROM (SELECT message_id FROM {p}_outbox_state "
              "WHERE reader = 1 ORDER BY state = 'delayed', log_id) AS t",
              listed(fix, &any, ids), "any");
}

/* It stands among the parked rows and, by its place in the log, among the pending. */
void case_a_redriven_one_is_listed_once(void **state)
{
    store_fixture *fix = *state;
    char ids[IDS_SIZE], wanted[3 * 37 + 1];
    pr_error err = PR_ERROR_INIT;
    id_text sent[3];
    for (int i = 0; i < 3; i++)
        sent[i] = post(fix, NULL, DESTINATION);
    pr__batch *batch = NULL;
    pr__settle_report report;
    pr__claim_options claim = {.reader = PR_READER_RELAY,
                               .lease_ms = LONG_LEASE_MS,
                               .batch_max = 10,
                               .bytes_max = 1024 * 1024,
                               .owner = "relay-b"};
    check_ok(pr__store_claim(store_at(fix, 1), &claim, &batch, &err), &err, "claim");
    assert_non_null(batch);
    assert_int_equal(batch->item_count, 3);
    for (uint32_t i = 0; i < 3; i++)
        if (strcmp(batch->items[i].message.id, sent[1].id) == 0)
            batch->items[i].result = PR__RESULT_DEAD; /* the others go to rest */
    pr__batch_close(batch);
    check_ok(pr__store_settle(store_at(fix, 1), batch, NULL, &report, NULL, &err), &err, "settle");
    pr__batch_free(batch);
    pr_redrive_options opt = redrive_one(sent[1].id);
    redrive(fix, &opt, "redrive");
    pr__format(wanted, sizeof wanted, "%s,%s,%s", sent[0].id, sent[1].id, sent[2].id);
    for (uint32_t limit = 1; limit <= 4; limit++) {
        pr_list_options list = list_of(PR_BOX_OUTBOX, PR_STATE_PENDING);
        list.limit = limit;
        assert_string_equal(listed(fix, &list, ids), wanted);
    }
}

static bool stop_at_two(void *user, const pr_record *record)
{
    (void)record;
    int *count = user;
    return ++*count < 2;
}

void case_a_list_goes_on_where_it_was_stopped(void **state)
{
    store_fixture *fix = *state;
    char rest[IDS_SIZE];
    id_text sent[5];
    pr_error err = PR_ERROR_INIT;
    for (int i = 0; i < 5; i++)
        sent[i] = post(fix, NULL, DESTINATION);
    int count = 0;
    pr_list_page page = {.size = (uint32_t)sizeof page};
    pr_list_options opt = list_of(PR_BOX_OUTBOX, PR_STATE_PENDING);
    check_ok(pr_operations_list(store_at(fix, 0), &opt, &page, stop_at_two, &count, &err), &err,
             "two");
    assert_int_equal(page.count, 2);
    assert_true(page.next[0] != '\0');
    opt.after = page.next;
    listed(fix, &opt, rest);
    char wanted[3 * 37 + 1];
    pr__format(wanted, sizeof wanted, "%s,%s,%s", sent[2].id, sent[3].id, sent[4].id);
    assert_string_equal(rest, wanted);
}

void case_a_page_does_not_shift_under_new_rows(void **state)
{
    store_fixture *fix = *state;
    char ids[IDS_SIZE];
    pr_error err = PR_ERROR_INIT;
    id_text dead[4];
    for (int i = 0; i < 4; i++)
        dead[i] = post_dead(fix, NULL, DESTINATION);
    int count = 0;
    pr_list_page page = {.size = (uint32_t)sizeof page};
    pr_list_options opt = list_of(PR_BOX_OUTBOX, PR_STATE_DEAD);
    check_ok(pr_operations_list(store_at(fix, 0), &opt, &page, stop_at_two, &count, &err), &err,
             "two");
    pr_redrive_options first = redrive_one(dead[0].id); /* the page before gets shorter */
    redrive(fix, &first, "first");
    id_text later = post_dead(fix, NULL, DESTINATION);
    opt.after = page.next;
    char wanted[3 * 37 + 1];
    pr__format(wanted, sizeof wanted, "%s,%s,%s", dead[2].id, dead[3].id, later.id);
    assert_string_equal(listed(fix, &opt, ids), wanted);
}

void case_lists_are_filtered(void **state)
{
    store_fixture *fix = *state;
    char ids[IDS_SIZE];
    id_text keyed = post(fix, "k-1", DESTINATION);
    id_text topic = post(fix, NULL, NULL);
    pr_message message =
        PR_MESSAGE(.type = TYPE_PAID, .destination = DESTINATION, .body = "", .body_size_bytes = 0);
    id_text paid = post_message(fix, &message);
    const struct {
        const char *label, *type, *destination, *key, *wanted;
    } cases[] = {
        {"type", TYPE_PAID, NULL, NULL, paid.id},
        {"key", NULL, NULL, "k-1", keyed.id},
        {"the default topic", NULL, "database://topic/" TYPE_PLACED, NULL, topic.id},
        {"type and destination", TYPE_PLACED, DESTINATION, NULL, keyed.id},
        {"none", TYPE_PAID, NULL, "k-1", ""},
        {"a quote", NULL, NULL, "k' OR 1=1 --", ""},
    };
    for (int pass = 0; pass < 2; pass++) { /* pending ones, then dead ones */
        for (size_t i = 0; i < COUNT_OF(cases); i++) {
            pr_list_options opt =
                list_of(PR_BOX_OUTBOX, pass == 0 ? PR_STATE_PENDING : PR_STATE_DEAD);
            opt.type = cases[i].type;
            opt.destination = cases[i].destination;
            opt.key = cases[i].key;
            CHECK_CASE(strcmp(listed(fix, &opt, ids), cases[i].wanted) == 0, cases[i].label);
        }
        settle_pending(fix, PR__RESULT_DEAD, 0);
    }
}

void case_cursors_of_others_are_refused(void **state)
{
    store_fixture *fix = *state;
    static const struct {
        pr_box box;
        const char *cursor;
    } cases[] = {
        {PR_BOX_OUTBOX, "x"},
        {PR_BOX_OUTBOX, "o"},
        {PR_BOX_OUTBOX, "o:"},
        {PR_BOX_OUTBOX, "o:1"},
        {PR_BOX_OUTBOX, "o:1:2"},
        {PR_BOX_OUTBOX, "o:1:2:x"},
        {PR_BOX_OUTBOX, "o:1:2:3:"},
        {PR_BOX_OUTBOX, "i:1:0:0"},
        {PR_BOX_INBOX, "o:1:0:0"},
        {PR_BOX_INBOX, "b:1:0:0"},
        {PR_BOX_BOTH, "o:1:0:0"},
        {PR_BOX_OUTBOX, "o:1:2:3:4"},
        {PR_BOX_OUTBOX, "o:99999999999999999999:0:0"},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        int count = 0;
        pr_error err = PR_ERROR_INIT;
        pr_list_options opt = list_of(cases[i].box, PR_STATE_DEAD);
        opt.after = cases[i].cursor;
        check_error(pr_operations_list(store_at(fix, 0), &opt, NULL, stop_at_two, &count, &err),
                    &err, PR_E_INVALID, "the cursor is none of this list", cases[i].cursor);
        assert_int_equal(count, 0);
    }
}

void case_an_inbox_is_listed_with_its_marks(void **state)
{
    store_fixture *fix = *state;
    char ids[IDS_SIZE];
    fill_inbox(fix);
    const struct {
        const char *label, *consumer;
        pr_state state;
        const char *wanted;
    } cases[] = {
        {"dead", NULL, PR_STATE_DEAD, "m-0"},
        {"pending", NULL, PR_STATE_PENDING, "m-4"},
        {"failed", NULL, PR_STATE_FAILED, "m-1,m-5"},
        {"held", NULL, PR_STATE_HELD, "m-2,m-6"},
        {"publishing", NULL, PR_STATE_PUBLISHING, "m-3,m-7"},
        {"delayed", NULL, PR_STATE_DELAYED, ""},
        {"published", NULL, PR_STATE_PUBLISHED, "done-0,done-1,done-2,done-3,done-4"},
        {"published at mail", "mail", PR_STATE_PUBLISHED, ""},
        {"any", NULL, 0, "m-0,m-1,m-2,m-3,m-4,m-5,m-6,m-7,done-0,done-1,done-2,done-3,done-4"},
        {"any at mail", "mail", 0, "m-0,m-3,m-6"},
    };
    run_sql(fix, "UPDATE {p}_inbox SET processed_at = 5"); /* all of one instant */
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        for (uint32_t limit = 1; limit <= 4; limit++) {
            pr_list_options opt = list_of(PR_BOX_INBOX, cases[i].state);
            opt.consumer = cases[i].consumer;
            opt.limit = limit;
            if (strcmp(listed(fix, &opt, ids), cases[i].wanted) != 0)
                fail_msg("case '%s', limit %u: wanted '%s', got '%s'", cases[i].label, limit,
                         cases[i].wanted, ids);
        }
    }
}

void case_what_failed_is_listed_from_both_boxes(void **state)
{
    store_fixture *fix = *state;
    char ids[IDS_SIZE], wanted[256];
    id_text first = post_dead(fix, NULL, DESTINATION);
    pass_ms(fix, 10);
    park_at(fix, "billing", "m-1", NULL, PR_STATE_DEAD);
    park_at(fix, "billing", "m-x", NULL, PR_STATE_FAILED);
    pass_ms(fix, 10);
    id_text second = post_dead(fix, NULL, DESTINATION);
    pass_ms(fix, 10);
    park_at(fix, "mail", "m-1", NULL, PR_STATE_DEAD);
    pr__format(wanted, sizeof wanted, "%s,m-1,%s,m-1", first.id, second.id);
    for (uint32_t limit = 1; limit <= 5; limit++) {
        pr_list_options opt = list_of(PR_BOX_BOTH, PR_STATE_DEAD);
        opt.limit = limit;
        assert_string_equal(listed(fix, &opt, ids), wanted);
    }
    pr_list_options opt = list_of(PR_BOX_BOTH, PR_STATE_DEAD);
    opt.consumer = "mail";
    assert_string_equal(listed(fix, &opt, ids), "m-1");
    opt = list_of(PR_BOX_BOTH, PR_STATE_FAILED);
    assert_string_equal(listed(fix, &opt, ids), "m-x");
}

static bool count_unreadable(void *user, const pr_record *record)
{
    int *count = user;
    if (record->unreadable) {
        assert_non_null(strstr(record->unreadable, "source is not valid UTF-8"));
        ++*count;
    }
    return true;
}

void case_one_unreadable_row_costs_one_row_of_a_list(void **state)
{
    store_fixture *fix = *state;
    pr_error err = PR_ERROR_INIT;
    for (int i = 0; i < 3; i++)
        post_dead(fix, NULL, DESTINATION);
    for (int i = 0; i < 3; i++)
        post(fix, NULL, DESTINATION);
    park_at(fix, "billing", "m-1", NULL, PR_STATE_DEAD);
    park_at(fix, "billing", "m-2", NULL, PR_STATE_DEAD);
    const int bad = fix->provider->text_checked ? 0 : 1; /* rows of the log that can be so */
    if (bad) {
        run_sql(fix, "UPDATE {p}_outbox SET source = CAST(x'41ff' AS TEXT) WHERE id IN (2, 5)");
        run_sql(fix,
                "UPDATE {p}_outbox_parked SET source = CAST(x'41ff' AS TEXT) WHERE log_id = 2");
        run_sql(fix, "UPDATE {p}_inbox_parked SET source = CAST(x'41ff' AS TEXT) WHERE place = 1");
    } else { /* one that came so is kept without the text */
        run_sql(fix, "UPDATE {p}_inbox_parked SET unreadable = 'source is not valid UTF-8' "
                     "WHERE place = 1");
    }
    const struct {
        const char *label;
        pr_box box;
        pr_state state;
        uint32_t rows;
        int unreadable;
    } cases[] = {
        {"dead", PR_BOX_OUTBOX, PR_STATE_DEAD, 3, bad},
        {"pending", PR_BOX_OUTBOX, PR_STATE_PENDING, 3, bad},
        {"any", PR_BOX_OUTBOX, 0, 6, 2 * bad},
        {"inbox", PR_BOX_INBOX, PR_STATE_DEAD, 2, 1},
        {"both", PR_BOX_BOTH, PR_STATE_DEAD, 5, 1 + bad},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        int unreadable = 0;
        pr_list_page page = {.size = (uint32_t)sizeof page};
        pr_list_options opt = list_of(cases[i].box, cases[i].state);
        check_ok(
            pr_operations_list(store_at(fix, 0), &opt, &page, count_unreadable, &unreadable, &err),
            &err, cases[i].label);
        CHECK_CASE(page.count == cases[i].rows, cases[i].label);
        CHECK_CASE(unreadable == cases[i].unreadable, cases[i].label);
    }
    assert_non_null(strstr(explain(fix, "m-1").summary, "cannot be read"));
}

void case_show_gives_every_row_of_an_id(void **state)
{
    store_fixture *fix = *state;
    pr_error err = PR_ERROR_INIT;
    id_text id = post(fix, "k", DESTINATION);
    shown got = show(fix, id.id);
    assert_int_equal(got.count, 1);
    assert_int_equal(got.record.box, PR_BOX_OUTBOX);
    assert_int_equal(got.record.state, PR_STATE_PENDING);
    assert_string_equal(got.body, "{\"a\":1}");
    assert_int_equal(got.record.body_size_bytes, 7);
    char upper[37];
    for (size_t i = 0; i < sizeof upper; i++)
        upper[i] = (char)(id.id[i] >= 'a' && id.id[i] <= 'f' ? id.id[i] - 32 : id.id[i]);
    assert_int_equal(show(fix, upper).count, 1);
    park_at(fix, "billing", id.id, NULL, PR_STATE_FAILED);
    park_at(fix, "mail", id.id, NULL, PR_STATE_DEAD);
    assert_int_equal(show(fix, id.id).count, 3);
    pr_unit *unit = begin_unit(store_at(fix, 0));
    for (int i = 0; i < 3; i++) {
        static const char *const tenants[] = {"", "acme", "zeta"};
        uint8_t hash[PR_CONTENT_HASH_SIZE] = {0};
        pr__mark mark = 0;
        pr__inbox_key key = {.tenant = tenants[i], .consumer = "stock", .message_id = id.id};
        check_ok(unit->ops->inbox_mark(unit, &key, hash, &mark, &err), &err, "mark");
    }
    commit_unit(unit);
    assert_int_equal(show(fix, id.id).count, 6);
    id_text nobodys = post(fix, NULL, "local://in/nobody");
    assert_int_equal(show(fix, nobodys.id).record.state, PR_STATE_PUBLISHED);
    check_error(pr_operations_show(store_at(fix, 0), "m-404", stop_at_two, NULL, &err), &err,
                PR_E_NOT_FOUND, "there is no message \"m-404\"", "missing");
}

/* A parked row is a full copy: without its row of the log it is shown, listed, and goes on. */
void case_a_parked_row_outlives_its_log_row(void **state)
{
    store_fixture *fix = *state;
    char ids[IDS_SIZE];
    id_text id = post(fix, "k", DESTINATION);
    settle_pending(fix, PR__RESULT_FAILED, 0);
    run_sql(fix, "DELETE FROM {p}_outbox");
    shown got = show(fix, id.id);
    assert_int_equal(got.count, 1);
    assert_int_equal(got.record.state, PR_STATE_FAILED);
    assert_string_equal(got.body, "{\"a\":1}");
    pr_explanation why = explain(fix, id.id);
    assert_non_null(strstr(why.summary, "it is due and waits for a relay"));
    pr_list_options failed = list_of(PR_BOX_OUTBOX, PR_STATE_FAILED),
                    any = list_of(PR_BOX_OUTBOX, 0);
    assert_string_equal(listed(fix, &failed, ids), id.id);
    assert_string_equal(listed(fix, &any, ids), id.id);
    assert_int_equal(settle_parked(fix, PR__RESULT_PUBLISHED, 0), 1);
    assert_string_equal(listed(fix, &any, ids), "");
}

/* ---- explain ---- */

static void check_explained(store_fixture *fix, const char *id, const char *text,
                            const char *blocker_id, const char *label)
{
    pr_explanation got = explain(fix, id);
    if (!strstr(got.summary, text))
        fail_msg("case '%s': wanted '%s' in: %s", label, text, got.summary);
    if (strcmp(got.blocker_id, blocker_id) != 0)
        fail_msg("case '%s': wanted '%s' to block, got '%s'", label, blocker_id, got.blocker_id);
}

void case_explain_names_the_cause(void **state)
{
    store_fixture *fix = *state;
    id_text head = post(fix, "k", DESTINATION);
    check_explained(fix, head.id, "no relay has worked on this store yet", "", "no relay");
    settle_pending(fix, PR__RESULT_FAILED, 60000);
    check_explained(fix, head.id, "failed 1 time: refused: no such book; next attempt in", "",
                    "failed");
    id_text next = post(fix, "k", DESTINATION);
    check_explained(fix, next.id, "it will be held behind", head.id, "pending behind it");
    settle_pending(fix, PR__RESULT_HELD, 0);
    check_explained(fix, next.id, "is held behind", head.id, "held");
    pass_ms(fix, 60001);
    check_explained(fix, head.id, "it is due and waits for a relay", "", "due");
    assert_true(settle_parked(fix, PR__RESULT_DEAD, 0) > 0);
    check_explained(fix, head.id, "is dead after 2 attempts", "", "dead");
    check_explained(fix, next.id, "nothing of its key is before it any more", "", "free");
    pr_redrive_options opt = redrive_one(head.id);
    redrive(fix, &opt, "redrive");
    check_explained(fix, head.id, "was redriven, is due and waits for a relay", "", "redriven");
    check_explained(fix, next.id, "is held behind", head.id, "held again");
    run_sql(fix, "UPDATE {p}_outbox_parked SET operator_hold = true");
    check_explained(fix, next.id, "an operator holds it", head.id, "operator");
    pr_message message = PR_MESSAGE(.type = TYPE_PLACED, .body = "", .body_size_bytes = 0,
                                    .deliver_at_us = store_now_us(fix) + 7200000000);
    id_text delayed = post_message(fix, &message);
    check_explained(fix, delayed.id, "is delayed until", "", "delayed");
    pass_ms(fix, 7200001);
    check_explained(fix, delayed.id, "waits for a relay to promote it", "", "delayed and due");
    id_text published = post(fix, NULL, DESTINATION);
    settle_pending(fix, PR__RESULT_PUBLISHED, 0);
    check_explained(fix, published.id, "was published to \"" DESTINATION "\", settled at 2", "",
                    "published");
    park_at(fix, "billing", "m-1", "k", PR_STATE_FAILED);
    park_at(fix, "billing", "m-2", "k", PR_STATE_HELD);
    check_explained(fix, "m-1", "failed 1 time: no such account", "", "inbox, failed");
    check_explained(fix, "m-2", "is held behind", "m-1", "inbox, held");
    run_sql(fix, "UPDATE {p}_inbox_parked SET state = 'dead' WHERE message_id = 'm-1'");
    check_explained(fix, "m-2", "is held behind", "m-1", "inbox, held behind a dead one");
}

void case_explain_tells_of_a_lane(void **state)
{
    store_fixture *fix = *state;
    pr_error err = PR_ERROR_INIT;
    id_text open = post(fix, "k", DESTINATION);
    pr__batch *batch = NULL;
    pr__claim_options claim = {.reader = PR_READER_RELAY,
                               .lease_ms = 10000,
                               .batch_max = 10,
                               .bytes_max = 1024 * 1024,
                               .owner = "relay-b"};
    check_ok(pr__store_claim(store_at(fix, 1), &claim, &batch, &err), &err, "claim");
    assert_non_null(batch);
    id_text behind = post(fix, "k", DESTINATION);
    pr_explanation got = explain(fix, open.id);
    assert_int_equal(got.state, PR_STATE_PUBLISHING);
    assert_string_equal(got.owner, "relay-b");
    assert_true(got.lease_left_ms > 5000 && got.lease_left_ms <= 10000);
    check_explained(fix, open.id, "is in the hands of relay-b, lease left", "", "open");
    check_explained(fix, behind.id, "after 1 in the hands of relay-b, lease left", "", "behind");
    got = explain(fix, behind.id);
    assert_int_equal(got.state, PR_STATE_PENDING);
    assert_string_equal(got.owner, "relay-b");
    pass_ms(fix, 11000);
    check_explained(fix, open.id, "the next claim takes it over", "", "lapsed");
    check_explained(fix, behind.id, "the next claim takes it over", "", "behind a lapsed one");
    assert_int_equal(explain(fix, open.id).lease_left_ms, 0);
    pr__batch *taken = NULL;
    claim.owner = "relay-c";
    check_ok(pr__store_claim(store_at(fix, 0), &claim, &taken, &err), &err, "takeover");
    assert_non_null(taken);
    check_explained(fix, open.id, "relay-c, lease left", "", "taken over");
    check_explained(fix, open.id, "taken over 1 time", "", "taken over");
    taken->items[0].result = PR__RESULT_OPEN;
    pr__settle_report report;
    pr__batch_close(taken);
    check_ok(pr__store_settle(store_at(fix, 0), taken, NULL, &report, NULL, &err), &err, "settle");
    check_explained(fix, open.id, "claimed before without an outcome and goes first", "", "rest");
    check_explained(fix, behind.id, "for the next claim; relay-c was last at work", "", "idle");
    pr__batch_free(batch);
    pr__batch_free(taken);
}

void case_explain_tells_of_a_subscription(void **state)
{
    store_fixture *fix = *state;
    pr_error err = PR_ERROR_INIT;
    const char *const destinations[] = {"local://in/books"};
    pr__reader_spec spec = {.name = "books", .destinations = destinations, .destination_count = 1};
    int64_t reader = 0;
    id_text nobodys = post(fix, NULL, "local://in/nobody");
    check_explained(fix, nobodys.id, "stays in this store for its subscriptions", "", "nobody");
    check_ok(pr__store_reader_open(store_at(fix, 0), &spec, &reader, &err), &err, "reader");
    id_text id = post(fix, NULL, "local://in/books");
    check_explained(fix, id.id, "subscription \"books\" has not read yet", "", "unread");
    pr__claim_options opt = {.reader = reader,
                             .lease_ms = LONG_LEASE_MS,
                             .batch_max = 10,
                             .bytes_max = 1024 * 1024,
                             .owner = "endpoint-a"};
    pr__batch *batch = NULL;
    pr__settle_report report;
    check_ok(pr__store_claim(store_at(fix, 0), &opt, &batch, &err), &err, "claim");
    assert_non_null(batch);
    check_explained(fix, id.id, "is in the hands of endpoint-a", "", "in hand");
    batch->items[0].result = PR__RESULT_PUBLISHED;
    pr__batch_close(batch);
    check_ok(pr__store_settle(store_at(fix, 0), batch, NULL, &report, NULL, &err), &err, "settle");
    check_explained(fix, id.id, "was taken by subscription \"books\"", "", "taken");
    pr__batch_free(batch);
}

int store_operations_contract_run(const store_provider *provider)
{
    const store_provider *shared = provider; /* cmocka hands on a pointer that is not const */
#define STORE_OPERATIONS_CASE_ENTRY(name)                                                          \
    {#name, case_##name, store_setup, store_teardown, &shared},
    const struct CMUnitTest tests[] = {STORE_OPERATIONS_CASES(STORE_OPERATIONS_CASE_ENTRY)};
#undef STORE_OPERATIONS_CASE_ENTRY
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests_name(provider->name, tests, NULL, NULL);
}
