/*
 * `postroom migrate` and `postroom send`: what goes in stands in the database, byte by byte; what
 * is wrong is told by its line, and the lines before it are committed.
 */
#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "program.h"

#define COUNT "SELECT count(*) FROM postroom_outbox"

static void made(folder *here)
{
    folder_enter(here);
    expect(0, "made, schema version", "", "migrate", "--store", "a.db");
    setenv("POSTROOM_STORE", "a.db", 1);
}

static void migrate_repeats_and_prints(void **state)
{
    (void)state;
    folder here;
    folder_enter(&here);
    expect(0, "CREATE TABLE postroom_outbox", "", "migrate", "--print", "--store", "a.db");
    assert_false(file_exists("a.db"));
    expect(0, "\"statements\":[", "", "migrate", "--print", "--json", "--store", "a.db");
    expect(0, "made", "", "migrate", "--store", "a.db", "--lanes", "4", "--order", "halt",
           "--default-transport", "billing");
    assert_int_equal(number_of("a.db", "SELECT value FROM postroom_setting WHERE name = 'lanes'"),
                     4);
    assert_int_equal(number_of("a.db", "SELECT order_policy = 'halt' FROM postroom_subscription"),
                     1);
    expect(0, "already", "", "migrate", "--store", "a.db");
    expect(0, "\"version_before\":", "", "migrate", "--store", "a.db", "--json");
    expect(0, "", "", "migrate", "--print", "--store", "a.db");
    /* what --print gives is what migrate does */
    result r;
    run(&r, "migrate", "--print", "--store", "b.db");
    change("b.db", r.out);
    result_done(&r);
    expect(0, "already", "", "migrate", "--store", "b.db");
    expect(0, "pending", "", "status", "--store", "b.db");
    expect(1, "", "look at the path", "migrate", "--store", "no/such/folder/a.db");
    folder_leave(&here);
}

static void one_message(void **state)
{
    (void)state;
    folder here;
    result r;
    made(&here);
    run(&r, "send", "urn:message:shop:order-placed", "{\"order\": 1}", "--key", "c-1", "--version",
        "2", "--header", "a=1", "--header", "b=x=y", "--tenant", "t", "--source", "s",
        "--correlation-id", "cor", "--causation-id", "cau", "--destination", "database://in/x",
        "--id", "01a22d1f-1ccc-7ba9-89b4-d7b94c7fb226", "--occurred-at", "2026-01-31T12:00:00.5Z",
        "--expires-in", "1h");
    check_result(&r, 0, "01a22d1f-1ccc-7ba9-89b4-d7b94c7fb226\n", "", "one message");
    result_done(&r);
    assert_int_equal(
        number_of(
            "a.db",
            "SELECT count(*) FROM postroom_outbox WHERE message_id = "
            "'01a22d1f-1ccc-7ba9-89b4-d7b94c7fb226' AND type = 'urn:message:shop:order-placed'"
            " AND type_version = 2 AND key = 'c-1' AND tenant = 't' AND source = 's' AND "
            "correlation_id = 'cor' AND causation_id = 'cau' AND destination = "
            "'database://in/x' AND content_type = 'application/json' AND body = "
            "CAST('{\"order\": 1}' AS BLOB) AND json_extract(headers, '$.a') = '1' AND "
            "json_extract(headers, '$.b') = 'x=y' AND occurred_at = 1769860800500000 AND "
            "expires_at > 1769860800500000"),
        1);
    expect(0, "\"message_id\":\"", "", "send", "urn:message:a:b", "{}", "--json");
    folder_leave(&here);
}

