/*
 * The relay as a program, and what an operator sees and does: status, lists, explain, dead letters,
 * cancel.
 */
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <sqlite3.h>

#include "program.h"

#define LOG     "SELECT count(*) FROM postroom_outbox"
#define STATE   "SELECT count(*) FROM postroom_outbox_state WHERE reader = 1 AND state = "
#define BINARY  "0198c5f2-7d3e-7a10-8b2c-00000000000b"
#define UNKNOWN "01a22d1f-1ccc-7ba9-89b4-d7b94c7fb226"

/* from.db and to.db, where an endpoint "billing" is subscribed to a type. */
static void two_stores(folder *here)
{
    folder_enter(here);
    expect(0, "made", "", "migrate", "--store", "from.db");
    expect(0, "made", "", "migrate", "--store", "to.db");
    change("to.db",
           "INSERT INTO postroom_subscription (name, destinations, order_policy, temporary,"
           " start_id, created_at) VALUES ('billing',"
           " '[\"local://in/billing\",\"local://topic/urn:message:shop:order-placed\"]',"
           " 'hold', 0, 0, 0);"
           "INSERT INTO postroom_outbox_claim SELECT (SELECT max(reader) FROM"
           " postroom_subscription), lane, seq, kind, token, owner, pos, low, ids, rest,"
           " suspects, attempt, lease_until, acked, passed, at FROM postroom_outbox_claim"
           " WHERE reader = 1");
    setenv("POSTROOM_STORE", "from.db", 1);
}

static void send_orders(int count)
{
    FILE *file = fopen("lines", "wbe");
    result r;
    for (int i = 0; i < count; i++)
        fprintf(
            file,
            "{\"type\":\"urn:message:shop:order-placed\",\"key\":\"c-%d\",\"body\":{\"n\":%d}}\n",
            i % 7, i);
    fclose(file);
    run(&r, "send", "--lines", "--file", "lines");
    check_result(&r, 0, "committed", "", "send");
    result_done(&r);
}

static void relay_once_twice(void **state)
{
    (void)state;
    folder here;
    two_stores(&here);
    send_orders(1200);
    expect(0, "1200 published", "", "relay", "--once", "--to", "sqlite:to.db");
    assert_int_equal(number_of("to.db", LOG), 1200);
    assert_int_equal(number_of("from.db", STATE "'published'"), 1200);
    expect(0, "0 published", "", "relay", "--once", "--to", "to.db");
    expect(0, "\"published\":0", "", "relay", "--once", "--to", "to.db", "--json");
    assert_int_equal(number_of("to.db", LOG), 1200);
    /* the same bytes, ids and keys on both sides */
    change("from.db",
           "ATTACH 'to.db' AS other; CREATE TABLE same (n); INSERT INTO same SELECT "
           "count(*) FROM main.postroom_outbox JOIN other.postroom_outbox "
           "USING (message_id, type, type_version, key, body, content_type, occurred_at)");
    assert_int_equal(number_of("from.db", "SELECT n FROM same"), 1200);
    folder_leave(&here);
}

static void relay_to_nowhere(void **state)
{
    (void)state;
    folder here;
    two_stores(&here);
    expect(3, "", "there is no store 'sqlite:gone.db'", "relay", "--once", "--to",
           "sqlite:gone.db");
    assert_false(file_exists("gone.db"));
    write_file("empty.db", "");
    expect(4, "", "migrate", "relay", "--once", "--to", "empty.db");
    expect(2, "", "longer than 31 bytes", "relay", "--to",
           "a-name-that-is-far-too-long-for-a-scheme=to.db");
    expect(2, "", "two transports are named", "relay", "--once", "--to", "a=to.db", "--to",
           "a=to.db");
    folder_leave(&here);
}

