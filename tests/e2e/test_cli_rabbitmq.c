/*
 * The command on RabbitMQ: topology declared, checked and shown, and a relay from SQLite to a
 * broker. Passwords appear nowhere.
 */
#include "program.h"
#include "support/rabbitmq_server.h"

#define PLACED "urn:message:shop:order-placed"
#define PAID   "urn:message:shop:order-paid"
#define CANARY "s3cr3t-canary"

static rabbitmq_server *server;
static unsigned worlds;

/* A folder and a virtual host of its own. */
typedef struct world {
    folder here;
    char vhost[24];
    char uri[RABBITMQ_URI_SIZE];
} world;

static void enter(world *at)
{
    snprintf(at->vhost, sizeof at->vhost, "cli%u", ++worlds);
    folder_enter(&at->here);
    rabbitmq_server_vhost(server, at->vhost);
    rabbitmq_server_uri(server, at->vhost, at->uri);
    setenv("POSTROOM_AMQP", at->uri, 1);
}

static void leave(world *at)
{
    rabbitmq_server_vhost_remove(server, at->vhost);
    unsetenv("POSTROOM_AMQP");
    folder_leave(&at->here);
}

static void usage(void **state)
{
    world at;
    (void)state;
    enter(&at);
    expect(2, "", "an argument is missing", "topology", "declare");
    expect(2, "", "begins neither", "topology", "check", "billing", "--broker", "http://" CANARY);
    expect(2, "", "second word", "topology");
    expect(1, "", "others'", "topology", "declare", "billing.dead");
    expect(1, "", "not urn:message", "topology", "show", "billing", "--type", "order");
    expect(2, "", "a space", "topology", "show", "billing", "--exchange-prefix", "a b");
    expect(0, "made", "", "migrate", "--store", "a.db");
    expect(1, "", "the port", "relay", "--store", "a.db", "--once", "--to",
           "amqp://u:" CANARY "/x@host");
    expect(2, "", "--window", "relay", "--store", "a.db", "--once", "--window", "0", "--to",
           "amqp:");
    unsetenv("POSTROOM_AMQP");
    expect(2, "", "POSTROOM_AMQP", "topology", "declare", "billing");
    expect(2, "", "POSTROOM_AMQP", "relay", "--store", "a.db", "--once", "--to", "amqp:");
    leave(&at);
}

static void topology_is_declared_checked_and_shown(void **state)
{
    world at;
    (void)state;
    enter(&at);
    expect(3, "", "topology declare", "topology", "check", "billing", "--type", PLACED);
    assert_int_equal(rabbitmq_server_depth(server, at.vhost, "billing"), -1);
    expect(0, "is there", "", "topology", "declare", "billing", "--type", PLACED);
    expect(0, "is there", "", "topology", "declare", "billing", "--type", PLACED);
    expect(0, "as it should", "", "topology", "check", "billing", "--type", PLACED);
    expect(0, "{\"endpoint\":\"billing\",\"equal\":true}", "", "topology", "check", "billing",
           "--type", PLACED, "--json");
    assert_int_equal(rabbitmq_server_depth(server, at.vhost, "billing.dead"), 0);
    expect(4, "", "shop:order-placed", "topology", "check", "billing", "--type", PAID);
    expect(4, "", "nothing was changed", "topology", "declare", "billing", "--type", PLACED,
           "--quorum");
    expect(0, "as it should", "", "topology", "check", "billing", "--type", PLACED);
    expect(0, "0 ready", "", "topology", "show", "billing", "--type", PLACED);
    expect(0, "missing", "", "topology", "show", "mail", "--type", PLACED);
    expect(0, "eu.in:mail", "", "topology", "show", "mail", "--exchange-prefix", "eu.");
    expect(0, "is there", "", "topology", "declare", "audit", "--quorum", "--type", PAID);
    expect(0, "as it should", "", "topology", "check", "audit", "--quorum", "--type", PAID);
    expect(4, "", "x-queue-type", "topology", "check", "audit", "--type", PAID);
    leave(&at);
}

static void a_relay_carries_to_the_broker(void **state)
{
    world at;
    (void)state;
    enter(&at);
    expect(0, "made", "", "migrate", "--store", "a.db");
    expect(0, "is there", "", "topology", "declare", "billing", "--type", PLACED);
    for (int i = 0; i < 20; i++)
        expect(0, NULL, "", "send", PLACED, "{\"order\": 1}", "--store", "a.db", "--key", "c",
               "--destination", "rabbitmq://topic/" PLACED);
    expect(0, NULL, "", "send", PLACED, "{}", "--store", "a.db", "--destination",
           "rabbitmq://in/nobody");
    expect(5, "20 published, 1 failed", NULL, "relay", "--store", "a.db", "--once", "--to",
           "amqp:", "--cloudevents", "--window", "7");
    assert_int_equal(rabbitmq_server_depth(server, at.vhost, "billing"), 20);
    expect(0, "20 ready", "", "topology", "show", "billing", "--type", PLACED);
    /* by another name, with a prefix */
    char named[RABBITMQ_URI_SIZE + 16];
    snprintf(named, sizeof named, "eu=%s", at.uri);
    expect(0, "is there", "", "topology", "declare", "mail", "--exchange-prefix", "eu.", "--type",
           PLACED);
    expect(0, NULL, "", "send", PLACED, "{}", "--store", "a.db", "--destination",
           "eu://topic/" PLACED);
    expect(0, "1 published", "", "relay", "--store", "a.db", "--once", "--to", named,
           "--exchange-prefix", "eu.");
    assert_int_equal(rabbitmq_server_depth(server, at.vhost, "eu.mail"), 1);
    leave(&at);
}

