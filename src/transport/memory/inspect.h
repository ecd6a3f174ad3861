/*
 * What tests may see of, and do to, a memory broker. Any thread, but for
 * pr__memory_subscription_cut: the subscription's own.
 */
#ifndef PR_TRANSPORT_MEMORY_INSPECT_H
#define PR_TRANSPORT_MEMORY_INSPECT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <postroom/memory.h>

typedef struct pr__memory_counts {
    size_t held; /* waiting, delayed or in hand */
    size_t ready;
    size_t delayed;
    size_t dead;
    size_t chains; /* keys in use */
} pr__memory_counts;

/* false: no such queue. */
bool pr__memory_counts_get(pr_memory_broker *broker, const char *endpoint, bool temporary,
                           pr__memory_counts *ret_counts);
/* Zero leaves a bound as it is. */
void pr__memory_limits_set(pr_memory_broker *broker, size_t queue_messages_max, size_t dead_max,
                           uint64_t body_size_max);
/* Cut the connection of a subscription: what it has in hand goes back to the queue, its tags are
   stale, its next receive answers BACKEND once. A temporary one is gone. */
void pr__memory_subscription_cut(pr_subscription *subscription);

#endif
