/*
 * Publishing through the RabbitMQ transport on the fake broker: what the broker says, what becomes
 * of each message. Each submission has exactly one outcome: the rig fails on a second one.
 */
#include "amqp/rig.h"

#define DEADLINE_MS 200

/* What the broker says, once all are published. */
typedef struct word {
    enum { END = 0, ACK, ACK_ALL, NACK, NACK_ALL, RETURN, CLOSE, CLOSE_CHANNEL, CUT } say;
    uint64_t tag; /* of a confirm; the number of the message, from 1, of a return */
    uint16_t code;
} word;

static void say(amqp_rig *rig, const word *of, const char *label)
{
    bool said = true;
    switch (of->say) {
    case END:
        break;
    case ACK:
    case ACK_ALL:
        said = fake_broker_confirm(rig->broker, true, of->tag, of->say == ACK_ALL);
        break;
    case NACK:
    case NACK_ALL:
        said = fake_broker_confirm(rig->broker, false, of->tag, of->say == NACK_ALL);
        break;
    case RETURN:
        said = fake_broker_return(rig->broker, (size_t)of->tag - 1, of->code, "NO_ROUTE");
        break;
    case CLOSE:
        said = fake_broker_close(rig->broker, FAKE_PUBLISHER, of->code, "said so");
        break;
    case CLOSE_CHANNEL:
        said = fake_broker_close_channel(rig->broker, FAKE_PUBLISHER, of->code, "said so");
        break;
    case CUT:
        said = fake_broker_cut(rig->broker, FAKE_PUBLISHER);
        break;
    }
    CHECK_CASE(said, label);
}

/* The outcomes as letters: c r(eturned) f(refused) t(oo large) l(ost) L(ost, suspect). */
static char letter_of(const pr_submitted *outcome)
{
    switch (outcome->outcome) {
    case PR_SUBMIT_CONFIRMED:
        return 'c';
    case PR_SUBMIT_RETURNED:
        return 'r';
    case PR_SUBMIT_REFUSED:
        return 'f';
    case PR_SUBMIT_TOO_LARGE:
        return 't';
    case PR_SUBMIT_LOST:
        return outcome->suspect ? 'L' : 'l';
    }
    return '?';
}

static void check_letters(const rig_post *posts, const char *wanted, const char *label)
{
    char got[RIG_POSTS + 1] = "";
    for (size_t i = 0; wanted[i] != '\0'; i++) {
        got[i] = letter_of(&posts[i].outcome);
        if ((posts[i].outcome.reason[0] == '\0') != (got[i] == 'c'))
            fail_msg("case '%s': outcome %c of %zu with the reason '%s'", label, got[i], i,
                     posts[i].outcome.reason);
    }
    if (strcmp(got, wanted) != 0)
        fail_msg("case '%s': outcomes %s, wanted %s", label, got, wanted);
}

