/*
 * The fake broker, tested by librabbitmq itself: left alone it is a broker, and each of its faults
 * is the one that its name says.
 */
#include <sys/time.h>

#include <amqp.h>
#include <amqp_tcp_socket.h>

#include "support/fake_broker.h"
#include "support/test.h"

#define WAIT_MS 5000

typedef struct line {
    fake_broker *broker;
    amqp_connection_state_t connection;
} line;

static int setup(void **state)
{
    line *at = calloc(1, sizeof *at);
    assert_non_null(at);
    at->broker = fake_broker_start();
    *state = at;
    return 0;
}

static void hang_up(line *at)
{
    if (at->connection)
        amqp_destroy_connection(at->connection);
    at->connection = NULL;
}

static int teardown(void **state)
{
    line *at = *state;
    hang_up(at);
    fake_broker_free(at->broker);
    free(at);
    return 0;
}

/* TCP and login, in half a second; the library's own status. */
static amqp_rpc_reply_t dial(line *at)
{
    struct timeval soon = {.tv_usec = 500000};
    at->connection = amqp_new_connection();
    amqp_socket_t *tcp = amqp_tcp_socket_new(at->connection);
    assert_non_null(tcp);
    amqp_set_handshake_timeout(at->connection, &soon);
    amqp_set_rpc_timeout(at->connection, &soon);
    assert_int_equal(amqp_socket_open(tcp, "127.0.0.1", fake_broker_port(at->broker)), 0);
    return amqp_login(at->connection, "shop", 0, 131072, 0, AMQP_SASL_METHOD_PLAIN, "guest",
                      "guest");
}

static void open_channel(line *at)
{
    assert_int_equal(dial(at).reply_type, AMQP_RESPONSE_NORMAL);
    assert_non_null(amqp_channel_open(at->connection, 1));
}

static void open_publisher(line *at)
{
    open_channel(at);
    assert_non_null(amqp_confirm_select(at->connection, 1));
}

static void publish(const line *at, const char *id)
{
    amqp_table_entry_t header = {
        .key = amqp_cstring_bytes("postroom-key"),
        .value = {.kind = AMQP_FIELD_KIND_UTF8, .value.bytes = amqp_cstring_bytes("k1")}};
    amqp_basic_properties_t properties = {._flags = AMQP_BASIC_MESSAGE_ID_FLAG |
                                                    AMQP_BASIC_DELIVERY_MODE_FLAG |
                                                    AMQP_BASIC_HEADERS_FLAG,
                                          .message_id = amqp_cstring_bytes(id),
                                          .delivery_mode = 2,
                                          .headers = {1, &header}};
    assert_int_equal(amqp_basic_publish(at->connection, 1, amqp_cstring_bytes("shop"),
                                        amqp_cstring_bytes("placed"), true, false, &properties,
                                        amqp_cstring_bytes("a body")),
                     0);
}

/* The next frame's method; its status when there is none. */
static int next_method(const line *at, amqp_frame_t *ret_frame)
{
    struct timeval second = {.tv_sec = 1};
    int status = amqp_simple_wait_frame_noblock(at->connection, ret_frame, &second);
    if (status == 0)
        assert_int_equal(ret_frame->frame_type, AMQP_FRAME_METHOD);
    return status;
}

static void a_login_is_recorded(void **state)
{
    line *at = *state;
    char mechanism[64], vhost[256];
    open_publisher(at);
    fake_broker_login(at->broker, mechanism, vhost);
    assert_string_equal(mechanism, "PLAIN");
    assert_string_equal(vhost, "shop");
    assert_true(fake_broker_capability(at->broker, "authentication_failure_close"));
    assert_false(fake_broker_capability(at->broker, "connection.blocked"));
    static const fake_step once[] = {FAKE_CONNECT,       FAKE_HEADER, FAKE_START_OK,
                                     FAKE_TUNE_OK,       FAKE_OPEN,   FAKE_CHANNEL_OPEN,
                                     FAKE_CONFIRM_SELECT};
    for (size_t i = 0; i < COUNT_OF(once); i++)
        assert_int_equal(fake_broker_count(at->broker, once[i]), 1);
    assert_int_equal(fake_broker_living(at->broker), 1);
    assert_int_equal(amqp_connection_close(at->connection, AMQP_REPLY_SUCCESS).reply_type,
                     AMQP_RESPONSE_NORMAL);
    hang_up(at);
    assert_true(fake_broker_wait(at->broker, FAKE_END, 1, WAIT_MS));
    assert_int_equal(fake_broker_living(at->broker), 0);
}

