/*
 * The demo: it ends well, its reconciliation notices whatever is made wrong, its advice works, and
 * it leaves no process behind.
 */
#include <ctype.h>
#include <dirent.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "program.h"

static int64_t member(const result *of, const char *key)
{
    json_t *root = json_loads(of->out, 0, NULL);
    if (!root)
        fail_msg("no JSON: %s", of->out);
    json_t *value = json_object_get(root, key);
    if (!value)
        fail_msg("no '%s' in %s", key, of->out);
    int64_t number = json_is_boolean(value) ? json_is_true(value) : json_integer_value(value);
    json_decref(root);
    return number;
}

/* How many processes have this text in their command line. */
static int running(const char *text)
{
    DIR *all = opendir("/proc");
    struct dirent *entry;
    int count = 0;
    while ((entry = readdir(all)) != NULL) {
        char path[300], line[4096];
        if (!isdigit((unsigned char)entry->d_name[0]))
            continue;
        snprintf(path, sizeof(path), "/proc/%s/cmdline", entry->d_name);
        FILE *file = fopen(path, "rbe");
        size_t size = file ? fread(line, 1, sizeof(line) - 1, file) : 0;
        if (file)
            fclose(file);
        for (size_t i = 0; i < size; i++)
            line[i] = line[i] ? line[i] : ' ';
        line[size] = '\0';
        if (strstr(line, text) && atol(entry->d_name) != (long)getpid())
            count++;
    }
    closedir(all);
    return count;
}

static void wait_nothing_runs(const char *text)
{
    int64_t until = now_ms() + DEADLINE_MS;
    while (running(text) > 0) {
        if (now_ms() > until)
            fail_msg("something of '%s' still runs", text);
        sleep_a_little();
    }
}

typedef struct tampering {
    const char *label;
    const char *path;
    const char *sql;
    const char *key; /* of the value that must be wrong */
} tampering;

static const tampering tamperings[] = {
    {"an invoice is gone", "t/billing.db", "DELETE FROM invoices WHERE id = 5", "lost"},
    {"an invoice twice", "t/billing.db",
     "INSERT INTO invoices (order_number, customer, seq, amount_cents) SELECT order_number, "
     "customer, seq, amount_cents FROM invoices WHERE id = (SELECT max(id) FROM invoices)",
     "billed_twice"},
    {"an invoice of no order", "t/billing.db",
     "INSERT INTO invoices (order_number, customer, seq, amount_cents) VALUES (7, 'x', 1, 1)",
     "ghosts"},
    {"a message of no order", "t/orders.db",
     "INSERT INTO postroom_outbox (message_id, type, body) VALUES "
     "('01a22d1f-1ccc-7ba9-89b4-d7b94c7fb226', 'urn:message:shop:order-placed', X'7B7D')",
     "ghosts"},
    {"an order without a message", "t/orders.db",
     "INSERT INTO orders VALUES (7, 'customer-01', 99, 1)", "lost"},
    {"another amount", "t/billing.db", "UPDATE invoices SET amount_cents = 1 WHERE id = 3",
     "altered"},
    {"another order of invoices", "t/billing.db",
     "UPDATE invoices SET id = -1 WHERE id = (SELECT max(id) FROM invoices WHERE customer = "
     "(SELECT customer FROM invoices ORDER BY id LIMIT 1))",
     "order_violations"},
    {"no duplicate", "t/billing.db",
     "DELETE FROM postroom_outbox WHERE id NOT IN (SELECT min(id) FROM postroom_outbox GROUP BY "
     "message_id)",
     "duplicates_absorbed"},
    {"a dead message", "t/billing.db",
     "INSERT INTO postroom_outbox_parked (reader, log_id, lane, message_id, type, type_version, "
     "content_type, tenant, body, occurred_at, state, next_attempt_at, parked_at) SELECT 1, id, "
     "lane, message_id, type, type_version, content_type, tenant, body, occurred_at, 'dead', 0, 0 "
     "FROM postroom_outbox LIMIT 1",
     "dead"},
    {"an order rolled back later", "t/orders.db", "DELETE FROM orders WHERE number = 1", "ghosts"},
};

/* The reconciliation is no decoration: each of these makes it fail, by the right line. */
static void check_tampered_copies(void)
{
    for (size_t i = 0; i < COUNT_OF(tamperings); i++) {
        const tampering *of = &tamperings[i];
        result r;
        assert_int_equal(system("rm -rf t && cp -r d t"), 0);
        change(of->path, of->sql);
        run(&r, "demo", "--check", "t", "--json");
        check_result(&r, 1, "\"ok\":false", "the reconciliation is wrong", of->label);
        int64_t value = member(&r, of->key);
        if (strcmp(of->key, "duplicates_absorbed") == 0 ? value != 0 : value == 0)
            fail_msg("%s: '%s' is %lld", of->label, of->key, (long long)value);
        result_done(&r);
        run(&r, "demo", "--check", "t");
        check_result(&r, 1, "WRONG", "the reconciliation is wrong", of->label);
        result_done(&r);
    }
}

