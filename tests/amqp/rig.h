/*
 * What the fault cases share: a fake broker, a RabbitMQ transport on it, messages, and loops with a
 * deadline. Whatever the transport says passes by here, where a password would be found.
 */
#ifndef PR_TESTS_AMQP_RIG_H
#define PR_TESTS_AMQP_RIG_H

#include <postroom/amqp.h>

#include "support/fake_broker.h"
#include "support/test.h"

#define RIG_PASSWORD "canary-s3cret"
#define RIG_TYPE     "urn:message:shop:order-placed"
#define RIG_POSTS    64
#define RIG_PATIENCE PATIENCE_MS /* what must come has to come by then */
#define RIG_TIMEOUT  600         /* ms; an attempt ends earlier, by connection_timeout=150 */
#define RIG_ATTEMPTS 10          /* one that the machine paused ends too early, by its time */

typedef struct rig_post {
    char id[300];
    char body[32];
    pr_message message;
    pr_submitted outcome; /* its outcome is 0 as long as there is none */
} rig_post;

typedef struct amqp_rig {
    fake_broker *broker;
    pr_transport *transport;
    pr_subscription *subscription; /* closed by the teardown at the latest */
    rig_post posts[RIG_POSTS];     /* the ticket is the index */
    size_t submitted, ended;
} amqp_rig;

int rig_setup(void **state);
int rig_teardown(void **state);

/* A transport on the fake broker; options may be NULL; query: of the URI, without '?', may be NULL.
   Replaces the one before. */
void rig_connect(amqp_rig *rig, const pr_amqp_options *options, const char *query);
/* A transport on any broker. */
void rig_attach(amqp_rig *rig, const char *uris, const pr_amqp_options *options);
/* On the fake broker, opened. */
void rig_up(amqp_rig *rig, const pr_amqp_options *options);
/* Open it within RIG_TIMEOUT, and look for the password in what it says. */
pr_status rig_open(amqp_rig *rig, pr_error *err);
/* Open it again and again until it is up; fails after RIG_PATIENCE. */
void rig_recover(amqp_rig *rig, const char *label);

/* The state, looked at for the password. */
pr_transport_state rig_state(amqp_rig *rig);
/* Wait, with polls, until the state is of that kind and the cause has this text. */
void rig_wait_state(amqp_rig *rig, pr_transport_state_kind kind, const char *text,
                    const char *label);
/* Publish until the broker says that it is blocked. */
void rig_submit_until_blocked(amqp_rig *rig, const char *text, const char *label);
/* No password in what was said. */
void rig_check_text(const char *text);

/* The next messages, to "rabbitmq://in/billing"; the first of them. */
rig_post *rig_posts(amqp_rig *rig, size_t count);
/* All outcomes are there: begin with the first post again. */
void rig_forget(amqp_rig *rig);
/* Submit all that are not submitted; every one must be taken within the patience. */
void rig_submit(amqp_rig *rig, const char *label);
/* Poll until as many outcomes as submissions are there. */
void rig_outcomes(amqp_rig *rig, const char *label);
/* Poll for ms; no outcome may come. */
void rig_no_outcome(amqp_rig *rig, int64_t ms, const char *label);
/* Publish one, which must be confirmed: it works. One that is lost, because the machine took longer
   than the deadline of the case, is published again. */
void rig_works(amqp_rig *rig, const char *label);

/* A subscription to "billing"; the status and error are the caller's to look at. */
pr_status rig_subscribe(amqp_rig *rig, pr_subscription **ret_subscription, pr_error *err);
void rig_unsubscribe(amqp_rig *rig);
/* Close what is open, also of a case that failed. */
void rig_close(amqp_rig *rig);
/* Receive one within the patience. */
pr_delivery rig_receive(pr_subscription *subscription, const char *label);
/* Nothing comes within ms, whatever receive says. */
void rig_receive_nothing(pr_subscription *subscription, int64_t ms, const char *label);

pr_amqp_stats rig_stats(amqp_rig *rig);
int64_t rig_now_ms(void);

#endif
