/*
 * The RabbitMQ transport on a real broker: what brokers and those who look after them do to it,
 * each once. The fake broker has the fine grain; this shows that the real one does the same.
 */
#include "amqp/flood.h"
#include "amqp/ground.h"
#include "amqp/path_cases.h"
#include "contract/postgres_world.h"
#include "contract/sqlite_provider.h"
#include "support/tcp_proxy.h"

/* --- what others do to the broker -------------------------------------------------------------*/

static void publish_until(ground *at, pr_submit_outcome wanted, const char *path, const char *label)
{
    amqp_rig *rig = &at->rig;
    int64_t until = rig_now_ms() + RIG_PATIENCE;
    for (pr_submit_outcome outcome = 0; outcome != wanted;) {
        if (rig_now_ms() > until)
            fail_msg("case '%s': outcome %d, wanted %d", label, (int)outcome, (int)wanted);
        rig_forget(rig);
        rig_post *post = rig_posts(rig, 1);
        post->message.destination = path;
        rig_submit(rig, label);
        rig_outcomes(rig, label);
        outcome = post->outcome.outcome;
    }
}

static void a_queue_and_a_binding_go(void **state)
{
    ground *at = *state;
    static const char topic[] = "rabbitmq://topic/" RIG_TYPE;
    ground_up(at, NULL);
    ground_queue(at);
    publish_until(at, PR_SUBMIT_CONFIRMED, topic, "bound");
    rabbitmq_server_eval(at->server, NULL, 0,
                         "[rabbit_binding:remove(B, <<\"test\">>) || B <- "
                         "rabbit_binding:list_for_source(rabbit_misc:r(<<\"%s\">>, exchange, "
                         "<<\"shop\">>))]",
                         at->vhost);
    publish_until(at, PR_SUBMIT_RETURNED, topic, "unbound");
    ground_queue(at); /* declared again */
    publish_until(at, PR_SUBMIT_CONFIRMED, topic, "bound again");
    rabbitmq_server_eval(at->server, NULL, 0,
                         "{ok, Q} = rabbit_amqqueue:lookup(rabbit_misc:r(<<\"%s\">>, queue, "
                         "<<\"billing\">>)), rabbit_amqqueue:delete(Q, false, false, <<\"test\">>)",
                         at->vhost);
    publish_until(at, PR_SUBMIT_RETURNED, "rabbitmq://in/billing", "no queue");
    ground_queue(at);
    publish_until(at, PR_SUBMIT_CONFIRMED, "rabbitmq://in/billing", "the queue anew");
    assert_int_equal(rig_stats(&at->rig).failures, 0);
}

static void a_queue_goes_under_its_consumer(void **state)
{
    ground *at = *state;
    pr_error err = PR_ERROR_INIT;
    pr_subscription *billing = NULL;
    ground_up(at, NULL);
    check_ok(rig_subscribe(&at->rig, &billing, &err), &err, "subscribe");
    rig_works(&at->rig, "before");
    pr_delivery before = rig_receive(billing, "before");
    rabbitmq_server_eval(at->server, NULL, 0,
                         "{ok, Q} = rabbit_amqqueue:lookup(rabbit_misc:r(<<\"%s\">>, queue, "
                         "<<\"billing\">>)), rabbit_amqqueue:delete(Q, false, false, <<\"test\">>)",
                         at->vhost);
    for (int64_t until = rig_now_ms() + GROUND_CURE_MS; ground_depth(at, "billing") < 0;) {
        rig_receive_nothing(billing, 20, "deleted");
        assert_true(rig_now_ms() < until);
    }
    (void)!pr_subscription_settle(billing, before.tag, PR_VERDICT_ACK, 0, &err);
    ground_works_again(at, "after");
    pr_delivery after = rig_receive(billing, "after");
    pr_error_clear(&err);
    check_ok(pr_subscription_settle(billing, after.tag, PR_VERDICT_ACK, 0, &err), &err, "after");
    assert_true(rig_stats(&at->rig).cancels == 1);
    rig_unsubscribe(&at->rig);
}

