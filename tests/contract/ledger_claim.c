/*
 * Claim, lease, settle: capabilities 35, 36, 39 to 43, 50 and 57.
 */
#include "contract/ledger_cases.h"

void case_claim_options_refused(void **state)
{
    fixture *fix = *state;
    const struct {
        const char *label;
        pr__claim_options opt;
        const char *text;
    } cases[] = {
        {"lease 0", {1, 0, 10, 10, 0, "", NULL}, "lease_ms"},
        {"lease < 0", {1, -1, 10, 10, 0, "", NULL}, "lease_ms"},
        {"batch 0", {1, 10, 0, 10, 0, "", NULL}, "batch_max"},
        {"bytes 0", {1, 10, 10, 0, 0, "", NULL}, "bytes_max"},
        {"reader 0", {0, 10, 10, 10, 0, "", NULL}, "reader"},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        pr_error err = PR_ERROR_INIT;
        pr__batch *batch = NULL;
        check_error(pr__store_claim(store_at(fix, 0), &cases[i].opt, &batch, &err), &err,
                    PR_E_INVALID, cases[i].text, cases[i].label);
    }
    pr_error err = PR_ERROR_INIT;
    pr__batch *batch = NULL;
    pr__claim_options opt = claim_options(99, 10);
    check_error(pr__store_claim(store_at(fix, 0), &opt, &batch, &err), &err, PR_E_NOT_FOUND,
                "reader 99", "a reader that is none");
}

void case_claim_gives_what_was_enqueued(void **state)
{
    fixture *fix = *state;
    pr_message sent =
        PR_MESSAGE(.id = "0190a5c0-7000-7abc-8def-0123456789ab", .type = TYPE_PLACED,
                   .type_version = 7, .content_type = "application/octet-stream",
                   .destination = TO_BROKER, .source = "shop", .key = "order-1", .tenant = "acme",
                   .correlation_id = "corr", .causation_id = "caus",
                   .traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
                   .tracestate = "a=b", .headers = "{\"n\":{\"int\":1}}", .body = "a\0b",
                   .body_size_bytes = 3, .occurred_at_us = 1700000000123456,
                   .expires_at_us = 4000000000654321);
    post_message(fix, &sent);
    pr__batch *batch = claim_some(fix, store_at(fix, 1), 1, 10);
    assert_int_equal(batch->item_count, 1);
    assert_null(batch->items[0].unreadable);
    const pr_message *got = &batch->items[0].message;
    assert_string_equal(got->id, sent.id);
    assert_string_equal(got->type, sent.type);
    assert_int_equal(got->type_version, sent.type_version);
    assert_string_equal(got->content_type, sent.content_type);
    assert_string_equal(got->destination, sent.destination);
    assert_string_equal(got->source, sent.source);
    assert_string_equal(got->key, sent.key);
    assert_string_equal(got->tenant, sent.tenant);
    assert_string_equal(got->correlation_id, sent.correlation_id);
    assert_string_equal(got->causation_id, sent.causation_id);
    assert_string_equal(got->traceparent, sent.traceparent);
    assert_string_equal(got->tracestate, sent.tracestate);
    assert_string_equal(got->headers, sent.headers);
    assert_int_equal(got->body_size_bytes, 3);
    assert_memory_equal(got->body, sent.body, 3);
    assert_true(got->occurred_at_us == sent.occurred_at_us);
    assert_true(got->expires_at_us == sent.expires_at_us);
    pr__batch_free(batch);
}

void case_claim_defaults(void **state)
{
    fixture *fix = *state;
    pr_message bare = PR_MESSAGE(.type = TYPE_PLACED);
    post_message(fix, &bare);
    pr__batch *batch = claim_some(fix, store_at(fix, 0), 1, 10);
    const pr_message *got = &batch->items[0].message;
    assert_int_equal(strlen(got->id), 36);
    assert_int_equal(got->type_version, 1);
    assert_string_equal(got->destination, "database://topic/" TYPE_PLACED);
    assert_null(got->key);
    assert_int_equal(got->body_size_bytes, 0);
    assert_non_null(got->body);
    pr__batch_free(batch);
}

