/*
 * The whole way: capabilities 99, 105, 106, 107, 111 from the host's commit to the effect.
 */
#include "amqp/path_cases.h"

#include <unistd.h>

#include <amqp.h>
#include <amqp_framing.h>
#include <amqp_tcp_socket.h>

#include "amqp/path.h"

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
