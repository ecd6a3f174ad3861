/*
 * `postroom receive --lines`: a command that runs for long gets a JSON line a message and gives a
 * JSON line a verdict; one that says anything else is ended and started anew.
 */
#include <signal.h>

#include "program.h"

#define STORE   "sqlite:a.db"
#define TYPE    "urn:message:shop:order-placed"
#define MARKS   "SELECT count(*) FROM postroom_inbox"
#define PARKED  "SELECT count(*) FROM postroom_inbox_parked"
#define RECEIVE "receive", "--store", STORE, "--endpoint", "billing", "--type", TYPE, "--lines"
#define PYTHON  "exec /usr/bin/python3 command.py"

/* What every command in Python begins with; each start of it writes a line to "starts". */
#define PROLOGUE                                                                                   \
    "import json, os, sys, time\n"                                                                 \
    "open('starts', 'a').write('x\\n')\n"                                                          \
    "starts = len(open('starts').readlines())\n"                                                   \
    "def say(message, verdict, **more):\n"                                                         \
    "    print(json.dumps({'id': message['id'], 'verdict': verdict, **more}), flush=True)\n"

static void enter(folder *here, const char *command)
{
    char *text = malloc(strlen(PROLOGUE) + strlen(command) + 1);
    folder_enter(here);
    memcpy(text, PROLOGUE, strlen(PROLOGUE));
    memcpy(text + strlen(PROLOGUE), command, strlen(command) + 1);
    write_file("command.py", text);
    free(text);
    expect(0, NULL, "", "migrate", "--store", STORE, "--default-transport", "local");
    expect(0, "0 handled", "", RECEIVE, "--exec", PYTHON, "--until-idle", "100ms");
    assert_false(file_exists("starts")); /* not before there is a message */
}

static void send(const char *body)
{
    expect(0, NULL, "", "send", "--store", STORE, TYPE, body, "--key", "k");
}

static void check_starts(int wanted)
{
    char *text = read_file("starts");
    assert_non_null(text);
    assert_int_equal(strlen(text), 2 * wanted);
    free(text);
}

static void one_process_handles_many(void **state)
{
    (void)state;
    folder here;
    enter(&here, "for line in sys.stdin:\n"
                 "    m = json.loads(line)\n"
                 "    open('seen', 'a').write(f\"{m['body']['n']} {m['attempt']}\\n\")\n"
                 "    say(m, 'ok')\n"
                 "open('ended', 'w')\n");
    for (int i = 0; i < 20; i++) {
        char body[32];
        snprintf(body, sizeof(body), "{\"n\":%d}", i);
        send(body);
    }
    expect(0, "20 handled, 0 failed", "", RECEIVE, "--exec", PYTHON, "--until-idle", "300ms");
    check_starts(1);
    assert_true(file_exists("ended")); /* it was told to end by the end of its input */
    assert_int_equal(number_of("a.db", MARKS), 20);
    char *seen = read_file("seen");
    assert_non_null(strstr(seen, "0 1\n1 1\n2 1\n"));
    assert_non_null(strstr(seen, "18 1\n19 1\n"));
    free(seen);
    folder_leave(&here);
}

static void verdicts_are_followed(void **state)
{
    (void)state;
    static const struct {
        const char *label, *answer, *out, *error; /* error NULL = nothing is parked */
    } cases[] = {
        {"retry", "'retry', reason='no paper', delay='10m'", "0 handled, 1 failed", "no paper"},
        {"retry at once", "'ok' if m['attempt'] == 2 else 'retry', delay='0s'",
         "1 handled, 1 failed", NULL},
        {"permanent", "'permanent', reason='line\\none'", "1 dead", "line one"},
        {"without a reason", "'permanent'", "1 dead", "the command said so"},
        {"defer", "'ok' if starts == 1 and os.path.exists('d') else 'defer', delay='0s'",
         "1 handled, 0 failed, 0 dead, 1 deferred", NULL},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        folder here;
        char command[512];
        snprintf(command, sizeof(command),
                 "for line in sys.stdin:\n"
                 "    m = json.loads(line)\n"
                 "    say(m, %s)\n"
                 "    open('d', 'w')\n",
                 cases[i].answer);
        enter(&here, command);
        send("{}");
        bool dead = strstr(cases[i].out, "1 dead") != NULL;
        expect(0, cases[i].out, dead ? cases[i].error : "", RECEIVE, "--exec", PYTHON,
               "--until-idle", "300ms");
        check_starts(1);
        char sql[256];
        snprintf(sql, sizeof(sql), PARKED " WHERE last_error = '%s' AND attempts = 1",
                 cases[i].error ? cases[i].error : "");
        CHECK_CASE(number_of("a.db", PARKED) == (cases[i].error ? 1 : 0), cases[i].label);
        CHECK_CASE(!cases[i].error || number_of("a.db", sql) == 1, cases[i].label);
        folder_leave(&here);
    }
}