static void a_publish_is_recorded_and_confirmed(void **state)
{
    line *at = *state;
    amqp_frame_t frame;
    fake_published got;
    open_publisher(at);
    publish(at, "id-1");
    assert_int_equal(next_method(at, &frame), 0);
    assert_int_equal(frame.payload.method.id, AMQP_BASIC_ACK_METHOD);
    assert_int_equal(((amqp_basic_ack_t *)frame.payload.method.decoded)->delivery_tag, 1);
    assert_true(fake_broker_published(at->broker, 0, &got));
    assert_false(fake_broker_published(at->broker, 1, &got));
    assert_int_equal(got.tag, 1);
    assert_true(got.mandatory);
    assert_int_equal(got.delivery_mode, 2);
    assert_string_equal(got.exchange, "shop");
    assert_string_equal(got.routing_key, "placed");
    assert_string_equal(got.message_id, "id-1");
    assert_string_equal(got.headers, "postroom-key=k1\n");
    assert_string_equal(got.body, "a body");
}

static void it_says_what_it_is_told(void **state)
{
    line *at = *state;
    amqp_frame_t frame;
    amqp_message_t returned;
    open_publisher(at);
    fake_broker_hold(at->broker, true);
    for (int i = 0; i < 3; i++)
        publish(at, "id");
    assert_true(fake_broker_wait(at->broker, FAKE_PUBLISH, 3, WAIT_MS));
    assert_true(fake_broker_return(at->broker, 0, 312, "NO_ROUTE"));
    assert_int_equal(next_method(at, &frame), 0);
    assert_int_equal(frame.payload.method.id, AMQP_BASIC_RETURN_METHOD);
    assert_int_equal(amqp_read_message(at->connection, 1, &returned, 0).reply_type,
                     AMQP_RESPONSE_NORMAL);
    assert_int_equal(returned.body.len, 6);
    amqp_destroy_message(&returned);
    assert_true(fake_broker_confirm(at->broker, true, 2, true));
    assert_int_equal(next_method(at, &frame), 0);
    assert_true(((amqp_basic_ack_t *)frame.payload.method.decoded)->multiple);
    assert_true(fake_broker_confirm(at->broker, false, 3, false));
    assert_int_equal(next_method(at, &frame), 0);
    assert_int_equal(frame.payload.method.id, AMQP_BASIC_NACK_METHOD);
    assert_true(fake_broker_block(at->broker, "low on memory"));
    assert_int_equal(next_method(at, &frame), 0);
    assert_int_equal(frame.payload.method.id, AMQP_CONNECTION_BLOCKED_METHOD);
    assert_true(fake_broker_block(at->broker, NULL));
    assert_int_equal(next_method(at, &frame), 0);
    assert_int_equal(frame.payload.method.id, AMQP_CONNECTION_UNBLOCKED_METHOD);
    assert_true(fake_broker_close_channel(at->broker, FAKE_PUBLISHER, 404, "NOT_FOUND"));
    assert_int_equal(next_method(at, &frame), 0);
    assert_int_equal(frame.payload.method.id, AMQP_CHANNEL_CLOSE_METHOD);
    assert_int_equal(((amqp_channel_close_t *)frame.payload.method.decoded)->reply_code, 404);
    publish(at, "on a closed channel");
    assert_false(fake_broker_close(at->broker, FAKE_PUBLISHER, 320, "no channel, no publisher"));
    assert_int_equal(fake_broker_count(at->broker, FAKE_PUBLISH), 3);
}

static void it_delivers(void **state)
{
    line *at = *state;
    amqp_envelope_t envelope;
    amqp_frame_t frame;
    fake_settled settled;
    struct timeval second = {.tv_sec = 1};
    const fake_delivery delivery = {
        .routing_key = "r", .body = "12345", .body_size = 5, .redelivered = true};
    open_channel(at);
    assert_false(fake_broker_deliver(at->broker, &delivery));
    assert_non_null(amqp_basic_consume(at->connection, 1, amqp_cstring_bytes("q"), amqp_empty_bytes,
                                       0, 0, 0, amqp_empty_table));
    assert_true(fake_broker_deliver(at->broker, &delivery));
    assert_int_equal(amqp_consume_message(at->connection, &envelope, &second, 0).reply_type,
                     AMQP_RESPONSE_NORMAL);
    assert_int_equal(envelope.delivery_tag, 1);
    assert_true(envelope.redelivered);
    assert_int_equal(envelope.message.body.len, 5);
    amqp_destroy_envelope(&envelope);
    assert_int_equal(amqp_basic_nack(at->connection, 1, 1, true, true), 0);
    assert_true(fake_broker_wait(at->broker, FAKE_SETTLE, 1, WAIT_MS));
    assert_true(fake_broker_settled(at->broker, 0, &settled));
    assert_true(settled.verdict == 'n' && settled.multiple && settled.requeue && settled.tag == 1);
    assert_true(fake_broker_cancel(at->broker));
    assert_int_equal(next_method(at, &frame), 0);
    assert_int_equal(frame.payload.method.id, AMQP_BASIC_CANCEL_METHOD);
    assert_false(fake_broker_cancel(at->broker));
}

