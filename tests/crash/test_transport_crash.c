/*
 * The database transport killed on both sides of each of its commits: a message that was confirmed
 * is there once, one that was not may be sent again; a verdict that was committed stands, one that
 * was not brings its delivery again, marked.
 *
 * The child opens its own connections; the parent has none open when it forks.
 */
#include <signal.h>
#include <sys/wait.h>

#include "support/sqlite_world.h"
#include "support/test.h"

#include <postroom/database.h>

#include "base/fault.h"

#define TYPE_A   "urn:message:unit:a"
#define LEASE_MS 400

typedef struct wire {
    pr_store *store;
    pr_transport *transport;
    pr_subscription *subscription;
} wire;

static bool connect_to(const sqlite_world *files, wire *at)
{
    pr_subscribe_options options = {.size = (uint32_t)sizeof(options),
                                    .endpoint = "billing",
                                    .prefetch = 1,
                                    .lease_ms = LEASE_MS};
    return sqlite_world_store(files, 0, 0, &at->store, NULL) == PR_OK &&
           pr_database_transport_new(at->store, NULL, &at->transport, NULL) == PR_OK &&
           pr_transport_open(at->transport, 0, NULL) == PR_OK &&
           pr_transport_subscribe(at->transport, &options, &at->subscription, NULL) == PR_OK;
}

static void disconnect(wire *at)
{
    pr_subscription_free(at->subscription);
    pr_transport_free(at->transport);
    pr_store_free(at->store);
}

/* Messages 0..count, one append each. */
static bool send(wire *at, int count)
{
    for (int i = 0; i < count; i++) {
        char id[37];
        snprintf(id, sizeof(id), "018e0000-0000-7000-8000-%012d", i);
        const pr_message message =
            PR_MESSAGE(.id = id, .type = TYPE_A, .type_version = 1, .content_type = "text/plain",
                       .destination = "database://in/billing", .key = "k", .body = "x",
                       .body_size_bytes = 1, .occurred_at_us = 1700000000000000);
        pr_submission submission = {1, &message};
        pr_submitted outcome = {0};
        size_t got = 0;
        if (pr_transport_submit(at->transport, &submission, 1, &got, NULL) != PR_OK ||
            pr_transport_poll(at->transport, 0, &outcome, 1, &got, NULL) != PR_OK ||
            outcome.outcome != PR_SUBMIT_CONFIRMED)
            return false;
    }
    return true;
}

/* Receive and ack count messages. */
static bool take(wire *at, int count)
{
    for (int i = 0; i < count; i++) {
        pr_delivery delivery;
        size_t got = 0;
        if (pr_subscription_receive(at->subscription, 10000, &delivery, 1, &got, NULL) != PR_OK ||
            got != 1 ||
            pr_subscription_settle(at->subscription, delivery.tag, PR_VERDICT_ACK, 0, NULL) !=
                PR_OK)
            return false;
    }
    return true;
}

/* Run the work in a child with this fault; it has to die of it. */
static void die_of(const sqlite_world *files, const char *fault, bool (*work)(wire *, int),
                   int count)
{
    fflush(stdout);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        wire at = {0};
        bool worked = connect_to(files, &at);
        pr__fault_reset(fault);
        worked = worked && work(&at, count);
        _exit(worked ? 0 : 1);
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    if (!WIFSIGNALED(status) || WTERMSIG(status) != SIGKILL)
        fail_msg("case '%s': the child was not killed, status %d", fault, status);
}

/* Everything that still comes: numbers in order as letters, lower case when redelivered. */
static void drain(wire *at, char *ret_text, size_t size, int64_t quiet_ms)
{
    size_t count = 0;
    for (;;) {
        pr_delivery delivery;
        size_t got = 0;
        pr_error err = PR_ERROR_INIT;
        check_ok(pr_subscription_receive(at->subscription, quiet_ms, &delivery, 1, &got, &err),
                 &err, "receive");
        if (got == 0 || count + 1 == size)
            break;
        int number = (int)strtol(delivery.message.id + 24, NULL, 10);
        ret_text[count++] = (char)((delivery.redelivered ? 'a' : 'A') + number);
        check_ok(pr_subscription_settle(at->subscription, delivery.tag, PR_VERDICT_ACK, 0, &err),
                 &err, "ack");
    }
    ret_text[count] = '\0';
}

static void test_killed_around_the_append(void **state)
{
    (void)state;
    static const struct {
        const char *fault;
        const char *comes;
    } cases[] = {
        {"transport.before_append_commit:1:kill", ""},
        {"transport.after_append_commit:1:kill", "A"},
        {"transport.before_append_commit:3:kill", "AB"},
        {"transport.after_append_commit:3:kill", "ABC"},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        sqlite_world files;
        pr_error err = PR_ERROR_INIT;
        check_ok(sqlite_world_open(&files, &err), &err, "world");
        die_of(&files, cases[i].fault, send, 3);
        wire at = {0};
        assert_true(connect_to(&files, &at));
        char comes[16];
        drain(&at, comes, sizeof(comes), 2 * LEASE_MS);
        if (strcmp(comes, cases[i].comes) != 0)
            fail_msg("case '%s': wanted '%s', came '%s'", cases[i].fault, cases[i].comes, comes);
        disconnect(&at);
        sqlite_world_close(&files);
    }
}

static void test_killed_around_the_ack(void **state)
{
    (void)state;
    static const struct {
        const char *fault;
        const char *comes;
    } cases[] = {
        {"transport.before_ack_settle:1:kill", "aBC"},
        {"transport.after_ack_settle:1:kill", "bC"}, /* the next claim came in that commit */
        {"transport.before_ack_settle:2:kill", "bC"},
        {"transport.after_ack_settle:2:kill", "c"},
        {"transport.before_ack_settle:3:kill", "c"},
        {"transport.after_ack_settle:3:kill", ""},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        sqlite_world files;
        pr_error err = PR_ERROR_INIT;
        check_ok(sqlite_world_open(&files, &err), &err, "world");
        wire at = {0};
        assert_true(connect_to(&files, &at));
        assert_true(send(&at, 3));
        disconnect(&at);
        die_of(&files, cases[i].fault, take, 3);
        at = (wire){0};
        assert_true(connect_to(&files, &at));
        char comes[16];
        drain(&at, comes, sizeof(comes), 2 * LEASE_MS);
        if (strcmp(comes, cases[i].comes) != 0)
            fail_msg("case '%s': wanted '%s', came '%s'", cases[i].fault, cases[i].comes, comes);
        disconnect(&at);
        sqlite_world_close(&files);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_killed_around_the_append),
        cmocka_unit_test(test_killed_around_the_ack),
    };
    return RUN_TESTS(tests);
}
