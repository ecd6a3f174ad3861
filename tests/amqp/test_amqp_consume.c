/*
 * Receiving through the RabbitMQ transport on the fake broker: what is delivered, how verdicts look
 * on the wire, and what happens when consumer, channel or connection go.
 */
#include <amqp.h>
#include <amqp_framing.h>

#include "amqp/rig.h"

#define ID "018e0000-0000-7000-8000-0000000000aa"

/* Properties as on the wire; the size. */
static size_t encode(const amqp_basic_properties_t *properties, unsigned char *to, size_t size)
{
    int got = amqp_encode_properties(AMQP_BASIC_CLASS, (void *)(uintptr_t)properties,
                                     (amqp_bytes_t){size, to});
    assert_true(got > 0);
    return (size_t)got;
}

static amqp_basic_properties_t good(const char *id)
{
    return (amqp_basic_properties_t){._flags = AMQP_BASIC_MESSAGE_ID_FLAG | AMQP_BASIC_TYPE_FLAG |
                                               AMQP_BASIC_CONTENT_TYPE_FLAG,
                                     .message_id = amqp_cstring_bytes(id),
                                     .type = amqp_cstring_bytes(RIG_TYPE),
                                     .content_type = amqp_cstring_bytes("text/plain")};
}

static void deliver(amqp_rig *rig, const amqp_basic_properties_t *properties, const char *body,
                    bool redelivered)
{
    unsigned char wire[8192];
    const fake_delivery delivery = {.routing_key = "billing",
                                    .properties = wire,
                                    .properties_size = encode(properties, wire, sizeof wire),
                                    .body = body,
                                    .body_size = strlen(body),
                                    .redelivered = redelivered};
    assert_true(fake_broker_deliver(rig->broker, &delivery));
}

static void deliver_good(amqp_rig *rig, const char *id, const char *body)
{
    const amqp_basic_properties_t properties = good(id);
    deliver(rig, &properties, body, false);
}

static pr_subscription *subscribed(amqp_rig *rig)
{
    pr_error err = PR_ERROR_INIT;
    pr_subscription *subscription = NULL;
    rig_up(rig, NULL);
    check_ok(rig_subscribe(rig, &subscription, &err), &err, "subscribe");
    assert_true(fake_broker_wait(rig->broker, FAKE_CONSUME, 1, RIG_PATIENCE));
    return subscription;
}

/* Wait for the n-th settle, from 1. */
static fake_settled settled(amqp_rig *rig, unsigned number, const char *label)
{
    fake_settled got = {0};
    CHECK_CASE(fake_broker_wait(rig->broker, FAKE_SETTLE, number, RIG_PATIENCE), label);
    CHECK_CASE(fake_broker_settled(rig->broker, number - 1, &got), label);
    return got;
}

static void verdicts_are_what_the_broker_hears(void **state)
{
    (void)state;
    static const struct {
        const char *label;
        pr_verdict verdict;
        bool ack, requeue;
    } cases[] = {{"ack", PR_VERDICT_ACK, true, false},
                 {"requeue", PR_VERDICT_REQUEUE, false, true},
                 {"reject", PR_VERDICT_REJECT, false, false}};
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        const char *label = cases[i].label;
        void *held = NULL;
        pr_error err = PR_ERROR_INIT;
        rig_setup(&held);
        amqp_rig *rig = held;
        pr_subscription *billing = subscribed(rig);
        deliver_good(rig, ID, "first");
        deliver_good(rig, "018e0000-0000-7000-8000-0000000000ab", "second");
        pr_delivery first = rig_receive(billing, label);
        pr_delivery second = rig_receive(billing, label);
        CHECK_CASE(strcmp(first.message.id, ID) == 0, label);
        CHECK_CASE(first.message.body_size_bytes == 5, label);
        rig_receive_nothing(billing, 20, label);
        CHECK_CASE(fake_broker_count(rig->broker, FAKE_SETTLE) == 0, label); /* not before */
        check_ok(pr_subscription_settle(billing, second.tag, cases[i].verdict, 0, &err), &err,
                 label);
        fake_settled got = settled(rig, 1, label);
        CHECK_CASE(got.tag == 2 && !got.multiple, label); /* of this one alone */
        CHECK_CASE((got.verdict == 'a') == cases[i].ack && got.requeue == cases[i].requeue, label);
        rig_unsubscribe(rig);
        rig_teardown(&held);
    }
}

/* Consumer, channel or connection go under a subscription: it comes back by itself, and the tags
   from before are worth nothing. */
