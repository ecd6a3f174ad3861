/*
 * What a subscription of the database transport hands out of a claimed batch, and what the batch
 * looks like when it is settled.
 */
#include "support/test.h"

#include "base/memory.h"
#include "transport/database/holding.h"

enum { MAX = 8 };

typedef struct bench {
    pr__holding holding;
    pr__batch *batch;
    pr_delivery out[MAX];
} bench;

/* One item for each letter: its key ('.' = none); a capital is blocked. */
static void open_bench(bench *at, const char *keys, pr_order order, bool parked)
{
    static const char *const names[] = {"a", "b", "c", "d"};
    uint32_t count = (uint32_t)strlen(keys);
    pr__batch *batch = pr__batch_new();
    *at = (bench){.batch = batch};
    batch->order = order;
    batch->claimed_at_us = 1000;
    batch->items = pr__arena_alloc(batch->arena, count * sizeof(*batch->items));
    batch->item_count = count;
    if (!parked) {
        batch->slices = pr__arena_alloc(batch->arena, sizeof(*batch->slices));
        batch->slice_count = 1;
    }
    for (uint32_t i = 0; i < count; i++) {
        char letter = (char)(keys[i] | 0x20);
        batch->items[i] = (pr__item){
            .message = PR_MESSAGE(.id = "m", .type = "urn:message:unit:a",
                                  .destination = "local://in/billing",
                                  .key = keys[i] == '.' ? NULL : names[letter - 'a']),
            .log_id = i + 1,
            .slice = parked ? PR__NO_SLICE : 0,
            .blocked = keys[i] >= 'A' && keys[i] <= 'Z',
        };
    }
}

static void start(bench *at)
{
    assert_true(pr__holding_init(&at->holding, at->batch, "shop"));
    at->holding.generation = 5;
}

static uint32_t hand_out(bench *at)
{
    return pr__holding_hand_out(&at->holding, at->out, MAX);
}

/* The places (from 0) of what goes out now, as text. */
static void expect_out(bench *at, const char *places)
{
    char got[MAX + 1] = "";
    uint32_t count = hand_out(at);
    for (uint32_t i = 0; i < count; i++)
        got[i] = (char)('0' + (at->out[i].tag & 0xFF) - 1);
    assert_string_equal(got, places);
}

static void decide(bench *at, uint32_t place, pr_verdict verdict)
{
    pr__item *item = pr__holding_find(&at->holding, (uint64_t)5 << 32 | (place + 1));
    assert_non_null(item);
    pr__holding_decide(&at->holding, item, verdict, 250);
}

/* P published, D deferred, X dead, H held, O open, F failed, E expired. */
static void expect_results(bench *at, const char *letters)
{
    static const char names[] = "OPLFDXEH";
    char got[MAX + 1] = "";
    pr__batch_close(at->batch);
    for (uint32_t i = 0; i < at->batch->item_count; i++)
        got[i] = names[at->batch->items[i].result];
    assert_string_equal(got, letters);
}

static void test_a_key_goes_one_at_a_time(void **state)
{
    (void)state;
    bench at;
    open_bench(&at, "aab.a", PR_ORDER_HOLD, false);
    start(&at);
    assert_int_equal(pr__holding_open(&at.holding), 5);
    expect_out(&at, "023");
    expect_out(&at, "");
    decide(&at, 2, PR_VERDICT_ACK);
    expect_out(&at, "");
    decide(&at, 0, PR_VERDICT_ACK);
    expect_out(&at, "1");
    decide(&at, 3, PR_VERDICT_ACK);
    decide(&at, 1, PR_VERDICT_ACK);
    expect_out(&at, "4");
    assert_false(pr__holding_complete(&at.holding));
    decide(&at, 4, PR_VERDICT_ACK);
    assert_true(pr__holding_complete(&at.holding));
    expect_results(&at, "PPPPP");
    pr__holding_done(&at.holding);
}

static void test_nothing_goes_behind_one_that_was_not_acknowledged(void **state)
{
    (void)state;
    static const struct {
        const char *label;
        pr_verdict verdict;
        bool parked;
        const char *results;
    } cases[] = {
        {"requeued", PR_VERDICT_REQUEUE, false, "DHPH"},
        {"rejected", PR_VERDICT_REJECT, false, "XHPH"},
        {"requeued, parked", PR_VERDICT_REQUEUE, true, "DOPO"},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        bench at;
        open_bench(&at, "aa.a", PR_ORDER_HOLD, cases[i].parked);
        start(&at);
        expect_out(&at, "02");
        decide(&at, 0, cases[i].verdict);
        expect_out(&at, "");
        CHECK_CASE(at.batch->items[0].retry_delay_ms ==
                       (cases[i].verdict == PR_VERDICT_REQUEUE ? 250 : 0),
                   cases[i].label);
        CHECK_CASE(at.batch->items[0].error != NULL, cases[i].label);
        decide(&at, 2, PR_VERDICT_ACK);
        CHECK_CASE(pr__holding_complete(&at.holding), cases[i].label);
        expect_results(&at, cases[i].results);
        pr__holding_done(&at.holding);
    }
}