static void bodies_from_everywhere(void **state)
{
    (void)state;
    static const char bytes[] = "\0\xff\r\n\0";
    folder here;
    result r;
    made(&here);
    run_program(&r, bytes, sizeof(bytes) - 1,
                (const char *const[]){"send", "urn:message:a:b", NULL});
    check_result(&r, 0, NULL, "", "bytes");
    result_done(&r);
    assert_int_equal(number_of("a.db", COUNT " WHERE body = X'00FF0D0A00' AND content_type = "
                                             "'application/octet-stream'"),
                     1);
    run_input(&r, "plain text\n", "send", "urn:message:a:b", "--file", "-");
    check_result(&r, 0, NULL, "", "text");
    result_done(&r);
    assert_int_equal(number_of("a.db", COUNT " WHERE CAST(body AS TEXT) = 'plain text' || char(10) "
                                             "AND content_type LIKE 'text/plain%'"),
                     1);
    expect(0, NULL, "", "send", "urn:message:a:b", "");
    expect(0, NULL, "", "send", "urn:message:a:b"); /* empty input */
    assert_int_equal(number_of("a.db", COUNT " WHERE length(body) = 0"), 2);
    write_file("body.json", "[1,2]");
    expect(0, NULL, "", "send", "urn:message:a:b", "--file", "body.json", "--content-type", "x/y");
    assert_int_equal(number_of("a.db", COUNT " WHERE content_type = 'x/y'"), 1);
    expect(0, NULL, "", "send", "urn:message:a:b", "--", "-dash");
    assert_int_equal(number_of("a.db", COUNT " WHERE CAST(body AS TEXT) = '-dash'"), 1);
    expect(3, "", "cannot open", "send", "urn:message:a:b", "--file", "nowhere");
    folder_leave(&here);
}

static void what_is_refused_leaves_nothing(void **state)
{
    (void)state;
    char *large = malloc(1024 * 1024 + 2);
    char key[300];
    folder here;
    made(&here);
    memset(key, 'k', sizeof(key) - 1);
    key[sizeof(key) - 1] = '\0';
    memset(large, 'x', 1024 * 1024 + 1);
    large[1024 * 1024 + 1] = '\0';
    write_file("large", large);
    free(large);
    expect(1, "", "type", "send", "order-placed", "{}");
    expect(1, "", "key", "send", "urn:message:a:b", "{}", "--key", key);
    expect(1, "", "key", "send", "urn:message:a:b", "{}", "--key", "");
    expect(1, "", "key", "send", "urn:message:a:b", "{}", "--key", "\xff\xfe");
    expect(1, "", "id", "send", "urn:message:a:b", "{}", "--id", "x");
    expect(1, "", "id", "send", "urn:message:a:b", "{}", "--id",
           "00000000-0000-0000-0000-000000000000");
    expect(1, "", "transport", "send", "urn:message:a:b", "{}", "--destination", "nowhere");
    expect(1, "", "begins with '{' but is no JSON", "send", "urn:message:a:b", "{order: 1}");
    expect(1, "", "1048576", "send", "urn:message:a:b", "--file", "large");
    expect(2, "", "must be 1 to 67108864", "send", "urn:message:a:b", "{}", "--body-max", "65MiB");
    assert_int_equal(number_of("a.db", COUNT), 0);
    expect(0, NULL, "", "send", "urn:message:a:c", "{{name}}", "--content-type", "text/plain");
    assert_int_equal(number_of("a.db", COUNT), 1);
    expect(0, NULL, "", "send", "urn:message:a:b", "--file", "large", "--body-max", "2MiB");
    assert_int_equal(number_of("a.db", "SELECT max(length(body)) FROM postroom_outbox"),
                     1024 * 1024 + 1);
    folder_leave(&here);
}

typedef struct line_case {
    const char *label;
    const char *text;
    size_t size; /* 0 = strlen */
    int code;
    int64_t committed;
    const char *err;
} line_case;

#define GOOD "{\"type\":\"urn:message:a:b\",\"body\":1}\n"