static const struct {
    const char *label;
    const char *wanted; /* a letter a message */
    word words[8];
    bool reconnects; /* a new connection afterwards */
} sayings[] = {
    {"one ack each", "ccc", {{ACK, 1, 0}, {ACK, 2, 0}, {ACK, 3, 0}}, false},
    {"acks in another order", "ccc", {{ACK, 3, 0}, {ACK, 1, 0}, {ACK, 2, 0}}, false},
    {"ack of all", "ccccc", {{ACK_ALL, 5, 0}}, false},
    {"tag 0, multiple, is all", "ccc", {{ACK_ALL, 0, 0}}, false},
    {"ack of all up to one, then the rest",
     "ccccc",
     {{ACK_ALL, 2, 0}, {ACK, 4, 0}, {ACK_ALL, 5, 0}},
     false},
    {"an ack of all passes over one that is done", "ccccc", {{ACK, 2, 0}, {ACK_ALL, 5, 0}}, false},
    {"nack of one", "cfc", {{ACK, 1, 0}, {NACK, 2, 0}, {ACK, 3, 0}}, false},
    {"nack of all", "fff", {{NACK_ALL, 3, 0}}, false},
    {"ack, then nack of the rest, as a full queue does",
     "cfff",
     {{ACK, 1, 0}, {NACK_ALL, 4, 0}},
     false},
    {"nack of all, then ack of all", "ffccc", {{NACK_ALL, 2, 0}, {ACK_ALL, 5, 0}}, false},
    {"a return, then its ack", "r", {{RETURN, 1, 312}, {ACK, 1, 0}}, false},
    {"a return wins over an ack of all", "crc", {{RETURN, 2, 312}, {ACK_ALL, 3, 0}}, false},
    {"a return wins over a nack",
     "crc",
     {{RETURN, 2, 312}, {ACK, 1, 0}, {NACK, 2, 0}, {ACK, 3, 0}},
     false},
    {"two returns", "rcr", {{RETURN, 1, 312}, {RETURN, 3, 312}, {ACK_ALL, 3, 0}}, false},
    {"the same ack twice", "cc", {{ACK, 1, 0}, {ACK, 1, 0}, {ACK, 2, 0}}, false},
    {"a nack after the ack", "cc", {{ACK, 1, 0}, {NACK, 1, 0}, {ACK, 2, 0}}, false},
    {"cut", "lll", {{CUT, 0, 0}}, true},
    {"ack of one, then cut", "cll", {{ACK, 1, 0}, {CUT, 0, 0}}, true},
    {"a return, then cut: nobody would get it", "rl", {{RETURN, 1, 312}, {CUT, 0, 0}}, true},
    {"closed 320: nobody here is to blame", "ll", {{CLOSE, 0, 320}}, true},
    {"ack, then closed 541", "cLL", {{ACK, 1, 0}, {CLOSE, 0, 541}}, true},
    {"one of three closed the channel 406", "LLL", {{CLOSE_CHANNEL, 0, 406}}, false},
    {"one alone closed the channel 406", "f", {{CLOSE_CHANNEL, 0, 406}}, false},
    {"the last one open closed the channel 406",
     "ccf",
     {{ACK_ALL, 2, 0}, {CLOSE_CHANNEL, 0, 406}},
     false},
    {"one alone closed the channel 403: a right, not the message",
     "L",
     {{CLOSE_CHANNEL, 0, 403}},
     false},
    {"404 is of an exchange, and these go to none",
     "cll",
     {{ACK, 1, 0}, {CLOSE_CHANNEL, 0, 404}},
     false},
    {"505 on the connection", "LL", {{CLOSE, 0, 505}}, true},
};

static void what_the_broker_says(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(sayings); i++) {
        const char *label = sayings[i].label;
        void *held = NULL;
        rig_setup(&held);
        amqp_rig *rig = held;
        size_t count = strlen(sayings[i].wanted);
        rig_up(rig, NULL);
        fake_broker_hold(rig->broker, true);
        rig_post *posts = rig_posts(rig, count);
        rig_submit(rig, label);
        CHECK_CASE(fake_broker_wait(rig->broker, FAKE_PUBLISH, (unsigned)count, RIG_PATIENCE),
                   label);
        for (size_t k = 0; k < COUNT_OF(sayings[i].words) && sayings[i].words[k].say != END; k++)
            say(rig, &sayings[i].words[k], label);
        rig_outcomes(rig, label);
        check_letters(posts, sayings[i].wanted, label);
        fake_broker_hold(rig->broker, false);
        rig_recover(rig, label);
        rig_works(rig, label);
        rig_no_outcome(rig, 20, label);
        CHECK_CASE((fake_broker_count(rig->broker, FAKE_CONNECT) > 1) == sayings[i].reconnects,
                   label);
        rig_teardown(&held);
    }
}

/* Everything that a broker needs to keep it, and no more. */
static void a_publish_is_persistent_and_mandatory(void **state)
{
    amqp_rig *rig = *state;
    fake_published got;
    rig_up(rig, NULL);
    rig_posts(rig, 1)->message.key = "k1";
    rig_submit(rig, "one");
    rig_outcomes(rig, "one");
    assert_true(fake_broker_published(rig->broker, 0, &got));
    assert_true(got.mandatory);
    assert_int_equal(got.delivery_mode, 2);
    assert_string_equal(got.message_id, rig->posts[0].id);
    assert_string_equal(got.type, RIG_TYPE);
    assert_string_equal(got.content_type, "text/plain");
    assert_string_equal(got.exchange, "");
    assert_string_equal(got.routing_key, "billing");
    assert_string_equal(got.body, "body 0");
    assert_non_null(strstr(got.headers, "postroom-key=k1\n"));
}