void case_claim_order_and_limits(void **state)
{
    fixture *fix = *state;
    uint32_t seen = 0;
    post_many(fix, 100, TO_BROKER, NULL);
    while (seen < 100) {
        pr__batch *batch = claim_some(fix, store_at(fix, 0), 1, 7);
        assert_true(batch->item_count >= 1 && batch->item_count <= 7);
        for (uint32_t i = 1; i < batch->item_count; i++) {
            const pr__item *a = &batch->items[i - 1];
            const pr__item *b = &batch->items[i];
            assert_true(a->lane < b->lane || (a->lane == b->lane && a->log_id < b->log_id));
        }
        if (seen == 0)
            assert_true(batch->more);
        seen += batch->item_count;
        set_all(batch, PR__RESULT_PUBLISHED);
        settle_free(fix, store_at(fix, 0), batch);
    }
    assert_int_equal(seen, 100);
    assert_null(claim(fix, store_at(fix, 0), 1, 7));
    assert_int_equal(in_state(fix, 1, "published"), 100);
}

void case_claim_bytes(void **state)
{
    fixture *fix = *state;
    static char body[3000];
    memset(body, 'x', sizeof body);
    pr_message message = PR_MESSAGE(.type = TYPE_PLACED, .destination = TO_BROKER, .body = body,
                                    .body_size_bytes = sizeof body);
    for (int i = 0; i < 5; i++)
        post_message(fix, &message);
    pr_error err = PR_ERROR_INIT;
    pr__claim_options opt = claim_options(1, 100);
    const struct {
        uint64_t bytes;
        uint32_t wanted;
    } cases[] = {{100, 1}, {6500, 2}, {1000000, 2}}; /* one is given whatever its size */
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        pr__batch *batch = NULL;
        opt.bytes_max = cases[i].bytes;
        check_ok(pr__store_claim(store_at(fix, 0), &opt, &batch, &err), &err, "claim");
        assert_non_null(batch);
        assert_int_equal(batch->item_count, cases[i].wanted);
        pr__batch_free(batch);
    }
}

void case_claim_same_key_same_lane(void **state)
{
    fixture *fix = *state;
    for (int i = 0; i < 20; i++) {
        post(fix, TO_BROKER, "order-1");
        post(fix, TO_BROKER, NULL);
    }
    pr__batch *batch = claim_some(fix, store_at(fix, 0), 1, 100);
    uint32_t lane = UINT32_MAX;
    uint32_t last = 0;
    for (uint32_t i = 0; i < batch->item_count; i++) {
        const pr__item *item = &batch->items[i];
        if (!item->message.key)
            continue;
        assert_true(lane == UINT32_MAX || item->lane == lane);
        assert_true(number_of(item) > last);
        lane = item->lane;
        last = number_of(item);
    }
    assert_int_equal(last, 39);
    pr__batch_free(batch);
}

/* One lane is full: it starves no other, and what others leave is its. */
void case_claim_fair(void **state)
{
    fixture *fix = *state;
    post_many(fix, 200, TO_BROKER, "busy");
    pr_unit *unit = NULL;
    pr_error err = PR_ERROR_INIT;
    check_ok(pr_unit_begin(store_at(fix, 0), &unit, &err), &err, "begin");
    for (int i = 0; i < 64; i++) {
        pr_message message = PR_MESSAGE(.type = TYPE_PLACED, .destination = TO_BROKER);
        check_ok(pr_unit_enqueue(unit, &message, NULL, &err), &err, "enqueue");
    }
    check_ok(pr_unit_commit(unit, NULL, &err), &err, "commit");
    pr_unit_free(unit);
    pr__batch *batch = claim_some(fix, store_at(fix, 0), 1, 64);
    assert_int_equal(batch->item_count, 64);
    assert_int_equal(batch->slice_count, 16);
    pr__batch_free(batch);
    batch = claim(fix, store_at(fix, 1), 1, 1000);
    assert_null(batch); /* every lane is leased */
    pass_ms(fix, LEASE_MS + 1);
    batch = claim_some(fix, store_at(fix, 1), 1, 1000);
    set_all(batch, PR__RESULT_PUBLISHED);
    settle_free(fix, store_at(fix, 1), batch);
    batch = claim_some(fix, store_at(fix, 1), 1, 1000);
    assert_int_equal(batch->item_count, 200); /* 264 less the 64 */
    pr__batch_free(batch);
}

