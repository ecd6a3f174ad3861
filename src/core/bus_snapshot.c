/*
 * What a bus tells of itself.
 *
 * Keeps: the health is that of the worst part, and its reason names it.
 * Must not know: how the parts come to their state.
 */
#include "base/error.h"
#include "base/text.h"
#include "core/bus.h"
#include "core/endpoint.h"

#define ORIGIN "bus"

static void worsen(pr_bus_snapshot *snapshot, pr_health health, const char *part,
                   const char *reason)
{
    if (health <= snapshot->health)
        return;
    snapshot->health = health;
    pr__format(snapshot->health_reason, sizeof snapshot->health_reason, "%s: %s", part, reason);
}

static void add_endpoint(pr_bus_snapshot *snapshot, pr_endpoint *endpoint)
{
    pr_endpoint_snapshot one = {.size = (uint32_t)sizeof one};
    if (pr_endpoint_snapshot_get(endpoint, &one, NULL) != PR_OK)
        return;
    switch (one.state) {
    case PR_ENDPOINT_ACCEPTING:
        snapshot->accepting++;
        return;
    case PR_ENDPOINT_BUSY:
        snapshot->busy++;
        return;
    case PR_ENDPOINT_PAUSED:
        snapshot->paused++;
        worsen(snapshot, PR_HEALTH_DEGRADED, endpoint->opt.id, one.paused_reason);
        return;
    case PR_ENDPOINT_STOPPED:
        snapshot->stopped++;
        if (one.unreached_reason[0] != '\0')
            worsen(snapshot, PR_HEALTH_DEGRADED, endpoint->opt.id, one.unreached_reason);
        return;
    }
}

static void add_relay(pr_bus_snapshot *snapshot, pr_relay *relay)
{
    pr_relay_snapshot one = {.size = (uint32_t)sizeof one};
    if (!relay || pr_relay_snapshot_get(relay, &one, NULL) != PR_OK)
        return;
    snapshot->relay_running = one.running;
    worsen(snapshot, one.health, "relay", one.health_reason);
}

pr_status pr_bus_snapshot_get(pr_bus *bus, pr_bus_snapshot *ret_snapshot, pr_error *err)
{
    if (!bus)
        return pr__fail(err, PR_E_INVALID, ORIGIN, "the bus is NULL");
    if (!ret_snapshot || ret_snapshot->size < sizeof *ret_snapshot)
        return pr__fail(err, PR_E_INVALID, ORIGIN,
                        "the snapshot is NULL, or its size is not set to sizeof(pr_bus_snapshot)");
    pr_bus_snapshot now = {.size = ret_snapshot->size, .health = PR_HEALTH_HEALTHY};
    now.started = atomic_load(&bus->started);
    now.transport_count = bus->transport_count;
    now.endpoint_count = bus->endpoint_count;
    for (uint32_t i = 0; i < bus->endpoint_count; i++)
        add_endpoint(&now, bus->endpoints[i].endpoint);
    pthread_mutex_lock(&bus->relay_mutex);
    if (now.started)
        add_relay(&now, bus->relay);
    pthread_mutex_unlock(&bus->relay_mutex);
    if (now.started && now.stopped > 0)
        worsen(&now, PR_HEALTH_DEGRADED, "endpoints", "one of them is not subscribed");
    now.published = atomic_load(&bus->published);
    now.refused = atomic_load(&bus->refused);
    now.requests = atomic_load(&bus->requests);
    now.replies = atomic_load(&bus->replies);
    now.timeouts = atomic_load(&bus->timeouts);
    now.late_replies = atomic_load(&bus->late_replies);
    *ret_snapshot = now;
    return PR_OK;
}
