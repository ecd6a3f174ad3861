/*
 * The memory broker: the queues of one process, and who gets what.
 */
#ifndef PR_TRANSPORT_MEMORY_BROKER_H
#define PR_TRANSPORT_MEMORY_BROKER_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <postroom/memory.h>

#include "transport/memory/queue.h"

/* Bounds: beyond them a message is refused, a subscription too; of the dead the oldest go. */
#define PR__MEMORY_QUEUES_MAX         4096
#define PR__MEMORY_QUEUE_MESSAGES_MAX 100000
#define PR__MEMORY_QUEUE_BYTES_MAX    ((size_t)256 * 1024 * 1024)
#define PR__MEMORY_DEAD_MAX           10000

struct pr_memory_broker {
    pthread_mutex_t lock; /* guards all below, and every queue */
    pr__queue *queues;
    size_t queue_count;
    size_t queue_messages_max;
    size_t queue_bytes_max;
    size_t dead_max;
    uint64_t body_size_max;
    uint32_t last_epoch; /* each opening of a subscription has its own */
};

/* All with the lock held. */
pr__queue *pr__broker_find(pr_memory_broker *broker, const char *name, bool temporary);
/* Find or make the queue of the options. CONFLICT: it stands with other types, or is a temporary
   one. LIMIT: too many queues. */
pr_status pr__broker_declare(pr_memory_broker *broker, const pr_subscribe_options *options,
                             pr__queue **ret_queue, pr_error *err);
void pr__broker_drop_queue(pr_memory_broker *broker, pr__queue *queue);
/* Route one message to every queue that it is for, or to none. */
void pr__broker_publish(pr_memory_broker *broker, const char *scheme, const pr_message *message,
                        pr_submitted *ret_outcome);

#endif
