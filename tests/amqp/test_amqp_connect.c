/*
 * The connection of the RabbitMQ transport: every step x every fault, on the fake broker.
 *
 * Each time: open fails in its time, the state says why (phase, peer, code and text of the broker,
 * never the password), and after the cure it comes up without a restart, and works.
 */
#include "amqp/rig.h"

/* Steps of a connection that publishes, with the phase that a cause must name. */
static const struct {
    const char *label;
    fake_step step;
    const char *phase;
    bool answered; /* the broker has something to say there */
    bool channel;
} steps[] = {
    {"tcp", FAKE_CONNECT, "", false, false},
    {"header", FAKE_HEADER, "login", true, false},
    {"start-ok", FAKE_START_OK, "login", true, false},
    {"tune-ok", FAKE_TUNE_OK, "login", false, false},
    {"open", FAKE_OPEN, "login", true, false},
    {"channel", FAKE_CHANNEL_OPEN, "channel", true, true},
    {"confirm.select", FAKE_CONFIRM_SELECT, "confirm", true, true},
};

static const struct {
    const char *label;
    fake_rule rule;
    bool needs_answer; /* spoils the usual answer: nothing to spoil where there is none */
    bool needs_channel;
    bool after_header; /* frames are not looked for before */
    const char *text;  /* must be in the cause */
} faults[] = {
    {"cut", {.fault = FAKE_CUT}, false, false, false, ""},
    {"reset", {.fault = FAKE_RESET}, false, false, false, ""},
    {"silence", {.fault = FAKE_SILENCE}, true, false, false, ""},
    {"deaf", {.fault = FAKE_DEAF}, false, false, false, ""},
    {"garbage", {.fault = FAKE_GARBAGE}, false, false, false, ""},
    {"http", {.fault = FAKE_HTTP}, false, false, false, ""},
    {"half an answer", {.fault = FAKE_HALF}, true, false, false, ""},
    {"bad end of frame", {.fault = FAKE_BAD_END}, true, false, false, ""},
    {"huge frame", {.fault = FAKE_HUGE}, false, false, false, ""},
    {"another answer", {.fault = FAKE_OTHER}, true, false, false, ""},
    {"drip", {.fault = FAKE_DRIP}, true, false, false, ""},
    {"closed 320",
     {.fault = FAKE_CLOSED, .code = 320, .text = "CONNECTION_FORCED - by the operator"},
     false,
     false,
     true,
     "320"},
    {"closed 403",
     {.fault = FAKE_CLOSED, .code = 403, .text = "ACCESS_REFUSED - login was refused"},
     false,
     false,
     true,
     "ACCESS_REFUSED"},
    {"closed 530",
     {.fault = FAKE_CLOSED, .code = 530, .text = "NOT_ALLOWED - vhost vh not found"},
     false,
     false,
     true,
     "530"},
    {"closed 541",
     {.fault = FAKE_CLOSED, .code = 541, .text = "INTERNAL_ERROR"},
     false,
     false,
     true,
     "541"},
    {"channel closed 504",
     {.fault = FAKE_CHANNEL_CLOSED, .code = 504, .text = "CHANNEL_ERROR - expected 'channel.open'"},
     false,
     true,
     true,
     "504"},
};

/* Open once; whether the state says what it must, and why. */
static bool fault_is_told(amqp_rig *rig, size_t s, size_t f, const char *label)
{
    char peer[40];
    pr_error err = PR_ERROR_INIT;
    snprintf(peer, sizeof peer, "127.0.0.1:%d", fake_broker_port(rig->broker));
    int64_t begun = rig_now_ms();
    pr_status status = rig_open(rig, &err);
    int64_t took = rig_now_ms() - begun;
    if (status != PR_E_BACKEND || err.retry != PR_RETRY_RECONNECT)
        fail_msg("case '%s': status %s, retry %d: %s", label, pr_status_text(status),
                 (int)err.retry, err.message);
    CHECK_CASE(took < 10000, label);
    pr_transport_state state = rig_state(rig);
    CHECK_CASE(state.kind == PR_TRANSPORT_DOWN, label);
    return strstr(state.cause, steps[s].phase) && strstr(state.cause, peer) &&
           strstr(state.cause, faults[f].text) && strstr(err.message, faults[f].text);
}

