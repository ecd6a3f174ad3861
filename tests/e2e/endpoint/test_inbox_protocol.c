/*
 * The inbox's steps against each other: marks, parked rows, tokens, and who loses.
 */
#include "e2e/endpoint/world.h"

#include "base/hash.h"
#include "core/inbox.h"
#include "port/batch.h"

#define TOKEN_A "0198c5f2-7d3e-7a10-8b2c-0000000000aa"

typedef struct message_work {
    pr_message message;
    pr__inbox_work inbox;
} message_work;

static message_work work_of(const char *id, const char *key, const char *body)
{
    message_work work = {.message = PR_MESSAGE(.id = id, .type = TYPE_ORDER, .type_version = 1,
                                               .content_type = "application/json", .key = key,
                                               .body = body, .body_size_bytes = strlen(body),
                                               .occurred_at_us = 1)};
    work.inbox = (pr__inbox_work){.key = {.tenant = "", .consumer = CONSUMER, .message_id = id},
                                  .token = "",
                                  .order = PR_ORDER_HOLD};
    pr__content_hash(TYPE_ORDER, 1, body, strlen(body), work.inbox.hash);
    return work;
}

static pr__inbox_entry enter(world *w, message_work *work, pr_unit **ret_unit)
{
    pr__inbox_entry entry = 0;
    pr_error err = PR_ERROR_INIT;
    work->inbox.message = &work->message;
    *ret_unit = NULL;
    check_ok(pr__inbox_enter(w->store, &work->inbox, ret_unit, &entry, &err), &err, "enter");
    assert_true((entry == PR__INBOX_RUN) == (*ret_unit != NULL));
    return entry;
}

static pr__inbox_entry park(world *w, message_work *work, pr_state state, const char *token)
{
    pr__inbox_entry entry = 0;
    pr_error err = PR_ERROR_INIT;
    work->inbox.message = &work->message;
    pr__inbox_park how = {.state = state,
                          .attempts = 1,
                          .error = "why",
                          .token = token,
                          .owner = "me",
                          .lease_ms = token ? 1000 : 0};
    check_ok(pr__inbox_park_work(w->store, &work->inbox, &how, &entry, &err), &err, "park");
    return entry;
}

static pr__inbox_entry complete(pr_unit *unit, message_work *work)
{
    pr__inbox_entry entry = 0;
    pr_outcome outcome = 0;
    pr_error err = PR_ERROR_INIT;
    check_ok(pr__inbox_complete(unit, &work->inbox, &entry, &outcome, &err), &err, "complete");
    assert_int_equal(outcome == PR_OUTCOME_COMMITTED, entry == PR__INBOX_HANDLED);
    pr_unit_free(unit);
    return entry;
}

static void effect(pr_unit *unit)
{
    assert_true(host_unit_try(unit, "INSERT INTO effects (id) VALUES ('x')"));
}

/* Claim the one due row; the token is the caller's memory. */
static void claim(world *w, char token[PR_UUID_TEXT_SIZE])
{
    pr__inbox_claim_options opt = {.consumer = CONSUMER,
                                   .owner = "me",
                                   .lease_ms = 1000,
                                   .batch_max = 1,
                                   .order = PR_ORDER_HOLD};
    AUTO(pr__batch) batch = NULL;
    pr_error err = PR_ERROR_INIT;
    check_ok(pr__store_inbox_claim(w->store, &opt, &batch, &err), &err, "claim");
    assert_non_null(batch);
    memcpy(token, batch->items[0].token, PR_UUID_TEXT_SIZE);
}

static void a_mark_makes_the_second_one_done(void **state)
{
    world *w = *state;
    message_work work = work_of("a", NULL, "1");
    pr_unit *unit;
    assert_int_equal(enter(w, &work, &unit), PR__INBOX_RUN);
    effect(unit);
    assert_int_equal(complete(unit, &work), PR__INBOX_HANDLED);
    assert_int_equal(enter(w, &work, &unit), PR__INBOX_DONE);
    assert_int_equal(park(w, &work, PR_STATE_FAILED, NULL), PR__INBOX_DONE);
    assert_int_equal(park(w, &work, PR_STATE_DEAD, NULL), PR__INBOX_DONE);
    assert_int_equal(park(w, &work, PR_STATE_PUBLISHING, TOKEN_A), PR__INBOX_DONE);
    assert_int_equal(world_number(w, PARKED), 0); /* never beside a mark */
    message_work other = work_of("a", NULL, "2");
    assert_int_equal(enter(w, &other, &unit), PR__INBOX_CONFLICT);
    assert_int_equal(park(w, &other, PR_STATE_FAILED, NULL), PR__INBOX_CONFLICT);
    assert_int_equal(world_number(w, EFFECTS), 1);
}