static void it_comes_back_by_itself(void **state)
{
    (void)state;
    enum { CANCEL, CHANNEL, CONNECTION, CUT };
    static const struct {
        const char *label;
        int how;
        uint16_t code;
    } cases[] = {
        {"the consumer is cancelled", CANCEL, 0},
        {"channel closed 406: an ack came too late", CHANNEL, 406},
        {"channel closed 404", CHANNEL, 404},
        {"channel closed 541", CHANNEL, 541},
        {"connection closed 320", CONNECTION, 320},
        {"connection closed 541", CONNECTION, 541},
        {"cut", CUT, 0},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        const char *label = cases[i].label;
        void *held = NULL;
        pr_error err = PR_ERROR_INIT;
        rig_setup(&held);
        amqp_rig *rig = held;
        pr_subscription *billing = subscribed(rig);
        deliver_good(rig, ID, "before");
        pr_delivery before = rig_receive(billing, label);
        bool said = cases[i].how == CANCEL ? fake_broker_cancel(rig->broker)
                    : cases[i].how == CHANNEL
                        ? fake_broker_close_channel(rig->broker, FAKE_CONSUMER, cases[i].code,
                                                    "PRECONDITION_FAILED - said so")
                    : cases[i].how == CONNECTION
                        ? fake_broker_close(rig->broker, FAKE_CONSUMER, cases[i].code, "said so")
                        : fake_broker_cut(rig->broker, FAKE_CONSUMER);
        CHECK_CASE(said, label);
        for (int64_t until = rig_now_ms() + RIG_PATIENCE;
             fake_broker_count(rig->broker, FAKE_CONSUME) < 2;) {
            rig_receive_nothing(billing, 10, label);
            CHECK_CASE(rig_now_ms() < until, label);
        }
        pr_status status = pr_subscription_settle(billing, before.tag, PR_VERDICT_ACK, 0, &err);
        check_error(status, &err, PR_E_FENCED, "", label);
        CHECK_CASE(fake_broker_count(rig->broker, FAKE_SETTLE) == 0, label);
        CHECK_CASE(rig_stats(rig).stale_tags == 1, label);
        deliver_good(rig, ID, "after");
        pr_delivery after = rig_receive(billing, label);
        pr_error_clear(&err);
        check_ok(pr_subscription_settle(billing, after.tag, PR_VERDICT_ACK, 0, &err), &err, label);
        CHECK_CASE(settled(rig, 1, label).verdict == 'a', label);
        rig_unsubscribe(rig);
        rig_works(rig, label); /* who publishes has a connection of its own */
        rig_teardown(&held);
    }
}

typedef struct stranger {
    const char *label;
    bool handed_over; /* an id that is none: whoever receives it decides, and says why */
    amqp_basic_properties_t properties;
} stranger;

static void one_stranger(amqp_rig *rig, pr_subscription *billing, const stranger *of,
                         unsigned settles_before)
{
    const char *label = of->label;
    pr_error err = PR_ERROR_INIT;
    deliver(rig, &of->properties, "bad", false);
    deliver_good(rig, ID, "good");
    if (of->handed_over) {
        pr_delivery bad = rig_receive(billing, label);
        CHECK_CASE(bad.message.body_size_bytes == 3, label);
        check_ok(pr_subscription_settle(billing, bad.tag, PR_VERDICT_REJECT, 0, &err), &err, label);
    }
    pr_delivery neighbour = rig_receive(billing, label);
    CHECK_CASE(neighbour.message.body_size_bytes == 4, label);
    fake_settled got = settled(rig, settles_before + 1, label);
    CHECK_CASE(got.verdict != 'a' && !got.requeue && !got.multiple, label);
    CHECK_CASE(got.tag == settles_before + 1, label);
    check_ok(pr_subscription_settle(billing, neighbour.tag, PR_VERDICT_ACK, 0, &err), &err, label);
    CHECK_CASE(settled(rig, settles_before + 2, label).verdict == 'a', label);
}

