/*
 * What a benchmark found: figures of ours beside a baseline, their ratio, and the goal.
 */
#ifndef PR_BENCH_REPORT_H
#define PR_BENCH_REPORT_H

#include <stdbool.h>
#include <stddef.h>

#define BENCH_ROUNDS_MAX 25
#define BENCH_LINES_MAX  64
#define BENCH_SERIES_MAX 8

/* Is a small ratio good (time, memory) or a large one (rate)? Or is the goal one of ours alone,
   whatever the baseline is; or is there none, and the line is there to be looked at? */
typedef enum bench_goal {
    BENCH_AT_MOST = 1,
    BENCH_AT_LEAST,
    BENCH_OURS_AT_MOST,
    BENCH_NO_GOAL
} bench_goal;

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

typedef struct bench_point {
    double at_s;
    double value;
} bench_point;

/* Something over time, for a plot; its points live until the report is written. */
typedef struct bench_series {
    const char *name;
    const char *unit;
    bench_point *points;
    size_t count;
} bench_series;

/* A stretch of time of all series. */
typedef struct bench_phase {
    const char *name;
    double from_s;
} bench_phase;

typedef struct bench_report {
    bench_line lines[BENCH_LINES_MAX];
    size_t count;
    bench_series series[BENCH_SERIES_MAX];
    size_t series_count;
    bench_phase phases[BENCH_SERIES_MAX];
    size_t phase_count;
} bench_report;

double bench_median(const double *values, int count);
void bench_sort(double *values, size_t count);
double bench_percentile(const double *sorted, size_t count, unsigned percent);

/* Add a line from the figures of each round; baseline NULL = none. */
void bench_report_add(bench_report *report, const char *name, const char *unit,
                      const char *baseline_name, const double *ours, const double *baseline,
                      int rounds, bench_goal goal_kind, double goal);

/* Add something over time; points become the report's. */
void bench_report_series(bench_report *report, const char *name, const char *unit,
                         bench_point *points, size_t count);
void bench_report_phase(bench_report *report, const char *name, double from_s);

bool bench_line_met(const bench_line *line);

/* Write the table to standard output, and the same as JSON to a file (NULL = none). */
int bench_report_print(const bench_report *report, const char *json_path);

#endif
