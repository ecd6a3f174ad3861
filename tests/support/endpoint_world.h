/*
 * What every world of endpoints has: an order that is sent to the topic of its type, the counters,
 * and what a handler may do. What else a world is, its own header says.
 */
#ifndef PR_TESTS_SUPPORT_ENDPOINT_WORLD_H
#define PR_TESTS_SUPPORT_ENDPOINT_WORLD_H

#include <postroom/endpoint.h>
#include <postroom/memory.h>

#define TYPE_ORDER  "urn:message:shop:order-placed"
#define TYPE_FOLLOW "urn:message:billing:invoice-written"
#define CONSUMER    "billing"
#define EFFECTS     "SELECT count(*) FROM effects"

typedef struct world world;

/* Sent, and confirmed; id and key may be NULL (then the transport's message has none). */
void order_send(pr_transport *sender, const char *id, const char *key, const char *body);
void order_send_message(pr_transport *sender, const pr_message *message);

pr_endpoint_snapshot endpoint_snapshot(pr_endpoint *endpoint);

/* What the handler does, after it has written its effect. */
typedef pr_handled (*world_act)(world *w, pr_scope *scope);
pr_handled act_ok(world *w, pr_scope *scope);
pr_handled act_retry(world *w, pr_scope *scope);
pr_handled act_permanent(world *w, pr_scope *scope);

#endif
