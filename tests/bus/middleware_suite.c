/*
 * Middleware: which lists are refused, in which order it runs, where a duplicate stops, and what it
 * can say of a message.
 */
#include "bus/world.h"

#define ID_A "0198c5f2-7d3e-7a10-8b2c-00000000000a"
#define ID_B "0198c5f2-7d3e-7a10-8b2c-00000000000b"

static pr_handled pass(void *user, pr_scope *scope, pr_next *next)
{
    (void)user;
    return pr_next_invoke(next, scope);
}

static void wrong_lists_are_refused(void **state)
{
    world *w = *state;
    const pr_middleware unit = pr_middleware_unit(), inbox = pr_middleware_inbox();
    const pr_middleware own = PR_MIDDLEWARE(.name = "own", .invoke = pass);
    pr_middleware nameless = own, flagged = own, small = own, empty = own;
    nameless.name = "";
    flagged.flags = 1;
    small.size = 8;
    empty.invoke = NULL;
    const struct {
        const char *label;
        pr_middleware list[3];
        size_t count;
        pr_inbox_mode mode;
        const char *error;
    } cases[] = {
        {"inbox alone", {inbox}, 1, 0, "middleware[0]: 'inbox' has no 'unit' around it"},
        {"inbox outside", {inbox, unit}, 2, 0, "list pr_middleware_unit before"},
        {"unit twice", {unit, unit, inbox}, 3, 0, "middleware[1]: 'unit' stands twice"},
        {"inbox twice", {unit, inbox, inbox}, 3, 0, "middleware[2]: 'inbox' stands twice"},
        {"no name", {unit, inbox, nameless}, 3, 0, "middleware[2]: it needs a name"},
        {"no invoke", {empty}, 1, 0, "middleware[0]: it needs a name and an invoke"},
        {"flags", {flagged}, 1, 0, "middleware[0]: its flags are unknown"},
        {"size", {small}, 1, 0, "middleware[0]: size of pr_middleware"},
        {"no policy", {unit, pr_middleware_retry(NULL)}, 2, 0, "middleware[1]: it needs a name"},
        {"no timing", {pr_middleware_timing(NULL)}, 1, 0, "middleware[0]: it needs a name"},
        {"leased without", {own}, 1, PR_INBOX_LEASED, "leased inbox needs pr_middleware_unit"},
        {"count forgotten", {unit, inbox}, 0, 0, "middleware_count is 0: set it, or leave"},
        {"no list", {own}, 99, 0, "99 middlewares, at most 32"},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        pr_endpoint *endpoint = NULL;
        pr_error err = PR_ERROR_INIT;
        pr_endpoint_options opt = w->opt;
        opt.middleware = cases[i].list;
        opt.middleware_count = cases[i].count;
        opt.inbox = cases[i].mode;
        check_error(pr_endpoint_new(w->store, w->receiver, &opt, &endpoint, &err), &err,
                    PR_E_INVALID, cases[i].error, cases[i].label);
        assert_null(endpoint);
    }
}

/* What was called, in order. */
static char trail[256];

static void step(const char *name)
{
    size_t used = strlen(trail);
    (void)snprintf(trail + used, sizeof trail - used, "%s ", name);
}

static pr_handled leave_trail(void *user, pr_scope *scope, pr_next *next)
{
    char name[32];
    step(user);
    pr_handled handled = pr_next_invoke(next, scope);
    (void)snprintf(name, sizeof name, "%s=%d", (const char *)user, (int)handled);
    step(name);
    return handled;
}

static pr_handled act_trail(world *w, pr_scope *scope)
{
    (void)w;
    (void)scope;
    step("handler");
    return PR_HANDLED_OK;
}