static void a_memory_alarm_blocks_and_loses_nothing(void **state)
{
    ground *at = *state;
    amqp_rig *rig = &at->rig;
    int64_t alarm_ms = getenv("POSTROOM_SOAK") ? 20000 : 2000;
    const pr_amqp_options options =
        PR_AMQP_OPTIONS(.flags = PR_AMQP_DECLARE, .publish_deadline_ms = 60000);
    ground_up(at, &options);
    ground_queue(at);
    rig_works(rig, "before");
    ground_alarm(at, true);
    rig_submit_until_blocked(rig, "memory", "the alarm");
    rig_no_outcome(rig, alarm_ms, "the alarm");
    assert_int_equal(rig_state(rig).kind, PR_TRANSPORT_BLOCKED);
    ground_alarm(at, false);
    rig_outcomes(rig, "drains");
    rig_wait_state(rig, PR_TRANSPORT_UP, "", "the alarm is over");
    rig_works(rig, "after");
    for (size_t i = 0; i < rig->submitted; i++)
        assert_int_equal(rig->posts[i].outcome.outcome, PR_SUBMIT_CONFIRMED);
    assert_true(ground_depth(at, "billing") == (int64_t)rig->submitted);

    /* stop works while it is blocked */
    ground_alarm(at, true);
    rig_submit_until_blocked(rig, "memory", "the second alarm");
    int64_t begun = rig_now_ms();
    pr_transport_free(rig->transport);
    rig->transport = NULL;
    assert_true(rig_now_ms() - begun < 3000);
    ground_alarm(at, false);
}

/* A full queue that rejects: some are confirmed, the others refused, one by one. */
static void a_full_queue_refuses(void **state)
{
    ground *at = *state;
    amqp_rig *rig = &at->rig;
    unsigned confirmed = 0, refused = 0;
    ground_up(at, NULL);
    rabbitmq_server_eval(at->server, NULL, 0,
                         "rabbit_amqqueue:declare(rabbit_misc:r(<<\"%s\">>, queue, <<\"full\">>), "
                         "true, false, [{<<\"x-max-length\">>, long, 2}, {<<\"x-overflow\">>, "
                         "longstr, <<\"reject-publish\">>}], none, <<\"test\">>)",
                         at->vhost);
    rig_post *posts = rig_posts(rig, 40);
    for (size_t i = 0; i < 40; i++)
        posts[i].message.destination = "rabbitmq://in/full";
    rig_submit(rig, "a full queue");
    rig_outcomes(rig, "a full queue");
    for (size_t i = 0; i < 40; i++) {
        confirmed += posts[i].outcome.outcome == PR_SUBMIT_CONFIRMED;
        refused += posts[i].outcome.outcome == PR_SUBMIT_REFUSED;
    }
    assert_int_equal(confirmed + refused, 40);
    assert_int_equal(confirmed, ground_depth(at, "full"));
    assert_true(refused > 0);
    assert_int_equal(rig_stats(rig).connects, 1);
}

static void set_write(ground *at, const char *pattern)
{
    rabbitmq_server_eval(at->server, NULL, 0,
                         "U = <<\"%s\">>, A = <<\".*\">>, rabbit_auth_backend_internal:"
                         "set_permissions(U, U, A, <<\"%s\">>, A, <<\"test\">>)",
                         at->vhost, pattern);
}

static void close_all(ground *at)
{
    rabbitmq_server_eval(at->server, NULL, 0,
                         "rabbit_networking:close_all_connections(\"by the operator\")");
}