enum { LONG_ID, LONG_HEADERS, LONG_HEADER_NAME, LARGE_BODY, BAD_ADDRESS, BAD_HEADERS, BAD_TYPE };

static void spoil(pr_message *message, int what)
{
    static char large[65537], long_text[257], headers[9000], long_name[400];
    memset(large, 'x', sizeof large - 1);
    memset(long_text, 'i', 256);
    snprintf(headers, sizeof headers, "{\"h\":\"%.8000s\"}", large);
    snprintf(long_name, sizeof long_name, "{\"%.256s\":\"v\"}", large);
    switch (what) {
    case LONG_ID:
        message->id = long_text;
        break;
    case LONG_HEADERS:
        message->headers = headers;
        break;
    case LONG_HEADER_NAME:
        message->headers = long_name;
        break;
    case LARGE_BODY:
        message->body = large;
        message->body_size_bytes = sizeof large;
        break;
    case BAD_ADDRESS:
        message->destination = "nonsense";
        break;
    case BAD_HEADERS:
        message->headers = "{";
        break;
    case BAD_TYPE:
        message->type = long_text;
        break;
    }
}

/* What librabbitmq would choke on is found before it is sent: it fails alone. */
static void what_cannot_be_encoded_fails_alone(void **state)
{
    (void)state;
    static const struct {
        const char *label;
        int what;
        char wanted;
    } cases[] = {
        {"a message id of 256 bytes", LONG_ID, 't'},
        {"headers larger than a frame", LONG_HEADERS, 't'},
        {"a header's name of 256 bytes: it goes as JSON alone", LONG_HEADER_NAME, 'c'},
        {"a body that is too large", LARGE_BODY, 't'},
        {"no address", BAD_ADDRESS, 'f'},
        {"headers that are no JSON", BAD_HEADERS, 'f'},
        {"a type of 256 bytes", BAD_TYPE, 't'},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        const char *label = cases[i].label;
        const pr_amqp_options options = PR_AMQP_OPTIONS(.body_size_max = 65536);
        void *held = NULL;
        rig_setup(&held);
        amqp_rig *rig = held;
        fake_broker_tune(rig->broker, (fake_tune){.frame_max = 4096});
        rig_up(rig, &options);
        rig_post *posts = rig_posts(rig, 5);
        spoil(&posts[2].message, cases[i].what);
        rig_submit(rig, label);
        rig_outcomes(rig, label);
        char got = letter_of(&posts[2].outcome);
        CHECK_CASE(got == cases[i].wanted, label);
        CHECK_CASE((posts[2].outcome.reason[0] == '\0') == (got == 'c'), label);
        for (size_t k = 0; k < 5; k++)
            CHECK_CASE(k == 2 || posts[k].outcome.outcome == PR_SUBMIT_CONFIRMED, label);
        rig_works(rig, label);
        CHECK_CASE(fake_broker_count(rig->broker, FAKE_PUBLISH) == (got == 'c' ? 6 : 5),
                   label); /* each once */
        CHECK_CASE(fake_broker_count(rig->broker, FAKE_CONNECT) == 1, label);
        rig_teardown(&held);
    }
}

/* The largest that still goes: nothing is refused that could be carried. */
static void what_just_fits_is_sent(void **state)
{
    amqp_rig *rig = *state;
    static char body[65536], id[256];
    const pr_amqp_options options = PR_AMQP_OPTIONS(.body_size_max = 65536);
    memset(body, 'b', sizeof body);
    memset(id, 'i', 255);
    fake_broker_tune(rig->broker, (fake_tune){.frame_max = 4096});
    rig_up(rig, &options);
    rig_post *posts = rig_posts(rig, 2);
    posts[0].message.body = body;
    posts[0].message.body_size_bytes = sizeof body;
    posts[1].message.id = id;
    rig_submit(rig, "fits");
    rig_outcomes(rig, "fits");
    check_letters(posts, "cc", "fits");
    fake_published got;
    assert_true(fake_broker_published(rig->broker, 0, &got));
    assert_int_equal(got.body_size, sizeof body);
    assert_true(fake_broker_published(rig->broker, 1, &got));
    assert_int_equal(strlen(got.message_id), 255);
}