static void a_duplicate_stops_before_what_stands_inside_the_inbox(void **state)
{
    world *w = *state;
    static char out[] = "out", mid[] = "mid", in[] = "in";
    const pr_middleware list[] = {
        PR_MIDDLEWARE(.name = "a", .invoke = leave_trail, .user = out), pr_middleware_unit(),
        PR_MIDDLEWARE(.name = "b", .invoke = leave_trail, .user = mid), pr_middleware_inbox(),
        PR_MIDDLEWARE(.name = "c", .invoke = leave_trail, .user = in)};
    w->opt.middleware = list;
    w->opt.middleware_count = COUNT_OF(list);
    w->act = act_trail;
    trail[0] = '\0';
    world_start(w);
    world_send(w, ID_A, NULL, "{}");
    world_until(w, handled, 1);
    assert_string_equal(trail, "out mid in handler in=1 mid=1 out=1 ");
    trail[0] = '\0';
    world_send(w, ID_A, NULL, "{}");
    world_until(w, duplicate, 1);
    assert_string_equal(trail, "out mid mid=5 out=5 ");
    assert_int_equal(w->calls, 1);
    assert_int_equal(world_number(w, EFFECTS), 1);
    assert_int_equal(world_number(w, MARKS), 1);
}

static pr_handled answer(void *user, pr_scope *scope, pr_next *next)
{
    (void)next;
    pr_scope_fail(scope, "not today", -1);
    return *(pr_handled *)user;
}

/* Outside of the unit it decides without the rest, and what it decides is kept durably. */
static void a_middleware_may_answer_without_the_rest(void **state)
{
    world *w = *state;
    pr_handled handled = PR_HANDLED_OK;
    const pr_middleware list[] = {
        PR_MIDDLEWARE(.name = "filter", .invoke = answer, .user = &handled), pr_middleware_unit(),
        pr_middleware_inbox()};
    w->opt.middleware = list;
    w->opt.middleware_count = COUNT_OF(list);
    world_start(w);
    world_send(w, ID_A, NULL, "{}");
    world_until(w, handled, 1);
    assert_int_equal(world_number(w, MARKS), 1); /* it will not come again */
    world_send(w, ID_A, NULL, "{}");
    world_until(w, duplicate, 1);
    handled = PR_HANDLED_PERMANENT;
    world_send(w, ID_B, NULL, "{}");
    world_until(w, dead, 1);
    assert_string_equal(world_text(w, "SELECT last_error FROM {p}_inbox_parked"), "not today");
    handled = (pr_handled)99;
    world_send(w, "third", NULL, "{}");
    world_until(w, failed, 1);
    assert_non_null(strstr(world_last_text(w), "answered 99"));
    assert_int_equal(w->calls, 0);
    assert_int_equal(world_number(w, MARKS), 1);
}

static pr_handled refuse_after(void *user, pr_scope *scope, pr_next *next)
{
    (void)user;
    (void)pr_next_invoke(next, scope);
    pr_scope_fail(scope, "on second thought", -1);
    return PR_HANDLED_RETRY;
}

/* Inside the unit a refusal rolls everything back; outside, after the commit, it comes too late. */
static void a_refusal_counts_until_the_commit(void **state)
{
    world *w = *state;
    const pr_middleware own = PR_MIDDLEWARE(.name = "own", .invoke = refuse_after);
    const pr_middleware inside[] = {pr_middleware_unit(), pr_middleware_inbox(), own};
    const pr_middleware outside[] = {own, pr_middleware_unit(), pr_middleware_inbox()};
    w->opt.retry_max = PR_RETRY_NONE;
    w->opt.middleware = inside;
    w->opt.middleware_count = COUNT_OF(inside);
    world_start(w);
    world_send(w, ID_A, NULL, "{}");
    world_until(w, dead, 1);
    assert_int_equal(world_number(w, EFFECTS), 0);
    assert_int_equal(world_number(w, MARKS), 0);
    w->opt.middleware = outside;
    world_start(w);
    world_send(w, ID_B, NULL, "{}");
    world_until(w, handled, 1);
    assert_int_equal(world_number(w, EFFECTS), 1);
    assert_int_equal(world_number(w, MARKS), 1);
    assert_int_equal(world_number(w, PARKED), 1);
    assert_non_null(strstr(world_last_text(w), "after its commit"));
}