static void a_unit_that_is_not_completed_leaves_no_mark(void **state)
{
    world *w = *state;
    message_work work = work_of("a", NULL, "1");
    pr_unit *unit;
    assert_int_equal(enter(w, &work, &unit), PR__INBOX_RUN);
    effect(unit);
    pr_unit_free(unit);
    assert_int_equal(world_number(w, MARKS), 0);
    assert_int_equal(world_number(w, EFFECTS), 0);
}

static void a_parked_row_is_a_copy_for_everybody_but_its_holder(void **state)
{
    world *w = *state;
    static const pr_state states[] = {PR_STATE_FAILED, PR_STATE_DEAD, PR_STATE_HELD,
                                      PR_STATE_PUBLISHING};
    for (size_t i = 0; i < COUNT_OF(states); i++) {
        char id[8];
        (void)snprintf(id, sizeof id, "m%zu", i);
        message_work work = work_of(id, NULL, "1");
        const char *token = states[i] == PR_STATE_PUBLISHING ? TOKEN_A : NULL;
        pr_unit *unit;
        CHECK_CASE(park(w, &work, states[i], token) == PR__INBOX_PARKED, id);
        CHECK_CASE(enter(w, &work, &unit) == PR__INBOX_COPY, id);
        CHECK_CASE(park(w, &work, PR_STATE_FAILED, NULL) == PR__INBOX_COPY, id);
        CHECK_CASE(park(w, &work, PR_STATE_PUBLISHING, TOKEN_A) == PR__INBOX_COPY, id);
        message_work other = work_of(id, NULL, "2");
        CHECK_CASE(enter(w, &other, &unit) == PR__INBOX_CONFLICT, id);
        CHECK_CASE(park(w, &other, PR_STATE_DEAD, NULL) == PR__INBOX_CONFLICT, id);
        if (!token)
            continue;
        work.inbox.token = TOKEN_A;
        CHECK_CASE(enter(w, &work, &unit) == PR__INBOX_RUN, id);
        effect(unit);
        CHECK_CASE(complete(unit, &work) == PR__INBOX_HANDLED, id);
    }
    assert_int_equal(world_number(w, MARKS), 1);
    assert_string_equal(world_text(w, "SELECT group_concat(state) FROM (SELECT state FROM "
                                      "postroom_inbox_parked ORDER BY place) AS x"),
                        "failed,dead,held"); /* nothing was revived */
}

static void a_holder_that_was_taken_over_changes_nothing(void **state)
{
    world *w = *state;
    message_work work = work_of("a", NULL, "1");
    char first[PR_UUID_TEXT_SIZE], second[PR_UUID_TEXT_SIZE];
    pr_unit *unit;
    assert_int_equal(park(w, &work, PR_STATE_FAILED, NULL), PR__INBOX_PARKED);
    claim(w, first);
    world_advance(w, 1001);
    claim(w, second);
    assert_string_not_equal(first, second);
    work.inbox.token = first;
    assert_int_equal(enter(w, &work, &unit), PR__INBOX_LOST);
    assert_int_equal(park(w, &work, PR_STATE_DEAD, NULL), PR__INBOX_LOST);
    assert_string_equal(world_text(w, "SELECT lock_token FROM postroom_inbox_parked"), second);
    assert_int_equal(world_number(w, MARKS), 0);
    work.inbox.token = second;
    assert_int_equal(enter(w, &work, &unit), PR__INBOX_RUN);
    effect(unit);
    assert_int_equal(complete(unit, &work), PR__INBOX_HANDLED);
    /* the old one comes back after that: done, and no new row */
    work.inbox.token = first;
    assert_int_equal(enter(w, &work, &unit), PR__INBOX_DONE);
    assert_int_equal(park(w, &work, PR_STATE_FAILED, NULL), PR__INBOX_DONE);
    assert_int_equal(world_number(w, EFFECTS), 1);
    assert_int_equal(world_number(w, PARKED), 0);
}

static void a_row_lost_while_the_handler_ran_rolls_everything_back(void **state)
{
    world *w = *state;
    message_work work = work_of("a", NULL, "1");
    char token[PR_UUID_TEXT_SIZE];
    pr_unit *unit;
    assert_int_equal(park(w, &work, PR_STATE_FAILED, NULL), PR__INBOX_PARKED);
    claim(w, token);
    work.inbox.token = token;
    assert_int_equal(enter(w, &work, &unit), PR__INBOX_RUN);
    effect(unit);
    assert_true(host_unit_try(unit, "UPDATE postroom_inbox_parked SET lock_token = '" TOKEN_A "'"));
    assert_int_equal(complete(unit, &work), PR__INBOX_LOST);
    assert_int_equal(world_number(w, EFFECTS), 0);
    assert_int_equal(world_number(w, MARKS), 0);
    assert_string_equal(world_text(w, "SELECT lock_token FROM postroom_inbox_parked"), token);
}

