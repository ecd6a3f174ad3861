/*
 * What a benchmark found: figures of ours beside a baseline, their ratio, and the goal.
 */
#ifndef PR_BENCH_REPORT_H
#define PR_BENCH_REPORT_H

#include <stdbool.h>
#include <stddef.h>

#define BENCH_ROUNDS_MAX 25
#define BENCH_LINES_MAX  32

/* Is a small ratio good (time, memory) or a large one (rate)? */
typedef enum bench_goal { BENCH_AT_MOST = 1, BENCH_AT_LEAST } bench_goal;

typedef struct bench_line {
    char name[80];
    char unit[24];          /* of ours and baseline */
    char baseline_name[80]; /* what it is measured against */
    double ours;            /* median */
    double baseline;        /* median; 0 = there is none, and ratio is ours */
    double ratio;           /* median of the rounds' own ratios */
    double ratio_low, ratio_high;
    double goal;
    bench_goal goal_kind;
    int rounds;
} bench_line;

typedef struct bench_report {
    bench_line lines[BENCH_LINES_MAX];
    size_t count;
} bench_report;

double bench_median(const double *values, int count);

/* Add a line from the figures of each round; baseline NULL = none. */
void bench_report_add(bench_report *report, const char *name, const char *unit,
                      const char *baseline_name, const double *ours, const double *baseline,
                      int rounds, bench_goal goal_kind, double goal);

bool bench_line_met(const bench_line *line);

/* Write the table to standard output, and the same as JSON to a file (NULL = none). */
int bench_report_print(const bench_report *report, const char *json_path);

#endif
