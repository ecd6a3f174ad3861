/*
 * `postroom receive`: messages handled by commands, one process each, and what becomes of those
 * that fail, hang, die or are stopped.
 */
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "program.h"

#define STORE  "sqlite:a.db"
#define TYPE   "urn:message:shop:order-placed"
#define MARKS  "SELECT count(*) FROM postroom_inbox"
#define PARKED "SELECT count(*) FROM postroom_inbox_parked"
#define RECEIVE                                                                                    \
    "receive", "--store", STORE, "--endpoint", "billing", "--type", TYPE, "--backoff", "10ms"

/* A store that is its own transport, in a folder of its own, with the endpoint subscribed. */
static void enter(folder *here)
{
    folder_enter(here);
    expect(0, NULL, "", "migrate", "--store", STORE, "--default-transport", "local");
    expect(0, "0 handled", "", RECEIVE, "--exec", "false", "--until-idle", "100ms");
}

static void send(const char *body)
{
    expect(0, NULL, "", "send", "--store", STORE, TYPE, body);
}

static int64_t parked(const char *state, const char *error)
{
    char sql[512];
    snprintf(sql, sizeof(sql), PARKED " WHERE state = '%s' AND last_error GLOB '%s'", state, error);
    return number_of("a.db", sql);
}

static void wait_gone(pid_t pid)
{
    int64_t deadline = now_ms() + DEADLINE_MS;
    while (kill(pid, 0) == 0) {
        assert_true(now_ms() < deadline);
        sleep_a_little();
    }
}

static pid_t pid_in(const char *path)
{
    char *text = read_file(path);
    assert_non_null(text);
    pid_t pid = (pid_t)strtol(text, NULL, 10);
    free(text);
    return pid;
}

static void wait_file(const char *path)
{
    int64_t deadline = now_ms() + DEADLINE_MS;
    while (!file_exists(path)) {
        assert_true(now_ms() < deadline);
        sleep_a_little();
    }
}

/* ---- what a command sees ---- */

static void the_body_is_on_its_input_and_the_envelope_in_its_environment(void **state)
{
    (void)state;
    folder here;
    enter(&here);
    setenv("POSTROOM_KEY", "of the outside", 1);
    setenv("POSTROOM_HEADER_OUTER", "of the outside", 1);
    expect(0, NULL, "", "send", "--store", STORE, TYPE, "{\"a\": 1}", "--id",
           "01a22dd4-0000-7000-8000-000000000001", "--version", "3", "--tenant", "t1",
           "--correlation-id", "c 1", "--causation-id", "b", "--traceparent",
           "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "--source", "shop",
           "--header", "order-id=7 'x'", "--header", "PATH=/nowhere", "--occurred-at",
           "2026-01-31T12:00:00Z");
    expect(0, "1 handled", "", RECEIVE, "--until-idle", "300ms", "--exec",
           "cat >body; env | grep ^POSTROOM_ | sort >env; command -v cat >path");
    char *body = read_file("body"), *env = read_file("env"), *path = read_file("path");
    assert_string_equal(body, "{\"a\": 1}");
    assert_string_equal(path, "/usr/bin/cat\n");
    static const char *const lines[] = {
        "POSTROOM_ATTEMPT=1\n",
        "POSTROOM_CAUSATION_ID=b\n",
        "POSTROOM_CONTENT_TYPE=application/json\n",
        "POSTROOM_CORRELATION_ID=c 1\n",
        "POSTROOM_ENDPOINT=billing\n",
        "POSTROOM_HEADERS={\"order-id\":\"7 'x'\",\"PATH\":\"/nowhere\"}\n",
        "POSTROOM_HEADER_ORDER_ID=7 'x'\n",
        "POSTROOM_HEADER_PATH=/nowhere\n",
        "POSTROOM_MESSAGE_ID=01a22dd4-0000-7000-8000-000000000001\n",
        "POSTROOM_OCCURRED_AT=2026-01-31T12:00:00.000000Z\n",
        "POSTROOM_SOURCE=shop\n",
        "POSTROOM_TENANT=t1\n",
        "POSTROOM_TRACEPARENT=00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01\n",
        "POSTROOM_TYPE=" TYPE "\n",
        "POSTROOM_TYPE_VERSION=3\n",
    };
    for (size_t i = 0; i < COUNT_OF(lines); i++)
        CHECK_CASE(strstr(env, lines[i]), lines[i]);
    assert_null(strstr(env, "of the outside"));
    unsetenv("POSTROOM_KEY");
    unsetenv("POSTROOM_HEADER_OUTER");
    free(body);
    free(env);
    free(path);
    folder_leave(&here);
}