/* The permission to publish goes: nobody is charged, the cause is told, and it comes back. */
static void a_permission_goes_and_comes(void **state)
{
    ground *at = *state;
    amqp_rig *rig = &at->rig;
    ground_up(at, NULL);
    ground_queue(at);
    rig_works(rig, "allowed");
    set_write(at, "^$");
    close_all(at); /* a channel remembers what it may */
    rig_forget(rig);
    rig_recover(rig, "closed by the operator");
    publish_until(at, PR_SUBMIT_LOST, "rabbitmq://topic/" RIG_TYPE, "not allowed");
    assert_non_null(strstr(rig->posts[0].outcome.reason, "ACCESS_REFUSED"));
    set_write(at, ".*");
    ground_works_again(at, "allowed again");
}

static void a_vhost_goes_and_comes(void **state)
{
    ground *at = *state;
    ground_up(at, NULL);
    ground_queue(at);
    rig_works(&at->rig, "before");
    rig_forget(&at->rig);
    rabbitmq_server_vhost_remove(at->server, at->vhost);
    rig_wait_state(&at->rig, PR_TRANSPORT_DOWN, at->vhost, "gone");
    rabbitmq_server_vhost(at->server, at->vhost);
    set_write(at, ".*");
    rig_recover(&at->rig, "back");
    ground_queue(at);
    ground_works_again(at, "back");
}

static void set_password(ground *at, const char *password)
{
    rabbitmq_server_eval(at->server, NULL, 0,
                         "rabbit_auth_backend_internal:change_password(<<\"%s\">>, <<\"%s\">>, "
                         "<<\"test\">>)",
                         at->vhost, password);
}

static void a_login_is_refused(void **state)
{
    ground *at = *state;
    pr_error err = PR_ERROR_INIT;
    set_password(at, "another");
    rig_attach(&at->rig, at->uri, NULL);
    assert_int_equal(pr_transport_open(at->rig.transport, 3000, &err), PR_E_BACKEND);
    rig_check_text(err.message);
    assert_non_null(strstr(err.message, "ACCESS_REFUSED"));
    rig_wait_state(&at->rig, PR_TRANSPORT_DOWN, "ACCESS_REFUSED", "refused");
    set_password(at, RIG_PASSWORD);
    rig_recover(&at->rig, "the right password");
    ground_queue(at);
    ground_works_again(at, "the right password");
}

static void closed_by_the_operator(void **state)
{
    ground *at = *state;
    pr_error err = PR_ERROR_INIT;
    pr_subscription *billing = NULL;
    ground_up(at, NULL);
    check_ok(rig_subscribe(&at->rig, &billing, &err), &err, "subscribe");
    rig_works(&at->rig, "before");
    pr_delivery before = rig_receive(billing, "before");
    close_all(at);
    ground_works_again(at, "after");
    pr_delivery again = rig_receive(billing, "after");
    pr_error_clear(&err);
    pr_status status = pr_subscription_settle(billing, before.tag, PR_VERDICT_ACK, 0, &err);
    check_error(status, &err, PR_E_FENCED, "", "a tag from before");
    pr_error_clear(&err);
    check_ok(pr_subscription_settle(billing, again.tag, PR_VERDICT_ACK, 0, &err), &err, "after");
    rig_unsubscribe(&at->rig);
}

/* --- consumers --------------------------------------------------------------------------------*/

/* The broker closes the channel of who is too slow; the delivery comes again, its tag is stale. */
static void a_consumer_timeout_is_survived(void **state)
{
    ground *at = *state;
    pr_error err = PR_ERROR_INIT;
    pr_subscription *billing = NULL;
    rabbitmq_server_eval(at->server, NULL, 0, "application:set_env(rabbit, consumer_timeout, 500)");
    ground_up(at, NULL);
    check_ok(rig_subscribe(&at->rig, &billing, &err), &err, "subscribe");
    rig_works(&at->rig, "one");
    pr_delivery slow = rig_receive(billing, "slow");
    pr_delivery again = rig_receive(billing, "again");
    rabbitmq_server_eval(at->server, NULL, 0,
                         "application:set_env(rabbit, consumer_timeout, 1800000)");
    assert_true(again.redelivered);
    pr_status status = pr_subscription_settle(billing, slow.tag, PR_VERDICT_ACK, 0, &err);
    check_error(status, &err, PR_E_FENCED, "", "the slow one's tag");
    assert_true(rig_stats(&at->rig).stale_tags == 1);
    pr_error_clear(&err);
    (void)!pr_subscription_settle(billing, again.tag, PR_VERDICT_ACK, 0, &err);
    rig_unsubscribe(&at->rig);
}