static pr_handled twice(void *user, pr_scope *scope, pr_next *next)
{
    pr_handled handled = pr_next_invoke(next, scope);
    (*(int *)user)++;
    return handled == PR_HANDLED_RETRY ? pr_next_invoke(next, scope) : handled;
}

static pr_handled act_second_time(world *w, pr_scope *scope)
{
    return w->calls < 2 ? act_retry(w, scope) : PR_HANDLED_OK;
}

static void a_middleware_outside_of_the_unit_may_try_again_at_once(void **state)
{
    world *w = *state;
    int count = 0;
    const pr_middleware list[] = {PR_MIDDLEWARE(.name = "twice", .invoke = twice, .user = &count),
                                  pr_middleware_unit(), pr_middleware_inbox()};
    w->opt.middleware = list;
    w->opt.middleware_count = COUNT_OF(list);
    w->act = act_second_time;
    world_start(w);
    world_send(w, ID_A, NULL, "{}");
    world_until(w, handled, 1);
    assert_int_equal(w->calls, 2);
    assert_int_equal(count, 1);
    assert_int_equal(world_number(w, EFFECTS), 1);
    assert_int_equal(world_number(w, PARKED), 0);
}

static pr_handled act_without_unit(world *w, pr_scope *scope)
{
    pr_error err = PR_ERROR_INIT;
    pr_unit *unit = NULL;
    check_error(pr_scope_unit_get(scope, &unit, &err), &err, PR_E_STATE, "pr_middleware_unit",
                "unit");
    assert_null(unit);
    err = (pr_error)PR_ERROR_INIT;
    pr_message follow = PR_MESSAGE(.type = TYPE_FOLLOW);
    check_error(pr_scope_publish(scope, &follow, NULL, &err), &err, PR_E_STATE,
                "pr_middleware_unit", "publish");
    return w->flag ? PR_HANDLED_OK : pr_scope_unit(scope) ? PR_HANDLED_OK : PR_HANDLED_RETRY;
}

/* And the parked message names what is missing, although the handler says nothing. */
static void without_the_unit_the_error_names_it(void **state)
{
    world *w = *state;
    const pr_middleware list[] = {PR_MIDDLEWARE(.name = "own", .invoke = pass)};
    w->opt.middleware = list;
    w->opt.middleware_count = 1;
    w->opt.retry_max = PR_RETRY_NONE;
    w->no_effect = true;
    w->act = act_without_unit;
    world_start(w);
    world_send(w, ID_A, NULL, "{}");
    world_until(w, dead, 1);
    assert_non_null(
        strstr(world_text(w, "SELECT last_error FROM {p}_inbox_parked"), "pr_middleware_unit"));
    w->flag = 1; /* an endpoint without an inbox runs what it gets as often as it gets it */
    world_send(w, ID_B, NULL, "{}");
    world_send(w, ID_B, NULL, "{}");
    world_until(w, handled, 2);
    assert_int_equal(world_number(w, MARKS), 0);
}

static void a_unit_without_an_inbox_commits_what_the_handler_wrote(void **state)
{
    world *w = *state;
    const pr_middleware list[] = {pr_middleware_unit()};
    w->opt.middleware = list;
    w->opt.middleware_count = 1;
    world_start(w);
    world_send(w, ID_A, NULL, "{}");
    world_send(w, ID_A, NULL, "{}");
    world_until(w, handled, 2);
    assert_int_equal(world_number(w, EFFECTS), 2);
    assert_int_equal(world_number(w, MARKS), 0);
}