static void a_command_need_not_read_its_body(void **state)
{
    (void)state;
    folder here;
    result r;
    char *large = malloc(400001);
    enter(&here);
    memset(large, 'x', 400000);
    large[400000] = '\0';
    write_file("large", large);
    expect(0, NULL, "", "send", "--store", STORE, TYPE, "--file", "large");
    expect(0, NULL, "", "send", "--store", STORE, TYPE, "--file", "large");
    expect(0, NULL, "", "send", "--store", STORE, TYPE, "--file", "large");
    run(&r, RECEIVE, "--until-idle", "300ms", "--exec",
        "case $(ls n* 2>/dev/null | wc -l) in 0) : >n1;; 1) : >n2; exec <&-; sleep 0.1;; "
        "*) : >n3; wc -c >size;; esac");
    check_result(&r, 0, "3 handled, 0 failed", "", "early");
    char *size = read_file("size");
    assert_string_equal(size, "400000\n");
    assert_int_equal(number_of("a.db", MARKS), 3);
    result_done(&r);
    free(size);
    free(large);
    folder_leave(&here);
}

/* ---- verdicts ---- */

static void the_exit_code_is_the_verdict(void **state)
{
    (void)state;
    static const struct {
        const char *exec, *state, *error; /* state NULL = done */
    } cases[] = {
        {"exit 0", NULL, NULL},
        {"exit 65", "dead", "the command ended with exit 65"},
        {"exit 75", "failed", "the command ended with exit 75"},
        {"exit 1", "failed", "the command ended with exit 1"},
        {"no-such-command 2>/dev/null", "failed", "the command ended with exit 127"},
        {"kill -9 $$", "failed", "the command was killed by signal 9"},
        {"kill -TERM $$", "failed", "the command was killed by signal 15"},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        folder here;
        enter(&here);
        send("{\"secret\":1}");
        /* what is dead is told: it does not come back by itself */
        bool dead = cases[i].state && strcmp(cases[i].state, "dead") == 0;
        expect(0, NULL, dead ? "is dead: the command ended with exit 65; see postroom dead" : "",
               RECEIVE, "--backoff", "10m", "--until-idle", "200ms", "--exec", cases[i].exec);
        CHECK_CASE(number_of("a.db", MARKS) == (cases[i].state ? 0 : 1), cases[i].exec);
        CHECK_CASE(number_of("a.db", PARKED) == (cases[i].state ? 1 : 0), cases[i].exec);
        if (cases[i].state)
            CHECK_CASE(parked(cases[i].state, cases[i].error) == 1, cases[i].exec);
        CHECK_CASE(number_of("a.db", PARKED " WHERE attempts <> 1") == 0, cases[i].exec);
        folder_leave(&here);
    }
}

static void a_retry_knows_its_number_and_the_effect_comes_once(void **state)
{
    (void)state;
    folder here;
    enter(&here);
    send("{}");
    expect(0, "1 handled, 2 failed, 0 dead", "", RECEIVE, "--until-idle", "500ms", "--exec",
           "echo $POSTROOM_ATTEMPT >>tries; [ $POSTROOM_ATTEMPT = 3 ]");
    char *tries = read_file("tries");
    assert_string_equal(tries, "1\n2\n3\n");
    free(tries);
    expect(0, "0 handled", "", RECEIVE, "--until-idle", "200ms", "--exec", ": >again");
    assert_false(file_exists("again"));
    folder_leave(&here);
}