/* Headers of every size around a frame's: up to one they go, beyond it they are too large, and the
   connection never ends. */
static void headers_around_the_size_of_a_frame(void **state)
{
    enum { FROM = 1600, BATCH = 50, BATCHES = 8 };
    amqp_rig *rig = *state;
    static char headers[BATCH][2200], text[2200];
    size_t limit = 0;
    memset(text, 'x', sizeof text);
    fake_broker_tune(rig->broker, (fake_tune){.frame_max = 4096});
    rig_up(rig, NULL);
    for (size_t batch = 0; batch < BATCHES; batch++) {
        rig_post *posts = rig_posts(rig, BATCH);
        for (size_t i = 0; i < BATCH; i++) {
            int size = (int)(FROM + batch * BATCH + i);
            snprintf(headers[i], sizeof headers[i], "{\"a\":\"%.*s\",\"b\":\"%.*s\"}", size / 2,
                     text, size - size / 2, text);
            posts[i].message.headers = headers[i];
        }
        rig_submit(rig, "around");
        rig_outcomes(rig, "around");
        for (size_t i = 0; i < BATCH; i++) {
            size_t size = FROM + batch * BATCH + i;
            char got = letter_of(&posts[i].outcome);
            assert_true(got == 'c' || got == 't');
            if (got == 't' && limit == 0)
                limit = size;
            assert_true((got == 't') == (limit != 0)); /* once too large, always too large */
        }
        rig_forget(rig);
    }
    assert_in_range(limit, FROM + 100, FROM + BATCH * BATCHES - 1);
    assert_int_equal(fake_broker_count(rig->broker, FAKE_PUBLISH), limit - FROM);
    assert_int_equal(fake_broker_count(rig->broker, FAKE_CONNECT), 1);
}

/* A confirm that does not come: lost after the deadline; one that comes later changes nothing. */
static void a_withheld_confirm_is_lost(void **state)
{
    amqp_rig *rig = *state;
    const pr_amqp_options options = PR_AMQP_OPTIONS(.publish_deadline_ms = DEADLINE_MS);
    rig_up(rig, &options);
    fake_broker_hold(rig->broker, true);
    rig_post *posts = rig_posts(rig, 3);
    int64_t begun = rig_now_ms();
    rig_submit(rig, "withheld");
    rig_outcomes(rig, "withheld");
    assert_true(rig_now_ms() - begun >= DEADLINE_MS - 50);
    check_letters(posts, "lll", "withheld");
    (void)!fake_broker_confirm(rig->broker, true, 3, true); /* where it still is connected */
    rig_no_outcome(rig, 50, "a late confirm");
    fake_broker_hold(rig->broker, false);
    rig_recover(rig, "withheld");
    rig_works(rig, "withheld");
    assert_true(rig_stats(rig).lost >= 3);
}

/* The broker reads no more and the socket fills up: the watchdog ends it. */
static void a_broker_that_stops_reading_is_cut_off(void **state)
{
    amqp_rig *rig = *state;
    static char body[1024 * 1024];
    const pr_amqp_options options = PR_AMQP_OPTIONS(.publish_deadline_ms = DEADLINE_MS,
                                                    .bytes_in_flight_max = 64 * 1024 * 1024);
    memset(body, 'x', sizeof body);
    rig_up(rig, &options);
    fake_broker_rule(rig->broker,
                     (fake_rule){.step = FAKE_PUBLISH, .fault = FAKE_DEAF, .times = 1});
    rig_post *posts = rig_posts(rig, 24);
    for (size_t i = 0; i < 24; i++) {
        posts[i].message.body = body;
        posts[i].message.body_size_bytes = sizeof body;
    }
    int64_t begun = rig_now_ms();
    rig_submit(rig, "deaf");
    rig_outcomes(rig, "deaf");
    assert_true(rig_now_ms() - begun < 20000);
    check_letters(posts, "llllllllllllllllllllllll", "deaf");
    rig_check_text(rig_state(rig).cause);
    fake_broker_heal(rig->broker);
    rig_recover(rig, "deaf");
    rig_works(rig, "deaf");
    assert_true(rig_stats(rig).deadlines > 0);
}