void case_claim_lanes(void **state)
{
    fixture *fix = *state;
    pr_error err = PR_ERROR_INIT;
    post_many(fix, 160, TO_BROKER, NULL);
    pr__claim_options opt = claim_options(1, 100);
    pr__batch *first = NULL;
    opt.lanes_max = 3;
    check_ok(pr__store_claim(store_at(fix, 0), &opt, &first, &err), &err, "three lanes");
    assert_int_equal(first->slice_count, 3);
    assert_int_equal(first->item_count, 30);
    uint64_t skipped[4] = {0};
    for (uint32_t lane = 0; lane < 16; lane++)
        if (lane % 2 == 0)
            skipped[0] |= UINT64_C(1) << lane;
    pr__batch *second = NULL;
    opt.lanes_max = 0;
    opt.lanes_skipped = skipped;
    check_ok(pr__store_claim(store_at(fix, 1), &opt, &second, &err), &err, "odd lanes");
    for (uint32_t i = 0; i < second->slice_count; i++) {
        assert_int_equal(second->slices[i].lane % 2, 1);
        for (uint32_t j = 0; j < first->slice_count; j++)
            assert_int_not_equal(first->slices[j].lane, second->slices[i].lane);
    }
    skipped[0] = 0xffff;
    pr__batch *none = NULL;
    check_ok(pr__store_claim(store_at(fix, 2), &opt, &none, &err), &err, "no lane");
    assert_null(none);
    pr__batch_free(first);
    pr__batch_free(second);
}

void case_claim_idle_writes_nothing(void **state)
{
    fixture *fix = *state;
    pr_error err = PR_ERROR_INIT;
    post(fix, TO_BROKER, NULL);
    pr__batch *batch = claim_some(fix, store_at(fix, 0), 1, 10);
    int64_t before = journal_rows(fix);
    for (int i = 0; i < 20; i++)
        assert_null(claim(fix, store_at(fix, 1), 1, 10)); /* leased */
    assert_int_equal(journal_rows(fix), before);
    set_all(batch, PR__RESULT_PUBLISHED);
    settle_free(fix, store_at(fix, 0), batch);
    bool changed = false;
    check_ok(pr__store_changed(store_at(fix, 1), &changed, &err), &err, "changed");
    before = journal_rows(fix);
    for (int i = 0; i < 20; i++) {
        uint32_t promoted = 0;
        int64_t next = 0;
        assert_null(claim(fix, store_at(fix, 0), 1, 10)); /* nothing there */
        assert_null(claim_parked(fix, store_at(fix, 0), 1, 10));
        check_ok(pr__store_promote(store_at(fix, 0), 10, &promoted, &next, &err), &err, "promote");
        assert_int_equal(next, -1);
    }
    assert_int_equal(journal_rows(fix), before);
    check_ok(pr__store_changed(store_at(fix, 1), &changed, &err), &err, "changed");
    assert_false(changed); /* not even a commit */
}

void case_claim_changed(void **state)
{
    fixture *fix = *state;
    pr_error err = PR_ERROR_INIT;
    bool changed = false;
    check_ok(pr__store_changed(store_at(fix, 1), &changed, &err), &err, "changed");
    assert_true(changed); /* at first */
    check_ok(pr__store_changed(store_at(fix, 1), &changed, &err), &err, "changed");
    assert_false(changed);
    post(fix, TO_BROKER, NULL); /* by store 0 */
    check_ok(pr__store_changed(store_at(fix, 1), &changed, &err), &err, "changed");
    assert_true(changed);
    check_ok(pr__store_changed(store_at(fix, 0), &changed, &err), &err, "changed");
    check_ok(pr__store_changed(store_at(fix, 0), &changed, &err), &err, "changed");
    assert_false(changed);
    post(fix, TO_BROKER, NULL); /* its own commit counts too */
    check_ok(pr__store_changed(store_at(fix, 0), &changed, &err), &err, "changed");
    assert_true(changed);
}