/* The second message shows that a new process took the place of the one that was out of step. */
static void a_command_out_of_step_is_started_anew(void **state)
{
    (void)state;
    static const struct {
        const char *fault, *error;
    } cases[] = {
        {"print('s3cret', flush=True)", "*cannot be used: no JSON object"},
        {"print('[1]', flush=True)", "*cannot be used: no JSON object"},
        {"print('{}', flush=True)", "*cannot be used: its \"id\" is not that of the message"},
        {"say({'id': 'other'}, 'ok')", "*cannot be used: its \"id\" is not that of the message"},
        {"say(m, 's3cret')", "*cannot be used: its \"verdict\" is none of ok,*"},
        {"say(m, 'ok', delay=5)", "*cannot be used: its \"delay\" is no duration*"},
        {"say(m, 'ok', send={})", "*cannot be used: its \"send\" is no list"},
        {"sys.stdout.write('{\"id\":\"%s\",\"verdict\":\"ok\"}\\n{}\\n' % m['id']); "
         "sys.stdout.flush(); time.sleep(60)",
         "*cannot be used: more than a line"},
        {"sys.exit(3)", "the command ended with exit 3 before its verdict"},
        {"os.kill(os.getpid(), 9)", "the command was killed by signal 9 before its verdict"},
        {"time.sleep(60)", "the command gave no verdict for 2000 ms"},
        {"os.write(1, b'{\"id\": \"x\\0y\"}\\n')", "*cannot be used: no JSON object"},
        {"os.close(0); time.sleep(60)", "the command gave no verdict for 2000 ms"},
        {"os.close(1); time.sleep(60)", "the command closed its input or its output*"},
        {"os.write(1, b'\\n')", "*cannot be used: no JSON object"},
        {"say(m, 'ok', send=[{'type': 'urn:message:a:b', 'body': 2 ** 64}])",
         "*cannot be used: a number is too large*"},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        folder here;
        char command[512], sql[256];
        snprintf(command, sizeof(command),
                 "for line in sys.stdin:\n"
                 "    m = json.loads(line)\n"
                 "    if m['body'] == 'bad':\n"
                 "        %s\n"
                 "    else:\n"
                 "        say(m, 'ok')\n",
                 cases[i].fault);
        enter(&here, command);
        expect(0, NULL, "", "send", "--store", STORE, TYPE, "\"bad\"");
        send("\"good\"");
        expect(0, "1 handled, 1 failed", NULL, RECEIVE, "--exec", PYTHON, "--until-idle", "300ms",
               "--timeout", "2s", "--kill-after", "1s", "--backoff", "10m");
        CHECK_CASE(number_of("a.db", MARKS) == 1, cases[i].fault);
        snprintf(sql, sizeof(sql), PARKED " WHERE state = 'failed' AND last_error GLOB '%s'",
                 cases[i].error);
        CHECK_CASE(number_of("a.db", sql) == 1, cases[i].fault);
        CHECK_CASE(number_of("a.db", PARKED " WHERE last_error LIKE '%s3cret%'") == 0,
                   cases[i].fault);
        folder_leave(&here);
    }
}

static void wait_file(const char *path)
{
    int64_t deadline = now_ms() + DEADLINE_MS;
    while (!file_exists(path)) {
        assert_true(now_ms() < deadline);
        sleep_a_little();
    }
}

/* It has ended, and nobody has waited for it. */
static void wait_zombie(void)
{
    int64_t deadline = now_ms() + DEADLINE_MS;
    char *pid = read_file("pid"), path[64];
    snprintf(path, sizeof(path), "/proc/%s/stat", pid);
    free(pid);
    for (bool ended = false; !ended; sleep_a_little()) {
        char line[512] = "";
        FILE *file = fopen(path, "r");
        ended = !file || !fgets(line, sizeof(line), file) || strstr(line, ") Z ");
        if (file)
            fclose(file);
        assert_true(now_ms() < deadline);
    }
}