/* Runs until SIGTERM, settles what it has in hand, says what it did; SIGKILL loses nothing. */
static void relay_runs_and_drains(void **state)
{
    (void)state;
    static const int signals[] = {SIGTERM, SIGINT, SIGKILL};
    for (size_t i = 0; i < COUNT_OF(signals); i++) {
        folder here;
        result r;
        two_stores(&here);
        send_orders(500);
        pid_t pid = start(NULL, "relay", "--to", "sqlite:to.db", "--rate", "1000", "--batch", "50",
                          "--lease", "300ms");
        wait_number("to.db", LOG, 60);
        kill(pid, signals[i]);
        finish_program(pid, &r);
        if (signals[i] == SIGKILL) {
            assert_int_equal(r.code, 128 + SIGKILL);
        } else {
            check_result(&r, 0, " published", "", "stopped");
            /* what was delivered is settled, and nothing is leased any more */
            assert_int_equal(number_of("from.db", STATE "'published'"), number_of("to.db", LOG));
            assert_int_equal(number_of("from.db", STATE "'publishing'"), 0);
        }
        result_done(&r);
        pid = start(NULL, "relay", "--to", "sqlite:to.db");
        wait_number("from.db", STATE "'published'", 500);
        kill(pid, SIGTERM);
        finish_program(pid, &r);
        check_result(&r, 0, " published", "", "the rest");
        result_done(&r);
        assert_int_equal(
            number_of("to.db", "SELECT count(DISTINCT message_id) FROM postroom_outbox"), 500);
        folder_leave(&here);
    }
}

/* The bell's socket stands while a relay runs; what a killed one left is taken over. */
static void relay_listens_on_a_doorbell(void **state)
{
    (void)state;
    folder here;
    result r;
    pid_t pid;
    two_stores(&here);
    setenv("POSTROOM_DOORBELL", "bell", 1);
    for (int i = 0; i < 3; i++) {
        pid = i == 1 ? start(NULL, "relay", "--to", "to.db", "--doorbell", "bell")
                     : start(NULL, "relay", "--to", "to.db");
        for (int64_t until = now_ms() + DEADLINE_MS; !file_exists("bell") && now_ms() < until;)
            sleep_a_little();
        send_orders(10);
        wait_number("from.db", STATE "'published'", (i + 1) * 10);
        assert_true(file_exists("bell"));
        kill(pid, i == 0 ? SIGKILL : SIGTERM);
        finish_program(pid, &r);
        assert_int_equal(r.code, i == 0 ? 128 + SIGKILL : 0);
        result_done(&r);
        assert_int_equal(file_exists("bell"), i == 0);
    }
    unsetenv("POSTROOM_DOORBELL");
    expect(
        2, "", "doorbell has 120 bytes", "relay", "--to", "to.db", "--doorbell",
        "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"
        "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx");
    folder_leave(&here);
}

static void relay_tells_events(void **state)
{
    (void)state;
    folder here;
    result r;
    two_stores(&here);
    send_orders(3);
    run(&r, "relay", "--once", "--to", "to.db", "--verbose");
    check_result(&r, 0, "3 published", "messaging.outbox.published", "events");
    assert_null(strstr(r.err, "\"n\":")); /* no body */
    result_done(&r);
    send_orders(1);
    run(&r, "relay", "--once", "--to", "to.db", "--verbose", "--json");
    check_result(&r, 0, "\"published\":1", "\"event\":\"messaging.outbox.published\"", "events");
    for (char *line = r.err, *end; (end = strchr(line, '\n')) != NULL; line = end + 1) {
        json_t *event = json_loadb(line, (size_t)(end - line), 0, NULL);
        assert_non_null(event);
        json_decref(event);
    }
    result_done(&r);
    folder_leave(&here);
}