void case_claim_lease(void **state)
{
    fixture *fix = *state;
    post_many(fix, 5, TO_BROKER, "k");
    pr__batch *first = claim_some(fix, store_at(fix, 0), 1, 10);
    assert_false(first->slices[0].takeover);
    assert_int_equal(in_state(fix, 1, "publishing"), 5);
    pass_ms(fix, LEASE_MS - 1);
    assert_null(claim(fix, store_at(fix, 1), 1, 10)); /* alive */
    pass_ms(fix, 1);
    post_many(fix, 3, TO_BROKER, "k");
    pr__batch *second = claim_some(fix, store_at(fix, 1), 1, 10);
    assert_int_equal(second->item_count, 5); /* the same ids, nothing fresh */
    for (uint32_t i = 0; i < 5; i++)
        assert_int_equal(second->items[i].log_id, first->items[i].log_id);
    assert_true(second->slices[0].takeover);
    assert_int_equal(second->slices[0].attempt, 1);
    assert_string_not_equal(second->slices[0].token, first->slices[0].token);

    set_all(first, PR__RESULT_FAILED); /* the first holder wakes up */
    pr__settle_report report = settle_free(fix, store_at(fix, 0), first);
    assert_int_equal(report.fenced_slices, 1);
    assert_int_equal(report.fenced_items, 5);
    assert_int_equal(report.failed, 0);
    assert_int_equal(rows(fix, "outbox_parked"), 0);
    assert_int_equal(in_state(fix, 1, "publishing"), 5);

    set_all(second, PR__RESULT_PUBLISHED);
    report = settle_free(fix, store_at(fix, 1), second);
    assert_int_equal(report.published, 5);
    assert_int_equal(in_state(fix, 1, "published"), 5);
    assert_int_equal(in_state(fix, 1, "pending"), 3);
}

void case_claim_fenced_after_settle(void **state)
{
    fixture *fix = *state;
    post(fix, TO_BROKER, "k");
    pr__batch *first = claim_some(fix, store_at(fix, 0), 1, 10);
    pass_ms(fix, LEASE_MS);
    pr__batch *second = claim_some(fix, store_at(fix, 1), 1, 10);
    set_all(second, PR__RESULT_PUBLISHED);
    settle_free(fix, store_at(fix, 1), second);
    int64_t before = journal_rows(fix);
    set_all(first, PR__RESULT_DEAD);
    pr__settle_report report = settle(fix, store_at(fix, 0), first);
    assert_int_equal(report.fenced_slices, 1);
    assert_true(first->items[0].fenced);
    assert_int_equal(journal_rows(fix), before);
    assert_int_equal(in_state(fix, 1, "published"), 1);
    pr__batch_free(first);
}

void case_claim_late_settle(void **state)
{
    fixture *fix = *state;
    post(fix, TO_BROKER, "k");
    pr__batch *batch = claim_some(fix, store_at(fix, 0), 1, 10);
    pass_ms(fix, LEASE_MS * 10); /* nobody took over: the token stands */
    set_all(batch, PR__RESULT_PUBLISHED);
    pr__settle_report report = settle_free(fix, store_at(fix, 0), batch);
    assert_int_equal(report.fenced_slices, 0);
    assert_int_equal(report.published, 1);
    assert_null(claim(fix, store_at(fix, 1), 1, 10));
}

/* A settle whose outcome was not learned is repeated: the second time changes nothing. */
void case_claim_settle_repeated(void **state)
{
    fixture *fix = *state;
    post_many(fix, 2, TO_BROKER, "k");
    pr__batch *batch = claim_some(fix, store_at(fix, 0), 1, 10);
    batch->items[0].result = PR__RESULT_FAILED;
    batch->items[1].result = PR__RESULT_OPEN;
    settle(fix, store_at(fix, 0), batch);
    int64_t before = journal_rows(fix);
    pr__settle_report report = settle(fix, store_at(fix, 0), batch);
    assert_int_equal(report.fenced_slices, 0);
    assert_int_equal(report.failed, 1);
    assert_int_equal(journal_rows(fix), before);
    assert_int_equal(rows(fix, "outbox_parked"), 2);
    assert_int_equal(count(fix, "SELECT max(attempts) FROM {t}outbox_parked"), 1);
    pr__batch_free(batch);
}

