/*
 * What the benchmarks on RabbitMQ share: queues that come and go, a transport of the library, and a
 * bare publisher through librabbitmq to hold it against. Anything that goes wrong ends the program.
 *
 * The bare publisher does what a careful application does by hand: persistent, mandatory,
 * confirmed, with the same window, and properties of the same kind; what it does not is to read a
 * database, to tell which message a return or a nack was about, and to come back after a fault.
 */
#ifndef PR_BENCH_RABBITMQ_H
#define PR_BENCH_RABBITMQ_H

#include <stdbool.h>
#include <stdint.h>

#include <amqp.h>

#include <postroom/amqp.h>
#include <postroom/postroom.h>

#define BENCH_MQ_QUEUE  "bench"
#define BENCH_MQ_WINDOW 256
#define BENCH_MQ_TYPE   "urn:message:bench:measured"

typedef struct bench_mq {
    amqp_connection_state_t connection;
    uint64_t published, confirmed; /* delivery tags of the channel */
} bench_mq;

bench_mq bench_mq_open(const char *uri); /* channel 1, confirms on */
void bench_mq_close(bench_mq *mq);
/* The queue anew, empty, with its dead queue, as the library declares it. */
void bench_mq_queue(bench_mq *mq, const char *uri, bool quorum);
long bench_mq_depth(bench_mq *mq);

/* Publish one to the queue. id: 36 characters. */
void bench_mq_publish(bench_mq *mq, const char *id, const void *body, size_t body_size);
/* Read confirms until at most `most` are open. A return or a nack ends the program. */
void bench_mq_wait(bench_mq *mq, uint64_t most);

/* An open transport of the library, name "rabbitmq". */
pr_transport *bench_mq_transport(const char *uri, bool quorum);

/* A rate, messages/s: count bodies of that size through the bare publisher. */
double bench_mq_bare(bench_mq *mq, uint64_t count, size_t body_size);

#endif
