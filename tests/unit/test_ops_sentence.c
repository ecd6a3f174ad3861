/*
 * explain's sentence: every state and every cause of it names what the message waits for, with
 * owner, lease left, next attempt and blocker, and nothing is left without a cause.
 */
#include "support/test.h"

#include <postroom/operations.h>

#include "base/text.h"
#include "ops/sentence.h"
#include "port/state.h"

#define NOW_US       1767225600000000LL /* 2026-01-01T00:00:00Z */
#define SECOND       1000000LL

#define RELAY_WORKED .worked = true, .owner = "relay-a", .last_at_us = NOW_US - 3 * SECOND

typedef struct sentence_case {
    const char *label;
    pr_record record;
    pr__place place;
    const char *blocker_id;
    const char *wanted[4]; /* all of them stand in the sentence */
    const char *unwanted;
    const char *owner;
    int64_t lease_left_ms;
} sentence_case;

static const sentence_case cases[] = {
    {.label = "pending, no relay ever",
     .record = {.box = PR_BOX_OUTBOX, .state = PR_STATE_PENDING, .lane = 7},
     .wanted = {"waits in lane 7", "no relay has worked on this store yet", "postroom relay"}},
    {.label = "pending for a subscription that never read",
     .record = {.box = PR_BOX_OUTBOX, .state = PR_STATE_PENDING, .reader = 2},
     .place = {.reader_name = "billing"},
     .wanted = {"subscription \"billing\" has not read yet"}},
    {.label = "pending, idle lane",
     .record = {.box = PR_BOX_OUTBOX, .state = PR_STATE_PENDING, .lane = 3},
     .place = {RELAY_WORKED},
     .wanted = {"waits in lane 3 for the next claim", "relay-a was last at work 3.0 s ago"},
     .unwanted = "hands"},
    {.label = "pending behind a leased slice",
     .record = {.box = PR_BOX_OUTBOX, .state = PR_STATE_PENDING, .lane = 3},
     .place = {RELAY_WORKED, .slice_count = 20, .lease_until_us = NOW_US + 12 * SECOND},
     .wanted = {"waits in lane 3, after 20 in the hands of relay-a", "lease left 12.0 s"},
     .owner = "relay-a",
     .lease_left_ms = 12000},
    {.label = "pending behind a slice whose lease ran out",
     .record = {.box = PR_BOX_OUTBOX, .state = PR_STATE_PENDING, .lane = 3},
     .place = {RELAY_WORKED, .slice_count = 20, .lease_until_us = NOW_US - 4 * SECOND},
     .wanted = {"in the hands of relay-a", "ran out 4.0 s ago: the next claim takes it over"},
     .owner = "relay-a"},
    {.label = "in rest",
     .record = {.box = PR_BOX_OUTBOX, .state = PR_STATE_PENDING, .lane = 3},
     .place = {RELAY_WORKED, .in_rest = true},
     .wanted = {"claimed before without an outcome and goes first in lane 3"}},
    {.label = "pending with a parked one of its key before it",
     .record = {.box = PR_BOX_OUTBOX, .state = PR_STATE_PENDING},
     .place = {RELAY_WORKED},
     .blocker_id = "m-1",
     .wanted = {"it will be held behind message \"m-1\" of its key"}},
    {.label = "pending while a destination is down",
     .record = {.box = PR_BOX_OUTBOX, .state = PR_STATE_PENDING},
     .place = {RELAY_WORKED, .deferred_count = 1000},
     .wanted = {"1000 of its lane wait for a destination that is down"}},
    {.label = "pending but expired",
     .record = {.box = PR_BOX_OUTBOX,
                .state = PR_STATE_PENDING,
                .message = {.expires_at_us = NOW_US - 1}},
     .place = {RELAY_WORKED},
     .wanted = {"has expired and will not be sent"}},
    {.label = "redriven",
     .record = {.box = PR_BOX_OUTBOX, .state = PR_STATE_PENDING, .next_attempt_at_us = NOW_US},
     .place = {RELAY_WORKED},
     .wanted = {"was redriven, is due and waits for a relay"}},
    {.label = "redriven behind a parked one",
     .record = {.box = PR_BOX_OUTBOX, .state = PR_STATE_PENDING, .next_attempt_at_us = NOW_US},
     .place = {RELAY_WORKED},
     .blocker_id = "m-1",
     .wanted = {"was redriven and waits behind message \"m-1\""}},
    {.label = "publishing in a slice",
     .record = {.box = PR_BOX_OUTBOX, .state = PR_STATE_PUBLISHING},
     .place = {RELAY_WORKED, .in_slice = true, .slice_count = 5, .attempt = 2,
               .lease_until_us = NOW_US + SECOND / 2},
     .wanted = {"is in the hands of relay-a, lease left 500 ms", "taken over 2 times"},
     .owner = "relay-a",
     .lease_left_ms = 500},
    {.label = "publishing, holder gone",
     .record = {.box = PR_BOX_OUTBOX, .state = PR_STATE_PUBLISHING},
     .place = {RELAY_WORKED, .in_slice = true, .slice_count = 5, .lease_until_us = NOW_US - SECOND},
     .wanted = {"whose lease ran out 1.0 s ago: the next claim takes it over"},
     .unwanted = "taken over",
     .owner = "relay-a"},
    {.label = "publishing out of parked",
     .record = {.box = PR_BOX_OUTBOX,
                .state = PR_STATE_PUBLISHING,
                .owner = "relay-b",
                .takeovers = 1,
                .locked_until_us = NOW_US + 2 * SECOND},
     .place = {RELAY_WORKED},
     .wanted = {"is in the hands of relay-b, lease left 2.0 s", "taken over 1 time"},
     .owner = "relay-b",
     .lease_left_ms = 2000},
    {.label = "published, time known",
     .record = {.box = PR_BOX_OUTBOX,
                .state = PR_STATE_PUBLISHED,
                .message = {.destination = "database://topic/urn:message:shop:placed"}},
     .place = {RELAY_WORKED, .settled_at_us = NOW_US},
     .wanted = {"was published to \"database://topic/urn:message:shop:placed\"",
                "settled at 2026-01-01T00:00:00.000000Z"}},
    {.label = "published long ago",
     .record = {.box = PR_BOX_OUTBOX,
                .state = PR_STATE_PUBLISHED,
                .message = {.destination = "memory://in/a"}},
     .place = {RELAY_WORKED},
     .wanted = {"was published to \"memory://in/a\""},
     .unwanted = "settled"},
    {.label = "passed over by the relay",
     .record = {.box = PR_BOX_OUTBOX, .state = PR_STATE_PUBLISHED},
     .place = {RELAY_WORKED, .passed_over = true},
     .wanted = {"stays in this store for its subscriptions"}},
    {.label = "taken by a subscription",
     .record = {.box = PR_BOX_OUTBOX, .state = PR_STATE_PUBLISHED, .reader = 2},
     .place = {RELAY_WORKED, .reader_name = "billing"},
     .wanted = {"was taken by subscription \"billing\""}},
    {.label = "failed, waiting for its time",
     .record = {.box = PR_BOX_OUTBOX,
                .state = PR_STATE_FAILED,
                .attempts = 3,
                .last_error = "refused: too old",
                .next_attempt_at_us = NOW_US + 40 * SECOND},
     .place = {RELAY_WORKED},
     .wanted = {"failed 3 times: refused: too old", "next attempt in 40.0 s"}},
    {.label = "failed once, due",
     .record = {.box = PR_BOX_OUTBOX,
                .state = PR_STATE_FAILED,
                .attempts = 1,
                .next_attempt_at_us = NOW_US - 1},
     .place = {RELAY_WORKED},
     .wanted = {"failed 1 time;", "is due and waits for a relay"}},
    {.label = "deferred for its destination",
     .record = {.box = PR_BOX_OUTBOX,
                .state = PR_STATE_FAILED,
                .last_error = "connection refused",
                .next_attempt_at_us = NOW_US + SECOND},
     .place = {RELAY_WORKED},
     .wanted = {"waits without a charge: connection refused", "next attempt in 1.0 s"}},
    {.label = "failed behind an older one",
     .record = {.box = PR_BOX_OUTBOX, .state = PR_STATE_FAILED, .attempts = 1},
     .place = {RELAY_WORKED},
     .blocker_id = "m-0",
     .wanted = {"it goes on after message \"m-0\" of its key"}},
    {.label = "held",
     .record = {.box = PR_BOX_OUTBOX, .state = PR_STATE_HELD},
     .place = {RELAY_WORKED},
     .blocker_id = "m-0",
     .wanted = {"is held behind message \"m-0\" of its key"}},
    {.label = "held and free to go",
     .record = {.box = PR_BOX_OUTBOX, .state = PR_STATE_HELD},
     .place = {RELAY_WORKED},
     .wanted = {"nothing of its key is before it any more", "waits for a relay"}},
    {.label = "held by an operator",
     .record = {.box = PR_BOX_OUTBOX, .state = PR_STATE_HELD, .operator_hold = true},
     .place = {RELAY_WORKED},
     .wanted = {"an operator holds it until it is released"}},
    {.label = "delayed",
     .record = {.box = PR_BOX_OUTBOX,
                .state = PR_STATE_DELAYED,
                .next_attempt_at_us = NOW_US + 60 * SECOND},
     .place = {RELAY_WORKED},
     .wanted = {"is delayed until 2026-01-01T00:01:00.000000Z, in 1 min"}},
    {.label = "delayed and due",
     .record = {.box = PR_BOX_OUTBOX,
                .state = PR_STATE_DELAYED,
                .next_attempt_at_us = NOW_US - 2 * SECOND},
     .place = {RELAY_WORKED},
     .wanted = {"is due for 2.0 s and waits for a relay to promote it"}},
    {.label = "dead",
     .record =
         {.box = PR_BOX_OUTBOX, .state = PR_STATE_DEAD, .attempts = 11, .last_error = "unroutable"},
     .place = {RELAY_WORKED},
     .wanted = {"is dead after 11 attempts: unroutable", "redrive or discard it"}},
    {.label = "unreadable",
     .record = {.box = PR_BOX_OUTBOX,
                .state = PR_STATE_DEAD,
                .unreadable = "the type is not valid UTF-8"},
     .place = {RELAY_WORKED},
     .wanted = {"cannot be read: the type is not valid UTF-8", "it is dead"}},
    {.label = "inbox, redriven",
     .record = {.box = PR_BOX_INBOX, .consumer = "billing", .state = PR_STATE_PENDING},
     .wanted = {"was redriven, is due and waits for endpoint \"billing\""}},
    {.label = "inbox, at work",
     .record = {.box = PR_BOX_INBOX,
                .consumer = "billing",
                .state = PR_STATE_PUBLISHING,
                .owner = "host:1",
                .locked_until_us = NOW_US + 9 * SECOND},
     .wanted = {"is being handled by host:1, lease left 9.0 s"},
     .owner = "host:1",
     .lease_left_ms = 9000},
    {.label = "inbox, failed",
     .record = {.box = PR_BOX_INBOX,
                .consumer = "billing",
                .state = PR_STATE_FAILED,
                .attempts = 2,
                .last_error = "no such account",
                .next_attempt_at_us = NOW_US + 5 * SECOND},
     .wanted = {"failed 2 times: no such account", "next attempt in 5.0 s"}},
    {.label = "inbox, handled",
     .record = {.box = PR_BOX_INBOX,
                .consumer = "billing",
                .state = PR_STATE_PUBLISHED,
                .settled_at_us = NOW_US},
     .wanted = {"was handled by endpoint \"billing\" at 2026-01-01T00:00:00.000000Z"}},
    {.label = "inbox, held",
     .record = {.box = PR_BOX_INBOX, .consumer = "billing", .state = PR_STATE_HELD},
     .blocker_id = "x-9",
     .wanted = {"is held behind message \"x-9\""}},
    {.label = "inbox, dead",
     .record = {.box = PR_BOX_INBOX, .consumer = "billing", .state = PR_STATE_DEAD, .attempts = 1},
     .wanted = {"is dead after 1 attempt;"}},
};

