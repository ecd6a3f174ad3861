/*
 * The whole way: capabilities 99, 105, 106, 107, 111 from the host's commit to the effect.
 */
#include "amqp/path_cases.h"

#include <sys/wait.h>
#include <unistd.h>

#include <amqp.h>
#include <amqp_framing.h>
#include <amqp_tcp_socket.h>

#include "amqp/path.h"
#include "support/enqueue.h"

#define SOON_MS 5000

void the_whole_way(ground *at, const store_provider *provider)
{
    path of;
    path_begin(&of, at, provider);
    path_relay_start(&of);
    path_endpoint_start(&of, 0);
    path_endpoint_start(&of, 1);
    rig_attach(&at->rig, at->uri, NULL);
    rig_recover(&at->rig, "topology");
    ground_queue(at); /* before the first publish, or it is returned */
    path_enqueue(&of, 100);
    path_check_whole(&of, "the whole way");
    path_end(&of);
}

/* Open for longer than its statements take; on SQLite a writer that waits holds up the host. */
static bool no_transaction_waits(path *of)
{
    return strcmp(of->provider->kind, "postgres") != 0 ||
           path_number(of, "SELECT count(*) FROM pg_stat_activity WHERE state LIKE "
                           "'idle in transaction%' AND datname = current_database() AND "
                           "xact_start < clock_timestamp() - interval '500 ms'") == 0;
}

void an_alarm_touches_no_database(ground *at, const store_provider *provider)
{
    path of;
    int64_t alarm_ms = getenv("POSTROOM_SOAK") ? 20000 : 2000;
    path_begin(&of, at, provider);
    rig_attach(&at->rig, at->uri, NULL);
    rig_recover(&at->rig, "topology");
    ground_queue(at);
    path_relay_start(&of);
    path_endpoint_start(&of, 0);
    path_enqueue(&of, 10);
    path_wait_effects(&of, 10, SOON_MS, "before the alarm");
    ground_alarm(at, true);
    int64_t longest = 0, until = rig_now_ms() + alarm_ms;
    bool told = false;
    while (rig_now_ms() < until) {
        int64_t took = path_enqueue(&of, 2);
        longest = took > longest ? took : longest;
        assert_true(no_transaction_waits(&of));
        pr_relay_snapshot snapshot = path_relay_snapshot(&of);
        told = told ||
               (snapshot.health == PR_HEALTH_DEGRADED && strstr(snapshot.health_reason, "blocked"));
        usleep(20000);
    }
    assert_true(told);
    assert_true(longest < 2000);
    assert_true(path_number(&of, "SELECT count(*) FROM effects") < (long)of.enqueued);
    int64_t begun = rig_now_ms();
    path_stop(&of.relay); /* stop works, and another begins in the alarm */
    assert_true(rig_now_ms() - begun < 6000);
    path_relay_start(&of);
    ground_alarm(at, false);
    path_check_whole(&of, "after the alarm");
    path_end(&of);
}

static void path_wait_quiet(path *of)
{
    for (int calls = -1, now; (now = atomic_load(&of->calls)) != calls; calls = now)
        usleep(200000);
}

void the_way_outlives_a_restart(ground *at, const store_provider *provider)
{
    path of;
    path_begin(&of, at, provider);
    rig_attach(&at->rig, at->uri, NULL);
    rig_recover(&at->rig, "topology");
    ground_queue(at);
    path_relay_start(&of);
    path_endpoint_start(&of, 0);
    path_enqueue(&of, 100);
    path_wait_effects(&of, 20, SOON_MS, "before the restart");
    rabbitmq_server_do(at->server, "stop kill");
    path_enqueue(&of, 100);
    for (int64_t until = rig_now_ms() + SOON_MS;
         path_relay_snapshot(&of).health == PR_HEALTH_HEALTHY;)
        assert_true(rig_now_ms() < until);
    assert_true(path_relay_snapshot(&of).health_reason[0] != '\0'); /* it says why */
    path_wait_quiet(&of); /* what was prefetched is done */
    long before = path_number(&of, "SELECT count(*) FROM effects");
    int64_t away_ms = getenv("POSTROOM_SOAK") ? 40000 : 0;
    for (int64_t until = rig_now_ms() + away_ms; rig_now_ms() < until;)
        usleep(10000);
    rabbitmq_server_do(at->server, "start");
    path_wait_effects(&of, before + 1, SOON_MS, "within 5 s of the cure");
    path_check_whole(&of, "after the restart");
    path_end(&of);
}

