/*
 * What the cases of the transport suite share: a world, its transports, messages, and the loops
 * that publish and collect.
 */
#ifndef PR_TESTS_TRANSPORT_FIXTURE_H
#define PR_TESTS_TRANSPORT_FIXTURE_H

#include "support/test.h"

#include "contract/transport_provider.h"

#define TYPE_PLACED  "urn:message:shop:order-placed"
#define TYPE_PAID    "urn:message:shop:order-paid"
#define TYPE_UNKNOWN "urn:message:shop:nobody-cares"

#define POSTS_MAX    2048

/* A message with the memory that it points to. */
typedef struct post {
    char id[37];
    char destination[160];
    char key[32];
    char body[64];
    pr_message message;
} post;

typedef struct fixture {
    const transport_provider *provider;
    void *world;
    pr_transport *transports[4]; /* opened on first use; freed by the teardown */
    pr_subscription *subscriptions[8];
    size_t subscription_count;
    post *posts; /* POSTS_MAX */
    size_t post_count;
    uint64_t next_ticket;
    uint32_t random; /* a fixed seed: a failure can be repeated */
} fixture;

int fixture_setup(void **state);
int fixture_teardown(void **state);

pr_transport *transport_at(fixture *fix, size_t index); /* window 64 */
uint32_t random_below(fixture *fix, uint32_t limit);

/* The next message: to "<transport>://<path>", key NULL = none. Its body is its number as text. */
post *post_to(fixture *fix, const char *path, const char *key);
size_t post_number(const pr_message *message); /* which post a delivery is; fails if none */

/* Submit count posts and poll until each had its outcome; all must be `wanted`. */
void publish(fixture *fix, pr_transport *transport, post *posts, size_t count,
             pr_submit_outcome wanted);
pr_submitted publish_one(fixture *fix, pr_transport *transport, const post *one);

/* Subscribe to TYPE_PLACED, or as the options say; the teardown closes it. */
pr_subscription *subscribe(fixture *fix, pr_transport *transport, const char *endpoint,
                           uint32_t prefetch);
pr_subscribe_options options_of(const char *endpoint);
pr_subscription *subscribe_with(fixture *fix, pr_transport *transport,
                                const pr_subscribe_options *options);
void unsubscribe(fixture *fix, pr_subscription *subscription); /* closes it */

/* Receive exactly count deliveries, in the provider's patience. */
void receive_exactly(fixture *fix, pr_subscription *subscription, pr_delivery *ret_deliveries,
                     size_t count);
/* Nothing comes for a while. */
void receive_nothing(fixture *fix, pr_subscription *subscription);
void settle(pr_subscription *subscription, uint64_t tag, pr_verdict verdict);
void settle_fenced(pr_subscription *subscription, uint64_t tag, const char *label);
/* Receive and ack `count` deliveries; seen[number] counts each. */
void drain(fixture *fix, pr_subscription *subscription, size_t count, unsigned *seen);

int64_t now_ms(void);

#endif