void case_claim_renew(void **state)
{
    fixture *fix = *state;
    pr_error err = PR_ERROR_INIT;
    post_many(fix, 3, TO_BROKER, "k");
    post(fix, TO_BROKER, "other");
    pr__batch *batch = claim_some(fix, store_at(fix, 0), 1, 10);
    for (int i = 0; i < 5; i++) {
        pass_ms(fix, LEASE_MS - 1);
        check_ok(pr__store_renew(store_at(fix, 0), batch, LEASE_MS, &err), &err, "renew");
        assert_false(batch->slices[0].fenced);
        assert_null(claim(fix, store_at(fix, 1), 1, 10));
    }
    pass_ms(fix, LEASE_MS);
    pr__batch *taken = claim_some(fix, store_at(fix, 1), 1, 10);
    assert_int_equal(taken->item_count, 4); /* a renewal lost nothing */
    check_ok(pr__store_renew(store_at(fix, 0), batch, LEASE_MS, &err), &err, "renew too late");
    for (uint32_t i = 0; i < batch->slice_count; i++)
        assert_true(batch->slices[i].fenced);
    for (uint32_t i = 0; i < batch->item_count; i++)
        assert_true(batch->items[i].fenced);
    pr__batch_free(batch);
    set_all(taken, PR__RESULT_PUBLISHED);
    assert_int_equal(settle_free(fix, store_at(fix, 1), taken).published, 4);
}

void case_claim_rest(void **state)
{
    fixture *fix = *state;
    post_many(fix, 4, TO_BROKER, "k"); /* 1 to 4 */
    pr__batch *batch = claim_some(fix, store_at(fix, 0), 1, 10);
    item_of(batch, 1)->result = PR__RESULT_PUBLISHED;
    item_of(batch, 2)->result = PR__RESULT_LOST;
    item_of(batch, 2)->suspicion = 1;
    item_of(batch, 3)->result = PR__RESULT_FAILED; /* close makes it OPEN: nothing overtakes 2 */
    pr__settle_report report = settle_free(fix, store_at(fix, 0), batch);
    assert_int_equal(report.published, 1);
    assert_int_equal(report.rest, 3);
    assert_int_equal(rows(fix, "outbox_parked"), 0);
    assert_int_equal(in_state(fix, 1, "pending"), 3);
    post(fix, TO_BROKER, "k"); /* 5 */
    batch = claim_some(fix, store_at(fix, 1), 1, 2);
    assert_int_equal(batch->item_count, 2); /* rest first, and only rest */
    assert_int_equal(number_of(&batch->items[0]), 2);
    assert_int_equal(batch->items[0].suspicion, 1);
    assert_int_equal(batch->items[1].suspicion, 0);
    assert_true(batch->slices[0].again);
    set_all(batch, PR__RESULT_PUBLISHED);
    settle_free(fix, store_at(fix, 1), batch);
    batch = claim_some(fix, store_at(fix, 1), 1, 10);
    assert_int_equal(batch->item_count, 1);
    assert_int_equal(number_of(&batch->items[0]), 4);
    set_all(batch, PR__RESULT_PUBLISHED);
    settle_free(fix, store_at(fix, 1), batch);
    batch = claim_some(fix, store_at(fix, 1), 1, 10);
    assert_int_equal(number_of(&batch->items[0]), 5);
    assert_false(batch->slices[0].again);
    pr__batch_free(batch);
}

/* A takeover of a slice beside a rest loses neither. */
void case_claim_takeover_keeps_rest(void **state)
{
    fixture *fix = *state;
    post_many(fix, 6, TO_BROKER, "k");
    pr__batch *batch = claim_some(fix, store_at(fix, 0), 1, 10);
    set_all(batch, PR__RESULT_OPEN);
    settle_free(fix, store_at(fix, 0), batch); /* released: all in rest */
    batch = claim_some(fix, store_at(fix, 0), 1, 2);
    assert_int_equal(batch->item_count, 2);
    pr__batch_free(batch); /* its holder dies */
    pass_ms(fix, LEASE_MS);
    uint32_t next = 1;
    for (int i = 0; i < 10 && next <= 6; i++) {
        batch = claim_some(fix, store_at(fix, 1), 1, 4);
        for (uint32_t n = 0; n < batch->item_count; n++)
            assert_int_equal(number_of(&batch->items[n]), next++);
        set_all(batch, PR__RESULT_PUBLISHED);
        settle_free(fix, store_at(fix, 1), batch);
    }
    assert_int_equal(next, 7);
}