static void retries_have_an_end(void **state)
{
    (void)state;
    folder here;
    enter(&here);
    send("{}");
    expect(0, "0 handled, 1 failed, 1 dead", "is dead: the command", RECEIVE, "--retry-max", "1",
           "--until-idle", "300ms", "--exec", "exit 75");
    assert_int_equal(parked("dead", "the command ended with exit 75"), 1);
    folder_leave(&here);
}

/* ---- commands that misbehave ---- */

/* The command and what it started are gone, though they refuse SIGTERM. */
static void a_command_that_hangs_is_ended_with_all_that_it_started(void **state)
{
    (void)state;
    folder here;
    enter(&here);
    send("{}");
    expect(0, "0 handled, 1 failed", "", RECEIVE, "--backoff", "10m", "--until-idle", "300ms",
           "--timeout", "300ms", "--kill-after", "100ms", "--exec",
           "trap '' TERM; sh -c 'trap \"\" TERM; echo $$ >inner.new; mv inner.new inner; "
           "while :; do sleep 0.05; done' & while :; do sleep 0.05; done");
    assert_int_equal(parked("failed", "the command ran longer than 300 ms"), 1);
    wait_gone(pid_in("inner"));
    folder_leave(&here);
}

static void a_command_that_ends_at_sigterm_is_not_believed(void **state)
{
    (void)state;
    folder here;
    enter(&here);
    send("{}");
    expect(0, "0 handled, 1 failed", NULL, RECEIVE, "--backoff", "10m", "--until-idle", "200ms",
           "--timeout", "200ms", "--exec", "trap 'exit 0' TERM; while :; do sleep 0.02; done");
    assert_int_equal(parked("failed", "the command ran longer than 200 ms"), 1);
    assert_int_equal(number_of("a.db", MARKS), 0);
    folder_leave(&here);
}

/* It is continued, so that it can do what it does at SIGTERM. */
static void a_command_that_is_stopped_is_ended_in_time(void **state)
{
    (void)state;
    folder here;
    enter(&here);
    send("{}");
    expect(0, "0 handled, 1 failed", NULL, RECEIVE, "--backoff", "10m", "--until-idle", "200ms",
           "--timeout", "200ms", "--kill-after", "20s", "--exec",
           "trap ': >told; exit 0' TERM; kill -STOP $$");
    assert_int_equal(parked("failed", "the command ran longer than 200 ms"), 1);
    assert_true(file_exists("told"));
    folder_leave(&here);
}

/* What would work beside the next try is ended, whatever the command's end was. */
static void what_a_failed_command_leaves_behind_is_ended(void **state)
{
    (void)state;
    static const char *const ends[] = {"exit 75", "exit 65", "kill -9 $$"};
    for (size_t i = 0; i < COUNT_OF(ends); i++) {
        folder here;
        char exec[256];
        enter(&here);
        send("{}");
        snprintf(exec, sizeof exec, "sleep 60 & echo $! >pid; %s", ends[i]);
        expect(0, "0 handled", strcmp(ends[i], "exit 65") == 0 ? "is dead" : "", RECEIVE,
               "--backoff", "10m", "--until-idle", "100ms", "--exec", exec);
        wait_gone(pid_in("pid"));
        folder_leave(&here);
    }
}

