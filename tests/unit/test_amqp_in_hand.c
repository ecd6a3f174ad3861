/*
 * What a RabbitMQ subscription has in hand: tags, epochs, memory that stays until it is settled.
 */
#include "support/test.h"

#include "transport/amqp/in_hand.h"

static pr__wire_in *one(const char *body)
{
    amqp_basic_properties_t none = {._flags = 0};
    pr__wire_in *in = NULL;
    pr_error err = PR_ERROR_INIT;
    check_ok(pr__wire_decode(&none, strlen(body), &in, &err), &err, body);
    char bytes[16];
    snprintf(bytes, sizeof(bytes), "%s", body);
    assert_true(pr__wire_fill(in, (amqp_bytes_t){strlen(bytes), bytes}));
    return in;
}

static pr_delivery take(pr__in_hand *hand, const char *body)
{
    pr_delivery delivery;
    assert_true(pr__in_hand_take(hand, &delivery));
    assert_int_equal(delivery.message.body_size_bytes, strlen(body));
    assert_memory_equal(delivery.message.body, body, strlen(body));
    return delivery;
}

static void deliveries_come_in_order_and_are_settled_once(void **state)
{
    (void)state;
    pr__in_hand hand;
    pr_delivery none;
    uint64_t tag = 0;
    pr__in_hand_init(&hand, 7);
    assert_false(pr__in_hand_take(&hand, &none));
    assert_true(pr__in_hand_add(&hand, one("a"), 1, false));
    assert_true(pr__in_hand_add(&hand, one("b"), 2, true));
    pr_delivery a = take(&hand, "a"), b = take(&hand, "b");
    assert_false(pr__in_hand_take(&hand, &none));
    assert_false(a.redelivered);
    assert_true(b.redelivered);
    assert_true(pr__in_hand_settle(&hand, b.tag, &tag));
    assert_int_equal(tag, 2);
    assert_false(pr__in_hand_settle(&hand, b.tag, &tag));
    assert_true(pr__in_hand_settle(&hand, a.tag, &tag));
    assert_int_equal(tag, 1);
    /* the slots are used again: an old tag is still no tag */
    assert_true(pr__in_hand_add(&hand, one("c"), 3, false));
    assert_true(pr__in_hand_add(&hand, one("d"), 4, false));
    pr_delivery c = take(&hand, "c");
    assert_false(pr__in_hand_settle(&hand, a.tag, &tag));
    assert_false(pr__in_hand_settle(&hand, b.tag, &tag));
    assert_false(pr__in_hand_settle(&hand, c.tag ^ 0x10000, &tag));
    assert_false(pr__in_hand_settle(&hand, 0, &tag));
    assert_false(pr__in_hand_settle(&hand, UINT64_MAX, &tag));
    assert_true(pr__in_hand_settle(&hand, c.tag, &tag));
    pr__in_hand_done(&hand); /* with one that was never taken */
}

static void what_is_not_handed_out_cannot_be_settled(void **state)
{
    (void)state;
    pr__in_hand hand;
    uint64_t tag = 0;
    pr__in_hand_init(&hand, 1);
    assert_true(pr__in_hand_add(&hand, one("a"), 1, false));
    pr_delivery first = take(&hand, "a");
    assert_true(pr__in_hand_settle(&hand, first.tag, &tag));
    assert_true(pr__in_hand_add(&hand, one("b"), 1, false)); /* same slot, same number */
    assert_false(pr__in_hand_settle(&hand, first.tag, &tag));
    pr__in_hand_done(&hand);
}

static pr__wire_in *keyed(const char *body, const char *key)
{
    pr__wire_in *in = one(body);
    in->message.key = key; /* borrowed */
    return in;
}