static const line_case line_cases[] = {
    {"nothing", "", 0, 0, 0, ""},
    {"empty lines", "\n\r\n  \n", 0, 0, 0, ""},
    {"no last newline", "{\"type\":\"urn:message:a:b\",\"body\":1}", 0, 0, 1, ""},
    {"crlf", "{\"type\":\"urn:message:a:b\",\"body\":1}\r\n" GOOD, 0, 0, 2, ""},
    {"byte order mark", "\xEF\xBB\xBF" GOOD, 0, 0, 1, ""},
    {"bad json first", "{\"type\":\n" GOOD, 0, 1, 0, "line 1: bad JSON"},
    {"bad json later", GOOD GOOD "\n{x\n" GOOD, 0, 5, 2, "line 4: bad JSON"},
    {"no object", GOOD "[1]\n", 0, 5, 1, "line 2: it is no JSON object"},
    {"nul", GOOD "{\"type\":\"urn:message:a:b\",\0\"body\":1}\n", sizeof(GOOD) + 36, 5, 1,
     "line 2: a NUL byte stands at column 27"},
    {"unknown field", GOOD "{\"type\":\"urn:message:a:b\",\"bodyy\":1}", 0, 5, 1,
     "line 2: unknown field \"bodyy\"; did you mean \"body\"?"},
    {"no type", GOOD "{\"body\":1}", 0, 5, 1, "line 2: \"type\" is missing"},
    {"no body", GOOD "{\"type\":\"urn:message:a:b\"}", 0, 5, 1, "line 2: a body is missing"},
    {"two bodies", GOOD "{\"type\":\"urn:message:a:b\",\"body\":1,\"body_text\":\"\"}", 0, 5, 1,
     "a second body"},
    {"twice a field", GOOD "{\"type\":\"urn:message:a:b\",\"body\":1,\"body\":2}", 0, 5, 1,
     "line 2: bad JSON"},
    {"bad type", GOOD "{\"type\":\"a\",\"body\":1}", 0, 5, 1, "line 2: "},
    {"bad base64", GOOD "{\"type\":\"urn:message:a:b\",\"body_base64\":\"?\"}", 0, 5, 1,
     "is not base64"},
    {"bad version", GOOD "{\"type\":\"urn:message:a:b\",\"body\":1,\"version\":0}", 0, 5, 1,
     "\"version\" must be"},
    {"bad delay", GOOD "{\"type\":\"urn:message:a:b\",\"body\":1,\"delay\":\"x\"}", 0, 5, 1,
     "\"delay\" must be a duration"},
    {"bad instant", GOOD "{\"type\":\"urn:message:a:b\",\"body\":1,\"expires_at\":\"x\"}", 0, 5, 1,
     "\"expires_at\" must be an instant"},
    {"key is no text", GOOD "{\"type\":\"urn:message:a:b\",\"body\":1,\"key\":1}", 0, 5, 1,
     "\"key\" must be a string"},
    {"nul in a key", GOOD "{\"type\":\"urn:message:a:b\",\"body\":1,\"key\":\"a\\u0000\"}", 0, 5, 1,
     "\"key\" has a NUL"},
    {"headers are no object", GOOD "{\"type\":\"urn:message:a:b\",\"body\":1,\"headers\":[]}", 0, 5,
     1, "\"headers\" must be an object"},
    {"deep",
     GOOD "{\"type\":\"urn:message:a:b\",\"body\":"
          "[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[1]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]}",
     0, 5, 1, "nested deeper"},
    {"one id, two contents",
     GOOD
     "{\"type\":\"urn:message:a:b\",\"body\":1,\"id\":\"01a22d1f-1ccc-7ba9-89b4-d7b94c7fb226\"}\n"
     "{\"type\":\"urn:message:a:b\",\"body\":2,\"id\":\"01a22d1f-1ccc-7ba9-89b4-d7b94c7fb226\"}\n",
     0, 5, 2, "line 3: "},
    {"not utf-8", GOOD "{\"type\":\"urn:message:a:b\",\"body\":\"\xff\"}", 0, 5, 1,
     "line 2: bad JSON"},
};

static void lines_one_by_one(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(line_cases); i++) {
        const line_case *of = &line_cases[i];
        folder here;
        result r;
        made(&here);
        run_program(&r, of->text, of->size ? of->size : strlen(of->text),
                    (const char *const[]){"send", "--lines", NULL});
        check_result(&r, of->code, NULL, of->err, of->label);
        if (of->code == 5 && !strstr(r.err, "--from-line"))
            fail_msg("%s: does not say how to go on: %s", of->label, r.err);
        if (number_of("a.db", COUNT) != of->committed)
            fail_msg("%s: %lld committed", of->label, (long long)number_of("a.db", COUNT));
        result_done(&r);
        folder_leave(&here);
    }
}