/* The shell that runs the command has no room for its environment: not the message's fault. */
static void a_command_that_cannot_be_run_charges_nothing(void **state)
{
    (void)state;
    enum { LIMIT = 512 * 1024, ROOM = LIMIT / 4, PIECE = 1000 };
    folder here;
    struct rlimit before, small;
    char header[4096], name[32], piece[PIECE];
    result r;
    enter(&here);
    memset(header, 'h', sizeof header - 1);
    memcpy(header, "h=", 2);
    header[4000] = '\0';
    expect(0, NULL, "", "send", "--store", STORE, TYPE, "{}", "--header", header);
    memset(piece, 'x', sizeof piece - 1);
    piece[sizeof piece - 1] = '\0';
    getrlimit(RLIMIT_STACK, &before);
    small = before;
    small.rlim_cur = LIMIT;
    assert_int_equal(setrlimit(RLIMIT_STACK, &small), 0);
    size_t used = 0; /* as large as we may be, with no room for the envelope's 8,000 bytes */
    for (int i = 0; environ[i]; i++)
        used += strlen(environ[i]) + 1 + sizeof(char *);
    int more = 0;
    for (; used + 6000 < ROOM; more++, used += PIECE + 20 + sizeof(char *)) {
        snprintf(name, sizeof name, "FILLER_%d", more);
        setenv(name, piece, 1);
    }
    pid_t pid = start(NULL, RECEIVE, "--exec", "true");
    wait_number("a.db", PARKED, 1);
    kill(pid, SIGTERM);
    finish_program(pid, &r);
    setrlimit(RLIMIT_STACK, &before);
    while (more-- > 0) {
        snprintf(name, sizeof name, "FILLER_%d", more);
        unsetenv(name);
    }
    check_result(&r, 0, "0 handled, 0 failed, 0 dead", "", "no room");
    result_done(&r);
    assert_int_equal(number_of("a.db", PARKED " WHERE attempts > 0"), 0);
    expect(0, "1 handled", "", RECEIVE, "--until-idle", "2s", "--exec", "true");
    folder_leave(&here);
}

/* A background process that keeps the command's output open holds nothing up. */
static void what_a_command_leaves_behind_is_not_waited_for(void **state)
{
    (void)state;
    folder here;
    enter(&here);
    send("{}");
    int64_t began = now_ms();
    expect(0, "1 handled", "", RECEIVE, "--follow-ups", "--until-idle", "200ms", "--exec",
           "(sleep 20; echo garbage) 2>/dev/null & echo $! >pid");
    assert_true(now_ms() - began < 15000);
    assert_int_equal(kill(pid_in("pid"), SIGKILL), 0); /* after a success it goes on */
    folder_leave(&here);
}

/* ---- what it sends ---- */

static void follow_ups_are_committed_with_the_mark(void **state)
{
    (void)state;
    folder here;
    enter(&here);
    expect(0, NULL, "", "send", "--store", STORE, TYPE, "{}", "--correlation-id", "talk", "--id",
           "01a22dd4-0000-7000-8000-000000000001");
    expect(0, "1 handled, 1 failed", "", RECEIVE, "--follow-ups", "--until-idle", "300ms", "--exec",
           "echo '{\"type\":\"urn:message:billing:written\",\"body\":{\"n\":1}}';"
           "printf '{\"type\":\"urn:message:billing:sent\",\"body_text\":\"x\"}';"
           "[ $POSTROOM_ATTEMPT = 2 ]");
    assert_int_equal(number_of("a.db", "SELECT count(*) FROM postroom_outbox WHERE type LIKE "
                                       "'urn:message:billing:%' AND correlation_id = 'talk' AND "
                                       "causation_id = '01a22dd4-0000-7000-8000-000000000001' AND "
                                       "source = 'billing'"),
                     2);
    folder_leave(&here);
}

static void follow_ups_that_are_none_undo_the_whole(void **state)
{
    (void)state;
    static const struct {
        const char *printed, *error;
    } cases[] = {
        {"s3cret", "message 2 of the command: *"},
        {"{\"type\":\"urn:message:a:b\"}", "message 2 of the command: *body*"},
        {"{\"type\":\"order-placed\",\"body\":1}", "message 2 of the command: *urn*"},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        folder here;
        char exec[256];
        enter(&here);
        send("{}");
        snprintf(exec, sizeof(exec), "echo '{\"type\":\"urn:message:a:b\",\"body\":1}'; echo '%s'",
                 cases[i].printed);
        expect(0, "0 handled, 1 failed", "", RECEIVE, "--backoff", "10m", "--follow-ups",
               "--until-idle", "200ms", "--exec", exec);
        CHECK_CASE(parked("failed", cases[i].error) == 1, cases[i].printed);
        CHECK_CASE(parked("failed", "*s3cret*") == 0, cases[i].printed);
        CHECK_CASE(number_of("a.db", "SELECT count(*) FROM postroom_outbox") == 1,
                   cases[i].printed);
        CHECK_CASE(number_of("a.db", MARKS) == 0, cases[i].printed);
        folder_leave(&here);
    }
}