/* What goes back to rest beside what is there keeps the order, and is pending in the view. */
void case_claim_rest_in_order(void **state)
{
    fixture *fix = *state;
    post_many(fix, 6, TO_BROKER, "k");
    pr__batch *batch = claim_some(fix, store_at(fix, 0), 1, 10);
    settle_free(fix, store_at(fix, 0), batch); /* all open: all in rest */
    batch = claim_some(fix, store_at(fix, 0), 1, 2);
    settle_free(fix, store_at(fix, 0), batch);
    assert_int_equal(in_state(fix, 1, "pending"), 6);
    batch = claim_some(fix, store_at(fix, 0), 1, 10);
    for (uint32_t i = 0; i < 6; i++)
        assert_int_equal(number_of(&batch->items[i]), i + 1);
    pr__batch_free(batch);
}

/* Takeovers count without a settle between them: a holder that gave its slice back did not die. */
void case_claim_takeovers_forgotten(void **state)
{
    fixture *fix = *state;
    post_many(fix, 3, TO_BROKER, NULL);
    for (int round = 0; round < 3; round++) {
        for (uint32_t attempt = 0; attempt < 3; attempt++) {
            pr__batch *batch = claim_some(fix, store_at(fix, 0), 1, 10);
            assert_int_equal(batch->item_count, 3);
            assert_int_equal(batch->slices[0].attempt, attempt);
            if (attempt == 2)
                settle(fix, store_at(fix, 0), batch);
            else
                pass_ms(fix, LEASE_MS); /* it dies */
            pr__batch_free(batch);
        }
    }
}

/* Claims that are too small for all lanes begin with another lane each time. */
void case_claim_lanes_in_turn(void **state)
{
    fixture *fix = *state;
    bool seen[16] = {false};
    post_many(fix, 160, TO_BROKER, NULL);
    for (int i = 0; i < 16; i++) {
        pr__batch *batch = claim_some(fix, store_at(fix, 0), 1, 1);
        assert_int_equal(batch->item_count, 1);
        assert_false(seen[batch->items[0].lane]);
        seen[batch->items[0].lane] = true;
        set_all(batch, PR__RESULT_PUBLISHED);
        settle_free(fix, store_at(fix, 0), batch);
    }
}

void case_claim_settle_and_next(void **state)
{
    fixture *fix = *state;
    pr_error err = PR_ERROR_INIT;
    post_many(fix, 4, TO_BROKER, "k"); /* 1 to 4 */
    pr__batch *batch = claim_some(fix, store_at(fix, 0), 1, 2);
    item_of(batch, 1)->result = PR__RESULT_FAILED;
    pr__batch_close(batch);
    pr__claim_options opt = claim_options(1, 10);
    pr__settle_report report;
    pr__batch *next = NULL;
    check_ok(pr__store_settle(store_at(fix, 0), batch, &opt, &report, &next, &err), &err, "settle");
    assert_int_equal(report.failed, 1);
    assert_int_equal(report.held, 1);
    pr__batch_free(batch);
    assert_non_null(next);
    assert_int_equal(next->item_count, 2);
    for (uint32_t i = 0; i < 2; i++)
        assert_true(next->items[i].blocked); /* by what this very commit parked */
    assert_null(claim(fix, store_at(fix, 1), 1, 10));
    report = settle_free(fix, store_at(fix, 0), next);
    assert_int_equal(report.held, 2);
    assert_int_equal(in_state(fix, 1, "held"), 3);
}