static void test_every_state_and_cause(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        const sentence_case *c = &cases[i];
        pr__situation situation = {.record = &c->record,
                                   .place = c->record.box == PR_BOX_OUTBOX ? &c->place : NULL,
                                   .blocker_id = c->blocker_id ? c->blocker_id : "",
                                   .now_us = NOW_US};
        pr_explanation got = {.size = (uint32_t)sizeof got};
        pr__sentence_make(&situation, &got);
        for (size_t w = 0; w < COUNT_OF(c->wanted) && c->wanted[w]; w++)
            if (!strstr(got.summary, c->wanted[w]))
                fail_msg("case '%s': wanted '%s' in: %s", c->label, c->wanted[w], got.summary);
        if (c->unwanted && strstr(got.summary, c->unwanted))
            fail_msg("case '%s': unwanted '%s' in: %s", c->label, c->unwanted, got.summary);
        CHECK_CASE(strcmp(got.owner, c->owner ? c->owner : "") == 0, c->label);
        CHECK_CASE(got.lease_left_ms == c->lease_left_ms, c->label);
        CHECK_CASE(strcmp(got.blocker_id, situation.blocker_id) == 0, c->label);
        CHECK_CASE(got.state == c->record.state && got.box == c->record.box, c->label);
        CHECK_CASE(got.attempts == c->record.attempts, c->label);
        CHECK_CASE(got.next_attempt_at_us == c->record.next_attempt_at_us, c->label);
        CHECK_CASE(got.size == sizeof got, c->label);
    }
}