/* Each fault in the place of one answer: what librabbitmq makes of it. */
static void each_fault_is_what_it_says(void **state)
{
    (void)state;
    static const struct {
        const char *label;
        fake_rule rule;
        amqp_response_type_enum wanted;
        int library_error; /* 0: any */
    } cases[] = {
        {"none", {.fault = FAKE_NONE}, AMQP_RESPONSE_NORMAL, 0},
        {"cut", {.fault = FAKE_CUT}, AMQP_RESPONSE_LIBRARY_EXCEPTION, 0},
        {"reset", {.fault = FAKE_RESET}, AMQP_RESPONSE_LIBRARY_EXCEPTION, 0},
        {"silence", {.fault = FAKE_SILENCE}, AMQP_RESPONSE_LIBRARY_EXCEPTION, AMQP_STATUS_TIMEOUT},
        {"deaf", {.fault = FAKE_DEAF}, AMQP_RESPONSE_LIBRARY_EXCEPTION, AMQP_STATUS_TIMEOUT},
        {"garbage", {.fault = FAKE_GARBAGE}, AMQP_RESPONSE_LIBRARY_EXCEPTION, 0},
        {"http", {.fault = FAKE_HTTP}, AMQP_RESPONSE_LIBRARY_EXCEPTION, 0},
        {"half", {.fault = FAKE_HALF}, AMQP_RESPONSE_LIBRARY_EXCEPTION, 0},
        {"bad end",
         {.fault = FAKE_BAD_END},
         AMQP_RESPONSE_LIBRARY_EXCEPTION,
         AMQP_STATUS_BAD_AMQP_DATA},
        {"huge", {.fault = FAKE_HUGE}, AMQP_RESPONSE_LIBRARY_EXCEPTION, 0},
        {"slow", {.fault = FAKE_SLOW}, AMQP_RESPONSE_NORMAL, 0},
        {"drip", {.fault = FAKE_DRIP}, AMQP_RESPONSE_LIBRARY_EXCEPTION, AMQP_STATUS_TIMEOUT},
        {"closed",
         {.fault = FAKE_CLOSED, .code = 530, .text = "NOT_ALLOWED"},
         AMQP_RESPONSE_SERVER_EXCEPTION,
         0},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        line at = {.broker = fake_broker_start()};
        fake_rule rule = cases[i].rule;
        rule.step = FAKE_OPEN;
        rule.times = 1;
        fake_broker_rule(at.broker, rule);
        amqp_rpc_reply_t reply = dial(&at);
        CHECK_CASE(reply.reply_type == cases[i].wanted, cases[i].label);
        CHECK_CASE(cases[i].library_error == 0 || reply.library_error == cases[i].library_error,
                   cases[i].label);
        hang_up(&at);
        fake_broker_heal(at.broker);
        CHECK_CASE(dial(&at).reply_type == AMQP_RESPONSE_NORMAL, cases[i].label); /* once only */
        hang_up(&at);
        fake_broker_free(at.broker);
    }
}

static void a_rule_has_its_time(void **state)
{
    line *at = *state;
    fake_broker_rule(at->broker,
                     (fake_rule){.step = FAKE_HEADER, .fault = FAKE_OLD, .after = 1, .times = 2});
    static const amqp_response_type_enum wanted[] = {
        AMQP_RESPONSE_NORMAL, AMQP_RESPONSE_LIBRARY_EXCEPTION, AMQP_RESPONSE_LIBRARY_EXCEPTION,
        AMQP_RESPONSE_NORMAL};
    for (size_t i = 0; i < COUNT_OF(wanted); i++) {
        assert_int_equal(dial(at).reply_type, wanted[i]);
        hang_up(at);
    }
    fake_broker_tune(at->broker, (fake_tune){.heartbeat_s = 1});
    fake_broker_rule(at->broker,
                     (fake_rule){.step = FAKE_START_OK, .fault = FAKE_FRAME_MAX_1, .times = 1});
    assert_int_equal(dial(at).reply_type, AMQP_RESPONSE_NORMAL);
    assert_int_equal(amqp_get_frame_max(at->connection), 4096); /* librabbitmq goes no lower */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_login_is_recorded, setup, teardown),
        cmocka_unit_test_setup_teardown(a_publish_is_recorded_and_confirmed, setup, teardown),
        cmocka_unit_test_setup_teardown(it_says_what_it_is_told, setup, teardown),
        cmocka_unit_test_setup_teardown(it_delivers, setup, teardown),
        cmocka_unit_test(each_fault_is_what_it_says),
        cmocka_unit_test_setup_teardown(a_rule_has_its_time, setup, teardown),
    };
    return RUN_TESTS(tests);
}