static void timing_counts_all_that_went_through(void **state)
{
    world *w = *state;
    pr_error err = PR_ERROR_INIT;
    pr_timing *timing = NULL;
    pr_timing_report report = {.size = 8};
    check_ok(pr_timing_new(&timing, &err), &err, "timing");
    check_error(pr_timing_get(timing, &report, &err), &err, PR_E_INVALID, "size", "size");
    const pr_middleware list[] = {pr_middleware_timing(timing), pr_middleware_unit(),
                                  pr_middleware_inbox()};
    w->opt.middleware = list;
    w->opt.middleware_count = COUNT_OF(list);
    world_start(w);
    world_send(w, ID_A, NULL, "{}");
    world_send(w, ID_A, NULL, "{}");
    world_until(w, duplicate, 1);
    w->act = act_permanent;
    world_send(w, ID_B, NULL, "{}");
    world_until(w, dead, 1);
    report.size = (uint32_t)sizeof report;
    assert_int_equal(pr_timing_get(timing, &report, NULL), PR_OK);
    assert_int_equal(report.count, 3);
    assert_int_equal(report.ok, 1);
    assert_int_equal(report.stopped, 1);
    assert_true(report.max_us > 0 && report.total_us >= report.max_us);
    assert_true(report.median_us > 0 && report.median_us <= report.p99_us);
    assert_true(report.p99_us <= report.max_us);
    w->endpoint = pr_endpoint_free(w->endpoint);
    assert_null(pr_timing_free(timing));
}

typedef struct spans {
    pr_span begun, ended;
    char name[64]; /* a span's texts are borrowed */
    int count;
} spans;

static void span_begin(void *user, const pr_span *span)
{
    ((spans *)user)->begun = *span;
}

static void span_end(void *user, const pr_span *span)
{
    spans *seen = user;
    seen->ended = *span;
    (void)snprintf(seen->name, sizeof seen->name, "%s", span->name);
    seen->count++;
}

static pr_handled act_follow(world *w, pr_scope *scope)
{
    (void)w;
    pr_message follow = PR_MESSAGE(.type = TYPE_FOLLOW, .body = "{}", .body_size_bytes = 2);
    return pr_scope_publish(scope, &follow, NULL, NULL) == PR_OK ? PR_HANDLED_OK : PR_HANDLED_RETRY;
}

static void a_span_is_the_child_of_the_sender_and_the_parent_of_the_follow_up(void **state)
{
    world *w = *state;
    spans seen = {.count = 0};
    const pr_tracer tracer = {
        .size = (uint32_t)sizeof tracer, .begin = span_begin, .end = span_end, .user = &seen};
    const pr_middleware list[] = {pr_middleware_trace(&tracer), pr_middleware_unit(),
                                  pr_middleware_inbox()};
    w->opt.middleware = list;
    w->opt.middleware_count = COUNT_OF(list);
    w->act = act_follow;
    world_start(w);
    pr_message message =
        PR_MESSAGE(.id = ID_A, .type = TYPE_ORDER, .type_version = 1,
                   .content_type = "application/json", .destination = "memory://topic/" TYPE_ORDER,
                   .traceparent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
                   .occurred_at_us = 1);
    world_send_message(w, &message);
    world_until(w, handled, 1);
    assert_int_equal(seen.count, 1);
    assert_string_equal(seen.begun.trace_id, "4bf92f3577b34da6a3ce929d0e0e4736");
    assert_string_equal(seen.begun.parent_span_id, "00f067aa0ba902b7");
    assert_string_equal(seen.ended.span_id, seen.begun.span_id);
    assert_int_equal(seen.ended.result, PR_HANDLED_OK);
    assert_int_equal(seen.ended.attempt, 1);
    assert_string_equal(seen.name, TYPE_ORDER);
    char wanted[80];
    (void)snprintf(wanted, sizeof wanted, "00-4bf92f3577b34da6a3ce929d0e0e4736-%s-01",
                   seen.ended.span_id);
    assert_string_equal(world_text(w, "SELECT traceparent FROM {p}_outbox"), wanted);
    /* a message without a trace begins one, and so does a broken one */
    const char *const broken[] = {NULL, "00-4bf92f3577b34da6a3ce929d0e0e473X-00f067aa0ba902b7-01"};
    for (size_t i = 0; i < COUNT_OF(broken); i++) {
        char id[16];
        (void)snprintf(id, sizeof id, "m-%zu", i);
        message.id = id;
        message.traceparent = broken[i];
        world_send_message(w, &message);
        world_until(w, handled, 2 + i);
        assert_string_equal(seen.ended.parent_span_id, "");
        assert_int_equal(strlen(seen.ended.trace_id), 32);
    }
}

