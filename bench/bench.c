/*
 * postroom-bench: figures of the library beside a baseline, side by side in one run.
 */
#include "bench.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"

/* Where it runs: which servers it needs. */
typedef enum bench_place { ON_SQLITE, ON_POSTGRES, ON_RABBITMQ } bench_place;

typedef struct bench_case {
    const char *name;
    const char *what;
    void (*run)(const bench_options *opt, bench_report *report);
    bench_place place;
} bench_case;

static const bench_case cases[] = {
    {"enqueue", "enqueue in the host's transaction against a bare INSERT", bench_enqueue,
     ON_SQLITE},
    {"drain", "drain through the relay against a bare loop", bench_drain, ON_SQLITE},
    {"history", "drain with older rows in the log against an empty log", bench_history, ON_SQLITE},
    {"contract", "decode and encode ten fields against jansson alone", bench_contract, ON_SQLITE},
    {"memory", "peak memory of a relay with a large backlog", bench_memory, ON_SQLITE},
    {"saga", "steps of a saga against a bare loop", bench_saga, ON_SQLITE},
    {"handler", "an empty handler with its inbox against a bare INSERT and COMMIT", bench_handler,
     ON_SQLITE},
    {"drain", "drain by two relays against a table with a status column, and PgQ",
     bench_postgres_drain, ON_POSTGRES},
    {"wal", "bytes of WAL a message, at batches of 200", bench_postgres_wal, ON_POSTGRES},
    {"enqueue", "enqueue by 16 clients against a bare INSERT", bench_postgres_enqueue, ON_POSTGRES},
    {"latency", "from commit to claim with an idle relay", bench_postgres_latency, ON_POSTGRES},
    {"pinned", "claims while others hold the horizon, ledger and table", bench_postgres_pinned,
     ON_POSTGRES},
    {"handler", "an empty handler against a bare loop; batches of 50 against one message each",
     bench_postgres_handler, ON_POSTGRES},
    {"saga", "steps of a saga against a bare loop, and others beside a hot one",
     bench_postgres_saga, ON_POSTGRES},
    {"publish", "publish through the transport against a bare publisher", bench_rabbitmq_publish,
     ON_RABBITMQ},
    {"relay", "relay PostgreSQL to RabbitMQ against a bare publisher, and a naive relay",
     bench_rabbitmq_relay, ON_RABBITMQ},
    {"consume", "consume from RabbitMQ with an inbox in PostgreSQL", bench_rabbitmq_consume,
     ON_RABBITMQ},
    {"handler", "an empty handler on both stores against a bare INSERT and COMMIT",
     bench_rabbitmq_handler, ON_RABBITMQ},
    {"memory", "resident memory over many publishes", bench_rabbitmq_memory, ON_RABBITMQ},
};
#define CASE_COUNT (sizeof cases / sizeof *cases)

static void list_cases(FILE *out, bench_place place)
{
    for (size_t i = 0; i < CASE_COUNT; i++)
        if (cases[i].place == place)
            fprintf(out, "  %-8s  %s\n", cases[i].name, cases[i].what);
}

static void usage(FILE *out)
{
    fprintf(out, "usage: postroom-bench [--postgres ADDRESS] [--rabbitmq URI] [--quick] [--rounds "
                 "N] [--messages N]"
                 " [--seconds N] [--samples N] [--json FILE] [CASE...]\n\n");
    list_cases(out, ON_SQLITE);
    fprintf(out, "\nwith --postgres, on a server that is nobody else's, as a superuser:\n\n");
    list_cases(out, ON_POSTGRES);
    fprintf(out, "\nwith --postgres and --rabbitmq, on a broker that is nobody else's:\n\n");
    list_cases(out, ON_RABBITMQ);
    fprintf(out, "\n--seconds is the length of each phase of the pinned run, --samples how often a"
                 " latency is taken.\n"
                 "--quick takes small sizes, to see that it works; its figures say little.\n");
}

static int usage_error(const char *argument)
{
    fprintf(stderr, "postroom-bench: '%s' is no case or option\n", argument);
    usage(stderr);
    return 2;
}

static bool mark_case(bench_place place, const char *name, bool wanted[CASE_COUNT])
{
    for (size_t i = 0; i < CASE_COUNT; i++)
        if (cases[i].place == place && strcmp(cases[i].name, name) == 0)
            return wanted[i] = true;
    return false;
}

/* An option with a number behind it. */
static bool number_option(bench_options *opt, const char *name, const char *text)
{
    int64_t number;
    if (!text || !pr__parse_int64(text, 1, 100000000, &number))
        return false;
    if (strcmp(name, "--rounds") == 0 && number <= BENCH_ROUNDS_MAX)
        opt->rounds = (int)number;
    else if (strcmp(name, "--messages") == 0)
        opt->messages = opt->published = opt->flat = (uint64_t)number;
    else if (strcmp(name, "--seconds") == 0)
        opt->phase_s = (double)number;
    else if (strcmp(name, "--samples") == 0)
        opt->samples = (int)number;
    else
        return false;
    return true;
}

/* Sizes that others change: the server, and whether it is to be quick. */
static bench_options sizes(int argc, char **argv)
{
    bench_options opt = {.rounds = 5, .messages = 200000, .older = 2000000, .transactions = 300};
    const char *server = NULL, *broker = NULL;
    bool quick = false;
    for (int i = 1; i < argc; i++) {
        quick = quick || strcmp(argv[i], "--quick") == 0;
        if (strcmp(argv[i], "--postgres") == 0 && i + 1 < argc)
            server = argv[++i];
        else if (strcmp(argv[i], "--rabbitmq") == 0 && i + 1 < argc)
            broker = argv[++i];
    }
    if (quick)
        opt = (bench_options){.rounds = 3, .messages = 5000, .older = 20000, .transactions = 30};
    opt.phase_s = quick ? 3 : 60;
    opt.samples = quick ? 5 : 100;
    opt.server = server;
    opt.broker = broker;
    opt.published = quick ? 4000 : 40000;
    opt.flat = quick ? 20000 : 200000;
    return opt;
}

int main(int argc, char **argv)
{
    bench_options opt = sizes(argc, argv);
    bool wanted[CASE_COUNT] = {false}, any = false;
    bench_place place = opt.broker ? ON_RABBITMQ : opt.server ? ON_POSTGRES : ON_SQLITE;
    const char *json_path = NULL;
    bench_report report = {.count = 0};

    if (argc == 3 && strcmp(argv[1], "--memory-child") == 0)
        return bench_memory_child(argv[2]);
    for (int i = 1; i < argc && argv[i]; i++) {
        const char *value = i + 1 < argc ? argv[i + 1] : NULL;
        if (mark_case(place, argv[i], wanted)) {
            any = true;
        } else if (strcmp(argv[i], "--help") == 0) {
            usage(stdout);
            return 0;
        } else if (strcmp(argv[i], "--json") == 0 && value) {
            json_path = value;
            i++;
        } else if ((strcmp(argv[i], "--postgres") == 0 && value) ||
                   (strcmp(argv[i], "--rabbitmq") == 0 && value) ||
                   number_option(&opt, argv[i], value)) {
            i++;
        } else if (strcmp(argv[i], "--quick") != 0) {
            return usage_error(argv[i]);
        }
    }
    for (size_t i = 0; i < CASE_COUNT; i++) {
        if (cases[i].place != place || (any && !wanted[i]))
            continue;
        fprintf(stderr, "%s ...\n", cases[i].what);
        cases[i].run(&opt, &report);
    }
    return bench_report_print(&report, json_path) == 0 ? 0 : 1;
}