/* No transaction is open while a command runs: it may write to the very database. */
static void a_command_may_write_to_the_same_store(void **state)
{
    (void)state;
    folder here;
    char exec[512];
    enter(&here);
    send("{}");
    snprintf(exec, sizeof(exec), "'%s' send --store " STORE " urn:message:a:b '{}' --busy 1s >id",
             getenv("POSTROOM_PROGRAM"));
    expect(0, "1 handled, 0 failed", "", RECEIVE, "--until-idle", "300ms", "--exec", exec);
    assert_int_equal(number_of("a.db", "SELECT count(*) FROM postroom_outbox"), 2);
    folder_leave(&here);
}

/* Each command waits until all four are there; the fifth is of the first one's key. */
static void several_commands_run_at_once_but_of_a_key_one(void **state)
{
    (void)state;
    static const char *const keys[] = {"a", "b", "c", "d", "a"};
    folder here;
    enter(&here);
    for (size_t i = 0; i < COUNT_OF(keys); i++)
        expect(0, NULL, "", "send", "--store", STORE, TYPE, "{}", "--key", keys[i]);
    expect(0, "5 handled, 0 failed", "", RECEIVE, "--workers", "5", "--timeout", "20s",
           "--until-idle", "500ms", "--exec",
           "mkdir key-$POSTROOM_KEY || exit 65; echo >>all-$POSTROOM_KEY;"
           "while [ $(ls all-* | wc -l) -lt 4 ]; do sleep 0.02; done; rmdir key-$POSTROOM_KEY");
    assert_int_equal(number_of("a.db", MARKS), 5);
    folder_leave(&here);
}

/* One that is busy with a long command leaves the rest to another, when it takes nothing ahead. */
static void what_is_not_taken_ahead_is_for_others(void **state)
{
    (void)state;
    folder here;
    result r;
    enter(&here);
    for (int i = 0; i < 4; i++)
        expect(0, NULL, "", "send", "--store", STORE, TYPE, "{}", "--key", "k");
    pid_t pid = start(NULL, RECEIVE, "--prefetch", "1", "--exec",
                      ": >begun; while [ ! -e end ]; do sleep 0.02; done");
    wait_file("begun");
    for (int i = 0; i < 4; i++)
        send("{}");
    expect(0, "4 handled, 0 failed", NULL, RECEIVE, "--until-idle", "2s", "--exec", "true");
    write_file("end", "");
    wait_number("a.db", MARKS, 8);
    kill(pid, SIGTERM);
    finish_program(pid, &r);
    check_result(&r, 0, "4 handled, 0 failed", NULL, "the long one");
    result_done(&r);
    folder_leave(&here);
}

/* ---- stopping ---- */

static void stopped_in_mid_command_nothing_is_charged(void **state)
{
    (void)state;
    folder here;
    result r;
    enter(&here);
    send("{}");
    pid_t pid = start(NULL, RECEIVE, "--grace", "200ms", "--kill-after", "100ms", "--exec",
                      ": >begun; while :; do sleep 0.05; done");
    wait_file("begun");
    kill(pid, SIGTERM);
    finish_program(pid, &r);
    check_result(&r, 0, "0 handled, 0 failed, 0 dead", "", "stopped");
    result_done(&r);
    assert_int_equal(number_of("a.db", MARKS), 0);
    assert_int_equal(number_of("a.db", PARKED " WHERE attempts > 0 OR state = 'dead'"), 0);
    expect(0, "1 handled, 0 failed", "", RECEIVE, "--until-idle", "1s", "--exec",
           "[ $POSTROOM_ATTEMPT = 1 ]");
    folder_leave(&here);
}

