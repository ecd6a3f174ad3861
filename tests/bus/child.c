/*
 * What the other processes of a test do: this program again, told by its arguments.
 */
#include <errno.h>
#include <signal.h>
#include <unistd.h>

#include <postroom/amqp.h>

#include "base/fault.h"
#include "base/time.h"
#include "bus/other.h"

#define LEASE_MS 600
/* Renewed more than once, and no pause of the machine is as long as what is left of a lease. */
#define SLOW_LEASE_MS 2000
#define SLOW_US       4500000
#define SHARE_US      10000

static pr_endpoint *own_endpoint;

static void on_term(int number)
{
    (void)number;
    pr_endpoint_stop(own_endpoint);
}

static void say(const char *word)
{
    ssize_t ignored = write(STDOUT_FILENO, word, strlen(word));
    (void)ignored;
}

/* Our input is closed. */
static void wait_until_told(void)
{
    char word = 0;
    while (read(STDIN_FILENO, &word, 1) < 0 && errno == EINTR)
        ;
}

typedef struct child {
    const bus_provider *provider;
    const char *mode;
} child;

bool other_is_odd(const char *id)
{
    return (id[strlen(id) - 1] - '0') % 2 == 1;
}

static pr_handled child_handle(void *user, pr_scope *scope)
{
    const child *c = user;
    if (strcmp(c->mode, "leased") == 0) {
        say("i");
        wait_until_told(); /* it is frozen meanwhile */
    }
    if (strcmp(c->mode, "slow-leased") == 0) {
        say("i");
        pr__sleep_us(SLOW_US);
    }
    if (strcmp(c->mode, "batch") == 0 && other_is_odd(pr_scope_message(scope)->id))
        return PR_HANDLED_OK;
    pr_unit *unit = pr_scope_unit(scope);
    bool good = unit && c->provider->effect(unit, pr_scope_message(scope)->id);
    if (strcmp(c->mode, "hang") == 0) {
        say("i");
        for (;;)
            pause();
    }
    if (strcmp(c->mode, "share") == 0)
        pr__sleep_us(SHARE_US); /* others meet the mark before it is committed */
    if (strcmp(c->mode, "leased") == 0 || strcmp(c->mode, "slow-leased") == 0)
        say(good ? "d" : "l");
    if (strncmp(c->mode, "stop", 4) == 0) {
        int64_t until_us = pr__monotonic_us() + PATIENCE_US;
        say("i");
        while (!pr_scope_cancelled(scope) && pr__monotonic_us() < until_us)
            pr__sleep_us(1000);
        return PR_HANDLED_RETRY;
    }
    return good ? PR_HANDLED_OK : PR_HANDLED_RETRY;
}

/* Handle copies of one message beside other processes, once the test closes our input. */
static pr_handled twin_handle(void *user, pr_scope *scope)
{
    const child *c = user;
    bool good = c->provider->effect(pr_scope_unit(scope), pr_scope_message(scope)->id);
    usleep(20000); /* the others meet the mark before it is committed */
    return good ? PR_HANDLED_OK : PR_HANDLED_RETRY;
}

static void *twin_run(void *user)
{
    (void)user;
    return pr_endpoint_run(own_endpoint, NULL) == PR_OK ? own_endpoint : NULL;
}

static bool twin_send(pr_transport *sender)
{
    pr_message message =
        PR_MESSAGE(.id = ID_A, .type = TYPE_ORDER, .type_version = 1,
                   .content_type = "application/json", .destination = "memory://topic/" TYPE_ORDER,
                   .body = "{}", .body_size_bytes = 2, .occurred_at_us = 1767225600000000);
    pr_submission submission = {.ticket = 1, .message = &message};
    pr_submitted outcome;
    size_t count = 0;
    return pr_transport_submit(sender, &submission, 1, &count, NULL) == PR_OK && count == 1 &&
           pr_transport_poll(sender, 1000, &outcome, 1, &count, NULL) == PR_OK && count == 1 &&
           outcome.outcome == PR_SUBMIT_CONFIRMED;
}

/* Until each copy is handled or known as handled; says how it ended. */
static bool twin_settle(void)
{
    pr_endpoint_snapshot snapshot = {.size = (uint32_t)sizeof snapshot};
    int64_t until_us = pr__monotonic_us() + PATIENCE_US;
    while (pr_endpoint_snapshot_get(own_endpoint, &snapshot, NULL) == PR_OK &&
           snapshot.handled + snapshot.duplicate < COPIES && pr__monotonic_us() < until_us)
        pr__sleep_us(1000);
    say(snapshot.handled == 0 ? "0" : snapshot.handled == 1 ? "1" : "m");
    return snapshot.handled + snapshot.duplicate == COPIES && snapshot.failed + snapshot.dead == 0;
}