static void test_every_state_is_in_the_table(void **state)
{
    (void)state;
    for (int wanted = PR_STATE_PENDING; wanted < PR_STATE_COUNT; wanted++) {
        bool outbox = false;
        for (size_t i = 0; i < COUNT_OF(cases); i++)
            outbox = outbox ||
                     ((int)cases[i].record.state == wanted && cases[i].record.box == PR_BOX_OUTBOX);
        CHECK_CASE(outbox, pr__state_text((pr_state)wanted));
    }
}

static void test_a_long_error_is_cut_at_a_code_point(void **state)
{
    (void)state;
    char text[4000];
    for (size_t i = 0; i + 3 < sizeof text; i += 3)
        memcpy(text + i, "\xE2\x82\xAC", 3);
    text[3999] = '\0';
    pr_record record = {.box = PR_BOX_OUTBOX, .state = PR_STATE_DEAD, .last_error = text};
    pr__place place = {.worked = true};
    pr__situation situation = {
        .record = &record, .place = &place, .blocker_id = "", .now_us = NOW_US};
    pr_explanation got = {.size = (uint32_t)sizeof got};
    pr__sentence_make(&situation, &got);
    assert_true(pr__utf8_valid(got.summary, strlen(got.summary)));
    assert_non_null(strstr(got.summary, "...; redrive or discard it"));
}

static void test_what_does_not_fit_is_cut_at_a_code_point(void **state)
{
    (void)state;
    char name[512];
    for (size_t i = 0; i + 3 < sizeof name; i += 3)
        memcpy(name + i, "\xE2\x82\xAC", 3);
    name[510] = '\0';
    pr_record record = {
        .box = PR_BOX_OUTBOX, .state = PR_STATE_PUBLISHED, .message = {.destination = name}};
    pr__place place = {.worked = true, .settled_at_us = NOW_US};
    pr__situation situation = {
        .record = &record, .place = &place, .blocker_id = "", .now_us = NOW_US};
    pr_explanation got = {.size = (uint32_t)sizeof got};
    pr__sentence_make(&situation, &got);
    assert_true(strlen(got.summary) > 500);
    assert_true(pr__utf8_valid(got.summary, strlen(got.summary)));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_state_and_cause),
        cmocka_unit_test(test_every_state_is_in_the_table),
        cmocka_unit_test(test_a_long_error_is_cut_at_a_code_point),
        cmocka_unit_test(test_what_does_not_fit_is_cut_at_a_code_point),
    };
    return RUN_TESTS(tests);
}
