/*
 * The ground of the cases on a real broker.
 */
#include "amqp/ground.h"

int ground_group_setup(void **state)
{
    ground *at = calloc(1, sizeof *at);
    const rabbitmq_server_options options = {.tls = true};
    assert_non_null(at);
    at->server = rabbitmq_server_start(&options);
    /* channels look at their consumers often, so that consumer_timeout is a matter of seconds */
    rabbitmq_server_eval(at->server, NULL, 0,
                         "application:set_env(rabbit, channel_tick_interval, 300)");
    *state = at;
    return 0;
}

int ground_group_teardown(void **state)
{
    ground *at = *state;
    rabbitmq_server_free(at->server);
    free(at);
    return 0;
}

int ground_setup(void **state)
{
    ground *at = *state;
    ground_alarm(at, false); /* of a case that failed */
    snprintf(at->vhost, sizeof at->vhost, "case%u", ++at->cases);
    rabbitmq_server_vhost(at->server, at->vhost);
    rabbitmq_server_eval(
        at->server, NULL, 0,
        "U = <<\"%s\">>, A = <<\".*\">>, rabbit_auth_backend_internal:add_user(U, <<\"%s\">>, "
        "<<\"test\">>), rabbit_auth_backend_internal:set_permissions(U, U, A, A, A, <<\"test\">>)",
        at->vhost, RIG_PASSWORD);
    snprintf(at->uri, sizeof at->uri, "amqp://%s:" RIG_PASSWORD "@localhost:%d/%s", at->vhost,
             rabbitmq_server_port(at->server), at->vhost);
    at->rig = (amqp_rig){.broker = NULL};
    return 0;
}

int ground_teardown(void **state)
{
    ground *at = *state;
    rig_close(&at->rig);
    rabbitmq_server_eval(at->server, NULL, 0,
                         "V = <<\"%s\">>, case rabbit_vhost:exists(V) of true -> "
                         "rabbit_vhost:delete(V, <<\"test\">>); false -> ok end, "
                         "rabbit_auth_backend_internal:delete_user(V, <<\"test\">>)",
                         at->vhost);
    return 0;
}

void ground_up(ground *at, const pr_amqp_options *options)
{
    pr_error err = PR_ERROR_INIT;
    rig_attach(&at->rig, at->uri, options);
    check_ok(pr_transport_open(at->rig.transport, RIG_PATIENCE, &err), &err, "open");
}

void ground_queue(ground *at)
{
    static const char *const types[] = {RIG_TYPE};
    pr_error err = PR_ERROR_INIT;
    const pr_subscribe_options options = {.size = (uint32_t)sizeof options,
                                          .endpoint = "billing",
                                          .types = types,
                                          .type_count = COUNT_OF(types)};
    check_ok(pr_transport_topology(at->rig.transport, &options, false, &err), &err, "declare");
}

long ground_depth(ground *at, const char *queue)
{
    return rabbitmq_server_depth(at->server, at->vhost, queue);
}

void ground_wait_depth(ground *at, const char *queue, long wanted, const char *label)
{
    int64_t until = rig_now_ms() + 2 * RIG_PATIENCE;
    for (long depth; (depth = ground_depth(at, queue)) != wanted;)
        if (rig_now_ms() > until)
            fail_msg("case '%s': %ld in '%s', wanted %ld", label, depth, queue, wanted);
}

void ground_alarm(ground *at, bool set)
{
    rabbitmq_server_eval(at->server, NULL, 0,
                         set ? "rabbit_alarm:set_alarm({{resource_limit, memory, node()}, []})"
                             : "rabbit_alarm:clear_alarm({resource_limit, memory, node()})");
}

void ground_works_again(ground *at, const char *label)
{
    amqp_rig *rig = &at->rig;
    int64_t until = rig_now_ms() + GROUND_CURE_MS;
    for (pr_submit_outcome outcome = 0; outcome != PR_SUBMIT_CONFIRMED;) {
        if (rig_now_ms() > until)
            fail_msg("case '%s': not recovered: outcome %d, state '%s'", label, (int)outcome,
                     rig_state(rig).cause);
        pr_error err = PR_ERROR_INIT;
        if (rig_open(rig, &err) != PR_OK)
            continue;
        rig_forget(rig);
        rig_post *post = rig_posts(rig, 1);
        rig_submit(rig, label);
        rig_outcomes(rig, label);
        outcome = post->outcome.outcome;
    }
}
