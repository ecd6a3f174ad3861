/*
 * How every subcommand answers what is wrong: usage, missing stores, outputs that fail.
 */
#include <fcntl.h>
#include <unistd.h>

#include "program.h"

/* Everything that reads or writes a store, as it would be called. */
static const char *const calls[][8] = {
    {"send", "urn:message:shop:a", "{}"},
    {"send", "--lines"},
    {"relay", "--to", "sqlite:to.db"},
    {"status"},
    {"outbox", "list"},
    {"outbox", "show", "01a22d1f-1ccc-7ba9-89b4-d7b94c7fb226"},
    {"dead", "list"},
    {"dead", "show", "01a22d1f-1ccc-7ba9-89b4-d7b94c7fb226"},
    {"dead", "redrive", "01a22d1f-1ccc-7ba9-89b4-d7b94c7fb226", "--reason", "test"},
    {"dead", "discard", "01a22d1f-1ccc-7ba9-89b4-d7b94c7fb226", "--reason", "test"},
    {"explain", "01a22d1f-1ccc-7ba9-89b4-d7b94c7fb226"},
    {"cancel", "01a22d1f-1ccc-7ba9-89b4-d7b94c7fb226", "--reason", "test"},
};

/* The call with --store PATH; without when path is NULL. */
static void with_store(const char *const *call, const char *path, const char *more,
                       const char *ret[16])
{
    size_t count = 0;
    for (; count < 8 && call[count]; count++)
        ret[count] = call[count];
    if (path) {
        ret[count++] = "--store";
        ret[count++] = path;
    }
    if (more)
        ret[count++] = more;
    ret[count] = NULL;
}

static void a_store_must_be_named(void **state)
{
    (void)state;
    folder here;
    folder_enter(&here);
    for (size_t i = 0; i < COUNT_OF(calls); i++) {
        const char *call[16];
        with_store(calls[i], NULL, NULL, call);
        expect_program(2, "", "POSTROOM_STORE", calls[i][0], call);
    }
    expect(2, "", "use --store sqlite:PATH", "migrate");
    folder_leave(&here);
}

static void a_missing_store_is_never_made(void **state)
{
    (void)state;
    folder here;
    folder_enter(&here);
    for (size_t i = 0; i < COUNT_OF(calls); i++) {
        const char *call[16];
        with_store(calls[i], "sqlite:missing.db", NULL, call);
        expect_program(3, "", "postroom migrate --store sqlite:missing.db", calls[i][0], call);
        with_store(calls[i], "missing.db", "--json", call);
        expect_program(3, "", "\"status\":\"not-found\"", calls[i][0], call);
        assert_false(file_exists("missing.db"));
    }
    folder_leave(&here);
}

static void a_store_from_the_environment(void **state)
{
    (void)state;
    folder here;
    folder_enter(&here);
    setenv("POSTROOM_STORE", "sqlite:here.db", 1);
    expect(0, "made, schema version", "", "migrate");
    expect(0, "pending", "", "status");
    setenv("POSTROOM_STORE", "", 1);
    expect(2, "", "no store is named", "status");
    unsetenv("POSTROOM_STORE");
    folder_leave(&here);
}

static void what_is_no_store_is_refused(void **state)
{
    (void)state;
    folder here;
    folder_enter(&here);
    write_file("text.db",
               "this is a text and no database, long enough to be read as a header of it; "
               "this is a text and no database, long enough to be read as a header of it");
    write_file("empty.db", "");
    change("other.db", "CREATE TABLE t (x)");
    for (size_t i = 0; i < COUNT_OF(calls); i++) {
        const char *call[16];
        with_store(calls[i], "text.db", NULL, call);
        expect_program(1, "", "not a database", calls[i][0], call);
        with_store(calls[i], "empty.db", NULL, call);
        expect_program(4, "", "migrate", calls[i][0], call);
        with_store(calls[i], "other.db", NULL, call);
        expect_program(4, "", "migrate", calls[i][0], call);
        with_store(calls[i], "mysql://user:secret@host/db", NULL, call);
        expect_program(2, "", "not built in", calls[i][0], call);
    }
    expect(1, "", "not a database", "migrate", "--store", "text.db");
    expect(2, "", "a broker is no store; name it amqp://HOST, with --to or --from", "status",
           "--store", "amqp://u:secret@h");
    expect(2, "", "a broker is no store", "migrate", "--store", "rabbitmq://h");
    expect(2, "", "has no path", "status", "--store", "sqlite:");
    result r;
    static const char *const secretive[] = {
        "mysql://user:secret@host/db", "postgresql://user:secret@127.0.0.1:1/db",
        "host=127.0.0.1 port=1 user=user password=secret", "postgresql://user:secret@[/"};
    for (size_t i = 0; i < COUNT_OF(secretive); i++) {
        run(&r, "status", "--store", secretive[i]);
        assert_true(r.code == 1 || r.code == 2);
        if (strstr(r.err, "secret") || strstr(r.out, "secret"))
            fail_msg("%s: shown: %s", secretive[i], r.err);
        result_done(&r);
    }
    expect(2, "", "are for PostgreSQL", "status", "--store", "a.db", "--pooler");
    expect(2, "", "are for PostgreSQL", "status", "--store", "a.db", "--schema", "x");
    folder_leave(&here);
}