static void check_next(pr_subscription *billing, const char *body)
{
    pr_error err = PR_ERROR_INIT;
    pr_delivery next = rig_receive(billing, body);
    assert_int_equal(next.message.body_size_bytes, strlen(body));
    assert_memory_equal(next.message.body, body, strlen(body));
    check_ok(pr_subscription_settle(billing, next.tag, PR_VERDICT_ACK, 0, &err), &err, body);
}

/* Three of a key go back, the youngest first; what has no key passes them, and no other does. */
static void what_goes_back_keeps_the_order_of_its_key(ground *at, uint32_t queue_kind)
{
    static const size_t wanted[] = {3, 0, 1, 2, 4};
    pr_error err = PR_ERROR_INIT;
    pr_subscription *billing = NULL;
    pr_delivery back[3];
    char body[32];
    const pr_amqp_options options =
        PR_AMQP_OPTIONS(.flags = PR_AMQP_DECLARE, .queue_kind = queue_kind);
    ground_up(at, &options);
    check_ok(rig_subscribe(&at->rig, &billing, &err), &err, "subscribe");
    rig_post *posts = rig_posts(&at->rig, COUNT_OF(wanted));
    for (size_t i = 0; i < COUNT_OF(wanted); i++)
        posts[i].message.key = i == 3 ? NULL : "k";
    rig_submit(&at->rig, "keyed");
    rig_outcomes(&at->rig, "keyed");
    for (size_t i = 0; i < COUNT_OF(back); i++)
        back[i] = rig_receive(billing, "handed out");
    for (size_t i = COUNT_OF(back); i-- > 0;)
        check_ok(pr_subscription_settle(billing, back[i].tag, PR_VERDICT_REQUEUE, 300, &err), &err,
                 "back");
    for (size_t i = 0; i < COUNT_OF(wanted); i++) {
        (void)snprintf(body, sizeof body, "body %zu", wanted[i]);
        check_next(billing, body);
    }
    rig_unsubscribe(&at->rig);
}

static void a_classic_queue_keeps_the_order_of_a_key(void **state)
{
    what_goes_back_keeps_the_order_of_its_key(*state, PR_AMQP_QUEUE_CLASSIC);
}

static void a_quorum_queue_keeps_the_order_of_a_key(void **state)
{
    what_goes_back_keeps_the_order_of_its_key(*state, PR_AMQP_QUEUE_QUORUM);
}

static void a_delivery_limit_ends_in_the_dead_queue(void **state)
{
    ground *at = *state;
    pr_error err = PR_ERROR_INIT;
    pr_subscription *billing = NULL;
    const pr_amqp_options options =
        PR_AMQP_OPTIONS(.flags = PR_AMQP_DECLARE, .queue_kind = PR_AMQP_QUEUE_QUORUM);
    rabbitmq_server_eval(at->server, NULL, 0,
                         "rabbit_policy:set(<<\"%s\">>, <<\"limit\">>, <<\"^billing$\">>, "
                         "[{<<\"delivery-limit\">>, 2}], 0, <<\"queues\">>, <<\"test\">>)",
                         at->vhost);
    ground_up(at, &options);
    check_ok(rig_subscribe(&at->rig, &billing, &err), &err, "subscribe");
    rig_works(&at->rig, "one");
    for (uint32_t i = 0; i < 3; i++) {
        pr_delivery delivery = rig_receive(billing, "requeued");
        assert_int_equal(delivery.delivery_count, i);
        check_ok(pr_subscription_settle(billing, delivery.tag, PR_VERDICT_REQUEUE, 0, &err), &err,
                 "requeue");
    }
    ground_wait_depth(at, "billing.dead", 1, "beyond the limit");
    rig_receive_nothing(billing, 100, "it does not come again");
    rig_unsubscribe(&at->rig);
}