static int twin(child *c, const char *address, const char *threads)
{
    static const char *const types[] = {TYPE_ORDER};
    pr_store *store = c->provider->open(address);
    pr_memory_broker *broker = NULL;
    pr_transport *sender = NULL, *receiver = NULL;
    pthread_t thread;
    void *ran = NULL;
    int64_t wait_ms = 0;
    pr_endpoint_options opt =
        PR_ENDPOINT_OPTIONS(.id = CONSUMER, .types = types, .type_count = 1, .handler = twin_handle,
                            .user = c, .poll_ms = 5, .busy_wait_ms = 300,
                            .concurrency = (uint32_t)strtol(threads, NULL, 10));
    bool good = pr_memory_broker_new(&broker, NULL) == PR_OK &&
                pr_memory_transport_new(broker, NULL, &sender, NULL) == PR_OK &&
                pr_memory_transport_new(broker, NULL, &receiver, NULL) == PR_OK &&
                pr_transport_open(sender, 1000, NULL) == PR_OK &&
                pr_endpoint_new(store, receiver, &opt, &own_endpoint, NULL) == PR_OK &&
                pr_endpoint_step(own_endpoint, &wait_ms, NULL) == PR_OK;
    for (int i = 0; good && i < COPIES; i++)
        good = twin_send(sender);
    say(good ? "r" : "f");
    if (good)
        wait_until_told();
    good = good && pthread_create(&thread, NULL, twin_run, NULL) == 0;
    if (good) {
        bool settled = twin_settle();
        pr_endpoint_stop(own_endpoint);
        good = pthread_join(thread, &ran) == 0 && ran && settled;
    }
    pr_endpoint_free(own_endpoint);
    pr_transport_free(receiver);
    pr_transport_free(sender);
    pr_memory_broker_free(broker);
    pr_store_free(store);
    return good ? 0 : 1;
}

/* The one that the test's own endpoint has. */
static pr_status make_transport(pr_store *store, pr_transport **ret_transport)
{
    const char *address = getenv(BUS_CARRIER_ADDRESS);
    const pr_amqp_options opt = PR_AMQP_OPTIONS(.flags = PR_AMQP_DECLARE);
    return address ? pr_amqp_transport_new(address, &opt, ret_transport, NULL)
                   : pr_database_transport_new(store, NULL, ret_transport, NULL);
}

/* Ask, and be killed before the answer comes. */
static int requester(const child *c, const char *address)
{
    pr_store *store = c->provider->open(address);
    pr_transport *transport = NULL;
    pr_bus *bus = NULL;
    pr_reply *reply = NULL;
    const pr_bus_options opt =
        PR_BUS_OPTIONS(.store = store, .relay_off = true, .reply_expiry_ms = EXPIRY_MS);
    pr_message request = PR_MESSAGE(.type = TYPE_ASK, .body = "{}", .body_size_bytes = 2);
    if (make_transport(store, &transport) != PR_OK || pr_bus_new(&opt, &bus, NULL) != PR_OK ||
        pr_bus_add_transport(bus, transport, NULL) != PR_OK || pr_bus_start(bus, NULL) != PR_OK)
        return 1;
    (void)!pr_bus_request(bus, "prices", &request, NULL, &reply, NULL);
    return 1; /* it was to be killed */
}

int bus_child_run(const bus_provider *provider, char **argv)
{
    child c = {.provider = provider, .mode = argv[2]};
    if (strcmp(c.mode, "twin") == 0)
        return twin(&c, argv[3], argv[4]);
    if (strcmp(c.mode, "requester") == 0)
        return requester(&c, argv[3]);
    static const char *const types[] = {TYPE_ORDER};
    pr_store *store = provider->open(argv[3]);
    pr_transport *transport = NULL;
    bool leased = strstr(c.mode, "leased") != NULL, slow = strcmp(c.mode, "slow-leased") == 0;
#ifdef PR_FAULT_POINTS
    if (argv[5][0] != '\0')
        pr__fault_reset(argv[5]);
#endif
    pr_endpoint_options opt =
        PR_ENDPOINT_OPTIONS(.id = CONSUMER, .types = types, .type_count = 1,
                            .handler = child_handle, .user = &c,
                            .inbox = leased ? PR_INBOX_LEASED : PR_INBOX_TRANSACTIONAL,
                            .lease_ms = slow ? SLOW_LEASE_MS : LEASE_MS, .poll_ms = 5,
                            .stop_grace_ms = 100,
                            .concurrency = (uint32_t)strtol(argv[4], NULL, 10), .busy_wait_ms = 300,
                            .batch_max = strcmp(c.mode, "batch") == 0 ? BATCH : 0);
    if (make_transport(store, &transport) != PR_OK ||
        pr_endpoint_new(store, transport, &opt, &own_endpoint, NULL) != PR_OK)
        return 1;
    (void)signal(SIGTERM, on_term);
    if (strcmp(c.mode, "share") == 0)
        say("r"); /* it can be stopped from now on */
    pr_status status = pr_endpoint_run(own_endpoint, NULL);
    pr_endpoint_free(own_endpoint);
    pr_transport_free(transport);
    pr_store_free(store);
    return status == PR_OK ? 0 : 1;
}