static void one_fault(amqp_rig *rig, size_t s, size_t f)
{
    char label[100];
    bool told = false;
    fake_rule rule = faults[f].rule;
    rule.step = steps[s].step;
    snprintf(label, sizeof label, "%s at %s", faults[f].label, steps[s].label);
    fake_broker_rule(rig->broker, rule);
    rig_connect(rig, NULL, "connection_timeout=150");
    for (int i = 0; i < RIG_ATTEMPTS && !told; i++)
        told = fault_is_told(rig, s, f, label);
    pr_transport_state state = rig_state(rig);
    if (!told)
        fail_msg("case '%s': phase '%s', peer, text '%s' wanted in the cause '%s' and the error",
                 label, steps[s].phase, faults[f].text, state.cause);
    fake_broker_heal(rig->broker);
    rig_recover(rig, label);
    state = rig_state(rig);
    CHECK_CASE(state.kind == PR_TRANSPORT_UP && state.cause[0] == '\0', label);
    rig_works(rig, label);
}

static void every_step_by_every_fault(void **state)
{
    (void)state;
    for (size_t s = 0; s < COUNT_OF(steps); s++) {
        for (size_t f = 0; f < COUNT_OF(faults); f++) {
            if ((faults[f].needs_answer && !steps[s].answered) ||
                (faults[f].needs_channel && !steps[s].channel) ||
                (faults[f].after_header && s <= 1)) /* librabbitmq looks for nothing there */
                continue;
            void *at = NULL;
            rig_setup(&at);
            one_fault(at, s, f);
            rig_teardown(&at);
        }
    }
}

/* Patience, not a fault: a broker that is slow. */
static void a_slow_broker_is_none_that_is_away(void **state)
{
    amqp_rig *rig = *state;
    fake_broker_rule(rig->broker, (fake_rule){.step = FAKE_HEADER, .fault = FAKE_SLOW});
    rig_up(rig, NULL);
    rig_works(rig, "slow");
}

static void another_version_is_named(void **state)
{
    amqp_rig *rig = *state;
    pr_error err = PR_ERROR_INIT;
    fake_broker_rule(rig->broker, (fake_rule){.step = FAKE_HEADER, .fault = FAKE_OLD});
    rig_connect(rig, NULL, NULL);
    for (int i = 0; i < RIG_ATTEMPTS && !strstr(rig_state(rig).cause, "login"); i++)
        assert_int_equal(rig_open(rig, &err), PR_E_BACKEND);
    rig_wait_state(rig, PR_TRANSPORT_DOWN, "login", "another version");
    fake_broker_heal(rig->broker);
    rig_recover(rig, "another version");
}

/* Frames of one byte: nothing could be said; it must not hang, nor spin. */
static void a_frame_max_of_1_is_survived(void **state)
{
    amqp_rig *rig = *state;
    pr_error err = PR_ERROR_INIT;
    fake_broker_rule(rig->broker, (fake_rule){.step = FAKE_START_OK, .fault = FAKE_FRAME_MAX_1});
    rig_connect(rig, NULL, NULL);
    if (rig_open(rig, &err) == PR_OK)
        rig_works(rig, "frame_max 1"); /* taken as the protocol's least, 4096 */
    fake_broker_heal(rig->broker);
    rig_recover(rig, "frame_max 1");
    rig_works(rig, "after frame_max 1");
}

static void nobody_listens(void **state)
{
    amqp_rig *rig = *state;
    pr_error err = PR_ERROR_INIT;
    char peer[40];
    rig_connect(rig, NULL, NULL);
    snprintf(peer, sizeof peer, "127.0.0.1:%d", fake_broker_port(rig->broker));
    fake_broker_free(rig->broker);
    rig->broker = NULL;
    assert_int_equal(rig_open(rig, &err), PR_E_BACKEND);
    assert_int_equal(err.retry, PR_RETRY_RECONNECT);
    assert_non_null(strstr(err.message, peer));
    rig_wait_state(rig, PR_TRANSPORT_DOWN, peer, "nobody listens");
}

/* Of several hosts the first that answers is taken. */
static void the_next_host_is_tried(void **state)
{
    amqp_rig *rig = *state;
    pr_error err = PR_ERROR_INIT;
    char uris[400];
    const pr_amqp_options options = PR_AMQP_OPTIONS(.flags = PR_AMQP_DECLARE);
    fake_broker *other = fake_broker_start();
    fake_broker_rule(rig->broker, (fake_rule){.step = FAKE_HEADER, .fault = FAKE_CUT});
    snprintf(uris, sizeof uris,
             "amqp://shop:" RIG_PASSWORD "@127.0.0.1:%d/vh,amqp://shop:" RIG_PASSWORD
             "@127.0.0.1:%d/vh",
             fake_broker_port(rig->broker), fake_broker_port(other));
    check_ok(pr_amqp_transport_new(uris, &options, &rig->transport, &err), &err, "two hosts");
    check_ok(pr_transport_open(rig->transport, RIG_PATIENCE, &err), &err, "open");
    rig_works(rig, "the second host");
    assert_int_equal(fake_broker_count(other, FAKE_PUBLISH), 1);
    pr_transport_free(rig->transport);
    rig->transport = NULL;
    fake_broker_free(other);
}