/* No more than that many bytes are on their way, whatever the window. */
static void bytes_in_flight_are_bounded(void **state)
{
    amqp_rig *rig = *state;
    static char body[1000];
    pr_error err = PR_ERROR_INIT;
    pr_submission submissions[10];
    size_t accepted = 0, total = 0;
    const pr_amqp_options options = PR_AMQP_OPTIONS(.bytes_in_flight_max = 3000);
    memset(body, 'x', sizeof body);
    rig_up(rig, &options);
    fake_broker_hold(rig->broker, true);
    rig_post *posts = rig_posts(rig, 10);
    for (size_t i = 0; i < 10; i++) {
        posts[i].message.body = body;
        posts[i].message.body_size_bytes = sizeof body;
        submissions[i] = (pr_submission){i, &posts[i].message};
    }
    for (int round = 0; round < 5; round++) {
        check_ok(
            pr_transport_submit(rig->transport, submissions + total, 10 - total, &accepted, &err),
            &err, "submit");
        total += accepted;
        rig->submitted = total;
        rig_no_outcome(rig, 10, "held");
    }
    assert_in_range(total, 1, 4);
    fake_broker_hold(rig->broker, false);
    assert_true(fake_broker_confirm(rig->broker, true, 0, true));
    rig_submit(rig, "bounded");
    rig_outcomes(rig, "bounded");
    check_letters(posts, "cccccccccc", "bounded");
}

static void blocked_is_a_state(void **state)
{
    amqp_rig *rig = *state;
    pr_error err = PR_ERROR_INIT;
    rig_up(rig, NULL);
    fake_broker_hold(rig->broker, true);
    rig_post *posts = rig_posts(rig, 2);
    rig_submit(rig, "before");
    assert_true(fake_broker_wait(rig->broker, FAKE_PUBLISH, 2, RIG_PATIENCE));
    assert_true(fake_broker_block(rig->broker, "low on memory"));
    rig_wait_state(rig, PR_TRANSPORT_BLOCKED, "low on memory", "blocked");
    rig_posts(rig, 1);
    const pr_submission third = {2, &posts[2].message};
    size_t accepted = 7;
    check_ok(pr_transport_submit(rig->transport, &third, 1, &accepted, &err), &err, "blocked");
    assert_int_equal(accepted, 0);
    rig_no_outcome(rig, 30, "blocked"); /* nothing is lost by it */
    assert_true(fake_broker_confirm(rig->broker, true, 2, true));
    rig_outcomes(rig, "confirmed while blocked");
    assert_true(fake_broker_block(rig->broker, NULL));
    rig_wait_state(rig, PR_TRANSPORT_UP, "", "unblocked");
    fake_broker_hold(rig->broker, false);
    rig_submit(rig, "after");
    rig_outcomes(rig, "after");
    check_letters(posts, "ccc", "blocked");
    assert_int_equal(fake_broker_count(rig->broker, FAKE_CONNECT), 1);
    assert_int_equal(rig_stats(rig).blocks, 1);

    /* and cut while it is blocked */
    assert_true(fake_broker_block(rig->broker, "low on disk"));
    rig_wait_state(rig, PR_TRANSPORT_BLOCKED, "low on disk", "blocked again");
    assert_true(fake_broker_cut(rig->broker, FAKE_PUBLISHER));
    rig_recover(rig, "cut while blocked");
    rig_works(rig, "cut while blocked");
    assert_int_equal(rig_state(rig).kind, PR_TRANSPORT_UP);
}