/* Between two messages it says something, or goes away: no message pays for that. */
static void what_it_does_between_messages_harms_none(void **state)
{
    (void)state;
    static const struct {
        const char *fault;
        bool ends;
    } cases[] = {{"print('unasked', flush=True)", false},
                 {"os.close(0); open('done', 'w'); time.sleep(60)", false},
                 {"os.close(1); open('done', 'w'); time.sleep(60)", false},
                 {"sys.exit(0)", true}};
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        folder here;
        result r;
        char command[640];
        snprintf(command, sizeof(command),
                 "open('pid', 'w').write(str(os.getpid()))\n"
                 "for line in sys.stdin:\n"
                 "    say(json.loads(line), 'ok')\n"
                 "    if starts == 1:\n"
                 "        while not os.path.exists('go'): time.sleep(0.01)\n"
                 "        %s\n"
                 "        open('done', 'w')\n",
                 cases[i].fault);
        enter(&here, command);
        send("1");
        pid_t pid = start(NULL, RECEIVE, "--exec", PYTHON);
        wait_number("a.db", MARKS, 1);
        write_file("go", "");
        if (cases[i].ends)
            wait_zombie();
        else
            wait_file("done");
        send("2");
        wait_number("a.db", MARKS, 2);
        kill(pid, SIGTERM);
        finish_program(pid, &r);
        check_result(&r, 0, "2 handled, 0 failed", NULL, cases[i].fault);
        result_done(&r);
        check_starts(2);
        folder_leave(&here);
    }
}

/* It says what it thinks of a message that it has not read: what is left of that would be taken for
   the beginning of the next one. Without --timeout too it is not waited for. */
static void a_message_is_read_before_its_verdict(void **state)
{
    (void)state;
    static const struct {
        const char *end, *error;
    } cases[] = {
        {"say({'id': id}, 'ok'); time.sleep(60)",
         "*cannot be used: it came before the message was read"},
        {"os.close(0); time.sleep(60)", "the command closed its input or its output*"},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        folder here;
        char command[512], sql[256], *large = malloc(1000001);
        snprintf(command, sizeof command,
                 "while True:\n"
                 "    line = os.read(0, 100)\n"
                 "    if not line: break\n"
                 "    id = line.decode().split('\"')[3]\n"
                 "    %s\n",
                 cases[i].end);
        enter(&here, command);
        memset(large, 'x', 1000000);
        large[1000000] = '\0';
        write_file("large", large);
        free(large);
        expect(0, NULL, "", "send", "--store", STORE, TYPE, "--file", "large");
        expect(0, "0 handled, 1 failed", NULL, RECEIVE, "--exec", PYTHON, "--until-idle", "300ms",
               "--backoff", "10m", "--kill-after", "100ms");
        snprintf(sql, sizeof(sql), PARKED " WHERE state = 'failed' AND last_error GLOB '%s'",
                 cases[i].error);
        CHECK_CASE(number_of("a.db", sql) == 1, cases[i].error);
        folder_leave(&here);
    }
}

/* The shell that was started is killed; the command goes on, with the pipes in its hands. */
static void a_command_ends_with_its_shell(void **state)
{
    (void)state;
    folder here;
    enter(&here, "for line in sys.stdin:\n"
                 "    m = json.loads(line)\n"
                 "    if starts == 1:\n"
                 "        os.kill(os.getppid(), 9)\n"
                 "        time.sleep(3)\n"
                 "        open('effect', 'w')\n"
                 "    say(m, 'ok')\n");
    send("1");
    expect(0, "1 handled, 1 failed", NULL, RECEIVE, "--exec", "/usr/bin/python3 command.py; true",
           "--until-idle", "4s", "--backoff", "10ms");
    check_starts(2);
    assert_false(file_exists("effect"));
    folder_leave(&here);
}

/* Each waits for all four to have one; then more come, and no more are started. */
static void each_worker_has_a_command(void **state)
{
    (void)state;
    folder here;
    enter(&here, "for line in sys.stdin:\n"
                 "    m = json.loads(line)\n"
                 "    open('in-%d' % os.getpid(), 'w')\n"
                 "    while len([f for f in os.listdir('.') if f.startswith('in-')]) < 4:\n"
                 "        time.sleep(0.01)\n"
                 "    open('seen', 'a').write('%s\\n' % m['id'])\n"
                 "    say(m, 'ok', send=[{'type': 'urn:message:a:b', 'body': 1}])\n"
                 "open('ended-%d' % os.getpid(), 'w')\n");
    for (int i = 0; i < 40; i++)
        expect(0, NULL, "", "send", "--store", STORE, TYPE, "1");
    expect(0, "40 handled, 0 failed", "", RECEIVE, "--exec", PYTHON, "--workers", "4",
           "--until-idle", "500ms", "--timeout", "20s");
    check_starts(4);
    char *seen = read_file("seen");
    assert_int_equal(strlen(seen), 40 * 37);
    free(seen);
    assert_int_equal(system("[ $(ls ended-* | wc -l) = 4 ]"), 0); /* by the end of their input */
    assert_int_equal(number_of("a.db", MARKS), 40);
    assert_int_equal(number_of("a.db", "SELECT count(*) FROM postroom_outbox"), 80);
    folder_leave(&here);
}