static void it_ends_well_and_notices_tampering(void **state)
{
    (void)state;
    folder here;
    result r;
    folder_enter(&here);
    run(&r, "demo", "--quick", "--dir", "d", "--json");
    check_result(&r, 0, "\"ok\":true", "", "demo");
    assert_int_equal(member(&r, "orders_placed"), 200);
    assert_int_equal(member(&r, "orders_committed"), 180);
    assert_int_equal(member(&r, "orders_rolled_back"), 20);
    assert_int_equal(member(&r, "published"), 180);
    assert_int_equal(member(&r, "handled"), 180);
    assert_int_equal(member(&r, "relay_kills"), 3);
    assert_true(member(&r, "duplicates_absorbed") >= 3);
    assert_int_equal(member(&r, "delivered"), 180 + member(&r, "duplicates_absorbed"));
    result_done(&r);
    /* again from outside */
    assert_int_equal(number_of("d/billing.db", "SELECT count(*) FROM invoices"), 180);
    assert_int_equal(number_of("d/billing.db", "SELECT count(*) FROM postroom_inbox"), 180);
    assert_int_equal(running(here.path), 0);
    expect(0, "duplicates absorbed", "", "demo", "--check", "d");
    check_tampered_copies();
    expect(4, "", "is no empty folder", "demo", "--dir", "d");
    folder_leave(&here);
}

/* The lines after "Three things to try next:" are run by a shell as they stand. */
static void its_advice_works(void **state)
{
    (void)state;
    folder here;
    result r;
    int tried = 0;
    folder_enter(&here);
    assert_int_equal(unsetenv("HOME"), 0);
    run(&r, "demo", "--quick", "--dir", "it's a folder");
    check_result(&r, 0, "Three things to try next", "", "demo");
    assert_null(strchr(r.out, '\r')); /* no progress bar but on a terminal */
    char *line = strstr(r.out, "Three things to try next");
    while ((line = strchr(line, '\n')) != NULL && *++line) {
        char command[2048], *command_at = strstr(line, getenv("POSTROOM_PROGRAM"));
        if (!command_at)
            break;
        snprintf(command, sizeof(command), "%.*s >tried 2>&1", (int)strcspn(command_at, "\n"),
                 command_at);
        if (system(command) != 0)
            fail_msg("does not work: %s: %s", command, read_file("tried"));
        tried++;
    }
    assert_int_equal(tried, 3);
    expect(0, "orders billed", "", "demo", "--check", "it's a folder");
    result_done(&r);
    folder_leave(&here);
}

static void wait_kill_seen(const char *path)
{
    int64_t until = now_ms() + DEADLINE_MS;
    while (!file_exists(path)) {
        if (now_ms() > until)
            fail_msg("%s does not come", path);
        sleep_a_little();
    }
}

static void it_leaves_no_process_behind(void **state)
{
    (void)state;
    static const int signals[] = {SIGINT, SIGTERM, SIGKILL};
    for (size_t i = 0; i < COUNT_OF(signals); i++) {
        folder here;
        result r;
        char target[FOLDER_SIZE + 16];
        folder_enter(&here);
        snprintf(target, sizeof(target), "%s/d", here.path);
        pid_t pid = start(NULL, "demo", "--orders", "5000", "--dir", target);
        wait_kill_seen("d/relay.log");
        kill(pid, signals[i]);
        finish_program(pid, &r);
        if (signals[i] == SIGKILL)
            assert_int_equal(r.code, 128 + SIGKILL);
        else
            check_result(&r, 1, NULL, "stopped; the databases stay", "a signal");
        wait_nothing_runs(target);
        result_done(&r);
        folder_leave(&here);
    }
}

static void a_folder_of_its_own(void **state)
{
    (void)state;
    folder here;
    folder_enter(&here);
    assert_int_equal(system("$POSTROOM_PROGRAM demo --quick >out 2>err"), 0);
    assert_int_equal(
        system("test -s postroom-demo-*/orders.db && test -s postroom-demo-*/billing.db"), 0);
    expect(1, "", "cannot make the folder", "demo", "--dir", "no/such/place");
    folder_leave(&here);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_ends_well_and_notices_tampering),
        cmocka_unit_test(its_advice_works),
        cmocka_unit_test(it_leaves_no_process_behind),
        cmocka_unit_test(a_folder_of_its_own),
    };
    return RUN_TESTS(tests);
}