/* Prefetched and in hand when the endpoint is stopped: the next one gets them, each once. */
void a_clean_stop_loses_and_charges_nothing(ground *at, const store_provider *provider)
{
    path of;
    path_begin(&of, at, provider);
    rig_attach(&at->rig, at->uri, NULL);
    rig_recover(&at->rig, "topology");
    ground_queue(at);
    path_relay_start(&of);
    path_enqueue(&of, 60);
    ground_wait_depth(at, "billing", 60, "in the queue");
    atomic_store(&of.hold, true);
    path_endpoint_start(&of, 0);
    for (int64_t until = rig_now_ms() + SOON_MS; atomic_load(&of.holding) == 0;)
        assert_true(rig_now_ms() < until);
    pr_endpoint_stop(of.endpoints[0].endpoint);
    atomic_store(&of.hold, false);
    path_stop(&of.endpoints[0]);
    long done = path_number(&of, "SELECT count(*) FROM effects");
    assert_in_range(done, 0, 59);
    ground_wait_depth(at, "billing", 60 - done, "given back");
    path_endpoint_start(&of, 1);
    path_check_whole(&of, "after the stop");
    ground_wait_depth(at, "billing", 0, "acked");
    assert_int_equal(ground_depth(at, "billing.dead"), 0);
    path_end(&of);
}

static void publish_stranger(const ground *at, const char *id, const char *headers_name)
{
    amqp_connection_state_t line = amqp_new_connection();
    amqp_socket_t *tcp = amqp_tcp_socket_new(line);
    amqp_table_entry_t odd = {
        .key = amqp_cstring_bytes(headers_name ? headers_name : "x"),
        .value = {.kind = AMQP_FIELD_KIND_UTF8, .value.bytes = amqp_cstring_bytes("no number")}};
    amqp_basic_properties_t properties = {._flags = AMQP_BASIC_HEADERS_FLAG, .headers = {1, &odd}};
    if (id) {
        properties._flags |= AMQP_BASIC_MESSAGE_ID_FLAG;
        properties.message_id = amqp_cstring_bytes(id);
    }
    assert_int_equal(amqp_socket_open(tcp, "localhost", rabbitmq_server_port(at->server)), 0);
    assert_int_equal(
        amqp_login(line, at->vhost, 0, 131072, 0, AMQP_SASL_METHOD_PLAIN, at->vhost, RIG_PASSWORD)
            .reply_type,
        AMQP_RESPONSE_NORMAL);
    assert_non_null(amqp_channel_open(line, 1));
    assert_int_equal(amqp_basic_publish(line, 1, amqp_empty_bytes, amqp_cstring_bytes("billing"),
                                        false, false, &properties, amqp_cstring_bytes("stranger")),
                     0);
    amqp_connection_close(line, AMQP_REPLY_SUCCESS);
    amqp_destroy_connection(line);
}

/* --- another language --------------------------------------------------------------------------*/

#define NO_CLIENT 77 /* exit status of the script */

static void python(const ground *at, const char *what)
{
    int how = 0;
    pid_t child = fork();
    if (child == 0) {
        dup2(2, 1); /* standard output is for TAP */
        execl("/usr/bin/python3", "python3", getenv("POSTROOM_WIRE_SCRIPT"), what, at->uri,
              (char *)NULL);
        _exit(127);
    }
    assert_true(child > 0 && waitpid(child, &how, 0) == child);
    const char *required = getenv("POSTROOM_REQUIRE_BACKENDS");
    if (WIFEXITED(how) && WEXITSTATUS(how) == NO_CLIENT && !(required && *required == '1'))
        skip(); /* Debian: python3-pika */
    if (!WIFEXITED(how) || WEXITSTATUS(how) != 0)
        fail_msg("wire.py %s: status %d", what, how);
}

static void check_text(const char *got, const char *wanted, const char *label)
{
    if (!got || strcmp(got, wanted) != 0)
        fail_msg("%s: '%s', wanted '%s'", label, got ? got : "NULL", wanted);
}