/* Those without a key are handed out past the others; what is forgotten is not. */
static void what_has_no_key_goes_past_what_waits(void **state)
{
    (void)state;
    pr__in_hand hand;
    pr_delivery got;
    uint64_t tag = 0;
    pr__in_hand_init(&hand, 3);
    assert_false(pr__in_hand_take_unkeyed(&hand, &got));
    assert_true(pr__in_hand_add(&hand, keyed("a", "k"), 1, false));
    assert_true(pr__in_hand_add(&hand, one("b"), 2, false));
    assert_true(pr__in_hand_add(&hand, keyed("c", "k"), 3, false));
    assert_true(pr__in_hand_add(&hand, one("d"), 4, false));
    static const char *const wanted[] = {"b", "d"};
    for (size_t i = 0; i < COUNT_OF(wanted); i++) {
        assert_true(pr__in_hand_take_unkeyed(&hand, &got));
        assert_memory_equal(got.message.body, wanted[i], 1);
        assert_false(pr__in_hand_keyed(&hand, got.tag));
        assert_int_equal(hand.handed, i + 1);
        assert_true(pr__in_hand_add(&hand, one("e"), 5 + i, false)); /* behind the last */
    }
    pr_delivery first = take(&hand, "a");
    assert_true(pr__in_hand_keyed(&hand, first.tag));
    assert_false(pr__in_hand_keyed(&hand, first.tag ^ 0x10000));
    assert_true(pr__in_hand_forget(&hand, &tag));
    assert_int_equal(tag, 3);
    take(&hand, "e");
    take(&hand, "e");
    assert_int_equal(hand.handed, 5);
    assert_true(pr__in_hand_settle(&hand, first.tag, &tag));
    assert_int_equal(hand.handed, 4);
    pr__in_hand_renew(&hand);
    assert_int_equal(hand.handed, 0);
    assert_false(pr__in_hand_forget(&hand, &tag));
    assert_false(pr__in_hand_settle(&hand, got.tag, &tag));
    assert_int_equal(hand.handed, 0);
    pr__in_hand_done(&hand);
}

/* The channel went: what was with the caller is stale, its memory stays until it is settled. */
static void a_new_channel_makes_all_stale(void **state)
{
    (void)state;
    pr__in_hand hand;
    uint64_t tag = 0;
    pr__in_hand_init(&hand, UINT32_MAX); /* the next epoch is 0 */
    assert_true(pr__in_hand_add(&hand, one("with me"), 1, false));
    assert_true(pr__in_hand_add(&hand, one("waits"), 2, false));
    pr_delivery mine = take(&hand, "with me");
    pr__in_hand_renew(&hand);
    pr_delivery none;
    assert_false(pr__in_hand_take(&hand, &none)); /* it comes again from the broker */
    assert_true(pr__in_hand_add(&hand, one("again"), 1, true));
    pr_delivery again = take(&hand, "again");
    assert_true(again.tag != mine.tag);
    assert_memory_equal(mine.message.body, "with me", 7);
    assert_false(pr__in_hand_settle(&hand, mine.tag, &tag));
    assert_false(pr__in_hand_settle(&hand, mine.tag, &tag));
    assert_true(pr__in_hand_settle(&hand, again.tag, &tag));
    assert_int_equal(tag, 1);
    for (unsigned i = 0; i < 128; i++) { /* whichever slot, the same number of the new channel */
        assert_true(pr__in_hand_add(&hand, one("new"), 1, false));
        again = take(&hand, "new");
        assert_false(pr__in_hand_settle(&hand, mine.tag, &tag));
        assert_true(pr__in_hand_settle(&hand, again.tag, &tag));
    }
    pr__in_hand_done(&hand);
}

static void there_is_a_bound(void **state)
{
    (void)state;
    pr__in_hand hand;
    pr_delivery delivery;
    pr__in_hand_init(&hand, 1);
    for (unsigned i = 0; i < PR__IN_HAND_MAX; i++) {
        assert_true(pr__in_hand_add(&hand, one("x"), i + 1, false));
        assert_true(pr__in_hand_take(&hand, &delivery));
    }
    pr__wire_in *more = one("y");
    assert_false(pr__in_hand_add(&hand, more, 1, false));
    pr__wire_in_free(more);
    uint64_t tag = 0;
    assert_true(pr__in_hand_settle(&hand, delivery.tag, &tag));
    assert_int_equal(tag, PR__IN_HAND_MAX);
    assert_true(pr__in_hand_add(&hand, one("z"), 1, false));
    pr__in_hand_done(&hand);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(deliveries_come_in_order_and_are_settled_once),
        cmocka_unit_test(what_is_not_handed_out_cannot_be_settled),
        cmocka_unit_test(what_has_no_key_goes_past_what_waits),
        cmocka_unit_test(a_new_channel_makes_all_stale),
        cmocka_unit_test(there_is_a_bound),
    };
    return RUN_TESTS(tests);
}
