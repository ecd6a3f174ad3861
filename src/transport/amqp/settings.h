/*
 * What all connections of one RabbitMQ transport share: its options, copied and checked, the
 * watchdog, and the counters.
 */
#ifndef PR_TRANSPORT_AMQP_SETTINGS_H
#define PR_TRANSPORT_AMQP_SETTINGS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include <postroom/amqp.h>

#include "transport/amqp/names.h"
#include "transport/amqp/uri.h"
#include "transport/amqp/watchdog.h"

typedef struct pr__amqp_counters {
    atomic_uint connections;
    atomic_ullong connects, failures, channel_closes, blocks;
    atomic_ullong confirmed, returned, refused, lost, deadlines;
    atomic_ullong stale_tags, dead_letters, cancels;
} pr__amqp_counters;

typedef struct pr__amqp_settings {
    pr__amqp_uris *uris;
    pr__watchdog *watchdog;
    const pr_observer *observer;
    char name[32];
    char prefix[PR__AMQP_PREFIX_MAX + 1];
    char connection_name[256];
    uint32_t flags;
    bool quorum;
    uint32_t window;
    uint64_t bytes_in_flight_max;
    uint64_t body_size_max;
    int64_t publish_deadline_ms;
    int64_t reconnect_initial_ms;
    int64_t reconnect_max_ms;
    int64_t close_timeout_ms;
    pr__amqp_counters counters;
} pr__amqp_settings;

#define PR__AMQP_COUNT(settings, counter)                                                          \
    atomic_fetch_add_explicit(&(settings)->counters.counter, 1, memory_order_relaxed)

#endif