/* --- networks ---------------------------------------------------------------------------------*/

/* The broker has it, and nobody hears of it: lost, and sent again it is there twice. */
static void a_confirm_is_withheld_then_cut(void **state)
{
    ground *at = *state;
    amqp_rig *rig = &at->rig;
    char uri[RABBITMQ_URI_SIZE];
    tcp_proxy *proxy = tcp_proxy_start(rabbitmq_server_port(at->server));
    snprintf(uri, sizeof uri, "amqp://%s:" RIG_PASSWORD "@localhost:%d/%s", at->vhost,
             tcp_proxy_port(proxy), at->vhost);
    rig_attach(rig, uri, NULL);
    rig_recover(rig, "through the proxy");
    ground_queue(at);
    rig_works(rig, "through the proxy");
    tcp_proxy_withhold(proxy, true);
    rig_post *post = rig_posts(rig, 1);
    rig_submit(rig, "withheld");
    ground_wait_depth(at, "billing", 2, "the broker has it");
    rig_no_outcome(rig, 50, "withheld");
    tcp_proxy_cut(proxy);
    tcp_proxy_withhold(proxy, false);
    rig_outcomes(rig, "cut");
    assert_int_equal(post->outcome.outcome, PR_SUBMIT_LOST);
    assert_false(post->outcome.suspect); /* a network, not a message */
    ground_works_again(at, "sent again");
    ground_wait_depth(at, "billing", 3, "sent again");
    pr_transport_free(rig->transport);
    rig->transport = NULL;
    tcp_proxy_free(proxy);
}

/* A broker that is there and says nothing: our own deadline decides. */
static void a_frozen_broker_is_given_up(void **state)
{
    ground *at = *state;
    amqp_rig *rig = &at->rig;
    const pr_amqp_options options =
        PR_AMQP_OPTIONS(.flags = PR_AMQP_DECLARE, .publish_deadline_ms = 500);
    ground_up(at, &options);
    ground_queue(at);
    rig_works(rig, "before");
    rabbitmq_server_do(at->server, "freeze");
    rig_post *posts = rig_posts(rig, 3);
    int64_t begun = rig_now_ms();
    rig_submit(rig, "frozen");
    rig_outcomes(rig, "frozen");
    int64_t took = rig_now_ms() - begun;
    rabbitmq_server_do(at->server, "thaw");
    assert_true(took < 3000);
    for (size_t i = 0; i < 3; i++)
        assert_int_equal(posts[i].outcome.outcome, PR_SUBMIT_LOST);
    ground_works_again(at, "thawed");
}