/* Outcomes that were not polled when the connection went are still there, each once. */
static void outcomes_outlive_the_connection(void **state)
{
    amqp_rig *rig = *state;
    rig_up(rig, NULL);
    rig_post *posts = rig_posts(rig, 6);
    fake_broker_hold(rig->broker, true);
    rig_submit(rig, "six");
    assert_true(fake_broker_wait(rig->broker, FAKE_PUBLISH, 6, RIG_PATIENCE));
    assert_true(fake_broker_confirm(rig->broker, true, 3, true));
    assert_true(fake_broker_return(rig->broker, 3, 312, "NO_ROUTE"));
    assert_true(fake_broker_confirm(rig->broker, true, 4, false));
    assert_true(fake_broker_cut(rig->broker, FAKE_PUBLISHER));
    assert_true(fake_broker_wait(rig->broker, FAKE_END, 1, RIG_PATIENCE));
    rig_outcomes(rig, "six");
    check_letters(posts, "cccrll", "six");
}

/* Each publish in its turn is where the connection or the channel goes. */
static void harm_at_each_publish(void **state)
{
    (void)state;
    static const fake_rule harms[] = {
        {.fault = FAKE_CUT},
        {.fault = FAKE_RESET},
        {.fault = FAKE_GARBAGE},
        {.fault = FAKE_HALF},
        {.fault = FAKE_BAD_END},
        {.fault = FAKE_OTHER},
        {.fault = FAKE_CLOSED, .code = 320, .text = "CONNECTION_FORCED"},
        {.fault = FAKE_CLOSED, .code = 541, .text = "INTERNAL_ERROR"},
        {.fault = FAKE_CHANNEL_CLOSED, .code = 404, .text = "NOT_FOUND"},
        {.fault = FAKE_CHANNEL_CLOSED, .code = 406, .text = "PRECONDITION_FAILED"},
    };
    enum { TOTAL = 4 };
    for (size_t h = 0; h < COUNT_OF(harms); h++) {
        for (unsigned at = 0; at < TOTAL; at++) {
            char label[40];
            void *held = NULL;
            unsigned confirmed = 0, lost = 0, charged = 0;
            snprintf(label, sizeof label, "fault %d at publish %u", (int)harms[h].fault, at);
            const pr_amqp_options options = PR_AMQP_OPTIONS(.publish_deadline_ms = DEADLINE_MS);
            rig_setup(&held);
            amqp_rig *rig = held;
            fake_rule rule = harms[h];
            rule.step = FAKE_PUBLISH;
            rule.after = at;
            rule.times = 1;
            fake_broker_rule(rig->broker, rule);
            rig_up(rig, &options);
            rig_post *posts = rig_posts(rig, TOTAL);
            rig_submit(rig, label);
            rig_outcomes(rig, label);
            for (size_t i = 0; i < TOTAL; i++) {
                confirmed += posts[i].outcome.outcome == PR_SUBMIT_CONFIRMED;
                lost += posts[i].outcome.outcome == PR_SUBMIT_LOST;
            }
            charged = TOTAL - confirmed - lost;
            CHECK_CASE(lost + charged >= 1, label);
            /* of those that closed a channel only one that was alone is charged */
            CHECK_CASE(charged == 0 || (charged == 1 && rule.fault == FAKE_CHANNEL_CLOSED), label);
            rig_recover(rig, label);
            rig_works(rig, label);
            rig_teardown(&held);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_the_broker_says),
        cmocka_unit_test_setup_teardown(a_publish_is_persistent_and_mandatory, rig_setup,
                                        rig_teardown),
        cmocka_unit_test(what_cannot_be_encoded_fails_alone),
        cmocka_unit_test_setup_teardown(what_just_fits_is_sent, rig_setup, rig_teardown),
        cmocka_unit_test_setup_teardown(headers_around_the_size_of_a_frame, rig_setup,
                                        rig_teardown),
        cmocka_unit_test_setup_teardown(a_withheld_confirm_is_lost, rig_setup, rig_teardown),
        cmocka_unit_test_setup_teardown(a_broker_that_stops_reading_is_cut_off, rig_setup,
                                        rig_teardown),
        cmocka_unit_test_setup_teardown(bytes_in_flight_are_bounded, rig_setup, rig_teardown),
        cmocka_unit_test_setup_teardown(blocked_is_a_state, rig_setup, rig_teardown),
        cmocka_unit_test_setup_teardown(outcomes_outlive_the_connection, rig_setup, rig_teardown),
        cmocka_unit_test(harm_at_each_publish),
    };
    return RUN_TESTS(tests);
}