static void status_and_lists(void **state)
{
    (void)state;
    folder here;
    result r;
    char id[64];
    two_stores(&here);
    expect(0, "no messages", "", "outbox", "list");
    send_orders(5);
    expect(0, NULL, "", "send", "urn:message:shop:late", "{}", "--delay", "1h");
    run(&r, "status", "--json");
    check_result(&r, 0, NULL, "", "status");
    json_t *root = json_loads(r.out, 0, NULL);
    json_t *outbox = json_object_get(root, "outbox");
    assert_int_equal(json_integer_value(json_object_get(outbox, "pending")), 5);
    assert_int_equal(json_integer_value(json_object_get(outbox, "delayed")), 1);
    assert_int_equal(json_integer_value(json_object_get(outbox, "dead")), 0);
    json_decref(root);
    result_done(&r);
    expect(0, "oldest pending", "", "status");
    expect(0, "published, handled", "", "status");
    expect(0, "\"handled\":", "", "status", "--json");
    first_id("from.db", id);
    expect(0, id, "", "outbox", "list", "--limit", "2");
    expect(0, id, "", "outbox", "list", "--key", "c-0", "--state", "pending");
    expect(0, "no messages", "", "outbox", "list", "--state", "dead");
    expect(0, "no messages", "", "outbox", "list", "--type", "urn:message:a:b");
    expect(0, "delayed", "", "outbox", "list", "--state", "delayed");
    run(&r, "outbox", "list", "--limit", "2", "--json");
    root = json_loads(r.out, 0, NULL);
    assert_int_equal(json_array_size(json_object_get(root, "messages")), 2);
    const char *next = json_string_value(json_object_get(root, "next"));
    assert_non_null(next);
    result_done(&r);
    run(&r, "outbox", "list", "--limit", "10", "--json", "--after", next);
    json_t *rest = json_loads(r.out, 0, NULL);
    assert_int_equal(json_array_size(json_object_get(rest, "messages")), 4);
    json_decref(rest);
    json_decref(root);
    result_done(&r);
    expect(2, "", "cursor", "outbox", "list", "--after", "xyzzy");
    folder_leave(&here);
}

static void show_and_explain(void **state)
{
    (void)state;
    folder here;
    result r;
    char id[64];
    two_stores(&here);
    send_orders(1);
    first_id("from.db", id);
    expect(0, "{\"n\":0}", "", "outbox", "show", id);
    expect(0, "pending", "", "explain", id);
    run(&r, "outbox", "show", id, "--json");
    json_t *root = json_loads(r.out, 0, NULL);
    json_t *message = json_array_get(json_object_get(root, "messages"), 0);
    assert_string_equal(json_string_value(json_object_get(message, "message_id")), id);
    assert_string_equal(json_string_value(json_object_get(message, "body")), "{\"n\":0}");
    json_decref(root);
    result_done(&r);
    expect(0, "1 published", "", "relay", "--once", "--to", "to.db");
    expect(0, "published", "", "explain", id);
    expect(0, "\"state\":\"published\"", "", "explain", id, "--json");
    expect(3, "", UNKNOWN, "explain", UNKNOWN);
    expect(3, "", UNKNOWN, "outbox", "show", UNKNOWN);
    expect(3, "", UNKNOWN, "dead", "show", UNKNOWN);
    expect(4, "", "is published, not dead", "dead", "show", id);
    /* what comes out of a database must not steer the terminal */
    expect(0, NULL, "", "send", "urn:message:a:b", "x", "--key", "\x1b]0;pwned\x07");
    run(&r, "outbox", "list");
    assert_null(strchr(r.out, '\x1b'));
    result_done(&r);
    run_program(
        &r, "a\0b", 3,
        (const char *const[]){"send", "urn:message:a:b", "--file", "-", "--id", BINARY, NULL});
    check_result(&r, 0, NULL, "", "a body with a NUL");
    result_done(&r);
    expect(0, "body in base64:\n\"YQBi\"", "", "outbox", "show", BINARY);
    folder_leave(&here);
}