/* The name of another database is no file's name: nothing is made, and the kind is told. */
static void an_unknown_kind_of_store_is_named(void **state)
{
    static const struct {
        const char *store, *text;
    } cases[] = {
        {"mysql:shop", "'mysql'"},
        {"mysql://h/shop", "'mysql'"},
        {"file:shop.db", "'file'"},
        {"POSTGRESQL://h/shop", "'POSTGRESQL'"},
        {"postgresql+psycopg2:x", "'postgresql+psycopg2'"},
    };
    (void)state;
    folder here;
    folder_enter(&here);
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        expect(2, "", cases[i].text, "migrate", "--store", cases[i].store);
        expect(2, "", cases[i].text, "status", "--store", cases[i].store);
        assert_false(file_exists(cases[i].store));
    }
    expect(0, "made", "", "migrate", "--store", "a.db");
    expect(2, "", "'mysql'", "relay", "--once", "--store", "a.db", "--to", "mysql:shop");
    expect(2, "", "'mysql'", "relay", "--once", "--store", "a.db", "--to", "billing=mysql:shop");
    expect(0, "made", "", "migrate", "--store", "./mysql:shop"); /* a file of that name */
    expect(0, "schema version", "", "status", "--store", "sqlite:mysql:shop");
    folder_leave(&here);
}

static void wrong_usage_is_told(void **state)
{
    (void)state;
    folder here;
    folder_enter(&here);
    expect(0, "made", "", "migrate", "--store", "a.db");
    expect(2, "", "a command is missing", NULL);
    expect(2, "", "did you mean 'send'", "sned");
    expect(2, "", "did you mean 'outbox list'", "outbox", "lst");
    expect(2, "", "needs a second word", "dead");
    expect(2, "", "unknown command 'dead xyzzy'", "dead", "xyzzy");
    expect(2, "", "the command comes first", "--store", "a.db", "status");
    expect(2, "", "did you mean '--store'", "status", "--stor", "a.db");
    expect(2, "", "unknown option '--xyzzy'", "status", "--xyzzy");
    expect(2, "", "--store needs a value", "status", "--store");
    expect(2, "", "--json takes no value", "status", "--json=yes");
    expect(2, "", "put -- before", "send", "urn:message:a:b", "-x", "--store", "a.db");
    expect(2, "", "'a.db' is an argument too many: postroom status\n", "status", "a.db");
    expect(2, "", "'b' is an argument too many", "explain", "a", "b", "--store", "a.db");
    expect(2, "", "an argument is missing", "explain", "--store", "a.db");
    expect(2, "", "must be a whole number", "outbox", "list", "--limit", "ten");
    expect(2, "", "must be 1 to 1000", "outbox", "list", "--limit", "0");
    expect(2, "", "must be 1 to 1000", "dead", "list", "--limit", "1001");
    expect(2, "", "must be one of", "outbox", "list", "--state", "lost");
    expect(2, "", "must be a duration", "relay", "--lease", "soon");
    expect(2, "", "at least 1ms", "relay", "--lease", "0s");
    expect(2, "", "must be a number >= 0", "relay", "--rate", "-1");
    expect(2, "", "must be an instant", "send", "x", "--deliver-at", "tomorrow");
    expect(2, "", "must be a size", "send", "x", "--body-max", "big");
    expect(2, "", "add --to", "relay", "--store", "a.db");
    expect(2, "", "a type is missing", "send", "--store", "a.db");
    expect(2, "", "--lines takes no BODY", "send", "--lines", "a", "b", "--store", "a.db");
    expect(2, "", "give one of them", "send", "urn:message:a:b", "b", "--file", "f", "--store",
           "a.db");
    expect(2, "", "give one of them", "send", "urn:message:a:b", "b", "--delay", "1s",
           "--deliver-at", "2026-01-31T12:00:00Z", "--store", "a.db");
    expect(2, "", "NAME=VALUE", "send", "urn:message:a:b", "b", "--header", "x", "--store", "a.db");
    expect(2, "", "add --reason", "cancel", "x", "--store", "a.db");
    expect(2, "", "add --reason", "dead", "discard", "x", "--store", "a.db");
    expect(2, "", "add --reason", "dead", "redrive", "x", "--store", "a.db");
    expect(2, "", "an ID and a filter", "dead", "redrive", "x", "--type", "y", "--reason", "r",
           "--store", "a.db");
    expect(2, "", "is of the inbox", "dead", "list", "--consumer", "x", "--box", "outbox",
           "--store", "a.db");
    expect(2, "", "power of two", "migrate", "--store", "b.db", "--lanes", "3");
    expect(2, "", "must be one of hold, skip, halt", "migrate", "--store", "b.db", "--order", "x");
    expect(2, "", "no other option", "demo", "--check", "x", "--quick");
    expect(2, "", "must be 100 to", "demo", "--orders", "1");
    expect(3, "", "postroom demo", "demo", "--check", "nowhere");
    folder_leave(&here);
}