static void a_line_says_everything(void **state)
{
    (void)state;
    folder here;
    result r;
    made(&here);
    run_input(&r,
              "{\"type\":\"urn:message:a:b\",\"version\":3,\"body\":{\"z\":0.1,\"a\":[true,null,"
              "\"\\u00e9\\n\"],\"n\":9007199254740993},\"key\":\"k\",\"destination\":"
              "\"database://in/x\",\"headers\":{\"h\":\"v\"},\"tenant\":\"t\",\"source\":\"s\","
              "\"correlation_id\":\"c\",\"causation_id\":\"d\",\"occurred_at\":"
              "\"2026-01-31T12:00:00Z\",\"expires_in\":\"1h\",\"content_type\":null}\n"
              "{\"body_text\":\"  {\\\"as\\\": 1.0 } \",\"content_type\":\"application/json\"}\n"
              "{\"body_base64\":\"AP8=\"}\n",
              "send", "--lines", "urn:message:c:d", "--key", "default");
    check_result(&r, 0, "3 messages committed", "", "lines");
    result_done(&r);
    assert_int_equal(
        number_of("a.db",
                  COUNT " WHERE type = 'urn:message:a:b' AND type_version = 3 AND key = 'k' AND "
                        "destination = 'database://in/x' AND tenant = 't' AND source = 's' AND "
                        "correlation_id = 'c' AND causation_id = 'd' AND headers = "
                        "'{\"h\":\"v\"}' AND occurred_at = 1769860800000000 AND expires_at > 0 AND "
                        "content_type = 'application/json' AND CAST(body AS TEXT) = "
                        "'{\"z\":0.1,\"a\":[true,null,\"\xC3\xA9\\n\"],\"n\":9007199254740993}'"),
        1);
    assert_int_equal(number_of("a.db", COUNT " WHERE type = 'urn:message:c:d' AND key = 'default' "
                                             "AND CAST(body AS TEXT) = '  {\"as\": 1.0 } '"),
                     1);
    assert_int_equal(number_of("a.db", COUNT " WHERE body = X'00FF' AND content_type = "
                                             "'application/octet-stream'"),
                     1);
    folder_leave(&here);
}

/* 100,000 lines with a bad one near the end, then the rest from there. */
static void many_lines_and_on_from_a_bad_one(void **state)
{
    (void)state;
    enum { LINES = 100000, BAD = 95001 };
    folder here;
    result r;
    made(&here);
    FILE *file = fopen("lines", "wbe");
    for (int i = 1; i <= LINES; i++)
        fprintf(file,
                i == BAD ? "{\"type\":\"urn:message:a:b\",\"body\":%d\n"
                         : "{\"type\":\"urn:message:a:b\",\"body\":%d}\n",
                i);
    fclose(file);
    run(&r, "send", "--lines", "--file", "lines");
    check_result(&r, 5, "", "lines, line 95001: bad JSON", "a bad line");
    assert_non_null(strstr(r.err, "95000 messages were committed"));
    result_done(&r);
    assert_int_equal(number_of("a.db", COUNT), BAD - 1);
    assert_int_equal(number_of("a.db", "SELECT max(CAST(CAST(body AS TEXT) AS INTEGER)) FROM "
                                       "postroom_outbox"),
                     BAD - 1);
    run(&r, "send", "--lines", "--file", "lines", "--from-line", "95002", "--json");
    check_result(&r, 0, "\"committed\":4999", "", "the rest");
    result_done(&r);
    assert_int_equal(number_of("a.db", COUNT), LINES - 1);
    folder_leave(&here);
}

static void a_line_that_is_too_long(void **state)
{
    (void)state;
    folder here;
    result r;
    made(&here);
    FILE *file = fopen("lines", "wbe");
    fputs(GOOD, file);
    for (int i = 0; i < 1000000; i++)
        fputs("xxxxxxxx", file);
    fputs("\n" GOOD, file);
    fclose(file);
    run(&r, "send", "--lines", "--file", "lines");
    check_result(&r, 5, "", "lines, line 2: it is longer than", "too long");
    result_done(&r);
    assert_int_equal(number_of("a.db", COUNT), 1);
    folder_leave(&here);
}

/* What came is committed while the writer of the pipe makes up its mind; nobody is locked out. */
static void a_slow_pipe_holds_nothing_up(void **state)
{
    (void)state;
    folder here;
    result r;
    int input;
    made(&here);
    pid_t pid = start(&input, "send", "--lines");
    assert_int_equal(write(input, GOOD GOOD, sizeof(GOOD) * 2 - 2), sizeof(GOOD) * 2 - 2);
    wait_number("a.db", COUNT, 2);
    expect(0, NULL, "", "send", "urn:message:a:b", "{}", "--busy", "1ms");
    /* both wrote to the same files: only the exit code of the sender is looked at */
    assert_int_equal(write(input, GOOD, sizeof(GOOD) - 1), sizeof(GOOD) - 1);
    close(input);
    finish_program(pid, &r);
    assert_int_equal(r.code, 0);
    result_done(&r);
    assert_int_equal(number_of("a.db", COUNT), 4);
    folder_leave(&here);
}