static void test_skip_hands_out_everything(void **state)
{
    (void)state;
    bench at;
    open_bench(&at, "aaa", PR_ORDER_SKIP, false);
    start(&at);
    expect_out(&at, "012");
    decide(&at, 0, PR_VERDICT_REQUEUE);
    decide(&at, 1, PR_VERDICT_ACK);
    decide(&at, 2, PR_VERDICT_ACK);
    expect_results(&at, "DPP");
    pr__holding_done(&at.holding);
}

static void test_what_no_consumer_may_see_is_decided_at_once(void **state)
{
    (void)state;
    bench at;
    open_bench(&at, ".a..B.aa", PR_ORDER_HOLD, false);
    at.batch->items[0].unreadable = "the id is no id";
    at.batch->items[1].message.expires_at_us = 1000; /* at the claim: it has passed */
    at.batch->items[2].message.expires_at_us = 1001;
    at.batch->items[3].poison = true;
    at.batch->items[5].poison = true;
    at.batch->items[5].attempts = 10;
    start(&at);
    expect_out(&at, "2");
    decide(&at, 2, PR_VERDICT_ACK);
    assert_true(pr__holding_complete(&at.holding));
    assert_string_equal(at.batch->items[0].error, "the id is no id");
    assert_true(at.batch->items[3].retry_delay_ms >= 5000);
    expect_results(&at, "XEPFHXHH");
    pr__holding_done(&at.holding);
}

static void test_closing_in_the_middle_gives_back_in_order(void **state)
{
    (void)state;
    bench at;
    open_bench(&at, "aab.", PR_ORDER_HOLD, false);
    start(&at);
    expect_out(&at, "023");
    decide(&at, 3, PR_VERDICT_ACK);
    expect_results(&at, "OOOP");
    pr__holding_done(&at.holding);
}

static void test_tags_are_of_one_claim(void **state)
{
    (void)state;
    bench at;
    open_bench(&at, "..", PR_ORDER_HOLD, false);
    start(&at);
    assert_null(pr__holding_find(&at.holding, (uint64_t)5 << 32 | 1)); /* not handed out yet */
    expect_out(&at, "01");
    static const uint64_t stale[] = {
        0, 1, (uint64_t)5 << 32, (uint64_t)5 << 32 | 3, (uint64_t)4 << 32 | 1, UINT64_MAX};
    for (size_t i = 0; i < COUNT_OF(stale); i++)
        assert_null(pr__holding_find(&at.holding, stale[i]));
    decide(&at, 0, PR_VERDICT_ACK);
    assert_null(pr__holding_find(&at.holding, (uint64_t)5 << 32 | 1));
    decide(&at, 1, PR_VERDICT_ACK);
    at.holding.settling = true; /* the settle failed: its tags may come again */
    assert_ptr_equal(pr__holding_find(&at.holding, (uint64_t)5 << 32 | 1), &at.batch->items[0]);
    pr__holding_done(&at.holding);
}

static void test_a_lost_lease_makes_its_items_stale(void **state)
{
    (void)state;
    bench at;
    open_bench(&at, "aa.", PR_ORDER_HOLD, false);
    start(&at);
    expect_out(&at, "02");
    decide(&at, 2, PR_VERDICT_ACK);
    at.batch->slices[0].fenced = true;
    assert_int_equal(pr__holding_drop_fenced(&at.holding), 3);
    assert_int_equal(pr__holding_drop_fenced(&at.holding), 0);
    assert_true(pr__holding_lent(&at.holding)); /* the first is with the consumer */
    assert_null(pr__holding_find(&at.holding, (uint64_t)5 << 32 | 1));
    assert_false(pr__holding_lent(&at.holding));
    expect_out(&at, "");
    assert_true(pr__holding_complete(&at.holding));
    pr__holding_done(&at.holding);
}

static void test_deliveries_say_where_they_come_from(void **state)
{
    (void)state;
    static const struct {
        const char *label;
        bool parked, takeover, again;
        uint32_t attempts;
        bool redelivered;
    } cases[] = {
        {"fresh", false, false, false, 0, false}, {"takeover", false, true, false, 0, true},
        {"rest", false, false, true, 0, true},    {"charged", false, false, false, 1, true},
        {"parked", true, false, false, 0, true},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        bench at;
        open_bench(&at, ".", PR_ORDER_HOLD, cases[i].parked);
        if (!cases[i].parked) {
            at.batch->slices[0].takeover = cases[i].takeover;
            at.batch->slices[0].again = cases[i].again;
        }
        at.batch->items[0].attempts = cases[i].attempts;
        start(&at);
        CHECK_CASE(hand_out(&at) == 1, cases[i].label);
        CHECK_CASE(at.out[0].redelivered == cases[i].redelivered, cases[i].label);
        CHECK_CASE(strcmp(at.out[0].message.destination, "shop://in/billing") == 0, cases[i].label);
        pr__holding_done(&at.holding);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tags_are_of_one_claim),
        cmocka_unit_test(test_a_key_goes_one_at_a_time),
        cmocka_unit_test(test_nothing_goes_behind_one_that_was_not_acknowledged),
        cmocka_unit_test(test_skip_hands_out_everything),
        cmocka_unit_test(test_what_no_consumer_may_see_is_decided_at_once),
        cmocka_unit_test(test_closing_in_the_middle_gives_back_in_order),
        cmocka_unit_test(test_a_lost_lease_makes_its_items_stale),
        cmocka_unit_test(test_deliveries_say_where_they_come_from),
    };
    return RUN_TESTS(tests);
}