/* Nobody wants the type: refused, dead without retries; then redriven, discarded. */
static void dead_letters(void **state)
{
    (void)state;
    folder here;
    result r;
    char id[64];
    two_stores(&here);
    expect(0, NULL, "", "send", "urn:message:shop:unwanted", "{}", "--key", "k");
    first_id("from.db", id);
    expect(5, "0 published, 1 failed", "1 message was not published", "relay", "--once", "--to",
           "to.db");
    expect(0, id, "", "outbox", "list", "--state", "failed");
    expect(0, "failed", "", "explain", id);
    expect(4, "", "is failed, not dead", "dead", "redrive", id, "--reason", "too early");
    expect(4, "", "is failed, not dead", "dead", "discard", id, "--reason", "too early");
    change("from.db", "UPDATE postroom_outbox_parked SET next_attempt_at = 0");
    expect(5, NULL, NULL, "relay", "--once", "--to", "to.db", "--retry-max", "0");
    expect(0, id, "", "dead", "list");
    expect(0, id, "", "dead", "list", "--type", "urn:message:shop:unwanted", "--box", "outbox");
    expect(0, "no messages", "", "dead", "list", "--box", "inbox");
    expect(0, id, "", "dead", "show", id);
    expect(0, "1 would be redriven", "", "dead", "redrive", "--dry-run");
    assert_int_equal(number_of("from.db", STATE "'dead'"), 1);
    expect(0, "1 redriven", "", "dead", "redrive", id, "--reason", "mended", "--who", "tester");
    assert_int_equal(number_of("from.db", STATE "'pending'"), 1);
    assert_int_equal(number_of("from.db", "SELECT count(*) FROM postroom_audit WHERE who = 'tester'"
                                          " AND reason = 'mended'"),
                     1);
    expect(4, "", id, "dead", "redrive", id, "--reason", "again");
    expect(3, "", UNKNOWN, "dead", "redrive", UNKNOWN, "--reason", "r");
    expect(3, "", UNKNOWN, "dead", "discard", UNKNOWN, "--reason", "r");
    expect(5, NULL, NULL, "relay", "--once", "--to", "to.db", "--retry-max", "0");
    expect(0, "discarded", "", "dead", "discard", id, "--reason", "of no use");
    expect(0, "no messages", "", "dead", "list");
    /* more than one at a time only when it is confirmed */
    for (int i = 0; i < 3; i++)
        expect(0, NULL, "", "send", "urn:message:shop:unwanted", "{}");
    expect(5, NULL, NULL, "relay", "--once", "--to", "to.db", "--retry-max", "0");
    expect(2, "", "would redrive 3 messages; repeat with --yes", "dead", "redrive", "--reason",
           "r");
    expect(0, "2 redriven", "", "dead", "redrive", "--reason", "r", "--yes", "--limit", "2");
    expect(0, "\"count\":1", "", "dead", "redrive", "--reason", "r", "--json");
    run(&r, "status", "--json");
    assert_non_null(strstr(r.out, "\"dead\":0"));
    result_done(&r);
    folder_leave(&here);
}

/* What an endpoint gave up: listed beside the outbox, redriven and discarded by consumer. */
static void dead_letters_of_an_inbox(void **state)
{
    (void)state;
    static const char *const ids[] = {"01a22d1f-1ccc-7ba9-89b4-000000000001",
                                      "01a22d1f-1ccc-7ba9-89b4-000000000002"};
    folder here;
    two_stores(&here);
    for (size_t i = 0; i < COUNT_OF(ids); i++) {
        char sql[1024];
        snprintf(sql, sizeof(sql),
                 "INSERT INTO postroom_inbox_parked (tenant, consumer, message_id, original_id, "
                 "body_hash, type, type_version, content_type, body, occurred_at, state, attempts, "
                 "next_attempt_at, last_error, parked_at) VALUES ('', 'billing', '%s', '%s', "
                 "zeroblob(16), 'urn:message:shop:order-placed', 1, 'application/json', X'7B7D', "
                 "strftime('%%s', 'now') * 1000000, 'dead', 11, 0, 'no such customer', 0)",
                 ids[i], ids[i]);
        change("from.db", sql);
    }
    expect(0, "no such customer", "", "dead", "list");
    expect(0, ids[0], "", "dead", "list", "--consumer", "billing", "--limit", "1");
    expect(0, ids[1], "", "dead", "list", "--box", "inbox", "--json");
    expect(0, "no messages", "", "dead", "list", "--box", "outbox");
    expect(0, "no messages", "", "dead", "list", "--consumer", "shipping");
    expect(0, "no such customer", "", "dead", "show", ids[0]);
    expect(0, "billing", "", "explain", ids[0]);
    expect(3, "", "is dead in the inbox of 'billing', not in the outbox; add --consumer 'billing'",
           "dead", "redrive", ids[0], "--reason", "not of the outbox");
    expect(3, "", "add --consumer 'billing'", "dead", "discard", ids[1], "--reason", "r");
    expect(0, ids[0], "", "inbox", "list");
    expect(0, "no such customer", "", "inbox", "list", "--state", "dead", "--consumer", "billing");
    expect(0, "no messages", "", "inbox", "list", "--state", "failed");
    expect(0, "no messages", "", "inbox", "list", "--consumer", "shipping");
    expect(2, "", "published, failed, held, dead", "inbox", "list", "--state", "x");
    expect(0, "1 redriven", "", "dead", "redrive", ids[0], "--consumer", "billing", "--reason",
           "customer is there now");
    expect(4, "", ids[0], "dead", "redrive", ids[0], "--consumer", "billing", "--reason", "again");
    expect(0, ids[0], "", "inbox", "list", "--state", "pending", "--json");
    expect(0, "discarded", "", "dead", "discard", ids[1], "--consumer", "billing", "--reason", "r");
    assert_int_equal(number_of("from.db", "SELECT count(*) FROM postroom_inbox WHERE message_id = "
                                          "'01a22d1f-1ccc-7ba9-89b4-000000000002'"),
                     1); /* its mark: a late duplicate does not run */
    expect(0, "no messages", "", "dead", "list");
    folder_leave(&here);
}