/* A fenced lane gives nothing away; the lanes beside it are settled and claimed. */
void case_claim_partly_fenced(void **state)
{
    fixture *fix = *state;
    pr_error err = PR_ERROR_INIT;
    post_many(fix, 64, TO_BROKER, NULL);
    pr__batch *batch = claim_some(fix, store_at(fix, 0), 1, 32);
    pass_ms(fix, LEASE_MS);
    pr__claim_options one = claim_options(1, 10);
    one.lanes_max = 1;
    pr__batch *rival = NULL;
    check_ok(pr__store_claim(store_at(fix, 1), &one, &rival, &err), &err, "rival");
    uint32_t stolen = rival->slices[0].lane;
    set_all(batch, PR__RESULT_PUBLISHED);
    pr__claim_options opt = claim_options(1, 100);
    pr__settle_report report;
    pr__batch *next = NULL;
    check_ok(pr__store_settle(store_at(fix, 0), batch, &opt, &report, &next, &err), &err, "settle");
    assert_int_equal(report.fenced_slices, 1);
    assert_int_equal(report.published + report.fenced_items, 32);
    for (uint32_t i = 0; i < batch->item_count; i++)
        assert_true(batch->items[i].fenced == (batch->items[i].lane == stolen));
    for (uint32_t i = 0; i < next->slice_count; i++)
        assert_int_not_equal(next->slices[i].lane, stolen);
    pr__batch_free(batch);
    pr__batch_free(next);
    pr__batch_free(rival);
}

static pr__batch *die_holding(fixture *fix, pr__batch *batch)
{
    pr__batch_free(batch);
    pass_ms(fix, LEASE_MS);
    return claim_some(fix, store_at(fix, 0), 1, 10);
}

void case_claim_isolates_killer(void **state)
{
    fixture *fix = *state;
    post_many(fix, 4, TO_BROKER, NULL); /* one lane; 3 kills whoever sends it */
    pr__batch *batch = claim_some(fix, store_at(fix, 0), 1, 10);
    int crashes = 0;
    uint32_t published = 0;
    for (int round = 0; round < 20 && batch; round++) {
        bool killed = false;
        for (uint32_t i = 0; i < batch->item_count; i++)
            killed = killed || (number_of(&batch->items[i]) == 3 && !batch->items[i].poison);
        if (killed) {
            crashes++;
            batch = die_holding(fix, batch);
            continue;
        }
        if (crashes >= 3)
            assert_int_equal(batch->item_count, 1); /* one at a time */
        for (uint32_t i = 0; i < batch->item_count; i++)
            batch->items[i].result =
                batch->items[i].poison ? PR__RESULT_FAILED : PR__RESULT_PUBLISHED;
        published += settle_free(fix, store_at(fix, 0), batch).published;
        batch = claim(fix, store_at(fix, 0), 1, 10);
    }
    assert_null(batch);
    assert_int_equal(crashes, 4); /* three takeovers of the slice, and one of the single */
    assert_int_equal(published, 3);
    assert_int_equal(count(fix, "SELECT attempts FROM {t}outbox_parked"), 1);
    post(fix, TO_BROKER, NULL); /* and the lane is as before */
    post(fix, TO_BROKER, NULL);
    batch = claim_some(fix, store_at(fix, 0), 1, 10);
    assert_int_equal(batch->item_count, 2);
    assert_int_equal(batch->slices[0].attempt, 0);
    pr__batch_free(batch);
}

void case_claim_backlog(void **state)
{
    fixture *fix = *state;
    pr_error err = PR_ERROR_INIT;
    pr__backlog backlog;
    check_ok(pr__store_backlog(store_at(fix, 0), 1, 2000, &backlog, &err), &err, "empty");
    assert_int_equal(backlog.pending, 0);
    assert_int_equal(backlog.oldest_pending_age_ms, 0);
    post_many(fix, 30, TO_BROKER, NULL);
    pass_ms(fix, 60000);
    pr__batch *batch = claim_some(fix, store_at(fix, 0), 1, 10);
    check_ok(pr__store_backlog(store_at(fix, 0), 1, 2000, &backlog, &err), &err, "thirty");
    assert_int_equal(backlog.pending, 30); /* an open slice is not done yet */
    /* when it occurred was the host's clock to say, which may go on beside */
    assert_in_range(backlog.oldest_pending_age_ms, 30000, 60000);
    batch->items[0].result = PR__RESULT_PUBLISHED;
    settle_free(fix, store_at(fix, 0), batch);
    check_ok(pr__store_backlog(store_at(fix, 0), 1, 2000, &backlog, &err), &err, "rest");
    assert_int_equal(backlog.pending, 29);
}