/* As a service manager stops: both get the signal, and the command is the first to end. */
static void a_command_that_is_stopped_together_with_us_charges_nothing(void **state)
{
    (void)state;
    folder here;
    result r;
    enter(&here);
    send("{}");
    pid_t pid = start(NULL, RECEIVE, "--exec",
                      "echo $$ >pid.new; mv pid.new pid; while :; do sleep 0.05; done");
    wait_file("pid");
    char *text = read_file("pid");
    kill((pid_t)strtol(text, NULL, 10), SIGTERM);
    kill(pid, SIGTERM);
    free(text);
    finish_program(pid, &r);
    check_result(&r, 0, "0 handled, 0 failed, 0 dead", NULL, "stopped");
    result_done(&r);
    expect(0, "1 handled, 0 failed", "", RECEIVE, "--until-idle", "2s", "--exec",
           "[ $POSTROOM_ATTEMPT = 1 ]");
    folder_leave(&here);
}

static void a_command_that_ends_within_the_grace_is_done(void **state)
{
    (void)state;
    folder here;
    result r;
    enter(&here);
    send("{}");
    pid_t pid = start(NULL, RECEIVE, "--grace", "20s", "--exec",
                      ": >begun; while [ ! -e end ]; do sleep 0.02; done");
    wait_file("begun");
    kill(pid, SIGTERM);
    write_file("end", "");
    finish_program(pid, &r);
    check_result(&r, 0, "1 handled, 0 failed", "", "stopped");
    result_done(&r);
    assert_int_equal(number_of("a.db", MARKS), 1);
    folder_leave(&here);
}

/* Killed as it holds a message: its command dies too, with all that it has started, though they
   refuse SIGTERM, and another takes the message over. */
static void a_receiver_that_is_killed_loses_nothing(void **state)
{
    (void)state;
    folder here;
    result r;
    enter(&here);
    send("{}");
    pid_t pid = start(NULL, RECEIVE, "--lease", "500ms", "--kill-after", "100ms", "--exec",
                      "trap '' TERM; sh -c 'echo $$ >inner; while :; do sleep 0.05; done' & "
                      "while [ ! -s inner ]; do sleep 0.01; done;"
                      "echo $$ >pid.new; mv pid.new pid; while :; do sleep 0.05; done");
    wait_file("pid");
    kill(pid, SIGKILL);
    finish_program(pid, &r);
    result_done(&r);
    wait_gone(pid_in("pid"));
    wait_gone(pid_in("inner"));
    pid = start(NULL, RECEIVE, "--lease", "500ms", "--exec", "true");
    wait_number("a.db", MARKS, 1);
    kill(pid, SIGTERM);
    finish_program(pid, &r);
    check_result(&r, 0, "1 handled", "", "taken over");
    result_done(&r);
    assert_int_equal(number_of("a.db", PARKED), 0);
    folder_leave(&here);
}

/* ---- usage ---- */

static size_t count_of(const char *text, const char *part)
{
    size_t count = 0;
    for (const char *at = strstr(text, part); at; at = strstr(at + 1, part))
        count++;
    return count;
}

/* It tries for ever; that, and why, is said once, and not without end. */
static void that_no_messages_can_come_is_told(void **state)
{
    (void)state;
    folder here;
    result r;
    enter(&here);
    run(&r, RECEIVE, "--from", "amqp://me:sekret@127.0.0.1:1", "--exec", "false", "--until-idle",
        "700ms"); /* it tries several times */
    check_result(&r, 1, "0 handled", "no messages come, trying again: connect to 127.0.0.1:1",
                 "text");
    assert_int_equal(count_of(r.err, "nobody answers"), 1);
    assert_int_equal(count_of(r.err, "\n"), 1);
    assert_int_equal(count_of(r.err, "sekret"), 0);
    result_done(&r);
    run(&r, RECEIVE, "--from", "amqp://me:sekret@127.0.0.1:1", "--exec", "false", "--until-idle",
        "100ms", "--json");
    check_result(&r, 1, "\"handled\":0", "\"event\":\"messaging.endpoint.state\"", "json");
    assert_int_equal(count_of(r.err, "sekret"), 0);
    result_done(&r);
    folder_leave(&here);
}