static void tls_is_verified(void **state)
{
    ground *at = *state;
    static const struct {
        const char *label, *scheme, *host;
        const char *ca; /* NULL: the system's */
        const char *more;
        bool tls_port, accepted;
    } cases[] = {
        {"the right authority", "amqps", "localhost", "ca.pem", "", true, true},
        {"another authority", "amqps", "localhost", "other-ca.pem", "", true, false},
        {"the system's authorities", "amqps", "localhost", NULL, "", true, false},
        {"another host than it says", "amqps", "127.0.0.1", "ca.pem", "", true, false},
        {"no such file", "amqps", "localhost", "none.pem", "", true, false},
        {"verified by nobody, as asked for", "amqps", "127.0.0.1", NULL, "&verify=verify_none",
         true, true},
        {"plain text where TLS is", "amqp", "localhost", NULL, "", true, false},
        {"TLS where plain text is", "amqps", "localhost", "ca.pem", "", false, false},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        pr_error err = PR_ERROR_INIT;
        char ca[300] = "", uri[900];
        if (cases[i].ca)
            snprintf(ca, sizeof ca, "&cacertfile=%s/tls/%s", rabbitmq_server_folder(at->server),
                     cases[i].ca);
        snprintf(uri, sizeof uri, "%s://%s:" RIG_PASSWORD "@%s:%d/%s?connection_timeout=2000%s%s",
                 cases[i].scheme, at->vhost, cases[i].host,
                 cases[i].tls_port ? rabbitmq_server_tls_port(at->server)
                                   : rabbitmq_server_port(at->server),
                 at->vhost, ca, cases[i].more);
        rig_attach(&at->rig, uri, NULL);
        pr_status status = pr_transport_open(at->rig.transport, 4000, &err);
        rig_check_text(err.message);
        if ((status == PR_OK) != cases[i].accepted)
            fail_msg("case '%s': %s: %s", cases[i].label, pr_status_text(status), err.message);
        if (!cases[i].accepted) {
            rig_wait_state(&at->rig, PR_TRANSPORT_DOWN, cases[i].host, cases[i].label);
            continue;
        }
        ground_queue(at);
        rig_works(&at->rig, cases[i].label);
        rig_forget(&at->rig);
    }
    assert_int_equal(ground_depth(at, "billing"), 2);
}

static void a_client_certificate_is_shown(void **state)
{
    ground *at = *state;
    char uri[900];
    const char *folder = rabbitmq_server_folder(at->server);
    snprintf(uri, sizeof uri,
             "amqps://%s:" RIG_PASSWORD "@localhost:%d/%s?cacertfile=%s/tls/ca.pem&certfile="
             "%s/tls/client.pem&keyfile=%s/tls/client.key",
             at->vhost, rabbitmq_server_tls_port(at->server), at->vhost, folder, folder, folder);
    rig_attach(&at->rig, uri, NULL);
    rig_recover(&at->rig, "a client certificate");
    char shown[64];
    rabbitmq_server_eval(at->server, shown, sizeof shown,
                         "length([C || C <- rabbit_networking:connections(), "
                         "[{peer_cert_subject, S}] <- [rabbit_reader:info(C, "
                         "[peer_cert_subject])], S =/= '', S =/= <<>>, S =/= []])");
    assert_int_equal(strtol(shown, NULL, 10), 1);
}

/* --- topology, strangers, other languages -----------------------------------------------------*/

static void another_topology_is_reported(void **state)
{
    ground *at = *state;
    static const char *const types[] = {RIG_TYPE};
    pr_error err = PR_ERROR_INIT;
    const pr_subscribe_options options = {.size = (uint32_t)sizeof options,
                                          .endpoint = "billing",
                                          .types = types,
                                          .type_count = COUNT_OF(types)};
    ground_up(at, NULL);
    rabbitmq_server_eval(at->server, NULL, 0,
                         "rabbit_amqqueue:declare(rabbit_misc:r(<<\"%s\">>, queue, "
                         "<<\"billing\">>), true, false, [{<<\"x-max-length\">>, long, 7}], none, "
                         "<<\"test\">>)",
                         at->vhost);
    check_error(pr_transport_topology(at->rig.transport, &options, false, &err), &err,
                PR_E_CONFLICT, "billing", "declare over another");
    assert_non_null(strstr(err.message, "x-"));
    char kept[64];
    rabbitmq_server_eval(at->server, kept, sizeof kept,
                         "{ok, Q} = rabbit_amqqueue:lookup(rabbit_misc:r(<<\"%s\">>, queue, "
                         "<<\"billing\">>)), length(amqqueue:get_arguments(Q))",
                         at->vhost);
    assert_string_equal(kept, "1"); /* never fought */
    rig_check_text(err.message);
}