/* `receive --from`: the broker's queue is empty when its command has done all. */
static void a_command_receives_from_the_broker(void **state)
{
    world at;
    (void)state;
    enter(&at);
    expect(0, "made", "", "migrate", "--store", "a.db");
    expect(0, "made", "", "migrate", "--store", "b.db");
    expect(0, "is there", "", "topology", "declare", "billing", "--type", PLACED);
    for (int i = 0; i < 5; i++)
        expect(0, NULL, "", "send", PLACED, "{\"order\": 1}", "--store", "a.db", "--key", "c",
               "--destination", "rabbitmq://topic/" PLACED);
    expect(0, "5 published", "", "relay", "--store", "a.db", "--once", "--to", "amqp:");
    expect(0, "5 handled, 1 failed, 0 dead", "", "receive", "--store", "b.db", "--from",
           "amqp:", "--endpoint", "billing", "--type", PLACED, "--backoff", "10ms", "--until-idle",
           "2s", "--exec",
           "echo \"$POSTROOM_MESSAGE_ID $POSTROOM_ATTEMPT\" >>ids;"
           "[ $(wc -l <ids) != 3 ] || exit 75");
    assert_int_equal(rabbitmq_server_depth(server, at.vhost, "billing"), 0);
    assert_int_equal(rabbitmq_server_depth(server, at.vhost, "billing.dead"), 0);
    assert_int_equal(number_of("b.db", "SELECT count(*) FROM postroom_inbox"), 5);
    assert_int_equal(number_of("b.db", "SELECT count(*) FROM postroom_inbox_parked"), 0);
    leave(&at);
}

/* What goes wrong is told with its place, and without the password. */
static void no_password_is_shown(void **state)
{
    world at;
    char wrong[4][RABBITMQ_URI_SIZE];
    (void)state;
    enter(&at);
    int port = rabbitmq_server_port(server);
    snprintf(wrong[0], sizeof wrong[0], "amqp://guest:" CANARY "@localhost:%d/%s", port, at.vhost);
    snprintf(wrong[1], sizeof wrong[1], "amqp://guest:" CANARY "@localhost:1");
    snprintf(wrong[2], sizeof wrong[2], "amqps://guest:" CANARY "@localhost:%d", port);
    snprintf(wrong[3], sizeof wrong[3], "amqp://guest:" CANARY "@host.invalid");
    static const char *const words[] = {"403", "localhost:1", "TLS", "host.invalid"};
    expect(0, "made", "", "migrate", "--store", "a.db");
    expect(0, NULL, "", "send", PLACED, "{}", "--store", "a.db", "--destination",
           "rabbitmq://in/billing");
    for (size_t i = 0; i < COUNT_OF(wrong); i++) {
        result r;
        run(&r, "relay", "--store", "a.db", "--once", "--verbose", "--to", wrong[i]);
        CHECK_CASE(r.code == 1, words[i]);
        CHECK_CASE(strstr(r.err, words[i]), r.err);
        CHECK_CASE(!strstr(r.err, CANARY) && !strstr(r.out, CANARY), words[i]);
        result_done(&r);
        run(&r, "topology", "declare", "billing", "--broker", wrong[i]);
        CHECK_CASE(r.code == 1, words[i]);
        CHECK_CASE(strstr(r.err, words[i]), r.err);
        CHECK_CASE(!strstr(r.err, CANARY) && !strstr(r.out, CANARY), words[i]);
        result_done(&r);
    }
    leave(&at);
}

/* Two databases with the broker between them, and relays that are killed. */
static void the_demo_ends_well(void **state)
{
    world at;
    char queue[64], list[512];
    (void)state;
    enter(&at);
    expect(2, "", "begins neither", "demo", "--rabbitmq", "billing.db");
    expect(2, "", "takes no --rabbitmq", "demo", "--rabbitmq", at.uri, "--saga");
    expect(0, "\"ok\":true", "", "demo", "--rabbitmq", at.uri, "--quick", "--dir", "t", "--json");
    expect(0, "\"ok\":true", "", "demo", "--check", "t", "--json");
    assert_true(number_of("t/billing.db", "SELECT duplicates FROM demo_broker") > 0);
    assert_true(number_of("t/billing.db", "SELECT delivered FROM demo_broker") > 180);
    assert_int_equal(number_of("t/billing.db", "SELECT count(*) FROM postroom_outbox"), 0);
    snprintf(queue, sizeof queue, "length(rabbit_amqqueue:list(<<\"%s\">>))", at.vhost);
    rabbitmq_server_eval(server, list, sizeof list, "%s", queue);
    assert_string_equal(list, "0"); /* it leaves nothing there */
    leave(&at);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(usage),
        cmocka_unit_test(topology_is_declared_checked_and_shown),
        cmocka_unit_test(a_relay_carries_to_the_broker),
        cmocka_unit_test(a_command_receives_from_the_broker),
        cmocka_unit_test(no_password_is_shown),
        cmocka_unit_test(the_demo_ends_well),
    };
    server = rabbitmq_server_start(NULL);
    int failed = RUN_TESTS(tests);
    rabbitmq_server_free(server);
    return failed;
}
