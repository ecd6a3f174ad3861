/*
 * What others see of a relay: counters, health, observations.
 *
 * Keeps: the snapshot is copied under its own lock, and only copied there, so that asking never
 * waits for a round.
 * Must not know: how any of it came about.
 */
#include <string.h>

#include "base/error.h"
#include "base/text.h"
#include "core/relay_engine.h"
#include "port/observe.h"

#define UNHEALTHY_AFTER 5

void pr__relay_tell(pr_relay *relay, pr_observation_kind kind, uint64_t count, int64_t duration_us)
{
    const pr_observation observation = {.size = (uint32_t)sizeof observation,
                                        .kind = kind,
                                        .count = count,
                                        .duration_us = duration_us,
                                        .reader = PR_READER_RELAY,
                                        .subject = relay->owner};
    pr__observe(relay->opt.observer, &observation);
}

void pr__relay_tell_item(pr_relay *relay, pr_observation_kind kind, const pr__item *item)
{
    const pr_observation observation = {.size = (uint32_t)sizeof observation,
                                        .kind = kind,
                                        .count = 1,
                                        .reader = PR_READER_RELAY,
                                        .message_id = item->message.id,
                                        .type = item->message.type,
                                        .destination = item->message.destination,
                                        .subject = relay->owner,
                                        .text = item->error};
    pr__observe(relay->opt.observer, &observation);
}

void pr__relay_tell_subject(pr_relay *relay, pr_observation_kind kind, const char *subject,
                            pr_status status, const char *text)
{
    const pr_observation observation = {.size = (uint32_t)sizeof observation,
                                        .kind = kind,
                                        .count = 1,
                                        .reader = PR_READER_RELAY,
                                        .subject = subject,
                                        .status = status,
                                        .text = text};
    pr__observe(relay->opt.observer, &observation);
}

/* The first transport that is not up, once it was tried; NULL = none. */
static const pr__relay_transport *troubled(const pr_relay *relay)
{
    for (uint32_t i = 0; i < relay->transport_count; i++) {
        const pr__relay_transport *transport = &relay->transports[i];
        if (!transport->up && (transport->blocked || transport->failures > 0))
            return transport;
    }
    return NULL;
}

static void judge(const pr_relay *relay, pr_relay_snapshot *s)
{
    const pr__relay_transport *trouble = troubled(relay);
    s->health = PR_HEALTH_DEGRADED;
    if (relay->failures > 0) {
        s->health = relay->failures >= UNHEALTHY_AFTER ? PR_HEALTH_UNHEALTHY : PR_HEALTH_DEGRADED;
        pr__format(s->health_reason, sizeof s->health_reason, "%u failed in a row: %s",
                   relay->failures, relay->failed_why);
    } else if (trouble) {
        pr__format(s->health_reason, sizeof s->health_reason, "transport '%s' is %s: %s",
                   trouble->name, trouble->blocked ? "blocked" : "down", trouble->cause);
    } else if (!s->first_round_done) {
        pr__format(s->health_reason, sizeof s->health_reason, "the first round is not done yet");
    } else if (relay->lane_waits[0]) {
        pr__format(s->health_reason, sizeof s->health_reason, "%s", relay->lane_waits);
    } else {
        s->health = PR_HEALTH_HEALTHY;
        s->health_reason[0] = '\0';
    }
}

void pr__relay_publish_snapshot(pr_relay *relay)
{
    pr_relay_snapshot *s = &relay->now;
    s->lanes_held = s->in_flight = 0;
    for (uint32_t i = 0; i < PR__RELAY_WORKS; i++) {
        const pr__work *work = &relay->works[i];
        if (work->phase != PR__WORK_SENDING && work->phase != PR__WORK_DECIDED)
            continue;
        for (uint32_t k = 0; k < work->batch->slice_count; k++)
            s->lanes_held += !work->settled || !work->settled[k];
    }
    for (uint32_t i = 0; i < relay->transport_count; i++)
        s->in_flight += relay->transports[i].in_flight;
    s->breakers_open = pr__breakers_open_count(relay->breakers);
    s->consecutive_failures = relay->failures;
    judge(relay, s);
    pthread_mutex_lock(&relay->lock);
    relay->snapshot = *s;
    pthread_mutex_unlock(&relay->lock);
}

pr_status pr_relay_snapshot_get(pr_relay *relay, pr_relay_snapshot *ret_snapshot, pr_error *err)
{
    if (!relay || !ret_snapshot)
        return pr__fail(err, PR_E_INVALID, "relay", "relay or ret_snapshot is NULL");
    uint32_t size = ret_snapshot->size;
    if (size < sizeof *ret_snapshot)
        return pr__fail(err, PR_E_INVALID, "relay", "size of pr_relay_snapshot is not set");
    pthread_mutex_lock(&relay->lock);
    *ret_snapshot = relay->snapshot;
    pthread_mutex_unlock(&relay->lock);
    ret_snapshot->size = size;
    return PR_OK;
}