typedef struct lines {
    char all[4096];
} lines;

static void add_line(void *user, const char *line)
{
    lines *l = user;
    size_t used = strlen(l->all);
    (void)snprintf(l->all + used, sizeof l->all - used, "%s\n", line);
}

static pr_handled act_fail_with_lines(world *w, pr_scope *scope)
{
    (void)w;
    pr_scope_fail(scope, "bad\nthing", -1);
    return PR_HANDLED_PERMANENT;
}

static void the_log_says_what_happened_without_bodies(void **state)
{
    world *w = *state;
    static lines by_message, by_observer;
    memset(&by_message, 0, sizeof by_message);
    memset(&by_observer, 0, sizeof by_observer);
    const pr_log log = {.size = (uint32_t)sizeof log, .write = add_line, .user = &by_message};
    const pr_log all = {.size = (uint32_t)sizeof all, .write = add_line, .user = &by_observer};
    const pr_observer observer = pr_log_observer(&all);
    const pr_middleware list[] = {pr_middleware_log(&log), pr_middleware_unit(),
                                  pr_middleware_inbox()};
    w->opt.observer = &observer;
    w->opt.middleware = list;
    w->opt.middleware_count = COUNT_OF(list);
    world_start(w);
    world_send(w, ID_A, NULL, "\"secret\"");
    world_until(w, handled, 1);
    world_send(w, ID_A, NULL, "\"secret\"");
    world_until(w, duplicate, 1);
    w->act = act_fail_with_lines;
    world_send(w, ID_B, NULL, "\"secret\"");
    world_until(w, dead, 1);
    const char *const wanted[] = {"endpoint=" CONSUMER " type=" TYPE_ORDER " id=" ID_A
                                  " attempt=1 result=ok duration_us=",
                                  "id=" ID_A " attempt=1 result=stopped",
                                  "id=" ID_B " attempt=1 result=permanent", "reason=\"bad thing\""};
    for (size_t i = 0; i < COUNT_OF(wanted); i++)
        CHECK_CASE(strstr(by_message.all, wanted[i]), wanted[i]);
    static const char handled[] = "messaging.inbox.handled count=1 subject=" CONSUMER;
    const char *const told[] = {handled, "messaging.inbox.duplicate", "messaging.inbox.dead"};
    for (size_t i = 0; i < COUNT_OF(told); i++)
        CHECK_CASE(strstr(by_observer.all, told[i]), told[i]);
    assert_null(strstr(by_message.all, "secret"));
    assert_null(strstr(by_observer.all, "secret"));
    w->endpoint = pr_endpoint_free(w->endpoint);
}

static pr_handled act_retry_without_a_word(world *w, pr_scope *scope)
{
    (void)w;
    (void)scope;
    return PR_HANDLED_RETRY;
}

static void a_retry_policy_says_when_and_how_often(void **state)
{
    world *w = *state;
    const pr_retry_policy policy = {.size = (uint32_t)sizeof policy,
                                    .attempts_max = 3,
                                    .initial_ms = 1,
                                    .max_ms = 10,
                                    .factor = 1};
    const pr_middleware list[] = {pr_middleware_retry(&policy), pr_middleware_unit(),
                                  pr_middleware_inbox()};
    w->opt.backoff_initial_ms = 3600000; /* the endpoint's own would take an hour */
    w->opt.backoff_max_ms = 3600000;
    w->opt.middleware = list;
    w->opt.middleware_count = COUNT_OF(list);
    w->act = act_retry_without_a_word;
    world_start(w);
    world_send(w, ID_A, NULL, "{}");
    world_until(w, dead, 1);
    assert_int_equal(w->calls, 3);
    assert_int_equal(world_snapshot(w).failed, 2);
    assert_int_equal(world_number(w, "SELECT attempts FROM {p}_inbox_parked"), 3);
}