static void bodies_come_as_they_are(void **state)
{
    (void)state;
    folder here;
    enter(&here,
          "for line in sys.stdin:\n"
          "    m = json.loads(line)\n"
          "    kept = {k: v for k, v in m.items() if k.startswith('body') or k == 'headers'}\n"
          "    open('seen', 'a').write(json.dumps(kept) + '\\n')\n"
          "    say(m, 'ok')\n");
    write_file("spaced", "{\r\n  \"a\": [1.50,\n 12345678901]\n}\n");
    write_file("bytes", "\xFF\x01");
    expect(0, NULL, "", "send", "--store", STORE, TYPE, "--file", "spaced", "--key", "k",
           "--header", "h=1");
    expect(0, NULL, "", "send", "--store", STORE, TYPE, "--file", "bytes", "--key", "k");
    send("no JSON\n\"at all\"");
    expect(0, NULL, "", "send", "--store", STORE, TYPE, "12", "--content-type", "text/plain",
           "--key", "k");
    send("{\"n\":123456789012345678901234567890}");
    expect(0, "5 handled", "", RECEIVE, "--exec", PYTHON, "--until-idle", "300ms");
    char *seen = read_file("seen");
    assert_string_equal(seen,
                        "{\"headers\": {\"h\": \"1\"}, \"body\": {\"a\": [1.5, 12345678901]}}\n"
                        "{\"body_base64\": \"/wE=\"}\n"
                        "{\"body_text\": \"no JSON\\n\\\"at all\\\"\"}\n"
                        "{\"body_text\": \"12\"}\n"
                        "{\"body\": {\"n\": 123456789012345678901234567890}}\n");
    free(seen);
    folder_leave(&here);
}

static void what_it_sends_is_committed_with_the_mark(void **state)
{
    (void)state;
    folder here;
    enter(&here, "for line in sys.stdin:\n"
                 "    m = json.loads(line)\n"
                 "    good = {'type': 'urn:message:billing:written', 'body': {'n': m['body']}}\n"
                 "    say(m, 'ok', send=[good] if m['body'] == 1 else [good, {'type': 'bad'}])\n");
    send("1");
    expect(0, NULL, "", "send", "--store", STORE, TYPE, "2");
    expect(0, "1 handled, 1 failed", "", RECEIVE, "--exec", PYTHON, "--until-idle", "300ms",
           "--backoff", "10m");
    assert_int_equal(number_of("a.db", "SELECT count(*) FROM postroom_outbox WHERE "
                                       "type = 'urn:message:billing:written' AND "
                                       "CAST(body AS TEXT) = '{\"n\":1}' AND source = 'billing'"),
                     1);
    assert_int_equal(number_of("a.db", "SELECT count(*) FROM postroom_outbox"), 3);
    assert_int_equal(number_of("a.db", PARKED " WHERE last_error LIKE 'message 2 of the command%'"),
                     1);
    folder_leave(&here);
}

static void a_stop_in_mid_message_charges_nothing(void **state)
{
    (void)state;
    folder here;
    result r;
    enter(&here, "for line in sys.stdin:\n"
                 "    m = json.loads(line)\n"
                 "    if starts == 1:\n"
                 "        open('begun', 'w')\n"
                 "        time.sleep(60)\n"
                 "    say(m, 'ok' if m['attempt'] == 1 else 'permanent')\n");
    send("1");
    pid_t pid = start(NULL, RECEIVE, "--exec", PYTHON, "--grace", "100ms", "--kill-after", "2s");
    wait_file("begun");
    kill(pid, SIGTERM);
    finish_program(pid, &r);
    check_result(&r, 0, "0 handled, 0 failed, 0 dead", NULL, "stopped");
    result_done(&r);
    expect(0, "1 handled, 0 failed", "", RECEIVE, "--exec", PYTHON, "--until-idle", "1s");
    check_starts(2);
    folder_leave(&here);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_process_handles_many),
        cmocka_unit_test(verdicts_are_followed),
        cmocka_unit_test(a_command_out_of_step_is_started_anew),
        cmocka_unit_test(what_it_does_between_messages_harms_none),
        cmocka_unit_test(a_message_is_read_before_its_verdict),
        cmocka_unit_test(a_command_ends_with_its_shell),
        cmocka_unit_test(each_worker_has_a_command),
        cmocka_unit_test(bodies_come_as_they_are),
        cmocka_unit_test(what_it_sends_is_committed_with_the_mark),
        cmocka_unit_test(a_stop_in_mid_message_charges_nothing),
    };
    return RUN_TESTS(tests);
}