/* Without the flag a subscription makes nothing: it says what is missing, and works once it is
   there. */
static void topology_is_a_commands(void **state)
{
    ground *at = *state;
    pr_error err = PR_ERROR_INIT;
    pr_subscription *billing = NULL;
    const pr_amqp_options checking = PR_AMQP_OPTIONS(.flags = 0);
    ground_up(at, &checking);
    check_error(rig_subscribe(&at->rig, &billing, &err), &err, PR_E_NOT_FOUND, "billing",
                "nothing is declared");
    assert_int_equal(ground_depth(at, "billing"), -1);
    ground_queue(at);
    check_ok(rig_subscribe(&at->rig, &billing, &err), &err, "declared");
    rig_unsubscribe(&at->rig);
}

static void restarts_lose_nothing(void **state)
{
    flood_over_restarts(*state, getenv("POSTROOM_SOAK") != NULL);
}

/* --- the whole way, on both stores -------------------------------------------------------------*/

#define ON_BOTH(name)                                                                              \
    static void name##_sqlite(void **state)                                                        \
    {                                                                                              \
        name(*state, &sqlite_provider);                                                            \
    }                                                                                              \
    static void name##_postgres(void **state)                                                      \
    {                                                                                              \
        name(*state, &postgres_provider);                                                          \
    }
ON_BOTH(the_whole_way)
ON_BOTH(an_alarm_touches_no_database)
ON_BOTH(the_way_outlives_a_restart)
ON_BOTH(a_clean_stop_loses_and_charges_nothing)
ON_BOTH(strangers_end_in_dead_once)
#undef ON_BOTH

static void another_language(void **state)
{
    another_language_speaks_it(*state, &sqlite_provider);
}

static int suite(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, ground_setup, ground_teardown)
    const struct CMUnitTest tests[] = {
        CASE(a_queue_and_a_binding_go),
        CASE(a_queue_goes_under_its_consumer),
        CASE(a_memory_alarm_blocks_and_loses_nothing),
        CASE(a_full_queue_refuses),
        CASE(a_permission_goes_and_comes),
        CASE(a_vhost_goes_and_comes),
        CASE(a_login_is_refused),
        CASE(closed_by_the_operator),
        CASE(a_consumer_timeout_is_survived),
        CASE(a_classic_queue_keeps_the_order_of_a_key),
        CASE(a_quorum_queue_keeps_the_order_of_a_key),
        CASE(a_delivery_limit_ends_in_the_dead_queue),
        CASE(a_confirm_is_withheld_then_cut),
        CASE(a_frozen_broker_is_given_up),
        CASE(tls_is_verified),
        CASE(a_client_certificate_is_shown),
        CASE(another_topology_is_reported),
        CASE(topology_is_a_commands),
        CASE(the_whole_way_sqlite),
        CASE(the_whole_way_postgres),
        CASE(an_alarm_touches_no_database_sqlite),
        CASE(an_alarm_touches_no_database_postgres),
        CASE(a_clean_stop_loses_and_charges_nothing_sqlite),
        CASE(a_clean_stop_loses_and_charges_nothing_postgres),
        CASE(strangers_end_in_dead_once_sqlite),
        CASE(strangers_end_in_dead_once_postgres),
        CASE(another_language),
        CASE(the_way_outlives_a_restart_sqlite),
        CASE(the_way_outlives_a_restart_postgres),
        CASE(restarts_lose_nothing),
    };
#undef CASE
    cmocka_set_message_output(CM_OUTPUT_TAP);
    if (getenv("POSTROOM_CASES")) /* a pattern, for who looks for a fault */
        cmocka_set_test_filter(getenv("POSTROOM_CASES"));
    return cmocka_run_group_tests_name("RabbitMQ", tests, ground_group_setup,
                                       ground_group_teardown);
}

int main(void)
{
    return postgres_suite_run(suite);
}