static void the_login_says_what_it_can(void **state)
{
    amqp_rig *rig = *state;
    char mechanism[64], vhost[256];
    rig_up(rig, NULL);
    assert_true(fake_broker_capability(rig->broker, "connection.blocked"));
    assert_true(fake_broker_capability(rig->broker, "consumer_cancel_notify"));
    assert_true(fake_broker_capability(rig->broker, "publisher_confirms"));
    assert_true(fake_broker_capability(rig->broker, "authentication_failure_close"));
    fake_broker_login(rig->broker, mechanism, vhost);
    assert_string_equal(mechanism, "PLAIN");
    assert_string_equal(vhost, "vh");
}

/* Nobody calls it, and the broker still hears of it; a broker that is not heard of is given up. */
static void heartbeats_go_both_ways(void **state)
{
    amqp_rig *rig = *state;
    fake_broker_tune(rig->broker, (fake_tune){.heartbeat_s = 1});
    rig_connect(rig, NULL, "connection_timeout=20000&heartbeat=1");
    rig_recover(rig, "heartbeat");
    assert_true(fake_broker_wait(rig->broker, FAKE_HEARTBEAT, 2, RIG_PATIENCE));
    assert_int_equal(fake_broker_count(rig->broker, FAKE_END), 0);
    assert_true(fake_broker_deaf(rig->broker, FAKE_PUBLISHER));
    rig_wait_state(rig, PR_TRANSPORT_DOWN, "heartbeat", "no heartbeat of the broker's");
    fake_broker_heal(rig->broker);
    rig_recover(rig, "after lost heartbeats");
    rig_works(rig, "after lost heartbeats");
}

/* Whatever the broker does not answer, closing ends. */
static void closing_is_bounded(void **state)
{
    (void)state;
    static const struct {
        const char *label;
        fake_rule rule;
    } cases[] = {
        {"answered", {.step = FAKE_CLOSE, .fault = FAKE_NONE}},
        {"silence", {.step = FAKE_CLOSE, .fault = FAKE_SILENCE}},
        {"garbage", {.step = FAKE_CLOSE, .fault = FAKE_GARBAGE}},
        {"drip", {.step = FAKE_CLOSE, .fault = FAKE_DRIP}},
        {"deaf from a publish on", {.step = FAKE_PUBLISH, .fault = FAKE_DEAF}},
        {"cut at a publish", {.step = FAKE_PUBLISH, .fault = FAKE_CUT}},
        {"no channel comes about", {.step = FAKE_CHANNEL_OPEN, .fault = FAKE_SILENCE}},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        void *held = NULL;
        pr_error err = PR_ERROR_INIT;
        rig_setup(&held);
        amqp_rig *rig = held;
        fake_broker_rule(rig->broker, cases[i].rule);
        rig_connect(rig, NULL, NULL);
        if (rig_open(rig, &err) == PR_OK) {
            rig_posts(rig, 1);
            rig_submit(rig, cases[i].label);
            CHECK_CASE(fake_broker_wait(rig->broker, FAKE_PUBLISH, 1, RIG_PATIENCE),
                       cases[i].label);
        }
        int64_t begun = rig_now_ms();
        pr_transport_free(rig->transport);
        rig->transport = NULL;
        CHECK_CASE(rig_now_ms() - begun < 10000, cases[i].label);
        rig_teardown(&held);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_step_by_every_fault),
        cmocka_unit_test_setup_teardown(a_slow_broker_is_none_that_is_away, rig_setup,
                                        rig_teardown),
        cmocka_unit_test_setup_teardown(another_version_is_named, rig_setup, rig_teardown),
        cmocka_unit_test_setup_teardown(a_frame_max_of_1_is_survived, rig_setup, rig_teardown),
        cmocka_unit_test_setup_teardown(nobody_listens, rig_setup, rig_teardown),
        cmocka_unit_test_setup_teardown(the_next_host_is_tried, rig_setup, rig_teardown),
        cmocka_unit_test_setup_teardown(the_login_says_what_it_can, rig_setup, rig_teardown),
        cmocka_unit_test_setup_teardown(heartbeats_go_both_ways, rig_setup, rig_teardown),
        cmocka_unit_test(closing_is_bounded),
    };
    return RUN_TESTS(tests);
}
