/*
 * The transport alone against the bare publisher: same window, same queue, same bodies; and its
 * memory over many publishes.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bench.h"
#include "database.h"
#include "rabbitmq.h"

#include "base/text.h"

#define BODY_MAX 4096
#define POLL_MS  20

/* A message that lives until its outcome was polled. */
typedef struct slot {
    bool busy;
    char id[40];
    pr_message message;
} slot;

typedef struct sender {
    pr_transport *transport;
    slot slots[BENCH_MQ_WINDOW];
    uint64_t sent, ended;
    char body[BODY_MAX];
    size_t body_size;
} sender;

static void prepare(sender *of, uint64_t number, pr_submission *ret_submission)
{
    slot *at = &of->slots[number % BENCH_MQ_WINDOW];
    pr__format(at->id, sizeof at->id, "018e0000-0000-7000-8000-%012llx",
               (unsigned long long)number);
    at->busy = true;
    at->message = (pr_message)PR_MESSAGE(.type_version = 1, .id = at->id, .type = BENCH_MQ_TYPE,
                                         .content_type = "application/json",
                                         .destination = "rabbitmq://in/" BENCH_MQ_QUEUE,
                                         .body = of->body, .body_size_bytes = of->body_size,
                                         .occurred_at_us = 1767225600000000);
    *ret_submission = (pr_submission){number, &at->message};
}

/* Confirms may come in any order; a slot is used again when its own has come. */
static void collect(sender *of, int64_t wait_ms)
{
    pr_error err = PR_ERROR_INIT;
    pr_submitted outcomes[BENCH_MQ_WINDOW];
    size_t count = 0;
    bench_check(pr_transport_poll(of->transport, wait_ms, outcomes, BENCH_MQ_WINDOW, &count, &err),
                &err, "poll");
    for (size_t i = 0; i < count; i++) {
        if (outcomes[i].outcome != PR_SUBMIT_CONFIRMED)
            bench_fail("publish", outcomes[i].reason);
        of->slots[outcomes[i].ticket % BENCH_MQ_WINDOW].busy = false;
    }
    of->ended += count;
}

/* As much as the window has room for, again and again: publishing and confirming overlap. */
static double send_all(sender *of, uint64_t count)
{
    pr_error err = PR_ERROR_INIT;
    pr_submission submissions[BENCH_MQ_WINDOW];
    double start = bench_seconds();
    uint64_t first = of->sent, until = of->sent + count;
    while (of->ended < until) {
        size_t room = BENCH_MQ_WINDOW - (size_t)(of->sent - of->ended), some = 0, taken = 0;
        for (; some < room && of->sent + some < until &&
               !of->slots[(of->sent + some) % BENCH_MQ_WINDOW].busy;
             some++)
            prepare(of, of->sent + some, &submissions[some]);
        if (some > 0)
            bench_check(pr_transport_submit(of->transport, submissions, some, &taken, &err), &err,
                        "submit");
        for (size_t i = taken; i < some; i++)
            of->slots[submissions[i].ticket % BENCH_MQ_WINDOW].busy = false;
        of->sent += taken;
        collect(of, POLL_MS);
    }
    return (double)(of->sent - first) / (bench_seconds() - start);
}

static double transport_rate(const char *uri, bool quorum, uint64_t count, size_t body_size)
{
    static sender of;
    of = (sender){.transport = bench_mq_transport(uri, quorum), .body_size = body_size};
    memset(of.body, 'x', sizeof of.body);
    double rate = send_all(&of, count);
    pr_transport_free(of.transport);
    return rate;
}

static void publish_one(const bench_options *opt, bench_report *report, bool quorum,
                        size_t body_size)
{
    double ours[BENCH_ROUNDS_MAX], bare[BENCH_ROUNDS_MAX];
    char name[80];
    bench_mq mq = bench_mq_open(opt->broker);
    for (int round = 0; round < opt->rounds; round++) {
        for (int side = 0; side < 2; side++) {
            bench_mq_queue(&mq, opt->broker, quorum);
            if (side == round % 2)
                ours[round] = transport_rate(opt->broker, quorum, opt->published, body_size);
            else
                bare[round] = bench_mq_bare(&mq, opt->published, body_size);
            if (bench_mq_depth(&mq) < (long)opt->published)
                bench_fail("publish", "the queue has not got them all");
        }
    }
    bench_mq_close(&mq);
    pr__format(name, sizeof name, "publish, %s, %zu bytes", quorum ? "quorum" : "classic",
               body_size);
    bench_report_add(report, name, "messages/s", "bare librabbitmq, window 256", ours, bare,
                     opt->rounds, BENCH_AT_LEAST, 0.9);
}

void bench_rabbitmq_publish(const bench_options *opt, bench_report *report)
{
    for (int quorum = 0; quorum < 2; quorum++) {
        publish_one(opt, report, quorum != 0, 256);
        publish_one(opt, report, quorum != 0, 1024);
    }
}

static double resident_mib(void)
{
    char line[128] = "";
    FILE *in = fopen("/proc/self/statm", "r");
    if (!in || !fgets(line, sizeof line, in) || !strchr(line, ' '))
        bench_fail("look at the memory", "/proc/self/statm");
    (void)fclose(in);
    return strtod(strchr(line, ' '), NULL) * (double)sysconf(_SC_PAGESIZE) / (1024 * 1024);
}

/* Resident memory after a tenth, and after all; the queue is emptied meanwhile. */
void bench_rabbitmq_memory(const bench_options *opt, bench_report *report)
{
    static sender of;
    double after[1], before[1];
    bench_mq mq = bench_mq_open(opt->broker);
    bench_mq_queue(&mq, opt->broker, false);
    of = (sender){.transport = bench_mq_transport(opt->broker, false), .body_size = 256};
    for (uint64_t part = 0; part < 10; part++) {
        (void)send_all(&of, opt->flat / 10);
        amqp_queue_purge(mq.connection, 1, amqp_cstring_bytes(BENCH_MQ_QUEUE));
        *(part == 0 ? before : after) = resident_mib();
    }
    pr_transport_free(of.transport);
    bench_mq_close(&mq);
    bench_report_add(report, "resident memory after all publishes", "MiB", "after a tenth of them",
                     after, before, 1, BENCH_AT_MOST, 1.05);
}
