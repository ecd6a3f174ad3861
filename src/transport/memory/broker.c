/*
 * The memory broker.
 *
 * Owns: the table of queues and the routing: topic/<urn> to every queue that takes the type,
 * in/<id> to the endpoint's queue, reply/<id> to a temporary one.
 * Keeps: a publish reaches all queues that it is for, or none; each is bounded.
 * Must not know: threads that wait, windows, deliveries in hand.
 */
#include "transport/memory/broker.h"

#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "base/text.h"
#include "port/route.h"

#define ORIGIN "memory.broker"

pr_status pr_memory_broker_new(pr_memory_broker **ret_broker, pr_error *err)
{
    if (!ret_broker)
        return pr__fail(err, PR_E_INVALID, ORIGIN, "ret_broker is NULL");
    pr_memory_broker *broker = pr__alloc(sizeof(*broker));
    if (!broker)
        return pr__fail_nomem(err, ORIGIN);
    pthread_mutex_init(&broker->lock, NULL);
    broker->queue_messages_max = PR__MEMORY_QUEUE_MESSAGES_MAX;
    broker->queue_bytes_max = PR__MEMORY_QUEUE_BYTES_MAX;
    broker->dead_max = PR__MEMORY_DEAD_MAX;
    broker->body_size_max = PR_BODY_SIZE_MAX;
    *ret_broker = broker;
    return PR_OK;
}

pr_memory_broker *pr_memory_broker_free(pr_memory_broker *broker)
{
    if (!broker)
        return NULL;
    while (broker->queues) {
        pr__queue *next = broker->queues->next;
        pr__queue_free(broker->queues);
        broker->queues = next;
    }
    pthread_mutex_destroy(&broker->lock);
    return pr__free(broker);
}

pr__queue *pr__broker_find(pr_memory_broker *broker, const char *name, bool temporary)
{
    for (pr__queue *queue = broker->queues; queue; queue = queue->next) {
        if (queue->temporary == temporary && strcmp(queue->name, name) == 0)
            return queue;
    }
    return NULL;
}

pr_status pr__broker_declare(pr_memory_broker *broker, const pr_subscribe_options *options,
                             pr__queue **ret_queue, pr_error *err)
{
    pr__queue *queue = pr__broker_find(broker, options->endpoint, options->temporary);
    if (queue && queue->temporary)
        return pr__fail(err, PR_E_CONFLICT, ORIGIN,
                        "the temporary subscription '%s' is open already; use another id",
                        options->endpoint);
    if (queue && !pr__queue_same_types(queue, options))
        return pr__fail(err, PR_E_CONFLICT, ORIGIN,
                        "endpoint '%s' stands with other types; use another id, or its types",
                        options->endpoint);
    if (!queue && broker->queue_count >= PR__MEMORY_QUEUES_MAX)
        return pr__fail(err, PR_E_LIMIT, ORIGIN, "the broker has %zu queues, at most %d",
                        broker->queue_count, PR__MEMORY_QUEUES_MAX);
    if (!queue) {
        queue = pr__queue_new(options);
        if (!queue)
            return pr__fail_nomem(err, ORIGIN);
        queue->next = broker->queues;
        broker->queues = queue;
        broker->queue_count++;
    }
    *ret_queue = queue;
    return PR_OK;
}

void pr__broker_drop_queue(pr_memory_broker *broker, pr__queue *queue)
{
    pr__queue **at = &broker->queues;
    while (*at != queue)
        at = &(*at)->next;
    *at = queue->next;
    broker->queue_count--;
    pr__queue_free(queue);
}

static bool is_for(const pr__queue *queue, const pr__route *route)
{
    switch (route->kind) {
    case PR__ROUTE_TOPIC:
        return pr__queue_takes_type(queue, route->type.text, route->type.size);
    case PR__ROUTE_IN:
        return !queue->temporary && pr__span_equal(route->endpoint, queue->name) &&
               (!route->type.text ||
                pr__queue_takes_type(queue, route->type.text, route->type.size));
    case PR__ROUTE_REPLY:
        return queue->temporary && pr__span_equal(route->endpoint, queue->name);
    }
    return false;
}