/* Tables that decode and say nonsense: each goes to the dead queue unread, its neighbours come. */
static void what_cannot_be_read_is_rejected(void **state)
{
    amqp_rig *rig = *state;
    static unsigned char zeros[300];
    amqp_table_entry_t deep[40];
    for (size_t i = 0; i < COUNT_OF(deep); i++) {
        bool more = i + 1 < COUNT_OF(deep);
        deep[i] = (amqp_table_entry_t){.key = amqp_cstring_bytes("t"),
                                       .value = {.kind = AMQP_FIELD_KIND_TABLE}};
        deep[i].value.value.table = (amqp_table_t){more, more ? &deep[i + 1] : NULL};
    }
    amqp_table_entry_t named_nul = {.key = {3, zeros}, .value = {.kind = AMQP_FIELD_KIND_VOID}};
    const stranger strangers[] = {
        {"no properties at all", true, {._flags = 0}},
        {"no id", true, {._flags = AMQP_BASIC_TYPE_FLAG, .type = amqp_cstring_bytes(RIG_TYPE)}},
        {"an empty id", true, {._flags = AMQP_BASIC_MESSAGE_ID_FLAG}},
        {"an id with a NUL",
         false,
         {._flags = AMQP_BASIC_MESSAGE_ID_FLAG, .message_id = {3, zeros}}},
        {"an id that is no UTF-8",
         true,
         {._flags = AMQP_BASIC_MESSAGE_ID_FLAG, .message_id = amqp_cstring_bytes("a\xFF")}},
        {"tables in tables",
         false,
         {._flags = AMQP_BASIC_MESSAGE_ID_FLAG | AMQP_BASIC_HEADERS_FLAG,
          .message_id = amqp_cstring_bytes("deep"),
          .headers = {1, deep}}},
        {"a header's name with a NUL",
         false,
         {._flags = AMQP_BASIC_MESSAGE_ID_FLAG | AMQP_BASIC_HEADERS_FLAG,
          .message_id = amqp_cstring_bytes("nul"),
          .headers = {1, &named_nul}}},
    };
    unsigned unread = 0;
    pr_subscription *billing = subscribed(rig);
    for (size_t i = 0; i < COUNT_OF(strangers); i++) {
        one_stranger(rig, billing, &strangers[i], 2 * (unsigned)i);
        unread += !strangers[i].handed_over;
        CHECK_CASE(rig_stats(rig).dead_letters == unread, strangers[i].label);
    }
    assert_int_equal(fake_broker_count(rig->broker, FAKE_CONNECT), 2); /* all on one connection */
    rig_unsubscribe(rig);
}

/* Bytes that are no properties at all: the connection cannot be used, a new one is made. */
static void broken_frames_are_survived(void **state)
{
    (void)state;
    static const unsigned char cut_table[] = {0x20, 0x00, 0x00, 0x00, 0x00, 0x40, 0x03, 'a', 'b'};
    static const unsigned char no_kind[] = {0x20, 0x00, 0, 0, 0, 4, 1, 'a', '?', 0};
    static const unsigned char garbage[] = {1, 0, 1, 0, 0, 0, 4, 0, 60, 0, 99, 0xCE};
    static const struct {
        const char *label;
        const unsigned char *properties;
        size_t size;
    } cases[] = {{"a table that ends too early", cut_table, sizeof cut_table},
                 {"a kind that is none", no_kind, sizeof no_kind},
                 {"a method that is none", NULL, 0}};
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        const char *label = cases[i].label;
        void *held = NULL;
        rig_setup(&held);
        amqp_rig *rig = held;
        pr_subscription *billing = subscribed(rig);
        const fake_delivery delivery = {.properties = cases[i].properties,
                                        .properties_size = cases[i].size,
                                        .body = "x",
                                        .body_size = 1};
        if (cases[i].properties)
            CHECK_CASE(fake_broker_deliver(rig->broker, &delivery), label);
        else
            CHECK_CASE(fake_broker_raw(rig->broker, FAKE_CONSUMER, garbage, sizeof garbage), label);
        for (int64_t until = rig_now_ms() + RIG_PATIENCE;
             fake_broker_count(rig->broker, FAKE_CONSUME) < 2;) {
            rig_receive_nothing(billing, 10, label);
            CHECK_CASE(rig_now_ms() < until, label);
        }
        deliver_good(rig, ID, "after");
        rig_receive(billing, label);
        rig_unsubscribe(rig);
        rig_teardown(&held);
    }
}

static void redelivered_is_told(void **state)
{
    amqp_rig *rig = *state;
    pr_subscription *billing = subscribed(rig);
    amqp_table_entry_t count = {.key = amqp_cstring_bytes("x-delivery-count"),
                                .value = {.kind = AMQP_FIELD_KIND_I64, .value.i64 = 3}};
    amqp_basic_properties_t properties = good(ID);
    properties._flags |= AMQP_BASIC_HEADERS_FLAG;
    properties.headers = (amqp_table_t){1, &count};
    deliver(rig, &properties, "again", true);
    pr_delivery got = rig_receive(billing, "again");
    assert_true(got.redelivered);
    assert_int_equal(got.delivery_count, 3);
    rig_unsubscribe(rig);
}

