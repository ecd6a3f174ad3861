/*
 * Messages for an endpoint, through each transport.
 */
#include "source.h"

#include <string.h>

#include <postroom/database.h>

#include "database.h"

#include "base/text.h"
#include "base/time.h"
#include "base/uuid.h"

#define FEED 200 /* submitted at once */

const char *bench_carrier_name(bench_carrier carrier)
{
    static const char *const names[] = {
        [BENCH_MEMORY] = "memory", [BENCH_DATABASE] = "database", [BENCH_RABBITMQ] = "RabbitMQ"};
    return names[carrier];
}

bench_source bench_source_open(bench_carrier carrier, pr_store *store, const char *uri)
{
    pr_error err = PR_ERROR_INIT;
    bench_source source = {.carrier = carrier, .store = store, .uri = uri};
    if (carrier == BENCH_MEMORY)
        bench_check(pr_memory_broker_new(&source.broker, &err), &err, "make a broker");
    if (carrier == BENCH_RABBITMQ) {
        bench_mq mq = bench_mq_open(uri);
        bench_mq_queue(&mq, uri, /* quorum= */ false);
        bench_mq_close(&mq);
    }
    return source;
}

void bench_source_close(bench_source *source)
{
    pr_memory_broker_free(source->broker);
    source->broker = NULL;
}

pr_transport *bench_source_transport(const bench_source *source)
{
    pr_error err = PR_ERROR_INIT;
    pr_transport *transport = NULL;
    const pr_database_options database = {.size = (uint32_t)sizeof database, .window = FEED};
    const pr_memory_options memory = {.size = (uint32_t)sizeof memory, .window = FEED};
    if (source->carrier == BENCH_RABBITMQ)
        return bench_mq_transport(source->uri, /* quorum= */ false);
    if (source->carrier == BENCH_DATABASE)
        bench_check(pr_database_transport_new(source->store, &database, &transport, &err), &err,
                    "make a transport");
    else
        bench_check(pr_memory_transport_new(source->broker, &memory, &transport, &err), &err,
                    "make a transport");
    bench_check(pr_transport_open(transport, 1000, &err), &err, "open a transport");
    return transport;
}

static void confirm(pr_transport *out, size_t count)
{
    pr_error err = PR_ERROR_INIT;
    pr_submitted outcomes[FEED];
    for (size_t done = 0, taken = 0; done < count; done += taken) {
        bench_check(pr_transport_poll(out, 1000, outcomes, FEED, &taken, &err), &err, "poll");
        for (size_t i = 0; i < taken; i++) {
            if (outcomes[i].outcome != PR_SUBMIT_CONFIRMED)
                bench_fail("feed", outcomes[i].reason);
        }
    }
}

static void feed_broker(const bench_source *source, uint64_t count)
{
    bench_mq mq = bench_mq_open(source->uri);
    (void)bench_mq_bare(&mq, count, BENCH_BODY_SIZE);
    bench_mq_close(&mq);
}

void bench_source_feed(const bench_source *source, uint64_t count)
{
    static const char body[BENCH_BODY_SIZE];
    if (source->carrier == BENCH_RABBITMQ) {
        feed_broker(source, count);
        return;
    }
    pr_error err = PR_ERROR_INIT;
    pr_transport *out = bench_source_transport(source);
    char destination[128];
    pr__format(destination, sizeof destination, "%s://topic/" BENCH_SOURCE_TYPE, out->name);
    for (uint64_t done = 0; done < count;) {
        char ids[FEED][PR_UUID_TEXT_SIZE];
        pr_message messages[FEED];
        pr_submission submissions[FEED];
        size_t part = count - done < FEED ? (size_t)(count - done) : FEED, taken = 0;
        for (size_t i = 0; i < part; i++) {
            uint8_t random[10] = {0};
            uint64_t number = done + i;
            memcpy(random, &number, sizeof number);
            pr__uuid7(pr__wall_us(), random, ids[i]);
            messages[i] =
                (pr_message)PR_MESSAGE(.id = ids[i], .type = BENCH_SOURCE_TYPE, .type_version = 1,
                                       .body = body, .content_type = "application/octet-stream",
                                       .destination = destination, .body_size_bytes = sizeof body,
                                       .occurred_at_us = 1767225600000000);
            submissions[i] = (pr_submission){.ticket = number, .message = &messages[i]};
        }
        bench_check(pr_transport_submit(out, submissions, part, &taken, &err), &err, "submit");
        confirm(out, taken);
        done += taken;
    }
    pr_transport_free(out);
}
