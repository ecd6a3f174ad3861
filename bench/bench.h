/*
 * The benchmarks. Each adds its lines to the report.
 */
#ifndef PR_BENCH_BENCH_H
#define PR_BENCH_BENCH_H

#include <stdint.h>

#include "report.h"

typedef struct bench_options {
    int rounds;            /* >= 5 for figures that are reported */
    uint64_t messages;     /* of a drain */
    uint64_t older;        /* rows in the log before a drain with history */
    uint64_t transactions; /* of an enqueue round */
    const char *server;    /* libpq address of a PostgreSQL; NULL = the benchmarks are on SQLite */
    double phase_s;        /* of each phase of the pinned run */
    int samples;           /* of a latency */
    const char *broker;    /* amqp:// URI of a RabbitMQ; NULL = none */
    uint64_t published;    /* to it, a round */
    uint64_t flat;         /* published while memory is watched */
} bench_options;

void bench_enqueue(const bench_options *opt, bench_report *report);
void bench_drain(const bench_options *opt, bench_report *report);
void bench_history(const bench_options *opt, bench_report *report);
void bench_contract(const bench_options *opt, bench_report *report);
void bench_memory(const bench_options *opt, bench_report *report);
void bench_saga(const bench_options *opt, bench_report *report);
void bench_handler(const bench_options *opt, bench_report *report);
void bench_postgres_handler(const bench_options *opt, bench_report *report);

/* On PostgreSQL. */
void bench_postgres_drain(const bench_options *opt, bench_report *report);
void bench_postgres_pinned(const bench_options *opt, bench_report *report);
void bench_postgres_wal(const bench_options *opt, bench_report *report);
void bench_postgres_enqueue(const bench_options *opt, bench_report *report);
void bench_postgres_latency(const bench_options *opt, bench_report *report);
void bench_postgres_saga(const bench_options *opt, bench_report *report);

/* From PostgreSQL to RabbitMQ and back. */
void bench_rabbitmq_publish(const bench_options *opt, bench_report *report);
void bench_rabbitmq_relay(const bench_options *opt, bench_report *report);
void bench_rabbitmq_consume(const bench_options *opt, bench_report *report);
void bench_rabbitmq_handler(const bench_options *opt, bench_report *report);
void bench_rabbitmq_memory(const bench_options *opt, bench_report *report);

/* The child of bench_memory: drain the store at path, then end. */
int bench_memory_child(const char *path);

#endif