static void cancel_a_delayed_one(void **state)
{
    (void)state;
    folder here;
    result r;
    char id[64];
    two_stores(&here);
    run(&r, "send", "urn:message:shop:order-placed", "{}", "--delay", "1h");
    assert_int_equal(r.code, 0);
    snprintf(id, sizeof(id), "%.36s", r.out);
    result_done(&r);
    expect(0, "delayed", "", "explain", id);
    expect(0, "0 published", "", "relay", "--once", "--to", "to.db");
    expect(0, "cancelled", "", "cancel", id, "--reason", "changed my mind");
    expect(3, "", id, "cancel", id, "--reason", "again");
    expect(0, NULL, "", "send", "urn:message:shop:order-placed", "{}");
    first_id("from.db", id);
    expect(4, "", id, "cancel", id, "--reason", "too late");
    expect(3, "", UNKNOWN, "cancel", UNKNOWN, "--reason", "r", "--json");
    folder_leave(&here);
}

static void the_doctor_looks_at_sqlite(void **state)
{
    static const struct {
        const char *label, *harm;
        int code;
        const char *text;
    } cases[] = {
        {"a column less", "ALTER TABLE postroom_saga DROP COLUMN lease_owner", 1,
         "fault    table 'postroom_saga' lacks its built-in column 'lease_owner': restore it"},
        {"a sequence behind",
         "INSERT INTO postroom_outbox (message_id, type, body) VALUES "
         "('01a22d1f-1ccc-7ba9-89b4-d7b94c7fb226', 'urn:message:shop:x', x''); DELETE FROM "
         "sqlite_sequence WHERE name = 'postroom_outbox'",
         1, "stands at 0, but id 1 was used"},
        {"a newer schema", "INSERT INTO postroom_schema_version VALUES (99, 'future', 0)", 1,
         "newer than the 3 of this program"},
        {"no lanes", "DELETE FROM postroom_setting", 1, "fault    setting 'lanes'"},
    };
    /* SQLite of Debian 12 has the fault of the write-ahead log; it is a note, mended in 3.51.3 */
    bool noted = sqlite3_libversion_number() < 3051003;
    (void)state;
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        folder here;
        result r;
        two_stores(&here);
        expect(0, noted ? "note     SQLite 3." : "nothing was found", "", "doctor");
        if (noted) {
            expect(0, "mend it: set host connections up with pr_sqlite_prepare()", "", "doctor");
            expect(0, "\"subject\":\"wal-reset\"", "", "doctor", "--json");
        }
        change("from.db", cases[i].harm);
        run(&r, "doctor");
        check_result(&r, cases[i].code, cases[i].text, "", cases[i].label);
        result_done(&r);
        run(&r, "doctor", "--json");
        check_result(&r, cases[i].code, "\"ok\":false", "", cases[i].label);
        result_done(&r);
        folder_leave(&here);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(relay_once_twice),           cmocka_unit_test(relay_to_nowhere),
        cmocka_unit_test(relay_runs_and_drains),      cmocka_unit_test(relay_listens_on_a_doorbell),
        cmocka_unit_test(relay_tells_events),         cmocka_unit_test(status_and_lists),
        cmocka_unit_test(show_and_explain),           cmocka_unit_test(dead_letters),
        cmocka_unit_test(dead_letters_of_an_inbox),   cmocka_unit_test(cancel_a_delayed_one),
        cmocka_unit_test(the_doctor_looks_at_sqlite),
    };
    return RUN_TESTS(tests);
}