static void end(pr_submitted *outcome, pr_submit_outcome kind, const char *reason)
{
    outcome->outcome = kind;
    pr__format(outcome->reason, sizeof(outcome->reason), "%s", reason);
}

/* Count the queues that the message is for; false when one of them is full. */
static bool count_targets(pr_memory_broker *broker, const pr__route *route,
                          const pr_message *message, size_t *ret_count, pr_submitted *outcome)
{
    size_t count = 0;
    for (pr__queue *queue = broker->queues; queue; queue = queue->next) {
        if (!is_for(queue, route))
            continue;
        count++;
        if (queue->held_count < broker->queue_messages_max &&
            message->body_size_bytes <= broker->queue_bytes_max &&
            queue->held_bytes <= broker->queue_bytes_max - message->body_size_bytes)
            continue;
        outcome->outcome = PR_SUBMIT_REFUSED;
        pr__format(outcome->reason, sizeof(outcome->reason),
                   "queue '%.100s' is full: it holds %zu messages of at most %zu, %zu bytes",
                   queue->name, queue->held_count, broker->queue_messages_max, queue->held_bytes);
        return false;
    }
    *ret_count = count;
    return true;
}

/* Push the envelope into every queue of the route, or into none when memory runs out. */
static bool push_all(pr_memory_broker *broker, const pr__route *route, pr__envelope *envelope)
{
    bool whole = true;
    for (pr__queue *queue = broker->queues; queue && whole; queue = queue->next) {
        if (!is_for(queue, route))
            continue;
        queue->prepared = pr__queue_prepare(queue, envelope);
        whole = queue->prepared != NULL;
    }
    for (pr__queue *queue = broker->queues; queue; queue = queue->next) {
        pr__entry *entry = TAKE(queue->prepared);
        if (entry && whole)
            pr__queue_push(queue, entry);
        else if (entry)
            pr__queue_unprepare(queue, entry);
    }
    return whole;
}

void pr__broker_publish(pr_memory_broker *broker, const char *scheme, const pr_message *message,
                        pr_submitted *ret_outcome)
{
    pr_error err = PR_ERROR_INIT;
    pr__route route;
    size_t targets = 0;
    if (message->body_size_bytes > broker->body_size_max) {
        end(ret_outcome, PR_SUBMIT_TOO_LARGE, "");
        pr__format(ret_outcome->reason, sizeof(ret_outcome->reason),
                   "the body has %llu bytes, the broker takes %llu",
                   (unsigned long long)message->body_size_bytes,
                   (unsigned long long)broker->body_size_max);
        return;
    }
    if (pr__route_parse(message->destination, &route, &err) != PR_OK) {
        end(ret_outcome, PR_SUBMIT_REFUSED, err.message);
        return;
    }
    if (!pr__span_equal(route.scheme, scheme)) {
        end(ret_outcome, PR_SUBMIT_REFUSED, "the destination is of another transport");
        return;
    }
    if (!count_targets(broker, &route, message, &targets, ret_outcome))
        return;
    if (targets == 0) {
        bool fine = route.kind == PR__ROUTE_TOPIC && pr__route_unrouted_ok(message);
        end(ret_outcome, fine ? PR_SUBMIT_CONFIRMED : PR_SUBMIT_RETURNED,
            fine ? "" : "nobody subscribes to the destination");
        return;
    }
    pr__envelope *envelope = pr__envelope_new(message);
    if (envelope && push_all(broker, &route, envelope))
        end(ret_outcome, PR_SUBMIT_CONFIRMED, "");
    else
        end(ret_outcome, PR_SUBMIT_LOST, "the broker is out of memory");
    pr__envelope_release(envelope);
}