static pr_handled act_step_and_run(world *w, pr_scope *scope)
{
    (void)scope;
    int64_t wait_ms = 0;
    pr_error err = PR_ERROR_INIT;
    check_error(pr_endpoint_step(w->endpoint, &wait_ms, &err), &err, PR_E_STATE,
                "from its own handler", "step");
    err = (pr_error)PR_ERROR_INIT;
    check_error(pr_endpoint_run(w->endpoint, &err), &err, PR_E_STATE, "from its own handler",
                "run");
    return PR_HANDLED_OK;
}

static void an_endpoint_is_not_run_from_its_own_handler(void **state)
{
    world *w = *state;
    w->act = act_step_and_run;
    world_start(w);
    world_send(w, ID_A, NULL, "{}");
    world_until(w, handled, 1);
    assert_int_equal(world_number(w, EFFECTS), 1);
}

static pr_handled act_close(world *w, pr_scope *scope)
{
    if (strcmp(pr_scope_message(scope)->id, ID_A) == 0)
        w->provider->close(pr_scope_unit(scope));
    return PR_HANDLED_OK;
}

/* SQLite refuses to close it. On PostgreSQL it may have been the server: nothing is charged until
   it happened again and again, and others are handled meanwhile. */
static void a_handler_that_closes_the_connection_is_caught(void **state)
{
    world *w = *state;
    bool refused = strcmp(w->provider->name, "sqlite") == 0;
    w->opt.lease_ms = 200;
    w->opt.retry_max = PR_RETRY_NONE;
    w->act = act_close;
    world_start(w);
    world_send(w, ID_A, NULL, "{}");
    for (int i = 0; i < 20; i++) {
        char id[16];
        (void)snprintf(id, sizeof id, "m-%d", i);
        world_send(w, id, NULL, "{}");
    }
    world_until(w, handled, refused ? 21 : 20);
    assert_int_equal(world_snapshot(w).failed, 0);
    assert_false(world_snapshot(w).paused);
    if (!refused) {
        world_until(w, dead, 1);
        assert_string_equal(world_text(w, "SELECT message_id || attempts FROM {p}_inbox_parked"),
                            ID_A "1");
    }
    assert_int_equal(world_number(w, EFFECTS), refused ? 21 : 20);
    assert_int_equal(world_number(w, MARKS), refused ? 21 : 20);
}

size_t middleware_suite(const struct CMUnitTest **ret_tests)
{
    static const struct CMUnitTest tests[] = {
        CASE(wrong_lists_are_refused),
        CASE(a_duplicate_stops_before_what_stands_inside_the_inbox),
        CASE(a_middleware_may_answer_without_the_rest),
        CASE(a_refusal_counts_until_the_commit),
        CASE(a_middleware_outside_of_the_unit_may_try_again_at_once),
        CASE(without_the_unit_the_error_names_it),
        CASE(a_unit_without_an_inbox_commits_what_the_handler_wrote),
        CASE(timing_counts_all_that_went_through),
        CASE(a_span_is_the_child_of_the_sender_and_the_parent_of_the_follow_up),
        CASE(the_log_says_what_happened_without_bodies),
        CASE(a_retry_policy_says_when_and_how_often),
        CASE(an_endpoint_is_not_run_from_its_own_handler),
        CASE(a_handler_that_closes_the_connection_is_caught),
    };
    *ret_tests = tests;
    return COUNT_OF(tests);
}