static void errors_are_json_when_asked(void **state)
{
    (void)state;
    folder here;
    result r;
    json_error_t where;
    folder_enter(&here);
    run(&r, "status", "--stor", "x", "--json");
    assert_int_equal(r.code, 2);
    json_t *root = json_loads(r.err, 0, &where);
    assert_non_null(root);
    json_t *error = json_object_get(root, "error");
    assert_string_equal(json_string_value(json_object_get(error, "command")), "status");
    assert_string_equal(json_string_value(json_object_get(error, "status")), "invalid");
    assert_int_equal(json_integer_value(json_object_get(error, "exit")), 2);
    assert_non_null(strstr(json_string_value(json_object_get(error, "message")), "--store"));
    json_decref(root);
    result_done(&r);
    folder_leave(&here);
}

static void help_is_everywhere(void **state)
{
    (void)state;
    static const char *const groups[] = {"outbox", "dead"};
    static const char *const names[][2] = {{"demo"},
                                           {"migrate"},
                                           {"send"},
                                           {"relay"},
                                           {"status"},
                                           {"outbox", "list"},
                                           {"outbox", "show"},
                                           {"dead", "list"},
                                           {"dead", "show"},
                                           {"dead", "redrive"},
                                           {"dead", "discard"},
                                           {"explain"},
                                           {"cancel"}};
    folder here;
    folder_enter(&here);
    expect(0, "exit codes: 0 ok, 1 failed", "", "--help");
    expect(0, "exit codes: 0 ok, 1 failed", "", "help");
    expect(0, "postroom 0.1.0", "", "--version");
    for (size_t i = 0; i < COUNT_OF(groups); i++)
        expect(0, "list", "", groups[i], "--help");
    expect(0, "usage: postroom outbox COMMAND [options]", "", "outbox", "--help");
    for (size_t i = 0; i < COUNT_OF(names); i++) {
        expect(0, "--json", "", names[i][0], names[i][1] ? names[i][1] : "--help", "--help");
        expect(0, "usage: postroom ", "", "help", names[i][0], names[i][1] ? names[i][1] : NULL);
    }
    folder_leave(&here);
}

/* `sh -c COMMAND`, with the program as $P. */
static int shell(const char *command)
{
    char line[1024];
    snprintf(line, sizeof(line), "P=$POSTROOM_PROGRAM; %s", command);
    int how = system(line);
    return WIFEXITED(how) ? WEXITSTATUS(how) : 255;
}

static void outputs_that_cannot_be_written(void **state)
{
    (void)state;
    folder here;
    folder_enter(&here);
    expect(0, "made", "", "migrate", "--store", "a.db");
    assert_int_equal(shell("$P status --store a.db >/dev/full 2>err"), 1);
    char *err = read_file("err");
    assert_non_null(strstr(err, "cannot write the output: No space left on device"));
    free(err);
    assert_int_equal(shell("$P status --store a.db --json >/dev/full 2>err"), 1);
    assert_int_equal(shell("$P --help >/dev/full 2>err"), 1);
    assert_int_equal(shell("$P status --store a.db >&- 2>err"), 1);
    /* a reader that goes away: no death by SIGPIPE, no message, no database overwritten */
    assert_int_equal(shell("{ $P status --store a.db 2>err; echo $? >code; } | true; sleep 0; "
                           "while ! test -s code; do sleep 0.01; done"),
                     0);
    assert_int_equal(shell("test \"$(cat code)\" = 0 || test \"$(cat code)\" = 1"), 0);
    assert_int_equal(shell("$P status --store a.db <&- >&- 2>&-"), 1);
    expect(0, "pending", "", "status", "--store", "a.db");
    folder_leave(&here);
}

static void no_locale_and_no_home(void **state)
{
    (void)state;
    folder here;
    folder_enter(&here);
    assert_int_equal(shell("LC_ALL=de_DE.UTF-8 LANG=xx $P migrate --store a.db >out 2>err"), 0);
    assert_int_equal(shell("env -u HOME -u PATH -u TERM LC_ALL=xx $POSTROOM_PROGRAM send "
                           "urn:message:a:b '{\"x\":1.5}' --store a.db >out 2>err"),
                     0);
    assert_int_equal(shell("env -i $P outbox list --store a.db >out 2>err"), 0);
    folder_leave(&here);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_store_must_be_named),
        cmocka_unit_test(a_missing_store_is_never_made),
        cmocka_unit_test(a_store_from_the_environment),
        cmocka_unit_test(what_is_no_store_is_refused),
        cmocka_unit_test(an_unknown_kind_of_store_is_named),
        cmocka_unit_test(wrong_usage_is_told),
        cmocka_unit_test(errors_are_json_when_asked),
        cmocka_unit_test(help_is_everywhere),
        cmocka_unit_test(outputs_that_cannot_be_written),
        cmocka_unit_test(no_locale_and_no_home),
    };
    return RUN_TESTS(tests);
}
