/*
 * The window of unconfirmed publishes: each entry is told once, whatever the broker says.
 */
#include "support/test.h"

#include "transport/amqp/confirm.h"

enum { CAPACITY = 8, MESSAGES = 64 };

typedef struct bench {
    pr__confirms confirms;
    pr_message messages[MESSAGES];
    char ids[MESSAGES][8];
    char told[MESSAGES + 1]; /* by ticket: '.' nothing yet, else C R N L */
    unsigned twice;
    size_t pushed;
} bench;

static void tell(void *user, const pr__confirm_entry *entry, pr_submit_outcome outcome)
{
    static const char letters[] = {[PR_SUBMIT_CONFIRMED] = 'C',
                                   [PR_SUBMIT_RETURNED] = 'R',
                                   [PR_SUBMIT_REFUSED] = 'N',
                                   [PR_SUBMIT_TOO_LARGE] = '!',
                                   [PR_SUBMIT_LOST] = 'L'};
    bench *at = user;
    if (at->told[entry->ticket] != '.')
        at->twice++;
    assert_non_null(entry->message);
    at->told[entry->ticket] = letters[outcome];
}

static void open_bench(bench *at)
{
    pr_error err = PR_ERROR_INIT;
    *at = (bench){.pushed = 0};
    memset(at->told, '.', MESSAGES);
    for (size_t i = 0; i < MESSAGES; i++) {
        snprintf(at->ids[i], sizeof(at->ids[i]), "m%zu", i);
        at->messages[i] = (pr_message)PR_MESSAGE(.id = at->ids[i], .body_size_bytes = 10);
    }
    check_ok(pr__confirms_init(&at->confirms, CAPACITY, &err), &err, "init");
}

static void push(bench *at, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const pr_message *message = &at->messages[at->pushed];
        pr__confirms_push(&at->confirms, at->pushed, message, pr__confirms_hash(message->id),
                          (int64_t)at->pushed * 100);
        at->pushed++;
    }
}

static void close_bench(bench *at)
{
    assert_int_equal(at->twice, 0);
    pr__confirms_done(&at->confirms);
}

static bool settle(bench *at, uint64_t tag, bool multiple, bool acked)
{
    return pr__confirms_settle(&at->confirms, tag, multiple, acked, tell, at);
}

/* What the broker says, one letter and a tag each: a ack, A ack multiple, n nack, N nack multiple,
   r return of the message; then what was told of the messages 1 to 8. */
static void scripts(void **state)
{
    (void)state;
    static const struct {
        const char *script, *told;
        unsigned left;
    } cases[] = {
        {"", "........", 8},       {"a1", "C.......", 7},
        {"a3", "..C.....", 8}, /* the first holds the window */
        {"a3a1a2", "CCC.....", 5}, {"A3", "CCC.....", 5},
        {"A8", "CCCCCCCC", 0},     {"A0", "CCCCCCCC", 0}, /* all so far */
        {"n2", ".N......", 8},     {"N4", "NNNN....", 4},
        {"a1N3", "CNN.....", 5},                            /* facts.md: reject-publish */
        {"a2N3", "NCN.....", 5},   {"r2a2", ".R......", 8}, /* the return wins over the ack */
        {"r2A4", "CRCC....", 4},   {"r2n2", ".R......", 8},
        {"a2r2", ".C......", 8}, /* too late: it was told */
        {"a1a1", "C.......", 7}, /* a tag that is done */
        {"a9", "........", 8},   /* a tag that was never sent */
        {"A9", "........", 8},     {"a2A2A1", "CC......", 6},
        {"r9", "........", 8},     {"A4A4", "CCCC....", 4},
        {"N0", "NNNNNNNN", 0},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        bench at;
        open_bench(&at);
        push(&at, 8);
        for (const char *step = cases[i].script; *step != '\0'; step += 2) {
            uint64_t tag = (uint64_t)(step[1] - '0');
            char id[8];
            snprintf(id, sizeof(id), "m%d", (int)tag - 1);
            if (step[0] == 'r')
                pr__confirms_returned(&at.confirms, id, strlen(id), 312);
            else
                settle(&at, tag, step[0] == 'A' || step[0] == 'N',
                       step[0] == 'a' || step[0] == 'A');
        }
        if (strncmp(at.told, cases[i].told, 8) != 0)
            fail_msg("'%s': told %.8s, wanted %s", cases[i].script, at.told, cases[i].told);
        CHECK_CASE(pr__confirms_count(&at.confirms) == cases[i].left, cases[i].script);
        close_bench(&at);
    }
}

static void stale_tags_are_said_to_be(void **state)
{
    (void)state;
    bench at;
    open_bench(&at);
    assert_false(settle(&at, 0, false, true));
    assert_false(settle(&at, 1, false, true));
    assert_false(settle(&at, 0, true, true)); /* nothing was sent */
    push(&at, 2);
    assert_true(settle(&at, 1, false, true));
    assert_false(settle(&at, 1, false, true));
    assert_false(settle(&at, 3, true, true));
    assert_false(settle(&at, UINT64_MAX, true, true));
    assert_true(settle(&at, 2, true, true));
    assert_string_equal((at.told[2] = '\0', at.told), "CC");
    close_bench(&at);
}