static void a_row_that_is_gone_is_not_parked_anew_by_its_late_holder(void **state)
{
    world *w = *state;
    message_work work = work_of("a", NULL, "1");
    char token[PR_UUID_TEXT_SIZE];
    pr_unit *unit;
    assert_int_equal(park(w, &work, PR_STATE_FAILED, NULL), PR__INBOX_PARKED);
    claim(w, token);
    world_run(w, "DELETE FROM postroom_inbox_parked");
    work.inbox.token = token;
    assert_int_equal(enter(w, &work, &unit), PR__INBOX_LOST);
    assert_int_equal(park(w, &work, PR_STATE_FAILED, NULL), PR__INBOX_LOST);
    assert_int_equal(world_number(w, PARKED), 0);
}

static void a_blocked_key_is_held_without_a_mark(void **state)
{
    world *w = *state;
    message_work head = work_of("a1", "A", "1"), next = work_of("a2", "A", "2");
    message_work other = work_of("b1", "B", "3"), tenant = work_of("a3", "A", "4");
    tenant.inbox.key.tenant = "north";
    tenant.message.tenant = "north";
    pr_unit *unit;
    assert_int_equal(park(w, &head, PR_STATE_FAILED, NULL), PR__INBOX_PARKED);
    assert_int_equal(enter(w, &next, &unit), PR__INBOX_HELD);
    assert_int_equal(world_number(w, MARKS), 0);
    assert_string_equal(world_text(w, "SELECT state FROM postroom_inbox_parked "
                                      "WHERE message_id = 'a2'"),
                        "held");
    assert_int_equal(enter(w, &next, &unit), PR__INBOX_COPY);
    assert_int_equal(enter(w, &other, &unit), PR__INBOX_RUN);
    assert_int_equal(complete(unit, &other), PR__INBOX_HANDLED);
    assert_int_equal(enter(w, &tenant, &unit), PR__INBOX_RUN); /* another tenant's key */
    assert_int_equal(complete(unit, &tenant), PR__INBOX_HANDLED);
    /* its own row does not block the head */
    char token[PR_UUID_TEXT_SIZE];
    claim(w, token);
    head.inbox.token = token;
    assert_int_equal(enter(w, &head, &unit), PR__INBOX_RUN);
    assert_int_equal(complete(unit, &head), PR__INBOX_HANDLED);
}

static void a_conflict_is_one_row_however_often_it_comes(void **state)
{
    world *w = *state;
    message_work work = work_of("a", NULL, "2");
    char id[PR_INBOX_CONFLICT_ID_SIZE], other_id[PR_INBOX_CONFLICT_ID_SIZE];
    pr_error err = PR_ERROR_INIT;
    work.inbox.message = &work.message;
    for (int i = 0; i < 3; i++)
        check_ok(pr__inbox_park_conflict(w->store, &work.inbox, &err), &err, "conflict");
    pr__inbox_conflict_id(&work.inbox, id);
    assert_int_equal(world_number(w, PARKED), 1);
    assert_string_equal(world_text(w, "SELECT message_id FROM postroom_inbox_parked"), id);
    assert_int_equal(world_number(w, MARKS), 0);
    /* the same content under another id is another conflict */
    message_work second = work_of("b", NULL, "2");
    pr__inbox_conflict_id(&second.inbox, other_id);
    assert_string_not_equal(id, other_id);
}

static int suite(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, world_setup, world_teardown)
    const struct CMUnitTest tests[] = {
        CASE(a_mark_makes_the_second_one_done),
        CASE(a_unit_that_is_not_completed_leaves_no_mark),
        CASE(a_parked_row_is_a_copy_for_everybody_but_its_holder),
        CASE(a_holder_that_was_taken_over_changes_nothing),
        CASE(a_row_lost_while_the_handler_ran_rolls_everything_back),
        CASE(a_row_that_is_gone_is_not_parked_anew_by_its_late_holder),
        CASE(a_blocked_key_is_held_without_a_mark),
        CASE(a_conflict_is_one_row_however_often_it_comes),
    };
#undef CASE
    return RUN_TESTS(tests);
}

int main(void)
{
    return world_main(suite);
}
