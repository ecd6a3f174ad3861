/*
 * What the publisher takes over: never more than the window, never more bytes than are allowed, but
 * always one message; and nothing while it is down or blocked. No connection is made.
 */
#include "support/test.h"

#include "transport/amqp/publisher.h"

typedef struct bench {
    pr__amqp_settings settings;
    pr__publisher publisher;
} bench;

static bench *open_bench(uint32_t window, uint64_t bytes_max)
{
    pr_error err = PR_ERROR_INIT;
    bench *at = calloc(1, sizeof(*at));
    assert_non_null(at);
    at->settings.window = window;
    at->settings.bytes_in_flight_max = bytes_max;
    snprintf(at->settings.name, sizeof(at->settings.name), "rabbitmq");
    check_ok(pr__publisher_init(&at->publisher, &at->settings, &err), &err, "init");
    return at;
}

static void close_bench(bench *at)
{
    pr__publisher_done(&at->publisher);
    free(at);
}

static void set_state(bench *at, pr_transport_state_kind kind)
{
    pthread_mutex_lock(&at->publisher.link.lock);
    pr__amqp_link_state_set(&at->publisher.link, kind, "because");
    pthread_mutex_unlock(&at->publisher.link.lock);
}

/* Submit messages of these sizes at once; how many are taken. */
static size_t submit(bench *at, size_t count, const uint64_t *sizes)
{
    static pr_message messages[8];
    pr_submission submissions[8];
    pr_error err = PR_ERROR_INIT;
    size_t accepted = 99;
    for (size_t i = 0; i < count; i++) {
        messages[i] = (pr_message)PR_MESSAGE(.id = "x", .body_size_bytes = sizes[i]);
        submissions[i] = (pr_submission){i, &messages[i]};
    }
    check_ok(pr__publisher_submit(&at->publisher, submissions, count, &accepted, &err), &err,
             "submit");
    return accepted;
}

static void bytes_are_bounded(void **state)
{
    (void)state;
    static const struct {
        const char *label;
        uint64_t first[3]; /* ended by 0 */
        uint64_t then;
        size_t first_taken, then_taken;
    } cases[] = {
        {"all fit", {40, 40}, 20, 2, 1},
        {"one byte too many", {40, 40}, 21, 2, 0},
        {"the second does not fit", {60, 41}, 40, 1, 1},
        {"a large one goes alone", {500, 1}, 1, 1, 0},
        {"none of no bytes beyond it", {500}, 0, 1, 0},
        {"just as many as allowed", {100}, 1, 1, 0},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        bench *at = open_bench(8, 100);
        size_t count = 0;
        while (count < 3 && cases[i].first[count] > 0)
            count++;
        set_state(at, PR_TRANSPORT_UP);
        CHECK_CASE(submit(at, count, cases[i].first) == cases[i].first_taken, cases[i].label);
        CHECK_CASE(submit(at, 1, &cases[i].then) == cases[i].then_taken, cases[i].label);
        close_bench(at);
    }
}

static void the_window_is_a_bound(void **state)
{
    (void)state;
    static const uint64_t sizes[6] = {1, 1, 1, 1, 1, 1};
    bench *at = open_bench(4, 1000);
    set_state(at, PR_TRANSPORT_UP);
    assert_int_equal(submit(at, 6, sizes), 4);
    assert_int_equal(submit(at, 1, sizes), 0);
    close_bench(at);
}

static void nothing_is_taken_unless_it_is_up(void **state)
{
    (void)state;
    static const uint64_t size = 1;
    bench *at = open_bench(4, 1000);
    pr_message message = PR_MESSAGE(.id = "x");
    pr_submission submission = {1, &message};
    pr_error err = PR_ERROR_INIT;
    size_t accepted = 99;
    pr_status status = pr__publisher_submit(&at->publisher, &submission, 1, &accepted, &err);
    check_error(status, &err, PR_E_BACKEND, "not opened yet", "never opened");
    assert_int_equal(err.retry, PR_RETRY_RECONNECT);
    assert_int_equal(accepted, 0);
    set_state(at, PR_TRANSPORT_BLOCKED);
    assert_int_equal(submit(at, 1, &size), 0);
    set_state(at, PR_TRANSPORT_UP);
    assert_int_equal(submit(at, 1, &size), 1);
    close_bench(at);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bytes_are_bounded),
        cmocka_unit_test(the_window_is_a_bound),
        cmocka_unit_test(nothing_is_taken_unless_it_is_up),
    };
    return RUN_TESTS(tests);
}
