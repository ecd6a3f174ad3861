/*
 * postroom-bench: figures of the library beside a baseline, side by side in one run.
 */
#include "bench.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"

typedef struct bench_case {
    const char *name;
    const char *what;
    void (*run)(const bench_options *opt, bench_report *report);
} bench_case;

static const bench_case cases[] = {
    {"enqueue", "enqueue in the host's transaction against a bare INSERT", bench_enqueue},
    {"drain", "drain through the relay against a bare loop", bench_drain},
    {"history", "drain with older rows in the log against an empty log", bench_history},
    {"memory", "peak memory of a relay with a large backlog", bench_memory},
};
#define CASE_COUNT (sizeof cases / sizeof *cases)

static void usage(FILE *out)
{
    fprintf(out, "usage: postroom-bench [--quick] [--rounds N] [--json FILE] [CASE...]\n\n");
    for (size_t i = 0; i < CASE_COUNT; i++)
        fprintf(out, "  %-8s  %s\n", cases[i].name, cases[i].what);
    fprintf(out, "\n--quick takes small sizes, to see that it works; its figures say little.\n");
}

static const bench_case *find_case(const char *name)
{
    for (size_t i = 0; i < CASE_COUNT; i++)
        if (strcmp(cases[i].name, name) == 0)
            return &cases[i];
    return NULL;
}

static int usage_error(const char *argument)
{
    fprintf(stderr, "postroom-bench: '%s' is no case or option\n", argument);
    usage(stderr);
    return 2;
}

int main(int argc, char **argv)
{
    bench_options opt = {.rounds = 5, .messages = 200000, .older = 2000000, .transactions = 300};
    bench_report report = {.count = 0};
    bool wanted[CASE_COUNT] = {false}, any = false;
    const char *json_path = NULL;

    if (argc == 3 && strcmp(argv[1], "--memory-child") == 0)
        return bench_memory_child(argv[2]);
    for (int i = 1; i < argc; i++) {
        int64_t rounds;
        const bench_case *found = find_case(argv[i]);
        if (found) {
            wanted[found - cases] = any = true;
        } else if (strcmp(argv[i], "--help") == 0) {
            usage(stdout);
            return 0;
        } else if (strcmp(argv[i], "--quick") == 0) {
            opt =
                (bench_options){.rounds = 3, .messages = 5000, .older = 20000, .transactions = 30};
        } else if (strcmp(argv[i], "--json") == 0 && i + 1 < argc) {
            json_path = argv[++i];
        } else if (strcmp(argv[i], "--rounds") == 0 && i + 1 < argc &&
                   pr__parse_int64(argv[i + 1], 1, BENCH_ROUNDS_MAX, &rounds)) {
            opt.rounds = (int)rounds;
            i++;
        } else {
            return usage_error(argv[i]);
        }
    }
    for (size_t i = 0; i < CASE_COUNT; i++) {
        if (any && !wanted[i])
            continue;
        fprintf(stderr, "%s ...\n", cases[i].what);
        cases[i].run(&opt, &report);
    }
    return bench_report_print(&report, json_path) == 0 ? 0 : 1;
}