/* Round and round: the cursors pass the end of the ring, the bytes and ids come out even. */
static void the_ring_goes_round(void **state)
{
    (void)state;
    bench at;
    open_bench(&at);
    push(&at, 5);
    for (uint64_t tag = 3; at.pushed + 3 <= MESSAGES; tag += 3) {
        assert_true(settle(&at, tag, true, true));
        push(&at, 3);
        assert_int_equal(at.confirms.bytes, 10 * pr__confirms_count(&at.confirms));
    }
    assert_true(settle(&at, 0, true, true));
    for (size_t i = 0; i < at.pushed; i++)
        assert_int_equal(at.told[i], 'C');
    assert_int_equal(at.confirms.bytes, 0);
    for (size_t i = 0; i < at.confirms.bucket_count; i++)
        assert_int_equal(at.confirms.buckets[i], 0);
    close_bench(&at);
}

static void ids_on_their_way_are_known(void **state)
{
    (void)state;
    bench at;
    open_bench(&at);
    push(&at, 3);
    assert_true(pr__confirms_has(&at.confirms, "m1", pr__confirms_hash("m1")));
    assert_false(pr__confirms_has(&at.confirms, "m5", pr__confirms_hash("m5")));
    assert_false(pr__confirms_has(&at.confirms, "other", pr__confirms_hash("m1")));
    assert_true(settle(&at, 2, false, true)); /* settled behind an open one */
    assert_false(pr__confirms_has(&at.confirms, "m1", pr__confirms_hash("m1")));
    close_bench(&at);
}

/* Lost at the deadline: told, but the place is kept for a confirm that comes late. */
static void expired_ones_keep_their_place(void **state)
{
    (void)state;
    bench at;
    open_bench(&at);
    push(&at, 6);
    assert_true(pr__confirms_returned(&at.confirms, "m1", 2, 312));
    pr__confirms_expire(&at.confirms, 300, tell, &at); /* 0, 1, 2 were sent before 300 */
    assert_memory_equal(at.told, "LRL...", 6);
    assert_int_equal(pr__confirms_count(&at.confirms), 6);
    assert_int_equal(at.confirms.bytes, 30);
    assert_false(pr__confirms_returned(&at.confirms, "m0", 2, 312));
    assert_false(pr__confirms_has(&at.confirms, "m0", pr__confirms_hash("m0")));
    assert_true(settle(&at, 4, true, true));
    assert_memory_equal(at.told, "LRLC..", 6);
    assert_int_equal(pr__confirms_count(&at.confirms), 2);
    pr__confirms_expire(&at.confirms, 0, tell, &at);
    assert_memory_equal(at.told, "LRLC..", 6);
    close_bench(&at);
}

static void a_channel_that_ends_loses_the_rest(void **state)
{
    (void)state;
    bench at;
    open_bench(&at);
    push(&at, 5);
    assert_true(settle(&at, 2, false, true));
    assert_true(pr__confirms_returned(&at.confirms, "m3", 2, 312));
    pr__confirms_reset(&at.confirms, tell, &at);
    assert_memory_equal(at.told, "LCLRL", 5);
    assert_int_equal(pr__confirms_count(&at.confirms), 0);
    assert_int_equal(at.confirms.bytes, 0);
    push(&at, 2); /* tags begin anew */
    assert_false(settle(&at, 6, false, true));
    assert_true(settle(&at, 2, true, false));
    assert_memory_equal(at.told, "LCLRLNN", 7);
    close_bench(&at);
}

/* Whatever comes in whatever order: nobody is told twice, nobody is forgotten. */
static void anything_may_come(void **state)
{
    (void)state;
    uint32_t random = 20261130;
    for (unsigned round = 0; round < 300; round++) {
        bench at;
        open_bench(&at);
        while (at.pushed < MESSAGES) {
            random = random * 1664525u + 1013904223u;
            uint32_t dice = random >> 24;
            if (dice < 120 && !pr__confirms_full(&at.confirms))
                push(&at, 1);
            else if (dice < 220)
                settle(&at, random >> 8 & 63, dice & 1, dice & 2);
            else if (dice < 230)
                pr__confirms_returned(&at.confirms, at.ids[random >> 8 & 63], 2, 312);
            else if (dice < 240)
                pr__confirms_expire(&at.confirms, (random >> 8 & 63) * 100, tell, &at);
            else if (pr__confirms_full(&at.confirms))
                settle(&at, at.confirms.confirmed, false, true);
        }
        pr__confirms_reset(&at.confirms, tell, &at);
        for (size_t i = 0; i < MESSAGES; i++)
            assert_true(at.told[i] != '.');
        assert_int_equal(at.confirms.bytes, 0);
        close_bench(&at);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(scripts),
        cmocka_unit_test(stale_tags_are_said_to_be),
        cmocka_unit_test(the_ring_goes_round),
        cmocka_unit_test(ids_on_their_way_are_known),
        cmocka_unit_test(expired_ones_keep_their_place),
        cmocka_unit_test(a_channel_that_ends_loses_the_rest),
        cmocka_unit_test(anything_may_come),
    };
    return RUN_TESTS(tests);
}