static const struct {
    const char *label;
    fake_step step;
} steps[] = {
    {"channel.open", FAKE_CHANNEL_OPEN},
    {"exchange.declare", FAKE_EXCHANGE_DECLARE},
    {"queue.declare", FAKE_QUEUE_DECLARE},
    {"queue.bind", FAKE_QUEUE_BIND},
    {"qos", FAKE_QOS},
    {"consume", FAKE_CONSUME},
};
static const struct {
    const char *label;
    fake_rule rule;
    pr_status wanted;
    const char *text;
} faults[] = {
    {"cut", {.fault = FAKE_CUT}, PR_E_BACKEND, ""},
    {"silence", {.fault = FAKE_SILENCE}, PR_E_BACKEND, ""},
    {"garbage", {.fault = FAKE_GARBAGE}, PR_E_BACKEND, ""},
    {"half", {.fault = FAKE_HALF}, PR_E_BACKEND, ""},
    {"another answer", {.fault = FAKE_OTHER}, PR_E_BACKEND, ""},
    {"closed 320",
     {.fault = FAKE_CLOSED, .code = 320, .text = "CONNECTION_FORCED"},
     PR_E_BACKEND,
     "320"},
    {"403",
     {.fault = FAKE_CHANNEL_CLOSED, .code = 403, .text = "ACCESS_REFUSED - no"},
     PR_E_BACKEND,
     "ACCESS_REFUSED"},
    {"404",
     {.fault = FAKE_CHANNEL_CLOSED, .code = 404, .text = "NOT_FOUND - no queue"},
     PR_E_NOT_FOUND,
     "NOT_FOUND"},
    {"405",
     {.fault = FAKE_CHANNEL_CLOSED, .code = 405, .text = "RESOURCE_LOCKED - exclusive"},
     PR_E_CONFLICT,
     "RESOURCE_LOCKED"},
    {"406",
     {.fault = FAKE_CHANNEL_CLOSED, .code = 406, .text = "PRECONDITION_FAILED - unequal"},
     PR_E_CONFLICT,
     "PRECONDITION_FAILED"},
};

/* Every step of a subscription x what a broker does there. */
static void every_step_of_a_subscription(void **state)
{
    (void)state;
    for (size_t s = 0; s < COUNT_OF(steps); s++) {
        for (size_t f = 0; f < COUNT_OF(faults); f++) {
            char label[60];
            void *held = NULL;
            pr_error err = PR_ERROR_INIT;
            pr_subscription *billing = NULL;
            snprintf(label, sizeof label, "%s at %s", faults[f].label, steps[s].label);
            rig_setup(&held);
            amqp_rig *rig = held;
            rig_connect(rig, NULL, "connection_timeout=150");
            rig_recover(rig, label);
            fake_rule rule = faults[f].rule;
            rule.step = steps[s].step;
            fake_broker_rule(rig->broker, rule);
            pr_status status = PR_OK;
            for (int i = 0; i < RIG_ATTEMPTS; i++) {
                int64_t begun = rig_now_ms();
                status = rig_subscribe(rig, &billing, &err);
                CHECK_CASE(rig_now_ms() - begun < 10000, label);
                if (status != PR_E_BACKEND || strstr(err.message, faults[f].text))
                    break;
            }
            if (status != faults[f].wanted || billing)
                fail_msg("case '%s': %s: %s", label, pr_status_text(status), err.message);
            CHECK_CASE(strstr(err.message, faults[f].text) != NULL, label);
            fake_broker_heal(rig->broker);
            for (int i = 0; i < RIG_ATTEMPTS && status != PR_OK; i++)
                status = rig_subscribe(rig, &billing, &err);
            check_ok(status, &err, label);
            deliver_good(rig, ID, "after");
            rig_receive(billing, label);
            rig_unsubscribe(rig);
            rig_teardown(&held);
        }
    }
}

/* Prefetched and not settled: the broker must see the end of channel or connection, and no ack. */
static void closing_acks_nothing(void **state)
{
    amqp_rig *rig = *state;
    pr_subscription *billing = subscribed(rig);
    for (int i = 0; i < 3; i++)
        deliver_good(rig, ID, "held");
    rig_receive(billing, "held");
    unsigned living = fake_broker_living(rig->broker);
    rig_unsubscribe(rig);
    assert_true(fake_broker_wait(rig->broker, FAKE_END, 1, RIG_PATIENCE));
    assert_int_equal(fake_broker_living(rig->broker), living - 1);
    fake_settled got;
    for (size_t i = 0; fake_broker_settled(rig->broker, i, &got); i++)
        assert_true(got.verdict == 'n' && got.requeue);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(verdicts_are_what_the_broker_hears),
        cmocka_unit_test(it_comes_back_by_itself),
        cmocka_unit_test_setup_teardown(what_cannot_be_read_is_rejected, rig_setup, rig_teardown),
        cmocka_unit_test(broken_frames_are_survived),
        cmocka_unit_test_setup_teardown(redelivered_is_told, rig_setup, rig_teardown),
        cmocka_unit_test(every_step_of_a_subscription),
        cmocka_unit_test_setup_teardown(closing_acks_nothing, rig_setup, rig_teardown),
    };
    return RUN_TESTS(tests);
}