static void with_verbose_each_event_is_a_line(void **state)
{
    (void)state;
    folder here;
    result r;
    enter(&here);
    send("{\"secret\":1}");
    run(&r, RECEIVE, "--exec", "exit 75", "--retry-max", "1", "--until-idle", "300ms", "--verbose");
    check_result(&r, 0, "1 failed, 1 dead", "messaging.endpoint.state 1 of=billing: subscribed\n",
                 "events");
    assert_int_equal(count_of(r.err, "messaging.inbox.failed 1 id="), 1);
    assert_int_equal(count_of(r.err, "messaging.inbox.dead 1 id="), 1);
    assert_int_equal(count_of(r.err, "of=billing: the command ended with exit 75\n"), 2);
    assert_int_equal(count_of(r.err, "postroom dead show"), 0); /* said as an event already */
    assert_int_equal(count_of(r.err, "secret"), 0);
    result_done(&r);
    folder_leave(&here);
}

static void what_is_missing_or_wrong_is_told(void **state)
{
    (void)state;
    folder here;
    enter(&here);
    expect(2, "", "add --endpoint ID", "receive", "--store", STORE, "--type", TYPE, "--exec", "x");
    expect(2, "", "add --type URN", "receive", "--store", STORE, "--endpoint", "e", "--exec", "x");
    expect(2, "", "add --exec 'CMD'", "receive", "--store", STORE, "--endpoint", "e", "--type",
           TYPE);
    expect(2, "", "--lines and --follow-ups together", RECEIVE, "--exec", "x", "--lines",
           "--follow-ups");
    expect(2, "", "less than --workers", RECEIVE, "--exec", "x", "--workers", "3", "--prefetch",
           "2");
    expect(2, "", "--timeout is '40000d'; must be at most", RECEIVE, "--exec", "x", "--timeout",
           "40000d");
    expect(2, "", "--grace is '100000000000d'; must be at most", RECEIVE, "--exec", "x", "--grace",
           "100000000000d");
    expect(1, "", "is not urn:message:", "receive", "--store", STORE, "--endpoint", "e", "--type",
           "order", "--exec", "x");
    unsetenv("POSTROOM_AMQP");
    expect(2, "", "says nothing; set it to amqp://", RECEIVE, "--from", "amqp:", "--exec", "x");
    expect(1, "", "the endpoint's id has a '/', a space", "receive", "--store", STORE, "--endpoint",
           "bill ing", "--type", TYPE, "--exec", "x");
    expect(3, "", "there is no store 'sqlite:none.db'", RECEIVE, "--from", "sqlite:none.db",
           "--exec", "x");
    folder_leave(&here);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_body_is_on_its_input_and_the_envelope_in_its_environment),
        cmocka_unit_test(a_command_need_not_read_its_body),
        cmocka_unit_test(the_exit_code_is_the_verdict),
        cmocka_unit_test(a_retry_knows_its_number_and_the_effect_comes_once),
        cmocka_unit_test(retries_have_an_end),
        cmocka_unit_test(a_command_that_hangs_is_ended_with_all_that_it_started),
        cmocka_unit_test(a_command_that_ends_at_sigterm_is_not_believed),
        cmocka_unit_test(a_command_that_is_stopped_is_ended_in_time),
        cmocka_unit_test(what_a_failed_command_leaves_behind_is_ended),
        cmocka_unit_test(a_command_that_cannot_be_run_charges_nothing),
        cmocka_unit_test(what_a_command_leaves_behind_is_not_waited_for),
        cmocka_unit_test(follow_ups_are_committed_with_the_mark),
        cmocka_unit_test(follow_ups_that_are_none_undo_the_whole),
        cmocka_unit_test(a_command_may_write_to_the_same_store),
        cmocka_unit_test(several_commands_run_at_once_but_of_a_key_one),
        cmocka_unit_test(what_is_not_taken_ahead_is_for_others),
        cmocka_unit_test(stopped_in_mid_command_nothing_is_charged),
        cmocka_unit_test(a_command_that_is_stopped_together_with_us_charges_nothing),
        cmocka_unit_test(a_command_that_ends_within_the_grace_is_done),
        cmocka_unit_test(a_receiver_that_is_killed_loses_nothing),
        cmocka_unit_test(that_no_messages_can_come_is_told),
        cmocka_unit_test(with_verbose_each_event_is_a_line),
        cmocka_unit_test(what_is_missing_or_wrong_is_told),
    };
    return RUN_TESTS(tests);
}