static void a_signal_stops_it_between_transactions(void **state)
{
    (void)state;
    folder here;
    result r;
    int input;
    made(&here);
    pid_t pid = start(&input, "send", "--lines");
    assert_int_equal(write(input, GOOD GOOD, sizeof(GOOD) * 2 - 2), sizeof(GOOD) * 2 - 2);
    wait_number("a.db", COUNT, 2);
    kill(pid, SIGTERM);
    finish_program(pid, &r);
    check_result(&r, 5, "", "stopped by a signal; 2 messages were committed", "SIGTERM");
    close(input);
    result_done(&r);
    folder_leave(&here);
}

static void others_hold_the_lock(void **state)
{
    (void)state;
    folder here;
    result r;
    made(&here);
    FILE *holder = popen("sqlite3 a.db >/dev/null 2>&1", "we");
    assert_non_null(holder);
    fputs("BEGIN IMMEDIATE;\n.shell touch held\n", holder);
    fflush(holder);
    for (int64_t until = now_ms() + DEADLINE_MS; !file_exists("held") && now_ms() < until;)
        sleep_a_little();
    run(&r, "send", "urn:message:a:b", "{}", "--busy", "50ms");
    check_result(&r, 1, "", "another writer holds the database", "busy");
    result_done(&r);
    expect(0, "pending", "", "status"); /* reading goes on */
    fputs("ROLLBACK;\n.quit\n", holder);
    pclose(holder);
    assert_int_equal(number_of("a.db", COUNT), 0);
    expect(0, NULL, "", "send", "urn:message:a:b", "{}");
    folder_leave(&here);
}

/* A disk of 2 MiB and a disk that cannot be written, in a mount namespace of their own. */
static void full_and_read_only_disks(void **state)
{
    (void)state;
    folder here;
    if (system("unshare -rm true 2>/dev/null") != 0) {
        print_message("# SKIP expected: no namespaces here\n");
        return;
    }
    folder_enter(&here);
    FILE *file = fopen("lines", "wbe");
    for (int i = 0; i < 20000; i++)
        fprintf(file, "{\"type\":\"urn:message:a:b\",\"body_text\":\"%0200d\"}\n", i);
    fclose(file);
    write_file("script",
               "mkdir disk && mount -t tmpfs -o size=2m none disk || exit 90\n"
               "P=$POSTROOM_PROGRAM\n"
               "$P migrate --store disk/a.db >out || exit 91\n"
               "$P send --lines --file lines --batch 100 --store disk/a.db >out 2>err\n"
               "test $? = 5 || exit 92\n"
               "grep -q 'full' err || exit 93\n"
               "said=$(sed 's/.*; \\([0-9]*\\) messages were committed.*/\\1/' err)\n"
               "mount -o remount,size=64m disk || exit 94\n"
               "test \"$(sqlite3 disk/a.db 'SELECT count(*) FROM postroom_outbox')\" = \"$said\" ||"
               " exit 95\n"
               "next=$(sed 's/.*--from-line \\([0-9]*\\).*/\\1/' err)\n"
               "$P send --lines --file lines --from-line $next --store disk/a.db >out || exit 96\n"
               "test \"$(sqlite3 disk/a.db 'SELECT count(DISTINCT CAST(body AS TEXT)) || \" \" || "
               "count(*) FROM postroom_outbox')\" = '20000 20000' || exit 97\n"
               "mount -o remount,ro disk || exit 98\n"
               "$P send urn:message:a:b x --store disk/a.db >out 2>err\n"
               "test $? = 1 || exit 99\n"
               "grep -q -i 'read-\\?only' err || exit 100\n"
               "exit 0\n");
    int how = system("unshare -rm sh ./script");
    if (!WIFEXITED(how) || WEXITSTATUS(how) != 0)
        fail_msg("step %d: %s", WEXITSTATUS(how), read_file("err"));
    folder_leave(&here);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(migrate_repeats_and_prints),
        cmocka_unit_test(one_message),
        cmocka_unit_test(bodies_from_everywhere),
        cmocka_unit_test(what_is_refused_leaves_nothing),
        cmocka_unit_test(lines_one_by_one),
        cmocka_unit_test(a_line_says_everything),
        cmocka_unit_test(many_lines_and_on_from_a_bad_one),
        cmocka_unit_test(a_line_that_is_too_long),
        cmocka_unit_test(a_slow_pipe_holds_nothing_up),
        cmocka_unit_test(a_signal_stops_it_between_transactions),
        cmocka_unit_test(others_hold_the_lock),
        cmocka_unit_test(full_and_read_only_disks),
    };
    return RUN_TESTS(tests);
}