static void check_all_of_it(const pr_message *got)
{
    check_text(got->type, RIG_TYPE, "type");
    check_text(got->content_type, "application/json", "content type");
    check_text(got->correlation_id, "talk-1", "correlation id");
    check_text(got->key, "customer-1", "key");
    check_text(got->tenant, "north", "tenant");
    check_text(got->source, "python", "source");
    check_text(got->causation_id, "a cause", "causation id");
    check_text(got->traceparent, "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
               "traceparent");
    assert_int_equal(got->type_version, 2);
    assert_int_equal(got->occurred_at_us, 1769860800250000);
    assert_int_equal(got->expires_at_us, 4102444800000001);
    assert_int_equal(got->body_size_bytes, 12);
    static const char *const parts[] = {
        "\"text\":\"té\"",
        "\"int\":{\"int\":7}",
        "\"flag\":{\"bool\":true}",
        "\"nothing\":{\"void\":",
        "\"when\":{\"instant\":\"2026-01-31T12:00:00",
        "\"price\":{\"decimal\":",
        "\"table\":{\"table\":",
    };
    for (size_t i = 0; i < COUNT_OF(parts); i++)
        if (!strstr(got->headers ? got->headers : "", parts[i]))
            fail_msg("no %s in the headers %s", parts[i], got->headers);
}

static void python_produces(ground *at)
{
    pr_error err = PR_ERROR_INIT;
    pr_subscription *billing = NULL;
    check_ok(rig_subscribe(&at->rig, &billing, &err), &err, "subscribe");
    python(at, "produce");
    pr_delivery first = rig_receive(billing, "all of it");
    pr_delivery second = rig_receive(billing, "the least of it");
    check_text(first.message.id, "018e0000-0000-7000-8000-00000000beef", "id");
    check_all_of_it(&first.message);
    check_text(second.message.id, "any text", "id");
    check_text(second.message.type, RIG_TYPE, "type");
    assert_int_equal(second.message.type_version, 1);
    assert_int_equal(second.message.body_size_bytes, 0);
    check_ok(pr_subscription_settle(billing, first.tag, PR_VERDICT_ACK, 0, &err), &err, "ack");
    check_ok(pr_subscription_settle(billing, second.tag, PR_VERDICT_ACK, 0, &err), &err, "ack");
    rig_unsubscribe(&at->rig);
}

static void enqueue_all_of_it(path *of)
{
    const pr_message message =
        PR_MESSAGE(.type = RIG_TYPE, .type_version = 3, .content_type = "application/x-odd",
                   .destination = "rabbitmq://topic/" RIG_TYPE, .source = "shop/1", .key = "kéy",
                   .tenant = "north", .correlation_id = "talk-2", .causation_id = "before",
                   .tracestate = "vendor=value",
                   .traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
                   .headers = "{\"a\":\"b\",\"n\":{\"int\":7},\"f\":{\"bool\":true}}",
                   .body = "\0\377body", .body_size_bytes = 6, .occurred_at_us = 1767225600123456,
                   .expires_at_us = 4102444800000001);
    enqueue_and_commit(of->host, &message);
}

/* Produced by Python and received by us; sent by our relay and taken by Python. */
void another_language_speaks_it(ground *at, const store_provider *provider)
{
    path of;
    rig_attach(&at->rig, at->uri, NULL);
    rig_recover(&at->rig, "topology");
    python_produces(at);
    python(at, "bind");
    path_begin(&of, at, provider);
    enqueue_all_of_it(&of);
    path_relay_start(&of);
    ground_wait_depth(at, "python", 1, "relayed");
    python(at, "consume");
    path_end(&of);
}

/* What others put into our queue: without an id, or with headers of ours that say nonsense. */
void strangers_end_in_dead_once(ground *at, const store_provider *provider)
{
    path of;
    path_begin(&of, at, provider);
    rig_attach(&at->rig, at->uri, NULL);
    rig_recover(&at->rig, "topology");
    ground_queue(at);
    publish_stranger(at, NULL, NULL);
    publish_stranger(at, "stranger-1", "postroom-type-version");
    path_relay_start(&of);
    path_endpoint_start(&of, 0);
    path_enqueue(&of, 5);
    path_wait_effects(&of, 5, SOON_MS, "the others");
    ground_wait_depth(at, "billing", 0, "none is left");
    for (int64_t until = rig_now_ms() + SOON_MS;
         ground_depth(at, "billing.dead") +
             path_number(&of, "SELECT count(*) FROM {p}_inbox_parked WHERE state = 'dead'") <
         2;)
        assert_true(rig_now_ms() < until);
    int calls = atomic_load(&of.calls);
    usleep(200000);
    assert_int_equal(calls, atomic_load(&of.calls)); /* in no loop */
    assert_int_equal(calls, 5);
    path_end(&of);
}
